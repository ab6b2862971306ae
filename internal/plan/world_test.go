package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/topology"
)

// The cluster that all tests plan for: home, east and west; tables of every kind; a keyspace that places schemas.

const home = "home"

func must[T any](t testing.TB) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// shards returns a map with shards alone.
func shards(t testing.TB, names ...string) *topology.Map {
	t.Helper()
	m := must[*topology.Map](t)(topology.New("7b2f4f0e-4c1d-4a55-9a9f-0d3b6f1c2a11"))
	for _, name := range names {
		m = must[*topology.Map](t)(m.Next(topology.AddShard(topology.ShardSpec{Name: name, Primary: topology.InstanceSpec{Address: name + ":5432"}})))
	}
	return m
}

func hashed(t testing.TB, m *topology.Map, name string, types ...string) topology.Change {
	t.Helper()
	spec := topology.NewKeyspaceSpec(name, topology.ByHash, 42, types...)
	var err error
	if spec.Ranges, spec.Assignment, err = m.Assign(topology.Assignment{Algorithm: "even"}); err != nil {
		t.Fatal(err)
	}
	return topology.CreateKeyspace(spec)
}

// maps are the shard maps that a case can ask for by name.
func maps(t testing.TB) map[string]*topology.Map {
	t.Helper()
	three, one := shards(t, home, "east", "west"), shards(t, home)
	spans := topology.NewKeyspaceSpec("spans", topology.ByRange, 0, "bigint")
	spans.Ranges = must[[]topology.RangeSpec](t)(three.Split([]string{"bigint"}, []topology.Point{{"100"}, {"200"}}))
	words := topology.NewKeyspaceSpec("words", topology.ByRange, 0, "text")
	words.Ranges = must[[]topology.RangeSpec](t)(three.Split([]string{"text"}, []topology.Point{{"g"}, {"p"}}))
	tenants := topology.NewKeyspaceSpec("tenants", topology.BySchema, 1)
	tenants.Ranges, tenants.Assignment = must2(t)(three.Assign(topology.Assignment{Algorithm: "even"}))
	place := must[*topology.Map](t)
	reference := topology.SetTable(topology.TableSpec{Name: "countries", Kind: topology.Reference})
	return map[string]*topology.Map{
		"empty": three,
		"one":   place(one.Next(reference)),
		"alone": place(one.Next(reference, hashed(t, one, "users", "bigint"),
			topology.SetTable(topology.TableSpec{Name: "orders", Kind: topology.Sharded, Keyspace: "users", Key: []string{"user_id"}}),
			topology.SetTable(topology.TableSpec{Name: "items", Kind: topology.Sharded, Keyspace: "users", Key: []string{"user_id"}}))),
		"reference": place(three.Next(reference)),
		"schemas": place(three.Next(topology.CreateKeyspace(tenants), topology.SetPins("tenants",
			topology.PinSpec{Key: topology.Point{"tenant_east"}, Shard: "east"}, topology.PinSpec{Key: topology.Point{"tenant_home"}, Shard: home}))),
		"moving": place(three.Next(topology.CreateKeyspace(tenants), topology.SetPins("tenants",
			topology.PinSpec{Key: topology.Point{"tenant_east"}, Shard: "east"}, topology.PinSpec{Key: topology.Point{"tenant_home"}, Shard: home}),
			topology.SetTable(topology.TableSpec{Name: "tenant_east.docs", Kind: topology.Single, Shard: "east"}), topology.SetTable(topology.TableSpec{Name: "tenant_home.docs", Kind: topology.Single, Shard: home}))),
		"full": place(three.Next(
			topology.CreateKeyspace(spans), topology.CreateKeyspace(words), hashed(t, three, "users", "bigint"), hashed(t, three, "places", "text", "integer"), topology.CreateKeyspace(tenants),
			topology.SetPins("tenants", topology.PinSpec{Key: topology.Point{"tenant_east"}, Shard: "east"},
				topology.PinSpec{Key: topology.Point{"tenant_west"}, Shard: "west"}, topology.PinSpec{Key: topology.Point{"tenant_home"}, Shard: home}),
			topology.SetTable(topology.TableSpec{Name: "orders", Kind: topology.Sharded, Keyspace: "users", Key: []string{"user_id"}}),
			topology.SetTable(topology.TableSpec{Name: "items", Kind: topology.Sharded, Keyspace: "users", Key: []string{"user_id"}}),
			topology.SetTable(topology.TableSpec{Name: "parcels", Kind: topology.Sharded, Keyspace: "users", Key: []string{"user_id"}, IDs: []topology.MadeID{{Column: "id", Floor: 1000}, {Column: "loose", Floor: 1000}}}),
			topology.SetTable(topology.TableSpec{Name: "letters", Kind: topology.Sharded, Keyspace: "users", Key: []string{"user_id"}, IDs: []topology.MadeID{{Column: "id", Floor: 2000}}}),
			topology.SetTable(topology.TableSpec{Name: "stops", Kind: topology.Sharded, Keyspace: "places", Key: []string{"region", "place"}, IDs: []topology.MadeID{{Column: "id", Floor: 1000}}, MadeKeys: []string{"place"}}),
			hashed(t, three, "tokens", "uuid"), topology.SetTable(topology.TableSpec{Name: "tokens", Kind: topology.Sharded, Keyspace: "tokens", Key: []string{"id"}}),
			topology.SetTable(topology.TableSpec{Name: "desks", Kind: topology.Sharded, Keyspace: "places", Key: []string{"region", "place"}}),
			topology.SetTable(topology.TableSpec{Name: "people", Kind: topology.Sharded, Keyspace: "users", Key: []string{"id"}, MadeKeys: []string{"id"}}),
			topology.SetTable(topology.TableSpec{Name: "visits", Kind: topology.Sharded, Keyspace: "places", Key: []string{"region", "place"}}),
			topology.SetTable(topology.TableSpec{Name: "users", Kind: topology.Sharded, Keyspace: "users", Key: []string{"id"}}),
			topology.SetTable(topology.TableSpec{Name: "spots", Kind: topology.Sharded, Keyspace: "places", Key: []string{"region", "place"}}),
			topology.SetTable(topology.TableSpec{Name: "readings", Kind: topology.Sharded, Keyspace: "spans", Key: []string{"sensor"}}),
			topology.SetTable(topology.TableSpec{Name: "terms", Kind: topology.Sharded, Keyspace: "words", Key: []string{"term"}}),
			topology.SetTable(topology.TableSpec{Name: "tariffs", Kind: topology.Reference}),
			hashed(t, three, "times", "timestamptz"), topology.SetTable(topology.TableSpec{Name: "beats", Kind: topology.Sharded, Keyspace: "times", Key: []string{"at"}}),
			topology.SetTable(topology.TableSpec{Name: `"Odd Name"`, Kind: topology.Sharded, Keyspace: "users", Key: []string{"User"}}),
			topology.SetTable(topology.TableSpec{Name: "ruled", Kind: topology.Sharded, Keyspace: "users", Key: []string{"user_id"}}),
			topology.SetTable(topology.TableSpec{Name: "fresh", Kind: topology.Sharded, Keyspace: "users", Key: []string{"user_id"}}),
			topology.SetTable(topology.TableSpec{Name: "sales.ledger", Kind: topology.Sharded, Keyspace: "users", Key: []string{"user_id"}}),
			reference,
			topology.SetTable(topology.TableSpec{Name: "rates", Kind: topology.Reference}),
			topology.SetTable(topology.TableSpec{Name: "prices", Kind: topology.Single, Shard: "east"}),
			topology.SetTable(topology.TableSpec{Name: "quotes", Kind: topology.Single, Shard: "west"}),
			topology.SetTable(topology.TableSpec{Name: "logged_jobs", Kind: topology.Single, Shard: home}),
			topology.SetTable(topology.TableSpec{Name: "jobs", Kind: topology.Single, Shard: home}))),
	}
}

