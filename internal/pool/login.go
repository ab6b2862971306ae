package pool

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/auth"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// login is an attempt to get one more backend for a role.
type login struct {
	shard      *shardPool
	role       *role
	identity   *Identity
	spec       topology.ShardSpec
	generation int
	began      time.Time
}

// startLogin begins a login for the waiter, or for whoever of its role is first when it is done.
func (s *shardPool) startLogin(w *waiter, now time.Time) {
	s.logins++
	w.role.logins++
	w.role.covered++
	s.breaker.begin()
	w.role.breaker.begin()
	s.bucket.take()
	l := &login{shard: s, role: w.role, identity: w.identity, spec: s.spec, generation: s.generation, began: now}
	ctx := s.ctx
	s.pools.tasks.Go(func() {
		b, err := l.run(ctx)
		l.finish(b, err)
		s.pools.feed()
	})
}

// run connects and logs in.
func (l *login) run(ctx context.Context) (*Backend, error) {
	config := &l.shard.pools.config
	ctx, cancel := context.WithTimeout(ctx, config.ConnectTimeout)
	defer cancel()
	access, err := config.Access.LoginTo(l.spec, l.spec.Primary.Address)
	if err != nil {
		return nil, err
	}
	conn, socket, err := dial(ctx, l.spec.Primary.Address, access.TLS)
	if err != nil {
		return nil, err
	}
	b := l.newBackend(conn, socket, access.TLS)
	err = within(ctx, conn, func() error { return l.introduce(b, access) })
	if err == nil {
		err = l.greet(ctx, b)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return b, nil
}

// greet runs the first statements.
func (l *login) greet(ctx context.Context, b *Backend) error {
	if err := l.shard.pools.config.OnLogin(ctx, b); err != nil {
		return &greetingError{err}
	}
	return nil
}

// longestMessage is far more than any message of a login or of a control statement's answer has.
const longestMessage = 16 << 20

func (l *login) newBackend(conn net.Conn, socket *net.TCPConn, secured *tls.Config) *Backend {
	frontend := pgproto3.NewFrontend(&messageReader{source: conn}, conn)
	frontend.SetMaxBodyLen(longestMessage)
	now := time.Now()
	return &Backend{
		shard: l.shard, role: l.role, shardName: l.spec.Name, generation: l.generation, conn: conn, socket: socket, frontend: frontend,
		secured: secured, parameters: map[string]string{}, opened: now, expires: now.Add(jitter(l.shard.pools.config.MaxAge)),
	}
}

// introduce holds the conversation of the login up to the point at which the server is ready for statements.
func (l *login) introduce(b *Backend, access shard.Login) error {
	b.frontend.Send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: l.startup(access)})
	if err := b.frontend.Flush(); err != nil {
		return err
	}
	proof := &proof{login: l, access: access, backend: b}
	for {
		message, err := b.frontend.Receive()
		if err != nil {
			return err
		}
		switch m := message.(type) {
		case *pgproto3.ReadyForQuery:
			if !proof.accepted {
				return errors.New("the server is ready for statements without having let us in")
			}
			return nil
		case *pgproto3.BackendKeyData:
			b.pid, b.cancelKey = m.ProcessID, m.SecretKey
		case *pgproto3.ParameterStatus:
			b.parameters[m.Name] = m.Value
		case *pgproto3.ErrorResponse:
			return refusalOf(m)
		case *pgproto3.NoticeResponse, *pgproto3.NegotiateProtocolVersion:
		case pgproto3.AuthenticationResponseMessage:
			if err := proof.answer(m); err != nil {
				return err
			}
		default:
			return fmt.Errorf("the server sent an unexpected %T during the login", m)
		}
	}
}

func (l *login) startup(access shard.Login) map[string]string {
	parameters := map[string]string{"application_name": l.shard.pools.config.Name, "client_encoding": "UTF8"}
	maps.Copy(parameters, l.shard.pools.config.Startup)
	parameters["user"], parameters["database"] = l.role.user, access.Database
	return parameters
}

// proof shows a server that we are who we say, and has the server show that it knows us.
type proof struct {
	login    *login
	access   shard.Login
	backend  *Backend
	client   *auth.Client // nil until the server asks
	verified bool         // the server has shown that it knows the verifier
	accepted bool
}

