package rebalance

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cleavedb/cleave/internal/topology"
)

// role is what a shard does in a plan.
type role int

const (
	// taking shards give and get.
	taking role = iota
	// emptying shards give all that they have.
	emptying
	// aside are shards that neither give nor get.
	aside
)

// shard is a shard while a plan is made.
type shard struct {
	*topology.Shard
	role role
	// load is how much it has of what counts, loadBefore how much it had, and units how many ranges and pins it has.
	load, loadBefore int64
	units            int
	// ideal is its share by weight. Target is what rules make of it, and low and high the edges of the tolerance around that.
	ideal             float64
	target, low, high int64
	// movable is what it could give; sorted, in the order in which it would.
	movable []candidate
	sorted  bool
	// before and after are what the plan says of it.
	before, after tally
}

func (s *shard) setTarget(target, tolerance float64) {
	s.target = int64(math.Round(target))
	s.low = int64(math.Floor(target * (1 - tolerance)))
	s.high = int64(math.Ceil(target * (1 + tolerance)))
}

// ratio is a load as a part of the target.
func (s *shard) ratio(load int64) float64 {
	switch {
	case s.target > 0:
		return float64(load) / float64(s.target)
	case load > 0:
		return math.Inf(1)
	default:
		return 0
	}
}

// unit is what a plan places: a range, a piece of one, or a pin.
type unit struct {
	keyspace, part int
	pin            bool
	span           span
	splitAt        []string
	size           quantities
	home, owner    int // shards: whose it is, and whose it will be
	wanted         int // where an algorithm wants it, -1 if none was asked
	class          int
	fixed          bool // it stays, whatever happens
	reason         Reason
}

// candidate is a unit that a shard could give.
type candidate struct {
	unit          int
	amount, bytes int64
}

// pair is what becomes one move.
type pair struct{ keyspace, from, to int }

// planner carries one plan from a map to its moves.
type planner struct {
	m       *topology.Map
	options Options
	measure Measure // what counts, after all
	// drained is the shard to empty, if the plan is to do nothing else.
	drained   string
	shards    []shard // in the order of their numbers
	places    []int   // of shards, by number
	keyspaces []*measured
	classes   []class
	units     []unit
	// bytes is how many move so far, pairs how many units between whom, and links the same for all keyspaces together.
	bytes       int64
	pairs       map[pair]int
	links       map[[2]int]int
	gathered    bool // whether shards have their lists of what is movable
	limited     bool // whether a limit kept something from moving
	assignments []KeyspaceAssignment
	warnings    []string
}

func newPlanner(m *topology.Map, sizes Sizes, options Options, drained string) (*planner, error) {
	options, err := options.withDefaults(m)
	if err != nil {
		return nil, err
	}
	if err := checkRules(m, options.Rules); err != nil {
		return nil, err
	}
	keyspaces, err := chosen(m, options.Keyspaces)
	if err != nil {
		return nil, err
	}
	p := &planner{m: m, options: options, measure: options.Measure, drained: drained, pairs: map[pair]int{}, links: map[[2]int]int{}}
	p.addShards()
	p.classOf(nil)
	for _, k := range keyspaces {
		measured, err := measure(k, sizes)
		if err != nil {
			return nil, err
		}
		p.keyspaces = append(p.keyspaces, measured)
		if err := p.addUnits(len(p.keyspaces) - 1); err != nil {
			return nil, err
		}
	}
	p.warnOfSizes(sizes)
	return p, p.weigh()
}

func (p *planner) addShards() {
	p.places = make([]int, p.m.LastShardNumber()+1)
	for s := range p.m.Shards() {
		p.places[s.Number()] = len(p.shards)
		p.shards = append(p.shards, shard{Shard: s, role: p.roleOf(s)})
	}
}

func (p *planner) roleOf(s *topology.Shard) role {
	switch {
	case slices.Contains(p.options.Excluded, s.Name()):
		return aside
	case p.drained != "" && s.Name() == p.drained:
		return emptying
	case s.State() == topology.Active:
		return taking
	case s.State() == topology.Draining && p.drained == "":
		return emptying
	default:
		return aside
	}
}

