package rebalance

import (
	"cmp"
	"math"
	"slices"
)

// passOn is for rules: a shard may have too much that only full shards may take, while those could give something else to one that has room. Then each on the way passes an
// amount on to the next.
func (p *planner) passOn() {
	for _, from := range p.ranked(func(s *shard) int64 { return s.load - s.high }) {
		giver := &p.shards[from]
		for range p.shards {
			way := p.way([]int{from}, func(s int) bool { return p.shards[s].load < p.shards[s].target })
			if giver.load <= giver.high || way == nil || !p.passAlong(way, giver.load-giver.high) {
				break
			}
		}
	}
	for _, to := range p.ranked(func(s *shard) int64 { return s.low - s.load }) {
		taker := &p.shards[to]
		for range p.shards {
			way := p.way(p.ranked(func(s *shard) int64 { return s.load - s.target }), func(s int) bool { return s == to })
			if taker.load >= taker.low || way == nil || !p.passAlong(way, min(taker.low-taker.load, p.shards[way[0]].load-p.shards[way[0]].target)) {
				break
			}
		}
	}
}

// way returns the shortest way from one of some shards to one that is good, on which each has something that the next may take.
func (p *planner) way(starts []int, good func(int) bool) []int {
	before := make([]int, len(p.shards))
	for i := range before {
		before[i] = -1
	}
	queue := slices.Clone(starts)
	for _, s := range starts {
		before[s] = s
	}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, c := range p.classesOn(at) {
			for next, eligible := range p.classes[c].eligible {
				if !eligible || before[next] >= 0 {
					continue
				}
				before[next] = at
				if good(next) {
					return backTo(before, next)
				}
				queue = append(queue, next)
			}
		}
	}
	return nil
}

func backTo(before []int, end int) []int {
	way := []int{end}
	for before[end] != end {
		end = before[end]
		way = append(way, end)
	}
	slices.Reverse(way)
	return way
}

// classesOn lists the classes of what the shard could give, in order.
func (p *planner) classesOn(at int) []int {
	var classes []int
	for _, c := range p.shards[at].movable {
		if class := p.units[c.unit].class; !slices.Contains(classes, class) {
			classes = append(classes, class)
		}
	}
	slices.Sort(classes)
	return classes
}

// passAlong passes an amount along the way, from its end, so that everybody has room when it is their turn. It says whether anything arrived.
func (p *planner) passAlong(way []int, amount int64) bool {
	last := len(way) - 1
	amount = min(amount, max(p.shards[way[last]].target-p.shards[way[last]].load, 1))
	for i := last; i > 0; i-- {
		t := transfer{from: way[i-1], to: way[i], quota: amount, ceiling: math.MaxInt64, why: Balancing}
		if i == last {
			t.ceiling = p.shards[way[last]].high
		}
		if i == 1 {
			t.floor = p.shards[way[0]].low
		}
		if amount = p.transfer(t); amount == 0 {
			return false
		}
	}
	return true
}

// lessen is for ranges that are too large to bring anybody within the tolerance: it moves one as long as that lessens what is worst by the tolerance or more.
func (p *planner) lessen() {
	for _, from := range p.ranked(func(s *shard) int64 { return s.load - s.high }) {
		for more := true; more && p.shards[from].load > p.shards[from].high; {
			more = p.lessenOver(from)
		}
	}
	for _, to := range p.ranked(func(s *shard) int64 { return s.low - s.load }) {
		for more := true; more && p.shards[to].load < p.shards[to].low; {
			more = p.lessenUnder(to)
		}
	}
}

// lessenOver gives one unit of a shard to the emptiest that is better off with it than this one was.
func (p *planner) lessenOver(from int) bool {
	for _, to := range p.byRatio() {
		worst := p.shards[from].ratio(p.shards[from].load) - p.options.Tolerance
		if to != from && p.swap(from, to, func(giver, taker float64) float64 { return max(giver, taker) }, worst) {
			return true
		}
	}
	return false
}

// lessenUnder gives one unit of the fullest shard from which it can be spared.
func (p *planner) lessenUnder(to int) bool {
	for _, from := range slices.Backward(p.byRatio()) {
		worst := -p.shards[to].ratio(p.shards[to].load) - p.options.Tolerance
		highest := p.shards[from].ratio(p.shards[from].load)
		badness := func(giver, taker float64) float64 {
			if taker > max(highest, 1+p.options.Tolerance) {
				return math.Inf(1)
			}
			return -min(giver, taker)
		}
		if to != from && p.swap(from, to, badness, worst) {
			return true
		}
	}
	return false
}

// byRatio lists the shards that take part by how full they are, the emptiest first.
func (p *planner) byRatio() []int {
	order := p.ranked(func(*shard) int64 { return 1 })
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(p.shards[a].ratio(p.shards[a].load), p.shards[b].ratio(p.shards[b].load))
	})
	return order
}

// swap gives the unit after which things are least bad, if they are less bad than the worst then.
func (p *planner) swap(from, to int, badness func(giver, taker float64) float64, worst float64) bool {
	if !p.linkAllowed(from, to) {
		return false
	}
	giver, taker := &p.shards[from], &p.shards[to]
	p.sortMovable(from)
	list, best := giver.movable, -1
	for i, c := range list {
		if p.tooDear(c) {
			continue
		}
		after := badness(giver.ratio(giver.load-c.amount), taker.ratio(taker.load+c.amount))
		if u := &p.units[c.unit]; after < worst && p.may(u, to) && p.withinLimits(u, to) {
			best, worst = i, after
		}
	}
	if best < 0 || !p.give(list[best].unit, to, Balancing) {
		return false
	}
	giver.movable = slices.Delete(list, best, best+1)
	return true
}
