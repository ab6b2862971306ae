package session

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cleavedb/cleave/internal/binding"
	"github.com/cleavedb/cleave/internal/copydata"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/pool"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/placement/key"
)

// load is a COPY FROM STDIN whose rows go to the shards that own their keys.
type load struct {
	s        *session
	table    string
	route    *plan.Route
	key      []plan.KeyPart
	keyspace *topology.Keyspace
	splitter *copydata.Splitter
	origins  *copydata.Origins
	reading  binding.Session
	encoding string // of the data, if it is not the shards' own
	binary   bool
	timed    *timedValues

	// shards are those that take part, by their places; names and place say the same of each.
	shards  []int
	names   []string
	place   map[int]int
	writers []*loadWriter
	events  chan loadEvent
	readers sync.WaitGroup
	// open is how many legs have not ended yet; failed: one of them, or the router, has refused something. taken: the client has begun to
	// send data.
	open          int
	failed, taken bool
	cancelled     atomic.Bool
	// fatal is what a leg has said before its end.
	fatal  map[int]*wire.Fields
	values []key.Value
	// made: shards make the keys. A row goes where those before it went, up to maxStretch, and then to another shard.
	made             bool
	current, stretch int
	// types are those of the columns, if they may carry numbers of types; scratch is for a row with other ones.
	types   []uint32
	scratch []byte
}

// maxStretch is how many rows whose keys are made go to one shard before another gets some.
const maxStretch = 500

// loadEvent is a message of one leg, or its end.
type loadEvent struct {
	leg     int
	kind    byte
	message []byte
	err     error
}

// prepareLoad reads COPY's options.
func (s *session) prepareLoad(st *plan.Statement) (*load, *pgerr.Error) {
	options := make([]copydata.Option, len(st.Load.Options))
	for i, o := range st.Load.Options {
		options[i] = copydata.Option{Name: o.Name, Value: o.Value, List: o.List, Star: o.Star, Bare: o.Bare}
	}
	format, err := copydata.NewFormat(options, st.Load.Columns, s.encoding)
	if errors.Is(err, copydata.ErrRefusedByServer) {
		return nil, nil
	}
	if err != nil {
		return nil, loadError(err)
	}
	l := &load{s: s, table: st.Load.Relation, route: &st.Route, key: st.Load.Key, made: st.Load.Made, binary: format.Kind() == copydata.Binary, keyspace: s.currentMap().Keyspace(st.Route.Keyspace)}
	if l.keyspace == nil && st.Route.Parts != plan.Copies {
		return nil, pgerr.New(pgerr.InternalError, "keyspace %q is not in the shard map", st.Route.Keyspace)
	}
	var keys []int
	for i := range l.key {
		if l.key[i].Operand.Kind == plan.FromParam {
			keys = append(keys, l.key[i].Operand.Param-1)
		}
	}
	l.reading = s.reading
	if l.reading.ClientEncodingUTF8 = slices.Contains([]string{"UTF8", "SQL_ASCII"}, format.Encoding()); !l.reading.ClientEncodingUTF8 {
		l.encoding = format.Encoding()
	}
	var refused *pgerr.Error
	if l.timed, refused = s.addTimed(st.Load.Timed, format); refused != nil {
		return nil, refused
	}
	if l.splitter, err = copydata.NewSplitter(format, copydata.Config{Keys: keys}); err != nil {
		return nil, loadError(err)
	}
	return l, nil
}

// loadError is an error of package copydata as the client sees it.
func loadError(err error) *pgerr.Error {
	if refused := refusalIn(err); refused != nil {
		return refused
	}
	return pgerr.New(pgerr.FeatureNotSupported, "this form of COPY is not supported").WithDetail("%s", err).WithHint("Use COPY without the option, or INSERT.")
}

