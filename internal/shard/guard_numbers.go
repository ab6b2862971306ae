package shard

import (
	"fmt"
	"strings"

	"github.com/cleavedb/cleave/idgen"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// The triggers of numbers. The first must come before those of the user, which may want to see the number.
const (
	numberGuard = "!cleave_number"
	tellGuard   = "cleave_tell"
)

// mostKeyTries is how many numbers are looked at for one that belongs on the shard.
const mostKeyTries = 100_000

// numbered are the columns of a sharded table whose numbers a trigger makes.
type numbered struct {
	table *topology.Table
	shard *topology.Shard
	owned ownership
	hash  string // of the new row's key; empty if there are no ids
}

func newNumbered(t *topology.Table, shard *topology.Shard, o ownership) (n numbered, err error) {
	n = numbered{table: t, shard: shard, owned: o}
	if len(t.IDs()) > 0 {
		n.hash, err = hashSQL(o.keyspace, newColumns("NEW", t.KeyColumns()))
	}
	return n, err
}

// columns are all of them, keys first, in the order in which they are made.
func (n numbered) columns() []string {
	columns := n.table.MadeKeys()
	for _, id := range n.table.IDs() {
		columns = append(columns, id.Column)
	}
	return columns
}

// anyNegative is true for a row in which one of them may be a ticket.
func (n numbered) anyNegative() string {
	var conditions []string
	for _, column := range newColumns("NEW", n.columns()) {
		conditions = append(conditions, column+" OPERATOR(pg_catalog.<) 0")
	}
	return strings.Join(conditions, " OR ")
}

// anyTelling is true for a row with an id that says where the row is; empty if there are no ids. Whether it is right the function looks at:
// in a trigger's condition that would make every statement longer than calling the function makes a row.
func (n numbered) anyTelling() string {
	var conditions []string
	for _, id := range n.table.IDs() {
		conditions = append(conditions, fmt.Sprintf("%s OPERATOR(pg_catalog.>=) '%d'::bigint", newColumns("NEW", []string{id.Column})[0], id.Floor))
	}
	return strings.Join(conditions, " OR ")
}

// misfit is true for a row with an id that does not fit its key.
func (n numbered) misfit(id topology.MadeID) string {
	column := newColumns("NEW", []string{id.Column})[0]
	return fmt.Sprintf("%s OPERATOR(pg_catalog.>=) '%d'::bigint AND %s OPERATOR(pg_catalog.<>) %s", column, id.Floor, slotOfID(column), slotOfHash(n.hash))
}

// fit is true for a row whose numbers need no closer look.
func (n numbered) fit() string {
	doubts := []string{n.anyNegative()}
	for _, id := range n.table.IDs() {
		doubts = append(doubts, n.misfit(id))
	}
	return "NOT (" + strings.Join(doubts, " OR ") + ")"
}

// slotOfID and slotOfHash are idgen's in SQL, without the cost of calling a function.
func slotOfID(id string) string {
	layout := idgen.DefaultLayout().Config()
	return fmt.Sprintf("((%s OPERATOR(pg_catalog.>>) %d) OPERATOR(pg_catalog.&) %d)", id, layout.GeneratorBits+layout.SequenceBits, 1<<layout.SlotBits-1)
}

func slotOfHash(hash string) string {
	layout := idgen.DefaultLayout().Config()
	return fmt.Sprintf("((%s OPERATOR(pg_catalog.>>) %d) OPERATOR(pg_catalog.&) %d)", hash, 64-layout.SlotBits, 1<<layout.SlotBits-1)
}

// checks are what the guard's function says about numbers, after it has seen that the row is the shard's.
func (n numbered) checks() string {
	var b strings.Builder
	for _, c := range n.columns() {
		column := newColumns("NEW", []string{c})[0]
		fmt.Fprintf(&b, "\tIF %s OPERATOR(pg_catalog.<) 0 AND cleave.is_ticket(TG_RELID, %s, %s) THEN\n", column, sqltext.QuoteLiteral(c), column)
		n.raise(&b, c, fmt.Sprintf("a number that was still to be made came to column %q of table %s", c, n.table.Name()),
			sqltext.QuoteLiteral("Its sequence gives tickets, which are exchanged for numbers when a row is inserted. A trigger or a function has called nextval or currval itself, or an UPDATE sets the column to its default."),
			"Leave the column to its default in an INSERT. If the sequence has to be read on shards, declare the table with ids => 'counted'.")
	}
	for _, id := range n.table.IDs() {
		column := newColumns("NEW", []string{id.Column})[0]
		fmt.Fprintf(&b, "\tIF %s THEN\n", n.misfit(id))
		n.raise(&b, id.Column, fmt.Sprintf("a number in column %q of table %s does not fit the row's key", id.Column, n.table.Name()),
			fmt.Sprintf("pg_catalog.format(%s, %s, %s, %s)",
				sqltext.QuoteLiteral(fmt.Sprintf("Id (%s)=(%%s) carries slot %%s, and the row's key has slot %%s. From %d on the id says where a row is.", percent(id.Column), id.Floor)),
				column, slotOfID(column), slotOfHash(n.hash)),
			fmt.Sprintf("Leave the column to its default in an INSERT, or give it a number below %d. If rows change their key, or ids come from elsewhere, declare the table with ids => 'counted'.", id.Floor))
	}
	return b.String()
}

func (n numbered) raise(b *strings.Builder, column, message, detail, hint string) {
	fmt.Fprintf(b, "\t\tRAISE EXCEPTION USING ERRCODE = '%s', MESSAGE = %s,\n\t\t\tDETAIL = %s,\n\t\t\tHINT = %s, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, COLUMN = %s;\n\tEND IF;\n",
		pgerr.WrongNumber, sqltext.QuoteLiteral(message), detail, sqltext.QuoteLiteral(hint), sqltext.QuoteLiteral(column))
}

// source is the body of the function that exchanges tickets.
func (n numbered) source(belongs condition) (string, error) {
	var b strings.Builder
	b.WriteString("DECLARE\n\tnumber bigint;\n\tbase bigint;\n\tsequence pg_catalog.regclass;\n\tbelongs boolean;\n\tpinned boolean;\n\tnoted pg_catalog.text;\nBEGIN\n")
	for _, c := range n.table.MadeKeys() {
		if err := n.makeKey(&b, c, belongs); err != nil {
			return "", err
		}
	}
	for _, id := range n.table.IDs() {
		n.makeID(&b, id.Column)
	}
	b.WriteString("\tRETURN NEW;\nEND")
	return b.String(), nil
}

// makeKey looks for a number with which the row belongs on the shard. A row whose key has a null belongs nowhere, which the guard tells.
func (n numbered) makeKey(b *strings.Builder, c string, belongs condition) error {
	column, columns := newColumns("NEW", []string{c})[0], newColumns("NEW", n.table.KeyColumns())
	look := ""
	if n.owned.here+n.owned.away > 0 {
		var err error
		if look, err = n.owned.pinLook(columns); err != nil {
			return err
		}
	}
	fmt.Fprintf(b, "\tIF %s OPERATOR(pg_catalog.<) 0 THEN\n\t\tsequence := cleave.number_sequence(TG_RELID, %s);\n\t\tbase := cleave.key_ticket_base(sequence, %s);\n\t\tIF base IS NOT NULL THEN\n",
		column, sqltext.QuoteLiteral(c), column)
	fmt.Fprintf(b, "\t\t\tnumber := %s OPERATOR(pg_catalog.-) base;\n\t\t\tFOR try IN 1 .. %d LOOP\n\t\t\t\t%s := number;\n\t\t\t\tbelongs := %s;\n%s\t\t\t\tEXIT WHEN belongs OR NOT ((%s) IS NOT NULL);\n\t\t\t\tnumber := pg_catalog.nextval(sequence) OPERATOR(pg_catalog.-) base;\n\t\t\tEND LOOP;\n",
		column, mostKeyTries, column, belongs.sql, look, list(columns))
	fmt.Fprintf(b, "\t\t\tIF NOT belongs AND (%s) IS NOT NULL THEN\n\t\t\t\tRAISE EXCEPTION USING ERRCODE = '%s', MESSAGE = %s,\n\t\t\t\t\tDETAIL = %s,\n\t\t\t\t\tHINT = 'Try again, or give the key yourself.', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, COLUMN = %s;\n\t\t\tEND IF;\n",
		list(columns), pgerr.NotOwned, sqltext.QuoteLiteral(fmt.Sprintf("no number was found for column %q of table %s with which the row belongs on shard %q", c, n.table.Name(), n.shard.Name())),
		sqltext.QuoteLiteral(fmt.Sprintf("%d numbers were tried: the shard owns nothing of keyspace %q, or very little.", mostKeyTries, n.owned.keyspace.Name())), sqltext.QuoteLiteral(c))
	fmt.Fprintf(b, "\t\t\t%s\n\t\tEND IF;\n\tEND IF;\n", n.note(c))
	return nil
}

// makeID exchanges a ticket of the shard's lane.
func (n numbered) makeID(b *strings.Builder, c string) {
	column := newColumns("NEW", []string{c})[0]
	first, last := lane(n.shard)
	counted := fmt.Sprintf("%s OPERATOR(pg_catalog.-) '%d'::bigint", column, bigTickets)
	fmt.Fprintf(b, "\tIF %[1]s OPERATOR(pg_catalog.>=) '%[2]d'::bigint AND %[1]s OPERATOR(pg_catalog.<=) '%[3]d'::bigint THEN\n", column, first+bigTickets, last+bigTickets)
	if generatorOf(n.shard) == 0 {
		fmt.Fprintf(b, "\t\tnumber := %s;\n", counted)
	} else { // a row without a key gets an error from the guard, and not from here
		fmt.Fprintf(b, "\t\tnumber := CASE WHEN (%s) IS NOT NULL THEN cleave.next_id(%s) ELSE %s END;\n", list(newColumns("NEW", n.table.KeyColumns())), n.hash, counted)
	}
	fmt.Fprintf(b, "\t\t%s := number;\n\t\t%s\n\tEND IF;\n", column, n.note(c))
}

// note notes the number for whoever asks for currval. Names may have anything in them, so they are noted in hexadecimal. Nearly always there
// is nothing yet, or only the number of the row before, and no function is called.
func (n numbered) note(column string) string {
	head := fmt.Sprintf("'%x %x '", n.table.Name().String(), column)
	return fmt.Sprintf(`noted := pg_catalog.current_setting('cleave.numbers_made', true);
		noted := pg_catalog.set_config('cleave.numbers_made', CASE WHEN noted IS NULL OR noted OPERATOR(pg_catalog.=) ''
			OR pg_catalog.starts_with(noted, %[1]s) AND pg_catalog.strpos(noted, E'\n') OPERATOR(pg_catalog.=) 0
			THEN %[1]s OPERATOR(pg_catalog.||) number ELSE cleave.note_number(noted, %[1]s, number) END, true);`, head)
}

// functionPrefix of the functions that exchange tickets, one for each table that has such columns.
const numberFunctionPrefix = "number_"

// addTo puts the triggers of numbers to a guard. The function runs as its owner: who inserts a row needs no right to read an identity
// column's sequence, or to make ids by themselves.
func (n numbered) addTo(d *guardDraft, belongs condition) error {
	source, err := n.source(belongs)
	if err != nil {
		return err
	}
	name := functionName(numberFunctionPrefix, n.table.Name())
	d.addFunction(name, "SECURITY DEFINER", source)
	d.triggers = append(d.triggers,
		triggerDraft{name: numberGuard, events: "BEFORE INSERT", when: "FOR EACH ROW WHEN (" + n.anyNegative() + ")", function: name},
		triggerDraft{name: tellGuard, events: "AFTER INSERT", when: "FOR EACH STATEMENT", function: "tell_numbers"})
	d.generator = generatorOf(n.shard)
	return nil
}

// tickets says what the numbers of a column's sequence are shifted by.
func tickets(t *topology.Table, column string, small bool) int64 {
	for _, id := range t.IDs() {
		if id.Column == column {
			return bigTickets
		}
	}
	for _, c := range t.MadeKeys() {
		switch {
		case c != column:
		case small:
			return smallTickets
		default:
			return bigTickets
		}
	}
	return 0
}
