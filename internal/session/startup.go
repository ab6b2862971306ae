package session

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/cleavedb/cleave/internal/auth"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/pool"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/wire"
)

// start lets a client in: encryption, who it is, what it begins with. An error means that it is not in.
func (s *session) start() error {
	_ = s.conn.SetDeadline(time.Now().Add(s.server.config.StartupTimeout))
	startup, err := s.readStartup()
	if err != nil {
		return err
	}
	if startup.Kind == wire.CancelRequest {
		s.server.cancelRequest(s.ctx, startup)
		return errEnd
	}
	if !s.server.promote(s) {
		return s.sayGoodbye(s.server.tooManyClients())
	}
	if refused := s.login(startup); refused != nil {
		return s.sayGoodbye(fatal(refused))
	}
	if refused := s.begin(startup); refused != nil {
		return s.sayGoodbye(fatal(refused))
	}
	_ = s.conn.SetDeadline(noDeadline)
	return s.write()
}

// readStartup reads packets until one says what the client wants; requests for encryption come before it.
func (s *session) readStartup() (wire.Startup, error) {
	asked := map[wire.StartupKind]bool{}
	for {
		startup, err := s.readStartupPacket()
		if err != nil {
			return startup, err
		}
		switch startup.Kind {
		case wire.SSLRequest, wire.GSSENCRequest:
			if asked[startup.Kind] {
				return startup, s.sayGoodbye(pgerr.Fatal(pgerr.ProtocolViolation, "encryption was asked for twice"))
			}
			asked[startup.Kind] = true
			if err := s.encrypt(startup.Kind); err != nil {
				return startup, err
			}
		default:
			return startup, nil
		}
	}
}

func (s *session) readStartupPacket() (wire.Startup, error) {
	var size [4]byte
	if _, err := io.ReadFull(s.conn, size[:]); err != nil {
		return wire.Startup{}, fmt.Errorf("read a startup packet: %w", err)
	}
	length, err := wire.StartupSize(size[:])
	if err != nil {
		return wire.Startup{}, s.sayGoodbye(fatal(asError(err)))
	}
	packet := make([]byte, length)
	copy(packet, size[:])
	if _, err := io.ReadFull(s.conn, packet[len(size):]); err != nil {
		return wire.Startup{}, fmt.Errorf("read a startup packet: %w", err)
	}
	startup, err := wire.DecodeStartup(packet)
	if err != nil {
		return startup, s.sayGoodbye(fatal(asError(err)))
	}
	return startup, nil
}

// encrypt answers a request for encryption. Nothing that the client sent before it is encrypted may count as encrypted: the
// packet was read to its last byte and nothing beyond.
func (s *session) encrypt(kind wire.StartupKind) error {
	if kind != wire.SSLRequest || s.server.config.Certificates == nil || s.tls != nil {
		_, err := s.conn.Write([]byte{'N'})
		return err
	}
	if _, err := s.conn.Write([]byte{'S'}); err != nil {
		return err
	}
	config, binding := s.server.config.Certificates.TLSConfig()
	secured := tls.Server(s.conn, config)
	if err := secured.HandshakeContext(s.ctx); err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	state := secured.ConnectionState()
	s.mu.Lock()
	s.conn = secured
	s.mu.Unlock()
	s.in.conn, s.tls, s.binding = secured, &state, binding
	return nil
}

// namesIn are the user and the database that a client asks for. Names are cut as PostgreSQL cuts them, before anybody looks at
// them: what a rule says of a name is for the role that a shard would take it for.
func namesIn(startup wire.Startup) (user, database string) {
	user, _ = startup.Parameter("user")
	database, _ = startup.Parameter("database")
	if database == "" {
		database = user
	}
	return clipName(user), clipName(database)
}

const maxName = 63 // bytes

// clipName cuts a name that is too long for PostgreSQL, and no character in two.
func clipName(name string) string {
	if len(name) <= maxName {
		return name
	}
	end := maxName
	for end > 0 && !utf8.RuneStart(name[end]) {
		end--
	}
	return name[:end]
}

