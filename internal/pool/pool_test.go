package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

func TestTheLastUsedBackendIsLentFirst(t *testing.T) {
	p := poolsOn(t, Config{}, pgtest.Start(t))
	var all []*Backend
	for range 3 {
		all = append(all, acquire(t, p, service))
	}
	for i, b := range all {
		b.State, b.Affinity = i, uint64(i+10)
		b.Release()
	}
	for _, want := range []int{2, 1, 0} {
		if b := acquire(t, p, service); b != all[want] || b.State != want {
			t.Errorf("backend %v was lent, want %d", b.State, want)
		}
	}
	for _, b := range all {
		b.Release()
	}
	if b := must[*Backend](t)(p.Acquire(t.Context(), 1, service, 11)); b != all[1] {
		t.Errorf("backend %v has another affinity", b.State)
	}
	if b := must[*Backend](t)(p.Acquire(t.Context(), 1, service, 99)); b != all[2] {
		t.Errorf("backend %v was not the last", b.State)
	}
}

func TestWhatABackendStartsWith(t *testing.T) {
	server := pgtest.Start(t)
	said := ""
	p := poolsOn(t, Config{Name: "cleave/run-7", Startup: map[string]string{"search_path": "elsewhere"}, OnLogin: func(ctx context.Context, b *Backend) error {
		rows, err := b.Exec(ctx, "SELECT current_user || ' ' || current_database()")
		if err == nil {
			said = string(rows[0][0])
		}
		return err
	}}, server)
	b := acquire(t, p, service)
	defer b.Release()
	for setting, want := range map[string]string{"application_name": "cleave/run-7", "client_encoding": "UTF8", "search_path": "elsewhere"} {
		if got := one(t, b, "SHOW "+setting); got != want {
			t.Errorf("%s is %q", setting, got)
		}
	}
	if said != "postgres postgres" {
		t.Errorf("the first statement ran as %q", said)
	}
	if b.Parameters()["server_version"] == "" || b.Shard() != 1 || b.ShardName() != "s1" || one(t, b, "SELECT pg_backend_pid()") != strconv.Itoa(int(b.PID())) {
		t.Errorf("the backend says of itself: %v %v %v %v", b.Parameters(), b.Shard(), b.ShardName(), b.PID())
	}
}

func TestADeadBackendIsNotLent(t *testing.T) {
	server := pgtest.Start(t)
	admin := connect(t, server)
	p := poolsOn(t, Config{}, server)
	first, second := acquire(t, p, service), acquire(t, p, service)
	second.Release()
	first.Release()
	execute(t, admin, "SELECT pg_terminate_backend($1)", first.PID())
	eventually(t, "the end is noticed", func() bool { return !first.Alive() })
	if b := acquire(t, p, service); b != second {
		t.Error("the one that lives was not lent")
	}
	eventually(t, "the dead one is closed", func() bool { s := statsOf(t, p); return s.Idle == 0 && s.Closed == 1 && s.InUse == 1 })
	execute(t, admin, "SELECT pg_terminate_backend($1)", second.PID())
	eventually(t, "the end is noticed", func() bool { return !second.Alive() })
	second.Release()
	if b := acquire(t, p, service); b == second || one(t, b, "SELECT 1") != "1" {
		t.Error("a backend that died while it was lent was lent again")
	}
}

