package session

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"unique"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// statement is a prepared statement of the client.
type statement struct {
	name string
	text string
	oids []uint32 // as the client declared them
	// sql is set for one that was made by PREPARE: its text up to the name, and from there on.
	sql *sqlPrepared

	planned    *planned
	contextKey string // what the plan was made under
	// owner is the session if nobody else may use what the server makes of it: PostgreSQL reads 'today' when it is prepared.
	owner uint64
	// readUnder are the settings under which its literals were read when it was prepared.
	readUnder *settings
	epoch     uint64 // of the catalogue when the client prepared it: what the server made before that may be stale

	// told are the columns as the client was told last, under the plan toldUnder; empty if it was told none. origin is the client's own
	// statement, if this one is run in its place.
	told      string
	toldUnder *planned
	origin    *statement
	// elsewhere: places in its text are not places of the client's.
	elsewhere bool

	// serverName is its name on backends, for the settings that it was computed for.
	serverName string
	meaning    unique.Handle[string]
	// paramOIDs are the parameters' types as the server resolved them under the plan paramsOf; nil if nobody asked yet.
	paramOIDs []uint32
	paramsOf  *planned
	// results are the types of its columns, by their numbers at home, under the plan resultsOf; nil if values of none carry numbers of types.
	results   []uint32
	resultsOf *planned
	rows      *preparedRows // of an INSERT, once they were needed
	// needs is a prepared statement that the text names; tag replaces the command tag.
	needs *statement
	makes []*statement    // by PREPARE
	edits []edit          // what was changed in the client's text
	inner *plan.Statement // what an EXECUTE runs, if something follows from it
	tags  []string

	// scan is of text, once its literals were needed, under the setting conforming.
	scan       *sqltext.Normalized
	scanned    []byte
	conforming bool
}

// literals are those of the text.
func (st *statement) literals(standardConforming bool) (*sqltext.Normalized, []byte, *pgerr.Error) {
	if st.scan == nil || st.conforming != standardConforming {
		scan, text := &sqltext.Normalized{}, []byte(st.text)
		if err := scan.Scan(text, standardConforming); err != nil {
			return nil, nil, pgerr.New(pgerr.InternalError, "a prepared statement cannot be read again").WithDetail("%s", err)
		}
		st.scan, st.scanned, st.conforming = scan, text, standardConforming
	}
	return st.scan, st.scanned, nil
}

// sqlPrepared is what PREPARE said besides the name.
type sqlPrepared struct {
	types  string
	source string // the whole statement, as backends are to see it
}

// single returns the plan's only statement, nil for an empty text.
func (st *statement) single() *plan.Statement {
	if st.planned == nil || len(st.planned.plan.Statements) == 0 {
		return nil
	}
	return &st.planned.plan.Statements[0]
}

// onServer returns the statement's name on backends. It is made of everything that its meaning depends on, so any session
// with the same settings finds it there.
func (st *statement) onServer(s *settings) string {
	if st.sql != nil {
		return st.serverName
	}
	if st.serverName != "" && st.meaning == s.meaning {
		return st.serverName
	}
	h := sha256.New()
	var number [8]byte
	for _, part := range []string{s.meaning.Value(), st.text} {
		binary.BigEndian.PutUint64(number[:], uint64(len(part)))
		h.Write(number[:])
		h.Write([]byte(part))
	}
	binary.BigEndian.PutUint64(number[:], st.owner)
	h.Write(number[:])
	binary.BigEndian.PutUint64(number[:], st.epoch)
	h.Write(number[:])
	for _, oid := range st.oids {
		binary.BigEndian.PutUint32(number[:4], oid)
		h.Write(number[:4])
	}
	st.serverName, st.meaning = "cleave_"+hex.EncodeToString(h.Sum(nil)[:12]), s.meaning
	return st.serverName
}

// portal is a statement with its parameters bound.
type portal struct {
	statement *statement
	// local: the session itself runs it.
	local bool
	// explain are the router's own lines of an EXPLAIN.
	explain []string
	// shards are those that have it, if they are several, divided so; shard is the one that has it while the transaction is on others too.
	shards []int
	parts  plan.Parts
	order  []int
	limit  int64
	shard  int
	// own is set if the session itself answers it; cursor if it is that of a DECLARE whose rows the session has.
	own    own
	cursor *cursor
	// changes is how many statements that may write the session had run when it was made.
	changes uint64
	// depth is how many savepoints it was made behind.
	depth int
	// kept are rows that the client has not fetched yet; nil if none are kept.
	kept *portions
	// carried says which columns of its rows have to be looked into.
	carried *carried
}

