package moves_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/failpoint/orders"
	"github.com/cleavedb/cleave/test/faults"
)

// TestServersDie: the source's or the target's server is killed while the leader is at some step, and comes back; the move goes on, or begins anew, and nobody loses a row: lines M27 and M28.
func TestServersDie(t *testing.T) {
	s := newStage(t, faults.Config{Routers: 2}, 4)
	s.load.Faulty = true
	s.load.Start(t.Context())
	defer s.load.Stop()
	shards := [2]int{1, 2}
	for _, c := range []struct {
		point  string
		dies   int  // 0: the source, 1: the target
		always bool // also where there is not much time
	}{
		{"move.copying", 0, false}, {"move.copying", 1, true}, {"move.catching-up", 0, true}, {"move.catching-up", 1, false}, {"move.verifying", 0, false}, {"move.verifying", 1, false}, {"move.switch.hold", 0, false}, {"move.switch.fence", 1, false},
		{"move.switch.close", 0, true}, {"move.switch.close", 1, false}, {"move.switch.open", 1, true}, {"move.cleaning", 0, false},
	} {
		if !c.always && !everything() {
			continue
		}
		name := c.point + [2]string{" source", " target"}[c.dies]
		ok := t.Run(name, func(t *testing.T) {
			leader, err := s.Leader(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := orders.Give(s.Orders, c.point, orders.Order{Act: orders.Hold, Process: leader.PID()}); err != nil {
				t.Fatal(err)
			}
			id := s.start(t, api.StartMove{From: s.Shards[shards[0]].Name, To: s.Shards[shards[1]].Name})
			s.reached(t, c.point)
			if err := s.Shards[shards[c.dies]].Crash(false); err != nil {
				t.Fatal(err)
			}
			time.Sleep(300 * time.Millisecond)
			if err := orders.Release(s.Orders, c.point); err != nil {
				t.Fatal(err)
			}
			time.Sleep(700 * time.Millisecond)
			if err := s.Shards[shards[c.dies]].Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.await(t, id, 2*time.Minute, "done")
			if problems := s.load.Problems(); len(problems) > 0 {
				t.Fatal(strings.Join(problems, "\n"))
			}
			s.clean(t)
			shards[0], shards[1] = shards[1], shards[0]
		})
		if !ok {
			break
		}
	}
	s.finish(t)
}

// reached waits until somebody has come to a point.
func (s *stage) reached(t *testing.T, point string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if pid, err := orders.Obeyed(s.Orders, point); err == nil && pid != 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("nobody has come to %s", point)
		}
	}
}

