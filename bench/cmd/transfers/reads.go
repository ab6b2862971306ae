package main

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
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/bench/rig"
)

// consistentReads is what makes a session read all shards as of one moment.
const consistentReads = "SET cleave.consistent_reads = on"

const (
	// mostExtra is how much longer a consistent read may take.
	mostExtra = 2 * time.Millisecond
	// leastLeft is what ten consistent readers a second have to leave of the writers' throughput, over the same readers without.
	leastLeft = 0.95
	// pause is from one reader to the next.
	pause = 100 * time.Millisecond
	// thinking is how long writers wait after a transfer who leave the processors something to do for readers.
	thinking = 20 * time.Millisecond
	// keysEach is how many accounts of each shard such a reader reads.
	keysEach = 4
)

// reading is one kind of reading.
type reading struct {
	name  string
	setup string // what a session is told first
}

var (
	plainly      = reading{"plain", ""}
	consistently = reading{"consistent", consistentReads}
)

// reads measures what consistent reads cost, if there are any.
func (l *lab) reads(ctx context.Context) error {
	kinds := []reading{plainly, consistently}
	refused, err := l.refuses(ctx, consistentReads)
	if err != nil {
		return err
	}
	if refused != nil {
		fmt.Printf("\nConsistent reads are left out: the router answers to %s with: %s\n", consistentReads, refused.Message)
		kinds = kinds[:1]
	}
	if err := l.latencies(ctx, kinds); err != nil {
		return err
	}
	for _, writers := range l.writers() {
		if err := l.beside(ctx, writers, kinds); err != nil {
			return err
		}
	}
	return nil
}

// writers are those that transfer beside readers: as often as they can, and with pauses.
func (l *lab) writers() []side {
	busy := l.side(crossShard)
	busy.what = strconv.Itoa(l.options.clients)
	calm := busy
	calm.what, calm.think = fmt.Sprintf("%s, with pauses of %v", busy.what, thinking), thinking
	return []side{calm, busy}
}

// refuses asks whether the router refuses a statement; nil: it does not.
func (l *lab) refuses(ctx context.Context, sql string) (*pgconn.PgError, error) {
	s, err := l.openReader(ctx, plainly)
	if err != nil {
		return nil, err
	}
	defer s.close()
	var refused *pgconn.PgError
	if err := s.run(sql); err != nil && !errors.As(err, &refused) {
		return nil, err
	}
	return refused, nil
}

