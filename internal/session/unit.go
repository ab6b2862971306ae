package session

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/wire"
)

// opKind is what an operation asks of a backend.
type opKind uint8

const (
	opLocal             opKind = iota // nothing: data is for the client
	opParse                           // check and keep a prepared statement
	opProbe                           // let the server say what is wrong with a text
	opBind                            // make a portal
	opDescribeStatement               //
	opDescribePortal                  //
	opExecute                         //
	opClosePortal                     //
	opQuery                           // a simple query
	opPoison                          // fail, so that what was done is undone
	opSync                            //
)

// op is one operation of a unit of work, before it is known which backend will run it.
type op struct {
	kind      opKind
	statement *statement
	portal    []byte
	// data is what opLocal says to the client, the rest of a Bind message, or the text of a query; original is that before it was
	// edited, if there are several statements in it.
	data     []byte
	original []byte
	maxRows  int32
	// explain are the router's own lines of an EXPLAIN.
	explain []string
	// parts are what each of several shards gets; none if the operation is one shard's.
	parts []part
	// carried says which columns of the rows have to be looked into, types of which types the parameters are if these have to be.
	carried *carried
	types   []uint32
	// planned is what is run, for what follows from its success; nil if nothing does.
	planned *planned
	// failure is what opPoison tells the client.
	failure *pgerr.Error
	// tags replace the command tags that the server gives, by the statement's number; empty: none. at is the one that is looked at.
	tags []string
	at   int
	// needs are prepared statements that the text names; makes are those that it makes.
	needs, makes []*statement
	// edits are what was changed in the text; elsewhere: places in it are not places of the client's.
	edits     []edit
	elsewhere bool
	// inner is what an EXECUTE runs, if something follows from it.
	inner *plan.Statement
	// hidden: the client did not ask for it.
	hidden bool
	// undo takes back what the session noted of it, if something before it fails, so that PostgreSQL passes over it; nil: nothing.
	undo func()
}

// expectKind is what ends a reply.
type expectKind uint8

const (
	expectLocal expectKind = iota
	expectParse
	expectProbe
	expectBind
	expectDescribe
	expectExecute
	expectClose
	expectQuery
	expectPoison
	expectSync
)

// expect is one reply that a backend owes, or that the session gives itself, in order.
type expect struct {
	kind expectKind
	// hidden: the client does not know that it was asked for.
	hidden bool
	op     int // its place in the unit; -1: none
	// next is the statement of a simple query that completes next.
	next int
	// explained: the router's lines of an EXPLAIN have been told.
	explained bool
	// prepared is what a Parse makes, closed what a Close ends.
	prepared, closed *serverStatement
	// parsed is what a Parse that the client did not ask for is of.
	parsed *statement
	// unsent: the Sync that it answers has still to be sent, see [session.renderSync].
	unsent bool
}

// retag gives the statement that is looked at another command tag.
func (o *op) retag(tag string) {
	for len(o.tags) <= o.at {
		o.tags = append(o.tags, "")
	}
	o.tags[o.at] = tag
}

func (s *session) addLocal(data []byte) { s.ops = append(s.ops, op{kind: opLocal, data: data}) }

// needsServer says whether the unit cannot be answered without a backend.
func (s *session) needsServer() bool {
	for i := range s.ops {
		if k := s.ops[i].kind; k != opLocal && k != opSync {
			return true
		}
	}
	return false
}

// sync ends the unit.
func (s *session) sync() error {
	s.skipping = false
	if s.tx.implicit || len(s.spreadTo) > 0 || s.inText {
		return s.syncSpread()
	}
	if s.backend != nil && s.unsynced || s.needsServer() {
		s.ops = append(s.ops, op{kind: opSync})
		return s.flush()
	}
	s.answerLocally() // and what follows in one go
	if s.backend == nil && !s.tx.open && !s.isSpread() {
		s.endTransaction()
	}
	s.out = wire.AppendReadyForQuery(s.out, s.currentStatus())
	return s.write()
}

// answerLocally ends a unit that needs no backend.
func (s *session) answerLocally() {
	for i := range s.ops {
		s.out = append(s.out, s.ops[i].data...)
	}
	s.clearUnit()
}

