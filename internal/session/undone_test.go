package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/pool"
)

// alone has one backend to a shard, so that whatever one client leaves there the next one meets.
var alone = pool.Config{PerShard: 1}

// TestMessagesStayWhole: a message that waits while what came before it is run is not written over by those behind it.
func TestMessagesStayWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{})
	long := func(letter string) string { return strings.Repeat(letter, 990) }
	w.sameAsPlain(t,
		query("CREATE TABLE whole (a bigint, b text)"),
		sent(parse("ins", "INSERT INTO whole VALUES ($1, $2)"), parse("st", "SET work_mem = '1MB'"), sync1),
		flushed(1, bind("", "st"), &pgproto3.Flush{}),
		sent(run(""), bind("", "ins", "111111", long("a")), run(""), bind("", "ins", "222222", long("b")), run(""), sync1),
		query("SELECT a, left(b, 1) FROM whole ORDER BY a"),
		sent(pipeline(unnamed("SELECT 1"), &pgproto3.Query{String: "SELECT '" + long("c") + "'"}, &pgproto3.Query{String: "SELECT 2"}, &pgproto3.Query{String: "SELECT 3"})...),
	)
}

// TestFailedTransactionsStayFailed: nothing but their end ends them, and what they set goes with them.
func TestFailedTransactionsStayFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{setUp: []string{"CREATE TABLE parents (id int PRIMARY KEY)", "CREATE TABLE children (id int REFERENCES parents DEFERRABLE INITIALLY DEFERRED)"}})
	insert := "INSERT INTO undeclared VALUES (1)"
	w.sameAsPlain(t,
		sent(parse("n1", insert), sync1), query("BEGIN"), query("SET LOCAL nosuch_x = 1"), query(insert),
		sent(pipeline(unnamed("SELEKT"), sync1)...), query("COMMIT"), query("SELECT count(*) FROM undeclared"),
	)
	w.sameAsPlain(t, texts("BEGIN", "SET LOCAL nosuch_x = 1", "ROLLBACK; BEGIN; SELECT 1", "COMMIT", "BEGIN", "SET LOCAL nosuch_x = 1", "COMMIT; SELECT 1; SELECT 1/0", "SELECT 2")...)
	c := dialRaw(t, w.address, nil)
	c.ask(parse("n1", insert), sync1)
	c.query("BEGIN")
	c.query("SET LOCAL nosuch_x = 1")
	c.ask(describeStatement("n1"), sync1)
	if said := c.query(insert); !strings.Contains(strings.Join(said, "\n"), "25P02") {
		t.Errorf("a failed transaction came to life again: %v", said)
	}
	w.sameAsPlain(t, texts("SET work_mem = '3MB'", "BEGIN", "SET work_mem = '5MB'", "INSERT INTO children VALUES (7)", "COMMIT", "SHOW work_mem", "BEGIN", "SET work_mem = '6MB'",
		"SELECT 1/0", "COMMIT", "SHOW work_mem")...)
}

// TestSettingsOfAFailedCommitStayOut: neither the session nor its backend is believed to have them.
func TestSettingsOfAFailedCommitStayOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, pools: alone, setUp: []string{
		"CREATE TABLE parents (id int PRIMARY KEY)", "CREATE TABLE children (id int REFERENCES parents DEFERRABLE INITIALLY DEFERRED)", "CREATE SCHEMA aside",
	}})
	c := dialRaw(t, w.address, nil)
	for _, sql := range []string{"BEGIN", "SET search_path = aside", "INSERT INTO public.children VALUES (7)", "COMMIT"} {
		c.query(sql)
	}
	d := dialRaw(t, w.address, map[string]string{"search_path": "aside"})
	if said := strings.Join(d.query("SELECT current_setting('search_path')"), "\n"); !strings.Contains(said, "aside") {
		t.Errorf("the backend has another search path than the session: %s", said)
	}
	if said := strings.Join(c.query("SELECT current_setting('search_path')"), "\n"); strings.Contains(said, "aside") {
		t.Errorf("what a failed COMMIT set is kept: %s", said)
	}
}

