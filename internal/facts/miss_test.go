package facts_test

import (
	"strings"
	"testing"
	"time"

	pgquery "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// BenchmarkMiss measures what a statement costs that no plan is kept for, beside what the grammar's library alone takes to parse it
// in the same way. The figure to look at is times-parse.
func BenchmarkMiss(b *testing.B) {
	m := missMap(b)
	for name, text := range map[string]string{
		"short": "select note from orders where user_id = 12345",
		"join": `select o.id, i.n, c.name, r.rate, p.id from orders o join items i on i.user_id = o.user_id join countries c on c.code = o.note
			left join rates r on r.code = c.code join orders p on p.user_id = o.user_id where o.user_id = $1 and o.made > now() order by o.id limit 10`,
		"nested": `with o as (select * from orders where user_id = $1) select o.id, (select count(*) from items i where i.user_id = o.user_id) from o
			where exists (select from countries c where c.code = o.note) and o.id in (select p.id from orders p where p.user_id = o.user_id and (p.n = 1 or p.n in (3, 4)))`,
		"rows": "insert into orders (id, user_id, note) values (1, 2, 'x')" + strings.Repeat(", (1, 2, 'x')", 99),
	} {
		b.Run(name, func(b *testing.B) {
			known := missKnown(b, text)
			b.ReportAllocs()
			for b.Loop() {
				miss(b, text, known, m)
			}
			whole := b.Elapsed()
			begun := time.Now()
			for range b.N {
				if _, err := pgquery.Parse(text); err != nil {
					b.Fatal(err)
				}
			}
			alone := time.Since(begun)
			b.ReportMetric(float64(whole)/float64(alone), "times-parse")
		})
	}
}

// miss plans a text as a session does that has not seen it.
func miss(b *testing.B, text string, known *plan.Known, m *topology.Map) {
	b.Helper()
	statements, err := facts.Of(text)
	if err != nil {
		b.Fatal(err)
	}
	var scan sqltext.Normalized
	if err := scan.Scan([]byte(text), true); err != nil {
		b.Fatal(err)
	}
	plan.Wants(statements)
	p := plan.Make(text, statements, known, plan.Context{SearchPath: []string{"public"}, Map: m, Home: "s1", Literals: scan.Literals})
	if p.Statements[0].Refusal != nil {
		b.Fatal(p.Statements[0].Refusal)
	}
}

func missMap(b *testing.B) *topology.Map {
	b.Helper()
	must := func(m *topology.Map, err error) *topology.Map {
		if err != nil {
			b.Fatal(err)
		}
		return m
	}
	m := must(topology.New("7b2f4f0e-4c1d-4a55-9a9f-0d3b6f1c2a11"))
	m = must(m.Next(topology.AddShard(topology.ShardSpec{Name: "s1", Primary: topology.InstanceSpec{Address: "a:1"}}),
		topology.AddShard(topology.ShardSpec{Name: "s2", Primary: topology.InstanceSpec{Address: "b:1"}})))
	spec := topology.NewKeyspaceSpec("users", topology.ByHash, 1, "bigint")
	var err error
	if spec.Ranges, spec.Assignment, err = m.Assign(topology.Assignment{Algorithm: "even"}); err != nil {
		b.Fatal(err)
	}
	changes := []topology.Change{topology.CreateKeyspace(spec)}
	for _, name := range []string{"orders", "items"} {
		changes = append(changes, topology.SetTable(topology.TableSpec{Name: name, Kind: topology.Sharded, Keyspace: "users", Key: []string{"user_id"}}))
	}
	for _, name := range []string{"countries", "rates"} {
		changes = append(changes, topology.SetTable(topology.TableSpec{Name: name, Kind: topology.Reference}))
	}
	return must(m.Next(changes...))
}

// missKnown is what a catalogue would say: tables with two dozen columns, functions and operators of PostgreSQL's own.
func missKnown(b *testing.B, text string) *plan.Known {
	b.Helper()
	statements, err := facts.Of(text)
	if err != nil {
		b.Fatal(err)
	}
	known := &plan.Known{Relations: map[plan.RelationName]*plan.Relation{}, Functions: map[plan.FunctionName][]plan.Function{}}
	relations, functions := plan.Wants(statements)
	for _, name := range relations {
		r := &plan.Relation{Schema: "public", Name: name.Name, Kind: 'r'}
		for _, column := range strings.Fields("id user_id note made n code name rate a b c d e f g h i j k l m o p q") {
			r.Columns = append(r.Columns, plan.Column{Name: column, TypeOID: 20, TypeMod: -1})
		}
		known.Relations[name] = r
	}
	for _, name := range functions {
		known.Functions[name] = []plan.Function{{Schema: "pg_catalog", Name: name.Name, System: true, Kind: 'f', Language: "internal", Volatility: 'i'}}
	}
	return known
}
