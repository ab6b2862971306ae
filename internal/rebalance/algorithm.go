package rebalance

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement"
)

// wishes is where one of placement's algorithms wants the ranges of a keyspace. Nil: none was asked.
type wishes struct{ to *placement.Map }

// wishesFor asks the algorithm, if one was chosen and the keyspace has ranges of the hash.
//
// The algorithm sees shards that are to be emptied no more, and those that are aside as if nothing were the matter, if they own anything: what belongs to them by its arithmetic stays
// theirs, and what would go to them or come from them is left where it is.
func (p *planner) wishesFor(k *measured) (*wishes, error) {
	if p.options.Algorithm == Greedy {
		return nil, nil
	}
	settings := k.Assignment()
	settings.Algorithm = p.options.Algorithm
	settings.Slots, settings.VirtualNodes = cmp.Or(p.options.Slots, settings.Slots), cmp.Or(p.options.VirtualNodes, settings.VirtualNodes)
	algorithm, err := placement.New(settings.Algorithm, placement.Config{Slots: settings.Slots, VirtualNodes: settings.VirtualNodes})
	if err != nil {
		return nil, err
	}
	settings.Algorithm = algorithm.Info().Name
	if k.Strategy() == topology.ByRange {
		p.warnf("keyspace %s: algorithm %s places hashes, not raw keys: only what must move is moved", k.Name(), settings.Algorithm)
		return nil, nil
	}
	shards := p.placeable(k)
	if len(shards) == 0 {
		return nil, nil // nobody can take anything: a warning says so
	}
	from, err := k.Hashes().WithShards(p.seats(k)...)
	if err != nil {
		return nil, fmt.Errorf("keyspace %q: %w", k.Name(), err)
	}
	to, err := algorithm.Ranges(from, shards)
	if err != nil {
		return nil, fmt.Errorf("keyspace %q: algorithm %s: %w", k.Name(), settings.Algorithm, err)
	}
	p.assign(k, settings, to, shards)
	return &wishes{to}, nil
}

// placeable lists the shards that the algorithm is to spread the keyspace over.
func (p *planner) placeable(k *measured) []placement.Shard {
	owns := make([]bool, len(p.shards))
	for i := range k.ranges {
		owns[p.places[k.ranges[i].owner.Number()]] = true
	}
	var shards []placement.Shard
	for i := range p.shards {
		if s := &p.shards[i]; s.role == taking || s.role == aside && owns[i] {
			shards = append(shards, placement.Shard{Name: s.Name(), Weight: s.Weight()})
		}
	}
	return shards
}

// seats is the order of shards that an algorithm with memory starts from: the one that was noted, or else the owners by number.
func (p *planner) seats(k *measured) []string {
	owners := map[string]bool{}
	for i := range k.ranges {
		owners[k.ranges[i].owner.Name()] = true
	}
	var byNumber []string
	for i := range p.shards {
		if owners[p.shards[i].Name()] {
			byNumber = append(byNumber, p.shards[i].Name())
		}
	}
	noted := k.Assignment().Seats
	if slices.ContainsFunc(byNumber, func(owner string) bool { return !slices.Contains(noted, owner) }) {
		return byNumber
	}
	return noted
}

// assign notes what the map is to say about how its ranges were made.
func (p *planner) assign(k *measured, settings topology.Assignment, to *placement.Map, shards []placement.Shard) {
	settings.Seats = nil
	if seats := to.Shards(); !slices.EqualFunc(seats, shards, func(name string, s placement.Shard) bool { return name == s.Name }) {
		settings.Seats = seats
	}
	p.assignments = append(p.assignments, KeyspaceAssignment{Keyspace: k.Name(), Assignment: settings, Layout: Layout(to)})
}

// cuts returns where the wishes change.
func (w *wishes) cuts() []string {
	if w == nil {
		return nil
	}
	cuts := make([]string, 0, w.to.Len())
	for r := range w.to.All() {
		if r.Lo > 0 {
			cuts = append(cuts, hashBound(r.Lo))
		}
	}
	return cuts
}

// ownerOf says where what begins there is wanted, -1 if nobody was asked.
func (w *wishes) ownerOf(p *planner, lo string) int {
	if w == nil {
		return -1
	}
	return p.places[p.m.Shard(w.to.Owner(hashOfBound(lo))).Number()]
}

// obey gives what may move to where the algorithm wants it.
func (p *planner) obey() {
	kept := 0
	for i := range p.units {
		u := &p.units[i]
		if u.wanted < 0 || u.wanted == u.owner || u.owner != u.home {
			continue
		}
		if !p.may(u, u.wanted) {
			kept++
			continue
		}
		if p.withinLimits(u, u.wanted) {
			p.place(i, u.wanted, ByAlgorithm)
		}
	}
	if kept > 0 {
		p.warnf("%d ranges stay where they are though algorithm %s would place them elsewhere: a rule, a move under way or the state of a shard does not allow it", kept, p.options.Algorithm)
	}
}
