package session

import (
	"slices"
	"strconv"
	"time"

	"github.com/cleavedb/cleave/internal/failpoint"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/txn"
	"github.com/cleavedb/cleave/internal/wire"
)

// commitment is the commit of a transaction that wrote on several shards: DESIGN.md of package txn says how, and numbers what can go
// wrong.
type commitment struct {
	s       *session
	name    txn.Name
	gid     string
	members []int
	// xids are the numbers that the parts have on their shards; 0 for the one that decides.
	xids []uint64
	// decider commits, with the decision; the others are prepared before.
	decider *leg
	others  []*leg
	// owner is who prepares.
	owner identity
	// unsure: a part may be prepared of which nobody here knows.
	unsure bool
	// lost are the names of shards that have nothing of their part any more.
	lost []string
}

const (
	// outcomePatience is how long the shard that decides is asked what it has decided, when it was lost in the middle.
	outcomePatience = 5 * time.Second
	// outcomeValid is how late an answer may come: when nothing was decided the row is missing, but also when it has been cleaned up, minutes later.
	outcomeValid = time.Minute
	// finishPatience is how long a shard that was lost is tried again with a commit that is decided, before the client is told.
	finishPatience = 2 * time.Second
	// retryPause lies between two attempts.
	retryPause = 50 * time.Millisecond
)

// How a prepared transaction ends.
const (
	commitPrepared   = "COMMIT PREPARED"
	rollbackPrepared = "ROLLBACK PREPARED"
)

// commitTwoPhase prepares all but one, lets that one decide, and then commits the others.
func (s *session) commitTwoPhase(decider *leg, others []*leg) *pgerr.Error {
	c := &commitment{s: s, decider: decider, others: others, owner: s.effectiveIdentity(), members: []int{decider.backend.Shard()}}
	for _, l := range others {
		c.members = append(c.members, l.backend.Shard())
	}
	slices.Sort(c.members)
	c.xids = make([]uint64, len(c.members))
	told := decider.state.greeting
	c.name = txn.NewName(s.currentMap().Cluster(), decider.backend.Shard(), told.Timeline, told.PID, told.Start, s.server.config.Router)
	c.gid = c.name.String()
	failpoint.Hit("commit.begin")
	prepared, refused := c.prepare()
	if refused == nil {
		failpoint.Hit("commit.prepared")
		refused = c.decide()
	}
	if refused != nil {
		c.abort(prepared, refused)
		return refused
	}
	failpoint.Hit("commit.decided")
	c.finish(prepared)
	failpoint.Hit("commit.finished")
	return nil
}

// explained says in words of the transaction's what the statement that notes it failed with.
func explained(failure *pgerr.Error) *pgerr.Error {
	switch {
	case failure.Code == pgerr.UniqueViolation && failure.Schema == "cleave" && failure.Table == "commits":
		return abortedMeanwhile
	case failure.Code == pgerr.ReadOnlyTransaction:
		return pgerr.New(pgerr.FeatureNotSupported, "a transaction on several shards cannot be committed when it was made READ ONLY after it had written").
			WithDetail("Each of its shards has to note that it is committed. It is rolled back.").WithHint("Leave the transaction READ WRITE.")
	}
	return failure
}

// prepare prepares the others, and returns those that are, and why the rest is not.
func (c *commitment) prepare() (prepared []*leg, refused *pgerr.Error) {
	defer c.s.asks()()
	c.s.setWorking(c.others)
	defer c.s.setWorking(nil)
	members := txn.NumbersText(c.members)
	first, answers := c.s.writeLegs(c.others, func(l *leg) string {
		c.noting(l, partNote, c.gid, members)
		return prepareTransaction + " " + c.part(l)
	})
	failpoint.Hit("commit.preparing")
	for i, a := range c.s.hearLegs(c.others, first, answers) {
		failure := c.noted(&a, c.others[i], partNote)
		if failure == nil {
			failure = c.learnt(&a, c.others[i])
		}
		switch {
		case a.err != nil:
			c.unsure = true
			failure = failure.WithDetail("%s. The transaction is rolled back on all shards.", a.err)
		case failure == nil && a.tag == prepareTransaction:
			prepared = append(prepared, c.others[i])
		case failure == nil:
			failure = rolledBack(c.others[i])
		default:
			failure = explained(failure)
		}
		if refused == nil {
			refused = failure
		}
	}
	if c.s.cancelled.Swap(false) && refused == nil {
		refused = errCancelled // or a part counts as prepared that has given up waiting for its replicas
	}
	return prepared, refused
}

// note is a statement that a backend prepares once and runs in every commit over several shards.
type note struct {
	name, sql string
	oids      []uint32
}

