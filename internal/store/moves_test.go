package store

import (
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cleavedb/cleave/internal/topology"
)

// TestMovesKeepTables: while one is under way nobody holds its tables, rolls anything out to them or moves them.
func TestMovesKeepTables(t *testing.T) {
	t.Parallel()
	s := living(t, startMember(t), "router")
	ctx := t.Context()
	moving := topology.Moving{ID: "m1", Keyspace: "main", Tables: []topology.TableName{{Schema: "public", Name: "a"}, {Schema: "public", Name: "Odd name"}}}
	first, err := s.BeginMove(ctx, moving)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := s.Schema(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, stored); diff != "" {
		t.Errorf("written (-) and read (+) differ:\n%s", diff)
	}
	if again, err := s.BeginMove(ctx, moving); err != nil || again.Epoch != first.Epoch {
		t.Errorf("the same move again: epoch %d, %v", again.Epoch, err)
	}
	var inTheWay *MovingError
	if _, err := s.BeginMove(ctx, topology.Moving{ID: "m2", Keyspace: "main", Tables: moving.Tables[:1]}); !errors.As(err, &inTheWay) || inTheWay.Move.ID != "m1" {
		t.Errorf("another move: %v", err)
	}
	if _, err := s.Hold(ctx, holdOf("h", "router", "a")); !errors.As(err, &inTheWay) {
		t.Errorf("a hold: %v", err)
	}
	if _, err := s.BeginRollout(ctx, rolloutOf("r", "a")); !errors.As(err, &inTheWay) {
		t.Errorf("a roll-out: %v", err)
	}
	if _, err := s.Hold(ctx, holdOf("h", "router", "b")); err != nil {
		t.Error(err)
	}
	if _, err := s.BeginMove(ctx, topology.Moving{ID: "m3", Keyspace: "other", Tables: []topology.TableName{{Schema: "public", Name: "b"}}}); !errors.Is(err, ErrHeld) {
		t.Errorf("a move of what is held: %v", err)
	}
	for range 2 { // one that has ended can be ended again
		if state, err := s.EndMove(ctx, "m1"); err != nil || len(state.Moves) != 0 {
			t.Errorf("ended: %+v, %v", state.Moves, err)
		}
	}
	if _, err := s.Hold(ctx, holdOf("h2", "router", "a")); err != nil {
		t.Error(err)
	}
}

// TestWishesForJobs: anybody asks for a job and says what should become of it, and the leader alone changes it.
func TestWishesForJobs(t *testing.T) {
	t.Parallel()
	s := living(t, startMember(t), "router")
	ctx := t.Context()
	job := Job{ID: "j", Kind: "move", State: "asked", Body: json.RawMessage(`{"a":1}`)}
	asked, err := s.AskJob(ctx, job)
	if err != nil || asked.Revision == 0 {
		t.Fatalf("%+v, %v", asked, err)
	}
	if _, err := s.AskJob(ctx, job); !errors.Is(err, ErrExists) {
		t.Errorf("asked twice: %v", err)
	}
	if err := s.Wish(ctx, "none", "cancel"); !errors.Is(err, ErrNoJob) {
		t.Errorf("a wish for nothing: %v", err)
	}
	for _, wish := range []string{"pause", "cancel"} {
		if err := s.Wish(ctx, "j", wish); err != nil {
			t.Fatal(err)
		}
	}
	wishes, _, err := s.Wishes(ctx)
	if err != nil || wishes["j"].Text != "cancel" || len(wishes) != 1 {
		t.Errorf("wished %v, %v", wishes, err)
	}
	heard := wishes["j"].Revision
	if err := s.ForgetWish(ctx, "j", heard-1); err != nil {
		t.Error(err)
	}
	if wishes, _, _ := s.Wishes(ctx); wishes["j"].Text != "cancel" {
		t.Error("a wish that nobody heard was forgotten")
	}
	if err := s.ForgetWish(ctx, "j", heard); err != nil {
		t.Error(err)
	}
	if wishes, _, _ := s.Wishes(ctx); len(wishes) > 0 {
		t.Errorf("%v are still wished", wishes)
	}
	leader, err := s.Campaign(ctx, "me")
	if err != nil {
		t.Fatal(err)
	}
	asked.State = "begun"
	if asked, err = leader.UpdateJob(ctx, asked); err != nil {
		t.Error(err)
	}
	if err := s.Wish(ctx, "j", "pause"); err != nil {
		t.Error(err)
	}
	if err := s.Adjust(ctx, "j", func(string) (string, error) { return "slowly", nil }); err != nil {
		t.Error(err)
	}
	if err := leader.DeleteJob(ctx, asked); err != nil {
		t.Error(err)
	}
	if wishes, adjustments, err := s.Wishes(ctx); len(wishes)+len(adjustments) > 0 || err != nil {
		t.Errorf("of a job that is gone somebody wishes %v and %v: %v", wishes, adjustments, err)
	}
	if err := leader.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := leader.UpdateMap(ctx, func(m *topology.Map) (*topology.Map, error) { return m.Next() }); !errors.Is(err, ErrNotLeader) {
		t.Errorf("who does not lead changed the map: %v", err)
	}
}

