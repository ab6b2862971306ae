package compose

import (
	"strconv"
	"strings"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
)

// columnName is what the columns of a pull are called that stands for a block.
func columnName(column int) string { return "c" + strconv.Itoa(column) }

// outputName is what PostgreSQL calls an output of a query.
func outputName(t *pgquery.ResTarget) string {
	if t.Name != "" {
		return t.Name
	}
	name, _ := figure(t.Val)
	if name == "" {
		return "?column?"
	}
	return name
}

// figure is the name that an expression gives a column, and how much that counts: 2 for a name, 1 for a word that says what it is.
func figure(n *pgquery.Node) (name string, strength int) {
	switch e := n.GetNode().(type) {
	case *pgquery.Node_ColumnRef:
		return last(e.ColumnRef.Fields), 2
	case *pgquery.Node_AIndirection:
		if name := last(e.AIndirection.Indirection); name != "" {
			return name, 2
		}
		return figure(e.AIndirection.Arg)
	case *pgquery.Node_FuncCall:
		if last(e.FuncCall.Funcname) == parentheses {
			return figure(e.FuncCall.Args[0])
		}
		return last(e.FuncCall.Funcname), 2
	case *pgquery.Node_AExpr:
		if e.AExpr.Kind == pgquery.A_Expr_Kind_AEXPR_NULLIF {
			return "nullif", 2
		}
	case *pgquery.Node_TypeCast:
		if name, strength := figure(e.TypeCast.Arg); strength > 1 {
			return name, strength
		}
		return last(e.TypeCast.TypeName.GetNames()), 1
	case *pgquery.Node_CollateClause:
		return figure(e.CollateClause.Arg)
	case *pgquery.Node_GroupingFunc:
		return "grouping", 2
	case *pgquery.Node_SubLink:
		return figureQuery(e.SubLink)
	case *pgquery.Node_CaseExpr:
		if name, strength := figure(e.CaseExpr.Defresult); strength > 1 {
			return name, strength
		}
		return "case", 1
	case *pgquery.Node_AArrayExpr:
		return "array", 2
	case *pgquery.Node_RowExpr:
		return "row", 2
	case *pgquery.Node_CoalesceExpr:
		return "coalesce", 2
	case *pgquery.Node_MinMaxExpr:
		if e.MinMaxExpr.Op == pgquery.MinMaxOp_IS_LEAST {
			return "least", 2
		}
		return "greatest", 2
	case *pgquery.Node_SqlvalueFunction:
		word := strings.TrimSuffix(strings.ToLower(strings.TrimPrefix(e.SqlvalueFunction.Op.String(), "SVFOP_")), "_n")
		return word, 2
	case *pgquery.Node_XmlExpr:
		return xmlNames[e.XmlExpr.Op], 2
	case *pgquery.Node_XmlSerialize:
		return "xmlserialize", 2
	}
	return "", 0
}

// xmlNames are what columns made by the grammar's words for XML are called.
var xmlNames = map[pgquery.XmlExprOp]string{
	pgquery.XmlExprOp_IS_XMLCONCAT: "xmlconcat", pgquery.XmlExprOp_IS_XMLELEMENT: "xmlelement", pgquery.XmlExprOp_IS_XMLFOREST: "xmlforest",
	pgquery.XmlExprOp_IS_XMLPARSE: "xmlparse", pgquery.XmlExprOp_IS_XMLPI: "xmlpi", pgquery.XmlExprOp_IS_XMLROOT: "xmlroot",
}

func figureQuery(l *pgquery.SubLink) (name string, strength int) {
	switch l.SubLinkType {
	case pgquery.SubLinkType_EXISTS_SUBLINK:
		return "exists", 2
	case pgquery.SubLinkType_ARRAY_SUBLINK:
		return "array", 2
	case pgquery.SubLinkType_EXPR_SUBLINK:
		inside := l.Subselect.GetSelectStmt()
		for inside.GetLarg() != nil {
			inside = inside.Larg
		}
		if targets := inside.GetTargetList(); len(targets) > 0 {
			if t := targets[0].GetResTarget(); t.Name != "" {
				return t.Name, 2
			}
			return figure(targets[0].GetResTarget().GetVal())
		}
	default:
	}
	return "", 0
}

