package session

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/wire"
)

// explainComposed tells how a statement is answered in steps: what is pulled from where and why that is right, what each shard does for it, and what is done
// with it.
func (s *session) explainComposed(c *composing, pulls []pull, to rowTaker) (int64, *pgerr.Error) {
	e := &explanation{s: s, c: c, to: to, prefix: s.explainPrefix(c)}
	to.begin()
	e.line("Route: in steps, on %s", s.shardNames(shardsOf(pulls)))
	e.line("  Reason: %s", c.st.Route.Why)
	for i := range pulls {
		e.pull(i, &pulls[i])
	}
	how, refused := s.shippingOf(c, pulls)
	switch {
	case refused != nil:
		return e.rows, refused
	case how != nil:
		e.rest(how)
	default:
		e.finish("")
	}
	return e.rows, e.refused
}

// rest tells what becomes of a statement of which some rows are sent to where the others are.
func (e *explanation) rest(how *shipping) {
	names := make([]string, len(how.shipped))
	for i, pull := range how.shipped {
		names[i] = strconv.Itoa(pull + 1)
	}
	e.line("Sent along: the rows of pull %s, in place of pulling those of pull %d", strings.Join(names, ", "), how.kept+1)
	only := how.rest.single()
	if only.Composition == nil {
		e.line("Rest, in parts on all shards that have rows of pull %d: %s", how.kept+1, how.rest.text)
		e.line("  Reason: %s", only.Route.Why)
		return
	}
	empty := e.s.newBasin(e.c, make([]pull, len(e.c.outline.pulls)))
	defer empty.close()
	bind, refused := e.s.bindRest(e.c, how, empty)
	if refused != nil {
		e.refused = refused
		return
	}
	rest := &explanation{s: e.s, to: e.to, refused: e.refused, rows: e.rows, c: &composing{st: only, src: source{statement: how.rest, bind: bind}}}
	defer func() { e.rows, e.refused = rest.rows, rest.refused }()
	if rest.c.outline, rest.refused = e.s.outlineFor(only, rest.c.src); rest.refused != nil {
		return
	}
	pulls, refused := e.s.pullsNow(rest.c)
	if refused != nil {
		rest.refused = refused
		return
	}
	for i, p := range pulls {
		rest.line("Rest, pull %d, on %s: %s", i+1, e.s.shardNames(p.shards), p.text)
		rest.reason(i)
	}
	rest.finish("Rest, f")
}

// explanation is the making of an EXPLAIN's answer.
type explanation struct {
	s       *session
	c       *composing
	to      rowTaker
	prefix  string
	rows    int64
	refused *pgerr.Error
}

// explainPrefix is what stands before the query: EXPLAIN and its options.
func (s *session) explainPrefix(c *composing) string {
	text := c.src.wholeText()
	scanner := sqltext.NewScanner(text, s.standardConforming())
	depth := 0
	for token, more := scanner.Next(); more; token, more = scanner.Next() {
		word := text[token.Start:token.End]
		switch {
		case string(word) == "(":
			if depth == 0 && !isOptions(text[token.End:]) {
				return string(text[:token.Start])
			}
			depth++
		case string(word) == ")":
			depth--
		case depth == 0 && !isExplainWord(word):
			return string(text[:token.Start])
		}
	}
	return "EXPLAIN "
}

// isOptions says whether what follows a parenthesis is an option of EXPLAIN rather than a query.
func isOptions(text []byte) bool {
	rest := bytes.TrimLeft(text, " \t\r\n(")
	for _, word := range []string{"select", "with", "values", "table"} {
		if len(rest) >= len(word) && strings.EqualFold(string(rest[:len(word)]), word) {
			return false
		}
	}
	return true
}

func isExplainWord(word []byte) bool {
	for _, known := range []string{"explain", "analyze", "analyse", "verbose"} {
		if strings.EqualFold(string(word), known) {
			return true
		}
	}
	return false
}

func (s *session) shardNames(shards []int) string {
	names := make([]string, len(shards))
	for i, number := range shards {
		names[i] = s.shardName(number)
	}
	return strings.Join(names, ", ")
}

// line gives one line of the answer.
func (e *explanation) line(format string, arguments ...any) {
	if e.refused != nil {
		return
	}
	e.rows++
	row := wire.AppendDataRow(nil, [][]byte{fmt.Appendf(nil, format, arguments...)})
	e.refused = e.to.take(wire.Body(row))
}

// pull tells of one pull.
func (e *explanation) pull(number int, p *pull) {
	of := &e.c.outline.composition.Pulls[number]
	if of.Own {
		e.line("Pull %d: view cleave.%s, which the router has", number+1, of.Name)
		return
	}
	e.line("Pull %d, on %s: %s", number+1, e.s.shardNames(p.shards), p.text)
	e.reason(number)
	for _, shard := range p.shards {
		if e.refused != nil {
			return
		}
		e.line("  On %s:", e.s.shardName(shard))
		e.planOn(shard, p.text)
	}
}

// reason tells why a pull is right.
func (e *explanation) reason(number int) {
	of := &e.c.outline.composition.Pulls[number]
	if of.Why != "" {
		e.line("  Reason: %s", of.Why)
		return
	}
	e.line("  Reason: the rows of one table, in the columns that are named%s", map[bool]string{true: ", by the conditions that are about it alone"}[of.Where])
}

// planOn tells what a shard makes of a pull.
func (e *explanation) planOn(shard int, text string) {
	formats, values := e.c.values()
	a, refused := e.s.askShard(shard, func() (answer, error) {
		return e.s.askParams(e.prefix+text, e.s.numbering().declared(e.c.outline.params), formats, values)
	})
	switch {
	case e.refused != nil:
	case refused != nil:
		e.refused = refused
	case a.failure != nil:
		e.refused = withoutPlace(a).failure.PGError()
	}
	for _, row := range a.rows {
		e.line("    %s", strings.Join(row, " "))
	}
}

// finish tells what is done with what was pulled, behind a beginning of the line in place of F.
func (e *explanation) finish(begins string) {
	if e.refused != nil {
		return
	}
	if begins == "" {
		begins = "F"
	}
	if m := e.s.mergeOf(e.c, e.to); m != nil {
		e.line(begins+"inish: the router merges the rows as they come, ordered by %d columns", m.hidden)
		return
	}
	in, refused := e.s.places(e.c, false)
	if refused != nil {
		e.refused = refused
		return
	}
	in.Moment = "now()"
	in.Pull = func(n int) string { return fmt.Sprintf("[pull %d]", n+1) }
	e.line(begins+"inish, on %s: %s", e.s.shardName(e.s.home()), e.c.outline.composition.Final.Fill(in))
}
