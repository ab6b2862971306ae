package session

import (
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/wire"
)

// span is a part of a text.
type span struct{ start, end int }

// rowText is an INSERT with its rows found.
type rowText struct {
	text []byte
	// rows are those of VALUES, with their parentheses. columnsEnd is where the parenthesis stands that ends the columns before it; -1 if none does.
	rows       []span
	columnsEnd int
	// values is where their VALUES stands; onlyParams: there is nothing but parameters in them.
	values     int
	onlyParams bool
	// uneven: they do not all have the same number of values.
	uneven bool
	// defaults are the words DEFAULT that are values.
	defaults []defaultValue
	// params are the parameters of the text, in order; highest is the greatest of their numbers.
	params  []paramToken
	highest int
}

// defaultValue is a value that is the word DEFAULT, by its row and its place in it, from 0.
type defaultValue struct {
	span
	row, place int
}

type paramToken struct {
	span
	number int
}

// maxParameters is how many a Bind message can have.
const maxParameters = 65535

// findRows finds the rows behind the VALUES of that number.
func findRows(text []byte, standardConforming bool, valuesAt int) (rowText, bool) {
	found := rowText{text: text, columnsEnd: -1, onlyParams: true}
	scanner := sqltext.NewScanner(text, standardConforming)
	depth, start, inRows := 0, 0, false
	commas, expected := 0, -1
	before := -1 // where the token before stands, if it is a closing parenthesis
	for token, more := scanner.Next(); more; token, more = scanner.Next() {
		word := text[token.Start:token.End]
		switch {
		case token.Kind == sqltext.Param:
			number, err := strconv.Atoi(string(word[1:]))
			if err != nil || number > maxParameters {
				return found, false
			}
			found.params = append(found.params, paramToken{span{token.Start, token.End}, number})
			found.highest = max(found.highest, number)
		case !inRows && token.Kind == sqltext.Word && strings.EqualFold(string(word), "values"):
			if inRows = valuesAt == 0; inRows {
				found.columnsEnd, found.values = before, token.Start
			}
			valuesAt--
		case !inRows:
		case token.Kind.IsLiteral():
			found.onlyParams = false
		case token.Kind == sqltext.Punctuation && (string(word) == "(" || string(word) == "[" && depth > 0):
			if depth == 0 {
				start, commas = token.Start, 0
			}
			found.onlyParams = found.onlyParams && depth == 0
			depth++
		case token.Kind == sqltext.Punctuation && (string(word) == ")" || string(word) == "]" && depth > 1):
			if depth--; depth == 0 {
				found.rows = append(found.rows, span{start, token.End})
				found.uneven = found.uneven || expected >= 0 && commas != expected
				expected = commas
			}
		case depth == 1 && string(word) == ",":
			commas++
		case depth == 0 && string(word) != ",":
			inRows = false // what follows the rows
		case depth > 0:
			found.onlyParams = false
			if depth == 1 && token.Kind == sqltext.Word && strings.EqualFold(string(word), "default") {
				found.defaults = append(found.defaults, defaultValue{span{token.Start, token.End}, len(found.rows), commas})
			}
		}
		before = -1
		if token.Kind == sqltext.Punctuation && string(word) == ")" {
			before = token.Start
		}
	}
	return found, scanner.Err() == nil && depth == 0
}

// without returns what has to be cut out of the text so that only the chosen rows are left.
func (r *rowText) without(chosen func(row int) bool) []edit {
	var edits []edit
	last := -1 // the last row that is kept
	for i := range r.rows {
		if !chosen(i) {
			continue
		}
		from := r.rows[0].start
		if last >= 0 {
			from = r.rows[last].end
		}
		switch to := r.rows[i].start; {
		case last < 0 && from < to:
			edits = append(edits, edit{start: from, end: to})
		case last >= 0 && last < i-1:
			edits = append(edits, edit{start: from, end: to, by: ", "})
		}
		last = i
	}
	if last >= 0 && last < len(r.rows)-1 {
		edits = append(edits, edit{start: r.rows[last].end, end: r.rows[len(r.rows)-1].end})
	}
	return edits
}

// renumber gives the parameters that are left numbers without gaps; numbers has the old ones in the order of the new.
func (r *rowText) renumber(cut []edit) (edits []edit, numbers []int) {
	next := 0
	places := make([]int, r.highest+1) // of the new numbers, from 1
	for _, p := range r.params {
		for next < len(cut) && cut[next].end <= p.start {
			edits = append(edits, cut[next])
			next++
		}
		if next < len(cut) && cut[next].start <= p.start {
			continue // it goes with its row
		}
		if places[p.number] == 0 {
			numbers = append(numbers, p.number)
			places[p.number] = len(numbers)
		}
		edits = append(edits, edit{start: p.start, end: p.end, by: "$" + strconv.Itoa(places[p.number])})
	}
	return append(edits, cut[next:]...), numbers
}

