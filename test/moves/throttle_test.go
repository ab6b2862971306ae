package moves_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/faults"
)

// until waits until a move is as it should be.
func (s *stage) until(t *testing.T, id, what string, is func(api.Move) bool) api.Move {
	t.Helper()
	var last api.Move
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		m, err := s.Routers[0].API().Move(ctx, id)
		cancel()
		if err != nil {
			continue
		}
		if last = m; is(m) {
			return m
		}
	}
	t.Fatalf("move %s never came to this: %s. It is %s, paused %t, %d rows, waiting %q, error %q, stopped %q", id, what, last.Phase, last.Paused, last.Rows, last.Waiting, last.Error, last.Stopped)
	return last
}

// ask has a server answer one question.
func ask[T any](t *testing.T, s *faults.Shard, sql string, arguments ...any) (value T) {
	t.Helper()
	conn, err := s.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(t.Context(), sql, arguments...).Scan(&value); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// replay has a standby go on with what it has got, or not.
func replay(t *testing.T, s *faults.Shard, goOn bool) {
	t.Helper()
	call := "pg_wal_replay_pause"
	if goOn {
		call = "pg_wal_replay_resume"
	}
	conn, err := pgx.Connect(t.Context(), s.Replica().DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "SELECT "+call+"()"); err != nil {
		t.Fatal(err)
	}
}

func of[T any](value T) *T { return &value }

// TestStandbysAreNotLeftBehind: while a standby of the target is too far behind nothing is copied or compared, and while one of a shard that is cleaned up is, nothing is deleted; it is said what is waited for, and all goes on when it has caught up.
func TestStandbysAreNotLeftBehind(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2, Replicated: 2}, 4)
	s.load.Start(t.Context())
	defer s.load.Stop()
	behind := func(m api.Move) bool { return strings.Contains(m.Waiting, " waits: standby ") }
	replay(t, s.Shards[1], false)
	id := s.start(t, api.StartMove{From: "s1", To: "s2", MoveLimits: api.MoveLimits{MaxLagSeconds: of(0.5), MaxRate: of(int64(60_000))}})
	m := s.until(t, id, "the copy waits", behind)
	if m.Phase != "copying" {
		t.Errorf("it waits in phase %s", m.Phase)
	}
	replay(t, s.Shards[1], true)
	if _, err := s.Routers[1].API().ThrottleMove(t.Context(), id, api.MoveLimits{MaxRate: of(int64(0))}); err != nil { // or it would take long to compare
		t.Fatal(err)
	}
	s.await(t, id, "done")

	id = s.start(t, api.StartMove{From: "s2", To: "s1", KeepSeconds: 600, MoveLimits: api.MoveLimits{MaxLagSeconds: of(0.5)}})
	s.await(t, id, "switched")
	replay(t, s.Shards[1], false)
	time.Sleep(2 * time.Second) // something is written that the standby does not have
	s.wish(t, id, "finish")
	if m = s.until(t, id, "the clean-up waits", behind); m.Phase != "cleaning" {
		t.Errorf("it waits in phase %s", m.Phase)
	}
	if _, err := s.Routers[1].API().ThrottleMove(t.Context(), id, api.MoveLimits{MaxLagSeconds: of(0.0)}); err != nil {
		t.Fatal(err)
	}
	s.await(t, id, "done") // nobody waits for that standby any more
	replay(t, s.Shards[1], true)

	id = s.heldAt(t, "move.verifying", api.StartMove{From: "s1", To: "s2", MoveLimits: api.MoveLimits{MaxLagSeconds: of(0.5)}})
	replay(t, s.Shards[1], false)
	time.Sleep(2 * time.Second)
	s.release(t, "move.verifying")
	if m = s.until(t, id, "the comparison waits", behind); m.Phase != "verifying" {
		t.Errorf("it waits in phase %s", m.Phase)
	}
	replay(t, s.Shards[1], true)
	s.await(t, id, "done")
	s.finish(t)
}

const slotQuery = "SELECT slot_name || ' ' || confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'cleave_move_' || $1"

