package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cleavedb/cleave/internal/auth"
	"github.com/cleavedb/cleave/internal/shard"
)

// Config says how many backends there may be, how long they live and how they log in.
type Config struct {
	// PerShard is the most backends to one shard, over all roles. Default: 50.
	PerShard int
	// Total is the most backends over all shards. Default: 0, which is no limit.
	Total int
	// QueueTimeout is how long to wait for a backend. Default: 10 seconds.
	QueueTimeout time.Duration
	// IdleTimeout is how long a backend may be idle before it is closed. Default: 10 minutes.
	IdleTimeout time.Duration
	// MinIdle is how many idle backends of a shard stay open all the same. Default: 0.
	MinIdle int
	// MaxAge is how old a backend may get; each one's is up to a tenth longer or shorter, so that not all are replaced at
	// once. Default: 1 hour.
	MaxAge time.Duration
	// LoginsAtOnce is the most logins to one shard at a time. Default: 4.
	LoginsAtOnce int
	// LoginsPerSecond is the most logins to one shard in a second, and in a burst. Default: 50.
	LoginsPerSecond int
	// ConnectTimeout is how long a login may take, from dialling to the end of OnLogin. Default: 5 seconds.
	ConnectTimeout time.Duration
	// Access says how to reach shards, and where the service role's password is. Default: as for package shard.
	Access shard.Access
	// Name is the application_name that backends start with; it should tell which run of which router they serve.
	// Default: "cleave".
	Name string
	// Startup has further startup parameters; they win over Name and over what is set by default. Default: none.
	Startup map[string]string
	// OnLogin runs the first statements on a new backend; an error ends the login. Default: nothing.
	OnLogin func(ctx context.Context, b *Backend) error
	// Logger gets what nobody waits for. Default: slog's.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.PerShard = cmp.Or(c.PerShard, 50)
	c.QueueTimeout = cmp.Or(c.QueueTimeout, 10*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 10*time.Minute)
	c.MaxAge = cmp.Or(c.MaxAge, time.Hour)
	c.LoginsAtOnce = cmp.Or(c.LoginsAtOnce, 4)
	c.LoginsPerSecond = cmp.Or(c.LoginsPerSecond, 50)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 5*time.Second)
	c.Name = cmp.Or(c.Name, "cleave")
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.OnLogin == nil {
		c.OnLogin = func(context.Context, *Backend) error { return nil }
	}
	return c
}

// Check says what is wrong with the configuration. [New] expects one with which nothing is.
func (c Config) Check() error {
	var problems []error
	for name, value := range map[string]int{
		"per_shard": c.PerShard, "total": c.Total, "min_idle": c.MinIdle, "logins_at_once": c.LoginsAtOnce, "logins_per_second": c.LoginsPerSecond,
	} {
		if value < 0 {
			problems = append(problems, fmt.Errorf("%s cannot be negative: %d", name, value))
		}
	}
	for name, value := range map[string]time.Duration{
		"queue_timeout": c.QueueTimeout, "idle_timeout": c.IdleTimeout, "max_age": c.MaxAge, "connect_timeout": c.ConnectTimeout,
	} {
		if value < 0 {
			problems = append(problems, fmt.Errorf("%s cannot be negative: %v", name, value))
		}
	}
	return errors.Join(problems...)
}

// Identity is who a backend logs in as, and with what. It must not change once it was used.
type Identity struct {
	// User is the role's name; empty with Service means the service role of the shard.
	User string
	// Keys prove to a shard that has the same verifier who the client is. Nil: there is nothing to show.
	Keys *auth.Keys
	// Service means that the password of the service role is shown, if there is one.
	Service bool
}

// sameSecret says whether both would show the same to a server, so that what it said to one it would say to the other.
func (i *Identity) sameSecret(other *Identity) bool {
	return i.Service == other.Service && sameKeys(i.Keys, other.Keys)
}
