package session

import (
	"errors"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/wire"
)

// Partial results: a client may prefer the rows of the shards that are there to an error, and is told which were not.

const (
	// partialResults is the parameter that allows them, missingShards the one that tells which shards the last statement did without.
	partialResults = "cleave.partial_results"
	missingShards  = "cleave.missing_shards"
)

// toggle is a Boolean parameter of the session: what it was set to, and what it goes back to. What was never set is what the role has.
type toggle struct{ now, first *bool }

// missing are the shards that a statement is answered without.
type missing struct {
	shards []int
	// cause is why the first is. told is of how many the client was warned.
	cause *pgerr.Error
	told  int
	// answered: a shard has given its part.
	answered bool
}

// wantsPartial says whether a read may be answered without shards that are away.
func (s *session) wantsPartial() bool {
	if s.partial.now != nil {
		return *s.partial.now
	}
	if s.defaults == nil {
		return false
	}
	on, known := booleanOf(s.defaults.partial)
	return known && on
}

// setPartial is SET cleave.partial_results.
func (s *session) setPartial(e plan.Setting) *pgerr.Error {
	if e.Default {
		s.partial.now = s.partial.first
		return nil
	}
	on, refused := partialOf(strings.Join(e.Values, ","))
	if refused == nil {
		s.partial.now = &on
	}
	return refused
}

func partialOf(text string) (bool, *pgerr.Error) {
	on, known := booleanOf(text)
	if !known {
		return false, pgerr.New(pgerr.InvalidParameterValue, "parameter \"%s\" requires a Boolean value", partialResults)
	}
	return on, nil
}

