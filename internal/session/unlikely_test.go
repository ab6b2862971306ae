package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

// shardedBy is a config with one more table, in a keyspace of its own.
func shardedBy(shards int, keyType, name, definition, key string) worldConfig {
	return worldConfig{
		shards: shards, setUp: []string{"CREATE TABLE " + name + " (" + definition + ")"}, keyspaces: map[string]string{"other": keyType},
		tables: []topology.TableSpec{{Name: "public." + name, Kind: topology.Sharded, Keyspace: "other", Key: []string{key}}},
	}
}

// TestBoundsThatNoKeyHas: a bound that is no value of the key's type lies below or above all of them, and bounds nothing.
func TestBoundsThatNoKeyHas(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	for _, c := range []struct{ keyType, beyond string }{{"integer", "3000000000"}, {"smallint", "40000"}} {
		t.Run(c.keyType, func(t *testing.T) {
			w := newWorld(t, shardedBy(2, "100:"+c.keyType, "ranged", "id "+c.keyType+" PRIMARY KEY, note text", "id"))
			steps := texts("INSERT INTO ranged VALUES (1, 'a'), (2, 'b'), (200, 'c'), (300, 'd')")
			for _, where := range []string{"id < %s", "id <= %s", "id > -%s", "id >= -%s", "id BETWEEN 1 AND %s", "id BETWEEN -%s AND 250", "id > %s", "id < -%s", "id > 150 AND id < %s"} {
				steps = append(steps, query("SELECT * FROM ranged WHERE "+fmt.Sprintf(where, c.beyond)))
			}
			steps = append(steps, sent(parse("", "SELECT * FROM ranged WHERE id < $1", 20), bind("", "", c.beyond), run(""), sync1),
				query("UPDATE ranged SET note = 'x' WHERE id < "+c.beyond), query("SELECT * FROM ranged"), query("DELETE FROM ranged WHERE id > -"+c.beyond), query("SELECT * FROM ranged"))
			w.sameButOrder(t, steps...)
		})
	}
}

// TestNullsThatAreWords: with array_nulls off, NULL in an array's text is a word.
func TestNullsThatAreWords(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	t.Run("keys", func(t *testing.T) {
		w := newWorld(t, shardedBy(3, "text", "words", "w text PRIMARY KEY", "w"))
		steps := texts("INSERT INTO words VALUES ('NULL'), ('null'), ('a'), ('b'), ('c'), ('d')")
		for _, setting := range []string{"on", "off"} {
			steps = append(steps, query("SET array_nulls = "+setting))
			for _, array := range []string{"{NULL}", "{null}", "{a,NULL}", "{b,NULL}", "{c,null}", `{d,"NULL"}`} {
				steps = append(steps, query("SELECT * FROM words WHERE w = ANY('"+array+"')"),
					sent(parse("", "SELECT * FROM words WHERE w = ANY($1)"), bind("", "", array), run(""), sync1))
			}
		}
		w.sameButOrder(t, append(steps, query("DELETE FROM words WHERE w = ANY('{NULL}')"), query("SELECT * FROM words"))...)
	})
	t.Run("rows", func(t *testing.T) {
		w := newWorld(t, worldConfig{shards: 3, setUp: []string{"ALTER TABLE orders ADD amount int, ADD short varchar(5)"}})
		for _, columns := range [][]int{{0}, {5}, {0, 1, 5}} {
			var keys []string
			for n := range 2 * arraysFrom {
				keys = append(keys, text(w.key(t, n%3+1, n/3+len(columns)*100+columns[0]*1000)))
			}
			sql, parameters := arrayedRows(keys, columns, "")
			w.sameButOrder(t, query("SET array_nulls = off"), sent(parse("", sql), bound(parameters), run(""), sync1), query("SELECT id, note, note IS NULL, amount, short FROM orders"))
		}
	})
}

