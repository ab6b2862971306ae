package rebalance

import (
	"cmp"
	"math"
	"slices"
)

// settle places what must move: what breaks a rule first, then what is on shards that are to be emptied, the largest first.
func (p *planner) settle() {
	var queue []int
	for i := range p.units {
		if u := &p.units[i]; !u.fixed && (p.shards[u.owner].role == emptying || p.drained == "" && p.violates(u)) {
			queue = append(queue, i)
		}
	}
	slices.SortStableFunc(queue, func(a, b int) int {
		first, second := p.violates(&p.units[a]), p.violates(&p.units[b])
		if first != second {
			if first {
				return -1
			}
			return 1
		}
		return cmp.Compare(p.amount(&p.units[b]), p.amount(&p.units[a]))
	})
	for _, i := range queue {
		why := Emptying
		if p.drained == "" && p.violates(&p.units[i]) {
			why = ByRule
		}
		p.settleUnit(i, why)
	}
}

// settleUnit places one unit, cut into as many pieces as it takes if it fits nowhere and may be cut.
func (p *planner) settleUnit(i int, why Reason) {
	for {
		u := &p.units[i]
		to := p.taker(u)
		if to < 0 {
			return
		}
		room := p.amount(u)
		if s := &p.shards[to]; s.load+p.amount(u) > s.high && to != u.wanted {
			room = s.target - s.load
		}
		if p.options.Split {
			room = min(room, p.budget(u))
		}
		piece, cut := p.cutOff(i, room)
		if !cut {
			piece = i
		}
		if !p.withinLimits(&p.units[piece], to) {
			return
		}
		p.place(piece, to, why)
		if !cut {
			return
		}
	}
}

// cutOff cuts this amount off the unit if that is less than all of it, and allowed.
func (p *planner) cutOff(i int, amount int64) (piece int, ok bool) {
	if !p.options.Split {
		return 0, false
	}
	return p.cut(i, amount, amount)
}

// taker returns the shard that should get a unit that cannot stay, -1 if nobody may.
func (p *planner) taker(u *unit) int {
	if u.wanted >= 0 && p.may(u, u.wanted) && p.pairAllowed(u, u.wanted) {
		return u.wanted
	}
	best := -1
	for s := range p.shards {
		if !p.may(u, s) {
			continue
		}
		if !p.pairAllowed(u, s) {
			p.limited = true
			continue
		}
		if best < 0 || p.better(u, &p.shards[s], &p.shards[best]) {
			best = s
		}
	}
	return best
}

// better says whether one shard should rather get the unit than another: one where it fits; then who lacks most to be within the tolerance, then who
// lacks most. What counts for nothing is dealt out by number.
func (p *planner) better(u *unit, a, b *shard) bool {
	amount := p.amount(u)
	fitsA, fitsB := a.load+amount <= a.high, b.load+amount <= b.high
	switch {
	case amount == 0:
		return float64(a.units)/a.Weight() < float64(b.units)/b.Weight()
	case fitsA != fitsB:
		return fitsA
	case !fitsA:
		return a.ratio(a.load+amount) < b.ratio(b.load+amount)
	}
	if lackA, lackB := max(a.low-a.load, 0), max(b.low-b.load, 0); lackA != lackB {
		return lackA > lackB
	}
	return a.target-a.load > b.target-b.load
}

// balance brings shards within the tolerance.
func (p *planner) balance() {
	p.gather()
	p.relieve()
	p.fill()
	if len(p.classes) > 1 {
		p.passOn()
		p.relieve()
		p.fill()
	}
	p.lessen()
}

// gather lists what each shard could give.
func (p *planner) gather() {
	for i := range p.units {
		if u := &p.units[i]; !u.fixed && p.amount(u) > 0 && p.shards[u.owner].role == taking {
			s := &p.shards[u.owner]
			s.movable = append(s.movable, p.candidate(i))
		}
	}
	p.gathered = true
}

// ranked lists the shards that take part for which the key is above 0, the highest first.
func (p *planner) ranked(key func(*shard) int64) []int {
	var ranked []int
	keys := make([]int64, len(p.shards))
	for i := range p.shards {
		if s := &p.shards[i]; s.role == taking {
			if keys[i] = key(s); keys[i] > 0 {
				ranked = append(ranked, i)
			}
		}
	}
	slices.SortStableFunc(ranked, func(a, b int) int { return cmp.Compare(keys[b], keys[a]) })
	return ranked
}

// Where filling a shard, or taking from it, can stop.
func toLow(s *shard) int64    { return s.low }
func toTarget(s *shard) int64 { return s.target }
func toHigh(s *shard) int64   { return s.high }

