package shard

import (
	"errors"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// TestFenceAndRecord writes what has changed since the last record, and comes to the same as a whole record; also if the shard has recorded something else.
func TestFenceAndRecord(t *testing.T) {
	c := newCluster(t, 2)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}))
	c.everywhere(t, "CREATE TABLE users (id bigint PRIMARY KEY, name text)")
	c.declare(t, "users", map[string][]string{"public.users": {"id"}})
	goes := strconv.FormatInt(keyIn(false, 1), 10)
	c.change(t, movingHalf(topology.RangeSpec{Shard: "s1", Copies: copyOn("s2", topology.Incoming)}), topology.SetPins("users", topology.PinSpec{Key: topology.Point{goes}, Shard: "s1", Copies: copyOn("s2", topology.Incoming)}))
	c.record(t)
	c.ownedViews(t)
	before := Prepare(c.m)
	c.change(t, movingHalf(topology.RangeSpec{Shard: "s1", Held: true, Copies: copyOn("s2", topology.Opening)}), topology.SetPins("users", topology.PinSpec{Key: topology.Point{goes}, Shard: "s1", Held: true, Copies: copyOn("s2", topology.Opening)}))
	now := Prepare(c.m)
	recorded, alive, reused := c.read(t), connectAsClient(t, specOf("s1", c.servers[0])), connectAsClient(t, specOf("s1", c.servers[0]))
	note := func(of *pgx.Conn, start string) {
		execute(t, c.conns[0], "INSERT INTO cleave.backends (pid, start, router) SELECT pid, backend_start + $2::interval, 'r' FROM pg_stat_activity WHERE pid = $1", of.PgConn().PID(), start)
	}
	note(alive, "0")
	note(reused, "-1 hour")
	delta := func(i int, to *Plan) *Delta {
		t.Helper()
		return must[*Delta](t)(to.Delta(shardName(i), before))
	}
	for i, conn := range c.conns {
		if err := delta(i, now).Rehearse(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(recorded, c.read(t), cmp.AllowUnexported(Keyspace{})); diff != "" {
		t.Errorf("a rehearsal is recorded:\n%s", diff)
	}
	execute(t, alive, "SELECT 1")
	for i, conn := range c.conns {
		if delta(i, now).script(c.m) == "" {
			t.Error("there is nothing to write at once")
		}
		if err := delta(i, now).FenceAndRecord(t.Context(), conn, c.m, 1, nil); err != nil {
			t.Fatal(err)
		}
		if mended, err := now.Mend(t.Context(), conn, shardName(i)); err != nil || mended > 0 {
			t.Errorf("%d guards of %s were not as they should be, %v", mended, shardName(i), err)
		}
	}
	if _, err := alive.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Error("a backend of a router that has not settled lives")
	}
	execute(t, reused, "SELECT 1") // its number was another one's
	for i, r := range c.read(t) {
		if findings := now.Verify(shardName(i), r); len(findings) > 0 {
			t.Errorf("%s: %+v", shardName(i), findings)
		}
	}
	again := c.read(t)
	c.record(t) // finds nothing to write
	if diff := cmp.Diff(again, c.read(t), cmp.AllowUnexported(Keyspace{})); diff != "" {
		t.Errorf("a whole record is another one:\n%s", diff)
	}
	c.change(t, movingHalf(topology.RangeSpec{Shard: "s2", Copies: copyOn("s1", topology.Leaving)}), topology.SetPins("users", topology.PinSpec{Key: topology.Point{goes}, Shard: "s2", Copies: copyOn("s1", topology.Leaving)}))
	later := Prepare(c.m)
	if err := delta(0, later).FenceAndRecord(t.Context(), c.conns[0], c.m, 1, nil); err != nil { // it has recorded a later map than that
		t.Fatal(err)
	}
	if findings := later.Verify("s1", c.read(t)[0]); len(findings) > 0 {
		t.Errorf("%+v", findings)
	}
}

