package reshard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/failpoint"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// switching is one attempt to change the owner of what moves. Statements wait from its first step to its last.
type switching struct {
	r    *run
	move *Move
	course
	// slot is the name of what carries changes from the one to the other, back that of what will carry them the other way; empty: nothing will.
	slot, back string

	now    *topology.Map
	tables []topology.TableName
	// owner and heir are connections to both shards.
	owner, heir *pgx.Conn
	// recorded is what both have recorded before statements are held, and closes what each has to record when the owner is closed.
	recorded *shard.Plan
	closes   map[string]*shard.Delta
	// relations are the tables and their partitions, as the owner numbers them.
	relations []uint32
	settled   []string
	// deaf are routers that hear nothing any more, by ID: they are ended on the shards rather than waited for.
	deaf map[string]bool
	// hearing are the others, but for those that are gone.
	hearing []string
	// checked is the version of the map that routers had heard of when they were looked at.
	checked uint64
	// unsettled is one of those that goes by an older map somewhere, by name; empty: there is none.
	unsettled string
	// mayBeClosed: a shard may have recorded that the owner takes nothing.
	mayBeClosed bool
	// numbers are the sequences of whole tables.
	numbers []string
	// inSchemas is how many things are in each schema that moves, and alikeAt when the tables were alike on both shards.
	inSchemas []int
	alikeAt   time.Time
	// followed: the heir has standbys, one of which may take its place.
	followed bool
	// passed is what the heir has noted.
	passed string
	// heldBy is the hold that keeps routers from whole tables.
	heldBy string
	// quiet: nobody used the tables when the switch began, but for single statements.
	quiet bool
	begun time.Time
	steps []Step
}

// switchOver changes the owner, or takes the attempt back and says why.
func (r *run) switchOver(ctx context.Context) error {
	move := r.state()
	s := &switching{r: r, move: move, course: move.course(), slot: move.forward(), back: move.back()}
	if move.RollsBack {
		s.slot, s.back = move.back(), ""
	}
	now, err := r.current(ctx)
	if err != nil {
		return err
	}
	is, alike, err := move.marked(now)
	if err != nil || !alike {
		return errors.Join(errOtherMap, err)
	}
	holds, err := r.heldWhole(ctx)
	if err != nil {
		return err
	}
	if is == s.turned() { // whoever led before has done it
		if err := r.releaseWhole(ctx, now); err != nil {
			return err
		}
		return r.switched(ctx)
	}
	if is.held || s.isClosing(is) || len(holds) > 0 { // somebody died in the middle, or the heir has not heard
		s.mayBeClosed = true
		if err := s.takeBack(ctx); err != nil {
			return err
		}
	}
	if !move.RollsBack && !move.WayBack { // it was given up while this waited
		return r.enter(ctx, Ready)
	}
	defer s.close()
	if err := s.connect(ctx, now); err != nil {
		return err
	}
	if err := s.await(ctx); err != nil {
		return err
	}
	return s.attempt(ctx)
}

func (s *switching) connect(ctx context.Context, now *topology.Map) (err error) {
	s.now, s.tables = now, namesOf(s.move.tables(now))
	if s.owner, err = s.r.connect(ctx, now, s.from); err != nil {
		return err
	}
	s.heir, err = s.r.connect(ctx, now, s.to)
	return err
}

func (s *switching) close() {
	for _, conn := range []*pgx.Conn{s.owner, s.heir} {
		if conn != nil {
			closeQuietly(conn)
		}
	}
}

// oldestOpen is how long a transaction may have been open on one of the tables when statements begin to be held: they wait for it.
const oldestOpen = 100 * time.Millisecond

