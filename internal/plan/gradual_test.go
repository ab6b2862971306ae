package plan

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cleavedb/cleave/internal/pgerr"
)

func TestChangesThatGoFromShardToShard(t *testing.T) {
	orders := RelationName{Name: "orders"}
	for sql, want := range map[string]Gradual{
		"CREATE INDEX i ON orders (note)":                                          {Name: "CREATE INDEX", Does: MakesIndex, Table: orders, Index: RelationName{Name: "i"}},
		"CREATE INDEX CONCURRENTLY i ON app.orders USING gin (note)":               {Name: "CREATE INDEX", Does: MakesIndex, Outside: true, Table: RelationName{"app", "orders"}, Index: RelationName{Name: "i"}},
		"DROP INDEX app.i":                                                         {Name: "DROP INDEX", Does: DropsIndex, Index: RelationName{"app", "i"}},
		"DROP INDEX CONCURRENTLY i":                                                {Name: "DROP INDEX", Does: DropsIndex, Outside: true, Index: RelationName{Name: "i"}},
		"CREATE STATISTICS s ON a, b FROM orders":                                  {Name: "CREATE STATISTICS", Does: MakesStatistics, Table: orders, Statistics: RelationName{Name: "s"}},
		"DROP STATISTICS s":                                                        {Name: "DROP STATISTICS", Does: DropsStatistics, Statistics: RelationName{Name: "s"}},
		"ALTER STATISTICS s SET STATISTICS 100":                                    {Name: "ALTER STATISTICS", Statistics: RelationName{Name: "s"}},
		"ALTER TABLE orders ADD CONSTRAINT c CHECK (amount > 0) NOT VALID":         {Name: "ALTER TABLE", Does: AddsCheck, Table: orders, Constraint: "c"},
		"ALTER TABLE orders ADD CONSTRAINT c CHECK (amount > 0)":                   {Name: "ALTER TABLE", Does: AddsCheck, Table: orders, Constraint: "c"},
		"ALTER TABLE orders VALIDATE CONSTRAINT c":                                 {Name: "ALTER TABLE", Does: Rebuilds, Table: orders, Constraint: "c"},
		"ALTER TABLE orders DROP CONSTRAINT c":                                     {Name: "ALTER TABLE", Does: DropsConstraint, Table: orders, Constraint: "c"},
		"ALTER TABLE orders SET (fillfactor = 70, toast.autovacuum_enabled = off)": {Name: "ALTER TABLE", Table: orders},
		"ALTER TABLE orders RESET (autovacuum_vacuum_scale_factor)":                {Name: "ALTER TABLE", Table: orders},
		"ALTER INDEX i SET (fastupdate = off)":                                     {Name: "ALTER INDEX", Index: RelationName{Name: "i"}},
		"ALTER INDEX i ALTER COLUMN 1 SET STATISTICS 10":                           {Name: "ALTER INDEX", Index: RelationName{Name: "i"}},
		"ALTER TABLE orders ALTER note SET STATISTICS 500":                         {Name: "ALTER TABLE", Table: orders},
		"ALTER TABLE orders ALTER note SET (n_distinct = 7)":                       {Name: "ALTER TABLE", Table: orders},
		"ALTER TABLE orders ALTER note SET STORAGE EXTERNAL":                       {Name: "ALTER TABLE", Table: orders},
		"ALTER TABLE orders ALTER note SET COMPRESSION lz4":                        {Name: "ALTER TABLE", Table: orders},
		"COMMENT ON TABLE orders IS 'x'":                                           {Name: "COMMENT", Table: orders},
		"COMMENT ON COLUMN orders.note IS 'x'":                                     {Name: "COMMENT", Table: orders},
		"COMMENT ON CONSTRAINT c ON orders IS 'x'":                                 {Name: "COMMENT", Table: orders},
		"COMMENT ON INDEX i IS 'x'":                                                {Name: "COMMENT", Index: RelationName{Name: "i"}},
		"COMMENT ON STATISTICS s IS 'x'":                                           {Name: "COMMENT", Statistics: RelationName{Name: "s"}},
		"REINDEX TABLE CONCURRENTLY orders":                                        {Name: "REINDEX", Does: Rebuilds, Outside: true, Table: orders},
		"REINDEX (VERBOSE) INDEX i":                                                {Name: "REINDEX", Does: Rebuilds, Index: RelationName{Name: "i"}},
	} {
		want.SQL = sql
		got, err := GradualChange(sql + " ;")
		if err != nil {
			t.Errorf("%s: %v", sql, err)
			continue
		}
		if diff := cmp.Diff([]Gradual{want}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sql, diff)
		}
	}
}

