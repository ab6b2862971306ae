package reshard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/failpoint"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// run is the carrying out of one move by one leader.
type run struct {
	mover      *Mover
	leadership *store.Leadership
	id         string

	leading sync.Mutex
	leads   map[string]bool // the shards that know that this process carries the move out

	// unheld: whoever applies changes has stopped, for which it may have a reason that it had to wait, such as a lock_timeout. It does not have to any more.
	unheld atomic.Bool

	mu      sync.Mutex // guards what follows
	move    *Move
	heard   Wish
	heardN  int64 // the wish's revision
	obeyedN int64 // that of one that was obeyed, and has still to be forgotten: a later leader would hear it again
	end     context.CancelCauseFunc
	holding bool // statements are held
	woken   chan struct{}
	savedAt time.Time          // when the move was stored last
	deaf    map[string]absence // since when a router has not heard of the map, by ID
	// waitsInside: the phase waits by itself while the move is paused.
	waitsInside bool

	// toldSides is since when the move has been in the phase in which both sides have recorded the map.
	toldSides time.Time
}

// absence is since when something has been so, and when somebody looked last.
type absence struct{ since, seen time.Time }

// lookedLately is how long ago somebody must have looked so that what is so now has been so all the while.
const lookedLately = 10 * time.Second

// deafSince is since when a router has not heard of the map that is in force; zero if it has.
func (r *run) deafSince(router string, hears bool) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if hears {
		delete(r.deaf, router)
		return time.Time{}
	}
	if r.deaf == nil {
		r.deaf = map[string]absence{}
	}
	is, now := r.deaf[router], time.Now()
	if now.Sub(is.seen) > lookedLately {
		is.since = now
	}
	is.seen = now
	r.deaf[router] = is
	return is.since
}

func newRun(v *Mover, l *store.Leadership, m *Move) *run {
	m.Options = m.Options.withDefaults()
	return &run{mover: v, leadership: l, id: m.ID, move: m, leads: map[string]bool{}, woken: make(chan struct{}, 1)}
}

// hear takes a wish in, if there is one. What is under way ends for one that cannot wait.
func (r *run) hear(said store.Wish) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if said.Revision <= r.heardN {
		return
	}
	wish := Wish(said.Text)
	r.heard, r.heardN = wish, said.Revision
	if r.end != nil && r.interrupts(wish) {
		r.end(errWished)
	}
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// interrupts says whether a wish ends what is under way. A switch that has begun to hold statements ends by itself, one way or the other. The caller has the lock.
func (r *run) interrupts(wish Wish) bool {
	switch {
	case r.holding:
		return false
	case r.move.Phase.mayCancel():
		return wish == Cancel || wish == Pause && !r.waitsInside
	default:
		return r.move.Phase.switches() && (wish == Cancel || wish == Pause || wish == Finish)
	}
}

// holds notes that statements begin to be held, unless somebody does not want that any more; and that they are not, with the function that it returns.
func (r *run) holds() (end func(), wanted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.heard != "" && r.interrupts(r.heard) {
		return nil, false
	}
	r.holding = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.holding = false
	}, true
}

// state is the move as it is now.
func (r *run) state() *Move {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.move
}

// pauses between attempts.
const (
	firstPause   = 500 * time.Millisecond
	longestPause = 30 * time.Second
)

// carryOut goes from phase to phase until the move has ended, or the context does.
func (r *run) carryOut(ctx context.Context) {
	logger := r.mover.config.Logger.With("move", r.id)
	for ctx.Err() == nil {
		if err := r.obey(ctx); isOver(err) {
			return
		} else if err != nil {
			r.sleep(ctx, firstPause)
			continue
		}
		if r.state().Phase.HasEnded() {
			logger.Info("a move has ended", "phase", r.state().Phase)
			r.mover.config.Metrics.Ended(string(r.state().Phase))
			return
		}
		if r.waits() {
			if err := r.rest(ctx); isOver(err) {
				return
			}
			r.sleep(ctx, longestPause)
			continue
		}
		phase := r.state().Phase
		err := r.attempt(ctx)
		switch {
		case ctx.Err() != nil || isOver(err):
			return
		case err == nil:
			if r.state().Phase != phase {
				logger.Info("a move goes on", "phase", r.state().Phase)
			}
			r.sleep(ctx, 0)
		case errors.Is(err, errWished):
		default:
			r.failed(ctx, err)
			logger.Warn("a step of a move has failed", "phase", phase, "error", err)
			r.sleep(ctx, min(firstPause<<min(r.state().Failures, 10), longestPause))
		}
	}
}

