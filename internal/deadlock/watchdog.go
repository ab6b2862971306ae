package deadlock

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

const (
	// lookEvery is how long from one look at the sessions to the next, while there are any on several shards.
	lookEvery = 250 * time.Millisecond
	// firstPatience is how long a session waits before a shard is asked whose deadlock_timeout is not known yet.
	firstPatience = 100 * time.Millisecond
	// recordTimeout is how long etcd may take.
	recordTimeout = 2 * time.Second
	// cancelTimeout is how long a shard may take to cancel.
	cancelTimeout = 2 * time.Second
	// lookForGone is how long from one look for sessions whose clients are gone to the next, and goneAfter how long these may wait.
	lookForGone = time.Second
	goneAfter   = 3 * time.Second
)

// Sessions are a router's.
type Sessions interface {
	// Stirred has something to be received when there are sessions on several shards, and there were none.
	Stirred() <-chan struct{}
	// Waiting lists the sessions on several shards that have been waiting for an answer for longer than that; some says whether any session is
	// on several shards. Backends are in order.
	Waiting(longer time.Duration) (waiting []Session, some bool)
	// Gone lists sessions, on one shard or on several, that have been waiting for an answer for longer than that and whose clients have hung up.
	Gone(longer time.Duration) []Session
	// Sentence ends waits of a session: it calls cancel while the session keeps its backends and sends nothing, if it has all of these
	// now. If cancel says that something was cancelled, the client is told this error in place of the one that follows from it. A nil error means that the
	// statement has failed on another shard already, of which the client is told instead. byKey cancels what one of these backends does with the key that
	// its server gave it.
	Sentence(number uint32, of []Backend, because *pgerr.Error, cancel func(byKey func(context.Context, Backend) error) bool)
	// Cancel cancels what a session does, as its client may.
	Cancel(ctx context.Context, number uint32)
}

// Records are this router's in etcd, by their names.
type Records interface {
	// ExchangeWaits puts and removes records, and returns all that there are then: what was put, and the leader's verdicts.
	ExchangeWaits(ctx context.Context, put map[string]json.RawMessage, remove []string) (bodies, verdicts map[string]json.RawMessage, revision int64, err error)
	// AwaitVerdict returns when a record has changed after a revision, or may have, and at the latest after so long.
	AwaitVerdict(ctx context.Context, revision int64, limit time.Duration)
}

// WatchdogConfig says what a [Watchdog] works with. All but Logger is required.
type WatchdogConfig struct {
	// Router is this router's name.
	Router   string
	Sessions Sessions
	// Records returns this router's, nil while there are none to be had.
	Records func() Records
	// Map and Access say where the shards are.
	Map    func() *topology.Map
	Access shard.Access
	// Broken counts the circles that were broken by ending a session of this router's.
	Broken func()
	// Logger hears of them. Default: slog's.
	Logger *slog.Logger
}

// Watchdog sees to it that a router's sessions do not wait for ever.
type Watchdog struct {
	config WatchdogConfig
	shards shards
	// patience is the deadlock_timeout of each shard, as it was heard last.
	patience map[int]time.Duration
	// stored is what etcd had of this router's when it was last asked.
	stored   map[string]json.RawMessage
	revision int64
	broken   map[string]bool // verdicts that were carried out and are still stored
	lastGone time.Time
	silent   bool // that etcd does not answer has been said
}

// NewWatchdog returns one; nothing runs until [Watchdog.Run].
func NewWatchdog(c WatchdogConfig) *Watchdog {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Watchdog{config: c, shards: newShards(c.Access, c.Map), patience: map[int]time.Duration{}, broken: map[string]bool{}}
}

// Run watches until the context ends.
func (w *Watchdog) Run(ctx context.Context) {
	defer w.shards.connections.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.config.Sessions.Stirred():
		case <-timer.C:
		}
		next := w.watch(ctx)
		if records := w.config.Records(); len(w.stored) > 0 && records != nil {
			records.AwaitVerdict(ctx, w.revision, next)
			next = 0
		}
		timer.Reset(next)
	}
}

