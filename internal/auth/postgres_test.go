package auth

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/pgerr"
)

// postgres is a real server that asks everybody but its superuser for a password.
type postgres struct {
	*localpg.Server
	admin *pgx.Conn
}

func startPostgres(t *testing.T) *postgres {
	t.Helper()
	server := pgtest.Start(t)
	admin := must[*pgx.Conn](t)(pgx.Connect(t.Context(), server.DSN("postgres")))
	t.Cleanup(func() { _ = admin.Close(context.Background()) })
	p := &postgres{server, admin}
	p.write(t, "pg_hba.conf", []byte("host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"))
	p.execute(t, "ALTER SYSTEM SET ssl = on")
	p.show(t, newIdentity(t, "server", x509.ECDSAWithSHA256, nil))
	return p
}

// write replaces a file among the server's data, for the server to read.
func (p *postgres) write(t *testing.T, name string, content []byte) {
	t.Helper()
	data := filepath.Join(p.Dir(), "data")
	owner := must[os.FileInfo](t)(os.Stat(data)).Sys().(*syscall.Stat_t)
	path := filepath.Join(data, name)
	if err := errors.Join(os.WriteFile(path, content, 0o600), os.Chown(path, int(owner.Uid), int(owner.Gid))); err != nil {
		t.Fatal(err)
	}
}

