package txn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/failpoint"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// How long recovery waits for those who may be about to do the same. None of it is needed to be right.
var (
	// courtesy is how long a router has to finish what it has decided.
	courtesy = failpoint.Duration("txn.courtesy", 3*time.Second)
	// overdue is how long a transaction may be prepared and undecided while the backend that can decide is there.
	overdue = failpoint.Duration("txn.overdue", 10*time.Second)
	// barrierOverdue is how long a reader may keep decisions waiting: a hundred times what it takes one whose router goes on.
	barrierOverdue = failpoint.Duration("txn.barrier", 5*time.Second)
	// oldest is how long a part may have been prepared to be rolled back for want of a decision.
	oldest = 24 * time.Hour
)

const (
	// shardTimeout bounds what is done on one shard in one round, and lookTimeout a look at it: one that hangs must not keep the others waiting.
	shardTimeout = 10 * time.Second
	lookTimeout  = 3 * time.Second
)

// Config says what [Recovery] works with.
type Config struct {
	// Map is the map in force, nil if there is none. Required.
	Map func() *topology.Map
	// Connect logs in to a shard's primary, as a role that owns the schema cleave. Required.
	Connect func(context.Context, topology.ShardSpec) (*pgx.Conn, error)
	// Logger hears what was resolved and what cannot be. Required.
	Logger *slog.Logger
}

// Recovery ends what transactions over several shards have left behind. Its methods are for one caller at a time.
type Recovery struct {
	config Config
	conns  map[int]*connection
	// said is what the log was last told of a transaction.
	said map[string]string
}

// connection is kept from round to round.
type connection struct {
	conn    *pgx.Conn
	address string
}

// NewRecovery returns one. It has to be closed.
func NewRecovery(config Config) *Recovery {
	return &Recovery{config: config, conns: map[int]*connection{}, said: map[string]string{}}
}

// Close gives the connections up.
func (r *Recovery) Close() {
	var closing sync.WaitGroup
	for _, c := range r.conns {
		closing.Go(func() { hangUp(c.conn) })
	}
	closing.Wait()
	r.conns = map[int]*connection{}
}

func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// looked is what one shard said.
type looked struct {
	shard    *topology.Shard
	conn     *pgx.Conn
	parts    []part
	timeline int
	err      error
}

// part is a prepared part of a transaction on one shard.
type part struct {
	prepared string // its name
	gid      string
	timeline int // that of its shard, when it was prepared
	owner    string
	direct   bool // it can be ended without becoming its owner
	age      time.Duration
	since    time.Time // when it was prepared, by this process's clock; no earlier than that
}

// Round looks at all shards once and ends what can be ended. An error is about shards that could not be looked at: the others were.
func (r *Recovery) Round(ctx context.Context) error {
	_, err := r.RoundFor(ctx, func(string) bool { return false })
	return err
}

// RoundFor is Round that has no patience with transactions of routers that are gone, and returns how many of their parts are left.
func (r *Recovery) RoundFor(ctx context.Context, gone func(router string) bool) (left int, err error) {
	m := r.config.Map()
	if m == nil {
		return 0, nil
	}
	looks := r.lookAll(ctx, m)
	failpoint.Hit("recover.listed")
	for _, look := range looks {
		r.endBarrier(ctx, look)
	}
	known := map[string]bool{}
	for _, t := range gather(looks) {
		known[t.gid] = true
		t.overdue = t.age >= overdue || gone(t.name.Router)
		r.outcome(ctx, t, looks)
		if parts := r.resolve(ctx, t, looks); gone(t.name.Router) {
			left += parts
		}
	}
	maps.DeleteFunc(r.said, func(gid, _ string) bool { return !known[gid] })
	for _, look := range looks {
		err = errors.Join(err, look.err)
	}
	return left, err
}

