package session

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/binding"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/pool"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/placement/key"
)

// source is where a statement's values come from: literals of its text, and parameters.
type source struct {
	scan *sqltext.Normalized // of text; nil: not scanned yet
	text []byte
	// statement and bind are set in the extended protocol.
	statement *statement
	bind      *wire.Bind
	// arguments stand for the parameters of a statement that EXECUTE runs; outer is EXECUTE's own source.
	arguments []plan.Operand
	types     []uint32
	outer     *source
	// makes are the prepared statements that the text makes before.
	makes []*statement
	// planned is the plan of a text that is no prepared statement.
	planned *planned
}

var noLiterals sqltext.Normalized

// literals are those of the text: of a statement that was prepared they are kept with it, because those of the text that names it
// are still in use.
func (src *source) literals(standardConforming bool) (*sqltext.Normalized, []byte, *pgerr.Error) {
	if src.scan != nil {
		return src.scan, src.text, nil
	}
	return src.statement.literals(standardConforming)
}

// routeTo finds the shard of a statement and makes it the unit's. A transaction stays on one shard.
func (s *session) routeTo(st *plan.Statement, src source) *pgerr.Error {
	if refused := s.takeMap(st); refused != nil {
		return refused
	}
	s.noteClock()
	if refused := s.beginMissing(st); refused != nil {
		return refused
	}
	if st.NeedsSession && s.poolMode != SessionMode {
		return needsSession(st)
	}
	if len(st.Numbers) > 0 {
		if refused := s.knowNumbers(st, src); refused != nil {
			return refused
		}
	}
	if !st.Reads && (st.Command == plan.Pass || st.Command == plan.Execute) {
		s.changes++
	}
	if s.triggersOff && !st.Reads && (st.Command == plan.Pass || st.Command == plan.Execute) {
		return triggersOff
	}
	if st.Pin == pinHold {
		if refused := s.oneHolder(st, src); refused != nil {
			return refused
		}
	}
	s.counts.on = st.Load == nil || st.Load.Query // rows that come later count by themselves
	shard, refused := s.place(st, src)
	s.counts.on = false
	if refused != nil {
		return refused
	}
	if st.Route.Hinted {
		s.noteHint(st)
	}
	switch {
	case shard == severalShards:
		if refused := s.mayScatter(st, (st.Load == nil || st.Load.Query) && fansOut(&s.whatRuns(st).Route)); refused != nil {
			return refused
		}
		return s.spreadOver(st, src)
	case shard == composedShards:
		if refused := s.mayScatter(st, s.scatters); refused != nil {
			return refused
		}
		return s.compose(st, src)
	case shard == ownShard:
		return s.answerOwn(st, src)
	case st.Declares != nil && s.cursorOf(st.Declares.Name) != nil && (st.Declares.Hold || s.currentStatus() != statusIdle):
		return errCursorExists(st.Declares.Name)
	case st.CurrentOf != "" && s.cursorOf(st.CurrentOf) != nil:
		return notAtRow
	}
	now := s.shardNow()
	if len(s.spreadTo) > 0 { // what the unit has so far is on several
		return s.changeShard(st, shard)
	}
	switch shard {
	case noShard:
		return nil
	case now: // where the transaction may have read until now
		return s.usable(shard, s.whatRuns(st))
	}
	if now != noShard || s.isSpread() {
		return s.changeShard(st, shard)
	}
	if refused := s.usable(shard, s.whatRuns(st)); refused != nil {
		return refused
	}
	s.target = shard
	return nil
}

// shardNow is the one that the unit or the transaction is on; noShard if there is none yet.
func (s *session) shardNow() int {
	if s.backend != nil {
		return s.backend.Shard()
	}
	return s.target
}

