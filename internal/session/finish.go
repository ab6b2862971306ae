package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/wire"
)

// fewRows are so few that looking through all of them is as good as an index.
const fewRows = 100

// textArray is PostgreSQL's number of arrays of texts.
const textArray = 1009

// finishing is the last step of a statement: what was pulled is handed to a server that finishes the work.
type finishing struct {
	s     *session
	c     *composing
	basin *basin
	to    rowTaker
	// oids, formats and values are those of the parameters: the client's, and then arrays of columns.
	oids    []uint32
	formats []int16
	values  [][]byte
	// tables are the pulls that go into temporary tables. unnests: none does.
	tables  []int
	unnests bool
	rows    int64
	// held is the memory of the arrays.
	held held
	// refused is why the answer is not passed on.
	refused *pgerr.Error
}

// newFinishing is the last step of a statement, over what was pulled; unnests: none of it goes into a temporary table.
func (s *session) newFinishing(c *composing, from *basin, unnests bool) *finishing {
	return &finishing{s: s, c: c, basin: from, unnests: unnests, oids: slices.Clone(c.outline.params), held: held{of: &s.server.allowance}}
}

// finish hands what was pulled to a server and passes on what it makes of it. That server session is one of the client's own role, so it can do
// what the client can; all names of tables in the text are those of what was pulled.
func (s *session) finish(c *composing, from *basin, to rowTaker) (int64, *pgerr.Error) {
	f := s.newFinishing(c, from, false)
	f.to = to
	defer f.held.release()
	text, refused := f.text()
	if refused != nil {
		return 0, refused
	}
	if refused := s.goesOn(); refused != nil {
		return 0, refused
	}
	home := s.home()
	if c.copied == "" && (len(f.tables) == 0 || s.tx.defined != "" || !s.server.config.Pools.HasRoom(home)) {
		if done, refused := f.insideAt(home, text); done {
			return f.rows, refused
		}
	}
	if s.tx.defined != "" { // another session of the server does not know of it
		return 0, pgerr.New(pgerr.FeatureNotSupported, "this form of a statement over several shards is not supported behind %s in one transaction", s.tx.defined).
			WithDetail("It is finished in another session, which does not see what the transaction has defined.").WithHint("COMMIT first.")
	}
	a, refused := s.asideOn(home, func() (answer, error) { return f.aside(text) })
	switch {
	case refused != nil:
		return f.rows, refused
	case a.failure != nil:
		return f.rows, withoutPlace(a).failure.PGError()
	}
	return f.rows, f.refused
}

// insideAt runs the final statement where the client's own transaction has a backend, if it has one there and no temporary tables are needed, or arrays can take
// their place: who has a backend need not wait for another.
func (f *finishing) insideAt(home int, text string) (done bool, refused *pgerr.Error) {
	s, before := f.s, f.s.backend
	s.visit(home)
	defer s.visitEnds(before)
	if !s.mayAskInside() || s.backend.Shard() != home {
		return false, nil
	}
	if len(f.tables) == 0 {
		return true, f.inside(text)
	}
	if slices.ContainsFunc(f.tables, func(pull int) bool { return f.c.outline.pulls[pull].nested }) {
		return false, nil
	}
	arrays := s.newFinishing(f.c, f.basin, true)
	arrays.to = f.to
	defer arrays.held.release()
	if text, refused = arrays.text(); refused != nil {
		return false, nil
	}
	refused = arrays.inside(text)
	f.rows = arrays.rows
	return true, refused
}

// text is the final statement, with what was pulled in it.
func (f *finishing) text() (string, *pgerr.Error) {
	f.formats, f.values = f.c.values()
	f.oids, f.tables = slices.Clone(f.c.outline.params), nil
	composition := f.c.outline.composition
	in, refused := f.s.places(f.c, composition.Final.HasMoment())
	if refused != nil {
		return "", refused
	}
	relations := make([]string, len(composition.Pulls))
	for i := range composition.Pulls {
		if relations[i], refused = f.relation(i); refused != nil {
			return "", refused
		}
	}
	in.Pull = func(n int) string { return relations[n] }
	return composition.Final.Fill(in), nil
}

