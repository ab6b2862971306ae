package config

import (
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/secret"
)

// Warnings lists what is allowed and yet probably not meant or not safe, one line each. Unlike [Config.Check] it looks at
// this machine too: at files that cannot be read here, and at those that everybody can read.
func (c Config) Warnings() []string {
	w := warner{config: &c, lines: slices.Clone(c.warnings)}
	w.etcd()
	w.shards()
	w.files()
	w.secrets()
	return w.lines
}

// warner gathers warnings.
type warner struct {
	config *Config
	lines  []string
}

// warn notes something about a field, with its place.
func (w *warner) warn(field, format string, args ...any) {
	var one Problems
	one.add(w.config.Origin(field).Place, field, format, args...)
	w.lines = append(w.lines, one.Error())
}

func (w *warner) etcd() {
	for _, endpoint := range w.config.Etcd.Endpoints {
		u, err := url.Parse(endpoint)
		if err == nil && u.Scheme == "http" && !isLoopback(u.Host) {
			w.warn("etcd.endpoints", "%s is not encrypted: whoever is on the network between can read and change the shard map", u.Redacted())
		}
	}
}

func (w *warner) shards() {
	shards := w.config.Shards
	switch {
	case shards.SSLMode == SSLDisable:
		w.warn("shards.sslmode", "connections to shards are not encrypted: use verify-full unless the network is yours alone")
	case shards.SSLMode == SSLRequire && shards.RootCAFile == "":
		w.warn("shards.sslmode", "require encrypts but takes any server for the right one: use verify-full")
	}
}

func (w *warner) files() {
	for _, field := range fileFields() {
		path := w.config.Value(field)
		if path == "" {
			continue
		}
		file, err := os.Open(path)
		if err != nil {
			w.warn(field, "it cannot be read here: %v", err)
			continue
		}
		_ = file.Close() // nothing was written
		if strings.HasSuffix(field, "key_file") && (secret.Reference{File: path}).Exposed() {
			w.warn(field, "every user of this machine can read %s: chmod 600 it", path)
		}
	}
}

func (w *warner) secrets() {
	for field, reference := range w.config.secrets() {
		if reference.IsZero() {
			continue
		}
		if _, err := reference.Resolve(); err != nil {
			w.warn(field, "it cannot be read here: %v", err)
		} else if reference.Exposed() {
			w.warn(field, "every user of this machine can read %s: chmod 600 it", reference.File)
		}
	}
}
