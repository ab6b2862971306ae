package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/test/faults/history"
)

// Workload is clients that work on the tables, and what they have seen. Make it with [NewWorkload], then [Workload.Begin], [Workload.End] and
// [Workload.Check], again and again.
type Workload struct {
	cluster *Cluster
	tables  *Tables
	seed    uint64
	round   int
	// Consistent says that routers offer consistent reads, so that these are checked while clients work.
	Consistent bool

	recorder *history.Recorder
	stop     context.CancelFunc
	running  sync.WaitGroup
	before   []int64 // what the counters were in the beginning, by group

	mu        sync.Mutex
	tagged    []history.Tagged
	registers []history.Register
	lists     []history.Lists
	wrong     []string // what was seen to be wrong under way
	counts    map[string]map[history.Outcome]int
	committed map[string]map[string]int // by router and work
	looks     atomic.Int64              // consistent looks at all the money
}

// NewWorkload has clients of all routers.
func NewWorkload(cluster *Cluster, tables *Tables, seed uint64) *Workload {
	return &Workload{cluster: cluster, tables: tables, seed: seed}
}

// work is something that a client does again and again.
type work struct {
	name    string
	clients int
	do      func(ctx context.Context, c *Client, head history.Head) history.Outcome
}

func (w *Workload) works() []work {
	return []work{{"transfer", 3, w.transfer}, {"count", 3, w.count}, {"register", 3, w.register}, {"list", 4, w.list}, {"look", 2, w.look}}
}

// Begin makes the tables as they were, but for money and counters, and starts the clients.
func (w *Workload) Begin(ctx context.Context) (err error) {
	w.round++
	if w.recorder, err = history.NewRecorder(filepath.Join(w.cluster.Folder, fmt.Sprintf("history-%d.jsonl", w.round))); err != nil {
		return err
	}
	w.tagged, w.registers, w.lists, w.wrong = nil, nil, nil, nil
	w.counts, w.committed = map[string]map[history.Outcome]int{}, map[string]map[string]int{}
	w.looks.Store(0)
	if err := w.reset(ctx); err != nil {
		return err
	}
	ctx, w.stop = context.WithCancel(ctx)
	number := 0
	for _, work := range w.works() {
		for range work.clients {
			number++
			client := NewClient(w.seed<<16+uint64(w.round)<<8+uint64(number), w.cluster.Routers...)
			client.number, client.consistent = number, w.Consistent && (work.name == "look" || work.name == "list" && number%2 == 0)
			w.running.Go(func() { w.repeat(ctx, client, work) })
		}
	}
	return nil
}

