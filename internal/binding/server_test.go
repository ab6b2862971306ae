package binding

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/placement/key"
)

// column is a key column of a table of its own.
type column struct {
	table   string
	typ     key.Type
	typeMod int32
	sql     string
	// rows are in the table already when something is compared with its column.
	rows []string
}

var (
	someInts  = []string{"0", "1", "-1", "2", "3", "5", "6", "32767", "-32768"}
	someTexts = []string{"", "a", "abc", "abc ", "ab", "5", "true", "äöü", "2026-01-31"}
	someUUIDs = []string{"00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}
	someDates = []string{"2026-01-31", "2026-02-01", "infinity", "-infinity", "2000-01-01", "today", "2026-02-01"}
	someTimes = []string{"2026-01-31 00:00:00+00", "2026-01-31 00:00:00", "2026-01-31 12:34:56+00", "2026-01-31 12:34:57+00", "2026-01-31 12:34:56.123456+02", "infinity", "now"}
	someBytes = []string{`\x`, `\x00`, `\xdeadbeef`, `abc`}
)

// someNumerics are 0, 5, -1, 32768, 9223372036854775807, -9223372036854775808, 9223372036854775808, 10000^6, 5.00, 2.5, NaN and infinity.
var someNumerics = [][]byte{
	{0, 0, 0, 0, 0, 0, 0, 0}, {0, 1, 0, 0, 0, 0, 0, 0, 0, 5}, {0, 1, 0, 0, 0x40, 0, 0, 0, 0, 1}, {0, 2, 0, 1, 0, 0, 0, 0, 0, 3, 0x0a, 0xd0},
	{0, 5, 0, 4, 0, 0, 0, 0, 0x03, 0x9a, 0x0d, 0x2c, 0x01, 0x70, 0x15, 0x65, 0x16, 0xaf}, {0, 5, 0, 4, 0x40, 0, 0, 0, 0x03, 0x9a, 0x0d, 0x2c, 0x01, 0x70, 0x15, 0x65, 0x16, 0xb0},
	{0, 5, 0, 4, 0, 0, 0, 0, 0x03, 0x9a, 0x0d, 0x2c, 0x01, 0x70, 0x15, 0x65, 0x16, 0xb0}, {0, 1, 0, 6, 0, 0, 0, 0, 0, 1}, {0, 1, 0, 0, 0, 0, 0, 2, 0, 5},
	{0, 2, 0, 0, 0, 0, 0, 1, 0, 2, 0x13, 0x88}, {0, 0, 0, 0, 0xc0, 0, 0, 0}, {0, 0, 0, 0, 0xd0, 0, 0, 32},
}

var columns = []column{
	{"bigints", key.Bigint, -1, "bigint", append(someInts, "9223372036854775807", "9007199254740993", "9007199254740992")},
	{"integers", key.Integer, -1, "integer", append(someInts, "2147483647", "-2147483648")},
	{"smallints", key.Smallint, -1, "smallint", someInts},
	{"texts", key.Text, -1, "text", someTexts},
	{"varchars", key.Varchar, -1, "varchar", someTexts},
	{"varchars3", key.Varchar, 7, "varchar(3)", someTexts},
	{"uuids", key.UUID, -1, "uuid", someUUIDs},
	{"dates", key.Date, -1, "date", someDates},
	{"times", key.Timestamptz, -1, "timestamptz", someTimes},
	{"times0", key.Timestamptz, 0, "timestamptz(0)", someTimes},
	{"times3", key.Timestamptz, 3, "timestamptz(3)", someTimes},
	{"byteas", key.Bytea, -1, "bytea", someBytes},
}

// clients are sessions whose settings give the same operands other values.
var clients = []struct {
	settings map[string]string
	session  Session
}{
	{map[string]string{"TimeZone": "UTC", "DateStyle": "ISO, MDY", "client_encoding": "UTF8"}, Session{ClientEncodingUTF8: true, TimeZoneUTC: true}},
	{map[string]string{"TimeZone": "America/New_York", "DateStyle": "SQL, DMY", "client_encoding": "UTF8", "bytea_output": "escape"}, Session{ClientEncodingUTF8: true}},
	{map[string]string{"TimeZone": "Pacific/Apia", "DateStyle": "German", "client_encoding": "LATIN1"}, Session{}},
	{map[string]string{"TimeZone": "Asia/Kolkata", "DateStyle": "Postgres, YMD", "client_encoding": "SQL_ASCII", "extra_float_digits": "-5"}, Session{ClientEncodingUTF8: true}},
}

// tally counts outcomes, so that a test in which everything is refused does not pass.
type tally map[Outcome]int

func TestServer(t *testing.T) {
	server := pgtest.Start(t)
	seldom := tally{}
	for i, client := range clients {
		config, err := pgconn.ParseConfig(server.DSN("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range client.settings {
			config.RuntimeParams[name] = value
		}
		conn, err := pgconn.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		for _, c := range columns {
			c.table = fmt.Sprintf("%s%d", c.table, i)
			create(t, conn, c)
			t.Run(fmt.Sprintf("%s/%s", client.settings["TimeZone"], c.sql), func(t *testing.T) {
				stored, compared := tally{}, tally{}
				rapid.Check(t, func(t *rapid.T) {
					o := drawOperand(t, c)
					x := exchange{conn: conn, column: c, session: client.session, operand: o}
					stored[x.check(t, true)]++
					compared[x.check(t, false)]++
				})
				for _, outcome := range []Outcome{Bound, Ask} {
					if stored[outcome] == 0 || compared[outcome] == 0 {
						t.Errorf("outcomes are %v where stored, %v where compared", stored, compared)
					}
				}
				seldom.add(stored)
				seldom.add(compared)
			})
		}
	}
	if seldom[AnyShard] == 0 || seldom[Refused] == 0 {
		t.Errorf("outcomes are %v in all", seldom)
	}
}

func (t tally) add(others tally) {
	for outcome, count := range others {
		t[outcome] += count
	}
}

func create(t *testing.T, conn *pgconn.PgConn, c column) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), "CREATE TABLE "+c.table+" (k "+c.sql+"); CREATE TABLE "+c.table+"_rows (k "+c.sql+")").ReadAll(); err != nil {
		t.Fatal(err)
	}
	for _, row := range c.rows {
		if conn.ParameterStatus("client_encoding") == "LATIN1" {
			row = strings.ReplaceAll(row, "äöü", "\xe4\xf6\xfc")
		}
		if c.sql == "varchar(3)" {
			row = strings.TrimRight(row, " ")
		}
		// What does not fit is not among the rows.
		_ = conn.ExecParams(t.Context(), "INSERT INTO "+c.table+"_rows VALUES ($1)", [][]byte{[]byte(row)}, nil, nil, nil).Read()
	}
}

