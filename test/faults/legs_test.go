package faults_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/test/faults"
)

// TestALostPartFailsItsTransaction: a shard whose connection was lost between two statements has forgotten the transaction. Nobody may begin
// another one there in its place: what it wrote, or the moment that it read, would be lost without a word.
func TestALostPartFailsItsTransaction(t *testing.T) {
	t.Parallel()
	cluster := faults.Start(t, faults.Config{Routers: 1})
	tables, err := cluster.MakeTables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	add := func(shard int) string {
		return fmt.Sprintf("UPDATE counters SET n = n + 1 WHERE id = %d", tables.Keys[shard][0])
	}
	const all = "SELECT id, n FROM counters"
	for name, statements := range map[string][2]string{
		"that wrote, by a write":           {"BEGIN; " + add(1) + "; " + add(0), add(1)},
		"that wrote, by a write of all":    {"BEGIN; " + add(1) + "; " + add(0), "UPDATE counters SET n = n + 1"},
		"that wrote, by a read":            {"BEGIN; " + add(1) + "; " + add(0), all},
		"that read":                        {"BEGIN ISOLATION LEVEL REPEATABLE READ; " + all, all},
		"that read, and is asked for more": {"BEGIN ISOLATION LEVEL REPEATABLE READ; " + all, add(1)},
		"that read consistently":           {"SET cleave.consistent_reads = on; BEGIN ISOLATION LEVEL REPEATABLE READ; " + all, all},
	} {
		t.Run(name, func(t *testing.T) {
			client := faults.NewClient(1, cluster.Routers...)
			defer client.Drop()
			var conn *pgx.Conn
			for range 20 { // those in the pool were cut, too
				if conn, err = client.Connection(t.Context()); err == nil {
					if _, err = conn.Exec(t.Context(), statements[0]); err == nil {
						break
					}
				}
				client.Drop()
			}
			if err != nil {
				t.Fatal(err)
			}
			cluster.Shards[1].Proxy.Cut()
			if _, err := conn.Exec(t.Context(), statements[1]); err == nil {
				t.Error("the transaction goes on")
			}
			if tag, err := conn.Exec(t.Context(), "COMMIT"); err == nil && tag.String() == "COMMIT" {
				t.Error("the transaction was committed")
			}
		})
	}
	if err := cluster.Settled(t.Context()); err != nil {
		t.Error(err)
	}
	var counted int64
	if err := cluster.EachShard(t.Context(), func(_ int, conn *pgx.Conn) error {
		var here int64
		err := conn.QueryRow(t.Context(), "SELECT sum(n)::bigint FROM counters").Scan(&here)
		counted += here
		return err
	}); err != nil || counted != 0 {
		t.Errorf("%d were counted, %v", counted, err)
	}
}
