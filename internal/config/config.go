package config

import (
	"os"
	"time"

	"github.com/cleavedb/cleave/internal/secret"
)

// Config is everything that one process is told at its start.
//
// The tags are the one place where a field is described: yaml is its name in the file and, with the sections before it, in
// the environment; doc its sentence; example what a first file shows where there is no default, or one that is not a fixed
// value; default describes the latter. The defaults themselves are in [Default].
type Config struct {
	Cluster    string `yaml:"cluster" doc:"Name of the cluster: everything it keeps in etcd stands under /cleave/NAME/."`
	RouterName string `yaml:"router_name" default:"the host name" example:"router-1" doc:"Name of this process among those of the cluster; no two may share one."`
	Listen     string `yaml:"listen" doc:"Address at which PostgreSQL clients connect to the router."`
	// HandoverSocket has no name that ends in _file: it need not be there, and nobody reads it.
	HandoverSocket string `yaml:"handover_socket" example:"/run/cleave/handover.sock" doc:"Unix socket at which this process gives its listening sockets to the one that replaces it: 'cleave serve' with the same path takes them over from the process that runs, so that no client is refused while one version replaces another. Empty for none: the addresses are free only when the old process has ended."`
	TLS            TLS    `yaml:"tls" doc:"How the router is known to PostgreSQL clients. Files are read again when they change."`
	Auth           Auth   `yaml:"auth" doc:"Which PostgreSQL clients are let in, and how they prove who they are."`
	Pool           Pool   `yaml:"pool" doc:"Backends: the router's connections to the shards."`
	Limits         Limits `yaml:"limits" doc:"What clients may ask for."`
	Etcd           Etcd   `yaml:"etcd" doc:"Where the shard map is kept."`
	HTTP           HTTP   `yaml:"http" doc:"The HTTP API."`
	Shards         Shards `yaml:"shards" doc:"How to log in to shards, where the shard map does not say otherwise for one."`
	Health         Health `yaml:"health" doc:"How shards are looked at."`
	Log            Log    `yaml:"log" doc:"What the process says of itself, on standard error."`

	origins  map[string]Origin // by path; a field without one has its default
	warnings []string          // what was noticed while loading
}

// TLS says how the router is known to PostgreSQL clients, and they to it.
type TLS struct {
	CertFile     string `yaml:"cert_file" example:"/etc/cleave/router.pem" doc:"Certificate of the router, with the chain that leads to its authority; empty for no TLS."`
	KeyFile      string `yaml:"key_file" example:"/etc/cleave/router.key" doc:"Private key of that certificate."`
	ClientCAFile string `yaml:"client_ca_file" example:"/etc/cleave/clients-ca.pem" doc:"Certificates of the authorities that clients' certificates must be signed by, for the method cert."`
}

// Auth says who is let in.
type Auth struct {
	Rules     []string `yaml:"rules" doc:"Who is let in and how, as in pg_hba.conf: TYPE DATABASE USER ADDRESS METHOD. The first rule that fits decides; if none does, the client is refused. TYPE is host, hostssl or hostnossl; ADDRESS an address, a prefix such as 10.0.0.0/8, loopback or all; METHOD scram-sha-256, trust, cert or reject. Several names are written with commas."`
	UsersFile string   `yaml:"users_file" example:"/etc/cleave/users.txt" doc:"File with users and their SCRAM verifiers, a line for each: \"name\" \"SCRAM-SHA-256$...\" ('cleave auth verifier' makes one). Empty: the verifiers are read from pg_authid of the shard with the lowest number, which needs a superuser, or GRANT SELECT ON pg_authid."`
}

// Pool says how many backends there are and how long they live.
type Pool struct {
	Mode            string        `yaml:"mode" doc:"How long a client keeps a backend: transaction, or session. A client can choose for itself with SET cleave.pool_mode."`
	PerShard        int           `yaml:"per_shard" doc:"Most backends to one shard, over all roles. Fewer are used if the shard's max_connections, shared by all routers, does not allow as many."`
	Total           int           `yaml:"total" doc:"Most backends in all; 0 for no limit."`
	MinIdle         int           `yaml:"min_idle" doc:"How many idle backends of a shard stay open however long they are idle."`
	QueueTimeout    time.Duration `yaml:"queue_timeout" doc:"How long a client waits for a backend before it gets an error."`
	IdleTimeout     time.Duration `yaml:"idle_timeout" doc:"How long a backend may be idle before it is closed."`
	MaxAge          time.Duration `yaml:"max_age" doc:"How old a backend may get."`
	LoginsAtOnce    int           `yaml:"logins_at_once" doc:"Most logins to one shard at a time."`
	LoginsPerSecond int           `yaml:"logins_per_second" doc:"Most logins to one shard in a second."`
}

