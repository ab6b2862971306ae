package rebalance

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cleavedb/cleave/internal/topology"
)

// Size is how much something has. What is not known is 0.
type Size struct {
	Bytes int64 `json:"bytes"`
	Rows  int64 `json:"rows,omitempty"`
	// Load is statements, or writes, per second: whichever, as long as it is the same everywhere.
	Load float64 `json:"load,omitempty"`
}

// RangeSize is what was measured of one range.
type RangeSize struct {
	// From is where the range begins, as in the map.
	From topology.Point `json:"from,omitempty"`
	Size
	// SplitAt are points inside of a range of raw keys at which it may be cut, in order. They are taken to cut it into parts of equal size, as quantiles do.
	SplitAt []topology.Point `json:"split_at,omitempty"`
}

// PinSize is what was measured of one pinned key, or of one schema.
type PinSize struct {
	Key topology.Point `json:"key"`
	Size
}

// ShardSize is what a shard has of a keyspace in all.
type ShardSize struct {
	Shard string `json:"shard"`
	Size
}

// KeyspaceSizes is what was measured of one keyspace.
type KeyspaceSizes struct {
	Keyspace string      `json:"keyspace"`
	Ranges   []RangeSize `json:"ranges,omitempty"`
	Pins     []PinSize   `json:"pins,omitempty"`
	// Shards are for what was not measured by itself: what a shard has in all, less what was measured there, is spread over the rest of its ranges: of the hash
	// evenly over their width, of raw keys to each the same; in a keyspace of schemas to each schema the same. If all were measured by themselves, what
	// the total alone has, such as load, is spread over all of them.
	Shards []ShardSize `json:"shards,omitempty"`
	// Counts say how what a shard has of load is shared out; without them it is as all else is.
	Counts Counts `json:"counts,omitzero"`
}

// Counts are how many statements per second were counted for single ranges and pins. They are no load: a statement may be little work or much. A shard's load is shared out by them.
type Counts struct {
	Ranges []RangeCount `json:"ranges,omitempty"`
	Pins   []PinCount   `json:"pins,omitempty"`
	// Others are those that a shard got for no range or pin in particular: their part of its load is shared out as bytes are.
	Others []ShardCount `json:"others,omitempty"`
}

// RangeCount is how many statements per second were counted for a range.
type RangeCount struct {
	// From is where the range begins, as in the map.
	From      topology.Point `json:"from,omitempty"`
	PerSecond float64        `json:"per_second"`
}

// PinCount is how many statements per second were counted for a pinned key, or a schema.
type PinCount struct {
	Key       topology.Point `json:"key"`
	PerSecond float64        `json:"per_second"`
}

// ShardCount is how many statements per second were counted on a shard.
type ShardCount struct {
	Shard     string  `json:"shard"`
	PerSecond float64 `json:"per_second"`
}

// Sizes is all that was measured. A keyspace, range or pin that is not in it, nor in a shard's total, counts as empty.
type Sizes []KeyspaceSizes

// quantities are the amounts by which things can be compared.
type quantities [4]int64

// What stands where in quantities.
const (
	bytesAt = iota
	rowsAt
	loadAt
	widthAt
)

// wholeWidth is how much all ranges of a keyspace have of widthAt.
const wholeWidth = 1 << 40

// at says where a measure stands in quantities.
func (m Measure) at() int {
	switch m {
	case ByRows:
		return rowsAt
	case ByLoad:
		return loadAt
	case ByWidth:
		return widthAt
	default:
		return bytesAt
	}
}

func (q *quantities) add(other quantities) {
	for i := range q {
		q[i] += other[i]
	}
}

// between is what lies between two fractions of it. Neighbouring parts add up to the whole.
func (q quantities) between(from, to float64) quantities {
	var part quantities
	for i, n := range q {
		part[i] = int64(math.Round(float64(n)*to)) - int64(math.Round(float64(n)*from))
	}
	return part
}

func (q quantities) size() Size {
	return Size{Bytes: q[bytesAt], Rows: q[rowsAt], Load: float64(q[loadAt]) / loadScale}
}

// maxSum bounds the sum of everything, so that no arithmetic here can overflow.
const maxSum = 1 << 60

