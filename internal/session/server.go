package session

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/internal/auth"
	"github.com/cleavedb/cleave/internal/catalog"
	"github.com/cleavedb/cleave/internal/observe"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/pool"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/internal/traffic"
	"github.com/cleavedb/cleave/internal/txn"
	"github.com/cleavedb/cleave/internal/wire"
)

// Mode is how long a client keeps a backend.
type Mode string

// The modes.
const (
	// TransactionMode: for a transaction, unless something ties the client to it.
	TransactionMode Mode = "transaction"
	// SessionMode: from the first use of a shard to the end of the session.
	SessionMode Mode = "session"
)

// Config says how clients are served.
type Config struct {
	// Router is this process's ID, which the names of its transactions have. Default: made up.
	Router string
	// Database is the one database that there is.
	Database string
	// ServiceUser is the role whose password the router has, for clients of that name.
	ServiceUser string
	// Rules say who is let in, and how; Users know their verifiers. Required.
	Rules auth.Rules
	Users auth.Users
	// Certificates are for TLS; nil: there is none.
	Certificates *auth.Certificates
	// Pools lend backends; Catalog knows tables; Virtual answers for the schema cleave. Required.
	Pools   *pool.Pools
	Catalog *catalog.Catalog
	Virtual Virtual
	// Map returns the map in force; MapChanged a channel that is closed when there is another. Required.
	Map        func() *topology.Map
	MapChanged func() <-chan struct{}
	// Schema returns the schema's state; MapChanged tells of it too. Acknowledge is told which state this router goes by. Definitions
	// lets all routers agree on changes. Default: there is one router, and nobody to agree with.
	Schema      func() topology.SchemaState
	Acknowledge func(epoch uint64)
	Definitions Definitions
	// Settled is told the version of the map such that nothing goes by an earlier one where that matters. Default: nobody is.
	Settled func(version uint64)
	// Ready returns why nobody can be served now, nil if everybody can. Default: always nil.
	Ready func() error
	// Statements and Shards count. Required.
	Statements *observe.Statements
	Shards     *observe.ShardStats
	// Traffic counts which keys statements are for. Default: nobody does.
	Traffic *traffic.Counter
	// Mode is how long clients keep backends unless they ask otherwise. Default: transaction.
	Mode Mode
	// MaxClients is how many may be connected. Default: 10,000.
	MaxClients int
	// MaxMessage is how long one message may be. Default: 256 MiB.
	MaxMessage int
	// StartupTimeout is how long logging in may take. Default: 30 seconds.
	StartupTimeout time.Duration
	// HoldTimeout is how long a statement waits for rows that are moving. Default: 30 seconds.
	HoldTimeout time.Duration
	// DrainTimeout is how long transactions may go on when the router stops, and before that, if it stops because another
	// has taken its listener over, how long sessions may. Default: 30 seconds.
	DrainTimeout time.Duration
	// Plans is how many plans are kept. Default: 10,000.
	Plans int
	// Rows is how much may be held of several shards' rows.
	Rows Rows
	// Logger hears what nobody is told. Default: slog's.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Mode = orDefault(c.Mode, TransactionMode)
	if c.Router == "" {
		c.Router = NewIncarnation()
	}
	c.MaxClients = orDefault(c.MaxClients, 10_000)
	c.MaxMessage = orDefault(c.MaxMessage, 256<<20)
	c.StartupTimeout = orDefault(c.StartupTimeout, 30*time.Second)
	c.HoldTimeout = orDefault(c.HoldTimeout, 30*time.Second)
	c.DrainTimeout = orDefault(c.DrainTimeout, 30*time.Second)
	c.Plans = orDefault(c.Plans, 10_000)
	c.Rows = c.Rows.withDefaults()
	if c.Schema == nil {
		c.Schema = func() topology.SchemaState { return topology.SchemaState{} }
	}
	if c.Acknowledge == nil {
		c.Acknowledge = func(uint64) {}
	}
	if c.Settled == nil {
		c.Settled = func(uint64) {}
	}
	if c.Ready == nil {
		c.Ready = func() error { return nil }
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func orDefault[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}

// Server takes clients in. Make it with [New]. Safe for concurrent use.
type Server struct {
	config    Config
	allowance allowance // what statements hold of several shards' rows
	planner   *planner
	// view is the map that statements are planned and routed with.
	view atomic.Pointer[mapView]
	// epoch grows with every change of the schema that passed through here.
	epoch      atomic.Uint64
	mockSecret []byte
	defaults   defaultsCache
	paths      pathCache
	numbers    numberings
	refusals   atomic.Uint64
	// horizon is where the next consistent read starts to look from.
	horizon atomic.Pointer[txn.Horizon]
	// barrier is for the one reader who keeps decisions waiting, crowded when one last had to, in nanoseconds.
	barrier sync.Mutex
	crowded atomic.Int64
	watched watchList

	mu       sync.Mutex
	sessions map[uint32]*session
	left     []leftBehind // sessions that have ended, whose servers may not have
	last     uint32
	clients  int // connections, those included that are not logged in
	surplus  int // connections beyond the limit
	draining bool
	wait     sync.WaitGroup
}

// New returns a server.
func New(c Config) *Server {
	c = c.withDefaults()
	s := &Server{config: c, allowance: allowance{Rows: c.Rows}, planner: newPlanner(c.Plans, c.Catalog, c.Statements), sessions: map[uint32]*session{}, watched: newWatchList()}
	s.mockSecret = make([]byte, 32)
	_, _ = rand.Read(s.mockSecret) // never fails
	return s
}

// Serve takes in clients until the context ends; then nobody new is let in, transactions may end, and it returns when the
// last client is gone.
//
// It also lets nobody in once the listener is closed by somebody else, which is how clients come to another process after a
// hand-over. Then sessions go on as ever, until they end or [Config.DrainTimeout] has passed; only after that it is as if
// the context had ended.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	sessions, end := context.WithCancel(context.Background())
	defer end()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	// Those who stay follow the map to their end.
	following, stopFollowing := context.WithCancel(context.Background())
	var follower sync.WaitGroup
	known := s.adoptMap(nil) // before the first client asks for a shard
	follower.Go(func() { s.followMap(following, known) })
	follower.Go(func() { s.acknowledge(following) })
	follower.Go(func() { s.settle(following) })
	err := s.accept(ctx, sessions, listener)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		s.wait.Wait()
	}()
	s.linger(ctx, gone)
	s.drain(end, gone)
	stopFollowing()
	follower.Wait()
	return err
}

