package deadlock

import (
	"cmp"
	"slices"
)

// graph is who waits for whom, by what is recorded and by one or two looks at the shards: with two, only what has not changed in between is an
// edge. The letters are those of DESIGN.md.
type graph struct {
	transactions []*Transaction
	legs         map[Process]member
	first        round
	second       *round // nil: there was one look
	// ended are transactions that count as ended: they are victims.
	ended map[string]bool
	found map[node][]edge // edges that were looked for
}

// round is what the shards have answered, by their numbers.
type round struct {
	looks    map[int]look
	blockers map[int]map[int][]int
}

func newRound() round { return round{map[int]look{}, map[int]map[int][]int{}} }

func (r round) backend(p Process) (backend, bool) {
	b, found := r.looks[p.Shard].backends[p.PID]
	return b, found
}

// member is a backend's place in a transaction.
type member struct {
	of  *Transaction
	leg Leg
}

// node is a backend, or a transaction by its ID.
type node struct {
	Process
	transaction string
}

// edge leads from a node to another that has to do something first. If it is a wait for a lock, waiter waits and holder is in the way; where it
// leads to a transaction, holder is that one's backend. Where it leads from one backend of a transaction to another, within is that one's ID.
type edge struct {
	to             node
	waiter, holder Process
	isLock         bool
	within         string
}

func newGraph(transactions []*Transaction, first round, second *round) *graph {
	g := &graph{legs: map[Process]member{}, first: first, second: second, ended: map[string]bool{}, found: map[node][]edge{}}
	for _, t := range transactions {
		if !g.lasts(t) {
			continue
		}
		g.transactions = append(g.transactions, t)
		for _, l := range t.Legs {
			if b, found := g.first.backend(l.Process); found && b.virtual == l.Virtual && g.isSame(l.Process) {
				g.legs[l.Process] = member{t, l}
			}
		}
	}
	slices.SortFunc(g.transactions, func(a, b *Transaction) int { return cmp.Compare(a.ID, b.ID) })
	return g
}

// lasts says whether a wait of those that were recorded still lasts, so that the session has not moved since.
func (g *graph) lasts(t *Transaction) bool {
	return slices.ContainsFunc(t.Legs, func(l Leg) bool {
		b, waits := g.wait(l.Process)
		return waits && l.Waits != nil && b.virtual == l.Virtual && b.since.Equal(*l.Waits)
	})
}

// isSame says whether a backend is in the same transaction at both looks.
func (g *graph) isSame(p Process) bool {
	if g.second == nil {
		return true
	}
	before, _ := g.first.backend(p)
	after, found := g.second.backend(p)
	return found && before.virtual == after.virtual
}

// wait returns how a backend waits, if it does, and did all the time.
func (g *graph) wait(p Process) (backend, bool) {
	b, found := g.first.backend(p)
	if !found || !b.waits() {
		return b, false
	}
	if g.second != nil {
		after, found := g.second.backend(p)
		return b, found && b.sameWait(after)
	}
	return b, true
}

// blockers are those who were in the way of a backend at every look.
func (g *graph) blockers(p Process) []int {
	inTheWay := g.first.blockers[p.Shard][p.PID]
	if g.second == nil {
		return inTheWay
	}
	still := g.second.blockers[p.Shard][p.PID]
	return slices.DeleteFunc(slices.Clone(inTheWay), func(pid int) bool { return !slices.Contains(still, pid) })
}

// isQuiet says whether a backend does nothing until its session goes on.
func (g *graph) isQuiet(m member) bool {
	before, _ := g.first.backend(m.leg.Process)
	after := before
	if g.second != nil {
		after, _ = g.second.backend(m.leg.Process)
	}
	return m.leg.Quiet || before.isIdle(after)
}

// isStuck says whether a backend has rows that nobody reads before another backend has answered.
func (g *graph) isStuck(m member) bool {
	before, _ := g.first.backend(m.leg.Process)
	after := before
	if g.second != nil {
		after, _ = g.second.backend(m.leg.Process)
	}
	return before.isStuck() && after.isStuck()
}

