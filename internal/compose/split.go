package compose

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/cleavedb/cleave/internal/sqltext"
)

// Table is a relation that a query names at one place.
type Table struct {
	// Start is the place of its name in the text, Name what it is called wherever it is named.
	Start int
	Name  string
	// Columns are its columns in order. Unknown: nobody knows them, so it is pulled as it is.
	Columns []string
	Unknown bool
	// Ungroupable are those of its columns whose type has no equality that PostgreSQL groups by, such as json.
	Ungroupable []string
	// Own: the router itself has its rows. Stays: it is where the final statement runs, and is not pulled.
	Own, Stays bool
	// Reads are the names of the tables whose rows it has, itself or those behind a view; none: nobody knows. Runs: writing to it may change other tables.
	Reads []string
	Runs  bool
}

// sharesRows says whether both may have rows of the same table.
func (t *Table) sharesRows(other *Table) bool {
	return len(t.Reads) == 0 || len(other.Reads) == 0 || slices.ContainsFunc(t.Reads, func(name string) bool { return slices.Contains(other.Reads, name) })
}

// Query is what is to be taken apart.
type Query struct {
	// Text is the query, or a statement with the query in it: EXPLAIN and its like. Tables are all relations in it, but for common table expressions.
	Text   string
	Tables []Table
	// Literals are those of the text, with their places in it; First is the number of the first of them.
	Literals []sqltext.Literal
	First    int
	// Given are pieces of the text that are not the client's, so that their constants are what they are.
	Given []Span
	// Steady says whether a function gives the same answer for the same values throughout a statement, and changes nothing. Builtin says whether
	// a function's name can only mean one of PostgreSQL's own, SteadyOperator is Steady for operators.
	Steady, Builtin, SteadyOperator func(schema, name string) bool
	// Aggregate says whether a function may be an aggregate. Divides says whether every shard can answer a query for its own rows, such that all answers
	// together are that of the whole; nil: nobody knows.
	Aggregate func(schema, name string) bool
	Divides   func(sql string) bool
	// Target is set for a statement that writes.
	Target *Target
}

// Span is a piece of a text.
type Span struct{ Start, End int }

// Composition is how a query is answered in steps.
type Composition struct {
	Kind  Kind
	Pulls []Pull
	// Inserted are the columns that an INSERT names, or all of its table; KeyColumns are the places of the key's columns among them.
	Inserted   []string
	KeyColumns []int
	// Moves: it is an UPDATE, and what is inserted are rows that it has taken away.
	Moves bool
	// Written is set if the kind is Copied.
	Written Written
	// Final is the statement that finishes the work.
	Final Text
	// Merge says how the rows of the only pull become the answer without the final statement; nil if they do not.
	Merge *Merge
	// Links are columns of pulls that are compared: rows of the one whose value the other does not have do not matter.
	Links []Link
	// Unlike are columns that must not be of certain types, or it is not right and Else is to be used.
	Unlike []Unlike
	Else   *Composition
	// Shaping are the literals on whose values it depends. ByLiteral: it is right for this text alone.
	Shaping   []int
	ByLiteral bool
}

// Link says that rows of a pull matter only if a column has one of the values of a column of another.
type Link struct {
	Pull, Column           int
	OtherPull, OtherColumn int
}

// Pull is a query for rows that the final statement needs.
type Pull struct {
	// Table is the first of the query's tables that it stands for.
	Table int
	// SQL is the query. What the router itself has needs none.
	SQL Text
	// Own: the router itself has the rows, of its view Name.
	Own  bool
	Name string
	// Columns are those that are needed, in the order of the table's. There may be none: then only the number of rows counts. All: they
	// are all that the table has, whatever these are.
	Columns []string
	All     bool
	// Any: it is any statement, which may be run in steps itself. Writes: it is no query.
	Any, Writes bool
	// Core is what says where it runs, if it is not SQL itself: its rows are those that SQL makes its own of.
	Core Text
	// Numbered: in the final statement its columns are called c0, c1 and so on; the first of them are Hidden.
	Numbered bool
	Hidden   int
	// Collated are columns whose collation the query names, which counts for more than one that a column has.
	Collated []int
	// Indexed are columns by which its rows are looked for, one by one.
	Indexed []string
	// Where: conditions are part of it. Why is why every shard can compute it alone.
	Where bool
	Why   string
}

