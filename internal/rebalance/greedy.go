package rebalance

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// settle places what must move: what breaks a rule first, then what is on shards that are to be emptied.
func (p *planner) settle() {
	for _, why := range []Reason{ByRule, Emptying} {
		var alone []int
		lists := make([][]candidate, len(p.shards))
		for i := range p.units {
			u := &p.units[i]
			switch {
			case u.fixed || !p.mustMove(u, why):
			case u.wanted >= 0 || p.amount(u) == 0:
				alone = append(alone, i)
			default:
				lists[u.owner] = append(lists[u.owner], p.candidate(i))
			}
		}
		p.unload(p.givers(lists, why))
		for _, list := range lists {
			for _, c := range list {
				alone = append(alone, c.unit)
			}
		}
		slices.SortStableFunc(alone, func(a, b int) int { return cmp.Compare(p.amount(&p.units[b]), p.amount(&p.units[a])) })
		for _, i := range alone {
			p.settleUnit(i, why)
		}
	}
}

// mustMove says whether a unit cannot stay for this reason.
func (p *planner) mustMove(u *unit, why Reason) bool {
	if why == ByRule {
		return p.drained == "" && p.violates(u)
	}
	return p.shards[u.owner].role == emptying
}

// givers makes givers of lists by shard: those that must give most first.
func (p *planner) givers(lists [][]candidate, why Reason) []giver {
	var givers []giver
	for from := range lists {
		if len(lists[from]) == 0 {
			continue
		}
		g := giver{from: from, list: &lists[from], why: why}
		p.sort(lists[from])
		for _, c := range lists[from] {
			g.left += c.amount
		}
		givers = append(givers, g)
	}
	slices.SortStableFunc(givers, func(a, b giver) int { return cmp.Compare(b.left, a.left) })
	return givers
}

// settleUnit places one unit for which no shard within its tolerance had room, or that an algorithm wants somewhere, cut into pieces if it may be cut and fits nowhere.
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