func must2(t testing.TB) func([]topology.RangeSpec, topology.Assignment, error) ([]topology.RangeSpec, topology.Assignment) {
	return func(ranges []topology.RangeSpec, by topology.Assignment, err error) ([]topology.RangeSpec, topology.Assignment) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return ranges, by
	}
}

const (
	int4, int8, text, varchar, timestamptz, bpchar, float8, date, uuid = 23, 20, 25, 1043, 1184, 1042, 701, 1082, 2950
)

func column(name string, oid uint32) plan.Column {
	return plan.Column{Name: name, TypeOID: oid, TypeMod: -1}
}

func fixed(name string, oid uint32, value string) plan.Column {
	return plan.Column{Name: name, TypeOID: oid, TypeMod: -1, NotNull: true, HasDefault: true, Fixed: &value}
}

func key(name string, oid uint32) plan.Column {
	return plan.Column{Name: name, TypeOID: oid, TypeMod: -1, NotNull: true}
}

// numbered is a column whose default is the next number of a sequence.
func numbered(name, sequence string) plan.Column {
	return plan.Column{Name: name, TypeOID: int8, TypeMod: -1, NotNull: true, HasDefault: true, DefaultVaries: true, Sequence: sequence, Counts: true}
}

// view is one over declared tables.
func view(name, sql string, everywhere bool, columns ...plan.Column) plan.Relation {
	return plan.Relation{
		Schema: "public", Name: name, Kind: 'v', ReachesDeclared: true, Reaches: "public.orders", Columns: columns,
		View: &plan.View{SQL: sql, Owner: "alice", Everywhere: everywhere},
	}
}

