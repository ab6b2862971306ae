package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/cleavedb/cleave/bench/rig"
	"github.com/cleavedb/cleave/test/queries/tpch"
)

const createEvents = `CREATE TABLE events (user_id bigint NOT NULL, id bigint NOT NULL, kind int NOT NULL, amount numeric(12,2) NOT NULL, at timestamptz NOT NULL, note text NOT NULL);
	CREATE INDEX ON events (id)`

// users are those of the events.
const users = 100_000

// userOf is whose an event is.
func userOf(event int) int { return event * 7919 % users }

// events are the rows of the table, in the order of their numbers, and nearly in that of their time.
func events(count int) []byte {
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // no secrets
	began := time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)
	var rows bytes.Buffer
	for id := range count {
		at := began.Add(time.Duration(id)*time.Second + time.Duration(random.IntN(600_000))*time.Millisecond)
		fmt.Fprintf(&rows, "%d\t%d\t%d\t%d.%02d\t%s\tnote of event %d\n", userOf(id), id, random.IntN(20), random.IntN(10_000), random.IntN(100), at.Format("2006-01-02 15:04:05.000Z07"), id)
	}
	return rows.Bytes()
}

// makeEvents makes the table, once.
func (l *lab) makeEvents(ctx context.Context) error {
	if l.hasEvents {
		return nil
	}
	l.hasEvents = true
	return l.fill(ctx, createEvents, []string{"SELECT cleave.shard_table('events', 'user_id')"}, table{"events", events(l.options.rows)})
}

// both connects to both sides.
func (l *lab) both(ctx context.Context, first ...string) (clients [2]*client, err error) {
	for i, place := range l.urls() {
		if clients[i], err = connect(ctx, place, first); err != nil {
			return clients, err
		}
		l.closers = append(l.closers, func() error { clients[i].close(); return nil })
	}
	return clients, nil
}

// compareQuery measures a query on both sides, which have to answer alike.
func (l *lab) compareQuery(ctx context.Context, clients [2]*client, first []string, c comparison, sql string) (figure, error) {
	if err := l.sameAnswer(ctx, first, sql); err != nil {
		return figure{}, err
	}
	for i := range c.sides {
		c.sides[i] = func() error { _, err := clients[i].query(sql); return err }
	}
	return l.compare(ctx, c)
}

// measureEvents measures what can be computed by every shard for itself.
func (l *lab) measureEvents(ctx context.Context) error {
	if err := l.makeEvents(ctx); err != nil {
		return err
	}
	clients, err := l.both(ctx)
	if err != nil {
		return err
	}
	var figures []figure
	for _, one := range []struct{ name, sql string }{
		{"count and sum", "SELECT count(*), sum(amount) FROM events"},
		{"20 groups", "SELECT kind, count(*), sum(amount) FROM events GROUP BY kind ORDER BY kind"},
		{"the last 10", "SELECT * FROM events ORDER BY at DESC LIMIT 10"},
	} {
		f, err := l.compareQuery(ctx, clients, nil, comparison{name: one.name, most: 1.15}, one.sql)
		if err != nil {
			return err
		}
		figures = append(figures, f)
	}
	l.print(l.out, fmt.Sprintf("A table of %d events, time", l.options.rows), "router / plain", figures...)
	return nil
}

// measureLookup measures what it costs that all shards are asked for one row.
func (l *lab) measureLookup(ctx context.Context) error {
	if err := l.makeEvents(ctx); err != nil {
		return err
	}
	const byID, byKey = "by_id", "by_key"
	c, err := connect(ctx, l.urls()[ours], nil, statement{byID, "SELECT * FROM events WHERE id = $1"}, statement{byKey, "SELECT * FROM events WHERE user_id = $1 AND id = $2"})
	if err != nil {
		return err
	}
	defer c.close()
	random := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // no secrets
	one := func(rows int, err error) error {
		if err == nil && rows != 1 {
			err = fmt.Errorf("%d rows", rows)
		}
		return err
	}
	f, err := l.compare(ctx, comparison{name: "one row by an indexed column", most: 2, sides: [2]func() error{
		func() error { return one(c.execute(byID, strconv.Itoa(random.IntN(l.options.rows)))) },
		func() error {
			id := random.IntN(l.options.rows)
			return one(c.execute(byKey, strconv.Itoa(userOf(id)), strconv.Itoa(id)))
		},
	}})
	if err != nil {
		return err
	}
	l.print(l.out, "Through the router, time", "all shards / the key's shard", f)
	return nil
}