// await waits until the switch is likely to be short: the changes have nearly all come over, and no transaction has been open for long.
func (s *switching) await(ctx context.Context) error {
	same, err := s.r.sameServers(ctx)
	switch {
	case err != nil:
		return err
	case !same && s.move.RollsBack:
		return s.r.noWayBack(ctx, anotherServer+": there is no way back")
	case !same:
		return s.r.copyAgain(ctx, anotherServer)
	}
	if err := s.isKept(ctx); err != nil { // first: what has lost its slot has stopped too
		return err
	}
	if s.move.RollsBack { // somebody may have wished it before anything else was done after the switch
		if err := s.r.endForward(ctx); err != nil {
			return err
		}
	}
	if err := s.carries(ctx); err != nil {
		return err
	}
	for {
		if err := s.isKept(ctx); err != nil {
			return err
		}
		waiting, err := s.unheard(ctx)
		if waiting == "" && err == nil {
			waiting, err = s.longest(ctx)
		}
		if waiting == "" && err == nil && s.unsettled != "" && !s.whole { // perhaps because of another keyspace; and until it has settled, it does not settle on a hold either, as whole tables need not
			waiting = fmt.Sprintf("router %s has a transaction open that began under an earlier shard map", s.unsettled)
		}
		if waiting == "" && err == nil {
			waiting, err = s.behind(ctx)
		}
		if waiting == "" && err == nil {
			waiting, err = s.standbyBehind(ctx)
		}
		if err != nil {
			return err
		}
		if waiting == "" && (s.r.mover.IsSwitching(s.from) || s.r.mover.IsSwitching(s.to)) {
			waiting = otherSwitch
		}
		if waiting == "" {
			s.r.say(ctx, "", nil)
			if s.whole && time.Since(s.alikeAt) > alikeFor { // of many tables that takes long, and all else has to be so still when statements begin to be held
				if err := s.lookAtWhole(ctx); err != nil {
					return err
				}
				continue
			}
			if newest, err := s.rehearse(ctx); err != nil || newest {
				return err
			}
		}
		s.r.say(ctx, waiting, nil)
		s.r.sleep(ctx, 50*time.Millisecond)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// otherSwitch is why a switch waits for another.
const otherSwitch = "another switch of one of the shards is under way"

// deafAfter is how long a router may take to hear of a map before it counts as one that hears nothing.
const deafAfter = 5 * time.Second

// unheard names a router that has not heard of the map that is in force. After a while it is not waited for any more.
func (s *switching) unheard(ctx context.Context) (string, error) {
	now, err := s.r.current(ctx)
	if err != nil {
		return "", err
	}
	routers, err := s.r.mover.config.Store.Routers(ctx)
	if err != nil {
		return "", err
	}
	waiting := ""
	s.checked, s.deaf, s.hearing, s.unsettled = now.Version(), map[string]bool{}, []string{}, ""
	for _, router := range routers {
		switch since := s.r.deafSince(router.ID, router.Applied >= now.Version()); {
		case since.IsZero():
			s.hearing = append(s.hearing, router.ID)
			if router.Settled < now.Version() {
				s.unsettled = router.Name
			}
		case time.Since(since) < deafAfter:
			waiting = fmt.Sprintf("router %s has not heard of the shard map yet", router.Name)
		default:
			s.deaf[router.ID] = true
		}
	}
	return waiting, nil
}

// rehearse does what can be done before statements are held: both shards record the map as it is, so that little is left to write. It says whether that is the newest map still, and the one that routers have heard of.
func (s *switching) rehearse(ctx context.Context) (newest bool, err error) {
	if s.now, err = s.r.current(ctx); err != nil {
		return false, err
	}
	if err := s.recordBoth(ctx, s.now); err != nil {
		return false, err
	}
	if now, err := s.r.current(ctx); err != nil || now.Version() != s.checked { // it may have waited for another switch
		return false, err
	}
	if err := shard.BeginSwitch(ctx, s.owner, s.heir, s.move.ID, s.from); err != nil {
		return false, err
	}
	s.recorded = shard.Prepare(s.now)
	if s.relations, err = shard.RelationNumbers(ctx, s.owner, s.tables); err != nil || !s.whole {
		return true, err
	}
	return true, s.guardBoth(ctx)
}

// rehearseSteps has both connections do once what they will do while statements are held: the first time takes several times as long. It takes the locks of a switch, so no other one of these shards is under way.
func (s *switching) rehearseSteps(ctx context.Context) error {
	closed, err := s.now.Next(s.move.changes(s.closed())...)
	if err != nil {
		return err
	}
	next := shard.Prepare(closed)
	s.closes = map[string]*shard.Delta{}
	for _, name := range []string{s.from, s.to} {
		if s.closes[name], err = next.Delta(name, s.recorded); err != nil {
			return err
		}
	}
	if err := s.onBoth(func(conn *pgx.Conn, name string) error { return s.closes[name].Rehearse(ctx, conn) }); err != nil {
		return err
	}
	if err := shard.AwaitWriters(ctx, s.owner, nil, nil); err != nil { // of no table: it only looks
		return err
	}
	soon, cancel := context.WithTimeout(ctx, s.move.Options.PauseLimit/2)
	defer cancel()
	if s.followed {
		if _, err := shard.AwaitStandbys(soon, s.heir, 0); err != nil {
			return err
		}
	}
	mark := "rehearsal " + time.Now().UTC().Format(time.RFC3339Nano)
	if _, err := shard.PassMark(soon, s.owner, s.heir, s.move.ID, mark, rehearsed, func() {}); err != nil {
		return err
	}
	if _, err := s.owner.Exec(ctx, "DELETE FROM cleave.marks WHERE move = $1 AND mark = $2", s.move.ID, mark); err != nil { // it goes on the heir too
		return err
	}
	_, err = s.heir.Exec(ctx, "DELETE FROM cleave.marks WHERE move = $1 AND starts_with(mark, $2)", s.move.ID, rehearsed)
	return err
}

// rehearsed begins the note of a rehearsal.
const rehearsed = "rehearsed at "

// longest names a transaction that has had one of the tables locked for too long. Those of routers that hear nothing do not count: they are ended.
func (s *switching) longest(ctx context.Context) (waiting string, err error) {
	for _, conn := range []*pgx.Conn{s.owner, s.heir} {
		if waiting, err = shard.OldestUse(ctx, conn, s.tables, oldestOpen, s.hearing); err != nil || waiting != "" {
			break
		}
	}
	return waiting, err
}

const (
	// quietPatience is for how long a moment is looked for in which nobody has to be waited for, and statementTakes how long statements take that are no reason to wait for another one.
	quietPatience  = 4 * time.Second
	statementTakes = 20 * time.Millisecond
)

// awaitQuiet waits a little for a moment in which no transaction is open on the tables but for single statements: others that are, when statements begin to be held, are waited for. If there is no such moment, one will do in which none has been open for too long; if there is none of these either, it names one.
func (s *switching) awaitQuiet(ctx context.Context) (waiting string, err error) {
	for began := time.Now(); ; doze(ctx, time.Millisecond) {
		switch passed := time.Since(began); {
		case passed < quietPatience:
			if s.quiet, err = s.isQuiet(ctx); err != nil || s.quiet {
				return "", err
			}
		default:
			if waiting, err = s.longest(ctx); err != nil || waiting == "" || passed > 2*quietPatience {
				return waiting, err
			}
		}
	}
}

// isQuiet says whether nobody uses the tables on either shard for longer than a statement takes.
func (s *switching) isQuiet(ctx context.Context) (bool, error) {
	var inUse atomic.Bool
	err := s.onBoth(func(conn *pgx.Conn, _ string) error {
		used, err := shard.IsInUse(ctx, conn, s.tables, statementTakes, s.hearing)
		if used {
			inUse.Store(true)
		}
		return err
	})
	return !inUse.Load(), err
}

// carries sees that changes come to the heir: what carries them stops when a server is away.
func (s *switching) carries(ctx context.Context) error {
	if s.move.RollsBack {
		return s.r.carryBack(ctx)
	}
	return s.r.mayGoOn(ctx)
}

// isKept sees that no change is lost that has still to come over, either way, and that not too much is kept for that.
func (s *switching) isKept(ctx context.Context) error {
	conns := [2]*pgx.Conn{s.owner, s.heir}
	for i, slot := range []string{s.slot, s.back} {
		if slot == "" {
			continue
		}
		l, err := measureOn(ctx, conns[i], slot)
		if err != nil {
			return err
		}
		if l.isTooMuch(s.move.Options.MaxWAL) {
			return s.r.staysKept(ctx)
		}
	}
	return nil
}

// behind says that too much has still to come over.
func (s *switching) behind(ctx context.Context) (string, error) {
	l, err := measureOn(ctx, s.owner, s.slot)
	switch {
	case err != nil:
		return "", err
	case !l.active:
		return "the subscription does not run: the log of shard " + s.to + " says why", s.carries(ctx)
	case l.bytes <= usualLag:
		return "", nil
	}
	// A query that is cut off ends its connection, so these are others.
	owner, err := s.r.connect(ctx, s.now, s.from)
	if err != nil {
		return "", err
	}
	defer closeQuietly(owner)
	heir, err := s.r.connect(ctx, s.now, s.to)
	if err != nil {
		return "", err
	}
	defer closeQuietly(heir)
	if comesSoon(ctx, owner, heir, s.move.ID, s.move.Options.PauseLimit/4) != nil {
		return fmt.Sprintf("%d bytes of changes have still to come over", l.bytes), nil
	}
	return "", nil
}

// standbyBehind names a standby of the heir that does not get to disk in a moment what the heir has.
func (s *switching) standbyBehind(ctx context.Context) (string, error) {
	standbys, err := shard.AwaitStandbys(ctx, s.heir, s.move.Options.PauseLimit/4)
	s.followed = standbys.Any
	if err == nil && len(standbys.Behind) > 0 && s.r.state().Limits().MaxLag < 0 { // nobody is to wait for standbys
		s.followed = false
		return "", nil
	}
	if err != nil || len(standbys.Behind) == 0 {
		return "", err
	}
	return fmt.Sprintf("standby %s of shard %s does not have yet what has come over, and might take its place", standbys.Behind[0], s.to), nil
}

// switchStep is a step of a switch. What comes before the last one can be taken back.
type switchStep struct {
	name string
	run  func(*switching, context.Context) error
}

// switchSteps in their order.
var switchSteps = []switchStep{
	{"hold", (*switching).hold},
	{"settle", (*switching).settle},
	{"close", (*switching).fenceAndRecord},
	{"writers", (*switching).awaitWriters},
	{"pass", (*switching).mark},
	{"open", (*switching).open},
}

func (s *switching) attempt(ctx context.Context) error {
	free, isFree := s.r.mover.switches(s.from, s.to)
	if !isFree {
		s.r.say(ctx, otherSwitch, nil)
		s.r.sleep(ctx, 50*time.Millisecond)
		return nil
	}
	defer free()
	if !s.whole {
		if err := s.rehearseSteps(ctx); err != nil {
			return err
		}
	}
	if waiting, err := s.awaitQuiet(ctx); err != nil || waiting != "" {
		s.r.say(ctx, waiting, nil)
		return err
	}
	ended, wanted := s.r.holds()
	if !wanted {
		return errWished
	}
	defer ended()
	limited, cancel := context.WithTimeout(ctx, s.move.Options.PauseLimit)
	defer cancel()
	s.begun = time.Now()
	steps := switchSteps
	if s.whole {
		steps = wholeSteps
	}
	for _, step := range steps {
		started := time.Now()
		err := step.run(s, limited)
		s.steps = append(s.steps, Step{step.name, time.Since(started)})
		if err != nil {
			return s.failed(ctx, step.name, err)
		}
		failpoint.Hit("move.switch." + step.name)
	}
	held := time.Since(s.begun)
	s.r.mover.config.Metrics.Switched(held)
	if err := s.r.save(ctx, func(m *Move) {
		m.Passed = s.passed
		m.attempted(Attempt{At: s.begun.UTC(), Held: held, Steps: s.steps})
	}); err != nil {
		return err
	}
	return s.r.switched(ctx)
}

func (m *Move) attempted(a Attempt) {
	m.Switches = append(m.Switches, a)
	if len(m.Switches) > keptAttempts {
		m.Switches = m.Switches[len(m.Switches)-keptAttempts:]
	}
}

// failed takes an attempt back. Whether the last step was done is looked up: an answer may have been lost.
func (s *switching) failed(ctx context.Context, step string, cause error) error {
	if errors.Is(cause, store.ErrNotLeader) {
		return cause
	}
	reason := fmt.Sprintf("%s: %v", step, cause)
	ctx, cancel := outliving(ctx, lastPatience) // or statements would wait for the next leader when this process is told to end
	defer cancel()
	for {
		now, err := s.r.current(ctx)
		if err == nil {
			is, alike, _ := s.move.marked(now)
			if alike && is == s.turned() {
				if err = s.r.releaseWhole(ctx, now); err == nil {
					return s.r.switched(ctx)
				}
			} else {
				err = s.takeBack(ctx)
			}
		}
		if err == nil || errors.Is(err, store.ErrNotLeader) || errors.Is(err, errOtherMap) || ctx.Err() != nil {
			break
		}
		s.r.sleep(ctx, 50*time.Millisecond)
	}
	held := time.Since(s.begun)
	s.r.mover.config.Metrics.TakenBack(step, held)
	err := s.r.save(context.WithoutCancel(ctx), func(m *Move) {
		m.attempted(Attempt{At: s.begun.UTC(), Held: held, Failed: reason, Steps: s.steps})
	})
	return errors.Join(fmt.Errorf("the switch was taken back after %s: %s", held.Round(time.Millisecond), reason), err)
}

// lastPatience is for how long a process that is to end takes a switch back.
const lastPatience = 5 * time.Second

// outliving is a context that ends some time after another.
func outliving(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		doze(longer, d)
		cancel()
	})
	return longer, func() {
		stop()
		cancel()
	}
}

