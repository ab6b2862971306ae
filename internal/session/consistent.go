package session

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/txn"
)

// Consistent reads: a transaction opens its snapshots on all shards at once, and looks whether they fit together. DESIGN.md of package
// txn says why that is enough.

const (
	// openingPatience is how long a reader tries to open snapshots that fit together.
	openingPatience = 5 * time.Second
	// chasePatience is how long it opens those anew that lag behind, before it keeps decisions waiting, and barrierPatience how long it does that at a time.
	chasePatience   = 10 * time.Millisecond
	barrierPatience = 50 * time.Millisecond
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
	if s.tx.consistent != nil {
		return *s.tx.consistent
	}
	return s.consistent
}

// openIfConsistent opens the snapshots of a transaction that is about to run its first statement, if its reads are to be consistent.
func (s *session) openIfConsistent() *pgerr.Error {
	if !s.wantsConsistent() || s.backend != nil || s.isSpread() || s.isAside || s.tx.failed || !s.needsServer() || s.onlyPrepares() || s.currentMap().ShardCount() < 2 {
		return nil
	}
	switch {
	case s.tx.open:
		level, refused := s.levelAhead()
		if refused != nil || level != "repeatable read" {
			return refused
		}
		var shards []int
		for shard := range s.currentMap().Shards() {
			shards = append(shards, shard.Number())
		}
		return s.openSnapshots(shards)
	case len(s.spreadTo) > 0 && !s.needsBlock():
		s.tx.open, s.tx.begin, s.tx.implicit = true, consistentBegin, true
		return s.openSnapshots(slices.Clone(s.spreadTo))
	}
	return nil
}

