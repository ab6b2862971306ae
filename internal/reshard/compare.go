package reshard

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	owner, copy side
	// pause waits, less long if there is a reason to.
	pause func(context.Context, time.Duration)
	// rest gives way when a part of a table was read.
	rest shard.AfterPart
	// late looks why changes have not come over for a time, and fails if there is nothing to wait for.
	late func(context.Context, time.Duration) error
}

// side is one of the two: a connection that reads rows there, and one that holds what it reads still.
type side struct{ reads, holds *pgx.Conn }

// openSide makes both connections.
func openSide(connect func(settings string) (*pgx.Conn, error)) (s side, err error) {
	if s.reads, err = connect(shard.CompareSettings); err != nil {
		return side{}, err
	}
	if s.holds, err = connect(shard.CompareSettings); err != nil {
		closeQuietly(s.reads)
		return side{}, err
	}
	return s, nil
}

func (s side) close() {
	closeQuietly(s.reads)
	closeQuietly(s.holds)
}

// atOnce reads the owner as it is now, and the copy as it is when all of that has come to it. What comes right behind that is all that differs for no reason, however late changes are and however long it takes to read both.
func (c *comparing) atOnce(ctx context.Context, read func(owner, copied *shard.Still) error) error {
	owner, err := shard.TakeStill(ctx, c.owner.reads, c.owner.holds)
	if err != nil {
		return err
	}
	defer owner.Close(ctx)
	if err := c.pass(ctx); err != nil {
		return err
	}
	copied, err := shard.TakeStill(ctx, c.copy.reads, c.copy.holds)
	if err != nil {
		return err
	}
	defer copied.Close(ctx)
	return read(owner, copied)
}

// tooLate is for comparisons that somebody waits for.
func tooLate(_ context.Context, waited time.Duration) error {
	if waited < time.Minute {
		return nil
	}
	return fmt.Errorf("changes have not come over for %s", waited.Round(time.Second))
}

// comparer is what connections are called that compare on demand.
const comparer = "cleave/verify"

const (
	// compareRounds is how often rows that differ are looked at again before they count.
	compareRounds = 20
	// enoughDiffering is how many rows of a table have to differ so that no others are looked for.
	enoughDiffering = 10_000
)

// rowsAtOnce is how many rows are looked at again at a time: what is known of them is in memory, twice.
var rowsAtOnce = int64(100_000)

// table compares the rows of one table that fit a condition: sums of hashes bucket by bucket at one moment, and of those that differ row by row, again and again until the changes that are under way explain nothing
// of it. It returns how many rows there are, and the keys of those that differ.
func (c *comparing) table(ctx context.Context, table topology.TableName, where string) (rows int64, differing []string, err error) {
	definition, err := shard.Describe(ctx, c.owner.reads, table)
	if err != nil {
		return 0, nil, err
	}
	comparison, err := definition.Compared(ctx, c.owner.reads)
	if err != nil {
		return 0, nil, err
	}
	mine, theirs, err := c.digests(ctx, comparison, where)
	if err != nil {
		return 0, nil, err
	}
	rows = mine.Rows
	buckets := mine.Differing(theirs)
	for range mostNarrowings {
		if mine.RowsIn(theirs, buckets) <= rowsAtOnce {
			break
		}
		isNarrow := comparison.IsNarrow(buckets)
		if isNarrow {
			comparison, where = comparison.Narrowed(where, buckets)
		}
		if mine, theirs, err = c.digests(ctx, comparison, where); err != nil {
			return 0, nil, err
		}
		if again := mine.Differing(theirs); isNarrow {
			buckets = again
		} else { // what was equal once was late
			buckets = slices.DeleteFunc(buckets, func(number int32) bool { return !has(again, number) })
		}
	}
	for _, some := range mine.Groups(theirs, buckets, rowsAtOnce) {
		found, err := c.rows(ctx, comparison, where, some)
		if err != nil {
			return 0, nil, err
		}
		more, err := c.lookAgain(ctx, comparison, where, some, stillDiffering(nil, found.mine, found.theirs, true))
		if differing = append(differing, more...); err != nil || len(differing) >= enoughDiffering {
			return rows, differing, err
		}
	}
	return rows, differing, nil
}

// mostNarrowings is how often what differs is looked for in finer buckets, in which there are thousands of times fewer rows, or, where most of the buckets differ, in the same again.
const mostNarrowings = 4

// has says whether a number is among others, which are in their order.
func has(numbers []int32, number int32) bool {
	_, found := slices.BinarySearch(numbers, number)
	return found
}

