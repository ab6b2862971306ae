package binding

import (
	"bytes"
	"cmp"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/placement/key"
)

// Session is what of a client's settings can change a value.
type Session struct {
	// ClientEncodingUTF8: client_encoding is UTF8, or SQL_ASCII, with which PostgreSQL takes bytes as they are. By default it
	// is not, and only ASCII is bound without asking.
	ClientEncodingUTF8 bool
	// TimeZoneUTC: TimeZone is UTC, so a time without an offset can be bound. By default it has to be asked for.
	TimeZoneUTC bool
}

// Param is a parameter's value as the client sent it.
type Param struct {
	Value []byte
	// Null: there is no value. Binary: it is in binary format, not in text format.
	Null, Binary bool
	// OID is the parameter's type, as the client declared or the server resolved it. With 0 the place of the operand decides:
	// the type is that of its cast or else of its column. So 0 must not be said of a parameter that stands in several places
	// which may disagree.
	OID uint32
}

// Outcome is what became of an operand.
type Outcome uint8

// The outcomes.
const (
	// Refused: nobody can say where the statement belongs; the error says why.
	Refused Outcome = iota
	// Bound: there is a value.
	Bound
	// Null: the value is NULL.
	Null
	// Default: the value is the column's default.
	Default
	// AnyShard: there is no value of the column's type. Every shard gives the right answer, which is an error or no row.
	AnyShard
	// Ask: only PostgreSQL can say, see AskSQL.
	Ask
)

// Value binds the operand of one key column. Literals is what the scan of the statement's text found; the parameters are all
// that the client sent, in order. The error is not nil for Refused alone.
//
// The value may share memory with the text, with literals and with the parameters.
func Value(part *plan.KeyPart, literals *sqltext.Normalized, text []byte, params []Param, s Session) (key.Value, Outcome, *pgerr.Error) {
	o := &part.Operand
	switch o.Kind {
	case plan.IsNull:
		return key.Value{}, Null, nil
	case plan.IsDefault:
		return key.Value{}, Default, nil
	case plan.IsTrue, plan.IsFalse:
		return bind(part, &source{oid: oidBool, opaque: true}, s)
	case plan.FromLiteral:
		if o.Literal < 0 || o.Literal >= len(literals.Literals) {
			return refuse(misplaced(part))
		}
		src := fromLiteral(o, literals, text)
		return bind(part, &src, s)
	case plan.FromDefault:
		return bind(part, &source{bytes: []byte(o.Fixed)}, s)
	case plan.FromParam:
		if o.Param < 1 || o.Param > len(params) {
			return key.Value{}, AnyShard, nil // too few parameters: an error everywhere
		}
		param := &params[o.Param-1]
		src := fromParam(o, param)
		if param.Null {
			return null(part, &src)
		}
		return bind(part, &src, s)
	default:
		return refuse(unknowable(part))
	}
}

// source is an operand before its cast.
type source struct {
	// oid is its type; 0 if that is decided by what it meets.
	oid    uint32
	bytes  []byte
	binary bool
	// negative: a minus stands before the digits.
	negative bool
	// opaque: only PostgreSQL can read the bytes. raw is then how a string is written.
	opaque bool
	raw    []byte
}

func fromLiteral(o *plan.Operand, literals *sqltext.Normalized, text []byte) source {
	value, readable := literals.Value(text, o.Literal)
	switch literals.Literals[o.Literal].Kind {
	case sqltext.Integer:
		if _, ok := parseInt(value, o.Negative); ok {
			return source{oid: oidInt8, bytes: value, negative: o.Negative}
		}
		return source{oid: oidNumeric, opaque: true}
	case sqltext.Float:
		return source{oid: oidNumeric, opaque: true}
	case sqltext.BitString, sqltext.HexString:
		return source{oid: oidBit, opaque: true}
	case sqltext.NationalString:
		return source{oid: oidBpchar, opaque: true}
	default:
		if o.Negative { // of a string: whatever it is, it is a number
			return source{oid: oidFloat8, opaque: true}
		}
		if !readable {
			literal := literals.Literals[o.Literal]
			return source{opaque: true, raw: text[literal.Start:literal.End]}
		}
		return source{bytes: value}
	}
}

