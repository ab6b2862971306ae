package idgen

import (
	_ "embed" // The SQL is in files of its own, to be read as SQL.
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

//go:embed sql/ids.sql
var idsSQL string

//go:embed sql/uuidv7.sql
var uuidSQL string

const (
	// DefaultSchema is the schema that the functions are made in.
	DefaultSchema = "cleave"

	// maxLanes bounds the number of clocks in a database: enough for as many sessions at work as a server has cores, few
	// enough not to clutter the catalogue.
	maxLanes = 16
	// maxLeadMilli is how far ids made in a database may run ahead of the clock before a session waits. pg_sleep cannot
	// sleep for less than a millisecond, so without a lead a burst would lose half its speed to sleeping too long.
	maxLeadMilli = 10
	// maxLagMilli is how far their times may be behind the clock: only then is a clock set, which takes a lock.
	maxLagMilli = 10
	// lockClass is the first half of the key of the advisory locks, the lane is the second. It spells "idge" in ASCII.
	lockClass = 0x69646765

	maxIdentifier = 63
)

// SQLConfig says how the functions of [Layout.SQL] are made.
type SQLConfig struct {
	// Schema is where the functions live: lower-case letters, digits and underscores. A schema is a maker of its own: two
	// of them in one database with the same layout and number make the same ids. Default: DefaultSchema.
	Schema string
	// Generator is the number of the ids made in this database. Default: 0, which all databases share: right as long as
	// every slot belongs to one database at a time and [Layout.SQL]'s rule for moves is kept. Where a slot is
	// spread over several databases (ranges cut finer than slots, pinned keys), each of them needs a number of its own, from
	// the same supply as the processes' numbers.
	Generator int
	// MaxBackwards is how far the server's clock may be behind the last id for a session to wait; when it is further
	// behind, next_id raises an error. From 20 ms up. Default: DefaultMaxBackwards.
	MaxBackwards time.Duration
}

func (c SQLConfig) withDefaults() SQLConfig {
	if c.Schema == "" {
		c.Schema = DefaultSchema
	}
	if c.MaxBackwards == 0 {
		c.MaxBackwards = DefaultMaxBackwards
	}
	return c
}

func (c SQLConfig) check(layout Layout) error {
	if err := checkIdentifier(c.Schema); err != nil {
		return fmt.Errorf("id functions: schema %w", err)
	}
	if c.Generator < 0 || c.Generator >= layout.Generators() {
		return fmt.Errorf("id functions: generator %d is not between 0 and %d", c.Generator, layout.Generators()-1)
	}
	if c.MaxBackwards < 2*maxLeadMilli*time.Millisecond {
		return fmt.Errorf("id functions: longest wait for the clock is %s, want at least %d ms", c.MaxBackwards, 2*maxLeadMilli)
	}
	return nil
}

// SQL returns the text that gives a PostgreSQL database, version 15 or later, ids of this layout. It may be run again. The
// functions, in the configured schema:
//
//	next_id(hash bigint) bigint                     makes an id for a row whose shard key has this hash
//	id_time(id), id_slot(id), id_generator(id), id_sequence(id)
//	id_layout() text                                equals Layout.String
//	id_maker() integer                              the generator number of ids made here
//	id_high_water() timestamptz                     the first millisecond later than every id made here
//	id_raise_floor(not_before timestamptz) interval no id made from now on carries an earlier time
//
// A column default cannot see the row's key, so next_id is called by the statement or by a BEFORE INSERT trigger. It runs with
// its owner's rights; callers need EXECUTE on it and USAGE on the schema, and get neither here. Ids are strictly increasing
// per slot within the database, in the order of making; a transaction that rolls back leaves holes. Like nextval, it needs
// a transaction that may write.
//
// The rule for moves: when a slot goes from one database to another that has the same generator number, then after the
// source has stopped making ids for the slot and before the target starts, pass the source's id_high_water() to the target's
// id_raise_floor. Otherwise a target whose clock is behind could make an id that the source has made a moment before.
func (l Layout) SQL(config SQLConfig) (string, error) {
	if l == (Layout{}) {
		l = DefaultLayout()
	}
	config = config.withDefaults()
	if err := config.check(l); err != nil {
		return "", err
	}
	schema := quoteIdentifier(config.Schema)
	lanes := min(maxLanes, l.Slots())
	return fill(idsSQL, map[string]string{
		"schema":        schema,
		"layout":        l.String(),
		"generator":     strconv.Itoa(config.Generator),
		"epochMilli":    strconv.FormatInt(l.epochMilli, 10),
		"endMilli":      strconv.FormatUint(l.endMilli(), 10),
		"lastMilli":     strconv.FormatUint(l.endMilli()-1000, 10),
		"timeShift":     strconv.Itoa(int(l.slotBits + l.genBits + l.seqBits)),
		"slotShift":     strconv.Itoa(int(l.genBits + l.seqBits)),
		"slotMask":      strconv.FormatUint(lowBits(l.slotBits), 10),
		"slotOfHash":    l.slotOfHashSQL(),
		"generatorMask": strconv.FormatUint(lowBits(l.genBits), 10),
		"generatorBits": strconv.FormatUint(uint64(config.Generator)<<l.seqBits, 10),
		"sequenceBits":  strconv.Itoa(int(l.seqBits)),
		"sequenceMask":  strconv.FormatUint(lowBits(l.seqBits), 10),
		"lanes":         strconv.Itoa(lanes),
		"countOfSlot":   sequenceOfSlotSQL(schema, "id_count", lanes),
		"shiftOfSlot":   sequenceOfSlotSQL(schema, "id_shift", lanes),
		"milli":         fmt.Sprintf(milliSQL, l.epochMilli),
		"sequences":     clocksSQL(schema, lanes),
		"lockClass":     strconv.Itoa(lockClass),
		"maxLag":        strconv.Itoa(maxLagMilli),
		"maxLead":       strconv.Itoa(maxLeadMilli),
		"maxBackwards":  strconv.FormatInt(config.MaxBackwards.Milliseconds(), 10),
	}), nil
}

// slotOfHashSQL is SlotOf in SQL. PostgreSQL shifts modulo 64, so a layout without slots cannot shift them all out.
func (l Layout) slotOfHashSQL() string {
	if l.slotBits == 0 {
		return "0"
	}
	return fmt.Sprintf("(hash OPERATOR(pg_catalog.>>) %d) OPERATOR(pg_catalog.&) %d", 64-l.slotBits, lowBits(l.slotBits))
}

// milliSQL is the time of day in milliseconds since the layout's epoch.
const milliSQL = "(pg_catalog.floor(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000)::bigint OPERATOR(pg_catalog.-) %d)"

// sequenceOfSlotSQL picks the sequence of a slot's lane. It names all of them, which PostgreSQL looks up once for a session: looking one
// up by a name that is put together takes longer than taking a number from it.
func sequenceOfSlotSQL(schema, name string, lanes int) string {
	sequences := make([]string, lanes)
	for lane := range lanes {
		sequences[lane] = fmt.Sprintf("'%s.%s_%d'::pg_catalog.regclass", schema, name, lane)
	}
	return fmt.Sprintf("(ARRAY[%s])[(slot OPERATOR(pg_catalog.%%) %d) OPERATOR(pg_catalog.+) 1]", strings.Join(sequences, ", "), lanes)
}

// clocksSQL creates the sequences that serve as clocks.
func clocksSQL(schema string, lanes int) string {
	var text strings.Builder
	for lane := range lanes {
		for _, name := range []string{"id_count", "id_shift"} {
			fmt.Fprintf(&text, "CREATE SEQUENCE IF NOT EXISTS %[1]s.%[2]s_%[3]d AS bigint MINVALUE 0 START 0 CACHE 1 NO CYCLE;\n"+
				"REVOKE ALL ON SEQUENCE %[1]s.%[2]s_%[3]d FROM PUBLIC;\n", schema, name, lane)
		}
	}
	return text.String()
}

// UUIDSQL returns the text of a function uuidv7() in the schema (DefaultSchema if empty), for PostgreSQL 15 to 17; later
// versions have one of their own. Its ids are ordered by microsecond and in no order within one.
func UUIDSQL(schema string) (string, error) {
	if schema == "" {
		schema = DefaultSchema
	}
	if err := checkIdentifier(schema); err != nil {
		return "", fmt.Errorf("uuid function: schema %w", err)
	}
	return fill(uuidSQL, map[string]string{"schema": quoteIdentifier(schema)}), nil
}

// SequenceSQL returns what a [Source] over a PostgreSQL sequence needs: the statement that creates the sequence, and the
// query that reserves a block and returns its first number. The sequence steps by the block size, so each nextval is a whole
// block: first = what the query returns, n = block. nextval is never undone; for what a crash can do to it, see
// DESIGN.md. The sequence counts in bigint whatever the column is, so that the last block
// below an integer column's bound can be used up to the last number; set [BlocksConfig.Max] to the bound.
//
// Only one database may serve a column: put the sequence beside the rows of one shard, or where all routers reach it.
func SequenceSQL(schema, name string, block int64) (create, next string, err error) {
	for _, identifier := range []string{schema, name} {
		if err := checkIdentifier(identifier); err != nil {
			return "", "", fmt.Errorf("sequence: name %w", err)
		}
	}
	if block < 1 || block > math.MaxInt32 {
		return "", "", fmt.Errorf("sequence: block size %d is not between 1 and %d", block, math.MaxInt32)
	}
	qualified := quoteIdentifier(schema) + "." + quoteIdentifier(name)
	create = fmt.Sprintf("CREATE SEQUENCE %s AS bigint START 1 INCREMENT BY %d CACHE 1 NO CYCLE;", qualified, block)
	next = fmt.Sprintf("SELECT pg_catalog.nextval('%s'::pg_catalog.regclass);", qualified)
	return create, next, nil
}

// fill replaces {{name}} by its value. All values are made of numbers and checked identifiers: nothing needs escaping.
func fill(text string, values map[string]string) string {
	pairs := make([]string, 0, 2*len(values))
	for name, value := range values {
		pairs = append(pairs, "{{"+name+"}}", value)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// checkIdentifier refuses names that would need more than quotes around them, inside literals as well.
func checkIdentifier(name string) error {
	if name == "" || len(name) > maxIdentifier {
		return fmt.Errorf("%q has %d bytes, want 1 to %d", name, len(name), maxIdentifier)
	}
	for i, char := range name {
		letter := char == '_' || 'a' <= char && char <= 'z'
		digit := '0' <= char && char <= '9'
		if !letter && (!digit || i == 0) {
			return fmt.Errorf("%q: only lower-case letters, digits and underscores are allowed, and no digit first", name)
		}
	}
	return nil
}

// quoteIdentifier protects a checked name that happens to be a key word.
func quoteIdentifier(name string) string { return `"` + name + `"` }
