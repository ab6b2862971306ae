// Package proxy stands between a router and a shard and does to their connections what networks do: it cuts them, it swallows what is said without
// a word to either side, and it turns new ones away.
//
// A [Proxy] listens at an address of its own, which is what the shard map has, and passes everything on to its target, which may change: that is
// how a promoted replica takes the place of its primary. [Proxy.Cut] resets connections; [Proxy.Stall] is the black hole, in one direction or in both, to new
// connections too, until [Proxy.Resume]; [Proxy.Refuse] is for new connections alone. What was stalled is passed on later, as after a lost route.
//
// It knows no protocol and looks at no byte. All methods are safe for concurrent use. [Proxy.Close] ends everything and waits.
package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Direction is where bytes go.
type Direction int

// The directions.
const (
	ToServer Direction = iota // from those who connected
	ToClient
	directions
)

// Proxy passes connections on. Make it with [Start].
type Proxy struct {
	listener net.Listener
	gates    [directions]gate
	running  sync.WaitGroup

	mu       sync.Mutex
	target   string
	refusing bool
	closed   bool
	open     map[*passage]struct{}
}

// passage is one connection through the proxy.
type passage struct {
	client *net.TCPConn
	server *net.TCPConn // nil while the target is being dialled
	ended  chan struct{}
	end    sync.Once
}

// Start listens at the address and passes connections on to the target.
func Start(address, target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	p := &Proxy{listener: listener, target: target, open: map[*passage]struct{}{}}
	p.running.Go(p.accept)
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetTarget is for connections made from now on.
func (p *Proxy) SetTarget(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = address
}

// Refuse turns new connections away, or does so no more.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = refuse
}

// Stall swallows what goes in these directions, in both if none is given, until Resume.
func (p *Proxy) Stall(which ...Direction) {
	if len(which) == 0 {
		which = []Direction{ToServer, ToClient}
	}
	for _, d := range which {
		p.gates[d].shut()
	}
}

// Resume passes on what was stalled, and what comes.
func (p *Proxy) Resume() {
	for d := range p.gates {
		p.gates[d].openUp()
	}
}

// Cut resets all connections, stalled ones too, and returns how many there were. What is on its way may be lost.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for one := range p.open {
		one.reset()
	}
	return len(p.open)
}

// Close ends the proxy and its connections, and waits.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Cut()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // closed; nothing else ends a listener on the loopback address
		}
		one := &passage{client: conn.(*net.TCPConn), ended: make(chan struct{})}
		if !p.admit(one) {
			one.reset()
			continue
		}
		p.running.Go(func() {
			p.pass(one)
			p.mu.Lock()
			delete(p.open, one)
			p.mu.Unlock()
		})
	}
}

// admit says whether the connection is taken.
func (p *Proxy) admit(one *passage) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusing || p.closed {
		return false
	}
	p.open[one] = struct{}{}
	return true
}

// dialPatience is more than a server on this machine takes to answer or not to.
const dialPatience = 5 * time.Second

// pass carries one connection to its end.
func (p *Proxy) pass(one *passage) {
	defer one.reset()
	if !p.gates[ToServer].pass(one.ended) {
		return
	}
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.DialTimeout("tcp", target, dialPatience)
	if err != nil || !p.connected(one, server.(*net.TCPConn)) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.copy(one, one.server, one.client, &p.gates[ToServer]) })
	both.Go(func() { p.copy(one, one.client, one.server, &p.gates[ToClient]) })
	both.Wait()
}

// connected notes the other side of the connection, unless the connection has been cut meanwhile.
func (p *Proxy) connected(one *passage, server *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-one.ended:
		_ = server.Close()
		return false
	default:
		one.server = server
		return true
	}
}

// copy passes on what comes, and its end: the end of one direction as that, anything worse as a reset of both.
func (p *Proxy) copy(one *passage, to, from *net.TCPConn, through *gate) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !through.pass(one.ended) {
			return
		}
		if n > 0 {
			if _, failed := to.Write(buffer[:n]); failed != nil {
				one.reset()
				return
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			_ = to.CloseWrite()
			return
		default:
			one.reset()
			return
		}
	}
}

// reset ends both sides at once. With the proxy's lock held, or when the connection is not among the open ones, or by those who carry it.
func (one *passage) reset() {
	one.end.Do(func() {
		close(one.ended)
		for _, conn := range []*net.TCPConn{one.client, one.server} {
			if conn != nil {
				_ = conn.SetLinger(0)
				_ = conn.Close()
			}
		}
	})
}

// gate lets pass, or makes wait.
type gate struct {
	mu      sync.Mutex
	barrier chan struct{} // closed when it opens; nil while it is open
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.barrier == nil {
		g.barrier = make(chan struct{})
	}
}

func (g *gate) openUp() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.barrier != nil {
		close(g.barrier)
		g.barrier = nil
	}
}

// pass waits while the gate is shut; false if the connection ended first.
func (g *gate) pass(ended <-chan struct{}) bool {
	for {
		g.mu.Lock()
		shut := g.barrier
		g.mu.Unlock()
		if shut == nil {
			return true
		}
		select {
		case <-shut:
		case <-ended:
			return false
		}
	}
}