// openReader opens a session that reads.
func (l *lab) openReader(ctx context.Context, kind reading) (*session, error) {
	s, err := connect(ctx, l.routerURL(), "simple")
	if err != nil {
		return nil, fmt.Errorf("connect a reader: %w", err)
	}
	if kind.setup != "" {
		if err := s.run(kind.setup); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// openReaders opens a session of each kind, which end with the context.
func (l *lab) openReaders(ctx context.Context, kinds []reading) (_ []*session, hangUp func(), err error) {
	var sessions []*session
	for _, kind := range kinds {
		s, err := l.openReader(ctx, kind)
		if err != nil {
			closeAll(sessions)
			return nil, nil, err
		}
		sessions = append(sessions, s)
	}
	detach := context.AfterFunc(ctx, func() { closeAll(sessions) })
	return sessions, func() {
		detach()
		closeAll(sessions)
	}, nil
}

// serializationFailure is what a reader gets who is to try again.
const serializationFailure = "40001"

// maxTries of one read.
const maxTries = 100

// read reads accounts in one transaction, and returns how often it had to try. The client adds the balances up, as it would with any statement.
func read(s *session, accounts []account) (tries int, err error) {
	var sql strings.Builder
	sql.WriteString("SELECT id, balance FROM accounts WHERE id IN (")
	for i, a := range accounts {
		if i > 0 {
			sql.WriteString(", ")
		}
		sql.WriteString(strconv.FormatInt(a.id, 10))
	}
	sql.WriteString(")")
	for tries = 1; ; tries++ {
		err := readOnce(s, sql.String())
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != serializationFailure || tries == maxTries {
			return tries, err
		}
		if err := s.run("ROLLBACK"); err != nil {
			return tries, err
		}
	}
}

func readOnce(s *session, sql string) error {
	for _, statement := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", sql, "COMMIT"} {
		if err := s.run(statement); err != nil {
			return err
		}
	}
	return nil
}

// times are those of one round's reads of one kind.
type times struct {
	p50, p99 float64 // milliseconds
	tries    float64 // of a read
}

// latencies measures how long reading two accounts on two shards takes, while nobody writes and while clients transfer.
func (l *lab) latencies(ctx context.Context, kinds []reading) error {
	rows := [][]string{{"writers", "read", "p50 ms", "p99 ms", "tries", "p50 longer by ms", "from – to", "target"}}
	for _, writers := range append([]side{{what: "none"}}, l.writers()...) {
		all := make([][]times, len(kinds))
		for round := range l.options.rounds {
			fmt.Fprintf(os.Stderr, "reads, writers: %s, round %d of %d\n", writers.what, round+1, l.options.rounds)
			var measured []times
			readers := func(ctx context.Context) (err error) {
				measured, err = l.readByTurns(ctx, kinds)
				return err
			}
			var err error
			if writers.run != nil {
				_, err = l.measure(ctx, writers, readers)
			} else {
				err = readers(ctx)
			}
			if err != nil {
				return err
			}
			for i, t := range measured {
				all[i] = append(all[i], t)
			}
		}
		rows = append(rows, latencyRows(writers.what, kinds, all)...)
	}
	fmt.Printf("\nReading two accounts on two shards, REPEATABLE READ; medians of %d rounds\n", l.options.rounds)
	rig.PrintTable(os.Stdout, rows)
	return nil
}

// readByTurns reads for a while, with each kind by turns, and always the same accounts.
func (l *lab) readByTurns(ctx context.Context, kinds []reading) ([]times, error) {
	sessions, hangUp, err := l.openReaders(ctx, kinds)
	if err != nil {
		return nil, err
	}
	defer hangUp()
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // no secrets
	took := make([][]time.Duration, len(kinds))
	tries := make([]int, len(kinds))
	for until := time.Now().Add(l.options.length); time.Now().Before(until); {
		t := l.drawCross(random)
		for i, s := range sessions {
			started := time.Now()
			n, err := read(s, []account{t.first, t.second})
			if err != nil {
				return nil, fmt.Errorf("a %s read failed: %w", kinds[i].name, err)
			}
			took[i], tries[i] = append(took[i], time.Since(started)), tries[i]+n
		}
	}
	all := make([]times, len(kinds))
	for i := range kinds {
		slices.Sort(took[i])
		quantile := func(share float64) float64 { return milliseconds(took[i][int(share*float64(len(took[i])-1))]) }
		all[i] = times{quantile(0.5), quantile(0.99), float64(tries[i]) / float64(len(took[i]))}
	}
	return all, nil
}

func latencyRows(writers string, kinds []reading, all [][]times) [][]string {
	var rows [][]string
	for i, kind := range kinds {
		row := []string{writers, kind.name}
		row = append(row, fmt.Sprintf("%.2f", medianOf(all[i], func(t times) float64 { return t.p50 })), fmt.Sprintf("%.2f", medianOf(all[i], func(t times) float64 { return t.p99 })),
			fmt.Sprintf("%.2f", medianOf(all[i], func(t times) float64 { return t.tries })))
		if i > 0 {
			longer := make([]float64, len(all[i]))
			for round := range longer {
				longer[round] = all[i][round].p50 - all[0][round].p50
			}
			verdict := "reached"
			if rig.Median(longer) > milliseconds(mostExtra) {
				verdict = "missed"
			}
			row = append(row, fmt.Sprintf("%.2f", rig.Median(longer)), spread(longer, "%.2f"), fmt.Sprintf("≤ %g: %s", milliseconds(mostExtra), verdict))
		}
		rows = append(rows, row)
	}
	return rows
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// paced is what one round of writers gave, with readers beside them.
type paced struct {
	rate  float64 // of transfers
	reads float64 // a second
	took  float64 // the readers' median in milliseconds
	tries float64
}

// beside measures how many transfers there are while ten readers a second read some accounts on all shards.
func (l *lab) beside(ctx context.Context, writers side, kinds []reading) error {
	all := make([][]paced, 1+len(kinds)) // first without readers
	for round := range l.options.rounds {
		fmt.Fprintf(os.Stderr, "writers (%s) beside readers, round %d of %d\n", writers.what, round+1, l.options.rounds)
		for i := range all {
			at := (i + round) % len(all)
			var kind *reading
			if at > 0 {
				kind = &kinds[at-1]
			}
			p, err := l.besideOne(ctx, writers, kind)
			if err != nil {
				return err
			}
			all[at] = append(all[at], p)
		}
	}
	l.printBeside(os.Stdout, writers, kinds, all)
	return nil
}

func (l *lab) besideOne(ctx context.Context, writers side, kind *reading) (p paced, err error) {
	var meanwhile func(context.Context) error
	if kind != nil {
		meanwhile = func(ctx context.Context) (err error) {
			p, err = l.readPaced(ctx, *kind)
			return err
		}
	}
	s, err := l.measure(ctx, writers, meanwhile)
	p.rate = s.rate
	return p, err
}

// readPaced reads ten times a second, or as often as it can if that is less.
func (l *lab) readPaced(ctx context.Context, kind reading) (paced, error) {
	sessions, hangUp, err := l.openReaders(ctx, []reading{kind})
	if err != nil {
		return paced{}, err
	}
	defer hangUp()
	ticks := time.NewTicker(pause)
	defer ticks.Stop()
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // no secrets
	var took []time.Duration
	tries := 0
	started := time.Now()
	for time.Since(started) < l.options.length {
		select {
		case <-ctx.Done():
			return paced{}, context.Cause(ctx)
		case <-ticks.C:
		}
		before := time.Now()
		n, err := read(sessions[0], l.drawOnAll(random))
		if err != nil {
			return paced{}, fmt.Errorf("a %s read failed: %w", kind.name, err)
		}
		took, tries = append(took, time.Since(before)), tries+n
	}
	count := float64(len(took))
	return paced{reads: count / time.Since(started).Seconds(), took: milliseconds(rig.Median(took)), tries: float64(tries) / count}, nil
}

// drawOnAll draws some accounts of every shard.
func (l *lab) drawOnAll(r *rand.Rand) []account {
	var drawn []account
	for shard := range l.accounts {
		for range keysEach {
			drawn = append(drawn, l.anyOn(r, shard))
		}
	}
	return drawn
}

func (l *lab) printBeside(out io.Writer, writers side, kinds []reading, all [][]paced) {
	fmt.Fprintf(out, "\nTransfers over two shards, clients: %s, while %.0f readers a second read %d accounts of each shard; medians of %d rounds\n", writers.what, float64(time.Second)/float64(pause), keysEach, l.options.rounds)
	rows := [][]string{{"readers", "transfers a second", "reads a second", "read ms", "tries", "over plain", "from – to", "target"}}
	for i := range all {
		name := "none"
		if i > 0 {
			name = kinds[i-1].name
		}
		ratios := make([]float64, len(all[i]))
		for round := range ratios {
			ratios[round] = all[i][round].rate / all[1][round].rate
		}
		target := 0.0
		if i == 2 {
			target = leastLeft
		}
		rows = append(rows, []string{
			name, fmt.Sprintf("%.0f", medianOf(all[i], func(p paced) float64 { return p.rate })),
			rig.Number(medianOf(all[i], func(p paced) float64 { return p.reads }), "%.1f"),
			rig.Number(medianOf(all[i], func(p paced) float64 { return p.took }), "%.2f"),
			rig.Number(medianOf(all[i], func(p paced) float64 { return p.tries }), "%.2f"),
			fmt.Sprintf("%.2f", rig.Median(ratios)), spread(ratios, "%.2f"), atLeast(rig.Median(ratios), target),
		})
	}
	rig.PrintTable(out, rows)
}
