package session

import (
	"bytes"
	"maps"
	"slices"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/wire"
)

// maxUnit is how many bytes of a unit are gathered before they are sent on without waiting for its end.
const maxUnit = 64 << 10

// opCost is about what gathering a message takes besides its bytes.
const opCost = 128

// extended takes one message of the extended protocol.
func (s *session) extended(kind byte, body []byte) error {
	if s.meaningPending {
		// What comes next means something else once this has run.
		if err := s.flush(); err != nil || s.skipping {
			return err
		}
	}
	refused := s.endSpreadUnit(kind)
	if refused == stepFailed {
		return s.stepError
	}
	switch kind {
	case wire.MsgParse:
		refused = s.parse(body)
	case wire.MsgBind:
		refused = s.bind(body)
	case wire.MsgDescribe:
		refused = s.describe(body)
	case wire.MsgExecute:
		refused = s.execute(body)
	default:
		refused = s.closeNamed(body)
	}
	if refused == stepFailed {
		return s.stepError
	}
	if refused != nil {
		if err := s.refuse(refused); err != nil {
			return err
		}
		return s.flush() // at once: the client may wait for it without a Sync
	}
	s.unitBytes += opCost + len(body)
	if s.unitBytes > maxUnit {
		return s.flush()
	}
	return nil
}

// parse prepares a statement.
func (s *session) parse(body []byte) *pgerr.Error {
	m, err := wire.DecodeParse(body)
	if err != nil {
		return asError(err)
	}
	st, refused := s.newStatement(&m)
	if refused != nil {
		return refused
	}
	before := s.unnamed
	if st.name == "" {
		s.unnamed = nil // whatever becomes of the new one
	}
	if refused := s.plan(st); refused != nil {
		return refused
	}
	if st.planned.unreadable || len(st.planned.plan.Statements) > 1 {
		s.ops = append(s.ops, op{kind: opProbe, data: []byte(st.text)})
		return nil
	}
	only := st.single()
	if only != nil && s.takesNothing() && !endsFailure(only) {
		return inFailedTransaction
	}
	if only != nil && only.Refusal != nil {
		return s.refusalOf(only, func() string { return st.text }, st.oids)
	}
	if only != nil && only.Route.Level == plan.Composed {
		if refused := s.parseInSteps(st, only); refused != nil {
			return refused
		}
	} else if refused := s.parseElsewhere(only); refused != nil {
		return refused
	}
	st.epoch = s.contextEpoch
	s.noteReading(st)
	s.keepStatement(st)
	o := op{kind: opParse, statement: st}
	if only == nil || s.mayBeLocal(only) || len(only.Virtual) > 0 || only.Command == plan.Prepare || only.Command == plan.Execute || showsOurs(only) || only.Route.Level == plan.Composed || s.isAtOwnCursor(only) {
		o = op{kind: opLocal, data: parseComplete} // no server has to know its text, or it is made anew each time
	}
	if st != before && len(s.ops) > 0 { // something before it may fail
		o.undo = func() { s.unparse(st, before) }
	}
	s.ops = append(s.ops, o)
	return nil
}

// parseInSteps lets a server say what is wrong with a statement that no shard answers alone.
func (s *session) parseInSteps(st *statement, only *plan.Statement) *pgerr.Error {
	var refused *pgerr.Error
	switch {
	case only.Declares != nil, only.Makes != nil:
		_, refused = s.declaredTypes(st)
	case copiesQuery(only): // PostgreSQL looks at its query when it runs
	default:
		_, refused = s.outlineOf(st, only)
	}
	return refused
}

// unparse forgets a statement that was never made; the unnamed one before it is still there.
func (s *session) unparse(st, before *statement) {
	s.forgetStatement(st)
	if st.name == "" && s.unnamed == nil {
		s.unnamed = before
	}
}

// parseElsewhere takes a statement whose tables are on one shard there, to be parsed and described: elsewhere it would be read with other tables in
// mind, or none.
func (s *session) parseElsewhere(st *plan.Statement) *pgerr.Error {
	if st == nil || st.Command != plan.Pass || st.Cursor != nil {
		return nil
	}
	shard := noShard
	switch st.Route.Level {
	case plan.Home:
		shard = s.home()
	case plan.OnShard:
		if named := s.currentMap().Shard(st.Route.Shard); named != nil {
			shard = named.Number()
		}
	default: // all shards that it may run on have its tables
	}
	switch now := s.shardNow(); {
	case shard == noShard, shard == now:
		return nil
	case now != noShard || s.isSpread():
		return s.changeShard(st, shard)
	}
	if refused := s.usable(shard, onlyParsed); refused != nil {
		return refused
	}
	s.target = shard
	return nil
}

