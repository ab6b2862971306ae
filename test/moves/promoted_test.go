package moves_test

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/test/faults"
)

// TestServersAreReplaced: a standby takes the place of the source or the target, so that slots are gone and what was carried over may be missing. Before the owner has changed, everything is copied anew; after that there is no
// way back, the move says so, and ends forward: line M29.
func TestServersAreReplaced(t *testing.T) {
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 4)
	s.load.Faulty = true
	s.load.Start(t.Context())
	defer s.load.Stop()
	shards, whole := [2]int{1, 2}, t // a standby lives as long as the cluster
	for _, c := range []struct {
		point string
		goes  int // 0: the source, 1: the target
		// when and wish are what is said on the way to the point.
		when, wish string
		always     bool // also where there is not much time
	}{
		{"move.catching-up", 0, "", "", true}, {"move.catching-up", 1, "", "", false}, {"move.verifying", 0, "", "", false}, {"move.verifying", 1, "", "", false}, {"move.ready", 0, "", "", false}, {"move.ready", 1, "", "", false},
		{"move.switching", 0, "", "", false}, {"move.switching", 1, "", "", false}, {"move.switch.close", 0, "", "", false}, {"move.switched", 0, "", "", false}, {"move.switched", 1, "", "", true},
		{"move.rolling-back", 0, "switched", "roll back", false}, {"move.rolling-back", 1, "switched", "roll back", false},
	} {
		if !c.always && !everything() {
			continue
		}
		name := c.point + [2]string{" source", " target"}[c.goes]
		ok := t.Run(name, func(t *testing.T) {
			replaced := s.Shards[shards[c.goes]]
			replaced.AddReplica(whole)
			if err := replaced.Synchronise(t.Context()); err != nil { // or writes would be lost that have nothing to do with the move
				t.Fatal(err)
			}
			anew := c.point != "move.switched" && c.wish == ""
			request := api.StartMove{From: s.Shards[shards[0]].Name, To: s.Shards[shards[1]].Name, Manual: c.point == "move.ready"}
			if !anew {
				request.KeepSeconds = 600
			}
			s.order(t, c.point, 1)
			id := s.start(t, request)
			if c.wish != "" {
				s.await(t, id, c.when)
				s.says(t, id, "it can be rolled back", func(m api.Move) string { return m.Waiting })
				s.wish(t, id, c.wish)
			}
			s.reached(t, c.point)
			next := "move.cleaning"
			if anew {
				next = "move.copying"
			}
			s.order(t, next, 1)
			if err := replaced.Crash(false); err != nil {
				t.Fatal(err)
			}
			if err := replaced.Promote(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.release(t, c.point)
			s.reached(t, next)
			if m, err := s.Routers[0].API().Move(t.Context(), id); err != nil || !strings.Contains(m.Error, "is not the one that it was") || m.CanRollBack {
				t.Errorf("%+v, %v", m, err)
			}
			s.release(t, next)
			if request.Manual {
				s.await(t, id, "ready")
				s.wish(t, id, "switch")
			}
			if m := s.await(t, id, "done"); !anew && !strings.Contains(m.Error, "there is no way back") {
				t.Errorf("in the end it says %q", m.Error)
			}
			s.agrees(t)
			shards[0], shards[1] = shards[1], shards[0]
		})
		if !ok {
			break
		}
	}
	s.finish(t)
}
