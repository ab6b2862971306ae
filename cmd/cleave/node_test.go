package main

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// testNode builds a node beside an etcd of its own.
func testNode(t *testing.T) *node {
	t.Helper()
	if testing.Short() {
		t.Skip("needs an etcd: not with -short")
	}
	etcd, err := store.StartEmbedded(t.Context(), store.EmbeddedConfig{Dir: t.TempDir(), Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	c := config.Default()
	c.RouterName, c.Etcd.Endpoints = "test", etcd.Endpoints()
	c.Listen, c.HTTP.Listen = "127.0.0.1:0", "127.0.0.1:0"
	s, err := openSockets(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	n, err := newNode(c, nil, s, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.follower.Close()
		_ = n.store.Close()
	})
	return n
}

// TestAProcessIsReadyOnlyWithAMapReadAfterItRegistered publishes a map that the process does not hear of: whoever published it and
// then listed the living would wait for this process for good, or worse, not know of it.
func TestAProcessIsReadyOnlyWithAMapReadAfterItRegistered(t *testing.T) {
	n := testNode(t)
	n.follower.Close() // it hears of nothing from now on
	m, err := topology.New("0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c11")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.store.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { n.register(ctx) })
	awaitRecord(t, n)
	select {
	case <-n.registered:
		t.Error("it counts as registered without the map that was newest then")
	case <-time.After(300 * time.Millisecond):
	}
	if err := n.ready(); err == nil {
		t.Error("it is ready")
	}
	cancel()
	running.Wait()
}

// TestAProcessIsReadyOnlyWithASchemaStateReadAfterItRegistered holds a table without the process hearing of it: whoever holds it and
// then lists the living waits for this process, which must not serve as if nothing were held.
func TestAProcessIsReadyOnlyWithASchemaStateReadAfterItRegistered(t *testing.T) {
	n := testNode(t)
	n.follower.Close() // it hears of nothing from now on
	if _, err := n.store.Register(t.Context(), store.Router{ID: "holder"}); err != nil {
		t.Fatal(err)
	}
	state, err := n.store.Hold(t.Context(), topology.Hold{ID: "h", Holder: "holder"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { n.register(ctx) })
	awaitRecord(t, n)
	select {
	case <-n.registered:
		t.Error("it counts as registered without the schema state that was newest then")
	case <-time.After(300 * time.Millisecond):
	}
	if err := n.ready(); err == nil {
		t.Error("it is ready")
	}
	if overview, err := n.store.SchemaOverview(t.Context()); err != nil || !slices.ContainsFunc(overview.Routers, func(r store.Router) bool {
		return r.ID == n.id && r.SchemaApplied < state.Epoch
	}) {
		t.Errorf("it says that it has applied the state: %+v, %v", overview, err)
	}
	cancel()
	running.Wait()
}

// TestTheRecordSaysWhatIsApplied: the record follows the schema's epoch, also one that was applied before there was a record.
func TestTheRecordSaysWhatIsApplied(t *testing.T) {
	n := testNode(t)
	registering := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { n.register(ctx) })
		return func() {
			cancel()
			running.Wait()
		}
	}
	says := func(epoch uint64) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			routers, err := n.store.Routers(t.Context())
			if err == nil && len(routers) == 1 && routers[0].SchemaApplied == epoch {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the record does not say that epoch %d is applied: %+v", epoch, routers)
			}
		}
	}
	bump := func() uint64 {
		t.Helper()
		state, err := n.store.Bump(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		return state.Epoch
	}
	stop := registering()
	epoch := bump()
	n.schemaApplied(epoch) // as the router does
	says(epoch)
	stop()

	n.follower.Close() // it hears of nothing from now on
	n.registered = make(chan struct{})
	bump()
	n.schemaApplied(7)
	stop = registering()
	says(7)
	n.schemaApplied(8)
	says(8)
	stop()
}

// awaitRecord waits until the process's record is stored.
func awaitRecord(t *testing.T, n *node) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		routers, err := n.store.Routers(t.Context())
		if err == nil && slices.ContainsFunc(routers, func(r store.Router) bool { return r.ID == n.id }) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not register")
		}
	}
}

func TestAProcessWithoutAMapRegistersAllTheSame(t *testing.T) {
	n := testNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { n.register(ctx) })
	select {
	case <-n.registered:
	case <-time.After(20 * time.Second):
		t.Error("it does not register")
	}
	cancel()
	running.Wait()
	if routers, err := n.store.Routers(t.Context()); err != nil || len(routers) != 0 {
		t.Errorf("its record stays: %v, %v", routers, err)
	}
}
