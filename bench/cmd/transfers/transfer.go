package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cleavedb/cleave/bench/rig"
	"github.com/cleavedb/cleave/internal/localpg"
)

// load is clients at work.
type load struct {
	done    []counter
	clients [][]*session
	stop    atomic.Bool
	working sync.WaitGroup
	ctx     context.Context // ends when a client fails
	cancel  context.CancelCauseFunc
	detach  func() bool
}

// counter is one client's, on a cache line of its own.
type counter struct {
	atomic.Int64
	_ [56]byte
}

// startLoad connects clients and lets them transfer until they are told to stop.
func (l *lab) startLoad(ctx context.Context, s side) (_ *load, err error) {
	w := &load{done: make([]counter, l.options.clients)}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	defer func() {
		if err != nil {
			w.cancel(err)
			w.hangUp()
		}
	}()
	for range l.options.clients {
		sessions, err := s.connect(ctx, l.options.mode)
		if err != nil {
			return nil, err
		}
		w.clients = append(w.clients, sessions)
	}
	w.detach = context.AfterFunc(w.ctx, w.hangUp)
	for i, sessions := range w.clients {
		w.working.Go(func() { w.work(i, sessions, s) })
	}
	return w, nil
}

func (w *load) work(client int, sessions []*session, s side) {
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // no secrets
	for !w.stop.Load() {
		if err := s.run(sessions, s.draw(random)); err != nil {
			w.cancel(fmt.Errorf("%s: a transfer failed: %w", s.name, err))
			return
		}
		w.done[client].Add(1)
		time.Sleep(s.think)
	}
}

func (w *load) hangUp() {
	for _, sessions := range w.clients {
		closeAll(sessions)
	}
}

// count is how many transfers there were so far.
func (w *load) count() int64 {
	var all int64
	for i := range w.done {
		all += w.done[i].Load()
	}
	return all
}

// end lets clients finish what they do, and returns why one could not go on.
func (w *load) end() error {
	w.stop.Store(true)
	w.working.Wait()
	err := context.Cause(w.ctx)
	if w.detach() {
		w.hangUp()
	}
	w.cancel(nil)
	return err
}

// used is what was used up to a moment.
type used struct {
	at                        time.Time
	transfers                 int64
	proxies, servers, clients time.Duration // of the processors
	flushes                   int64
	busy, idle                time.Duration // all processors, with what everybody did
}

// sample is what one measurement gave: the rate, and the rest for each transfer.
type sample struct {
	rate                      float64
	proxies, servers, clients float64 // microseconds
	flushes                   float64
	idle, others              float64 // shares of all processors: not used, used by what has no part in it
}

// all is the processor time of everybody who had a part in a transfer.
func (s sample) all() float64 { return s.proxies + s.servers + s.clients }

// measure runs one side for a while; meanwhile is done beside, if there is something.
func (l *lab) measure(ctx context.Context, s side, meanwhile func(context.Context) error) (_ sample, err error) {
	w, err := l.startLoad(ctx, s)
	if err != nil {
		return sample{}, err
	}
	defer func() {
		if failed := w.end(); failed != nil {
			err = failed
		}
	}()
	if err := wait(w.ctx, l.options.warmUp); err != nil {
		return sample{}, err
	}
	before, err := l.used(w.ctx, s, w)
	if err != nil {
		return sample{}, err
	}
	if meanwhile == nil {
		err = wait(w.ctx, l.options.length)
	} else {
		err = meanwhile(w.ctx)
	}
	if err != nil {
		return sample{}, err
	}
	after, err := l.used(w.ctx, s, w)
	if err != nil {
		return sample{}, err
	}
	return before.to(after)
}

func (l *lab) used(ctx context.Context, s side, w *load) (u used, err error) {
	for _, pid := range s.proxies {
		spent, err := rig.ProcessorTime(pid)
		if err != nil {
			return used{}, err
		}
		u.proxies += spent
	}
	for _, server := range s.servers {
		spent, err := rig.FamilyTime(server.PID())
		if err != nil {
			return used{}, err
		}
		u.servers += spent
		u.flushes += l.flushes(ctx, server)
	}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return used{}, fmt.Errorf("ask for the clients' processor time: %w", err)
	}
	u.clients = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	u.busy, u.idle = processorsUsed()
	u.at, u.transfers = time.Now(), w.count()
	return u, nil
}

// flushes is how often the server has flushed its log; 0 if it does not tell, as those from version 18 on do not in this place.
func (l *lab) flushes(ctx context.Context, server *localpg.Server) (count int64) {
	if err := l.watchers[server].QueryRow(ctx, "SELECT wal_sync FROM pg_stat_wal").Scan(&count); err != nil {
		return 0
	}
	return count
}

// to is what happened from one moment to another.
func (u used) to(after used) (sample, error) {
	count := float64(after.transfers - u.transfers)
	if count == 0 {
		return sample{}, fmt.Errorf("nothing was transferred in %v", after.at.Sub(u.at))
	}
	length := after.at.Sub(u.at)
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / count }
	proxies, servers, clients := after.proxies-u.proxies, after.servers-u.servers, after.clients-u.clients
	busy, idle := after.busy-u.busy, after.idle-u.idle
	share := func(d time.Duration) float64 { return max(0, float64(d)/float64(max(1, busy+idle))) }
	return sample{
		rate:    count / length.Seconds(),
		proxies: each(proxies), servers: each(servers), clients: each(clients),
		flushes: float64(after.flushes-u.flushes) / count,
		idle:    share(idle), others: share(busy - proxies - servers - clients),
	}, nil
}

// maxAgain is how often a measurement that was disturbed is made again, and maxCalm how long a calm machine is waited for.
const (
	maxAgain = 20
	maxCalm  = 10 * time.Minute
)

