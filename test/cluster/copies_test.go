package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/test/cluster"

	"github.com/cleavedb/cleave/internal/thorough"
)

// copied is a cluster with a reference table, rates.
type copied struct {
	*cluster.Routers
	client *pgx.Conn   // of the first router
	direct []*pgx.Conn // to the shards, past the routers
}

// startCopied returns when the leader has found the copies equal for the first time: what differs later it may repair.
func startCopied(t *testing.T, routers int) *copied {
	t.Helper()
	c := &copied{Routers: cluster.StartRouters(t, 2, routers)}
	c.client = c.Routers.Routers[0].Dial(t)
	for i := range c.Shards {
		conn := c.Direct(t, i)
		mustExec(t, conn, "SET cleave.router = 'by hand'")
		c.direct = append(c.direct, conn)
	}
	mustExec(t, c.client, "CREATE TABLE rates (id int PRIMARY KEY, rate numeric, writer int, n int)")
	mustExec(t, c.client, "INSERT INTO rates SELECT i, i / 7.0 FROM generate_series(1, 2000) AS i")
	mustExec(t, c.client, "SELECT cleave.reference_table('rates')")
	cluster.Eventually(t, "the copies are noted as equal", func() bool {
		return strings.Contains(table(t, c.direct[1], "SELECT count(*) FROM cleave.copies"), "1")
	})
	return c
}

// rows are those of the copy of a shard.
func (c *copied) rows(t *testing.T, shard int) []string {
	t.Helper()
	rows, err := c.direct[shard].Query(t.Context(), "SELECT r::text FROM rates AS r ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

func (c *copied) areEqual(t *testing.T) bool {
	t.Helper()
	return slices.Equal(c.rows(t, 0), c.rows(t, 1))
}

// said is the one value that a query answers with.
func said(t *testing.T, conn *pgx.Conn, query string) (text string) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), query).Scan(&text); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return text
}

// TestCopiesAreComparedWhileRoutersWrite: no write fails or is lost, none is taken for a difference, and real differences are repaired.
func TestCopiesAreComparedWhileRoutersWrite(t *testing.T) {
	thorough.Only(t)
	c := startCopied(t, 2)
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	defer writing.Wait()
	defer stop()
	var done [4]atomic.Int64
	for w := range done {
		conn := c.Routers.Routers[w%2].Dial(t)
		writing.Go(func() { c.write(ctx, t, conn, w, &done[w]) })
	}
	all := func() (n int64) {
		for w := range done {
			n += done[w].Load()
		}
		return n
	}
	for round := range 4 {
		before := all()
		switch round {
		case 1:
			mustExec(t, c.direct[1], "DELETE FROM rates WHERE id IN (1, 2); UPDATE rates SET rate = 0 WHERE id = 3")
		case 2:
			mustExec(t, c.direct[0], "INSERT INTO rates VALUES (0)")
		}
		checked, err := c.Routers.Routers[round%2].API.CheckCopies(t.Context(), api.CheckCopies{Repair: true})
		if err != nil {
			t.Fatal(err)
		}
		want := map[int][]api.CopyDifference{
			1: {{Table: "public.rates", Shard: "s2", Missing: 2, Changed: 1, Repaired: true}}, 2: {{Table: "public.rates", Shard: "s2", Missing: 1, Repaired: true}},
		}[round]
		if !slices.Equal(checked.Differences, want) || len(checked.Findings) > 0 {
			t.Errorf("round %d: %+v", round, checked)
		}
		cluster.Eventually(t, "writers go on", func() bool { return all() > before+4 })
	}
	stop()
	writing.Wait()
	cluster.Eventually(t, "the copies are equal", func() bool { return c.areEqual(t) })
	for w := range done {
		var written int64
		if err := c.client.QueryRow(t.Context(), "SELECT n FROM rates WHERE id = $1", 100+w).Scan(&written); err != nil || written < done[w].Load() {
			t.Errorf("writer %d was told of %d writes, and the last that is there is %d: %v", w, done[w].Load(), written, err)
		}
	}
	if said(t, c.client, "SELECT cleave.check_reference_table('rates')") != "public.rates is equal on every shard" {
		t.Error("the copies are not equal")
	}
}

// write counts in one row, and inserts and deletes others, until it is told to stop.
func (c *copied) write(ctx context.Context, t *testing.T, conn *pgx.Conn, writer int, done *atomic.Int64) {
	for n := 1; ctx.Err() == nil; n++ {
		for _, sql := range []string{
			fmt.Sprintf("UPDATE rates SET n = %d, writer = %d WHERE id = %d", n, writer, 100+writer),
			fmt.Sprintf("INSERT INTO rates (id, writer) VALUES (%d, %d)", 10000+writer*1000+n%1000, writer),
			fmt.Sprintf("DELETE FROM rates WHERE id = %d", 10000+writer*1000+(n-5)%1000),
		} {
			if _, err := conn.Exec(context.WithoutCancel(ctx), sql); err != nil {
				t.Errorf("writer %d: %s: %v", writer, sql, err)
				return
			}
		}
		done.Store(int64(n))
	}
}

