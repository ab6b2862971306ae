package reshard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/failpoint"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// keep carries the target's changes back for as long as was asked for, so that the move can be rolled back.
func (r *run) keep(ctx context.Context) error {
	move := r.state()
	left := time.Until(move.Since.Add(move.Options.Keep))
	if left <= 0 || move.FinishNow || !move.WayBack { // cleaning ends what carries changes, either way
		return r.enter(ctx, Cleaning)
	}
	if err := r.staysKept(ctx); err != nil { // before all that needs the source, which may be away
		return err
	}
	if err := r.endForward(ctx); err != nil {
		return err
	}
	failpoint.Hit("move.forward.ended")
	if !r.toldSides.Equal(move.Since) {
		if err := r.recordSides(ctx); err != nil {
			return err
		}
		r.toldSides = move.Since
	}
	if err := r.carryBack(ctx); err != nil {
		return err
	}
	l, err := r.measure(ctx, move.Target, move.back())
	if err != nil {
		return err
	}
	r.say(ctx, "it can be rolled back until "+move.Since.Add(move.Options.Keep).Format(time.RFC3339), func(m *Move) { m.LagBytes, m.LagAt = l.bytes, time.Now().UTC() })
	r.sleep(ctx, min(left, time.Second))
	return nil
}

// endForward removes what carried changes to the target.
func (r *run) endForward(ctx context.Context) error {
	move := r.state()
	return errors.Join(r.dropSubscription(ctx, move.Target, move.forward()), r.dropSlot(ctx, move.Source, move.forward()), r.dropPublication(ctx, move.Source, move.forward()))
}

// endBack removes what carried changes back.
func (r *run) endBack(ctx context.Context) error {
	move := r.state()
	return errors.Join(r.dropSubscription(ctx, move.Source, move.back()), r.dropSlot(ctx, move.Target, move.back()), r.dropPublication(ctx, move.Target, move.back()))
}

// carryBack has the source apply the target's changes. If a server is not the one that it was, nothing may be missing and yet something may: there is no way back then.
func (r *run) carryBack(ctx context.Context) error {
	same, err := r.sameServers(ctx)
	if err != nil {
		return err
	}
	if !same {
		return r.noWayBack(ctx, anotherServer+": there is no way back")
	}
	move := r.state()
	var begins string // what was applied there before is not to be carried back
	var lacks bool    // the slot has not all of what is
	err = r.on(ctx, move.Target, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if begins, err = shard.LastNote(ctx, conn, move.ID, shard.ArrivedFrom(move.Source)); err != nil || begins == "" {
			return err
		}
		lacks, err = exists(ctx, conn, "SELECT FROM pg_replication_slots WHERE slot_name = $1 AND coalesce(confirmed_flush_lsn > $2::text::pg_lsn, true)", move.back(), begins)
		return err
	})
	if err != nil {
		return err
	}
	if begins == "" {
		return stop("shard %q does not know from where its changes are to be carried back", move.Target)
	}
	var refused bool // by the source: a subscription that fails disables itself
	err = r.on(ctx, move.Source, func(ctx context.Context, conn *pgx.Conn) error {
		var enabled, began bool
		err := conn.QueryRow(ctx, `SELECT subenabled, coalesce(pg_replication_origin_progress('pg_' || oid, true), '0/0') >= $1::text::pg_lsn FROM pg_subscription
			WHERE subname = $2 AND subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())`, begins, move.back()).Scan(&enabled, &began)
		if lacks = lacks && !began; err != nil || enabled || lacks {
			return err
		}
		refused = move.CarriesBack
		if !began { // never backwards: what has been applied since would be applied again
			const advance = "SELECT pg_replication_origin_advance('pg_' || oid, $1::text::pg_lsn) FROM pg_subscription WHERE subname = $2 AND subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
			if _, err := conn.Exec(ctx, advance, begins, move.back()); err != nil {
				return fmt.Errorf("say from where changes are to be carried back: %w", err)
			}
		}
		_, err = conn.Exec(ctx, "ALTER SUBSCRIPTION "+move.back()+" ENABLE") // its commit makes the other durable
		return err
	})
	switch {
	case err != nil:
		return err
	case lacks:
		return r.noWayBack(ctx, fmt.Sprintf("shard %q has not kept all changes since the switch: there is no way back", move.Target))
	case refused && move.refusals() >= mostRefusals:
		return r.noWayBack(ctx, fmt.Sprintf("shard %q refuses a change, and its log says which: there is no way back", move.Source))
	case refused:
		if err := r.save(ctx, (*Move).refused); err != nil {
			return err
		}
		return fmt.Errorf("shard %q has refused a change of the way back, and its log says which: it is tried again", move.Source)
	case !move.CarriesBack:
		return r.save(ctx, func(m *Move) { m.CarriesBack = true })
	}
	return nil
}

