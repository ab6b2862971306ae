package relay_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/bench/relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// start runs a relay before the server; the returned function ends it and waits.
func start(t *testing.T, server string) (address string, stop func()) {
	t.Helper()
	listener := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- relay.Serve(ctx, listener, server) }()
	return listener.Addr().String(), func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute)) // what gets lost is a failure, not a test that hangs
	return conn
}

// echo answers every byte with itself, for one client.
func echo(t *testing.T, server net.Listener) {
	t.Helper()
	go func() {
		conn, err := server.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, conn)
	}()
}

func TestEveryByteArrivesBothWays(t *testing.T) {
	server := listen(t)
	echo(t, server)
	address, stop := start(t, server.Addr().String())
	defer stop()
	client := dial(t, address)
	sent := make([]byte, 1<<20) // many buffers
	_, _ = rand.Read(sent)
	go func() { _, _ = client.Write(sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(client, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sent) {
		t.Error("what came back is not what was sent")
	}
}

func TestOneEndHangsUpOnTheOther(t *testing.T) {
	server := listen(t)
	address, stop := start(t, server.Addr().String())
	defer stop()
	client := dial(t, address)
	behind, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = behind.Close()
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Error("the server hung up and the client did not notice")
	}
}

func TestClientOfNoServerIsHungUpOn(t *testing.T) {
	gone := listen(t)
	_ = gone.Close()
	address, stop := start(t, gone.Addr().String())
	defer stop()
	if _, err := dial(t, address).Read(make([]byte, 1)); err == nil {
		t.Error("a client of no server got an answer")
	}
}

func TestServeEndsWithClientsConnected(t *testing.T) {
	server := listen(t)
	echo(t, server)
	address, stop := start(t, server.Addr().String())
	client := dial(t, address)
	if _, err := client.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	stop()
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Error("the client is still served")
	}
}