// spreadOver makes the shards that a statement wants the unit's. What the unit has so far is run first, but for the statement's own Parse:
// the shards hear of its text with its Bind.
func (s *session) spreadOver(st *plan.Statement, src source) *pgerr.Error {
	last := len(s.ops) - 1
	if last < 0 || s.ops[last].kind != opParse || s.ops[last].statement != src.statement && s.ops[last].statement != src.statement.origin {
		return s.spreadAfter(st, src)
	}
	parse := s.ops[last]
	s.ops = s.ops[:last]
	refused := s.spreadAfter(st, src)
	if refused == stepFailed { // it has not happened
		s.undoParse(&parse)
		return refused
	}
	parse.kind, parse.data = opLocal, parseComplete
	s.ops = append(s.ops, parse)
	return refused
}

// spreadAfter is spreadOver for what the unit has so far.
func (s *session) spreadAfter(st *plan.Statement, src source) *pgerr.Error {
	shards := slices.Clone(s.wanted)
	rows := slices.Clone(s.rowShards)
	if refused := s.mayDivide(st, src); refused != nil {
		return refused
	}
	if run := s.whatRuns(st); run.Route.Parts == plan.Copies && run.Route.Timed {
		if refused := s.sameInTime(src); refused != nil {
			return refused
		}
		if st.Command == plan.Execute {
			if refused := s.sameInTime(source{statement: s.statements[st.Prepared.Name]}); refused != nil {
				return refused
			}
		}
	}
	if refused := s.goOn(); refused != nil {
		return refused
	}
	if refused := s.maySpread(st); refused != nil {
		return refused
	}
	shards, refused := s.usableOf(shards, s.whatRuns(st))
	if refused != nil {
		return refused
	}
	for _, shard := range shards {
		if refused := s.learnNumbers(shard); refused != nil {
			return refused
		}
	}
	s.unload = nil
	if st.Load != nil && (st.Reads || st.Load.Query) {
		s.unload = newUnload(st.Load)
	} else if st.Load != nil {
		l, refused := s.prepareLoad(st)
		if refused != nil {
			return refused
		}
		s.loading = l
	}
	limit, refused := s.rowLimit(st, src)
	if refused != nil {
		return refused
	}
	s.spreadTo, s.spreadParts, s.rowShards, s.rowOrder, s.spreadLimit = shards, s.whatRuns(st).Route.Parts, rows, nil, limit
	if s.spreadParts == plan.Kept {
		for _, shard := range rows {
			s.rowOrder = append(s.rowOrder, slices.Index(shards, shard))
		}
	}
	return nil
}

// sameInTime refuses values that would be read as another moment on each shard.
func (s *session) sameInTime(src source) *pgerr.Error {
	varies := pgerr.New(pgerr.FeatureNotSupported, "a value that means the current time is not supported in a write to a reference table").
		WithDetail("Every shard would read it at another moment, and the copies would differ.").WithHint("Give the time itself.")
	scan, text, refused := src.literals(s.standardConforming())
	if refused != nil {
		return refused
	}
	for i := range scan.Literals {
		if value, readable := scan.Value(text, i); !readable || plan.VariesInTime(value) {
			return varies
		}
	}
	for outer := &src; outer != nil; outer = outer.outer {
		if outer.bind == nil {
			continue
		}
		for i := range outer.bind.ParamCount() {
			if value, isBinary, _ := outer.bind.Param(i); !isBinary && plan.VariesInTime(value) {
				return varies
			}
		}
	}
	return nil
}

