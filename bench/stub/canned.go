package stub

import (
	"bytes"
	"encoding/binary"
)

// statement is one that is answered here.
type statement struct {
	prefix      []byte // of its text, by which it is known
	description []byte // of its rows; NoData if it has none
	parameters  []byte // what it takes
	result      []byte // its rows and its completion
}

// int4 is the type of the one parameter and of the one column.
const int4 = 23

var (
	// Columns as PostgreSQL describes them: name, table, number, type, width, modifier, format.
	abalance = typed('T', []byte("\x00\x01abalance\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x17\x00\x04\xff\xff\xff\xff\x00\x00"))
	noData   = typed('n', nil)
	oneKey   = typed('t', []byte{0, 1, 0, 0, 0, int4})

	parseComplete = typed('1', nil)
	bindComplete  = typed('2', nil)
)

var statements = []*statement{
	{
		prefix:      []byte("SELECT abalance FROM pgbench_accounts WHERE aid ="),
		description: abalance, parameters: oneKey,
		result: append(typed('D', []byte("\x00\x01\x00\x00\x00\x010")), typed('C', []byte("SELECT 1\x00"))...),
	},
	{
		prefix:      []byte("UPDATE pgbench_accounts SET abalance = abalance +"),
		description: noData, parameters: oneKey,
		result: typed('C', []byte("UPDATE 1\x00")),
	},
}

// typed makes a message of a body.
func typed(kind byte, body []byte) []byte {
	m := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4))
	return append(m, body...)
}

// find returns the statement of the text, nil if the server has to answer it. Two statements in one text are such a case.
func find(text []byte) *statement {
	for _, s := range statements {
		if bytes.HasPrefix(text, s.prefix) {
			if rest := bytes.TrimRight(text, "; \n\t"); bytes.IndexByte(rest, ';') < 0 {
				return s
			}
		}
	}
	return nil
}

// unit is what a client sent up to a Query or a Sync.
type unit struct {
	bytes   []byte
	answers []byte // to all of it, but for the ReadyForQuery
	foreign bool   // whether the server has to answer it

	unnamed *statement // parsed in this very unit
	portal  *statement // bound in this very unit
}

func (u *unit) reset() { *u = unit{bytes: u.bytes[:0], answers: u.answers[:0]} }

func (u *unit) answer(status byte) []byte {
	u.answers = append(u.answers, 'Z', 0, 0, 0, 5, status)
	return u.answers
}

// add takes in the next message; what it cannot answer makes the unit foreign. A named statement is parsed by the server
// too, so that it can answer if it ever has to.
func (u *unit) add(m *message, canned map[string]*statement) {
	u.bytes = append(u.bytes, m.bytes...)
	body := m.body()
	switch m.kind() {
	case 'Q':
		u.query(body)
	case 'P':
		u.parse(body, canned)
	case 'B':
		u.bind(body, canned)
	case 'D':
		u.describe(body, canned)
	case 'E':
		u.execute(body)
	case 'S':
	case 'C':
		u.close(body, canned)
	default:
		u.foreign = true
	}
}

func (u *unit) query(body []byte) {
	text, _, _ := bytes.Cut(body, []byte{0})
	s := find(text)
	if s == nil {
		u.foreign = true
		return
	}
	if s.description[0] == 'T' {
		u.answers = append(u.answers, s.description...)
	}
	u.answers = append(u.answers, s.result...)
}

func (u *unit) parse(body []byte, canned map[string]*statement) {
	name, rest, _ := bytes.Cut(body, []byte{0})
	text, _, _ := bytes.Cut(rest, []byte{0})
	s := find(text)
	if len(name) > 0 {
		u.foreign = true
		if s != nil {
			canned[string(name)] = s
		} else {
			delete(canned, string(name))
		}
		return
	}
	u.unnamed = s
	u.foreign = u.foreign || s == nil
	u.answers = append(u.answers, parseComplete...)
}

// statement returns the one of the name. The unnamed one counts only if this unit parsed it: what the server has under
// that name is another.
func (u *unit) statement(name []byte, canned map[string]*statement) *statement {
	if len(name) == 0 {
		return u.unnamed
	}
	return canned[string(name)]
}

func (u *unit) bind(body []byte, canned map[string]*statement) {
	portal, rest, _ := bytes.Cut(body, []byte{0})
	name, rest, _ := bytes.Cut(rest, []byte{0})
	u.portal = u.statement(name, canned)
	u.foreign = u.foreign || u.portal == nil || len(portal) > 0 || !wantsText(rest)
	u.answers = append(u.answers, bindComplete...)
}

// wantsText tells whether a Bind, after its names, asks for results as text.
func wantsText(rest []byte) bool {
	formats, rest, ok := take16(rest)
	if !ok || len(rest) < 2*formats {
		return false
	}
	parameters, rest, ok := take16(rest[2*formats:])
	for range parameters {
		if !ok || len(rest) < 4 {
			return false
		}
		length := max(0, int(int32(binary.BigEndian.Uint32(rest)))) // -1 is NULL
		if len(rest)-4 < length {
			return false
		}
		rest = rest[4+length:]
	}
	results, rest, ok := take16(rest)
	return ok && len(rest) == 2*results && len(bytes.Trim(rest, "\x00")) == 0
}

func take16(from []byte) (value int, rest []byte, ok bool) {
	if len(from) < 2 {
		return 0, nil, false
	}
	return int(binary.BigEndian.Uint16(from)), from[2:], true
}

func (u *unit) describe(body []byte, canned map[string]*statement) {
	if len(body) < 2 {
		u.foreign = true
		return
	}
	name := body[1 : len(body)-1]
	s := u.portal
	if body[0] == 'S' {
		if s = u.statement(name, canned); s != nil {
			u.answers = append(u.answers, s.parameters...)
		}
	} else if len(name) > 0 {
		s = nil
	}
	if s == nil {
		u.foreign = true
		return
	}
	u.answers = append(u.answers, s.description...)
}

// close leaves the closing to the server, which knows every named statement.
func (u *unit) close(body []byte, canned map[string]*statement) {
	u.foreign = true
	if len(body) > 2 && body[0] == 'S' {
		delete(canned, string(body[1:len(body)-1]))
	}
}

func (u *unit) execute(body []byte) {
	if u.portal == nil || len(body) != 5 || body[0] != 0 {
		u.foreign = true
		return
	}
	u.answers = append(u.answers, u.portal.result...)
}
