package key

import (
	"fmt"
	"strconv"
	"strings"
)

// Type is the type of one shard key column.
type Type uint8

// The types a shard key column can have.
const (
	Bigint Type = iota + 1
	Integer
	Smallint
	Text
	Varchar
	UUID
	Date
	Timestamptz
	Bytea
)

// Types lists every key type.
func Types() []Type {
	return []Type{Bigint, Integer, Smallint, Text, Varchar, UUID, Date, Timestamptz, Bytea}
}

// typeNames has PostgreSQL's names; the first is the one that is printed.
var typeNames = map[Type][]string{
	Bigint:      {"bigint", "int8"},
	Integer:     {"integer", "int4", "int"},
	Smallint:    {"smallint", "int2"},
	Text:        {"text"},
	Varchar:     {"varchar", "character varying"},
	UUID:        {"uuid"},
	Date:        {"date"},
	Timestamptz: {"timestamptz", "timestamp with time zone"},
	Bytea:       {"bytea"},
}

// ParseType reads a type's name as PostgreSQL spells it.
func ParseType(name string) (Type, error) {
	wanted := strings.ToLower(strings.TrimSpace(name))
	printed := make([]string, 0, len(typeNames))
	for _, t := range Types() {
		for _, n := range typeNames[t] {
			if n == wanted {
				return t, nil
			}
		}
		printed = append(printed, t.String())
	}
	return 0, fmt.Errorf("%q is not a shard key type: use one of %s", name, strings.Join(printed, ", "))
}

// String returns PostgreSQL's name of the type.
func (t Type) String() string {
	if names, ok := typeNames[t]; ok {
		return names[0]
	}
	return "key.Type(" + strconv.Itoa(int(t)) + ")"
}

// SQL returns the expression with which PostgreSQL computes this type's hash. Column and seed are SQL expressions, taken
// as they are: quote an identifier before it comes here. For a composite key the expression of one column is the seed of
// the next, see [CompositeSQL].
func (t Type) SQL(column, seed string) (string, error) {
	switch t {
	case Bigint:
		return intSQL(column, seed), nil
	case Integer, Smallint:
		return intSQL("("+column+")::bigint", seed), nil
	case Text:
		return fmt.Sprintf("hashtextextended(%s, %s)", column, seed), nil
	case Varchar:
		return fmt.Sprintf("hashtextextended((%s)::text, %s)", column, seed), nil
	case UUID:
		return fmt.Sprintf("uuid_hash_extended(%s, %s)", column, seed), nil
	case Date, Timestamptz, Bytea:
		return fmt.Sprintf("hash_array_extended(ARRAY[%s], %s)", column, seed), nil
	default:
		return "", fmt.Errorf("%s has no hash expression", t)
	}
}

func intSQL(column, seed string) string {
	return fmt.Sprintf("hashint8extended(%[1]s, hashint8extended((%[1]s) >> 32, %[2]s))", column, seed)
}

// CompositeSQL returns the expression for a key of one or several columns. Types and columns pair up in key order; the
// seed is an SQL expression too.
func CompositeSQL(types []Type, columns []string, seed string) (string, error) {
	if len(types) == 0 || len(types) != len(columns) {
		return "", fmt.Errorf("a key of %d types cannot have %d columns", len(types), len(columns))
	}
	expression := seed
	for i, t := range types {
		chained, err := t.SQL(columns[i], expression)
		if err != nil {
			return "", err
		}
		expression = chained
	}
	return expression, nil
}