// onlyParsed stands for a statement that is not run yet, whatever it does.
var onlyParsed = &plan.Statement{Reads: true}

// endsFailure says whether PostgreSQL takes a statement in a transaction that has failed.
func endsFailure(st *plan.Statement) bool {
	return st.Command == plan.Commit || st.Command == plan.Rollback || st.Command == plan.RollbackTo
}

// newStatement makes the statement that a Parse asks for; one that is just like the unnamed one before it is used again.
func (s *session) newStatement(m *wire.Parse) (*statement, *pgerr.Error) {
	switch u := s.unnamed; {
	case len(m.Name) == 0:
		if u != nil && u.text == string(m.Query) && sameOIDs(u.oids, m) {
			return u, nil
		}
	case s.statements[string(m.Name)] != nil:
		return nil, pgerr.New(pgerr.DuplicatePrepared, "prepared statement \"%s\" already exists", m.Name)
	case len(s.statements) >= maxStatements:
		return nil, pgerr.New(pgerr.ProgramLimitExceeded, "too many prepared statements").
			WithDetail("A session may have %d.", maxStatements).WithHint("Close or deallocate those that are not needed.")
	}
	st := &statement{name: string(m.Name), text: string(m.Query)}
	for i := range m.OIDCount() {
		st.oids = append(st.oids, m.OID(i))
	}
	return st, nil
}

func sameOIDs(oids []uint32, m *wire.Parse) bool {
	if len(oids) != m.OIDCount() {
		return false
	}
	for i, oid := range oids {
		if m.OID(i) != oid {
			return false
		}
	}
	return true
}

// plan finds a statement's plan; it is kept for as long as nothing changes that it depends on.
func (s *session) plan(st *statement) *pgerr.Error {
	if st.planned != nil {
		s.publish(st.planned)
		s.refreshContext()
		if _, held := s.holdOn(st.planned); !held && s.tx.defined == "" && st.contextKey == string(s.contextKey) {
			refused := st.planned.refuseHeld(s.view.m) // since it was planned
			if refused == nil {
				s.admit(st.planned)
			}
			return refused
		}
	}
	p, refused := s.planFor([]byte(st.text))
	if refused != nil {
		return refused
	}
	st.planned, st.contextKey = p, string(s.contextKey)
	if s.tx.defined != "" {
		st.contextKey = "" // of no use to anybody later
	}
	if slices.ContainsFunc(s.scan.Literals, func(l sqltext.Literal) bool { return l.Kind != sqltext.Integer && l.Kind != sqltext.Float }) {
		st.owner = uint64(s.number)
	}
	return nil
}

func (s *session) keepStatement(st *statement) {
	if st.name == "" {
		s.unnamed = st
		return
	}
	if s.statements == nil {
		s.statements = map[string]*statement{}
	}
	s.statements[st.name] = st
}

// mayBeLocal says whether a statement is one that the session can run itself, so that no server has to know its text.
func (s *session) mayBeLocal(st *plan.Statement) bool {
	switch st.Command {
	case plan.Begin, plan.Commit, plan.Rollback, plan.Savepoint, plan.ReleaseSavepoint, plan.RollbackTo,
		plan.Deallocate, plan.DiscardAll, plan.ResetAll, plan.ResetVariable:
		return true
	case plan.SetVariable:
		return s.tx.open || setsOurs(st) || s.returnsToRole(st)
	case plan.SetConstraints:
		return s.tx.open || s.isSpread() || namesConstraints(st)
	default:
		return s.conducts(st)
	}
}

// bind makes a portal.
func (s *session) bind(body []byte) *pgerr.Error {
	refused := s.bindNow(body)
	s.forgetMoment()
	return refused
}

