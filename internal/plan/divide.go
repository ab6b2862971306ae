package plan

import (
	"slices"

	"github.com/cleavedb/cleave/internal/facts"
)

// obstacleOf returns what in a query looks at several of its rows at once, so that parts of its answer cannot be computed alone;
// empty if nothing does.
func (x *proof) obstacleOf(f *facts.Block) string {
	switch {
	case f.Operation != facts.NoOperation:
		return "a set operation"
	case f.Grouped:
		return "GROUP BY"
	case f.Having:
		return "HAVING"
	case len(f.Windows) > 0:
		return "a window function"
	case x.calls(f, x.p.mayAggregate):
		return "an aggregate"
	case f.Distinct:
		return "DISTINCT"
	case f.Sorted:
		return "ORDER BY"
	case x.limits(f) && !x.cutsOff(f):
		return limiting
	case x.calls(f, func(c *facts.Call) bool { return isInFrom(c) && x.p.isVolatile(c) }):
		return "a volatile function in FROM"
	default:
		return ""
	}
}

const limiting = "LIMIT or OFFSET"

// cutsOff says whether all that a query's LIMIT does is to leave out rows of the answer, any of them: every shard gives up to so many,
// and whoever puts them together stops there. That its OFFSET leaves out none is seen when the statement runs.
func (x *proof) cutsOff(f *facts.Block) bool {
	if f != x.s.Query || !f.Returns || f.AtMost != nil && f.Locks {
		return false
	}
	isCount := func(o *facts.Operand) bool {
		if o == nil {
			return true
		}
		n := x.p.operand(*o)
		return n.CastOID == 0 && (n.Kind == FromLiteral || n.Kind == FromParam)
	}
	return isCount(f.AtMost) && isCount(f.Skips)
}

// limits says whether a query has a LIMIT or OFFSET that may leave out rows. OFFSET 0 leaves out none: inside of other queries it is written
// to keep PostgreSQL from taking a query apart.
func (x *proof) limits(f *facts.Block) bool {
	if f == x.s.Query || f.AtMost != nil || f.Skips == nil || f.Skips.Kind != facts.Constant || len(f.Skips.Casts) > 0 {
		return f.Limited
	}
	x.byLiteral = true
	return f.Skips.Text != "0"
}

// calls says whether one of a query's own calls is such.
func (x *proof) calls(f *facts.Block, is func(*facts.Call) bool) bool {
	return slices.ContainsFunc(f.Calls, func(i int) bool { return is(&x.s.Calls[i]) })
}

func isInFrom(c *facts.Call) bool { return c.Place == facts.InFrom || c.Place == facts.InRowsFrom }

// mayAggregate says whether a call may be one of an aggregate of its query's rows.
func (p *planner) mayAggregate(c *facts.Call) bool {
	if c.Over {
		return false // it is computed over a window
	}
	if c.Word {
		return c.Name == "json_arrayagg" || c.Name == "json_objectagg"
	}
	overloads := p.overloads(c)
	return len(overloads) == 0 || slices.ContainsFunc(overloads, func(f Function) bool { return f.Kind == 'a' || f.Kind == 'w' })
}

func (p *planner) overloads(c *facts.Call) []Function {
	return p.known.Functions[FunctionName{Schema: c.Schema, Name: c.Name}]
}

// isVolatile says whether a function may give another answer each time.
func (p *planner) isVolatile(c *facts.Call) bool {
	overloads := p.overloads(c)
	return len(overloads) == 0 && !c.Word || slices.ContainsFunc(overloads, func(f Function) bool { return f.Volatility == 'v' })
}

// driver finds an occurrence whose rows are told apart in the answer, and to whose key all others are bound; or says what is in the
// way.
//
// Why the parts of an answer are independent then: with such an occurrence, the answer is that for each of its rows, put together.
// For one row, its key is a value like any other, and the proof that all other sharded tables are bound to that value says that the
// row's shard has all that matters to it. So each shard gives the answer for its own rows.
func (x *proof) driver() (driver *occurrence, obstacle string) {
	return x.driverOf(x.occurrences)
}

// driverBut finds one that leaves out the new key of the rows that an UPDATE changes.
func (x *proof) driverBut(kept *occurrence) (driver *occurrence, obstacle string) {
	return x.driverOf(slices.DeleteFunc(slices.Clone(x.occurrences), func(o *occurrence) bool { return o == kept }))
}

// driverOf finds one to whose key all of these are bound.
func (x *proof) driverOf(all []*occurrence) (driver *occurrence, obstacle string) {
	if obstacle = x.anywhere(x.s.Query); obstacle != "" {
		return nil, obstacle
	}
	byID := func(o *occurrence) bool { return o.slots != nil } // with such a one, fewer shards have a part
	candidates := slices.Concat(slices.DeleteFunc(slices.Clone(all), func(o *occurrence) bool { return !byID(o) }), slices.DeleteFunc(slices.Clone(all), byID))
	for _, o := range candidates {
		if o.obstacle != "" {
			continue
		}
		away := x.drive(o, all)
		if away == nil {
			return o, ""
		}
		if obstacle == "" {
			obstacle = notBoundTo(away, o)
		}
	}
	if obstacle == "" {
		obstacle = x.firstObstacle()
	}
	return nil, obstacle
}

func notBoundTo(away, driver *occurrence) string {
	switch {
	case away.moves:
		return "a key that is changed"
	case away.stores:
		return "rows of " + away.r.title() + " whose key is not that of " + driver.r.title()
	default:
		return away.r.title() + " is not joined to " + driver.r.title() + " by its key"
	}
}

