package shard

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/secret"
	"github.com/cleavedb/cleave/internal/topology"
)

// oddPassword has everything that a connection string would trip over.
const oddPassword = `it's "p@ss" \ word=1 host=evil ?&#%20 ünïcode`

// setRules replaces the server's pg_hba.conf.
func setRules(t *testing.T, s *localpg.Server, admin *pgx.Conn, rules string) {
	t.Helper()
	path := filepath.Join(s.Dir(), "data", "pg_hba.conf")
	if err := os.WriteFile(path, []byte(rules+"\n"), 0o600); err != nil { // keeps its owner
		t.Fatal(err)
	}
	loaded := one[time.Time](t, admin, "SELECT pg_conf_load_time()")
	execute(t, admin, "SELECT pg_reload_conf()")
	for !one[time.Time](t, admin, "SELECT pg_conf_load_time()").After(loaded) {
		time.Sleep(time.Millisecond)
	}
}

func passwordFile(t *testing.T, password string) secret.Reference {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return secret.Reference{File: path}
}

func TestAPasswordWithOddCharactersIsTakenAsItIs(t *testing.T) {
	server := pgtest.Start(t)
	spec := specOf("s1", server)
	admin := connect(t, spec)
	execute(t, admin, "CREATE ROLE \"odd user\" LOGIN PASSWORD '"+strings.ReplaceAll(oddPassword, "'", "''")+"'")
	setRules(t, server, admin, "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256")
	spec.User, spec.Password = "odd user", passwordFile(t, oddPassword)
	conn := connect(t, spec)
	if user := one[string](t, conn, "SELECT current_user::text"); user != "odd user" {
		t.Errorf("logged in as %q", user)
	}

	const wrong = "a wrong secret"
	spec.Password = passwordFile(t, wrong)
	_, err := Access{}.Connect(t.Context(), spec)
	expectConnectError(t, err, "s1", server.Addr(), "odd user", "refused")
	if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, wrong) {
		t.Errorf("the password is in the error: %s", text)
	}
	if holder := new(pgconn.ConnectError); errors.As(err, &holder) {
		t.Error("the error holds the driver's configuration, and with it the password")
	}
	spec.Password = secret.Reference{}
	_, err = Access{}.Connect(t.Context(), spec)
	expectConnectError(t, err, "needs a password", "env:NAME")
}

func expectConnectError(t *testing.T, err error, words ...string) {
	t.Helper()
	var failure *ConnectError
	if !errors.As(err, &failure) {
		t.Fatalf("%v is not a ConnectError", err)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
}

func TestTheEnvironmentHasNoSay(t *testing.T) {
	server := pgtest.Start(t)
	home := t.TempDir()
	t.Setenv("HOME", home)
	for path, content := range map[string]string{
		".pgpass": "*:*:*:*:leaked", ".pg_service.conf": "[evil]\nhost=192.0.2.1\nport=1\noptions=-c work_mem=123kB\nkrbsrvname=evil\n",
		".postgresql/root.crt": "no certificate", ".postgresql/postgresql.crt": "none", ".postgresql/postgresql.key": "none",
	} {
		path = filepath.Join(home, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{
		"PGHOST": "192.0.2.1", "PGPORT": "1", "PGDATABASE": "nowhere", "PGUSER": "nobody", "PGPASSWORD": "leaked", "PGAPPNAME": "leaked",
		"PGCONNECT_TIMEOUT": "junk", "PGSSLMODE": "verify-full", "PGSSLKEY": "/nowhere", "PGSSLCERT": "/nowhere", "PGSSLROOTCERT": "/nowhere",
		"PGSSLSNI": "0", "PGSSLPASSWORD": "leaked", "PGSSLNEGOTIATION": "direct", "PGTARGETSESSIONATTRS": "standby", "PGTZ": "Asia/Tokyo",
		"PGOPTIONS": "-c work_mem=123kB", "PGMINPROTOCOLVERSION": "junk", "PGMAXPROTOCOLVERSION": "junk", "PGCHANNELBINDING": "require", "PGREQUIREAUTH": "gss",
		"PGPASSFILE": filepath.Join(home, ".pgpass"),
	} {
		t.Setenv(name, value)
	}
	for _, service := range []string{"", "evil", "missing"} {
		t.Setenv("PGSERVICE", service)
		config := must[*pgx.ConnConfig](t)(Access{User: "u", SSLMode: "disable"}.to(topology.ShardSpec{}).config("h:5"))
		if config.Password != "" || config.Host != "h" || config.User != "u" || config.Database != "cleave" || len(config.Fallbacks) != 0 ||
			config.SSLNegotiation != "" || config.RequireAuth != "" || config.KerberosSrvName != "" || config.ValidateConnect != nil {
			t.Errorf("service %q: the environment shows in %+v", service, config.Config)
		}
		conn := connect(t, specOf("s1", server))
		for setting, want := range map[string]string{
			"application_name": "cleave/control", "search_path": "pg_catalog", "TimeZone": "UTC", "statement_timeout": "1min", "lock_timeout": "10s", "work_mem": "4MB",
		} {
			if got := one[string](t, conn, "SELECT current_setting($1)", setting); got != want {
				t.Errorf("service %q: %s is %q, want %q", service, setting, got, want)
			}
		}
	}
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), "cleave-service-*"))
	if len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
}