// digests are the sums of both sides.
func (c *comparing) digests(ctx context.Context, comparison *shard.Comparison, where string) (mine, theirs *shard.Digest, err error) {
	err = c.atOnce(ctx, func(owner, copied *shard.Still) (err error) {
		if mine, err = comparison.DigestIn(ctx, owner, where, c.rest); err == nil {
			theirs, err = comparison.DigestIn(ctx, copied, where, c.rest)
		}
		return err
	})
	return mine, theirs, err
}

// pass waits until all that was committed by the owner has come to the copy.
func (c *comparing) pass(ctx context.Context) error {
	mark, err := c.leaveMark(ctx)
	if err != nil {
		return err
	}
	for began := time.Now(); ; {
		if has, err := shard.MarkComes(ctx, c.copy.reads, c.move, mark, lateAfter); err != nil || has {
			return err
		}
		if err := c.late(ctx, time.Since(began)); err != nil {
			return err
		}
	}
}

func (c *comparing) leaveMark(ctx context.Context) (mark string, err error) {
	mark = c.marks + time.Now().UTC().Format(time.RFC3339Nano)
	return mark, shard.LeaveMark(ctx, c.owner.reads, c.move, mark)
}

// lateAfter is how long changes may take to come over until it is looked why.
const lateAfter = 5 * time.Second

// sides are rows of both sides: what identifies each, and a hash of it.
type sides struct{ mine, theirs map[string]string }

// rows are those of some buckets.
func (c *comparing) rows(ctx context.Context, comparison *shard.Comparison, where string, buckets []int32) (s sides, err error) {
	err = c.atOnce(ctx, func(owner, copied *shard.Still) (err error) {
		if s.mine, err = comparison.RowsOf(ctx, owner, where, buckets, c.rest); err == nil {
			s.theirs, err = comparison.RowsOf(ctx, copied, where, buckets, c.rest)
		}
		return err
	})
	return s, err
}

// doubt is a row that has differed in every round so far.
type doubt struct {
	theirs string
	// arrives: the copy's row was another one in every round, so changes reach it, and it is written all the time. That explains that it differs, and does not say that it would be right without.
	arrives bool
}

// lookAgain looks at rows that differ until no difference is left. What differs in every round counts, unless changes of it were seen to arrive in each: of a row that the copy does not have they never do. Such rows nobody may write while they are looked at once more, if they can be looked up.
func (c *comparing) lookAgain(ctx context.Context, comparison *shard.Comparison, where string, buckets []int32, doubts map[string]doubt) (left []string, err error) {
	for range compareRounds {
		if len(doubts) == 0 {
			return nil, nil
		}
		c.pause(ctx, 100*time.Millisecond)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		found, err := c.rowsNow(ctx, comparison, where, buckets, doubts)
		if err != nil {
			return nil, err
		}
		doubts = stillDiffering(doubts, found.mine, found.theirs, false)
	}
	var busy []string
	for key, d := range doubts {
		if d.arrives {
			busy = append(busy, key)
		} else {
			left = append(left, key)
		}
	}
	if len(busy) > 0 && comparison.FindsRows() {
		wrong, err := c.whileLocked(ctx, comparison, where, busy)
		if left = append(left, wrong...); err != nil && len(left) == 0 { // or enough is known
			return nil, err
		}
	}
	slices.Sort(left)
	return left, nil
}

const (
	// lockedAtOnce is how many rows nobody may write at a time, lockedWithin how long it may take to get them, and lockedAtMost how long changes may take to come over then. All of it is less than the time after which servers look for deadlocks: it is not for others to give up.
	lockedAtOnce = 20
	lockedWithin = 300 * time.Millisecond
	lockedAtMost = 500 * time.Millisecond
	// forsakenAfter is when a server lets rows go by itself: whoever has locked them may have been stopped.
	forsakenAfter = 5 * time.Second
	// lockTries is how often it is tried to have rows to oneself, and to have their changes come over meanwhile.
	lockTries = 10
)

// whileLocked compares rows that are written all the time, while nobody may: what is written arrives, but that does not say that the rest of the row is right.
func (c *comparing) whileLocked(ctx context.Context, comparison *shard.Comparison, where string, keys []string) (wrong []string, err error) {
	for some := range slices.Chunk(keys, lockedAtOnce) {
		for try := 1; ; try++ {
			more, err := c.compareLocked(ctx, comparison, where, some)
			if err == nil {
				wrong = append(wrong, more...)
				break
			}
			if try == lockTries || ctx.Err() != nil || errors.Is(err, shard.ErrNotFindable) {
				return nil, fmt.Errorf("compare rows that are written all the time, such as the one with key %s: %w", some[0], err)
			}
			c.pause(ctx, time.Duration(try)*100*time.Millisecond)
		}
	}
	return wrong, nil
}