// isOver says whether the run has nothing more to say: somebody else leads, or the move is stored otherwise than the run knows it. If it is still to be carried out, another run begins with what is stored.
func isOver(err error) bool {
	return errors.Is(err, store.ErrNotLeader) || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNoJob)
}

// waits says whether the move goes no further until somebody says so.
func (r *run) waits() bool {
	return (r.state().Paused || r.state().Stopped != "") && r.state().Phase != Cancelling
}

// attempt runs one phase, and ends it when somebody wants something else.
func (r *run) attempt(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	r.mu.Lock()
	wished := r.heard != "" && r.interrupts(r.heard) // since it was last obeyed
	r.end = cancel
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.end = nil
		r.mu.Unlock()
		cancel(nil)
	}()
	if wished {
		return errWished
	}
	err := r.phase(ctx)
	if errors.Is(err, errElsewhere) {
		return nil
	}
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errWished) {
		return errWished
	}
	var final *stopped
	if err == nil || isOver(err) || errors.Is(err, errWished) || errors.As(err, &final) || ctx.Err() != nil {
		return err
	}
	switch kept := r.staysKept(ctx); { // what has failed may be tried for long, while one of the servers is away
	case errors.Is(kept, errElsewhere):
		return nil
	case isOver(kept):
		return kept
	default:
		return err
	}
}

func (r *run) phase(ctx context.Context) error {
	if r.state().Forgotten {
		return r.depart(ctx)
	}
	switch r.state().Phase {
	case Asked:
		failpoint.Hit("move.asked")
		return r.enter(ctx, Checking)
	case Checking:
		return r.check(ctx)
	case Preparing:
		return r.prepare(ctx)
	case Announcing:
		return r.announce(ctx)
	case Copying:
		return r.copy(ctx)
	case CatchingUp:
		return r.catchUp(ctx)
	case Verifying:
		return r.verify(ctx)
	case Ready:
		return r.ready(ctx)
	case Switching, RollingBack:
		return r.switchOver(ctx)
	case Switched:
		return r.keep(ctx)
	case Cleaning:
		return r.clean(ctx)
	case Cancelling:
		return r.cancel(ctx)
	default:
		return stop("phase %q is not known to this version", r.state().Phase)
	}
}

