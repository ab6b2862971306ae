package config

import (
	"iter"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/secret"
)

// Check returns nil or [Problems] with everything that must be mended. It looks at values alone, not at files, etcd or
// shards: the same configuration is right or wrong on every machine.
func (c Config) Check() error { return c.problems().err() }

func (c Config) problems() Problems {
	k := checker{config: &c}
	k.names()
	k.listen()
	k.etcd()
	k.http()
	k.shards()
	k.router()
	k.health()
	k.log()
	k.handover()
	k.files()
	k.secrets()
	return k.found
}

// checker gathers problems.
type checker struct {
	config *Config
	found  Problems
}

// refuse notes a problem of a field.
func (k *checker) refuse(field, format string, args ...any) {
	k.found.add(k.config.Origin(field).Place, field, format, args...)
}

// clash notes that a field is wrong because of what another one says. The other's place is where to look if this one is a
// default.
func (k *checker) clash(field, cause, format string, args ...any) {
	place := k.config.Origin(field).Place
	if place == "" {
		place = k.config.Origin(cause).Place
	}
	k.found.addAbout(cause, place, field, format, args...)
}

var (
	clusterName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	// routerName admits whatever a host may be called.
	routerName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
)

func (k *checker) names() {
	if c := k.config.Cluster; !clusterName.MatchString(c) {
		k.refuse("cluster", "%q is no name for a cluster: use up to 63 of a-z, 0-9, _ and -, beginning with a letter or digit", c)
	}
	if name := k.config.RouterName; !routerName.MatchString(name) {
		k.refuse("router_name", "%q is no name for a router: use up to 63 letters, digits, dots, _ and -, beginning with a letter or digit", name)
	}
}

func (k *checker) listen() {
	k.address("listen", k.config.Listen)
	k.address("http.listen", k.config.HTTP.Listen)
	if k.config.Listen == k.config.HTTP.Listen && !strings.HasSuffix(k.config.Listen, ":0") {
		k.clash("http.listen", "listen", "listen has the same address %s: give each its own port", k.config.Listen)
	}
}

func (k *checker) address(field, address string) {
	host, port, err := net.SplitHostPort(address)
	number, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || strings.ContainsAny(host, " /") {
		k.refuse(field, "%q is no address to listen on: write a host and a port from 0 to 65535, such as 127.0.0.1:8432 or [::1]:8432", address)
		return
	}
	if strconv.FormatUint(number, 10) != port {
		k.refuse(field, "%q: write the port as %d", address, number)
	}
}

// isLoopback tells whether only this machine reaches the address. An empty host means every interface.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || host == "localhost"
}

// minLease is the shortest lease that etcd grants with its usual election timeout; it would lengthen a shorter one in silence.
const minLease = 2 * time.Second

func (k *checker) etcd() {
	etcd := k.config.Etcd
	k.endpoints()
	if etcd.Username != "" && etcd.Password.IsZero() {
		k.clash("etcd.password", "etcd.username", "user %q needs a password: refer to it as {file: /path} or {env: NAME}", etcd.Username)
	}
	if etcd.Username == "" && !etcd.Password.IsZero() {
		k.clash("etcd.username", "etcd.password", "there is a password and no user: name the user, or remove etcd.password")
	}
	k.pair("etcd.tls.cert_file", etcd.TLS.CertFile, "etcd.tls.key_file", etcd.TLS.KeyFile)
	k.positive("etcd.request_timeout", etcd.RequestTimeout)
	if etcd.LeaseTTL < minLease || etcd.LeaseTTL%time.Second != 0 {
		k.refuse("etcd.lease_ttl", "%v is no time for a lease: use whole seconds, at least %v", etcd.LeaseTTL, minLease)
	}
}

func (k *checker) endpoints() {
	etcd := k.config.Etcd
	if len(etcd.Endpoints) == 0 {
		k.refuse("etcd.endpoints", "there are none: name at least one, such as http://127.0.0.1:2379")
	}
	for i, endpoint := range etcd.Endpoints {
		u, err := url.Parse(endpoint)
		switch {
		// Told by its number, for there may be a password in it.
		case err != nil || u.User != nil:
			k.refuse("etcd.endpoints", "number %d is no plain URL: write it as http://host:2379, and a user under etcd.username", i+1)
		case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "", u.Port() == "", strings.Trim(u.Path, "/") != "", u.RawQuery != "":
			k.refuse("etcd.endpoints", "%q is no endpoint: write it as http://host:2379 or https://host:2379", endpoint)
		case u.Scheme == "http" && etcd.TLS != EtcdTLS{}:
			k.refuse("etcd.endpoints", "%q does not use TLS, for which etcd.tls has fields: write https, or remove them", endpoint)
		}
	}
}