// login finds out who the client is.
func (s *session) login(startup wire.Startup) *pgerr.Error {
	s.user, s.database = namesIn(startup)
	s.application, _ = startup.Parameter("application_name")
	s.address = s.conn.RemoteAddr().String()
	if value, _ := startup.Parameter("replication"); value != "" && !slices.Contains([]string{"false", "off", "no", "0"}, strings.ToLower(value)) {
		return pgerr.New(pgerr.FeatureNotSupported, "the router does not take replication connections").
			WithDetail("A replication stream is one server's.").WithHint("Connect to the shard itself.")
	}
	if startup.Minor > 0 || len(startup.Options) > 0 {
		s.out = wire.AppendNegotiateProtocolVersion(s.out, 0, startup.Options)
	}
	attempt := auth.Attempt{TLS: s.tls != nil, User: s.user, Database: s.database}
	if address, ok := s.conn.RemoteAddr().(*net.TCPAddr); ok {
		attempt.Address, _ = netip.AddrFromSlice(address.IP)
	}
	rule, _, found := s.server.config.Rules.Match(attempt)
	if !found {
		return auth.NoRule(attempt)
	}
	s.identity = &pool.Identity{User: s.user, Service: s.user == s.server.config.ServiceUser}
	switch rule.Method {
	case auth.Trust:
	case auth.Certificate:
		if s.tls == nil || auth.CommonName(*s.tls) != s.user {
			return auth.CertificateFailed(s.user)
		}
	case auth.Scram:
		if refused := s.proveByScram(); refused != nil {
			return refused
		}
	default:
		return auth.Rejected(attempt)
	}
	if s.database != s.server.config.Database {
		return pgerr.New(pgerr.InvalidCatalogName, "database \"%s\" does not exist", s.database).
			WithHint("The router serves the database \"%s\".", s.server.config.Database)
	}
	return nil
}

// proveByScram lets the client prove that it knows its password.
func (s *session) proveByScram() *pgerr.Error {
	ctx, cancel := context.WithTimeout(s.ctx, s.server.config.StartupTimeout)
	defer cancel()
	user, err := s.server.config.Users.Lookup(ctx, s.user)
	if err != nil && !errors.Is(err, auth.ErrNoUser) {
		return pgerr.New(pgerr.CannotConnectNow, "the router cannot look up users now").WithHint("Try again later.")
	}
	exchange := auth.NewServer(s.user, auth.VerifierFor(s.user, user, s.server.mockSecret, time.Now()), s.binding)
	if err := s.send1(wire.AppendAuthenticationSASL(s.out, exchange.Mechanisms()...)); err != nil {
		return disconnected
	}
	body, refused := s.readPassword()
	if refused != nil {
		return refused
	}
	initial, err := wire.DecodeSASLInitial(body)
	if err != nil {
		return asError(err)
	}
	reply, err := exchange.First(initial.Mechanism, initial.Data)
	if err != nil {
		return asError(err)
	}
	if err := s.send1(wire.AppendAuthenticationSASLContinue(s.out, reply)); err != nil {
		return disconnected
	}
	if body, refused = s.readPassword(); refused != nil {
		return refused
	}
	reply, keys, err := exchange.Final(wire.DecodeSASLResponse(body))
	if err != nil {
		return asError(err)
	}
	if user != nil && !user.CanLogin {
		return auth.LoginDenied(s.user)
	}
	s.out = wire.AppendAuthenticationSASLFinal(s.out, reply)
	s.identity.Keys = keys
	return nil
}

var disconnected = pgerr.New(pgerr.ConnectionFailure, "the client is gone")

// send1 writes at once: the client's answer is waited for.
func (s *session) send1(out []byte) error {
	s.out = out
	return s.write()
}

// maxPassword bounds what a client may send before it is known.
const maxPassword = 16 << 10

func (s *session) readPassword() ([]byte, *pgerr.Error) {
	kind, body, err := s.in.next(maxPassword)
	if err != nil {
		var refused *pgerr.Error
		if errors.As(err, &refused) {
			return nil, refused
		}
		return nil, disconnected
	}
	if kind != wire.MsgPassword {
		return nil, pgerr.New(pgerr.ProtocolViolation, "expected SASL response, got message type %d", kind)
	}
	return body, nil
}

