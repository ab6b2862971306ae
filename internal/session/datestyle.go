package session

import (
	"strings"

	"github.com/cleavedb/cleave/internal/sqltext"
)

const dateStyle = "datestyle"

// mergedDateStyle completes a value of DateStyle: it has two parts, and SET leaves the one that is not named as it is, which on
// another backend may be something else. What PostgreSQL would refuse is returned as it is.
func mergedDateStyle(before, given setting) setting {
	var part, had dateStyleParts
	for _, word := range dateStyleWords(before) {
		had.add(word)
	}
	for _, word := range dateStyleWords(given) {
		if !part.add(word) {
			return given
		}
	}
	if part.style == "" {
		part.style = had.style
	}
	if part.order == "" {
		part.order = had.order
	}
	if part.style == "" || part.order == "" {
		return given
	}
	value := part.style + ", " + part.order
	return setting{name: dateStyle, sql: sqltext.QuoteLiteral(value), values: []string{value}}
}

func dateStyleWords(e setting) []string {
	return strings.FieldsFunc(strings.ToUpper(strings.Join(e.values, ",")), func(r rune) bool { return r == ',' || r == ' ' })
}

// dateStyleParts are how dates are written and in which order they are read; ordered: the order was named, not implied.
type dateStyleParts struct {
	style, order string
	ordered      bool
}

// add takes a word of the value, and says whether it is one.
func (p *dateStyleParts) add(word string) bool {
	switch {
	case word == "ISO", word == "SQL":
		p.style = word
	case strings.HasPrefix(word, "POSTGRES"):
		p.style = "Postgres"
	case word == "GERMAN":
		p.style = "German"
		if !p.ordered {
			p.order = "DMY"
		}
	case word == "YMD":
		p.order, p.ordered = word, true
	case word == "DMY", strings.HasPrefix(word, "EURO"):
		p.order, p.ordered = "DMY", true
	case word == "MDY", word == "US", strings.HasPrefix(word, "NONEURO"):
		p.order, p.ordered = "MDY", true
	default:
		return false
	}
	return true
}
