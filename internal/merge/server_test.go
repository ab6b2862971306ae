package merge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

// connect starts a server and logs in to it.
func connect(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Start(t).DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string, arguments ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, arguments...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// binaryRows returns what a SELECT gives, in binary.
func binaryRows(t testing.TB, conn *pgx.Conn, sql string) [][]byte {
	t.Helper()
	result := conn.PgConn().ExecParams(t.Context(), sql, nil, nil, nil, []int16{pgx.BinaryFormatCode}).Read()
	if result.Err != nil {
		t.Fatalf("%s: %v", sql, result.Err)
	}
	rows := make([][]byte, len(result.Rows))
	for i, row := range result.Rows {
		rows[i] = rowOf(row...)
	}
	return rows
}

// sample is a type with values of it: those at the edges, and how others are drawn.
type sample struct {
	oid   uint32
	sql   string
	edges []string
	draw  func(r *rand.Rand) string
}

// from draws one of the values.
func from(values ...string) func(*rand.Rand) string {
	return func(r *rand.Rand) string { return values[r.IntN(len(values))] }
}

// of draws up to most of the characters.
func of(characters string, most int) func(*rand.Rand) string {
	letters := []rune(characters)
	return func(r *rand.Rand) string {
		text := make([]rune, r.IntN(most+1))
		for i := range text {
			text[i] = letters[r.IntN(len(letters))]
		}
		return string(text)
	}
}

// integer draws numbers of that many bits at most, small ones as often as large ones.
func integer(bits int) func(*rand.Rand) string {
	return func(r *rand.Rand) string { return strconv.FormatInt(int64(r.Uint64())>>(64-1-r.IntN(bits)), 10) }
}

func unsigned(bits int) func(*rand.Rand) string {
	return func(r *rand.Rand) string { return strconv.FormatUint(r.Uint64()>>(64-1-r.IntN(bits)), 10) }
}

func numeric(r *rand.Rand) string {
	digits := of("000001239", 20)
	text := from("", "-")(r) + "0" + digits(r) + from("", ".0", ".00000000", "."+digits(r)+"0")(r)
	return text + from("", "", "e10", "e-7", "e120", "e-120")(r)
}

func float(r *rand.Rand) string {
	return fmt.Sprintf("%s%d.%de%d", from("", "-")(r), r.IntN(10), r.IntN(1000), r.IntN(60)-30)
}

func hexDigits(digits int, characters string) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		text := make([]byte, digits)
		for i := range text {
			text[i] = characters[r.IntN(len(characters))]
		}
		return string(text)
	}
}

func address(r *rand.Rand) string {
	part := func() int { return []int{0, 1, 10, 127, 128, 192, 255}[r.IntN(7)] }
	if r.IntN(2) == 0 {
		return fmt.Sprintf("%x:%x::%x:%x/%d", part()*257, part(), part()*256, part(), r.IntN(129))
	}
	return fmt.Sprintf("%d.%d.%d.%d/%d", part(), part(), part(), part(), r.IntN(33))
}

func timestamp(r *rand.Rand) string {
	day := fmt.Sprintf("-%02d-%02d %s", 1+r.IntN(12), 1+r.IntN(28), clock(r))
	if r.IntN(3) == 0 {
		return from("0001", "0044", "4712")(r) + day + " BC"
	}
	return from("0001", "1582", "1999", "2000", "2024", "9999", "294275")(r) + day
}

func clock(r *rand.Rand) string {
	return fmt.Sprintf("%02d:%02d:%02d.%06d", r.IntN(24), r.IntN(3), r.IntN(2), r.IntN(3))
}

func interval(r *rand.Rand) string {
	return fmt.Sprintf("%d months %d days %d hours %d microseconds", r.IntN(5)-2, r.IntN(120)-60, r.IntN(9)*12-48, r.IntN(3)-1)
}

const letters = "aAbBzZ 09_.-äöÄßéЖ日𝄞"

