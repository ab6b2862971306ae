package session

import (
	"fmt"
	"strconv"

	"github.com/cleavedb/cleave/internal/compose"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/wire"
)

// making is a statement that makes a table out of rows which the home shard alone does not have: CREATE TABLE AS, SELECT INTO. The query is run
// first, since the new table may hide one that it reads; then the home shard makes the table out of the same query, WITH NO DATA, so that names and types
// of its columns are what PostgreSQL makes of them, and is given the rows. All of that is one transaction, which the home shard alone writes in: a router
// that dies half way leaves nothing.
type making struct {
	st  *plan.Statement
	src source
}

// makesWhenExecuted refuses EXECUTE of such a statement.
func makesWhenExecuted(st *plan.Statement) *pgerr.Error {
	return pgerr.New(pgerr.FeatureNotSupported, "EXECUTE of %s over several shards is not supported", st.Name).
		WithDetail("It is run in steps, by the router.").WithHint("Send the statement itself, or CREATE TABLE … AS EXECUTE of its query.")
}

// madeQuery is a query whose rows are stored, with its parameters.
type madeQuery struct {
	statement *statement
	bind      *wire.Bind
	shape     pullOutline
	rows      spool
}

func (m *making) takeBind(s *session, b *wire.Bind) *pgerr.Error {
	types, refused := s.declaredTypes(m.src.statement)
	if refused != nil {
		return refused
	}
	m.src.bind, refused = keepBind(b, m.src.statement.name, len(types))
	return refused
}

func (m *making) description() []byte { return nil }

func (m *making) run(s *session, _ rowTaker) (tag string, refused *pgerr.Error) {
	defer s.keepWhole()()
	if refused := s.goOn(); refused != nil {
		return "", refused
	}
	s.answerLocally()
	if refused := s.beginAtHome(m.st); refused != nil {
		return "", refused
	}
	if m.st.Makes.Refreshes {
		return m.refresh(s)
	}
	q, refused := m.query(s)
	if refused != nil {
		return "", refused
	}
	defer q.rows.close()
	schema, exists, refused := s.whereMade(m.st.Makes)
	if refused != nil {
		return "", refused
	}
	if exists {
		if tag, refused := m.passOver(s, q); refused != nil || m.st.Makes.Again != "" {
			return tag, refused
		}
	}
	if !m.st.Makes.NoData {
		if refused := s.keepRows(q); refused != nil {
			return "", refused
		}
	}
	if m.st.Makes.View {
		return m.makeView(s, q, schema)
	}
	tag, refused = m.make(s, q)
	if refused != nil || m.st.Makes.NoData && !m.st.Makes.Executes { // PostgreSQL's tag for EXECUTE is one of rows all the same
		return tag, refused
	}
	return fmt.Sprintf("SELECT %d", q.rows.rows), s.store(schema+"."+sqltext.QuoteIdentifier(m.st.Makes.Name.Name), q)
}

// beginAtHome makes the home shard take part in the transaction, so that what is asked is answered by the backend that has the session's temporary tables.
func (s *session) beginAtHome(st *plan.Statement) *pgerr.Error {
	home := []int{s.home()}
	if refused := s.mayUse(home, st); refused != nil {
		return refused
	}
	s.startBlock()
	_, refused := s.enlist(st, home)
	return refused
}

// passOver lets PostgreSQL say that there is such a relation already, and whether that is wrong. Whatever it does is undone: the relation may be gone by now, and the
// statement would make one without rows.
func (m *making) passOver(s *session, q *madeQuery) (tag string, refused *pgerr.Error) {
	head := m.st.Makes.Again
	if head == "" {
		head = m.st.Makes.Head
	}
	formats, values := valuesOf(q.bind)
	s.notices = true
	a, refused := s.askShard(s.home(), func() (answer, error) {
		return s.askParams(head+" "+q.statement.text+withNoData, q.statement.oids, formats, values)
	})
	s.notices = false
	switch {
	case refused != nil:
		return "", refused
	case a.failure != nil:
		return "", withoutPlace(a).failure.PGError()
	}
	return m.st.Name, nil
}