// addUnits makes units of the ranges and pins of a keyspace. Ranges are cut here where rules or an algorithm begin and end; what is not used of that is joined
// again at the end.
func (p *planner) addUnits(at int) error {
	k := p.keyspaces[at]
	rules, err := bindRules(k.Keyspace, p.options.Rules)
	if err != nil {
		return err
	}
	wishes, err := p.wishesFor(k)
	if err != nil {
		return err
	}
	var cuts []string
	if p.options.Split {
		cuts = ruleCuts(rules)
	}
	cuts = merged(cuts, wishes.cuts())
	for i := range k.ranges {
		for len(cuts) > 0 && cuts[0] <= k.ranges[i].span.Lo {
			cuts = cuts[1:]
		}
		within := 0
		for within < len(cuts) && inside(k.ranges[i].span, cuts[within]) {
			within++
		}
		for _, u := range p.piecesOf(at, i, cuts[:within]) {
			u.class = p.classOf(labelsOfRange(rules, u.span))
			u.wanted = wishes.ownerOf(p, u.span.Lo)
			p.addUnit(u)
		}
	}
	for i := range k.pins {
		u := p.unitOf(at, i, true)
		u.class = p.classOf(labelsOfPin(k.Keyspace, rules, u.span.Lo))
		p.addUnit(u)
	}
	for _, r := range rules {
		if r.key != "" && !r.used {
			p.warnf("keyspace %s: %s is not pinned, so the rule %s binds nothing", k.Name(), keyOf(k.Keyspace, r.key), r.label)
		}
	}
	return nil
}

