package shard

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

// movingHalf is a range that moves from s1 to s2, and the other half, which stays.
func movingHalf(moves topology.RangeSpec) topology.Change {
	moves.From = hashAt("8")
	return topology.ReplaceRanges("users", []topology.RangeSpec{{Shard: "s1"}, moves}, topology.Assignment{})
}

func copyOn(shard string, state topology.CopyState) []topology.CopySpec {
	return []topology.CopySpec{{Shard: shard, State: state}}
}

// keyIn returns a key of the range that moves, or of the other one.
func keyIn(moving bool, from int64) int64 {
	for ; (key.HashInt(from, 1) >= 1<<63) != moving; from++ {
	}
	return from
}

// TestGuardsInAMove: at every moment of a move one shard at most takes its rows; which one changes without a lock on the table.
func TestGuardsInAMove(t *testing.T) {
	c := newCluster(t, 2)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}))
	c.everywhere(t, "CREATE TABLE users (id bigint, name text)")
	c.declare(t, "users", map[string][]string{"public.users": {"id"}})
	for _, conn := range c.conns { // both have all rows, as if they had been copied
		execute(t, conn, "SET session_replication_role = replica")
		execute(t, conn, "INSERT INTO public.users SELECT generate_series(1, 2000)")
	}
	routers, users := c.routers(t), []topology.TableName{{Schema: "public", Name: "users"}}
	move := func(spec topology.RangeSpec) {
		t.Helper()
		c.change(t, movingHalf(spec))
		c.record(t)
	}
	move(topology.RangeSpec{Shard: "s1", Copies: copyOn("s2", topology.Incoming)})
	writer := c.routers(t)[0] // it would stand in the way of a lock
	execute(t, writer, "BEGIN")
	execute(t, writer, "INSERT INTO users VALUES ($1)", keyIn(false, 5000))
	for _, phase := range []struct {
		name  string
		spec  topology.RangeSpec
		taker int // 0: s1
	}{
		{"incoming", topology.RangeSpec{Shard: "s1", Copies: copyOn("s2", topology.Incoming)}, 0},
		{"held", topology.RangeSpec{Shard: "s1", Held: true, Copies: copyOn("s2", topology.Incoming)}, 0},
		{"opening", topology.RangeSpec{Shard: "s1", Held: true, Copies: copyOn("s2", topology.Opening)}, 1},
		{"held again", topology.RangeSpec{Shard: "s1", Held: true, Copies: copyOn("s2", topology.Incoming)}, 0},
		{"opening again", topology.RangeSpec{Shard: "s1", Held: true, Copies: copyOn("s2", topology.Opening)}, 1},
		{"leaving", topology.RangeSpec{Shard: "s2", Copies: copyOn("s1", topology.Leaving)}, 1},
		{"going back", topology.RangeSpec{Shard: "s2", Held: true, Copies: copyOn("s1", topology.Opening)}, 0},
	} {
		move(phase.spec)
		takes(t, routers, phase.name, true, phase.taker)
		takes(t, routers, phase.name, false, 0)
		other := must[*topology.Map](t)(c.m.Next(movingHalf(topology.RangeSpec{Shard: "s2", Copies: copyOn("s1", topology.Incoming)})))
		if same := Prepare(c.m).SameGuards(Prepare(other), users); same != (phase.taker == 1) {
			t.Errorf("%s: guards that take other rows are the same: %v", phase.name, same)
		}
	}
	execute(t, writer, "COMMIT")
	move(topology.RangeSpec{Shard: "s2"})
	_, err := routers[0].Exec(t.Context(), "INSERT INTO users VALUES ($1)", keyIn(true, 100))
	refusedAs(t, pgerr.NotOwned, err, "a row that has moved")
	execute(t, routers[1], "INSERT INTO users VALUES ($1)", keyIn(true, 100))
	for i, conn := range c.conns {
		if err := Prepare(c.m).Relax(t.Context(), conn, shardName(i), topology.TableName{Schema: "public", Name: "users"}); err != nil {
			t.Fatal(err)
		}
		if n := one[int](t, conn, "SELECT count(*) FROM pg_trigger WHERE tgname = 'cleave_guard_delete'"); n != 0 {
			t.Errorf("shard %d is still watchful", i+1)
		}
		if left := must[[]topology.TableName](t)(guardFaults(t, c, conn, i)); len(left) > 0 {
			t.Errorf("guards of %v are not as they should be", left)
		}
	}
}

