// Command moves measures what a move of rows between shards costs: how fast they are copied, how long statements wait at the switch, and what is left of an application's throughput while rows are copied.
//
// It starts two servers and a router of this tree itself, on free ports and in a temporary folder, and ends them. There are four parts:
//
//   - copy: the copy of a move beside COPY TO piped into COPY FROM between the same two servers, into a table with the same index, by turns, with one stream and with more beside as many pipes;
//   - pause: writers at a steady pace through the router, while rows move back and forth: how long the writes took that began while a switch was under way;
//   - curve: the same beside clients whose transactions stay open for longer and longer: how long the switch waits for its turn, and how often it is taken back;
//   - load: as many writes as clients can make, undisturbed and while rows are copied and caught up with, with the usual throttle and with none, by turns.
//
// Only ratios are meant to be compared with those of another machine; the pause is a time, and says what this machine's was. Start reading at run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/bench/rig"
	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg"
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "moves:", err)
		}
		os.Exit(1)
	}
}

func command(arguments []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	o, err := parseOptions(arguments)
	if err != nil {
		return err
	}
	return run(ctx, o, os.Stdout)
}

// lab is all that runs during a measurement.
type lab struct {
	options
	out     io.Writer
	folder  string
	servers [2]*localpg.Server
	router  *rig.Router
	closers rig.Closers
	// at is the shard that has the rows, 0 or 1.
	at int
	// loads are what the part of the same name has measured.
	loads []*loaded
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	l := &lab{options: o, out: out}
	defer func() { err = errors.Join(err, l.closers.Close()) }()
	if err := l.open(ctx); err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{{"copy", l.copy}, {"pause", l.pause}, {"curve", l.curve}, {"load", l.load}} {
		if !slices.Contains(o.parts, part.name) {
			continue
		}
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// open starts everything, and makes the table with all rows on the first shard.
func (l *lab) open(ctx context.Context) (err error) {
	if l.folder, err = os.MkdirTemp(l.options.folder, "cleave-moves-"); err != nil {
		return err
	}
	l.closers = append(l.closers, func() error { return os.RemoveAll(l.folder) })
	if err := os.Chmod(l.folder, 0o711); err != nil { // the servers' user passes through
		return err
	}
	var addresses []string
	for i := range l.servers {
		if l.servers[i], err = localpg.Start(ctx, localpg.Config{Dir: filepath.Join(l.folder, fmt.Sprintf("shard%d", i+1)), Template: true}); err != nil {
			return err
		}
		l.closers = append(l.closers, l.servers[i].StopImmediately)
		addresses = append(addresses, l.servers[i].Addr())
	}
	binary, err := rig.BuildRouter(ctx, l.folder, false)
	if err != nil {
		return err
	}
	if l.router, err = rig.ServeRouter(ctx, rig.RouterConfig{Folder: filepath.Join(l.folder, "router"), Binary: binary, Role: "postgres", Database: "postgres", Shards: addresses}); err != nil {
		return err
	}
	l.closers = append(l.closers, l.router.Close)
	return rig.With(ctx, l.place(), func(conn *pgx.Conn) error {
		for _, sql := range []string{
			"CREATE TABLE things (id bigint PRIMARY KEY, n bigint NOT NULL DEFAULT 0, filler text)", "SELECT cleave.shard_table('things', 'id')",
			fmt.Sprintf("INSERT INTO things (id, filler) SELECT i, repeat(md5(i::text), 5) FROM generate_series(1, %d) AS i", l.rows),
		} {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		_, err := l.move(ctx, "shard2", "shard1")
		return err
	})
}

func (l *lab) place() string {
	return "postgres://postgres@" + l.router.Address + "/postgres?sslmode=disable"
}

// move moves all that one shard has to the other, and returns when it has ended.
func (l *lab) move(ctx context.Context, from, to string) (api.Move, error) {
	list, err := l.router.API.StartMoves(ctx, api.StartMove{From: from, To: to, Streams: l.streams[0]})
	if err != nil {
		return api.Move{}, err
	}
	return l.await(ctx, list.Moves[0].ID, nil)
}

// await waits for the end of a move, and tells of each phase.
func (l *lab) await(ctx context.Context, id string, enters func(api.Move)) (api.Move, error) {
	last := ""
	for {
		m, err := l.router.API.Move(ctx, id)
		switch {
		case err != nil:
			return m, err
		case m.Stopped != "":
			return m, errors.New(m.Stopped)
		}
		if m.Phase != last && enters != nil {
			enters(m)
		}
		if last = m.Phase; last == "done" {
			return m, nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return m, ctx.Err()
		}
	}
}

// there and back are the shards that have the rows, and that get them next.
func (l *lab) turn() (from, to string) {
	names := [2]string{"shard1", "shard2"}
	from, to = names[l.at], names[1-l.at]
	l.at = 1 - l.at
	return from, to
}

// copy compares copies of moves with pipes, as many as there are streams.
func (l *lab) copy(ctx context.Context) error {
	byHand, byMove := make([][]float64, len(l.streams)), make([][]float64, len(l.streams))
	for range l.rounds {
		for i, streams := range l.streams {
			seconds, err := l.pipes(ctx, l.servers[l.at], l.servers[1-l.at], streams)
			if err != nil {
				return err
			}
			byHand[i] = append(byHand[i], float64(l.rows)/seconds)
			if seconds, err = l.copyTime(ctx, streams); err != nil {
				return err
			}
			byMove[i] = append(byMove[i], float64(l.rows)/seconds)
		}
	}
	for i, streams := range l.streams {
		hand, moved := rig.Median(byHand[i]), rig.Median(byMove[i])
		fmt.Fprintf(l.out, "copy, %d streams: %s rows a second, as many pipes of COPY into COPY %s: %s\n", streams, rig.Number(moved, "%.0f"), rig.Number(hand, "%.0f"), rig.Ratio(moved, hand))
		if i > 0 {
			fmt.Fprintf(l.out, "  beside %d streams: %s, and the pipes %s\n", l.streams[0], rig.Ratio(moved, rig.Median(byMove[0])), rig.Ratio(hand, rig.Median(byHand[0])))
		}
	}
	return nil
}

// copyTime moves all rows, and returns how many seconds they were copied for.
func (l *lab) copyTime(ctx context.Context, streams int) (seconds float64, err error) {
	from, to := l.turn()
	list, err := l.router.API.StartMoves(ctx, api.StartMove{From: from, To: to, Streams: streams})
	if err != nil {
		return 0, err
	}
	var began, ended time.Time
	if _, err := l.await(ctx, list.Moves[0].ID, func(m api.Move) {
		switch m.Phase {
		case "copying":
			began = m.Since
		case "catching up":
			ended = m.Since
		}
	}); err != nil {
		return 0, err
	}
	if began.IsZero() || ended.IsZero() {
		return 0, errors.New("the copy was too short to be seen: take more rows")
	}
	return ended.Sub(began).Seconds(), nil
}

// pipes copies the rows into another table, as one does by hand: each pipe a part of the table's pages.
func (l *lab) pipes(ctx context.Context, source, target *localpg.Server, count int) (seconds float64, err error) {
	var pages int
	err = rig.With(ctx, target.DSN("postgres"), func(to *pgx.Conn) error {
		_, err := to.Exec(ctx, "DROP TABLE IF EXISTS public.by_hand; CREATE TABLE public.by_hand (id bigint PRIMARY KEY, n bigint NOT NULL DEFAULT 0, filler text)")
		return err
	})
	if err == nil {
		err = rig.With(ctx, source.DSN("postgres"), func(from *pgx.Conn) error {
			return from.QueryRow(ctx, "SELECT pg_relation_size('public.things') / current_setting('block_size')::int").Scan(&pages)
		})
	}
	if err != nil {
		return 0, err
	}
	started := time.Now()
	failed := make([]error, count)
	var piping sync.WaitGroup
	for i := range count {
		what := "public.things"
		if count > 1 {
			what = fmt.Sprintf("(SELECT * FROM public.things WHERE ctid >= '(%d,0)' AND ctid < '(%d,0)')", i*pages/count, (i+1)*pages/count)
		}
		piping.Go(func() { failed[i] = pipe(ctx, source, target, what) })
	}
	piping.Wait()
	return time.Since(started).Seconds(), errors.Join(failed...)
}

// pipe copies some rows.
func pipe(ctx context.Context, source, target *localpg.Server, what string) error {
	return rig.With(ctx, source.DSN("postgres"), func(from *pgx.Conn) error {
		return rig.With(ctx, target.DSN("postgres"), func(to *pgx.Conn) error {
			reader, writer := io.Pipe()
			var reading sync.WaitGroup
			reading.Go(func() {
				_, err := from.PgConn().CopyTo(ctx, writer, "COPY "+what+" TO STDOUT (FORMAT binary)")
				_ = writer.CloseWithError(err)
			})
			_, err := to.PgConn().CopyFrom(ctx, reader, "COPY public.by_hand FROM STDIN (FORMAT binary)")
			_ = reader.CloseWithError(err)
			reading.Wait()
			return err
		})
	})
}

// sample is one write. It began when it was due; where the machine is busy with what is before it, it is sent later.
type sample struct {
	began     time.Time
	sentAfter time.Duration
	took      time.Duration
}

// atWork is how long it took from when it was sent.
func (s sample) atWork() time.Duration { return s.took - s.sentAfter }

// writers write rows of their own at a pace until the context ends; no pace: as fast as they can.
func (l *lab) write(ctx context.Context, pace int) (samples []sample, failures int, err error) {
	var mu sync.Mutex
	var running sync.WaitGroup
	for i := range l.clients {
		conn, err := pgx.Connect(ctx, l.place())
		if err != nil {
			return nil, 0, err
		}
		running.Go(func() {
			defer conn.Close(context.WithoutCancel(ctx))
			random := rand.New(rand.NewPCG(uint64(i), 1))
			var own []sample
			failed := 0
			next := time.Now().Add(time.Duration(random.Int64N(int64(time.Second))))
			for ctx.Err() == nil {
				if pace > 0 { // a write that is late makes those after it late too: who waits has been waiting since it was due
					if wait := time.Until(next); wait > 0 {
						time.Sleep(wait)
					}
				} else {
					next = time.Now()
				}
				sentAfter := time.Since(next)
				_, err := conn.Exec(context.WithoutCancel(ctx), "UPDATE things SET n = n + 1 WHERE id = $1", 1+random.IntN(l.rows))
				if err != nil {
					failed++
				}
				own = append(own, sample{next, sentAfter, time.Since(next)})
				if pace > 0 {
					next = next.Add(time.Second * time.Duration(l.clients) / time.Duration(pace))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			samples, failures = append(samples, own...), failures+failed
		})
	}
	running.Wait()
	return samples, failures, nil
}

// pause measures how long writes wait at switches.
func (l *lab) pause(ctx context.Context) error {
	for _, pace := range l.paces {
		writing, stop := context.WithCancel(ctx)
		var samples []sample
		var failures int
		var failed error
		var running sync.WaitGroup
		before := rig.Processors()
		running.Go(func() { samples, failures, failed = l.write(writing, pace) })
		var switches []api.MoveSwitch
		err := func() error {
			defer running.Wait()
			defer stop()
			for range l.rounds {
				from, to := l.turn()
				m, err := l.move(ctx, from, to)
				if err != nil {
					return err
				}
				switches = append(switches, m.Switches...)
			}
			return nil
		}()
		if err = errors.Join(err, failed); err != nil {
			return err
		}
		l.reportPause(pace, samples, failures, switches)
		fmt.Fprintf(l.out, "  the processors of the machine were busy for %.0f %% of it\n", 100*rig.Processors().Busy(before))
	}
	return nil
}

func (l *lab) reportPause(pace int, samples []sample, failures int, switches []api.MoveSwitch) {
	var held, atWork, longest []time.Duration
	var usual []time.Duration
	backs := 0
	for _, s := range switches {
		if s.Failed != "" {
			backs++
		}
		end := s.At.Add(time.Duration(s.HeldMS * float64(time.Millisecond)))
		most := time.Duration(0)
		for _, one := range samples {
			if one.began.Add(one.took).After(s.At) && one.began.Before(end) {
				held = append(held, one.took)
				atWork = append(atWork, one.atWork())
				most = max(most, one.took)
			}
		}
		longest = append(longest, most)
	}
	for _, one := range samples {
		usual = append(usual, one.took)
	}
	slices.Sort(held)
	slices.Sort(atWork)
	slices.Sort(usual)
	if len(held) == 0 || len(usual) == 0 {
		fmt.Fprintf(l.out, "pause at %d writes a second: nobody was held\n", pace)
		return
	}
	at := func(values []time.Duration, part float64) time.Duration {
		return values[min(len(values)-1, int(part*float64(len(values))))].Round(100 * time.Microsecond)
	}
	fmt.Fprintf(l.out, "pause at %d writes a second, %d switches (%d taken back): writes under way in one took %s in the middle, %s at 99 %%, from when they were sent %s and %s, the longest of a switch %s in the middle; all writes %s and %s; %d of %d failed\n",
		pace, len(switches), backs, at(held, 0.5), at(held, 0.99), at(atWork, 0.5), at(atWork, 0.99), rig.Median(longest).Round(100*time.Microsecond), at(usual, 0.5), at(usual, 0.99), failures, len(samples))
	l.reportSteps(switches)
}

// reportSteps prints how long the steps of switches took.
func (l *lab) reportSteps(switches []api.MoveSwitch) {
	var names []string
	took := map[string][]float64{}
	for _, s := range switches {
		for _, step := range s.Steps {
			if took[step.Name] == nil {
				names = append(names, step.Name)
			}
			took[step.Name] = append(took[step.Name], step.TookMS)
		}
	}
	for _, name := range names {
		fmt.Fprintf(l.out, "  %s %.1f ms in the middle, %.1f at most\n", name, rig.Median(took[name]), slices.Max(took[name]))
	}
}

// load compares throughput while rows are copied and caught up with to that without, with the usual throttle and with none.
func (l *lab) load(ctx context.Context) error {
	for _, throttle := range []bool{true, false} {
		l.loads = append(l.loads, &loaded{throttle: throttle})
	}
	for range l.rounds {
		for _, one := range l.loads {
			if err := one.measure(ctx, l); err != nil {
				return err
			}
		}
	}
	for _, one := range l.loads {
		one.report(l.out)
	}
	return nil
}

// loaded is what was measured with or without throttle, as ratios to the writes a second while nothing was copied just before and after: while rows were copied, and while the target caught up.
type loaded struct {
	throttle              bool
	quiet, copying, apply []float64
	took                  []float64 // seconds of a copy, but for when it was held
	caught                []float64 // seconds until the target has caught up
}

// window is some time, and whether rows were copied in it.
type window struct {
	began, ended time.Time
	busy         bool
}

const (
	// windowTime is how long a window is, and settleTime how long a copy takes to be held.
	windowTime = 2 * time.Second
	settleTime = 300 * time.Millisecond
)

// measure holds the copy again and again, so that what else goes on on the machine is the same with and without it.
func (o *loaded) measure(ctx context.Context, l *lab) error {
	var windows []window
	var copied, ended time.Time
	samples, err := l.writing(ctx, func(ctx context.Context) error {
		from, to := l.turn()
		list, err := l.router.API.StartMoves(ctx, api.StartMove{From: from, To: to, SkipVerify: true, MoveLimits: api.MoveLimits{Throttle: &o.throttle, MaxRate: new(held)}})
		if err != nil {
			return err
		}
		id := list.Moves[0].ID
		watching, stop := context.WithCancel(ctx)
		var turning sync.WaitGroup
		turning.Go(func() { windows = l.takeTurns(watching, id) })
		_, err = l.await(ctx, id, func(m api.Move) {
			switch m.Phase {
			case "catching up":
				copied = m.Since
				stop()
			case "ready":
				ended = m.Since
			}
		})
		stop()
		turning.Wait()
		return err
	})
	if err != nil {
		return err
	}
	o.judge(samples, windows, copied, ended)
	return nil
}

// held is a rate at which nothing is copied.
const held = int64(1)

// takeTurns lets rows be copied, and not, until the context ends.
func (l *lab) takeTurns(ctx context.Context, id string) (windows []window) {
	for busy := false; ctx.Err() == nil; busy = !busy {
		rate := held
		if busy {
			rate = 0
		}
		m, err := l.router.API.ThrottleMove(ctx, id, api.MoveLimits{MaxRate: &rate})
		if err != nil || m.Phase != "copying" {
			busy = !busy // it has not begun yet, or is over
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if !busy {
			time.Sleep(settleTime)
		}
		one := window{began: time.Now(), busy: busy}
		select {
		case <-time.After(windowTime):
		case <-ctx.Done():
		}
		one.ended = time.Now()
		windows = append(windows, one)
	}
	return windows
}

// judge compares each window in which rows were copied with its neighbours.
func (o *loaded) judge(samples []sample, windows []window, copied, ended time.Time) {
	took := 0.0
	var quiet []float64
	for i, w := range windows {
		rate := rateOf(samples, w.began, w.ended)
		if !w.busy {
			quiet = append(quiet, rate)
			continue
		}
		took += w.ended.Sub(w.began).Seconds()
		around := []float64{rateOf(samples, windows[i-1].began, windows[i-1].ended)}
		if i+1 < len(windows) && !windows[i+1].busy {
			around = append(around, rateOf(samples, windows[i+1].began, windows[i+1].ended))
		}
		o.copying = append(o.copying, rate/mean(around))
	}
	o.took, o.quiet = append(o.took, took), append(o.quiet, quiet...)
	if len(quiet) > 0 && ended.Sub(copied) > 100*time.Millisecond {
		o.apply = append(o.apply, rateOf(samples, copied, ended)/mean(quiet))
		o.caught = append(o.caught, ended.Sub(copied).Seconds())
	}
}

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v / float64(len(values))
	}
	return m
}

func (o *loaded) report(out io.Writer) {
	name := "with the usual throttle"
	if !o.throttle {
		name = "without throttle"
	}
	fmt.Fprintf(out, "load %s: %s writes a second undisturbed; of these %s while rows are copied, which takes %s s, and %s while the target catches up, which takes %s s (one by one: copying %.2f, catching up %.2f)\n", name,
		rig.Number(rig.Median(o.quiet), "%.0f"), rig.Number(rig.Median(o.copying), "%.2f"), rig.Number(rig.Median(o.took), "%.1f"), rig.Number(rig.Median(o.apply), "%.2f"), rig.Number(rig.Median(o.caught), "%.1f"), o.copying, o.apply)
}

// writing has clients write as fast as they can while something goes on.
func (l *lab) writing(ctx context.Context, during func(context.Context) error) ([]sample, error) {
	writing, stop := context.WithCancel(ctx)
	var samples []sample
	var failed error
	var running sync.WaitGroup
	running.Go(func() { samples, _, failed = l.write(writing, 0) })
	err := during(ctx)
	stop()
	running.Wait()
	if err == nil && failed == nil && len(samples) == 0 {
		failed = errors.New("nobody wrote")
	}
	return samples, errors.Join(err, failed)
}

// rateOf is how many writes a second there were between two moments.
func rateOf(samples []sample, began, ended time.Time) float64 {
	count := 0
	for _, s := range samples {
		if at := s.began.Add(s.took); at.After(began) && at.Before(ended) {
			count++
		}
	}
	return float64(count) / ended.Sub(began).Seconds()
}
