package session

import (
	"fmt"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/wire"
)

// cursor is one that the session itself has, because its query needed several shards: all its rows, as they were when it was declared.
type cursor struct {
	facts.Cursor
	rows spool
	// description is that of the rows, in text format; columns say how they are kept.
	description []byte
	columns     []keptColumn
	// written is under which settings columns that are kept as text were written.
	written string
	// kept: it was declared WITH HOLD in a transaction that is committed, so it lasts as long as the session.
	kept bool
	// passed is how many rows the cursor has passed, the one it is at included. atStart: it is before the first row; atEnd: behind the last. Of no rows it
	// can be both.
	passed         int64
	atStart, atEnd bool
	// failed: a FETCH has failed, and none is taken any more.
	failed bool
}

// passage are rows that a cursor passes, by their numbers from 0.
type passage struct {
	first, count int64
	backward     bool
}

// at is the number of one of its rows.
func (p passage) at(n int64) int64 {
	if p.backward {
		return p.first - n
	}
	return p.first + n
}

var onlyForward = pgerr.New(pgerr.ObjectNotInPrerequisite, "cursor can only scan forward").WithHint("Declare it with SCROLL option to enable backward scan.")

// fetch goes where FETCH or MOVE says, as PostgreSQL's DoPortalRunFetch does. It returns the rows that the client gets, and how many are counted.
func (c *cursor) fetch(how facts.Cursor) (rows passage, counted int64, refused *pgerr.Error) {
	forward, count := how.Direction == facts.Forward, how.Count
	switch how.Direction {
	case facts.Absolute:
		rows, refused = c.absolute(count)
		return rows, rows.count, refused
	case facts.Relative:
		if count != 0 {
			rows, refused = c.relative(count)
			return rows, rows.count, refused
		}
		forward = true
	case facts.Forward, facts.Backward:
		if count < 0 {
			forward, count = !forward, -count
		}
	}
	switch {
	case count == 0 && !c.atStart && !c.atEnd: // the row that it is at, once more
		if how.Move {
			return passage{}, 1, nil
		}
		if _, refused := c.scan(false, 1); refused != nil {
			return passage{}, 0, refused
		}
		forward, count = true, 1
	case !forward && count == facts.AllRows && how.Move:
		counted = c.passed
		if counted > 0 && !c.atEnd {
			counted--
		}
		return passage{}, counted, c.rewind()
	}
	rows, refused = c.scan(forward, count)
	return rows, rows.count, refused
}

// absolute goes to a row by its number from 1, or from -1 for the last.
func (c *cursor) absolute(number int64) (passage, *pgerr.Error) {
	switch {
	case number > 0:
		if refused := c.before(number); refused != nil {
			return passage{}, refused
		}
		return c.scan(true, 1)
	case number < 0:
		if _, refused := c.scan(true, facts.AllRows); refused != nil {
			return passage{}, refused
		}
		return c.relative(number)
	default:
		return passage{}, c.rewind()
	}
}

// before goes to the place before a row, on the way that PostgreSQL takes: not every way is open to a cursor that only goes forward.
func (c *cursor) before(number int64) (refused *pgerr.Error) {
	if number-1 <= c.passed/2 {
		if refused = c.rewind(); refused == nil && number > 1 {
			_, refused = c.scan(true, number-1)
		}
		return refused
	}
	passed := c.passed
	if c.atEnd {
		passed++
	}
	switch {
	case number <= passed:
		_, refused = c.scan(false, passed-number+1)
	case number > passed+1:
		_, refused = c.scan(true, number-passed-1)
	}
	return refused
}

// relative goes so many rows on, or back, of which the last is wanted.
func (c *cursor) relative(rows int64) (passage, *pgerr.Error) {
	forward := rows > 0
	if !forward {
		rows = -rows
	}
	if rows > 1 {
		if _, refused := c.scan(forward, rows-1); refused != nil {
			return passage{}, refused
		}
	}
	return c.scan(forward, 1)
}

// rewind goes before the first row.
func (c *cursor) rewind() *pgerr.Error {
	if c.atStart && !c.atEnd {
		return nil
	}
	if c.NoScroll {
		return onlyForward
	}
	c.passed, c.atStart, c.atEnd = 0, true, false
	return nil
}