func (s *session) bindNow(body []byte) *pgerr.Error {
	var err error
	if s.bindMessage, err = wire.DecodeBind(body); err != nil {
		return asError(err)
	}
	m := &s.bindMessage // the session's own, so that it need not be made each time
	st, refused := s.findStatement(m.Statement)
	if refused != nil {
		return refused
	}
	if refused := s.plan(st); refused != nil {
		return refused
	}
	only := st.single()
	if only == nil {
		return s.bindLocal(st, m)
	}
	if s.takesNothing() && !endsFailure(only) {
		return inFailedTransaction
	}
	if only.Refusal != nil {
		return only.Refusal
	}
	if refused := s.stillReads(st); refused != nil {
		return refused
	}
	if before := s.portals[string(m.Portal)]; before != nil && before.isOwn() {
		return errCursorExists(m.Portal)
	}
	if s.isLocal(only) {
		return s.bindLocal(st, m)
	}
	src := source{statement: st, bind: m}
	if st, refused = s.timed(st, src); refused != nil {
		return refused
	}
	only, src.statement = st.single(), st
	if refused := s.routeTo(only, src); refused != nil {
		return refused
	}
	if o := s.own; o != nil {
		s.own = nil
		return s.bindOwn(o, st, m)
	}
	if st, refused = s.columnsHold(st, m.Portal); refused != nil {
		return refused
	}
	src.statement = st
	carried := s.carriedOut(st, m)
	if only.Binary {
		if carried, refused = s.carriedByCopy(only, []byte(st.text)); refused != nil {
			return refused
		}
	}
	types, refused := s.carriedIn(st, only, m)
	if refused != nil {
		return refused
	}
	if len(s.spreadTo) > 0 && s.spreadParts == plan.ByRow {
		o := op{kind: opBind, statement: st, portal: m.Portal, data: m.Tail(), carried: carried, types: types}
		if refused := s.divideRows(only, &o, src); refused != nil {
			return refused
		}
		if len(s.spreadTo) > 0 {
			s.keepSpread(o, st, s.explain(only))
			return nil
		}
	}
	if len(s.spreadTo) > 0 {
		return s.bindSpread(only, src, op{kind: opBind, portal: m.Portal, data: m.Tail(), carried: carried, types: types})
	}
	run := st
	if !only.Plain || s.momentEdits != nil {
		if run, refused = s.rewritten(st, only, src); refused != nil {
			return refused
		}
	}
	if s.isUnbound(only) && only.Command == plan.Pass { // what an EXECUTE runs is seen to where that is written
		if run, refused = s.ownedStatement(run); refused != nil {
			return refused
		}
	}
	undo := s.keepPortal(m.Portal, portal{statement: run, explain: s.explain(only), shard: max(s.shardNow(), 0), carried: carried})
	s.ops = append(s.ops, op{kind: opBind, statement: run, portal: m.Portal, data: m.Tail(), undo: undo, carried: carried, types: types})
	return nil
}

// isLocal says whether a statement that may be local is run by the session itself. What resets takes effect at once, so nothing may
// be able to undo it: it has to be alone.
func (s *session) isLocal(st *plan.Statement) bool {
	if st.Command == plan.Deallocate || setsOurs(st) || s.conducts(st) || s.concernsLegs(st) || s.tx.implicit && isAboutBlocks(st) {
		return true
	}
	if !s.mayBeLocal(st) || s.backend != nil || s.needsServer() || s.isSpread() {
		return false
	}
	switch st.Command {
	case plan.ResetVariable, plan.ResetAll, plan.DiscardAll:
		return s.tx.open || s.in.endsUnit(s.server.config.MaxMessage)
	case plan.SetVariable:
		return s.tx.open || !s.returnsToRole(st) || s.in.endsUnit(s.server.config.MaxMessage)
	default:
		return true
	}
}

// bindLocal makes a portal that no server knows.
func (s *session) bindLocal(st *statement, m *wire.Bind) *pgerr.Error {
	if m.ParamCount() > 0 {
		return pgerr.New(pgerr.ProtocolViolation, "bind message supplies %d parameters, but prepared statement \"%s\" requires 0", m.ParamCount(), st.name)
	}
	s.ops = append(s.ops, op{kind: opLocal, data: bindComplete, undo: s.keepPortal(m.Portal, portal{statement: st, local: true})})
	return nil
}