func (k *checker) http() {
	http := k.config.HTTP
	k.pair("http.tls.cert_file", http.TLS.CertFile, "http.tls.key_file", http.TLS.KeyFile)
	if http.TLS.ClientCAFile != "" && http.TLS.CertFile == "" {
		k.clash("http.tls.cert_file", "http.tls.client_ca_file", "callers show certificates only over https: name a certificate and its key, or remove http.tls.client_ca_file")
	}
	if _, _, err := net.SplitHostPort(http.Listen); err != nil || isLoopback(http.Listen) {
		return
	}
	const reached = "other machines reach http.listen %s"
	if http.Token.IsZero() {
		k.clash("http.token", "http.listen", reached+": refer to a token as {file: /path} or {env: NAME}, or listen on 127.0.0.1", http.Listen)
	}
	if http.TLS.CertFile == "" && http.TLS.KeyFile == "" {
		k.clash("http.tls.cert_file", "http.listen", reached+": name a certificate and its key, so that the token is not sent in the clear, or listen on 127.0.0.1", http.Listen)
	}
}

func (k *checker) shards() {
	shards := k.config.Shards
	if shards.User == "" {
		k.refuse("shards.user", "it is empty: name a role, such as cleave")
	}
	if shards.Database == "" {
		k.refuse("shards.database", "it is empty: name a database, such as cleave")
	}
	switch shards.SSLMode {
	case SSLDisable, SSLRequire, SSLVerifyFull:
	case SSLVerifyCA:
		if shards.RootCAFile == "" {
			k.clash("shards.root_ca_file", "shards.sslmode", "sslmode verify-ca needs an authority of your own, for a public one vouches for anybody: name its file, or use verify-full")
		}
	case "allow", "prefer":
		k.refuse("shards.sslmode", "%s falls back to plain text in silence: use verify-full, or disable if that is meant", shards.SSLMode)
	default:
		k.oneOf("shards.sslmode", shards.SSLMode, SSLDisable, SSLRequire, SSLVerifyCA, SSLVerifyFull)
	}
	k.positive("shards.connect_timeout", shards.ConnectTimeout)
}

func (k *checker) router() {
	c := k.config
	k.pair("tls.cert_file", c.TLS.CertFile, "tls.key_file", c.TLS.KeyFile)
	if c.TLS.ClientCAFile != "" && c.TLS.CertFile == "" {
		k.clash("tls.cert_file", "tls.client_ca_file", "clients show certificates only over TLS: name a certificate and its key, or remove tls.client_ca_file")
	}
	if len(c.Auth.Rules) == 0 {
		k.refuse("auth.rules", "there are none, so nobody would be let in: write at least one, such as host all all loopback scram-sha-256")
	}
	k.oneOf("pool.mode", c.Pool.Mode, PoolTransaction, PoolSession)
	k.atLeast("pool.per_shard", c.Pool.PerShard, 1)
	k.atLeast("pool.total", c.Pool.Total, 0)
	k.atLeast("pool.min_idle", c.Pool.MinIdle, 0)
	k.atLeast("pool.logins_at_once", c.Pool.LoginsAtOnce, 1)
	k.atLeast("pool.logins_per_second", c.Pool.LoginsPerSecond, 1)
	k.positive("pool.queue_timeout", c.Pool.QueueTimeout)
	k.positive("pool.idle_timeout", c.Pool.IdleTimeout)
	k.positive("pool.max_age", c.Pool.MaxAge)
	k.atLeast("limits.clients", c.Limits.Clients, 1)
	k.atLeast("limits.max_message", c.Limits.MaxMessage, leastMessage)
	if c.Limits.MaxMessage > mostMessage {
		k.refuse("limits.max_message", "%d is more than PostgreSQL itself takes: use up to %d", c.Limits.MaxMessage, mostMessage)
	}
	k.atLeast("limits.plans", c.Limits.Plans, 1)
	k.rows()
	k.positive("limits.startup_timeout", c.Limits.StartupTimeout)
	k.positive("limits.hold_timeout", c.Limits.HoldTimeout)
	k.positive("limits.drain_timeout", c.Limits.DrainTimeout)
}

