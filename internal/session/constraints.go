package session

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/internal/wire"
)

// namesConstraints says whether a statement sets when constraints are checked that it names. Where they are is the router's to find out.
func namesConstraints(st *plan.Statement) bool {
	return st.Command == plan.SetConstraints && len(st.Transaction.Constraints) > 0
}

// setConstraints tells all shards of a transaction at once when they have to check constraints: what is found wrong now is an error now. Shards that
// come later are told when they come.
func (s *session) setConstraints(st *plan.Statement) *pgerr.Error {
	if s.currentStatus() == statusFailed {
		return inFailedTransaction
	}
	s.startBlock()
	if s.tx.implicit && !s.inText {
		s.addLocal(wire.AppendNotice(nil, "WARNING", pgerr.New(pgerr.NoActiveTransaction, "SET CONSTRAINTS can only be used in transaction blocks")))
	}
	said := constraintsLine(st)
	if namesConstraints(st) {
		var refused *pgerr.Error
		if said.constraints, refused = s.placeConstraints(st); refused != nil {
			return refused
		}
	}
	if refused := s.tellAll(func(l *leg) string { return said.on(l.backend.Shard()) }); refused != nil {
		return refused
	}
	s.tx.script.add(said)
	return nil
}

// constraintsLine says when constraints are checked in the rest of the transaction.
func constraintsLine(st *plan.Statement) line {
	when := "IMMEDIATE"
	if st.Transaction.Deferred {
		when = "DEFERRED"
	}
	return line{sql: "SET CONSTRAINTS ALL " + when, when: when}
}

// placedConstraint is a constraint, as SQL writes its name, and the shard that has its table, unless all have it.
type placedConstraint struct {
	name       string
	shard      int
	everywhere bool
}

