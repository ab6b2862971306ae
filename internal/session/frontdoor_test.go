package session

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/auth"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/pool"
	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

// loud is a table whose rows are commented on at length.
var loud = []string{
	"CREATE TABLE loud (a text)",
	"CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE NOTICE '%', repeat('x', 5000); RETURN NEW; END $$",
	"CREATE TRIGGER shout BEFORE INSERT ON loud FOR EACH ROW EXECUTE FUNCTION shout()",
}

// loudRows are messages of many rows each.
func loudRows(messages, rowsEach int) []pgproto3.FrontendMessage {
	data := &pgproto3.CopyData{Data: []byte(strings.Repeat(strings.Repeat("y", 999)+"\n", rowsEach))}
	all := make([]pgproto3.FrontendMessage, messages)
	for i := range all {
		all[i] = data
	}
	return all
}

// TestCopyIsHeardWhileItIsSent: a server that says much about the rows does not wait for the router, which waits for the server.
func TestCopyIsHeardWhileItIsSent(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, shards: 1, unsharded: true, setUp: loud})
	for name, c := range map[string]struct{ messages, rowsEach int }{"long messages": {4, 10_000}, "short messages": {20_000, 2}} {
		t.Run(name, func(t *testing.T) {
			client := dialRaw(t, w.address, nil)
			client.query("TRUNCATE loud")
			client.send(&pgproto3.Query{String: "COPY loud FROM STDIN"})
			client.replies(1)
			data := encode(t, append(loudRows(c.messages, c.rowsEach), &pgproto3.CopyDone{})...)
			go func() { _, _ = client.conn.Write(data) }()
			notices := 0
			for {
				said, err := client.next()
				if err != nil {
					t.Fatalf("after %d notices: %v", notices, err)
				}
				if _, ready := said.(*pgproto3.ReadyForQuery); ready {
					break
				}
				if _, isNotice := said.(*pgproto3.NoticeResponse); isNotice {
					notices++
				}
			}
			if want := c.messages * c.rowsEach; notices != want {
				t.Errorf("%d notices, want %d", notices, want)
			}
			if said := strings.Join(client.query("SELECT count(*) FROM loud"), " "); !strings.Contains(said, fmt.Sprintf(`"%d"`, c.messages*c.rowsEach)) {
				t.Errorf("the table has %s", said)
			}
		})
	}
	w.settled(t)
}

// TestCopyOfAClientThatDoesNotListen: once it is gone, its backend is free again.
func TestCopyOfAClientThatDoesNotListen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, shards: 1, unsharded: true, setUp: loud})
	admin := w.onShard(t, 1)
	client := dialRaw(t, w.address, nil)
	client.send(&pgproto3.Query{String: "COPY loud FROM STDIN"})
	client.replies(1)
	data := encode(t, loudRows(4, 10_000)...)
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = client.conn.Write(data)
	}()
	eventually(t, "the server waits to be heard", func() bool {
		return one[int](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY%' AND wait_event = 'ClientWrite'") == 1
	})
	_ = client.conn.Close()
	<-written
	w.settled(t)
	eventually(t, "the session is over", func() bool { return len(w.server.Sessions()) == 0 })
}

// TestCopyThatFailsOnTheWay: what was sent after the row that is wrong does not get in the way of what the client sends next.
func TestCopyThatFailsOnTheWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{setUp: loud})
	wrong := &pgproto3.CopyData{Data: []byte("1\tx\twrong\n" + strings.Repeat(strings.Repeat("y", 999)+"\n", 8_000))}
	copying := flushed(1, &pgproto3.Query{String: "COPY undeclared FROM STDIN"})
	for range 3 {
		w.sameAsPlain(t, query("BEGIN"), copying, copied(wrong, &pgproto3.CopyDone{}), query("SELECT 1"), query("ROLLBACK"), query("SELECT 2"))
		w.sameAsPlain(t, copying, copied(wrong), sent(&pgproto3.CopyDone{}, &pgproto3.Query{String: "SELECT 3"}))
	}
}

