package session

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// A materialised view over several shards is one of the home shard's, whose query is
//
//	SELECT q.* FROM (the client's query) AS q WHERE false UNION ALL SELECT * FROM cleave.staged_rows() AS t(c0 type, …)
//
// The first half is never run: with it PostgreSQL knows what the view depends on, keeps up with renamed tables and columns, and can tell the query again. The
// second half gives the rows that the router has put into a temporary table of the session, and fails if there is none, as for who refreshes the view past
// the routers.
//
// To refresh it is one transaction: the query is run wherever it has to run, its rows go into the temporary table, the home shard refreshes the view, and the table is
// dropped. What PostgreSQL has to say about it (rights, CONCURRENTLY without an index …) it says there. A router that dies half way leaves nothing.

// stagedTable is the temporary table that cleave.staged_rows() reads.
const stagedTable = "pg_temp.cleave_staged_rows"

// makeView makes a materialised view, with the rows that the query has given.
func (m *making) makeView(s *session, q *madeQuery, schema string) (tag string, refused *pgerr.Error) {
	if len(q.shape.columns) == 0 {
		return "", pgerr.New(pgerr.FeatureNotSupported, "a materialized view without columns is not supported over several shards"). //nolint:misspell // PostgreSQL's word
																		WithDetail("Its rows are handed on by their columns.").WithHint("Select at least one column.")
	}
	view := schema + "." + sqltext.QuoteIdentifier(m.st.Makes.Name.Name)
	columns, refused := m.rehearse(s, q, view)
	if refused != nil {
		return "", refused
	}
	text := m.st.Makes.Head + " SELECT q.* FROM (" + q.statement.text + "\n) AS q WHERE false UNION ALL SELECT * FROM cleave.staged_rows() AS t(" + strings.Join(columns, ", ") + ")" + withNoData
	if tag, refused = s.runHome(m.atHome(), &statement{text: text}, bindTail(nil, nil, nil)); refused != nil || m.st.Makes.NoData {
		return tag, refused
	}
	if _, refused := s.refreshWith(view, "REFRESH MATERIALIZED VIEW "+view, q); refused != nil { //nolint:misspell // it is SQL
		return "", refused
	}
	return fmt.Sprintf("SELECT %d", q.rows.rows), nil
}

// rehearse has the home shard run the client's own statement, without rows, and undoes it: so PostgreSQL says what is wrong with it, and what columns the view has.
// These are returned as SQL writes columns of a function's rows.
func (m *making) rehearse(s *session, q *madeQuery, view string) (columns []string, refused *pgerr.Error) {
	const sql = `SELECT pg_catalog.format_type(a.atttypid, a.atttypmod), CASE WHEN a.attcollation OPERATOR(pg_catalog.<>) t.typcollation THEN a.attcollation::pg_catalog.regcollation::pg_catalog.text END
		FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) a.atttypid
		WHERE a.attrelid OPERATOR(pg_catalog.=) $1::pg_catalog.regclass AND a.attnum OPERATOR(pg_catalog.>) 0 ORDER BY a.attnum`
	a, refused := s.askShard(s.home(), func() (answer, error) {
		if a, err := s.ask(m.st.Makes.Head + " " + q.statement.text + withNoData); err != nil || a.failure != nil {
			return a, err
		}
		return s.askParams(sql, nil, nil, [][]byte{[]byte(view)})
	})
	switch {
	case refused != nil:
		return nil, refused
	case a.failure != nil:
		return nil, withoutPlace(a).failure.PGError()
	}
	for i, row := range a.rows {
		columns = append(columns, columnName(i)+" "+row[0])
		if row[1] != "" {
			columns[i] += " COLLATE " + row[1]
		}
	}
	return columns, nil
}

// refreshWith refreshes a view with rows that were brought together.
func (s *session) refreshWith(view, refresh string, q *madeQuery) (tag string, refused *pgerr.Error) {
	run := func(sql string) (tag string, refused *pgerr.Error) {
		return s.runHome(&plan.Statement{Name: "REFRESH"}, &statement{text: sql}, bindTail(nil, nil, nil))
	}
	if _, refused = run("CREATE TEMPORARY TABLE " + strings.TrimPrefix(stagedTable, "pg_temp.") + " ON COMMIT DROP AS SELECT * FROM " + view + withNoData); refused != nil {
		return "", refused
	}
	if refused = s.store(stagedTable, q); refused != nil {
		return "", refused
	}
	if tag, refused = run(refresh); refused != nil {
		return "", refused
	}
	_, refused = run("DROP TABLE " + stagedTable)
	return tag, refused
}

// refresh runs REFRESH.
func (m *making) refresh(s *session) (tag string, refused *pgerr.Error) {
	v, refused := s.viewAtHome(m.st.Makes.Name)
	if refused != nil {
		return "", refused
	}
	text := string(s.withoutEnds(m.src.wholeText()))
	switch {
	case m.st.Makes.NoData || v.definition == "": // it reads nothing, or PostgreSQL says that it is not there
	case !v.isStaged:
		if refused := s.mayRefreshAtHome(m.st.Makes.Name, v.definition); refused != nil {
			return "", refused
		}
	case !v.isOwner: // PostgreSQL says what is to be said
	case !v.isSelf:
		return "", pgerr.New(pgerr.FeatureNotSupported, "%s of a view over several shards is supported for its owner only", m.st.Name).
			WithDetail("Its query has to be run with the rights of %s.", v.owner).WithHint("SET ROLE %s", v.owner)
	default:
		return m.refreshStaged(s, v, text)
	}
	return s.runHome(m.atHome(), &statement{text: text}, bindTail(nil, nil, nil))
}

