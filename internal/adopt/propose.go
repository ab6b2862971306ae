package adopt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/topology"
)

// KeyChoice says that a table is sharded by a column of its own.
type KeyChoice struct {
	Table  topology.TableName
	Column string
}

// Options say what a person has decided beforehand.
type Options struct {
	// Keys are tables with the columns to shard them by. One that is the table's own primary key makes it the root. Default: the root is looked for.
	Keys []KeyChoice
	// Shard is the name that the database gets. Default: "shard1".
	Shard string
	// Keyspace is the name of the keyspace. Default: that of the root table.
	Keyspace string
	// IDs is what serial columns get that are not the key. Default: keyed.
	IDs string
}

// A table that has no part in the keyspace is copied to every shard if it is no larger than this; a larger one is for a person to decide.
const (
	mostReferenceRows  = 1_000_000
	mostReferenceBytes = 1 << 30
)

// placed is how a table gets its key.
type placed struct {
	key    string
	from   *Source
	cost   float64
	reason string
}

// proposer makes one proposal.
type proposer struct {
	catalogue *Catalogue
	root      *Table // nil if only a column is the key
	rootKey   string
	family    string
	placed    map[topology.TableName]placed
	kinds     map[topology.TableName]topology.Kind
	reasons   map[topology.TableName]string
}

// Propose makes a plan: the tables that lead to the root by foreign keys are sharded by its key, small ones that those refer to become reference tables, and
// the rest stays as it is. It also returns which tables could be the root, the best first.
func Propose(c *Catalogue, o Options) (*Plan, []Candidate, error) {
	p := &proposer{catalogue: c, placed: map[topology.TableName]placed{}, kinds: map[topology.TableName]topology.Kind{}, reasons: map[topology.TableName]string{}}
	candidates := c.candidates()
	if err := p.chooseRoot(o.Keys, candidates); err != nil {
		return nil, candidates, err
	}
	p.place()
	p.sortRest()
	return p.plan(o), candidates, nil
}

// chooseRoot takes what was chosen, or the best candidate. If there is none, nothing is sharded.
func (p *proposer) chooseRoot(chosen []KeyChoice, candidates []Candidate) error {
	for _, choice := range chosen {
		if err := p.take(choice); err != nil {
			return err
		}
	}
	if p.root == nil && len(p.placed) == 0 && len(candidates) > 0 {
		best := candidates[0]
		p.root, p.rootKey = p.catalogue.Table(mustName(best.Table)), best.Key
	}
	if p.root == nil {
		return nil
	}
	p.family = p.root.Column(p.rootKey).family()
	if _, chosenOtherwise := p.placed[p.root.ID()]; !chosenOtherwise {
		p.placed[p.root.ID()] = placed{key: p.rootKey, reason: fmt.Sprintf("the root: its %s says whose the rows of %s are", p.rootKey, counted(len(p.catalogue.reach(p.root)), "other table"))}
	}
	return nil
}

// take places a table as a person has said.
func (p *proposer) take(choice KeyChoice) error {
	t := p.catalogue.Table(choice.Table)
	if t == nil {
		return fmt.Errorf("there is no table %s", choice.Table)
	}
	column := t.Column(choice.Column)
	if column == nil {
		return fmt.Errorf("table %s has no column %s", t, choice.Column)
	}
	family := column.family()
	if family == "" {
		return fmt.Errorf("column %s of table %s is of type %s, and cannot be a shard key", choice.Column, t, column.Type)
	}
	if p.family != "" && family != p.family {
		return fmt.Errorf("column %s of table %s is a %s, and the other keys are of type %s: tables that live together have keys of one type", choice.Column, t, family, p.family)
	}
	p.family = family
	if id := t.rowID(); id != nil && id.Name == choice.Column || t.uniqueOver([]string{choice.Column}) != nil {
		if p.root != nil {
			return fmt.Errorf("tables %s and %s are both named as the root, each by its own primary key: name one of them", p.root, t)
		}
		p.root, p.rootKey = t, choice.Column
		return nil
	}
	p.placed[t.ID()] = placed{key: choice.Column, reason: "as was asked"}
	p.followChoice(t, choice.Column)
	return nil
}

