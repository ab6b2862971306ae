package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process is one process of a cluster, as a test runs it.
type process struct {
	*Cluster
	store    *store.Store
	follower *store.Follower
	stop     func()
}

// startEtcd starts an etcd for a test.
func startEtcd(t *testing.T) []string {
	t.Helper()
	embedded, err := store.StartEmbedded(t.Context(), store.EmbeddedConfig{Dir: t.TempDir(), Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(embedded.Close)
	return embedded.Endpoints()
}

// startProcess runs a process of the cluster until the test ends or it is stopped.
func startProcess(t *testing.T, endpoints []string, change func(*Config)) *process {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	s, err := store.Open(store.Config{Endpoints: endpoints, Logger: logger, LeaseTTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	follower, err := s.Follow(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	config := Config{
		Store: s, Follower: follower, Logger: logger, HealthInterval: 100 * time.Millisecond, HealthTimeout: 5 * time.Second,
		Access: shard.Access{User: "postgres", Database: "postgres", SSLMode: "disable"},
	}
	if change != nil {
		change(&config)
	}
	p := &process{Cluster: New(config), store: s, follower: follower}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	p.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		follower.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(p.stop)
	return p
}

// clusterOf makes a cluster of these servers, named s1, s2 …
func clusterOf(t *testing.T, p *process, servers []*localpg.Server) {
	t.Helper()
	if _, err := p.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, server := range servers {
		add(t, p, fmt.Sprintf("s%d", i+1), server)
	}
}

func add(t *testing.T, p *process, name string, server *localpg.Server) api.ShardChanged {
	t.Helper()
	changed, err := p.AddShard(t.Context(), request(name, server))
	if err != nil {
		t.Fatalf("add %s: %v%s", name, err, reasons(err))
	}
	return changed
}

func request(name string, server *localpg.Server) api.AddShard {
	return api.AddShard{ShardSpec: topology.ShardSpec{Name: name, Primary: topology.InstanceSpec{Address: server.Addr()}}}
}

// reasons prints what a refusal found.
func reasons(err error) string {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return ""
	}
	var b strings.Builder
	for _, f := range refused.Findings {
		fmt.Fprintf(&b, "\n  %s %s: %s (%s)", f.Severity, f.Code, f.Message, f.Hint)
	}
	return b.String()
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("in 30 seconds it did not come to pass that %s", what)
}

func execute(t *testing.T, server *localpg.Server, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// settled says that all shards are up and have recorded the newest map.
func (p *process) settled() bool {
	m := p.follower.Map()
	return m != nil && len(p.Snapshot().Findings) == 0
}

func TestAClusterFromTheFirstMapOn(t *testing.T) {
	servers := pgtest.StartN(t, 3)
	p := startProcess(t, startEtcd(t), nil)
	if _, err := p.AddShard(t.Context(), request("s1", servers[0])); !errors.Is(err, store.ErrNoMap) {
		t.Errorf("a shard was added where there is no map: %v", err)
	}
	if err := p.Ready(); err == nil {
		t.Error("ready without a map")
	}
	clusterOf(t, p, servers[:2])
	var exists *topology.ExistsError
	if _, err := p.Create(t.Context()); !errors.As(err, &exists) {
		t.Errorf("a second map was created: %v", err)
	}
	if _, err := p.AddShard(t.Context(), request("s1", servers[2])); !errors.As(err, &exists) {
		t.Errorf("a name was given twice: %v", err)
	}
	created, err := p.CreateKeyspace(t.Context(), api.CreateKeyspace{Name: "users"})
	if err != nil {
		t.Fatal(err)
	}
	if created.Keyspace.Seed == "" || created.Keyspace.Assignment.Algorithm != "slots" || created.Keyspace.Key[0] != "bigint" || len(created.Keyspace.Shares) != 2 {
		t.Errorf("the keyspace has other defaults: %+v", created.Keyspace)
	}
	eventually(t, "all shards have recorded the map", p.settled)
	if err := p.Ready(); err != nil {
		t.Error(err)
	}
	findings, err := p.CheckMap(t.Context())
	if err != nil || len(problems(findings)) > 0 {
		t.Errorf("%v, %+v", err, findings)
	}
	var inUse *topology.InUseError
	if _, err := p.RemoveShard(t.Context(), "s1"); !errors.As(err, &inUse) {
		t.Errorf("a shard with ranges was removed: %v", err)
	}
	add(t, p, "s3", servers[2])
	removed, err := p.RemoveShard(t.Context(), "s3")
	if err != nil || len(removed.Findings) > 0 {
		t.Fatalf("%v, %+v", err, removed.Findings)
	}
	// The database was given back: another cluster may have it.
	other := startProcess(t, startEtcd(t), nil)
	clusterOf(t, other, servers[2:])
	if _, err := p.DropKeyspace(t.Context(), "users"); err != nil {
		t.Error(err)
	}
}

func TestShardsThatCannotBeUsedAreRefusedWithReasons(t *testing.T) {
	servers := pgtest.StartWith(t, localpg.Config{}, localpg.Config{Settings: map[string]string{"wal_level": "replica", "max_prepared_transactions": "0"}}, localpg.Config{})
	p := startProcess(t, startEtcd(t), nil)
	clusterOf(t, p, servers[:1])
	before := p.follower.Map().Version()
	_, err := p.AddShard(t.Context(), request("s2", servers[1]))
	var refused *RefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("a server with the wrong settings was taken: %v", err)
	}
	for _, code := range []string{"wal_level", "max_prepared_transactions"} {
		at := slices.IndexFunc(refused.Findings, func(f api.Finding) bool { return f.Code == code && f.Severity == api.Problem })
		if at < 0 || !strings.Contains(refused.Findings[at].Hint, "ALTER SYSTEM SET "+code) || refused.Findings[at].Shard != "s2" {
			t.Errorf("%s: %+v", code, refused.Findings)
		}
	}
	if _, err := p.AddShard(t.Context(), request("again", servers[0])); err == nil {
		t.Error("a database is two shards")
	}
	gone := request("gone", servers[2])
	if err := servers[2].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.AddShard(t.Context(), gone); !errors.As(err, &refused) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a server that is not there: %v", err)
	}
	var invalid *InvalidError
	if _, err := p.AddShard(t.Context(), api.AddShard{ShardSpec: topology.ShardSpec{Name: "nowhere"}}); !errors.As(err, &invalid) || invalid.Hint == "" {
		t.Errorf("a shard without an address: %v", err)
	}
	if got := p.follower.Map().Version(); got != before {
		t.Errorf("the map changed from version %d to %d", before, got)
	}
	execute(t, servers[1], "SELECT 1") // it is still there, and nothing was installed on it
	conn, err := pgx.Connect(t.Context(), servers[1].DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var installed bool
	if err := conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'cleave')").Scan(&installed); err != nil || installed {
		t.Errorf("a refused server was changed: %v", err)
	}
}

func TestInvalidKeyspaces(t *testing.T) {
	servers := pgtest.StartN(t, 1)
	p := startProcess(t, startEtcd(t), nil)
	if _, err := p.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.CreateKeyspace(t.Context(), api.CreateKeyspace{Name: "users"}); !errors.Is(err, topology.ErrNoActiveShard) {
		t.Errorf("a keyspace without shards: %v", err)
	}
	add(t, p, "s1", servers[0])
	for name, wrong := range map[string]api.CreateKeyspace{
		"name":      {Name: "Users"},
		"algorithm": {Name: "users", Algorithm: "guess"},
		"key":       {Name: "users", Key: []string{"money"}},
		"seed":      {Name: "users", Seed: "x"},
		"slots":     {Name: "users", Slots: 7},
		"points":    {Name: "users", SplitAt: []topology.Point{{"5"}}},
		"range":     {Name: "users", Strategy: topology.ByRange, Algorithm: "ring"},
		"strategy":  {Name: "users", Strategy: "magic"},
		"schema":    {Name: "users", Strategy: topology.BySchema, Key: []string{"text"}},
	} {
		var invalid *InvalidError
		if _, err := p.CreateKeyspace(t.Context(), wrong); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, right := range []api.CreateKeyspace{
		{Name: "a", Algorithm: "even", Slots: 64, Seed: "-7"},
		{Name: "b", Strategy: topology.ByRange, Key: []string{"text"}, SplitAt: []topology.Point{{"m"}}},
		{Name: "c", Strategy: topology.BySchema},
		{Name: "d", Algorithm: "ring", VirtualNodes: 10, Key: []string{"uuid", "date"}},
	} {
		if _, err := p.CreateKeyspace(t.Context(), right); err != nil {
			t.Errorf("%s: %v", right.Name, err)
		}
	}
}

func TestChangesOfAShard(t *testing.T) {
	servers := pgtest.StartN(t, 1)
	p := startProcess(t, startEtcd(t), nil)
	clusterOf(t, p, servers)
	weight, state, region, none := 2.5, topology.Draining, "eu", 0.0
	changed, err := p.UpdateShard(t.Context(), "s1", api.UpdateShard{Weight: &weight, State: &state, Labels: map[string]*string{"region": &region}})
	if err != nil || changed.Shard.Weight != 2.5 || changed.Shard.State != topology.Draining || changed.Shard.Labels["region"] != "eu" {
		t.Fatalf("%+v, %v", changed, err)
	}
	changed, err = p.UpdateShard(t.Context(), "s1", api.UpdateShard{Labels: map[string]*string{"region": nil}})
	if err != nil || len(changed.Shard.Labels) != 0 || changed.Shard.Weight != 2.5 {
		t.Fatalf("%+v, %v", changed, err)
	}
	var invalid *InvalidError
	if _, err := p.UpdateShard(t.Context(), "s1", api.UpdateShard{Weight: &none}); !errors.As(err, &invalid) {
		t.Errorf("weight 0: %v", err)
	}
	var missing *topology.NotFoundError
	if _, err := p.UpdateShard(t.Context(), "s9", api.UpdateShard{}); !errors.As(err, &missing) {
		t.Errorf("a shard that is not there: %v", err)
	}
}

// TestTheMapIsRebuiltFromTheShards loses etcd with everything in it.
func TestTheMapIsRebuiltFromTheShards(t *testing.T) {
	servers := pgtest.StartN(t, 3)
	p := startProcess(t, startEtcd(t), nil)
	clusterOf(t, p, servers)
	if _, err := p.CreateKeyspace(t.Context(), api.CreateKeyspace{Name: "users", Algorithm: "ring", VirtualNodes: 20}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.CreateKeyspace(t.Context(), api.CreateKeyspace{Name: "events", Strategy: topology.ByRange, Key: []string{"text"}, SplitAt: []topology.Point{{"h"}, {"q"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.change(t.Context(), func(*topology.Map) ([]topology.Change, error) {
		return []topology.Change{
			topology.SetPins("users", topology.PinSpec{Key: topology.Point{"7"}, Shard: "s2"}),
			topology.SetTable(topology.TableSpec{Name: "orders", Kind: topology.Sharded, Keyspace: "users", Key: []string{"user_id"}}),
		}, nil
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all shards have recorded the map", p.settled)
	before := p.follower.Map().Document()
	p.stop()

	anew := startProcess(t, startEtcd(t), nil)
	if _, err := anew.Rebuild(t.Context(), api.RebuildMap{}); !errors.Is(err, store.ErrNoMap) {
		t.Errorf("with nobody to ask: %v", err)
	}
	var shards []topology.ShardSpec
	for i, server := range servers {
		shards = append(shards, topology.ShardSpec{Name: fmt.Sprintf("r%d", i), Primary: topology.InstanceSpec{Address: server.Addr()}})
	}
	var refused *RefusedError
	if _, err := anew.Rebuild(t.Context(), api.RebuildMap{Shards: shards[:2], Apply: true}); !errors.As(err, &refused) {
		t.Errorf("a map was rebuilt without one of the shards: %v", err)
	}
	rebuilt, err := anew.Rebuild(t.Context(), api.RebuildMap{Shards: shards, Apply: true})
	if err != nil {
		t.Fatal(err, reasons(err))
	}
	if rebuilt.MapVersion <= before.Version {
		t.Errorf("the rebuilt map has version %d, the old one had %d", rebuilt.MapVersion, before.Version)
	}
	after := anew.follower.Map().Document()
	before.Version, after.Version = 0, 0
	if diff := cmp.Diff(asJSON(t, before), asJSON(t, after)); diff != "" {
		t.Error(diff)
	}
	eventually(t, "all shards have recorded the rebuilt map", anew.settled)
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	data, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestAnImportedMapIsNewerThanAllBefore takes a backup, changes the map, and goes back to the backup.
func TestAnImportedMapIsNewerThanAllBefore(t *testing.T) {
	servers := pgtest.StartN(t, 2)
	endpoints := startEtcd(t)
	p := startProcess(t, endpoints, nil)
	clusterOf(t, p, servers)
	backup := []byte(asJSON(t, p.follower.Map().Document()))
	weight := 3.0
	for range 5 {
		weight++
		if _, err := p.UpdateShard(t.Context(), "s1", api.UpdateShard{Weight: &weight}); err != nil {
			t.Fatal(err)
		}
	}
	latest := p.follower.Map().Version()
	eventually(t, "all shards have recorded the map", p.settled)
	imported, err := p.Import(t.Context(), backup)
	if err != nil {
		t.Fatal(err)
	}
	if imported.MapVersion <= latest || p.follower.Map().Shard("s1").Weight() != 1 {
		t.Errorf("version %d after %d, weight %v", imported.MapVersion, latest, p.follower.Map().Shard("s1").Weight())
	}
	eventually(t, "all shards have recorded the imported map", p.settled)

	// Etcd is lost, the backup is old: the shards know how far it had come.
	p.stop()
	anew := startProcess(t, startEtcd(t), nil)
	again, err := anew.Import(t.Context(), backup)
	if err != nil {
		t.Fatal(err)
	}
	if again.MapVersion <= imported.MapVersion {
		t.Errorf("imported into an empty etcd as version %d, but the shards have recorded %d", again.MapVersion, imported.MapVersion)
	}
	// Another cluster's map is not taken.
	var invalid *InvalidError
	other := strings.ReplaceAll(string(backup), again.Cluster, "00000000-0000-4000-8000-000000000000")
	if _, err := anew.Import(t.Context(), []byte(other)); !errors.As(err, &invalid) {
		t.Errorf("another cluster's map was imported: %v", err)
	}
	if _, err := anew.Import(t.Context(), []byte("{")); !errors.As(err, &invalid) {
		t.Errorf("half a map was imported: %v", err)
	}
}

// TestAMapOlderThanAShardIsNotServed restores etcd behind everyone's back.
func TestAMapOlderThanAShardIsNotServed(t *testing.T) {
	servers := pgtest.StartN(t, 1)
	p := startProcess(t, startEtcd(t), nil)
	clusterOf(t, p, servers)
	old := p.follower.Map()
	weight := 2.0
	for range 3 {
		if _, err := p.UpdateShard(t.Context(), "s1", api.UpdateShard{Weight: &weight}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the shard has recorded the map", p.settled)
	p.stop()
	restored := startProcess(t, startEtcd(t), nil)
	if err := restored.store.Replace(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the old map is noticed", func() bool {
		return slices.ContainsFunc(restored.Snapshot().Findings, func(f api.Finding) bool { return f.Code == "map_too_old" })
	})
	if err := restored.Ready(); err == nil {
		t.Error("ready with a map older than a shard's record")
	}
	findings, err := restored.CheckMap(t.Context())
	if err != nil || len(problems(findings)) == 0 {
		t.Errorf("the check finds nothing: %v, %+v", err, findings)
	}
	if _, err := restored.Rebuild(t.Context(), api.RebuildMap{Apply: true}); err != nil {
		t.Fatal(err, reasons(err))
	}
	eventually(t, "the rebuilt map is served", func() bool { return restored.Ready() == nil && restored.settled() })
}

// TestAnotherProcessTakesOver has two processes; the one that leads is stopped.
func TestAnotherProcessTakesOver(t *testing.T) {
	servers := pgtest.StartN(t, 1)
	endpoints := startEtcd(t)
	first := startProcess(t, endpoints, func(c *Config) { c.Candidate = "first" })
	clusterOf(t, first, servers)
	eventually(t, "the first leads", func() bool {
		status, err := first.Status(t.Context())
		return err == nil && status.Leader == "first"
	})
	second := startProcess(t, endpoints, func(c *Config) { c.Candidate = "second" })
	eventually(t, "the second follows the map", func() bool { return second.follower.Map() != nil })
	first.stop()
	weight := 2.0
	if _, err := second.UpdateShard(t.Context(), "s1", api.UpdateShard{Weight: &weight}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second leads and the shard has recorded its change", func() bool {
		status, err := second.Status(t.Context())
		return err == nil && status.Leader == "second" && second.settled()
	})
}

// TestAShardThatWasAwayIsToldLater crashes a shard during a change of the map.
func TestAShardThatWasAwayIsToldLater(t *testing.T) {
	servers := pgtest.StartN(t, 2)
	p := startProcess(t, startEtcd(t), nil)
	clusterOf(t, p, servers)
	eventually(t, "all shards have recorded the map", p.settled)
	if err := servers[1].Crash(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.CreateKeyspace(t.Context(), api.CreateKeyspace{Name: "users"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is seen that the shard is down", func() bool {
		shards, err := p.Shards(t.Context())
		return err == nil && shards[0].Up && !shards[1].Up && shards[0].RecordedVersion == p.follower.Map().Version()
	})
	findings, err := p.CheckMap(t.Context())
	if err != nil || !slices.ContainsFunc(findings, func(f api.Finding) bool { return f.Code == "unreachable" && f.Shard == "s2" }) {
		t.Errorf("%v, %+v", err, findings)
	}
	if err := servers[1].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shard was told", p.settled)
}

// TestServingGoesOnWithoutEtcd stops etcd under a process.
func TestServingGoesOnWithoutEtcd(t *testing.T) {
	servers := pgtest.StartN(t, 1)
	embedded, err := store.StartEmbedded(t.Context(), store.EmbeddedConfig{Dir: t.TempDir(), Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	defer embedded.Close()
	p := startProcess(t, embedded.Endpoints(), nil)
	clusterOf(t, p, servers)
	eventually(t, "the shard has recorded the map", p.settled)
	version := p.follower.Map().Version()
	embedded.Close()
	eventually(t, "it is said that etcd is away", func() bool {
		return slices.ContainsFunc(p.Snapshot().Findings, func(f api.Finding) bool { return f.Code == "etcd_away" })
	})
	if m, err := p.Map(t.Context()); err != nil || m.Version() != version {
		t.Errorf("the last map is not served: %v", err)
	}
	if err := p.Ready(); err != nil {
		t.Errorf("not ready without etcd: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := p.CreateKeyspace(ctx, api.CreateKeyspace{Name: "users"}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a change without etcd: %v", err)
	}
}

// provisioner gives out a test's servers.
type provisioner struct {
	free    []*localpg.Server
	retired []string
}

func (p *provisioner) Provision(_ context.Context, spec topology.ShardSpec) (topology.ShardSpec, error) {
	spec.Primary.Address = p.free[0].Addr()
	p.free = p.free[1:]
	return spec, nil
}

func (p *provisioner) Retire(_ context.Context, name string) error {
	p.retired = append(p.retired, name)
	return nil
}

func TestServersOfALocalClusterComeAndGoWithTheirShards(t *testing.T) {
	servers := pgtest.StartWith(t, localpg.Config{}, localpg.Config{Settings: map[string]string{"wal_level": "replica"}})
	local := &provisioner{free: servers}
	p := startProcess(t, startEtcd(t), func(c *Config) { c.Provisioner = local })
	if _, err := p.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	added, err := p.AddShard(t.Context(), api.AddShard{ShardSpec: topology.ShardSpec{Name: "s1", Weight: 2}})
	if err != nil || added.Shard.Primary.Address != servers[0].Addr() || added.Shard.Weight != 2 {
		t.Fatalf("%+v, %v", added, err)
	}
	if _, err := p.AddShard(t.Context(), api.AddShard{ShardSpec: topology.ShardSpec{Name: "S 2"}}); err == nil || len(local.free) != 1 {
		t.Errorf("a server was started for a name that cannot be: %v", err)
	}
	if _, err := p.AddShard(t.Context(), api.AddShard{ShardSpec: topology.ShardSpec{Name: "s2"}}); err == nil {
		t.Error("a server with wrong settings was taken")
	}
	if !slices.Equal(local.retired, []string{"s2"}) {
		t.Errorf("retired after a refusal: %v", local.retired)
	}
	if _, err := p.RemoveShard(t.Context(), "s1"); err != nil || !slices.Equal(local.retired, []string{"s2", "s1"}) {
		t.Errorf("%v, retired %v", err, local.retired)
	}
}

func TestManyChangesAtOnceLoseNothing(t *testing.T) {
	servers := pgtest.StartN(t, 1)
	endpoints := startEtcd(t)
	p := startProcess(t, endpoints, nil)
	clusterOf(t, p, servers)
	other := startProcess(t, endpoints, nil)
	const writers = 8
	var running sync.WaitGroup
	for i := range writers {
		running.Go(func() {
			by := []*process{p, other}[i%2]
			if _, err := by.CreateKeyspace(t.Context(), api.CreateKeyspace{Name: fmt.Sprintf("k%d", i)}); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	m, err := p.store.Map(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Keyspaces()) != writers || m.Version() != 2+writers {
		t.Errorf("%d keyspaces at version %d", len(m.Keyspaces()), m.Version())
	}
}
