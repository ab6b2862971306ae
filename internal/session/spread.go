package session

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/wire"
)

// part is what one shard gets of an operation that concerns several.
type part struct {
	data      []byte
	edits     []edit
	statement *statement
	// elsewhere: places in it are not places of the client's text.
	elsewhere bool
}

// gather puts together what several shards answer to one statement.
type gather struct {
	parts plan.Parts
	// order has, for each row that is inserted, the place of its shard among those of the statement; for rows that are kept, that of theirs.
	order []int
	// at is the place of the shard that is read from now.
	at int
	// columns are the first descriptions of the answer, by the operation that asked; tag and rows are the command's, added up.
	columns map[int][]byte
	tag     string
	rows    int64
	done    bool
	// returned are the rows of each shard, kept until their order is known.
	returned [][][]byte
	held     held
	// lastTold are the sequences whose last number is known, see [toldNumbers].
	lastTold []string
	// unload is set for COPY TO; last is the place of the last shard.
	unload *unload
	last   int
	// limit is how many rows the client gets at most, unlimited if there is no limit, given how many it has got.
	limit, given int64
	// sink takes the rows, if they are not for the client; nothing but errors and notices is told then.
	sink sink
	// failed: the client has been told of an error. lost: a leg is gone.
	failed, lost bool
	// partly: shards that are away may be left out. joining are those that the statement is the first of its transaction for; fresh: the one that is told its
	// part is one of them; used: rows of the one that is heard, or how many there are, have been taken; answered: one has said all; parted: one was lost and left out.
	partly, fresh, used, answered, parted bool
	joining                               []int
	// first is the place of the shard whose answer the client sees but for rows; shown is what it has seen of that, if another shard may have to go on with it.
	first int
	shown map[shownReply]bool
	// untold is an error that the client has not been told of, because a better one comes; nil: there is none.
	untold *wire.Fields
}

// wants says whether a message has to be seen whole.
func (g *gather) wants(kind byte) bool {
	return kind == wire.RespRowDescription || kind == wire.RespDataRow && (g.parts == plan.ByRow || g.sink != nil) || kind == wire.RespCopyData && g.unload.looks()
}

// flushSpread runs a unit whose operations concern several shards: all are told, and then heard one after the other.
func (s *session) flushSpread() error {
	shards := s.spreadTo
	s.gather = &gather{columns: map[int][]byte{}, parts: s.spreadParts, order: s.rowOrder, returned: make([][][]byte, len(shards))}
	s.gather.allowPartly(s.gathersPartly())
	s.gather.unload, s.gather.last, s.gather.limit, s.gather.sink = s.unload, len(shards)-1, s.spreadLimit, s.sink
	s.gather.held.of = &s.server.allowance
	defer func() {
		s.gather.held.release()
		s.gather, s.spreadTo, s.loading, s.unload = nil, nil, nil, nil
	}()
	if s.needsBlock() {
		s.startBlock()
	}
	if last := s.ops[len(s.ops)-1].kind; last != opQuery && last != opSync {
		s.ops = append(s.ops, op{kind: opSync, hidden: true})
	}
	if s.loading != nil {
		s.setInterrupt(s.loading.cancel) // the client may ask for it as soon as it is told to send rows
		defer s.setInterrupt(nil)
	}
	err := s.exchangeSpread(shards)
	if err == nil {
		err = s.runLoad(shards)
	}
	if err != nil {
		return err
	}
	s.endGather()
	if len(s.out) > relayBuffer {
		return s.write()
	}
	return nil
}

// needsBlock says whether the parts have to be in one transaction: all but those of a statement that reads, alone.
func (s *session) needsBlock() bool {
	if s.tx.begin != "" || !s.syncing || s.inText {
		return true
	}
	return slices.ContainsFunc(s.ops, func(o op) bool { return o.planned != nil && !o.planned.onlyReads() })
}

// exchangeSpread tells all shards their part and then hears them. Of copies the home shard's is changed first, and the others when that is
// done: who is about to change the same rows waits there, and not on one shard for who waits on another.
func (s *session) exchangeSpread(shards []int) error {
	first := len(shards)
	if s.spreadParts == plan.Copies && s.loading == nil {
		first = 1
		defer s.limitTime()() // of both steps
	}
	if err := s.exchangePart(shards, 0, first); err != nil || s.gather.failed {
		return err
	}
	return s.exchangePart(shards, first, len(shards))
}

