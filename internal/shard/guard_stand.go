package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// guardsOf returns what has to stand on the tables of a shard, in the order of their names.
func (p *Plan) guardsOf(s *topology.Shard) ([]guard, error) {
	owned := map[string]ownership{}
	for _, k := range p.keyspaces {
		owned[k.keyspace.Name()] = k.ownership(s.Number())
	}
	var guards []guard
	for _, t := range p.m.Tables() {
		switch t.Kind() {
		case topology.Sharded:
			g, err := shardedGuard(t, s, owned[t.Keyspace().Name()])
			if err != nil {
				return nil, fmt.Errorf("guard of table %s: %w", t.Name(), err)
			}
			if alert := owned[t.Keyspace().Name()]; !alert.watchful {
				alert.watchful = true
				g.watchful = func() (guard, error) { return shardedGuard(t, s, alert) }
			}
			guards = append(guards, g)
		case topology.Reference:
			guards = append(guards, referenceGuard(t.Name(), len(p.members)))
		case topology.Single:
		}
	}
	return guards, nil
}

// prepareGuards gives a recorder what guards need.
func (p *Plan) prepareGuards(r *recorder, name string) (err error) {
	s := p.m.Shard(name)
	if r.guards, err = p.guardsOf(s); err != nil {
		return err
	}
	if r.owns, err = p.ownsOf(s); err != nil {
		return err
	}
	r.generator = generatorOf(s)
	r.pins = map[string]map[rowID]guardPin{}
	for _, k := range p.keyspaces {
		r.pins[k.keyspace.Name()] = k.guardPins(s.Number())
	}
	return nil
}

// standGuards makes those guards anew that are missing or not as they should be, on tables that are there, and takes away
// those of released tables.
func (r *recorder) standGuards(ctx context.Context, released []string) error {
	mended, err := mendGuards(ctx, r.tx, r.guards)
	if err != nil {
		return err
	}
	made, err := mendOwns(ctx, r.tx, r.owns)
	if err != nil {
		return err
	}
	r.changed = r.changed || mended+made > 0
	for _, text := range released {
		name, err := topology.ParseTableName(text)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(r.guards, func(g guard) bool { return g.table == name }) {
			continue
		}
		if err := dropGuard(ctx, r.tx, name); err != nil {
			return fmt.Errorf("take the guard off table %s: %w", name, err)
		}
	}
	return nil
}

func mendGuards(ctx context.Context, tx pgx.Tx, guards []guard) (mended int, err error) {
	if len(guards) == 0 {
		return 0, nil
	}
	standing, err := standingGuards(ctx, tx)
	if err != nil {
		return 0, err
	}
	there, err := ordinaryTables(ctx, tx, guards)
	if err != nil {
		return 0, err
	}
	for _, g := range guards {
		if g, err = g.asStanding(standing[g.table]); err != nil {
			return mended, err
		}
		if !there[g.table] || g.fault(standing[g.table]) == "" {
			continue
		}
		if err := g.mend(ctx, tx, standing[g.table]); err != nil {
			return mended, fmt.Errorf("put a guard on table %s: %w", g.table, err)
		}
		mended++
	}
	return mended, nil
}

// asStanding is the guard that should stand there, going by what does: one that watches more than it needs to is left until somebody can take it down, since that needs a lock on the table.
func (g guard) asStanding(standing map[string]standingTrigger) (guard, error) {
	if _, watches := standing[deleteGuard]; watches && g.watchful != nil {
		return g.watchful()
	}
	return g, nil
}

// Watch puts up the guard of a table as it has to be while its rows move, before the map says so: then no record has to wait for a lock. It fails with [pgerr.LockNotAvailable] if the table is in use
// for longer than others should wait behind it, and with a [NewerError] if the shard has recorded a newer map.
func (p *Plan) Watch(ctx context.Context, conn *pgx.Conn, name string, table topology.TableName) error {
	return p.regard(ctx, conn, name, table, func(g guard, standing map[string]standingTrigger) (guard, bool, error) {
		if g.watchful != nil {
			var err error
			if g, err = g.watchful(); err != nil {
				return g, false, err
			}
		}
		return g, g.triggerFault(standing) != "", nil
	})
}

// Relax puts the usual guard on a table whose rows do not move any more. It fails as [Plan.Watch] does.
func (p *Plan) Relax(ctx context.Context, conn *pgx.Conn, name string, table topology.TableName) error {
	return p.regard(ctx, conn, name, table, func(g guard, standing map[string]standingTrigger) (guard, bool, error) {
		return g, g.triggerFault(standing) != "", nil
	})
}

