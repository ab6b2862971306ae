package session

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cleavedb/cleave/internal/compose"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/wire"
)

// outline is what a server says of a statement that is answered in steps: what it takes and gives, and what its pulls give. It is asked once
// for a plan, and for what the client declares of the parameters. So what is wrong with the statement is told by PostgreSQL, which sees it
// as the client wrote it.
type outline struct {
	// composition is the one that it is of.
	composition *compose.Composition
	declared    []uint32
	params      []uint32
	// description is that of the rows, by the home shard's numbers, planned what it is once the statement is planned: expressions may have been computed
	// by then, which tells more of their types. count is how many columns there are.
	description []byte
	planned     []byte
	types       []uint32
	count       int
	// columns are the types of the columns of the table that is written, as SQL writes them.
	columns []string
	// cannotMove is why rows of the table that is written cannot be deleted and inserted elsewhere as if they were updated; empty if they can.
	cannotMove string
	// target are the columns of a table of which all copies are written to: primary are those of its primary key, generated those that nobody may set.
	target             pullOutline
	primary, generated []string
	estimates          estimates
	// plainOrder: the database's own collation is the order of bytes.
	plainOrder bool
	pulls      []pullOutline
}

// pullOutline is what a pull gives.
type pullOutline struct {
	columns []pulledColumn
	// numbered, hidden and collated are as in the pull.
	numbered bool
	hidden   int
	collated []int
	writes   bool
	// unsure: nobody can tell the collation of a column.
	unsure bool
	// nested: a column is an array, so the rows cannot be handed on as arrays of columns.
	nested bool
}

// pulledColumn is one column of a pull.
type pulledColumn struct {
	name string
	// sql is its type as SQL writes it, oid the number of that.
	sql string
	oid uint32
	// array is the number of the type of arrays of it, if its values are sent in binary format; else they are sent as texts, and read again where the
	// statement is finished: numbers of users' types differ from shard to shard.
	array   uint32
	binary  bool
	isArray bool
	// styled: as a text it may be written in one way or another, by settings.
	styled bool
	// collation is its own, as SQL writes it; empty if it has none, or the database's, in which case it is collated.
	collation string
	collated  bool
}

// outlines are those of one plan.
type outlines struct {
	mu    sync.Mutex
	known []*outline
}

func (k *outlines) find(declared []uint32) *outline {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, known := range k.known {
		if slices.Equal(known.declared, declared) {
			return known
		}
	}
	return nil
}

func (k *outlines) keep(made *outline) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.known) < maxResolved {
		k.known = append(k.known, made)
	}
}

// outlineFor is the shape of a statement wherever it comes from.
func (s *session) outlineFor(st *plan.Statement, src source) (*outline, *pgerr.Error) {
	if src.statement != nil {
		return s.outlineOf(src.statement, st)
	}
	return s.outline(st, src, src.planned, nil)
}

// outlineOf is the shape of a prepared statement.
func (s *session) outlineOf(prepared *statement, st *plan.Statement) (*outline, *pgerr.Error) {
	return s.outline(st, source{statement: prepared}, prepared.planned, prepared.oids)
}

func (s *session) outline(st *plan.Statement, src source, p *planned, declared []uint32) (*outline, *pgerr.Error) {
	if len(st.Unfolds) > 0 {
		if refused := s.readsViewsAsMade(); refused != nil {
			return nil, refused
		}
	}
	keeps := p != nil && s.tx.defined == "" && !st.Temporary
	if keeps {
		if known := p.outlines.find(declared); known != nil {
			return known, nil
		}
	}
	made, refused := s.askOutline(st, st.Composition, src, declared)
	if refused == nil && made.isUnlike() {
		made, refused = s.askOutline(st, st.Composition.Else, src, declared)
	}
	if refused != nil {
		return nil, refused
	}
	if keeps {
		p.outlines.keep(made)
	}
	return made, nil
}

