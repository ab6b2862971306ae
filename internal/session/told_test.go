package session

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestCurrval answers with what the shards have made for this client, whoever used their backends since.
func TestCurrval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, numbersConfig(3))
	client, other := w.client(t), w.client(t)
	for _, sql := range []string{"SELECT currval('parcels_id_seq')", "SELECT lastval()", "SELECT currval('people_id_seq'), lastval()"} {
		if code, _ := refusalOf(t, client, sql); code != pgerr.ObjectNotInPrerequisite {
			t.Errorf("%s before anything was made: %s", sql, code)
		}
	}
	for number := 1; number <= 3; number++ {
		id := insertParcel(t, client, w.key(t, number, 0))
		insertParcel(t, other, w.key(t, number, 1))
		for _, sql := range []string{
			"SELECT currval('parcels_id_seq')", "SELECT CURRVAL('public.parcels_id_seq'::regclass)", "select pg_catalog.currval(pg_get_serial_sequence('parcels', 'id'))", "SELECT lastval()",
			"SELECT 0 + lastval()", "SELECT n FROM currval('parcels_id_seq') AS n", "SELECT currval FROM currval('parcels_id_seq')", "SELECT lastval FROM (SELECT lastval()) v",
		} {
			for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheStatement} {
				if got := one[int64](t, client, sql, mode); got != id {
					t.Errorf("%s: %d, want %d", sql, got, id)
				}
			}
		}
		if got := one[int64](t, client, "SELECT currval($1)", pgx.QueryExecModeExec, "parcels_id_seq"); got != id {
			t.Errorf("currval($1): %d, want %d", got, id)
		}
		execute(t, client, "INSERT INTO letters (user_id, parcel_id) VALUES ($1, currval('parcels_id_seq'))", w.key(t, number, 0))
		if got := one[int64](t, client, "SELECT parcel_id FROM letters WHERE user_id = $1", w.key(t, number, 0)); got != id {
			t.Errorf("stored %d, want %d", got, id)
		}
		person := one[int64](t, client, "INSERT INTO people (name) VALUES ('x') RETURNING id")
		if got := one[int64](t, client, "SELECT lastval()"); got != person {
			t.Errorf("lastval of a made key: %d, want %d", got, person)
		}
		if got := one[int64](t, client, "SELECT currval('parcels_id_seq')"); got != id {
			t.Errorf("currval after another table's: %d, want %d", got, id)
		}
	}
	w.settled(t)
}

// TestCurrvalOfManyRows is that of the last row, if one is last.
func TestCurrvalOfManyRows(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, numbersConfig(3))
	client := w.client(t)
	for last := 1; last <= 3; last++ {
		first := w.key(t, last%3+1, 0)
		ids := w.ids(t, client, fmt.Sprintf("INSERT INTO parcels (user_id) VALUES (%d), (%d), (%d) RETURNING id", first, w.key(t, (last+1)%3+1, 0), w.key(t, last, 0)))
		if got := one[int64](t, client, "SELECT currval('parcels_id_seq')"); got != ids[2] {
			t.Errorf("%d, want the last of %d", got, ids)
		}
	}
	execute(t, client, "INSERT INTO parcels (user_id) SELECT user_id FROM parcels")
	for _, sql := range []string{"SELECT currval('parcels_id_seq')", "SELECT lastval()"} {
		if code, _ := refusalOf(t, client, sql); code != pgerr.FeatureNotSupported {
			t.Errorf("%s after rows in no order: %s", sql, code)
		}
	}
	id := insertParcel(t, client, w.key(t, 1, 0))
	if got := one[int64](t, client, "SELECT currval('parcels_id_seq')"); got != id {
		t.Errorf("%d, want %d", got, id)
	}
	w.settled(t)
}

