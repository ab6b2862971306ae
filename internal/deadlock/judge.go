package deadlock

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// askTimeout is how long a shard may take to answer; one that takes longer is left out.
const askTimeout = time.Second

// Judge finds circles. It keeps connections to the shards, so it needs to be closed.
type Judge struct {
	shards shards
}

// Victim is a transaction that has to end, and why.
type Victim struct {
	Transaction *Transaction
	Verdict     Verdict
	// Instead are those of the circle that were sentenced before, and need not end any more.
	Instead []*Transaction
}

// NewJudge returns a judge that asks the shards of the map.
func NewJudge(access shard.Access, m func() *topology.Map) *Judge {
	return &Judge{newShards(access, m)}
}

// Close ends its connections.
func (j *Judge) Close() { j.shards.connections.Close() }

// Look returns a victim for every circle among these transactions, which may include others that are not recorded. Those that were sentenced before
// count as ended, unless they are overdue: then they are in the way, and somebody else has to go.
func (j *Judge) Look(ctx context.Context, transactions []*Transaction, overdue func(*Transaction) bool) []Victim {
	first := j.firstRound(ctx, transactions)
	suspected := circles(newGraph(transactions, first, nil), overdue)
	if len(suspected) == 0 {
		return nil
	}
	second := j.secondRound(ctx, transactions, suspected)
	g := newGraph(transactions, first, &second)
	var victims []Victim
	for _, c := range circles(g, overdue) {
		victims = append(victims, Victim{c.victim, Verdict{g.recordedWaits(c.victim), j.words(g, c.circle)}, g.sentenced(c.circle)})
	}
	return victims
}

// broken is a circle and who has to end.
type broken struct {
	*circle
	victim *Transaction
}

// circles finds one circle after the other, each without the victims of those before.
func circles(g *graph, overdue func(*Transaction) bool) []broken {
	for _, t := range g.transactions {
		g.ended[t.ID] = t.Sentenced && !overdue(t)
	}
	var found []broken
	for {
		c := g.find()
		if c == nil {
			return found
		}
		victim := g.victim(c)
		if victim == nil { // all of it is sentenced, and nobody carries it out
			for _, id := range c.transactions {
				g.ended[id] = true
			}
			continue
		}
		g.ended[victim.ID] = true
		found = append(found, broken{c, victim})
	}
}

// sentenced are those of a circle that were victims before.
func (g *graph) sentenced(c *circle) []*Transaction {
	var before []*Transaction
	for _, id := range c.transactions {
		if t := g.transaction(id); t.Sentenced {
			before = append(before, t)
		}
	}
	return before
}

// recordedWaits are the waits of a transaction that last.
func (g *graph) recordedWaits(t *Transaction) []Wait {
	var waits []Wait
	for _, l := range t.Legs {
		if _, isLeg := g.legs[l.Process]; !isLeg {
			continue
		}
		if b, lasts := g.wait(l.Process); lasts {
			waits = append(waits, Wait{l.Process, b.virtual, b.since})
		}
	}
	return waits
}

// firstRound asks all shards that the transactions are on how their backends are, and then who is in the way.
func (j *Judge) firstRound(ctx context.Context, transactions []*Transaction) round {
	legs, waiting := map[int][]int{}, map[int][]int{}
	for _, t := range transactions {
		for _, l := range t.Legs {
			legs[l.Shard] = append(legs[l.Shard], l.PID)
			if l.Waits != nil {
				waiting[l.Shard] = append(waiting[l.Shard], l.PID)
			}
		}
	}
	return j.round(ctx, legs, func(ctx context.Context, conn *pgx.Conn, number int) (seen look, blockers map[int][]int, err error) {
		if seen, err = ask(ctx, conn, legs[number]); err == nil {
			blockers, err = askBlockers(ctx, conn, waiting[number], true)
		}
		return seen, blockers, err
	})
}