// last is the last of some names; empty if there is none.
func last(nodes []*pgquery.Node) string {
	found, _ := names(nodes)
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

// isStar says whether an output stands for several columns.
func isStar(target *pgquery.Node) bool {
	val := target.GetResTarget().GetVal()
	if _, star := names(val.GetColumnRef().GetFields()); star {
		return true
	}
	_, star := names(val.GetAIndirection().GetIndirection())
	return star
}

// hasStars says whether outputs stand for several columns.
func hasStars(targets []*pgquery.Node) bool {
	for _, t := range targets {
		if isStar(t) {
			return true
		}
	}
	return false
}

// spelled is an expression as SQL, to compare expressions by; empty if it cannot be written.
func spelled(n *pgquery.Node) string {
	query := &pgquery.SelectStmt{TargetList: []*pgquery.Node{outputNode(n, "")}, LimitOption: pgquery.LimitOption_LIMIT_OPTION_DEFAULT, Op: pgquery.SetOperation_SETOP_NONE}
	sql, err := writeSQL(asNode(query))
	if err != nil {
		return ""
	}
	return sql
}

// collationIn is the collation that an expression names; nil if it names none.
func collationIn(n *pgquery.Node) *pgquery.CollateClause {
	var found *pgquery.CollateClause
	each(n, func(m proto.Message) bool {
		if _, isQuery := m.(*pgquery.SelectStmt); isQuery {
			return false
		}
		if c, is := m.(*pgquery.CollateClause); is && found == nil {
			found = c
		}
		return found == nil
	})
	return found
}

// singleName is the name of a column that is written without its table; empty for anything else.
func singleName(n *pgquery.Node) string {
	parts, star := names(n.GetColumnRef().GetFields())
	if star || len(parts) != 1 {
		return ""
	}
	return parts[0]
}

// ordinal is the number of an output that a constant in ORDER BY, GROUP BY or DISTINCT ON means; 0 if it is none. The text's meaning depends on that
// literal then.
func (s *splitter) ordinal(n *pgquery.Node) int {
	c := n.GetAConst()
	if c == nil {
		return 0
	}
	if i, isInteger := c.Val.(*pgquery.A_Const_Ival); isInteger {
		return int(i.Ival.Ival)
	}
	f, isMarked := c.Val.(*pgquery.A_Const_Fval)
	if !isMarked {
		return 0
	}
	m := marked.FindStringSubmatch(f.Fval.Fval)
	if m == nil || m[5] != "L" {
		return 0
	}
	number, err := strconv.Atoi(m[6])
	if err != nil {
		return 0
	}
	value, err := strconv.Atoi(s.literal(number))
	if err != nil {
		return 0
	}
	s.shapedBy(number)
	return value
}

// value is an expression as SQL with the values of its literals, to compare expressions by; empty if it cannot be written.
func (s *splitter) value(n *pgquery.Node) string {
	t, err := templateOf(spelled(n))
	if err != nil {
		return ""
	}
	return s.valueOf(t)
}

// valueOf is a text with the values of its literals.
func (s *splitter) valueOf(t Text) string {
	return t.Fill(Places{
		Literal: s.literal, Moment: "[moment]", Pull: func(n int) string { return "[pull " + strconv.Itoa(n) + "]" },
		Visible: func(n int) string { return "[columns " + strconv.Itoa(n) + "]" },
		Type:    func(pull, column int) string { return "[type " + strconv.Itoa(pull) + " " + strconv.Itoa(column) + "]" },
		Target:  func(column int) string { return "[type " + strconv.Itoa(column) + "]" },
	})
}

// shapedByAll notes all literals of an expression.
func (s *splitter) shapedByAll(n *pgquery.Node) {
	if t, err := templateOf(spelled(n)); err == nil {
		s.shapedByText(t)
	}
}

// shapedByText notes all literals of a text.
func (s *splitter) shapedByText(t Text) {
	for _, p := range t.pieces {
		if p.kind == isLiteral {
			s.shapedBy(p.number)
		}
	}
}

// shapedByRest notes all literals that have no place in the texts: what was made of them, such as the modifiers of types, is right for their values alone.
func (s *splitter) shapedByRest() {
	placed := map[int]bool{}
	note := func(t Text) {
		for _, p := range t.pieces {
			if p.kind == isLiteral {
				placed[p.number] = true
			}
		}
	}
	note(s.out.Final)
	for i := range s.out.Pulls {
		note(s.out.Pulls[i].SQL)
	}
	for i := range s.q.Literals {
		if number := s.q.First + i; !placed[number] {
			s.shapedBy(number)
		}
	}
}

// shapedBy notes a literal on whose value the composition depends.
func (s *splitter) shapedBy(literal int) {
	for _, known := range s.out.Shaping {
		if known == literal {
			return
		}
	}
	s.out.Shaping = append(s.out.Shaping, literal)
}
