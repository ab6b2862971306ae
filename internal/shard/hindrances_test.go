package shard

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

// TestWhatHindersMoves of rows, by what tables are like and what else is done with them, in partitions too.
func TestWhatHindersMoves(t *testing.T) {
	c := newCluster(t, 2)
	publisher, conn := connectAsClient(t, specOf("s1", c.servers[0])), c.conns[1]
	tables := []string{"plain", "fed", "parted", "fed_parted", "computed", "computed_too", "told", "parted_told", "fires", "parted_fires"}
	for _, sql := range []string{
		"CREATE TABLE public.plain (id int, n int GENERATED ALWAYS AS (id) STORED, PRIMARY KEY (id) INCLUDE (n))", "CREATE TABLE public.fed (id int PRIMARY KEY)",
		"CREATE TABLE public.parted (id int PRIMARY KEY) PARTITION BY RANGE (id)", "CREATE TABLE public.parted_1 PARTITION OF public.parted FOR VALUES FROM (0) TO (10)",
		"CREATE TABLE public.fed_parted (id int PRIMARY KEY) PARTITION BY RANGE (id)", "CREATE TABLE public.fed_1 PARTITION OF public.fed_parted FOR VALUES FROM (0) TO (10)",
		"CREATE TABLE public.computed (id int, n int GENERATED ALWAYS AS (id) STORED PRIMARY KEY)", "CREATE TABLE public.computed_too (id int, n int GENERATED ALWAYS AS (id) STORED, PRIMARY KEY (id, n))",
		"CREATE TABLE public.told (id int PRIMARY KEY, n int GENERATED ALWAYS AS (id) STORED NOT NULL)", "CREATE UNIQUE INDEX tells ON public.told (n)", "ALTER TABLE public.told REPLICA IDENTITY USING INDEX tells",
		"CREATE TABLE public.parted_told (id int PRIMARY KEY, n int GENERATED ALWAYS AS (id) STORED NOT NULL) PARTITION BY RANGE (id)", "CREATE TABLE public.told_1 PARTITION OF public.parted_told FOR VALUES FROM (0) TO (10)",
		"CREATE UNIQUE INDEX tells_1 ON public.told_1 (n)", "ALTER TABLE public.told_1 REPLICA IDENTITY USING INDEX tells_1",
		"CREATE FUNCTION public.fires() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'", "CREATE TRIGGER fires AFTER INSERT ON public.plain FOR EACH ROW EXECUTE FUNCTION public.fires()",
		"CREATE TABLE public.fires (id int PRIMARY KEY)", "CREATE TRIGGER fires AFTER INSERT ON public.fires FOR EACH ROW EXECUTE FUNCTION public.fires()", "ALTER TABLE public.fires ENABLE ALWAYS TRIGGER fires",
		"CREATE TABLE public.parted_fires (id int PRIMARY KEY) PARTITION BY RANGE (id)", "CREATE TABLE public.fires_1 PARTITION OF public.parted_fires FOR VALUES FROM (0) TO (10)",
		"CREATE TRIGGER fires AFTER INSERT ON public.fires_1 FOR EACH ROW EXECUTE FUNCTION public.fires()", "ALTER TABLE public.fires_1 ENABLE REPLICA TRIGGER fires",
	} {
		execute(t, publisher, sql)
		execute(t, conn, sql)
	}
	execute(t, publisher, "CREATE PUBLICATION feeds FOR TABLE public.fed, public.fed_1")
	execute(t, publisher, "CREATE PUBLICATION cleave_move_m FOR TABLE public.plain, public.parted_1")
	for _, s := range [][2]string{{"feeds", "feeds"}, {"cleave_move_m", "cleave_move_m"}, {"cleave_back_m", "cleave_move_m"}} {
		execute(t, conn, fmt.Sprintf("CREATE SUBSCRIPTION %s CONNECTION '%s' PUBLICATION %s WITH (enabled = false, create_slot = false, copy_data = false)", s[0], c.servers[0].DSN("postgres"), s[1]))
	}
	names := make([]string, len(tables))
	for i, table := range tables {
		names[i] = "public." + table
	}
	found := hindrancesOf(t, conn, names, 0)
	want := []string{
		"public.fed subscribed", "public.fed_parted subscribed", "public.computed generated_primary_key", "public.computed_too generated_primary_key", "public.told generated_identity", "public.parted_told generated_identity",
		"public.fires replicated_trigger", "public.parted_fires replicated_trigger",
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Error(diff)
	}
}

// hindrancesOf are the tables that cannot be moved, with why.
func hindrancesOf(t *testing.T, on beginner, tables []string, patience time.Duration) (found []string) {
	t.Helper()
	for _, h := range must[[]Hindrance](t)(Hindrances(t.Context(), on, tables, patience)) {
		found = append(found, h.Table+" "+string(h.Code))
	}
	return found
}