// operand is one in SQL, with the parameter that it has, if any, and what a planner says of it.
type operand struct {
	sql    string
	params []Param
	plan   plan.Operand
	varies bool // it may mean the current time, or be written so that nobody looks
}

// exchange is one operand that meets one column on one connection.
type exchange struct {
	conn    *pgconn.PgConn
	column  column
	session Session
	operand operand
}

func (x exchange) statement(store bool) string {
	hash, err := x.column.typ.SQL("k", "42")
	if err != nil {
		panic(err)
	}
	answer := "pg_catalog.encode(" + bytesSQL(x.column.typ, "k") + ", 'hex'), " + hash
	if store {
		return "INSERT INTO " + x.column.table + " (k) VALUES (" + x.operand.sql + ") RETURNING " + answer
	}
	return "SELECT " + answer + " FROM " + x.column.table + "_rows WHERE k = " + x.operand.sql
}

// check binds the operand and holds the outcome against what the server does, in one transaction, so that now is now.
func (x exchange) check(t *rapid.T, store bool) Outcome {
	statement := []byte(x.statement(store))
	part := &plan.KeyPart{Column: "k", Type: x.column.typ, TypeMod: x.column.typeMod, Store: store, Operand: x.operand.plan}
	var n sqltext.Normalized
	if err := n.Scan(statement, true); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	part.Operand.Literal = firstAtOrAfter(&n, strings.Index(string(statement), "("+x.operand.sql+")")+1, store, statement, x.operand.sql)
	value, outcome, refusal := Value(part, &n, statement, x.operand.params, x.session)
	if (refusal != nil) != (outcome == Refused) {
		t.Fatalf("%s: outcome %d with %v", statement, outcome, refusal)
	}
	x.exec(t, "BEGIN")
	defer x.exec(t, "ROLLBACK")
	var askErr error
	asked := outcome == Ask
	if asked {
		value, outcome, askErr = x.ask(t, part, &n, statement)
	}
	if outcome == Bound && !store {
		x.addRow(t, value)
	}
	rows, err := x.run(t, string(statement), x.operand.params)
	say := fmt.Sprintf("%s with %+v: bound as %d %v (asked: %v, %v), the server says %v, %v", statement, x.operand.params, outcome, value, asked, askErr, rows, err)
	switch {
	case outcome == Refused && asked:
		if err == nil && len(rows) > 0 {
			t.Fatal(say)
		}
		return Ask
	case outcome == Refused:
		if store && !x.operand.varies || refusal.Code != pgerr.FeatureNotSupported || refusal.Detail == "" || refusal.Hint == "" {
			t.Fatalf("%s: %v", say, refusal)
		}
	case outcome == AnyShard:
		if len(rows) > 0 || store && err == nil {
			t.Fatal(say)
		}
	case outcome == Bound:
		if store && err == nil && len(rows) != 1 || !asked && store && err != nil {
			t.Fatal(say)
		}
		x.compare(t, part, value, rows, say)
		if !store && err == nil && x.has(t, value) && len(rows) == 0 {
			t.Fatal(say)
		}
	}
	if asked {
		return Ask
	}
	return outcome
}