// relieve lets shards above the tolerance give until they are within. Those below it get first, so that they need not be filled later.
func (p *planner) relieve() {
	for _, level := range []func(*shard) int64{toLow, toTarget, toHigh} {
		for _, from := range p.ranked(func(s *shard) int64 { return s.load - s.high }) {
			giver := &p.shards[from]
			for _, to := range p.ranked(func(s *shard) int64 { return level(s) - s.load }) {
				taker := &p.shards[to]
				p.transfer(transfer{from: from, to: to, quota: min(giver.load-giver.high, level(taker)-taker.load), floor: giver.low, ceiling: taker.high})
				if giver.load <= giver.high {
					break
				}
			}
		}
	}
}

// fill lets shards below the tolerance get until they are within, from those above their target first.
func (p *planner) fill() {
	for _, level := range []func(*shard) int64{toTarget, toLow} {
		for _, to := range p.ranked(func(s *shard) int64 { return s.low - s.load }) {
			taker := &p.shards[to]
			for _, from := range p.ranked(func(s *shard) int64 { return s.load - level(s) }) {
				giver := &p.shards[from]
				p.transfer(transfer{from: from, to: to, quota: min(taker.low-taker.load, giver.load-level(giver)), floor: giver.low, ceiling: taker.high})
				if taker.load >= taker.low {
					break
				}
			}
		}
	}
}

// transfer is what one shard should give to another: at least the quota if that can be, but not so much that it falls below the floor or the other rises above the ceiling.
type transfer struct {
	from, to       int
	quota          int64
	floor, ceiling int64
}

// transfer gives whole units while they fit into the quota, then the cheapest that covers the rest, or a piece of one.
func (p *planner) transfer(t transfer) (given int64) {
	list := p.movableOf(t.from)
	for i := range list {
		if left := t.quota - given; list[i].amount <= left && p.give(list[i].unit, t.to) {
			given += list[i].amount
			list[i].unit = -1
		}
	}
	if given < t.quota {
		given += p.cover(t, t.quota-given, list)
	}
	if given < t.quota {
		given += p.coverInPart(t, t.quota-given, list)
	}
	p.shards[t.from].movable = slices.DeleteFunc(list, func(c candidate) bool { return c.unit < 0 })
	return given
}

// give moves the unit if it may.
func (p *planner) give(i, to int) bool {
	u := &p.units[i]
	if !p.may(u, to) || !p.withinLimits(u, to) {
		return false
	}
	p.place(i, to, Balancing)
	return true
}

// cover gives the unit with the fewest bytes that has at least this amount.
func (p *planner) cover(t transfer, amount int64, list []candidate) int64 {
	most := min(p.shards[t.from].load-t.floor, t.ceiling-p.shards[t.to].load)
	best := -1
	for i, c := range list {
		if c.unit < 0 || c.amount < amount || c.amount > most {
			continue
		}
		if best >= 0 && (c.bytes > list[best].bytes || c.bytes == list[best].bytes && c.amount >= list[best].amount) {
			continue
		}
		if u := &p.units[c.unit]; p.may(u, t.to) && p.withinLimits(u, t.to) {
			best = i
		}
	}
	if best < 0 || !p.give(list[best].unit, t.to) {
		return 0
	}
	list[best].unit = -1
	return list[best].amount
}

// coverInPart gives a piece of the largest unit that can be cut.
func (p *planner) coverInPart(t transfer, amount int64, list []candidate) int64 {
	if !p.options.Split {
		return 0
	}
	most := min(p.shards[t.from].load-t.floor, t.ceiling-p.shards[t.to].load)
	var large []int
	for i, c := range list {
		if c.unit >= 0 && c.amount > amount && p.may(&p.units[c.unit], t.to) && p.pairAllowed(&p.units[c.unit], t.to) {
			large = append(large, i)
		}
	}
	slices.SortStableFunc(large, func(a, b int) int { return cmp.Compare(list[b].amount, list[a].amount) })
	for _, i := range large {
		c := &list[i]
		budget := p.budget(&p.units[c.unit])
		piece, ok := p.cut(c.unit, min(amount, budget), min(most, budget))
		if !ok {
			continue
		}
		*c = p.candidate(c.unit)
		if p.give(piece, t.to) {
			return p.amount(&p.units[piece])
		}
	}
	return 0
}

// movableOf lists what a shard could give: what has most of what counts for its bytes first, then keyspace by keyspace, so that few moves do much, the largest first.
func (p *planner) movableOf(at int) []candidate {
	s := &p.shards[at]
	if s.sorted {
		return s.movable
	}
	has := make([]int64, len(p.keyspaces))
	for _, c := range s.movable {
		has[p.units[c.unit].keyspace] += c.amount
	}
	worth := func(c candidate) float64 {
		if c.bytes == 0 {
			return math.Inf(1)
		}
		return float64(c.amount) / float64(c.bytes)
	}
	slices.SortFunc(s.movable, func(a, b candidate) int {
		first, second := p.units[a.unit].keyspace, p.units[b.unit].keyspace
		return cmp.Or(cmp.Compare(worth(b), worth(a)), cmp.Compare(has[second], has[first]), cmp.Compare(first, second),
			cmp.Compare(b.amount, a.amount), cmp.Compare(a.unit, b.unit))
	})
	s.sorted = true
	return s.movable
}
