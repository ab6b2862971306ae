package binding

import (
	"fmt"
	"strconv"

	"github.com/cleavedb/cleave/placement/key"
)

// OIDs of PostgreSQL's own types, the same on every server.
const (
	oidBool        = 16
	oidBytea       = 17
	oidInt8        = 20
	oidInt2        = 21
	oidInt4        = 23
	oidText        = 25
	oidFloat4      = 700
	oidFloat8      = 701
	oidUnknown     = 705
	oidBpchar      = 1042
	oidVarchar     = 1043
	oidDate        = 1082
	oidTimestamp   = 1114
	oidTimestamptz = 1184
	oidBit         = 1560
	oidNumeric     = 1700
	oidUUID        = 2950

	// firstUserOID is where the OIDs begin that a server gives away itself.
	firstUserOID = 16384
)

// family is a set of types whose values are equal to one another if and only if they are the same value, so that a
// comparison within the family holds for one key at most.
type family uint8

const (
	others family = iota
	integers
	texts
	uuids
	dates
	timestamps
	byteas
)

func familyOf(oid uint32) family {
	switch oid {
	case oidInt8, oidInt4, oidInt2:
		return integers
	case oidText, oidVarchar:
		return texts
	case oidUUID:
		return uuids
	case oidDate:
		return dates
	case oidTimestamptz:
		return timestamps
	case oidBytea:
		return byteas
	default:
		return others
	}
}

func familyOfColumn(t key.Type) family { return familyOf(columnOID(t)) }

func columnOID(t key.Type) uint32 {
	switch t {
	case key.Bigint:
		return oidInt8
	case key.Integer:
		return oidInt4
	case key.Smallint:
		return oidInt2
	case key.Text:
		return oidText
	case key.Varchar:
		return oidVarchar
	case key.UUID:
		return oidUUID
	case key.Date:
		return oidDate
	case key.Timestamptz:
		return oidTimestamptz
	case key.Bytea:
		return oidBytea
	default:
		return 0
	}
}

// typeNames are the types that a value may be cast to on its way to a key column, by PostgreSQL's internal names.
var typeNames = map[uint32]string{
	oidBool: "bool", oidBytea: "bytea", 18: `"char"`, 19: "name", oidInt8: "int8", oidInt2: "int2", oidInt4: "int4", oidText: "text",
	26: "oid", 114: "json", 142: "xml", 650: "cidr", oidFloat4: "float4", oidFloat8: "float8", oidUnknown: "unknown", 790: "money", 869: "inet",
	oidBpchar: "bpchar", oidVarchar: "varchar", oidDate: "date", 1083: "time", oidTimestamp: "timestamp",
	oidTimestamptz: "timestamptz", 1186: "interval", 1266: "timetz", oidBit: "bit", 1562: "varbit", oidNumeric: "numeric",
	oidUUID: "uuid", 3802: "jsonb",
}

// typeSQL returns a type's name in SQL, whatever the search_path; nothing if it has no name here.
func typeSQL(oid uint32, modifier int32) string {
	name, ok := typeNames[oid]
	if !ok {
		return ""
	}
	name = "pg_catalog." + name
	if modifier < 0 {
		return name
	}
	switch oid {
	case oidVarchar, oidBpchar:
		return name + "(" + strconv.Itoa(int(modifier)-varlenaHeader) + ")"
	case oidTimestamptz, oidTimestamp:
		return name + "(" + strconv.Itoa(int(modifier)) + ")"
	case oidNumeric:
		precision, scale := (modifier-varlenaHeader)>>16, (modifier-varlenaHeader)&0x7ff
		return fmt.Sprintf("%s(%d, %d)", name, precision, (scale^1024)-1024) // eleven bits with a sign
	default:
		return ""
	}
}

// varlenaHeader is what PostgreSQL adds to a length to make it a type modifier.
const varlenaHeader = 4
