package session

import (
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/compose"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/wire"
)

// Tables on different shards need not be joined in one place. If all pulls but one give few rows, these are sent to where the rows of that one are: in
// the final statement they are arrays then, and the rows that stay are a query. What comes of that is planned like any statement, with its own
// proof, so shards join, filter and group what they have.

// maxShippedRows and maxShipped are how many rows are sent along at most, by estimate, and how many bytes in truth.
const (
	maxShippedRows = 50_000
	maxShipped     = 16 << 20
)

// shipping is what is left of a statement when the rows of all pulls but one are sent to where those of that one are.
type shipping struct {
	kept    int
	shipped []int
	rest    *statement
}

// shippingOf says whether it is worth it to send rows along, and how; nil if not.
func (s *session) shippingOf(c *composing, pulls []pull) (*shipping, *pgerr.Error) {
	if !s.maySnapshot() || c.copied != "" || !c.outline.mayShip() {
		return nil, nil
	}
	rows, refused := s.estimate(c, pulls)
	if refused != nil {
		return nil, refused
	}
	plan := shippingBy(rows, pulls)
	if plan == nil || slices.ContainsFunc(plan.shipped, func(i int) bool { return !c.outline.pulls[i].mayBeArrays() }) {
		return nil, nil
	}
	if refused := s.planRest(c, pulls, plan); refused != nil || plan.rest == nil {
		return nil, refused
	}
	return plan, nil
}

// shippingBy chooses the pull whose rows stay, by how many each gives; nil if sending the others to all its shards is no less work.
func shippingBy(rows []float64, pulls []pull) *shipping {
	plan := &shipping{kept: -1}
	for i := range pulls {
		if len(pulls[i].shards) > 1 && (plan.kept < 0 || rows[i] > rows[plan.kept]) {
			plan.kept = i
		}
	}
	if plan.kept < 0 || rows[plan.kept] < manyRows {
		return nil
	}
	sent := 0.0
	for i := range pulls {
		if i != plan.kept && len(pulls[i].shards) > 0 {
			plan.shipped = append(plan.shipped, i)
			sent += rows[i]
		}
	}
	if len(plan.shipped) == 0 || sent > maxShippedRows || sent*float64(len(pulls[plan.kept].shards)) > rows[plan.kept] {
		return nil
	}
	return plan
}

// mayShip says whether what shards make of the statement is known to be of the types that the client is told: users' types have other numbers elsewhere.
func (m *outline) mayShip() bool {
	composition := m.composition
	return composition.Kind == compose.Reads && !m.runsFirst() &&
		!slices.ContainsFunc(composition.Pulls, func(p compose.Pull) bool { return p.Own }) &&
		!slices.ContainsFunc(m.types, func(oid uint32) bool { return oid >= firstUserOID })
}

// mayBeArrays says whether its rows can be handed on as arrays of columns.
func (p *pullOutline) mayBeArrays() bool { return !p.nested && len(p.columns) > 0 }

// planRest plans what is left of the statement. There is no rest if no shard would do more of it than give its rows.
func (s *session) planRest(c *composing, pulls []pull, of *shipping) *pgerr.Error {
	rest := &statement{oids: slices.Clone(c.outline.params)}
	relations := make([]string, len(pulls))
	for i := range pulls {
		shape := &c.outline.pulls[i]
		if i == of.kept {
			relations[i] = shape.inPlace(pulls[i].text)
			continue
		}
		relations[i] = shape.unnested(len(rest.oids))
		for j := range shape.columns {
			rest.oids = append(rest.oids, shape.columns[j].arrayType())
		}
	}
	in, refused := s.places(c, c.outline.composition.Final.HasMoment())
	if refused != nil {
		return refused
	}
	in.Pull = func(n int) string { return relations[n] }
	rest.text = c.outline.composition.Final.Fill(in)
	if refused := s.planAside(rest); refused != nil {
		return refused
	}
	if only := rest.single(); only == nil || !joinsThere(only) {
		return nil
	}
	same, refused := s.givesSame(rest, c)
	if same {
		of.rest = rest
	}
	return refused
}

