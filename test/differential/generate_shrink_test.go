package differential_test

import (
	"context"
	"slices"
	"strings"
	"time"
)

// shrinking is how long a failure is made smaller for.
const shrinking = 30 * time.Second

// shrink makes a statement that fails smaller, and then the rows fewer, as long as it fails in the same way and plain servers agree on it.
func (r *generated) shrink(ctx context.Context, st *statement, v verdict) {
	end := time.Now().Add(shrinking)
	fails := func() bool { return r.compare(st) == v && !r.isAmbiguous(ctx, st) }
	for !time.Now().After(end) && st.shrinkOnce(fails, end) {
		continue
	}
	for _, t := range r.world.tables {
		if strings.Contains(st.text(), t.name) {
			r.shrinkRows(t, fails, end)
		}
	}
	r.compare(st)
}

// shrinkOnce tries every change once and says whether one was kept.
func (st *statement) shrinkOnce(fails func() bool, end time.Time) bool {
	kept := st.runPlainly(fails)
	for _, root := range st.roots() {
		for _, n := range root.all() {
			for _, change := range root.changes(n) {
				if time.Now().After(end) || n.gone {
					break
				}
				before := st.text()
				undo := change()
				switch {
				case st.text() == before:
				case fails():
					kept = true
					continue
				}
				undo()
			}
		}
	}
	return kept
}

// runPlainly does without the special ways to run a statement.
func (st *statement) runPlainly(fails func() bool) bool {
	kept := false
	for _, plainly := range []func(*statement){
		func(st *statement) { st.before = nil },
		func(st *statement) { st.how = simplePass },
		func(st *statement) { st.named = false },
		func(st *statement) { st.explained = false },
		func(st *statement) { st.isCursor = false },
		func(st *statement) { st.fetched = 0 },
		func(st *statement) { st.commits = false },
	} {
		before := *st
		plainly(st)
		switch {
		case before.isRunLike(st):
		case fails():
			kept = true
		default:
			*st = before
		}
	}
	return kept
}

// isRunLike says whether two statements are run in the same way.
func (st *statement) isRunLike(other *statement) bool {
	return st.before == other.before && st.how == other.how && st.named == other.named && st.explained == other.explained &&
		st.isCursor == other.isCursor && st.fetched == other.fetched && st.commits == other.commits
}

// changes are all ways to make a node smaller; each does so and returns how to take it back.
func (n *node) changes(at *node) []func() func() {
	var all []func() func()
	if at.gone {
		return nil
	}
	if at.optional {
		all = append(all, func() func() { return leaveOut(at) })
	}
	if at.isList {
		for _, part := range at.parts {
			all = append(all, func() func() {
				if part.gone || at.left() <= at.least {
					return func() {}
				}
				return leaveOut(n.twinsOf(part)...)
			})
		}
	}
	if at.label == "" {
		return all
	}
	if at.simple != "" {
		all = append(all, func() func() { return at.become(&node{label: at.label, format: at.simple}) })
	}
	for _, below := range at.all()[1:] {
		if below.label == at.label {
			all = append(all, func() func() { return at.become(below) })
		}
	}
	if at.param != nil && at.param.value != nil && at.param.typeName != "?" {
		all = append(all, func() func() {
			return at.become(&node{label: at.label, format: quote(*at.param.value) + "::" + strings.TrimPrefix(at.param.typeName, "_") + strings.Repeat("[]", strings.Count(at.param.typeName, "_"))})
		})
	}
	return all
}

func leaveOut(nodes ...*node) func() {
	for _, n := range nodes {
		n.gone = true
	}
	return func() {
		for _, n := range nodes {
			n.gone = false
		}
	}
}

// become puts another node in a node's place. Those that are left out with it stay the same.
func (n *node) become(other *node) func() {
	before := *n
	*n = *other
	n.optional, n.twin = before.optional, before.twin
	return func() { *n = before }
}

// twinsOf are the parts that are left out together with this one.
func (n *node) twinsOf(part *node) []*node {
	if part.twin == 0 {
		return []*node{part}
	}
	return slices.DeleteFunc(n.all(), func(other *node) bool { return other.twin != part.twin })
}

// left counts a list's parts that are left.
func (n *node) left() int {
	count := 0
	for _, p := range n.parts {
		if !p.gone {
			count++
		}
	}
	return count
}

// all lists a node and everything below it that is left, what is above first.
func (n *node) all() []*node {
	var found []*node
	seen := map[*node]bool{}
	next := []*node{n}
	for len(next) > 0 {
		n, next = next[0], next[1:]
		if n.gone || seen[n] {
			continue
		}
		seen[n] = true
		found = append(found, n)
		next = append(next, n.parts...)
	}
	return found
}

// shrinkRows deletes rows of a table on all servers: all at once, halves, and so on to single ones.
func (r *generated) shrinkRows(t *table, fails func() bool, end time.Time) {
	for size := len(t.rows); size > 0; size /= 2 {
		for at := 0; at < len(t.rows) && !time.Now().After(end); {
			some := slices.Clone(t.rows[at:min(at+size, len(t.rows))])
			if err := r.everywhere(t.deletion(some)); err != nil {
				return
			}
			rest := slices.Delete(slices.Clone(t.rows), at, at+len(some))
			if fails() {
				t.rows = rest
				continue
			}
			if err := r.everywhere(t.insertion(some)); err != nil {
				return
			}
			at += size
		}
	}
}

// save remembers the rows of all tables.
func (w *world) save() map[*table][][]*string {
	saved := map[*table][][]*string{}
	for _, t := range w.tables {
		saved[t] = t.rows
	}
	return saved
}

// restore brings back rows that were deleted.
func (r *generated) restore(saved map[*table][][]*string) error {
	for t, rows := range saved {
		if len(t.rows) == len(rows) {
			continue
		}
		t.rows = rows
		for _, statement := range []string{"delete from " + t.name, t.insertion(rows)} {
			if err := r.everywhere(statement); err != nil {
				return err
			}
		}
	}
	return nil
}

// everywhere runs a statement on all servers.
func (r *generated) everywhere(text string) error {
	for _, c := range []*client{r.twins.plain, r.twins.router, r.second} {
		if c == nil {
			continue
		}
		if err := c.simple(text); err != nil {
			return err
		}
	}
	return nil
}