func TestSeveralThingsInOneChange(t *testing.T) {
	got, err := GradualChange("CREATE INDEX i ON orders (a); ALTER TABLE orders SET (fillfactor = 50), DROP CONSTRAINT c; DROP INDEX j, k")
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, g := range got {
		words = append(words, g.Name+" "+g.Index.Name+g.Constraint+"|"+g.SQL)
	}
	want := []string{
		"CREATE INDEX i|CREATE INDEX i ON orders (a)", "ALTER TABLE |ALTER TABLE orders SET (fillfactor = 50), DROP CONSTRAINT c", "ALTER TABLE c|",
		"DROP INDEX j|DROP INDEX j, k", "DROP INDEX k|",
	}
	if diff := cmp.Diff(want, words); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestChangesThatShardsMakeTogether are refused with a reason, and with what to do instead.
func TestChangesThatShardsMakeTogether(t *testing.T) {
	for sql, reason := range map[string]string{
		"ALTER TABLE orders ADD COLUMN x int":                                                   "SELECT *",
		"ALTER TABLE orders DROP COLUMN note":                                                   "SELECT *",
		"ALTER TABLE orders ALTER note TYPE varchar":                                            "two types",
		"ALTER TABLE orders ALTER note SET DEFAULT 'x'":                                         "same INSERT",
		"ALTER TABLE orders ALTER note DROP DEFAULT":                                            "same INSERT",
		"ALTER TABLE orders ALTER note SET NOT NULL":                                            "check constraint",
		"ALTER TABLE orders ALTER note DROP NOT NULL":                                           "null",
		"ALTER TABLE orders ALTER id ADD GENERATED ALWAYS AS IDENTITY":                          "same INSERT",
		"ALTER TABLE orders ADD UNIQUE (note)":                                                  "42P10",
		"ALTER TABLE orders ADD PRIMARY KEY (id)":                                               "42P10",
		"ALTER TABLE orders ADD EXCLUDE (id WITH =)":                                            "42P10",
		"ALTER TABLE orders ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES b":                      "Deleting a row",
		"ALTER TABLE orders ADD CHECK (a > 0)":                                                  "needs a name",
		"ALTER TABLE orders SET (user_catalog_table = on)":                                      "user_catalog_table",
		"ALTER TABLE orders SET (fillfactor = 70), ADD COLUMN x int":                            "SELECT *",
		"ALTER TABLE orders ENABLE ROW LEVEL SECURITY":                                          "sees which rows",
		"ALTER TABLE orders DISABLE TRIGGER ALL":                                                "not known",
		"ALTER TABLE orders DISABLE TRIGGER t":                                                  "other things",
		"ALTER TABLE orders OWNER TO x":                                                         "Who may do what",
		"ALTER TABLE orders REPLICA IDENTITY FULL":                                              "carried",
		"ALTER TABLE orders CLUSTER ON i":                                                       "CLUSTER",
		"ALTER TABLE orders SET UNLOGGED":                                                       "crash",
		"ALTER TABLE orders INHERIT b":                                                          "not known",
		"ALTER TABLE orders DROP CONSTRAINT IF EXISTS c":                                        "IF EXISTS",
		"ALTER TABLE orders DROP CONSTRAINT c CASCADE":                                          "CASCADE",
		"ALTER VIEW v SET (security_barrier)":                                                   "neither a table",
		"ALTER TABLE orders RENAME COLUMN a TO b":                                               "one name",
		"ALTER INDEX i RENAME TO j":                                                             "one name",
		"CREATE UNIQUE INDEX i ON orders (a)":                                                   "42P10",
		"CREATE INDEX ON orders (a)":                                                            "needs a name",
		"CREATE INDEX IF NOT EXISTS i ON orders (a)":                                            "IF NOT EXISTS",
		"DROP INDEX IF EXISTS i":                                                                "IF EXISTS",
		"DROP INDEX i CASCADE":                                                                  "CASCADE",
		"DROP INDEX CONCURRENTLY i, j":                                                          "one index at a time",
		"DROP TABLE orders":                                                                     "fail on others",
		"DROP TRIGGER t ON orders":                                                              "other things",
		"CREATE STATISTICS ON a, b FROM orders":                                                 "need a name",
		"CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'":                 "old function",
		"CREATE OR REPLACE TRIGGER t BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION f()": "other things",
		"CREATE POLICY p ON orders":                                                             "sees which rows",
		"GRANT SELECT ON orders TO x":                                                           "Who may do what",
		"ALTER TYPE e ADD VALUE 'x'":                                                            "known on some shards",
		"COMMENT ON FUNCTION f() IS 'x'":                                                        "not about a table",
		"COMMENT ON CONSTRAINT c ON DOMAIN d IS 'x'":                                            "not about a table",
		"REINDEX SCHEMA public":                                                                 "one table or index",
		"REINDEX (TABLESPACE x) TABLE orders":                                                   "TABLESPACE",
		"CREATE TABLE x (id int)":                                                               "declared on all shards",
		"CREATE VIEW v AS SELECT 1":                                                             "not known",
		"UPDATE orders SET a = 1":                                                               "changes rows",
		"SELECT 1":                                                                              "changes nothing",
		"VACUUM orders":                                                                         "runs shard by shard",
		"BEGIN":                                                                                 "transaction of its own",
		"SET lock_timeout = 1":                                                                  "Set parameters",
		"DO 'BEGIN END'":                                                                        "not known",
		"CREATE INDEX CONCURRENTLY i ON orders (a); COMMENT ON INDEX i IS 'x'":                  "outside transactions",
	} {
		got, err := GradualChange(sql)
		var refused *pgerr.Error
		switch {
		case !errors.As(err, &refused):
			t.Errorf("%s: got %v, error %v", sql, got, err)
		case refused.Code != pgerr.FeatureNotSupported || refused.Hint == "" || !strings.Contains(refused.Detail, reason):
			t.Errorf("%s: the reason should have %q: %+v", sql, reason, refused)
		}
	}
	_, err := GradualChange("CREATE INDX")
	var refused *pgerr.Error
	if !errors.As(err, &refused) || refused.Code != pgerr.SyntaxError {
		t.Errorf("what is no SQL: %v", err)
	}
}
