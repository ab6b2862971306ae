package shard

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// The triggers of a guard. PostgreSQL fires triggers of one kind in the order of their names; nothing here depends on it.
const (
	insertGuard   = "cleave_guard"
	updateGuard   = "cleave_guard_update"
	deleteGuard   = "cleave_guard_delete"
	strangerGuard = "cleave_hello"
)

// IsGuard says whether a trigger of this name is a guard, which declared tables have.
func IsGuard(trigger string) bool { return trigger == insertGuard }

// mostInlineBounds is up to how many bounds an insert is checked in the trigger's condition. PostgreSQL reads a condition
// anew for every statement, which takes 0.3 microseconds for each bound, while calling a function takes one for each row.
const mostInlineBounds = 32

// guard is what stands on one table of a shard: SQL that says the same each time it is made of the same map.
type guard struct {
	table topology.TableName
	// sources are the bodies of the functions that were made for the table alone, by name; reference tables have none.
	sources map[string]string
	// making are the statements that make the functions, and setting those that set up the triggers.
	making, setting []string
	triggers        []string
	// generator is the number with which ids have to be made; 0: none are.
	generator int
	// digest identifies what cannot be changed without a lock on the table. The triggers have it as their argument, so that an outdated one can be told.
	digest string
	// watchful makes the guard as it is while rows move, which is as good and takes longer; nil if this is that one, or there is none.
	watchful func() (guard, error)
}

// guardDigestLength is how many characters of the digest are kept.
const guardDigestLength = 32

// guardDraft collects the parts of a guard. Triggers are made of the digest, so they come last.
type guardDraft struct {
	table     topology.TableName
	functions []string
	sources   map[string]string
	triggers  []triggerDraft
	generator int
	// lasting: the triggers stay when the functions change.
	lasting bool
}

// addFunction adds a function for a trigger, which nobody else may call.
func (d *guardDraft) addFunction(name, options, source string) {
	d.functions = append(d.functions,
		fmt.Sprintf("CREATE OR REPLACE FUNCTION cleave.%s() RETURNS trigger LANGUAGE plpgsql %s AS %s", name, options, sqltext.QuoteLiteral(source)),
		fmt.Sprintf("REVOKE ALL ON FUNCTION cleave.%s() FROM PUBLIC", name))
	if d.sources == nil {
		d.sources = map[string]string{}
	}
	d.sources[name] = source
}

type triggerDraft struct {
	name, when, function string // when is all between the name of the table and EXECUTE
	events               string
}

func (d guardDraft) finish() guard {
	sum := sha256.New()
	if !d.lasting {
		for _, sql := range d.functions {
			fmt.Fprintf(sum, "%s\n", sql)
		}
	}
	for _, t := range d.triggers {
		fmt.Fprintf(sum, "%s %s %s %s\n", t.name, t.events, t.when, t.function)
	}
	g := guard{
		table: d.table, sources: d.sources, making: d.functions, generator: d.generator,
		digest: hex.EncodeToString(sum.Sum(nil))[:guardDigestLength],
	}
	for _, t := range d.triggers {
		g.triggers = append(g.triggers, t.name)
		g.setting = append(g.setting, fmt.Sprintf("CREATE OR REPLACE TRIGGER %s %s ON %s %s EXECUTE FUNCTION cleave.%s('%s')",
			sqltext.QuoteIdentifier(t.name), t.events, d.table, t.when, t.function, g.digest))
	}
	return g
}

// strangers is the trigger that asks whether a router speaks, once for each statement.
func strangers() triggerDraft {
	return triggerDraft{
		name: strangerGuard, events: "BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE",
		when: "FOR EACH STATEMENT", function: "refuse_stranger",
	}
}

// referenceGuard lets nobody but routers write to a table that has several copies, and them only where they know of it.
func referenceGuard(table topology.TableName, shards int) guard {
	trigger := strangers()
	if shards > 1 {
		trigger.function = "refuse_reference_write"
	}
	return guardDraft{table: table, triggers: []triggerDraft{trigger}}.finish()
}

// guardFunctionPrefix begins the names of the functions that are made for guards, one for each sharded table.
const guardFunctionPrefix = "guard_"

// functionName is the same for a table however often its guard is made anew.
func functionName(prefix string, table topology.TableName) string { return prefix + tableDigest(table) }

func tableDigest(table topology.TableName) string { return nameDigest(table.String()) }

// nameDigest stands for a name of any length and of any characters in a name of ours.
func nameDigest(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:8])
}

// functionsFor is a pattern for the names of the functions that are made for guards, of which the table's digest matches this one.
func functionsFor(digest string) string {
	return "(" + guardFunctionPrefix + "|" + numberFunctionPrefix + ")" + digest
}

// anyDigest matches those of all tables.
const anyDigest = "[0-9a-f]{16}"

var (
	guardFunction = regexp.MustCompile(`^cleave\.(` + functionsFor(anyDigest) + `\(\)|` + ownsFunctionPrefix + anyDigest + `\(.*\))$`)
	ownedView     = regexp.MustCompile(`^cleave\.` + ownedViewPrefix + anyDigest + `$`)
)

