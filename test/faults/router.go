package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/test/cluster"
)

// Router is a 'cleave serve', which is a router and a controller, over all its lives. All methods are safe for concurrent use.
type Router struct {
	Name string
	// Listen is where clients connect.
	Listen string

	api     *api.Client
	folder  string // its configuration and its log
	orders  string
	command func() *exec.Cmd

	mu   sync.Mutex
	life *life
}

// life is one run of the process.
type life struct {
	process *os.Process
	logged  int64 // how long the log was before
	ended   chan struct{}
	status  syscall.WaitStatus // when it has ended
}

// newRouter writes the configuration.
func newRouter(t testing.TB, name, folder, orders string, etcd []string) *Router {
	t.Helper()
	binary, err := Binary()
	if err != nil {
		t.Fatal(err)
	}
	web := cluster.FreeAddress(t)
	r := &Router{
		Name: name, Listen: cluster.FreeAddress(t), folder: folder, orders: orders,
		// A process that is stopped takes connections and does not answer.
		api: &api.Client{BaseURL: "http://" + web, HTTP: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}},
	}
	file := filepath.Join(folder, name+".yaml")
	if err := os.WriteFile(file, []byte(r.configuration(web, etcd)), 0o600); err != nil {
		t.Fatal(err)
	}
	r.command = func() *exec.Cmd {
		command := exec.Command(binary, "serve", "--config", file)
		command.Env = append(os.Environ(), "CLEAVE_FAILPOINTS="+orders)
		command.SysProcAttr = withParent()
		return command
	}
	return r
}

func (r *Router) configuration(web string, etcd []string) string {
	urls := make([]string, len(etcd))
	for i, e := range etcd {
		urls[i] = "http://" + strings.TrimPrefix(e, "http://")
	}
	return strings.Join([]string{
		"router_name: " + r.Name, "listen: " + r.Listen,
		"etcd:", "  endpoints: [" + strings.Join(urls, ", ") + "]", "  lease_ttl: 2s",
		"http:", "  listen: " + web,
		"auth:", "  rules: [host all all loopback trust]",
		"shards:", "  user: postgres", "  database: postgres", "  sslmode: disable",
		"pool:", "  per_shard: 20", "",
	}, "\n")
}

func (r *Router) logFile() string { return filepath.Join(r.folder, r.Name+".log") }

// Start begins a new life if there is none. It does not wait until the router is ready.
func (r *Router) Start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.life != nil && !r.life.hasEnded() {
		return nil
	}
	log, err := os.OpenFile(r.logFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	command := r.command()
	command.Stdout, command.Stderr = log, log
	begun := &life{ended: make(chan struct{})}
	if begun.logged, err = log.Seek(0, io.SeekEnd); err != nil {
		return errors.Join(err, log.Close())
	}
	started := make(chan error)
	go func() {
		// The thread that started the process must not end before it: see withParent.
		runtime.LockOSThread()
		defer close(begun.ended)
		defer log.Close()
		err := command.Start()
		started <- err
		if err == nil {
			_ = command.Wait()
			begun.status = command.ProcessState.Sys().(syscall.WaitStatus)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start router %s: %w", r.Name, err)
	}
	begun.process = command.Process
	r.life = begun
	return nil
}

func (l *life) hasEnded() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

func (r *Router) now() *life {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.life
}

// PID is the number of the process, of the last one if none runs.
func (r *Router) PID() int { return r.now().process.Pid }

// Running says whether there is a process.
func (r *Router) Running() bool { return !r.now().hasEnded() }

// Kill ends the process outright, stopped or not, and waits for its end.
func (r *Router) Kill() {
	l := r.now()
	_ = l.process.Kill()
	<-l.ended
}

// WaitKilled waits until the process has been killed, by itself or by others.
func (r *Router) WaitKilled(ctx context.Context) error {
	l := r.now()
	select {
	case <-l.ended:
	case <-ctx.Done():
		return fmt.Errorf("router %s does not end: %w", r.Name, ctx.Err())
	}
	if l.status.Signal() != syscall.SIGKILL {
		return fmt.Errorf("router %s was not killed, but ended by itself with status %d", r.Name, l.status.ExitStatus())
	}
	return nil
}

// Stop halts the process: it does nothing, and nobody is told.
func (r *Router) Stop() { _ = r.now().process.Signal(syscall.SIGSTOP) }

// Continue lets a process that was stopped go on.
func (r *Router) Continue() { _ = r.now().process.Signal(syscall.SIGCONT) }

// API is the router's.
func (r *Router) API() *api.Client { return r.api }

// Status asks the router for the state of the cluster.
func (r *Router) Status(ctx context.Context) (api.Status, error) { return r.api.Status(ctx) }

// Ready says whether it serves clients.
func (r *Router) Ready(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.api.BaseURL+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	answer, err := r.api.HTTP.Do(request)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// hasLed says whether the process has been the leader at some time. What others say of a name may be about the process before it.
func (r *Router) hasLed() bool {
	log, err := os.ReadFile(r.logFile())
	return err == nil && bytes.Contains(log[r.now().logged:], []byte(`msg="this process leads"`))
}

// complaints are what no router may ever write into its log.
var complaints = [][]byte{[]byte("panic: "), []byte("fatal error: "), []byte("WARNING: DATA RACE")}

// Complaint returns an error if the router panicked, or was caught in a data race.
func (r *Router) Complaint() error {
	log, err := os.ReadFile(r.logFile())
	if err != nil {
		return err
	}
	for _, words := range complaints {
		if at := bytes.Index(log, words); at >= 0 {
			err = errors.Join(err, fmt.Errorf("router %s: %s", r.Name, log[at:min(len(log), at+2000)]))
		}
	}
	return err
}

// Transactions lists those over several shards that are not over.
func (r *Router) Transactions(ctx context.Context) (api.Transactions, error) {
	return r.api.Transactions(ctx)
}

// Resolve does what a person has decided for a transaction.
func (r *Router) Resolve(ctx context.Context, gid, how string) error {
	_, err := r.api.ResolveTransaction(ctx, api.ResolveTransaction{ID: gid, How: how})
	return err
}
