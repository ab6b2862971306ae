package binding

import (
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/placement/key"
)

var utf8Client = Session{ClientEncodingUTF8: true}

// literal binds the first literal of an operand in SQL.
func literal(t testing.TB, part plan.KeyPart, sql string, s Session) (key.Value, Outcome, *pgerr.Error) {
	t.Helper()
	var n sqltext.Normalized
	text := []byte("SELECT " + sql)
	if err := n.Scan(text, true); err != nil {
		t.Fatal(err)
	}
	part.Column, part.Operand.Kind, part.Operand.Negative = "k", plan.FromLiteral, strings.HasPrefix(sql, "-")
	return Value(&part, &n, text, nil, s)
}

// TestLiterals names the outcome of each rule; that the values are right is what TestServer holds.
func TestLiterals(t *testing.T) {
	for _, c := range []struct {
		typ              key.Type
		sql              string
		stored, compared Outcome
	}{
		{key.Bigint, "5", Bound, Bound},
		{key.Bigint, "'5'", Bound, Bound},
		{key.Bigint, "$$5$$", Bound, Bound},
		{key.Bigint, "-9223372036854775808", Bound, Bound},
		{key.Bigint, "9223372036854775808", Ask, Ask},
		{key.Bigint, "5.0", Ask, Ask},
		{key.Bigint, "1e3", Ask, Ask},
		{key.Bigint, "-'5'", Ask, Refused},
		{key.Bigint, "' 5'", Ask, Ask},
		{key.Bigint, "E'5'", Ask, Ask},
		{key.Bigint, "X'1F'", Ask, Refused},
		{key.Integer, "2147483648", AnyShard, AnyShard},
		{key.Smallint, "'32768'", AnyShard, AnyShard},
		{key.Smallint, "-32768", Bound, Bound},
		{key.Text, "'abc'", Bound, Bound},
		{key.Text, "'a''b'\n'c'", Bound, Bound},
		{key.Text, "'\xff'", AnyShard, AnyShard},
		{key.Text, "5", Ask, Refused},
		{key.Text, "N'abc'", Ask, Refused},
		{key.UUID, "'A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11'", Bound, Bound},
		{key.UUID, "'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'", Ask, Ask},
		{key.Date, "'2026-01-31'", Bound, Bound},
		{key.Date, "'2026-02-29'", Ask, Ask},
		{key.Date, "'today'", Refused, Refused},
		{key.Date, "E'2026-01-31'", Ask, Ask},
		{key.Date, `E'\x74oday'`, Refused, Refused},
		{key.Date, "U&' ToMorrow '", Refused, Refused},
		{key.Timestamptz, "'yesterday 12:00'", Refused, Refused},
		{key.Timestamptz, "'now'", Refused, Refused},
		{key.Timestamptz, "'infinity'", Ask, Ask},
		{key.Text, "'now'", Bound, Bound},
		{key.Timestamptz, "'2026-01-31 12:34:56.5+05:30'", Bound, Bound},
		{key.Timestamptz, "'2026-01-31T12:34:56Z'", Bound, Bound},
		{key.Timestamptz, "'2026-01-31 12:34:56'", Ask, Ask},
		{key.Bytea, `'\xDEad'`, Bound, Bound},
		{key.Bytea, `'abc'`, Ask, Ask},
	} {
		for _, store := range []bool{true, false} {
			want := c.compared
			if store {
				want = c.stored
			}
			_, got, refusal := literal(t, plan.KeyPart{Type: c.typ, TypeMod: -1, Store: store}, c.sql, utf8Client)
			if got != want || (refusal != nil) != (want == Refused) {
				t.Errorf("%s in a %s (stored: %v): outcome %d, want %d (%v)", c.sql, c.typ, store, got, want, refusal)
			}
		}
	}
}

func TestSettings(t *testing.T) {
	noOffset := "'2026-01-31 12:34:56'"
	if v, outcome, _ := literal(t, plan.KeyPart{Type: key.Timestamptz, TypeMod: -1}, noOffset, Session{TimeZoneUTC: true}); outcome != Bound || v.String() != "2026-01-31 12:34:56+00" {
		t.Errorf("%s in UTC is %v, outcome %d", noOffset, v, outcome)
	}
	if _, outcome, _ := literal(t, plan.KeyPart{Type: key.Text, TypeMod: -1}, "'é'", Session{}); outcome != Ask {
		t.Errorf("é in an encoding that is not UTF8: outcome %d", outcome)
	}
}

