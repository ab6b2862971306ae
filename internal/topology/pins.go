package topology

import (
	"math"
	"math/bits"
	"slices"
	"sort"

	"github.com/zeebo/xxh3"
)

// pinTable finds pins. They are sorted by hash and cut into pieces; an index by the upper bits of the hash leads to the
// piece, and within it the place is guessed, because hashes are spread evenly. A change shares all pieces but one.
type pinTable struct {
	pieces []*piece[pinEntry]
	count  int
	firsts []uint64 // the hash at which each piece begins
	// index has, for every value of a hash's upper bits, the last piece that begins at or before the first such hash.
	index []uint32
	shift uint8
}

func newPinTable(pieces []*piece[pinEntry]) pinTable {
	t := pinTable{pieces: pieces}
	if len(pieces) == 0 {
		return t
	}
	t.firsts = make([]uint64, len(pieces))
	for i, p := range pieces {
		t.count += len(p.entries)
		t.firsts[i] = p.hashes[0]
	}
	indexBits := bits.Len(uint(len(pieces))) + 1
	t.shift = uint8(64 - indexBits)
	t.index = make([]uint32, 1<<indexBits)
	at := 0
	for part := range t.index {
		first := uint64(part) << t.shift
		for at+1 < len(pieces) && t.firsts[at+1] <= first {
			at++
		}
		t.index[part] = uint32(at)
	}
	return t
}

// find returns the pin of an encoded key, nil if there is none.
func (t *pinTable) find(encoded []byte) *pinEntry {
	if t.count == 0 {
		return nil
	}
	return t.findHash(xxh3.Hash(encoded), encoded)
}

// findHash is find for a key whose hash is known.
func (t *pinTable) findHash(hash uint64, encoded []byte) *pinEntry {
	at := int(t.index[hash>>t.shift])
	for at+1 < len(t.firsts) && t.firsts[at+1] <= hash {
		at++
	}
	// Keys that share a hash lie side by side, and a piece may end between them.
	for at > 0 && t.firsts[at] == hash {
		at--
	}
	for ; at < len(t.firsts) && t.firsts[at] <= hash; at++ {
		end := uint64(math.MaxUint64)
		if at+1 < len(t.firsts) {
			end = t.firsts[at+1]
		}
		p := t.pieces[at]
		for i := guess(p.hashes, hash, t.firsts[at], end); i < len(p.hashes) && p.hashes[i] == hash; i++ {
			if p.entries[i].key == string(encoded) {
				return &p.entries[i]
			}
		}
	}
	return nil
}

// guess returns the place of the first hash that is at least this one, among hashes that are spread from first to end. It
// reads only where it guesses, because what it reads is rarely in the processor's cache.
func guess(hashes []uint64, hash, first, end uint64) int {
	if hash <= first || end == first {
		return 0
	}
	high, low := bits.Mul64(hash-first, uint64(len(hashes)))
	quotient, _ := bits.Div64(high, low, end-first)
	i := min(int(quotient), len(hashes)-1)
	for i > 0 && hashes[i-1] >= hash {
		i--
	}
	for i < len(hashes) && hashes[i] < hash {
		i++
	}
	return i
}

// with returns a table with these pins in place of what there was for their keys, and without those keys.
func (t *pinTable) with(c cutting[pinEntry], add []pinEntry, remove []pinEntry) pinTable {
	changed := slices.Concat(add, remove)
	slices.SortFunc(changed, pinEntry.compare)
	pieces := t.pieces
	// A few changes recut the pieces they fall into, one after the other; many are one pass over everything.
	if len(changed) > len(pieces)/4+1 {
		entries := edit(join(pieces), add, remove)
		return newPinTable(c.cut(entries, pieces, pinEntry.equal))
	}
	for _, one := range changed {
		at := max(sort.Search(len(pieces), func(i int) bool { return pieces[i].entries[0].compare(one) > 0 })-1, 0)
		pieces = c.recut(pieces, at, min(at+1, len(pieces)), func(entries []pinEntry) []pinEntry {
			return edit(entries, within(add, one), within(remove, one))
		})
	}
	return newPinTable(pieces)
}

// within returns the part of the sorted entries that has the key of this one.
func within(entries []pinEntry, one pinEntry) []pinEntry {
	if i, found := slices.BinarySearchFunc(entries, one, pinEntry.compare); found {
		return entries[i : i+1]
	}
	return nil
}

// edit merges sorted additions into sorted entries and leaves out the sorted removals.
func edit(entries, add, remove []pinEntry) []pinEntry {
	merged := make([]pinEntry, 0, len(entries)+len(add))
	for len(entries) > 0 || len(add) > 0 {
		switch {
		case len(add) == 0 || len(entries) > 0 && entries[0].compare(add[0]) < 0:
			if _, gone := slices.BinarySearchFunc(remove, entries[0], pinEntry.compare); !gone {
				merged = append(merged, entries[0])
			}
			entries = entries[1:]
		case len(entries) > 0 && entries[0].compare(add[0]) == 0:
			entries = entries[1:]
		default:
			merged = append(merged, add[0])
			add = add[1:]
		}
	}
	return merged
}
