package shard

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

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
	equals     []string // their equality, as the key has it
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
	if c.equals, err = d.keyEquality(ctx, on); err != nil {
		return nil, err
	}
	for i := range c.seeds {
		c.seeds[i] = randomSeed()
	}
	return c, nil
}

func randomSeed() int64 {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	return int64(binary.NativeEndian.Uint64(random[:]))
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

// keyEquality are the operators by which values of the primary key's columns are equal: those that its index finds rows with, wherever they are.
func (d *Definition) keyEquality(ctx context.Context, on querier) ([]string, error) {
	rows, err := on.Query(ctx, `
		SELECT format('OPERATOR(%I.%s)', n.nspname, o.oprname)
		FROM pg_index x, unnest(x.indclass::oid[]) WITH ORDINALITY AS k (class, place) JOIN pg_opclass c ON c.oid = k.class
			JOIN pg_amop a ON a.amopfamily = c.opcfamily AND a.amopstrategy = 3 AND a.amoplefttype = c.opcintype AND a.amoprighttype = c.opcintype AND a.amoppurpose = 's'
			JOIN pg_operator o ON o.oid = a.amopopr JOIN pg_namespace n ON n.oid = o.oprnamespace
		WHERE x.indrelid = $1::text::regclass AND x.indisprimary ORDER BY k.place`, d.Table.String())
	if err == nil {
		var operators []string
		if operators, err = pgx.CollectRows(rows, pgx.RowTo[string]); err == nil {
			return operators, nil
		}
	}
	return nil, fmt.Errorf("see how keys of table %s are compared: %w", d.Table, err)
}

// typeOf is the type of one of its columns, as SQL has it.
func (d *Definition) typeOf(column string) string {
	i := slices.IndexFunc(d.Columns, func(c Column) bool { return c.Name == column })
	return d.Columns[i].Type
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

// RowsIn is how many rows some buckets have together, on the side that has more of each.
func (d *Digest) RowsIn(other *Digest, buckets []int32) (rows int64) {
	for _, number := range buckets {
		rows += max(d.buckets[number].rows, other.buckets[number].rows)
	}
	return rows
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
	rows, err := on.Query(ctx, query, pgx.QueryExecModeExec) // each part has a text of its own
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

// eachPart reads the rows of the table in a still, and of its partitions, that fit a condition over t, part by part: with what, from what relation, and by which condition.
func (c *Comparison) eachPart(ctx context.Context, in *Still, where string, read func(on querier, relation, where string) error, after AfterPart) error {
	leaves, err := Leaves(ctx, in.reads, c.Definition.Table)
	if err != nil {
		return err
	}
	for _, leaf := range leaves {
		before, err := FileOf(ctx, in.reads, leaf)
		if err != nil {
			return err
		}
		for from := int64(0); from == 0 || from < leaf.Pages; from += partPages {
			to, pages := from+partPages, partPages
			if to >= leaf.Pages {
				to, pages = -1, leaf.Pages-from
			}
			began := time.Now()
			if err := in.read(ctx, func(on querier) error { return read(on, leaf.Name.String(), PagesSQL(from, to)+" AND ("+where+")") }); err != nil {
				return fmt.Errorf("read rows of table %s: %w", leaf.Name, err)
			}
			if err := after(ctx, time.Since(began), pages*blockSize); err != nil {
				return err
			}
			if err := in.mayStay(ctx); err != nil {
				return err
			}
		}
		if now, err := FileOf(ctx, in.reads, leaf); err != nil {
			return err
		} else if now != before {
			return WrittenAnew(leaf)
		}
	}
	return nil
}

// FileOf is the file that a leaf is in. Who goes through its pages looks before and behind that: VACUUM FULL, for example, makes another file, and may put rows onto pages that were passed.
func FileOf(ctx context.Context, on querier, leaf Leaf) (file string, err error) {
	if err = on.QueryRow(ctx, "SELECT coalesce(pg_relation_filenode($1::text::regclass), 0)::text", leaf.Name.String()).Scan(&file); err != nil {
		return "", fmt.Errorf("see which file table %s is in: %w", leaf.Name, err)
	}
	return file, nil
}

// WrittenAnew says that a leaf is in another file than before.
func WrittenAnew(leaf Leaf) error {
	return fmt.Errorf("table %s was written anew while it was read, by VACUUM FULL, CLUSTER, TRUNCATE or a change of its definition", leaf.Name)
}

// blockSize is how large pages are, in nearly all servers. Nothing but a pace depends on it.
const blockSize = 8192

// DigestIn sums the rows of the table up in a still, and those of its partitions, that fit a condition over t.
func (c *Comparison) DigestIn(ctx context.Context, in *Still, where string, after AfterPart) (*Digest, error) {
	d := &Digest{buckets: map[int32]bucket{}}
	err := c.eachPart(ctx, in, where, func(on querier, relation, where string) error { return c.addRows(ctx, on, d, relation, where) }, after)
	return d, err
}

// Narrowed is a comparison of the rows in some buckets alone, which it puts into others, and the condition for these rows.
func (c *Comparison) Narrowed(where string, buckets []int32) (*Comparison, string) {
	narrowed := *c
	narrowed.seeds[0] = randomSeed()
	return &narrowed, "(" + where + ") AND " + c.inBuckets(buckets)
}

// IsNarrow says whether some buckets are so few that most rows are in others.
func (c *Comparison) IsNarrow(buckets []int32) bool { return len(buckets) < c.buckets/4 }

// hashOf is the hash of all that is in the row t.
func (c *Comparison) hashOf() string {
	return fmt.Sprintf("hashtextextended(%s, %d)::text", c.rowText(), c.seeds[1])
}

// RowsOf are the rows of some buckets that fit a condition over t in a still: what identifies each, and a hash of all that is in it.
func (c *Comparison) RowsOf(ctx context.Context, in *Still, where string, buckets []int32, after AfterPart) (map[string]string, error) {
	found := map[string]string{}
	read := func(on querier, relation, where string) error {
		rows, err := on.Query(ctx, fmt.Sprintf("SELECT %s, %s FROM ONLY %s AS t WHERE %s", c.bucketText(), c.hashOf(), relation, where), pgx.QueryExecModeExec)
		return collectHashes(rows, err, found)
	}
	err := c.eachPart(ctx, in, "("+where+") AND "+c.inBuckets(buckets), read, after)
	return found, err
}

// collectHashes adds rows to those that were found. One that is there twice is not equal to one that is there once.
func collectHashes(rows pgx.Rows, err error, found map[string]string) error {
	if err != nil {
		return err
	}
	var key, hash string
	_, err = pgx.ForEachRow(rows, []any{&key, &hash}, func() error {
		found[key] += hash + " "
		return nil
	})
	return err
}

// FindsRows says whether rows can be looked up one by one: by a primary key.
func (c *Comparison) FindsRows() bool { return len(c.key) > 0 && len(c.equals) == len(c.key) }

// ErrNotFindable says that rows cannot be looked up by the texts of their keys.
var ErrNotFindable = errors.New("rows cannot be looked up by the texts of their keys")

// keysAtOnce is how many rows are looked up by one statement.
const keysAtOnce = 10_000

// RowsWith are rows as they are now, by what identifies them, as [Comparison.RowsOf] tells it of them. Use it if the comparison [Comparison.FindsRows]. It fails with [ErrNotFindable] if values of the key are not what their texts say, whatever that is due to: a row
// that is not found must not be there.
func (c *Comparison) RowsWith(ctx context.Context, on querier, where string, identities []string) (map[string]string, error) {
	return c.find(ctx, on, where, identities, "")
}

// LockRowsWith is [Comparison.RowsWith] in a transaction, until whose end nobody writes the rows that are found.
func (c *Comparison) LockRowsWith(ctx context.Context, tx pgx.Tx, where string, identities []string) (map[string]string, error) {
	return c.find(ctx, tx, where, identities, " FOR NO KEY UPDATE OF t")
}

func (c *Comparison) find(ctx context.Context, on querier, where string, identities []string, lock string) (map[string]string, error) {
	leaves, err := Leaves(ctx, on, c.Definition.Table)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for some := range slices.Chunk(identities, keysAtOnce) {
		keys, err := c.keysOf(some)
		if err != nil {
			return nil, err
		}
		arguments := append([]any{pgx.QueryExecModeExec, some}, keys...)
		var lost int
		if err := on.QueryRow(ctx, c.lostSQL(), arguments...).Scan(&lost); err != nil {
			return nil, c.notFound(err)
		} else if lost > 0 {
			return nil, ErrNotFindable
		}
		for _, leaf := range leaves {
			rows, err := on.Query(ctx, c.lookUpSQL(leaf.Name.String(), where)+lock, arguments...)
			if err := collectHashes(rows, err, found); err != nil {
				return nil, c.notFound(err)
			}
		}
	}
	return found, nil
}

// notFound tells statements that a server does not understand, or values that it does not take, from other failures.
func (c *Comparison) notFound(err error) error {
	if class := CodeOf(err); strings.HasPrefix(class, "42") || strings.HasPrefix(class, "22") {
		return fmt.Errorf("%w: %w", ErrNotFindable, err)
	}
	return fmt.Errorf("look rows of table %s up: %w", c.Definition.Table, err)
}

// wanted is what keys are given as: their texts, and the values of each column.
func (c *Comparison) wanted() (from string, values []string) {
	arrays, names := []string{"$1::text[]"}, []string{"identity"}
	for i, column := range c.key {
		name := "k" + strconv.Itoa(i+1)
		arrays, names = append(arrays, fmt.Sprintf("$%d::text[]", i+2)), append(names, name)
		values = append(values, fmt.Sprintf("wanted.%s::%s", name, c.Definition.typeOf(column)))
	}
	return fmt.Sprintf("unnest(%s) AS wanted (%s)", list(arrays), list(names)), values
}

// lostSQL counts the keys whose values have other texts than those that they were made from.
func (c *Comparison) lostSQL() string {
	from, values := c.wanted()
	return fmt.Sprintf(`SELECT count(*) FROM %s WHERE (ROW(%s)::text COLLATE "C") IS DISTINCT FROM wanted.identity`, from, list(values))
}

// lookUpSQL reads the rows of a relation that have these keys, to the letter: what is equal may have other texts, and would be found twice.
func (c *Comparison) lookUpSQL(relation, where string) string {
	from, values := c.wanted()
	conditions := []string{c.bucketText() + " = wanted.identity", "(" + where + ")"}
	for i, column := range c.key {
		conditions = append(conditions, fmt.Sprintf("t.%s %s %s", sqltext.QuoteIdentifier(column), c.equals[i], values[i]))
	}
	return fmt.Sprintf("SELECT %s, %s FROM %s JOIN ONLY %s AS t ON %s", c.bucketText(), c.hashOf(), from, relation, strings.Join(conditions, " AND "))
}

// keysOf takes the texts of keys apart: the values of each column.
func (c *Comparison) keysOf(identities []string) ([]any, error) {
	columns := make([][]string, len(c.key))
	for _, identity := range identities {
		fields := pgtype.NewCompositeTextScanner(nil, []byte(identity))
		for i := range columns {
			if !fields.Next() {
				return nil, fmt.Errorf("%w: key %s of table %s has fewer values than columns", ErrNotFindable, identity, c.Definition.Table)
			}
			columns[i] = append(columns[i], string(fields.Bytes()))
		}
	}
	keys := make([]any, len(columns))
	for i, values := range columns {
		keys[i] = values
	}
	return keys, nil
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