func TestLookingNoticesTheEndToo(t *testing.T) {
	server := pgtest.Start(t)
	admin := connect(t, server)
	p := poolsOn(t, Config{}, server)
	b := acquire(t, p, service)
	defer b.Retire("done")
	if hungUp(b.socket) || b.HasInput() {
		t.Error("a living connection looks dead, or has something to read")
	}
	if _, err := b.conn.Write([]byte("Q\x00\x00\x00\x0dSELECT 1\x00")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(b.conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if hungUp(b.socket) || !b.HasInput() {
		t.Error("a connection with something to read looks dead, or empty")
	}
	execute(t, admin, "SELECT pg_terminate_backend($1)", b.PID())
	if _, err := io.Copy(io.Discard, b.conn); err != nil {
		t.Fatal(err)
	}
	if !hungUp(b.socket) {
		t.Error("a dead connection looks alive")
	}
}

func TestWaitingEndsWithAReason(t *testing.T) {
	p := poolsOn(t, Config{PerShard: 1, QueueTimeout: 20 * time.Millisecond}, pgtest.Start(t))
	b := must[*Backend](t)(patient(t, p))
	_, err := p.Acquire(t.Context(), 1, service, 0)
	expectError(t, err, pgerr.TooManyConnections, `no backend of shard "s1" became free within 20ms`, "1 backends are in use", "limit is 1", "pool.per_shard")
	s := statsOf(t, p)
	if s.Timeouts == 0 || s.Waiting != 0 || s.WaitTime == 0 {
		t.Errorf("the figures are %+v", s)
	}
	b.Release()
}

// patient tries until a login is done, however short the queue's timeout is.
func patient(t *testing.T, p *Pools) (b *Backend, err error) {
	eventually(t, "there is a backend", func() bool {
		b, err = p.Acquire(t.Context(), 1, service, 0)
		return err == nil
	})
	return b, err
}

func TestWhoGivesUpLeavesTheQueue(t *testing.T) {
	p := poolsOn(t, Config{PerShard: 1}, pgtest.Start(t))
	b := acquire(t, p, service)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := p.Acquire(ctx, 1, service, 0)
		failed <- err
	}()
	waiting(t, p, 1)
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("it says %v", err)
	}
	if s := statsOf(t, p); s.Waiting != 0 || s.Timeouts != 0 {
		t.Errorf("the figures are %+v", s)
	}
	b.Release()
	if acquire(t, p, service) != b {
		t.Error("the backend is lost")
	}
}

// TestWhatComesTooLateIsGivenBack: a backend is delivered, and at the same time the context ends.
func TestWhatComesTooLateIsGivenBack(t *testing.T) {
	p := poolsOn(t, Config{PerShard: 1}, pgtest.Start(t))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s := p.shard(1)
	for range 50 { // which of the two is seen first is a matter of chance
		b := acquire(t, p, service)
		s.mu.Lock()
		w, err := s.enqueue(service)
		s.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
		if late, err := s.await(ended, w); err == nil {
			late.Release()
		}
		if stats := statsOf(t, p); stats.Idle != 1 || stats.InUse != 0 {
			t.Fatalf("the backend is lost: %+v", stats)
		}
	}
}

// TestALoginIsNotWasted: the one who caused it has gone, and still it is there for the next.
func TestALoginIsNotWasted(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	p := poolsOn(t, Config{OnLogin: func(context.Context, *Backend) error {
		close(begun) // a second login would panic here
		<-goOn
		return nil
	}}, pgtest.Start(t))
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := p.Acquire(ctx, 1, service, 0)
		failed <- err
	}()
	<-begun
	cancel()
	<-failed
	close(goOn)
	eventually(t, "the backend is idle", func() bool { return statsOf(t, p).Idle == 1 })
	acquire(t, p, service).Release()
}

func TestFirstComeFirstServed(t *testing.T) {
	p := poolsOn(t, Config{PerShard: 1}, pgtest.Start(t))
	b := acquire(t, p, service)
	order := make(chan int, 20)
	var all sync.WaitGroup
	for i := range cap(order) {
		all.Go(func() {
			b, err := p.Acquire(t.Context(), 1, service, 0)
			if err != nil {
				t.Error(err)
				return
			}
			order <- i
			b.Release()
		})
		waiting(t, p, i+1)
	}
	b.Release()
	all.Wait()
	for want := range cap(order) {
		if got := <-order; got != want {
			t.Fatalf("waiter %d was served in place %d", got, want)
		}
	}
	if opened := statsOf(t, p).Opened; opened != 1 {
		t.Errorf("%d backends were opened", opened)
	}
}