// TestCurrvalIsNotOld: where a number may have been given that nobody told, the router does not answer with an older one.
func TestCurrvalIsNotOld(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, numbersConfig(2))
	client := w.client(t)
	id := insertParcel(t, client, w.key(t, 1, 0))
	refused := func(sql, want string) {
		t.Helper()
		if code, _ := refusalOf(t, client, sql); code != want {
			t.Errorf("%s: %s, want %s", sql, code, want)
		}
	}
	execute(t, client, "INSERT INTO logs (note) VALUES ('x')")
	refused("SELECT lastval()", pgerr.FeatureNotSupported)
	refused("SELECT currval('logs_id_seq')", pgerr.FeatureNotSupported)
	if got := one[int64](t, client, "SELECT currval('parcels_id_seq')"); got != id {
		t.Errorf("%d, want %d", got, id)
	}
	number := one[int64](t, client, "SELECT nextval('logs_id_seq')")
	if got := one[int64](t, client, "SELECT currval('logs_id_seq') + lastval() - $1::bigint", number); got != number {
		t.Errorf("after nextval: %d, want %d", got, number)
	}
	execute(t, client, "INSERT INTO logs (note) VALUES ('x')")
	refused("SELECT currval('logs_id_seq')", pgerr.FeatureNotSupported)
	refused("INSERT INTO parcels (id, user_id) VALUES (DEFAULT, 1), (DEFAULT, NULL)", pgerr.NotNullViolation)
	refused("SELECT currval('nothing')", pgerr.UndefinedTable)
	execute(t, client, "DISCARD SEQUENCES")
	refused("SELECT currval('parcels_id_seq')", pgerr.ObjectNotInPrerequisite)
	insertParcel(t, client, w.key(t, 1, 0))
	execute(t, client, "DISCARD ALL")
	if _, err := client.Exec(t.Context(), "SELECT lastval()", pgx.QueryExecModeSimpleProtocol); err == nil {
		t.Error("lastval after DISCARD ALL has an answer")
	}
	client = w.client(t)
	refused("SELECT lastval()", pgerr.ObjectNotInPrerequisite)
	insertParcel(t, client, w.key(t, 1, 0))
	refused(fmt.Sprintf("INSERT INTO parcels (user_id, note) VALUES (%d, 1/0)", w.key(t, 1, 0)), "22012")
	refused("SELECT currval('parcels_id_seq')", pgerr.FeatureNotSupported)
	w.settled(t)
}

// TestCurrvalInATransaction is what its own backend has taken, and nobody else's before it.
func TestCurrvalInATransaction(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	config := numbersConfig(2)
	config.pools.PerShard = 1 // so that all use the same
	w := newWorld(t, config)
	other, client := w.client(t), w.client(t)
	execute(t, other, "INSERT INTO logs (note) VALUES ('x')")
	execute(t, client, "BEGIN")
	for _, sql := range []string{"SELECT currval('logs_id_seq')", "SELECT lastval()"} {
		execute(t, client, "SAVEPOINT a")
		if code, _ := refusalOf(t, client, sql); code == "" {
			t.Errorf("%s answers for somebody else", sql)
		}
		execute(t, client, "ROLLBACK TO a")
	}
	id := one[int64](t, client, "INSERT INTO logs (note) VALUES ('x'), ('y') RETURNING id") + 1
	for _, sql := range []string{"SELECT currval('logs_id_seq')", "SELECT lastval()"} {
		if got := one[int64](t, client, sql); got != id {
			t.Errorf("%s: %d, want %d", sql, got, id)
		}
	}
	parcel := insertParcel(t, client, w.key(t, 2, 0))
	if got := one[int64](t, client, "SELECT lastval()"); got != parcel {
		t.Errorf("lastval is %d, want %d", got, parcel)
	}
	if got := one[int64](t, client, "SELECT currval('logs_id_seq')"); got != id {
		t.Errorf("currval is %d, want %d", got, id)
	}
	execute(t, client, "COMMIT")
	if code, _ := refusalOf(t, client, "SELECT currval('logs_id_seq')"); code != pgerr.FeatureNotSupported {
		t.Errorf("after the transaction: %s", code)
	}
	w.settled(t)
}

// TestNextval gives numbers, and no tickets.
func TestNextval(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, numbersConfig(2))
	client := w.client(t)
	seen := map[int64]bool{}
	for _, sql := range []string{
		"SELECT nextval('parcels_id_seq')", "SELECT pg_catalog.nextval('parcels_id_seq'::regclass) AS n", "SELECT n FROM nextval('parcels_id_seq') n", "SELECT nextval FROM nextval('parcels_id_seq')",
		"SELECT max(n) FROM (SELECT nextval('parcels_id_seq') AS n FROM generate_series(1, 3)) v",
	} {
		n := one[int64](t, client, sql)
		if n <= 0 || n >= numbersFloor {
			t.Errorf("%s: %d", sql, n)
		}
		seen[n] = true
		if got := one[int64](t, client, "SELECT lastval()"); got != n {
			t.Errorf("lastval after %s: %d, want %d", sql, got, n)
		}
	}
	if len(seen) != 5 {
		t.Errorf("numbers came twice: %v", seen)
	}
	if got := one[int64](t, client, "SELECT setval('parcels_id_seq', 7)"); got != 7 {
		t.Errorf("setval gave %d", got)
	}
	insertParcel(t, client, w.key(t, 1, 0))
	w.settled(t)
}