func TestSettingsOfTheRoleDoNotMatter(t *testing.T) {
	server := pgtest.Start(t)
	admin := connect(t, specOf("s1", server))
	execute(t, admin, "ALTER ROLE postgres SET search_path = public")
	execute(t, admin, "ALTER ROLE postgres SET timezone = 'Asia/Tokyo'")
	execute(t, admin, "ALTER DATABASE postgres SET default_transaction_read_only = on")
	conn := connect(t, specOf("s1", server))
	if got := one[string](t, conn, "SELECT current_setting('search_path') || ' ' || current_setting('timezone') || ' ' || current_setting('transaction_read_only')"); got != "pg_catalog UTC off" {
		t.Errorf("the session has %s", got)
	}
}

func TestFailuresToConnectSayWhatToDo(t *testing.T) {
	server := pgtest.Start(t)
	good := specOf("s1", server)
	admin := connect(t, good)
	silent := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0")) // takes connections and says nothing
	defer silent.Close()
	gone := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	gone.Close()
	execute(t, admin, "CREATE ROLE guest LOGIN")
	execute(t, admin, "REVOKE CONNECT ON DATABASE postgres FROM PUBLIC")
	for name, c := range map[string]struct {
		change func(*topology.ShardSpec)
		words  []string
	}{
		"refused":     {func(s *topology.ShardSpec) { s.Primary.Address = gone.Addr().String() }, []string{"refused", "listen_addresses", gone.Addr().String()}},
		"silent":      {func(s *topology.ShardSpec) { s.Primary.Address = silent.Addr().String() }, []string{"no answer in time", "firewall"}},
		"no host":     {func(s *topology.ShardSpec) { s.Primary.Address = "no-such-host.invalid:5432" }, []string{"no-such-host.invalid", "s1"}},
		"no database": {func(s *topology.ShardSpec) { s.Database = "missing" }, []string{`"missing"`, "CREATE DATABASE"}},
		"no role":     {func(s *topology.ShardSpec) { s.User = "missing" }, []string{"missing", "pg_hba.conf"}},
		"no right":    {func(s *topology.ShardSpec) { s.User = "guest" }, []string{"GRANT CONNECT"}},
		"no TLS":      {func(s *topology.ShardSpec) { s.SSLMode = "require" }, []string{"does not speak TLS", "ssl = on"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := good
			c.change(&spec)
			_, err := Access{ConnectTimeout: time.Second}.Connect(t.Context(), spec)
			expectConnectError(t, err, c.words...)
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := (Access{}).Connect(ctx, good); !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled connect says %v", err)
		}
	})
	t.Run("other mistakes", func(t *testing.T) {
		for _, a := range []Access{{SSLMode: "maybe"}, {ConnectTimeout: -1}, {Password: secret.Reference{Env: "CLEAVE_NOT_SET"}}, {RootCAFile: "/nowhere", SSLMode: "verify-ca"}} {
			spec := good
			spec.SSLMode = ""
			if _, err := a.Connect(t.Context(), spec); err == nil || !strings.Contains(err.Error(), `shard "s1"`) {
				t.Errorf("%+v says %v", a, err)
			}
		}
	})
}