func (s Size) quantities() (quantities, error) {
	if s.Bytes < 0 || s.Rows < 0 || !(s.Load >= 0) {
		return quantities{}, fmt.Errorf("%d bytes, %d rows or a load of %v is less than nothing", s.Bytes, s.Rows, s.Load)
	}
	if s.Bytes > maxSum || s.Rows > maxSum || s.Load > maxSum/loadScale {
		return quantities{}, fmt.Errorf("%d bytes, %d rows or a load of %v is more than there can be", s.Bytes, s.Rows, s.Load)
	}
	return quantities{s.Bytes, s.Rows, scaled(s.Load)}, nil
}

// part is one range or pin of a keyspace with its size.
type part struct {
	span  span // of a pin only Lo: its key
	owner *topology.Shard
	// busy parts have a move under way, or are held; goes is who will own them.
	busy    bool
	goes    *topology.Shard
	size    quantities
	known   bool
	splitAt []string
	// counted is how many statements per second were counted for it.
	counted float64
}

// measured is a keyspace with the sizes of all that it has.
type measured struct {
	*topology.Keyspace
	ranges []part // in order
	pins   []part // in the order of their keys
	// strays are how many sizes were given for what the map does not have.
	strays int
	// others are how many statements per second a shard got for no part in particular.
	others map[string]float64
}

// measure puts the sizes to the ranges and pins of the keyspace.
func measure(k *topology.Keyspace, given []KeyspaceSizes) (*measured, error) {
	m := &measured{Keyspace: k}
	m.list()
	for _, sizes := range given {
		if sizes.Keyspace != k.Name() {
			continue
		}
		if err := m.take(sizes); err != nil {
			return nil, fmt.Errorf("sizes of keyspace %q: %w", k.Name(), err)
		}
	}
	return m, nil
}

func (m *measured) list() {
	m.ranges = make([]part, 0, m.RangeCount())
	for r := range m.Ranges() {
		p := part{span: spanOf(m.Keyspace, r), owner: r.Owner}
		p.goes, p.busy = destination(r.Owner, r.Copies, r.Held)
		p.size[widthAt] = wholeWidth / int64(m.RangeCount())
		if m.Strategy() != topology.ByRange {
			p.size[widthAt] = int64(math.Ldexp(hashWidth(p.span), -24))
		}
		m.ranges = append(m.ranges, p)
	}
	m.pins = make([]part, 0, m.PinCount())
	for pin := range m.Pins() {
		p := part{span: span{Lo: pin.Encoded}, owner: pin.Owner}
		p.goes, p.busy = destination(pin.Owner, pin.Copies, pin.Held)
		m.pins = append(m.pins, p)
	}
	slices.SortFunc(m.pins, func(a, b part) int { return cmp.Compare(a.span.Lo, b.span.Lo) })
}

// destination says who will own a range or pin when the move that is under way is done.
func destination(owner *topology.Shard, copies []topology.Copy, held bool) (goes *topology.Shard, busy bool) {
	goes = owner
	for _, c := range slices.Backward(copies) {
		if c.State != topology.Leaving && (goes == owner || c.State == topology.Opening) {
			goes = c.Shard
		}
	}
	return goes, held || len(copies) > 0
}

func (m *measured) take(given KeyspaceSizes) error {
	for _, r := range given.Ranges {
		if err := m.takeRange(r); err != nil {
			return fmt.Errorf("range from %s: %w", r.From, err)
		}
	}
	for _, pin := range given.Pins {
		key, err := m.Encode(pin.Key)
		if err == nil {
			err = m.set(m.pins, key, pin.Size, nil)
		}
		if err != nil {
			return fmt.Errorf("pin of %s: %w", pin.Key, err)
		}
	}
	if err := m.takeCounts(given.Counts); err != nil {
		return err
	}
	return m.takeTotals(given.Shards)
}

func (m *measured) takeTotals(totals []ShardSize) error {
	if len(totals) == 0 {
		return nil
	}
	shards, seen := m.byShard(), map[string]bool{}
	for _, total := range totals {
		whole, err := total.quantities()
		if err != nil {
			return fmt.Errorf("shard %q: %w", total.Shard, err)
		}
		if seen[total.Shard] {
			return fmt.Errorf("shard %q is there twice", total.Shard)
		}
		seen[total.Shard] = true
		if has, there := shards[total.Shard]; there {
			m.spread(has, whole)
		} else if whole != (quantities{}) {
			m.strays++
		}
	}
	return nil
}

