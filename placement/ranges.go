package placement

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
)

// Point is a place in a keyspace's order: a 64-bit hash, or a raw key in its ordered encoding. In both the zero value is
// the first point.
type Point interface{ uint64 | string }

// Range is the half-open interval [Lo, Hi). The zero Hi stands for the end of the space: nothing can end before the
// first point, so it has no other meaning.
type Range[P Point] struct{ Lo, Hi P }

// Contains says whether the point lies in the range.
func (r Range[P]) Contains(p P) bool {
	return p >= r.Lo && (p < r.Hi || r.open())
}

// open says whether the range reaches the end of the space.
func (r Range[P]) open() bool {
	var zero P
	return r.Hi == zero
}

// String prints the range with its bounds as they are compared.
func (r Range[P]) String() string {
	if r.open() {
		return "[" + pointString(r.Lo) + ", end)"
	}
	return "[" + pointString(r.Lo) + ", " + pointString(r.Hi) + ")"
}

func pointString[P Point](p P) string {
	switch p := any(p).(type) {
	case uint64:
		return fmt.Sprintf("0x%016x", p)
	case string:
		return strconv.Quote(p)
	default:
		panic("placement: unknown kind of point")
	}
}

// Owned is a range and the shard that owns it.
type Owned[P Point] struct {
	Range[P]
	Owner string
}

// Move is a range that changes its owner.
type Move[P Point] struct {
	Range[P]
	From, To string
}

// list is the sorted list of ranges under both kinds of map. Range i is [starts[i], starts[i+1]), the last one reaches the
// end; starts[0] is the first point. So by its form alone it covers the space exactly once.
type list[P Point] struct {
	starts []P
	owners []uint32
	names  []string
}

// newList checks that the ranges cover the space exactly once and that every owner is one of the shards.
func newList[P Point](shards []string, ranges []Owned[P]) (list[P], error) {
	number, err := numbered(shards)
	if err != nil {
		return list[P]{}, err
	}
	if len(ranges) == 0 {
		return list[P]{}, errors.New("no ranges: the whole space is a gap")
	}
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b Owned[P]) int { return cmp.Compare(a.Lo, b.Lo) })
	l := list[P]{names: slices.Clone(shards), starts: make([]P, len(sorted)), owners: make([]uint32, len(sorted))}
	var end P // where the ranges so far end
	for i, r := range sorted {
		if !r.open() && r.Hi <= r.Lo {
			return list[P]{}, fmt.Errorf("range %s of shard %q is empty or reversed", r.Range, r.Owner)
		}
		if err := joins(sorted, i, end); err != nil {
			return list[P]{}, err
		}
		owner, known := number[r.Owner]
		if !known || r.Owner == "" {
			return list[P]{}, fmt.Errorf("range %s is owned by %q, which is not one of the shards", r.Range, r.Owner)
		}
		l.starts[i], l.owners[i] = r.Lo, owner
		end = r.Hi
	}
	if last := sorted[len(sorted)-1]; !last.open() {
		return list[P]{}, fmt.Errorf("gap %s: no range covers it", Range[P]{Lo: last.Hi})
	}
	return l, nil
}

// joins checks that range i begins where the ranges before it end.
func joins[P Point](sorted []Owned[P], i int, end P) error {
	r := sorted[i]
	if i > 0 && sorted[i-1].open() {
		return fmt.Errorf("overlap %s: both %q and %q own it", Range[P]{r.Lo, r.Hi}, sorted[i-1].Owner, r.Owner)
	}
	switch {
	case r.Lo > end:
		return fmt.Errorf("gap %s: no range covers it", Range[P]{end, r.Lo})
	case r.Lo < end:
		shared := Range[P]{r.Lo, end}
		if !r.open() && r.Hi < end {
			shared.Hi = r.Hi
		}
		return fmt.Errorf("overlap %s: both %q and %q own it", shared, sorted[i-1].Owner, r.Owner)
	default:
		return nil
	}
}

// numbered returns the shards' numbers. An empty name is a seat that nobody holds: it keeps its number and owns nothing.
func numbered(shards []string) (map[string]uint32, error) {
	present := slices.DeleteFunc(Named(shards...), Shard.vacant)
	if err := checkShards(present); err != nil {
		return nil, err
	}
	number := make(map[string]uint32, len(shards))
	for i, name := range shards {
		number[name] = uint32(i)
	}
	return number, nil
}

// find returns the number of the range that holds the point.
func (l *list[P]) find(p P) int {
	i, exact := slices.BinarySearch(l.starts, p)
	if exact {
		return i
	}
	return i - 1
}

func (l *list[P]) bounds(i int) Range[P] {
	r := Range[P]{Lo: l.starts[i]}
	if i+1 < len(l.starts) {
		r.Hi = l.starts[i+1]
	}
	return r
}

func (l *list[P]) at(i int) Owned[P] {
	return Owned[P]{Range: l.bounds(i), Owner: l.names[l.owners[i]]}
}

func (l *list[P]) all() iter.Seq[Owned[P]] {
	return func(yield func(Owned[P]) bool) {
		for i := range l.starts {
			if !yield(l.at(i)) {
				return
			}
		}
	}
}

