package auth

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// prepare returns the form of a password that is hashed: SASLprep (RFC 4013) as PostgreSQL does it, so that both give the
// same keys. A password that SASLprep refuses is taken byte by byte.
//
// PostgreSQL differs from the letter of the RFC: it looks for prohibited characters before it normalises.
func prepare(password string) string {
	if isASCII(password) || !utf8.ValidString(password) {
		return password
	}
	mapped := strings.Map(mapRune, password)
	if mapped == "" || strings.ContainsFunc(mapped, prohibited.has) || mixesDirections([]rune(mapped)) {
		return password
	}
	return norm.NFKC.String(mapped)
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}

// mapRune returns -1 for a character that is left out. Spaces go first: the space of no width is in both tables.
func mapRune(r rune) rune {
	switch {
	case otherSpaces.has(r):
		return ' '
	case dropped.has(r):
		return -1
	}
	return r
}

// mixesDirections tells whether a text has letters written from right to left and is not written so altogether.
func mixesDirections(text []rune) bool {
	return slices.ContainsFunc(text, rightToLeft.has) &&
		(slices.ContainsFunc(text, leftToRight.has) || !rightToLeft.has(text[0]) || !rightToLeft.has(text[len(text)-1]))
}
