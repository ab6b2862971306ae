package shard

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// byReplacing renames in queries in which the names stand for nothing else.
func byReplacing(sql string, renamed map[topology.TableName]topology.TableName) (string, error) {
	for from, to := range renamed {
		sql = regexp.MustCompile(`\b`+regexp.QuoteMeta(from.String())+`\b`).ReplaceAllString(sql, to.String()+" "+from.Name)
	}
	return sql, nil
}

// ownedViews makes the views of keyspace users on all shards, by the map as it is.
func (c *cluster) ownedViews(t testing.TB) {
	t.Helper()
	for i, conn := range c.conns {
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SET LOCAL search_path = pg_catalog"); err != nil {
				return err
			}
			return Prepare(c.m).MakeOwnedViews(t.Context(), tx, shardName(i), "users", byReplacing)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestViewsShowWhatAShardOwns: through a move, the views of both shards together show every row once, and statements that go through them touch it once.
func TestViewsShowWhatAShardOwns(t *testing.T) {
	c := newCluster(t, 2)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}))
	c.everywhere(t, `CREATE TABLE users (id bigint PRIMARY KEY, name text DEFAULT 'nobody', n integer NOT NULL DEFAULT 7, gone text, twice integer GENERATED ALWAYS AS (n * 2) STORED);
		ALTER TABLE users DROP COLUMN gone; CREATE VIEW named AS SELECT id, name, n FROM users WHERE name IS NOT NULL; CREATE VIEW counted AS SELECT count(*) AS rows FROM named`)
	c.declare(t, "users", map[string][]string{"public.users": {"id"}})
	const rows = 2000
	for _, conn := range c.conns {
		execute(t, conn, "SET session_replication_role = replica")
		execute(t, conn, "INSERT INTO public.users (id) SELECT generate_series(1, $1::integer)", rows)
		execute(t, conn, "RESET session_replication_role")
	}
	stays, goes := keyIn(true, 1), keyIn(false, 1)
	pinTo := func(spec topology.PinSpec) topology.Change {
		spec.Key = topology.Point{strconv.FormatInt(goes, 10)}
		return topology.SetPins("users", spec)
	}
	c.change(t, topology.SetPins("users", topology.PinSpec{Key: topology.Point{strconv.FormatInt(stays, 10)}, Shard: "s1"}))
	c.record(t)
	c.ownedViews(t)
	routers := c.routers(t)
	users := OwnedView(topology.TableName{Schema: "public", Name: "users"}).String()
	counted := OwnedView(topology.TableName{Schema: "public", Name: "counted"}).String()
	for i, phase := range []struct {
		name  string
		moves topology.RangeSpec
		pin   topology.PinSpec
	}{
		{"incoming", topology.RangeSpec{Shard: "s1", Copies: copyOn("s2", topology.Incoming)}, topology.PinSpec{Shard: "s1", Copies: copyOn("s2", topology.Incoming)}},
		{"opening", topology.RangeSpec{Shard: "s1", Held: true, Copies: copyOn("s2", topology.Opening)}, topology.PinSpec{Shard: "s1", Held: true, Copies: copyOn("s2", topology.Opening)}},
		{"leaving", topology.RangeSpec{Shard: "s2", Copies: copyOn("s1", topology.Leaving)}, topology.PinSpec{Shard: "s2", Copies: copyOn("s1", topology.Leaving)}},
	} {
		c.change(t, movingHalf(phase.moves), pinTo(phase.pin))
		c.record(t)
		total, byReaders, updated := 0, 0, int64(0)
		for _, conn := range routers {
			total += one[int](t, conn, "SELECT count(*) FROM "+users)
			byReaders += one[int](t, conn, "SELECT rows FROM "+counted)
			tag, err := conn.Exec(t.Context(), fmt.Sprintf("UPDATE %s AS users SET n = users.n + 1 WHERE users.id > 0", users))
			if err != nil {
				t.Fatalf("%s: %v", phase.name, err)
			}
			updated += tag.RowsAffected()
		}
		if total != rows || byReaders != rows || updated != rows {
			t.Errorf("%s: %d rows, %d through a view of a view, %d updated; there are %d", phase.name, total, byReaders, updated, rows)
		}
		moved := phase.name != "incoming"
		for key, onSecond := range map[int64]bool{stays: false, goes: moved, keyIn(true, stays+1): moved, keyIn(false, goes+1): false} {
			for at, conn := range routers {
				if there := one[bool](t, conn, fmt.Sprintf("SELECT count(*) > 0 FROM %s WHERE id = %d", users, key)); there != (onSecond == (at == 1)) {
					t.Errorf("%s: key %d on shard %d: %v", phase.name, key, at+1, there)
				}
			}
		}
		if i == 0 {
			setsDefaults(t, routers[0], users)
		}
	}
	if plan := planOf(t, routers[0], "SELECT * FROM "+users); !strings.Contains(plan, "width_bucket") {
		t.Errorf("the condition is not inlined:\n%s", plan)
	}
	for _, conn := range c.conns {
		if err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return DropOwnedViews(t.Context(), tx, "users") }); err != nil {
			t.Fatal(err)
		}
		if n := one[int](t, conn, "SELECT count(*) FROM pg_class WHERE relname LIKE 'owned\\_%'"); n != 0 {
			t.Errorf("%d views are left", n)
		}
		if n := one[int](t, conn, "SELECT count(*) FROM pg_proc WHERE proname LIKE 'owns\\_%'"); n != 0 {
			t.Errorf("%d functions are left", n)
		}
	}
}

