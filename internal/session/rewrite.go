package session

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// Virtual answers for the views and functions of the schema cleave, which no shard has.
type Virtual interface {
	// View returns the columns of a view, and its rows unless only the columns are wanted.
	View(ctx context.Context, name string, columnsOnly bool) (View, *pgerr.Error)
	// ResultType is the type of a function's result, as SQL writes it.
	ResultType(function string) string
	// Call runs a function and returns its result, nil for NULL.
	Call(ctx context.Context, call Call) (*string, *pgerr.Error)
}

// View is what a view has to show.
type View struct {
	Columns []ViewColumn
	// Rows have a value for each column, of a kind that encoding/json can write; nil is NULL.
	Rows [][]any
}

// ViewColumn is a column of a view.
type ViewColumn struct{ Name, Type string }

// Call is a function's call.
type Call struct {
	Function string
	// Role is who calls.
	Role string
	// SearchPath is where names without schema are looked up.
	SearchPath []string
	Arguments  []Argument
	// OnShard runs work on a shard, by its number, over a connection of the client's own that is in no transaction.
	OnShard func(number int, work func(shard.Asker) error) error
	// Meanwhile tells the client something while work is under way on a shard. It may be called from another goroutine than that work.
	Meanwhile func(string)
	// Notice tells the client something before the call has ended. It may be called from one goroutine at a time.
	Notice func(string)
}

// Argument is one argument of a call: its name, empty if it was given by position, and its text, nil for NULL.
type Argument struct {
	Name string
	Text *string
}

// rewrite returns what a shard has to see in place of what the client wrote.
func (s *session) rewrite(st *plan.Statement, o *op, src source) ([]edit, *pgerr.Error) {
	if s.returnsToRole(st) {
		return nil, pgerr.New(pgerr.FeatureNotSupported, "%s SESSION AUTHORIZATION is not supported at this place", st.Name).
			WithDetail("The role to go back to is the session's, and the server does not know it.").WithHint("Use it outside the transaction.")
	}
	switch st.Command {
	case plan.Prepare:
		return s.rewritePrepare(st, o, src)
	case plan.Execute:
		return s.rewriteExecute(st, o)
	case plan.ResetVariable:
		if e, had := s.base.find(st.Settings[0].Name); had {
			o.retag(st.Name)
			return []edit{{start: st.Start, end: st.End, by: restoreSQL(e, st.Settings[0].Local)}}, nil
		}
	case plan.ResetAll:
		o.retag(st.Name)
		return []edit{{start: st.Start, end: st.End, by: s.resetAllSQL()}}, nil
	case plan.DiscardAll:
		return nil, s.noDiscard()
	case plan.ShowVariable:
		if showsOurs(st) {
			o.retag("SHOW")
			at := span{st.Start, st.End}
			if o.original == nil { // it is alone in its text
				at = s.spanOf(src.wholeText())
			}
			return []edit{{start: at.start, end: at.end, by: s.showOurs(st.Settings[0].Name)}}, nil
		}
	default: // as the client wrote it, but for the router's own views and functions
	}
	if st.Load != nil && s.loading != nil && s.loading.timed != nil {
		return weave(s.loading.timed.columnsOf(src.wholeText(), s.standardConforming()), s.momentEdits.all()), nil
	}
	edits := s.replaceNumberCalls(st)
	edits = weave(edits, s.momentEdits.all())
	if len(st.Route.Numbers) > 0 {
		numbered, refused := s.numberRows(st, src)
		if refused != nil {
			return nil, refused
		}
		edits = append(edits, numbered...)
		slices.SortStableFunc(edits, func(a, b edit) int { return a.start - b.start })
	}
	if len(st.Virtual) > 0 {
		answers, refused := s.answerVirtual(st, src, false)
		if refused != nil {
			return nil, refused
		}
		edits = append(edits, answers...)
		slices.SortStableFunc(edits, func(a, b edit) int { return a.start - b.start })
	}
	return edits, nil
}

