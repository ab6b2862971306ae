package facts

import (
	"slices"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxLevels is how deep the walk goes into a tree. The decoder of trees stops earlier; this holds should it ever not.
const maxLevels = 20000

// walker goes through the tree of one statement and writes down what it sees.
type walker struct {
	tokens tokens
	out    *Statement
	// names are the common table expressions that can be seen from here.
	names *scope
	// block is the query that is walked, queries where one that is found inside of it is to be written down.
	block   *Block
	queries *[]*Block
	// windows are the named ones of the query; calling are the calls, as indexes, in whose arguments the walk is.
	windows []*pgquery.Node
	calling []int
	// naming: what is walked may give something its name.
	naming bool
	// role is what a relation is that nobody gave a role; roles are those that somebody did.
	role  Role
	roles map[*pgquery.RangeVar]Role
	// places are the calls that stand elsewhere than in an expression.
	places map[*pgquery.FuncCall]place
	// relationNames are the system columns that are used for the name of a relation.
	relationNames map[*pgquery.ColumnRef]bool
	// skipped are parts of the tree that have been seen to, or that name nothing.
	skipped map[proto.Message]bool
	// seenFields and the others are those that were written down.
	seenFields    map[string]bool
	seenAlone     map[string]bool
	seenTypes     map[Name]bool
	seenCasts     map[Name]bool
	seenOperators map[Name]bool
	// foreign are foreign keys whose tables are still to be found.
	foreign []foreignKey
	level   int
	tooDeep bool
}

type place struct {
	where                    CallPlace
	aliased, modified, names bool
}

// scope is a list of common table expressions, inner ones first.
type scope struct {
	common *Common
	outer  *scope
}

// find returns what has a name; nil if nothing has.
func (s *scope) find(name string) *Common {
	for ; s != nil; s = s.outer {
		if s.common.Name == name {
			return s.common
		}
	}
	return nil
}

// statement returns the facts of a statement, which may be inside of another one.
func (w *walker) statement(node *pgquery.Node) *Statement {
	inner := &walker{
		tokens: w.tokens, names: w.names, level: w.level + 1, out: &Statement{},
		roles: map[*pgquery.RangeVar]Role{}, places: map[*pgquery.FuncCall]place{}, skipped: map[proto.Message]bool{}, relationNames: map[*pgquery.ColumnRef]bool{},
		seenFields: map[string]bool{}, seenAlone: map[string]bool{}, seenTypes: map[Name]bool{}, seenCasts: map[Name]bool{}, seenOperators: map[Name]bool{},
		block: &Block{}, // for what is in no query
	}
	inner.queries = &inner.block.Queries
	inner.top(node)
	w.tooDeep = w.tooDeep || inner.tooDeep
	return inner.out
}

// top reads what stands at the top of a statement.
func (w *walker) top(node *pgquery.Node) {
	message := content(node)
	if message == nil {
		return
	}
	w.out.Kind = kindOf(message)
	switch q := message.(type) {
	case *pgquery.SelectStmt:
		for _, call := range onlyCalls(q) {
			w.places[call] = place{where: Alone}
		}
		w.out.Query = w.selection(q, From, false)
	case *pgquery.InsertStmt:
		w.out.Query = w.insert(q, Target)
	case *pgquery.UpdateStmt:
		w.out.Query = w.update(q, Target)
	case *pgquery.DeleteStmt:
		w.out.Query = w.delete(q, Target)
	case *pgquery.MergeStmt:
		w.out.Query = w.merge(q)
	default:
		w.role = Subject
		w.utility(message)
		w.fields(message.ProtoReflect())
		w.linkForeign()
		for i := range w.out.Tables { // COPY … FROM writes to its table
			w.out.Tables[i].Written = w.out.Tables[i].Written || w.out.Options.From
		}
	}
	w.out.Name = tagOf(message)
}

// content returns what a node holds, nil for none. What most nodes hold is found without a look at their description, which takes
// longer.
func content(node *pgquery.Node) proto.Message {
	if node == nil {
		return nil
	}
	switch n := node.Node.(type) {
	case *pgquery.Node_ColumnRef:
		return n.ColumnRef
	case *pgquery.Node_AConst:
		return n.AConst
	case *pgquery.Node_AExpr:
		return n.AExpr
	case *pgquery.Node_String_:
		return n.String_
	case *pgquery.Node_ResTarget:
		return n.ResTarget
	case *pgquery.Node_List:
		return n.List
	case *pgquery.Node_ParamRef:
		return n.ParamRef
	case *pgquery.Node_RangeVar:
		return n.RangeVar
	case *pgquery.Node_FuncCall:
		return n.FuncCall
	case *pgquery.Node_TypeCast:
		return n.TypeCast
	case nil:
		return nil
	}
	m := node.ProtoReflect()
	field := m.WhichOneof(m.Descriptor().Oneofs().Get(0))
	if field == nil {
		return nil
	}
	return m.Get(field).Message().Interface()
}

func kindOf(message proto.Message) Kind {
	return Kind(message.ProtoReflect().Descriptor().Name())
}

// visit walks one part of the tree, whatever it is.
func (w *walker) visit(message proto.Message) {
	if w.skipped[message] {
		return
	}
	if w.level++; w.level > maxLevels {
		w.tooDeep = true
		w.level--
		return
	}
	defer func() { w.level-- }()
	switch m := message.(type) {
	case *pgquery.Node:
		if inside := content(m); inside != nil {
			w.visit(inside)
		}
	case *pgquery.A_Const, *pgquery.String, *pgquery.ParamRef: // nothing is named in them
	case *pgquery.List:
		w.visitAll(m.Items)
	case *pgquery.SelectStmt:
		w.found(w.nested(func() *Block { return w.selection(m, Nested, false) }))
	case *pgquery.InsertStmt:
		w.found(w.nested(func() *Block { return w.insert(m, Nested) }))
	case *pgquery.UpdateStmt:
		w.found(w.nested(func() *Block { return w.update(m, Nested) }))
	case *pgquery.DeleteStmt:
		w.found(w.nested(func() *Block { return w.delete(m, Nested) }))
	case *pgquery.MergeStmt:
		w.found(w.nested(func() *Block { return w.merge(m) }))
	case *pgquery.RangeVar:
		w.relation(m)
	case *pgquery.IntoClause:
		w.created(m.Rel)
		w.fields(m.ProtoReflect())
	case *pgquery.TableLikeClause:
		w.roles[m.Relation] = Like
		w.fields(m.ProtoReflect())
	case *pgquery.Constraint:
		w.roles[m.Pktable] = Referenced
		w.fields(m.ProtoReflect())
	case *pgquery.ResTarget:
		w.inNames(m.Name == "", m.ProtoReflect())
	case *pgquery.FuncCall:
		if name := lastName(m.Funcname); w.naming && (name == "now" || name == "transaction_timestamp") {
			w.out.TimeNames = true
		}
		w.inCall(w.call(m), m.ProtoReflect())
	case *pgquery.RangeFunction:
		w.rangeFunction(m)
		w.inNames(true, m.ProtoReflect())
	case *pgquery.ColumnRef:
		w.column(m)
	case *pgquery.A_Indirection:
		w.behindDots(m.Indirection)
		w.fields(m.ProtoReflect())
	case *pgquery.TypeCast:
		if operandOf(m.Arg).Kind == Expression {
			w.computedCast(m.TypeName)
		}
		w.nameOfRelation(m)
		w.fields(m.ProtoReflect())
	case *pgquery.JsonAggConstructor:
		if m.Over != nil {
			w.block.Windows = append(w.block.Windows, w.partition(m.Over))
		}
		w.fields(m.ProtoReflect())
	case *pgquery.SQLValueFunction:
		w.out.Moments = true
		if tellsTime(m.Op) {
			w.out.Clocks++
			w.out.TimeNames = w.out.TimeNames || w.naming
		}
		w.fields(m.ProtoReflect())
	case *pgquery.TypeName:
		w.typeName(m)
		w.fields(m.ProtoReflect())
	case *pgquery.A_Expr:
		w.operators(m)
		w.fields(m.ProtoReflect())
	case *pgquery.SubLink:
		w.operatorOf(m)
		w.fields(m.ProtoReflect())
	case *pgquery.SortBy:
		w.operator(m.UseOp)
		w.fields(m.ProtoReflect())
	case *pgquery.CaseExpr:
		if m.Arg != nil {
			w.equals()
		}
		w.fields(m.ProtoReflect())
	case *pgquery.CurrentOfExpr:
		w.out.AtCursor, w.out.Cursor.Name = true, m.CursorName
	case *pgquery.LockingClause: // its relations are aliases
		w.out.Locks = true
	default:
		w.word(message)
		w.fields(m.ProtoReflect())
	}
}

// inNames is fields for what may give something its name.
func (w *walker) inNames(names bool, m protoreflect.Message) {
	before := w.naming
	w.naming = w.naming || names
	w.fields(m)
	w.naming = before
}

// fields walks everything that is in a message, in the grammar's order.
func (w *walker) fields(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if field.Message() == nil || !m.Has(field) {
			continue
		}
		if !field.IsList() {
			w.visit(m.Get(field).Message().Interface())
			continue
		}
		list := m.Get(field).List()
		for j := range list.Len() {
			w.visit(list.Get(j).Message().Interface())
		}
	}
}