// run passes the client's rows on to the shards, all of which wait for them, until the client has no more or something is wrong, and
// hears how they end. An error ends the session.
func (l *load) run(shards []int) error {
	l.start(shards)
	l.s.workOn(shards)
	err := l.feed()
	l.finish(err)
	l.hearRest()
	l.stop()
	l.s.loaded = l.s.loaded && l.taken
	var stopped *copyFailed
	if refused := refusalIn(err); refused != nil && refused.Severity != pgerr.SeverityFatal || errors.Is(err, errLoadFailed) || errors.As(err, &stopped) {
		return nil
	}
	return err
}

func (l *load) start(shards []int) {
	l.shards, l.open, l.events = shards, len(shards), make(chan loadEvent, len(shards))
	l.origins = copydata.NewOrigins(len(shards))
	if l.route != nil && l.route.Parts == plan.Copies {
		l.origins = copydata.NewOrigins(1) // every shard gets all of it
	}
	l.place, l.fatal = make(map[int]int, len(shards)), map[int]*wire.Fields{}
	for i, shard := range shards {
		l.s.legs[shard].copying = false
		backend := l.s.legs[shard].backend
		l.place[shard] = i
		l.names = append(l.names, backend.ShardName())
		l.writers = append(l.writers, newLoadWriter(backend.Conn()))
		l.readers.Go(func() { l.read(i, backend) })
	}
}

// read hears one shard, to its end, and wakes the session, which may be waiting for its client.
func (l *load) read(number int, backend *pool.Backend) {
	for {
		kind, message, err := readMessage(backend)
		l.events <- loadEvent{number, kind, message, err}
		_ = l.s.conn.SetReadDeadline(longAgo)
		if err != nil || kind == wire.RespReadyForQuery {
			return
		}
	}
}

// errLoadFailed ends a load that has been refused, while the client still sends.
var errLoadFailed = errors.New("the load has failed")

// abandon ends a load that not all shards are ready for.
func (l *load) abandon(waiting []int) error {
	l.start(waiting)
	l.finish(errLoadFailed)
	l.hearRest()
	l.stop()
	return nil
}

// feed takes the client's data until it ends. An error that is neither a refusal nor errLoadFailed ends the session.
func (l *load) feed() error {
	s := l.s
	for {
		if err := l.hearNow(); err != nil {
			return err
		}
		if l.cancelled.Load() {
			return pgerr.New(pgerr.QueryCanceled, "canceling statement due to user request")
		}
		if !s.in.buffered() {
			s.in.recycle()
			if err := s.in.fill(s.server.config.MaxMessage); err != nil && !isTimeout(err) {
				return s.readFailed(err)
			}
			if err := s.rearm(); err != nil {
				return err
			}
			continue
		}
		kind, body, err := s.in.next(s.server.config.MaxMessage)
		if err != nil {
			return s.readFailed(err)
		}
		l.taken = true
		done, err := l.take(kind, body)
		if done || err != nil {
			return err
		}
	}
}

// cancel ends the load from outside, and wakes the session, which may be waiting for its client. PostgreSQL looks for a request when the
// next row comes; here that row may be another shard's.
func (l *load) cancel() {
	l.cancelled.Store(true)
	_ = l.s.conn.SetReadDeadline(longAgo)
}

// setInterrupt says what a request to cancel does besides cancelling on shards.
func (s *session) setInterrupt(cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interrupt = cancel
}

// rearm lets the client be waited for again, unless the session is being ended.
func (s *session) rearm() error {
	_ = s.conn.SetReadDeadline(noDeadline)
	if s.ctx.Err() != nil {
		s.kill()
		return errEnd
	}
	return nil
}

// take does what one message of the client's says.
func (l *load) take(kind byte, body []byte) (done bool, err error) {
	switch kind {
	case wire.MsgCopyData:
		l.splitter.Feed(body)
		return false, l.split()
	case wire.MsgCopyDone:
		l.splitter.Finish()
		return true, l.split()
	case wire.MsgCopyFail:
		reason, err := wire.DecodeCopyFail(body)
		if err != nil {
			return false, err
		}
		return true, &copyFailed{string(reason)}
	case wire.MsgFlush, wire.MsgSync:
		return false, nil
	case wire.MsgTerminate:
		return false, errEnd
	default:
		return false, l.s.sayGoodbye(unexpectedInCopy(kind))
	}
}

