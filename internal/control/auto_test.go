package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/reshard"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// keyspaceOfOrders is what the keyspace is called if nobody says.
const keyspaceOfOrders = "default_bigint"

// unevenCluster has a table with rows on all shards but the last, which has just been added.
func unevenCluster(t *testing.T, p *process, servers []*localpg.Server) {
	t.Helper()
	last := len(servers) - 1
	clusterOf(t, p, servers[:last])
	execute(t, servers[0], "CREATE TABLE orders (id bigint PRIMARY KEY, note text); INSERT INTO orders SELECT n, repeat('x', 200) FROM generate_series(1, 20000) n")
	shardTable(t, p, sharding(t, "orders", "id"))
	for _, server := range servers[:last] {
		execute(t, server, "VACUUM ANALYZE orders")
	}
	add(t, p, fmt.Sprintf("s%d", last+1), servers[last])
}

// idleLeader is a process that leads but does nothing by itself: a test takes its steps.
type idleLeader struct {
	*Cluster
	t          *testing.T
	leadership *store.Leadership
}

// leadIdly makes a process of an uneven cluster that leads, and lets nothing of it run.
func leadIdly(t *testing.T) (*idleLeader, []string) {
	t.Helper()
	servers, endpoints := pgtest.StartN(t, 2), startEtcd(t)
	p := startProcess(t, endpoints, nil)
	unevenCluster(t, p, servers)
	eventually(t, "all shards have recorded the map", p.settled)
	p.stop()
	return nextLeader(t, endpoints), endpoints
}

