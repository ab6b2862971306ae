package pool

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
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/auth"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/secret"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// keysOf has the client app with this password log in to a router, and returns what the router learns, and the verifier.
func keysOf(t *testing.T, password string) (*auth.Keys, string) {
	t.Helper()
	verifier := must[*auth.Verifier](t)(auth.NewVerifier(password, 4096))
	client, server := auth.NewClient("app", auth.Secret{Password: password}, nil), auth.NewServer("app", verifier, nil)
	mechanism := must[string](t)(client.Mechanism(server.Mechanisms()))
	challenge := must[[]byte](t)(server.First(mechanism, client.First()))
	_, keys, err := server.Final(must[[]byte](t)(client.Step(challenge)))
	if err != nil {
		t.Fatal(err)
	}
	return keys, verifier.String()
}

func passwordFile(t *testing.T, password string) secret.Reference {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(password), 0o600); err != nil {
		t.Fatal(err)
	}
	return secret.Reference{File: path}
}

// askForSCRAM makes roles app and keeper, and has the server ask all but the superuser for a password.
func askForSCRAM(t *testing.T, server *localpg.Server, verifier string) *pgx.Conn {
	t.Helper()
	admin := connect(t, server)
	execute(t, admin, "CREATE ROLE app LOGIN PASSWORD '"+verifier+"'")
	execute(t, admin, "CREATE ROLE keeper LOGIN PASSWORD 'of the service'")
	setRules(t, server, admin, "host all postgres all trust\nhost all all all scram-sha-256")
	return admin
}

func TestLoginsShowWhoTheyAre(t *testing.T) {
	server := pgtest.Start(t)
	keys, verifier := keysOf(t, "of the client")
	otherKeys, _ := keysOf(t, "of the client") // another salt
	admin := askForSCRAM(t, server, verifier)
	m := changed(t, mapOf(t, server.Addr()), topology.UpdateShard("s1", func(s *topology.ShardSpec) { s.User = "keeper" }))
	p := newPools(t, Config{Access: shard.Access{Password: passwordFile(t, "of the service")}}, m)
	for user, id := range map[string]*Identity{"app": {User: "app", Keys: keys}, "keeper": service} {
		b := acquire(t, p, id)
		if got := one(t, b, "SELECT current_user"); got != user {
			t.Errorf("logged in as %s, want %s", got, user)
		}
		b.Retire("so that the next one must log in")
	}
	wrong := *keys
	wrong.ClientKey = append([]byte{keys.ClientKey[0] ^ 1}, keys.ClientKey[1:]...)
	execute(t, admin, "CREATE ROLE bare LOGIN")
	for name, c := range map[string]struct {
		id    *Identity
		code  string
		words []string
	}{
		"wrong":          {&Identity{User: "app", Keys: &wrong}, pgerr.InvalidPassword, []string{`"s1"`, server.Addr(), `"app"`}},
		"other verifier": {&Identity{User: "app", Keys: otherKeys}, pgerr.InvalidAuthorization, []string{`"s1"`, "verifier"}},
		"nothing":        {&Identity{User: "app"}, pgerr.InvalidAuthorization, []string{`"s1"`, "let this role in without a password", "SCRAM verifier", "trust"}},
		// The server hides that there is no such verifier behind an exchange with another one.
		"no password": {&Identity{User: "bare", Keys: keys}, pgerr.InvalidAuthorization, []string{`"s1"`}},
		"no role":     {&Identity{User: "nobody", Keys: keys}, pgerr.InvalidAuthorization, []string{`"nobody"`}},
	} {
		_, err := p.Acquire(t.Context(), 1, c.id, 0)
		if err == nil {
			t.Errorf("%s: logged in", name)
			continue
		}
		t.Run(name, func(t *testing.T) { expectError(t, err, c.code, c.words...) })
	}
	if s := statsOf(t, p); s.Breaker != Closed || s.FailedLogins == 0 {
		t.Errorf("the roles' own failures concern the shard: %+v", s)
	}
	acquire(t, p, &Identity{User: "app", Keys: keys}).Release()
}