// loop borrows and gives back without a pause until the test is done.
func loop(t *testing.T, p *Pools, shard int, id *Identity, until <-chan struct{}) {
	for {
		select {
		case <-until:
			return
		default:
		}
		b, err := p.Acquire(t.Context(), shard, id, 0)
		if err != nil {
			t.Error(err)
			return
		}
		b.Release()
	}
}

// TestNoRoleStarves: at the limit, with another role that never pauses, everyone gets a backend.
func TestNoRoleStarves(t *testing.T) {
	server := pgtest.Start(t)
	admin := connect(t, server)
	execute(t, admin, "CREATE ROLE busy LOGIN")
	execute(t, admin, "CREATE ROLE rare LOGIN")
	p := poolsOn(t, Config{PerShard: 2, LoginsPerSecond: 1000}, server)
	done := make(chan struct{})
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() { loop(t, p, 1, &Identity{User: "busy"}, done) })
	}
	for range 20 {
		b := acquire(t, p, &Identity{User: "rare"})
		if user := one(t, b, "SELECT current_user"); user != "rare" {
			t.Errorf("it is %s's", user)
		}
		b.Release()
		// Let the others take its place, so that it has to be won again.
		eventually(t, "the busy role has everything", func() bool {
			s := statsOf(t, p)
			return len(s.Roles) == 1
		})
	}
	close(done)
	all.Wait()
}

// TestAnIdleBackendMakesRoom: nobody has to come back for another role to get in.
func TestAnIdleBackendMakesRoom(t *testing.T) {
	server := pgtest.Start(t)
	execute(t, connect(t, server), "CREATE ROLE other LOGIN")
	p := poolsOn(t, Config{PerShard: 1}, server)
	acquire(t, p, service).Release()
	b := acquire(t, p, &Identity{User: "other"})
	if s := statsOf(t, p); s.InUse != 1 || s.Idle != 0 || len(s.Roles) != 1 || s.Roles[0].User != "other" {
		t.Errorf("the figures are %+v", s)
	}
	b.Release()
}

// TestLimitsHold does all sorts of things at once and watches from both ends.
func TestLimitsHold(t *testing.T) {
	servers := pgtest.StartN(t, 2)
	var admins []*pgx.Conn
	for _, server := range servers {
		admin := connect(t, server)
		admins = append(admins, admin)
		for i := range 3 {
			execute(t, admin, fmt.Sprintf("CREATE ROLE r%d LOGIN", i))
		}
	}
	const perShard, total = 5, 7
	p := newPools(t, Config{PerShard: perShard, Total: total, LoginsPerSecond: 10_000, Name: "limited"}, mapOf(t, servers[0].Addr(), servers[1].Addr()))
	var all sync.WaitGroup
	var served [2]atomic.Int64
	for worker := range 16 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(worker)))
			for range 100 {
				useAtRandom(t, p, random, &served)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		checkLimits(t, p, admins, perShard, total)
	}
	for i := range served {
		if served[i].Load() == 0 {
			t.Errorf("shard %d served nobody", i+1)
		}
	}
	eventually(t, "all is at rest", func() bool {
		for _, s := range p.Stats() {
			if s.InUse+s.Closing+s.LoginsRunning+s.Waiting > 0 || uint64(s.Idle) != s.Opened-s.Closed {
				return false
			}
		}
		return true
	})
	if open := p.total.open.Load(); open != int64(p.Stats()[0].Idle+p.Stats()[1].Idle) || p.total.hungry.Load() != 0 || p.total.closing.Load() != 0 {
		t.Errorf("the total is %d, %d starve", open, p.total.hungry.Load())
	}
}

