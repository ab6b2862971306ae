package idgen

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/thorough"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// mustNew returns a generator and lets the millisecond pass that it leaves to its predecessors.
func mustNew(t testing.TB, config Config) *Generator {
	t.Helper()
	g, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	if clock, ok := config.Clock.(*fakeClock); ok {
		clock.step(time.Millisecond)
	}
	return g
}

func mustNext(t testing.TB, g *Generator, hash uint64) int64 {
	t.Helper()
	id, err := g.Next(context.Background(), hash)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestBadConfigs(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{}, "id generator: number 0 is the database's, want 1 to 127"},
		{Config{Number: -1}, "id generator: number -1 is not between 1 and 127"},
		{Config{Number: 128}, "id generator: number 128 is not between 1 and 127"},
		{Config{Number: 1, NotBefore: time.Unix(0, 0)}, "id generator: not-before time 1970-01-01T00:00:00Z is before the layout's epoch"},
		{Config{Number: 1, NotBefore: DefaultLayout().End()}, "id generator: not-before time 2094-09-07T15:47:35.552Z is after the layout's end"},
	} {
		c.config.NotBefore = c.config.NotBefore.UTC()
		_, err := New(c.config)
		if err == nil || err.Error() != c.want {
			t.Errorf("got error %v, want %s", err, c.want)
		}
	}
}

