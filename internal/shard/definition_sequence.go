package shard

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// Sequence is one that a column owns: of an identity column, or of a serial one, whose default reads it.
type Sequence struct {
	Name      string  `json:"name"` // quoted, with its schema
	Column    string  `json:"column"`
	Identity  bool    `json:"identity"`
	Type      string  `json:"type"`
	Increment int64   `json:"increment"`
	Cache     int64   `json:"cache"`
	Cycle     bool    `json:"cycle"`
	Grants    []Grant `json:"grants"`
	// DefaultGrants: its privileges are those that PostgreSQL gives by itself.
	DefaultGrants bool   `json:"default_grants"`
	Comment       string `json:"comment"`
}

// sequencesQuery leaves out from where to where a sequence counts: on every shard it is another stretch.
var sequencesQuery = `
	SELECT coalesce(json_agg(json_build_object('name', quote_ident(n.nspname) || '.' || quote_ident(c.relname), 'column', a.attname, 'identity', d.deptype = 'i',
		'type', format_type(s.seqtypid, NULL), 'increment', s.seqincrement, 'cache', s.seqcache, 'cycle', s.seqcycle, 'default_grants', c.relacl IS NULL,
		'comment', coalesce(obj_description(c.oid, 'pg_class'), ''),
		'grants', ` + grantsOf("coalesce(c.relacl, acldefault('s', c.relowner))") + `) ORDER BY a.attnum, c.relname COLLATE "C"), '[]')
	FROM pg_depend d JOIN pg_class c ON c.oid = d.objid AND c.relkind = 'S' JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_sequence s ON s.seqrelid = c.oid
	JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
	WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = $1 AND d.deptype IN ('a', 'i')`

// laneBits is how many numbers a shard's lane has. Shards' numbers have 16 bits and are never given twice, and a bigint has 63 for
// positive values, so every shard that will ever be there has a lane of its own.
const laneBits = 47

// lane returns the first and the last number that a shard's sequences give out. No shard has number 0, so the lane before the first is
// that of the rows that were there before the table was sharded.
func lane(shard *topology.Shard) (first, last int64) {
	return int64(shard.Number()) << laneBits, int64(shard.Number()+1)<<laneBits - 1
}

// checkSequences refuses columns whose numbers could come twice.
func (d *Definition) checkSequences(sharded bool) error {
	for _, c := range d.Columns {
		if c.Sequence != "" && !d.owns(c.Sequence) {
			return d.unsupported(fmt.Sprintf("The default of column %q reads sequence %s, which does not belong to it.", c.Name, c.Sequence),
				fmt.Sprintf("If nothing else reads it: ALTER SEQUENCE %s OWNED BY %s.%s", c.Sequence, d.Table, sqltext.QuoteIdentifier(c.Name)))
		}
	}
	if !sharded {
		return nil
	}
	for _, s := range d.Sequences {
		column := sqltext.QuoteIdentifier(s.Column)
		switch {
		case !d.isSmall(s) && (s.Type != "bigint" || d.column(s.Column).Type != "bigint"):
			return d.unsupported(fmt.Sprintf("Column %q, of type %s, takes numbers of type %s from a sequence. Every shard counts on its own, and so few numbers cannot be divided among them.", s.Column, d.column(s.Column).Type, s.Type),
				fmt.Sprintf("Make it larger: ALTER TABLE %s ALTER COLUMN %s TYPE bigint; ALTER SEQUENCE %s AS bigint", d.Table, column, s.Name))
		case s.Cycle || s.Increment < 0:
			return d.unsupported(fmt.Sprintf("Sequence %s of column %q counts downwards, or begins again at its end, so shards could give the same numbers.", s.Name, s.Column),
				fmt.Sprintf("ALTER SEQUENCE %s INCREMENT BY 1 NO CYCLE", s.Name))
		}
	}
	return nil
}

func (d *Definition) owns(sequence string) bool {
	for _, s := range d.Sequences {
		if s.Name == sequence {
			return true
		}
	}
	return false
}

func (d *Definition) column(name string) Column {
	for _, c := range d.Columns {
		if c.Name == name {
			return c
		}
	}
	return Column{}
}

// statements make the sequence of a serial column before the table, which does not own it yet. That of an identity column is made with it.
func (s Sequence) statements() []string {
	if s.Identity {
		return nil
	}
	return []string{fmt.Sprintf("CREATE SEQUENCE %s AS %s %s", s.Name, s.Type, s.options())}
}

