package control

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/reshard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// TestHoldsOfTheDead has the lines of the schema state's crash table in package store's DESIGN.md that are the leader's, under
// their numbers.
func TestHoldsOfTheDead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		run  func(*testing.T, []string)
	}{
		{"02 the holder dies with the hold", holderDies},
		{"03 the holder dies with the map published", holderDiesAfterMap},
		{"12 the holder's record is lost for a moment", recordLostForAMoment},
		{"15 the leader dies in the middle", leaderDiesFinishing},
		{"16 what was left cannot be finished yet", finishingFails},
		{"18 etcd is put back to an earlier state", stateWentBack},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, startEtcd(t)) })
	}
}

var orders = topology.TableName{Schema: "public", Name: "orders"}

// openHolder registers a router that holds the table orders, with a store of its own: closing that is its death, and the lease
// tells of it.
func openHolder(t *testing.T, endpoints []string, lease time.Duration) (*store.Store, *store.Registration) {
	t.Helper()
	s, err := store.Open(store.Config{Endpoints: endpoints, LeaseTTL: lease, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	registration := registerRouter(t, s, "holder")
	if _, err := s.Hold(t.Context(), topology.Hold{ID: "h", Holder: "holder", Tables: []topology.TableName{orders}, Why: "ALTER TABLE orders"}); err != nil {
		t.Fatal(err)
	}
	return s, registration
}

func registerRouter(t *testing.T, s *store.Store, id string) *store.Registration {
	t.Helper()
	registration, err := s.Register(t.Context(), store.Router{ID: id, Name: id})
	if err != nil {
		t.Fatal(err)
	}
	return registration
}

// startLeader runs a process that leads unless another does, and takes holds over without grace.
func startLeader(t *testing.T, endpoints []string, router string, finish func(context.Context, topology.Hold) error) *process {
	t.Helper()
	p := startProcess(t, endpoints, func(c *Config) {
		c.Router, c.HoldGrace, c.FinishHold = router, time.Nanosecond, finish
	})
	registerRouter(t, p.store, router)
	return p
}

func schemaState(t *testing.T, p *process) topology.SchemaState {
	t.Helper()
	state, err := p.store.Schema(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func isReleased(t *testing.T, p *process) func() bool {
	return func() bool { return len(schemaState(t, p).Holds) == 0 }
}

func holderDies(t *testing.T, endpoints []string) {
	holder, _ := openHolder(t, endpoints, time.Second)
	finished := make(chan topology.Hold, 1)
	var p *process
	started := make(chan struct{})
	p = startLeader(t, endpoints, "leader", func(_ context.Context, hold topology.Hold) error {
		<-started
		if stored, held := schemaState(t, p).HeldBy(orders); !held || stored.ID != hold.ID {
			t.Errorf("while it is being finished the table is held by %+v", stored)
		}
		finished <- hold
		return nil
	})
	close(started)
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the table is released", isReleased(t, p))
	if hold := <-finished; hold.First() != "h" || hold.ID == "h" || hold.Holder != "leader" || !hold.Covers(orders) {
		t.Errorf("finished was %+v", hold)
	}
	if state := schemaState(t, p); state.Epoch != 3 {
		t.Errorf("hold, take-over and release made epoch %d", state.Epoch)
	}
}

func holderDiesAfterMap(t *testing.T, endpoints []string) {
	holder, _ := openHolder(t, endpoints, time.Second)
	m, err := topology.New("0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c11")
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	m, err = holder.UpdateHolding(t.Context(), "h", func(m *topology.Map) (*topology.Map, error) {
		return m.Next(topology.RaiseVersion(7))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	p := startLeader(t, endpoints, "leader", nil)
	eventually(t, "the table is released", isReleased(t, p))
	if state := schemaState(t, p); state.MapVersion != m.Version() {
		t.Errorf("it was released to routers with map version %d, the stored one is %d", state.MapVersion, m.Version())
	}
}

// recordLostForAMoment looks by hand, so that nothing depends on when the leader looks.
func recordLostForAMoment(t *testing.T, endpoints []string) {
	holder, registration := openHolder(t, endpoints, time.Minute)
	p := startProcess(t, endpoints, nil) // its own loop has no router, and leaves holds alone
	registerRouter(t, holder, "leader")
	looker := p.beside(func(c *Config) { c.Router, c.HoldGrace = "leader", time.Hour })
	known := &knownHolds{failures: map[string]string{}}
	look := func(want string) {
		t.Helper()
		looker.lookAtHolds(t.Context(), known)
		if err := p.store.Holding(t.Context(), "h"); (err == nil) != (want == "held") {
			t.Fatalf("want it %s: %v", want, err)
		}
	}
	lose := func() {
		t.Helper()
		if err := registration.Close(); err != nil {
			t.Fatal(err)
		}
	}
	passed := func() {
		for id := range known.orphaned {
			known.orphaned[id] = time.Now().Add(-time.Hour)
		}
	}
	look("held")
	lose()
	look("held")
	passed()
	registration = registerRouter(t, holder, "holder")
	look("held") // it is back
	lose()
	look("held") // its grace begins anew
	passed()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	looker.lookAtHolds(cancelled, known)
	look("held") // and again after a time in which nothing could be seen
	passed()
	look("released")
	if !isReleased(t, p)() {
		t.Errorf("it is still held: %+v", schemaState(t, p))
	}
}

func leaderDiesFinishing(t *testing.T, endpoints []string) {
	holder, _ := openHolder(t, endpoints, time.Second)
	begun := make(chan topology.Hold, 1)
	first := startLeader(t, endpoints, "first", func(ctx context.Context, hold topology.Hold) error {
		begun <- hold
		<-ctx.Done()
		return ctx.Err()
	})
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	interrupted := <-begun
	finished := make(chan topology.Hold, 1)
	second := startLeader(t, endpoints, "second", func(_ context.Context, hold topology.Hold) error {
		finished <- hold
		return nil
	})
	registerRouter(t, second.store, "first") // its record stays, as if only its leadership were over
	first.stop()
	eventually(t, "the table is released", isReleased(t, second))
	if hold := <-finished; hold.First() != "h" || hold.Holder != "second" || hold.ID == interrupted.ID {
		t.Errorf("the next leader finished %+v, the first was at %+v", hold, interrupted)
	}
}

func finishingFails(t *testing.T, endpoints []string) {
	holder, _ := openHolder(t, endpoints, time.Second)
	var calls atomic.Int32
	p := startLeader(t, endpoints, "leader", func(context.Context, topology.Hold) error {
		if calls.Add(1) < 3 {
			return errors.New("a shard is away")
		}
		return nil
	})
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the table is released", isReleased(t, p))
	if n := calls.Load(); n != 3 {
		t.Errorf("it was tried %d times", n)
	}
	if state := schemaState(t, p); state.Epoch != 3 {
		t.Errorf("it was taken over more than once: epoch %d", state.Epoch)
	}
}

// stateWentBack has a router that has applied what is not stored.
func stateWentBack(t *testing.T, endpoints []string) {
	p := startLeader(t, endpoints, "leader", nil)
	if _, err := p.store.Register(t.Context(), store.Router{ID: "ahead", SchemaApplied: 50}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the epoch is raised beyond what routers have", func() bool { return schemaState(t, p).Epoch == 51 })
}

// TestHoldsOfMoves are let alone while somebody carries the move out, who knows what a switch has done that was not taken back: the tables' owner may refuse changes.
func TestHoldsOfMoves(t *testing.T) {
	t.Parallel()
	p := startProcess(t, startEtcd(t), nil)
	for id, phase := range map[string]reshard.Phase{"switches": reshard.Switching, "has switched": reshard.Switched, "ended": reshard.Done} {
		move := &reshard.Move{ID: id, Phase: phase, Stopped: "nobody is to carry it out"}
		body, err := json.Marshal(move)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.store.AskJob(t.Context(), store.Job{ID: id, Kind: reshard.Kind, State: string(phase), Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	for move, wants := range map[string]bool{"switches": true, "has switched": false, "ended": false, "forgotten": false, "": false} {
		if is := p.isMovesOwn(t.Context(), topology.Hold{ID: "h", Move: move}); is != wants {
			t.Errorf("a hold of move %q is left to it: %t", move, is)
		}
	}
}
