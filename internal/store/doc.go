// Package store keeps a cluster's shared state in etcd: the shard map, the state of the schema, the records of live routers,
// who leads, the jobs of the leader, and which transactions wait for locks on several shards. It is the only package that imports etcd, and it carries an etcd server for
// development and tests.
//
// It does not know what a map means (package topology does), what a job does (reshard and control do) or what to do when a
// router falls behind: it stores, compares, tells of changes, and says plainly when it cannot.
//
// What it guarantees:
//   - A map is replaced by compare-and-swap, on version and content: of many writers that go on from one map exactly one wins,
//     versions never go back, and a reader gets all of a map or an error, however large it is and whoever dies while it is
//     written.
//   - A write whose answer was lost is settled before the caller hears of it: applied, not applied, or, when etcd stays away,
//     an error for which errors.Is(err, [ErrOutcomeUnknown]) holds.
//   - Nothing hangs: a request that etcd does not answer ends as an [UnavailableError] after Config.RequestTimeout, and every
//     context cancels.
//   - A [Follower] never goes back to an older map, nor over to another one of the same version or of another cluster. It
//     keeps the last one while etcd is away, and then catches up to the newest.
//   - The schema state changes by compare-and-swap too, its epoch never goes back, and no table is held by two. A follower takes
//     it over only with the map that it needs.
//   - Job records are written only by the leader: the transaction itself checks that the leadership still holds.
//
// Records of live routers rest on leases, thus on clocks. They are for visibility and for knowing whom to wait for, never for
// safety: a router without a record may still be serving. A router registers before it reads the map, so that whoever
// publishes a map first and lists routers afterwards misses none that may hold an older one.
//
// Every exported type is safe for concurrent use, except the Config structs. Values that were handed out (maps, routers,
// jobs) belong to the caller; maps are immutable.
//
// Start reading at [Open], then [Store.Swap] and [Store.Follow]; DESIGN.md has the invariants and what happens on a crash at
// each step. The schema state is in schema.go, schema_await.go and schema_follow.go.
package store
