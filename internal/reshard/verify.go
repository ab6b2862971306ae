package reshard

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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
	slowly := r.begin(ctx, now, &throttle{what: "the comparison", endsRests: true}, "")
	defer slowly.close()
	doing := ""
	mayStay := func() error {
		if slowly.keepsTooMuch() {
			return r.staysKept(ctx)
		}
		if slowly.isTooOld() {
			return stop("the shards have had as many transactions since the comparison began as autovacuum_freeze_max_age allows, and nothing that they have deleted could be vacuumed: let fewer rows move at once or faster (--throttle off), and resume the move")
		}
		return ctx.Err()
	}
	c := &comparing{move: r.id, marks: "verify ", pause: r.sleep, rest: func(ctx context.Context, took time.Duration, bytes int64) error {
		slowly.rest(ctx, took, bytes, 1)
		r.say(ctx, cmp.Or(slowly.waiting(), doing), nil)
		return mayStay()
	}, late: func(ctx context.Context, waited time.Duration) error {
		r.say(ctx, fmt.Sprintf("%s, and changes of the last %s have still to come over", doing, waited.Round(time.Second)), nil)
		if err := r.mayGoOn(ctx); err != nil {
			return err
		}
		return mayStay()
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
		count, isKnown := r.state().Equal[t.Name().String()]
		if !isKnown { // or it was compared before something went wrong, and is kept equal since
			if count, err = r.verifyTable(ctx, c, t, selection); err != nil {
				return err
			}
			if err := r.save(ctx, func(m *Move) { m.foundEqual(t.Name(), count) }); err != nil {
				return err
			}
		}
		rows += count
	}
	return r.save(ctx, func(m *Move) {
		m.Equal, m.Verified = nil, fmt.Sprintf("%d rows are equal", rows)
		m.goTo(Ready)
	})
}

// foundEqual notes that a table is the same on both sides, and with how many rows.
func (m *Move) foundEqual(table topology.TableName, rows int64) {
	equal := maps.Clone(m.Equal)
	if equal == nil {
		equal = map[string]int64{}
	}
	equal[table.String()] = rows
	m.Equal = equal
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
		return 0, r.differs(ctx, t.Name(), differing)
	}
	return rows, nil
}

// differs stops the move, which copies anew when somebody resumes it. Both are stored at once: somebody has to hear of it, whoever dies or wishes something in between.
func (r *run) differs(ctx context.Context, table topology.TableName, keys []string) error {
	move := r.state()
	final := stop("table %s differs between shards %q and %q in %d of its rows, such as the one with key %s: the move does not switch. Find out why, then resume it to copy anew, or cancel it", table, move.Source, move.Target, len(keys), keys[0])
	err := r.save(ctx, func(m *Move) {
		m.copiesAgain()
		m.Again, m.Stopped, m.Error = "", final.Error(), final.Error()
	})
	if err != nil {
		return err
	}
	return final
}
