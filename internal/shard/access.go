package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/secret"
	"github.com/cleavedb/cleave/internal/topology"
)

// Access says how to log in to shards, as far as a shard's own description does not.
type Access struct {
	// User is the role to log in as. Default: "cleave".
	User string
	// Database is the database on the shard's servers. Default: "cleave".
	Database string
	// Password is where the role's password is. Default: none is sent.
	Password secret.Reference
	// SSLMode is what is asked of a connection, in libpq's words. Default: "verify-full".
	SSLMode string
	// RootCAFile has the certificates that servers' certificates must be signed by. Default: those of the system.
	RootCAFile string
	// ConnectTimeout is how long it may take to connect and log in. Default: 5 seconds.
	ConnectTimeout time.Duration
}

func (a Access) withDefaults() Access {
	a.User = cmp.Or(a.User, "cleave")
	a.Database = cmp.Or(a.Database, "cleave")
	a.SSLMode = cmp.Or(a.SSLMode, "verify-full")
	a.ConnectTimeout = cmp.Or(a.ConnectTimeout, 5*time.Second)
	return a
}

// to returns the access to one shard: what its description says comes first.
func (a Access) to(spec topology.ShardSpec) Access {
	a = a.withDefaults()
	a.User = cmp.Or(spec.User, a.User)
	a.Database = cmp.Or(spec.Database, a.Database)
	a.Password = cmp.Or(spec.Password, a.Password)
	a.SSLMode = cmp.Or(spec.SSLMode, a.SSLMode)
	a.RootCAFile = cmp.Or(spec.SSLRootCert, a.RootCAFile)
	return a
}

func (a Access) check() error {
	if !slices.Contains(topology.SSLModes(), a.SSLMode) {
		return fmt.Errorf("sslmode %q is none of %s", a.SSLMode, strings.Join(topology.SSLModes(), ", "))
	}
	if a.ConnectTimeout < 0 {
		return fmt.Errorf("a connect timeout of %v is negative", a.ConnectTimeout)
	}
	return a.Password.Check()
}

// Connect logs in to the shard's primary. A failure to reach it is a [ConnectError].
func (a Access) Connect(ctx context.Context, spec topology.ShardSpec) (*pgx.Conn, error) {
	return a.ConnectTo(ctx, spec, spec.Primary.Address)
}

// ConnectAs is [Access.Connect] under another name than the control plane's, as pg_stat_activity shows it from the beginning.
func (a Access) ConnectAs(ctx context.Context, spec topology.ShardSpec, application string) (*pgx.Conn, error) {
	return a.connect(ctx, spec, spec.Primary.Address, map[string]string{"application_name": application})
}

// ConnectTo logs in to the shard's instance at this address, a replica for example.
func (a Access) ConnectTo(ctx context.Context, spec topology.ShardSpec, address string) (*pgx.Conn, error) {
	return a.connect(ctx, spec, address, nil)
}

// connect logs in with settings besides those that all connections have.
func (a Access) connect(ctx context.Context, spec topology.ShardSpec, address string, settings map[string]string) (*pgx.Conn, error) {
	access := a.to(spec)
	config, err := access.config(address)
	if err != nil {
		return nil, fmt.Errorf("connect to shard %q at %s: %w", spec.Name, address, err)
	}
	maps.Copy(config.RuntimeParams, settings)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, connectError(spec.Name, address, access, err)
	}
	return conn, nil
}

// Replicate logs in to the shard's primary as one who reads its changes.
func (a Access) Replicate(ctx context.Context, spec topology.ShardSpec, application string) (*pgconn.PgConn, error) {
	access := a.to(spec)
	config, err := access.config(spec.Primary.Address)
	if err != nil {
		return nil, fmt.Errorf("connect to shard %q at %s: %w", spec.Name, spec.Primary.Address, err)
	}
	// What stands for limits there would end a connection that does nothing but keep a snapshot, or wait for older transactions to end.
	config.RuntimeParams = map[string]string{"application_name": application, "replication": "database", "statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0"}
	conn, err := pgconn.ConnectConfig(ctx, &config.Config)
	if err != nil {
		return nil, connectError(spec.Name, spec.Primary.Address, access, err)
	}
	return conn, nil
}

