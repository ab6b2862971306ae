package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// Definitions are tables that are carried over together, because they refer to each other.
type Definitions []*Definition

// Create makes the tables on a shard of this name without rows, and without what is better made when the rows are there: [Definitions.Complete] does
// that. A table of the same name that is equal and empty is replaced; anything else of that name is an error.
func (s Definitions) Create(ctx context.Context, tx pgx.Tx, shard string) error {
	if err := s.clearPlace(ctx, tx, shard); err != nil {
		return err
	}
	for _, d := range s {
		if err := d.create(ctx, tx, shard); err != nil {
			return d.failed(err, shard)
		}
	}
	return nil
}

// Complete makes what the tables lack, foreign keys last, reads them back and compares.
func (s Definitions) Complete(ctx context.Context, tx pgx.Tx, shard string) error {
	for _, part := range []func(*Definition) []string{(*Definition).afterRows, (*Definition).foreignKeys, (*Definition).behaviour} {
		for _, d := range s {
			if err := executeAll(ctx, tx, part(d)); err != nil {
				return d.failed(err, shard)
			}
		}
	}
	for _, d := range s {
		if err := d.compare(ctx, tx, shard); err != nil {
			return d.failed(err, shard)
		}
	}
	return nil
}

// Unchanged says whether the tables are still what they were when they were described, but for the replica identities that they have for a time.
func (s Definitions) Unchanged(ctx context.Context, on querier, before map[topology.TableName]ReplicaIdentity) (bool, error) {
	for _, d := range s {
		now, err := describe(ctx, on, d.Table)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read the definition of table %s again: %w", d.Table, err)
		}
		if now.WithIdentities(before); len(d.differsFrom(now)) > 0 {
			return false, nil
		}
	}
	return true, nil
}

// failed says where and with what, unless the error is for a client already.
func (d *Definition) failed(err error, shard string) error {
	var known *pgerr.Error
	if errors.As(err, &known) {
		return err
	}
	return fmt.Errorf("create table %s on shard %q: %w", d.Table, shard, err)
}

// clearPlace drops tables that are in the way, all together, if they are equal and empty.
func (s Definitions) clearPlace(ctx context.Context, tx pgx.Tx, shard string) error {
	var there []string
	for _, d := range s {
		found, err := describe(ctx, tx, d.Table)
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err == nil {
			err = d.mayReplace(ctx, tx, found, shard)
		}
		if err != nil {
			return d.failed(err, shard)
		}
		there = append(there, d.Table.String())
	}
	if len(there) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, "DROP TABLE "+list(there)); err != nil {
		return pgerr.New(pgerr.ObjectNotInPrerequisite, "shard %q has tables of the same names that cannot be replaced: %s", shard, list(there)).
			WithDetail("%v", err).WithHint("Look at them there, then drop or rename them and try again.")
	}
	return nil
}

func (d *Definition) mayReplace(ctx context.Context, tx pgx.Tx, there *Definition, shard string) error {
	taken := pgerr.New(pgerr.ObjectNotInPrerequisite, "shard %q has another relation named %s", shard, d.Table).
		WithHint("Look at it there, then drop or rename it and try again.")
	if there.facts.Kind != d.facts.Kind {
		return taken.WithDetail("It is not such a table.")
	}
	if err := lockTable(ctx, tx, d.Table, "ACCESS EXCLUSIVE"); err != nil {
		return err
	}
	if differing := d.differsFrom(there); len(differing) > 0 {
		return taken.WithDetail("It differs from the one on the home shard in %s.", strings.Join(differing, ", "))
	}
	var empty bool
	if err := tx.QueryRow(ctx, "SELECT NOT EXISTS (SELECT FROM "+d.Table.String()+")").Scan(&empty); err != nil {
		return err
	}
	if !empty {
		return taken.WithDetail("It has rows.")
	}
	return nil
}

// create makes the table and what it needs.
func (d *Definition) create(ctx context.Context, tx pgx.Tx, shard string) error {
	newSchema, err := d.lacksSchema(ctx, tx)
	if err != nil {
		return err
	}
	if err := d.checkRoles(ctx, tx, shard, newSchema); err != nil {
		return err
	}
	if newSchema {
		if err := executeAll(ctx, tx, schemaStatements(d.Table.Schema, d.Schema)); err != nil {
			return err
		}
	}
	if err := d.needs.ensure(ctx, tx, shard); err != nil {
		return err
	}
	return executeAll(ctx, tx, d.beforeRows())
}

