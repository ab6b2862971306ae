package binding

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/placement/key"
)

// AskSQL returns the SELECT with which a shard says the value that [Value] could not, and its parameters: none, or one that
// must be sent as it is, with its format and its OID. It must run under the client's settings, the encoding included, and
// gives one row with one column, for [Answer]. If it fails, then so would the statement; every shard has that error.
//
// What is stored is converted with an explicit cast. That can succeed where an assignment fails, but where the assignment
// succeeds both give the same value; where it fails, it does so on every shard.
func AskSQL(part *plan.KeyPart, literals *sqltext.Normalized, text []byte, params []Param) (sql string, sent []Param) {
	o := &part.Operand
	expression, untyped := "", true // a literal is a string where it has no cast: of numbers nothing has to be asked then
	switch o.Kind {
	case plan.FromParam:
		sent = params[o.Param-1 : o.Param]
		expression, untyped = "$1", sent[0].OID == 0 || sent[0].OID == oidUnknown
	case plan.FromLiteral:
		expression = literalSQL(literals.Literals[o.Literal], text)
	case plan.IsTrue:
		expression = "true"
	case plan.IsFalse:
		expression = "false"
	default: // Value asks for nothing else
	}
	if o.Negative {
		expression = "- " + expression
	}
	if o.CastOID != 0 {
		expression, untyped = cast(expression, typeSQL(o.CastOID, o.CastMod)), false
	}
	switch {
	case part.Store:
		expression = cast(expression, typeSQL(columnOID(part.Type), part.TypeMod))
	case untyped:
		expression = cast(expression, typeSQL(columnOID(part.Type), -1))
	}
	return "SELECT pg_catalog.encode(" + bytesSQL(part.Type, expression) + ", 'hex')", sent
}

// literalSQL returns a literal as it stands in the text.
func literalSQL(literal sqltext.Literal, text []byte) string {
	sql := string(text[literal.Start:literal.End])
	if literal.Kind == sqltext.NationalString {
		return "N" + sql
	}
	return sql
}

func cast(expression, typ string) string { return "(" + expression + ")::" + typ }

// bytesSQL returns an expression for a value's bytes that depends on no setting, as the text form of dates does.
func bytesSQL(t key.Type, expression string) string {
	switch familyOfColumn(t) {
	case integers:
		return "pg_catalog.int8send(" + cast(expression, "pg_catalog.int8") + ")"
	case texts:
		return "pg_catalog.convert_to(" + cast(expression, "pg_catalog.text") + ", 'UTF8')"
	case uuids:
		return "pg_catalog.uuid_send(" + cast(expression, "pg_catalog.uuid") + ")"
	case dates:
		return "pg_catalog.date_send(" + cast(expression, "pg_catalog.date") + ")"
	case timestamps:
		return "pg_catalog.timestamptz_send(" + cast(expression, "pg_catalog.timestamptz") + ")"
	default:
		return cast(expression, "pg_catalog.bytea")
	}
}

// Answer reads what [AskSQL] gave, in text format. The outcome is Bound, or AnyShard for a number that the column cannot have.
func Answer(part *plan.KeyPart, answer []byte) (key.Value, Outcome, error) {
	value, outcome, err := fromAnswer(part.Type, answer)
	if err != nil {
		return key.Value{}, Refused, fmt.Errorf("read a shard's answer for key column %q: %w", part.Column, err)
	}
	return value, outcome, nil
}

func fromAnswer(t key.Type, answer []byte) (key.Value, Outcome, error) {
	if answer == nil {
		return key.Value{}, Refused, errors.New("it is NULL")
	}
	raw, err := hex.DecodeString(string(answer))
	if err != nil {
		return key.Value{}, Refused, err
	}
	switch own := familyOfColumn(t); {
	case own == texts:
		return key.OfText(t, string(raw)), Bound, nil
	case own == byteas:
		return key.OfBytea(string(raw)), Bound, nil
	case own == integers && len(raw) == 8:
		value, err := key.OfInt(t, int64(binary.BigEndian.Uint64(raw)))
		if err != nil {
			return key.Value{}, AnyShard, nil //nolint:nilerr // no row has such a number
		}
		return value, Bound, nil
	case own == uuids && len(raw) == 16:
		return key.OfUUID([16]byte(raw)), Bound, nil
	case own == dates && len(raw) == 4:
		return key.OfDate(int32(binary.BigEndian.Uint32(raw))), Bound, nil
	case own == timestamps && len(raw) == 8:
		return key.OfTimestamptz(int64(binary.BigEndian.Uint64(raw))), Bound, nil
	}
	return key.Value{}, Refused, errors.New("it has a wrong length")
}
