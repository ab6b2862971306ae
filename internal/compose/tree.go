package compose

import (
	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// each visits all messages below one, itself included, in the order of the grammar. If visit returns false it goes no deeper there.
func each(m proto.Message, visit func(proto.Message) bool) {
	if m == nil {
		return
	}
	eachReflected(m.ProtoReflect(), visit)
}

func eachReflected(m protoreflect.Message, visit func(proto.Message) bool) {
	if !m.IsValid() || !visit(m.Interface()) {
		return
	}
	if kinds := m.Descriptor().Oneofs().ByName("node"); kinds != nil {
		// A node is one of hundreds of kinds: to ask for each whether it is that took most of the time of planning.
		if kind := m.WhichOneof(kinds); kind != nil {
			eachReflected(m.Get(kind).Message(), visit)
		}
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if field.Message() == nil || !m.Has(field) {
			continue
		}
		if !field.IsList() {
			eachReflected(m.Get(field).Message(), visit)
			continue
		}
		list := m.Get(field).List()
		for j := range list.Len() {
			eachReflected(list.Get(j).Message(), visit)
		}
	}
}

// clone copies a tree.
func clone[T proto.Message](m T) T { return proto.Clone(m).(T) }

// names are the strings of a list; star: there is a * in it.
func names(nodes []*pgquery.Node) (found []string, star bool) {
	for _, n := range nodes {
		if n.GetAStar() != nil {
			star = true
		}
		if s := n.GetString_(); s != nil {
			found = append(found, s.Sval)
		}
	}
	return found, star
}

func text(s string) *pgquery.Node { return pgquery.MakeStrNode(s) }

// columnNode is a column by its names.
func columnNode(parts ...string) *pgquery.Node {
	nodes := make([]*pgquery.Node, len(parts))
	for i, p := range parts {
		nodes[i] = text(p)
	}
	return pgquery.MakeColumnRefNode(nodes, -1)
}

// outputNode is an expression among those that a query gives.
func outputNode(value *pgquery.Node, name string) *pgquery.Node {
	return &pgquery.Node{Node: &pgquery.Node_ResTarget{ResTarget: &pgquery.ResTarget{Name: name, Val: value, Location: -1}}}
}

// allOf joins conditions with AND; nil if there are none.
func allOf(conditions []*pgquery.Node) *pgquery.Node {
	switch len(conditions) {
	case 0:
		return nil
	case 1:
		return conditions[0]
	}
	return pgquery.MakeBoolExprNode(pgquery.BoolExprType_AND_EXPR, conditions, -1)
}

// conjuncts takes a condition apart at its ANDs.
func conjuncts(condition *pgquery.Node) []*pgquery.Node {
	if condition == nil {
		return nil
	}
	if b := condition.GetBoolExpr(); b != nil && b.Boolop == pgquery.BoolExprType_AND_EXPR {
		var all []*pgquery.Node
		for _, a := range b.Args {
			all = append(all, conjuncts(a)...)
		}
		return all
	}
	return []*pgquery.Node{condition}
}
