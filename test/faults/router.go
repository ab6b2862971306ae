package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/test/cluster"
	"github.com/cleavedb/cleave/test/faults/proxy"
)

// Router is a 'cleave serve', which is a router and a controller, over all its lives. All methods are safe for concurrent use.
type Router struct {
	Name string
	// Listen is where clients connect.
	Listen string
	// ToEtcd is its way to etcd; nil unless it has one of its own.
	ToEtcd *proxy.Proxy

	process

	api *api.Client
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
		Name: name, Listen: cluster.FreeAddress(t),
		// A process that is stopped takes connections and does not answer.
		api: &api.Client{BaseURL: "http://" + web, HTTP: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}},
	}
	file := filepath.Join(folder, name+".yaml")
	if err := os.WriteFile(file, []byte(r.configuration(web, etcd)), 0o600); err != nil {
		t.Fatal(err)
	}
	r.what, r.log = "router "+name, filepath.Join(folder, name+".log")
	r.command = func() *exec.Cmd {
		command := exec.Command(binary, "serve", "--config", file)
		command.Env = append(os.Environ(), "CLEAVE_FAILPOINTS="+orders)
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

// CutOff takes its way to etcd away, or gives it back.
func (r *Router) CutOff(off bool) {
	r.ToEtcd.Refuse(off)
	if off {
		r.ToEtcd.Cut()
	}
}

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
	log, err := os.ReadFile(r.log)
	return err == nil && bytes.Contains(log[r.now().logged:], []byte(`msg="this process leads"`))
}

// complaints are what no router may ever write into its log.
var complaints = [][]byte{[]byte("panic: "), []byte("fatal error: "), []byte("WARNING: DATA RACE")}

// Complaint returns an error if the router panicked, or was caught in a data race.
func (r *Router) Complaint() error {
	log, err := os.ReadFile(r.log)
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
