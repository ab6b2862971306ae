package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// Difference is by how many rows a copy differs: rows that it lacks, rows that it alone has, and rows that have the same primary key and are not
// the same.
type Difference struct{ Missing, Extra, Changed int64 }

// IsZero says whether there is none.
func (d Difference) IsZero() bool { return d == Difference{} }

func (d Difference) String() string {
	var parts []string
	for _, part := range []struct {
		count int64
		what  string
	}{{d.Missing, "missing"}, {d.Extra, "too many"}, {d.Changed, "different"}} {
		if part.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.count, part.what))
		}
	}
	if len(parts) == 0 {
		return "no rows"
	}
	return "rows: " + strings.Join(parts, ", ")
}

// LockAgainstWrites keeps everybody from writing to a table until the transaction ends. It waits for all who have written, those whose transactions are
// prepared among them. Others can read it.
func LockAgainstWrites(ctx context.Context, tx pgx.Tx, table topology.TableName) error {
	return lockPatiently(ctx, tx, table, "SHARE ROW EXCLUSIVE", thorough)
}

// CopyRepair makes one shard's copy of a table equal to what another shard has, in a transaction on the first that has the [CopySettings] and the table locked.
// Its temporary tables go with the transaction: the right rows of the buckets that differ, where the rows are that differ, and what they were.
type CopyRepair struct {
	*Comparison
	tx      pgx.Tx
	buckets []int32
	// number tells its temporary tables from those of others in the transaction.
	number     int
	difference Difference
	loud       []loudTrigger
}

// Repair begins one. What [Comparison.ReadSQL] gives has to be written with [CopyRepair.WriteSQL].
func (c *Comparison) Repair(ctx context.Context, tx pgx.Tx, number int, buckets []int32) (*CopyRepair, error) {
	r := &CopyRepair{Comparison: c, tx: tx, number: number, buckets: buckets}
	_, err := tx.Exec(ctx, fmt.Sprintf("CREATE TEMPORARY TABLE %s ON COMMIT DROP AS SELECT %s FROM ONLY %s WITH NO DATA", r.temporary("right"), list(quoted(c.columns)), c.Definition.Table))
	if err != nil {
		return nil, fmt.Errorf("make room for the rows of table %s: %w", c.Definition.Table, err)
	}
	return r, nil
}

// temporary is the name of a temporary table.
func (r *CopyRepair) temporary(what string) string {
	return fmt.Sprintf("pg_temp.cleave_%s_%d", what, r.number)
}

// WriteSQL takes in what [Comparison.ReadSQL] streams out.
func (r *CopyRepair) WriteSQL() string {
	return fmt.Sprintf("COPY %s (%s) FROM STDIN %s", r.temporary("right"), r.Definition.copyColumns(), r.Definition.copyOptions())
}

// Count finds the rows that differ, when the right ones have been written. Rows are told apart by their text, equal ones by counting them; a row that is
// here and one that should be are two forms of one if they have the same key.
func (r *CopyRepair) Count(ctx context.Context) error {
	key := "NULL::text"
	if len(r.key) > 0 {
		key = textOf(r.key)
	}
	find := fmt.Sprintf(`
		CREATE TEMPORARY TABLE %[1]s ON COMMIT DROP AS
		WITH here AS (SELECT s.*, row_number() OVER (PARTITION BY s.whole) AS n FROM (SELECT t.ctid AS place, %[2]s AS key, %[3]s AS whole FROM ONLY %[4]s AS t WHERE %[5]s) AS s),
		     there AS (SELECT s.*, row_number() OVER (PARTITION BY s.whole) AS n FROM (SELECT t.ctid AS place, %[2]s AS key, %[3]s AS whole FROM %[6]s AS t) AS s),
		     only_here AS (SELECT a.place, a.key FROM here AS a WHERE NOT EXISTS (SELECT FROM there AS b WHERE b.whole = a.whole AND b.n = a.n)),
		     only_there AS (SELECT b.place, b.key FROM there AS b WHERE NOT EXISTS (SELECT FROM here AS a WHERE a.whole = b.whole AND a.n = b.n))
		SELECT a.place AS here, b.place AS there FROM only_here AS a FULL JOIN only_there AS b ON a.key = b.key`,
		r.temporary("differing"), key, r.rowText(), r.Definition.Table, r.inBuckets(r.buckets), r.temporary("right"))
	if _, err := r.tx.Exec(ctx, find); err != nil {
		return fmt.Errorf("find the rows of table %s that differ: %w", r.Definition.Table, err)
	}
	count := "SELECT count(*) FILTER (WHERE here IS NULL), count(*) FILTER (WHERE there IS NULL), count(*) FILTER (WHERE here IS NOT NULL AND there IS NOT NULL) FROM " + r.temporary("differing")
	d := &r.difference
	if err := r.tx.QueryRow(ctx, count).Scan(&d.Missing, &d.Extra, &d.Changed); err != nil {
		return fmt.Errorf("count the rows of table %s that differ: %w", r.Definition.Table, err)
	}
	return nil
}

// Difference is what was counted.
func (r *CopyRepair) Difference() Difference { return r.difference }

// MendCopies mends several tables in one transaction, if foreign keys hold afterwards and each is then equal to what the other shard has. Otherwise it
// returns why not, and nothing has changed.
func MendCopies(ctx context.Context, tx pgx.Tx, repairs []*CopyRepair, right func(*CopyRepair) *Digest) error {
	return pgx.BeginFunc(ctx, tx, func(point pgx.Tx) error {
		inner := make([]CopyRepair, len(repairs))
		for i, r := range repairs {
			inner[i] = *r
			inner[i].tx = point
			if err := inner[i].mend(ctx); err != nil {
				return err
			}
		}
		for i := range inner {
			if err := inner[i].checkReferences(ctx); err != nil {
				return err
			}
			now, err := inner[i].Digest(ctx, point)
			if err != nil {
				return err
			}
			if left := now.Differing(right(repairs[i])); len(left) > 0 {
				return fmt.Errorf("table %s still differs after it was repaired", inner[i].Definition.Table)
			}
		}
		return nil
	})
}

