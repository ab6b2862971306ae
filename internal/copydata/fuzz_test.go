package copydata

import (
	"bytes"
	"errors"
	"testing"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// fuzzFormats are formats of every kind, with what is rare about them.
func fuzzFormats(f *testing.F) []*Format {
	f.Helper()
	csv := option("format", "csv")
	return []*Format{
		newFormat(f, 2), newFormat(f, 1, option("delimiter", "|"), Option{Name: "header", Bare: true}, option("default", "")),
		newFormat(f, 2, csv), newFormat(f, 3, csv, option("quote", "'"), option("escape", `\`), option("null", "-"), Option{Name: "force_null", Star: true}),
		newFormat(f, 1, csv, option("header", "match"), option("escape", ","), option("delimiter", `\`)),
		newFormat(f, 2, option("format", "binary")),
	}
}

// FuzzSplitter: no data makes it panic, loses a byte or gets past the limit, and it is the same however it comes.
func FuzzSplitter(f *testing.F) {
	formats := fuzzFormats(f)
	for _, data := range []string{
		"1\tx\n2\ty\\\n\n\\.\nrest", "1|\r\n", "\"a\nb\",c\n", "'a\\'b',-,''\n", "\\.\n", "\\.\r\r", "a\rb\nc",
		binaryData(signature, int32(0), int32(2), "ab", int16(2), int32(1), "x", int32(-1), int16(-1)),
		binaryData(signature, int32(0), int32(0), int16(2), int32(-7)),
	} {
		for which := range formats {
			f.Add(uint8(which), uint8(3), []byte(data))
		}
	}
	f.Fuzz(func(t *testing.T, which, size uint8, data []byte) {
		format := formats[int(which)%len(formats)]
		config := Config{Keys: allKeys(format), MaxRow: 100, ServerVersion: int(which) / len(formats) % 3 * 90000}
		whole, wholeError := split(t, format, config, string(data))
		sizes := make([]int, len(data))
		for i := range sizes {
			sizes[i] = int(size)%5 + 1
		}
		parts, partsError := split(t, format, config, string(data), sizes...)
		sameError := message(wholeError) == message(partsError) || wholeError != nil && message(partsError) == tooLong
		if merged(whole) != merged(parts) && !isCutShort(whole, parts) || !sameError {
			t.Errorf("whole: %s, %v; in parts: %s, %v", merged(whole), wholeError, merged(parts), partsError)
		}
		checkPieces(t, data, whole, wholeError)
		checkPieces(t, data, parts, partsError)
	})
}

// tooLong can be said before a fault at the end of the row has come.
const tooLong = "a row of COPY is too long"

// isCutShort: of data with a wrong signature, what has come is malformed and what comes is ignored.
func isCutShort(a, b []Piece) bool {
	return len(a) > 0 && len(b) > 0 && a[0].Kind == Malformed && b[0].Kind == Malformed && joined(a) == joined(b)
}

func checkPieces(t *testing.T, data []byte, pieces []Piece, err error) {
	t.Helper()
	var known *pgerr.Error
	if err != nil && !errors.As(err, &known) {
		t.Errorf("%v is not for a client", err)
	}
	if got := []byte(joined(pieces)); err == nil && !bytes.Equal(got, data) || !bytes.HasPrefix(data, got) {
		t.Errorf("%q became %q, error %v", data, got, err)
	}
	for _, p := range pieces {
		if len(p.Raw) > 100 && (p.Kind == Row || p.Kind == HeaderPiece) {
			t.Errorf("a row of %d bytes was taken", len(p.Raw))
		}
	}
}
