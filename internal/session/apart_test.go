package session

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/topology"
)

// TestNoPartOfAStatementSeesWhatAnotherWrites: all of them see what was there before it, whatever the table that is written is read by. What the router cannot
// have that way it refuses.
func TestNoPartOfAStatementSeesWhatAnotherWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{
		setUp: []string{
			"CREATE TABLE lines (id bigint, n int, PRIMARY KEY (id, n)) PARTITION BY HASH (n)", "CREATE TABLE lines_0 PARTITION OF lines FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
			"CREATE TABLE lines_1 PARTITION OF lines FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
		},
		tables: []topology.TableSpec{{Name: "public.lines", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"}}},
	})
	w.sameAsPlain(t, texts(
		"INSERT INTO orders SELECT g, 'x' FROM generate_series(1, 9) g", "INSERT INTO lines SELECT g, g FROM generate_series(1, 7) g",
		"CREATE VIEW late AS SELECT * FROM orders WHERE id > 2", "CREATE VIEW counted AS SELECT count(*) AS n FROM late", "CREATE VIEW pairs AS SELECT id, n FROM lines",
		"CREATE TABLE things (id int)", "CREATE TABLE special () INHERITS (things)", "CREATE TABLE parted (id int) PARTITION BY LIST (id)", "CREATE TABLE parted_1 PARTITION OF parted DEFAULT",
		"CREATE VIEW all_things AS SELECT * FROM things", "CREATE TABLE other (id int)", "INSERT INTO things VALUES (1)", "INSERT INTO parted VALUES (1)",
	)...)
	for sql, refused := range map[string]bool{
		"WITH w AS (INSERT INTO orders VALUES (20, 'y') RETURNING *) SELECT count(*), (SELECT count(*) FROM w) FROM late":                                     true,
		"WITH w AS (INSERT INTO orders VALUES (20, 'y') RETURNING *) SELECT n, (SELECT count(*) FROM w) FROM counted":                                         true,
		"WITH w AS (DELETE FROM orders WHERE id = 3 RETURNING *) SELECT n, (SELECT count(*) FROM w) FROM counted":                                             true,
		"WITH w AS (INSERT INTO orders VALUES (20, 'y') RETURNING *) SELECT count(*) FROM orders":                                                             true,
		"WITH w AS (INSERT INTO lines VALUES (20, 2) RETURNING *) SELECT count(*), (SELECT count(*) FROM lines_0) FROM orders":                                true,
		"WITH w AS (INSERT INTO lines_0 VALUES (20, 2) RETURNING *) SELECT count(*), (SELECT count(*) FROM pairs) FROM orders":                                true,
		"WITH w AS (INSERT INTO lines_0 VALUES (20, 2) RETURNING *) SELECT count(*), (SELECT count(*) FROM w) FROM lines":                                     true,
		"WITH w AS (INSERT INTO special VALUES (2) RETURNING *) SELECT count(*), (SELECT count(*) FROM things) FROM orders":                                   true,
		"WITH w AS (INSERT INTO things VALUES (2) RETURNING *) SELECT count(*), (SELECT count(*) FROM all_things), (SELECT count(*) FROM w) FROM orders":      true,
		"WITH w AS (INSERT INTO parted_1 VALUES (2) RETURNING *) SELECT count(*), (SELECT count(*) FROM parted) FROM orders":                                  true,
		"WITH w AS (INSERT INTO other VALUES (2) RETURNING *) SELECT count(*), (SELECT count(*) FROM parted), (SELECT count(*) FROM w) FROM orders":           false,
		"WITH w AS (INSERT INTO lines VALUES (20, 2) RETURNING *) SELECT n, (SELECT count(*) FROM w) FROM counted":                                            false,
		"WITH w AS (INSERT INTO orders VALUES (20, 'y') RETURNING *) SELECT max(n), (SELECT count(*) FROM w) FROM pairs":                                      false,
		"WITH w AS (INSERT INTO orders VALUES (20, 'y') RETURNING *) SELECT max(n), (SELECT min(id) FROM w), (SELECT count(*) FROM countries) FROM lines":     false,
		"WITH w AS (INSERT INTO orders VALUES (20, 'y') RETURNING *) SELECT count(*), (SELECT max(id) FROM w) FROM other, lines WHERE other.id = lines.n + 1": false,
	} {
		sql = "BEGIN; " + sql + "; ROLLBACK"
		want, got := play(t, w.plain.Addr(), texts(sql, "ROLLBACK")), play(t, w.address, texts(sql, "ROLLBACK"))
		switch answer := strings.Join(got[0], "\n"); {
		case refused && !strings.Contains(answer, "ERROR 0A000"):
			t.Errorf("%s: it is not refused: %q; PostgreSQL: %q", sql, got[0], want[0])
		case !refused && answer != strings.Join(want[0], "\n"):
			t.Errorf("%s: %q; PostgreSQL: %q", sql, got[0], want[0])
		}
	}
	// What a trigger writes is not seen either.
	w.sameAsPlain(t, texts("CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO lines VALUES (NEW.id, 100); RETURN NULL; END $$")...)
	if said := play(t, w.address, texts("SELECT cleave.shard_local_function('follow')")); !strings.Contains(strings.Join(said[0], "\n"), "uses the rows of one shard") {
		t.Fatal(said)
	}
	w.sameAsPlain(t, texts("CREATE TRIGGER follow AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION follow()")...)
	said := play(t, w.address, texts("WITH w AS (INSERT INTO orders VALUES (30, 'y') RETURNING *) SELECT max(n), (SELECT count(*) FROM w) FROM lines"))
	wantCodes(t, said[0], "0A000", "ready I")
}