// exchangePart is exchangeSpread for the shards from one place to another.
func (s *session) exchangePart(shards []int, from, to int) error {
	for _, shard := range shards[from:to] { // while nobody is waited for
		if refused := s.learnNumbers(shard); refused != nil {
			s.gather.failNow(s, refused)
			return nil
		}
	}
	s.telling.Store(true)
	defer s.telling.Store(false)
	told, err := s.tellSpread(shards[:to], from)
	if err != nil {
		return err
	}
	return s.hearSpread(told, from)
}

// allAreTold ends the telling. Who cancelled meanwhile has cancelled what those do who were told then, which may have been done; so all are cancelled now.
func (s *session) allAreTold() {
	s.telling.Store(false)
	cancelled := s.cancelled.Load()
	if s.gather.sink == nil { // or the next step has to know of it, if this one ends before it is cancelled
		s.cancelled.Store(false)
	}
	if cancelled {
		ctx, cancel := context.WithTimeout(s.ctx, cancelTimeout)
		defer cancel()
		s.mu.cancel(func() func() { return s.canceller(ctx) })
	}
}

// tellSpread sends each shard from a place on its part, and returns those that could be told before one could not. Shards that the statement can do without are
// left out.
func (s *session) tellSpread(shards []int, from int) (told []int, err error) {
	for i := from; i < len(shards); i++ {
		if s.backend != nil && s.backend.Shard() != shards[i] {
			s.setAside()
		}
		s.gather.at, s.target = i, shards[i]
		if s.gather.fresh = s.backend == nil && s.legs[shards[i]] == nil; s.gather.fresh {
			s.gather.joining = append(s.gather.joining, shards[i])
		}
		err := s.send()
		if away := s.away(err); away != nil {
			shards = s.without(shards, i, away)
			i--
			continue
		}
		if refused := refusalIn(err); refused != nil && refused.Severity != pgerr.SeverityFatal {
			s.gather.failNow(s, refused)
			return shards[:i], nil
		}
		if errors.Is(err, errLegLost) {
			return shards[:i], nil
		}
		if err != nil {
			return shards[:i], err
		}
	}
	return shards, nil
}

// hearSpread reads what the shards from a place on answer.
func (s *session) hearSpread(shards []int, from int) error {
	if s.backend != nil {
		s.setAside()
	}
	s.workOn(shards[from:])
	defer s.setWorking(nil)
	s.allAreTold()
	if m, merges := s.gather.sink.(*merging); merges {
		return m.hear(shards[from:])
	}
	failing := false
	for i, shard := range shards[from:] {
		if s.gather.failed && !failing {
			failing = true
			defer s.endRestSoon()()
		}
		s.gather.at, s.gather.used = from+i, false
		s.resume(s.legs[shard])
		if err := s.receive(); err != nil && !errors.Is(err, errLegLost) && !errors.Is(err, errAwaitsData) {
			return err
		}
		s.gather.heard(s.isMissing(shard))
		if s.backend != nil {
			s.setAside()
		}
		s.workOn(shards[from+i+1:])
	}
	return nil
}

// errAwaitsData ends the reading of an answer whose shard waits for the rows of a COPY.
var errAwaitsData = errors.New("the shard waits for rows")

