package session

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestTextsThatShareAPlan differ in comments, blanks and literals; what is run is what the client wrote.
func TestTextsThatShareAPlan(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{})
	long := "/* a comment that is longer than the statement */ "
	for _, steps := range [][]string{
		{long + "BEGIN", "COMMIT", "BEGIN", "COMMIT", "  BEGIN ; ", "SELECT 1 FROM undeclared", "ROLLBACK -- at last"},
		{"BEGIN -- so it begins", "SET LOCAL work_mem = '3MB'; -- and goes on", "SHOW work_mem", "SELECT count(*) FROM undeclared", long + "COMMIT", "COMMIT"},
		{long + "COMMENT ON COLUMN orders.nosuch IS 'a'", "COMMENT ON COLUMN orders.nosuch IS 'another one'", "COMMENT ON COLUMN orders.nosuch IS ''"},
		{"ALTER TABLE orders ALTER nosuch SET DEFAULT 5", "ALTER TABLE orders ALTER nosuch SET DEFAULT 50", "ALTER TABLE orders ALTER nosuch SET DEFAULT 'a text'"},
		{long + "ANALYZE orders", "ANALYZE orders", "BEGIN", long + "LOCK TABLE orders IN SHARE MODE", "LOCK TABLE orders IN SHARE MODE", "COMMIT"},
		{long + "SAVEPOINT a", "SAVEPOINT a", "BEGIN", long + "SAVEPOINT a", "SAVEPOINT a", "COMMIT"},
	} {
		w.sameAsPlain(t, texts(steps...)...)
		var extended []step
		for _, sql := range steps {
			extended = append(extended, sent(pipeline(parse("", strings.TrimRight(sql, " ")), bind("", ""), run(""), sync1)...))
		}
		w.sameAsPlain(t, extended...)
	}
	c := dialRaw(t, w.address, nil)
	for _, sql := range []string{long + "SHOW cleave.pool_mode", "SHOW cleave.pool_mode", "SHOW cleave.pool_mode; SELECT 1"} {
		if said := strings.Join(c.query(sql), "\n"); !strings.Contains(said, `row "transaction"`) {
			t.Errorf("%s: %s", sql, said)
		}
	}
}
