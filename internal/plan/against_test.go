package plan_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

var (
	invented = flag.Int("invented", 1000, "how many statements to make up")
	seed     = flag.Uint64("seed", 1, "what they are made up from")
)

// TestPlansGiveTheAnswersOfOneServer makes up statements and runs those that are planned twice: on tables that have all rows, and
// where the plan says, on tables that have the rows of one shard each. Answers and what is stored must be the same.
func TestPlansGiveTheAnswersOfOneServer(t *testing.T) {
	for _, key := range [][]string{{"k"}, {"k", "x"}} {
		t.Run(strings.Join(key, " and "), func(t *testing.T) { playWith(t, newToy(t, key)) })
	}
}

func playWith(t *testing.T, toy *toy) {
	t.Helper()
	planned, count := map[string]int{}, *invented
	if raceDetector {
		count /= 10
	}
	for i := range count {
		g := &inventor{Rand: rand.New(rand.NewPCG(*seed, uint64(i)))} //nolint:gosec // it need not be hard to guess
		g.values = []string{strconv.Itoa(g.IntN(6)), strconv.Itoa(g.IntN(6)), "'{1,4}'::bigint[]"}
		text := g.statement()
		planned[toy.check(t, text, g.values)]++
		if t.Failed() {
			t.Fatalf("seed %d, statement %d", *seed, i)
		}
	}
	t.Logf("%v", planned)
	for _, kind := range []string{"keyed", "in parts", "whole", "refused"} {
		if planned[kind] < count/500 {
			t.Errorf("only %d of %d statements are %s", planned[kind], count, kind)
		}
	}
}

// toy is a server with tables in a schema for each shard, and in one for all of them.
type toy struct {
	conn *pgx.Conn
	c    plan.Context
	key  []string
}

const toyShards = 3

// toyFloor is from which on the numbers in a.i say where their rows are: the remainder by the count of shards is the shard's number.
const toyFloor = 3

// toyRelations are its tables as the catalogue has them; a, b and c are sharded.
var toyRelations = []plan.Relation{
	{Schema: "toy", Name: "a", Kind: 'r', Columns: []plan.Column{key("k", int8), column("x", int4), {Name: "i", TypeOID: int8, TypeMod: -1, NotNull: true, HasDefault: true}}},
	{Schema: "toy", Name: "b", Kind: 'r', Columns: []plan.Column{key("k", int4), column("x", int4), column("y", int8)}},
	{Schema: "toy", Name: "c", Kind: 'r', Columns: []plan.Column{column("x", int8), key("k", int8)}},
	{Schema: "toy", Name: "r", Kind: 'r', Columns: []plan.Column{column("x", int4), column("y", int8)}},
	{Schema: "toy", Name: "q", Kind: 'r', Columns: []plan.Column{column("k", int8), column("x", int4)}},
}

