package catalog

import (
	"errors"
	"testing"

	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// TestLookOnSeesAnOpenTransaction: what it has changed is there for its own connection, and for nobody else before and after.
func TestLookOnSeesAnOpenTransaction(t *testing.T) {
	b := newBench(t)
	b.run(t, "CREATE TABLE orders (user_id bigint); CREATE TABLE gone (id int)")
	b.change(t, topology.SetTable(topology.TableSpec{Name: "orders", Kind: topology.Sharded, Keyspace: "users", Key: []string{"user_id"}}))
	c := open(t, b.config())
	lookRelation(t, c, "", "gone", "public")

	tx, err := b.sql.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.run(t, `DROP TABLE gone; CREATE VIEW fresh AS SELECT * FROM orders; CREATE FUNCTION h3() RETURNS int LANGUAGE sql AS 'SELECT 1'; SET LOCAL search_path TO pg_catalog`)
	gone, fresh, h3 := plan.RelationName{Name: "gone"}, plan.RelationName{Name: "fresh"}, plan.FunctionName{Name: "h3"}
	known, err := c.LookOn(on(t.Context(), b.sql), []plan.RelationName{gone, fresh}, []plan.FunctionName{h3}, []string{"public"})
	if err != nil {
		t.Fatal(err)
	}
	if known.Relations[gone] != nil || known.Relations[fresh] == nil || known.Relations[fresh].Reaches != "public.orders" || len(known.Functions[h3]) != 1 {
		t.Errorf("the transaction's own changes are not seen: %+v", known)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lookRelation(t, c, "", "fresh", "public") != nil || lookRelation(t, c, "", "gone", "public") == nil || len(lookFunction(t, c, "", "h3", "public")) != 0 {
		t.Error("what a transaction saw was kept for others")
	}
}

// TestLookOnQuotesNames: any name can be asked for.
func TestLookOnQuotesNames(t *testing.T) {
	b := newBench(t)
	names := []string{`a"b`, `a,b`, `{a}`, `a\b`, `a\"b`, `NULL`, `null`, ` a `, `ü`, `a'b`, "a\nb", `$1`}
	for _, name := range names {
		b.run(t, "CREATE TABLE "+sqltext.QuoteIdentifier(name)+" (id int)")
	}
	c := open(t, b.config())
	var wanted []plan.RelationName
	for _, name := range names {
		wanted = append(wanted, plan.RelationName{Name: name})
	}
	known, err := c.LookOn(on(t.Context(), b.sql), wanted, nil, []string{"public"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range wanted {
		if r := known.Relations[name]; r == nil || r.Name != name.Name {
			t.Errorf("%q stands for %+v", name.Name, r)
		}
	}
}

// TestLookOnPassesErrorsOn: what the caller's connection said is the caller's to read; without names nothing is asked.
func TestLookOnPassesErrorsOn(t *testing.T) {
	b := newBench(t)
	c := open(t, b.config())
	broken := errors.New("broken")
	ask := func(string, ...string) ([]byte, error) { return nil, broken }
	if _, err := c.LookOn(ask, []plan.RelationName{{Name: "x"}}, nil, nil); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	if known, err := c.LookOn(ask, nil, nil, nil); err != nil || known == nil {
		t.Errorf("nothing was to be asked: %v", err)
	}
	if _, err := c.LookOn(func(string, ...string) ([]byte, error) { return []byte("?"), nil }, []plan.RelationName{{Name: "x"}}, nil, nil); err == nil {
		t.Error("an answer that is none was believed")
	}
}
