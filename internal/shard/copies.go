package shard

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/sqltext"
)

// Comparison compares the rows of a table on several shards without carrying them. A row is its text, all columns in the order of one
// definition. Each shard puts its rows into buckets, by a hash of the primary key or, if there is none, of the row, and sums two hashes
// of the rows up for every bucket. Sums do not depend on an order, and a row that is there twice counts twice. The hashes' seeds are random, so nobody
// can make rows that are taken for each other.
//
// Generated columns are left out: they follow from the others.
type Comparison struct {
	Definition *Definition
	key        []string // columns of the primary key
	columns    []string // those that are compared
	buckets    int
	seeds      [3]int64
}

const (
	// rowsPerBucket is how many rows a bucket should have: those are what a repair has to carry for one that differs.
	rowsPerBucket = 64
	fewestBuckets = 256
	mostBuckets   = 1 << 16
)

// CompareSettings make a session ready for comparing: a value has one text, whatever was set for the role or the database, no row is
// hidden, and it may take as long as it takes.
var CompareSettings = "SET " + strings.Join(compareSettings, "; SET ")

var compareSettings = []string{
	"row_security = off", "statement_timeout = 0", "idle_in_transaction_session_timeout = 0", "intervalstyle = postgres", "extra_float_digits = 1",
	"bytea_output = hex", "lc_monetary = 'C'", "xmloption = content", "quote_all_identifiers = off", "array_nulls = on",
}

// Compared returns a comparison of the table, for as many rows as it has about now.
func (d *Definition) Compared(ctx context.Context, on querier) (*Comparison, error) {
	var rows float64
	err := on.QueryRow(ctx, "SELECT greatest(c.reltuples, pg_relation_size(c.oid) / 100)::float8 FROM pg_class c WHERE c.oid = $1::text::regclass", d.Table.String()).Scan(&rows)
	if err != nil {
		return nil, fmt.Errorf("see how large table %s is: %w", d.Table, err)
	}
	c := &Comparison{Definition: d, buckets: fewestBuckets}
	for c.buckets < mostBuckets && float64(c.buckets)*rowsPerBucket < rows {
		c.buckets *= 2
	}
	c.columns, c.key = d.carried(), d.primaryKey()
	var random [len(c.seeds) * 8]byte
	_, _ = rand.Read(random[:]) // never fails
	for i := range c.seeds {
		c.seeds[i] = int64(binary.NativeEndian.Uint64(random[i*8:]))
	}
	return c, nil
}

// carried are the columns with which rows go from shard to shard: generated ones follow from the others.
func (d *Definition) carried() (columns []string) {
	for _, c := range d.Columns {
		if c.Generated == "" {
			columns = append(columns, c.Name)
		}
	}
	return columns
}

// primaryKey are its columns; none if there is none.
func (d *Definition) primaryKey() []string {
	for _, c := range d.Constraints {
		if c.Kind == "p" {
			return c.Columns
		}
	}
	return nil
}

// textOf is the text of columns of the row t, and textIn that of columns of another one.
func textOf(columns []string) string { return textIn(rowAlias, columns) }

func textIn(row string, columns []string) string {
	return fmt.Sprintf(`(ROW(%s)::text COLLATE "C")`, list(newColumns(row, columns)))
}

// rowText identifies a row with all that is in it, and bucketText what it is put into a bucket by.
func (c *Comparison) rowText() string { return textOf(c.columns) }

func (c *Comparison) bucketText() string {
	if len(c.key) == 0 {
		return c.rowText()
	}
	return textOf(c.key)
}

// bucketOf is the number of the bucket for such a text.
func (c *Comparison) bucketOf(text string) string {
	return fmt.Sprintf("(hashtextextended(%s, %d) & %d)::int", text, c.seeds[0], c.buckets-1)
}

// inBuckets is a condition for rows t of these buckets. All of them are not listed.
func (c *Comparison) inBuckets(numbers []int32) string {
	if len(numbers) == c.buckets {
		return "true"
	}
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.Itoa(int(n))
	}
	return fmt.Sprintf("%s = ANY ('{%s}'::int[])", c.bucketOf(c.bucketText()), strings.Join(texts, ","))
}

