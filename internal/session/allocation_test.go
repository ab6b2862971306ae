package session

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/internal/wire"
)

// TestNoAllocations: in the steady state a statement for one shard takes no memory, in both protocols.
func TestNoAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	for _, c := range steadyStatements(t) {
		t.Run(c.name, func(t *testing.T) {
			if n := testing.AllocsPerRun(2000, c.exchange); n >= 1 {
				t.Errorf("a statement takes %v allocations", n)
			}
		})
	}
}

// BenchmarkStatement is the router's own part of a statement: client and shard are in this process and do nothing.
func BenchmarkStatement(b *testing.B) {
	for _, c := range steadyStatements(b) {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.exchange()
			}
		})
	}
}

// steadyStatement is a statement that a client sends over and over.
type steadyStatement struct {
	name     string
	exchange func()
}

// steadyStatements are ways to read one row by its key, through a router whose shards are stubs.
func steadyStatements(t testing.TB) []steadyStatement {
	t.Helper()
	w := newStubWorld(t)
	literal := fmt.Sprintf("SELECT note FROM orders WHERE id = %d", w.key(t, 2, 0))
	const param = "SELECT note FROM orders WHERE id = $1"
	value := text(w.key(t, 2, 0))
	inBinary := bind("", "s", value)
	inBinary.ResultFormatCodes = []int16{1}
	inBinary.Parameters, inBinary.ParameterFormatCodes = [][]byte{binary.BigEndian.AppendUint64(nil, uint64(w.key(t, 2, 0)))}, []int16{1}
	w.server.numbers.put(2, &numbering{epoch: w.server.epoch.Load() + w.server.planner.catalog.Epoch(), differ: true}) // so that types are looked at
	id := w.id(t, 2)
	byID := fmt.Sprintf("SELECT note FROM parcels WHERE id = %d", id)
	statements := []struct {
		name          string
		first, always []pgproto3.FrontendMessage
	}{
		{"simple", nil, pipeline(&pgproto3.Query{String: literal})},
		{"unnamed", nil, pipeline(parse("", param, 20), bind("", "", value), describePortal(""), run(""), sync1)},
		{"unnamed with a literal", nil, pipeline(parse("", literal), bind("", ""), describePortal(""), run(""), sync1)},
		{"prepared", pipeline(parse("s", param, 20), sync1), pipeline(bind("", "s", value), run(""), sync1)},
		{"prepared with a literal", pipeline(parse("s", literal), sync1), pipeline(bind("", "s"), run(""), sync1)},
		{"prepared without types", pipeline(parse("s", param), sync1), pipeline(bind("", "s", value), describePortal(""), run(""), sync1)},
		{"by id", nil, pipeline(&pgproto3.Query{String: byID})},
		{"prepared by id", pipeline(parse("s", "SELECT note FROM parcels WHERE id = $1", 20), sync1), pipeline(bind("", "s", text(id)), run(""), sync1)},
		{"prepared in binary format", pipeline(parse("s", param), describeStatement("s"), sync1), pipeline(inBinary, run(""), sync1)},
		{"prepared in binary format and not described", pipeline(parse("s", param, 20), sync1), pipeline(inBinary, run(""), sync1)},
		{"in a transaction", pipeline(&pgproto3.Query{String: "BEGIN"}, &pgproto3.Query{String: literal}), pipeline(&pgproto3.Query{String: literal})},
	}
	steady := make([]steadyStatement, len(statements))
	for i, s := range statements {
		c := dialRaw(t, w.address, nil)
		if len(s.first) > 0 {
			wantCodes(t, c.ask(s.first...), "", "")
		}
		wantCodes(t, c.ask(s.always...), "", "")
		steady[i] = steadyStatement{s.name, echo(t, c.conn, encode(t, s.always...))}
	}
	return steady
}

// echo returns a function that writes the request and reads the answer, which is as long each time.
func echo(t testing.TB, conn net.Conn, request []byte) func() {
	t.Helper()
	_ = conn.SetReadDeadline(time.Time{})
	if _, err := conn.Write(request); err != nil {
		t.Fatal(err)
	}
	in, size := bufio.NewReader(conn), 0
	for kind := byte(0); kind != wire.RespReadyForQuery; {
		header := must[[]byte](t)(in.Peek(wire.HeaderSize))
		k, n, err := wire.Frame(header)
		if err != nil {
			t.Fatal(err)
		}
		kind, size = k, size+n
		must[int](t)(in.Discard(n))
	}
	answer := make([]byte, size)
	return func() {
		if _, err := conn.Write(request); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, answer); err != nil {
			t.Fatal(err)
		}
	}
}

