package shard

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/topology"
)

// benchmarkedGuards are tables in keyspaces whose guards do their work in different places.
var benchmarkedGuards = []struct {
	name       string
	assignment topology.Assignment
	pins       int
}{
	{"condition", topology.Assignment{Algorithm: "slots"}, 0},
	{"function", topology.Assignment{Algorithm: "ring", VirtualNodes: 150}, 0},
	{"pins", topology.Assignment{Algorithm: "slots"}, 1000},
}

// BenchmarkGuards compares inserts into guarded tables with those into a plain one, by turns, so that whatever else the
// machine does hits all alike, and takes the least: a million rows in one statement, and one row in each of many.
func BenchmarkGuards(b *testing.B) {
	const rows, statements = 1_000_000, 5_000
	c := newCluster(b, 2)
	names := c.benchmarkTables(b, rows)
	conn := c.routers(b)[0]
	bulk, single := map[string][]time.Duration{}, map[string][]time.Duration{}
	for b.Loop() {
		for _, name := range names {
			execute(b, conn, "TRUNCATE "+name)
			bulk[name] = append(bulk[name], timed(func() { execute(b, conn, fmt.Sprintf("INSERT INTO %s SELECT id FROM rows_of_%s", name, name)) }))
			single[name] = append(single[name], timed(func() { insertSingly(b, conn, name, statements) }))
		}
	}
	plain, plainSingle := slices.Min(bulk["plain"]), slices.Min(single["plain"])
	for _, name := range names {
		b.ReportMetric(float64(slices.Min(bulk[name]).Nanoseconds())/rows, name+"-ns/row")
		b.ReportMetric(float64(slices.Min(bulk[name]))/float64(plain), name+"-ratio")
		b.ReportMetric(float64(slices.Min(single[name]).Microseconds())/statements, name+"-µs/statement")
		b.ReportMetric(float64(slices.Min(single[name]))/float64(plainSingle), name+"-statement-ratio")
	}
}

// benchmarkTables makes a plain table and the guarded ones, and for each the rows that the first shard takes.
func (c *cluster) benchmarkTables(b *testing.B, rows int) []string {
	b.Helper()
	c.everywhere(b, "CREATE TABLE plain (id bigint); CREATE TABLE rows_of_plain AS SELECT generate_series(1, "+strconv.Itoa(rows)+")::bigint AS id")
	names := []string{"plain"}
	for _, g := range benchmarkedGuards {
		spec := topology.NewKeyspaceSpec(g.name, topology.ByHash, 7, "bigint")
		var err error
		if spec.Ranges, spec.Assignment, err = c.m.Assign(g.assignment); err != nil {
			b.Fatal(err)
		}
		for n := range g.pins {
			spec.Pins = append(spec.Pins, topology.PinSpec{Key: topology.Point{strconv.Itoa(-n)}, Shard: "s2"})
		}
		c.change(b, topology.CreateKeyspace(spec))
		c.everywhere(b, "CREATE TABLE "+g.name+" (id bigint)")
		c.declare(b, g.name, map[string][]string{"public." + g.name: {"id"}})
		belongs := must[condition](b)(planFor(c.m, nil).keyspaces[slices.IndexFunc(c.m.Keyspaces(), func(k *topology.Keyspace) bool { return k.Name() == g.name })].ownership(1).belongs([]string{"id"}))
		execute(b, c.conns[0], fmt.Sprintf("CREATE TABLE public.rows_of_%s AS SELECT id FROM generate_series(1, %d::bigint) AS id WHERE %s LIMIT %d", g.name, 4*rows, belongs.sql, rows))
		names = append(names, g.name)
	}
	return names
}

func insertSingly(b *testing.B, conn *pgx.Conn, table string, statements int) {
	b.Helper()
	id := one[int64](b, conn, "SELECT id FROM rows_of_"+table+" LIMIT 1")
	for range statements {
		execute(b, conn, "INSERT INTO "+table+" VALUES ($1)", id)
	}
}

func timed(work func()) time.Duration {
	started := time.Now()
	work()
	return time.Since(started)
}
