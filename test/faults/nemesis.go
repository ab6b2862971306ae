package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/failpoint/orders"
	"github.com/cleavedb/cleave/test/faults/proxy"
)

// Nemesis does bad things to a cluster, by chance. Make it with [NewNemesis].
type Nemesis struct {
	// Points are failpoints besides those of transactions to which leaders come, and where they are killed, stopped or slow; each as often as it is in the list.
	Points []string

	cluster *Cluster
	log     io.Writer
	begin   time.Time

	mu      sync.Mutex
	random  *rand.Rand
	busy    map[string]bool // what has a fault right now, and the points that have orders
	crashes int             // processes, or whole servers, that were killed
	faults  map[string]int  // by name
	failed  error
}

// Seed is what a test's choices come from; a new one, unless CLEAVE_FAULTS_SEED says which.
func Seed(t *testing.T) uint64 {
	t.Helper()
	number := uint64(time.Now().UnixNano()) % 1_000_000
	if text := os.Getenv("CLEAVE_FAULTS_SEED"); text != "" {
		var err error
		if number, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("CLEAVE_FAULTS_SEED=%d", number)
	return number
}

// NewNemesis chooses by the seed, and tells the log of each fault.
func NewNemesis(cluster *Cluster, seed uint64, log io.Writer) *Nemesis {
	return &Nemesis{cluster: cluster, log: log, begin: time.Now(), random: rand.New(rand.NewPCG(seed, 1)), busy: map[string]bool{}, faults: map[string]int{}}
}

// fault is one that can befall a target. It lasts until do returns; then what it did is mended.
type fault struct {
	name   string
	target string
	weight int
	do     func(ctx context.Context, f *fault) error
}

// Crashes is how many processes, or whole servers, have been killed so far.
func (n *Nemesis) Crashes() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.crashes
}

// Summary says what has been done.
func (n *Nemesis) Summary() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []string
	for name, count := range n.faults {
		all = append(all, fmt.Sprintf("%d × %s", count, name))
	}
	slices.Sort(all)
	return fmt.Sprintf("%d crashes: %s", n.crashes, strings.Join(all, ", "))
}

// faultsAtATime is how many targets have a fault at the same time.
const faultsAtATime = 2

// Run does bad things until so many crashes have happened, or the context ends, and returns when all is mended that can be.
func (n *Nemesis) Run(ctx context.Context, crashes int) error {
	until := n.Crashes() + crashes
	var all sync.WaitGroup
	for range faultsAtATime {
		all.Go(func() {
			for ctx.Err() == nil && n.Crashes() < until && n.failure() == nil {
				n.one(ctx)
				n.sleep(ctx, 0, 500*time.Millisecond)
			}
		})
	}
	all.Wait()
	return n.failure()
}

func (n *Nemesis) failure() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failed
}

// one does one bad thing to something that has no fault yet.
func (n *Nemesis) one(ctx context.Context) {
	f := n.choose()
	err := f.do(ctx, f)
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.busy, f.target)
	if err != nil && ctx.Err() == nil {
		n.failed = errors.Join(n.failed, fmt.Errorf("%s of %s: %w", f.name, f.target, err))
	}
}

func (n *Nemesis) choose() *fault {
	n.mu.Lock()
	defer n.mu.Unlock()
	var free []fault
	sum := 0
	for _, f := range n.all() {
		if !n.busy[f.target] {
			free = append(free, f)
			sum += f.weight
		}
	}
	which := n.random.IntN(sum)
	i := 0
	for ; which >= free[i].weight; i++ {
		which -= free[i].weight
	}
	n.busy[free[i].target] = true
	n.faults[free[i].name]++
	return &free[i]
}

