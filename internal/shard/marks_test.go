package shard

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

// TestWhoHoldsABeatHoldsWhoAppliesChanges: what was committed behind a mark that is written again and again does not arrive while somebody holds that mark on the other shard, and arrives when nobody does, or whoever did is gone.
func TestWhoHoldsABeatHoldsWhoAppliesChanges(t *testing.T) {
	c := newCluster(t, 2)
	from, to := c.conns[0], c.conns[1]
	execute(t, from, "CREATE PUBLICATION beats FOR TABLE cleave.marks")
	execute(t, from, "SELECT pg_create_logical_replication_slot('beats', 'pgoutput')")
	execute(t, to, fmt.Sprintf("CREATE SUBSCRIPTION beats CONNECTION '%s' PUBLICATION beats WITH (create_slot = false, copy_data = false)", c.servers[0].DSN("postgres")))
	t.Cleanup(func() {
		for _, sql := range []string{"ALTER SUBSCRIPTION beats DISABLE", "ALTER SUBSCRIPTION beats SET (slot_name = NONE)", "DROP SUBSCRIPTION beats"} {
			if _, err := to.Exec(context.Background(), sql); err != nil {
				t.Error(err)
			}
		}
	})
	beats := must[*Beats](t)(NewBeats(t.Context(), from, "m1"))
	beat := func() {
		t.Helper()
		if err := beats.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	leave := func(mark string) {
		t.Helper()
		if err := LeaveMark(t.Context(), from, "m1", mark); err != nil {
			t.Fatal(err)
		}
	}
	has := func(mark string) bool {
		t.Helper()
		return must[bool](t)(HasMark(t.Context(), to, "m1", mark))
	}
	arrives := func(mark string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !has(mark); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("mark %q never arrives", mark)
			}
		}
	}
	for _, ends := range []string{"by itself", "with its connection"} {
		beat()
		leave("before " + ends)
		arrives("before " + ends)

		holding, stop := context.WithCancel(t.Context())
		holder := connect(t, specOf("s2", c.servers[1]))
		var held sync.WaitGroup
		held.Go(func() { _ = HoldBeats(holding, holder, "m1", time.Hour) })
		waitsAt := func(locks string) {
			t.Helper()
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
				var count int
				if err := to.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE "+locks).Scan(&count); err != nil {
					t.Fatal(err)
				}
				if count > 0 {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("nobody has such a lock: %s", locks)
				}
			}
		}
		waitsAt(fmt.Sprintf("l.locktype = 'transactionid' AND a.pid = %d", holder.PgConn().PID()))
		beat()
		leave("behind " + ends)
		waitsAt("NOT l.granted AND a.backend_type = 'logical replication worker'")
		if has("behind " + ends) {
			t.Error("what is behind a mark that is held has arrived")
		}
		if ends == "by itself" {
			stop()
		} else {
			execute(t, to, "SELECT pg_terminate_backend($1)", holder.PgConn().PID())
		}
		arrives("behind " + ends)
		stop()
		held.Wait()
	}
	for range 2 * beatsOfAName { // others take its place
		beat()
	}
	leave("last")
	arrives("last")
	for _, conn := range []*pgx.Conn{from, to} {
		var left int
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM cleave.marks WHERE "+BeatTravels("m1")).Scan(&left); err != nil || left != 1 {
			t.Errorf("%d marks are written again and again: %v", left, err)
		}
		if err := DropMarks(t.Context(), conn, "m1"); err != nil {
			t.Fatal(err)
		}
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM cleave.marks").Scan(&left); err != nil || left != 0 {
			t.Errorf("%d marks are left: %v", left, err)
		}
	}
}

// TestWhatAMoveIsMayBeLong: the names of some thousand tables, for example, which are found again as they are.
func TestWhatAMoveIsMayBeLong(t *testing.T) {
	c := newCluster(t, 1)
	c.record(t)
	var names []string
	for i := range 3000 {
		names = append(names, fmt.Sprintf("tenant.%x", sha256.Sum256([]byte{byte(i), byte(i >> 8)})))
	}
	for _, target := range []string{"s3", "s2"} { // the last one counts
		description := must[[]byte](t)(json.Marshal(map[string]any{"whole": names, "target": target}))
		if err := NoteMove(t.Context(), c.conns[0], "m1", description); err != nil {
			t.Fatal(err)
		}
	}
	known := c.read(t)[0].Moves
	if len(known) != 1 || known[0].ID != "m1" || known[0].Target != "s2" || !slices.Equal(known[0].Whole, names) {
		t.Errorf("%d moves are known, not the one that was noted", len(known))
	}
	if err := DropMarks(t.Context(), c.conns[0], "m1"); err != nil {
		t.Fatal(err)
	}
	if known := c.read(t)[0].Moves; len(known) > 0 {
		t.Errorf("%d moves are known that have ended", len(known))
	}
}

// TestHardened: what was done without waiting for the disk is on it, though the server would leave it for longer.
func TestHardened(t *testing.T) {
	server := pgtest.StartWith(t, localpg.Config{Settings: map[string]string{"wal_writer_delay": "10s", "bgwriter_delay": "10s"}})[0]
	conn := must[*pgx.Conn](t)(pgx.Connect(t.Context(), server.DSN("postgres")))
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	execute(t, conn, "CREATE TABLE public.t (n int); SET synchronous_commit = off")
	execute(t, conn, "INSERT INTO public.t VALUES (1)")
	isSafe := func(lsn string) bool {
		return one[bool](t, conn, "SELECT pg_current_wal_flush_lsn() >= $1::pg_lsn", lsn)
	}
	lsn := one[string](t, conn, "SELECT pg_current_wal_insert_lsn()::text")
	if isSafe(lsn) {
		t.Error("the server waits for the disk whatever is asked for")
	}
	if err := Harden(t.Context(), conn); err != nil || !isSafe(lsn) {
		t.Errorf("it is not on the disk: %v", err)
	}
	if got := one[string](t, conn, "SHOW synchronous_commit"); got != "off" {
		t.Errorf("synchronous_commit is %s from now on", got)
	}
}