// obey does what somebody wants, if anybody does.
func (r *run) obey(ctx context.Context) error {
	if err := r.forgetWish(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	wish, revision := r.heard, r.heardN
	r.mu.Unlock()
	if wish == "" {
		return nil
	}
	grant := func(m *Move) { m.grant(wish) }
	if late, err := r.isTooLate(ctx, wish); err != nil {
		return err
	} else if late {
		grant = func(m *Move) { m.Error = fmt.Sprintf("it was asked to %s, and the owner had changed by then", wish) }
	}
	if err := r.save(ctx, grant); err != nil {
		return err
	}
	r.mu.Lock()
	if r.obeyedN = revision; r.heardN == revision {
		r.heard = ""
	}
	r.mu.Unlock()
	return r.forgetWish(ctx)
}

// forgetWish removes the wish that was obeyed last.
func (r *run) forgetWish(ctx context.Context) error {
	r.mu.Lock()
	revision := r.obeyedN
	r.mu.Unlock()
	if revision == 0 {
		return nil
	}
	err := r.mover.config.Store.ForgetWish(ctx, r.id, revision)
	if err == nil {
		r.mu.Lock()
		r.obeyedN = 0
		r.mu.Unlock()
	}
	return err
}

// isTooLate prepares to end a switch that somebody does not want any more: what is held is let go first. It says whether the owner has changed already.
func (r *run) isTooLate(ctx context.Context, wish Wish) (bool, error) {
	move := r.state()
	if !move.Phase.switches() || wish != Cancel && wish != Pause && wish != Finish {
		return false, nil
	}
	now, err := r.current(ctx)
	if err != nil {
		return false, err
	}
	is, alike, err := move.marked(now)
	if err != nil || !alike {
		return false, err
	}
	if is == move.course().turned() {
		return true, nil
	}
	return false, r.letGo(ctx)
}

// letGo takes back what holds statements, if anything does.
func (r *run) letGo(ctx context.Context) error {
	move := r.state()
	s := &switching{r: r, move: move, course: move.course(), mayBeClosed: true}
	return s.takeBack(ctx)
}

// rest sees that a move that goes no further harms nobody: it holds nothing, and the servers do not keep changes for it without an end.
func (r *run) rest(ctx context.Context) error {
	move := r.state()
	if move.Phase.switches() {
		if err := r.letGo(ctx); err != nil {
			return err
		}
	}
	if move.Phase == Copying && !move.Copied {
		if move.Paused {
			r.say(ctx, "the copy begins anew when it is resumed", nil)
		}
		return r.carryNothing(ctx)
	}
	if err := r.staysKept(ctx); !errors.Is(err, errElsewhere) {
		return err
	}
	return nil
}

// carryNothing removes what carries changes in either direction, but not what says which.
func (r *run) carryNothing(ctx context.Context) error {
	move := r.state()
	return errors.Join(
		r.dropSubscription(ctx, move.Target, move.forward()), r.dropSlot(ctx, move.Source, move.forward()),
		r.dropSubscription(ctx, move.Source, move.back()), r.dropSlot(ctx, move.Target, move.back()))
}

// grant changes the move as somebody wishes; one that comes at the wrong time is answered with an error.
func (m *Move) grant(wish Wish) {
	m.Error = ""
	switch {
	case m.Forgotten: // it ends
	case wish == Pause && (m.Phase.mayCancel() || m.Phase == Switching):
		m.Paused = true
	case wish == Resume:
		m.Resumed = m.Stopped != ""
		m.Paused, m.Stopped, m.Failures, m.Refusals = false, "", 0, 0
	case wish == Cancel && (m.Phase.mayCancel() || m.Phase == Switching):
		m.goTo(Cancelling)
		m.Paused, m.Stopped = false, ""
	case (wish == Cancel || wish == Finish) && m.Phase == RollingBack: // the rows stay where they are
		m.RollsBack, m.FinishNow, m.Stopped = false, m.FinishNow || wish == Finish, ""
		m.goTo(Switched)
	case wish == Switch && m.Stopped != "": // or it would switch by itself when it is resumed, whatever has been found since
		m.Error = "it was asked to switch, and has stopped: resume it first"
	case wish == Switch && m.Phase.mayCancel():
		m.SwitchNow, m.Paused = true, false
	case wish == RollBack && m.Phase == Switched && m.WayBack:
		m.RollsBack, m.Passed = true, ""
		m.goTo(RollingBack)
	case wish == Finish && m.Phase == Switched:
		m.FinishNow = true
	case wish == Finish && m.Phase == Cleaning && m.Lacks: // somebody has seen to what the owner lacked
		m.Arrived, m.Lacks, m.Stopped = true, false, ""
	default:
		m.Error = fmt.Sprintf("it was asked to %s, which cannot be done in phase %q", wish, m.Phase)
	}
}

func (m *Move) goTo(p Phase) {
	now := time.Now().UTC()
	m.Phase, m.Since, m.Waiting, m.Error, m.Failures, m.Refusals = p, now, "", m.NoWayBack, 0, 0
	if p.HasEnded() {
		m.Ended = now
	}
}

// enter begins a phase.
func (r *run) enter(ctx context.Context, p Phase) error {
	return r.save(ctx, func(m *Move) { m.goTo(p) })
}

// storePatience is how long the store may take to store a move.
const storePatience = 10 * time.Second

// save changes the move and stores it. Only the leader can.
func (r *run) save(ctx context.Context, change func(*Move)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, before := *r.move, r.move.Phase
	next.Tables, next.Switches, next.Identities = slices.Clone(next.Tables), slices.Clone(next.Switches), slices.Clone(next.Identities)
	change(&next)
	job, err := next.job()
	if err != nil {
		return err
	}
	// What is cut off may have been stored all the same, and the run would know another move than everybody else.
	storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), storePatience)
	defer cancel()
	stored, err := r.leadership.UpdateJob(storing, job)
	if err != nil {
		return err
	}
	next.revision = stored.Revision
	r.move, r.savedAt = &next, time.Now()
	if next.Phase != before {
		failpoint.Hit("move." + strings.ReplaceAll(string(next.Phase), " ", "-"))
	}
	return nil
}

