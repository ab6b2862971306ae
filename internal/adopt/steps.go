package adopt

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/sqltext"
)

// Step is a part of mending that leaves the database in order, whatever comes after it.
type Step struct {
	// ID is the same each time the step is found to be needed.
	ID    string `json:"id"`
	Table string `json:"table"`
	// Title says what it does, in the imperative.
	Title string `json:"title"`
	// Online are statements that others hardly notice, however long they take. They come first, each by itself.
	Online []string `json:"online,omitempty"`
	// Brief are statements that need the table for a moment: they are run in one transaction, which gives up if it has to wait.
	Brief []string `json:"brief,omitempty"`

	phase phase
	depth int // of the table's key: who takes it from another comes later
}

// phase is the order of steps: a column comes before what is made of it, a new foreign key before the primary key that the old one needs goes.
type phase int

const (
	addsColumn phase = iota
	addsTrigger
	fills
	validatesNotNull
	setsNotNull
	makesIndex
	addsForeignKey
	validatesForeignKey
	swapsForeignKey
	swapsUnique
	makesPrimaryKey
	last
)

// newStep is one about a table.
func newStep(t *Table, at phase, object, title string) Step {
	return Step{ID: fmt.Sprintf("%d %s %s", at, t, object), Table: t.String(), Title: title, phase: at}
}

// SQL is the step as a script for psql.
func (s Step) SQL() string {
	var b strings.Builder
	fmt.Fprintf(&b, "-- %s: %s\n", s.Table, s.Title)
	for _, statement := range s.Online {
		b.WriteString(statement + ";\n")
	}
	if len(s.Brief) > 0 {
		fmt.Fprintf(&b, "BEGIN;\nSET LOCAL lock_timeout = '%s';\n", lockPatience)
		for _, statement := range s.Brief {
			b.WriteString(statement + ";\n")
		}
		b.WriteString("COMMIT;\n")
	}
	return b.String()
}

// quote is a name as SQL takes it.
func quote(name string) string { return sqltext.QuoteIdentifier(name) }

// quoteAll are names with commas between them.
func quoteAll(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	return strings.Join(quoted, ", ")
}

// nameLimit is how many bytes PostgreSQL keeps of a name.
const nameLimit = 63

// replacement names what takes the place of a constraint or an index, until it has its name.
func replacement(name string) string { return cutName(name, "_cleave") }

// cutName puts an end to a name, of which the beginning is left out if there is no room; then a digest keeps it apart from others.
func cutName(name, suffix string) string {
	if len(name)+len(suffix) <= nameLimit {
		return name + suffix
	}
	sum := sha256.Sum256([]byte(name))
	digest := "_" + hex.EncodeToString(sum[:4])
	return strings.ToValidUTF8(name[:nameLimit-len(suffix)-len(digest)], "") + digest + suffix
}

// isReplacement says whether a foreign key was added to take another's place.
func isReplacement(t *Table, f ForeignKey) bool {
	return slices.ContainsFunc(t.ForeignKeys, func(other ForeignKey) bool { return f.Name == replacement(other.Name) })
}

// notNullCheck names the check that lets PostgreSQL know that a column is never null, without a long lock.
func notNullCheck(t *Table, column string) string {
	return cutName(t.Name+"_"+column, "_cleave_not_null")
}

// notNullSteps let PostgreSQL know that a column is never null, after fill has seen to it.
func notNullSteps(t *Table, column string, fill Step) []Step {
	check := notNullCheck(t, column)
	have := t.check(check)
	var steps []Step
	if have == nil {
		fill.Brief = []string{fmt.Sprintf("ALTER TABLE %s ADD CONSTRAINT %s CHECK (%s IS NOT NULL) NOT VALID", t, quote(check), quote(column))}
		steps = append(steps, fill)
	}
	if have == nil || !have.Valid {
		validate := newStep(t, validatesNotNull, column, "see that every row has its "+column)
		validate.Online = []string{fmt.Sprintf("ALTER TABLE %s VALIDATE CONSTRAINT %s", t, quote(check))}
		steps = append(steps, validate)
	}
	set := newStep(t, setsNotNull, column, fmt.Sprintf("make %s NOT NULL, which the check has proven", column))
	set.Brief = []string{
		fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s SET NOT NULL", t, quote(column)),
		fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT %s", t, quote(check)),
	}
	return append(steps, set)
}