// secondRound asks the shards of circles who is in the way there, and then how all backends are.
func (j *Judge) secondRound(ctx context.Context, transactions []*Transaction, suspected []broken) round {
	legs, waiting := map[int][]int{}, map[int][]int{}
	for _, c := range suspected {
		for _, e := range c.locks {
			waiting[e.waiter.Shard] = append(waiting[e.waiter.Shard], e.waiter.PID)
		}
	}
	for _, t := range transactions {
		for _, l := range t.Legs {
			legs[l.Shard] = append(legs[l.Shard], l.PID)
		}
	}
	return j.round(ctx, legs, func(ctx context.Context, conn *pgx.Conn, number int) (seen look, blockers map[int][]int, err error) {
		if blockers, err = askBlockers(ctx, conn, waiting[number], false); err == nil {
			seen, err = ask(ctx, conn, legs[number])
		}
		return seen, blockers, err
	})
}

// round asks shards side by side. One that does not answer has no edges.
func (j *Judge) round(ctx context.Context, of map[int][]int, question func(context.Context, *pgx.Conn, int) (look, map[int][]int, error)) round {
	answers := newRound()
	var mu sync.Mutex
	j.shards.each(ctx, keysOf(of), func(ctx context.Context, conn *pgx.Conn, number int) error {
		seen, blockers, err := question(ctx, conn, number)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		answers.looks[number], answers.blockers[number] = seen, blockers
		return nil
	})
	return answers
}

func keysOf[V any](m map[int]V) []int {
	keys := make([]int, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

// words tell a circle: a line for every wait.
func (j *Judge) words(g *graph, c *circle) string {
	lines := make([]string, len(c.locks))
	for i, e := range c.locks {
		b, _ := g.first.backend(e.waiter)
		lines[i] = fmt.Sprintf("Process %d on shard %q%s waits for %s; blocked by process %d%s.",
			e.waiter.PID, j.shards.name(e.waiter.Shard), g.owner(e.waiter), b.lock, e.holder.PID, g.owner(e.holder))
	}
	return strings.Join(lines, "\n")
}

// owner says whose a backend is; nothing if it is no recorded session's.
func (g *graph) owner(p Process) string {
	m, isLeg := g.legs[p]
	if !isLeg {
		return ""
	}
	return fmt.Sprintf(" (session %d of router %s)", m.of.Number, m.of.Router)
}

// shards are those of the map, and how to ask them.
type shards struct {
	connections *shard.Connections
	current     func() *topology.Map
}

const (
	// maxAsked is how many shards are asked at a time.
	maxAsked = 16
	// connectionsIdle is how long connections are kept without use.
	connectionsIdle = 30 * time.Second
)

func newShards(access shard.Access, m func() *topology.Map) shards {
	return shards{access.Keep(maxAsked, connectionsIdle), m}
}

func (s shards) name(number int) string {
	if m := s.current(); m != nil && m.ShardByNumber(number) != nil {
		return m.ShardByNumber(number).Name()
	}
	return fmt.Sprintf("number %d", number)
}

// each asks shards side by side, each for as long as a shard may take, and returns when all have answered or failed. What failed is of no use to
// anybody: the monitor says when a shard is away.
func (s shards) each(ctx context.Context, numbers []int, question func(context.Context, *pgx.Conn, int) error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var asking sync.WaitGroup
	for _, number := range numbers {
		asking.Go(func() {
			_ = s.ask(ctx, number, func(ctx context.Context, conn *pgx.Conn) error { return question(ctx, conn, number) })
		})
	}
	asking.Wait()
}

// ask asks one shard.
func (s shards) ask(ctx context.Context, number int, question func(context.Context, *pgx.Conn) error) error {
	m := s.current()
	if m == nil || m.ShardByNumber(number) == nil {
		return fmt.Errorf("shard number %d is not in the map", number)
	}
	return s.connections.Use(ctx, m.ShardByNumber(number), func(conn *pgx.Conn) error { return question(ctx, conn) })
}
