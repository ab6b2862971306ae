package rig

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/store"
)

// RouterConfig says how a router is made.
type RouterConfig struct {
	// Folder is for what it needs: configuration, log, etcd. It is made. The router is named like it.
	Folder string
	// Binary is the router's program, see [BuildRouter].
	Binary string
	// Role and Database are those of the shards.
	Role, Database string
	// Shards are the addresses of the servers that become the shards, which ask for no password.
	Shards []string
	// Join is a router whose cluster this one becomes a router of. Default: it gets a cluster of its own.
	Join *Router
	// Further is added to the configuration file. Default: nothing.
	Further string
}

// Router is a running 'cleave serve', with a cluster and an etcd of its own, which is in this process: what the router uses is then its own.
type Router struct {
	// Address is where clients connect.
	Address string
	// API is its cluster's.
	API *api.Client
	// Profiles is the address of the profiles, if the program was built with them.
	Profiles string

	process *Process
	etcd    *store.Embedded
	joined  bool // the etcd is another router's
}

// PID is the router's process.
func (r *Router) PID() int { return r.process.PID() }

// Close ends the router, then its etcd.
func (r *Router) Close() error {
	err := r.process.Stop()
	r.closeEtcd()
	return err
}

func (r *Router) closeEtcd() {
	if !r.joined {
		r.etcd.Close()
	}
}

// profiler is added to a router that is to tell its profiles.
//
//go:embed testdata/profiler.go
var profiler []byte

// profilesVariable tells the profiler where to listen.
const profilesVariable = "CLEAVE_BENCH_PROFILES"

// BuildRouter builds the binary of this tree in the folder, unless it is there. With profiles, a file is added to its package main that serves
// them over HTTP; without, it is what users get but for -trimpath, with which all there is would be compiled once more.
func BuildRouter(ctx context.Context, folder string, profiles bool) (string, error) {
	binary := filepath.Join(folder, "cleave")
	if info, err := os.Stat(binary); err == nil && info.Mode().IsRegular() {
		return binary, nil
	}
	found, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cleavedb/cleave").Output()
	if err != nil {
		return "", fmt.Errorf("find the tree of cleave: %w", err)
	}
	root := strings.TrimSpace(string(found))
	arguments := []string{"build", "-C", root, "-ldflags=-w", "-o", binary}
	if profiles {
		overlay, err := writeOverlay(folder, filepath.Join(root, "cmd", "cleave", "profiler.go"))
		if err != nil {
			return "", err
		}
		arguments = append(arguments, "-overlay", overlay)
	}
	output, err := exec.CommandContext(ctx, "go", append(arguments, "./cmd/cleave")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build cleave: %w: %s", err, output)
	}
	return binary, nil
}

// writeOverlay writes the profiler, and the file that has the compiler find it at the place.
func writeOverlay(folder, place string) (string, error) {
	source, overlay := filepath.Join(folder, "profiler.go"), filepath.Join(folder, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {place: source}})
	if err == nil {
		err = errors.Join(os.WriteFile(source, profiler, 0o600), os.WriteFile(overlay, text, 0o600))
	}
	if err != nil {
		return "", fmt.Errorf("write the profiler: %w", err)
	}
	return overlay, nil
}

// ServeRouter makes a cluster of the servers, or joins one, and starts a router for it.
func ServeRouter(ctx context.Context, c RouterConfig) (_ *Router, err error) {
	if err := os.Mkdir(c.Folder, 0o755); err != nil {
		return nil, fmt.Errorf("make the router's folder: %w", err)
	}
	var ports [3]int
	for i := range ports {
		if ports[i], err = FreePort(); err != nil {
			return nil, err
		}
	}
	address := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	r := &Router{Address: address(0), API: &api.Client{BaseURL: "http://" + address(1)}, Profiles: address(2), joined: c.Join != nil}
	if r.joined {
		r.etcd = c.Join.etcd
	} else if r.etcd, err = store.StartEmbedded(ctx, store.EmbeddedConfig{Dir: filepath.Join(c.Folder, "etcd"), LogFile: filepath.Join(c.Folder, "etcd.log"), Fast: true}); err != nil {
		return nil, err
	}
	config, err := c.write(r.Address, address(1), r.etcd.Endpoints())
	if err == nil {
		err = r.start(ctx, c, config)
	}
	if err != nil {
		r.closeEtcd()
		return nil, err
	}
	return r, nil
}

// write writes the configuration file.
func (c RouterConfig) write(listen, httpListen string, endpoints []string) (string, error) {
	urls := make([]string, len(endpoints))
	for i, endpoint := range endpoints {
		urls[i] = "http://" + strings.TrimPrefix(endpoint, "http://")
	}
	text := fmt.Sprintf("router_name: %s\nlisten: %s\netcd:\n  endpoints: [%s]\nhttp:\n  listen: %s\nshards:\n  user: %s\n  database: %s\n  sslmode: disable\nauth:\n  rules: [host all all loopback trust]\n",
		filepath.Base(c.Folder), listen, strings.Join(urls, ", "), httpListen, c.Role, c.Database)
	path := filepath.Join(c.Folder, "cleave.yaml")
	if err := os.WriteFile(path, []byte(text+c.Further), 0o600); err != nil {
		return "", fmt.Errorf("write the router's configuration: %w", err)
	}
	return path, nil
}

// start starts the process and makes the cluster. If that fails, the process has ended.
func (r *Router) start(ctx context.Context, c RouterConfig, config string) error {
	log, err := os.Create(filepath.Join(c.Folder, "router.log"))
	if err != nil {
		return fmt.Errorf("make the router's log: %w", err)
	}
	defer log.Close()
	command := exec.Command(c.Binary, "serve", "--config", config)
	command.Stderr = log
	command.Env = append(os.Environ(), profilesVariable+"="+r.Profiles)
	if r.process, err = Start(command); err != nil {
		return err
	}
	if c.Join == nil {
		err = makeCluster(ctx, r.API, c.Shards)
	}
	if err == nil {
		err = awaitReady(ctx, r.API.BaseURL)
	}
	if err != nil {
		said, _ := os.ReadFile(log.Name())
		return errors.Join(fmt.Errorf("%w\n%s", err, said), r.process.Stop())
	}
	return nil
}

// makeCluster makes the first map, with the servers as its shards.
func makeCluster(ctx context.Context, client *api.Client, shards []string) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	if err := Eventually(ctx, func() error { _, err := client.CreateMap(ctx); return err }); err != nil {
		return fmt.Errorf("make the shard map: %w", err)
	}
	for i, address := range shards {
		shard := api.AddShard{}
		shard.Name, shard.Primary.Address = fmt.Sprintf("shard%d", i+1), address
		if _, err := client.AddShard(ctx, shard); err != nil {
			return fmt.Errorf("add a shard: %w", err)
		}
	}
	return nil
}

// awaitReady waits until the process serves clients.
func awaitReady(ctx context.Context, base string) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	return Eventually(ctx, func() error { return ready(ctx, base) })
}

func ready(ctx context.Context, base string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(answer.Body)
		return fmt.Errorf("the router is not ready: %s", why)
	}
	return nil
}
