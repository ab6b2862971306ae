package api

import (
	"context"
	"net/http"
)

// Transaction is a transaction over several shards that is not over.
type Transaction struct {
	// ID is the name under which its parts are prepared.
	ID         string  `json:"id"`
	AgeSeconds float64 `json:"age_seconds"`
	// Participants are the shards that are known to take part, PreparedOn those that wait for its end, and LostOn those that have lost something of it.
	Participants []string `json:"participants"`
	PreparedOn   []string `json:"prepared_on"`
	LostOn       []string `json:"lost_on,omitempty"`
	// Phase is preparing, committing, rolling back, abandoned, waiting for a shard, in doubt or lost.
	Phase string `json:"phase"`
	// Router commits it; the ID of one that is gone. DecidedOn is the shard that has the decision.
	Router    string `json:"router"`
	DecidedOn string `json:"decided_on"`
	Detail    string `json:"detail,omitempty"`
}

// Transactions are those that are not over, the oldest first.
type Transactions struct {
	Transactions []Transaction `json:"transactions"`
	Findings     []Finding     `json:"findings,omitempty"`
}

// ResolveTransaction is what a person has decided.
type ResolveTransaction struct {
	ID string `json:"id"`
	// How is commit, rollback or forget.
	How string `json:"how"`
}

// TransactionResolved says what was done.
type TransactionResolved struct {
	Message string `json:"message"`
}

// Transactions lists the transactions over several shards that are not over.
func (c *Client) Transactions(ctx context.Context) (Transactions, error) {
	return get[Transactions](ctx, c, "/v1/transactions")
}

// ResolveTransaction commits what is prepared of a transaction, rolls it back, or forgets what was lost of it.
func (c *Client) ResolveTransaction(ctx context.Context, request ResolveTransaction) (TransactionResolved, error) {
	return send[TransactionResolved](ctx, c, http.MethodPost, "/v1/transactions/resolve", request)
}
