package virtual

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/topology"
)

// sizesQuery lists the tables of a shard but for PostgreSQL's and our own.
const sizesQuery = `
	SELECT n.nspname, c.relname, pg_total_relation_size(c.oid), pg_table_size(c.oid), pg_indexes_size(c.oid), greatest(c.reltuples, 0)::int8
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE c.relkind IN ('r', 'm') AND c.relpersistence <> 't' AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'cleave') AND n.nspname NOT LIKE 'pg\_toast%'
	ORDER BY 1, 2`

const sizesTimeout = 10 * time.Second

// sizeRows asks all shards at once. A shard that does not answer is an error: a sum without it would be wrong.
func sizeRows(ctx context.Context, s *Schema) ([][]any, error) {
	m := s.config.Map()
	ctx, cancel := context.WithTimeout(ctx, sizesTimeout)
	defer cancel()
	var mu sync.Mutex
	var wait sync.WaitGroup
	var rows [][]any
	var failures []error
	for shard := range m.Shards() {
		wait.Go(func() {
			found, err := s.sizesOf(ctx, m, shard)
			mu.Lock()
			defer mu.Unlock()
			rows, failures = append(rows, found...), append(failures, err)
		})
	}
	wait.Wait()
	return rows, errors.Join(failures...)
}

func (s *Schema) sizesOf(ctx context.Context, m *topology.Map, shard *topology.Shard) ([][]any, error) {
	conn, err := s.config.Access.Connect(ctx, shard.Spec())
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	found, err := conn.Query(ctx, sizesQuery)
	if err != nil {
		return nil, fmt.Errorf("sizes on shard %q: %w", shard.Name(), err)
	}
	var rows [][]any
	var schema, name string
	var total, table, index, estimated int64
	_, err = pgx.ForEachRow(found, []any{&schema, &name, &total, &table, &index, &estimated}, func() error {
		kind := "single"
		if declared := m.Table(schema, name); declared != nil {
			kind = string(declared.Kind())
		} else if shard != m.Home() {
			return nil // a leftover that no statement reaches
		}
		rows = append(rows, []any{schema, name, kind, shard.Name(), total, table, index, estimated})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("sizes on shard %q: %w", shard.Name(), err)
	}
	return rows, nil
}
