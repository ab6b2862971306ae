package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// examine locks the tables, and sees whether they can become what they are to be.
func (d *declaration) examine(ctx context.Context) error {
	if err := d.home.begin(ctx); err != nil {
		return err
	}
	for _, table := range d.tables {
		definition, err := d.examineOne(ctx, table)
		if err != nil {
			return err
		}
		d.definitions = append(d.definitions, definition)
	}
	if err := d.readNumbers(ctx); err != nil {
		return err
	}
	var err error
	if d.changes, err = d.decide(d); err != nil {
		return err
	}
	if d.next, err = d.m.Next(d.changes...); err != nil {
		return invalidUnlessTyped(err)
	}
	d.plan = shard.Prepare(d.next)
	if d.back {
		return d.checkUndeclared()
	}
	return d.checkDeclared(ctx)
}

// checkRole refuses a role that may not declare the tables, before anybody has to wait for it. What it may is seen again when they are locked.
func (d *declaration) checkRole(ctx context.Context) error {
	if d.role == "" {
		return nil
	}
	for _, table := range d.tables {
		definition, err := shard.Describe(ctx, d.home.conn, table)
		if err != nil {
			return err
		}
		if err := definition.CheckRole(ctx, d.home.conn, d.role); err != nil {
			return err
		}
	}
	return nil
}

// readNumbers looks which numbers the rows have that made ids must not meet.
func (d *declaration) readNumbers(ctx context.Context) error {
	d.numbers = map[topology.TableName]shard.Numbers{}
	if d.back || d.kind != topology.Sharded {
		return nil
	}
	for _, definition := range d.definitions {
		var err error
		if d.numbers[definition.Table], err = definition.ReadNumbers(ctx, d.home.tx); err != nil {
			return err
		}
	}
	return nil
}

func (d *declaration) examineOne(ctx context.Context, table topology.TableName) (*shard.Definition, error) {
	definition, err := shard.Describe(ctx, d.home.tx, table)
	if err != nil {
		return nil, err
	}
	if definition.IsTable() {
		lock := shard.LockForReading
		if d.back {
			lock = shard.LockForChange
		}
		if err := lock(ctx, d.home.tx, table); err != nil {
			return nil, err
		}
		if definition, err = shard.Describe(ctx, d.home.tx, table); err != nil {
			return nil, err
		}
	}
	if d.role != "" {
		if err := definition.CheckRole(ctx, d.home.tx, d.role); err != nil {
			return nil, err
		}
	}
	if d.back {
		return definition, nil
	}
	return definition, definition.CheckCarried(d.isReference, d.kind == topology.Sharded)
}

// isReference says whether every shard has the table as it is on the home shard.
func (d *declaration) isReference(table topology.TableName) bool {
	if d.kind == topology.Reference && slices.Contains(d.tables, table) {
		return true
	}
	t := d.m.Table(table.Schema, table.Name)
	return t != nil && t.Kind() == topology.Reference
}

func (d *declaration) checkUndeclared() error {
	for _, definition := range d.definitions {
		if err := definition.CheckUndeclared(d.next); err != nil {
			return err
		}
	}
	return nil
}

func (d *declaration) checkDeclared(ctx context.Context) error {
	d.ends = map[topology.TableName]shard.Ends{}
	for _, definition := range d.definitions {
		if err := definition.CheckForeignKeys(d.next); err != nil {
			return err
		}
		t := d.next.Table(definition.Table.Schema, definition.Table.Name)
		if t.Kind() != topology.Sharded {
			continue
		}
		if err := checkAtRest(t.Keyspace()); err != nil {
			return err
		}
		if err := d.checkNoNullKey(ctx, t, definition); err != nil {
			return err
		}
		var err error
		if d.ends[t.Name()], err = definition.SequenceEnds(ctx, d.home.tx); err != nil {
			return err
		}
	}
	return d.noteHindrances(ctx)
}

// notePatience is for how long a table is read for what is only worth a warning, while nobody may write to it.
const notePatience = time.Second / 2

