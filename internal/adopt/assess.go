package adopt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// Obstacle is something that stands in the way of a table's becoming what it is to be.
type Obstacle struct {
	Table string `json:"table"`
	// Code is short and stable, for programs.
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	// Steps mend it, while the application goes on. None: a person has to decide, or to do something that cannot be done meanwhile.
	Steps []Step `json:"steps,omitempty"`
}

// Assessment is a plan held against the database.
type Assessment struct {
	Obstacles []Obstacle
	// Steps are those of all obstacles, in the order in which they are run.
	Steps []Step
	// Warnings are what a person should know.
	Warnings []api.Finding
}

// Of returns the obstacles of a table.
func (a *Assessment) Of(table string) []Obstacle {
	var found []Obstacle
	for _, o := range a.Obstacles {
		if o.Table == table {
			found = append(found, o)
		}
	}
	return found
}

// Undecided returns the obstacles that no step mends.
func (a *Assessment) Undecided() []Obstacle {
	return slices.DeleteFunc(slices.Clone(a.Obstacles), func(o Obstacle) bool { return len(o.Steps) > 0 })
}

// assessor holds one plan against one catalogue.
type assessor struct {
	catalogue *Catalogue
	plan      *Plan
	crossings map[string]Crossing
	found     Assessment
}

// Assess says what stands in the way of a plan, and how to mend it. Crossings are what looking at rows has found, by [ForeignKey] of a table; nil if nobody has looked.
func Assess(c *Catalogue, p *Plan, crossings map[string]Crossing) *Assessment {
	p = p.clone()
	p.handleConstraints(c)
	a := &assessor{catalogue: c, plan: p, crossings: crossings}
	for i := range p.Tables {
		planned := &p.Tables[i]
		t := c.Table(planned.Name())
		if t == nil {
			if planned.Kind != topology.Single {
				a.block(planned.Table, "missing", "the table is not there any more", "Take it out of the plan.")
			}
			continue
		}
		a.assess(t, planned)
	}
	a.warn()
	a.collectSteps()
	return &a.found
}

// collectSteps puts the steps of all obstacles in order. One that mends several is run once.
func (a *assessor) collectSteps() {
	seen := map[string]bool{}
	for _, o := range a.found.Obstacles {
		for _, step := range o.Steps {
			if !seen[step.ID] {
				a.found.Steps = append(a.found.Steps, step)
			}
			seen[step.ID] = true
		}
	}
	slices.SortStableFunc(a.found.Steps, func(x, y Step) int {
		return cmp.Or(cmp.Compare(x.phase, y.phase), cmp.Compare(x.depth, y.depth))
	})
}

// block notes an obstacle that no step mends, mend one that steps do.
func (a *assessor) block(table, code, message, hint string) {
	a.found.Obstacles = append(a.found.Obstacles, Obstacle{Table: table, Code: code, Message: message, Hint: hint})
}

func (a *assessor) mend(table, code, message string, steps ...Step) {
	a.found.Obstacles = append(a.found.Obstacles, Obstacle{Table: table, Code: code, Message: message, Steps: steps})
}

func (a *assessor) assess(t *Table, planned *TablePlan) {
	for _, f := range t.ForeignKeys {
		a.assessForeignKey(t, planned, f)
	}
	switch planned.Kind {
	case topology.Sharded:
		a.assessKey(t, planned)
		a.assessUniques(t, planned)
		a.assessMoves(t, planned)
		a.assessTargets(t, planned)
		a.assessWidths(t)
	case topology.Reference:
		if t.Partitioned {
			a.block(t.String(), "partitioned", "a partitioned table cannot be a reference table", "Make an ordinary table of it, or leave it single and drop the foreign keys to it.")
		}
	default:
		return
	}
	a.assessSequences(t, planned)
	a.assessFunctions(t, planned)
}

