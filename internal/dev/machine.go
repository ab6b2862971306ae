package dev

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/secret"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// Role and Database are what the servers are made with.
const (
	Role     = "cleave"
	Database = "cleave"
)

// Config says what to run and where.
type Config struct {
	// Dir is the folder of everything. It is made if it is not there. Required.
	Dir string
	// Shards is how many a new cluster has. A cluster that is there keeps its own. Default: 4.
	Shards int
	// Replicas is how many streaming replicas each shard of a new cluster has. Default: 0.
	Replicas int
	// Progress is told what is being done, for people. Default: nobody.
	Progress func(step string)
	// Logger hears of servers that died and were started again. Default: slog.Default().
	Logger *slog.Logger

	// free tells the free space of a folder; tests replace it.
	free func(dir string) (uint64, error)
}

func (c Config) withDefaults() Config {
	if c.Shards == 0 {
		c.Shards = 4
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.free == nil {
		c.free = freeSpace
	}
	return c
}

func (c Config) check() error {
	switch {
	case c.Dir == "":
		return errors.New("no folder")
	case c.Shards < 1 || c.Shards > 64:
		return fmt.Errorf("%d shards: on one machine use 1 to 64", c.Shards)
	case c.Replicas < 0 || c.Replicas > 3:
		return fmt.Errorf("%d replicas a shard: on one machine use 0 to 3", c.Replicas)
	}
	return nil
}

// errLocked says that another process has the folder.
var errLocked = errors.New("locked")

// Machine is a running local cluster's etcd and servers. It is a control.Provisioner.
type Machine struct {
	config Config
	lock   *os.File
	etcd   *store.Embedded
	// Existed is whether the folder held a cluster already.
	existed bool

	mu       sync.Mutex // guards what follows
	state    *state
	servers  map[string]*shardServers
	stopping bool

	watching sync.WaitGroup
	stopped  chan struct{} // closed when nothing is to be started again
}

// shardServers are the servers of one shard.
type shardServers struct {
	primary  *localpg.Server
	replicas []*localpg.Server
	retired  chan struct{} // closed when they are not to be started again
}

func (s *shardServers) all() []*localpg.Server {
	return append([]*localpg.Server{s.primary}, s.replicas...)
}

// Open makes or opens the folder and starts everything in it. If that fails nothing is left running, and of a new folder
// nothing is left at all.
func Open(ctx context.Context, config Config) (*Machine, error) {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(config.Dir)
	if err != nil {
		return nil, err
	}
	config.Dir = dir
	fresh, err := makeFolder(dir)
	if err != nil {
		return nil, err
	}
	m := &Machine{config: config, servers: map[string]*shardServers{}, stopped: make(chan struct{})}
	if err := m.open(ctx); err != nil {
		err = errors.Join(err, m.stop())
		if fresh {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return nil, err
	}
	return m, nil
}

// makeFolder makes the folder; fresh is whether it was not there or was empty. A folder that holds other things is refused.
func makeFolder(dir string) (fresh bool, err error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return false, fmt.Errorf("make the folder: %w", err)
		}
		return true, nil
	case err != nil:
		return false, err
	case len(entries) == 0:
		return true, nil
	}
	for _, entry := range entries {
		if entry.Name() == lockName {
			return false, nil
		}
	}
	return false, fmt.Errorf("folder %s is not empty and holds no cluster: name another with --data", dir)
}

const lockName = "cleave.lock"

func (m *Machine) open(ctx context.Context) error {
	dir := m.config.Dir
	var err error
	if m.lock, err = lockFolder(filepath.Join(dir, lockName)); errors.Is(err, errLocked) {
		return fmt.Errorf("folder %s is in use by another cleave: stop that one, or name another folder with --data", dir)
	} else if err != nil {
		return err
	}
	if m.state, err = readState(dir); err != nil {
		return err
	}
	m.existed = m.state != nil
	if m.state == nil {
		m.state = m.plan()
	}
	for _, check := range []func(context.Context) error{m.checkInstalled, m.checkFolders, m.checkSpace, m.makePassword} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	if err := writeState(dir, m.state); err != nil {
		return err
	}
	m.config.Progress("starting etcd")
	m.etcd, err = store.StartEmbedded(ctx, store.EmbeddedConfig{Dir: filepath.Join(dir, "etcd"), LogFile: filepath.Join(dir, "etcd.log")})
	if err != nil {
		return err
	}
	return m.startServers(ctx)
}