// Digest is what a shard's rows come to.
type Digest struct {
	Rows    int64
	buckets map[int32]bucket
}

// bucket has how many rows are in it, and the sums of their two hashes.
type bucket struct {
	rows int64
	sums [2]uint64 // modulo 2^64
}

// Differing returns the buckets that differ, in their order.
func (d *Digest) Differing(other *Digest) []int32 {
	var numbers []int32
	for number, mine := range d.buckets {
		if other.buckets[number] != mine {
			numbers = append(numbers, number)
		}
	}
	for number := range other.buckets {
		if _, known := d.buckets[number]; !known {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return numbers
}

// Groups divides buckets into groups of some, which have no more rows than that together on either side; one that has more by itself is a group.
func (d *Digest) Groups(other *Digest, buckets []int32, most int64) (groups [][]int32) {
	rows := most + 1
	for _, number := range buckets {
		more := max(d.buckets[number].rows, other.buckets[number].rows)
		if rows += more; rows > most {
			groups, rows = append(groups, nil), more
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], number)
	}
	return groups
}

// pagesAtOnce is how many pages of a table are read by one statement, some tens of megabytes: who waits for a lock on the table does not wait for all of it.
var pagesAtOnce = int64(8192)

// Digest reads the table on one shard, whose session has the [CompareSettings]. Outside a transaction each part of the table is read with a snapshot
// of its own, so what is written meanwhile may be seen twice or not at all.
func (c *Comparison) Digest(ctx context.Context, on querier) (*Digest, error) {
	d := &Digest{buckets: map[int32]bucket{}}
	var pages int64
	err := on.QueryRow(ctx, "SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint", c.Definition.Table.String()).Scan(&pages)
	for from := int64(0); err == nil && (from == 0 || from < pages); from += pagesAtOnce {
		err = c.addPart(ctx, on, d, from, from+pagesAtOnce >= pages)
	}
	if err != nil {
		return nil, fmt.Errorf("sum the rows of table %s up: %w", c.Definition.Table, err)
	}
	return d, nil
}

// addPart adds what is on some pages; on the last ones, and all that come after them. The hashes are summed up in halves, so that a sum never
// leaves a bigint.
func (c *Comparison) addPart(ctx context.Context, on querier, d *Digest, from int64, last bool) error {
	to := from + pagesAtOnce
	if last {
		to = -1
	}
	return c.addRows(ctx, on, d, c.Definition.Table.String(), PagesSQL(from, to))
}

// addRows adds the rows of one relation that fit a condition.
func (c *Comparison) addRows(ctx context.Context, on querier, d *Digest, relation, where string) error {
	query := fmt.Sprintf(`
		SELECT h.bucket, count(*), sum(h.a & 4294967295)::bigint, sum(h.a >> 32)::bigint, sum(h.b & 4294967295)::bigint, sum(h.b >> 32)::bigint FROM (
			SELECT %s AS bucket, hashtextextended(r.whole, %d) AS a, hashtextextended(r.whole, %d) AS b
			FROM (SELECT %s AS key, %s AS whole FROM ONLY %s AS t WHERE %s OFFSET 0) AS r) AS h
		GROUP BY h.bucket`,
		c.bucketOf("r.key"), c.seeds[1], c.seeds[2], c.bucketText(), c.rowText(), relation, where)
	rows, err := on.Query(ctx, query)
	if err != nil {
		return err
	}
	var number int32
	var count int64
	var halves [4]int64
	_, err = pgx.ForEachRow(rows, []any{&number, &count, &halves[0], &halves[1], &halves[2], &halves[3]}, func() error {
		b := d.buckets[number]
		b.rows += count
		for i := range b.sums {
			b.sums[i] += uint64(halves[2*i]) + uint64(halves[2*i+1])<<32
		}
		d.buckets[number] = b
		d.Rows += count
		return nil
	})
	return err
}

// partPages is how many pages of a table are read by one statement where that gives way: so few that it can, and so many that sums are far fewer than rows.
var partPages = int64(2048)

// AfterPart is called when a statement has read a part of a table: how long that took, and how many bytes the part has.
type AfterPart func(ctx context.Context, took time.Duration, bytes int64) error

// eachPart reads the rows of the table, and of its partitions, that fit a condition over t, part by part: from what relation, and by which condition. Each part has a snapshot of its own, so what is written meanwhile may be seen twice or not at all.
func (c *Comparison) eachPart(ctx context.Context, on querier, where string, read func(relation, where string) error, after AfterPart) error {
	leaves, err := Leaves(ctx, on, c.Definition.Table)
	if err != nil {
		return err
	}
	for _, leaf := range leaves {
		for from := int64(0); from == 0 || from < leaf.Pages; from += partPages {
			to, pages := from+partPages, partPages
			if to >= leaf.Pages {
				to, pages = -1, leaf.Pages-from
			}
			began := time.Now()
			if err := read(leaf.Name.String(), PagesSQL(from, to)+" AND ("+where+")"); err != nil {
				return fmt.Errorf("read rows of table %s: %w", leaf.Name, err)
			}
			if err := after(ctx, time.Since(began), pages*blockSize); err != nil {
				return err
			}
		}
	}
	return nil
}

// blockSize is how large pages are, in nearly all servers. Nothing but a pace depends on it.
const blockSize = 8192

// DigestWhere is [Comparison.Digest] for the rows of the table, and of its partitions, that fit a condition over t.
func (c *Comparison) DigestWhere(ctx context.Context, on querier, where string, after AfterPart) (*Digest, error) {
	d := &Digest{buckets: map[int32]bucket{}}
	err := c.eachPart(ctx, on, where, func(relation, where string) error { return c.addRows(ctx, on, d, relation, where) }, after)
	return d, err
}

// RowsOf are the rows of some buckets that fit a condition over t: what identifies each, and a hash of all that is in it.
func (c *Comparison) RowsOf(ctx context.Context, on querier, where string, buckets []int32, after AfterPart) (map[string]string, error) {
	found := map[string]string{}
	read := func(relation, where string) error {
		rows, err := on.Query(ctx, fmt.Sprintf("SELECT %s, hashtextextended(%s, %d)::text FROM ONLY %s AS t WHERE %s", c.bucketText(), c.rowText(), c.seeds[1], relation, where))
		if err != nil {
			return err
		}
		var key, hash string
		_, err = pgx.ForEachRow(rows, []any{&key, &hash}, func() error {
			found[key] += hash + " " // one that is there twice is not equal to one that is there once
			return nil
		})
		return err
	}
	err := c.eachPart(ctx, on, "("+where+") AND "+c.inBuckets(buckets), read, after)
	return found, err
}

// ReadSQL streams the rows of some buckets out.
func (c *Comparison) ReadSQL(buckets []int32) string {
	return c.Definition.readSQL(c.inBuckets(buckets))
}

// CopyState tells whether anybody has written to a table on a shard: while it stays the same, nobody has. Empty: it cannot be told. What is
// written is counted soon after it is committed, and never before.
func CopyState(ctx context.Context, on querier, table string) (state string, err error) {
	const query = `
		SELECT CASE current_setting('track_counts') WHEN 'on' THEN concat_ws('/', cleave.server_state(), extract(epoch FROM pg_postmaster_start_time()), c.oid, pg_relation_filenode(c.oid),
			pg_stat_get_tuples_inserted(c.oid), pg_stat_get_tuples_updated(c.oid), pg_stat_get_tuples_deleted(c.oid)) ELSE '' END
		FROM pg_class c WHERE c.oid = $1::text::regclass`
	if err = on.QueryRow(ctx, query, table).Scan(&state); err != nil {
		return "", fmt.Errorf("see whether table %s was written to: %w", table, err)
	}
	return state, nil
}

// quoted are names of columns as SQL has them.
func quoted(columns []string) []string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = sqltext.QuoteIdentifier(c)
	}
	return names
}
