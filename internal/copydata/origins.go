package copydata

import (
	"math/bits"
	"strconv"
	"strings"
)

const (
	wordBits = 64
	// blockWords is how many words are allocated at a time.
	blockWords = 1024
	// maxOriginsBytes is what an Origins takes at most: some 250 million rows for four destinations.
	maxOriginsBytes = 64 << 20
	wideBytes       = 16
)

// Origins remembers to which destination each row went, in as few bits as tell destinations apart, so that a line that a
// destination's server has counted can be found in the client's data.
//
// After more rows than fit into its limit it remembers no more, and says so of their lines. The zero value is not ready for use.
type Origins struct {
	width  int // bits for a destination: 0, or a power of two
	inWord int // rows of a word are 2 to the power of this
	limit  int // bytes
	rows   int
	full   bool
	blocks [][]uint64
	// wide are the rows with newlines in quotes, in order.
	wide []wideRow
	seen []bool // destinations that have got a row
	head int    // lines of the header, which each destination has got
}

// wideRow is a row with more than a line, as the client and as its destination counts them.
type wideRow struct {
	row          int
	client, here uint32
}

// NewOrigins returns one for destinations from 0 up to that many.
func NewOrigins(destinations int) *Origins {
	o := &Origins{limit: maxOriginsBytes, seen: make([]bool, destinations)}
	for o.width = min(1, destinations-1); destinations > 1<<o.width; o.width *= 2 {
	}
	if o.width > 0 {
		o.inWord = bits.TrailingZeros(uint(wordBits / o.width))
	}
	return o
}

// Add notes that the next piece of the data, which is a header or a row, went to a destination; the header goes to all.
func (o *Origins) Add(destination int, p *Piece) {
	if p.Kind == HeaderPiece {
		o.head = p.lines
		return
	}
	here := p.lines
	if o.head == 0 && !o.seen[destination] {
		here = p.alone
	}
	o.seen[destination] = true
	if o.full || !o.makeRoom() {
		return
	}
	if p.lines != 1 || here != 1 {
		o.wide = append(o.wide, wideRow{o.rows, uint32(p.lines), uint32(here)})
	}
	if o.width > 0 {
		word, shift := o.place(o.rows)
		*word |= uint64(destination) << shift
	}
	o.rows++
}

// place is where a row's destination is kept.
func (o *Origins) place(row int) (word *uint64, shift int) {
	inWord, number := uint(row)&(1<<o.inWord-1), uint(row)>>o.inWord
	return &o.blocks[number/blockWords][number%blockWords], int(inWord) * o.width
}

// makeRoom sees to it that there is room for one more row, or notes that there is not.
func (o *Origins) makeRoom() bool {
	if o.width == 0 || o.rows < len(o.blocks)*blockWords<<o.inWord {
		o.full = len(o.wide)*wideBytes >= o.limit
		return !o.full
	}
	if (len(o.blocks)+1)*blockWords*wordBits/8+len(o.wide)*wideBytes > o.limit {
		o.full = true
		return false
	}
	o.blocks = append(o.blocks, make([]uint64, blockWords))
	return true
}

// Line returns the line in the client's data that is this line, from 1, of what the destination got.
func (o *Origins) Line(destination, line int) (int, bool) {
	if line <= o.head {
		return line, line > 0
	}
	client, here := o.head, o.head
	wide := o.wide
	for row := range o.rows {
		lines, hereLines := 1, 1
		if len(wide) > 0 && wide[0].row == row {
			lines, hereLines, wide = int(wide[0].client), int(wide[0].here), wide[1:]
		}
		client += lines
		if o.destination(row) != destination {
			continue
		}
		if here += hereLines; here >= line {
			return max(client-(here-line), client-lines+1), true
		}
	}
	return 0, false
}

func (o *Origins) destination(row int) int {
	if o.width == 0 {
		return 0
	}
	word, shift := o.place(row)
	return int(*word >> shift & (1<<o.width - 1))
}

// Context turns the CONTEXT of an error in COPY that a destination's server gave into that of the client's own data: the line's
// number becomes the client's. Table is the table's name without its schema and without quotes, as the server prints it. Where
// the client's line is not known, the text says whose line it is instead: name is the destination's.
func (o *Origins) Context(context, table string, destination int, name string) string {
	prefix := "COPY " + table + ", line "
	begin := 0
	if !strings.HasPrefix(context, prefix) {
		begin = strings.Index(context, "\n"+prefix) + 1 // what a trigger's function adds comes before
	}
	rest, found := strings.CutPrefix(context[begin:], prefix)
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	number, err := strconv.Atoi(rest[:digits])
	if !found || err != nil {
		return foreignContext(context, table, name)
	}
	where := strconv.Itoa(number) + " of the rows for shard " + strconv.Quote(name)
	if line, known := o.Line(destination, number); known {
		where = strconv.Itoa(line)
	}
	return context[:begin] + prefix + where + rest[digits:]
}

// foreignContext is for a text that does not have the number where it should be, perhaps because it is in another language. If
// it speaks of COPY, it gets a line that says whose lines it counts.
func foreignContext(context, table, name string) string {
	if !strings.Contains(context, "COPY") || context == "COPY "+table {
		return context
	}
	return context + "\nnumbers of lines are those of the rows for shard " + strconv.Quote(name)
}
