package reshard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/failpoint"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// Replication is PostgreSQL's own: a publication on the one shard, a slot there that keeps what was not sent yet, a subscription on the other.

// subscribe makes a subscription on one shard to what the other publishes, from where its slot is. It does not wait for its commits to be durable, or a single one at a time would be all that is carried over: what it
// confirms is durable here, the note that ends a switch makes all before it so wherever commits have to be, and a server that is not the one that it was means a new copy.
func (r *run) subscribe(ctx context.Context, on, to, name string, enabled bool) error {
	now, err := r.current(ctx)
	if err != nil {
		return err
	}
	conninfo, err := r.mover.config.Access.Conninfo(now.Shard(to).Spec(), name)
	if err != nil {
		return err
	}
	return r.on(ctx, on, func(ctx context.Context, conn *pgx.Conn) error {
		if has, err := exists(ctx, conn, "SELECT FROM pg_subscription WHERE subname = $1 AND subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())", name); err != nil || has {
			return err
		}
		// The statement has a password in it. Who may not set these has logs that others read: PostgreSQL lets nobody else log statements of theirs.
		_, _ = conn.Exec(ctx, "SET log_statement = 'none'; SET log_min_duration_statement = -1; SET log_min_error_statement = 'panic'")
		_, err := conn.Exec(ctx, fmt.Sprintf("CREATE SUBSCRIPTION %s CONNECTION %s PUBLICATION %s WITH (create_slot = false, slot_name = %s, copy_data = false, enabled = %t, synchronous_commit = 'off', disable_on_error = true)",
			name, sqltext.QuoteLiteral(conninfo), name, sqltext.QuoteLiteral(name), enabled))
		if err != nil {
			return fmt.Errorf("make subscription %s on shard %q: %w", name, on, withoutSecrets(err))
		}
		failpoint.Hit("move.subscribed")
		return nil
	})
}

// withoutSecrets leaves out of an error what a server repeats of the statement.
func withoutSecrets(err error) error {
	if code := shard.CodeOf(err); code != "" {
		return pgerr.New(code, "%s", err.Error())
	}
	return err
}

// dropSubscription drops a subscription, whether or not the other shard answers. Its slot stays.
func (r *run) dropSubscription(ctx context.Context, on, name string) error {
	return r.on(ctx, on, func(ctx context.Context, conn *pgx.Conn) error {
		if has, err := exists(ctx, conn, "SELECT FROM pg_subscription WHERE subname = $1 AND subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())", name); err != nil || !has {
			return err
		}
		for _, sql := range []string{"ALTER SUBSCRIPTION " + name + " DISABLE", "ALTER SUBSCRIPTION " + name + " SET (slot_name = NONE)", "DROP SUBSCRIPTION " + name} {
			if _, err := conn.Exec(ctx, sql); err != nil && !isUndefined(err) {
				return fmt.Errorf("drop subscription %s on shard %q: %w", name, on, err)
			}
		}
		return nil
	})
}