// TestAStoppedRouterSeesNothingOld: a router that does nothing while the owner changes, and wakes up later, neither reads nor writes where the rows were: line M30.
func TestAStoppedRouterSeesNothingOld(t *testing.T) {
	s := newStage(t, faults.Config{Routers: 3}, 0)
	ctx := t.Context()
	leader, err := s.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	asleep, awake := s.Other(leader), leader
	dial := func(r *faults.Router) *pgx.Conn {
		conn, err := pgx.Connect(ctx, "postgres://postgres@"+r.Listen+"/postgres?sslmode=disable")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	reader, writer, deleter, other := dial(asleep), dial(asleep), dial(asleep), dial(awake)
	keys := map[string]int64{}
	for id := int64(1); len(keys) < len(s.Shards); id++ {
		var shard string
		if err := other.QueryRow(ctx, "SELECT cleave.shard_of('fixed', "+itoa(id)+")").Scan(&shard); err != nil {
			t.Fatal(err)
		}
		if keys[shard] == 0 {
			keys[shard] = id
		}
	}
	key := keys["s2"]
	for _, conn := range []*pgx.Conn{reader, writer, deleter} { // it has backends there
		if _, err := conn.Exec(ctx, "UPDATE fixed SET n = 1 WHERE id = $1", key); err != nil {
			t.Fatal(err)
		}
	}
	asleep.Stop()
	defer asleep.Continue()
	type result struct {
		n   int64
		tag string
		err error
	}
	results := [3]chan result{make(chan result, 1), make(chan result, 1), make(chan result, 1)}
	go func() {
		var r result
		r.err = reader.QueryRow(ctx, "SELECT n FROM fixed WHERE id = $1", key).Scan(&r.n)
		results[0] <- r
	}()
	go func() {
		tag, err := writer.Exec(ctx, "UPDATE fixed SET n = n + 100 WHERE id = $1", key)
		results[1] <- result{tag: tag.String(), err: err}
	}()
	go func() {
		tag, err := deleter.Exec(ctx, "DELETE FROM fixed WHERE id = $1 AND n = 1", key)
		results[2] <- result{tag: tag.String(), err: err}
	}()
	id := s.start(t, api.StartMove{From: "s2", To: "s3"})
	m := s.await(t, id, time.Minute, "done")
	if _, err := other.Exec(ctx, "UPDATE fixed SET n = 2 WHERE id = $1", key); err != nil {
		t.Fatal(err)
	}
	asleep.Continue()
	explained := func(err error) bool {
		var refused *pgconn.PgError
		return err != nil && (!errors.As(err, &refused) || strings.HasPrefix(refused.Code, "08") || strings.HasPrefix(refused.Code, "57") || refused.Code == "CL003" || refused.Code == "40001")
	}
	if r := <-results[0]; !explained(r.err) && (r.err != nil || r.n != 2 && r.n != 102) {
		t.Errorf("the router read %d, %v", r.n, r.err)
	}
	written := <-results[1]
	if !explained(written.err) && (written.err != nil || written.tag != "UPDATE 1") {
		t.Errorf("the router wrote: %s, %v", written.tag, written.err)
	}
	if r := <-results[2]; !explained(r.err) && (r.err != nil || r.tag != "DELETE 0") {
		t.Errorf("the router deleted: %s, %v", r.tag, r.err)
	}
	want := int64(2)
	if written.err == nil {
		want = 102
	}
	var n int64
	if err := other.QueryRow(ctx, "SELECT n FROM fixed WHERE id = $1", key).Scan(&n); err != nil || n != want {
		t.Errorf("the row has %d, not %d: %v", n, want, err)
	}
	s.clean(t)
	t.Logf("switches: %+v; the writer heard %v", m.Switches, written.err)
}

// TestASleepingLeaderWakesUp long after others have carried its move out, and another one back: it had a connection to the shard that owns the rows again by then, and was about to write or delete there: line M33.
func TestASleepingLeaderWakesUp(t *testing.T) {
	s := newStage(t, faults.Config{Routers: 3}, 4)
	s.load.Faulty = true
	s.load.Start(t.Context())
	defer s.load.Stop()
	for _, c := range []struct {
		point  string
		always bool // also where there is not much time
	}{
		{"move.clean.rows", true}, {"move.copy.rows", true}, {"move.switch.close", false}, {"move.switch.pass", true},
	} {
		if !c.always && !everything() {
			continue
		}
		ok := t.Run(c.point, func(t *testing.T) {
			leader, err := s.Leader(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := orders.Give(s.Orders, c.point, orders.Order{Act: orders.Stop, Process: leader.PID()}); err != nil {
				t.Fatal(err)
			}
			defer leader.Continue()
			there := s.start(t, api.StartMove{From: "s1", To: "s2"})
			s.reached(t, c.point)
			s.await(t, there, time.Minute, "done")
			back := s.start(t, api.StartMove{From: "s2", To: "s1"})
			s.await(t, back, time.Minute, "done")
			leader.Continue()
			time.Sleep(2 * time.Second) // it does what it can
			if problems := s.load.Problems(); len(problems) > 0 {
				t.Fatal(strings.Join(problems, "\n"))
			}
			s.clean(t)
		})
		if !ok {
			break
		}
	}
	s.finish(t)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
