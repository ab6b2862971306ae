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
	expression, typ := "", uint32(0)
	switch o.Kind {
	case plan.FromParam:
		sent = params[o.Param-1 : o.Param]
		expression, typ = "$1", fromParam(o, &sent[0]).oid
	case plan.FromLiteral:
		expression, typ = literalSQL(literals.Literals[o.Literal], text), fromLiteral(o, literals, text).oid
	case plan.FromDefault:
		expression = sqltext.QuoteLiteral(o.Fixed)
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
		expression, typ = cast(expression, typeSQL(o.CastOID, o.CastMod)), o.CastOID
	}
	own := familyOfColumn(part.Type)
	switch {
	case part.Store:
		expression = cast(expression, typeSQL(columnOID(part.Type), part.TypeMod))
	case typ == 0:
		expression = cast(expression, typeSQL(columnOID(part.Type), -1))
	case isExact(own, typ):
		return exactSQL(own, part.Type, expression), sent
	}
	return "SELECT pg_catalog.encode(" + bytesSQL(part.Type, expression) + ", 'hex')", sent
}

// exactSQL asks for the only key that a value of another family is equal to; the answer is NULL if there is none.
func exactSQL(own family, t key.Type, expression string) string {
	isKey := "v = pg_catalog.trunc(v) AND v BETWEEN -9223372036854775808 AND 9223372036854775807"
	if own == dates {
		isKey = "v = pg_catalog.date_trunc('day', v)"
	}
	return "SELECT CASE WHEN " + isKey + " THEN pg_catalog.encode(" + bytesSQL(t, "v") + ", 'hex') END FROM (SELECT " + expression + " AS v) AS s"
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
	case (own == integers || own == dates) && len(raw) == 0: // NULL, see exactSQL
		return key.Value{}, AnyShard, nil
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
