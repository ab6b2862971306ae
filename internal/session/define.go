package session

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// Definitions lets all routers agree on changes of the schema.
type Definitions interface {
	// Hold keeps statements of all routers off tables until release is called, and returns when none is under way any more. The id
	// is what the hold is known by in the schema's state.
	Hold(ctx context.Context, tables []topology.TableName, why string) (id string, release func(), refused *pgerr.Error)
	// Holding fails if the hold is there no more, so that others may be using the tables. It is asked before a change is made permanent.
	Holding(ctx context.Context, id string) *pgerr.Error
	// Dropped takes tables that no shard has any more out of the shard map.
	Dropped(ctx context.Context, tables []topology.TableName) *pgerr.Error
	// Changed tells all routers that the schema has changed, and returns when they know, or are late.
	Changed(ctx context.Context)
}

// defines says whether a statement changes what several shards have, and the router has to conduct it.
func defines(st *plan.Statement) bool {
	return st.Route.Level == plan.Everywhere && st.Load == nil && !st.Rows && !isQuery(st)
}

// isQuery says whether a statement is a query rather than a definition.
func isQuery(st *plan.Statement) bool {
	return slices.Contains([]string{"SELECT", "INSERT", "UPDATE", "DELETE", "MERGE"}, st.Name)
}

// define runs a definition on every shard, in one transaction. The home shard comes first: it has whatever the definition is about,
// so what is wrong is found there, and two definitions meet there before they hold locks elsewhere.
func (s *session) define(st *plan.Statement, text string) (tag string, refused *pgerr.Error) {
	if refused := s.finishStep(); refused != nil {
		return "", refused
	}
	if refused := s.maySpread(st); refused != nil {
		return "", refused
	}
	if len(st.DropsTables) > 0 && slices.ContainsFunc(s.tx.script, func(l line) bool { return l.kind == lineSavepoint }) {
		return "", droppedBehindSavepoint
	}
	if text, refused = s.samePassword(st, text); refused != nil {
		return "", refused
	}
	if s.tx.view == nil {
		s.tx.view = s.view
	}
	shards, refused := s.definedOn(st)
	if refused != nil {
		return "", refused
	}
	s.startBlock()
	if refused := s.mayChange(st); refused != nil {
		return "", refused
	}
	before := len(s.holds)
	if refused := s.holdFor(st); refused != nil {
		return "", refused
	}
	legs, refused := s.enlist(st, shards)
	if refused != nil {
		return "", refused
	}
	if st.LockFirst && len(s.holds) > before {
		if refused := s.lockFirst(st, legs, before); refused != nil {
			return "", refused
		}
	}
	return s.defineOn(st, text, legs)
}

// lockFirst locks the tables on all shards against writers, and lets others go on that are held back: readers read, and writers wait on the
// shards, for nobody who waits for them. With a stronger lock nobody could plan anything meanwhile, since the catalogue's functions wait for it.
func (s *session) lockFirst(st *plan.Statement, legs []*leg, before int) *pgerr.Error {
	names := make([]string, len(st.Holds))
	for i, name := range st.Holds {
		names[i] = topology.TableName(name).String()
	}
	limitLocks(st, legs, "0", lockPatience)
	answers := s.tellLegs(legs, always("LOCK TABLE "+strings.Join(names, ", ")+" IN SHARE MODE"))
	for i := range answers {
		if refused := s.definitionFailed(answers, legs, i); refused != nil {
			return onShard(legs[i], refused)
		}
	}
	s.used.add(st.Holds)
	for _, h := range s.holds[before:] {
		h.release()
	}
	s.holds = s.holds[:before]
	return nil
}

// droppedBehindSavepoint: going back to the savepoint would bring the table back, and the shard map would lose it with the commit all the same.
var droppedBehindSavepoint = pgerr.New(pgerr.FeatureNotSupported, "DROP TABLE of a sharded or reference table behind a savepoint is not supported").
	WithDetail("The table leaves the shard map when the transaction is committed, and the savepoint could bring it back.").
	WithHint("Drop it before the savepoint, or in a transaction of its own.")

// definedOn are the shards that take part.
func (s *session) definedOn(st *plan.Statement) ([]int, *pgerr.Error) {
	if _, refused := s.everyShard(); refused != nil {
		return nil, refused
	}
	shards := slices.Clone(s.wanted)
	for _, shard := range shards {
		if refused := s.usable(shard, st); refused != nil {
			return nil, refused
		}
	}
	return shards, nil
}

