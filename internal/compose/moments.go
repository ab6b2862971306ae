package compose

import (
	"cmp"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
)

// fixMoments puts one moment in the place of all words and functions for the current time: every server would have its own.
func (s *splitter) fixMoments() error {
	var failure error
	each(s.root, func(m proto.Message) bool {
		switch n := m.(type) {
		case *pgquery.ResTarget:
			s.keepName(n)
		case *pgquery.RangeFunction:
			failure = cmp.Or(failure, s.keepFunctionName(n))
		case *pgquery.Node:
			if moment := s.momentOf(n); moment != nil {
				n.Node = moment.Node
			}
		}
		return failure == nil
	})
	return failure
}

// keepName writes out what PostgreSQL calls an output with a moment in it, since it would call what stands in the moment's place otherwise.
func (s *splitter) keepName(t *pgquery.ResTarget) {
	if t.Name != "" {
		return
	}
	each(t.Val, func(m proto.Message) bool {
		if n, isNode := m.(*pgquery.Node); isNode && s.momentOf(n) != nil {
			t.Name, _ = figure(t.Val)
		}
		return t.Name == ""
	})
}

// keepFunctionName does the same for a moment that stands where a table stands.
func (s *splitter) keepFunctionName(f *pgquery.RangeFunction) error {
	for _, n := range f.Functions {
		call := n.GetList().GetItems()[0]
		switch {
		case s.momentOf(call) == nil:
		case len(f.Functions) > 1: // its column's name depends on what stands there
			return ErrForm
		case f.Alias == nil:
			name, _ := figure(call)
			f.Alias = &pgquery.Alias{Aliasname: name}
		}
	}
	return nil
}

// momentFunctions are the functions that tell when the transaction began.
var momentFunctions = map[string]bool{"now": true, "transaction_timestamp": true}

// momentWords are the words of the grammar for the current time, and of which type they are.
var momentWords = map[pgquery.SQLValueFunctionOp]string{
	pgquery.SQLValueFunctionOp_SVFOP_CURRENT_DATE: "date",
	pgquery.SQLValueFunctionOp_SVFOP_CURRENT_TIME: "timetz", pgquery.SQLValueFunctionOp_SVFOP_CURRENT_TIME_N: "timetz",
	pgquery.SQLValueFunctionOp_SVFOP_CURRENT_TIMESTAMP: "timestamptz", pgquery.SQLValueFunctionOp_SVFOP_CURRENT_TIMESTAMP_N: "timestamptz",
	pgquery.SQLValueFunctionOp_SVFOP_LOCALTIME: "time", pgquery.SQLValueFunctionOp_SVFOP_LOCALTIME_N: "time",
	pgquery.SQLValueFunctionOp_SVFOP_LOCALTIMESTAMP: "timestamp", pgquery.SQLValueFunctionOp_SVFOP_LOCALTIMESTAMP_N: "timestamp",
}

// momentOf is what stands for a word or function for the current time; nil if it is none.
func (s *splitter) momentOf(n *pgquery.Node) *pgquery.Node {
	if f := n.GetFuncCall(); f != nil {
		schema, name := qualified(f.Funcname)
		if momentFunctions[name] && len(f.Args) == 0 && s.q.Builtin(schema, name) {
			return moment()
		}
		return nil
	}
	v := n.GetSqlvalueFunction()
	if v == nil {
		return nil
	}
	of, isMoment := momentWords[v.Op]
	switch {
	case !isMoment:
		return nil
	case v.Typmod >= 0 && v.Typmod <= maxPrecision:
		return castNode(moment(), of, int64(v.Typmod))
	default:
		return castNode(moment(), of, -1)
	}
}

const maxPrecision = 6

func moment() *pgquery.Node {
	return castNode(pgquery.MakeAConstStrNode(mark+"M"+mark, -1), "timestamptz", -1)
}

// castNode casts to a type of PostgreSQL's.
func castNode(n *pgquery.Node, to string, mod int64) *pgquery.Node {
	name := &pgquery.TypeName{Names: []*pgquery.Node{text("pg_catalog"), text(to)}, Typemod: -1, Location: -1}
	if mod >= 0 {
		name.Typmods = []*pgquery.Node{pgquery.MakeAConstIntNode(mod, -1)}
	}
	return &pgquery.Node{Node: &pgquery.Node_TypeCast{TypeCast: &pgquery.TypeCast{Arg: n, TypeName: name, Location: -1}}}
}
