package auth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/pgerr"
)

// front is as much of a front door as a client needs to log in.
type front struct {
	listener     net.Listener
	verifier     *Verifier
	certificates *Certificates // nil: no TLS

	mu   sync.Mutex
	used []string // the mechanisms of the logins that ended well
}

func startFront(t *testing.T, v *Verifier, certificates *Certificates) *front {
	t.Helper()
	f := &front{listener: must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0")), verifier: v, certificates: certificates}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := f.listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer conn.Close()
				_ = f.serve(conn) // the client tells what failed
			})
		}
	})
	t.Cleanup(func() {
		f.listener.Close()
		group.Wait()
	})
	return f
}

func (f *front) serve(conn net.Conn) error {
	var binding []byte
	for {
		backend := pgproto3.NewBackend(conn, conn)
		message, err := backend.ReceiveStartupMessage()
		if err != nil {
			return err
		}
		switch m := message.(type) {
		case *pgproto3.StartupMessage:
			err := f.login(backend, m.Parameters["user"], binding)
			var refused *pgerr.Error
			if errors.As(err, &refused) {
				backend.Send(&pgproto3.ErrorResponse{Severity: refused.Severity, Code: refused.Code, Message: refused.Message, Detail: refused.Detail})
				return backend.Flush()
			}
			return err
		case *pgproto3.SSLRequest:
			if f.certificates == nil {
				if _, err := conn.Write([]byte("N")); err != nil {
					return err
				}
				continue
			}
			if _, err := conn.Write([]byte("S")); err != nil {
				return err
			}
			var config *tls.Config
			config, binding = f.certificates.TLSConfig()
			conn = tls.Server(conn, config)
		default:
			if _, err := conn.Write([]byte("N")); err != nil {
				return err
			}
		}
	}
}

func (f *front) login(backend *pgproto3.Backend, user string, binding []byte) error {
	server := NewServer(user, f.verifier, binding)
	ask := func(challenge pgproto3.BackendMessage, kind uint32) (pgproto3.FrontendMessage, error) {
		backend.Send(challenge)
		if err := errors.Join(backend.Flush(), backend.SetAuthType(kind)); err != nil {
			return nil, err
		}
		return backend.Receive()
	}
	answer, err := ask(&pgproto3.AuthenticationSASL{AuthMechanisms: server.Mechanisms()}, pgproto3.AuthTypeSASL)
	if err != nil {
		return err
	}
	initial, ok := answer.(*pgproto3.SASLInitialResponse)
	if !ok {
		return errors.New("no answer")
	}
	mechanism := initial.AuthMechanism
	first, err := server.First(mechanism, initial.Data)
	if err != nil {
		return err
	}
	if answer, err = ask(&pgproto3.AuthenticationSASLContinue{Data: first}, pgproto3.AuthTypeSASLContinue); err != nil {
		return err
	}
	response, ok := answer.(*pgproto3.SASLResponse)
	if !ok {
		return errors.New("no proof")
	}
	final, _, err := server.Final(response.Data)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.used = append(f.used, mechanism)
	f.mu.Unlock()
	backend.Send(&pgproto3.AuthenticationSASLFinal{Data: final})
	backend.Send(&pgproto3.AuthenticationOk{})
	return f.idle(backend)
}

// idle answers every query with nothing.
func (f *front) idle(backend *pgproto3.Backend) error {
	for {
		backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		if err := backend.Flush(); err != nil {
			return err
		}
		message, err := backend.Receive()
		if err != nil {
			return err
		}
		if _, ended := message.(*pgproto3.Terminate); ended {
			return nil
		}
		backend.Send(&pgproto3.EmptyQueryResponse{})
	}
}

// last returns the mechanism of the last login, and forgets it.
func (f *front) last() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.used) == 0 {
		return ""
	}
	mechanism := f.used[len(f.used)-1]
	f.used = nil
	return mechanism
}

func (f *front) port() string { return strconv.Itoa(f.listener.Addr().(*net.TCPAddr).Port) }

// attempt is a client's login to a front door.
type attempt func(t *testing.T, f *front, password, sslmode, binding string) error

func byPGX(t *testing.T, f *front, password, sslmode, binding string) error {
	t.Helper()
	config := must[*pgx.ConnConfig](t)(pgx.ParseConfig("host=127.0.0.1 port=" + f.port() + " user=app database=x sslmode=" + sslmode + " channel_binding=" + binding))
	config.Password = password
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		var refused *pgconn.PgError
		if errors.As(err, &refused) {
			return refused
		}
		return err
	}
	return conn.Close(t.Context())
}

func byPsql(t *testing.T, f *front, password, sslmode, binding string) error {
	t.Helper()
	path, err := pgtest.Installations(t)[0].Tool("psql")
	if err != nil && os.Getenv("CLEAVE_REQUIRE_POSTGRES") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), path, "-X", "-w", "-c", ";", "host=127.0.0.1 port="+f.port()+" user=app dbname=x sslmode="+sslmode+" channel_binding="+binding+" gssencmode=disable")
	command.Env = append(os.Environ(), "PGPASSWORD="+password, "HOME="+t.TempDir())
	if out, err := command.CombinedOutput(); err != nil {
		return errors.New(string(out))
	}
	return nil
}

func TestOthersClientsAtOurServer(t *testing.T) {
	v := must[*Verifier](t)(NewVerifier(passwordOfTests, 0))
	for client, login := range map[string]attempt{"pgx": byPGX, "psql": byPsql} {
		t.Run(client, func(t *testing.T) {
			if testing.Short() {
				t.Skip("starts a server: not with -short")
			}
			plain := startFront(t, v, nil)
			expectLogin(t, plain, login, "disable", "prefer", mechanismPlain)
			for _, algorithm := range []x509.SignatureAlgorithm{x509.ECDSAWithSHA256, x509.ECDSAWithSHA384, x509.SHA512WithRSA} {
				files := newFiles(t, newIdentity(t, "router", algorithm, nil))
				secure := startFront(t, v, must[*Certificates](t)(NewCertificates(files.certificate, files.private, "", nil)))
				expectLogin(t, secure, login, "require", "require", mechanismPlus)
				expectLogin(t, secure, login, "require", "disable", mechanismPlain)
				expectLogin(t, secure, login, "disable", "prefer", mechanismPlain)
			}
			unbound := newFiles(t, newIdentity(t, "router", x509.PureEd25519, nil))
			secure := startFront(t, v, must[*Certificates](t)(NewCertificates(unbound.certificate, unbound.private, "", nil)))
			expectLogin(t, secure, login, "require", "prefer", mechanismPlain)
			nobody := startFront(t, MockVerifier("app", []byte("secret")), nil)
			for name, f := range map[string]*front{"wrong": plain, "nobody": nobody} {
				err := login(t, f, "wrong", "disable", "prefer")
				if err == nil || !strings.Contains(err.Error(), `password authentication failed for user "app"`) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

func expectLogin(t *testing.T, f *front, login attempt, sslmode, binding, mechanism string) {
	t.Helper()
	if err := login(t, f, passwordOfTests, sslmode, binding); err != nil {
		t.Errorf("sslmode %s, channel_binding %s: %v", sslmode, binding, err)
	}
	if used := f.last(); used != mechanism {
		t.Errorf("sslmode %s, channel_binding %s: logged in by %q, want %q", sslmode, binding, used, mechanism)
	}
}