// say notes what the move waits for, if that is new or some time has passed.
func (r *run) say(ctx context.Context, waiting string, more func(*Move)) {
	r.mu.Lock()
	due := r.move.Waiting != waiting || more != nil && time.Since(r.savedAt) >= time.Second
	r.mu.Unlock()
	if !due {
		return
	}
	_ = r.save(ctx, func(m *Move) { // it is only told
		m.Waiting = waiting
		if more != nil {
			more(m)
		}
	})
}

// failed notes what has failed. What does not get better by itself stops the move.
func (r *run) failed(ctx context.Context, err error) {
	var final *stopped
	_ = r.save(ctx, func(m *Move) { // or it is noted the next time
		m.Error, m.FailedAt, m.Waiting = err.Error(), time.Now().UTC(), ""
		if m.Again != "" {
			m.Error = "it copies anew, because " + m.Again + ", and cannot: " + m.Error
		}
		m.Failures++
		if errors.As(err, &final) {
			m.Stopped = final.reason
		}
	})
	if final != nil {
		r.mover.config.Metrics.Stopped()
	}
}

// sleep waits, less long if there is a wish.
func (r *run) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.woken:
	case <-ctx.Done():
	}
}

// current is the newest map.
func (r *run) current(ctx context.Context) (*topology.Map, error) {
	return r.mover.config.Store.Map(ctx)
}

// on runs work with a connection to a shard.
func (r *run) on(ctx context.Context, name string, work func(context.Context, *pgx.Conn) error) error {
	now, err := r.current(ctx)
	if err != nil {
		return err
	}
	conn, err := r.connect(ctx, now, name)
	if err != nil {
		return err
	}
	defer closeQuietly(conn)
	return work(ctx, conn)
}

// everywhere runs work on all shards that the newest map has, those that join meanwhile included, but for those on which it is done already.
func (r *run) everywhere(ctx context.Context, done map[int]bool, work func(ctx context.Context, conn *pgx.Conn, name string) error) error {
	for again := true; again; {
		now, err := r.current(ctx)
		if err != nil {
			return err
		}
		again = false
		for s := range now.Shards() {
			name := s.Name()
			if done[s.Number()] { // a name may come back
				continue
			}
			again = true
			if err := r.on(ctx, name, func(ctx context.Context, conn *pgx.Conn) error { return work(ctx, conn, name) }); err != nil {
				newest, unread := r.current(ctx)
				if unread != nil || newest.Shard(name) != nil && newest.Shard(name).Number() == s.Number() { // else it was removed
					return err
				}
			}
			done[s.Number()] = true
		}
	}
	return nil
}

// connect logs in to a shard, for work that may take long.
func (r *run) connect(ctx context.Context, now *topology.Map, name string) (*pgx.Conn, error) {
	return r.connectWith(ctx, now, name, "")
}

// connectWith logs in with more settings than the usual ones.
func (r *run) connectWith(ctx context.Context, now *topology.Map, name, settings string) (*pgx.Conn, error) {
	conn, err := r.mover.connect(ctx, now, name, shard.Application(r.application(), r.leadership.Token()), settings)
	if err != nil {
		return nil, err
	}
	if err := r.lead(ctx, conn, name); err != nil {
		closeQuietly(conn)
		return nil, err
	}
	return conn, nil
}

// longSessions lets a copy take as long as it does. Not all servers know transaction_timeout.
const longSessions = "SELECT set_config('idle_session_timeout', '0', false), CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL THEN set_config('transaction_timeout', '0', false) END; "