// scan passes so many rows, as PostgreSQL's PortalRunSelect does.
func (c *cursor) scan(forward bool, count int64) (passage, *pgerr.Error) {
	if forward {
		if c.atEnd || count <= 0 {
			return passage{}, nil
		}
		rows := passage{first: c.passed, count: min(count, c.rows.rows-c.passed)}
		c.atStart = c.atStart && rows.count == 0
		c.atEnd = count == facts.AllRows || rows.count < count
		c.passed += rows.count
		return rows, nil
	}
	if c.NoScroll {
		return passage{}, onlyForward
	}
	if c.atStart || count <= 0 {
		return passage{}, nil
	}
	rows := passage{first: c.passed - 2, backward: true}
	if c.atEnd {
		rows.first++
	}
	rows.count = min(count, rows.first+1)
	if rows.count > 0 && c.atEnd {
		c.atEnd = false
		c.passed++
	}
	if c.passed -= rows.count; count == facts.AllRows || rows.count < count {
		c.passed, c.atStart = 0, true
	}
	return rows, nil
}

// fetching is a FETCH or MOVE of a cursor that the session has.
type fetching struct {
	c       *cursor
	how     facts.Cursor
	formats []int16
}

func (f *fetching) takeBind(_ *session, m *wire.Bind) *pgerr.Error {
	kept, refused := keepBind(m, string(m.Statement), 0)
	if refused != nil {
		return refused
	}
	if f.formats = resultFormats(kept); f.how.Move { // nothing comes in them
		return nil
	}
	return fitFormats(f.formats, len(f.c.columns))
}

func (f *fetching) description() []byte {
	if f.how.Move {
		return nil
	}
	return describedIn(f.c.description, f.formats)
}

func (f *fetching) run(s *session, to rowTaker) (tag string, refused *pgerr.Error) {
	if refused := s.goOn(); refused != nil {
		return "", refused
	}
	s.answerLocally()
	switch {
	case s.cursorOf(f.how.Name) != f.c:
		return "", errNoCursor(f.how.Name)
	case f.c.failed:
		return "", portalDone(f.how.Name)
	}
	tag, refused = f.fetch(s, to)
	f.c.failed = refused != nil
	return tag, refused
}

func (f *fetching) fetch(s *session, to rowTaker) (tag string, refused *pgerr.Error) {
	if f.how.Move {
		_, counted, refused := f.c.fetch(f.how)
		return fmt.Sprintf("MOVE %d", counted), refused
	}
	give, refused := s.presentingOf(f.c, f.formats, to)
	if refused != nil {
		return "", refused
	}
	rows, counted, refused := f.c.fetch(f.how)
	if refused != nil {
		return "", refused
	}
	to.begin()
	return fmt.Sprintf("FETCH %d", counted), give.rows(rows)
}

// executeCursor runs the portal that a cursor is.
func (s *session) executeCursor(c *cursor, maxRows int32) *pgerr.Error {
	if refused := s.goOn(); refused != nil {
		return refused
	}
	s.answerLocally()
	if c.failed {
		return portalDone(c.Name)
	}
	count := int64(maxRows)
	if count <= 0 {
		count = facts.AllRows
	}
	give, refused := s.presentingOf(c, nil, &directRows{s: s})
	if refused != nil {
		return refused
	}
	rows, refused := c.scan(true, count)
	if refused == nil {
		refused = give.rows(rows)
	}
	switch {
	case refused != nil:
		return s.ownFailed(refused)
	case rows.count == count:
		s.addLocal(wire.AppendPortalSuspended(nil))
	default:
		s.addLocal(wire.AppendCommandComplete(nil, fmt.Sprintf("SELECT %d", rows.count)))
	}
	return nil
}

// closing is a CLOSE of a cursor that the session has.
type closing struct{ name string }

func (c *closing) takeBind(_ *session, m *wire.Bind) *pgerr.Error {
	_, refused := keepBind(m, string(m.Statement), 0)
	return refused
}

func (c *closing) description() []byte { return nil }