func (s Sequence) options() string {
	cycle := "NO CYCLE"
	if s.Cycle {
		cycle = "CYCLE"
	}
	return fmt.Sprintf("INCREMENT BY %d CACHE %d %s", s.Increment, s.Cache, cycle)
}

// ownerStatements let the column own the sequence, give privileges, and say what the sequence is for.
func (s Sequence) ownerStatements(d *Definition) []string {
	var statements []string
	if !s.Identity {
		statements = append(statements, fmt.Sprintf("ALTER SEQUENCE %s OWNER TO %s", s.Name, sqltext.QuoteIdentifier(d.Owner)),
			fmt.Sprintf("ALTER SEQUENCE %s OWNED BY %s.%s", s.Name, d.Table, sqltext.QuoteIdentifier(s.Column)))
	}
	if !s.DefaultGrants {
		statements = append(statements, fmt.Sprintf("REVOKE ALL ON SEQUENCE %s FROM PUBLIC, %s", s.Name, sqltext.QuoteIdentifier(d.Owner)))
		statements = append(statements, grantStatements("SEQUENCE "+s.Name, "", s.Grants)...)
	}
	return append(statements, commentOn("SEQUENCE "+s.Name, s.Comment)...)
}

// identitySQL is what makes a column one with an identity.
func (d *Definition) identitySQL(c Column) string {
	kind := map[string]string{"a": "ALWAYS", "d": "BY DEFAULT"}[c.Identity]
	for _, s := range d.Sequences {
		if kind != "" && s.Identity && s.Column == c.Name {
			return fmt.Sprintf(" GENERATED %s AS IDENTITY (SEQUENCE NAME %s %s)", kind, s.Name, s.options())
		}
	}
	return ""
}

// Ends are, for each of a table's sequences by its name, the greatest number that its column has below each lane's end, and which the
// sequence has given out, so that no number comes again.
type Ends map[string][]int64