// relation is what stands for a pull in the final statement.
func (f *finishing) relation(pull int) (string, *pgerr.Error) {
	p := &f.c.outline.composition.Pulls[pull]
	if p.Own {
		return f.s.answerView(&plan.Virtual{Name: p.Name, FromClause: true, Aliased: true}, false)
	}
	shape, rows := &f.c.outline.pulls[pull], f.basin.spools[pull]
	switch {
	case len(shape.columns) == 0:
		return "(SELECT FROM pg_catalog.generate_series(1, " + strconv.FormatInt(rows.rows, 10) + "))", nil
	case f.unnests && rows.size > f.held.of.Given:
		return "", f.held.of.tooMuch(tooMuchToGive(f.held.of.Given))
	case f.unnests && !f.held.add(rows.size):
		return "", f.held.of.noMemory()
	case !f.unnests && (f.c.copied != "" || shape.nested || rows.size > f.held.of.Arrays || len(p.Indexed) > 0 && rows.rows > fewRows || !f.held.add(rows.size)):
		f.tables = append(f.tables, pull)
		return "(SELECT " + shape.outputs() + " FROM pg_temp." + pulledTable(pull) + " u)", nil
	}
	relation := shape.unnested(len(f.values))
	arrays, refused := f.basin.arrays(pull)
	if refused != nil {
		return "", refused
	}
	for i := range shape.columns {
		f.oids = append(f.oids, shape.columns[i].arrayType())
		f.formats, f.values = append(f.formats, 1), append(f.values, arrays[i])
	}
	return relation, nil
}

func pulledTable(pull int) string { return "cleave_pull_" + strconv.Itoa(pull) }

// outputs are the columns of a pull under their own names, with their own types and collations.
func (p *pullOutline) outputs() string {
	outputs := make([]string, len(p.columns))
	for i := range p.columns {
		c := &p.columns[i]
		outputs[i] = "u." + columnName(i)
		if !c.binary {
			outputs[i] += "::" + c.sql
		}
		if c.collation != "" {
			outputs[i] += " COLLATE " + c.collation
		}
		if name := columnName(i); p.numbered {
			outputs[i] += " AS " + name
		} else {
			outputs[i] += " AS " + sqltext.QuoteIdentifier(c.name)
		}
	}
	return strings.Join(outputs, ", ")
}

// arrayType is the number of the type that all values of a column are sent as.
func (c *pulledColumn) arrayType() uint32 {
	if c.binary {
		return c.array
	}
	return textArray
}

// elementType is the number of the type that one value of a column is sent as.
func (c *pulledColumn) elementType() uint32 {
	const text = 25
	if c.binary {
		return c.oid
	}
	return text
}

// eachRow gives the rows of a pull, each with a field for every column, until no more are wanted.
func (b *basin) eachRow(pull int, do func(fields [][]byte) (more bool)) *pgerr.Error {
	columns, from := len(b.c.outline.pulls[pull].columns), b.spools[pull]
	if refused := from.rewind(); refused != nil {
		return refused
	}
	for {
		row, refused := from.next()
		if refused != nil || row == nil {
			return refused
		}
		fields, ok := splitRow(row, b.fields[:0])
		if b.fields = fields; !ok || len(fields) != columns {
			return badRow
		}
		if !do(fields) {
			return nil
		}
	}
}

// arrays are the columns of a pull, each as one array in binary format.
func (b *basin) arrays(pull int) ([][]byte, *pgerr.Error) {
	columns, from := b.c.outline.pulls[pull].columns, b.spools[pull]
	const header, nullsAt = 20, 4
	arrays := make([][]byte, len(columns))
	for i := range columns {
		head := make([]byte, header)
		binary.BigEndian.PutUint32(head, 1) // dimension
		binary.BigEndian.PutUint32(head[8:], columns[i].elementType())
		binary.BigEndian.PutUint32(head[12:], uint32(from.rows))
		binary.BigEndian.PutUint32(head[16:], 1) // the first is number one
		arrays[i] = head
	}
	refused := b.eachRow(pull, func(fields [][]byte) bool {
		for i, field := range fields {
			if int32(binary.BigEndian.Uint32(field)) < 0 {
				arrays[i][nullsAt+3] = 1
			}
			arrays[i] = append(arrays[i], field...)
		}
		return true
	})
	if refused != nil {
		return nil, refused
	}
	if from.rows == 0 {
		for i := range arrays { // an empty array has no dimensions
			arrays[i] = arrays[i][:12]
			binary.BigEndian.PutUint32(arrays[i], 0)
		}
	}
	return arrays, nil
}