// TestCopyDataAlongWithExecute: a client need not wait until it is asked for its rows.
func TestCopyDataAlongWithExecute(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{})
	row := &pgproto3.CopyData{Data: []byte("1\tx\n")}
	done := &pgproto3.CopyDone{}
	copying := func(table string) []pgproto3.FrontendMessage {
		return []pgproto3.FrontendMessage{parse("", "COPY "+table+" FROM STDIN"), bind("", ""), run("")}
	}
	for name, messages := range map[string][]pgproto3.FrontendMessage{
		"rows":                    pipeline(copying("undeclared"), row, row, done, sync1),
		"no rows":                 pipeline(copying("undeclared"), done, sync1),
		"the client gives up":     pipeline(copying("undeclared"), row, &pgproto3.CopyFail{Message: "no"}, sync1),
		"after something else":    pipeline(unnamed("SELECT 1"), copying("undeclared"), row, done, sync1),
		"before something else":   pipeline(copying("undeclared"), row, done, unnamed("SELECT 1"), sync1),
		"twice":                   pipeline(copying("undeclared"), row, done, copying("undeclared"), row, done, sync1),
		"no such table":           pipeline(copying("nosuch"), row, done, sync1),
		"nobody asks for it":      pipeline(unnamed("SELECT 1"), row, done, unnamed("SELECT 2"), sync1),
		"nobody asks, and errors": pipeline(unnamed("SELECT 1/0"), row, done, unnamed("SELECT 2"), sync1),
	} {
		t.Run(name, func(t *testing.T) {
			w.sameAsPlain(t, query("TRUNCATE undeclared"), sent(messages...), query("TABLE undeclared"))
			w.sameAsPlain(t, query("BEGIN"), sent(messages...), query("ROLLBACK"), query("SELECT 1"))
		})
	}
}

// TestStatementsInsteadOfCopyData end the session, as with PostgreSQL.
func TestStatementsInsteadOfCopyData(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, shards: 1})
	for name, next := range map[string]pgproto3.FrontendMessage{"Query": &pgproto3.Query{String: "SELECT 1"}, "Parse": parse("", "SELECT 1")} {
		t.Run(name, func(t *testing.T) {
			c := dialRaw(t, w.address, nil)
			c.send(parse("", "COPY undeclared FROM STDIN"), bind("", ""), run(""), next, &pgproto3.CopyData{Data: []byte("1\tx\n")}, &pgproto3.CopyDone{}, sync1)
			said := c.readyTimes(1)
			if all := strings.Join(said, "\n"); !strings.Contains(all, "08P01") || strings.Contains(all, "done") {
				t.Errorf("it is told %q", said)
			}
		})
	}
	w.settled(t)
	if n := one[int](t, w.onShard(t, 1), "SELECT count(*) FROM undeclared"); n != 0 {
		t.Errorf("%d rows were kept", n)
	}
}

// TestCancelWhenFull: a request to cancel is heard however many clients there are, and nothing else is.
func TestCancelWhenFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, shards: 1, config: Config{MaxClients: 1}})
	busy := dialRaw(t, w.address, nil)
	busy.send(&pgproto3.Query{String: "SELECT pg_sleep(107)"})
	running(t, w.onShard(t, 1), "SELECT pg_sleep(107)")
	more := newRaw(t, w.address)
	more.send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: loginAsPostgres})
	wantCodes(t, more.readyTimes(1), "53300", "the end")
	w.cancel(t, busy.pid, busy.secret)
	wantCodes(t, busy.readyTimes(1), "57014", "ready I")

	silent := make([]*rawClient, maxSurplus)
	for i := range silent {
		silent[i] = newRaw(t, w.address)
	}
	wantCodes(t, newRaw(t, w.address).readyTimes(1), "53300", "the end") // one too many is not even listened to
	_ = busy.conn.Close()
	eventually(t, "there is room", func() bool { return w.server.Clients() == 0 })
	silent[0].send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: loginAsPostgres})
	wantCodes(t, silent[0].readyTimes(1), "", "ready I")
	for _, c := range silent {
		_ = c.conn.Close()
	}
	eventually(t, "all are counted out", func() bool {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		return w.server.clients == 0 && w.server.surplus == 0
	})
}

