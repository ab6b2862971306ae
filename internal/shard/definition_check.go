package shard

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

// CheckRole says whether the role may declare the table: it must own it, or be a superuser.
func (d *Definition) CheckRole(ctx context.Context, on querier, role string) error {
	var may bool
	err := on.QueryRow(ctx, "SELECT r.rolsuper OR pg_has_role(r.oid, o.oid, 'USAGE') FROM pg_roles r, pg_roles o WHERE r.rolname = $1 AND o.rolname = $2", role, d.Owner).Scan(&may)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("see whether role %q owns table %s: %w", role, d.Table, err)
	}
	if !may {
		return pgerr.New(pgerr.InsufficientPrivilege, "must be owner of table %s", d.Table.Name).
			WithDetail("Role %q is neither the owner, %q, nor a superuser.", role, d.Owner)
	}
	return nil
}

// unsupported is a table that cannot be declared as it is.
func (d *Definition) unsupported(what, hint string) error {
	e := pgerr.New(pgerr.FeatureNotSupported, "table %s cannot be sharded or made a reference table", d.Table).WithDetail("%s", what)
	if hint != "" {
		e = e.WithHint("%s", hint)
	}
	return e
}

// CheckCarried refuses tables with anything that other shards would not get exactly as it is. It is asked which tables are the same on
// every shard.
func (d *Definition) CheckCarried(isReference func(topology.TableName) bool, sharded bool) error {
	if err := d.checkKind(); err != nil {
		return err
	}
	if err := d.checkPartitions(sharded); err != nil {
		return err
	}
	f := d.facts
	for _, obstacle := range []struct {
		names      []string
		what, hint string
	}{
		{f.Rules, "It has rules, which are not carried over to other shards: %s.", "Drop them."},
		{slices.DeleteFunc(slices.Clone(f.Publications), ofMoves.MatchString), "It is in publications, which would publish the rows of one shard alone: %s.", "Take it out of them."},
	} {
		if len(obstacle.names) > 0 {
			return d.unsupported(fmt.Sprintf(obstacle.what, some(obstacle.names)), obstacle.hint)
		}
	}
	if f.Labels {
		return d.unsupported("It has a security label, which is not carried over to other shards.", "Take the label off.")
	}
	for _, check := range []func() error{
		d.checkParts, d.checkGrants,
		func() error { return d.checkNeeds(isReference) },
		func() error { return d.checkSequences(sharded) },
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// ofMoves is what the names of publications and subscriptions of moves begin with, which go with those.
var ofMoves = regexp.MustCompile("^cleave_(move|back)_")

// isOfMoveSQL is the same in SQL.
func isOfMoveSQL(name string) string { return name + " ~ " + sqltext.QuoteLiteral(ofMoves.String()) }

// checkKind is about what sort of relation it is.
func (d *Definition) checkKind() error {
	f := d.facts
	if slices.Contains([]string{"pg_catalog", "information_schema", "pg_toast", "cleave"}, d.Table.Schema) {
		return pgerr.New(pgerr.InsufficientPrivilege, "%s is a table of the system", d.Table).
			WithDetail("Every server has one of its own, with rows of its own.").WithHint("Declare tables of yours.")
	}
	kinds := map[string]string{"v": "a view", "m": "a materialised view", "f": "a foreign table", "S": "a sequence", "i": "an index", "I": "an index", "c": "a type"}
	if kind, other := kinds[f.Kind]; other {
		return pgerr.New(pgerr.WrongObjectType, "%q is not a table", d.Table.Name).WithDetail("It is %s.", kind)
	}
	switch {
	case f.Inherits && !f.Partition && !d.IsPartitioned():
		return d.unsupported("It inherits from another table, or another one from it.", "Undo it with: ALTER TABLE … NO INHERIT …")
	case f.Typed:
		return d.unsupported("Its columns are those of a type.", fmt.Sprintf("Undo it with: ALTER TABLE %s NOT OF", d.Table))
	case d.Persistence == "t":
		return d.unsupported("It is temporary: only one session sees it.", "")
	case f.AccessMethod != "heap" && !d.IsPartitioned():
		return d.unsupported(fmt.Sprintf("It is kept by the access method %s.", f.AccessMethod), "Use heap, the usual one.")
	case f.Tablespace:
		return d.unsupported("It, or an index of it, is in a tablespace of its own, which other shards may not have.", fmt.Sprintf("ALTER TABLE %s SET TABLESPACE pg_default, and the same for its indexes", d.Table))
	case f.Extension != "":
		return d.unsupported("It belongs to "+f.Extension+".", "")
	}
	return nil
}

// checkParts is about columns, indexes and triggers.
func (d *Definition) checkParts() error {
	for _, c := range d.Columns {
		switch {
		case c.Generated != "" && c.Generated != "s":
			return d.unsupported(fmt.Sprintf("Column %q is generated when it is read.", c.Name), "Make it a stored one.")
		case !c.Plain && strings.Contains(c.Collation, ".") && !strings.HasPrefix(c.Collation, "pg_catalog."):
			return d.unsupported(fmt.Sprintf("Column %q has the collation %s, which is a user's: other shards may sort differently by it.", c.Name, c.Collation),
				fmt.Sprintf("Give it another one: ALTER TABLE %s ALTER COLUMN %s TYPE %s COLLATE \"default\"", d.Table, sqltext.QuoteIdentifier(c.Name), c.Type))
		}
	}
	for _, i := range d.Indexes {
		if !i.Valid {
			return d.unsupported(fmt.Sprintf("Index %q is not valid.", i.Name), "Drop it, or: REINDEX INDEX "+sqltext.QuoteIdentifier(i.Name))
		}
	}
	for _, t := range d.Triggers {
		if t.Enabled == "A" || t.Enabled == "R" {
			return d.unsupported(fmt.Sprintf("Trigger %q fires for replicated rows, so moving rows between shards would run it.", t.Name),
				fmt.Sprintf("ALTER TABLE %s ENABLE TRIGGER %s", d.Table, sqltext.QuoteIdentifier(t.Name)))
		}
	}
	return nil
}

// checkGrants is about privileges that somebody else than the owner has given: only that role could give them again.
func (d *Definition) checkGrants() error {
	owners := map[string]bool{d.Owner: true, sqltext.QuoteIdentifier(d.Owner): true}
	grants := slices.Clone(d.Grants)
	for _, c := range d.Columns {
		grants = append(grants, c.Grants...)
	}
	for _, p := range d.Partitions {
		if p.Owner == d.Owner {
			grants = append(grants, p.Grants...)
		}
	}
	for _, g := range grants {
		if !owners[g.By] {
			return d.unsupported(fmt.Sprintf("Role %s has given privileges on it, and is not its owner.", g.By), "Let the owner give them.")
		}
	}
	return nil
}

// keyTypes are the types of columns that can be in a key, by their OIDs.
var keyTypes = map[uint32]key.Type{
	20: key.Bigint, 23: key.Integer, 21: key.Smallint, 25: key.Text, 1043: key.Varchar, 2950: key.UUID, 1082: key.Date, 1184: key.Timestamptz, 17: key.Bytea,
}

// KeyTypes returns the types of columns that are to be the shard key, or why they cannot be.
func (d *Definition) KeyTypes(columns []string) ([]key.Type, error) {
	if len(columns) == 0 || len(columns) > topology.MaxKeyColumns {
		return nil, pgerr.New(pgerr.InvalidParameterValue, "a shard key has 1 to %d columns, not %d", topology.MaxKeyColumns, len(columns))
	}
	types := make([]key.Type, len(columns))
	for i, name := range columns {
		at := slices.IndexFunc(d.Columns, func(c Column) bool { return c.Name == name })
		switch {
		case at < 0:
			return nil, pgerr.New(pgerr.UndefinedColumn, "column %q of relation %q does not exist", name, d.Table.Name)
		case slices.Contains(columns[:i], name):
			return nil, pgerr.New(pgerr.InvalidParameterValue, "column %q is in the shard key twice", name)
		}
		var err error
		if types[i], err = d.keyType(d.Columns[at]); err != nil {
			return nil, err
		}
	}
	return types, nil
}

func (d *Definition) keyType(c Column) (key.Type, error) {
	refusal := pgerr.New(pgerr.FeatureNotSupported, "column %q of table %s cannot be in a shard key", c.Name, d.Table)
	t, known := keyTypes[c.TypeOID]
	switch {
	case !known:
		var names []string
		for _, t := range key.Types() {
			names = append(names, t.String())
		}
		return 0, refusal.WithDetail("Its type is %s.", c.Type).WithHint("Use a column of one of these types: %s.", strings.Join(names, ", "))
	case !c.Plain:
		return 0, refusal.WithDetail("Its collation is not deterministic, or not one of PostgreSQL's own: texts that differ could be equal, and would live on different shards.").
			WithHint("Give it another one: ALTER TABLE %s ALTER COLUMN %s TYPE %s COLLATE \"default\"", d.Table, sqltext.QuoteIdentifier(c.Name), c.Type)
	case c.Generated != "":
		return 0, refusal.WithDetail("It is generated, so where a row belongs would not be known before a shard has it.").WithHint("Use a column that the application gives.")
	}
	return t, nil
}

// CheckUnique refuses unique constraints that one shard alone cannot keep, because they do not contain the key.
func (d *Definition) CheckUnique(columns []string) error {
	for _, i := range d.Indexes {
		equal, what := i.Columns, "unique index "+sqltext.QuoteIdentifier(i.Name)
		at := slices.IndexFunc(d.Constraints, func(c Constraint) bool { return i.Constraint != "" && c.Name == i.Constraint })
		if at >= 0 {
			c := d.Constraints[at]
			what = map[string]string{"p": "primary key ", "u": "unique constraint ", "x": "exclusion constraint "}[c.Kind] + sqltext.QuoteIdentifier(c.Name)
			if c.Kind == "x" {
				equal = c.Equal
			}
		}
		if at < 0 && !i.Unique || containsAll(equal, columns) {
			continue
		}
		return pgerr.New(pgerr.InvalidTableDefinition, "the %s of table %s does not contain the shard key", what, d.Table).
			WithDetail("The shard key is (%s). A shard sees its own rows alone, so it could not tell whether another shard has an equal row.", list(columns)).
			WithHint("Add the key's columns to it, choose another key, or accept that it holds on each shard alone: uniqueness => 'per shard'.")
	}
	return nil
}

func containsAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(one string) bool { return !slices.Contains(all, one) })
}

