package plan_test

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/topology"
)

// TestViewsStandInForTables: texts for several shards name views of what a shard owns while rows move.
func TestViewsStandInForTables(t *testing.T) {
	m, err := topology.New("00000000-0000-4000-8000-000000000000")
	if err != nil {
		t.Fatal(err)
	}
	keyspace := func(name string, moving bool) topology.KeyspaceSpec {
		k := topology.NewKeyspaceSpec(name, topology.ByHash, 1, "bigint")
		k.Ranges = []topology.RangeSpec{{Shard: "a"}}
		if moving {
			k.Ranges[0].Copies = []topology.CopySpec{{Shard: "b", State: topology.Incoming}}
		}
		return k
	}
	table := func(name, keyspace string) topology.Change {
		return topology.SetTable(topology.TableSpec{Name: name, Kind: topology.Sharded, Keyspace: keyspace, Key: []string{"id"}})
	}
	m, err = m.Next(
		topology.AddShard(topology.ShardSpec{Name: "a", Primary: topology.InstanceSpec{Address: "localhost:1"}}), topology.AddShard(topology.ShardSpec{Name: "b", Primary: topology.InstanceSpec{Address: "localhost:2"}}),
		topology.CreateKeyspace(keyspace("moving", true)), topology.CreateKeyspace(keyspace("still", false)), table("public.orders", "moving"), table("public.items", "moving"), table("public.calm", "still"),
	)
	if err != nil {
		t.Fatal(err)
	}
	columns := []plan.Column{{Name: "id"}, {Name: "note"}, {Name: "twice", Generated: true}}
	known := &plan.Known{Relations: map[plan.RelationName]*plan.Relation{}}
	for _, name := range []string{"orders", "items", "calm"} {
		r := &plan.Relation{Schema: "public", Name: name, Kind: 'r', Columns: columns}
		known.Relations[plan.RelationName{Name: name}], known.Relations[plan.RelationName{Schema: "public", Name: name}] = r, r
	}
	reading := &plan.Relation{Schema: "public", Name: "reading", Kind: 'v', ReachesDeclared: true, View: &plan.View{SQL: "SELECT orders.id FROM public.orders"}}
	known.Relations[plan.RelationName{Name: "reading"}] = reading
	twin := func(name topology.TableName) topology.TableName {
		return topology.TableName{Schema: "cleave", Name: "own_" + name.Name}
	}
	for _, c := range []struct{ text, want string }{
		{"SELECT count(*) FROM orders", "SELECT count(*) FROM cleave.own_orders AS orders"},
		{"SELECT o.id FROM public.orders AS o JOIN items USING (id)", "SELECT o.id FROM cleave.own_orders AS o JOIN cleave.own_items AS items USING (id)"},
		{"SELECT public.orders.id, public.orders.* FROM public.orders", "SELECT orders.id, orders.* FROM cleave.own_orders AS orders"},
		{"SELECT * FROM calm, \"orders\" *", "SELECT * FROM calm, cleave.own_orders AS orders"},
		{"TABLE orders", "SELECT * FROM cleave.own_orders AS orders"},
		{"WITH orders AS (SELECT 1) SELECT * FROM orders, public.orders p", "WITH orders AS (SELECT 1) SELECT * FROM orders, cleave.own_orders p"},
		{"UPDATE orders SET note = 'orders' WHERE id IN (SELECT id FROM items)", "UPDATE cleave.own_orders AS orders SET note = 'orders' WHERE id IN (SELECT id FROM cleave.own_items AS items)"},
		{"DELETE FROM orders o USING items", "DELETE FROM cleave.own_orders o USING cleave.own_items AS items"},
		{"INSERT INTO orders SELECT * FROM items", "INSERT INTO orders SELECT * FROM cleave.own_items AS items"},
		{"COPY orders TO STDOUT (FORMAT csv)", "COPY (SELECT id, note FROM cleave.own_orders) TO STDOUT (FORMAT csv)"},
		{"COPY orders (note, id) TO STDOUT", "COPY (SELECT note, id FROM cleave.own_orders) TO STDOUT"},
		{"COPY (SELECT id FROM orders) TO STDOUT", "COPY (SELECT id FROM cleave.own_orders AS orders) TO STDOUT"},
		{"EXPLAIN SELECT FROM orders", "EXPLAIN SELECT FROM cleave.own_orders AS orders"},
		{"SELECT * FROM reading", "SELECT * FROM cleave.own_reading AS reading"},
		{"SELECT * FROM calm", "SELECT * FROM calm"},
		{"SELECT ctid FROM orders", ""},
		{"SELECT * FROM ONLY orders", ""},
		{"SELECT * FROM orders TABLESAMPLE system (1)", ""},
		{"MERGE INTO orders o USING items i ON o.id = i.id WHEN MATCHED THEN DELETE", ""},
	} {
		statements, err := facts.Of(c.text)
		if err != nil {
			t.Fatal(err)
		}
		replaced, _, refused := plan.Owned(c.text, statements, known, plan.Context{SearchPath: []string{"public"}, Map: m, Home: "a"}, twin)
		got := ""
		if refused == nil {
			got = strings.ReplaceAll(apply(c.text, replaced), `"`, "")
		} else if refused.Code != pgerr.FeatureNotSupported {
			t.Errorf("%s: %v", c.text, refused)
		}
		if got != strings.ReplaceAll(c.want, `"`, "") {
			t.Errorf("%s\nbecomes %s\nand not %s (%v)", c.text, got, c.want, refused)
		}
	}
}

func apply(text string, replaced []plan.Replacement) string {
	var b strings.Builder
	at := 0
	for _, r := range replaced {
		b.WriteString(text[at:r.Start] + r.By)
		at = r.End
	}
	return b.String() + text[at:]
}

func TestQueriesOfViewsReadOthers(t *testing.T) {
	renamed := map[topology.TableName]topology.TableName{{Schema: "public", Name: "a"}: {Schema: "cleave", Name: "x"}, {Schema: "public", Name: "b"}: {Schema: "cleave", Name: "y"}}
	got, err := plan.Renamed(" SELECT a.id FROM (public.a JOIN public.b z ON ((a.id = z.id))) WHERE (EXISTS (SELECT FROM public.c));", renamed)
	if want := " SELECT a.id FROM (cleave.x AS \"a\" JOIN cleave.y z ON ((a.id = z.id))) WHERE (EXISTS (SELECT FROM public.c));"; err != nil || got != want {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := plan.Renamed("SELECT 1 FROM ONLY public.a", renamed); err == nil {
		t.Error("ONLY was taken")
	}
}
