package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/auth"
	"github.com/cleavedb/cleave/internal/catalog"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/observe"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/pool"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/shardtest"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/internal/traffic"
	"github.com/cleavedb/cleave/placement/key"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		model.Remove()
		bareModel.Remove()
		os.Exit(code)
	}))
}

// model is what all shards begin as, and bareModel what a plain server does: the types of users are to have the same OIDs on both.
var model, bareModel = shardtest.NewModel(), shardtest.NewBareModel()

const clusterID = "0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c11"

func must[T any](t testing.TB) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// patience is how long a test waits before it says that something hangs.
const patience = time.Minute

// eventually waits until it is so; only a test that hangs fails here.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never came to be that %s", what)
		}
	}
}

// schemaSQL is what every server has, the plain one too. Each statement runs in a transaction of its own.
var schemaSQL = []string{
	"CREATE TABLE orders (id bigint PRIMARY KEY, note text)",
	"CREATE TABLE countries (code text PRIMARY KEY, name text)",
	"CREATE TABLE undeclared (a int, b text)",
	"CREATE TABLE watched (a int)",
	"CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE NOTICE 'row %', NEW.a; RETURN NEW; END $$",
	"CREATE TRIGGER tell BEFORE INSERT ON watched FOR EACH ROW EXECUTE FUNCTION tell()",
}

// world is a cluster with a router in this process, and a plain server beside it that has the same tables.
type world struct {
	shards  []*localpg.Server
	plain   *localpg.Server
	m       *topology.Map
	pools   *pool.Pools
	server  *Server
	address string
	// published is the map that the router sees.
	published atomic.Pointer[topology.Map]
	// drain ends the router as a signal would; it returns when Serve has.
	drain func() error
}

// worldConfig says in which ways a world is not like most.
type worldConfig struct {
	shards int // 2
	pools  pool.Config
	config Config
	// noPlain: nothing is compared.
	noPlain bool
	// unsharded: no table is, so functions that may do anything are let through.
	unsharded bool
	// setUp runs on every server.
	setUp []string
	// tables are declared besides orders and countries; onShards runs on each shard of that number before they are.
	tables   []topology.TableSpec
	onShards func(number int) []string
	// keyspaces has, by name, the types of the key, separated by commas, of each keyspace besides main. One by range has the key before them
	// from which on the second shard has it, as in "100:integer".
	keyspaces map[string]string
	// moved gives the router another map than the catalogue has.
	moved func(*topology.Map) *topology.Map
}

func specOf(i int, s *localpg.Server) topology.ShardSpec {
	return topology.ShardSpec{
		Name: fmt.Sprintf("s%d", i+1), Primary: topology.InstanceSpec{Address: s.Addr()}, Database: "postgres", User: "postgres", SSLMode: "disable",
	}
}

