package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// takenQuery lists what has one of some names: relations, and types and statistics, by their quoted names with the schema.
const takenQuery = `
	SELECT pg_describe_object('pg_class'::regclass, oid, 0) FROM (SELECT to_regclass(name)::oid AS oid FROM unnest($1::text[]) AS name) AS c WHERE oid IS NOT NULL
	UNION SELECT pg_describe_object('pg_type'::regclass, t.oid, 0) FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE (n.nspname, t.typname) IN (SELECT * FROM unnest($2::text[], $3::text[])) AND t.typrelid = 0
	UNION SELECT pg_describe_object('pg_statistic_ext'::regclass, s.oid, 0) FROM pg_statistic_ext s JOIN pg_namespace n ON n.oid = s.stxnamespace WHERE quote_ident(n.nspname) || '.' || quote_ident(s.stxname) = ANY ($4)
	ORDER BY 1`

// CheckPlace says what keeps a shard from having the tables, and these schemas with them, as they are elsewhere: names that are taken, roles that it does not have, types, functions and extensions that are other ones there, and what else it has in the schemas. What it has of those that nobody uses is made anew, as [Definitions.Clear] does;
// that is tried, and taken back.
func (s Definitions) CheckPlace(ctx context.Context, conn *pgx.Conn, schemas []string) (problems []string, err error) {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tx.Rollback(ctx)) }()
	if problems, err = s.checkNames(ctx, tx, schemas); err != nil {
		return nil, err
	}
	if err := s.Clear(ctx, tx, schemas); err != nil {
		return nil, err
	}
	there, differing, err := s.needsThere(ctx, tx)
	if err != nil {
		return nil, err
	}
	problems = append(problems, differing...)
	for _, schema := range schemas {
		others, err := inSchema(ctx, tx, schema, nil, there)
		if err != nil {
			return nil, err
		}
		for _, what := range others {
			problems = append(problems, fmt.Sprintf("it has %s in schema %s already: look at it there, then drop it", what, sqltext.QuoteIdentifier(schema)))
		}
	}
	return problems, nil
}

// needsThere are the types and functions that the tables need, as far as a shard has them, and what it has otherwise.
func (s Definitions) needsThere(ctx context.Context, on querier) (there []need, problems []string, err error) {
	known := map[string]bool{}
	for _, d := range s {
		for _, n := range d.needs.all {
			what := n.Class + " " + n.Identity
			if known[what] {
				continue
			}
			known[what] = true
			found, problem, err := n.look(ctx, on)
			if err != nil {
				return nil, nil, fmt.Errorf("look for %s: %w", n.Words, err)
			}
			if problem != "" {
				problems = append(problems, problem)
			}
			if found != nil {
				there = append(there, *found)
			}
		}
	}
	return there, problems, nil
}

// look finds the same on another shard, or says why it cannot be there; nothing of what is not carried over.
func (n need) look(ctx context.Context, on querier) (found *need, problem string, err error) {
	switch {
	case n.Extension != "":
		problem, err = n.lookForExtension(ctx, on)
		return nil, problem, err
	case n.model.statements == nil:
		return nil, "", nil
	}
	there, is, err := n.modelThere(ctx, on)
	if err != nil || !is {
		return nil, "", err
	}
	if there.model.text != n.model.text {
		problem = fmt.Sprintf("it has another %s, of which a table is made: drop it there, or make it the same, with its owner and privileges", n.Words)
	}
	return &there, problem, nil
}

// lookForExtension says why it cannot be there in the same version.
func (n need) lookForExtension(ctx context.Context, on querier) (problem string, err error) {
	var version *string
	var available bool
	err = on.QueryRow(ctx, "SELECT (SELECT extversion FROM pg_extension WHERE extname = $1), EXISTS (SELECT FROM pg_available_extension_versions WHERE name = $1 AND version = $2)", n.Extension, n.model.version).Scan(&version, &available)
	switch name := sqltext.QuoteIdentifier(n.Extension); {
	case err != nil:
	case version == nil && !available:
		problem = fmt.Sprintf("its server does not have extension %s in version %s, which %s is a part of: install it there", name, n.model.version, n.Words)
	case version != nil && *version != n.model.version:
		problem = fmt.Sprintf("it has version %s of extension %s, and not %s: ALTER EXTENSION %s UPDATE TO %s", *version, name, n.model.version, name, sqltext.QuoteLiteral(n.model.version))
	}
	return problem, err
}