func newToy(t *testing.T, key []string) *toy {
	t.Helper()
	server := pgtest.Start(t)
	conn := must[*pgx.Conn](t)(pgx.Connect(t.Context(), server.DSN("postgres")))
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	toy := &toy{conn: conn, key: key}
	for _, schema := range toySchemas() {
		toy.run(t, fmt.Sprintf(`create schema %[1]s; set search_path to %[1]s;
			create table a (k bigint not null, x int, i bigint not null default 0 check (i < %[2]d or i %% %[3]d = %[4]s)); create table b (k int not null, x int, y bigint); create table c (x bigint, k bigint not null);
			create table r (x int, y bigint); create table q (k bigint, x int);
			insert into r values (1, 1), (2, 4), (3, null), (4, 2); insert into q values (1, 2), (2, 1), (5, 5), (null, 3)`, schema, toyFloor, toyShards, toy.remainder()))
	}
	for k := range 6 {
		for _, x := range []int{k, (k * 2) % 5, 5 - k} {
			i := (k + x) % toyFloor // some say where they are, some do not
			if x%2 == 1 {
				i = toyFloor + int(toy.shard(k, x)[len("shard")]-'0')
			}
			for _, schema := range []string{"toy", toy.shard(k, x)} {
				toy.run(t, fmt.Sprintf("set search_path to %s; insert into a values (%[2]d, %[3]d, %[5]d); insert into b values (%[2]d, %[3]d, %[4]d %% 4); insert into c values (%[3]d, %[2]d)",
					schema, k, x, k+x, i))
			}
		}
	}
	if len(key) == 1 {
		toy.run(t, "set search_path to toy, shard0; update toy.c set x = null where k = 3; update shard0.c set x = null where k = 3")
	}
	three := shards(t, home, "east", "west")
	sharded := func(name string, ids ...topology.MadeID) topology.Change {
		return topology.SetTable(topology.TableSpec{Name: "toy." + name, Kind: topology.Sharded, Keyspace: "toys", Key: key, IDs: ids})
	}
	toy.c = plan.Context{SearchPath: []string{"toy"}, Home: home, Alone: true, Map: must[*topology.Map](t)(three.Next(hashed(t, three, "toys", []string{"bigint", "bigint"}[:len(key)]...),
		sharded("a", topology.MadeID{Column: "i", Floor: toyFloor}), sharded("b"), sharded("c"), topology.SetTable(topology.TableSpec{Name: "toy.r", Kind: topology.Reference}), topology.SetTable(topology.TableSpec{Name: "toy.q", Kind: topology.Reference})))}
	return toy
}

// remainder is the number of the shard where a row is, in SQL.
func (toy *toy) remainder() string {
	return fmt.Sprintf("(%s) %% %d", strings.Join(toy.key, " + "), toyShards)
}

// shard is where a row is.
func (toy *toy) shard(k, x int) string {
	if len(toy.key) == 1 {
		x = 0
	}
	return "shard" + strconv.Itoa((k+x)%toyShards)
}

// toySchemas has the one with all rows first.
func toySchemas() []string {
	schemas := []string{"toy"}
	for i := range toyShards {
		schemas = append(schemas, "shard"+strconv.Itoa(i))
	}
	return schemas
}

