package differential_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// script is one file of statements.
type script struct {
	name  string
	steps []step
}

// step is one block of a script: a statement and what its directives say.
type step struct {
	line    int
	session string
	text    string
	// protocol is simple, extended, pipeline, or empty for the pass's own.
	protocol string
	// refused is a part of what the router says when it refuses the step, which the plain server does not get then.
	// refusedIn is the only protocol in which it does so, simple or extended; empty for both.
	refused, refusedIn string
	// different is why the answers differ, which they must.
	different string
	// routerOnly: the plain server does not get it, and it must succeed. answered: the same, for what a plain server fails at.
	routerOnly, answered bool
	// unordered: rows may come in any order.
	unordered bool
	params    []param
	// Of shapes: ordered says that rows come in order although the statement has no ORDER BY, each that there is a step for each
	// key, only and not for which kinds of keys it is; keys are words about parameters.
	// fails are the SQLSTATEs that the plain server may answer with; without any it must succeed.
	ordered bool
	isShape bool
	fails   []string
	// late: the router may find an error later than the plain server, when the statement runs; elsewhere: at another place of the text.
	late, elsewhere bool
	each            string
	only, not       []string
	keys            [][]string
	// copies: the statement is a COPY from the client, and data are its lines, or from is a COPY to the client that gives them on the
	// plain server; failure cuts it short.
	copies        bool
	data          []string
	from, failure string
	loaded        []byte
	// rows is how many rows each Execute asks for, 0 for all of them.
	rows uint32
	// parse, bind and close name a prepared statement of the protocol.
	parse, bind, close string
	// empty: the statement has no text at all.
	empty bool
	// Of scripts in found: keyspace is one that the cluster gets, sorted are the numbers of the columns that the answer is sorted by, counted
	// says that only the number of rows counts.
	keyspace string
	sorted   []int
	counted  bool
	// wait: the session waits for a notification; end: it ends.
	wait, end bool
}

// param is one parameter: a type's name, "?" for none, and a text, nil for NULL.
type param struct {
	typeName string
	value    *string
}

// directive has the forms "-- name" and "-- name: value". Prose begins with a capital letter.
var directive = regexp.MustCompile(`^-- ([a-z]+)(?:: ?(.*))?$`)

func readScripts(pattern string) ([]script, error) {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	scripts := make([]script, 0, len(paths))
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		s, err := parseScript(strings.TrimSuffix(filepath.Base(path), ".sql"), string(content))
		if err != nil {
			return nil, err
		}
		scripts = append(scripts, s)
	}
	return scripts, nil
}

// declares says whether a statement is for the router alone, as declarations of tables are.
func (s script) declares() bool {
	for _, st := range s.steps {
		if st.routerOnly {
			return true
		}
	}
	return false
}

// parseScript reads blocks that are separated by empty lines. A session stays in force until the next one is named.
func parseScript(name, content string) (script, error) {
	s := script{name: name}
	session := "main"
	var block []string
	for i, line := range append(strings.Split(content, "\n"), "") {
		if strings.TrimSpace(line) != "" {
			block = append(block, line)
			continue
		}
		if len(block) == 0 {
			continue
		}
		st, err := parseBlock(block, session)
		if err != nil {
			return script{}, fmt.Errorf("%s.sql:%d: %w", name, i-len(block)+1, err)
		}
		st.line, session = i-len(block)+1, st.session
		if st.hasWork() {
			s.steps = append(s.steps, st)
		}
		block = nil
	}
	return s, nil
}

// isRefused says whether a refusal is written down for this pass.
func (st *step) isRefused(p pass) bool {
	if st.refusedIn != "" && (st.refusedIn == "simple") != (st.wire(p) == "simple") {
		return false
	}
	return st.refused != ""
}

// wire is the protocol that is used in this pass: what has parameters or names cannot be said in the simple one.
func (st *step) wire(p pass) string {
	switch {
	case st.protocol != "":
		return st.protocol
	case p != simplePass, len(st.params) > 0, st.rows > 0, st.parse+st.bind+st.close != "":
		return "extended"
	default:
		return "simple"
	}
}