// copyFailed is a client's wish that the COPY fail.
type copyFailed struct{ reason string }

func (c *copyFailed) Error() string { return c.reason }

// split sends the rows that are complete where they belong.
func (l *load) split() error {
	for {
		piece, err := l.splitter.Next()
		if err != nil {
			return loadError(err)
		}
		if piece == nil {
			return nil
		}
		switch piece.Kind {
		case copydata.HeaderPiece:
			for i := range l.writers {
				if err := l.send(i, l.timed.header(piece.Raw)); err != nil {
					return err
				}
			}
			l.origins.Add(0, piece)
		case copydata.Row:
			err = l.row(piece)
		case copydata.Malformed: // any shard says what is wrong
			l.origins.Add(0, piece)
			err = l.send(0, l.timed.row(piece.Raw))
		case copydata.End, copydata.Ignored:
		}
		if err != nil {
			return err
		}
	}
}

func (l *load) row(piece *copydata.Piece) error {
	if l.route.Parts == plan.Copies {
		return l.everywhere(piece)
	}
	shard, refused := l.shardOf(piece)
	if refused != nil {
		return refused
	}
	at, has := l.place[shard]
	if !has {
		return pgerr.New(pgerr.SerializationFailure, "the shards that rows of %s belong on have changed", l.route.Table).WithHint("Try again.")
	}
	l.origins.Add(at, piece)
	return l.send(at, l.timed.row(l.own(at, piece.Raw)))
}

// everywhere sends a row of a reference table to all shards, unless they would read it as different times.
func (l *load) everywhere(piece *copydata.Piece) error {
	for i, value := range piece.Values {
		if !l.binary && plan.VariesInTime(value.Bytes) || value.Default {
			return pgerr.New(pgerr.FeatureNotSupported, "a value that means the current time is not supported in a write to a reference table").
				WithDetail("Column %q would be another moment on every shard.", l.key[i].Column).WithHint("Give the time itself.")
		}
	}
	l.origins.Add(0, piece)
	for i := range l.writers {
		if err := l.send(i, l.timed.row(l.own(i, piece.Raw))); err != nil {
			return err
		}
	}
	return nil
}

// shardOf says where a row belongs. One that no shard takes goes to the first, which says why.
func (l *load) shardOf(piece *copydata.Piece) (int, *pgerr.Error) {
	s := l.s
	if l.made {
		if l.stretch%maxStretch == 0 {
			l.current = drawOwner(l.keyspace)
		}
		l.stretch++
		return l.current, nil
	}
	l.values = l.values[:0]
	values := piece.Values
	for i := range l.key {
		part := &l.key[i]
		for len(s.params) < max(part.Operand.Param, 1) {
			s.params = append(s.params, binding.Param{})
		}
		param := &s.params[max(part.Operand.Param, 1)-1]
		if part.Operand.Kind == plan.FromParam { // any other is a constant
			if values[0].Default {
				return 0, pgerr.New(pgerr.FeatureNotSupported, "a default value for key column %q of sharded table %s is not supported yet", part.Column, l.route.Table).
					WithDetail("The shard has to be known before the default is computed.").WithHint("Give the key a value.")
			}
			*param = binding.Param{Value: values[0].Bytes, Null: values[0].Null, Binary: l.binary}
			values = values[1:]
		}
		bound, outcome, refused := l.bind(part, param)
		if refused != nil {
			return 0, refused
		}
		if outcome != binding.Bound {
			return l.shards[0], nil
		}
		l.values = append(l.values, bound)
	}
	place, err := l.keyspace.Locate(l.values...)
	if err != nil {
		return 0, pgerr.New(pgerr.InternalError, "the key of %s could not be looked up", l.route.Table).WithDetail("%s", err)
	}
	s.server.config.Traffic.OfKey(l.keyspace, l.values, place.Pinned).Add()
	return place.Shard.Number(), nil
}

