package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestSettings sets and takes back on a plain server and through the router; answers and reported parameters are the same.
func TestSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{})
	// A parameter that nobody has set is NULL on a new connection, and empty once somebody had set it.
	show := "SELECT current_setting('TimeZone'), current_setting('work_mem'), current_setting('search_path'), nullif(current_setting('my.own', true), '')"
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"SET and RESET", texts("SET TimeZone = 'Asia/Tokyo'", show, "RESET TimeZone", show, "SET work_mem = '1MB'", show, "RESET ALL", show)},
		{"to the same value", texts("SET TimeZone = 'Asia/Tokyo'", "SET TimeZone = 'Asia/Tokyo'", "SET TimeZone TO DEFAULT", "RESET TimeZone")},
		{"unknown and wrong ones", texts("SET nosuch = 1", "SET work_mem = 'x'", "RESET nosuch", "BEGIN", "SET nosuch = 1", "SELECT 1", "ROLLBACK", "SET my.own = 'a'", show, "RESET my.own", show)},
		{"rolled back", texts("BEGIN", "SET TimeZone = 'Asia/Tokyo'", show, "ROLLBACK", show)},
		{"rolled back before a shard was used", texts("BEGIN", "SET TimeZone = 'Asia/Tokyo'", "ROLLBACK", show)},
		{"committed", texts("BEGIN", "SET TimeZone = 'Asia/Tokyo'", show, "COMMIT", show)},
		{"committed before a shard was used", texts("BEGIN", "SET TimeZone = 'Asia/Tokyo'", "COMMIT", show)},
		{"local", texts("BEGIN", "SET LOCAL TimeZone = 'Asia/Tokyo'", show, "COMMIT", show)},
		{"local after a statement", texts("BEGIN", "SELECT 1", "SET LOCAL TimeZone = 'Asia/Tokyo'", show, "COMMIT", show)},
		{"local outside a transaction", texts("SET LOCAL work_mem = '1MB'", show)},
		{"savepoints", texts("BEGIN", "SET work_mem = '1MB'", "SAVEPOINT a", "SET TimeZone = 'Asia/Tokyo'", "SET work_mem = '2MB'", "ROLLBACK TO a", show, "COMMIT", show)},
		{"savepoints after a statement", texts("BEGIN", show, "SET work_mem = '1MB'", "SAVEPOINT a", "SET TimeZone = 'Asia/Tokyo'", "ROLLBACK TO a", show, "RELEASE a", "COMMIT", show)},
		{"kept over an error and a savepoint", texts("BEGIN; SET work_mem = '1MB'; SAVEPOINT a; SELECT 1/0", "SELECT 1", "ROLLBACK TO a", "COMMIT", show)},
		{"failed transactions", texts("BEGIN", show, "SET TimeZone = 'Asia/Tokyo'", "SELECT 1/0", "COMMIT", show)},
		{"several in one text", texts("SET work_mem = '1MB'; SET TimeZone = 'Asia/Tokyo'", show, "SET work_mem = '2MB'; SELECT 1/0", show)},
		{"several transactions in one text", texts("BEGIN; SET work_mem = '1MB'; COMMIT; BEGIN; SET work_mem = '2MB'; ROLLBACK", show, "BEGIN; SET work_mem = '3MB'; ROLLBACK; SELECT 1", show)},
		{"chained", texts("BEGIN", "SELECT 1", "SET work_mem = '1MB'", "COMMIT AND CHAIN", "SET work_mem = '2MB'", "ROLLBACK", show)},
		{"search_path", texts("SET search_path = pg_catalog, \"Odd Name\"", show, "SELECT * FROM undeclared", "SET search_path TO DEFAULT", "SELECT count(*) FROM undeclared")},
		{"standard_conforming_strings", texts("SET escape_string_warning = off", "SET standard_conforming_strings = off", "SELECT E'a\\'b', 'c'", "SET standard_conforming_strings = on", "SELECT 'a\\b'",
			"BEGIN", "SET standard_conforming_strings = off", "SELECT E'a\\'b', 'c'", "ROLLBACK", "SELECT 'a\\b'")},
		{"set_config", texts("SELECT set_config('work_mem', '1MB', false)", show, "SELECT set_config('TimeZone', 'Asia/Tokyo', true)", show, "BEGIN", "SELECT set_config('TimeZone', 'Asia/Tokyo', true)", show, "COMMIT", show)},
		{"characteristics", texts("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SHOW default_transaction_read_only", "INSERT INTO undeclared VALUES (1)", "RESET default_transaction_read_only",
			"BEGIN", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SHOW transaction_isolation", "COMMIT", "SHOW transaction_isolation")},
		{"DISCARD", texts("SET work_mem = '1MB'", "SET TimeZone = 'Asia/Tokyo'", "PREPARE a AS SELECT 1", "DISCARD ALL", show, "EXECUTE a", "BEGIN", "DISCARD ALL", "ROLLBACK", "DISCARD PLANS", "DISCARD TEMP", "DISCARD SEQUENCES")},
		{"DateStyle and the rest that is reported", texts("SET DateStyle = 'German'", "SET IntervalStyle = 'iso_8601'", "SET application_name = 'x y'", "SET client_encoding = 'UTF8'", "RESET ALL")},
		{"SHOW", texts("SHOW TimeZone", "SHOW nosuch", "SHOW server_version_num")},
		{"roles", texts("SET ROLE pg_monitor", "SELECT current_user, session_user", "RESET ROLE", "SELECT current_user", "SET SESSION AUTHORIZATION pg_monitor", "SELECT current_user, session_user",
			"RESET SESSION AUTHORIZATION", "SELECT current_user, session_user", "BEGIN", "SET LOCAL ROLE pg_monitor", "SELECT current_user", "COMMIT", "SELECT current_user", "SET ROLE nosuch")},
	} {
		t.Run(c.name, func(t *testing.T) { w.sameAsPlain(t, c.steps...) })
	}
}