// begin gives the session what it starts with, and tells the client.
func (s *session) begin(startup wire.Startup) *pgerr.Error {
	if err := s.server.config.Ready(); err != nil {
		return pgerr.New(pgerr.CannotConnectNow, "the router is not ready").WithDetail("%s", err)
	}
	s.number, s.secret = s.server.newNumber(), newSecret()
	s.base, s.settings = noSettings, noSettings
	wanted, refused := startupSettings(startup)
	if refused != nil {
		return refused
	}
	if refused = s.server.triggersStayOn(wanted); refused != nil {
		return refused
	}
	if wanted, refused = s.takeOurs(wanted); refused != nil { // before anything is borrowed
		return refused
	}
	if s.defaults, refused = s.server.defaults.of(s); refused != nil {
		return refused
	}
	for name, value := range s.defaults.parameters {
		s.reported[name] = value
	}
	s.reported["application_name"] = ""
	if refused := s.beginWith(wanted); refused != nil {
		return refused
	}
	s.out = wire.AppendAuthenticationOK(s.out)
	for name, value := range s.reported {
		s.out = wire.AppendParameterStatus(s.out, name, value)
	}
	s.out = wire.AppendBackendKeyData(s.out, s.number, s.secret)
	s.out = wire.AppendReadyForQuery(s.out, statusIdle)
	s.ready, s.firstMode = true, s.poolMode
	return nil
}

// takeOurs takes the parameters that are the router's own from those that the client asked for.
func (s *session) takeOurs(wanted []setting) ([]setting, *pgerr.Error) {
	var others []setting
	for _, e := range wanted {
		if e.name == consistentReads {
			on, known := booleanOf(e.values[0])
			if !known {
				return nil, pgerr.New(pgerr.InvalidParameterValue, "parameter \"%s\" requires a Boolean value", e.name)
			}
			s.consistent, s.firstConsistent = on, on
			continue
		}
		if e.name == fanoutParameter {
			of, known := fanoutOf(e.values[0])
			if !known {
				return nil, wrongFanout(e.values[0])
			}
			s.fanout, s.firstFanout = of, of
			continue
		}
		if e.name == partialResults {
			on, refused := partialOf(e.values[0])
			if refused != nil {
				return nil, refused
			}
			s.partial = toggle{now: &on, first: &on}
			continue
		}
		if e.name != "cleave.pool_mode" {
			others = append(others, e)
			continue
		}
		if s.poolMode = Mode(strings.ToLower(e.values[0])); s.poolMode != TransactionMode && s.poolMode != SessionMode {
			return nil, pgerr.New(pgerr.InvalidParameterValue, "invalid value for parameter \"%s\": \"%s\"", e.name, e.values[0]).
				WithHint("Available values: transaction, session.")
		}
	}
	return others, nil
}

// beginWith makes what the client asked for at its start the settings that it goes back to with RESET. A server says
// whether they are right, unless they are nothing new.
func (s *session) beginWith(wanted []setting) *pgerr.Error {
	// The name that a backend begins with is the router's.
	base, check := s.defaults.settings().with(newSetting("application_name", "")), false
	for _, e := range wanted {
		base = base.with(e)
		if known, reported := s.reported[reportedName(e.name)]; !reported || known != e.values[0] {
			check = check || e.name != "application_name"
		}
	}
	s.base, s.settings = base, base
	if e, set := base.find("application_name"); set {
		s.reported["application_name"] = e.values[0]
	}
	if !check {
		return nil
	}
	if err := s.attach(); err != nil {
		return asError(err)
	}
	s.hearParameters()
	_ = s.settle()
	return nil
}

// reportedName is how servers spell a parameter when they report it.
func reportedName(name string) string {
	switch name {
	case "datestyle":
		return "DateStyle"
	case "intervalstyle":
		return "IntervalStyle"
	case "timezone":
		return "TimeZone"
	default:
		return name
	}
}

