package catalog

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/topology"
)

// TestViewsAreDescribed: what they show, with all names such that any search path reads them alike, by whose rights, and who can have them.
func TestViewsAreDescribed(t *testing.T) {
	b := newBench(t)
	b.run(t, `CREATE TABLE orders (user_id bigint, note text); CREATE TABLE plain (id bigint); CREATE SCHEMA app; CREATE TYPE app.mood AS ENUM ('good');
		CREATE FUNCTION app.f(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1'; CREATE ROLE painter;
		CREATE VIEW app.own (who, what) AS SELECT user_id, app.f(note) FROM orders WHERE note = 'x' AND 'good'::app.mood IS NOT NULL;
		CREATE VIEW over AS SELECT who FROM app.own LIMIT 3; CREATE VIEW mixed WITH (security_invoker) AS SELECT o.note FROM orders o JOIN plain p ON p.id = o.user_id;
		CREATE VIEW homely AS SELECT * FROM plain; ALTER VIEW over OWNER TO painter; ALTER TABLE orders ENABLE ROW LEVEL SECURITY`)
	b.change(t, topology.SetTable(topology.TableSpec{Name: "orders", Kind: topology.Sharded, Keyspace: "users", Key: []string{"user_id"}}))
	c := open(t, b.config())
	for name, want := range map[string]struct {
		parts []string
		plan.View
	}{
		"app.own":       {[]string{"user_id AS who", "app.f(", " AS what", "FROM public.orders", "'x'::text", "'good'::app.mood"}, plan.View{Owner: "postgres", Everywhere: true}},
		"public.over":   {[]string{"who", "FROM app.own", "LIMIT 3"}, plan.View{Owner: "painter", Everywhere: true}},
		"public.mixed":  {[]string{"public.orders o", "JOIN public.plain p"}, plan.View{Owner: "postgres", Invoker: true}},
		"public.homely": {[]string{"FROM public.plain"}, plan.View{Owner: "postgres"}},
		"public.orders": {},
	} {
		r := lookRelation(t, c, strings.Split(name, ".")[0], strings.Split(name, ".")[1], "public")
		if r.RowSecurity != (name == "public.orders") {
			t.Errorf("row security of %s is %v", name, r.RowSecurity)
		}
		if r.View == nil {
			if want.parts != nil {
				t.Errorf("%s shows nothing", name)
			}
			continue
		}
		for _, part := range want.parts {
			if !strings.Contains(r.View.SQL, part) || strings.HasSuffix(r.View.SQL, ";") {
				t.Errorf("%s shows %q, without %q", name, r.View.SQL, part)
			}
		}
		want.SQL = r.View.SQL
		if *r.View != want.View {
			t.Errorf("%s is %+v, not %+v", name, *r.View, want.View)
		}
	}
}
