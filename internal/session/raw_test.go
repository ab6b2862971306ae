package session

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgproto3"
)

// rawClient speaks the protocol message by message.
type rawClient struct {
	t        testing.TB
	conn     net.Conn
	frontend *pgproto3.Frontend
	pid      uint32
	secret   []byte
	reported map[string]string
}

var loginAsPostgres = map[string]string{"user": "postgres", "database": "postgres"}

// dialRaw logs in without a password.
func dialRaw(t testing.TB, address string, parameters map[string]string) *rawClient {
	t.Helper()
	c := newRaw(t, address)
	all := map[string]string{}
	for name, value := range loginAsPostgres {
		all[name] = value
	}
	for name, value := range parameters {
		all[name] = value
	}
	c.send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: all})
	for {
		message := c.receive()
		switch m := message.(type) {
		case *pgproto3.BackendKeyData:
			c.pid, c.secret = m.ProcessID, slices.Clone(m.SecretKey)
		case *pgproto3.ParameterStatus:
			c.reported[m.Name] = m.Value
		case *pgproto3.ReadyForQuery:
			return c
		case *pgproto3.ErrorResponse:
			t.Fatalf("%s: %s", address, summary(m))
		}
	}
}

func newRaw(t testing.TB, address string) *rawClient {
	t.Helper()
	conn := must[net.Conn](t)(net.Dial("tcp", address))
	t.Cleanup(func() { _ = conn.Close() })
	return &rawClient{t: t, conn: conn, frontend: pgproto3.NewFrontend(conn, conn), reported: map[string]string{}}
}

