package session

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/wire"
)

var inFailedTransaction = pgerr.New(pgerr.InFailedTransaction, "current transaction is aborted, commands ignored until end of transaction block")

// setsOurs says whether a statement sets or resets a parameter of the router.
func setsOurs(st *plan.Statement) bool {
	return (st.Command == plan.SetVariable || st.Command == plan.ResetVariable) && len(st.Settings) > 0 && isOurs(st.Settings[0].Name)
}

// showsOurs says whether a statement shows a parameter of the router.
func showsOurs(st *plan.Statement) bool {
	return st.Command == plan.ShowVariable && len(st.Settings) == 1 && isOurs(st.Settings[0].Name)
}

// isOurs says whether a parameter is the router's.
func isOurs(name string) bool { return strings.HasPrefix(name, "cleave.") }

// runLocal does what the session can do by itself: transactions that no shard knows of yet, and what only the session
// knows. It returns the command tag if it did anything.
func (s *session) runLocal(st *plan.Statement, text func() string) (done bool, tag string, refused *pgerr.Error) {
	if s.conducts(st) {
		return s.runEverywhere(st, text())
	}
	if st.Command == plan.Pass {
		return false, "", nil
	}
	if st.Command == plan.Deallocate {
		return s.deallocate(st)
	}
	if setsOurs(st) {
		return s.setOurs(st)
	}
	if s.tx.implicit && isAboutBlocks(st) {
		return s.runUnbegun(st, text)
	}
	if s.concernsLegs(st) {
		return s.conduct(st)
	}
	if s.backend != nil || s.needsServer() || s.isSpread() {
		return false, "", nil
	}
	return s.runDetached(st, text)
}

// isAboutBlocks says whether a statement begins or ends a transaction, or a part of one.
func isAboutBlocks(st *plan.Statement) bool {
	switch st.Command {
	case plan.Begin, plan.Commit, plan.Rollback, plan.Savepoint, plan.ReleaseSavepoint, plan.RollbackTo:
		return true
	default:
		return false
	}
}

// runUnbegun is for a transaction that the client has not begun: BEGIN takes what was done so far into its block, and all else finds none.
func (s *session) runUnbegun(st *plan.Statement, text func() string) (done bool, tag string, refused *pgerr.Error) {
	switch st.Command {
	case plan.Begin:
		return true, st.Name, s.beginUnbegun(text())
	case plan.Commit, plan.Rollback:
		if st.Transaction.Chain {
			return false, "", errNoBlockToChain(st.Name)
		}
		s.addLocal(noBlockWarning)
		return s.conduct(st)
	default:
		return false, "", errNoBlock(st)
	}
}

// beginUnbegun makes a transaction the client's. Its shards say whether it can still be of the kind that BEGIN asks for.
func (s *session) beginUnbegun(text string) *pgerr.Error {
	if refused := s.finishStep(); refused != nil {
		return refused
	}
	if refused := s.tellAll(always(text)); refused != nil {
		return refused
	}
	s.tx.implicit, s.tx.begin = false, text
	return nil
}

// concernsLegs says whether a statement is about the transaction on all its shards, so that the router has to see to it. The end of one that
// has dropped declared tables is about the shard map too.
func (s *session) concernsLegs(st *plan.Statement) bool {
	return (s.isSpread() || len(s.tx.dropped) > 0) && (endsFailure(st) || st.Command == plan.SetConstraints) || namesConstraints(st)
}

// conduct does what concerns all shards of a transaction.
func (s *session) conduct(st *plan.Statement) (done bool, tag string, refused *pgerr.Error) {
	if refused := s.finishStep(); refused != nil {
		return false, "", refused
	}
	switch st.Command {
	case plan.RollbackTo:
		return true, "ROLLBACK", s.rollbackSpreadTo(st.Transaction.Savepoint)
	case plan.SetConstraints:
		return true, st.Name, s.setConstraints(st)
	default:
	}
	tag, refused = s.endSpread(st)
	return true, tag, refused
}

// tellAll tells all shards of a transaction something that they do or fail at. A leg that is lost ends it.
func (s *session) tellAll(sql func(*leg) string) *pgerr.Error {
	var failure *pgerr.Error
	legs, lost := s.allLegs(), false
	for i, a := range s.tellLegs(legs, sql) {
		if refused := a.refusal(legs[i]); failure == nil {
			failure = refused
		}
		lost = lost || a.err != nil
	}
	if lost {
		s.endWithLeg()
	}
	return failure
}

