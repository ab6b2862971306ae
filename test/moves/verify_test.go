package moves_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/failpoint/orders"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/faults"
	"github.com/cleavedb/cleave/test/faults/proxy"
)

// patient is a client that waits as long as it takes.
func patient(r *faults.Router) *api.Client { return &api.Client{BaseURL: r.API().BaseURL} }

// verify asks one router after the other until one answers.
func (s *stage) verify(t *testing.T, request api.Verify) api.Verified {
	t.Helper()
	var found api.Verified
	var err error
	for range 50 {
		for _, r := range s.Routers {
			if found, err = patient(r).Verify(t.Context(), request, func(api.VerifyProgress) {}); err == nil {
				return found
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Fatal(err)
	return found
}

// TestVerifyWhileRowsMove: writers and a move are no reason for an alarm, in whichever phase it is; a copy that has lost a row is one.
func TestVerifyWhileRowsMove(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 4)
	s.load.Start(t.Context())
	defer s.load.Stop()
	quiet := func(when string, compares bool) {
		t.Helper()
		found := s.verify(t, api.Verify{})
		if found.Wrong() != 0 || found.StraysFound != 0 || compares != (len(found.Moves) > 0) {
			t.Fatalf("%s: %+v", when, found)
		}
	}
	quiet("before", false)
	id := s.start(t, api.StartMove{From: "s1", To: "s2", Manual: true, KeepSeconds: 600})
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() { // all the while
		defer close(ended)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			found, err := patient(s.Routers[1]).Verify(t.Context(), api.Verify{}, nil)
			if err != nil || found.StraysFound != 0 || found.Wrong() != 0 {
				t.Errorf("look %d: %+v, %v", n, found, err)
				return
			}
			time.Sleep(200 * time.Millisecond)
		}
	}()
	s.await(t, id, "ready")
	quiet("ready", true)
	s.wish(t, id, "switch")
	s.await(t, id, "switched")
	time.Sleep(time.Second) // until changes are carried back
	quiet("switched", true)
	if _, err := patient(s.Routers[0]).Verify(t.Context(), api.Verify{Repair: true}, nil); err == nil || !strings.Contains(err.Error(), "cannot be repaired now") {
		t.Errorf("a repair while rows move: %v", err)
	}
	s.wish(t, id, "finish")
	s.await(t, id, "done")
	close(stop)
	<-ended
	quiet("after", false)
	// A copy that somebody has damaged.
	id = s.start(t, api.StartMove{From: "s3", To: "s1", Manual: true})
	s.await(t, id, "ready")
	key := s.damage(t, 2, 0)
	found := s.verify(t, api.Verify{Tables: []string{"fixed"}})
	if len(found.Moves) != 1 || found.Moves[0].Differing != 1 || len(found.Moves[0].Keys) != 1 || found.Moves[0].Keys[0] != fmt.Sprintf("(%d)", key) {
		t.Errorf("a copy lacks row %d: %+v", key, found)
	}
	s.wish(t, id, "cancel")
	s.await(t, id, "cancelled")
	s.finish(t)
}

// damage deletes a row of a copy that the owner has, and returns its key.
func (s *stage) damage(t *testing.T, owner, copied int) (key int64) {
	t.Helper()
	for _, i := range []int{owner, copied} {
		err := s.EachShard(t.Context(), func(n int, conn *pgx.Conn) error {
			switch {
			case n != i:
				return nil
			case i == owner:
				return conn.QueryRow(t.Context(), "SELECT min(id) FROM fixed").Scan(&key)
			}
			if _, err := conn.Exec(t.Context(), "SET session_replication_role = replica"); err != nil {
				return err
			}
			tag, err := conn.Exec(t.Context(), "DELETE FROM fixed WHERE id = $1", key)
			if err == nil && tag.RowsAffected() != 1 {
				err = fmt.Errorf("row %d is not on the copy", key)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return key
}

// repairPoints are where a repair is killed, as in internal/verify/DESIGN.md.
var repairPoints = []struct{ line, point string }{{"V1", "verify.locked"}, {"V2", "verify.brought"}, {"V3", "verify.deleted"}}

// TestARepairDies at every step: no row is lost, and the next repair leaves each once, where it belongs.
func TestARepairDies(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 1)
	for i, c := range repairPoints {
		t.Run(c.line, func(t *testing.T) {
			first := int64(5_000_000 + 100*i)
			s.stray(t, first, 20)
			victim := s.Routers[0]
			if err := orders.Give(s.Orders, c.point, orders.Order{Act: orders.Kill, Process: victim.PID()}); err != nil {
				t.Fatal(err)
			}
			if _, err := patient(victim).Verify(t.Context(), api.Verify{Repair: true}, nil); err == nil {
				t.Error("the repair was done")
			}
			killed, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := victim.WaitKilled(killed); err != nil {
				t.Fatal(err)
			}
			if rows := s.count(t, "count(*)", first); rows < 20 {
				t.Fatalf("of 20 rows %d are left", rows)
			}
			if s.origins(t) == 0 { // and the next repair drops it: line V7
				t.Error("it has left no replication origin")
			}
			var found api.Verified
			for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
				if found, _ = patient(s.Routers[1]).Verify(t.Context(), api.Verify{Repair: true}, nil); len(found.Tables) > 0 && found.Wrong() == 0 {
					break
				}
			}
			if again := s.verify(t, api.Verify{}); found.Wrong() != 0 || again.Wrong() != 0 {
				t.Errorf("%+v, then %+v", found, again)
			}
			if rows := s.count(t, "count(*)", first); rows != 20 {
				t.Errorf("there are %d rows, not 20", rows)
			}
			if err := victim.Start(); err != nil {
				t.Fatal(err)
			}
		})
	}
	s.clean(t)
}

// stray makes rows on shards that do not own them, and nowhere else.
func (s *stage) stray(t *testing.T, first, rows int64) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), "postgres://postgres@"+s.Routers[1].Listen+"/postgres?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), fmt.Sprintf("INSERT INTO accounts SELECT i, i, 'a stray' FROM generate_series(%d, %d) AS i", first, first+rows-1)); err != nil {
		t.Fatal(err)
	}
	taken := map[int][]int64{}
	where := fmt.Sprintf("id >= %d AND id < %d", first, first+rows)
	err = s.EachShard(t.Context(), func(i int, conn *pgx.Conn) error {
		if _, err := conn.Exec(t.Context(), "SET session_replication_role = replica"); err != nil {
			return err
		}
		found, err := conn.Query(t.Context(), "DELETE FROM accounts WHERE "+where+" RETURNING id")
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(found, pgx.RowTo[int64])
		taken[(i+1)%len(s.Shards)] = ids
		return err
	})
	if err == nil {
		err = s.EachShard(t.Context(), func(i int, conn *pgx.Conn) error {
			_, err := conn.Exec(t.Context(), "SET session_replication_role = replica")
			if err == nil {
				_, err = conn.Exec(t.Context(), "INSERT INTO accounts SELECT i, i, 'a stray' FROM unnest($1::bigint[]) AS i", taken[i])
			}
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// count sums up over all shards, past the routers.
func (s *stage) count(t *testing.T, what string, first int64) (rows int64) {
	t.Helper()
	err := s.EachShard(t.Context(), func(_ int, conn *pgx.Conn) error {
		var some int64
		err := conn.QueryRow(t.Context(), fmt.Sprintf("SELECT %s FROM accounts WHERE id >= %d AND id < %d", what, first, first+20)).Scan(&some)
		rows += some
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// origins counts what repairs have left, on all shards.
func (s *stage) origins(t *testing.T) (left int) {
	t.Helper()
	for _, one := range s.Shards {
		left += ask[int](t, one, "SELECT count(*) FROM pg_replication_origin WHERE roname = 'cleave_verify'")
	}
	return left
}

// TestServersDieInARepair, or their answers are lost, or etcd is away: the repair says so, no row is lost, and the next one leaves each once, where it belongs: lines V4 to V6.
func TestServersDieInARepair(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2, EtcdApart: true}, 0)
	has, owner := s.Shards[0], s.Shards[1] // who has the strays, and whose they are
	conn := s.client(t)
	id := int64(6_000_000)
	for _, c := range []struct {
		line, point string
		happens     func(t *testing.T, release func())
		ends        func() error // takes back what is left of it
		// rows is how many there are, each of which is tried by itself in the end, and twice says that the owner has them too after it.
		rows   int
		twice  bool
		always bool // also where there is not much time
	}{
		{"V4", "verify.taken", func(t *testing.T, release func()) {
			crash(t, owner)
			release()
		}, func() error { return owner.Restart(t.Context()) }, 5, false, true},
		{"V4 lost answer", "verify.taken", func(t *testing.T, release func()) {
			owner.Proxy.Stall(proxy.ToClient)
			owner.Proxy.Refuse(true)
			release()
			s.eventually(t, "the owner has committed", func() error {
				if rows := ask[int](t, owner, "SELECT count(*) FROM accounts WHERE note = 'V4 lost answer'"); rows != 5 {
					return fmt.Errorf("%d rows", rows)
				}
				return nil
			})
			owner.Proxy.Cut()
		}, func() error {
			owner.Proxy.Resume()
			owner.Proxy.Refuse(false)
			return nil
		}, 5, true, true},
		{"V5", "verify.brought", func(t *testing.T, release func()) {
			crash(t, has)
			release()
		}, func() error { return has.Restart(t.Context()) }, 5, true, true},
		{"V6", "verify.asks", func(_ *testing.T, release func()) {
			s.Etcd.Stop()
			release()
		}, func() error { return s.Etcd.Await(t.Context()) }, 1, false, false},
	} {
		if !c.always && !thorough.Asked() {
			continue
		}
		t.Run(c.line, func(t *testing.T) {
			there := s.onShard(t, 1)
			for made := 0; made < c.rows; id++ {
				var shard string
				if err := conn.QueryRow(t.Context(), "SELECT cleave.shard_of('accounts', "+itoa(id)+")").Scan(&shard); err != nil {
					t.Fatal(err)
				}
				if shard == owner.Name {
					execute(t, there, "INSERT INTO accounts VALUES ($1, $1, $2)", id, c.line)
					made++
				}
			}
			if err := orders.Give(s.Orders, c.point, orders.Order{Act: orders.Hold}); err != nil {
				t.Fatal(err)
			}
			request := api.Verify{Tables: []string{"accounts"}, Shards: []string{has.Name}, Repair: true}
			var found api.Verified
			var err error
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				found, err = patient(s.Routers[0]).Verify(t.Context(), request, nil)
			}()
			s.reached(t, c.point)
			c.happens(t, func() { s.release(t, c.point) })
			<-ended
			if err == nil && found.Wrong() == 0 {
				t.Errorf("the repair says nothing: %+v", found)
			}
			if err := c.ends(); err != nil {
				t.Fatal(err)
			}
			if err := s.WaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			const count = "SELECT count(*) FROM accounts WHERE note = $1"
			strays, owned := ask[int](t, has, count, c.line), ask[int](t, owner, count, c.line)
			if want := map[bool]int{true: c.rows}[c.twice]; strays != c.rows || owned != want {
				t.Errorf("there are %d strays, and the owner has %d rows, not %d", strays, owned, want)
			}
			request.Repair = false
			found = s.verify(t, request)
			for _, one := range found.Strays {
				if want := map[bool]string{true: "equal", false: "absent"}[c.twice]; one.AtOwner != want {
					t.Errorf("%s, and it should be %s", one, want)
				}
			}
			if found.StraysFound != int64(c.rows) {
				t.Errorf("%d strays are found", found.StraysFound)
			}
			request.Repair = true
			if found = s.verify(t, request); found.Wrong() != 0 || found.StraysRepaired != int64(c.rows) {
				t.Errorf("the next repair: %+v", found)
			}
			if strays, owned := ask[int](t, has, count, c.line), ask[int](t, owner, count, c.line); strays != 0 || owned != c.rows {
				t.Errorf("in the end there are %d strays, and the owner has %d rows", strays, owned)
			}
		})
	}
	s.clean(t)
}

func crash(t *testing.T, one *faults.Shard) {
	t.Helper()
	if err := one.Crash(false); err != nil {
		t.Fatal(err)
	}
}
