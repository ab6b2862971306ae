package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/cleavedb/cleave/internal/admin"
	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/internal/control"
	"github.com/cleavedb/cleave/internal/observe"
	"github.com/cleavedb/cleave/internal/session"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
)

// node is one running process of a cluster: what 'cleave serve' runs, and 'cleave dev' beside its servers.
//
// This is the list of everything that lives long in it. They start from the bottom up: the store, the follower of the map,
// the cluster's loops, the record that says this process is alive, the HTTP API, the front door. They stop the other way
// round: first nobody new comes in, then what is running ends, and the record goes only when nothing is served any more, so
// that whoever waits for this process waits long enough.
type node struct {
	id       string // of this process's record; another one after every start
	config   config.Config
	logger   *slog.Logger
	http     *net.TCPListener
	door     *net.TCPListener
	older    *olderProcess // that the sockets were taken over from; nil if there was none
	store    *store.Store
	follower *store.Follower
	cluster  *control.Cluster
	admin    *admin.Server
	router   *router
	moves    *observe.Moves
	// registered is closed when the record is stored, and a map and a schema state read after that have been applied.
	registered chan struct{}

	recordLock   sync.Mutex          // guards what follows
	record       *store.Registration // nil: not stored yet
	appliedEpoch uint64              // of the schema
	settled      uint64              // version of the map
}

// newNode builds a process's parts. The sockets are the caller's to close if it fails.
func newNode(c config.Config, provisioner control.Provisioner, s sockets, logger *slog.Logger) (*node, error) {
	storeConfig, err := storeConfigOf(c, logger)
	if err != nil {
		return nil, err
	}
	n := &node{id: session.NewIncarnation(), config: c, logger: logger, http: s.http, door: s.door, older: s.older, registered: make(chan struct{}), moves: observe.NewMoves()}
	if n.store, err = store.Open(storeConfig); err != nil {
		return nil, err
	}
	if n.follower, err = n.store.Follow(context.Background()); err != nil {
		return nil, errors.Join(err, n.store.Close())
	}
	n.cluster = control.New(control.Config{
		Store: n.store, Follower: n.follower, Access: accessOf(c), Provisioner: provisioner, Candidate: c.RouterName,
		Endpoints: c.Etcd.Endpoints, Version: version, HealthInterval: c.Health.Interval, HealthTimeout: c.Health.Timeout, Logger: logger,
		Share:  func(connections *api.Connections) { n.router.share(connections) },
		Router: n.id,
		Moves:  n.moves,
		Examine: func(ctx context.Context, statements, searchPath []string) error {
			return n.router.schema.Examine(ctx, statements, searchPath)
		},
	})
	if n.router, err = newRouter(n); err == nil {
		n.admin, err = n.newAdmin()
	}
	if err != nil {
		if n.router != nil {
			n.router.close()
		}
		n.follower.Close()
		return nil, errors.Join(err, n.store.Close())
	}
	return n, nil
}

func (n *node) newAdmin() (*admin.Server, error) {
	registry := observe.NewRegistry(version)
	registry.MustRegister(observe.NewCluster(n.cluster.Snapshot), n.router.shards, n.router.statements, observe.NewPools(n.router.server.Clients, n.router.poolStats), observe.NewRows(n.router.server.RowStats), n.router.deadlocks, n.moves)
	token := ""
	if !n.config.HTTP.Token.IsZero() {
		var err error
		if token, err = n.config.HTTP.Token.Resolve(); err != nil {
			return nil, fmt.Errorf("http.token: %w", err)
		}
	}
	secured, err := serverTLS(n.config.HTTP.TLS)
	if err != nil {
		return nil, err
	}
	return admin.New(admin.Config{Cluster: n.cluster, Ready: n.ready, Token: token, TLS: secured, Registry: registry, Logger: n.logger})
}

// run serves until the context ends, a part fails, or another process has taken over and the last session is gone.
func (n *node) run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	// Inner parts live until the outer ones have ended, so they do not stop with ctx.
	inner, stopInner := context.WithCancel(context.Background())
	defer stopInner()

	var loops sync.WaitGroup
	loops.Go(func() { n.cluster.Run(inner) })
	loops.Go(func() { n.register(inner) })
	if err := n.awaitTurn(); err != nil {
		fail(err)
	} else {
		n.serve(ctx, fail)
	}
	n.router.close()
	stopInner()
	loops.Wait()
	n.follower.Close()
	err := n.store.Close()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return errors.Join(cause, err)
	}
	return err
}

