package moves_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/failpoint/orders"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/faults"
)

// TestAShardJoinsWhileRowsMove: statements for all shards name views of what each owns then, and the new one has to have them; replica identities that the move has changed are not its own.
func TestAShardJoinsWhileRowsMove(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2, Spares: 1}, 4)
	s.load.Start(t.Context())
	defer s.load.Stop()
	id := s.start(t, api.StartMove{From: "s1", To: "s2", Manual: true})
	s.await(t, id, "ready")
	if _, err := s.Routers[0].API().RemoveShard(t.Context(), "s2"); err == nil || !strings.Contains(err.Error(), id) {
		t.Errorf("a shard that a move needs is removed: %v", err)
	}
	if err := s.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // statements for all shards go to four of them
	if problems := s.load.Problems(); len(problems) > 0 {
		t.Fatal(strings.Join(problems, "\n"))
	}
	s.wish(t, id, "switch")
	s.await(t, id, "done")
	next := s.start(t, api.StartMove{From: "s2", To: "s4"})
	s.await(t, next, "done")
	s.finish(t)
}

// TestAShardJoinsAsAMoveEnds: the move has looked at all shards for the last time, or ends before the map has the new one. Nothing of it is left there either way.
func TestAShardJoinsAsAMoveEnds(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2, Spares: 2}, 0)
	const forgotten, joined = "move.forgotten", "shard.joined"
	ended := s.heldAt(t, forgotten, api.StartMove{From: "s1", To: "s2"})
	if err := s.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.release(t, forgotten)
	s.await(t, ended, "done")
	s.clean(t)

	kept := s.start(t, api.StartMove{From: "s2", To: "s4", KeepSeconds: 600})
	s.await(t, kept, "switched")
	if err := orders.Give(s.Orders, joined, orders.Order{Act: orders.Hold}); err != nil {
		t.Fatal(err)
	}
	joining := make(chan error, 1)
	go func() { joining <- s.Join(t.Context()) }()
	s.reached(t, joined)
	s.wish(t, kept, "finish")
	s.await(t, kept, "done")
	s.release(t, joined)
	if err := <-joining; err != nil {
		t.Fatal(err)
	}
	s.clean(t)
}