// isMade says whether something in the schema was made for a guard, or for a move.
func isMade(o Object) bool {
	return o.Kind == "function" && guardFunction.MatchString(o.Name) || o.Kind == "view" && ownedView.MatchString(o.Name)
}

// shardedGuard refuses rows that the shard does not own, and makes numbers.
func shardedGuard(t *topology.Table, shard *topology.Shard, o ownership) (guard, error) {
	belongs, err := o.belongs(newColumns("NEW", t.KeyColumns()))
	if err != nil {
		return guard{}, err
	}
	n, err := newNumbered(t, shard, o)
	if err != nil {
		return guard{}, err
	}
	source, err := o.source(t, shard.Name(), belongs, n)
	if err != nil {
		return guard{}, err
	}
	name := functionName(guardFunctionPrefix, t.Name())
	d := guardDraft{table: t.Name(), triggers: []triggerDraft{
		{name: insertGuard, events: "AFTER INSERT", when: "FOR EACH ROW" + o.insertCondition(belongs, n), function: name},
		{name: updateGuard, events: "AFTER UPDATE", when: "FOR EACH ROW" + o.updateCondition(t), function: name},
		strangers(),
	}, lasting: o.watchful}
	if o.watchful {
		d.triggers = append(d.triggers, triggerDraft{name: deleteGuard, events: "AFTER DELETE", when: "FOR EACH ROW", function: name})
	}
	d.addFunction(name, o.options(), source)
	if len(n.columns()) > 0 {
		if err := n.addTo(&d, belongs); err != nil {
			return guard{}, err
		}
	}
	return d.finish(), nil
}

// insertCondition is when a row that is inserted needs a closer look; empty: always.
func (o ownership) insertCondition(belongs condition, n numbered) string {
	if o.watchful || o.away > 0 || belongs.bounds > mostInlineBounds {
		return ""
	}
	doubts := []string{"(" + belongs.sql + ") IS NOT TRUE", n.anyNegative(), n.anyTelling()}
	doubts = slices.DeleteFunc(doubts, func(doubt string) bool { return doubt == "" })
	return " WHEN (" + strings.Join(doubts, " OR ") + ")"
}

// updateCondition is when a row that is updated needs a closer look; empty: always.
func (o ownership) updateCondition(t *topology.Table) string {
	if o.watchful {
		return ""
	}
	columns := t.KeyColumns()
	for _, id := range t.IDs() {
		columns = append(columns, id.Column)
	}
	return fmt.Sprintf(" WHEN ((%s) IS DISTINCT FROM (%s))", list(newColumns("OLD", columns)), list(newColumns("NEW", columns)))
}

// newColumns names the columns of a row variable of a trigger.
func newColumns(row string, columns []string) []string {
	named := make([]string, len(columns))
	for i, c := range columns {
		named[i] = row + "." + sqltext.QuoteIdentifier(c)
	}
	return named
}

func list(expressions []string) string { return strings.Join(expressions, ", ") }

// options of the function. Who writes a row may not read the pins, so the function does it as its owner.
func (o ownership) options() string {
	if o.here+o.away > 0 {
		return "SECURITY DEFINER"
	}
	return ""
}

// source is the body of the function that decides about a row and refuses it. What it checks of a row that is the shard's comes last. Of a shard that takes
// part in a move it looks at rows as they were, too: the shard may have them and not own them.
func (o ownership) source(t *topology.Table, shard string, belongs condition, n numbered) (string, error) {
	columns := t.KeyColumns()
	var b strings.Builder
	b.WriteString("DECLARE\n\tbelongs boolean;\n\tpinned boolean;\nBEGIN\n")
	if o.watchful {
		b.WriteString("\tIF TG_OP OPERATOR(pg_catalog.<>) 'INSERT' THEN\n")
		old, err := o.belongs(newColumns("OLD", columns))
		if err != nil {
			return "", err
		}
		if err := o.decide(&b, t, shard, "OLD", old); err != nil {
			return "", err
		}
		b.WriteString("\t\tIF TG_OP OPERATOR(pg_catalog.=) 'DELETE' THEN\n\t\t\tRETURN NULL;\n\t\tEND IF;\n\tEND IF;\n")
	}
	if o.away == 0 && len(t.IDs()) > 0 { // every row with an id that was made comes here, and is right
		fmt.Fprintf(&b, "\tIF (%s) AND %s THEN\n\t\tRETURN NULL;\n\tEND IF;\n", belongs.sql, n.fit())
	}
	for _, c := range columns {
		fmt.Fprintf(&b, "\tIF NEW.%s IS NULL THEN\n\t\tRAISE EXCEPTION USING ERRCODE = '%s', MESSAGE = %s,\n\t\t\tDETAIL = 'The shard key says where a row lives, so no part of it can be null.', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, COLUMN = %s;\n\tEND IF;\n",
			sqltext.QuoteIdentifier(c), pgerr.NotNullViolation, sqltext.QuoteLiteral(fmt.Sprintf("null value in column %q of relation %q violates not-null constraint", c, t.Name().Name)), sqltext.QuoteLiteral(c))
	}
	if err := o.decide(&b, t, shard, "NEW", belongs); err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "%s\tRETURN NULL;\nEND", n.checks())
	return b.String(), nil
}

