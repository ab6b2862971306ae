package compose

import (
	pgquery "github.com/pganalyze/pg_query_go/v6"
)

// memberships writes the conditions of a WHERE clause that ask whether something is among the rows of a query as ones that ask for an equal row: as a
// condition that says the same, and it can be seen that a shard's own rows are enough if both are keys.
func memberships(q *pgquery.SelectStmt) (changed bool) {
	for _, c := range conjuncts(q.WhereClause) {
		if asExists(c) {
			changed = true
		}
	}
	return changed
}

// asExists turns x IN (SELECT y …) into EXISTS (SELECT FROM (SELECT y …) AS i(y) WHERE i.y = x), where it makes no difference whether it is false or unknown.
func asExists(c *pgquery.Node) bool {
	l := c.GetSubLink()
	if l == nil || l.SubLinkType != pgquery.SubLinkType_ANY_SUBLINK || len(l.OperName) > 0 || l.Testexpr.GetRowExpr() != nil || l.Testexpr.GetColumnRef() == nil {
		return false
	}
	const alias, column = "cleave_in", "cleave_y"
	inside := &pgquery.Node{Node: &pgquery.Node_RangeSubselect{RangeSubselect: &pgquery.RangeSubselect{
		Subquery: l.Subselect, Alias: &pgquery.Alias{Aliasname: alias, Colnames: []*pgquery.Node{text(column)}},
	}}}
	equal := pgquery.MakeAExprNode(pgquery.A_Expr_Kind_AEXPR_OP, []*pgquery.Node{text("=")}, columnNode(alias, column), l.Testexpr, -1)
	query := &pgquery.SelectStmt{
		TargetList: []*pgquery.Node{outputNode(pgquery.MakeAConstIntNode(1, -1), "")}, FromClause: []*pgquery.Node{inside}, WhereClause: equal,
		LimitOption: pgquery.LimitOption_LIMIT_OPTION_DEFAULT, Op: pgquery.SetOperation_SETOP_NONE,
	}
	c.Node = &pgquery.Node_SubLink{SubLink: &pgquery.SubLink{SubLinkType: pgquery.SubLinkType_EXISTS_SUBLINK, Subselect: asNode(query), Location: -1}}
	return true
}