// watch looks once, and returns when to look again.
func (w *Watchdog) watch(ctx context.Context) time.Duration {
	if time.Since(w.lastGone) >= lookForGone {
		w.lastGone = time.Now()
		w.leaveGone(ctx)
	}
	before, some := w.config.Sessions.Waiting(firstPatience)
	before = slices.DeleteFunc(before, w.isEarly)
	if len(before) > 0 || len(w.stored) > 0 {
		w.look(ctx, before)
	}
	if some || len(w.stored) > 0 {
		return lookEvery
	}
	return lookForGone
}

// isEarly says whether a session cannot have waited for as long as the deadlock_timeout of a shard that it is on. One whose is not known is asked.
func (w *Watchdog) isEarly(s Session) bool {
	waited := time.Since(s.Sent)
	return !slices.ContainsFunc(s.Backends, func(b Backend) bool { return waited >= w.patience[b.Shard] })
}

// look asks the shards about sessions, records those that may be in a circle, and carries out verdicts.
func (w *Watchdog) look(ctx context.Context, sessions []Session) {
	seen := w.askShards(ctx, sessions)
	sessions = w.unmoved(sessions)
	records := map[string]*Transaction{}
	for _, s := range sessions {
		if t := w.suspect(s, seen); t != nil {
			records[strconv.FormatUint(uint64(s.Number), 10)] = t
		}
		w.endFailed(ctx, s, seen)
	}
	for id, verdict := range w.exchange(ctx, records) {
		w.carryOut(ctx, id, records[id], verdict)
	}
}

// askShards asks the sessions' shards how their backends are.
func (w *Watchdog) askShards(ctx context.Context, sessions []Session) map[int]look {
	pids := map[int][]int{}
	for _, s := range sessions {
		for _, b := range s.Backends {
			pids[b.Shard] = append(pids[b.Shard], int(b.PID))
		}
	}
	seen := map[int]look{}
	var mu sync.Mutex
	w.shards.each(ctx, keysOf(pids), func(ctx context.Context, conn *pgx.Conn, number int) error {
		one, err := ask(ctx, conn, pids[number])
		mu.Lock()
		defer mu.Unlock()
		if seen[number] = one; err == nil && one.patience > 0 {
			w.patience[number] = one.patience
		}
		return err
	})
	return seen
}

// unmoved are the sessions that are where they were, so that what the shards have said in between is about them.
func (w *Watchdog) unmoved(before []Session) []Session {
	now := map[uint32]Session{}
	waiting, _ := w.config.Sessions.Waiting(0)
	for _, s := range waiting {
		now[s.Number] = s
	}
	return slices.DeleteFunc(slices.Clone(before), func(s Session) bool {
		other, found := now[s.Number]
		return !found || s.Step != other.Step || !s.Began.Equal(other.Began) || !slices.Equal(s.Backends, other.Backends)
	})
}

// suspect returns what is to be recorded of a session: one of its backends has waited for long, and somebody waits for another one. nil: it is in no
// circle.
func (w *Watchdog) suspect(s Session, seen map[int]look) *Transaction {
	t := &Transaction{Router: w.config.Router, Number: s.Number, Began: s.Began.UTC()}
	var waiting, awaited []Process
	for _, b := range s.Backends {
		process := Process{b.Shard, int(b.PID)}
		state, found := seen[b.Shard].backends[process.PID]
		if !found || state.virtual == "" {
			continue
		}
		leg := Leg{Process: process, Virtual: state.virtual, Quiet: b.Quiet, Read: b.Read}
		if state.waits() {
			leg.Waits = &state.since
		}
		if state.long {
			waiting = append(waiting, process)
		}
		if state.awaited {
			awaited = append(awaited, process)
		}
		t.Legs = append(t.Legs, leg)
	}
	for _, out := range waiting {
		if slices.ContainsFunc(awaited, func(in Process) bool { return in != out }) {
			slices.SortFunc(t.Legs, func(a, b Leg) int { return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.PID, b.PID)) })
			return t
		}
	}
	return nil
}

