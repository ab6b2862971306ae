package reshard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// comparing is both sides of a move whose copy is kept up to date: changes go from the one who owns the rows to the other.
type comparing struct {
	move string
	// marks is what the marks that it leaves begin with. They go with the move, or before.
	marks       string
	owner, copy *pgx.Conn
	// pause waits, less long if there is a reason to.
	pause func(context.Context, time.Duration)
	// rest gives way when a part of a table was read.
	rest shard.AfterPart
}

// hurry is for comparisons that somebody waits for.
func hurry(context.Context, time.Duration, int64) error { return nil }

// comparer is what connections are called that compare on demand.
const comparer = "cleave/verify"

const (
	// compareRounds is how often rows that differ are looked at again before they count.
	compareRounds = 20
	// rowsAtOnce is how many rows are looked at again at a time: what is known of them is in memory, twice.
	rowsAtOnce = 100_000
	// enoughDiffering is how many rows of a table have to differ so that no others are looked for.
	enoughDiffering = 10_000
)

// table compares the rows of one table that fit a condition: sums of hashes bucket by bucket, and where these differ row by row, again and again until the changes that are under way explain nothing
// of it. It returns how many rows there are, and the keys of those that differ.
func (c *comparing) table(ctx context.Context, t *topology.Table, where string) (rows int64, differing []string, err error) {
	definition, err := shard.Describe(ctx, c.owner, t.Name())
	if err != nil {
		return 0, nil, err
	}
	comparison, err := definition.Compared(ctx, c.owner)
	if err != nil {
		return 0, nil, err
	}
	mine, err := comparison.DigestWhere(ctx, c.owner, where, c.rest)
	if err != nil {
		return 0, nil, err
	}
	if err := c.pass(ctx); err != nil {
		return 0, nil, err
	}
	theirs, err := comparison.DigestWhere(ctx, c.copy, where, c.rest)
	if err != nil {
		return 0, nil, err
	}
	for _, buckets := range mine.Groups(theirs, mine.Differing(theirs), rowsAtOnce) {
		more, err := c.lookAgain(ctx, comparison, where, buckets)
		if differing = append(differing, more...); err != nil || len(differing) >= enoughDiffering {
			return mine.Rows, differing, err
		}
	}
	return mine.Rows, differing, nil
}

// pass waits until all that was committed by the owner has come to the copy.
func (c *comparing) pass(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return shard.AwaitMark(waiting, c.owner, c.copy, c.move, c.marks+time.Now().UTC().Format(time.RFC3339Nano))
}

// doubt is a row that has differed in every round so far.
type doubt struct {
	theirs string
	// arrives: the copy's row has changed meanwhile, so changes reach it, and it lags behind one that is written all the time.
	arrives bool
}

// lookAgain compares the rows of some buckets until no difference is left. What differs in every round counts, unless changes of it are seen to arrive: of a row that the copy does not have they never do.
func (c *comparing) lookAgain(ctx context.Context, comparison *shard.Comparison, where string, buckets []int32) (left []string, err error) {
	var doubts map[string]doubt
	for round := range compareRounds {
		mine, err := comparison.RowsOf(ctx, c.owner, where, buckets, c.rest)
		if err != nil {
			return nil, err
		}
		if err := c.pass(ctx); err != nil {
			return nil, err
		}
		theirs, err := comparison.RowsOf(ctx, c.copy, where, buckets, c.rest)
		if err != nil {
			return nil, err
		}
		if doubts = stillDiffering(doubts, mine, theirs, round == 0); len(doubts) == 0 {
			return nil, nil
		}
		c.pause(ctx, 100*time.Millisecond)
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

// Compared is what a comparison of a table's rows on both sides of a move gave.
type Compared struct {
	Table topology.TableName
	// Owner has the rows, and Copy those that should be equal to them.
	Owner, Copy string
	Rows        int64
	// Differing are the keys of rows that differ; not all of them if there are very many.
	Differing []string
}

// ErrMovedOn says that a move went on while it was compared, so that nothing is known.
var ErrMovedOn = errors.New("the move has gone on meanwhile")

// KeepsCopy says whether the rows of the move are on two shards that are kept equal: before the switch, and after it while the move can be rolled back.
func (m *Move) KeepsCopy() bool {
	return m.Phase == Ready || m.Phase == Switched && m.WayBack
}

// CompareSides compares both sides of a move that [Move.KeepsCopy], for the tables that are wanted. It fails with [ErrMovedOn] if the move has left its phase before it was done. It is for whoever wants to know; the move
// itself compares them before it switches.
func (v *Mover) CompareSides(ctx context.Context, m *Move, wanted func(topology.TableName) bool) ([]Compared, error) {
	staying, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { v.watchPhase(staying, m, cancel) })
	compared, err := v.compareSides(staying, m, wanted)
	cancel(nil)
	watching.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if now, again := Find(ctx, v.config.Store, m.ID); again != nil {
		return nil, again
	} else if now.Phase != m.Phase || !now.KeepsCopy() {
		return nil, ErrMovedOn
	}
	return compared, err
}

// watchPhase ends a comparison when the move leaves its phase: what is waited for then never comes.
func (v *Mover) watchPhase(ctx context.Context, m *Move, end context.CancelCauseFunc) {
	for {
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return
		}
		if now, err := Find(ctx, v.config.Store, m.ID); err == nil && now.Phase != m.Phase {
			end(ErrMovedOn)
		}
	}
}

func (v *Mover) compareSides(ctx context.Context, m *Move, wanted func(topology.TableName) bool) ([]Compared, error) {
	now, err := v.config.Store.Map(ctx)
	if err != nil {
		return nil, err
	}
	selection, err := m.selection(now)
	if err != nil {
		return nil, err
	}
	owner, copied := m.Source, m.Target
	if m.Phase == Switched {
		owner, copied = copied, owner
	}
	c := &comparing{move: m.ID, marks: "asked " + NewID() + " ", pause: doze, rest: hurry}
	defer v.dropMarks(ctx, now, c.move, c.marks, owner, copied)
	if c.owner, err = v.connect(ctx, now, owner, comparer, shard.CompareSettings); err != nil {
		return nil, err
	}
	defer closeQuietly(c.owner)
	if c.copy, err = v.connect(ctx, now, copied, comparer, shard.CompareSettings); err != nil {
		return nil, err
	}
	defer closeQuietly(c.copy)
	var all []Compared
	for _, t := range m.tables(now) {
		if !wanted(t.Name()) {
			continue
		}
		where, err := selection.OfTable(t, "t")
		if err != nil {
			return nil, err
		}
		one := Compared{Table: t.Name(), Owner: owner, Copy: copied}
		if one.Rows, one.Differing, err = c.table(ctx, t, where); err != nil {
			return nil, fmt.Errorf("compare table %s on shards %q and %q: %w", t.Name(), owner, copied, err)
		}
		all = append(all, one)
	}
	return all, nil
}

// dropMarks removes what a comparison has left on both sides: the move may have ended meanwhile, and have removed its marks before the last of these came. What cannot be removed goes with the move, or harms nobody.
func (v *Mover) dropMarks(ctx context.Context, now *topology.Map, move, marks string, sides ...string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for _, side := range sides {
		conn, err := v.connect(ctx, now, side, comparer, "")
		if err == nil {
			_, err = conn.Exec(ctx, "DELETE FROM cleave.marks WHERE move = $1 AND starts_with(mark, $2)", move, marks)
			closeQuietly(conn)
		}
		if err != nil {
			v.config.Logger.Debug("marks of a comparison are left", "move", move, "shard", side, "error", err)
		}
	}
}