// mayDivide refuses what cannot be run in parts.
func (s *session) mayDivide(st *plan.Statement, src source) *pgerr.Error {
	run := s.whatRuns(st)
	refusal := pgerr.New(pgerr.FeatureNotSupported, "%s over several shards is not supported yet", st.Name)
	switch {
	case (st.Copy || run.Copy) && st.Load == nil:
		return refusal.WithDetail("Its rows would have to be put together from several shards.").WithHint("Use one statement for each key.")
	case st.Command == plan.Execute && run.Route.Parts == plan.ByRow && (src.bind != nil || st.Name != "EXECUTE"):
		return refusal.WithDetail("It runs an INSERT whose rows go to several shards.").WithHint("Send the INSERT itself, or prepare it by the protocol.")
	case st.Command == plan.Execute && len(run.Route.Numbers) > 0:
		return refusal.WithDetail("It runs an INSERT into a reference table whose rows are given numbers by the router.").WithHint("Send the INSERT itself, or prepare it by the protocol.")
	case (run.Route.Parts == plan.ByRow || len(run.Route.Numbers) > 0) && len(run.Virtual) > 0:
		return refusal.WithDetail("It calls a function of the router.").WithHint("Call it first, and use its result.")
	case run.Route.Parts == plan.ByRow && len(run.Numbers) > 0:
		return refusal.WithDetail("It calls %s, in whose place the router puts another function.", run.Numbers[0].Function).WithHint("Ask for the number first.")
	case run.Pin != "" || len(run.Settings) > 0 || run.NeedsSession || run.Cursor != nil:
		return refusal.WithDetail("It leaves something in the session, which is on one shard.").WithHint("Bind it to one key.")
	}
	return nil
}

// oneHolder: cursors WITH HOLD are found by their names alone, so all have to be on one shard.
func (s *session) oneHolder(st *plan.Statement, src source) *pgerr.Error {
	shard, refused := s.place(st, src)
	if refused != nil {
		return refused
	}
	for other, p := range s.pinned {
		if p.has(pinHold) && shard >= 0 && shard != other {
			return pgerr.New(pgerr.FeatureNotSupported, "cursors WITH HOLD on several shards are not supported yet").
				WithDetail("The session has one on shard %q.", p.backend.ShardName()).WithHint("Close that one first.")
		}
	}
	return nil
}

func needsSession(st *plan.Statement) *pgerr.Error {
	return pgerr.New(pgerr.FeatureNotSupported, "%s asks for a value of this session's own backend, which it does not have", st.Name).
		WithDetail("currval and lastval tell what the same backend did before; under transaction pooling that may have been somebody else.").
		WithHint("Use INSERT … RETURNING, or begin the session with SET cleave.pool_mode = session.")
}

// whatRuns is the statement itself, or what an EXECUTE runs.
func (s *session) whatRuns(st *plan.Statement) *plan.Statement {
	if st.Command == plan.Execute {
		if prepared := s.statements[st.Prepared.Name]; prepared != nil && prepared.single() != nil {
			return prepared.single()
		}
	}
	return st
}

// usable says whether a shard may be used for a statement now.
func (s *session) usable(number int, st *plan.Statement) *pgerr.Error {
	shard := s.currentMap().ShardByNumber(number)
	if shard == nil {
		return pgerr.New(pgerr.InternalError, "shard %d is not in the shard map", number)
	}
	switch shard.State() {
	case topology.Maintenance:
		return inMaintenance(shard)
	case topology.ReadOnly:
		if !st.Reads && (st.Command == plan.Pass || st.Command == plan.Execute) {
			return pgerr.New(pgerr.ReadOnlyTransaction, "cannot execute %s: shard %q is read-only", st.Name, shard.Name())
		}
	case topology.Active, topology.Draining:
	}
	return nil
}

func inMaintenance(shard *topology.Shard) *pgerr.Error {
	return pgerr.New(pgerr.CannotConnectNow, "shard %q is in maintenance", shard.Name()).WithHint("Try again later: cleave shard set-state %s active ends it.", shard.Name())
}