func (l *list[P]) split(points []P) (list[P], error) {
	sorted := slices.Clone(points)
	slices.Sort(sorted)
	next := list[P]{names: l.names, starts: make([]P, 0, len(l.starts)+len(points)), owners: make([]uint32, 0, len(l.starts)+len(points))}
	i := 0
	for _, p := range sorted {
		for i < len(l.starts) && l.starts[i] <= p {
			next.push(l.starts[i], l.owners[i])
			i++
		}
		if next.starts[len(next.starts)-1] == p {
			return list[P]{}, fmt.Errorf("a range begins at %s already", pointString(p))
		}
		next.push(p, next.owners[len(next.owners)-1])
	}
	for ; i < len(l.starts); i++ {
		next.push(l.starts[i], l.owners[i])
	}
	return next, nil
}

func (l *list[P]) push(start P, owner uint32) {
	l.starts = append(l.starts, start)
	l.owners = append(l.owners, owner)
}

// merge joins the range that begins at each point with the one before it.
func (l *list[P]) merge(points []P) (list[P], error) {
	gone := make(map[int]bool, len(points))
	for _, p := range points {
		i, exact := slices.BinarySearch(l.starts, p)
		switch {
		case !exact || i == 0:
			return list[P]{}, fmt.Errorf("no two ranges meet at %s", pointString(p))
		case l.owners[i] != l.owners[i-1]:
			return list[P]{}, fmt.Errorf("ranges %s and %s have different owners, %q and %q: reassign one first",
				l.bounds(i-1), l.bounds(i), l.names[l.owners[i-1]], l.names[l.owners[i]])
		}
		gone[i] = true
	}
	next := list[P]{names: l.names}
	for i, start := range l.starts {
		if !gone[i] {
			next.push(start, l.owners[i])
		}
	}
	return next, nil
}

// compact joins all neighbours with one owner.
func (l *list[P]) compact() list[P] {
	next := list[P]{names: l.names}
	for i, start := range l.starts {
		if i == 0 || l.owners[i] != l.owners[i-1] {
			next.push(start, l.owners[i])
		}
	}
	return next
}

// reassign gives the range to a shard, splitting ranges that it cuts.
func (l *list[P]) reassign(r Range[P], owner string) (list[P], error) {
	number := slices.Index(l.names, owner)
	if number < 0 || owner == "" {
		return list[P]{}, fmt.Errorf("%q is not one of the shards", owner)
	}
	if !r.open() && r.Hi <= r.Lo {
		return list[P]{}, fmt.Errorf("range %s is empty or reversed", r)
	}
	var cuts []P
	if l.starts[l.find(r.Lo)] != r.Lo {
		cuts = append(cuts, r.Lo)
	}
	if !r.open() && l.starts[l.find(r.Hi)] != r.Hi {
		cuts = append(cuts, r.Hi)
	}
	next, err := l.split(cuts)
	if err != nil {
		return list[P]{}, err
	}
	for i := next.find(r.Lo); i < len(next.starts) && (r.open() || next.starts[i] < r.Hi); i++ {
		next.owners[i] = uint32(number)
	}
	return next, nil
}

// withShards replaces the list of shards. A shard that owns a range must stay.
func (l *list[P]) withShards(shards []string) (list[P], error) {
	number, err := numbered(shards)
	if err != nil {
		return list[P]{}, err
	}
	next := list[P]{names: slices.Clone(shards), starts: l.starts, owners: make([]uint32, len(l.owners))}
	for i, owner := range l.owners {
		to, known := number[l.names[owner]]
		if !known {
			return list[P]{}, fmt.Errorf("shard %q still owns %s", l.names[owner], l.bounds(i))
		}
		next.owners[i] = to
	}
	return next, nil
}

// diff lists the ranges whose owner, by name, is another in next; neighbours with the same move are joined.
func (l *list[P]) diff(next *list[P]) []Move[P] {
	var moves []Move[P]
	i, j := 0, 0
	for i < len(l.starts) && j < len(next.starts) {
		a, b := l.bounds(i), next.bounds(j)
		part := Range[P]{Lo: max(a.Lo, b.Lo), Hi: b.Hi}
		if endsFirst(a, b) {
			part.Hi = a.Hi
		}
		moves = appendMove(moves, Move[P]{part, l.names[l.owners[i]], next.names[next.owners[j]]})
		if endsFirst(a, b) {
			i++
		}
		if endsFirst(b, a) {
			j++
		}
	}
	return moves
}

// endsFirst says whether a ends no later than b.
func endsFirst[P Point](a, b Range[P]) bool {
	if a.open() {
		return b.open()
	}
	return b.open() || a.Hi <= b.Hi
}

func appendMove[P Point](moves []Move[P], m Move[P]) []Move[P] {
	if m.From == m.To {
		return moves
	}
	if n := len(moves); n > 0 && moves[n-1].Hi == m.Lo && moves[n-1].From == m.From && moves[n-1].To == m.To {
		moves[n-1].Hi = m.Hi
		return moves
	}
	return append(moves, m)
}

func (l *list[P]) equal(other *list[P]) bool {
	return slices.Equal(l.starts, other.starts) && slices.Equal(l.owners, other.owners) && slices.Equal(l.names, other.names)
}