// TestWhatAPipelinePassesOverLeavesNothing: what stands behind an error has not happened.
func TestWhatAPipelinePassesOverLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{})
	fail := unnamed("SELECT 1/0")
	use := sent(bind("", "n1"), run(""), sync1)
	named := sent(parse("n1", "SELECT 11"), sync1)
	for name, steps := range map[string][]step{
		"close":           {named, sent(pipeline(fail, closeStatement("n1"), sync1)...), use},
		"deallocate":      {named, sent(pipeline(fail, unnamed("DEALLOCATE n1"), sync1)...), use},
		"parse of commit": {sent(pipeline(fail, parse("n1", "COMMIT"), sync1)...), named, use},
		"unnamed":         {sent(parse("", "SELECT 5"), sync1), sent(pipeline(parse("x", "SELECT 1/0"), bind("p", "x"), run("p"), parse("", "SELECT 6"), sync1)...), sent(bind("", ""), run(""), sync1)},
		"parse and close": {sent(pipeline(fail, parse("n1", "SELECT 1"), closeStatement("n1"), sync1)...), use},
		"reset":           {query("SET search_path = aside"), sent(pipeline(unnamed("RESET search_path"), fail, sync1)...), query("SHOW search_path")},
		"reset all":       {query("SET work_mem = '3MB'"), sent(pipeline(unnamed("RESET ALL"), fail, sync1)...), query("SHOW work_mem")},
		"reset all, kept": {query("SET work_mem = '3MB'"), sent(pipeline(unnamed("RESET ALL"), unnamed("SELECT 1"), sync1)...), query("SHOW work_mem")},
		"close of a portal": {
			query("BEGIN"), sent(parse("a", "SELECT 1"), bind("p", "a"), sync1), query("SAVEPOINT s"), sent(pipeline(parse("x", "SELECT 1/0"), bind("q", "x"), run("q"), closePortal("p"), sync1)...),
			query("ROLLBACK TO s"), sent(run("p"), sync1), query("COMMIT"),
		},
		"portals":          {query("BEGIN"), sent(parse("a", "SELECT 1"), parse("b", "SELECT 5"), bind("p", "a"), sync1), query("SAVEPOINT s"), sent(bind("p", "b"), sync1), query("ROLLBACK TO s"), sent(run("p"), sync1), query("COMMIT")},
		"two local":        {sent(pipeline(parse("b", "BEGIN"), bind("p", "b"), bind("p", "b"), sync1)...)},
		"execute describe": {query("PREPARE seven AS SELECT 7"), query("SELECT pg_backend_pid() > 0"), sent(pipeline(parse("", "EXECUTE seven"), describeStatement(""), bind("", ""), run(""), sync1)...)},
	} {
		t.Run(name, func(t *testing.T) { w.sameAsPlain(t, steps...) })
	}
}

// TestKindsOfTransactionsAreKept where no shard has heard of them yet, and along a chain.
func TestKindsOfTransactionsAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{})
	for _, steps := range [][]string{
		{"BEGIN", "SET TRANSACTION READ ONLY", "COMMIT AND CHAIN", "SHOW transaction_read_only", "COMMIT"},
		{"BEGIN", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "ROLLBACK AND CHAIN", "SHOW transaction_isolation", "COMMIT"},
		{"BEGIN", "BEGIN READ ONLY", "SHOW transaction_read_only", "INSERT INTO undeclared VALUES (1)", "ROLLBACK"},
		{"SAVEPOINT a", "RELEASE a", "ROLLBACK TO a"},
	} {
		w.sameAsPlain(t, texts(steps...)...)
	}
}

// TestResetsInTextsAndBlocks: what pools of drivers send before they give a connection to the next one.
func TestResetsInTextsAndBlocks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{})
	w.sameAsPlain(t, texts(
		"SET work_mem = '3MB'", "SELECT pg_advisory_unlock_all();CLOSE ALL;UNLISTEN *;RESET ALL;", "SHOW work_mem",
		"SET work_mem = '3MB'", "SET SESSION AUTHORIZATION DEFAULT;RESET ALL;CLOSE ALL;UNLISTEN *;SELECT pg_advisory_unlock_all();DISCARD SEQUENCES;DISCARD TEMP", "SHOW work_mem",
		"SET work_mem = '3MB'", "SELECT 1; RESET work_mem; SELECT 2", "SHOW work_mem",
		"SET work_mem = '3MB'", "BEGIN", "RESET ALL", "SHOW work_mem", "ROLLBACK", "SHOW work_mem",
		"BEGIN", "SELECT 1 FROM undeclared", "RESET ALL", "SHOW work_mem", "COMMIT", "SHOW work_mem",
	)...)
	c := dialRaw(t, w.address, map[string]string{"TimeZone": "Asia/Tokyo"})
	c.query("SET TimeZone = 'UTC'")
	if said := strings.Join(c.query("RESET ALL; SELECT current_setting('TimeZone')"), "\n"); !strings.Contains(said, "Asia/Tokyo") {
		t.Errorf("RESET ALL goes back to something else than the session began with: %s", said)
	}
}

// TestDiscardAllTakesNothingFromOthers: statements on backends are everybody's.
func TestDiscardAllTakesNothingFromOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, pools: alone})
	c := dialRaw(t, w.address, nil)
	c.ask(pipeline(parse("n1", "SELECT 11"), parse("", "DISCARD ALL"), bind("", ""), run(""), sync1)...)
	d := dialRaw(t, w.address, nil)
	if said := strings.Join(d.ask(parse("n2", "SELECT 11"), bind("", "n2"), run(""), sync1), "\n"); !strings.Contains(said, "11") {
		t.Errorf("a statement that a backend has is gone: %s", said)
	}
}