// linger lets sessions go on, though nobody new comes in, until all are gone, the time is over or the context ends.
func (s *Server) linger(ctx context.Context, gone <-chan struct{}) {
	select {
	case <-gone:
	case <-ctx.Done():
	case <-time.After(s.config.DrainTimeout):
	}
}

func (s *Server) accept(ctx, sessions context.Context, listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			if standing := s.admit(conn); standing != refused {
				s.wait.Go(func() { s.serve(ctx, sessions, conn, standing) })
			}
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil //nolint:nilerr // it was closed on purpose
		default: // out of file descriptors, perhaps: it passes
			s.config.Logger.Warn("a client could not be taken in", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

// standing is whether there was room for a connection when it came.
type standing uint8

const (
	refused  standing = iota
	admitted          // it may log in
	surplus           // it may say what it wants: requests to cancel are heard however many clients there are
)

// maxSurplus is how many connections beyond the limit may be saying what they want. The others are not listened to.
const maxSurplus = 100

// admit counts a connection in, or refuses it.
func (s *Server) admit(conn net.Conn) standing {
	s.mu.Lock()
	standing := s.room()
	switch standing {
	case admitted:
		s.clients++
	case surplus:
		s.surplus++
	case refused:
	}
	s.mu.Unlock()
	if standing == refused {
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = conn.Write(wire.AppendError(nil, s.tooManyClients()))
		_ = conn.Close()
	}
	return standing
}

// room says what there is room for.
func (s *Server) room() standing {
	switch {
	case s.draining:
		return refused
	case s.clients < s.config.MaxClients:
		return admitted
	case s.surplus < maxSurplus:
		return surplus
	default:
		return refused
	}
}

func (s *Server) tooManyClients() *pgerr.Error {
	return pgerr.Fatal(pgerr.TooManyConnections, "sorry, too many clients already").
		WithHint("The router takes limits.clients = %d.", s.config.MaxClients)
}

// promote lets a surplus connection log in if there is room by now, and says whether there is.
func (s *Server) promote(session *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session.standing == surplus && s.room() == admitted {
		s.surplus--
		s.clients++
		session.standing = admitted
	}
	return session.standing == admitted
}

// dismiss counts a connection out.
func (s *Server) dismiss(session *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session.standing == surplus {
		s.surplus--
	} else {
		s.clients--
	}
}

// followMap adopts every map that comes into force.
func (s *Server) followMap(ctx context.Context, known *topology.Map) {
	for {
		changed := s.config.MapChanged()
		known = s.adoptMap(known)
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// adoptMap returns the map in force, by which backends are lent from now on and plans are made.
func (s *Server) adoptMap(known *topology.Map) *topology.Map {
	m := s.config.Map()
	if m == known || m == nil {
		return known
	}
	if !sameTables(known, m) {
		s.schemaChanged()
	}
	s.config.Pools.Apply(m)
	return m
}

// mapView is a map, and a number that tells apart maps under which statements have other plans: what is planned with a map
// can only be found again by those who see the same tables.
type mapView struct {
	m      *topology.Map
	schema topology.SchemaState
	tables uint64
}

// see returns the map in force. It never goes back.
func (s *Server) see() *mapView {
	schema := s.config.Schema() // first: the map is the one that it was made for, or a later one
	m := s.config.Map()
	for {
		known := s.view.Load()
		if known != nil && (m == nil || m.Version() < known.m.Version() || m == known.m && schema.Epoch <= known.schema.Epoch) {
			return known
		}
		next := &mapView{m: m, schema: schema}
		if m == nil {
			return next
		}
		if known != nil {
			next.tables = known.tables
			if known.schema.Epoch > schema.Epoch {
				next.schema = known.schema
			}
			if known.schema.Epoch != next.schema.Epoch {
				s.schemaChanged() // before anybody plans with this view
				next.tables++
			}
		}
		if known == nil || !sameTables(known.m, m) {
			next.tables++
		}
		if s.view.CompareAndSwap(known, next) {
			return next
		}
	}
}

// schemaChanged makes all plans old.
func (s *Server) schemaChanged() {
	s.config.Catalog.Forget()
	s.defaults.forget() // what a role begins with may have changed too
	s.epoch.Add(1)
}

// drain lets transactions end, and closes what is left after a while. It returns when all are gone.
func (s *Server) drain(end context.CancelFunc, gone <-chan struct{}) {
	s.mu.Lock()
	s.draining = true
	all := maps.Clone(s.sessions)
	s.mu.Unlock()
	for _, session := range all {
		session.draining.Store(true)
		if session.idle.Load() {
			_ = session.conn.SetReadDeadline(longAgo)
		}
	}
	select {
	case <-gone:
		return
	case <-time.After(s.config.DrainTimeout):
	}
	s.config.Logger.Warn("transactions did not end in time; their sessions are closed", "after", s.config.DrainTimeout)
	end()
	s.mu.Lock()
	all = maps.Clone(s.sessions)
	s.mu.Unlock()
	for _, session := range all {
		session.kill()
	}
	<-gone
}

var longAgo = time.Unix(1, 0)

var noDeadline time.Time

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// serve is one client's time here. Who is not in yet when the first context ends does not get in.
func (s *Server) serve(entry, ctx context.Context, conn net.Conn, standing standing) {
	session := &session{
		server: s, conn: conn, standing: standing, started: time.Now(), target: noShard, status: statusIdle, poolMode: s.config.Mode, reported: map[string]string{},
	}
	session.ctx, session.cancel = context.WithCancel(ctx)
	session.in.conn = conn
	defer func() { // whatever happens, and last
		session.cancel()
		_ = conn.Close()
		s.dismiss(session)
	}()
	defer session.survive()
	notLate := context.AfterFunc(entry, func() { _ = conn.SetDeadline(longAgo) })
	defer notLate()
	if err := session.start(); err != nil {
		if !errors.Is(err, errEnd) {
			s.config.Logger.Debug("a client did not get in", "address", conn.RemoteAddr(), "error", err)
		}
		session.leave()
		return
	}
	if !notLate() || !s.enter(session) {
		_ = session.sayGoodbye(shutdown)
		session.leave()
		return
	}
	err := session.serve()
	session.leave()
	s.noteLeft(session) // before it counts no more among sessions
	s.remove(session)
	if err != nil && !errors.Is(err, errEnd) {
		s.config.Logger.Debug("a session ended", "session", session.number, "user", session.user, "error", err)
	}
}

// survive ends a session that has panicked, and it alone.
func (s *session) survive() {
	cause := recover()
	if cause == nil {
		return
	}
	s.server.config.Logger.Error("a session panicked and was ended", "session", s.number, "user", s.user, "panic", cause, "stack", string(debug.Stack()))
	s.mu.giveUp()
	s.abandon()
	s.server.noteLeft(s)
	s.server.remove(s)
}

// abandon is leave for a session of which nobody knows where it stopped: it looks at as little as it can.
func (s *session) abandon() {
	if s.relayed == 0 { // or the client may be in the middle of a message
		_ = s.sayGoodbye(pgerr.Fatal(pgerr.InternalError, "the session ended because of an error in the router").
			WithDetail("The statement may have run or not.").WithHint("The router's log has the details. Connect again."))
	}
	_ = s.conn.Close()
	if s.backend != nil {
		s.backend.Retire("the session panicked")
	}
	for _, l := range s.legs {
		l.backend.Retire("the session panicked")
	}
	for _, p := range s.pinned {
		p.backend.Retire("the session panicked")
	}
	s.written()
}

// enter makes a session known, so that it can be cancelled, seen and ended.
func (s *Server) enter(session *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.draining {
		s.sessions[session.number] = session
	}
	return !s.draining
}

func (s *Server) remove(session *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, session.number)
	s.watched.remove(session)
}

// newNumber returns a number for a session; the client takes it for its backend's process id.
func (s *Server) newNumber() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		s.last = s.last%(1<<30) + 1 // positive for clients that take it as a signed number
		if s.sessions[s.last] == nil {
			return s.last
		}
	}
}

// leave gives back everything that the session has: an open transaction is undone by closing its backend.
func (s *session) leave() {
	_ = s.conn.Close()
	if s.backend != nil {
		s.drop("the client left in the middle of a transaction")
	}
	for _, l := range maps.Clone(s.legs) {
		s.dropLeg(l, "the client left in the middle of a transaction")
	}
	for shard := range s.pinnedShards() {
		s.unpin(shard, "the client left")
	}
	s.closeCursors()
	s.forgetPortals()
	s.releaseHolds()
}

// pinnedShards lists the shards that the session keeps a backend of; they may be unpinned meanwhile.
func (s *session) pinnedShards() iter.Seq[int] {
	return maps.Keys(maps.Clone(s.pinned))
}

// kill ends a session from outside.
func (s *session) kill() {
	s.cancel()
	s.mu.look(func() {
		_ = s.conn.SetDeadline(longAgo)
		if s.active != nil {
			_ = s.active.Conn().SetDeadline(longAgo)
		}
		for _, l := range s.legs {
			_ = l.backend.Conn().SetDeadline(longAgo)
		}
	})
}

// cancelRequest does what a client asks for over a connection of its own. Whether it was of any use is not told.
func (s *Server) cancelRequest(ctx context.Context, startup wire.Startup) {
	s.mu.Lock()
	session := s.sessions[startup.PID]
	s.mu.Unlock()
	if session == nil || subtle.ConstantTimeCompare(session.secret, startup.Secret) != 1 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	session.mu.cancel(func() func() { return session.canceller(ctx) })
}

// canceller returns what cancels that which the session does now, nil if there is nothing.
func (s *session) canceller(ctx context.Context) func() {
	working, interrupt := slices.Clone(s.working), s.interrupt
	if s.active != nil && !slices.Contains(working, s.active) {
		working = append(working, s.active)
	}
	if s.telling.Load() {
		for _, l := range s.legs {
			if l.owes {
				working = append(working, l.backend)
			}
		}
	}
	switch {
	case s.waiting: // whatever backends it has do nothing meanwhile
		s.cancelled.Store(true)
		return s.cancelWait
	case len(working) > 0 || interrupt != nil:
		if s.asking.Load() || s.telling.Load() {
			s.cancelled.Store(true)
		}
		return func() {
			if interrupt != nil {
				interrupt()
			}
			for _, backend := range working {
				if err := backend.Cancel(ctx); err != nil {
					s.server.config.Logger.Warn("a statement could not be cancelled", "shard", backend.ShardName(), "error", err)
				}
			}
		}
	default:
		s.cancelled.Store(true)
		return nil
	}
}

func newSecret() []byte {
	secret := make([]byte, 4)
	_, _ = rand.Read(secret) // never fails
	return secret
}

func (s *Server) countRefusal(*pgerr.Error) { s.refusals.Add(1) }

// Info is what can be seen of a session.
type Info struct {
	Number                               uint32
	User, Database, Address, Application string
	Started                              time.Time
	Idle                                 bool
	Shard                                string // that it has a backend of now
	Waiting                              bool
	Pins                                 []PinInfo
}

// PinInfo is a backend that a session keeps.
type PinInfo struct {
	Shard, Reason string
	PID           uint32
	Since         time.Time
}

// Sessions lists the sessions.
func (s *Server) Sessions() []Info {
	s.mu.Lock()
	all := make([]*session, 0, len(s.sessions))
	for _, session := range s.sessions {
		all = append(all, session)
	}
	s.mu.Unlock()
	infos := make([]Info, len(all))
	for i, session := range all {
		infos[i] = session.info()
	}
	return infos
}

func (s *session) info() (info Info) {
	s.mu.look(func() {
		info = Info{
			Number: s.number, User: s.user, Database: s.database, Address: s.address, Application: s.application, Started: s.started,
			Idle: s.idle.Load(), Waiting: s.waiting,
		}
		if s.active != nil {
			info.Shard = s.active.ShardName()
		}
		for _, p := range s.pinned {
			info.Pins = append(info.Pins, PinInfo{Shard: p.backend.ShardName(), Reason: p.why(), PID: p.backend.PID(), Since: p.since})
		}
	})
	return info
}

// Clients returns how many clients are connected.
func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clients
}

// NewIncarnation returns a name for one run of a router: short, and never the same twice.
func NewIncarnation() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	const letters = "abcdefghijkmnpqrstuvwxyz23456789"
	n := binary.BigEndian.Uint64(b[:])
	name := make([]byte, 10)
	for i := range name {
		name[i] = letters[n%uint64(len(letters))]
		n /= uint64(len(letters))
	}
	return string(name)
}