// dropSlot drops a slot, and ends who reads from it.
func (r *run) dropSlot(ctx context.Context, on, name string) error {
	return r.on(ctx, on, func(ctx context.Context, conn *pgx.Conn) error {
		for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
			var dropped int
			err := conn.QueryRow(ctx, "SELECT count(pg_drop_replication_slot(slot_name)) FROM pg_replication_slots WHERE slot_name = $1", name).Scan(&dropped)
			if code := shard.CodeOf(err); err == nil || code == pgerr.UndefinedObject {
				return nil
			} else if code != pgerr.ObjectInUse {
				return fmt.Errorf("drop slot %s on shard %q: %w", name, on, err)
			}
			if _, err := conn.Exec(ctx, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active_pid IS NOT NULL", name); err != nil {
				return err
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

// dropPublication drops a publication. Its tables leave it first: PostgreSQL fails a statement that has just found its table in a publication which is gone when it looks what that publishes.
func (r *run) dropPublication(ctx context.Context, on, name string) error {
	return r.on(ctx, on, func(ctx context.Context, conn *pgx.Conn) error {
		if left, err := emptyPublication(ctx, conn, name); err != nil {
			r.mover.config.Logger.Debug("tables of a publication are in use", "move", r.id, "shard", on, "error", err)
		} else if left {
			r.sleep(ctx, publicationPause)
		}
		if _, err := conn.Exec(ctx, "DROP PUBLICATION IF EXISTS "+name); err != nil {
			return fmt.Errorf("drop publication %s on shard %q: %w", name, on, err)
		}
		return nil
	})
}

// publicationPause is how long statements have for looking what a publication publishes that their table has just left.
const publicationPause = 50 * time.Millisecond

// emptyPublication has all tables leave a publication, and says whether there were any.
func emptyPublication(ctx context.Context, conn *pgx.Conn, name string) (left bool, err error) {
	var tables *string
	err = conn.QueryRow(ctx, "SELECT string_agg(r.prrelid::regclass::text, ', ') FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE p.pubname = $1", name).Scan(&tables)
	if err != nil || tables == nil {
		return false, err
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '1s'; ALTER PUBLICATION "+name+" DROP TABLE "+*tables)
		return err
	})
	return err == nil, err
}

// anotherServer is why a copy is none any more.
const anotherServer = "a server is not the one that it was when the copy began"

// catchUp has the target apply what has changed since the snapshot.
func (r *run) catchUp(ctx context.Context) error {
	move := r.state()
	if err := r.staysCopied(ctx); err != nil {
		return err
	}
	if err := r.subscribe(ctx, move.Target, move.Source, move.forward(), true); err != nil {
		return err
	}
	now, err := r.current(ctx)
	if err != nil {
		return err
	}
	if err := r.whileGivingWay(ctx, now, func(t *throttle) error { return r.untilClose(ctx, t) }); err != nil {
		return err
	}
	if move.IsWhole() {
		if err := r.tieWhole(ctx, now); err != nil {
			return err
		}
	}
	return r.enter(ctx, nextAfterCatchUp(move))
}

// untilClose waits until the target is close behind the source.
func (r *run) untilClose(ctx context.Context, t *throttle) error {
	move := r.state()
	var coming approach
	slowest, tries := time.Now(), trial{at: time.Now()}
	least := int64(-1)
	for {
		l, err := r.measure(ctx, move.Source, move.forward())
		if err == nil && l.isTooMuch(move.Options.MaxWAL) { // first: what has lost its slot has stopped too
			err = r.staysKept(ctx)
		}
		if err == nil {
			err = r.mayGoOn(ctx)
		}
		if err != nil {
			return err
		}
		if l.active && l.bytes <= usualLag {
			return nil
		}
		if l.active && tries.isDue(l.bytes, t.isSlow(), time.Now()) {
			if r.isClose(ctx, t) {
				return nil
			}
			tries.at = time.Now()
		}
		coming.look(t, l.bytes, time.Now())
		if least < 0 || l.bytes < least {
			least, slowest = l.bytes, time.Now()
		}
		waiting := cmp.Or(t.waiting(), "changes are carried over")
		if time.Since(slowest) > comesCloser {
			waiting = "the target cannot keep up with the writers: it has not come closer for " + time.Since(slowest).Round(time.Second).String()
		}
		if !l.active {
			waiting = "the subscription does not run: the log of shard " + move.Target + " says why"
		}
		r.say(ctx, waiting, func(m *Move) { m.LagBytes, m.LagAt = l.bytes, time.Now().UTC() })
		if l.bytes > farBehind {
			r.sleep(ctx, 300*time.Millisecond)
		}
		r.sleep(ctx, 200*time.Millisecond)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// comesCloser is how long a target may take to come closer than it was before it is said that it cannot keep up.
var comesCloser = failpoint.Duration("move.comes-closer", 30*time.Second)

// trial is when it was tried last whether the target is close, for which it gets all of its time: how far one is behind that has to rest does not tell how far it would be without.
type trial struct{ at time.Time }

const (
	// farBehind is how many bytes are more than what comes over in a moment, on most machines, and tryFar how often it is tried even so: it costs something, and most likely shows nothing.
	farBehind = 16 * usualLag
	tryFar    = 3 * time.Second
	// trySlow is how often it is tried while the target has to rest now and then.
	trySlow = time.Second
)

// isDue says whether it is time to try again with a target that is so far behind.
func (t trial) isDue(bytes int64, slow bool, now time.Time) bool {
	switch passed := now.Sub(t.at); {
	case bytes > farBehind:
		return passed >= tryFar
	case slow:
		return passed >= trySlow
	default:
		return true
	}
}

// isClose says whether what is committed on the source now is on the target in a moment, if that has all of its time.
func (r *run) isClose(ctx context.Context, t *throttle) bool {
	now, err := r.current(ctx)
	if err != nil {
		return false
	}
	move := r.state()
	source, err := r.connect(ctx, now, move.Source)
	if err != nil {
		return false
	}
	defer closeQuietly(source)
	target, err := r.connect(ctx, now, move.Target)
	if err != nil {
		return false
	}
	defer closeQuietly(target)
	return t.freely(func() bool { return comesSoon(ctx, source, target, move.ID, move.Options.PauseLimit/4) == nil })
}

// comesSoon looks whether a mark comes from the one shard to the other within a time.
func comesSoon(ctx context.Context, from, to *pgx.Conn, move string, limit time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	mark := "lag " + time.Now().UTC().Format(time.RFC3339Nano)
	err := shard.AwaitMark(waiting, from, to, move, mark)
	if waiting.Err() == nil { // or the connection is gone, and all marks go at the end
		_, _ = from.Exec(ctx, "DELETE FROM cleave.marks WHERE move = $1 AND mark = $2", move, mark)
	}
	return err
}

func nextAfterCatchUp(m *Move) Phase {
	if m.Options.SkipVerify || m.Verified != "" {
		return Ready
	}
	return Verifying
}

// staysCopied copies anew if a server is not the one that it was: what was carried over may be missing, or cannot be carried over any more. So it is if the changes that are to be carried over are kept no more.
func (r *run) staysCopied(ctx context.Context) error {
	same, err := r.sameServers(ctx)
	switch {
	case err != nil:
		return err
	case !same:
		return r.copyAgain(ctx, anotherServer)
	default:
		return r.staysKept(ctx)
	}
}

// mayGoOn looks whether the subscription was stopped by an error: that does not get better by itself.
func (r *run) mayGoOn(ctx context.Context) error {
	move := r.state()
	var enabled bool
	err := r.on(ctx, move.Target, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT subenabled FROM pg_subscription WHERE subname = $1", move.forward()).Scan(&enabled)
	})
	switch {
	case err != nil:
		return err
	case enabled:
		return nil
	}
	if err := r.on(ctx, move.Source, func(context.Context, *pgx.Conn) error { return nil }); err != nil { // a server that is away stops it too
		return err
	}
	if !move.Resumed && move.refusals() >= mostStops {
		return stop("shard %q has refused a change, and its log says which: a row that another one there excludes, for example. Mend it and resume the move, or cancel it", move.Target)
	}
	r.unheld.Store(true)
	err = r.on(ctx, move.Target, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "ALTER SUBSCRIPTION "+move.forward()+" ENABLE")
		return err
	})
	if err != nil {
		return err
	}
	if move.Resumed {
		return r.save(ctx, func(m *Move) { m.Resumed = false })
	}
	if err := r.save(ctx, (*Move).refused); err != nil {
		return err
	}
	return fmt.Errorf("the subscription on shard %q has stopped, and its log says why: it is tried again", move.Target)
}

// calm is how long nothing is refused before earlier refusals are forgotten: servers that were away now and then have stopped a subscription as often as one change that is refused each time.
const calm = 5 * time.Minute

// refusals is how often a subscription has stopped lately while both servers were there.
func (m *Move) refusals() int {
	if time.Since(m.RefusedAt) > calm {
		return 0
	}
	return m.Refusals
}

// refused counts one more.
func (m *Move) refused() { m.Refusals, m.RefusedAt = m.refusals()+1, time.Now().UTC() }

// mostStops is how often a subscription that has stopped is started again.
const mostStops = 4

// copyAgain goes back to the copy.
func (r *run) copyAgain(ctx context.Context, why string) error {
	r.mover.config.Logger.Warn("a move copies anew", "move", r.id, "reason", why)
	err := r.save(ctx, func(m *Move) {
		m.copiesAgain()
		m.Error, m.Again = why, why
	})
	if err != nil {
		return err
	}
	return errElsewhere
}

func (m *Move) copiesAgain() {
	m.Copied, m.Equal, m.Verified, m.WayBack = false, nil, "", false
	m.goTo(Copying)
}

// errElsewhere ends a phase because the move goes on in another one.
var errElsewhere = errors.New("the move goes on in another phase")

// ready makes the way back, and waits until it may switch.
func (r *run) ready(ctx context.Context) error {
	move := r.state()
	if move.Options.Manual && !move.SwitchNow {
		if err := r.staysCopied(ctx); err != nil {
			return err
		}
		if err := r.mayGoOn(ctx); err != nil {
			return err
		}
		l, err := r.measure(ctx, move.Source, move.forward())
		if err != nil {
			return err
		}
		r.say(ctx, "somebody has to say when to switch: cleave move switch "+move.ID, func(m *Move) { m.LagBytes, m.LagAt = l.bytes, time.Now().UTC() })
		r.sleep(ctx, time.Second)
		return nil
	}
	if !move.WayBack {
		if err := r.makeWayBack(ctx); err != nil {
			return err
		}
	}
	return r.enter(ctx, Switching)
}

// makeWayBack makes the slot on the target for the way back, long before anybody waits, since that waits for older transactions; and the subscription that will read from it.
func (r *run) makeWayBack(ctx context.Context) error {
	move := r.state()
	if move.IsWhole() { // before that the target did not have the tables
		now, err := r.current(ctx)
		if err == nil {
			err = r.publication(ctx, now, move.Target, move.back())
		}
		if err != nil {
			return err
		}
	}
	r.say(ctx, "transactions that began earlier on shard "+move.Target+" have to end before its changes can be followed", nil)
	err := r.on(ctx, move.Target, func(ctx context.Context, conn *pgx.Conn) error {
		has, err := exists(ctx, conn, "SELECT FROM pg_replication_slots WHERE slot_name = $1 AND confirmed_flush_lsn IS NOT NULL", move.back()) // until it has that it is being made, by somebody who was cut off, and may have none of the changes
		if err != nil || has {
			return err
		}
		if err := r.dropSlot(ctx, move.Target, move.back()); err != nil {
			return err
		}
		return r.untilOthersEnd(ctx, move.Target, move.back(), func(ctx context.Context) error {
			_, err := conn.Exec(ctx, "SET lock_timeout = 0") // it waits for as long as others take
			if err == nil {
				_, err = conn.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", move.back())
			}
			return err
		})
	})
	if err == nil {
		failpoint.Hit("move.slot.back")
		err = r.subscribe(ctx, move.Source, move.Target, move.back(), false)
	}
	if err != nil {
		return err
	}
	return r.save(ctx, func(m *Move) { m.WayBack, m.Waiting = true, "" })
}
