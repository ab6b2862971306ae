package key_test

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cleavedb/cleave/placement/key"
)

// TestIntMixesTheUpperHalf: PostgreSQL's plain function folds these pairs together under every seed.
func TestIntMixesTheUpperHalf(t *testing.T) {
	for seed := range uint64(100) {
		if key.HashInt(1, seed) == key.HashInt(1<<32, seed) {
			t.Fatalf("1 and 4294967296 collide with seed %d", seed)
		}
	}
}

func TestHashesOfOneValueAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed, s := rapid.Uint64().Draw(t, "seed"), rapid.String().Draw(t, "text")
		if key.HashText(s, seed) != key.HashTextBytes([]byte(s), seed) {
			t.Fatalf("text %q and its bytes differ", s)
		}
		n := rapid.Int16().Draw(t, "number")
		var hashes [3]uint64
		for i, typ := range []key.Type{key.Smallint, key.Integer, key.Bigint} {
			v, err := typ.Parse(strconv.Itoa(int(n)))
			if err != nil {
				t.Fatal(err)
			}
			hashes[i] = v.Hash(seed)
		}
		if hashes[0] != hashes[1] || hashes[1] != hashes[2] || hashes[2] != key.HashInt(int64(n), seed) {
			t.Fatalf("%d hashes to %x as smallint, integer and bigint", n, hashes)
		}
	})
}

func TestHashingDoesNotAllocate(t *testing.T) {
	text, raw, id := "user:12345 and some more", []byte("user:12345"), [16]byte{1}
	for name, hash := range map[string]func() uint64{
		"int":         func() uint64 { return key.HashInt(42, 1) },
		"text":        func() uint64 { return key.HashText(text, 1) },
		"text bytes":  func() uint64 { return key.HashTextBytes(raw, 1) },
		"uuid":        func() uint64 { return key.HashUUID(id, 1) },
		"date":        func() uint64 { return key.HashDate(1, 1) },
		"timestamptz": func() uint64 { return key.HashTimestamptz(1, 1) },
		"bytea":       func() uint64 { return key.HashBytea(raw, 1) },
	} {
		if n := testing.AllocsPerRun(100, func() { hash() }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestEncodingKeepsTheOrder: composite keys compare column by column, and so do their encodings.
func TestEncodingKeepsTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type row struct {
			text string
			raw  []byte
			n    int64
		}
		draw := func(label string) (row, []byte) {
			r := row{
				text: rapid.StringOfN(rapid.RuneFrom([]rune("\x01漢")), 0, 2, -1).Draw(t, label),
				raw:  rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xff}), 0, 3).Draw(t, label),
				n:    rapid.OneOf(rapid.Int64(), rapid.Int64Range(-2, 2)).Draw(t, label),
			}
			return r, key.AppendInt(key.AppendBytea(key.AppendText(nil, r.text), r.raw), r.n)
		}
		a, encodedA := draw("a")
		b, encodedB := draw("b")
		want := cmp.Or(strings.Compare(a.text, b.text), bytes.Compare(a.raw, b.raw), cmp.Compare(a.n, b.n))
		if got := bytes.Compare(encodedA, encodedB); got != want {
			t.Fatalf("%v and %v compare as %d, their encodings as %d", a, b, want, got)
		}
	})
}

func TestValuesEncodeLikeTheirTypes(t *testing.T) {
	for _, c := range []struct {
		typ         key.Type
		less, value string
	}{
		{key.Bigint, "-9223372036854775808", "-1"},
		{key.Smallint, "-1", "0"},
		{key.Text, "a", "ab"},
		{key.UUID, "00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000001"},
		{key.Date, "-infinity", "4714-11-24 BC"},
		{key.Date, "0044-03-15 BC", "0044-03-15"},
		{key.Timestamptz, "2024-01-01 00:00:00+02", "2024-01-01 00:00:00+00"},
		{key.Timestamptz, "294276-12-31 23:59:59.999999+00", "infinity"},
		{key.Bytea, `\x00`, `\x0000`},
	} {
		var encoded [2][]byte
		for i, s := range []string{c.less, c.value} {
			v, err := c.typ.Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			if v.Type() != c.typ {
				t.Errorf("a %s parsed as %s", c.typ, v.Type())
			}
			encoded[i] = v.AppendOrdered(nil)
		}
		if bytes.Compare(encoded[0], encoded[1]) >= 0 {
			t.Errorf("%s %s does not sort before %s", c.typ, c.less, c.value)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for typ, bad := range map[key.Type][]string{
		key.Bigint:   {"", "x", "1.5", "9223372036854775808"},
		key.Integer:  {"2147483648"},
		key.Smallint: {"-32769"},
		key.Text:     {"a\x00b", "\xff"},
		key.UUID: {"", "0", "zz000000-0000-0000-0000-000000000000", "{00000000-0000-0000-0000-000000000000",
			"0-0000000-0000-0000-0000-000000000000"},
		key.Date: {"", "2024", "2024-13-01", "2023-02-29", "1900-02-29", "2024-00-10", "0000-01-01", "2024-1-1", "4714-11-23 BC",
			"5874898-01-01", "+024-01-01", "99999999999-01-01"},
		key.Timestamptz: {"2024-01-01", "2024-01-01 00:00:00", "2024-01-01 25:00:00+00", "2024-01-01 00:00:00.1234567+00",
			"2024-01-01 00:00:00+zz", "2024-01-01 01:02:03,123+00", "2024-01-01 1:02:03+00", "2024-01-01 01:02:03+24", "294277-01-01 00:00:00+00", "5874897-12-31 00:00:00+00"},
		key.Bytea: {"00", `\x0`, `\xzz`},
	} {
		for _, s := range bad {
			if v, err := typ.Parse(s); err == nil {
				t.Errorf("%s takes %q as %v", typ, s, v)
			}
		}
	}
	if _, err := key.Type(99).Parse("1"); err == nil {
		t.Error("an unknown type parses")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"1", "2024-02-29", "2024-01-01 10:00:00.5+05:30", `\x00ff`, "infinity", "0044-03-15 BC"} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, s string) {
		for _, typ := range key.Types() {
			if v, err := typ.Parse(s); err == nil {
				v.Hash(1)
				v.AppendOrdered(nil)
			}
		}
	})
}