// askOutline asks the home shard. Literals are as the client wrote them; the current time is any.
func (s *session) askOutline(st *plan.Statement, composition *compose.Composition, src source, declared []uint32) (*outline, *pgerr.Error) {
	scan, text, refused := src.literals(s.standardConforming())
	if refused != nil {
		return nil, refused
	}
	whole := string(text)
	if len(st.Virtual) > 0 {
		edits, refused := s.answerVirtual(st, src, true)
		if refused != nil {
			return nil, refused
		}
		whole = string(applyEdits(text, edits))
	}
	made := &outline{composition: composition, declared: slices.Clone(declared), pulls: make([]pullOutline, len(composition.Pulls))}
	in := made.places(scan, text)
	in.Moment = "'2000-01-01 00:00:00+00'"
	pulled := make([]string, len(composition.Pulls)) // where the router's own views are in the way
	for i := range composition.Pulls {
		if len(st.Virtual) > 0 && composition.Pulls[i].Any {
			if pulled[i], refused = s.withOwnViews(composition.Pulls[i].SQL.Fill(in)); refused != nil {
				return nil, refused
			}
		}
	}
	a, refused := s.askShard(s.home(), func() (answer, error) {
		a, err := s.askTypes(whole, declared)
		if err != nil || a.failure != nil {
			return a, err
		}
		if err := made.take(&a); err != nil {
			return a, err
		}
		if len(made.params) == 0 {
			if a, err = s.askPortal(whole); err != nil || a.failure != nil {
				return a, err
			}
			made.planned = a.described
		}
		for _, view := range st.Unfolds { // no step names them
			if a, err = s.askPortal("SELECT FROM " + view.Quoted()); err != nil || a.failure != nil {
				return withoutPlace(a), err
			}
		}
		if composition.Kind != compose.Reads {
			if a, err = s.askColumnTypes(st, made); err != nil || a.failure != nil {
				return a, err
			}
		}
		if composition.Moves {
			if a, err = s.askMoving(st, made); err != nil || a.failure != nil {
				return a, err
			}
		}
		if composition.Kind == compose.Copied {
			if a, err = s.askCopied(st, made); err != nil || a.failure != nil {
				return a, err
			}
		}
		for i := range composition.Pulls {
			if composition.Pulls[i].Own {
				continue
			}
			made.pulls[i].numbered, made.pulls[i].hidden, made.pulls[i].collated = composition.Pulls[i].Numbered, composition.Pulls[i].Hidden, composition.Pulls[i].Collated
			sql := composition.Pulls[i].SQL.Fill(in)
			if pulled[i] != "" {
				sql = pulled[i]
			}
			made.pulls[i].writes = composition.Pulls[i].Writes
			if a, err := s.askPull(sql, made, &made.pulls[i]); err != nil || a.failure != nil {
				return withoutPlace(a), err
			}
			if composition.Kind != compose.Reads {
				made.pulls[i].unnest()
			}
		}
		return answer{}, nil
	})
	switch {
	case refused != nil:
		return nil, refused
	case a.failure != nil:
		return nil, a.failure.PGError()
	}
	return made, s.mayReadUnfolded(st, whole, made)
}

// withOwnViews is a query as a server can describe it, with the router's own views in it.
func (s *session) withOwnViews(sql string) (string, *pgerr.Error) {
	query := &statement{text: sql}
	if refused := s.planAside(query); refused != nil {
		return "", refused
	}
	only := query.single()
	if only == nil {
		return sql, nil
	}
	return s.describedText(only, source{statement: query})
}

// mayReadUnfolded refuses a statement whose role has no right to columns of views that no step names. A server looks at rights when it is given parameters, so it gets
// some that are unknown. If it cannot plan with these, the role needs the right to all columns.
func (s *session) mayReadUnfolded(st *plan.Statement, whole string, of *outline) *pgerr.Error {
	if len(st.Unfolds) == 0 || len(of.params) == 0 {
		return nil
	}
	a, refused := s.askShard(s.home(), func() (answer, error) { return s.askPortal(whole, of.params...) })
	switch {
	case refused != nil || a.failure == nil:
		return refused
	case a.failure.Code == pgerr.InsufficientPrivilege:
		return a.failure.PGError()
	}
	for _, view := range st.Unfolds {
		a, refused := s.askShard(s.home(), func() (answer, error) { return s.askPortal("SELECT * FROM " + view.Quoted()) })
		switch {
		case refused != nil:
			return refused
		case a.failure != nil:
			return withoutPlace(a).failure.PGError()
		}
	}
	return nil
}

