package sqltext

import "strings"

// QuoteIdentifier writes a name so that SQL takes it as it is.
func QuoteIdentifier(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// reserved are words that PostgreSQL does not take for the first part of a name unless they are quoted, in any version: those that it lists as reserved, and as names of functions and types.
var reserved = wordSet(`all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create current_catalog current_date current_role current_time current_timestamp current_user default deferrable desc
	distinct do else end except false fetch for foreign from grant group having in initially intersect into lateral leading limit localtime localtimestamp not null offset on only or order placing primary references returning select
	session_user some symmetric system_user table then to trailing true union unique user using variadic when where window with
	authorization binary collation concurrently cross current_schema freeze full ilike inner is isnull join left like natural notnull outer overlaps right similar tablesample verbose`)

func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(words) {
		set[word] = true
	}
	return set
}

// IsReserved says whether a name in lower case means something else where it is not quoted and nothing stands before it.
func IsReserved(name string) bool { return reserved[name] }

// QuoteLiteral writes a text so that it is read the same whatever standard_conforming_strings says.
func QuoteLiteral(text string) string {
	quoted := "'" + strings.ReplaceAll(text, "'", "''") + "'"
	if strings.Contains(text, `\`) {
		return " E" + strings.ReplaceAll(quoted, `\`, `\\`) // a blank, or the E might become part of a word before it
	}
	return quoted
}

// FoldIdentifier returns a name without quotes as PostgreSQL reads it. Only ASCII has a lower case there, whatever the language.
func FoldIdentifier(name string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, name)
}

const blanks = " \t\n\r\f\v"

// SplitNames takes a list of names apart, such as a search path or schema.table: names in double quotes as they are, others
// folded, blanks around them. It says false if that is not what the text is, as PostgreSQL would; no name at all is a list.
func SplitNames(list string, separator byte) (names []string, ok bool) {
	rest := strings.Trim(list, blanks)
	if rest == "" {
		return nil, true
	}
	for {
		var name string
		if name, rest, ok = cutName(rest, separator); !ok {
			return names, false
		}
		names = append(names, name)
		rest = strings.TrimLeft(rest, blanks)
		if rest == "" {
			return names, true
		}
		if rest[0] != separator {
			return names, false
		}
		rest = strings.TrimLeft(rest[1:], blanks)
	}
}

func cutName(text string, separator byte) (name, rest string, ok bool) {
	if strings.HasPrefix(text, `"`) {
		return cutQuotedName(text[1:])
	}
	end := strings.IndexAny(text, blanks+string(separator))
	if end < 0 {
		end = len(text)
	}
	return FoldIdentifier(text[:end]), text[end:], end > 0
}

// cutQuotedName reads up to the closing quote; two quotes are one.
func cutQuotedName(text string) (name, rest string, ok bool) {
	for from := 0; ; {
		i := strings.IndexByte(text[from:], '"')
		if i < 0 {
			return "", "", false
		}
		i += from
		if !strings.HasPrefix(text[i+1:], `"`) {
			return strings.ReplaceAll(text[:i], `""`, `"`), text[i+1:], true
		}
		from = i + 2
	}
}
