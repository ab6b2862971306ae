package reshard

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

// TestAPaceGivesWayQuicklyAndComesBackSlowly: multiplicatively down to a floor, additively up to all.
func TestAPaceGivesWayQuicklyAndComesBackSlowly(t *testing.T) {
	p := pace{share: 1}
	high, low, fair := pressure{much: 1.5}, pressure{much: 0.2}, pressure{much: 0.9}
	p.follow(high, true)
	if p.share != less {
		t.Errorf("after one look the share is %g", p.share)
	}
	p.follow(fair, true)
	if p.share != less {
		t.Errorf("what is just right changes the share to %g", p.share)
	}
	for range 100 {
		p.follow(high, true)
	}
	if p.share != slowest {
		t.Errorf("under steady pressure the share is %g, and must be %g", p.share, slowest)
	}
	p.follow(low, false)
	if p.share != slowest {
		t.Errorf("without pressure the share becomes %g, though something else keeps the work slow", p.share)
	}
	p.follow(low, true)
	if math.Abs(p.share-slowest-more) > 1e-9 {
		t.Errorf("after the pressure has gone the share is %g", p.share)
	}
	for range 100 {
		p.follow(low, true)
	}
	if p.share != 1 {
		t.Errorf("without pressure the share is %g", p.share)
	}
}

// TestARateSaysNothingOfTheShare: while there is work that rests for its rate alone, the share stays as it is, and grows when that is over.
func TestARateSaysNothingOfTheShare(t *testing.T) {
	th := &throttle{pace: pace{share: slowest}}
	th.restsForRate()
	th.conclude(pressure{}, false)
	if th.pace.share != slowest {
		t.Errorf("while the rate keeps the work slow the share becomes %g", th.pace.share)
	}
	th.conclude(pressure{}, false)
	if th.pace.share <= slowest {
		t.Error("the share never grows again")
	}
}

func TestARestIsInProportionToWork(t *testing.T) {
	for share, want := range map[float64]time.Duration{1: 0, 0.5: time.Second, 0.25: 3 * time.Second, slowest: 9 * time.Second} {
		p := pace{share: share}
		if got := p.rest(time.Second); got.Round(time.Millisecond) != want {
			t.Errorf("with a share of %g a second of work is followed by %s", share, got)
		}
	}
}

// TestAStandbyBehind: it is slower from half of the limit on, and stops at all of it.
func TestAStandbyBehind(t *testing.T) {
	limits := Limits{}.withDefaults()
	for behind, want := range map[time.Duration]struct {
		slows, stops bool
	}{0: {}, 4 * time.Second: {}, 6 * time.Second: {slows: true}, 10 * time.Second: {slows: true, stops: true}, time.Hour: {slows: true, stops: true}} {
		got := lagging("s1", []standby{{name: "near"}, {name: "far", behind: behind}}, limits)
		if got.much > 1 != want.slows || got.stops != want.stops {
			t.Errorf("%s behind: %+v", behind, got)
		}
		if want.slows && (!strings.Contains(got.why, "far of shard s1") || got.by != ByLag) {
			t.Errorf("%s behind is told as %q", behind, got.why)
		}
	}
	for _, none := range []Limits{{MaxLag: -1}, {MaxLag: time.Second, Off: true}} {
		if got := lagging("s1", []standby{{behind: time.Hour}}, none); got != (pressure{}) {
			t.Errorf("without a limit: %+v", got)
		}
	}
}

// TestBehindIsATime: how long ago the server was where the standby is now.
func TestBehindIsATime(t *testing.T) {
	now := time.Now()
	past := []position{{now.Add(-30 * time.Second), 100}, {now.Add(-20 * time.Second), 200}, {now.Add(-10 * time.Second), 200}, {now, 300}}
	for lsn, want := range map[int64]time.Duration{50: 30 * time.Second, 100: 20 * time.Second, 150: 20 * time.Second, 200: 0, 299: 0, 300: 0} {
		if got := behind(past, lsn, now); got != want {
			t.Errorf("at %d it is %s behind, not %s", lsn, got, want)
		}
	}
}

