package key

import (
	"math"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// anyValue draws a value of any type, with the borders of each type more often than chance would.
func anyValue(t *rapid.T) Value {
	typ := rapid.SampledFrom(Types()).Draw(t, "type")
	v := Value{typ: typ}
	switch typ {
	case Bigint:
		v.number = rapid.Int64().Draw(t, "number")
	case Integer:
		v.number = int64(rapid.Int32().Draw(t, "number"))
	case Smallint:
		v.number = int64(rapid.Int16().Draw(t, "number"))
	case Date:
		v.number = rapid.OneOf(rapid.Int64Range(firstDay, lastDay), rapid.SampledFrom([]int64{math.MinInt32, math.MaxInt32, firstDay, lastDay, 0, -1})).Draw(t, "days")
	case Timestamptz:
		v.number = rapid.OneOf(rapid.Int64Range(firstMicro, endMicro-1), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64, firstMicro, endMicro - 1, 0, -1})).Draw(t, "micros")
	case Text, Varchar:
		v.bytes = rapid.StringOf(rapid.Rune().Filter(func(r rune) bool { return r > 0 && utf8.ValidRune(r) })).Draw(t, "text")
	case UUID:
		v = OfUUID([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid")))
	case Bytea:
		v.bytes = string(rapid.SliceOf(rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte{0, 1, 0xff}))).Draw(t, "bytea"))
	}
	return v
}

func TestTextOfAValueReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := anyValue(t)
		back, err := v.typ.Parse(v.String())
		if err != nil {
			t.Fatal(err)
		}
		if back != v {
			t.Fatalf("%s %q reads back as %q", v.typ, v, back)
		}
	})
}

func TestOrderedEncodingReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Custom(anyValue), 1, 4).Draw(t, "values")
		var encoded []byte
		for _, v := range values {
			encoded = v.AppendOrdered(encoded)
		}
		rest := string(encoded)
		for _, want := range values {
			var got Value
			var err error
			got, rest, err = want.typ.CutOrdered(rest)
			if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Fatalf("%s %q reads back as %q", want.typ, want, got)
			}
		}
		if rest != "" {
			t.Fatalf("%q is left over", rest)
		}
	})
}

func TestTextOfValuesIsPostgreSQLs(t *testing.T) {
	for _, c := range []struct {
		typ  Type
		text string
	}{
		{Date, "0001-01-01"}, {Date, "0001-12-31 BC"}, {Date, "4714-11-24 BC"}, {Date, "5874897-12-31"}, {Date, "-infinity"},
		{Timestamptz, "2024-02-29 23:59:59.123+00"}, {Timestamptz, "1999-12-31 23:59:59.999999+00"},
		{Timestamptz, "4714-11-24 00:00:00+00 BC"}, {Timestamptz, "294276-12-31 23:59:59.999999+00"},
		{UUID, "00112233-4455-6677-8899-aabbccddeeff"}, {Bytea, `\x00ff`}, {Bigint, "-9223372036854775808"},
	} {
		v, err := c.typ.Parse(c.text)
		if err != nil {
			t.Error(err)
		} else if v.String() != c.text {
			t.Errorf("%s %q is printed as %q", c.typ, c.text, v)
		}
	}
}

func TestBrokenEncodingsAreRefused(t *testing.T) {
	for _, c := range []struct {
		typ     Type
		encoded string
	}{
		{Bigint, "1234567"}, {Text, "abc"}, {Text, "\xff\x00"}, {UUID, "short"}, {Bytea, "a"}, {Bytea, "a\x00"}, {Bytea, "a\x00b\x00\x00"},
		{Smallint, string(AppendInt(nil, 40000))}, {Integer, string(AppendInt(nil, 1<<40))}, {0, "12345678"},
	} {
		if v, _, err := c.typ.CutOrdered(c.encoded); err == nil {
			t.Errorf("%s %q was read as %q", c.typ, c.encoded, v)
		}
	}
}

// TestNothingIsBeforeTheNext: whatever is greater than a value is not less than the next one, neighbours above all.
func TestNothingIsBeforeTheNext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Custom(anyValue).Draw(t, "value")
		other := rapid.Custom(anyValue).Filter(func(o Value) bool { return o.typ == v.typ }).Draw(t, "other")
		if ofBytes := v.typ == Text || v.typ == Varchar || v.typ == Bytea; ofBytes && rapid.Bool().Draw(t, "it goes on") {
			other.bytes = v.bytes + other.bytes
		}
		here, there := string(v.AppendOrdered(nil)), string(other.AppendOrdered(nil))
		next, ok := v.Next()
		if !ok {
			if there > here {
				t.Fatalf("nothing is said to be behind %s, but %s is", v, other)
			}
			return
		}
		if behind := string(next.AppendOrdered(nil)); there > here != (there >= behind) || behind <= here {
			t.Fatalf("%s, then %s, and %s", v, next, other)
		}
	})
}
