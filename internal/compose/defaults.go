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
	// Columns are all that it has. Defaults are those of them whose defaults are computed from the current time.
	Columns  []string
	Defaults []Default
	// Values is how many values the rows have that a query gives an INSERT without a list of columns; below 0 if that is not known.
	Values int
}

// Default is what a column becomes of which nobody says what it becomes.
type Default struct{ Column, SQL string }

// ErrWidth says that an INSERT does not tell how many columns its query gives.
var ErrWidth = errors.New("how many columns the query gives is not known")

// InsertedQuery is the query of an INSERT.
func InsertedQuery(sql string) (string, error) {
	tree, err := pgquery.Parse(sql)
	if err != nil {
		return "", fmt.Errorf("read the statement: %w", err)
	}
	if len(tree.Stmts) != 1 {
		return "", ErrForm
	}
	insert := queryIn(tree.Stmts[0].Stmt).GetInsertStmt()
	query := insert.GetSelectStmt().GetSelectStmt()
	if query == nil || insert.WithClause != nil && query.WithClause != nil {
		return "", ErrForm
	}
	if insert.WithClause != nil {
		query.WithClause = insert.WithClause
	}
	return writeSQL(asNode(query))
}

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
	names, added, err := t.leftOut(given)
	if err != nil {
		return err
	}
	if len(n.Cols) == 0 && len(names) > 0 {
		n.Cols = columnNodes(given)
	}
	n.Cols = append(n.Cols, columnNodes(names)...)
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
	given, err := namedColumns(n.Cols)
	switch {
	case err != nil || len(given) > 0 || query == nil:
		return given, err
	case t.Values < 0:
		return nil, ErrWidth
	case t.Values > len(t.Columns):
		return nil, ErrForm
	}
	return slices.Clone(t.Columns[:t.Values]), nil
}

// replaceIn puts defaults in the place of the words DEFAULT in VALUES.
func (t *Stored) replaceIn(query *pgquery.SelectStmt, columns []string) error {
	for _, row := range query.ValuesLists {
		if err := t.replaceDefaults(row.GetList().GetItems(), columns); err != nil {
			return err
		}
	}
	return nil
}

// replaceDefaults does that for values of these columns.
func (t *Stored) replaceDefaults(values []*pgquery.Node, columns []string) error {
	for i, value := range values {
		if value.GetSetToDefault() == nil || i >= len(columns) {
			continue
		}
		by, err := t.expression(columns[i])
		if err != nil {
			return err
		}
		if by != nil {
			values[i] = by
		}
	}
	return nil
}

// namedColumns are the names in a list of columns.
func namedColumns(list []*pgquery.Node) ([]string, error) {
	var columns []string
	for _, n := range list {
		if len(n.GetResTarget().GetIndirection()) > 0 {
			return nil, ErrForm
		}
		columns = append(columns, n.GetResTarget().GetName())
	}
	return columns, nil
}

// addOutputs adds values to all rows of a query. Where rows that are equal count once, or rows are compared, what is added must be the same in all.
func addOutputs(query *pgquery.SelectStmt, values []*pgquery.Node) error {
	if len(values) == 0 {
		return nil
	}
	isOn := len(query.DistinctClause) > 0 && query.DistinctClause[0].GetNode() != nil // which looks at other values
	if query.Larg != nil && !query.All || len(query.DistinctClause) > 0 && !isOn {
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

// IsSameForAll says whether a default calls nothing but what is surely the same throughout a statement.
func IsSameForAll(sql string) bool {
	value, err := (&Stored{Defaults: []Default{{SQL: sql}}}).expression("")
	return err == nil && isSameForAll(value)
}

// isSameForAll says whether an expression calls nothing but what is surely the same throughout a statement.
func isSameForAll(value *pgquery.Node) bool {
	same := true
	each(value, func(m proto.Message) bool {
		if call, is := m.(*pgquery.FuncCall); is {
			schema, name := qualified(call.Funcname)
			same = same && (name == parentheses || schema == "pg_catalog" && (momentFunctions[name] || ofTimes[name]))
		}
		return same
	})
	return same
}

// ofTimes are functions of PostgreSQL's that compute a time from another one.
var ofTimes = map[string]bool{
	"timezone": true, "date_trunc": true, "date_part": true, "date_bin": true, "extract": true, "to_char": true, "make_interval": true, "age": true, "justify_interval": true, "tstzrange": true,
	"tsrange": true, "daterange": true, "to_jsonb": true, "to_json": true, "jsonb_build_object": true, "json_build_object": true, "concat": true, "md5": true, "lower": true, "upper": true, "floor": true, "round": true,
}

// assign puts defaults in the place of the words DEFAULT in assignments.
func (t *Stored) assign(targets []*pgquery.Node) error {
	for i, n := range targets {
		target := n.GetResTarget()
		if ref := target.GetVal().GetMultiAssignRef(); ref != nil {
			if err := t.assignTogether(targets, i); err != nil {
				return err
			}
			continue
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

// assignTogether is assign for one of several columns that are set together: each of them has all values.
func (t *Stored) assignTogether(targets []*pgquery.Node, at int) error {
	ref := targets[at].GetResTarget().GetVal().GetMultiAssignRef()
	first := at - int(ref.Colno) + 1
	if first < 0 || first+int(ref.Ncolumns) > len(targets) {
		return ErrForm
	}
	values := ref.Source.GetRowExpr().GetArgs()
	if !slices.ContainsFunc(values, func(n *pgquery.Node) bool { return n.GetSetToDefault() != nil }) {
		return nil
	}
	columns, err := namedColumns(targets[first : first+int(ref.Ncolumns)])
	if err != nil {
		return err
	}
	return t.replaceDefaults(values, columns)
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
	given, err := namedColumns(when.TargetList)
	if err != nil {
		return err
	}
	if len(given) == 0 && len(when.Values) > 0 {
		if len(when.Values) > len(t.Columns) {
			return ErrForm
		}
		given = slices.Clone(t.Columns[:len(when.Values)])
		when.TargetList = columnNodes(given)
	}
	if err := t.replaceDefaults(when.Values, given); err != nil {
		return err
	}
	names, values, err := t.leftOut(given)
	when.TargetList, when.Values = append(when.TargetList, columnNodes(names)...), append(when.Values, values...)
	return err
}

// leftOut are the columns with such defaults that are not given, with the defaults.
func (t *Stored) leftOut(given []string) (names []string, values []*pgquery.Node, err error) {
	for _, d := range t.Defaults {
		if slices.Contains(given, d.Column) {
			continue
		}
		value, err := t.expression(d.Column)
		if err != nil {
			return nil, nil, err
		}
		names, values = append(names, d.Column), append(values, value)
	}
	return names, values, nil
}

// columnNodes are columns in a list of columns.
func columnNodes(names []string) []*pgquery.Node {
	nodes := make([]*pgquery.Node, len(names))
	for i, name := range names {
		nodes[i] = outputNode(nil, name)
	}
	return nodes
}

func listNode(items []*pgquery.Node) *pgquery.Node {
	return &pgquery.Node{Node: &pgquery.Node_List{List: &pgquery.List{Items: items}}}
}