// lookAll lists what is prepared, on all shards at once.
func (r *Recovery) lookAll(ctx context.Context, m *topology.Map) map[int]*looked {
	looks := map[int]*looked{}
	for s := range m.Shards() {
		looks[s.Number()] = &looked{shard: s}
	}
	r.forgetOthers(looks)
	var running sync.WaitGroup
	var mu sync.Mutex // guards r.conns
	for _, look := range looks {
		running.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, lookTimeout)
			defer cancel()
			mu.Lock()
			kept := r.conns[look.shard.Number()]
			mu.Unlock()
			look.list(ctx, kept, r.config.Connect, Prefix(m.Cluster()))
			mu.Lock()
			defer mu.Unlock()
			if look.conn == nil {
				delete(r.conns, look.shard.Number())
				return
			}
			r.conns[look.shard.Number()] = &connection{look.conn, look.shard.Primary()}
		})
	}
	running.Wait()
	return looks
}

// forgetOthers closes connections to shards that are not in the map any more.
func (r *Recovery) forgetOthers(looks map[int]*looked) {
	for number, c := range r.conns {
		if look := looks[number]; look == nil || look.shard.Primary() != c.address || c.conn.IsClosed() {
			hangUp(c.conn)
			delete(r.conns, number)
		}
	}
}

// list asks one shard, over the connection that was kept or a new one.
func (l *looked) list(ctx context.Context, kept *connection, connect func(context.Context, topology.ShardSpec) (*pgx.Conn, error), prefix string) {
	if kept != nil {
		l.conn = kept.conn
	} else if l.conn, l.err = connect(ctx, l.shard.Spec()); l.err != nil {
		l.conn = nil
		return
	}
	if l.parts, l.timeline, l.err = listPrepared(ctx, l.conn, prefix); l.err == nil && l.timeline == 0 {
		l.err = errors.New("it is a replica")
	}
	if l.err != nil {
		hangUp(l.conn)
		l.conn, l.err = nil, fmt.Errorf("list prepared transactions on shard %q: %w", l.shard.Name(), l.err)
	}
}

// listPrepared lists what is prepared in the database under names of the cluster's, and tells the timeline.
func listPrepared(ctx context.Context, conn *pgx.Conn, prefix string) (parts []part, timeline int, err error) {
	const query = `
		SELECT p.gid, p.owner::text, greatest(extract(epoch FROM clock_timestamp() - p.prepared), 0)::float8,
		       p.owner = current_user OR (SELECT rolsuper FROM pg_roles WHERE rolname = current_user), cleave.timeline()
		FROM (SELECT 1) one LEFT JOIN pg_prepared_xacts p ON p.database = current_database() AND starts_with(p.gid, $1)
		ORDER BY p.prepared`
	rows, err := conn.Query(ctx, query, prefix)
	if err != nil {
		return nil, 0, err
	}
	var prepared, owner *string
	var age *float64
	var direct *bool
	_, err = pgx.ForEachRow(rows, []any{&prepared, &owner, &age, &direct, &timeline}, func() error {
		if prepared == nil {
			return nil
		}
		gid, partTimeline, err := splitPart(*prepared)
		if err != nil {
			return nil //nolint:nilerr // it is none of ours
		}
		old := time.Duration(*age * float64(time.Second))
		parts = append(parts, part{*prepared, gid, partTimeline, *owner, *direct, old, time.Now().Add(-old)})
		return nil
	})
	return parts, timeline, err
}

// endBarrier ends the session of a reader that keeps decisions waiting and whose router does not go on: it was stopped, or is cut off.
func (r *Recovery) endBarrier(ctx context.Context, look *looked) {
	if look.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	const query = `
		SELECT count(pg_terminate_backend(a.pid)) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE l.locktype = 'advisory' AND l.database = a.datid AND (l.classid::bigint, l.objid::bigint, l.objsubid) = (` + barrierKeys + `, 2) AND l.mode = 'ExclusiveLock' AND l.granted
		      AND a.datname = current_database() AND a.state IN ('idle', 'idle in transaction', 'idle in transaction (aborted)')
		      AND clock_timestamp() - a.state_change > make_interval(secs => $1)`
	var ended int
	err := look.conn.QueryRow(ctx, query, barrierOverdue.Seconds()).Scan(&ended)
	if err != nil || ended > 0 {
		r.config.Logger.Warn("a session kept transactions over several shards waiting and its router does not go on; it was ended", "shard", look.shard.Name(), "sessions", ended, "error", err)
	}
}

