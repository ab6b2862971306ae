package differential_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

// pass is how a whole script is run.
type pass string

// The passes.
const (
	simplePass pass = "simple" // the simple protocol
	textPass   pass = "text"   // the extended protocol, parameters and results as text
	binaryPass pass = "binary" // the extended protocol, parameters and results in binary
)

// passes are all of them.
var passes = []pass{simplePass, textPass, binaryPass}

// answerTime is how long a server may take for one step: one that hangs must fail the test, not stop it.
const answerTime = 30 * time.Second

// client speaks the protocol message by message, so that nothing of the answer is lost.
type client struct {
	conn       net.Conn
	frontend   *pgproto3.Frontend
	parameters map[string]string // as they were told last
	status     byte              // of the transaction: I, T or E
	types      *pgtype.Map
	// hear is told of every message as it comes, if somebody wants more than lines.
	hear func(pgproto3.BackendMessage)
}

// dial connects with the schema as search path, which is what RESET goes back to.
func dial(ctx context.Context, dsn, schema string) (*client, error) {
	config, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["search_path"] = schema
	config.RuntimeParams["application_name"] = "differential"
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	raw, err := conn.Hijack()
	if err != nil {
		return nil, err
	}
	return &client{conn: raw.Conn, frontend: raw.Frontend, parameters: raw.ParameterStatuses, status: raw.TxStatus, types: pgtype.NewMap()}, nil
}

// close says goodbye and waits for the server to hang up, so that what belonged to the session is gone.
func (c *client) close() {
	_ = c.conn.SetDeadline(time.Now().Add(5 * time.Second))
	c.frontend.Send(&pgproto3.Terminate{})
	if c.frontend.Flush() == nil {
		_, _ = c.conn.Read(make([]byte, 1))
	}
	_ = c.conn.Close()
}

// run sends the step and returns the answer, a line for each message.
func (c *client) run(st step, p pass) ([]string, error) {
	if err := c.conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return nil, err
	}
	if st.wait {
		return c.await()
	}
	exchange := exchange{client: c, step: st}
	if err := exchange.send(p); err != nil {
		return nil, err
	}
	if err := c.frontend.Flush(); err != nil {
		return nil, err
	}
	for !exchange.done {
		message, err := c.frontend.Receive()
		if err != nil {
			return exchange.lines, fmt.Errorf("the connection ended: %w", err)
		}
		if c.hear != nil {
			c.hear(message)
		}
		if err := exchange.receive(message); err != nil {
			return exchange.lines, err
		}
	}
	return exchange.lines, nil
}

// simple runs statements that must succeed.
func (c *client) simple(text string) error {
	lines, err := c.run(step{text: text}, simplePass)
	if err != nil {
		return err
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "error") {
			return fmt.Errorf("%s: %s", text, line)
		}
	}
	return nil
}

// unload runs a COPY to the client and returns its data.
func (c *client) unload(text string) ([]byte, error) {
	if err := c.conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return nil, err
	}
	c.frontend.Send(&pgproto3.Query{String: text})
	if err := c.frontend.Flush(); err != nil {
		return nil, err
	}
	var data []byte
	var failed error
	for {
		message, err := c.frontend.Receive()
		if err != nil {
			return nil, err
		}
		switch m := message.(type) {
		case *pgproto3.CopyData:
			data = append(data, m.Data...)
		case *pgproto3.ErrorResponse:
			failed = fmt.Errorf("%s: %s", text, m.Message)
		case *pgproto3.ReadyForQuery:
			return data, failed
		}
	}
}

// await returns the next notification.
func (c *client) await() ([]string, error) {
	for {
		message, err := c.frontend.Receive()
		if err != nil {
			return nil, fmt.Errorf("no notification came: %w", err)
		}
		if n, ok := message.(*pgproto3.NotificationResponse); ok {
			return []string{notification(n)}, nil
		}
	}
}

// exchange is one step on its way: what was sent and what has come back.
type exchange struct {
	client *client
	step   step
	lines  []string
	// syncs is how many times the server will still say that it is ready.
	syncs int
	// held: Sync was not sent yet, because the server may ask for data first.
	held    bool
	changed []string // parameters
	done    bool
}

func (e *exchange) send(p pass) error {
	switch e.step.wire(p) {
	case "extended":
		return e.sendExtended(p)
	case "pipeline":
		return e.sendPipeline(p)
	default:
		e.syncs = 1
		e.client.frontend.Send(&pgproto3.Query{String: e.step.text})
		return nil
	}
}

func (e *exchange) sync() {
	e.syncs++
	e.client.frontend.Send(&pgproto3.Sync{})
}