// places are what stands in the open places of its composition's texts, but for the moment and what was pulled.
func (m *outline) places(scan *sqltext.Normalized, text []byte) compose.Places {
	return compose.Places{
		Literal: func(n int) string { return string(text[scan.Literals[n].Start:scan.Literals[n].End]) },
		Visible: func(pull int) string { return m.pulls[pull].visible() },
		Type:    func(pull, column int) string { return m.pulls[pull].columns[column].sql },
		Target: func(column int) string {
			if column < 0 || column >= len(m.columns) {
				return "pg_catalog.text"
			}
			return m.columns[column]
		},
	}
}

// visible are the columns of a pull that are shown, under the names that they have for the client.
func (p *pullOutline) visible() string {
	var columns []string
	for i := p.hidden; i < len(p.columns); i++ {
		collation := ""
		if slices.Contains(p.collated, i) && p.columns[i].collated {
			collation = " COLLATE " + p.columns[i].collationName()
		}
		columns = append(columns, "p."+columnName(i)+collation+" AS "+sqltext.QuoteIdentifier(p.columns[i].name))
	}
	return strings.Join(columns, ", ")
}

func columnName(column int) string { return "c" + strconv.Itoa(column) }

// runsFirst says whether some of its pulls are statements of their own, which are run before the others.
func (m *outline) runsFirst() bool {
	return slices.ContainsFunc(m.composition.Pulls, func(p compose.Pull) bool { return p.Any })
}

// isUnlike says whether a column is of a type with which the composition would not be right.
func (m *outline) isUnlike() bool {
	return slices.ContainsFunc(m.composition.Unlike, func(u compose.Unlike) bool {
		return slices.Contains(u.Types, m.pulls[u.Pull].columns[u.Column].oid)
	})
}

// withoutPlace takes the place out of an error that is not one in the client's text.
func withoutPlace(a answer) answer {
	if a.failure != nil {
		a.failure.Position = 0
	}
	return a
}

// take notes what the statement itself takes and gives.
func (m *outline) take(a *answer) error {
	if m.params = a.params; m.params == nil {
		m.params = []uint32{}
	}
	if a.described == nil {
		return nil
	}
	columns, err := wire.DecodeRowDescription(wire.Body(a.described))
	if err != nil {
		return err
	}
	m.description, m.count, m.types = a.described, columns.Count(), a.types
	return nil
}

// askMoving asks whether deleting a row of a table does more than inserting it again can mend.
func (s *session) askMoving(st *plan.Statement, made *outline) (answer, error) {
	const sql = `SELECT CASE WHEN c.relrowsecurity THEN 'row security, whose policies for UPDATE are others'
		ELSE (SELECT 'foreign key ' OPERATOR(pg_catalog.||) k.conname OPERATOR(pg_catalog.||) ' of ' OPERATOR(pg_catalog.||) k.conrelid::pg_catalog.regclass::pg_catalog.text OPERATOR(pg_catalog.||) ', which does something when a row is deleted or gets another key'
			FROM pg_catalog.pg_constraint k WHERE k.contype OPERATOR(pg_catalog.=) 'f' AND k.confrelid OPERATOR(pg_catalog.=) c.oid
			AND (k.confdeltype OPERATOR(pg_catalog.=) ANY ('{c,n,d}'::"char"[]) OR k.confupdtype OPERATOR(pg_catalog.<>) 'a') LIMIT 1) END
		FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) $1::pg_catalog.regclass`
	a, err := s.askParams(sql, nil, nil, [][]byte{[]byte(st.Target.Quoted())})
	if err == nil && len(a.rows) == 1 {
		made.cannotMove = a.rows[0][0]
	}
	return a, err
}

// askCopied asks for what has to be known of a table to write the same rows to all its copies.
func (s *session) askCopied(st *plan.Statement, made *outline) (answer, error) {
	const keysSQL = `SELECT a.attname, a.attgenerated OPERATOR(pg_catalog.<>) '' FROM pg_catalog.pg_attribute a
		LEFT JOIN pg_catalog.pg_index x ON x.indrelid OPERATOR(pg_catalog.=) a.attrelid AND x.indisprimary
		WHERE a.attrelid OPERATOR(pg_catalog.=) $1::pg_catalog.regclass AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped
		AND (a.attgenerated OPERATOR(pg_catalog.<>) '' OR a.attnum OPERATOR(pg_catalog.=) ANY (x.indkey::pg_catalog.int2[]))`
	a, err := s.askPull("SELECT * FROM "+st.Target.Quoted(), &outline{params: []uint32{}}, &made.target)
	if err != nil || a.failure != nil {
		return a, err
	}
	made.target.unnest()
	if a, err = s.askParams(keysSQL, nil, nil, [][]byte{[]byte(st.Target.Quoted())}); err != nil || a.failure != nil {
		return a, err
	}
	for _, row := range a.rows {
		if row[1] == "t" {
			made.generated = append(made.generated, row[0])
		} else {
			made.primary = append(made.primary, row[0])
		}
	}
	return a, nil
}

