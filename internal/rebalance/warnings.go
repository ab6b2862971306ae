package rebalance

import (
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/internal/topology"
)

// warnOfSizes says what was not measured, or is not there any more.
func (p *planner) warnOfSizes(sizes Sizes) {
	for _, given := range sizes {
		if p.m.Keyspace(given.Keyspace) == nil {
			p.warnf("sizes of keyspace %s are of no use: the map does not have it", given.Keyspace)
		}
	}
	for _, k := range p.keyspaces {
		if k.strays > 0 {
			p.warnf("keyspace %s: %d sizes are of ranges, pins or shards that the map does not have there", k.Name(), k.strays)
		}
		if k.Strategy() == topology.BySchema {
			if unknown := count(k.pins); unknown > 0 {
				p.warnf("keyspace %s: the size of %d of %d schemas is not known: they count as empty", k.Name(), unknown, len(k.pins))
			}
		} else if unknown := count(k.ranges); unknown > 0 {
			p.warnf("keyspace %s: the size of %d of %d ranges is not known: they count as empty", k.Name(), unknown, len(k.ranges))
		}
	}
}

func count(parts []part) (unknown int) {
	for i := range parts {
		if !parts[i].known {
			unknown++
		}
	}
	return unknown
}

// warnOfRest says what the plan does not reach.
func (p *planner) warnOfRest() {
	if !slices.ContainsFunc(p.shards, func(s shard) bool { return s.role == taking }) {
		p.warnf("no shard can take anything: none is active, in reach and not to be emptied")
	}
	p.warnOfRules()
	p.warnOfDraining()
	p.warnOfSkew()
}

// warnOfRules says which rules are not obeyed, and why.
func (p *planner) warnOfRules() {
	broken, stuck := make([]int, len(p.classes)), make([]int, len(p.classes))
	for i := range p.units {
		u := &p.units[i]
		if p.violates(u) {
			broken[u.class]++
		}
		if p.violates(u) || p.shards[u.owner].role == emptying {
			stuck[u.class]++
		}
	}
	for at := range p.classes {
		c := &p.classes[at]
		switch {
		case at == 0 || stuck[at] == 0:
		case c.open && (broken[at] == 0 || p.drained != ""):
		case c.open:
			p.warnf("%d ranges or pins that need %s stay on shards without: they have a move under way, their shard cannot give, or a limit was reached", broken[at], c)
		case slices.ContainsFunc(p.shards, func(s shard) bool { return c.allows(s.Shard) }):
			p.warnf("no shard with label %s can take anything: what needs it stays where it is", c)
		default:
			p.warnf("no shard has label %s: what needs it stays where it is", c)
		}
	}
}

// warnOfDraining says which shards do not end empty.
func (p *planner) warnOfDraining() {
	tables := p.m.Holdings()
	for i := range p.shards {
		s := &p.shards[i]
		if s.State() == topology.Draining && s.role == aside && p.drained == "" {
			p.warnf("shard %s is draining, but it cannot be reached or is slow: nothing is moved off it", s.Name())
		}
		if s.role != emptying {
			continue
		}
		if kept := s.after.ranges + s.after.pins; kept > 0 {
			p.warnf("shard %s keeps %d ranges or pins: they have a move under way, no shard may take them, or a limit was reached", s.Name(), kept)
		}
		if n := tables[s.Number()].Tables; n > 0 && s.Name() != p.drained { // whoever drains it sees to them
			p.warnf("shard %s has %d single tables, which this plan does not move: 'cleave shard drain' does", s.Name(), n)
		}
	}
}

// warnOfSkew says who stays out of the tolerance.
func (p *planner) warnOfSkew() {
	if p.drained != "" || p.options.Algorithm != Greedy {
		return
	}
	off, worst, distance := 0, "", 0.0
	for i := range p.shards {
		s := &p.shards[i]
		if s.role != taking || s.load >= s.low && s.load <= s.high {
			continue
		}
		off++
		if d := max(s.ratio(s.load)-1, 1-s.ratio(s.load)); d > distance {
			worst, distance = fmt.Sprintf("shard %s with %.1f %% of what it should have", s.Name(), 100*s.ratio(s.load)), d
		}
	}
	if off == 0 {
		return
	}
	because := "ranges are too large to come nearer"
	switch {
	case p.limited:
		because = "a limit was reached"
	case !p.options.Split:
		because += ", and must not be split"
	}
	p.warnf("%d shards stay out of the tolerance, most of all %s: %s", off, worst, because)
}
