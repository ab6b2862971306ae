package session

import (
	"cmp"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
)

// unlimited is a number of rows that is not limited.
const unlimited = -1

// rowLimit is how many rows the answer of a statement on several shards has at most. Every shard gives up to so many, in no order, so any of
// them will do; but which of them OFFSET leaves out, no shard can tell.
func (s *session) rowLimit(st *plan.Statement, src source) (int64, *pgerr.Error) {
	route := &s.whatRuns(st).Route
	if route.Parts != plan.Same {
		return unlimited, nil
	}
	if skipped, refused := s.countOf(route.Skips, st, src); refused != nil || skipped > 0 {
		return 0, cmp.Or(refused, rowsSkipped)
	}
	return s.countOf(route.AtMost, st, src)
}

// skipsRows says whether a statement leaves out its first rows, or may do so.
func (s *session) skipsRows(st *plan.Statement, src source) bool {
	if st.Route.Skips == nil {
		return false
	}
	skipped, refused := s.countOf(st.Route.Skips, st, src)
	return refused != nil || skipped > 0
}

// countOf is a number of rows that a statement says, or one that EXECUTE runs; unlimited if it says none.
func (s *session) countOf(said *plan.Operand, st *plan.Statement, src source) (int64, *pgerr.Error) {
	if said == nil {
		return unlimited, nil
	}
	if st.Command == plan.Execute {
		return s.limitOf(*said, source{statement: s.statements[st.Prepared.Name], arguments: st.Prepared.Arguments, outer: &src})
	}
	return s.limitOf(*said, src)
}

// limitOf reads a number of rows; unlimited for NULL, and for one that every shard refuses.
func (s *session) limitOf(operand plan.Operand, src source) (int64, *pgerr.Error) {
	switch {
	case operand.Kind == plan.IsNull, operand.Negative:
		return unlimited, nil
	case operand.CastOID != 0:
		return 0, unreadableLimit
	case operand.Kind == plan.FromLiteral:
		scan, text, refused := src.literals(s.standardConforming())
		if refused != nil {
			return 0, refused
		}
		value, readable := scan.Value(text, operand.Literal)
		if !readable {
			return 0, unreadableLimit
		}
		return limitOfText(value)
	case operand.Kind == plan.FromParam && src.outer != nil:
		if operand.Param > len(src.arguments) {
			return unlimited, nil // every shard says that there are too few
		}
		return s.limitOf(src.arguments[operand.Param-1], *src.outer)
	case operand.Kind == plan.FromParam && src.bind != nil:
		return s.limitOfParam(operand.Param, src)
	default:
		return 0, unreadableLimit
	}
}

func (s *session) limitOfParam(number int, src source) (int64, *pgerr.Error) {
	if number > src.bind.ParamCount() {
		return unlimited, nil // every shard says that there are too few
	}
	value, isBinary, null := src.bind.Param(number - 1)
	if null {
		return unlimited, nil
	}
	if !isBinary {
		return limitOfText(value)
	}
	oid, refused := s.paramType(src.statement, number)
	if refused != nil {
		return 0, refused
	}
	return limitOfBinary(oid, value)
}

// limitOfBinary reads a parameter of one of the types of integers.
func limitOfBinary(oid uint32, value []byte) (int64, *pgerr.Error) {
	const int8OID, int2OID, int4OID = 20, 21, 23
	var n int64
	switch {
	case oid == int8OID && len(value) == 8:
		n = int64(binary.BigEndian.Uint64(value))
	case oid == int4OID && len(value) == 4:
		n = int64(int32(binary.BigEndian.Uint32(value)))
	case oid == int2OID && len(value) == 2:
		n = int64(int16(binary.BigEndian.Uint16(value)))
	default:
		return 0, unreadableLimit
	}
	return max(n, unlimited), nil // every shard refuses a negative one
}

func limitOfText(text []byte) (int64, *pgerr.Error) {
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, unreadableLimit
	}
	return max(n, unlimited), nil
}

var unreadableLimit = pgerr.New(pgerr.FeatureNotSupported, "this form of LIMIT over several shards is not supported yet").
	WithDetail("The router has to know how many rows it may give.").WithHint("Use an integer, as a literal or a parameter.")

var rowsSkipped = pgerr.New(pgerr.FeatureNotSupported, "OFFSET over several shards is not supported yet").
	WithDetail("Which rows come first cannot be told from what each shard answers.").WithHint("Read from the first row on, or for the keys of one shard at a time.")

// gives says whether the client gets one more row.
func (g *gather) gives() bool {
	if g.limit == unlimited {
		return true
	}
	if g.given == g.limit {
		return false
	}
	g.given++
	return true
}
