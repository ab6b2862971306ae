package control

import "time"

// workWindow is over how long load is averaged at least: a moment's peak should move nothing. Tests have less time.
var workWindow = time.Minute

// workReading is how much work a shard's tables had done at a moment, as PostgreSQL counts it, and how much a second in the time before: scans begun and rows written. It costs nothing, is all that
// happened, whoever sent it, and tells how busy shards are beside each other. Which ranges that is for PostgreSQL does not know: routers count statements range by range (traffic.go), and a shard's load is shared
// out by what they count. So a load has one unit everywhere, and what routers do not see, such as statements for all shards, is shared out as size is; all of it, where no router reports anything.
type workReading struct {
	at   time.Time
	work map[string]int64 // by table
	rate map[string]float64
}

// load fills in how much work each table of a shard does in a second, as far as that is known: from the second reading on.
func (c *Cluster) load(shard string, tables []measured, now time.Time) {
	c.workLock.Lock()
	defer c.workLock.Unlock()
	before, seen := c.work[shard]
	if !seen || now.Sub(before.at) >= workWindow {
		next := workReading{at: now, work: map[string]int64{}, rate: map[string]float64{}}
		for _, t := range tables {
			next.work[t.table] = t.work
			done, known := before.work[t.table]
			if known && t.work >= done { // or its statistics were reset
				next.rate[t.table] = float64(t.work-done) / now.Sub(before.at).Seconds()
			}
		}
		c.work[shard], before = next, next
	}
	for i, t := range tables {
		tables[i].Load = before.rate[t.table]
	}
}
