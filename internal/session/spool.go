package session

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"sort"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// spool keeps rows until they are needed: in memory, and in a file when they are many. It is written first and read then, from the first row to the
// last, or any row by its number.
type spool struct {
	of     *allowance
	memory []byte
	file   *os.File
	writer *bufio.Writer
	reader *bufio.Reader
	// rows and size are of all that was added; at is how much of the memory has been read.
	rows, size int64
	at         int
	// onDisk is how much of the space for files it holds.
	onDisk int64
	row    []byte // the last one that was read from the file
	// blocks say where rows are, a few at a time; block is the one that a row was looked up in last.
	blocks []spoolBlock
	block  openBlock
}

// spoolBlock is some rows, one behind the other.
type spoolBlock struct {
	// first is the number of its first row, from 0. It begins so many bytes behind all rows' beginning; those of the file follow those of the memory.
	first, start int64
}

// openBlock is a block whose rows have been found.
type openBlock struct {
	first int64
	rows  [][]byte
	// data is what was read from the file.
	data []byte
}

// blockSize is how many bytes of rows a block has at least, but for the last.
const blockSize = 64 << 10

// fileBuffer is what reads or writes a file; spaceAtOnce is how much of the space for files is held at a time.
const (
	fileBuffer  = 256 << 10
	spaceAtOnce = 1 << 20
)

// add keeps one row.
func (p *spool) add(row []byte) *pgerr.Error {
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(row)))
	size := int64(len(row) + len(length))
	inMemory := p.file == nil && p.fits(size)
	if n := len(p.blocks); n == 0 || p.size-p.blocks[n-1].start >= blockSize || p.file == nil && !inMemory {
		p.blocks = append(p.blocks, spoolBlock{first: p.rows, start: p.size})
	}
	p.rows++
	p.size += size
	if p.size > p.of.PullSize {
		return p.of.tooMuch(tooMuchPulled(p.of.PullSize))
	}
	if inMemory {
		p.memory = append(append(p.memory, length[:]...), row...)
		return nil
	}
	if p.file == nil {
		if refused := p.open(); refused != nil {
			return refused
		}
	}
	if refused := p.space(size); refused != nil {
		return refused
	}
	_, err := p.writer.Write(length[:])
	if err == nil {
		_, err = p.writer.Write(row)
	}
	return spilled(err)
}

// fits makes room for so many bytes in memory, if that has any.
func (p *spool) fits(size int64) bool {
	need := int64(len(p.memory)) + size
	if need > p.of.PullMemory {
		return false
	}
	have := int64(cap(p.memory))
	if need <= have {
		return true
	}
	room := min(max(2*have, need, heldAtOnce), p.of.PullMemory)
	if !p.of.take(room - have) {
		if room = need; !p.of.take(room - have) {
			return false
		}
	}
	grown := make([]byte, len(p.memory), room)
	copy(grown, p.memory)
	p.memory = grown
	return true
}

// space makes room for so many bytes in the file.
func (p *spool) space(size int64) *pgerr.Error {
	need := p.size - int64(len(p.memory)) - p.onDisk
	if need <= 0 {
		return nil
	}
	more := max(need, spaceAtOnce)
	if !p.of.takeFile(more) {
		if more = need; !p.of.takeFile(more) {
			p.size -= size
			p.rows--
			return p.of.noSpace()
		}
	}
	p.onDisk += more
	return nil
}

func tooMuchPulled(most int64) *pgerr.Error {
	return pgerr.New(pgerr.OutOfMemory, "the statement needs too many rows of several shards").
		WithDetail("What one query of it pulls is more than %d bytes.", most).WithHint("Bind its tables to keys, or to narrower conditions; or raise limits.pull_size.")
}

// open begins a file that nobody else sees, and that is gone when it is closed.
func (p *spool) open() *pgerr.Error {
	file, err := os.CreateTemp("", "cleave-rows-")
	if err != nil {
		return spilled(err)
	}
	_ = os.Remove(file.Name())
	p.file, p.writer = file, bufio.NewWriterSize(file, fileBuffer)
	p.of.hold(2 * fileBuffer)
	p.of.open.Add(1)
	p.of.spills.Add(1)
	return nil
}

