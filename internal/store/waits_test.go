package store

import (
	"encoding/json"
	"errors"
	"strconv"
	"testing"
	"time"
)

// TestWaits: a router's records come and go with it, a verdict is about the record as it was read, and only the leader gives one.
func TestWaits(t *testing.T) {
	etcd := startMember(t)
	s := openStore(t, etcd.endpoints())
	ctx := testContext(t)
	register := func(id string) *Registration {
		t.Helper()
		r, err := s.Register(ctx, Router{ID: id, Name: id})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	one, other := register("one"), register("other")
	leader, err := s.Campaign(ctx, "one")
	if err != nil {
		t.Fatal(err)
	}
	exchange := func(r *Registration, put map[string]json.RawMessage, remove ...string) (bodies, verdicts map[string]json.RawMessage, revision int64) {
		t.Helper()
		bodies, verdicts, revision, err := r.ExchangeWaits(ctx, put, remove)
		if err != nil {
			t.Fatal(err)
		}
		return bodies, verdicts, revision
	}
	list := func(want int) []Wait {
		t.Helper()
		waits, _, err := s.Waits(ctx)
		if err != nil || len(waits) != want {
			t.Fatalf("there are %v, not %d, %v", waits, want, err)
		}
		return waits
	}

	// More than one request takes.
	many := map[string]json.RawMessage{}
	for i := range 2*waitsPerRequest + 1 {
		many[strconv.Itoa(i)] = json.RawMessage(`{"n":1}`)
	}
	if bodies, _, _ := exchange(one, many); len(bodies) != len(many) || string(bodies["7"]) != `{"n":1}` {
		t.Errorf("%d are stored, not %d", len(bodies), len(many))
	}
	exchange(other, map[string]json.RawMessage{"7": json.RawMessage(`2`)})
	list(len(many) + 1)
	var rest []string
	for id := range many {
		if id != "7" {
			rest = append(rest, id)
		}
	}
	bodies, verdicts, revision := exchange(one, nil, rest...)
	if len(bodies) != 1 || len(verdicts) != 0 {
		t.Errorf("what is left is %v, %v", bodies, verdicts)
	}

	// A verdict wakes its router, and is gone when the record is put again.
	waits := list(2)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		one.AwaitVerdict(ctx, revision, time.Minute)
	}()
	if err := leader.Judge(ctx, waits[0], json.RawMessage(`"guilty"`)); err != nil {
		t.Fatal(err)
	}
	<-heard
	if bodies, verdicts, _ := exchange(one, nil); string(verdicts["7"]) != `"guilty"` || string(bodies["7"]) != `{"n":1}` {
		t.Errorf("the router reads %s, %s", bodies["7"], verdicts["7"])
	}
	if err := leader.Judge(ctx, waits[0], json.RawMessage(`"again"`)); !errors.Is(err, ErrConflict) {
		t.Errorf("a verdict on what was read earlier: %v", err)
	}
	if err := leader.Judge(ctx, waits[1], json.RawMessage(`"guilty"`), waits[0]); !errors.Is(err, ErrConflict) {
		t.Errorf("a verdict on what was read earlier is taken back: %v", err)
	}
	waits = list(2)
	if err := leader.Judge(ctx, waits[1], json.RawMessage(`"guilty"`), waits[0]); err != nil {
		t.Fatal(err)
	}
	if _, verdicts, _ := exchange(one, nil); len(verdicts) != 0 {
		t.Errorf("the verdict is not taken back: %v", verdicts)
	}
	if _, verdicts, _ := exchange(other, nil); len(verdicts) != 1 {
		t.Errorf("the other verdict is not there: %v", verdicts)
	}
	if err := leader.Judge(ctx, list(2)[0], json.RawMessage(`"guilty"`)); err != nil {
		t.Fatal(err)
	}
	if _, verdicts, _ := exchange(one, map[string]json.RawMessage{"7": json.RawMessage(`3`)}); len(verdicts) != 0 {
		t.Errorf("the verdict is still there: %v", verdicts)
	}

	// Who does not lead any more gives none.
	waits = list(2)
	if err := leader.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	if err := leader.Judge(ctx, waits[0], json.RawMessage(`"guilty"`)); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a verdict of a former leader: %v", err)
	}

	// The records go with the router, those with a verdict too.
	leader, err = s.Campaign(ctx, "one")
	if err != nil {
		t.Fatal(err)
	}
	if err := leader.Judge(ctx, waits[0], json.RawMessage(`"guilty"`)); err != nil {
		t.Fatal(err)
	}
	_, before, err := s.Waits(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	s.AwaitWaits(ctx, before, time.Minute)
	if left := list(1); left[0].Router != "other" || left[0].ID != "7" || string(left[0].Body) != "2" {
		t.Errorf("what is left is %+v", left)
	}
	_ = other.Close()
	_ = leader.Resign(ctx)
}