// mend changes the rows that were counted, and no others. No trigger fires, not even those that fire where rows are replicated, and so no foreign key acts.
func (r *CopyRepair) mend(ctx context.Context) error {
	for _, part := range []func(context.Context) error{r.silence, r.keepOld, r.deleteExtra, r.updateChanged, r.insertMissing, r.unsilence} {
		if err := part(ctx); err != nil {
			return fmt.Errorf("repair table %s: %w", r.Definition.Table, err)
		}
	}
	return nil
}

// silence keeps triggers from firing that would in spite of session_replication_role; unsilence lets them fire again.
func (r *CopyRepair) silence(ctx context.Context) error {
	return r.eachLoud(ctx, func(string) string { return "DISABLE" })
}

func (r *CopyRepair) unsilence(ctx context.Context) error {
	return r.eachLoud(ctx, func(enabled string) string {
		if enabled == "A" {
			return "ENABLE ALWAYS"
		}
		return "ENABLE REPLICA"
	})
}

// eachLoud asks the shard itself the first time: its triggers may be other ones than the home shard's.
func (r *CopyRepair) eachLoud(ctx context.Context, verb func(enabled string) string) error {
	if r.loud == nil {
		rows, err := r.tx.Query(ctx, "SELECT t.tgname, t.tgenabled FROM pg_trigger t WHERE t.tgrelid = $1::text::regclass AND NOT t.tgisinternal AND t.tgenabled IN ('A', 'R')", r.Definition.Table.String())
		if err != nil {
			return err
		}
		if r.loud, err = pgx.CollectRows(rows, pgx.RowToStructByPos[loudTrigger]); err != nil {
			return err
		}
	}
	for _, t := range r.loud {
		if _, err := r.tx.Exec(ctx, fmt.Sprintf("ALTER TABLE %s %s TRIGGER %s", r.Definition.Table, verb(string(t.Enabled)), sqltext.QuoteIdentifier(t.Name))); err != nil {
			return err
		}
	}
	return nil
}

// keepOld keeps what the rows were, for those who may refer to them.
func (r *CopyRepair) keepOld(ctx context.Context) error {
	_, err := r.tx.Exec(ctx, fmt.Sprintf("CREATE TEMPORARY TABLE %s ON COMMIT DROP AS SELECT t.* FROM ONLY %s AS t WHERE t.ctid IN (SELECT here FROM %s)",
		r.temporary("old"), r.Definition.Table, r.temporary("differing")))
	return err
}

func (r *CopyRepair) deleteExtra(ctx context.Context) error {
	if r.difference.Extra == 0 {
		return nil
	}
	return r.exec(ctx, r.difference.Extra, "DELETE FROM ONLY %s AS t USING %s AS d WHERE t.ctid = d.here AND d.there IS NULL", r.Definition.Table, r.temporary("differing"))
}

// updateChanged leaves the key as it is. Where rows have to swap values that are unique, or a column cannot be updated, they are deleted, and inserted
// with those that are missing.
func (r *CopyRepair) updateChanged(ctx context.Context) error {
	if r.difference.Changed == 0 {
		return nil
	}
	var assignments []string
	fixed := false
	for _, c := range r.Definition.Columns {
		if c.Generated != "" || slices.Contains(r.key, c.Name) {
			continue
		}
		name := sqltext.QuoteIdentifier(c.Name)
		assignments = append(assignments, fmt.Sprintf("%s = r.%s", name, name))
		fixed = fixed || c.Identity == "a"
	}
	if !fixed {
		err := pgx.BeginFunc(ctx, r.tx, func(point pgx.Tx) error {
			inner := *r
			inner.tx = point
			return inner.exec(ctx, r.difference.Changed, "UPDATE ONLY %s AS t SET %s FROM %s AS d JOIN %s AS r ON r.ctid = d.there WHERE t.ctid = d.here",
				r.Definition.Table, list(assignments), r.temporary("differing"), r.temporary("right"))
		})
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != pgerr.UniqueViolation && refused.Code != "23P01" {
			return err
		}
	}
	if err := r.exec(ctx, r.difference.Changed, "DELETE FROM ONLY %s AS t USING %s AS d WHERE t.ctid = d.here", r.Definition.Table, r.temporary("differing")); err != nil {
		return err
	}
	return r.exec(ctx, r.difference.Changed, "UPDATE %s SET here = NULL WHERE here IS NOT NULL AND there IS NOT NULL", r.temporary("differing"))
}

func (r *CopyRepair) insertMissing(ctx context.Context) error {
	columns := list(quoted(r.columns))
	_, err := r.tx.Exec(ctx, fmt.Sprintf("INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s AS r WHERE r.ctid IN (SELECT there FROM %s WHERE here IS NULL)",
		r.Definition.Table, columns, columns, r.temporary("right"), r.temporary("differing")))
	return err
}

// exec wants as many rows to be touched as were counted.
func (r *CopyRepair) exec(ctx context.Context, rows int64, format string, arguments ...any) error {
	done, err := r.tx.Exec(ctx, fmt.Sprintf(format, arguments...))
	if err == nil && done.RowsAffected() != rows {
		err = fmt.Errorf("%d rows were touched, and %d differ", done.RowsAffected(), rows)
	}
	return err
}

// loudTrigger is one that fires where rows are replicated.
type loudTrigger struct {
	Name    string
	Enabled byte
}
