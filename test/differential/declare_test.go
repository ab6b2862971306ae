package differential_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
)

// seed of every keyspace by hash: the same keys are on the same shards in every run, and of every kind some are on each.
const seed = "19"

// tables are made for each kind of key: orders, items and loaded have their rows by key, country is the same everywhere.
const tables = `
create table orders ({columns}, id int not null, note text, amount numeric(8, 2) default 1, primary key ({key}, id));
create table items ({columns}, n int not null, tag text, primary key ({key}, n));
create table loaded ({columns}, id int not null, note text, amount numeric(8, 2), primary key ({key}, id));
create table country (code text primary key, name text);
`

// declare makes the tables of a kind of key in a schema of their own, and finds out where its samples are.
func (p pair) declare(ctx context.Context, schema string, k keyType) (*cast, error) {
	if err := p.makeSchema(ctx, schema); err != nil {
		return nil, err
	}
	t, err := p.connect(ctx, schema)
	if err != nil {
		return nil, err
	}
	defer t.close()
	made, err := (&cast{keyType: k}).fill(step{text: tables})
	if err != nil {
		return nil, err
	}
	for statement := range strings.SplitSeq(strings.TrimSpace(made.text), ";\n") {
		for _, c := range []*client{t.plain, t.router} {
			if err := c.simple(statement); err != nil {
				return nil, err
			}
		}
	}
	places := make([]string, len(k.samples))
	for i := range places { // any will do where there is no router
		places[i] = fmt.Sprint("shard", i*len(sampleNames)/len(places))
	}
	if p.isRouter {
		if err := p.shard(ctx, t.router, schema, k); err != nil {
			return nil, err
		}
		if places, err = locate(t.router, schema, k); err != nil {
			return nil, err
		}
	}
	return newCast(k, places)
}

// shard declares the tables to the router.
func (p pair) shard(ctx context.Context, router *client, schema string, k keyType) error {
	names := make([]string, len(k.columns))
	types := make([]string, len(k.columns))
	for i, column := range k.columns {
		names[i] = column.name
		types[i], _, _ = strings.Cut(column.sql, "(")
	}
	var list []string
	for _, table := range []string{"orders", "items", "loaded"} {
		list = append(list, fmt.Sprintf("%s.%s(%s)", schema, table, strings.Join(names, ", ")))
	}
	how := fmt.Sprintf("strategy => 'range', split_at => '%s'", k.splitAt)
	if k.splitAt == "" {
		if _, err := p.api.CreateKeyspace(ctx, api.CreateKeyspace{Name: schema, Key: types, Seed: seed}); err != nil {
			return err
		}
		how = fmt.Sprintf("keyspace => '%s'", schema)
	}
	if err := router.simple(fmt.Sprintf("select cleave.shard_tables('%s', %s)", strings.Join(list, ", "), how)); err != nil {
		return err
	}
	return router.simple(fmt.Sprintf("select cleave.reference_table('%s.country')", schema))
}

// locate asks the router where each sample is.
func locate(router *client, schema string, k keyType) ([]string, error) {
	places := make([]string, len(k.samples))
	for i, sample := range k.samples {
		quoted := make([]string, len(sample))
		for j, value := range sample {
			quoted[j] = "'" + strings.ReplaceAll(value, "'", "''") + "'"
		}
		lines, err := router.run(step{text: fmt.Sprintf("select cleave.shard_of('%s.orders', %s)", schema, strings.Join(quoted, ", "))}, simplePass)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "row ") })
		if at < 0 {
			return nil, fmt.Errorf("where is %q: %q", sample, lines)
		}
		places[i] = lines[at]
	}
	return places, nil
}

// script fills a shape's steps in.
func (c *cast) script(shape script) (script, error) {
	s := script{name: shape.name}
	for _, st := range shape.steps {
		steps, err := c.expand(st)
		if err != nil {
			return s, fmt.Errorf("shapes/%s.sql:%d: %w", shape.name, st.line, err)
		}
		s.steps = append(s.steps, steps...)
	}
	return s, nil
}
