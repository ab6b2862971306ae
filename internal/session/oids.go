package session

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
	"sync"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/wire"
)

// What users make has another number on every server. Clients remember numbers of types and ask the catalogue about them, which is the
// home shard's: so the home shard's are the ones that they see and use, whichever shard answers.

// numbering turns one shard's numbers into the home shard's, and back.
type numbering struct {
	epoch            uint64
	types, relations map[uint32]uint32 // the shard's to the home shard's
	back             map[uint32]uint32 // of types
	// differ: some type has another number here than at home. containers are the types whose values may carry numbers, by theirs at home.
	differ     bool
	containers map[uint32]container
}

// numberings are those of all shards.
type numberings struct {
	mu      sync.RWMutex
	byShard map[int]*numbering
	// fetching is held by the one who asks for them; failed counts how often a shard's could not be had.
	fetching sync.Mutex
	failed   map[int]int
}

func (n *numberings) get(shard int) *numbering {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.byShard[shard]
}

// isKnown says whether a shard's numbers are those of an epoch.
func (n *numberings) isKnown(shard int, epoch uint64) bool {
	known := n.get(shard)
	return known != nil && known.epoch == epoch
}

func (n *numberings) failures(shard int) int {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.failed[shard]
}

func (n *numberings) fail(shard int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failed == nil {
		n.failed = map[int]int{}
	}
	n.failed[shard]++
}

// takeTurn says whether it is the caller who asks for a shard's numbers, and has to unlock fetching after that. If somebody else is at it,
// who waits has them when that one is done, or knows that they cannot be had.
func (n *numberings) takeTurn(shard int, epoch uint64, waits bool) bool {
	if n.fetching.TryLock() {
		return true
	}
	if !waits {
		return false
	}
	before := n.failures(shard)
	n.fetching.Lock()
	if n.isKnown(shard, epoch) || n.failures(shard) != before {
		n.fetching.Unlock()
		return false
	}
	return true
}

func (n *numberings) put(shard int, made *numbering) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byShard == nil {
		n.byShard = map[int]*numbering{}
	}
	if before := n.byShard[shard]; before == nil || before.epoch <= made.epoch { // several may ask at once
		n.byShard[shard] = made
	}
}

// numbersSQL lists what has a number of its own: types, and tables with their kin. Of types it says what their values are built like, of
// which type the bounds of ranges are, and what a domain is made of, whose values are like its own.
const numbersSQL = `SELECT 't', t.oid, n.nspname, t.typname, CASE t.typsend WHEN 'pg_catalog.array_send'::pg_catalog.regproc THEN 'a'
		WHEN 'pg_catalog.record_send'::pg_catalog.regproc THEN 'c' WHEN 'pg_catalog.range_send'::pg_catalog.regproc THEN 'r'
		WHEN 'pg_catalog.multirange_send'::pg_catalog.regproc THEN 'm' ELSE '' END, coalesce(r.rngsubtype, 0), t.typbasetype
	FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace LEFT JOIN pg_catalog.pg_range r ON t.oid IN (r.rngtypid, r.rngmultitypid)
	WHERE t.oid >= 16384 AND n.nspname NOT LIKE 'pg\_%'
	UNION ALL SELECT 'r', c.oid, n.nspname, c.relname, '', 0, 0 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	WHERE c.oid >= 16384 AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT LIKE 'pg\_%'`

// learnNumbers makes sure that the numbers of a shard are known before it is used. If they cannot be had, those from before are used on; it is refused only
// if asking has ended the transaction, or made it fail. A statement that goes on to more shards learns them before it takes a backend there.
func (s *session) learnNumbers(shard int) *pgerr.Error {
	home := s.home()
	if shard == home || s.isAside || s.currentMap().ShardCount() < 2 {
		return nil
	}
	epoch := s.server.epoch.Load() + s.server.planner.catalog.Epoch()
	if s.server.numbers.isKnown(shard, epoch) {
		return nil
	}
	// Who has a backend must not wait for one who waits for a backend. While shards are told a statement, what was known when that began will do.
	before, holds := s.server.numbers.get(shard) != nil, s.backend != nil || s.isSpread()
	if before && s.telling.Load() {
		return nil
	}
	if before || !holds {
		if !s.server.numbers.takeTurn(shard, epoch, !holds) {
			return nil
		}
		defer s.server.numbers.fetching.Unlock()
	}
	s.unheard = true
	defer func() { s.unheard = false }()
	var told [2][][]string
	for i, number := range []int{shard, home} {
		rows, ended, refused := s.askBeside(number, numbersSQL)
		if refused != nil {
			s.server.numbers.fail(shard)
			if ended {
				return refused
			}
			return nil
		}
		told[i] = rows
	}
	s.server.numbers.put(shard, newNumbering(epoch, told[0], told[1]))
	return nil
}

