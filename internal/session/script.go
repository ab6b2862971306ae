package session

import (
	"slices"

	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// line is something that a transaction says besides its statements, and that every shard of it has to hear.
type line struct {
	sql  string
	kind lineKind
	// savepoint is the name, for the kinds that are about one.
	savepoint string
	// constraints are those that it is about, if it names any, and when is when they are checked.
	constraints []placedConstraint
	when        string
}

type lineKind uint8

const (
	lineSet lineKind = iota
	lineSavepoint
	lineRelease
	lineRollbackTo
)

// savepointLine is a command about a savepoint.
func savepointLine(command plan.Command, name string) line {
	quoted := sqltext.QuoteIdentifier(name)
	switch command {
	case plan.Savepoint:
		return line{sql: "SAVEPOINT " + quoted, kind: lineSavepoint, savepoint: name}
	case plan.ReleaseSavepoint:
		return line{sql: "RELEASE SAVEPOINT " + quoted, kind: lineRelease, savepoint: name}
	default:
		return line{sql: "ROLLBACK TO SAVEPOINT " + quoted, kind: lineRollbackTo, savepoint: name}
	}
}

// script is what a shard has to be told, in order, to be where the others are. It holds nothing that a later line has made
// pointless.
type script []line

func (s *script) add(l line) {
	switch l.kind {
	case lineRelease:
		s.release(l)
	case lineRollbackTo:
		s.rollbackTo(l)
	default:
		*s = append(*s, l)
	}
}

// at returns where a savepoint is made, -1 if that was before the script begins.
func (s script) at(savepoint string) int {
	for i, l := range slices.Backward(s) {
		if l.kind == lineSavepoint && l.savepoint == savepoint {
			return i
		}
	}
	return -1
}

func (s script) hasSavepoint() bool {
	return slices.ContainsFunc(s, func(l line) bool { return l.kind == lineSavepoint })
}

// release forgets a savepoint and all behind it; what was set since stays.
func (s *script) release(l line) {
	at := s.at(l.savepoint)
	kept := (*s)[:max(at, 0)]
	for _, later := range (*s)[max(at, 0):] {
		if later.kind != lineSavepoint {
			kept = append(kept, later)
		}
	}
	if at < 0 {
		kept = append(kept, l)
	}
	*s = kept
}

// rollbackTo forgets all behind a savepoint, which stays. One that was made before the script begins may have got its name back by what is in the
// script: others of that name were behind it.
func (s *script) rollbackTo(l line) {
	if at := s.at(l.savepoint); at >= 0 {
		*s = (*s)[:at+1]
		return
	}
	*s = slices.DeleteFunc(*s, func(before line) bool { return before.kind == lineSet || before.kind == lineSavepoint })
	if !s.endsInRollback(l.savepoint) {
		*s = append(*s, l)
	}
}

// endsInRollback says whether the last thing is to go back to this savepoint.
func (s script) endsInRollback(savepoint string) bool {
	return len(s) > 0 && s[len(s)-1].kind == lineRollbackTo && s[len(s)-1].savepoint == savepoint
}

// say notes what a command inside a transaction has said, for the shards that did not hear it.
func (s *session) say(lines ...line) {
	for _, l := range lines {
		s.tx.script.add(l)
		for _, other := range s.legs {
			other.pending.add(l)
		}
	}
}

// saySettings notes the settings that a statement has changed.
func (s *session) saySettings(st *plan.Statement) {
	if st.Command == plan.ResetAll {
		s.say(line{sql: s.resetAllSQL()})
		return
	}
	for _, e := range st.Settings {
		s.say(line{sql: s.settingSQL(e)})
	}
}

// settingSQL sets what a statement has set, as the session means it: a default is what the session began with.
func (s *session) settingSQL(e plan.Setting) string {
	entry := setting{name: e.Name, sql: e.SQL}
	if e.Default {
		entry.sql = "DEFAULT"
		if began, had := s.base.find(e.Name); had {
			entry = began
		}
	}
	return restoreSQL(entry, e.Local)
}