// maxStatements is how many prepared statements a client may have.
const maxStatements = 10_000

func errNoStatement(name string) *pgerr.Error {
	if name == "" {
		return pgerr.New(pgerr.InvalidStatementName, "unnamed prepared statement does not exist")
	}
	return pgerr.New(pgerr.InvalidStatementName, "prepared statement \"%s\" does not exist", name)
}

func errNoPortal(name string) *pgerr.Error {
	return pgerr.New(pgerr.InvalidCursorName, "portal \"%s\" does not exist", name)
}

// findStatement returns a prepared statement of the client.
func (s *session) findStatement(name []byte) (*statement, *pgerr.Error) {
	if len(name) == 0 {
		if s.unnamed == nil {
			return nil, errNoStatement("")
		}
		return s.unnamed, nil
	}
	st := s.statements[string(name)]
	if st == nil {
		return nil, errNoStatement(string(name))
	}
	return st, nil
}

func (s *session) findPortal(name []byte) (*portal, *pgerr.Error) {
	if len(name) == 0 {
		if s.current.statement == nil {
			return nil, errNoPortal("")
		}
		return &s.current, nil
	}
	p := s.portals[string(name)]
	if p == nil {
		return nil, errNoPortal(string(name))
	}
	return p, nil
}

// forgetPortals: they end with their transaction, but for cursors that were declared WITH HOLD.
func (s *session) forgetPortals() {
	s.dropPortal(nil)
	for name, p := range s.portals {
		if p.cursor == nil || !p.cursor.kept {
			s.dropPortal([]byte(name))
		}
	}
}

// isOwn says whether no server knows of it.
func (p *portal) isOwn() bool { return p.local || p.own != nil || p.cursor != nil }

// hasRows says whether the session keeps rows of it.
func (p *portal) hasRows() bool { return p.kept != nil || p.cursor != nil }

// close forgets its rows.
func (p *portal) close() {
	p.kept.close()
	if p.cursor != nil {
		p.cursor.rows.close()
	}
}

// serverState is what is known of the session on a backend's side. It stays with the backend.
type serverState struct {
	settings *settings // nil: nobody knows
	// reported are the parameters as the server told them last.
	reported map[string]string
	// searchPath is what the role has if it sets nothing.
	searchPath []string
	// greeting is what the shard said at the login.
	greeting shard.Greeting
	// user is the number of the session that used it last.
	user uint32
	// tainted: that session may have left something that is not tracked.
	tainted bool
	// prepared are the statements that the server has, by name; order has the same, oldest first.
	prepared map[string]*serverStatement
	order    []*serverStatement
	// unnamed is what the server's unnamed statement is, nil if nobody knows.
	unnamed *statement
}

type serverStatement struct {
	name      string
	confirmed bool
	// stale: its tables have changed, so the server refuses to run it.
	stale bool
}

// maxPrepared is how many prepared statements a backend holds before the oldest is closed.
const maxPrepared = 500

// forgetPrepared: the server has none any more.
func (b *serverState) forgetPrepared() {
	clear(b.prepared)
	b.order, b.unnamed = nil, nil
}

func (b *serverState) has(name string) bool {
	st := b.prepared[name]
	return st != nil && !st.stale
}

func (b *serverState) add(name string) *serverStatement {
	added := &serverStatement{name: name}
	b.keep(added)
	return added
}

func (b *serverState) keep(st *serverStatement) {
	if b.prepared == nil {
		b.prepared = map[string]*serverStatement{}
	}
	b.prepared[st.name] = st
	b.order = append(b.order, st)
}

func (b *serverState) remove(st *serverStatement) {
	if b.prepared[st.name] == st {
		delete(b.prepared, st.name)
	}
	for i, other := range b.order {
		if other == st {
			b.order = append(b.order[:i], b.order[i+1:]...)
			return
		}
	}
}

// oldest returns the statement to close when there are too many, nil if there is none to spare.
func (b *serverState) oldest() *serverStatement {
	if len(b.order) < maxPrepared || !b.order[0].confirmed {
		return nil
	}
	return b.order[0]
}