// assessKey is about the shard key's column: that it is there, that no row lacks it, and that PostgreSQL knows that none will.
func (a *assessor) assessKey(t *Table, planned *TablePlan) {
	column := t.Column(planned.Key)
	switch {
	case column == nil && planned.KeyFrom == nil:
		a.block(t.String(), "no_key", fmt.Sprintf("it has no column %s to shard it by, and the plan does not say where to take it from", planned.Key), "Name another column as its key, or give key_from.")
		return
	case column != nil && column.family() != a.plan.KeyType:
		a.block(t.String(), "key_type", fmt.Sprintf("its column %s is of type %s, and the key is a %s", planned.Key, column.Type, a.plan.KeyType), "Name another column as its key.")
		return
	case column != nil && column.NotNull:
		return
	}
	if planned.KeyFrom == nil {
		a.mend(t.String(), "key_null", fmt.Sprintf("its key %s may be null, and such a row would belong nowhere", planned.Key), notNullSteps(t, planned.Key, seeStep(t, planned.Key))...)
		return
	}
	parent := a.catalogue.Table(mustName(planned.KeyFrom.Table))
	parentPlan := a.plan.table(mustName(planned.KeyFrom.Table))
	if parent == nil || parentPlan == nil || parentPlan.Kind != topology.Sharded {
		a.block(t.String(), "no_key", fmt.Sprintf("its key is to come from %s, which is not sharded", planned.KeyFrom.Table), "Shard that table too, or name another column as the key.")
		return
	}
	message := fmt.Sprintf("it has no column %s: rows get it from the row of %s that they refer to", planned.Key, parent.Name)
	if column != nil {
		message = fmt.Sprintf("not every row is sure to have its key %s yet: rows get it from the row of %s that they refer to", planned.Key, parent.Name)
	}
	a.mend(t.String(), "no_key", message, a.keySteps(t, planned, parent, parentPlan)...)
}

// depth is how many tables a table's key is taken through.
func (a *assessor) depth(planned *TablePlan) int {
	depth := 0
	for planned != nil && planned.KeyFrom != nil && depth < len(a.plan.Tables) {
		depth++
		planned = a.plan.table(mustName(planned.KeyFrom.Table))
	}
	return depth
}

// assessUniques is about constraints that do not contain the key.
func (a *assessor) assessUniques(t *Table, planned *TablePlan) {
	for _, u := range t.Uniques {
		if !u.Valid || slices.Contains(u.Columns, planned.Key) || u.Kind == "p" && u.Deferrable { // which is made anew as a whole
			continue
		}
		switch handling := planned.Unique[u.Name]; {
		case handling == PerShard:
			a.found.Warnings = append(a.found.Warnings, api.Finding{
				Severity: api.Warning, Code: "unique_per_shard",
				Message: fmt.Sprintf("%s %s of %s does not contain the shard key, so each shard will hold it for its own rows alone: while all rows are on this one, nothing changes", uniqueWord(u), u.Name, t),
				Hint:    a.perShardHint(planned),
			})
		case t.Partitioned || u.Kind == "x":
			a.block(t.String(), "unique", fmt.Sprintf("its %s %s does not contain the shard key, and cannot be made anew while the table is in use", uniqueWord(u), u.Name),
				fmt.Sprintf("Add %s to it in a quiet hour, or write %q for it in the plan.", planned.Key, PerShard))
		default:
			a.mend(t.String(), "unique", fmt.Sprintf("its %s %s does not contain the shard key", uniqueWord(u), u.Name), a.uniqueSteps(t, planned, u)...)
		}
	}
}

// perShardHint says what else could become of a constraint. In the root every row has a key of its own, with which anything is unique.
func (a *assessor) perShardHint(planned *TablePlan) string {
	if planned.Table == a.plan.Root {
		return "Once rows are on several shards, the application has to see to it itself."
	}
	return fmt.Sprintf("If it need only hold for one %s, write %q for it in the plan.", planned.Key, WithKey)
}

// uniqueWord is what a person calls it.
func uniqueWord(u Unique) string {
	switch u.Kind {
	case "p":
		return "primary key"
	case "u":
		return "unique constraint"
	case "x":
		return "exclusion constraint"
	default:
		return "unique index"
	}
}

// assessForeignKey is about one foreign key of the table.
func (a *assessor) assessForeignKey(t *Table, planned *TablePlan, f ForeignKey) {
	if isReplacement(t, f) {
		return
	}
	judged := a.plan.judge(a.catalogue, t, f)
	handling := planned.ForeignKeys[f.Name]
	if judged.fits && handling != Drop {
		return
	}
	crossing := a.crossings[crossingID(t.ID(), f.Name)]
	message := fmt.Sprintf("its foreign key %s cannot stay as it is: %s", f.Name, judged.why)
	if judged.fits {
		message = fmt.Sprintf("its foreign key %s is to go", f.Name)
	}
	switch {
	case handling == Drop:
		a.mend(t.String(), "foreign_key", message, a.dropForeignKey(t, f))
	case handling == WithKey && judged.handling == WithKey && crossing.Differ > 0:
		a.block(t.String(), "foreign_key_crosses",
			fmt.Sprintf("its foreign key %s crosses from one key to another: of %d rows that were looked at, %d have another %s than the row of %s that they refer to", f.Name, crossing.Rows, crossing.Differ, planned.Key, f.TargetTable),
			fmt.Sprintf("Give those rows the same key, choose another root with --key, or give the foreign key up: --drop-foreign-key %s.%s", t.Name, f.Name))
	case handling == WithKey && judged.handling == WithKey:
		a.mend(t.String(), "foreign_key", message, a.foreignKeySteps(t, planned, f)...)
	default:
		a.block(t.String(), "foreign_key", message, a.foreignKeyHint(t, f))
	}
}