func TestModifiers(t *testing.T) {
	for _, c := range []struct {
		part plan.KeyPart
		sql  string
		want string
	}{
		{plan.KeyPart{Type: key.Varchar, TypeMod: 7, Store: true}, "'äöü  '", "äöü"},
		{plan.KeyPart{Type: key.Varchar, TypeMod: 7}, "'äöü  '", "äöü  "},
		{plan.KeyPart{Type: key.Timestamptz, TypeMod: 0, Store: true}, "'2026-01-31 12:34:56.5Z'", "2026-01-31 12:34:57+00"},
		{plan.KeyPart{Type: key.Timestamptz, TypeMod: 0, Store: true}, "'1999-12-31 23:59:58.5Z'", "1999-12-31 23:59:58+00"},
		{plan.KeyPart{Type: key.Timestamptz, TypeMod: 0}, "'2026-01-31 12:34:56.5Z'", "2026-01-31 12:34:56.5+00"},
	} {
		if v, outcome, _ := literal(t, c.part, c.sql, utf8Client); outcome != Bound || v.String() != c.want {
			t.Errorf("%s in %+v is %q, outcome %d, want %q", c.sql, c.part, v, outcome, c.want)
		}
	}
	if _, outcome, _ := literal(t, plan.KeyPart{Type: key.Varchar, TypeMod: 7, Store: true}, "'abcd'", utf8Client); outcome != AnyShard {
		t.Errorf("abcd in a varchar(3): outcome %d", outcome)
	}
}

