package shard

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/idgen"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// maxAhead is how far ids may be ahead of the home shard's clock and still be made by somebody who goes by the same layout.
const maxAhead = time.Minute

// plainNextval is the default of a serial column, and nothing more.
var plainNextval = regexp.MustCompile(`^nextval\('(?:[^']|'')*'::regclass\)$`)

// numbersOwn says whether the column's numbers come from this sequence, just as it gives them, and from no other.
func (d *Definition) numbersOwn(s Sequence) bool {
	for _, other := range d.Sequences {
		if other.Column == s.Column && other.Name != s.Name {
			return false
		}
	}
	c := d.column(s.Column)
	return s.Identity || c.Sequence == s.Name && plainNextval.MatchString(c.Default)
}

// ticketsOf says what the sequence's numbers are shifted by, as the map has the table.
func (d *Definition) ticketsOf(t *topology.Table, s Sequence) int64 {
	if !d.numbersOwn(s) {
		return 0
	}
	return tickets(t, s.Column, d.isSmall(s))
}

// Numbers are what a table's rows have of numbers that may become made ids.
type Numbers struct {
	// Now is the home shard's clock.
	Now time.Time
	// Greatest number of each bigint column that has a sequence; a column without numbers is not there.
	Greatest map[string]int64
	// Readers names, by column, something else in the database that reads its sequence: it would get tickets.
	Readers map[string]string
}

// readersQuery finds functions whose text names the sequence, or asks for the last number of whatever sequence in a function that is about the
// table, and whatever else depends on the sequence but the column's own default.
const readersQuery = `
	SELECT what FROM (
		SELECT 'function ' || p.oid::regprocedure AS what FROM pg_proc p, coalesce(nullif(p.prosrc, ''), pg_get_function_sqlbody(p.oid), '') AS body,
			LATERAL (SELECT '(^|[^[:alnum:]_])' || regexp_replace($3, '([^[:alnum:]_])', '\\\1', 'g') || '($|[^[:alnum:]_])' AS sequence,
				'(^|[^[:alnum:]_])' || regexp_replace($4, '([^[:alnum:]_])', '\\\1', 'g') || '($|[^[:alnum:]_])' AS relation) AS named
		WHERE p.pronamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname IN ('pg_catalog', 'information_schema', 'cleave')) AND p.prokind IN ('f', 'p')
			AND (body ~ sequence OR body ~* '\m(lastval|pg_get_serial_sequence)\M'
				AND (body ~ relation OR EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = $2::regclass AND t.tgfoid = p.oid)))
		UNION ALL
		SELECT pg_describe_object(d.classid, d.objid, d.objsubid) FROM pg_depend d
		WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = $1::regclass AND d.deptype = 'n' AND NOT EXISTS (
			SELECT FROM pg_attrdef a JOIN pg_depend o ON o.classid = 'pg_class'::regclass AND o.objid = $1::regclass AND o.refobjid = a.adrelid AND o.refobjsubid = a.adnum
			WHERE d.classid = 'pg_attrdef'::regclass AND a.oid = d.objid)) AS readers
	ORDER BY 1 LIMIT 1`

// ReadNumbers looks at the home shard, while the table is locked.
func (d *Definition) ReadNumbers(ctx context.Context, on querier) (Numbers, error) {
	n := Numbers{Greatest: map[string]int64{}, Readers: map[string]string{}}
	if err := on.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&n.Now); err != nil {
		return n, err
	}
	for _, s := range d.Sequences {
		if err := n.findReader(ctx, on, d, s); err != nil {
			return n, err
		}
		if d.column(s.Column).Type != "bigint" {
			continue
		}
		var greatest *int64
		if err := on.QueryRow(ctx, fmt.Sprintf("SELECT max(%s) FROM %s", sqltext.QuoteIdentifier(s.Column), d.Table)).Scan(&greatest); err != nil {
			return n, fmt.Errorf("see which numbers column %q of table %s has: %w", s.Column, d.Table, err)
		}
		if greatest != nil {
			n.Greatest[s.Column] = *greatest
		}
	}
	return n, nil
}

func (n Numbers) findReader(ctx context.Context, on querier, d *Definition, s Sequence) error {
	parts, ok := sqltext.SplitNames(s.Name, '.')
	if !ok || len(parts) != 2 {
		return fmt.Errorf("sequence %s has no name that can be read", s.Name)
	}
	var reader string
	err := on.QueryRow(ctx, readersQuery, s.Name, d.Table.String(), parts[1], d.Table.Name).Scan(&reader)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("see what reads sequence %s: %w", s.Name, err)
	}
	n.Readers[s.Column] = reader
	return nil
}

// Obstacle is why the numbers of a column cannot be made to fit the key.
type Obstacle struct {
	Column string
	// InKey: it is of the key.
	InKey bool
	// Reader is what reads its sequence on shards. Otherwise the rows have numbers from elsewhere.
	Reader string
}

// Made says which of the table's numbers are made to fit the key, in a keyspace by hash, and which ones cannot be.
func (d *Definition) Made(key []string, numbers Numbers) (ids []topology.MadeID, keys []string, obstacles []Obstacle, err error) {
	layout := idgen.DefaultLayout()
	first, err := layout.Encode(idgen.Parts{Time: numbers.Now})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("the home shard's clock: %w", err)
	}
	ahead, err := layout.Encode(idgen.Parts{Time: numbers.Now.Add(maxAhead)})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("the home shard's clock: %w", err)
	}
	for _, s := range d.Sequences {
		greatest, inKey := numbers.Greatest[s.Column], slices.Contains(key, s.Column)
		switch {
		case !d.numbersOwn(s), d.isSmall(s) && !inKey:
		case numbers.Readers[s.Column] != "":
			obstacles = append(obstacles, Obstacle{s.Column, inKey, numbers.Readers[s.Column]})
		case inKey:
			keys = append(keys, s.Column)
		case greatest >= ahead:
			obstacles = append(obstacles, Obstacle{Column: s.Column})
		default:
			ids = append(ids, topology.MadeID{Column: s.Column, Floor: max(first, greatest+1)})
		}
	}
	slices.SortFunc(keys, func(a, b string) int { return slices.Index(key, a) - slices.Index(key, b) })
	return ids, keys[:min(len(keys), 1)], obstacles, nil
}
