package wire

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/pgerr"
)

// client talks to a real server in our bytes alone.
type client struct {
	t    *testing.T
	conn net.Conn
}

// connect logs in with a startup packet, and returns the answers up to ReadyForQuery too.
func connect(t *testing.T, server *localpg.Server, startup []byte) (client, [][]byte) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := client{t, conn}
	return c, c.ask(startup)
}

// ask returns the answers up to ReadyForQuery, or up to the end of the connection.
func (c client) ask(messages []byte) [][]byte {
	c.t.Helper()
	if _, err := c.conn.Write(messages); err != nil {
		c.t.Fatal(err)
	}
	var answers [][]byte
	for {
		message, err := c.read()
		if errors.Is(err, io.EOF) {
			return answers
		}
		if err != nil {
			c.t.Fatal(err)
		}
		answers = append(answers, message)
		if message[0] == RespReadyForQuery {
			return answers
		}
	}
}

func (c client) read() ([]byte, error) {
	header := make([]byte, HeaderSize)
	if _, err := io.ReadFull(c.conn, header); err != nil {
		return nil, err
	}
	_, size, err := Frame(header)
	if err != nil {
		return nil, err
	}
	message := make([]byte, size)
	copy(message, header)
	_, err = io.ReadFull(c.conn, Body(message))
	return message, err
}

// failure returns the error among the answers, if there is one.
func failure(t *testing.T, answers [][]byte) *pgerr.Error {
	t.Helper()
	for _, a := range answers {
		if a[0] == RespError {
			f, err := DecodeError(Body(a))
			return must(t, f, err).PGError()
		}
	}
	return nil
}

func kinds(answers [][]byte) string {
	var k []byte
	for _, a := range answers {
		k = append(k, a[0])
	}
	return string(k)
}

func login(t *testing.T, server *localpg.Server) []byte {
	t.Helper()
	return must2(t)(AppendStartup(nil, []Parameter{{"user", server.Superuser()}, {"database", "postgres"}}))
}

// TestServer holds a conversation in our bytes with a real server, then holds our refusals against the server's.
func TestServer(t *testing.T) {
	server := pgtest.Start(t)
	t.Run("conversation", func(t *testing.T) { testConversation(t, server) })
	t.Run("refusals", func(t *testing.T) { testRefusals(t, server) })
	t.Run("newer protocol", func(t *testing.T) { testNewerProtocol(t, server) })
	t.Run("startup refusals", func(t *testing.T) { testServerStartupRefusals(t, server) })
}

func testConversation(t *testing.T, server *localpg.Server) {
	c, answers := connect(t, server, login(t, server))
	if err := failure(t, answers); err != nil {
		t.Fatal(err)
	}
	unit := AppendParse(nil, "s", "select $1::int + 1, $2::text", []uint32{23})
	unit = AppendDescribe(unit, TargetStatement, "s")
	unit = AppendBind(unit, "p", "s", []int16{1, 0}, [][]byte{{0, 0, 0, 41}, nil}, []int16{0})
	unit = AppendExecute(unit, "p", 0)
	unit = AppendClose(unit, TargetPortal, "p")
	answers = c.ask(AppendSync(unit))
	if got := kinds(answers); got != "1tT2DC3Z" {
		t.Fatalf("answers %s: %v", got, failure(t, answers))
	}
	oids, err := DecodeParameterDescription(Body(answers[1]))
	if must(t, oids, err); oids.Count() != 2 || oids.At(0) != 23 || oids.At(1) != 25 {
		t.Errorf("parameters %v", oids)
	}
	row, err := DecodeDataRow(Body(answers[4]))
	if values := valuesOf(must(t, row, err)); len(values) != 2 || string(values[0]) != "42" || values[1] != nil {
		t.Errorf("row %q", values)
	}
	if tag, err := DecodeCommandComplete(Body(answers[5])); CommandRows(must(t, tag, err)) != 1 {
		t.Errorf("tag %q", tag)
	}
}