func TestNextParts(t *testing.T) {
	clock := newFakeClock()
	clock.step(123456 * time.Microsecond)
	g := mustNew(t, Config{Number: 42, Clock: clock})
	for sequence := range 3 {
		got := g.Layout().Decode(mustNext(t, g, 777<<54|12345))
		want := Parts{Time: clock.now.Truncate(time.Millisecond), Slot: 777, Generator: 42, Sequence: sequence}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if parts := g.Layout().Decode(mustNext(t, g, 776<<54)); parts.Slot != 776 || parts.Sequence != 0 {
		t.Errorf("got %+v, want another slot to have a count of its own", parts)
	}
}

// A millisecond has 32 ids for a slot; the 33rd waits for the next, exactly as long as needed.
func TestFullMillisecondWaits(t *testing.T) {
	clock := newFakeClock()
	clock.step(300 * time.Microsecond)
	g := mustNew(t, Config{Number: 1, Clock: clock, MaxBackwards: -1})
	start := clock.now.Truncate(time.Millisecond)
	var ids []int64
	for range 3 * 32 {
		ids = append(ids, mustNext(t, g, 0))
	}
	checkIncreasing(t, ids)
	if last := g.Layout().Decode(ids[len(ids)-1]); last.Sequence != 31 || !last.Time.Equal(start.Add(2*time.Millisecond)) {
		t.Errorf("got %+v, want the last id of the third millisecond", last)
	}
	if want := []time.Duration{700 * time.Microsecond, time.Millisecond}; !slices.Equal(clock.slept, want) {
		t.Errorf("slept %v, want %v", clock.slept, want)
	}
}

func TestClockStepsBackALittle(t *testing.T) {
	clock := newFakeClock()
	g := mustNew(t, Config{Number: 1, Clock: clock})
	before := mustNext(t, g, 0)
	clock.step(-200 * time.Millisecond)
	after := mustNext(t, g, 0)
	checkIncreasing(t, []int64{before, after})
	if want := []time.Duration{200 * time.Millisecond}; !slices.Equal(clock.slept, want) {
		t.Errorf("slept %v, want %v", clock.slept, want)
	}
}

func TestClockStepsBackALot(t *testing.T) {
	clock := newFakeClock()
	g := mustNew(t, Config{Number: 1, Clock: clock})
	ids := []int64{mustNext(t, g, 0), mustNext(t, g, 0)}
	clock.step(-time.Hour)
	_, err := g.Next(context.Background(), 0)
	var clockErr *ClockError
	if !errors.As(err, &clockErr) || *clockErr != (ClockError{Behind: time.Hour, Max: DefaultMaxBackwards}) {
		t.Fatalf("got %v, want a clock error of an hour", err)
	}
	if want := "make id for slot 0: clock is 1h0m0s behind the ids already made, and at most 250ms is waited for in all"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if clock.slept != nil {
		t.Errorf("slept %v before giving up", clock.slept)
	}
	clock.step(time.Hour - 100*time.Millisecond)
	checkIncreasing(t, append(ids, mustNext(t, g, 0), mustNext(t, g, 0)))
}

// A clock that goes back again during each wait is not waited for without end.
func TestClockKeepsSteppingBack(t *testing.T) {
	clock := newFakeClock()
	g := mustNew(t, Config{Number: 1, Clock: clock})
	mustNext(t, g, 0)
	clock.onWait = func() { clock.step(-100 * time.Millisecond) }
	clock.step(-100 * time.Millisecond)
	var clockErr *ClockError
	if _, err := g.Next(context.Background(), 0); !errors.As(err, &clockErr) {
		t.Fatalf("got %v, want a clock error", err)
	}
}

func TestNegativeMaxBackwardsNeverWaits(t *testing.T) {
	clock := newFakeClock()
	g := mustNew(t, Config{Number: 1, Clock: clock, MaxBackwards: -1})
	mustNext(t, g, 0)
	clock.step(-2 * time.Millisecond)
	var clockErr *ClockError
	if _, err := g.Next(context.Background(), 0); !errors.As(err, &clockErr) {
		t.Fatalf("got %v, want a clock error", err)
	}
}

func TestClockBeforeEpoch(t *testing.T) {
	clock := newFakeClock()
	clock.now = time.Unix(0, 0)
	g := mustNew(t, Config{Number: 1, Clock: clock})
	var clockErr *ClockError
	if _, err := g.Next(context.Background(), 0); !errors.As(err, &clockErr) {
		t.Fatalf("got %v, want a clock error", err)
	}
}

func TestContextEndsWait(t *testing.T) {
	clock := newFakeClock()
	g := mustNew(t, Config{Number: 1, Clock: clock})
	mustNext(t, g, 0)
	clock.step(-100 * time.Millisecond)
	ctx, cancel := context.WithCancel(context.Background())
	clock.onWait = cancel
	if _, err := g.Next(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want the context's error", err)
	}
}

func TestLayoutEnds(t *testing.T) {
	layout := DefaultLayout()
	clock := newFakeClock()
	clock.now = layout.End().Add(-2 * time.Millisecond)
	g := mustNew(t, Config{Number: 127, Clock: clock})
	var ids []int64
	for range 32 {
		ids = append(ids, mustNext(t, g, 1<<64-1))
	}
	checkIncreasing(t, ids)
	if got := ids[31]; got != 1<<63-1 {
		t.Errorf("the last id is %d, want the largest bigint", got)
	}
	for _, late := range []time.Duration{0, time.Millisecond, 1000 * time.Hour} {
		clock.step(late)
		_, err := g.Next(context.Background(), 1<<64-1)
		var exhausted *ExhaustedError
		if !errors.As(err, &exhausted) || !exhausted.End.Equal(layout.End()) {
			t.Fatalf("%s after the end: got %v, want it to be exhausted", late, err)
		}
	}
	if want := "the id layout ended at 2094-09-07T15:47:35Z"; (&ExhaustedError{End: layout.End()}).Error() != want {
		t.Errorf("want %q", want)
	}
}

// A restart with a clock that went back repeats nothing if the high-water mark was kept.
func TestRestartNotBefore(t *testing.T) {
	clock := newFakeClock()
	clock.step(500 * time.Microsecond)
	first := mustNew(t, Config{Number: 1, Clock: clock})
	var ids []int64
	for range 10 {
		ids = append(ids, mustNext(t, first, 0))
	}
	clock.step(-200 * time.Millisecond)
	second := mustNew(t, Config{Number: 1, Clock: clock, NotBefore: first.HighWater()})
	checkIncreasing(t, append(ids, mustNext(t, second, 0)))
	clock.step(-time.Hour)
	third := mustNew(t, Config{Number: 1, Clock: clock, NotBefore: second.HighWater()})
	var clockErr *ClockError
	if _, err := third.Next(context.Background(), 12345<<50); !errors.As(err, &clockErr) {
		t.Errorf("got %v, want a clock error for every slot", err)
	}
}

func TestNotBeforeRoundsUp(t *testing.T) {
	clock := newFakeClock()
	g := mustNew(t, Config{Number: 1, Clock: clock, NotBefore: clock.now.Add(time.Nanosecond)})
	if got, want := g.Layout().Decode(mustNext(t, g, 0)).Time, newFakeClock().now.Add(time.Millisecond); !got.Equal(want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestHighWater(t *testing.T) {
	clock := newFakeClock()
	g := mustNew(t, Config{Number: 1, Clock: clock})
	if got := g.HighWater(); !got.Equal(clock.now) {
		t.Errorf("got %s before the first id, want the first millisecond that it may use, %s", got, clock.now)
	}
	for n := range 32 {
		mustNext(t, g, 5<<54)
		if got, want := g.HighWater(), clock.now.Add(time.Millisecond); !got.Equal(want) {
			t.Errorf("after %d ids: got %s, want %s", n+1, got, want)
		}
	}
}

// A generator made right after another of the same number, in the same millisecond, repeats nothing of it.
func TestOneAfterAnotherInOneMillisecond(t *testing.T) {
	clock := newFakeClock()
	seen := map[int64]bool{}
	for range 50 {
		g, err := New(Config{Number: 1, Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			id := mustNext(t, g, 0)
			if seen[id] {
				t.Fatalf("id %d twice", id)
			}
			seen[id] = true
		}
	}
}

// What the contract on numbers is for: nothing can notice that two processes use the same one.
func TestSameNumberTwiceCollides(t *testing.T) {
	clock := newFakeClock()
	a, b := mustNew(t, Config{Number: 1, Clock: clock}), mustNew(t, Config{Number: 1, Clock: clock})
	if mustNext(t, a, 0) != mustNext(t, b, 0) {
		t.Error("they differ: the package comment and DESIGN.md say too little")
	}
	if mustNext(t, a, 0) == mustNext(t, mustNew(t, Config{Number: 2, Clock: clock}), 0) {
		t.Error("generators of different numbers collide")
	}
}

// Under any clock whatsoever, ids of a slot increase, and carry a time that the clock has reached.
func TestIncreasingUnderAnyClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := newFakeClock()
		g, err := New(Config{Number: 1, Clock: clock, Layout: drawSmallLayout(t)})
		if err != nil {
			t.Fatal(err)
		}
		last := map[int]int64{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			clock.step(time.Duration(rapid.Int64Range(-3e6, 3e6).Draw(t, "step")))
			hash := rapid.Uint64().Draw(t, "hash")
			id, err := g.Next(context.Background(), hash)
			if err != nil {
				t.Fatal(err)
			}
			slot := g.Layout().SlotOf(hash)
			if id <= last[slot] {
				t.Fatalf("slot %d: id %d after %d", slot, id, last[slot])
			}
			last[slot] = id
			if made := g.Layout().Decode(id).Time; made.After(clock.now) {
				t.Fatalf("id of %s at %s", made, clock.now)
			}
		}
	})
}

// drawSmallLayout draws a layout whose milliseconds are soon full.
func drawSmallLayout(t *rapid.T) Layout {
	layout, err := NewLayout(LayoutConfig{
		TimeBits: 41, GeneratorBits: 1,
		SlotBits:     rapid.IntRange(0, 2).Draw(t, "slot bits"),
		SequenceBits: rapid.IntRange(1, 2).Draw(t, "sequence bits"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return layout
}

// Many goroutines on several generators: every id is unique, and each goroutine sees its slots increase.
func TestUniqueUnderConcurrency(t *testing.T) {
	const generators, goroutines = 3, 8
	perGoroutine := 50_000
	switch {
	case testing.Short():
		perGoroutine = 10_000
	case thorough.Asked():
		perGoroutine = 200_000
	}
	var mu sync.Mutex
	var all []int64
	var group sync.WaitGroup
	for number := 1; number <= generators; number++ {
		g := mustNew(t, Config{Number: number})
		for worker := range goroutines {
			group.Go(func() {
				ids := makeIDs(t, g, perGoroutine, uint64(worker))
				mu.Lock()
				defer mu.Unlock()
				all = append(all, ids...)
			})
		}
	}
	group.Wait()
	if len(all) != generators*goroutines*perGoroutine {
		t.Fatalf("got %d ids", len(all))
	}
	slices.Sort(all)
	for i := 1; i < len(all); i++ {
		if all[i] == all[i-1] {
			t.Fatalf("id %d was made twice", all[i])
		}
	}
}

// makeIDs makes ids, one in eight for a slot that all goroutines share, and checks those it sees.
func makeIDs(t *testing.T, g *Generator, count int, seed uint64) []int64 {
	random := rand.New(rand.NewPCG(seed, uint64(g.number)))
	last := make([]int64, g.Layout().Slots())
	ids := make([]int64, 0, count)
	for i := range count {
		hash := random.Uint64()
		if i%8 == 0 {
			hash = 0
		}
		id, err := g.Next(context.Background(), hash)
		if err != nil {
			t.Error(err)
			return ids
		}
		slot := g.Layout().SlotOf(hash)
		if parts := g.Layout().Decode(id); id <= last[slot] || parts.Slot != slot || parts.Generator != g.number {
			t.Errorf("id %d for slot %d after %d has parts %+v", id, slot, last[slot], parts)
			return ids
		}
		last[slot] = id
		ids = append(ids, id)
	}
	return ids
}

// All goroutines on one slot, in one millisecond that is never full: nothing but the counter itself keeps ids apart.
func TestOneSlotUnderContention(t *testing.T) {
	const goroutines, perGoroutine = 8, 50_000
	layout, err := NewLayout(LayoutConfig{TimeBits: 39, GeneratorBits: 1, SequenceBits: 22})
	if err != nil {
		t.Fatal(err)
	}
	clock := newFakeClock()
	g := mustNew(t, Config{Number: 1, Layout: layout, Clock: clock})
	g.clock = stoppedClock{clock.now}
	made := make([][]int64, goroutines)
	var group sync.WaitGroup
	for worker := range goroutines {
		group.Go(func() {
			for range perGoroutine {
				id, err := g.Next(context.Background(), 0)
				if err != nil {
					t.Error(err)
					return
				}
				made[worker] = append(made[worker], id)
			}
		})
	}
	group.Wait()
	for _, ids := range made {
		checkIncreasing(t, ids)
	}
	all := slices.Sorted(slices.Values(slices.Concat(made...)))
	last := layout.Decode(all[len(all)-1]).Sequence
	if distinct := len(slices.Compact(all)); distinct != goroutines*perGoroutine || last != distinct-1 {
		t.Errorf("got %d different ids, the last with sequence %d, want %d without a hole", distinct, last, goroutines*perGoroutine)
	}
}

// The same while the clock jumps about: calls may fail, ids may not repeat. It goes forward in the long run, or ids would end.
func TestUniqueWhileClockJumps(t *testing.T) {
	clock := newFakeClock()
	g := mustNew(t, Config{Number: 1, Clock: clock})
	stop := make(chan struct{})
	var jumper, makers sync.WaitGroup
	jumper.Go(func() {
		random := rand.New(rand.NewPCG(5, 6))
		for {
			select {
			case <-stop:
				return
			default:
				clock.step(time.Duration(random.Int64N(401)-150) * time.Millisecond)
			}
		}
	})
	var mu sync.Mutex
	seen := map[int64]bool{}
	for range 4 {
		makers.Go(func() {
			last := int64(-1)
			for made := 0; made < 1_000; {
				id, err := g.Next(context.Background(), 0)
				var clockErr *ClockError
				if errors.As(err, &clockErr) {
					continue
				}
				mu.Lock()
				if err != nil || id <= last || seen[id] {
					t.Errorf("got %d, %v after %d (seen before: %v)", id, err, last, seen[id])
				}
				seen[id] = true
				mu.Unlock()
				last = id
				made++
			}
		})
	}
	makers.Wait()
	close(stop)
	jumper.Wait()
}

func TestSQLRefuses(t *testing.T) {
	for _, c := range []struct {
		config SQLConfig
		want   string
	}{
		{SQLConfig{Schema: `x"; DROP TABLE y; --`}, `id functions: schema "x\"; DROP TABLE y; --": only lower-case letters, digits and underscores are allowed, and no digit first`},
		{SQLConfig{Schema: "1st"}, `id functions: schema "1st": only lower-case letters, digits and underscores are allowed, and no digit first`},
		{SQLConfig{Schema: strings.Repeat("s", 64)}, `id functions: schema "` + strings.Repeat("s", 64) + `" has 64 bytes, want 1 to 63`},
		{SQLConfig{Generator: 128}, "id functions: generator 128 is not between 0 and 127"},
		{SQLConfig{Generator: -1}, "id functions: generator -1 is not between 0 and 127"},
		{SQLConfig{MaxBackwards: time.Millisecond}, "id functions: longest wait for the clock is 1ms, want at least 20 ms"},
	} {
		_, err := DefaultLayout().SQL(c.config)
		if err == nil || err.Error() != c.want {
			t.Errorf("got error %v, want %s", err, c.want)
		}
	}
	if _, err := UUIDSQL("No"); err == nil {
		t.Error("UUIDSQL took a bad schema")
	}
	for _, block := range []int64{0, -1, 1 << 31} {
		if _, _, err := SequenceSQL("s", "n", block); err == nil {
			t.Errorf("SequenceSQL took a block of %d", block)
		}
	}
	if _, _, err := SequenceSQL("s", "n'", 1); err == nil {
		t.Error("SequenceSQL took a bad name")
	}
}