// keepPortal notes a portal, and returns how to take that back: the server may refuse a name that is taken.
func (s *session) keepPortal(name []byte, p portal) (undo func()) {
	if len(name) == 0 {
		s.dropPortal(nil)
		s.current = p
		return nil
	}
	if s.portals == nil {
		s.portals = map[string]*portal{}
	}
	key, before := string(name), s.portals[string(name)]
	p.depth = len(s.log.savepoints)
	s.portals[key] = new(p)
	return func() {
		if delete(s.portals, key); before != nil {
			s.portals[key] = before
		}
	}
}

// describe tells what a statement or portal takes and gives.
func (s *session) describe(body []byte) *pgerr.Error {
	m, err := wire.DecodeDescribe(body)
	if err != nil {
		return asError(err)
	}
	if m.Kind == 'P' {
		return s.describePortal(m.Name)
	}
	st, refused := s.findStatement(m.Name)
	if refused != nil {
		return refused
	}
	if refused := s.plan(st); refused != nil {
		return refused
	}
	only := st.single()
	if only == nil || s.mayBeLocal(only) || only.Command == plan.Prepare {
		s.addLocal(append(wire.AppendParameterDescription(nil, nil), noData...))
		return nil
	}
	if s.takesNothing() {
		return inFailedTransaction
	}
	if only.Refusal != nil {
		return only.Refusal
	}
	if s.isAtOwnCursor(only) {
		s.addLocal(wire.AppendParameterDescription(nil, nil))
		s.tellDescription((&fetching{c: s.cursorOf(only.Cursor.Name), how: *only.Cursor}).description())
		return nil
	}
	if only.Route.Level == plan.Composed && !only.Explains {
		return s.describeInSteps(st, only)
	}
	if only.Command == plan.Execute && only.Name == "EXECUTE" && s.whatRuns(only).Route.Level == plan.Composed {
		e, refused := s.executionOf(only, source{statement: st})
		if refused == nil {
			s.addLocal(wire.AppendParameterDescription(nil, nil))
			s.tellDescription(e.description())
		}
		return refused
	}
	if refused := s.parseElsewhere(only); refused != nil {
		return refused
	}
	st = s.renewed(st)
	if !only.Plain {
		if st, refused = s.describable(st, only); refused != nil {
			return refused
		}
	}
	s.ops = append(s.ops, op{kind: opDescribeStatement, statement: st})
	return nil
}

func (s *session) describePortal(name []byte) *pgerr.Error {
	p, refused := s.findPortal(name)
	if refused != nil {
		if s.backend != nil { // a cursor of DECLARE is a portal too
			s.ops = append(s.ops, op{kind: opDescribePortal, portal: name})
			return nil
		}
		return refused
	}
	if p.local {
		s.addLocal(noData)
		return nil
	}
	switch {
	case p.isOwn() && s.takesNothing():
		return inFailedTransaction
	case p.own != nil:
		s.tellDescription(p.own.description())
		return nil
	case p.cursor != nil:
		s.tellDescription(p.cursor.description)
		return nil
	}
	if refused := s.goWhere(p); refused != nil {
		return refused
	}
	s.ops = append(s.ops, op{kind: opDescribePortal, statement: p.statement, portal: name, carried: p.carried})
	return nil
}

// tellDescription tells of which columns rows are; nil: there are none.
func (s *session) tellDescription(description []byte) {
	if description == nil {
		description = noData
	}
	s.addLocal(description)
}

// execute runs a portal.
func (s *session) execute(body []byte) *pgerr.Error {
	m, err := wire.DecodeExecute(body)
	if err != nil {
		return asError(err)
	}
	p, refused := s.findPortal(m.Portal)
	if refused != nil {
		if s.backend != nil {
			s.ops = append(s.ops, op{kind: opExecute, portal: m.Portal, maxRows: m.MaxRows})
			return nil
		}
		return refused
	}
	if only := p.statement.single(); p.local || only != nil && s.concernsLegs(only) { // or it was bound when the transaction was on one shard
		return s.executeLocal(p.statement)
	}
	if p.own != nil {
		return s.executeOwn(p, m.Portal, m.MaxRows)
	}
	if p.cursor != nil {
		return s.executeCursor(p.cursor, m.MaxRows)
	}
	if len(p.shards) > 0 && (p.kept != nil || m.MaxRows > 0 && s.givesRows(p.statement)) {
		return s.executeInPortions(p, m.Portal, m.MaxRows)
	}
	if refused := s.goWhere(p); refused != nil {
		return refused
	}
	s.addExecute(p, m.Portal, m.MaxRows)
	if only := p.statement.single(); only != nil && !only.Plain || p.statement.inner != nil {
		s.meaningPending = true
	}
	return nil
}

