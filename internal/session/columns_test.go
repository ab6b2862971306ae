package session

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestColumnsAreThoseThatWereTold: a client that was told the columns of a prepared statement never gets rows of others without being
// told, whichever backend runs it.
func TestColumnsAreThoseThatWereTold(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	const changed = "ERROR 0A000 cached plan must not change result type"
	portal := describePortal("")
	for name, c := range map[string]struct {
		change string
		want   string // what is said to who is not told anew
	}{
		"other columns":   {"ALTER TABLE orders DROP COLUMN note, ADD COLUMN other text DEFAULT 'new'", changed},
		"one more":        {"ALTER TABLE orders ADD COLUMN more int", changed},
		"another type":    {"ALTER TABLE orders ALTER COLUMN note TYPE bytea USING note::bytea", changed},
		"nothing of them": {"CREATE INDEX by_note ON orders (note)", `"old"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, worldConfig{noPlain: true})
			k := text(w.key(t, 2, 0))
			told, other := dialRaw(t, w.address, nil), dialRaw(t, w.address, nil)
			other.query("INSERT INTO orders VALUES (" + k + ", 'old')")
			told.ask(parse("q", "SELECT * FROM orders WHERE id = $1"), describeStatement("q"), bind("", "q", k), run(""), sync1)
			told.ask(parse("r", "SELECT * FROM orders WHERE id = $1"), bind("", "r", k), portal, run(""), sync1)
			if said := strings.Join(other.query(c.change), "\n"); strings.Contains(said, "ERROR") {
				t.Fatal(said)
			}
			// The backend that has the statements is busy for one half of the time.
			other.query("BEGIN")
			for range 2 {
				for _, statement := range []string{"q", "r"} {
					said := strings.Join(told.ask(bind("", statement, k), run(""), sync1), "\n")
					if !strings.Contains(said, c.want) {
						t.Errorf("%s without a description:\n%s", statement, said)
					}
				}
				other.query("SELECT note IS NULL FROM orders WHERE id = " + k)
			}
			other.query("ROLLBACK")
			for _, statement := range []string{"q", "r"} {
				said := told.ask(bind("", statement, k), portal, run(""), sync1)
				if all := strings.Join(said, "\n"); strings.Contains(all, "ERROR") || strings.Count(said[1], ":")/4 != strings.Count(said[2], `"`)/2+strings.Count(said[2], "NULL") {
					t.Errorf("%s with a description:\n%s", statement, all)
				}
				if said := strings.Join(told.ask(bind("", statement, k), run(""), sync1), "\n"); strings.Contains(said, "ERROR") {
					t.Errorf("%s after it was described:\n%s", statement, said)
				}
			}
		})
	}
}
