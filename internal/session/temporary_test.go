package session

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// TestTemporaryTablesAreEachSessionsOwn: statements of one text over temporary tables of one name are what each session's own table makes them, whatever another session's
// is like, or the session's own was before.
func TestTemporaryTablesAreEachSessionsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	one, other := dialRaw(t, w.address, nil), dialRaw(t, w.address, nil)
	wantCodes(t, one.query("INSERT INTO orders SELECT g, 'n' || g FROM generate_series(1, 9) g"), "", "ready I")
	wantCodes(t, one.query("CREATE TEMP TABLE own (id bigint); INSERT INTO own VALUES (3), (5)"), "", "ready I")
	wantCodes(t, other.query("CREATE TEMP TABLE own (note text, id int, of numeric); INSERT INTO own VALUES ('x', 3, 1.50)"), "", "ready I")
	const all = "SELECT own.*, o.note FROM orders o JOIN own ON own.id = o.id ORDER BY o.id"
	answers := func(c *rawClient, want ...string) {
		t.Helper()
		for _, said := range [][]string{c.query(all), byProtocol(c, all)} {
			rows := slices.DeleteFunc(said, func(line string) bool { return !strings.HasPrefix(line, "row ") })
			if !slices.Equal(rows, want) {
				t.Errorf("%q, and not %q", rows, want)
			}
		}
	}
	answers(one, `row "3" "n3"`, `row "5" "n5"`)
	answers(other, `row "x" "3" "1.50" "n3"`)
	answers(one, `row "3" "n3"`, `row "5" "n5"`)
	wantCodes(t, one.query("DROP TABLE own; CREATE TEMP TABLE own (id numeric, what bool); INSERT INTO own VALUES (7, true)"), "", "ready I")
	answers(one, `row "7" "t" "n7"`)
	wantCodes(t, other.query("DISCARD ALL"), "", "ready I")
	wantCodes(t, other.query(all), "42P01", "ready I")
	answers(one, `row "7" "t" "n7"`)
	for _, c := range []*rawClient{one, other} {
		_ = c.conn.Close()
	}
}

func byProtocol(c *rawClient, sql string) []string {
	c.send(&pgproto3.Parse{Query: sql}, &pgproto3.Bind{}, &pgproto3.Describe{ObjectType: 'P'}, &pgproto3.Execute{}, &pgproto3.Sync{})
	return c.readyTimes(1)
}
