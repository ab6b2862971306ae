package cluster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/test/cluster"

	"github.com/cleavedb/cleave/internal/thorough"
)

// killing is a cluster of which one router after the other is killed.
type killing struct {
	*cluster.Routers
	shards   []*pgx.Conn // past the routers
	blocker  *pgx.Conn   // of the last shard, past the routers, to be in the way
	survivor *pgx.Conn   // a client of the router that stays
	keys     [3]int64    // one key that each of the shards owns
}

// TestARouterIsKilled in the middle of something. The others go on, what it held is free again, and what it had prepared is committed or rolled
// back, as the home shard has decided: internal/txn/DESIGN.md, line C4.
func TestARouterIsKilled(t *testing.T) {
	k := &killing{Routers: cluster.StartRouters(t, 3, 6)}
	for i := range k.Shards {
		k.shards = append(k.shards, k.Direct(t, i))
	}
	k.blocker = k.Direct(t, len(k.Shards)-1)
	k.survivor = k.Routers.Routers[0].Dial(t)
	mustExec(t, k.survivor, "CREATE TABLE ledger (id bigint PRIMARY KEY, amount bigint NOT NULL)")
	mustExec(t, k.survivor, "SELECT cleave.shard_table('ledger', 'id')")
	mustExec(t, k.survivor, "CREATE TABLE untouched (id bigint PRIMARY KEY)")
	mustExec(t, k.survivor, "SELECT cleave.shard_table('untouched', 'id')")
	for id := int64(1); k.keys[0] == 0 || k.keys[1] == 0 || k.keys[2] == 0; id++ {
		mustExec(t, k.survivor, "INSERT INTO ledger VALUES ($1, 0)", id)
		k.keys[shardOf(t, k.survivor, "ledger", id)-1] = id
	}
	k.stopAtCommit(t)
	for i, c := range []struct {
		name string
		run  func(t *testing.T, victim *cluster.Router)
	}{
		{"while it alters a table", k.alters},
		{"while it declares a table", k.declares},
		{"before the last COMMIT", func(t *testing.T, v *cluster.Router) { t.Helper(); k.commits(t, v, false) }},
		{"after the last COMMIT", func(t *testing.T, v *cluster.Router) { t.Helper(); k.commits(t, v, true) }},
		{"before the last COMMIT of an ALTER TABLE", k.commitsDefinition},
	} {
		if !t.Run(c.name, func(t *testing.T) { c.run(t, k.Routers.Routers[i+1]) }) {
			return
		}
	}
}

// shardOf is the number of the shard that owns a key.
func shardOf(t *testing.T, conn *pgx.Conn, table string, id int64) (number int) {
	t.Helper()
	var name string
	if err := conn.QueryRow(t.Context(), fmt.Sprintf("SELECT cleave.shard_of('%s', %d)", table, id)).Scan(&name); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(name, "s%d", &number); err != nil {
		t.Fatal(err)
	}
	return number
}

// homeLock is what a COMMIT on the home shard waits for.
const homeLock = 4711

// stopAtCommit makes the home shard wait, in the COMMIT of whoever has written a ledger row there, for a lock that the test has when it
// likes. Other shards prepare meanwhile.
func (k *killing) stopAtCommit(t *testing.T) {
	t.Helper()
	for _, sql := range []string{
		fmt.Sprintf(`CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql IMMUTABLE AS
			$$ BEGIN PERFORM pg_advisory_xact_lock_shared(%d); RETURN NULL; END $$`, homeLock),
		"CREATE CONSTRAINT TRIGGER stop AFTER UPDATE ON ledger DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION stop()",
	} {
		mustExec(t, k.survivor, sql)
	}
}

// waits returns when somebody waits for a lock on a shard.
func (k *killing) waits(t *testing.T, shard int, query string) {
	t.Helper()
	cluster.Eventually(t, "somebody waits for a lock in "+query, func() bool {
		return one[int](t, k.shards[shard], "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1", query+"%") > 0
	})
}

// one is a query's only value.
func one[T any](t *testing.T, conn *pgx.Conn, query string, arguments ...any) (value T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), query, arguments...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

// prepared are the names of prepared transactions on a shard.
func (k *killing) prepared(t *testing.T, shard int) string {
	t.Helper()
	return one[string](t, k.shards[shard], "SELECT coalesce(string_agg(gid, ' '), '') FROM pg_prepared_xacts")
}

// nothingPrepared wants no shard to have a prepared transaction.
func (k *killing) nothingPrepared(t *testing.T) {
	t.Helper()
	for i := range k.shards {
		if found := k.prepared(t, i); found != "" {
			t.Errorf("shard %d has prepared transactions: %s", i+1, found)
		}
	}
}

