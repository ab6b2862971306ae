package adopt

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/shard"
)

// What lets rows of a table be moved to another shard later: moves ask for the same.

// isHindered says whether something of a kind would keep rows of the table from being moved.
func (t *Table) isHindered(code shard.HindranceCode) bool {
	return slices.ContainsFunc(t.Hindrances, func(h shard.Hindrance) bool { return h.Code == code })
}

// isDeclared says whether the cluster has the table already, as a sharded or a reference table.
func (t *Table) isDeclared() bool { return slices.ContainsFunc(t.Triggers, shard.IsGuard) }

// tellingRows are columns that something unique shows to tell rows apart, the fewest; nil if nothing does. What is checked only when a transaction ends
// does not count, since a primary key of the same columns would be more than that, nor what is computed, which replication does not carry.
func (t *Table) tellingRows() []string {
	var best []string
	for _, u := range t.Uniques {
		_, nulls := t.mayBeNull(u.Columns)
		if u.Valid && u.Plain && u.Kind != "x" && !u.Deferrable && !nulls && t.generatedAmong(u.Columns) == "" && len(u.Columns) > 0 && (best == nil || len(u.Columns) < len(best)) {
			best = u.Columns
		}
	}
	return slices.Clone(best)
}

// generatedAmong is the first of some columns that is computed from others, which replication does not carry; empty if none is.
func (t *Table) generatedAmong(columns []string) string {
	at := slices.IndexFunc(columns, func(name string) bool { c := t.Column(name); return c != nil && c.Generated })
	if at < 0 {
		return ""
	}
	return columns[at]
}

// assessMoves is about what would keep rows of the table from being moved: one such table would hold back all that share its keyspace.
func (a *assessor) assessMoves(t *Table, planned *TablePlan) {
	for _, h := range t.Hindrances {
		message := "its rows could not be moved to another shard: " + h.Message
		switch {
		case t.isDeclared():
			a.block(t.String(), string(h.Code), message, "Through a router: "+h.Hint+".")
		case h.Code != shard.NoPrimaryKey && h.Code != shard.DeferrablePrimaryKey:
			a.block(t.String(), string(h.Code), message, sentence(h.Hint))
		default:
			if hint := a.primaryKeyHint(t, planned); hint != "" {
				a.block(t.String(), string(h.Code), message, hint)
				continue
			}
			a.mend(t.String(), string(h.Code), message, a.primaryKeySteps(t, planned)...)
		}
	}
}

// sentence is a text with a capital and a full stop.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }

// primaryKeyHint says what a person has to decide about a primary key, or do; empty if steps can make it.
func (a *assessor) primaryKeyHint(t *Table, planned *TablePlan) string {
	name := strings.TrimPrefix(t.String(), "public.")
	old := t.primaryKey()
	missing := slices.ContainsFunc(planned.PrimaryKey, func(column string) bool { return t.Column(column) == nil && column != planned.Key })
	switch {
	case t.Partitioned:
		return fmt.Sprintf("Partitioned tables cannot be given one while they are in use. In a quiet hour: ALTER TABLE %s ADD PRIMARY KEY (…), with %s in it.", t, quote(planned.Key))
	case t.generatedAmong(planned.PrimaryKey) != "":
		return fmt.Sprintf("Name other columns: %s is generated, and replication does not carry that.", t.generatedAmong(planned.PrimaryKey))
	case old == nil && len(planned.PrimaryKey) == 0:
		return fmt.Sprintf("Say which columns tell its rows apart: --primary-key %[1]s.COLUMN, once for each. One that is not there, as in --primary-key %[1]s.row_id, is added and filled with UUIDs.", name)
	case old != nil && (len(planned.PrimaryKey) == 0 || !sameSet(withColumn(planned.PrimaryKey, planned.Key), withColumn(old.Columns, planned.Key))):
		return fmt.Sprintf("Have it made anew, so that it holds at the end of each statement, and not only of a transaction: --primary-key %[1]s.%[2]s.", name, strings.Join(old.Columns, " --primary-key "+name+"."))
	case missing && len(planned.PrimaryKey) > 1:
		return fmt.Sprintf("It does not have all of the columns %s. One that is to be added tells rows apart by itself.", strings.Join(planned.PrimaryKey, ", "))
	default:
		return ""
	}
}