// flush runs what the unit has so far and tells the client all of it.
func (s *session) flush() error {
	defer s.clearUnit()
	if refused := s.openIfConsistent(); refused != nil {
		return s.failUnit(refused)
	}
	if len(s.spreadTo) > 0 {
		return s.flushSpread()
	}
	if !s.needsServer() && (s.backend == nil || !s.unsynced || len(s.ops) == 0) {
		s.answerLocally()
		return s.write()
	}
	err := s.exchangeUnit()
	if err == nil || errors.Is(err, errRecovered) {
		return nil
	}
	if refused := refusalIn(err); refused != nil {
		return s.failUnit(refused)
	}
	return err
}

func (s *session) exchangeUnit() error {
	if s.backend == nil && !s.isSpread() && s.onlyPrepares() && (s.tx.open || !s.unitEnds()) {
		return s.prepareBeside()
	}
	if s.tx.failed && s.tx.open || s.isSpread() && s.hasFailed() && !s.onlyPrepares() {
		return inFailedTransaction // or a BEGIN would bring it to life again, or a shard that has not failed would run it
	}
	if err := s.send(); err != nil {
		return err
	}
	return s.receive()
}

// onlyPrepares says whether the unit runs nothing.
func (s *session) onlyPrepares() bool {
	for i := range s.ops {
		switch s.ops[i].kind {
		case opLocal, opParse, opProbe, opDescribeStatement, opPoison, opSync:
		default:
			return false
		}
	}
	return true
}

// prepareBeside runs a unit that only prepares, while the client is on no shard yet, outside its transaction: clients prepare
// first and tell the key afterwards, and only then it is known where the transaction has to be. A unit that the client has not
// ended is ended here, so that its backend need not be kept.
func (s *session) prepareBeside() error {
	if !s.unitEnds() {
		s.ops = append(s.ops, op{kind: opSync, hidden: true})
	}
	tx, settings, status := s.tx, s.settings, s.status
	s.settings, s.tx.open, s.beside = s.effective(), false, &tx
	err := s.send()
	if err == nil {
		err = s.receive()
	}
	if s.beside != nil { // or it has failed with the backend
		s.tx, s.status, s.beside = tx, status, nil
	}
	s.settings = settings
	return err
}

func (s *session) clearUnit() {
	clear(s.ops) // they hold the client's bytes and statements
	s.ops, s.expects, s.head = s.ops[:0], s.expects[:0], 0
	s.target, s.suppress, s.unitBytes, s.meaningPending, s.spreadTo = noShard, false, 0, false, nil
	s.loading, s.explaining = nil, false
}

// failUnit answers a unit that could not be sent: what came before the first operation that needs a backend is told.
func (s *session) failUnit(e *pgerr.Error) error {
	if e.Severity == pgerr.SeverityFatal {
		return s.sayGoodbye(e)
	}
	ended := false
	told := false
	for i := range s.ops {
		switch o := &s.ops[i]; {
		case o.kind == opSync && !o.hidden, o.kind == opQuery:
			ended = true
		case o.kind == opLocal && !told:
			s.out = append(s.out, o.data...)
		}
		if !told && s.ops[i].kind != opLocal {
			told = true
			s.out = wire.AppendError(s.out, e)
		}
	}
	s.undoUnsent()
	if s.tx.open || s.isSpread() {
		s.tx.failed = true
	}
	s.server.countRefusal(e)
	s.skipping, s.erred = !ended, true
	if s.inText || s.tx.implicit || s.syncing { // who ends the text, or the unit, says that it is ready
		s.skipping = s.skipping && !s.inText
		return s.write()
	}
	if ended {
		if !s.tx.open && !s.isSpread() {
			s.endTransaction()
		}
		s.out = wire.AppendReadyForQuery(s.out, s.currentStatus())
	}
	return s.write()
}

// undoUnsent takes back what was noted of the operations from the first on that needs a backend.
func (s *session) undoUnsent() {
	first := slices.IndexFunc(s.ops, func(o op) bool { return o.kind != opLocal })
	for i := len(s.ops) - 1; i >= max(first, 0); i-- {
		switch o := &s.ops[i]; {
		case o.undo != nil:
			o.undo()
		case o.kind == opParse:
			s.forgetStatement(o.statement)
		}
	}
}

// maxAttempts is how often a unit that never reached a server is tried.
const maxAttempts = 3

