package session

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/txn"
	"github.com/cleavedb/cleave/internal/wire"
)

// Consistent reads: a transaction opens its snapshots on all shards at once, and looks whether they fit together. DESIGN.md of package
// txn says why that is enough.

const (
	// openingPatience is how long a reader tries to open snapshots that fit together.
	openingPatience = 5 * time.Second
	// chasePatience is how long it opens those anew that lag behind, before it keeps decisions waiting, and barrierPatience how long it does that at a time.
	chasePatience   = 10 * time.Millisecond
	barrierPatience = 50 * time.Millisecond
	// crowdedFor is how long readers keep decisions waiting at once, after one has had to.
	crowdedFor = time.Second
	// leastPause and mostPause lie between two tries.
	leastPause = time.Millisecond
	mostPause  = 100 * time.Millisecond
)

// consistentReads is the parameter that turns them on.
const consistentReads = "cleave.consistent_reads"

// consistentBegin begins a read on several shards that the client has put into no transaction.
const consistentBegin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

// wantsConsistent says whether reads are to be consistent now.
func (s *session) wantsConsistent() bool {
	if n := len(s.log.switches); n > 0 {
		return s.log.switches[n-1].on
	}
	return s.consistent
}

// record notes what a statement has changed of the settings.
func (s *session) record(st *plan.Statement) {
	s.log.record(st, s.effective())
	if st.Command == plan.ResetAll {
		s.log.switches = append(s.log.switches, readsSwitch{on: s.firstConsistent})
	}
}

// keepSwitches makes what the transaction said of consistent reads the session's.
func (s *session) keepSwitches() {
	for _, said := range s.log.switches {
		if !said.local {
			s.consistent = said.on
		}
	}
}

// openIfConsistent opens the snapshots of a unit that is about to run the first statement of a transaction, if its reads are to be consistent.
func (s *session) openIfConsistent() *pgerr.Error {
	if !s.wantsConsistent() || !s.needsServer() || s.onlyPrepares() {
		return nil
	}
	if s.isSpread() && s.tx.level == repeatableRead && !s.tx.opened {
		return openedTooLate
	}
	if !s.mayOpen() {
		return nil
	}
	switch {
	case s.tx.open:
		return s.openBlock(slices.ContainsFunc(s.ops, func(o op) bool { return o.planned != nil && o.planned.locks() }))
	case len(s.spreadTo) > 0 && s.readsAlone():
		s.tx.open, s.tx.begin, s.tx.implicit = true, consistentBegin, true
		return s.openSnapshots(s.allShards())
	}
	return nil
}

// readsAlone says whether the unit is one statement that only reads, outside any transaction.
func (s *session) readsAlone() bool {
	return s.tx.begin == "" && s.syncing && !s.inText && !slices.ContainsFunc(s.ops, func(o op) bool {
		return o.planned != nil && slices.ContainsFunc(o.planned.plan.Statements, func(st plan.Statement) bool { return !s.whatRuns(&st).Reads })
	})
}

// mayOpen says whether reads are to be consistent, and no shard has been used yet.
func (s *session) mayOpen() bool {
	return s.wantsConsistent() && s.backend == nil && !s.isSpread() && !s.isAside && !s.tx.failed && s.currentMap().ShardCount() > 1
}

// openBlock opens the snapshots of a block that no shard has heard of, if it is to have some; locks: its first statement locks tables.
func (s *session) openBlock(locks bool) *pgerr.Error {
	level, refused := s.levelAhead()
	switch {
	case refused != nil || level != repeatableRead:
		return refused
	case locks:
		return lockBeforeSnapshot
	}
	return s.openSnapshots(s.allShards())
}

// locks says whether a statement is a LOCK TABLE.
func (p *planned) locks() bool {
	return slices.ContainsFunc(p.plan.Statements, func(st plan.Statement) bool { return st.Name == lockTable })
}

// lockTable is the statement that PostgreSQL runs without taking a snapshot.
const lockTable = "LOCK TABLE"

// lockBeforeSnapshot: who locks first wants to see what others have written before. The snapshots would have to be opened behind the lock, and perhaps
// several times, each of which would let it go.
var lockBeforeSnapshot = pgerr.New(pgerr.FeatureNotSupported, "LOCK TABLE as the first statement of a REPEATABLE READ transaction whose reads are consistent is not supported").
	WithDetail("The snapshot of the whole cluster would be older than the lock.").
	WithHint("Lock later, use READ COMMITTED, or SET LOCAL cleave.consistent_reads = off.")