func merged(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// unitOf makes a unit of a whole range or pin.
func (p *planner) unitOf(keyspace, at int, pin bool) unit {
	parts := p.keyspaces[keyspace].ranges
	if pin {
		parts = p.keyspaces[keyspace].pins
	}
	from := &parts[at]
	home := p.places[from.goes.Number()]
	return unit{
		keyspace: keyspace, part: at, pin: pin, span: from.span, splitAt: from.splitAt, size: from.size,
		home: home, owner: home, wanted: -1, fixed: from.busy || p.shards[home].role == aside || slices.Contains(p.options.Fixed, p.keyspaces[keyspace].Name()),
	}
}

func (p *planner) addUnit(u unit) {
	u.fixed = u.fixed || !p.classes[u.class].open
	p.units = append(p.units, u)
}

// weigh sums up what every shard has and should have.
func (p *planner) weigh() error {
	var all quantities
	for i := range p.units {
		if all.add(p.units[i].size); slices.Max(all[:]) > maxSum {
			return errors.New("all sizes together are more than there can be")
		}
	}
	p.chooseMeasure(all)
	demand := make([]int64, len(p.classes))
	for i := range p.units {
		u := &p.units[i]
		s := &p.shards[u.owner]
		s.load += p.amount(u)
		s.units++
		s.before.add(u)
		if !u.pin && u.span.Lo != p.keyspaces[u.keyspace].ranges[u.part].span.Lo {
			s.before.ranges-- // a piece of a range that was counted
		}
		if s.role == aside || s.role == emptying && u.fixed {
			continue
		}
		if p.classes[u.class].open {
			demand[u.class] += p.amount(u)
		} else {
			demand[0] += p.amount(u)
		}
	}
	for i := range p.shards {
		p.shards[i].loadBefore = p.shards[i].load
	}
	p.setIdeals(demand)
	p.setTargets(demand)
	return nil
}

// chooseMeasure falls back to the width where nothing at all is known.
func (p *planner) chooseMeasure(all quantities) {
	switch {
	case all[p.measure.at()] > 0 || len(p.units) == 0:
	case all[bytesAt] == 0 && all[rowsAt] == 0 && p.measure != ByLoad:
		p.measure = ByWidth
		p.warnf("nothing is known to have any bytes or rows: ranges count by their width")
	default:
		p.warnf("no %s is known of anything: nothing is moved for balance", p.measure)
	}
}

func (p *planner) setIdeals(demand []int64) {
	total, weight := int64(0), 0.0
	for _, d := range demand {
		total += d
	}
	for i := range p.shards {
		if p.shards[i].role == taking {
			weight += p.shards[i].Weight()
		}
	}
	for i := range p.shards {
		if s := &p.shards[i]; s.role == taking {
			s.ideal = float64(total) * (s.Weight() / weight)
		}
	}
}

// amount is how much the unit has of what counts.
func (p *planner) amount(u *unit) int64 { return u.size[p.measure.at()] }

// violates says whether a rule does not allow the unit where it is.
func (p *planner) violates(u *unit) bool { return !p.classes[u.class].allows(p.shards[u.owner].Shard) }

// may says whether the unit could be given to the shard, limits aside.
func (p *planner) may(u *unit, to int) bool {
	return !u.fixed && to != u.owner && p.classes[u.class].eligible[to]
}

// withinLimits says whether the unit may be given to the shard as far as the limits go.
func (p *planner) withinLimits(u *unit, to int) bool {
	if p.pairAllowed(u, to) && p.affordable(u) {
		return true
	}
	p.limited = true
	return false
}

// affordable says whether the limit of bytes lets the unit move.
func (p *planner) affordable(u *unit) bool {
	return p.options.MaxBytes == 0 || u.owner != u.home || p.bytes+u.size[bytesAt] <= p.options.MaxBytes
}

// pairAllowed says whether the move that the unit would be part of is there already or may be made.
func (p *planner) pairAllowed(u *unit, to int) bool {
	if p.options.MaxMoves == 0 || to == u.home || len(p.pairs) < p.options.MaxMoves {
		return true
	}
	return p.pairs[pair{u.keyspace, u.home, to}] > 0
}

// linkAllowed says whether there can be a move between these shards. Once there are as many as there may be, it spares looking at all units of shards between which there is none.
func (p *planner) linkAllowed(from, to int) bool {
	if p.options.MaxMoves == 0 || len(p.pairs) < p.options.MaxMoves || p.links[[2]int{from, to}] > 0 {
		return true
	}
	p.limited = true
	return false
}

// tooDear says whether the limit of bytes rules a candidate out, without a look at the unit.
func (p *planner) tooDear(c candidate) bool {
	if p.options.MaxBytes == 0 || p.bytes+c.bytes <= p.options.MaxBytes {
		return false
	}
	p.limited = true
	return true
}

// budget is how much of the unit the limit of bytes still lets move.
func (p *planner) budget(u *unit) int64 {
	if p.affordable(u) {
		return p.amount(u)
	}
	left := p.options.MaxBytes - p.bytes
	return int64(math.Floor(float64(p.amount(u))*(float64(left)/float64(u.size[bytesAt])))) - 1 // one less, for what rounding adds
}

// place gives the unit to a shard. It may have been given to another before, or come back.
func (p *planner) place(i, to int, why Reason) {
	u := &p.units[i]
	p.account(u, -1)
	from := &p.shards[u.owner]
	from.load -= p.amount(u)
	from.units--
	u.owner, u.reason = to, moreUrgent(u.reason, why)
	taker := &p.shards[to]
	taker.load += p.amount(u)
	taker.units++
	if p.gathered {
		taker.movable, taker.sorted = append(taker.movable, p.candidate(i)), false
	}
	p.account(u, 1)
}

// account adds the unit to the move that it is part of, or takes it out.
func (p *planner) account(u *unit, sign int) {
	if u.owner == u.home {
		return
	}
	p.bytes += int64(sign) * u.size[bytesAt]
	of := pair{u.keyspace, u.home, u.owner}
	if p.pairs[of] += sign; p.pairs[of] == 0 {
		delete(p.pairs, of)
	}
	p.links[[2]int{u.home, u.owner}] += sign
}

func (p *planner) candidate(i int) candidate {
	u := &p.units[i]
	return candidate{unit: i, amount: p.amount(u), bytes: u.size[bytesAt]}
}

func (p *planner) warnf(format string, args ...any) {
	p.warnings = append(p.warnings, fmt.Sprintf(format, args...))
}
