package differential_test

import (
	"fmt"
	"slices"
	"strings"
)

// keyType is one kind of shard key that every shape of a statement is tried with.
type keyType struct {
	name    string
	columns []keyColumn
	// samples are keys, the odd ones among them; each has a text for every column. Those of a keyspace by range are in its order.
	samples [][]string
	// spellings are other ways to write keys, and keys that are not stored as they are written.
	spellings [][]string
	// splitAt are the points of a keyspace by range; by hash if there are none.
	splitAt string
	// defines is the pass in which definitions are tried with it, which take long; none if it is empty.
	defines pass
	// akin: another one differs little from it, so that it is left to 'make thorough'.
	akin bool
}

// keyColumn is one column of a key.
type keyColumn struct {
	name string
	// sql is its type in SQL, wire the type's name in the protocol's table of types.
	sql, wire string
	// bare: values are written without quotes.
	bare bool
}

// keyTypes are all of them. Several samples of each must be on each of three shards.
func keyTypes() []keyType {
	integers := []string{"0", "1", "-1", "42", "7", "100", "-5", "300", "12", "-32768", "32767"}
	texts := []string{"", "a", "A", "it's", "ü", "日本語", " lead", "trail ", "tab\there", `back\slash`, "{brace}", `"quoted"`, "NULL", "x,y"}
	return []keyType{
		oneColumn("bigint", "bigint", "int8", append(integers, "4294967296", "-9223372036854775808", "9223372036854775807"), "+2", " 3 ", "007").defining(simplePass),
		oneColumn("integer", "integer", "int4", append(integers, "-2147483648", "2147483647"), "+2", " 3 ", "007").likeAnother(),
		oneColumn("smallint", "smallint", "int2", integers, "+2", " 3 ", "007").likeAnother(),
		oneColumn("text", "text", "text", texts, "a ", "\tb").likeAnother(),
		oneColumn("varchar", "varchar(6)", "varchar", []string{"", "a", "A", "abcdef", " ab", "ab ", "ab", "üöäßéñ", "日本", "x,y", "NULL", `{"}`}, "uvwxyz   ", "a  ", "日本語日本語 ").likeAnother(),
		oneColumn("uuid", "uuid", "uuid", []string{
			"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "550e8400-e29b-41d4-a716-446655440000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
			"6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6ba7b811-9dad-11d1-80b4-00c04fd430c8", "01890a5d-ac96-774b-bcce-b302099a8057", "12345678-1234-5678-1234-567812345678",
			"886313e1-3b8a-5372-9b90-0c9aee199e5d", "c56a4180-65aa-42ec-a945-5fd21dec0538", "00000000-0000-0000-0000-000000000001",
			"f47ac10b-58cc-4372-a567-0e02b2c3d479", "9b2d1c3e-0000-4000-8000-000000000001", "3f333df6-90a4-4fda-8dd3-9485d27cee36",
		}, "550E8400-E29B-41D4-A716-446655440001", "{6ba7b812-9dad-11d1-80b4-00c04fd430c8}", "6ba7b8139dad11d180b400c04fd430c8"),
		oneColumn("date", "date", "date", []string{
			"2024-02-29", "infinity", "-infinity", "1999-12-31", "2000-01-01", "1970-01-01", "0044-03-15 BC", "5874897-12-31", "2024-03-01", "1582-10-15", "2026-07-04", "2001-09-09", "1945-05-08",
		}, "29 Feb 2020", "20240301", "epoch", "2024-03-02 23:59:59").likeAnother(),
		oneColumn("timestamptz", "timestamptz", "timestamptz", []string{
			"2024-02-29 12:00:00+00", "infinity", "-infinity", "2000-01-01 00:00:00.000001+00", "1969-12-31 23:59:59.999999+00", "2000-01-01 00:00:00+00",
			"0044-03-15 00:00:00+00 BC", "2024-03-31 02:30:00+00", "2026-07-04 09:08:07.5+00", "1970-01-01 00:00:00+00", "2001-09-09 01:46:40+00", "1945-05-08 23:01:00+00",
		}, "2024-02-29 13:00:01+01", "2024-02-29T12:00:02Z", "2024-02-29 12:00:03.0000004+00", "epoch", "2024-07-01 12:00:00").likeAnother(),
		oneColumn("timestamptz0", "timestamptz(0)", "timestamptz", []string{
			"2024-02-29 12:00:00+00", "infinity", "-infinity", "2000-01-01 00:00:01+00", "1969-12-31 23:59:59+00", "2000-01-01 00:00:00+00",
			"2024-03-31 02:30:00+00", "2026-07-04 09:08:07+00", "1970-01-01 00:00:00+00", "2001-09-09 01:46:40+00", "1945-05-08 23:01:00+00", "1999-12-31 23:59:58+00",
		}, "2025-01-01 00:00:00.4+00", "2025-01-02 00:00:00.5+00", "2025-01-03 00:00:01.5+00", "2025-01-04 23:59:59.6+00", "1999-12-31 23:59:59.5+00").likeAnother(),
		oneColumn("bytea", "bytea", "bytea", []string{
			`\x`, `\x00`, `\xff`, `\x00ff`, `\xdeadbeef`, `\x27`, `\x5c`, `\x0a`, `\xe697a5`, `\x0000`, `\x2c22`, `\x7f`, `\x616263`, `\x80`,
		}, "escaped", `\001\\x`, `\xDEADBEE0`, `\x de ad`).likeAnother(),
		composite("composite", [][]string{
			{"0", ""}, {"1", "a"}, {"1", "b"}, {"4294967296", "a"}, {"-1", "日本語"}, {"42", "it's"}, {"42", " "}, {"-9223372036854775808", "x,y"}, {"7", "NULL"}, {"9223372036854775807", `"q"`}, {"8", "c"}, {"9", "d"}, {"10", "e"},
		}, [][]string{{"+5", "a "}, {" 6 ", `\`}}).defining(binaryPass),
		oneColumn("bigint_range", "bigint", "int8", []string{"-9223372036854775808", "-100", "-1", "0", "1", "999", "1000", "4294967296", "9223372036854775807"}, "+2", " 3 ", "007").split("0, 1000").likeAnother(),
		oneColumn("integer_range", "integer", "int4", []string{"-2147483648", "-100", "-1", "0", "1", "999", "1000", "30000", "2147483647"}, "+2", " 3 ", "007").split("0, 1000").likeAnother(),
		oneColumn("uuid_range", "uuid", "uuid", []string{
			"00000000-0000-0000-0000-000000000000", "12345678-1234-5678-1234-567812345678", "3f333df6-90a4-4fda-8dd3-9485d27cee36", "550e8400-e29b-41d4-a716-446655440000",
			"6ba7b810-9dad-11d1-80b4-00c04fd430c8", "886313e1-3b8a-5372-9b90-0c9aee199e5d", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "c56a4180-65aa-42ec-a945-5fd21dec0538", "ffffffff-ffff-ffff-ffff-ffffffffffff",
		}, "550E8400-E29B-41D4-A716-446655440001").split("550e8400-e29b-41d4-a716-446655440000, a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11").likeAnother(),
		oneColumn("date_range", "date", "date", []string{"-infinity", "0044-03-15 BC", "1999-12-31", "2000-01-01", "2010-06-01", "2019-12-31", "2020-01-01", "2024-02-29", "infinity"}, "29 Feb 2020", "20240301").
			split("2000-01-01, 2020-01-01").likeAnother(),
		oneColumn("text_range", "text", "text", []string{"", "A", "a", "h", "it's", "p", "q", "ü", "日本語"}, "a ").split("h, q").defining(textPass),
		oneColumn("timestamptz_range", "timestamptz", "timestamptz", []string{
			"-infinity", "1969-12-31 23:59:59.999999+00", "1999-12-31 23:59:59.999999+00", "2000-01-01 00:00:00+00", "2010-06-01 00:00:00+00", "2019-12-31 23:59:59+00",
			"2020-01-01 00:00:00+00", "2024-02-29 12:00:00+00", "infinity",
		}, "2024-02-29 13:00:01+01").split("2000-01-01 00:00:00+00, 2020-01-01 00:00:00+00").likeAnother(),
		composite("composite_range", [][]string{
			{"-5", "z"}, {"0", ""}, {"1", "a"}, {"1", "m"}, {"1", "z"}, {"50", ""}, {"100", "a"}, {"100", "b"}, {"4294967296", "ü"},
		}, [][]string{{"+5", "a "}}).split("(1, m), (100, a)").likeAnother(),
	}
}

func oneColumn(name, sql, wire string, samples []string, spellings ...string) keyType {
	column := keyColumn{name: "k", sql: sql, wire: wire, bare: strings.HasPrefix(wire, "int")}
	return keyType{name: name, columns: []keyColumn{column}, samples: singles(samples), spellings: singles(spellings)}
}

func composite(name string, samples, spellings [][]string) keyType {
	columns := []keyColumn{{name: "k", sql: "bigint", wire: "int8", bare: true}, {name: "j", sql: "text", wire: "text"}}
	return keyType{name: name, columns: columns, samples: samples, spellings: spellings}
}

func singles(texts []string) [][]string {
	all := make([][]string, len(texts))
	for i, text := range texts {
		all[i] = []string{text}
	}
	return all
}

func (k keyType) split(points string) keyType {
	k.splitAt = points
	return k
}

func (k keyType) likeAnother() keyType {
	k.akin = true
	return k
}

func (k keyType) defining(how pass) keyType {
	k.defines = how
	return k
}

// is says whether a word of a directive means this kind of key.
func (k *keyType) is(word string) bool {
	switch word {
	case "range":
		return k.splitAt != ""
	case "hash":
		return k.splitAt == ""
	case "single":
		return len(k.columns) == 1
	case "composite":
		return len(k.columns) > 1
	default:
		return word == k.name || word == k.columns[0].wire && len(k.columns) == 1
	}
}

// literal writes a value as SQL. What is not a plain number is quoted, so that its type is left open.
func (c *keyColumn) literal(value string) string {
	if c.bare && !strings.ContainsAny(value, "+ ") {
		return value
	}
	return "'" + strings.ReplaceAll(value, "'", "''") + "'"
}

func (k *keyType) literals(sample []string) []string {
	texts := make([]string, len(sample))
	for i, value := range sample {
		texts[i] = k.columns[i].literal(value)
	}
	return texts
}

// array writes values of the first column as PostgreSQL writes arrays.
func array(samples [][]string) string {
	texts := make([]string, len(samples))
	for i, sample := range samples {
		texts[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(sample[0]) + `"`
	}
	return "{" + strings.Join(texts, ",") + "}"
}

// cast is the key with the names of samples that shapes use: a and b are on one shard, c and d on another, e and f on the third;
// z is a key that no row has.
type cast struct {
	keyType
	named map[string][]string
}

// sampleNames are the names, in the order in which places are looked for.
var sampleNames = [][]string{{"a", "b"}, {"c", "d"}, {"e", "f"}}

// newCast gives samples their names. Places say on which shard each sample is.
func newCast(k keyType, places []string) (*cast, error) {
	c := &cast{keyType: k, named: map[string][]string{}}
	byShard := map[string][][]string{}
	var shards []string
	for i, place := range places {
		if byShard[place] == nil {
			shards = append(shards, place)
		}
		byShard[place] = append(byShard[place], k.samples[i])
	}
	if len(shards) < len(sampleNames) {
		return nil, fmt.Errorf("all keys of %s are on %d shards", k.name, len(shards))
	}
	var absent []string
	for i, names := range sampleNames {
		there := byShard[shards[i]]
		if len(there) < len(names) {
			return nil, fmt.Errorf("only %d keys of %s are on %s", len(there), k.name, shards[i])
		}
		for j, name := range names {
			c.named[name] = there[j]
		}
		if len(there) > len(names) {
			absent = there[len(names)]
		}
	}
	if absent == nil {
		return nil, fmt.Errorf("all keys of %s have a name", k.name)
	}
	c.named["z"] = absent
	c.samples = slices.DeleteFunc(slices.Clone(k.samples), func(s []string) bool { return slices.Equal(s, absent) })
	return c, nil
}