// relations are those of the home shard.
var relations = []plan.Relation{
	{Schema: "public", Name: "orders", Kind: 'r', Columns: []plan.Column{column("id", int8), key("user_id", int8), column("note", text), column("made", timestamptz)}},
	{Schema: "public", Name: "items", Kind: 'r', Columns: []plan.Column{{Name: "user_id", TypeOID: int8, TypeMod: -1, NotNull: true, HasDefault: true}, column("n", int4)}},
	{Schema: "public", Name: "parcels", Kind: 'r', Columns: []plan.Column{numbered("id", "public.parcels_id_seq"), key("user_id", int8), column("note", text), column("loose", int8)}},
	{Schema: "public", Name: "letters", Kind: 'r', Columns: []plan.Column{numbered("id", "public.letters_id_seq"), key("user_id", int8), column("parcel_id", int8)}},
	{Schema: "public", Name: "stops", Kind: 'r', Columns: []plan.Column{numbered("id", "public.stops_id_seq"), key("region", text), numbered("place", "public.stops_place_seq"), column("title", text)}},
	{Schema: "public", Name: "tokens", Kind: 'r', Columns: []plan.Column{{Name: "id", TypeOID: uuid, TypeMod: -1, NotNull: true, HasDefault: true, DefaultVaries: true, RandomUUID: true}, column("note", text)}},
	{Schema: "public", Name: "desks", Kind: 'r', Columns: []plan.Column{column("note", text), fixed("place", int4, "1"), fixed("region", text, "north")}},
	{Schema: "public", Name: "people", Kind: 'r', Columns: []plan.Column{numbered("id", "public.people_id_seq"), column("name", text)}},
	{Schema: "public", Name: "visits", Kind: 'p', Columns: []plan.Column{{Name: "region", TypeOID: varchar, TypeMod: 14, NotNull: true}, key("place", int4), column("n", int8)}},
	{Schema: "public", Name: "visits_north", Kind: 'r', PartitionOf: &plan.RelationName{Schema: "public", Name: "visits"},
		Columns: []plan.Column{{Name: "region", TypeOID: varchar, TypeMod: 14, NotNull: true}, key("place", int4), column("n", int8)}},
	{Schema: "public", Name: "users", Kind: 'r', Columns: []plan.Column{key("id", int4), column("name", text), column("boss", int8)}},
	{Schema: "public", Name: "spots", Kind: 'r', Columns: []plan.Column{key("region", text), key("place", int4), column("title", text)}},
	{Schema: "public", Name: "readings", Kind: 'r', Columns: []plan.Column{key("sensor", int8), column("v", int8)}},
	{Schema: "public", Name: "terms", Kind: 'r', Columns: []plan.Column{key("term", text), column("v", int8)}},
	{Schema: "public", Name: "tariffs", Kind: 'r', Columns: []plan.Column{
		{Name: "id", TypeOID: int8, TypeMod: -1, HasDefault: true, DefaultVaries: true, Sequence: "public.tariffs_id_seq"}, column("code", bpchar), {Name: "kind", TypeOID: text, TypeMod: -1, HasDefault: true},
		{Name: "since", TypeOID: timestamptz, TypeMod: -1, HasDefault: true, DefaultVaries: true, Timed: "now()"}, column("factor", float8),
		{Name: "label", TypeOID: text, TypeMod: -1, Nondeterministic: true}, column("day", date)}},
	{Schema: "public", Name: "beats", Kind: 'r', Columns: []plan.Column{key("at", timestamptz), column("n", int8)}},
	{Schema: "public", Name: "Odd Name", Kind: 'r', Columns: []plan.Column{key("User", int8), column("user", text)}},
	{Schema: "public", Name: "ruled", Kind: 'r', HasRules: true, Columns: []plan.Column{key("user_id", int8)}},
	{Schema: "sales", Name: "ledger", Kind: 'r', RowSecurity: true, Columns: []plan.Column{key("user_id", int8), column("amount", int8)}},
	{Schema: "public", Name: "countries", Kind: 'r', Columns: []plan.Column{column("code", text), column("name", text), column("user_id", int8)}},
	{Schema: "public", Name: "rates", Kind: 'r', Columns: []plan.Column{column("code", text), column("rate", int8)}},
	{Schema: "public", Name: "jobs", Kind: 'r', Columns: []plan.Column{column("id", int8)}},
	{Schema: "public", Name: "notes", Kind: 'r', Columns: []plan.Column{column("id", int8), column("body", text)}},
	{Schema: "other", Name: "orders_view", Kind: 'r', Columns: []plan.Column{column("id", int8)}},
	{Schema: "other", Name: "plain", Kind: 'r', Columns: []plan.Column{column("id", int8)}},
	{Schema: "public", Name: "notes_view", Kind: 'v', Columns: []plan.Column{column("id", int8)}},
	{Schema: "public", Name: "stored", Kind: 'm', Columns: []plan.Column{column("id", int8)}},
	{Schema: "public", Name: "orders_view", Kind: 'v', ReachesDeclared: true, Reaches: "public.orders", Columns: []plan.Column{column("id", int8)}},
	view("big_orders", "SELECT orders.id, orders.user_id, orders.note FROM public.orders WHERE (orders.id > 10)", true, column("id", int8), column("user_id", int8), column("note", text)),
	view("timed_orders", "SELECT orders.id, orders.user_id, now() AS now FROM public.orders WHERE (orders.made < CURRENT_TIMESTAMP)", true, column("id", int8), column("user_id", int8), column("now", timestamptz)),
	view("own_orders", "SELECT o.id AS number, o.user_id AS owner, u.name FROM (public.orders o JOIN public.users u ON ((u.id = o.user_id)))", true, column("number", int8), column("owner", int8), column("name", text)),
	view("order_counts", "SELECT orders.user_id, count(*) AS n FROM public.orders GROUP BY orders.user_id", true, column("user_id", int8), column("n", int8)),
	view("note_counts", "SELECT orders.note, count(*) AS n FROM public.orders WHERE (orders.id > 10) GROUP BY orders.note", true, column("note", text), column("n", int8)),
	view("over_big", "SELECT big_orders.id, big_orders.user_id AS who FROM public.big_orders WHERE (big_orders.note <> 'x'::text)", true, column("id", int8), column("who", int8)),
	view("last_orders", "SELECT orders.id, orders.user_id FROM public.orders ORDER BY orders.id DESC LIMIT 3", true, column("id", int8), column("user_id", int8)),
	view("both_kinds", "SELECT orders.user_id, 'o'::text AS kind FROM public.orders UNION ALL SELECT items.user_id, 'i'::text AS kind FROM public.items", true, column("user_id", int8), column("kind", text)),
	view("ranked", "SELECT orders.id, orders.user_id, rank() OVER (PARTITION BY orders.note ORDER BY orders.id) AS place FROM public.orders", true,
		column("id", int8), column("user_id", int8), column("place", int8)),
	view("noted_orders", "SELECT o.id, o.user_id, n.body FROM (public.orders o JOIN public.notes n ON ((n.id = o.id)))", false, column("id", int8), column("user_id", int8), column("body", text)),
	view("noted_countries", "SELECT c.code, n.body FROM (public.countries c JOIN public.notes n ON ((n.id = c.user_id)))", false, column("code", text), column("body", text)),
	view("lands", "SELECT countries.code FROM public.countries", true, column("code", text)),
	view("amounts", "SELECT ledger.amount, count(*) AS n FROM sales.ledger GROUP BY ledger.amount", true, column("amount", int8), column("n", int8)),
	view("ledgers", "SELECT ledger.user_id, ledger.amount FROM sales.ledger", true, column("user_id", int8), column("amount", int8)),
	view("late_orders", "SELECT orders.id, orders.user_id FROM public.orders WHERE (orders.made < now())", true, column("id", int8), column("user_id", int8)),
	view("all_orders", "SELECT orders.id, orders.user_id, orders.note, orders.made FROM public.orders", true, column("id", int8), column("user_id", int8), column("note", text), column("made", timestamptz)),
	view("keyless", "SELECT orders.id, orders.note FROM public.orders", true, column("id", int8), column("note", text)),
	view("swapped", "SELECT orders.user_id AS id, orders.id AS user_id FROM public.orders", true, column("id", int8), column("user_id", int8)),
	view("strange", "SELECT orders.id, orders.user_id FROM public.orders WHERE (orders.id OPERATOR(public.====) 5)", true, column("id", int8), column("user_id", int8)),
	view("accents", "SELECT orders.note, count(*) AS n FROM public.orders WHERE (orders.note <> 'é'::text) GROUP BY orders.note", true, column("note", text), column("n", int8)),
	view("classed", "SELECT o.user_id, c.relname FROM (public.orders o JOIN pg_class c ON ((c.oid = o.id)))", true, column("user_id", int8), column("relname", text)),
	view("lower_counts", "SELECT lower(orders.note) AS note, count(*) AS n FROM public.orders GROUP BY (lower(orders.note))", true, column("note", text), column("n", int8)),
	{Schema: "public", Name: "orders_user_id_idx", Kind: 'i', ReachesDeclared: true, Reaches: "public.orders"},
	{Schema: "public", Name: "notes_seq", Kind: 'S'},
	{Schema: "public", Name: "parcels_id_seq", Kind: 'S', Serves: []plan.RelationName{{Schema: "public", Name: "notes"}, {Schema: "public", Name: "parcels"}}},
	{Schema: "public", Name: "tariffs_id_seq", Kind: 'S', Serves: []plan.RelationName{{Schema: "public", Name: "tariffs"}}},
	{Schema: "public", Name: "audited", Kind: 'r', WritesRun: "public.audit()", Columns: []plan.Column{column("id", int8)}},
	{Schema: "public", Name: "followed", Kind: 'r', WritesRun: "public.orders", Columns: []plan.Column{column("id", int8)}},
	{Schema: "public", Name: "settings_view", Kind: 'v', WritesRun: "pg_catalog.pg_settings", Columns: []plan.Column{column("name", text), column("setting", text)}},
	{Schema: "public", Name: "moods", Kind: 'r', ReachesDeclared: true, Reaches: "public.number_of()", WritesRun: "public.number_of()", Columns: []plan.Column{column("id", int8)}},
	{Schema: "public", Name: "logged_jobs", Kind: 'r', ReachesDeclared: true, Reaches: "public.orders", WritesRun: "public.orders", Columns: []plan.Column{column("id", int8)}},
	{Schema: "tenant_home", Name: "ruled", Kind: 'r', ReachesDeclared: true, Reaches: "public.orders", Columns: []plan.Column{column("id", int8)}},
	{Schema: "tenant_home", Name: "audited", Kind: 'r', WritesRun: "public.audit()", Columns: []plan.Column{column("id", int8)}},
	{Schema: "other", Name: "orders", Kind: 'r', Columns: []plan.Column{column("user_id", int8)}},
	{Schema: "tenant_home", Name: "docs", Kind: 'r', Columns: []plan.Column{column("id", int8)}},
	{Schema: "pg_catalog", Name: "pg_class", Kind: 'r', System: true},
	{Schema: "pg_catalog", Name: "pg_settings", Kind: 'v', System: true},
	{Schema: "information_schema", Name: "tables", Kind: 'v', System: true},
}

