package session

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/wire"
)

// relayBuffer is how much of a backend's answer is passed on at a time.
const relayBuffer = 16 << 10

var relayBuffers = sync.Pool{New: func() any { return new([relayBuffer]byte) }}

// errDesync says that a backend sent something that it was not asked for.
var errDesync = errors.New("the server's answer does not fit what was asked")

// receive relays replies until all that is owed has come.
func (s *session) receive() error {
	pooled := relayBuffers.Get().(*[relayBuffer]byte)
	defer relayBuffers.Put(pooled)
	buf, filled := pooled[:], 0
	s.relayed = 0
	s.giveLocal()
	for s.head < len(s.expects) {
		if err := s.syncNow(); err != nil {
			return s.lost(err)
		}
		n, err := s.backend.Conn().Read(buf[filled:])
		if n == 0 && err != nil {
			return s.lostReply(err)
		}
		s.relayed += int64(n)
		taken, err := s.digest(buf[:filled+n])
		if err != nil {
			return err
		}
		filled = copy(buf, buf[taken:filled+n])
		if filled == len(buf) { // a message that must be seen whole is longer
			buf = append(buf, make([]byte, len(buf))...)
		}
		switch {
		case !s.copying:
		case s.gather == nil:
			if err := s.copyIn(); err != nil {
				return err
			}
		case filled == 0: // or it has more to say
			return errAwaitsData
		}
	}
	if filled > 0 && s.backend != nil {
		return s.lost(errDesync)
	}
	return s.settle()
}

// digest looks at the messages in a chunk and passes on what is the client's. It returns how much it is done with; the rest
// is the beginning of a message that has to be seen whole.
func (s *session) digest(chunk []byte) (taken int, err error) {
	from := 0 // where the part to pass on begins
	at := min(s.passing, len(chunk))
	s.passing -= at
	if s.passingHide {
		from = at
	}
	for at < len(chunk) {
		kind, size, err := wire.Frame(chunk[at:])
		if err != nil {
			return 0, s.broken(chunk[from:at], fmt.Errorf("%w: %w", errDesync, err))
		}
		rest := len(chunk) - at
		if size == 0 || size > rest && (mustBeWhole(kind) || kind == wire.RespRowDescription && s.learnsColumns() || s.explaining || s.gather != nil && s.gather.wants(kind) || (kind == wire.RespDataRow || kind == wire.RespCopyData) && s.looksInto()) {
			break
		}
		message := chunk[at:min(at+size, len(chunk))]
		show, err := s.reply(kind, message)
		if err != nil {
			return 0, s.broken(chunk[from:at], err)
		}
		if !show {
			s.out = append(append(s.out, chunk[from:at]...), s.instead...)
			s.instead = s.instead[:0]
			from = at + len(message)
		}
		if size > rest {
			s.passing, s.passingHide = size-rest, !show
		}
		at += len(message)
		if s.headIsLocal() {
			s.out = append(s.out, chunk[from:at]...)
			from = at
			s.giveLocal()
		}
	}
	if at == len(chunk) && s.head == len(s.expects) {
		// The next one can have the backend while the client is being told.
		if err := s.settle(); err != nil {
			return 0, err
		}
	}
	return at, s.pass(chunk[from:at])
}

// broken passes on what came before a message that makes no sense, and gives the backend up.
func (s *session) broken(before []byte, err error) error {
	s.out = append(s.out, before...)
	return s.lost(err)
}

// pass writes to the client, without copying if nothing waits before it.
func (s *session) pass(part []byte) error {
	if len(s.out) > 0 {
		s.out = append(s.out, part...)
		part = nil
	}
	if err := s.write(); err != nil {
		return s.clientGone(err)
	}
	if len(part) == 0 {
		return nil
	}
	if _, err := s.conn.Write(part); err != nil {
		return s.clientGone(fmt.Errorf("write to the client: %w", err))
	}
	return nil
}

// clientGone: a backend that is in the middle of something for a client that is gone is of no use to anybody.
func (s *session) clientGone(err error) error {
	if s.backend != nil {
		s.drop("the client is gone")
	}
	return err
}

// mustBeWhole says whether a message is looked into.
func mustBeWhole(kind byte) bool {
	switch kind {
	case wire.RespError, wire.RespNotice, wire.RespParameterStatus, wire.RespReadyForQuery, wire.RespCommandComplete, wire.RespCopyIn,
		wire.RespRowDescription, wire.RespParameterDescription:
		return true
	default:
		return false
	}
}

