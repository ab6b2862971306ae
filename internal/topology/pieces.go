package topology

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
)

// PieceID names a piece by a digest of its content, so equal pieces have equal names and a damaged one is noticed.
type PieceID string

// identify returns the name of a piece with this content: 128 bits of SHA-256.
func identify(content []byte) PieceID {
	sum := sha256.Sum256(content)
	return PieceID(base64.RawURLEncoding.EncodeToString(sum[:16]))
}

// Piece is a part of a map in its stored form: a JSON list of shards, tables, ranges or pins.
type Piece struct {
	ID     PieceID
	encode func() []byte
}

// Encode returns the stored form, at most about 200 kB.
func (p Piece) Encode() []byte { return p.encode() }

// piece is a run of entries of one sorted collection. It is immutable and shared between versions of a map.
type piece[E any] struct {
	id      PieceID
	entries []E
	// natural is whether an entry decided the end, and not the piece's size. Only the last piece of a collection may end
	// without either.
	natural bool
	// hashes are the entries' hashes where they are sorted by one: a look-up reads these, close together, and one entry.
	hashes []uint64
}

// pieceLimit is the size at which a piece ends whatever its entries say, in bytes of its stored form, roughly.
const pieceLimit = 192 << 10

// cutting says how a collection is cut into pieces. An entry ends a piece if its digest is a multiple of every, a power of
// two: about that many entries make a piece. So the cuts depend on the entries alone, and what a change does to one piece
// reaches no other, except for a next one when it takes away the end between them.
type cutting[E any] struct {
	every  uint64
	digest func(E) uint64
	size   func(E) int
	encode func([]E) []byte
	// hash is what the entries are sorted by, nil if it is not a hash.
	hash func(E) uint64
}

// piece makes a piece of a run of entries.
func (c cutting[E]) piece(id PieceID, entries []E, natural bool) *piece[E] {
	p := &piece[E]{id: id, entries: entries, natural: natural}
	if c.hash != nil {
		p.hashes = make([]uint64, len(entries))
		for i, e := range entries {
			p.hashes[i] = c.hash(e)
		}
	}
	return p
}

func (c cutting[E]) ends(e E) bool { return c.digest(e)&(c.every-1) == 0 }

// cut makes pieces of sorted entries. Pieces of old that hold the same entries are taken as they are; same may be nil.
func (c cutting[E]) cut(entries []E, old []*piece[E], same func(a, b E) bool) []*piece[E] {
	reusable := map[uint64]*piece[E]{}
	if same != nil {
		for _, p := range old {
			reusable[c.digest(p.entries[0])] = p
		}
	}
	var pieces []*piece[E]
	for run, natural := range c.runs(entries) {
		if p := reusable[c.digest(run[0])]; p != nil && p.natural == natural && slices.EqualFunc(p.entries, run, same) {
			pieces = append(pieces, p)
			continue
		}
		pieces = append(pieces, c.piece(identify(c.encode(run)), slices.Clip(run), natural))
	}
	return pieces
}

// runs yields the runs of entries that make a piece each, and whether each ends naturally.
func (c cutting[E]) runs(entries []E) func(yield func([]E, bool) bool) {
	return func(yield func([]E, bool) bool) {
		start, size := 0, 0
		for i, e := range entries {
			size += c.size(e)
			natural := c.ends(e)
			if !natural && size < pieceLimit && i+1 < len(entries) {
				continue
			}
			if !yield(entries[start:i+1], natural) {
				return
			}
			start, size = i+1, 0
		}
	}
}

// recut replaces the entries of pieces[from:to], which hold all that changed, and cuts them again together with as many
// neighbours as their ends depend on.
func (c cutting[E]) recut(pieces []*piece[E], from, to int, change func([]E) []E) []*piece[E] {
	for from > 0 && !pieces[from-1].natural {
		from--
	}
	entries := change(join(pieces[from:to]))
	for to < len(pieces) && (len(entries) == 0 || !c.ends(entries[len(entries)-1])) {
		entries = append(entries, pieces[to].entries...)
		to++
	}
	return slices.Concat(pieces[:from], c.cut(entries, nil, nil), pieces[to:])
}

// join returns all entries of the pieces, in a slice of its own.
func join[E any](pieces []*piece[E]) []E {
	n := 0
	for _, p := range pieces {
		n += len(p.entries)
	}
	entries := make([]E, 0, n)
	for _, p := range pieces {
		entries = append(entries, p.entries...)
	}
	return entries
}

// stored lists the pieces in their stored form.
func stored[E any](dst []Piece, pieces []*piece[E], encode func([]E) []byte) []Piece {
	for _, p := range pieces {
		dst = append(dst, Piece{ID: p.id, encode: func() []byte { return encode(p.entries) }})
	}
	return dst
}

func identifiers[E any](pieces []*piece[E]) []PieceID {
	ids := make([]PieceID, len(pieces))
	for i, p := range pieces {
		ids[i] = p.id
	}
	return ids
}

// encodeList is the stored form of a piece whose entries are their own JSON form.
func encodeList[E any](entries []E) []byte {
	content, err := json.Marshal(entries)
	if err != nil {
		panic("topology: " + err.Error()) // the types have no value that JSON cannot hold
	}
	return content
}
