package session

import (
	"bytes"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/wire"
)

// toldNumbers are the numbers that a client was given by sequences, as far as shards have told of them: currval and lastval are answered from
// it, because the backend that gave them may be another one's by now.
type toldNumbers struct {
	// numbers are the last of each sequence, in the order in which they came.
	numbers []toldNumber
	// lastUnknown: a number may have been given since that nobody told. lost: numbers that were told have been forgotten, since others
	// may have followed.
	lastUnknown, lost bool
	// elsewhere: such a number may be known to a backend of another shard than the home shard alone.
	elsewhere bool
}

type toldNumber struct {
	number, sequence string
	// unsure: the sequence may give numbers that nobody tells.
	unsure bool
}

// find returns the last number of a sequence.
func (t *toldNumbers) find(sequence string) *toldNumber {
	for i := range t.numbers {
		if t.numbers[i].sequence == sequence {
			return &t.numbers[i]
		}
	}
	return nil
}

// note keeps a number as the last of its sequence, and of all.
func (t *toldNumbers) note(n toldNumber) {
	t.drop(n.sequence)
	t.numbers = append(t.numbers, n)
	t.lastUnknown = false
}

// lose is for a sequence whose last number is not known.
func (t *toldNumbers) lose(sequence string) {
	t.drop(sequence)
	t.lastUnknown, t.lost = true, true
}

func (t *toldNumbers) drop(sequence string) {
	t.numbers = slices.DeleteFunc(t.numbers, func(n toldNumber) bool { return n.sequence == sequence })
}

// forget is what DISCARD SEQUENCES does.
func (t *toldNumbers) forget() { *t = toldNumbers{} }

// ran notes that a statement has run, or a part of it.
func (t *toldNumbers) ran(st *plan.Statement) {
	if st.TellsNumbers || st.Command != plan.Pass && st.Command != plan.Execute {
		return
	}
	t.lastUnknown = true
	if st.Taints || slices.ContainsFunc(st.Numbers, func(c plan.NumberCall) bool { return c.Function == "setval" }) {
		t.numbers, t.lost = t.numbers[:0], true
		return
	}
	t.numbers = slices.DeleteFunc(t.numbers, func(n toldNumber) bool { return n.unsure })
}

// lines are the numbers in the form in which shards' functions read them.
func (t *toldNumbers) lines() string {
	lines := make([]string, len(t.numbers))
	for i, n := range t.numbers {
		lines[i] = n.number + " " + n.sequence
	}
	return strings.Join(lines, "\n")
}

// madeCode is the field of a message that says that it tells of a number.
var madeCode = []byte("C" + pgerr.NumberMade + "\x00")

// takeTold takes a message for itself that tells of a number. It says whether it is one.
func (s *session) takeTold(e *expect, message []byte) bool {
	if !bytes.Contains(message, madeCode) {
		return false
	}
	fields, err := wire.DecodeError(wire.Body(message))
	if err != nil || fields.Code != pgerr.NumberMade {
		return false
	}
	number, sequence, _ := strings.Cut(fields.Message, " ")
	n := toldNumber{number: number, sequence: sequence}
	if e != nil {
		if _, st := s.ran(e); st != nil {
			n.unsure = len(st.Numbers) > 0
		}
	}
	switch s.gather.lastness(sequence) {
	case isLast:
		s.told.note(n)
	case isNot:
		s.told.lose(sequence)
	case isEarlier:
	}
	return true
}

// lastness is whether a number that a shard tells is the last one of a statement.
type lastness uint8

const (
	// isLast: it is. isEarlier: it is not, and that one has been told. isNot: which one is last is not known.
	isLast lastness = iota
	isEarlier
	isNot
)

// lastness of a number: the last is that of the shard which has the statement's last row.
func (g *gather) lastness(sequence string) lastness {
	switch {
	case g == nil || len(g.returned) < 2:
		return isLast
	case g.parts == plan.ByRow && len(g.order) > 0 && g.order[len(g.order)-1] == g.at:
		g.lastTold = append(g.lastTold, sequence)
		return isLast
	case slices.Contains(g.lastTold, sequence):
		return isEarlier
	default:
		return isNot
	}
}