// askBeside asks a shard for rows that the transaction can do without. Ended: asking has ended the transaction, or made it fail.
func (s *session) askBeside(shard int, sql string) (rows [][]string, ended bool, refused *pgerr.Error) {
	inside, failed := s.backend != nil || s.isSpread(), s.hasFailed()
	rows, refused = s.askRows(shard, sql)
	if refused == nil || !inside || failed {
		return rows, false, refused
	}
	return nil, s.backend == nil && !s.isSpread() || s.hasFailed(), refused
}

// newNumbering pairs what has the same name.
func newNumbering(epoch uint64, there, here [][]string) *numbering {
	type name struct{ kind, schema, name string }
	atHome := map[name]uint32{}
	number := func(text string) uint32 {
		n, _ := strconv.ParseUint(text, 10, 32)
		return uint32(n)
	}
	n := &numbering{epoch: epoch, types: map[uint32]uint32{}, relations: map[uint32]uint32{}, back: map[uint32]uint32{}, containers: map[uint32]container{}}
	bases := map[uint32]uint32{}
	for _, row := range here {
		oid := number(row[1])
		atHome[name{row[0], row[2], row[3]}] = oid
		if row[4] != "" {
			n.containers[oid], bases[oid] = container{shape(row[4][0]), number(row[5])}, number(row[6])
		}
	}
	n.settleDomains(bases)
	for _, row := range there {
		home, known := atHome[name{row[0], row[2], row[3]}]
		switch {
		case !known:
		case row[0] == "t":
			n.types[number(row[1])], n.back[home] = home, number(row[1])
			n.differ = n.differ || home != number(row[1])
		default:
			n.relations[number(row[1])] = home
		}
	}
	return n
}

// settleDomains gives domains of ranges the bounds' type of what they are made of.
func (n *numbering) settleDomains(bases map[uint32]uint32) {
	for oid, c := range n.containers {
		for base := bases[oid]; base != 0 && c.of == 0; base = bases[base] {
			c.of = n.containers[base].of
		}
		n.containers[oid] = c
	}
}

// replace puts another number into four bytes of a message, if it is one of a user's.
func replace(at []byte, numbers map[uint32]uint32) {
	if oid := binary.BigEndian.Uint32(at); oid >= firstUserOID {
		if home, known := numbers[oid]; known {
			binary.BigEndian.PutUint32(at, home)
		}
	}
}

// describeColumns gives a RowDescription, which is changed in place, the home shard's numbers.
func (n *numbering) describeColumns(message []byte) {
	const (
		fixed    = 18 // bytes of a column behind its name
		typePart = 6  // where the type is in them
	)
	body := wire.Body(message)
	if len(body) < 2 {
		return
	}
	for rest := body[2:]; ; {
		end := bytes.IndexByte(rest, 0)
		if end < 0 || len(rest) < end+1+fixed {
			return
		}
		column := rest[end+1:]
		replace(column, n.relations)
		replace(column[typePart:], n.types)
		rest = column[fixed:]
	}
}

// describeParameters does the same to a ParameterDescription.
func (n *numbering) describeParameters(message []byte) {
	body := wire.Body(message)
	for at := 2; at+4 <= len(body); at += 4 {
		replace(body[at:], n.types)
	}
}

// declared are the types of parameters, as the client gave them, in the shard's own numbers.
func (n *numbering) declared(oids []uint32) []uint32 {
	if n == nil || !slices.ContainsFunc(oids, func(oid uint32) bool { return oid >= firstUserOID }) {
		return oids
	}
	own := slices.Clone(oids)
	for i, oid := range own {
		if there, known := n.back[oid]; known {
			own[i] = there
		}
	}
	return own
}

// numbering is that of the attached backend; nil on the home shard.
func (s *session) numbering() *numbering {
	if s.backend == nil {
		return nil
	}
	return s.server.numbers.get(s.backend.Shard())
}