func (w *Workload) reset(ctx context.Context) error {
	client := NewClient(1, w.cluster.Routers...)
	defer client.Drop()
	if err := eventually(ctx, "the tables can be emptied", func(ctx context.Context) error {
		conn, err := client.Connection(ctx)
		if err != nil {
			return err
		}
		for _, sql := range []string{"DELETE FROM tags", "UPDATE registers SET value = 0", "UPDATE lists SET items = '{}'"} {
			if _, err := conn.Exec(ctx, sql); err != nil {
				client.Drop()
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	counters, err := w.counters(ctx)
	w.before = counters[0]
	return err
}

// How long a client waits for one transaction: mostly for some seconds, sometimes until a router that was stopped must be back, and sometimes hardly at all:
// then it asks in the middle of something for it to be cancelled, and is gone.
const (
	usualPatience = 2 * time.Second
	mostPatience  = 20 * time.Second
	noPatience    = 100 * time.Millisecond
)

func patienceOf(random *rand.Rand) time.Duration {
	switch random.IntN(16) {
	case 0:
		return time.Duration(random.Int64N(int64(noPatience)))
	case 1, 2, 3, 4, 5:
		return usualPatience + time.Duration(random.Int64N(int64(mostPatience-usualPatience)))
	default:
		return usualPatience
	}
}

// repeat is the life of a client.
func (w *Workload) repeat(ctx context.Context, c *Client, what work) {
	defer c.Drop()
	for ctx.Err() == nil {
		once, cancel := context.WithTimeout(ctx, patienceOf(c.random))
		outcome := what.do(once, c, history.Head{Work: what.name, Number: w.recorder.Next(), Client: c.number, Start: w.recorder.Now()})
		cancel()
		pause := 10 * time.Millisecond
		if outcome != history.Committed { // it will not be better at once
			pause = 100 * time.Millisecond
		}
		time.Sleep(time.Duration(c.random.Int64N(int64(pause))))
	}
}

// End stops the clients, in the middle of whatever they do.
func (w *Workload) End() error {
	w.stop()
	w.running.Wait()
	return w.recorder.Close()
}

// Summary says how many operations there were, and how they ended.
func (w *Workload) Summary() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	parts := []string{fmt.Sprintf("%d consistent looks", w.looks.Load())}
	for _, work := range w.works() {
		c := w.counts[work.name]
		parts = append(parts, fmt.Sprintf("%s: %d committed, %d failed, %d unknown", work.name, c[history.Committed], c[history.Failed], c[history.Unknown]))
	}
	return strings.Join(parts, "; ")
}

// note keeps what has been done.
func (w *Workload) note(head *history.Head, operation any) {
	w.mu.Lock()
	if w.counts[head.Work] == nil {
		w.counts[head.Work] = map[history.Outcome]int{}
	}
	w.counts[head.Work][head.Outcome]++
	if head.Outcome == history.Committed {
		if w.committed[head.Router] == nil {
			w.committed[head.Router] = map[string]int{}
		}
		w.committed[head.Router][head.Work]++
	}
	switch o := operation.(type) {
	case *history.Tagged:
		w.tagged = append(w.tagged, *o)
	case *history.Register:
		w.registers = append(w.registers, *o)
	case *history.Lists:
		w.lists = append(w.lists, *o)
	}
	w.mu.Unlock()
	w.recorder.Write(operation)
}

func (w *Workload) complain(format string, values ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, values...))
}

const begin = "BEGIN"

// Transfer is a history's record of money that went from one account to another.
type Transfer struct {
	history.Head
	From   int64 `json:"from"`
	To     int64 `json:"to"`
	Amount int64 `json:"amount"`
}

// transfer moves money between two accounts, wherever they are.
func (w *Workload) transfer(ctx context.Context, c *Client, head history.Head) history.Outcome {
	o := &Transfer{Head: head, From: 1 + c.random.Int64N(keysInAll), To: 1 + c.random.Int64N(keysInAll), Amount: 1 + c.random.Int64N(100)}
	steps := []struct{ id, amount int64 }{{o.From, -o.Amount}, {o.To, o.Amount}}
	if o.From > o.To && c.random.IntN(4) > 0 { // mostly in the same order: some may wait for each other, on several shards, and one of them has to fail
		slices.Reverse(steps)
	}
	c.Transact(ctx, &o.Head, begin, func(ctx context.Context, conn *pgx.Conn) error {
		for _, s := range steps {
			if _, err := conn.Exec(ctx, "UPDATE accounts SET balance = balance + $1 WHERE id = $2", s.amount, s.id); err != nil {
				return err
			}
		}
		return nil
	})
	o.End = w.recorder.Now()
	w.note(&o.Head, o)
	return o.Outcome
}

// count adds one to the counters of a group, on all shards, and leaves a tag at each.
func (w *Workload) count(ctx context.Context, c *Client, head history.Head) history.Outcome {
	group := c.random.IntN(groups)
	o := &history.Tagged{Head: head, Tag: fmt.Sprintf("%d-%d", group, head.Number)}
	for shard := range w.tables.Keys {
		o.Shards = append(o.Shards, shard)
	}
	c.Transact(ctx, &o.Head, begin, func(ctx context.Context, conn *pgx.Conn) error {
		return w.tables.countAt(ctx, conn, group, o.Tag)
	})
	o.End = w.recorder.Now()
	w.note(&o.Head, o)
	return o.Outcome
}

// countAt goes to all shards twice: a shard that has forgotten the transaction in between must not go on with another one.
func (t *Tables) countAt(ctx context.Context, conn *pgx.Conn, group int, tag string) error {
	for shard := range t.Keys {
		if _, err := conn.Exec(ctx, "UPDATE counters SET n = n + 1 WHERE id = $1", t.counter(group, shard)); err != nil {
			return err
		}
	}
	for shard := range t.Keys {
		if _, err := conn.Exec(ctx, "INSERT INTO tags VALUES ($1, $2)", t.counter(group, shard), tag); err != nil {
			return err
		}
	}
	return nil
}

// The registers in use change with time, so that no register has too long a history for its checker.
const (
	registersAtATime = 4
	registerLife     = 250 * time.Millisecond
)

// register reads, writes or swaps one row by one statement.
func (w *Workload) register(ctx context.Context, c *Client, head history.Head) history.Outcome {
	o := &history.Register{Head: head, Key: 1 + (int64(head.Start/registerLife)+c.random.Int64N(registersAtATime))%registers, New: head.Number}
	switch c.random.IntN(4) {
	case 0:
		o.Kind = history.Write
	case 1:
		o.Kind = history.CompareAndSet
	default:
		o.Kind, o.New = history.Read, 0
	}
	c.Single(ctx, &o.Head, func(ctx context.Context, conn *pgx.Conn) (err error) {
		switch o.Kind {
		case history.Write:
			_, err = conn.Exec(ctx, "UPDATE registers SET value = $1 WHERE id = $2", o.New, o.Key)
		case history.CompareAndSet:
			err = w.swap(ctx, c, o)
		case history.Read:
			err = conn.QueryRow(ctx, "SELECT value FROM registers WHERE id = $1", o.Key).Scan(&o.Found)
		}
		return err
	})
	o.End = w.recorder.Now()
	w.note(&o.Head, o)
	return o.Outcome
}

// swap takes the value that the client read just before as the old one. That the read is not in the history does no harm.
func (w *Workload) swap(ctx context.Context, c *Client, o *history.Register) error {
	if err := c.conn.QueryRow(ctx, "SELECT value FROM registers WHERE id = $1", o.Key).Scan(&o.Old); err != nil {
		return err
	}
	tag, err := c.conn.Exec(ctx, "UPDATE registers SET value = $1 WHERE id = $2 AND value = $3", o.New, o.Key, o.Old)
	o.Set = err == nil && tag.RowsAffected() == 1
	return err
}

// GoesOn waits until clients have committed some more of everything that they do.
func (w *Workload) GoesOn(ctx context.Context) error {
	return w.goesOn(ctx, func(*Router) bool { return true })
}

// GoesOnAt waits until clients of one router have, and no longer than the limit.
func (w *Workload) GoesOnAt(ctx context.Context, at *Router, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return w.goesOn(ctx, func(r *Router) bool { return r == at })
}

func (w *Workload) goesOn(ctx context.Context, counts func(*Router) bool) error {
	const some = 5
	before := w.committedBy(counts)
	return eventually(ctx, "clients go on", func(context.Context) error {
		now := w.committedBy(counts)
		for _, work := range w.works() {
			if now[work.name] < before[work.name]+some {
				return fmt.Errorf("%s: %d more were committed", work.name, now[work.name]-before[work.name])
			}
		}
		return nil
	})
}

// committedBy is how many operations of each work were committed through the routers that count.
func (w *Workload) committedBy(counts func(*Router) bool) map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	sums := map[string]int{}
	for _, r := range w.cluster.Routers {
		if counts(r) {
			for work, n := range w.committed[r.Name] {
				sums[work] += n
			}
		}
	}
	return sums
}