// mostRefusals is how often a change of the way back is tried.
const mostRefusals = 8

// noWayBack gives the way back up: what was streamed to a server that is not the one that it was may be missing there. The rows stay where they are.
func (r *run) noWayBack(ctx context.Context, why string) error {
	if err := r.letGo(ctx); err != nil { // of a rolling back
		return err
	}
	err := r.save(ctx, func(m *Move) {
		m.WayBack, m.RollsBack, m.NoWayBack = false, false, why
		m.goTo(Switched)
	})
	if err != nil {
		return err
	}
	r.mover.config.Logger.Warn("the way back of a move is given up", "move", r.id, "reason", why)
	return errElsewhere
}

// recordSides has both shards record the newest map.
func (r *run) recordSides(ctx context.Context) error {
	now, err := r.current(ctx)
	if err != nil {
		return err
	}
	return both(r.state().sides(), func(name string) error {
		return r.on(ctx, name, func(ctx context.Context, conn *pgx.Conn) error { return r.recordBetween(ctx, conn, now, name) })
	})
}

// depart ends a move of which nothing is left on shards. By now its tables may be others than they were, so nothing may be done to them again.
func (r *run) depart(ctx context.Context) error {
	move := r.state()
	if _, err := r.mover.config.Store.EndMove(ctx, move.ID); err != nil {
		return err
	}
	switch {
	case move.Phase == Cancelling:
		return r.enter(ctx, Cancelled)
	case move.RollsBack:
		return r.enter(ctx, RolledBack)
	default:
		return r.enter(ctx, Done)
	}
}

// clean removes the rows that are not owned any more, and all that the move has made.
func (r *run) clean(ctx context.Context) error {
	move := r.state()
	leaves := move.course().from // whose rows are not owned
	if err := errors.Join(r.endForward(ctx), r.endBack(ctx)); err != nil {
		return err
	}
	if err := r.recordSides(ctx); err != nil {
		return err
	}
	if err := r.seeArrived(ctx); err != nil {
		return err
	}
	now, err := r.current(ctx)
	if err != nil {
		return err
	}
	c := move.course()
	is, alike, err := move.marked(now)
	if err != nil {
		return err
	}
	if move.IsWhole() {
		return r.cleanWhole(ctx, now, is, alike)
	}
	if is != plain(c.to) { // or it has been done before
		if err := r.deleteRows(ctx, now, leaves); err != nil {
			return err
		}
		r.count(ctx, now)
	}
	if err := r.withdraw(ctx, c.turned(), plain(c.to)); err != nil {
		return err
	}
	return r.depart(ctx)
}

// seeArrived sees, before the first row is deleted, that the owner has noted that it has everything. A standby that took its place without having had all of it does not have that note, and then the rows that are about to be deleted may be the only ones.
func (r *run) seeArrived(ctx context.Context) error {
	move := r.state()
	if move.Arrived {
		return nil
	}
	c, note := move.course(), ""
	err := r.on(ctx, c.to, func(ctx context.Context, conn *pgx.Conn) (err error) {
		note, err = shard.LastNote(ctx, conn, move.ID, shard.ArrivedFrom(c.from))
		return err
	})
	switch {
	case err != nil:
		return err
	case note == "" || move.Passed != "" && note != move.Passed:
		if err := r.save(ctx, func(m *Move) { m.Lacks = true }); err != nil {
			return err
		}
		return stop("the server of shard %q does not know that it has everything: one that lacks what has moved may have taken its place. Nothing is deleted on shard %q, which has the rows as they were when the owner changed. "+
			"Bring what is missing from there to shard %q, or the right server back, and then: cleave move finish %s", c.to, c.from, c.to, move.ID)
	}
	return r.save(ctx, func(m *Move) { m.Arrived, m.Lacks = true, false })
}