// Place is the text that says where the pull runs.
func (p *Pull) Place() Text {
	if len(p.Core.pieces) > 0 {
		return p.Core
	}
	return p.SQL
}

// ErrForm says that a query has a form that is not taken apart.
var ErrForm = errors.New("the query has a form that is not taken apart")

// Split takes a query apart.
func Split(q Query) (*Composition, error) {
	c, err := split(q, true)
	if errors.Is(err, errMarks) {
		if c, err = split(q, false); c != nil {
			c.ByLiteral = true
		}
	}
	if err != nil || len(c.Unlike) == 0 {
		return c, err
	}
	q.Divides = nil
	if c.Else, err = Split(q); err != nil {
		return nil, err
	}
	for _, number := range c.Else.Shaping {
		if !slices.Contains(c.Shaping, number) {
			c.Shaping = append(c.Shaping, number)
		}
	}
	c.ByLiteral = c.ByLiteral || c.Else.ByLiteral
	return c, nil
}

// splitter takes one query apart.
type splitter struct {
	q      Query
	root   *pgquery.Node
	marks  bool
	out    Composition
	tables map[int]*occurrence // by their places
	order  []*occurrence
	known  map[string]int // pulls by their texts
	// repeated are pulls that give the same rows each time.
	repeated map[int]bool
	// locks: rows of tables are to be locked; locked: the only pull does that.
	locks, locked bool
	// joints are conditions about several tables; query is the one that is looked at.
	joints []joint
	query  *pgquery.SelectStmt
	// equal are columns that are asked to be equal.
	equal []equal
	// asWritten are queries that must not become others.
	asWritten map[*pgquery.SelectStmt]bool
}

// occurrence is one place where a table is named.
type occurrence struct {
	index int
	table *Table
	v     *pgquery.RangeVar
	// sample is TABLESAMPLE around it, nil if there is none.
	sample *pgquery.RangeTableSample
	// whole: all columns are needed, in their order. renamed: its columns have other names in the query.
	whole, renamed bool
	// conditions are those that are about it alone; implied are such that follow from others, which stay. indexed are columns by which single rows of it are
	// looked for.
	conditions, implied []*pgquery.Node
	indexed             []string
	// number is that of its pull, -1 if it has none; columnAt are the places of its columns there.
	number   int
	columnAt map[string]int
}

// name is what it is called in the query.
func (o *occurrence) name() string {
	if o.v.Alias != nil {
		return o.v.Alias.Aliasname
	}
	return o.v.Relname
}

func split(q Query, marks bool) (*Composition, error) {
	tree, err := pgquery.Parse(q.Text)
	if err != nil {
		return nil, fmt.Errorf("read the query: %w", err)
	}
	if len(tree.Stmts) != 1 {
		return nil, ErrForm
	}
	root := queryIn(tree.Stmts[0].Stmt)
	if root.GetSelectStmt() == nil && q.Target == nil || !isWrittenWell(root) {
		return nil, ErrForm
	}
	keepParentheses(root)
	s := &splitter{q: q, root: root, marks: marks, tables: map[int]*occurrence{}, known: map[string]int{}, repeated: map[int]bool{}, asWritten: map[*pgquery.SelectStmt]bool{}}
	if err := s.find(); err != nil {
		return nil, err
	}
	if err := s.fixMoments(); err != nil {
		return nil, err
	}
	if marks {
		s.markLiterals()
	}
	if err := s.take(); err != nil {
		return nil, err
	}
	if s.leavesTables() {
		return nil, ErrForm
	}
	if s.locks && !s.locked { // rows have to be locked where they are, and no others
		return nil, ErrForm
	}
	s.shortenNames()
	if s.out.Final, err = write(s.root); err != nil {
		return nil, err
	}
	s.share()
	if marks {
		s.shapedByRest()
	}
	return &s.out, nil
}