// givesRows says whether a statement answers with rows: of one that does not, PostgreSQL does not limit them.
func (s *session) givesRows(st *statement) bool {
	only := st.single()
	return only != nil && s.whatRuns(only).Rows
}

// addExecute has the unit run a portal.
func (s *session) addExecute(p *portal, name []byte, maxRows int32) {
	st := p.statement
	o := op{kind: opExecute, statement: st, portal: name, maxRows: maxRows, planned: st.planned, tags: st.tags, makes: st.makes, inner: st.inner, carried: p.carried}
	if len(p.explain) > 0 {
		o.explain, s.explaining = p.explain, true
	}
	if len(st.edits) > 0 {
		o.data, o.edits = []byte(st.text), st.edits
	}
	s.ops = append(s.ops, o)
}

// executeLocal runs what the session runs itself.
func (s *session) executeLocal(st *statement) *pgerr.Error {
	only := st.single()
	if only == nil {
		s.addLocal(wire.AppendEmptyQuery(nil))
		return nil
	}
	var before map[string]*statement
	if only.Command == plan.Deallocate {
		before = maps.Clone(s.statements)
	}
	if refused := s.leaveSpread(); refused != nil {
		return refused
	}
	done, tag, refused := s.runLocal(only, func() string { return string(s.withoutEnds([]byte(st.text))) })
	if refused != nil {
		return s.placed(refused, []byte(st.text))
	}
	if !done {
		return pgerr.New(pgerr.FeatureNotSupported, "%s is not supported at this place of a pipeline", only.Name).
			WithDetail("What was sent before it has to be answered first.").WithHint("Send a Sync before it.")
	}
	if only.Command == plan.Commit || only.Command == plan.Rollback {
		s.forgetPortals()
	}
	o := op{kind: opLocal, data: wire.AppendCommandComplete(nil, tag)}
	if only.Command == plan.Deallocate && s.needsServer() { // what is before it may fail
		o.undo = func() { s.statements = before }
	}
	s.ops = append(s.ops, o)
	return nil
}

// closeNamed closes a statement or portal; it is no error if there is none.
func (s *session) closeNamed(body []byte) *pgerr.Error {
	m, err := wire.DecodeClose(body)
	if err != nil {
		return asError(err)
	}
	if m.Kind == 'S' {
		s.ops = append(s.ops, op{kind: opLocal, data: closeComplete, undo: s.closeStatement(string(m.Name))})
		return nil
	}
	p, _ := s.findPortal(m.Name)
	if p != nil && p.hasRows() {
		if refused := s.finishStep(); refused != nil { // or it may have to be undone, when its rows are gone
			return refused
		}
	}
	undo := s.dropPortal(m.Name)
	if s.backend == nil && !s.needsServer() || p != nil && p.isOwn() || s.isSpread() && s.takesNothing() {
		s.ops = append(s.ops, op{kind: opLocal, data: closeComplete, undo: undo})
		return nil
	}
	if p != nil {
		if refused := s.goWhere(p); refused != nil {
			return refused
		}
	}
	s.ops = append(s.ops, op{kind: opClosePortal, portal: bytes.Clone(m.Name), undo: undo})
	return nil
}

// closeStatement forgets a statement, and returns how to take that back; nil if there is none.
func (s *session) closeStatement(name string) (undo func()) {
	st := s.unnamed
	if name == "" {
		s.unnamed = nil
	} else {
		st = s.statements[name]
		delete(s.statements, name)
	}
	if st == nil {
		return nil
	}
	return func() {
		if name != "" || s.unnamed == nil {
			s.keepStatement(st)
		}
	}
}

// dropPortal forgets a portal, and returns how to take that back; nil if there is none of that name, or its rows are gone.
func (s *session) dropPortal(name []byte) (undo func()) {
	if len(name) == 0 {
		s.current.close()
		s.current = portal{}
		return nil
	}
	key, before := string(name), s.portals[string(name)]
	delete(s.portals, key)
	if before == nil {
		return nil
	}
	if before.hasRows() {
		before.close()
		return nil
	}
	return func() { s.portals[key] = before }
}