// inBackground runs a statement whose answer nobody will hear.
func inBackground(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	ended := make(chan struct{})
	t.Cleanup(func() { <-ended })
	go func() {
		defer close(ended)
		for _, sql := range statements {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				return
			}
		}
	}()
}

// alters kills a router that waits for a lock on the last shard, with the others altered and not committed.
func (k *killing) alters(t *testing.T, victim *cluster.Router) {
	t.Helper()
	mustExec(t, k.blocker, "BEGIN")
	mustExec(t, k.blocker, "LOCK TABLE ledger IN ACCESS SHARE MODE")
	inBackground(t, victim.Dial(t), "ALTER TABLE ledger ADD COLUMN extra int")
	k.waits(t, 2, "ALTER TABLE")
	victim.Kill()
	mustExec(t, k.survivor, "INSERT INTO untouched VALUES (1), (2), (3)")
	mustExec(t, k.blocker, "ROLLBACK")
	// It waits until the leader has let go of the table.
	expect(t, k.survivor, fmt.Sprintf("SELECT * FROM ledger WHERE id = %d", k.keys[2]), fmt.Sprintf("id,amount; %d 0", k.keys[2]))
	mustExec(t, k.survivor, "ALTER TABLE ledger ADD COLUMN extra int")
	mustExec(t, k.survivor, "ALTER TABLE ledger DROP COLUMN extra")
	k.nothingPrepared(t)
}

// declares kills a router that waits for the last shard to let it create the table.
func (k *killing) declares(t *testing.T, victim *cluster.Router) {
	t.Helper()
	mustExec(t, k.survivor, "CREATE TABLE things (id bigint PRIMARY KEY)")
	mustExec(t, k.survivor, "INSERT INTO things SELECT generate_series(1, 100)")
	mustExec(t, k.blocker, "BEGIN")
	mustExec(t, k.blocker, "CREATE TABLE things ()")
	inBackground(t, victim.Dial(t), "SELECT cleave.shard_table('things', 'id')")
	k.waits(t, 2, "CREATE TABLE")
	victim.Kill()
	mustExec(t, k.survivor, "INSERT INTO untouched VALUES (11), (12), (13)")
	mustExec(t, k.blocker, "ROLLBACK")
	expect(t, k.survivor, "SELECT count(*) FROM things", "count; 100")
	expect(t, k.shards[0], "SELECT count(*) FROM things", "count; 100")
	for _, conn := range k.shards[1:] {
		expect(t, conn, "SELECT to_regclass('things') IS NULL AS gone", "gone; true")
	}
	mustExec(t, k.survivor, "SELECT cleave.shard_table('things', 'id')")
	k.nothingPrepared(t)
}

// killAtCommit runs a transaction that writes on every shard, and kills its router when all but the home shard have prepared.
func (k *killing) killAtCommit(t *testing.T, victim *cluster.Router, more ...string) (gid string) {
	t.Helper()
	mustExec(t, k.shards[0], fmt.Sprintf("SELECT pg_advisory_lock(%d)", homeLock))
	statements := append([]string{"BEGIN"}, more...)
	for _, id := range k.keys {
		statements = append(statements, fmt.Sprintf("UPDATE ledger SET amount = amount + 1 WHERE id = %d", id))
	}
	inBackground(t, victim.Dial(t), append(statements, "COMMIT")...)
	k.waits(t, 0, "COMMIT")
	victim.Kill()
	gid = k.prepared(t, 1)
	if !strings.HasPrefix(gid, "cleave/") || k.prepared(t, 2) != gid || k.prepared(t, 0) != "" {
		t.Fatalf("prepared are %q, %q and %q", k.prepared(t, 0), gid, k.prepared(t, 2))
	}
	return gid
}

// homeEnds lets the home shard commit what it was told to, or ends its part.
func (k *killing) homeEnds(t *testing.T, commit bool) {
	t.Helper()
	const waiting = "FROM pg_stat_activity WHERE query = 'COMMIT' AND state = 'active'"
	if !commit {
		mustExec(t, k.shards[0], "SELECT pg_terminate_backend(pid) "+waiting)
		cluster.Eventually(t, "the home shard's part is gone", func() bool { return one[int](t, k.shards[0], "SELECT count(*) "+waiting) == 0 })
	}
	mustExec(t, k.shards[0], fmt.Sprintf("SELECT pg_advisory_unlock(%d)", homeLock))
	cluster.Eventually(t, "the home shard's part has ended", func() bool { return one[int](t, k.shards[0], "SELECT count(*) "+waiting) == 0 })
}

// amounts are those of the keys of all shards, as the survivor sees them.
func (k *killing) amounts(t *testing.T) (all [3]int64) {
	t.Helper()
	for i, id := range k.keys {
		all[i] = one[int64](t, k.survivor, "SELECT amount FROM ledger WHERE id = $1", id)
	}
	return all
}