// runDetached is runLocal for a session without a backend.
func (s *session) runDetached(st *plan.Statement, text func() string) (done bool, tag string, refused *pgerr.Error) {
	if s.tx.failed && st.Command != plan.Commit && st.Command != plan.Rollback && st.Command != plan.RollbackTo {
		return false, "", inFailedTransaction
	}
	switch st.Command {
	case plan.Begin:
		return true, s.beginLocal(st, text()), nil
	case plan.Commit, plan.Rollback:
		return s.endLocal(st)
	case plan.Savepoint, plan.ReleaseSavepoint, plan.RollbackTo:
		return s.savepointLocal(st)
	case plan.SetVariable:
		if s.tx.open {
			return s.deferSetting(st, text())
		}
		if s.returnsToRole(st) {
			return s.resetLocal(st, text())
		}
	case plan.ResetVariable, plan.ResetAll:
		return s.resetLocal(st, text())
	case plan.DiscardAll:
		return s.discardAll()
	case plan.SetConstraints:
		if s.tx.open {
			s.tx.script.add(constraintsLine(st))
			return true, st.Name, nil
		}
	default: // a server's business
	}
	return false, "", nil
}

// beginLocal opens a transaction that a shard hears of with the first statement that needs one.
func (s *session) beginLocal(st *plan.Statement, text string) string {
	if s.tx.open {
		s.addLocal(wire.AppendNotice(nil, "WARNING", pgerr.New(pgerr.ActiveTransaction, "there is already a transaction in progress")))
		s.tx.characterise(text) // what it asks for counts all the same
	} else {
		s.tx = transaction{open: true, begin: text}
		s.log.reset()
	}
	return st.Name
}

// endLocal ends a transaction that no shard has heard of.
func (s *session) endLocal(st *plan.Statement) (done bool, tag string, refused *pgerr.Error) {
	tag = "ROLLBACK"
	if st.Command == plan.Commit && !s.tx.failed {
		tag = "COMMIT"
	}
	if !s.tx.open {
		if st.Transaction.Chain {
			return false, "", errNoBlockToChain(tag)
		}
		s.addLocal(noBlockWarning)
		return true, tag, nil
	}
	if tag == "COMMIT" {
		s.keepSettings()
	} else {
		s.takeBackParameters()
	}
	s.log.reset()
	s.contextChanged()
	before := s.tx
	s.endTransaction()
	if st.Transaction.Chain {
		s.tx = before.next()
	}
	return true, tag, nil
}

var noBlockWarning = wire.AppendNotice(nil, "WARNING", pgerr.New(pgerr.NoActiveTransaction, "there is no transaction in progress"))

func errNoBlockToChain(command string) *pgerr.Error {
	return pgerr.New(pgerr.NoActiveTransaction, "%s AND CHAIN can only be used in transaction blocks", command)
}

// savepointCommands are the commands as PostgreSQL calls them in errors.
var savepointCommands = map[plan.Command]string{plan.Savepoint: "SAVEPOINT", plan.ReleaseSavepoint: "RELEASE SAVEPOINT", plan.RollbackTo: "ROLLBACK TO SAVEPOINT"}

func errNoBlock(st *plan.Statement) *pgerr.Error {
	return pgerr.New(pgerr.NoActiveTransaction, "%s can only be used in transaction blocks", savepointCommands[st.Command])
}

func (s *session) savepointLocal(st *plan.Statement) (done bool, tag string, refused *pgerr.Error) {
	if !s.tx.open {
		return false, "", errNoBlock(st)
	}
	name, found := st.Transaction.Savepoint, true
	switch st.Command {
	case plan.Savepoint:
		s.log.savepoint(name)
		tag = "SAVEPOINT"
	case plan.ReleaseSavepoint:
		found, tag = s.releaseSavepoint(name), "RELEASE"
	default:
		found, tag = s.rollbackToSavepoint(name), "ROLLBACK"
	}
	if !found {
		return false, "", pgerr.New(pgerr.InvalidSavepoint, "savepoint \"%s\" does not exist", name)
	}
	s.tx.failed = false
	s.contextChanged()
	said := savepointLine(st.Command, name)
	if st.Command == plan.RollbackTo && s.reportedBefore != nil {
		refused = s.rehearse(said.sql)
	}
	s.tx.script.add(said)
	return true, tag, refused
}