func builtin(volatility byte, names string) []plan.Function {
	var functions []plan.Function
	for _, name := range strings.Fields(names) {
		functions = append(functions, plan.Function{Schema: "pg_catalog", Name: name, System: true, Kind: 'f', Language: "internal", Volatility: volatility})
	}
	return functions
}

func ofKind(kind byte, functions []plan.Function) []plan.Function {
	for i := range functions {
		functions[i].Kind = kind
	}
	return functions
}

// functions are those of the home shard.
var functions = slices.Concat(
	builtin('i', "lower abs unnest like_escape generate_series"),
	ofKind('a', builtin('i', "count sum max min array_agg")), ofKind('w', builtin('i', "row_number rank")),
	builtin('s', "now current_setting to_regclass to_char"),
	builtin('v', `random clock_timestamp nextval currval lastval setval set_config pg_advisory_lock pg_advisory_unlock pg_try_advisory_lock
		pg_advisory_unlock_all pg_advisory_xact_lock pg_relation_size query_to_xml pg_sleep pg_notify lo_create pg_backend_pid`),
	[]plan.Function{
		{Schema: "public", Name: "total", Kind: 'f', Language: "sql", Volatility: 's'},
		{Schema: "public", Name: "given", Kind: 'f', Language: "sql", Volatility: 'i'},
		{Schema: "public", Name: "json_scalar", Kind: 'f', Language: "sql", Volatility: 'v'},
		{Schema: "public", Name: "pure", Kind: 'f', Language: "plpgsql", Volatility: 'i'},
		{Schema: "public", Name: "fast", Kind: 'f', Language: "c", Volatility: 'v', ExtensionMember: true},
		{Schema: "public", Name: "dblink", Kind: 'f', Language: "c", Volatility: 'v', ExtensionMember: true},
		{Schema: "public", Name: "my_sum", Kind: 'a', Language: "internal", Volatility: 'i'},
		{Schema: "public", Name: "lower", Kind: 'f', Language: "plpgsql", Volatility: 'v'},
		{Schema: "other", Name: "now", Kind: 'f', Language: "plpgsql", Volatility: 'v'},
		{Schema: "other", Name: "set_config", Kind: 'f', Language: "c", Volatility: 'v', ExtensionMember: true},
		{Schema: "public", Name: "proc", Kind: 'p', Language: "plpgsql", Volatility: 'v'},
	})