func encode(t testing.TB, messages ...pgproto3.FrontendMessage) []byte {
	t.Helper()
	var out []byte
	for _, m := range messages {
		var err error
		if out, err = m.Encode(out); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// send writes messages in one piece.
func (c *rawClient) send(messages ...pgproto3.FrontendMessage) {
	c.t.Helper()
	c.write(encode(c.t, messages...))
}

func (c *rawClient) write(data []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(data); err != nil {
		c.t.Fatal(err)
	}
}

func (c *rawClient) next() (pgproto3.BackendMessage, error) {
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	m, err := c.frontend.Receive()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, errHangs
	}
	return m, err
}

func (c *rawClient) receive() pgproto3.BackendMessage {
	c.t.Helper()
	m, err := c.next()
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// readyTimes reads until the server was ready that many times, or has gone; it returns what was said.
func (c *rawClient) readyTimes(count int) []string {
	c.t.Helper()
	var said []string
	for count > 0 {
		m, err := c.next()
		if errors.Is(err, errHangs) {
			return append(said, err.Error())
		}
		if err != nil {
			return append(said, "the end")
		}
		said = append(said, summary(m))
		if _, ready := m.(*pgproto3.ReadyForQuery); ready {
			count--
		}
	}
	return said
}

// replies reads that many messages.
func (c *rawClient) replies(count int) []string {
	c.t.Helper()
	var said []string
	for range count {
		m, err := c.next()
		if err != nil {
			return append(said, err.Error())
		}
		said = append(said, summary(m))
	}
	return said
}

// ask sends messages and returns what is said up to the last ReadyForQuery that they ask for.
func (c *rawClient) ask(messages ...pgproto3.FrontendMessage) []string {
	c.t.Helper()
	c.send(messages...)
	return c.readyTimes(readies(messages))
}

// readies is how often a server says that it is ready.
func readies(messages []pgproto3.FrontendMessage) int {
	count := 0
	for _, m := range messages {
		switch m.(type) {
		case *pgproto3.Query, *pgproto3.Sync, *pgproto3.FunctionCall:
			count++
		}
	}
	return count
}

// query runs a simple query.
func (c *rawClient) query(sql string) []string {
	c.t.Helper()
	return c.ask(&pgproto3.Query{String: sql})
}

// summary is what has to be the same of a message, whoever says it.
func summary(message pgproto3.BackendMessage) string {
	switch m := message.(type) {
	case *pgproto3.RowDescription:
		columns := make([]string, len(m.Fields))
		for i, f := range m.Fields {
			columns[i] = fmt.Sprintf("%s:%d:%d:%d:%d", f.Name, f.DataTypeOID, f.DataTypeSize, f.TypeModifier, f.Format)
		}
		return "columns " + strings.Join(columns, " ")
	case *pgproto3.DataRow:
		values := make([]string, len(m.Values))
		for i, v := range m.Values {
			if values[i] = "NULL"; v != nil {
				values[i] = fmt.Sprintf("%q", v)
			}
		}
		return "row " + strings.Join(values, " ")
	case *pgproto3.CommandComplete:
		return "done " + string(m.CommandTag)
	case *pgproto3.ErrorResponse:
		return fmt.Sprintf("%s %s %s", m.Severity, m.Code, m.Message)
	case *pgproto3.NoticeResponse:
		return fmt.Sprintf("%s %s %s", m.Severity, m.Code, m.Message)
	case *pgproto3.ParameterStatus:
		return "parameter " + m.Name + "=" + m.Value
	case *pgproto3.ParameterDescription:
		return fmt.Sprint("takes ", m.ParameterOIDs)
	case *pgproto3.NotificationResponse:
		return "notification " + m.Channel + " " + m.Payload
	case *pgproto3.ReadyForQuery:
		return "ready " + string(m.TxStatus)
	case *pgproto3.CopyData:
		return fmt.Sprintf("data %q", m.Data)
	case *pgproto3.CopyInResponse:
		return fmt.Sprint("copy in ", m.OverallFormat, m.ColumnFormatCodes)
	case *pgproto3.CopyOutResponse:
		return fmt.Sprint("copy out ", m.OverallFormat, m.ColumnFormatCodes)
	default:
		return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", message), "*pgproto3."))
	}
}

// step is something that a client sends, and how much of an answer it waits for.
type step struct {
	messages []pgproto3.FrontendMessage
	// replies is how many messages to wait for; asked: as many ReadyForQuery as were asked for; untilReady: one.
	replies int
	// client says who; the first one is 0.
	client int
}

const (
	asked      = -1
	untilReady = -2
)

// sent is a step that ends with ReadyForQuery as often as it asks for it.
func sent(messages ...pgproto3.FrontendMessage) step { return step{messages: messages, replies: asked} }

// flushed is a step that ends after so many replies.
func flushed(replies int, messages ...pgproto3.FrontendMessage) step {
	return step{messages: messages, replies: replies}
}

// byAnother lets a second client do the step.
func (s step) byAnother() step {
	s.client = 1
	return s
}

func query(sql string) step { return sent(&pgproto3.Query{String: sql}) }

// texts are steps with a simple query each.
func texts(queries ...string) []step {
	steps := make([]step, len(queries))
	for i, q := range queries {
		steps[i] = query(q)
	}
	return steps
}

// play runs the steps against a server and returns what it says to each.
func play(t testing.TB, address string, steps []step) [][]string {
	t.Helper()
	clients := map[int]*rawClient{}
	var said [][]string
	for _, s := range steps {
		c := clients[s.client]
		if c == nil {
			c = dialRaw(t, address, nil)
			clients[s.client] = c
		}
		c.send(s.messages...)
		switch s.replies {
		case asked:
			said = append(said, c.readyTimes(readies(s.messages)))
		case untilReady:
			said = append(said, c.readyTimes(1))
		default:
			said = append(said, c.replies(s.replies))
		}
	}
	for _, c := range clients {
		_ = c.conn.Close()
	}
	return said
}

// sameAsPlain plays the steps to a plain server and to the router, and wants the same answers, message by message.
func (w *world) sameAsPlain(t *testing.T, steps ...step) {
	t.Helper()
	want, got := play(t, w.plain.Addr(), steps), play(t, w.address, steps)
	for i := range steps {
		if diff := cmp.Diff(inOrder(want[i]), inOrder(got[i])); diff != "" {
			t.Errorf("step %d, %s: PostgreSQL (-) and the router (+) differ:\n%s", i+1, describe(steps[i].messages), diff)
		}
	}
	w.settled(t)
}

// inOrder puts what is said of parameters before ReadyForQuery: where it comes before that, nobody may count on.
func inOrder(said []string) []string {
	var ordered, parameters []string
	for _, s := range said {
		switch {
		case strings.HasPrefix(s, "parameter "):
			parameters = append(parameters, s)
		case strings.HasPrefix(s, "ready "):
			slices.Sort(parameters)
			ordered, parameters = append(append(ordered, parameters...), s), nil
		default:
			ordered = append(ordered, s)
		}
	}
	return append(ordered, parameters...)
}

func describe(messages []pgproto3.FrontendMessage) string {
	var parts []string
	for _, m := range messages {
		name := strings.TrimPrefix(fmt.Sprintf("%T", m), "*pgproto3.")
		switch m := m.(type) {
		case *pgproto3.Query:
			name += fmt.Sprintf("(%.60s)", m.String)
		case *pgproto3.Parse:
			name += fmt.Sprintf("(%s: %.60s)", m.Name, m.Query)
		case *pgproto3.Bind:
			name += fmt.Sprintf("(%s←%s)", m.DestinationPortal, m.PreparedStatement)
		case *pgproto3.Execute:
			name += fmt.Sprintf("(%s %d)", m.Portal, m.MaxRows)
		}
		parts = append(parts, name)
	}
	return strings.Join(parts, " ")
}

// Short names for what the tests send most.

func parse(name, sql string, oids ...uint32) *pgproto3.Parse {
	return &pgproto3.Parse{Name: name, Query: sql, ParameterOIDs: oids}
}

func bind(portal, statement string, values ...string) *pgproto3.Bind {
	m := &pgproto3.Bind{DestinationPortal: portal, PreparedStatement: statement}
	for _, v := range values {
		m.Parameters = append(m.Parameters, []byte(v))
	}
	return m
}

// text is a key as a client sends it.
func text(key int64) string { return strconv.FormatInt(key, 10) }

func run(portal string) *pgproto3.Execute { return &pgproto3.Execute{Portal: portal} }

func runSome(portal string, rows uint32) *pgproto3.Execute {
	return &pgproto3.Execute{Portal: portal, MaxRows: rows}
}

func describeStatement(name string) *pgproto3.Describe {
	return &pgproto3.Describe{ObjectType: 'S', Name: name}
}

func describePortal(name string) *pgproto3.Describe {
	return &pgproto3.Describe{ObjectType: 'P', Name: name}
}

func closeStatement(name string) *pgproto3.Close {
	return &pgproto3.Close{ObjectType: 'S', Name: name}
}

func closePortal(name string) *pgproto3.Close { return &pgproto3.Close{ObjectType: 'P', Name: name} }

var (
	sync1 = &pgproto3.Sync{}
	flush = &pgproto3.Flush{}
)

// unnamed is a statement by the unnamed statement and portal.
func unnamed(sql string, values ...string) []pgproto3.FrontendMessage {
	return []pgproto3.FrontendMessage{parse("", sql), bind("", "", values...), describePortal(""), run("")}
}

// pipeline puts messages and lists of them together.
func pipeline(parts ...any) []pgproto3.FrontendMessage {
	var all []pgproto3.FrontendMessage
	for _, p := range parts {
		switch p := p.(type) {
		case pgproto3.FrontendMessage:
			all = append(all, p)
		case []pgproto3.FrontendMessage:
			all = append(all, p...)
		default:
			panic(fmt.Sprintf("%T is no message", p))
		}
	}
	return all
}