// TestSlotsThatKeepMuch: others' slots where it writes slow it down, its own makes it hurry.
func TestSlotsThatKeepMuch(t *testing.T) {
	limits := Limits{MaxWAL: 1000}.withDefaults()
	room := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		name                string
		slot                keeper
		elsewhere           bool
		slows, stops, hurry bool
		aged                float64
	}{
		{name: "an old snapshot", slot: keeper{kept: 400}, aged: 0.6, hurry: true},
		{name: "its own, and an old snapshot", slot: keeper{kept: 400, own: true}, aged: 0.6, hurry: true},
		{name: "a young snapshot", slot: keeper{kept: 400, own: true}, aged: 0.4},
		{name: "little", slot: keeper{kept: 400}},
		{name: "much", slot: keeper{kept: 600}, slows: true},
		{name: "nearly all", slot: keeper{kept: 950}, slows: true, stops: true},
		{name: "little room", slot: keeper{kept: 95, room: room(5)}, slows: true, stops: true},
		{name: "no room", slot: keeper{kept: 95, room: room(-5)}, slows: true, stops: true},
		{name: "enough room", slot: keeper{kept: 95, room: room(900)}},
		{name: "where nothing is written", slot: keeper{kept: 950}, elsewhere: true},
		{name: "lost", slot: keeper{kept: 950, lost: true}},
		{name: "its own", slot: keeper{kept: 600, own: true}, hurry: true},
		{name: "its own, little", slot: keeper{kept: 400, own: true}},
	} {
		g := &gauge{shard: "s1", writes: !c.elsewhere, aged: c.aged}
		got := g.keeping([]keeper{c.slot}, limits)
		if got.much > 1 != c.slows || got.stops != c.stops || g.hurry != c.hurry {
			t.Errorf("%s: %+v, hurry %t", c.name, got, g.hurry)
		}
	}
}

// TestLoadCountsWhereOthersAreAtWork: a small statement that takes long is no reason to give way to nobody.
func TestLoadCountsWhereOthersAreAtWork(t *testing.T) {
	limits := Limits{}.withDefaults()
	for _, c := range []struct {
		crowd float64
		took  time.Duration
		slows bool
	}{{0, 10 * time.Millisecond, false}, {2, 10 * time.Millisecond, true}, {2, 1500 * time.Microsecond, false}} {
		g := &gauge{r: &run{mover: New(Config{})}, shard: "s1", crowd: c.crowd}
		g.load(time.Millisecond, limits)
		var got pressure
		for range probes {
			got = g.load(c.took, limits)
		}
		if got.much > 1 != c.slows || got.stops {
			t.Errorf("%g statements, %s: %+v", c.crowd, c.took, got)
		}
	}
}

// TestAnAdjustmentLeavesTheRest: what is not said stays, and one that was not heard yet is not forgotten for a later one.
func TestAnAdjustmentLeavesTheRest(t *testing.T) {
	rate, load, off := int64(5), 3.0, true
	first, second := Adjustment{MaxRate: &rate, Off: &off}, Adjustment{MaxLoad: &load}
	got := second.after(first).Apply(Limits{MaxLag: time.Minute})
	if want := (Limits{Off: true, MaxRate: 5, MaxLoad: 3, MaxLag: time.Minute, MaxWAL: usualMaxWAL}); got != want {
		t.Errorf("%+v, not %+v", got, want)
	}
}

// TestAHurryGivesWayToStandbysAlone: what is not copied soon may be copied in vain, but nobody loses a standby for it.
func TestAHurryGivesWayToStandbysAlone(t *testing.T) {
	for by, rests := range map[Reason]bool{ByLoad: false, ByLag: true, ByWAL: true} {
		th := &throttle{what: "the copy", pace: pace{share: 0.5}}
		th.conclude(pressure{much: 2, by: by, why: "of something"}, true)
		if rest, _, _ := th.due(time.Second); rest > 0 != rests {
			t.Errorf("by %s it rests for %s", by, rest)
		}
		if th.waiting() != "" != rests {
			t.Errorf("by %s it says %q", by, th.waiting())
		}
	}
	th := &throttle{what: "the copy", pace: pace{share: 1}}
	th.conclude(pressure{much: 2, stops: true, by: ByLag, why: "of something"}, true)
	if _, _, stops := th.due(time.Second); !stops || th.waiting() != "the copy waits: of something" {
		t.Errorf("it stops: %t, and says %q", stops, th.waiting())
	}
}