// noteRun notes what a statement that has run says about numbers.
func (s *session) noteRun(st *plan.Statement) {
	if st == nil || st.TellsNumbers {
		return
	}
	run := s.whatRuns(st)
	s.told.ran(run)
	if s.told.lastUnknown && !run.Reads && (s.backend == nil || s.backend.Shard() != s.home() || len(s.spreadTo) > 0) {
		s.told.elsewhere = true
	}
	s.tx.lastTaken = false
	if len(run.Takes) > 0 && s.status == statusOpen && s.backend.Shard() == s.home() {
		s.tx.taken, s.tx.lastTaken = append(s.tx.taken, run.Takes...), run.TakesLast
	}
}

// noteFailed is noteRun for a statement that failed: what it was given before that nobody tells.
func (s *session) noteFailed(st *plan.Statement) {
	if st != nil && !st.Reads && (st.Command == plan.Pass || st.Command == plan.Execute) {
		s.told = toldNumbers{lastUnknown: true, lost: true}
		s.tx.lastTaken = false
	}
}

// asksNumbers says whether a statement asks what the session was given before.
func asksNumbers(st *plan.Statement) bool {
	return slices.ContainsFunc(st.Numbers, func(c plan.NumberCall) bool { return c.Asks() })
}

// knowNumbers makes sure that what a statement asks about numbers is known: what runs before it has to have run.
func (s *session) knowNumbers(st *plan.Statement, src source) *pgerr.Error {
	if !asksNumbers(st) {
		return s.maySet(st, src)
	}
	if refused := s.finishStep(); refused != nil {
		return refused
	}
	if s.poolMode == SessionMode && st.Route.Level == plan.Home && !s.told.elsewhere {
		return nil // what the router does not know, the session's own backend does
	}
	for i := range st.Numbers {
		c := &st.Numbers[i]
		var refused *pgerr.Error
		switch c.Function {
		case "lastval":
			refused = s.knowLast(st)
		case "currval":
			refused = s.knowThis(st, c, src)
		}
		if refused != nil {
			return refused
		}
	}
	return nil
}

// mayMakeNumbers says whether what a statement asks for may be a number that it makes itself.
func mayMakeNumbers(st *plan.Statement) bool {
	return st.Name != "SELECT" || slices.ContainsFunc(st.Numbers, func(c plan.NumberCall) bool { return !c.Asks() })
}

func (s *session) knowLast(st *plan.Statement) *pgerr.Error {
	switch {
	case s.tx.lastTaken && s.told.lastUnknown && st.Route.Level == plan.Home:
		return nil // its own backend knows
	case s.told.lastUnknown:
		return needsSession(st)
	case len(s.told.numbers) == 0 && mayMakeNumbers(st):
		return needsSession(st)
	case len(s.told.numbers) == 0:
		return pgerr.New(pgerr.ObjectNotInPrerequisite, "lastval is not yet defined in this session")
	default:
		return nil
	}
}

// knowThis finds out which sequence is meant, and whether its last number is known.
func (s *session) knowThis(st *plan.Statement, c *plan.NumberCall, src source) *pgerr.Error {
	expression, refused := s.sequenceSQL(c, src)
	if refused != nil {
		return refused
	}
	sql := "SELECT cleave.sequence_name(c.oid), cleave.ticket_base(c.oid) IS NOT NULL, c.relname FROM pg_catalog.pg_class c WHERE c.oid = (" + expression + ")::pg_catalog.regclass"
	a, refused := s.askShard(s.home(), func() (answer, error) { return s.ask(sql) })
	switch {
	case refused != nil:
		return refused
	case a.failure != nil:
		failure := a.failure.PGError()
		failure.Position = 0
		return failure
	case len(a.rows) != 1 || s.told.find(a.rows[0][0]) != nil:
		return nil // without a name there is no number
	case slices.Contains(s.tx.taken, a.rows[0][0]) && st.Route.Level == plan.Home:
		return nil // its own backend knows
	case a.rows[0][1] == "t" && !s.told.lost && !mayMakeNumbers(st):
		return pgerr.New(pgerr.ObjectNotInPrerequisite, "currval of sequence \"%s\" is not yet defined in this session", a.rows[0][2])
	default:
		return needsSession(st)
	}
}

// whereCounted says where a sequence is to be set: on every shard, if they all have a part of its numbers.
func (s *session) whereCounted(st *plan.Statement, src source) (int, *pgerr.Error) {
	inBlocks, refused := s.countsInBlocks(&st.Numbers[0], src)
	switch {
	case refused != nil:
		return noShard, refused
	case inBlocks:
		return s.everyShard()
	default:
		return s.home(), nil
	}
}

