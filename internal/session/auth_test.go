package session

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/auth"
)

// certificates are files of an authority, of the router and of a client.
type certificates struct {
	authority                    *x509.CertPool
	authorityFile, file, keyFile string
	alice                        tls.Certificate
}

func newCertificates(t testing.TB) certificates {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	newKey := func() *ecdsa.PrivateKey {
		return must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	}
	template := func(name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
	}
	rootKey, root := newKey(), template("authority")
	root.IsCA, root.BasicConstraintsValid = true, true
	rootDER := must[[]byte](t)(x509.CreateCertificate(rand.Reader, root, root, &rootKey.PublicKey, rootKey))
	signed := func(name string) (der []byte, key *ecdsa.PrivateKey) {
		key = newKey()
		return must[[]byte](t)(x509.CreateCertificate(rand.Reader, template(name), root, &key.PublicKey, rootKey)), key
	}
	routerDER, routerKey := signed("router")
	aliceDER, aliceKey := signed("alice")
	c := certificates{authority: x509.NewCertPool(), alice: tls.Certificate{Certificate: [][]byte{aliceDER}, PrivateKey: aliceKey}}
	c.authority.AddCert(must[*x509.Certificate](t)(x509.ParseCertificate(rootDER)))
	c.authorityFile, c.file = write("ca.pem", "CERTIFICATE", rootDER), write("router.pem", "CERTIFICATE", routerDER)
	c.keyFile = write("router.key", "EC PRIVATE KEY", must[[]byte](t)(x509.MarshalECPrivateKey(routerKey)))
	return c
}

// rolesSQL makes alice with the same verifier on every server, bob with one of his own on each, and carol who may not log in.
func rolesSQL(t testing.TB) []string {
	t.Helper()
	verifier := must[*auth.Verifier](t)(auth.NewVerifier("wonderland", 0))
	return []string{
		"CREATE ROLE alice LOGIN PASSWORD '" + verifier.String() + "'", "CREATE ROLE bob LOGIN PASSWORD 'builder'", "CREATE ROLE carol PASSWORD 'may not'",
		"CREATE ROLE \"nobody's\" LOGIN", "GRANT SELECT ON orders TO alice",
	}
}

// newAuthWorld has shards that ask for passwords and a router that asks for SCRAM, with TLS where that is asked for.
func newAuthWorld(t testing.TB, certs certificates) *world {
	t.Helper()
	var w *world
	users := auth.NewCached(func(ctx context.Context, user string) (*auth.User, error) {
		conn, err := pgx.Connect(ctx, "postgres://postgres@"+w.shards[0].Addr()+"/postgres?sslmode=disable")
		if err != nil {
			return nil, err
		}
		defer conn.Close(ctx)
		var password string
		found := &auth.User{Name: user}
		err = conn.QueryRow(ctx, "SELECT coalesce(rolpassword, ''), rolcanlogin FROM pg_authid WHERE rolname = $1", user).Scan(&password, &found.CanLogin)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, auth.ErrNoUser
		}
		if err == nil && password != "" {
			found.Verifier, err = auth.ParseVerifier(password)
		}
		return found, err
	}, 0, nil)
	rules := must[auth.Rules](t)(auth.ParseRules([]auth.RuleSpec{
		{Users: []string{"postgres"}, Method: "trust"},
		{Users: []string{"mallory"}, Method: "reject"},
		{Connection: "tls", Databases: []string{"certified", "postgres"}, Users: []string{"certified", "nobody's"}, Method: "cert"},
		{Users: []string{"alice", "bob", "carol", "dave"}, Method: "scram-sha-256"},
	}))
	w = newWorld(t, worldConfig{
		noPlain: true, setUp: rolesSQL(t),
		config: Config{Rules: rules, Users: users, Certificates: must[*auth.Certificates](t)(auth.NewCertificates(certs.file, certs.keyFile, certs.authorityFile, nil))},
	})
	for i, server := range w.shards {
		admin := w.onShard(t, i+1)
		hba := "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
		if err := os.WriteFile(filepath.Join(server.Dir(), "data", "pg_hba.conf"), []byte(hba), 0o600); err != nil {
			t.Fatal(err)
		}
		before := one[time.Time](t, admin, "SELECT pg_conf_load_time()")
		execute(t, admin, "SELECT pg_reload_conf()")
		eventually(t, "the rules are in force", func() bool { return one[time.Time](t, admin, "SELECT pg_conf_load_time()").After(before) })
	}
	return w
}