// TestDeallocationByCodeIsNoticed: the client that did it, and nobody else, may find its statements gone.
func TestDeallocationByCodeIsNoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, pools: alone, unsharded: true})
	c, d := dialRaw(t, w.address, nil), dialRaw(t, w.address, nil)
	use := []pgproto3.FrontendMessage{bind("", "n1"), run(""), sync1}
	c.ask(parse("n1", "SELECT 11"), sync1)
	d.query("DO $$BEGIN EXECUTE 'DEALLOCATE ALL'; END$$")
	if said := strings.Join(c.ask(use...), "\n"); !strings.Contains(said, "11") {
		t.Errorf("another client's code took a statement away: %s", said)
	}
	c.query("DO $$BEGIN EXECUTE 'DEALLOCATE ALL'; END$$")
	c.ask(use...)
	if said := strings.Join(c.ask(use...), "\n"); !strings.Contains(said, "11") {
		t.Errorf("the statement does not come back: %s", said)
	}
}

// TestPortalsThatWereNotClosedAreKnown: what they run when they are executed after all is noted.
func TestPortalsThatWereNotClosedAreKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, pools: pool.Config{PerShard: 2}})
	c := dialRaw(t, w.address, nil)
	c.query("BEGIN; SELECT 1 FROM undeclared")
	c.ask(parse("a", "SELECT pg_advisory_lock(77)"), bind("p", "a"), sync1)
	c.query("SAVEPOINT s")
	c.ask(pipeline(parse("x", "SELECT 1/0"), bind("q", "x"), run("q"), closePortal("p"), sync1)...)
	c.query("ROLLBACK TO s")
	if said := strings.Join(c.ask(run("p"), sync1), "\n"); strings.Contains(said, "ERROR") {
		t.Fatalf("the portal is gone: %s", said)
	}
	c.query("COMMIT")
	for range 2 { // on whichever backend
		if said := strings.Join(dialRaw(t, w.address, nil).query("SELECT pg_try_advisory_xact_lock(77)"), "\n"); !strings.Contains(said, `"f"`) {
			t.Errorf("somebody else got the lock: %s", said)
		}
	}
}

// TestSequencesOfOthersAreNotSeen by a client that keeps its backend.
func TestSequencesOfOthersAreNotSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, pools: alone, setUp: []string{"CREATE SEQUENCE numbers"}})
	dialRaw(t, w.address, nil).query("SELECT nextval('numbers')")
	c := dialRaw(t, w.address, nil)
	c.query("SET cleave.pool_mode = session")
	if said := strings.Join(c.query("SELECT lastval()"), "\n"); !strings.Contains(said, "55000") {
		t.Errorf("the last value of another client is seen: %s", said)
	}
	c.query("DISCARD ALL")
	if said := strings.Join(c.query("SHOW cleave.pool_mode"), "\n"); !strings.Contains(said, "transaction") {
		t.Errorf("DISCARD ALL keeps the mode: %s", said)
	}
}

// TestDateStyleHasTwoParts: SET changes the one that it names, on whichever backend.
func TestDateStyleHasTwoParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{pools: alone})
	read := "SELECT current_setting('datestyle'), extract(month FROM '03/04/2020'::date)"
	key := fmt.Sprintf("SELECT count(*) FROM orders WHERE id = %d", w.key(t, 2, 0))
	w.sameAsPlain(t, texts(
		"SET datestyle TO 'SQL, DMY'", read, "SET datestyle TO ISO", read, key, read, "SET datestyle = german", read, "SET datestyle = mdy, postgres", read,
		"BEGIN", "SET LOCAL datestyle = euro", read, "COMMIT", read, "RESET datestyle", read, "SELECT set_config('datestyle', 'ymd', false)", read,
	)...)
	dialRaw(t, w.address, nil).query("SET datestyle TO 'SQL, DMY'; SELECT 1")
	c := dialRaw(t, w.address, map[string]string{"DateStyle": "ISO"})
	if said := strings.Join(c.query(read), "\n"); !strings.Contains(said, "ISO, MDY") {
		t.Errorf("another client's order of dates is used: %s", said)
	}
}