func (c *closing) run(s *session, _ rowTaker) (tag string, refused *pgerr.Error) {
	if refused := s.goOn(); refused != nil {
		return "", refused
	}
	s.answerLocally()
	if s.cursorOf(c.name) == nil {
		return "", errNoCursor(c.name)
	}
	s.dropPortal([]byte(c.name))
	return closeCursor, nil
}

func errNoCursor(name string) *pgerr.Error {
	return pgerr.New(pgerr.InvalidCursorName, "cursor \"%s\" does not exist", name)
}

func errCursorExists[N string | []byte](name N) *pgerr.Error {
	return pgerr.New(pgerr.DuplicateCursor, "cursor \"%s\" already exists", name)
}

// cursorOf is the session's own cursor of a name; nil if it has none.
func (s *session) cursorOf(name string) *cursor {
	if p := s.portals[name]; p != nil {
		return p.cursor
	}
	return nil
}

// isAtOwnCursor says whether a statement is about a cursor that the session has.
func (s *session) isAtOwnCursor(st *plan.Statement) bool {
	return st.Cursor != nil && s.cursorOf(st.Cursor.Name) != nil
}

// answerOwn makes a statement the one in hand that the session itself answers.
func (s *session) answerOwn(st *plan.Statement, src source) (refused *pgerr.Error) {
	switch {
	case st.Makes != nil:
		s.own = &making{st: st, src: src}
	case st.Command == plan.Execute:
		s.own, refused = s.executionOf(st, src)
	case st.Declares != nil:
		s.own = &declaration{st: st, src: src}
	case copiesQuery(st):
		s.own = &copying{st: st, src: src}
	case st.Name == closeCursor:
		s.own = &closing{name: st.Cursor.Name}
	default:
		s.own = s.fetchingOf(*st.Cursor)
	}
	if refused != nil {
		s.own = nil // or it would be something that is nothing
	}
	return refused
}

// closeCursor is what CLOSE is called, also in its tag.
const closeCursor = "CLOSE CURSOR"

var notAtRow = pgerr.New(pgerr.FeatureNotSupported, "WHERE CURRENT OF is not supported with a cursor over several shards").
	WithDetail("The router keeps the rows of the cursor, and no shard knows at which of them it is.").WithHint("Use the row's key and its primary key.")

// fetchingOf is a FETCH or MOVE of the session's own cursor.
func (s *session) fetchingOf(how facts.Cursor) *fetching {
	f := &fetching{c: s.cursorOf(how.Name), how: how}
	if f.c.Binary {
		f.formats = []int16{wire.FormatBinary} // or what a Bind says
	}
	return f
}

// releaseSavepoint forgets a savepoint: portals made since belong to what is around it.
func (s *session) releaseSavepoint(name string) (found bool) {
	depth := s.log.find(name)
	if !s.log.release(name) {
		return false
	}
	for _, p := range s.portals {
		p.depth = min(p.depth, depth)
	}
	return true
}

// rollbackToSavepoint takes back what was noted since a savepoint. Portals made since are gone; others are where they are.
func (s *session) rollbackToSavepoint(name string) (found bool) {
	depth := s.log.find(name)
	if !s.log.rollbackTo(name) {
		return false
	}
	for portal, p := range s.portals {
		if isOlder := p.cursor != nil && p.cursor.kept; p.depth > depth && !isOlder {
			s.dropPortal([]byte(portal))
		}
	}
	return true
}

// closeCursors ends all cursors that the session has.
func (s *session) closeCursors() {
	for name, p := range s.portals {
		if p.cursor != nil || name != "" && p.isOnSeveral() {
			s.dropPortal([]byte(name))
		}
	}
}

// isOnSeveral says whether no server has all of a portal.
func (p *portal) isOnSeveral() bool { return len(p.shards) > 1 || p.own != nil || p.kept != nil }

// errPortal refuses a statement about a portal of the protocol's that no server has.
func errPortal(st *plan.Statement) *pgerr.Error {
	return pgerr.New(pgerr.FeatureNotSupported, "%s of portal \"%s\" is not supported: it is over several shards", st.Name, st.Cursor.Name).
		WithDetail("It was made by the protocol, and each shard has a part of it.").WithHint("Use Execute and Close of the protocol, or DECLARE a cursor.")
}
