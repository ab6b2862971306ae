package shardmap

import (
	"fmt"
	"math/bits"
	"runtime"
)

const (
	// shardsPerProc times GOMAXPROCS is the default shard count. With four
	// shards for each running goroutine, two that both need a lock rarely need
	// the same one.
	shardsPerProc = 4
	// maxShards bounds Config.Shards: shards come from the low 16 bits of a hash.
	maxShards = 1 << 16
	// maxCapacity bounds Config.Capacity: more is a mistake, and would take the
	// memory of the machine before the first entry.
	maxCapacity = 1 << 28
)

// Config says how a [Map] is laid out. The zero value is ready to use.
type Config[K comparable] struct {
	// Shards is how many shards the map has, rounded up to a power of two.
	// At most 65536. Default: 4 × GOMAXPROCS.
	Shards int

	// Capacity is about how many entries to make room for at once: keys do not
	// spread over shards quite evenly, so a shard may still grow. The tables never
	// shrink below it. Default: 0, which grows from almost nothing.
	Capacity int

	// Hasher turns a key into 64 bits. Equal keys must give equal hashes. The
	// result is mixed with a random number, so a weak hash is good enough as
	// long as different keys differ somewhere. It must not call the map, and it
	// must panic for a key that cannot be compared, such as a slice in an
	// interface, as the default does.
	// Default: nil, which uses hash/maphash with a random seed for each map.
	Hasher func(K) uint64
}

// normalised fills in the defaults and refuses what makes no sense.
func (c Config[K]) normalised() (Config[K], error) {
	shards, err := normaliseShards(c.Shards)
	if err != nil {
		return c, err
	}
	if c.Capacity < 0 || uint64(c.Capacity) > maxCapacity {
		return c, fmt.Errorf("shardmap: Capacity is %d, want 0 to %d", c.Capacity, uint64(maxCapacity))
	}
	c.Shards = shards
	return c, nil
}

// normaliseShards applies the default and rounds up to a power of two.
func normaliseShards(shards int) (int, error) {
	if shards == 0 {
		return min(roundUpToPowerOfTwo(shardsPerProc*runtime.GOMAXPROCS(0)), maxShards), nil
	}
	if shards < 0 || shards > maxShards {
		return 0, fmt.Errorf("shardmap: Shards is %d, want 0 to %d", shards, maxShards)
	}
	return roundUpToPowerOfTwo(shards), nil
}

// roundUpToPowerOfTwo returns the smallest power of two that is at least n.
func roundUpToPowerOfTwo(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}
