package catalog

import (
	"slices"
	"testing"

	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/topology"
)

// hiding are relations behind which there is code, and functions of every sort that it may call.
const hiding = `
	CREATE TABLE orders (user_id bigint);
	CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
	CREATE FUNCTION any_text() RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$;
	CREATE FUNCTION fits(anyelement) RETURNS bool LANGUAGE plpgsql STABLE AS 'BEGIN RETURN true; END';
	CREATE FUNCTION sure(anyelement) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN true; END';
	CREATE FUNCTION counts() RETURNS bigint BEGIN ATOMIC SELECT count(*) FROM orders; END;
	CREATE DOMAIN checked AS int CHECK (fits(value)); CREATE DOMAIN doubly AS checked; CREATE DOMAIN harmless AS int CHECK (sure(value) AND value > 0);
	CREATE DOMAIN given AS text DEFAULT any_text();
	CREATE TYPE pair AS (a int, b checked); CREATE TYPE span AS RANGE (subtype = checked);
	CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE TYPE taste AS ENUM ('sweet');
	CREATE FUNCTION number_of(mood) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END'; CREATE CAST (mood AS int) WITH FUNCTION number_of(mood);
	CREATE FUNCTION number_of(taste) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1; END'; CREATE CAST (taste AS int) WITH FUNCTION number_of(taste) AS IMPLICIT;
	CREATE FUNCTION day_of(inet) RETURNS date LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE CAST (inet AS date) WITH FUNCTION day_of(inet);
	CREATE FUNCTION truth(float8) RETURNS macaddr LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE CAST (float8 AS macaddr) WITH FUNCTION truth(float8) AS ASSIGNMENT;
	CREATE FUNCTION like_each(text, text) RETURNS bool LANGUAGE plpgsql AS 'BEGIN RETURN true; END'; CREATE OPERATOR ==== (LEFTARG = text, RIGHTARG = text, FUNCTION = like_each);
	CREATE FUNCTION like_sure(text, text) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN true; END'; CREATE OPERATOR + (LEFTARG = text, RIGHTARG = text, FUNCTION = like_sure);
	CREATE OPERATOR === (LEFTARG = text, RIGHTARG = text, FUNCTION = texteq);

	CREATE FUNCTION given_text(a text DEFAULT any_text()) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT a';
	CREATE FUNCTION given_number(a int DEFAULT 5, b text DEFAULT upper('x')) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT a';
	CREATE FUNCTION make_mood() RETURNS mood LANGUAGE sql IMMUTABLE AS $$ SELECT 'good'::mood $$;
	CREATE FUNCTION make_moods(OUT a mood, OUT b int) LANGUAGE sql IMMUTABLE AS $$ SELECT 'good'::mood, 1 $$;
	CREATE FUNCTION takes_checked(checked) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
	CREATE FUNCTION plus(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';
	CREATE FUNCTION pairs_equal(pair, pair) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT true'; CREATE OPERATOR <=> (LEFTARG = pair, RIGHTARG = pair, FUNCTION = pairs_equal);
	CREATE OPERATOR = (LEFTARG = text, RIGHTARG = text, FUNCTION = textne);
	CREATE TABLE bare (a text, b bigint DEFAULT 5 CHECK (b > 0), c timestamptz DEFAULT now(), d bigserial);
	CREATE TABLE triggered (a text); CREATE TRIGGER t AFTER INSERT ON triggered FOR EACH ROW EXECUTE FUNCTION act();
	CREATE TABLE silenced (a text); CREATE TRIGGER t AFTER INSERT ON silenced FOR EACH ROW EXECUTE FUNCTION act(); ALTER TABLE silenced DISABLE TRIGGER t;
	CREATE TABLE built_in (a text); CREATE TRIGGER t BEFORE UPDATE ON built_in FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();
	CREATE TABLE conditional (a text); CREATE TRIGGER t BEFORE UPDATE ON conditional FOR EACH ROW WHEN (fits(NEW.a)) EXECUTE FUNCTION suppress_redundant_updates_trigger();
	CREATE TABLE defaulted (a text DEFAULT any_text()); CREATE TABLE counted (a bigint DEFAULT counts());
	CREATE TABLE limited (a text CHECK (fits(a))); CREATE TABLE surely (a text CHECK (sure(a)));
	CREATE TABLE compared (a text CHECK (a ==== 'x'));
	CREATE TABLE generated (a text, b bool GENERATED ALWAYS AS (sure(a)) STORED);
	CREATE TABLE of_domain (a doubly); CREATE TABLE of_harmless (a harmless); CREATE TABLE of_arrays (a checked[]); CREATE TABLE of_pairs (a pair); CREATE TABLE of_given (a given);
	CREATE TABLE of_rows (a of_domain); CREATE TABLE of_orders (a orders);
	CREATE TABLE moods (a mood[]); CREATE TABLE tastes (a taste); CREATE TABLE floats (a float8); CREATE TABLE days (a date);
	CREATE TABLE row_cast (a text); CREATE FUNCTION number_of(row_cast) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END'; CREATE CAST (row_cast AS int) WITH FUNCTION number_of(row_cast);
	CREATE VIEW over_triggered AS SELECT * FROM triggered; CREATE VIEW over_bare AS SELECT a, b FROM bare;
	CREATE VIEW instead AS SELECT 1 AS a; CREATE TRIGGER t INSTEAD OF INSERT ON instead FOR EACH ROW EXECUTE FUNCTION act();
	CREATE VIEW casts AS SELECT b::int::checked FROM bare;
	CREATE TABLE parted (a int) PARTITION BY LIST (a); CREATE TABLE part PARTITION OF parted DEFAULT; CREATE TRIGGER t AFTER INSERT ON part FOR EACH ROW EXECUTE FUNCTION act();
	CREATE TABLE cloned (a int) PARTITION BY LIST (a); CREATE TRIGGER t AFTER INSERT ON cloned FOR EACH ROW EXECUTE FUNCTION act(); CREATE TABLE clone PARTITION OF cloned DEFAULT;
	CREATE TABLE followed (a text UNIQUE); CREATE TABLE follower (a text REFERENCES followed (a) ON DELETE CASCADE); CREATE TRIGGER t AFTER DELETE ON follower FOR EACH ROW EXECUTE FUNCTION act();
	CREATE TABLE kept (a text UNIQUE); CREATE TABLE keeper (a text REFERENCES kept (a)); CREATE TRIGGER t AFTER DELETE ON keeper FOR EACH ROW EXECUTE FUNCTION act();
	CREATE TABLE ruled (a text); CREATE RULE also AS ON INSERT TO ruled DO ALSO INSERT INTO triggered VALUES (NEW.a);
	CREATE VIEW parameters AS SELECT name, setting FROM pg_settings;
	CREATE SCHEMA cleave; CREATE FUNCTION cleave.watch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
	CREATE TABLE watched (a text); CREATE TRIGGER t AFTER INSERT ON watched FOR EACH ROW EXECUTE FUNCTION cleave.watch()`