// compare reads back what was made.
func (d *Definition) compare(ctx context.Context, tx pgx.Tx, shard string) error {
	made, err := describe(ctx, tx, d.Table)
	if err != nil {
		return err
	}
	if differing := d.differsFrom(made); len(differing) > 0 {
		return pgerr.New(pgerr.FeatureNotSupported, "table %s cannot be made on shard %q as it is on the home shard", d.Table, shard).
			WithDetail("Made anew there it differs in %s.", strings.Join(differing, ", ")).
			WithHint("Default privileges or an event trigger of that database may have changed it; or make that part of the table simpler.")
	}
	return nil
}

func (d *Definition) lacksSchema(ctx context.Context, on querier) (lacks bool, err error) {
	err = on.QueryRow(ctx, "SELECT NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", d.Table.Schema).Scan(&lacks)
	return lacks, err
}

// checkRoles names a role that the shard does not have.
func (d *Definition) checkRoles(ctx context.Context, tx pgx.Tx, shard string, newSchema bool) error {
	var missing string
	err := tx.QueryRow(ctx, "SELECT want FROM unnest($1::text[]) AS want WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = want) LIMIT 1", d.roles(newSchema)).Scan(&missing)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return pgerr.New(pgerr.UndefinedObject, "role %q does not exist on shard %q", missing, shard).
		WithDetail("It owns table %s on the home shard, or has privileges on it.", d.Table).
		WithHint("Create it there, with the same attributes and the same password as on the home shard.")
}

func schemaStatements(schema string, owner SchemaOwner) []string {
	name := sqltext.QuoteIdentifier(schema)
	return append([]string{fmt.Sprintf("CREATE SCHEMA %s AUTHORIZATION %s", name, sqltext.QuoteIdentifier(owner.Owner))}, grantStatements("SCHEMA "+name, "", owner.Grants)...)
}

// grantStatements grants what is not there by itself; columns is a list in parentheses, or nothing.
func grantStatements(on, columns string, grants []Grant) []string {
	var statements []string
	for _, g := range grants {
		sql := fmt.Sprintf("GRANT %s%s ON %s TO %s", g.Privilege, columns, on, g.To)
		if g.WithOption {
			sql += " WITH GRANT OPTION"
		}
		statements = append(statements, sql)
	}
	return statements
}

// beforeRows make the table in an existing schema, as far as rows need it.
func (d *Definition) beforeRows() []string {
	var statements []string
	for _, s := range d.Sequences {
		statements = append(statements, s.statements()...)
	}
	statements = append(statements, d.createTable(), fmt.Sprintf("ALTER TABLE %s OWNER TO %s", d.Table, sqltext.QuoteIdentifier(d.Owner)))
	for _, s := range d.Sequences {
		statements = append(statements, s.ownerStatements(d)...)
	}
	for _, c := range d.Columns {
		statements = append(statements, c.statements(d.Table.String())...)
	}
	for _, p := range d.Partitions {
		statements = append(statements, p.statements()...)
	}
	return statements
}

// afterRows are indexes and constraints, which are made faster when the rows are there, and all that does not matter for rows.
func (d *Definition) afterRows() []string {
	var statements []string
	for _, p := range d.slowParts() {
		statements = append(statements, p.statements...)
	}
	return append(statements, d.particulars()...)
}

// part is something of a table that takes long to make when its rows are there.
type part struct {
	// named is a query that has a row if it is there, with the table's and its own name.
	named, name string
	statements  []string
}

// slowParts are constraints that are no foreign keys, with their indexes, and the other indexes.
func (d *Definition) slowParts() []part {
	var parts []part
	for _, c := range d.Constraints {
		if c.Kind == "f" {
			continue
		}
		p := part{named: constraintNamed, name: c.Name, statements: d.constraintStatements(c)}
		for _, i := range d.Indexes {
			if i.Constraint == c.Name {
				p.statements = append(p.statements, i.statements(d)...)
			}
		}
		parts = append(parts, p)
	}
	for _, i := range d.Indexes {
		if i.Constraint == "" {
			parts = append(parts, part{named: indexNamed, name: i.Name, statements: i.statements(d)})
		}
	}
	return parts
}

