package differential_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// family are types whose values can be compared with each other and take each other's place.
type family int

// The families.
const (
	integers family = iota
	numerics
	floats
	texts
	booleans
	dates
	times
	uuids
	binaries
	arrays
	documents
	moods
	families // how many there are
)

// kind is a type of columns.
type kind struct {
	family
	sql string
	// wire is the type's name in the protocol's table of types, ? if it is none that every server knows.
	wire string
	// collation of a text.
	collation string
}

// kinds are the columns that tables may have beside key and id: the name of a column says its type, so that NATURAL and USING
// find partners.
var kinds = []struct {
	name string
	kind
}{
	{"n", kind{integers, "integer", "int4", ""}},
	{"m", kind{integers, "integer", "int4", ""}},
	{"big", kind{integers, "bigint", "int8", ""}},
	{"lvl", kind{integers, "level", "int4", ""}}, // a domain
	{"num", kind{numerics, "numeric", "numeric", ""}},
	{"price", kind{numerics, "numeric(12, 2)", "numeric", ""}},
	{"flt", kind{floats, "float8", "float8", ""}},
	{"txt", kind{texts, "text", "text", "default"}},
	{"ctxt", kind{texts, `text collate "C"`, "text", "C"}},
	{"utxt", kind{texts, `text collate "und-x-icu"`, "text", "und-x-icu"}},
	{"vtxt", kind{texts, "varchar(20)", "varchar", "default"}},
	{"ok", kind{booleans, "boolean", "bool", ""}},
	{"day", kind{dates, "date", "date", ""}},
	{"ts", kind{times, "timestamptz", "timestamptz", ""}},
	{"uid", kind{uuids, "uuid", "uuid", ""}},
	{"bin", kind{binaries, "bytea", "bytea", ""}},
	{"arr", kind{arrays, "integer[]", "_int4", ""}},
	{"doc", kind{documents, "jsonb", "jsonb", ""}},
	{"feel", kind{moods, "mood", "?", ""}},
}

// ownTypes are those of every schema. The order of a mood is not that of its names.
var ownTypes = []struct{ name, column, definition string }{
	{"mood", "feel", "create type mood as enum ('sad', 'ok', 'happy', 'Zen')"},
	{"level", "lvl", "create domain level as integer check (value between 0 and 9)"},
}

// basics are the types that values of a family are cast to.
var basics = [families]kind{
	{integers, "integer", "int4", ""}, {numerics, "numeric", "numeric", ""}, {floats, "float8", "float8", ""}, {texts, "text", "text", "default"},
	{booleans, "boolean", "bool", ""}, {dates, "date", "date", ""}, {times, "timestamptz", "timestamptz", ""}, {uuids, "uuid", "uuid", ""},
	{binaries, "bytea", "bytea", ""}, {arrays, "integer[]", "_int4", ""}, {documents, "jsonb", "jsonb", ""}, {moods, "mood", "?", ""},
}

// pools are the values of each family: few, so that rows are equal in many of them. Sums of the floats are exact in any order, and
// equal numerics are written alike, so that it does not matter which of several equal values is shown.
var pools = [families][]string{
	{"0", "1", "2", "3", "4", "5", "6", "7", "-1", "-3", "40", "1000"},
	{"0", "1", "1.5", "-2.25", "2", "10", "9.99", "100000000000000000000.125", "0.000001", "NaN", "Infinity", "-Infinity", "-7"},
	{"0", "1", "0.25", "-0.5", "2.75", "100.5", "-3", "NaN", "Infinity", "-Infinity"},
	{"", "a", "b", "B", "A", "ä", "Z", "z", "it's", "a%b", "10", "9", " a", "a ", "日本", "a_b", `x\y`, "NULL"},
	{"t", "f"},
	{"2024-02-29", "2024-03-01", "1999-12-31", "2000-01-01", "1970-01-01"},
	{"2024-02-29 12:00:00+00", "2024-02-29 23:59:59.999999+00", "2000-01-01 00:00:00+00", "1999-12-31 23:30:00-01", "2024-03-31 01:30:00+00"},
	{"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "550e8400-e29b-41d4-a716-446655440000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"},
	{`\x`, `\x00`, `\xff`, `\x00ff`, `\x616263`, `\x5c27`},
	{"{}", "{1}", "{1,2}", "{2,1}", "{NULL}", "{3,NULL,1}", "{5,5,5}"},
	{`{}`, `{"n": 1}`, `{"n": 2, "s": "x"}`, `{"n": 1, "s": "y", "l": [1, 2]}`, `[1, 2]`, `[]`, `null`, `"s"`, `7`, `true`, `{"s": null}`},
	{"sad", "ok", "happy", "Zen"},
}

// maker makes up schemas, rows and statements by chance.
type maker struct {
	*rand.Rand
	world  *world
	tables []*table // that the statement is about
	number int      // of names
	twins  int
	// literal: no parameters here.
	literal bool
	// bound: sharded tables are mostly asked for one key.
	bound bool
	// keys are those that it asks for.
	keys map[*keyspace][]string
	// shapes are words about the statement.
	shapes map[string]bool
}

func newMaker(seed, stream uint64) *maker {
	return &maker{Rand: rand.New(rand.NewPCG(seed, stream)), shapes: map[string]bool{}} //nolint:gosec // chance that can be repeated
}

func (g *maker) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g *maker, of ...T) T { return of[g.IntN(len(of))] }

// name makes a name that nothing else has.
func (g *maker) name(prefix string) string {
	g.number++
	return fmt.Sprint(prefix, g.number)
}

// someTwins numbers columns that are left out together.
func (g *maker) someTwins(count int) []int {
	numbers := make([]int, count)
	for i := range numbers {
		g.twins++
		numbers[i] = g.twins
	}
	return numbers
}

// shape notes a word about the statement.
func (g *maker) shape(word string) { g.shapes[word] = true }

func (g *maker) shapeWords() []string {
	words := make([]string, 0, len(g.shapes))
	for word := range g.shapes {
		words = append(words, word)
	}
	slices.Sort(words)
	return words
}

func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// constant writes a value of a type as a literal.
func constant(k kind, text string) string {
	switch {
	case k.family == integers && k.sql != "level", k.family == numerics && !strings.ContainsAny(text, "NI"):
		if strings.HasPrefix(text, "-") {
			return "(" + text + ")"
		}
		return text
	case k.family == booleans:
		return map[string]string{"t": "true", "f": "false"}[text]
	default:
		name, _, _ := strings.Cut(k.sql, " collate")
		return quote(text) + "::" + name
	}
}