// visitAll walks several nodes.
func (w *walker) visitAll(nodes []*pgquery.Node) {
	for _, node := range nodes {
		w.visit(node)
	}
}

// nested walks a query that is inside of something else: what is seen only there is forgotten behind it.
func (w *walker) nested(walk func() *Block) *Block {
	names, role := w.names, w.role
	w.role = Nested
	b := walk()
	w.names, w.role = names, role
	return b
}

// found writes down a query inside of the one that is walked.
func (w *walker) found(b *Block) { *w.queries = append(*w.queries, b) }

// into walks with another place for the queries that are found.
func (w *walker) into(queries *[]*Block, walk func()) {
	before := w.queries
	w.queries = queries
	walk()
	w.queries = before
}

// relation writes down a table that is named, and returns its index; or the common table expression that it is.
func (w *walker) relation(v *pgquery.RangeVar) (int, *Common) {
	role, given := w.roles[v]
	if !given {
		role = w.role
	}
	isTarget := given && role == Target
	if role < Subject && !isTarget && v.Catalogname == "" && v.Schemaname == "" {
		if common := w.names.find(v.Relname); common != nil {
			common.References++
			return -1, common
		}
	}
	return w.table(v, role), nil
}

// table writes down a table in its role.
func (w *walker) table(v *pgquery.RangeVar, role Role) int {
	t := Table{Catalog: v.Catalogname, Schema: v.Schemaname, Name: v.Relname, Role: role, Start: int(v.Location)}
	parts := 1
	for _, qualifier := range []string{v.Catalogname, v.Schemaname} {
		if qualifier != "" {
			parts++
		}
	}
	t.End = w.tokens.nameEnd(t.Start, parts)
	t.WideStart, t.WideEnd, t.Command = w.tokens.around(t.Start, t.End)
	if v.Alias != nil {
		t.Alias = v.Alias.Aliasname
	}
	w.out.Tables = append(w.out.Tables, t)
	return len(w.out.Tables) - 1
}

