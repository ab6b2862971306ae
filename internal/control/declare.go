package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// declaration makes a table sharded or a reference table, in steps. Each can be done again, and a process that dies after any
// of them leaves what the next attempt takes over; internal/shard/DESIGN.md has the table.
type declaration struct {
	cluster *Cluster
	table   topology.TableName
	role    string
	decide  func(*topology.Map, *shard.Definition) (declared, error)

	m          *topology.Map // as it was when all of this began
	home       *member
	others     []*member
	definition *shard.Definition
	declared   declared
	// keyspaceCreated may be the work of an earlier attempt.
	keyspaceCreated bool
	next            *topology.Map // m with the table
	plan            *shard.Plan   // of next
	guarded         bool          // what follows a failure has to be taken back
	findings        []api.Finding
}

// member is a shard, the connection to it, and the transaction in which the table is looked at, made and guarded: until that
// is committed nothing has happened there.
type member struct {
	spec topology.ShardSpec
	conn session
	tx   pgx.Tx
}

func (m *member) begin(ctx context.Context) (err error) {
	m.tx, err = m.conn.Begin(ctx)
	return err
}

// errMapMoved says that the map has changed since the declaration began: start again.
var errMapMoved = errors.New("the map has changed meanwhile")

const (
	// declareTimeout bounds one attempt.
	declareTimeout = 2 * time.Minute
	declareTries   = 8
	// declareLock is the advisory lock, on the home shard, of all who declare tables.
	declareLock = 0x6465636c617265 // "declare"
)

// declare tries until the map stands still for as long as it takes.
func (c *Cluster) declare(ctx context.Context, table topology.TableName, role string, decide func(*topology.Map, *shard.Definition) (declared, error)) (api.Table, error) {
	created := false
	for range declareTries {
		d := &declaration{cluster: c, table: table, role: role, decide: decide, keyspaceCreated: created}
		err := d.run(ctx)
		created = d.keyspaceCreated
		if err == nil {
			return d.answer(), nil
		}
		if !errors.Is(err, errMapMoved) {
			return api.Table{}, err
		}
	}
	return api.Table{}, fmt.Errorf("declare table %s: %w: %w", table, errMapMoved, store.ErrConflict)
}

// declareStep is one step of a declaration.
type declareStep struct {
	name string
	run  func(*declaration, context.Context) error
}

// declareSteps in their order.
var declareSteps = []declareStep{
	{"connect", (*declaration).connect},
	{"lock out other declarations", (*declaration).lockOut},
	{"bring the shards up to date", (*declaration).bringUpToDate},
	{"examine the table", (*declaration).examine},
	{"create it on the other shards", (*declaration).createOnOthers},
	{"make its keyspace", (*declaration).makeKeyspace},
	{"guard it on the other shards", (*declaration).guardOthers},
	{"guard it on the home shard", (*declaration).guardHome},
	{"publish the map", (*declaration).publish},
	{"tell the shards", (*declaration).tellShards},
	{"wait for the routers", (*declaration).awaitRouters},
}

func (d *declaration) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, declareTimeout)
	defer cancel()
	defer d.close()
	for _, step := range declareSteps {
		if err := step.run(d, ctx); err != nil {
			d.takeBack(ctx, err)
			return explained(err, step.name, d.table)
		}
	}
	return nil
}

// explained leaves errors for a client, and those that callers know, as they are.
func explained(err error, step string, table topology.TableName) error {
	var forClient *pgerr.Error
	if errors.As(err, &forClient) {
		return forClient
	}
	return fmt.Errorf("declare table %s: %s: %w", table, step, err)
}

// takeBack lets the table be as it was, unless the map may have it or the next attempt comes at once. Others are locked out
// until the connection is closed, so this is the guard that this attempt has put there.
func (d *declaration) takeBack(ctx context.Context, err error) {
	if !d.guarded || errors.Is(err, store.ErrOutcomeUnknown) || errors.Is(err, errMapMoved) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	if err := shard.Unguard(ctx, d.home.conn, d.table); err != nil {
		d.cluster.config.Logger.Warn("a table was not declared, and its guard stays until it is", "table", d.table, "error", err)
	}
}