func newWorld(t testing.TB, c worldConfig) *world {
	t.Helper()
	if c.shards == 0 {
		c.shards = 2
	}
	configs := model.Configs(t, c.shards)
	if !c.noPlain {
		configs = append(configs, bareModel.Configs(t, 1)...)
	}
	servers := pgtest.StartWith(t, configs...)
	w := &world{shards: servers[:c.shards]}
	if !c.noPlain {
		w.plain = servers[c.shards]
	}
	for _, server := range servers {
		conn := connectTo(t, server.Addr())
		for _, sql := range append(schemaSQL, c.setUp...) {
			execute(t, conn, sql)
		}
	}
	tables := []topology.TableSpec{
		{Name: "public.orders", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"}}, {Name: "public.countries", Kind: topology.Reference},
	}
	if c.unsharded {
		tables = nil
	}
	tables = append(tables, c.tables...)
	for i, server := range w.shards {
		if c.onShards == nil {
			break
		}
		conn := connectTo(t, server.Addr())
		for _, sql := range c.onShards(i + 1) {
			execute(t, conn, sql)
		}
	}
	w.makeMap(t, tables, c.keyspaces)
	w.startRouter(t, c)
	return w
}

// makeMap adds the shards, a keyspace by hash and the tables, and lets the shards record it.
func (w *world) makeMap(t testing.TB, tables []topology.TableSpec, keyspaces map[string]string) {
	t.Helper()
	w.m = must[*topology.Map](t)(topology.New(clusterID))
	conns := make([]*pgx.Conn, len(w.shards))
	for i, server := range w.shards {
		conns[i] = connectTo(t, server.Addr())
		if err := shard.Claim(t.Context(), conns[i], clusterID, specOf(i, server), w.m); err != nil {
			t.Fatal(err)
		}
		w.m = must[*topology.Map](t)(w.m.Next(topology.AddShard(specOf(i, server))))
	}
	changes := []topology.Change{w.byHash(t, "main", "bigint")}
	for name, keyTypes := range keyspaces {
		if from, keyType, isByRange := strings.Cut(keyTypes, ":"); isByRange {
			spec := topology.NewKeyspaceSpec(name, topology.ByRange, 0, keyType)
			spec.Ranges = []topology.RangeSpec{{Shard: "s1"}, {From: topology.Point{from}, Shard: "s2"}}
			changes = append(changes, topology.CreateKeyspace(spec))
			continue
		}
		changes = append(changes, w.byHash(t, name, keyTypes))
	}
	for _, spec := range tables {
		changes = append(changes, topology.SetTable(spec))
	}
	w.m = must[*topology.Map](t)(w.m.Next(changes...))
	for i, conn := range conns {
		if _, err := shard.Record(t.Context(), conn, w.m, fmt.Sprintf("s%d", i+1)); err != nil {
			t.Fatal(err)
		}
	}
}

// byHash makes a keyspace of which every shard has an equal share.
func (w *world) byHash(t testing.TB, name, keyTypes string) topology.Change {
	t.Helper()
	keyspace := topology.NewKeyspaceSpec(name, topology.ByHash, 42, strings.Split(keyTypes, ",")...)
	var err error
	if keyspace.Ranges, keyspace.Assignment, err = w.m.Assign(topology.Assignment{Algorithm: "even"}); err != nil {
		t.Fatal(err)
	}
	return topology.CreateKeyspace(keyspace)
}

func (w *world) startRouter(t testing.TB, c worldConfig) {
	t.Helper()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	incarnation := NewIncarnation()
	c.pools.Name, c.pools.Logger, c.pools.Access = "cleave/"+incarnation, quiet, shard.Access{}
	c.pools.LoginsPerSecond = orDefault(c.pools.LoginsPerSecond, 1000)
	c.pools.Startup = map[string]string{shard.RouterParameter: incarnation}
	w.published.Store(w.m)
	c.pools.OnLogin = Greet(incarnation, func() uint64 { return w.published.Load().Version() }, nil)
	w.pools = pool.New(c.pools)
	t.Cleanup(w.pools.Close)
	real := w.m
	known := catalog.New(catalog.Config{Map: func() *topology.Map { return real }, Logger: quiet})
	t.Cleanup(known.Close)
	if c.moved != nil {
		w.m = c.moved(w.m)
	}
	w.pools.Apply(w.m)

	config := c.config
	config.Database, config.Pools, config.Catalog, config.Logger = "postgres", w.pools, known, quiet
	config.ServiceUser = "postgres"
	w.published.Store(w.m)
	if config.Map == nil {
		config.Map = w.published.Load
	}
	if config.MapChanged == nil {
		config.MapChanged = func() <-chan struct{} { return nil }
	}
	config.Statements, config.Shards = observe.NewStatements(observe.StatementsConfig{}), observe.NewShardStats(func(int) string { return "" })
	if config.Virtual == nil {
		config.Virtual = fakeVirtual{}
	}
	if config.Rules == nil {
		config.Rules = must[auth.Rules](t)(auth.ParseRules([]auth.RuleSpec{{Addresses: []string{"loopback"}, Method: "trust"}}))
	}
	if config.Traffic == nil {
		config.Traffic = &traffic.Counter{}
	}
	config.Traffic.Follow(w.m, time.Now())
	w.server = New(config)
	w.listen(t)
}

// publish gives the router another map.
func (w *world) publish(m *topology.Map) { w.published.Store(m) }

func (w *world) listen(t testing.TB) {
	t.Helper()
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	w.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.server.Serve(ctx, listener) }()
	var once atomic.Bool
	w.drain = func() error {
		cancel()
		if once.Swap(true) {
			return nil
		}
		return <-ended
	}
	t.Cleanup(func() { _ = w.drain() })
}