// openedTooLate refuses another shard to a transaction whose reads are to be consistent and that has begun on one shard alone.
var openedTooLate = pgerr.New(pgerr.FeatureNotSupported, "consistent reads have to be opened before the transaction's first statement").
	WithDetail("The transaction has begun without them, and has snapshots of some shards that do not fit those of others.").
	WithHint("Send BEGIN by itself, and SET cleave.consistent_reads before it.")

const repeatableRead = "repeatable read"

// allShards are the numbers of all shards. Who reads from some has to look at all, because the shard that decided what is read may be any.
func (s *session) allShards() []int {
	var shards []int
	for shard := range s.currentMap().Shards() {
		shards = append(shards, shard.Number())
	}
	return shards
}

// levelAhead is the isolation level of a transaction that no shard has heard of. What it has said of the level itself is plain to see.
func (s *session) levelAhead() (string, *pgerr.Error) {
	lines := []string{s.tx.begin}
	for _, l := range s.tx.script {
		lines = append(lines, l.sql)
	}
	if said := strings.ToLower(strings.Join(lines, "; ")); strings.Contains(said, "isolation") {
		if words := strings.Join(strings.Fields(said), " "); strings.Count(words, "isolation") == 1 && strings.Contains(words, "isolation level "+repeatableRead) {
			return repeatableRead, nil
		}
		return s.isolation()
	}
	return s.defaultIsolation()
}

// opening is one attempt after the other to open snapshots that fit together.
type opening struct {
	s      *session
	legs   []*leg
	shards []int
	begin  script
	began  time.Time
	// barred are the legs that are to keep decisions waiting with the next that they are told, held those that may do so.
	barred, held []*leg
	// blocker is a transaction that was not seen on all shards, for who gives up.
	blocker string
}

// openSnapshots begins the transaction on shards, with snapshots that fit together.
func (s *session) openSnapshots(shards []int) *pgerr.Error {
	defer func(unit int) { s.target = unit }(s.target) // that of what is about to run
	o := &opening{s: s, shards: shards, begin: append(script{{sql: s.tx.begin}}, s.tx.script...), began: time.Now()}
	refused := o.enlist()
	if refused == nil {
		refused = o.open()
	}
	if refused == nil {
		s.tx.opened, s.tx.level = true, repeatableRead
		return nil
	}
	for _, l := range s.allLegs() {
		l.pending = nil
	}
	s.rollbackLegs()
	s.releaseLegs()
	if s.tx.open = !s.tx.implicit; s.tx.implicit {
		s.tx = transaction{}
	}
	return refused
}

// enlist gets a backend of every shard, which does not know of the transaction yet.
func (o *opening) enlist() *pgerr.Error {
	s := o.s
	for _, shard := range o.shards {
		s.target = shard
		if err := s.attach(); err != nil {
			return asError(err).WithHint("Consistent reads need all shards. SET cleave.consistent_reads = off reads from those that are there.")
		}
		s.joined, s.status = true, statusIdle
		s.setAside()
	}
	s.tx.open = false
	o.legs = s.allLegs()
	return nil
}

// open tries until the snapshots fit, or patience is at its end.
func (o *opening) open() *pgerr.Error {
	pause := leastPause
	for try := 1; ; try++ {
		barred := try > 1 || time.Since(o.s.server.crowdedAt()) < crowdedFor
		fits, refused := o.try(barred)
		if refused != nil || fits {
			return refused
		}
		if !barred {
			o.s.server.crowded.Store(time.Now().UnixNano())
		}
		if time.Since(o.began) > openingPatience {
			return pgerr.New(pgerr.SerializationFailure, "could not open a consistent snapshot on all shards").
				WithDetail("Transaction %q is committed on one shard and not yet on another.", o.blocker).
				WithHint("Try again. If this stays, see: SELECT * FROM cleave.transactions")
		}
		if o.s.cancelled.Load() {
			o.s.cancelled.Store(false)
			return o.s.cancellation()
		}
		time.Sleep(pause)
		pause = min(2*pause, mostPause)
	}
}

