package control

import "time"

// workWindow is over how long load is averaged at least: a moment's peak should move nothing. Tests have less time.
var workWindow = time.Minute

// workReading is how much work a shard's tables had done at a moment, as PostgreSQL counts it, and how much a second in the time before: scans begun and rows written. Load is not
// counted by routers, range by range: that would take a counter for each range in each router's way of every statement, and 150,000 of them to be gathered.
// What a shard counts costs nothing more, and tells which shards and which tables are busy; a shard's load is shared out over its ranges as its size is.
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