// created notes that the statement makes this relation.
func (w *walker) created(v *pgquery.RangeVar) {
	if v == nil {
		return
	}
	w.roles[v] = Created
	if v.Relpersistence == "t" {
		w.out.Options.Temporary = true
	}
}

// call writes down a call of a function and returns its index.
func (w *walker) call(f *pgquery.FuncCall) int {
	schema, name := qualified(f.Funcname)
	at := w.places[f]
	c := Call{Schema: schema, Name: name, Start: int(f.Location), Place: at.where, Aliased: at.aliased, Names: at.names}
	c.End = w.tokens.callEnd(c.Start, len(f.Funcname))
	c.Modified = at.modified || len(f.AggOrder) > 0 || f.AggFilter != nil || f.Over != nil || f.AggStar || f.AggDistinct || f.FuncVariadic
	for _, argument := range f.Args {
		value, argumentName := argument, ""
		if named := argument.GetNamedArgExpr(); named != nil {
			value, argumentName = named.Arg, named.Name
		}
		c.Arguments = append(c.Arguments, operandOf(value))
		c.ArgumentNames = append(c.ArgumentNames, argumentName)
	}
	if c.Over = f.Over != nil; c.Over {
		w.block.Windows = append(w.block.Windows, w.partition(f.Over))
	}
	index := w.writeCall(c)
	if readAsWord(f) {
		w.calledByWord(name, c.Start)
	}
	return index
}