// undisturbed measures a side when nobody else does much, and again if somebody did.
func (l *lab) undisturbed(ctx context.Context, side side) (s sample, err error) {
	for range maxAgain {
		if err := l.calm(ctx); err != nil {
			return sample{}, err
		}
		if s, err = l.measure(ctx, side, nil); err != nil || s.others <= l.options.others {
			return s, err
		}
		fmt.Fprintf(os.Stderr, "  %s again: others used %.0f %% of the processors\n", side.name, 100*s.others)
	}
	return s, nil
}

// calm waits until others use no more of the processors than they may.
func (l *lab) calm(ctx context.Context) error {
	for until := time.Now().Add(maxCalm); l.options.others < 1 && time.Now().Before(until); {
		busy, idle := processorsUsed()
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
		if b, i := processorsUsed(); float64(b-busy) <= l.options.others*float64(b-busy+i-idle) {
			return nil
		}
	}
	return nil
}

// transfers measures the sides by turns and prints how they stand to the base.
func (l *lab) transfers(ctx context.Context) error {
	names := append([]string{oneServer}, slices.DeleteFunc(slices.Clone(l.options.sides), func(name string) bool { return name == oneServer })...)
	sides := make([]side, len(names))
	for i, name := range names {
		sides[i] = l.side(name)
	}
	sides = append(sides, l.others(sides)...)
	samples := make([][]sample, len(sides)) // by side, then by round
	for round := range l.options.rounds {
		fmt.Fprintf(os.Stderr, "transfers, round %d of %d\n", round+1, l.options.rounds)
		for i := range sides {
			at := (i + round) % len(sides) // whoever goes first is another one every time
			s, err := l.undisturbed(ctx, sides[at])
			if err != nil {
				return err
			}
			samples[at] = append(samples[at], s)
		}
	}
	l.printTransfers(os.Stdout, sides, samples)
	return l.profile(ctx, sides)
}

func (l *lab) printTransfers(out io.Writer, sides []side, samples [][]sample) {
	fmt.Fprintf(out, "\nTransfers, %d clients, %s statements, %d shards, %d accounts%s; medians of %d rounds of %v\n",
		l.options.clients, l.options.mode, l.options.shards, l.options.accounts, l.slowly(), l.options.rounds, l.options.length)
	rows := [][]string{{"side", "", "a second", "over " + oneServer, "from – to", "target"}}
	for i, s := range sides {
		ratios := make([]float64, len(samples[i]))
		for round := range ratios {
			ratios[round] = samples[i][round].rate / samples[0][round].rate
		}
		rows = append(rows, []string{
			s.name, s.what, fmt.Sprintf("%.0f", medianOf(samples[i], func(s sample) float64 { return s.rate })),
			fmt.Sprintf("%.2f", rig.Median(ratios)), spread(ratios, "%.2f"), atLeast(rig.Median(ratios), s.target),
		})
	}
	rig.PrintTable(out, rows)
	fmt.Fprintf(out, "\nWhat a transfer costs: processor time in µs, flushes of the servers' logs; and the shares of the processors that were idle, or used by others\n")
	rows = [][]string{{"side", "proxy", "servers", "clients", "in all", "over " + oneServer, "flushes", "idle", "others"}}
	for i, s := range sides {
		row := []string{s.name}
		of := func(value func(sample) float64) float64 { return medianOf(samples[i], value) }
		row = append(row,
			rig.Number(of(func(s sample) float64 { return s.proxies }), "%.0f"), rig.Number(of(func(s sample) float64 { return s.servers }), "%.0f"),
			rig.Number(of(func(s sample) float64 { return s.clients }), "%.0f"), rig.Number(of(sample.all), "%.0f"),
			rig.Ratio(of(sample.all), medianOf(samples[0], sample.all)), rig.Number(of(func(s sample) float64 { return s.flushes }), "%.2f"),
			fmt.Sprintf("%.0f %%", 100*of(func(s sample) float64 { return s.idle })), fmt.Sprintf("%.0f %%", 100*of(func(s sample) float64 { return s.others })),
		)
		rows = append(rows, row)
	}
	rig.PrintTable(out, rows)
}

// slowly says that flushes were made slower.
func (l *lab) slowly() string {
	if l.options.flush == 0 {
		return ""
	}
	return fmt.Sprintf(", every flush %v longer", l.options.flush)
}

func medianOf[T any](all []T, value func(T) float64) float64 {
	values := make([]float64, len(all))
	for i, one := range all {
		values[i] = value(one)
	}
	return rig.Median(values)
}

// spread is how far the values lie apart.
func spread(values []float64, format string) string {
	return fmt.Sprintf(format+" – "+format, slices.Min(values), slices.Max(values))
}

// atLeast is a target, and whether it is reached.
func atLeast(value, target float64) string {
	switch {
	case target == 0:
		return ""
	case value < target:
		return fmt.Sprintf("≥ %g: missed", target)
	default:
		return fmt.Sprintf("≥ %g: reached", target)
	}
}

// profile runs the router's sides once more, each with a profile.
func (l *lab) profile(ctx context.Context, sides []side) error {
	if l.options.profiles == "" {
		return nil
	}
	if err := os.MkdirAll(l.options.profiles, 0o755); err != nil {
		return fmt.Errorf("make the folder for the profiles: %w", err)
	}
	for _, s := range sides {
		if !slices.Contains(s.proxies, l.router.PID()) {
			continue
		}
		path := filepath.Join(l.options.profiles, s.name+".pprof")
		_, err := l.measure(ctx, s, func(ctx context.Context) error { return l.router.Profile(ctx, l.options.length, path) })
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "go tool pprof", path)
	}
	return nil
}
