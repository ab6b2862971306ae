package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

// arrayedColumns are columns of many types beside the key and what clients give them, rows by turns: a null is written as "\N".
var arrayedColumns = []struct {
	name, definition string
	oid              uint32
	values           []string
}{
	{"note", "", pgtype.TextOID, []string{"x", `a "quoted" \ one`, `\N`, "", "NULL", "{a,b}", "ümläut", " blanks "}},
	{"short", "varchar(5)", pgtype.VarcharOID, []string{"abcde", `"\"`, `\N`}},
	{"padded", "char(3)", pgtype.BPCharOID, []string{"a", "abc"}},
	{"price", "numeric(6, 2)", pgtype.NumericOID, []string{"1.005", "-12.3", "NaN", `\N`}},
	{"tiny", "smallint", pgtype.Int2OID, []string{"1", "-32768"}},
	{"amount", "int DEFAULT 7", pgtype.Int4OID, []string{"0", `\N`, "12"}},
	{"rate", "double precision", pgtype.Float8OID, []string{"0.1", "Infinity", "1e-300"}},
	{"sent", "boolean", pgtype.BoolOID, []string{"t", "off", `\N`}},
	{"data", "jsonb", pgtype.JSONBOID, []string{`{"a": "b\"c", "d": [1, null]}`, "null"}},
	{"raw", "bytea", pgtype.ByteaOID, []string{`\x00ff5c22`, `\x`}},
	{"code", "uuid", pgtype.UUIDOID, []string{"6ba7b810-9dad-11d1-80b4-00c04fd430c8"}},
	{"at", "timestamptz", pgtype.TimestamptzOID, []string{"2024-02-29 12:00:00.123456+02", "infinity", `\N`}},
	{"day", "date", pgtype.DateOID, []string{"0044-03-15 BC", "2024-02-29"}},
	{"pause", "interval", pgtype.IntervalOID, []string{"1 mon -2 days 03:00", "0"}},
	{"host", "inet", pgtype.InetOID, []string{"10.0.0.1/8", "::1"}},
	{"tags", "text[]", pgtype.TextArrayOID, []string{`{a,"b c"}`, `\N`}},
}

// arrayedRows is an INSERT of that many rows into some columns, the keys first, with the parameters of all rows.
func arrayedRows(keys []string, columns []int, behind string) (sql string, parameters []*string) {
	names := []string{"id"}
	for _, c := range columns {
		names = append(names, arrayedColumns[c].name)
	}
	rows := make([]string, len(keys))
	for i := range keys {
		places := []string{fmt.Sprintf("$%d", len(parameters)+1)}
		parameters = append(parameters, &keys[i])
		for _, c := range columns {
			value := &arrayedColumns[c].values[i%len(arrayedColumns[c].values)]
			if *value == `\N` {
				value = nil
			}
			parameters = append(parameters, value)
			places = append(places, fmt.Sprintf("$%d", len(parameters)))
		}
		rows[i] = "(" + strings.Join(places, ", ") + ")"
	}
	return "INSERT INTO orders (" + strings.Join(names, ", ") + ") VALUES " + strings.Join(rows, ", ") + behind, parameters
}

// bound is a Bind with nulls, in text format.
func bound(parameters []*string, more ...string) *pgproto3.Bind {
	m := &pgproto3.Bind{}
	for _, p := range parameters {
		if p == nil {
			m.Parameters = append(m.Parameters, nil)
		} else {
			m.Parameters = append(m.Parameters, []byte(*p))
		}
	}
	for _, p := range more {
		m.Parameters = append(m.Parameters, []byte(p))
	}
	return m
}

// inBinary sends the parameters of a Bind in binary format, nulls as they are.
func inBinary(t *testing.T, m *pgproto3.Bind, oids []uint32) *pgproto3.Bind {
	t.Helper()
	types := pgtype.NewMap()
	changed := &pgproto3.Bind{ParameterFormatCodes: []int16{1}, Parameters: make([][]byte, len(m.Parameters))}
	for i, value := range m.Parameters {
		if value == nil {
			continue
		}
		known, _ := types.TypeForOID(oids[i])
		decoded, err := known.Codec.DecodeValue(types, oids[i], pgtype.TextFormatCode, value)
		if err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		if changed.Parameters[i], err = types.Encode(oids[i], pgtype.BinaryFormatCode, decoded, []byte{}); err != nil {
			t.Fatalf("%s: %v", value, err)
		}
	}
	return changed
}