func (s *session) showOurs(name string) string {
	value := string(s.poolMode)
	switch name {
	case "cleave.pool_mode":
	case "cleave.shard_key":
		value = s.shardKey
	case consistentReads:
		if value = "off"; s.wantsConsistent() {
			value = "on"
		}
	case fanoutParameter:
		value = string(s.currentFanout())
	case partialResults:
		if value = "off"; s.wantsPartial() {
			value = "on"
		}
	case missingShards:
		value = s.missingNames()
	default:
		return "SHOW " + parameterSQL(name) // the server says that there is no such parameter
	}
	return fmt.Sprintf("SELECT %s::text AS %s", sqltext.QuoteLiteral(value), sqltext.QuoteIdentifier(name))
}

// rewritePrepare gives the statement a name of its own on the server: two sessions may use the same one.
func (s *session) rewritePrepare(st *plan.Statement, o *op, src source) ([]edit, *pgerr.Error) {
	p := &st.Prepared
	if s.statements[p.Name] != nil || slices.ContainsFunc(o.makes, func(made *statement) bool { return made.name == p.Name }) {
		return nil, pgerr.New(pgerr.DuplicatePrepared, "prepared statement \"%s\" already exists", p.Name)
	}
	text := src.wholeText()
	s.preparedCount++
	made := &statement{
		name: p.Name, text: string(text[p.BodyStart:p.BodyEnd]), serverName: fmt.Sprintf("cleave_sql_%d_%d", s.number, s.preparedCount),
	}
	s.noteReading(made)
	made.sql = &sqlPrepared{types: p.TypesSQL, source: "PREPARE " + made.serverName + " " + p.TypesSQL + " AS " + made.text}
	o.makes = append(o.makes, made)
	return []edit{{start: p.NameStart, end: p.NameEnd, by: made.serverName}}, nil
}

// preparedBySQL keeps what a PREPARE made.
func (s *session) preparedBySQL(st *plan.Statement, e *expect) {
	if e.op < 0 {
		return
	}
	for _, made := range s.ops[e.op].makes {
		if made.name == st.Prepared.Name {
			s.keepStatement(made)
			s.state.add(made.serverName).confirmed = true
		}
	}
}

// rewriteExecute names the statement as the server knows it.
func (s *session) rewriteExecute(st *plan.Statement, o *op) ([]edit, *pgerr.Error) {
	for _, made := range o.makes { // earlier in the same text
		if made.name == st.Prepared.Name {
			if inner := made.single(); inner != nil && !inner.Plain {
				o.inner = inner
			}
			return []edit{{start: st.Prepared.NameStart, end: st.Prepared.NameEnd, by: made.serverName}}, nil
		}
	}
	prepared := s.statements[st.Prepared.Name]
	if prepared == nil {
		return nil, errNoStatement(st.Prepared.Name)
	}
	if s.isUnbound(st) {
		var refused *pgerr.Error
		if prepared, refused = s.ownedStatement(prepared); refused != nil {
			return nil, refused
		}
	}
	name := prepared.onServer(s.effective())
	o.needs = append(o.needs, prepared)
	if inner := prepared.single(); inner != nil && !inner.Plain {
		if st.Name != "EXECUTE" { // EXPLAIN and CREATE TABLE AS may not run it
			return nil, pgerr.New(pgerr.FeatureNotSupported, "%s of this prepared statement is not supported", st.Name).
				WithDetail("It leaves something in the session, and the router cannot tell whether it runs.").WithHint("Send the statement itself.")
		}
		o.inner = inner
	}
	return []edit{{start: st.Prepared.NameStart, end: st.Prepared.NameEnd, by: name}}, nil
}