// Modes of [Pool.Mode].
const (
	PoolTransaction = "transaction"
	PoolSession     = "session"
)

// Limits says what clients may ask for.
type Limits struct {
	Clients        int           `yaml:"clients" doc:"Most clients at a time."`
	MaxMessage     int           `yaml:"max_message" doc:"Longest message that a client may send, in bytes."`
	StartupTimeout time.Duration `yaml:"startup_timeout" doc:"How long a client may take to log in."`
	HoldTimeout    time.Duration `yaml:"hold_timeout" doc:"How long a statement waits while its rows are switched from one shard to another."`
	DrainTimeout   time.Duration `yaml:"drain_timeout" doc:"How long open transactions may go on when the process is told to stop. After a hand-over sessions first go on as ever for as long, then idle ones are closed."`
	Plans          int           `yaml:"plans" doc:"How many statements' plans are kept."`
	RowsMemory     int64         `yaml:"rows_memory" doc:"Most bytes of rows of several shards that all statements together hold in memory, to bring them together. What does not fit goes into files, or the statement fails with 53200."`
	RowsFiles      int64         `yaml:"rows_files" doc:"Most bytes of such rows that all statements together hold in temporary files (in TMPDIR); more fails with 53400. 0 for no limit."`
	PullMemory     int64         `yaml:"pull_memory" doc:"How many bytes of what one query of a statement pulls from shards stay in memory; more goes into a file."`
	PullSize       int64         `yaml:"pull_size" doc:"Most bytes that one query of a statement may pull from shards."`
	GivenRows      int64         `yaml:"given_rows" doc:"Most bytes of other shards' rows that a statement which writes may need, and that it may return, if they have to be brought into an order."`
	ArrayRows      int64         `yaml:"array_rows" doc:"Most bytes of a pull that are handed to the server which finishes a statement as parameters; more goes into a temporary table there."`
}

// Etcd says how to reach etcd.
type Etcd struct {
	Endpoints      []string         `yaml:"endpoints" doc:"URLs of the members of the etcd cluster, all of them if possible."`
	Username       string           `yaml:"username" example:"cleave" doc:"User to log in to etcd as; empty if etcd asks for none."`
	Password       secret.Reference `yaml:"password" example:"{file: /etc/cleave/etcd-password}" doc:"Where the password of that user is."`
	TLS            EtcdTLS          `yaml:"tls" doc:"For endpoints that begin with https."`
	RequestTimeout time.Duration    `yaml:"request_timeout" doc:"How long one request to etcd may take."`
	LeaseTTL       time.Duration    `yaml:"lease_ttl" doc:"How long after its last sign of life a process counts as gone; whole seconds, as etcd counts."`
}

// EtcdTLS says how to know etcd, and how to be known to it.
type EtcdTLS struct {
	CAFile     string `yaml:"ca_file" example:"/etc/cleave/etcd-ca.pem" doc:"Certificates of the authorities that etcd's certificate must be signed by; empty for those of the system."`
	CertFile   string `yaml:"cert_file" example:"/etc/cleave/etcd-client.pem" doc:"Certificate to show to etcd, if it asks for one."`
	KeyFile    string `yaml:"key_file" example:"/etc/cleave/etcd-client.key" doc:"Private key of that certificate."`
	ServerName string `yaml:"server_name" example:"etcd.internal" doc:"Name that etcd's certificate must have; empty for the host in the endpoint."`
}

// HTTP says where the HTTP API answers, and whom.
type HTTP struct {
	Listen string           `yaml:"listen" doc:"Address of the HTTP API. One that other machines reach needs a token and TLS."`
	Token  secret.Reference `yaml:"token" example:"{file: /etc/cleave/http-token}" doc:"Where the token is that callers must send."`
	TLS    HTTPTLS          `yaml:"tls" doc:"To answer over https."`
}

// HTTPTLS says how the HTTP API is known to its callers, and they to it.
type HTTPTLS struct {
	CertFile     string `yaml:"cert_file" example:"/etc/cleave/http.pem" doc:"Certificate of the HTTP API, with the chain that leads to its authority."`
	KeyFile      string `yaml:"key_file" example:"/etc/cleave/http.key" doc:"Private key of that certificate."`
	ClientCAFile string `yaml:"client_ca_file" example:"/etc/cleave/http-clients-ca.pem" doc:"Certificates of the authorities that callers' certificates must be signed by; empty to ask callers for none."`
}