// TestLiteralsOfSeveralTexts: those of a prepared statement and of the text that executes it are different ones.
func TestLiteralsOfSeveralTexts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, setUp: []string{
		"CREATE TABLE pairs (a bigint, b text, c text, PRIMARY KEY (a, b, c))",
	}})
	k := w.key(t, 2, 0)
	c := dialRaw(t, w.address, nil)
	c.query(fmt.Sprintf("INSERT INTO orders VALUES (%d, 'x')", k))
	c.query(fmt.Sprintf("PREPARE l1 AS SELECT note FROM orders WHERE id = %d", k))
	c.query("PREPARE l2 (bigint) AS SELECT id FROM orders WHERE id = $1")
	said := strings.Join(c.query(fmt.Sprintf("execute l1; execute l2(%d)", k)), "\n")
	if !strings.Contains(said, "x") || !strings.Contains(said, text(k)) {
		t.Errorf("executing two in a text: %s", said)
	}
	if said := strings.Join(c.query("PREPARE twice AS SELECT 1; PREPARE twice AS SELECT 2"), "\n"); !strings.Contains(said, "42P05") {
		t.Errorf("two statements of one name: %s", said)
	}
	if said := strings.Join(c.query(fmt.Sprintf("explain (costs off) execute l2(%d)", k)), "\n"); strings.Contains(said, "ERROR") {
		t.Errorf("EXPLAIN EXECUTE: %s", said)
	}
	if said := strings.Join(c.query("execute l1; select cleave.shard_of('orders', 4)"), "\n"); strings.Contains(said, "the end") {
		t.Errorf("the session ended: %s", said)
	}
	if said := strings.Join(c.query(fmt.Sprintf("execute l2(%d::text::bigint)", k)), "\n"); !strings.Contains(said, "ERROR") && !strings.Contains(said, text(k)) {
		t.Errorf("an argument that is an expression: %s", said)
	}
}

// TestPreparingWithFlushTiesNothing: what is prepared and described without a Sync can be used on any shard.
func TestPreparingWithFlushTiesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{})
	for number := 1; number <= 2; number++ {
		k := text(w.key(t, number, 0))
		for _, begin := range [][]step{nil, {query("BEGIN")}} {
			w.sameAsPlain(t, append(begin,
				flushed(3, parse("s1", "SELECT note FROM orders WHERE id = $1"), describeStatement("s1"), &pgproto3.Flush{}),
				sent(bind("", "s1", k), run(""), sync1), query("COMMIT"),
				flushed(1, parse("s2", "SELECT nothing FROM orders WHERE id = $1"), &pgproto3.Flush{}), sent(bind("", "s1", k), sync1), sent(bind("", "s1", k), run(""), sync1),
			)...)
		}
	}
}

// TestQuestionsInsideTransactionsNeedNoSecondBackend: or all who have one would wait for another.
func TestQuestionsInsideTransactionsNeedNoSecondBackend(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{pools: alone, setUp: []string{"CREATE SCHEMA aside"}})
	w.sameAsPlain(t, texts("BEGIN", "SELECT 1 FROM undeclared", "SET LOCAL search_path = public, aside", "SELECT 2 FROM undeclared", "SELECT nothing FROM undeclared", "COMMIT")...)
}

// TestOtherEncodingsInLiterals: what is not UTF-8 is no obstacle where it is a value.
func TestOtherEncodingsInLiterals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{})
	w.sameAsPlain(t, texts("SET client_encoding = 'LATIN1'", "SELECT '\xe9', 77 AS zzq", "SELECT length('\xe9\xe8')")...)
}

// TestManyMessagesWithoutSync are answered on the way: they would fill the memory otherwise.
func TestManyMessagesWithoutSync(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	c := dialRaw(t, w.address, nil)
	c.send(repeated(20_000, []pgproto3.FrontendMessage{closeStatement("x")})...)
	if said := c.replies(10_000); len(said) != 10_000 || said[9_999] != said[0] {
		t.Errorf("after %d answers: %s", len(said), said[len(said)-1])
	}
}

// TestBooleansAreReadAsPostgreSQLDoes: by any beginning of their words.
func TestBooleansAreReadAsPostgreSQLDoes(t *testing.T) {
	for value, off := range map[string]bool{"on": false, "t": false, "YES": false, "1": false, "": false, "off": true, "of": true, "F": true, "n": true, "0": true, "false": true} {
		if isOff(value) != off {
			t.Errorf("%q: off is %v", value, !off)
		}
	}
}

// TestWhatOwnFunctionsSetEndsWithTheClient, whatever they were declared.
func TestWhatOwnFunctionsSetEndsWithTheClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, pools: alone, setUp: []string{
		"CREATE FUNCTION puts(text, text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN set_config($1, $2, false); END'",
	}})
	c := dialRaw(t, w.address, nil)
	c.query("SELECT puts('app.tenant', 'b')")
	c.query("SELECT puts('search_path', 'pg_temp')")
	said := strings.Join(dialRaw(t, w.address, nil).query("SELECT current_setting('app.tenant', true), current_setting('search_path')"), "\n")
	if strings.Contains(said, `"b"`) || strings.Contains(said, "pg_temp") {
		t.Errorf("the next client has it: %s", said)
	}
}