// Clear drops what a shard has of the types and functions that tables need in schemas which move with them, as far as nobody uses them there.
func (s Definitions) Clear(ctx context.Context, tx pgx.Tx, schemas []string) error {
	left := s.belongings(schemas)
	if len(left) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '1s'"); err != nil {
		return err
	}
	for { // one of two tables' types may be made of the other's
		kept, err := dropUnusedOf(ctx, tx, left)
		if err != nil || len(kept) == len(left) {
			return err
		}
		left = kept
	}
}

// belongings are statements that drop what belongs to the tables in some schemas, those last that others are made of.
func (s Definitions) belongings(schemas []string) (statements []string) {
	for _, d := range slices.Backward(s) {
		for _, n := range slices.Backward(d.needs.all) {
			sql := "DROP " + map[string]string{"pg_proc": "FUNCTION", "pg_type": "TYPE"}[n.Class] + " IF EXISTS " + n.Identity
			if n.Extension == "" && n.model.statements != nil && slices.Contains(schemas, n.Schema) && !slices.Contains(statements, sql) {
				statements = append(statements, sql)
			}
		}
	}
	return statements
}

// dropUnusedOf runs such statements, and returns those that drop what somebody uses.
func dropUnusedOf(ctx context.Context, tx pgx.Tx, statements []string) (kept []string, err error) {
	for _, sql := range statements {
		err := pgx.BeginFunc(ctx, tx, func(point pgx.Tx) error {
			_, err := point.Exec(ctx, sql)
			return err
		})
		var refused *pgconn.PgError
		switch {
		case err == nil:
		case errors.As(err, &refused) && refused.Code == codeDependents:
			kept = append(kept, sql)
		default:
			return nil, fmt.Errorf("%s: %w", sql, err)
		}
	}
	return kept, nil
}

// codeDependents: something uses what was to be dropped.
const codeDependents = "2BP01"

// checkNames finds names that are taken, but for those in some schemas, and roles that are missing.
func (s Definitions) checkNames(ctx context.Context, on querier, but []string) (problems []string, err error) {
	var relations, schemas, names, statistics, roles []string
	for _, d := range s {
		lacksSchema, err := d.lacksSchema(ctx, on)
		if err != nil {
			return nil, fmt.Errorf("look for schema %q: %w", d.Table.Schema, err)
		}
		roles = append(roles, d.roles(lacksSchema)...)
		if slices.Contains(but, d.Table.Schema) {
			continue
		}
		relations, schemas, names = append(relations, d.Table.String()), append(schemas, d.Table.Schema), append(names, d.Table.Name)
		for _, sequence := range d.Sequences {
			relations = append(relations, sequence.Name)
		}
		for _, i := range d.Indexes {
			relations = append(relations, topology.TableName{Schema: d.Table.Schema, Name: i.Name}.String())
		}
		for _, one := range d.Statistics {
			statistics = append(statistics, one.Name)
		}
	}
	rows, err := on.Query(ctx, takenQuery, relations, schemas, names, statistics)
	if err != nil {
		return nil, fmt.Errorf("look for names that are taken: %w", err)
	}
	taken, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for names that are taken: %w", err)
	}
	for _, what := range taken {
		problems = append(problems, fmt.Sprintf("it has %s, whose name is needed: look at it there, then drop or rename it", what))
	}
	rows, err = on.Query(ctx, "SELECT DISTINCT quote_ident(want) FROM unnest($1::text[]) AS want WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = want) ORDER BY 1", roles)
	if err != nil {
		return nil, fmt.Errorf("look for roles: %w", err)
	}
	missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, role := range missing {
		problems = append(problems, fmt.Sprintf("it does not have role %s, which owns one of the tables or has privileges: create it there, with the same attributes and the same password", role))
	}
	return problems, err
}