// certify gives the server a certificate for this name, and returns the file of its authority.
func certify(t *testing.T, s *localpg.Server, admin *pgx.Conn, name string) string {
	t.Helper()
	private := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	certificate := must[[]byte](t)(x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private))
	privateBytes := must[[]byte](t)(x509.MarshalPKCS8PrivateKey(private))
	data := filepath.Join(s.Dir(), "data")
	owner := must[os.FileInfo](t)(os.Stat(data)).Sys().(*syscall.Stat_t)
	authority := filepath.Join(data, "server.crt")
	for path, block := range map[string]*pem.Block{
		authority: {Type: "CERTIFICATE", Bytes: certificate}, filepath.Join(data, "server.key"): {Type: "PRIVATE KEY", Bytes: privateBytes},
	} {
		if err := errors.Join(os.WriteFile(path, pem.EncodeToMemory(block), 0o600), os.Chown(path, int(owner.Uid), int(owner.Gid))); err != nil {
			t.Fatal(err)
		}
	}
	execute(t, admin, "ALTER SYSTEM SET ssl = on")
	return authority
}

func TestModesOfTLS(t *testing.T) {
	server := pgtest.Start(t)
	spec := specOf("s1", server)
	admin := connect(t, spec)
	authority := certify(t, server, admin, "localhost")
	otherAuthority := filepath.Join(t.TempDir(), "other.crt")
	setRules(t, server, admin, "hostssl all all 127.0.0.1/32 trust")
	private := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "db.example"}, IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}
	stranger := must[[]byte](t)(x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private))
	if err := os.WriteFile(otherAuthority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: stranger}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mode, authority string
		words           []string // none: it connects
		named           bool     // by name, not by address
	}{
		{"disable", "", []string{"wants TLS", "verify-full"}, false},
		{"require", "", nil, false},
		{"require", authority, nil, false},
		{"require", otherAuthority, []string{"not trusted"}, false},
		{"verify-ca", authority, nil, false},
		{"verify-ca", otherAuthority, []string{"not trusted", "root_ca_file"}, false},
		{"verify-ca", "", []string{"not trusted"}, false},
		{"verify-full", authority, []string{"not trusted"}, false}, // it is localhost's, not 127.0.0.1's
		{"verify-full", authority, nil, true},
		{"verify-full", otherAuthority, []string{"not trusted"}, true},
	} {
		t.Run(c.mode+" "+filepath.Base(c.authority), func(t *testing.T) {
			spec := spec
			spec.SSLMode, spec.SSLRootCert = c.mode, c.authority
			address := spec.Primary.Address
			if c.named {
				address = fmt.Sprintf("localhost:%d", server.Port())
			}
			conn, err := Access{}.ConnectTo(t.Context(), spec, address)
			if c.words != nil {
				expectConnectError(t, err, c.words...)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			if !one[bool](t, conn, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") {
				t.Error("the connection is not encrypted")
			}
		})
	}
}

func TestAPasswordIsNeverSentInTheClear(t *testing.T) {
	server := pgtest.Start(t)
	spec := specOf("s1", server)
	admin := connect(t, spec)
	execute(t, admin, "CREATE ROLE app LOGIN SUPERUSER PASSWORD 'secret'")
	spec.User, spec.Password = "app", passwordFile(t, "secret")
	for _, method := range []string{"password", "md5"} {
		setRules(t, server, admin, "host all postgres all trust\nhost all all all "+method)
		conn, err := Access{SSLMode: "disable", Database: "postgres"}.Connect(t.Context(), spec)
		if method == "md5" { // with a SCRAM verifier the server asks for SCRAM all the same
			if err != nil {
				t.Fatal(err)
			}
			closeConn(t, conn)
			continue
		}
		var refused *ConnectError
		if !errors.As(err, &refused) || !strings.Contains(refused.Hint, "scram-sha-256") {
			t.Errorf("%s: %v", method, err)
		}
	}
}

func closeConn(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	if err := conn.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
