package api

import (
	"context"
	"net/http"
	"net/url"
)

// PlanRebalance asks for a plan of moves.
type PlanRebalance struct {
	// Algorithm is greedy, which moves as little as it can, or one of those of the placement library. Measure is what is to be even: bytes, rows, load or width.
	Algorithm string `json:"algorithm,omitempty"`
	Measure   string `json:"measure,omitempty"`
	// Tolerance is how far a shard may be from its share, 0.05 if it is not said.
	Tolerance float64  `json:"tolerance,omitempty"`
	Keyspaces []string `json:"keyspaces,omitempty"`
	MaxBytes  int64    `json:"max_bytes,omitempty"`
	MaxMoves  int      `json:"max_moves,omitempty"`
	// Split: ranges may be divided.
	Split bool `json:"split,omitempty"`
	// Rules bind keyspaces, or parts of them, to shards with a label. If there are none, those count that automation keeps.
	Rules []RebalanceRule `json:"rules,omitempty"`
	// Excluded are shards that neither give nor get anything, besides those that do not answer.
	Excluded []string `json:"excluded,omitempty"`
	// Drain is a shard that is to give all that it has; nothing else moves then.
	Drain string `json:"drain,omitempty"`
	// BytesPerSecond is what a move carries, to estimate the time.
	BytesPerSecond int64 `json:"bytes_per_second,omitempty"`
}

// DefaultMoveRate is how many bytes a move carries in a second, if nobody knows better, for estimates of time.
const DefaultMoveRate = 20_000_000

// RebalanceRule binds a keyspace, a part of it, or a key to shards with a label.
type RebalanceRule struct {
	Keyspace string   `json:"keyspace"`
	From     []string `json:"from,omitempty"`
	To       []string `json:"to,omitempty"`
	Key      []string `json:"key,omitempty"`
	Label    string   `json:"label"`
	Value    string   `json:"value"`
}

// RebalancePlan says what to move, and what comes of it. Nothing happens before it is applied.
type RebalancePlan struct {
	ID         string           `json:"id"`
	MapVersion uint64           `json:"map_version"`
	Algorithm  string           `json:"algorithm"`
	Measure    string           `json:"measure"`
	Splits     []RebalanceSplit `json:"splits"`
	Moves      []RebalanceMove  `json:"moves"`
	// Assignments are which algorithms keyspaces name other than now when all has moved as one of the placement library's wants it.
	Assignments []RebalanceAssignment `json:"assignments"`
	// Bytes and Rows move, of TotalBytes; MovementShare is which part that is.
	Bytes         int64   `json:"bytes"`
	Rows          int64   `json:"rows"`
	TotalBytes    int64   `json:"total_bytes"`
	MovementShare float64 `json:"movement_share"`
	// SkewBefore and SkewAfter are what the fullest shard has over its share: 1 is perfect.
	SkewBefore       float64          `json:"skew_before"`
	SkewAfter        float64          `json:"skew_after"`
	EstimatedSeconds float64          `json:"estimated_seconds"`
	Shards           []RebalanceShard `json:"shards"`
	Warnings         []string         `json:"warnings"`
}

// RebalanceSplit is a range that has to be divided first.
type RebalanceSplit struct {
	Keyspace string   `json:"keyspace"`
	At       []string `json:"at"`
}

// RebalanceAssignment is which algorithm makes the ranges of a keyspace.
type RebalanceAssignment struct {
	Keyspace  string `json:"keyspace"`
	Algorithm string `json:"algorithm"`
}

// RebalanceMove is what goes from one shard to another in one keyspace: all of it, or as much as one move takes; of schemas each by itself.
type RebalanceMove struct {
	Keyspace string      `json:"keyspace"`
	From     string      `json:"from"`
	To       string      `json:"to"`
	Ranges   []MoveRange `json:"ranges"`
	Keys     [][]string  `json:"keys"`
	// Tables move as a whole; then there is no keyspace.
	Tables []string `json:"tables"`
	Bytes  int64    `json:"bytes"`
	Rows   int64    `json:"rows"`
	// Load is how many scans and rows written a second go with it, as far as that is known.
	Load   float64 `json:"load"`
	Reason string  `json:"reason"`
}

// RebalanceShard is what a shard has before and after.
type RebalanceShard struct {
	Name        string  `json:"name"`
	Weight      float64 `json:"weight"`
	BytesBefore int64   `json:"bytes_before"`
	BytesAfter  int64   `json:"bytes_after"`
	// LoadBefore and LoadAfter are scans and rows written a second, as far as they are known.
	LoadBefore  float64 `json:"load_before"`
	LoadAfter   float64 `json:"load_after"`
	Ranges      int     `json:"ranges"`
	RangesAfter int     `json:"ranges_after"`
	// TakesPart: it may give and get.
	TakesPart bool `json:"takes_part"`
}

// PlanRebalance asks for a plan.
func (c *Client) PlanRebalance(ctx context.Context, request PlanRebalance) (RebalancePlan, error) {
	return send[RebalancePlan](ctx, c, http.MethodPost, "/v1/rebalance", request)
}

// ApplyRebalance starts the moves of a plan.
func (c *Client) ApplyRebalance(ctx context.Context, id string) (MoveList, error) {
	return send[MoveList](ctx, c, http.MethodPost, "/v1/rebalance/"+url.PathEscape(id)+"/apply", struct{}{})
}
