package topology

import (
	"slices"
	"time"
)

// Rollout is a change of the schema that goes from shard to shard, as those who run it say. It is immutable, what it refers to
// included.
type Rollout struct {
	// ID names it on the shards, and is never given to another one; Name is what people call it, and no two open ones share it.
	ID, Name string
	State    RolloutState
	// Tables are those that it changes.
	Tables []TableName
	// Change is what it does on a shard, and Undo what takes that back, both SQL; no Undo: there is nothing to take back.
	Change, Undo string
	// SearchPath is where names without a schema are looked up, as SQL writes it, and Role who began it; none: an operator.
	SearchPath, Role string
	// Begun and Closed are for people; Closed is zero while it is open.
	Begun, Closed time.Time
	// Shards are all that had the tables when it began, in the order in which they are to change.
	Shards []RolloutShard
}

// RolloutShard is how far a roll-out is on one shard, as far as the schema's state has heard: what the shard itself has noted counts.
type RolloutShard struct {
	Number int
	Name   string
	State  ShardRolloutState
	// At is when the shard came to that state, by its own clock; zero while it is pending.
	At time.Time
}

// RolloutState is where a roll-out stands.
type RolloutState string

// The states of a roll-out.
const (
	// RolloutOpen: some shards have the change and others may get it; RolloutUndoing: it is being taken back, and goes nowhere else.
	RolloutOpen    RolloutState = "open"
	RolloutUndoing RolloutState = "undoing"
	// RolloutFinished: every shard has it; RolloutUndone: none has.
	RolloutFinished RolloutState = "finished"
	RolloutUndone   RolloutState = "undone"
)

// ShardRolloutState is where a roll-out stands on one shard.
type ShardRolloutState string

// The states of a shard in a roll-out.
const (
	ShardPending ShardRolloutState = "pending"
	ShardApplied ShardRolloutState = "applied"
	ShardUndone  ShardRolloutState = "undone"
)

// IsOpen tells whether shards may still differ because of it.
func (r Rollout) IsOpen() bool { return r.State == RolloutOpen || r.State == RolloutUndoing }

// Changes tells whether the table is one of its tables.
func (r Rollout) Changes(table TableName) bool { return slices.Contains(r.Tables, table) }

// Count returns how many shards are in the state.
func (r Rollout) Count(state ShardRolloutState) int {
	n := 0
	for _, s := range r.Shards {
		if s.State == state {
			n++
		}
	}
	return n
}

// Rollout returns the roll-out of that name, the open one if there is one.
func (s SchemaState) Rollout(name string) (Rollout, bool) {
	if i := slices.IndexFunc(s.Rollouts, func(r Rollout) bool { return r.Name == name && r.IsOpen() }); i >= 0 {
		return s.Rollouts[i], true
	}
	if i := slices.IndexFunc(s.Rollouts, func(r Rollout) bool { return r.Name == name }); i >= 0 {
		return s.Rollouts[i], true
	}
	return Rollout{}, false
}

// OpenRollout returns an open roll-out that changes one of the tables; no tables: any open one.
func (s SchemaState) OpenRollout(tables ...TableName) (Rollout, bool) {
	i := slices.IndexFunc(s.Rollouts, func(r Rollout) bool {
		return r.IsOpen() && (len(tables) == 0 || slices.ContainsFunc(tables, r.Changes))
	})
	if i < 0 {
		return Rollout{}, false
	}
	return s.Rollouts[i], true
}