// The statements that note a part, and a decision.
var (
	partNote     = note{"cleave_part", txn.NoteStatement, []uint32{textOID, int4ArrayOID}}
	decisionNote = note{"cleave_decision", txn.DecideStatement, []uint32{textOID, int4ArrayOID, int8ArrayOID}}
)

const (
	textOID      = 25
	int4ArrayOID = 1007
	int8ArrayOID = 1016
)

// noting has a leg note something before it does what it is told next, which it does only if that went well.
func (c *commitment) noting(l *leg, n note, values ...string) {
	var out []byte
	if !l.state.has(n.name) {
		l.state.add(n.name)
		out = wire.AppendClose(out, 'S', n.name) // if it was made in a transaction that came to nothing, it is there
		out = wire.AppendParse(out, n.name, n.sql, n.oids)
	}
	parameters := make([][]byte, len(values))
	for i, value := range values {
		parameters[i] = []byte(value)
	}
	out = wire.AppendBind(out, "", n.name, nil, parameters, nil)
	l.before = wire.AppendExecute(out, "", 0)
}

// noted returns why a leg has not done what it was told, which includes noting it.
func (c *commitment) noted(a *told, l *leg, n note) *pgerr.Error {
	failure := a.refusal(l)
	switch st := l.state.prepared[n.name]; {
	case st == nil:
	case failure == nil:
		st.confirmed = true
	case !st.confirmed || failure.Code == pgerr.InvalidStatementName: // it may never have been made, or somebody's code has deallocated it
		l.state.remove(st)
	}
	return failure
}

// learnt takes in the number that a part has on its shard.
func (c *commitment) learnt(a *told, l *leg) *pgerr.Error {
	if len(a.rows) == 1 && len(a.rows[0]) == 1 {
		if xid, err := strconv.ParseUint(a.rows[0][0], 10, 64); err == nil {
			c.xids[slices.Index(c.members, l.backend.Shard())] = xid
			return nil
		}
	}
	return pgerr.New(pgerr.InternalError, "shard %q did not tell the number of its transaction", l.backend.ShardName())
}

// part is the name under which a leg is prepared, for SQL.
func (c *commitment) part(l *leg) string {
	return sqltext.QuoteLiteral(txn.PartName(c.gid, l.state.greeting.Timeline))
}

// decide commits the part that decides, and returns why it is not committed. Nothing cancels it.
func (c *commitment) decide() *pgerr.Error {
	legs := []*leg{c.decider}
	first, answers := c.s.writeLegs(legs, func(l *leg) string {
		c.noting(l, decisionNote, c.gid, txn.NumbersText(c.members), txn.NumbersText(c.xids))
		return "COMMIT"
	})
	failpoint.Hit("commit.deciding")
	a := c.s.hearLegs(legs, first, answers)[0]
	switch failure := c.noted(&a, c.decider, decisionNote); {
	case a.err != nil:
		return c.outcome()
	case failure != nil:
		return explained(failure)
	case a.tag != "COMMIT":
		return rolledBack(c.decider)
	}
	return nil
}

// abortedMeanwhile: recovery did not wait any longer.
var abortedMeanwhile = pgerr.New(pgerr.SerializationFailure, "the transaction took too long to commit and was rolled back").
	WithDetail("Parts of it were prepared and the router did not go on, so the control plane has aborted it.").WithHint("Try the transaction again.")

// outcome asks the shard that decides, which was lost in the middle of it, over another connection.
func (c *commitment) outcome() *pgerr.Error {
	shard, name := c.decider.backend.Shard(), c.decider.backend.ShardName()
	for began := time.Now(); time.Since(began) < outcomePatience && c.s.ctx.Err() == nil; time.Sleep(retryPause) {
		a, refused := c.s.asideOn(shard, func() (answer, error) { return c.s.ask(txn.OutcomeSQL(c.gid)) })
		if refused != nil || a.failure != nil || len(a.rows) != 1 {
			continue
		}
		outcome, err := txn.ParseOutcome(a.rows[0])
		if err != nil || time.Since(began) > outcomeValid {
			continue
		}
		switch outcome.Verdict(c.name, false) {
		case txn.CommitParts:
			return nil
		case txn.RollBackParts, txn.AbortFirst: // that backend is gone, so it stays so
			return pgerr.New(pgerr.ConnectionFailure, "the connection to shard %q was lost", name).
				WithDetail("It was lost before the transaction was decided; it is rolled back on all shards.").WithHint("Try the transaction again.")
		case txn.Wait:
			continue
		case txn.AskPerson:
		}
		break
	}
	c.unsure = true
	return pgerr.New(pgerr.OutcomeUnknown, "the outcome of the transaction is not known").
		WithDetail("Shard %q was lost while it decided transaction %q. When it is back, the transaction is committed or rolled back on all shards, as it has decided.", name, c.gid).
		WithHint("Later, ask: SELECT cleave.transaction_outcome(%s)", sqltext.QuoteLiteral(c.gid))
}

