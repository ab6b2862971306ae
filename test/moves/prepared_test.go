package moves_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/failpoint/orders"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/faults"
)

// TestARouterDiesWithTransactionsPrepared, with rows of the move among them, before or after they were decided: the switch waits until that is resolved, before anybody else has to wait, and all of them are there or none: line M31.
func TestARouterDiesWithTransactionsPrepared(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 2)
	s.load.Faulty = true
	s.load.Start(t.Context())
	defer s.load.Stop()
	shards, id := [2]string{"s2", "s3"}, int64(7_000_000)
	for _, c := range []struct {
		point  string
		rows   int  // that are there in the end
		always bool // also where there is not much time
	}{
		{"commit.prepared", 0, true}, {"commit.decided", 2, false},
	} {
		if !c.always && !thorough.Asked() {
			continue
		}
		ok := t.Run(c.point, func(t *testing.T) {
			leader, err := s.Leader(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			dies := s.Other(leader)
			move := s.start(t, api.StartMove{From: shards[0], To: shards[1], Manual: true})
			s.await(t, move, "ready")
			conn := s.dial(t, dies)
			execute(t, conn, "BEGIN")
			for _, shard := range []string{"s1", shards[0]} { // the first one decides
				id = s.next(t, id, shard)
				execute(t, conn, "INSERT INTO accounts VALUES ($1, 1, $2)", id, c.point)
			}
			const listed = "recover.listed" // the leader resolves nothing
			if err := orders.Give(s.Orders, listed, orders.Order{Act: orders.Hold}); err != nil {
				t.Fatal(err)
			}
			s.reached(t, listed)
			if err := orders.Give(s.Orders, c.point, orders.Order{Act: orders.Kill, Process: dies.PID()}); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Exec(t.Context(), "COMMIT"); err == nil {
				t.Error("the router has answered")
			}
			killed, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := dies.WaitKilled(killed); err != nil {
				t.Fatal(err)
			}
			if err := dies.Start(); err != nil {
				t.Fatal(err)
			}
			s.wish(t, move, "switch")
			s.await(t, move, "switching", "done") // if another process leads by now, which resolves it
			time.Sleep(time.Second)
			s.release(t, listed)
			s.heldForNone(t, s.await(t, move, "done"))
			var rows int
			if err := s.dial(t, leader).QueryRow(t.Context(), "SELECT count(*) FROM accounts WHERE note = $1", c.point).Scan(&rows); err != nil || rows != c.rows {
				t.Errorf("%d rows are there, %v", rows, err)
			}
			s.agrees(t)
			shards[0], shards[1] = shards[1], shards[0]
		})
		if !ok {
			break
		}
	}
	number := func(name string) int {
		return 1 + slices.IndexFunc(s.Shards, func(one *faults.Shard) bool { return one.Name == name })
	}
	t.Run("past the routers", func(t *testing.T) {
		thorough.Only(t)
		move := s.start(t, api.StartMove{From: shards[0], To: shards[1], Manual: true})
		s.await(t, move, "ready")
		source := s.onShard(t, number(shards[0]))
		execute(t, source, "BEGIN")
		execute(t, source, "UPDATE fixed SET filler = filler")
		execute(t, source, "PREPARE TRANSACTION 'somebody''s'")
		s.wish(t, move, "switch")
		s.says(t, move, "transaction somebody's, which is prepared, has used the tables", func(m api.Move) string { return m.Waiting })
		time.Sleep(1500 * time.Millisecond) // more than one attempt
		s.heldForNone(t, s.await(t, move, "switching"))
		execute(t, source, "ROLLBACK PREPARED 'somebody''s'")
		s.await(t, move, "done")
		shards[0], shards[1] = shards[1], shards[0]
	})
	t.Run("past the routers, when statements are held", func(t *testing.T) {
		const point = "move.switch.hold"
		conn := s.client(t)
		key := s.keyOn(t, conn, shards[0])
		move := s.heldAt(t, point, api.StartMove{From: shards[0], To: shards[1], PauseLimitMS: 20_000})
		source := s.onShard(t, number(shards[0]))
		execute(t, source, "BEGIN")
		execute(t, source, "UPDATE fixed SET filler = 'late' WHERE id = $1", key)
		execute(t, source, "PREPARE TRANSACTION 'somebody''s'")
		s.release(t, point)
		time.Sleep(500 * time.Millisecond)
		if m, err := s.Routers[0].API().Move(t.Context(), move); err != nil || m.Phase != "switching" {
			t.Errorf("the switch did not wait: the move is %s, %v", m.Phase, err)
		}
		execute(t, source, "COMMIT PREPARED 'somebody''s'")
		s.heldForNone(t, s.await(t, move, "done"))
		var filler string
		if err := conn.QueryRow(t.Context(), "SELECT filler FROM fixed WHERE id = $1", key).Scan(&filler); err != nil || filler != "late" {
			t.Errorf("what was prepared has come to be %q on the new owner, %v", filler, err)
		}
	})
	s.finish(t)
}

// heldForNone sees that no statement was held while a transaction was prepared.
func (s *stage) heldForNone(t *testing.T, m api.Move) {
	t.Helper()
	for _, a := range m.Switches {
		if strings.Contains(a.Failed, "prepared") {
			t.Errorf("statements were held for it: %s", a.Failed)
		}
	}
}

// next is an account above a number that a shard owns.
func (s *stage) next(t *testing.T, above int64, shard string) int64 {
	t.Helper()
	conn := s.client(t)
	for id := above + 1; ; id++ {
		var owner string
		if err := conn.QueryRow(t.Context(), "SELECT cleave.shard_of('accounts', "+itoa(id)+")").Scan(&owner); err != nil {
			t.Fatal(err)
		}
		if owner == shard {
			return id
		}
	}
}