// transaction is what is known of one that is in doubt.
type transaction struct {
	gid  string
	name Name
	// parts by the number of the shard that has one.
	parts map[int]part
	// age is how old its oldest part was when it was seen, and since is when that was prepared.
	age   time.Duration
	since time.Time
	// overdue: nobody waits any longer for the backend that can decide.
	overdue bool
	// outcome is what the shard that decides says; unless it could not be asked, for which failure has the reason.
	outcome Outcome
	failure error
	// moved: a shard has changed its timeline since it prepared its part.
	moved bool
}

// gather puts the parts of each transaction together, the oldest first.
func gather(looks map[int]*looked) []*transaction {
	all := map[string]*transaction{}
	for number, look := range looks {
		for _, p := range look.parts {
			name, err := ParseName(p.gid)
			if err != nil {
				continue
			}
			t := all[p.gid]
			if t == nil {
				t = &transaction{gid: p.gid, name: name, parts: map[int]part{}, since: p.since}
				all[p.gid] = t
			}
			t.parts[number] = p
			t.age = max(t.age, p.age)
			if p.since.Before(t.since) {
				t.since = p.since
			}
			t.moved = t.moved || p.timeline != look.timeline
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *transaction) int { return int(b.age - a.age) })
}

// errNotInMap says that the shard that decides is gone.
var errNotInMap = errors.New("it is not in the map any more")

// outcome asks the shard that decides.
func (r *Recovery) outcome(ctx context.Context, t *transaction, looks map[int]*looked) {
	look := looks[t.name.Shard]
	switch {
	case look == nil:
		t.failure = errNotInMap
	case look.conn == nil:
		t.failure = look.err
	default:
		t.outcome, t.failure = outcomeOf(ctx, look.conn, t.gid)
	}
}

func outcomeOf(ctx context.Context, conn *pgx.Conn, gid string) (o Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, shardTimeout)
	defer cancel()
	var decision *string
	if err := conn.QueryRow(ctx, "SELECT alive, decision, timeline FROM cleave.outcome_of($1)", gid).Scan(&o.Alive, &decision, &o.Timeline); err != nil {
		return Outcome{}, fmt.Errorf("ask for the outcome: %w", err)
	}
	if decision != nil {
		o.Decision = Decision(*decision)
	}
	return o, nil
}

// verdict says what follows for the parts.
func (t *transaction) verdict() Verdict {
	if t.failure != nil {
		return Wait
	}
	verdict := t.outcome.Verdict(t.name, t.overdue)
	switch {
	case verdict == AbortFirst && (t.moved || t.age >= oldest):
		return AskPerson
	case verdict == CommitParts && t.outcome.Alive && t.age < courtesy && !t.overdue:
		return Wait // its router is there, and about to do it
	}
	return verdict
}

// resolve ends the parts of a transaction if it can, and returns how many are left.
func (r *Recovery) resolve(ctx context.Context, t *transaction, looks map[int]*looked) (left int) {
	verdict := t.verdict()
	if verdict == AbortFirst {
		verdict = r.abort(ctx, t, looks[t.name.Shard].conn)
	}
	switch verdict {
	case CommitParts:
		return r.end(ctx, t, looks, "COMMIT", "recover.committed")
	case RollBackParts:
		left = r.end(ctx, t, looks, "ROLLBACK", "recover.rolledback")
		r.endDecider(ctx, t, looks[t.name.Shard].conn)
		return left
	case AskPerson:
		r.say(t.gid, slog.LevelError, "a transaction over several shards is in doubt and has to be resolved by a person: see cleave.transactions", "age", t.age)
	case Wait, AbortFirst:
		if t.failure != nil && t.overdue {
			r.say(t.gid, slog.LevelWarn, "a transaction over several shards is in doubt, and the shard that decided it cannot be asked", "shard", t.name.Shard, "error", t.failure)
		}
	}
	return len(t.parts)
}

// abort writes the abort row, unless there is a commit row, and says what follows. One that is being written is waited for.
func (r *Recovery) abort(ctx context.Context, t *transaction, decider *pgx.Conn) Verdict {
	outcome, err := writeAbort(ctx, decider, t.gid)
	if err != nil {
		r.say(t.gid, slog.LevelWarn, "a transaction over several shards that nobody decides cannot be aborted yet; trying on", "error", err)
		return Wait
	}
	failpoint.Hit("recover.aborting")
	switch outcome.Decision {
	case Commit:
		return CommitParts
	case Abort:
		return RollBackParts
	case Undecided:
	}
	return Wait
}

