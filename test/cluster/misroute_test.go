package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/test/cluster"

	"github.com/cleavedb/cleave/internal/thorough"
)

// SQLSTATEs with which something is refused: by a guard because the row is not the shard's, by a guard because no router has opened the
// session, by the planner.
const (
	notOwned   = "CL001"
	noRouter   = "CL002"
	notPlanned = "0A000"
)

// misrouting is a cluster in which somebody tries to store rows where they do not belong.
type misrouting struct {
	*cluster.Routers
	client *pgx.Conn
	// mine and theirs are keys of the table orders: of the first shard, and of another one.
	mine, theirs []int64
}

func newMisrouting(t *testing.T) *misrouting {
	t.Helper()
	m := &misrouting{Routers: cluster.StartRouters(t, 3, 1)}
	m.client = m.Routers.Routers[0].Dial(t)
	mustExec(t, m.client, "CREATE ROLE somebody LOGIN")
	mustExec(t, m.client, "GRANT CREATE ON SCHEMA public TO somebody")
	for _, sql := range []string{
		"CREATE TABLE orders (id bigint PRIMARY KEY, note text)",
		"CREATE TABLE names (name varchar(3) PRIMARY KEY, note text)",
		"CREATE TABLE moments (at timestamptz(0) PRIMARY KEY, note text)",
	} {
		mustExec(t, m.client, sql)
	}
	mustExec(t, m.client, "ALTER TABLE orders OWNER TO somebody")
	for table, key := range map[string]string{"orders": "id", "names": "name", "moments": "at"} {
		mustExec(t, m.client, fmt.Sprintf("SELECT cleave.shard_table('%s', '%s')", table, key))
	}
	for id := int64(1); len(m.mine) < 10 || len(m.theirs) < 10; id++ {
		if shardOf(t, m.client, "orders", id) == 1 {
			m.mine = append(m.mine, id)
		} else {
			m.theirs = append(m.theirs, id)
		}
	}
	return m
}

// everyRowIsAtHome looks at all rows of all shards: each must be on the shard that the router names for its key.
func (m *misrouting) everyRowIsAtHome(t *testing.T) {
	t.Helper()
	for table, key := range map[string]string{"orders": "id", "names": "name", "moments": "at"} {
		for i := range m.Shards {
			rows, err := m.Direct(t, i).Query(t.Context(), fmt.Sprintf("SELECT quote_literal(%s::text) FROM %s", key, table))
			if err != nil {
				t.Fatal(err)
			}
			keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range keys {
				owner := one[string](t, m.client, fmt.Sprintf("SELECT cleave.shard_of('%s', %s)", table, k))
				if owner != fmt.Sprintf("s%d", i+1) {
					t.Errorf("the row %s of %s is on shard s%d and belongs on %s", k, table, i+1, owner)
				}
			}
		}
	}
}

// refused wants a statement to fail with one of these codes.
func refused(t *testing.T, conn *pgx.Conn, codes []string, sql string, arguments ...any) {
	t.Helper()
	tag, err := conn.Exec(t.Context(), sql, arguments...)
	if code := sqlState(err); !slices.Contains(codes, code) {
		t.Errorf("%s: %s, %v; want %v", sql, tag, err, codes)
	}
}

// TestRowsOfOthersAreRefused, whoever brings them and however.
func TestRowsOfOthersAreRefused(t *testing.T) {
	m := newMisrouting(t)
	for name, try := range map[string]func(t *testing.T){
		"past the routers":                 m.pastTheRouters,
		"past the routers as the owner":    m.asOwner,
		"by hand":                          m.byHand,
		"statements that change the key":   m.changedKeys,
		"triggers":                         m.triggers,
		"guards that are switched off":     m.withoutGuards,
		"values that are stored as others": m.rounded,
		"COPY":                             m.copied,
	} {
		t.Run(name, func(t *testing.T) {
			try(t)
			m.everyRowIsAtHome(t)
		})
	}
}