// foreignKeyHint says what a person may do about a foreign key that no step mends.
func (a *assessor) foreignKeyHint(t *Table, f ForeignKey) string {
	drop := fmt.Sprintf("--drop-foreign-key %s.%s", t.Name, f.Name)
	target := a.plan.kind(f.Target())
	switch {
	case target == topology.Single:
		return fmt.Sprintf("Make %s a reference table in the plan, if every shard may have a copy of it, or give the foreign key up: %s", f.Target(), drop)
	case a.plan.kind(t.ID()) != topology.Sharded:
		return fmt.Sprintf("Shard %s too, by a column that leads to the key (--key %s.COLUMN), or give the foreign key up: %s", t.Name, t.Name, drop)
	default:
		return "Give the foreign key up, which PostgreSQL then no longer checks: " + drop
	}
}

// assessTargets sees that what foreign keys will refer to is unique with the key.
func (a *assessor) assessTargets(t *Table, planned *TablePlan) {
	for _, columns := range a.targets(t, planned) {
		wanted := append(slices.Clone(columns), planned.Key)
		if t.uniqueOver(wanted) != nil || a.replacedByUnique(t, planned, columns) {
			continue
		}
		a.mend(t.String(), "not_unique", fmt.Sprintf("foreign keys are to refer to its %s with the key, which are not known to be unique together", strings.Join(columns, ", ")), a.targetStep(t, planned, wanted))
	}
}

// targets are the columns that foreign keys of others refer to, and will refer to together with the key.
func (a *assessor) targets(t *Table, planned *TablePlan) [][]string {
	var found [][]string
	for _, other := range a.catalogue.Tables {
		otherPlan := a.plan.table(other.ID())
		for _, f := range other.ForeignKeys {
			if f.Target() != t.ID() || otherPlan == nil || otherPlan.ForeignKeys[f.Name] != WithKey || slices.Contains(f.TargetColumns, planned.Key) {
				continue
			}
			if !slices.ContainsFunc(found, func(have []string) bool { return sameSet(have, f.TargetColumns) }) {
				found = append(found, f.TargetColumns)
			}
		}
	}
	return found
}

// replacedByUnique says whether a constraint over the columns gets the key anyway.
func (a *assessor) replacedByUnique(t *Table, planned *TablePlan, columns []string) bool {
	return slices.ContainsFunc(t.Uniques, func(u Unique) bool {
		return u.Valid && u.Plain && !u.Deferrable && sameSet(u.Columns, columns) && planned.Unique[u.Name] == WithKey
	})
}

// assessWidths is about columns too narrow for the numbers that rows of sharded tables get.
func (a *assessor) assessWidths(t *Table) {
	for _, f := range a.catalogue.references(t) {
		target := a.catalogue.Table(f.Target())
		if target == nil || a.plan.kind(target.ID()) != topology.Sharded {
			continue
		}
		for i, name := range f.Columns {
			column, referred := t.Column(name), target.Column(f.TargetColumns[i])
			if column == nil || referred == nil || referred.Sequence == "" || referred.TypeOID != bigintOID || column.TypeOID == bigintOID || column.family() != "bigint" {
				continue
			}
			a.block(t.String(), "too_narrow", fmt.Sprintf("its column %s is of type %s, and refers to %s.%s, a bigint whose numbers will be larger than that", name, column.Type, target.Name, referred.Name),
				fmt.Sprintf("It has to be a bigint. ALTER TABLE %s ALTER COLUMN %s TYPE bigint rewrites the table and keeps everybody from it meanwhile.", t, sqltext.QuoteIdentifier(name)))
		}
	}
}