// writeAbort makes sure that there is a row, and returns what it says. Only a decision on the same transaction keeps the row out.
func writeAbort(ctx context.Context, decider *pgx.Conn, gid string) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, shardTimeout)
	defer cancel()
	err := pgx.BeginFunc(ctx, decider, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '2s'"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO cleave.commits (gid, decides, participants, decision) VALUES ($1, true, '{}', 'abort') ON CONFLICT (gid) WHERE decides DO NOTHING", gid)
		return err
	})
	if err != nil {
		return Outcome{}, fmt.Errorf("write the abort row: %w", err)
	}
	outcome, err := outcomeOf(ctx, decider, gid)
	if err == nil && outcome.Decision == Undecided {
		err = errors.New("write the abort row: it is not there afterwards")
	}
	return outcome, err
}

// end commits the parts or rolls them back, and returns how many could not be.
func (r *Recovery) end(ctx context.Context, t *transaction, looks map[int]*looked, verb, point string) (left int) {
	for _, number := range slices.Sorted(maps.Keys(t.parts)) {
		look := looks[number]
		if err := endPart(ctx, look.conn, t.parts[number], verb); err != nil {
			left++
			r.say(t.gid, slog.LevelError, "a part of a transaction over several shards cannot be ended yet; trying on", "shard", look.shard.Name(), "command", verb+" PREPARED", "error", err)
			continue
		}
		r.config.Logger.Warn("a part of a transaction over several shards was left behind, and is ended", "shard", look.shard.Name(), "transaction", t.gid, "command", verb+" PREPARED", "age", t.age.Round(time.Millisecond))
		failpoint.Hit(point)
	}
	return left
}

// endPart ends one part, as its owner. One that is not there any more is ended.
func endPart(ctx context.Context, conn *pgx.Conn, p part, verb string) error {
	ctx, cancel := context.WithTimeout(ctx, shardTimeout)
	defer cancel()
	if !p.direct {
		if _, err := conn.Exec(ctx, "SET ROLE "+sqltext.QuoteIdentifier(p.owner)); err != nil {
			return fmt.Errorf("act as %q, who has prepared it (GRANT that role to the role of the control plane): %w", p.owner, err)
		}
		defer func() { _, _ = conn.Exec(context.WithoutCancel(ctx), "RESET ROLE") }()
	}
	_, err := conn.Exec(ctx, verb+" PREPARED "+sqltext.QuoteLiteral(p.prepared))
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "42704" {
		return nil
	}
	return err
}

// endDecider ends the backend that could have decided an aborted transaction, if it sits idle in it: nobody is there who ends it, and it has
// locks. It may be in another transaction by now, of another client even, so only one that was there when the first part was prepared counts.
func (r *Recovery) endDecider(ctx context.Context, t *transaction, decider *pgx.Conn) {
	if !t.outcome.Alive || !t.overdue {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, shardTimeout)
	defer cancel()
	const query = `
		SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE pid = $1 AND (extract(epoch FROM backend_start) * 1000000)::bigint = $2 AND state = 'idle in transaction' AND clock_timestamp() - xact_start > make_interval(secs => $3)`
	var ended int
	if err := decider.QueryRow(ctx, query, t.name.PID, t.name.Start, time.Since(t.since).Seconds()).Scan(&ended); err != nil {
		r.say(t.gid, slog.LevelWarn, "the session of an aborted transaction could not be ended", "error", err)
		return
	}
	if ended > 0 {
		r.config.Logger.Warn("the session of an aborted transaction whose router does not go on was ended", "transaction", t.gid, "shard", t.name.Shard, "pid", t.name.PID)
	}
	failpoint.Hit("recover.terminated")
}

// say tells the log something of a transaction, once for each thing.
func (r *Recovery) say(gid string, level slog.Level, message string, args ...any) {
	if r.said[gid] == message {
		return
	}
	r.said[gid] = message
	r.config.Logger.Log(context.Background(), level, message, append([]any{"transaction", gid}, args...)...)
}