// edges are those from a node; none if it is of a transaction that has ended.
func (g *graph) edges(n node) []edge {
	id := n.transaction
	if m, isLeg := g.legs[n.Process]; isLeg {
		id = m.of.ID
	}
	if g.ended[id] {
		return nil
	}
	edges, known := g.found[n]
	if !known {
		edges = g.edgesOf(n)
		g.found[n] = edges
	}
	return edges
}

func (g *graph) edgesOf(n node) []edge {
	if n.transaction != "" {
		return g.edgesOfTransaction(g.transaction(n.transaction))
	}
	m, isLeg := g.legs[n.Process]
	if b, waits := g.wait(n.Process); waits {
		return g.edgesOfWait(n.Process, b)
	}
	switch {
	case !isLeg:
	case g.isQuiet(m): // E3
		return []edge{{to: node{transaction: m.of.ID}, holder: n.Process}}
	case g.isStuck(m): // E4
		for _, l := range m.of.Legs {
			if l.Read && l.Process != n.Process {
				return []edge{{to: node{Process: l.Process}, within: m.of.ID}}
			}
		}
	}
	return nil
}

// edgesOfWait are E1 and E2.
func (g *graph) edgesOfWait(p Process, b backend) []edge {
	var edges []edge
	for _, pid := range g.blockers(p) {
		holder := Process{p.Shard, pid}
		edges = append(edges, edge{to: node{Process: holder}, waiter: p, holder: holder, isLock: true})
		m, isLeg := g.legs[holder]
		if !isLeg || b.xid == "" {
			continue
		}
		_, waits := g.wait(holder)
		if held, _ := g.first.backend(holder); held.own == b.xid || waits {
			edges = append(edges, edge{to: node{transaction: m.of.ID}, waiter: p, holder: holder, isLock: true})
		}
	}
	return edges
}

// edgesOfTransaction are E5.
func (g *graph) edgesOfTransaction(t *Transaction) []edge {
	var edges []edge
	for _, l := range t.Legs {
		if _, isLeg := g.legs[l.Process]; !isLeg {
			continue
		}
		if _, waits := g.wait(l.Process); waits {
			edges = append(edges, edge{to: node{Process: l.Process}})
		}
	}
	return edges
}

// circle is a deadlock over several shards.
type circle struct {
	locks        []edge // the waits for locks, in their order
	transactions []string
}

// find returns a circle that goes over several shards, nil if there is none. In such a circle there is a transaction that it leaves by another
// backend than the one by which it comes in.
func (g *graph) find() *circle {
	for _, t := range g.transactions {
		for _, out := range g.edges(node{transaction: t.ID}) {
			if c := g.findThrough(t, out); c != nil {
				return c
			}
		}
	}
	return nil
}

// findThrough looks for the shortest way from a backend of a transaction back to it by another one.
func (g *graph) findThrough(t *Transaction, out edge) *circle {
	type step struct {
		edge
		from node
	}
	came := map[node]step{out.to: {}}
	for queue := []node{out.to}; len(queue) > 0; queue = queue[1:] {
		for _, e := range g.edges(queue[0]) {
			if e.to.transaction == t.ID {
				if e.holder == out.to.Process {
					continue
				}
				c := &circle{transactions: []string{t.ID}}
				for s := (step{e, queue[0]}); ; s = came[s.from] {
					if s.isLock {
						c.locks = append(c.locks, s.edge)
					}
					if id := cmp.Or(s.to.transaction, s.within); id != "" && id != t.ID {
						c.transactions = append(c.transactions, id)
					}
					if s.from == out.to {
						slices.Reverse(c.locks)
						return c
					}
				}
			}
			if _, known := came[e.to]; !known {
				came[e.to] = step{e, queue[0]}
				queue = append(queue, e.to)
			}
		}
	}
	return nil
}

// transaction returns the one with the ID.
func (g *graph) transaction(id string) *Transaction {
	at := slices.IndexFunc(g.transactions, func(t *Transaction) bool { return t.ID == id })
	return g.transactions[at]
}

// victim is the youngest of a circle that is not a victim already; nil: all are.
func (g *graph) victim(c *circle) *Transaction {
	var youngest *Transaction
	for _, id := range c.transactions {
		t := g.transaction(id)
		if !t.Sentenced && (youngest == nil || cmp.Or(t.Began.Compare(youngest.Began), cmp.Compare(t.ID, youngest.ID)) > 0) {
			youngest = t
		}
	}
	return youngest
}