// regard puts a guard up in a transaction of its own.
func (p *Plan) regard(ctx context.Context, conn *pgx.Conn, name string, table topology.TableName, choose func(guard, map[string]standingTrigger) (guard, bool, error)) error {
	s := p.m.Shard(name)
	if s == nil {
		return &topology.NotFoundError{Kind: "shard", Name: name}
	}
	guards, err := p.guardsOf(s)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(guards, func(g guard) bool { return g.table == table })
	if at < 0 {
		return &topology.NotFoundError{Kind: "table", Name: table.String()}
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		id, err := lockIdentity(ctx, tx)
		if err != nil {
			return err
		}
		if id.MapVersion > p.m.Version() { // which may want another guard
			return &NewerError{Recorded: id.MapVersion, Map: p.m.Version()}
		}
		standing, err := standingGuards(ctx, tx)
		if err != nil {
			return err
		}
		g, due, err := choose(guards[at], standing[table])
		if err != nil || !due {
			return err
		}
		mode := "SHARE ROW EXCLUSIVE"
		if _, watched := standing[table][deleteGuard]; watched && !slices.Contains(g.triggers, deleteGuard) {
			mode = "ACCESS EXCLUSIVE"
		}
		if err := lockPatiently(ctx, tx, table, mode, once); err != nil {
			return err
		}
		return g.mend(ctx, tx, standing[table])
	})
}

// Mend makes the guards of a shard anew that are missing, disabled or outdated, if the shard has recorded the plan's version,
// and returns how many it was. A shard that has not gets them with its record. Backends that have ended are forgotten on the way.
func (p *Plan) Mend(ctx context.Context, conn *pgx.Conn, name string) (mended int, err error) {
	s := p.m.Shard(name)
	if s == nil {
		return 0, &topology.NotFoundError{Kind: "shard", Name: name}
	}
	guards, err := p.guardsOf(s)
	if err != nil {
		return 0, err
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		id, err := lockIdentity(ctx, tx)
		if err != nil || id.Cluster != p.m.Cluster() || id.Shard != name || id.MapVersion != p.m.Version() {
			return err
		}
		mended, err = mendGuards(ctx, tx, guards)
		return err
	})
	if err == nil { // not within: who fences has the backends locked, and then locks the record
		err = forgetEnded(ctx, conn)
	}
	if err != nil {
		return 0, fmt.Errorf("mend the guards of shard %q: %w", name, err)
	}
	return mended, nil
}

// CheckGuards says which tables of a shard are not there, or are not guarded as they should be. The shard must have recorded
// the plan's version.
func (p *Plan) CheckGuards(ctx context.Context, conn *pgx.Conn, name string) ([]api.Finding, error) {
	s := p.m.Shard(name)
	if s == nil {
		return nil, &topology.NotFoundError{Kind: "shard", Name: name}
	}
	guards, err := p.guardsOf(s)
	if err != nil {
		return nil, err
	}
	standing, err := standingGuards(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("look at the guards of shard %q: %w", name, err)
	}
	there, err := ordinaryTables(ctx, conn, guards)
	if err != nil {
		return nil, fmt.Errorf("look at the tables of shard %q: %w", name, err)
	}
	var f findings
	for _, g := range guards {
		if g, err = g.asStanding(standing[g.table]); err != nil {
			return nil, err
		}
		f.checkGuard(g, standing[g.table], there[g.table])
		delete(standing, g.table)
	}
	for table := range standing {
		if t := p.m.Table(table.Schema, table.Name); t != nil && t.Kind() == topology.Single {
			continue // it moves
		}
		f.warning("guard_left", fmt.Sprintf("table %s has a guard, but it is not sharded: a declaration of it was interrupted", table),
			"Declare it again, or take the guard off: "+dropGuardSQL(table))
	}
	f.about(name, 0)
	return f, nil
}

func (f *findings) checkGuard(g guard, standing map[string]standingTrigger, there bool) {
	if !there {
		f.warning("table_missing", fmt.Sprintf("table %s is not there", g.table), "Create it here as it is on the other shards; the guard follows by itself.")
		return
	}
	if fault := g.fault(standing); fault != "" {
		f.problem("guard", fmt.Sprintf("table %s is not guarded against rows that belong elsewhere: %s", g.table, fault),
			"The leader mends it by itself within a minute or so; if this stays, see its log.")
	}
}

// standingTrigger is a trigger that calls a function of ours.
type standingTrigger struct {
	enabled        string // as PostgreSQL has it: O is the usual
	function       string
	digest, source string
}

// fault says what is wrong with what stands on a table, nothing if all is well.
func (g guard) fault(standing map[string]standingTrigger) string {
	if fault := g.triggerFault(standing); fault != "" {
		return fault
	}
	for _, name := range g.triggers {
		t := standing[name]
		if source, own := g.sources[t.function]; own && t.source != source {
			return "the function of trigger " + name + " was changed"
		}
	}
	return ""
}