// preparedRows is what was found in the text of a prepared statement, under one setting.
type preparedRows struct {
	found      *rowText
	arrays     *rowArrays
	conforming bool
	valuesAt   int
}

// rowsOf finds the rows of an INSERT; those of a prepared statement once.
func (s *session) rowsOf(src source, valuesAt int) *rowText {
	conforming := s.standardConforming()
	if src.bind == nil {
		return rowsIn(src.wholeText(), conforming, valuesAt)
	}
	if p := src.statement.rows; p != nil && p.conforming == conforming && p.valuesAt == valuesAt {
		return p.found
	}
	found := rowsIn(src.wholeText(), conforming, valuesAt)
	src.statement.rows = &preparedRows{found: found, conforming: conforming, valuesAt: valuesAt}
	return found
}

// rowsIn is nil for a text whose rows cannot be told.
func rowsIn(text []byte, conforming bool, valuesAt int) *rowText {
	if found, ok := findRows(text, conforming, valuesAt); ok {
		return &found
	}
	return nil
}

// orderRows notes the order of the rows' shards; nil if no shard takes the rows, and any says why.
func (s *session) orderRows(found *rowText) (*rowText, *pgerr.Error) {
	if found == nil {
		found = &rowText{}
	}
	if len(found.rows) != len(s.rowShards) {
		return nil, pgerr.New(pgerr.InternalError, "the rows of the INSERT could not be told apart").
			WithDetail("%d were planned, %d found.", len(s.rowShards), len(found.rows))
	}
	if found.uneven {
		s.spreadTo, s.target = nil, s.anyOf(s.spreadTo)
		return nil, nil
	}
	s.rowOrder = make([]int, len(s.rowShards))
	for i, shard := range s.rowShards {
		s.rowOrder[i] = slices.Index(s.spreadTo, shard)
	}
	return found, nil
}

// divideRows gives every shard of an INSERT its own rows.
func (s *session) divideRows(st *plan.Statement, o *op, src source) *pgerr.Error {
	if st.Command == plan.Execute {
		return s.divideExecuted(st, o, src)
	}
	found, refused := s.orderRows(s.rowsOf(src, st.Route.ValuesAt))
	if refused != nil || found == nil {
		return refused
	}
	var types []uint32
	if src.bind != nil {
		var refused *pgerr.Error
		if types, refused = s.paramTypes(src.statement); refused != nil {
			return refused
		}
		if arrays := s.rowsAsArrays(found, types, src); arrays != nil {
			o.parts = append(o.parts, arrays.parts(s.rowOrder, len(s.spreadTo), src.bind, arrays.atMoment(found, s.momentEdits))...)
			return nil
		}
	}
	for at := range s.spreadTo {
		p, refused := s.rowPart(found, found.without(func(row int) bool { return s.rowOrder[row] == at }), s.momentEdits.all(), types, src)
		if refused != nil {
			return refused
		}
		o.parts = append(o.parts, p)
	}
	return nil
}

// rowPart is what one shard gets: the text without other shards' rows, and with what is inserted.
func (s *session) rowPart(found *rowText, cut, inserted []edit, types []uint32, src source) (part, *pgerr.Error) {
	if src.bind == nil {
		edits := weave(cut, inserted)
		return part{data: applyEdits(found.text, edits), edits: edits}, nil
	}
	edits, numbers := found.renumber(cut)
	edits = weave(edits, inserted)
	run := &statement{text: string(applyEdits(found.text, edits)), planned: src.statement.planned, edits: edits}
	formats, values := make([]int16, len(numbers)), make([][]byte, len(numbers))
	for i, number := range numbers {
		if number > len(types) || number > src.bind.ParamCount() {
			return part{}, pgerr.New(pgerr.ProtocolViolation, "bind message supplies %d parameters, but prepared statement \"%s\" requires %d", src.bind.ParamCount(), src.statement.name, len(types))
		}
		values[i], formats[i] = boundParam(src.bind, number)
		run.oids = append(run.oids, types[number-1])
	}
	return part{statement: run, edits: edits, data: bindTail(formats, values, resultFormats(src.bind))}, nil
}

// boundParam is a parameter that the client gave, nil if it is null, with its format.
func boundParam(bind *wire.Bind, number int) (value []byte, format int16) {
	value, isBinary, null := bind.Param(number - 1)
	if isBinary {
		format = 1
	}
	if !null && value == nil {
		value = []byte{}
	}
	return value, format
}

// resultFormats are those that the client wants.
func resultFormats(bind *wire.Bind) []int16 {
	formats := make([]int16, bind.ResultFormatCount())
	for i := range formats {
		formats[i] = bind.ResultFormat(i)
	}
	return formats
}

// bindTail is what follows the names in a Bind message.
func bindTail(formats []int16, values [][]byte, results []int16) []byte {
	message := wire.AppendBind(nil, "", "", formats, values, results)
	bind, err := wire.DecodeBind(wire.Body(message))
	if err != nil {
		return nil // it is our own message
	}
	return bind.Tail()
}