// leavesTables says whether the final statement names a table whose rows are elsewhere. Nothing above should leave one; it would be read on one shard alone.
func (s *splitter) leavesTables() bool {
	left := false
	each(s.root, func(m proto.Message) bool {
		if v, isTable := m.(*pgquery.RangeVar); isTable && v.Location >= 0 && !strings.HasPrefix(v.Relname, mark) {
			left = left || slices.ContainsFunc(s.q.Tables, func(t Table) bool { return t.Start == int(v.Location) && !t.Stays })
		}
		return !left
	})
	return left
}

// take takes the statement apart.
func (s *splitter) take() error {
	if err := s.writingCommons(); err != nil {
		return err
	}
	if s.root.GetSelectStmt() == nil {
		return s.write()
	}
	s.collectUngroupable()
	s.keepAsWritten()
	s.blocks()
	s.needs()
	s.conditions()
	if err := s.joins(); err != nil {
		return err
	}
	return s.pulls()
}

// queryIn is the query itself, or that inside of a statement which has one.
func queryIn(n *pgquery.Node) *pgquery.Node {
	switch outer := n.GetNode().(type) {
	case *pgquery.Node_ExplainStmt:
		return queryIn(outer.ExplainStmt.Query)
	case *pgquery.Node_DeclareCursorStmt:
		return outer.DeclareCursorStmt.Query
	case *pgquery.Node_CopyStmt:
		return outer.CopyStmt.Query
	case *pgquery.Node_CreateTableAsStmt:
		return outer.CreateTableAsStmt.Query
	default:
		return n
	}
}

// find finds the tables in the tree.
func (s *splitter) find() error {
	byStart := map[int]int{}
	for i, t := range s.q.Tables {
		byStart[t.Start] = i
	}
	samples := map[*pgquery.RangeVar]*pgquery.RangeTableSample{}
	var failure error
	count := 0
	each(s.root, func(m proto.Message) bool {
		switch n := m.(type) {
		case *pgquery.RangeTableSample:
			samples[n.Relation.GetRangeVar()] = n
		case *pgquery.LockingClause:
			if !slices.ContainsFunc(s.root.GetSelectStmt().GetLockingClause(), func(l *pgquery.Node) bool { return l.GetLockingClause() == n }) {
				failure = ErrForm
			}
			s.locks = true
			return false // it names tables as the query calls them
		case *pgquery.IntoClause:
			failure = ErrForm
		case *pgquery.RangeVar:
			if i, found := byStart[int(n.Location)]; found {
				isRenamed := len(n.GetAlias().GetColnames()) > 0
				o := &occurrence{index: i, table: &s.q.Tables[i], v: n, sample: samples[n], number: -1, whole: isRenamed, renamed: isRenamed}
				s.tables[int(n.Location)] = o
				count++
				if !o.table.Stays {
					s.order = append(s.order, o)
				}
			}
		}
		return failure == nil
	})
	if failure == nil && (count != len(s.q.Tables) || s.hidesSchema()) {
		failure = ErrForm
	}
	return failure
}