// TestOneWrongSecretDoesNotFailAnother: both wait for a login of the same role.
func TestOneWrongSecretDoesNotFailAnother(t *testing.T) {
	server := pgtest.Start(t)
	keys, verifier := keysOf(t, "of the client")
	stale, _ := keysOf(t, "of yesterday")
	askForSCRAM(t, server, verifier)
	p := poolsOn(t, Config{LoginsAtOnce: 1}, server)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			if i%2 == 0 {
				_, err := p.Acquire(t.Context(), 1, &Identity{User: "app", Keys: stale}, 0)
				if err != nil { // it may also get what another session of the role has left
					expectErrorLater(t, err, pgerr.InvalidAuthorization)
				}
				return
			}
			b, err := p.Acquire(t.Context(), 1, &Identity{User: "app", Keys: keys}, 0)
			if err != nil {
				t.Error(err)
				return
			}
			defer b.Retire("so that the others must log in")
		})
	}
	all.Wait()
}

func TestPasswordsAreNotRevealed(t *testing.T) {
	server := pgtest.Start(t)
	keys, verifier := keysOf(t, "of the client")
	admin := askForSCRAM(t, server, verifier)
	execute(t, admin, "SET password_encryption = 'md5'")
	execute(t, admin, "CREATE ROLE old LOGIN PASSWORD 'of the service'")
	m := changed(t, mapOf(t, server.Addr()), topology.UpdateShard("s1", func(s *topology.ShardSpec) { s.User = "old" }))
	for method, ids := range map[string][]*Identity{"password": {service, {User: "app", Keys: keys}}, "md5": {service}} {
		setRules(t, server, admin, "host all postgres all trust\nhost all all all "+method)
		p := newPools(t, Config{Access: shard.Access{Password: passwordFile(t, "of the service")}}, m)
		for _, id := range ids {
			_, err := p.Acquire(t.Context(), 1, id, 0)
			expectError(t, err, pgerr.InvalidAuthorization, "give it away", "scram-sha-256")
		}
	}
}

func TestRefusalsArePassedOn(t *testing.T) {
	server := pgtest.Start(t)
	admin := connect(t, server)
	execute(t, admin, "CREATE ROLE guest LOGIN")
	execute(t, admin, "REVOKE CONNECT ON DATABASE postgres FROM PUBLIC")
	p := poolsOn(t, Config{}, server)
	_, err := p.Acquire(t.Context(), 1, &Identity{User: "guest"}, 0)
	expectError(t, err, pgerr.InsufficientPrivilege, `"s1"`, "guest")
	m := changed(t, mapOf(t, server.Addr()), topology.UpdateShard("s1", func(s *topology.ShardSpec) { s.Database = "missing" }))
	p = newPools(t, Config{}, m)
	_, err = p.Acquire(t.Context(), 1, service, 0)
	expectError(t, err, pgerr.InvalidCatalogName, `"s1"`, `"missing"`)
	if s := statsOf(t, p); s.Breaker != Closed {
		t.Errorf("a refusal of the role has opened the breaker: %+v", s)
	}
}

func TestAFullServerSaysSo(t *testing.T) {
	server := pgtest.StartWith(t, localpg.Config{Settings: map[string]string{"max_connections": "5", "superuser_reserved_connections": "1", "max_wal_senders": "0", "wal_level": "replica"}})[0]
	admin := connect(t, server)
	execute(t, admin, "CREATE ROLE app LOGIN")
	p := poolsOn(t, Config{PerShard: 50}, server)
	id := &Identity{User: "app"}
	held := []*Backend{acquire(t, p, id), acquire(t, p, id), acquire(t, p, id)}
	execute(t, admin, "CREATE ROLE late LOGIN")
	_, err := p.Acquire(t.Context(), 1, &Identity{User: "late"}, 0)
	expectError(t, err, pgerr.TooManyConnections, `"s1"`, "attempt")
	// Who has backends of its role waits for one of them.
	got := make(chan *Backend)
	go func() {
		b, _ := p.Acquire(t.Context(), 1, id, 0)
		got <- b
	}()
	waiting(t, p, 1)
	held[0].Release()
	if <-got != held[0] {
		t.Error("the backend that came back went elsewhere")
	}
}

