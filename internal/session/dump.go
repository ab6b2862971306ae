package session

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// A dump is to be restored into a database that is no shard of anything, so pg_dump does not see what is the router's own on the
// home shard: the schema cleave, the guards' triggers, and where the sequences of sharded tables count so that no two shards give the same
// number. There they count from 1, and go on after the greatest number of all shards. Materialised views have the queries that clients gave them.

// dumps says whether the client is pg_dump, by the name that it gives itself.
func (s *session) dumps() bool { return s.application == "pg_dump" && !s.planningAside }

const catalogPrefix = "pg_catalog."

// ownSchema is the number of the schema.
const ownSchema = "coalesce(pg_catalog.to_regnamespace('cleave')::pg_catalog.oid, 0)"

// notOwn says, by catalogue, which rows are not the router's own.
var notOwn = map[string]string{
	"pg_class": "relnamespace <> " + ownSchema, "pg_namespace": "oid <> " + ownSchema, "pg_proc": "pronamespace <> " + ownSchema, "pg_type": "typnamespace <> " + ownSchema,
	"pg_rewrite": "ev_class NOT IN (SELECT oid FROM pg_catalog.pg_class WHERE relnamespace = " + ownSchema + ")",
	"pg_trigger": "tgfoid NOT IN (SELECT oid FROM pg_catalog.pg_proc WHERE pronamespace = " + ownSchema + ")",
}

// catalogWithoutOwn stands for a catalogue in a statement of pg_dump's; empty if the view is none.
func (s *session) catalogWithoutOwn(v *plan.Virtual) string {
	name, isCatalog := strings.CutPrefix(v.Name, catalogPrefix)
	var text string
	switch {
	case isCatalog && name == "pg_sequence":
		text = s.plainSequences()
	case isCatalog && notOwn[name] != "":
		text = "(SELECT tableoid, * FROM pg_catalog." + name + " WHERE " + notOwn[name] + ")"
	default:
		return ""
	}
	if !v.Aliased {
		text += " AS " + sqltext.QuoteIdentifier(name)
	}
	return text
}

// seesAllTables refuses a dump that would lack tables: the home shard's catalogue does not have those that another one alone has.
func (s *session) seesAllTables() *pgerr.Error {
	m := s.currentMap()
	for _, t := range m.Tables() {
		if t.Kind() == topology.Single && t.Shard().Number() != s.home() {
			return lacksInDump("table "+t.Name().String(), t.Shard().Name())
		}
	}
	for _, k := range m.Keyspaces() {
		if k.Strategy() != topology.BySchema {
			continue
		}
		for pin := range k.Pins() {
			if pin.Owner.Number() == s.home() {
				continue
			}
			what := "a schema of keyspace " + k.Name()
			if schema, err := k.Texts(pin.Encoded); err == nil {
				what = "schema " + sqltext.QuoteIdentifier(schema[0])
			}
			return lacksInDump(what, pin.Owner.Name())
		}
	}
	return nil
}

func lacksInDump(what, shard string) *pgerr.Error {
	return pgerr.New(pgerr.FeatureNotSupported, "pg_dump through the router is not supported while %s is on shard %s alone", what, shard).
		WithDetail("The dump would lack it: pg_dump sees the catalogue of the home shard.").WithHint("Move it to the home shard, or dump every shard by itself.")
}

// shardedTables are those of the map, as SQL writes their names.
func (s *session) shardedTables() []string {
	var names []string
	for _, t := range s.currentMap().Tables() {
		if t.Kind() == topology.Sharded {
			names = append(names, t.Name().String())
		}
	}
	return names
}

// ownerOf is the condition that pg_depend's row d says which column owns a sequence.
const ownerOf = `d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
	AND d.deptype IN ('a', 'i') AND d.refobjsubid > 0`