// place returns the shard that a statement has to run on, noShard if any will do.
func (s *session) place(st *plan.Statement, src source) (int, *pgerr.Error) {
	switch {
	case st.Makes != nil, st.Cursor != nil && s.cursorOf(st.Cursor.Name) != nil:
		return ownShard, nil
	case st.Cursor != nil && s.portals[st.Cursor.Name] != nil && s.portals[st.Cursor.Name].isOnSeveral():
		return noShard, errPortal(st)
	case st.Cursor != nil:
		return s.cursorPlace(), nil
	case st.Declares != nil && (st.Route.Level == plan.Several || st.Route.Level == plan.Composed):
		return s.placeDeclared(st, src)
	case copiesQuery(st) && (st.Route.Level == plan.Several || st.Route.Level == plan.Composed):
		return s.placeCopied(st, src)
	}
	switch st.Command {
	case plan.Pass, plan.ShowVariable:
	case plan.Execute:
		return s.routeExecute(st, src)
	default:
		return noShard, nil // where the others of the transaction are
	}
	if st.Route.Hinted || st.Cascades {
		if refused := s.awaitUnbound(st); refused != nil {
			return noShard, refused
		}
	}
	switch st.Route.Level {
	case plan.Anywhere:
		return s.anywhere(st), nil
	case plan.Home:
		if st.Route.Parts == plan.Copies {
			return s.whereCounted(st, src)
		}
		return s.home(), nil
	case plan.OnShard:
		shard := s.currentMap().Shard(st.Route.Shard)
		if shard == nil {
			return noShard, pgerr.New(pgerr.InternalError, "shard %q is not in the shard map", st.Route.Shard)
		}
		return shard.Number(), nil
	case plan.Keyed:
		return s.byKey(&st.Route, src)
	case plan.Several:
		return s.several(st, src)
	case plan.Composed:
		return s.placeComposed(st, src)
	case plan.AnyOwner:
		return s.madeBy(&st.Route)
	case plan.Everywhere:
		return s.everyShard()
	default:
		return noShard, pgerr.New(pgerr.FeatureNotSupported, "%s on every shard is not supported yet", st.Name).
			WithDetail("The router does not know how to run it there.").WithHint("Run it on each shard.")
	}
}

func (s *session) home() int {
	if home := s.currentMap().Home(); home != nil {
		return home.Number()
	}
	return noShard // attach says that there is none
}

// anywhere chooses a shard for a statement that every shard answers alike: tables that are everywhere are read from all of
// them in turn, session by session.
func (s *session) anywhere(st *plan.Statement) int {
	if s.backend != nil || s.target != noShard || st.Route.Table == "" {
		return noShard
	}
	m, usable := s.currentMap(), 0
	for shard := range m.Shards() {
		if shard.State() != topology.Maintenance {
			usable++
		}
	}
	passed := 0
	for shard := range m.Shards() {
		if shard.State() == topology.Maintenance {
			continue
		}
		if passed == int(s.number)%usable {
			return shard.Number()
		}
		passed++
	}
	return s.home()
}

// cursorPlace: a cursor is on the transaction's backend, or on one that was kept for it.
func (s *session) cursorPlace() int {
	if s.backend != nil || s.target != noShard {
		return noShard
	}
	for shard, p := range s.pinned {
		if p.has(pinHold) {
			return shard
		}
	}
	return s.home()
}

const pinHold plan.Pin = "cursor WITH HOLD"

// byKey binds the key, hashes it and looks it up.
func (s *session) byKey(route *plan.Route, src source) (int, *pgerr.Error) {
	keyspace := s.currentMap().Keyspace(route.Keyspace)
	if keyspace == nil {
		return noShard, pgerr.New(pgerr.InternalError, "keyspace %q is not in the shard map", route.Keyspace)
	}
	var buffer [topology.MaxKeyColumns]key.Value
	values := buffer[:0]
	for i := range route.Key {
		value, outcome, refused := s.keyValue(&route.Key[i], src)
		if refused != nil {
			return noShard, refused
		}
		switch outcome {
		case binding.Bound:
			values = append(values, value)
		case binding.Null, binding.AnyShard:
			// No row can match, or every shard refuses the value alike.
			return s.anywhere(nothing), nil
		default:
			return noShard, pgerr.New(pgerr.InternalError, "the key of %s could not be bound", route.Table)
		}
	}
	return s.locate(keyspace, route, values)
}

var nothing = &plan.Statement{}