// measureJoin measures a join of tables in two keyspaces that no shard can do anything of.
func (l *lab) measureJoin(ctx context.Context) error {
	visits, places := l.options.rows/10, l.options.rows/100
	if err := l.keyspace(ctx, "of_places", "bigint"); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // no secrets
	var left, right bytes.Buffer
	for id := range visits {
		fmt.Fprintf(&left, "%d\t%d\t%d\t%d.%02d\n", random.IntN(users), id, random.IntN(places), random.IntN(1000), random.IntN(100))
	}
	for id := range places {
		fmt.Fprintf(&right, "%d\t%d\t%d\n", id, (id*7919+1)%places, random.IntN(20))
	}
	const create = "CREATE TABLE visits (user_id bigint NOT NULL, id bigint NOT NULL, place int NOT NULL, amount numeric(12,2) NOT NULL); CREATE TABLE places (id bigint NOT NULL, place int NOT NULL, kind int NOT NULL)"
	declare := []string{"SELECT cleave.shard_table('visits', 'user_id')", "SELECT cleave.shard_tables('places(id)', keyspace => 'of_places')"}
	if err := l.fill(ctx, create, declare, table{"visits", left.Bytes()}, table{"places", right.Bytes()}); err != nil {
		return err
	}
	clients, err := l.both(ctx)
	if err != nil {
		return err
	}
	f, err := l.compareQuery(ctx, clients, nil, comparison{name: fmt.Sprintf("%d × %d rows", visits, places), most: 3},
		"SELECT kind, count(*), sum(amount) FROM visits JOIN places USING (place) GROUP BY kind")
	if err != nil {
		return err
	}
	l.print(l.out, "A join across keyspaces, time", "router / plain", f)
	return nil
}

// measureTiny measures what it costs that a server finishes a statement, beyond getting the rows.
func (l *lab) measureTiny(ctx context.Context) error {
	if err := l.keyspace(ctx, "of_teams", "bigint"); err != nil {
		return err
	}
	var people, teams bytes.Buffer
	for id := range 20 {
		fmt.Fprintf(&people, "%d\t%d\n", id, id%5)
		fmt.Fprintf(&teams, "%d\tteam %d\n", id, id)
	}
	const create = "CREATE TABLE people (id bigint NOT NULL, team bigint NOT NULL); CREATE TABLE teams (id bigint NOT NULL, name text NOT NULL)"
	declare := []string{"SELECT cleave.shard_table('people', 'id')", "SELECT cleave.shard_tables('teams(id)', keyspace => 'of_teams')"}
	if err := l.fill(ctx, create, declare, table{"people", people.Bytes()}, table{"teams", teams.Bytes()}); err != nil {
		return err
	}
	const join = "SELECT p.id, t.name FROM people p JOIN teams t ON t.id = p.team"
	if err := l.sameAnswer(ctx, nil, join); err != nil {
		return err
	}
	prepared := []statement{{"joined", join}, {"people", "SELECT id, team FROM people"}, {"teams", "SELECT id, name FROM teams"}}
	c, err := connect(ctx, l.urls()[ours], nil, prepared...)
	if err != nil {
		return err
	}
	defer c.close()
	run := func(name string) func() error {
		return func() error { _, err := c.execute(name); return err }
	}
	var longest figure
	var took [2]time.Duration
	for _, pull := range []string{"people", "teams"} { // shards are asked for both at a time
		f, err := l.compare(ctx, comparison{name: "two tables of 20 rows", sides: [2]func() error{run("joined"), run(pull)}})
		if err != nil {
			return err
		}
		if pulled := rig.Median(f.times[theirs]); pulled > took[theirs] {
			longest, took = f, [2]time.Duration{rig.Median(f.times[ours]), pulled}
		}
	}
	more := took[ours] - took[theirs]
	const most = 2 * time.Millisecond
	l.print(l.out, "A statement that a server finishes, time", "joined / one pull", longest)
	fmt.Fprintf(l.out, "  beyond the pull: %.2f ms, %s\n", float64(more.Microseconds())/1000, verdict(fmt.Sprintf("≤ %v", most), more <= most))
	return nil
}

// measureTPCH measures all queries of TPC-H, each for itself, and all together.
func (l *lab) measureTPCH(ctx context.Context) error {
	for _, k := range tpch.Keyspaces {
		if err := l.keyspace(ctx, k.Name, k.Key); err != nil {
			return err
		}
	}
	data := tpch.Generate(tpch.Scale, seed)
	var tables []table
	for _, name := range tpch.Tables {
		tables = append(tables, table{"tpch." + name, data[name]})
	}
	const search = "SET search_path = tpch"
	if err := l.fill(ctx, "CREATE SCHEMA tpch; "+search+"; "+tpch.Create, tpch.Declare("tpch"), tables...); err != nil {
		return err
	}
	clients, err := l.both(ctx, search)
	if err != nil {
		return err
	}
	var figures []figure
	for _, q := range tpch.Queries() {
		if len(l.options.queries) > 0 && !slices.Contains(l.options.queries, q.Number) {
			continue
		}
		f, err := l.compareQuery(ctx, clients, []string{search}, comparison{name: fmt.Sprintf("Q%d %s", q.Number, q.Name)}, q.Literal())
		if err != nil {
			return err
		}
		figures = append(figures, f)
	}
	l.print(l.out, fmt.Sprintf("TPC-H at scale %g, time", tpch.Scale), "router / plain", append(figures, together(comparison{name: "all", most: 2}, figures))...)
	return nil
}