// all lists the faults, for each target those that can befall it.
func (n *Nemesis) all() (all []fault) {
	for _, r := range n.cluster.Routers {
		on := func(do func(context.Context, *fault, *Router) error) func(context.Context, *fault) error {
			return func(ctx context.Context, f *fault) error { return do(ctx, f, r) }
		}
		all = append(all, fault{"kill", r.Name, 4, on(n.killRouter)}, fault{"stop", r.Name, 2, on(n.stopRouter)}, fault{"failpoint", r.Name, 10, on(n.failpoint)})
	}
	for _, s := range n.cluster.Shards {
		on := func(do func(context.Context, *fault, *Shard) error) func(context.Context, *fault) error {
			return func(ctx context.Context, f *fault) error { return do(ctx, f, s) }
		}
		all = append(all, fault{"kill", s.Name, 2, on(n.killServer)}, fault{"kill postmaster", s.Name, 1, on(n.killPostmaster)}, fault{"kill backend", s.Name, 1, on(n.killBackend)},
			fault{"cut", s.Name, 2, on(n.cut)}, fault{"stall", s.Name, 1, on(n.stall)}, fault{"refuse", s.Name, 1, on(n.refuse)})
		if s.Replica() != nil {
			all = append(all, fault{"kill", s.Name + "'s replica", 2, on(n.killReplica)})
		}
	}
	return all
}

// say tells the log what happens.
func (n *Nemesis) say(f *fault, format string, values ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fmt.Fprintf(n.log, "%s %8.3f %s of %s: %s\n", time.Now().UTC().Format("15:04:05.000"), time.Since(n.begin).Seconds(), f.name, f.target, fmt.Sprintf(format, values...))
}

func (n *Nemesis) crashed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.crashes++
}

// between is a time by chance; short ones are more likely.
func (n *Nemesis) between(least, most time.Duration) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	part := n.random.Float64()
	return least + time.Duration(part*part*float64(most-least))
}

func (n *Nemesis) chance(of int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.random.IntN(of) == 0
}

// sleep lasts no longer than the context.
func (n *Nemesis) sleep(ctx context.Context, least, most time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(n.between(least, most)):
	}
}

// How long things are away at most.
const (
	deadRouter  = 3 * time.Second
	deadServer  = 2 * time.Second
	mostStopped = 15 * time.Second
	mostStalled = 8 * time.Second
	mostRefused = 3 * time.Second // routers keep away from it for longer
)

func (n *Nemesis) killRouter(ctx context.Context, f *fault, r *Router) error {
	n.say(f, "it is killed")
	r.Kill()
	n.crashed()
	return n.reviveRouter(ctx, f, r)
}

func (n *Nemesis) reviveRouter(ctx context.Context, f *fault, r *Router) error {
	n.sleep(ctx, 0, deadRouter)
	n.say(f, "it is started again")
	return r.Start()
}

func (n *Nemesis) stopRouter(ctx context.Context, f *fault, r *Router) error {
	n.say(f, "it is stopped")
	r.Stop()
	n.sleep(ctx, 50*time.Millisecond, mostStopped)
	r.Continue()
	n.say(f, "it goes on")
	return nil
}

// failpoint lets a router die, or be stopped or slow, at a certain point of what it does.
func (n *Nemesis) failpoint(ctx context.Context, f *fault, r *Router) error {
	status, err := r.Status(ctx)
	point, order := n.order(r, err == nil && status.Leader == r.Name)
	defer n.free(point)
	n.say(f, "%s: %s", point, order)
	if err := orders.Give(n.cluster.Orders, point, order); err != nil {
		return err
	}
	obeyed, err := n.waitObeyed(ctx, point)
	if err = errors.Join(err, orders.Withdraw(n.cluster.Orders, point)); err != nil {
		return err
	}
	if !obeyed {
		n.say(f, "it did not come to %s", point)
		return nil
	}
	n.say(f, "it came to %s", point)
	n.mu.Lock()
	n.faults[point+" "+string(order.Act)]++
	n.mu.Unlock()
	return n.afterPoint(ctx, f, r, order.Act)
}