const (
	constraintNamed = "SELECT FROM pg_constraint WHERE conrelid = $1::text::regclass AND conname = $2"
	indexNamed      = "SELECT FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid WHERE i.indrelid = $1::text::regclass AND x.relname = $2"
)

// particulars are comments, privileges and whatever else is made in a moment.
func (d *Definition) particulars() []string {
	name := d.Table.String()
	statements := commentOn("TABLE "+name, d.Comment)
	if !d.DefaultGrants {
		statements = append(statements, fmt.Sprintf("REVOKE ALL ON TABLE %s FROM PUBLIC, %s", name, sqltext.QuoteIdentifier(d.Owner)))
		statements = append(statements, grantStatements("TABLE "+name, "", d.Grants)...)
	}
	for _, c := range d.Columns {
		statements = append(statements, grantStatements("TABLE "+name, " ("+sqltext.QuoteIdentifier(c.Name)+")", c.Grants)...)
	}
	if d.ClusterIndex != "" {
		statements = append(statements, fmt.Sprintf("ALTER TABLE %s CLUSTER ON %s", name, sqltext.QuoteIdentifier(d.ClusterIndex)))
	}
	statements = append(statements, d.identityStatements()...)
	for _, s := range d.Statistics {
		statements = append(statements, s.statements()...)
	}
	return statements
}

func (d *Definition) constraintStatements(c Constraint) []string {
	name := sqltext.QuoteIdentifier(c.Name)
	return append([]string{fmt.Sprintf("ALTER TABLE %s%s ADD CONSTRAINT %s %s", d.alone(), d.Table, name, c.Definition)},
		commentOn(fmt.Sprintf("CONSTRAINT %s ON %s", name, d.Table), c.Comment)...)
}

func (d *Definition) foreignKeys() []string {
	var statements []string
	for _, c := range d.Constraints {
		if c.Kind == "f" {
			statements = append(statements, d.constraintStatements(c)...)
		}
	}
	return statements
}

// behaviour is what happens when somebody uses the table: triggers and policies.
func (d *Definition) behaviour() []string {
	var statements []string
	for _, t := range d.Triggers {
		name := sqltext.QuoteIdentifier(t.Name)
		statements = append(statements, t.Definition)
		if t.Enabled == "D" {
			statements = append(statements, fmt.Sprintf("ALTER TABLE %s DISABLE TRIGGER %s", d.Table, name))
		}
		statements = append(statements, commentOn(fmt.Sprintf("TRIGGER %s ON %s", name, d.Table), t.Comment)...)
	}
	for _, p := range d.Policies {
		statements = append(statements, p.statements(d.Table)...)
	}
	if d.RowSecurity {
		statements = append(statements, fmt.Sprintf("ALTER TABLE %s ENABLE ROW LEVEL SECURITY", d.Table))
	}
	if d.ForceRowSecurity {
		statements = append(statements, fmt.Sprintf("ALTER TABLE %s FORCE ROW LEVEL SECURITY", d.Table))
	}
	return statements
}

func (p Policy) statements(table topology.TableName) []string {
	name := sqltext.QuoteIdentifier(p.Name)
	kind := "RESTRICTIVE"
	if p.Permissive {
		kind = "PERMISSIVE"
	}
	command := map[string]string{"r": "SELECT", "a": "INSERT", "w": "UPDATE", "d": "DELETE", "*": "ALL"}[p.Command]
	sql := fmt.Sprintf("CREATE POLICY %s ON %s AS %s FOR %s TO %s", name, table, kind, command, list(p.Roles))
	if p.Using != "" {
		sql += " USING (" + p.Using + ")"
	}
	if p.Check != "" {
		sql += " WITH CHECK (" + p.Check + ")"
	}
	return append([]string{sql}, commentOn(fmt.Sprintf("POLICY %s ON %s", name, table), p.Comment)...)
}

func (s Statistic) statements() []string {
	statements := []string{s.Definition, fmt.Sprintf("ALTER STATISTICS %s OWNER TO %s", s.Name, sqltext.QuoteIdentifier(s.Owner))}
	if s.Target >= 0 {
		statements = append(statements, fmt.Sprintf("ALTER STATISTICS %s SET STATISTICS %d", s.Name, s.Target))
	}
	return append(statements, commentOn("STATISTICS "+s.Name, s.Comment)...)
}

