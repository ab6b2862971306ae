package session

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/pool"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/wire"
)

// ownShard stands for the session itself: it has what the statement is about, or will have it.
const ownShard = -4

// declaration is a DECLARE whose query needs several shards: the session runs that, and has the cursor.
type declaration struct {
	st  *plan.Statement
	src source
}

// placeDeclared finds out where the query of a DECLARE has to run: on one shard, which has the cursor then, or on several.
func (s *session) placeDeclared(st *plan.Statement, src source) (int, *pgerr.Error) {
	query, refused := s.queryIn(st, src)
	if refused != nil {
		return noShard, refused
	}
	shard, refused := s.place(query.single(), source{statement: query, bind: src.bind})
	if shard == severalShards || shard == composedShards {
		shard = ownShard
	}
	return shard, refused
}

// queryIn is the query that a cursor is declared for, as a statement of its own.
func (s *session) queryIn(st *plan.Statement, src source) (*statement, *pgerr.Error) {
	query := &statement{text: behindFor(src.wholeText(), s.standardConforming())}
	if src.statement != nil {
		query.oids = src.statement.oids
	}
	return query, s.planInner(st, query)
}

// planInner plans the query of a statement.
func (s *session) planInner(st *plan.Statement, query *statement) *pgerr.Error {
	if refused := s.planAside(query); refused != nil {
		return refused
	}
	only := query.single()
	if only == nil {
		return pgerr.New(pgerr.InternalError, "the query of %s could not be planned", st.Name)
	}
	return only.Refusal
}

// behindFor is what stands behind the first word FOR, without semicolons.
func behindFor(text []byte, standardConforming bool) string {
	scanner := sqltext.NewScanner(text, standardConforming)
	start, end := -1, 0
	for token, more := scanner.Next(); more; token, more = scanner.Next() {
		switch word := string(text[token.Start:token.End]); {
		case start < 0 && token.Kind == sqltext.Word && strings.EqualFold(word, "for"):
			start, end = token.End, token.End
		case start >= 0 && word != ";":
			end = token.End
		}
	}
	return string(text[max(start, 0):end])
}

// declaredTypes are those of the parameters of a DECLARE, as the home shard sees it: which has all tables.
func (s *session) declaredTypes(st *statement) ([]uint32, *pgerr.Error) {
	if st.paramOIDs != nil && st.paramsOf == st.planned {
		return st.paramOIDs, nil
	}
	text, refused := s.describedText(st.single(), source{statement: st})
	if refused != nil {
		return nil, refused
	}
	a, refused := s.askShard(s.home(), func() (answer, error) { return s.askTypes(text, st.oids) })
	switch {
	case refused != nil:
		return nil, refused
	case a.failure != nil:
		return nil, a.failure.PGError()
	}
	st.paramOIDs, st.paramsOf = append([]uint32{}, a.params...), st.planned
	return st.paramOIDs, nil
}

// describedText is a statement's text as a server can describe it, the router's own views in it.
func (s *session) describedText(st *plan.Statement, src source) (string, *pgerr.Error) {
	text := src.wholeText()
	if len(st.Virtual) == 0 {
		return string(text), nil
	}
	edits, refused := s.answerVirtual(st, src, true)
	return string(applyEdits(text, edits)), refused
}

func (d *declaration) takeBind(s *session, m *wire.Bind) *pgerr.Error {
	types, refused := s.declaredTypes(d.src.statement)
	if refused != nil {
		return refused
	}
	d.src.bind, refused = keepBind(m, d.src.statement.name, len(types))
	return refused
}

func (d *declaration) description() []byte { return nil }

