package differential_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

// answer is what a server says to one statement.
type answer struct {
	columns []string // names and types
	types   []uint32
	rows    [][]string
	tag     string
	code    string // SQLSTATE of the error
	said    string // its message and detail
	status  byte   // of the transaction
	lost    error  // the connection ended, or nothing came
}

// ask runs a step and gathers the answer.
func (c *client) ask(st step, how pass) answer {
	var a answer
	var format []int16
	c.hear = func(message pgproto3.BackendMessage) {
		switch m := message.(type) {
		case *pgproto3.RowDescription:
			a.columns, a.types, format = nil, nil, nil
			for _, f := range m.Fields {
				a.columns = append(a.columns, fmt.Sprintf("%s: type %s length %d modifier %d", f.Name, describeTypes([]uint32{f.DataTypeOID}), f.DataTypeSize, f.TypeModifier))
				a.types = append(a.types, f.DataTypeOID)
				format = append(format, f.Format)
			}
		case *pgproto3.DataRow:
			row := make([]string, len(m.Values))
			for i, value := range m.Values {
				row[i] = describeValue(value)
				if i < len(format) && format[i] == pgproto3.BinaryFormat {
					row[i] = describeValue(normal(a.types[i], slices.Clone(value)))
				}
			}
			a.rows = append(a.rows, row)
		case *pgproto3.CommandComplete:
			a.tag = string(m.CommandTag)
		case *pgproto3.ErrorResponse:
			a.code, a.said = m.Code, strings.TrimSpace(m.Message+". "+m.Detail)
		}
	}
	defer func() { c.hear = nil }()
	_, a.lost = c.run(st, how)
	a.status = c.status
	return a
}

// describes says whether an answer has the columns that the server says a statement has before it makes a plan: by a plan, a column can turn out to have
// a modifier that its expression has not.
func (c *client) describes(text string, params []param, got answer) bool {
	if text == "" || c.status == 'E' {
		return false
	}
	const name = "described"
	described := c.ask(step{text: text, params: params, parse: name}, textPass)
	if _, err := c.run(step{close: name}, textPass); err != nil {
		return false
	}
	return slices.Equal(described.columns, got.columns)
}

// normal leaves out of a binary value what may differ: the number of the elements' type in an array of a type of the schema's own, and which
// of the many that are not a number a float is, which depends on the order in which numbers were added.
func normal(oid uint32, value []byte) []byte {
	const at, size = 8, 4
	switch {
	case oid >= firstOwnOID && len(value) >= at+size:
		copy(value[at:], make([]byte, size))
	case oid == pgtype.Float8OID && len(value) == 8 && math.IsNaN(math.Float64frombits(binary.BigEndian.Uint64(value))):
		binary.BigEndian.PutUint64(value, math.Float64bits(math.NaN()))
	}
	return value
}

// verdict is how two answers differ.
type verdict string

// The verdicts. Only those with a problem are failures.
const (
	equal      verdict = "equal"
	refused    verdict = "refused"
	skipped    verdict = "skipped"
	ambiguous  verdict = "ambiguous"
	lost       verdict = "the connection was lost"
	internal   verdict = "internal error"
	otherRows  verdict = "other rows"
	otherOrder verdict = "another order"
	otherShape verdict = "other columns"
	otherTag   verdict = "another tag"
	otherError verdict = "another error"
	otherState verdict = "another state of the transaction"
	noExplain  verdict = "no plan"
)

func (v verdict) isFailure() bool {
	return v != equal && v != refused && v != skipped && v != ambiguous
}

// judge compares the router's answer with the plain server's.
func (st *statement) judge(want, got answer) verdict {
	switch {
	case got.lost != nil:
		return lost
	case strings.HasPrefix(want.code, "XX"): // PostgreSQL has faults too
		return skipped
	case want.code == "21000" && slices.Contains(st.shape, withTies): // of max(…) it asks an index for one row, and gets all that are equal
		return skipped
	case strings.HasPrefix(got.code, "XX"):
		return internal
	case st.planned:
		if got.code != want.code {
			return noExplain
		}
		return equal
	case got.code == refusalCode && want.code != refusalCode:
		return refused
	case want.code != got.code:
		return otherError
	case want.status != got.status:
		return otherState
	case want.code != "":
		return equal
	case !slices.Equal(want.columns, got.columns):
		return otherShape
	case st.counted:
		if len(want.rows) != len(got.rows) {
			return otherRows
		}
		return equal
	}
	return st.judgeRows(want, got)
}

func (st *statement) judgeRows(want, got answer) verdict {
	wanted, given := lines(want.rows), lines(got.rows)
	places, isTotal := st.sorting()
	if isTotal && slices.Equal(wanted, given) {
		return st.judgeTag(want, got)
	}
	slices.Sort(wanted)
	slices.Sort(given)
	switch {
	case !slices.Equal(wanted, given):
		return otherRows
	case isTotal, !slices.EqualFunc(project(want.rows, places), project(got.rows, places), slices.Equal):
		return otherOrder
	}
	return st.judgeTag(want, got)
}

func (st *statement) judgeTag(want, got answer) verdict {
	if want.tag != got.tag {
		return otherTag
	}
	return equal
}

func lines(rows [][]string) []string {
	all := make([]string, len(rows))
	for i, row := range rows {
		all[i] = strings.Join(row, " | ")
	}
	return all
}

// sorting says which columns the rows are sorted by, and whether there is one right order. If something else comes first in the order, only
// a total one can be compared.
func (st *statement) sorting() (places []int, isTotal bool) {
	if st.order == nil || st.order.left() == 0 {
		return nil, false
	}
	hidden := false
	for _, part := range st.order.parts {
		switch key := part.parts[0]; {
		case part.gone:
		case key.position == nil:
			hidden = true
		default:
			if at := st.outputs.place(key.position); at >= 0 && !slices.Contains(places, at) {
				places = append(places, at)
			}
		}
	}
	isTotal = st.isTotal || len(places) == st.outputs.left()
	if hidden && !isTotal {
		return nil, false
	}
	return places, isTotal
}

// project leaves only some columns of rows.
func project(rows [][]string, places []int) [][]string {
	all := make([][]string, len(rows))
	for i, row := range rows {
		for _, at := range places {
			if at < len(row) {
				all[i] = append(all[i], row[at])
			}
		}
	}
	return all
}

// String shows an answer.
func (a answer) String() string {
	var b strings.Builder
	switch {
	case a.lost != nil:
		fmt.Fprintf(&b, "    nothing: %v\n", a.lost)
	case a.code != "":
		fmt.Fprintf(&b, "    error %s: %s\n", a.code, a.said)
	default:
		fmt.Fprintf(&b, "    %s\n", strings.Join(a.columns, ", "))
		for i, row := range a.rows {
			if i == 12 {
				fmt.Fprintf(&b, "    … %d more\n", len(a.rows)-i)
				break
			}
			fmt.Fprintf(&b, "    %s\n", strings.Join(row, " | "))
		}
		fmt.Fprintf(&b, "    %s\n", a.tag)
	}
	return b.String()
}

var named = regexp.MustCompile(`"[^"]*"|\b[gf]\d*_?\w*\.\w+|\d+`)

// reason is what a refusal says without the names in it.
func (a answer) reason() string { return named.ReplaceAllString(a.said, "…") }
