package rebalance

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement"
)

// Plan says what to move, and what comes of it.
type Plan struct {
	// ID depends on the version of the map, on what goes where and on Assignments, so the same decision has the same ID even if sizes were measured anew.
	ID         string `json:"id"`
	MapVersion uint64 `json:"map_version"`
	// Algorithm, Measure and Tolerance are what the plan was made with. Measure is width if nothing else was known.
	Algorithm string  `json:"algorithm"`
	Measure   Measure `json:"measure"`
	Tolerance float64 `json:"tolerance"`
	// Splits have to be made before the moves; they change nothing but the map. Ordered by keyspace and point.
	Splits []Split `json:"splits,omitempty"`
	// Moves are ordered by how urgent they are, then by keyspace and shards.
	Moves []Move `json:"moves"`
	// Assignments are what keyspaces are to name as what made their ranges once all has moved: those that one of placement's algorithms then has made, which a limit, a rule or the state of a shard may keep it from.
	Assignments []KeyspaceAssignment `json:"assignments,omitempty"`
	// Bytes and Rows are how many move, and TotalBytes all that there are in the keyspaces that were looked at.
	Bytes      int64 `json:"bytes"`
	Rows       int64 `json:"rows"`
	TotalBytes int64 `json:"total_bytes"`
	// MovementShare is Bytes over TotalBytes.
	MovementShare float64 `json:"movement_share"`
	// SkewBefore and SkewAfter are what the fullest shard that takes part has over its ideal share: 1 is perfect.
	SkewBefore float64 `json:"skew_before"`
	SkewAfter  float64 `json:"skew_after"`
	// EstimatedSeconds is how long it takes at the given rate if a shard takes part in one move at a time, the largest ones first; 0 without a rate.
	EstimatedSeconds float64 `json:"estimated_seconds"`
	// Shards are all shards of the map in the order of their numbers.
	Shards   []ShardChange `json:"shards"`
	Warnings []string      `json:"warnings"`
}

// Reason says why something moves.
type Reason string

// The reasons, the most urgent first. A move with several has the most urgent.
const (
	ByRule      Reason = "rule"
	Emptying    Reason = "drain"
	ByAlgorithm Reason = "algorithm"
	Balancing   Reason = "balance"
)

var reasons = []Reason{ByRule, Emptying, ByAlgorithm, Balancing}

// Move is what goes from one shard to another in one keyspace: all of it, or as much as there is [Room] for; of schemas each by itself.
type Move struct {
	Keyspace string           `json:"keyspace"`
	Source   string           `json:"source"`
	Target   string           `json:"target"`
	Ranges   []MovedRange     `json:"ranges,omitempty"`
	Pins     []topology.Point `json:"pins,omitempty"`
	Bytes    int64            `json:"bytes"`
	Rows     int64            `json:"rows"`
	Load     float64          `json:"load,omitempty"`
	Reason   Reason           `json:"reason"`
	// Detail is the reason in words.
	Detail string `json:"detail"`
}

// MovedRange is a range of the map, or a piece of one if Plan.Splits has its bounds. No To is the end.
type MovedRange struct {
	From topology.Point `json:"from,omitempty"`
	To   topology.Point `json:"to,omitempty"`
	Size
}

// Split is a point at which a range has to be cut.
type Split struct {
	Keyspace string         `json:"keyspace"`
	Shard    string         `json:"shard"`
	At       topology.Point `json:"at"`
}

// KeyspaceAssignment is what the map is to say about how a keyspace's ranges were made.
type KeyspaceAssignment struct {
	Keyspace   string              `json:"keyspace"`
	Assignment topology.Assignment `json:"assignment"`
	// Layout is what [Layout] says of the keyspace then.
	Layout string `json:"layout"`
}

// Layout is a digest of who owns what of a keyspace's hashes. Ranges that are beside each other and have the same owner count as one.
func Layout(m *placement.Map) string {
	var l layout
	for r := range m.All() {
		l.add(r.Lo, r.Owner)
	}
	return l.String()
}

// layout is one in the making.
type layout struct {
	text  strings.Builder
	owner string
}

