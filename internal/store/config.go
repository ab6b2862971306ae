package store

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc"
)

const (
	// DefaultPrefix is where a cluster lives that was not given a name.
	DefaultPrefix = "/cleave/main/"
	// DefaultDialTimeout leaves a far data centre time for a TLS handshake.
	DefaultDialTimeout = 2 * time.Second
	// DefaultRequestTimeout outlasts an election within etcd, which takes one to two seconds.
	DefaultRequestTimeout = 5 * time.Second
	// DefaultLeaseTTL outlasts an election within etcd and a garbage collector's worst day.
	DefaultLeaseTTL = 10 * time.Second
	// DefaultProbeInterval finds an etcd that went silent in a few seconds, for one tiny read each time.
	DefaultProbeInterval = 5 * time.Second
)

// Config says where etcd is and how long to wait for it.
type Config struct {
	// Endpoints are the client addresses of etcd's members: host:port or URLs. Required.
	Endpoints []string
	// Prefix is what all keys of the cluster begin with; a slash is added where it does not end in one. Default: DefaultPrefix.
	Prefix string
	// Username is who to be for etcd; empty: nobody. Default: empty.
	Username string
	// Password belongs to Username. Default: empty.
	Password string
	// TLS is used to reach etcd; nil: plain connections, or the system's roots for https endpoints. Default: nil.
	TLS *tls.Config
	// DialTimeout limits one attempt to connect to one member. Default: DefaultDialTimeout.
	DialTimeout time.Duration
	// RequestTimeout limits one request together with its retries; a large map takes several requests. Default:
	// DefaultRequestTimeout.
	RequestTimeout time.Duration
	// LeaseTTL is how long the record of a dead router, or a dead leader's hold, lasts. Whole seconds count. Default:
	// DefaultLeaseTTL.
	LeaseTTL time.Duration
	// ProbeInterval is how often a follower asks whether it is still up to date, besides watching. Default:
	// DefaultProbeInterval.
	ProbeInterval time.Duration
	// Logger hears when followers and registrations lose etcd and find it again. Default: slog.Default().
	Logger *slog.Logger

	// limits are lower in tests that need many transactions of a small map. Default: etcdLimits.
	limits limits
	// dialOptions lets tests count, cut and lose requests on their way.
	dialOptions []grpc.DialOption
}

func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if !strings.HasSuffix(c.Prefix, "/") {
		c.Prefix += "/"
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = DefaultDialTimeout
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = DefaultRequestTimeout
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = DefaultLeaseTTL
	}
	if c.ProbeInterval == 0 {
		c.ProbeInterval = DefaultProbeInterval
	}
	if c.limits == (limits{}) {
		c.limits = etcdLimits
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func (c Config) check() error {
	if len(c.Endpoints) == 0 {
		return errors.New("store: no etcd endpoints")
	}
	for _, endpoint := range c.Endpoints {
		if strings.TrimSpace(endpoint) == "" {
			return errors.New("store: an etcd endpoint is empty")
		}
	}
	if (c.Username == "") != (c.Password == "") {
		return errors.New("store: user name and password go together: give both or neither")
	}
	if c.LeaseTTL < time.Second {
		return fmt.Errorf("store: lease time %v is less than a second, which etcd cannot do", c.LeaseTTL)
	}
	for name, d := range map[string]time.Duration{
		"dial timeout": c.DialTimeout, "request timeout": c.RequestTimeout, "probe interval": c.ProbeInterval,
	} {
		if d < 0 {
			return fmt.Errorf("store: %s %v is negative", name, d)
		}
	}
	return nil
}