// CheckForeignKeys refuses foreign keys of the table, and to it, whose rows may be on different shards. The map has the table already as it
// is to be.
func (d *Definition) CheckForeignKeys(m *topology.Map) error {
	own := m.Table(d.Table.Schema, d.Table.Name)
	for _, c := range d.Constraints {
		if c.Kind != "f" {
			continue
		}
		target := topology.TableName{Schema: c.TargetSchema, Name: c.TargetTable}
		if why := foreignKeyObstacle(own, m.Table(target.Schema, target.Name), c); why != "" {
			return pgerr.New(pgerr.FeatureNotSupported, "foreign key %q of table %s cannot be kept", c.Name, d.Table).
				WithDetail("It refers to table %s, and %s.", target, why).
				WithHint("Shard both in one call, by the columns of the foreign key, as in SELECT cleave.shard_tables('%s(…), %s(…)'), or make that one a reference table first; or: ALTER TABLE %s DROP CONSTRAINT %s", target, d.Table, d.Table, sqltext.QuoteIdentifier(c.Name))
		}
	}
	if own == nil || own.Kind() != topology.Sharded {
		return nil // who refers to it finds all rows on the home shard
	}
	for _, r := range d.facts.Referenced {
		if from := m.Table(r.Schema, r.Table); from == nil || from.Kind() != topology.Sharded {
			return pgerr.New(pgerr.FeatureNotSupported, "foreign key %q of table %s cannot be kept", r.Constraint, r.table()).
				WithDetail("It refers to table %s, whose rows would be on several shards, while those of %s are not.", d.Table, r.table()).
				WithHint("Shard both in one call, by the columns of the foreign key, as in SELECT cleave.shard_tables('%s(…), %s(…)'); or: ALTER TABLE %s DROP CONSTRAINT %s", d.Table, r.table(), r.table(), sqltext.QuoteIdentifier(r.Constraint))
		}
	}
	return nil
}