// enlist makes shards take part in the transaction.
func (s *session) enlist(st *plan.Statement, shards []int) ([]*leg, *pgerr.Error) {
	if s.tx.open && s.mayOpen() {
		if refused := s.openBlock(st.Name == lockTable); refused != nil {
			return nil, refused
		}
	}
	for _, shard := range shards {
		if s.backend != nil && s.backend.Shard() != shard {
			s.setAside()
		}
		s.target = shard
		if err := s.attach(); err != nil {
			return nil, asError(err)
		}
		if !s.isDue() {
			continue
		}
		s.pending = append(script{{sql: s.tx.begin}}, s.tx.script...)
		s.joined, s.status = true, statusOpen
		s.setAside()
		s.tx.open = false
	}
	s.target = noShard
	all := s.allLegs()
	return slices.DeleteFunc(all, func(l *leg) bool { return !slices.Contains(shards, l.backend.Shard()) }), nil
}

// defineOn runs the definition on legs that take part.
func (s *session) defineOn(st *plan.Statement, text string, legs []*leg) (string, *pgerr.Error) {
	for _, l := range legs {
		l.wrote = true
	}
	limitLocks(st, legs, "0", lockPatience)
	s.notices = true
	first := s.tellLegs(legs[:1], always(text))
	s.notices = false
	if refused := s.definitionFailed(first, legs, 0); refused != nil {
		return "", refused
	}
	others := legs[1:]
	answers := s.tellLegs(others, s.definitionFor(st, text))
	for i, a := range answers {
		if st.Route.Lenient && a.failure != nil && lacksIt(a.failure.Code) && !anyLost(answers) {
			answers[i] = s.passOver(others[i])
			if refused := s.definitionFailed(answers, others, i); refused != nil {
				return "", refused
			}
			continue
		}
		if refused := s.definitionFailed(answers, others, i); refused != nil {
			return "", onShard(others[i], refused)
		}
		if st.Route.Lenient {
			others[i].pending.add(line{sql: "RELEASE SAVEPOINT " + passOverSavepoint, kind: lineSet})
		}
	}
	limitLocks(st, legs, lockPatience, "0")
	s.defined(st)
	return first[0].tag, nil
}

// lockPatience is how long a definition that keeps everybody off its tables waits for those who have them locked and whom no router
// waits for: clients past the routers. It is the time that routers have, and no round one, so that a client's own is told from it.
const lockPatience = "5001ms"

// limitLocks sets how long shards wait for a lock from what it was to something else, for a definition that keeps others waiting. A
// client that has said how long it waits itself is taken at its word.
func limitLocks(st *plan.Statement, legs []*leg, from, to string) {
	if len(st.Holds) == 0 {
		return
	}
	for _, l := range legs {
		l.pending.add(line{sql: "SELECT pg_catalog.set_config('lock_timeout', '" + to + "', true) WHERE pg_catalog.current_setting('lock_timeout') = '" + from + "'"})
	}
}

const passOverSavepoint = "cleave_pass_over"

// definitionFor is what other shards than the home shard run: bodies of functions may name tables that they do not have.
func (s *session) definitionFor(st *plan.Statement, text string) func(*leg) string {
	return func(l *leg) string {
		if st.Route.Lenient {
			l.pending.add(line{sql: "SAVEPOINT " + passOverSavepoint, kind: lineSet})
		}
		if strings.Contains(st.Name, "FUNCTION") || strings.Contains(st.Name, "PROCEDURE") {
			l.pending.add(line{sql: "SET LOCAL check_function_bodies TO off"})
		}
		return text
	}
}

// lacksIt says whether an error means that what a definition is about is not there.
func lacksIt(code string) bool {
	return slices.Contains([]string{pgerr.UndefinedTable, pgerr.UndefinedObject, pgerr.UndefinedFunction, pgerr.UndefinedColumn, "3F000", "42P02"}, code)
}

// passOver takes back what a shard has not done.
func (s *session) passOver(l *leg) told {
	return s.tellLegs([]*leg{l}, always("ROLLBACK TO SAVEPOINT "+passOverSavepoint+"; RELEASE SAVEPOINT "+passOverSavepoint))[0]
}