// startupSettings are the parameters in a startup packet.
func startupSettings(startup wire.Startup) ([]setting, *pgerr.Error) {
	var wanted []setting
	for _, p := range startup.Parameters {
		name := strings.ToLower(p.Name)
		switch name {
		case "user", "database", "replication":
		case "options":
			more, refused := optionSettings(p.Value)
			if refused != nil {
				return nil, refused
			}
			wanted = append(wanted, more...)
		default:
			if refused := checkList(name, p.Value); refused != nil {
				return nil, refused
			}
			wanted = append(wanted, newSetting(name, p.Value))
		}
	}
	for _, e := range wanted {
		if isOurs(e.name) && e.name != "cleave.pool_mode" && e.name != consistentReads && e.name != fanoutParameter && e.name != partialResults {
			return nil, pgerr.New(pgerr.UndefinedObject, "unrecognized configuration parameter \"%s\"", e.name)
		}
	}
	// PostgreSQL lets nobody begin as somebody else: who has logged in is set after the options.
	return slices.DeleteFunc(wanted, func(e setting) bool { return e.name == "session_authorization" }), nil
}

const searchPath = "search_path"

// checkList refuses a search path that is no list of names: written anew with quotes, the server would take it.
func checkList(name, value string) *pgerr.Error {
	if _, ok := sqltext.SplitNames(value, ','); ok || name != searchPath {
		return nil
	}
	return pgerr.New(pgerr.InvalidParameterValue, "invalid value for parameter \"%s\": \"%s\"", name, value).WithDetail("List syntax is invalid.")
}

// newSetting is a parameter whose value is one text; lists are taken apart as the server does it.
func newSetting(name, value string) setting {
	e := setting{name: name, sql: sqltext.QuoteLiteral(value), values: []string{value}}
	if name == searchPath {
		e.values, _ = sqltext.SplitNames(value, ',')
		quoted := make([]string, len(e.values))
		for i, v := range e.values {
			quoted[i] = sqltext.QuoteLiteral(v)
		}
		e.sql = strings.Join(quoted, ", ")
		if len(quoted) == 0 {
			e.sql = "''"
		}
	}
	return e
}

// optionSettings reads command-line options as PostgreSQL's servers take them: -c name=value and --name=value, where a
// backslash keeps a space.
func optionSettings(text string) ([]setting, *pgerr.Error) {
	var settings []setting
	words := optionWords(text)
	for i := 0; i < len(words); i++ {
		word := words[i]
		var assignment string
		switch {
		case word == "-c" && i+1 < len(words):
			i++
			assignment = words[i]
		case strings.HasPrefix(word, "-c"):
			assignment = word[2:]
		case strings.HasPrefix(word, "--"):
			assignment = word[2:]
		default:
			return nil, pgerr.New(pgerr.SyntaxError, "invalid command-line argument for server process: %s", word).
				WithHint("The router takes -c name=value and --name=value.")
		}
		name, value, found := strings.Cut(assignment, "=")
		if !found || name == "" {
			return nil, pgerr.New(pgerr.SyntaxError, "-c %s requires a value", assignment)
		}
		name = strings.ToLower(strings.ReplaceAll(name, "-", "_"))
		if refused := checkList(name, value); refused != nil {
			return nil, refused
		}
		settings = append(settings, newSetting(name, value))
	}
	return settings, nil
}

func optionWords(text string) []string {
	var words []string
	var word strings.Builder
	inWord := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			word.WriteByte(text[i])
			inWord = true
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v':
			if inWord {
				words = append(words, word.String())
				word.Reset()
			}
			inWord = false
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	return words
}

// defaults are what a role has where a session set nothing.
type defaults struct {
	parameters map[string]string // as servers report them
	searchPath []string
	fanout     string
	timeout    string // its statement_timeout
	partial    string // what the role has as cleave.partial_results
	learnt     time.Time
}

// defaultsCache knows the defaults of roles, from logins to the home shard.
type defaultsCache struct {
	mu    sync.Mutex
	roles map[string]*defaults
}

// settings are the defaults on which a statement's meaning depends. They are given to every backend: one that logged in
// before they were changed, or on another shard, may have begun with others.
func (d *defaults) settings() *settings {
	all := noSettings.with(newSetting(searchPath, strings.Join(quotedPath(d.searchPath), ", ")))
	for _, name := range []string{"TimeZone", "DateStyle", "IntervalStyle", "client_encoding", "standard_conforming_strings"} {
		if value, known := d.parameters[name]; known {
			all = all.with(newSetting(strings.ToLower(name), value))
		}
	}
	return all
}