// SequenceEnds looks at the home shard, while the table is locked and all of its rows are there, how far each lane is used up. The first is the lane
// of no shard. A ticket counts as what it stands for.
func (d *Definition) SequenceEnds(ctx context.Context, tx pgx.Tx) (Ends, error) {
	ends := Ends{}
	for _, s := range d.Sequences {
		rows, err := tx.Query(ctx, fmt.Sprintf(`
			WITH RECURSIVE %[6]s
			SELECT max(number) FROM (SELECT number FROM numbers UNION ALL SELECT last_value - coalesce(cleave.ticket_base(%[5]s), 0) FROM %[3]s) AS used
			WHERE number >= 0 GROUP BY number >> %[4]d ORDER BY 1`, sqltext.QuoteIdentifier(s.Column), d.Table, s.Name, laneBits, sqltext.QuoteLiteral(s.Name), d.numbersSQL(s.Column)))
		if err == nil {
			ends[s.Name], err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		if err != nil {
			return nil, fmt.Errorf("see which numbers of sequence %s are used: %w", s.Name, err)
		}
	}
	return ends, nil
}

// numbersSQL is a common table expression with the numbers of a column, the greatest of each lane among them. Where an index finds the greatest below another, that is all that is
// read, from lane to lane: the table is locked meanwhile, and may be large.
func (d *Definition) numbersSQL(column string) string {
	name := sqltext.QuoteIdentifier(column)
	indexed := slices.ContainsFunc(d.Indexes, func(i Index) bool {
		return i.Valid && i.Constraint != "" && len(i.Columns) > 0 && i.Columns[0] == column
	})
	if !indexed {
		return fmt.Sprintf("numbers AS (SELECT %s::bigint AS number FROM %s)", name, d.Table)
	}
	return fmt.Sprintf("numbers (number) AS (SELECT max(%[1]s)::bigint FROM %[2]s UNION ALL SELECT (SELECT max(t.%[1]s)::bigint FROM %[2]s t WHERE t.%[1]s < n.number >> %[3]d << %[3]d) FROM numbers n WHERE n.number >= 0)",
		name, d.Table, laneBits)
}

// SetNumbers lets the table's sequences on a shard count where no other shard's do: in its lane, after whatever is used of it, or in the
// block that it was given. Where the map says that numbers are made they give tickets.
func (d *Definition) SetNumbers(ctx context.Context, tx pgx.Tx, t *topology.Table, shard *topology.Shard, ends Ends, blocks Blocks) error {
	first, last := lane(shard)
	for _, s := range d.Sequences {
		shift := d.ticketsOf(t, s)
		if d.isSmall(s) {
			if err := blocks[s.Name].set(ctx, tx, s.Name, shift); err != nil {
				return err
			}
			continue
		}
		next := first
		for _, end := range ends[s.Name] {
			if end >= first && end <= last {
				next = end + s.Increment
			}
		}
		if next > last {
			return d.unsupported(fmt.Sprintf("Column %q has the number %d, so sequence %s has none left for shard %q.", s.Column, next-s.Increment, s.Name, shard.Name()), "Give the column smaller numbers.")
		}
		if err := setBounds(ctx, tx, s.Name, first+shift, last+shift, first+shift, next+shift); err != nil {
			return err
		}
	}
	return nil
}

// setBounds lets a sequence count within bounds, from next on.
func setBounds(ctx context.Context, on executor, sequence string, least, greatest, start, next int64) error {
	if _, err := on.Exec(ctx, fmt.Sprintf("ALTER SEQUENCE %s MINVALUE %d MAXVALUE %d START WITH %d RESTART WITH %d", sequence, least, greatest, start, next)); err != nil {
		return fmt.Errorf("let sequence %s count from %d to %d: %w", sequence, next, greatest, err)
	}
	return nil
}

// endTickets lets the sequences of a table, whose numbers are made no more, give what their tickets stand for.
func endTickets(ctx context.Context, tx pgx.Tx, table topology.TableName) error {
	rows, err := tx.Query(ctx, `
		SELECT cleave.sequence_name(s.seqrelid), s.seqmin - base, s.seqmax - base, s.seqstart - base, coalesce(pg_sequence_last_value(s.seqrelid) + s.seqincrement, s.seqstart) - base
		FROM pg_depend d JOIN pg_sequence s ON s.seqrelid = d.objid, cleave.ticket_base(s.seqrelid) AS base
		WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i') AND d.refobjid = $1::text::regclass AND base IS NOT NULL`, table.String())
	if err != nil {
		return err
	}
	type shifted struct {
		Name                         string
		Least, Greatest, Start, Next int64
	}
	sequences, err := pgx.CollectRows(rows, pgx.RowToStructByPos[shifted])
	if err != nil {
		return fmt.Errorf("see which sequences of table %s give tickets: %w", table, err)
	}
	for _, s := range sequences {
		if err := setBounds(ctx, tx, s.Name, s.Least, s.Greatest, s.Start, min(s.Next, s.Greatest)); err != nil {
			return err
		}
	}
	return nil
}

// EndNumbers lets the sequences of a table that has come home count on after all numbers that are there, as far as they go.
func (d *Definition) EndNumbers(ctx context.Context, home pgx.Tx) error {
	ends, err := d.SequenceEnds(ctx, home)
	if err != nil {
		return err
	}
	for _, s := range d.Sequences {
		greatest := int64(math.MaxInt64)
		if s.Type == "integer" || d.isSmall(s) {
			greatest = math.MaxInt32
		}
		next := int64(1)
		for _, end := range ends[s.Name] {
			if end > greatest-s.Increment {
				next = greatest // it is used up
				break
			}
			next = max(next, end+s.Increment)
		}
		if err := setBounds(ctx, home, s.Name, 1, greatest, 1, next); err != nil {
			return err
		}
		if _, err := home.Exec(ctx, "DELETE FROM cleave.number_blocks WHERE sequence = $1", s.Name); err != nil {
			return fmt.Errorf("forget the blocks of sequence %s: %w", s.Name, err)
		}
	}
	return nil
}

// CarrySequences lets the sequences of a reference table's copy stand where those of the home shard stand.
func (d *Definition) CarrySequences(ctx context.Context, home, other pgx.Tx) error {
	for _, s := range d.Sequences {
		var values [4]int64
		var called bool
		err := home.QueryRow(ctx, fmt.Sprintf("SELECT s.seqmin, s.seqmax, s.seqstart, v.last_value, v.is_called FROM pg_sequence s, %s v WHERE s.seqrelid = %s::regclass", s.Name, sqltext.QuoteLiteral(s.Name))).
			Scan(&values[0], &values[1], &values[2], &values[3], &called)
		if err == nil {
			err = setBounds(ctx, other, s.Name, values[0], values[1], values[2], values[2]) // where it stands may be outside of them
		}
		if err == nil {
			_, err = other.Exec(ctx, fmt.Sprintf("SELECT setval(%s, %d, %t)", sqltext.QuoteLiteral(s.Name), values[3], called))
		}
		if err != nil {
			return fmt.Errorf("carry sequence %s: %w", s.Name, err)
		}
	}
	return nil
}
