package key

import (
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// TestConstructorsAgreeWithParse: a value is the same whichever way it was made.
func TestConstructorsAgreeWithParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyValue(t)
		got := want
		switch want.typ {
		case Bigint, Integer, Smallint:
			var err error
			if got, err = OfInt(want.typ, want.number); err != nil {
				t.Fatal(err)
			}
		case Text, Varchar:
			got = OfText(want.typ, want.bytes)
		case UUID:
			got = OfUUID(want.uuid())
		case Date:
			got = OfDate(int32(want.number))
		case Timestamptz:
			got = OfTimestamptz(want.number)
		case Bytea:
			got = OfBytea(want.bytes)
		}
		parsed, err := want.typ.Parse(want.String())
		if err != nil {
			t.Fatal(err)
		}
		if got != parsed || got.Hash(7) != parsed.Hash(7) || got.Clone() != parsed {
			t.Fatalf("%v was made %v, and read %v", want, got, parsed)
		}
	})
}

func TestOfIntKeepsTheRange(t *testing.T) {
	for _, c := range []struct {
		typ Type
		n   int64
	}{{Smallint, 32768}, {Smallint, -32769}, {Integer, 2147483648}, {Integer, -2147483649}, {Text, 1}, {Date, 1}, {0, 1}} {
		if v, err := OfInt(c.typ, c.n); err == nil {
			t.Errorf("%d is the %s %v", c.n, c.typ, v)
		}
	}
}

func TestCloneOutlivesTheBuffer(t *testing.T) {
	buffer := []byte("abc")
	v := OfText(Text, unsafe.String(&buffer[0], len(buffer)))
	kept := v.Clone()
	buffer[0] = 'x'
	if kept.String() != "abc" || v.String() != "xbc" {
		t.Errorf("the value is %v and its clone %v", v, kept)
	}
}

func TestConstructorsDoNotAllocate(t *testing.T) {
	id, text := [16]byte{1, 2}, "some text"
	if n := testing.AllocsPerRun(100, func() {
		number, _ := OfInt(Bigint, 42)
		_ = OfUUID(id).Hash(number.Hash(1)) + OfText(Text, text).Hash(1) + OfDate(1).Hash(1) + OfTimestamptz(1).Hash(1) + OfBytea(text).Hash(1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