// crowdedAt is when a reader last had to keep decisions waiting.
func (s *Server) crowdedAt() time.Time { return time.Unix(0, s.crowded.Load()) }

// try opens the snapshots, and those that lag behind again as long as that seems to lead somewhere; barred: while decisions wait.
func (o *opening) try(barred bool) (fits bool, refused *pgerr.Error) {
	horizon := o.s.server.horizon.Load()
	if !horizon.Covers(o.shards) {
		if horizon, refused = o.newHorizon(); refused != nil {
			return false, refused
		}
	}
	patience := chasePatience
	if barred {
		o.s.server.barrier.Lock() // several readers of this router would be in each other's way
		defer o.s.server.barrier.Unlock()
		defer func() {
			if lost := o.unbar(); lost != nil && refused == nil {
				fits, refused = false, lost
			}
		}()
		o.barred, patience = o.legs, barrierPatience
	}
	opened := txn.NewOpening(horizon)
	until := time.Now().Add(patience)
	for lagging := o.legs; ; {
		if again, refused := o.openOn(opened, lagging); refused != nil || again {
			return false, refused
		}
		missing := opened.Missing()
		if len(missing) > 0 && !horizon.Closed() {
			if refused := o.askMissing(opened, missing); refused != nil {
				return false, refused
			}
			missing = opened.Missing()
		}
		if len(missing) == 0 {
			return o.keep(opened)
		}
		if time.Now().After(until) {
			return false, o.rollback()
		}
		lagging = slices.DeleteFunc(slices.Clone(o.legs), func(l *leg) bool { return missing[l.backend.Shard()] == nil })
		o.blocker = missing[lagging[0].backend.Shard()][0]
	}
}

// keep keeps what fits as the horizon of those who come next.
func (o *opening) keep(opened *txn.Opening) (fits bool, refused *pgerr.Error) {
	next, err := opened.Horizon()
	if err != nil {
		return false, o.rollback()
	}
	o.s.server.horizon.Store(next)
	return true, nil
}

// tell asks legs something, and hands each answer over.
func (o *opening) tell(legs []*leg, sql func(*leg) string, heard func(l *leg, a *told) error) *pgerr.Error {
	var refused *pgerr.Error
	for i, a := range o.s.tellLegs(legs, sql) {
		failure := a.refusal(legs[i])
		if failure == nil {
			if err := heard(legs[i], &a); err != nil {
				failure = notUnderstood(legs[i], err)
			}
		}
		if refused == nil {
			refused = failure
		}
	}
	return refused
}

func notUnderstood(l *leg, err error) *pgerr.Error {
	return pgerr.New(pgerr.InternalError, "shard %q could not be understood", l.backend.ShardName()).WithDetail("%s", err)
}

// newHorizon asks all shards for a snapshot, and when all have answered, for what is prepared.
func (o *opening) newHorizon() (*txn.Horizon, *pgerr.Error) {
	if refused := o.rollback(); refused != nil {
		return nil, refused
	}
	snapshots := map[int]string{}
	if refused := o.tell(o.legs, always(txn.HorizonSQL), func(l *leg, a *told) error {
		if len(a.rows) != 1 || len(a.rows[0]) != 1 {
			return errors.New("it did not tell its snapshot")
		}
		snapshots[l.backend.Shard()] = a.rows[0][0]
		return nil
	}); refused != nil {
		return nil, refused
	}
	var prepared []string
	if refused := o.tell(o.legs, always(txn.PreparedSQL(o.s.currentMap().Cluster())), func(_ *leg, a *told) error {
		for _, row := range a.rows {
			prepared = append(prepared, row[0])
		}
		return nil
	}); refused != nil {
		return nil, refused
	}
	horizon, err := txn.NewHorizon(snapshots, prepared)
	if err != nil {
		return nil, pgerr.New(pgerr.InternalError, "the snapshots of shards could not be understood").WithDetail("%s", err)
	}
	return horizon, nil
}

