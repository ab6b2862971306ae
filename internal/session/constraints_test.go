package session

import (
	"fmt"
	"testing"

	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestConstraintsOfAllShards: SET CONSTRAINTS is said to all shards of a transaction, to those that it has and those that it gets.
func TestConstraintsOfAllShards(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{
		shards: 3, setUp: []string{"CREATE TABLE late (id bigint NOT NULL, n int, UNIQUE (id, n) DEFERRABLE)"},
		tables: []topology.TableSpec{{Name: "public.late", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"}}},
	})
	a, b, c := text(w.key(t, 1, 0)), text(w.key(t, 2, 0)), text(w.key(t, 3, 0))
	insert := func(id string) string { return "INSERT INTO late VALUES (" + id + ", 1)" }
	drop := func(id string) string { return "DELETE FROM late WHERE id = " + id }
	both := fmt.Sprintf("INSERT INTO late VALUES (%s, 1), (%s, 1)", a, b)
	const deferred, immediate = "SET CONSTRAINTS ALL DEFERRED", "SET CONSTRAINTS ALL IMMEDIATE"
	for name, sql := range map[string][]string{
		"before any shard":        {"BEGIN", deferred, insert(a), insert(a), insert(b), insert(b), drop(a), drop(b), insert(a), "COMMIT"},
		"before any, wrong":       {"BEGIN", deferred, insert(a), insert(b), insert(b), "COMMIT"},
		"on one":                  {"BEGIN", insert(a), deferred, insert(a), insert(b), insert(b), insert(c), insert(c), drop(a), drop(b), immediate, "ROLLBACK"},
		"on several":              {"BEGIN", insert(a), insert(b), deferred, insert(a), insert(b), insert(c), insert(c), drop(a), drop(b), drop(c), immediate, insert(c), insert(c), "ROLLBACK"},
		"on several, at once":     {"BEGIN", both, deferred, both, immediate, "SELECT 1", "ROLLBACK"},
		"set aside and wrong":     {"BEGIN", deferred, insert(a), insert(a), insert(b), immediate, "COMMIT"},
		"immediate and deferred":  {"BEGIN", deferred, both, immediate, insert(c), insert(c), "COMMIT"},
		"undone by a savepoint":   {"BEGIN", insert(a), insert(b), "SAVEPOINT s", deferred, insert(a), "ROLLBACK TO s", insert(a), "ROLLBACK"},
		"failed in a savepoint":   {"BEGIN", deferred, insert(a), insert(b), "SAVEPOINT s", insert(a), immediate, "ROLLBACK TO s", immediate, insert(c), "COMMIT"},
		"no transaction":          {deferred, immediate, insert(a), insert(a)},
		"in a text":               {"BEGIN; " + deferred + "; " + both + "; " + both + "; " + drop(a) + "; " + drop(b) + "; COMMIT"},
		"in a text without BEGIN": {deferred + "; " + both + "; " + both + "; " + drop(a), insert(a) + "; " + insert(b) + "; " + deferred + "; " + insert(b) + "; " + drop(b)},
		"in a text, on several":   {"BEGIN", insert(a), insert(b), deferred + "; " + insert(a), "SELECT 1; " + immediate, "ROLLBACK"},
		"chained":                 {"BEGIN", deferred, "COMMIT AND CHAIN", insert(a), insert(a), "ROLLBACK"},
	} {
		end := []string{"SELECT * FROM late", "DELETE FROM late"}
		for how, steps := range map[string]func(...string) []step{"simple": texts, "extended": extendedSteps} {
			t.Run(name+", "+how, func(t *testing.T) {
				w.sameButOrder(t, append(steps(sql...), texts(end...)...)...)
				w.nothingPrepared(t)
			})
		}
	}
	t.Run("in a pipeline", func(t *testing.T) {
		for _, set := range []string{deferred, immediate} {
			w.sameButOrder(t, append([]step{sent(pipeline(unnamed("BEGIN"), unnamed(set), unnamed(both), unnamed(insert(a)), unnamed(drop(a)), unnamed(immediate), sync1)...)}, texts("COMMIT", "SELECT * FROM late", "DELETE FROM late")...)...)
			w.sameButOrder(t, append([]step{sent(pipeline(unnamed(both), unnamed(set), unnamed(insert(b)), unnamed(drop(b)), sync1)...)}, texts("SELECT * FROM late", "DELETE FROM late")...)...)
		}
		w.nothingPrepared(t)
	})
}

// TestConstraintsByTheirNames: wherever the tables of a constraint are, and whether the transaction is there already, is on its way there or never
// comes, it is as on one server.
func TestConstraintsByTheirNames(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{
		shards: 3, setUp: []string{
			"CREATE TABLE late (id bigint NOT NULL, n int, CONSTRAINT one UNIQUE (id, n) DEFERRABLE)", "CREATE TABLE homely (n int, k int UNIQUE, m int, CONSTRAINT two UNIQUE (n) DEFERRABLE, CONSTRAINT shared FOREIGN KEY (m) REFERENCES homely (k) DEFERRABLE)",
			"CREATE TABLE far (n int, k int UNIQUE, m int, CONSTRAINT three UNIQUE (n) DEFERRABLE, CONSTRAINT shared FOREIGN KEY (m) REFERENCES far (k) DEFERRABLE)", "ALTER TABLE countries ADD CONSTRAINT four UNIQUE (name) DEFERRABLE",
			"CREATE SCHEMA first", "CREATE TABLE first.homely (n int, CONSTRAINT one UNIQUE (n) DEFERRABLE)", `CREATE TABLE "Od'd" (n int, CONSTRAINT deferred UNIQUE (n) DEFERRABLE)`,
			"CREATE TABLE parted (id bigint NOT NULL, n int, CONSTRAINT five UNIQUE (id, n) DEFERRABLE) PARTITION BY LIST (n)", "CREATE TABLE part PARTITION OF parted FOR VALUES IN (1)",
			"CREATE DOMAIN small AS int CONSTRAINT positive CHECK (value > 0)",
		},
		tables: []topology.TableSpec{
			{Name: "public.late", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"}}, {Name: "public.far", Kind: topology.Single, Shard: "s2"},
			{Name: "public.parted", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"}},
		},
		onShards: func(number int) []string {
			switch number {
			case 1:
				return []string{"DROP TABLE far"}
			case 2:
				return []string{"DROP TABLE homely, first.homely", `DROP TABLE "Od'd"`}
			default:
				return []string{"DROP TABLE far, homely, first.homely", `DROP TABLE "Od'd"`}
			}
		},
	})
	a, b, c := text(w.key(t, 1, 0)), text(w.key(t, 2, 0)), text(w.key(t, 3, 0))
	insert := func(id string) string { return "INSERT INTO late VALUES (" + id + ", 1)" }
	drop := func(id string) string { return "DELETE FROM late WHERE id = " + id }
	const homely, far = "INSERT INTO homely VALUES (1)", "INSERT INTO far VALUES (1)"
	const deferred, immediate = "SET CONSTRAINTS one DEFERRED", "SET CONSTRAINTS one IMMEDIATE"
	for name, sql := range map[string][]string{
		"before any shard":       {"BEGIN", deferred, insert(a), insert(a), insert(b), insert(b), drop(a), drop(b), insert(a), "COMMIT"},
		"before any, wrong":      {"BEGIN", deferred, insert(a), insert(b), insert(b), "COMMIT"},
		"on one":                 {"BEGIN", insert(a), deferred, insert(a), insert(b), insert(b), insert(c), insert(c), drop(a), drop(b), immediate, "ROLLBACK"},
		"not at home":            {"BEGIN", insert(c), deferred, insert(c), insert(b), insert(b), drop(c), drop(b), "COMMIT"},
		"on several":             {"BEGIN", insert(a), insert(b), deferred, insert(a), insert(b), insert(c), insert(c), drop(a), drop(b), drop(c), immediate, insert(c), insert(c), "ROLLBACK"},
		"wrong at once":          {"BEGIN", deferred, insert(a), insert(b), insert(b), immediate, "SELECT 1", "ROLLBACK"},
		"another one stays":      {"BEGIN", "SET CONSTRAINTS two DEFERRED", insert(b), insert(b), "ROLLBACK"},
		"of the home shard":      {"BEGIN", insert(b), "SET CONSTRAINTS two DEFERRED", homely, homely, insert(c), "DELETE FROM homely", "COMMIT"},
		"of the home shard, bad": {"BEGIN", insert(b), "SET CONSTRAINTS two DEFERRED", homely, homely, "SET CONSTRAINTS two IMMEDIATE", "ROLLBACK"},
		"of one shard":           {"BEGIN", insert(a), "SET CONSTRAINTS three DEFERRED", far, far, insert(c), "DELETE FROM far", "COMMIT"},
		"of one shard, bad":      {"BEGIN", insert(a), "SET CONSTRAINTS three, shared DEFERRED", far, far, "SET CONSTRAINTS three IMMEDIATE", "ROLLBACK"},
		"of one shard, idle":     {"BEGIN", far, "SET CONSTRAINTS three DEFERRED", insert(a), far, "COMMIT"},
		"of tables on two":       {"BEGIN", "SET CONSTRAINTS shared, two, three DEFERRED", "INSERT INTO homely VALUES (1, 2, 3), (1, 3, 4)", "INSERT INTO far VALUES (1, 2, 3), (1, 3, 4)", "SET CONSTRAINTS shared IMMEDIATE", "ROLLBACK"},
		"of a reference table":   {"BEGIN", "SET CONSTRAINTS four DEFERRED", "INSERT INTO countries VALUES ('x', 'z')", "INSERT INTO countries VALUES ('y', 'z')", "SET CONSTRAINTS four IMMEDIATE", "ROLLBACK"},
		"of partitions":          {"BEGIN", insert(a), "SET CONSTRAINTS five DEFERRED", "INSERT INTO parted VALUES (" + b + ", 1)", "INSERT INTO parted VALUES (" + b + ", 1)", "SET CONSTRAINTS part_id_n_key IMMEDIATE", "ROLLBACK"},
		"by its schema":          {"BEGIN", "SET CONSTRAINTS public.one DEFERRED", insert(b), insert(b), "SET CONSTRAINTS first.one IMMEDIATE", drop(b), "SET CONSTRAINTS public.one IMMEDIATE", "COMMIT"},
		"by the path":            {"SET search_path = first, public", "BEGIN", deferred, "INSERT INTO homely VALUES (1)", "INSERT INTO homely VALUES (1)", insert(b), insert(b), "ROLLBACK"},
		"by the path, behind":    {"SET search_path = nosuch, public, first", "BEGIN", deferred, insert(b), insert(b), "INSERT INTO first.homely VALUES (1)", "INSERT INTO first.homely VALUES (1)", "ROLLBACK"},
		"unknown":                {"BEGIN", insert(b), "SET CONSTRAINTS one, nosuch, orders_pkey DEFERRED", "ROLLBACK", "BEGIN", "SET CONSTRAINTS nosuch IMMEDIATE", "ROLLBACK", "SET CONSTRAINTS nosuch IMMEDIATE"},
		"of an unknown schema":   {"BEGIN", "SET CONSTRAINTS nosuch.one DEFERRED", "ROLLBACK", "BEGIN", insert(b), "SET CONSTRAINTS first.two DEFERRED", "ROLLBACK"},
		"never deferred":         {"BEGIN", insert(b), "SET CONSTRAINTS one, orders_pkey DEFERRED", "ROLLBACK", "BEGIN", "SET CONSTRAINTS orders_pkey, positive IMMEDIATE", insert(b), insert(b), "ROLLBACK"},
		"of an odd name":         {"BEGIN", insert(b), "SET CONSTRAINTS deferred IMMEDIATE", "SET CONSTRAINTS deferred DEFERRED", `INSERT INTO "Od'd" VALUES (1), (1)`, "ROLLBACK"},
		"back to a savepoint":    {"BEGIN", insert(a), "SAVEPOINT s", deferred, insert(a), "ROLLBACK TO s", insert(b), insert(b), "ROLLBACK"},
		"kept in a savepoint":    {"BEGIN", insert(a), "SAVEPOINT s", deferred, "RELEASE s", insert(b), insert(b), drop(b), "COMMIT"},
		"failed in a savepoint":  {"BEGIN", deferred, insert(a), insert(b), "SAVEPOINT s", insert(a), immediate, "ROLLBACK TO s", immediate, insert(c), "COMMIT"},
		"all, and then one":      {"BEGIN", "SET CONSTRAINTS ALL DEFERRED", immediate, homely, homely, insert(b), insert(b), "ROLLBACK"},
		"no transaction":         {deferred, insert(a), insert(a)},
		"in a text":              {"BEGIN; " + deferred + "; " + insert(a) + "; " + insert(b) + "; " + insert(b) + "; " + drop(b) + "; COMMIT", deferred + "; " + insert(b) + "; " + insert(b) + "; " + drop(b)},
		"in a text, wrong":       {insert(a) + "; " + deferred + "; " + insert(b) + "; " + insert(b) + "; " + immediate + "; SELECT 1", "SELECT 1; SET CONSTRAINTS nosuch DEFERRED"},
		"made just now":          {"BEGIN", "ALTER TABLE late ADD CONSTRAINT six UNIQUE (n, id) DEFERRABLE", "SET CONSTRAINTS one, six DEFERRED", insert(b), insert(b), "SET CONSTRAINTS six IMMEDIATE", "ROLLBACK", "BEGIN", "SET CONSTRAINTS six DEFERRED", "ROLLBACK"},
		"a kind of transaction":  {"BEGIN", deferred, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", insert(b), "SHOW transaction_isolation", "ROLLBACK"},
		"chained":                {"BEGIN", deferred, "COMMIT AND CHAIN", insert(b), insert(b), "ROLLBACK"},
		"of a temporary table":   {"CREATE TEMPORARY TABLE passing (n int, CONSTRAINT seven UNIQUE (n) DEFERRABLE)", "BEGIN", "SET CONSTRAINTS seven DEFERRED", "INSERT INTO passing VALUES (1), (1)", insert(b), "SET CONSTRAINTS pg_temp.seven IMMEDIATE", "ROLLBACK", "SET CONSTRAINTS seven DEFERRED", "BEGIN", insert(b), "SET CONSTRAINTS seven DEFERRED", "ROLLBACK"},
		"failed already":         {"BEGIN", insert(b), insert(b), deferred, "ROLLBACK"},
	} {
		end := []string{"RESET search_path", "SELECT * FROM late", "DELETE FROM late"}
		for how, steps := range map[string]func(...string) []step{"simple": texts, "extended": extendedSteps} {
			t.Run(name+", "+how, func(t *testing.T) {
				thorough.Some(t, 3)
				w.sameButOrder(t, append(steps(sql...), texts(end...)...)...)
				w.nothingPrepared(t)
			})
		}
	}
	t.Run("in a pipeline", func(t *testing.T) {
		thorough.Some(t, 3)
		for _, set := range []string{deferred, immediate, "SET CONSTRAINTS nosuch DEFERRED"} {
			w.sameButOrder(t, append([]step{sent(pipeline(unnamed("BEGIN"), unnamed(set), unnamed(insert(b)), unnamed(insert(b)), unnamed(drop(b)), unnamed(immediate), sync1)...)}, texts("COMMIT", "SELECT * FROM late", "DELETE FROM late")...)...)
			w.sameButOrder(t, append([]step{sent(pipeline(unnamed(insert(a)), unnamed(set), unnamed(insert(b)), unnamed(insert(b)), unnamed(drop(b)), sync1)...)}, texts("SELECT * FROM late", "DELETE FROM late")...)...)
			w.sameButOrder(t, append([]step{sent(pipeline(unnamed(set), unnamed(insert(b)), unnamed(insert(b)), unnamed(drop(b)), sync1)...)}, texts("SELECT * FROM late", "DELETE FROM late")...)...)
			w.sameButOrder(t, append([]step{sent(pipeline(unnamed(insert(b)), unnamed(set), sync1)...)}, texts("SELECT * FROM late", "DELETE FROM late")...)...)
		}
		w.nothingPrepared(t)
	})
}
