package pool

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

// useAny has clients run statements on shards that they choose at random, without a pause, and returns how many ran on each.
func useAny(t *testing.T, p *Pools, clients, statements, shards int, sql string) []atomic.Int64 {
	t.Helper()
	served := make([]atomic.Int64, shards)
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			random := rand.New(rand.NewPCG(11, uint64(client)))
			for range statements {
				number := 1 + random.IntN(shards)
				b, err := p.Acquire(t.Context(), number, service, 0)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := b.Exec(context.Background(), sql); err != nil {
					t.Error(err)
				}
				b.Release()
				served[number-1].Add(1)
			}
		})
	}
	all.Wait()
	return served
}

func opened(p *Pools) (logins uint64) {
	for _, s := range p.Stats() {
		logins += s.Opened
	}
	return logins
}

// TestTheTotalDoesNotThrash: where there are fewer backends than shards want, most statements find one that is there already.
func TestTheTotalDoesNotThrash(t *testing.T) {
	const shards, clients, each = 3, 30, 100
	servers := pgtest.StartN(t, shards)
	p := newPools(t, Config{PerShard: 3, Total: 5, LoginsPerSecond: 10_000}, mapOf(t, servers[0].Addr(), servers[1].Addr(), servers[2].Addr()))
	served := useAny(t, p, clients, each, shards, "SELECT 1")
	sum := int64(0)
	for i := range served {
		sum += served[i].Load()
	}
	if sum != clients*each { // whoever starved would have run out of time
		t.Errorf("%d statements of %d were run", sum, clients*each)
	}
	if logins := opened(p); logins*10 > uint64(sum) {
		t.Errorf("%d statements took %d logins", sum, logins)
	}
}

// TestAPlaceStaysForATurn: what was opened just now serves those of its own shard, also if somebody else has waited for longer.
func TestAPlaceStaysForATurn(t *testing.T) {
	servers := pgtest.StartN(t, 2)
	p := newPools(t, Config{Total: 1}, mapOf(t, servers[0].Addr(), servers[1].Addr()))
	b := acquire(t, p, service)
	b.opened = time.Now().Add(time.Hour) // however slow the machine is
	elsewhere, here := waitFor(t, p, 2), waitFor(t, p, 1)
	b.Release()
	if again := <-here; again != b {
		t.Error("it was closed for another shard")
	}
	b.opened = time.Now().Add(-time.Hour)
	b.Release() // nobody waits for it here
	(<-elsewhere).Release()
}

// waitFor returns when somebody waits for a backend of the shard, who passes on what he gets.
func waitFor(t *testing.T, p *Pools, shard int) <-chan *Backend {
	t.Helper()
	s, got := p.shard(shard), make(chan *Backend, 1)
	waits := func() uint64 { return s.stats(time.Now()).Waits }
	before := waits()
	go func() {
		b, err := p.Acquire(context.Background(), shard, service, 0)
		if err != nil {
			t.Error(err)
		}
		got <- b
	}()
	eventually(t, "it waits", func() bool { return waits() > before })
	return got
}

// TestNoShardStarves: two shards whose clients never pause leave the third its share, whether it has nothing or too little.
func TestNoShardStarves(t *testing.T) {
	servers := pgtest.StartN(t, 3)
	p := newPools(t, Config{Total: 3, LoginsPerSecond: 1000}, mapOf(t, servers[0].Addr(), servers[1].Addr(), servers[2].Addr()))
	done := make(chan struct{})
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() { loop(t, p, 1+i%2, service, done) })
	}
	for range 3 {
		first := must[*Backend](t)(p.Acquire(t.Context(), 3, service, 0))
		second := must[*Backend](t)(p.Acquire(t.Context(), 3, service, 0)) // the first does not come back
		for _, b := range []*Backend{first, second} {
			b.Retire("its place shall be taken")
		}
		eventually(t, "the others have everything", func() bool { s := p.Stats()[2]; return s.InUse+s.Idle+s.Closing == 0 })
	}
	close(done)
	all.Wait()
}

// TestWhatIsIdleMovesInTheEnd: a shard that has a backend waits for that first, and gets another's idle one if it does not come back.
func TestWhatIsIdleMovesInTheEnd(t *testing.T) {
	servers := pgtest.StartN(t, 2)
	p := newPools(t, Config{Total: 2}, mapOf(t, servers[0].Addr(), servers[1].Addr()))
	acquire(t, p, service).Release()
	held := must[*Backend](t)(p.Acquire(t.Context(), 2, service, 0))
	defer held.Release()
	must[*Backend](t)(p.Acquire(t.Context(), 2, service, 0)).Release()
	if s := statsOf(t, p); s.Closed != 1 {
		t.Errorf("the figures are %+v", s)
	}
}