// proxy stands between the router and a server.
type proxy struct {
	listener net.Listener
	target   string
	// cancels are requests to cancel. Nobody hears of them before the test says so.
	cancels chan heldCancel

	mu    sync.Mutex
	toUs  []net.Conn // from the router
	conns sync.WaitGroup
}

// heldCancel is a request to cancel that has not arrived.
type heldCancel struct {
	conn    net.Conn
	request []byte
}

// behindProxy is a world whose first shard the router reaches by a proxy.
func behindProxy(t *testing.T, c worldConfig) (*world, *proxy) {
	t.Helper()
	p := &proxy{listener: must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0")), cancels: make(chan heldCancel, 10)}
	c.moved = func(m *topology.Map) *topology.Map {
		return must[*topology.Map](t)(m.Next(topology.UpdateShard("s1", func(spec *topology.ShardSpec) {
			p.target = spec.Primary.Address
			spec.Primary.Address = p.listener.Addr().String()
			p.conns.Go(p.serve)
		})))
	}
	w := newWorld(t, c)
	t.Cleanup(func() {
		_ = w.drain()
		w.pools.Close()
		_ = p.listener.Close()
		p.conns.Wait()
	})
	return w, p
}

func (p *proxy) serve() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.conns.Go(func() { p.pass(conn) })
	}
}

func (p *proxy) pass(conn net.Conn) {
	first := make([]byte, 8)
	if _, err := io.ReadFull(conn, first); err != nil {
		_ = conn.Close()
		return
	}
	if binary.BigEndian.Uint32(first[4:]) == 80877102 {
		rest := make([]byte, binary.BigEndian.Uint32(first)-8)
		_, _ = io.ReadFull(conn, rest)
		p.cancels <- heldCancel{conn, append(first, rest...)}
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = conn.Close()
		return
	}
	p.mu.Lock()
	p.toUs = append(p.toUs, conn)
	p.mu.Unlock()
	_, _ = server.Write(first)
	p.conns.Go(func() {
		_, _ = io.Copy(conn, server)
		_ = conn.Close()
	})
	_, _ = io.Copy(server, conn)
	_ = server.Close()
}

// arrive lets the server have the request, and the router know it.
func (p *proxy) arrive(t *testing.T, held heldCancel) {
	t.Helper()
	server := must[net.Conn](t)(net.Dial("tcp", p.target))
	_, _ = server.Write(held.request)
	_, _ = io.Copy(io.Discard, server)
	_ = server.Close()
	_ = held.conn.Close()
}

// say makes all servers say something that nobody asked for.
func (p *proxy) say(t *testing.T, message pgproto3.BackendMessage) {
	t.Helper()
	data := must[[]byte](t)(message.Encode(nil))
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.toUs {
		_, _ = conn.Write(data)
	}
}

