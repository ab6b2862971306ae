package traffic

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"slices"
	"sort"
	"strconv"

	"github.com/cleavedb/cleave/internal/topology"
)

// layout is where the ranges of a keyspace begin, made to find the one that has a key.
type layout struct {
	// starts are where ranges begin, in order, the first at the beginning. A hash is written as eight bytes, the highest first, so that they compare as it does; nothing is the beginning.
	starts []string
	// hashes are the same as numbers, in a keyspace by hash. Index has, for every value of a hash's top bits, the range in force where these hashes begin, and one more at its end.
	hashes []uint64
	index  []uint32
	shift  int
}

const (
	// indexBitsMore makes the index four times as long as the list, so that few hashes need more than one look.
	indexBitsMore = 2
	maxIndexBits  = 20
	hashBits      = 64
)

func layoutOf(k *topology.Keyspace) layout {
	l := layout{starts: make([]string, 0, k.RangeCount())}
	for r := range k.Ranges() {
		if k.Strategy() == topology.ByRange {
			l.starts = append(l.starts, r.Key.Lo)
			continue
		}
		l.starts, l.hashes = append(l.starts, hashBound(r.Hash.Lo)), append(l.hashes, r.Hash.Lo)
	}
	if l.hashes != nil {
		l.makeIndex()
	}
	return l
}

func (l *layout) makeIndex() {
	indexBits := min(bits.Len(uint(len(l.hashes)-1))+indexBitsMore, maxIndexBits)
	l.shift, l.index = hashBits-indexBits, make([]uint32, 1<<indexBits+1)
	at := 0
	for part := range 1 << indexBits {
		for at+1 < len(l.hashes) && l.hashes[at+1] <= uint64(part)<<l.shift {
			at++
		}
		l.index[part] = uint32(at)
	}
	l.index[1<<indexBits] = uint32(len(l.hashes) - 1)
}

// findHash returns which range has a hash.
func (l *layout) findHash(hash uint64) int {
	first, last := int(l.index[hash>>l.shift]), int(l.index[hash>>l.shift+1])
	return first + sort.Search(last-first, func(i int) bool { return l.hashes[first+i+1] > hash })
}

// findKey returns which range has a key, in its ordered encoding.
func (l *layout) findKey(encoded []byte) int {
	return sort.Search(len(l.starts)-1, func(i int) bool { return l.starts[i+1] > string(encoded) })
}

// span is a part of a keyspace's order, from Lo to before Hi, written as a layout writes it. No Hi is the end.
type span struct{ lo, hi string }

func (l *layout) span(at int) span {
	if at+1 < len(l.starts) {
		return span{l.starts[at], l.starts[at+1]}
	}
	return span{lo: l.starts[at]}
}

// portions says which ranges have a part of a span, and how much of it: of hashes by width, of raw keys to each the same.
func (l *layout) portions(s span) iter.Seq2[int, float64] {
	first := l.findKey([]byte(s.lo))
	last := first
	for last+1 < len(l.starts) && (s.hi == "" || l.starts[last+1] < s.hi) {
		last++
	}
	return func(yield func(int, float64) bool) {
		for at := first; at <= last; at++ {
			share := 1 / float64(last-first+1)
			if l.hashes != nil {
				share = width(common(s, l.span(at))) / width(s)
			}
			if !yield(at, share) {
				return
			}
		}
	}
}

// common is what two spans that overlap have in common.
func common(a, b span) span {
	c := span{lo: max(a.lo, b.lo), hi: min(a.hi, b.hi)}
	if a.hi == "" || b.hi == "" {
		c.hi = a.hi + b.hi // the one that is not the end
	}
	return c
}

// width is how many hashes a span has.
func width(s span) float64 {
	if s == (span{}) {
		return math.Ldexp(1, hashBits)
	}
	return float64(hashOf(s.hi) - hashOf(s.lo)) // wraps to the right width at the end of the space
}

func hashBound(h uint64) string {
	if h == 0 {
		return ""
	}
	return string(binary.BigEndian.AppendUint64(nil, h))
}

func hashOf(bound string) uint64 {
	if bound == "" {
		return 0
	}
	return binary.BigEndian.Uint64([]byte(bound))
}

// pointOf writes a bound as maps do; nil for the beginning, or the end.
func pointOf(k *topology.Keyspace, bound string) (topology.Point, error) {
	switch {
	case bound == "":
		return nil, nil
	case k.Strategy() == topology.ByRange:
		return k.Texts(bound)
	default:
		return topology.Point{fmt.Sprintf("%016x", hashOf(bound))}, nil
	}
}

// boundOf reads a bound as maps write it.
func boundOf(k *topology.Keyspace, p topology.Point) (string, error) {
	switch {
	case len(p) == 0:
		return "", nil
	case k.Strategy() == topology.ByRange:
		return k.EncodeBound(p)
	case len(p) != 1:
		return "", fmt.Errorf("%s is not a point of the hash space", p)
	}
	h, err := strconv.ParseUint(p[0], 16, hashBits)
	return hashBound(h), err
}

// sameAs says whether two layouts have the same ranges.
func (l *layout) sameAs(other *layout) bool {
	return (l.hashes == nil) == (other.hashes == nil) && slices.Equal(l.starts, other.starts)
}
