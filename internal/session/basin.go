package session

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// basin gathers what is pulled.
type basin struct {
	c *composing
	// spools are those of the pulls; tagged: rows of several pulls come together, and begin with the number of theirs.
	spools []*spool
	tagged bool
	// first are the places of the pulls' first columns in a row.
	first  []int
	held   held     // what goes to shards besides the rows themselves
	fields [][]byte // scratch
	row    []byte   // scratch
}

func (s *session) newBasin(c *composing, pulls []pull) *basin {
	b := &basin{c: c, spools: make([]*spool, len(pulls)), first: make([]int, len(pulls)), held: held{of: &s.server.allowance}}
	asked, at := 0, 1
	for i := range pulls {
		b.spools[i] = s.newSpool()
		b.first[i] = at
		at += len(c.outline.pulls[i].columns)
		if p := &c.outline.composition.Pulls[i]; !p.Own && !p.Any {
			asked++
		}
	}
	b.tagged = asked > 1
	return b
}

func (b *basin) close() {
	for _, p := range b.spools {
		p.close()
	}
	b.held.release()
}

// textFor is what a shard is asked, and in which formats it gives columns: all pulls that concern it, in one statement.
func (b *basin) textFor(pulls []pull, shard int) (text string, formats []int16) {
	var arms []string
	for i, p := range pulls {
		if slices.Contains(p.shards, shard) {
			if !b.tagged {
				return p.text, b.formats(i)
			}
			arms = append(arms, b.arm(p.text, i))
		}
	}
	formats = []int16{1}
	for i := range pulls {
		formats = append(formats, b.formats(i)...)
	}
	return strings.Join(arms, " UNION ALL "), formats
}

func (b *basin) formats(pull int) []int16 {
	columns := b.c.outline.pulls[pull].columns
	formats := make([]int16, len(columns))
	for i := range columns {
		if columns[i].binary {
			formats[i] = 1
		}
	}
	return formats
}

// arm is one pull among several: its number, and NULL for the columns of the others.
func (b *basin) arm(text string, pull int) string {
	columns := []string{strconv.Itoa(pull) + "::pg_catalog.int4"}
	var names []string
	for i := range b.c.outline.pulls {
		for j, c := range b.c.outline.pulls[i].columns {
			sent, cast := c.sql, ""
			if !c.binary { // a shard that has nothing of the pull need not have the type either
				sent, cast = "pg_catalog.text", "::pg_catalog.text"
			}
			if i != pull {
				columns = append(columns, "NULL::"+sent)
				continue
			}
			name := columnName(j)
			columns, names = append(columns, "q."+name+cast), append(names, name)
		}
	}
	alias := " AS q"
	if len(names) > 0 {
		alias += "(" + strings.Join(names, ", ") + ")"
	}
	return "(SELECT " + strings.Join(columns, ", ") + " FROM (" + text + ")" + alias + ")"
}

var badRow = pgerr.New(pgerr.InternalError, "a shard's row cannot be read")

// take keeps one row.
func (b *basin) take(_ int, row []byte) *pgerr.Error {
	if !b.tagged {
		return b.spools[b.only()].add(row)
	}
	fields, ok := splitRow(row, b.fields[:0])
	b.fields = fields
	if !ok || len(fields) == 0 || len(fields[0]) != 8 {
		return badRow
	}
	pull := int(binary.BigEndian.Uint32(fields[0][4:]))
	if pull >= len(b.spools) {
		return badRow
	}
	count := len(b.c.outline.pulls[pull].columns)
	if len(fields) < b.first[pull]+count {
		return badRow
	}
	b.row = binary.BigEndian.AppendUint16(b.row[:0], uint16(count))
	for _, field := range fields[b.first[pull] : b.first[pull]+count] {
		b.row = append(b.row, field...)
	}
	return b.spools[pull].add(b.row)
}

// only is the number of the only pull.
func (b *basin) only() int {
	for i := range b.c.outline.composition.Pulls {
		if p := &b.c.outline.composition.Pulls[i]; !p.Own && !p.Any {
			return i
		}
	}
	return 0
}

// splitRow cuts the body of a row into its fields, each with its length before it.
func splitRow(row []byte, fields [][]byte) ([][]byte, bool) {
	if len(row) < 2 {
		return fields, false
	}
	count, rest := int(binary.BigEndian.Uint16(row)), row[2:]
	for range count {
		if len(rest) < 4 {
			return fields, false
		}
		size := 4
		if n := int32(binary.BigEndian.Uint32(rest)); n > 0 {
			size += int(n)
		}
		if size > len(rest) {
			return fields, false
		}
		fields = append(fields, rest[:size:size])
		rest = rest[size:]
	}
	return fields, len(rest) == 0
}