// useAtRandom borrows a backend and does one of the things that borrowers do.
func useAtRandom(t *testing.T, p *Pools, random *rand.Rand, served *[2]atomic.Int64) {
	shard, ctx, cancel := 1+random.IntN(2), t.Context(), context.CancelFunc(func() {})
	if random.IntN(10) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(3000))*time.Microsecond)
	}
	defer cancel()
	b, err := p.Acquire(ctx, shard, &Identity{User: fmt.Sprintf("r%d", random.IntN(3))}, uint64(random.IntN(3)))
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		return
	}
	served[shard-1].Add(1)
	switch random.IntN(12) {
	case 0:
		b.Retire("for a change")
	case 1:
		_, _ = b.Exec(t.Context(), "SELECT pg_terminate_backend(pg_backend_pid())")
		b.Release()
	default:
		if _, err := b.Exec(t.Context(), "SELECT 1"); err != nil {
			t.Error(err)
		}
		b.Release()
	}
}

// checkLimits compares what the pools say, and what the servers see, with the limits.
func checkLimits(t *testing.T, p *Pools, admins []*pgx.Conn, perShard, total int) {
	t.Helper()
	for _, s := range p.Stats() {
		if open := s.InUse + s.Idle + s.Closing + s.LoginsRunning; open > perShard {
			t.Errorf("shard %s has %d open: %+v", s.Name, open, s)
		}
	}
	if open := p.total.open.Load(); open > int64(total)+int64(len(admins)) { // take adds one before it looks
		t.Errorf("%d are open in all", open)
	}
	for i, admin := range admins {
		count := 0
		if err := admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'limited'").Scan(&count); err != nil {
			t.Fatal(err)
		}
		if count > perShard {
			t.Errorf("server %d sees %d backends", i+1, count)
		}
	}
}

// TestTheTotalIsShared: a shard whose neighbour has everything gets its share, whether the neighbour is idle or busy.
func TestTheTotalIsShared(t *testing.T) {
	servers := pgtest.StartN(t, 2)
	p := newPools(t, Config{Total: 2, LoginsPerSecond: 1000}, mapOf(t, servers[0].Addr(), servers[1].Addr()))
	first, second := acquire(t, p, service), acquire(t, p, service)
	first.Release()
	second.Release()
	b := must[*Backend](t)(p.Acquire(t.Context(), 2, service, 0))
	b.Retire("its place shall be taken")

	done := make(chan struct{})
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() { loop(t, p, 1, service, done) })
	}
	for range 5 {
		must[*Backend](t)(p.Acquire(t.Context(), 2, service, 0)).Retire("its place shall be taken")
		eventually(t, "the neighbour has everything", func() bool { s := statsOf(t, p); return s.InUse+s.Idle == 2 })
	}
	close(done)
	all.Wait()
}

// TestTheTotalIsFair: who has waited longer comes first, also over shards, when a backend has had its turn.
func TestTheTotalIsFair(t *testing.T) {
	servers := pgtest.StartN(t, 2)
	p := newPools(t, Config{Total: 1}, mapOf(t, servers[0].Addr(), servers[1].Addr()))
	b := acquire(t, p, service)
	b.opened = b.opened.Add(-turn)
	order := make(chan int)
	var all sync.WaitGroup
	for place, shard := range []int{2, 1} {
		all.Go(func() {
			b, err := p.Acquire(t.Context(), shard, service, 0)
			if err != nil {
				t.Error(err)
			}
			order <- shard
			if err == nil {
				b.Release()
			}
		})
		eventually(t, "it waits", func() bool { return p.Stats()[0].Waiting+p.Stats()[1].Waiting == place+1 })
	}
	b.Release()
	if first, second := <-order, <-order; first != 2 || second != 1 {
		t.Errorf("shard %d was served before shard %d", first, second)
	}
	all.Wait()
}