func (m *measured) takeRange(r RangeSize) error {
	from, err := encodeBound(m.Keyspace, r.From)
	if err != nil {
		return err
	}
	points := make([]string, len(r.SplitAt))
	for i, p := range r.SplitAt {
		if points[i], err = encodeBound(m.Keyspace, p); err != nil {
			return fmt.Errorf("split at %s: %w", p, err)
		}
		if points[i] <= from || i > 0 && points[i] <= points[i-1] {
			return fmt.Errorf("split at %s: it is not after what is before it", p)
		}
	}
	return m.set(m.ranges, from, r.Size, points)
}

// set notes the size of the part that begins there.
func (m *measured) set(parts []part, lo string, size Size, splitAt []string) error {
	q, err := size.quantities()
	if err != nil {
		return err
	}
	at, found := slices.BinarySearchFunc(parts, lo, func(p part, lo string) int { return cmp.Compare(p.span.Lo, lo) })
	if !found {
		m.strays++
		return nil
	}
	p := &parts[at]
	if p.known {
		return errors.New("it is there twice")
	}
	if n := len(splitAt); n > 0 && !inside(p.span, splitAt[n-1]) {
		return fmt.Errorf("split at %s: it is not inside", pointOf(m.Keyspace, splitAt[n-1]))
	}
	q[widthAt] = p.size[widthAt]
	p.size, p.known, p.splitAt = q, true, splitAt
	return nil
}

// spread shares out what a shard has in all, less what was measured by itself.
func (m *measured) spread(has holdings, whole quantities) {
	var unknown []*part
	var known quantities
	for _, p := range has.measured {
		known.add(p.size)
	}
	for _, p := range has.takers {
		if !p.known {
			unknown = append(unknown, p)
		}
	}
	for field := range widthAt {
		switch {
		case len(unknown) > 0:
			m.share(unknown, field, whole[field]-known[field])
		case known[field] == 0:
			m.share(has.takers, field, whole[field])
		}
	}
	if known[loadAt] == 0 {
		m.shareByCounts(has, whole[loadAt])
	}
	for _, p := range unknown {
		p.known = true
	}
}

// holdings are the parts that a shard has of a keyspace.
type holdings struct {
	shard    string
	all      []*part
	measured []*part
	takers   []*part // what takes a part of what is spread: schemas if the keyspace is of them, ranges if not
}

// byShard lists what each shard has.
func (m *measured) byShard() map[string]holdings {
	shards := map[string]holdings{}
	note := func(parts []part, takes bool) {
		for i := range parts {
			p := &parts[i]
			has := shards[p.owner.Name()]
			has.shard, has.all = p.owner.Name(), append(has.all, p)
			if p.known {
				has.measured = append(has.measured, p)
			}
			if takes {
				has.takers = append(has.takers, p)
			}
			shards[p.owner.Name()] = has
		}
	}
	note(m.ranges, m.Strategy() != topology.BySchema)
	note(m.pins, m.Strategy() == topology.BySchema)
	return shards
}

// share gives everybody a part of the amount, by width where there is one.
func (m *measured) share(takers []*part, field int, amount int64) {
	if amount <= 0 || len(takers) == 0 {
		return
	}
	shareBy(takers, field, amount, m.weight)
}

// weight is how much a part gets of what is spread: by width where there is one.
func (m *measured) weight(p *part) float64 {
	if m.Strategy() == topology.ByHash {
		return hashWidth(p.span)
	}
	return 1
}

// shareBy gives everybody a part of the amount by their weights, of which one must be above 0.
func shareBy(takers []*part, field int, amount int64, weight func(*part) float64) {
	total := sum(takers, weight)
	passed, given := 0.0, int64(0)
	for i, p := range takers {
		passed += weight(p)
		until := amount
		if i < len(takers)-1 {
			until = min(int64(math.Floor(float64(amount)*(passed/total))), amount)
		}
		p.size[field] += until - given
		given = until
	}
}