// Shards says how to log in to a shard.
type Shards struct {
	User           string           `yaml:"user" doc:"Role to log in as."`
	Password       secret.Reference `yaml:"password" example:"{file: /etc/cleave/shards-password}" doc:"Where the password of that role is."`
	Database       string           `yaml:"database" doc:"Database on the shard's servers."`
	SSLMode        string           `yaml:"sslmode" doc:"What is asked of a connection: disable (no TLS), require (TLS with anyone), verify-ca (with a server that root_ca_file vouches for), verify-full (and that has the right name)."`
	RootCAFile     string           `yaml:"root_ca_file" example:"/etc/cleave/shards-ca.pem" doc:"Certificates of the authorities that the servers' certificates must be signed by; empty for those of the system."`
	ConnectTimeout time.Duration    `yaml:"connect_timeout" doc:"How long it may take to connect and log in."`
}

// Modes of [Shards.SSLMode]. PostgreSQL's allow and prefer are not among them: they fall back to plain text in silence.
const (
	SSLDisable    = "disable"
	SSLRequire    = "require"
	SSLVerifyCA   = "verify-ca"
	SSLVerifyFull = "verify-full"
)

// Health says how shards are looked at.
type Health struct {
	Interval time.Duration `yaml:"interval" doc:"How long from one look at a shard to the next."`
	Timeout  time.Duration `yaml:"timeout" doc:"How long a shard may take to answer a look; no longer than the interval."`
}

// Log says what is logged and how.
type Log struct {
	Level  string `yaml:"level" doc:"Least level that is logged: debug, info, warn, error."`
	Format string `yaml:"format" doc:"Form of a line: text or json."`
}

// Formats of [Log.Format].
const (
	LogText = "text"
	LogJSON = "json"
)

// Default returns the configuration of a process that was told nothing.
func Default() Config {
	name, _ := os.Hostname() // without one Check asks for a name
	return Config{
		Cluster:    "main",
		RouterName: name,
		Listen:     "127.0.0.1:6432",
		Auth:       Auth{Rules: []string{"host all all loopback scram-sha-256", "hostssl all all all scram-sha-256"}},
		Pool: Pool{
			Mode: PoolTransaction, PerShard: 50, QueueTimeout: 10 * time.Second, IdleTimeout: 10 * time.Minute, MaxAge: time.Hour,
			LoginsAtOnce: 4, LoginsPerSecond: 50,
		},
		Limits: Limits{
			Clients: 10_000, MaxMessage: 256 << 20, StartupTimeout: 30 * time.Second, HoldTimeout: 30 * time.Second,
			DrainTimeout: 30 * time.Second, Plans: 10_000,
			RowsMemory: 512 << 20, PullMemory: 8 << 20, PullSize: 16 << 30, GivenRows: 256 << 20, ArrayRows: 1 << 20,
		},
		Etcd: Etcd{
			Endpoints:      []string{"http://127.0.0.1:2379"},
			RequestTimeout: 5 * time.Second,
			LeaseTTL:       10 * time.Second,
		},
		HTTP: HTTP{Listen: "127.0.0.1:8432"},
		Shards: Shards{
			User:           "cleave",
			Database:       "cleave",
			SSLMode:        SSLVerifyFull,
			ConnectTimeout: 5 * time.Second,
		},
		Health: Health{Interval: 2 * time.Second, Timeout: time.Second},
		Log:    Log{Level: "info", Format: LogText},
	}
}

// Source is what a value came from.
type Source string

// Sources, from the weakest to the strongest.
const (
	FromDefault     Source = "default"
	FromFile        Source = "file"
	FromEnvironment Source = "environment"
)

// Origin says where a value came from.
type Origin struct {
	Source Source
	Place  string // file and line, as in cleave.yaml:3, or the variable; empty for a default
}

// Origin returns where the value of the field at the path, such as etcd.endpoints, came from.
func (c Config) Origin(path string) Origin {
	if origin, ok := c.origins[path]; ok {
		return origin
	}
	return Origin{Source: FromDefault}
}

// Value returns the value at the path as text, as the environment would have it: a list with commas, a secret as its
// reference. It is empty for a path that is no field.
func (c Config) Value(path string) string {
	f, ok := schema.field(path)
	if !ok {
		return ""
	}
	return textOf(f.in(&c))
}
