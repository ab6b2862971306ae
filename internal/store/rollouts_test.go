package store

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cleavedb/cleave/internal/topology"
)

func rolloutOf(name string, tables ...string) topology.Rollout {
	r := topology.Rollout{
		ID: "id of " + name, Name: name, State: topology.RolloutOpen, Change: "CREATE INDEX", Undo: "DROP INDEX", SearchPath: "public", Role: "app",
		Begun: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), Shards: []topology.RolloutShard{{Number: 1, Name: "s1", State: topology.ShardPending}, {Number: 2, Name: "s2", State: topology.ShardPending}},
	}
	for _, table := range tables {
		r.Tables = append(r.Tables, topology.TableName{Schema: "public", Name: table})
	}
	return r
}

func TestRollouts(t *testing.T) {
	t.Parallel()
	s := living(t, startMember(t), "router")
	ctx := t.Context()
	first, err := s.BeginRollout(ctx, rolloutOf("one", "a", "Odd name"))
	if err != nil {
		t.Fatal(err)
	}
	stored, err := s.Schema(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, stored); diff != "" {
		t.Errorf("written (-) and read (+) differ:\n%s", diff)
	}
	var open *RolloutError
	for _, other := range []topology.Rollout{rolloutOf("one", "b"), rolloutOf("two", "b", "a")} {
		other.ID += " again"
		if _, err := s.BeginRollout(ctx, other); !errors.As(err, &open) || open.Rollout.Name != "one" {
			t.Errorf("beginning %s of %v: %v", other.Name, other.Tables, err)
		}
	}
	for _, hold := range []topology.Hold{holdOf("h", "router", "a"), holdOf("h", "router")} {
		if _, err := s.Hold(ctx, hold); !errors.As(err, &open) {
			t.Errorf("holding %v: %v", hold.Tables, err)
		}
	}
	if _, err := s.Hold(ctx, holdOf("h", "router", "b")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.BeginRollout(ctx, rolloutOf("two", "b")); !errors.Is(err, ErrHeld) {
		t.Errorf("beginning what is held: %v", err)
	}
	if _, err := s.ChangeRollout(ctx, "id of nothing", func(*topology.Rollout) error { return nil }); !errors.Is(err, ErrNoRollout) {
		t.Errorf("changing what is not there: %v", err)
	}
	before, _ := s.Schema(ctx)
	if now, err := s.ChangeRollout(ctx, "id of one", func(*topology.Rollout) error { return nil }); err != nil || now.Epoch != before.Epoch {
		t.Errorf("changing nothing: epoch %d after %d, %v", now.Epoch, before.Epoch, err)
	}
}

// TestTwoChangeARollout: none of the changes is lost, and each moves the epoch.
func TestTwoChangeARollout(t *testing.T) {
	t.Parallel()
	s := living(t, startMember(t), "router")
	r := rolloutOf("one", "a")
	r.Shards = nil
	for i := range 8 {
		r.Shards = append(r.Shards, topology.RolloutShard{Number: i + 1, Name: fmt.Sprintf("s%d", i+1), State: topology.ShardPending})
	}
	begun, err := s.BeginRollout(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for i := range r.Shards {
		running.Go(func() {
			_, err := s.ChangeRollout(t.Context(), r.ID, func(r *topology.Rollout) error {
				r.Shards[i].State, r.Shards[i].At = topology.ShardApplied, time.Now().UTC()
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	state, err := s.Schema(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := state.Rollouts[0].Count(topology.ShardApplied); got != len(r.Shards) || state.Epoch != begun.Epoch+uint64(len(r.Shards)) {
		t.Errorf("%d shards have it, and the epoch went from %d to %d", got, begun.Epoch, state.Epoch)
	}
}

// TestClosedRolloutsAreForgotten, the oldest of many, and those whose name is used again.
func TestClosedRolloutsAreForgotten(t *testing.T) {
	t.Parallel()
	s := living(t, startMember(t), "router")
	begin := func(r topology.Rollout) {
		t.Helper()
		if _, err := s.BeginRollout(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	begin(rolloutOf("open", "other"))
	for i := range keptRollouts + 3 {
		r := rolloutOf(fmt.Sprintf("r%d", i), "a")
		begin(r)
		if _, err := s.ChangeRollout(t.Context(), r.ID, func(r *topology.Rollout) error { r.State = topology.RolloutFinished; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	again := rolloutOf("r12", "a")
	again.ID = "another"
	begin(again)
	state, err := s.Schema(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range state.Rollouts {
		names = append(names, r.Name)
	}
	if got := strings.Join(names, " "); got != "open r2 r3 r4 r5 r6 r7 r8 r9 r10 r11 r12" {
		t.Errorf("the roll-outs are %s", got)
	}
	if r, found := state.Rollout("r12"); !found || r.ID != "another" {
		t.Errorf("r12 is %+v", r)
	}
}
