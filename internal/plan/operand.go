package plan

import (
	"slices"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/placement/key"
)

// The types whose OIDs the planner itself has to know.
const (
	oidInt2        = 21
	oidInt4        = 23
	oidInt8        = 20
	oidText        = 25
	oidVarchar     = 1043
	oidBpchar      = 1042
	oidUUID        = 2950
	oidDate        = 1082
	oidTimestamptz = 1184
	oidTime        = 1083
	oidTimetz      = 1266
	oidTimestamp   = 1114
	oidBytea       = 17
	oidNumeric     = 1700
	oidBool        = 16
	oidName        = 19
	oidJSON        = 114
	oidJSONB       = 3802
	oidFloat4      = 700
	oidFloat8      = 701
	oidInterval    = 1186
)

// typeOIDs are PostgreSQL's own types that literals and parameters are commonly cast to, by their names in the catalogue.
// Types whose values depend on a server's catalogue, such as regclass, are not among them.
var typeOIDs = map[string]uint32{
	"bool": oidBool, "bytea": oidBytea, "char": 18, "name": oidName, "int8": oidInt8, "int2": oidInt2, "int4": oidInt4, "text": oidText,
	"oid": 26, "json": oidJSON, "float4": oidFloat4, "float8": oidFloat8, "unknown": 705, "money": 790, "inet": 869, "cidr": 650, "bpchar": oidBpchar,
	"varchar": oidVarchar, "date": oidDate, "time": 1083, "timestamp": oidTimestamp, "timestamptz": oidTimestamptz, "interval": oidInterval,
	"timetz": 1266, "bit": 1560, "varbit": 1562, "numeric": oidNumeric, "uuid": oidUUID, "jsonb": oidJSONB,
}

// arrayOIDs are the types of arrays of types that keys may be compared with.
var arrayOIDs = map[uint32]uint32{
	oidInt2: 1005, oidInt4: 1007, oidInt8: 1016, oidText: 1009, oidVarchar: 1015, oidUUID: 2951, oidDate: 1182, oidTimestamptz: 1185, oidTimestamp: 1115,
	oidBytea: 1001, oidNumeric: 1231,
}

// keyTypes are the types of key columns by OID.
var keyTypes = map[uint32]key.Type{
	oidInt8: key.Bigint, oidInt4: key.Integer, oidInt2: key.Smallint, oidText: key.Text, oidVarchar: key.Varchar,
	oidUUID: key.UUID, oidDate: key.Date, oidTimestamptz: key.Timestamptz, oidBytea: key.Bytea,
}

// operand says where a value comes from when the plan runs.
func (p *planner) operand(o facts.Operand) Operand {
	out, byLiteral := p.operandOf(o)
	p.plan.Uncacheable = p.plan.Uncacheable || byLiteral
	return out
}

// operandOf says where a value comes from when the plan runs, and whether that is right for this text alone. Of an array it says
// it as of its elements.
func (p *planner) operandOf(o facts.Operand) (out Operand, byLiteral bool) {
	out = Operand{CastMod: -1}
	switch o.Kind {
	case facts.Constant:
		literal, negative, found := p.literalAt(o.Start)
		if !found {
			return out, false
		}
		out.Kind, out.Literal, out.Negative = FromLiteral, literal, negative
	case facts.Param:
		out.Kind, out.Param = FromParam, o.Param
	case facts.Null:
		out.Kind = IsNull
		return out, false
	case facts.Default:
		out.Kind = IsDefault
		return out, false
	case facts.Fixed:
		out.Kind, out.Fixed = FromDefault, o.Text
	case facts.True:
		out.Kind = IsTrue
	case facts.False:
		out.Kind = IsFalse
	default:
		return out, false
	}
	if len(o.Casts) > 0 && !p.cast(&out, o.Casts) {
		return Operand{CastMod: -1}, false
	}
	return out, len(o.Casts) > 0 && o.Casts[0].HasMods
}

// literalAt finds the literal that a constant is, by its place in the text. A constant with a minus begins at the minus.
func (p *planner) literalAt(start int) (index int, negative, found bool) {
	index, found = slices.BinarySearchFunc(p.Literals, start, func(l sqltext.Literal, at int) int { return l.Start - at })
	if !found {
		if index >= len(p.Literals) || start < 0 || start >= len(p.text) {
			return 0, false, false
		}
		if !sqltext.IsMinus(p.text[start:p.Literals[index].Start]) {
			return 0, false, false
		}
		negative = true
	}
	return index, negative, p.isWhole(p.Literals[index].Kind)
}

// isWhole says whether a literal's own text tells its value. A string with Unicode escapes may have its escape character behind
// it.
func (p *planner) isWhole(kind sqltext.Kind) bool {
	switch kind {
	case sqltext.BitString, sqltext.HexString:
		return false
	case sqltext.UnicodeString:
		return !p.uescape
	default:
		return true
	}
}

// cast notes the type that a value is explicitly cast to; false if only PostgreSQL can say what comes out.
func (p *planner) cast(out *Operand, casts []facts.Type) bool {
	t := casts[0]
	if len(casts) > 1 || t.Array || t.Schema != "pg_catalog" && (t.Schema != "" || !p.trustsBuiltins()) {
		return false
	}
	oid, known := typeOIDs[t.Name]
	if !known {
		return false
	}
	out.CastOID = oid
	if !t.HasMods {
		return true
	}
	mod, known := typeMod(oid, t.Mods)
	out.CastMod = mod
	return known
}

// typeMod is how PostgreSQL stores the modifiers of a type.
func typeMod(oid uint32, mods []int32) (int32, bool) {
	const header = 4
	switch {
	case len(mods) == 1 && (oid == oidVarchar || oid == oidBpchar):
		return mods[0] + header, true
	case len(mods) == 1 && (oid == oidTimestamptz || oid == oidTimestamp):
		return mods[0], true
	case len(mods) == 2 && oid == oidNumeric:
		return (mods[0]<<16 | mods[1]&0x7ff) + header, true
	default:
		return -1, false
	}
}
