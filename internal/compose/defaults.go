package compose

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
)

// Stored is a table that a statement writes to, by the name that it has there.
type Stored struct {
	Schema, Name string
	// Columns are all that it has. Defaults are those of them that the statement leaves to their defaults, which are computed from the current time.
	Columns  []string
	Defaults []Default
	// Values is how many values the rows have that a query gives an INSERT without a list of columns; below 0 if that is not known.
	Values int
}

// Default is what a column becomes of which nobody says what it becomes.
type Default struct{ Column, SQL string }

// AtMoment writes a statement such that one moment stands wherever the current time stood: in its words, and in the defaults of columns, which are
// written out. Only Text, Literals, First and Builtin of the query are looked at. ByLiteral: what is written is right for this text alone.
func AtMoment(q Query, stored []Stored) (t Text, byLiteral bool, err error) {
	t, err = atMoment(q, stored, len(q.Literals) > 0)
	if errors.Is(err, errMarks) {
		t, err = atMoment(q, stored, false)
		return t, true, err
	}
	return t, false, err
}

func atMoment(q Query, stored []Stored, marks bool) (Text, error) {
	tree, err := pgquery.Parse(q.Text)
	if err != nil {
		return Text{}, fmt.Errorf("read the statement: %w", err)
	}
	if len(tree.Stmts) != 1 || !isWrittenWell(tree.Stmts[0].Stmt) {
		return Text{}, ErrForm
	}
	s := &splitter{q: q, root: tree.Stmts[0].Stmt, marks: marks}
	keepParentheses(s.root)
	if marks {
		s.markLiterals()
	}
	var failure error
	each(s.root, func(m proto.Message) bool {
		if failure == nil {
			failure = storeDefaults(m, stored)
		}
		return failure == nil
	})
	if failure != nil {
		return Text{}, failure
	}
	if err := s.fixMoments(); err != nil {
		return Text{}, err
	}
	if s.out.Final, err = write(s.root); err != nil || !marks {
		return s.out.Final, err
	}
	if s.shapedByRest(); len(s.out.Shaping) > 0 {
		return Text{}, errMarks
	}
	return s.out.Final, nil
}

// DefaultAt is a default that is computed from the current time, as an expression with a place for the moment. What is PostgreSQL's own in it has no schema.
func DefaultAt(sql string) (Text, error) {
	value, err := (&Stored{Defaults: []Default{{SQL: sql}}}).expression("")
	if err != nil {
		return Text{}, err
	}
	s := &splitter{root: value, q: Query{Builtin: func(schema, _ string) bool { return schema == "pg_catalog" }}}
	if err := s.fixMoments(); err != nil {
		return Text{}, err
	}
	whole, err := writeSQL(asNode(&pgquery.SelectStmt{
		TargetList: []*pgquery.Node{outputNode(value, "")}, LimitOption: pgquery.LimitOption_LIMIT_OPTION_DEFAULT, Op: pgquery.SetOperation_SETOP_NONE,
	}))
	if err != nil {
		return Text{}, err
	}
	return templateOf(strings.TrimPrefix(whole, "SELECT "))
}

// storeDefaults writes out the defaults that a statement leaves to the table.
func storeDefaults(m proto.Message, stored []Stored) error {
	find := func(v *pgquery.RangeVar) *Stored {
		at := slices.IndexFunc(stored, func(t Stored) bool { return t.Schema == v.GetSchemaname() && t.Name == v.GetRelname() })
		if at < 0 {
			return nil
		}
		return &stored[at]
	}
	switch n := m.(type) {
	case *pgquery.InsertStmt:
		if t := find(n.Relation); t != nil {
			return t.insert(n)
		}
	case *pgquery.UpdateStmt:
		if t := find(n.Relation); t != nil {
			return t.assign(n.TargetList)
		}
	case *pgquery.MergeStmt:
		if t := find(n.Relation); t != nil {
			return t.merge(n)
		}
	}
	return nil
}

