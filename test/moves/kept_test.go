package moves_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/faults"
)

// mostKept is how many bytes of changes servers keep for the moves of these tests.
const mostKept = 16 << 20

// writesTooMuch has a server write more than it may keep.
func writesTooMuch(t *testing.T, one *faults.Shard) {
	t.Helper()
	ask[string](t, one, "SELECT max(pg_logical_emit_message(false, 'filler', repeat('f', 1000000)))::text FROM generate_series(1, $1)", mostKept/1_000_000+4)
}

const (
	forwardSlot = "cleave_move_"
	backSlot    = "cleave_back_"
)

// slotOf is where a slot of a move begins to keep changes; empty if there is none.
func slotOf(t *testing.T, one *faults.Shard, slot, id string) string {
	t.Helper()
	return ask[string](t, one, "SELECT coalesce(restart_lsn::text, 'lost') FROM pg_replication_slots WHERE slot_name = $1", slot+id)
}

// lets waits until a server keeps nothing for a move any more, or nothing of before.
func (s *stage) lets(t *testing.T, one *faults.Shard, slot, id, before string) {
	t.Helper()
	s.eventually(t, "the server lets its changes go", func() error {
		if now := slotOf(t, one, slot, id); now == before || now == "lost" {
			return fmt.Errorf("slot %s%s keeps them from %s on", slot, id, now)
		}
		return nil
	})
}

// TestServersKeepNoMoreThanTheyMay, whichever other server is away and for how long: the slot goes, the move says why, and goes on when it can: it copies anew, makes its way back anew, or has none.
func TestServersKeepNoMoreThanTheyMay(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 2)
	s.load.Faulty = true
	s.load.Start(t.Context())
	defer s.load.Stop()
	shards := [2]int{0, 1}
	limits := api.MoveLimits{MaxWAL: of(int64(mostKept))}
	slow := api.MoveLimits{MaxWAL: limits.MaxWAL, MaxRate: of(int64(30_000))}
	saysWhy := func(m api.Move) bool { return strings.Contains(m.Error+m.Stopped, "had to keep") }
	copies := func(m api.Move) bool { return m.Phase == "copying" && m.Rows > 0 }
	fast := func(id string) {
		t.Helper()
		if _, err := s.Routers[0].API().ThrottleMove(t.Context(), id, api.MoveLimits{MaxRate: of(int64(0))}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		plays  func(t *testing.T, source, target *faults.Shard, request api.StartMove) (id string)
		always bool // also where there is not much time
	}{
		{"copying, the target away", func(t *testing.T, source, target *faults.Shard, request api.StartMove) string {
			request.MoveLimits = slow
			id := s.start(t, request)
			s.until(t, id, "rows are copied", copies)
			crash(t, target)
			s.lets(t, source, forwardSlot, id, slotOf(t, source, forwardSlot, id))
			restart(t, target)
			fast(id)
			return id
		}, false},
		{"copying, paused, the target away", func(t *testing.T, source, target *faults.Shard, request api.StartMove) string {
			request.MoveLimits = slow
			id := s.start(t, request)
			s.until(t, id, "rows are copied", copies)
			s.wish(t, id, "pause")
			s.until(t, id, "it is paused", func(m api.Move) bool { return m.Paused })
			crash(t, target)
			slot := slotOf(t, source, forwardSlot, id)
			if slot == "" {
				t.Error("a copy that is paused has no slot")
			}
			writesTooMuch(t, source)
			s.lets(t, source, forwardSlot, id, slot)
			restart(t, target)
			fast(id)
			s.wish(t, id, "resume")
			return id
		}, false},
		{"copying too slowly", func(t *testing.T, source, _ *faults.Shard, request api.StartMove) string {
			request.MoveLimits = slow
			id := s.start(t, request)
			s.until(t, id, "rows are copied", copies)
			slot := slotOf(t, source, forwardSlot, id)
			writesTooMuch(t, source)
			s.until(t, id, "it has stopped", func(m api.Move) bool { return strings.Contains(m.Stopped, "--max-wal") })
			s.lets(t, source, forwardSlot, id, slot)
			fast(id)
			s.wish(t, id, "resume")
			return id
		}, false},
		{"catching up, the target away", func(t *testing.T, source, target *faults.Shard, request api.StartMove) string {
			id := s.heldAt(t, "move.catching-up", request)
			crash(t, target)
			slot := slotOf(t, source, forwardSlot, id)
			s.release(t, "move.catching-up")
			writesTooMuch(t, source)
			s.lets(t, source, forwardSlot, id, slot)
			s.until(t, id, "it says why", saysWhy)
			restart(t, target)
			return id
		}, false},
		{"ready and paused", func(t *testing.T, source, _ *faults.Shard, request api.StartMove) string {
			request.Manual = true
			id := s.start(t, request)
			s.await(t, id, "ready")
			s.wish(t, id, "pause")
			s.until(t, id, "it is paused", func(m api.Move) bool { return m.Paused })
			slot := slotOf(t, source, forwardSlot, id)
			writesTooMuch(t, source)
			s.wish(t, id, "pause") // it is looked at at once
			s.lets(t, source, forwardSlot, id, slot)
			if m := s.until(t, id, "it says why", saysWhy); !m.Paused || m.Phase != "copying" {
				t.Errorf("%+v", m)
			}
			s.wish(t, id, "switch")
			return id
		}, false},
		{"switching, which waits", func(t *testing.T, _, target *faults.Shard, request api.StartMove) string {
			request.Manual = true
			id := s.start(t, request)
			s.await(t, id, "ready")
			open := s.client(t)
			execute(t, open, "BEGIN")
			execute(t, open, "SELECT count(*) FROM fixed")
			s.wish(t, id, "switch")
			s.says(t, id, "has used the tables", func(m api.Move) string { return m.Waiting })
			slot := slotOf(t, target, backSlot, id)
			writesTooMuch(t, target)
			s.lets(t, target, backSlot, id, slot)
			s.says(t, id, "has used the tables", func(m api.Move) string { return m.Waiting })
			execute(t, open, "COMMIT")
			return id
		}, false},
		{"switching, the target away", func(t *testing.T, source, target *faults.Shard, request api.StartMove) string {
			id := s.heldAt(t, "move.switch.close", request)
			crash(t, target)
			slot := slotOf(t, source, forwardSlot, id)
			s.release(t, "move.switch.close")
			writesTooMuch(t, source)
			s.lets(t, source, forwardSlot, id, slot)
			restart(t, target)
			return id
		}, false},
		{"switched, the source away", func(t *testing.T, source, target *faults.Shard, request api.StartMove) string {
			request.KeepSeconds = 600
			id := s.start(t, request)
			s.says(t, id, "it can be rolled back", func(m api.Move) string { return m.Waiting })
			crash(t, source)
			slot := slotOf(t, target, backSlot, id)
			writesTooMuch(t, target)
			s.lets(t, target, backSlot, id, slot)
			s.until(t, id, "it says why", func(m api.Move) bool {
				return saysWhy(m) && strings.Contains(m.Error, "there is no way back") && !m.CanRollBack
			})
			restart(t, source)
			return id
		}, true},
		{"switched and finished, the source away", func(t *testing.T, source, target *faults.Shard, request api.StartMove) string {
			request.KeepSeconds = 600
			id := s.start(t, request)
			s.says(t, id, "it can be rolled back", func(m api.Move) string { return m.Waiting })
			crash(t, source)
			slot := slotOf(t, target, backSlot, id)
			s.wish(t, id, "finish")
			s.lets(t, target, backSlot, id, slot)
			restart(t, source)
			return id
		}, false},
		{"rolling back, the source away", func(t *testing.T, source, target *faults.Shard, request api.StartMove) string {
			request.KeepSeconds = 600
			id := s.start(t, request)
			s.says(t, id, "it can be rolled back", func(m api.Move) string { return m.Waiting })
			crash(t, source)
			slot := slotOf(t, target, backSlot, id)
			s.wish(t, id, "roll back")
			s.await(t, id, "rolling back")
			writesTooMuch(t, target)
			s.lets(t, target, backSlot, id, slot)
			s.until(t, id, "it says why", func(m api.Move) bool { return saysWhy(m) && strings.Contains(m.Error, "there is no way back") })
			restart(t, source)
			return id
		}, false},
	} {
		if !c.always && !thorough.Asked() {
			continue
		}
		ok := t.Run(c.name, func(t *testing.T) {
			source, target := s.Shards[shards[0]], s.Shards[shards[1]]
			id := c.plays(t, source, target, api.StartMove{From: source.Name, To: target.Name, Streams: 1, MoveLimits: limits})
			s.await(t, id, "done")
			s.agrees(t)
			shards[0], shards[1] = shards[1], shards[0]
		})
		if !ok {
			break
		}
	}
	s.finish(t)
}