// firstAtOrAfter finds the literal of the operand: the first that stands where the operand does.
func firstAtOrAfter(n *sqltext.Normalized, at int, store bool, statement []byte, sql string) int {
	if !store {
		at = len(statement) - len(sql)
	}
	return slices.IndexFunc(n.Literals, func(l sqltext.Literal) bool { return l.Start >= at })
}

// compare holds every row of the answer equal to the value, and its hash to the value's.
func (x exchange) compare(t *rapid.T, part *plan.KeyPart, value key.Value, rows [][]string, say string) {
	for _, row := range rows {
		got, outcome, err := Answer(part, []byte(row[0]))
		if err != nil || outcome != Bound || got != value.Clone() {
			t.Fatalf("%s\nwhich is %v, not %v (%v)", say, got, value, err)
		}
		if hash := strconv.FormatInt(int64(value.Hash(42)), 10); hash != row[1] {
			t.Fatalf("%s\nbut the hash is %s", say, hash)
		}
	}
}

// addRow puts the value among the rows to be compared with, where the column can have it.
func (x exchange) addRow(t *rapid.T, value key.Value) {
	x.exec(t, "SAVEPOINT row")
	if _, err := x.run(t, "INSERT INTO "+x.column.table+"_rows VALUES ("+valueSQL(value)+")", nil); err != nil {
		x.exec(t, "ROLLBACK TO row")
	}
}

func (x exchange) has(t *rapid.T, value key.Value) bool {
	rows, err := x.run(t, "SELECT 1 FROM "+x.column.table+"_rows WHERE k = "+valueSQL(value), nil)
	return err == nil && len(rows) > 0
}

// valueSQL writes a value so that no setting changes it.
func valueSQL(value key.Value) string {
	switch value.Type() {
	case key.Text, key.Varchar:
		return `pg_catalog.convert_from('\x` + hex.EncodeToString([]byte(value.String())) + `', 'UTF8')`
	default:
		return "'" + value.String() + "'::" + value.Type().String()
	}
}

func (x exchange) ask(t *rapid.T, part *plan.KeyPart, n *sqltext.Normalized, statement []byte) (key.Value, Outcome, error) {
	x.exec(t, "SAVEPOINT ask")
	defer x.exec(t, "ROLLBACK TO ask")
	sql, params := AskSQL(part, n, statement, x.operand.params)
	rows, err := x.run(t, sql, params)
	if err != nil {
		return key.Value{}, Refused, err
	}
	value, outcome, err := Answer(part, []byte(rows[0][0]))
	if err != nil {
		t.Fatalf("%s for %s: %v", sql, statement, err)
	}
	return value, outcome, nil
}