// TestManyRowsOfParameters: shards get them as arrays of one column each, and nobody can tell.
func TestManyRowsOfParameters(t *testing.T) {
	t.Parallel()
	var setUp []string
	for _, c := range arrayedColumns[1:] {
		setUp = append(setUp, fmt.Sprintf("ALTER TABLE orders ADD COLUMN %s %s", c.name, c.definition))
	}
	w := newWorld(t, worldConfig{shards: 3, setUp: setUp})
	var keys []string
	for n := range 2 * arraysFrom {
		keys = append(keys, text(w.key(t, n%3+1, n/3)))
	}
	simple, plain := []int{}, []int{0, 5, 7}
	for c := range arrayedColumns {
		if arrayedColumns[c].definition != "text[]" {
			simple = append(simple, c)
		}
	}
	const read = "SELECT * FROM orders"
	insert := func(keys []string, columns []int, behind string, more ...string) step {
		sql, parameters := arrayedRows(keys, columns, behind)
		return sent(parse("", sql), &pgproto3.Describe{ObjectType: 'S'}, bound(parameters, more...), &pgproto3.Describe{ObjectType: 'P'}, run(""), sync1)
	}
	binary := func(columns []int) step {
		sql, parameters := arrayedRows(keys, columns, " RETURNING *")
		oids := []uint32{}
		for range keys {
			oids = append(oids, pgtype.Int8OID)
			for _, c := range columns {
				oids = append(oids, arrayedColumns[c].oid)
			}
		}
		return sent(parse("", sql, oids...), inBinary(t, bound(parameters), oids), run(""), sync1)
	}
	twice := append(slices.Clone(keys), keys[1])
	for name, steps := range map[string][]step{
		"every type":             {insert(keys, simple, " RETURNING *"), query(read)},
		"in binary":              {binary([]int{0, 1, 2, 4, 5, 6, 7, 9, 10}), query(read)},
		"with an array":          {insert(keys, []int{0, 15}, ""), query(read)},
		"a conflict":             {insert(keys[:20], plain, ""), insert(keys, plain, " ON CONFLICT DO NOTHING RETURNING id"), query(read)},
		"parameters elsewhere":   {insert(keys[:20], plain, ""), insert(keys, plain, fmt.Sprintf(" ON CONFLICT (id) DO UPDATE SET note = $%d || EXCLUDED.note RETURNING note, $%[1]d", len(keys)*4+1), "!"), query(read)},
		"a key that is there":    {insert(keys[20:21], plain, ""), insert(keys, plain, ""), query(read)},
		"a key that comes twice": {insert(twice, plain, ""), insert(twice, plain, " ON CONFLICT (id) DO UPDATE SET note = 'x'"), query(read)},
		"a value that is none":   {insert(append(slices.Clone(keys), "nothing"), plain, ""), query(read)},
		"too few parameters":     {sent(parse("", "INSERT INTO orders (id, note) VALUES "+strings.Repeat("($1, $2), ", arraysFrom)+"($3, $4)"), bound(nil, keys[0], "x", keys[1]), run(""), sync1), query(read)},
		"too many values":        {sent(parse("", "INSERT INTO orders (id) VALUES "+strings.Repeat("($1, $2), ", arraysFrom)+"($3, $4)"), bound(nil, keys[0], "x", keys[1], "y"), run(""), sync1)},
		"other types by client":  {sent(parse("", "INSERT INTO orders (id, note, amount) VALUES "+list20(), 20, 25, 20), bound(nil, append(slices.Clone(keys[:20]), "x", "5")...), run(""), sync1), query(read)},
	} {
		t.Run(name, func(t *testing.T) {
			w.empty(t)
			w.sameButOrder(t, steps...)
			w.sameRowsOf(t, "id")
			w.nothingPrepared(t)
		})
	}
}

// list20 is twenty rows of a key each, with the same two other values.
func list20() string {
	rows := make([]string, 20)
	for i := range rows {
		rows[i] = fmt.Sprintf("($%d, $21, $22)", i+1)
	}
	return strings.Join(rows, ", ")
}