// deferSetting takes a SET inside a transaction that no shard has heard of. A shard says at once whether it is right; the
// one that will run the transaction hears of it with the first statement.
func (s *session) deferSetting(st *plan.Statement, text string) (done bool, tag string, refused *pgerr.Error) {
	if s.returnsToRole(st) {
		role, _ := s.base.find("role")
		text += "; " + restoreSQL(role, st.Settings[0].Local)
	}
	if refused := s.rehearse(text); refused != nil {
		return false, "", refused
	}
	s.record(st)
	s.contextChanged()
	if slices.ContainsFunc(st.Settings, func(e plan.Setting) bool { return slices.Contains(ofTransaction, e.Name) }) {
		s.tx.characterise(text)
	} else {
		s.tx.script.add(line{sql: text})
	}
	if st.Command != plan.SetVariable {
		return true, st.Name, nil
	}
	return true, "SET", nil
}

// rehearse runs what was put off, and more, on some shard, and undoes it there: so what is wrong is known, and what servers
// report of parameters.
func (s *session) rehearse(more ...string) *pgerr.Error {
	open := s.tx
	s.tx.open = false
	err := s.attach()
	s.tx = open
	if err != nil {
		return asError(err)
	}
	var failure *wire.Fields
	statements := slices.Concat(s.saidOn(s.backend.Shard()), more, []string{"ROLLBACK"})
	for i, sql := range statements {
		s.unheard = i == len(statements)-1
		a, err := s.ask(sql)
		if err != nil {
			s.unheard = false
			return s.askFailed(a, err)
		}
		if failure == nil {
			failure = a.failure
		}
	}
	s.unheard = false
	s.status = statusIdle
	_ = s.settle()
	if failure != nil {
		return failure.PGError()
	}
	return nil
}

// resetLocal gives parameters the values that the session began with, which the server cannot know.
func (s *session) resetLocal(st *plan.Statement, text string) (done bool, tag string, refused *pgerr.Error) {
	if s.tx.open {
		if st.Command == plan.ResetAll {
			text = s.resetAllSQL()
		} else if e, had := s.base.find(st.Settings[0].Name); had {
			text = restoreSQL(e, st.Settings[0].Local)
		}
		return s.deferSetting(st, text)
	}
	s.record(st)
	wanted := s.log.apply(s.settings, s.base, true)
	s.keepSwitches()
	s.log.reset()
	if err := s.attach(); err != nil {
		return false, "", asError(err)
	}
	if st.Command == plan.ResetVariable {
		if _, had := s.base.find(st.Settings[0].Name); !had && !s.returnsToRole(st) { // the server says whether there is such a parameter
			a, err := s.ask(text)
			if err != nil || a.failure != nil {
				return false, "", s.askFailed(a, err)
			}
			s.settings, s.state.settings = wanted, wanted
			s.contextChanged()
			_ = s.settle()
			return true, st.Name, nil
		}
	}
	if err := s.apply(s.state.settings, wanted); err != nil {
		return false, "", asError(err)
	}
	s.settings, s.state.settings = wanted, wanted
	s.contextChanged()
	_ = s.settle()
	return true, st.Name, nil
}

// askFailed ends a question that got no good answer.
func (s *session) askFailed(a answer, err error) *pgerr.Error {
	if err != nil {
		return s.dropLost(err)
	}
	_ = s.settle()
	return a.failure.PGError()
}

// resetAllSQL is RESET ALL for a server that began with other values than the session, as one statement.
func (s *session) resetAllSQL() string {
	var body strings.Builder
	body.WriteString("BEGIN RESET ALL; ")
	for _, e := range s.base.entries {
		if !isIdentity(e.name) {
			body.WriteString(setSQL(e) + "; ")
		}
	}
	body.WriteString("END")
	return "DO " + sqltext.QuoteLiteral(body.String())
}

// noDiscard refuses DISCARD ALL where the server would have to run it: it would take other sessions' statements with it.
func (s *session) noDiscard() *pgerr.Error {
	if s.backend != nil && s.status != statusIdle {
		return pgerr.New(pgerr.ActiveTransaction, "DISCARD ALL cannot run inside a transaction block")
	}
	return pgerr.New(pgerr.FeatureNotSupported, "DISCARD ALL is not supported at this place of a pipeline").
		WithDetail("It cannot run beside other statements.").WithHint("Send it by itself, with a Sync before and after it.")
}