func (d *declaration) close() {
	var sessions []session
	for _, m := range d.members() {
		if m.conn != nil {
			sessions = append(sessions, m.conn)
		}
	}
	closeAll(sessions)
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

// connect reads the map, sees whether it has the table already, and connects to every shard.
func (d *declaration) connect(ctx context.Context) (err error) {
	if d.m, err = d.cluster.config.Store.Map(ctx); err != nil {
		return err
	}
	if err := d.mayDeclare(); err != nil {
		return err
	}
	for s := range d.m.Shards() {
		if one := (&member{spec: s.Spec()}); d.home == nil {
			d.home = one // the shards are in the order of their numbers
		} else {
			d.others = append(d.others, one)
		}
	}
	return eachMember(d.members(), func(m *member) (err error) {
		m.conn, err = d.cluster.config.Access.Connect(ctx, m.spec)
		if err != nil {
			return pgerr.New(pgerr.ConnectionFailure, "table %s cannot be declared while shard %q is away", d.table, m.spec.Name).
				WithDetail("%v", err).WithHint("Every shard gets the table, so all of them must be there.")
		}
		return nil
	})
}

// mayDeclare is about what the map alone can tell.
func (d *declaration) mayDeclare() error {
	home := d.m.Home()
	if home == nil {
		return pgerr.New(pgerr.ObjectNotInPrerequisite, "the cluster has no shards").WithHint("Add one with: cleave shard add")
	}
	if _, k := d.m.LocateSchema(d.table.Schema); k != nil {
		return pgerr.New(pgerr.ObjectNotInPrerequisite, "schema %q is placed as a whole by keyspace %q", d.table.Schema, k.Name()).
			WithHint("Tables in it live where it lives; one that is to be sharded has to be in another schema.")
	}
	t := d.m.Table(d.table.Schema, d.table.Name)
	switch {
	case t == nil, t.Kind() == topology.Single && t.Shard() == home:
		return nil
	case t.Kind() == topology.Single:
		return pgerr.New(pgerr.FeatureNotSupported, "table %s is on shard %q", d.table, t.Shard().Name()).
			WithDetail("Only tables on the home shard, %q, can be declared.", home.Name())
	case t.Kind() == topology.Reference:
		return pgerr.New(pgerr.ObjectNotInPrerequisite, "table %s is a reference table already", d.table)
	default:
		return pgerr.New(pgerr.ObjectNotInPrerequisite, "table %s is sharded already", d.table).
			WithDetail("It is in keyspace %q.", t.Keyspace().Name())
	}
}

// lockOut lets one declaration at a time go on: two of one table could guard it by different keys.
func (d *declaration) lockOut(ctx context.Context) error {
	if _, err := d.home.conn.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(declareLock)); err != nil {
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == "55P03" {
			return pgerr.New(refused.Code, "another table is being declared").WithHint("Try again in a moment.")
		}
		return err
	}
	m, err := d.cluster.config.Store.Map(ctx)
	if err == nil && m.Version() != d.m.Version() {
		err = errMapMoved
	}
	return err
}

// bringUpToDate lets every shard record the map that this goes on from: a guard may look into what is recorded. It also makes
// sure that each database is the one that it should be.
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
		return err
	})
}

// examine locks the table, and sees whether it can be declared and as what.
func (d *declaration) examine(ctx context.Context) (err error) {
	if d.definition, err = shard.Describe(ctx, d.home.conn, d.table); err != nil {
		return err
	}
	if err := d.home.begin(ctx); err != nil {
		return err
	}
	if d.definition.IsTable() {
		if err := shard.LockTable(ctx, d.home.tx, d.table); err != nil {
			return err
		}
	}
	if d.definition, err = shard.Describe(ctx, d.home.tx, d.table); err != nil {
		return err
	}
	if d.role != "" {
		if err := d.definition.CheckRole(ctx, d.home.tx, d.role); err != nil {
			return err
		}
	}
	if err := d.definition.CheckCarried(); err != nil {
		return err
	}
	if d.declared, err = d.decide(d.m, d.definition); err != nil {
		return err
	}
	if err := d.rehearse(d.declared.keyspace, d.declared.table); err != nil {
		return err
	}
	return d.checkEmpty(ctx)
}

// rehearse makes the next map without publishing it.
func (d *declaration) rehearse(changes ...topology.Change) (err error) {
	changes = slices.DeleteFunc(changes, func(c topology.Change) bool { return c == nil })
	if d.next, err = d.m.Next(changes...); err != nil {
		return invalidUnlessTyped(err)
	}
	d.plan = shard.Prepare(d.next)
	return nil
}