// plan is the state of a new cluster.
func (m *Machine) plan() *state {
	s := &state{Format: stateFormat, Replicas: m.config.Replicas}
	for i := range m.config.Shards {
		s.Servers = append(s.Servers, serverState{Name: "shard" + strconv.Itoa(i+1), Replicas: make([]int, m.config.Replicas)})
	}
	return s
}

// checkInstalled looks for PostgreSQL before anything is started.
func (m *Machine) checkInstalled(ctx context.Context) error {
	_, err := localpg.Find(ctx)
	return err
}

// checkFolders makes sure that what was made is there: an empty server must not take a lost one's place.
func (m *Machine) checkFolders(context.Context) error {
	for _, s := range m.state.Servers {
		if _, err := os.Stat(m.folder(s.Name, 0)); s.Made && err != nil {
			return fmt.Errorf("the data of %s are gone: %s is not there; put the folder back, or start anew with another --data", s.Name, m.folder(s.Name, 0))
		}
	}
	return nil
}

// Disk that a cluster needs before it holds anything: a new server takes 50 MB, and its log grows to 80 MB soon; one that is
// opened needs room to recover.
const (
	spacePerNewServer = 200 << 20
	spacePerServer    = 32 << 20
	spaceForEtcd      = 128 << 20
)

func (m *Machine) checkSpace(context.Context) error {
	needed := uint64(spaceForEtcd)
	for _, s := range m.state.Servers {
		each := uint64(spacePerServer)
		if _, err := os.Stat(m.folder(s.Name, 0)); err != nil {
			each = spacePerNewServer
		}
		needed += each * uint64(1+len(s.Replicas))
	}
	free, err := m.config.free(m.config.Dir)
	if err != nil {
		return fmt.Errorf("look at the free space of %s: %w", m.config.Dir, err)
	}
	if free < needed {
		return fmt.Errorf("too little disk at %s: %d MB are free, %d MB are needed for %d shards", m.config.Dir, free>>20, needed>>20, len(m.state.Servers))
	}
	return nil
}

func (m *Machine) passwordFile() string { return filepath.Join(m.config.Dir, "password") }

// makePassword draws the servers' password once, and writes it also in the form that psql reads.
func (m *Machine) makePassword(context.Context) error {
	if _, err := os.Stat(m.passwordFile()); err == nil {
		return nil
	}
	if slices.ContainsFunc(m.state.Servers, func(s serverState) bool { return s.Made }) {
		return fmt.Errorf("the servers' password is gone: %s is not there; pgpass beside it has it too", m.passwordFile())
	}
	password := rand.Text()
	if err := writeDurably(filepath.Join(m.config.Dir, "pgpass"), []byte("127.0.0.1:*:*:"+Role+":"+password+"\n")); err != nil {
		return err
	}
	return writeDurably(m.passwordFile(), []byte(password+"\n"))
}

// PasswordFile is where psql finds the password: PGPASSFILE.
func (m *Machine) PasswordFile() string { return filepath.Join(m.config.Dir, "pgpass") }

// Dir is the folder of everything.
func (m *Machine) Dir() string { return m.config.Dir }

// Unfinished says whether a shard that is not in the map is to be added, because the cluster is still being made. Later,
// such a server is what is left of an addition that failed.
func (m *Machine) Unfinished() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.state.Complete
}

// Finished notes that the cluster has been made.
func (m *Machine) Finished() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.Complete = true
	return writeState(m.config.Dir, m.state)
}

// Existed says whether the folder held a cluster already.
func (m *Machine) Existed() bool { return m.existed }

// Endpoints are etcd's.
func (m *Machine) Endpoints() []string { return m.etcd.Endpoints() }

// Failed is closed when etcd has ended by itself.
func (m *Machine) Failed() <-chan struct{} { return m.etcd.Failed() }

