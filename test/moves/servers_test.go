package moves_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/failpoint/orders"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/test/faults"
)

// TestServersDie: the source's or the target's server is killed while the leader is at some step, and comes back; the move goes on, or begins anew, and nobody loses a row: lines M27 and M28.
func TestServersDie(t *testing.T) {
	t.Parallel()
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
		{"move.copying", 0, false}, {"move.copying", 1, false}, {"move.catching-up", 0, false}, {"move.catching-up", 1, false}, {"move.verifying", 0, false}, {"move.verifying", 1, false}, {"move.switch.hold", 0, false}, {"move.switch.closed", 1, false},
		{"move.switch.close", 0, true}, {"move.switch.close", 1, false}, {"move.switch.open", 1, true}, {"move.cleaning", 0, false},
	} {
		if !c.always && !thorough.Asked() {
			continue
		}
		name := c.point + [2]string{" source", " target"}[c.dies]
		ok := t.Run(name, func(t *testing.T) {
			id := s.crashAt(t, c.point, shards[c.dies], api.StartMove{From: s.Shards[shards[0]].Name, To: s.Shards[shards[1]].Name})
			s.await(t, id, "done")
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

// crashAt starts a move, and kills a shard's server while the leader is at a point; it comes back a second later.
func (s *stage) crashAt(t *testing.T, point string, shard int, request api.StartMove) (id string) {
	t.Helper()
	if !thorough.Asked() {
		request.Throttle = of(false) // beside other tests moves would give way to those
	}
	id = s.heldAt(t, point, request)
	if err := s.Shards[shard].Crash(false); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	s.release(t, point)
	time.Sleep(700 * time.Millisecond)
	if err := s.Shards[shard].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	return id
}

// TestServersDieWithWholeTables, as they do with rows: line W11.
func TestServersDieWithWholeTables(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 0)
	l := faultyLedger(t, s, 3, "")
	defer l.stop()
	shards := [2]int{0, 1}
	for _, c := range []struct {
		point  string
		dies   int  // 0: the source, 1: the target
		always bool // also where there is not much time
	}{
		{"move.copy.rows", 0, false}, {"move.copy.rows", 1, false}, {"move.catching-up", 0, false}, {"move.catching-up", 1, false}, {"move.switch.hold", 0, false}, {"move.switch.close", 0, true}, {"move.switch.close", 1, false},
		{"move.switch.pass", 1, true}, {"move.switch.open", 1, false}, {"move.cleaning", 0, false},
	} {
		if !c.always && !thorough.Asked() {
			continue
		}
		ok := t.Run(c.point+[2]string{" source", " target"}[c.dies], func(t *testing.T) {
			id := s.crashAt(t, c.point, shards[c.dies], api.StartMove{To: s.Shards[shards[1]].Name, Tables: ledgerTables})
			s.await(t, id, "done")
			l.isOn(t, s.Shards[shards[1]].Name)
			s.clean(t)
			shards[0], shards[1] = shards[1], shards[0]
		})
		if !ok {
			break
		}
	}
	l.stop()
	l.check(t, s.Shards[shards[0]].Name)
}

// TestTheLeaderAndTheSourceDie when the source gives no numbers any more, and the source is away for longer than the tables of dead routers are held: the switch is taken back before anybody goes on, so no number is lost and nobody is refused for good.
func TestTheLeaderAndTheSourceDie(t *testing.T) {
	thorough.Only(t) // package control has a part of it
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 0)
	l := faultyLedger(t, s, 3, "")
	defer l.stop()
	const point = "move.switch.numbers"
	leader, err := s.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := orders.Give(s.Orders, point, orders.Order{Act: orders.Kill, Process: leader.PID()}); err != nil {
		t.Fatal(err)
	}
	id := s.start(t, api.StartMove{To: "s2", Tables: ledgerTables})
	killed, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := leader.WaitKilled(killed); err != nil {
		t.Fatal(err)
	}
	if err := s.Shards[0].Crash(false); err != nil {
		t.Fatal(err)
	}
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(12 * time.Second)
	if err := s.Shards[0].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.await(t, id, "done")
	before := l.done.Load()
	time.Sleep(2 * time.Second)
	if l.done.Load() == before {
		t.Error("nobody writes any more")
	}
	l.stop()
	l.check(t, "s2")
	s.clean(t)
}

// reached waits until somebody has come to a point.
func (s *stage) reached(t *testing.T, point string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if pid, err := orders.Obeyed(s.Orders, point); err == nil && pid != 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("nobody has come to %s", point)
		}
	}
}

// TestAStoppedRouterSeesNothingOld: a router that does nothing while the owner changes, and wakes up later, neither reads nor writes where the rows, or a whole table, were: line M30.
func TestAStoppedRouterSeesNothingOld(t *testing.T) {
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 3}, 0)
	conn := s.client(t)
	execute(t, conn, "CREATE TABLE alone (id bigint PRIMARY KEY, n bigint)")
	execute(t, conn, "INSERT INTO alone VALUES (1, 0)")
	t.Run("rows", func(t *testing.T) {
		s.sleepsThrough(t, "fixed", s.keyOn(t, conn, "s2"), api.StartMove{From: "s2", To: "s3"})
	})
	t.Run("a table", func(t *testing.T) {
		thorough.Only(t)
		s.sleepsThrough(t, "alone", 1, api.StartMove{To: "s3", Tables: []string{"alone"}})
	})
}

