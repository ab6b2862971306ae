package shard

import (
	"context"
	"errors"
	"fmt"
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

// CheckCarried refuses tables with anything that other shards would not get exactly as it is.
func (d *Definition) CheckCarried() error {
	if err := d.checkKind(); err != nil {
		return err
	}
	f := d.facts
	for _, obstacle := range []struct {
		names      []string
		what, hint string
	}{
		{f.Triggers, "It has triggers, which are not carried over to other shards: %s.", "Drop them; a trigger runs on one shard alone and would not see the rows of the others."},
		{f.Rules, "It has rules, which are not carried over to other shards: %s.", "Drop them."},
		{f.Strange, "It is made of things that other shards may not have, or have differently: %s.", "Use PostgreSQL's own types, functions and collations."},
		{f.Statistics, "It has extended statistics, which are not carried over to other shards: %s.", "Drop them."},
		{f.Publications, "It is in publications, which would publish the rows of one shard alone: %s.", "Take it out of them."},
		{f.Referenced, "Other tables have foreign keys to it: %s.", "Drop those foreign keys, shard this table, then the others."},
	} {
		if len(obstacle.names) > 0 {
			return d.unsupported(fmt.Sprintf(obstacle.what, some(obstacle.names)), obstacle.hint)
		}
	}
	if f.RowSecurity {
		return d.unsupported("It has row-level security, which is not carried over to other shards.", "Disable it and drop its policies.")
	}
	if f.Labels {
		return d.unsupported("It has a security label, which is not carried over to other shards.", "Take the label off.")
	}
	if err := d.checkParts(); err != nil {
		return err
	}
	return d.checkGrants()
}

// checkKind is about what sort of relation it is.
func (d *Definition) checkKind() error {
	f := d.facts
	kinds := map[string]string{"v": "a view", "m": "a materialised view", "f": "a foreign table", "S": "a sequence", "i": "an index", "I": "an index", "c": "a type"}
	if kind, other := kinds[f.Kind]; other {
		return pgerr.New(pgerr.WrongObjectType, "%q is not a table", d.Table.Name).WithDetail("It is %s.", kind)
	}
	switch {
	case f.Kind == "p" || f.Partition:
		return d.unsupported("It is partitioned, or a partition.", "Shard an ordinary table; the shards divide it already.")
	case f.Inherits:
		return d.unsupported("It inherits from another table, or another one from it.", "Undo it with: ALTER TABLE … NO INHERIT …")
	case f.Typed:
		return d.unsupported("Its columns are those of a type.", fmt.Sprintf("Undo it with: ALTER TABLE %s NOT OF", d.Table))
	case f.Persistence == "t":
		return d.unsupported("It is temporary: only one session sees it.", "")
	case f.Persistence == "u":
		return d.unsupported("It is unlogged, so its rows could not be moved to another shard.", fmt.Sprintf("ALTER TABLE %s SET LOGGED", d.Table))
	case f.AccessMethod != "heap":
		return d.unsupported(fmt.Sprintf("It is kept by the access method %s.", f.AccessMethod), "Use heap, the usual one.")
	case f.Tablespace:
		return d.unsupported("It, or an index of it, is in a tablespace of its own, which other shards may not have.", fmt.Sprintf("ALTER TABLE %s SET TABLESPACE pg_default, and the same for its indexes", d.Table))
	case f.Extension != "":
		return d.unsupported("It belongs to "+f.Extension+".", "")
	}
	return nil
}

// checkParts is about columns and indexes.
func (d *Definition) checkParts() error {
	for _, c := range d.Columns {
		switch {
		case c.Identity != "" || c.Sequence != "":
			return d.unsupported(fmt.Sprintf("Column %q takes its values from a sequence. Every shard would have its own, and they would give the same numbers.", c.Name),
				fmt.Sprintf("Use a uuid with DEFAULT gen_random_uuid(), or a bigint that the application makes; then ALTER TABLE %s ALTER COLUMN %s %s.", d.Table, sqltext.QuoteIdentifier(c.Name), dropSequence(c)))
		case c.Generated != "" && c.Generated != "s":
			return d.unsupported(fmt.Sprintf("Column %q is generated when it is read.", c.Name), "Make it a stored one.")
		}
	}
	for _, i := range d.Indexes {
		if !i.Valid {
			return d.unsupported(fmt.Sprintf("Index %q is not valid.", i.Name), "Drop it, or: REINDEX INDEX "+sqltext.QuoteIdentifier(i.Name))
		}
	}
	return nil
}

func dropSequence(c Column) string {
	if c.Identity != "" {
		return "DROP IDENTITY"
	}
	return "DROP DEFAULT"
}

// checkGrants is about privileges that somebody else than the owner has given: only that role could give them again.
func (d *Definition) checkGrants() error {
	owners := map[string]bool{d.Owner: true, sqltext.QuoteIdentifier(d.Owner): true}
	grants := slices.Clone(d.Grants)
	for _, c := range d.Columns {
		grants = append(grants, c.Grants...)
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

// CheckForeignKeys refuses foreign keys to rows that may be on another shard. A reference table has no key and no keyspace.
func (d *Definition) CheckForeignKeys(m *topology.Map, keyspace string, columns []string) error {
	for _, c := range d.Constraints {
		if c.Kind != "f" {
			continue
		}
		if why := d.foreignKeyObstacle(c, m, keyspace, columns); why != "" {
			target := topology.TableName{Schema: c.TargetSchema, Name: c.TargetTable}
			return pgerr.New(pgerr.FeatureNotSupported, "foreign key %q of table %s cannot be kept", c.Name, d.Table).
				WithDetail("It refers to table %s, and %s.", target, why).
				WithHint("Shard that table first, by the columns that the foreign key refers to, or make it a reference table; or drop the foreign key.")
		}
	}
	return nil
}

// foreignKeyObstacle says why a row and the one that it refers to may be on different shards.
func (d *Definition) foreignKeyObstacle(c Constraint, m *topology.Map, keyspace string, columns []string) string {
	sharded := keyspace != ""
	targetKeyspace, targetKey := keyspace, columns
	if self := c.TargetSchema == d.Table.Schema && c.TargetTable == d.Table.Name; !self {
		target := m.Table(c.TargetSchema, c.TargetTable)
		switch {
		case target == nil || target.Kind() == topology.Single:
			return "which is neither sharded nor a reference table"
		case target.Kind() == topology.Reference:
			return ""
		}
		targetKeyspace, targetKey = target.Keyspace().Name(), target.KeyColumns()
	} else if !sharded {
		return ""
	}
	switch {
	case !sharded:
		return "which is sharded: the row may be on another shard"
	case targetKeyspace != keyspace:
		return fmt.Sprintf("which is in another keyspace, %s: its row may be on another shard", targetKeyspace)
	}
	for i, column := range columns {
		at := slices.Index(c.Columns, column)
		if at < 0 || c.TargetColumns[at] != targetKey[i] {
			return fmt.Sprintf("it does not pair the shard key's column %q with %q there: the row may be on another shard", column, targetKey[i])
		}
	}
	return ""
}
