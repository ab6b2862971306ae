package pool

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cleavedb/cleave/internal/pgerr"
)

func TestBudgetLeavesRoomForOthers(t *testing.T) {
	for _, c := range []struct{ maxConnections, reserved, routers, perShard, total, want int }{
		{100, 3, 1, 0, 0, 92},
		{100, 3, 1, 50, 0, 50},
		{100, 3, 1, 50, 20, 20},
		{100, 3, 4, 50, 0, 23},
		{100, 3, 0, 50, 0, 50},
		{100, 3, 1000, 50, 0, 1},
		{5, 3, 1, 50, 0, 1},
	} {
		if got := Budget(c.maxConnections, c.reserved, c.routers, c.perShard, c.total); got != c.want {
			t.Errorf("%+v gives %d", c, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		connections, reserved, routers := rapid.IntRange(1, 5000).Draw(t, "connections"), rapid.IntRange(0, 50).Draw(t, "reserved"), rapid.IntRange(1, 100).Draw(t, "routers")
		if b := Budget(connections, reserved, routers, 0, 0); b < 1 || b > 1 && b*routers+reserved+keptFree > connections {
			t.Errorf("%d routers with %d each do not fit in %d", routers, b, connections)
		}
	})
}

func TestBreaker(t *testing.T) {
	var b breaker
	cause := pgerr.New(pgerr.ConnectionFailure, "no")
	now := time.Now()
	began := now.Add(-time.Second)
	expect := func(state BreakerState, allows bool) {
		t.Helper()
		if b.state(now) != state || b.allows(now) != allows {
			t.Fatalf("it is %s and allows: %v; want %s, %v", b.state(now), b.allows(now), state, allows)
		}
	}
	expect(Closed, true)
	b.failed(began, now, cause)
	expect(Open, false)
	first := b.until
	b.failed(began, now, cause) // it began before the breaker opened
	if b.until != first || b.failures != 1 {
		t.Error("a login that was under way already counts as another failure")
	}
	for range 20 { // half-open lets one through, whose failure opens it for longer
		pause := b.until.Sub(now)
		now = b.until
		expect(HalfOpen, true)
		b.begin()
		expect(HalfOpen, false)
		b.failed(now, now, cause)
		expect(Open, false)
		if next := b.until.Sub(now); next < pause && next < lastPause*9/10 || next > lastPause*11/10 {
			t.Errorf("a pause of %v follows one of %v", next, pause)
		}
	}
	now = b.until
	b.begin()
	b.succeeded()
	expect(Closed, true)
}

func TestBucket(t *testing.T) {
	now := time.Now()
	b := newBucket(10, now)
	taken := 0
	for end := now.Add(2 * time.Second); now.Before(end); now = now.Add(time.Millisecond) {
		for !now.Before(b.next(now)) {
			b.take()
			taken++
		}
	}
	if taken < 28 || taken > 30 { // a burst of ten, and ten a second
		t.Errorf("%d were taken in two seconds", taken)
	}
}

// TestQueue compares with a slice.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := queue{lane: ofRole}
		var model []*waiter
		t.Repeat(map[string]func(*rapid.T){
			"push": func(*rapid.T) {
				w := &waiter{}
				q.push(w)
				model = append(model, w)
			},
			"remove": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(model)-1).Draw(t, "i")
				q.remove(model[i])
				model = slices.Delete(model, i, i+1)
			},
			"": func(t *rapid.T) {
				var seen []*waiter
				for w := q.head; w != nil; w = q.after(w) {
					seen = append(seen, w)
				}
				if !slices.Equal(seen, model) || q.length != len(model) {
					t.Fatal("the queue has lost its order")
				}
			},
		})
	})
}

func TestCheckNamesWhatIsWrong(t *testing.T) {
	if err := (Config{}).Check(); err != nil {
		t.Error(err)
	}
	for _, c := range []Config{{PerShard: -1}, {Total: -1}, {MinIdle: -1}, {LoginsAtOnce: -1}, {LoginsPerSecond: -1}, {QueueTimeout: -1}, {IdleTimeout: -1}, {MaxAge: -1}, {ConnectTimeout: -1}} {
		if c.Check() == nil {
			t.Errorf("%+v is in order", c)
		}
	}
}