// runLoad gives the shards that wait for rows theirs, if all of them wait.
func (s *session) runLoad(shards []int) error {
	var waiting []int
	for _, shard := range shards {
		if l := s.legs[shard]; l != nil && l.copying {
			waiting = append(waiting, shard)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	if len(waiting) < len(shards) || s.loading == nil {
		return (&load{s: s}).abandon(waiting)
	}
	s.loaded = s.syncing && !s.endsWithQuery()
	if err := s.write(); err != nil {
		return err
	}
	return s.loading.run(shards)
}

// workOn says that all of these may be cancelled.
func (s *session) workOn(shards []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.works(len(shards) > 0)
	for _, shard := range shards {
		s.working = append(s.working, s.legs[shard].backend)
	}
}

// endGather tells the client what the statement has come to, and the transaction.
func (s *session) endGather() {
	g := s.gather
	if g.untold != nil {
		s.out = wire.AppendFields(s.out, wire.RespError, *g.untold)
	}
	if g.partly {
		s.endPartly()
	}
	if !g.failed {
		s.giveReturned(g)
	}
	switch {
	case g.failed || !g.done:
	case g.sink == nil:
		s.tellGathered(g.wholeTag())
	default:
		s.sunkTag = g.wholeTag()
	}
	switch {
	case g.lost:
		inBlock := !s.tx.implicit && s.tx.begin != ""
		s.rollbackLegs()
		s.releaseLegs()
		s.endLost(inBlock)
		s.skipping = !s.unitEnds() || s.ops[len(s.ops)-1].hidden && !s.syncing
	case g.failed:
		s.tx.failed = s.tx.begin != ""
		s.skipping = !s.syncing && !s.inText && s.ops[len(s.ops)-1].kind != opQuery
	}
}

// giveReturned passes on rows that were kept, in the order of the rows that were inserted. If some of these gave none, there is no
// such order, and the rows are given shard by shard.
func (s *session) giveReturned(g *gather) {
	counts := make([]int, len(g.returned))
	for _, at := range g.order {
		counts[at]++
	}
	inOrder := len(g.order) > 0
	for at, rows := range g.returned {
		inOrder = inOrder && len(rows) == counts[at]
	}
	if !inOrder {
		for _, rows := range g.returned {
			for _, row := range rows {
				s.giveGathered(g, row)
			}
		}
		return
	}
	next := make([]int, len(g.returned))
	for _, at := range g.order {
		s.giveGathered(g, g.returned[at][next[at]])
		next[at]++
	}
}

// giveGathered passes on a message with a row.
func (s *session) giveGathered(g *gather, message []byte) {
	if g.sink == nil {
		s.out = append(s.out, message...)
	} else if !g.failed {
		g.keep(s, message)
		s.out = append(s.out, s.instead...)
		s.instead = s.instead[:0]
	}
}

// keep gives a row to who takes them in place of the client.
func (g *gather) keep(s *session, message []byte) {
	if refused := g.sink.take(g.at, wire.Body(message)); refused != nil {
		g.fail(s, refused)
	}
}

// wholeTag is the command's tag with the counts of all shards.
func (g *gather) wholeTag() string {
	switch {
	case g.rows < 0:
		return g.tag
	case g.limit != unlimited:
		return g.tag + " " + strconv.FormatInt(min(g.rows, g.limit), 10)
	}
	return g.tag + " " + strconv.FormatInt(g.rows, 10)
}

// complete takes one shard's command tag.
func (g *gather) complete(tag string) *pgerr.Error {
	word, rows := splitTag(tag)
	if g.parts == plan.Kept && rows > 0 && !slices.Contains(g.order, g.at) {
		return movesRow
	}
	switch {
	case !g.done:
		g.tag, g.rows, g.done = word, rows, true
	case g.parts == plan.Copies && (g.tag != word || g.rows != rows):
		return pgerr.New(pgerr.SerializationFailure, "the shards' copies of the table did not have the same rows").
			WithDetail("One shard answered %q and another %q. Somebody has written to it in between, or past the router.", g.wholeTag(), tag).
			WithHint("Nothing was changed: try again. If it stays, 'cleave schema diff' and the rows of both copies tell in what they differ.")
	case g.parts != plan.Copies && rows >= 0:
		g.rows += rows
	}
	return nil
}

var movesRow = pgerr.New(pgerr.FeatureNotSupported, "moving a row to another shard is not supported yet").
	WithDetail("The statement gives a row a key that is on another shard.").WithHint("Delete the row and insert it again.")

// fail tells the client of the first error, in the place of the message that is looked at; what follows from it need not be told.
func (g *gather) fail(s *session, e *pgerr.Error) {
	if !g.failed || g.untold != nil {
		s.instead = wire.AppendError(s.instead, e)
		s.server.countRefusal(e)
	}
	g.failed, s.erred, g.untold = true, true, nil
}

// failNow is fail for what no message of a shard tells.
func (g *gather) failNow(s *session, e *pgerr.Error) {
	g.fail(s, e)
	s.out = append(s.out, s.instead...)
	s.instead = s.instead[:0]
}

// gatherReply sees one message of one of several shards, and says whether the client is to see it.
func (s *session) gatherReply(e *expect, kind byte, message []byte) (show bool, err error) {
	operation := e.op
	s.gather.used = s.gather.used || !e.hidden && isResult(kind)
	show, err = s.gatherPart(e, kind, message)
	if show && !isResult(kind) && !isUnasked(kind) {
		show = s.gather.showsOnce(operation, kind)
	}
	if s.gather.sink != nil && kind != wire.RespNotice && kind != wire.RespParameterStatus && kind != wire.RespNotification {
		show = false
	}
	return show, err
}

func (s *session) gatherPart(e *expect, kind byte, message []byte) (show bool, err error) {
	g := s.gather
	first := g.at == g.first && !g.failed
	switch kind {
	case wire.RespDataRow:
		return s.gatherRow(e, message)
	case wire.RespRowDescription, wire.RespNoData:
		if kind == wire.RespRowDescription {
			if err := s.noteColumns(message); err != nil {
				return false, err
			}
		}
		if e.kind == expectDescribe {
			s.head++
		}
		return !e.hidden && first, s.sameColumns(e.op, kind, message)
	case wire.RespCommandComplete, wire.RespEmptyQuery:
		return s.gatherComplete(e, kind, message)
	case wire.RespReadyForQuery:
		if e.kind != expectQuery && e.kind != expectSync || len(message) != wire.HeaderSize+1 {
			return false, errDesync
		}
		s.status, s.unsynced = message[wire.HeaderSize], s.head+1 < len(s.expects)
		s.head++
		return false, nil
	case wire.RespError:
		return s.gatherError(e, message)
	case wire.RespNotice:
		return !e.hidden && (first || g.parts != plan.Copies), nil
	case wire.RespCopyIn:
		s.copying = true
		if first && s.loading != nil && s.loading.timed != nil {
			s.instead = s.loading.timed.asked(s.instead, message)
			return false, nil
		}
		return first, nil
	case wire.RespCopyOut:
		return first, nil
	case wire.RespCopyData:
		return s.gatherData(message), nil
	case wire.RespCopyDone:
		return g.at == g.last && !g.failed, nil
	case wire.RespPortalSuspended:
		return false, errDesync // nobody asked for that
	default:
		show, err = s.replyOne(e, kind, message)
		return show && (first || kind == wire.RespParameterStatus || kind == wire.RespNotification), err
	}
}

func (s *session) gatherRow(e *expect, message []byte) (show bool, err error) {
	g := s.gather
	switch {
	case e.hidden || g.failed || g.parts == plan.Copies && g.at > 0 && !s.explaining:
		return false, nil
	case s.explaining:
		return s.gatherExplained(e, message), nil
	case g.parts != plan.ByRow:
		show = g.gives()
		if show && g.sink != nil {
			g.keep(s, message)
		}
		return show, nil
	}
	if most := g.held.of.Given; g.held.filled+int64(len(message)) > most {
		g.fail(s, g.held.of.tooMuch(tooManyReturned(most)))
		return false, nil
	}
	if !g.held.add(int64(len(message))) {
		g.fail(s, g.held.of.noMemory())
		return false, nil
	}
	g.returned[g.at] = append(g.returned[g.at], bytes.Clone(message))
	return false, nil
}

// gatherExplained is gatherRow for a line of an EXPLAIN.
func (s *session) gatherExplained(e *expect, message []byte) (show bool) {
	g := s.gather
	show = s.explainBefore(e, message)
	if g.sink == nil {
		return show
	}
	lines := message
	if !show {
		lines, s.instead = s.instead, nil
	}
	for len(lines) > 0 && !g.failed {
		_, size, err := wire.Frame(lines)
		if err != nil {
			return false
		}
		g.keep(s, lines[:size])
		lines = lines[size:]
	}
	return false
}

// sameColumns sees to it that all shards answer with the same columns: a schema may be changing.
func (s *session) sameColumns(asked int, kind byte, message []byte) error {
	g := s.gather
	known := g.columns[asked]
	switch {
	case known == nil:
		g.columns[asked] = bytes.Clone(message)
		return nil
	case known[0] != kind:
		g.fail(s, differentColumns)
		return nil
	case kind == wire.RespNoData:
		return nil
	}
	same, err := sameDescription(message, known)
	if err == nil && !same {
		g.fail(s, differentColumns)
	}
	return err
}

var differentColumns = pgerr.New(pgerr.SerializationFailure, "the shards answered with different columns").
	WithDetail("The schema was changed while the statement ran, or differs from shard to shard.").WithHint("Try again. 'cleave schema diff' tells whether shards differ.")

// sameDescription compares all but the numbers of tables, which every shard has of its own.
func sameDescription(a, b []byte) (bool, error) {
	return wire.EqualDescriptions(wire.Body(a), wire.Body(b), func(one, other wire.Column) bool {
		sameType := one.TypeOID == other.TypeOID || one.TypeOID >= firstUserOID && other.TypeOID >= firstUserOID
		return sameType && one.Format == other.Format && bytes.Equal(one.Name, other.Name)
	})
}

// firstUserOID is the first number of what is not PostgreSQL's own.
const firstUserOID = 16384

func (s *session) gatherComplete(e *expect, kind byte, message []byte) (show bool, err error) {
	g := s.gather
	if e.kind != expectQuery && e.kind != expectExecute {
		return false, errDesync
	}
	if !e.hidden {
		s.completed(e, kind, message)
		if kind == wire.RespCommandComplete {
			tag, err := wire.DecodeCommandComplete(wire.Body(message))
			if err != nil {
				return false, err
			}
			if refused := g.complete(string(tag)); refused != nil {
				g.fail(s, refused)
			}
		}
	}
	if e.prepared != nil {
		e.prepared.confirmed = true
	}
	if e.kind == expectExecute {
		s.head++
	} else {
		e.next++
	}
	return false, nil
}

func (s *session) gatherError(e *expect, message []byte) (show bool, err error) {
	fields, err := wire.DecodeError(wire.Body(message))
	if err != nil {
		return false, err
	}
	if isFatal(fields) {
		s.fatal = &fields
		return false, nil
	}
	s.copying = false
	s.staleStatement(e, fields)
	s.failed(e)
	g := s.gather
	s.asVictim(&fields)
	switch {
	case g.failed && g.untold == nil:
	case s.isAbandoned(&fields): // the client is told what made it of no use, which comes later
		g.failed, s.erred, g.untold = true, true, &fields
	case e.kind == expectPoison:
		g.fail(s, s.ops[e.op].failure)
	case g.parts == plan.Kept && fields.Code == pgerr.NotOwned:
		g.fail(s, movesRow)
	default:
		g.failed, s.erred, g.untold = true, true, nil
		fields.Position = s.originalPlace(e, fields.Position)
		s.instead = wire.AppendFields(s.instead, wire.RespError, fields)
	}
	if e.kind != expectQuery {
		skipping := s.skipping
		s.skipToSync()
		s.skipping = skipping // the legs have a Sync of their own
	}
	return false, nil
}

// lostPart is lost for one of several shards: the others have still to be heard.
func (s *session) lostPart(cause error) error {
	e := s.lostError(cause)
	torn := s.passing > 0 && !s.passingHide
	spared, shard := s.spares(e), s.backend.Shard()
	if !spared {
		s.forgetUnanswered()
	}
	s.drop(cause.Error())
	s.passing, s.head = 0, len(s.expects)
	if spared {
		s.miss(shard, e)
		s.gather.parted = true
		return errLegLost
	}
	if torn {
		s.out = s.out[:0]
		return errEnd
	}
	s.gather.lost = true
	s.gather.failNow(s, e)
	return errLegLost
}

// syncSpread ends a unit that is on several shards, and the transaction if the client did not begin it.
func (s *session) syncSpread() error {
	s.syncing = true
	defer func() { s.syncing = false }()
	if len(s.ops) > 0 || s.unsynced {
		if len(s.spreadTo) == 0 && (s.needsServer() || s.unsynced) {
			s.ops = append(s.ops, op{kind: opSync, hidden: true})
		}
		if err := s.flush(); err != nil {
			return err
		}
	}
	s.skipping = false
	if s.inText {
		return nil
	}
	if s.loaded { // PostgreSQL passes over a Sync that comes before the data, and waits for another one
		s.loaded = false
		return s.write()
	}
	s.endImplicit()
	s.out = wire.AppendReadyForQuery(s.out, s.currentStatus())
	return s.write()
}

// endImplicit commits what the router has begun by itself, or rolls it back if something has failed.
func (s *session) endImplicit() {
	switch {
	case !s.tx.implicit:
		if s.tx.begin == "" && s.backend == nil {
			s.endTransaction()
		}
	case s.hasFailed():
		s.rollbackLegs()
		s.spreadEnded(false)
	default:
		refused := s.commitLegs()
		if refused != nil {
			s.out = wire.AppendError(s.out, refused)
			s.server.countRefusal(refused)
			s.erred = true
		}
		s.spreadEnded(refused == nil)
		if refused == nil {
			s.out = append(s.out, s.lastTag...)
		}
	}
	s.lastTag = s.lastTag[:0]
}