// TestCommitsOverShardsAreFlushed: a client that does not wait for its commits on disk waits for one over several shards, or a crash of the
// shard that decides would undo its part alone.
func TestCommitsOverShardsAreFlushed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 2, noPlain: true})
	keys := []int64{w.key(t, 1, 0), w.key(t, 2, 0)}
	client := w.client(t)
	execute(t, client, fmt.Sprintf("INSERT INTO orders VALUES (%d, 'a'), (%d, 'b')", keys[0], keys[1]))
	execute(t, w.onShard(t, 1), "ALTER SYSTEM SET wal_writer_delay = '10s'")
	execute(t, w.onShard(t, 1), "SELECT pg_reload_conf()")
	execute(t, client, "SET synchronous_commit = off")
	execute(t, client, fmt.Sprintf("UPDATE orders SET note = 'new' WHERE id IN (%d, %d)", keys[0], keys[1]), pgx.QueryExecModeSimpleProtocol)
	if got := one[string](t, client, "SHOW synchronous_commit"); got != "off" {
		t.Errorf("the client's setting became %s", got)
	}
	if err := w.shards[0].Crash(); err != nil {
		t.Fatal(err)
	}
	if err := w.shards[0].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		if got := one[string](t, connectTo(t, w.shards[i].Addr()), "SELECT note FROM orders WHERE id = $1", key); got != "new" {
			t.Errorf("shard %d has %q", i+1, got)
		}
	}
}

// TestCopiesThatWouldDiffer: a write to a reference table that might do something else on another shard does the same to all copies, or is refused.
func TestCopiesThatWouldDiffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 2, noPlain: true, setUp: []string{
		"CREATE TABLE rates (code text PRIMARY KEY, rate text)",
		"CREATE TABLE touched (code text PRIMARY KEY, at timestamptz)",
		"CREATE EXTENSION moddatetime", // its function is written in C, and so reads no tables
		"CREATE TRIGGER touch BEFORE UPDATE ON touched FOR EACH ROW EXECUTE FUNCTION moddatetime(at)",
		"CREATE TABLE lowered (code text PRIMARY KEY)",
		"CREATE FUNCTION lowers() RETURNS trigger LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN NEW.code := lower(NEW.code); RETURN NEW; END $$",
		"CREATE TRIGGER lowers BEFORE INSERT OR UPDATE ON lowered FOR EACH ROW EXECUTE FUNCTION lowers()",
		"CREATE TABLE counted (code text PRIMARY KEY, n int, writes int DEFAULT 0)",
		"CREATE FUNCTION counts() RETURNS trigger LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN NEW.writes := NEW.writes + 1; RETURN NEW; END $$",
		"CREATE TRIGGER counts BEFORE INSERT OR UPDATE ON counted FOR EACH ROW EXECUTE FUNCTION counts()",
	}, tables: []topology.TableSpec{
		{Name: "public.rates", Kind: topology.Reference}, {Name: "public.touched", Kind: topology.Reference}, {Name: "public.lowered", Kind: topology.Reference},
		{Name: "public.counted", Kind: topology.Reference},
	}})
	client := w.client(t)
	execute(t, client, "INSERT INTO rates VALUES ('a', '1'), ('b', '2')")
	execute(t, client, "INSERT INTO lowered VALUES ('A'), ('B')")
	for i := range w.shards {
		execute(t, w.onShard(t, i+1), "INSERT INTO touched VALUES ('a', NULL)")
	}
	execute(t, client, "INSERT INTO counted VALUES ('a', 1)")
	w.sameCopies(t, "lowered", "(a) (b)")
	for _, c := range []struct{ sql, want string }{
		{"INSERT INTO countries SELECT code, rate FROM rates", "(a,1) (b,2)"},
		{"UPDATE countries SET name = (SELECT max(rate) FROM rates)", "(a,2) (b,2)"},
		{"UPDATE countries SET name = (SELECT max(name) || 'x' FROM countries)", "(a,2x) (b,2x)"},
		{"UPDATE countries SET name = clock_timestamp() WHERE code = 'a'", ""},
		{"DELETE FROM countries WHERE EXISTS (SELECT FROM rates r WHERE r.code = countries.code AND rate < '2')", "(b,2x)"},
	} {
		execute(t, client, c.sql)
		w.sameCopies(t, "countries", c.want)
	}
	for sql, why := range map[string]string{
		"UPDATE touched SET code = 'b'": "In the way: trigger function", "UPDATE touched SET at = NULL": "In the way: trigger function",
		"UPDATE counted SET n = (SELECT max(n) + 1 FROM counted)":       "In the way: ", // each copy would count what another has counted
		"UPDATE countries SET code = (SELECT max(code) FROM countries)": "it changes the primary key",
	} {
		if code, detail := refusalOf(t, client, sql); code != pgerr.FeatureNotSupported || !strings.Contains(detail, why) {
			t.Errorf("%s: %s %s", sql, code, detail)
		}
	}
	w.sameCopies(t, "touched", "(a,)")
	w.sameCopies(t, "counted", "(a,1,1)")
}

