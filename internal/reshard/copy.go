package reshard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/failpoint"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// chunkPages is how many pages of a table one statement copies: some 64 megabytes.
const chunkPages = 8192

// copy brings the rows of a snapshot to the target, and makes what is better made when they are there.
func (r *run) copy(ctx context.Context) error {
	now, err := r.current(ctx)
	if err != nil {
		return err
	}
	beats := func() {}
	defer func() { beats() }()
	if r.state().Copied {
		if err := r.staysCopied(ctx); err != nil {
			return err
		}
	} else if beats, err = r.copyRows(ctx, now); err != nil || r.state().Phase != Copying { // somebody may want something else by now
		return err
	}
	if r.state().IsWhole() {
		if err := r.completeWhole(ctx, now); err != nil {
			return err
		}
	}
	return r.enter(ctx, CatchingUp)
}

// copyRows copies. What a former attempt has left is deleted first: a snapshot ends with its connection. From when there is a slot, marks are written on the source until somebody calls the function that it returns: the target will catch up
// with all of it, also with what is written while its tables are completed.
func (r *run) copyRows(ctx context.Context, now *topology.Map) (beats func(), err error) {
	move := r.state()
	if err := r.clear(ctx, now); err != nil {
		return func() {}, err
	}
	if err := r.noteServers(ctx); err != nil {
		return func() {}, err
	}
	c := &copier{r: r, now: now, move: move, stops: func() {}}
	if err := c.run(ctx); err != nil {
		return c.stops, err
	}
	if err := r.save(ctx, c.end); err != nil {
		return c.stops, err
	}
	failpoint.Hit("move.copied")
	return c.stops, nil
}

// clear removes what a former attempt has left.
func (r *run) clear(ctx context.Context, now *topology.Map) error {
	move := r.state()
	if err := r.carryNothing(ctx); err != nil { // also if one of both is away: the other must not keep changes for that
		return err
	}
	if move.IsWhole() {
		if err := r.makeWhole(ctx, now, move.Target); err != nil {
			return err
		}
		failpoint.Hit("move.tables.made")
		return nil
	}
	return r.deleteRows(ctx, now, move.Target)
}

// end notes that all is copied, unless somebody wants something else by now: then that is of no use.
func (c *copier) end(m *Move) {
	if m.Phase != Copying {
		return
	}
	c.note(m)
	m.Copied, m.Again = true, ""
}

// noteServers notes which servers take part.
func (r *run) noteServers(ctx context.Context) error {
	var states [2]string
	for i, side := range r.state().sides() {
		err := r.on(ctx, side, func(ctx context.Context, conn *pgx.Conn) (err error) {
			states[i], err = shard.ServerState(ctx, conn)
			return err
		})
		if err != nil {
			return err
		}
	}
	return r.save(ctx, func(m *Move) { m.SourceState, m.TargetState = states[0], states[1] })
}

// sameServers says whether both servers are those that they were when the copy began.
func (r *run) sameServers(ctx context.Context) (bool, error) {
	for _, side := range r.state().sides() {
		if same, err := r.sameServer(ctx, side); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

func (r *run) sameServer(ctx context.Context, side string) (same bool, err error) {
	move := r.state()
	was := move.SourceState
	if side == move.Target {
		was = move.TargetState
	}
	err = r.on(ctx, side, func(ctx context.Context, conn *pgx.Conn) error {
		state, err := shard.ServerState(ctx, conn)
		same = state == was
		return err
	})
	return same && err == nil, err
}

// copier is one attempt to copy.
type copier struct {
	r    *run
	now  *topology.Map
	move *Move

	snapshot string
	throttle *throttle
	stops    func() // ends the beats
	worked   time.Duration
	tables   []*copiedTable
	chunks   chan chunk
}

// copiedTable is a table while it is copied.
type copiedTable struct {
	definition             *shard.Definition
	where                  string
	leaves                 []shard.Leaf
	rows, bytes, pagesRead atomic.Int64
	pagesInAll             int64
}

// chunk is what one statement copies.
type chunk struct {
	table    *copiedTable
	leaf     shard.Leaf
	from, to int64 // pages; to below 0: up to the end
}

func (c *copier) run(ctx context.Context) error {
	if err := c.describe(ctx); err != nil {
		return err
	}
	c.r.say(ctx, "transactions that began earlier on shard "+c.move.Source+" have to end before its changes can be followed", c.note)
	keeper, err := c.makeSlot(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = keeper.Close(ctx)
	}()
	c.r.say(ctx, "", c.note)
	c.stops = c.r.beating(ctx, c.now, beatCopying)
	c.throttle = c.r.giveWay(ctx, c.now, "the copy", c.move.Target)
	defer c.throttle.close()
	return c.copyAll(ctx)
}

// describe finds out what there is to copy.
func (c *copier) describe(ctx context.Context) error {
	selection, err := c.move.selection(c.now)
	if err != nil {
		return err
	}
	return c.r.on(ctx, c.move.Source, func(ctx context.Context, conn *pgx.Conn) error {
		for _, t := range c.move.tables(c.now) {
			copied := &copiedTable{}
			if copied.definition, err = shard.Describe(ctx, conn, t.Name()); err != nil {
				return err
			}
			if copied.where, err = selection.OfTable(t, "t"); err != nil {
				return err
			}
			if copied.leaves, err = shard.Leaves(ctx, conn, t.Name()); err != nil {
				return err
			}
			for _, leaf := range copied.leaves {
				copied.pagesInAll += leaf.Pages
			}
			c.tables = append(c.tables, copied)
		}
		return nil
	})
}

// note writes down how far it is.
func (c *copier) note(m *Move) {
	m.Tables, m.Worked = nil, c.worked
	for _, t := range c.tables {
		m.Tables = append(m.Tables, TableProgress{
			Name: t.definition.Table.String(), Rows: t.rows.Load(), Bytes: t.bytes.Load(), PagesRead: min(t.pagesRead.Load(), t.pagesInAll), PagesInAll: t.pagesInAll,
		})
	}
}

// makeSlot makes the slot that keeps the changes from now on, and a snapshot of what was before, which lives as long as the connection.
func (c *copier) makeSlot(ctx context.Context) (*pgconn.PgConn, error) {
	conn, err := c.r.mover.config.Access.Replicate(ctx, c.now.Shard(c.move.Source).Spec(), shard.Application(c.r.application(), c.r.leadership.Token())) // so that a later leader ends it
	if err != nil {
		return nil, err
	}
	var results []*pgconn.Result
	err = c.r.untilOthersEnd(ctx, c.move.Source, c.move.forward(), func(ctx context.Context) error {
		results, err = conn.Exec(ctx, "CREATE_REPLICATION_SLOT "+c.move.forward()+" LOGICAL pgoutput (SNAPSHOT 'export')").ReadAll()
		return err
	})
	if err == nil && (len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) < 3) {
		err = errors.New("the server did not tell the snapshot")
	}
	if err == nil {
		if err = c.r.on(ctx, c.move.Source, func(context.Context, *pgx.Conn) error { return nil }); err != nil { // nobody else would drop it, if this process leads no more and it was made after the next leader looked
			err = errors.Join(err, dropOwnSlot(ctx, conn, c.move.forward()))
		}
	}
	if err != nil {
		_ = conn.Close(ctx)
		return nil, fmt.Errorf("make a replication slot on shard %q: %w", c.move.Source, err)
	}
	failpoint.Hit("move.slot.made")
	c.snapshot = string(results[0].Rows[0][2])
	return conn, nil
}

// dropOwnSlot drops a slot over the connection that has just made it, also when all else has to end.
func dropOwnSlot(ctx context.Context, conn *pgconn.PgConn, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, err := conn.Exec(ctx, "DROP_REPLICATION_SLOT "+name).ReadAll()
	return err
}

// copyAll copies in several streams.
func (c *copier) copyAll(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.chunks = make(chan chunk)
	var working sync.WaitGroup
	for number := range c.move.Options.Streams {
		working.Go(func() {
			if err := c.stream(ctx, number); err != nil {
				cancel(err)
			}
		})
	}
	working.Go(func() { c.hand(ctx) })
	watching, stopWatching := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { c.watch(watching, cancel) })
	working.Wait()
	stopWatching()
	watcher.Wait()
	return context.Cause(ctx)
}