// TestARepairIsInterrupted when its router is killed: the copy is as it was, others go on with the table, and the leader repairs it.
func TestARepairIsInterrupted(t *testing.T) {
	thorough.Only(t)
	c := startCopied(t, 2)
	victim, survivor := c.Routers.Routers[0], c.Routers.Routers[1].Dial(t)
	mustExec(t, c.direct[1], "DELETE FROM rates WHERE id = 1; UPDATE rates SET rate = 0 WHERE id = 2; INSERT INTO rates VALUES (-1)")
	damaged := c.rows(t, 1)
	// Somebody has a row that is to be deleted, so the repair has to wait in the middle.
	blocker := c.Direct(t, 1)
	mustExec(t, blocker, "BEGIN")
	mustExec(t, blocker, "SELECT FROM rates WHERE id = -1 FOR KEY SHARE")
	doomed := victim.Dial(t)
	ended := make(chan error, 1)
	go func() {
		_, err := doomed.Exec(context.Background(), "SELECT cleave.repair_reference_table('rates')")
		ended <- err
	}()
	waits := "SELECT count(*)::text FROM pg_stat_activity WHERE application_name LIKE 'cleave/declare %' AND wait_event_type = 'Lock'"
	cluster.Eventually(t, "the repair waits", func() bool { return said(t, c.direct[1], waits) == "1" })
	victim.Kill()
	if err := <-ended; err == nil {
		t.Error("the repair was done")
	}
	if got := c.rows(t, 1); !slices.Equal(got, damaged) {
		t.Error("the copy is neither as it was nor repaired")
	}
	mustExec(t, blocker, "ROLLBACK")
	cluster.Eventually(t, "the leader has repaired it", func() bool { return c.areEqual(t) })
	mustExec(t, survivor, "INSERT INTO rates VALUES (5000)")
	if !c.areEqual(t) {
		t.Error("the copies are not equal")
	}
	if left := said(t, c.direct[1], "SELECT count(*)::text FROM pg_stat_activity WHERE application_name LIKE 'cleave/declare %'"); left != "0" {
		t.Errorf("%s connections are left", left)
	}
}

// TestCopiesBySQL: who may ask, where, and what is answered.
func TestCopiesBySQL(t *testing.T) {
	thorough.Only(t)
	c := startCopied(t, 1)
	mustExec(t, c.client, "CREATE ROLE visitor LOGIN")
	mustExec(t, c.client, "GRANT SELECT ON rates TO visitor")
	mustExec(t, c.client, "CREATE SCHEMA app")
	mustExec(t, c.client, "CREATE TABLE app.codes (code text)")
	mustExec(t, c.client, "SELECT cleave.reference_table('app.codes')")
	if got := said(t, c.client, "SELECT cleave.check_reference_table('rates, app.codes')"); got != "public.rates is equal on every shard; app.codes is equal on every shard" {
		t.Errorf("it said %q", got)
	}
	mustExec(t, c.direct[1], "UPDATE rates SET rate = 0 WHERE id <= 3")
	if got := said(t, c.client, "SELECT cleave.check_reference_table('rates')"); got != "public.rates on shard s2: rows missing 0, too many 0, different 3" {
		t.Errorf("it said %q", got)
	}
	shown := func() bool {
		status, err := c.Routers.Routers[0].API.Status(t.Context())
		return err == nil && slices.ContainsFunc(status.Findings, func(f api.Finding) bool { return f.Code == "reference_copy_differs" && f.Shard == "s2" })
	}
	cluster.Eventually(t, "a status shows it", shown)
	refused := func(conn *pgx.Conn, sql, code string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), sql)
		var why *pgconn.PgError
		if !errors.As(err, &why) || why.Code != code {
			t.Errorf("%s: %v, want %s", sql, err, code)
		}
	}
	visitor := c.Routers.Routers[0].DialAs(t, "visitor")
	refused(visitor, "SELECT cleave.check_reference_table('rates')", "42501")
	refused(visitor, "SELECT cleave.repair_reference_table('rates')", "42501")
	refused(c.client, "SELECT cleave.repair_reference_table('nowhere')", "42P01")
	refused(c.client, "SELECT cleave.repair_reference_table('rates', force => 'perhaps')", "22023")
	mustExec(t, c.client, "BEGIN")
	refused(c.client, "SELECT cleave.repair_reference_table('rates')", "25001")
	mustExec(t, c.client, "ROLLBACK")
	if got := said(t, c.client, "SELECT cleave.repair_reference_table('rates', force => 'true')"); got != "public.rates on shard s2: rows missing 0, too many 0, different 3, repaired" {
		t.Errorf("it said %q", got)
	}
	cluster.Eventually(t, "a status does not show it any more", func() bool { return !shown() })
	if !c.areEqual(t) {
		t.Error("the copies are not equal")
	}
	// A transaction that has the table in use is waited for, and then nothing is known.
	mustExec(t, c.direct[1], "UPDATE rates SET rate = 0 WHERE id <= 3")
	other := c.Routers.Routers[0].Dial(t)
	mustExec(t, other, "BEGIN")
	mustExec(t, other, "INSERT INTO rates VALUES (9000)")
	began := time.Now()
	refused(c.client, "SELECT cleave.check_reference_table('rates')", "55P03")
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
	mustExec(t, other, "COMMIT")
	if got := said(t, c.client, "SELECT cleave.repair_reference_table('rates')"); !strings.Contains(got, "different 3, repaired") {
		t.Errorf("it said %q", got)
	}
}
