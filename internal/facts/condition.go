package facts

import (
	"slices"

	pgquery "github.com/pganalyze/pg_query_go/v6"
)

// comparisons are the operators that say something about a column's value, each with what it becomes if its sides are exchanged.
var comparisons = map[string]string{"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

// conditionOf says what must be true for an expression to be.
func conditionOf(node *pgquery.Node) Condition {
	switch n := content(node).(type) {
	case *pgquery.BoolExpr:
		return junctionOf(n)
	case *pgquery.A_Expr:
		return comparisonOf(n)
	}
	return Condition{}
}

// junctionOf is for AND and OR. Of AND, parts of which nothing is known are left out; of OR, one such part is enough to know nothing.
func junctionOf(b *pgquery.BoolExpr) Condition {
	switch b.Boolop {
	case pgquery.BoolExprType_AND_EXPR:
		return allOf(b.Args, conditionOf)
	case pgquery.BoolExprType_OR_EXPR:
		c := Condition{Kind: AnyOf, Parts: make([]Condition, 0, len(b.Args))}
		for _, arg := range b.Args {
			part := conditionOf(arg)
			if part.Kind == Anything {
				return Condition{}
			}
			c.Parts = append(c.Parts, part)
		}
		return c
	default:
		return Condition{}
	}
}

func allOf[T any](items []T, of func(T) Condition) Condition {
	c := Condition{Kind: AllOf}
	for _, item := range items {
		if part := of(item); part.Kind != Anything {
			c.Parts = append(c.Parts, part)
		}
	}
	switch len(c.Parts) {
	case 0:
		return Condition{}
	case 1:
		return c.Parts[0]
	default:
		return c
	}
}

func comparisonOf(e *pgquery.A_Expr) Condition {
	if e.Kind == pgquery.A_Expr_Kind_AEXPR_BETWEEN {
		if ends := e.Rexpr.GetList().GetItems(); len(ends) == 2 {
			return allOf([]Condition{compares(e.Lexpr, ">=", false, ends[0]), compares(e.Lexpr, "<=", false, ends[1])}, func(c Condition) Condition { return c })
		}
		return Condition{}
	}
	schema, operator := qualified(e.Name)
	if _, known := comparisons[operator]; !known || len(e.Name) > 2 || schema != "" && schema != "pg_catalog" {
		return Condition{}
	}
	builtin := schema != ""
	switch e.Kind {
	case pgquery.A_Expr_Kind_AEXPR_OP:
		return compares(e.Lexpr, operator, builtin, e.Rexpr)
	case pgquery.A_Expr_Kind_AEXPR_IN:
		if operator == "=" {
			return oneOf(e.Lexpr, builtin, e.Rexpr.GetList().GetItems())
		}
	case pgquery.A_Expr_Kind_AEXPR_OP_ANY:
		if operator == "=" {
			return oneOfArray(e.Lexpr, builtin, e.Rexpr)
		}
	default:
	}
	return Condition{}
}

// compares is for a column and a value or another column, whichever stands on the left; rows that are equal are so column by column.
func compares(left *pgquery.Node, operator string, builtin bool, right *pgquery.Node) Condition {
	if l, r := left.GetRowExpr(), right.GetRowExpr(); l != nil && r != nil {
		if operator != "=" || len(l.Args) != len(r.Args) {
			return Condition{}
		}
		places := make([]int, len(l.Args))
		for i := range places {
			places[i] = i
		}
		return allOf(places, func(i int) Condition { return compares(l.Args[i], operator, builtin, r.Args[i]) })
	}
	if left.GetColumnRef() == nil {
		left, operator, right = right, comparisons[operator], left
	}
	c := Condition{Kind: Compares, Operator: operator, Builtin: builtin, Left: termOf(left), Right: termOf(right)}
	if !c.Left.IsColumn() || !c.Right.IsColumn() && !isValue(&c.Right.Value) {
		return Condition{}
	}
	return c
}

// isValue says whether an operand is a value that can be compared.
func isValue(o *Operand) bool { return o.Kind != Expression && o.Kind != Default }

// oneOf is for IN with a list.
func oneOf(left *pgquery.Node, builtin bool, items []*pgquery.Node) Condition {
	if len(items) == 1 {
		return compares(left, "=", builtin, items[0])
	}
	c := Condition{Kind: OneOf, Operator: "=", Builtin: builtin, Rows: make([][]Operand, 0, len(items))}
	columns := []*pgquery.Node{left}
	row := left.GetRowExpr()
	if row != nil {
		columns = row.Args
	}
	for _, column := range columns {
		c.Columns = append(c.Columns, termOf(column))
	}
	if !slices.ContainsFunc(c.Columns, func(t Term) bool { return t.IsColumn() }) {
		return Condition{}
	}
	for _, item := range items {
		values := []*pgquery.Node{item}
		if row != nil {
			values = item.GetRowExpr().GetArgs()
		}
		if len(values) != len(columns) {
			return Condition{}
		}
		c.Rows = append(c.Rows, operandsOf(values))
	}
	return c
}

func operandsOf(nodes []*pgquery.Node) []Operand {
	operands := make([]Operand, len(nodes))
	for i, node := range nodes {
		operands[i] = operandOf(node)
	}
	return operands
}

// oneOfArray is for = ANY with an array.
func oneOfArray(left *pgquery.Node, builtin bool, array *pgquery.Node) Condition {
	c := Condition{Kind: OneOf, Operator: "=", Builtin: builtin, Columns: []Term{termOf(left)}}
	if !c.Columns[0].IsColumn() {
		return Condition{}
	}
	var casts []Type
	inner := array
	for cast := inner.GetTypeCast(); cast != nil; cast = inner.GetTypeCast() {
		casts = append(casts, typeOf(cast.TypeName))
		inner = cast.Arg
	}
	elements := inner.GetAArrayExpr()
	if elements == nil {
		c.Array = operandOf(array)
		if !isValue(&c.Array) {
			return Condition{}
		}
		return c
	}
	slices.Reverse(casts)
	for _, element := range elements.Elements {
		value := operandOf(element)
		for _, t := range casts { // casting an array casts each of its elements
			t.Array = !t.Array
			value.Casts = append(slices.Clone(value.Casts), t)
		}
		c.Rows = append(c.Rows, []Operand{value})
	}
	if len(c.Rows) == 0 {
		return Condition{}
	}
	return c
}

// termOf says what an expression is, as far as it is simple.
func termOf(node *pgquery.Node) Term {
	column := node.GetColumnRef()
	if column == nil {
		return Term{Value: operandOf(node)}
	}
	t := Term{Column: texts(column.Fields)}
	switch {
	case len(t.Column) == len(column.Fields):
		return t
	case len(t.Column) == len(column.Fields)-1 && column.Fields[len(t.Column)].GetAStar() != nil:
		t.Star = true
		return t
	default:
		return Term{}
	}
}

func termsOf(nodes []*pgquery.Node) []Term {
	terms := make([]Term, len(nodes))
	for i, node := range nodes {
		terms[i] = termOf(node)
	}
	return terms
}

// outputsOf says what the columns of a result are.
func outputsOf(list []*pgquery.Node) []Output {
	outputs := make([]Output, 0, len(list))
	for _, node := range list {
		target := node.GetResTarget()
		o := Output{Term: termOf(target.GetVal()), Name: target.GetName()}
		if o.Name == "" && !o.Star {
			o.Name = nameOf(target.GetVal())
		}
		outputs = append(outputs, o)
	}
	return outputs
}

// namedByCalls notes which columns of a result have the names of the functions that they call.
func (w *walker) namedByCalls(list []*pgquery.Node) {
	for _, node := range list {
		target := node.GetResTarget()
		if call := target.GetVal().GetFuncCall(); call != nil && target.GetName() == "" {
			at := w.places[call]
			at.names = true
			w.places[call] = at
		}
	}
}

// nameOf is what PostgreSQL calls an expression that nobody gave a name; empty where that is not plain.
func nameOf(node *pgquery.Node) string {
	switch n := content(node).(type) {
	case *pgquery.ColumnRef:
		if names := texts(n.Fields); len(names) > 0 && len(names) == len(n.Fields) {
			return names[len(names)-1]
		}
	case *pgquery.FuncCall:
		_, name := qualified(n.Funcname)
		return name
	case *pgquery.TypeCast:
		switch content(n.Arg).(type) {
		case *pgquery.ColumnRef, *pgquery.FuncCall:
			return nameOf(n.Arg)
		}
	}
	return ""
}

// assignmentsOf says what is set to what.
func assignmentsOf(list []*pgquery.Node) []Assignment {
	assigned := make([]Assignment, 0, len(list))
	for _, node := range list {
		target := node.GetResTarget()
		a := Assignment{Column: target.GetName()}
		value := target.GetVal()
		if several := value.GetMultiAssignRef(); several != nil {
			value = nil
			if args := several.Source.GetRowExpr().GetArgs(); int(several.Colno) >= 1 && int(several.Colno) <= len(args) {
				value = args[several.Colno-1]
			}
		}
		if len(target.GetIndirection()) == 0 {
			a.Value = termOf(value)
		}
		assigned = append(assigned, a)
	}
	return assigned
}
