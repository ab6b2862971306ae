package binding

import (
	"bytes"
	"encoding/hex"
	"unicode/utf8"
	"unsafe"

	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/placement/key"
)

// readText takes characters as they are; text and binary format are the same.
func readText(part *plan.KeyPart, text []byte, s Session) (key.Value, Outcome) {
	if bytes.IndexByte(text, 0) >= 0 {
		return key.Value{}, AnyShard
	}
	if !s.ClientEncodingUTF8 && !isASCII(text) {
		return key.Value{}, Ask
	}
	if !utf8.Valid(text) {
		return key.Value{}, AnyShard
	}
	if part.Store && part.Type == key.Varchar && part.TypeMod >= varlenaHeader {
		var fits bool
		if text, fits = cutBlanks(text, int(part.TypeMod)-varlenaHeader); !fits {
			return key.Value{}, AnyShard
		}
	}
	return key.OfText(part.Type, view(text)), Bound
}

func isASCII(text []byte) bool {
	for _, c := range text {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// cutBlanks returns the first characters, if what follows is nothing but blanks: only these does an assignment cut off.
func cutBlanks(text []byte, characters int) (cut []byte, fits bool) {
	if len(text) <= characters {
		return text, true
	}
	end := 0
	for ; characters > 0 && end < len(text); characters-- {
		_, size := utf8.DecodeRune(text[end:])
		end += size
	}
	for _, c := range text[end:] {
		if c != ' ' {
			return nil, false
		}
	}
	return text[:end], true
}

// view gives bytes as a string without copying them: a key is looked at and forgotten while the client's message is there.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func readBytea(src *source) (key.Value, Outcome) {
	if src.binary {
		return key.OfBytea(view(src.bytes)), Bound
	}
	digits, isHex := bytes.CutPrefix(src.bytes, []byte(`\x`))
	if !isHex {
		return key.Value{}, Ask
	}
	raw := make([]byte, hex.DecodedLen(len(digits)))
	if _, err := hex.Decode(raw, digits); err != nil { // blanks, or an error
		return key.Value{}, Ask
	}
	return key.OfBytea(view(raw)), Bound
}

// readUUID reads the form in which PostgreSQL writes one, in either case. It takes others too, with braces or without hyphens.
func readUUID(src *source) (key.Value, Outcome) {
	var id [16]byte
	if src.binary {
		if len(src.bytes) != len(id) {
			return key.Value{}, AnyShard
		}
		return key.OfUUID([16]byte(src.bytes)), Bound
	}
	const form = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
	text := src.bytes
	if len(text) != len(form) || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return key.Value{}, Ask
	}
	at := 0
	for i := range id {
		if form[at] == '-' {
			at++
		}
		high, low := hexDigit(text[at]), hexDigit(text[at+1])
		if high|low > 0xf {
			return key.Value{}, Ask
		}
		id[i] = high<<4 | low
		at += 2
	}
	return key.OfUUID(id), Bound
}

// hexDigit returns the digit's value, 0xff for what is none.
func hexDigit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 0xff
}
