package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/topology"
)

// SchemaLook is what one shard has of tables.
type SchemaLook struct {
	Shard string
	// Tables are the definitions of those that the map says it has, if they are there.
	Tables map[topology.TableName]*Definition
	// All are the names of all of its tables, but for the system's, Cleave's and those of extensions.
	All []topology.TableName
}

// tableNamesQuery leaves out partitions, which come and go with their table.
const tableNamesQuery = `
	SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE c.relkind IN ('r', 'p', 'f') AND NOT c.relispartition AND c.relpersistence <> 't'
		AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'cleave') AND n.nspname NOT LIKE 'pg\_toast%' AND n.nspname NOT LIKE 'pg\_temp%'
		AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
	ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C"`

// LookAtSchema looks at the tables of a shard: at the definitions of those that the map says it has, and at the names of all. It
// reads under one snapshot, as far as PostgreSQL's own functions do.
func LookAtSchema(ctx context.Context, conn *pgx.Conn, m *topology.Map, name string) (*SchemaLook, error) {
	if m.Shard(name) == nil {
		return nil, &topology.NotFoundError{Kind: "shard", Name: name}
	}
	look := &SchemaLook{Shard: name, Tables: map[topology.TableName]*Definition{}}
	err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return look.read(ctx, tx, m)
	})
	if err != nil {
		return nil, fmt.Errorf("look at the tables of shard %q: %w", name, err)
	}
	return look, nil
}

func (s *SchemaLook) read(ctx context.Context, tx pgx.Tx, m *topology.Map) error {
	rows, err := tx.Query(ctx, tableNamesQuery)
	if err != nil {
		return err
	}
	if s.All, err = pgx.CollectRows(rows, pgx.RowToStructByPos[topology.TableName]); err != nil {
		return err
	}
	for _, t := range m.Tables() {
		if !belongsOn(t, s.Shard) {
			continue
		}
		switch d, err := describe(ctx, tx, t.Name()); {
		case err == nil:
			s.Tables[t.Name()] = d
		case !errors.Is(err, pgx.ErrNoRows):
			return fmt.Errorf("table %s: %w", t.Name(), err)
		}
	}
	return nil
}

// belongsOn says whether a shard should have the table.
func belongsOn(t *topology.Table, shard string) bool {
	return t.Kind() != topology.Single || t.Shard().Name() == shard
}

// DiffSchemas says in which ways the tables of shards are not what the map says, or not the same: tables that are missing,
// tables that differ, and tables that are where no statement looks for them. Shards that could not be looked at are left out. A
// table is compared with that of the home shard, or of the first that has it.
func DiffSchemas(m *topology.Map, looks []*SchemaLook) []api.Finding {
	var f findings
	for _, t := range m.Tables() {
		f.diffTable(t, looks)
	}
	for _, s := range looks {
		f.extraTables(m, s)
	}
	return f
}

func (f *findings) diffTable(t *topology.Table, looks []*SchemaLook) {
	should := slices.DeleteFunc(slices.Clone(looks), func(s *SchemaLook) bool { return !belongsOn(t, s.Shard) })
	at := slices.IndexFunc(should, func(s *SchemaLook) bool { return s.Tables[t.Name()] != nil })
	for i, s := range should {
		since := len(*f)
		there := s.Tables[t.Name()]
		switch {
		case there == nil && at < 0:
			f.problem("table_missing", fmt.Sprintf("table %s is missing on shard %q", t.Name(), s.Shard), "No shard has it that could be asked: restore it, or take it out of the map.")
		case there == nil:
			f.problem("table_missing", fmt.Sprintf("table %s is missing on shard %q", t.Name(), s.Shard),
				fmt.Sprintf("Create it there as it is on shard %q.", should[at].Shard))
		case i != at:
			for _, words := range diffWords(should[at].Tables[t.Name()], there, should[at].Shard, s.Shard) {
				f.problem("table_differs", fmt.Sprintf("table %s: %s", t.Name(), words), "")
			}
		}
		f.about(s.Shard, since)
	}
}

// extraTables finds tables that the router does not look for on this shard.
func (f *findings) extraTables(m *topology.Map, s *SchemaLook) {
	since := len(*f)
	for _, name := range s.All {
		declared := m.Table(name.Schema, name.Name)
		place, tenants := m.LocateSchema(name.Schema)
		elsewhere := ""
		switch {
		case declared != nil && belongsOn(declared, s.Shard):
		case declared != nil:
			elsewhere = fmt.Sprintf("the map has it on shard %q alone", declared.Shard().Name())
		case tenants != nil && place.Shard.Name() == s.Shard:
		case tenants != nil:
			elsewhere = fmt.Sprintf("its schema is on shard %q", place.Shard.Name())
		case m.Home().Name() != s.Shard:
			elsewhere = "the map does not have it, and such tables are on the home shard"
		}
		if elsewhere != "" {
			f.problem("table_extra", fmt.Sprintf("table %s is on shard %q, where no statement sees it: %s", name, s.Shard, elsewhere),
				"Drop it there, or move it out of the way, if nobody needs it.")
		}
	}
	f.about(s.Shard, since)
}