// TestStartupSettings: what a client asks for when it connects is what RESET goes back to.
func TestStartupSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{})
	for name, parameters := range map[string]map[string]string{
		"parameters": {"TimeZone": "Asia/Tokyo", "application_name": "it's me", "DateStyle": "German", "search_path": "pg_catalog, public"},
		"options":    {"options": `-c work_mem=1MB --TimeZone=Asia/Tokyo -c application_name=a\ b`},
		"nothing":    {},
	} {
		t.Run(name, func(t *testing.T) {
			plain, router := dialRaw(t, w.plain.Addr(), parameters), dialRaw(t, w.address, parameters)
			if diff := cmp.Diff(plain.reported, router.reported); diff != "" {
				t.Errorf("PostgreSQL (-) and the router (+) report other parameters:\n%s", diff)
			}
			for _, sql := range []string{
				"SELECT current_setting('TimeZone'), current_setting('work_mem'), current_setting('application_name'), current_setting('search_path')",
				"SET TimeZone = 'Europe/Paris'", "SET work_mem = '3MB'", "RESET TimeZone", "SELECT current_setting('TimeZone')", "RESET ALL",
				"SELECT current_setting('TimeZone'), current_setting('work_mem'), current_setting('application_name'), current_setting('search_path')",
				"SET TimeZone = 'Europe/Paris'", "DISCARD ALL", "SELECT current_setting('TimeZone'), current_setting('work_mem')",
			} {
				if diff := cmp.Diff(inOrder(plain.query(sql)), inOrder(router.query(sql))); diff != "" {
					t.Errorf("%s: PostgreSQL (-) and the router (+):\n%s", sql, diff)
				}
			}
			_ = router.conn.Close()
		})
	}
	for name, parameters := range map[string]map[string]string{
		"an unknown parameter": {"nosuch": "1"}, "a wrong value": {"work_mem": "x"}, "a wrong option": {"options": "-z"}, "an option without a value": {"options": "-c a"},
		"a parameter of the router that it does not have": {"cleave.nosuch": "1"}, "a wrong pool mode": {"options": "-c cleave.pool_mode=x"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newRaw(t, w.address)
			all := map[string]string{"user": "postgres", "database": "postgres"}
			for n, v := range parameters {
				all[n] = v
			}
			c.send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: all})
			said := c.readyTimes(1)
			if last := said[len(said)-1]; last != "the end" || len(said) < 2 || !strings.HasPrefix(said[len(said)-2], "FATAL ") {
				t.Errorf("it was let in: %q", said)
			}
		})
	}
	w.settled(t)
}

