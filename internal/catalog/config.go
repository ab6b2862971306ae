package catalog

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// Config says where the catalogue is and how much of it to keep.
type Config struct {
	// Access says how to log in to the home shard.
	Access shard.Access
	// Map returns the map in force, nil while there is none. Required.
	Map func() *topology.Map
	// Logger hears when the home shard cannot be asked whether its catalogue changed. Default: slog.Default().
	Logger *slog.Logger
	// Connections is how many connections to the home shard there may be. They are made when they are needed and closed
	// when they have not been for a minute. Default: 2.
	Connections int
	// Poll is how often to look whether something changed. Default: 2 seconds.
	Poll time.Duration
	// Names is how many names of relations and of functions are kept, those that do not exist included. Default: 20,000.
	Names int

	// pause is how long nobody must have asked before connections are closed and everything is dropped; tests shorten it.
	pause time.Duration
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Connections == 0 {
		c.Connections = 2
	}
	if c.Poll == 0 {
		c.Poll = 2 * time.Second
	}
	if c.Names == 0 {
		c.Names = 20_000
	}
	if c.pause == 0 {
		c.pause = time.Minute
	}
	return c
}

func (c Config) check() error {
	switch {
	case c.Map == nil:
		return errors.New("no map")
	case c.Connections < 0:
		return fmt.Errorf("%d connections: at least one is needed", c.Connections)
	case c.Poll < 0:
		return fmt.Errorf("a poll every %v is not possible", c.Poll)
	case c.Names < 0:
		return fmt.Errorf("%d names cannot be kept", c.Names)
	}
	return nil
}
