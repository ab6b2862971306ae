package shard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/topology"
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

// TestWhatAMoveIs is noted however much it is, and what was noted before there was a place for that is known still.
func TestWhatAMoveIs(t *testing.T) {
	server := pgtest.Start(t)
	spec := specOf("s1", server)
	conn := connect(t, spec)
	at := slices.IndexFunc(steps, func(s step) bool { return s.name == "what moves are" })
	if _, _, err := install(t.Context(), conn, steps[:at]); err != nil {
		t.Fatal(err)
	}
	m := must[*topology.Map](t)(topology.New(clusterID))
	if err := Claim(t.Context(), conn, clusterID, spec, m); err != nil {
		t.Fatal(err)
	}
	note := func(move, mark string) {
		t.Helper()
		if err := LeaveMark(t.Context(), conn, move, mark); err != nil {
			t.Fatal(err)
		}
	}
	note("older", `move {"keyspace": "users", "target": "s2"}`)
	note("older", ArrivedFrom("s3")+"0/1")
	note("ended", takenBack)
	expect := func(when string, want ...string) {
		t.Helper()
		var got []string
		for _, m := range must[*Recorded](t)(Read(t.Context(), conn)).Moves {
			got = append(got, fmt.Sprint(m.ID, " ", len(m.Description), " ", m.Keyspace, m.ArrivedFrom))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, not %q", when, got, want)
		}
	}
	older := "older 37 users[s3]"
	expect("before there is a place", older)
	if _, _, err := Install(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	expect("when there is one", older)
	note("late", `move {"keyspace": "late"}`) // of a program that does not know of it
	expect("by two programs", "late 20 late[]", older)
	for _, size := range []int{1_000_000, 10} {
		description := fmt.Sprintf(`{"keyspace": "many", "why": "%s"}`, strings.Repeat("x", size))
		if err := NoteMove(t.Context(), conn, "many", []byte(description)); err != nil {
			t.Fatal(err)
		}
		expect("a large one", "late 20 late[]", fmt.Sprint("many ", len(description), " many[]"), older)
	}
	for _, move := range []string{"late", "many", "older"} {
		if err := DropMarks(t.Context(), conn, move); err != nil {
			t.Fatal(err)
		}
	}
	expect("in the end")
	if left := one[int](t, conn, "SELECT count(*) FROM cleave.marks WHERE move <> 'ended'"); left != 0 {
		t.Errorf("%d marks are left", left)
	}
}