func (w *walker) writeCall(c Call) int {
	index := len(w.out.Calls)
	w.out.Calls = append(w.out.Calls, c)
	w.block.Calls = append(w.block.Calls, index)
	return index
}

// partition returns the terms of PARTITION BY of a window.
func (w *walker) partition(window *pgquery.WindowDef) []Term {
	name := window.Name // of OVER name
	for range len(w.windows) + 1 {
		if len(window.PartitionClause) > 0 {
			return termsOf(window.PartitionClause)
		}
		if name == "" {
			name = window.Refname
		}
		at := slices.IndexFunc(w.windows, func(n *pgquery.Node) bool { return n.GetWindowDef().GetName() == name })
		if at < 0 {
			return nil
		}
		window, name = w.windows[at].GetWindowDef(), ""
	}
	return nil
}

// rangeFunction notes which calls stand where a table stands.
func (w *walker) rangeFunction(f *pgquery.RangeFunction) {
	where := InFrom
	if f.IsRowsfrom {
		where = InRowsFrom
	}
	for _, item := range f.Functions {
		for _, part := range item.GetList().GetItems() { // the call, and its list of columns
			if call := part.GetFuncCall(); call != nil {
				w.places[call] = place{where: where, aliased: f.Alias != nil || len(f.Coldeflist) > 0, modified: f.Ordinality || len(f.Coldeflist) > 0, names: f.Alias == nil}
			}
		}
	}
}

// column writes down what follows from a column's name.
func (w *walker) column(c *pgquery.ColumnRef) {
	w.qualifier(c.Fields)
	w.qualified(c)
	w.behindDots(c.Fields[min(1, len(c.Fields)):])
	names := texts(c.Fields)
	if len(names) == 0 {
		return
	}
	if len(c.Fields) == 1 && !w.seenAlone[names[0]] {
		w.seenAlone[names[0]] = true
		w.out.Alone = append(w.out.Alone, names[0])
	}
	if systemColumns[names[len(names)-1]] {
		w.out.Physical = true
		w.out.Placed = w.out.Placed || !w.relationNames[c]
	}
	for _, call := range w.calling[max(0, len(w.calling)-maxCalling):] {
		w.out.Calls[call].Columns = append(w.out.Calls[call].Columns, names)
	}
}

// nameOfRelation notes tableoid::regclass::text: the number is each server's own, the name is not.
func (w *walker) nameOfRelation(outer *pgquery.TypeCast) {
	inner := outer.Arg.GetTypeCast()
	if inner == nil || !isSystemType(outer.TypeName, "text") || !isSystemType(inner.TypeName, "regclass") {
		return
	}
	if c := inner.Arg.GetColumnRef(); c != nil {
		if names := texts(c.Fields); len(names) > 0 && names[len(names)-1] == "tableoid" {
			w.relationNames[c] = true
		}
	}
}

// isSystemType says whether a type is meant that PostgreSQL brings, and no array of it.
func isSystemType(t *pgquery.TypeName, name string) bool {
	names := texts(t.Names)
	return len(t.ArrayBounds) == 0 && (slices.Equal(names, []string{name}) || slices.Equal(names, []string{"pg_catalog", name}))
}

// maxCalling is how many calls inside of each other a column is written down for.
const maxCalling = 32

// inCall walks the arguments of a call.
func (w *walker) inCall(call int, arguments protoreflect.Message) {
	w.calling = append(w.calling, call)
	if deep := len(w.calling) - 1 - maxCalling; deep >= 0 {
		w.out.Calls[w.calling[deep]].Queries = true // what is inside is not known any more
	}
	w.fields(arguments)
	w.calling = w.calling[:len(w.calling)-1]
}