func TestALimitCanBeLoweredAndRaised(t *testing.T) {
	p := poolsOn(t, Config{PerShard: 4}, pgtest.Start(t))
	var all []*Backend
	for range 4 {
		all = append(all, acquire(t, p, service))
	}
	all[0].Release()
	p.SetLimit(1, 2)
	eventually(t, "the idle one is closed", func() bool { s := statsOf(t, p); return s.Idle == 0 && s.Closing == 0 && s.Limit == 2 })
	all[1].Release()
	eventually(t, "the returned one is closed", func() bool { s := statsOf(t, p); return s.InUse == 2 && s.Idle == 0 && s.Closing == 0 })
	all[2].Release()
	if acquire(t, p, service) != all[2] {
		t.Error("one within the limit was closed")
	}
	got := make(chan *Backend)
	go func() {
		b, _ := p.Acquire(t.Context(), 1, service, 0)
		got <- b
	}()
	waiting(t, p, 1)
	p.SetLimit(1, 100)
	if b := <-got; b == nil {
		t.Error("a raised limit lets nobody in")
	}
	if limit := statsOf(t, p).Limit; limit != 4 {
		t.Errorf("the limit is %d", limit)
	}
}

// TestAStormMeetsADeadShard: those who wait hear the reason, and the server is hardly asked.
func TestAStormMeetsADeadShard(t *testing.T) {
	address, attempts := listen(t, func(conn net.Conn) { conn.Close() })
	const atOnce = 3
	p := newPools(t, Config{LoginsAtOnce: atOnce}, mapOf(t, address))
	storm := func() {
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() {
				_, err := p.Acquire(t.Context(), 1, service, 0)
				expectErrorLater(t, err, pgerr.ConnectionFailure)
			})
		}
		all.Wait()
	}
	storm()
	if n := attempts(); n == 0 || n > atOnce+1 {
		t.Errorf("a storm made %d attempts", n)
	}
	// Each pause is longer than the one before, so these are few however long the storms take.
	before, failures := attempts(), p.shard(1).failures()
	for range 4 {
		storm()
	}
	if more := p.shard(1).failures() - failures; attempts()-before > more {
		t.Errorf("%d attempts were made in %d pauses", attempts()-before, more)
	}
	s := statsOf(t, p)
	if s.Breaker == Closed || s.LastError == "" || s.Opened != 0 || int(s.FailedLogins) != attempts() {
		t.Errorf("the figures are %+v", s)
	}
	_, err := p.Acquire(t.Context(), 1, service, 0)
	expectError(t, err, pgerr.ConnectionFailure, `shard "s1" cannot be reached`, address, "attempt")
}

// TestNobodyWaitsForAShardThatIsNotTried: those with nothing to wait for hear so at once, those with a backend of their role wait
// for that.
func TestNobodyWaitsForAShardThatIsNotTried(t *testing.T) {
	server := pgtest.Start(t)
	p := poolsOn(t, Config{}, server)
	b := acquire(t, p, service)
	s := p.shard(1)
	s.mu.Lock()
	s.breaker.failed(time.Now(), time.Now(), pgerr.New(pgerr.ConnectionFailure, "no"))
	s.breaker.until = time.Now().Add(time.Hour)
	s.mu.Unlock()
	_, err := p.Acquire(t.Context(), 1, &Identity{User: "other"}, 0)
	expectError(t, err, pgerr.ConnectionFailure, "The next attempt is in")
	failed := make(chan error)
	for range 2 {
		go func() {
			b, err := p.Acquire(t.Context(), 1, service, 0)
			if err == nil {
				b.Retire("it was the last")
			}
			failed <- err
		}()
	}
	waiting(t, p, 2)
	b.Release()
	if err := <-failed; err != nil {
		t.Error(err)
	}
	expectError(t, <-failed, pgerr.ConnectionFailure, "The next attempt is in")
}

func (s *shardPool) failures() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.breaker.failures
}

// expectErrorLater is for goroutines other than the test's.
func expectErrorLater(t *testing.T, err error, codes ...string) {
	var failure *pgerr.Error
	if !errors.As(err, &failure) {
		t.Errorf("%v is not for clients", err)
		return
	}
	for _, code := range codes {
		if failure.Code == code {
			return
		}
	}
	t.Errorf("%s is none of %v: %v", failure.Code, codes, failure)
}

