package session

import (
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/wire"
)

// execution is an EXECUTE of a statement that is answered in steps: its arguments, which may be any expressions, are computed once, and are the
// parameters of all steps.
type execution struct {
	st  *plan.Statement
	src source
	c   *composing
}

// executionOf is an EXECUTE of a prepared statement that is answered in steps.
func (s *session) executionOf(st *plan.Statement, src source) (*execution, *pgerr.Error) {
	prepared := s.statements[st.Prepared.Name]
	if prepared == nil || prepared.single() == nil {
		return nil, errNoStatement(st.Prepared.Name)
	}
	if made := prepared.single(); made.Makes != nil {
		return nil, makesWhenExecuted(made)
	}
	types, refused := s.typesOfPrepared(prepared)
	if refused != nil {
		return nil, refused
	}
	run := &statement{text: prepared.text, oids: types, planned: prepared.planned, contextKey: prepared.contextKey}
	e := &execution{st: st, src: src, c: &composing{st: prepared.single(), src: source{statement: run}}}
	e.c.outline, refused = s.outlineOf(run, e.c.st)
	return e, refused
}

func (e *execution) takeBind(_ *session, m *wire.Bind) *pgerr.Error {
	kept, refused := keepBind(m, string(m.Statement), 0)
	if refused != nil {
		return refused
	}
	e.c.formats = resultFormats(kept)
	return fitFormats(e.c.formats, e.c.outline.count)
}

func (e *execution) description() []byte { return e.c.description() }

func (e *execution) run(s *session, to rowTaker) (tag string, refused *pgerr.Error) {
	if refused := s.goOn(); refused != nil {
		return "", refused
	}
	s.answerLocally()
	if e.c.src.bind, refused = e.arguments(s); refused != nil {
		return "", refused
	}
	if refused := s.mayRunInSteps(e.st, e.c); refused != nil {
		return "", refused
	}
	return s.runComposed(e.c, to)
}

// arguments lets the home shard compute the arguments: it is told to execute a statement that has parameters of the same types and gives them
// back. So they become values of these types as PostgreSQL's own EXECUTE makes them, and what is wrong with them PostgreSQL says.
func (e *execution) arguments(s *session) (*wire.Bind, *pgerr.Error) {
	types := e.c.src.statement.oids
	var formats []int16
	text := e.src.wholeText()
	var edits []edit
	a, refused := s.askShard(s.home(), func() (answer, error) {
		columns, a, err := s.askKept(types)
		if err != nil || a.failure != nil {
			return a, err
		}
		formats = keptFormats(columns)
		name, a, err := s.askEcho(types)
		if err != nil || a.failure != nil {
			return a, err
		}
		s.state.tainted = s.state.tainted || e.st.Taints
		edits = []edit{{start: e.st.Prepared.NameStart, end: e.st.Prepared.NameEnd, by: name}}
		out := wire.AppendParse(nil, "", applyEdits(text, edits), nil)
		out = wire.AppendExecute(wire.AppendBind(out, "", "", nil, nil, echoFormats(formats)), "", 0)
		return s.exchange(wire.AppendSync(out))
	})
	switch {
	case refused != nil:
		return nil, refused
	case a.failure != nil:
		return nil, e.failure(s, a, edits)
	case len(a.rows) != 1 || len(a.rows[0]) != 2*len(types):
		return nil, pgerr.New(pgerr.InternalError, "a shard did not say what the arguments are")
	}
	values := make([][]byte, len(types))
	for i := range values {
		if isNull := a.rows[0][2*i+1] == "t"; !isNull {
			values[i] = []byte(a.rows[0][2*i])
		}
	}
	return bindOf(formats, values)
}

// failure is what is wrong with the arguments, as it would be told of the client's text.
func (e *execution) failure(s *session, a answer, edits []edit) *pgerr.Error {
	failure := a.failure.PGError()
	failure.Message = e.named(failure.Message, edits)
	if failure.Position == 0 || len(edits) == 0 {
		return failure
	}
	edited := applyEdits(e.src.wholeText(), edits)
	return failure.At(s.textBefore + originalPosition(edited, edits, failure.Position))
}

// named gives a message that names the statement by another name the client's.
func (e *execution) named(message string, edits []edit) string {
	for _, by := range edits {
		message = strings.ReplaceAll(message, strconv.Quote(by.by), strconv.Quote(e.st.Prepared.Name))
	}
	return message
}

// echoFormats are those of values, each with whether it is NULL behind it, as text.
func echoFormats(formats []int16) []int16 {
	var all []int16
	for _, format := range formats {
		all = append(all, format, wire.FormatText)
	}
	return all
}

// askEcho makes sure that the attached backend has a statement that gives its parameters back, each with whether it is NULL, and returns its name.
func (s *session) askEcho(types []uint32) (name string, a answer, err error) {
	var outputs []string
	for i := range types {
		number := "$" + strconv.Itoa(i+1)
		outputs = append(outputs, number+", "+number+" IS NULL")
	}
	echo := &statement{name: "echo", text: "SELECT " + strings.Join(outputs, ", "), oids: types}
	if name = echo.onServer(s.effective()); s.state.has(name) {
		return name, answer{}, nil
	}
	a, err = s.exchange(wire.AppendSync(wire.AppendParse(nil, name, echo.text, s.numbering().declared(types))))
	if err == nil && a.failure == nil {
		s.state.add(name).confirmed = true
	}
	return name, a, err
}