// show gives the server a certificate, and waits until it is shown: by then the server has read its rules too.
func (p *postgres) show(t *testing.T, i *identity) {
	t.Helper()
	certificate, private := i.pem(t)
	p.write(t, "server.crt", certificate)
	p.write(t, "server.key", private)
	p.execute(t, "SELECT pg_reload_conf()")
	for {
		conn, err := p.dial(t, true)
		if err == nil {
			shown := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
			conn.Close()
			if shown.Equal(i.certificate) {
				return
			}
		}
		if t.Context().Err() != nil {
			t.Fatal("the certificate is not shown")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (p *postgres) execute(t *testing.T, sql string) {
	t.Helper()
	if _, err := p.admin.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// verifier is what the server keeps of the role that tests log in as.
func (p *postgres) verifier(t *testing.T) *Verifier {
	t.Helper()
	var text string
	if err := p.admin.QueryRow(t.Context(), "SELECT rolpassword FROM pg_authid WHERE rolname = 'app'").Scan(&text); err != nil {
		t.Fatal(err)
	}
	v := must[*Verifier](t)(ParseVerifier(text))
	if v.String() != text {
		t.Errorf("%s becomes %s", text, v)
	}
	return v
}

func (p *postgres) dial(t *testing.T, secure bool) (net.Conn, error) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.Addr())
	if err != nil || !secure {
		return conn, err
	}
	request, err := (&pgproto3.SSLRequest{}).Encode(nil)
	if err == nil {
		_, err = conn.Write(request)
	}
	answer := make([]byte, 1)
	if err == nil {
		_, err = conn.Read(answer)
	}
	if err == nil && answer[0] == 'S' {
		encrypted := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		if err = encrypted.HandshakeContext(t.Context()); err == nil {
			return encrypted, nil
		}
	}
	conn.Close()
	return nil, fmt.Errorf("no TLS: the server answers %q: %w", answer, err)
}

// login logs in as app with our client, and returns the mechanism.
func (p *postgres) login(t *testing.T, secret Secret, secure bool) (mechanism string, err error) {
	t.Helper()
	conn := must[net.Conn](t)(p.dial(t, secure))
	defer conn.Close()
	var binding []byte
	if encrypted, ok := conn.(*tls.Conn); ok {
		binding = PeerBinding(encrypted.ConnectionState())
	}
	client := NewClient("app", secret, binding)
	frontend := pgproto3.NewFrontend(conn, conn)
	frontend.Send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": "app", "database": "postgres"}})
	verified := false
	for {
		if err := frontend.Flush(); err != nil {
			return mechanism, err
		}
		message, err := frontend.Receive()
		if err != nil {
			return mechanism, err
		}
		switch m := message.(type) {
		case *pgproto3.AuthenticationSASL:
			if mechanism, err = client.Mechanism(m.AuthMechanisms); err != nil {
				return "", err
			}
			frontend.Send(&pgproto3.SASLInitialResponse{AuthMechanism: mechanism, Data: client.First()})
		case *pgproto3.AuthenticationSASLContinue:
			proof, err := client.Step(m.Data)
			if err != nil {
				return mechanism, err
			}
			frontend.Send(&pgproto3.SASLResponse{Data: proof})
		case *pgproto3.AuthenticationSASLFinal:
			if err := client.Verify(m.Data); err != nil {
				return mechanism, err
			}
			verified = true
		case *pgproto3.AuthenticationOk:
			if !verified {
				return mechanism, errors.New("it did not prove itself")
			}
		case *pgproto3.ReadyForQuery:
			frontend.Send(&pgproto3.Terminate{})
			return mechanism, frontend.Flush()
		case *pgproto3.ErrorResponse:
			return mechanism, pgconn.ErrorResponseToPgError(m)
		}
	}
}

// learnKeys is what the router does when a client logs in.
func learnKeys(t *testing.T, v *Verifier, password string) *Keys {
	t.Helper()
	keys, err := exchange(NewServer("app", v, nil), NewClient("app", Secret{Password: password}, nil))
	return must[*Keys](t)(keys, err)
}

// passwordOfTests has nothing that SASLprep changes: pgx prepares passwords by another standard, and would fail with it at
// PostgreSQL as well.
const passwordOfTests = `it's "p@ss" \ wörd`

func TestOurClientAtPostgreSQL(t *testing.T) {
	p := startPostgres(t)
	quoted := "'" + strings.ReplaceAll(passwordOfTests, "'", "''") + "'"
	p.execute(t, "CREATE ROLE app LOGIN PASSWORD "+quoted)
	keys := learnKeys(t, p.verifier(t), passwordOfTests)
	secrets := map[string]Secret{"password": {Password: passwordOfTests}, "keys": {Keys: keys}}
	for name, secret := range secrets {
		if mechanism, err := p.login(t, secret, false); err != nil || mechanism != mechanismPlain {
			t.Errorf("%s: %s, %v", name, mechanism, err)
		}
	}
	for algorithm, want := range map[x509.SignatureAlgorithm]string{
		x509.ECDSAWithSHA256: mechanismPlus, x509.ECDSAWithSHA384: mechanismPlus, x509.SHA512WithRSA: mechanismPlus, x509.SHA384WithRSAPSS: mechanismPlus,
		x509.PureEd25519: mechanismPlain, // it has no binding
	} {
		p.show(t, newIdentity(t, "server", algorithm, nil))
		for name, secret := range secrets {
			if mechanism, err := p.login(t, secret, true); err != nil || mechanism != want {
				t.Errorf("%s, %s: %s, %v", algorithm, name, mechanism, err)
			}
		}
	}
	var refused *pgconn.PgError
	if _, err := p.login(t, Secret{Password: "wrong"}, true); !errors.As(err, &refused) || refused.Code != pgerr.InvalidPassword {
		t.Errorf("a wrong password: %v", err)
	} else if want := PasswordFailed("app"); refused.Message != want.Message || refused.Severity != want.Severity {
		t.Errorf("PostgreSQL says %s %q, and we %s %q", refused.Severity, refused.Message, want.Severity, want.Message)
	}
	p.execute(t, "ALTER ROLE app PASSWORD "+quoted) // the same password, and another salt
	_, err := p.login(t, Secret{Keys: keys}, false)
	expectError(t, err, pgerr.InvalidAuthorization, "another SCRAM verifier", `ALTER ROLE "app"`)
}

// TestOneVerifierOnTwoShards: what one shard's verifier reveals logs in to another that was given the same text.
func TestOneVerifierOnTwoShards(t *testing.T) {
	first, second := startPostgres(t), startPostgres(t)
	v := must[*Verifier](t)(NewVerifier(passwordOfTests, 5000))
	for _, p := range []*postgres{first, second} {
		p.execute(t, "CREATE ROLE app LOGIN PASSWORD '"+v.String()+"'")
		if kept := p.verifier(t); kept.String() != v.String() {
			t.Errorf("PostgreSQL keeps %s", kept)
		}
	}
	keys := learnKeys(t, first.verifier(t), passwordOfTests)
	for _, secure := range []bool{false, true} {
		if _, err := second.login(t, Secret{Keys: keys}, secure); err != nil {
			t.Error(err)
		}
	}
	// And another client, with the password, at a verifier of ours.
	config := must[*pgx.ConnConfig](t)(pgx.ParseConfig(second.DSN("postgres")))
	config.User, config.Password = "app", passwordOfTests
	conn := must[*pgx.Conn](t)(pgx.ConnectConfig(t.Context(), config))
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// oddPasswords are those where SASLprep has something to do, and where it refuses to.
func oddPasswords() []string {
	odd := []string{
		"plain", "tab\there", "ª", "\u2168", "I\u00adX", "\u00ad", "\u00a0", "a\u00a0b", "a\u200bb", "\u200b", "\ufeff", "a\ufe0f", "ä", "a\u0308", "ﬀ", "①", "Å",
		"ﷺ", "שלום", "שלום1", "1שלום", "שלום a", "ש1ש", "aש", "ا1", "ا1ب", "ª\u0007", "ª\x7f", "ª\u0080", "ª\ue000", "ª\U0001F600", "\U0001F600", "ª\U000E0001",
		"ª\ufffd", "ª\u2028", "ª\u0340", "ª\u0221", "ª\u0378", "ª\U0010FFFF", "ª\ufdd0", "한글", "\u1100\u1161", "\u0344", "ª\u180e", "ª\u034f", "ª\u1680", "ª\u2000",
		"ª\u3000", "ª\u2fff", "\u200e ª", "יִ", "ﬡa", "\ufb2a", "\u0958", "ff\U0002F800", "\U0001D400", "\U0001D400ש",
	}
	random := rand.New(rand.NewPCG(1, 2))
	tables := []runeTable{otherSpaces, dropped, prohibited, rightToLeft, leftToRight}
	pick := func() rune { // near the border of a range, where a table would be wrong if it is
		table := tables[random.IntN(len(tables))]
		at := table[random.IntN(len(table))]
		return []rune{at.first - 1, at.first, at.last, at.last + 1}[random.IntN(4)]
	}
	for len(odd) < 120 {
		text := []rune{'ª', pick()}
		for range random.IntN(3) {
			text = append(text, pick())
		}
		if !slices.Contains(text, 0) {
			odd = append(odd, string(text))
		}
	}
	return odd
}

func TestPasswordsArePreparedAsPostgreSQLDoes(t *testing.T) {
	p := startPostgres(t)
	p.execute(t, "CREATE ROLE app LOGIN")
	changed := 0
	for _, password := range oddPasswords() {
		p.execute(t, "ALTER ROLE app PASSWORD '"+password+"'")
		v := p.verifier(t)
		keys := must[*Keys](t)(deriveKeys(password, v.Salt, v.Iterations))
		if !bytes.Equal(hash(keys.ClientKey), v.StoredKey) || !bytes.Equal(keys.ServerKey, v.ServerKey) {
			t.Errorf("%+q becomes %+q, and something else in PostgreSQL", password, prepare(password))
		}
		if prepare(password) != password {
			changed++
		}
	}
	if changed < 20 {
		t.Errorf("only %d passwords had anything to prepare", changed)
	}
}