// TestPinsThatMoveAndOldSnapshots: a single key goes to another shard while a transaction past the routers keeps a snapshot in which it does not. A row of it would be written where nobody looks for it, so the transaction is refused.
func TestPinsThatMoveAndOldSnapshots(t *testing.T) {
	c := newCluster(t, 2)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}), topology.ReplaceRanges("users", []topology.RangeSpec{{Shard: "s1"}}, topology.Assignment{}))
	c.everywhere(t, "CREATE TABLE users (id bigint, name text)")
	c.declare(t, "users", map[string][]string{"public.users": {"id"}})
	pin := func(p topology.PinSpec) {
		t.Helper()
		p.Key = topology.Point{"7"}
		c.change(t, topology.SetPins("users", p))
		c.record(t)
	}
	pin(topology.PinSpec{Shard: "s1"})
	pin(topology.PinSpec{Shard: "s1", Copies: copyOn("s2", topology.Incoming)})
	conn := c.conns[0]
	execute(t, conn, "SET cleave.router = 'by hand'")
	execute(t, conn, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	execute(t, conn, "SELECT count(*) FROM pg_class")
	other := connectAsClient(t, specOf("s1", c.servers[0]))
	execute(t, other, "SET cleave.router = 'by hand'")
	c.conns[0] = connectAsClient(t, specOf("s1", c.servers[0]))
	pin(topology.PinSpec{Shard: "s2", Copies: copyOn("s1", topology.Leaving)})
	_, err := conn.Exec(t.Context(), "INSERT INTO public.users VALUES (7)")
	refusedAs(t, pgerr.SerializationFailure, err, "a row of a key that has moved, written with an older snapshot")
	execute(t, conn, "ROLLBACK")
	_, err = other.Exec(t.Context(), "INSERT INTO public.users VALUES (7)")
	refusedAs(t, pgerr.NotOwned, err, "a row of a key that has moved")
	execute(t, other, "INSERT INTO public.users VALUES (8)")
}

func guardFaults(t *testing.T, c *cluster, conn *pgx.Conn, at int) (faulty []topology.TableName, err error) {
	t.Helper()
	guards := must[[]guard](t)(Prepare(c.m).guardsOf(c.m.ShardByNumber(at + 1)))
	standing, err := standingGuards(t.Context(), conn)
	for _, g := range guards {
		if g.fault(standing[g.table]) != "" {
			faulty = append(faulty, g.table)
		}
	}
	return faulty, err
}

// takes wants one shard to let rows of the range be inserted, updated and deleted, and the other to refuse all of that.
func takes(t *testing.T, routers []*pgx.Conn, when string, moving bool, taker int) {
	t.Helper()
	for i, conn := range routers {
		there, other := keyIn(moving, 100), keyIn(!moving, 100)
		statements := map[string]string{
			"insert": fmt.Sprintf("INSERT INTO users VALUES (%d)", there), "update": fmt.Sprintf("UPDATE users SET name = 'x' WHERE id = %d", there),
			"delete": fmt.Sprintf("DELETE FROM users WHERE id = %d", there), "update the key": fmt.Sprintf("UPDATE users SET id = %d WHERE id = %d", keyIn(moving, there+1), there),
		}
		if i != taker { // a row that is not the shard's does not become its own
			statements["update to another key"] = fmt.Sprintf("UPDATE users SET id = %d WHERE id = %d", other, there)
		}
		for name, sql := range statements {
			execute(t, conn, "BEGIN")
			_, err := conn.Exec(t.Context(), sql)
			execute(t, conn, "ROLLBACK")
			if i == taker && err != nil {
				t.Errorf("%s: shard %d refuses to %s: %v", when, i+1, name, err)
			}
			if i != taker {
				refusedAs(t, pgerr.NotOwned, err, "%s: to %s on shard %d", when, name, i+1)
			}
		}
	}
}

// TestPinsInAMove: a pin of the shard that its range leaves stays, and one that moves goes, whatever the range does.
func TestPinsInAMove(t *testing.T) {
	c := newCluster(t, 2)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}))
	c.everywhere(t, "CREATE TABLE users (id bigint, name text)")
	c.declare(t, "users", map[string][]string{"public.users": {"id"}})
	stays, goes := keyIn(true, 1), keyIn(false, 1)
	pin := func(key int64, spec topology.PinSpec) topology.Change {
		spec.Key = topology.Point{strconv.FormatInt(key, 10)}
		return topology.SetPins("users", spec)
	}
	c.change(t, pin(stays, topology.PinSpec{Shard: "s1"}), pin(goes, topology.PinSpec{Shard: "s1"}))
	c.record(t)
	routers := c.routers(t)
	insertable := func(when string, key int64, taker int) {
		t.Helper()
		for i, conn := range routers {
			execute(t, conn, "BEGIN")
			_, err := conn.Exec(t.Context(), "INSERT INTO users VALUES ($1)", key)
			execute(t, conn, "ROLLBACK")
			if (err == nil) != (i == taker) {
				t.Errorf("%s: inserting key %d on shard %d: %v", when, key, i+1, err)
			}
		}
	}
	insertable("before", stays, 0)
	insertable("before", goes, 0)
	c.change(t, movingHalf(topology.RangeSpec{Shard: "s1", Held: true, Copies: copyOn("s2", topology.Opening)}), pin(goes, topology.PinSpec{Shard: "s1", Held: true, Copies: copyOn("s2", topology.Opening)}))
	c.record(t)
	insertable("opening", stays, 0)
	insertable("opening", goes, 1)
	insertable("opening", keyIn(true, stays+1), 1)
	insertable("opening", keyIn(false, goes+1), 0)
	c.change(t, movingHalf(topology.RangeSpec{Shard: "s2", Copies: copyOn("s1", topology.Leaving)}), pin(goes, topology.PinSpec{Shard: "s2", Copies: copyOn("s1", topology.Leaving)}))
	c.record(t)
	insertable("leaving", stays, 0)
	insertable("leaving", goes, 1)
	insertable("leaving", keyIn(true, stays+1), 1)
}
