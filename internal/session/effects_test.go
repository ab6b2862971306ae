package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/pool"
	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestEffectsOfWhatRan: what a statement leaves behind is noted when it has run, however it was run, and nobody else sees it.
func TestEffectsOfWhatRan(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	const path = "SELECT set_config('search_path', 'pg_catalog', false)"
	const lock = "SELECT pg_advisory_lock(777)"
	for name, c := range map[string]struct {
		do   []step
		look string // what another client, and then the same one, sees
	}{
		"EXECUTE of set_config":       {texts("PREPARE p AS "+path, "EXECUTE p"), "SHOW search_path"},
		"EXECUTE of an advisory lock": {texts("PREPARE p AS "+lock, "EXECUTE p"), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"},
		"a suspended portal":          {[]step{sent(parse("", path), bind("", ""), runSome("", 1), sync1)}, "SHOW search_path"},
		"a suspended lock":            {[]step{sent(parse("", lock), bind("", ""), runSome("", 1), sync1)}, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"},
		"a lock of what failed": {
			texts("SELECT 1 / (n - 1) FROM (SELECT count(pg_advisory_lock(555)) AS n) AS x"),
			"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, worldConfig{noPlain: true, shards: 1, pools: pool.Config{PerShard: 4}})
			before := dialRaw(t, w.address, nil).query(c.look)
			doer := dialRaw(t, w.address, nil)
			for _, s := range c.do {
				doer.ask(s.messages...)
			}
			for range 3 { // every backend that there may be
				if after := dialRaw(t, w.address, nil).query(c.look); strings.Join(after, " ") != strings.Join(before, " ") {
					t.Errorf("another client sees %q, it was %q", after, before)
				}
			}
		})
	}
}

// TestPipelinesMeanWhatRanBefore: a statement in a pipeline is planned with what the statements before it have set.
func TestPipelinesMeanWhatRanBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{setUp: []string{"CREATE SCHEMA other", "CREATE TABLE other.orders (id bigint, note text)", "INSERT INTO other.orders VALUES (1, 'other')"}})
	pathThen := func(set, then string) step { return sent(pipeline(unnamed(set), unnamed(then), sync1)...) }
	w.sameAsPlain(t, pathThen("SET search_path = other", "SELECT note FROM orders"))
	w.sameAsPlain(t, pathThen("SET TimeZone = 'Asia/Tokyo'", "SELECT '2024-01-01 00:00+00'::timestamptz::text"))
	c := dialRaw(t, w.address, nil)
	c.query(fmt.Sprintf("INSERT INTO orders VALUES (%d, 'x'), (%d, 'x')", w.key(t, 1, 0), w.key(t, 2, 0)))
	c.query("SET search_path = other")
	said := strings.Join(c.ask(pathThen("SET search_path = public", "SELECT count(*) FROM orders").messages...), "\n")
	if !strings.Contains(said, `row "2"`) {
		t.Errorf("another table was counted, or one shard's rows:\n%s", said)
	}
	c.query("SET search_path = public")
	c.query("BEGIN")
	c.query("SELECT 1 FROM undeclared")
	c.query("SET LOCAL search_path = other")
	said = strings.Join(c.ask(pathThen("ROLLBACK", "SELECT count(*) FROM orders").messages...), "\n")
	if !strings.Contains(said, `row "2"`) {
		t.Errorf("another table was counted after ROLLBACK, or one shard's rows:\n%s", said)
	}
}

// TestWhoOneIs: roles are the same on every backend, whatever was said in which order.
func TestWhoOneIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{setUp: []string{"CREATE ROLE r_a", "CREATE ROLE r_b"}})
	who := "SELECT current_user, session_user"
	w.sameAsPlain(t, texts("SET ROLE r_a", "RESET ALL", who, "RESET ROLE", who)...)
	w.sameAsPlain(t, texts("SET ROLE r_a", "SET SESSION AUTHORIZATION r_b", who)...)
	w.sameAsPlain(t, texts("BEGIN; SELECT 1; COMMIT; SET ROLE r_a; SELECT 1/0", who)...)

	c := dialRaw(t, w.address, nil)
	c.query("SET ROLE r_a")
	c.query("SET SESSION AUTHORIZATION r_b")
	holder := dialRaw(t, w.address, nil) // takes the backend that knows it
	holder.query("SET ROLE r_a")
	holder.query("SET SESSION AUTHORIZATION r_b")
	holder.query("BEGIN")
	holder.query("SELECT 1 FROM pg_class LIMIT 1")
	if said := strings.Join(c.query(who), "\n"); !strings.Contains(said, `"r_b"`) || strings.Contains(said, `"r_a"`) {
		t.Errorf("on another backend one is %s", said)
	}
}