// TestARolesOwnLimit concerns that role alone, and its sessions share what it has.
func TestARolesOwnLimit(t *testing.T) {
	server := pgtest.Start(t)
	admin := connect(t, server)
	execute(t, admin, "CREATE ROLE narrow LOGIN CONNECTION LIMIT 1")
	p := poolsOn(t, Config{}, server)
	id := &Identity{User: "narrow"}
	b := acquire(t, p, id)
	got := make(chan *Backend)
	go func() {
		b, _ := p.Acquire(t.Context(), 1, id, 0)
		got <- b
	}()
	eventually(t, "the server has refused", func() bool { s := statsOf(t, p); return s.FailedLogins > 0 && s.Waiting == 1 })
	if s := statsOf(t, p); s.Breaker != Closed {
		t.Errorf("the role's limit concerns the shard: %+v", s)
	}
	acquire(t, p, service).Release()
	b.Release()
	if <-got != b {
		t.Error("the backend that came back went elsewhere")
	}
}

// TestWhatARoleSetsForItselfConcernsNobodyElse: any role can make its own logins fail, and others must not notice.
func TestWhatARoleSetsForItselfConcernsNobodyElse(t *testing.T) {
	server := pgtest.Start(t)
	admin := connect(t, server)
	// One serializable transaction that writes keeps a deferrable one from beginning.
	execute(t, admin, "BEGIN ISOLATION LEVEL SERIALIZABLE; CREATE TABLE public.unfinished ()")
	makeRoles := connect(t, server)
	for user, c := range map[string]struct {
		settings []string
		says     string
	}{
		"preloading": {[]string{"local_preload_libraries = 'nosuchlib'"}, "nosuchlib"},
		"hasty":      {[]string{"statement_timeout = 1"}, "57014"},
		"patient": {[]string{
			"default_transaction_isolation = 'serializable'", "default_transaction_read_only = on", "default_transaction_deferrable = on",
		}, "no answer within"},
	} {
		t.Run(user, func(t *testing.T) {
			execute(t, makeRoles, "CREATE ROLE "+user+" LOGIN")
			for _, setting := range c.settings {
				execute(t, makeRoles, "ALTER ROLE "+user+" SET "+setting)
			}
			p := poolsOn(t, Config{ConnectTimeout: 2 * time.Second, OnLogin: func(ctx context.Context, b *Backend) error {
				_, err := b.Exec(ctx, "SELECT pg_sleep(0.05) FROM pg_catalog.pg_class LIMIT 1")
				return err
			}}, server)
			_, err := p.Acquire(t.Context(), 1, &Identity{User: user}, 0)
			expectError(t, err, pgerr.ConnectionFailure, fmt.Sprintf("could not log in to shard %q as role %q", "s1", user), server.Addr(), c.says, "ALTER ROLE")
			if s := statsOf(t, p); s.Breaker != Closed || s.FailedLogins != 1 {
				t.Errorf("it concerns the shard: %+v", s)
			}
			acquire(t, p, service).Release()
		})
	}
}

// TestARoleThatCannotLogInDoesNotHammer: one that comes again at once is told so by the router alone, and each pause is longer.
func TestARoleThatCannotLogInDoesNotHammer(t *testing.T) {
	server := pgtest.Start(t)
	admin := connect(t, server)
	execute(t, admin, "CREATE ROLE bob LOGIN")
	execute(t, admin, "ALTER ROLE bob SET local_preload_libraries = 'nosuchlib'")
	p := poolsOn(t, Config{}, server)
	bob := &Identity{User: "bob"}
	for attempt := 1; attempt <= 4; attempt++ {
		eventually(t, "another login is attempted", func() bool {
			if _, err := p.Acquire(t.Context(), 1, bob, 0); err == nil {
				t.Fatal("bob is in")
			}
			acquire(t, p, service).Release()
			return int(statsOf(t, p).FailedLogins) == attempt
		})
		if failures := p.shard(1).endPause("bob"); failures != attempt {
			t.Fatalf("after %d attempts the role's breaker has counted %d", attempt, failures)
		}
	}
	execute(t, admin, "ALTER ROLE bob RESET ALL")
	eventually(t, "bob is in", func() bool {
		b, err := p.Acquire(t.Context(), 1, bob, 0)
		if err == nil {
			b.Release()
		}
		return err == nil
	})
}

// endPause lets the next attempt of the role be due, and the keeper look after what is not needed any more. It returns how many
// logins have failed in a row.
func (s *shardPool) endPause(user string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.roles[user]; r != nil {
		r.breaker.until = time.Now()
	}
	s.sweep(time.Now())
	if r := s.roles[user]; r != nil {
		return r.breaker.failures
	}
	return 0
}