// pastTheRouters nobody writes at all, not even what belongs there, nor what would touch no row.
func (m *misrouting) pastTheRouters(t *testing.T) {
	direct := m.Direct(t, 0)
	for _, sql := range []string{
		"INSERT INTO orders VALUES (%d, 'x')", "UPDATE orders SET note = 'x' WHERE id = %d", "DELETE FROM orders WHERE id = %d",
		"INSERT INTO orders SELECT %d, 'x'", "WITH w AS (INSERT INTO orders VALUES (%d, 'x') RETURNING id) SELECT FROM w",
		"MERGE INTO orders o USING (VALUES (%d)) v (id) ON o.id = v.id WHEN NOT MATCHED THEN INSERT VALUES (v.id, 'x')",
	} {
		refused(t, direct, []string{noRouter}, fmt.Sprintf(sql, m.theirs[0]))
		refused(t, direct, []string{noRouter}, fmt.Sprintf(sql, m.mine[0]))
	}
	refused(t, direct, []string{noRouter}, "TRUNCATE orders")
	_, err := direct.PgConn().CopyFrom(t.Context(), strings.NewReader(fmt.Sprintf("%d\tx\n", m.mine[0])), "COPY orders FROM STDIN")
	if sqlState(err) != noRouter {
		t.Errorf("COPY: %v", err)
	}
}

func (m *misrouting) asOwner(t *testing.T) {
	direct := m.directAs(t, "somebody", nil)
	refused(t, direct, []string{noRouter}, "INSERT INTO orders VALUES ($1, 'x')", m.theirs[0])
	mustExec(t, direct, "SET cleave.router = 'mine'")
	refused(t, direct, []string{notOwned}, "INSERT INTO orders VALUES ($1, 'x')", m.theirs[0])
	mustExec(t, direct, "INSERT INTO orders VALUES ($1, 'x')", m.mine[1])
	refused(t, direct, []string{notOwned}, "UPDATE orders SET id = $1 WHERE id = $2", m.theirs[0], m.mine[1])
}