// systemColumns are those that every table has unasked; they say where a row is, or who wrote it.
var systemColumns = map[string]bool{"ctid": true, "xmin": true, "xmax": true, "cmin": true, "cmax": true, "tableoid": true}

// behindDots writes down names that may be columns or functions.
func (w *walker) behindDots(nodes []*pgquery.Node) {
	for _, node := range nodes {
		if s := node.GetString_(); s != nil && !w.seenFields[s.Sval] {
			w.seenFields[s.Sval] = true
			w.out.Fields = append(w.out.Fields, s.Sval)
		}
	}
}

// qualifier writes down the schema, or the database, in a column's name.
func (w *walker) qualifier(parts []*pgquery.Node) {
	if len(parts) < 3 {
		return
	}
	if first := parts[0].GetString_().GetSval(); !slices.Contains(w.out.Qualifiers, first) {
		w.out.Qualifiers = append(w.out.Qualifiers, first)
	}
}

// qualified writes down where the schema in a column's name stands.
func (w *walker) qualified(c *pgquery.ColumnRef) {
	if len(c.Fields) != 3 {
		return
	}
	q := Qualified{Schema: c.Fields[0].GetString_().GetSval(), Table: c.Fields[1].GetString_().GetSval(), Start: int(c.Location)}
	if table := w.tokens.at(q.Start) + 2; table < len(w.tokens.all) {
		q.End = int(w.tokens.all[table].Start)
		w.out.Qualified = append(w.out.Qualified, q)
	}
}

// typeName writes down a type's name.
func (w *walker) typeName(n *pgquery.TypeName) {
	schema, name := qualified(n.Names)
	if key := (Name{schema, name}); !w.seenTypes[key] {
		w.seenTypes[key] = true
		w.out.Types = append(w.out.Types, key)
	}
}

// computedCast writes down a type that something computed is cast to.
func (w *walker) computedCast(n *pgquery.TypeName) {
	schema, name := qualified(n.GetNames())
	if key := (Name{schema, name}); !w.seenCasts[key] {
		w.seenCasts[key] = true
		w.out.ComputedCasts = append(w.out.ComputedCasts, key)
	}
}

// qualified takes a list of strings apart: schema and name.
func qualified(nodes []*pgquery.Node) (schema, name string) {
	parts := texts(nodes)
	switch len(parts) {
	case 0:
		return "", ""
	case 1:
		return "", parts[0]
	default:
		return parts[len(parts)-2], parts[len(parts)-1]
	}
}

// texts returns the strings among nodes.
func texts(nodes []*pgquery.Node) []string {
	var found []string
	for _, node := range nodes {
		if s := node.GetString_(); s != nil {
			found = append(found, s.Sval)
		}
	}
	return found
}

// tellsTime says whether a word of the grammar is one for the current time.
func tellsTime(word pgquery.SQLValueFunctionOp) bool {
	switch word {
	case pgquery.SQLValueFunctionOp_SVFOP_CURRENT_DATE,
		pgquery.SQLValueFunctionOp_SVFOP_CURRENT_TIME, pgquery.SQLValueFunctionOp_SVFOP_CURRENT_TIME_N,
		pgquery.SQLValueFunctionOp_SVFOP_CURRENT_TIMESTAMP, pgquery.SQLValueFunctionOp_SVFOP_CURRENT_TIMESTAMP_N,
		pgquery.SQLValueFunctionOp_SVFOP_LOCALTIME, pgquery.SQLValueFunctionOp_SVFOP_LOCALTIME_N,
		pgquery.SQLValueFunctionOp_SVFOP_LOCALTIMESTAMP, pgquery.SQLValueFunctionOp_SVFOP_LOCALTIMESTAMP_N:
		return true
	default:
		return false
	}
}

// lastName is the last of several names with dots between them.
func lastName(names []*pgquery.Node) string {
	if len(names) == 0 {
		return ""
	}
	return names[len(names)-1].GetString_().GetSval()
}