// expression is the default of a column, as a tree of its own; nil if it is none of these.
func (t *Stored) expression(column string) (*pgquery.Node, error) {
	at := slices.IndexFunc(t.Defaults, func(d Default) bool { return d.Column == column })
	if at < 0 {
		return nil, nil
	}
	tree, err := pgquery.Parse("SELECT " + t.Defaults[at].SQL)
	if err != nil {
		return nil, fmt.Errorf("read the default of %q: %w", column, err)
	}
	targets := tree.Stmts[0].Stmt.GetSelectStmt().GetTargetList()
	if len(tree.Stmts) != 1 || len(targets) != 1 || !isWrittenWell(tree.Stmts[0].Stmt) {
		return nil, ErrForm
	}
	value := targets[0].GetResTarget().Val
	ofOurs(value)
	keepParentheses(value)
	return value, nil
}

// ofOurs writes the schema before functions that have none: they are PostgreSQL's own, whatever the search path is.
func ofOurs(value *pgquery.Node) {
	each(value, func(m proto.Message) bool {
		if n, isCall := m.(*pgquery.FuncCall); isCall && len(n.Funcname) == 1 {
			n.Funcname = append([]*pgquery.Node{text("pg_catalog")}, n.Funcname...)
			n.Funcformat = pgquery.CoercionForm_COERCE_EXPLICIT_CALL
		}
		return true
	})
}

// insert writes out the defaults of an INSERT.
func (t *Stored) insert(n *pgquery.InsertStmt) error {
	if n.OnConflictClause != nil {
		if err := t.assign(n.OnConflictClause.TargetList); err != nil {
			return err
		}
	}
	query := n.SelectStmt.GetSelectStmt()
	given, err := t.given(n, query)
	if err != nil {
		return err
	}
	var added []*pgquery.Node
	for _, d := range t.Defaults {
		if slices.Contains(given, d.Column) {
			continue
		}
		value, err := t.expression(d.Column)
		if err != nil {
			return err
		}
		if len(n.Cols) == 0 {
			for _, name := range given {
				n.Cols = append(n.Cols, outputNode(nil, name))
			}
		}
		n.Cols = append(n.Cols, outputNode(nil, d.Column))
		added = append(added, value)
	}
	if query == nil {
		n.SelectStmt = asNode(&pgquery.SelectStmt{
			ValuesLists: []*pgquery.Node{listNode(added)}, LimitOption: pgquery.LimitOption_LIMIT_OPTION_DEFAULT, Op: pgquery.SetOperation_SETOP_NONE,
		})
		return nil
	}
	if err := t.replaceIn(query, given); err != nil {
		return err
	}
	return addOutputs(query, added)
}

// given are the columns that an INSERT has values for.
func (t *Stored) given(n *pgquery.InsertStmt, query *pgquery.SelectStmt) ([]string, error) {
	var given []string
	for _, c := range n.Cols {
		if len(c.GetResTarget().GetIndirection()) > 0 {
			return nil, ErrForm
		}
		given = append(given, c.GetResTarget().GetName())
	}
	switch {
	case len(given) > 0 || query == nil:
		return given, nil
	case t.Values < 0 || t.Values > len(t.Columns):
		return nil, ErrForm
	}
	return slices.Clone(t.Columns[:t.Values]), nil
}

// replaceIn puts defaults in the place of the words DEFAULT in VALUES.
func (t *Stored) replaceIn(query *pgquery.SelectStmt, columns []string) error {
	for _, row := range query.ValuesLists {
		for i, value := range row.GetList().GetItems() {
			if value.GetSetToDefault() == nil || i >= len(columns) {
				continue
			}
			by, err := t.expression(columns[i])
			if err != nil {
				return err
			}
			if by != nil {
				row.GetList().Items[i] = by
			}
		}
	}
	return nil
}