// bind reads one column of a row's key.
func (l *load) bind(part *plan.KeyPart, param *binding.Param) (key.Value, binding.Outcome, *pgerr.Error) {
	s := l.s
	bound, outcome, refused := binding.Value(part, &noLiterals, nil, s.params, l.reading)
	if refused != nil || outcome != binding.Ask {
		return bound, outcome, refused
	}
	if l.encoding != "" && part.IsText() {
		converted, refused := l.convert(param.Value)
		if refused != nil || converted == nil {
			return key.Value{}, binding.AnyShard, refused
		}
		param.Value = converted
		return binding.Value(part, &noLiterals, nil, s.params, binding.Session{ClientEncodingUTF8: true})
	}
	return s.askValue(part, &noLiterals, nil)
}

// convert lets a shard say what a text of the data's encoding is in UTF8; nil if it is none, as every shard says.
func (l *load) convert(text []byte) ([]byte, *pgerr.Error) {
	s := l.s
	sql := "SELECT pg_catalog.encode(pg_catalog.convert($1, " + sqltext.QuoteLiteral(l.encoding) + ", 'UTF8'), 'hex')"
	a, refused := s.aside(func() (answer, error) { return s.askParams(sql, []uint32{byteaOID}, []int16{1}, [][]byte{text}) })
	switch {
	case refused != nil:
		return nil, refused
	case a.failure != nil && strings.HasPrefix(a.failure.Code, classDataException):
		return nil, nil
	case a.failure != nil:
		return nil, a.failure.PGError()
	case len(a.rows) != 1 || len(a.rows[0]) != 1:
		return nil, pgerr.New(pgerr.InternalError, "a shard did not say what a key becomes")
	}
	converted, err := hex.DecodeString(a.rows[0][0])
	if err != nil {
		return nil, pgerr.New(pgerr.InternalError, "a shard's answer about a key could not be read").WithDetail("%s", err)
	}
	return converted, nil
}

const byteaOID = 17

// send adds to what a leg gets, and waits if that leg is slow.
func (l *load) send(at int, data []byte) error {
	w := l.writers[at]
	w.add(data)
	if len(w.buf) < loadBuffer {
		return nil
	}
	l.put(w, w.seal())
	w.next()
	if l.failed {
		return errLoadFailed
	}
	return nil
}

// put hands data to a shard's writer; meanwhile all shards are heard.
func (l *load) put(w *loadWriter, data []byte) {
	for {
		select {
		case w.queue <- data:
			return
		case e := <-l.events:
			l.hear(e)
		}
	}
}

