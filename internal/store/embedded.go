package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

const (
	// DefaultEmbeddedName is what a member is called that stands alone.
	DefaultEmbeddedName = "cleave"
	// DefaultEmbeddedQuota is far above what the largest map takes, and far below what would fill a laptop.
	DefaultEmbeddedQuota = 2 << 30
	// DefaultEmbeddedHistory is longer than any reader takes between a head and its pieces.
	DefaultEmbeddedHistory = 10 * time.Minute
)

// spaceToStart is what etcd lays out on disk when it starts: a log segment of 64 MB, and some.
const spaceToStart = 80 << 20

// EmbeddedConfig describes an etcd server within this process. It listens on the loopback address only.
type EmbeddedConfig struct {
	// Dir is where the data is; it is made if it is not there. Required.
	Dir string
	// Name is the member's own among Peers. Default: DefaultEmbeddedName.
	Name string
	// ClientPort is where clients connect; 0: a free one. Default: 0.
	ClientPort int
	// Peers are the peer ports of all members by name, this one's too; empty: the member stands alone. Default: empty.
	Peers map[string]int
	// Fast is for tests: short heartbeats, weak password hashes, and no waiting for the disk, so that a crash of the machine
	// loses data. Default: false.
	Fast bool
	// LogFile is where etcd writes its log, from warnings upwards; empty: nowhere. Default: empty.
	LogFile string
	// Quota is how many bytes the data may take before etcd refuses writes. Default: DefaultEmbeddedQuota.
	Quota int64
	// History is for how long old revisions are kept. Default: DefaultEmbeddedHistory.
	History time.Duration
}

func (c EmbeddedConfig) withDefaults() EmbeddedConfig {
	if c.Name == "" {
		c.Name = DefaultEmbeddedName
	}
	if c.Quota == 0 {
		c.Quota = DefaultEmbeddedQuota
	}
	if c.History == 0 {
		c.History = DefaultEmbeddedHistory
	}
	return c
}

func (c EmbeddedConfig) check() error {
	if c.Dir == "" {
		return errors.New("no data folder")
	}
	if c.Quota < 0 || c.History < 0 {
		return fmt.Errorf("quota %d or history %v is negative", c.Quota, c.History)
	}
	if _, listed := c.Peers[c.Name]; len(c.Peers) > 0 && !listed {
		return fmt.Errorf("member %q is not among its peers", c.Name)
	}
	return nil
}

// Embedded is an etcd server within this process. Make it with [StartEmbedded].
type Embedded struct {
	server *embed.Etcd
	lock   *fileutil.LockedFile
	logs   func()
	failed *failure
	close  sync.Once
}

// StartEmbedded starts a server and waits until it serves. The context limits the start, not the server's life. A data folder
// that is in use, cannot be written, or has no space is an error.
func StartEmbedded(ctx context.Context, config EmbeddedConfig) (*Embedded, error) {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return nil, fmt.Errorf("start embedded etcd: %w", err)
	}
	lock, err := claimFolder(config.Dir)
	if err != nil {
		return nil, fmt.Errorf("start embedded etcd: %w", err)
	}
	e := &Embedded{lock: lock, failed: newFailure()}
	if err := e.start(ctx, config); err != nil {
		e.Close()
		return nil, fmt.Errorf("start embedded etcd in %s: %w", config.Dir, err)
	}
	return e, nil
}

// claimFolder makes the data folder, makes sure that nobody else uses it, and that a server has space to start. Etcd itself
// would wait without a word for the one, and end the process for the other.
func claimFolder(dir string) (*fileutil.LockedFile, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data folder: %w", err)
	}
	lock, err := fileutil.TryLockFile(filepath.Join(dir, "in-use"), os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, fmt.Errorf("data folder %s is in use by another server", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	if err := checkSpace(dir); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("data folder %s has no %d MB to start with: %w", dir, spaceToStart>>20, err)
	}
	return lock, nil
}

// checkSpace reserves the space that a start takes, and gives it back.
func checkSpace(dir string) error {
	file, err := os.CreateTemp(dir, "space-*")
	if err != nil {
		return err
	}
	defer func() {
		_ = file.Close()
		_ = os.Remove(file.Name())
	}()
	return fileutil.Preallocate(file, spaceToStart, true)
}