// TestToldNumbersAreNotShown: the messages with which shards tell of numbers are the router's.
func TestToldNumbersAreNotShown(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, numbersConfig(2))
	here, there := text(w.key(t, 1, 0)), text(w.key(t, 2, 0))
	c := dialRaw(t, w.address, nil)
	insert := "INSERT INTO parcels (user_id) VALUES "
	for name, said := range map[string][]string{
		"a row":          c.query(insert + "(" + here + ")"),
		"rows":           c.query(insert + "(" + here + "), (" + there + ")"),
		"a text":         c.query(insert + "(" + here + "); " + insert + "(" + there + "); INSERT INTO people DEFAULT VALUES"),
		"an answer":      c.query(insert + "(" + here + "); SELECT currval('parcels_id_seq') > 0"),
		"a pipeline":     c.ask(pipeline(unnamed("INSERT INTO parcels (user_id) VALUES ($1)", here), unnamed("INSERT INTO parcels (user_id) VALUES ($1)", there), unnamed("SELECT currval('parcels_id_seq') > 0"), sync1)...),
		"in parts":       c.query("INSERT INTO parcels (user_id) SELECT user_id FROM parcels"),
		"a number":       c.query("SELECT nextval('parcels_id_seq') > 0"),
		"a block":        append(append(c.query("BEGIN"), c.query(insert+"("+here+")")...), c.query("COMMIT")...),
		"a copy's table": c.query("CREATE TEMP TABLE x AS SELECT 1"),
	} {
		for _, line := range said {
			if strings.Contains(line, "CLN01") || strings.Contains(line, "notice") {
				t.Errorf("%s: the client hears %s", name, line)
			}
		}
	}
	var notices int
	config := must[*pgx.ConnConfig](t)(pgx.ParseConfig("postgres://postgres@" + w.address + "/postgres?sslmode=disable"))
	config.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) { notices++ }
	client := must[*pgx.Conn](t)(pgx.ConnectConfig(t.Context(), config))
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	data := strings.NewReader(strings.Repeat(here+"\n"+there+"\n", 100))
	if _, err := client.PgConn().CopyFrom(t.Context(), data, "COPY parcels (user_id) FROM STDIN"); err != nil {
		t.Fatal(err)
	}
	if notices > 0 {
		t.Errorf("%d messages after a COPY", notices)
	}
}

// TestCurrvalInOneText: what the statements before have been given counts, in a text and in a pipeline.
func TestCurrvalInOneText(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, numbersConfig(2))
	here, there := text(w.key(t, 1, 0)), text(w.key(t, 2, 0))
	c := dialRaw(t, w.address, nil)
	for _, key := range []string{here, there} {
		said := strings.Join(c.query("INSERT INTO parcels (user_id) VALUES ("+key+"); INSERT INTO letters VALUES ("+key+", currval('parcels_id_seq')); SELECT lastval() > 0"), "\n")
		if !strings.Contains(said, `row "t"`) {
			t.Errorf("a text: %s", said)
		}
		wantCodes(t, c.query("DELETE FROM letters WHERE user_id = "+key), "", "ready I")
		said = strings.Join(c.ask(pipeline(unnamed("INSERT INTO parcels (user_id) VALUES ($1)", key), unnamed("INSERT INTO letters VALUES ($1, currval('parcels_id_seq'))", key), sync1)...), "\n")
		if strings.Contains(said, "error") {
			t.Errorf("a pipeline: %s", said)
		}
	}
	for number := 1; number <= 2; number++ {
		if got := one[int](t, w.onShard(t, number), "SELECT count(*) FROM letters l JOIN parcels p ON p.user_id = l.user_id AND p.id = l.parcel_id"); got != 1 {
			t.Errorf("shard %d has %d letters of parcels", number, got)
		}
	}
	w.nothingPrepared(t)
	w.settled(t)
}

// TestCurrvalUnderSessionPooling knows of all numbers, since the client has its backend for itself.
func TestCurrvalUnderSessionPooling(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, numbersConfig(2))
	client := w.client(t)
	execute(t, client, "SET cleave.pool_mode = session")
	execute(t, client, "INSERT INTO logs (note) VALUES ('x')")
	number := one[int64](t, client, "SELECT currval('logs_id_seq')")
	if last := one[int64](t, client, "SELECT lastval()"); last != number {
		t.Errorf("lastval is %d, currval %d", last, number)
	}
	id := insertParcel(t, client, w.key(t, 2, 0))
	if last := one[int64](t, client, "SELECT lastval()"); last != id {
		t.Errorf("lastval is %d, want %d", last, id)
	}
	if got := one[int64](t, client, "SELECT currval('logs_id_seq')"); got != number {
		t.Errorf("currval is %d, want %d", got, number)
	}
}