// plainSequences is pg_sequence, in which the sequences of sharded tables have the bounds that they would have on one server.
func (s *session) plainSequences() string {
	tables := []string{"0"}
	for _, name := range s.shardedTables() {
		tables = append(tables, "pg_catalog.to_regclass("+sqltext.QuoteLiteral(name)+")")
	}
	const greatest = "CASE q.seqtypid WHEN 'smallint'::pg_catalog.regtype THEN 32767 WHEN 'integer'::pg_catalog.regtype THEN 2147483647 ELSE 9223372036854775807 END"
	return `(SELECT q.tableoid, q.seqrelid, q.seqtypid, CASE WHEN o.sharded THEN 1 ELSE q.seqstart END AS seqstart, q.seqincrement,
		CASE WHEN o.sharded THEN ` + greatest + ` ELSE q.seqmax END AS seqmax, CASE WHEN o.sharded THEN 1 ELSE q.seqmin END AS seqmin, q.seqcache, q.seqcycle
		FROM pg_catalog.pg_sequence q CROSS JOIN LATERAL (SELECT q.seqincrement > 0 AND EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.objid = q.seqrelid AND ` + ownerOf + `
		AND d.refobjid IN (` + strings.Join(tables, ", ") + `)) AS sharded) o)`
}

// dumpedSequence stands for a sequence that pg_dump reads as a table. That of a sharded table stands at the greatest number of all shards.
func (s *session) dumpedSequence(v *plan.Virtual, sequence string, shapeOnly bool) (string, *pgerr.Error) {
	text := "(SELECT tableoid, * FROM " + sequence + ")"
	if !shapeOnly {
		last, isSharded, refused := s.greatestNumber(sequence)
		switch {
		case refused != nil:
			return "", refused
		case isSharded:
			text = fmt.Sprintf("(SELECT tableoid, %d::pg_catalog.int8 AS last_value, 0::pg_catalog.int8 AS log_cnt, %t AS is_called FROM %s)", max(last, 1), last > 0, sequence)
		}
	}
	if !v.Aliased {
		names, _ := sqltext.SplitNames(sequence, '.')
		text += " AS " + sqltext.QuoteIdentifier(names[len(names)-1])
	}
	return text, nil
}

// greatestNumber is the greatest that any shard has in the column which owns a sequence.
func (s *session) greatestNumber(sequence string) (last int64, isSharded bool, refused *pgerr.Error) {
	owner, refused := s.askRows(s.home(), "SELECT pg_catalog.format('%I.%I', n.nspname, t.relname), pg_catalog.quote_ident(a.attname) FROM pg_catalog.pg_depend d "+
		"JOIN pg_catalog.pg_class t ON t.oid = d.refobjid JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attnum = d.refobjsubid "+
		"WHERE d.objid = "+sqltext.QuoteLiteral(sequence)+"::pg_catalog.regclass AND "+ownerOf)
	if refused != nil || len(owner) != 1 || !slices.Contains(s.shardedTables(), owner[0][0]) {
		return 0, false, refused
	}
	for shard := range s.currentMap().Shards() {
		rows, refused := s.askRows(shard.Number(), "SELECT coalesce(pg_catalog.max("+owner[0][1]+"), 0) FROM "+owner[0][0])
		if refused != nil {
			return 0, true, refused
		}
		for _, row := range rows {
			number, err := strconv.ParseInt(row[0], 10, 64)
			if err != nil {
				return 0, true, pgerr.New(pgerr.InternalError, "the greatest number of %s cannot be read", owner[0][0]).WithDetail("%s", err)
			}
			last = max(last, number)
		}
	}
	return last, true, nil
}

// askRows asks a shard for rows.
func (s *session) askRows(shard int, sql string) ([][]string, *pgerr.Error) {
	a, refused := s.askShard(shard, func() (answer, error) { return s.ask(sql) })
	switch {
	case refused != nil:
		return nil, refused
	case a.failure != nil:
		return nil, a.failure.PGError()
	default:
		return a.rows, nil
	}
}