// add adds the next range.
func (l *layout) add(lo uint64, owner string) {
	if owner != l.owner {
		fmt.Fprintf(&l.text, "%016x %q\n", lo, owner)
	}
	l.owner = owner
}

func (l *layout) String() string {
	sum := sha256.Sum256([]byte(l.text.String()))
	return hex.EncodeToString(sum[:16])
}

// Holding is what a shard has of the keyspaces that were looked at. What has a move under way counts where it is going.
type Holding struct {
	Ranges int `json:"ranges"`
	Pins   int `json:"pins"`
	Size
}

// tally is a holding while it is being counted.
type tally struct {
	ranges, pins int
	size         quantities
}

func (t *tally) add(u *unit) {
	t.size.add(u.size)
	if u.pin {
		t.pins++
	} else {
		t.ranges++
	}
}

func (t *tally) holding() Holding {
	return Holding{Ranges: t.ranges, Pins: t.pins, Size: t.size.size()}
}

// ShardChange is what a plan means for a shard.
type ShardChange struct {
	Shard  string         `json:"shard"`
	State  topology.State `json:"state"`
	Weight float64        `json:"weight"`
	// TakesPart says whether the shard gives and gets; one that is to be emptied only gives, and has no ideal share.
	TakesPart bool `json:"takes_part"`
	// Ideal is the share by weight of what counts, and Target what rules make of it.
	Ideal  float64 `json:"ideal"`
	Target float64 `json:"target"`
	Before Holding `json:"before"`
	After  Holding `json:"after"`
}

// Balance plans how to bring all shards within the tolerance of their share.
func Balance(m *topology.Map, sizes Sizes, options Options) (*Plan, error) {
	p, err := newPlanner(m, sizes, options, "")
	if err != nil {
		return nil, err
	}
	before := p.skew()
	p.settle()
	if p.options.Algorithm == Greedy {
		p.balance()
	} else {
		p.obey()
	}
	return p.plan(before), nil
}

// Drain plans how to move everything off one shard, and nothing else. The shard may be active still; others that are draining are left alone.
func Drain(m *topology.Map, shard string, sizes Sizes, options Options) (*Plan, error) {
	s := m.Shard(shard)
	switch {
	case s == nil:
		return nil, &topology.NotFoundError{Kind: "shard", Name: shard}
	case s.State() != topology.Active && s.State() != topology.Draining:
		return nil, fmt.Errorf("shard %q is in state %s: nothing can be moved off it", shard, s.State())
	case slices.Contains(options.Excluded, shard):
		return nil, fmt.Errorf("shard %q cannot be reached or is slow: nothing can be moved off it", shard)
	}
	p, err := newPlanner(m, sizes, options, shard)
	if err != nil {
		return nil, err
	}
	before := p.skew()
	p.settle()
	return p.plan(before), nil
}

// skew is what the fullest shard has over its ideal share.
func (p *planner) skew() float64 {
	skew := 1.0
	for i := range p.shards {
		if s := &p.shards[i]; s.role == taking && s.ideal > 0 {
			skew = max(skew, float64(s.load)/s.ideal)
		}
	}
	return skew
}

// plan puts down what was decided.
func (p *planner) plan(skewBefore float64) *Plan {
	moves := p.moves()
	plan := &Plan{
		MapVersion: p.m.Version(), Algorithm: p.options.Algorithm, Measure: p.measure, Tolerance: p.options.Tolerance,
		Assignments: p.reached(), SkewBefore: skewBefore, SkewAfter: p.skew(), Moves: moves, Splits: p.splits(),
	}
	for i := range p.units {
		u := &p.units[i]
		p.shards[u.owner].after.add(u)
		plan.TotalBytes += u.size[bytesAt]
		if u.owner != u.home {
			plan.Bytes += u.size[bytesAt]
			plan.Rows += u.size[rowsAt]
		}
	}
	if plan.TotalBytes > 0 {
		plan.MovementShare = float64(plan.Bytes) / float64(plan.TotalBytes)
	}
	for i := range p.shards {
		plan.Shards = append(plan.Shards, p.changeOf(&p.shards[i]))
	}
	plan.ID = identify(plan.MapVersion, plan.Moves, plan.Assignments)
	plan.EstimatedSeconds = estimate(plan.Moves, p.options.BytesPerSecond)
	p.warnOfRest()
	plan.Warnings = append([]string{}, p.warnings...)
	return plan
}

