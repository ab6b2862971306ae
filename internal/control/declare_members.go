package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// member is a shard, the connection to it, and the transaction in which the tables are looked at, made and guarded: until that
// is committed nothing has happened there.
type member struct {
	spec topology.ShardSpec
	conn session
	tx   pgx.Tx
	// preparing: its transaction may be prepared.
	preparing bool
	taken     int64 // rows that it was given
	blocks    map[topology.TableName]shard.Blocks
}

// begin starts the transaction in which rows are copied.
func (m *member) begin(ctx context.Context) (err error) {
	if m.tx, err = m.conn.Begin(ctx); err != nil {
		return err
	}
	if _, err = m.tx.Exec(ctx, shard.CopySettings); err == nil {
		return nil
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == pgerr.InsufficientPrivilege {
		return pgerr.New(pgerr.InsufficientPrivilege, "role %q may not carry rows to or from shard %q", m.conn.Config().User, m.spec.Name).
			WithDetail("%s. Triggers must not fire for rows that are only carried to another shard.", refused.Message).
			WithHint("GRANT SET ON PARAMETER session_replication_role TO the role there, or make it a superuser.")
	}
	return err
}

func (m *member) rollback(ctx context.Context) {
	if m.tx != nil && !m.conn.IsClosed() {
		_ = m.tx.Rollback(ctx) // if that fails the connection is closed, which does the same
	}
}

func (d *declaration) members() []*member {
	if d.home == nil {
		return nil
	}
	return append([]*member{d.home}, d.others...)
}

// eachMember runs work for members side by side, and returns the first error in their order.
func eachMember(members []*member, work func(*member) error) error {
	failures := make([]error, len(members))
	var running sync.WaitGroup
	for i, m := range members {
		running.Go(func() { failures[i] = work(m) })
	}
	running.Wait()
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

// connect reads the map, sees whether it allows for the change, and connects to every shard.
func (d *declaration) connect(ctx context.Context) (err error) {
	if d.m, err = d.cluster.config.Store.Map(ctx); err != nil {
		return err
	}
	if err := d.mayChange(); err != nil {
		return err
	}
	for s := range d.m.Shards() {
		if one := (&member{spec: s.Spec()}); d.home == nil {
			d.home = one // the shards are in the order of their numbers
		} else {
			d.others = append(d.others, one)
		}
	}
	if d.lock, err = d.connectTo(ctx, d.home.spec); err != nil {
		return err
	}
	return eachMember(d.members(), func(m *member) (err error) {
		m.conn, err = d.connectTo(ctx, m.spec)
		return err
	})
}

// connectTo connects under the declaration's name, by which whoever finishes it finds the connection. It may be idle for long.
func (d *declaration) connectTo(ctx context.Context, spec topology.ShardSpec) (session, error) {
	conn, err := d.cluster.config.Access.Connect(ctx, spec)
	if err != nil {
		return nil, pgerr.New(pgerr.ConnectionFailure, "tables cannot be declared while shard %q is away", spec.Name).
			WithDetail("%v", err).WithHint("Every shard takes part, so all of them must be there.")
	}
	if err := d.nameConnection(ctx, conn); err != nil {
		return nil, err
	}
	return conn, nil
}

// nameConnection gives a connection the declaration's name, and closes it if that fails.
func (d *declaration) nameConnection(ctx context.Context, conn session) error {
	_, err := conn.Exec(ctx, "SELECT set_config('application_name', $1, false), (SELECT count(set_config(name, '0', false)) FROM pg_settings WHERE name IN ('idle_session_timeout', 'transaction_timeout'))", applicationOf(d.id))
	if err != nil {
		closeQuietly(conn)
	}
	return err
}

// applicationOf names the connections of a declaration by its hold.
func applicationOf(hold string) string { return "cleave/declare " + hold }

// mayChange is about what the map alone can tell.
func (d *declaration) mayChange() error {
	if d.m.Home() == nil {
		return pgerr.New(pgerr.ObjectNotInPrerequisite, "the cluster has no shards").WithHint("Add one with: cleave shard add")
	}
	if len(d.tables) == 0 {
		return pgerr.New(pgerr.InvalidParameterValue, "no table is named")
	}
	for _, table := range d.tables {
		check := d.mayDeclare
		if d.back {
			check = d.mayUndistribute
		}
		if err := check(table); err != nil {
			return err
		}
	}
	return nil
}

func (d *declaration) mayDeclare(table topology.TableName) error {
	home := d.m.Home()
	if _, k := d.m.LocateSchema(table.Schema); k != nil {
		return pgerr.New(pgerr.ObjectNotInPrerequisite, "schema %q is placed as a whole by keyspace %q", table.Schema, k.Name()).
			WithHint("Tables in it live where it lives; one that is to be sharded has to be in another schema.")
	}
	t := d.m.Table(table.Schema, table.Name)
	switch {
	case t == nil, t.Kind() == topology.Single && t.Shard() == home:
		return nil
	case t.Kind() == topology.Single:
		return pgerr.New(pgerr.FeatureNotSupported, "table %s is on shard %q", table, t.Shard().Name()).
			WithDetail("Only tables on the home shard, %q, can be declared.", home.Name())
	case t.Kind() == topology.Reference:
		return pgerr.New(pgerr.ObjectNotInPrerequisite, "table %s is a reference table already", table).
			WithHint("To make it something else, first run: SELECT cleave.undistribute_table('%s')", table)
	default:
		return pgerr.New(pgerr.ObjectNotInPrerequisite, "table %s is sharded already", table).
			WithDetail("It is in keyspace %q.", t.Keyspace().Name()).
			WithHint("To make it something else, first run: SELECT cleave.undistribute_table('%s')", table)
	}
}

func (d *declaration) mayUndistribute(table topology.TableName) error {
	t := d.m.Table(table.Schema, table.Name)
	if t == nil || t.Kind() == topology.Single {
		return pgerr.New(pgerr.ObjectNotInPrerequisite, "table %s is neither sharded nor a reference table", table).WithHint("cleave.tables lists those that are.")
	}
	return checkAtRest(t.Keyspace())
}

// checkAtRest refuses a keyspace of which a part is being moved: rows may be in two places, and tables that come or go now would be missed.
func checkAtRest(k *topology.Keyspace) error {
	if k == nil {
		return nil
	}
	moving := pgerr.New(pgerr.ObjectNotInPrerequisite, "keyspace %q is being moved from shard to shard", k.Name()).WithHint("Try again when the move has ended.")
	for r := range k.Ranges() {
		if r.Held || len(r.Copies) > 0 {
			return moving
		}
	}
	for p := range k.Pins() {
		if p.Held || len(p.Copies) > 0 {
			return moving
		}
	}
	return nil
}

// lockOut lets one declaration at a time go on: two of one table could guard it by different keys.
func (d *declaration) lockOut(ctx context.Context) error {
	if _, err := d.lock.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(declareLock)); err != nil {
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == pgerr.LockNotAvailable {
			return pgerr.New(refused.Code, "other tables are being declared").WithHint("Try again in a moment.")
		}
		return err
	}
	return nil
}

// resolveLeft finishes what others have left, which may change the map.
func (d *declaration) resolveLeft(ctx context.Context) error {
	if _, _, err := shard.Install(ctx, d.lock); err != nil {
		return err
	}
	if err := d.cluster.resolveLocked(ctx, d.lock, d.m); err != nil {
		return err
	}
	m, err := d.cluster.config.Store.Map(ctx)
	if err == nil && m.Version() != d.m.Version() {
		err = errMapMoved
	}
	return err
}

// bringUpToDate lets every shard record the map that this goes on from: a guard may look into what is recorded. It also makes
// sure that each database is the one that it should be, and that it takes prepared transactions.
func (d *declaration) bringUpToDate(ctx context.Context) error {
	plan := shard.Prepare(d.m)
	return eachMember(d.members(), func(m *member) error {
		if _, _, err := shard.Install(ctx, m.conn); err != nil {
			return err
		}
		_, err := plan.Record(ctx, m.conn, m.spec.Name)
		var newer *shard.NewerError
		if errors.As(err, &newer) {
			return errMapMoved
		}
		if err != nil {
			return err
		}
		return m.takesPrepared(ctx)
	})
}

func (m *member) takesPrepared(ctx context.Context) error {
	var most, used int
	err := m.conn.QueryRow(ctx, "SELECT current_setting('max_prepared_transactions')::int, (SELECT count(*) FROM pg_prepared_xacts)").Scan(&most, &used)
	if err == nil && used >= most {
		return pgerr.New(pgerr.ObjectNotInPrerequisite, "shard %q takes no more prepared transactions", m.spec.Name).
			WithDetail("max_prepared_transactions is %d, and %d are prepared. A declaration prepares one on every shard.", most, used).
			WithHint("ALTER SYSTEM SET max_prepared_transactions = '100'; then restart the server.")
	}
	return err
}

// writeNote lets others finish this, from the moment on that something outlives the connections.
func (d *declaration) writeNote(ctx context.Context) error {
	note := &shard.Note{ID: d.id, Version: d.next.Version(), Hold: d.id}
	for _, table := range d.tables {
		noted := shard.NotedTable{Name: table}
		if t := d.next.Table(table.Schema, table.Name); t != nil {
			spec := t.Spec()
			noted.Becomes = &spec
		}
		note.Tables = append(note.Tables, noted)
	}
	if err := note.Write(ctx, d.lock); err != nil {
		return err
	}
	d.note = note
	return nil
}

func (d *declaration) prepareAll(ctx context.Context) error {
	gid := d.note.GID(d.m.Cluster())
	return eachMember(d.members(), func(m *member) error {
		m.preparing = true
		if err := shard.PrepareTransaction(ctx, m.tx, gid); err != nil {
			return fmt.Errorf("shard %q: %w", m.spec.Name, err)
		}
		return nil
	})
}

// publish decides: from now on the map has the tables as they are to be. A map that others have changed meanwhile will do if it asks for
// the very same guards, and if nobody can have begun to resolve this, because the lock is held still.
func (d *declaration) publish(ctx context.Context) error {
	base := d.m
	published, err := d.update(ctx, func(m *topology.Map) (*topology.Map, error) {
		next, err := m.Next(d.changes...)
		if err != nil {
			return nil, errMapMoved
		}
		if m.Version() != base.Version() && (d.back && !sameTables(base, m, d.tables) || !d.back && !shard.Prepare(next).SameGuards(d.plan, d.tables)) {
			return nil, errMapMoved
		}
		return next, d.stillLocked(ctx)
	})
	if err != nil {
		d.uncertain = errors.Is(err, store.ErrOutcomeUnknown)
		return err
	}
	d.published, d.next, d.plan = true, published, shard.Prepare(published)
	d.cluster.applied(ctx, published.Version())
	return nil
}

// update changes the map while the tables are held.
func (d *declaration) update(ctx context.Context, change func(*topology.Map) (*topology.Map, error)) (*topology.Map, error) {
	if !d.held {
		return d.cluster.config.Store.Update(ctx, change)
	}
	return d.cluster.config.Store.UpdateHolding(ctx, d.id, change)
}

// sameTables says whether two maps have the same tables of these names, and the same shards.
func sameTables(a, b *topology.Map, tables []topology.TableName) bool {
	if a.ShardCount() != b.ShardCount() || a.LastShardNumber() != b.LastShardNumber() {
		return false
	}
	for _, name := range tables {
		one, other := a.Table(name.Schema, name.Name), b.Table(name.Schema, name.Name)
		if other == nil || tableText(one) != tableText(other) || one.Keyspace() != nil && len(keyspaceDifferences(one.Keyspace(), other.Keyspace())) > 0 {
			return false
		}
	}
	return true
}

// stillLocked asks the home shard whether this very connection has the lock, and the note is as it was.
func (d *declaration) stillLocked(ctx context.Context) error {
	var pending bool
	if err := d.lock.QueryRow(ctx, "SELECT EXISTS (SELECT FROM cleave.declarations WHERE id = $1 AND state = 'pending')", d.id).Scan(&pending); err != nil {
		return fmt.Errorf("see whether the declaration still stands: %w", err)
	}
	if !pending {
		return shard.ErrNoNote
	}
	return nil
}

// markDecided comes before anything is committed, so that no later map can turn it around half way. If it fails the lock is lost, and who
// takes it finishes the rest.
func (d *declaration) markDecided(ctx context.Context) error {
	if err := d.note.Mark(ctx, d.lock, shard.Decided); err != nil {
		d.left = true
		d.follows(d.home.spec.Name, err)
	}
	return nil
}

// follows notes what others will finish.
func (d *declaration) follows(name string, err error) {
	d.findings = append(d.findings, api.Finding{
		Severity: api.Warning, Code: "follows", Shard: name,
		Message: fmt.Sprintf("the map has changed, but shard %s has not heard of it yet: %v", name, err),
		Hint:    "This is finished by itself when the shard answers; until then its part of the tables cannot be used.",
	})
}

// commitAll commits what is prepared. A shard that cannot be reached the leader takes care of.
func (d *declaration) commitAll(ctx context.Context) error {
	if d.left {
		return nil
	}
	var lock sync.Mutex
	_ = eachMember(d.members(), func(m *member) error {
		if err := d.finishOn(ctx, m, true); err != nil {
			lock.Lock()
			defer lock.Unlock()
			d.follows(m.spec.Name, err)
			return nil
		}
		m.preparing = false
		return nil
	})
	return nil
}

// finishTries is how often a shard is asked again to finish a prepared transaction, each time over a new connection.
const finishTries = 4

func (d *declaration) finishOn(ctx context.Context, m *member, commit bool) (err error) {
	gid := d.note.GID(d.m.Cluster())
	for try := range finishTries {
		if try > 0 {
			pause(ctx, 200*time.Millisecond<<try)
		}
		if m.conn.IsClosed() {
			fresh, failure := d.connectTo(ctx, m.spec)
			if err = failure; err != nil {
				continue
			}
			m.conn = fresh
		}
		if err = finishPrepared(ctx, m, gid, commit); err == nil {
			return nil
		}
	}
	return err
}

// finishPrepared first ends the transaction that the connection may still be in: it failed to prepare, or the answer was lost.
func finishPrepared(ctx context.Context, m *member, gid string, commit bool) error {
	if m.conn.PgConn().TxStatus() != 'I' {
		if _, err := m.conn.Exec(ctx, "ROLLBACK"); err != nil {
			return err
		}
	}
	return shard.FinishPrepared(ctx, m.conn, gid, commit)
}

// tellShards goes on whatever happens: the map has the tables, and the leader tells those that could not be told.
func (d *declaration) tellShards(ctx context.Context) error {
	if d.left {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	var lock sync.Mutex
	_ = eachMember(d.members(), func(m *member) error {
		if m.preparing {
			return nil // what it has to guard is not there
		}
		_, err := d.plan.Record(ctx, m.conn, m.spec.Name)
		var newer *shard.NewerError
		if err != nil && !errors.As(err, &newer) {
			lock.Lock()
			defer lock.Unlock()
			d.findings = append(d.findings, notRecorded(m.spec.Name, err))
		}
		return nil
	})
	return nil
}

// removeNote ends it, if every shard has committed.
func (d *declaration) removeNote(ctx context.Context) error {
	for _, m := range d.members() {
		if m.preparing || d.left {
			return nil
		}
	}
	if err := d.note.Remove(ctx, d.lock); err != nil {
		d.cluster.config.Logger.Warn("the note of a declaration stays until it is looked at", "declaration", d.what(), "error", err)
	}
	return nil
}

// asClientError turns what the store or a shard said into something for a client; nil if there is nothing to turn.
func asClientError(err error) *pgerr.Error {
	var held *store.HeldError
	if errors.As(err, &held) {
		return pgerr.New(pgerr.LockNotAvailable, "a table is being changed by somebody else").WithDetail("%v", held).WithHint("Try again when that has ended.")
	}
	var open *store.RolloutError
	if errors.As(err, &open) {
		return shard.RolloutInTheWay(open.Rollout)
	}
	var moving *store.MovingError
	if errors.As(err, &moving) {
		return shard.MoveInTheWay(moving.Move)
	}
	if errors.Is(err, store.ErrNotRegistered) {
		return pgerr.New(pgerr.CannotConnectNow, "this router has no record in etcd, so nobody would wait for it").
			WithHint("Try again in a moment; 'cleave status' lists the routers that have one.")
	}
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return nil
	}
	e := pgerr.New(refused.Code, "%s", refused.Message).WithDetail("%s", refused.Detail)
	if refused.Detail == "" { // which shard, and doing what
		e = e.WithDetail("%v.", err)
	}
	if refused.Hint != "" {
		e = e.WithHint("%s", refused.Hint)
	}
	return e
}