// connect logs in to a shard under a name, with more settings than the usual ones.
func (v *Mover) connect(ctx context.Context, now *topology.Map, name, application, settings string) (*pgx.Conn, error) {
	s := now.Shard(name)
	if s == nil {
		return nil, stop("shard %q is not in the shard map", name)
	}
	conn, err := v.config.Access.ConnectAs(ctx, s.Spec(), application)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; "+longSessions+settings); err != nil {
		closeQuietly(conn)
		return nil, err
	}
	return conn, nil
}

// application is what the move's connections are called, before their leader's number.
func (r *run) application() string { return "cleave/move " + r.id }

// lead has a shard know that this process carries the move out, before it does anything there: who did so before may have slept, and would go on deleting or copying rows that have another owner by now. If the shard knows of a later leader, this is the one that has slept.
func (r *run) lead(ctx context.Context, conn *pgx.Conn, name string) error {
	r.leading.Lock()
	defer r.leading.Unlock()
	if !r.leads[name] {
		stillLeads := func() error { return r.save(ctx, func(*Move) {}) }
		if err := stillLeads(); err != nil {
			return err
		}
		if err := shard.EndOthers(ctx, conn, r.application(), r.leadership.Token()); err != nil { // one of them may have locked what is needed now
			return err
		}
		if _, _, err := shard.Install(ctx, conn); err != nil {
			return err
		}
		if err := shard.TakeLead(ctx, conn, r.id, r.application(), r.leadership.Token(), stillLeads); err != nil {
			return err
		}
		if err := r.noteOn(ctx, conn); err != nil {
			return err
		}
		r.leads[name] = true
	}
	leads, err := shard.Leads(ctx, conn, r.id, r.leadership.Token())
	if err == nil && !leads {
		return store.ErrNotLeader
	}
	return err
}

// noMoreLead removes all that the move has noted on a shard. Nothing may be done there after it.
func (r *run) noMoreLead(ctx context.Context, conn *pgx.Conn, name string) error {
	r.leading.Lock()
	defer r.leading.Unlock()
	r.leads[name] = false
	return shard.DropMarks(ctx, conn, r.id)
}

func closeQuietly(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // nothing is lost with it
}

// record has a shard record the newest map, which says of the move what was just published, or something later.
func (r *run) record(ctx context.Context, conn *pgx.Conn, now *topology.Map, name string) error {
	return r.byNewest(ctx, now, name, func(now *topology.Map) error {
		_, err := shard.Record(ctx, conn, now, name)
		return err
	})
}

// recordBetween has a shard record the newest map, but not in the middle of another move's switch, for which statements are held.
func (r *run) recordBetween(ctx context.Context, conn *pgx.Conn, now *topology.Map, name string) error {
	return r.byNewest(ctx, now, name, func(now *topology.Map) error {
		for began := time.Now(); r.mover.IsSwitching(name) && time.Since(began) < switchPatience && ctx.Err() == nil; {
			r.sleep(ctx, 10*time.Millisecond)
		}
		_, err := shard.Record(ctx, conn, now, name)
		return err
	})
}

// switchPatience is for how long a record waits for another move's switch, which may not end while a server is away.
const switchPatience = 5 * time.Second

// byNewest does what a shard takes by the newest map alone: others, such as another move, may have had it record one since.
func (r *run) byNewest(ctx context.Context, now *topology.Map, name string, work func(*topology.Map) error) error {
	for range 10 {
		err := work(now)
		var newer *shard.NewerError
		if !errors.As(err, &newer) {
			return err
		}
		if now, err = r.current(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("the shard map changes too often for shard %q to follow it", name)
}

// both runs work on the source and on the target at once.
func both(names [2]string, work func(name string) error) error {
	var errs [2]error
	var running sync.WaitGroup
	for i, name := range names {
		running.Go(func() { errs[i] = work(name) })
	}
	running.Wait()
	return errors.Join(errs[:]...)
}

func (m *Move) sides() [2]string { return [2]string{m.Source, m.Target} }
