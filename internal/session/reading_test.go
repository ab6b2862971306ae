package session

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

// timesConfig is a world with a table that is placed by a time, and one by a date.
func timesConfig() worldConfig {
	return worldConfig{
		shards: 3, setUp: []string{"CREATE TABLE moments (k timestamptz PRIMARY KEY, n int)", "CREATE TABLE days (k date PRIMARY KEY, n int)"},
		keyspaces: map[string]string{"moments": "timestamptz", "days": "date"},
		tables: []topology.TableSpec{
			{Name: "public.moments", Kind: topology.Sharded, Keyspace: "moments", Key: []string{"k"}}, {Name: "public.days", Kind: topology.Sharded, Keyspace: "days", Key: []string{"k"}},
		},
	}
}

// TestLiteralsKeepTheirMeaning: a prepared statement whose literals would be read in another way now is refused, and no other is.
func TestLiteralsKeepTheirMeaning(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, timesConfig())
	const find = "SELECT n FROM moments WHERE k = '2026-01-01 00:00'"
	setUp := texts("SET timezone = 'UTC'", "DELETE FROM moments", "INSERT INTO moments VALUES ('2026-01-01 00:00+00', 1), ('2026-01-01 00:00+09', 2)")
	for name, steps := range map[string][]step{
		"the same settings":        texts("PREPARE p AS "+find, "EXECUTE p", "SET application_name = 'x'", "EXECUTE p"),
		"and back":                 texts("PREPARE p AS "+find, "SET timezone = 'Asia/Tokyo'", "SET timezone = 'UTC'", "EXECUTE p"),
		"undone":                   texts("PREPARE p AS "+find, "BEGIN", "SET timezone = 'Asia/Tokyo'", "ROLLBACK", "EXECUTE p"),
		"prepared again":           texts("PREPARE p AS "+find, "SET timezone = 'Asia/Tokyo'", "DEALLOCATE p", "PREPARE p AS "+find, "EXECUTE p"),
		"no time in it":            texts("PREPARE p AS SELECT n, 'active', '12', '1 day'::interval FROM moments WHERE k = $1", "SET timezone = 'Asia/Tokyo'", "EXECUTE p ('2026-01-01 00:00')"),
		"by the protocol":          {sent(parse("p", "SELECT n FROM moments WHERE k = $1 AND 'x' <> 'y'"), sync1), query("SET timezone = 'Asia/Tokyo'"), sent(bind("", "p", "2026-01-01 00:00"), run(""), sync1)},
		"parsed again":             {sent(pipeline(unnamed(find), sync1)...), query("SET timezone = 'Asia/Tokyo'"), sent(pipeline(unnamed(find), sync1)...)},
		"another date style":       texts("PREPARE p AS SELECT 'a b'", "SET datestyle = 'SQL, DMY'", "EXECUTE p"),
		"a backslash that is none": texts("PREPARE p AS SELECT 'a'", "SET standard_conforming_strings = off", "EXECUTE p"),
	} {
		t.Run(name, func(t *testing.T) { w.sameAsPlain(t, append(append([]step{}, setUp...), steps...)...) })
	}
	c := dialRaw(t, w.address, nil)
	for i, sql := range []string{find, "SELECT '2026-01-01 00:00'::timestamptz", "SELECT E'1/2/2026'::date", "SELECT 'Jan 8, 1999'::timestamptz", "SELECT '20260101'::timestamptz", "SELECT '1999.008'::timestamptz"} {
		p := fmt.Sprintf("p%d", i)
		wantCodes(t, c.query("SET timezone = 'UTC'"), "", "ready I")
		wantCodes(t, c.query("PREPARE "+p+" AS "+sql), "", "ready I")
		wantCodes(t, c.ask(parse(p+"_too", sql), sync1), "", "ready I")
		wantCodes(t, c.query("SET timezone = 'Asia/Tokyo'"), "", "ready I")
		wantCodes(t, c.query("EXECUTE "+p), pgerr.FeatureNotSupported, "ready I")
		wantCodes(t, c.ask(bind("", p, ""), run(""), sync1), pgerr.FeatureNotSupported, "ready I")
		wantCodes(t, c.ask(&pgproto3.Bind{PreparedStatement: p + "_too"}, run(""), sync1), pgerr.FeatureNotSupported, "ready I")
	}
}

