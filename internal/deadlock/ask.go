package deadlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// look is how the backends of one shard were at one moment: those that waited for a lock, and those that were asked for.
type look struct {
	backends map[int]backend // by process
	// patience is the shard's deadlock_timeout.
	patience time.Duration
}

// backend is how one was.
type backend struct {
	virtual string // its virtual transaction; empty: it has no locks
	// since is when it began to wait for a lock; zero: it does not. long: for the shard's deadlock_timeout.
	since time.Time
	long  bool
	// lock is what it waits for, in words; xid the transaction whose end it waits for, if it is that.
	lock, xid string
	// own is its top-level transaction, empty if it has written nothing. awaited: somebody waits for something that it has, or wants before them.
	own     string
	awaited bool
	// state and event are what it does, changed since when; empty where the asking role may not know.
	state, event string
	changed      time.Time
}

func (b backend) waits() bool { return !b.since.IsZero() }

// sameWait says whether it is one wait that two looks have seen.
func (b backend) sameWait(other backend) bool {
	return b.waits() && b.virtual == other.virtual && b.since.Equal(other.since)
}

// isIdle says whether two looks have seen a backend that did nothing in between.
func (b backend) isIdle(other backend) bool {
	return b.state == "idle in transaction" && other.state == b.state && b.virtual == other.virtual && !b.changed.IsZero() && b.changed.Equal(other.changed)
}

// hasFailed says whether its transaction has: it waits to be rolled back.
func (b backend) hasFailed() bool { return b.state == "idle in transaction (aborted)" }

// isStuck says whether it cannot send its rows.
func (b backend) isStuck() bool { return b.state == "active" && b.event == "ClientWrite" }

// lookSQL has a row for every backend that waits, or was asked for. A lock is told apart by all that names it; that of a
// transaction's own number is held by it alone, and the oldest number of a backend is the top-level one's. A wait without its beginning has
// only just begun.
const lookSQL = `
	WITH locks AS (
		SELECT pid, virtualtransaction, granted, waitstart, locktype, mode, transactionid,
		       ROW(locktype, database, relation, page, tuple, virtualxid, transactionid, classid, objid, objsubid)::text AS tag,
		       mode || ' on ' || CASE locktype
		           WHEN 'relation' THEN 'relation ' || relation::regclass::text
		           WHEN 'tuple' THEN 'tuple (' || page || ',' || tuple || ') of relation ' || relation::regclass::text
		           WHEN 'transactionid' THEN 'transaction ' || transactionid::text
		           WHEN 'virtualxid' THEN 'virtual transaction ' || virtualxid
		           WHEN 'advisory' THEN 'advisory lock [' || concat_ws(',', database, classid, objid, objsubid) || ']'
		           ELSE concat_ws(' ', locktype, relation::regclass::text, classid, objid)
		       END AS words
		FROM pg_locks WHERE NOT granted OR pid = ANY($1)
	), wanted AS (SELECT tag, count(*) AS waiting FROM locks WHERE NOT granted GROUP BY tag)
	SELECT b.pid, coalesce(max(l.virtualtransaction), ''), max(l.waitstart) FILTER (WHERE NOT l.granted),
	       coalesce(bool_or(l.waitstart + p.patience <= clock_timestamp()) FILTER (WHERE NOT l.granted), false),
	       coalesce(max(l.words) FILTER (WHERE NOT l.granted), ''), coalesce(max(l.transactionid::text) FILTER (WHERE NOT l.granted AND l.locktype = 'transactionid'), ''),
	       coalesce((array_agg(l.transactionid::text ORDER BY age(l.transactionid) DESC) FILTER (WHERE l.granted AND l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock'))[1], ''),
	       coalesce(bool_or(w.waiting > CASE WHEN l.granted THEN 0 ELSE 1 END), false),
	       coalesce(max(a.state), ''), coalesce(max(a.wait_event), ''), max(a.state_change), extract(epoch FROM max(p.patience))::float8
	FROM (SELECT pid FROM locks UNION SELECT unnest($1)) b CROSS JOIN (SELECT current_setting('deadlock_timeout')::interval AS patience) p
	LEFT JOIN locks l ON l.pid = b.pid LEFT JOIN wanted w ON w.tag = l.tag LEFT JOIN pg_stat_activity a ON a.pid = b.pid
	GROUP BY b.pid`

// ask looks at a shard.
func ask(ctx context.Context, conn *pgx.Conn, pids []int) (look, error) {
	seen := look{backends: map[int]backend{}}
	rows, err := conn.Query(ctx, lookSQL, pids)
	if err != nil {
		return seen, fmt.Errorf("ask who waits: %w", err)
	}
	var pid int
	var b backend
	var since, changed *time.Time
	var patience float64
	_, err = pgx.ForEachRow(rows, []any{&pid, &b.virtual, &since, &b.long, &b.lock, &b.xid, &b.own, &b.awaited, &b.state, &b.event, &changed, &patience}, func() error {
		b.since, b.changed = timeOf(since), timeOf(changed)
		seen.backends[pid], seen.patience = b, time.Duration(patience*float64(time.Second))
		return nil
	})
	if err != nil {
		return seen, fmt.Errorf("ask who waits: %w", err)
	}
	return seen, nil
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// askBlockers asks who is in the way of backends that wait, and in the way of those, and so on; deep: or of them alone.
func askBlockers(ctx context.Context, conn *pgx.Conn, pids []int, deep bool) (map[int][]int, error) {
	blockers := map[int][]int{}
	for len(pids) > 0 {
		rows, err := conn.Query(ctx, "SELECT p.pid, pg_blocking_pids(p.pid) FROM unnest($1::int[]) AS p (pid)", pids)
		if err != nil {
			return nil, fmt.Errorf("ask who is in the way: %w", err)
		}
		var pid int
		var inTheWay []int
		var next []int
		_, err = pgx.ForEachRow(rows, []any{&pid, &inTheWay}, func() error {
			blockers[pid] = inTheWay
			next = append(next, inTheWay...)
			inTheWay = nil
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("ask who is in the way: %w", err)
		}
		if pids = pids[:0:0]; !deep {
			return blockers, nil
		}
		for _, pid := range next {
			if _, known := blockers[pid]; !known && pid != preparedPID {
				blockers[pid] = nil
				pids = append(pids, pid)
			}
		}
	}
	return blockers, nil
}

// preparedPID stands for a prepared transaction.
const preparedPID = 0

// errNotPermitted says that the role may not cancel what the backend does.
var errNotPermitted = errors.New("the role may not signal the backend")

// cancelWait cancels what a backend does if it is still in that wait, and says whether it was.
func cancelWait(ctx context.Context, conn *pgx.Conn, w Wait) (was bool, err error) {
	err = conn.QueryRow(ctx, "SELECT pg_cancel_backend(pid) FROM pg_locks WHERE NOT granted AND pid = $1 AND virtualtransaction = $2 AND waitstart = $3", w.PID, w.Virtual, w.Since).Scan(&was)
	var failure *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case errors.As(err, &failure) && failure.Code == pgerr.InsufficientPrivilege:
		return false, errNotPermitted
	case err != nil:
		return false, fmt.Errorf("cancel a wait: %w", err)
	}
	return was, nil
}

// stillWaits says whether a backend is still in a wait.
func stillWaits(ctx context.Context, conn *pgx.Conn, w Wait) (does bool, err error) {
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pid = $1 AND virtualtransaction = $2 AND waitstart = $3)", w.PID, w.Virtual, w.Since).Scan(&does)
	if err != nil {
		return false, fmt.Errorf("ask whether a wait lasts: %w", err)
	}
	return does, nil
}