// refreshStaged brings the rows together. Who refreshes the same view meanwhile waits, or would put older rows in the place of newer ones.
func (m *making) refreshStaged(s *session, v *viewAtHome, text string) (tag string, refused *pgerr.Error) {
	exactly, nulls, refused := s.writesExactly()
	switch {
	case refused != nil:
		return "", refused
	case !exactly || !nulls:
		return "", pgerr.New(pgerr.FeatureNotSupported, "%s of a view over several shards is not supported under these settings", m.st.Name).
			WithDetail("Its query is handed on as a text, and DateStyle, IntervalStyle, extra_float_digits or array_nulls may change constants in it.").
			WithHint("%s; SET array_nulls = on", exactSettings)
	}
	if refused := s.readsViewsAsMade(); refused != nil {
		return "", refused
	}
	lock := "SELECT pg_catalog.pg_advisory_xact_lock(" + strconv.FormatInt(refreshLocks+int64(v.oid), 10) + ")"
	if _, refused := s.runHome(&plan.Statement{Name: "SELECT"}, &statement{text: lock}, bindTail(nil, nil, nil)); refused != nil {
		return "", refused
	}
	q := &madeQuery{rows: spool{of: &s.server.allowance}, statement: &statement{text: inParentheses([]byte(v.definition), s.standardConforming()), oids: []uint32{}}}
	defer q.rows.close()
	if refused := s.shapeOf(q); refused != nil {
		return "", refused
	}
	if refused := s.keepRows(q); refused != nil {
		return "", refused
	}
	if tag, refused = s.refreshWith(m.st.Makes.Name.Quoted(), text, q); refused == nil {
		s.tx.locked = true
	}
	return tag, refused
}

// refreshLocks plus the number of a view is the advisory lock of who refreshes it. It is a number like any other, chosen once.
const refreshLocks = 0x636c7672 << 32 // "clvr"

// mayRefreshAtHome says whether the home shard has all that a view is made of: it may have been made before its tables were declared.
func (s *session) mayRefreshAtHome(name plan.RelationName, definition string) *pgerr.Error {
	query := &statement{text: strings.TrimSuffix(definition, ";")}
	if refused := s.planAside(query); refused != nil {
		return refused
	}
	only, home := query.single(), s.currentMap().Home()
	switch {
	case only == nil:
		return pgerr.New(pgerr.InternalError, "the query of %s could not be planned", name.Quoted())
	case only.Refusal != nil:
		return only.Refusal
	case only.Route.Level == plan.Home, only.Route.Level == plan.Anywhere, only.Route.Level == plan.OnShard && home != nil && only.Route.Shard == home.Name():
		return nil
	}
	return pgerr.New(pgerr.FeatureNotSupported, "materialized view %s cannot be refreshed", name.Quoted()). //nolint:misspell // PostgreSQL's word
														WithDetail("It was made when all that it reads was on one shard, and now it is on several: %s.", only.Route.Why).WithHint("DROP it, and CREATE it again.")
}

// viewAtHome is what the home shard says of a materialised view.
type viewAtHome struct {
	oid uint32
	// definition is its query, as the session reads names.
	definition, owner         string
	isOwner, isSelf, isStaged bool
}

// viewAtHome asks for a view.
func (s *session) viewAtHome(name plan.RelationName) (*viewAtHome, *pgerr.Error) {
	const sql = `SELECT c.oid, pg_catalog.pg_get_viewdef(c.oid), pg_catalog.quote_ident(r.rolname), pg_catalog.pg_has_role(c.relowner, 'USAGE'), r.rolname OPERATOR(pg_catalog.=) CURRENT_USER,
			EXISTS (SELECT FROM pg_catalog.pg_rewrite w JOIN pg_catalog.pg_depend d ON d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND d.objid OPERATOR(pg_catalog.=) w.oid
				JOIN pg_catalog.pg_proc f ON d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.refobjid OPERATOR(pg_catalog.=) f.oid
				JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) f.pronamespace
				WHERE w.ev_class OPERATOR(pg_catalog.=) c.oid AND n.nspname OPERATOR(pg_catalog.=) 'cleave' AND f.proname OPERATOR(pg_catalog.=) 'staged_rows')
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) c.relowner
		WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)`
	a, refused := s.askShard(s.home(), func() (answer, error) {
		return s.askParams(sql, []uint32{textOID}, nil, [][]byte{[]byte(name.Quoted())})
	})
	switch {
	case refused != nil:
		return nil, refused
	case a.failure != nil:
		return nil, a.failure.PGError()
	case len(a.rows) != 1: // it is gone, and PostgreSQL says so
		return &viewAtHome{}, nil
	}
	row := a.rows[0]
	v := &viewAtHome{definition: row[1], owner: row[2], isOwner: row[3] == "t", isSelf: row[4] == "t", isStaged: row[5] == "t"}
	oid, err := strconv.ParseUint(row[0], 10, 32)
	if err != nil {
		return nil, pgerr.New(pgerr.InternalError, "a view's number %q cannot be read", row[0])
	}
	v.oid = uint32(oid)
	return v, nil
}
