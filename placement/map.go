package placement

import (
	"iter"
	"math/bits"
	"slices"
)

// HashRange is a range of the hash space.
type HashRange = Range[uint64]

// OwnedHashRange is a range of the hash space and its owner.
type OwnedHashRange = Owned[uint64]

// HashMove is a range of the hash space that changes its owner.
type HashMove = Move[uint64]

// Map says which shard owns which part of the 64-bit hash space. It is immutable: what changes it returns a new one.
type Map struct {
	list[uint64]
	// index has an entry for every value of a hash's top bits. Most parts of the space that share their top bits have one
	// owner: then the entry is that owner's number, and one load answers. In the others a range begins: the entry is the
	// range in force where the part begins, marked as shared.
	index []uint32
	shift uint8
}

const (
	// indexBitsMore makes the index eight times as long as the list, so that seven look-ups of eight need one load.
	indexBitsMore = 3
	// maxIndexBits bounds the index of a map with very many ranges to 4 MiB.
	maxIndexBits = 20
	// shared marks an entry of the index whose part of the space has several owners.
	shared = 1 << 31
)

// NewMap makes a map of these ranges, given in any order, owned by these shards. It fails, naming the place, if the
// ranges leave a gap or overlap, or if an owner is not one of the shards. A shard may own nothing.
func NewMap(shards []string, ranges []OwnedHashRange) (*Map, error) {
	l, err := newList(shards, ranges)
	if err != nil {
		return nil, err
	}
	return mapOf(l), nil
}

// mapOf builds the index. The list must be well formed.
func mapOf(l list[uint64]) *Map {
	indexBits := min(bits.Len(uint(len(l.starts)-1))+indexBitsMore, maxIndexBits)
	m := &Map{list: l, shift: uint8(64 - indexBits), index: make([]uint32, 1<<indexBits)}
	at := 0
	for part := range m.index {
		first := uint64(part) << m.shift
		last := first | (1<<m.shift - 1)
		for at+1 < len(l.starts) && l.starts[at+1] <= first {
			at++
		}
		if at+1 < len(l.starts) && l.starts[at+1] <= last {
			m.index[part] = shared | uint32(at)
		} else {
			m.index[part] = l.owners[at]
		}
	}
	return m
}

// Lookup returns the number of the shard that owns the hash: its place in [Map.Shards].
func (m *Map) Lookup(hash uint64) int {
	entry := m.index[hash>>m.shift]
	if entry&shared == 0 {
		return int(entry)
	}
	return int(m.owners[m.seek(int(entry&^shared), hash)])
}

// Place is [Map.Lookup]; with [Map.Replicas] it makes a map a [Placer].
func (m *Map) Place(hash uint64) int { return m.Lookup(hash) }

// seek returns the range that holds the hash, which is this one or a later one: a step at a time first, because ranges
// are mostly wider than the index is fine, then by steps that double, because a poor hash crowds its ranges together.
func (m *Map) seek(at int, hash uint64) int {
	starts := m.starts
	for range 4 {
		if at+1 >= len(starts) || starts[at+1] > hash {
			return at
		}
		at++
	}
	step := 1
	for at+step < len(starts) && starts[at+step] <= hash {
		at += step
		step *= 2
	}
	beyond, _ := slices.BinarySearchFunc(starts[at+1:min(at+step, len(starts))], hash, func(start, h uint64) int {
		if start <= h {
			return -1
		}
		return 1
	})
	return at + beyond
}

// Owner returns the name of the shard that owns the hash.
func (m *Map) Owner(hash uint64) string { return m.names[m.Lookup(hash)] }

// Replicas appends to dst the numbers of k distinct shards for the hash: its owner, then the owners of the ranges that
// follow, around the end of the space. If fewer than k shards own anything, it appends those.
func (m *Map) Replicas(dst []int, hash uint64, k int) []int {
	first := len(dst)
	at := m.find(hash)
	for range m.starts {
		if len(dst)-first >= k {
			break
		}
		if owner := int(m.owners[at]); !slices.Contains(dst[first:], owner) {
			dst = append(dst, owner)
		}
		if at++; at == len(m.starts) {
			at = 0
		}
	}
	return dst
}

// Shards returns the names of the shards, by number. A name may be empty: a seat that nobody holds.
func (m *Map) Shards() []string { return slices.Clone(m.names) }

// Len returns how many ranges there are.
func (m *Map) Len() int { return len(m.starts) }

// At returns the i-th range in order.
func (m *Map) At(i int) OwnedHashRange { return m.at(i) }

// All iterates over the ranges in order.
func (m *Map) All() iter.Seq[OwnedHashRange] { return m.all() }

// RangeOf returns the range that holds the hash.
func (m *Map) RangeOf(hash uint64) OwnedHashRange { return m.at(m.find(hash)) }

// Split returns a map in which a range begins at each of these points; owners stay.
func (m *Map) Split(points ...uint64) (*Map, error) { return remap(m.split(points)) }

// Merge returns a map in which the ranges that meet at each of these points, which must have one owner, are one.
func (m *Map) Merge(points ...uint64) (*Map, error) { return remap(m.merge(points)) }

// Compact returns a map in which all neighbours with one owner are one range.
func (m *Map) Compact() *Map { return mapOf(m.compact()) }

// Reassign returns a map in which the shard owns the range; ranges that it cuts are split.
func (m *Map) Reassign(r HashRange, owner string) (*Map, error) { return remap(m.reassign(r, owner)) }

// WithShards returns a map over another list of shards, which must hold every shard that owns a range.
func (m *Map) WithShards(shards ...string) (*Map, error) { return remap(m.withShards(shards)) }

func remap(l list[uint64], err error) (*Map, error) {
	if err != nil {
		return nil, err
	}
	return mapOf(l), nil
}

// Equal says whether both maps have the same shards, ranges and owners.
func (m *Map) Equal(other *Map) bool { return m.equal(&other.list) }

// Movement is what it takes to get from one map to another.
type Movement struct {
	// Moves are the ranges that change their owner, in order.
	Moves []HashMove
	// Extent is how much of the space they cover, exactly.
	Extent Extent
}

// Diff returns what moves on the way to the next map. Shards are the same if their names are.
func (m *Map) Diff(next *Map) Movement {
	movement := Movement{Moves: m.diff(&next.list)}
	for _, move := range movement.Moves {
		movement.Extent = movement.Extent.Add(extentOfRange(move.Range))
	}
	return movement
}

// Extents returns how much of the space each shard owns, by number.
func (m *Map) Extents() []Extent {
	extents := make([]Extent, len(m.names))
	for i, owner := range m.owners {
		extents[owner] = extents[owner].Add(extentOfRange(m.bounds(i)))
	}
	return extents
}

// extentOfRange is the range's length. Hi - Lo wraps to the right length at the end of the space, but for the one range
// that is the whole space, where it wraps to nothing.
func extentOfRange(r HashRange) Extent {
	if r == (HashRange{}) {
		return WholeSpace
	}
	return Extent{low: r.Hi - r.Lo}
}
