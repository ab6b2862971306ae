package rebalance

import (
	"math"
	"slices"

	"github.com/cleavedb/cleave/internal/topology"
)

// piecesOf makes units of a range, cut at these points inside of it. A range that stays in any case is not cut.
func (p *planner) piecesOf(keyspace, at int, cuts []string) []unit {
	whole := p.unitOf(keyspace, at, false)
	if len(cuts) == 0 || whole.fixed {
		return []unit{whole}
	}
	pieces := make([]unit, 0, len(cuts)+1)
	rest, passed := whole, 0.0
	for i, cut := range cuts {
		until := p.fractionBelow(&whole, cut, float64(i+1)/float64(len(cuts)+1))
		piece := rest
		piece.span.Hi, piece.size = cut, whole.size.between(passed, until)
		piece.splitAt, rest.splitAt = splitPoints(rest.splitAt, cut)
		rest.span.Lo = cut
		pieces = append(pieces, piece)
		passed = until
	}
	rest.size = whole.size.between(passed, 1)
	return append(pieces, rest)
}

// fractionBelow is how much of a range lies below a point in it: of a range of hashes by width, of one of raw keys by the points at which it may be cut, or else a guess.
func (p *planner) fractionBelow(u *unit, cut string, guess float64) float64 {
	if p.keyspaces[u.keyspace].Strategy() != topology.ByRange {
		return hashWidth(span{Lo: u.span.Lo, Hi: cut}) / hashWidth(u.span)
	}
	if len(u.splitAt) == 0 {
		return guess
	}
	below, exact := slices.BinarySearch(u.splitAt, cut)
	passed := float64(below) + 0.5
	if exact {
		passed = float64(below + 1)
	}
	return passed / float64(len(u.splitAt)+1)
}

// splitPoints shares out at which points the two parts of a range may be cut further.
func splitPoints(points []string, cut string) (below, above []string) {
	at, exact := slices.BinarySearch(points, cut)
	below, above = points[:at], points[at:]
	if exact {
		above = above[1:]
	}
	return below, above
}

// cut takes the upper part off a unit, as a unit of its own: of the least amount if that can be, and never more than the most. It says whether there is such a part.
func (p *planner) cut(i int, least, most int64) (upper int, ok bool) {
	u := &p.units[i]
	if u.pin || u.fixed || least <= 0 || most < least || least >= p.amount(u) {
		return 0, false
	}
	at, below, ok := p.pointOfCut(u, least, most)
	if !ok {
		return 0, false
	}
	piece := *u
	piece.span.Lo, piece.size = at, u.size.between(below, 1)
	u.span.Hi, u.size = at, u.size.between(0, below)
	u.splitAt, piece.splitAt = splitPoints(u.splitAt, at)
	p.units = append(p.units, piece)
	p.shards[piece.owner].units++
	return len(p.units) - 1, true
}

// pointOfCut finds where to cut, and how much of the range lies below.
func (p *planner) pointOfCut(u *unit, least, most int64) (at string, below float64, ok bool) {
	if p.keyspaces[u.keyspace].Strategy() == topology.ByRange {
		return p.cutKeys(u, least, most)
	}
	return p.cutHashes(u, least)
}

// cutHashes finds where the upper part of a range of hashes has this amount, and how much of the range lies below.
func (p *planner) cutHashes(u *unit, amount int64) (at string, below float64, ok bool) {
	width := hashWidth(u.span)
	upper := math.Ceil(width * (float64(amount) / float64(p.amount(u))))
	if upper < 1 || upper >= width || width-upper < 1 {
		return "", 0, false
	}
	at = hashBound(hashOfBound(u.span.Hi) - uint64(upper)) // wraps to the right place at the end of the space
	return at, 1 - upper/width, inside(u.span, at)
}

// cutKeys finds the point at which the upper part of a range of raw keys has at least an amount, or else the one with less that has most.
func (p *planner) cutKeys(u *unit, least, most int64) (at string, below float64, ok bool) {
	parts := len(u.splitAt) + 1
	each := float64(p.amount(u)) / float64(parts)
	above := min(int(math.Ceil(float64(least)/each)), parts-1)
	if each*float64(above) > float64(most) {
		above--
	}
	if above < 1 {
		return "", 0, false
	}
	return u.splitAt[parts-1-above], float64(parts-above) / float64(parts), true
}