// followChoice makes the table that a chosen column refers to the root, if there is no other.
func (p *proposer) followChoice(t *Table, column string) {
	for _, f := range p.catalogue.references(t) {
		if p.root == nil && len(f.Columns) == 1 && f.Columns[0] == column && f.Target() != t.ID() {
			if target := p.catalogue.Table(f.Target()); target != nil {
				p.root, p.rootKey = target, f.TargetColumns[0]
			}
		}
	}
}

// place finds the key of every table that leads to one that has its key already, by the cheapest way.
func (p *proposer) place() {
	for {
		var next *Table
		var best placed
		for _, t := range p.catalogue.Tables {
			if _, done := p.placed[t.ID()]; done {
				continue
			}
			if way, found := p.bestWay(t); found && (next == nil || way.cost < best.cost) {
				next, best = t, way
			}
		}
		if next == nil {
			return
		}
		p.placed[next.ID()] = best
	}
}

// What a way to the key costs besides its steps: a column that may be empty is worse than another step.
const (
	costOfColumn   = 0.1
	costOfImplied  = 0.3
	costOfMaybe    = 0.6
	costOfNullable = 1.2
)

// bestWay is the cheapest way from a table to one that is placed.
func (p *proposer) bestWay(t *Table) (best placed, found bool) {
	for _, f := range p.catalogue.references(t) {
		parent, known := p.placed[f.Target()]
		if !known || f.Target() == t.ID() || p.isFilled(t, f) {
			continue
		}
		way, possible := p.way(t, f, parent)
		if possible && (!found || way.cost < best.cost) {
			best, found = way, true
		}
	}
	return best, found
}

// isFilled says whether a column only seems to be a reference to the root because a trigger fills it in, with the key of another row.
func (p *proposer) isFilled(t *Table, f ForeignKey) bool {
	return f.implied() && p.root != nil && f.Target() == p.root.ID() && slices.Contains(t.Triggers, fillTrigger)
}

// way is how a table gets its key by one foreign key.
func (p *proposer) way(t *Table, f ForeignKey, parent placed) (placed, bool) {
	may, has := t.mayBeNull(f.Columns)
	if has {
		return placed{}, false // rows that refer to nothing would belong nowhere
	}
	w := placed{cost: parent.cost + 1}
	if f.implied() {
		w.cost += costOfImplied
	}
	switch {
	case may && p.neverNull(t, f.Columns):
		w.cost += costOfMaybe
	case may:
		w.cost += costOfNullable
	}
	target := p.catalogue.Table(f.Target())
	if w.key = f.paired(parent.key); w.key != "" {
		w.reason = fmt.Sprintf("its %s %s %s", w.key, refers(f), target.Name)
		w.from = p.withoutKey(f, w.key)
		return w, true
	}
	w.cost += costOfColumn
	w.key = p.newKey(t, parent.key)
	w.from = &Source{Columns: slices.Clone(f.Columns), Table: target.String(), Referenced: slices.Clone(f.TargetColumns)}
	w.reason = fmt.Sprintf("its %s %s %s, which has the key", strings.Join(f.Columns, ", "), refers(f), target.Name)
	return w, true
}

// withoutKey is where a key came from that was added beside a reference; nil if the reference is the key itself.
func (p *proposer) withoutKey(f ForeignKey, key string) *Source {
	source := &Source{Table: f.Target().String()}
	for i, column := range f.Columns {
		if column != key {
			source.Columns, source.Referenced = append(source.Columns, column), append(source.Referenced, f.TargetColumns[i])
		}
	}
	if len(source.Columns) == 0 {
		return nil
	}
	return source
}

// refers is how a reference is told.
func refers(f ForeignKey) string {
	if f.implied() {
		return "looks like a reference (there is no foreign key) to"
	}
	return "refers to"
}

// neverNull says whether statistics know of the columns, and have never seen one empty.
func (p *proposer) neverNull(t *Table, columns []string) bool {
	return !slices.ContainsFunc(columns, func(name string) bool { c := t.Column(name); return c == nil || !c.NotNull && c.NullFraction != 0 })
}

// newKey names the column for a table that has no key of its own: as its parent's, unless that name is taken by something else.
func (p *proposer) newKey(t *Table, parents string) string {
	rootName := parents
	if p.root != nil {
		rootName = singular(p.root.Name) + "_" + p.rootKey
		if parents == p.rootKey {
			parents = rootName
		}
	}
	for _, name := range []string{parents, rootName, "shard_key"} {
		if column := t.Column(name); column == nil || column.family() == p.family && !p.refersElsewhere(t, name) {
			return name
		}
	}
	return "cleave_shard_key"
}