// TestWhatWasWorkedOutBefore is recorded under whatever version it is published, for thousands of pins too; a map that has something else in it is recorded as any other.
func TestWhatWasWorkedOutBefore(t *testing.T) {
	c := newCluster(t, 2)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}))
	c.everywhere(t, "CREATE TABLE users (id bigint PRIMARY KEY, name text)")
	c.declare(t, "users", map[string][]string{"public.users": {"id"}})
	pins := func(held bool, state topology.CopyState) topology.Change {
		specs := make([]topology.PinSpec, 3000)
		for i := range specs {
			specs[i] = topology.PinSpec{Key: topology.Point{strconv.Itoa(i)}, Shard: "s1", Held: held, Copies: copyOn("s2", state)}
		}
		return topology.SetPins("users", specs...)
	}
	c.change(t, pins(false, topology.Incoming))
	c.record(t)
	c.ownedViews(t)
	before, announced := Prepare(c.m), c.m
	c.change(t, pins(true, topology.Opening))
	closes := Prepare(c.m)
	check := func(what string, i int, atOnce bool) {
		t.Helper()
		delta := must[*Delta](t)(closes.Delta(shardName(i), before))
		if (delta.script(c.m) != "") != atOnce {
			t.Errorf("%s: it is written at once, or is not", what)
		}
		if err := delta.FenceAndRecord(t.Context(), c.conns[i], c.m, 1, nil); err != nil {
			t.Fatal(err)
		}
		if findings := Prepare(c.m).Verify(shardName(i), c.read(t)[i]); len(findings) > 0 {
			t.Errorf("%s: %+v", what, findings)
		}
		if mended, err := Prepare(c.m).Mend(t.Context(), c.conns[i], shardName(i)); err != nil || mended > 0 {
			t.Errorf("%s: %d guards were not as they should be, %v", what, mended, err)
		}
	}
	c.m = announced
	c.change(t, pins(true, topology.Incoming), topology.UpdateShard("s1", func(s *topology.ShardSpec) { s.MinimumVersion = 2 }))
	c.change(t, pins(true, topology.Opening))
	check("the same under another version", 0, true)
	c.change(t, topology.SetTable(topology.TableSpec{Name: "alone", Kind: topology.Single, Shard: "s1"}))
	check("another map", 1, false)
}

// TestGuardsAreWatchfulInTime: they are put up and taken down table by table, and no record does either.
func TestGuardsAreWatchfulInTime(t *testing.T) {
	c := newCluster(t, 2)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}))
	c.everywhere(t, "CREATE TABLE users (id bigint PRIMARY KEY, name text)")
	c.declare(t, "users", map[string][]string{"public.users": {"id"}})
	c.record(t)
	users := topology.TableName{Schema: "public", Name: "users"}
	watched := func() bool {
		return one[bool](t, c.conns[0], "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgname = $1)", deleteGuard)
	}
	if err := Prepare(c.m).Watch(t.Context(), c.conns[0], "s1", users); err != nil {
		t.Fatal(err)
	}
	if !watched() {
		t.Error("the guard is not watchful")
	}
	c.change(t, topology.UpdateShard("s2", func(spec *topology.ShardSpec) { spec.Weight = 2 }))
	c.record(t)
	if mended, err := Prepare(c.m).Mend(t.Context(), c.conns[0], "s1"); err != nil || mended > 0 {
		t.Errorf("%d guards were mended, %v", mended, err)
	}
	if findings, err := Prepare(c.m).CheckGuards(t.Context(), c.conns[0], "s1"); err != nil || len(findings) > 0 {
		t.Errorf("%+v, %v", findings, err)
	}
	if !watched() {
		t.Error("a record has taken the guard down")
	}
	outdated := Prepare(c.m)
	c.change(t, topology.UpdateShard("s2", func(spec *topology.ShardSpec) { spec.Weight = 3 }))
	c.record(t)
	var newer *NewerError
	if err := outdated.Relax(t.Context(), c.conns[0], "s1", users); !errors.As(err, &newer) || !watched() {
		t.Errorf("by an outdated map: %v", err)
	}
	if err := Prepare(c.m).Relax(t.Context(), c.conns[0], "s1", users); err != nil {
		t.Fatal(err)
	}
	if watched() {
		t.Error("the guard is watchful still")
	}
}