// levelAhead is the isolation level of a transaction that no shard has heard of. What it has said of the level itself is plain to see.
func (s *session) levelAhead() (string, *pgerr.Error) {
	lines := []string{s.tx.begin}
	for _, l := range s.tx.script {
		lines = append(lines, l.sql)
	}
	if said := strings.ToLower(strings.Join(lines, "; ")); strings.Contains(said, "isolation") {
		if words := strings.Join(strings.Fields(said), " "); strings.Count(words, "isolation") == 1 && strings.Contains(words, "isolation level repeatable read") {
			return "repeatable read", nil
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
		fits, refused := o.try(try > 1)
		if refused != nil || fits {
			return refused
		}
		if time.Since(o.began) > openingPatience {
			return pgerr.New(pgerr.SerializationFailure, "could not open a consistent snapshot on all shards").
				WithDetail("Transaction %q is committed on one shard and not yet on another.", o.blocker).
				WithHint("Try again. If this stays, see: SELECT * FROM cleave.transactions")
		}
		if o.s.cancelled.Load() {
			o.s.cancelled.Store(false)
			return errCancelled
		}
		time.Sleep(pause)
		pause = min(2*pause, mostPause)
	}
}

// try opens the snapshots once, and those that lag behind again as long as that seems to lead somewhere.
func (o *opening) try(barred bool) (fits bool, refused *pgerr.Error) {
	patience := chasePatience
	if barred {
		if !o.bar() {
			return false, o.rollback()
		}
		defer o.unbar()
		patience = barrierPatience
	}
	horizon := o.s.server.horizon.Load()
	if !horizon.Covers(o.shards) {
		if horizon, refused = o.newHorizon(); refused != nil {
			return false, refused
		}
	}
	opened := txn.NewOpening(horizon)
	until := time.Now().Add(patience)
	for lagging := o.legs; ; {
		if stale, refused := o.openOn(opened, lagging); refused != nil || stale {
			return false, refused
		}
		missing := opened.Missing()
		if len(missing) > 0 {
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

// keep keeps what fits as the horizon of those who come next, if it is worth that.
func (o *opening) keep(opened *txn.Opening) (fits bool, refused *pgerr.Error) {
	next, err := opened.Horizon()
	if err != nil {
		return false, o.rollback()
	}
	if now := o.s.server.horizon.Load(); len(o.shards) == o.s.currentMap().ShardCount() || !now.Covers(o.shards) {
		o.s.server.horizon.Store(next)
	}
	return true, nil
}

// tell asks legs something, and hands each answer over.
func (o *opening) tell(legs []*leg, sql func(*leg) string, heard func(l *leg, a *told) error) *pgerr.Error {
	var refused *pgerr.Error
	for i, a := range o.s.tellLegs(legs, sql) {
		failure := a.refusal(legs[i])
		if failure == nil {
			if err := heard(legs[i], &a); err != nil {
				failure = pgerr.New(pgerr.InternalError, "shard %q could not be understood", legs[i].backend.ShardName()).WithDetail("%s", err)
			}
		}
		if refused == nil {
			refused = failure
		}
	}
	return refused
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

// openOn opens the snapshots of some legs, those that they have are given up. Stale: the horizon is of no use any more.
func (o *opening) openOn(opened *txn.Opening, legs []*leg) (stale bool, refused *pgerr.Error) {
	for _, l := range legs {
		l.pending = nil
		if l.status != statusIdle {
			l.pending = script{{sql: "ROLLBACK"}}
		}
		l.pending = append(l.pending, o.begin...)
	}
	refused = o.tell(legs, func(l *leg) string { return opened.SQL(l.backend.Shard()) }, func(l *leg, a *told) error {
		err := opened.Opened(l.backend.Shard(), a.rows)
		if errors.Is(err, txn.ErrStale) {
			stale = true
			o.s.server.horizon.Store(nil)
			return nil
		}
		return err
	})
	if refused == nil && stale {
		refused = o.rollback()
	}
	return stale, refused
}

// askMissing asks shards for transactions by name that others see.
func (o *opening) askMissing(opened *txn.Opening, missing map[int][]string) *pgerr.Error {
	legs := slices.DeleteFunc(slices.Clone(o.legs), func(l *leg) bool { return missing[l.backend.Shard()] == nil })
	return o.tell(legs, func(l *leg) string { return txn.SeesSQL(missing[l.backend.Shard()]) }, func(l *leg, a *told) error {
		opened.Sees(l.backend.Shard(), a.rows)
		return nil
	})
}

// rollback gives up what is open.
func (o *opening) rollback() *pgerr.Error {
	open := slices.DeleteFunc(slices.Clone(o.legs), func(l *leg) bool { return l.status == statusIdle })
	return o.tell(open, always("ROLLBACK"), func(*leg, *told) error { return nil })
}

// bar keeps decisions waiting on all shards, and says whether it could: somebody else may do the same.
func (o *opening) bar() bool {
	if o.rollback() != nil {
		return false
	}
	for i, l := range o.legs {
		if a := o.s.tellLegs([]*leg{l}, always(txn.BarrierSQL))[0]; a.refusal(l) != nil {
			o.unbarLegs(o.legs[i:i+1], txn.BarrierFailedSQL)
			o.unbarLegs(o.legs[:i], txn.BarrierEndSQL)
			return false
		}
	}
	return true
}

func (o *opening) unbar() { o.unbarLegs(o.legs, txn.BarrierEndSQL) }

// unbarLegs lets decisions go on. A backend that does not do so has to go.
func (o *opening) unbarLegs(legs []*leg, sql string) {
	legs = slices.DeleteFunc(slices.Clone(legs), func(l *leg) bool { return o.s.legs[l.backend.Shard()] != l })
	for i, a := range o.s.tellFirmly(legs, always(sql)) {
		if a.err == nil && a.refusal(legs[i]) != nil {
			o.s.dropLeg(legs[i], "it may keep transactions waiting")
		}
	}
}

// setConsistent is SET cleave.consistent_reads.
func (s *session) setConsistent(e plan.Setting) *pgerr.Error {
	on := false
	if !e.Default {
		value, known := booleanOf(strings.Join(e.Values, ","))
		if !known {
			return pgerr.New(pgerr.InvalidParameterValue, "parameter \"%s\" requires a Boolean value", e.Name)
		}
		on = value
	}
	if e.Local {
		if s.tx.begin != "" || s.tx.open {
			s.tx.consistent = &on
		}
		return nil
	}
	s.consistent, s.tx.consistent = on, nil
	return nil
}

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