// better says whether one shard should rather get the unit than another: who would be emptier with it. What counts for nothing is dealt out by number.
func (p *planner) better(u *unit, a, b *shard) bool {
	amount := p.amount(u)
	if amount == 0 {
		return float64(a.units)/a.Weight() < float64(b.units)/b.Weight()
	}
	return a.ratio(a.load+amount) < b.ratio(b.load+amount)
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

// relieve lets shards above the tolerance give until they are within.
func (p *planner) relieve() {
	var givers []giver
	for _, from := range p.ranked(func(s *shard) int64 { return s.load - s.high }) {
		s := &p.shards[from]
		givers = append(givers, giver{from: from, left: s.load - s.high, floor: s.low, why: Balancing})
	}
	p.unload(givers)
}

// giver is a shard that has something to give: so much, but not so that it falls below the floor.
type giver struct {
	from  int
	list  *[]candidate // what it may give; nil is all that is movable
	left  int64
	floor int64
	why   Reason
}

// unload lets shards give what they have to give. Who is below the tolerance gets first, and so much that all of these together take what is given: then they need not be
// filled later, and each is filled once. The rest goes to who has room below the target, then below the edge of the tolerance.
func (p *planner) unload(givers []giver) {
	for _, room := range []func(*shard) int64{p.lack(givers), func(s *shard) int64 { return s.target - s.load }, func(s *shard) int64 { return s.high - s.load }} {
		for i := range givers {
			for _, to := range p.ranked(room) {
				if givers[i].left <= 0 {
					break
				}
				p.unloadTo(&givers[i], to, room(&p.shards[to]))
			}
		}
	}
}

// unloadTo gives a shard what it has room for. One that lacks nothing gets as much as the tolerance at least, so that few moves do much.
func (p *planner) unloadTo(g *giver, to int, room int64) {
	taker := &p.shards[to]
	quota := min(g.left, room)
	if taker.load >= taker.low {
		quota = max(quota, min(g.left, taker.high-taker.target, taker.high-taker.load))
	}
	g.left -= p.transfer(transfer{from: g.from, to: to, list: g.list, quota: quota, floor: g.floor, ceiling: taker.high, why: g.why})
}

// lack returns how much each of the shards below the tolerance should get, if they share all that is to be given and none gets above its target.
func (p *planner) lack(givers []giver) func(*shard) int64 {
	const steps = 1024
	lack := func(step int) func(*shard) int64 {
		return func(s *shard) int64 {
			if s.load >= s.low {
				return 0
			}
			return s.low + int64(math.Ceil(float64(s.target-s.low)*(float64(step)/steps))) - s.load
		}
	}
	give := int64(0)
	for _, g := range givers {
		give += g.left
	}
	return lack(sort.Search(steps, func(step int) bool { return p.sum(lack(step)) >= give }))
}

// sum adds up the key of the shards that take part where it is above 0.
func (p *planner) sum(key func(*shard) int64) (sum int64) {
	for i := range p.shards {
		if s := &p.shards[i]; s.role == taking {
			sum += max(key(s), 0)
		}
	}
	return sum
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

// fill lets shards below the tolerance get until they are within, from those furthest above their target first, and from each as much as the tolerance at least.
func (p *planner) fill() {
	for _, spare := range []func(*shard) int64{func(s *shard) int64 { return s.load - s.target }, func(s *shard) int64 { return s.load - s.low }} {
		for _, to := range p.ranked(func(s *shard) int64 { return s.low - s.load }) {
			taker := &p.shards[to]
			for _, from := range p.ranked(spare) {
				giver, lack := &p.shards[from], taker.low-taker.load
				if lack <= 0 {
					break
				}
				quota := min(lack, max(spare(giver), min(taker.high-taker.target, giver.load-giver.low)))
				p.transfer(transfer{from: from, to: to, quota: quota, floor: giver.low, ceiling: taker.high, why: Balancing})
			}
		}
	}
}

// transfer is what one shard should give to another: at least the quota if that can be, but not so much that it falls below the floor or the other rises above the ceiling.
type transfer struct {
	from, to       int
	list           *[]candidate // of what; nil is all that is movable
	quota          int64
	floor, ceiling int64
	why            Reason
}

// transfer gives whole units while they fit into the quota, then the cheapest that covers the rest, or a piece of one.
func (p *planner) transfer(t transfer) (given int64) {
	if !p.linkAllowed(t.from, t.to) {
		return 0
	}
	if t.list == nil {
		p.sortMovable(t.from)
		t.list = &p.shards[t.from].movable
	}
	list := *t.list
	for i := range list {
		if list[i].amount <= t.quota-given && !p.tooDear(list[i]) && p.give(list[i].unit, t.to, t.why) {
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
	if given > 0 {
		*t.list = slices.DeleteFunc(list, func(c candidate) bool { return c.unit < 0 })
	}
	return given
}

// give moves the unit if it may.
func (p *planner) give(i, to int, why Reason) bool {
	u := &p.units[i]
	if !p.may(u, to) || !p.withinLimits(u, to) {
		return false
	}
	p.place(i, to, why)
	return true
}

// mostOf is how much may be given without leaving the bounds.
func (p *planner) mostOf(t transfer) int64 {
	return min(p.shards[t.from].load-t.floor, t.ceiling-p.shards[t.to].load)
}

// cover gives the unit with the fewest bytes that has at least this amount.
func (p *planner) cover(t transfer, amount int64, list []candidate) int64 {
	most, best := p.mostOf(t), -1
	for i, c := range list {
		if c.unit < 0 || c.amount < amount || c.amount > most || p.tooDear(c) {
			continue
		}
		if best >= 0 && (c.bytes > list[best].bytes || c.bytes == list[best].bytes && c.amount >= list[best].amount) {
			continue
		}
		if u := &p.units[c.unit]; p.may(u, t.to) && p.withinLimits(u, t.to) {
			best = i
		}
	}
	if best < 0 || !p.give(list[best].unit, t.to, t.why) {
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
		piece, ok := p.cut(c.unit, min(amount, budget), min(p.mostOf(t), budget))
		if !ok {
			continue
		}
		*c = p.candidate(c.unit)
		if p.give(piece, t.to, t.why) {
			return p.amount(&p.units[piece])
		}
	}
	return 0
}

// sortMovable puts what a shard could give into the order in which it should.
func (p *planner) sortMovable(at int) {
	if s := &p.shards[at]; !s.sorted {
		p.sort(s.movable)
		s.sorted = true
	}
}

// sort puts first what has most of what counts for its bytes, then goes keyspace by keyspace, so that few moves do much, the largest first.
func (p *planner) sort(list []candidate) {
	has := make([]int64, len(p.keyspaces))
	for _, c := range list {
		has[p.units[c.unit].keyspace] += c.amount
	}
	worth := func(c candidate) float64 {
		if c.bytes == 0 {
			return math.Inf(1)
		}
		return float64(c.amount) / float64(c.bytes)
	}
	slices.SortFunc(list, func(a, b candidate) int {
		first, second := p.units[a.unit].keyspace, p.units[b.unit].keyspace
		return cmp.Or(cmp.Compare(worth(b), worth(a)), cmp.Compare(has[second], has[first]), cmp.Compare(first, second),
			cmp.Compare(b.amount, a.amount), cmp.Compare(a.unit, b.unit))
	})
}