// definitionFailed says why a shard did not do it. If any of those that were told is lost, the transaction is over: going back to a savepoint would not bring back what
// that one had done before.
func (s *session) definitionFailed(answers []told, legs []*leg, i int) *pgerr.Error {
	refused := answers[i].refusal(legs[i])
	if refused != nil && anyLost(answers) {
		s.endWithLeg()
	}
	return refused
}

func anyLost(answers []told) bool {
	return slices.ContainsFunc(answers, func(a told) bool { return a.err != nil })
}

// onShard says where an error comes from.
func onShard(l *leg, refused *pgerr.Error) *pgerr.Error {
	return refused.WithDetail("%s", strings.TrimSpace(fmt.Sprintf("On shard %q. %s", l.backend.ShardName(), refused.Detail)))
}

// defined notes what follows from a definition.
func (s *session) defined(st *plan.Statement) {
	s.tx.locked = s.tx.locked || st.Upkeep
	if !st.Schema {
		return
	}
	s.tx.defined = st.Name
	s.tx.shared, s.tx.public = true, true
	for _, name := range st.DropsTables {
		s.tx.dropped = append(s.tx.dropped, topology.TableName(name))
	}
	s.contextChanged()
}

// mayChange fails if the client's role could not change the tables anyway: nobody is made to wait for one who has no right to it. What
// else it needs rights to, the home shard says.
func (s *session) mayChange(st *plan.Statement) *pgerr.Error {
	home := s.currentMap().Home()
	if s.server.config.Definitions == nil || len(st.Holds) == 0 || home == nil {
		return nil
	}
	legs, refused := s.enlist(st, []int{home.Number()})
	if refused != nil {
		return refused
	}
	names := make([]string, len(st.Holds))
	for i, name := range st.Holds {
		names[i] = sqltext.QuoteLiteral(topology.TableName(name).String())
	}
	sql := fmt.Sprintf(notOwned, strings.Join(names, ", "), len(st.DropsTables) > 0 || st.Name == "DROP VIEW")
	if st.HoldRight != "" {
		sql = fmt.Sprintf(notAllowed, strings.Join(names, ", "), sqltext.QuoteLiteral(st.HoldRight))
	}
	answers := s.tellLegs(legs, always(sql))
	if refused := s.definitionFailed(answers, legs, 0); refused != nil {
		return refused
	}
	a := answers[0]
	switch {
	case len(a.rows) == 0:
		return nil
	case st.HoldRight != "":
		return pgerr.New(pgerr.InsufficientPrivilege, "permission denied for table %s", a.rows[0][0])
	default:
		return pgerr.New(pgerr.InsufficientPrivilege, "must be owner of %s %s", a.rows[0][1], a.rows[0][0])
	}
}

// notAllowed asks which tables the role does not have a right to.
const notAllowed = `SELECT c.relname FROM pg_catalog.unnest(ARRAY[%s]::text[]) AS t (name) JOIN pg_catalog.pg_class c ON c.oid = pg_catalog.to_regclass(t.name)
	WHERE NOT pg_catalog.has_table_privilege(c.oid, %s)`

// notOwned asks which tables are somebody else's. Who owns a schema may drop what is in it.
const notOwned = `SELECT c.relname, CASE c.relkind WHEN 'v' THEN 'view' ELSE 'table' END FROM pg_catalog.unnest(ARRAY[%s]::text[]) AS t (name) JOIN pg_catalog.pg_class c ON c.oid = pg_catalog.to_regclass(t.name)
	JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	WHERE NOT pg_catalog.pg_has_role(c.relowner, 'USAGE') AND NOT (%t AND pg_catalog.pg_has_role(n.nspowner, 'USAGE'))`

// holdFor keeps everybody else off the tables that a definition changes, until the transaction ends.
func (s *session) holdFor(st *plan.Statement) *pgerr.Error {
	if s.server.config.Definitions == nil || len(st.Holds) == 0 {
		return nil
	}
	tables := make([]topology.TableName, 0, len(st.Holds))
	for _, name := range st.Holds {
		if !slices.ContainsFunc(s.holds, func(h tableHold) bool { return slices.Contains(h.tables, topology.TableName(name)) }) {
			tables = append(tables, topology.TableName(name))
		}
	}
	if len(tables) == 0 {
		return nil
	}
	s.forgetUnit()
	s.used.forget(tables...) // or it would wait for itself
	waiting, end, refused := s.lockContext()
	if refused != nil {
		return refused
	}
	defer end()
	id, release, refused := s.server.config.Definitions.Hold(waiting, tables, st.Name)
	if refused != nil {
		return cmp.Or(s.interrupted(waiting), refused)
	}
	s.holds = append(s.holds, tableHold{id, tables, release})
	return nil
}