// unnest has arrays sent as texts: there are no temporary tables where a transaction may have to be prepared.
func (p *pullOutline) unnest() {
	for i := range p.columns {
		p.columns[i].binary = p.columns[i].binary && !p.columns[i].isArray
	}
	p.nested = false
}

// askColumnTypes asks for the types of the columns of the table that is written, without modifiers: what is assigned to them is cut to these later.
func (s *session) askColumnTypes(st *plan.Statement, made *outline) (answer, error) {
	const sql = `SELECT pg_catalog.format_type(CASE WHEN t.typtype OPERATOR(pg_catalog.=) 'd' THEN t.typbasetype ELSE t.oid END, -1)
		FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) a.atttypid
		WHERE a.attrelid OPERATOR(pg_catalog.=) $1::pg_catalog.regclass AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped ORDER BY a.attnum`
	a, err := s.askParams(sql, nil, nil, [][]byte{[]byte(st.Target.Quoted())})
	if err != nil || a.failure != nil {
		return a, err
	}
	for _, row := range a.rows {
		made.columns = append(made.columns, row[0])
	}
	return a, nil
}

// askPortal lets the server plan a statement, and say which columns it has then. Its parameters, whose types are given, are unknown.
func (s *session) askPortal(text string, unknown ...uint32) (answer, error) {
	out := wire.AppendParse(nil, "", text, s.numbering().declared(unknown))
	out = wire.AppendBind(out, "", "", nil, make([][]byte, len(unknown)), nil)
	out = wire.AppendDescribe(out, 'P', "")
	return s.exchange(wire.AppendSync(out))
}

// typesSQL says of types, by their numbers and modifiers, what is needed to hand values of them on.
const typesSQL = `SELECT pg_catalog.format_type(x.o, x.m), t.typarray, t.typcategory OPERATOR(pg_catalog.=) 'A',
		t.typtype OPERATOR(pg_catalog.=) ANY ('{b,r,m}'::"char"[]) AND t.typsend OPERATOR(pg_catalog.<>) 0 AND t.typreceive OPERATOR(pg_catalog.<>) 0
			AND t.typinput OPERATOR(pg_catalog.<>) ALL ('{regprocin,regprocedurein,regoperin,regoperatorin,regclassin,regtypein,regrolein,regnamespacein,regconfigin,regdictionaryin,regcollationin}'::pg_catalog.regproc[]),
		t.typcollation OPERATOR(pg_catalog.<>) 0, t.typtype OPERATOR(pg_catalog.<>) 'e'
	FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.oid[]), pg_catalog.unnest($2::pg_catalog.int4[])) WITH ORDINALITY AS x(o, m, i)
	JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) x.o ORDER BY x.i`

// plainArrays are PostgreSQL's own types of arrays whose texts are the same under all settings: of bool, bytea, integers, texts, numeric, uuid, JSON, addresses.
var plainArrays = []uint32{1000, 1001, 1002, 1003, 1005, 1007, 1016, 1009, 1014, 1015, 1028, 1231, 2951, 199, 3807, 1041, 651}