func restart(t *testing.T, one *faults.Shard) {
	t.Helper()
	if err := one.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestATargetThatCannotKeepUp with the writers: the move says so and does not switch; it does when the target has come closer.
func TestATargetThatCannotKeepUp(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2, Durations: map[string]time.Duration{"move.comes-closer": time.Second}}, 2)
	s.load.Faulty = true // those whose rows the target owns wait for its lock too, and not for ever
	s.load.Start(t.Context())
	defer s.load.Stop()
	id := s.heldAt(t, "move.catching-up", api.StartMove{From: "s1", To: "s2"})
	target := s.onShard(t, 2)
	execute(t, target, "BEGIN")
	execute(t, target, "LOCK TABLE entries IN SHARE MODE") // nobody writes to it there
	source := s.onShard(t, 1)
	write := func() error {
		_, err := source.Exec(t.Context(), "UPDATE entries SET body = body")
		return err
	}
	for range 30 { // or the target is close before it is far behind
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	s.release(t, "move.catching-up")
	s.eventually(t, "it says that it cannot", func() error {
		m, err := s.Routers[0].API().Move(t.Context(), id)
		if err == nil && !strings.Contains(m.Waiting, "cannot keep up with the writers") {
			err = errors.New(m.Phase + ": " + m.Waiting)
		}
		return errors.Join(write(), err)
	})
	for range 3 {
		time.Sleep(time.Second)
		if m, err := s.Routers[0].API().Move(t.Context(), id); err != nil || m.Phase != "catching up" || len(m.Switches) > 0 {
			t.Errorf("it is %s, %v, and has tried to switch: %+v", m.Phase, err, m.Switches)
		}
	}
	execute(t, target, "ROLLBACK")
	s.await(t, id, "done")
	s.finish(t)
}