// inside runs the final statement in the client's own transaction.
func (f *finishing) inside(text string) *pgerr.Error {
	a, err := f.stream(f.messages(text))
	s := f.s
	if err != nil {
		if errors.Is(err, errTaken) {
			s.drop("the client is gone")
			s.endWithLeg()
			return stepFailed
		}
		if refused := refusalIn(err); refused != nil && refused.Severity != pgerr.SeverityFatal { // all of the answer was heard
			s.status = a.status
			return refused
		}
		lost := s.dropLost(err)
		s.endWithLeg()
		return lost
	}
	s.status = a.status
	if a.failure != nil {
		return withoutPlace(a).failure.PGError()
	}
	return nil
}

// messages run the final statement.
func (f *finishing) messages(text string) []byte {
	out := wire.AppendParse(nil, "", text, f.s.numbering().declared(f.oids))
	out = wire.AppendBind(out, "", "", f.formats, f.values, f.c.formats)
	out = wire.AppendDescribe(out, 'P', "")
	out = wire.AppendExecute(out, "", 0)
	return wire.AppendSync(out)
}

// aside runs the final statement in a session that is no part of the client's transaction, and leaves nothing there.
func (f *finishing) aside(text string) (answer, error) {
	if len(f.tables) == 0 {
		return f.run(text)
	}
	s := f.s
	if a, err := s.ask("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"); err != nil || a.failure != nil {
		return a, err
	}
	a, err := f.fillTables()
	if err == nil && a.failure == nil {
		a, err = f.run(text)
	}
	if err != nil {
		return a, err
	}
	_, err = s.ask("ROLLBACK")
	return a, err
}

// run runs the final statement, or a COPY of its rows.
func (f *finishing) run(text string) (answer, error) {
	if f.c.copied != "" {
		return f.copyOut(text)
	}
	return f.stream(f.messages(text))
}

// fillTables makes the temporary tables. They are gone with the transaction.
func (f *finishing) fillTables() (answer, error) {
	for _, pull := range f.tables {
		shape := &f.c.outline.pulls[pull]
		columns := make([]string, len(shape.columns))
		for i := range shape.columns {
			columns[i] = columnName(i) + " "
			if shape.columns[i].binary {
				columns[i] += shape.columns[i].sql
			} else {
				columns[i] += "pg_catalog.text"
			}
		}
		table := "pg_temp." + pulledTable(pull)
		a, err := f.s.ask("CREATE TEMPORARY TABLE " + pulledTable(pull) + " (" + strings.Join(columns, ", ") + ")")
		if err != nil || a.failure != nil {
			return a, err
		}
		if a, err = f.load(pull, table); err != nil || a.failure != nil {
			return a, err
		}
		for _, index := range f.indexes(pull) {
			if a, err = f.s.ask(index); err != nil || a.failure != nil {
				return a, err
			}
		}
		if a, err = f.s.ask("ANALYZE " + table); err != nil || a.failure != nil {
			return a, err
		}
	}
	return answer{}, nil
}

// indexes make the indexes of a temporary table, for columns that have the types of their values.
func (f *finishing) indexes(pull int) []string {
	var made []string
	shape := &f.c.outline.pulls[pull]
	for _, name := range f.c.outline.composition.Pulls[pull].Indexed {
		for i := range shape.columns {
			if shape.columns[i].name == name && shape.columns[i].binary {
				made = append(made, "CREATE INDEX ON pg_temp."+pulledTable(pull)+" ("+columnName(i)+")")
			}
		}
	}
	return made
}