// folder is where a shard's primary (0) or replica (from 1) is.
func (m *Machine) folder(name string, replica int) string {
	if replica == 0 {
		return filepath.Join(m.config.Dir, name)
	}
	return filepath.Join(m.config.Dir, fmt.Sprintf("%s-replica%d", name, replica))
}

// startServers starts all shards' servers, several at once.
func (m *Machine) startServers(ctx context.Context) error {
	verb := "starting"
	if !m.existed {
		verb = "making"
	}
	m.config.Progress(fmt.Sprintf("%s %d PostgreSQL servers", verb, len(m.state.Servers)*(1+m.state.Replicas)))
	errs := make([]error, len(m.state.Servers))
	var starting sync.WaitGroup
	var up atomic.Int32
	for i, s := range slices.Clone(m.state.Servers) {
		starting.Go(func() {
			if errs[i] = m.startShard(ctx, s); errs[i] == nil {
				m.config.Progress(fmt.Sprintf("%s is up, %d of %d", s.Name, up.Add(1), len(errs)))
			}
		})
	}
	starting.Wait()
	for _, err := range errs {
		if err != nil {
			return err // the others say the same, or follow from it
		}
	}
	return writeState(m.config.Dir, m.state)
}

// startShard starts one shard's servers and makes its database.
func (m *Machine) startShard(ctx context.Context, s serverState) error {
	started := &shardServers{retired: make(chan struct{})}
	primary, err := startOnPort(s.Port, func(port int) (*localpg.Server, error) {
		return localpg.Start(ctx, m.serverConfig(s.Name, 0, port))
	})
	if err != nil {
		return err
	}
	started.primary = primary
	for i, port := range s.Replicas {
		replica, err := startOnPort(port, func(port int) (*localpg.Server, error) {
			return localpg.StartReplica(ctx, primary, m.serverConfig(s.Name, i+1, port))
		})
		if err != nil {
			return errors.Join(err, stopAll(started.all()))
		}
		started.replicas = append(started.replicas, replica)
		s.Replicas[i] = replica.Port()
	}
	if err := makeDatabase(ctx, primary); err != nil {
		return errors.Join(err, stopAll(started.all()))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.servers[s.Name] = started
	if at := slices.IndexFunc(m.state.Servers, func(other serverState) bool { return other.Name == s.Name }); at >= 0 {
		m.state.Servers[at] = serverState{Name: s.Name, Port: primary.Port(), Replicas: s.Replicas, Made: true}
	}
	for _, server := range started.all() {
		m.watching.Go(func() { m.watch(server, s.Name, started.retired) })
	}
	return nil
}

// startOnPort tries the port of before; if another program has it now, any free one will do: the map is told.
func startOnPort(port int, start func(port int) (*localpg.Server, error)) (*localpg.Server, error) {
	server, err := start(port)
	var taken *localpg.PortInUseError
	if port != 0 && errors.As(err, &taken) {
		return start(0)
	}
	return server, err
}

func (m *Machine) serverConfig(name string, replica, port int) localpg.Config {
	return localpg.Config{Dir: m.folder(name, replica), Port: port, Superuser: Role, PasswordFile: m.passwordFile()}
}

// makeDatabase makes the cluster's database if it is not there.
func makeDatabase(ctx context.Context, server *localpg.Server) error {
	conn, err := pgx.Connect(ctx, server.DSN("postgres"))
	if err != nil {
		return fmt.Errorf("connect to the server in %s: %w", server.Dir(), err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var there bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", Database).Scan(&there); err != nil {
		return err
	}
	if !there {
		if _, err = conn.Exec(ctx, "CREATE DATABASE "+Database); err != nil {
			return err
		}
	}
	// The role is named like Cleave's own schema, and PostgreSQL would put the role's tables there.
	_, err = conn.Exec(ctx, "ALTER ROLE "+Role+" IN DATABASE "+Database+" SET search_path = public")
	return err
}

// watch starts a server again that died by itself.
func (m *Machine) watch(server *localpg.Server, name string, retired <-chan struct{}) {
	wait := func(d time.Duration) bool {
		select {
		case <-m.stopped:
			return false
		case <-retired:
			return false
		case <-time.After(d):
			return true
		}
	}
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		select {
		case <-m.stopped:
			return
		case <-retired:
			return
		case <-server.Exited():
		}
		if !wait(pause) {
			return
		}
		m.config.Logger.Warn("a server has died and is started again", "shard", name, "address", server.Addr())
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		err := server.Restart(ctx)
		cancel()
		if err != nil {
			m.config.Logger.Error("the server does not start", "shard", name, "error", err)
			continue
		}
		pause = time.Second / 2
	}
}

// Specs describes the shards as the map is to have them, in the order in which they were made.
func (m *Machine) Specs() []topology.ShardSpec {
	m.mu.Lock()
	defer m.mu.Unlock()
	var specs []topology.ShardSpec
	for _, s := range m.state.Servers {
		specs = append(specs, m.spec(s.Name))
	}
	return specs
}

// spec describes a shard. The caller holds mu.
func (m *Machine) spec(name string) topology.ShardSpec {
	servers := m.servers[name]
	spec := topology.ShardSpec{
		Name: name, Primary: topology.InstanceSpec{Address: servers.primary.Addr()},
		Database: Database, User: Role, Password: secret.Reference{File: m.passwordFile()}, SSLMode: "disable",
	}
	for _, replica := range servers.replicas {
		spec.Replicas = append(spec.Replicas, topology.InstanceSpec{Address: replica.Addr()})
	}
	return spec
}

// Provision starts the servers of a new shard.
func (m *Machine) Provision(ctx context.Context, spec topology.ShardSpec) (topology.ShardSpec, error) {
	s, err := m.reserve(spec.Name)
	if err != nil {
		return spec, err
	}
	if err := m.startShard(ctx, s); err != nil {
		_, retired := m.Retire(context.WithoutCancel(ctx), spec.Name)
		return spec, errors.Join(fmt.Errorf("start a server for shard %s: %w", spec.Name, err), retired)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := writeState(m.config.Dir, m.state); err != nil {
		return spec, err
	}
	made := m.spec(spec.Name)
	made.Weight, made.Labels, made.State = spec.Weight, spec.Labels, spec.State
	return made, nil
}

// reserve writes down the server that is about to be made.
func (m *Machine) reserve(name string) (serverState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopping {
		return serverState{}, errors.New("the cluster is stopping")
	}
	if slices.ContainsFunc(m.state.Servers, func(s serverState) bool { return s.Name == name }) || slices.Contains(reservedNames, name) || strings.Contains(name, "-replica") {
		return serverState{}, fmt.Errorf("shard name %q is taken in folder %s", name, m.config.Dir)
	}
	s := serverState{Name: name, Replicas: make([]int, m.state.Replicas)}
	next := *m.state
	next.Servers = append(slices.Clone(m.state.Servers), s)
	if err := writeState(m.config.Dir, &next); err != nil {
		return serverState{}, err
	}
	m.state = &next
	return s, nil
}

// reservedNames are files and folders of the cluster that no shard may be named after.
var reservedNames = []string{"etcd", "etcd.log", "password", "pgpass", "cluster.json", lockName}

// Retire stops a shard's servers and removes their folders; where there is anything in the databases, the primary's folder is
// put aside instead, and Retire says where. One that was not made here is left alone.
func (m *Machine) Retire(ctx context.Context, name string) (kept string, err error) {
	m.mu.Lock()
	servers := m.servers[name]
	delete(m.servers, name)
	known := slices.ContainsFunc(m.state.Servers, func(s serverState) bool { return s.Name == name })
	m.mu.Unlock()
	if !known {
		return "", nil
	}
	if servers != nil {
		if kept, err = m.stopRetired(ctx, name, servers); err != nil {
			return "", err
		}
	}
	if err := m.clear(name, kept); err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	next := *m.state
	next.Servers = slices.DeleteFunc(slices.Clone(m.state.Servers), func(s serverState) bool { return s.Name == name })
	m.state = &next
	return kept, writeState(m.config.Dir, m.state)
}

// stopRetired stops the servers, and returns where the primary's folder is to be put if there is something in it.
func (m *Machine) stopRetired(ctx context.Context, name string, servers *shardServers) (aside string, err error) {
	some, err := holdsTables(ctx, servers.primary)
	if err != nil {
		m.config.Logger.Warn("cannot tell whether the shard's server holds anything, so its folder is kept", "shard", name, "error", err)
	}
	if some || err != nil {
		aside = m.folder(name, 0) + ".removed-" + time.Now().UTC().Format("20060102T150405")
	}
	close(servers.retired)
	return aside, stopAll(servers.all())
}

// Untouched says whether a shard's server has never been part of the map and holds nothing.
func (m *Machine) Untouched(ctx context.Context, name string) (bool, error) {
	m.mu.Lock()
	servers := m.servers[name]
	m.mu.Unlock()
	if servers == nil {
		return false, nil
	}
	if some, err := holdsTables(ctx, servers.primary); some || err != nil {
		return false, err
	}
	var member bool
	err := query(ctx, servers.primary, Database, "SELECT to_regclass('cleave.identity') IS NOT NULL", &member)
	if err != nil || !member {
		return err == nil, err
	}
	err = query(ctx, servers.primary, Database, "SELECT EXISTS (SELECT FROM cleave.identity WHERE map_version > 0)", &member)
	return err == nil && !member, err
}

// holdsTables says whether somebody has put tables into one of the server's databases.
func holdsTables(ctx context.Context, server *localpg.Server) (bool, error) {
	var databases []string
	if err := query(ctx, server, "postgres", "SELECT array_agg(datname::text) FROM pg_database WHERE datallowconn AND NOT datistemplate", &databases); err != nil {
		return false, err
	}
	for _, database := range databases {
		var some bool
		// Of the schema cleave only our own tables do not count: others may have landed there, as it is named like the role.
		err := query(ctx, server, database, `SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE c.relkind IN ('r', 'p', 'm', 'f') AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%'
			AND NOT (n.nspname = 'cleave' AND c.relname = ANY ('{`+strings.Join(ownTables, ",")+`}')))`, &some)
		if some || err != nil {
			return some, err
		}
	}
	return false, nil
}

// ownTables are the tables of the schema cleave that Cleave makes; package shard has them.
var ownTables = []string{"identity", "keyspaces", "migrations", "pins", "ranges", "tables"}

// query runs a query for one value.
func query(ctx context.Context, server *localpg.Server, database, sql string, value any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, server.DSN(database))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return conn.QueryRow(ctx, sql).Scan(value)
}

// clear removes a shard's folders; the primary's is put aside if there is a place named.
func (m *Machine) clear(name, aside string) error {
	var errs []error
	if aside != "" {
		errs = append(errs, os.Rename(m.folder(name, 0), aside))
	} else {
		errs = append(errs, os.RemoveAll(m.folder(name, 0)))
	}
	for i := range m.state.Replicas {
		errs = append(errs, os.RemoveAll(m.folder(name, i+1)))
	}
	return errors.Join(errs...)
}

func stopAll(servers []*localpg.Server) error {
	errs := make([]error, len(servers))
	var stopping sync.WaitGroup
	for i, s := range servers {
		stopping.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			errs[i] = s.Stop(ctx)
		})
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// Close stops the replicas, then the primaries, then etcd. It may be called twice.
func (m *Machine) Close() error { return m.stop() }

func (m *Machine) stop() error {
	m.mu.Lock()
	if m.stopping {
		m.mu.Unlock()
		return nil
	}
	m.stopping = true
	close(m.stopped)
	var primaries, replicas []*localpg.Server
	for _, s := range m.servers {
		primaries = append(primaries, s.primary)
		replicas = append(replicas, s.replicas...)
	}
	m.mu.Unlock()
	m.watching.Wait()
	// A replica that outlives its primary would only complain; a primary waits for its replicas to have everything.
	err := errors.Join(stopAll(replicas), stopAll(primaries))
	if m.etcd != nil {
		m.etcd.Close()
	}
	if m.lock != nil {
		err = errors.Join(err, m.lock.Close())
	}
	return err
}