// refersElsewhere says whether a column is a reference of its own.
func (p *proposer) refersElsewhere(t *Table, column string) bool {
	return slices.ContainsFunc(t.ForeignKeys, func(f ForeignKey) bool {
		return len(f.Columns) == 1 && f.Columns[0] == column
	})
}

// singular is one of a table's things.
func singular(name string) string {
	switch {
	case strings.HasSuffix(name, "ies"):
		return strings.TrimSuffix(name, "ies") + "y"
	case strings.HasSuffix(name, "ss"):
		return name
	default:
		return strings.TrimSuffix(name, "s")
	}
}

// sortRest finds reference tables among those that have no key, and says why the rest stays.
func (p *proposer) sortRest() {
	for name, way := range p.placed {
		p.kinds[name], p.reasons[name] = topology.Sharded, way.reason
	}
	for changed := true; changed; {
		changed = false
		for _, t := range p.catalogue.Tables {
			if p.kinds[t.ID()] != topology.Sharded && p.kinds[t.ID()] != topology.Reference {
				continue
			}
			for _, f := range t.ForeignKeys {
				changed = p.refersTo(t, f) || changed
			}
		}
	}
	for _, t := range p.catalogue.Tables {
		if _, known := p.kinds[t.ID()]; !known {
			p.kinds[t.ID()], p.reasons[t.ID()] = topology.Single, p.whySingle(t)
		}
	}
}

// refersTo makes the target of a foreign key a reference table if it has no kind yet; it says whether something has changed.
func (p *proposer) refersTo(t *Table, f ForeignKey) bool {
	target := p.catalogue.Table(f.Target())
	if target == nil {
		return false
	}
	if _, known := p.kinds[target.ID()]; known {
		return false
	}
	if target.Rows > mostReferenceRows || target.Bytes > mostReferenceBytes || target.Partitioned {
		p.kinds[target.ID()] = topology.Single
		p.reasons[target.ID()] = t.Name + " refers to it, but it is too large to be copied to every shard without being asked"
		return true
	}
	p.kinds[target.ID()] = topology.Reference
	p.reasons[target.ID()] = t.Name + " refers to it, and nothing in it leads to the key"
	return true
}

// whySingle says why nothing becomes of a table.
func (p *proposer) whySingle(t *Table) string {
	for _, f := range p.catalogue.references(t) {
		if _, has := t.mayBeNull(f.Columns); has && p.kinds[f.Target()] == topology.Sharded {
			return fmt.Sprintf("its %s leads to %s, but some rows have none and would belong nowhere", strings.Join(f.Columns, ", "), f.TargetTable)
		}
	}
	return "nothing in it leads to the key, and no sharded table refers to it"
}

// plan puts the decisions together.
func (p *proposer) plan(o Options) *Plan {
	plan := &Plan{
		Format: planFormat, Database: p.catalogue.Database, SystemIdentifier: p.catalogue.SystemIdentifier,
		Shard: cmp.Or(o.Shard, "shard1"), Keyspace: cmp.Or(o.Keyspace, p.keyspaceName()), KeyType: p.family, IDs: cmp.Or(o.IDs, keyedIDs),
	}
	if p.root != nil {
		plan.Root = p.root.String()
	}
	for _, t := range p.catalogue.Tables {
		planned := TablePlan{Table: t.String(), Kind: p.kinds[t.ID()], Reason: p.reasons[t.ID()]}
		if planned.Kind == topology.Sharded {
			planned.Key, planned.KeyFrom = p.placed[t.ID()].key, p.placed[t.ID()].from
		}
		plan.Tables = append(plan.Tables, planned)
	}
	plan.handleConstraints(p.catalogue)
	return plan
}

// keyspaceName is the root's name in the form that names of keyspaces have.
func (p *proposer) keyspaceName() string {
	if p.root == nil {
		return "adopted"
	}
	name := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.' {
			return r
		}
		return '_'
	}, strings.ToLower(p.root.Name)), "_-.")
	return cmp.Or(name, "adopted")
}

// counted is a number of things with their name.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