// copyHeader begins the data of a COPY in binary format, without flags, and copyTrailer ends it.
var (
	copyHeader  = append(slices.Clone(copySignature), 0, 0, 0, 0, 0, 0, 0, 0)
	copyTrailer = []byte{0xff, 0xff}
)

// load copies what was pulled into its table: rows of an answer in binary format are just like those of COPY.
func (f *finishing) load(pull int, table string) (answer, error) {
	conn := f.s.backend.Conn()
	f.s.state.unnamed = nil
	f.s.beginWait(time.Now())
	out := wire.AppendQuery(nil, "COPY "+table+" FROM STDIN (FORMAT binary)")
	out = wire.AppendCopyData(out, copyHeader)
	from := f.basin.spools[pull]
	if refused := from.rewind(); refused != nil {
		return answer{}, refused
	}
	for {
		row, refused := from.next()
		if refused != nil {
			return answer{}, refused
		}
		if row == nil {
			break
		}
		out = wire.AppendCopyData(out, row)
		if len(out) > 4*relayBuffer {
			if _, err := conn.Write(out); err != nil {
				return answer{}, fmt.Errorf("write to shard %q: %w", f.s.backend.ShardName(), err)
			}
			out = out[:0]
		}
	}
	out = wire.AppendCopyData(out, copyTrailer)
	out = wire.AppendCopyDone(out)
	if _, err := conn.Write(out); err != nil {
		return answer{}, fmt.Errorf("write to shard %q: %w", f.s.backend.ShardName(), err)
	}
	return f.s.hear(0)
}

// errTaken says that who takes the rows wants no more: the client is gone, or there is no room.
var errTaken = errors.New("nobody takes the rows")

// stream runs what the messages ask for and passes on the rows of the answer.
func (f *finishing) stream(messages []byte) (answer, error) {
	s := f.s
	s.state.unnamed = nil
	s.beginWait(time.Now())
	s.sentAt = time.Now()
	if _, err := s.backend.Conn().Write(messages); err != nil {
		return answer{}, fmt.Errorf("write to shard %q: %w", s.backend.ShardName(), err)
	}
	var a answer
	var refused *pgerr.Error
	begun := false
	r := &messageReader{backend: s.backend, buffer: make([]byte, 2*relayBuffer)}
	for {
		kind, message, err := r.next()
		if err != nil {
			return answer{}, err
		}
		switch kind {
		case wire.RespRowDescription, wire.RespNoData:
			if refused = f.sameTypes(kind, message); refused == nil {
				f.to.begin()
				begun = true
			}
		case wire.RespDataRow:
			if refused == nil && begun {
				f.rows++
				refused = f.to.take(wire.Body(message))
			}
		case wire.RespReadyForQuery:
			if a.status, err = wire.DecodeReadyForQuery(wire.Body(message)); err != nil {
				return a, err
			}
			if refused == stepFailed {
				return a, errTaken
			}
			if refused != nil {
				return a, refused
			}
			return a, s.hearRest(&a, r)
		default:
			if err := s.note(&a, kind, message); err != nil {
				return answer{}, err
			}
		}
	}
}

// sameTypes makes sure that the answer is of the types that the client was told. A row of a table that was pulled is one without a name.
func (f *finishing) sameTypes(kind byte, message []byte) *pgerr.Error {
	if kind == wire.RespNoData {
		return nil
	}
	if n := f.s.numbering(); n != nil {
		n.describeColumns(message)
	}
	columns, err := wire.DecodeRowDescription(wire.Body(message))
	if err != nil {
		return asError(err)
	}
	same := columns.Count() == f.c.outline.count
	if same {
		i := 0
		for _, c := range columns.Columns() {
			told := f.c.outline.types[i]
			same = same && (c.TypeOID == told || c.TypeOID == recordOID && told >= firstUserOID)
			i++
		}
	}
	if !same {
		return pgerr.New(pgerr.FeatureNotSupported, "the statement cannot be answered over several shards").
			WithDetail("Finished over what was pulled from the shards, its columns are of other types.").WithHint("Cast the columns to their types.")
	}
	return nil
}