// keySteps give a table the shard key of the rows that it refers to.
func (a *assessor) keySteps(t *Table, planned *TablePlan, parent *Table, parentPlan *TablePlan) []Step {
	var steps []Step
	if t.Column(planned.Key) == nil {
		add := newStep(t, addsColumn, planned.Key, fmt.Sprintf("add the column %s, empty", planned.Key))
		add.Brief = []string{fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s", t, quote(planned.Key), a.keyType(parent, parentPlan))}
		steps = append(steps, add)
	}
	if !slices.Contains(t.Triggers, fillTrigger) {
		trigger := newStep(t, addsTrigger, planned.Key, fmt.Sprintf("let a trigger fill in %s for applications that do not know it", planned.Key))
		trigger.Brief = triggerStatements(t, planned, parentPlan.Key)
		steps = append(steps, trigger)
	}
	steps = append(steps, notNullSteps(t, planned.Key, a.fillStep(t, planned))...)
	for i := range steps {
		steps[i].depth = a.depth(planned)
	}
	return steps
}

// keyType is the type that a new key column gets: that of the column that it is filled from, which may be yet to be made itself.
func (a *assessor) keyType(parent *Table, parentPlan *TablePlan) string {
	for range a.plan.Tables {
		if column := parent.Column(parentPlan.Key); column != nil {
			return column.Type
		}
		if parentPlan.KeyFrom == nil {
			break
		}
		name := mustName(parentPlan.KeyFrom.Table)
		parent, parentPlan = a.catalogue.Table(name), a.plan.table(name)
		if parent == nil || parentPlan == nil {
			break
		}
	}
	return a.plan.KeyType
}

// seeStep sees that a column is filled in already.
func seeStep(t *Table, column string) Step {
	see := newStep(t, fills, column, fmt.Sprintf("see that no row is without %s, and let none come", column))
	see.Online = []string{seeNoNull(t, column)}
	return see
}

// fillStep fills in the key where it is missing, and ends only when no row is without.
func (a *assessor) fillStep(t *Table, planned *TablePlan) Step {
	source := planned.KeyFrom
	parentKey := a.plan.table(mustName(source.Table)).Key
	return filling{
		column: planned.Key, value: "p." + quote(parentKey), from: fmt.Sprintf(" FROM %s p", source.Table), condition: source.joined("t", "p") + " AND ", without: "it refers to no row of " + source.Table,
	}.step(t)
}

func (f filling) step(t *Table) Step {
	fill := newStep(t, fills, f.column, fmt.Sprintf("fill in %s in batches, about %d rows", f.column, t.Rows))
	fill.Online = []string{f.block(t)}
	return fill
}

// uniqueSteps make an index that has the key as well, and put it in the constraint's place. The key comes last, so that what is looked up by the
// columns alone is found as fast as before.
func (a *assessor) uniqueSteps(t *Table, planned *TablePlan, u Unique) []Step {
	index := replacement(u.Name)
	steps := a.indexSteps(t, index, withKey(u, index, planned.Key), fmt.Sprintf("make a unique index like %s with %s, without keeping anybody from the table", u.Index, planned.Key))
	if a.isNeeded(t, u) {
		return steps // until the foreign keys that no step mends are gone
	}
	swap := newStep(t, swapsUnique, u.Name, "let that index take the place of "+u.Name)
	switch u.Kind {
	case "p", "u":
		swap.Brief = []string{fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT %s, ADD CONSTRAINT %[2]s %s USING INDEX %s%s",
			t, quote(u.Name), map[string]string{"p": "PRIMARY KEY", "u": "UNIQUE"}[u.Kind], quote(index), deferrable(u.Deferrable, u.Deferred))}
	default:
		swap.Brief = []string{
			fmt.Sprintf("DROP INDEX %s.%s", quote(t.Schema), quote(u.Index)),
			fmt.Sprintf("ALTER INDEX %s.%s RENAME TO %s", quote(t.Schema), quote(index), quote(u.Index)),
		}
	}
	return append(steps, swap)
}

// indexSteps make a unique index, unless it is there. What an interrupted attempt has left is not valid, and goes first.
func (a *assessor) indexSteps(t *Table, index, definition, title string) []Step {
	at := slices.IndexFunc(t.Uniques, func(u Unique) bool { return u.Index == index })
	if at >= 0 && t.Uniques[at].Valid {
		return nil
	}
	step := newStep(t, makesIndex, index, title)
	if at >= 0 {
		step.Online = append(step.Online, fmt.Sprintf("DROP INDEX CONCURRENTLY %s.%s", quote(t.Schema), quote(index)))
	}
	step.Online = append(step.Online, definition)
	return []Step{step}
}

// isNeeded says whether a foreign key that no step mends stands on a constraint.
func (a *assessor) isNeeded(t *Table, u Unique) bool {
	for _, other := range a.catalogue.Tables {
		planned := a.plan.table(other.ID())
		for _, f := range other.ForeignKeys {
			if f.Target() != t.ID() || !sameSet(f.TargetColumns, u.Columns) {
				continue
			}
			crossing := a.crossings[crossingID(other.ID(), f.Name)]
			if planned == nil || planned.ForeignKeys[f.Name] == Undecided || planned.ForeignKeys[f.Name] == WithKey && crossing.Differ > 0 {
				return true
			}
		}
	}
	return false
}

// withKey is the statement that makes an index like another with one more column, under another name.
func withKey(u Unique, index, key string) string {
	const create = "CREATE UNIQUE INDEX "
	_, rest, _ := strings.Cut(u.Definition[min(len(create)+len(u.Index), len(u.Definition)):], " ON ")
	_, columns, _ := strings.Cut(rest, " USING ")
	open := len(rest) - len(columns) + strings.Index(columns, "(")
	end := open + closing(rest[open:])
	return fmt.Sprintf("CREATE UNIQUE INDEX CONCURRENTLY %s ON %s, %s%s", quote(index), rest[:end], quote(key), rest[end:])
}

