package moves_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/faults"
)

// TestAWayBackHasEverything: its slot is made when all transactions that began earlier have ended, however long that takes, and whoever made it may be cut off meanwhile. What is written after the switch is there after a roll-back: line M13.
func TestAWayBackHasEverything(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 0)
	conn, target := s.client(t), s.Shards[1]
	key := s.keyOn(t, conn, "s1")
	earlier, err := target.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = earlier.Close(t.Context()) }()
	execute(t, earlier, "BEGIN")
	execute(t, earlier, "SELECT pg_current_xact_id()")
	id := s.start(t, api.StartMove{From: "s1", To: "s2", KeepSeconds: 600})
	maker := func() int {
		return ask[int](t, target, "SELECT coalesce(active_pid, 0) FROM pg_replication_slots WHERE slot_name = $1 AND confirmed_flush_lsn IS NULL", backSlot+id)
	}
	s.eventually(t, "the slot is being made", func() error {
		if maker() == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	first := maker()
	time.Sleep(11 * time.Second) // longer than anything else waits for a lock
	if m, err := s.Routers[0].API().Move(t.Context(), id); err != nil || m.Error != "" || maker() != first || !strings.Contains(m.Waiting, "have to end before its changes can be followed") {
		t.Errorf("it waits for %q, error %q, %v", m.Waiting, m.Error, err)
	}
	target.Proxy.Cut()
	s.eventually(t, "the slot is made anew", func() error {
		if now := maker(); now == 0 || now == first {
			return errors.New("it is not")
		}
		return nil
	})
	execute(t, earlier, "COMMIT")
	s.says(t, id, "it can be rolled back", func(m api.Move) string { return m.Waiting })
	execute(t, s.client(t), "UPDATE fixed SET n = 77 WHERE id = $1", key)
	s.wish(t, id, "roll back")
	s.await(t, id, "rolled back")
	var n int
	if err := s.client(t).QueryRow(t.Context(), "SELECT n FROM fixed WHERE id = $1", key).Scan(&n); err != nil || n != 77 {
		t.Errorf("the row has %d, %v", n, err)
	}
	s.clean(t)
}

// TestSwitchesComeAbout, forward and back, whatever had stopped what carries changes, or had not begun to.
func TestSwitchesComeAbout(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 2)
	s.load.Start(t.Context())
	defer s.load.Stop()
	// stops ends what carries changes while a switch waits, and lets the switch go on.
	stops := func(t *testing.T, id, wish, slot string, owner *faults.Shard) {
		t.Helper()
		open := s.client(t)
		execute(t, open, "BEGIN")
		execute(t, open, "SELECT count(*) FROM fixed")
		s.wish(t, id, wish)
		s.says(t, id, "has used the tables", func(m api.Move) string { return m.Waiting })
		if ended := ask[bool](t, owner, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active_pid IS NOT NULL", slot+id); !ended {
			t.Error("nobody carries changes")
		}
		time.Sleep(500 * time.Millisecond) // the other side notices
		execute(t, open, "COMMIT")
	}
	t.Run("forward", func(t *testing.T) {
		id := s.start(t, api.StartMove{From: "s1", To: "s2", Manual: true})
		s.await(t, id, "ready")
		stops(t, id, "switch", forwardSlot, s.Shards[0])
		s.await(t, id, "done")
		s.agrees(t)
	})
	t.Run("back", func(t *testing.T) {
		id := s.start(t, api.StartMove{From: "s2", To: "s1", KeepSeconds: 600})
		s.says(t, id, "it can be rolled back", func(m api.Move) string { return m.Waiting })
		stops(t, id, "roll back", backSlot, s.Shards[0])
		s.await(t, id, "rolled back")
		s.agrees(t)
	})
	t.Run("back at once", func(t *testing.T) {
		const point = "move.switch.open"
		id := s.heldAt(t, point, api.StartMove{From: "s2", To: "s1", KeepSeconds: 600})
		s.wish(t, id, "roll back")
		time.Sleep(time.Second) // the leader has heard of it
		s.release(t, point)
		s.await(t, id, "rolled back")
		s.agrees(t)
	})
	s.finish(t)
}