// login connects with pgx, which speaks SCRAM and channel binding.
func (w *world) login(t testing.TB, user, password, database string, secure *tls.Config) (*pgx.Conn, error) {
	t.Helper()
	host, port, _ := net.SplitHostPort(w.address)
	config := must[*pgx.ConnConfig](t)(pgx.ParseConfig("sslmode=disable host=" + host + " port=" + port))
	config.User, config.Password, config.Database, config.TLSConfig = user, password, database, secure
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err == nil {
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
	}
	return conn, err
}

func wantRefusal(t testing.TB, err error, code string) {
	t.Helper()
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != code {
		t.Errorf("%v, want SQLSTATE %s", err, code)
	}
}

// TestAuthentication: who gets in, and as whom.
func TestAuthentication(t *testing.T) {
	t.Parallel()
	certs := newCertificates(t)
	w := newAuthWorld(t, certs)
	secure := &tls.Config{RootCAs: certs.authority, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	t.Run("keys are passed through to all shards", func(t *testing.T) {
		for _, config := range []*tls.Config{nil, secure} {
			alice, err := w.login(t, "alice", "wonderland", "postgres", config)
			if err != nil {
				t.Fatal(err)
			}
			for _, number := range []int{1, 2} {
				if n := one[int](t, alice, "SELECT count(*)::int FROM orders WHERE id = $1", w.key(t, number, 0)); n != 0 {
					t.Errorf("%d rows", n)
				}
				_, err = alice.Exec(t.Context(), "DELETE FROM orders WHERE id = $1", w.key(t, number, 0))
				wantRefusal(t, err, "42501")
			}
			if user := one[string](t, alice, "SELECT current_user::text"); user != "alice" {
				t.Errorf("she is %s", user)
			}
			_, err = alice.Exec(t.Context(), "SELECT * FROM undeclared")
			wantRefusal(t, err, "42501")
			_ = alice.Close(context.Background())
		}
	})
	for _, c := range []struct{ name, user, password, database, code string }{
		{"a wrong password", "alice", "looking glass", "postgres", "28P01"},
		{"no password", "alice", "", "postgres", "28P01"},
		{"an unknown user", "dave", "x", "postgres", "28P01"},
		{"a role that may not log in", "carol", "may not", "postgres", "28000"},
		{"no rule", "erin", "x", "postgres", "28000"},
		{"a rule that rejects", "mallory", "x", "postgres", "28000"},
		{"another database", "alice", "wonderland", "nosuch", "3D000"},
		{"a certificate without TLS", "nobody's", "", "postgres", "28000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := w.login(t, c.user, c.password, c.database, nil); c.password != "" || !errors.As(err, new(*pgconn.ConnectError)) {
				wantRefusal(t, err, c.code)
			} else if !strings.Contains(err.Error(), c.code) && c.user != "alice" { // a driver without a password gives up by itself
				t.Error(err)
			}
		})
	}
	t.Run("a verifier that other shards do not have", func(t *testing.T) {
		bob, err := w.login(t, "bob", "builder", "postgres", nil)
		if err != nil {
			t.Fatal(err)
		}
		execute(t, bob, "SELECT 1")
		_, err = bob.Exec(t.Context(), "SELECT * FROM orders WHERE id = $1", w.key(t, 2, 0))
		wantRefusal(t, err, "28000")
		execute(t, bob, "SELECT 1")
	})
	t.Run("a certificate of somebody else", func(t *testing.T) {
		config := secure.Clone()
		config.Certificates = []tls.Certificate{certs.alice}
		_, err := w.login(t, "nobody's", "", "postgres", config)
		wantRefusal(t, err, "28000")
	})
	w.settled(t)
}