// locate finds the key's shard; where the owner is about to change it waits for the next map.
func (s *session) locate(keyspace *topology.Keyspace, route *plan.Route, values []key.Value) (int, *pgerr.Error) {
	place, err := keyspace.Locate(values...)
	if err != nil {
		return noShard, pgerr.New(pgerr.InternalError, "the key of %s could not be looked up", route.Table).WithDetail("%s", err)
	}
	if place.Held {
		return s.locateLater(route, slices.Clone(values)) // or those of all statements would need memory of their own
	}
	if s.counts.on {
		s.counts.count(s.server.config.Traffic.OfKey(keyspace, values, place.Pinned))
	}
	return place.Shard.Number(), nil
}

// locateLater finds the key's shard when it is clear who that is.
func (s *session) locateLater(route *plan.Route, values []key.Value) (shard int, refused *pgerr.Error) {
	refused = s.awaitOwner(route, func(keyspace *topology.Keyspace) bool {
		place, err := keyspace.Locate(values...)
		if err != nil || place.Held {
			return false
		}
		if s.counts.on {
			s.counts.count(s.server.config.Traffic.OfKey(keyspace, values, place.Pinned))
		}
		shard = place.Shard.Number()
		return true
	})
	return shard, refused
}

// awaitOwner waits for a map in which the owner of something is not about to change.
func (s *session) awaitOwner(route *plan.Route, isFree func(*topology.Keyspace) bool) *pgerr.Error {
	limited, end, refused := s.lockContext()
	if refused != nil {
		return refused
	}
	defer end()
	deadline, cancel := context.WithTimeout(limited, s.server.config.HoldTimeout)
	defer cancel()
	for {
		changed := s.server.config.MapChanged()
		view := s.server.see()
		if !s.declaredAlike(view) {
			return tablesChanged
		}
		if refused := s.keepsOthers(view.m, route.Keyspace); refused != nil {
			return refused
		}
		keyspace := view.m.Keyspace(route.Keyspace)
		if s.mustStay(keyspace) {
			return errMoved(route.Keyspace)
		}
		s.goBy(view)
		if keyspace == nil {
			return pgerr.New(pgerr.InternalError, "keyspace %q is not in the shard map", route.Keyspace)
		}
		if isFree(keyspace) {
			return s.movedSince(route.Keyspace)
		}
		select {
		case <-changed:
		case <-deadline.Done():
			if refused := s.interrupted(limited); refused != nil {
				return refused
			}
			return pgerr.New(pgerr.CannotConnectNow, "rows of %s are moving to another shard", route.Table).
				WithDetail("The router waited %s for the move to end.", s.server.config.HoldTimeout.Round(time.Second)).WithHint("Try again.")
		}
	}
}

// keyValue binds one column of the key to what will be stored or compared.
func (s *session) keyValue(part *plan.KeyPart, src source) (key.Value, binding.Outcome, *pgerr.Error) {
	if part.Operand.Kind == plan.FromParam {
		if src.outer != nil {
			return s.argumentValue(part, src)
		}
		if refused := s.takeParam(part.Operand.Param, src); refused != nil {
			return key.Value{}, 0, refused
		}
	}
	if part.Operand.Kind == plan.FromSetting {
		return s.settingValue(part)
	}
	scan, text := &noLiterals, []byte(nil)
	if part.Operand.Kind == plan.FromLiteral {
		var refused *pgerr.Error
		if scan, text, refused = src.literals(s.standardConforming()); refused != nil {
			return key.Value{}, 0, refused
		}
	}
	value, outcome, refused := binding.Value(part, scan, text, s.params, s.reading)
	if refused == nil && outcome == binding.Ask {
		return s.askValue(part, scan, text)
	}
	return value, outcome, refused
}