// takeBack lets everything be as it was before the switch: under newer versions, since those never go back.
func (s *switching) takeBack(ctx context.Context) error {
	now, err := s.r.current(ctx)
	if err != nil {
		return err
	}
	is, _, err := s.move.marked(now)
	if s.whole && err == nil {
		return s.takeBackWhole(ctx, now, is)
	}
	if err == nil && s.isClosing(is) {
		return s.tellHeir(ctx)
	}
	if err != nil || !is.held {
		return err
	}
	if is == s.closed() { // the source has to take rows again before anybody sends it some
		s.mayBeClosed = true
		if _, err = s.r.publish(ctx, s.holding(), nil, s.closed()); err != nil {
			return err
		}
	}
	next := s.before()
	if s.mayBeClosed { // the connections at hand may be what failed
		told, err := s.reopen(ctx)
		if err != nil {
			return err
		}
		if !told {
			next = s.closing()
		}
	}
	_, err = s.r.publish(ctx, next, nil, s.holding())
	return err
}

// reopen has the owner take rows again, and says whether the heir has heard of it too.
func (s *switching) reopen(ctx context.Context) (told bool, err error) {
	now, err := s.r.current(ctx)
	if err != nil {
		return false, err
	}
	err = both([2]string{s.from, s.to}, func(name string) error {
		if name == s.from {
			return s.r.on(ctx, name, func(ctx context.Context, conn *pgx.Conn) error {
				if err := shard.TakeBackSwitch(ctx, conn, s.move.ID); err != nil {
					return err
				}
				return s.r.record(ctx, conn, now, name)
			})
		}
		soon, cancel := context.WithTimeout(ctx, heirPatience)
		defer cancel()
		err := s.recordOn(soon, now, name)
		if told = err == nil; !told {
			s.r.mover.config.Logger.Warn("a shard was not told that a switch is taken back", "move", s.move.ID, "shard", name, "error", err)
		}
		return nil
	})
	return told, err
}