// assessSequences is about columns whose numbers could come twice.
func (a *assessor) assessSequences(t *Table, planned *TablePlan) {
	for _, column := range t.Columns {
		if column.Sequence == "" {
			continue
		}
		if column.TypeOID == smallintOID && planned.Kind == topology.Sharded {
			a.block(t.String(), "small_serial", fmt.Sprintf("its column %s takes numbers of type smallint from a sequence, too few to be divided among shards", column.Name),
				fmt.Sprintf("Make it larger, in a quiet hour: ALTER TABLE %s ALTER COLUMN %s TYPE bigint; ALTER SEQUENCE %s AS bigint", t, sqltext.QuoteIdentifier(column.Name), column.Sequence))
		}
		if !column.SequenceOwned {
			a.mend(t.String(), "sequence", fmt.Sprintf("the sequence %s that its column %s reads does not belong to it", column.Sequence, column.Name), a.ownSequence(t, column))
		}
	}
}

// assessFunctions is about what runs when rows are written, of which nobody knows what it reads.
func (a *assessor) assessFunctions(t *Table, planned *TablePlan) {
	for _, f := range t.Functions {
		message := fmt.Sprintf("writing to it runs %s, which might read other tables, so routers would refuse to write", f.Identity)
		if !f.isHarmless() || planned.Kind == topology.Reference {
			a.block(t.String(), "function", message, a.functionHint(f, planned))
			continue
		}
		a.mend(t.String(), "function", message+"; as far as can be seen it reads none", markImmutable(t, f))
	}
}

func (a *assessor) functionHint(f Function, planned *TablePlan) string {
	if planned.Kind == topology.Reference {
		return fmt.Sprintf("If it reads no tables, and does the same on every shard (so it does not take the time): ALTER FUNCTION %s IMMUTABLE. Otherwise drop the trigger, or leave the table single.", f.Identity)
	}
	return fmt.Sprintf("If it reads no tables: ALTER FUNCTION %[1]s IMMUTABLE. If it uses rows of the same %[2]s alone: ALTER FUNCTION %[1]s SET cleave.shard_local = on. Otherwise drop it, or what uses it.", f.Identity, planned.Key)
}

// warn is about what is no table's.
func (a *assessor) warn() {
	c := a.catalogue
	add := func(code, message, hint string) {
		a.found.Warnings = append(a.found.Warnings, api.Finding{Severity: api.Warning, Code: code, Message: message, Hint: hint})
	}
	if c.LargeObjects > 0 {
		add("large_objects", fmt.Sprintf("the database has %s, which stay on this shard, and are refused once there are several", counted(c.LargeObjects, "large object")), "Keep such content in bytea columns, or outside.")
	}
	if c.ForeignTables > 0 {
		add("foreign_tables", fmt.Sprintf("the database has %s, which cannot be declared", counted(c.ForeignTables, "foreign table")), "They stay on this shard.")
	}
	if c.MaterialisedViews > 0 {
		add("materialised_views", fmt.Sprintf("the database has %s: over tables that become sharded they can be read, and have to be made anew to be refreshed", counted(c.MaterialisedViews, "materialised view")), "Drop and create them through a router, after the tables are declared.")
	}
	if len(c.Subscriptions) > 0 {
		add("subscriptions", "subscription "+strings.Join(c.Subscriptions, ", ")+" writes into the database from elsewhere, past the routers", "What it writes to declared tables is refused; end it first.")
	}
	if tied := a.tied(); len(tied) > 0 {
		add("tied", "of the tables that stay on this shard some could not be moved to another one as they are: "+someOf(tied), "Nothing has to be done while they stay.")
	}
	if numbered := a.numbered(); len(numbered) > 0 && a.plan.IDs == keyedIDs {
		add("ids", fmt.Sprintf("new rows of %s get ids of 18 digits, which say where the row is", someOf(numbered)),
			"Programs that keep ids in 32 bits, or as numbers of JavaScript, cannot hold them: --ids counted gives smaller ones, by which alone a row's shard is not known.")
	}
}

// numbered are the sharded tables with bigint columns of numbers that are not the key.
func (a *assessor) numbered() []string {
	var found []string
	for _, planned := range a.plan.Sharded() {
		t := a.catalogue.Table(planned.Name())
		if t != nil && slices.ContainsFunc(t.Columns, func(c Column) bool { return c.Sequence != "" && c.TypeOID == bigintOID && c.Name != planned.Key }) {
			found = append(found, t.Name)
		}
	}
	return found
}

// tied are the tables that stay as they are and could not be moved as a whole either, each with its first reason.
func (a *assessor) tied() (names []string) {
	for _, t := range a.catalogue.Tables {
		if len(t.Hindrances) > 0 && a.plan.kind(t.ID()) == topology.Single {
			names = append(names, fmt.Sprintf("%s (%s)", t.Name, strings.ReplaceAll(string(t.Hindrances[0].Code), "_", " ")))
		}
	}
	return names
}

// someOf names the first few.
func someOf(names []string) string {
	const few = 4
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