// settingValue binds a column of the key that the client has set: the columns' texts are separated by commas.
func (s *session) settingValue(part *plan.KeyPart) (key.Value, binding.Outcome, *pgerr.Error) {
	values := []string{s.shardKey}
	if part.Operand.Literal > 0 || strings.Contains(s.shardKey, ",") {
		values = strings.Split(s.shardKey, ",")
	}
	if part.Operand.Literal >= len(values) {
		return key.Value{}, 0, pgerr.New(pgerr.InvalidParameterValue, "cleave.shard_key has no value for key column \"%s\"", part.Column).
			WithHint("Separate the values of several key columns by commas.")
	}
	one := *part
	one.Operand = plan.Operand{Kind: plan.FromParam, Param: 1, CastMod: -1}
	s.params = append(s.params[:0], binding.Param{Value: []byte(strings.TrimSpace(values[part.Operand.Literal]))})
	value, outcome, refused := binding.Value(&one, &noLiterals, nil, s.params, s.reading)
	if refused == nil && outcome == binding.Ask {
		value, outcome, refused = s.askValue(&one, &noLiterals, nil)
	}
	if refused == nil && outcome == binding.AnyShard {
		return value, outcome, pgerr.New(pgerr.InvalidParameterValue, "cleave.shard_key is no value of key column \"%s\"", part.Column)
	}
	return value, outcome, refused
}

// takeParam puts one parameter, with its type, where binding finds it.
func (s *session) takeParam(number int, src source) *pgerr.Error {
	for len(s.params) < number {
		s.params = append(s.params, binding.Param{})
	}
	if src.bind == nil || number > src.bind.ParamCount() {
		s.params = s.params[:0] // every shard says that there are too few
		return nil
	}
	value, isBinary, null := src.bind.Param(number - 1)
	oid, refused := s.paramType(src.statement, number)
	if refused != nil {
		return refused
	}
	s.params[number-1] = binding.Param{Value: value, Binary: isBinary, Null: null, OID: oid}
	return nil
}

// paramType returns a parameter's type: as the client declared it, or as PostgreSQL resolved it.
func (s *session) paramType(st *statement, number int) (uint32, *pgerr.Error) {
	if number <= len(st.oids) && st.oids[number-1] != 0 {
		return st.oids[number-1], nil
	}
	types, refused := s.paramTypes(st)
	if refused != nil || number > len(types) {
		return 0, refused
	}
	return types[number-1], nil
}

// paramTypes asks a server, once for each text and declaration.
func (s *session) paramTypes(st *statement) ([]uint32, *pgerr.Error) {
	if st.paramOIDs != nil && st.paramsOf == st.planned {
		return st.paramOIDs, nil
	}
	if known := st.planned.types(st.oids); known != nil {
		st.paramOIDs, st.paramsOf = known, st.planned
		return known, nil
	}
	text := st.text
	if st.sql != nil {
		return nil, pgerr.New(pgerr.InternalError, "the types of a statement made by PREPARE are asked for in another way")
	}
	ask := s.aside
	if only := st.single(); only != nil && only.Route.Level == plan.OnShard { // others may not have its tables
		if shard := s.currentMap().Shard(only.Route.Shard); shard != nil {
			ask = func(question func() (answer, error)) (answer, *pgerr.Error) {
				return s.askShard(shard.Number(), question)
			}
		}
	}
	a, refused := ask(func() (answer, error) { return s.askTypes(text, st.oids) })
	if refused != nil {
		return nil, refused
	}
	if a.failure != nil { // the same that the statement itself would meet
		s.failParse(st)
		return nil, a.failure.PGError()
	}
	if a.params == nil {
		a.params = []uint32{}
	}
	st.paramOIDs, st.paramsOf = a.params, st.planned
	st.planned.keepTypes(st.oids, a.params, a.columns)
	return a.params, nil
}

