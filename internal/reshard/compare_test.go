package reshard

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// TestRowsThatStayDifferent: what is only late is told from what is missing, gone or stuck, also if it is written all the time.
func TestRowsThatStayDifferent(t *testing.T) {
	rounds := []struct{ mine, theirs map[string]string }{
		{map[string]string{"hot": "1", "missing": "1", "late": "1", "stuck": "1", "once": "1", "same": "1"}, map[string]string{"hot": "0", "stuck": "0", "once": "0", "extra": "1", "same": "1"}},
		{map[string]string{"hot": "3", "missing": "2", "late": "1", "stuck": "2", "once": "2", "same": "1"}, map[string]string{"hot": "2", "late": "1", "stuck": "0", "once": "1", "extra": "1", "same": "1"}},
		{map[string]string{"hot": "5", "missing": "3", "late": "1", "stuck": "3", "once": "2", "same": "1"}, map[string]string{"hot": "4", "late": "1", "stuck": "0", "once": "1", "extra": "1", "same": "1", "new": "1"}},
	}
	var doubts map[string]doubt
	for i, r := range rounds {
		doubts = stillDiffering(doubts, r.mine, r.theirs, i == 0)
	}
	if got := slices.Sorted(maps.Keys(doubts)); !slices.Equal(got, []string{"extra", "hot", "missing", "once", "stuck"}) {
		t.Errorf("still differing: %v", got)
	}
	if !doubts["hot"].arrives || doubts["missing"].arrives || doubts["stuck"].arrives || doubts["once"].arrives || doubts["extra"].arrives {
		t.Errorf("%+v", doubts)
	}
}

// TestWhatDiffersIsFoundAmongWrites: what is missing, changed and there in vain on the copy is told from what is only late, however many rows are written meanwhile, and the same row all the time, in tables with a key and without, in fewer rows than are in memory at a time and in more.
func TestWhatDiffersIsFoundAmongWrites(t *testing.T) {
	usual := rowsAtOnce
	t.Cleanup(func() { rowsAtOnce = usual })
	servers := pgtest.StartWith(t, localpg.Config{Settings: map[string]string{"wal_level": "logical"}}, localpg.Config{})
	connect := func(server *localpg.Server) *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), server.DSN("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	run := func(conn *pgx.Conn, statements ...string) {
		t.Helper()
		for _, sql := range statements {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
		}
	}
	owner, copied := connect(servers[0]), connect(servers[1])
	for _, conn := range []*pgx.Conn{owner, copied} {
		if _, _, err := shard.Install(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{"keyed (id int PRIMARY KEY, n int NOT NULL, body text)", "keyless (id int, n int NOT NULL)"} {
			run(conn, "CREATE TABLE public."+table)
		}
		run(conn, "INSERT INTO public.keyed SELECT i, 0 FROM generate_series(1, 5000) AS i; ALTER TABLE public.keyed ALTER body SET STORAGE EXTERNAL; UPDATE public.keyed SET body = repeat('x', 4000) WHERE id IN (98, 99); INSERT INTO public.keyless SELECT i, 0 FROM generate_series(1, 5000) AS i; ANALYZE")
	}
	run(owner, "ALTER TABLE public.keyless REPLICA IDENTITY FULL", "CREATE PUBLICATION both_sides FOR TABLE cleave.marks, public.keyed, public.keyless", "SELECT pg_create_logical_replication_slot('both_sides', 'pgoutput')")
	run(copied, fmt.Sprintf("CREATE SUBSCRIPTION both_sides CONNECTION '%s' PUBLICATION both_sides WITH (create_slot = false, copy_data = false)", servers[0].DSN("postgres")))
	t.Cleanup(func() {
		for _, sql := range []string{"ALTER SUBSCRIPTION both_sides DISABLE", "ALTER SUBSCRIPTION both_sides SET (slot_name = NONE)", "DROP SUBSCRIPTION both_sides"} {
			if _, err := copied.Exec(context.Background(), sql); err != nil {
				t.Error(err)
			}
		}
	})
	for _, table := range []string{"keyed", "keyless"} {
		run(copied, "DELETE FROM public."+table+" WHERE id = 11", "UPDATE public."+table+" SET n = 5 WHERE id = 12", "INSERT INTO public."+table+" VALUES (-13, 0)")
	}

	run(copied, "UPDATE public.keyed SET body = repeat('y', 4000) WHERE id = 99") // which comes with no other change of that row

	writing, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	defer writers.Wait()
	defer stop()
	writes := func(table string, first, rows int, pause time.Duration) {
		conn := connect(servers[0])
		writers.Go(func() {
			for i := 0; writing.Err() == nil; i++ {
				doze(writing, pause)
				if _, err := conn.Exec(context.Background(), fmt.Sprintf("UPDATE public.%s SET n = n + 1 WHERE id = %d", table, first+i%rows)); err != nil {
					t.Errorf("write: %v", err)
					return
				}
			}
		})
	}
	writes("keyed", 100, 200, time.Millisecond)
	writes("keyed", 98, 2, 0)
	writes("keyless", 100, 200, 20*time.Millisecond) // its rows are looked for one by one on the copy

	side := func(server *localpg.Server) side {
		s, err := openSide(func(settings string) (*pgx.Conn, error) {
			conn := connect(server)
			run(conn, settings)
			return conn, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	parts := 0
	c := &comparing{move: "m1", marks: "compare ", owner: side(servers[0]), copy: side(servers[1]), pause: doze, rest: func(context.Context, time.Duration, int64) error {
		parts++
		return nil
	}, late: tooLate}
	for _, at := range []int64{usual, 20} {
		rowsAtOnce = at
		for table, want := range map[string][]string{"keyed": {"(-13)", "(11)", "(12)", "(99)"}, "keyless": {"(-13,0)", "(11,0)", "(12,0)", "(12,5)"}} {
			parts = 0
			rows, differing, err := c.table(t.Context(), topology.TableName{Schema: "public", Name: table}, "t.id < 4000")
			if err != nil || rows != 3999 {
				t.Errorf("%s, %d at once: %d rows, %v", table, at, rows, err)
			}
			slices.Sort(differing)
			if !slices.Equal(slices.Compact(differing), want) {
				t.Errorf("%s, %d at once: %v differ, and should be %v", table, at, differing, want)
			}
			if table == "keyed" && at == usual && parts > 4+compareRounds {
				t.Errorf("a table of one part was read in %d parts: rows that differ are not looked up", parts)
			}
		}
	}
}