func (s *switching) recordOn(ctx context.Context, now *topology.Map, name string) error {
	return s.r.on(ctx, name, func(ctx context.Context, conn *pgx.Conn) error { return s.r.record(ctx, conn, now, name) })
}

// tellHeir goes on until the heir knows that it does not have the rows. By what it has recorded it shows its copy to statements that are not bound to keys, so routers keep those from it until then.
func (s *switching) tellHeir(ctx context.Context) error {
	for {
		now, err := s.r.current(ctx)
		if err == nil {
			soon, cancel := context.WithTimeout(ctx, heirPatience)
			err = s.recordOn(soon, now, s.to)
			cancel()
		}
		if err == nil {
			_, err = s.r.publish(ctx, s.before(), nil, s.closing())
		}
		if err == nil || isOver(err) || errors.Is(err, errOtherMap) || ctx.Err() != nil {
			return err
		}
		s.r.say(ctx, fmt.Sprintf("shard %s has to hear that it does not get the rows yet, and statements for all shards wait for that: %v", s.to, err), nil)
		if _, err := s.r.giveUp(ctx, s.from, s.slot); err != nil { // what becomes of the move is seen when this has ended
			s.r.mover.config.Logger.Debug("what is kept for a move was not measured", "move", s.r.id, "shard", s.from, "error", err)
		}
		s.r.sleep(ctx, heirPause)
	}
}