// TestCodeBehindTables: what reading a table runs, and what writing to it runs.
func TestCodeBehindTables(t *testing.T) {
	b := newBench(t)
	b.run(t, hiding)
	c := open(t, b.config())
	const act, fits = "public.act()", "public.fits()"
	written := map[string]string{
		"bare": "", "triggered": act, "silenced": "", "built_in": "", "conditional": fits, "defaulted": "public.any_text()", "counted": "public.orders", "limited": fits,
		"surely": "", "compared": "public.like_each()", "generated": "", "of_domain": fits, "of_harmless": "", "of_arrays": fits, "of_pairs": fits, "of_given": "public.any_text()", "of_rows": fits, "of_orders": "",
		"tastes": "", "over_triggered": act, "over_bare": "", "instead": act, "parted": act, "part": act, "cloned": act, "clone": act, "followed": act, "kept": "", "keeper": act, "watched": "",
		"parameters": "pg_catalog.pg_settings", "moods": "public.number_of()", "casts": fits, "ruled": act, "floats": "public.truth()", "days": "", "row_cast": "public.number_of()",
	}
	read := map[string]string{"moods": "public.number_of()", "casts": fits, "ruled": act, "floats": "public.truth()", "row_cast": "public.number_of()"}
	expect := func(read, written map[string]string, names map[string]string) {
		t.Helper()
		for name := range names {
			r := lookRelation(t, c, "", name, "public")
			if r == nil || r.Reaches != read[name] || r.ReachesDeclared != (read[name] != "") || r.WritesRun != written[name] {
				t.Errorf("%s: %+v, want it to reach %q and to run %q", name, r, read[name], written[name])
			}
		}
	}
	expect(nil, map[string]string{"parameters": "pg_catalog.pg_settings"}, written)
	b.change(t, topology.SetTable(topology.TableSpec{Name: "orders", Kind: topology.Sharded, Keyspace: "users", Key: []string{"user_id"}}))
	expect(read, written, written)
	if r := lookRelation(t, c, "", "orders", "public"); r.ReachesDeclared || r.WritesRun != "" {
		t.Errorf("a declared table is what is reached: %+v", r)
	}
}