// routeExecute sends EXECUTE where the statement that it names has to go.
func (s *session) routeExecute(st *plan.Statement, src source) (int, *pgerr.Error) {
	prepared := s.statements[st.Prepared.Name]
	for _, made := range src.makes {
		if made.name == st.Prepared.Name {
			prepared = made
		}
	}
	if prepared == nil {
		return noShard, errNoStatement(st.Prepared.Name)
	}
	if refused := s.planAside(prepared); refused != nil {
		return noShard, refused
	}
	if refused := s.stillReads(prepared); refused != nil {
		return noShard, refused
	}
	only := prepared.single()
	if only == nil {
		return s.home(), nil
	}
	if only.Refusal != nil {
		return noShard, only.Refusal
	}
	if refused := s.takeMap(only); refused != nil { // it may have been made in the same text, or planned just now
		return noShard, refused
	}
	if only.Makes != nil {
		return noShard, makesWhenExecuted(only)
	}
	if only.Route.Level == plan.AnyOwner && len(only.Route.Numbers) > 0 {
		return noShard, pgerr.New(pgerr.FeatureNotSupported, "EXECUTE of an INSERT whose keys the router draws is not supported").
			WithDetail("The shard has the text that was prepared, without keys.").WithHint("Send the INSERT itself, or prepare it by the protocol, as drivers do.")
	}
	if len(only.Numbers) > 0 {
		return noShard, pgerr.New(pgerr.FeatureNotSupported, "EXECUTE of a statement that calls %s is not supported", only.Numbers[0].Function).
			WithDetail("The router has to put another function in its place.").WithHint("Send the statement itself, or prepare it by the protocol, as drivers do.")
	}
	if len(only.Virtual) > 0 {
		return noShard, pgerr.New(pgerr.FeatureNotSupported, "EXECUTE of a statement with the router's own views or functions is not supported").
			WithDetail("The router puts its answer into the text, anew each time.").WithHint("Send the statement itself, or prepare it by the protocol, as drivers do.")
	}
	if only.NeedsSession && s.poolMode != SessionMode {
		return noShard, needsSession(only)
	}
	inner := source{statement: prepared, arguments: st.Prepared.Arguments, outer: &src}
	if only.Route.Level == plan.Keyed || len(only.Route.Keys) > 0 {
		var refused *pgerr.Error
		if inner.types, refused = s.typesOfPrepared(prepared); refused != nil {
			return noShard, refused
		}
	}
	shard, refused := s.place(only, inner)
	if shard == ownShard && st.Name != "EXECUTE" {
		return noShard, pgerr.New(pgerr.FeatureNotSupported, "%s of a prepared statement over several shards that is answered in steps is not supported yet", st.Name).
			WithDetail("Its arguments are expressions, whose values the router does not know.").WithHint("Send the statement itself.")
	}
	return shard, refused
}

// planAside plans a prepared statement without losing the literals of the text that names it.
func (s *session) planAside(st *statement) *pgerr.Error {
	kept := s.scan
	s.scan, s.planningAside = sqltext.Normalized{}, true
	defer func() { s.scan, s.planningAside = kept, false }()
	return s.plan(st)
}

// typesOfPrepared asks a server of which types the parameters of a prepared statement are.
func (s *session) typesOfPrepared(st *statement) ([]uint32, *pgerr.Error) {
	if st.sql == nil {
		return s.paramTypes(st)
	}
	if st.paramOIDs != nil {
		return st.paramOIDs, nil
	}
	const query = "SELECT unnest(parameter_types)::pg_catalog.oid FROM pg_catalog.pg_prepared_statements WHERE name = 'cleave_types'"
	a, refused := s.aside(func() (answer, error) {
		a, err := s.ask("PREPARE cleave_types " + st.sql.types + " AS " + st.text)
		if err != nil || a.failure != nil {
			return a, err
		}
		types, err := s.ask(query)
		if err != nil {
			return types, err
		}
		_, err = s.ask("DEALLOCATE cleave_types")
		return types, err
	})
	if refused != nil {
		return nil, refused
	}
	if a.failure != nil {
		return nil, a.failure.PGError()
	}
	st.paramOIDs = []uint32{}
	for _, row := range a.rows {
		var oid uint32
		if _, err := fmt.Sscan(row[0], &oid); err != nil {
			return nil, pgerr.New(pgerr.InternalError, "a type's number %q cannot be read", row[0])
		}
		st.paramOIDs = append(st.paramOIDs, oid)
	}
	return st.paramOIDs, nil
}

// rewritten is a statement of the extended protocol as a shard has to see it: the unnamed one, made anew each time.
func (s *session) rewritten(st *statement, only *plan.Statement, src source) (*statement, *pgerr.Error) {
	o := op{}
	edits, refused := s.rewrite(only, &o, src)
	if refused != nil || len(edits) == 0 {
		return st, refused
	}
	run := &statement{text: string(applyEdits([]byte(st.text), edits)), oids: st.oids, planned: st.planned, origin: st, tags: o.tags, makes: o.makes, edits: edits, inner: o.inner}
	if len(o.needs) > 0 {
		run.needs = o.needs[0]
	}
	return run, nil
}

