package shard

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// checkDamage tells of a record that contradicts itself, as none does that [Record] wrote: somebody has changed the tables,
// or a part of them was lost. What needs the whole keyspace or map to judge is found when they are put together.
func (b *rebuilding) checkDamage(r *Recorded) {
	if err := r.check(); err != nil {
		b.problem(r.Shard, "damaged_record", fmt.Sprintf("the record of shard %q is damaged: %v", r.Shard, err),
			"Restore the schema cleave of that shard from a backup, or restore etcd, from which it is written again.")
	}
}

// check returns the first contradiction.
func (r *Recorded) check() error {
	switch {
	case !slices.Contains(r.Members, r.Shard):
		return errors.New("it is not among the shards that it names")
	case r.Entry.Name != r.Shard || r.Entry.Number != r.Number:
		return fmt.Errorf("its entry is that of shard %q, number %d, and not number %d", r.Entry.Name, r.Entry.Number, r.Number)
	case r.MapVersion >= math.MaxInt64 || r.MinimumVersion >= math.MaxInt64:
		return errors.New("no version could come after its own")
	}
	seen := map[string]bool{}
	for _, k := range r.Keyspaces {
		if seen[k.Head.Name] {
			return fmt.Errorf("keyspace %q is there twice", k.Head.Name)
		}
		seen[k.Head.Name] = true
		if k.damaged {
			return fmt.Errorf("the ranges and pins of keyspace %q are not those that were written", k.Head.Name)
		}
		if err := k.checkStates(); err != nil {
			return fmt.Errorf("keyspace %q: %w", k.Head.Name, err)
		}
	}
	return nil
}

func (k Keyspace) checkStates() error {
	for _, one := range k.Ranges {
		if !one.State.known() {
			return fmt.Errorf("the range from %s has the state %q", one.Lower, one.State)
		}
	}
	for _, one := range k.Pins {
		if !one.State.known() {
			return fmt.Errorf("the pinned key %s has the state %q", one.Key, one.State)
		}
	}
	return nil
}

func (s State) known() bool { return s == Owned || s == Incoming || s == Opening || s == Leaving }