// TestWhoIsConcerned: a code that a role can bring about concerns nobody else.
func TestWhoIsConcerned(t *testing.T) {
	l := &login{}
	for want, codes := range map[fault][]string{
		ofServer:    {"57P01", "57P02", "57P03", "08006", "08P01", "53100", "53200", "53300", "CL003"},
		ofRoleAlone: {"57014", "57P05", "58P01", "58030", "22023", "42704", "42883", "3F000", "25006", "55000", "XX000", "CL001", "CL002", ""},
		ofSecret:    {"28000", "28P01", "3D000", "42501"},
	} {
		for _, code := range codes {
			if got := l.faultOf(nil, pgerr.New(code, "no")); got != want {
				t.Errorf("%s is %d, want %d", code, got, want)
			}
		}
	}
	limited := &refusal{said: pgerr.New(pgerr.TooManyConnections, "too many connections for role"), routine: byRoleLimit}
	if got := l.faultOf(limited, limited.said); got != ofRoleAlone {
		t.Errorf("a role's own limit is %d", got)
	}
	for err, want := range map[error]bool{
		&greetingError{context.DeadlineExceeded}: true, &greetingError{errors.New("two rows")}: true,
		&greetingError{io.ErrUnexpectedEOF}: false, &greetingError{&net.OpError{Op: "read", Err: syscall.ECONNRESET}}: false,
		context.DeadlineExceeded: false, io.EOF: false,
	} {
		if concernsGreeting(err) != want {
			t.Errorf("%v concerns the greeting: %v", err, !want)
		}
	}
}

func TestAServerThatStartsUpIsWaitedFor(t *testing.T) {
	const starting = "E\x00\x00\x00\x39SFATAL\x00VFATAL\x00C57P03\x00Mthe system is starting up\x00\x00"
	address, _ := listen(t, func(conn net.Conn) {
		defer conn.Close()
		_, _ = conn.Read(make([]byte, 1024))
		_, _ = io.WriteString(conn, fixLength(starting))
	})
	p := newPools(t, Config{}, mapOf(t, address))
	_, err := p.Acquire(t.Context(), 1, service, 0)
	expectError(t, err, pgerr.CannotConnectNow, "starting up", "The next attempt is in", `"s1"`)
}

// fixLength writes the right length into a message.
func fixLength(message string) string {
	return message[:1] + fmt.Sprintf("%c%c%c%c", 0, 0, 0, len(message)-1) + message[5:]
}

// TestServersThatTalkNonsense: whatever comes from the network, there is an error and nothing worse.
func TestServersThatTalkNonsense(t *testing.T) {
	keys, _ := keysOf(t, "of the client")
	authOK := "R\x00\x00\x00\x08\x00\x00\x00\x00"
	for name, said := range map[string]string{
		"nothing":             "",
		"text":                "HTTP/1.1 400 Bad Request\r\n\r\n",
		"half a header":       "R\x00\x00",
		"short length":        "R\x00\x00\x00\x01\x00\x00\x00\x00",
		"huge length":         "S\x7f\xff\xff\xff",
		"most negative":       "S\x80\x00\x00\x00",
		"all ones":            "S\xff\xff\xff\xff",
		"ready without auth":  "Z\x00\x00\x00\x05I",
		"final without begin": "R\x00\x00\x00\x0c\x00\x00\x00\x0cv=ab",
		"continued":           "R\x00\x00\x00\x0c\x00\x00\x00\x0br=ab",
		"empty mechanisms":    "R\x00\x00\x00\x09\x00\x00\x00\x0a\x00",
		"short key":           authOK + "K\x00\x00\x00\x05a",
		"endless parameter":   authOK + "S\x00\x00\x00\x08abcd",
		"empty error":         "E\x00\x00\x00\x04",
		"row in login":        authOK + "D\x00\x00\x00\x06\x00\x00",
		"gss":                 "R\x00\x00\x00\x08\x00\x00\x00\x07",
		"unproven":            "R\x00\x00\x00\x17\x00\x00\x00\x0aSCRAM-SHA-256\x00\x00" + authOK + "Z\x00\x00\x00\x05I",
	} {
		t.Run(name, func(t *testing.T) {
			address, _ := listen(t, func(conn net.Conn) {
				defer conn.Close()
				_, _ = conn.Read(make([]byte, 1024))
				_, _ = io.WriteString(conn, said)
			})
			p := newPools(t, Config{}, mapOf(t, address))
			_, err := p.Acquire(t.Context(), 1, &Identity{User: "app", Keys: keys}, 0)
			expectErrorLater(t, err, pgerr.ConnectionFailure, pgerr.InvalidAuthorization)
		})
	}
}

