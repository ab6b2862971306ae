package session

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/topology"
)

// stocked is a world whose router may hold little, with rows of 1 kB on all shards.
func stocked(t *testing.T, limits Rows, rows int) (*world, *rawClient) {
	t.Helper()
	w := newWorld(t, worldConfig{
		shards: 2, noPlain: true, config: Config{Rows: limits}, setUp: []string{"CREATE TABLE notes (id bigint PRIMARY KEY, note text)"},
		tables: []topology.TableSpec{{Name: "public.notes", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"}}},
	})
	conn := dialRaw(t, w.address, nil)
	for first := 1; first <= rows; first += 100 {
		values := make([]string, 100)
		for i := range values {
			values[i] = fmt.Sprintf("(%d, repeat(md5('%[1]d'), 32))", first+i)
		}
		wantCodes(t, conn.query("INSERT INTO orders VALUES "+strings.Join(values, ", ")), "", "ready I")
	}
	return w, conn
}

// nothingHeld wants all memory and all files to be given back.
func (w *world) nothingHeld(t *testing.T) {
	t.Helper()
	if s := w.server.RowStats(); s.Memory != 0 || s.Files != 0 || s.FileBytes != 0 {
		t.Errorf("still held: %+v", s)
	}
}

// sorted needs all rows of all shards, and a server that puts them in order.
const sorted = "SELECT count(*), count(DISTINCT note), string_agg(substr(note, 1, 1), '' ORDER BY note, id) IS NOT NULL FROM orders"

// TestLittleMemory: what does not fit into the memory of all statements goes into files, with the same answers, and nothing is left behind.
func TestLittleMemory(t *testing.T) {
	t.Parallel()
	w, conn := stocked(t, Rows{PullMemory: 1 << 20, Memory: 256 << 10, Arrays: 1 << 20}, 2000)
	w.nothingHeld(t)
	for _, sql := range []string{
		sorted, "SELECT count(*), 5 FROM (SELECT note FROM orders ORDER BY note LIMIT 1500) x", "SELECT count(*), 5 FROM orders a JOIN orders b ON a.note = b.note",
	} {
		before := w.server.RowStats().Spills
		if said := strings.Join(conn.query(sql), "\n"); !strings.Contains(said, "row ") || strings.Contains(said, "ERROR") {
			t.Errorf("%s: %s", sql, said)
		}
		if sql == sorted && w.server.RowStats().Spills == before {
			t.Errorf("%s needed no file", sql)
		}
		w.nothingHeld(t)
	}
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			c := dialRaw(t, w.address, nil)
			for range 3 {
				if said := strings.Join(c.query(sorted), "\n"); !strings.Contains(said, `row "2000" "2000" "t"`) {
					t.Error(said)
				}
			}
		})
	}
	clients.Wait()
	w.nothingHeld(t)
}

// TestRowsThatAreKept: cursors and portals hold what they have until they are closed, or their session ends.
func TestRowsThatAreKept(t *testing.T) {
	t.Parallel()
	w, conn := stocked(t, Rows{PullMemory: 64 << 10}, 500)
	conn.query("BEGIN")
	conn.query("DECLARE c CURSOR FOR SELECT * FROM orders")
	conn.query("DECLARE h CURSOR WITH HOLD FOR SELECT * FROM orders ORDER BY note")
	if s := w.server.RowStats(); s.Memory == 0 || s.Files != 2 || s.FileBytes == 0 {
		t.Errorf("two cursors hold %+v", s)
	}
	conn.query("COMMIT")
	if s := w.server.RowStats(); s.Files != 1 {
		t.Errorf("one cursor holds %+v", s)
	}
	conn.ask(parse("", "SELECT * FROM orders"), bind("p", ""), runSome("p", 1), sync1)
	conn.query("CLOSE h")
	w.nothingHeld(t)
	conn.query("BEGIN")
	conn.ask(parse("", "SELECT count(*), note FROM orders GROUP BY note"), bind("p", ""), runSome("p", 1), sync1)
	conn.query("DECLARE c CURSOR WITH HOLD FOR SELECT * FROM orders")
	_ = conn.conn.Close()
	eventually(t, "a session that has ended holds nothing", func() bool { return w.server.RowStats().Memory == 0 })
	w.nothingHeld(t)
}

// TestTooManyRows: what cannot be kept anywhere is refused, with what to do, and what was held is given back.
func TestTooManyRows(t *testing.T) {
	for name, c := range map[string]struct {
		limits Rows
		sql    string
		code   string
	}{
		"files of all":        {Rows{PullMemory: 64 << 10, Files: 1 << 20}, sorted, "53400"},
		"one pull":            {Rows{PullSize: 1 << 20}, sorted, "53200"},
		"rows for a write":    {Rows{Given: 100 << 10}, "UPDATE orders SET note = 'x' WHERE note IN (SELECT note FROM orders)", "53200"},
		"memory for a write":  {Rows{Memory: 100 << 10}, "UPDATE orders SET note = 'x' WHERE note IN (SELECT note FROM orders)", "53200"},
		"rows for copies":     {Rows{Given: 100 << 10}, "INSERT INTO countries SELECT id::text, note || random()::text FROM orders", "53200"},
		"memory for inserts":  {Rows{Memory: 100 << 10}, "INSERT INTO notes SELECT id + 1, note FROM orders ORDER BY note", "53200"},
		"files for inserts":   {Rows{PullMemory: 64 << 10, Files: 3 << 20}, "INSERT INTO notes SELECT id + 1, note FROM orders", "53400"},
		"rows that come back": {Rows{Given: 100 << 10, Memory: 64 << 20}, "INSERT INTO notes SELECT id + 1, substr(note, 1, 8) FROM orders ORDER BY note RETURNING id, repeat('x', 1000)", "53200"},
		"a cursor":            {Rows{PullMemory: 64 << 10, Files: 256 << 10}, "DECLARE c CURSOR WITH HOLD FOR SELECT * FROM orders", "53400"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, conn := stocked(t, c.limits, 2000)
			wantCodes(t, conn.query(c.sql), c.code, "ready I")
			w.nothingHeld(t)
			if s := w.server.RowStats(); s.Refused != 1 {
				t.Errorf("%+v", s)
			}
			wantCodes(t, conn.query("SELECT 1"), "", "ready I")
			conn.send(&pgproto3.Query{String: c.sql})
			for {
				m := conn.receive()
				if e, failed := m.(*pgproto3.ErrorResponse); failed && (e.Detail == "" || e.Hint == "") {
					t.Errorf("without a reason or a hint: %+v", e)
				}
				if _, ready := m.(*pgproto3.ReadyForQuery); ready {
					break
				}
			}
			w.settled(t)
			w.nothingHeld(t)
		})
	}
}
