package session

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// TestKeysLeftToConstants: a key whose default is a constant may be left out, and goes where the same value would go.
func TestKeysLeftToConstants(t *testing.T) {
	t.Parallel()
	config := numbersConfig(3)
	config.setUp = append(config.setUp, "CREATE TABLE desks (note text, region varchar(8) DEFAULT 'it''s x', place integer DEFAULT -7, PRIMARY KEY (region, place, note))",
		"CREATE TABLE badges (id uuid PRIMARY KEY DEFAULT '11111111-2222-3333-4444-555555555555', note text)",
		`CREATE TABLE odd (id text PRIMARY KEY DEFAULT E'a\\b', note text)`)
	config.keyspaces = map[string]string{"uuid": "uuid", "text": "text", "place": "text,integer"}
	sharded := func(name, keyspace string, key ...string) topology.TableSpec {
		return topology.TableSpec{Name: name, Kind: topology.Sharded, Keyspace: keyspace, Key: key}
	}
	config.tables = append(config.tables, sharded("public.desks", "place", "region", "place"), sharded("public.badges", "uuid", "id"), sharded("public.odd", "text", "id"))
	w := newWorld(t, config)
	w.sameAsPlain(t, texts(
		"INSERT INTO desks (note) VALUES ('a')",
		"INSERT INTO desks VALUES ('b')",
		"INSERT INTO desks VALUES ('c', 'north'), ('d', DEFAULT) RETURNING *",
		"INSERT INTO desks (place, note) VALUES (1, 'e'), (DEFAULT, 'f'), (3, 'g'), (4, 'h'), (5, 'i')",
		"INSERT INTO desks (note) VALUES ('a') ON CONFLICT DO NOTHING",
		"INSERT INTO desks (note) VALUES ('a')",
		"INSERT INTO desks DEFAULT VALUES",
		"INSERT INTO desks (note) VALUES ('a', 1)",
		"INSERT INTO desks (note, place) VALUES ('a')",
		"SELECT note FROM desks WHERE region = 'it''s x' AND place = -7 ORDER BY note",
		"SELECT note FROM desks WHERE region = 'it''s x' AND place = 3",
		"SELECT note FROM desks WHERE region = 'north' AND place = -7",
		"INSERT INTO badges DEFAULT VALUES RETURNING *",
		"INSERT INTO badges (note) VALUES ('x')",
		"SELECT * FROM badges WHERE id = '11111111-2222-3333-4444-555555555555'",
		"PREPARE p AS INSERT INTO desks (note, place) VALUES ($1, $2), ($1, DEFAULT)", "EXECUTE p ('z', 11)",
		"SELECT place FROM desks WHERE region = 'it''s x' AND note = 'z' AND place IN (-7, 11) ORDER BY place",
	)...)
	client := w.client(t)
	if tag, err := client.PgConn().CopyFrom(t.Context(), strings.NewReader("j\nk\n"), "COPY desks (note) FROM STDIN"); err != nil || tag.RowsAffected() != 2 {
		t.Fatalf("%s %v", tag, err)
	}
	if got := w.count(t, client, "SELECT 1::bigint FROM desks WHERE region = 'it''s x' AND place = -7 AND note IN ('j', 'k')"); got != 2 {
		t.Errorf("%d rows of the copy", got)
	}
	execute(t, client, "ALTER TABLE desks ALTER place SET DEFAULT 8")
	execute(t, client, "INSERT INTO desks (note) VALUES ('new')")
	if got := w.count(t, client, "SELECT 1::bigint FROM desks WHERE region = 'it''s x' AND place = 8"); got != 1 {
		t.Errorf("%d rows with another default", got)
	}
	if code, _ := refusalOf(t, client, "INSERT INTO odd (note) VALUES ('x')"); code != pgerr.FeatureNotSupported {
		t.Errorf("a default that is read in other ways: %s", code)
	}
	w.nothingPrepared(t)
}