// TestAServerIsKilledUnderLoad: whoever asks meanwhile hears a reason, and afterwards all is as before.
func TestAServerIsKilledUnderLoad(t *testing.T) {
	server := pgtest.Start(t)
	p := poolsOn(t, Config{PerShard: 8}, server)
	var served, failed atomic.Int64
	done := make(chan struct{})
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				b, err := p.Acquire(t.Context(), 1, service, 0)
				if err != nil {
					expectErrorLater(t, err, pgerr.ConnectionFailure, pgerr.CannotConnectNow)
					failed.Add(1)
					time.Sleep(time.Millisecond)
					continue
				}
				if _, err := b.Exec(t.Context(), "SELECT 1"); err != nil {
					b.Retire("it failed")
					continue
				}
				b.Release()
				served.Add(1)
			}
		})
	}
	for range 2 {
		before := served.Load()
		eventually(t, "some are served", func() bool { return served.Load() > before+100 })
		if err := server.Crash(); err != nil {
			t.Fatal(err)
		}
		before = failed.Load()
		eventually(t, "some hear that the server is gone", func() bool { return failed.Load() > before+16 })
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	before := served.Load()
	eventually(t, "some are served again", func() bool { return served.Load() > before+100 })
	close(done)
	all.Wait()
	if s := statsOf(t, p); s.Breaker != Closed || s.InUse != 0 || s.FailedLogins == 0 {
		t.Errorf("the figures are %+v", s)
	}
}

func TestAShardMoves(t *testing.T) {
	servers := pgtest.StartN(t, 2)
	m := mapOf(t, servers[0].Addr())
	p := newPools(t, Config{PerShard: 2}, m)
	lentOut, resting := acquire(t, p, service), acquire(t, p, service)
	resting.Release()
	p.Apply(changed(t, m, topology.UpdateShard("s1", func(s *topology.ShardSpec) { s.Weight = 3 })))
	if acquire(t, p, service) != resting {
		t.Error("a change that does not concern backends has closed one")
	}
	waiter := make(chan *Backend)
	go func() {
		b, _ := p.Acquire(t.Context(), 1, service, 0)
		waiter <- b
	}()
	waiting(t, p, 1)
	resting.Release()
	resting = <-waiter
	resting.Release()

	p.Apply(changed(t, m, topology.UpdateShard("s1", func(s *topology.ShardSpec) { s.Primary.Address = servers[1].Addr() })))
	b := acquire(t, p, service)
	if port := one(t, b, "SHOW port"); port != strconv.Itoa(servers[1].Port()) {
		t.Errorf("the backend is at port %s", port)
	}
	if one(t, lentOut, "SELECT 1") != "1" {
		t.Error("a lent backend was closed")
	}
	lentOut.Release()
	eventually(t, "the old ones are closed", func() bool { s := statsOf(t, p); return s.Closed == 2 && s.InUse == 1 && s.Idle == 0 })
	b.Release()
}

func TestAShardLeaves(t *testing.T) {
	server := pgtest.Start(t)
	m := mapOf(t, server.Addr())
	p := newPools(t, Config{PerShard: 1}, m)
	b := acquire(t, p, service)
	failed := make(chan error)
	go func() {
		_, err := p.Acquire(t.Context(), 1, service, 0)
		failed <- err
	}()
	waiting(t, p, 1)
	p.Apply(changed(t, m, topology.RemoveShard("s1")))
	expectError(t, <-failed, pgerr.CannotConnect, `"s1"`, "no longer")
	if one(t, b, "SELECT 1") != "1" {
		t.Error("a lent backend was closed")
	}
	b.Release()
	eventually(t, "it is closed", func() bool { return !b.Alive() })
	_, err := p.Acquire(t.Context(), 1, service, 0)
	expectError(t, err, pgerr.CannotConnect, "number 1")
}