// TestCertificate: a client that shows its name needs no password.
func TestCertificate(t *testing.T) {
	t.Parallel()
	certs := newCertificates(t)
	rules := must[auth.Rules](t)(auth.ParseRules([]auth.RuleSpec{{Connection: "tls", Method: "cert"}}))
	w := newWorld(t, worldConfig{noPlain: true, setUp: []string{"CREATE ROLE alice LOGIN"}, config: Config{
		Rules: rules, Certificates: must[*auth.Certificates](t)(auth.NewCertificates(certs.file, certs.keyFile, certs.authorityFile, nil)),
	}})
	config := &tls.Config{RootCAs: certs.authority, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certs.alice}}
	alice, err := w.login(t, "alice", "", "postgres", config)
	if err != nil {
		t.Fatal(err)
	}
	if user := one[string](t, alice, "SELECT current_user::text"); user != "alice" {
		t.Errorf("she is %s", user)
	}
	if _, err := w.login(t, "postgres", "", "postgres", config); err == nil {
		t.Error("her certificate lets her in as somebody else")
	}
	config = config.Clone()
	config.Certificates = nil
	if _, err := w.login(t, "alice", "", "postgres", config); err == nil {
		t.Error("she got in without a certificate")
	}
	if _, err := w.login(t, "alice", "", "postgres", nil); err == nil {
		t.Error("she got in without TLS")
	}
}

// TestStartup: what comes before the login.
func TestStartup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	answer := func(t *testing.T, c *rawClient, want string) {
		t.Helper()
		got := make([]byte, len(want))
		_ = c.conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.ReadFull(c.conn, got); err != nil || string(got) != want {
			t.Errorf("the answer is %q, %v; want %q", got, err, want)
		}
	}
	startup := func(minor uint32, parameters map[string]string) *pgproto3.StartupMessage {
		all := map[string]string{"user": "postgres", "database": "postgres"}
		for name, value := range parameters {
			all[name] = value
		}
		return &pgproto3.StartupMessage{ProtocolVersion: 3<<16 | minor, Parameters: all}
	}
	t.Run("encryption that there is not", func(t *testing.T) {
		c := newRaw(t, w.address)
		c.send(&pgproto3.GSSEncRequest{})
		answer(t, c, "N")
		c.send(&pgproto3.SSLRequest{})
		answer(t, c, "N")
		c.send(startup(0, nil))
		wantCodes(t, c.readyTimes(1), "", "ready I")
	})
	t.Run("encryption, again and again", func(t *testing.T) {
		c := newRaw(t, w.address)
		c.send(&pgproto3.SSLRequest{})
		answer(t, c, "N")
		c.send(&pgproto3.SSLRequest{})
		wantCodes(t, c.readyTimes(1), "08P01", "the end")
	})
	t.Run("a newer protocol", func(t *testing.T) {
		c := newRaw(t, w.address)
		c.send(startup(2, map[string]string{"_pq_.nosuch": "1"}))
		said := c.readyTimes(1)
		if said[0] != "negotiateprotocolversion" || said[len(said)-1] != "ready I" {
			t.Errorf("%q", said)
		}
		wantCodes(t, c.query("SELECT 1"), "", "ready I")
	})
	t.Run("a replication connection", func(t *testing.T) {
		for _, value := range []string{"true", "database", "1"} {
			c := newRaw(t, w.address)
			c.send(startup(0, map[string]string{"replication": value}))
			wantCodes(t, c.readyTimes(1), "0A000", "the end")
		}
	})
	t.Run("a role that the shards do not have", func(t *testing.T) {
		c := newRaw(t, w.address)
		c.send(startup(0, map[string]string{"user": "nosuch"}))
		wantCodes(t, c.readyTimes(1), "28000", "the end")
	})
	t.Run("nobody is ready", func(t *testing.T) {
		unready := w.server.config.Ready
		w.server.config.Ready = func() error { return errors.New("there is no shard map") }
		defer func() { w.server.config.Ready = unready }()
		c := newRaw(t, w.address)
		c.send(startup(0, nil))
		wantCodes(t, c.readyTimes(1), "57P03", "the end")
	})
	w.settled(t)
}