func (e *exchange) sendExtended(p pass) error {
	f := e.client.frontend
	if e.step.close != "" {
		f.Send(&pgproto3.Close{ObjectType: 'S', Name: e.step.close})
		e.sync()
		return nil
	}
	if e.step.bind == "" {
		parse, err := e.parse(e.step.text)
		if err != nil {
			return err
		}
		f.Send(parse)
	}
	if e.step.parse != "" {
		f.Send(&pgproto3.Describe{ObjectType: 'S', Name: e.step.parse})
		e.sync()
		return nil
	}
	bind, err := e.bind(p)
	if err != nil {
		return err
	}
	f.Send(bind)
	f.Send(&pgproto3.Describe{ObjectType: 'P'})
	f.Send(&pgproto3.Execute{MaxRows: e.step.rows})
	if e.step.copies || e.step.rows > 0 {
		e.held = true
		f.Send(&pgproto3.Flush{})
		return nil
	}
	e.sync()
	return nil
}

func (e *exchange) parse(text string) (*pgproto3.Parse, error) {
	parse := &pgproto3.Parse{Name: e.step.parse, Query: text}
	for _, param := range e.step.params {
		oid, err := e.client.typeOID(param.typeName)
		if err != nil {
			return nil, err
		}
		parse.ParameterOIDs = append(parse.ParameterOIDs, oid)
	}
	return parse, nil
}

// bind gives parameters in the pass's format; those without a type can only be text.
func (e *exchange) bind(p pass) (*pgproto3.Bind, error) {
	bind := &pgproto3.Bind{PreparedStatement: e.step.bind}
	if p == binaryPass {
		bind.ResultFormatCodes = []int16{pgproto3.BinaryFormat}
	}
	for _, param := range e.step.params {
		format, value, err := e.client.encode(param, p)
		if err != nil {
			return nil, err
		}
		bind.ParameterFormatCodes = append(bind.ParameterFormatCodes, format)
		bind.Parameters = append(bind.Parameters, value)
	}
	return bind, nil
}

func (c *client) typeOID(name string) (uint32, error) {
	if name == "?" {
		return 0, nil
	}
	t, known := c.types.TypeForName(name)
	if !known {
		return 0, fmt.Errorf("type %q is not known", name)
	}
	return t.OID, nil
}

func (c *client) encode(param param, p pass) (format int16, value []byte, err error) {
	switch {
	case param.value == nil:
		return pgproto3.TextFormat, nil, nil
	case p != binaryPass || param.typeName == "?":
		return pgproto3.TextFormat, []byte(*param.value), nil
	}
	t, _ := c.types.TypeForName(param.typeName)
	decoded, err := c.decode(t, []byte(*param.value))
	if err != nil {
		return pgproto3.TextFormat, []byte(*param.value), nil //nolint:nilerr // a wrong value is the server's to judge
	}
	value, err = c.types.Encode(t.OID, pgtype.BinaryFormatCode, decoded, []byte{})
	return pgproto3.BinaryFormat, value, err
}

// decode reads a text into a Go value that can be encoded again, infinite times among them.
func (c *client) decode(t *pgtype.Type, text []byte) (any, error) {
	switch t.OID {
	case pgtype.DateOID:
		return scan[pgtype.Date](c, t, text)
	case pgtype.DateArrayOID:
		return scan[[]pgtype.Date](c, t, text)
	case pgtype.TimestamptzOID:
		return scan[pgtype.Timestamptz](c, t, text)
	case pgtype.TimestamptzArrayOID:
		return scan[[]pgtype.Timestamptz](c, t, text)
	default:
		return t.Codec.DecodeValue(c.types, t.OID, pgtype.TextFormatCode, text)
	}
}

func scan[T any](c *client, t *pgtype.Type, text []byte) (value T, err error) {
	err = c.types.Scan(t.OID, pgtype.TextFormatCode, text, &value)
	return value, err
}

// sendPipeline sends each line as a statement of its own, with a Sync at the end and at every line "-- sync".
func (e *exchange) sendPipeline(p pass) error {
	for line := range strings.SplitSeq(e.step.text, "\n") {
		if line == "-- sync" {
			e.sync()
			continue
		}
		parse, err := e.parse(line)
		if err != nil {
			return err
		}
		bind, err := e.bind(p)
		if err != nil {
			return err
		}
		for _, message := range []pgproto3.FrontendMessage{parse, bind, &pgproto3.Describe{ObjectType: 'P'}, &pgproto3.Execute{}} {
			e.client.frontend.Send(message)
		}
	}
	e.sync()
	return nil
}

func (e *exchange) add(format string, arguments ...any) {
	e.lines = append(e.lines, fmt.Sprintf(format, arguments...))
}

