package reshard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// verifyRounds is how often rows that differ are looked at again before they count.
const verifyRounds = 20

// verify compares both sides: sums of hashes bucket by bucket, and where these differ row by row, again and again until the changes that are under way explain nothing of it.
func (r *run) verify(ctx context.Context) error {
	now, err := r.current(ctx)
	if err != nil {
		return err
	}
	move := r.state()
	source, err := r.connect(ctx, now, move.Source)
	if err != nil {
		return err
	}
	defer closeQuietly(source)
	target, err := r.connect(ctx, now, move.Target)
	if err != nil {
		return err
	}
	defer closeQuietly(target)
	for _, conn := range []*pgx.Conn{source, target} {
		if _, err := conn.Exec(ctx, shard.CompareSettings); err != nil {
			return err
		}
	}
	selection, err := move.selection(now)
	if err != nil {
		return err
	}
	rows := int64(0)
	for i, t := range move.tables(now) {
		r.say(ctx, fmt.Sprintf("table %s is compared, %d of %d", t.Name(), i+1, len(move.tables(now))), func(*Move) {})
		where, err := selection.OfTable(t, "t")
		if err != nil {
			return err
		}
		count, err := r.verifyTable(ctx, source, target, t, where)
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
func (r *run) verifyTable(ctx context.Context, source, target *pgx.Conn, t *topology.Table, where string) (rows int64, err error) {
	definition, err := shard.Describe(ctx, source, t.Name())
	if err != nil {
		return 0, err
	}
	c, err := definition.Compared(ctx, source)
	if err != nil {
		return 0, err
	}
	mine, err := c.DigestWhere(ctx, source, where)
	if err != nil {
		return 0, err
	}
	if err := r.pass(ctx, source, target); err != nil {
		return 0, err
	}
	theirs, err := c.DigestWhere(ctx, target, where)
	if err != nil {
		return 0, err
	}
	differing := mine.Differing(theirs)
	if len(differing) == 0 {
		return mine.Rows, nil
	}
	left, err := r.lookAgain(ctx, source, target, c, where, differing)
	if err != nil {
		return 0, err
	}
	if len(left) > 0 {
		if err := r.copyAgain(ctx, "the copy differs"); !errors.Is(err, errElsewhere) { // when somebody resumes it
			return 0, err
		}
		return 0, stop("table %s differs between shards %q and %q in %d rows, such as the one with key %s: the move does not switch. Find out why, then resume it to copy anew, or cancel it", t.Name(), r.state().Source, r.state().Target, len(left), left[0])
	}
	return mine.Rows, nil
}

// pass waits until all that was committed on the source has come to the target.
func (r *run) pass(ctx context.Context, source, target *pgx.Conn) error {
	waiting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return awaitMark(waiting, source, target, r.id, "verify "+time.Now().UTC().Format(time.RFC3339Nano))
}

// doubt is a row that has differed in every round so far.
type doubt struct {
	theirs string
	// arrives: the target's row has changed meanwhile, so changes reach it, and it lags behind one that is written all the time.
	arrives bool
}

// lookAgain compares the rows of some buckets until no difference is left. What differs in every round counts, unless changes of it are seen to arrive: of a row that the target does not have they never do.
func (r *run) lookAgain(ctx context.Context, source, target *pgx.Conn, c *shard.Comparison, where string, buckets []int32) (left []string, err error) {
	var doubts map[string]doubt
	for round := range verifyRounds {
		mine, err := c.RowsOf(ctx, source, where, buckets)
		if err != nil {
			return nil, err
		}
		if err := r.pass(ctx, source, target); err != nil {
			return nil, err
		}
		theirs, err := c.RowsOf(ctx, target, where, buckets)
		if err != nil {
			return nil, err
		}
		if doubts = stillDiffering(doubts, mine, theirs, round == 0); len(doubts) == 0 {
			return nil, nil
		}
		r.sleep(ctx, 100*time.Millisecond)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	for key, d := range doubts {
		if !d.arrives {
			left = append(left, key)
		}
	}
	slices.Sort(left)
	return left, nil
}

// stillDiffering are the doubts of a round that there were in all rounds before; of the first one all.
func stillDiffering(before map[string]doubt, mine, theirs map[string]string, first bool) map[string]doubt {
	doubts := map[string]doubt{}
	add := func(key string) {
		d, doubted := before[key]
		switch {
		case first:
			doubts[key] = doubt{theirs: theirs[key]}
		case doubted:
			doubts[key] = doubt{theirs: theirs[key], arrives: d.arrives || d.theirs != "" && theirs[key] != "" && d.theirs != theirs[key]}
		}
	}
	for key, hash := range mine {
		if theirs[key] != hash {
			add(key)
		}
	}
	for key := range theirs {
		if _, has := mine[key]; !has {
			add(key)
		}
	}
	return doubts
}