// argumentValue binds a parameter of a prepared statement to the argument that EXECUTE gives it.
func (s *session) argumentValue(part *plan.KeyPart, src source) (key.Value, binding.Outcome, *pgerr.Error) {
	number := part.Operand.Param
	if number > len(src.arguments) {
		return key.Value{}, binding.AnyShard, nil // every shard says that there are too few
	}
	inner := *part
	inner.Operand = src.arguments[number-1]
	if inner.Operand.Kind == plan.IsNull || number > len(src.types) {
		return s.keyValue(&inner, *src.outer)
	}
	// A value goes from the argument's type to the parameter's and from there to that of the statement's cast. What does not fit into one of
	// them is an error wherever it is run, so one integer type stands for all.
	for _, to := range []plan.Operand{{CastOID: src.types[number-1], CastMod: -1}, part.Operand} {
		switch o := &inner.Operand; {
		case to.CastOID == 0 || to.CastOID == o.CastOID && (to.CastMod < 0 || to.CastMod == o.CastMod):
		case o.CastOID == 0 || isInteger(to.CastOID) && isInteger(o.CastOID) || to.CastOID == o.CastOID && o.CastMod < 0:
			o.CastOID, o.CastMod = to.CastOID, to.CastMod
		default:
			return key.Value{}, 0, pgerr.New(pgerr.FeatureNotSupported, "EXECUTE with a key that is cast to another type than its parameter's is not supported yet").
				WithDetail("The router does not follow a key's value through several types.").
				WithHint("Leave the casts out, or cast to the parameter's type.")
		}
	}
	return s.keyValue(&inner, *src.outer)
}

// isInteger says whether a type is one of PostgreSQL's integers.
func isInteger(oid uint32) bool { return oid == 20 || oid == 21 || oid == 23 }

// classDataException begins the SQLSTATEs of values that a type does not have; cannotCoerce says that no value of the one type is one of
// the other.
const classDataException, cannotCoerce = "22", "42846"

// askValue lets a shard say what a value becomes, under the session's settings.
func (s *session) askValue(part *plan.KeyPart, scan *sqltext.Normalized, text []byte) (key.Value, binding.Outcome, *pgerr.Error) {
	sql, sent := binding.AskSQL(part, scan, text, s.params)
	var oids []uint32
	var formats []int16
	var values [][]byte
	for _, p := range sent {
		format := int16(0)
		if p.Binary {
			format = 1
		}
		value := p.Value
		if !p.Null && value == nil {
			value = []byte{}
		}
		oids, formats, values = append(oids, p.OID), append(formats, format), append(values, value)
	}
	a, refused := s.aside(func() (answer, error) { return s.askParams(sql, oids, formats, values) })
	if refused != nil {
		return key.Value{}, 0, refused
	}
	if a.failure != nil {
		if strings.HasPrefix(a.failure.Code, classDataException) || a.failure.Code == cannotCoerce {
			return key.Value{}, binding.AnyShard, nil // the value is wrong, and every shard says so
		}
		return key.Value{}, 0, a.failure.PGError() // cancelled, out of time: nobody knows where the statement belongs
	}
	if len(a.rows) != 1 || len(a.rows[0]) != 1 {
		return key.Value{}, 0, pgerr.New(pgerr.InternalError, "a shard did not say what a key becomes")
	}
	value, outcome, err := binding.Answer(part, []byte(a.rows[0][0]))
	if err != nil {
		return key.Value{}, 0, pgerr.New(pgerr.InternalError, "a shard's answer about a key could not be read").WithDetail("%s", err)
	}
	return value, outcome, nil
}

// aside asks a backend something that is no part of the client's transaction, under the same settings. A client that has a backend
// does not wait for another: many that did so could wait for each other.
func (s *session) aside(question func() (answer, error)) (answer, *pgerr.Error) {
	if home := s.home(); len(s.temporary) > 0 && home != noShard { // it may name one
		return s.askShard(home, question)
	}
	defer s.visitEnds(s.backend)
	if s.backend == nil {
		s.visitAny()
	}
	if s.mayAskInside() {
		return s.inside("", question)
	}
	return s.asideOn(noShard, question)
}

