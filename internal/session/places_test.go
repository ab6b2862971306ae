package session

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/thorough"
)

// saidWithPlaces is what a server says to messages up to ReadyForQuery, with the places of errors.
func saidWithPlaces(t *testing.T, address string, messages ...pgproto3.FrontendMessage) []string {
	t.Helper()
	c := dialRaw(t, address, nil)
	c.send(messages...)
	var said []string
	for {
		m := c.receive()
		line := summary(m)
		if e, is := m.(*pgproto3.ErrorResponse); is {
			line += fmt.Sprintf(" at %d", e.Position)
		}
		said = append(said, line)
		if _, ready := m.(*pgproto3.ReadyForQuery); ready {
			return said
		}
	}
}

// TestPlacesOfErrors are those in the client's text, and come with the message that PostgreSQL sends them with, whichever text a shard saw.
func TestPlacesOfErrors(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{})
	here, there := w.key(t, 1, 0), w.key(t, 2, 0)
	same := func(messages ...pgproto3.FrontendMessage) {
		t.Helper()
		want, got := saidWithPlaces(t, w.plain.Addr(), messages...), saidWithPlaces(t, w.address, messages...)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: PostgreSQL (-) and the router (+) differ:\n%s", describe(messages), diff)
		}
	}
	for _, rows := range []string{"(%d, 'é'), (%d, nosuch)", "(%[2]d, 'é'), (%[1]d, nosuch)", "(%d, 'é'), (%d, 'x'::nosuch)", "(%d, nosuch), (%d, 'x')", "(%d, 'x'), (%d, 'x') RETURNING nosuch", "(%d, 'x'), (%d, 'x') ON CONFLICT (nosuch) DO NOTHING"} {
		sql := "/* é */ INSERT INTO orders VALUES " + fmt.Sprintf(rows, here, there)
		same(&pgproto3.Query{String: sql})
		same(&pgproto3.Query{String: "SELECT 'é'; " + sql})
		same(&pgproto3.Query{String: "SELECT 'é'; " + sql + "; SELECT 1"})
		same(pipeline(unnamed(sql), sync1)...)
		same(pipeline(parse("named", sql), describeStatement("named"), bind("", "named"), run(""), sync1)...)
		same(pipeline(unnamed("SELECT 1"), unnamed(sql), unnamed("SELECT 2"), sync1)...)
	}
	for _, sql := range []string{
		"SELECT nosuch FROM orders", "-- é\n SELECT id FROM orders WHERE note = nosuch", "UPDATE orders SET nosuch = 1", "DELETE FROM orders WHERE nosuch",
		"/* é */ ALTER TABLE orders ADD COLUMN a nosuch", "COMMENT ON COLUMN orders.nosuch IS 'x'", "ALTER TABLE orders ADD CHECK (nosuch > 1)", "CREATE INDEX ON orders (nosuch)",
		"INSERT INTO countries VALUES ('é', nosuch)",
	} {
		same(&pgproto3.Query{String: sql})
		same(&pgproto3.Query{String: "INSERT INTO undeclared VALUES (1, 'é'); " + sql})
		same(&pgproto3.Query{String: "CREATE VIEW made AS SELECT 'é' AS a; SELECT a FROM made; " + sql})
		same(pipeline(unnamed("INSERT INTO undeclared VALUES (1, 'é')"), unnamed(sql), sync1)...)
		same(pipeline(unnamed(sql), sync1)...)
	}
	insert := "INSERT INTO orders VALUES ($1, $2), ($3, nosuch)"
	same(pipeline(parse("", insert), bind("", "", text(here), "x", text(there)), run(""), sync1)...)
	same(pipeline(parse("", "INSERT INTO orders VALUES ($1, $2), ($3, $4 || $5::nosuch)"), bind("", "", text(here), "x", text(there), "y", "z"), run(""), sync1)...)
	w.sameAsPlain(t, sent(pipeline(parse("n", insert), bind("", "n", text(here), "x", text(there)), run(""), sync1)...), sent(pipeline(parse("n", "SELECT 1"), bind("", "n"), run(""), sync1)...))
	w.sameAsPlain(t, sent(pipeline(parse("n", "SELECT nosuch FROM orders"), bind("", "n"), run(""), sync1)...), sent(pipeline(parse("n", "SELECT note FROM orders"), bind("", "n"), run(""), sync1)...), sent(bind("", "n"), run(""), sync1))
}