// hidesSchema says whether a column is named with a schema, and something else than that table has the table's name somewhere: what was pulled has no schema.
func (s *splitter) hidesSchema() bool {
	called := map[string][]string{} // schemas of all that has a name; "." for what has none
	alias := func(a *pgquery.Alias) {
		if a != nil {
			called[a.Aliasname] = append(called[a.Aliasname], ".")
		}
	}
	each(s.root, func(m proto.Message) bool {
		switch n := m.(type) {
		case *pgquery.RangeVar:
			if n.Alias == nil {
				called[n.Relname] = append(called[n.Relname], n.Schemaname)
			}
			alias(n.Alias)
		case *pgquery.RangeSubselect:
			alias(n.Alias)
		case *pgquery.RangeFunction:
			alias(n.Alias)
		case *pgquery.RangeTableFunc:
			alias(n.Alias)
		case *pgquery.JoinExpr:
			alias(n.Alias)
			alias(n.JoinUsingAlias)
		}
		return true
	})
	hidden := false
	each(s.root, func(m proto.Message) bool {
		if c, isColumn := m.(*pgquery.ColumnRef); isColumn {
			parts, star := names(c.Fields)
			if star {
				parts = append(parts, "*")
			}
			if len(parts) > 2 {
				schemas := called[parts[len(parts)-2]]
				hidden = hidden || slices.ContainsFunc(schemas, func(schema string) bool { return schema != schemas[0] })
			}
		}
		return !hidden
	})
	return hidden
}

// content is the statement that a node holds.
func content(n *pgquery.Node) proto.Message {
	switch s := n.GetNode().(type) {
	case *pgquery.Node_InsertStmt:
		return s.InsertStmt
	case *pgquery.Node_UpdateStmt:
		return s.UpdateStmt
	case *pgquery.Node_DeleteStmt:
		return s.DeleteStmt
	case *pgquery.Node_MergeStmt:
		return s.MergeStmt
	default:
		return nil
	}
}

// markLiterals opens the places of literals.
func (s *splitter) markLiterals() {
	l := literalsOf(s.q.Text, s.q.Literals)
	l.first, l.given = s.q.First, s.q.Given
	each(s.root, func(m proto.Message) bool {
		switch n := m.(type) {
		case *pgquery.TypeName: // its modifiers shape the plan
			return false
		case *pgquery.A_Const:
			l.mark(n)
		}
		return true
	})
}

// pulls makes a pull of every table, and puts a place for what was pulled where its name was.
func (s *splitter) pulls() error {
	for _, o := range s.order {
		o.meets()
	}
	s.groupByDecided()
	used := s.usedNames()
	for _, o := range s.order {
		number, err := s.pull(o, used)
		if err != nil {
			return err
		}
		s.replace(o, number)
		o.number, o.columnAt = number, map[string]int{}
		for i, c := range s.out.Pulls[number].Columns {
			o.columnAt[c] = i
		}
	}
	s.link()
	each(s.root, func(m proto.Message) bool { // a sample was taken where the rows are
		if n, isNode := m.(*pgquery.Node); isNode {
			if sample := n.GetRangeTableSample(); sample != nil && s.isPulled(sample) {
				n.Node = sample.Relation.Node
			}
		}
		return true
	})
	return nil
}

// meets takes a table's conditions out of the final statement.
func (o *occurrence) meets() {
	for i, c := range o.conditions {
		o.conditions[i] = clone(c)
		isMet(c)
	}
	o.conditions = append(o.conditions, o.implied...)
	o.implied = nil
}

// isMet takes a condition out of the final statement that all rows of a pull meet: a server would count on it to leave out some of them.
func isMet(condition *pgquery.Node) {
	condition.Node = &pgquery.Node_AConst{AConst: &pgquery.A_Const{Val: &pgquery.A_Const_Boolval{Boolval: &pgquery.Boolean{Boolval: true}}, Location: -1}}
}

func (s *splitter) isPulled(sample *pgquery.RangeTableSample) bool {
	return slices.ContainsFunc(s.order, func(o *occurrence) bool { return o.sample == sample })
}