func (e *Embedded) start(ctx context.Context, config EmbeddedConfig) error {
	logger, closeLogs, err := e.failed.logger(config.LogFile)
	if err != nil {
		return err
	}
	e.logs = closeLogs
	// Etcd's own goroutine: a start that cannot go on stops there, and not in its caller's.
	started := make(chan error, 1)
	go func() {
		defer func() { started <- e.failed.err() }()
		server, err := embed.StartEtcd(config.etcd(logger))
		if err != nil {
			e.failed.set(err)
			return
		}
		e.server = server
	}()
	if err := <-started; err != nil {
		return err
	}
	select {
	case <-e.server.Server.ReadyNotify():
		return nil
	case err := <-e.server.Err():
		return err
	case <-e.server.Server.StopNotify():
		return errors.New("the server stopped while starting")
	case <-e.failed.happened:
		return e.failed.err()
	case <-ctx.Done():
		return fmt.Errorf("not ready in time: %w", context.Cause(ctx))
	}
}

// etcd translates the configuration.
func (c EmbeddedConfig) etcd(logger *zap.Logger) *embed.Config {
	ec := embed.NewConfig()
	ec.Name = c.Name
	ec.Dir = filepath.Join(c.Dir, "etcd")
	ec.ListenClientUrls = []url.URL{loopback(c.ClientPort)}
	ec.AdvertiseClientUrls = ec.ListenClientUrls
	ec.ListenPeerUrls = nil // Nobody connects to a member that stands alone.
	ec.AdvertisePeerUrls = []url.URL{loopback(c.Peers[c.Name])}
	if len(c.Peers) > 0 {
		ec.ListenPeerUrls = ec.AdvertisePeerUrls
	}
	ec.InitialCluster = c.initialCluster()
	ec.EnableGRPCGateway = false
	ec.QuotaBackendBytes = c.Quota
	ec.AutoCompactionMode = embed.CompactorModePeriodic
	ec.AutoCompactionRetention = c.History.String()
	ec.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)
	if c.Fast || len(c.Peers) == 0 { // A member that stands alone waits only for itself.
		ec.TickMs, ec.ElectionMs = 20, 200
	}
	if c.Fast {
		ec.UnsafeNoFsync = true
		ec.BcryptCost = 4
	}
	return ec
}

func (c EmbeddedConfig) initialCluster() string {
	if len(c.Peers) == 0 {
		address := loopback(0)
		return c.Name + "=" + address.String()
	}
	var members []string
	for name, port := range c.Peers {
		address := loopback(port)
		members = append(members, name+"="+address.String())
	}
	slices.Sort(members)
	return strings.Join(members, ",")
}

func loopback(port int) url.URL {
	return url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
}

// Endpoints returns where clients connect, for [Config].
func (e *Embedded) Endpoints() []string {
	endpoints := make([]string, len(e.server.Clients))
	for i, listener := range e.server.Clients {
		endpoints[i] = listener.Addr().String()
	}
	return endpoints
}

// Failed is closed when the server cannot go on, as with a full disk. It then answers nothing more, and Err says why.
func (e *Embedded) Failed() <-chan struct{} { return e.failed.happened }

// Err is why the server failed, or nil.
func (e *Embedded) Err() error { return e.failed.err() }

// Close stops the server and gives the data folder free. It may be called twice.
func (e *Embedded) Close() {
	e.close.Do(func() {
		if e.server != nil {
			e.stop()
		}
		if e.logs != nil {
			e.logs()
		}
		_ = e.lock.Close()
	})
}

// stop closes the server. A failed one has lost goroutines that closing waits for, so it is not waited for to the end.
func (e *Embedded) stop() {
	const patience = 5 * time.Second
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-e.server.Server.ReadyNotify():
		default:
			e.server.Server.HardStop() // Closing would wait for it to become ready, and so for other members.
		}
		e.server.Close()
	}()
	select {
	case <-stopped:
	case <-e.failed.happened:
		select {
		case <-stopped:
		case <-time.After(patience):
		}
	}
}