func (x exchange) exec(t *rapid.T, sql string) {
	if _, err := x.conn.Exec(context.Background(), sql).ReadAll(); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (x exchange) run(t *rapid.T, sql string, params []Param) ([][]string, error) {
	values, oids, formats := make([][]byte, len(params)), make([]uint32, len(params)), make([]int16, len(params))
	for i, p := range params {
		values[i], oids[i] = p.Value, p.OID
		if p.Binary {
			formats[i] = 1
		}
	}
	result := x.conn.ExecParams(context.Background(), sql, values, oids, formats, nil).Read()
	if x.conn.IsClosed() {
		t.Fatalf("%s: %v", sql, result.Err)
	}
	rows := make([][]string, len(result.Rows))
	for i, row := range result.Rows {
		for _, field := range row {
			rows[i] = append(rows[i], string(field))
		}
	}
	return rows, result.Err
}

// casts are the types that an operand is cast to, and their modifiers.
var casts = []struct {
	sql     string
	oid     uint32
	typeMod int32
}{
	{"int2", oidInt2, -1}, {"int4", oidInt4, -1}, {"bigint", oidInt8, -1}, {"text", oidText, -1}, {"varchar", oidVarchar, -1}, {"varchar(3)", oidVarchar, 7},
	{"uuid", oidUUID, -1}, {"date", oidDate, -1}, {"timestamptz", oidTimestamptz, -1}, {"timestamptz(0)", oidTimestamptz, 0}, {"timestamp", oidTimestamp, -1},
	{"timestamp(3)", oidTimestamp, 3}, {"bytea", oidBytea, -1}, {"numeric", oidNumeric, -1}, {"numeric(5,-2)", oidNumeric, 4 + 5<<16 + 2046}, {"numeric(7,1)", oidNumeric, 4 + 7<<16 + 1}, {"float8", 701, -1},
	{"float4", 700, -1}, {"bpchar", oidBpchar, -1}, {"char(2)", oidBpchar, 6}, {"name", 19, -1}, {`"char"`, 18, -1}, {"bool", oidBool, -1}, {"jsonb", 3802, -1}, {"oid", 26, -1},
}

// ownCasts are those within the family of the column.
func ownCasts(c column) (own []int) {
	for i, cast := range casts {
		if familyOf(cast.oid) == familyOfColumn(c.typ) {
			own = append(own, i)
		}
	}
	return own
}

func drawOperand(t *rapid.T, c column) operand {
	var o operand
	text := drawText(t, c)
	switch rapid.SampledFrom([]string{"string", "string", "number", "other", "param", "param", "binary"}).Draw(t, "operand") {
	case "string":
		o = operand{sql: quote(t, text), plan: plan.Operand{Kind: plan.FromLiteral}}
	case "number":
		o = drawNumber(t)
	case "other":
		o = rapid.SampledFrom([]operand{
			{sql: "true", plan: plan.Operand{Kind: plan.IsTrue}}, {sql: "false", plan: plan.Operand{Kind: plan.IsFalse}},
			{sql: "B'101'", plan: plan.Operand{Kind: plan.FromLiteral}}, {sql: "X'1F'", plan: plan.Operand{Kind: plan.FromLiteral}}, {sql: "N'abc '", plan: plan.Operand{Kind: plan.FromLiteral}},
			{sql: "-'5'", plan: plan.Operand{Kind: plan.FromLiteral, Negative: true}},
		}).Draw(t, "other")
	case "param":
		oid := drawOID(t, c)
		o = operand{sql: "$1", params: []Param{{Value: []byte(text), OID: oid}}, plan: plan.Operand{Kind: plan.FromParam, Param: 1}}
	case "binary":
		oid := drawOID(t, c)
		o = operand{sql: "$1", params: []Param{{Value: drawBinary(t, oid, c), Binary: true, OID: oid}}, plan: plan.Operand{Kind: plan.FromParam, Param: 1}}
	}
	o.varies = plan.VariesInTime([]byte(text)) || strings.Contains(text+o.sql, `\`) // what is behind an escape is not looked at
	if i := drawCast(t, c); i >= 0 {
		o.sql = "(" + o.sql + ")::" + casts[i].sql
		o.plan.CastOID, o.plan.CastMod = casts[i].oid, casts[i].typeMod
	}
	return o
}

func drawCast(t *rapid.T, c column) int {
	switch rapid.IntRange(0, 9).Draw(t, "cast") {
	case 0, 1:
		return rapid.SampledFrom(ownCasts(c)).Draw(t, "own")
	case 2:
		return rapid.IntRange(0, len(casts)-1).Draw(t, "any")
	}
	return -1
}

func drawOID(t *rapid.T, c column) uint32 {
	own := columnOID(c.typ)
	return rapid.SampledFrom([]uint32{0, 0, own, own, oidUnknown, oidInt2, oidInt4, oidInt8, oidText, oidVarchar, oidUUID, oidDate, oidTimestamptz, oidTimestamp, oidBytea, oidNumeric, oidFloat8, oidFloat4, oidBpchar, 19}).Draw(t, "oid")
}

// drawText draws a text that may be a value of the column, seldom of another type.
func drawText(t *rapid.T, c column) string {
	typ := c.typ
	if rapid.IntRange(0, 9).Draw(t, "foreign") == 0 {
		typ = rapid.SampledFrom(key.Types()).Draw(t, "type")
	}
	switch typ {
	case key.Bigint, key.Integer, key.Smallint:
		return drawInt(t)
	case key.UUID:
		id := rapid.SampledFrom(append(someUUIDs, "A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a12", "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}", "a0eebc999c0b4ef8bb6d6bb9bd380a11",
			"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1g", "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11", "a0eebc999-c0b-4ef8-bb6d-6bb9bd380a11", "")).Draw(t, "uuid")
		return id
	case key.Date:
		return rapid.OneOf(rapid.SampledFrom(append(someDates, "tomorrow", "2026-02-30", "0044-03-15", "0000-01-01", "0001-01-01", "9999-12-31", "2026-1-5", "01/02/2026", "20260131",
			"2026-01-31 23:00:00-05", "2026-13-01", "12026-01-31", "2026-01-31 BC", " 2026-01-31", "2024-02-29", "1900-02-29", "epoch", "2026-W05", "26-01-02", "")), drawDay()).Draw(t, "date")
	case key.Timestamptz:
		return drawTime(t)
	case key.Bytea:
		return rapid.OneOf(rapid.SampledFrom(append(someBytes, `\x0`, `\xzz`, `\x de ad`, `\\000`, `\000a`, `\XFF`, `\xFFfe`)), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return `\x` + hex.EncodeToString(b) })).Draw(t, "bytea")
	default:
		return rapid.OneOf(rapid.SampledFrom(append(someTexts, "abc   ", "abcd", "äöüß", "äöü  ", "abc \t", "a\x00b", "\xff", "é\xe9", "ab  ", "   ", "    ", "日本語 ", "日本語語", `a\b`, "it's", "\xe4\xf6\xfc  ")), rapid.String()).Draw(t, "text")
	}
}

func drawInt(t *rapid.T) string {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"32767", "32768", "-32769", "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
			" 5", "5 ", "+5", "007", "-0", "", "-", "+", "abc", "5.0", "1e3", "0x1F", "1_000", "--5", "99999999999999999999", "92233720368547758070"}),
		rapid.Map(rapid.Int64(), func(n int64) string { return strconv.FormatInt(n, 10) }),
		rapid.Map(rapid.Int16(), func(n int16) string { return strconv.Itoa(int(n)) }),
	).Draw(t, "int")
}

func drawDay() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return fmt.Sprintf("%04d-%02d-%02d", rapid.IntRange(0, 9999).Draw(t, "year"), rapid.IntRange(0, 13).Draw(t, "month"), rapid.IntRange(0, 32).Draw(t, "day"))
	})
}

func drawTime(t *rapid.T) string {
	if rapid.Bool().Draw(t, "odd") {
		return rapid.SampledFrom(append(someTimes, "2026-01-31", "today", "2026-01-31 24:00:00+00", "2026-01-31 23:59:60+00", "2026-01-31 12:34:56.1234567+00", "2026-01-31T12:34:56Z", "2026-01-31 12:34:56 +02",
			"2026-01-31 12:34:56+0530", "2026-01-31 12:34:56+05:30:10", "2026-01-31 12:34:56+16", "2026-01-31 12:34:56-15:59", "2026-01-31 12:34:56+5", "2026-01-31 12:34:56 Europe/Berlin", "2026-01-31 12:34:56z",
			"2026-03-08 02:30:00", "2026-11-01 01:30:00", "2011-12-30 12:00:00", "1800-01-01 00:00:00", "0001-01-01 00:00:00+15:59", "9999-12-31 23:59:59.999999-15", "2026-01-31 12:34:56.+00", "2026-01-31 12:34+00", "")).Draw(t, "time")
	}
	text := fmt.Sprintf("%s%s%02d:%02d:%02d", drawDay().Draw(t, "day"), rapid.SampledFrom([]string{" ", "T", "  "}).Draw(t, "separator"),
		rapid.IntRange(0, 24).Draw(t, "hour"), rapid.IntRange(0, 60).Draw(t, "minute"), rapid.IntRange(0, 60).Draw(t, "second"))
	text += rapid.SampledFrom([]string{"", ".5", ".499999", ".500000", ".0005", ".000499", ".999999", ".123456", ".1234565", ".05"}).Draw(t, "fraction")
	return text + rapid.SampledFrom([]string{"", "Z", "+00", "-08", "+05:30", "-15:59", "+16", "+0530"}).Draw(t, "offset")
}

// quote writes a string literal of any kind that can have the text.
func quote(t *rapid.T, text string) string {
	text = strings.ReplaceAll(text, "\x00", "")
	switch rapid.IntRange(0, 7).Draw(t, "quotes") {
	case 0:
		return "E'" + strings.ReplaceAll(strings.ReplaceAll(text, `\`, `\\`), "'", `\'`) + "'"
	case 1:
		if !strings.Contains(text, "$") {
			return "$q$" + text + "$q$"
		}
	case 2:
		return "U&'" + strings.ReplaceAll(strings.ReplaceAll(text, `\`, `\\`), "'", "''") + "'"
	case 3:
		return "'" + strings.ReplaceAll(text, "'", "''") + "'\n''"
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}

func drawNumber(t *rapid.T) operand {
	digits := rapid.OneOf(rapid.SampledFrom([]string{"0", "5", "5.0", "2.5", "3.5", "0.5", "5e0", "1e30", "32767", "32768", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "9223372036854775807.5",
		"99999999999999999999", "007", "9007199254740993"}), rapid.Map(rapid.Uint64(), func(n uint64) string { return strconv.FormatUint(n, 10) })).Draw(t, "digits")
	o := operand{sql: digits, plan: plan.Operand{Kind: plan.FromLiteral}}
	if rapid.Bool().Draw(t, "minus") {
		o.sql, o.plan.Negative = "-"+digits, true
	}
	return o
}

// drawBinary draws a parameter in binary format, mostly one that its type can have.
func drawBinary(t *rapid.T, oid uint32, c column) []byte {
	if oid == 0 || oid == oidUnknown {
		oid = columnOID(c.typ)
	}
	odd := rapid.IntRange(0, 5).Draw(t, "odd") == 0
	switch {
	case odd:
		return rapid.SliceOfN(rapid.Byte(), 0, 17).Draw(t, "bytes")
	case oid == oidInt2:
		return binary.BigEndian.AppendUint16(nil, uint16(rapid.Int16().Draw(t, "int2")))
	case oid == oidInt4:
		return binary.BigEndian.AppendUint32(nil, uint32(rapid.Int32().Draw(t, "int4")))
	case oid == oidDate:
		return binary.BigEndian.AppendUint32(nil, uint32(rapid.OneOf(rapid.SampledFrom([]int32{math.MinInt32, math.MaxInt32, math.MinInt32 + 1, math.MaxInt32 - 1, firstDay, firstDay - 1, lastDay, lastDay + 1}), rapid.Int32()).Draw(t, "date")))
	case oid == oidInt8:
		return binary.BigEndian.AppendUint64(nil, uint64(rapid.Int64().Draw(t, "int8")))
	case oid == oidTimestamptz || oid == oidTimestamp:
		return binary.BigEndian.AppendUint64(nil, uint64(rapid.OneOf(rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64, math.MinInt64 + 1, firstMicro, firstMicro - 1, endMicro, endMicro - 1, 0, 9527 * microsPerDay, -microsPerDay, 500000, -500000, 499999, -499999, 500, -500}),
			rapid.Int64Range(firstMicro, endMicro-1), rapid.Int64()).Draw(t, "micros")))
	case oid == oidFloat8:
		return binary.BigEndian.AppendUint64(nil, math.Float64bits(rapid.SampledFrom([]float64{0, 5, -1, 2.5, 3.5, -2.5, 32768, 1 << 53, 1<<53 - 1, 1e18, 1e30, math.Inf(1), math.NaN()}).Draw(t, "float8")))
	case oid == oidFloat4:
		return binary.BigEndian.AppendUint32(nil, math.Float32bits(rapid.SampledFrom([]float32{0, 5, -1, 2.5, 32768, 1 << 24, 1<<24 - 1, 1e18}).Draw(t, "float4")))
	case oid == oidNumeric:
		return rapid.SampledFrom(someNumerics).Draw(t, "numeric")
	case oid == oidUUID:
		return rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid")
	default:
		return []byte(drawText(t, column{typ: key.Text}))
	}
}