var samples = []sample{
	{oidBool, "bool", []string{"true", "false"}, from("true", "false")},
	{oidChar, `"char"`, []string{"", "a", "Z", "~", "é", "日"}, of(letters, 1)},
	{oidName, "name", []string{"", "a", "A", " ", "aa", "ä"}, of(letters, 4)},
	{oidInt2, "int2", []string{"0", "-1", "1", "32767", "-32768"}, integer(16)},
	{oidInt4, "int4", []string{"0", "-1", "1", "2147483647", "-2147483648"}, integer(32)},
	{oidInt8, "int8", []string{"0", "-1", "1", "9223372036854775807", "-9223372036854775808"}, integer(64)},
	{oidOID, "oid", []string{"0", "1", "2147483648", "4294967295"}, unsigned(32)},
	{oidXid8, "xid8", []string{"0", "1", "9223372036854775808", "18446744073709551615"}, unsigned(64)},
	{oidFloat4, "float4", []string{"0", "-0", "NaN", "Infinity", "-Infinity", "1e-45", "-1e-45", "3.4028235e38", "-3.4028235e38"}, float},
	{oidFloat8, "float8", []string{"0", "-0", "NaN", "Infinity", "-Infinity", "5e-324", "-5e-324", "1.7976931348623157e308", "-1.7976931348623157e308"}, float},
	{
		oidNumeric, "numeric",
		[]string{
			"0", "0.00", "-0", "1", "1.0", "1.00000", "NaN", "Infinity", "-Infinity", "10000", "9999", "9999.9999", "10000.0001", "-9999", "-10000", "-1.5", "-1.50", "0.0001", "0.00001",
			"1e131000", "-1e131000", "1e-16383", "-1e-16383", "100000000", "100000001", "99999999",
		}, numeric,
	},
	{oidMoney, "money", []string{"0", "-0.01", "92233720368547758.07", "-92233720368547758.08"}, func(r *rand.Rand) string { return fmt.Sprintf("%d.%02d", r.IntN(9)-4, r.IntN(100)) }},
	{oidDate, "date", []string{"infinity", "-infinity", "4713-01-01 BC", "5874897-12-31", "2000-01-01", "1999-12-31", "0001-01-01", "0001-12-31 BC"}, timestamp},
	{oidTime, "time", []string{"00:00", "24:00", "23:59:59.999999"}, clock},
	{
		oidTimetz, "timetz", []string{"00:00+00", "24:00+00", "24:00-15:59:59", "00:00+15:59:59", "12:00+00", "13:00+01", "11:00-01", "12:00+01", "23:00-02", "01:00+00", "00:30-00:30"},
		func(r *rand.Rand) string { return clock(r) + from("+00", "+01", "-01", "+05:30", "-11", "+14")(r) },
	},
	{oidTimestamp, "timestamp", []string{"infinity", "-infinity", "4713-01-01 BC", "294276-12-31 23:59:59.999999", "2000-01-01"}, timestamp},
	{oidTimestamptz, "timestamptz", []string{"infinity", "-infinity", "4713-01-02 BC", "294276-12-31 00:00+00", "2000-01-01"}, timestamp},
	{
		oidInterval, "interval",
		[]string{
			"0", "1 month", "30 days", "720 hours", "1 month -30 days", "-1 month 30 days", "29 days 24:00:00", "-1 microsecond", "1 day -1 microsecond", "-1 day 1 microsecond", "178000000 years", "-178000000 years",
			"178956970 years 7 months 2147483647 days 2562047788:00:54.775806", "-178956970 years -8 months -2147483648 days -2562047788:00:54.775807", "178956970 years 7 months 2147483647 days", "2147483647 days 2562047788:00:54.775807",
		}, interval,
	},
	{oidUUID, "uuid", []string{"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "80000000-0000-0000-0000-000000000000"}, hexDigits(32, "0127f8")},
	{oidBytea, "bytea", []string{`\x`, `\x00`, `\xff`, `\x0000`, `\x80`, `\x7f`}, func(r *rand.Rand) string { return `\x` + hexDigits(2*r.IntN(5), "0178f")(r) }},
	{oidText, `text COLLATE "C"`, []string{"", "a", "A", " ", "a ", "aa", "ä", "z", "日本", "\x01"}, of(letters, 6)},
	{oidVarchar, `varchar COLLATE "POSIX"`, []string{"", "a", "A", " ", "a ", "aa", "ä", "z"}, of(letters, 6)},
	{oidBpchar, `bpchar COLLATE "C"`, []string{"", "a", "a ", "a  ", " ", "  ", "a\t", "a\t ", "a\x01", "a !", "aa"}, of("ab \t\x01!", 4)},
	{oidBpchar, `char(3) COLLATE "C"`, []string{"", "a", "ab", "abc", "a\t"}, of("ab\t", 3)},
	{oidBit, "bit(11)", []string{"00000000000", "11111111111", "1"}, of("01", 11)},
	{oidVarbit, "varbit", []string{"", "0", "1", "00", "01", "10", "00000000", "000000000", "0000000000000000"}, of("0001", 18)},
	{oidMacaddr, "macaddr", []string{"00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "80:00:00:00:00:00"}, hexDigits(12, "078f")},
	{oidMacaddr8, "macaddr8", []string{"00:00:00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff:ff:ff", "08:00:2b:01:02:03"}, hexDigits(16, "078f")},
	{
		oidInet, "inet", []string{
			"0.0.0.0/0", "0.0.0.0", "::/0", "::", "255.255.255.255", "10.0.0.1/8", "10.0.0.1", "10.0.0.1/32", "10.0.0.0/8", "10.0.0.2/8", "10.128.0.0/9", "10.0.0.0/9", "11.0.0.0/7", "::ffff:1.2.3.4", "::ffff:1.2.3.4/96",
		}, address,
	},
	{oidCIDR, "cidr", []string{"0.0.0.0/0", "0.0.0.0/32", "::/0", "10.0.0.0/8", "10.0.0.0/16", "10.1.0.0/16"}, address},
	{oidPgLSN, "pg_lsn", []string{"0/0", "FFFFFFFF/FFFFFFFF", "80000000/0", "0/80000000"}, func(r *rand.Rand) string {
		return hexDigits(1+r.IntN(8), "08f")(r) + "/" + hexDigits(1+r.IntN(8), "08f")(r)
	}},
}

// texts returns the edge values, each several times, and random ones.
func (s *sample) texts(r *rand.Rand, random int) []string {
	values := slices.Concat(s.edges, s.edges, s.edges)
	for range random {
		values = append(values, s.draw(r))
	}
	return values
}

// expression is SQL that makes a value of a text.
func (s *sample) expression(text string) string {
	typ, _, _ := strings.Cut(s.sql, " COLLATE")
	if s.oid == oidCIDR {
		return "network(" + text + "::inet)"
	}
	return text + "::" + typ
}

// parts is how many servers the rows of a test are said to be on.
const parts = 4

// fillTable makes a table of values with some NULLs, an id for each, and the part that it is in.
func (s *sample) fillTable(t *testing.T, conn *pgx.Conn, seed uint64) {
	t.Helper()
	exec(t, conn, "DROP TABLE IF EXISTS t")
	exec(t, conn, "CREATE TEMPORARY TABLE t (v "+s.sql+", part int4, id int4)")
	values := s.texts(rand.New(rand.NewPCG(seed, 0)), 200)
	exec(t, conn, "INSERT INTO t SELECT "+s.expression("v")+", hashint8(i) & 3, i FROM unnest($1::text[]) WITH ORDINALITY u (v, i)", values)
	exec(t, conn, "INSERT INTO t SELECT NULL, i % 4, -i FROM generate_series(1, 9) i")
}

// TestServerOrder: merged parts come as the server orders the whole, whatever the direction.
func TestServerOrder(t *testing.T) {
	conn := connect(t)
	tested := map[uint32]bool{}
	for i, s := range samples {
		tested[s.oid] = true
		t.Run(s.sql, func(t *testing.T) {
			s.fillTable(t, conn, uint64(i))
			checkCompare(t, conn, s)
			for _, direction := range []string{"ASC NULLS FIRST", "ASC NULLS LAST", "DESC NULLS FIRST", "DESC NULLS LAST"} {
				checkMerge(t, conn, s, direction)
			}
		})
	}
	for oid := range kinds {
		if !tested[oid] {
			t.Errorf("type %d is not tested", oid)
		}
	}
}

// checkCompare compares each value with each.
func checkCompare(t *testing.T, conn *pgx.Conn, s sample) {
	t.Helper()
	order, err := NewOrder([]Key{{Type: s.oid}})
	if err != nil {
		t.Fatal(err)
	}
	rows := binaryRows(t, conn, "SELECT v, dense_rank() OVER (ORDER BY v), v::text FROM t")
	for _, a := range rows {
		for _, b := range rows {
			aFields, bFields := fieldsOf(t, a), fieldsOf(t, b)
			want := compareInt8(aFields[1], bFields[1])
			if got, err := order.Compare(a, b); got != want || err != nil {
				t.Fatalf("%q to %q is %d, %v; want %d", aFields[2], bFields[2], got, err, want)
			}
		}
	}
}

func checkMerge(t *testing.T, conn *pgx.Conn, s sample, direction string) {
	t.Helper()
	order, err := NewOrder([]Key{
		{Column: 1, Type: s.oid, Descending: strings.HasPrefix(direction, "DESC"), NullsFirst: strings.HasSuffix(direction, "FIRST")},
	})
	if err != nil {
		t.Fatal(err)
	}
	sources := make([]Source, parts)
	for part := range sources {
		sources[part] = &list{rows: binaryRows(t, conn, fmt.Sprintf("SELECT id, v FROM t WHERE part = %d ORDER BY v %s, id", part, direction))}
	}
	got, err := readAll(New(order, sources, Options{Limit: -1}))
	if err != nil {
		t.Fatal(err)
	}
	want := binaryRows(t, conn, "SELECT id, v FROM t ORDER BY v "+direction+", part, id")
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("ORDER BY v %s: %d rows are not in order", direction, len(got))
	}
}

// TestServerOptions: DISTINCT, OFFSET, LIMIT and WITH TIES give what the server gives for the whole.
func TestServerOptions(t *testing.T) {
	conn := connect(t)
	exec(t, conn, "CREATE TEMPORARY TABLE t AS SELECT (i * 7919 % 13)::numeric(10, 2) a, nullif(i * 104729 % 5, 0) b, i id, i % 4 part FROM generate_series(1, 300) i")
	a, b, id := Key{Column: 0, Type: oidNumeric}, Key{Column: 1, Type: oidInt4, Descending: true, NullsFirst: true}, Key{Column: 2, Type: oidInt4}
	for _, c := range []struct {
		distinct, columns, order string
		keys                     []Key
		options                  Options
	}{
		{"", "a, b, id", "a, b DESC, id", []Key{a, b, id}, Options{}},
		{"DISTINCT", "a, b", "a, b DESC", []Key{a, b}, Options{Distinct: 2}},
		{"DISTINCT ON (a)", "a, b, id", "a, b DESC, id", []Key{a, b, id}, Options{Distinct: 1}},
		{"DISTINCT ON (a, b)", "a, b, id", "a, b DESC, id", []Key{a, b, id}, Options{Distinct: 2}},
	} {
		for _, skip := range []int64{0, 1, 10, 1000} {
			for _, limit := range []int64{-1, 0, 1, 7, 1000} {
				for ties := range 3 {
					c.options.Skip, c.options.Limit, c.options.Ties = skip, limit, ties
					sql := "SELECT " + c.distinct + " " + c.columns + " FROM t %s ORDER BY " + c.order
					sources := make([]Source, parts)
					for part := range sources {
						sources[part] = &list{rows: binaryRows(t, conn, fmt.Sprintf(sql, fmt.Sprintf("WHERE part = %d", part)))}
					}
					order, err := NewOrder(c.keys)
					if err != nil {
						t.Fatal(err)
					}
					got, err := readAll(New(order, sources, c.options))
					if err != nil {
						t.Fatal(err)
					}
					want := binaryRows(t, conn, whole(fmt.Sprintf(sql, ""), c.columns, c.options))
					if !slices.EqualFunc(got, want, slices.Equal) {
						t.Errorf("%s %+v: %d rows, want %d", c.distinct, c.options, len(got), len(want))
					}
				}
			}
		}
	}
}

// whole is the SELECT with its OFFSET and LIMIT. Ties by less than all of ORDER BY are asked for around it.
func whole(sql, columns string, o Options) string {
	limit := ""
	if o.Limit >= 0 {
		limit = fmt.Sprintf(" FETCH FIRST %d ROWS ONLY", o.Limit)
		if o.Ties > 0 {
			limit = fmt.Sprintf(" FETCH FIRST %d ROWS WITH TIES", o.Limit)
		}
	}
	offset := fmt.Sprintf(" OFFSET %d", o.Skip)
	order := []string{"place", "a", "a, b DESC"}[o.Ties]
	ordered := "SELECT " + columns + ", row_number() OVER () place FROM (" + sql + ") ordered"
	return "SELECT " + columns + " FROM (SELECT * FROM (" + ordered + ") numbered ORDER BY " + order + offset + limit + ") limited ORDER BY place"
}

// TestServerCollations: what HasOrder is told is what pg_collation_for says.
func TestServerCollations(t *testing.T) {
	conn := connect(t)
	exec(t, conn, `CREATE COLLATION public."C" (provider = icu, locale = 'und', deterministic = false)`)
	exec(t, conn, "SET search_path = ''")
	for sql, want := range map[string]bool{
		"'a'::text": false, "'a'::pg_catalog.name": true, `'a'::pg_catalog.name COLLATE "default"`: false, `'a'::text COLLATE "C"`: true, `'a'::text COLLATE pg_catalog."POSIX"`: true,
		`'a'::text COLLATE public."C"`: false, "'a'::char(3)": false, "'a'::varchar": false, "1": true, "(SELECT datname FROM pg_database LIMIT 1)": true,
	} {
		var collation *string
		var oid uint32
		if err := conn.QueryRow(t.Context(), "SELECT pg_typeof("+sql+")::oid, "+collationFor(sql)).Scan(&oid, &collation); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		name := ""
		if collation != nil {
			name = *collation
		}
		if got := HasOrder(oid, name, false); got != want {
			t.Errorf("%s of type %d has collation %q and order %v", sql, oid, name, got)
		}
	}
}

func collationFor(sql string) string {
	if sql == "1" {
		return "NULL::text" // of a type without collations there is none to ask for
	}
	return "pg_collation_for(" + sql + ")"
}