// directAs connects to the first shard past the routers.
func (m *misrouting) directAs(t *testing.T, user string, parameters map[string]string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig("postgres://" + user + "@" + m.Shards[0].Addr() + "/postgres?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range parameters {
		config.RuntimeParams[name] = value
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// byHand is somebody who has said hello, or something like it: the row's guard holds all the same.
func (m *misrouting) byHand(t *testing.T) {
	greeted := m.directAs(t, "postgres", map[string]string{shard.RouterParameter: shard.ByHand})
	said := m.Direct(t, 0)
	mustExec(t, said, "SET cleave.router = 'anything'")
	for i, direct := range []*pgx.Conn{greeted, said} {
		refused(t, direct, []string{notOwned}, "INSERT INTO orders VALUES ($1, 'x')", m.theirs[0])
		refused(t, direct, []string{notOwned}, "INSERT INTO orders VALUES ($1, 'x'), ($2, 'y')", m.mine[2+i], m.theirs[0])
		mustExec(t, direct, "INSERT INTO orders VALUES ($1, 'x')", m.mine[2+i])
		refused(t, direct, []string{notOwned}, "UPDATE orders SET id = $1 WHERE id = $2", m.theirs[0], m.mine[2+i])
		refused(t, direct, []string{notOwned}, "INSERT INTO orders VALUES ($1, 'x') ON CONFLICT (id) DO UPDATE SET id = $2", m.mine[2+i], m.theirs[0])
		refused(t, direct, []string{"23502"}, "INSERT INTO orders VALUES (NULL, 'x')")
		_, err := direct.PgConn().CopyFrom(t.Context(), strings.NewReader(fmt.Sprintf("%d\tx\n", m.theirs[0])), "COPY orders FROM STDIN")
		if sqlState(err) != notOwned {
			t.Errorf("COPY: %v", err)
		}
	}
}

// changedKeys: a statement through a router that gives a row a key of another shard is refused, or the row is stored where it belongs.
func (m *misrouting) changedKeys(t *testing.T) {
	mine, theirs := m.mine[4], m.theirs[4]
	keys := strings.NewReplacer("MINE", strconv.FormatInt(mine, 10), "THEIRS", strconv.FormatInt(theirs, 10))
	mustExec(t, m.client, "INSERT INTO orders VALUES ($1, 'x')", mine)
	for _, sql := range []string{
		"UPDATE orders SET (id, note) = (THEIRS, 'y') WHERE id = MINE",
		"UPDATE orders SET (id, note) = (SELECT THEIRS, 'y') WHERE id = MINE",
		"INSERT INTO orders VALUES (MINE, 'y') ON CONFLICT (id) DO UPDATE SET id = THEIRS",
		"INSERT INTO orders VALUES (MINE, 'y') ON CONFLICT (id) DO UPDATE SET id = orders.id + 1",
		"WITH a AS (INSERT INTO orders VALUES (THEIRS, 'y') RETURNING id) UPDATE orders SET note = 'y' WHERE id = MINE",
		"MERGE INTO orders o USING (VALUES (MINE)) v (id) ON o.id = MINE WHEN MATCHED THEN UPDATE SET id = THEIRS",
		"MERGE INTO orders o USING (VALUES (MINE)) v (id) ON o.id = MINE WHEN NOT MATCHED THEN INSERT VALUES (THEIRS, 'y')",
		"DO $$ BEGIN INSERT INTO orders VALUES (THEIRS, 'y'); END $$",
	} {
		refused(t, m.client, []string{notPlanned, notOwned}, keys.Replace(sql))
	}
	expect(t, m.client, fmt.Sprintf("SELECT * FROM orders WHERE id = %d", mine), fmt.Sprintf("id,note; %d x", mine))
	for _, sql := range []string{
		"INSERT INTO orders SELECT id + 1000 + g, 'computed' FROM orders, generate_series(1, 5) g WHERE id = MINE",
		"INSERT INTO orders SELECT g, 'computed' FROM generate_series(2001, 2010) g",
		"INSERT INTO orders VALUES (abs(-3001), 'computed'), (abs(-3002), 'computed'), (abs(-3003), 'computed')",
		"INSERT INTO orders VALUES ((SELECT max(id) + 4000 FROM orders WHERE id = MINE), 'computed'), ((SELECT max(id) + 4001 FROM orders WHERE id = MINE), 'computed')",
	} {
		mustExec(t, m.client, keys.Replace(sql))
	}
	expect(t, m.client, "SELECT count(*), sum(id / 1000)::int FROM orders WHERE note = 'computed'", "count,sum; 20 42")
	for _, sql := range []string{
		"UPDATE orders SET id = 5001 WHERE id = 2001",
		"UPDATE orders SET id = id + 1000 WHERE id BETWEEN 3001 AND 3003",
		"UPDATE orders SET id = -id WHERE note = 'computed'",
	} {
		mustExec(t, m.client, sql)
	}
	expect(t, m.client, "SELECT count(*), sum(id / 1000)::int FROM orders WHERE note = 'computed'", "count,sum; 20 -48")
}

// triggers that change the key come before the guard.
func (m *misrouting) triggers(t *testing.T) {
	mine, theirs := m.mine[5], m.theirs[5]
	mustExec(t, m.client, fmt.Sprintf(`CREATE FUNCTION astray() RETURNS trigger LANGUAGE plpgsql IMMUTABLE AS
		$$ BEGIN IF NEW.note = 'astray' THEN NEW.id := CASE WHEN NEW.id = %d THEN %d ELSE NEW.id END; END IF; RETURN NEW; END $$`, mine, theirs))
	mustExec(t, m.client, "CREATE TRIGGER astray BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION astray()")
	defer mustExec(t, m.client, "DROP TRIGGER astray ON orders")
	refused(t, m.client, []string{notOwned}, "INSERT INTO orders VALUES ($1, 'astray')", mine)
	refused(t, m.client, []string{notOwned}, "INSERT INTO orders VALUES ($1, 'x'), ($2, 'astray')", theirs, mine)
	mustExec(t, m.client, "INSERT INTO orders VALUES ($1, 'x')", mine)
	refused(t, m.client, []string{notOwned}, "UPDATE orders SET note = 'astray' WHERE id = $1", mine)
	_, err := m.client.PgConn().CopyFrom(t.Context(), strings.NewReader(fmt.Sprintf("%d\tastray\n", mine)), "COPY orders FROM STDIN")
	if sqlState(err) != notOwned {
		t.Errorf("COPY: %v", err)
	}
}

// withoutGuards: through a router nobody takes them away.
func (m *misrouting) withoutGuards(t *testing.T) {
	for _, sql := range []string{
		"SET session_replication_role = replica", "SELECT set_config('session_replication_role', 'replica', true)",
		"ALTER TABLE orders DISABLE TRIGGER cleave_guard", "ALTER TABLE orders DISABLE TRIGGER ALL", "ALTER TABLE orders DISABLE TRIGGER USER",
		"ALTER TABLE orders ENABLE REPLICA TRIGGER cleave_guard_update", "DROP TRIGGER cleave_guard ON orders", "ALTER TRIGGER cleave_guard ON orders RENAME TO other",
		"CREATE OR REPLACE TRIGGER cleave_guard AFTER DELETE ON orders FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
		"CREATE RULE aside AS ON INSERT TO orders DO INSTEAD NOTHING", "CREATE TABLE child () INHERITS (orders)",
	} {
		refused(t, m.client, []string{notPlanned}, sql)
	}
	for _, sql := range []string{"DROP FUNCTION cleave.hello", "CREATE FUNCTION cleave.other() RETURNS int LANGUAGE sql AS 'SELECT 1'", "UPDATE cleave.ranges SET lo = NULL"} {
		refused(t, m.client, []string{notPlanned, "42501", "42809"}, sql)
	}
	refused(t, m.directAs(t, "postgres", map[string]string{shard.RouterParameter: shard.ByHand}), []string{notOwned}, "INSERT INTO orders VALUES ($1, 'x')", m.theirs[0])
}

// rounded: what counts is what is stored.
func (m *misrouting) rounded(t *testing.T) {
	const names, moments = "INSERT INTO names VALUES ($1, $2)", "INSERT INTO moments VALUES ($1, $2)"
	modes := []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheStatement}
	for i, mode := range modes {
		for letter := 'a'; letter <= 'h'; letter++ {
			name := fmt.Sprintf("%c%d%c", letter, i, letter)
			mustExec(t, m.client, names, mode, name+"   ", "blanks")
			expect(t, m.client, "SELECT note FROM names WHERE name = '"+name+"'", "note; blanks")
		}
		for second := range 8 {
			at := time.Date(2024, 1, 1+i, 0, 0, second, 600_000_000, time.UTC)
			mustExec(t, m.client, moments, mode, at, "rounded")
			expect(t, m.client, fmt.Sprintf("SELECT note FROM moments WHERE at = '%s'", at.Add(400*time.Millisecond).Format(time.RFC3339)), "note; rounded")
		}
	}
	mustExec(t, m.client, "SET timezone = 'Asia/Tokyo'")
	mustExec(t, m.client, "INSERT INTO moments VALUES ('2025-01-01 09:00:00.4', 'zone'), ('2025-01-01 10:00:00.6', 'zone'), ('2025-01-02', 'zone')")
	mustExec(t, m.client, "RESET timezone")
	for _, at := range []string{"2025-01-01 00:00:00Z", "2025-01-01 01:00:01Z", "2025-01-01 15:00:00Z"} {
		expect(t, m.client, "SELECT note FROM moments WHERE at = '"+at+"'", "note; zone")
	}
	mustExec(t, m.client, "INSERT INTO names VALUES ('x1x  ', 'rows'), ('x2x ', 'rows'), ('x3x', 'rows'), ('x4x     ', 'rows')")
	if _, err := m.client.Exec(t.Context(), names, "toolong", "x"); sqlState(err) != "22001" {
		t.Errorf("a name that is too long: %v", err)
	}
}

// copied rows go where they belong.
func (m *misrouting) copied(t *testing.T) {
	var lines strings.Builder
	for _, id := range []int64{m.mine[8], m.theirs[8], m.mine[9], m.theirs[9]} {
		fmt.Fprintf(&lines, "%d\tcopied\n", id)
	}
	copyIn := func(data, sql string) error {
		_, err := m.client.PgConn().CopyFrom(t.Context(), strings.NewReader(data), sql)
		return err
	}
	err := errors.Join(copyIn(lines.String(), "COPY orders FROM STDIN"),
		copyIn("k1k   ,copied\nk2k,copied\n\"k3k \",copied\n", "COPY names FROM STDIN WITH (FORMAT csv)"),
		copyIn("2026-01-01 00:00:00.7+00\tcopied\n2026-01-01 00:00:05.2+03\tcopied\n", "COPY moments FROM STDIN"))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, m.client, "SELECT note FROM names WHERE name = 'k3k'", "note; copied")
	expect(t, m.client, "SELECT note FROM moments WHERE at = '2026-01-01 00:00:01Z'", "note; copied")
}