// givesSame says whether what is left of a statement has the columns that the client is told: what a column is called may come from the place that a value was read
// from, and so may its length.
func (s *session) givesSame(rest *statement, of *composing) (bool, *pgerr.Error) {
	if of.st.Explains {
		return true, nil
	}
	told, err := columnsOf(of.outline.description)
	if err != nil {
		return false, nil //nolint:nilerr // it is composed then
	}
	now, asked := rest.planned.columns(rest.oids)
	if !asked {
		a, refused := s.askShard(s.home(), func() (answer, error) { return s.askTypes(rest.text, rest.oids) })
		if refused != nil || a.failure != nil {
			return false, refused
		}
		rest.planned.keepTypes(rest.oids, a.params, a.columns)
		now = a.columns
	}
	return now == told, nil
}

// joinsThere says whether shards do more of a statement than give their rows: nothing that was sent along is left to the final step.
func joinsThere(st *plan.Statement) bool {
	switch {
	case st.Refusal != nil || len(st.Numbers) > 0 || len(st.Virtual) > 0:
		return false
	case st.Composition != nil:
		return st.Composition.Kind == compose.Reads && !strings.Contains(st.Composition.Final.String(), "pg_catalog.unnest($")
	default:
		return st.Route.Level == plan.Several && st.Route.Parts == plan.Same
	}
}

// inPlace is what stands for a pull in the final statement if its rows are not pulled.
func (p *pullOutline) inPlace(text string) string {
	if len(p.columns) == 0 {
		return "(" + text + ")"
	}
	names := make([]string, len(p.columns))
	for i := range names {
		names[i] = columnName(i)
	}
	return "(SELECT " + p.outputs() + " FROM (" + text + ") AS u(" + strings.Join(names, ", ") + "))"
}

// unnested is what stands for a pull in a statement that has its rows as parameters, an array for each column, behind so many others.
func (p *pullOutline) unnested(params int) string {
	arrays, names := make([]string, len(p.columns)), make([]string, len(p.columns))
	for i := range p.columns {
		arrays[i], names[i] = "pg_catalog.unnest($"+strconv.Itoa(params+i+1)+")", columnName(i)
	}
	return "(SELECT " + p.outputs() + " FROM ROWS FROM (" + strings.Join(arrays, ", ") + ") AS u(" + strings.Join(names, ", ") + "))"
}

// ship pulls what is sent along, and runs the rest. If the rows are too many after all, it pulls the others too. All is seen at one moment.
func (s *session) ship(c *composing, pulls []pull, how *shipping, into *basin, to rowTaker) (int64, *pgerr.Error) {
	s.startSnapshot()
	first, last := phase{}, phase{how.kept: nil}
	for _, i := range how.shipped {
		first[i] = nil
	}
	if refused := s.runPhase(c, pulls, first, into); refused != nil {
		return 0, refused
	}
	size := int64(0)
	for _, i := range how.shipped {
		size += into.spools[i].size
	}
	if size <= maxShipped {
		return s.runRest(c, how, into, to)
	}
	if refused := s.runPhase(c, pulls, last, into); refused != nil {
		return 0, refused
	}
	return s.finish(c, into, to)
}

// startSnapshot begins a transaction of the statement's own, in which all that it asks a shard is of one moment.
func (s *session) startSnapshot() {
	s.startBlock()
	s.tx.begin = "BEGIN ISOLATION LEVEL REPEATABLE READ"
}

// runRest runs what is left of a statement, with the rows that are sent along.
func (s *session) runRest(c *composing, how *shipping, from *basin, to rowTaker) (int64, *pgerr.Error) {
	bind, refused := s.bindRest(c, how, from)
	if refused != nil {
		return 0, refused
	}
	counted := &countedRows{to: to}
	refused = s.runQuery(&queryRun{statement: how.rest, bind: bind, params: how.rest.oids, formats: c.formats, to: counted, allowed: true})
	return counted.rows, refused
}

// bindRest are the parameters of what is left of a statement: the client's, and the rows that are sent along.
func (s *session) bindRest(c *composing, how *shipping, from *basin) (*wire.Bind, *pgerr.Error) {
	formats, values := c.values()
	for _, i := range how.shipped {
		if !from.held.add(from.spools[i].size) {
			return nil, from.held.of.noMemory()
		}
		arrays, refused := from.arrays(i)
		if refused != nil {
			return nil, refused
		}
		for _, array := range arrays {
			formats, values = append(formats, 1), append(values, array)
		}
	}
	return bindOf(formats, values)
}

// countedRows counts rows that it passes on.
type countedRows struct {
	to   rowTaker
	rows int64
}

func (r *countedRows) begin() { r.to.begin() }

func (r *countedRows) take(row []byte) *pgerr.Error {
	r.rows++
	return r.to.take(row)
}