func (s *session) headIsLocal() bool {
	return s.head < len(s.expects) && s.expects[s.head].kind == expectLocal
}

// giveLocal tells the client what the session itself answers, as far as its turn has come.
func (s *session) giveLocal() {
	for s.headIsLocal() {
		if at := s.expects[s.head].op; s.gather == nil || s.gather.showsLocal(at) {
			s.out = append(s.out, s.ops[at].data...)
		}
		s.head++
	}
}

// reply sees one message of the backend and says whether the client is to see it.
func (s *session) reply(kind byte, message []byte) (show bool, err error) {
	if s.head >= len(s.expects) {
		return s.unasked(kind, message)
	}
	e := &s.expects[s.head]
	switch kind {
	case wire.RespNotice:
		if s.takeTold(e, message) {
			return false, nil
		}
	case wire.RespRowDescription:
		if n := s.numbering(); n != nil {
			n.describeColumns(message)
		}
		if err := s.noteResults(e, message); err != nil {
			return false, err
		}
	case wire.RespNoData:
		if err := s.noteResults(e, nil); err != nil {
			return false, err
		}
	case wire.RespCopyData:
		if s.looksInto() {
			if err := s.exchangeCopied(s.ops[e.op].carried.types, message); err != nil {
				return false, err
			}
		}
	case wire.RespDataRow:
		if s.looksInto() {
			if err := s.exchangeRow(s.ops[e.op].carried.types, message); err != nil {
				return false, err
			}
		}
	case wire.RespParameterDescription:
		if n := s.numbering(); n != nil {
			n.describeParameters(message)
		}
	}
	if s.gather != nil {
		return s.gatherReply(e, kind, message)
	}
	return s.replyOne(e, kind, message)
}

// replyOne is reply for the only shard, and for what is no different with several.
func (s *session) replyOne(e *expect, kind byte, message []byte) (show bool, err error) {
	switch kind {
	case wire.RespDataRow, wire.RespCopyData:
		if s.explaining && !e.hidden {
			return s.explainBefore(e, message), nil
		}
		return !e.hidden, nil
	case wire.RespError:
		return s.replyError(e, message)
	case wire.RespNotice:
		return !e.hidden, nil
	case wire.RespParameterStatus:
		s.unheard = e.hidden && e.kind == expectQuery // the rehearsal has told it
		show = s.noteParameter(message)
		s.unheard = false
		return show, nil
	case wire.RespNotification:
		return true, nil
	case wire.RespReadyForQuery:
		return s.replyReady(e, message)
	case wire.RespCommandComplete, wire.RespEmptyQuery:
		return s.replyComplete(e, kind, message)
	case wire.RespPortalSuspended:
		if !e.hidden {
			s.noteEffects(e, nil) // as far as it has run
		}
		return s.advance(e, expectExecute)
	case wire.RespParseComplete:
		return s.replyParsed(e)
	case wire.RespBindComplete:
		return s.advance(e, expectBind)
	case wire.RespCloseComplete:
		return s.advance(e, expectClose)
	case wire.RespRowDescription, wire.RespNoData:
		if e.kind != expectDescribe {
			return !e.hidden, nil
		}
		if kind == wire.RespRowDescription {
			if err := s.noteColumns(message); err != nil {
				return false, err
			}
		}
		return s.advance(e, expectDescribe)
	case wire.RespParameterDescription, wire.RespCopyOut, wire.RespCopyDone:
		return !e.hidden, nil
	case wire.RespCopyIn:
		s.copying = true
		return !e.hidden, nil
	default:
		return false, fmt.Errorf("%w: message %q", errDesync, kind)
	}
}

// unasked handles what a server may say at any time.
func (s *session) unasked(kind byte, message []byte) (show bool, err error) {
	switch kind {
	case wire.RespParameterStatus:
		return s.noteParameter(message), nil
	case wire.RespNotice, wire.RespNotification:
		return true, nil
	case wire.RespError:
		return s.replyError(nil, message)
	default:
		return false, fmt.Errorf("%w: message %q", errDesync, kind)
	}
}

// advance ends a reply.
func (s *session) advance(e *expect, kind expectKind) (show bool, err error) {
	if e.kind != kind {
		return false, errDesync
	}
	s.head++
	return !e.hidden, nil
}