// TestSlowCancel: while a server does not take note, nobody else waits for it, and the backend is not given to others.
func TestSlowCancel(t *testing.T) {
	t.Parallel()
	w, p := behindProxy(t, worldConfig{noPlain: true, shards: 1, pools: pool.Config{QueueTimeout: time.Minute, ConnectTimeout: time.Minute}})
	admin := w.onShard(t, 1)
	cancel := func(c *rawClient) (done chan struct{}) {
		done = make(chan struct{})
		go func() {
			defer close(done)
			w.cancel(t, c.pid, c.secret)
		}()
		return done
	}
	t.Run("is not waited for", func(t *testing.T) {
		c := dialRaw(t, w.address, nil)
		c.send(&pgproto3.Query{String: "SELECT pg_sleep(108)"})
		running(t, admin, "SELECT pg_sleep(108)")
		done := cancel(c)
		held := <-p.cancels
		if n := len(w.server.Sessions()); n != 1 {
			t.Errorf("%d sessions are seen", n)
		}
		w.cancel(t, c.pid, c.secret) // another one is over at once
		p.arrive(t, held)            // had anything above waited, it would come too late
		wantCodes(t, c.readyTimes(1), "57014", "ready I")
		<-done
		if len(p.cancels) > 0 {
			t.Error("the server was asked twice")
		}
	})
	t.Run("hits nobody else", func(t *testing.T) {
		w.pools.SetLimit(1, 1)
		defer w.pools.SetLimit(1, 0)
		a, b := dialRaw(t, w.address, nil), dialRaw(t, w.address, nil)
		execute(t, admin, "SELECT pg_advisory_lock(9)")
		a.send(&pgproto3.Query{String: "SELECT pg_advisory_xact_lock(9)"})
		running(t, admin, "SELECT pg_advisory_xact_lock(9)")
		done := cancel(a)
		held := <-p.cancels
		execute(t, admin, "SELECT pg_advisory_unlock(9)")
		eventually(t, "the statement has ended", func() bool {
			return one[int](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_advisory_xact_lock%' AND state = 'active'") == 0
		})
		b.send(&pgproto3.Query{String: "SELECT pg_sleep(0.1)"})
		eventually(t, "another client waits for the backend", func() bool { return w.pools.Stats()[0].Waiting == 1 })
		p.arrive(t, held)
		wantCodes(t, a.readyTimes(1), "", "ready I")
		wantCodes(t, b.readyTimes(1), "", "ready I")
		<-done
	})
}

// TestUnaskedParameters: what a listening client is told unasked is not forgotten, so it hears when that is so no more.
func TestUnaskedParameters(t *testing.T) {
	t.Parallel()
	w, p := behindProxy(t, worldConfig{noPlain: true, shards: 1})
	c := dialRaw(t, w.address, nil)
	c.query("LISTEN news")
	const name = "default_transaction_read_only"
	if c.reported[name] != "off" {
		t.Skipf("this server does not report %s", name)
	}
	p.say(t, &pgproto3.ParameterStatus{Name: name, Value: "on"})
	if said := c.replies(1); said[0] != "parameter "+name+"=on" {
		t.Fatalf("it is told %q", said)
	}
	p.say(t, &pgproto3.ParameterStatus{Name: name, Value: "on"})
	said := c.query("DISCARD ALL")
	if !slices.Contains(said, "parameter "+name+"=off") {
		t.Errorf("on another backend it is told %q", said)
	}
	if slices.Contains(said, "parameter "+name+"=on") {
		t.Errorf("it is told twice: %q", said)
	}
}

// faultyVirtual has a fault in it.
type faultyVirtual struct {
	fakeVirtual
	fault *atomic.Pointer[func()]
}

func (v faultyVirtual) View(ctx context.Context, name string, columnsOnly bool) (View, *pgerr.Error) {
	if fault := v.fault.Load(); fault != nil {
		(*fault)()
	}
	return v.fakeVirtual.View(ctx, name, columnsOnly)
}

// TestPanic: a fault ends the session that meets it, and nothing else.
func TestPanic(t *testing.T) {
	t.Parallel()
	var fault atomic.Pointer[func()]
	var atDoor atomic.Bool
	w := newWorld(t, worldConfig{noPlain: true, config: Config{Virtual: faultyVirtual{fault: &fault}, Ready: func() error {
		if atDoor.Load() {
			panic("at the door")
		}
		return nil
	}}})
	healthy := dialRaw(t, w.address, nil)
	onlyHealthy := func(t *testing.T) {
		t.Helper()
		eventually(t, "the others are gone", func() bool { return w.server.Clients() == 1 && len(w.server.Sessions()) == 1 })
		w.settled(t)
		wantCodes(t, healthy.query("SELECT count(*) FROM undeclared"), "", "ready I")
		if n := one[int](t, w.onShard(t, 1), "SELECT count(*) FROM undeclared"); n != 0 {
			t.Errorf("%d rows were kept", n)
		}
		eventually(t, "no backend is left", func() bool {
			return one[int](t, w.onShard(t, 1), "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%' OR query LIKE 'LISTEN%'") == 0
		})
	}
	var unlucky *rawClient
	ofUnlucky := func() *session {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		return w.server.sessions[unlucky.pid]
	}
	for name, f := range map[string]func(){
		"anywhere": func() { panic("a fault") },
		"with the session's lock": func() {
			ofUnlucky().mu.Lock()
			panic("a fault")
		},
		"by nothing at all": func() {
			var nothing *session
			nothing.number++
		},
	} {
		t.Run(name, func(t *testing.T) {
			unlucky = dialRaw(t, w.address, nil)
			unlucky.query("LISTEN news")
			unlucky.query("BEGIN")
			unlucky.query("INSERT INTO undeclared VALUES (1, 'x')")
			known := ofUnlucky()
			fault.Store(&f)
			wantCodes(t, unlucky.query("SELECT * FROM cleave.shards"), "XX000", "the end")
			fault.Store(nil)
			onlyHealthy(t)
			var looked atomic.Bool // by somebody who has found the session before it was gone
			go func() {
				_ = known.info()
				known.kill()
				looked.Store(true)
			}()
			eventually(t, "nobody waits for it", looked.Load)
		})
	}
	t.Run("at the door", func(t *testing.T) {
		atDoor.Store(true)
		defer atDoor.Store(false)
		c := newRaw(t, w.address)
		c.send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: loginAsPostgres})
		wantCodes(t, c.readyTimes(1), "XX000", "the end")
		onlyHealthy(t)
	})
	t.Run("beside the session", func(t *testing.T) {
		var p *panicked
		if err := caught(func() error { panic("a fault") }); !errors.As(err, &p) || p.cause != "a fault" {
			t.Errorf("%v", err)
		}
	})
	_ = healthy.conn.Close()
	if err := w.drain(); err != nil {
		t.Error(err)
	}
}