// missingNames are the shards that the last statement was answered without.
func (s *session) missingNames() string {
	var names []string
	for _, number := range s.missing.shards {
		names = append(names, s.shardName(number))
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// isAway says whether an error says that a shard cannot be used, and nothing of the statement.
func isAway(e *pgerr.Error) bool {
	switch e.Code {
	case pgerr.CannotConnectNow, pgerr.AdminShutdown, pgerr.CrashShutdown:
		return true
	default:
		return strings.HasPrefix(e.Code, "08") && e.Code != pgerr.ProtocolViolation
	}
}

// forgoes says whether what is about to run is a read that may be answered without shards that are away. What was written in the transaction might be on one of
// them, so that the client would not see what it wrote.
func (s *session) forgoes() bool {
	if !s.wantsPartial() || s.wholeOnly || s.explaining || s.backend != nil && s.wrote || s.wantsConsistent() {
		return false
	}
	for _, l := range s.legs {
		if l.wrote {
			return false
		}
	}
	return true
}

// gathersPartly says whether the unit is such a read.
func (s *session) gathersPartly() bool {
	return s.forgoes() && s.spreadParts == plan.Same && s.loading == nil &&
		!slices.ContainsFunc(s.ops, func(o op) bool { return o.planned != nil && !s.readsOnly(o.planned) })
}

// explainName is what EXPLAIN is called: it tells what would be done, which is to be all of it.
const explainName = "EXPLAIN"

// readsOnly says whether a plan has nothing but statements that read, or run one that does.
func (s *session) readsOnly(p *planned) bool {
	return !slices.ContainsFunc(p.plan.Statements, func(st plan.Statement) bool { return !s.whatRuns(&st).Reads || st.Name == explainName })
}

// beginMissing forgets what the statement before was answered without, unless that is asked for: then what came before it has to run first.
func (s *session) beginMissing(st *plan.Statement) *pgerr.Error {
	if showsOurs(st) && st.Settings[0].Name == missingShards {
		return s.finishStep()
	}
	if s.wantsPartial() && len(s.spreadTo) > 0 { // what it goes without is not this one's
		if refused := s.finishStep(); refused != nil {
			return refused
		}
	}
	if st.Cursor == nil { // whose rows are what they were when it was declared
		s.missing = missing{}
	}
	return nil
}

// keepWhole has everything fail that needs a shard which is away, until the function that it returns is called.
func (s *session) keepWhole() (end func()) {
	before := s.wholeOnly
	s.wholeOnly = true
	return func() { s.wholeOnly = before }
}

// miss notes that the statement is answered without a shard.
func (s *session) miss(shard int, why *pgerr.Error) {
	if s.isMissing(shard) {
		return
	}
	if s.missing.cause == nil {
		s.missing.cause = why
	}
	s.missing.shards = append(s.missing.shards, shard)
}

func (s *session) isMissing(shard int) bool { return slices.Contains(s.missing.shards, shard) }

// present are those of a statement's shards that it is not answered without.
func (s *session) present(shards []int) []int {
	if len(s.missing.shards) == 0 || s.wholeOnly {
		return shards
	}
	return slices.DeleteFunc(slices.Clone(shards), s.isMissing)
}

// usableOf are those of shards that a statement may use now.
func (s *session) usableOf(shards []int, st *plan.Statement) ([]int, *pgerr.Error) {
	forgoes := st.Reads && st.Name != explainName && s.forgoes()
	for _, shard := range shards {
		refused := s.usable(shard, st)
		if refused == nil {
			continue
		}
		if !forgoes || !isAway(refused) {
			return nil, refused
		}
		s.miss(shard, refused)
	}
	if !forgoes {
		return shards, nil
	}
	left := s.present(shards)
	if len(left) == 0 {
		return nil, s.missing.cause
	}
	return left, nil
}

// shownReply is an answer that the client has seen, by the operation that it answers and its kind.
type shownReply struct {
	operation int
	kind      byte
}

// allowPartly says whether shards that are away may be left out.
func (g *gather) allowPartly(may bool) {
	if g.partly = may; may {
		g.shown = map[shownReply]bool{}
	}
}

// showsOnce says whether the client has not seen an answer yet: a shard that begins where another one was lost says again what that has said.
func (g *gather) showsOnce(operation int, kind byte) bool {
	if !g.partly {
		return true
	}
	reply := shownReply{operation, kind}
	seen := g.shown[reply]
	g.shown[reply] = true
	return !seen
}

// showsLocal says whether the client is to hear what the session itself answers to an operation.
func (g *gather) showsLocal(operation int) bool { return g.at == g.first && g.showsOnce(operation, 0) }

// heard notes that the shard at the place that is looked at has said all, or is left out.
func (g *gather) heard(missing bool) {
	g.answered = g.answered || !missing
	if missing && g.at == g.first {
		g.first++
	}
}

// isResult says whether a message is a part of a statement's answer, and not of what is told about it.
func isResult(kind byte) bool {
	return kind == wire.RespDataRow || kind == wire.RespCopyData || kind == wire.RespCommandComplete || kind == wire.RespEmptyQuery
}

// isUnasked says whether a message may come at any time.
func isUnasked(kind byte) bool {
	return kind == wire.RespNotice || kind == wire.RespParameterStatus || kind == wire.RespNotification
}

// without has the unit concern all of the shards but one, which cannot be reached.
func (s *session) without(shards []int, at int, why *pgerr.Error) []int {
	s.miss(shards[at], why)
	left := slices.Delete(slices.Clone(shards), at, at+1)
	for i := range s.ops {
		o := &s.ops[i]
		if len(o.parts) > 0 {
			o.parts = slices.Delete(o.parts, at, at+1)
		}
		if o.kind != opBind {
			continue
		}
		if p, _ := s.findPortal(o.portal); p != nil && len(p.shards) > 0 {
			p.shards = left
		}
	}
	s.gather.last--
	return left
}

// away is the error that says that a shard which was about to be told its part is not there, if the statement is answered without it; nil if it is another one.
func (s *session) away(err error) *pgerr.Error {
	refused := refusalIn(err)
	switch {
	case !s.gather.partly || !s.gather.fresh:
		return nil
	case errors.Is(err, errLegLost) && s.isMissing(s.target):
		return s.missing.cause
	case refused == nil || refused.Severity == pgerr.SeverityFatal || !isAway(refused):
		return nil
	}
	return refused
}

// spares says whether the statement is answered without the shard at work, whose backend is lost: it was not part of the transaction before, and nothing of
// what it answered has been used.
func (s *session) spares(e *pgerr.Error) bool {
	g, shard := s.gather, s.backend.Shard()
	return g.partly && !g.used && !g.failed && g.unload == nil && isAway(e) && s.pinned[shard] == nil && slices.Contains(g.joining, shard)
}

// endPartly tells the client what is missing in the answer, or why there is none.
func (s *session) endPartly() {
	g := s.gather
	s.missing.answered = s.missing.answered || g.answered
	switch {
	case g.failed || len(s.missing.shards) == 0:
	case s.missing.answered:
		s.warnMissing()
	default:
		g.lost = g.parted
		g.failNow(s, s.missing.cause)
	}
}

// warnMissing tells the client what is missing in the answer.
func (s *session) warnMissing() {
	m := &s.missing
	if len(m.shards) == m.told {
		return
	}
	m.told = len(m.shards)
	names := strings.ReplaceAll(s.missingNames(), ",", ", ")
	s.out = wire.AppendNotice(s.out, "WARNING", pgerr.New("01000", "the answer is without the rows of shards that cannot be reached: %s", names).
		WithDetail("%s", strings.TrimSpace(m.cause.Message+". "+m.cause.Detail)).WithHint("SHOW %s tells which were missing. SET %s = off makes this an error.", missingShards, partialResults))
}

// pullElsewhere runs those pulls of a phase again that any shard can answer, and whose shard was away.
func (s *session) pullElsewhere(c *composing, pulls []pull, ran phase, to *basin) *pgerr.Error {
	again := phase{}
	for i, filters := range ran {
		if !pulls[i].anywhere || !s.isMissing(pulls[i].shards[0]) {
			continue
		}
		others := s.present(s.allShards())
		if len(others) == 0 {
			return s.missing.cause
		}
		pulls[i].shards, again[i] = []int{others[0]}, filters
	}
	if len(again) == 0 {
		return nil
	}
	return s.runPhase(c, pulls, again, to)
}
