package main

import (
	"context"
	"io"
	"log/slog"
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
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if routers, err := n.store.Routers(t.Context()); err == nil && len(routers) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not register")
		}
	}
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
