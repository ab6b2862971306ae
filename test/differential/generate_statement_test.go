package differential_test

import (
	"strings"
)

// statement is one that was made up, how it is run, and what its answer is compared by.
type statement struct {
	root *node
	// before are statements of the same transaction, a list.
	before *node
	// outputs are the columns, and order is what the rows are sorted by: a list, in which columns are named by their positions. isTotal:
	// rows that are equal in the order are equal altogether, whatever the list has.
	outputs, order *node
	isTotal        bool
	// counted: any rows will do, as long as there are so many. planned: any answer will do.
	counted, planned bool
	// targets are the tables that it writes to. They are compared afterwards, and then all is undone: rolled back, or, if it
	// commits, written anew.
	targets []*table
	commits bool
	// explained: EXPLAIN of it must not fail either. named: it is prepared under a name and run twice. fetched is how many rows are
	// fetched at a time, 0 for all.
	explained, named bool
	fetched          uint32
	// isCursor: it is run as a cursor, from which all rows are fetched.
	isCursor bool
	shape    []string // words about it
	how      pass
}

// turn is a step of a statement's run.
type turn struct {
	step
	how pass
	by  *statement // what answers are compared by
	// whole is the statement as it was prepared, if this runs it.
	whole string
}

// anyOrder is how whole tables are compared, planned how plans are: not at all.
var anyOrder, anyPlan = &statement{outputs: list("%", ", ")}, &statement{planned: true}

// statement makes up a statement of any kind, and how it is run.
func (g *maker) statement() *statement {
	g.choose()
	var st *statement
	switch n := g.IntN(100); {
	case n < 78:
		st = g.read()
		if g.chance(6) {
			st.before = list("%", "; ", g.write().root)
		}
		st.explained = g.chance(3)
		st.named = g.chance(4)
		switch n := g.IntN(100); {
		case st.named || st.before != nil:
		case n < 3:
			st.fetched = uint32(1 + g.IntN(5)) //nolint:gosec // small
		case n < 6:
			st.isCursor = true
		}
	default:
		st = g.write()
		st.commits = g.chance(15)
		if !st.commits && g.chance(10) {
			st.before = list("%", "; ", g.write().root)
		}
	}
	st.how = pick(g, passes...)
	st.shape = g.shapeWords()
	return st
}

// choose picks the tables that a statement is about: often those of one keyspace, or one alone.
func (g *maker) choose() {
	g.tables = g.world.tables
	n := g.IntN(100)
	if n >= 50 {
		return
	}
	first := pick(g, g.world.tables...)
	g.tables = nil
	for _, t := range g.world.tables {
		if t == first || n < 35 && (t.reference || t.space == first.space && t.isSharded()) {
			g.tables = append(g.tables, t)
		}
	}
}

// text shows all of it.
func (st *statement) text() string {
	var texts []string
	for _, turn := range st.turns() {
		if turn.text != "" {
			texts = append(texts, turn.text)
		}
	}
	return strings.Join(texts, ";\n")
}

// roots are the trees that it is made of.
func (st *statement) roots() []*node {
	if st.before == nil {
		return []*node{st.root}
	}
	return []*node{st.before, st.root}
}

// turns are the steps of its run.
func (st *statement) turns() []turn {
	var all []turn
	simple := func(text string, by *statement) {
		all = append(all, turn{step: step{text: text}, how: simplePass, by: by})
	}
	inTransaction := len(st.targets) > 0 && !st.commits || st.before != nil || st.isCursor
	if inTransaction {
		simple("begin", anyOrder)
	}
	if st.before != nil {
		for _, n := range st.before.parts {
			if !n.gone {
				all = append(all, turnOf(n, st.how, anyOrder))
			}
		}
	}
	all = append(all, st.mainTurns()...)
	for _, t := range st.targets {
		simple("select * from "+t.name, anyOrder)
	}
	return all
}

func turnOf(n *node, how pass, by *statement) turn {
	text, params := n.render()
	return turn{step: step{text: text, params: params}, how: how, by: by}
}

// preparedName is what statements are prepared as.
const preparedName = "made"

func (st *statement) mainTurns() []turn {
	main := turnOf(st.root, st.how, st)
	main.rows = st.fetched
	turns := []turn{main}
	if st.isCursor {
		declared, fetched := main, turn{step: step{text: "fetch all from made"}, how: st.how, by: st}
		declared.text, declared.by = "declare made cursor for "+main.text, anyOrder
		return []turn{declared, fetched}
	}
	if st.named {
		parsed, bound := main, main
		parsed.parse = preparedName
		bound.whole, bound.text, bound.bind = bound.text, "", preparedName
		turns = []turn{parsed, bound, bound}
	}
	if st.explained {
		plan := main
		plan.text, plan.by = "explain "+plan.text, anyPlan
		turns = append(turns, plan)
	}
	return turns
}

// tidy undoes on both sides what the statement has done. What it cannot undo will be noticed as a difference.
func (st *statement) tidy(clients ...*client) {
	for _, c := range clients {
		if c.status != 'I' {
			_ = c.simple("rollback")
		}
		if st.named {
			_, _ = c.run(step{close: preparedName}, textPass)
		}
		if !st.commits {
			continue
		}
		for _, t := range st.targets {
			_ = c.simple("delete from " + t.name)
			if len(t.rows) > 0 {
				_ = c.simple(t.insertion(t.rows))
			}
		}
	}
}