// TestRolesAtStart: a client that asks for a role when it connects is in it, and comes back to it, as with PostgreSQL.
func TestRolesAtStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{setUp: []string{"CREATE ROLE r_a", "CREATE ROLE r_b", "CREATE ROLE r_c", "GRANT r_c TO r_a"}})
	const who = "SELECT current_user, session_user, current_setting('is_superuser'), current_setting('role')"
	for _, options := range []string{"-c role=r_a", "-c session_authorization=r_a", "-c session_authorization=r_b -c role=r_a", "--session-authorization=r_a"} {
		for _, do := range [][]string{
			nil, {"RESET SESSION AUTHORIZATION"}, {"SET SESSION AUTHORIZATION DEFAULT"}, {"SET SESSION AUTHORIZATION r_b"},
			{"SET SESSION AUTHORIZATION r_b", "RESET SESSION AUTHORIZATION"}, {"SET SESSION AUTHORIZATION r_b", "SET SESSION AUTHORIZATION DEFAULT"},
			{"SET ROLE r_c", "RESET SESSION AUTHORIZATION"}, {"SET ROLE r_c", "RESET ROLE"}, {"SET ROLE NONE", "RESET SESSION AUTHORIZATION"},
			{"BEGIN", "SET LOCAL SESSION AUTHORIZATION r_b", who, "COMMIT"}, {"BEGIN", "RESET SESSION AUTHORIZATION", who, "COMMIT"},
		} {
			queries := append(slices.Clone(do), who)
			answers := func(address string) (said [][]string) {
				c := dialRaw(t, address, map[string]string{"options": options})
				defer c.conn.Close()
				for _, q := range queries {
					said = append(said, inOrder(c.query(q)))
				}
				return said
			}
			if diff := cmp.Diff(answers(w.plain.Addr()), answers(w.address)); diff != "" {
				t.Errorf("%s, %s: PostgreSQL (-) and the router (+) differ:\n%s", options, strings.Join(do, "; "), diff)
			}
		}
	}
}