// foreignKeyObstacle says why a row and the one that it refers to may be on different shards. A table that is nil is on the home shard alone.
func foreignKeyObstacle(own, target *topology.Table, c Constraint) string {
	kind := func(t *topology.Table) topology.Kind {
		if t == nil {
			return topology.Single
		}
		return t.Kind()
	}
	switch {
	case kind(target) == topology.Reference:
		return ""
	case kind(own) == topology.Single && kind(target) == topology.Single:
		return ""
	case kind(target) == topology.Single:
		return "which is neither sharded nor a reference table"
	case kind(own) != topology.Sharded:
		return "which is sharded: the row may be on another shard"
	case target.Keyspace() != own.Keyspace():
		return fmt.Sprintf("which is in another keyspace, %s: its row may be on another shard", target.Keyspace().Name())
	}
	targetKey := target.KeyColumns()
	for i, column := range own.KeyColumns() {
		at := slices.Index(c.Columns, column)
		if at < 0 || c.TargetColumns[at] != targetKey[i] {
			return fmt.Sprintf("it does not pair the shard key's column %q with %q there: the row may be on another shard", column, targetKey[i])
		}
	}
	return ""
}

// CheckUndeclared refuses to let the table be on the home shard alone while a table that stays declared refers to it, or it to a sharded one.
// The map has it no more.
func (d *Definition) CheckUndeclared(m *topology.Map) error {
	for _, r := range d.facts.Referenced {
		if from := m.Table(r.Schema, r.Table); from != nil && from.Kind() != topology.Single {
			return pgerr.New(pgerr.FeatureNotSupported, "table %s is needed by foreign key %q of table %s", d.Table, r.Constraint, r.table()).
				WithDetail("That table is on every shard, and the rows that it refers to would be on one.").
				WithHint("Name both tables in the same call, or: ALTER TABLE %s DROP CONSTRAINT %s", r.table(), sqltext.QuoteIdentifier(r.Constraint))
		}
	}
	return d.CheckForeignKeys(m)
}
