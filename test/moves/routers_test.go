package moves_test

import (
	"testing"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/faults"
)

// TestRoutersThatHearNothing while rows move, or are killed: one that is cut off from etcd goes by the map that it has, and the shards see to it that this does no harm; its clients have errors and no wrong answers. When it hears again it goes on: lines M30 and M30a.
func TestRoutersThatHearNothing(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 3, EtcdProxies: true}, 6)
	s.load.Faulty = true
	s.load.Start(t.Context())
	defer s.load.Stop()
	ways := []string{"s1", "s2", "s3", "s1"}
	for i, c := range []struct {
		name   string
		early  bool // it happens before the move begins; else while it is ready
		always bool // also where there is not much time
		harm   func(r *faults.Router)
		mend   func(r *faults.Router) error
	}{
		{"cut off before it begins", true, false, func(r *faults.Router) { r.CutOff(true) }, func(r *faults.Router) error { r.CutOff(false); return nil }},
		{"cut off before the switch", false, true, func(r *faults.Router) { r.CutOff(true) }, func(r *faults.Router) error { r.CutOff(false); return nil }},
		{"killed before the switch", false, false, (*faults.Router).Kill, (*faults.Router).Start},
	} {
		if !c.always && !thorough.Asked() {
			continue
		}
		ok := t.Run(c.name, func(t *testing.T) {
			leader, err := s.Leader(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			other := s.Other(leader)
			if c.early {
				c.harm(other)
			}
			list, err := leader.API().StartMoves(t.Context(), api.StartMove{Keyspace: "default_bigint", From: ways[i], To: ways[i+1], Manual: true})
			if err != nil {
				t.Fatal(err)
			}
			id := list.Moves[0].ID
			s.await(t, id, "ready")
			if !c.early {
				c.harm(other)
			}
			if _, err := leader.API().WishMove(t.Context(), id, "switch"); err != nil {
				t.Fatal(err)
			}
			m := s.await(t, id, "done")
			if err := c.mend(other); err != nil {
				t.Fatal(err)
			}
			if err := s.WaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Logf("router %s; switches: %+v", other.Name, m.Switches)
		})
		if !ok {
			return
		}
	}
	s.finish(t)
}

// TestRoutersSleepInASwitch: one is stopped in the middle of a switch, with statements of writers under way and held, and wakes up when the rows have another owner, or in whatever has become of the attempt. What it was told before, and what
// it goes on with, does no harm: line M30.
func TestRoutersSleepInASwitch(t *testing.T) {
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 3}, 6)
	s.load.Faulty = true
	s.load.Start(t.Context())
	defer s.load.Stop()
	shards := [2]string{"s1", "s2"}
	for _, c := range []struct {
		point  string
		always bool // also where there is not much time
	}{
		{"move.switching", false}, {"move.switch.hold", false}, {"move.switch.settle", false}, {"move.switch.published", false}, {"move.switch.close", false},
		{"move.switch.marked", false}, {"move.switch.pass", true}, {"move.switch.open", false},
	} {
		if !c.always && !thorough.Asked() {
			continue
		}
		ok := t.Run(c.point, func(t *testing.T) {
			s.order(t, c.point, 1)
			leader, err := s.Leader(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			id := s.start(t, api.StartMove{From: shards[0], To: shards[1], MoveLimits: api.MoveLimits{Throttle: of(false)}})
			s.reached(t, c.point)
			asleep := s.Other(leader)
			asleep.Stop()
			defer asleep.Continue()
			s.release(t, c.point)
			m := s.await(t, id, "done")
			asleep.Continue()
			if err := s.WaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, attempt := range m.Switches {
				t.Logf("held for %.0f ms: %q", attempt.HeldMS, attempt.Failed)
			}
			s.agrees(t)
			shards[0], shards[1] = shards[1], shards[0]
		})
		if !ok {
			return
		}
	}
	s.finish(t)
}