// TestARouterThatWasAsleep: while it was, its record in etcd ran out, and a table was declared without it. What it writes with the map of
// before, until it has heard of the new one, is refused or right.
func TestARouterThatWasAsleep(t *testing.T) {
	thorough.Only(t)
	c := cluster.StartRouters(t, 3, 2)
	sleeper, client := c.Routers[1], c.Routers[0].Dial(t)
	mustExec(t, client, "CREATE TABLE later (id bigint PRIMARY KEY, note text)")
	const clients = 12
	asleep := make([]*pgx.Conn, clients)
	for i := range asleep {
		asleep[i] = sleeper.Dial(t)
	}
	told := map[int64]bool{}
	for round, declare := range []string{"SELECT cleave.shard_table('later', 'id')", "SELECT cleave.undistribute_table('later')", "SELECT cleave.shard_table('later', 'id')"} {
		sleeper.Stop(t)
		mustExec(t, client, declare)
		for _, id := range writtenAsleep(t, sleeper, asleep, int64(100*(round+1))) {
			told[id] = true
		}
		cluster.Eventually(t, "the router has heard of it", func() bool {
			_, err := asleep[0].Exec(t.Context(), "UPDATE later SET note = 'heard'")
			return err == nil && one[int](t, asleep[0], "SELECT count(*) FROM cleave.tables WHERE table_name = 'later'") == (round+1)%2
		})
		onEveryShard(t, c, client, round%2 == 0, told)
	}
}