func (d *Definition) identityStatements() []string {
	kind := map[string]string{"n": "NOTHING", "f": "FULL", "i": "USING INDEX " + sqltext.QuoteIdentifier(d.IdentityIndex)}[d.Identity]
	if kind == "" {
		return nil
	}
	return []string{fmt.Sprintf("ALTER TABLE %s REPLICA IDENTITY %s", d.Table, kind)}
}

func (d *Definition) createTable() string {
	columns := make([]string, len(d.Columns))
	for i, c := range d.Columns {
		columns[i] = c.sql(d.identitySQL(c))
	}
	kind := "TABLE"
	if d.Persistence == "u" {
		kind = "UNLOGGED TABLE"
	}
	sql := fmt.Sprintf("CREATE %s %s (%s)", kind, d.Table, strings.Join(columns, ", "))
	options := slices.Clone(d.Options)
	for _, o := range d.ToastOptions {
		options = append(options, "toast."+o)
	}
	if d.PartitionKey != "" {
		sql += " PARTITION BY " + d.PartitionKey
	}
	if len(options) > 0 {
		sql += " WITH (" + optionList(options) + ")"
	}
	return sql
}

// optionList quotes the values of storage parameters, each of the form name=value.
func optionList(options []string) string {
	quoted := make([]string, len(options))
	for i, o := range options {
		name, value, _ := strings.Cut(o, "=")
		quoted[i] = name + " = " + sqltext.QuoteLiteral(value)
	}
	return strings.Join(quoted, ", ")
}

func (c Column) sql(identity string) string {
	sql := sqltext.QuoteIdentifier(c.Name) + " " + c.Type
	if c.Compression != "" {
		sql += " COMPRESSION " + map[string]string{"p": "pglz", "l": "lz4"}[c.Compression]
	}
	if c.Collation != "" {
		sql += " COLLATE " + c.Collation
	}
	switch {
	case c.Generated != "":
		sql += " GENERATED ALWAYS AS (" + c.Default + ") STORED"
	case c.Default != "":
		sql += " DEFAULT " + c.Default
	}
	sql += identity
	if c.NotNull {
		sql += " NOT NULL"
	}
	return sql
}

// statements are what CREATE TABLE cannot say of a column.
func (c Column) statements(table string) []string {
	var statements []string
	alter := func(format string, arguments ...any) {
		statements = append(statements, fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s ", table, sqltext.QuoteIdentifier(c.Name))+fmt.Sprintf(format, arguments...))
	}
	if c.Storage != c.TypeStorage {
		alter("SET STORAGE %s", map[string]string{"p": "PLAIN", "e": "EXTERNAL", "x": "EXTENDED", "m": "MAIN"}[c.Storage])
	}
	if c.Statistics != -1 {
		alter("SET STATISTICS %d", c.Statistics)
	}
	if len(c.Options) > 0 {
		alter("SET (%s)", optionList(c.Options))
	}
	return append(statements, commentOn(fmt.Sprintf("COLUMN %s.%s", table, sqltext.QuoteIdentifier(c.Name)), c.Comment)...)
}

// statements make an index, unless its constraint has made it already.
func (i Index) statements(d *Definition) []string {
	name := topology.TableName{Schema: d.Table.Schema, Name: i.Name}.String()
	var statements []string
	switch {
	case i.Constraint == "":
		statements = append(statements, d.wholeIndex(i.Definition))
	case len(i.Options) > 0:
		statements = append(statements, fmt.Sprintf("ALTER INDEX %s SET (%s)", name, optionList(i.Options)))
	}
	for _, column := range slices.Sorted(maps.Keys(i.Statistics)) {
		statements = append(statements, fmt.Sprintf("ALTER INDEX %s ALTER COLUMN %d SET STATISTICS %d", name, column, i.Statistics[column]))
	}
	return append(statements, commentOn("INDEX "+name, i.Comment)...)
}

func commentOn(what, comment string) []string {
	if comment == "" {
		return nil
	}
	return []string{fmt.Sprintf("COMMENT ON %s IS %s", what, sqltext.QuoteLiteral(comment))}
}
