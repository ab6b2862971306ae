package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// copies are two servers that have the same tables: the home shard, and the one whose copies are looked at.
type copies struct{ home, copy *pgx.Conn }

func newCopies(t *testing.T) copies {
	t.Helper()
	servers := pgtest.StartN(t, 2)
	return copies{connect(t, specOf("s1", servers[0])), connect(t, specOf("s2", servers[1]))}
}

func (c copies) both(t *testing.T, sql string) {
	t.Helper()
	execute(t, c.home, sql)
	execute(t, c.copy, sql)
}

// compare begins a comparison as the control plane does, and returns the buckets that differ.
func (c copies) compare(t *testing.T, name string) (*Comparison, []int32) {
	t.Helper()
	for _, conn := range []*pgx.Conn{c.home, c.copy} {
		execute(t, conn, CompareSettings)
	}
	definition := must[*Definition](t)(Describe(t.Context(), c.home, topology.TableName{Schema: "public", Name: name}))
	comparison := must[*Comparison](t)(definition.Compared(t.Context(), c.home))
	return comparison, c.differing(t, comparison)
}

func (c copies) differing(t *testing.T, comparison *Comparison) []int32 {
	t.Helper()
	return must[*Digest](t)(comparison.Digest(t.Context(), c.home)).Differing(must[*Digest](t)(comparison.Digest(t.Context(), c.copy)))
}

// mended is what a repair found of a table, and how many rows it carried for that.
type mended struct {
	difference Difference
	carried    int64
}

// mend repairs tables in one transaction, and commits it if nothing is refused.
func (c copies) mend(t *testing.T, names ...string) (results []mended, refused error) {
	t.Helper()
	ctx := t.Context()
	tx := must[pgx.Tx](t)(c.copy.Begin(ctx))
	defer func() { _ = tx.Rollback(context.Background()) }()
	execute(t, c.copy, CopySettings)
	repairs, right := make([]*CopyRepair, len(names)), map[*CopyRepair]*Digest{}
	for i, name := range names {
		comparison, buckets := c.compare(t, name)
		repairs[i] = must[*CopyRepair](t)(comparison.Repair(ctx, tx, i, buckets))
		right[repairs[i]] = must[*Digest](t)(comparison.Digest(ctx, c.home))
		carried := c.carry(t, comparison.ReadSQL(buckets), repairs[i].WriteSQL())
		if err := repairs[i].Count(ctx); err != nil {
			t.Fatal(err)
		}
		results = append(results, mended{repairs[i].Difference(), carried})
	}
	if err := MendCopies(ctx, tx, repairs, func(r *CopyRepair) *Digest { return right[r] }); err != nil {
		return results, err
	}
	return results, tx.Commit(ctx)
}