// TestCurrvalOfReferenceTables is what the router has taken from the home shard's sequence.
func TestCurrvalOfReferenceTables(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 2, setUp: []string{"ALTER TABLE countries ADD COLUMN id serial"}})
	client := w.client(t)
	ids := w.ids(t, client, "INSERT INTO countries (code) VALUES ('de'), ('fr') RETURNING id")
	if got := one[int64](t, client, "SELECT currval('countries_id_seq')"); got != ids[1] {
		t.Errorf("%d, want %d", got, ids[1])
	}
	if got := one[int64](t, client, "SELECT lastval()"); got != ids[1] {
		t.Errorf("%d, want %d", got, ids[1])
	}
}

// TestSetval reaches every shard that gives a part of a sequence's numbers.
func TestSetval(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	config := numbersConfig(3)
	config.setUp = append(config.setUp, "CREATE TABLE tags (user_id bigint, n serial, PRIMARY KEY (user_id, n))")
	config.tables = append(config.tables, topology.TableSpec{Name: "public.tags", Kind: topology.Sharded, Keyspace: "main", Key: []string{"user_id"}})
	w := newWorld(t, config)
	client := w.client(t)
	for i, sql := range []string{"SELECT setval('tags_n_seq', 501)", "SELECT pg_catalog.setval('public.tags_n_seq', 502, true)"} {
		if got := one[int](t, client, sql); got != 501+i {
			t.Errorf("%s: %d", sql, got)
		}
		for number := 1; number <= 3; number++ {
			if got := one[int](t, w.onShard(t, number), "SELECT last_value FROM tags_n_seq"); got != 501+i {
				t.Errorf("shard %d stands at %d", number, got)
			}
		}
	}
	if got := one[int](t, client, "SELECT setval($1::regclass, $2)", pgx.QueryExecModeExec, "logs_id_seq", 77); got != 77 {
		t.Errorf("a table on one shard: %d", got)
	}
	if got := one[int](t, w.onShard(t, 1), "SELECT last_value FROM logs_id_seq"); got != 77 {
		t.Errorf("the home shard stands at %d", got)
	}
	if got := one[int](t, client, "SELECT setval(pg_get_serial_sequence('tags', 'n'), 503)"); got != 503 || one[int](t, w.onShard(t, 3), "SELECT last_value FROM tags_n_seq") != 503 {
		t.Errorf("the sequence of a column: %d", got)
	}
	if got := one[int](t, client, "SELECT setval('logs_id_seq', max(id) + 1) FROM (SELECT 100 AS id) v"); got != 101 {
		t.Errorf("computed: %d", got)
	}
	if code, _ := refusalOf(t, client, "SELECT setval('tags_n_seq', max(a) + 1) FROM undeclared"); code != pgerr.FeatureNotSupported {
		t.Errorf("a sequence of all shards, in a statement of one: %s", code)
	}
	w.nothingPrepared(t)
	w.settled(t)
}

// TestCurrvalInSessionMode: the home shard's backend does not know what another shard's was given, and nobody says that there was nothing.
func TestCurrvalInSessionMode(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	config := numbersConfig(2)
	config.setUp = append(config.setUp, "CREATE TABLE counted (user_id bigint, id integer GENERATED ALWAYS AS IDENTITY)", "CREATE SEQUENCE free")
	config.tables = append(config.tables, topology.TableSpec{Name: "public.counted", Kind: topology.Sharded, Keyspace: "main", Key: []string{"user_id"}})
	w := newWorld(t, config)
	client := w.client(t)
	execute(t, client, "SET cleave.pool_mode = session")
	execute(t, client, "SELECT nextval('free')")
	if got := one[int64](t, client, "SELECT currval('free') + lastval()"); got != 2 {
		t.Errorf("at home: %d", got)
	}
	execute(t, client, "INSERT INTO counted (user_id) VALUES ($1)", w.key(t, 2, 0))
	for _, sql := range []string{"SELECT lastval()", "SELECT currval('counted_id_seq')"} {
		if code, _ := refusalOf(t, client, sql); code != pgerr.FeatureNotSupported {
			t.Errorf("%s: %s", sql, code)
		}
	}
	execute(t, client, "SELECT nextval('free')")
	if got := one[int64](t, client, "SELECT currval('free') + lastval()"); got != 4 {
		t.Errorf("at home again: %d", got)
	}
}