// askPull asks what a pull gives.
func (s *session) askPull(sql string, of *outline, made *pullOutline) (answer, error) {
	a, err := s.askTypes(sql, of.params)
	if err != nil || a.failure != nil || a.described == nil {
		return a, err
	}
	columns, err := wire.DecodeRowDescription(wire.Body(a.described))
	if err != nil {
		return a, err
	}
	var oids, mods []string
	var tables, attributes []string
	for _, c := range columns.Columns() {
		tables, attributes = append(tables, strconv.FormatUint(uint64(c.TableOID), 10)), append(attributes, strconv.Itoa(int(c.Attribute)))
		made.columns = append(made.columns, pulledColumn{name: string(c.Name), oid: c.TypeOID})
		oids, mods = append(oids, strconv.FormatUint(uint64(c.TypeOID), 10)), append(mods, strconv.Itoa(int(c.TypeModifier)))
	}
	if len(oids) == 0 {
		return answer{}, nil
	}
	array := func(of []string) []byte { return []byte("{" + strings.Join(of, ",") + "}") }
	if a, err = s.askParams(typesSQL, nil, nil, [][]byte{array(oids), array(mods)}); err != nil || a.failure != nil {
		return a, err
	}
	if len(a.rows) != len(made.columns) {
		return a, fmt.Errorf("shard %q knows %d of %d types", s.backend.ShardName(), len(a.rows), len(made.columns))
	}
	var collated []int
	for i, row := range a.rows {
		c := &made.columns[i]
		c.sql, c.binary = row[0], row[3] == "t" && c.oid < firstUserOID
		c.isArray, c.styled = row[2] == "t", row[5] == "t" && !slices.Contains(plainArrays, c.oid)
		made.nested = made.nested || c.binary && c.isArray
		if number, err := strconv.ParseUint(row[1], 10, 32); err == nil {
			c.array = uint32(number)
		}
		if row[4] == "t" {
			collated = append(collated, i)
		}
	}
	if made.writes {
		return s.askColumnCollations(made, collated, tables, attributes)
	}
	return s.askCollations(sql, of, made, collated)
}

// askColumnCollations asks for the collations of columns by those of the tables that they are taken from: a statement that writes must not be run
// for that.
func (s *session) askColumnCollations(made *pullOutline, collated []int, tables, attributes []string) (answer, error) {
	const sql = `SELECT coalesce((SELECT a.attcollation::pg_catalog.regcollation::pg_catalog.text FROM pg_catalog.pg_attribute a
			WHERE a.attrelid OPERATOR(pg_catalog.=) x.r AND a.attnum OPERATOR(pg_catalog.=) x.n), '"default"')
		FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.oid[]), pg_catalog.unnest($2::pg_catalog.int2[])) WITH ORDINALITY AS x(r, n, i) ORDER BY x.i`
	array := func(of []string) []byte { return []byte("{" + strings.Join(of, ",") + "}") }
	a, err := s.askParams(sql, nil, nil, [][]byte{array(tables), array(attributes)})
	if err != nil || a.failure != nil {
		return a, err
	}
	for _, column := range collated {
		if column >= len(a.rows) {
			return a, fmt.Errorf("shard %q did not tell the collations", s.backend.ShardName())
		}
		c := &made.columns[column]
		c.collated = true
		made.unsure = made.unsure || tables[column] == "0"
		if collation := a.rows[column][0]; collation != defaultCollation {
			c.collation = collation
		}
	}
	return a, nil
}

// askCollations asks for the collations of columns.
func (s *session) askCollations(sql string, of *outline, made *pullOutline, columns []int) (answer, error) {
	if len(columns) == 0 {
		return answer{}, nil
	}
	names := make([]string, len(made.columns))
	for i := range names {
		names[i] = columnName(i)
	}
	asked := make([]string, len(columns))
	for i, column := range columns {
		asked[i] = "pg_catalog.pg_collation_for((SELECT q." + names[column] + " FROM (" + sql + ") AS q(" + strings.Join(names, ", ") + ") LIMIT 0))"
	}
	a, err := s.askParams("SELECT "+strings.Join(asked, ", "), of.params, nil, make([][]byte, len(of.params)))
	if err != nil || a.failure != nil {
		return a, err
	}
	if len(a.rows) != 1 || len(a.rows[0]) != len(columns) {
		return a, fmt.Errorf("shard %q did not tell the collations", s.backend.ShardName())
	}
	for i, column := range columns {
		made.columns[column].collated = true
		if collation := a.rows[0][i]; collation != defaultCollation {
			made.columns[column].collation = collation
		}
	}
	if a, err = s.ask(plainOrderSQL); err == nil && len(a.rows) == 1 {
		of.plainOrder = a.rows[0][0] == "t"
	}
	return a, err
}

// defaultCollation is what PostgreSQL calls the database's own.
const defaultCollation = `"default"`

// plainOrderSQL asks whether the database's own collation is the order of bytes.
const plainOrderSQL = `SELECT d.datlocprovider OPERATOR(pg_catalog.=) 'c' AND d.datcollate OPERATOR(pg_catalog.=) ANY ('{C,POSIX}'::pg_catalog.text[]) FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()`
