package session

import (
	"strings"
	"testing"
)

// TestFanout: a team can forbid statements that go to shards which no key of theirs names, or have a warning of each.
func TestFanout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3, noPlain: true})
	conn := dialRaw(t, w.address, nil)
	scattered := []string{
		"SELECT count(*) FROM orders", "SELECT * FROM orders", "SELECT id FROM orders ORDER BY note LIMIT 1", "UPDATE orders SET note = 'x'",
		"UPDATE orders SET note = 'y' WHERE note IN (SELECT note FROM orders)", "DECLARE c CURSOR FOR SELECT note FROM orders; CLOSE c", "DECLARE c CURSOR FOR SELECT note FROM orders ORDER BY note; CLOSE c",
		"COPY (SELECT note FROM orders) TO STDOUT", "COPY (SELECT count(*) FROM orders) TO STDOUT", "EXECUTE p(1)", "EXECUTE q(1)",
	}
	conn.query("PREPARE p AS SELECT note FROM orders WHERE length(note) > $1")
	conn.query("PREPARE q AS SELECT count(*) FROM orders WHERE length(note) > $1")
	keyed := []string{"SELECT * FROM orders WHERE id = 1", "SELECT count(*) FROM orders WHERE id = 1", "SELECT * FROM orders WHERE id IN (1, 2, 3, 4, 5, 6, 7)", "SELECT * FROM countries", "UPDATE countries SET name = name", "SELECT 1"}
	for _, sql := range append(scattered, keyed...) {
		if said := strings.Join(conn.query(sql), "\n"); strings.Contains(said, "ERROR") || strings.Contains(said, "WARNING") {
			t.Errorf("as it is, %s: %s", sql, said)
		}
	}
	conn.query("SET cleave.fanout = off")
	for _, sql := range scattered {
		wantCodes(t, conn.query(sql), "55000", "ready I")
	}
	for _, sql := range keyed {
		if said := strings.Join(conn.query(sql), "\n"); strings.Contains(said, "ERROR") {
			t.Errorf("off, %s: %s", sql, said)
		}
	}
	conn.query("SET cleave.fanout = warn")
	for _, sql := range scattered {
		if said := strings.Join(conn.query(sql), "\n"); strings.Contains(said, "ERROR") || !strings.Contains(said, "WARNING 01000") {
			t.Errorf("warn, %s: %s", sql, said)
		}
	}
	wantCodes(t, conn.query("SET cleave.fanout = maybe"), "22023", "ready I")
	if said := strings.Join(conn.query("SHOW cleave.fanout"), "\n"); !strings.Contains(said, `row "warn"`) {
		t.Errorf("shown: %s", said)
	}
	conn.query("RESET cleave.fanout")
	if said := strings.Join(conn.query("SHOW cleave.fanout"), "\n"); !strings.Contains(said, `row "on"`) {
		t.Errorf("shown after RESET: %s", said)
	}
}