// send brings the unit to a backend. An error that is a *pgerr.Error is for the client.
func (s *session) send() error {
	for attempt := 1; ; attempt++ {
		fresh := s.backend == nil
		if err := s.attach(); err != nil {
			return err
		}
		s.render()
		s.sentAt = time.Now()
		s.beginWait(s.sentAt)
		written, err := s.writeToServer()
		if err == nil {
			s.begun()
			return nil
		}
		if written > 0 || !fresh || s.joined || s.pinned[s.backend.Shard()] != nil || attempt == maxAttempts {
			return s.lost(err)
		}
		// Not a byte was taken, and the backend knows of no transaction, so nothing has run: another one is as good.
		s.drop("write failed")
	}
}

// largeWrite is what surely fits into the sockets' buffers, so that writing it cannot wait for a server that waits for us.
const largeWrite = 16 << 10

func (s *session) writeToServer() (written int, err error) {
	conn := s.backend.Conn()
	if len(s.toServer) <= largeWrite {
		written, err = conn.Write(s.toServer)
		s.toServer = s.toServer[:0]
		return written, err
	}
	// The server may answer before it has read all, and wait until somebody reads that.
	data, done := s.toServer, make(chan struct{})
	s.toServer, s.writing = nil, done
	go func() {
		defer close(done)
		if _, err := conn.Write(data); err != nil {
			_ = conn.Close() // the reader is told by that
		}
	}()
	return len(data), nil
}

// written waits for what is being written in the background.
func (s *session) written() {
	if s.writing != nil {
		<-s.writing
		s.writing = nil
	}
}

// begun notes that a backend has got the unit.
func (s *session) begun() {
	s.unsynced = true
	if s.isDue() {
		s.status = statusOpen
	}
	s.joined, s.tx.open, s.pending = s.joined || s.tx.begin != "", false, nil
	if !s.wrote { // also where no block is known of yet: it may turn out that one was begun, or more shards take part
		s.noteWrites()
	}
}

// isDue says whether the attached backend has to hear of the transaction first.
func (s *session) isDue() bool { return !s.joined && (s.tx.open || s.isSpread()) }

// noteWrites notes whether the unit may change something, so that the leg counts when the transaction is committed.
func (s *session) noteWrites() {
	for i := range s.ops {
		if p := s.ops[i].planned; p != nil && !p.onlyReads() {
			s.wrote = true
		}
	}
}

// render writes the operations as the attached backend needs them.
func (s *session) render() {
	s.toServer, s.expects, s.head, s.unparsed = s.toServer[:0], s.expects[:0], 0, -1
	s.renderBegin()
	for i := range s.ops {
		if !s.parsesWith(i) {
			s.giveParsed()
		}
		s.renderOp(i)
	}
	s.giveParsed()
	if n := len(s.ops); n > 0 && s.ops[n-1].kind != opSync && s.ops[n-1].kind != opQuery {
		s.toServer = wire.AppendFlush(s.toServer)
	}
}

// parsesWith says whether an operation has the text parsed whose Parse has still to be answered.
func (s *session) parsesWith(i int) bool {
	o := &s.ops[i]
	if s.unparsed < 0 || o.kind != opBind && o.kind != opDescribeStatement {
		return false
	}
	st := s.ops[s.unparsed].statement
	return o.statement == st || o.statement.origin == st
}

// giveParsed answers a Parse whose text no server has to see.
func (s *session) giveParsed() {
	if s.unparsed >= 0 {
		s.expects = append(s.expects, expect{kind: expectLocal, op: s.unparsed})
		s.unparsed = -1
	}
}

// undoParse forgets a statement that was never made.
func (s *session) undoParse(o *op) {
	if o.undo != nil {
		o.undo()
		return
	}
	s.forgetStatement(o.statement)
}

// failParse is for a text that a server has found wrong before the client's Parse of it was answered: the error is that answer.
func (s *session) failParse(st *statement) {
	last := len(s.ops) - 1
	if last >= 0 && s.ops[last].kind == opLocal && s.ops[last].statement == st {
		s.undoParse(&s.ops[last])
		s.ops = s.ops[:last]
	}
}

// expectParsed notes that the server is about to parse a text: its answer is that to the client's Parse, if that has to be answered yet.
func (s *session) expectParsed(st *statement, prepared *serverStatement) {
	e := expect{kind: expectParse, hidden: true, op: -1, parsed: st, prepared: prepared}
	if s.unparsed >= 0 {
		e.hidden, e.op, s.unparsed = false, s.unparsed, -1
	}
	s.expects = append(s.expects, e)
}