// closing is where the parenthesis that opens a text is closed, whatever is in quotes.
func closing(text string) int {
	depth, quoted := 0, byte(0)
	for i := range len(text) {
		switch c := text[i]; {
		case quoted != 0:
			if c == quoted {
				quoted = 0
			}
		case c == '\'' || c == '"':
			quoted = c
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return len(text)
}

// targetStep makes columns unique together with the key, for foreign keys to refer to.
func (a *assessor) targetStep(t *Table, planned *TablePlan, wanted []string) Step {
	index := cutName(strings.Join(append([]string{t.Name}, wanted...), "_"), "_key")
	definition := fmt.Sprintf("CREATE UNIQUE INDEX CONCURRENTLY %s ON %s (%s)", quote(index), t, quoteAll(wanted))
	title := fmt.Sprintf("make a unique index on %s with %s, for foreign keys to refer to", strings.Join(wanted[:len(wanted)-1], ", "), planned.Key)
	steps := a.indexSteps(t, index, definition, title)
	if len(steps) == 0 { // one of that name, over other columns
		return newStep(t, makesIndex, index, title)
	}
	return steps[0]
}

// foreignKeySteps add the key to a foreign key: a new one beside it, which is validated while others write, takes its place.
func (a *assessor) foreignKeySteps(t *Table, planned *TablePlan, f ForeignKey) []Step {
	name := replacement(f.Name)
	targetKey := a.plan.table(f.Target()).Key
	at := slices.IndexFunc(t.ForeignKeys, func(other ForeignKey) bool { return other.Name == name })
	var steps []Step
	if at < 0 {
		add := newStep(t, addsForeignKey, f.Name, fmt.Sprintf("add a foreign key like %s with %s, for new rows", f.Name, planned.Key))
		add.Brief = []string{fmt.Sprintf("ALTER TABLE %s ADD CONSTRAINT %s FOREIGN KEY (%s, %s) REFERENCES %s (%s, %s)%s NOT VALID",
			t, quote(name), quote(planned.Key), quoteAll(f.Columns), f.Target(), quote(targetKey), quoteAll(f.TargetColumns), f.actions())}
		steps = append(steps, add)
	}
	if at < 0 || !t.ForeignKeys[at].Valid {
		validate := newStep(t, validatesForeignKey, f.Name, "see that it holds for all rows")
		validate.Online = []string{fmt.Sprintf("ALTER TABLE %s VALIDATE CONSTRAINT %s", t, quote(name))}
		steps = append(steps, validate)
	}
	swap := newStep(t, swapsForeignKey, f.Name, "let it take the place of "+f.Name)
	swap.Brief = []string{
		fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT %s", t, quote(f.Name)),
		fmt.Sprintf("ALTER TABLE %s RENAME CONSTRAINT %s TO %s", t, quote(name), quote(f.Name)),
	}
	return append(steps, swap)
}

// actions are what the foreign key does when the row that it refers to changes. A row that is given another key takes along those that refer to it, as until now
// they went with it; and where references are set to null, the key is not.
func (f ForeignKey) actions() string {
	words := map[string]string{"r": "RESTRICT", "c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}
	text := " ON UPDATE CASCADE"
	if f.OnUpdate == "r" {
		text = " ON UPDATE RESTRICT"
	}
	if word, acts := words[f.OnDelete]; acts {
		text += " ON DELETE " + word
		if f.OnDelete == "n" || f.OnDelete == "d" {
			set := f.SetColumns
			if len(set) == 0 {
				set = f.Columns
			}
			text += " (" + quoteAll(set) + ")"
		}
	}
	return text + deferrable(f.Deferrable, f.Deferred)
}

func deferrable(is, initially bool) string {
	switch {
	case initially:
		return " DEFERRABLE INITIALLY DEFERRED"
	case is:
		return " DEFERRABLE"
	default:
		return ""
	}
}

func (a *assessor) dropForeignKey(t *Table, f ForeignKey) Step {
	step := newStep(t, swapsForeignKey, f.Name, fmt.Sprintf("drop the foreign key %s, as was decided", f.Name))
	step.Brief = []string{fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT %s", t, quote(f.Name))}
	return step
}

func (a *assessor) ownSequence(t *Table, column Column) Step {
	step := newStep(t, last, column.Name, "let the sequence belong to "+column.Name)
	step.Brief = []string{fmt.Sprintf("ALTER SEQUENCE %s OWNED BY %s.%s", column.Sequence, t, quote(column.Name))}
	return step
}

// markImmutable lets routers know that a function reads no tables. What a trigger does stays the same.
func markImmutable(t *Table, f Function) Step {
	return Step{
		ID: fmt.Sprintf("%d %s", last, f.Identity), Table: t.String(), Title: fmt.Sprintf("say that %s reads no tables", f.Identity), phase: last,
		Brief: []string{fmt.Sprintf("ALTER FUNCTION %s IMMUTABLE", f.Identity)},
	}
}
