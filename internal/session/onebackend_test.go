package session

import (
	"testing"

	"github.com/cleavedb/cleave/internal/pool"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestOneBackendIsEnough: with a single backend for each shard, a transaction never waits for one that it has itself.
func TestOneBackendIsEnough(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3, pools: pool.Config{PerShard: 1, QueueTimeout: 4 * patience}, setUp: []string{"ALTER TABLE countries ADD COLUMN id serial"}})
	here, there, beyond := text(w.key(t, 1, 0)), text(w.key(t, 2, 0)), text(w.key(t, 3, 0))
	const numbered = "INSERT INTO countries (code) VALUES ($1)"
	order := func(key string) string { return "INSERT INTO orders VALUES (" + key + ", 'x')" }
	c := dialRaw(t, w.address, nil)
	for name, say := range map[string]func() []string{
		"shards one by one": func() []string {
			return c.query("BEGIN; INSERT INTO undeclared VALUES (1, 'x'); " + order(there) + "; " + order(here) + "; ROLLBACK")
		},
		"other shards first": func() []string {
			return c.query("BEGIN; " + order(beyond) + "; " + order(there) + "; INSERT INTO undeclared VALUES (1, 'x'); ROLLBACK")
		},
		"all at once": func() []string {
			return c.query("INSERT INTO orders VALUES (" + here + ", 'x'), (" + there + ", 'x'), (" + beyond + ", 'x')")
		},
		"numbers in a pipeline": func() []string {
			return c.ask(pipeline(unnamed("INSERT INTO undeclared VALUES (1, $1)", "x"), unnamed(numbered, "de"), unnamed(order(there)), unnamed(numbered, "fr"), unnamed(order(here)), unnamed(numbered, "it"), sync1)...)
		},
		"numbers elsewhere": func() []string {
			return c.query("BEGIN; " + order(there) + "; INSERT INTO countries (code) VALUES ('es'); INSERT INTO countries (code) VALUES ('at'); ROLLBACK")
		},
		"much to finish": func() []string { // more than goes into arrays if there is another backend
			return c.query("BEGIN; INSERT INTO undeclared VALUES (1, 'x'); INSERT INTO orders SELECT i, repeat('long ', 100) FROM generate_series(1, 5000) AS i; " +
				"SELECT count(*), max(o.note || u.b) FROM orders o JOIN undeclared u ON o.id % 10 = u.a % 10; ROLLBACK")
		},
	} {
		t.Run(name, func(t *testing.T) {
			execute(t, w.onShard(t, 1), "TRUNCATE orders, countries")
			execute(t, w.onShard(t, 2), "TRUNCATE orders, countries")
			execute(t, w.onShard(t, 3), "TRUNCATE orders, countries")
			w.server.epoch.Add(1) // as after a change of the schema: all that is known of numbers is old
			wantCodes(t, say(), "", "ready I")
			w.settled(t)
		})
	}
}