// renderBegin sends the BEGIN that was put off, and what was said after it.
func (s *session) renderBegin() {
	switch {
	case !s.isDue():
	case len(s.tx.script)+len(s.pending) == 0 && s.gather == nil && s.synced():
		s.hiddenStatement(s.tx.begin)
	default:
		s.hiddenQuery(s.tx.begin)
		s.hiddenScript(s.tx.script)
	}
	s.hiddenScript(s.pending)
}

// synced says whether the unit's operations are answered with a Sync, and so can be what comes before them.
func (s *session) synced() bool {
	last := len(s.ops) - 1
	return last >= 0 && s.ops[last].kind == opSync
}

func (s *session) hiddenScript(lines script) {
	for _, l := range lines {
		s.hiddenQuery(l.on(s.backend.Shard()))
	}
}

func (s *session) hiddenQuery(sql string) {
	s.toServer = wire.AppendQuery(s.toServer, sql)
	s.state.unnamed = nil
	s.expects = append(s.expects, expect{kind: expectQuery, hidden: true, op: -1})
}

// hiddenStatement is hiddenQuery for what is answered together with what follows: each answer of its own has both sides woken.
func (s *session) hiddenStatement(sql string) {
	s.toServer = appendStatement(s.toServer, sql)
	s.state.unnamed = nil
	s.expects = append(s.expects, expect{kind: expectParse, hidden: true, op: -1}, expect{kind: expectBind, hidden: true, op: -1},
		expect{kind: expectExecute, hidden: true, op: -1})
}

func (s *session) renderOp(i int) {
	o := &s.ops[i]
	switch o.kind {
	case opLocal:
		if o.statement != nil {
			s.unparsed = i
			return
		}
		s.expects = append(s.expects, expect{kind: expectLocal, op: i})
	case opParse:
		s.renderParse(i)
	case opProbe:
		s.toServer = wire.AppendParse(s.toServer, "", o.data, nil)
		s.state.unnamed = nil
		s.expects = append(s.expects, expect{kind: expectProbe, op: i})
		// If the server finds nothing wrong, it has to fail all the same, with what was done before.
		o.failure = unreadable
		s.renderPoison(i)
	case opBind:
		if o.parts != nil {
			s.renderPart(i)
			return
		}
		if o.statement.needs != nil {
			s.ensureAll([]*statement{o.statement.needs})
		}
		s.toServer = wire.AppendBindTail(s.toServer, o.portal, s.ensure(o.statement), s.ownValues(o.data, o.types))
		s.expects = append(s.expects, expect{kind: expectBind, op: i})
		s.askColumns(i)
	case opDescribeStatement:
		if o.statement.needs != nil {
			s.ensureAll([]*statement{o.statement.needs})
		}
		s.toServer = wire.AppendDescribe(s.toServer, 'S', s.ensure(o.statement))
		s.expects = append(s.expects, expect{kind: expectDescribe, op: i})
	case opDescribePortal:
		s.toServer = wire.AppendDescribe(s.toServer, 'P', o.portal)
		s.expects = append(s.expects, expect{kind: expectDescribe, op: i})
	case opExecute:
		s.toServer = wire.AppendExecute(s.toServer, o.portal, o.maxRows)
		s.expects = append(s.expects, expect{kind: expectExecute, op: i})
	case opClosePortal:
		s.toServer = wire.AppendClose(s.toServer, 'P', o.portal)
		s.expects = append(s.expects, expect{kind: expectClose, op: i})
	case opQuery:
		if s.ensureAll(o.needs) {
			s.toServer = wire.AppendSync(s.toServer)
			s.expects = append(s.expects, expect{kind: expectSync, hidden: true, op: -1})
		}
		data := o.data
		if o.parts != nil {
			data = o.parts[s.gather.at].data
		}
		s.toServer = wire.AppendQuery(s.toServer, data)
		s.state.unnamed = nil
		s.expects = append(s.expects, expect{kind: expectQuery, op: i})
	case opPoison:
		s.renderPoison(i)
	case opSync:
		s.renderSync(i)
	default:
		panic(fmt.Sprintf("session: operation %d is not rendered", o.kind))
	}
}