// behind are the functions behind operators and types of the home shard.
var behind = map[plan.FunctionName][]plan.Function{
	{Schema: "public", Name: "====", Kind: plan.OfOperator}: {{Schema: "public", Name: "same", Kind: 'f', Language: "plpgsql", Volatility: 'v'}},
	{Schema: "public", Name: "===", Kind: plan.OfOperator}:  {{Schema: "public", Name: "pure", Kind: 'f', Language: "plpgsql", Volatility: 'i'}},
	{Schema: "public", Name: "<->", Kind: plan.OfOperator}:  {{Schema: "public", Name: "near", Kind: 'f', Language: "plpgsql", Volatility: 's', ExtensionMember: true}},
	{Schema: "odd", Name: "+", Kind: plan.OfOperator}:       {{Schema: "odd", Name: "add", Kind: 'f', Language: "sql", Volatility: 's'}},
	{Schema: "odd", Name: "=", Kind: plan.OfOperator}:       {{Schema: "odd", Name: "same", Kind: 'f', Language: "plpgsql", Volatility: 's'}},
	{Schema: "loose", Name: "=", Kind: plan.OfOperator}:     {{Schema: "loose", Name: "same", Kind: 'f', Language: "sql", Volatility: 'i', Overrides: true}},
	{Schema: "odd", Name: ">=", Kind: plan.OfOperator}:      {{Schema: "odd", Name: "over", Kind: 'f', Language: "plpgsql", Volatility: 's'}},
	{Schema: "public", Name: "checked", Kind: plan.OfType}:  {builtin('s', "domain_in")[0], {Schema: "public", Name: "fits", Kind: 'f', Language: "plpgsql", Volatility: 'v'}},
	{Schema: "public", Name: "harmless", Kind: plan.OfType}: {builtin('s', "domain_in")[0], {Schema: "public", Name: "pure", Kind: 'f', Language: "plpgsql", Volatility: 'i'}},
	{Schema: "public", Name: "mood", Kind: plan.OfType}:     {builtin('s', "enum_in")[0]},
	{Schema: "public", Name: "fuzzy", Kind: plan.OfType}:    {{Schema: "public", Name: "fuzzy_in", Kind: 'f', Language: "c", Volatility: 'i', ExtensionMember: true}},
}