// noteHindrances warns of what would keep rows from being moved later. It is no reason to refuse: who never moves rows does not need it.
func (d *declaration) noteHindrances(ctx context.Context) error {
	if d.kind != topology.Sharded {
		return nil
	}
	names := make([]string, len(d.tables))
	for i, table := range d.tables {
		names[i] = table.String()
	}
	hindrances, err := shard.Hindrances(ctx, d.home.tx, names, notePatience)
	for _, h := range hindrances {
		d.findings = append(d.findings, api.Finding{
			Severity: api.Warning, Code: string(h.Code), Message: fmt.Sprintf("rows of table %s, and of all that share its keyspace, cannot be moved to another shard: %s", h.Table, h.Message), Hint: h.Hint,
		})
	}
	return err
}

// checkNoNullKey refuses rows that would belong nowhere, before anything is moved. Of a column that is never null there is nothing to look for, however many rows it has.
func (d *declaration) checkNoNullKey(ctx context.Context, t *topology.Table, definition *shard.Definition) error {
	for _, column := range t.KeyColumns() {
		if slices.ContainsFunc(definition.Columns, func(c shard.Column) bool { return c.Name == column && c.NotNull }) {
			continue
		}
		var found bool
		if err := d.home.tx.QueryRow(ctx, fmt.Sprintf("SELECT EXISTS (SELECT FROM %s WHERE %s IS NULL)", t.Name(), sqltext.QuoteIdentifier(column))).Scan(&found); err != nil {
			return err
		}
		if found {
			return pgerr.New(pgerr.NotNullViolation, "null value in column %q of relation %q violates not-null constraint", column, t.Name().Name).
				WithDetail("The shard key says where a row lives, so no part of it can be null.").
				WithHint("Give those rows a value, or delete them: SELECT * FROM %s WHERE %s IS NULL", t.Name(), sqltext.QuoteIdentifier(column))
		}
	}
	return nil
}

func (d *declaration) createOnOthers(ctx context.Context) error {
	return eachMember(d.others, func(m *member) error {
		if err := m.begin(ctx); err != nil {
			return err
		}
		return d.definitions.Create(ctx, m.tx, m.spec.Name)
	})
}

// maxReaders bounds how many connections read the home shard's tables side by side.
const maxReaders = 4

// copyOut gives every other shard its rows.
func (d *declaration) copyOut(ctx context.Context) error {
	places := make(chan struct{}, maxReaders)
	watch := d.watchCopies(ctx)
	defer watch.stop()
	return eachMember(d.others, func(m *member) error {
		places <- struct{}{}
		defer func() { <-places }()
		return d.copyTo(ctx, m, watch)
	})
}

// copyTo streams a shard's rows from the home shard, over a connection that does nothing else.
func (d *declaration) copyTo(ctx context.Context, m *member, watch *copyWatch) error {
	reader := &member{spec: d.home.spec}
	var err error
	if reader.conn, err = d.connectTo(ctx, d.home.spec); err != nil {
		return err
	}
	defer closeQuietly(reader.conn)
	if err := reader.begin(ctx); err != nil {
		return err
	}
	watch.add(reader.conn.PgConn().PID())
	for _, definition := range d.definitions {
		part, err := d.plan.Part(m.spec.Name, definition.Table)
		if err != nil {
			return err
		}
		if err := part.CarryPins(ctx, reader.conn); err != nil {
			return err
		}
		read, err := part.ReadSQL(definition)
		if err != nil {
			return err
		}
		rows, err := shard.Carry(ctx, reader.conn, read, m.conn, definition.WriteSQL(), nil)
		if err != nil {
			return fmt.Errorf("copy table %s to shard %q: %w", definition.Table, m.spec.Name, err)
		}
		watch.finished(rows)
		m.taken += rows
	}
	return nil
}

// copyWatch tells how many rows have been copied, every two seconds.
type copyWatch struct {
	declaration *declaration
	done        atomic.Int64 // rows of copies that have ended
	cancel      context.CancelFunc
	running     sync.WaitGroup

	mu   sync.Mutex
	pids []int32 // of the home shard's backends that copy
}

// reportEvery is how often somebody who waits hears how far it is; tests are impatient.
var reportEvery = 2 * time.Second