// waitObeyed waits for a while until somebody obeys the order.
func (n *Nemesis) waitObeyed(ctx context.Context, point string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, pointPatience)
	defer cancel()
	for {
		process, err := orders.Obeyed(n.cluster.Orders, point)
		if err != nil || process != 0 {
			return process != 0, err
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// afterPoint mends what the order has done.
func (n *Nemesis) afterPoint(ctx context.Context, f *fault, r *Router, act orders.Act) error {
	switch act {
	case orders.Kill:
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if err := r.WaitKilled(limit); err != nil {
			return err
		}
		n.crashed()
		return n.reviveRouter(ctx, f, r)
	case orders.Stop:
		n.sleep(ctx, 50*time.Millisecond, mostStopped)
		r.Continue()
		n.say(f, "it goes on")
	default: // it goes on by itself
	}
	return nil
}

// pointPatience is how long an order waits for somebody to come by.
const pointPatience = 4 * time.Second

// order is one for the router, at one of its points. Leaders have others besides, which they come to less often.
func (n *Nemesis) order(r *Router, leads bool) (point string, o orders.Order) {
	n.mu.Lock()
	defer n.mu.Unlock()
	points := CommitPoints
	if n.random.IntN(3) == 0 {
		points = LeaderPoints
	}
	if leads && len(n.Points) > 0 && n.random.IntN(5) > 0 {
		points = n.Points
	}
	o = orders.Order{Act: orders.Kill, Process: r.PID()}
	switch n.random.IntN(8) {
	case 0:
		o.Act = orders.Stop
	case 1:
		o.Act, o.For = orders.Sleep, time.Duration(1+n.random.IntN(3000))*time.Millisecond
	}
	points = slices.DeleteFunc(slices.Clone(points), func(point string) bool { return n.busy[point] }) // one order for each
	point = points[n.random.IntN(len(points))]
	n.busy[point] = true
	return point, o
}

func (n *Nemesis) free(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.busy, what)
}

func (n *Nemesis) killServer(ctx context.Context, f *fault, s *Shard) error {
	n.say(f, "its server is killed")
	if err := s.Crash(false); err != nil {
		return err
	}
	n.crashed()
	return n.reviveServer(ctx, f, s)
}

func (n *Nemesis) reviveServer(ctx context.Context, f *fault, s *Shard) error {
	n.sleep(ctx, 0, deadServer)
	err := s.Restart(context.WithoutCancel(ctx))
	n.say(f, "its server is back")
	return err
}

func (n *Nemesis) killPostmaster(ctx context.Context, f *fault, s *Shard) error {
	n.say(f, "its postmaster is killed")
	if err := s.Crash(true); err != nil {
		return err
	}
	n.crashed()
	return n.reviveServer(ctx, f, s)
}

// killBackend kills the process of one session, for which PostgreSQL ends all of them and recovers.
func (n *Nemesis) killBackend(ctx context.Context, f *fault, s *Shard) error {
	var process int
	if err := askOnce(ctx, s.Primary(), &process,
		"SELECT coalesce((SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1), 0)"); err != nil || process == 0 {
		n.say(f, "there is none: %v", err)
		return nil
	}
	n.say(f, "process %d of its server is killed", process)
	if err := syscall.Kill(process, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	n.crashed()
	n.sleep(ctx, 0, deadServer) // it comes back by itself
	return nil
}

func (n *Nemesis) killReplica(ctx context.Context, f *fault, s *Shard) error {
	n.say(f, "it is killed")
	if err := s.Replica().Crash(); err != nil {
		return err
	}
	n.crashed()
	n.sleep(ctx, 0, deadServer)
	return restart(context.WithoutCancel(ctx), s.Replica())
}

func (n *Nemesis) cut(_ context.Context, f *fault, s *Shard) error {
	n.say(f, "its %d connections are cut", s.Proxy.Cut())
	return nil
}

// stall swallows what is said, in one direction or in both; in the end it comes through, or the connections are cut.
func (n *Nemesis) stall(ctx context.Context, f *fault, s *Shard) error {
	switch {
	case n.chance(3):
		n.say(f, "what it says is swallowed")
		s.Proxy.Stall(proxy.ToClient)
	case n.chance(2):
		n.say(f, "what it is told is swallowed")
		s.Proxy.Stall(proxy.ToServer)
	default:
		n.say(f, "what is said is swallowed")
		s.Proxy.Stall()
	}
	n.sleep(ctx, 50*time.Millisecond, mostStalled)
	if n.chance(2) {
		n.say(f, "and cut off")
		s.Proxy.Cut()
	}
	s.Proxy.Resume()
	n.say(f, "it can be talked to again")
	return nil
}

func (n *Nemesis) refuse(ctx context.Context, f *fault, s *Shard) error {
	s.Proxy.Refuse(true)
	n.say(f, "its %d connections are cut, and others refused", s.Proxy.Cut())
	n.sleep(ctx, 50*time.Millisecond, mostRefused)
	s.Proxy.Refuse(false)
	n.say(f, "it can be connected to again")
	return nil
}
