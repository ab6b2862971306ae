package moves_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/faults"
)

// TestStandbysHaveWhatMoves: a switch waits until each standby of the target that is connected has on its disk what has come over, or says which one it waits for; one that is promoted in the very moment after the switch lacks nothing.
func TestStandbysHaveWhatMoves(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2, Replicated: 2}, 4)
	s.load.Faulty = true
	s.load.Start(t.Context())
	defer s.load.Stop()
	id := s.heldAt(t, "move.ready", api.StartMove{From: "s1", To: "s2", KeepSeconds: 600})
	receiver := ask[int](t, s.Shards[1], "SELECT pid FROM pg_stat_replication WHERE replay_lsn IS NOT NULL AND application_name = 'walreceiver'")
	if receiver == 0 {
		t.Fatal("the target has no standby")
	}
	process := receives(t, s.Shards[1])
	if err := syscall.Kill(process, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goesOn := func() { _ = syscall.Kill(process, syscall.SIGCONT) }
	defer goesOn()
	s.release(t, "move.ready")
	s.says(t, id, "might take its place", func(m api.Move) string { return m.Waiting })
	if m, err := s.Routers[0].API().Move(t.Context(), id); err != nil || len(m.Switches) > 0 || m.Phase != "switching" {
		t.Errorf("%+v, %v", m, err)
	}
	s.order(t, "move.switch.open", 1)
	goesOn()
	s.reached(t, "move.switch.open")
	target := s.Shards[1]
	if err := target.Crash(false); err != nil {
		t.Fatal(err)
	}
	note := "SELECT count(*) FROM cleave.marks WHERE move = $1 AND starts_with(mark, 'everything of s1 at ')"
	if err := target.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := ask[int](t, target, note, id); n != 1 {
		t.Errorf("the standby has %d notes that it has everything", n)
	}
	s.release(t, "move.switch.open")
	if m := s.await(t, id, "done"); !strings.Contains(m.Error, "there is no way back") {
		t.Errorf("in the end it says %q", m.Error)
	}
}

// receives is the process of a shard's replica that receives what its primary writes.
func receives(t *testing.T, s *faults.Shard) (process int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.Replica().DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if err := conn.QueryRow(t.Context(), "SELECT pid FROM pg_stat_wal_receiver").Scan(&process); err != nil {
		t.Fatal(err)
	}
	return process
}

// TestWhatIsLackingIsNotDeleted: a standby that was not connected while rows moved, so that nobody could wait for it, takes the target's place. Nothing is deleted on the source, which is the only one that has them, until somebody says that this was seen to: line M29a.
func TestWhatIsLackingIsNotDeleted(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2, Replicated: 2}, 0)
	source, target := s.Shards[0], s.Shards[1]
	before := ask[int](t, source, "SELECT count(*) FROM fixed")
	if err := target.Replica().Crash(); err != nil {
		t.Fatal(err)
	}
	id := s.start(t, api.StartMove{From: "s1", To: "s2", KeepSeconds: 600})
	s.await(t, id, "switched")
	if err := target.Crash(false); err != nil {
		t.Fatal(err)
	}
	if err := target.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.says(t, id, "does not know that it has everything", func(m api.Move) string { return m.Stopped })
	s.wish(t, id, "resume")
	time.Sleep(time.Second)
	s.says(t, id, "does not know that it has everything", func(m api.Move) string { return m.Stopped })
	if after := ask[int](t, source, "SELECT count(*) FROM fixed"); after != before || before == 0 {
		t.Errorf("the source has %d rows, and had %d", after, before)
	}
	s.wish(t, id, "finish")
	s.await(t, id, "done")
	if after := ask[int](t, source, "SELECT count(*) FROM fixed"); after != 0 {
		t.Errorf("the source has %d rows in the end", after)
	}
}

// TestServersAreReplaced: a standby takes the place of the source or the target, so that slots are gone and what was carried over may be missing. Before the owner has changed, everything is copied anew; after that there is no
// way back, the move says so, and ends forward: line M29.
func TestServersAreReplaced(t *testing.T) {
	thorough.Only(t)
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
		if !c.always && !thorough.Asked() {
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