// serve has the doors open, until the context ends or another process has taken over.
func (n *node) serve(ctx context.Context, fail context.CancelCauseFunc) {
	httpOpen, closeHTTP := context.WithCancel(ctx)
	defer closeHTTP()
	var doors sync.WaitGroup
	doors.Go(func() {
		if err := n.admin.Serve(httpOpen, n.http); err != nil {
			fail(fmt.Errorf("HTTP API: %w", err))
		}
	})
	doors.Go(func() {
		if err := n.router.serve(ctx, n.door); err != nil {
			fail(fmt.Errorf("router: %w", err))
		}
	})
	n.confirm()
	if n.config.HandoverSocket != "" {
		doors.Go(func() {
			err := n.offer(ctx, func() {
				n.logger.Info("another process has taken over; this one ends when its sessions have", "clients", n.router.server.Clients())
				closeHTTP()
				_ = n.door.Close()
				n.router.recount()
			})
			if err != nil {
				fail(err)
			}
		})
	}
	doors.Wait()
}

// register keeps this process's record in the store, with the version of the map that it has applied.
func (n *node) register(ctx context.Context) {
	record := store.Router{
		ID: n.id, Name: n.config.RouterName, Address: n.door.Addr().String(), HTTPAddress: n.http.Addr().String(), Started: time.Now().UTC(), Binary: version,
	}
	registration := n.registerPatiently(ctx, record)
	if registration == nil {
		return
	}
	defer func() {
		if err := registration.Close(); err != nil {
			n.logger.Warn("the record of this process could not be removed", "error", err)
		}
	}()
	n.recorded(registration)
	if !n.readAfterRegistering(ctx) {
		return
	}
	close(n.registered)
	for {
		changed := n.follower.Changed()
		if m := n.follower.Map(); m != nil {
			registration.SetApplied(m.Version())
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// registerPatiently tries until etcd takes the record; nil if the context ended before.
func (n *node) registerPatiently(ctx context.Context, record store.Router) *store.Registration {
	for said := false; ; said = true {
		registration, err := n.store.Register(ctx, record)
		if err == nil {
			return registration
		}
		if !said {
			n.logger.Warn("etcd does not take this process's record; trying on", "error", err)
		}
		if !wait(ctx, time.Second) {
			return nil
		}
	}
}

// recorded notes that the record is stored, and has it say how far this process is.
func (n *node) recorded(registration *store.Registration) {
	n.recordLock.Lock()
	n.record = registration
	epoch, settled := n.appliedEpoch, n.settled
	n.recordLock.Unlock()
	registration.SetSchemaApplied(epoch)
	registration.SetSettled(settled)
}

// registration is this process's record, nil as long as it is not stored.
func (n *node) registration() *store.Registration {
	n.recordLock.Lock()
	defer n.recordLock.Unlock()
	return n.record
}

// schemaApplied has the record say that no statement of this process runs under an earlier epoch of the schema any more.
func (n *node) schemaApplied(epoch uint64) {
	n.recordLock.Lock()
	n.appliedEpoch = max(n.appliedEpoch, epoch)
	epoch, registration := n.appliedEpoch, n.record
	n.recordLock.Unlock()
	if registration != nil {
		registration.SetSchemaApplied(epoch)
	}
}

// mapSettled has the record say that nothing of this process goes by an earlier version of the map where that matters.
func (n *node) mapSettled(version uint64) {
	n.recordLock.Lock()
	n.settled = max(n.settled, version)
	version, registration := n.settled, n.record
	n.recordLock.Unlock()
	if registration != nil {
		registration.SetSettled(version)
	}
}

// readAfterRegistering waits until the map and the schema state that were newest after the record was stored, or newer ones,
// have been applied. Whoever changes one of them and then lists the records either sees this process, or this process sees
// that change.
func (n *node) readAfterRegistering(ctx context.Context) bool {
	for {
		err := n.catchUp(ctx)
		if err == nil {
			return true
		}
		if !wait(ctx, time.Second) {
			return false
		}
	}
}

// catchUp waits until what is stored now has been applied.
func (n *node) catchUp(ctx context.Context) error {
	m, err := n.store.Map(ctx)
	if err == nil {
		_, err = n.follower.Wait(ctx, m.Version())
	}
	if err != nil && !errors.Is(err, store.ErrNoMap) {
		return err
	}
	state, err := n.store.Schema(ctx)
	if err == nil {
		_, err = n.follower.WaitSchema(ctx, state.Epoch)
	}
	return err
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// ready returns nil when the process may serve.
func (n *node) ready() error {
	select {
	case <-n.registered:
		return n.cluster.Ready()
	default:
		return errors.New("this process is not registered in etcd yet")
	}
}

func accessOf(c config.Config) shard.Access {
	return shard.Access{
		User: c.Shards.User, Database: c.Shards.Database, Password: c.Shards.Password, SSLMode: c.Shards.SSLMode,
		RootCAFile: c.Shards.RootCAFile, ConnectTimeout: c.Shards.ConnectTimeout,
	}
}

func storeConfigOf(c config.Config, logger *slog.Logger) (store.Config, error) {
	password := ""
	var err error
	if !c.Etcd.Password.IsZero() {
		if password, err = c.Etcd.Password.Resolve(); err != nil {
			return store.Config{}, fmt.Errorf("etcd.password: %w", err)
		}
	}
	secured, err := clientTLS(c.Etcd.TLS)
	if err != nil {
		return store.Config{}, err
	}
	return store.Config{
		Endpoints: c.Etcd.Endpoints, Prefix: "/cleave/" + c.Cluster + "/", Username: c.Etcd.Username, Password: password, TLS: secured,
		RequestTimeout: c.Etcd.RequestTimeout, LeaseTTL: c.Etcd.LeaseTTL, Logger: logger,
	}, nil
}

// clientTLS is how to know etcd, nil if nothing was said.
func clientTLS(c config.EtcdTLS) (*tls.Config, error) {
	if c == (config.EtcdTLS{}) {
		return nil, nil //nolint:nilnil // the store's own default
	}
	secured := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
	var err error
	if secured.RootCAs, err = authorities("etcd.tls.ca_file", c.CAFile); err != nil {
		return nil, err
	}
	if c.CertFile != "" {
		secured.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return loadPair(c.CertFile, c.KeyFile) }
		if _, err := loadPair(c.CertFile, c.KeyFile); err != nil {
			return nil, fmt.Errorf("etcd.tls: %w", err)
		}
	}
	return secured, nil
}

// serverTLS is how the HTTP API is known, nil for plain HTTP. Certificates are read anew for every connection, so that one
// that was renewed is used without a restart.
func serverTLS(c config.HTTPTLS) (*tls.Config, error) {
	if c.CertFile == "" {
		return nil, nil //nolint:nilnil // plain HTTP
	}
	if _, err := loadPair(c.CertFile, c.KeyFile); err != nil {
		return nil, fmt.Errorf("http.tls: %w", err)
	}
	secured := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return loadPair(c.CertFile, c.KeyFile) },
	}
	if c.ClientCAFile != "" {
		var err error
		if secured.ClientCAs, err = authorities("http.tls.client_ca_file", c.ClientCAFile); err != nil {
			return nil, err
		}
		secured.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return secured, nil
}

func loadPair(certFile, keyFile string) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	return &pair, nil
}

// authorities reads certificates; nil, the system's own, if there is no file.
func authorities(field, file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // the system's
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s: %s has no certificate", field, file)
	}
	return pool, nil
}

// newLogger writes to standard error as the configuration asks.
func newLogger(c config.Log) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return nil, fmt.Errorf("log.level: %w", err)
	}
	options := &slog.HandlerOptions{Level: level}
	if c.Format == config.LogJSON {
		return slog.New(slog.NewJSONHandler(os.Stderr, options)), nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options)), nil
}

// listen binds an address, saying plainly what to do if it is taken.
func listen(flag, address string) (*net.TCPListener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s %s cannot be used: %w; name another address", flag, address, cause(err))
	}
	return listener.(*net.TCPListener), nil
}

// cause leaves out what the caller says better.
func cause(err error) error {
	var operation *net.OpError
	if errors.As(err, &operation) {
		return operation.Err
	}
	return err
}
