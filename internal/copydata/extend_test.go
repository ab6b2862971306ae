package copydata

import (
	"encoding/binary"
	"testing"
)

func TestRowsAreExtended(t *testing.T) {
	option := func(name, value string) Option { return Option{Name: name, Value: value} }
	csv := option("format", "csv")
	for _, tt := range []struct {
		options   []Option
		row, want string
	}{
		{nil, "1\ta\n", "1\ta\tx:y-\"z\n"},
		{nil, "1\ta\r\n", "1\ta\tx:y-\"z\r\n"},
		{nil, "1\ta", "1\ta\tx:y-\"z"},
		{nil, "1\n", "1\n"},
		{nil, "1\\\ta\n", "1\\\ta\n"},
		{nil, "1\ta\tb\n", "1\ta\tb\tx:y-\"z\n"},
		{[]Option{option("delimiter", ":")}, "1:a\n", "1:a:x\\:y-\"z\n"},
		{[]Option{csv}, "1,a\n", "1,a,\"x:y-\"\"z\"\n"},
		{[]Option{csv}, "1,\"a\n,\"\"\"\n", "1,\"a\n,\"\"\",\"x:y-\"\"z\"\n"},
		{[]Option{csv}, "\"1,a\"\n", "\"1,a\"\n"},
		{[]Option{csv, option("quote", "-"), option("escape", ":")}, "1,-a:-,-\n", "1,-a:-,-,-x::y:-\"z-\n"},
	} {
		f, err := NewFormat(tt.options, []string{"k", "v"}, "UTF8")
		if err != nil {
			t.Fatal(err)
		}
		if got := string(f.Extend(nil, []byte(tt.row), [][]byte{[]byte(`x:y-"z`)})); got != tt.want {
			t.Errorf("%q becomes %q, want %q", tt.row, got, tt.want)
		}
	}
}

func TestBinaryRowsAreExtended(t *testing.T) {
	f, err := NewFormat([]Option{{Name: "format", Value: "binary"}}, []string{"k", "v"}, "UTF8")
	if err != nil {
		t.Fatal(err)
	}
	field := func(row []byte, value string) []byte {
		return append(binary.BigEndian.AppendUint32(row, uint32(len(value))), value...)
	}
	row := field(field([]byte{0, 2}, "one"), "two")
	want := string(field(field(field([]byte{0, 3}, "one"), "two"), "three"))
	if got := string(f.Extend(nil, row, [][]byte{[]byte("three")})); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	short := string(field([]byte{0, 1}, "one"))
	if got := string(f.Extend(nil, []byte(short), [][]byte{[]byte("three")})); got != short {
		t.Errorf("%q, want %q", got, short)
	}
}

func TestValuesAreWrittenAsTheyAreRead(t *testing.T) {
	f, err := NewFormat([]Option{{Name: "null", Value: "none"}}, []string{"k"}, "UTF8")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(f.AppendValues(nil, [][]byte{nil, []byte("a\nb\\c\r")})), "\tnone\ta\\nb\\\\c\\r"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if f.Writes([]byte("none")) || !f.Writes([]byte("some")) || !f.Writes(nil) {
		t.Error("a value that is written like NULL cannot be written, and no other")
	}
}
