package session

import (
	"sync/atomic"

	"github.com/cleavedb/cleave/internal/observe"
	"github.com/cleavedb/cleave/internal/pgerr"
)

// Rows is how many bytes of rows of several shards a router may hold, to bring them together. Where a field is 0, its default counts.
type Rows struct {
	// PullMemory is how much of what one query pulls stays in memory; more goes into a file. Default: 8 MiB.
	PullMemory int64
	// PullSize is how much one query may pull. Default: 16 GiB.
	PullSize int64
	// Given is how much a statement that writes may give to each shard, and how much of what it returns is brought into its order. Default: 256 MiB.
	Given int64
	// Arrays is how much goes to a server as parameters, and not into a temporary table. Default: 1 MiB.
	Arrays int64
	// Memory is how much all statements may hold in memory. Default: 512 MiB.
	Memory int64
	// Files is how much all statements may hold in files. Default: no limit.
	Files int64
}

func (r Rows) withDefaults() Rows {
	r.PullMemory = orDefault(r.PullMemory, 8<<20)
	r.PullSize = orDefault(r.PullSize, 16<<30)
	r.Given = orDefault(r.Given, 256<<20)
	r.Arrays = orDefault(r.Arrays, 1<<20)
	r.Memory = orDefault(r.Memory, 512<<20)
	return r
}

// allowance is what all statements of a router hold of what they may.
type allowance struct {
	Rows
	// memory and files are how many bytes are held, open is in how many files; spills and refused count.
	memory, files, open atomic.Int64
	spills, refused     atomic.Uint64
}

// take holds memory, unless that would be too much.
func (a *allowance) take(size int64) bool { return takeUpTo(&a.memory, size, a.Memory) }

// hold holds memory that somebody cannot do without, and that is little.
func (a *allowance) hold(size int64) { a.memory.Add(size) }

// give gives memory back.
func (a *allowance) give(size int64) { a.memory.Add(-size) }

func takeUpTo(held *atomic.Int64, size, most int64) bool {
	for {
		now := held.Load()
		if now+size > most {
			return false
		}
		if held.CompareAndSwap(now, now+size) {
			return true
		}
	}
}

// takeFile holds space in files; without a limit there always is some.
func (a *allowance) takeFile(size int64) bool {
	if a.Files == 0 {
		a.files.Add(size)
		return true
	}
	return takeUpTo(&a.files, size, a.Files)
}

// noMemory is what a client is told whose rows would have to be kept in memory.
func (a *allowance) noMemory() *pgerr.Error {
	a.refused.Add(1)
	return pgerr.New(pgerr.OutOfMemory, "the router has no memory left for the rows of several shards that the statement needs").
		WithDetail("All statements together may hold %d bytes, and hold %d.", a.Memory, a.memory.Load()).
		WithHint("Try again, restrict what it reads, or raise limits.rows_memory.")
}

// noSpace is what a client is told whose rows would have to be kept in files.
func (a *allowance) noSpace() *pgerr.Error {
	a.refused.Add(1)
	return pgerr.New(pgerr.LimitExceeded, "temporary files exceed limits.rows_files (%d bytes)", a.Files).
		WithDetail("All statements together hold %d bytes of rows of several shards in files.", a.files.Load()).
		WithHint("Try again, restrict what the statement reads, or raise limits.rows_files.")
}

// tooMuch is what a client is told who wants more of one thing than one statement may.
func (a *allowance) tooMuch(refused *pgerr.Error) *pgerr.Error {
	a.refused.Add(1)
	return refused
}

// RowStats tells what statements hold of several shards' rows.
func (s *Server) RowStats() observe.RowStats {
	a := &s.allowance
	return observe.RowStats{
		Memory: a.memory.Load(), MemoryLimit: a.Memory, Files: a.open.Load(), FileBytes: a.files.Load(), Spills: a.spills.Load(), Refused: a.refused.Load(),
	}
}

// newSpool keeps rows for a statement of the session.
func (s *session) newSpool() *spool { return &spool{of: &s.server.allowance} }

// held is memory that somebody has taken, a little at a time, and gives back at once.
type held struct {
	of     *allowance
	size   int64 // that was taken
	filled int64 // of which is used
}

// heldAtOnce is how much is taken at a time.
const heldAtOnce = 64 << 10

// add makes room for so many bytes more, unless there is none.
func (h *held) add(size int64) bool {
	if h.filled+size > h.size {
		more := max(heldAtOnce, h.filled+size-h.size)
		if !h.of.take(more) {
			if more = h.filled + size - h.size; !h.of.take(more) {
				return false
			}
		}
		h.size += more
	}
	h.filled += size
	return true
}

// release gives all of it back.
func (h *held) release() {
	if h.of != nil {
		h.of.give(h.size)
	}
	h.size, h.filled = 0, 0
}
