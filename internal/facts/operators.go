package facts

import pgquery "github.com/pganalyze/pg_query_go/v6"

// operator writes down an operator by the parts of its name.
func (w *walker) operator(parts []*pgquery.Node) {
	if schema, name := qualified(parts); name != "" {
		w.operatorNamed(Name{schema, name})
	}
}

func (w *walker) operatorNamed(name Name) {
	if !w.seenOperators[name] {
		w.seenOperators[name] = true
		w.out.Operators = append(w.out.Operators, name)
	}
}

// equals is for what compares without an operator in the text: USING, CASE x WHEN y, x IN (SELECT …).
func (w *walker) equals() { w.operatorNamed(Name{Name: "="}) }

// ofBetween are the operators that BETWEEN and NOT BETWEEN, with and without SYMMETRIC, stand for.
var ofBetween = []string{">=", "<=", "<", ">"}

// operators writes down those of an expression.
func (w *walker) operators(e *pgquery.A_Expr) {
	switch e.Kind {
	case pgquery.A_Expr_Kind_AEXPR_BETWEEN, pgquery.A_Expr_Kind_AEXPR_NOT_BETWEEN,
		pgquery.A_Expr_Kind_AEXPR_BETWEEN_SYM, pgquery.A_Expr_Kind_AEXPR_NOT_BETWEEN_SYM:
		for _, name := range ofBetween {
			w.operatorNamed(Name{Name: name})
		}
	default:
		w.operator(e.Name)
	}
}

// operatorOf writes down the operator that compares with a subquery's rows.
func (w *walker) operatorOf(s *pgquery.SubLink) {
	if s.Testexpr != nil && len(s.OperName) == 0 {
		w.equals()
		return
	}
	w.operator(s.OperName)
}
