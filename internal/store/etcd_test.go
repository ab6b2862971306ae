package store

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// testEtcd is an etcd for tests: one member in this process, or several processes.
type testEtcd interface {
	endpoints() []string
	// stop takes all of it away, without a farewell where it can be; start brings it back with what it had stored.
	stop(t testing.TB)
	start(t testing.TB)
	// disturb does the worst that clients should not notice, and returns what mends it.
	disturb(t testing.TB) (mend func())
}

func needsServers(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts servers")
	}
}

// member is one embedded member in this process.
type member struct {
	dir  string
	port int
	e    *Embedded
}

func startMember(t testing.TB) *member {
	t.Helper()
	needsServers(t)
	m := &member{dir: t.TempDir()}
	m.start(t)
	t.Cleanup(func() { m.e.Close() })
	return m
}

func (m *member) endpoints() []string { return m.e.Endpoints() }

func (m *member) start(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	for {
		m.e, err = StartEmbedded(ctx, EmbeddedConfig{Dir: m.dir, ClientPort: m.port, Fast: true})
		if !errors.Is(err, syscall.EADDRINUSE) || ctx.Err() != nil {
			break
		}
		time.Sleep(100 * time.Millisecond) // a connection of another test may have the port for a moment
	}
	if err != nil {
		t.Fatal(err)
	}
	address, err := net.ResolveTCPAddr("tcp", m.e.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	m.port = address.Port
}

func (m *member) stop(testing.TB) { m.e.Close() }

// disturb restarts the only member there is: gone, and back at once.
func (m *member) disturb(t testing.TB) func() {
	m.stop(t)
	m.start(t)
	return func() {}
}

// processes is a cluster of members that are processes of their own.
type processes struct {
	configs []EmbeddedConfig
	running []*process // by member; nil: dead
}

type process struct {
	command *exec.Cmd
	stdin   io.Closer // its end tells the member to stop, should the test die
	out     *bufio.Reader
}

func startProcesses(t testing.TB, n int, changes ...func(*EmbeddedConfig)) *processes {
	t.Helper()
	needsServers(t)
	ports := freePorts(t, 2*n)
	peers := map[string]int{}
	for i := range n {
		peers[memberName(i)] = ports[n+i]
	}
	c := &processes{running: make([]*process, n)}
	for i := range n {
		config := EmbeddedConfig{Dir: t.TempDir(), Name: memberName(i), ClientPort: ports[i], Fast: true}
		if n > 1 {
			config.Peers = peers
		}
		for _, change := range changes {
			change(&config)
		}
		c.configs = append(c.configs, config)
	}
	t.Cleanup(func() { c.stop(t) })
	c.start(t)
	return c
}

func memberName(i int) string { return fmt.Sprintf("member-%d", i) }

// freePorts returns ports that were free a moment ago.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		ports[i] = listener.Addr().(*net.TCPAddr).Port
	}
	return ports
}

func (c *processes) endpoints() []string {
	endpoints := make([]string, len(c.configs))
	for i, config := range c.configs {
		endpoints[i] = fmt.Sprintf("127.0.0.1:%d", config.ClientPort)
	}
	return endpoints
}

// start starts the members that are not running and waits for them.
func (c *processes) start(t testing.TB) {
	t.Helper()
	var started []*process
	for i, p := range c.running {
		if p == nil {
			c.running[i] = c.spawn(t, i)
			started = append(started, c.running[i])
		}
	}
	for _, p := range started {
		if line, err := p.out.ReadString('\n'); err != nil {
			t.Fatalf("a member did not start: %q, %v", line, err)
		}
	}
}

func (c *processes) spawn(t testing.TB, i int) *process {
	t.Helper()
	config, err := json.Marshal(c.configs[i])
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), memberEnv+"="+string(config))
	command.Stderr = os.Stderr
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return &process{command, stdin, bufio.NewReader(stdout)}
}