// hand gives the streams their work, the largest tables first as they come.
func (c *copier) hand(ctx context.Context) {
	defer close(c.chunks)
	for _, t := range c.tables {
		for _, leaf := range t.leaves {
			for from := int64(0); from == 0 || from < leaf.Pages; from += chunkPages {
				to := from + chunkPages
				if to >= leaf.Pages {
					to = -1
				}
				select {
				case c.chunks <- chunk{t, leaf, from, to}:
				case <-ctx.Done():
					return
				}
			}
		}
	}
}

// stream copies one chunk after the other, under an origin of its own: only one session can use one.
func (c *copier) stream(ctx context.Context, number int) error {
	from, err := c.r.connect(ctx, c.now, c.move.Source)
	if err != nil {
		return err
	}
	defer closeQuietly(from)
	to, err := c.r.connect(ctx, c.now, c.move.Target)
	if err != nil {
		return err
	}
	defer closeQuietly(to)
	if err := shard.UseOrigin(ctx, to, c.move.copyOrigin(number)); err != nil {
		return err
	}
	if _, err := from.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET TRANSACTION SNAPSHOT '"+c.snapshot+"'; "+shard.CopySettings); err != nil {
		return fmt.Errorf("read the snapshot on shard %q: %w", c.move.Source, err)
	}
	for work := range c.chunks {
		if err := c.awaitResume(ctx); err != nil {
			return err
		}
		if err := c.copyChunk(ctx, from, to, work); err != nil {
			return fmt.Errorf("copy table %s: %w", work.leaf.Name, err)
		}
	}
	return nil
}

// copyChunk copies one chunk, in a transaction of its own on the target.
func (c *copier) copyChunk(ctx context.Context, from, to *pgx.Conn, work chunk) error {
	where := "(" + work.table.where + ")"
	if work.from > 0 || work.to >= 0 {
		where = shard.PagesSQL(work.from, work.to) + " AND " + where
	}
	if _, err := to.Exec(ctx, "BEGIN; "+shard.CopySettings); err != nil {
		return err
	}
	failpoint.Hit("move.copy.rows")
	n := &counted{table: work.table, pacer: pacer{t: c.throttle, streams: c.move.Options.Streams}}
	rows, err := shard.Carry(ctx, from, work.table.definition.ReadPartSQL(work.leaf.Name, where), to, work.table.definition.WriteSQL(), func(bytes int) { n.pass(ctx, bytes) })
	if err != nil {
		return err
	}
	if _, err := to.Exec(ctx, "COMMIT"); err != nil {
		return err
	}
	work.table.rows.Add(rows)
	c.r.mover.config.Metrics.Copied(rows, n.bytes)
	last := work.to
	if last < 0 {
		last = work.leaf.Pages
	}
	work.table.pagesRead.Add(last - work.from)
	n.pacer.rest(ctx)
	return nil
}

// counted counts bytes on their way, and slows them down.
type counted struct {
	table *copiedTable
	bytes int64
	pacer pacer
}

func (n *counted) pass(ctx context.Context, size int) {
	n.table.bytes.Add(int64(size))
	n.bytes += int64(size)
	n.pacer.pass(ctx, size)
}
