package reshard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// A server keeps its changes for a slot until somebody has got them, however long that takes. So each slot of a move is measured where it is, also while the other server is away: it is dropped before it fills a disk.

// lag is how many bytes of changes a server has that the other one has not confirmed, how many it keeps for that, and whether somebody carries them. What it keeps begins with the oldest transaction of which something has still to be carried over.
type lag struct {
	bytes, kept int64
	active      bool
	// lost: the server keeps nothing for it any more. gone: nor is there a slot.
	lost, gone bool
}

// isTooMuch says whether a server has to keep more than it may, or does not keep any more what is needed.
func (l lag) isTooMuch(limit int64) bool { return l.lost || l.kept > limit }

// why says so.
func (l lag) why() string {
	if l.lost {
		return "the server keeps the changes no more that have still to be carried over"
	}
	return fmt.Sprintf("a server had to keep %d bytes of changes, which is more than it may", l.kept)
}

// measureOn measures a slot. One that somebody has dropped is lost too.
func measureOn(ctx context.Context, conn *pgx.Conn, slot string) (l lag, err error) {
	err = conn.QueryRow(ctx, `
		SELECT coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn), 0)::bigint, coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint, active, coalesce(wal_status = 'lost', false)
		FROM pg_replication_slots WHERE slot_name = $1`, slot).Scan(&l.bytes, &l.kept, &l.active, &l.lost)
	if errors.Is(err, pgx.ErrNoRows) {
		return lag{lost: true, gone: true}, nil
	}
	return l, err
}

func (r *run) measure(ctx context.Context, side, slot string) (l lag, err error) {
	err = r.on(ctx, side, func(ctx context.Context, conn *pgx.Conn) error {
		l, err = measureOn(ctx, conn, slot)
		return err
	})
	return l, err
}

// giveUp drops a slot if its server has to keep more for it than it may, and says why; empty: it stays.
func (r *run) giveUp(ctx context.Context, side, slot string) (why string, err error) {
	l, err := r.measure(ctx, side, slot)
	if err != nil || !l.isTooMuch(r.state().Options.MaxWAL) {
		return "", err
	}
	if l.gone {
		if same, err := r.sameServer(ctx, side); err != nil || !same { // a standby that became the server never had it
			return anotherServer, err
		}
		return l.why(), nil
	}
	if err := r.dropSlot(ctx, side, slot); err != nil {
		return "", err
	}
	r.mover.config.Logger.Warn("changes are not kept any more for a move", "move", r.id, "shard", side, "reason", l.why())
	return l.why(), nil
}

// staysKept gives up what a server would have to keep too much for, whether or not the other one answers, and draws the conclusion: before the switch rows are copied anew, or the way back is made anew; after it there is no way back.
func (r *run) staysKept(ctx context.Context) error {
	if r.state().Forgotten { // nothing may be noted on shards again
		return nil
	}
	return errors.Join(r.backStaysKept(ctx), r.forwardStaysKept(ctx))
}

func (r *run) backStaysKept(ctx context.Context) error {
	move := r.state()
	if !slices.Contains([]Phase{Ready, Switching, Switched, RollingBack, Cancelling}, move.Phase) {
		return nil
	}
	why, err := r.giveUp(ctx, move.Target, move.back())
	if err != nil || why == "" || !move.WayBack || move.Phase == Cancelling {
		return err
	}
	if move.Phase == Ready || move.Phase == Switching {
		if err := r.save(ctx, func(m *Move) { m.WayBack = false }); err != nil {
			return err
		}
		return errElsewhere
	}
	if is, alike, err := r.markedNow(ctx); err != nil || move.RollsBack && alike && is == move.course().turned() { // it has come back already
		return err
	}
	return r.noWayBack(ctx, why+": there is no way back")
}

func (r *run) forwardStaysKept(ctx context.Context) error {
	move := r.state()
	if !move.Copied || !slices.Contains([]Phase{Copying, CatchingUp, Verifying, Ready, Switching, Cancelling}, move.Phase) {
		return nil
	}
	why, err := r.giveUp(ctx, move.Source, move.forward())
	if err != nil || why == "" || move.Phase == Cancelling {
		return err
	}
	if move.Phase == Switching {
		if calm, err := r.isCalm(ctx); err != nil || !calm { // what is held or closed has to be taken back first
			return err
		}
	}
	return r.copyAgain(ctx, why)
}

// isCalm says whether no attempt to switch has left anything.
func (r *run) isCalm(ctx context.Context) (bool, error) {
	is, alike, err := r.markedNow(ctx)
	if err != nil {
		return false, err
	}
	holds, err := r.heldWhole(ctx)
	return alike && is == r.state().course().announced() && len(holds) == 0, err
}

// markedNow is what the newest map says of the move.
func (r *run) markedNow(ctx context.Context) (mark, bool, error) {
	now, err := r.current(ctx)
	if err != nil {
		return mark{}, false, err
	}
	return r.state().marked(now)
}