// firstObstacle is what keeps the rows of the first occurrence from being told apart.
func (x *proof) firstObstacle() string {
	for _, o := range x.occurrences {
		if !o.stores {
			return o.obstacle
		}
	}
	return "rows that are not those of a sharded table"
}

// drive takes the key of an occurrence for known, and returns one that is not bound to it; nil if all are.
func (x *proof) drive(driver *occurrence, all []*occurrence) *occurrence {
	own := make([]*fact, len(driver.key))
	for i, c := range driver.key {
		own[i] = &fact{driver: driver, part: i}
		c.add(finding{fact: own[i]})
	}
	x.spread()
	x.induce()
	for _, o := range all {
		for i, c := range o.key {
			if !c.has(own[i]) {
				return o
			}
		}
	}
	return nil
}

// anywhere returns what keeps a statement from being divided wherever it stands in it: a query inside that writes, one whose answer
// need not be the same on all shards though it reads only what all of them have, one whose aggregate is that of a query around it.
func (x *proof) anywhere(f *facts.Block) string {
	obstacle := ""
	f.Walk(func(b *facts.Block) bool {
		switch {
		case x.samplesCopy(b):
			obstacle = "TABLESAMPLE of a reference table"
		case b == f:
		case b.Command != facts.Select && (!x.isReadOnce(f, b) || !x.changesAlone(b)):
			obstacle = inWritingCommon
		case x.aggregatesOutside(b):
			obstacle = "an aggregate"
		case x.varies(b) && !x.readsSharded(b):
			obstacle = "a subquery that may give another answer on every shard"
		}
		return obstacle == ""
	})
	return obstacle
}

// isReadOnce says whether a query is a common table expression that is named once.
func (x *proof) isReadOnce(root, q *facts.Block) bool {
	found := false
	root.Walk(func(b *facts.Block) bool {
		found = found || slices.ContainsFunc(b.With, func(c *facts.Common) bool { return c.Query == q && c.References == 1 })
		return !found
	})
	return found
}

// changesAlone says whether a query updates or deletes rows of a sharded table by nothing that other shards have, and leaves them their keys: then each shard
// does that to its own rows, and all together have done what the query says.
func (x *proof) changesAlone(q *facts.Block) bool {
	if q.Command != facts.Update && q.Command != facts.Delete || x.tables[q.Target.Table].class != sharded {
		return false
	}
	keys := x.tables[q.Target.Table].table.KeyColumns()
	for _, assigned := range q.Assigned {
		if slices.Contains(keys, assigned.Column) {
			return false
		}
	}
	count := 0
	q.Walk(func(b *facts.Block) bool {
		b.Reads(func(s *facts.Source) bool {
			if s.Kind == facts.CommonSource || s.Kind == facts.TableSource && x.tables[s.Table].class == sharded {
				count++
			}
			return false
		})
		return true
	})
	return count == 1
}

// samplesCopy says whether a query takes a sample of a reference table, which every shard would take anew.
func (x *proof) samplesCopy(f *facts.Block) bool {
	return f.Reads(func(s *facts.Source) bool {
		return s.Kind == facts.TableSource && x.tables[s.Table].Sampled && x.tables[s.Table].class == reference
	})
}

// readsSharded says whether a query reads a sharded table, itself or by others that are in it or that it names.
func (x *proof) readsSharded(f *facts.Block) bool {
	return x.readsShardedBut(f, map[*facts.Common]bool{})
}

func (x *proof) readsShardedBut(f *facts.Block, seen map[*facts.Common]bool) bool {
	found := false
	f.Walk(func(b *facts.Block) bool {
		found = found || b.Reads(func(s *facts.Source) bool {
			switch {
			case s.Kind == facts.TableSource:
				return x.tables[s.Table].class == sharded
			case s.Kind != facts.CommonSource || seen[s.Common]:
				return false
			}
			seen[s.Common] = true
			return x.readsShardedBut(s.Common.Query, seen)
		})
		return !found
	})
	return found
}

// varies says whether a query's answer may depend on more than what its tables hold: on the order of rows, or on chance.
func (x *proof) varies(f *facts.Block) bool {
	return x.limits(f) || len(f.DistinctOn) > 0 || len(f.Windows) > 0 ||
		x.calls(f, func(c *facts.Call) bool { return x.p.isVolatile(c) || x.p.mayAggregate(c) && !orderless[c.Name] }) ||
		f.Reads(func(s *facts.Source) bool { return s.Kind == facts.TableSource && x.tables[s.Table].Sampled })
}

// orderless are the aggregates whose result does not depend on the order of rows, not even in its last digit.
var orderless = map[string]bool{"count": true, "min": true, "max": true, "bool_and": true, "bool_or": true, "every": true}

// aggregatesOutside says whether an aggregate in a query may be one of a query around it, because its arguments are that one's.
func (x *proof) aggregatesOutside(f *facts.Block) bool {
	b := x.built[f]
	return x.calls(f, func(c *facts.Call) bool {
		if !x.p.mayAggregate(c) || len(c.Columns) == 0 && !c.Queries {
			return false
		}
		return b == nil || b.scope == nil || !slices.ContainsFunc(c.Columns, b.scope.isOwn)
	})
}

// isOwn says whether a column as written surely is one of this query, and of none around it.
func (s *scope) isOwn(written []string) bool {
	if len(written) == 1 {
		_, count := find(s.columns, written[0])
		return count > 0
	}
	_, count := s.item(written[:len(written)-1])
	return count > 0
}
