package reshard

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// asked is a move that somebody has asked for, in a store of its own, and its leader.
func asked(t *testing.T) (*store.Store, *store.Leadership, *Move) {
	t.Helper()
	e, err := store.StartEmbedded(t.Context(), store.EmbeddedConfig{Dir: t.TempDir(), Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	s, err := store.Open(store.Config{Endpoints: e.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	l, err := s.Campaign(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	m := &Move{Keyspace: "k", Source: "a", Target: "b"}
	if err := Ask(t.Context(), s, m); err != nil {
		t.Fatal(err)
	}
	return s, l, m
}

// TestASaveThatIsCutOff: a phase ends, by a wish for example, while the move is being stored. The run must not know another move than the store.
func TestASaveThatIsCutOff(t *testing.T) {
	s, l, m := asked(t)
	r := newRun(New(Config{Store: s}), l, m)
	for i := range 500 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Duration(i%60)*10*time.Microsecond, cancel)
		_ = r.save(ctx, func(m *Move) { m.Cleaned++ }) // it may fail
		cancel()
		if err := r.save(t.Context(), func(m *Move) { m.Waiting = "later" }); err != nil {
			t.Fatalf("after %d saves the move cannot be stored any more: %v", i, err)
		}
	}
}

// TestAMoveThatHasEndedIsNotRunAgain: the list of moves may be older than the end of a run, and what the run has done must not be done again to rows that are somebody else's by then.
func TestAMoveThatHasEndedIsNotRunAgain(t *testing.T) {
	s, l, m := asked(t)
	v := New(Config{Store: s})
	before, err := v.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := newRun(v, l, m).enter(t.Context(), Cancelled); err != nil {
		t.Fatal(err)
	}
	stale := open(before)[0]
	if still, err := v.isStill(t.Context(), stale); err != nil || still {
		t.Errorf("a move that has ended meanwhile counts as it was: %v", err)
	}
	ended := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		defer close(ended)
		newRun(v, l, stale).carryOut(ctx)
	}()
	<-ended
	if ctx.Err() != nil {
		t.Error("a run that knows another move than the store goes on for ever")
	}
}

// TestOneMoveOfAKeyspaceAtATime: one that is under way comes before those that are only asked for, also while nobody carries it out, as behind an election. Those of other keyspaces do not wait.
func TestOneMoveOfAKeyspaceAtATime(t *testing.T) {
	t.Parallel()
	begun, asked, elsewhere := &Move{ID: "begun", Keyspace: "k", Phase: Preparing}, &Move{ID: "asked", Keyspace: "k", Phase: Asked}, &Move{ID: "elsewhere", Keyspace: "other", Phase: Asked}
	moves, nobody := []*Move{begun, asked, elsewhere}, &running{moves: map[string]*run{}}
	if nobody.waits(begun, moves) || !nobody.waits(asked, moves) || nobody.waits(elsewhere, moves) {
		t.Errorf("while nobody carries anything out these wait: %t, %t, %t", nobody.waits(begun, moves), nobody.waits(asked, moves), nobody.waits(elsewhere, moves))
	}
	if one := (&running{moves: map[string]*run{"asked": {}}}); !one.waits(begun, moves) {
		t.Error("a move begins while another one of the keyspace is carried out")
	}
}

// TestTheMapAloneChangesOnlyWithoutTables: a keyspace had no tables when the move looked, and when it gives the ranges away it has one, with rows that nobody would find.
func TestTheMapAloneChangesOnlyWithoutTables(t *testing.T) {
	s, l, m := asked(t)
	if err := s.Create(t.Context(), world(t)); err != nil {
		t.Fatal(err)
	}
	m.Keyspace, m.Ranges = "main", []Range{{To: topology.Point{"2000000000000000"}}}
	r := newRun(New(Config{Store: s}), l, m)
	if _, err := r.publish(t.Context(), plain("b"), nil, plain("a")); !errors.Is(err, errOtherMap) {
		t.Errorf("the ranges of a table were given away: %v", err)
	}
	if _, err := s.Update(t.Context(), func(m *topology.Map) (*topology.Map, error) { return m.Next(topology.DropTable("public.t")) }); err != nil {
		t.Fatal(err)
	}
	if _, err := r.publish(t.Context(), plain("b"), nil, plain("a")); err != nil {
		t.Error(err)
	}
}

// TestWhatIsUntouchedIsCancelled though its keyspace and its shards are gone.
func TestWhatIsUntouchedIsCancelled(t *testing.T) {
	s, l, m := asked(t)
	empty, err := topology.New("00000000-0000-4000-8000-000000000000")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Create(t.Context(), empty); err != nil {
		t.Fatal(err)
	}
	r := newRun(New(Config{Store: s}), l, m)
	if err := r.enter(t.Context(), Cancelling); err != nil {
		t.Fatal(err)
	}
	if err := r.cancel(t.Context()); err != nil || r.state().Phase != Cancelled {
		t.Errorf("%v, it is %s", err, r.state().Phase)
	}
}

// TestWishesAreGrantedInTheirTime: what may be wished in a phase, and what becomes of the move.
func TestWishesAreGrantedInTheirTime(t *testing.T) {
	for _, c := range []struct {
		wish    Wish
		phase   Phase
		becomes Phase
		granted bool
	}{
		{Cancel, Copying, Cancelling, true}, {Cancel, Switching, Cancelling, true}, {Cancel, RollingBack, Switched, true}, {Cancel, Switched, Switched, false}, {Cancel, Cleaning, Cleaning, false},
		{Pause, Ready, Ready, true}, {Pause, Switching, Switching, true}, {Pause, RollingBack, RollingBack, false},
		{Finish, Switched, Switched, true}, {Finish, RollingBack, Switched, true}, {Finish, Ready, Ready, false},
		{RollBack, Switched, RollingBack, true}, {RollBack, Ready, Ready, false}, {Switch, Ready, Ready, true}, {Switch, Switched, Switched, false},
	} {
		m := &Move{Phase: c.phase, WayBack: true, RollsBack: c.phase == RollingBack}
		m.grant(c.wish)
		if m.Phase != c.becomes || (m.Error == "") != c.granted {
			t.Errorf("%s while %s: it is %s, error %q", c.wish, c.phase, m.Phase, m.Error)
		}
		if m.RollsBack != (m.Phase == RollingBack) {
			t.Errorf("%s while %s: the direction is wrong", c.wish, c.phase)
		}
	}
	m := &Move{Phase: Copying, Stopped: "both sides differ"}
	if m.grant(Switch); m.SwitchNow || m.Error == "" {
		t.Errorf("a switch is wished of a move that has stopped: it would come by itself, error %q", m.Error)
	}
	m.grant(Resume)
	if m.grant(Switch); !m.SwitchNow || m.Error != "" {
		t.Errorf("a switch is wished of one that was resumed, error %q", m.Error)
	}
}

// TestASwitchThatIsNotWantedDoesNotBegin: somebody cancels between the last look and the first statement that would be held.
func TestASwitchThatIsNotWantedDoesNotBegin(t *testing.T) {
	s, l, m := asked(t)
	r := newRun(New(Config{Store: s}), l, m)
	if err := r.enter(t.Context(), Switching); err != nil {
		t.Fatal(err)
	}
	r.hear(store.Wish{Text: string(Cancel), Revision: 1})
	if _, wanted := r.holds(); wanted {
		t.Error("it holds statements for a switch that nobody wants")
	}
	r.mu.Lock()
	r.heard = ""
	r.mu.Unlock()
	end, wanted := r.holds()
	if !wanted || r.interrupts(Cancel) {
		t.Error("a switch that has begun is cut off")
	}
	end()
}

// TestAWishIsNotLostBetweenTwoPhases: it is heard when the one has ended and the other has not begun, and the other one may take hours.
func TestAWishIsNotLostBetweenTwoPhases(t *testing.T) {
	s, l, m := asked(t)
	r := newRun(New(Config{Store: s}), l, m)
	if err := r.enter(t.Context(), Copying); err != nil {
		t.Fatal(err)
	}
	r.hear(store.Wish{Text: string(Cancel), Revision: 1})
	if err := r.attempt(t.Context()); !errors.Is(err, errWished) {
		t.Errorf("the phase began: %v", err)
	}
	if err := r.obey(t.Context()); err != nil || r.state().Phase != Cancelling {
		t.Errorf("%v, it is %s", err, r.state().Phase)
	}
}

// TestACancelledCopyEnds when its watcher has done what was wished, and what it has copied does not bring the move further.
func TestACancelledCopyEnds(t *testing.T) {
	s, l, m := asked(t)
	r := newRun(New(Config{Store: s}), l, m)
	if err := r.enter(t.Context(), Copying); err != nil {
		t.Fatal(err)
	}
	c := &copier{r: r, move: r.state(), throttle: &throttle{}}
	r.hear(store.Wish{Text: string(Cancel), Revision: 1})
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	time.AfterFunc(20*time.Second, func() { end(errors.New("it goes on")) })
	c.watch(ctx, end)
	if !errors.Is(context.Cause(ctx), errWished) {
		t.Errorf("the copy: %v", context.Cause(ctx))
	}
	if err := r.save(t.Context(), c.end); err != nil || r.state().Phase != Cancelling || r.state().Copied {
		t.Errorf("%v, it is %s", err, r.state().Phase)
	}
}

// TestAWishIsForgotten though the store did not answer when it had been obeyed: a later leader would hear it again.
func TestAWishIsForgotten(t *testing.T) {
	s, l, m := asked(t)
	r := newRun(New(Config{Store: s}), l, m)
	if err := s.Wish(t.Context(), m.ID, string(Pause)); err != nil {
		t.Fatal(err)
	}
	wishes, _, err := s.Wishes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.hear(wishes[m.ID])
	if err := r.enter(t.Context(), Copying); err != nil {
		t.Fatal(err)
	}
	away, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.obey(away); err == nil || !r.state().Paused {
		t.Errorf("%v, paused %t", err, r.state().Paused)
	}
	r.hear(wishes[m.ID]) // nobody wishes it anew
	if err := r.obey(t.Context()); err != nil {
		t.Error(err)
	}
	if left, _, err := s.Wishes(t.Context()); len(left) > 0 || err != nil {
		t.Errorf("%v are wished still, %v", left, err)
	}
}

// TestWhatGoesAwayBeginsAnew when it comes again: nobody looked in between.
func TestWhatGoesAwayBeginsAnew(t *testing.T) {
	r := &run{}
	first := r.deafSince("x", false)
	if again := r.deafSince("x", false); first.IsZero() || !again.Equal(first) {
		t.Errorf("since %s, and then since %s", first, again)
	}
	old := time.Now().Add(-time.Hour)
	r.deaf["x"] = absence{since: old, seen: old}
	if again := r.deafSince("x", false); time.Since(again) > time.Minute {
		t.Errorf("nobody has looked for an hour, and it is deaf since %s", again)
	}
	if again := r.deafSince("x", true); !again.IsZero() {
		t.Errorf("it hears, and is deaf since %s", again)
	}
}

// TestTheMapAloneChangesOnlyForItsOwner: a second move of the same ranges, without a table, finds that somebody else has them, and says so rather than try again for ever.
func TestTheMapAloneChangesOnlyForItsOwner(t *testing.T) {
	s, l, m := asked(t)
	now, err := world(t).Next(topology.DropTable("public.t"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Create(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	m.Keyspace, m.Source, m.Target = "main", "a", "b"
	for _, c := range []struct {
		ranges []Range
		ends   bool
	}{
		{[]Range{{To: topology.Point{"4000000000000000"}}}, true},
		{[]Range{{To: topology.Point{"4000000000000000"}}}, true}, // it is the target's already
		{[]Range{{To: topology.Point{"c000000000000000"}}}, false},
	} {
		m.Ranges, m.Phase = c.ranges, Checking
		r := newRun(New(Config{Store: s}), l, m)
		var final *stopped
		if err := r.onlyTheMap(t.Context()); (err == nil) != c.ends || err != nil && !errors.As(err, &final) {
			t.Errorf("up to %s: %v", c.ranges[0].To, err)
		}
		m = r.state()
	}
}

// holding is a move whose switch holds statements, though nothing was done on a shard yet.
func holding(t *testing.T) (*store.Store, *switching) {
	t.Helper()
	s, l, m := asked(t)
	if err := s.Create(t.Context(), world(t)); err != nil {
		t.Fatal(err)
	}
	m.Keyspace, m.Ranges, m.Published = "main", []Range{{To: topology.Point{"2000000000000000"}}}, []string{"public.t"}
	r := newRun(New(Config{Store: s}), l, m)
	if err := r.enter(t.Context(), Switching); err != nil {
		t.Fatal(err)
	}
	c := r.state().course()
	for _, step := range [][2]mark{{c.announced(), plain("a")}, {c.holding(), c.announced()}} {
		if _, err := r.publish(t.Context(), step[0], nil, step[1]); err != nil {
			t.Fatal(err)
		}
	}
	return s, &switching{r: r, move: r.state(), course: c, begun: time.Now()}
}

func (s *switching) expect(t *testing.T, want mark) {
	t.Helper()
	if is, alike, err := s.r.markedNow(t.Context()); err != nil || !alike || is != want {
		t.Errorf("the map says %+v, %t, %v, and not %+v", is, alike, err, want)
	}
}

// TestAProcessThatIsToEndTakesItsSwitchBack: statements must not wait for the next leader.
func TestAProcessThatIsToEndTakesItsSwitchBack(t *testing.T) {
	_, s := holding(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.failed(ctx, "settle", ctx.Err()); err == nil || len(s.r.state().Switches) != 1 {
		t.Errorf("%v, %+v", err, s.r.state().Switches)
	}
	s.expect(t, s.before())
}

// TestASwitchIsTakenBackWhateverWasDeclared meanwhile, by a map that somebody has imported for example: it does not begin, and what is held is let go.
func TestASwitchIsTakenBackWhateverWasDeclared(t *testing.T) {
	st, s := holding(t)
	if _, err := st.Update(t.Context(), func(m *topology.Map) (*topology.Map, error) {
		return m.Next(topology.SetTable(topology.TableSpec{Name: "public.new", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"}}))
	}); err != nil {
		t.Fatal(err)
	}
	var final *stopped
	if _, err := s.r.publish(t.Context(), s.closed(), nil, s.holding()); !errors.As(err, &final) {
		t.Errorf("it goes on: %v", err)
	}
	if err := s.takeBack(t.Context()); err != nil {
		t.Error(err)
	}
	s.expect(t, s.before())
	if err := s.hold(t.Context()); !errors.As(err, &final) {
		t.Errorf("it begins: %v", err)
	}
}

// TestATableWhoseSchemaIsPlaced after its move was asked for does not move by itself; with the schema it does.
func TestATableWhoseSchemaIsPlaced(t *testing.T) {
	tenants := topology.NewKeyspaceSpec("tenants", topology.BySchema, 1)
	tenants.Ranges, tenants.Pins = []topology.RangeSpec{{Shard: "a"}}, []topology.PinSpec{{Key: topology.Point{"acme"}, Shard: "a"}}
	now, err := world(t).Next(topology.CreateKeyspace(tenants))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		move   Move
		isFree bool
	}{
		{Move{Whole: []string{"public.t", "acme.t"}}, false},
		{Move{Whole: []string{"acme.t"}, Schemas: []string{"acme"}}, true},
		{Move{Whole: []string{"public.t"}}, true},
	} {
		var final *stopped
		if err := c.move.isFree(now); (err == nil) != c.isFree || err != nil && !errors.As(err, &final) {
			t.Errorf("tables %v of schemas %v: %v", c.move.Whole, c.move.Schemas, err)
		}
	}
}

// TestASwitchThatBeganInAQuietMoment waits for routers hardly longer than they take that have nothing to let go, looks for another such moment a few times, and waits then.
func TestASwitchThatBeganInAQuietMoment(t *testing.T) {
	const limit, taken = time.Second, "settle: router r1 has not settled at once"
	for _, c := range []struct {
		quiet     bool
		failed    []string
		published time.Duration
		want      time.Duration
	}{
		{false, nil, time.Millisecond, limit / 2},
		{true, nil, time.Millisecond, settlesSoon},
		{true, nil, 20 * time.Millisecond, publishings * 20 * time.Millisecond},
		{true, nil, time.Second, limit / 2},
		{true, []string{taken, taken}, time.Millisecond, settlesSoon},
		{true, []string{taken, taken, taken}, time.Millisecond, limit / 2},
		{true, []string{taken, taken, taken, "close: the shard is away"}, time.Millisecond, settlesSoon},
	} {
		m := &Move{Options: Options{PauseLimit: limit}}
		for _, failed := range c.failed {
			m.attempted(Attempt{Failed: failed})
		}
		if got := (&switching{move: m, quiet: c.quiet}).settlesWithin(c.published); got != c.want {
			t.Errorf("quiet %t, after %q, published within %s: it waits %s, and should wait %s", c.quiet, c.failed, c.published, got, c.want)
		}
	}
}