// addOutputs adds values to all rows of a query. Where rows that are equal count once, or rows are compared, what is added must be the same in all.
func addOutputs(query *pgquery.SelectStmt, values []*pgquery.Node) error {
	if len(values) == 0 {
		return nil
	}
	if query.Larg != nil || len(query.DistinctClause) > 0 {
		for _, value := range values {
			if !isSameForAll(value) {
				return ErrForm
			}
		}
	}
	if query.Larg != nil {
		if err := addOutputs(query.Larg, values); err != nil {
			return err
		}
		return addOutputs(query.Rarg, values)
	}
	for _, row := range query.ValuesLists {
		for _, value := range values {
			row.GetList().Items = append(row.GetList().Items, clone(value))
		}
	}
	if len(query.ValuesLists) == 0 {
		for _, value := range values {
			query.TargetList = append(query.TargetList, outputNode(clone(value), ""))
		}
	}
	return nil
}

// isSameForAll says whether an expression calls nothing but what is surely the same throughout a statement.
func isSameForAll(value *pgquery.Node) bool {
	same := true
	each(value, func(m proto.Message) bool {
		if call, is := m.(*pgquery.FuncCall); is {
			_, name := qualified(call.Funcname)
			same = same && (momentFunctions[name] || ofTimes[name])
		}
		return same
	})
	return same
}

// ofTimes are functions of PostgreSQL's that compute a time from another one.
var ofTimes = map[string]bool{"timezone": true, "date_trunc": true, "date_part": true, "extract": true, "to_char": true, "make_interval": true, parentheses: true}

// assign puts defaults in the place of the words DEFAULT in assignments.
func (t *Stored) assign(targets []*pgquery.Node) error {
	for _, n := range targets {
		target := n.GetResTarget()
		if ref := target.GetVal().GetMultiAssignRef(); ref != nil && hasDefault(ref.Source) {
			return ErrForm
		}
		if target.GetVal().GetSetToDefault() == nil {
			continue
		}
		by, err := t.expression(target.Name)
		if err != nil {
			return err
		}
		if by != nil {
			target.Val = by
		}
	}
	return nil
}

func hasDefault(n *pgquery.Node) bool {
	found := false
	each(n, func(m proto.Message) bool {
		_, is := m.(*pgquery.SetToDefault)
		found = found || is
		return !found
	})
	return found
}

// merge writes out the defaults of a MERGE.
func (t *Stored) merge(n *pgquery.MergeStmt) error {
	for _, clause := range n.MergeWhenClauses {
		when := clause.GetMergeWhenClause()
		switch when.GetCommandType() {
		case pgquery.CmdType_CMD_UPDATE:
			if err := t.assign(when.TargetList); err != nil {
				return err
			}
		case pgquery.CmdType_CMD_INSERT:
			if err := t.mergeInsert(when); err != nil {
				return err
			}
		default:
		}
	}
	return nil
}

func (t *Stored) mergeInsert(when *pgquery.MergeWhenClause) error {
	var given []string
	for _, c := range when.TargetList {
		if len(c.GetResTarget().GetIndirection()) > 0 {
			return ErrForm
		}
		given = append(given, c.GetResTarget().GetName())
	}
	if len(given) == 0 && len(when.Values) > 0 {
		if len(when.Values) > len(t.Columns) {
			return ErrForm
		}
		given = slices.Clone(t.Columns[:len(when.Values)])
		for _, name := range given {
			when.TargetList = append(when.TargetList, outputNode(nil, name))
		}
	}
	for i, value := range when.Values {
		if value.GetSetToDefault() == nil || i >= len(given) {
			continue
		}
		by, err := t.expression(given[i])
		if err != nil {
			return err
		}
		if by != nil {
			when.Values[i] = by
		}
	}
	for _, d := range t.Defaults {
		if slices.Contains(given, d.Column) {
			continue
		}
		value, err := t.expression(d.Column)
		if err != nil {
			return err
		}
		when.TargetList, when.Values = append(when.TargetList, outputNode(nil, d.Column)), append(when.Values, value)
	}
	return nil
}

func listNode(items []*pgquery.Node) *pgquery.Node {
	return &pgquery.Node{Node: &pgquery.Node_List{List: &pgquery.List{Items: items}}}
}