// TestFunctionsBehindOperatorsAndTypes: which functions an operator or a type stands for.
func TestFunctionsBehindOperatorsAndTypes(t *testing.T) {
	b := newBench(t)
	b.run(t, hiding)
	c := open(t, b.config())
	for _, test := range []struct {
		kind plan.NameKind
		name string
		want []string
	}{
		{plan.OfOperator, "====", []string{"public.like_each"}},
		{plan.OfOperator, "===", []string{"pg_catalog.texteq"}},
		{plan.OfOperator, "=====", nil},
		{plan.OfType, "checked", []string{"pg_catalog.domain_in", "public.fits"}},
		{plan.OfType, "doubly", []string{"pg_catalog.domain_in", "public.fits"}},
		{plan.OfType, "_checked", []string{"pg_catalog.array_in", "public.fits"}},
		{plan.OfType, "pair", []string{"pg_catalog.record_in", "public.fits"}},
		{plan.OfType, "span", []string{"pg_catalog.range_in", "public.fits", "public.span_multirange"}},
		{plan.OfType, "harmless", []string{"pg_catalog.domain_in", "public.sure"}},
		{plan.OfType, "mood", []string{"pg_catalog.enum_in", "public.number_of"}},
		{plan.OfType, "date", []string{"pg_catalog.date_in", "public.day_of"}},
		{plan.OfType, "text", []string{"pg_catalog.textin"}},
		{plan.OfType, "macaddr", []string{"pg_catalog.macaddr_in", "public.truth"}},
		{plan.OfType, "orders", []string{"pg_catalog.record_in"}},
		{plan.OfType, "nothing", nil},
		{plan.OfFunction, "====", nil},
		{plan.OfFunction, "checked", nil},
		{plan.OfFunction, "given_text", []string{"public.any_text", "public.given_text"}},
		{plan.OfFunction, "given_number", []string{"public.given_number"}},
		{plan.OfFunction, "make_mood", []string{"public.make_mood", "public.number_of"}},
		{plan.OfFunction, "make_moods", []string{"public.make_moods", "public.number_of"}},
		{plan.OfFunction, "takes_checked", []string{"public.fits", "public.takes_checked"}},
		{plan.OfFunction, "plus", []string{"public.plus"}},
	} {
		got := behind(t, c, test.kind, test.name)
		if !slices.Equal(got, test.want) {
			t.Errorf("%d %s: %q, want %q", test.kind, test.name, got, test.want)
		}
	}
	if plus := behind(t, c, plan.OfOperator, "+"); len(plus) != 2 || !slices.Contains(plus, "public.like_sure") {
		t.Errorf("+ has %q: one function of PostgreSQL, and the user's", plus)
	}
}

// TestOperatorsThatOverrideBuiltins: a user's operator is told from PostgreSQL's by what it takes, not by what computes it.
func TestOperatorsThatOverrideBuiltins(t *testing.T) {
	b := newBench(t)
	b.run(t, hiding)
	c := open(t, b.config())
	for name, want := range map[string]bool{"=": true, "<=>": false, "+": true, "<": false} {
		asked := plan.FunctionName{Name: name, Kind: plan.OfOperator}
		known, err := c.Look(t.Context(), nil, []plan.FunctionName{asked}, []string{"public"})
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.ContainsFunc(known.Functions[asked], func(f plan.Function) bool { return f.Overrides }); got != want {
			t.Errorf("%s overrides: %v", name, got)
		}
	}
}

// behind returns the names of the functions behind a name.
func behind(t testing.TB, c *Catalog, kind plan.NameKind, name string) []string {
	t.Helper()
	asked := plan.FunctionName{Name: name, Kind: kind}
	known, err := c.Look(t.Context(), nil, []plan.FunctionName{asked}, []string{"public"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range known.Functions[asked] {
		names = append(names, f.Schema+"."+f.Name)
	}
	slices.Sort(names)
	return names
}