// compareLocked names those of some rows that differ while the owner's cannot be written. Those that the owner does not have cannot be kept from being there the next moment; where that goes on and on, their copies come and go as a whole.
func (c *comparing) compareLocked(ctx context.Context, comparison *shard.Comparison, where string, keys []string) (wrong []string, err error) {
	tx, err := c.owner.holds.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL statement_timeout = %d; SET LOCAL idle_in_transaction_session_timeout = %d", lockedWithin.Milliseconds(), forsakenAfter.Milliseconds())); err != nil {
		return nil, err
	}
	mine, err := comparison.LockRowsWith(ctx, tx, where, keys)
	if err != nil {
		return nil, err
	}
	if mark, err := c.leaveMark(ctx); err != nil {
		return nil, err
	} else if has, err := shard.MarkComes(ctx, c.copy.reads, c.move, mark, lockedAtMost); err != nil {
		return nil, err
	} else if !has {
		return nil, errors.New("changes come over too late")
	}
	theirs, err := comparison.RowsWith(ctx, c.copy.reads, where, keys)
	if err != nil {
		return nil, err
	}
	for key, hash := range mine {
		if theirs[key] != hash {
			wrong = append(wrong, key)
		}
	}
	return wrong, nil
}

// rowsNow are rows in doubt as they are now: those alone, if they can be looked up, and else all of their buckets.
func (c *comparing) rowsNow(ctx context.Context, comparison *shard.Comparison, where string, buckets []int32, doubts map[string]doubt) (s sides, err error) {
	if !comparison.FindsRows() {
		return c.rows(ctx, comparison, where, buckets)
	}
	s, err = c.lookUp(ctx, comparison, where, slices.Collect(maps.Keys(doubts)))
	if errors.Is(err, shard.ErrNotFindable) {
		return c.rows(ctx, comparison, where, buckets)
	}
	return s, err
}

// lookUp looks rows up on both sides.
func (c *comparing) lookUp(ctx context.Context, comparison *shard.Comparison, where string, keys []string) (s sides, err error) {
	began := time.Now()
	if s.mine, err = comparison.RowsWith(ctx, c.owner.reads, where, keys); err != nil {
		return s, err
	}
	worked := time.Since(began)
	if err := c.pass(ctx); err != nil {
		return s, err
	}
	began = time.Now()
	if s.theirs, err = comparison.RowsWith(ctx, c.copy.reads, where, keys); err != nil {
		return s, err
	}
	return s, c.rest(ctx, worked+time.Since(began), 0)
}

// stillDiffering are the doubts of a round that there were in all rounds before; of the first one all.
func stillDiffering(before map[string]doubt, mine, theirs map[string]string, first bool) map[string]doubt {
	doubts := map[string]doubt{}
	add := func(key string) {
		d, doubted := before[key]
		switch {
		case first:
			doubts[key] = doubt{theirs: theirs[key], arrives: true}
		case doubted:
			doubts[key] = doubt{theirs: theirs[key], arrives: d.arrives && d.theirs != theirs[key]}
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

// CompareSides compares both sides of a move that [Move.KeepsCopy], for the tables that are wanted, and rests as it is told after each part. It fails with [ErrMovedOn] if the move has left its phase before it was done. It is for whoever wants to know; the move
// itself compares them before it switches.
func (v *Mover) CompareSides(ctx context.Context, m *Move, wanted func(topology.TableName) bool, rest shard.AfterPart) ([]Compared, error) {
	staying, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { v.watchPhase(staying, m, cancel) })
	compared, err := v.compareSides(staying, m, wanted, rest)
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

func (v *Mover) compareSides(ctx context.Context, m *Move, wanted func(topology.TableName) bool, rest shard.AfterPart) ([]Compared, error) {
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
	c := &comparing{move: m.ID, marks: "asked " + NewID() + " ", pause: doze, rest: rest, late: tooLate}
	defer v.dropMarks(ctx, now, c.move, c.marks, owner, copied)
	to := func(name string) (side, error) {
		return openSide(func(settings string) (*pgx.Conn, error) { return v.connect(ctx, now, name, comparer, settings) })
	}
	if c.owner, err = to(owner); err != nil {
		return nil, err
	}
	defer c.owner.close()
	if c.copy, err = to(copied); err != nil {
		return nil, err
	}
	defer c.copy.close()
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
		if one.Rows, one.Differing, err = c.table(ctx, t.Name(), where); err != nil {
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
