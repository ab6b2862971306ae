package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/failpoint"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// furnishing gives a new shard all declared tables, empty ones and copies of reference tables, and then puts it into the map.
//
// The new shard's transaction is committed before the map changes: a shard in the map has its tables. Whoever dies in between leaves
// guarded tables in a database that is claimed and has recorded nothing; nobody writes to them, and the next attempt drops them.
// Nothing is written to reference tables from before they are copied until routers know of the new shard: they are held, and locked on
// the home shard against transactions that are still in doubt. The other tables are held only while the map changes, because
// making tables may take long: then nobody is changing one, who has is noticed by its definition, and who comes after has the new map.
type furnishing struct {
	// declaration lends its lock against declarations, its hold, and its transaction on the home shard.
	declaration
	spec  topology.ShardSpec
	fresh *member
	// views are those that were made there.
	views []*shard.View
	// identities are the replica identities of tables on the home shard before moves changed them for their time.
	identities map[topology.TableName]shard.ReplicaIdentity
	// joined are keyspaces whose rows move meanwhile, by name.
	joined []string
	// moment lends the hold on the tables that are not held all the time.
	moment declaration
}

// furnish adds the shard to the map with its tables.
func (c *Cluster) furnish(ctx context.Context, spec topology.ShardSpec) (*topology.Map, error) {
	for range declareTries {
		f := &furnishing{declaration: declaration{cluster: c, id: rand.Text(), why: "add shard " + spec.Name}, spec: spec}
		f.moment = declaration{cluster: c, id: rand.Text(), why: f.why, besideMoves: true}
		err := f.add(ctx)
		if err == nil {
			return f.next, nil
		}
		if !errors.Is(err, errMapMoved) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("add shard %s: %w: %w", spec.Name, errMapMoved, store.ErrConflict)
}

// furnishSteps in their order.
var furnishSteps = []struct {
	name string
	run  func(*furnishing, context.Context) error
}{
	{"connect", (*furnishing).connectBoth},
	{"lock out declarations", func(f *furnishing, ctx context.Context) error { return f.lockOut(ctx) }},
	{"look for roll-outs", func(f *furnishing, ctx context.Context) error { return f.cluster.noRollouts(ctx) }},
	{"resolve what others have left", func(f *furnishing, ctx context.Context) error { return f.resolveLeft(ctx) }},
	{"hold the reference tables", (*furnishing).holdReferences},
	{"make the tables", (*furnishing).makeTables},
	{"hold the other tables", (*furnishing).holdOthers},
	{"see that no table has changed", (*furnishing).checkUnchanged},
	{"make what moves need", (*furnishing).joinMoves},
	{"publish the map", (*furnishing).publishShard},
	{"drop what moves no longer need", (*furnishing).leaveMoves},
	{"release the tables", (*furnishing).releaseAll},
}

func (f *furnishing) add(ctx context.Context) (err error) {
	defer f.closeBoth()
	if f.m, err = f.cluster.config.Store.Map(ctx); err != nil {
		return err
	}
	if !slices.ContainsFunc(f.m.Tables(), func(t *topology.Table) bool { return t.Kind() != topology.Single }) {
		return f.publishShard(ctx) // there is nothing to give
	}
	for _, step := range furnishSteps {
		if err := step.run(f, ctx); err != nil {
			f.takeBackHold(ctx)
			return f.refused(err, step.name)
		}
	}
	return nil
}

// takeBackHold lets routers go on, unless the map may have changed: then they wait until it is known which.
func (f *furnishing) takeBackHold(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	if !f.uncertain {
		f.giveUpHold(ctx)
		f.moment.giveUpHold(ctx)
		return
	}
	m, err := f.cluster.config.Store.Map(ctx)
	for _, d := range []*declaration{&f.declaration, &f.moment} {
		if err == nil && d.held {
			d.held = false
			f.cluster.config.Store.ReleaseInBackground(d.id, m.Version())
		}
	}
}

func (f *furnishing) refused(err error, step string) error {
	known := f.explained(err, step)
	if errors.As(known, new(*pgerr.Error)) {
		return &RefusedError{Message: fmt.Sprintf("shard %s cannot be given the cluster's tables: %v", f.spec.Name, known)}
	}
	return known
}

func (f *furnishing) closeBoth() {
	f.close()
	if f.fresh != nil && f.fresh.conn != nil {
		closeQuietly(f.fresh.conn)
	}
}

func (f *furnishing) connectBoth(ctx context.Context) (err error) {
	f.home, f.fresh = &member{spec: f.m.Home().Spec()}, &member{spec: f.spec}
	if f.lock, err = f.connectTo(ctx, f.home.spec); err != nil {
		return err
	}
	return eachMember([]*member{f.home, f.fresh}, func(m *member) (err error) {
		m.conn, err = f.connectTo(ctx, m.spec)
		return err
	})
}

// holdReferences keeps everybody from writing to reference tables, transactions in doubt included.
func (f *furnishing) holdReferences(ctx context.Context) error {
	for _, t := range f.m.Tables() {
		if t.Kind() == topology.Reference {
			f.tables = append(f.tables, t.Name())
		}
	}
	if len(f.tables) > 0 {
		if err := f.hold(ctx); err != nil {
			return err
		}
	}
	if err := f.home.begin(ctx); err != nil {
		return err
	}
	for _, table := range f.tables {
		if err := shard.LockForReading(ctx, f.home.tx, table); err != nil {
			return err
		}
	}
	return nil
}

// makeTables makes all tables on the new shard in one transaction, with the rows of reference tables.
func (f *furnishing) makeTables(ctx context.Context) (err error) {
	if f.next, err = f.m.Next(topology.AddShard(f.spec)); err != nil {
		return invalidUnlessTyped(err)
	}
	if err := f.fresh.begin(ctx); err != nil {
		return err
	}
	if err := shard.DropLeft(ctx, f.fresh.tx, f.m); err != nil {
		return err
	}
	if err := f.describeAll(ctx); err != nil {
		return err
	}
	if err := f.definitions.Create(ctx, f.fresh.tx, f.spec.Name); err != nil {
		return err
	}
	for _, definition := range f.definitions {
		if err := f.fillTable(ctx, definition); err != nil {
			return err
		}
	}
	if err := f.definitions.Complete(ctx, f.fresh.tx, f.spec.Name); err != nil {
		return err
	}
	if f.views, err = shard.Views(ctx, f.home.tx, f.isDeclared); err != nil {
		return err
	}
	if err := shard.CreateViews(ctx, f.fresh.tx, f.views, f.spec.Name); err != nil {
		return err
	}
	plan := shard.Prepare(f.next)
	for _, definition := range f.definitions {
		if err := plan.Guard(ctx, f.fresh.tx, f.spec.Name, definition.Table); err != nil {
			return err
		}
	}
	return f.fresh.tx.Commit(ctx)
}

// describeAll reads the definitions of all declared tables from the home shard. They were carried over before, so they can be again, unless
// they were changed since.
func (f *furnishing) describeAll(ctx context.Context) (err error) {
	if f.identities, err = f.cluster.identitiesBefore(ctx, f.home.spec.Name); err != nil {
		return err
	}
	for _, t := range f.m.Tables() {
		if t.Kind() == topology.Single {
			continue
		}
		definition, err := shard.Describe(ctx, f.home.tx, t.Name())
		if err == nil {
			definition.WithIdentities(f.identities)
			err = definition.CheckCarried(f.isReference, t.Kind() == topology.Sharded)
		}
		if err != nil {
			return err
		}
		f.definitions = append(f.definitions, definition)
	}
	return nil
}

// fillTable copies a reference table, and lets a sharded one count where no other shard does.
func (f *furnishing) fillTable(ctx context.Context, definition *shard.Definition) error {
	if !f.isReference(definition.Table) {
		blocks, err := f.blocksOf(ctx, definition)
		if err != nil {
			return err
		}
		return definition.SetNumbers(ctx, f.fresh.tx, f.next.Table(definition.Table.Schema, definition.Table.Name), f.next.Shard(f.spec.Name), nil, blocks)
	}
	rows, err := shard.Carry(ctx, f.home.conn, definition.ReadAllSQL(), f.fresh.conn, definition.WriteSQL(), nil)
	if err != nil {
		return fmt.Errorf("copy table %s: %w", definition.Table, err)
	}
	f.moved += rows
	return definition.CarrySequences(ctx, f.home.tx, f.fresh.tx)
}

// blocksOf takes numbers for the new shard, for good: if it is not added after all they are lost.
func (f *furnishing) blocksOf(ctx context.Context, definition *shard.Definition) (shard.Blocks, error) {
	if !definition.HasSmallNumbers() {
		return shard.Blocks{}, nil
	}
	used, _, err := f.cluster.smallSequences(ctx, f.m)
	if err != nil {
		return nil, err
	}
	return definition.TakeBlocks(ctx, f.lock, f.next.ShardCount(), used)
}

// holdOthers keeps everybody from the tables that are not held yet. Who is changing one is waited for.
func (f *furnishing) holdOthers(ctx context.Context) error {
	for _, t := range f.m.Tables() {
		if t.Kind() == topology.Sharded {
			f.moment.tables = append(f.moment.tables, t.Name())
		}
	}
	if len(f.moment.tables) == 0 {
		return nil
	}
	patience, cancel := context.WithTimeout(ctx, f.cluster.config.RouterPatience)
	defer cancel()
	for {
		err := f.moment.hold(ctx) // for as long as it takes: it must not be the wait's end that is reported
		var held *store.HeldError
		if !errors.As(err, &held) {
			return err
		}
		if pause(patience, retryPause); patience.Err() != nil {
			return err
		}
	}
}

// checkUnchanged starts over if a table or a view has been changed since it was made on the new shard.
func (f *furnishing) checkUnchanged(ctx context.Context) error {
	unchanged, err := f.definitions.Unchanged(ctx, f.home.tx, f.identities)
	if err != nil {
		return err
	}
	views, err := shard.Views(ctx, f.home.tx, f.isDeclared)
	if err == nil && (!unchanged || !shard.SameViews(views, f.views)) {
		return errMapMoved
	}
	return err
}

// identitiesBefore are the replica identities that tables of a shard had before moves that are under way changed them.
func (c *Cluster) identitiesBefore(ctx context.Context, name string) (map[topology.TableName]shard.ReplicaIdentity, error) {
	moves, err := c.mover.List(ctx)
	if err != nil {
		return nil, err
	}
	before := map[topology.TableName]shard.ReplicaIdentity{}
	for _, move := range moves {
		for _, one := range move.Identities {
			if table, err := topology.ParseTableName(one.Table); err == nil && one.Shard == name && !move.Phase.HasEnded() {
				before[table] = shard.ReplicaIdentity{Kind: one.Kind, Index: one.Index}
			}
		}
	}
	return before, nil
}

// joinMoves makes what moves that are under way have made on all shards: while a keyspace moves, statements for several shards name views of what each of them owns. The tables are held, so no move begins meanwhile; one that does later finds the shard in the map.
func (f *furnishing) joinMoves(ctx context.Context) error {
	state, err := f.cluster.config.Store.Schema(ctx)
	if err != nil {
		return err
	}
	f.joined = nil
	for _, moving := range state.Moves {
		if moving.Keyspace == "" { // whole tables, which the shard does not have
			continue
		}
		err = pgx.BeginFunc(ctx, f.fresh.conn, func(tx pgx.Tx) error {
			return shard.Prepare(f.next).MakeOwnedViews(ctx, tx, f.spec.Name, moving.Keyspace, plan.Renamed)
		})
		if err != nil {
			return fmt.Errorf("join move %s: %w", moving.ID, err)
		}
		f.joined = append(f.joined, moving.Keyspace)
	}
	failpoint.Hit("shard.joined")
	return nil
}

// leaveMoves goes on whatever happens, since the shard is in the map: what is left there goes with the next move of the keyspace.
func (f *furnishing) leaveMoves(ctx context.Context) error {
	if err := f.dropJoined(ctx); err != nil {
		f.cluster.config.Logger.Warn("a new shard still has what moves needed that have ended", "shard", f.spec.Name, "error", err)
	}
	return nil
}

// dropJoined drops what was made for moves that have ended before the shard was in the map, and so did not look for it there. Those that end from now on do. The tables are held still, so no move has begun since.
func (f *furnishing) dropJoined(ctx context.Context) error {
	if len(f.joined) == 0 {
		return nil
	}
	state, err := f.cluster.config.Store.Schema(ctx)
	if err != nil {
		return err
	}
	for _, keyspace := range f.joined {
		if slices.ContainsFunc(state.Moves, func(m topology.Moving) bool { return m.Keyspace == keyspace }) {
			continue
		}
		err := pgx.BeginFunc(ctx, f.fresh.conn, func(tx pgx.Tx) error { return shard.DropOwnedViews(ctx, tx, keyspace) })
		if err != nil {
			return fmt.Errorf("leave the moves of keyspace %s: %w", keyspace, err)
		}
	}
	return nil
}

// releaseAll lets routers go on with the map that has the shard.
func (f *furnishing) releaseAll(ctx context.Context) error {
	f.moment.next = f.next
	return errors.Join(f.moment.release(ctx), f.release(ctx))
}

// publishShard puts the shard into the map, with the very tables and the number that its sequences were made for.
func (f *furnishing) publishShard(ctx context.Context) error {
	base, update := f.m, f.update
	if f.moment.held {
		update = f.moment.update
	}
	published, err := update(ctx, func(m *topology.Map) (*topology.Map, error) {
		next, err := m.Next(topology.AddShard(f.spec))
		if err != nil {
			return nil, invalidUnlessTyped(err)
		}
		made := f.next != nil
		if !sameDeclared(base, m) || made && next.Shard(f.spec.Name).Number() != f.next.Shard(f.spec.Name).Number() {
			return nil, errMapMoved
		}
		if made {
			err = f.lock.Ping(ctx)
		}
		return next, err
	})
	if err != nil {
		f.uncertain = errors.Is(err, store.ErrOutcomeUnknown)
		return err
	}
	f.published, f.next = true, published
	f.cluster.applied(ctx, published.Version())
	return nil
}

// sameDeclared says whether two maps have the same tables.
func sameDeclared(a, b *topology.Map) bool {
	if a.TableCount() != b.TableCount() {
		return false
	}
	for _, t := range a.Tables() {
		if other := b.Table(t.Name().Schema, t.Name().Name); other == nil || tableText(t) != tableText(other) {
			return false
		}
	}
	return true
}
