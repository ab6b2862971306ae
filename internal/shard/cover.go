package shard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

// order turns points of a keyspace into texts whose byte order is the keyspace's.
type order struct {
	hashed bool // points are of the hash space
	types  []key.Type
}

func newOrder(head topology.KeyspaceHead) (*order, error) {
	o := &order{hashed: head.Strategy != topology.ByRange}
	if head.Strategy == topology.BySchema {
		o.types = []key.Type{key.Text}
	}
	for _, name := range head.Key {
		t, err := key.ParseType(name)
		if err != nil {
			return nil, err
		}
		o.types = append(o.types, t)
	}
	return o, nil
}

// encode returns the ordered encoding of a key or of its first values.
func (o *order) encode(p topology.Point) (string, error) {
	if len(p) > len(o.types) {
		return "", fmt.Errorf("%s has more values than a key", p)
	}
	var encoded []byte
	for i, text := range p {
		value, err := o.types[i].Parse(text)
		if err != nil {
			return "", err
		}
		encoded = value.AppendOrdered(encoded)
	}
	return string(encoded), nil
}

// bound returns the place of a range's bound. Hexadecimal digits, always as many, sort as the numbers do; without the zeros at
// their end they still do, and the beginning is nothing.
func (o *order) bound(p topology.Point) (string, error) {
	if !o.hashed {
		return o.encode(p)
	}
	if len(p) == 0 {
		return "", nil
	}
	if len(p) > 1 || len(p[0]) != 16 || strings.Trim(p[0], "0123456789abcdef") != "" {
		return "", fmt.Errorf("%s is not a point of the hash space", p)
	}
	return strings.TrimRight(p[0], "0"), nil
}

// rangeClaim is what a shard says of a range.
type rangeClaim struct {
	claim
	lower, upper string // places in the keyspace's order
	endless      bool   // it has no upper bound
	from, to     topology.Point
}

func (o *order) claim(r *Recorded, one Range) (rangeClaim, error) {
	c := rangeClaim{claim: claim{record: r, state: one.State, held: one.Held}, endless: len(one.Upper) == 0, from: one.Lower, to: one.Upper}
	var err error
	if c.lower, err = o.bound(one.Lower); err != nil {
		return c, err
	}
	if c.upper, err = o.bound(one.Upper); err != nil {
		return c, err
	}
	if !c.endless && c.lower >= c.upper {
		return c, fmt.Errorf("the range from %s to %s has nothing in it", one.Lower, one.Upper)
	}
	return c, nil
}

// cover lays the claims beside each other, stretch by stretch between all of their bounds, and returns the ranges. A
// stretch that nobody owns is a problem. Bounds of older records may cut a range into more pieces than it had.
func (b *rebuilding) cover(keyspace string, claims []rangeClaim) []topology.RangeSpec {
	slices.SortStableFunc(claims, func(x, y rangeClaim) int { return strings.Compare(x.lower, y.lower) })
	points, places := boundsOf(claims)
	var ranges []topology.RangeSpec
	var active []rangeClaim
	for i, place := range places {
		active = slices.DeleteFunc(active, func(r rangeClaim) bool { return !r.endless && r.upper <= place })
		for len(claims) > 0 && claims[0].lower == place {
			active, claims = append(active, claims[0]), claims[1:]
		}
		end := "the end"
		if i+1 < len(places) {
			end = points[places[i+1]].String()
		}
		if one, owned := b.stretch(keyspace, points[place], end, active); owned {
			ranges = append(ranges, one)
		}
	}
	return ranges
}

// boundsOf returns where ranges begin or end, in order and by place.
func boundsOf(claims []rangeClaim) (points map[string]topology.Point, places []string) {
	points = map[string]topology.Point{"": nil} // there may be nothing at the beginning
	for _, c := range claims {
		points[c.lower] = c.from
		if !c.endless {
			points[c.upper] = c.to
		}
	}
	return points, sortedKeys(points)
}

// stretch returns one stretch, from a point to the next, on which all of these claims lie; false if nobody owns it.
func (b *rebuilding) stretch(keyspace string, from topology.Point, end string, active []rangeClaim) (topology.RangeSpec, bool) {
	claims := make([]claim, len(active))
	for i, r := range active {
		claims[i] = r.claim
	}
	// The newest record comes first, as it does for pins.
	slices.SortStableFunc(claims, func(x, y claim) int { return b.rank(x) - b.rank(y) })
	what := func() string { return fmt.Sprintf("keyspace %q from %s to %s", keyspace, from, end) }
	owner, copies := b.settle(keyspace, claims, what)
	if owner == nil {
		b.problem("", "gap", what()+" belongs to nobody", "A shard is probably missing: name all of them.")
		return topology.RangeSpec{}, false
	}
	b.prove(owner, true, what)
	return topology.RangeSpec{From: from, Shard: owner.record.Shard, Copies: copies}, true
}

// rank is the place of the claim's record among those that count.
func (b *rebuilding) rank(c claim) int { return slices.Index(b.chosen, c.record) }