// TestGivingWayComesToAnEnd: a target that does not come closer to the source gets more of its time, up to all of it, and gives back some when it comes closer quickly.
func TestGivingWayComesToAnEnd(t *testing.T) {
	th := &throttle{what: "catching up", pace: pace{share: 1}}
	var coming approach
	now := time.Now()
	look := func(bytes int64) float64 {
		now = now.Add(approachTime)
		th.conclude(pressure{much: 5, by: ByLoad, why: "of something"}, false)
		coming.look(th, bytes, now)
		return th.pace.share
	}
	for range 20 {
		look(1 << 30)
	}
	if share := look(1 << 30); share < 0.9 {
		t.Errorf("a target that never comes closer has %g of its time", share)
	}
	bytes := int64(1 << 30)
	for range 50 {
		bytes -= bytes / 5
		look(bytes)
	}
	if share := look(bytes - bytes/5); share > 2*slowest {
		t.Errorf("a target that comes closer quickly has %g of its time, whatever it is in the way of", share)
	}
	if before, after := th.pace.share, look(bytes*2); after < before {
		t.Errorf("a target that falls behind has %g of its time, and had %g", after, before)
	}
	coming.look(th, 1<<40, now.Add(time.Millisecond))
	if coming.bytes == 1<<40 {
		t.Error("it looks too often to see anything")
	}
}

// TestATargetIsTriedWithAllOfItsTime: nobody makes it rest meanwhile, and it is tried the more seldom the more that costs.
func TestATargetIsTriedWithAllOfItsTime(t *testing.T) {
	th := &throttle{what: "catching up", pace: pace{share: slowest}}
	if !th.isSlow() {
		t.Error("a target that has a tenth of its time counts as one that has all of it")
	}
	if !th.freely(func() bool { return !th.shutting.TryLock() }) {
		t.Error("the target may have to rest while it is tried")
	}
	if !th.shutting.TryLock() {
		t.Error("the target never has to rest again")
	}
	now := time.Now()
	for _, c := range []struct {
		bytes  int64
		slow   bool
		passed time.Duration
		due    bool
	}{
		{farBehind, false, 0, true},
		{farBehind, true, trySlow / 2, false},
		{farBehind, true, trySlow, true},
		{farBehind + 1, true, trySlow, false},
		{farBehind + 1, false, tryFar / 2, false},
		{farBehind + 1, false, tryFar, true},
	} {
		if got := (trial{now}).isDue(c.bytes, c.slow, now.Add(c.passed)); got != c.due {
			t.Errorf("%d bytes behind, slow %t, %s after the last time: %t", c.bytes, c.slow, c.passed, got)
		}
	}
}

// TestAHaltComesToAnEnd: whoever works goes on when a shard cannot be asked any more, to find out why, and when too much is kept for the move meanwhile, to say so.
func TestAHaltComesToAnEnd(t *testing.T) {
	server := pgtest.Start(t)
	conn, err := pgx.Connect(t.Context(), server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := &run{mover: &Mover{config: Config{Logger: slog.New(slog.DiscardHandler)}}, move: &Move{}}
	g := &gauge{r: r, conn: conn, last: pressure{stops: true, much: 2, by: ByLag}}
	if got := g.look(t.Context(), Limits{}.withDefaults()); got.stops || got.much != 2 {
		t.Errorf("a shard that does not answer: %+v", got)
	}
	looked := make(chan struct{})
	close(looked)
	lost := keeper{own: true, lost: true}
	for what, th := range map[string]*throttle{"a snapshot is too old": {aged: 1.1}, "the slot is lost": {slot: lost}, "the slot keeps too much": {slot: keeper{own: true, kept: usualMaxWAL + 1}}} {
		th.r, th.looked, th.now, th.endsRests = r, looked, pressure{stops: true, by: ByLag}, true
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if th.rest(ctx, time.Second, 1, 1); ctx.Err() != nil {
			t.Errorf("%s, and it rests for ever", what)
		}
		cancel()
	}
}
