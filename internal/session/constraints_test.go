package session

import (
	"fmt"
	"testing"

	"github.com/cleavedb/cleave/internal/topology"
)

// TestConstraintsOfAllShards: SET CONSTRAINTS is said to all shards of a transaction, to those that it has and those that it gets.
func TestConstraintsOfAllShards(t *testing.T) {
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
	t.Run("by their names", func(t *testing.T) {
		wantCodes(t, dialRaw(t, w.address, nil).query("SET CONSTRAINTS late_id_n_key DEFERRED"), "0A000", "ready I")
	})
}
