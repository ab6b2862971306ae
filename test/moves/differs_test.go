package moves_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/failpoint/orders"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/faults"
)

const (
	// stillRows is how many rows table still has, which nobody writes while rows move: what is wrong with one of them on the copy stays wrong.
	stillRows = 200
	// stillIs is what a router has to find in it, and stillSum what that is: how many rows there are, and what their columns come to.
	stillIs  = "SELECT count(*)::text || ' ' || sum(id) || ' ' || sum(n) FROM still"
	stillSum = stillRows * (stillRows + 1) / 2
)

// TestAMoveWhoseSidesDifferNeverSwitches: the copy has another value, has lost a row or has one too many when both sides are compared. The move stops, whoever dies then, and names the row, also if it is asked to switch, and the source owns everything still. Resumed it copies anew, and cancelled it leaves nothing.
func TestAMoveWhoseSidesDifferNeverSwitches(t *testing.T) {
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 2)
	s.load.Faulty = true
	conn := s.client(t)
	execute(t, conn, "CREATE TABLE still (id bigint PRIMARY KEY, n bigint, filler text)")
	execute(t, conn, "SELECT cleave.shard_table('still', 'id')")
	execute(t, conn, "INSERT INTO still SELECT i, 7 * i, repeat('s', 200) FROM generate_series(1, $1::integer) AS i", stillRows)
	s.load.Start(t.Context())
	defer s.load.Stop()
	const (
		changes = "UPDATE still SET n = n + 1 WHERE id = $1"
		loses   = "DELETE FROM still WHERE id = $1"
		gains   = "INSERT INTO still (id, n) VALUES ($1, 1)"
	)
	shards := [2]int{1, 2}
	for _, c := range []struct {
		name, damage string
		// above is a number above which the first key of the source's is damaged.
		above      int64
		wish, ends string
		always     bool // also where there is not much time
		dies       bool // the leader, as soon as it is known
	}{
		{"a value differs, and it is resumed", changes, 0, "resume", "done", true, false},
		{"a value differs, and it is cancelled", changes, 0, "cancel", "cancelled", false, false},
		{"a row is missing, the leader dies, and it is cancelled", loses, 0, "cancel", "cancelled", true, true},
		{"a row is missing, and it is resumed", loses, 0, "resume", "done", false, false},
		{"a row too many, and it is resumed", gains, stillRows, "resume", "done", true, false},
		{"a row too many, and it is cancelled", gains, stillRows, "cancel", "cancelled", false, false},
	} {
		if !c.always && !thorough.Asked() {
			continue
		}
		ok := t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			source, target := s.Shards[shards[0]-1], s.Shards[shards[1]-1]
			key := s.next(t, c.above, source.Name)
			ids := ask[[]int64](t, source, "SELECT array_agg(id ORDER BY id) FROM still")
			request := api.StartMove{From: source.Name, To: target.Name}
			request.Throttle = of(false) // beside other tests it would give way to those
			id := s.heldAt(t, "move.verifying", request)
			if tag, err := s.onShard(t, shards[1]).Exec(t.Context(), c.damage, key); err != nil || tag.RowsAffected() != 1 {
				t.Fatalf("damaging row %d of the copy said %s, %v", key, tag, err)
			}
			leader, err := s.Leader(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if c.dies {
				if err := orders.Give(s.Orders, "move.copying", orders.Order{Act: orders.Kill, Process: leader.PID()}); err != nil {
					t.Fatal(err)
				}
			}
			s.release(t, "move.verifying")
			if c.dies {
				if err := errors.Join(leader.WaitKilled(t.Context()), leader.Start()); err != nil {
					t.Fatal(err)
				}
			}
			m := s.until(t, id, "it has stopped", func(m api.Move) bool { return m.Stopped != "" || m.Phase == "done" })
			want := fmt.Sprintf("table public.still differs between shards %q and %q in 1 of its rows, such as the one with key (%d)", source.Name, target.Name, key)
			if !strings.Contains(m.Stopped, want) || !strings.Contains(m.Error, want) {
				t.Errorf("it is %s, stopped %q, error %q, and has to say that %s", m.Phase, m.Stopped, m.Error, want)
			}
			s.wish(t, id, "switch") // and does not for that
			time.Sleep(time.Second)
			if m := s.await(t, id, "copying"); m.Stopped == "" || len(m.Switches) > 0 {
				t.Errorf("it goes on: %+v", m)
			}
			s.isStill(t, ids, source)
			s.wish(t, id, c.wish)
			if m = s.await(t, id, c.ends); c.ends == "cancelled" && len(m.Switches) > 0 {
				t.Errorf("it has tried to switch: %+v", m.Switches)
			}
			owner, other := source, target
			if c.ends == "done" {
				owner, other = target, source
				shards[0], shards[1] = shards[1], shards[0]
			}
			s.isStill(t, ids, owner)
			if left := ask[int](t, other, "SELECT count(*) FROM still WHERE id = ANY ($1)", append(ids, key)); left != 0 {
				t.Errorf("shard %s has %d rows of it that are not its own", other.Name, left)
			}
			s.agrees(t)
		})
		if !ok {
			break // the next ones would only repeat it
		}
	}
	s.finish(t)
}

// isStill sees that a shard owns rows of table still and has all of them, and that a router finds in the table what was put into it.
func (s *stage) isStill(t *testing.T, ids []int64, owner *faults.Shard) {
	t.Helper()
	conn := s.client(t) // whoever led may be another process by now
	for _, id := range ids {
		var name string
		if err := conn.QueryRow(t.Context(), "SELECT cleave.shard_of('still', "+itoa(id)+")").Scan(&name); err != nil || name != owner.Name {
			t.Fatalf("row %d is owned by %s, not %s: %v", id, name, owner.Name, err)
		}
	}
	if has := ask[[]int64](t, owner, "SELECT array_agg(id ORDER BY id) FROM still WHERE id = ANY ($1) AND n = 7 * id", ids); !slices.Equal(has, ids) {
		t.Errorf("shard %s has rows %v, and owns %v", owner.Name, has, ids)
	}
	var found string
	if want := fmt.Sprint(stillRows, " ", stillSum, " ", 7*stillSum); conn.QueryRow(t.Context(), stillIs).Scan(&found) != nil || found != want {
		t.Errorf("the rows come to %q, not %q", found, want)
	}
}
