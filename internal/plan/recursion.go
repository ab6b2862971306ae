package plan

import "github.com/cleavedb/cleave/internal/facts"

// induce finds out what is known of recursive queries. What the first arm says of a column holds for all rows if, taken for granted
// of the rows that the second arm reads, it holds for the rows which that one makes. So it is assumed, followed, and taken back
// if it does not.
func (x *proof) induce() {
	for _, common := range x.s.Recursive {
		if c := x.commons[common]; c != nil && c.block != nil {
			x.induceOne(common.Query)
		}
	}
}

// assumption is a finding about a column of a recursive query.
type assumption struct {
	of *union
	finding
}

func (x *proof) induceOne(f *facts.Block) {
	var assumed []assumption
	for i := range x.unions {
		if u := &x.unions[i]; u.recursive == f {
			for _, k := range u.left.known {
				assumed = append(assumed, assumption{u, k})
			}
		}
	}
	for len(assumed) > 0 {
		undo := x.mark()
		for _, a := range assumed {
			a.of.to.add(a.finding)
		}
		x.spread()
		var kept []assumption
		for _, a := range assumed {
			if a.of.right.has(a.fact) {
				kept = append(kept, a)
			}
		}
		if len(kept) == len(assumed) {
			return
		}
		undo()
		assumed = kept
	}
}

// mark returns what takes back all that is found after it.
func (x *proof) mark() (undo func()) {
	columns := map[*column]int{}
	for _, c := range x.columns() {
		columns[c] = len(c.known)
	}
	clauses := make([]map[*column]int, len(x.contexts))
	for i, c := range x.contexts {
		clauses[i] = map[*column]int{}
		for column, known := range c.here {
			clauses[i][column] = len(known)
		}
	}
	return func() {
		for c, n := range columns {
			c.known = c.known[:n]
		}
		for i, c := range x.contexts {
			for column := range c.here {
				c.here[column] = c.here[column][:clauses[i][column]]
			}
		}
		for i := range x.unions {
			if u := &x.unions[i]; u.joined != nil && !u.to.has(u.joined) {
				u.joined = nil
			}
		}
	}
}

// columns returns every column that facts can reach.
func (x *proof) columns() []*column {
	var all []*column
	for _, c := range x.contexts {
		for _, g := range c.given {
			all = append(all, g.column)
		}
		for _, pair := range c.pairs {
			all = append(all, pair[0], pair[1])
		}
	}
	for _, l := range x.links {
		all = append(all, l.result, l.column)
	}
	for _, u := range x.unions {
		all = append(all, u.left, u.right, u.to)
	}
	for _, s := range x.stores {
		all = append(all, s.from, s.to)
	}
	return all
}