func nextLeader(t *testing.T, endpoints []string) *idleLeader {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	s, err := store.Open(store.Config{Endpoints: endpoints, Logger: logger, LeaseTTL: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	follower, err := s.Follow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(follower.Close)
	<-follower.Ready()
	leader := &idleLeader{t: t, Cluster: New(Config{
		Store: s, Follower: follower, Logger: logger, HealthTimeout: 10 * time.Second, Access: shard.Access{User: "postgres", Database: "postgres", SSLMode: "disable"},
	})}
	if leader.leadership, err = s.Campaign(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	leader.monitor.look(t.Context(), follower.Map(), 1)
	t.Cleanup(leader.monitor.end)
	return leader
}

// set changes the settings as a person does.
func (l *idleLeader) set(request api.UpdateAutomation) api.Automation {
	l.t.Helper()
	now, err := l.UpdateAutomation(l.t.Context(), request)
	if err != nil {
		l.t.Fatal(err)
	}
	return now
}

func (l *idleLeader) switchOn() { l.t.Helper(); l.set(api.UpdateAutomation{On: ptr(true)}) }

func ptr[T any](value T) *T { return &value }

// round takes all steps of a look that is due.
func (l *idleLeader) round() {
	l.t.Helper()
	if err := l.automateOnce(l.t.Context(), l.leadership, &autoSchedule{}); err != nil {
		l.t.Fatal(err)
	}
}

// decide takes the steps of a round up to where moves would be asked for.
func (l *idleLeader) decide() (*autoRound, []store.Job) {
	l.t.Helper()
	r, err := l.beginRound(l.t.Context(), l.leadership)
	if err != nil {
		l.t.Fatal(err)
	}
	sizes, ok := r.measureAll(l.t.Context())
	if !ok {
		l.t.Fatal(r.Waiting)
	}
	plan, err := r.Settings.PlanMoves(r.m, sizes, nil, r.LeftBytes(r.now))
	if err != nil {
		l.t.Fatal(err)
	}
	jobs, err := r.ask(plan)
	if err != nil || len(jobs) != 1 {
		l.t.Fatalf("%v, %d moves, waiting for %q", err, len(jobs), r.Waiting)
	}
	return r, jobs
}

func (l *idleLeader) resign() {
	l.t.Helper()
	if err := l.leadership.Resign(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

// stored is what is kept now.
func (l *idleLeader) stored() autoDocument {
	l.t.Helper()
	_, automation, err := l.readAutomation(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	return automation
}

// oneMove wants one move to have been asked for, and counted once.
func (l *idleLeader) oneMove() *reshard.Move {
	l.t.Helper()
	moves, err := l.mover.List(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	now := l.stored()
	if len(moves) != 1 || len(now.Moves) != 1 || now.Moves[0].ID != moves[0].ID || now.SpentBytes(time.Now()) != now.Moves[0].Bytes || now.Moves[0].Bytes == 0 {
		l.t.Fatalf("%d moves were asked for; noted are %+v and %+v", len(moves), now.Moves, now.Spent)
	}
	return moves[0]
}

func (l *idleLeader) noMove() {
	l.t.Helper()
	moves, err := l.mover.List(l.t.Context())
	if now := l.stored(); err != nil || len(moves) > 0 || len(now.Moves) > 0 || now.SpentBytes(time.Now()) > 0 {
		l.t.Fatalf("%v, %d moves were asked for; noted are %+v and %+v", err, len(moves), now.Moves, now.Spent)
	}
}

// carryOut lets the mover work until a move is in a phase.
func (l *idleLeader) carryOut(id string, phase reshard.Phase) *reshard.Move {
	l.t.Helper()
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.mover.Run(ctx, l.leadership)
	}()
	defer func() {
		cancel()
		<-done
	}()
	var move *reshard.Move
	eventually(l.t, fmt.Sprintf("move %s is %s", id, phase), func() bool {
		var err error
		move, err = reshard.Find(l.t.Context(), l.config.Store, id)
		return err == nil && move.Phase == phase
	})
	return move
}

// keep stores a document as it is.
func (l *idleLeader) keep(change func(*autoDocument)) {
	l.t.Helper()
	stored, automation, err := l.readAutomation(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	change(&automation)
	if stored.Body, err = json.Marshal(automation); err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.config.Store.SetAutomation(l.t.Context(), stored); err != nil {
		l.t.Fatal(err)
	}
}

// TestTheAutomationSurvivesItsLeaders has the lines of the crash table of moves.
func TestTheAutomationSurvivesItsLeaders(t *testing.T) {
	t.Run("A1", func(t *testing.T) {
		l, endpoints := leadIdly(t)
		l.switchOn()
		l.decide()
		l.resign()
		next := nextLeader(t, endpoints)
		next.noMove()
		next.round()
		next.oneMove()
	})
	t.Run("A2", func(t *testing.T) {
		l, endpoints := leadIdly(t)
		l.switchOn()
		r, jobs := l.decide()
		if err := r.write(t.Context(), jobs...); err != nil {
			t.Fatal(err)
		}
		asked := l.oneMove()
		l.resign()
		next := nextLeader(t, endpoints)
		next.round()
		next.round()
		if move := next.oneMove(); move.ID != asked.ID {
			t.Errorf("move %s was asked for, and %s", asked.ID, move.ID)
		}
	})
	t.Run("A3", func(t *testing.T) {
		sleeper, endpoints := leadIdly(t)
		sleeper.switchOn()
		r, jobs := sleeper.decide()
		sleeper.resign()
		next := nextLeader(t, endpoints)
		next.round()
		asked := next.oneMove()
		if err := r.write(t.Context(), jobs...); !errors.Is(err, store.ErrNotLeader) {
			t.Errorf("one that does not lead any more writes: %v", err)
		}
		if move := next.oneMove(); move.ID != asked.ID {
			t.Errorf("move %s was asked for, and %s", asked.ID, move.ID)
		}
	})
	t.Run("A4", func(t *testing.T) {
		l, _ := leadIdly(t)
		l.switchOn()
		r, jobs := l.decide()
		l.set(api.UpdateAutomation{On: ptr(false)})
		if err := r.write(t.Context(), jobs...); !errors.Is(err, store.ErrConflict) {
			t.Errorf("moves are asked for after it was switched off: %v", err)
		}
		l.round()
		l.noMove()
	})
	t.Run("A5", func(t *testing.T) {
		l, endpoints := leadIdly(t)
		l.switchOn()
		l.round()
		asked := l.oneMove()
		l.keep(func(a *autoDocument) { a.Moves[0].Bytes, a.Spent[0].Bytes = 1, 1 }) // as if less had been expected
		done := l.carryOut(asked.ID, reshard.Done)
		l.resign()
		next := nextLeader(t, endpoints)
		for range 2 {
			r, err := next.beginRound(t.Context(), next.leadership)
			if err != nil {
				t.Fatal(err)
			}
			if r.follow() {
				if err := r.write(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		now := next.stored()
		if len(now.Moves) > 0 || len(now.Halts) > 0 || now.SpentBytes(time.Now()) != done.Bytes() || done.Bytes() < 1000 {
			t.Errorf("%d bytes have moved, counted are %+v; %+v, %+v", done.Bytes(), now.Spent, now.Moves, now.Halts)
		}
		if now.Events[0].What != "done" || now.Events[1].What != "move" {
			t.Errorf("%+v", now.Events)
		}
	})
	t.Run("A9", func(t *testing.T) {
		l, _ := leadIdly(t)
		l.switchOn()
		l.keep(func(a *autoDocument) {
			a.Spend(500, time.Now())
			a.Moves = []autoMove{{ID: "gone", Keyspace: keyspaceOfOrders, Bytes: 500}}
		})
		l.round()
		now := l.stored()
		if h, halted := now.Halted(keyspaceOfOrders); !halted || h.Move != "gone" || now.SpentBytes(time.Now()) != 500 || len(now.Moves) > 0 {
			t.Errorf("%+v", now)
		}
		if moves, err := l.mover.List(t.Context()); err != nil || len(moves) > 0 {
			t.Errorf("%v, %d moves were asked for in a keyspace that is halted", err, len(moves))
		}
		status, err := l.Status(t.Context())
		if err != nil || !slices.ContainsFunc(status.Findings, func(f api.Finding) bool { return f.Code == "automation_halted" }) {
			t.Errorf("%v, %+v", err, status.Findings)
		}
		l.set(api.UpdateAutomation{Resume: []string{keyspaceOfOrders}})
		l.round()
		if moves, err := l.mover.List(t.Context()); err != nil || len(moves) != 1 {
			t.Errorf("%v, %d moves were asked for after somebody has looked", err, len(moves))
		}
	})
	t.Run("A10", func(t *testing.T) {
		l, _ := leadIdly(t)
		l.round()
		l.noMove()
	})
}

// TestSplitsSurviveTheirLeaders has the lines of the crash table of splits and merges.
func TestSplitsSurviveTheirLeaders(t *testing.T) {
	l, endpoints := leadIdly(t)
	l.set(api.UpdateAutomation{On: ptr(true), Moves: ptr("off"), Splits: ptr("off")})
	change := autoChange{Keyspace: keyspaceOfOrders, At: []topology.Point{{"1111111111111111"}}, Why: "a test"}
	version := func() uint64 {
		m, err := l.config.Store.Map(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return m.Version()
	}
	before := version()
	l.keep(func(a *autoDocument) { a.Change = &change })
	l.resign()
	next := nextLeader(t, endpoints)
	next.round()
	if now := next.stored(); now.Change != nil || now.Events[0].What != "settings" || version() != before {
		t.Errorf("A6: %+v, map version %d after %d", now, version(), before)
	}
	if _, err := l.leadership.UpdateMap(t.Context(), changeMap(change)); !errors.Is(err, store.ErrNotLeader) || version() != before {
		t.Errorf("A8: %v, map version %d after %d", err, version(), before)
	}
	for _, what := range []string{"split", "merge"} {
		change.Merge = what == "merge"
		next.keep(func(a *autoDocument) { a.Change = &change })
		if _, err := next.leadership.UpdateMap(t.Context(), changeMap(change)); err != nil {
			t.Fatal(err)
		}
		next.resign()
		next = nextLeader(t, endpoints)
		made := version()
		next.round()
		if now := next.stored(); now.Change != nil || now.Events[0].What != what || version() != made {
			t.Errorf("A7 %s: %+v, map version %d after %d", what, now.Events[0], version(), made)
		}
	}
}

// TestRangesAreSplitAndMergedByThemselves, or that is proposed, with a command that does it.
func TestRangesAreSplitAndMergedByThemselves(t *testing.T) {
	l, _ := leadIdly(t)
	ranges := func() int {
		m, err := l.config.Store.Map(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return m.Keyspace(keyspaceOfOrders).RangeCount()
	}
	before := ranges()
	l.set(api.UpdateAutomation{On: ptr(true), Moves: ptr("off"), SplitBytes: ptr(int64(500_000))})
	l.round()
	proposed := l.stored().Proposals
	if len(proposed) == 0 || proposed[0].What != "split" || !strings.HasPrefix(proposed[0].Command, "cleave split --keyspace "+keyspaceOfOrders+" --at ") || ranges() != before {
		t.Fatalf("%+v, %d ranges", proposed, ranges())
	}
	l.set(api.UpdateAutomation{Splits: ptr("do")})
	l.round()
	l.round() // nothing is left to split
	now, split := l.stored(), ranges()
	if now.Events[0].What != "split" || split <= before || len(now.Proposals) > 0 || now.Events[1].What != "settings" {
		t.Fatalf("%d ranges, %d before; %+v", split, before, now.Events)
	}
	l.set(api.UpdateAutomation{Splits: ptr("off"), Merges: ptr("propose"), SplitBytes: ptr(int64(1 << 40))})
	l.round()
	if proposed := l.stored().Proposals; len(proposed) == 0 || proposed[0].What != "merge" || !strings.HasPrefix(proposed[0].Command, "cleave merge --keyspace "+keyspaceOfOrders+" --range ") {
		t.Fatalf("%+v", proposed)
	}
	l.set(api.UpdateAutomation{Merges: ptr("do")})
	l.round()
	if now := l.stored(); now.Events[0].What != "merge" || ranges() >= split {
		t.Errorf("%d ranges, %d before; %+v", ranges(), split, now.Events[0])
	}
	l.noMove()
}

// TestWhatKeepsTheAutomationFromMoving: each is visible.
func TestWhatKeepsTheAutomationFromMoving(t *testing.T) {
	servers, endpoints := pgtest.StartN(t, 3), startEtcd(t)
	p := startProcess(t, endpoints, nil)
	unevenCluster(t, p, servers)
	p.stop()
	l := nextLeader(t, endpoints)
	now := time.Now().UTC()
	later := now.Add(2*time.Hour).Format("15:04") + "-" + now.Add(3*time.Hour).Format("15:04")
	waitsFor := func(why string) {
		t.Helper()
		l.round()
		l.noMove()
		if waiting := l.stored().Waiting; !slices.ContainsFunc(waiting, func(w string) bool { return strings.Contains(w, why) }) {
			t.Errorf("waits for %q, not for %s", waiting, why)
		}
	}
	l.set(api.UpdateAutomation{On: ptr(true), Hours: &later})
	waitsFor("moves begin only at " + later)
	l.set(api.UpdateAutomation{Hours: ptr("")})
	// A shard that is away, or slow, causes no moves, from whomever to whomever.
	if err := servers[1].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitsFor("shard s2 could not be counted anew") // nobody has noticed yet
	l.monitor.look(t.Context(), l.config.Follower.Map(), 2)
	waitsFor("shard s2 does not answer")
	if err := servers[1].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.monitor.look(t.Context(), l.config.Follower.Map(), 3)
	l.config.HealthTimeout = time.Nanosecond
	waitsFor("is slow")
	l.config.HealthTimeout = 10 * time.Second
	// Somebody else's move of the keyspace comes first.
	m, err := l.config.Store.Map(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	others := &reshard.Move{Keyspace: keyspaceOfOrders, Source: "s1", Target: "s2", Ranges: []reshard.Range{{From: m.Keyspace(keyspaceOfOrders).Spec().Ranges[0].From, To: m.Keyspace(keyspaceOfOrders).Spec().Ranges[0].To}}}
	if err := reshard.Ask(t.Context(), l.config.Store, others); err != nil {
		t.Fatal(err)
	}
	l.round()
	if now := l.stored(); len(now.Moves) > 0 || !slices.Contains(now.Waiting, "keyspace "+keyspaceOfOrders+": move "+others.ID+" comes first") {
		t.Errorf("%+v, waits for %q", now.Moves, now.Waiting)
	}
	if err := l.config.Store.Wish(t.Context(), others.ID, string(reshard.Cancel)); err != nil {
		t.Fatal(err)
	}
	l.carryOut(others.ID, reshard.Cancelled)
	// What was asked to move counts, whatever became of it.
	l.keep(func(a *autoDocument) { a.Spend(a.Settings.MaxBytes, time.Now()) })
	l.round()
	if now := l.stored(); len(now.Moves) > 0 || !strings.Contains(strings.Join(now.Waiting, "\n"), "in the last 24 hours") {
		t.Errorf("%+v, waits for %q", now.Moves, now.Waiting)
	}
	l.keep(func(a *autoDocument) { a.Spent = nil })
	// A proposal can be applied by a person.
	l.set(api.UpdateAutomation{Moves: ptr("propose")})
	l.round()
	proposed := l.stored().Proposals
	if len(proposed) == 0 || proposed[0].What != "move" {
		t.Fatalf("%+v", proposed)
	}
	id, _ := strings.CutPrefix(proposed[0].Command, "cleave rebalance apply ")
	if list, err := l.ApplyRebalance(t.Context(), id); err != nil || len(list.Moves) == 0 {
		t.Errorf("%v, %+v", err, list)
	}
}

// TestTheAutomationMakesShardsEven, and stops when somebody takes its move back.
func TestTheAutomationMakesShardsEven(t *testing.T) {
	servers := pgtest.StartN(t, 3)
	p := startProcess(t, startEtcd(t), func(c *Config) { c.AutoInterval = 300 * time.Millisecond })
	unevenCluster(t, p, servers)
	if _, err := p.UpdateAutomation(t.Context(), api.UpdateAutomation{On: ptr(true), Tolerance: ptr(0.05)}); err != nil {
		t.Fatal(err)
	}
	// A round that finds nothing more to do comes after the last move.
	eventually(t, "all is even", func() bool {
		now, err := p.Automation(t.Context())
		return err == nil && len(now.Moves) == 0 && now.Events[0].What == "done" && now.Looked.After(now.Events[0].At)
	})
	var counts []int
	for _, server := range servers {
		var n int
		if err := connectTo(t, server).QueryRow(t.Context(), "SELECT count(*) FROM public.orders").Scan(&n); err != nil {
			t.Fatal(err)
		}
		counts = append(counts, n)
	}
	asked, err := p.Moves(t.Context())
	if err != nil || counts[0]+counts[1]+counts[2] != 20000 || slices.Min(counts) < 6000 || len(asked.Moves) > 4 {
		t.Errorf("%v, after %d moves the shards have %d rows", err, len(asked.Moves), counts)
	}
	automation, err := p.Automation(t.Context())
	if err != nil || len(automation.Halts) > 0 || automation.SpentBytes == 0 {
		t.Errorf("%v, %+v", err, automation)
	}
	// A shard that is to be emptied gives all that it has. Somebody does not want that.
	draining := topology.Draining
	if _, err := p.UpdateShard(t.Context(), "s2", api.UpdateShard{State: &draining}); err != nil {
		t.Fatal(err)
	}
	var taken api.Move
	eventually(t, "a move is asked for and taken back", func() bool {
		moves, err := p.Moves(t.Context())
		if err != nil || len(moves.Moves) == len(asked.Moves) {
			return false
		}
		taken, err = p.WishMove(t.Context(), moves.Moves[0].ID, "cancel")
		return err == nil
	})
	eventually(t, "nothing more is done", func() bool {
		now, err := p.Automation(t.Context())
		return err == nil && len(now.Halts) == 1 && now.Halts[0].Move == taken.ID && len(now.Moves) == 0
	})
	looked := time.Now()
	eventually(t, "the shards were looked at again", func() bool {
		now, err := p.Automation(t.Context())
		return err == nil && now.Looked.After(looked)
	})
	if moves, err := p.Moves(t.Context()); err != nil || moves.Moves[0].ID != taken.ID {
		t.Errorf("%v, something moves though somebody did not want it: %+v", err, moves.Moves[0])
	}
}