// run declares the cursor. What is wrong with the statement PostgreSQL says first, then that it has to be in a transaction, then that there is one of that name.
func (d *declaration) run(s *session, _ rowTaker) (tag string, refused *pgerr.Error) {
	if refused := s.goOn(); refused != nil {
		return "", refused
	}
	s.answerLocally()
	query, refused := s.queryIn(d.st, d.src)
	if refused != nil {
		return "", refused
	}
	c := &cursor{Cursor: *d.st.Declares, atStart: true, rows: spool{of: &s.server.allowance}}
	params, refused := d.shape(s, query, c)
	if refused != nil {
		return "", refused
	}
	if !c.Hold && (s.tx.begin == "" || s.tx.implicit && !s.inText) {
		return "", pgerr.New(pgerr.NoActiveTransaction, "%s can only be used in transaction blocks", d.st.Name)
	}
	if taken, refused := s.hasPortal(c.Name); refused != nil || taken {
		return "", orElse(refused, errCursorExists(c.Name))
	}
	s.startReading(query.single())
	run := queryRun{statement: query, bind: d.src.bind, params: params, formats: keptFormats(c.columns), to: &keptRows{to: &c.rows}}
	if refused := s.runQuery(&run); refused != nil {
		c.rows.close()
		return "", refused
	}
	s.keepPortal([]byte(c.Name), portal{statement: &statement{}, cursor: c})
	if c.Hold {
		s.log.held = append(s.log.held, c)
	}
	return d.st.Name, nil
}

func orElse(refused, other *pgerr.Error) *pgerr.Error {
	if refused != nil {
		return refused
	}
	return other
}

// startReading begins a transaction for a query whose rows are kept, if there is none: whether they are depends on how it ends.
func (s *session) startReading(st *plan.Statement) {
	if s.tx.begin == "" && s.wantsConsistent() && st.Reads && s.backend == nil {
		s.tx.open, s.tx.begin, s.tx.implicit = true, consistentBegin, true
	}
	s.startBlock()
}

// shape lets the home shard say what is wrong with the statement, and what the rows of the cursor are. It returns the types of the parameters.
func (d *declaration) shape(s *session, query *statement, c *cursor) (params []uint32, refused *pgerr.Error) {
	whole, refused := s.describedText(d.st, d.src)
	if refused != nil {
		return nil, refused
	}
	text, refused := s.describedText(query.single(), source{statement: query})
	if refused != nil {
		return nil, refused
	}
	formats, values := valuesOf(d.src.bind)
	a, refused := s.askShard(s.home(), func() (answer, error) {
		oids := s.numbering().declared(query.oids)
		out := wire.AppendDescribe(wire.AppendParse(wire.AppendParse(nil, "", whole, oids), "", text, oids), 'S', "")
		out = wire.AppendDescribe(wire.AppendBind(out, "", "", formats, values, nil), 'P', "")
		a, err := s.exchange(wire.AppendSync(out))
		if params = a.params; err != nil || a.failure != nil {
			return a, err
		}
		c.description = describedIn(a.described, nil)
		c.columns, a, err = s.askKept(a.types)
		return a, err
	})
	switch {
	case refused != nil:
		return nil, refused
	case d.src.bind == nil && len(params) > 0:
		return nil, s.noParameter(d.src.wholeText())
	case a.failure != nil:
		failure := a.failure.PGError()
		if failure.Position > 0 {
			failure = failure.At(s.textBefore + failure.Position)
		}
		return nil, failure
	}
	query.oids, c.written = params, s.writtenUnder(c.columns)
	return params, nil
}

// noParameter is what PostgreSQL says of a text with a parameter where there are none.
func (s *session) noParameter(text []byte) *pgerr.Error {
	scanner := sqltext.NewScanner(text, s.standardConforming())
	for token, more := scanner.Next(); more; token, more = scanner.Next() {
		if token.Kind == sqltext.Param {
			return pgerr.New(pgerr.UndefinedParameter, "there is no parameter %s", text[token.Start:token.End]).At(s.textBefore + utf8.RuneCount(text[:token.Start]) + 1)
		}
	}
	return pgerr.New(pgerr.UndefinedParameter, "there are no parameters here")
}

// askKept asks the attached backend how values of types are kept.
func (s *session) askKept(types []uint32) ([]keptColumn, answer, error) {
	columns, oids := make([]keptColumn, len(types)), make([]string, len(types))
	for i, oid := range types {
		columns[i].oid, oids[i] = oid, strconv.FormatUint(uint64(oid), 10)
	}
	if len(types) == 0 {
		return columns, answer{}, nil
	}
	a, err := s.askParams(typesSQL, nil, nil, [][]byte{[]byte("{" + strings.Join(oids, ",") + "}"), []byte("{}")}) // modifiers do not matter
	for i := range a.rows {
		columns[i].binary = a.rows[i][3] == "t" && types[i] < firstUserOID
	}
	return columns, a, err
}