// describable is a statement that can be described without running anything.
func (s *session) describable(st *statement, only *plan.Statement) (*statement, *pgerr.Error) {
	if len(only.Route.Numbers) > 0 {
		return st, nil
	}
	if len(only.Virtual) == 0 && len(only.Numbers) > 0 {
		return st, nil
	}
	if len(only.Virtual) == 0 {
		return s.rewritten(st, only, source{statement: st})
	}
	edits, refused := s.answerVirtual(only, source{statement: st}, true)
	if refused != nil {
		return nil, refused
	}
	return &statement{text: string(applyEdits([]byte(st.text), edits)), oids: st.oids, planned: st.planned, origin: st}, nil
}

func (src *source) wholeText() []byte {
	if src.statement != nil {
		return []byte(src.statement.text)
	}
	return src.text
}

// answerVirtual puts the router's own answers into the text: rows as a table in its place, results as values.
func (s *session) answerVirtual(st *plan.Statement, src source, shapeOnly bool) ([]edit, *pgerr.Error) {
	var edits []edit
	for i := range st.Virtual {
		v := &st.Virtual[i]
		var by string
		var refused *pgerr.Error
		if v.Function {
			by, refused = s.answerCall(v, src, shapeOnly)
		} else {
			by, refused = s.answerView(v, shapeOnly)
		}
		if refused != nil {
			return nil, refused
		}
		edits = append(edits, edit{start: v.Start, end: v.End, by: by})
	}
	slices.SortFunc(edits, func(a, b edit) int { return a.start - b.start })
	return edits, nil
}

func (s *session) answerView(v *plan.Virtual, shapeOnly bool) (string, *pgerr.Error) {
	if catalogue := s.catalogWithoutOwn(v); catalogue != "" {
		return catalogue, s.seesAllTables()
	}
	if v.Name == plan.ViewDefinition {
		return "cleave.plain_viewdef", nil
	}
	if sequence, isSequence := strings.CutPrefix(v.Name, plan.SequencePrefix); isSequence {
		return s.dumpedSequence(v, sequence, shapeOnly)
	}
	view, refused := s.viewOf(v.Name, shapeOnly)
	if refused != nil {
		return "", refused
	}
	text := "(SELECT * FROM pg_catalog.jsonb_to_recordset(" + recordsSQL(view) + ") AS v(" + columnsSQL(view.Columns) + "))"
	if !v.Aliased {
		text += " AS " + sqltext.QuoteIdentifier(v.Name)
	}
	return text, nil
}

// viewOf is what a view shows.
func (s *session) viewOf(name string, columnsOnly bool) (View, *pgerr.Error) {
	switch name {
	case activityView:
		return s.activity(columnsOnly)
	case sagasView:
		return s.sagas(columnsOnly)
	}
	return s.server.config.Virtual.View(s.ctx, name, columnsOnly)
}

func columnsSQL(columns []ViewColumn) string {
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = sqltext.QuoteIdentifier(c.Name) + " " + c.Type
	}
	return strings.Join(parts, ", ")
}

// recordsSQL writes rows as a JSON literal.
func recordsSQL(view View) string {
	records := make([]map[string]any, len(view.Rows))
	for i, row := range view.Rows {
		records[i] = make(map[string]any, len(row))
		for j, value := range row {
			records[i][view.Columns[j].Name] = value
		}
	}
	text, err := json.Marshal(records)
	if err != nil { // only values that JSON has are given
		text = []byte("[]")
	}
	return sqltext.QuoteLiteral(string(text)) + "::pg_catalog.jsonb"
}