// abort rolls back what is prepared. Where somebody may not hear of it, or nothing is known, recovery does the rest; the shard that could have
// decided notes for it that nothing will be decided.
func (c *commitment) abort(prepared []*leg, refused *pgerr.Error) {
	if refused.Code == pgerr.OutcomeUnknown {
		return // nobody knows
	}
	left := c.tell(prepared, rollbackPrepared)
	if !c.unsure && len(left) == 0 {
		return
	}
	c.s.server.config.Logger.Warn("a transaction is rolled back, and the control plane has to see to parts of it", "transaction", c.gid, "error", refused)
	if c.s.legs[c.decider.backend.Shard()] != c.decider {
		return // lost: its backend is gone, which is as good
	}
	legs := []*leg{c.decider}
	c.decider.pending = nil
	for _, sql := range []string{"ROLLBACK", txn.NoteAbortSQL(c.gid)} {
		if c.s.tellFirmly(legs, always(sql))[0].refusal(c.decider) != nil {
			return
		}
	}
}

// finish commits what is prepared. It is decided, so whoever cannot be told now is told later.
func (c *commitment) finish(prepared []*leg) {
	left := c.tell(prepared, commitPrepared)
	for began := time.Now(); len(left) > 0 && time.Since(began) < finishPatience && c.s.ctx.Err() == nil; time.Sleep(retryPause) {
		left = slices.DeleteFunc(left, c.finishAnew)
	}
	for _, l := range left {
		name := l.backend.ShardName()
		c.s.server.config.Logger.Warn("a transaction is committed, and the control plane has to see to a part of it", "transaction", c.gid, "shard", name)
		c.s.out = wire.AppendNotice(c.s.out, "WARNING", pgerr.New(pgerr.ConnectionFailure, "the transaction is committed, but its part on shard %q is still to follow", name).
			WithDetail("Shard %q cannot be reached. What it has to commit is prepared there as %s, and is committed when it is back.", name, c.part(l)).
			WithHint("Until then that shard does not show it."))
	}
	for _, name := range c.lost {
		c.s.server.config.Logger.Error("a transaction is committed, and a shard has lost its part of it", "transaction", c.gid, "shard", name)
		c.s.out = wire.AppendNotice(c.s.out, "WARNING", pgerr.New(pgerr.ConnectionFailure, "the transaction is committed, but shard %q has lost its part", name).
			WithDetail("It was prepared there as transaction %q, and is neither prepared nor committed there now: the shard was put back to an earlier state.", c.gid).
			WithHint("See: SELECT * FROM cleave.transactions"))
	}
}

// tell ends what is prepared, on the legs that prepared it, and returns those that have not done so. One that was faster, and so ended it, is recovery.
func (c *commitment) tell(legs []*leg, command string) (left []*leg) {
	if c.owner != (identity{}) {
		c.s.unheard = true
		defer func() { c.s.unheard = false }()
		for _, l := range legs {
			l.pending, l.stranger = c.s.become(c.owner), true
		}
	}
	sql := func(l *leg) string { return command + " " + c.part(l) }
	first, answers := make([]int, len(legs)), make([]told, len(legs))
	for i := range legs { // one by one, so that a test can come between
		one, answer := c.s.writeLegs(legs[i:i+1], sql)
		first[i], answers[i] = one[0], answer[0]
		if command == commitPrepared {
			failpoint.Hit("commit.finishing")
		}
	}
	for i, a := range c.s.hearLegs(legs, first, answers) {
		if failure := a.refusal(legs[i]); failure != nil && failure.Code != pgerr.UndefinedObject {
			left = append(left, legs[i])
		}
	}
	return left
}

// finishAnew commits a part over another connection, and says whether there is nothing left to do: it is committed, or it is not there. One that is not
// there may have been committed by recovery, which has left its mark, or the shard may have been put back to an earlier state.
func (c *commitment) finishAnew(l *leg) bool {
	gone := false
	a, refused := c.s.asideOn(l.backend.Shard(), func() (answer, error) {
		c.s.state.settings = nil // it is somebody else for a moment
		for _, line := range c.s.become(c.owner) {
			if a, err := c.s.ask(line.on(l.backend.Shard())); err != nil || a.failure != nil {
				return a, err
			}
		}
		a, err := c.s.ask(commitPrepared + " " + c.part(l))
		if gone = err == nil && a.failure != nil && a.failure.PGError().Code == pgerr.UndefinedObject; !gone {
			return a, err
		}
		return c.s.ask(txn.MarkSQL(c.xids[slices.Index(c.members, l.backend.Shard())]))
	})
	if refused != nil || a.failure != nil {
		return false
	}
	if gone && len(a.rows) == 0 {
		c.lost = append(c.lost, l.backend.ShardName())
	}
	return true
}
