package shard

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// A table that moves as a whole has a trigger on both shards, on its partitions too, whose function decides whether anybody but replication may change it. All tables of a move have one function, and to change that needs no lock: so it takes
// no longer for many tables than for one.

// wholeGuard is the name of that trigger.
const wholeGuard = "cleave_moves"

// wholeFunction is that of all tables of a move.
func wholeFunction(move string) string { return guardFunctionPrefix + nameDigest("move "+move) }

// Unwatched are those of some tables and their partitions that are there and do not have the trigger of a move.
func Unwatched(ctx context.Context, on querier, move string, tables []topology.TableName) ([]topology.TableName, error) {
	names := make([]string, len(tables))
	for i, table := range tables {
		names[i] = table.String()
	}
	rows, err := on.Query(ctx, `SELECT n.nspname, c.relname FROM unnest($1::text[]) AS t LEFT JOIN LATERAL pg_partition_tree(to_regclass(t)) AS p ON true
			JOIN pg_class c ON c.oid = coalesce(p.relid, to_regclass(t)) JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE NOT EXISTS (SELECT FROM pg_trigger g JOIN pg_proc f ON f.oid = g.tgfoid WHERE g.tgrelid = c.oid AND g.tgname = $2 AND g.tgenabled = 'O' AND f.proname = $3 AND f.pronamespace = 'cleave'::regnamespace)
		ORDER BY 1, 2`, names, wholeGuard, wholeFunction(move))
	if err != nil {
		return nil, fmt.Errorf("look which tables are guarded: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[topology.TableName])
}

// WatchWhole puts the trigger of a move on a table or a partition. It fails with [pgerr.LockNotAvailable] if that is in use for longer than others should wait behind it.
func WatchWhole(ctx context.Context, tx pgx.Tx, move string, table topology.TableName) error {
	if err := lockPatiently(ctx, tx, table, "SHARE ROW EXCLUSIVE", once); err != nil {
		return err
	}
	watch := fmt.Sprintf("CREATE OR REPLACE TRIGGER %s BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION cleave.%s()", wholeGuard, table, wholeFunction(move))
	if _, err := tx.Exec(ctx, watch); err != nil {
		return fmt.Errorf("guard table %s: %w", table, err)
	}
	return nil
}

// OpenWhole lets the tables of a move be changed on this shard, but for TRUNCATE, which is not carried over.
func OpenWhole(ctx context.Context, on executor, move string, haste Haste) error {
	return setWhole(ctx, on, move, haste, fmt.Sprintf("BEGIN IF TG_OP = 'TRUNCATE' THEN RAISE EXCEPTION USING ERRCODE = %s, MESSAGE = format('table %%I.%%I is moving between shards', TG_TABLE_SCHEMA, TG_TABLE_NAME), HINT = %s; END IF; RETURN NULL; END",
		sqltext.QuoteLiteral(pgerr.ObjectInUse), sqltext.QuoteLiteral("Use DELETE, which is carried over, or wait until the move has ended.")))
}

// CloseWhole lets nobody but replication change the tables of a move on this shard, because another one has them.
func CloseWhole(ctx context.Context, on executor, move, owner string, haste Haste) error {
	return setWhole(ctx, on, move, haste, fmt.Sprintf("BEGIN RAISE EXCEPTION USING ERRCODE = %s, MESSAGE = format('table %%I.%%I is on shard \"%%s\"', TG_TABLE_SCHEMA, TG_TABLE_NAME, %s), DETAIL = %s, HINT = %s; END", sqltext.QuoteLiteral(pgerr.NotOwned), sqltext.QuoteLiteral(owner),
		sqltext.QuoteLiteral("The table is being moved, or was. What is here is a copy that others carry over."), sqltext.QuoteLiteral("Connect to the router, which knows where it is.")))
}

func setWhole(ctx context.Context, on executor, move string, haste Haste, source string) error {
	draft := guardDraft{}
	draft.addFunction(wholeFunction(move), "SET search_path = pg_catalog, pg_temp", source)
	statements := draft.functions
	if haste {
		statements = append([]string{"SET LOCAL synchronous_commit = off"}, statements...)
	}
	if _, err := on.Exec(ctx, strings.Join(statements, "; ")); err != nil { // one transaction
		return fmt.Errorf("set the guard of the tables: %w", err)
	}
	return nil
}

// Watched are the tables and partitions that have the trigger of a move.
func Watched(ctx context.Context, on querier, move string) ([]topology.TableName, error) {
	rows, err := on.Query(ctx, `SELECT n.nspname, c.relname FROM pg_proc f JOIN pg_trigger g ON g.tgfoid = f.oid AND g.tgname = $1 JOIN pg_class c ON c.oid = g.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE f.proname = $2 AND f.pronamespace = 'cleave'::regnamespace ORDER BY 1, 2`, wholeGuard, wholeFunction(move))
	if err != nil {
		return nil, fmt.Errorf("look which tables are guarded: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[topology.TableName])
}

// UnwatchWhole takes the trigger off a table or a partition that moves no more.
func UnwatchWhole(ctx context.Context, tx pgx.Tx, table topology.TableName) error {
	if err := lockPatiently(ctx, tx, table, "ACCESS EXCLUSIVE", once); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf("DROP TRIGGER IF EXISTS %s ON %s", wholeGuard, table)); err != nil {
		return fmt.Errorf("take the guard off table %s: %w", table, err)
	}
	return nil
}

// ForgetWhole drops the function of a move's tables, when none of them has its trigger any more.
func ForgetWhole(ctx context.Context, tx pgx.Tx, move string) error {
	return dropUnused(ctx, tx, functionsFor(nameDigest("move "+move)))
}

// isThere says whether a server has a relation of this name.
func isThere(ctx context.Context, on querier, name topology.TableName) (there bool, err error) {
	if err = on.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", name.String()).Scan(&there); err != nil {
		err = fmt.Errorf("look for table %s: %w", name, err)
	}
	return there, err
}

// dependentsQuery lists what else depends on a table: views, and whatever else uses the table, the type of its rows or one of its sequences and is neither a part of it nor of another one that moves. Foreign keys of others are found elsewhere.
const dependentsQuery = `
	WITH used AS (
		SELECT 'pg_class'::regclass AS class, c.oid FROM pg_class c WHERE c.oid = $1::text::regclass
		UNION SELECT 'pg_type'::regclass, y.oid FROM pg_class c JOIN pg_type t ON t.oid = c.reltype JOIN pg_type y ON y.oid IN (t.oid, t.typarray) WHERE c.oid = $1::text::regclass
		UNION SELECT 'pg_class'::regclass, d.objid FROM pg_depend d JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
			WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = $1::text::regclass AND d.deptype IN ('a', 'i')
	), moving AS (SELECT name::regclass::oid AS oid FROM unnest($2::text[]) AS name)
	SELECT pg_describe_object(d.classid, d.objid, d.objsubid) || ' uses'
	FROM pg_depend d JOIN used ON d.refclassid = used.class AND d.refobjid = used.oid
	WHERE d.deptype = 'n' AND d.classid IN ('pg_proc'::regclass, 'pg_class'::regclass, 'pg_attrdef'::regclass, 'pg_policy'::regclass, 'pg_type'::regclass)
		AND NOT (d.classid = 'pg_class'::regclass AND (d.objid IN (TABLE moving) OR d.objid IN (SELECT indexrelid FROM pg_index WHERE indrelid IN (TABLE moving)) OR d.objid IN (SELECT oid FROM used WHERE class = 'pg_class'::regclass)))
		AND NOT (d.classid = 'pg_attrdef'::regclass AND d.objid IN (SELECT oid FROM pg_attrdef WHERE adrelid IN (TABLE moving)))
		AND NOT (d.classid = 'pg_policy'::regclass AND d.objid IN (SELECT oid FROM pg_policy WHERE polrelid IN (TABLE moving)))
		AND NOT (d.classid = 'pg_type'::regclass AND d.objid IN (SELECT oid FROM used WHERE class = 'pg_type'::regclass))
	UNION SELECT DISTINCT 'view ' || c.oid::regclass || ' reads' FROM pg_depend d JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid JOIN pg_class c ON c.oid = r.ev_class
	WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = $1::text::regclass AND c.oid <> d.refobjid
	ORDER BY 1`

// CheckWhole says what keeps tables from being moved together to another shard, nothing if nothing does, and returns the definitions of those that are there.
func CheckWhole(ctx context.Context, on querier, m *topology.Map, tables []topology.TableName) (definitions Definitions, problems []string, err error) {
	moves := map[topology.TableName]bool{}
	for _, table := range tables {
		moves[table] = true
	}
	isEverywhere := func(name topology.TableName) bool {
		t := m.Table(name.Schema, name.Name)
		return moves[name] || t != nil && t.Kind() == topology.Reference
	}
	for _, table := range tables {
		d, err := describe(ctx, on, table)
		if errors.Is(err, pgx.ErrNoRows) {
			problems = append(problems, fmt.Sprintf("table %s is not there", table))
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read the definition of table %s: %w", table, err)
		}
		found, err := d.checkWhole(ctx, on, isEverywhere, moves)
		if err != nil {
			return nil, nil, err
		}
		definitions, problems = append(definitions, d), append(problems, found...)
	}
	return definitions, problems, nil
}

func (d *Definition) checkWhole(ctx context.Context, on querier, isEverywhere func(topology.TableName) bool, moves map[topology.TableName]bool) (problems []string, err error) {
	problem := func(format string, arguments ...any) { problems = append(problems, fmt.Sprintf(format, arguments...)) }
	if d.IsPartitioned() {
		problem("table %s is partitioned, and cannot be moved as a whole yet", d.Table)
	} else if err := d.CheckCarried(isEverywhere, false); err != nil {
		var known *pgerr.Error
		if !errors.As(err, &known) {
			return nil, err
		}
		problem("%s", strings.TrimSpace(fmt.Sprintf("table %s: %s %s", d.Table, known.Detail, known.Hint)))
	}
	if d.facts.Partition {
		problem("table %s is a partition: it moves with the table that it is a part of", d.Table)
	}
	if d.Identity == "n" {
		problem("table %s has the replica identity NOTHING, so nothing tells which rows change: ALTER TABLE %s REPLICA IDENTITY DEFAULT", d.Table, d.Table)
	}
	opaque, err := d.opaqueFunctions(ctx, on)
	if err != nil {
		return nil, err
	}
	for _, name := range opaque {
		problem("a trigger, default, constraint or policy of table %s runs %s, which may use tables of other shards unseen: write it as SQL with BEGIN ATOMIC, or do without", d.Table, name)
	}
	strangers, err := d.strangersTo(ctx, on, isEverywhere, moves)
	return append(problems, strangers...), err
}

// opaqueFunctions are the functions behind a table of which nobody can tell what they read and write. Where the table is not on the home shard routers do not see them.
func (d *Definition) opaqueFunctions(ctx context.Context, on querier) ([]string, error) {
	ids := []uint32{}
	for _, n := range d.needs.all {
		if n.Class == "pg_proc" && n.Extension == "" {
			ids = append(ids, n.ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := on.Query(ctx, `SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
		WHERE p.oid = ANY ($1) AND l.lanname NOT IN ('internal', 'c') AND p.provolatile <> 'i' AND p.prosqlbody IS NULL ORDER BY 1`, ids)
	if err != nil {
		return nil, fmt.Errorf("look at the functions of table %s: %w", d.Table, err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// changesRows finds foreign keys that change rows.
var changesRows = regexp.MustCompile(` ON (DELETE|UPDATE) (CASCADE|SET NULL|SET DEFAULT)`)

func textsOf(tables map[topology.TableName]bool) []string {
	texts := make([]string, 0, len(tables))
	for table := range tables {
		texts = append(texts, table.String())
	}
	return texts
}

// strangersTo says what ties a table to others that do not move with it.
func (d *Definition) strangersTo(ctx context.Context, on querier, isEverywhere func(topology.TableName) bool, moves map[topology.TableName]bool) (problems []string, err error) {
	for _, c := range d.Constraints {
		if target := (topology.TableName{Schema: c.TargetSchema, Name: c.TargetTable}); c.Kind == "f" && !isEverywhere(target) {
			problems = append(problems, fmt.Sprintf("foreign key %q of table %s refers to table %s, which has to move with it", c.Name, d.Table, target))
		} else if c.Kind == "f" && !moves[target] && changesRows.MatchString(c.Definition) {
			problems = append(problems, fmt.Sprintf("foreign key %q of table %s changes rows when a row of table %s does, and nobody may change the copy: make it anew without ON DELETE and ON UPDATE", c.Name, d.Table, target))
		}
	}
	for _, s := range d.Sequences {
		if s.Cycle {
			problems = append(problems, fmt.Sprintf("sequence %s of table %s begins again at its end, so that it cannot be kept from giving numbers on the shard that the table leaves: ALTER SEQUENCE %s NO CYCLE", s.Name, d.Table, s.Name))
		}
	}
	for _, r := range d.facts.Referenced {
		if !moves[r.table()] {
			problems = append(problems, fmt.Sprintf("foreign key %q of table %s refers to table %s, and has to move with it", r.Constraint, r.table(), d.Table))
		}
	}
	rows, err := on.Query(ctx, dependentsQuery, d.Table.String(), textsOf(moves))
	if err != nil {
		return nil, fmt.Errorf("see what depends on table %s: %w", d.Table, err)
	}
	dependents, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, dependent := range dependents {
		problems = append(problems, fmt.Sprintf("%s table %s: drop it, and make it anew where the table will be", dependent, d.Table))
	}
	return problems, err
}