func (s *session) replyParsed(e *expect) (show bool, err error) {
	if e.prepared != nil {
		e.prepared.confirmed = true
	}
	if e.kind == expectProbe {
		// PostgreSQL reads what the router's grammar cannot: nothing is known of it, so it must not run, and what follows fails.
		s.head++
		return false, nil
	}
	return s.advance(e, expectParse)
}

var unreadable = pgerr.New(pgerr.FeatureNotSupported, "the router cannot read this statement").
	WithDetail("The server accepts it, but its grammar is newer or older than the router's, so the router cannot tell which tables it uses.").
	WithHint("Write it in another way.")

func (s *session) replyReady(e *expect, message []byte) (show bool, err error) {
	if e.kind != expectQuery && e.kind != expectSync || len(message) != wire.HeaderSize+1 {
		return false, errDesync
	}
	inBlock := s.status
	s.status = message[wire.HeaderSize]
	s.head++
	if e.hidden {
		s.unsynced = s.unsynced && e.op < 0 // the end of a unit that the client has not ended
		return false, nil
	}
	s.unsynced = false
	if (s.inText || s.tx.implicit) && s.status != statusIdle {
		return false, nil
	}
	if s.beside != nil {
		s.instead = wire.AppendReadyForQuery(s.instead, s.beside.status())
		return false, nil
	}
	if s.status == statusIdle {
		if inBlock != statusIdle { // it ended without success, as a COMMIT does whose deferred checks fail
			s.log.reset()
			s.contextChanged()
		}
		s.transactionOver()
	}
	return !s.inText, nil
}

func (s *session) replyComplete(e *expect, kind byte, message []byte) (show bool, err error) {
	if e.kind != expectQuery && e.kind != expectExecute {
		return false, errDesync
	}
	if !e.hidden {
		s.completed(e, kind, message)
	}
	show = !e.hidden
	if tag := s.tagOf(e); show && tag != "" {
		s.instead = wire.AppendCommandComplete(s.instead, tag)
		show = false
	}
	if !e.hidden && s.endsQuery(e) && s.commitsAfter() {
		s.keepTag(message)
		show = false
	}
	if e.prepared != nil {
		e.prepared.confirmed = true
	}
	if e.kind == expectExecute {
		s.head++
	} else {
		e.next++
	}
	return show, nil
}

func (s *session) tagOf(e *expect) string {
	if e.op < 0 || e.next >= len(s.ops[e.op].tags) {
		return ""
	}
	return s.ops[e.op].tags[e.next]
}

// completed notes what follows from a statement's success.
func (s *session) completed(e *expect, kind byte, message []byte) {
	var tag []byte
	if kind == wire.RespCommandComplete {
		tag, _ = wire.DecodeCommandComplete(wire.Body(message))
	}
	if p, st := s.ran(e); p != nil {
		s.observe(p, wire.CommandRows(tag), false)
		s.noteRun(st)
	}
	if len(s.log.changes)+len(s.log.switches) > 0 && string(tag) == prepareTransaction { // it ends the block as COMMIT does, for the session
		s.keepSettings()
	}
	s.noteEffects(e, tag)
}

// noteEffects notes what a statement, and what an EXECUTE runs, leaves behind.
func (s *session) noteEffects(e *expect, tag []byte) {
	p, st := s.ran(e)
	if p == nil {
		return
	}
	if st != nil && !st.Plain {
		s.succeeded(st, e, tag)
	}
	if inner := s.ops[e.op].inner; inner != nil {
		s.succeeded(inner, e, tag)
	}
}

// replyError handles an error of the server.
func (s *session) replyError(e *expect, message []byte) (show bool, err error) {
	fields, err := wire.DecodeError(wire.Body(message))
	if err != nil {
		return false, fmt.Errorf("%w: %w", errDesync, err)
	}
	if isFatal(fields) { // the end of the stream follows
		s.fatal = &fields
		return false, nil
	}
	if e == nil {
		return false, errDesync
	}
	s.copying, s.erred = false, true
	s.staleStatement(e, fields)
	s.failed(e)
	changed := s.asVictim(&fields)
	switch e.kind {
	case expectQuery:
		if e.hidden && !s.suppress {
			// The first error of what was put off. The transaction has failed on the server, so the rest fails there too, with
			// errors that tell nothing new.
			show, err = s.showError(e, fields, changed)
			s.suppress = true
			return show, err
		}
		return s.showError(e, fields, changed)
	case expectPoison:
		failure := s.ops[e.op].failure
		s.instead = wire.AppendError(s.instead, failure)
		s.server.countRefusal(failure)
		s.skipToSync()
		return false, nil
	default:
		show, err = s.showError(e, fields, changed)
		s.suppress = s.suppress || e.hidden // what the client asked for fails of the same
		s.skipToSync()
		return show, err
	}
}

