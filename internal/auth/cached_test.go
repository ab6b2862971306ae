package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errAway = errors.New("the shard is away")

// directory is a source that a test changes.
type directory struct {
	mu    sync.Mutex
	users map[string]*User
	err   error
	asked int
}

func (d *directory) set(err error, names ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err, d.users = err, map[string]*User{}
	for _, name := range names {
		d.users[name] = &User{Name: name}
	}
}

func (d *directory) lookup(_ context.Context, user string) (*User, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	if d.err != nil {
		return nil, d.err
	}
	if found := d.users[user]; found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("of this name: %w", ErrNoUser)
}

// expectAsked looks up a user, and tells whether the source was asked.
func expectAsked(t *testing.T, c *Cached, d *directory, user string, want error, asked bool) {
	t.Helper()
	before := d.asked
	found, err := c.Lookup(t.Context(), user)
	if !errors.Is(err, want) || (err == nil) != (found != nil) {
		t.Errorf("%s: %+v, %v; want %v", user, found, err, want)
	}
	if (d.asked > before) != asked {
		t.Errorf("%s: asked %d times", user, d.asked-before)
	}
}

func TestAnswersAreRemembered(t *testing.T) {
	d := &directory{}
	d.set(nil, "a")
	c, clock := NewCached(d.lookup, 0, nil), newClock()
	c.now = clock.now
	expectAsked(t, c, d, "a", nil, true)
	expectAsked(t, c, d, "a", nil, false)
	clock.pass(defaultTTL)
	expectAsked(t, c, d, "a", nil, true)

	expectAsked(t, c, d, "b", ErrNoUser, true)
	expectAsked(t, c, d, "b", ErrNoUser, false)
	clock.pass(defaultTTL - 1)
	expectAsked(t, c, d, "b", ErrNoUser, false) // for as long as of those who exist, or the time would tell who does
	d.set(nil, "b")
	clock.pass(1)
	expectAsked(t, c, d, "b", nil, true) // who was created is let in soon

	clock.pass(defaultTTL)
	expectAsked(t, c, d, "a", ErrNoUser, true) // who was dropped is forgotten
	d.set(errAway)
	clock.pass(defaultTTL)
	expectAsked(t, c, d, "a", errAway, true)
}

// TestNobodyIsAskedForWhatIsNoName: a source would fail over them, which is not an answer.
func TestNobodyIsAskedForWhatIsNoName(t *testing.T) {
	d := &directory{}
	d.set(errAway)
	c := NewCached(d.lookup, 0, nil)
	for _, name := range []string{"", strings.Repeat("x", maxName+1), "\xff\xfe", "cut off \xc3", "a\x00b"} {
		expectAsked(t, c, d, name, ErrNoUser, false)
	}
	expectAsked(t, c, d, strings.Repeat("ä", maxName/2), errAway, true)
}

func TestFailuresAreToldNowAndThen(t *testing.T) {
	d := &directory{}
	d.set(nil, "known")
	var log bytes.Buffer
	c, clock := NewCached(d.lookup, 0, slog.New(slog.NewTextHandler(&log, nil))), newClock()
	c.now = clock.now
	expectAsked(t, c, d, "known", nil, true)
	d.set(errAway)
	clock.pass(defaultTTL)
	told := func() int { return strings.Count(log.String(), "\n") }
	for i := range 100 {
		expectAsked(t, c, d, "stranger"+strconv.Itoa(i), errAway, true)
	}
	expectAsked(t, c, d, "known", nil, true)
	if told() != 1 {
		t.Errorf("%d lines were logged:\n%s", told(), log.String())
	}
	clock.pass(complainEvery)
	expectAsked(t, c, d, "stranger", errAway, true)
	if told() != 2 || !strings.Contains(log.String(), "untold=100") {
		t.Errorf("%d lines were logged:\n%s", told(), log.String())
	}
}

// TestStrangersStandInLineBehindEachOther: whatever number of them come, the source is asked about one at a time, and those who
// are known pass them by.
func TestStrangersStandInLineBehindEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, together atomic.Int32
		answer := make(chan struct{})
		c := NewCached(func(_ context.Context, user string) (*User, error) {
			if user == "known" {
				return &User{Name: user}, nil
			}
			if asked.Add(1); together.Add(1) > 1 {
				t.Error("two strangers are asked about at once")
			}
			defer together.Add(-1)
			<-answer
			return nil, ErrNoUser
		}, 0, nil)
		if _, err := c.Lookup(t.Context(), "known"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(defaultTTL) // it has to be asked about again
		const more = 20
		var group sync.WaitGroup
		var crowded atomic.Int32
		for i := range maxInLane + more {
			group.Go(func() {
				_, err := c.Lookup(t.Context(), "stranger"+strconv.Itoa(i))
				if errors.Is(err, errCrowded) {
					crowded.Add(1)
				} else if !errors.Is(err, ErrNoUser) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if crowded.Load() != more {
			t.Errorf("%d were not let into the line", crowded.Load())
		}
		if user, err := c.Lookup(t.Context(), "known"); err != nil || user.Name != "known" {
			t.Errorf("%+v, %v", user, err)
		}
		close(answer)
		group.Wait()
		if asked.Load() != maxInLane {
			t.Errorf("%d were asked about", asked.Load())
		}
	})
}

// TestNobodyStandsInLineForLong: a source that hangs holds up one question, and the others hear so.
func TestNobodyStandsInLineForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCached(func(ctx context.Context, _ string) (*User, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, 0, nil)
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := c.Lookup(t.Context(), "first"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the first heard %v", err)
			}
		})
		synctest.Wait()
		if _, err := c.Lookup(t.Context(), "second"); !errors.Is(err, errCrowded) {
			t.Errorf("the second heard %v", err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Lookup(gone, "third"); !errors.Is(err, context.Canceled) {
			t.Errorf("who had gone heard %v", err)
		}
		group.Wait()
		if waiting := len(c.strange.present) + len(c.strange.turn); waiting != 0 {
			t.Errorf("the lane has %d in it", waiting)
		}
	})
}

