package admin

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Defaults of [Config].
const (
	DefaultReadTimeout      = time.Minute
	DefaultOperationTimeout = 5 * time.Minute
	DefaultIdleTimeout      = 2 * time.Minute
	DefaultShutdownTimeout  = 10 * time.Second
)

// Config says what a [Server] serves, and to whom.
type Config struct {
	// Cluster has the operations. Required.
	Cluster Cluster
	// Ready returns nil when the process may be sent work. Default: it asks the cluster whether a map is applied.
	Ready func() error
	// Token is what callers must send, except for health and readiness; without one everybody may call who can connect and
	// names the server by an address or as localhost. Default: none.
	Token string
	// TLS makes the server answer over https; it must hold a certificate. Default: plain http.
	TLS *tls.Config
	// Registry is where the metrics of the process are, and where those of the server go. Default: a new one.
	Registry *prometheus.Registry
	// Logger hears of requests, at debug level, and of failures. Default: slog.Default().
	Logger *slog.Logger
	// ReadTimeout is how long a request may take to arrive. Default: DefaultReadTimeout.
	ReadTimeout time.Duration
	// OperationTimeout is how long an operation may take, unless it copies tables from shard to shard. Default: DefaultOperationTimeout.
	OperationTimeout time.Duration
	// IdleTimeout is how long a connection may stay open between requests. Default: DefaultIdleTimeout.
	IdleTimeout time.Duration
	// ShutdownTimeout is how long operations may go on after the server was told to end. Default: DefaultShutdownTimeout.
	ShutdownTimeout time.Duration
}

func (c Config) withDefaults() Config {
	if c.Ready == nil {
		c.Ready = appliedIn(c.Cluster)
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	for _, timeout := range []struct {
		set      *time.Duration
		standard time.Duration
	}{
		{&c.ReadTimeout, DefaultReadTimeout},
		{&c.OperationTimeout, DefaultOperationTimeout},
		{&c.IdleTimeout, DefaultIdleTimeout},
		{&c.ShutdownTimeout, DefaultShutdownTimeout},
	} {
		if *timeout.set == 0 {
			*timeout.set = timeout.standard
		}
	}
	return c
}

func (c Config) check() error {
	if c.Cluster == nil {
		return errors.New("admin: no cluster to serve")
	}
	if c.TLS != nil && len(c.TLS.Certificates) == 0 && c.TLS.GetCertificate == nil && c.TLS.GetConfigForClient == nil {
		return errors.New("admin: TLS without a certificate")
	}
	for name, d := range map[string]time.Duration{
		"read timeout": c.ReadTimeout, "operation timeout": c.OperationTimeout,
		"idle timeout": c.IdleTimeout, "shutdown timeout": c.ShutdownTimeout,
	} {
		if d < 0 {
			return fmt.Errorf("admin: %s %v is negative", name, d)
		}
	}
	return nil
}
