package session

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/wire"
)

// portions is the answer of a portal that more than one shard has a part in, and whose rows the client fetches so many at a time. All of them are
// kept when the first are wanted: a shard that waited until the client wants more would have to be asked in turn with the others.
type portions struct {
	rows spool
	// word is the command tag; counted: the number of rows follows it.
	word    string
	counted bool
}

func (s *session) newPortions() *portions { return &portions{rows: spool{of: &s.server.allowance}} }

// completed takes the tag of the whole answer.
func (p *portions) completed(tag string) {
	word, rows := splitTag(tag)
	p.word, p.counted = word, rows >= 0
}

// splitTag takes a command tag apart: what was done, and to how many rows; -1 if it does not say that.
func splitTag(tag string) (word string, rows int64) {
	if at := strings.LastIndexByte(tag, ' '); at >= 0 {
		if n, err := strconv.ParseInt(tag[at+1:], 10, 64); err == nil {
			return tag[:at], n
		}
	}
	return tag, -1
}

// tag is told with the last rows, which are so many.
func (p *portions) tag(rows int64) string {
	if !p.counted {
		return p.word
	}
	return fmt.Sprintf("%s %d", p.word, rows)
}

// close forgets the rows.
func (p *portions) close() {
	if p != nil {
		p.rows.close()
	}
}

// portalDone is what PostgreSQL says of a portal that gives no rows and has run, or has failed.
func portalDone[N string | []byte](name N) *pgerr.Error {
	return pgerr.New(pgerr.ObjectNotInPrerequisite, "portal \"%s\" cannot be run", name)
}

// executeInPortions runs a portal on several shards of whose rows the client wants so many at a time.
func (s *session) executeInPortions(p *portal, name []byte, maxRows int32) *pgerr.Error {
	if refused := s.goOn(); refused != nil {
		return refused
	}
	s.answerLocally()
	if p.kept == nil {
		if refused := s.keepAnswer(p, name); refused != nil {
			return refused
		}
	}
	return s.givePortion(p.kept, maxRows)
}

// keepAnswer has the shards of a portal give all their rows.
func (s *session) keepAnswer(p *portal, name []byte) *pgerr.Error {
	if refused := s.goWhere(p); refused != nil {
		return refused
	}
	kept := s.newPortions()
	s.sink, s.sunkTag = &takenRows{to: &keptRows{to: &kept.rows}}, ""
	s.addExecute(p, name, 0)
	s.ops = append(s.ops, op{kind: opSync, hidden: true})
	refused := s.runUnit()
	s.sink = nil
	if refused != nil {
		kept.close()
		return refused
	}
	kept.completed(s.sunkTag)
	p.kept = kept
	return nil
}

// givePortion gives the client the next rows, all that there are if it wants 0.
func (s *session) givePortion(p *portions, maxRows int32) *pgerr.Error {
	given := int64(0)
	for maxRows == 0 || given < int64(maxRows) {
		row, refused := p.rows.next()
		if refused != nil {
			return refused
		}
		if row == nil {
			break
		}
		given++
		if refused := s.giveRow(row); refused != nil {
			return refused
		}
	}
	if maxRows > 0 && given == int64(maxRows) {
		s.addLocal(wire.AppendPortalSuspended(nil))
		return nil
	}
	s.addLocal(wire.AppendCommandComplete(nil, p.tag(given)))
	return nil
}

// giveRow gives the client a row, by its body.
func (s *session) giveRow(row []byte) *pgerr.Error {
	s.out = wire.AppendDataRowBody(s.out, row)
	if len(s.out) < relayBuffer {
		return nil
	}
	if err := s.write(); err != nil {
		s.stepError = err
		return stepFailed
	}
	return nil
}