// malformed are messages of an extended query that are wrong, or only look so.
func malformed() map[string][]byte {
	message := func(kind byte, body string) []byte { return appendBytesMessage(nil, kind, []byte(body)) }
	return map[string][]byte{
		"query without end":            message(MsgQuery, "select 1"),
		"query with more":              message(MsgQuery, "select 1\x00x"),
		"query of nothing":             message(MsgQuery, ""),
		"parse without end":            message(MsgParse, "s"),
		"parse without query":          message(MsgParse, "s\x00"),
		"parse without count":          message(MsgParse, "s\x00select 1\x00"),
		"parse with half a count":      message(MsgParse, "s\x00select 1\x00\x00"),
		"parse with too few types":     message(MsgParse, "s\x00select 1\x00\x00\x02\x00\x00\x00\x17"),
		"parse with most types":        message(MsgParse, "s\x00select 1\x00\xff\xff"),
		"parse with more":              message(MsgParse, "s\x00select 1\x00\x00\x00x"),
		"bind without statement":       message(MsgBind, "\x00"),
		"bind without formats":         message(MsgBind, "\x00one\x00"),
		"bind without parameters":      message(MsgBind, "\x00one\x00\x00\x00"),
		"bind without results":         message(MsgBind, "\x00one\x00\x00\x00\x00\x01\x00\x00\x00\x011"),
		"bind with short value":        message(MsgBind, "\x00one\x00\x00\x00\x00\x01\x00\x00\x00\x021"),
		"bind with negative length":    message(MsgBind, "\x00one\x00\x00\x00\x00\x01\xff\xff\xff\xfe\x00\x00"),
		"bind with more":               message(MsgBind, "\x00one\x00\x00\x00\x00\x01\x00\x00\x00\x011\x00\x00x"),
		"bind, formats do not match":   AppendBind(nil, "", "one", []int16{0, 0}, [][]byte{[]byte("1")}, nil),
		"bind, formats for none":       AppendBind(nil, "", "none", []int16{0, 0}, nil, nil),
		"bind, strange format":         AppendBind(nil, "", "one", []int16{7}, [][]byte{[]byte("1")}, nil),
		"bind, negative format":        AppendBind(nil, "", "one", []int16{-1}, [][]byte{[]byte("1")}, nil),
		"bind, strange format of none": AppendBind(nil, "", "none", []int16{7}, nil, nil),
		"bind as it should be":         AppendBind(nil, "", "one", nil, [][]byte{[]byte("1")}, []int16{1}),
		"describe of nothing":          message(MsgDescribe, ""),
		"describe without name":        message(MsgDescribe, "S"),
		"describe of something":        message(MsgDescribe, "X\x00"),
		"describe with more":           message(MsgDescribe, "Sone\x00x"),
		"close of nothing":             message(MsgClose, ""),
		"close of something":           message(MsgClose, "X\x00"),
		"close with more":              message(MsgClose, "Snone such\x00x"),
		"execute without portal":       message(MsgExecute, ""),
		"execute without limit":        message(MsgExecute, "\x00\x00"),
		"execute with more":            message(MsgExecute, "\x00\x00\x00\x00\x00x"),
	}
}

func decodeFrontend(message []byte) (err error) {
	body := Body(message)
	switch message[0] {
	case MsgQuery:
		_, err = DecodeQuery(body)
	case MsgParse:
		_, err = DecodeParse(body)
	case MsgBind:
		_, err = DecodeBind(body)
	case MsgDescribe:
		_, err = DecodeDescribe(body)
	case MsgClose:
		_, err = DecodeClose(body)
	case MsgExecute:
		_, err = DecodeExecute(body)
	}
	return err
}

// testRefusals: we refuse what the server refuses, in its words, and nothing else.
func testRefusals(t *testing.T, server *localpg.Server) {
	c, _ := connect(t, server, login(t, server))
	prepared := AppendParse(AppendParse(nil, "one", "select $1::int", nil), "none", "select 1", nil)
	if err := failure(t, c.ask(AppendSync(prepared))); err != nil {
		t.Fatal(err)
	}
	for name, message := range malformed() {
		unit := message
		if message[0] != MsgQuery { // after which the server is ready without being asked
			unit = AppendSync(message)
		}
		theirs := failure(t, c.ask(unit))
		err := decodeFrontend(message)
		if theirs == nil {
			if err != nil {
				t.Errorf("%s: the server takes it, and we say %v", name, err)
			}
			continue
		}
		var ours *pgerr.Error
		if !errors.As(err, &ours) || ours.Code != theirs.Code || ours.Message != theirs.Message || ours.Severity != theirs.Severity {
			t.Errorf("%s: the server says %s %v, and we %v", name, theirs.Severity, theirs, err)
		}
	}
}

// testNewerProtocol: the offer to go on with an older protocol is the one that servers make.
func testNewerProtocol(t *testing.T, server *localpg.Server) {
	parameters := "user\x00" + server.Superuser() + "\x00database\x00postgres\x00_pq_.wish\x00x\x00\x00"
	_, answers := connect(t, server, packet(3, 999, parameters))
	if err := failure(t, answers); err != nil || len(answers) == 0 {
		t.Fatal(len(answers), err)
	}
	for minor := range uint16(ProtocolMinor + 1) {
		if ours := AppendNegotiateProtocolVersion(nil, minor, []string{"_pq_.wish"}); string(ours) == string(answers[0]) {
			return
		}
	}
	t.Errorf("the server offers %q", answers[0])
}

func testServerStartupRefusals(t *testing.T, server *localpg.Server) {
	for _, startup := range [][]byte{
		packet(3, 0, "user\x00ann\x00"), packet(3, 0, "user\x00ann"), packet(3, 0, "user\x00ann\x00\x00x"), packet(3, 0, "\x00"), packet(3, 0, "user\x00\x00\x00"),
	} {
		_, answers := connect(t, server, startup)
		theirs := failure(t, answers)
		if theirs == nil {
			t.Errorf("%q: the server takes it", startup)
			continue
		}
		_, err := DecodeStartup(startup)
		refused(t, err, theirs.Code, theirs.Message)
	}
}