// TestSelections say which rows have keys of a set, in the same words everywhere.
func TestSelections(t *testing.T) {
	c := newCluster(t, 1)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}))
	in, out := keyIn(true, 1), keyIn(true, 1000)
	pinned := keyIn(false, 1)
	c.change(t, topology.ReplaceRanges("users", []topology.RangeSpec{{Shard: "s1"}, {From: hashAt("8"), Shard: "s1"}}, topology.Assignment{}),
		topology.SetPins("users", topology.PinSpec{Key: topology.Point{strconv.FormatInt(out, 10)}, Shard: "s1"}, topology.PinSpec{Key: topology.Point{strconv.FormatInt(pinned, 10)}, Shard: "s1"}))
	k := c.m.Keyspace("users")
	s, err := Select(k, func(r topology.Range) bool { return r.Hash.Lo == 1<<63 }, func(p topology.Pin) bool {
		key, err := k.Texts(p.Encoded)
		return err == nil && key[0] == strconv.FormatInt(pinned, 10)
	})
	if err != nil {
		t.Fatal(err)
	}
	where, err := s.Condition([]string{"k"})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[int64]bool{in: true, out: false, pinned: true, keyIn(false, 5000): false, keyIn(true, 5000): true} {
		if got := one[bool](t, c.conns[0], "SELECT "+where+" FROM (VALUES ($1::bigint)) AS t (k)", key); got != want {
			t.Errorf("key %d: %v", key, got)
		}
	}
	execute(t, c.conns[0], "CREATE TABLE public.filtered (k bigint PRIMARY KEY)")
	execute(t, c.conns[0], "CREATE PUBLICATION filtered FOR TABLE public.filtered WHERE ("+where+")")
}

// TestATransactionThatBeganBeforeTheOwnerChanged: it has the table locked, so that its server need not hear of another guard, and writes a row that belongs there by now.
func TestATransactionThatBeganBeforeTheOwnerChanged(t *testing.T) {
	c := newCluster(t, 2)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}))
	c.everywhere(t, "CREATE TABLE users (id bigint PRIMARY KEY, name text)")
	c.declare(t, "users", map[string][]string{"public.users": {"id"}})
	c.change(t, topology.ReplaceRanges("users", []topology.RangeSpec{{Shard: "s2"}, {From: hashAt("8"), Shard: "s1", Copies: copyOn("s2", topology.Incoming)}}, topology.Assignment{}))
	c.record(t)
	c.ownedViews(t)
	routers := c.routers(t)
	execute(t, routers[1], "BEGIN")
	execute(t, routers[1], "INSERT INTO users VALUES ($1)", keyIn(false, 1))
	_, err := routers[1].Exec(t.Context(), "SAVEPOINT s")
	if err == nil {
		_, err = routers[1].Exec(t.Context(), "INSERT INTO users VALUES ($1)", keyIn(true, 1))
	}
	refusedAs(t, pgerr.NotOwned, err, "a row before the owner changes")
	execute(t, routers[1], "ROLLBACK TO s")
	c.change(t, topology.ReplaceRanges("users", []topology.RangeSpec{{Shard: "s2"}, {From: hashAt("8"), Shard: "s1", Held: true, Copies: copyOn("s2", topology.Opening)}}, topology.Assignment{}))
	c.record(t)
	execute(t, routers[1], "INSERT INTO users VALUES ($1)", keyIn(true, 1))
	execute(t, routers[1], "COMMIT")
}

// BenchmarkDelta is what is left to do while statements are held, when what a shard records was worked out before: with a million pins, and 150,000 ranges.
func BenchmarkDelta(b *testing.B) {
	const shards, pins = 1000, 1_000_000
	c := withoutServers(b, shards)
	spec := topology.NewKeyspaceSpec("users", topology.ByHash, 7, "bigint")
	var err error
	if spec.Ranges, spec.Assignment, err = c.m.Assign(topology.Assignment{Algorithm: "ring", VirtualNodes: 150}); err != nil {
		b.Fatal(err)
	}
	for i := range pins {
		spec.Pins = append(spec.Pins, topology.PinSpec{Key: topology.Point{strconv.Itoa(i)}, Shard: shardName(i % shards)})
	}
	c.change(b, topology.CreateKeyspace(spec))
	c.change(b, topology.SetPins("users", topology.PinSpec{Key: topology.Point{"0"}, Shard: "s1", Copies: copyOn("s2", topology.Incoming)}))
	before, announced := Prepare(c.m), c.m
	closed := topology.SetPins("users", topology.PinSpec{Key: topology.Point{"0"}, Shard: "s1", Held: true, Copies: copyOn("s2", topology.Opening)})
	c.change(b, closed)
	worked := must[*Delta](b)(Prepare(c.m).Delta("s1", before))
	c.m = announced
	c.change(b, topology.UpdateShard("s1", func(spec *topology.ShardSpec) { spec.MinimumVersion = 3 }))
	c.change(b, closed)
	b.Run("worked out before", func(b *testing.B) {
		for b.Loop() {
			if worked.script(c.m) == "" {
				b.Fatal("it is of another map")
			}
		}
	})
	b.Run("worked out now", func(b *testing.B) {
		for b.Loop() {
			must[*Delta](b)(Prepare(c.m).Delta("s1", before))
		}
	})
}
