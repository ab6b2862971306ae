package cluster_test

import (
	"testing"

	"github.com/cleavedb/cleave/test/cluster"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestTheBusiestRangeIsSeen by every router, whichever of them the statements went through.
func TestTheBusiestRangeIsSeen(t *testing.T) {
	thorough.Only(t)
	c := cluster.StartRouters(t, 2, 2)
	client, other := c.Routers[0].Dial(t), c.Routers[1].Dial(t)
	mustExec(t, client, "CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
	mustExec(t, client, "SELECT cleave.shard_table('orders', 'id')")
	mustExec(t, client, "SELECT cleave.split_range('default_bigint', at => '2000000000000000')")
	const told = "SELECT count(*) FROM cleave.ranges WHERE statements_per_second > 1"
	cluster.Eventually(t, "one range is known to be busy", func() bool {
		for range 20 {
			mustExec(t, client, "SELECT note FROM orders WHERE id = $1", 7)
		}
		return one[int](t, other, told) == 1
	})
	if shard := one[string](t, other, "SELECT shard FROM cleave.ranges WHERE statements_per_second > 1"); shard != one[string](t, client, "SELECT cleave.shard_of('orders', 7)") {
		t.Errorf("the busiest range is on shard %s", shard)
	}
	mustExec(t, other, "DROP TABLE orders")
}