// newStubWorld has a real home shard for the catalogue, and stubs where statements go.
func newStubWorld(t testing.TB) *world {
	t.Helper()
	numbers := numbersConfig(2)
	return newWorld(t, worldConfig{noPlain: true, setUp: numbers.setUp, tables: numbers.tables, onShards: numbers.onShards, moved: func(m *topology.Map) *topology.Map {
		for _, name := range []string{"s1", "s2"} {
			address := startStub(t)
			m = must[*topology.Map](t)(m.Next(topology.UpdateShard(name, func(s *topology.ShardSpec) { s.Primary.Address = address })))
		}
		return m
	}})
}

func startStub(t testing.TB) (address string) {
	t.Helper()
	stubs := &stub{}
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	var served sync.WaitGroup
	served.Go(func() { stubs.accept(listener, &served) })
	t.Cleanup(func() {
		_ = listener.Close()
		stubs.close()
		served.Wait()
	})
	return listener.Addr().String()
}

// stub answers every statement with the same row, as fast as it can.
type stub struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (s *stub) accept(listener net.Listener, served *sync.WaitGroup) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns = append(s.conns, conn)
		s.mu.Unlock()
		served.Go(func() { serveStub(conn) })
	}
}

func (s *stub) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
}

var (
	stubRow  = wire.AppendDataRow(nil, [][]byte{[]byte("some text")})
	stubDone = wire.AppendCommandComplete(nil, "SELECT 1")
	stubRows = wire.AppendRowDescription(nil, []wire.Column{{Name: []byte("note"), TypeOID: 25, TypeSize: -1, TypeModifier: -1}})
)

func serveStub(conn net.Conn) {
	in := bufio.NewReaderSize(conn, 64<<10)
	size, err := in.Peek(4)
	if err != nil {
		return
	}
	length, err := wire.StartupSize(size)
	if err != nil {
		return
	}
	_, _ = in.Discard(length)
	out := wire.AppendAuthenticationOK(nil)
	for name, value := range map[string]string{"client_encoding": "UTF8", "standard_conforming_strings": "on", "TimeZone": "UTC", "server_version": "15.0"} {
		out = wire.AppendParameterStatus(out, name, value)
	}
	out = wire.AppendReadyForQuery(wire.AppendBackendKeyData(out, 1, []byte("1234")), statusIdle)
	status := byte(statusIdle)
	for {
		if in.Buffered() == 0 && len(out) > 0 {
			if _, err := conn.Write(out); err != nil {
				return
			}
			out = out[:0]
		}
		header, err := in.Peek(wire.HeaderSize)
		if err != nil {
			return
		}
		kind, size, err := wire.Frame(header)
		if err != nil {
			return
		}
		message, err := in.Peek(size)
		if err != nil {
			return
		}
		out = answerStub(out, kind, wire.Body(message), &status)
		_, _ = in.Discard(size)
	}
}

func answerStub(out []byte, kind byte, body []byte, status *byte) []byte {
	switch kind {
	case wire.MsgQuery:
		isHello := len(body) > 100
		switch text := string(body[:min(len(body), 5)]); {
		case text == "BEGIN" && !isHello:
			*status = statusOpen
			out = wire.AppendCommandComplete(out, "BEGIN")
		case text == "SET \"", text == "RESET":
			out = wire.AppendCommandComplete(out, "SET")
		default:
			out = append(out, stubRows...)
			if isHello {
				greeting := make([][]byte, shard.GreetingColumns)
				copy(greeting, [][]byte{[]byte("public"), []byte("postgres"), []byte("150000"), []byte("100"), []byte("3"), []byte("1"), []byte("f"), []byte("7"), []byte("1"), []byte("1"), nil, nil, nil, []byte("0")})
				out = wire.AppendDataRow(out, greeting)
			} else {
				out = append(out, stubRow...)
			}
			out = append(out, stubDone...)
		}
		return wire.AppendReadyForQuery(out, *status)
	case wire.MsgParse:
		return wire.AppendParseComplete(out)
	case wire.MsgBind:
		return wire.AppendBindComplete(out)
	case wire.MsgDescribe:
		if body[0] == 'S' {
			out = wire.AppendParameterDescription(out, []uint32{20})
		}
		return append(out, stubRows...)
	case wire.MsgExecute:
		return append(append(out, stubRow...), stubDone...)
	case wire.MsgClose:
		return wire.AppendCloseComplete(out)
	case wire.MsgSync:
		return wire.AppendReadyForQuery(out, *status)
	default:
		return out
	}
}