// What a message's limit may be: enough for an ordinary statement, and no more than PostgreSQL's own.
const (
	leastMessage = 64 << 10
	mostMessage  = 1 << 30
)

func (k *checker) atLeast(field string, value, least int) {
	if value < least {
		k.refuse(field, "%d is too small: use at least %d", value, least)
	}
}

// rows checks how much may be held of several shards' rows.
func (k *checker) rows() {
	l := k.config.Limits
	for field, value := range map[string]int64{
		"limits.rows_memory": l.RowsMemory, "limits.pull_memory": l.PullMemory, "limits.pull_size": l.PullSize, "limits.given_rows": l.GivenRows, "limits.array_rows": l.ArrayRows,
	} {
		if value < leastRows {
			k.refuse(field, "%d is too small: use at least %d", value, leastRows)
		}
	}
	if l.RowsFiles < 0 {
		k.refuse("limits.rows_files", "%d is too small: use at least 0, which stands for no limit", l.RowsFiles)
	}
}

// leastRows is what a few rows need.
const leastRows = 64 << 10

func (k *checker) health() {
	health := k.config.Health
	k.positive("health.interval", health.Interval)
	k.positive("health.timeout", health.Timeout)
	if health.Interval > 0 && health.Timeout > health.Interval {
		k.clash("health.timeout", "health.interval", "%v is longer than health.interval %v: one look must end before the next begins", health.Timeout, health.Interval)
	}
}

func (k *checker) log() {
	k.oneOf("log.level", k.config.Log.Level, "debug", "info", "warn", "error")
	k.oneOf("log.format", k.config.Log.Format, LogText, LogJSON)
}

func (k *checker) positive(field string, d time.Duration) {
	if d <= 0 {
		k.refuse(field, "%v is not above zero: write a duration such as 500ms or 5s", d)
	}
}

func (k *checker) oneOf(field, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		k.refuse(field, "%q is not known: use %s", value, strings.Join(allowed, ", "))
	}
}

// pair asks for both of two fields or none.
func (k *checker) pair(a, aValue, b, bValue string) {
	if aValue != "" && bValue == "" {
		k.clash(b, a, "%s is set: this is needed too", a)
	}
	if bValue != "" && aValue == "" {
		k.clash(a, b, "%s is set: this is needed too", b)
	}
}

// longestSocket is what every system takes as the path of a socket, with room for the folder that it is made in.
const longestSocket = 79

func (k *checker) handover() {
	const field = "handover_socket"
	switch path := k.config.HandoverSocket; {
	case path == "":
	case !filepath.IsAbs(path):
		k.relative(field, path)
	case len(path) > longestSocket:
		k.refuse(field, "%q has %d bytes: use up to %d, for systems do not take much more as the path of a socket", path, len(path), longestSocket)
	}
}

// files asks for absolute paths: what a relative one means depends on where the process was started.
func (k *checker) files() {
	for _, f := range fileFields() {
		if path := k.config.Value(f); path != "" && !filepath.IsAbs(path) {
			k.relative(f, path)
		}
	}
}

func (k *checker) relative(field, path string) {
	k.refuse(field, "%q is a relative path: write an absolute one, for a service may be started in any folder", path)
}

func (k *checker) secrets() {
	for path, reference := range k.config.secrets() {
		if err := reference.Check(); err != nil {
			k.refuse(path, "%v", err)
		}
	}
}

// fileFields are the paths of all fields that name a file: by convention their names end in _file.
func fileFields() []string {
	var paths []string
	for _, f := range Fields() {
		if strings.HasSuffix(f.Path, "_file") {
			paths = append(paths, f.Path)
		}
	}
	return paths
}

// secrets iterates over the paths and references of all secrets, in the order of the file.
func (c *Config) secrets() iter.Seq2[string, secret.Reference] {
	return func(yield func(string, secret.Reference) bool) {
		for _, e := range schema {
			if e.section {
				continue
			}
			if reference, ok := e.in(c).(*secret.Reference); ok && !yield(e.Path, *reference) {
				return
			}
		}
	}
}