func (s *session) answerCall(v *plan.Virtual, src source, shapeOnly bool) (string, *pgerr.Error) {
	result := "NULL"
	if !shapeOnly {
		if s.currentStatus() != statusIdle || s.inServerTransaction() {
			if !isHarmless(v.Name) {
				return "", errInBlock(v.Name)
			}
		}
		call, refused := s.callOf(v, src)
		if refused != nil {
			return "", refused
		}
		value, refused := s.callOwn(call)
		if refused != nil {
			return "", refused
		}
		if value != nil {
			result = sqltext.QuoteLiteral(*value)
		}
	}
	text := "(SELECT " + result + "::" + s.server.config.Virtual.ResultType(v.Name) + " AS " + sqltext.QuoteIdentifier(v.Name) + parametersOf(v) + ")"
	if v.FromClause && !v.Aliased {
		text += " AS " + sqltext.QuoteIdentifier(v.Name)
	}
	return text, nil
}

// parametersOf has a server know the parameters that a call has, which clients ask for and give: they are texts, if the client says nothing else.
func parametersOf(v *plan.Virtual) string {
	var seen []string
	for _, operand := range v.Arguments {
		if operand.Kind == plan.FromParam {
			seen = append(seen, fmt.Sprintf("$%d::pg_catalog.text", operand.Param))
		}
	}
	if len(seen) == 0 {
		return ""
	}
	return " FROM (SELECT ARRAY[" + strings.Join(seen, ", ") + "]) AS parameters"
}

func errInBlock(function string) *pgerr.Error {
	return pgerr.New(pgerr.ActiveTransaction, "cleave.%s cannot run inside a transaction block", function).
		WithHint("Run it by itself: it changes all shards and the shard map.")
}

// isHarmless says whether a function of the router changes nothing.
func isHarmless(name string) bool {
	return name == "shard_of" || name == "version" || name == "transaction_outcome"
}

func (s *session) callOf(v *plan.Virtual, src source) (Call, *pgerr.Error) {
	call := Call{Function: v.Name, SearchPath: s.visiblePath, OnShard: s.onShard, Meanwhile: s.meanwhile, Notice: func(text string) { s.progress("%s", text) }}
	if !isHarmless(v.Name) {
		// Who may change something is for a server to say, not for what the session believes of itself.
		a, refused := s.aside(func() (answer, error) { return s.ask("SELECT current_user") })
		if refused != nil {
			return Call{}, refused
		}
		if a.failure != nil || len(a.rows) != 1 {
			return Call{}, pgerr.New(pgerr.InternalError, "the role could not be asked for")
		}
		call.Role = a.rows[0][0]
	}
	for i, operand := range v.Arguments {
		text, refused := s.operandText(operand, src)
		if refused != nil {
			return Call{}, refused.WithDetail("Argument %d of cleave.%s must be a literal or a parameter.", i+1, v.Name)
		}
		argument := Argument{Text: text}
		if i < len(v.ArgumentNames) {
			argument.Name = v.ArgumentNames[i]
		}
		call.Arguments = append(call.Arguments, argument)
	}
	return call, nil
}

// operandText returns an operand's value as text, nil for NULL.
func (s *session) operandText(operand plan.Operand, src source) (*string, *pgerr.Error) {
	text := ""
	switch operand.Kind {
	case plan.IsNull:
		return nil, nil
	case plan.IsTrue:
		text = "true"
	case plan.IsFalse:
		text = "false"
	case plan.FromLiteral:
		scan, whole, refused := src.literals(s.standardConforming())
		if refused != nil {
			return nil, refused
		}
		value, ok := scan.Value(whole, operand.Literal)
		if !ok {
			return nil, pgerr.New(pgerr.FeatureNotSupported, "this form of literal is not supported here").
				WithDetail("The router has to read it.").WithHint("Write a plain string or number.")
		}
		text = string(value)
		if operand.Negative {
			text = "-" + text
		}
	case plan.FromParam:
		if src.bind == nil || operand.Param > src.bind.ParamCount() {
			return nil, pgerr.New(pgerr.ProtocolViolation, "parameter $%d is missing", operand.Param)
		}
		value, isBinary, null := src.bind.Param(operand.Param - 1)
		if null {
			return nil, nil
		}
		var refused *pgerr.Error
		if text, refused = s.paramText(value, isBinary, operand.Param, src); refused != nil {
			return nil, refused
		}
	default:
		return nil, pgerr.New(pgerr.FeatureNotSupported, "an expression is not supported here").
			WithDetail("The router would have to compute it.").WithHint("Write a literal or a parameter.")
	}
	return &text, nil
}
