package shard

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/topology"
)

// takenQuery lists what has one of some names: relations, and types and statistics, by their quoted names with the schema.
const takenQuery = `
	SELECT pg_describe_object('pg_class'::regclass, oid, 0) FROM (SELECT to_regclass(name)::oid AS oid FROM unnest($1::text[]) AS name) AS c WHERE oid IS NOT NULL
	UNION SELECT pg_describe_object('pg_type'::regclass, t.oid, 0) FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE (n.nspname, t.typname) IN (SELECT * FROM unnest($2::text[], $3::text[])) AND t.typrelid = 0
	UNION SELECT pg_describe_object('pg_statistic_ext'::regclass, s.oid, 0) FROM pg_statistic_ext s JOIN pg_namespace n ON n.oid = s.stxnamespace WHERE quote_ident(n.nspname) || '.' || quote_ident(s.stxname) = ANY ($4)
	ORDER BY 1`

// CheckPlace says what keeps a shard from having the tables as they are elsewhere: names that are taken, and roles that it does not have. Nothing is made there.
func (s Definitions) CheckPlace(ctx context.Context, on querier) (problems []string, err error) {
	var relations, schemas, names, statistics, roles []string
	for _, d := range s {
		lacksSchema, err := d.lacksSchema(ctx, on)
		if err != nil {
			return nil, fmt.Errorf("look for schema %q: %w", d.Table.Schema, err)
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
		roles = append(roles, d.roles(lacksSchema)...)
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
