package adopt

import (
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// handleConstraints decides what becomes of the constraints that cannot stay as they are, wherever nothing is decided yet.
func (p *Plan) handleConstraints(c *Catalogue) {
	for i := range p.Tables {
		planned := &p.Tables[i]
		t := c.Table(planned.Name())
		if t == nil {
			continue
		}
		for _, f := range t.ForeignKeys {
			if verdict := p.judge(c, t, f); verdict.handling != "" {
				planned.ForeignKeys = decide(planned.ForeignKeys, f.Name, verdict.handling)
			}
		}
		if planned.Kind != topology.Sharded {
			continue
		}
		if len(planned.PrimaryKey) == 0 && t.isHindered(shard.NoPrimaryKey) {
			planned.PrimaryKey = t.tellingRows()
		}
		for _, u := range t.Uniques {
			if u.Valid && !slices.Contains(u.Columns, planned.Key) {
				planned.Unique = decide(planned.Unique, u.Name, p.uniqueHandling(c, t, planned, u))
			}
		}
	}
}

func decide(handlings map[string]Handling, name string, handling Handling) map[string]Handling {
	if handlings == nil {
		handlings = map[string]Handling{}
	}
	if _, decided := handlings[name]; !decided {
		handlings[name] = handling
	}
	return handlings
}

// uniqueHandling adds the key where that loses nothing: the values are drawn so that none comes twice, or the key follows from them. Anything else
// would let values come twice that could not until now, so it stays as it is, and every shard sees to its own rows.
func (p *Plan) uniqueHandling(c *Catalogue, t *Table, planned *TablePlan, u Unique) Handling {
	if u.Kind == "x" || t.Partitioned {
		return PerShard // neither can be made anew while the table is in use
	}
	for _, name := range u.Columns {
		if column := t.Column(name); column != nil && column.isDrawn() || p.tellsKey(c, t, planned, name) {
			return WithKey
		}
	}
	return PerShard
}

// tellsKey says whether the shard key follows from a column: it refers to a row that has the same key.
func (p *Plan) tellsKey(c *Catalogue, t *Table, planned *TablePlan, column string) bool {
	return slices.ContainsFunc(c.references(t), func(f ForeignKey) bool {
		rest := slices.DeleteFunc(slices.Clone(f.Columns), func(name string) bool { return name == planned.Key })
		if len(rest) != 1 || rest[0] != column || p.kind(f.Target()) != topology.Sharded {
			return false
		}
		return planned.ForeignKeys[f.Name] == WithKey || p.judge(c, t, f).fits
	})
}

// verdict is what can become of a foreign key.
type verdict struct {
	// fits: it can stay as it is. Otherwise handling is what to do by default, and why it cannot stay.
	fits     bool
	handling Handling
	why      string
}

// judge says whether a row and the one that it refers to are sure to be on one shard, in the words of the code that declares tables.
func (p *Plan) judge(c *Catalogue, t *Table, f ForeignKey) verdict {
	own, target := p.kind(t.ID()), p.kind(f.Target())
	switch {
	case target == topology.Reference, own == topology.Single && target == topology.Single:
		return verdict{fits: true}
	case target == topology.Single:
		return verdict{handling: Undecided, why: fmt.Sprintf("%s stays on one shard", f.Target())}
	case own != topology.Sharded:
		return verdict{handling: Undecided, why: fmt.Sprintf("the rows of %s will be on several shards, and those of %s will not", f.Target(), t)}
	}
	ownKey, targetKey := p.table(t.ID()).Key, p.table(f.Target()).Key
	switch pair := f.paired(targetKey); {
	case pair == ownKey:
		return verdict{fits: true}
	case pair != "" || slices.Contains(f.Columns, ownKey):
		return verdict{handling: Undecided, why: fmt.Sprintf("it refers to %s by another column than the shard key %s, so the row may be on another shard", f.Target(), ownKey)}
	case t.Partitioned || c.Table(f.Target()) == nil || c.Table(f.Target()).Partitioned:
		return verdict{handling: Undecided, why: "it does not contain the shard key, and constraints of partitioned tables cannot be made anew while they are in use"}
	default:
		return verdict{handling: WithKey, why: fmt.Sprintf("it does not contain the shard key, so the row of %s may be on another shard", f.Target())}
	}
}