// Conninfo is how another shard's server connects to this one. It has the password in it.
func (a Access) Conninfo(spec topology.ShardSpec, application string) (string, error) {
	access := a.to(spec)
	host, port, err := net.SplitHostPort(spec.Primary.Address)
	if err != nil {
		return "", fmt.Errorf("address %q: write host:port", spec.Primary.Address)
	}
	password := ""
	if !access.Password.IsZero() {
		if password, err = access.Password.Resolve(); err != nil {
			return "", err
		}
	}
	return conninfo([][2]string{
		{"host", host}, {"port", port}, {"dbname", access.Database}, {"user", access.User}, {"password", password}, {"sslmode", access.SSLMode}, {"sslrootcert", access.RootCAFile},
		{"application_name", application}, {"connect_timeout", "10"}, {"keepalives_idle", "15"}, {"keepalives_interval", "5"}, {"keepalives_count", "3"},
	}), nil
}

// sessionSettings make every connection alike, whatever was set for the role, the database or the server.
func sessionSettings() map[string]string {
	return map[string]string{
		"application_name": "cleave/control",
		// Names are looked up in the system's schema alone, so that nobody's table or function stands in between.
		"search_path": "pg_catalog",
		"timezone":    "UTC",
		"datestyle":   "ISO, YMD",
		// Queries of views are read again by clients' sessions: these two are forms that are read alike under any setting.
		"intervalstyle":      "postgres",
		"extra_float_digits": "1",
		"client_encoding":    "UTF8",
		// Control work waits for nobody for long: neither behind a lock nor for a statement that has gone astray.
		"statement_timeout":                   "60s",
		"lock_timeout":                        "10s",
		"idle_in_transaction_session_timeout": "60s",
		"jit":                                 "off", // compiling takes longer than anything that is asked here
		// What is recorded must be durable, and a database that is closed for its users is open for the control plane.
		"synchronous_commit":            "on",
		"default_transaction_read_only": "off",
		"default_transaction_isolation": "read committed",
	}
}

// config makes the driver's configuration without letting the environment have a say.
func (a Access) config(address string) (*pgx.ConnConfig, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("address %q: write host:port", address)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("address %q: write host:port with a port from 1 to 65535", address)
	}
	config, err := neutralConfig()
	if err != nil {
		return nil, err
	}
	config.Host, config.Port, config.User, config.Database = host, uint16(port), a.User, a.Database
	config.Password = ""
	if !a.Password.IsZero() {
		if config.Password, err = a.Password.Resolve(); err != nil {
			return nil, err
		}
		// A server that asked for it in the clear, or as MD5, would learn it.
		config.RequireAuth = "scram-sha-256,none"
	}
	config.ConnectTimeout = a.ConnectTimeout
	config.DialFunc = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	config.RuntimeParams = sessionSettings()
	return config, a.secure(config)
}

// neutralText overrides everything that the driver takes from the environment or from files at home. All that matters of
// it is set again afterwards; a password is given so that no password file is looked into.
const neutralText = `host=localhost port=5432 user=nobody password=none database=none connect_timeout=0
	sslmode=disable sslrootcert='' sslcert='' sslkey='' sslpassword='' sslnegotiation='' sslsni='' channel_binding='' require_auth=''
	target_session_attrs=any min_protocol_version='' max_protocol_version='' krbsrvname='' krbspn=''`

// neutralConfig returns a configuration in which nothing comes from outside.
func neutralConfig() (*pgx.ConnConfig, error) {
	text := neutralText
	if os.Getenv("PGSERVICE") != "" {
		// The driver looks for a service as soon as one is named and fails without it, so it is given an empty one.
		path, err := emptyService()
		if err != nil {
			return nil, fmt.Errorf("set the environment variable PGSERVICE aside, which you may want to unset: %w", err)
		}
		defer os.Remove(path)
		text += " service=none servicefile='" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(path) + "'"
	}
	config, err := pgx.ParseConfig(text)
	if err != nil {
		return nil, errors.New("prepare the driver's configuration: it refused its defaults") // its own words quote more than they should
	}
	config.KerberosSrvName, config.KerberosSpn = "", ""
	return config, nil
}

// emptyService writes a service file with one service that says nothing.
func emptyService() (path string, err error) {
	file, err := os.CreateTemp("", "cleave-service-")
	if err != nil {
		return "", err
	}
	_, err = file.WriteString("[none]\n")
	if err = errors.Join(err, file.Close()); err != nil {
		return "", errors.Join(err, os.Remove(file.Name()))
	}
	return file.Name(), nil
}
