package shardmap

// ShardStats is what one shard of a [Map] has counted. All counts are exact and
// were taken at one moment; a removal that a concurrent Set undid at once counts
// as nothing. Reads, and writes to keys that are there already,
// are not counted: they touch nothing that goroutines share, and a counter
// would.
type ShardStats struct {
	// Entries is how many entries the shard holds.
	Entries int
	// Slots is how many entries its table has space for.
	Slots int
	// Inserts is how often a key was added.
	Inserts uint64
	// Deletes is how often a key was removed, by Clear as well.
	Deletes uint64
	// Grows is how often the table was replaced by a bigger one.
	Grows uint64
	// Shrinks is how often the table was replaced by a smaller one.
	Shrinks uint64
	// LockWaits is how often the lock was taken by someone else when needed.
	LockWaits uint64
}

// Stats returns the statistics of each shard, in the order of [Routed.Shard].
func (m *Map[K, V]) Stats() []ShardStats {
	stats := make([]ShardStats, len(m.tables))
	for i := range stats {
		stats[i] = m.shardStats(i)
	}
	return stats
}

func (m *Map[K, V]) shardStats(i int) ShardStats {
	s := m.shards.at(i)
	s.lock()
	defer s.unlock()
	return ShardStats{
		Entries:   s.entries,
		Slots:     len(m.tables[i].Load().buckets) * slotsPerBucket,
		Inserts:   s.inserts,
		Deletes:   s.deletes,
		Grows:     uint64(s.grows),
		Shrinks:   uint64(s.shrinks),
		LockWaits: s.lockWaits,
	}
}