// TestTablesDeclaredMeanwhile: a transaction that began with an older map neither answers with it nor leaves its plans to others.
func TestTablesDeclaredMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, setUp: []string{"CREATE TABLE later (id bigint PRIMARY KEY)"}})
	old, other := dialRaw(t, w.address, nil), dialRaw(t, w.address, nil)
	old.query("BEGIN")
	old.query("SELECT count(*) FROM undeclared")
	next := must[*topology.Map](t)(w.m.Next(topology.SetTable(topology.TableSpec{
		Name: "public.later", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"},
	})))
	w.publish(next)
	for number := 1; number <= 2; number++ {
		execute(t, w.onShard(t, number), "INSERT INTO later VALUES ($1)", w.key(t, number, 0))
	}
	if said := strings.Join(old.query("SELECT FROM later WHERE id = 1"), "\n"); !strings.Contains(said, "40001") {
		t.Errorf("the transaction was answered with an older map:\n%s", said)
	}
	if said := strings.Join(other.query("SELECT count(*) FROM later"), "\n"); !strings.Contains(said, `row "2"`) {
		t.Errorf("somebody else got a plan of the older map:\n%s", said)
	}
	old.query("ROLLBACK")
	if said := strings.Join(old.query("SELECT count(*) FROM undeclared"), "\n"); strings.Contains(said, "error") {
		t.Errorf("after ROLLBACK: %s", said)
	}
}

// TestSharedStatementsHaveNobodysConstants: PostgreSQL reads a date in a text when it is prepared, under the settings of that moment.
func TestSharedStatementsHaveNobodysConstants(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, shards: 1})
	const text = "SELECT ('2024-01-01 00:00'::timestamptz at time zone 'UTC')::text"
	named := []pgproto3.FrontendMessage{parse("n", text), bind("", "n"), run(""), sync1}
	first := dialRaw(t, w.address, nil)
	first.query("SET TimeZone = 'UTC'")
	first.query("BEGIN")
	first.query("SELECT 1 FROM undeclared")
	first.query("SET LOCAL TimeZone = 'Asia/Tokyo'")
	first.ask(named...)
	first.query("ROLLBACK")
	second := dialRaw(t, w.address, nil)
	second.query("SET TimeZone = 'UTC'")
	if said := strings.Join(second.ask(named...), "\n"); !strings.Contains(said, "2024-01-01 00:00:00") {
		t.Errorf("somebody else's time zone counts: %s", said)
	}
}

// TestWhatTheRouterCannotReadUndoes: a statement that PostgreSQL reads and the router's grammar does not is refused, and what
// was done before it is undone, as after any error.
func TestWhatTheRouterCannotReadUndoes(t *testing.T) {
	t.Parallel()
	const unread = "SELECT 'a' --comment\n'b'" // one string for the server
	w := newWorld(t, worldConfig{noPlain: true})
	count := func() string {
		return strings.Join(dialRaw(t, w.address, nil).query("SELECT count(*) FROM undeclared"), "\n")
	}
	empty := count()
	c := dialRaw(t, w.address, nil)
	c.query("BEGIN")
	c.query("INSERT INTO undeclared VALUES (1)")
	if said := strings.Join(c.query(unread), "\n"); !strings.Contains(said, "0A000") {
		t.Fatalf("it was not refused:\n%s", said)
	}
	if said := strings.Join(c.query("COMMIT"), "\n"); !strings.Contains(said, "ROLLBACK") {
		t.Errorf("COMMIT after an error says\n%s", said)
	}
	said := strings.Join(c.ask(pipeline(unnamed("INSERT INTO undeclared VALUES (2)"), unnamed(unread), unnamed("INSERT INTO undeclared VALUES (3)"), sync1)...), "\n")
	if !strings.Contains(said, "0A000") {
		t.Errorf("in a pipeline it was not refused:\n%s", said)
	}
	if now := count(); now != empty {
		t.Errorf("what came before or after a refusal was kept: %s", now)
	}
}

// TestBackToTheBeginningInATransaction: RESET and SET … TO DEFAULT know what the session began with, and LOCAL ones end.
func TestBackToTheBeginningInATransaction(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{})
	show := "SELECT current_setting('TimeZone'), current_setting('search_path')"
	for _, begin := range [][]string{{"BEGIN"}, {"BEGIN", "SELECT 1 FROM undeclared"}} { // with no backend yet, and with one
		said := append([]string{"SET TimeZone = 'Asia/Tokyo'", "SET search_path = pg_catalog"}, begin...)
		w.sameAsPlain(t, texts(append(said, "SET LOCAL search_path TO DEFAULT", "SET LOCAL TimeZone TO DEFAULT", show, "COMMIT", show)...)...)
		w.sameAsPlain(t, texts(append(said, "RESET TimeZone", "RESET search_path", show, "ROLLBACK", show)...)...)
		w.sameAsPlain(t, texts(append(said, "RESET TimeZone", "RESET search_path", "COMMIT", show)...)...)
	}
}

// TestChangesOfTheClusterAreInNoBlock: an error behind them would not undo them.
func TestChangesOfTheClusterAreInNoBlock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	text := "BEGIN; SELECT cleave.shard_table('undeclared', 'a'); COMMIT"
	if said := strings.Join(dialRaw(t, w.address, nil).query(text), "\n"); !strings.Contains(said, "25001") {
		t.Errorf("%s:\n%s", text, said)
	}
}
