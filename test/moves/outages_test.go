package moves_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/failpoint/orders"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/faults"
)

// heldAt starts a move and returns when its leader has come to a point, where it holds.
func (s *stage) heldAt(t *testing.T, point string, request api.StartMove) (id string) {
	t.Helper()
	s.order(t, point, 1)
	id = s.start(t, request)
	s.reached(t, point)
	return id
}

// order has the leader hold at a point, when it comes there for the so-manieth time.
func (s *stage) order(t *testing.T, point string, hit int) {
	t.Helper()
	leader, err := s.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := orders.Give(s.Orders, point, orders.Order{Act: orders.Hold, Hit: hit, Process: leader.PID()}); err != nil {
		t.Fatal(err)
	}
}

func (s *stage) release(t *testing.T, point string) {
	t.Helper()
	if err := orders.Release(s.Orders, point); err != nil {
		t.Fatal(err)
	}
}

// agrees looks at what the writers have seen so far, and for what moves have left.
func (s *stage) agrees(t *testing.T) {
	t.Helper()
	if problems := s.load.Problems(); len(problems) > 0 {
		t.Fatal(strings.Join(problems, "\n"))
	}
	s.clean(t)
}

// TestEtcdIsAway before a switch, in its pause, and when the owner is about to change: statements wait up to their limit, the move goes on when it is back, and whoever has not heard an answer finds out: line M32.
func TestEtcdIsAway(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2, EtcdApart: true}, 4)
	s.load.Faulty = true
	s.load.Start(t.Context())
	defer s.load.Stop()
	stops, dies := (*faults.Etcd).Stop, (*faults.Etcd).Kill
	shards := [2]string{"s1", "s2"}
	for _, c := range []struct {
		name, point string
		goes        func(*faults.Etcd)
		// limit is how long statements may be held. A longer one lets the leader ask for n4 all the while.
		limit time.Duration
		away  time.Duration
		// always: also where there is not much time.
		always bool
	}{
		{"before n2, dead", "move.switching", dies, 0, time.Second, false},
		{"before n2, stopped", "move.switching", stops, 0, 4 * time.Second, false},
		{"in the pause, dead", "move.switch.close", dies, 0, time.Second, true},
		{"in the pause, stopped", "move.switch.close", stops, 0, 4 * time.Second, false},
		{"before n4, stopped", "move.switch.pass", stops, 20 * time.Second, 1500 * time.Millisecond, false},
		{"before n4, dead", "move.switch.pass", dies, 20 * time.Second, time.Second, false},
		{"before n4, stopped for longer than anybody asks", "move.switch.pass", stops, 20 * time.Second, 8 * time.Second, false},
		{"after n4, dead", "move.switch.open", dies, 0, time.Second, false},
	} {
		if !c.always && !thorough.Asked() {
			continue
		}
		ok := t.Run(c.name, func(t *testing.T) {
			waits := s.client(t)
			execute(t, waits, "SET lock_timeout = '1s'")
			key := s.keyOn(t, waits, shards[0])
			id := s.heldAt(t, c.point, api.StartMove{From: shards[0], To: shards[1], PauseLimitMS: c.limit.Milliseconds()})
			c.goes(s.Etcd)
			if c.point == "move.switch.close" {
				var refused *pgconn.PgError
				if _, err := waits.Exec(t.Context(), "SELECT n FROM fixed WHERE id = $1", key); !errors.As(err, &refused) || refused.Code != "55P03" {
					t.Errorf("a statement whose rows are held: %v", err)
				}
			}
			s.release(t, c.point)
			time.Sleep(c.away)
			if err := s.Etcd.Await(t.Context()); err != nil {
				t.Fatal(err)
			}
			m := s.await(t, id, "done")
			t.Logf("switches: %+v", m.Switches)
			s.agrees(t)
			shards[0], shards[1] = shards[1], shards[0]
		})
		if !ok {
			break
		}
	}
	s.finish(t)
}

// TestEverythingDies at once, routers, etcd and all servers, while a move is at some step, and comes back: line M36.
func TestEverythingDies(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2, EtcdApart: true}, 4)
	s.load.Faulty = true
	s.load.Start(t.Context())
	defer s.load.Stop()
	shards := [2]string{"s1", "s2"}
	for _, c := range []struct {
		point  string
		hit    int
		always bool // also where there is not much time
	}{
		{"move.copy.rows", 4, false}, {"move.catching-up", 1, false}, {"move.switch.hold", 1, false}, {"move.switch.close", 1, true}, {"move.switch.pass", 1, false}, {"move.switch.open", 1, false}, {"move.cleaning.rows", 2, false},
	} {
		if !c.always && !thorough.Asked() {
			continue
		}
		ok := t.Run(c.point, func(t *testing.T) {
			s.order(t, c.point, c.hit)
			id := s.start(t, api.StartMove{From: shards[0], To: shards[1]})
			s.reached(t, c.point)
			if err := s.killAll(); err != nil {
				t.Fatal(err)
			}
			if err := s.Heal(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.await(t, id, "done")
			s.agrees(t)
			shards[0], shards[1] = shards[1], shards[0]
		})
		if !ok {
			break
		}
	}
	s.finish(t)
}

// killAll ends every process but the test's, nobody first.
func (s *stage) killAll() error {
	var dying sync.WaitGroup
	errs := make([]error, len(s.Shards))
	for i, one := range s.Shards {
		dying.Go(func() { errs[i] = one.Crash(false) })
	}
	for _, r := range s.Routers {
		dying.Go(r.Kill)
	}
	dying.Go(s.Etcd.Kill)
	dying.Wait()
	return errors.Join(errs...)
}