// openOn opens the snapshots of some legs, those that they have are given up. Legs that are to keep decisions waiting are told so before. Again: the horizon is of no use any
// more, or somebody else keeps decisions waiting.
func (o *opening) openOn(opened *txn.Opening, legs []*leg) (again bool, refused *pgerr.Error) {
	barring := o.barred
	for _, l := range legs {
		l.pending = nil
		if l.status != statusIdle {
			l.pending = script{{sql: "ROLLBACK"}}
		}
		if slices.Contains(barring, l) {
			l.pending = append(l.pending, line{sql: txn.BarrierSQL})
		}
		l.pending = append(l.pending, o.begin...)
	}
	o.held, o.barred = append(o.held, barring...), nil
	for i, a := range o.s.tellLegs(legs, func(l *leg) string { return opened.SQL(l.backend.Shard()) }) {
		failure := a.refusal(legs[i])
		if failure != nil && failure.Code == pgerr.LockNotAvailable && slices.Contains(barring, legs[i]) {
			again, failure = true, nil
		} else if failure == nil {
			err := opened.Opened(legs[i].backend.Shard(), a.rows)
			switch {
			case errors.Is(err, txn.ErrStale):
				again = true
				o.s.server.horizon.Store(nil)
			case err != nil:
				failure = notUnderstood(legs[i], err)
			}
		}
		if refused == nil {
			refused = failure
		}
	}
	if refused == nil && again {
		refused = o.rollback()
	}
	return again, refused
}

// askMissing asks shards for transactions by name that others see.
func (o *opening) askMissing(opened *txn.Opening, missing map[int][]string) *pgerr.Error {
	legs := slices.DeleteFunc(slices.Clone(o.legs), func(l *leg) bool { return missing[l.backend.Shard()] == nil })
	return o.tell(legs, func(l *leg) string { return txn.SeesSQL(missing[l.backend.Shard()]) }, func(l *leg, a *told) error {
		return opened.Sees(l.backend.Shard(), a.rows)
	})
}

// rollback gives up what is open.
func (o *opening) rollback() *pgerr.Error {
	open := slices.DeleteFunc(slices.Clone(o.legs), func(l *leg) bool { return l.status == statusIdle })
	return o.tell(open, always("ROLLBACK"), func(*leg, *told) error { return nil })
}

// unbar lets decisions go on. A session that gave up waiting for the lock in the moment in which it got it has it, so all are told. A backend that does not do so has to go.
func (o *opening) unbar() (refused *pgerr.Error) {
	legs := slices.DeleteFunc(o.held, func(l *leg) bool { return o.s.legs[l.backend.Shard()] != l })
	o.held, o.barred = nil, nil
	for _, l := range legs {
		l.pending = nil
	}
	for i, a := range o.s.tellFirmly(legs, always(txn.BarrierEndSQL)) {
		failure := a.refusal(legs[i])
		if failure != nil && a.err == nil {
			o.s.dropLeg(legs[i], "it may keep transactions waiting")
		}
		if refused == nil {
			refused = failure
		}
	}
	return refused
}

// setConsistent is SET cleave.consistent_reads.
func (s *session) setConsistent(e plan.Setting) *pgerr.Error {
	on := s.firstConsistent
	if !e.Default {
		value, known := booleanOf(strings.Join(e.Values, ","))
		if !known {
			return pgerr.New(pgerr.InvalidParameterValue, "parameter \"%s\" requires a Boolean value", e.Name)
		}
		on = value
	}
	switch {
	case s.tx.begin != "" || s.tx.open:
		s.log.switches = append(s.log.switches, readsSwitch{on, e.Local})
	case e.Local:
		s.addLocal(localOutside)
	default:
		s.consistent = on
	}
	return nil
}

var localOutside = wire.AppendNotice(nil, "WARNING", pgerr.New(pgerr.NoActiveTransaction, "SET LOCAL can only be used in transaction blocks"))

// booleanOf reads a Boolean as PostgreSQL does in settings: a beginning of a word is enough if it is no other's.
func booleanOf(text string) (value, known bool) {
	text = strings.ToLower(strings.TrimSpace(text))
	for _, word := range []struct {
		text  string
		least int
		value bool
	}{{"true", 1, true}, {"false", 1, false}, {"yes", 1, true}, {"no", 1, false}, {"on", 2, true}, {"off", 2, false}, {"1", 1, true}, {"0", 1, false}} {
		if len(text) >= word.least && strings.HasPrefix(word.text, text) {
			return word.value, true
		}
	}
	return false, false
}
