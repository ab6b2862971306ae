package rebalance

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// takeCounts notes how many statements were counted for what.
func (m *measured) takeCounts(given Counts) error {
	for _, r := range given.Ranges {
		from, err := encodeBound(m.Keyspace, r.From)
		if err == nil {
			err = m.count(m.ranges, from, r.PerSecond)
		}
		if err != nil {
			return fmt.Errorf("count of the range from %s: %w", r.From, err)
		}
	}
	for _, pin := range given.Pins {
		key, err := m.Encode(pin.Key)
		if err == nil {
			err = m.count(m.pins, key, pin.PerSecond)
		}
		if err != nil {
			return fmt.Errorf("count of the pin of %s: %w", pin.Key, err)
		}
	}
	for _, s := range given.Others {
		if err := checkCount(s.PerSecond); err != nil {
			return fmt.Errorf("count of shard %q: %w", s.Shard, err)
		}
		if m.others == nil {
			m.others = map[string]float64{}
		}
		m.others[s.Shard] += s.PerSecond
	}
	return nil
}

// count notes the count of the part that begins there.
func (m *measured) count(parts []part, lo string, perSecond float64) error {
	if err := checkCount(perSecond); err != nil {
		return err
	}
	at, found := slices.BinarySearchFunc(parts, lo, func(p part, lo string) int { return cmp.Compare(p.span.Lo, lo) })
	if !found {
		m.strays++
		return nil
	}
	parts[at].counted += perSecond
	return nil
}

func checkCount(perSecond float64) error {
	if !(perSecond >= 0) || math.IsInf(perSecond, 0) {
		return fmt.Errorf("%v statements per second", perSecond)
	}
	return nil
}

// shareByCounts shares out a shard's load by what was counted there, if anything was: to each part what was counted for it, and of what was counted for no part in particular as much as it has of the bytes.
func (m *measured) shareByCounts(has holdings, load int64) {
	m.shareOthers(has)
	if sum(has.all, func(p *part) float64 { return p.counted }) == 0 {
		return // it stays as it was shared out
	}
	for _, p := range has.all {
		p.size[loadAt] = 0
	}
	shareBy(has.all, loadAt, load, func(p *part) float64 { return p.counted })
}

// shareOthers adds to what was counted for parts what was counted for none of them: by bytes, or if there are none by width.
func (m *measured) shareOthers(has holdings) {
	takers, size := has.all, func(p *part) float64 { return float64(p.size[bytesAt]) }
	if sum(takers, size) == 0 {
		takers, size = has.takers, m.weight
	}
	total := sum(takers, size)
	for _, p := range takers {
		p.counted += m.others[has.shard] * (size(p) / total)
	}
}

func sum(parts []*part, of func(*part) float64) (total float64) {
	for _, p := range parts {
		total += of(p)
	}
	return total
}