func (p *proof) answer(message pgproto3.AuthenticationResponseMessage) error {
	switch m := message.(type) {
	case *pgproto3.AuthenticationOk:
		if p.client != nil && !p.verified {
			return &credentialError{errors.New("the server did not show that it knows the role's verifier")}
		}
		p.accepted = true
		return nil
	case *pgproto3.AuthenticationSASL:
		return p.begin(m.AuthMechanisms)
	case *pgproto3.AuthenticationSASLContinue:
		if p.client == nil {
			return errors.New("the server goes on with a SASL exchange that it did not begin")
		}
		response, err := p.client.Step(m.Data)
		if err != nil {
			return &credentialError{err}
		}
		return p.send(&pgproto3.SASLResponse{Data: response})
	case *pgproto3.AuthenticationSASLFinal:
		if p.client == nil {
			return errors.New("the server ends a SASL exchange that it did not begin")
		}
		if err := p.client.Verify(m.Data); err != nil {
			return &credentialError{err}
		}
		p.verified = true
		return nil
	case *pgproto3.AuthenticationCleartextPassword, *pgproto3.AuthenticationMD5Password:
		return p.refuseToReveal()
	default:
		return &credentialError{fmt.Errorf("the server asks for a way to log in that is not spoken here: %T", m)}
	}
}

// begin starts the SASL exchange.
func (p *proof) begin(mechanisms []string) error {
	if p.client != nil {
		return errors.New("the server began a second SASL exchange")
	}
	secret, err := p.secret()
	if err != nil {
		return err
	}
	var binding []byte
	if encrypted, ok := p.backend.conn.(*tls.Conn); ok {
		binding = auth.PeerBinding(encrypted.ConnectionState())
	}
	p.client = auth.NewClient(p.login.role.user, secret, binding)
	mechanism, err := p.client.Mechanism(mechanisms)
	if err != nil {
		return &credentialError{err}
	}
	return p.send(&pgproto3.SASLInitialResponse{AuthMechanism: mechanism, Data: p.client.First()})
}

func (p *proof) send(message pgproto3.FrontendMessage) error {
	p.backend.frontend.Send(message)
	return p.backend.frontend.Flush()
}

// secret returns what there is to show.
func (p *proof) secret() (auth.Secret, error) {
	id := p.login.identity
	switch {
	case id.Service && !p.access.Password.IsZero():
		password, err := p.access.Password.Resolve()
		if err != nil {
			return auth.Secret{}, &credentialError{err}
		}
		return auth.Secret{Password: password}, nil
	case id.Keys != nil:
		return auth.Secret{Keys: id.Keys}, nil
	}
	return auth.Secret{}, p.login.nothingToShow()
}

// refuseToReveal answers a server that asks for the password itself, or for a form of it that is as good.
func (p *proof) refuseToReveal() error {
	if _, err := p.secret(); err != nil {
		return err
	}
	return &credentialError{errors.New("the server asks for the password in a form that would give it away; have its pg_hba.conf ask for scram-sha-256")}
}

// finish hands the result to whoever waits for it.
func (l *login) finish(b *Backend, err error) {
	s := l.shard
	if b != nil && s.pools.watch != nil {
		if err := s.pools.watch.add(b); err != nil {
			s.pools.config.Logger.Warn("a backend is not watched; it is looked at when it is lent", "shard", b.shardName, "error", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logins--
	l.role.logins--
	if err != nil {
		s.pools.total.give()
		s.loginFailed(l, err)
		s.forget(l.role)
	} else {
		s.admit(l, b)
	}
	s.dispatch()
}

// admit takes a new backend in.
func (s *shardPool) admit(l *login, b *Backend) {
	s.figures.opened++
	s.backends[b] = struct{}{}
	s.counts[lent]++
	l.role.counts[lent]++
	if l.generation == s.generation {
		if s.breaker.failures > 0 {
			s.pools.config.Logger.Info("the shard can be reached again", "shard", s.spec.Name, "address", s.spec.Primary.Address)
		}
		s.breaker.succeeded()
		l.role.breaker.succeeded()
	}
	s.giveBack(b)
}

// loginFailed tells those concerned, and holds further logins back if they would fail as well.
func (s *shardPool) loginFailed(l *login, err error) {
	if l.generation != s.generation || s.left != nil {
		return // it was cancelled
	}
	now := time.Now()
	whose, failure := l.explain(err)
	s.figures.failedLogins++
	s.figures.lastError, s.figures.lastErrorAt = failure.Error(), now
	if whose == ofServer {
		if s.breaker.failures == 0 {
			s.pools.config.Logger.Warn("a shard cannot be reached", "shard", s.spec.Name, "address", s.spec.Primary.Address, "error", err)
		}
		s.breaker.failed(l.began, now, failure)
		l.role.breaker.undecided()
		for _, r := range s.roles {
			s.failHopeless(r, now)
		}
		return
	}
	s.breaker.succeeded()
	if whose == ofRoleAlone {
		l.role.breaker.failed(l.began, now, failure)
		s.failHopeless(l.role, now)
		return
	}
	l.role.breaker.succeeded()
	for w := l.role.waiting.head; w != nil; {
		next := l.role.waiting.after(w)
		if w.identity.sameSecret(l.identity) {
			s.fail(w, failure)
		}
		w = next
	}
}