// countsInBlocks says whether every shard has a part of a sequence's numbers.
func (s *session) countsInBlocks(c *plan.NumberCall, src source) (bool, *pgerr.Error) {
	expression, refused := s.sequenceSQL(c, src)
	if refused != nil {
		return false, refused
	}
	rows, refused := s.askRows(s.home(), "SELECT FROM (SELECT ("+expression+")::pg_catalog.regclass) v(s) WHERE cleave.counts_in_blocks(s)")
	if refused != nil {
		refused.Position = 0
	}
	return len(rows) > 0, refused
}

// maySet refuses to set a sequence on one shard of which every shard has a part.
func (s *session) maySet(st *plan.Statement, src source) *pgerr.Error {
	for i := range st.Numbers {
		c := &st.Numbers[i]
		if c.Function != "setval" || st.Route.Parts == plan.Copies {
			continue
		}
		inBlocks, refused := s.countsInBlocks(c, src)
		if refused == nil && inBlocks {
			refused = pgerr.New(pgerr.FeatureNotSupported, "setval of this sequence is not supported in this place").
				WithDetail("Every shard has a part of its numbers, and has to set it.").WithHint("SELECT setval(…) by itself, with literals or parameters.")
		}
		if refused != nil {
			return refused
		}
	}
	return nil
}

// sequenceSQL is the argument that says which sequence is meant.
func (s *session) sequenceSQL(c *plan.NumberCall, src source) (string, *pgerr.Error) {
	if c.Sequence.Kind == plan.FromLiteral || c.Sequence.Kind == plan.FromParam {
		text, refused := s.operandText(c.Sequence, src)
		if refused != nil || text == nil {
			return "NULL", refused
		}
		return sqltext.QuoteLiteral(*text), nil
	}
	expression := string(src.wholeText()[c.Open+1 : c.End-1])
	scanner := sqltext.NewScanner([]byte(expression), s.standardConforming())
	depth := 0
	for token, more := scanner.Next(); more; token, more = scanner.Next() {
		switch word := expression[token.Start:token.End]; {
		case token.Kind == sqltext.Param:
			return "", pgerr.New(pgerr.FeatureNotSupported, "%s of an expression with parameters is not supported", c.Function).
				WithDetail("The router has to know which sequence is meant.").WithHint("Give the sequence's name as a parameter or a literal.")
		case token.Kind != sqltext.Punctuation:
		case word == "(" || word == "[":
			depth++
		case word == ")" || word == "]":
			depth--
		case word == "," && depth == 0: // the sequence is the first argument
			return expression[:token.Start], nil
		}
	}
	return expression, nil
}

// replaceNumberCalls puts functions of the shards in the place of PostgreSQL's.
func (s *session) replaceNumberCalls(st *plan.Statement) []edit {
	if len(st.Numbers) == 0 {
		return nil
	}
	tell := func(lines string) string {
		return "pg_catalog.set_config('cleave.numbers', " + sqltext.QuoteLiteral(lines) + ", true) IS NOT NULL"
	}
	all := s.told.lines()
	last := all
	if s.told.lastUnknown {
		last = ""
	}
	var edits []edit
	for i := range st.Numbers {
		c := &st.Numbers[i]
		as := ""
		if c.Names {
			as = " AS " + c.Function
		}
		switch c.Function {
		case "nextval", "setval":
			name := map[string]string{"nextval": "cleave.next_number", "setval": "cleave.set_number"}[c.Function]
			edits = append(edits, edit{start: c.Start, end: c.Open, by: name}, edit{start: c.End, end: c.End, by: as})
		case "currval":
			edits = append(edits, edit{start: c.Start, end: c.Open + 1, by: "cleave.this_number(CASE WHEN " + tell(all) + " THEN ("},
				edit{start: c.End - 1, end: c.End, by: ")::pg_catalog.regclass END)" + as})
		case "lastval":
			edits = append(edits, edit{start: c.Start, end: c.End, by: "(CASE WHEN " + tell(last) + " THEN cleave.last_number() END)" + as})
		}
	}
	slices.SortStableFunc(edits, func(a, b edit) int { return a.start - b.start })
	return edits
}
