package facts

import (
	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
)

// word writes down as a call what the grammar has syntax of its own for and servers older than the grammar read as one.
func (w *walker) word(message proto.Message) {
	if name, at := wordOf(message); name != "" {
		w.calledByWord(name, int(at))
	}
}

func (w *walker) calledByWord(name string, at int) {
	w.writeCall(Call{
		Name: name, Word: true, Start: at, End: w.tokens.callEnd(at, 1),
		Arguments: []Operand{{}}, ArgumentNames: []string{""}, // as with any other call of one argument, the name may be a type's
	})
}

// wordOf returns the name that stands in the text, and where.
func wordOf(message proto.Message) (name string, at int32) {
	switch m := message.(type) {
	case *pgquery.JsonFuncExpr:
		return map[pgquery.JsonExprOp]string{
			pgquery.JsonExprOp_JSON_EXISTS_OP: "json_exists", pgquery.JsonExprOp_JSON_QUERY_OP: "json_query",
			pgquery.JsonExprOp_JSON_VALUE_OP: "json_value", pgquery.JsonExprOp_JSON_TABLE_OP: "json_table",
		}[m.Op], m.Location
	case *pgquery.JsonTable:
		return "json_table", m.Location
	case *pgquery.JsonParseExpr:
		return "json", m.Location
	case *pgquery.JsonScalarExpr:
		return "json_scalar", m.Location
	case *pgquery.JsonSerializeExpr:
		return "json_serialize", m.Location
	case *pgquery.JsonObjectConstructor:
		return "json_object", m.Location
	case *pgquery.JsonArrayConstructor:
		return "json_array", m.Location
	case *pgquery.JsonArrayQueryConstructor:
		return "json_array", m.Location
	case *pgquery.JsonObjectAgg:
		return "json_objectagg", m.GetConstructor().GetLocation()
	case *pgquery.JsonArrayAgg:
		return "json_arrayagg", m.GetConstructor().GetLocation()
	case *pgquery.MergeSupportFunc:
		return "merge_action", m.Location
	}
	return "", 0
}

// readAsWord says whether a call that the grammar takes for one of PostgreSQL's own stands in the text as a plain name.
func readAsWord(f *pgquery.FuncCall) bool {
	schema, name := qualified(f.Funcname)
	return schema == "pg_catalog" && name == "json_object"
}

// schemas are those that stand before tables and functions.
func (s *Statement) schemas() []string {
	var found []string
	for _, t := range s.Tables {
		found = append(found, t.Schema)
	}
	for _, c := range s.Calls {
		found = append(found, c.Schema)
	}
	return found
}