// TestNothingIsReadAhead: what follows the login stays in the connection for whoever reads it next.
func TestNothingIsReadAhead(t *testing.T) {
	const login, more = "R\x00\x00\x00\x08\x00\x00\x00\x00Z\x00\x00\x00\x05I", "S\x00\x00\x00\x08a\x00b\x00"
	address, _ := listen(t, func(conn net.Conn) {
		defer conn.Close()
		_, _ = conn.Read(make([]byte, 1024))
		_, _ = io.WriteString(conn, login+more)
	})
	b := acquire(t, newPools(t, Config{}, mapOf(t, address)), service)
	defer b.Retire("it is no server")
	if left := must[[]byte](t)(io.ReadAll(b.Conn())); string(left) != more {
		t.Errorf("left is %q", left)
	}
}

// TestASilentServerRunsOutOfTime: not the one who waits alone, but the login.
func TestASilentServerRunsOutOfTime(t *testing.T) {
	held := make(chan net.Conn, 10)
	address, _ := listen(t, func(conn net.Conn) { held <- conn })
	p := newPools(t, Config{ConnectTimeout: 20 * time.Millisecond}, mapOf(t, address))
	_, err := p.Acquire(t.Context(), 1, service, 0)
	expectError(t, err, pgerr.ConnectionFailure, "no answer within 20ms")
	(<-held).Close()
}

func TestAnErrorOfTheFirstStatementEndsTheLogin(t *testing.T) {
	server := pgtest.Start(t)
	var old atomic.Bool
	old.Store(true)
	p := poolsOn(t, Config{OnLogin: func(ctx context.Context, b *Backend) error {
		if old.Load() {
			_, err := b.Exec(ctx, "DO $$ BEGIN RAISE 'the map is old' USING ERRCODE = 'CL003'; END $$")
			return err
		}
		return nil
	}}, server)
	_, err := p.Acquire(t.Context(), 1, service, 0)
	expectError(t, err, pgerr.OldMap, "the map is old", `"s1"`)
	old.Store(false)
	p.Apply(changed(t, mapOf(t, server.Addr()), topology.RaiseVersion(9))) // what was wrong is mended: no pause
	acquire(t, p, service).Release()
}

func TestExec(t *testing.T) {
	p := poolsOn(t, Config{}, pgtest.Start(t))
	b := acquire(t, p, service)
	rows := must[[]Row](t)(b.Exec(t.Context(), "SET work_mem = '5MB'; SELECT 'ä', NULL, '' UNION ALL SELECT 'b', 'c', 'd'; SHOW work_mem"))
	if got := fmt.Sprintf("%q", rows); got != `[["ä" "" ""] ["b" "c" "d"] ["5MB"]]` || rows[0][1] != nil || rows[0][2] == nil {
		t.Errorf("the rows are %s", got)
	}
	_, err := b.Exec(t.Context(), "SELECT nonsense")
	expectError(t, err, pgerr.UndefinedColumn, "nonsense")
	if one(t, b, "SELECT 1") != "1" || !b.Alive() {
		t.Error("an error of the server makes the backend unusable")
	}
	// Nothing is read beyond the answer: what comes after it is there for whoever reads next.
	if _, err := b.Conn().Write([]byte("Q\x00\x00\x00\x0dSELECT 1\x00")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 1)
	if _, err := io.ReadFull(b.Conn(), answer); err != nil || answer[0] != 'T' {
		t.Errorf("the answer begins with %q: %v", answer, err)
	}
	b.Retire("half an answer was read")

	b = acquire(t, p, service)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := b.Exec(ctx, "SELECT pg_sleep(1)"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it says %v", err)
	}
	if b.Alive() {
		t.Error("a backend with an answer on its way counts as usable")
	}
	b.Release()
	b = acquire(t, p, service)
	if _, err := b.Exec(t.Context(), "COPY (SELECT 1) TO STDOUT"); err == nil || b.Alive() {
		t.Errorf("COPY says %v", err)
	}
	b.Release()
}

