package shard

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	var found []string
	for _, h := range must[[]Hindrance](t)(Hindrances(t.Context(), conn, names)) {
		found = append(found, h.Table+" "+string(h.Code))
	}
	want := []string{
		"public.fed subscribed", "public.fed_parted subscribed", "public.computed generated_primary_key", "public.computed_too generated_primary_key", "public.told generated_identity", "public.parted_told generated_identity",
		"public.fires replicated_trigger", "public.parted_fires replicated_trigger",
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Error(diff)
	}
}