// settled wants nothing to be in use any more: no backend is lent, and no shard has an open transaction of the router's.
func (w *world) settled(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		used := 0
		for _, s := range w.pools.Stats() {
			used += s.InUse + s.Waiting
		}
		if used == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("backends are in use, and nobody uses them: %+v; sessions: %+v", w.pools.Stats(), w.server.Sessions())
		}
		time.Sleep(time.Millisecond)
	}
}

// key returns the n-th key, from 0, that lives on the shard of this number.
func (w *world) key(t testing.TB, number, n int) int64 {
	t.Helper()
	for k := int64(1); ; k++ {
		value := must[key.Value](t)(key.OfInt(key.Bigint, k))
		place := must[topology.Place](t)(w.m.Keyspace("main").Locate(value))
		if place.Shard.Number() != number {
			continue
		}
		if n == 0 {
			return k
		}
		n--
	}
}

// onShard logs in to a shard beside the router, as one who knows what they do.
func (w *world) onShard(t testing.TB, number int) *pgx.Conn {
	t.Helper()
	return connectTo(t, w.shards[number-1].Addr())
}

// connectTo logs in to a server as its superuser.
func connectTo(t testing.TB, address string) *pgx.Conn {
	t.Helper()
	config := must[*pgx.ConnConfig](t)(pgx.ParseConfig("postgres://postgres@" + address + "/postgres?sslmode=disable"))
	config.RuntimeParams[shard.RouterParameter] = shard.ByHand
	conn := must[*pgx.Conn](t)(pgx.ConnectConfig(t.Context(), config))
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// client connects to the router with pgx.
func (w *world) client(t testing.TB) *pgx.Conn {
	t.Helper()
	conn := must[*pgx.Conn](t)(w.tryClient(t))
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (w *world) tryClient(t testing.TB) (*pgx.Conn, error) {
	t.Helper()
	return pgx.Connect(t.Context(), "postgres://postgres@"+w.address+"/postgres?sslmode=disable")
}

func execute(t testing.TB, conn *pgx.Conn, sql string, arguments ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, arguments...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func one[T any](t testing.TB, conn *pgx.Conn, sql string, arguments ...any) (value T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql, arguments...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// fakeVirtual stands for the router's own schema, which is package virtual's work.
type fakeVirtual struct{}

func (fakeVirtual) View(_ context.Context, name string, columnsOnly bool) (View, *pgerr.Error) {
	v := View{Columns: []ViewColumn{{"name", "text"}, {"number", "integer"}}}
	if name != "shards" {
		return v, pgerr.New(pgerr.UndefinedTable, "relation \"cleave.%s\" does not exist", name)
	}
	if !columnsOnly {
		v.Rows = [][]any{{"it's", 1}, {"back\\slash", 2}, {nil, 3}}
	}
	return v, nil
}

func (fakeVirtual) ResultType(string) string { return "text" }

func (fakeVirtual) Call(_ context.Context, call Call) (*string, *pgerr.Error) {
	if call.Function != "version" {
		return nil, pgerr.New(pgerr.UndefinedFunction, "function cleave.%s does not exist", call.Function)
	}
	text := "some version"
	return &text, nil
}

var errHangs = errors.New("there is no answer")