// count has both servers count their rows anew, so that they plan with what they have. It is nothing to fail for.
func (r *run) count(ctx context.Context, now *topology.Map) {
	move := r.state()
	for _, side := range move.sides() {
		err := r.on(ctx, side, func(ctx context.Context, conn *pgx.Conn) error {
			for _, t := range move.tables(now) {
				if t.Kind() == topology.Single && t.Shard().Name() != side {
					continue
				}
				if _, err := conn.Exec(ctx, "VACUUM (ANALYZE, SKIP_LOCKED) "+t.Name().String()); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			r.mover.config.Logger.Debug("the rows of tables were not counted anew after a move", "move", r.id, "shard", side, "error", err)
		}
	}
}

// cancel takes everything back before the switch.
func (r *run) cancel(ctx context.Context) error {
	move := r.state()
	now, err := r.current(ctx)
	if err != nil {
		return err
	}
	if move.isUntouched() {
		return r.cancelUntouched(ctx, now)
	}
	is, alike, err := move.marked(now)
	c := move.course()
	switch {
	case err != nil:
		return err
	case alike && is == c.turned(): // whoever led before has changed the owner
		return r.save(ctx, func(m *Move) {
			m.goTo(Switched)
			m.Error = "it was asked to cancel, and the owner had changed by then"
		})
	case alike && (is.held || c.isClosing(is)):
		return r.letGo(ctx)
	case alike && move.IsWhole() && len(move.Published) > 0 && is.owner == move.Source: // of a switch that nobody has taken back: a store that was lost knows of none
		if err := r.letGo(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(r.endForward(ctx), r.endBack(ctx)); err != nil {
		return err
	}
	switch {
	case move.IsWhole():
		err = r.cancelWhole(ctx, now, is, alike)
	case alike && is == c.announced():
		if err := r.deleteRows(ctx, now, move.Target); err != nil {
			return err
		}
		fallthrough
	case alike && is == plain(move.Source): // perhaps not everybody has heard of it
		err = r.withdraw(ctx, c.announced(), plain(move.Source))
	default: // it was never announced, and somebody else has the rows by now
		err = r.forget(ctx, now)
	}
	if err != nil {
		return err
	}
	return r.depart(ctx)
}

// cancelUntouched ends a move that has made nothing yet: whatever there is of its tables is another move's, and the keyspace or a shard may be gone.
func (r *run) cancelUntouched(ctx context.Context, now *topology.Map) error {
	move := r.state()
	for _, side := range move.sides() {
		if now.Shard(side) == nil {
			continue
		}
		if err := r.on(ctx, side, func(ctx context.Context, conn *pgx.Conn) error { return r.noMoreLead(ctx, conn, side) }); err != nil {
			return err
		}
	}
	return r.depart(ctx)
}

// withdraw says that nobody has a copy any more, and removes the rest when routers know.
func (r *run) withdraw(ctx context.Context, is, next mark) error {
	move := r.state()
	now, err := r.publish(ctx, next, []string{move.Source, move.Target}, is)
	if err != nil {
		return err
	}
	failpoint.Hit("move.withdrawn")
	if err := r.awaitSettled(ctx, now.Version()); err != nil {
		return err
	}
	err = r.everywhere(ctx, map[int]bool{}, func(ctx context.Context, conn *pgx.Conn, name string) error {
		if err := r.recordBetween(ctx, conn, now, name); err != nil {
			return err
		}
		return r.fence(ctx, conn, now.Version())
	})
	if err != nil {
		return err
	}
	return r.forget(ctx, now)
}

// forget removes views, marks, origins and what was noted of tables.
func (r *run) forget(ctx context.Context, now *topology.Map) error {
	move := r.state()
	if !move.IsWhole() {
		if err := r.guards(ctx, now, (*shard.Plan).Relax); err != nil { // before what they ask goes
			return err
		}
	}
	forgotten := map[int]bool{}
	if err := r.everywhere(ctx, forgotten, r.forgetOn); err != nil {
		return err
	}
	if err := r.forgetSchemas(ctx); err != nil {
		return err
	}
	if err := r.save(ctx, func(m *Move) { m.Forgotten = true }); err != nil {
		return err
	}
	failpoint.Hit("move.forgotten")
	if _, err := r.mover.config.Store.EndMove(ctx, move.ID); err != nil || move.IsWhole() {
		return err
	}
	// A shard that has joined meanwhile was given what the move needs.
	if err := r.everywhere(withTimeout(ctx, routerPatience), forgotten, r.forgetOn); err != nil {
		r.mover.config.Logger.Warn("a shard that has joined while a move ended may still have its views", "move", r.id, "error", err)
	}
	return nil
}

// forgetOn removes what the move has made on a shard, and last of all who carries it out.
func (r *run) forgetOn(ctx context.Context, conn *pgx.Conn, name string) error {
	move := r.state()
	forgetTables := func() error { return r.unwatchWhole(ctx, conn) }
	if !move.IsWhole() {
		forgetTables = func() error { return r.dropViews(ctx, conn) }
	}
	if err := forgetTables(); err != nil {
		return err
	}
	failpoint.Hit("move.tables.forgotten")
	if err := r.restoreIdentities(ctx, conn, name); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "SELECT pg_replication_origin_drop(roname) FROM pg_replication_origin WHERE roname = $1 OR starts_with(roname, $2)", move.cleanOrigin(), move.copyOrigins()); err != nil {
		return err
	}
	return r.noMoreLead(ctx, conn, name)
}

// dropViews drops the views of what a shard owns.
func (r *run) dropViews(ctx context.Context, conn *pgx.Conn) error {
	return r.patiently(ctx, func() error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '200ms'"); err != nil {
				return err
			}
			return shard.DropOwnedViews(ctx, tx, r.state().Keyspace)
		})
	})
}