func TestOldAndIdleBackendsAreClosed(t *testing.T) {
	server := pgtest.Start(t)
	t.Run("idle", func(t *testing.T) {
		p := poolsOn(t, Config{IdleTimeout: 20 * time.Millisecond, MinIdle: 1}, server)
		all := []*Backend{acquire(t, p, service), acquire(t, p, service), acquire(t, p, service)}
		for _, b := range all {
			b.Release()
		}
		eventually(t, "all but one are closed", func() bool { s := statsOf(t, p); return s.Closed == 2 && s.Idle == 1 })
	})
	t.Run("old", func(t *testing.T) {
		p := poolsOn(t, Config{MaxAge: 20 * time.Millisecond}, server)
		b := acquire(t, p, service)
		acquire(t, p, service).Release()
		eventually(t, "the idle one is closed", func() bool { return statsOf(t, p).Closed >= 1 })
		eventually(t, "the lent one has come of age", func() bool {
			b.shard.mu.Lock()
			defer b.shard.mu.Unlock()
			return b.expired
		})
		if one(t, b, "SELECT 1") != "1" {
			t.Error("a lent backend was closed")
		}
		b.Release()
		if s := statsOf(t, p); s.Idle != 0 {
			t.Error("an old backend may be lent again")
		}
		eventually(t, "it is closed", func() bool { return !b.Alive() })
	})
}

func TestCloseEndsEverything(t *testing.T) {
	p := poolsOn(t, Config{PerShard: 2}, pgtest.Start(t))
	b, other := acquire(t, p, service), acquire(t, p, service)
	failed := make(chan error)
	go func() {
		_, err := p.Acquire(context.Background(), 1, service, 0)
		failed <- err
	}()
	waiting(t, p, 1)
	p.Close()
	expectError(t, <-failed, pgerr.AdminShutdown)
	if _, err := b.Conn().Read(make([]byte, 1)); err == nil {
		t.Error("a lent backend can still be read from")
	}
	b.Release()
	other.Retire("late")
	p.Close()
	_, err := p.Acquire(t.Context(), 1, service, 0)
	expectError(t, err, pgerr.AdminShutdown)
	New(Config{}).Close() // one that never ran
}

func TestCloseDoesNotWaitForALoginThatHangs(t *testing.T) {
	held := make(chan net.Conn, 10)
	address, attempts := listen(t, func(conn net.Conn) { held <- conn })
	p := newPools(t, Config{ConnectTimeout: time.Hour}, mapOf(t, address))
	failed := make(chan error)
	go func() {
		_, err := p.Acquire(context.Background(), 1, service, 0)
		failed <- err
	}()
	eventually(t, "a login is under way", func() bool { return attempts() == 1 })
	p.Close()
	expectError(t, <-failed, pgerr.AdminShutdown)
	(<-held).Close()
}

func BenchmarkAcquireRelease(b *testing.B) {
	p := poolsOn(b, Config{}, pgtest.Start(b))
	b.Run("alone", func(b *testing.B) {
		ctx := context.Background()
		b.ReportAllocs()
		for b.Loop() {
			backend, err := p.Acquire(ctx, 1, service, 0)
			if err != nil {
				b.Fatal(err)
			}
			backend.Release()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		ctx := context.Background()
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				backend, err := p.Acquire(ctx, 1, service, 0)
				if err != nil {
					b.Error(err)
					return
				}
				backend.Release()
			}
		})
	})
	b.Run("at the limit", func(b *testing.B) {
		p.SetLimit(1, 1)
		ctx := context.Background()
		b.SetParallelism(16)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				backend, err := p.Acquire(ctx, 1, service, 0)
				if err != nil {
					b.Error(err)
					return
				}
				backend.Release()
			}
		})
	})
}

// TestLendingAllocatesNothing is the benchmark's promise where it can fail.
func TestLendingAllocatesNothing(t *testing.T) {
	p := poolsOn(t, Config{}, pgtest.Start(t))
	acquire(t, p, service).Release()
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() {
		b, err := p.Acquire(ctx, 1, service, 0)
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
	}); n != 0 {
		t.Errorf("lending allocates %v times", n)
	}
}