// valuesOf are the parameters of a Bind; none if there is none.
func valuesOf(m *wire.Bind) (formats []int16, values [][]byte) {
	c := composing{src: source{bind: m}}
	return c.values()
}

// hasPortal says whether there is a cursor or a portal of that name, wherever it is.
func (s *session) hasPortal(name string) (bool, *pgerr.Error) {
	if s.portals[name] != nil {
		return true, nil
	}
	backends := map[*pool.Backend]*serverState{}
	if s.backend != nil {
		backends[s.backend] = s.state
	}
	for _, l := range s.legs {
		backends[l.backend] = l.state
	}
	for _, p := range s.pinned {
		backends[p.backend] = p.backend.State.(*serverState) //nolint:forcetypeassert // OnLogin puts it there
	}
	kept, state := s.backend, s.state
	defer func() { s.backend, s.state = kept, state }()
	for backend, state := range backends {
		s.backend, s.state = backend, state
		a, err := s.askParams("SELECT FROM pg_catalog.pg_cursors c WHERE c.name OPERATOR(pg_catalog.=) $1", []uint32{textOID}, nil, [][]byte{[]byte(name)})
		switch {
		case err != nil:
			return false, lostShard(backend.ShardName(), err)
		case a.failure != nil:
			return false, a.failure.PGError()
		case len(a.rows) > 0:
			return true, nil
		}
	}
	return false, nil
}

// queryRun is a query of its own that the session runs, wherever it has to run.
type queryRun struct {
	statement *statement
	bind      *wire.Bind
	// params are the types of its parameters, formats those that its rows are kept in.
	params  []uint32
	formats []int16
	to      rowTaker
	// allowed: it is known that it may run on many shards.
	allowed bool
}

// runQuery runs a query and hands on its rows.
func (s *session) runQuery(q *queryRun) *pgerr.Error {
	only, src := q.statement.single(), source{statement: q.statement, bind: q.bind}
	how, refused := s.timingOf(only, src)
	if refused != nil {
		return refused
	}
	if how != asItIs {
		fixed, refused := s.statementAtMoment(q.statement, src)
		if refused != nil {
			return refused
		}
		q.statement, src.statement = fixed, fixed
		only = fixed.single()
	}
	shard, refused := s.place(only, src)
	if refused != nil {
		return refused
	}
	shards, limit, divided := []int{shard}, int64(unlimited), plan.Same
	switch shard {
	case composedShards:
		if refused := s.mayScatter(only, s.scatters && !q.allowed); refused != nil {
			return refused
		}
		c := &composing{st: only, src: src, formats: q.formats}
		if c.outline, refused = s.outlineFor(only, src); refused != nil {
			return refused
		}
		_, refused = s.runComposed(c, q.to)
		return refused
	case severalShards:
		shards, divided = slices.Clone(s.wanted), only.Route.Parts
		if divided != plan.Same && divided != plan.Copies {
			return pgerr.New(pgerr.FeatureNotSupported, "this form of %s is not supported inside of a statement over several shards", only.Name).
				WithDetail("Its rows go to several shards.").WithHint("Run it by itself.")
		}
		if refused := s.mayDivide(only, src); refused != nil {
			return refused
		}
		if refused := s.mayScatter(only, fansOut(&only.Route) && !q.allowed); refused != nil {
			return refused
		}
		if limit, refused = s.rowLimit(only, src); refused != nil {
			return refused
		}
	case noShard:
		shards = []int{s.home()}
	}
	if refused := s.mayUse(shards, only); refused != nil {
		return refused
	}
	shards = s.present(shards)
	s.momentEdits = nil // it is in the text
	run := q.statement
	if !only.Plain {
		if run, refused = s.rewritten(run, only, src); refused != nil {
			return refused
		}
	}
	formats, values := valuesOf(q.bind)
	parts, tail := make([]part, len(shards)), bindTail(formats, values, q.formats)
	for i := range parts {
		parts[i] = part{data: tail, statement: run, elsewhere: true}
	}
	var types []uint32
	if slices.ContainsFunc(q.params, mayCarry) {
		types = q.params
	}
	q.to.begin()
	return s.runParts(&spreadRun{shards: shards, parts: parts, types: types, planned: q.statement.planned, divided: divided, to: &limitedRows{to: q.to, left: limit}})
}