// triggerFault is about what cannot be mended without a lock on the table. A trigger too many is one too: a guard that need not watch any more does not.
func (g guard) triggerFault(standing map[string]standingTrigger) string {
	if _, there := standing[deleteGuard]; there && !slices.Contains(g.triggers, deleteGuard) {
		return "trigger " + deleteGuard + " is not needed any more"
	}
	for _, name := range g.triggers {
		t, there := standing[name]
		switch {
		case !there:
			return "trigger " + name + " is missing"
		case t.enabled != "O":
			return "trigger " + name + " is disabled, or fires for replicated rows too"
		case t.digest != g.digest:
			return "trigger " + name + " is outdated"
		}
	}
	return ""
}

// standingGuards lists the triggers that call functions of ours, by table and name, but for those of moves of whole tables, which no map says anything about.
func standingGuards(ctx context.Context, on querier) (map[topology.TableName]map[string]standingTrigger, error) {
	standing, err := standingTriggers(ctx, on)
	for table, triggers := range standing {
		if delete(triggers, wholeGuard); len(triggers) == 0 {
			delete(standing, table)
		}
	}
	return standing, err
}

// standingTriggers lists the triggers that call functions of ours, by table and name. Those of partitions are their table's, and must be as it is.
func standingTriggers(ctx context.Context, on querier) (map[topology.TableName]map[string]standingTrigger, error) {
	const query = `
		SELECT n.nspname, c.relname, t.tgname, CASE WHEN c.relkind = 'p' AND EXISTS (SELECT FROM pg_trigger o WHERE o.tgparentid <> 0 AND o.tgfoid = t.tgfoid AND o.tgname = t.tgname AND o.tgenabled <> t.tgenabled
				AND o.tgrelid IN (SELECT relid FROM pg_partition_tree(c.oid))) THEN 'D' ELSE t.tgenabled::text END, p.proname, substr(encode(t.tgargs, 'escape'), 1, $1), p.prosrc
		FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_proc p ON p.oid = t.tgfoid
		WHERE NOT t.tgisinternal AND t.tgparentid = 0 AND p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'cleave')`
	rows, err := on.Query(ctx, query, guardDigestLength)
	if err != nil {
		return nil, err
	}
	standing := map[topology.TableName]map[string]standingTrigger{}
	var table topology.TableName
	var name string
	var one standingTrigger
	_, err = pgx.ForEachRow(rows, []any{&table.Schema, &table.Name, &name, &one.enabled, &one.function, &one.digest, &one.source}, func() error {
		if standing[table] == nil {
			standing[table] = map[string]standingTrigger{}
		}
		standing[table][name] = one
		return nil
	})
	return standing, err
}

// ordinaryTables says which of the guards' tables are there.
func ordinaryTables(ctx context.Context, on querier, guards []guard) (map[topology.TableName]bool, error) {
	schemas, names := make([]string, len(guards)), make([]string, len(guards))
	for i, g := range guards {
		schemas[i], names[i] = g.table.Schema, g.table.Name
	}
	rows, err := on.Query(ctx, `
		SELECT n.nspname, c.relname FROM unnest($1::text[], $2::text[]) AS want (schema, name)
		JOIN pg_namespace n ON n.nspname = want.schema JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = want.name AND c.relkind IN ('r', 'p')`, schemas, names)
	if err != nil {
		return nil, err
	}
	there := map[topology.TableName]bool{}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[topology.TableName])
	for _, name := range found {
		there[name] = true
	}
	return there, err
}

// mend puts the guard on its table in the place of what stands there. If only its functions have changed nobody has to wait for it.
func (g guard) mend(ctx context.Context, tx pgx.Tx, standing map[string]standingTrigger) error {
	if g.triggerFault(standing) == "" {
		return g.make(ctx, tx)
	}
	if _, watched := standing[deleteGuard]; watched && !slices.Contains(g.triggers, deleteGuard) {
		if err := lockTable(ctx, tx, g.table, "ACCESS EXCLUSIVE"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf("DROP TRIGGER IF EXISTS %s ON %s", deleteGuard, g.table)); err != nil {
			return err
		}
	}
	return g.stand(ctx, tx)
}

// stand puts the guard on its table. Statements that wait for the lock see it when they go on, prepared ones too.
func (g guard) stand(ctx context.Context, tx pgx.Tx) error {
	if err := ensureMaker(ctx, tx, g.generator); err != nil {
		return err
	}
	if err := lockTable(ctx, tx, g.table, "SHARE ROW EXCLUSIVE"); err != nil {
		return err
	}
	if err := g.make(ctx, tx); err != nil {
		return err
	}
	return executeAll(ctx, tx, g.setting)
}

// make makes the functions. Statements that run already may go on with the old ones.
func (g guard) make(ctx context.Context, tx pgx.Tx) error { return executeAll(ctx, tx, g.making) }