// mendOne repairs a table, which has to work.
func (c copies) mendOne(t *testing.T, name string) mended {
	t.Helper()
	results, err := c.mend(t, name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return results[0]
}

func (c copies) carry(t *testing.T, read, write string) int64 {
	t.Helper()
	reader, writer := io.Pipe()
	go func() {
		_, err := c.home.PgConn().CopyTo(context.Background(), writer, read)
		_ = writer.CloseWithError(err)
	}()
	tag, err := c.copy.PgConn().CopyFrom(t.Context(), reader, write)
	if err != nil {
		t.Fatal(err)
	}
	return tag.RowsAffected()
}

// expectEqual wants both to have the very same rows, by another way than comparing digests.
func (c copies) expectEqual(t *testing.T, name string) {
	t.Helper()
	const query = "SELECT coalesce(array_agg(t::text ORDER BY t::text), '{}') FROM ONLY public.%s AS t"
	want, got := one[[]string](t, c.home, fmt.Sprintf(query, name)), one[[]string](t, c.copy, fmt.Sprintf(query, name))
	if !slices.Equal(want, got) {
		t.Errorf("%s: the home shard has %q, the copy %q", name, want, got)
	}
}

// everyType is a table with columns of many types, whose texts depend on what is set.
const everyType = `
	CREATE TYPE public.mood AS ENUM ('happy', 'sad');
	CREATE TYPE public.place AS (street text, number int);
	CREATE TABLE public.things (id bigint PRIMARY KEY, b bytea, f float8, r real, z timestamptz, d date, i interval, j json, jb jsonb, m money, u uuid, x xml, mood public.mood, place public.place,
		ints int[], texts text[], moods public.mood[], n numeric, c char(5), v varchar(9), o regclass, span int4range, doubled bigint GENERATED ALWAYS AS (id * 2) STORED);
	INSERT INTO public.things SELECT i, decode(to_hex(i + 4096), 'hex'), i / 3.0, i / 7.0, '2024-03-31 00:30Z'::timestamptz + i * '1.5 hours'::interval, '2024-01-01'::date + i::int,
		i * '1 day 2.25 seconds'::interval, format('{"b": %s,  "a": [1, null]}', i)::json, format('{"b": %s, "a": [1, null]}', i)::jsonb, i * 1.25::numeric::money, gen_random_uuid(),
		'<a>1</a>', 'happy', ROW('x, "y"', i::int)::public.place, ARRAY[i, NULL], ARRAY['NULL', NULL, '', 'a,b'], ARRAY['sad', NULL]::public.mood[], i::numeric / 8, 'ab', 'ab ', 'pg_class', int4range(1, i::int + 2)
		FROM generate_series(1::bigint, 40) AS i;
	INSERT INTO public.things (id) VALUES (100)`

// TestEveryTypeOfColumn: values that are equal are taken for equal whatever is set for role and server, and every change of one is seen and repaired.
func TestEveryTypeOfColumn(t *testing.T) {
	c := newCopies(t)
	execute(t, c.home, everyType)
	execute(t, c.copy, strings.ReplaceAll(everyType, "INSERT INTO public.things SELECT", "CREATE TABLE public.other (); INSERT INTO public.things SELECT"))
	execute(t, c.copy, "UPDATE public.things SET u = $1", "00000000-0000-4000-8000-000000000001") // random on both
	execute(t, c.home, "UPDATE public.things SET u = $1", "00000000-0000-4000-8000-000000000001")
	execute(t, c.copy, `SET timezone = 'Europe/Berlin'; SET datestyle = 'German'; SET intervalstyle = iso_8601; SET extra_float_digits = -5; SET bytea_output = escape;
		SET lc_monetary = 'C'; SET quote_all_identifiers = on`)
	execute(t, c.copy, "SET timezone = 'UTC'; SET datestyle = 'ISO, YMD'") // those two every connection of the control plane has
	if _, buckets := c.compare(t, "things"); len(buckets) > 0 {
		t.Fatalf("equal tables differ in %d buckets", len(buckets))
	}
	for _, change := range []string{
		"b = '\\x00'", "b = NULL", "f = f + 1e-12", "f = '-0'", "f = 'NaN'", "r = r + 1e-6", "z = z + '1 microsecond'", "d = NULL", "i = i + '0.000001 seconds'", "j = '{\"b\": 1,\"a\": [1, null]}'",
		"jb = '{}'", "jb = 'null'", "m = m + 0.01::money", "u = gen_random_uuid()", "x = '<a> 1</a>'", "mood = 'sad'", "place = ROW('x', NULL)", "place = NULL", "place = ROW(NULL, NULL)", "ints = '{}'", "ints = '[2:3]={1,NULL}'",
		"texts = ARRAY[NULL, NULL, '', 'a,b']", "moods = NULL", "n = n + 0.00", "n = n * 1.000", "c = 'abc'", "v = 'ab'", "o = 'pg_type'", "span = 'empty'", "id = id + 1000", "id = -id, n = 3",
	} {
		execute(t, c.copy, "UPDATE public.things SET "+change+" WHERE id IN (7, 8)")
		done := c.mendOne(t, "things")
		want := Difference{Changed: 2}
		switch {
		case strings.HasPrefix(change, "id"):
			want = Difference{Missing: 2, Extra: 2}
		case change == "n = n + 0.00": // 7/8 and 8/8 have a scale that is larger already
			want = done.difference
		}
		if done.difference != want {
			t.Errorf("%s: found %+v, want %+v", change, done.difference, want)
		}
		c.expectEqual(t, "things")
	}
}

// TestRowsThatDiffer of a table with a key: missing, extra, changed, swapped, and columns that cannot be updated.
func TestRowsThatDiffer(t *testing.T) {
	c := newCopies(t)
	c.both(t, `CREATE TABLE public.t (a int, b text, c text UNIQUE, n bigint GENERATED ALWAYS AS IDENTITY, dropped int, "ä b%" text, PRIMARY KEY (b, a));
		INSERT INTO public.t (a, b, c) SELECT i, 'b' || i, 'c' || i FROM generate_series(1, 20) AS i;
		CREATE TABLE public.u (a int PRIMARY KEY, c text UNIQUE DEFERRABLE, d int); INSERT INTO public.u SELECT i, 'c' || i, i FROM generate_series(1, 20) AS i;
		CREATE TABLE public.v (a int PRIMARY KEY, c text UNIQUE); INSERT INTO public.v SELECT i, 'c' || i FROM generate_series(1, 20) AS i`)
	// Columns are in another order there, and some were dropped.
	execute(t, c.home, "ALTER TABLE public.t DROP dropped")
	execute(t, c.copy, "ALTER TABLE public.t DROP c; ALTER TABLE public.t DROP dropped; ALTER TABLE public.t ADD c text UNIQUE; UPDATE public.t SET c = 'c' || a")
	if _, buckets := c.compare(t, "t"); len(buckets) > 0 {
		t.Fatalf("equal tables differ in %d buckets", len(buckets))
	}
	for _, damage := range []struct {
		table, sql string
		want       Difference
	}{
		{"t", "DELETE FROM public.t WHERE a <= 3", Difference{Missing: 3}},
		{"t", "INSERT INTO public.t (a, b) VALUES (30, 'x'), (31, 'x')", Difference{Extra: 2}},
		{"t", `UPDATE public.t SET "ä b%" = '' WHERE a = 4`, Difference{Changed: 1}},
		{"t", "UPDATE public.t SET a = 44 WHERE a = 4", Difference{Missing: 1, Extra: 1}},
		{"t", "DELETE FROM public.t", Difference{Missing: 20}},
		{"v", "UPDATE public.v SET c = '' WHERE a = 1; UPDATE public.v SET c = 'c1' WHERE a = 2; UPDATE public.v SET c = 'c2' WHERE a = 1; DELETE FROM public.v WHERE a = 9", Difference{Changed: 2, Missing: 1}},
		{"v", "DELETE FROM public.v WHERE a = 5; INSERT INTO public.v VALUES (50, 'c5')", Difference{Missing: 1, Extra: 1}},
		{"u", "UPDATE public.u SET c = 'c' || 21 - a", Difference{Changed: 20}},
		{"u", "UPDATE public.u SET d = NULL WHERE a = 2; DELETE FROM public.u WHERE a = 3; INSERT INTO public.u VALUES (33, 'c3', 3)", Difference{Missing: 1, Extra: 1, Changed: 1}},
	} {
		execute(t, c.copy, damage.sql)
		if done := c.mendOne(t, damage.table); done.difference != damage.want {
			t.Errorf("%s: found %+v, want %+v", damage.sql, done.difference, damage.want)
		}
		if _, buckets := c.compare(t, damage.table); len(buckets) > 0 {
			t.Errorf("%s: %d buckets differ after the repair", damage.sql, len(buckets))
		}
		if damage.table != "t" { // whose columns have another order
			c.expectEqual(t, damage.table)
		}
	}
}

// TestRowsWithoutAKey are a bag: each counts.
func TestRowsWithoutAKey(t *testing.T) {
	c := newCopies(t)
	c.both(t, "CREATE TABLE public.t (a int, b text); INSERT INTO public.t VALUES (1, 'x'), (1, 'x'), (1, 'x'), (2, NULL), (2, NULL), (2, ''), (NULL, NULL)")
	if _, buckets := c.compare(t, "t"); len(buckets) > 0 {
		t.Fatal("equal tables differ")
	}
	for _, damage := range []struct {
		sql  string
		want Difference
	}{
		{"DELETE FROM public.t WHERE ctid = (SELECT min(ctid) FROM public.t WHERE a = 1)", Difference{Missing: 1}},
		{"INSERT INTO public.t VALUES (1, 'x'), (2, NULL)", Difference{Extra: 2}},
		{"UPDATE public.t SET b = '' WHERE b IS NULL", Difference{Missing: 3, Extra: 3}},
		{"DELETE FROM public.t WHERE a = 1; INSERT INTO public.t VALUES (3, 'y'), (3, 'y'), (3, 'y')", Difference{Missing: 3, Extra: 3}},
		{"TRUNCATE public.t", Difference{Missing: 7}},
	} {
		execute(t, c.copy, damage.sql)
		if done := c.mendOne(t, "t"); done.difference != damage.want {
			t.Errorf("%s: found %+v, want %+v", damage.sql, done.difference, damage.want)
		}
		c.expectEqual(t, "t")
	}
}

// TestNothingElseMoves: no trigger fires, whenever it would, and no row that refers to the table goes or changes.
func TestNothingElseMoves(t *testing.T) {
	c := newCopies(t)
	c.both(t, `CREATE TABLE public.countries (code text PRIMARY KEY, name text, other text UNIQUE); INSERT INTO public.countries VALUES ('de', 'Germany', 'a'), ('fr', 'France', 'b'), ('it', 'Italy', 'c');
		CREATE TABLE public.fired (by text);
		CREATE FUNCTION public.fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.fired VALUES (TG_NAME); RETURN NEW; END $$;
		CREATE TRIGGER usual BEFORE INSERT OR UPDATE OR DELETE ON public.countries FOR EACH ROW EXECUTE FUNCTION public.fire();
		CREATE TRIGGER "al ways" AFTER INSERT OR UPDATE OR DELETE ON public.countries FOR EACH ROW EXECUTE FUNCTION public.fire();
		CREATE TRIGGER replica AFTER INSERT OR UPDATE OR DELETE ON public.countries FOR EACH STATEMENT EXECUTE FUNCTION public.fire();
		ALTER TABLE public.countries ENABLE ALWAYS TRIGGER "al ways"; ALTER TABLE public.countries ENABLE REPLICA TRIGGER replica`)
	execute(t, c.copy, `CREATE TABLE public.users (id int PRIMARY KEY, country text REFERENCES public.countries ON DELETE CASCADE ON UPDATE CASCADE, other text REFERENCES public.countries (other) ON DELETE SET NULL);
		INSERT INTO public.users VALUES (1, 'de', 'a'), (2, 'fr', 'b'), (3, NULL, NULL);
		SET session_replication_role = replica; DELETE FROM public.countries WHERE code = 'fr'; UPDATE public.countries SET name = 'x', other = 'z' WHERE code = 'de';
		INSERT INTO public.countries VALUES ('xx', 'nowhere'); RESET session_replication_role; DELETE FROM public.fired`)
	triggers := "SELECT string_agg(tgname::text || tgenabled::text, ' ' ORDER BY tgname) FROM pg_trigger WHERE tgrelid = 'public.countries'::regclass AND NOT tgisinternal"
	before := one[string](t, c.copy, triggers)
	if done := c.mendOne(t, "countries"); done.difference != (Difference{Missing: 1, Extra: 1, Changed: 1}) {
		t.Errorf("%+v", done)
	}
	c.expectEqual(t, "countries")
	if n := one[int](t, c.copy, "SELECT count(*) FROM public.fired"); n > 0 {
		t.Errorf("triggers fired %d times: %s", n, one[string](t, c.copy, "SELECT string_agg(by, ' ') FROM public.fired"))
	}
	if users := one[string](t, c.copy, "SELECT string_agg(u::text, ' ' ORDER BY id) FROM public.users u"); users != "(1,de,a) (2,fr,b) (3,,)" {
		t.Errorf("users are %s", users)
	}
	if after := one[string](t, c.copy, triggers); after != before {
		t.Errorf("triggers are %q, were %q", after, before)
	}
}

// TestForeignKeysHoldAfterwards, or nothing is repaired.
func TestForeignKeysHoldAfterwards(t *testing.T) {
	c := newCopies(t)
	c.both(t, `CREATE TABLE public.regions (id int PRIMARY KEY); INSERT INTO public.regions VALUES (1), (2);
		CREATE TABLE public.countries (code text PRIMARY KEY, region int REFERENCES public.regions, parent text REFERENCES public.countries); INSERT INTO public.countries VALUES ('de', 1, NULL), ('by', 1, 'de')`)
	execute(t, c.copy, "CREATE TABLE public.users (id int PRIMARY KEY, country text REFERENCES public.countries ON DELETE CASCADE)")
	refused := func(name string, says ...string) {
		t.Helper()
		_, err := c.mend(t, name)
		var why *pgerr.Error
		if !errors.As(err, &why) || why.Code != pgerr.ForeignKeyViolation {
			t.Fatalf("%s: %v", name, err)
		}
		for _, word := range says {
			if !strings.Contains(why.Message+why.Detail+why.Hint, word) {
				t.Errorf("it says %+v, and not %q", why, word)
			}
		}
	}
	execute(t, c.copy, "INSERT INTO public.countries VALUES ('xx', NULL, NULL); INSERT INTO public.users VALUES (1, 'xx')")
	refused("countries", "public.users", "1 rows", "users_country_fkey")
	if n := one[int](t, c.copy, "SELECT count(*) FROM public.users JOIN public.countries ON code = country"); n != 1 {
		t.Error("a repair that was refused has changed something")
	}
	execute(t, c.copy, "UPDATE public.users SET country = 'de'")
	c.mendOne(t, "countries")
	// A region that one table lacks and a country that refers to it: together, or the region first.
	execute(t, c.home, "INSERT INTO public.regions VALUES (3); INSERT INTO public.countries VALUES ('it', 3, 'de')")
	refused("countries", "public.regions", "countries_region_fkey")
	if done, err := c.mend(t, "countries", "regions"); err != nil || done[0].difference.Missing != 1 || done[1].difference.Missing != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	// The same the other way round: what is to go refers to what is to go.
	execute(t, c.copy, "INSERT INTO public.regions VALUES (4); INSERT INTO public.countries VALUES ('yy', 4, 'yy')")
	refused("regions", "public.countries")
	if done, err := c.mend(t, "regions", "countries"); err != nil || done[0].difference.Extra != 1 || done[1].difference.Extra != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	c.expectEqual(t, "regions")
	c.expectEqual(t, "countries")
}

// TestFewRowsOfManyDiffer: only what is in their buckets is carried, and only they are touched; also where a table is read in many parts.
func TestFewRowsOfManyDiffer(t *testing.T) {
	usual := pagesAtOnce
	pagesAtOnce = 50
	t.Cleanup(func() { pagesAtOnce = usual })
	c := newCopies(t)
	c.both(t, "CREATE TABLE public.t (id int PRIMARY KEY, b text); INSERT INTO public.t SELECT i, repeat('x', i % 50) FROM generate_series(1, 100000) AS i; CREATE TABLE public.empty (a int)")
	if _, buckets := c.compare(t, "empty"); len(buckets) > 0 {
		t.Error("empty tables differ")
	}
	if _, buckets := c.compare(t, "t"); len(buckets) > 0 {
		t.Fatal("equal tables differ")
	}
	execute(t, c.copy, "DELETE FROM public.t WHERE id = 5; UPDATE public.t SET b = 'y' WHERE id = 50000; INSERT INTO public.t VALUES (0, '')")
	before := one[int64](t, c.copy, "SELECT pg_current_xact_id()::text::bigint")
	done := c.mendOne(t, "t")
	if done.difference != (Difference{Missing: 1, Extra: 1, Changed: 1}) || done.carried == 0 || done.carried > 1000 {
		t.Errorf("%+v", done)
	}
	if touched := one[int](t, c.copy, "SELECT count(*) FROM public.t WHERE xmin::text::bigint > $1", before); touched != 2 {
		t.Errorf("%d rows were inserted or updated", touched)
	}
	c.expectEqual(t, "t")
	// All of them.
	execute(t, c.copy, "DELETE FROM public.t")
	if done := c.mendOne(t, "t"); done.difference != (Difference{Missing: 100000}) || done.carried != 100000 {
		t.Errorf("%+v", done)
	}
}

// TestWritingIsNoticed without reading the table.
func TestWritingIsNoticed(t *testing.T) {
	conn := connect(t, specOf("s1", pgtest.Start(t)))
	if _, _, err := Install(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	execute(t, conn, "CREATE TABLE public.t (id int PRIMARY KEY)")
	state := func() string {
		t.Helper()
		execute(t, conn, "SELECT pg_stat_force_next_flush()")
		return must[string](t)(CopyState(t.Context(), conn, "public.t"))
	}
	before := state()
	if now := state(); before == "" || now != before {
		t.Errorf("nobody wrote, and it was %q and is %q", before, now)
	}
	for _, sql := range []string{"INSERT INTO public.t VALUES (1), (2)", "UPDATE public.t SET id = 3 WHERE id = 1", "DELETE FROM public.t WHERE id = 3", "TRUNCATE public.t"} {
		execute(t, conn, sql)
		now := state()
		if now == before {
			t.Errorf("%s was not noticed: %s", sql, now)
		}
		before = now
	}
	execute(t, conn, "SET track_counts = off")
	if now := must[string](t)(CopyState(t.Context(), conn, "public.t")); now != "" {
		t.Errorf("nobody counts, and it is %q", now)
	}
}

// TestRowsAreComparedInParts, each by itself, with somebody told after each, and in groups of buckets that have few rows together.
func TestRowsAreComparedInParts(t *testing.T) {
	usual := partPages
	partPages = 50
	t.Cleanup(func() { partPages = usual })
	c := newCopies(t)
	c.both(t, `CREATE TABLE public.t (id int PRIMARY KEY, b text) PARTITION BY RANGE (id); CREATE TABLE public.low PARTITION OF public.t FOR VALUES FROM (0) TO (50000); CREATE TABLE public.high PARTITION OF public.t FOR VALUES FROM (50000) TO (1000000);
		INSERT INTO public.t SELECT i, repeat('x', i % 50) FROM generate_series(1, 60000) AS i; ANALYZE public.t`)
	execute(t, c.copy, "DELETE FROM public.t WHERE id % 1000 = 5; UPDATE public.t SET b = 'y' WHERE id % 1000 = 7")
	definition := must[*Definition](t)(Describe(t.Context(), c.home, topology.TableName{Schema: "public", Name: "t"}))
	comparison := must[*Comparison](t)(definition.Compared(t.Context(), c.home))
	const where = "t.id > 10000"
	parts, bytes := 0, int64(0)
	after := func(_ context.Context, _ time.Duration, size int64) error {
		parts, bytes = parts+1, bytes+size
		return nil
	}
	home := must[*Still](t)(TakeStill(t.Context(), c.home, connectLike(t, c.home)))
	copied := must[*Still](t)(TakeStill(t.Context(), c.copy, connectLike(t, c.copy)))
	execute(t, c.home, "UPDATE public.t SET b = 'later'; INSERT INTO public.t SELECT i, 'later' FROM generate_series(70000, 80000) AS i")
	mine := must[*Digest](t)(comparison.DigestIn(t.Context(), home, where, after))
	if pages := one[int64](t, c.home, "SELECT sum(pg_relation_size(relid)) / 8192 FROM pg_partition_tree('public.t')"); mine.Rows != 50000 || parts < int(pages/partPages) || bytes != pages*blockSize {
		t.Errorf("%d rows in %d parts with %d bytes, of %d pages", mine.Rows, parts, bytes, pages)
	}
	theirs := must[*Digest](t)(comparison.DigestIn(t.Context(), copied, where, after))
	differing := mine.Differing(theirs)
	groups := mine.Groups(theirs, differing, 2000)
	if joined := slices.Concat(groups...); len(groups) < 2 || !slices.Equal(joined, differing) {
		t.Errorf("%d groups of %d buckets, which are %d", len(groups), len(differing), len(joined))
	}
	missing, changed := c.differ(t, comparison, groups, where, home, copied)
	if missing != 50 || changed != 50 {
		t.Errorf("%d rows are missing, and %d differ", missing, changed)
	}
	if len(differing) > comparison.buckets || comparison.IsNarrow(make([]int32, comparison.buckets/4)) || !comparison.IsNarrow(make([]int32, comparison.buckets/4-1)) {
		t.Errorf("%d of %d buckets differ, and which part counts as few is wrong", len(differing), comparison.buckets)
	}
	narrow, narrowWhere := comparison.Narrowed(where, differing)
	less := must[*Digest](t)(narrow.DigestIn(t.Context(), home, narrowWhere, after))
	fewer := must[*Digest](t)(narrow.DigestIn(t.Context(), copied, narrowWhere, after))
	again := less.Differing(fewer)
	if got, want := less.Rows, mine.RowsIn(theirs, differing); got != want || less.RowsIn(fewer, again) >= want {
		t.Errorf("in the buckets that differ are %d rows, %d of them in those of theirs that do, and were %d", got, less.RowsIn(fewer, again), want)
	}
	if missing, changed := c.differ(t, narrow, [][]int32{again}, narrowWhere, home, copied); missing != 50 || changed != 50 {
		t.Errorf("looked at more closely, %d rows are missing, and %d differ", missing, changed)
	}
	stop := errors.New("no more")
	if _, err := comparison.DigestIn(t.Context(), home, where, func(context.Context, time.Duration, int64) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("it goes on: %v", err)
	}
	rewriter := connectLike(t, c.home)
	rewrite := func(context.Context, time.Duration, int64) error {
		_, err := rewriter.Exec(t.Context(), "VACUUM FULL public.high")
		return err
	}
	if _, err := comparison.DigestIn(t.Context(), home, where, rewrite); err == nil || !strings.Contains(err.Error(), "written anew") {
		t.Errorf("rows may have gone to pages that were read before: %v", err)
	}
	execute(t, c.home, "ALTER TABLE public.t ADD COLUMN more int") // or somebody waits for what has been read
	home.Close(t.Context())
	if _, err := comparison.DigestIn(t.Context(), home, where, after); err == nil {
		t.Error("what was let go is read")
	}
}

// differ says how many rows of some buckets the copy does not have, and how many it has otherwise.
func (c copies) differ(t *testing.T, comparison *Comparison, groups [][]int32, where string, home, copied *Still) (missing, changed int) {
	t.Helper()
	for _, buckets := range groups {
		mine := must[map[string]string](t)(comparison.RowsOf(t.Context(), home, where, buckets, noRest))
		theirs := must[map[string]string](t)(comparison.RowsOf(t.Context(), copied, where, buckets, noRest))
		if len(mine) > 2000 && len(buckets) > 1 {
			t.Errorf("a group of %d buckets has %d rows", len(buckets), len(mine))
		}
		for key, hash := range mine {
			switch theirs[key] {
			case hash:
			case "":
				missing++
			default:
				changed++
			}
		}
	}
	return missing, changed
}

// TestRowsAreLookedUp: by keys of every kind, as they are now, and those alone that fit the condition.
func TestRowsAreLookedUp(t *testing.T) {
	c := newCopies(t)
	c.both(t, `CREATE EXTENSION ltree SCHEMA public; CREATE EXTENSION citext SCHEMA public; SET search_path = pg_catalog; CREATE COLLATION public.nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
		CREATE TYPE public.mood AS ENUM ('sad', 'a "b", c\d'); CREATE DOMAIN public.code AS varchar(20);
		CREATE TABLE public.t (a text COLLATE "C", b numeric(8,2), c public.mood, d public.code, e timestamptz, f bytea, g char(4), h uuid, i int4range, "J k" bigint, l public.ltree, m public.citext, o text COLLATE public.nocase,
			n int, PRIMARY KEY (a, b, c, d, e, f, g, h, i, "J k", l, m, o));
		INSERT INTO public.t SELECT CASE i % 4 WHEN 0 THEN '' WHEN 1 THEN 'a,b(c)' WHEN 2 THEN E'q"\\\n' || i ELSE ' ü ' END, i / 7.0, CASE WHEN i % 2 = 0 THEN 'sad' ELSE 'a "b", c\d' END::public.mood, 'c' || i, '2026-01-01'::timestamptz + i * interval '1 s 7 us',
			decode(md5(i::text), 'hex'), 'g' || i % 9, md5(i::text)::uuid, int4range(i, i + 5), i::bigint << 33, ('top.x' || i)::public.ltree, ('Ab' || i)::public.citext, 'Cd' || i, i FROM generate_series(1, 500) AS i;
		CREATE TABLE public.keyless (a int); INSERT INTO public.keyless VALUES (1)`)
	comparison, differing := c.compare(t, "t")
	if len(differing) > 0 || !comparison.FindsRows() {
		t.Fatalf("buckets %v differ; rows can be looked up: %t", differing, comparison.FindsRows())
	}
	still := must[*Still](t)(TakeStill(t.Context(), c.home, connectLike(t, c.home)))
	all := must[map[string]string](t)(comparison.RowsOf(t.Context(), still, "true", must[*Digest](t)(comparison.DigestIn(t.Context(), still, "true", noRest)).Differing(&Digest{}), noRest))
	if len(all) != 500 {
		t.Fatalf("there are %d rows", len(all))
	}
	keys := slices.Collect(maps.Keys(all))
	if found := must[map[string]string](t)(comparison.RowsWith(t.Context(), c.copy, "true", keys)); !maps.Equal(found, all) {
		t.Errorf("of %d rows %d were found, and not all are equal", len(all), len(found))
	}
	execute(t, c.copy, "DELETE FROM public.t WHERE n <= 100; UPDATE public.t SET n = 0 WHERE n > 400")
	same := 0
	for key, hash := range must[map[string]string](t)(comparison.RowsWith(t.Context(), c.copy, "t.n > -1", keys)) {
		if all[key] == hash {
			same++
		}
	}
	if same != 300 {
		t.Errorf("%d rows are as they were, and should be 300", same)
	}
	if found := must[map[string]string](t)(comparison.RowsWith(t.Context(), c.copy, "t.n = 0", keys)); len(found) != 100 {
		t.Errorf("%d rows fit the condition, and should be 100", len(found))
	}
	if found := must[map[string]string](t)(comparison.RowsWith(t.Context(), c.copy, "true", nil)); len(found) != 0 {
		t.Errorf("of no rows %d were found", len(found))
	}
	execute(t, c.copy, "UPDATE public.t SET o = upper(o), m = 'AB' || n::text WHERE n = 200") // equal to what it was, and another text
	if found := must[map[string]string](t)(comparison.RowsWith(t.Context(), c.copy, "t.n = 200", keys)); len(found) != 0 {
		t.Errorf("another key was found: %v", found)
	}
	c.both(t, `CREATE FUNCTION public.lossy(text) RETURNS public.mood LANGUAGE sql IMMUTABLE AS $$ SELECT 'sad'::public.mood $$; CREATE CAST (text AS public.mood) WITH FUNCTION public.lossy(text)`)
	if found, err := comparison.RowsWith(t.Context(), c.copy, "true", keys); !errors.Is(err, ErrNotFindable) {
		t.Errorf("values that are not what their texts say: %d rows, %v", len(found), err)
	}
	if keyless, _ := c.compare(t, "keyless"); keyless.FindsRows() {
		t.Error("rows without a key can be looked up")
	}
}

// connectLike connects as somebody else has.
func connectLike(t *testing.T, conn *pgx.Conn) *pgx.Conn {
	t.Helper()
	other := must[*pgx.Conn](t)(pgx.ConnectConfig(t.Context(), conn.Config()))
	t.Cleanup(func() { _ = other.Close(context.Background()) })
	return other
}

func noRest(context.Context, time.Duration, int64) error { return nil }