// writtenAsleep lets clients of a stopped router insert a row each, lets the router go on, and returns the rows that were acknowledged.
func writtenAsleep(t *testing.T, sleeper *cluster.Router, asleep []*pgx.Conn, first int64) []int64 {
	t.Helper()
	type answer struct {
		id  int64
		err error
	}
	answers := make(chan answer, len(asleep))
	for i, conn := range asleep {
		go func() {
			id := first + int64(i)
			_, err := conn.Exec(t.Context(), "INSERT INTO later VALUES ($1, 'asleep')", pgx.QueryExecModeSimpleProtocol, id)
			answers <- answer{id, err}
		}()
	}
	time.Sleep(100 * time.Millisecond) // what they send waits for the router
	sleeper.Continue(t)
	var told []int64
	for range asleep {
		a := <-answers
		switch code := sqlState(a.err); {
		case a.err == nil:
			told = append(told, a.id)
		case code != notOwned && code != "42P01":
			t.Errorf("row %d: %v", a.id, a.err)
		}
	}
	return told
}

// onEveryShard wants the shards to have the rows that clients were told of, each where it belongs.
func onEveryShard(t *testing.T, c *cluster.Routers, client *pgx.Conn, sharded bool, told map[int64]bool) {
	t.Helper()
	found := 0
	for i := range c.Shards {
		if i > 0 && !sharded {
			break // the table is gone
		}
		rows, err := c.Direct(t, i).Query(t.Context(), "SELECT id FROM later")
		if err != nil {
			t.Fatal(err)
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			found++
			if !told[id] || sharded && shardOf(t, client, "later", id) != i+1 {
				t.Errorf("row %d is on shard %d; acknowledged: %v", id, i+1, told[id])
			}
		}
	}
	if found != len(told) {
		t.Errorf("%d rows, and clients were told of %d", found, len(told))
	}
}