// showError passes an error on, as the server wrote it unless it was changed; if the server saw another text than the client wrote, its place is that
// in the client's.
func (s *session) showError(e *expect, fields wire.Fields, changed bool) (show bool, err error) {
	place := s.originalPlace(e, fields.Position)
	if s.suppress || place == fields.Position && !changed {
		return !s.suppress, nil
	}
	fields.Position = place
	s.instead = wire.AppendFields(s.instead, wire.RespError, fields)
	return false, nil
}

// originalPlace is where a place of the text that a server has seen was in the client's.
func (s *session) originalPlace(e *expect, position int) int {
	if position == 0 || s.atMoment || e.parsed != nil && e.parsed.elsewhere || e.op >= 0 && (s.ops[e.op].elsewhere || s.ops[e.op].statement != nil && s.ops[e.op].statement.elsewhere) {
		return 0
	}
	var edited []byte
	var edits []edit
	switch {
	case e.parsed != nil:
		edited, edits = []byte(e.parsed.text), e.parsed.edits
	case e.op >= 0 && s.ops[e.op].parts != nil:
		p := &s.ops[e.op].parts[s.gather.at]
		if p.elsewhere {
			return 0
		}
		if edited, edits = p.data, p.edits; p.statement != nil {
			edited = []byte(p.statement.text)
		}
	case e.op >= 0:
		edited, edits = s.ops[e.op].data, s.ops[e.op].edits
	}
	if len(edits) > 0 {
		position = originalPosition(edited, edits, position)
	}
	return s.textBefore + position
}

func isFatal(f wire.Fields) bool {
	severity := f.Severity
	return severity == "FATAL" || severity == "PANIC"
}

// skipToSync: after an error the server passes over everything up to Sync.
func (s *session) skipToSync() {
	failed := s.head
	for s.head < len(s.expects) && s.expects[s.head].kind != expectSync {
		s.head++
	}
	for i := s.head - 1; i >= failed; i-- { // the last first: it may build on those before
		s.undoExpected(&s.expects[i], i == failed)
	}
	s.skipping = true
	if s.head < len(s.expects) {
		e := &s.expects[s.head]
		s.skipping = e.hidden && e.op >= 0 // up to the client's own
	}
}

// undoExpected takes back what was noted for a reply that will not come: failed is the one that got an error in its place.
func (s *session) undoExpected(e *expect, failed bool) {
	if e.closed != nil {
		s.state.keep(e.closed)
	}
	if e.prepared != nil && !e.prepared.confirmed {
		s.state.remove(e.prepared)
	}
	if e.kind == expectParse {
		s.state.unnamed = nil
	}
	switch {
	case e.op < 0:
	case s.ops[e.op].undo != nil && (!failed || e.kind == expectBind): // a Parse that fails has ended the unnamed statement all the same
		s.ops[e.op].undo()
	case e.kind == expectParse:
		s.forgetStatement(s.ops[e.op].statement)
	}
}

// forgetUnanswered forgets statements of which a lost server has not said that it has them: clients prepare them again under the same names.
func (s *session) forgetUnanswered() {
	for i := s.head; i < len(s.expects); i++ {
		if e := &s.expects[i]; e.kind == expectParse && e.op >= 0 && s.ops[e.op].kind == opParse {
			s.forgetStatement(s.ops[e.op].statement)
		}
	}
}

func (s *session) forgetStatement(st *statement) {
	switch {
	case s.unnamed == st:
		s.unnamed = nil
	case s.statements[st.name] == st:
		delete(s.statements, st.name)
	}
}

// staleStatement: the server kept a prepared statement whose tables have changed. It is made anew for the next one who asks.
func (s *session) staleStatement(e *expect, f wire.Fields) {
	gone := f.Code == pgerr.InvalidStatementName // a function of the client's has deallocated it
	if !gone && f.Routine != "RevalidateCachedQuery" || e.op < 0 || s.ops[e.op].statement == nil {
		return
	}
	if kept := s.state.prepared[s.ops[e.op].statement.serverName]; kept != nil {
		kept.stale = true
	}
}