// tableHold keeps statements off tables for this session.
type tableHold struct {
	id      string
	tables  []topology.TableName
	release func()
}

// stillHolds fails if somebody has taken tables from this session that its transaction has changed.
func (s *session) stillHolds() *pgerr.Error {
	for _, h := range s.holds {
		if refused := s.server.config.Definitions.Holding(s.ctx, h.id); refused != nil {
			return refused
		}
	}
	return nil
}

// holdsItself says whether a hold is the session's own.
func (s *session) holdsItself(id string) bool {
	return slices.ContainsFunc(s.holds, func(h tableHold) bool { return h.id == id })
}

// conducts says whether the router itself runs a statement, on every shard. If there is one shard alone, that runs it by itself, unless the
// shard map changes with it.
func (s *session) conducts(st *plan.Statement) bool {
	return defines(st) && (s.currentMap().ShardCount() > 1 || len(st.DropsTables) > 0)
}

// runEverywhere runs a definition, or what keeps tables in shape, on every shard.
func (s *session) runEverywhere(st *plan.Statement, text string) (done bool, tag string, refused *pgerr.Error) {
	if s.currentStatus() == statusFailed {
		return false, "", inFailedTransaction
	}
	if st.Name == lockTable && s.currentStatus() == statusIdle {
		return false, "", pgerr.New(pgerr.NoActiveTransaction, "LOCK TABLE can only be used in transaction blocks")
	}
	if refused := s.rolloutInTheWay(st); refused != nil {
		return false, "", refused
	}
	if len(s.ops) > 0 && !s.needsServer() { // what was answered before comes before what is noticed now
		if err := s.flush(); err != nil {
			s.stepError = err
			return false, "", stepFailed
		}
	}
	if st.NoBlock {
		tag, refused = s.maintain(st, text)
	} else {
		tag, refused = s.define(st, text)
	}
	return true, tag, refused
}

// maintain runs what PostgreSQL runs outside transaction blocks only, shard by shard.
func (s *session) maintain(st *plan.Statement, text string) (tag string, refused *pgerr.Error) {
	if refused := s.finishStep(); refused != nil {
		return "", refused
	}
	if s.currentStatus() != statusIdle || s.inText {
		return "", pgerr.New(pgerr.ActiveTransaction, "%s cannot run inside a transaction block", outsideBlocks(st))
	}
	shards, refused := s.definedOn(st)
	if refused != nil {
		return "", refused
	}
	resume, refused := s.resumption(st, text, shards)
	if refused != nil {
		return "", refused
	}
	for i, shard := range shards {
		a, refused := s.maintainOn(shard, text, resume)
		if refused == nil && a.failure != nil {
			refused = a.failure.PGError()
		}
		if refused != nil {
			name := s.currentMap().ShardByNumber(shard).Name()
			return "", refused.WithDetail("On shard %q, the %s of %d; those before it are done. %s", name, ordinal(i+1), len(shards), refused.Detail).
				WithHint("Run it again when the reason is gone. %s", refused.Hint)
		}
		if tag = a.tag; st.Schema {
			s.progress("%s: shard %q is done, %d of %d", st.Name, s.shardName(shard), i+1, len(shards))
		}
	}
	if st.Schema {
		s.tx.defined, s.tx.shared, s.tx.public = st.Name, true, true
		s.definitionsEnd()
	}
	return tag, nil
}

// ordinal writes a small number as a place in a row.
func ordinal(n int) string {
	suffix := "th"
	if n%100/10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}

// askOn runs a statement on a shard, outside any transaction, while the client has none.
func (s *session) askOn(shard int, sql string) (answer, *pgerr.Error) {
	s.target, s.notices = shard, true
	defer func() { s.target, s.notices = noShard, false }()
	if err := s.attach(); err != nil {
		return answer{}, asError(err)
	}
	a, err := s.ask(sql)
	if err != nil {
		return answer{}, s.dropLost(err)
	}
	_ = s.settle()
	return a, nil
}
