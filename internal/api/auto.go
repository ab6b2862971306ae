package api

import (
	"context"
	"net/http"
	"time"
)

// AutoSettings say what the leader may do by itself, and within which limits.
type AutoSettings struct {
	On bool `json:"on"`
	// Keyspaces are the ones in which something may be done; none means all.
	Keyspaces []string `json:"keyspaces"`
	// Moves, Splits and Merges are off, propose or do.
	Moves  string `json:"moves"`
	Splits string `json:"splits"`
	Merges string `json:"merges"`
	// Measure is what is to be even, and Tolerance how far a shard may be from its share.
	Measure   string  `json:"measure"`
	Tolerance float64 `json:"tolerance"`
	// MaxBytes may be asked to move in any 24 hours, and MaxMoves may be under way at once.
	MaxBytes int64 `json:"max_bytes"`
	MaxMoves int   `json:"max_moves"`
	// Hours are when moves may begin, such as 22:00-06:00, in UTC; empty means always.
	Hours string `json:"hours"`
	// SplitBytes and SplitLoad are from where on a range should be divided; a load of 0 does not count.
	SplitBytes int64   `json:"split_bytes"`
	SplitLoad  float64 `json:"split_load"`
	// Rules bind keyspaces, or parts of them, to shards with a label.
	Rules []RebalanceRule `json:"rules"`
}

// UpdateAutomation changes some of the settings. What is not there stays as it is.
type UpdateAutomation struct {
	On         *bool            `json:"on,omitempty"`
	Keyspaces  *[]string        `json:"keyspaces,omitempty"`
	Moves      *string          `json:"moves,omitempty"`
	Splits     *string          `json:"splits,omitempty"`
	Merges     *string          `json:"merges,omitempty"`
	Measure    *string          `json:"measure,omitempty"`
	Tolerance  *float64         `json:"tolerance,omitempty"`
	MaxBytes   *int64           `json:"max_bytes,omitempty"`
	MaxMoves   *int             `json:"max_moves,omitempty"`
	Hours      *string          `json:"hours,omitempty"`
	SplitBytes *int64           `json:"split_bytes,omitempty"`
	SplitLoad  *float64         `json:"split_load,omitempty"`
	Rules      *[]RebalanceRule `json:"rules,omitempty"`
	// Resume are keyspaces in which something may be done again, because somebody has looked.
	Resume []string `json:"resume,omitempty"`
}

// Automation is what the leader may do by itself, and what became of it.
type Automation struct {
	Settings AutoSettings `json:"settings"`
	// SpentBytes were asked to move in the last 24 hours.
	SpentBytes int64 `json:"spent_bytes"`
	// Moves were asked for by itself and have not ended.
	Moves []AutoMove `json:"moves"`
	// Halts are keyspaces in which nothing is done until somebody has looked.
	Halts []AutoHalt `json:"halts"`
	// Looked is when the shards were looked at last, Waiting why something is not done, and Proposals what could be.
	Looked    time.Time      `json:"looked,omitzero"`
	Waiting   []string       `json:"waiting"`
	Proposals []AutoProposal `json:"proposals"`
	// Events are the last things that were done, the newest first.
	Events []AutoEvent `json:"events"`
}

// AutoMove is a move that was asked for by itself, and how many bytes were counted for it.
type AutoMove struct {
	ID       string    `json:"id"`
	Keyspace string    `json:"keyspace"`
	From     string    `json:"from"`
	To       string    `json:"to"`
	Bytes    int64     `json:"bytes"`
	At       time.Time `json:"at"`
}

// AutoHalt is why nothing is done in a keyspace any more.
type AutoHalt struct {
	Keyspace string    `json:"keyspace"`
	Why      string    `json:"why"`
	Move     string    `json:"move,omitempty"`
	At       time.Time `json:"at"`
}

// AutoProposal is something that could be done, and the command that does it.
type AutoProposal struct {
	// What is move, split or merge.
	What     string `json:"what"`
	Keyspace string `json:"keyspace"`
	Why      string `json:"why"`
	Bytes    int64  `json:"bytes"`
	Command  string `json:"command"`
}

// AutoEvent is something that was done.
type AutoEvent struct {
	At time.Time `json:"at"`
	// What is settings, move, split, merge, done, halt or resume.
	What     string `json:"what"`
	Keyspace string `json:"keyspace,omitempty"`
	Move     string `json:"move,omitempty"`
	Bytes    int64  `json:"bytes"`
	Why      string `json:"why"`
}

// Automation tells what the leader may do by itself, and what became of it.
func (c *Client) Automation(ctx context.Context) (Automation, error) {
	return get[Automation](ctx, c, "/v1/rebalance/auto")
}

// UpdateAutomation changes what the leader may do by itself.
func (c *Client) UpdateAutomation(ctx context.Context, request UpdateAutomation) (Automation, error) {
	return send[Automation](ctx, c, http.MethodPatch, "/v1/rebalance/auto", request)
}