// failed notes an error: statistics, and that an implicit transaction is undone.
func (s *session) failed(e *expect) {
	p, st := s.ran(e)
	if p != nil {
		s.observe(p, 0, true)
		s.noteFailed(st)
		if st != nil && (st.Pin != "" || st.Taints || s.ops[e.op].inner != nil) {
			s.state.tainted = true // it may have come far enough to leave something that no roll-back takes away
		}
	}
	if s.beside != nil {
		s.beside.failed = true
		return
	}
	if s.status == statusIdle && len(s.log.changes) > 0 { // in a block the client decides what happens next
		s.log.reset()
		s.contextChanged()
	}
}

// observe counts a statement.
func (s *session) observe(p *planned, rows int64, failed bool) {
	elapsed := time.Since(s.sentAt)
	shard := s.backend.Shard()
	p.stats.Observe(shard, elapsed, rows, s.relayed, failed)
	s.server.config.Shards.Observe(shard, elapsed, rows, s.relayed, failed)
}

// lostReply decides what the end of a backend's stream means for the client.
func (s *session) lostReply(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		err = errors.New("the server closed the connection")
	}
	return s.lost(err)
}

// lost ends the use of a backend that broke. The statement may have run, so it is not sent again. It returns nil if the
// client was told and the session goes on.
func (s *session) lost(cause error) error {
	if s.gather != nil {
		return s.lostPart(cause)
	}
	e := s.lostError(cause)
	reason := ""
	p := s.pinned[s.backend.Shard()]
	wasPinned := p != nil && p.backend == s.backend
	if wasPinned {
		reason = p.why()
	}
	inBlock := s.status != statusIdle || s.tx.open || s.beside != nil && s.beside.open
	s.beside = nil
	torn := s.passing > 0 && !s.passingHide
	s.forgetUnanswered()
	s.drop(cause.Error())
	if torn { // the client is in the middle of a message that will not end
		s.out = s.out[:0]
		return errEnd
	}
	if wasPinned {
		return s.sayGoodbye(fatal(e).WithHint("The session kept this backend for %s, which is lost. Connect again.", reason))
	}
	ended := s.unitEnds() && !s.ops[len(s.ops)-1].hidden && !s.inText
	s.rollbackLegs()
	s.releaseLegs()
	s.endLost(inBlock && !s.tx.implicit)
	s.out = wire.AppendError(s.out, e)
	s.passing, s.copying, s.erred = 0, false, true
	s.skipping = !ended && !s.inText
	s.head = len(s.expects)
	if ended {
		s.out = wire.AppendReadyForQuery(s.out, s.currentStatus())
	}
	if err := s.write(); err != nil {
		return err
	}
	return errRecovered
}

// errRecovered ends the handling of a unit whose client has been told.
var errRecovered = errors.New("the client has been told")

func (s *session) unitEnds() bool {
	n := len(s.ops)
	return n > 0 && (s.ops[n-1].kind == opSync || s.ops[n-1].kind == opQuery)
}

// endLost: a transaction block that lost its backend has failed, until the client ends it.
func (s *session) endLost(inBlock bool) {
	s.log.reset()
	s.takeBackParameters()
	s.contextChanged()
	s.forgetPortals()
	s.definitionsEnd() // nobody knows whether they are there
	s.tx = transaction{}
	s.status = statusIdle
	if inBlock {
		s.tx = transaction{open: true, failed: true, begin: "BEGIN"}
	}
}

func (s *session) lostError(cause error) *pgerr.Error {
	name := s.backend.ShardName()
	if s.fatal != nil {
		e := pgerr.New(s.fatal.Code, "%s", s.fatal.Message).WithDetail("Shard %q ended the connection. %s", name, s.afterLoss())
		s.fatal = nil
		return e
	}
	return pgerr.New(pgerr.ConnectionFailure, "the connection to shard %q was lost", name).WithDetail("%s: %s", cause, s.afterLoss())
}

// afterLoss is what has become of what a lost backend was doing.
func (s *session) afterLoss() string {
	survives := slices.ContainsFunc(s.ops, func(o op) bool { // or may do so
		return o.planned != nil && slices.ContainsFunc(o.planned.plan.Statements, func(st plan.Statement) bool {
			return st.Command == plan.Commit || st.Name == prepareTransaction
		})
	})
	if (s.status != statusIdle || s.isSpread()) && !survives {
		return "The transaction is rolled back."
	}
	return mayHaveRun
}

// prepareTransaction is what PREPARE TRANSACTION is called, also in its tag.
const prepareTransaction = "PREPARE TRANSACTION"

const mayHaveRun = "The statement may have run or not; the router does not send it again."