// query is the one whose rows are stored, as PostgreSQL sees it: what is wrong with the statement is told with its place in the client's text.
func (m *making) query(s *session) (*madeQuery, *pgerr.Error) {
	if m.st.Makes.Executes {
		return m.executed(s)
	}
	asked := m.src.statement
	if asked == nil {
		asked = &statement{text: string(m.src.text), planned: m.src.planned}
	}
	q := &madeQuery{rows: spool{of: &s.server.allowance}, statement: &statement{text: m.st.Makes.Query}, bind: m.src.bind}
	a, refused := s.askShard(s.home(), func() (answer, error) { return s.askTypes(asked.text, asked.oids) })
	switch {
	case refused != nil:
		return nil, refused
	case a.failure != nil:
		failure := a.failure.PGError()
		if failure.Position > 0 {
			failure = failure.At(s.textBefore + failure.Position)
		}
		return nil, failure
	case m.src.bind == nil && len(a.params) > 0:
		return nil, s.noParameter(m.src.wholeText())
	}
	q.statement.oids = append([]uint32{}, a.params...)
	return q, s.shapeOf(q)
}

// executed is the query of a prepared statement, with the arguments of EXECUTE as its parameters.
func (m *making) executed(s *session) (*madeQuery, *pgerr.Error) {
	execute := &statement{text: m.st.Makes.Query}
	if refused := s.planAside(execute); refused != nil {
		return nil, refused
	}
	st := execute.single()
	switch {
	case st == nil:
		return nil, pgerr.New(pgerr.InternalError, "the EXECUTE of %s could not be planned", m.st.Name)
	case st.Refusal != nil:
		return nil, st.Refusal
	}
	prepared := s.statements[st.Prepared.Name]
	if prepared == nil {
		return nil, errNoStatement(st.Prepared.Name)
	}
	if refused := s.planAside(prepared); refused != nil {
		return nil, refused
	}
	if refused := s.stillReads(prepared); refused != nil {
		return nil, refused
	}
	switch only := prepared.single(); {
	case only == nil || only.Name != "SELECT":
		return nil, pgerr.New(pgerr.WrongObjectType, "prepared statement is not a SELECT")
	case only.Refusal != nil:
		return nil, only.Refusal
	}
	types, refused := s.typesOfPrepared(prepared)
	if refused != nil {
		return nil, refused
	}
	q := &madeQuery{rows: spool{of: &s.server.allowance}, statement: &statement{text: string(s.withoutEnds([]byte(prepared.text))), oids: types}}
	e := &execution{st: st, src: source{statement: execute}, c: &composing{src: source{statement: q.statement}}}
	if q.bind, refused = e.arguments(s); refused != nil {
		return nil, refused
	}
	return q, s.shapeOf(q)
}

// shapeOf plans the query, and asks the home shard, which has all tables, what its columns are. What the query uses the statement need not name, as REFRESH does not.
func (s *session) shapeOf(q *madeQuery) *pgerr.Error {
	if refused := s.planAside(q.statement); refused != nil {
		return refused
	}
	only := q.statement.single()
	switch {
	case only == nil:
		return pgerr.New(pgerr.InternalError, "the query of the statement could not be planned").WithDetail("%s", q.statement.text)
	case only.Refusal != nil:
		return only.Refusal
	}
	if refused := s.takeMap(only); refused != nil {
		return refused
	}
	a, refused := s.askShard(s.home(), func() (answer, error) {
		return s.askPull(q.statement.text, &outline{params: q.statement.oids}, &q.shape)
	})
	switch {
	case refused != nil:
		return refused
	case a.failure != nil:
		return withoutPlace(a).failure.PGError()
	}
	q.shape.numbered = true
	q.shape.unnest()
	return s.mayWriteOut(q.composing())
}

// composing is the query as the only pull of a statement.
func (q *madeQuery) composing() *composing {
	return &composing{outline: &outline{composition: &compose.Composition{Pulls: []compose.Pull{{Numbered: true}}}, pulls: []pullOutline{q.shape}}}
}

// keepRows runs the query, wherever it has to run.
func (s *session) keepRows(q *madeQuery) *pgerr.Error {
	formats := make([]int16, len(q.shape.columns))
	for i := range q.shape.columns {
		formats[i] = map[bool]int16{true: wire.FormatBinary}[q.shape.columns[i].binary]
	}
	return s.runQuery(&queryRun{statement: q.statement, bind: q.bind, params: q.statement.oids, formats: formats, to: &keptRows{to: &q.rows}})
}

