package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
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
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/shardtest"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

func TestMain(m *testing.M) {
	comparePauses, compareShare = []time.Duration{20 * time.Millisecond, 50 * time.Millisecond}, 0
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		model.Remove()
		os.Exit(code)
	}))
}

// model is what the shards of most clusters begin as; some are added from nothing.
var model = shardtest.NewModel()

// process is one process of a cluster, as a test runs it.
type process struct {
	*Cluster
	store    *store.Store
	follower *store.Follower
	stop     func()
}

// startEtcd starts an etcd for a test.
func startEtcd(t testing.TB) []string {
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
		// Shards are looked at often, so that tests need not wait for it, but no more often: at a tenth of a second that was a sixth of all their work.
		Store: s, Follower: follower, Logger: logger, HealthInterval: 300 * time.Millisecond, HealthTimeout: 5 * time.Second,
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

// beside returns the same operations with another configuration. Nothing of it runs: what a running process is configured with
// cannot be changed under it.
func (p *process) beside(change func(*Config)) *Cluster {
	config := p.config
	change(&config)
	return New(config)
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

// patience is how long a test waits before it says that something hangs: moves give way beside other tests, and take a minute then.
const patience = 3 * time.Minute

// eventually waits until the condition holds; only a test that hangs fails here.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("in %s it did not come to pass that %s", patience, what)
}

func execute(t testing.TB, server *localpg.Server, sql string) {
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
	t.Parallel()
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
	if _, err := p.RemoveShard(t.Context(), "s2"); !errors.As(err, &inUse) {
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	imported, err := p.Import(t.Context(), api.ImportMap{Document: backup})
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
	again, err := anew.Import(t.Context(), api.ImportMap{Document: backup})
	if err != nil {
		t.Fatal(err)
	}
	if again.MapVersion <= imported.MapVersion {
		t.Errorf("imported into an empty etcd as version %d, but the shards have recorded %d", again.MapVersion, imported.MapVersion)
	}
	// Another cluster's map is not taken.
	var invalid *InvalidError
	other := strings.ReplaceAll(string(backup), again.Cluster, "00000000-0000-4000-8000-000000000000")
	if _, err := anew.Import(t.Context(), api.ImportMap{Document: []byte(other)}); !errors.As(err, &invalid) {
		t.Errorf("another cluster's map was imported: %v", err)
	}
	if _, err := anew.Import(t.Context(), api.ImportMap{Document: []byte("{")}); !errors.As(err, &invalid) {
		t.Errorf("half a map was imported: %v", err)
	}
}

// TestAMapOlderThanAShardIsNotServed restores etcd behind everyone's back.
func TestAMapOlderThanAShardIsNotServed(t *testing.T) {
	t.Parallel()
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
	if err := restored.store.Create(t.Context(), old); err != nil {
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
	if _, err := restored.store.Update(t.Context(), func(m *topology.Map) (*topology.Map, error) {
		return m.Next(topology.SetTable(topology.TableSpec{Name: "public.alone", Kind: topology.Single, Shard: "s1", Held: true}))
	}); err != nil {
		t.Fatal(err)
	}
	for _, older := range []bool{false, true} { // a shard that has not recorded the map, and a switch that is under way
		var refused *pgerr.Error
		if _, err := restored.Rebuild(t.Context(), api.RebuildMap{Apply: true, AllowOlder: older}); !errors.As(err, &refused) || refused.Code != pgerr.ObjectInUse {
			t.Errorf("rebuilt in the middle of a switch, older records allowed %t: %v", older, err)
		}
	}
}

// TestAMapIsNotReplacedWhileRowsMove: another one would know nothing of the copies, nor of a switch.
func TestAMapIsNotReplacedWhileRowsMove(t *testing.T) {
	t.Parallel()
	servers := pgtest.StartN(t, 2)
	p := startProcess(t, startEtcd(t), nil)
	clusterOf(t, p, servers)
	backup := []byte(asJSON(t, p.follower.Map().Document()))
	execute(t, servers[0], `INSERT INTO cleave.move_notes (move, note, content) VALUES ('m9', 'move', '{"keyspace": "main", "target": "s2"}')`)
	if _, err := p.Import(t.Context(), api.ImportMap{Document: backup}); !found(err, "move_under_way") {
		t.Errorf("imported while rows move: %v", err)
	}
	execute(t, servers[0], "DELETE FROM cleave.move_notes WHERE move = 'm9'")
	if _, err := p.Import(t.Context(), api.ImportMap{Document: backup}); err != nil {
		t.Error(err, reasons(err))
	}
}

// TestAnotherProcessTakesOver has two processes; the one that leads is stopped.
func TestAnotherProcessTakesOver(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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

// TestAShardThatWentBackIsToldAgain puts a shard's record back to an earlier version, as a restored backup would.
func TestAShardThatWentBackIsToldAgain(t *testing.T) {
	t.Parallel()
	servers := pgtest.StartN(t, 2)
	p := startProcess(t, startEtcd(t), nil)
	clusterOf(t, p, servers)
	eventually(t, "all shards have recorded the map", p.settled)
	version := p.follower.Map().Version()
	execute(t, servers[1], "UPDATE cleave.identity SET map_version = 1")
	conn, err := pgx.Connect(t.Context(), servers[1].DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	eventually(t, "the shard was told again, without a new map", func() bool {
		var recorded uint64
		err := conn.QueryRow(t.Context(), "SELECT map_version FROM cleave.identity").Scan(&recorded)
		return err == nil && recorded == version && p.follower.Map().Version() == version
	})
}

// TestServingGoesOnWithoutEtcd stops etcd under a process.
func TestServingGoesOnWithoutEtcd(t *testing.T) {
	t.Parallel()
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

func (p *provisioner) Retire(_ context.Context, name string) (string, error) {
	p.retired = append(p.retired, name)
	return "", nil
}

func TestServersOfALocalClusterComeAndGoWithTheirShards(t *testing.T) {
	t.Parallel()
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
	if _, err := p.AddShard(t.Context(), api.AddShard{ShardSpec: topology.ShardSpec{Name: "s2", User: "me"}}); err == nil || len(local.free) != 1 {
		t.Errorf("a log-in was ignored: %v", err)
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
	t.Parallel()
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

// found says whether a refusal has this finding.
func found(err error, code string) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && slices.ContainsFunc(refused.Findings, func(f api.Finding) bool { return f.Code == code && f.Severity == api.Problem })
}

func TestAMapThatSwapsServersIsRefused(t *testing.T) {
	t.Parallel()
	servers := pgtest.StartN(t, 3)
	p := startProcess(t, startEtcd(t), nil)
	clusterOf(t, p, servers[:2])
	eventually(t, "all shards have recorded the map", p.settled)
	document := p.follower.Map().Document()
	document.Shards[0].Primary, document.Shards[1].Primary = document.Shards[1].Primary, document.Shards[0].Primary
	if _, err := p.Import(t.Context(), api.ImportMap{Document: []byte(asJSON(t, document))}); !found(err, "other_shard") {
		t.Errorf("%v", err)
	}
	document.Shards[0].Primary, document.Shards[1].Primary = document.Shards[1].Primary, document.Shards[0].Primary
	document.Shards[1].Primary.Address = servers[2].Addr()
	if _, err := p.Import(t.Context(), api.ImportMap{Document: []byte(asJSON(t, document))}); !found(err, "not_claimed") {
		t.Errorf("%v", err)
	}
}

// give moves all of a keyspace to a shard, in the map only.
func (p *process) give(t *testing.T, keyspace, to string) {
	t.Helper()
	if _, err := p.change(t.Context(), func(*topology.Map) ([]topology.Change, error) {
		return []topology.Change{topology.ReplaceRanges(keyspace, []topology.RangeSpec{{Shard: to}}, topology.Assignment{})}, nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestABackupThatLooksForDataElsewhereIsRefused(t *testing.T) {
	t.Parallel()
	servers := pgtest.StartN(t, 3)
	p := startProcess(t, startEtcd(t), nil)
	clusterOf(t, p, servers[:2])
	if _, err := p.CreateKeyspace(t.Context(), api.CreateKeyspace{Name: "users"}); err != nil {
		t.Fatal(err)
	}
	p.give(t, "users", "s1")
	backup := []byte(asJSON(t, p.follower.Map().Document()))
	add(t, p, "s3", servers[2])
	p.give(t, "users", "s2")
	if _, err := p.change(t.Context(), func(m *topology.Map) ([]topology.Change, error) {
		return []topology.Change{topology.UpdateShard("s1", func(s *topology.ShardSpec) { s.MinimumVersion = m.Version() })}, nil
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all shards have recorded the map", p.settled)
	before := p.follower.Map()
	if _, err := p.Import(t.Context(), api.ImportMap{Document: backup}); !found(err, "owners_differ") {
		t.Errorf("%v", err)
	}
	dry, err := p.Import(t.Context(), api.ImportMap{Document: backup, Force: true, DryRun: true})
	if err != nil || dry.MapVersion != 0 || len(dry.Changes) != 1 || !strings.Contains(dry.Changes[0], "is on s1, was on s2") || p.follower.Map() != before {
		t.Errorf("%+v, %v", dry, err)
	}

	// Without a map in force, or with one that is older than they are, the shards' records tell the same.
	p.stop()
	restored := startProcess(t, startEtcd(t), nil)
	old, err := topology.Decode(backup)
	if err != nil {
		t.Fatal(err)
	}
	if err := restored.store.Create(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if _, err := restored.Import(t.Context(), api.ImportMap{Document: backup}); !found(err, "owners_unknown") {
		t.Errorf("%v", err)
	}
	restored.stop()
	anew := startProcess(t, startEtcd(t), nil)
	if _, err := anew.Import(t.Context(), api.ImportMap{Document: backup}); !found(err, "owners_unknown") { // nobody asks s3
		t.Errorf("%v", err)
	}
	if err := servers[1].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := anew.Import(t.Context(), api.ImportMap{Document: backup}); !found(err, "unreachable") {
		t.Errorf("%v", err)
	}
	if err := servers[1].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	forced, err := anew.Import(t.Context(), api.ImportMap{Document: backup, Force: true})
	if err != nil {
		t.Fatal(err)
	}
	now := anew.follower.Map()
	if forced.MapVersion <= before.Version() || now.LastShardNumber() != before.LastShardNumber() || now.Shard("s1").MinimumVersion() != before.Shard("s1").MinimumVersion() {
		t.Errorf("version %d after %d, last number %d, minimum version %d", forced.MapVersion, before.Version(), now.LastShardNumber(), now.Shard("s1").MinimumVersion())
	}
}

func TestAnImportDoesNotUndoWhatItHasNotSeen(t *testing.T) {
	t.Parallel()
	servers := pgtest.StartN(t, 1)
	p := startProcess(t, startEtcd(t), nil)
	clusterOf(t, p, servers)
	seen := p.follower.Map()
	if _, err := p.CreateKeyspace(t.Context(), api.CreateKeyspace{Name: "users"}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Import(t.Context(), api.ImportMap{Document: []byte(asJSON(t, seen.Document())), IfVersion: seen.Version(), Force: true}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("an import on top of another version: %v", err)
	}
	if _, err := p.replace(t.Context(), seen, seen, nil); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a change between the look and the import: %v", err)
	}
	if p.follower.Map().Keyspace("users") == nil {
		t.Error("an acknowledged keyspace is gone")
	}
}

func TestAClusterThatLostItsMapIsNotMadeAnew(t *testing.T) {
	t.Parallel()
	servers := pgtest.StartN(t, 1)
	first := startProcess(t, startEtcd(t), nil)
	clusterOf(t, first, servers)
	eventually(t, "the shard has recorded the map", first.settled)
	registration, err := first.store.Register(t.Context(), store.Router{Name: "first", Applied: first.follower.Map().Version()})
	if err != nil {
		t.Fatal(err)
	}
	defer registration.Close()
	// Another process of another cluster name stands for one whose etcd is empty, but which hears of the living.
	lost := startProcess(t, startEtcd(t), nil)
	living, err := lost.store.Register(t.Context(), store.Router{Name: "living", Applied: 7})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lost.Create(t.Context()); !found(err, "map_lost") {
		t.Errorf("%v", err)
	}
	if err := living.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := lost.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A map that was made by mistake, with nothing in it, does not stand in the way.
	shards := specsOf(first.follower.Map())
	if _, err := lost.Rebuild(t.Context(), api.RebuildMap{Shards: shards, Apply: true}); err != nil {
		t.Fatal(err, reasons(err))
	}
	m, err := lost.store.Map(t.Context())
	if err != nil || m.Cluster() != first.follower.Map().Cluster() || m.Version() <= first.follower.Map().Version() {
		t.Errorf("%v", err)
	}
}

func TestOnlyReplicasAreReplicas(t *testing.T) {
	t.Parallel()
	servers := pgtest.StartN(t, 2)
	replica := pgtest.StartReplica(t, servers[0])
	p := startProcess(t, startEtcd(t), nil)
	if _, err := p.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	wrong := request("s1", servers[0])
	wrong.Replicas = []topology.InstanceSpec{{Address: servers[1].Addr()}}
	if _, err := p.AddShard(t.Context(), wrong); !found(err, "not_a_replica") {
		t.Errorf("a primary as a replica: %v", err)
	}
	wrong = request("s2", servers[1])
	wrong.Replicas = []topology.InstanceSpec{{Address: replica.Addr()}}
	if _, err := p.AddShard(t.Context(), wrong); !found(err, "not_a_replica") {
		t.Errorf("another's replica: %v", err)
	}
	right := request("s1", servers[0])
	right.Replicas = []topology.InstanceSpec{{Address: replica.Addr()}}
	if _, err := p.AddShard(t.Context(), right); err != nil {
		t.Fatal(err, reasons(err))
	}
	eventually(t, "the replica is seen", func() bool {
		shards, err := p.Shards(t.Context())
		return err == nil && shards[0].ReplicaStatus[0].Up
	})
	if err := replica.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is seen that the replica is none any more", func() bool {
		shards, err := p.Shards(t.Context())
		return err == nil && !shards[0].ReplicaStatus[0].Up && strings.Contains(shards[0].ReplicaStatus[0].Error, "primary")
	})
}

func TestNothingToChangeIsNoChange(t *testing.T) {
	t.Parallel()
	servers := pgtest.StartN(t, 1)
	p := startProcess(t, startEtcd(t), nil)
	clusterOf(t, p, servers)
	before := p.follower.Map().Version()
	weight := 1.0
	for _, request := range []api.UpdateShard{{}, {Weight: &weight}, {Labels: map[string]*string{"nobody": nil}}} {
		if changed, err := p.UpdateShard(t.Context(), "s1", request); err != nil || changed.MapVersion != before {
			t.Errorf("%+v: version %d after %d, %v", request, changed.MapVersion, before, err)
		}
	}
}

func TestForgottenInstancesAreLetGo(t *testing.T) {
	t.Parallel()
	servers := pgtest.StartN(t, 2)
	p := startProcess(t, startEtcd(t), nil)
	clusterOf(t, p, servers)
	eventually(t, "both are looked at", func() bool { return p.monitor.count() == 2 })
	if _, err := p.RemoveShard(t.Context(), "s2"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "one is forgotten", func() bool { return p.monitor.count() == 1 })
}

func (m *monitor) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.instances)
}

func TestDifferencesOfMaps(t *testing.T) {
	m, err := topology.New("0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c11")
	if err != nil {
		t.Fatal(err)
	}
	keyspace := func(name string, strategy topology.Strategy, seed int64, ranges ...topology.RangeSpec) topology.Change {
		spec := topology.NewKeyspaceSpec(name, strategy, seed, "bigint")
		spec.Ranges = ranges
		return topology.CreateKeyspace(spec)
	}
	shards := []topology.Change{}
	for _, name := range []string{"a", "b"} {
		shards = append(shards, topology.AddShard(topology.ShardSpec{Name: name, Primary: topology.InstanceSpec{Address: name + ":1"}}))
	}
	next := func(changes ...topology.Change) *topology.Map {
		made, err := m.Next(append(slices.Clone(shards), changes...)...)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	half := topology.Point{"8000000000000000"}
	onA, onB := topology.RangeSpec{Shard: "a"}, topology.RangeSpec{Shard: "b"}
	pin := func(shard string) topology.Change {
		return topology.SetPins("k", topology.PinSpec{Key: topology.Point{"7"}, Shard: shard})
	}
	table := func(kind topology.Kind, shard string) topology.Change {
		return topology.SetTable(topology.TableSpec{Name: "t", Kind: kind, Shard: shard})
	}
	for name, c := range map[string]struct {
		before, after *topology.Map
		want          []string
	}{
		"the same":        {next(keyspace("k", "hash", 1, onA)), next(keyspace("k", "hash", 1, onA, topology.RangeSpec{From: half, Shard: "a"})), nil},
		"a hash range":    {next(keyspace("k", "hash", 1, onA)), next(keyspace("k", "hash", 1, onA, topology.RangeSpec{From: half, Shard: "b"})), []string{"keyspace k: the range from 8000000000000000 to the end is on b, was on a"}},
		"a key range":     {next(keyspace("k", "range", 0, onA)), next(keyspace("k", "range", 0, onB, topology.RangeSpec{From: topology.Point{"5"}, Shard: "a"})), []string{"keyspace k: the range from the beginning to 5 is on b, was on a"}},
		"a seed":          {next(keyspace("k", "hash", 1, onA)), next(keyspace("k", "hash", 2, onA)), []string{"keyspace k has another strategy, key or seed: every row would be looked for elsewhere"}},
		"a keyspace":      {next(keyspace("k", "hash", 1, onA)), next(), []string{"keyspace k is not in it"}},
		"a new keyspace":  {next(), next(keyspace("k", "hash", 1, onA)), nil},
		"a pin":           {next(keyspace("k", "hash", 1, onA), pin("a")), next(keyspace("k", "hash", 1, onA), pin("b")), []string{"keyspace k: key 7 is on b, was on a"}},
		"a new pin":       {next(keyspace("k", "hash", 1, onA)), next(keyspace("k", "hash", 1, onA), pin("b")), []string{"keyspace k: key 7 is on b, was on a"}},
		"a pin less":      {next(keyspace("k", "hash", 1, onA), pin("b")), next(keyspace("k", "hash", 1, onA)), []string{"keyspace k: key 7 is on a, was on b"}},
		"a needless pin":  {next(keyspace("k", "hash", 1, onA), pin("a")), next(keyspace("k", "hash", 1, onA)), nil},
		"a table's kind":  {next(table(topology.Single, "a")), next(table(topology.Reference, "")), []string{"table public.t is reference, was single on a"}},
		"a table's shard": {next(table(topology.Single, "a")), next(table(topology.Single, "b")), []string{"table public.t is single on b, was single on a"}},
		"a table":         {next(table(topology.Single, "a")), next(), []string{"table public.t is not in it"}},
	} {
		if diff := cmp.Diff(c.want, Differences(c.before, c.after)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
