package compose_test

import (
	"errors"
	"testing"

	"github.com/cleavedb/cleave/internal/compose"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// atMoment writes a statement about t, whose column at is now() by default, and due a day later.
func atMoment(t *testing.T, sql string, values int) (string, bool, error) {
	t.Helper()
	var scan sqltext.Normalized
	if err := scan.Scan([]byte(sql), true); err != nil {
		t.Fatal(err)
	}
	q := compose.Query{Text: sql, Literals: scan.Literals, Builtin: func(schema, _ string) bool { return schema == "" || schema == "pg_catalog" }}
	text, byLiteral, err := compose.AtMoment(q, []compose.Stored{{
		Name: "t", Columns: []string{"k", "v", "at", "due"}, Values: values,
		Defaults: []compose.Default{{Column: "at", SQL: "now()"}, {Column: "due", SQL: "(now() + ('1 day'::interval * (2)::double precision))"}},
	}})
	if err != nil {
		return "", false, err
	}
	return text.Fill(compose.Places{Moment: "M", Literal: func(n int) string { return "L" + sql[scan.Literals[n].Start:scan.Literals[n].End] }}), byLiteral, nil
}

const (
	at  = "M::timestamp with time zone"
	due = at + " + ('1 day'::interval * 2::double precision)"
)

func TestStatementsAreWrittenAtAMoment(t *testing.T) {
	for _, tt := range []struct {
		sql    string
		values int
		want   string
	}{
		{"select now(), v from u where v = 'x'", -1, "SELECT " + at + " AS now, v FROM u WHERE v = L'x'"},
		{"select current_date", -1, "SELECT " + at + `::pg_catalog.date AS "current_date"`},
		{"select mine.now()", -1, "SELECT mine.now()"},
		{"update t set at = default, v = default", -1, "UPDATE t SET at = " + at + ", v = DEFAULT"},
		{"insert into t (k) values (1), (2)", 1, "INSERT INTO t (k, at, due) VALUES (L1, " + at + ", " + due + "), (L2, " + at + ", " + due + ")"},
		{"insert into t values (1)", 1, "INSERT INTO t (k, at, due) VALUES (L1, " + at + ", " + due + ")"},
		{"insert into t values (1, 'x', default, $1)", 4, "INSERT INTO t VALUES (L1, L'x', " + at + ", $1)"},
		{"insert into t default values", -1, "INSERT INTO t (at, due) VALUES (" + at + ", " + due + ")"},
		{"insert into t (k, due) select k, now() from u", 2, "INSERT INTO t (k, due, at) SELECT k, " + at + " AS now, " + at + " AS now FROM u"},
		{
			"insert into t (k, due) select distinct k, due from u union select 1, due from w order by 1", 2,
			"INSERT INTO t (k, due, at) SELECT DISTINCT k, due, " + at + " AS now FROM u UNION SELECT L1, due, " + at + " AS now FROM w ORDER BY L1",
		},
		{"insert into t table u", 2, "INSERT INTO t (k, v, at, due) SELECT *, " + at + " AS now, " + due + " FROM u"},
		{"insert into t (k, at, due) values (1, $1, $2) on conflict (k) do update set at = default", 3, "INSERT INTO t (k, at, due) VALUES (L1, $1, $2) ON CONFLICT (k) DO UPDATE SET at = " + at},
		{
			"merge into t using u on t.k = u.k when matched then update set at = default when not matched then insert (k, due) values (u.k, default)", -1,
			"MERGE INTO t USING u ON t.k = u.k WHEN MATCHED THEN UPDATE SET at = " + at + " WHEN NOT MATCHED THEN INSERT (k, due, at) VALUES (u.k, " + due + ", " + at + ")",
		},
		{"update t set (at, v) = (default, 'x'), due = default", -1, "UPDATE t SET (at, v) = (" + at + ", L'x'), due = " + due},
		{"explain update t set v = now()::text", -1, "EXPLAIN UPDATE t SET v = " + at + "::text"},
		{"declare c cursor for select now()", -1, "DECLARE c CURSOR FOR SELECT " + at + " AS now"},
		{"execute p (now(), 1)", -1, "EXECUTE p(" + at + ", L1)"},
	} {
		got, byLiteral, err := atMoment(t, tt.sql, tt.values)
		if err != nil || got != tt.want || byLiteral {
			t.Errorf("%s\n is %s\nwant %s\n%v, by literal: %v", tt.sql, got, tt.want, err, byLiteral)
		}
	}
}

func TestATextAtAMomentMayBeRightForItsLiteralsAlone(t *testing.T) {
	got, byLiteral, err := atMoment(t, "select current_timestamp(2), v::numeric(5, 1) from u", -1)
	if want := "SELECT " + at + `::timestamp (2) with time zone AS "current_timestamp", v::numeric(5, 1) FROM u`; err != nil || got != want || !byLiteral {
		t.Errorf("%s\nwant %s\n%v, by literal: %v", got, want, err, byLiteral)
	}
}

func TestWhatCannotBeWrittenAtAMoment(t *testing.T) {
	for sql, want := range map[string]error{
		"insert into t select * from u":          compose.ErrWidth,
		"insert into t (k, at[1]) values (1, 2)": compose.ErrForm,
	} {
		if got, _, err := atMoment(t, sql, -1); !errors.Is(err, want) {
			t.Errorf("%s: %s, %v", sql, got, err)
		}
	}
	for sql, want := range map[string]bool{"now()": true, "(now() + ('1 day'::interval * random()))": false, "timezone('utc'::text, now())": true, "public.timezone('utc'::text, now())": false, "(random() || (ARRAY[now()])[1])": false, "(ARRAY[now()])[1]": true} {
		if compose.IsSameForAll(sql) != want {
			t.Errorf("%s is the same for all: %v", sql, !want)
		}
	}
}
