package moves_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/test/faults"
)

// TestAShardJoinsWhileRowsMove: statements for all shards name views of what each owns then, and the new one has to have them; replica identities that the move has changed are not its own.
func TestAShardJoinsWhileRowsMove(t *testing.T) {
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2, Spares: 1}, 4)
	s.load.Start(t.Context())
	defer s.load.Stop()
	id := s.start(t, api.StartMove{From: "s1", To: "s2", Manual: true})
	s.await(t, id, "ready")
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
