package session

import (
	"fmt"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/wire"
)

// copiesQuery says whether a statement is a COPY (query) TO the client.
func copiesQuery(st *plan.Statement) bool { return st.Load != nil && st.Load.Query }

// placeCopied finds out where the query of a COPY has to run. Where several shards answer it each for itself, each copies its own rows.
func (s *session) placeCopied(st *plan.Statement, src source) (int, *pgerr.Error) {
	query, _, refused := s.copiedQuery(st, src)
	if refused != nil {
		return noShard, refused
	}
	shard, refused := s.place(query.single(), source{statement: query})
	if shard == composedShards {
		shard = ownShard
	}
	return shard, refused
}

// copiedQuery is the query of a COPY as a statement of its own, and what stands behind it.
func (s *session) copiedQuery(st *plan.Statement, src source) (query *statement, behind string, refused *pgerr.Error) {
	text := s.withoutEnds(src.wholeText())
	inside := spanInParentheses(text, s.standardConforming())
	query = &statement{text: string(text[inside.start:inside.end])}
	return query, string(text[inside.end+1:]), s.planInner(st, query)
}

// copying is a COPY of a query that is answered in steps: the last of them is a COPY of what its last step gives.
type copying struct {
	st  *plan.Statement
	src source
}

func (c *copying) takeBind(_ *session, m *wire.Bind) *pgerr.Error {
	_, refused := keepBind(m, string(m.Statement), 0)
	return refused
}

func (c *copying) description() []byte { return nil }

func (c *copying) run(s *session, _ rowTaker) (tag string, refused *pgerr.Error) {
	if refused := s.goOn(); refused != nil {
		return "", refused
	}
	s.answerLocally()
	query, behind, refused := s.copiedQuery(c.st, c.src)
	if refused != nil {
		return "", refused
	}
	only, src := query.single(), source{statement: query}
	composed := &composing{st: only, src: src, copied: behind}
	if composed.outline, refused = s.outlineFor(only, src); refused != nil {
		return "", s.placedInside(refused, c.src.wholeText())
	}
	if len(composed.outline.params) > 0 {
		return "", s.noParameter(c.src.wholeText())
	}
	if refused := s.mayRunInSteps(c.st, composed); refused != nil {
		return "", refused
	}
	rows, refused := s.runRead(composed, nil)
	return fmt.Sprintf("COPY %d", rows), refused
}

// mayRunInSteps says whether a statement may run on the shards that its steps want.
func (s *session) mayRunInSteps(st *plan.Statement, c *composing) *pgerr.Error {
	if _, refused := s.placeComposed(c.st, c.src); refused != nil {
		return refused
	}
	refused := s.mayScatter(st, s.scatters)
	s.answerLocally() // a warning comes first
	return refused
}

// placedInside gives an error whose place is one in the query of a COPY that in the client's text.
func (s *session) placedInside(refused *pgerr.Error, text []byte) *pgerr.Error {
	if refused.Position == 0 {
		return refused
	}
	before := spanInParentheses(text, s.standardConforming()).start
	return refused.At(s.textBefore + len([]rune(string(text[:before]))) + refused.Position)
}

// copyOut runs a COPY of the final statement and passes its data on. Its columns have to be the ones that the client's query has: COPY names some.
func (f *finishing) copyOut(text string) (answer, error) {
	a, err := f.s.askTypes(text, nil)
	if err != nil || a.failure != nil {
		return a, err
	}
	if f.refused = f.sameTypes(wire.RespRowDescription, a.described); f.refused != nil {
		return answer{}, nil //nolint:nilerr // it is told when the tables are gone
	}
	names, same, err := f.names(a.described)
	if err != nil {
		return answer{}, err
	}
	if !same {
		text = "SELECT * FROM (" + text + ") AS q(" + strings.Join(names, ", ") + ")"
	}
	return f.streamCopy("COPY (" + text + ")" + f.c.copied)
}

// names are those of the client's columns, as SQL writes them, and whether those of an answer are the same.
func (f *finishing) names(described []byte) (names []string, same bool, err error) {
	theirs, err := wire.DecodeRowDescription(wire.Body(described))
	if err != nil {
		return nil, false, err
	}
	wanted, err := wire.DecodeRowDescription(wire.Body(f.c.outline.description))
	if err != nil {
		return nil, false, err
	}
	for _, column := range wanted.Columns() {
		names = append(names, sqltext.QuoteIdentifier(string(column.Name)))
	}
	same = true
	for i, column := range theirs.Columns() {
		same = same && sqltext.QuoteIdentifier(string(column.Name)) == names[i]
	}
	return names, same, nil
}

// streamCopy runs a COPY to the client.
func (f *finishing) streamCopy(sql string) (answer, error) {
	s := f.s
	s.state.unnamed = nil
	s.beginWait(time.Now())
	if _, err := s.backend.Conn().Write(wire.AppendQuery(nil, sql)); err != nil {
		return answer{}, fmt.Errorf("write to shard %q: %w", s.backend.ShardName(), err)
	}
	var a answer
	r := &messageReader{backend: s.backend, buffer: make([]byte, 2*relayBuffer)}
	for {
		kind, message, err := r.next()
		if err != nil {
			return answer{}, err
		}
		switch kind {
		case wire.RespCopyOut, wire.RespCopyData, wire.RespCopyDone:
			if s.out = append(s.out, message...); len(s.out) < relayBuffer {
				continue
			}
			if err := s.write(); err != nil {
				s.stepError = err
				return a, errTaken
			}
		case wire.RespReadyForQuery:
			f.rows = wire.CommandRows([]byte(a.tag))
			if a.status, err = wire.DecodeReadyForQuery(wire.Body(message)); err != nil {
				return a, err
			}
			return a, s.hearRest(&a, r)
		default:
			if err := s.note(&a, kind, message); err != nil {
				return answer{}, err
			}
		}
	}
}