func TestParams(t *testing.T) {
	for _, c := range []struct {
		typ      key.Type
		param    Param
		operand  plan.Operand
		stored   Outcome
		compared Outcome
	}{
		{key.Bigint, Param{Null: true}, plan.Operand{}, Null, Null},
		{key.Bigint, Param{Value: []byte("5")}, plan.Operand{}, Bound, Bound},
		{key.Bigint, Param{Value: []byte("5"), OID: oidNumeric}, plan.Operand{}, Ask, Bound},
		{key.Bigint, Param{Value: []byte("5.00"), OID: oidNumeric}, plan.Operand{}, Ask, Bound},
		{key.Bigint, Param{Value: []byte("5.01"), OID: oidNumeric}, plan.Operand{}, Ask, AnyShard},
		{key.Bigint, Param{Value: []byte("5e1"), OID: oidNumeric}, plan.Operand{}, Ask, Ask},
		{key.Bigint, Param{Value: []byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 5}, Binary: true, OID: oidNumeric}, plan.Operand{}, Ask, Bound},
		{key.Bigint, Param{Value: []byte{0, 1, 0xff, 0xff, 0, 0, 0, 1, 0, 5}, Binary: true, OID: oidNumeric}, plan.Operand{}, Ask, AnyShard},
		{key.Bigint, Param{Value: []byte("5"), OID: oidFloat8}, plan.Operand{}, Ask, Bound},
		{key.Bigint, Param{Value: []byte("5.5"), OID: oidFloat8}, plan.Operand{}, Ask, AnyShard},
		{key.Bigint, Param{Value: []byte("9007199254740992"), OID: oidFloat8}, plan.Operand{}, Ask, Refused},
		{key.Bigint, Param{Value: []byte("16777216"), OID: oidFloat4}, plan.Operand{}, Ask, Refused},
		{key.Bigint, Param{Value: []byte("NaN"), OID: oidFloat8}, plan.Operand{}, Ask, Refused},
		{key.Bigint, Param{Value: []byte("5"), OID: oidNumeric}, plan.Operand{CastOID: oidInt8, CastMod: -1}, Ask, Ask},
		{key.Bigint, Param{Value: []byte{0, 0, 0, 5}, Binary: true, OID: oidInt4}, plan.Operand{}, Bound, Bound},
		{key.Bigint, Param{Value: []byte{0, 0, 0, 5}, Binary: true}, plan.Operand{}, AnyShard, AnyShard},
		{key.Bigint, Param{Value: []byte{0, 0, 0, 5}, Binary: true}, plan.Operand{CastOID: oidInt4, CastMod: -1}, Bound, Bound},
		{key.Bigint, Param{Value: []byte("5"), OID: 16400}, plan.Operand{}, Refused, Refused},
		{key.Bigint, Param{Value: []byte("5")}, plan.Operand{CastOID: 16400, CastMod: -1}, Refused, Refused},
		{key.Bigint, Param{Value: []byte("5")}, plan.Operand{Param: 2}, AnyShard, AnyShard},
		{key.Bigint, Param{Value: []byte("5")}, plan.Operand{Negative: true}, Ask, Refused},
		{key.Text, Param{Value: []byte("abc"), OID: oidVarchar}, plan.Operand{}, Bound, Bound},
		{key.Text, Param{Value: []byte("abc"), OID: oidBpchar}, plan.Operand{}, Ask, Refused},
		{key.Text, Param{Value: []byte("abc")}, plan.Operand{CastOID: oidVarchar, CastMod: 6}, Ask, Ask},
		{key.Text, Param{Value: []byte("a\x00")}, plan.Operand{}, AnyShard, AnyShard},
		{key.UUID, Param{Value: make([]byte, 15), Binary: true}, plan.Operand{}, AnyShard, AnyShard},
		{key.Date, Param{Value: []byte("2026-01-31"), OID: oidTimestamp}, plan.Operand{}, Ask, Ask},
		{key.Date, Param{Value: []byte("2026-01-31 00:00:00"), OID: oidTimestamp}, plan.Operand{}, Ask, Bound},
		{key.Date, Param{Value: []byte("2026-01-31 00:00:01"), OID: oidTimestamp}, plan.Operand{}, Ask, AnyShard},
		{key.Date, Param{Value: []byte("2026-01-31 00:00:00"), OID: oidTimestamptz}, plan.Operand{}, Ask, Refused},
		{key.Timestamptz, Param{Value: []byte("2026-01-31"), OID: oidDate}, plan.Operand{}, Ask, Ask},
		{key.Bytea, Param{Binary: true}, plan.Operand{}, Bound, Bound},
	} {
		for _, store := range []bool{true, false} {
			want := c.compared
			if store {
				want = c.stored
			}
			part := plan.KeyPart{Column: "k", Type: c.typ, TypeMod: -1, Store: store, Operand: c.operand}
			part.Operand.Kind, part.Operand.Param = plan.FromParam, max(c.operand.Param, 1)
			if _, got, refusal := Value(&part, nil, nil, []Param{c.param}, utf8Client); got != want || (refusal != nil) != (want == Refused) {
				t.Errorf("%+v in a %s (stored: %v): outcome %d, want %d (%v)", c.param, c.typ, store, got, want, refusal)
			}
		}
	}
}

// TestListsAndBounds: a value of another type says how the others of its list are read, and a bound need not be a key.
func TestListsAndBounds(t *testing.T) {
	for _, part := range []plan.KeyPart{{Type: key.Bigint, Listed: true}, {Type: key.Bigint, Ordered: true}} {
		part.Column, part.TypeMod, part.Operand = "k", -1, plan.Operand{Kind: plan.FromParam, Param: 1}
		for _, oid := range []uint32{oidNumeric, oidFloat8} {
			if _, got, _ := Value(&part, nil, nil, []Param{{Value: []byte("5"), OID: oid}}, utf8Client); got != Refused {
				t.Errorf("%+v with type %d: outcome %d", part, oid, got)
			}
		}
	}
}

