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
)

// Ensure makes the table on a shard of this name as the definition says, or takes over one that is there, equal and empty:
// an earlier attempt has left it. Anything else of that name is an error.
func (d *Definition) Ensure(ctx context.Context, tx pgx.Tx, shard string) error {
	there, err := describe(ctx, tx, d.Table)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		err = d.create(ctx, tx, shard)
	case err == nil:
		err = d.takeOver(ctx, tx, there, shard)
	}
	var known *pgerr.Error
	if err != nil && !errors.As(err, &known) {
		return fmt.Errorf("create table %s on shard %q: %w", d.Table, shard, err)
	}
	return err
}

func (d *Definition) takeOver(ctx context.Context, tx pgx.Tx, there *Definition, shard string) error {
	taken := pgerr.New(pgerr.ObjectNotInPrerequisite, "shard %q has another relation named %s", shard, d.Table).
		WithHint("Look at it there, then drop or rename it and try again.")
	if there.facts.Kind != "r" {
		return taken.WithDetail("It is not an ordinary table.")
	}
	if err := LockTable(ctx, tx, d.Table); err != nil {
		return err
	}
	if differing := d.differsFrom(there); len(differing) > 0 {
		return taken.WithDetail("It differs from the one on the home shard in %s.", strings.Join(differing, ", "))
	}
	empty, err := IsEmpty(ctx, tx, d.Table)
	if err == nil && !empty {
		return taken.WithDetail("It has rows.")
	}
	return err
}

// create makes the table, reads it back and compares.
func (d *Definition) create(ctx context.Context, tx pgx.Tx, shard string) error {
	newSchema, err := d.lacksSchema(ctx, tx)
	if err != nil {
		return err
	}
	if err := d.checkRoles(ctx, tx, shard, newSchema); err != nil {
		return err
	}
	statements := d.statements()
	if newSchema {
		statements = append(d.schemaStatements(), statements...)
	}
	for _, sql := range statements {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
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

func (d *Definition) lacksSchema(ctx context.Context, tx pgx.Tx) (lacks bool, err error) {
	err = tx.QueryRow(ctx, "SELECT NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", d.Table.Schema).Scan(&lacks)
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

func (d *Definition) schemaStatements() []string {
	name := sqltext.QuoteIdentifier(d.Table.Schema)
	return append([]string{fmt.Sprintf("CREATE SCHEMA %s AUTHORIZATION %s", name, sqltext.QuoteIdentifier(d.Schema.Owner))}, grantStatements("SCHEMA "+name, "", d.Schema.Grants)...)
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

// statements make the table in an existing schema.
func (d *Definition) statements() []string {
	name := d.Table.String()
	statements := []string{d.createTable(), fmt.Sprintf("ALTER TABLE %s OWNER TO %s", name, sqltext.QuoteIdentifier(d.Owner))}
	for _, c := range d.Columns {
		statements = append(statements, c.statements(name)...)
	}
	for _, c := range d.Constraints {
		statements = append(statements, fmt.Sprintf("ALTER TABLE ONLY %s ADD CONSTRAINT %s %s", name, sqltext.QuoteIdentifier(c.Name), c.Definition))
		statements = append(statements, commentOn(fmt.Sprintf("CONSTRAINT %s ON %s", sqltext.QuoteIdentifier(c.Name), name), c.Comment)...)
	}
	for _, i := range d.Indexes {
		statements = append(statements, i.statements(d.Table)...)
	}
	statements = append(statements, commentOn("TABLE "+name, d.Comment)...)
	if !d.DefaultGrants {
		statements = append(statements, fmt.Sprintf("REVOKE ALL ON TABLE %s FROM PUBLIC, %s", name, sqltext.QuoteIdentifier(d.Owner)))
		statements = append(statements, grantStatements("TABLE "+name, "", d.Grants)...)
	}
	if d.ClusterIndex != "" {
		statements = append(statements, fmt.Sprintf("ALTER TABLE %s CLUSTER ON %s", name, sqltext.QuoteIdentifier(d.ClusterIndex)))
	}
	return append(statements, d.identityStatements()...)
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
		columns[i] = c.sql()
	}
	sql := fmt.Sprintf("CREATE TABLE %s (%s)", d.Table, strings.Join(columns, ", "))
	options := slices.Clone(d.Options)
	for _, o := range d.ToastOptions {
		options = append(options, "toast."+o)
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

func (c Column) sql() string {
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
	statements = append(statements, commentOn(fmt.Sprintf("COLUMN %s.%s", table, sqltext.QuoteIdentifier(c.Name)), c.Comment)...)
	return append(statements, grantStatements("TABLE "+table, " ("+sqltext.QuoteIdentifier(c.Name)+")", c.Grants)...)
}

// statements make an index, unless its constraint has made it already.
func (i Index) statements(table topology.TableName) []string {
	name := topology.TableName{Schema: table.Schema, Name: i.Name}.String()
	var statements []string
	switch {
	case i.Constraint == "":
		statements = append(statements, i.Definition)
	case len(i.Options) > 0:
		statements = append(statements, fmt.Sprintf("ALTER INDEX %s SET (%s)", name, optionList(i.Options)))
	}
	return append(statements, commentOn("INDEX "+name, i.Comment)...)
}

func commentOn(what, comment string) []string {
	if comment == "" {
		return nil
	}
	return []string{fmt.Sprintf("COMMENT ON %s IS %s", what, sqltext.QuoteLiteral(comment))}
}

// LockTable keeps everybody from writing to a table until the transaction ends. It does not wait long at a time, because all
// who come later wait behind it.
func LockTable(ctx context.Context, tx pgx.Tx, table topology.TableName) error {
	return lockTable(ctx, tx, table, "SHARE ROW EXCLUSIVE")
}

// IsEmpty says whether a table has no rows.
func IsEmpty(ctx context.Context, on querier, table topology.TableName) (empty bool, err error) {
	if err := on.QueryRow(ctx, "SELECT NOT EXISTS (SELECT FROM ONLY "+table.String()+")").Scan(&empty); err != nil {
		return false, fmt.Errorf("see whether table %s is empty: %w", table, err)
	}
	return empty, nil
}