// spilled is what a client is told if rows could not be kept in a file.
func spilled(err error) *pgerr.Error {
	if err == nil {
		return nil
	}
	return pgerr.New(pgerr.DiskFull, "rows of several shards could not be kept").WithDetail("%s", err).
		WithHint("The router keeps what does not fit into its memory in files in the folder for temporary ones (TMPDIR).")
}

// rewind makes the rows readable from the first on.
func (p *spool) rewind() *pgerr.Error {
	p.at = 0
	if p.file == nil {
		return nil
	}
	err := p.writer.Flush()
	if err == nil {
		_, err = p.file.Seek(0, io.SeekStart)
	}
	p.reader = bufio.NewReaderSize(p.file, fileBuffer)
	return spilled(err)
}

// next returns the next row, valid until the next call; nil after the last.
func (p *spool) next() ([]byte, *pgerr.Error) {
	if p.at < len(p.memory) {
		size := int(binary.BigEndian.Uint32(p.memory[p.at:]))
		start := p.at + 4
		p.at = start + size
		return p.memory[start:p.at:p.at], nil
	}
	if p.file == nil {
		return nil, nil
	}
	if p.reader == nil {
		if refused := p.rewind(); refused != nil {
			return nil, refused
		}
		p.at = len(p.memory)
	}
	var length [4]byte
	if _, err := io.ReadFull(p.reader, length[:]); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, spilled(err)
	}
	size := int(binary.BigEndian.Uint32(length[:]))
	if cap(p.row) < size {
		p.row = make([]byte, size)
	}
	p.row = p.row[:size]
	_, err := io.ReadFull(p.reader, p.row)
	return p.row, spilled(err)
}

// get returns a row by its number, from 0, valid until another one is asked for.
func (p *spool) get(row int64) ([]byte, *pgerr.Error) {
	if at := row - p.block.first; at >= 0 && at < int64(len(p.block.rows)) {
		return p.block.rows[at], nil
	}
	after := sort.Search(len(p.blocks), func(i int) bool { return p.blocks[i].first > row })
	if after == 0 || row >= p.rows {
		return nil, spilled(io.ErrUnexpectedEOF)
	}
	if refused := p.openBlock(after - 1); refused != nil {
		return nil, refused
	}
	return p.block.rows[row-p.block.first], nil
}

// openBlock finds the rows of a block.
func (p *spool) openBlock(number int) *pgerr.Error {
	b, end, last := p.blocks[number], p.size, p.rows
	if number+1 < len(p.blocks) {
		end, last = p.blocks[number+1].start, p.blocks[number+1].first
	}
	opened := openBlock{first: b.first, rows: p.block.rows[:0], data: p.block.data}
	p.block = openBlock{} // unless all goes well
	var data []byte
	if inMemory := int64(len(p.memory)); b.start < inMemory {
		data = p.memory[b.start:min(end, inMemory)]
	} else {
		opened.data = slices.Grow(opened.data[:0], int(end-b.start))[:end-b.start]
		data = opened.data
		err := p.writer.Flush()
		if err == nil {
			_, err = p.file.ReadAt(data, b.start-inMemory)
		}
		if err != nil {
			return spilled(err)
		}
	}
	for range last - b.first {
		size := int(binary.BigEndian.Uint32(data))
		opened.rows = append(opened.rows, data[4:4+size:4+size])
		data = data[4+size:]
	}
	p.block = opened
	return nil
}

// close gives back what it holds. It may be called twice.
func (p *spool) close() {
	if p.file != nil {
		_ = p.file.Close()
		p.file, p.writer, p.reader = nil, nil, nil
		p.of.give(2 * fileBuffer)
		p.of.files.Add(-p.onDisk)
		p.of.open.Add(-1)
		p.onDisk = 0
	}
	if p.memory != nil {
		p.of.give(int64(cap(p.memory)))
	}
	p.memory, p.blocks, p.block = nil, nil, openBlock{}
}