// heirPatience is how long statements are held for a shard that is to be told that it does not get the rows, and heirPause how long it is left alone between two tries to tell it later.
const (
	heirPatience = 2 * time.Second
	heirPause    = 200 * time.Millisecond
)

// before is what the map said before the switch. On the way back the copy is one that is leaving.
func (s *switching) before() mark {
	if s.move.RollsBack && !s.whole {
		return mark{owner: s.from, copyOn: s.to, state: topology.Leaving}
	}
	return s.announced()
}

// hold has routers hold back what is new.
func (s *switching) hold(ctx context.Context) (err error) {
	s.now, err = s.r.publish(ctx, s.holding(), []string{s.from, s.to}, s.before())
	return err
}

const (
	// mostHasty is how many attempts in a row are taken back soon, since a transaction has begun in a moment that was quiet, and another one is looked for. Then it is waited for.
	mostHasty = 3
	// settlesSoon is how long routers that have nothing to let go take at least, and publishings how many times longer than a map takes to be stored.
	settlesSoon, publishings = 15 * time.Millisecond, 5
)

// settlesWithin is how long routers may take to let go what ran before.
func (s *switching) settlesWithin(published time.Duration) time.Duration {
	most := s.move.Options.PauseLimit / 2
	if !s.quiet || s.move.hasty() >= mostHasty {
		return most
	}
	return min(most, max(settlesSoon, publishings*published))
}