// TestRolesAtStartOnAShard: a transaction that a shard has begun either comes back to the role as PostgreSQL does, or is refused.
func TestRolesAtStartOnAShard(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, shards: 1, setUp: []string{"CREATE ROLE r_a"}})
	for _, reset := range []string{"SET SESSION AUTHORIZATION DEFAULT", "RESET SESSION AUTHORIZATION"} {
		c := dialRaw(t, w.address, map[string]string{"options": "-c role=r_a"})
		c.query("BEGIN")
		c.query("SELECT 1 FROM pg_class LIMIT 1")
		refused := strings.Contains(strings.Join(c.query(reset), " "), "0A000")
		if said := c.query("SELECT current_user"); !refused && !slices.Contains(said, `row "r_a"`) {
			t.Errorf("%s: in the transaction it is %q", reset, said)
		}
		c.query("COMMIT")
		for range 2 {
			if said := c.query("SELECT current_user"); !slices.Contains(said, `row "r_a"`) {
				t.Errorf("%s: afterwards it is %q", reset, said)
			}
		}
	}
}

// TestPoolModeAtStart: who asks for transaction mode keeps no backend, whatever the default is.
func TestPoolModeAtStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, shards: 1, config: Config{Mode: SessionMode}})
	c := dialRaw(t, w.address, map[string]string{"options": "-c cleave.pool_mode=transaction"})
	w.settled(t)
	c.query("SELECT 1")
	w.settled(t)
	for _, s := range w.server.Sessions() {
		if len(s.Pins) > 0 {
			t.Errorf("it keeps %+v", s.Pins)
		}
	}
	dialRaw(t, w.address, nil).query("SELECT 1")
	if n := w.pools.Stats()[0].InUse; n != 1 {
		t.Errorf("a client that asks for nothing keeps %d backends", n)
	}
}

// TestLongNames: a name that is too long is for everybody what PostgreSQL makes of it.
func TestLongNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"short": "short", strings.Repeat("a", 63): strings.Repeat("a", 63), strings.Repeat("a", 64): strings.Repeat("a", 63),
		strings.Repeat("a", 62) + "é": strings.Repeat("a", 62), strings.Repeat("a", 61) + "éb": strings.Repeat("a", 61) + "é", strings.Repeat("\xbf", 70): "",
	} {
		if got := clipName(name); got != want {
			t.Errorf("%q becomes %q", name, got)
		}
	}
	barred, welcome := strings.Repeat("b", 63), strings.Repeat("w", 63)
	rules := must[auth.Rules](t)(auth.ParseRules([]auth.RuleSpec{{Users: []string{barred}, Method: "reject"}, {Addresses: []string{"loopback"}, Method: "trust"}}))
	w := newWorld(t, worldConfig{
		noPlain: true, shards: 1, config: Config{Rules: rules},
		setUp: []string{"CREATE ROLE " + barred + " LOGIN", "CREATE ROLE " + welcome + " LOGIN"},
	})
	login := func(user string) *rawClient {
		c := newRaw(t, w.address)
		c.send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": user, "database": "postgres"}})
		return c
	}
	wantCodes(t, login(barred).readyTimes(1), "28000", "the end")
	wantCodes(t, login(barred+"more").readyTimes(1), "28000", "the end")
	c := login(welcome + "more")
	wantCodes(t, c.readyTimes(1), "", "ready I")
	if said := c.query("SELECT current_user"); !slices.Contains(said, fmt.Sprintf("row %q", welcome)) {
		t.Errorf("it is %q", said)
	}
}
