package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// Block is a stretch of numbers that one shard alone gives out, both ends included.
type Block struct{ First, Last int64 }

// Blocks are those of a table's sequences, by the sequence's name.
type Blocks map[string]Block

const (
	// integerEnd is the first number that no integer column takes.
	integerEnd = 1 << 31
	// leastBlock is what it is worth to hand out.
	leastBlock = 1000
	// blockRounds: every shard is given this part of its even share of what is left, so that shards that come later find enough.
	blockRounds = 8
)

// isSmall says whether the sequence's numbers are integers, of which there are not enough for lanes.
func (d *Definition) isSmall(s Sequence) bool {
	return d.column(s.Column).Type == "integer" && s.Type != "smallint"
}

// HasSmallNumbers says whether a sequence of the table is given its numbers in blocks.
func (d *Definition) HasSmallNumbers() bool {
	for _, s := range d.Sequences {
		if d.isSmall(s) {
			return true
		}
	}
	return false
}

// executor is a connection or a transaction.
type executor interface {
	querier
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
}

// StartBlocks notes on the home shard, where all rows are, that what they have is used.
func (d *Definition) StartBlocks(ctx context.Context, home pgx.Tx, ends Ends) error {
	for _, s := range d.Sequences {
		if !d.isSmall(s) {
			continue
		}
		next := int64(1)
		for _, end := range ends[s.Name] {
			next = max(next, end+1)
		}
		if _, err := home.Exec(ctx, "INSERT INTO cleave.number_blocks (sequence, next) VALUES ($1, $2) ON CONFLICT (sequence) DO UPDATE SET next = excluded.next", s.Name, next); err != nil {
			return fmt.Errorf("begin to divide the numbers of sequence %s: %w", s.Name, err)
		}
	}
	return nil
}

// TakeBlocks takes a block of each small sequence for one of that many shards. What is taken and not used is lost. Used says up to where
// shards have blocks already, as far as they tell themselves: the home shard may have forgotten one.
func (d *Definition) TakeBlocks(ctx context.Context, home executor, shards int, used map[string]int64) (Blocks, error) {
	blocks := Blocks{}
	for _, s := range d.Sequences {
		if !d.isSmall(s) {
			continue
		}
		block, err := takeBlock(ctx, home, s.Name, shards, used[s.Name])
		if err != nil {
			return nil, err
		}
		blocks[s.Name] = block
	}
	return blocks, nil
}

func takeBlock(ctx context.Context, home executor, sequence string, shards int, used int64) (b Block, err error) {
	const query = `
		WITH free AS (SELECT greatest(next, $4::bigint + 1) AS next FROM cleave.number_blocks WHERE sequence = $1 FOR UPDATE),
		wanted AS (SELECT next, greatest(($3::bigint - next) / $2::bigint, $5::bigint) AS size FROM free)
		UPDATE cleave.number_blocks b SET next = w.next + w.size FROM wanted w WHERE b.sequence = $1 AND w.next + w.size <= $3::bigint
		RETURNING w.next, w.next + w.size - 1`
	err = home.QueryRow(ctx, query, sequence, int64(blockRounds*shards), int64(integerEnd), used, int64(leastBlock)).Scan(&b.First, &b.Last)
	if errors.Is(err, pgx.ErrNoRows) {
		return Block{}, pgerr.New(pgerr.ProgramLimitExceeded, "sequence %s has no numbers left to divide among the shards", sequence).
			WithDetail("Its column is an integer, and every shard needs numbers of its own.").WithHint("Make the column and the sequence bigint.")
	}
	if err != nil {
		return Block{}, fmt.Errorf("take numbers of sequence %s: %w", sequence, err)
	}
	return b, nil
}

// set lets a sequence count through the block, shifted if it gives tickets.
func (b Block) set(ctx context.Context, on executor, sequence string, shift int64) error {
	if b.Last == 0 {
		return fmt.Errorf("sequence %s was given no numbers", sequence)
	}
	return setBounds(ctx, on, sequence, b.First+shift, b.Last+shift, b.First+shift, b.First+shift)
}

// SmallSequence is a sequence that is given its numbers in blocks, as a shard has it.
type SmallSequence struct {
	Name string
	// Last is the end of its block, and Low says that more than three quarters of that are used.
	Last int64
	Low  bool
	// Tickets: it gives tickets for its numbers.
	Tickets bool
}

// SmallSequences looks at those of the shard that belong to these tables.
func SmallSequences(ctx context.Context, conn *pgx.Conn, tables []topology.TableName) ([]SmallSequence, error) {
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = t.String()
	}
	rows, err := conn.Query(ctx, `
		SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname), s.seqmax - coalesce(cleave.ticket_base(c.oid), 0), 4 * (s.seqmax - coalesce(pg_sequence_last_value(c.oid), s.seqstart)) < s.seqmax - s.seqmin, cleave.ticket_base(c.oid) IS NOT NULL
		FROM pg_depend d JOIN pg_class c ON c.oid = d.objid AND c.relkind = 'S' JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_sequence s ON s.seqrelid = c.oid
		JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid AND a.atttypid = 'integer'::regtype
		WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i') AND s.seqtypid <> 'smallint'::regtype
		AND d.refobjid IN (SELECT to_regclass(name) FROM unnest($1::text[]) AS name)`, names)
	if err != nil {
		return nil, fmt.Errorf("look at the sequences: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[SmallSequence])
	if err != nil {
		return nil, fmt.Errorf("look at the sequences: %w", err)
	}
	return found, nil
}

// Refill gives a sequence of a shard, which is low, another block.
func Refill(ctx context.Context, home, conn *pgx.Conn, s SmallSequence, shards int, used int64) (Block, error) {
	block, err := takeBlock(ctx, home, s.Name, shards, used)
	if err != nil {
		return Block{}, err
	}
	shift := int64(0)
	if s.Tickets {
		shift = smallTickets
	}
	return block, block.set(ctx, conn, s.Name, shift)
}