// sleepsThrough stops a router that has statements under way on a row, moves the row, and lets the router go on.
func (s *stage) sleepsThrough(t *testing.T, table string, key int64, request api.StartMove) {
	t.Helper()
	ctx := t.Context()
	leader, err := s.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	asleep := s.Other(leader)
	reader, writer, deleter, other := s.dial(t, asleep), s.dial(t, asleep), s.dial(t, asleep), s.dial(t, leader)
	for _, conn := range []*pgx.Conn{reader, writer, deleter} { // it has backends there
		if _, err := conn.Exec(ctx, "UPDATE "+table+" SET n = 1 WHERE id = $1", key); err != nil {
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
		r.err = reader.QueryRow(ctx, "SELECT n FROM "+table+" WHERE id = $1", key).Scan(&r.n)
		results[0] <- r
	}()
	go func() {
		tag, err := writer.Exec(ctx, "UPDATE "+table+" SET n = n + 100 WHERE id = $1", key)
		results[1] <- result{tag: tag.String(), err: err}
	}()
	go func() {
		tag, err := deleter.Exec(ctx, "DELETE FROM "+table+" WHERE id = $1 AND n = 1", key)
		results[2] <- result{tag: tag.String(), err: err}
	}()
	id := s.start(t, request)
	m := s.await(t, id, "done")
	if _, err := other.Exec(ctx, "UPDATE "+table+" SET n = 2 WHERE id = $1", key); err != nil {
		t.Fatal(err)
	}
	asleep.Continue()
	explained := func(err error) bool {
		var refused *pgconn.PgError
		return err != nil && (!errors.As(err, &refused) || strings.HasPrefix(refused.Code, "08") || strings.HasPrefix(refused.Code, "57") || refused.Code == "53300" || refused.Code == "CL003" || refused.Code == "40001")
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
	if err := other.QueryRow(ctx, "SELECT n FROM "+table+" WHERE id = $1", key).Scan(&n); err != nil || n != want {
		t.Errorf("the row has %d, not %d: %v", n, want, err)
	}
	s.clean(t)
	t.Logf("switches: %+v; the writer heard %v", m.Switches, written.err)
}

// TestAnHeirHearsLater that it does not get the rows: it had recorded that it does, the switch was taken back, and nobody could tell it. Until somebody has, statements that are not bound to keys wait, rather than see its copy, and all others go on.
func TestAnHeirHearsLater(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 4)
	s.load.Start(t.Context())
	defer s.load.Stop()
	conn := s.client(t)
	key := s.keyOn(t, conn, "s1")
	const point = "move.switch.writers" // by then both shards have recorded it
	if err := orders.Give(s.Orders, point, orders.Order{Act: orders.Hold}); err != nil {
		t.Fatal(err)
	}
	id := s.start(t, api.StartMove{From: "s1", To: "s2"})
	s.reached(t, point)
	heir, err := s.Shards[1].Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = heir.Close(context.WithoutCancel(t.Context())) }()
	execute(t, heir, "BEGIN")
	execute(t, heir, "SELECT FROM cleave.identity FOR UPDATE") // it records nothing
	time.Sleep(1500 * time.Millisecond)                        // longer than statements may be held
	if err := orders.Release(s.Orders, point); err != nil {
		t.Fatal(err)
	}
	s.awaitClosing(t)
	for range 20 {
		execute(t, conn, "UPDATE fixed SET filler = filler WHERE id = $1", key)
		time.Sleep(50 * time.Millisecond)
	}
	execute(t, heir, "COMMIT")
	s.await(t, id, "done")
	s.finish(t)
}

// awaitClosing waits until the map says that a shard may not have heard that it does not get what it has a copy of.
func (s *stage) awaitClosing(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		m, err := s.Routers[0].API().Map(t.Context())
		if err == nil && slices.ContainsFunc(m.Keyspaces(), func(k *topology.Keyspace) bool { return k.Closes() }) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no switch was taken back of which a shard has not heard")
		}
	}
}

// TestASleepingLeaderWakesUp long after others have carried its move out, and another one back: it had a connection to the shard that owns the rows again by then, and was about to write or delete there: line M33.
func TestASleepingLeaderWakesUp(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 3}, 4)
	s.load.Faulty = true
	s.load.Start(t.Context())
	defer s.load.Stop()
	for _, c := range []struct {
		point  string
		always bool // also where there is not much time
	}{
		{"move.cleaning.rows", false}, {"move.copy.rows", false}, {"move.switch.close", false}, {"move.switch.pass", true},
	} {
		if !c.always && !thorough.Asked() {
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
			limits := api.MoveLimits{Throttle: of(thorough.Asked())}
			there := s.start(t, api.StartMove{From: "s1", To: "s2", MoveLimits: limits})
			s.reached(t, c.point)
			s.await(t, there, "done")
			back := s.start(t, api.StartMove{From: "s2", To: "s1", MoveLimits: limits})
			s.await(t, back, "done")
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