// setsDefaults: SET … = DEFAULT through the view is the table's default.
func setsDefaults(t *testing.T, conn *pgx.Conn, users string) {
	t.Helper()
	id := keyIn(false, 500)
	execute(t, conn, fmt.Sprintf("UPDATE %s SET n = DEFAULT, name = DEFAULT WHERE id = %d", users, id))
	if got := one[string](t, conn, "SELECT name || n || ' ' || twice FROM users WHERE id = $1", id); got != "nobody7 14" {
		t.Errorf("set to their defaults they are %q", got)
	}
	execute(t, conn, "UPDATE users SET n = 8 WHERE id = $1", id)
}

func planOf(t *testing.T, conn *pgx.Conn, sql string) string {
	t.Helper()
	rows := must[pgx.Rows](t)(conn.Query(t.Context(), "EXPLAIN (VERBOSE) "+sql))
	return strings.Join(must[[]string](t)(pgx.CollectRows(rows, pgx.RowTo[string])), "\n")
}

// TestViewsOfOwnedRowsHaveTheRightsOfTheTable: what a role may not do to the table it may not do through the view.
func TestViewsOfOwnedRowsHaveTheRightsOfTheTable(t *testing.T) {
	c := newCluster(t, 1)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}))
	c.everywhere(t, `CREATE ROLE owner; CREATE ROLE reader LOGIN; CREATE ROLE other LOGIN;
		CREATE TABLE users (id bigint, name text, secret text); ALTER TABLE users OWNER TO owner; GRANT SELECT (id, name) ON users TO reader;
		CREATE TABLE notes (id bigint, whose text); GRANT SELECT ON notes TO reader, other; ALTER TABLE notes ENABLE ROW LEVEL SECURITY; CREATE POLICY own ON notes USING (whose = current_user);
		INSERT INTO users VALUES (1, 'a', 'x'); INSERT INTO notes VALUES (1, 'reader'), (2, 'other')`)
	c.declare(t, "users", map[string][]string{"public.users": {"id"}, "public.notes": {"id"}})
	c.ownedViews(t)
	as := func(role string) *pgx.Conn {
		spec := specOf("s1", c.servers[0])
		spec.User = role
		return connectAsRouter(t, spec)
	}
	reader, other := as("reader"), as("other")
	users, notes := OwnedView(topology.TableName{Schema: "public", Name: "users"}).String(), OwnedView(topology.TableName{Schema: "public", Name: "notes"}).String()
	if name := one[string](t, reader, "SELECT name FROM "+users+" WHERE id = 1"); name != "a" {
		t.Errorf("read %q", name)
	}
	for _, c := range []struct {
		conn *pgx.Conn
		sql  string
	}{
		{reader, "SELECT secret FROM " + users}, {reader, "UPDATE " + users + " SET name = 'b'"}, {other, "SELECT id FROM " + users}, {other, "DELETE FROM " + notes},
	} {
		_, err := c.conn.Exec(t.Context(), c.sql)
		refusedAs(t, pgerr.InsufficientPrivilege, err, "%s", c.sql)
	}
	for role, conn := range map[string]*pgx.Conn{"reader": reader, "other": other} {
		if whose := one[string](t, conn, "SELECT string_agg(whose, ' ') FROM "+notes); whose != role {
			t.Errorf("%s sees the notes of %s", role, whose)
		}
	}
}
