package proxy_test

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/test/faults/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a server that answers with a letter of its own and what it hears. It ends with the test.
func echo(t *testing.T, letter string) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, letter)
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	return listener.Addr().String()
}

func start(t *testing.T, target string) *proxy.Proxy {
	t.Helper()
	p, err := proxy.Start("127.0.0.1:0", target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func dial(t *testing.T, p *proxy.Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// hears wants the text to come.
func hears(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("heard %q, %v; want %q", got, err, want)
	}
}

// hearsNothing wants silence for a moment.
func hearsNothing(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("heard %d bytes, %v; want silence", n, err)
	}
}

// isCut wants the connection to be gone.
func isCut(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("heard %d bytes, %v; want the end", n, err)
	}
}

// getsNowhere wants a new connection to end at once, which may be heard as early as while dialling.
func getsNowhere(t *testing.T, p *proxy.Proxy) {
	t.Helper()
	if conn, err := net.Dial("tcp", p.Addr()); err == nil {
		isCut(t, conn)
		_ = conn.Close()
	}
}

func say(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsSaidIsPassedOn(t *testing.T) {
	p := start(t, echo(t, "a"))
	conn := dial(t, p)
	hears(t, conn, "a")
	say(t, conn, "hello")
	hears(t, conn, "hello")
	say(t, conn, "bye")
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	hears(t, conn, "bye")
	isCut(t, conn)
}

func TestConnectionsAreCut(t *testing.T) {
	p := start(t, echo(t, "a"))
	first, second := dial(t, p), dial(t, p)
	hears(t, first, "a")
	hears(t, second, "a")
	if n := p.Cut(); n != 2 {
		t.Errorf("%d were cut", n)
	}
	isCut(t, first)
	isCut(t, second)
	hears(t, dial(t, p), "a")
}

func TestStalledInBothDirections(t *testing.T) {
	p := start(t, echo(t, "a"))
	old := dial(t, p)
	hears(t, old, "a")
	p.Stall()
	say(t, old, "hello")
	hearsNothing(t, old)
	fresh := dial(t, p)
	hearsNothing(t, fresh)
	p.Resume()
	hears(t, old, "hello")
	hears(t, fresh, "a")
	p.Stall()
	p.Cut()
	isCut(t, old)
	isCut(t, fresh)
}

// TestOnlyTheAnswerIsStalled: the server has heard it.
func TestOnlyTheAnswerIsStalled(t *testing.T) {
	heard := make(chan string, 1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		text := make([]byte, 5)
		_, _ = io.ReadFull(conn, text)
		_, _ = io.WriteString(conn, "yes")
		heard <- string(text)
	}()
	p := start(t, listener.Addr().String())
	conn := dial(t, p)
	p.Stall(proxy.ToClient)
	say(t, conn, "hello")
	select {
	case text := <-heard:
		if text != "hello" {
			t.Errorf("the server heard %q", text)
		}
	case <-time.After(time.Minute):
		t.Fatal("the server heard nothing")
	}
	hearsNothing(t, conn) // nor of the end
	p.Cut()
	isCut(t, conn)
}

func TestNewConnectionsAreRefused(t *testing.T) {
	p := start(t, echo(t, "a"))
	old := dial(t, p)
	hears(t, old, "a")
	p.Refuse(true)
	getsNowhere(t, p)
	say(t, old, "still here")
	hears(t, old, "still here")
	p.Refuse(false)
	hears(t, dial(t, p), "a")
}

func TestAnotherTarget(t *testing.T) {
	first, second := echo(t, "a"), echo(t, "b")
	p := start(t, first)
	old := dial(t, p)
	hears(t, old, "a")
	p.SetTarget(second)
	hears(t, dial(t, p), "b")
	say(t, old, "x")
	hears(t, old, "x")
	p.SetTarget("127.0.0.1:1") // where nobody is
	getsNowhere(t, p)
}