func (toy *toy) run(t *testing.T, sql string) {
	t.Helper()
	if _, err := toy.conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// check plans a statement and compares; it returns what became of it.
func (toy *toy) check(t *testing.T, text string, values []string) string {
	t.Helper()
	p, err := planOf(t, text, toy.c)
	if err != nil {
		t.Errorf("%s: %v", text, err)
		return "wrong"
	}
	s := &p.Statements[0]
	if s.Refusal != nil {
		return "refused"
	}
	sql := withValues(text, values)
	kind, on := toy.shardsOf(t, text, s, values)
	if on == nil {
		return kind
	}
	want, wantErr := toy.answer(t, []string{"toy"}, sql)
	got, gotErr := toy.answer(t, on, sql)
	if (wantErr == nil) != (gotErr == nil) || want != got {
		t.Errorf("%s\nis planned as\n%s\nOne server: %s %v\nShards %v: %s %v", sql, strings.Join(describeStatement(text, s), "\n"), want, wantErr, on, got, gotErr)
	}
	switch {
	case wantErr != nil:
		return kind + ", an error"
	case strings.HasPrefix(want, " and stored"):
		return kind + ", no rows"
	}
	return kind
}

var parameter = regexp.MustCompile(`\$[0-9]`)

func withValues(text string, values []string) string {
	return parameter.ReplaceAllStringFunc(text, func(name string) string { return values[name[1]-'1'] })
}

// shardsOf returns where a plan runs a statement; nil if it would be refused there, or cannot be tried.
func (toy *toy) shardsOf(t *testing.T, text string, s *plan.Statement, values []string) (kind string, on []string) {
	t.Helper()
	var all []string
	for i := range toyShards {
		all = append(all, "shard"+strconv.Itoa(i))
	}
	r := &s.Route
	switch r.Level {
	case plan.Anywhere:
		return "anywhere", all[:1]
	case plan.Keyed:
		return "keyed", toy.placed(t, text, [][]plan.KeyPart{r.Key}, values)
	case plan.Several:
	default:
		return "elsewhere", nil
	}
	if on = all; !r.All {
		on = toy.placed(t, text, r.Keys, values)
	}
	switch {
	case r.Parts == plan.Same:
		return "in parts", on
	case r.Parts == plan.Whole && len(on) == 1:
		return "whole", on
	default:
		return "whole", nil
	}
}

// placed returns the shards of keys.
func (toy *toy) placed(t *testing.T, text string, keys [][]plan.KeyPart, values []string) []string {
	t.Helper()
	var scan sqltext.Normalized
	if err := scan.Scan([]byte(text), true); err != nil {
		t.Fatal(err)
	}
	number := regexp.MustCompile(`[0-9]+`)
	numbers := func(part plan.KeyPart) (found []int) {
		value := ""
		switch o := part.Operand; o.Kind {
		case plan.FromParam:
			value = values[o.Param-1]
		case plan.FromLiteral:
			value = text[scan.Literals[o.Literal].Start:scan.Literals[o.Literal].End]
		default:
		}
		for _, digits := range number.FindAllString(strings.TrimSuffix(value, "'::bigint[]"), -1) {
			found = append(found, must[int](t)(strconv.Atoi(digits)))
		}
		return found
	}
	var on []string
	for _, key := range keys {
		if key[0].Floor != 0 {
			for _, id := range numbers(key[0]) {
				for i := range toyShards {
					if shard := "shard" + strconv.Itoa(i); (id < toyFloor || id%toyShards == i) && !slices.Contains(on, shard) {
						on = append(on, shard)
					}
				}
			}
			continue
		}
		for _, k := range numbers(key[0]) {
			for _, x := range numbers(key[len(key)-1]) {
				if shard := toy.shard(k, x); !slices.Contains(on, shard) {
					on = append(on, shard)
				}
			}
		}
	}
	if len(on) == 0 {
		on = []string{"shard0"}
	}
	return on
}

// answer runs a statement in schemas and returns the rows of the answer, and what sharded tables then have. Nothing of it stays.
func (toy *toy) answer(t *testing.T, schemas []string, sql string) (string, error) {
	t.Helper()
	toy.run(t, "begin")
	defer toy.run(t, "rollback")
	var rows []string
	for _, schema := range schemas {
		toy.run(t, "set local search_path to "+schema)
		found, err := toy.rows(t, sql)
		if err != nil {
			return "", err
		}
		rows = append(rows, found...)
	}
	stored := toySchemas()[1:]
	if schemas[0] == "toy" {
		stored = schemas
	}
	slices.Sort(rows)
	var held []string
	for _, schema := range stored {
		toy.run(t, "set local search_path to "+schema)
		held = append(held, must[[]string](t)(toy.rows(t, "select 'a', a::text from a union all select 'b', b::text from b union all select 'c', c::text from c"))...)
	}
	slices.Sort(held)
	return strings.Join(rows, " ") + " and stored " + strings.Join(held, " "), nil
}

func (toy *toy) rows(t *testing.T, sql string) ([]string, error) {
	t.Helper()
	results, err := toy.conn.PgConn().Exec(t.Context(), sql).ReadAll()
	if err != nil {
		return nil, err
	}
	var rows []string
	for _, result := range results {
		rows = append(rows, rowsOf(result)...)
	}
	return rows, nil
}

func rowsOf(result *pgconn.Result) []string {
	var rows []string
	for _, row := range result.Rows {
		var columns []string
		for _, value := range row {
			if value == nil {
				value = []byte("null")
			}
			columns = append(columns, string(value))
		}
		rows = append(rows, "("+strings.Join(columns, ",")+")")
	}
	return rows
}