// TestAPausedCopyGoesOn: it keeps its slot and what was copied, and begins anew when it was paused for too long; cancelling works all the same.
func TestAPausedCopyGoesOn(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2, Durations: map[string]time.Duration{"move.keeps-paused": 8 * time.Second}}, 4)
	s.load.Start(t.Context())
	defer s.load.Stop()
	time.Sleep(2 * time.Second)
	slow := api.MoveLimits{MaxRate: of(int64(30_000))}
	paused := func(m api.Move) bool { return m.Paused && m.Waiting != "" }

	id := s.start(t, api.StartMove{From: "s1", To: "s2", Streams: 1, MoveLimits: slow})
	before := s.until(t, id, "rows are copied", func(m api.Move) bool { return m.Phase == "copying" && m.Rows > 0 })
	slot := ask[string](t, s.Shards[0], slotQuery, id)
	s.wish(t, id, "pause")
	s.until(t, id, "it is paused", paused)
	s.wish(t, id, "resume")
	after := s.until(t, id, "it goes on", func(m api.Move) bool { return !m.Paused })
	if now := ask[string](t, s.Shards[0], slotQuery, id); slot == "" || now != slot || after.Rows < before.Rows || after.Phase != "copying" {
		t.Errorf("the slot was %q and is %q, %d rows were copied before and %d after, in phase %s", slot, now, before.Rows, after.Rows, after.Phase)
	}
	if _, err := s.Routers[0].API().ThrottleMove(t.Context(), id, api.MoveLimits{MaxRate: of(int64(0))}); err != nil { // or it would take long
		t.Fatal(err)
	}
	s.await(t, id, "done")

	id = s.start(t, api.StartMove{From: "s2", To: "s1", Streams: 1, MoveLimits: slow})
	s.until(t, id, "rows are copied", func(m api.Move) bool { return m.Phase == "copying" && m.Rows > 0 })
	s.wish(t, id, "pause")
	s.until(t, id, "it is paused", paused)
	s.eventually(t, "the slot of a move that is paused for long is dropped", func() error {
		if slot := ask[string](t, s.Shards[1], slotQuery, id); slot != "" {
			return errors.New(slot)
		}
		return nil
	})
	if m, err := s.Routers[0].API().ThrottleMove(t.Context(), id, api.MoveLimits{MaxRate: of(int64(0))}); err != nil || !m.Paused {
		t.Fatalf("paused %t: %v", m.Paused, err)
	}
	s.wish(t, id, "resume")
	s.await(t, id, "done")

	id = s.start(t, api.StartMove{From: "s1", To: "s2", Streams: 1, MoveLimits: slow})
	s.until(t, id, "rows are copied", func(m api.Move) bool { return m.Phase == "copying" && m.Rows > 0 })
	s.wish(t, id, "pause")
	s.until(t, id, "it is paused", paused)
	s.wish(t, id, "cancel")
	s.await(t, id, "cancelled")
	s.finish(t)
	s.counted(t)
}

// TestALeaderDiesWhileACopyIsPaused: its snapshot is gone, so the next one drops the slot, and the move begins to copy anew when it is resumed: line M37.
func TestALeaderDiesWhileACopyIsPaused(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 3)
	s.load.Faulty = true
	s.load.Start(t.Context())
	defer s.load.Stop()
	id := s.start(t, api.StartMove{From: "s1", To: "s2", Streams: 1, MoveLimits: api.MoveLimits{MaxRate: of(int64(30_000))}})
	s.until(t, id, "rows are copied", func(m api.Move) bool { return m.Phase == "copying" && m.Rows > 0 })
	s.wish(t, id, "pause")
	s.until(t, id, "it is paused", func(m api.Move) bool { return m.Paused })
	if slot := ask[string](t, s.Shards[0], slotQuery, id); slot == "" {
		t.Error("a copy that is paused has no slot")
	}
	leader, err := s.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	leader.Kill()
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, "the slot is dropped", func() error {
		if slot := ask[string](t, s.Shards[0], slotQuery, id); slot != "" {
			return errors.New(slot)
		}
		return nil
	})
	if _, err := s.Other(leader).API().ThrottleMove(t.Context(), id, api.MoveLimits{MaxRate: of(int64(0))}); err != nil {
		t.Fatal(err)
	}
	s.wish(t, id, "resume")
	s.await(t, id, "done")
	s.finish(t)
}

func (s *stage) eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("it did not come to pass that %s: %v", what, err)
}

// counted looks at the metrics: the leader has counted what it did, the others have nothing to count.
func (s *stage) counted(t *testing.T) {
	t.Helper()
	leader, err := s.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range s.Routers {
		page := metrics(t, r)
		for _, name := range []string{
			"cleave_move_rows_copied_total", "cleave_move_bytes_copied_total", "cleave_move_rows_cleaned_total", "cleave_move_switches_total", "cleave_move_switch_held_seconds_count", `cleave_moves_ended_total{phase="done"}`,
			`cleave_moves_ended_total{phase="cancelled"}`, `cleave_move_throttled_seconds_total{reason="rate"}`,
		} {
			if has := page[name] != "" && page[name] != "0"; has != (r == leader) {
				t.Errorf("%s, which leads: %t, has %s %s", r.Name, r == leader, name, page[name])
			}
		}
	}
}

// metrics are what a router reports, by name and labels.
func metrics(t *testing.T, r *faults.Router) map[string]string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.API().BaseURL+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(fmt.Errorf("%s: %w", response.Status, err))
	}
	page := map[string]string{}
	for line := range strings.Lines(string(body)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok {
			page[name+"}"] = value
		} else if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			page[name] = value
		}
	}
	return page
}
