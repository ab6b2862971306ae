package clients_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

// target is something that clients connect to.
type target struct {
	host, port, user, password, database string
	sslMode, rootCertificate             string
	sharded                              bool   // whether it is the router
	ordersTable                          string // a sharded table for the client, if it is
}

// targets are what the suite runs against. With CLEAVE_CLIENTS_DSN there is one more, and it is the only one:
// somebody's server, or with CLEAVE_CLIENTS_SHARDED somebody's router.
var targets = []struct {
	name  string
	start func(t *testing.T) target
}{
	{"given", givenTarget},
	{"postgres", plainPostgres},
	{"router", router},
}

const givenDSN = "CLEAVE_CLIENTS_DSN"

func givenTarget(t *testing.T) target {
	dsn := os.Getenv(givenDSN)
	if dsn == "" {
		t.Skip(givenDSN + " is not set")
	}
	return targetOf(t, dsn, os.Getenv("CLEAVE_CLIENTS_SHARDED") != "")
}

// skipIfGiven leaves out the targets of our own.
func skipIfGiven(t *testing.T) {
	t.Helper()
	if os.Getenv(givenDSN) != "" {
		t.Skip(givenDSN + " is set")
	}
}

func targetOf(t *testing.T, dsn string, sharded bool) target {
	t.Helper()
	parsed, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	if parsed.Scheme != "postgres" && parsed.Scheme != "postgresql" {
		t.Fatalf("write the connection string as postgres://user@host:port/database")
	}
	password, _ := parsed.User.Password()
	query := parsed.Query()
	to := target{
		host: parsed.Hostname(), port: parsed.Port(), user: parsed.User.Username(), password: password, database: strings.TrimPrefix(parsed.Path, "/"),
		sslMode: query.Get("sslmode"), rootCertificate: query.Get("sslrootcert"), sharded: sharded,
	}
	if to.sslMode == "" {
		to.sslMode = "disable"
	}
	return to
}

// dsn is the target as a connection string.
func (to target) dsn() string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(to.user, to.password), Host: net.JoinHostPort(to.host, to.port), Path: "/" + to.database}
	query := url.Values{"sslmode": {to.sslMode}}
	if to.rootCertificate != "" {
		query.Set("sslrootcert", to.rootCertificate)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// environment is the target as libpq's variables, which most clients know and the other programs here read.
func (to target) environment() []string {
	variables := map[string]string{
		"PGHOST": to.host, "PGPORT": to.port, "PGUSER": to.user, "PGPASSWORD": to.password, "PGDATABASE": to.database,
		"PGSSLMODE": to.sslMode, "PGSSLROOTCERT": to.rootCertificate, "PGCONNECT_TIMEOUT": "20",
		"ORDERS_TABLE": to.ordersTable,
	}
	var list []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "PG") {
			list = append(list, variable)
		}
	}
	for name, value := range variables {
		if value != "" {
			list = append(list, name+"="+value)
		}
	}
	return list
}

// plainPostgres asks for a password with SCRAM and speaks TLS, so that every client proves that it can, and that what it
// is held against is not weaker than a server in earnest.
func plainPostgres(t *testing.T) target {
	skipIfGiven(t)
	pgtest.Installations(t)
	folder := pgtest.Folder(t)
	const password = "correct horse"
	passwordFile := filepath.Join(folder, "password")
	if err := os.WriteFile(passwordFile, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	certificate, key := makeCertificate(t, folder)
	server := pgtest.StartWith(t, localpg.Config{PasswordFile: passwordFile, Settings: map[string]string{
		"ssl": "on", "ssl_cert_file": certificate, "ssl_key_file": key,
	}})[0]
	return target{
		host: "127.0.0.1", port: strconv.Itoa(server.Port()), user: server.Superuser(), password: password, database: "postgres",
		sslMode: "verify-full", rootCertificate: certificate,
	}
}

// makeCertificate makes a certificate that signs itself, and its key, which must belong to the server's user.
func makeCertificate(t *testing.T, folder string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "127.0.0.1"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, // which node takes an address for
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	public, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key = filepath.Join(folder, "server.crt"), filepath.Join(folder, "server.key")
	for path, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: public}, key: {Type: "PRIVATE KEY", Bytes: encoded}} {
		mode := os.FileMode(0o644)
		if path == key {
			mode = 0o600
		}
		if err := os.WriteFile(path, pem.EncodeToMemory(block), mode); err != nil {
			t.Fatal(err)
		}
	}
	giveToServer(t, key)
	return certificate, key
}

// giveToServer gives a file to the user that a server runs as when this process is root.
func giveToServer(t *testing.T, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		account, err = user.Lookup("nobody")
	}
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(account.Uid)
	gid, _ := strconv.Atoi(account.Gid)
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
}

// router is a 'cleave dev' of two shards, built from this tree.
func router(t *testing.T) target {
	skipIfGiven(t)
	pgtest.Installations(t)
	folder := pgtest.Folder(t)
	binary := filepath.Join(folder, "cleave")
	if output, err := exec.Command("go", "build", "-C", "../..", "-ldflags=-w", "-o", binary, "./cmd/cleave").CombinedOutput(); err != nil {
		t.Fatalf("build cleave: %v: %s", err, output)
	}
	to := targetOf(t, runDev(t, binary, filepath.Join(folder, "dev")), true)
	conn, err := pgx.Connect(t.Context(), to.dsn())
	if err != nil && strings.Contains(err.Error(), "not built yet") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return to
}

// invitation is the line in which 'cleave dev' says how to connect.
var invitation = regexp.MustCompile(`The database\s+psql -h (\S+) -p (\d+) -U (\S+) (\S+)`)

// runDev runs 'cleave dev' until the test ends, and returns how to connect.
func runDev(t *testing.T, binary, data string) string {
	t.Helper()
	command := exec.Command(binary, "dev", "--shards", "2", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", data)
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		said <- readUntilReady(bufio.NewScanner(output))
		_ = command.Wait()
	}()
	t.Cleanup(func() {
		_ = command.Process.Signal(os.Interrupt)
		<-ended
	})
	text := <-said
	found := invitation.FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("cleave dev does not say how to connect:\n%s", text)
	}
	return fmt.Sprintf("postgres://%s@%s/%s", found[3], net.JoinHostPort(found[1], found[2]), found[4])
}

// readUntilReady returns what was said up to the line that says that all is ready, or up to the end.
func readUntilReady(lines *bufio.Scanner) string {
	var text strings.Builder
	for lines.Scan() {
		text.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(lines.Text(), "cleave: ready") {
			break
		}
	}
	return text.String()
}

// declareOrders makes a sharded table for the client.
func declareOrders(t *testing.T, to target, client string) string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, to.dsn())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	table := fmt.Sprintf("client_orders_%s_%d", strings.ReplaceAll(client, "-", "_"), time.Now().UnixNano())
	for _, sql := range []string{
		"CREATE TABLE " + table + " (user_id bigint, id bigint, note text, PRIMARY KEY (user_id, id))",
		"SELECT cleave.shard_table('" + table + "', 'user_id')",
	} {
		if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	return table
}