func (c *processes) kill(i int) {
	if p := c.running[i]; p != nil {
		_ = p.command.Process.Kill()
		_ = p.command.Wait()
		_ = p.stdin.Close()
		c.running[i] = nil
	}
}

func (c *processes) stop(testing.TB) {
	for i := range c.running {
		c.kill(i)
	}
}

// disturb kills the leading member.
func (c *processes) disturb(t testing.TB) func() {
	t.Helper()
	c.kill(c.leader(t))
	return func() { c.start(t) }
}

// leader returns which member leads.
func (c *processes) leader(t testing.TB) int {
	t.Helper()
	client := rawClient(t, c.endpoints())
	for i, endpoint := range c.endpoints() {
		status, err := client.Status(testContext(t), endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if status.Leader == status.Header.MemberId {
			return i
		}
	}
	t.Fatal("no member leads")
	return 0
}

// rawClient returns a plain client, to look behind the store's back.
func rawClient(t testing.TB, endpoints []string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// compact forgets all history but the newest.
func compact(t testing.TB, endpoints []string) {
	t.Helper()
	client := rawClient(t, endpoints)
	now, err := client.Get(testContext(t), "anything")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(testContext(t), now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
}

// testContext ends with the test, or when the test has surely hung.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// openStore opens a store under a prefix of the test's own.
func openStore(t testing.TB, endpoints []string, changes ...func(*Config)) *Store {
	t.Helper()
	config := Config{
		Endpoints: endpoints, Prefix: "/" + t.Name(), RequestTimeout: DefaultRequestTimeout, LeaseTTL: time.Second,
		ProbeInterval: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}
	for _, change := range changes {
		change(&config)
	}
	s, err := Open(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// impatient makes a store report soon that etcd is away.
func impatient(c *Config) { c.RequestTimeout = 400 * time.Millisecond }

// eventually waits for something that must come to pass.
func eventually(t testing.TB, what string, happened func() bool) {
	t.Helper()
	for ctx := testContext(t); !happened(); {
		if !sleep(ctx, 5*time.Millisecond) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// proxy stands between a client and a server, and can come between them.
type proxy struct {
	listener net.Listener
	target   string
	loops    sync.WaitGroup

	mu    sync.Mutex
	mode  proxyMode
	conns map[net.Conn]bool
	mood  chan struct{} // closed when the mode changes
}

type proxyMode int

const (
	passing proxyMode = iota
	refusing
	silent // connections stay, nothing passes
)

func startProxy(t testing.TB, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: target, conns: map[net.Conn]bool{}, mood: make(chan struct{})}
	p.loops.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.set(refusing)
		p.loops.Wait()
	})
	return p
}

func (p *proxy) endpoints() []string { return []string{p.listener.Addr().String()} }

// set changes what the proxy does. To refuse, it ends what there is.
func (p *proxy) set(mode proxyMode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = mode
	close(p.mood)
	p.mood = make(chan struct{})
	if mode == refusing {
		for conn := range p.conns {
			_ = conn.Close()
		}
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.adopt(client, server) {
			continue
		}
		p.loops.Go(func() { p.relay(client, server) })
		p.loops.Go(func() { p.relay(server, client) })
	}
}

func (p *proxy) adopt(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		if p.mode == refusing {
			_ = conn.Close()
		} else {
			p.conns[conn] = true
		}
	}
	return p.mode != refusing
}

func (p *proxy) relay(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil || !p.mayPass() {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// mayPass waits while the proxy is silent.
func (p *proxy) mayPass() bool {
	for {
		p.mu.Lock()
		mode, mood := p.mode, p.mood
		p.mu.Unlock()
		if mode != silent {
			return mode == passing
		}
		<-mood
	}
}

// logBook collects log lines.
type logBook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBook) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

func (b *logBook) count(phrase string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.text.String(), phrase)
}

func (b *logBook) use(c *Config) { c.Logger = slog.New(slog.NewTextHandler(b, nil)) }