// dropGuardSQL is what takes a guard off by hand.
func dropGuardSQL(table topology.TableName) string {
	var sql strings.Builder
	for _, trigger := range []string{insertGuard, updateGuard, deleteGuard, strangerGuard, numberGuard, tellGuard} {
		fmt.Fprintf(&sql, "DROP TRIGGER IF EXISTS %s ON %s; ", sqltext.QuoteIdentifier(trigger), table)
	}
	fmt.Fprintf(&sql, "DROP FUNCTION IF EXISTS cleave.%s(), cleave.%s();", functionName(guardFunctionPrefix, table), functionName(numberFunctionPrefix, table))
	return sql.String()
}

// dropGuard takes the guard off a table, if both are there.
func dropGuard(ctx context.Context, tx pgx.Tx, table topology.TableName) error {
	standing, err := standingGuards(ctx, tx)
	if err != nil {
		return err
	}
	if err := dropTriggers(ctx, tx, table, standing[table]); err != nil {
		return err
	}
	return dropUnused(ctx, tx, functionsFor(tableDigest(table)))
}

func dropTriggers(ctx context.Context, tx pgx.Tx, table topology.TableName, triggers map[string]standingTrigger) error {
	if len(triggers) == 0 {
		return nil
	}
	if err := lockTable(ctx, tx, table, "ACCESS EXCLUSIVE"); err != nil {
		return err
	}
	if _, numbered := triggers[numberGuard]; numbered {
		if err := endTickets(ctx, tx, table); err != nil {
			return err
		}
	}
	for name := range triggers {
		if _, err := tx.Exec(ctx, fmt.Sprintf("DROP TRIGGER IF EXISTS %s ON %s", sqltext.QuoteIdentifier(name), table)); err != nil {
			return err
		}
	}
	return nil
}

// dropUnused drops functions of guards whose names match, except those that a trigger calls: a table that was renamed takes
// its guard along.
func dropUnused(ctx context.Context, tx pgx.Tx, pattern string) error {
	rows, err := tx.Query(ctx, `SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'cleave'::regnamespace AND p.proname ~ $1
		AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgfoid = p.oid)`, "^"+pattern+"$")
	if err != nil {
		return err
	}
	unused, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range unused {
		if _, err := tx.Exec(ctx, "DROP FUNCTION cleave."+sqltext.QuoteIdentifier(name)+"()"); err != nil {
			return stillInUse(err)
		}
	}
	return nil
}

// dropAllGuards takes the guards off all tables, and drops the functions that were made for tables that are gone, and what is left of moves.
func dropAllGuards(ctx context.Context, tx pgx.Tx) error {
	standing, err := standingTriggers(ctx, tx)
	if err != nil {
		return err
	}
	for table, triggers := range standing {
		if err := dropTriggers(ctx, tx, table, triggers); err != nil {
			return fmt.Errorf("take the guard off table %s: %w", table, err)
		}
	}
	if err := dropAllOwned(ctx, tx); err != nil {
		return err
	}
	return dropUnused(ctx, tx, functionsFor(anyDigest))
}

// patience is how often and how long at a time a lock is waited for.
type patience struct {
	wait     string
	attempts int
}

var (
	// once is for who can come back.
	once = patience{"50ms", 1}
	// brief is for tables in use: whoever comes after waits behind this one, so not long. With growing pauses it comes to about five seconds.
	brief = patience{"50ms", 8}
	// thorough is for tables that routers keep off. It waits for longer than a second at a time, after which the server lets an autovacuum give way.
	thorough = patience{"2s", 3}
)

// lockTable takes a lock that running statements may stand in the way of.
func lockTable(ctx context.Context, tx pgx.Tx, table topology.TableName, mode string) error {
	return lockPatiently(ctx, tx, table, mode, brief)
}

func lockPatiently(ctx context.Context, tx pgx.Tx, table topology.TableName, mode string, p patience) error {
	pause := 20 * time.Millisecond
	for attempt := 1; ; attempt++ {
		err := pgx.BeginFunc(ctx, tx, func(point pgx.Tx) error {
			_, err := point.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = '%s'; LOCK TABLE %s IN %s MODE; SET LOCAL lock_timeout TO DEFAULT", p.wait, table, mode))
			return err
		})
		var refused *pgconn.PgError
		if err == nil || !errors.As(err, &refused) || refused.Code != codeLockTimeout {
			return err
		}
		if attempt == p.attempts {
			return pgerr.New(codeLockTimeout, "table %s is in use", table).
				WithDetail("A transaction has used it for longer than this could wait, which is a few seconds.").
				WithHint("Try again when it has ended; pg_stat_activity and pg_prepared_xacts show who it is.")
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