func fromParam(o *plan.Operand, param *Param) source {
	oid := param.OID
	if oid == oidUnknown {
		oid = 0
	}
	if o.Negative {
		return source{oid: cmp.Or(oid, oidFloat8), opaque: true}
	}
	return source{oid: oid, bytes: param.Value, binary: param.Binary}
}

// bind takes a value to its cast and to its column.
func bind(part *plan.KeyPart, src *source, s Session) (key.Value, Outcome, *pgerr.Error) {
	own := familyOfColumn(part.Type)
	typ := cmp.Or(part.Operand.CastOID, src.oid)
	if (own == dates || own == timestamps) && src.varies() {
		return refuse(varying(part))
	}
	if typ != 0 && familyOf(typ) != own {
		return foreign(part, src, own, typ)
	}
	cut := part.Operand.CastOID != 0 && part.Operand.CastMod >= 0
	if src.opaque || cut || src.oid != 0 && familyOf(src.oid) != own {
		return ask(part, src)
	}
	value, outcome := read(part, src, own, s)
	if outcome == Ask {
		return ask(part, src)
	}
	return value, outcome, nil
}

// null is for a parameter that has no value. In a list its type counts all the same, since it may decide how the others are compared.
func null(part *plan.KeyPart, src *source) (key.Value, Outcome, *pgerr.Error) {
	own, typ := familyOfColumn(part.Type), cmp.Or(part.Operand.CastOID, src.oid)
	if part.Listed && typ != 0 && familyOf(typ) != own && !converts(part, own, typ) {
		return refuse(otherType(part, typ))
	}
	return key.Value{}, Null, nil
}

// varies says whether a text, read as a date or a time, may mean another one each time. What may be written with escapes is not looked
// into.
func (src *source) varies() bool {
	return !src.binary && (plan.VariesInTime(src.bytes) || plan.VariesInTime(src.raw) || bytes.IndexByte(src.raw, '\\') >= 0)
}

// foreign decides about a type that is not of the column's family: an assignment converts it, but a comparison has an operator
// of its own that may see several keys as equal to the value, or none that we know of.
func foreign(part *plan.KeyPart, src *source, own family, typ uint32) (key.Value, Outcome, *pgerr.Error) {
	switch {
	case converts(part, own, typ):
		return ask(part, src)
	case part.Listed, part.Ordered: // what else is in the list is then read as of this type too; a bound need not be a key
	case isExact(own, typ):
		value, outcome := readExact(part, src, own, typ)
		if outcome == Ask {
			return ask(part, src)
		}
		return value, outcome, nil
	case own == integers && (typ == oidFloat4 || typ == oidFloat8):
		if value, outcome := readFloat(part, src, typ); outcome != Refused {
			return value, outcome, nil
		}
	}
	return refuse(otherType(part, typ))
}

// converts says whether a value of another family becomes one of the column's: where it is assigned, and where a timestamptz is compared with
// a date or a timestamp.
func converts(part *plan.KeyPart, own family, typ uint32) bool {
	return part.Store || own == timestamps && (typ == oidDate || typ == oidTimestamp)
}

// ask refuses what cannot be asked for: types that have no name here, whose OIDs may differ from shard to shard.
func ask(part *plan.KeyPart, src *source) (key.Value, Outcome, *pgerr.Error) {
	if cast := part.Operand.CastOID; cast != 0 && typeSQL(cast, part.Operand.CastMod) == "" {
		return refuse(otherType(part, cast))
	}
	if src.oid >= firstUserOID {
		return refuse(otherType(part, src.oid))
	}
	return key.Value{}, Ask, nil
}

// read reads a value whose type is of the column's family, or whichever its place demands.
func read(part *plan.KeyPart, src *source, own family, s Session) (key.Value, Outcome) {
	switch own {
	case integers:
		return readInt(part, src)
	case texts:
		return readText(part, src.bytes, s)
	case uuids:
		return readUUID(src)
	case dates:
		return readDate(src)
	case timestamps:
		return readTimestamptz(part, src, s)
	case byteas:
		return readBytea(src)
	default:
		return key.Value{}, Ask
	}
}
