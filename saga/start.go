package saga

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/idgen"
)

// ErrOtherInput says that a saga of the same type, key and idempotency key was started with another input.
var ErrOtherInput = errors.New("a saga with this idempotency key was started with another input")

// Request says which saga to start.
type Request struct {
	// Type is the name of its type. A runner that has it registered will run it.
	Type string
	// Key is its shard key, of the type that the tables were installed with. Its SQL steps change rows of this key.
	Key any
	// IdempotencyKey is what the caller knows the saga by, such as the number of an order. Started again with the same type, key and idempotency
	// key it is the same saga.
	IdempotencyKey string
	// Input is what the steps are told, kept as JSON of up to [MaxPayload] bytes.
	Input any
}

// Started is a saga that was started, now or before.
type Started struct {
	ID    string
	Key   any
	State State
	// New says that it was started by this call.
	New bool
}

const startSQL = `
	INSERT INTO sagas.sagas (key, id, type, idempotency_key, input) VALUES ($1, $2, $3, $4, $5)
	ON CONFLICT (key, type, idempotency_key) DO NOTHING RETURNING key`

const startedSQL = "SELECT key, id::text, state, input::text FROM sagas.sagas WHERE key = $1 AND type = $2 AND idempotency_key = $3"

// Start starts a saga, in the caller's transaction if it is given one: then the saga is there if and when the transaction commits. A runner
// takes it up within its poll interval; [Runner.Wake], after the commit, spares that time.
func Start(ctx context.Context, db Querier, r Request) (Started, error) {
	input, err := r.check()
	if err != nil {
		return Started{}, err
	}
	const tries = 5 // it may be purged between the two statements
	var started Started
	for range tries {
		if started, err = r.insert(ctx, db, input); !errors.Is(err, pgx.ErrNoRows) {
			break
		}
		if started, err = r.find(ctx, db, input); !errors.Is(err, pgx.ErrNoRows) {
			break
		}
	}
	return started, err
}

// insert starts the saga; pgx.ErrNoRows: it is there.
func (r *Request) insert(ctx context.Context, db Querier, input string) (Started, error) {
	started := Started{ID: idgen.NewUUID().String(), State: Running, New: true}
	if err := db.QueryRow(ctx, startSQL, r.Key, started.ID, r.Type, r.IdempotencyKey, input).Scan(&started.Key); err != nil {
		return Started{}, fmt.Errorf("start saga %s %q: %w", r.Type, r.IdempotencyKey, explain(err))
	}
	return started, nil
}

// find returns the saga that was started before; pgx.ErrNoRows: there is none.
func (r *Request) find(ctx context.Context, db Querier, input string) (started Started, err error) {
	var before string
	if err := db.QueryRow(ctx, startedSQL, r.Key, r.Type, r.IdempotencyKey).Scan(&started.Key, &started.ID, &started.State, &before); err != nil {
		return Started{}, fmt.Errorf("look for saga %s %q: %w", r.Type, r.IdempotencyKey, err)
	}
	if !sameJSON(before, input) {
		return Started{}, fmt.Errorf("saga %s %q, %s: %w", r.Type, r.IdempotencyKey, started.ID, ErrOtherInput)
	}
	return started, nil
}

func (r *Request) check() (input string, err error) {
	if err := checkName("saga type", r.Type); err != nil {
		return "", err
	}
	if r.Key == nil {
		return "", errors.New("a saga needs a key: it says on which shard it lives")
	}
	if n := len(r.IdempotencyKey); n == 0 || n > MaxIdempotencyKey {
		return "", fmt.Errorf("the idempotency key has %d bytes: there must be 1 to %d", n, MaxIdempotencyKey)
	}
	return encode("the input", r.Input)
}

// sameJSON compares what two texts mean.
func sameJSON(a, b string) bool {
	return a == b || bytes.Equal(canonical(a), canonical(b))
}

// canonical is the text with its fields in order and numbers as they were written; nil if it is no JSON.
func canonical(text string) []byte {
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return nil
	}
	written, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return written
}

// explain adds what to do to an error that says that the tables are not there.
func explain(err error) error {
	if code := sqlState(err); code == undefinedTable || code == undefinedColumn || code == invalidSchemaName {
		return fmt.Errorf("%w (saga.Install makes the tables)", err)
	}
	return err
}
