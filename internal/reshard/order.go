package reshard

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/topology"
)

// order compares points of a keyspace.
type order struct{ k *topology.Keyspace }

func orderOf(k *topology.Keyspace) order { return order{k} }

// place is a text whose byte order is the keyspace's. The beginning is nothing.
func (o order) place(p topology.Point) (string, error) {
	if o.k.Strategy() == topology.ByRange {
		return o.k.EncodeBound(p)
	}
	if len(p) == 0 {
		return "", nil
	}
	if len(p) > 1 || len(p[0]) != 16 || strings.Trim(p[0], "0123456789abcdef") != "" {
		return "", fmt.Errorf("%s is not a point of the hash space: write 16 hexadecimal digits", p)
	}
	return strings.TrimRight(p[0], "0"), nil
}

// hash reads a point of the hash space.
func (o order) hash(p topology.Point) (uint64, error) {
	if _, err := o.place(p); err != nil || len(p) == 0 {
		return 0, err
	}
	return strconv.ParseUint(p[0], 16, 64)
}

// within says whether what is between two points is inside of a range.
func (o order) within(from, to topology.Point, r Range) (bool, error) {
	var places [4]string
	for i, p := range []topology.Point{from, to, r.From, r.To} {
		var err error
		if places[i], err = o.place(p); err != nil {
			return false, err
		}
	}
	below := len(r.To) == 0 || len(to) > 0 && places[1] <= places[3]
	return places[0] >= places[2] && below, nil
}

// split divides ranges where others begin and end.
func (o order) split(ranges []topology.RangeSpec, at []Range) ([]topology.RangeSpec, error) {
	var points []topology.Point
	for _, r := range at {
		for _, p := range []topology.Point{r.From, r.To} {
			if len(p) > 0 {
				points = append(points, p)
			}
		}
	}
	divided, _, err := o.divide(ranges, points)
	return divided, err
}

// divide divides ranges at points, in one pass over both: a keyspace may have a hundred thousand ranges, and statements be held meanwhile. It returns the points at which a range begins already, or that are named twice.
func (o order) divide(ranges []topology.RangeSpec, points []topology.Point) (divided []topology.RangeSpec, already []topology.Point, err error) {
	begins, err := o.places(len(ranges), func(i int) topology.Point { return ranges[i].From })
	if err != nil {
		return nil, nil, err
	}
	at, err := o.places(len(points), func(i int) topology.Point { return points[i] })
	if err != nil {
		return nil, nil, err
	}
	inOrder := make([]int, len(points))
	for i := range points {
		inOrder[i] = i
	}
	slices.SortFunc(inOrder, func(a, b int) int { return strings.Compare(at[a], at[b]) })
	divided = make([]topology.RangeSpec, 0, len(ranges)+len(points))
	for i, r := range ranges {
		begin := begins[i]
		for ; len(inOrder) > 0 && (i+1 == len(ranges) || at[inOrder[0]] < begins[i+1]); inOrder = inOrder[1:] {
			p := points[inOrder[0]]
			if at[inOrder[0]] <= begin {
				already = append(already, p)
				continue
			}
			lower := r
			lower.To, r.From, begin = p, p, at[inOrder[0]]
			divided = append(divided, lower)
		}
		divided = append(divided, r)
	}
	return divided, already, nil
}

// places are those of n points.
func (o order) places(n int, point func(int) topology.Point) ([]string, error) {
	places := make([]string, n)
	for i := range places {
		var err error
		if places[i], err = o.place(point(i)); err != nil {
			return nil, err
		}
	}
	return places, nil
}

// area is some ranges of a keyspace's order, in which it is found quickly whether something lies.
type area struct {
	o           order
	begins, end []string // by their places, in order
	open        bool     // the last one has no end
}

func (o order) area(ranges []Range) (area, error) {
	begins, err := o.places(len(ranges), func(i int) topology.Point { return ranges[i].From })
	if err != nil {
		return area{}, err
	}
	ends, err := o.places(len(ranges), func(i int) topology.Point { return ranges[i].To })
	if err != nil {
		return area{}, err
	}
	inOrder := make([]int, len(ranges))
	for i := range ranges {
		inOrder[i] = i
	}
	slices.SortFunc(inOrder, func(a, b int) int { return strings.Compare(begins[a], begins[b]) })
	all := area{o: o}
	for _, i := range inOrder {
		last := len(all.begins) - 1
		if last < 0 || !all.open && all.end[last] < begins[i] {
			all.begins, all.end = append(all.begins, begins[i]), append(all.end, ends[i])
		} else if !all.open {
			all.end[last] = max(all.end[last], ends[i])
		}
		all.open = all.open || len(ranges[i].To) == 0
	}
	return all, nil
}

// covers says whether what is between two points is inside of it.
func (a area) covers(from, to topology.Point) (bool, error) {
	begin, err := a.o.place(from)
	if err != nil {
		return false, err
	}
	end, err := a.o.place(to)
	if err != nil {
		return false, err
	}
	i, exact := slices.BinarySearch(a.begins, begin)
	if !exact {
		i--
	}
	switch {
	case i < 0:
		return false, nil
	case a.open && i == len(a.begins)-1:
		return true, nil
	default:
		return len(to) > 0 && end <= a.end[i], nil
	}
}

func hashPoint(h uint64) topology.Point {
	if h == 0 {
		return nil
	}
	text := strconv.FormatUint(h, 16)
	return topology.Point{strings.Repeat("0", 16-len(text)) + text}
}

// Intersect returns the parts of a keyspace's ranges that lie in others.
func Intersect(k *topology.Keyspace, with []api.MoveRange) ([]topology.RangeSpec, error) {
	o := orderOf(k)
	wanted := make([]Range, len(with))
	for i, r := range with {
		wanted[i] = Range{From: r.From, To: r.To}
		if inside, err := o.within(r.From, r.From, wanted[i]); err != nil || !inside && len(r.From) > 0 {
			return nil, errors.Join(fmt.Errorf("the range from %s to %s has nothing in it", topology.Point(r.From), topology.Point(r.To)), err)
		}
	}
	ranges, err := o.split(k.Spec().Ranges, wanted)
	if err != nil {
		return nil, err
	}
	all, err := o.area(wanted)
	if err != nil {
		return nil, err
	}
	var parts []topology.RangeSpec
	for _, r := range ranges {
		inside, err := all.covers(r.From, r.To)
		if err != nil {
			return nil, err
		}
		if inside {
			parts = append(parts, r)
		}
	}
	return parts, nil
}

// Join puts ranges together that follow each other.
func Join(ranges []Range) []Range {
	var joined []Range
	for _, r := range ranges {
		if n := len(joined); n > 0 && len(r.From) > 0 && slices.Equal(joined[n-1].To, r.From) {
			joined[n-1].To = r.To
			continue
		}
		joined = append(joined, r)
	}
	return joined
}