func TestASourceThatIsAwayLocksNobodyOut(t *testing.T) {
	d := &directory{}
	d.set(nil, "a")
	var log bytes.Buffer
	c, clock := NewCached(d.lookup, 0, slog.New(slog.NewTextHandler(&log, nil))), newClock()
	c.now = clock.now
	expectAsked(t, c, d, "a", nil, true)
	d.set(errAway)
	clock.pass(maxStale - defaultTTL)
	expectAsked(t, c, d, "a", nil, true)
	if text := log.String(); !strings.Contains(text, "user=a") || !strings.Contains(text, errAway.Error()) {
		t.Errorf("the log says %q", text)
	}
	expectAsked(t, c, d, "a", nil, false) // not every login waits for the source
	expectAsked(t, c, d, "b", errAway, true)
	expectAsked(t, c, d, "b", errAway, true) // that nobody knows is not an answer
	clock.pass(defaultTTL)
	expectAsked(t, c, d, "a", nil, true)
	clock.pass(defaultTTL)
	expectAsked(t, c, d, "a", errAway, true) // an hour and more is too old
	d.set(nil, "a")
	expectAsked(t, c, d, "a", nil, true)
}

func TestMemoryIsBounded(t *testing.T) {
	d := &directory{}
	d.set(nil, "a")
	c := NewCached(d.lookup, time.Hour, nil)
	expectAsked(t, c, d, "a", nil, true)
	for i := range maxUnknown + 10 {
		expectAsked(t, c, d, "nobody"+strconv.Itoa(i), ErrNoUser, true)
	}
	expectAsked(t, c, d, "a", nil, false) // strangers drive nobody out
	if len(c.unknown) > maxUnknown {
		t.Errorf("%d names of nobody are kept", len(c.unknown))
	}
	for i := range maxKnown + 10 {
		c.remember(strconv.Itoa(i), &User{})
	}
	if len(c.known) > maxKnown || len(c.asked) > 0 {
		t.Errorf("%d users and %d questions are kept", len(c.known), len(c.asked))
	}
}

func TestManyLookUpsAreOne(t *testing.T) {
	for name, answer := range map[string]error{"found": nil, "nobody": ErrNoUser, "away": errAway} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int32
				release := make(chan struct{})
				c := NewCached(func(context.Context, string) (*User, error) {
					asked.Add(1)
					<-release
					if answer != nil {
						return nil, answer
					}
					return &User{Name: "a"}, nil
				}, 0, nil)
				var group sync.WaitGroup
				for range 50 {
					group.Go(func() {
						if user, err := c.Lookup(t.Context(), "a"); !errors.Is(err, answer) || (user == nil) != (answer != nil) {
							t.Errorf("%+v, %v", user, err)
						}
					})
				}
				impatient, cancel := context.WithCancel(t.Context())
				group.Go(func() {
					synctest.Wait() // all of them wait, one for the source and the others for it
					cancel()
					close(release)
				})
				group.Wait()
				if _, err := c.Lookup(impatient, "a"); name == "found" && err != nil {
					t.Errorf("an answer that is known is not given: %v", err)
				}
				if want := int32(1); name != "away" && asked.Load() != want {
					t.Errorf("asked %d times", asked.Load())
				}
			})
		})
	}
}

// TestWhoGivesUpLeavesTheQuestionToOthers: neither a client that goes away while it asks, nor a source that panics, fails
// those who wait for the answer.
func TestWhoGivesUpLeavesTheQuestionToOthers(t *testing.T) {
	for _, panics := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Int32
			ctx, cancel := context.WithCancel(t.Context())
			c := NewCached(func(ctx context.Context, _ string) (*User, error) {
				if asked.Add(1) > 1 {
					return &User{Name: "a"}, nil
				}
				<-ctx.Done()
				if panics {
					panic("the source broke")
				}
				return nil, ctx.Err()
			}, 0, nil)
			var group sync.WaitGroup
			group.Go(func() {
				defer func() {
					if r := recover(); (r != nil) != panics {
						t.Errorf("recovered %v", r)
					}
				}()
				if _, err := c.Lookup(ctx, "a"); !errors.Is(err, context.Canceled) {
					t.Errorf("who gave up got %v", err)
				}
			})
			synctest.Wait()
			for range 10 {
				group.Go(func() {
					if user, err := c.Lookup(t.Context(), "a"); err != nil || user.Name != "a" {
						t.Errorf("%+v, %v", user, err)
					}
				})
			}
			gone, goneCancel := context.WithCancel(t.Context())
			goneCancel()
			if _, err := c.Lookup(gone, "a"); !errors.Is(err, context.Canceled) {
				t.Errorf("who waited and gave up got %v", err)
			}
			synctest.Wait()
			cancel()
			group.Wait()
			if asked.Load() != 2 {
				t.Errorf("asked %d times", asked.Load())
			}
		})
	}
}