// reached are the assignments of keyspaces in which everything is where the algorithm wants it when all has moved.
func (p *planner) reached() (assignments []KeyspaceAssignment) {
	after := map[string]*layout{}
	for i := range p.units {
		u := &p.units[i]
		k := p.keyspaces[u.keyspace]
		if u.wanted < 0 || u.pin {
			continue
		}
		if after[k.Name()] == nil {
			after[k.Name()] = &layout{}
		}
		after[k.Name()].add(hashOfBound(u.span.Lo), p.shards[u.owner].Name())
	}
	for _, a := range p.assignments {
		if l := after[a.Keyspace]; l != nil && l.String() == a.Layout {
			assignments = append(assignments, a)
		}
	}
	return assignments
}

func (p *planner) changeOf(s *shard) ShardChange {
	scale := 1.0
	if p.measure == ByLoad {
		scale = loadScale
	}
	return ShardChange{
		Shard: s.Name(), State: s.State(), Weight: s.Weight(), TakesPart: s.role == taking,
		Ideal: s.ideal / scale, Target: float64(s.target) / scale, Before: s.before.holding(), After: s.after.holding(),
	}
}

// join sorts the units and joins pieces of one range that have the same owner after all.
func (p *planner) join() {
	slices.SortFunc(p.units, func(a, b unit) int {
		return cmp.Or(cmp.Compare(a.keyspace, b.keyspace), order(a.pin, b.pin), cmp.Compare(a.span.Lo, b.span.Lo))
	})
	joined := p.units[:0]
	for _, u := range p.units {
		if n := len(joined); n > 0 && !u.pin && joined[n-1].keyspace == u.keyspace && !joined[n-1].pin && joined[n-1].part == u.part && joined[n-1].owner == u.owner {
			last := &joined[n-1]
			last.span.Hi, last.reason = u.span.Hi, moreUrgent(last.reason, u.reason)
			last.size.add(u.size)
			continue
		}
		joined = append(joined, u)
	}
	p.units = joined
}

// order puts what is not before what is.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

func moreUrgent(a, b Reason) Reason {
	if a == "" || b != "" && slices.Index(reasons, b) < slices.Index(reasons, a) {
		return b
	}
	return a
}

// moving is a move while units are put into it.
type moving struct {
	Move
	of    pair
	room  Room
	units []int
}

// moves groups the units that change their owner. What is above the limit then, because there was no room for it in fewer moves, stays where it is.
func (p *planner) moves() []Move {
	p.join()
	all := p.draw()
	if most := p.options.MaxMoves; most > 0 && len(all) > most {
		p.limited = true
		for _, d := range all[most:] {
			for _, i := range d.units {
				p.place(i, p.units[i].home, "")
			}
		}
		return p.moves()
	}
	moves := make([]Move, len(all))
	for i, d := range all {
		d.Detail = p.detail(d.of, &d.Move)
		moves[i] = d.Move
	}
	return moves
}

// draw puts the units that change their owner into moves, the most urgent first.
func (p *planner) draw() []*moving {
	var all []*moving
	last := map[pair]*moving{}
	for i := range p.units {
		u := &p.units[i]
		if u.owner == u.home {
			continue
		}
		of := pair{u.keyspace, u.home, u.owner}
		d := last[of]
		if d == nil || !p.addTo(d, u) {
			d = &moving{Move: Move{Keyspace: p.keyspaces[u.keyspace].Name(), Source: p.shards[u.home].Name(), Target: p.shards[u.owner].Name()}, of: of}
			p.addTo(d, u) // there is room for anything
			last[of], all = d, append(all, d)
		}
		d.units = append(d.units, i)
	}
	slices.SortStableFunc(all, func(a, b *moving) int {
		return cmp.Or(cmp.Compare(slices.Index(reasons, a.Reason), slices.Index(reasons, b.Reason)),
			cmp.Compare(a.of.keyspace, b.of.keyspace), cmp.Compare(a.of.from, b.of.from), cmp.Compare(a.of.to, b.of.to))
	})
	return all
}