// discardAll makes the session as it was when it began.
func (s *session) discardAll() (done bool, tag string, refused *pgerr.Error) {
	if s.tx.open {
		return false, "", pgerr.New(pgerr.ActiveTransaction, "DISCARD ALL cannot run inside a transaction block")
	}
	clear(s.statements)
	s.unnamed = nil
	clear(s.temporary)
	s.closeCursors()
	s.told.forget()
	s.settings = s.base
	s.poolMode, s.shardKey, s.consistent, s.fanout = s.firstMode, "", s.firstConsistent, s.firstFanout
	s.partial.now, s.missing = s.partial.first, missing{}
	s.contextChanged()
	for shard := range s.pinnedShards() {
		s.unpin(shard, "DISCARD ALL")
	}
	// Whatever parameters the client was told have to be told anew.
	if err := s.attach(); err != nil {
		return false, "", asError(err)
	}
	s.hearParameters()
	_ = s.settle()
	return true, "DISCARD ALL", nil
}

// deallocate forgets prepared statements; on backends they stay for others.
func (s *session) deallocate(st *plan.Statement) (done bool, tag string, refused *pgerr.Error) {
	if s.currentStatus() == statusFailed {
		return false, "", inFailedTransaction
	}
	if st.Prepared.All {
		clear(s.statements)
		return true, "DEALLOCATE ALL", nil
	}
	if s.statements[st.Prepared.Name] == nil {
		return false, "", errNoStatement(st.Prepared.Name)
	}
	delete(s.statements, st.Prepared.Name)
	return true, "DEALLOCATE", nil
}

// setOurs sets a parameter of the router itself.
func (s *session) setOurs(st *plan.Statement) (done bool, tag string, refused *pgerr.Error) {
	if s.currentStatus() == statusFailed {
		return false, "", inFailedTransaction
	}
	e := st.Settings[0]
	if e.Name == consistentReads {
		return true, st.Name, s.setConsistent(e)
	}
	switch e.Name {
	case "cleave.pool_mode", "cleave.shard_key", fanoutParameter, partialResults:
	case missingShards:
		return false, "", pgerr.New("55P02", "parameter \"%s\" cannot be changed", e.Name)
	default:
		return false, "", pgerr.New(pgerr.UndefinedObject, "unrecognized configuration parameter \"%s\"", e.Name).
			WithHint("The router has cleave.consistent_reads, cleave.fanout, cleave.partial_results, cleave.pool_mode and cleave.shard_key.")
	}
	if e.Local {
		return false, "", pgerr.New(pgerr.FeatureNotSupported, "SET LOCAL is not supported for %s", e.Name).
			WithDetail("It is a parameter of the session with the router.").WithHint("Use SET, and set it back afterwards.")
	}
	if e.Name == fanoutParameter {
		return true, st.Name, s.setFanout(e)
	}
	if e.Name == partialResults {
		return true, st.Name, s.setPartial(e)
	}
	if e.Name == "cleave.shard_key" {
		s.shardKey = ""
		if !e.Default {
			s.shardKey = strings.Join(e.Values, ",")
		}
		s.contextChanged()
		return true, st.Name, nil
	}
	mode := s.server.config.Mode
	if !e.Default && len(e.Values) == 1 {
		mode = Mode(strings.ToLower(e.Values[0]))
	}
	if mode != TransactionMode && mode != SessionMode {
		return false, "", pgerr.New(pgerr.InvalidParameterValue, "invalid value for parameter \"%s\": \"%s\"", e.Name, strings.Join(e.Values, ", ")).
			WithHint("Available values: transaction, session.")
	}
	s.poolMode = mode
	return true, st.Name, nil
}

// returnsToRole says whether a statement ends being somebody else, after which the session is in the role that it asked for when
// it began: the server knows nothing of that.
func (s *session) returnsToRole(st *plan.Statement) bool {
	_, began := s.base.find("role")
	return began && (st.Command == plan.SetVariable || st.Command == plan.ResetVariable) &&
		slices.ContainsFunc(st.Settings, func(e plan.Setting) bool { return e.Name == "session_authorization" && e.Default })
}