func TestKeywordsAndNonsense(t *testing.T) {
	for kind, want := range map[plan.OperandKind]Outcome{
		plan.IsNull: Null, plan.IsDefault: Default, plan.Unknowable: Refused, plan.FromLiteral: Refused, plan.IsTrue: Refused, plan.OperandKind(99): Refused,
	} {
		part := plan.KeyPart{Type: key.Bigint, TypeMod: -1, Operand: plan.Operand{Kind: kind}}
		if _, got, refusal := Value(&part, &sqltext.Normalized{}, nil, nil, utf8Client); got != want || (refusal != nil) != (want == Refused) {
			t.Errorf("kind %d: outcome %d, want %d (%v)", kind, got, want, refusal)
		}
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	for typ, answers := range map[key.Type][][]byte{
		key.Bigint: {nil, []byte("00"), []byte("zz")}, key.UUID: {[]byte("00")}, key.Date: {[]byte("00")}, key.Timestamptz: {[]byte("00")}, key.Text: {nil, []byte("6")},
	} {
		for _, answer := range answers {
			if v, outcome, err := Answer(&plan.KeyPart{Type: typ}, answer); err == nil || outcome != Refused {
				t.Errorf("%q is the %s %v, outcome %d", answer, typ, v, outcome)
			}
		}
	}
	if _, outcome, err := Answer(&plan.KeyPart{Type: key.Bigint}, []byte{}); err != nil || outcome != AnyShard {
		t.Errorf("no bigint: outcome %d, %v", outcome, err)
	}
	if _, outcome, err := Answer(&plan.KeyPart{Type: key.Smallint}, []byte("0000000000008000")); err != nil || outcome != AnyShard {
		t.Errorf("32768 for a smallint: outcome %d, %v", outcome, err)
	}
}

// commonOperands are what binds without allocating.
var commonOperands = []struct {
	name   string
	typ    key.Type
	sql    string
	params []Param
}{
	{"int-literal", key.Bigint, "12345", nil},
	{"text-literal", key.Text, "'user:12345'", nil},
	{"int8-binary", key.Bigint, "$1", []Param{{Value: []byte{0, 0, 0, 0, 0, 0, 48, 57}, Binary: true, OID: oidInt8}}},
	{"int8-text", key.Bigint, "$1", []Param{{Value: []byte("12345"), OID: oidInt8}}},
	{"text", key.Text, "$1", []Param{{Value: []byte("user:12345"), OID: oidText}}},
	{"uuid-text", key.UUID, "$1", []Param{{Value: []byte("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), OID: oidUUID}}},
	{"uuid-binary", key.UUID, "$1", []Param{{Value: make([]byte, 16), Binary: true, OID: oidUUID}}},
	{"timestamptz-text", key.Timestamptz, "$1", []Param{{Value: []byte("2026-01-31 12:34:56.123456+00")}}},
}

// bindCommon returns a function that binds the operand and hashes its value.
func bindCommon(t testing.TB, i int) func() Outcome {
	t.Helper()
	c := commonOperands[i]
	text := []byte("SELECT " + c.sql)
	var n sqltext.Normalized
	if err := n.Scan(text, true); err != nil {
		t.Fatal(err)
	}
	part := &plan.KeyPart{Type: c.typ, TypeMod: -1, Store: true, Operand: plan.Operand{Kind: plan.FromLiteral}}
	if c.params != nil {
		part.Operand = plan.Operand{Kind: plan.FromParam, Param: 1}
	}
	return func() Outcome {
		v, outcome, _ := Value(part, &n, text, c.params, utf8Client)
		if outcome == Bound {
			v.Hash(1)
		}
		return outcome
	}
}

func TestCommonOperandsDoNotAllocate(t *testing.T) {
	for i, c := range commonOperands {
		bind := bindCommon(t, i)
		if outcome := bind(); outcome != Bound {
			t.Errorf("%s: outcome %d", c.name, outcome)
		}
		if n := testing.AllocsPerRun(100, func() { bind() }); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}

// TestClonesStay: a value shares the client's buffer, its clone does not.
func TestClonesStay(t *testing.T) {
	param := Param{Value: []byte("abc"), OID: oidText}
	part := &plan.KeyPart{Type: key.Text, TypeMod: -1, Operand: plan.Operand{Kind: plan.FromParam, Param: 1}}
	v, _, _ := Value(part, nil, nil, []Param{param}, utf8Client)
	kept := v.Clone()
	copy(param.Value, slices.Repeat([]byte("x"), 3))
	if kept.String() != "abc" {
		t.Errorf("the clone became %v", kept)
	}
}

func BenchmarkValue(b *testing.B) {
	for i, c := range commonOperands {
		b.Run("operand="+c.name, func(b *testing.B) {
			bind := bindCommon(b, i)
			b.ReportAllocs()
			for b.Loop() {
				bind()
			}
		})
	}
}
