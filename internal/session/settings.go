package session

import (
	"slices"
	"strings"
	"unique"

	"github.com/zeebo/xxh3"

	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// setting is one parameter as a session wants it.
type setting struct {
	name string
	// sql is what follows "SET name TO"; values are the same without quotes.
	sql    string
	values []string
}

// settings is what a session has set, and what a backend has been brought to. It is never changed, so it can be shared: two
// with the same content have equal handles.
type settings struct {
	entries []setting // by name
	handle  unique.Handle[string]
	// meaning is the handle without the parameters that cannot change what a statement means.
	meaning unique.Handle[string]
	// affinity tells the pool which backends need no change.
	affinity uint64
}

// noMeaning are parameters that a prepared statement does not depend on.
var noMeaning = []string{"application_name", "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "client_min_messages"}

func newSettings(entries []setting) *settings {
	var all, meaning strings.Builder
	for _, e := range entries {
		text := e.name + "\x00" + e.sql + "\x00"
		all.WriteString(text)
		if !slices.Contains(noMeaning, e.name) {
			meaning.WriteString(text)
		}
	}
	return &settings{
		entries: entries, handle: unique.Make(all.String()), meaning: unique.Make(meaning.String()), affinity: xxh3.HashString(all.String()),
	}
}

var noSettings = newSettings(nil)

func (s *settings) find(name string) (setting, bool) {
	i, found := slices.BinarySearchFunc(s.entries, name, func(e setting, name string) int { return strings.Compare(e.name, name) })
	if !found {
		return setting{}, false
	}
	return s.entries[i], true
}

// with returns the settings after a SET.
func (s *settings) with(e setting) *settings {
	if e.name == dateStyle {
		before, _ := s.find(dateStyle)
		e = mergedDateStyle(before, e)
	}
	entries := slices.DeleteFunc(slices.Clone(s.entries), func(old setting) bool { return old.name == e.name })
	i, _ := slices.BinarySearchFunc(entries, e.name, func(old setting, name string) int { return strings.Compare(old.name, name) })
	return newSettings(slices.Insert(entries, i, e))
}

// without returns the settings after a RESET.
func (s *settings) without(name string) *settings {
	if _, found := s.find(name); !found {
		return s
	}
	return newSettings(slices.DeleteFunc(slices.Clone(s.entries), func(old setting) bool { return old.name == name }))
}

// keeping returns the settings with some taken from others.
func (s *settings) keeping(from *settings, names ...string) *settings {
	for _, name := range names {
		if e, had := from.find(name); had {
			s = s.with(e)
		} else {
			s = s.without(name)
		}
	}
	return s
}

// same says whether a backend with these settings can serve a session with those.
func (s *settings) same(other *settings) bool { return s != nil && s.handle == other.handle }

// resetSQL takes everything from a backend that some session may have left there. Prepared statements are the router's own, but
// nobody knows which of them are left.
const resetSQL = "DEALLOCATE ALL; CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; SELECT pg_catalog.pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES"

// transition is the SQL that brings a backend from one state to another, statement by statement; from is nil if nobody knows
// what the backend has.
func transition(from, to *settings) []string {
	var statements []string
	if from == nil {
		statements, from = strings.Split(resetSQL, "; "), noSettings
	}
	// Identity goes first when it is given up and last when it is taken: a role may lack the right to set something.
	for _, name := range []string{"role", "session_authorization"} {
		if old, had := from.find(name); had {
			if e, wanted := to.find(name); !wanted || e.sql != old.sql {
				statements = append(statements, "RESET "+parameterSQL(name))
			}
		}
	}
	for _, e := range from.entries {
		if _, wanted := to.find(e.name); !wanted && !isIdentity(e.name) {
			statements = append(statements, "RESET "+parameterSQL(e.name))
		}
	}
	for _, e := range to.entries {
		if old, had := from.find(e.name); (!had || old.sql != e.sql) && !isIdentity(e.name) {
			statements = append(statements, setSQL(e))
		}
	}
	switched := false // to another user, which ends a role
	for _, name := range []string{"session_authorization", "role"} {
		old, had := from.find(name)
		e, wanted := to.find(name)
		changed := had != wanted || old.sql != e.sql
		if wanted && (changed || name == "role" && switched) {
			statements = append(statements, setSQL(e))
		}
		switched = switched || changed
	}
	return statements
}

func isIdentity(name string) bool { return name == "role" || name == "session_authorization" }

// parameterSQL writes a parameter's name; two of them have a form of their own.
func parameterSQL(name string) string {
	if name == "session_authorization" {
		return "SESSION AUTHORIZATION"
	}
	parts := strings.Split(name, ".")
	for i, part := range parts {
		parts[i] = sqltext.QuoteIdentifier(part)
	}
	return strings.Join(parts, ".")
}

func setSQL(e setting) string {
	if e.name == "session_authorization" {
		return "SET SESSION AUTHORIZATION " + e.sql
	}
	return "SET " + parameterSQL(e.name) + " TO " + e.sql
}

// restoreSQL gives a parameter back what the session began with, for the transaction alone if that was asked for.
func restoreSQL(e setting, local bool) string {
	sql := setSQL(e)
	if local {
		sql = "SET LOCAL" + strings.TrimPrefix(sql, "SET")
	}
	return sql
}

// change is one change of a setting inside a transaction, to be kept or taken back with it.
type change struct {
	entry   setting
	local   bool
	restore bool // back to what the session began with
	all     bool // RESET ALL, which leaves alone who one is
	remove  bool // what is set no more, whatever the session began with
}

// settingsLog holds the changes of a running transaction, with a mark for each savepoint.
type settingsLog struct {
	changes    []change
	savepoints []savepointMark
	// switches are what was said of consistent reads, which no server knows of.
	switches []readsSwitch
	// held are the session's own cursors that were declared WITH HOLD.
	held []*cursor
}

type readsSwitch struct{ on, local bool }

type savepointMark struct {
	name         string
	at, switches int
}

func (l *settingsLog) reset() {
	l.changes, l.savepoints, l.switches, l.held = l.changes[:0], l.savepoints[:0], l.switches[:0], nil
}

func (l *settingsLog) savepoint(name string) {
	l.savepoints = append(l.savepoints, savepointMark{name, len(l.changes), len(l.switches)})
}

// find returns the innermost savepoint of a name, -1 if there is none.
func (l *settingsLog) find(name string) int {
	for i, s := range slices.Backward(l.savepoints) {
		if s.name == name {
			return i
		}
	}
	return -1
}

// release forgets a savepoint and those after it, but keeps what was changed.
func (l *settingsLog) release(name string) bool {
	i := l.find(name)
	if i >= 0 {
		l.savepoints = l.savepoints[:i]
	}
	return i >= 0
}

// rollbackTo takes back what was changed since a savepoint, which stays.
func (l *settingsLog) rollbackTo(name string) bool {
	i := l.find(name)
	if i >= 0 {
		mark := l.savepoints[i]
		l.changes, l.switches, l.savepoints = l.changes[:mark.at], l.switches[:mark.switches], l.savepoints[:i+1]
	}
	return i >= 0
}

// apply returns the settings after the changes; committed leaves local ones out.
func (l *settingsLog) apply(s, base *settings, committed bool) *settings {
	for _, c := range l.changes {
		switch {
		case c.local && committed:
		case c.all:
			s = base.keeping(s, "role", "session_authorization")
		case c.remove:
			s = s.without(c.entry.name)
		case c.restore:
			if e, had := base.find(c.entry.name); had {
				s = s.with(e)
			} else {
				s = s.without(c.entry.name)
			}
		default:
			s = s.with(c.entry)
		}
	}
	return s
}

// ofTransaction are the parameters of a transaction.
var ofTransaction = []string{"transaction_isolation", "transaction_read_only", "transaction_deferrable"}

// record notes what a statement changed, where these settings were in effect.
func (l *settingsLog) record(st *plan.Statement, before *settings) {
	if st.Command == plan.ResetAll {
		l.changes = append(l.changes, change{all: true})
		return
	}
	for _, e := range st.Settings {
		if slices.Contains(ofTransaction, e.Name) {
			continue // ends with the transaction, and goes nowhere else
		}
		entry := setting{name: e.Name, sql: e.SQL, values: e.Values}
		if e.Name == dateStyle && !e.Default {
			was, _ := before.find(dateStyle)
			entry = mergedDateStyle(was, entry)
		}
		l.changes = append(l.changes, change{entry: entry, local: e.Local, restore: e.Default})
		if e.Name == "session_authorization" { // it ends a SET ROLE, but not the role that the session began with
			l.changes = append(l.changes, change{entry: setting{name: "role"}, local: e.Local, remove: !e.Default, restore: e.Default})
		}
	}
}