// exchange lets etcd have these records and no others, and returns the verdicts on them.
func (w *Watchdog) exchange(ctx context.Context, records map[string]*Transaction) map[string]*Verdict {
	put, bodies := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	for id, t := range records {
		body, err := t.Encode()
		if err != nil {
			continue // it can always be encoded
		}
		if bodies[id] = body; !bytes.Equal(w.stored[id], body) {
			put[id] = body
		}
	}
	var remove []string
	for id := range w.stored {
		if records[id] == nil {
			remove = append(remove, id)
		}
	}
	if len(records) == 0 && len(remove) == 0 {
		return nil
	}
	to := w.config.Records()
	if to == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	stored, judged, revision, err := to.ExchangeWaits(limited, put, remove)
	if err != nil {
		if !w.silent && ctx.Err() == nil {
			w.config.Logger.Warn("etcd does not take what waits for locks on several shards; deadlocks across shards stay until it does", "error", err)
		}
		w.silent = true
		return nil
	}
	w.stored, w.revision, w.silent = stored, revision, false
	verdicts := map[string]*Verdict{}
	for id, encoded := range judged {
		if verdict, err := DecodeVerdict(encoded); err == nil && bytes.Equal(stored[id], bodies[id]) { // else it is about something else
			verdicts[id] = verdict
		}
	}
	for id := range w.broken {
		if verdicts[id] == nil {
			delete(w.broken, id)
		}
	}
	return verdicts
}

// carryOut ends the waits of a victim.
func (w *Watchdog) carryOut(ctx context.Context, id string, t *Transaction, verdict *Verdict) {
	failure := pgerr.New(pgerr.DeadlockDetected, "deadlock detected").WithDetail("%s", verdict.Detail).
		WithHint("Run the transaction again. Transactions that lock the same rows in the same order do not wait for each other in a circle.")
	ended := w.end(ctx, t.Number, verdict.Waits, failure)
	if ended == 0 || w.broken[id] {
		return
	}
	w.broken[id] = true
	w.config.Broken()
	w.config.Logger.Warn("a deadlock across shards is broken by ending a transaction", "session", t.Number, "waits", verdict.Detail)
}

// endFailed ends the waits of a statement that has failed on another shard already: the router reads one shard after the other, and would wait for a lock
// before it hears of it.
func (w *Watchdog) endFailed(ctx context.Context, s Session, seen map[int]look) {
	failed := false
	var waits []Wait
	for _, b := range s.Backends {
		state := seen[b.Shard].backends[int(b.PID)]
		failed = failed || state.hasFailed() && b.Owes
		if state.long {
			waits = append(waits, Wait{Process{b.Shard, int(b.PID)}, state.virtual, state.since})
		}
	}
	if failed && len(waits) > 0 {
		w.end(ctx, s.Number, waits, nil)
	}
}

// end cancels waits of a session that last, and returns how many.
func (w *Watchdog) end(ctx context.Context, number uint32, waits []Wait, because *pgerr.Error) (ended int) {
	ctx, stop := context.WithTimeout(ctx, cancelTimeout)
	defer stop()
	of := make([]Backend, len(waits))
	for i, wait := range waits {
		of[i] = Backend{Shard: wait.Shard, PID: uint32(wait.PID)} //nolint:gosec // a process
	}
	w.config.Sessions.Sentence(number, of, because, func(byKey func(context.Context, Backend) error) bool {
		for i, wait := range waits {
			was, err := w.cancel(ctx, wait, func() error { return byKey(ctx, of[i]) })
			if err != nil {
				w.config.Logger.Warn("a wait for a lock could not be ended", "session", number, "shard", w.shards.name(wait.Shard), "error", err)
			}
			if was {
				ended++
			}
		}
		return ended > 0
	})
	return ended
}

// cancel lets the shard cancel a wait if it lasts, or does it with the backend's own key where it may not.
func (w *Watchdog) cancel(ctx context.Context, wait Wait, byKey func() error) (was bool, err error) {
	err = w.shards.ask(ctx, wait.Shard, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if was, err = cancelWait(ctx, conn, wait); !errors.Is(err, errNotPermitted) {
			return err
		}
		if was, err = stillWaits(ctx, conn, wait); was {
			err = byKey()
		}
		return err
	})
	return was, err
}

// leaveGone cancels what sessions do whose clients are gone, if they wait for a lock.
func (w *Watchdog) leaveGone(ctx context.Context) {
	gone := w.config.Sessions.Gone(goneAfter)
	if len(gone) == 0 {
		return
	}
	seen := w.askShards(ctx, gone)
	for _, s := range gone {
		if slices.ContainsFunc(s.Backends, func(b Backend) bool { return seen[b.Shard].backends[int(b.PID)].long }) {
			limited, cancel := context.WithTimeout(ctx, cancelTimeout)
			w.config.Sessions.Cancel(limited, s.Number)
			cancel()
		}
	}
}
