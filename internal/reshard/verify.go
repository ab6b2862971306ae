package reshard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// verify compares both sides before the switch. One row that differs, and the move does not go on.
func (r *run) verify(ctx context.Context) error {
	if err := r.staysCopied(ctx); err != nil {
		return err
	}
	if err := r.mayGoOn(ctx); err != nil { // or no mark would ever come over
		return err
	}
	now, err := r.current(ctx)
	if err != nil {
		return err
	}
	move := r.state()
	slowly := r.giveWay(ctx, now, "the comparison", "")
	defer slowly.close()
	doing := ""
	c := &comparing{move: r.id, marks: "verify ", pause: r.sleep, rest: func(ctx context.Context, took time.Duration, bytes int64) error {
		slowly.rest(ctx, took, bytes, 1)
		r.say(ctx, cmp.Or(slowly.waiting(), doing), nil)
		if slot := slowly.kept(); slot.own && (slot.lost || slot.kept > r.state().Options.MaxWAL) {
			return r.staysKept(ctx)
		}
		if slowly.isTooOld() {
			return stop("the shards have had as many transactions since the comparison began as autovacuum_freeze_max_age allows, and nothing that they have deleted could be vacuumed: let fewer rows move at once or faster (--throttle off), and resume the move")
		}
		return ctx.Err()
	}}
	to := func(name string) (side, error) {
		return openSide(func(settings string) (*pgx.Conn, error) { return r.connectWith(ctx, now, name, settings) })
	}
	if c.owner, err = to(move.Source); err != nil {
		return err
	}
	defer c.owner.close()
	if c.copy, err = to(move.Target); err != nil {
		return err
	}
	defer c.copy.close()
	selection, err := move.selection(now)
	if err != nil {
		return err
	}
	rows := int64(0)
	for i, t := range move.tables(now) {
		doing = fmt.Sprintf("table %s is compared, %d of %d", t.Name(), i+1, len(move.tables(now)))
		r.say(ctx, cmp.Or(slowly.waiting(), doing), nil)
		count, err := r.verifyTable(ctx, c, t, selection)
		if err != nil {
			return err
		}
		rows += count
	}
	return r.save(ctx, func(m *Move) {
		m.Verified = fmt.Sprintf("%d rows are equal", rows)
		m.goTo(Ready)
	})
}

// verifyTable compares one table.
func (r *run) verifyTable(ctx context.Context, c *comparing, t *topology.Table, selection shard.Selection) (rows int64, err error) {
	where, err := selection.OfTable(t, "t")
	if err != nil {
		return 0, err
	}
	rows, differing, err := c.table(ctx, t.Name(), where)
	if err != nil {
		return 0, err
	}
	if len(differing) > 0 {
		if err := r.copyAgain(ctx, "the copy differs"); !errors.Is(err, errElsewhere) { // when somebody resumes it
			return 0, err
		}
		return 0, stop("table %s differs between shards %q and %q in %d rows, such as the one with key %s: the move does not switch. Find out why, then resume it to copy anew, or cancel it", t.Name(), r.state().Source, r.state().Target, len(differing), differing[0])
	}
	return rows, nil
}