func (d *declaration) watchCopies(ctx context.Context) *copyWatch {
	ctx, cancel := context.WithCancel(ctx)
	w := &copyWatch{declaration: d, cancel: cancel}
	w.running.Go(func() { w.run(ctx) })
	return w
}

func (w *copyWatch) stop() {
	w.cancel()
	w.running.Wait()
}

func (w *copyWatch) add(pid uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pids = append(w.pids, int32(pid))
}

func (w *copyWatch) finished(rows int64) { w.done.Add(rows) }

// run asks over a connection of its own, so that being stopped breaks no other.
func (w *copyWatch) run(ctx context.Context) {
	for {
		pause(ctx, reportEvery)
		if ctx.Err() != nil {
			return
		}
		rows, err := w.count(ctx)
		if err != nil {
			return // the copies go on
		}
		w.declaration.report("%d rows have been copied so far", rows)
	}
}

func (w *copyWatch) count(ctx context.Context) (rows int64, err error) {
	w.mu.Lock()
	pids := slices.Clone(w.pids)
	w.mu.Unlock()
	err = w.declaration.cluster.connected(ctx, w.declaration.home.spec, func(ctx context.Context, s session) error {
		return s.QueryRow(ctx, "SELECT coalesce(sum(tuples_processed), 0)::bigint FROM pg_stat_progress_copy WHERE pid = ANY ($1)", pids).Scan(&rows)
	})
	return rows + w.done.Load(), err
}

// completeOthers builds indexes and constraints, when the rows are there, and puts the guards up.
func (d *declaration) completeOthers(ctx context.Context) error {
	if err := d.divideNumbers(ctx); err != nil {
		return err
	}
	views, err := shard.Views(ctx, d.home.tx, d.isDeclared)
	if err != nil {
		return err
	}
	return eachMember(d.others, func(m *member) error {
		if err := d.definitions.Complete(ctx, m.tx, m.spec.Name); err != nil {
			return err
		}
		if err := shard.CreateViews(ctx, m.tx, views, m.spec.Name); err != nil {
			return err
		}
		if m.taken > 0 {
			if err := shard.Analyze(ctx, m.tx, d.tables); err != nil {
				return err
			}
		}
		return d.guard(ctx, m)
	})
}

// isDeclared says whether every shard will have a table.
func (d *declaration) isDeclared(table topology.TableName) bool {
	t := d.next.Table(table.Schema, table.Name)
	return t != nil && t.Kind() != topology.Single
}

