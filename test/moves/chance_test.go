package moves_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/test/faults"
)

const (
	// fewCrashes is how many there are where there is not much time, and crashesOfARound how many there are between two times that everything is checked.
	fewCrashes, crashesOfARound = 6, 40
)

// TestMovesBesideRandomFaults: rows, single keys and a whole table move back and forth, are paused, cancelled and rolled back by chance, while routers and servers are killed, stopped and cut off by chance, at the points of moves too. Nothing is lost,
// nothing is there twice, each move comes to an end, and nothing is left of any. CLEAVE_SOAK says how many crashes there are to be.
func TestMovesBesideRandomFaults(t *testing.T) {
	t.Parallel()
	crashes := fewCrashes
	if text := os.Getenv("CLEAVE_SOAK"); text != "" {
		var err error
		if crashes, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	number := faults.Seed(t)
	s := newStage(t, faults.Config{Routers: 3}, 6)
	s.load.Faulty = true
	conn := s.client(t)
	execute(t, conn, "CREATE TABLE alone (id bigint PRIMARY KEY, n bigint)")
	execute(t, conn, "INSERT INTO alone SELECT i, i FROM generate_series(1, 1000) AS i")
	log, err := os.Create(filepath.Join(s.Folder, "faults.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	nemesis := faults.NewNemesis(s.Cluster, number, log)
	for _, c := range slices.Concat(crashPoints, wholePoints) {
		nemesis.Points = append(nemesis.Points, c.point)
	}
	m := &mover{stage: s, random: rand.New(rand.NewPCG(number, 2)), ends: map[string]int{}}
	for nemesis.Crashes() < crashes && !t.Failed() {
		s.round(t, m, nemesis, min(crashesOfARound, crashes-nemesis.Crashes()))
		t.Logf("%s; moves: %v", nemesis.Summary(), m.ends)
	}
}

// round lets rows move while so many crashes happen, and checks everything afterwards.
func (s *stage) round(t *testing.T, m *mover, nemesis *faults.Nemesis, crashes int) {
	t.Helper()
	s.load.Start(t.Context())
	moving, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { m.run(moving) })
	failed := nemesis.Run(t.Context(), crashes)
	stop()
	running.Wait()
	if failed != nil {
		t.Error(failed)
	}
	if err := s.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.end(t)
	s.finish(t)
	var n, sum int64
	conn := s.client(t)
	if err := conn.QueryRow(t.Context(), "SELECT count(*), sum(n) FROM alone").Scan(&n, &sum); err != nil || n != 1000 || sum != 1000*1001/2 {
		t.Errorf("table alone has %d rows and a sum of %d: %v", n, sum, err)
	}
	_ = conn.Close(t.Context())
}

// mover moves something all the while, by chance.
type mover struct {
	*stage
	random *rand.Rand
	last   string // the move that is under way
	wishes []string
	ends   map[string]int
}

// run begins one move after the other, and has wishes of it.
func (m *mover) run(ctx context.Context) {
	for ; ctx.Err() == nil; pauseFor(ctx, 100*time.Millisecond) {
		if m.last == "" {
			m.last, m.wishes = m.begin(ctx), nil
			continue
		}
		now, err := m.ask(ctx)
		switch {
		case err != nil:
		case !now.Ended.IsZero():
			m.ends[now.Phase]++
			m.last = ""
		case now.Stopped != "" && now.Phase == "checking": // it was asked for while another one had the rows
			m.wish(ctx, "cancel")
		case now.Stopped != "" || now.Paused:
			m.wish(ctx, "resume")
		case now.Phase == "ready":
			m.wish(ctx, m.oneOf("switch", "switch", "cancel"))
		case now.Phase == "switched":
			m.wish(ctx, m.oneOf("roll back", "finish"))
		case m.random.IntN(150) == 0:
			m.wish(ctx, m.oneOf("pause", "cancel"))
		}
	}
}

// pauseFor lasts no longer than the context.
func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (m *mover) oneOf(what ...string) string { return what[m.random.IntN(len(what))] }

// begin returns the ID of a new move, if there is one.
func (m *mover) begin(ctx context.Context) string {
	from := m.random.IntN(len(m.Shards))
	to := (from + 1 + m.random.IntN(len(m.Shards)-1)) % len(m.Shards)
	request := api.StartMove{To: m.Shards[to].Name, Manual: m.random.IntN(4) == 0}
	if m.random.IntN(2) == 0 {
		request.KeepSeconds = 600
	}
	switch m.random.IntN(4) {
	case 0:
		request.Tables = []string{"alone"}
	case 1:
		first := 1_000_000 + m.random.IntN(keysNamed)
		request.Keyspace, request.Keys = "default_bigint", keysOf(first, first+16)
	default:
		request.From = m.Shards[from].Name
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	list, err := m.Routers[m.random.IntN(len(m.Routers))].API().StartMoves(ctx, request)
	if err != nil || len(list.Moves) == 0 {
		return ""
	}
	return list.Moves[0].ID
}

// keysNamed is from how many keys those are that move one by one.
const keysNamed = 64

func (m *mover) ask(ctx context.Context) (api.Move, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return m.Routers[m.random.IntN(len(m.Routers))].API().Move(ctx, m.last)
}

// wish says what is to become of the move; whoever is asked may be away, or it may be too late.
func (m *mover) wish(ctx context.Context, wish string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, _ = m.Routers[m.random.IntN(len(m.Routers))].API().WishMove(ctx, m.last, wish)
}

// end sees that the last move comes to its end when nothing is in its way, and that of those nobody has heard of too.
func (m *mover) end(t *testing.T) {
	t.Helper()
	stop := time.AfterFunc(patience, func() { t.Errorf("moves do not end") })
	defer stop.Stop()
	for ctx := t.Context(); !t.Failed(); time.Sleep(100 * time.Millisecond) {
		list, err := m.Routers[0].API().Moves(ctx)
		if err != nil {
			continue
		}
		open := 0
		for _, one := range list.Moves {
			if !one.Ended.IsZero() {
				continue
			}
			open++
			m.last = one.ID
			switch {
			case one.Stopped != "" && one.Phase == "checking":
				m.wish(ctx, "cancel")
			case one.Stopped != "" || one.Paused:
				m.wish(ctx, "resume")
			case one.Phase == "ready":
				m.wish(ctx, "switch")
			case one.Phase == "switched":
				m.wish(ctx, "finish")
			}
		}
		if open == 0 {
			m.last = ""
			return
		}
	}
}
