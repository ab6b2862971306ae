package shard

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// What a table that moves as a whole lacks when its rows are there is made piece by piece, each durably, so that nothing has to be copied again because one could not be made: [CompleteWhole], then, when the changes since have come over too,
// [ForeignKey.Add] and [ForeignKey.Validate].

// CompleteWhole makes what a table of a move lacks on another shard, but for foreign keys. Whoever does it again goes on where it ended. The last of it is made together with the trigger of the move; after each piece somebody is told.
func (d *Definition) CompleteWhole(ctx context.Context, conn *pgx.Conn, move string, made func()) error {
	for _, p := range d.slowParts() {
		var there bool
		if err := conn.QueryRow(ctx, "SELECT EXISTS ("+p.named+")", d.Table.String(), p.name).Scan(&there); err != nil {
			return err
		}
		if there {
			continue
		}
		if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return executeAll(ctx, tx, p.statements) }); err != nil {
			return fmt.Errorf("make %s of table %s: %w", p.name, d.Table, err)
		}
		made()
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if lacking, err := Unwatched(ctx, tx, move, []topology.TableName{d.Table}); err != nil || len(lacking) == 0 {
			return err
		}
		if err := lockPatiently(ctx, tx, d.Table, "ACCESS EXCLUSIVE", thorough); err != nil { // nobody uses it but the server itself, which gives way after a second
			return err
		}
		for _, part := range [][]string{d.particulars(), d.behaviour()} {
			if err := executeAll(ctx, tx, part); err != nil {
				return fmt.Errorf("make table %s as it is: %w", d.Table, err)
			}
		}
		return WatchWhole(ctx, tx, move, d.Table)
	})
}

// ForeignKey is one of a table that moves as a whole.
type ForeignKey struct {
	of *Definition
	Constraint
	// IsMade: it is there; IsValid: rows were looked at too, or need not be.
	IsMade, IsValid bool
}

func (k ForeignKey) String() string {
	return fmt.Sprintf("foreign key %q of table %s", k.Name, k.of.Table)
}

// notValid ends the definition of a constraint that rows may break which were there before.
const notValid = " NOT VALID"

// ForeignKeys are those of a table, and how far they are made on another shard.
func (d *Definition) ForeignKeys(ctx context.Context, on querier) (keys []ForeignKey, err error) {
	rows, err := on.Query(ctx, "SELECT conname, convalidated FROM pg_constraint WHERE conrelid = $1::text::regclass AND contype = 'f'", d.Table.String())
	if err != nil {
		return nil, fmt.Errorf("look for foreign keys of table %s: %w", d.Table, err)
	}
	valid := map[string]bool{}
	var name string
	var is bool
	if _, err = pgx.ForEachRow(rows, []any{&name, &is}, func() error { valid[name] = is; return nil }); err != nil {
		return nil, fmt.Errorf("look for foreign keys of table %s: %w", d.Table, err)
	}
	for _, c := range d.Constraints {
		if c.Kind == "f" {
			is, made := valid[c.Name]
			keys = append(keys, ForeignKey{of: d, Constraint: c, IsMade: made, IsValid: is || made && strings.HasSuffix(c.Definition, notValid)})
		}
	}
	return keys, nil
}

// Add makes a foreign key without looking at rows. Whoever uses the other table, which may be a reference table that everybody writes to, does not wait long behind that: if it is in use, it fails with [pgerr.LockNotAvailable].
func (k ForeignKey) Add(ctx context.Context, tx pgx.Tx) error {
	if err := lockPatiently(ctx, tx, k.of.Table, "SHARE ROW EXCLUSIVE", thorough); err != nil { // what is applied to it ends soon
		return err
	}
	k.Definition = strings.TrimSuffix(k.Definition, notValid) + notValid
	if err := executeAll(ctx, tx, append([]string{"SET LOCAL lock_timeout = '" + once.wait + "'"}, k.of.constraintStatements(k.Constraint)...)); err != nil {
		return fmt.Errorf("make %s: %w", k, err)
	}
	return nil
}

// Validate looks at the rows. Nobody waits for that.
func (k ForeignKey) Validate(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, fmt.Sprintf("ALTER TABLE %s VALIDATE CONSTRAINT %s", k.of.Table, sqltext.QuoteIdentifier(k.Name))); err != nil {
		return fmt.Errorf("validate %s: %w", k, err)
	}
	return nil
}

// Ties are statements that drop the foreign keys of some tables to others, each under a lock on the other one: so those are not in use any more when the tables are dropped.
func Ties(ctx context.Context, on querier, tables []topology.TableName) ([]string, error) {
	names := make([]string, len(tables))
	for i, table := range tables {
		names[i] = table.String()
	}
	rows, err := on.Query(ctx, `WITH own AS (SELECT to_regclass(name)::oid AS oid FROM unnest($1::text[]) AS name)
		SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) FROM pg_constraint WHERE contype = 'f' AND conrelid IN (TABLE own) AND confrelid NOT IN (SELECT oid FROM own WHERE oid IS NOT NULL) ORDER BY 1`, names)
	if err != nil {
		return nil, fmt.Errorf("look for foreign keys to other tables: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// DropWhole drops tables of a move that are there, and what is noted of them: that they are all there is.
func DropWhole(ctx context.Context, tx pgx.Tx, move string, tables []topology.TableName) error {
	if _, err := tx.Exec(ctx, "DELETE FROM cleave.marks WHERE move = $1 AND starts_with(mark, $2)", move, arrivedMark); err != nil {
		return fmt.Errorf("forget what has arrived: %w", err)
	}
	if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '1s'"); err != nil {
		return err
	}
	var there []string
	for _, table := range tables {
		is, err := isThere(ctx, tx, table)
		if err != nil {
			return err
		}
		if is {
			there = append(there, table.String())
		}
	}
	if len(there) > 0 {
		if _, err := tx.Exec(ctx, "DROP TABLE "+list(there)); err != nil {
			return fmt.Errorf("drop %s: %w", list(there), err)
		}
	}
	return ForgetWhole(ctx, tx, move)
}