// renderPart binds what one of several shards gets.
func (s *session) renderPart(i int) {
	o := &s.ops[i]
	p := &o.parts[s.gather.at]
	data := p.data
	if o.types != nil {
		data = s.ownValues(data, p.statement.oids)
	}
	s.toServer = wire.AppendBindTail(s.toServer, o.portal, s.ensure(p.statement), data)
	s.expects = append(s.expects, expect{kind: expectBind, op: i})
	s.askColumns(i)
}

// renderPoison makes the server fail, for a reason that the client is told.
func (s *session) renderPoison(i int) {
	s.toServer = wire.AppendParse(s.toServer, "", "refused by the router", nil)
	s.state.unnamed = nil
	s.expects = append(s.expects, expect{kind: expectPoison, op: i})
}

// renderParse answers a Parse: by the server, or at once if the backend has the statement already.
func (s *session) renderParse(i int) {
	st := s.ops[i].statement
	if st.name == "" {
		s.toServer = wire.AppendParse(s.toServer, "", st.text, s.numbering().declared(st.oids))
		s.state.unnamed = st
		s.expects = append(s.expects, expect{kind: expectParse, op: i})
		return
	}
	name := st.onServer(s.effective())
	if s.state.has(name) {
		s.ops[i].data = parseComplete
		s.expects = append(s.expects, expect{kind: expectLocal, op: i})
		return
	}
	s.makeRoom(name)
	s.toServer = wire.AppendParse(s.toServer, name, st.text, s.numbering().declared(st.oids))
	s.expects = append(s.expects, expect{kind: expectParse, op: i, prepared: s.state.add(name)})
}

var (
	parseComplete = wire.AppendParseComplete(nil)
	bindComplete  = wire.AppendBindComplete(nil)
	closeComplete = wire.AppendCloseComplete(nil)
	noData        = wire.AppendNoData(nil)
)

// ensure makes sure that the backend has a statement, and returns its name there.
func (s *session) ensure(st *statement) string {
	if st.name == "" {
		if s.state.unnamed != st {
			s.toServer = wire.AppendParse(s.toServer, "", st.text, s.numbering().declared(st.oids))
			s.state.unnamed = st
			s.expectParsed(st, nil)
		}
		s.giveParsed()
		return ""
	}
	name := st.onServer(s.effective())
	if !s.state.has(name) {
		s.makeRoom(name)
		s.toServer = wire.AppendParse(s.toServer, name, st.text, s.numbering().declared(st.oids))
		s.expectParsed(st, s.state.add(name))
	}
	s.giveParsed()
	return name
}

// ensureAll makes sure that the backend has the statements that a text names, and says whether anything had to be sent.
func (s *session) ensureAll(statements []*statement) (sent bool) {
	for _, st := range statements {
		name := st.onServer(s.effective())
		if s.state.has(name) {
			continue
		}
		sent = true
		if st.sql == nil {
			s.ensure(st)
			continue
		}
		s.hiddenStatement(st.sql.source)
		s.expects[len(s.expects)-1].prepared = s.state.add(name)
	}
	return sent
}

// makeRoom closes what is in the way of a new prepared statement: a stale one of its name, and the oldest if there are too many.
func (s *session) makeRoom(name string) {
	if stale := s.state.prepared[name]; stale != nil {
		s.closePrepared(stale)
	}
	if old := s.state.oldest(); old != nil && !s.unitUses(old.name) {
		s.closePrepared(old)
	}
}

func (s *session) closePrepared(old *serverStatement) {
	s.state.remove(old)
	s.toServer = wire.AppendClose(s.toServer, 'S', old.name)
	s.expects = append(s.expects, expect{kind: expectClose, hidden: true, op: -1, closed: old})
}

// unitUses says whether an operation of the unit counts on a statement.
func (s *session) unitUses(name string) bool {
	return slices.ContainsFunc(s.ops, func(o op) bool { return o.statement != nil && o.statement.serverName == name })
}

// ran returns the plan that an expected reply belongs to, and the statement of it that completes now.
func (s *session) ran(e *expect) (*planned, *plan.Statement) {
	if e.op < 0 || s.ops[e.op].planned == nil {
		return nil, nil
	}
	p := s.ops[e.op].planned
	if e.next >= len(p.plan.Statements) {
		return p, nil
	}
	return p, &p.plan.Statements[e.next]
}