// on is what the line says to a shard; empty if nothing.
func (l *line) on(shard int) string {
	if l.constraints == nil {
		return l.sql
	}
	var names []string
	for _, c := range l.constraints {
		if c.everywhere || c.shard == shard {
			names = append(names, c.name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "SET CONSTRAINTS " + strings.Join(names, ", ") + " " + l.when
}

// foundConstraint is one of those that a name may mean.
type foundConstraint struct {
	placedConstraint
	schema     string
	deferrable bool
	// kept: by a table, so that there is something to be set.
	kept bool
}

// placeConstraints finds out which constraints a statement names, as PostgreSQL would if all tables were on one server, and where they are.
func (s *session) placeConstraints(st *plan.Statement) ([]placedConstraint, *pgerr.Error) {
	if refused := s.reachTemporary(st); refused != nil {
		return nil, refused
	}
	names := st.Transaction.Constraints
	found := make([][]foundConstraint, len(names))
	for _, shard := range s.constrainedShards() {
		if refused := s.findConstraints(shard, names, found); refused != nil {
			return nil, refused
		}
	}
	placed := []placedConstraint{}
	for i, name := range names {
		meant := s.firstInPath(found[i])
		if len(meant) == 0 {
			return nil, s.noConstraint(name)
		}
		if st.Transaction.Deferred && slices.ContainsFunc(meant, func(c foundConstraint) bool { return !c.deferrable }) {
			return nil, pgerr.New(pgerr.WrongObjectType, "constraint \"%s\" is not deferrable", name.Name)
		}
		for _, c := range meant {
			if c.kept && !slices.Contains(placed, c.placedConstraint) {
				placed = append(placed, c.placedConstraint)
			}
		}
	}
	return placed, nil
}

// reachTemporary takes the transaction to the session's own backend if that has temporary tables: nobody else knows what constraints they have.
func (s *session) reachTemporary(st *plan.Statement) *pgerr.Error {
	if len(s.temporary) == 0 || s.home() == noShard || s.legs[s.home()] != nil || s.backend != nil && s.backend.Shard() == s.home() {
		return nil
	}
	if s.backend != nil || s.isSpread() {
		if refused := s.maySpread(st); refused != nil {
			return refused
		}
	}
	_, refused := s.enlist(st, []int{s.home()})
	return refused
}

// constrainedShards are those that have to be asked for constraints: the home shard, and all others if they have tables of their own.
func (s *session) constrainedShards() []int {
	m, home := s.currentMap(), s.home()
	isElsewhere := func(t *topology.Table) bool { return t.Kind() == topology.Single && t.Shard().Number() != home }
	shards := []int{home}
	if len(ofSchemas(m)) == 0 && !slices.ContainsFunc(m.Tables(), isElsewhere) {
		return shards
	}
	for shard := range m.Shards() {
		if shard.Number() != home {
			shards = append(shards, shard.Number())
		}
	}
	return shards
}

// constraintsSQL asks which constraints of some names there are, in their schemas or in those of the search path, and of which tables; of a
// partition's, the table is that which it is a part of.
const constraintsSQL = `SELECT w.at, n.nspname, coalesce(tn.nspname, ''), coalesce(t.relname, ''), c.condeferrable
	FROM (VALUES %s) AS w (at, schema, name)
	JOIN pg_catalog.pg_constraint c ON c.conname = w.name
	JOIN pg_catalog.pg_namespace n ON n.oid = c.connamespace AND CASE w.schema
		WHEN '' THEN n.nspname = ANY (pg_catalog.current_schemas(true)) WHEN 'pg_temp' THEN n.oid = pg_catalog.pg_my_temp_schema()
		ELSE n.nspname = w.schema AND pg_catalog.has_schema_privilege(n.oid, 'USAGE') END
	LEFT JOIN pg_catalog.pg_class t ON t.oid = coalesce(pg_catalog.pg_partition_root(c.conrelid), c.conrelid)
	LEFT JOIN pg_catalog.pg_namespace tn ON tn.oid = t.relnamespace`

// findConstraints adds what a shard has of these names.
func (s *session) findConstraints(shard int, names []facts.Name, found [][]foundConstraint) *pgerr.Error {
	wanted := make([]string, len(names))
	for i, name := range names {
		wanted[i] = fmt.Sprintf("(%d, %s, %s)", i, sqltext.QuoteLiteral(name.Schema), sqltext.QuoteLiteral(name.Name))
	}
	sql := fmt.Sprintf(constraintsSQL, strings.Join(wanted, ", "))
	a, refused := s.askShard(shard, func() (answer, error) { return s.ask(sql) })
	if refused != nil {
		return refused
	}
	if a.failure != nil {
		return a.failure.PGError()
	}
	for _, row := range a.rows {
		at, err := strconv.Atoi(row[0])
		if err != nil || at < 0 || at >= len(names) {
			return pgerr.New(pgerr.InternalError, "a shard's answer about constraints could not be read")
		}
		c := foundConstraint{schema: row[1], deferrable: row[4] == "t", kept: row[3] != ""}
		c.name = sqltext.QuoteIdentifier(c.schema) + "." + sqltext.QuoteIdentifier(names[at].Name)
		var counts bool
		if c.shard, c.everywhere, counts = s.placeOfTable(shard, row[2], row[3]); counts {
			found[at] = append(found[at], c)
		}
	}
	return nil
}

// placeOfTable says where a table is that a shard has told of, and whether it is that shard which counts: others may have one of its name that is
// no part of the cluster. Of what every shard has, the home shard tells.
func (s *session) placeOfTable(told int, schema, name string) (shard int, everywhere, counts bool) {
	m := s.currentMap()
	t := m.Table(schema, name)
	place, keyspace := m.LocateSchema(schema)
	switch {
	case t != nil && t.Kind() == topology.Single:
		shard = t.Shard().Number()
	case t != nil:
		return 0, true, told == s.home()
	case keyspace != nil:
		shard = place.Shard.Number()
	default:
		shard = s.home()
	}
	return shard, false, told == shard
}

// firstInPath are the constraints whose schema comes first in the search path. Schemas that are in it unseen come before all others.
func (s *session) firstInPath(all []foundConstraint) []foundConstraint {
	path := s.searchPath()
	place := func(c foundConstraint) int { return slices.Index(path, c.schema) }
	first := len(path)
	for _, c := range all {
		first = min(first, place(c))
	}
	return slices.DeleteFunc(all, func(c foundConstraint) bool { return place(c) != first })
}

// noConstraint is PostgreSQL's error for a constraint that is nowhere; it depends on what is wrong with its name.
func (s *session) noConstraint(name facts.Name) *pgerr.Error {
	sql := sqltext.QuoteIdentifier(name.Name)
	if name.Schema != "" {
		sql = sqltext.QuoteIdentifier(name.Schema) + "." + sql
	}
	a, refused := s.askShard(s.home(), func() (answer, error) { return s.ask("SET CONSTRAINTS " + sql + " IMMEDIATE") })
	switch {
	case refused != nil:
		return refused
	case a.failure != nil:
		return a.failure.PGError()
	default: // of a table that is no part of the cluster
		return pgerr.New(pgerr.UndefinedObject, "constraint \"%s\" does not exist", name.Name)
	}
}

// saidOn is what a shard has to be told of the transaction before it takes part in it.
func (s *session) saidOn(shard int) []string {
	said := []string{s.tx.begin}
	for _, l := range s.tx.script {
		said = append(said, l.on(shard))
	}
	return said
}