// builtinTypes and builtinOperators are some of PostgreSQL's own.
var (
	builtinTypes     = strings.Fields("text int4 int8 bool varchar numeric date timestamptz interval regclass json jsonb uuid bytea bpchar")
	builtinOperators = strings.Fields("= <> < > <= >= + - * / || ~~ ~~* ~ -> ->> @>")
)

// lookBehind returns the functions behind an operator or a type.
func lookBehind(name plan.FunctionName, path []string) []plan.Function {
	var found []plan.Function
	isBuiltin := name.Kind == plan.OfType && slices.Contains(builtinTypes, name.Name) || name.Kind == plan.OfOperator && slices.Contains(builtinOperators, name.Name)
	if isBuiltin && (name.Schema == "" || name.Schema == "pg_catalog") {
		found = builtin('i', "builtin")
	}
	if name.Schema != "" {
		path = []string{name.Schema}
	}
	for _, schema := range path {
		found = append(found, behind[plan.FunctionName{Schema: schema, Name: name.Name, Kind: name.Kind}]...)
	}
	return found
}

// look answers as the home shard's catalogue would.
func look(wantedRelations []plan.RelationName, wantedFunctions []plan.FunctionName, path []string) *plan.Known {
	if !slices.Contains(path, "pg_catalog") {
		path = append([]string{"pg_catalog"}, path...)
	}
	known := &plan.Known{Relations: map[plan.RelationName]*plan.Relation{}, Functions: map[plan.FunctionName][]plan.Function{}}
	for _, name := range wantedRelations {
		known.Relations[name] = relationNamed(name, path)
	}
	for _, name := range wantedFunctions {
		known.Functions[name] = nil
		if name.Kind != plan.OfFunction {
			known.Functions[name] = lookBehind(name, path)
			continue
		}
		for _, f := range functions {
			if f.Name == name.Name && (f.Schema == name.Schema || name.Schema == "" && slices.Contains(path, f.Schema)) {
				known.Functions[name] = append(known.Functions[name], f)
			}
		}
	}
	return known
}

func relationNamed(name plan.RelationName, path []string) *plan.Relation {
	if name.Schema != "" {
		path = []string{name.Schema}
	}
	for _, schema := range path {
		for _, all := range [][]plan.Relation{relations, toyRelations} {
			for i := range all {
				if all[i].Schema == schema && all[i].Name == name.Name {
					return &all[i]
				}
			}
		}
	}
	return nil
}