// hasty is how many of the last attempts have not settled.
func (m *Move) hasty() (count int) {
	for _, a := range slices.Backward(m.Switches) {
		if !strings.HasPrefix(a.Failed, "settle: ") {
			break
		}
		count++
	}
	return count
}

// settle waits until routers have let go what ran before.
func (s *switching) settle(ctx context.Context) error {
	within := s.settlesWithin(time.Since(s.begun))
	patience, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ready, late, err := s.r.mover.config.Store.AwaitSettled(patience, s.now.Version())
	if err != nil {
		return err
	}
	s.settled = identifiers(ready)
	for _, router := range late {
		switch {
		case within < s.move.Options.PauseLimit/2 && !s.deaf[router.ID]:
			return fmt.Errorf("router %s has not settled at once", router.Name)
		case router.Applied >= s.now.Version():
			return fmt.Errorf("router %s has a transaction open on the tables", router.Name)
		case !s.deaf[router.ID]:
			return fmt.Errorf("router %s has not heard of it in time", router.Name)
		}
	}
	return nil
}

// fence ends the backends of routers that have not settled, and lets them back in when they have read the map.
func (s *switching) fence(ctx context.Context) error {
	return s.onBoth(func(conn *pgx.Conn, _ string) error {
		_, err := shard.RaiseMinimum(ctx, conn, s.now.Version(), s.settled)
		return err
	})
}

func (s *switching) recordBoth(ctx context.Context, now *topology.Map) error {
	return s.onBoth(func(conn *pgx.Conn, name string) error { return s.r.recordBetween(ctx, conn, now, name) })
}

func (s *switching) onBoth(work func(conn *pgx.Conn, name string) error) error {
	conns := map[string]*pgx.Conn{s.from: s.owner, s.to: s.heir}
	return both([2]string{s.from, s.to}, func(name string) error { return work(conns[name], name) })
}

// fenceAndRecord ends the backends of routers that have not settled, and has the owner refuse what it is about to lose.
func (s *switching) fenceAndRecord(ctx context.Context) (err error) {
	s.mayBeClosed = true
	minimum := s.now.Version()
	if s.now, err = s.r.publish(ctx, s.closed(), nil, s.holding()); err != nil {
		return err
	}
	failpoint.Hit("move.switch.published")
	return s.onBoth(func(conn *pgx.Conn, name string) error {
		err := s.closes[name].FenceAndRecord(ctx, conn, s.now, minimum, s.settled)
		var newer *shard.NewerError
		if errors.As(err, &newer) { // of something else: this move alone changes what the map says of its rows
			err = s.r.record(ctx, conn, s.now, name)
		}
		failpoint.Hit("move.switch.closed")
		return err
	})
}

// awaitWriters waits for those who write past the routers, and for transactions that are prepared.
func (s *switching) awaitWriters(ctx context.Context) error {
	return shard.AwaitWriters(ctx, s.owner, s.relations, s.settled)
}

// mark waits until everything has come over, and notes that on the heir: together with where its own changes begin, for the way back. Standbys have to have it too: one that took the heir's place later would lack rows that are on no other server then.
func (s *switching) mark(ctx context.Context) error {
	var err error
	if s.passed, err = shard.PassMark(ctx, s.owner, s.heir, s.move.ID, "switch "+time.Now().UTC().Format(time.RFC3339Nano), shard.ArrivedFrom(s.from), func() { failpoint.Hit("move.switch.marked") }); err != nil || !s.followed {
		return err
	}
	standbys, err := shard.AwaitStandbys(ctx, s.heir, s.move.Options.PauseLimit)
	if len(standbys.Behind) > 0 {
		return fmt.Errorf("standby %s of shard %q does not have it in time", standbys.Behind[0], s.to)
	}
	return err
}

// open gives the rows to their new owner.
func (s *switching) open(ctx context.Context) (err error) {
	s.now, err = s.r.publish(ctx, s.turned(), nil, s.closed())
	return err
}

// switched goes on after the owner has changed.
func (r *run) switched(ctx context.Context) error {
	next := Switched
	if r.state().RollsBack {
		next = Cleaning
	}
	return r.enter(ctx, next)
}
