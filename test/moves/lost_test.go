package moves_test

import (
	"context"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/failpoint/orders"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/faults"
)

// TestEtcdIsLost with all that it had, and its leader with it, while rows or whole tables move: the map is made anew from the shards, which know how far the switch was, and the move ends, one way or the other: line M35.
func TestEtcdIsLost(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2, EtcdApart: true}, 3)
	s.load.Faulty = true
	s.load.Start(t.Context())
	defer s.load.Stop()
	s.losesEtcd(t, faultyLedger(t, s, 2, ""), []lostCase{
		{"rows, copying", "move.copy.rows", false, "cancelled", false},
		{"rows, held", "move.switch.hold", false, "cancelled", false},
		{"rows, closed", "move.switch.close", false, "cancelled", false},
		{"rows, all there", "move.switch.pass", false, "done", false},
		{"rows, given", "move.switch.open", false, "done", false},
		{"rows, cleaning", "move.cleaning", false, "done", false},
		{"tables, copying", "move.copy.rows", true, "cancelled", false},
		{"tables, closed", "move.switch.close", true, "cancelled", false},
		{"tables, numbers", "move.switch.numbers", true, "cancelled", false},
		{"tables, all there", "move.switch.pass", true, "done", true},
		{"tables, given", "move.switch.open", true, "done", false},
	})
}

// TestEtcdIsLostWithASchema, of which the map says where it is, and where its tables are.
func TestEtcdIsLostWithASchema(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2, EtcdApart: true}, 0)
	s.load.Faulty = true
	s.load.Start(t.Context())
	defer s.load.Stop()
	s.losesEtcd(t, faultyLedger(t, s, 2, "acme"), []lostCase{
		{"listed", "move.preparing", true, "cancelled", false},
		{"copying", "move.copy.rows", true, "cancelled", false},
		{"closed", "move.switch.close", true, "cancelled", false},
		{"all there", "move.switch.pass", true, "done", true},
		{"given", "move.switch.open", true, "done", false},
		{"unlisted", "move.unlisted", true, "done", false},
	})
}

// lostCase is where the leader is killed before etcd loses all it has, and what becomes of the move.
type lostCase struct {
	name, point string
	whole       bool
	ends        string
	always      bool // also where there is not much time
}

// losesEtcd plays cases one after the other. A move that is known to nobody any more has come to its end.
func (s *stage) losesEtcd(t *testing.T, l *ledger, cases []lostCase) {
	t.Helper()
	l.rebuilt.Store(true)
	defer l.stop()
	rows, tables := [2]string{"s1", "s2"}, [2]string{"s1", "s2"}
	for _, c := range cases {
		if !c.always && !thorough.Asked() {
			continue
		}
		ok := t.Run(c.name, func(t *testing.T) {
			shards, request := &rows, api.StartMove{From: rows[0], To: rows[1]}
			if c.whole {
				shards, request = &tables, l.request(tables[1])
			}
			id := s.loseEtcd(t, c.point, request)
			if c.point != "move.unlisted" {
				s.await(t, id, c.ends)
			}
			if c.ends == "done" {
				shards[0], shards[1] = shards[1], shards[0]
			}
			s.agrees(t)
			l.isOn(t, tables[0])
		})
		if !ok {
			break
		}
	}
	l.stop()
	s.finish(t)
	l.check(t, tables[0])
}

// loseEtcd starts a move, kills the leader at a point, deletes what etcd has a moment later, and makes the map anew.
func (s *stage) loseEtcd(t *testing.T, point string, request api.StartMove) (id string) {
	t.Helper()
	before, err := s.Routers[0].API().Map(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	leader, err := s.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := orders.Give(s.Orders, point, orders.Order{Act: orders.Kill, Process: leader.PID()}); err != nil {
		t.Fatal(err)
	}
	id = s.start(t, request)
	killed, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := leader.WaitKilled(killed); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // the other router goes by what was published
	if err := s.Etcd.Lose(); err != nil {
		t.Fatal(err)
	}
	if err := s.Etcd.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, "the map is made anew", func() error {
		for _, r := range s.Routers {
			if r == leader {
				continue
			}
			rebuilt, err := r.API().RebuildMap(t.Context(), api.RebuildMap{Shards: before.Document().Shards, Apply: true, AllowOlder: true})
			if err != nil {
				return err
			}
			t.Logf("%+v", rebuilt.Findings)
		}
		return nil
	})
	if err := s.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	return id
}