func (st *step) hasWork() bool {
	return st.text != "" || st.empty || st.bind != "" || st.close != "" || st.keyspace != "" || st.wait || st.end
}

// parseBlock reads directives and prose up to the first line that is neither; from there on all is the statement.
func parseBlock(lines []string, session string) (step, error) {
	st := step{session: session}
	for i, line := range lines {
		if !strings.HasPrefix(line, "--") {
			st.text = strings.Join(lines[i:], "\n")
			break
		}
		parts := directive.FindStringSubmatch(line)
		if parts == nil {
			continue
		}
		if err := st.apply(parts[1], parts[2]); err != nil {
			return step{}, err
		}
	}
	return st, nil
}

func (st *step) apply(name, value string) error {
	switch name {
	case "session":
		st.session = value
	case "protocol":
		if value != "simple" && value != "extended" && value != "pipeline" {
			return fmt.Errorf("protocol %q is none of simple, extended, pipeline", value)
		}
		st.protocol = value
	case "expect":
		return st.expect(value)
	case "router":
		st.routerOnly = true
	case "unordered":
		st.unordered = true
	case "keyspace":
		st.keyspace = value
	case "counted":
		st.counted = true
	case "sorted":
		return st.sortedBy(value)
	case "param":
		return st.addParam(value)
	case "data":
		st.copies = true
		st.data = append(st.data, value)
	case "nodata":
		st.copies = true
	case "from":
		st.copies, st.from = true, value
	case "ordered":
		st.ordered = true
	case "fails":
		st.fails = strings.Fields(value)
	case "late":
		st.late = true
	case "elsewhere":
		st.elsewhere = true
	case "each":
		st.each = value
	case "only":
		st.only = strings.Fields(value)
	case "not":
		st.not = strings.Fields(value)
	case "key":
		st.keys = append(st.keys, strings.Fields(value))
	case "copyfail":
		st.copies, st.failure = true, value
	case "rows":
		rows, err := strconv.ParseUint(value, 10, 31)
		st.rows = uint32(rows)
		return err
	case "parse":
		st.parse = value
	case "bind":
		st.bind = value
	case "close":
		st.close = value
	case "empty":
		st.empty = true
	case "wait":
		st.wait = true
	case "end":
		st.end = true
	default:
		return fmt.Errorf("directive %q is not known", name)
	}
	return nil
}

// sortedBy reads numbers of columns.
func (st *step) sortedBy(value string) error {
	for word := range strings.FieldsSeq(value) {
		place, err := strconv.Atoi(word)
		if err != nil || place < 1 {
			return fmt.Errorf("%q is no column's number", word)
		}
		st.sorted = append(st.sorted, place)
	}
	return nil
}

// expect reads "answer", "different" and a reason, or "refused", a protocol, and a part of the reason.
func (st *step) expect(value string) error {
	if st.answered = value == "answer"; st.answered {
		return nil
	}
	if why, is := strings.CutPrefix(value, "different: "); is && why != "" {
		st.different = why
		return nil
	}
	what, reason, _ := strings.Cut(value, ": ")
	what, st.refusedIn, _ = strings.Cut(what, " ")
	st.refused = reason
	switch {
	case what != "refused" || st.refusedIn != "" && st.refusedIn != "simple" && st.refusedIn != "extended":
		return fmt.Errorf("only a refusal, a difference or an answer can be expected, not %q", value)
	case reason == "":
		return errors.New("a refusal needs a part of what is said: refused: why")
	}
	return nil
}

// addParam reads "type value" or "type" alone, which is NULL.
func (st *step) addParam(text string) error {
	typeName, value, given := strings.Cut(text, " ")
	if typeName == "" {
		return errors.New("a parameter needs a type; write ? for none")
	}
	p := param{typeName: typeName}
	if given {
		p.value = &value
	}
	st.params = append(st.params, p)
	return nil
}
