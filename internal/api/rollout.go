package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/cleavedb/cleave/internal/topology"
)

// RolloutOpenFinding is the code of findings about shards that differ because a roll-out has them differ.
const RolloutOpenFinding = "rollout_open"

// Rollout is a change of the schema that goes from shard to shard.
type Rollout struct {
	Name string `json:"name"`
	// State is open, undoing, finished or undone.
	State topology.RolloutState `json:"state"`
	// Tables are those that it changes, as schema.name.
	Tables []string `json:"tables"`
	// Change is what it does on a shard, Undo what takes that back; none: there is nothing to take back.
	Change string `json:"change"`
	Undo   string `json:"undo"`
	// Role is whose rights an operator uses; none: the cluster's own.
	Role  string    `json:"role,omitempty"`
	Begun time.Time `json:"begun"`
	// Closed is when it was finished or undone.
	Closed time.Time `json:"closed,omitzero"`
	// Shards are in the order in which they change.
	Shards []RolloutShard `json:"shards"`
}

// RolloutShard is how far a roll-out is on one shard.
type RolloutShard struct {
	Shard string `json:"shard"`
	// State is pending, applied or undone, and At since when.
	State topology.ShardRolloutState `json:"state"`
	At    time.Time                  `json:"at,omitzero"`
}

// RolloutList is the answer to a question for roll-outs.
type RolloutList struct {
	Rollouts []Rollout `json:"rollouts"`
}

// BeginRollout asks for a roll-out.
type BeginRollout struct {
	Name   string `json:"name"`
	Change string `json:"change"`
	// Undo takes the change back; nil: it follows from the change, if it can; empty: there is nothing to take back.
	Undo *string `json:"undo,omitempty"`
	// Shards come first, in this order; the others follow in the order of their numbers.
	Shards []string `json:"shards,omitempty"`
	// SearchPath is where names without a schema are looked up. Default: public.
	SearchPath string `json:"search_path,omitempty"`
}

// StepRollout says on which shard a roll-out goes on. Default: on the next one.
type StepRollout struct {
	Shard string `json:"shard,omitempty"`
}

// RolloutChanged is the answer to a step of a roll-out.
type RolloutChanged struct {
	Rollout Rollout `json:"rollout"`
	// Shards are those on which something was done, or was found done.
	Shards []string `json:"shards"`
	// Message says what was done, in one sentence.
	Message  string    `json:"message"`
	Findings []Finding `json:"findings,omitempty"`
}

// DescribeRollout returns a roll-out as the API shows it.
func DescribeRollout(r topology.Rollout) Rollout {
	described := Rollout{
		Name: r.Name, State: r.State, Tables: []string{}, Change: r.Change, Undo: r.Undo, Role: r.Role, Begun: r.Begun, Closed: r.Closed, Shards: []RolloutShard{},
	}
	for _, table := range r.Tables {
		described.Tables = append(described.Tables, table.String())
	}
	for _, s := range r.Shards {
		described.Shards = append(described.Shards, RolloutShard{Shard: s.Name, State: s.State, At: s.At})
	}
	return described
}

// Rollouts lists the roll-outs that are open, and the last ones that are not.
func (c *Client) Rollouts(ctx context.Context) ([]Rollout, error) {
	list, err := get[RolloutList](ctx, c, "/v1/schema/rollouts")
	return list.Rollouts, err
}

// BeginRollout opens a roll-out.
func (c *Client) BeginRollout(ctx context.Context, request BeginRollout) (RolloutChanged, error) {
	return send[RolloutChanged](ctx, c, http.MethodPost, "/v1/schema/rollouts", request)
}

// NextRollout applies a roll-out to one more shard.
func (c *Client) NextRollout(ctx context.Context, name string, request StepRollout) (RolloutChanged, error) {
	return send[RolloutChanged](ctx, c, http.MethodPost, "/v1/schema/rollouts/"+url.PathEscape(name)+"/next", request)
}

// FinishRollout applies a roll-out to all shards that are left, and ends it.
func (c *Client) FinishRollout(ctx context.Context, name string) (RolloutChanged, error) {
	return send[RolloutChanged](ctx, c, http.MethodPost, "/v1/schema/rollouts/"+url.PathEscape(name)+"/finish", struct{}{})
}

// UndoRollout takes a roll-out back where it was applied, and ends it.
func (c *Client) UndoRollout(ctx context.Context, name string) (RolloutChanged, error) {
	return send[RolloutChanged](ctx, c, http.MethodPost, "/v1/schema/rollouts/"+url.PathEscape(name)+"/undo", struct{}{})
}
