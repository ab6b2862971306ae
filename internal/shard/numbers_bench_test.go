package shard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// BenchmarkNumbers compares rows of a plain table with a serial column with those of sharded ones, whose numbers are counted or made,
// by turns, and takes the least: one row in each of many statements, and COPY with the numbers and without.
func BenchmarkNumbers(b *testing.B) {
	const rows, statements = 300_000, 5_000
	c := newCluster(b, 1)
	c.change(b, c.splitAt(b, "users", 1, []string{"bigint"}))
	c.everywhere(b, `CREATE TABLE plain (user_id bigint, id bigserial, note text, PRIMARY KEY (user_id, id));
		CREATE TABLE counted (LIKE plain INCLUDING ALL); CREATE SEQUENCE counted_id_seq OWNED BY counted.id; ALTER TABLE counted ALTER id SET DEFAULT nextval('counted_id_seq');
		CREATE TABLE keyed (LIKE plain INCLUDING ALL); CREATE SEQUENCE keyed_id_seq OWNED BY keyed.id; ALTER TABLE keyed ALTER id SET DEFAULT nextval('keyed_id_seq')`)
	c.number(b, "users", "keyed", "user_id")
	c.declare(b, "users", map[string][]string{"public.counted": {"user_id"}})
	conn := c.routers(b)[0]
	without, with := copyLines(rows, func(i int) string { return fmt.Sprintf("%d\tnote", i%5000) }), copyLines(rows, func(i int) string { return fmt.Sprintf("%d\tnote\t%d", i%5000, i) })
	times := map[string][]time.Duration{}
	for b.Loop() {
		for _, table := range []string{"plain", "counted", "keyed"} {
			work := map[string]func(){
				"single": func() { insertNotes(b, conn, table, statements) },
				"copy":   func() { copyIn(b, conn, table+" (user_id, note)", without) },
				"copyid": func() { copyIn(b, conn, table+" (user_id, note, id)", with) },
			}
			for _, kind := range []string{"single", "copy", "copyid"} {
				execute(b, conn, "TRUNCATE "+table)
				times[table+"-"+kind] = append(times[table+"-"+kind], timed(work[kind]))
			}
		}
	}
	for name, taken := range times {
		_, kind, _ := strings.Cut(name, "-")
		count := map[string]float64{"single": statements, "copy": rows, "copyid": rows}[kind]
		b.ReportMetric(float64(slices.Min(taken).Nanoseconds())/count/1000, name+"-µs/row")
		b.ReportMetric(float64(slices.Min(taken))/float64(slices.Min(times["plain-"+kind])), name+"-ratio")
	}
}

func copyLines(count int, line func(int) string) string {
	var lines strings.Builder
	for i := range count {
		lines.WriteString(line(i) + "\n")
	}
	return lines.String()
}

func copyIn(b *testing.B, conn *pgx.Conn, into, lines string) {
	b.Helper()
	if _, err := conn.PgConn().CopyFrom(b.Context(), strings.NewReader(lines), "COPY "+into+" FROM STDIN"); err != nil {
		b.Fatal(err)
	}
}

func insertNotes(b *testing.B, conn *pgx.Conn, table string, statements int) {
	b.Helper()
	for i := range statements {
		execute(b, conn, "INSERT INTO "+table+" (user_id, note) VALUES ($1, 'note')", i)
	}
}