// TestSettingsFollowTheClient: with one backend for each shard, what a client set is found on every shard, and by nobody else.
func TestSettingsFollowTheClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	for _, number := range []int{1, 2} {
		w.pools.SetLimit(number, 1)
	}
	const settings = "SELECT current_setting('TimeZone') || ' ' || current_setting('work_mem') || ' ' || current_setting('search_path') || ' ' || current_user || ' ' || coalesce(current_setting('my.own', true), '')"
	on := func(number int) string {
		return fmt.Sprintf("%s FROM orders WHERE id = %d", settings, w.key(t, number, 0))
	}
	simple := func(c *pgx.Conn, sql string) string {
		t.Helper()
		var value string
		if err := c.QueryRow(t.Context(), sql, pgx.QueryExecModeSimpleProtocol).Scan(&value); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return value
	}
	a, b := w.client(t), w.client(t)
	for _, number := range []int{1, 2} {
		execute(t, a, "INSERT INTO orders VALUES ($1, 'x')", w.key(t, number, 0))
	}
	const clean = `UTC 4MB "$user", public postgres `
	for _, sql := range []string{"SET TimeZone = 'Asia/Tokyo'", "SET work_mem = '1MB'", "SET search_path = pg_catalog, public", "SET my.own = 'mine'"} {
		execute(t, a, sql)
	}
	for round := range 3 {
		for _, number := range []int{1, 2} {
			if got := simple(a, on(number)); got != "Asia/Tokyo 1MB pg_catalog, public postgres mine" {
				t.Errorf("round %d, shard %d: a has %q", round, number, got)
			}
			if got := simple(b, on(number)); got != clean {
				t.Errorf("round %d, shard %d: b has %q", round, number, got)
			}
		}
	}
	for name, leave := range map[string]string{
		"a role":              "SET ROLE pg_monitor",
		"session":             "SET SESSION AUTHORIZATION pg_monitor",
		"set_config":          "SELECT set_config('work_mem', '9MB', false)",
		"a failed text":       "SET work_mem = '1MB'; SELECT 1/0",
		"a text with an end":  "BEGIN; SET work_mem = '1MB'; COMMIT",
		"a savepoint, failed": "BEGIN; SET work_mem = '1MB'; SAVEPOINT a; SELECT 1/0",
	} {
		t.Run(name, func(t *testing.T) {
			c := dialRaw(t, w.address, nil)
			c.query(leave)
			if strings.HasPrefix(leave, "BEGIN; SET work_mem = '1MB'; SAVEPOINT") {
				c.query("SELECT 1") // fails too
				c.query("ROLLBACK TO a")
				c.query("COMMIT")
			}
			_ = c.conn.Close()
			w.settled(t)
			if got := simple(b, on(1)); got != clean {
				t.Errorf("the next client finds %q", got)
			}
		})
	}
	w.settled(t)
}

// TestWhatNobodySeesIsUndone: functions may leave anything in a backend's session; the next client does not find it.
func TestWhatNobodySeesIsUndone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, unsharded: true, setUp: []string{
		"CREATE FUNCTION sneak() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('work_mem', '7MB', false); PERFORM pg_advisory_lock(7); CREATE TEMP TABLE left_behind (a int); LISTEN news; END $$",
	}})
	w.pools.SetLimit(1, 1)
	const find = "SELECT current_setting('work_mem'), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'), to_regclass('left_behind'), (SELECT count(*) FROM pg_listening_channels()), current_user"
	clean := dialRaw(t, w.address, nil).query(find)
	for _, leave := range []string{
		"SELECT sneak()", "DO $$ BEGIN PERFORM sneak(); END $$", "DO $$ BEGIN SET ROLE pg_monitor; END $$", "SELECT sneak() WHERE false; SELECT sneak()",
	} {
		t.Run(leave, func(t *testing.T) {
			c := dialRaw(t, w.address, nil)
			wantCodes(t, c.query(leave), "", "ready I")
			_ = c.conn.Close()
			w.settled(t)
			next := dialRaw(t, w.address, nil)
			if diff := cmp.Diff(clean, next.query(find)); diff != "" {
				t.Errorf("the next client finds:\n%s", diff)
			}
			_ = next.conn.Close()
		})
	}
}

