package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/test/cluster"
)

// Etcd is an etcd in a process of its own, over all its lives. All methods are safe for concurrent use.
type Etcd struct {
	process

	address, dir string
}

// etcdVariable makes an etcd of a test's binary, in [Main]: its value is the configuration.
const etcdVariable = "CLEAVE_FAULTS_ETCD"

// newEtcd chooses where it is to be, once for all its lives.
func newEtcd(t testing.TB, folder string) *Etcd {
	t.Helper()
	port := cluster.FreePort(t)
	dir := t.TempDir()
	config, err := json.Marshal(store.EmbeddedConfig{Dir: dir, ClientPort: port, Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e := &Etcd{address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dir: dir}
	e.what, e.log = "etcd", filepath.Join(folder, "etcd.log")
	e.command = func() *exec.Cmd {
		command := exec.Command(binary)
		command.Env = append(os.Environ(), etcdVariable+"="+string(config))
		return command
	}
	return e
}

// runEtcd serves until the process is killed. It returns the exit code of one that cannot.
func runEtcd(text string) int {
	var config store.EmbeddedConfig
	err := json.Unmarshal([]byte(text), &config)
	if err == nil {
		var server *store.Embedded
		if server, err = store.StartEmbedded(context.Background(), config); err == nil {
			<-server.Failed()
			err = server.Err()
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// Lose kills it and deletes all that it had.
func (e *Etcd) Lose() error {
	e.Kill()
	entries, err := os.ReadDir(e.dir)
	for _, entry := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(e.dir, entry.Name())))
	}
	return err
}

// Await starts it, or lets it go on if it was stopped, and returns when it answers.
func (e *Etcd) Await(ctx context.Context) error {
	if err := e.Start(); err != nil {
		return err
	}
	e.Continue()
	return eventually(ctx, "etcd answers", func(ctx context.Context) error {
		if !e.Running() {
			return errors.New("it has ended, and its log says why")
		}
		s, err := store.Open(store.Config{Endpoints: []string{e.address}})
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		if _, err = s.Leader(ctx); errors.Is(err, store.ErrNoLeader) {
			return nil
		}
		return err
	})
}