// pull returns the number of the pull for a table.
func (s *splitter) pull(o *occurrence, used map[string]bool) (int, error) {
	p := Pull{Table: o.index, Own: o.table.Own, Where: len(o.conditions) > 0, All: o.table.Unknown, Indexed: o.indexed}
	for _, c := range o.table.Columns {
		if o.whole || used[c] || o.table.Own {
			p.Columns = append(p.Columns, c)
		}
	}
	if p.Own {
		p.Name = o.v.Relname
	} else {
		var err error
		if p.SQL, err = write(s.pullQuery(o, p.Columns)); err != nil {
			return 0, err
		}
	}
	key := s.valueOf(p.SQL)
	if p.Own {
		key = "own " + o.v.Relname
	}
	if number, known := s.known[key]; known && o.sample == nil {
		if before := s.out.Pulls[number].SQL; before.String() != p.SQL.String() { // it is the same because literals are equal
			s.shapedByText(before)
			s.shapedByText(p.SQL)
		}
		for _, c := range p.Indexed {
			if before := &s.out.Pulls[number]; !slices.Contains(before.Indexed, c) {
				before.Indexed = append(before.Indexed, c)
			}
		}
		return number, nil
	}
	s.known[key] = len(s.out.Pulls)
	s.out.Pulls = append(s.out.Pulls, p)
	return len(s.out.Pulls) - 1, nil
}

// pullQuery is the query for a table's rows.
func (s *splitter) pullQuery(o *occurrence, columns []string) *pgquery.Node {
	relation := clone(o.v)
	name := relation.Relname
	relation.Alias = &pgquery.Alias{Aliasname: name} // also if it is called otherwise, so that a table that is named twice is pulled once
	source := &pgquery.Node{Node: &pgquery.Node_RangeVar{RangeVar: relation}}
	if o.sample != nil {
		sample := clone(o.sample)
		sample.Relation = source
		source = &pgquery.Node{Node: &pgquery.Node_RangeTableSample{RangeTableSample: sample}}
	}
	query := &pgquery.SelectStmt{FromClause: []*pgquery.Node{source}, LimitOption: pgquery.LimitOption_LIMIT_OPTION_DEFAULT, Op: pgquery.SetOperation_SETOP_NONE}
	for _, c := range columns {
		query.TargetList = append(query.TargetList, outputNode(columnNode(name, c), ""))
	}
	if o.table.Unknown {
		query.TargetList = []*pgquery.Node{outputNode(pgquery.MakeColumnRefNode([]*pgquery.Node{pgquery.MakeAStarNode()}, -1), "")}
	}
	var conditions []*pgquery.Node
	for _, c := range o.conditions {
		conditions = append(conditions, renamed(clone(c), name))
	}
	query.WhereClause = allOf(conditions)
	return &pgquery.Node{Node: &pgquery.Node_SelectStmt{SelectStmt: query}}
}

// renamed gives the table that all columns of a condition belong to another name.
func renamed(condition *pgquery.Node, table string) *pgquery.Node {
	each(condition, func(m proto.Message) bool {
		if c, isColumn := m.(*pgquery.ColumnRef); isColumn && len(c.Fields) > 1 {
			c.Fields[0] = text(table)
		}
		return true
	})
	return condition
}

// replace puts the place for what was pulled where a table's name was.
func (s *splitter) replace(o *occurrence, number int) {
	if o.v.Alias == nil {
		o.v.Alias = &pgquery.Alias{Aliasname: o.v.Relname}
	}
	o.v.Catalogname, o.v.Schemaname, o.v.Relname, o.v.Inh = "", "", pullMark(number), true
}

// shortenNames takes the schema out of columns' names: what was pulled has none.
func (s *splitter) shortenNames() {
	each(s.root, func(m proto.Message) bool {
		if c, isColumn := m.(*pgquery.ColumnRef); isColumn {
			if parts, star := names(c.Fields); len(parts) > 2 || star && len(parts) == 2 {
				keep := 2
				c.Fields = c.Fields[len(c.Fields)-keep:]
			}
		}
		return true
	})
}