func quotedPath(path []string) []string {
	quoted := make([]string, len(path))
	for i, name := range path {
		quoted[i] = sqltext.QuoteIdentifier(name)
	}
	return quoted
}

// forget makes the next sessions ask again.
func (c *defaultsCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.roles = nil
}

const (
	defaultsAge = time.Minute
	maxRoles    = 10_000
)

// of returns a role's defaults. If they are not known, or old, a backend is borrowed: so a role that no shard lets in does
// not get in here either.
func (c *defaultsCache) of(s *session) (*defaults, *pgerr.Error) {
	c.mu.Lock()
	known := c.roles[s.user]
	c.mu.Unlock()
	if known != nil && time.Since(known.learnt) < defaultsAge {
		return known, nil
	}
	if err := s.attach(); err != nil {
		if known != nil && s.ctx.Err() == nil && !refusedByServer(err) {
			return known, nil // the shard is away: what it said before still holds
		}
		return nil, asError(err)
	}
	backend := s.backend
	fresh := &defaults{parameters: backend.Parameters(), searchPath: s.state.searchPath, fanout: s.state.greeting.Fanout, partial: s.state.greeting.PartialResults, timeout: s.state.greeting.StatementTimeout, learnt: time.Now()}
	_ = s.settle()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.roles == nil || len(c.roles) >= maxRoles {
		c.roles = map[string]*defaults{}
	}
	c.roles[s.user] = fresh
	return fresh, nil
}

// refusedByServer: it is the role that is not wanted.
func refusedByServer(err error) bool {
	var refused *pgerr.Error
	return errors.As(err, &refused) && strings.HasPrefix(refused.Code, "28")
}

// errReplica refuses a server that is not promoted yet: a backend that stayed when it is would not know the timeline that it prepares and decides transactions on.
var errReplica = pgerr.New(pgerr.CannotConnectNow, "the server is a replica").WithDetail("Routers use primaries alone").
	WithHint("Promote it, or let the address lead to the shard's primary. The router tries again by itself.")

// Greet is for [pool.Config.OnLogin]: the first statement of a backend, and what is remembered of it.
func Greet(router string, version func() uint64, learnt func(shardNumber int, g shard.Greeting)) func(ctx context.Context, b *pool.Backend) error {
	return func(ctx context.Context, b *pool.Backend) error {
		if b.Parameters()["in_hot_standby"] == "on" {
			return errReplica
		}
		rows, err := sayHello(ctx, b, router, version)
		if err != nil {
			return fmt.Errorf("say hello to shard %q: %w", b.ShardName(), err)
		}
		if len(rows) != 1 {
			return fmt.Errorf("shard %q answered hello with %d rows", b.ShardName(), len(rows))
		}
		greeting, err := shard.ParseGreeting(textsOf(rows[0]))
		if err != nil {
			return err
		}
		if greeting.InRecovery {
			return errReplica
		}
		if refused := triggersAreOn(ctx, b); refused != nil {
			return refused
		}
		path, _ := sqltext.SplitNames(greeting.SearchPath, ',') // as the server has it, so it is a list
		b.State = &serverState{settings: noSettings, searchPath: path, greeting: greeting, reported: maps.Clone(b.Parameters())}
		if learnt != nil {
			learnt(b.Shard(), greeting)
		}
		return nil
	}
}

// mapPatience is how long a backend waits for the map that its shard asks for: a router that was stopped for a while reads it as soon as it goes on.
const mapPatience = 3 * time.Second

// sayHello says it again if the router hears of a newer map soon.
func sayHello(ctx context.Context, b *pool.Backend, router string, version func() uint64) ([]pool.Row, error) {
	deadline := time.Now().Add(mapPatience)
	for {
		known := version()
		rows, err := b.Exec(ctx, shard.HelloSQL(router, known))
		var refused *pgerr.Error
		if !errors.As(err, &refused) || refused.Code != pgerr.OldMap {
			return rows, err
		}
		for version() == known {
			if time.Now().After(deadline) {
				return nil, err
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return nil, errors.Join(err, ctx.Err())
			}
		}
		if _, err := b.Exec(ctx, "ROLLBACK"); err != nil {
			return nil, err
		}
	}
}