// TestAdjustmentsOfJobs: each gets what was said before and not heard, and none takes the place of a wish.
func TestAdjustmentsOfJobs(t *testing.T) {
	t.Parallel()
	s := living(t, startMember(t), "router")
	ctx := t.Context()
	add := func(text string) func(string) (string, error) {
		return func(before string) (string, error) { return before + text, nil }
	}
	if err := s.Adjust(ctx, "j", add("a")); !errors.Is(err, ErrNoJob) {
		t.Errorf("an adjustment of nothing: %v", err)
	}
	if _, err := s.AskJob(ctx, Job{ID: "j", Kind: "move", State: "asked"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Wish(ctx, "j", "cancel"); err != nil {
		t.Fatal(err)
	}
	var adjusting sync.WaitGroup
	for range 5 {
		adjusting.Go(func() {
			if err := s.Adjust(ctx, "j", add("a")); err != nil {
				t.Error(err)
			}
		})
	}
	adjusting.Wait()
	wishes, adjustments, err := s.Wishes(ctx)
	if err != nil || adjustments["j"].Text != "aaaaa" || wishes["j"].Text != "cancel" || len(wishes)+len(adjustments) != 2 {
		t.Errorf("wished %v, adjusted %v, %v", wishes, adjustments, err)
	}
	revision := adjustments["j"].Revision
	refused := errors.New("no")
	if err := s.Adjust(ctx, "j", func(string) (string, error) { return "", refused }); !errors.Is(err, refused) {
		t.Errorf("one that is refused: %v", err)
	}
	for _, c := range []struct {
		revision int64
		left     string
	}{{revision - 1, "aaaaa"}, {revision, ""}} {
		if err := s.ForgetAdjustment(ctx, "j", c.revision); err != nil {
			t.Fatal(err)
		}
		if _, adjustments, _ := s.Wishes(ctx); adjustments["j"].Text != c.left {
			t.Errorf("%q is left, not %q", adjustments["j"].Text, c.left)
		}
	}
}

// TestMovesOfSchemasKeepAllInThem, whatever it is called.
func TestMovesOfSchemasKeepAllInThem(t *testing.T) {
	t.Parallel()
	s := living(t, startMember(t), "router")
	ctx := t.Context()
	first, err := s.BeginMove(ctx, topology.Moving{ID: "m1", Schemas: []string{"public"}})
	if err != nil {
		t.Fatal(err)
	}
	stored, err := s.Schema(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, stored); diff != "" {
		t.Errorf("written (-) and read (+) differ:\n%s", diff)
	}
	if _, moves := stored.MoveOf(topology.TableName{Schema: "public", Name: "whatever"}); !moves {
		t.Error("what is in the schema may be changed")
	}
	var inTheWay *MovingError
	for what, other := range map[string]topology.Moving{"the schema": {ID: "m2", Schemas: []string{"public"}}, "a table of it": {ID: "m2", Tables: []topology.TableName{{Schema: "public", Name: "a"}}}} {
		if _, err := s.BeginMove(ctx, other); !errors.As(err, &inTheWay) || inTheWay.Move.ID != "m1" {
			t.Errorf("another move of %s: %v", what, err)
		}
	}
	if _, err := s.Hold(ctx, holdOf("h", "router", "a")); !errors.As(err, &inTheWay) {
		t.Errorf("a hold: %v", err)
	}
	if _, err := s.EndMove(ctx, "m1"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Hold(ctx, holdOf("h", "router", "a")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.BeginMove(ctx, topology.Moving{ID: "m2", Schemas: []string{"public"}}); !errors.Is(err, ErrHeld) {
		t.Errorf("a move of a schema with a table that is held: %v", err)
	}
	if _, err := s.BeginMove(ctx, topology.Moving{ID: "m3", Schemas: []string{"other"}}); err != nil {
		t.Errorf("a move of another schema: %v", err)
	}
}