// checkEmpty refuses a table with rows. If the guard stands already, an earlier attempt has put it there while the table was
// empty, and what rows there are belong here; but which copy of a reference table is right nobody could tell.
func (d *declaration) checkEmpty(ctx context.Context) error {
	guarded, err := d.plan.IsGuarded(ctx, d.home.tx, d.home.spec.Name, d.table)
	sharded := d.next.Table(d.table.Schema, d.table.Name).Kind() == topology.Sharded
	if err != nil || guarded && (sharded || len(d.others) == 0) {
		return err
	}
	empty, err := shard.IsEmpty(ctx, d.home.tx, d.table)
	if err == nil && !empty {
		return pgerr.New(pgerr.FeatureNotSupported, "table %s is not empty", d.table).
			WithDetail("Rows that are there already cannot be carried to the shards that they belong to yet.").
			WithHint("Declare the table while it is empty: set its rows aside, declare it, and put them back through the router.")
	}
	return err
}

// makeKeyspace publishes the keyspace before anything is guarded by it: its seed is random, so that one which only a guard
// knew would be lost with this process.
func (d *declaration) makeKeyspace(ctx context.Context) error {
	if d.declared.keyspace == nil {
		return nil
	}
	m, err := d.update(ctx, d.declared.keyspace)
	if err != nil {
		return err
	}
	d.m, d.keyspaceCreated = m, true
	return d.rehearse(d.declared.table)
}

// update publishes the next map, if the one in force is still that from which all of this goes on.
func (d *declaration) update(ctx context.Context, changes ...topology.Change) (*topology.Map, error) {
	m, err := d.cluster.config.Store.Update(ctx, func(m *topology.Map) (*topology.Map, error) {
		if m.Version() != d.m.Version() {
			return nil, errMapMoved
		}
		return m.Next(changes...)
	})
	if err == nil {
		d.cluster.applied(ctx, m.Version())
	}
	return m, err
}

func (d *declaration) createOnOthers(ctx context.Context) error {
	return eachMember(d.others, func(m *member) error {
		if err := m.begin(ctx); err != nil {
			return err
		}
		return d.definition.Ensure(ctx, m.tx, m.spec.Name)
	})
}

func (d *declaration) guardOthers(ctx context.Context) error {
	return eachMember(d.others, func(m *member) error {
		if err := d.plan.Guard(ctx, m.tx, m.spec.Name, d.table); err != nil {
			return err
		}
		return m.tx.Commit(ctx)
	})
}

// guardHome is committed before the map changes, so that whoever still writes to the home shard alone writes nothing there
// that belongs elsewhere.
func (d *declaration) guardHome(ctx context.Context) error {
	if err := d.plan.Guard(ctx, d.home.tx, d.home.spec.Name, d.table); err != nil {
		return err
	}
	d.guarded = true
	return d.home.tx.Commit(ctx)
}

func (d *declaration) publish(ctx context.Context) error {
	if _, err := d.update(ctx, d.declared.table); err != nil {
		return err
	}
	d.guarded = false // it stays
	return nil
}

// tellShards goes on whatever happens: the map has the table, and the leader tells those that could not be told.
func (d *declaration) tellShards(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	var lock sync.Mutex
	_ = eachMember(d.members(), func(m *member) error {
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

// awaitRouters waits until no live router takes the table for what it was.
func (d *declaration) awaitRouters(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.cluster.config.RouterPatience)
	defer cancel()
	for {
		late, err := d.lateRouter(ctx)
		if err == nil && late == "" {
			return nil
		}
		pause(ctx, 20*time.Millisecond)
		if ctx.Err() == nil {
			continue
		}
		if late == "" {
			late = "one that is not known, because etcd does not answer,"
		}
		d.findings = append(d.findings, api.Finding{
			Severity: api.Warning, Code: "router_behind",
			Message: fmt.Sprintf("router %s may not have heard of it yet, and still reads the table from the home shard alone", late),
			Hint:    "'cleave status' shows which map version each router works with.",
		})
		return nil
	}
}

// lateRouter names a live router that works with an older map, empty if there is none.
func (d *declaration) lateRouter(ctx context.Context) (string, error) {
	routers, err := d.cluster.config.Store.Routers(ctx)
	for _, r := range routers {
		if r.Applied < d.next.Version() {
			return r.Name, err
		}
	}
	return "", err
}

func (d *declaration) answer() api.Table {
	table := api.DescribeTable(d.next, d.table)
	table.MapVersion, table.KeyspaceCreated, table.Findings = d.next.Version(), d.keyspaceCreated, d.findings
	return table
}