// Clean-up goes through a table by its pages, so that no row is looked at twice, and by so many at a time that nobody waits long behind it.
const (
	fewestPages = 16
	mostPages   = 4096
	batchTime   = 50 * time.Millisecond
)

// deleteRows deletes what moves from a shard that does not own it, in small batches, under an origin that consumers of changes can leave out.
func (r *run) deleteRows(ctx context.Context, now *topology.Map, side string) error {
	move := r.state()
	if is, alike, err := move.marked(now); err != nil || !alike || is.owner == side || is.copyOn != side {
		return errors.Join(fmt.Errorf("%w: the rows on shard %q may be the original", errOtherMap, side), err)
	}
	selection, err := move.selection(now)
	if err != nil {
		return err
	}
	slowly := r.giveWay(ctx, now, "the clean-up", side)
	defer slowly.close()
	return r.on(ctx, side, func(ctx context.Context, conn *pgx.Conn) error {
		if err := shard.UseOrigin(ctx, conn, move.cleanOrigin()); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, "SET session_replication_role = replica; SET row_security = off; SET synchronous_commit = off"); err != nil { // triggers do not run: other rows are nobody's business here
			return err
		}
		for _, t := range move.tables(now) {
			where, err := selection.OfTable(t, "t")
			if err != nil {
				return err
			}
			leaves, err := shard.Leaves(ctx, conn, t.Name())
			if err != nil {
				return err
			}
			for _, leaf := range leaves {
				if err := r.deleteFrom(ctx, conn, slowly, leaf, where); err != nil {
					return fmt.Errorf("delete rows of table %s on shard %q: %w", leaf.Name, side, err)
				}
			}
		}
		return shard.Harden(ctx, conn) // nobody looks for these rows any more when the map says that nobody has a copy
	})
}

// deleteFrom deletes rows of a leaf, and again if others were put onto pages that it had passed.
func (r *run) deleteFrom(ctx context.Context, conn *pgx.Conn, slowly *throttle, leaf shard.Leaf, where string) error {
	for {
		before, err := shard.FileOf(ctx, conn, leaf)
		if err != nil {
			return err
		}
		if err := r.deletePages(ctx, conn, slowly, leaf, where); err != nil {
			return err
		}
		if now, err := shard.FileOf(ctx, conn, leaf); err != nil || now == before {
			return err
		}
	}
}

func (r *run) deletePages(ctx context.Context, conn *pgx.Conn, slowly *throttle, leaf shard.Leaf, where string) error {
	step, deleted := int64(fewestPages), int64(0)
	for from := int64(0); from == 0 || from < leaf.Pages; {
		to := from + step
		if to >= leaf.Pages {
			to = -1
		}
		failpoint.Hit("move." + string(r.state().Phase) + ".rows") // copying deletes too: what a former attempt has left
		started := time.Now()
		tag, err := conn.Exec(ctx, fmt.Sprintf("DELETE FROM ONLY %s AS t WHERE %s AND (%s)", leaf.Name, shard.PagesSQL(from, to), where))
		if err != nil {
			return err
		}
		deleted += tag.RowsAffected()
		r.mover.config.Metrics.Cleaned(tag.RowsAffected())
		from += step
		switch took := time.Since(started); {
		case took < batchTime/2:
			step = min(2*step, mostPages)
		case took > batchTime:
			step = max(step/2, fewestPages)
		}
		slowly.rest(ctx, time.Since(started), 0, 0)
		r.say(ctx, cmp.Or(slowly.waiting(), fmt.Sprintf("rows of table %s that are not owned here are deleted", leaf.Name)), func(m *Move) { m.Cleaned += deleted; deleted = 0 })
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return r.save(ctx, func(m *Move) { m.Cleaned += deleted })
}
