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
	divided := slices.Clone(ranges)
	for _, r := range at {
		for _, p := range []topology.Point{r.From, r.To} {
			if len(p) == 0 {
				continue
			}
			var err error
			if divided, err = o.splitAt(divided, p); err != nil {
				return nil, err
			}
		}
	}
	return divided, nil
}

func (o order) splitAt(ranges []topology.RangeSpec, p topology.Point) ([]topology.RangeSpec, error) {
	place, err := o.place(p)
	if err != nil {
		return nil, err
	}
	last := 0
	for i := range ranges {
		from, err := o.place(ranges[i].From)
		if err != nil {
			return nil, err
		}
		if from == place {
			return ranges, nil
		}
		if from < place {
			last = i
		}
	}
	upper := ranges[last]
	upper.From = p
	ranges[last].To = p
	return slices.Insert(ranges, last+1, upper), nil
}

// bounds are the ends of a range.
func (o order) bounds(r topology.Range) (from, to topology.Point, err error) {
	if o.k.Strategy() != topology.ByRange {
		return hashPoint(r.Hash.Lo), hashPoint(r.Hash.Hi), nil
	}
	if from, err = o.k.Texts(r.Key.Lo); err != nil {
		return nil, nil, err
	}
	to, err = o.k.Texts(r.Key.Hi)
	return from, to, err
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
	var parts []topology.RangeSpec
	for _, r := range ranges {
		for _, w := range wanted {
			inside, err := o.within(r.From, r.To, w)
			if err != nil {
				return nil, err
			}
			if inside {
				parts = append(parts, r)
				break
			}
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