// receive notes a message and answers it where it asks for something.
func (e *exchange) receive(message pgproto3.BackendMessage) error {
	switch m := message.(type) {
	case *pgproto3.ParameterStatus:
		if e.client.parameters[m.Name] != m.Value {
			e.client.parameters[m.Name] = m.Value
			e.changed = append(e.changed, fmt.Sprintf("parameter %s=%s", m.Name, m.Value))
		}
	case *pgproto3.ReadyForQuery:
		slices.Sort(e.changed) // the server promises no order
		e.lines = append(e.lines, e.changed...)
		e.changed = nil
		e.add("ready %c", m.TxStatus)
		e.client.status = m.TxStatus
		e.syncs--
		e.done = e.syncs == 0
	case *pgproto3.CopyInResponse:
		e.add("copy in %d %v", m.OverallFormat, m.ColumnFormatCodes)
		return e.copyIn()
	case *pgproto3.CopyData:
		e.copyOut(m.Data)
	case *pgproto3.PortalSuspended:
		e.add("suspended")
		e.client.frontend.Send(&pgproto3.Execute{MaxRows: e.step.rows})
		e.client.frontend.Send(&pgproto3.Flush{})
		return e.client.frontend.Flush()
	default:
		e.lines = append(e.lines, describe(message))
		switch message.(type) {
		case *pgproto3.ErrorResponse, *pgproto3.CommandComplete, *pgproto3.EmptyQueryResponse:
			return e.release()
		}
	}
	return nil
}

// release sends the Sync that was held back.
func (e *exchange) release() error {
	if !e.held {
		return nil
	}
	e.held = false
	e.sync()
	return e.client.frontend.Flush()
}

func (e *exchange) copyIn() error {
	for piece := range slices.Chunk(e.step.loaded, pieceSize) {
		e.client.frontend.Send(&pgproto3.CopyData{Data: piece})
	}
	for _, line := range e.step.data {
		e.client.frontend.Send(&pgproto3.CopyData{Data: []byte(line + "\n")})
	}
	if e.step.failure != "" || !e.step.copies {
		e.client.frontend.Send(&pgproto3.CopyFail{Message: e.step.failure})
	} else {
		e.client.frontend.Send(&pgproto3.CopyDone{})
	}
	if e.held {
		return e.release()
	}
	return e.client.frontend.Flush()
}

// copyHeader is what binary data begins with: the signature, flags, and the length of nothing more.
const copyHeader = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"

// copyOut notes data. The header of binary data may come by itself or with the first row.
func (e *exchange) copyOut(data []byte) {
	rest, isFirst := bytes.CutPrefix(data, []byte(copyHeader))
	if isFirst {
		e.add("header")
	}
	if len(rest) > 0 {
		e.add("data %s", describeValue(rest))
	}
}

// pieceSize cuts a COPY's data where no row ends.
const pieceSize = 61

// detailMark stands between an error's message and its detail.
const detailMark = " | "

// describe says in one line what a client would see of a message. What is different on every server is left out: the
// numbers of processes, and of tables and types that the script made.
func describe(message pgproto3.BackendMessage) string {
	switch m := message.(type) {
	case *pgproto3.RowDescription:
		return "columns " + describeColumns(m.Fields)
	case *pgproto3.DataRow:
		return "row " + describeValues(m.Values)
	case *pgproto3.CommandComplete:
		return "done " + string(m.CommandTag)
	case *pgproto3.ErrorResponse:
		return fmt.Sprintf("error %s %s at %d: %s", m.SeverityUnlocalized, m.Code, m.Position, m.Message) + detailMark + m.Detail
	case *pgproto3.NoticeResponse:
		return fmt.Sprintf("notice %s %s: %s", m.SeverityUnlocalized, m.Code, m.Message)
	case *pgproto3.NotificationResponse:
		return notification(m)
	case *pgproto3.ParameterDescription:
		return "parameters " + describeTypes(m.ParameterOIDs)
	case *pgproto3.CopyOutResponse:
		return fmt.Sprintf("copy out %d %v", m.OverallFormat, m.ColumnFormatCodes)
	default:
		return strings.TrimPrefix(fmt.Sprintf("%T", message), "*pgproto3.")
	}
}

func notification(n *pgproto3.NotificationResponse) string {
	return fmt.Sprintf("notification %s %q", n.Channel, n.Payload)
}

// firstOwnOID is the first that PostgreSQL gives to objects that are not its own.
const firstOwnOID = 16384

func describeTypes(oids []uint32) string {
	texts := make([]string, len(oids))
	for i, oid := range oids {
		texts[i] = "own"
		if oid < firstOwnOID {
			texts[i] = strconv.FormatUint(uint64(oid), 10)
		}
	}
	return strings.Join(texts, " ")
}

func describeColumns(fields []pgproto3.FieldDescription) string {
	texts := make([]string, len(fields))
	for i, f := range fields {
		texts[i] = fmt.Sprintf("%q type %s length %d modifier %d format %d column %d", f.Name, describeTypes([]uint32{f.DataTypeOID}), f.DataTypeSize, f.TypeModifier, f.Format, f.TableAttributeNumber)
		if f.TableOID != 0 {
			texts[i] += " of a table"
		}
	}
	return strings.Join(texts, ", ")
}

func describeValues(values [][]byte) string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = describeValue(value)
	}
	return strings.Join(texts, " | ")
}

// longValue is what is shown in full.
const longValue = 100

func describeValue(value []byte) string {
	switch {
	case value == nil:
		return "NULL"
	case len(value) > longValue:
		return fmt.Sprintf("%q… %d bytes, SHA-256 %x", value[:longValue/4], len(value), sha256.Sum256(value))
	default:
		return fmt.Sprintf("%q", value)
	}
}
