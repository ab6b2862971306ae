package placement

import (
	"iter"
	"slices"
)

// KeyRange is a range of raw keys in their ordered encoding; package placement/key makes such encodings.
type KeyRange = Range[string]

// OwnedKeyRange is a range of raw keys and its owner.
type OwnedKeyRange = Owned[string]

// KeyMove is a range of raw keys that changes its owner.
type KeyMove = Move[string]

// KeyMap says which shard owns which range of raw keys: the list of a keyspace that is ordered by the key itself, so that
// neighbours live together and a condition such as BETWEEN reaches few shards. A bound of a composite keyspace may be a
// prefix: it sorts before all keys that continue it. It is immutable.
type KeyMap struct{ list[string] }

// NewKeyMap makes a map of these ranges, given in any order, with the checks of [NewMap].
func NewKeyMap(shards []string, ranges []OwnedKeyRange) (*KeyMap, error) {
	return rekey(newList(shards, ranges))
}

// PreSplit makes a map with a range between each two neighbouring points, dealt to the shards in order: the first ranges
// to the first shard and so on, evenly within one range.
func PreSplit(shards []string, points ...string) (*KeyMap, error) {
	if err := checkShards(Named(shards...)); err != nil {
		return nil, err
	}
	whole := list[string]{names: slices.Clone(shards), starts: []string{""}, owners: []uint32{0}}
	l, err := whole.split(points)
	if err != nil {
		return nil, err
	}
	for i := range l.owners {
		l.owners[i] = uint32(i * len(shards) / len(l.owners))
	}
	return &KeyMap{l}, nil
}

func rekey(l list[string], err error) (*KeyMap, error) {
	if err != nil {
		return nil, err
	}
	return &KeyMap{l}, nil
}

// Lookup returns the number of the shard that owns the encoded key: its place in [KeyMap.Shards].
func (m *KeyMap) Lookup(encoded string) int { return int(m.owners[m.find(encoded)]) }

// LookupBytes is [KeyMap.Lookup] for a key that is held as bytes.
func (m *KeyMap) LookupBytes(encoded []byte) int {
	// Bisecting by hand, because the conversion inside a comparison does not allocate.
	low, high := 0, len(m.starts)-1
	for low < high {
		middle := int(uint(low+high+1) >> 1)
		if m.starts[middle] <= string(encoded) {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return int(m.owners[low])
}

// Owner returns the name of the shard that owns the encoded key.
func (m *KeyMap) Owner(encoded string) string { return m.names[m.Lookup(encoded)] }

// Between appends to dst the numbers of the shards that own a part of the range, each once, in the order of the keys.
func (m *KeyMap) Between(dst []int, r KeyRange) []int {
	if !r.open() && r.Hi <= r.Lo {
		return dst
	}
	first := len(dst)
	for i := m.find(r.Lo); i < len(m.starts) && (r.open() || m.starts[i] < r.Hi); i++ {
		if owner := int(m.owners[i]); !slices.Contains(dst[first:], owner) {
			dst = append(dst, owner)
		}
	}
	return dst
}

// Shards returns the names of the shards, by number.
func (m *KeyMap) Shards() []string { return slices.Clone(m.names) }

// Len returns how many ranges there are.
func (m *KeyMap) Len() int { return len(m.starts) }

// At returns the i-th range in order.
func (m *KeyMap) At(i int) OwnedKeyRange { return m.at(i) }

// All iterates over the ranges in order.
func (m *KeyMap) All() iter.Seq[OwnedKeyRange] { return m.all() }

// Split returns a map in which a range begins at each of these points; owners stay.
func (m *KeyMap) Split(points ...string) (*KeyMap, error) { return rekey(m.split(points)) }

// Merge returns a map in which the ranges that meet at each of these points, which must have one owner, are one.
func (m *KeyMap) Merge(points ...string) (*KeyMap, error) { return rekey(m.merge(points)) }

// Compact returns a map in which all neighbours with one owner are one range.
func (m *KeyMap) Compact() *KeyMap { return &KeyMap{m.compact()} }

// Reassign returns a map in which the shard owns the range; ranges that it cuts are split.
func (m *KeyMap) Reassign(r KeyRange, owner string) (*KeyMap, error) {
	return rekey(m.reassign(r, owner))
}

// WithShards returns a map over another list of shards, which must hold every shard that owns a range.
func (m *KeyMap) WithShards(shards ...string) (*KeyMap, error) { return rekey(m.withShards(shards)) }

// Diff lists the ranges that change their owner on the way to the next map.
func (m *KeyMap) Diff(next *KeyMap) []KeyMove { return m.diff(&next.list) }

// Equal says whether both maps have the same shards, ranges and owners.
func (m *KeyMap) Equal(other *KeyMap) bool { return m.equal(&other.list) }