// TestNothingLeaks: what ties a client to a backend ends with the client.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	b := w.client(t)
	admin := w.onShard(t, 1)
	for name, c := range map[string]struct {
		do    []string
		still string // what the same client still finds after its transaction
		check string // 0 if nothing is left
	}{
		"an advisory lock": {[]string{"SELECT pg_advisory_lock(5)"}, "SELECT pg_advisory_unlock(5)", "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"},
		"a temporary table": {
			[]string{"CREATE TEMP TABLE mine (a int)", "INSERT INTO mine VALUES (1)"}, "SELECT a FROM mine",
			"SELECT count(*) FROM pg_class WHERE relname = 'mine'",
		},
		"a cursor WITH HOLD": {[]string{"BEGIN", "DECLARE c CURSOR WITH HOLD FOR SELECT 1", "COMMIT"}, "FETCH ALL FROM c", "SELECT 0"},
		"LISTEN":             {[]string{"LISTEN news"}, "SELECT pg_listening_channels()", "SELECT 0"},
	} {
		t.Run(name, func(t *testing.T) {
			a := dialRaw(t, w.address, nil)
			for _, sql := range c.do {
				if said := a.query(sql); strings.Contains(strings.Join(said, " "), "ERROR") {
					t.Fatalf("%s: %q", sql, said)
				}
			}
			// Others come and go on whatever backends there are.
			for range 3 {
				if n := one[int](t, b, "SELECT count(*)::int FROM pg_cursors WHERE name = 'c'"); n != 0 {
					t.Error("another client has its cursor")
				}
				if n := one[int](t, b, "SELECT count(*)::int FROM pg_listening_channels()"); n != 0 {
					t.Error("another client listens")
				}
			}
			if said := a.query(c.still); !strings.Contains(strings.Join(said, " "), "row ") {
				t.Errorf("%s: %q", c.still, said)
			}
			infos := w.server.Sessions()
			pins := 0
			for _, info := range infos {
				pins += len(info.Pins)
			}
			if pins != 1 {
				t.Errorf("%d backends are pinned: %+v", pins, infos)
			}
			_ = a.conn.Close()
			w.settled(t)
			eventually(t, "nothing is left", func() bool { return one[int](t, admin, c.check) == 0 })
		})
	}
}

// TestNotifications: a client that listens hears of what happens while it is idle, in transactions, and between.
func TestNotifications(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{})
	w.sameAsPlain(t,
		query("LISTEN news"), query("NOTIFY news, 'of my own'"), query("SELECT 1").byAnother(), query("NOTIFY news, 'from another'").byAnother(),
		flushed(1), query("BEGIN"), query("NOTIFY news, 'inside'"), query("COMMIT"), query("UNLISTEN news"), query("NOTIFY news, 'unheard'"),
	)
}

// TestPoolMode: a client that asks for it keeps its backends.
func TestPoolMode(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, setUp: []string{"CREATE SEQUENCE numbers"}})
	c := dialRaw(t, w.address, nil)
	wantCodes(t, c.query("SELECT currval('numbers')"), "0A000", "ready I")
	wantCodes(t, c.query("SET cleave.pool_mode = nosuch"), "22023", "ready I")
	wantCodes(t, c.query("SET cleave.nosuch = 1"), "42704", "ready I")
	for _, client := range []*rawClient{c, dialRaw(t, w.address, map[string]string{"options": "-c cleave.pool_mode=session"})} {
		if client == c {
			wantCodes(t, c.query("SET cleave.pool_mode = session"), "", "ready I")
		}
		if said := client.query("SHOW cleave.pool_mode"); !strings.Contains(strings.Join(said, " "), `row "session"`) {
			t.Errorf("%q", said)
		}
		client.query("SELECT nextval('numbers')")
		wantCodes(t, client.query("SELECT currval('numbers')"), "", "ready I")
		first := client.query("SELECT pg_backend_pid()")
		dialRaw(t, w.address, nil).query("SELECT 1")
		if diff := cmp.Diff(first, client.query("SELECT pg_backend_pid()")); diff != "" {
			t.Errorf("another backend: %s", diff)
		}
		_ = client.conn.Close()
	}
	w.settled(t)
}