// asideOn asks a backend of one shard that is not the client's own; noShard: of any.
func (s *session) asideOn(shard int, question func() (answer, error)) (answer, *pgerr.Error) {
	kept := asideState{s.backend, s.state, s.unsynced, s.status, s.tx, s.target, s.settings, s.joined, s.wrote, s.pending}
	s.settings = s.effective()
	s.backend, s.state, s.unsynced, s.status, s.target, s.isAside = nil, nil, false, statusIdle, shard, true
	s.tx.open = false
	s.setAsideFrom(kept.backend, kept.unsynced)
	defer func() {
		if s.backend != nil { // something broke
			s.drop("a question was not answered")
		}
		s.setAsideFrom(nil, false)
		s.backend, s.state, s.unsynced, s.status, s.tx, s.target, s.settings = kept.backend, kept.state, kept.unsynced, kept.status, kept.tx, kept.target, kept.settings
		s.joined, s.wrote, s.pending = kept.joined, kept.wrote, kept.pending
		s.isAside = false
		s.mu.Lock()
		s.active = s.backend
		s.mu.Unlock()
	}()
	if err := s.attach(); err != nil {
		return answer{}, asError(err)
	}
	a, err := question()
	if err != nil {
		lost := s.dropLost(err)
		if refused := refusalIn(err); refused != nil {
			return answer{}, refused
		}
		return answer{}, lost
	}
	_ = s.settle()
	return a, nil
}

// askShard asks a shard: the transaction's own backend, if it has one there and that is free, so that it does not wait for another.
func (s *session) askShard(shard int, question func() (answer, error)) (answer, *pgerr.Error) {
	defer s.asks()()
	defer s.visitEnds(s.backend)
	s.visit(shard)
	if s.mayAskInside() && s.backend.Shard() == shard {
		return s.inside("", question)
	}
	s.asksOwn = s.hasTemporary(shard)
	defer func() { s.asksOwn = false }()
	return s.asideOn(shard, question)
}

// refusalOf is why a statement must not run. If it names what nobody knows, the home shard says that, and where: it has all other tables too.
func (s *session) refusalOf(st *plan.Statement, text func() string, oids []uint32) *pgerr.Error {
	if !st.Missing || s.home() == noShard {
		return st.Refusal
	}
	a, refused := s.askShard(s.home(), func() (answer, error) { return s.askTypes(text(), oids) })
	if refused == nil && a.failure != nil && a.failure.Code == pgerr.UndefinedTable {
		return a.failure.PGError()
	}
	return st.Refusal
}

// hasTemporary says whether the session keeps a backend of the shard that nothing is under way on, and that has its temporary tables: no other backend knows of them.
func (s *session) hasTemporary(shard int) bool {
	p := s.pinned[shard]
	return p != nil && len(s.temporary) > 0 && s.backend != p.backend && s.legs[shard] == nil
}

// mayAskInside says whether the client's own backend can be asked something: it is in a transaction block that has not failed, and
// between two units.
func (s *session) mayAskInside() bool {
	return s.backend != nil && s.status == statusOpen && !s.unsynced
}

// inside asks the client's own backend, and leaves its transaction as it was; more is what is run before the question, if anything.
func (s *session) inside(more string, question func() (answer, error)) (answer, *pgerr.Error) {
	const savepoint = "cleave_aside"
	s.unheard = true
	defer func() { s.unheard = false }()
	a, err := s.ask("SAVEPOINT " + savepoint + more)
	if err == nil && a.failure == nil {
		if a, err = question(); err == nil {
			var after answer
			if after, err = s.ask("ROLLBACK TO SAVEPOINT " + savepoint + "; RELEASE SAVEPOINT " + savepoint); after.failure != nil {
				a.failure = after.failure // the transaction is not as it was
			}
		}
	}
	if err != nil {
		lost := s.dropLost(err)
		s.endWithLeg()
		return answer{}, lost
	}
	return a, nil
}

// asideState is what a question aside must leave as it was.
type asideState struct {
	backend  *pool.Backend
	state    *serverState
	unsynced bool
	status   byte
	tx       transaction
	target   int
	settings *settings
	joined   bool
	wrote    bool
	pending  script
}