// primaryKeySteps give a table a primary key of columns that tell its rows apart, and the shard key.
func (a *assessor) primaryKeySteps(t *Table, planned *TablePlan) []Step {
	var steps []Step
	for _, name := range planned.PrimaryKey {
		switch column := t.Column(name); {
		case name == planned.Key || column != nil && column.NotNull:
		case column != nil && column.Default != uuidDefault:
			steps = append(steps, notNullSteps(t, name, seeStep(t, name))...)
		default:
			steps = append(steps, uuidSteps(t, name)...)
		}
	}
	index, made := a.primaryIndex(t, planned)
	steps = append(steps, made...)
	primary := newStep(t, makesPrimaryKey, index, fmt.Sprintf("let the index %s be the primary key", index))
	name, drop := index, ""
	if index == ownPrimaryIndex(t) {
		name = primaryKeyName(t)
	}
	if old := t.primaryKey(); old != nil {
		drop = fmt.Sprintf("DROP CONSTRAINT %s, ", quote(old.Name))
	}
	primary.Brief = []string{fmt.Sprintf("ALTER TABLE %s %sADD CONSTRAINT %s PRIMARY KEY USING INDEX %s", t, drop, quote(name), quote(index))}
	return append(steps, primary)
}

// uuidDefault is what a column that was added takes its values from, as PostgreSQL prints it.
const uuidDefault = "gen_random_uuid()"

// uuidSteps add a column that tells rows apart. Nobody needs a right for its values, as for those of a sequence.
func uuidSteps(t *Table, column string) []Step {
	var steps []Step
	if t.Column(column) == nil {
		add := newStep(t, addsColumn, column, fmt.Sprintf("add the column %s, which tells rows apart, empty but for new ones", column))
		add.Brief = []string{
			fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s uuid", t, quote(column)),
			fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s SET DEFAULT %s", t, quote(column), uuidDefault),
		}
		steps = append(steps, add)
	}
	return append(steps, notNullSteps(t, column, filling{column: column, value: uuidDefault, without: "it has to be given one, or to go"}.step(t))...)
}

// primaryKeyName is that of the table's primary key, or what PostgreSQL would call one.
func primaryKeyName(t *Table) string {
	if old := t.primaryKey(); old != nil {
		return old.Name
	}
	return cutName(t.Name, "_pkey")
}

// ownPrimaryIndex names the index that is made for a primary key where there is none that could become it.
func ownPrimaryIndex(t *Table) string { return replacement(primaryKeyName(t)) }

// primaryIndex names the index that becomes the primary key: one of the table's own that no constraint needs and that is as PostgreSQL would make it, as it is or as steps leave it, or one that is made, with the steps for that.
func (a *assessor) primaryIndex(t *Table, planned *TablePlan) (index string, steps []Step) {
	columns := planned.PrimaryKey
	if old := t.primaryKey(); old == nil || planned.Unique[old.Name] != PerShard {
		columns = withColumn(columns, planned.Key)
	}
	for _, u := range t.Uniques {
		withKey := planned.Unique[u.Name] == WithKey && !slices.Contains(u.Columns, planned.Key) && !a.isNeeded(t, u)
		will := slices.Clone(u.Columns)
		if withKey {
			will = append(will, planned.Key)
		}
		if u.Valid && u.Plain && u.Usual && u.Kind == "" && sameSet(will, columns) && !isReplacementIndex(t, u) {
			return u.Index, nil
		}
	}
	index = ownPrimaryIndex(t)
	definition := fmt.Sprintf("CREATE UNIQUE INDEX CONCURRENTLY %s ON %s (%s)", quote(index), t, quoteAll(columns))
	return index, a.indexSteps(t, index, definition, fmt.Sprintf("make a unique index on %s for a primary key, without keeping anybody from the table", strings.Join(columns, ", ")))
}

// withColumn are columns and one more, if it is not among them.
func withColumn(columns []string, one string) []string {
	if slices.Contains(columns, one) {
		return columns
	}
	return append(slices.Clone(columns), one)
}

// isReplacementIndex says whether an index was made to take another's place.
func isReplacementIndex(t *Table, u Unique) bool {
	return slices.ContainsFunc(t.Uniques, func(other Unique) bool { return u.Index == replacement(other.Name) })
}