// TestRowsWithTriggersDoNotMove: what moves a row to another shard is no UPDATE there.
func TestRowsWithTriggersDoNotMove(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 2, noPlain: true, setUp: []string{
		"CREATE TABLE counted (id bigint PRIMARY KEY, writes int DEFAULT 0)",
		"CREATE FUNCTION counts() RETURNS trigger LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN NEW.writes := NEW.writes + 1; RETURN NEW; END $$",
		"CREATE TRIGGER counts BEFORE UPDATE ON counted FOR EACH ROW EXECUTE FUNCTION counts()",
	}, tables: []topology.TableSpec{{Name: "public.counted", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"}}}})
	client := w.client(t)
	here, there := w.key(t, 1, 0), w.key(t, 2, 0)
	execute(t, client, "INSERT INTO counted VALUES ($1)", here)
	execute(t, client, "INSERT INTO orders VALUES ($1, 'moves')", here)
	if code, detail := refusalOf(t, client, "UPDATE counted SET id = $1 WHERE id = $2", there, here); code != pgerr.FeatureNotSupported {
		t.Errorf("%s %s", code, detail)
	}
	execute(t, client, "UPDATE orders SET id = $1 WHERE id = $2", there, here)
	if got := one[string](t, w.onShard(t, 2), "SELECT note FROM orders WHERE id = $1", there); got != "moves" {
		t.Errorf("the row without triggers has %q", got)
	}
}

// sameCopies wants all shards to have the same rows of a table, and these ones, if they are known.
func (w *world) sameCopies(t *testing.T, table, want string) {
	t.Helper()
	for i := range w.shards {
		got := one[string](t, w.onShard(t, i+1), "SELECT coalesce(string_agg(r::text, ' ' ORDER BY r::text), '') FROM "+table+" AS r")
		if want == "" {
			want = got
		}
		if got != want {
			t.Errorf("shard %d has the rows %s of %s, want %s", i+1, got, table, want)
		}
	}
}

// TestParametersBetweenRouterAndShards cannot be set by clients in any way.
func TestParametersBetweenRouterAndShards(t *testing.T) {
	t.Parallel()
	w := newWorld(t, numbersConfig(2))
	client := w.client(t)
	before := insertParcel(t, client, w.key(t, 1, 0))
	for _, sql := range []string{
		"SELECT set_config('cleave.tell_numbers', 'off', false)", "SELECT set_config('CLEAVE.router', '', false)", "SET cleave.tell_numbers = off",
		"ALTER ROLE postgres SET cleave.tell_numbers = 'off'", "ALTER DATABASE postgres SET cleave.tell_numbers = 'off'",
		"CREATE FUNCTION f() RETURNS int LANGUAGE sql IMMUTABLE SET cleave.router = 'by hand' AS 'SELECT 1'",
	} {
		if _, err := client.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err == nil {
			t.Errorf("%s: done", sql)
		}
	}
	if now := insertParcel(t, client, w.key(t, 1, 0)); now <= before || one[int64](t, client, "SELECT currval('parcels_id_seq')") != now {
		t.Errorf("id %d is not what currval says", now)
	}
}
