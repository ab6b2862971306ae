package pool

// keptFree is how many connections of a shard no router takes, so that people and the control plane still get in.
const keptFree = 5

// Budget returns how many backends one router may have to a shard so that all routers together leave room on its server:
// routers × budget ≤ max_connections − reserved − a few for people and the control plane. Reserved is
// superuser_reserved_connections and reserved_connections together. It is never more than perShard and total allow, of
// which 0 is no limit, and never less than 1: a router without a backend serves nobody.
func Budget(maxConnections, reserved, routers, perShard, total int) int {
	budget := (maxConnections - reserved - keptFree) / max(routers, 1)
	for _, limit := range []int{perShard, total} {
		if limit > 0 {
			budget = min(budget, limit)
		}
	}
	return max(budget, 1)
}
