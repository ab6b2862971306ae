package facts

import (
	"strconv"

	pgquery "github.com/pganalyze/pg_query_go/v6"
)

// operandOf says what a value is.
func operandOf(node *pgquery.Node) Operand {
	switch n := content(node).(type) {
	case *pgquery.A_Const:
		return constantOf(n)
	case *pgquery.ParamRef:
		if n.Number < 1 {
			return Operand{}
		}
		return Operand{Kind: Param, Param: int(n.Number), Start: int(n.Location)}
	case *pgquery.SetToDefault:
		return Operand{Kind: Default, Start: int(n.Location)}
	case *pgquery.TypeCast:
		o := operandOf(n.Arg)
		if o.Kind == Expression || o.Kind == Default {
			return Operand{}
		}
		o.Casts = append(o.Casts, typeOf(n.TypeName))
		return o
	}
	return Operand{}
}

func constantOf(c *pgquery.A_Const) Operand {
	o := Operand{Kind: Constant, Start: int(c.Location)}
	switch v := c.Val.(type) {
	case *pgquery.A_Const_Ival:
		o.Text, o.Number = strconv.Itoa(int(v.Ival.GetIval())), true
	case *pgquery.A_Const_Fval:
		o.Text, o.Number = v.Fval.GetFval(), true
	case *pgquery.A_Const_Sval:
		o.Text = v.Sval.GetSval()
	case *pgquery.A_Const_Bsval:
		o.Text = v.Bsval.GetBsval()
	case *pgquery.A_Const_Boolval:
		o.Kind = False
		if v.Boolval.GetBoolval() {
			o.Kind = True
		}
	default:
		o.Kind = Expression
		if c.Isnull {
			o.Kind = Null
		}
	}
	return o
}

// typeOf says what a type is called.
func typeOf(n *pgquery.TypeName) Type {
	if n == nil {
		return Type{}
	}
	t := Type{Array: len(n.ArrayBounds) > 0 || n.Setof || n.PctType, HasMods: len(n.Typmods) > 0}
	t.Schema, t.Name = qualified(n.Names)
	for _, mod := range n.Typmods {
		number, isNumber := mod.GetAConst().GetVal().(*pgquery.A_Const_Ival)
		if !isNumber {
			t.Mods = nil
			break
		}
		t.Mods = append(t.Mods, number.Ival.GetIval())
	}
	return t
}