// hearNow hears what legs have said meanwhile.
func (l *load) hearNow() error {
	for {
		select {
		case e := <-l.events:
			if l.hear(e); l.failed {
				return errLoadFailed
			}
			if err := l.s.write(); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// hear takes one message of a leg.
func (l *load) hear(e loadEvent) {
	s := l.s
	s.resume(s.legs[l.shards[e.leg]])
	s.gather.at = e.leg
	if e.err != nil {
		l.open--
		l.failed = true
		s.fatal = l.fatal[e.leg]
		_ = s.lostPart(e.err)
		return
	}
	if e.kind == wire.RespError {
		e.message, l.failed = l.original(e), l.failed || l.fatal[e.leg] == nil
	}
	show, err := s.reply(e.kind, e.message)
	if show {
		s.out = append(s.out, e.message...)
	}
	s.out = append(s.out, s.instead...)
	s.instead = s.instead[:0]
	if err != nil {
		l.open--
		l.failed = true
		_ = s.lostPart(err)
		return
	}
	if e.kind == wire.RespReadyForQuery {
		l.open--
	}
	s.setAside()
}

// original puts the line of the client's data into an error.
func (l *load) original(e loadEvent) []byte {
	fields, err := wire.DecodeError(wire.Body(e.message))
	if err != nil {
		return e.message
	}
	if isFatal(fields) { // its end follows, which the client has to hear of before what it leads to on other shards
		l.fatal[e.leg] = &fields
		return e.message
	}
	from := e.leg
	if l.route != nil && l.route.Parts == plan.Copies {
		from = 0
	}
	fields.Where = l.origins.Context(l.timed.where(fields.Where), l.table, from, l.names[e.leg])
	return wire.AppendFields(nil, wire.RespError, fields)
}

// finish tells the legs how the data ends.
func (l *load) finish(err error) {
	refused := refusalIn(err)
	if refused != nil && refused.Severity != pgerr.SeverityFatal {
		l.s.gather.fail(l.s, refused)
	}
	var stopped *copyFailed
	reason := ""
	switch {
	case err == nil:
	case errors.As(err, &stopped):
		reason = stopped.reason
	default:
		reason = "another shard has refused a row"
	}
	for _, w := range l.writers {
		l.put(w, w.ending(err == nil, reason, !l.s.endsWithQuery()))
		close(w.queue)
	}
}

// endsWithQuery says whether the unit is a simple query.
func (s *session) endsWithQuery() bool { return len(s.ops) > 0 && s.ops[len(s.ops)-1].kind == opQuery }

// hearRest hears the legs to their ends.
func (l *load) hearRest() {
	for l.open > 0 {
		l.hear(<-l.events)
	}
}

// stop waits for all that was started.
func (l *load) stop() {
	for _, w := range l.writers {
		<-w.done
	}
	l.readers.Wait()
	l.s.setWorking(nil)
	_ = l.s.conn.SetReadDeadline(noDeadline)
	if l.s.ctx.Err() != nil {
		l.s.kill()
	}
}

const (
	loadBuffer = 64 << 10
	// loadQueue is how many buffers may wait for a leg.
	loadQueue = 8
)

// loadWriter writes what one leg gets, in the background.
type loadWriter struct {
	conn  interface{ Write([]byte) (int, error) }
	queue chan []byte
	free  chan []byte
	done  chan struct{}
	buf   []byte // a CopyData message whose length is not there yet
}

func newLoadWriter(conn interface{ Write([]byte) (int, error) }) *loadWriter {
	w := &loadWriter{conn: conn, queue: make(chan []byte, loadQueue), free: make(chan []byte, loadQueue+2), done: make(chan struct{})}
	w.next()
	go w.run()
	return w
}

// run writes until there is no more. After an error it only takes: the reader of the leg says what is wrong.
func (w *loadWriter) run() {
	defer close(w.done)
	broken := false
	for data := range w.queue {
		if !broken {
			_, err := w.conn.Write(data)
			broken = err != nil
		}
		select {
		case w.free <- data[:0]:
		default:
		}
	}
}

// next begins another buffer.
func (w *loadWriter) next() {
	select {
	case w.buf = <-w.free:
	default:
		w.buf = make([]byte, 0, loadBuffer+loadBuffer/4)
	}
	w.buf = append(w.buf[:0], wire.MsgCopyData, 0, 0, 0, 0)
}

func (w *loadWriter) add(data []byte) { w.buf = append(w.buf, data...) }

// seal completes the message.
func (w *loadWriter) seal() []byte {
	binary.BigEndian.PutUint32(w.buf[1:], uint32(len(w.buf)-1))
	return w.buf
}

// ending is what is left, and how the data ends.
func (w *loadWriter) ending(complete bool, reason string, synced bool) []byte {
	last := w.seal()
	if len(last) == wire.HeaderSize || !complete {
		last = last[:0]
	}
	if complete {
		last = wire.AppendCopyDone(last)
	} else {
		last = wire.AppendCopyFail(last, reason)
	}
	if synced {
		last = wire.AppendSync(last)
	}
	return last
}