// divideNumbers gives each shard numbers of its own, where sequences are too small for lanes, and lets the copies of a reference table's
// sequences stand where the home shard's stand; one shard after the other, because the home shard's transaction is one.
func (d *declaration) divideNumbers(ctx context.Context) error {
	for _, definition := range d.definitions {
		if d.kind == topology.Sharded {
			if err := d.takeBlocks(ctx, definition); err != nil {
				return err
			}
			continue
		}
		for _, m := range d.others {
			if err := definition.CarrySequences(ctx, d.home.tx, m.tx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *declaration) takeBlocks(ctx context.Context, definition *shard.Definition) (err error) {
	if err := definition.StartBlocks(ctx, d.home.tx, d.ends[definition.Table]); err != nil {
		return err
	}
	for _, m := range d.members() {
		if m.blocks == nil {
			m.blocks = map[topology.TableName]shard.Blocks{}
		}
		if m.blocks[definition.Table], err = definition.TakeBlocks(ctx, d.home.tx, len(d.others)+1, nil); err != nil {
			return err
		}
	}
	return nil
}

// guard puts the guards up, and lets sequences count where no other shard's do.
func (d *declaration) guard(ctx context.Context, m *member) error {
	for _, definition := range d.definitions {
		if d.kind == topology.Sharded {
			if err := definition.SetNumbers(ctx, m.tx, d.next.Table(definition.Table.Schema, definition.Table.Name), d.next.Shard(m.spec.Name), d.ends[definition.Table], m.blocks[definition.Table]); err != nil {
				return err
			}
		}
		if err := d.plan.Guard(ctx, m.tx, m.spec.Name, definition.Table); err != nil {
			return err
		}
	}
	return nil
}

// settleHome deletes what the others have got, and puts the guard up. As many rows must go as have come in elsewhere.
func (d *declaration) settleHome(ctx context.Context) error {
	var gone, taken int64
	for _, definition := range d.definitions {
		if err := shard.LockForChange(ctx, d.home.tx, definition.Table); err != nil {
			return err
		}
		if len(d.others) == 0 {
			continue // all rows are the only shard's, and need not be gone through
		}
		part, err := d.plan.Part(d.home.spec.Name, definition.Table)
		if err != nil {
			return err
		}
		deleted, err := part.DeleteOthers(ctx, d.home.tx)
		if err != nil {
			return err
		}
		gone += deleted
	}
	for _, m := range d.others {
		taken += m.taken
	}
	if d.kind == topology.Sharded && gone != taken {
		return pgerr.New(pgerr.InternalError, "%d rows belong to other shards, and these have taken %d", gone, taken).
			WithDetail("Nothing was changed.").WithHint("Please report this, with the keyspace's definition.")
	}
	d.moved = taken
	if gone > 0 {
		if err := shard.Analyze(ctx, d.home.tx, d.tables); err != nil {
			return err
		}
	}
	return d.guard(ctx, d.home)
}

// copyIn brings the rows of a sharded table home, one shard after the other: the home shard's transaction is one.
func (d *declaration) copyIn(ctx context.Context) error {
	if err := eachMember(d.others, func(m *member) error { return d.lockOn(ctx, m) }); err != nil {
		return err
	}
	watch := d.watchCopies(ctx)
	defer watch.stop()
	watch.add(d.home.conn.PgConn().PID())
	for _, definition := range d.definitions {
		if d.m.Table(definition.Table.Schema, definition.Table.Name).Kind() != topology.Sharded {
			continue
		}
		for _, m := range d.others {
			rows, err := shard.Carry(ctx, m.conn, definition.ReadAllSQL(), d.home.conn, definition.WriteSQL(), nil)
			if err != nil {
				return notTogether(err, definition.Table, m.spec.Name)
			}
			watch.finished(rows)
			d.moved += rows
		}
		if err := definition.EndNumbers(ctx, d.home.tx); err != nil {
			return err
		}
	}
	return nil
}

// lockOn begins on a shard with nobody using the tables.
func (d *declaration) lockOn(ctx context.Context, m *member) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	for _, table := range d.tables {
		if err := shard.LockForChange(ctx, m.tx, table); err != nil {
			return fmt.Errorf("lock table %s on shard %q: %w", table, m.spec.Name, err)
		}
	}
	return nil
}

// notTogether explains that values which were unique on each shard are not in one table.
func notTogether(err error, table topology.TableName, name string) error {
	var refused *pgconn.PgError
	if errors.As(err, &refused) && (refused.Code == "23505" || refused.Code == "23P01") {
		return pgerr.New(refused.Code, "%s", refused.Message).
			WithDetail("%s The constraint of table %s held on each shard alone, and a row of shard %q collides with another.", refused.Detail, table, name).
			WithHint("Nothing was changed. Change one of the rows, or drop the constraint.")
	}
	return fmt.Errorf("bring the rows of table %s home from shard %q: %w", table, name, err)
}

func (d *declaration) unguardHome(ctx context.Context) error {
	if d.moved > 0 {
		if err := shard.Analyze(ctx, d.home.tx, d.tables); err != nil {
			return err
		}
	}
	for _, table := range d.tables {
		if err := shard.Unguard(ctx, d.home.tx, table); err != nil {
			return err
		}
	}
	return nil
}

func (d *declaration) dropOnOthers(ctx context.Context) error {
	return eachMember(d.others, func(m *member) error {
		if err := shard.DropViewsOf(ctx, m.tx, d.tables); err != nil {
			return fmt.Errorf("on shard %q: %w", m.spec.Name, err)
		}
		if _, err := m.tx.Exec(ctx, "DROP TABLE "+d.names()); err != nil {
			return fmt.Errorf("drop the tables on shard %q: %w", m.spec.Name, err)
		}
		for _, table := range d.tables {
			if err := shard.Unguard(ctx, m.tx, table); err != nil { // what is left of it
				return err
			}
		}
		return nil
	})
}