func TestTypes(t *testing.T) {
	for _, typ := range key.Types() {
		if again, err := key.ParseType(strings.ToUpper(typ.String())); err != nil || again != typ {
			t.Errorf("%s reads back as %v, %v", typ, again, err)
		}
	}
	for _, name := range []string{"", "char(3)", "numeric", "float8"} {
		if _, err := key.ParseType(name); err == nil {
			t.Errorf("%q is taken for a key type", name)
		}
	}
	if _, err := key.Type(0).SQL("a", "0"); err == nil {
		t.Error("the zero type has an expression")
	}
	if _, err := key.CompositeSQL([]key.Type{key.Text}, nil, "0"); err == nil {
		t.Error("a key without columns has an expression")
	}
}

func Example() {
	const seed = 42
	h := key.HashInt(1001, seed) // (channel_id, bucket)
	h = key.HashText("2024-W05", h)
	fmt.Printf("%016x\n", h)
	expression, _ := key.CompositeSQL([]key.Type{key.Bigint, key.Text}, []string{"channel_id", "bucket"}, "42")
	fmt.Println(expression)
	// Output:
	// e4417c4ab5b8431d
	// hashtextextended(bucket, hashint8extended(channel_id, hashint8extended((channel_id) >> 32, 42)))
}

func BenchmarkHash(b *testing.B) {
	id, hundred := [16]byte{1, 2, 3}, strings.Repeat("x", 100)
	for name, hash := range map[string]func(i int64) uint64{
		"bigint":  func(i int64) uint64 { return key.HashInt(i, 1) },
		"text10":  func(i int64) uint64 { return key.HashText("user:12345", uint64(i)) },
		"text100": func(i int64) uint64 { return key.HashText(hundred, uint64(i)) },
		"uuid":    func(i int64) uint64 { return key.HashUUID(id, uint64(i)) },
	} {
		b.Run("type="+name, func(b *testing.B) {
			b.ReportAllocs()
			for i := int64(0); b.Loop(); i++ {
				hash(i)
			}
		})
	}
}

// TestNext: one more at the borders of each type. That nothing lies in between is TestNothingIsBeforeTheNext.
func TestNext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		typ        key.Type
		text, next string
	}{
		{key.Bigint, "41", "42"}, {key.Bigint, "-1", "0"}, {key.Bigint, "9223372036854775807", ""}, {key.Integer, "2147483647", ""}, {key.Smallint, "32766", "32767"}, {key.Smallint, "32767", ""},
		{key.Text, "", "\x01"}, {key.Text, "acme", "acme\x01"}, {key.Varchar, "größe", "größe\x01"},
		{key.UUID, "00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000001"}, {key.UUID, "00000000-0000-0000-ffff-ffffffffffff", "00000000-0000-0001-0000-000000000000"},
		{key.UUID, "7fffffff-ffff-ffff-ffff-ffffffffffff", "80000000-0000-0000-0000-000000000000"}, {key.UUID, "ffffffff-ffff-ffff-ffff-ffffffffffff", ""},
		{key.Date, "1999-12-31", "2000-01-01"}, {key.Date, "2024-02-28", "2024-02-29"}, {key.Date, "-infinity", "4714-11-24 BC"}, {key.Date, "5874897-12-31", "infinity"}, {key.Date, "infinity", ""},
		{key.Timestamptz, "2000-01-01 00:00:00+00", "2000-01-01 00:00:00.000001+00"}, {key.Timestamptz, "-infinity", "4714-11-24 00:00:00+00 BC"}, {key.Timestamptz, "294276-12-31 23:59:59.999999+00", "infinity"}, {key.Timestamptz, "infinity", ""},
		{key.Bytea, `\x`, `\x00`}, {key.Bytea, `\x0a00`, `\x0a0000`},
	} {
		v, err := c.typ.Parse(c.text)
		if err != nil {
			t.Fatal(err)
		}
		next, ok := v.Next()
		if ok != (c.next != "") || ok && next.String() != c.next {
			t.Errorf("behind %s %q: %q, %v", c.typ, c.text, next, ok)
		}
		if ok && bytes.Compare(v.AppendOrdered(nil), next.AppendOrdered(nil)) >= 0 {
			t.Errorf("%s %q is not before %q", c.typ, v, next)
		}
	}
}
