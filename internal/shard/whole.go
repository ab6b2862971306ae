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

// A table that moves as a whole has a trigger on both shards, on its partitions too, whose function decides whether anybody but replication may change it. To change the function needs no lock.

// wholeGuard is the name of that trigger.
const wholeGuard = "cleave_moves"

// WatchWhole puts the trigger on tables that do not have it. It fails with [pgerr.LockNotAvailable] if one is in use for longer than others should wait behind it.
func WatchWhole(ctx context.Context, tx pgx.Tx, tables []topology.TableName) error {
	for _, table := range tables {
		names, err := withPartitions(ctx, tx, table)
		if err != nil {
			return err
		}
		for _, name := range names {
			if stands, err := isWatched(ctx, tx, name); err != nil || stands {
				if err != nil {
					return err
				}
				continue
			}
			if err := lockPatiently(ctx, tx, name, "SHARE ROW EXCLUSIVE", once); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, fmt.Sprintf("CREATE TRIGGER %s BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION cleave.%s()",
				wholeGuard, name, functionName(guardFunctionPrefix, table))); err != nil {
				return fmt.Errorf("guard table %s: %w", name, err)
			}
		}
	}
	return nil
}

func isWatched(ctx context.Context, on querier, table topology.TableName) (stands bool, err error) {
	err = on.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = $1::text::regclass AND tgname = $2)", table.String(), wholeGuard).Scan(&stands)
	if err != nil {
		err = fmt.Errorf("look for the guard of table %s: %w", table, err)
	}
	return stands, err
}

// OpenWhole lets tables be changed on this shard, but for TRUNCATE, which is not carried over.
func OpenWhole(ctx context.Context, on executor, tables []topology.TableName) error {
	return setWhole(ctx, on, tables, func(table topology.TableName) string {
		return fmt.Sprintf("BEGIN IF TG_OP = 'TRUNCATE' THEN RAISE EXCEPTION USING ERRCODE = %s, MESSAGE = %s, HINT = %s; END IF; RETURN NULL; END", sqltext.QuoteLiteral(pgerr.ObjectInUse),
			sqltext.QuoteLiteral(fmt.Sprintf("table %s is moving between shards", table)), sqltext.QuoteLiteral("Use DELETE, which is carried over, or wait until the move has ended."))
	})
}

// CloseWhole lets nobody but replication change tables on this shard, because another one has them.
func CloseWhole(ctx context.Context, on executor, tables []topology.TableName, owner string) error {
	return setWhole(ctx, on, tables, func(table topology.TableName) string {
		return fmt.Sprintf("BEGIN RAISE EXCEPTION USING ERRCODE = %s, MESSAGE = %s, DETAIL = %s, HINT = %s; END", sqltext.QuoteLiteral(pgerr.NotOwned), sqltext.QuoteLiteral(fmt.Sprintf("table %s is on shard %q", table, owner)),
			sqltext.QuoteLiteral("The table is being moved, or was. What is here is a copy that others carry over."), sqltext.QuoteLiteral("Connect to the router, which knows where it is."))
	})
}

func setWhole(ctx context.Context, on executor, tables []topology.TableName, source func(topology.TableName) string) error {
	for _, table := range tables {
		draft := guardDraft{table: table}
		draft.addFunction(functionName(guardFunctionPrefix, table), "SET search_path = pg_catalog, pg_temp", source(table))
		for _, sql := range draft.functions {
			if _, err := on.Exec(ctx, sql); err != nil {
				return fmt.Errorf("set the guard of table %s: %w", table, err)
			}
		}
	}
	return nil
}

// UnwatchWhole takes the trigger off tables that move no more.
func UnwatchWhole(ctx context.Context, tx pgx.Tx, tables []topology.TableName) error {
	for _, table := range tables {
		there, err := isThere(ctx, tx, table)
		if err != nil {
			return err
		}
		if there {
			if err := unwatchThere(ctx, tx, table); err != nil {
				return err
			}
		}
		if err := dropUnused(ctx, tx, functionsFor(tableDigest(table))); err != nil {
			return err
		}
	}
	return nil
}

func unwatchThere(ctx context.Context, tx pgx.Tx, table topology.TableName) error {
	names, err := withPartitions(ctx, tx, table)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := lockPatiently(ctx, tx, name, "ACCESS EXCLUSIVE", once); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf("DROP TRIGGER IF EXISTS %s ON %s", wholeGuard, name)); err != nil {
			return fmt.Errorf("take the guard off table %s: %w", name, err)
		}
	}
	return nil
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

// CheckWhole says what keeps tables from being moved together to another shard; nothing if nothing does.
func CheckWhole(ctx context.Context, on querier, m *topology.Map, tables []topology.TableName) (problems []string, err error) {
	moves := map[topology.TableName]bool{}
	for _, table := range tables {
		moves[table] = true
	}
	isEverywhere := func(name topology.TableName) bool {
		t := m.Table(name.Schema, name.Name)
		return moves[name] || t != nil && t.Kind() == topology.Reference
	}
	for _, table := range tables {
		if there, err := isThere(ctx, on, table); err != nil || !there {
			problems = append(problems, fmt.Sprintf("table %s is not there", table))
			if err != nil {
				return nil, err
			}
			continue
		}
		d, err := Describe(ctx, on, table)
		if err != nil {
			return nil, err
		}
		if d.IsPartitioned() {
			problems = append(problems, fmt.Sprintf("table %s is partitioned, and cannot be moved as a whole yet", table))
		} else if err := d.CheckCarried(isEverywhere, false); err != nil {
			var known *pgerr.Error
			if !errors.As(err, &known) {
				return nil, err
			}
			problems = append(problems, strings.TrimSpace(fmt.Sprintf("table %s: %s %s", table, known.Detail, known.Hint)))
		}
		if d.facts.Partition {
			problems = append(problems, fmt.Sprintf("table %s is a partition: it moves with the table that it is a part of", table))
		}
		if d.Identity == "n" {
			problems = append(problems, fmt.Sprintf("table %s has the replica identity NOTHING, so nothing tells which rows change: ALTER TABLE %s REPLICA IDENTITY DEFAULT", table, table))
		}
		opaque, err := d.opaqueFunctions(ctx, on)
		if err != nil {
			return nil, err
		}
		for _, name := range opaque {
			problems = append(problems, fmt.Sprintf("a trigger, default, constraint or policy of table %s runs %s, which may use tables of other shards unseen: write it as SQL with BEGIN ATOMIC, or do without", table, name))
		}
		found, err := d.strangersTo(ctx, on, isEverywhere, moves)
		if err != nil {
			return nil, err
		}
		problems = append(problems, found...)
	}
	return problems, nil
}

// opaqueFunctions are the functions behind a table of which nobody can tell what they read and write. Where the table is not on the home shard routers do not see them.
func (d *Definition) opaqueFunctions(ctx context.Context, on querier) ([]string, error) {
	ids := []uint32{}
	for _, n := range d.needs.all {
		if n.Class == "pg_proc" && n.Extension == "" {
			ids = append(ids, n.ID)
		}
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