// TestTablesWhoseNumbersAreThoseOfLargeObjects cannot be moved, whatever their columns' types are called; others with such columns can.
func TestTablesWhoseNumbersAreThoseOfLargeObjects(t *testing.T) {
	c := newCluster(t, 1)
	conn, client := c.conns[0], connectAsClient(t, specOf("s1", c.servers[0]))
	for _, sql := range []string{
		"CREATE DOMAIN public.lo AS oid", "CREATE DOMAIN public.content AS oid", "CREATE DOMAIN public.picture AS public.lo CHECK (VALUE <> 1)",
		"CREATE TABLE public.typed (id int PRIMARY KEY, c public.lo)", "CREATE TABLE public.plain (id int PRIMARY KEY, n bigint, t text)", "CREATE TABLE public.empty (id int PRIMARY KEY, c oid)",
		"CREATE TABLE public.others (id int PRIMARY KEY, c oid, d public.content)", "CREATE TABLE public.blobs (id int PRIMARY KEY, gone oid, c oid)", `CREATE TABLE public."Second One" (id int PRIMARY KEY, c oid, "the t" oid)`,
		"CREATE TABLE public.contents (id int PRIMARY KEY, c public.content)", "CREATE TABLE public.pictures (id int PRIMARY KEY, c public.picture)",
		"CREATE TABLE public.parted (id int PRIMARY KEY, c oid) PARTITION BY RANGE (id)", "CREATE TABLE public.parted_1 PARTITION OF public.parted FOR VALUES FROM (0) TO (10)",
		"CREATE TABLE public.parted_2 PARTITION OF public.parted FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id)", "CREATE TABLE public.parted_3 PARTITION OF public.parted_2 FOR VALUES FROM (10) TO (20)",
		"CREATE TABLE public.parted_others (LIKE public.parted INCLUDING ALL) PARTITION BY RANGE (id)", "CREATE TABLE public.others_1 PARTITION OF public.parted_others FOR VALUES FROM (0) TO (10)",
		"INSERT INTO public.others VALUES (1, 'pg_class'::regclass, 4711), (2, 0, NULL)", "INSERT INTO public.parted_others VALUES (1, 4711)", "ALTER TABLE public.blobs DROP COLUMN gone",
		"INSERT INTO public.plain VALUES (1, 987654, '987654')", "INSERT INTO public.blobs VALUES (1, NULL), (2, 987654)", `INSERT INTO public."Second One" VALUES (1, 4711, 987654)`, "INSERT INTO public.contents VALUES (1, 987654)",
		"INSERT INTO public.pictures VALUES (1, 987654)", "INSERT INTO public.parted VALUES (1, NULL), (11, 987654)",
	} {
		execute(t, client, sql)
	}
	tables := []string{"public.typed", "public.plain", "public.empty", "public.others", "public.blobs", `public."Second One"`, "public.contents", "public.pictures", "public.parted", "public.parted_others"}
	if diff := cmp.Diff([]string{"public.typed large_object_column"}, hindrancesOf(t, conn, tables, 0)); diff != "" {
		t.Errorf("without large objects: %s", diff)
	}

	execute(t, client, "SELECT lo_create(987654)")
	want := []string{
		"public.typed large_object_column", "public.blobs large_object_column", `public."Second One" large_object_column`, "public.contents large_object_column", "public.pictures large_object_column", "public.parted large_object_column",
	}
	if diff := cmp.Diff(want, hindrancesOf(t, conn, tables, 0)); diff != "" {
		t.Errorf("with a large object: %s", diff)
	}

	// A transaction goes on with its own settings, and does not wait for long behind a lock if all that comes of it is a warning.
	lock, tx := must[pgx.Tx](t)(client.Begin(t.Context())), must[pgx.Tx](t)(conn.Begin(t.Context()))
	if _, err := lock.Exec(t.Context(), "LOCK TABLE public.blobs"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(append(want[:1:1], want[2:]...), hindrancesOf(t, tx, tables, time.Second)); diff != "" {
		t.Errorf("while a table is locked: %s", diff)
	}
	var patience string
	if err := tx.QueryRow(t.Context(), "SELECT current_setting('statement_timeout')").Scan(&patience); err != nil || patience != "1min" {
		t.Errorf("afterwards the transaction has statement_timeout %s, %v", patience, err)
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, hindrancesOf(t, tx, tables, time.Minute)); diff != "" {
		t.Errorf("in a transaction: %s", diff)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}

	// What nobody may read cannot be known, and keeps nobody from asking.
	execute(t, conn, "CREATE ROLE stranger LOGIN")
	execute(t, conn, "SET ROLE stranger")
	if diff := cmp.Diff([]string{"public.typed large_object_column"}, hindrancesOf(t, conn, tables, 0)); diff != "" {
		t.Errorf("for a role without rights: %s", diff)
	}
}