// make makes the table, without rows.
func (m *making) make(s *session, q *madeQuery) (tag string, refused *pgerr.Error) {
	formats, values := valuesOf(q.bind)
	return s.runHome(m.atHome(), &statement{text: m.st.Makes.Head + " " + q.statement.text + withNoData, oids: q.statement.oids}, bindTail(formats, values, nil))
}

// withNoData ends a statement that makes something without rows. What stands before it may end in a comment.
const withNoData = "\nWITH NO DATA"

// atHome is the statement as one that the home shard runs.
func (m *making) atHome() *plan.Statement {
	made := *m.st
	made.Makes, made.Route = nil, plan.Route{Level: plan.Home}
	return &made
}

// runHome has the home shard run a statement of the session's own, in the transaction, and notes what follows from it.
func (s *session) runHome(st *plan.Statement, given *statement, bind []byte) (tag string, refused *pgerr.Error) {
	given.planned = &planned{plan: &plan.Plan{Statements: []plan.Statement{*st}}, stats: unreadablePlan.stats}
	var types []uint32
	for _, oid := range given.oids {
		if mayCarry(oid) {
			types = given.oids
		}
	}
	run := &spreadRun{
		shards: []int{s.home()}, parts: []part{{data: bind, statement: given, elsewhere: true}}, types: types, planned: given.planned, divided: plan.Same,
		to: &limitedRows{},
	}
	refused = s.runParts(run)
	return run.tag, refused
}

// store inserts rows into a table on the home shard, in portions.
func (s *session) store(table string, q *madeQuery) *pgerr.Error {
	if refused := q.rows.rewind(); refused != nil {
		return refused
	}
	for {
		portion, refused := q.portion(s)
		if refused == nil && portion.rows > 0 {
			refused = s.storePortion(table, q, portion)
		}
		done := portion.rows == 0
		portion.close()
		if refused != nil || done {
			return refused
		}
	}
}

// portion takes as many rows as are inserted at a time.
func (q *madeQuery) portion(s *session) (*spool, *pgerr.Error) {
	portion := s.newSpool()
	for portion.size < insertBatch {
		row, refused := q.rows.next()
		if refused != nil || row == nil {
			return portion, refused
		}
		if refused := portion.add(row); refused != nil {
			return portion, refused
		}
	}
	return portion, nil
}

func (s *session) storePortion(table string, q *madeQuery, portion *spool) *pgerr.Error {
	c := q.composing()
	f := s.newFinishing(c, &basin{c: c, spools: []*spool{portion}}, true)
	defer f.held.release()
	relation, refused := f.relation(0)
	if refused != nil {
		return refused
	}
	insert := &statement{text: "INSERT INTO " + table + " SELECT * FROM " + relation + " AS p", oids: f.oids}
	_, refused = s.runHome(&plan.Statement{Name: "INSERT"}, insert, bindTail(f.formats, f.values, nil))
	return refused
}

// whereMade asks the home shard in which schema the new relation will be, as SQL writes it, and whether there is one of its name already.
func (s *session) whereMade(made *plan.Made) (schema string, exists bool, refused *pgerr.Error) {
	const sql = `SELECT pg_catalog.quote_ident(n.nspname), EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.relname OPERATOR(pg_catalog.=) $1 AND c.relnamespace OPERATOR(pg_catalog.=) n.oid)
		FROM pg_catalog.pg_namespace n WHERE CASE WHEN $3::pg_catalog.bool THEN n.oid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()
			WHEN $2 OPERATOR(pg_catalog.=) '' THEN n.nspname OPERATOR(pg_catalog.=) pg_catalog.current_schema() ELSE n.nspname OPERATOR(pg_catalog.=) $2 END`
	values := [][]byte{[]byte(made.Name.Name), []byte(made.Name.Schema), strconv.AppendBool(nil, made.Temporary)}
	a, refused := s.askShard(s.home(), func() (answer, error) { return s.askParams(sql, []uint32{nameOID, nameOID}, nil, values) })
	switch {
	case refused != nil:
		return "", false, refused
	case a.failure != nil:
		return "", false, a.failure.PGError()
	case made.Temporary:
		return "pg_temp", len(a.rows) > 0 && a.rows[0][1] == "t", nil
	case len(a.rows) == 0: // PostgreSQL says so
		return sqltext.QuoteIdentifier(made.Name.Schema), true, nil
	}
	return a.rows[0][0], a.rows[0][1] == "t", nil
}