// TestKeysThatMeanTheCurrentTime are refused wherever they stand: a shard would read them later than the router.
func TestKeysThatMeanTheCurrentTime(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, timesConfig())
	c := dialRaw(t, w.address, nil)
	for _, sql := range []string{
		"INSERT INTO moments VALUES ('now', 1)", "INSERT INTO moments VALUES ('now'::timestamptz, 1)", "SELECT n FROM moments WHERE k = 'today'", "SELECT n FROM moments WHERE k IN ('tomorrow', '2026-01-01 00:00+00')",
		"INSERT INTO days VALUES ('today', 1)", "SELECT n FROM days WHERE k = 'yesterday'", "SELECT n FROM days WHERE k = ANY('{today}')", "INSERT INTO days VALUES (E'\\x74oday', 1)",
	} {
		wantCodes(t, c.query(sql), pgerr.FeatureNotSupported, "ready I")
	}
	wantCodes(t, c.ask(pipeline(unnamed("INSERT INTO moments VALUES ($1, 1)", "now"), sync1)...), pgerr.FeatureNotSupported, "ready I")
	wantCodes(t, c.ask(&pgproto3.Query{String: "COPY days FROM STDIN"}, &pgproto3.CopyData{Data: []byte("today\t1\n")}, &pgproto3.CopyDone{}), pgerr.FeatureNotSupported, "ready I")
	w.settled(t)
}

// TestKeysOfOtherTypes: a parameter of another type finds the only row that is equal to it.
func TestKeysOfOtherTypes(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, timesConfig())
	const numeric, float8, timestamp = 1700, 701, 1114
	steps := texts("INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (5, 'e')", "INSERT INTO days VALUES ('2026-01-01', 1), ('2026-01-02', 2), ('2026-01-03', 3)")
	for _, value := range []string{"1", "2.000", "2.5", "1e0", "-3", "4", "99999999999999999999", "NaN"} {
		steps = append(steps, sent(parse("", "SELECT note FROM orders WHERE id = $1", numeric), bind("", "", value), run(""), sync1))
		steps = append(steps, sent(parse("", "UPDATE orders SET note = note || '!' WHERE id = $1", numeric), bind("", "", value), run(""), sync1))
	}
	for _, value := range []string{"1", "2.5", "3e0", "4"} {
		steps = append(steps, sent(parse("", "SELECT note FROM orders WHERE id = $1", float8), bind("", "", value), run(""), sync1))
	}
	for _, value := range []string{"2026-01-01 00:00:00", "2026-01-02", "2026-01-03 12:00:00"} {
		steps = append(steps, sent(parse("", "SELECT n FROM days WHERE k = $1", timestamp), bind("", "", value), run(""), sync1))
	}
	steps = append(steps, sent(parse("", "SELECT note FROM orders WHERE id = ANY($1)", 1231), bind("", "", "{1,2.0,2.5}"), run(""), sync1))
	w.sameButOrder(t, steps...)
}

// TestExecuteWithKeys: arrays and casts, in the statement and in the arguments.
func TestExecuteWithKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3})
	w.sameButOrder(t, texts("INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (5, 'e')",
		"PREPARE many AS SELECT id, note FROM orders WHERE id = ANY($1)", "EXECUTE many ('{1,2,3}')", "EXECUTE many ('{4}')", "EXECUTE many (NULL)", "EXECUTE many ('{}')", "EXECUTE many ('{1,NULL,5}')", "EXECUTE many ('{x}')",
		"PREPARE cast_one AS SELECT note FROM orders WHERE id = $1::bigint", "EXECUTE cast_one (2)", "EXECUTE cast_one ('3')", "EXECUTE cast_one (4::smallint)", "EXECUTE cast_one (2.4)",
		"PREPARE narrow (int) AS SELECT note FROM orders WHERE id = $1::bigint", "EXECUTE narrow (2)", "EXECUTE narrow (3000000000)",
		"PREPARE one (bigint) AS SELECT note FROM orders WHERE id = $1", "EXECUTE one (1::smallint)", "EXECUTE one (5::int)", "EXECUTE one (70000::smallint)",
		"PREPARE exact (numeric) AS SELECT note FROM orders WHERE id = $1", "EXECUTE exact (3.0)", "EXECUTE exact (3.5)", "EXECUTE exact ('4')",
	)...)
	times := newWorld(t, timesConfig())
	times.sameButOrder(t, texts("INSERT INTO moments VALUES ('2026-01-01 00:00:01+00', 1), ('2026-01-01 00:00:02+00', 2)", "PREPARE p (timestamptz) AS SELECT n FROM moments WHERE k = $1",
		"EXECUTE p ('2026-01-01 00:00:01.4+00'::timestamptz(0))", "EXECUTE p ('2026-01-01 00:00:02+00'::timestamptz)", "PREPARE q AS SELECT n FROM moments WHERE k = $1::timestamptz(0)", "EXECUTE q ('2026-01-01 00:00:01.4+00')")...)
}
