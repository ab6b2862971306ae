package session

import (
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// divideExecuted gives every shard its own rows of an INSERT that EXECUTE runs: the text that was prepared, with the other rows cut out
// and the arguments in place of the parameters.
func (s *session) divideExecuted(st *plan.Statement, o *op, src source) *pgerr.Error {
	prepared := s.statements[st.Prepared.Name]
	if prepared == nil || prepared.single() == nil {
		return errNoStatement(st.Prepared.Name)
	}
	arguments, refused := s.argumentTexts(prepared, st, src)
	if refused != nil {
		return refused
	}
	found, refused := s.orderRows(rowsIn([]byte(prepared.text), s.standardConforming(), prepared.single().Route.ValuesAt))
	if refused != nil {
		return refused
	}
	if found == nil { // one shard is enough to say what is wrong
		edits, refused := s.rewriteExecute(st, o)
		o.data = applyEdits(o.data, edits)
		return refused
	}
	for at := range s.spreadTo {
		cut := found.without(func(row int) bool { return s.rowOrder[row] == at })
		o.parts = append(o.parts, part{data: applyEdits(found.text, found.fill(cut, arguments)), elsewhere: true})
	}
	return nil
}

// fill returns the edits that cut rows out and put arguments in the place of the parameters that are left.
func (r *rowText) fill(cut []edit, arguments []string) (edits []edit) {
	next := 0
	for _, p := range r.params {
		for next < len(cut) && cut[next].end <= p.start {
			edits = append(edits, cut[next])
			next++
		}
		if next < len(cut) && cut[next].start <= p.start {
			continue // it goes with its row
		}
		edits = append(edits, edit{start: p.start, end: p.end, by: arguments[p.number-1]})
	}
	return append(edits, cut[next:]...)
}

// argumentTexts are the arguments of EXECUTE as SQL that means the same wherever it stands: literals with the types of the parameters.
func (s *session) argumentTexts(prepared *statement, st *plan.Statement, src source) ([]string, *pgerr.Error) {
	types, refused := s.typesOfPrepared(prepared)
	if refused != nil {
		return nil, refused
	}
	if given := len(st.Prepared.Arguments); given != len(types) {
		return nil, pgerr.New(pgerr.SyntaxError, "wrong number of parameters for prepared statement \"%s\"", prepared.name).
			WithDetail("Expected %d parameters but got %d.", len(types), given)
	}
	texts := make([]string, len(types))
	for i := range st.Prepared.Arguments {
		name, refused := s.typeName(types[i])
		if refused != nil {
			return nil, refused
		}
		text, ok := argumentText(&st.Prepared.Arguments[i], types[i], src)
		if !ok {
			return nil, pgerr.New(pgerr.FeatureNotSupported, "EXECUTE over several shards is not supported yet with this form of arguments").
				WithDetail("Argument %d is not a literal that a parameter of type %s takes as it is.", i+1, name).
				WithHint("Write it as a string, or send the INSERT itself, or prepare it by the protocol.")
		}
		texts[i] = "CAST(" + text + " AS " + name + ")"
	}
	return texts, nil
}

// numberTypes are the types that a number becomes without being asked to; boolOID is the type of true and false.
var numberTypes = []uint32{20, 21, 23, 700, 701, 1700}

const boolOID = 16

// argumentText is an argument as it is written; false if casting it to the parameter's type may give something else than EXECUTE does.
func argumentText(argument *plan.Operand, oid uint32, src source) (string, bool) {
	switch {
	case argument.CastOID != 0 && (argument.CastOID != oid || argument.CastMod >= 0):
		return "", false
	case argument.Kind == plan.IsNull:
		return "NULL", true
	case argument.Kind == plan.IsTrue:
		return "true", oid == boolOID
	case argument.Kind == plan.IsFalse:
		return "false", oid == boolOID
	case argument.Kind != plan.FromLiteral || src.scan == nil || argument.Literal >= len(src.scan.Literals):
		return "", false
	}
	literal := &src.scan.Literals[argument.Literal]
	text := string(src.text[literal.Start:literal.End])
	if argument.Negative {
		text = "-" + text
	}
	isNumber := literal.Kind == sqltext.Integer || literal.Kind == sqltext.Float
	return text, !isNumber || argument.CastOID != 0 || slices.Contains(numberTypes, oid)
}

// typeName is the name of a type as SQL writes it.
func (s *session) typeName(oid uint32) (string, *pgerr.Error) {
	return s.askWord(fmt.Sprintf("SELECT pg_catalog.format_type(%d, NULL)", oid), s.aside)
}