// commits: until the home shard's part has ended, all else stays prepared, with its locks; then it follows.
func (k *killing) commits(t *testing.T, victim *cluster.Router, committed bool) {
	t.Helper()
	want := k.amounts(t)
	gid := k.killAtCommit(t, victim)
	mustExec(t, k.survivor, "SET lock_timeout = '100ms'")
	for i, id := range k.keys {
		if _, err := k.survivor.Exec(t.Context(), "UPDATE ledger SET amount = amount WHERE id = $1", id); sqlState(err) != "55P03" {
			t.Errorf("writing the row on shard %d: %v", i+1, err)
		}
	}
	mustExec(t, k.survivor, "RESET lock_timeout")
	mustExec(t, k.survivor, "INSERT INTO untouched SELECT 1 WHERE false")
	for i := 1; i < len(k.shards); i++ {
		if found := k.prepared(t, i); found != gid {
			t.Errorf("shard %d has prepared %q", i+1, found)
		}
	}
	k.homeEnds(t, committed)
	cluster.Eventually(t, "the others follow", func() bool { return k.prepared(t, 1) == "" && k.prepared(t, 2) == "" })
	if committed {
		for i := range want {
			want[i]++
		}
	}
	if now := k.amounts(t); now != want {
		t.Errorf("the amounts are %v, want %v", now, want)
	}
	expect(t, k.survivor, "SELECT id FROM cleave.transactions", "id")
}

// commitsDefinition: what is prepared has the table locked, so nobody sees it in two forms, whatever the routers think.
func (k *killing) commitsDefinition(t *testing.T, victim *cluster.Router) {
	t.Helper()
	k.killAtCommit(t, victim, "ALTER TABLE ledger ADD COLUMN extra int")
	mustExec(t, k.survivor, "SET lock_timeout = '100ms'")
	for i, id := range k.keys {
		if _, err := readTable(t.Context(), k.survivor, fmt.Sprintf("SELECT * FROM ledger WHERE id = %d", id), pgx.QueryExecModeExec); sqlState(err) != "55P03" {
			t.Errorf("the row on shard %d: %v", i+1, err)
		}
	}
	mustExec(t, k.survivor, "RESET lock_timeout")
	k.homeEnds(t, false)
	mustExec(t, k.survivor, "ALTER TABLE ledger ADD COLUMN extra int")
	for _, id := range k.keys {
		expect(t, k.survivor, fmt.Sprintf("SELECT extra FROM ledger WHERE id = %d", id), "extra; <nil>")
	}
	k.nothingPrepared(t)
}

// TestARouterWakesUpWithoutItsHold: it slept in the middle of a transaction that changes a table, and others were told that they may use
// it again. So it must not commit.
func TestARouterWakesUpWithoutItsHold(t *testing.T) {
	thorough.Only(t)
	c := cluster.StartRouters(t, 3, 2)
	sleeper, survivor := c.Routers[1], c.Routers[0].Dial(t)
	mustExec(t, survivor, "CREATE TABLE ledger (id bigint PRIMARY KEY, amount bigint NOT NULL)")
	mustExec(t, survivor, "SELECT cleave.shard_table('ledger', 'id')")
	mustExec(t, survivor, "INSERT INTO ledger VALUES (1, 10), (2, 20), (3, 30)")
	asleep := sleeper.Dial(t)
	mustExec(t, asleep, "BEGIN")
	mustExec(t, asleep, "ALTER TABLE ledger ADD COLUMN extra int")
	sleeper.Stop(t)
	// This one waits for the hold, and when that has ended for the lock of the transaction that sleeps.
	mustExec(t, survivor, "SET lock_timeout = '100ms'")
	for refused := (&pgconn.PgError{}); refused.Routine == ""; { // only a server says where in its source it is
		if _, err := survivor.Exec(t.Context(), "SELECT * FROM ledger WHERE id = 1"); !errors.As(err, &refused) || refused.Code != "55P03" {
			t.Fatalf("the table is used: %v", err)
		}
	}
	mustExec(t, survivor, "RESET lock_timeout")
	sleeper.Continue(t)
	if _, err := asleep.Exec(t.Context(), "COMMIT"); sqlState(err) != "55P03" {
		t.Errorf("COMMIT without the hold: %v", err)
	}
	for id := 1; id <= 3; id++ {
		expect(t, survivor, fmt.Sprintf("SELECT * FROM ledger WHERE id = %d", id), fmt.Sprintf("id,amount; %d %d", id, 10*id))
	}
	mustExec(t, asleep, "ALTER TABLE ledger ADD COLUMN extra int")
	expect(t, survivor, "SELECT * FROM ledger WHERE id = 1", "id,amount,extra; 1 10 <nil>")
}