func TestCancel(t *testing.T) {
	server := pgtest.Start(t)
	admin := connect(t, server)
	p := poolsOn(t, Config{}, server)
	b := acquire(t, p, service)
	expectCancelled(t, admin, b)
	b.Release()
}

// expectCancelled runs a statement that does not end by itself, and cancels it.
func expectCancelled(t *testing.T, admin *pgx.Conn, b *Backend) {
	t.Helper()
	failed := make(chan error, 1)
	go func() {
		_, err := b.Exec(t.Context(), "SELECT pg_sleep(600)")
		failed <- err
	}()
	eventually(t, "it sleeps", func() (asleep bool) {
		if err := admin.QueryRow(t.Context(), "SELECT wait_event IS NOT DISTINCT FROM 'PgSleep' FROM pg_stat_activity WHERE pid = $1", b.PID()).Scan(&asleep); err != nil {
			t.Fatal(err)
		}
		return asleep
	})
	if err := b.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectError(t, <-failed, pgerr.QueryCanceled)
	if one(t, b, "SELECT 1") != "1" {
		t.Error("the backend is of no use any more")
	}
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

// relay passes everything on to the server, and tells how many connections did not begin by asking for TLS.
func relay(t *testing.T, server *localpg.Server) (port string, plain *atomic.Int32) {
	t.Helper()
	plain = new(atomic.Int32)
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	address, _ := listen(t, func(client net.Conn) {
		all.Go(func() {
			defer client.Close()
			upstream, err := net.Dial("tcp", server.Addr())
			if err != nil {
				t.Error(err)
				return
			}
			defer upstream.Close()
			opening := make([]byte, 8)
			if _, err := io.ReadFull(client, opening); err != nil || string(opening) != "\x00\x00\x00\x08\x04\xd2\x16\x2f" {
				plain.Add(1)
			}
			_, _ = upstream.Write(opening)
			all.Go(func() {
				_, _ = io.Copy(upstream, client)
				_ = upstream.(*net.TCPConn).CloseWrite()
			})
			_, _ = io.Copy(client, upstream)
		})
	})
	_, port, _ = net.SplitHostPort(address)
	return port, plain
}

func TestTLS(t *testing.T) {
	server := pgtest.Start(t)
	keys, verifier := keysOf(t, "of the client")
	admin := askForSCRAM(t, server, verifier)
	authority := certify(t, server, admin, "localhost")
	setRules(t, server, admin, "host all postgres all trust\nhostssl all all all scram-sha-256")
	m := func(mode, authority, address string) *topology.Map {
		return changed(t, mapOf(t, address), topology.UpdateShard("s1", func(s *topology.ShardSpec) { s.SSLMode, s.SSLRootCert = mode, authority }))
	}
	port, plain := relay(t, server)
	named := "localhost:" + port
	id := &Identity{User: "app", Keys: keys}
	p := newPools(t, Config{}, m("verify-full", authority, named))
	b := acquire(t, p, id)
	if one(t, b, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") != "t" {
		t.Error("the connection is not encrypted")
	}
	expectCancelled(t, admin, b)
	b.Release()
	execute(t, admin, "SELECT pg_terminate_backend($1)", b.PID())
	eventually(t, "the end is noticed", func() bool { return !b.Alive() })
	if n := plain.Load(); n > 0 {
		t.Errorf("%d connections were not encrypted", n)
	}

	_, err := newPools(t, Config{}, m("verify-full", authority, server.Addr())).Acquire(t.Context(), 1, id, 0)
	expectError(t, err, pgerr.ConnectionFailure, "127.0.0.1", "certificate")
	_, err = newPools(t, Config{}, m("disable", "", named)).Acquire(t.Context(), 1, id, 0)
	expectError(t, err, pgerr.InvalidAuthorization, "no encryption")
	unable, _ := listen(t, func(conn net.Conn) {
		defer conn.Close()
		_, _ = conn.Read(make([]byte, 8))
		_, _ = io.Copy(conn, strings.NewReader("N"))
	})
	_, err = newPools(t, Config{}, m("require", "", unable)).Acquire(t.Context(), 1, id, 0)
	expectError(t, err, pgerr.ConnectionFailure, "does not speak TLS")
}