// addTo puts a unit into a move, and says false if there is no room for it.
func (p *planner) addTo(move *moving, u *unit) bool {
	k := p.keyspaces[u.keyspace].Keyspace
	if u.pin {
		key := keyOf(k, u.span.Lo)
		if k.Strategy() == topology.BySchema && len(move.units) > 0 || !move.room.Pin(key) {
			return false
		}
		move.Pins = append(move.Pins, key)
	} else {
		from, to := pointOf(k, u.span.Lo), pointOf(k, u.span.Hi)
		if !move.room.Range(from, to) {
			return false
		}
		move.Ranges = append(move.Ranges, MovedRange{From: from, To: to, Size: u.size.size()})
	}
	move.Bytes += u.size[bytesAt]
	move.Rows += u.size[rowsAt]
	move.Load += u.size.size().Load
	if reason := moreUrgent(move.Reason, u.reason); reason != move.Reason {
		move.Reason, move.Detail = reason, p.classes[u.class].String()
	}
	return true
}

// detail says in words why a move is made; of a move by rule the labels stand there already.
func (p *planner) detail(of pair, move *Move) string {
	from, to := &p.shards[of.from], &p.shards[of.to]
	switch move.Reason {
	case ByRule:
		return "a rule asks for a shard with " + move.Detail
	case Emptying:
		return "shard " + from.Name() + " is to be emptied"
	case ByAlgorithm:
		return "algorithm " + p.options.Algorithm + " places it there"
	default:
		percent := func(s *shard) float64 { return 100 * s.ratio(s.loadBefore) }
		return fmt.Sprintf("shard %s has %.1f %% of its share, shard %s has %.1f %%", from.Name(), percent(from), to.Name(), percent(to))
	}
}

// splits lists where ranges have to be cut.
func (p *planner) splits() []Split {
	var splits []Split
	for i := range p.units {
		u := &p.units[i]
		k := p.keyspaces[u.keyspace]
		if !u.pin && u.span.Lo != k.ranges[u.part].span.Lo {
			splits = append(splits, Split{Keyspace: k.Name(), Shard: k.ranges[u.part].owner.Name(), At: pointOf(k.Keyspace, u.span.Lo)})
		}
	}
	return splits
}

// identify hashes what goes where, and what keyspaces are to name.
func identify(version uint64, moves []Move, assignments []KeyspaceAssignment) string {
	type place struct {
		Keyspace, Source, Target string
		Bounds                   [][2]topology.Point
		Pins                     []topology.Point
	}
	places := make([]place, len(moves))
	for i, m := range moves {
		places[i] = place{Keyspace: m.Keyspace, Source: m.Source, Target: m.Target, Pins: m.Pins}
		for _, r := range m.Ranges {
			places[i].Bounds = append(places[i].Bounds, [2]topology.Point{r.From, r.To})
		}
	}
	begin := func(p place) string {
		if len(p.Bounds) > 0 {
			return p.Bounds[0][0].String()
		}
		return p.Pins[0].String()
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(strings.Compare(a.Keyspace, b.Keyspace), strings.Compare(a.Source, b.Source), strings.Compare(a.Target, b.Target), strings.Compare(begin(a), begin(b)))
	})
	text, err := json.Marshal(struct {
		Version     uint64
		Places      []place
		Assignments []KeyspaceAssignment `json:",omitempty"`
	}{version, places, assignments})
	if err != nil {
		panic("rebalance: " + err.Error()) // texts and numbers can always be written
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// estimate is how long moves take if each shard takes part in one at a time, the largest first.
func estimate(moves []Move, bytesPerSecond int64) float64 {
	if bytesPerSecond == 0 {
		return 0
	}
	sorted := slices.Clone(moves)
	slices.SortStableFunc(sorted, func(a, b Move) int { return cmp.Compare(b.Bytes, a.Bytes) })
	free, end := map[string]float64{}, 0.0
	for _, m := range sorted {
		done := max(free[m.Source], free[m.Target]) + float64(m.Bytes)/float64(bytesPerSecond)
		free[m.Source], free[m.Target] = done, done
		end = max(end, done)
	}
	return end
}