// decide refuses a row that the shard does not take.
func (o ownership) decide(b *strings.Builder, t *topology.Table, shard, row string, belongs condition) error {
	names, columns := t.KeyColumns(), newColumns(row, t.KeyColumns())
	fmt.Fprintf(b, "\tbelongs := %s;\n", belongs.sql)
	if o.here+o.away > 0 {
		look, err := o.pinLook(columns)
		if err != nil {
			return err
		}
		if o.watchful { // functions are replaced for everybody, but pins are rows, of which an older snapshot may have others
			fmt.Fprintf(b, "\tIF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.<>) 'read committed' AND pg_catalog.current_setting('cleave.router', true) OPERATOR(pg_catalog.=) %s THEN\n\t\tRAISE EXCEPTION USING ERRCODE = '%s', MESSAGE = %s,\n\t\t\tDETAIL = 'The transaction keeps a snapshot, which may not say where single keys belong by now.',\n\t\t\tHINT = 'Write through the router, or in a transaction that is READ COMMITTED.';\n\tEND IF;\n",
				sqltext.QuoteLiteral(ByHand), pgerr.SerializationFailure, sqltext.QuoteLiteral(fmt.Sprintf("rows of keyspace %q are moving", o.keyspace.Name())))
		}
		b.WriteString(look)
	}
	if o.watchful {
		fmt.Fprintf(b, "\tIF belongs IS NOT TRUE THEN\n%s\tEND IF;\n", o.lookAgain(columns))
	}
	fmt.Fprintf(b, "\tIF belongs IS NOT TRUE THEN\n\t\tRAISE EXCEPTION USING ERRCODE = '%s', MESSAGE = %s,\n\t\t\tDETAIL = pg_catalog.format(%s, %s),\n\t\t\tHINT = %s, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;\n\tEND IF;\n",
		pgerr.NotOwned, sqltext.QuoteLiteral(fmt.Sprintf("a row of table %s does not belong on shard %q", t.Name(), shard)),
		sqltext.QuoteLiteral(fmt.Sprintf("Key (%s)=(%s) is owned by another shard, going by keyspace %q.", percent(list(names)), list(slices.Repeat([]string{"%s"}, len(names))), o.keyspace.Name())),
		list(columns),
		sqltext.QuoteLiteral("Write through the router. If you do, something on this shard has changed the key, such as a trigger, or the owner has changed a moment ago: then try again."))
	return nil
}

// lookAgain asks once more before a row is refused while rows move: a transaction that had the table locked when the owner changed may still have this function as it was before. A server hears of
// what has changed when it locks a relation for the first time in a transaction, and reads a text of its own anew.
func (o ownership) lookAgain(columns []string) string {
	places := make([]string, len(columns))
	for i, t := range families(o.keyspace) {
		places[i] = fmt.Sprintf("$%d::%s", i+1, typeSQL(t))
	}
	return fmt.Sprintf("\t\tPERFORM FROM pg_catalog.pg_event_trigger LIMIT 0;\n\t\tBEGIN\n\t\t\tEXECUTE %s INTO belongs USING %s;\n\t\tEXCEPTION WHEN undefined_function THEN\n\t\t\tbelongs := false;\n\t\tEND;\n",
		sqltext.QuoteLiteral("SELECT cleave."+ownsName(o.keyspace.Name())+"("+list(places)+")"), list(familyCasts(o.keyspace, columns)))
}

// percent makes a text stand for itself in a format.
func percent(text string) string { return strings.ReplaceAll(text, "%", "%%") }

// pinLook lets a pin decide, if there is one. Keys are compared in the form in which they are sent, which does not depend on
// the session's settings.
func (o ownership) pinLook(columns []string) (string, error) {
	hash, err := hashSQL(o.keyspace, columns)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("\tSELECT p.here INTO pinned FROM cleave.guard_pins p\n\t\tWHERE p.keyspace OPERATOR(pg_catalog.=) %s AND p.hash OPERATOR(pg_catalog.=) %s AND p.key OPERATOR(pg_catalog.=) ARRAY[%s];\n\tIF FOUND THEN\n\t\tbelongs := pinned;\n\tEND IF;\n",
		sqltext.QuoteLiteral(o.keyspace.Name()), hash, list(o.sent(columns))), nil
}

// sent are the columns in the form in which PostgreSQL sends their values.
func (o ownership) sent(columns []string) []string {
	sent := make([]string, len(columns))
	for i, c := range familyCasts(o.keyspace, columns) {
		sent[i] = sentSQL(families(o.keyspace)[i], c)
	}
	return sent
}
