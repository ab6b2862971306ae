package qualified

import "testing"

func TestBare(t *testing.T) {
	for _, sound := range []string{
		"SELECT a.pid::pg_catalog.text, 1::bigint, count.n FROM pg_catalog.pg_stat_activity a WHERE a.pid OPERATOR(pg_catalog.=) -1",
		"SELECT pg_catalog.count(*), EXTRACT(epoch FROM a.at), coalesce(a.x, 0) FROM ROWS FROM (pg_catalog.unnest($1)) WITH ORDINALITY AS lines (line, place)",
		"INSERT INTO cleave.commits (gid) VALUES ($1) ON CONFLICT (gid) WHERE decides DO NOTHING RETURNING xid",
		"DECLARE a pg_catalog.text := 'x'; b bigint; own record; BEGIN a := b; RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = pg_catalog.format('%s like %s', a, b); END",
		"FOR try IN 1 .. 10 LOOP EXIT WHEN NOT ((NEW.a, NEW.b) IS NOT NULL); END LOOP",
		`UPDATE cleave.commits c SET lost = $1 WHERE c.gid OPERATOR(pg_catalog.=) ANY (ARRAY['a']) AND c.gid COLLATE pg_catalog."C" IS NOT NULL`,
		"SELECT ('x' OPERATOR(pg_catalog.||) pg_catalog.substr($1, 1, 8))::bit(32)::integer -- || and ::text",
	} {
		if found := Bare(sound); len(found) > 0 {
			t.Errorf("%s: found %q", sound, found)
		}
	}
	for _, bare := range []string{
		"SELECT $1::text", "SELECT a.b || a.c", "SELECT a.b = 1", "SELECT a.b - 1", "SELECT a.b -1", "SELECT a.b IN (1, 2)", "SELECT a.b BETWEEN 1 AND 2", "SELECT a.b LIKE 'x'", "SELECT a.b NOT LIKE 'x'",
		"SELECT a.b IS DISTINCT FROM a.c", "SELECT a.b IS NOT DISTINCT FROM a.c", "SELECT CASE a.b WHEN 1 THEN 2 END", "SELECT nullif(a.b, 1)", "SELECT now()", "SELECT f(a.b)", "SELECT text 'x'", "SELECT date E'x'",
		"SELECT CAST(a.b AS text)", "SELECT 1 FROM things", "SELECT 1 FROM a.b JOIN things ON true", "SELECT 1 FROM a.b JOIN a.c USING (d)", "INSERT INTO things VALUES (1)", "UPDATE things SET a = 1",
		"DECLARE a text; BEGIN END", "DECLARE a bigint; b text := 'x'; BEGIN END", "DECLARE a things; BEGIN END", `SELECT a.b COLLATE "C"`, "SELECT 'open", "SELECT @ a.b", "SELECT a.b OPERATOR(pg_catalog.+) a.c * 2",
		"SELECT a.b::public.text", `SELECT "now"()`, `SELECT a.b::"bigint"`,
	} {
		if found := Bare(bare); len(found) == 0 {
			t.Errorf("%s: nothing was found", bare)
		}
	}
}
