package facts

import (
	"slices"
	"sort"
	"strings"

	pgquery "github.com/pganalyze/pg_query_go/v6"
)

// maxRun bounds how deep a tree can get. The grammar's C code walks its tree by recursion without looking at its stack, and
// about 20,000 levels end the process; a third of that is far beyond any statement that a person or a program means.
const maxRun = 7000

// safeLength is a length at which a text cannot have that many levels.
const safeLength = maxRun

// tokens are the words of a text, or of a part of it, without comments.
type tokens struct {
	text string
	all  []*pgquery.ScanToken
	// values are where the words VALUES of the whole text begin.
	values []int32
}

func scan(text string) (tokens, error) {
	result, err := pgquery.Scan(text)
	if err == nil {
		return newTokens(text, result.Tokens), nil
	}
	if len(text) < safeLength {
		// The grammar may stumble earlier than the scanner, and its message is the one that PostgreSQL gives.
		if _, earlier := pgquery.Parse(text); earlier != nil {
			err = earlier
		}
	}
	return tokens{}, refusalOf(err)
}

func newTokens(text string, all []*pgquery.ScanToken) tokens {
	found := tokens{text: text, all: all[:0]}
	for _, t := range all {
		switch t.Token {
		case pgquery.Token_SQL_COMMENT, pgquery.Token_C_COMMENT:
			continue
		case pgquery.Token_VALUES:
			found.values = append(found.values, t.Start)
		default:
		}
		found.all = append(found.all, t)
	}
	return found
}

// depth is a bound on the levels of the syntax tree. A list's elements are siblings, so a comma begins anew; set operations
// nest over commas; every other level costs a keyword or an operator at least.
func (t tokens) depth() int {
	type level struct{ run, setOperations int }
	var outer []level
	var here level
	below, deepest := 0, 0
	for _, token := range t.all {
		switch token.Token {
		case pgquery.Token_ASCII_40, pgquery.Token_ASCII_91: // ( [
			outer = append(outer, here)
			below += here.run + here.setOperations + 1
			here = level{}
		case pgquery.Token_ASCII_41, pgquery.Token_ASCII_93: // ) ]
			if len(outer) > 0 {
				here = outer[len(outer)-1]
				outer = outer[:len(outer)-1]
				below -= here.run + here.setOperations + 1
			}
			here.run++
		case pgquery.Token_ASCII_44: // ,
			here.run = 0
		case pgquery.Token_ASCII_59: // ;
			here = level{}
		case pgquery.Token_UNION, pgquery.Token_INTERSECT, pgquery.Token_EXCEPT:
			here.setOperations++
		case pgquery.Token_IDENT, pgquery.Token_ICONST, pgquery.Token_FCONST, pgquery.Token_SCONST, pgquery.Token_PARAM, pgquery.Token_ASCII_46:
		default:
			here.run++
		}
		deepest = max(deepest, below+here.run+here.setOperations)
	}
	return deepest
}

// between returns the tokens that begin in [start, end).
func (t tokens) between(start, end int) tokens {
	return tokens{t.text, t.all[t.at(start):t.at(end)], t.values}
}

// at returns the index of the first token that begins at the offset or behind it.
func (t tokens) at(offset int) int {
	return sort.Search(len(t.all), func(i int) bool { return int(t.all[i].Start) >= offset })
}

// find returns the index of the first token of that kind, from an index on; -1 if there is none.
func (t tokens) find(kind pgquery.Token, from int) int {
	for i := from; i < len(t.all); i++ {
		if t.all[i].Token == kind {
			return i
		}
	}
	return -1
}

// isName says whether the token at an index is this name, quoted or not.
func (t tokens) isName(i int, name string) bool {
	if i >= len(t.all) {
		return false
	}
	word := t.text[t.all[i].Start:t.all[i].End]
	return strings.EqualFold(word, name) || word == `"`+strings.ReplaceAll(name, `"`, `""`)+`"`
}

// closing returns the index of the parenthesis that closes the one at an index; -1 if none does.
func (t tokens) closing(opening int) int {
	depth := 0
	for i := opening; i < len(t.all); i++ {
		switch t.all[i].Token {
		case pgquery.Token_ASCII_40:
			depth++
		case pgquery.Token_ASCII_41:
			if depth--; depth == 0 {
				return i
			}
		default:
		}
	}
	return -1
}

// nameEnd returns where a dotted name of so many parts ends that begins at the offset.
func (t tokens) nameEnd(start, parts int) int {
	last := t.at(start) + 2*(parts-1)
	if last >= len(t.all) {
		return start
	}
	return int(t.all[last].End)
}

// callEnd returns where a call ends that begins at the offset: behind its closing parenthesis. Calls that the grammar makes of
// other syntax, such as x AT TIME ZONE y, have none and end where they begin.
func (t tokens) callEnd(start, parts int) int {
	opening := t.at(start) + 2*parts - 1
	if opening >= len(t.all) || t.all[opening].Token != pgquery.Token_ASCII_40 {
		return start
	}
	closing := t.closing(opening)
	if closing < 0 {
		return start
	}
	return int(t.all[closing].End)
}

// around returns where a table's name that has these bytes begins and ends with what else belongs to it: ONLY, parentheses
// and * behind it; and whether it is all of a query, with the word TABLE in front.
func (t tokens) around(start, end int) (wideStart, wideEnd int, command bool) {
	first, next := t.at(start), t.at(end)
	if t.is(first-1, pgquery.Token_ASCII_40) && t.is(first-2, pgquery.Token_ONLY) && t.is(next, pgquery.Token_ASCII_41) {
		first, next = first-2, next+1
	} else if t.is(first-1, pgquery.Token_ONLY) {
		first--
	}
	if t.is(next, pgquery.Token_ASCII_42) {
		next++
	}
	if command = t.is(first-1, pgquery.Token_TABLE); command {
		first--
	}
	if first >= len(t.all) || next == 0 {
		return start, end, false
	}
	return int(t.all[first].Start), int(t.all[next-1].End), command
}

// is says whether there is a token of that kind at an index.
func (t tokens) is(i int, kind pgquery.Token) bool {
	return i >= 0 && i < len(t.all) && t.all[i].Token == kind
}

// valuesAfter returns which of the words VALUES of the whole text, from 0, is the first one at the offset or behind it that begins
// rows; -1 if there is none. A column or an alias can have that name too; the former has no parenthesis behind it, the latter AS
// in front.
func (t tokens) valuesAfter(offset int) int {
	for i := t.at(offset); i < len(t.all); i++ {
		if t.all[i].Token == pgquery.Token_VALUES && t.is(i+1, pgquery.Token_ASCII_40) && !t.is(i-1, pgquery.Token_AS) {
			number, _ := slices.BinarySearch(t.values, t.all[i].Start)
			return number
		}
	}
	return -1
}
