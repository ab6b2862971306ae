package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cleavedb/cleave/internal/admin"
	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/control"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/thorough"
)

// scriptCondition adds [cluster]: whether a script may start servers, and [thorough]: whether there is time for all scripts. A PostgreSQL that is required and missing is not a
// reason to skip: the script then runs and fails.
func scriptCondition(condition string) (bool, error) {
	switch condition {
	case "cluster":
	case "thorough":
		return thorough.Asked(), nil
	default:
		return false, fmt.Errorf("unknown condition %q", condition)
	}
	if testing.Short() {
		return false, nil
	}
	_, err := localpg.Find(context.Background())
	missing := errors.Is(err, localpg.ErrNotInstalled)
	return !missing || os.Getenv("CLEAVE_REQUIRE_POSTGRES") != "", nil
}

// startCluster is the script command 'cluster N [token]': a cluster in this process without a map, CLEAVE_API saying where, and N
// servers that may become shards, at the addresses PG1 and so on. All of it ends with the script.
func startCluster(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 || len(args) > 2 {
		ts.Fatalf("usage: cluster servers [token]")
	}
	count, err := strconv.Atoi(args[0])
	ts.Check(err)
	ts.Setenv("GORACE", "atexit_sleep_ms=0") // else the race detector keeps every command for a second
	startScriptServers(ts, count)
	token := ""
	if len(args) == 2 {
		token = args[1]
	}
	serveScript(ts, newScriptCluster(ts), token)
}

// startScriptServers starts PostgreSQL servers, in a folder that their user can enter.
func startScriptServers(ts *testscript.TestScript, count int) {
	root, err := os.MkdirTemp(pgtest.Scratch(), "cleave-script-")
	ts.Check(err)
	ts.Defer(func() { _ = os.RemoveAll(root) })
	ts.Check(os.Chmod(root, 0o711))
	configs := make([]localpg.Config, count)
	for i := range configs {
		configs[i] = localpg.Config{Dir: filepath.Join(root, strconv.Itoa(i+1)), Fast: true, Template: true}
	}
	servers, err := localpg.StartAll(context.Background(), configs)
	ts.Check(err)
	for i, server := range servers {
		ts.Defer(func() { _ = server.StopImmediately() })
		ts.Setenv("PG"+strconv.Itoa(i+1), server.Addr())
	}
}

func newScriptCluster(ts *testscript.TestScript) *control.Cluster {
	starting, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	etcd, err := store.StartEmbedded(starting, store.EmbeddedConfig{Dir: ts.MkAbs("etcd"), Fast: true})
	ts.Check(err)
	ts.Defer(etcd.Close)
	quiet := slog.New(slog.DiscardHandler)
	st, err := store.Open(store.Config{Endpoints: etcd.Endpoints(), Logger: quiet})
	ts.Check(err)
	ts.Defer(func() { _ = st.Close() })
	follower, err := st.Follow(context.Background())
	ts.Check(err)
	ts.Defer(follower.Close)
	cluster := control.New(control.Config{
		Store: st, Follower: follower, Logger: quiet, Endpoints: etcd.Endpoints(), Version: version,
		Access: shard.Access{User: "postgres", Database: "postgres", SSLMode: "disable", ConnectTimeout: 10 * time.Second},
	})
	background(ts, cluster.Run)
	return cluster
}

// serveScript serves the cluster's API, and tells the script where.
func serveScript(ts *testscript.TestScript, cluster *control.Cluster, token string) {
	server, err := admin.New(admin.Config{Cluster: cluster, Ready: cluster.Ready, Token: token, Logger: slog.New(slog.DiscardHandler)})
	ts.Check(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	background(ts, func(ctx context.Context) { _ = server.Serve(ctx, listener) })
	ts.Setenv(addressVariable, "http://"+listener.Addr().String())
}

// waitUntilRecorded is the script command 'recorded': it waits until the leader has told every shard what it owns.
func waitUntilRecorded(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: recorded")
	}
	client := api.Client{BaseURL: ts.Getenv(addressVariable)}
	for range 200 {
		findings, err := client.CheckMap(context.Background())
		ts.Check(err)
		if !slices.ContainsFunc(findings, func(f api.Finding) bool { return f.Code == "not_recorded" }) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	ts.Fatalf("the shards have not recorded the map")
}

// background runs work until the script ends.
func background(ts *testscript.TestScript, work func(context.Context)) {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { work(ctx) })
	ts.Defer(func() {
		stop()
		running.Wait()
	})
}
