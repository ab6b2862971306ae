package moves_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/test/faults"
)

// ledger is load on two tables that refer to each other and are on one shard alone: entries with numbers from a sequence, each with a line, in one transaction or in two statements. It knows what was acknowledged.
type ledger struct {
	s *stage
	// schema that has the tables, which a keyspace places; empty: they are tables by themselves.
	schema string
	faulty bool // errors are expected, and only what was acknowledged counts
	end    context.CancelFunc
	wait   sync.WaitGroup
	done   atomic.Int64
	// rebuilt: the map is made anew, and until the move has ended a shard may refuse what it has.
	rebuilt atomic.Bool

	mu       sync.Mutex
	entries  map[int64]string // acknowledged
	unclear  map[string]bool  // notes of entries of which nobody knows
	problems []string
}

var ledgerTables = []string{"ledger", "ledger_lines"}

// tenants is the keyspace that places the schema.
const tenants = "tenants"

// request asks for the tables to be moved, by themselves or with their schema.
func (l *ledger) request(to string) api.StartMove {
	request := api.StartMove{To: to, Tables: ledgerTables}
	if l.schema != "" {
		request = api.StartMove{To: to, Keyspace: tenants, Keys: [][]string{{l.schema}}}
	}
	if !thorough.Asked() {
		request.Throttle = of(false) // beside other tests moves would give way to those
	}
	return request
}

// paths are the search paths of clients, who name tables without a schema.
func (l *ledger) path(who int) string {
	switch {
	case l.schema == "":
		return "public"
	case who%2 == 0:
		return l.schema
	default:
		return l.schema + ", public"
	}
}

// names are those of the tables, with their schema.
func (l *ledger) names() (names []string) {
	for _, name := range ledgerTables {
		names = append(names, cmp.Or(l.schema, "public")+"."+name)
	}
	return names
}

func newLedger(t *testing.T, s *stage, schema string) *ledger {
	t.Helper()
	l := &ledger{s: s, schema: schema, entries: map[int64]string{}, unclear: map[string]bool{}}
	conn := s.dial(t, s.Routers[0])
	if schema != "" {
		if _, err := s.Routers[0].API().CreateKeyspace(t.Context(), api.CreateKeyspace{Name: tenants, Strategy: topology.BySchema}); err != nil {
			t.Fatal(err)
		}
	}
	for _, sql := range []string{
		"CREATE TABLE kinds (kind text PRIMARY KEY)", "INSERT INTO kinds VALUES ('a'), ('b')", "SELECT cleave.reference_table('kinds')",
		"CREATE SCHEMA IF NOT EXISTS " + cmp.Or(schema, "public"), "SET search_path = " + l.path(1),
		"CREATE TABLE ledger (id bigserial PRIMARY KEY, note text NOT NULL UNIQUE, kind text NOT NULL REFERENCES kinds, total bigint NOT NULL DEFAULT 0, big text)",
		"CREATE TABLE ledger_lines (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ledger_id bigint NOT NULL REFERENCES ledger ON DELETE CASCADE, n int NOT NULL)",
		"CREATE TRIGGER changes BEFORE UPDATE ON ledger FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
		"CREATE INDEX ON ledger_lines (ledger_id)",
		"INSERT INTO ledger (note, kind, big) SELECT 'first ' || i, 'a', repeat(md5(i::text), 100) FROM generate_series(1, 2000) AS i",
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	t.Cleanup(func() {
		for _, p := range l.problems {
			t.Error(p)
		}
	})
	return l
}

// faultyLedger has writers that are used to errors.
func faultyLedger(t *testing.T, s *stage, writers int, schema string) *ledger {
	t.Helper()
	l := newLedger(t, s, schema)
	l.faulty = true
	l.start(t.Context(), writers)
	return l
}

func (s *stage) dial(t *testing.T, r *faults.Router) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), "postgres://postgres@"+r.Listen+"/postgres?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (l *ledger) start(ctx context.Context, writers int) {
	ctx, l.end = context.WithCancel(ctx)
	for i := range writers {
		l.wait.Go(func() { l.write(ctx, i) })
	}
	l.wait.Go(func() { l.read(ctx) })
}

func (l *ledger) stop() {
	l.end()
	l.wait.Wait()
}

func (l *ledger) problem(format string, arguments ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.problems) < 20 {
		l.problems = append(l.problems, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, arguments...))
	}
}

// connected runs work with a connection to one router after the other, and makes another one whenever it fails.
func (l *ledger) connected(ctx context.Context, who int, work func(*pgx.Conn) error) {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close(context.Background())
		}
	}()
	for i := who; ctx.Err() == nil; {
		if conn == nil {
			i++
			dialling, cancel := context.WithTimeout(ctx, 5*time.Second)
			var err error
			conn, err = pgx.Connect(dialling, "postgres://postgres@"+l.s.Routers[i%len(l.s.Routers)].Listen+"/postgres?sslmode=disable&search_path="+url.QueryEscape(l.path(who)))
			cancel()
			if err != nil {
				conn = nil
				if !l.faulty && ctx.Err() == nil {
					l.problem("connect: %v", err)
				}
				time.Sleep(20 * time.Millisecond)
				continue
			}
		}
		err := work(conn)
		if err == nil || ctx.Err() != nil {
			l.done.Add(1)
			time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond) // or moves beside other tests have nothing left of few processors to catch up with
			continue
		}
		var refused *pgconn.PgError
		if !l.faulty {
			l.problem("%d failed: %v", who, err)
		} else if errors.As(err, &refused) && !explainedByFaults(refused.Code) && (!l.rebuilt.Load() || refused.Code != pgerr.NotOwned) {
			l.problem("%d failed: %v", who, err)
		}
		_ = conn.Close(context.Background())
		conn = nil
	}
}

func explainedByFaults(code string) bool {
	return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57") || code == "40001" || code == "40003" || code == "CL003" || code == "25P02"
}

// addLines adds two lines to an entry, and to its total.
const addLines = "WITH added AS (INSERT INTO ledger_lines (ledger_id, n) VALUES ($1, 1), ($1, 2) RETURNING n) UPDATE ledger SET total = total + (SELECT sum(n) FROM added) WHERE id = $1"

// write adds an entry with two lines, again and again: every other one in a transaction.
func (l *ledger) write(ctx context.Context, who int) {
	n := 0
	l.connected(ctx, who, func(conn *pgx.Conn) error {
		n++
		time.Sleep(l.s.load.Think / 4) // or a subscription, which is one process, would not keep up with all of them
		note := fmt.Sprintf("%d %d", who, n)
		l.mu.Lock()
		l.unclear[note] = true
		l.mu.Unlock()
		var id int64
		if n%2 == 0 {
			if err := conn.QueryRow(ctx, "INSERT INTO ledger (note, kind) VALUES ($1, 'b') RETURNING id", note).Scan(&id); err != nil {
				return err
			}
			l.acknowledge(id, note)
			_, err := conn.Exec(ctx, addLines, id)
			return err
		}
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := tx.QueryRow(ctx, "INSERT INTO ledger (note, kind) VALUES ($1, 'a') RETURNING id", note).Scan(&id); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, addLines, id)
			return err
		})
		if err == nil {
			l.acknowledge(id, note)
		}
		return err
	})
}

func (l *ledger) acknowledge(id int64, note string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other, twice := l.entries[id]; twice {
		l.problems = append(l.problems, fmt.Sprintf("number %d was given to %q and to %q", id, other, note))
	}
	l.entries[id] = note
	delete(l.unclear, note)
}

// read sees that no acknowledged entry is missing at any moment, and that totals are those of the lines.
func (l *ledger) read(ctx context.Context) {
	l.connected(ctx, 1, func(conn *pgx.Conn) error {
		l.mu.Lock()
		least := len(l.entries)
		l.mu.Unlock()
		var count, wrong int
		err := conn.QueryRow(ctx, "SELECT (SELECT count(*) FROM ledger) - 2000, (SELECT sum(total) FROM ledger) - coalesce((SELECT sum(n) FROM ledger_lines), 0)").Scan(&count, &wrong)
		if err == nil && (count < least || wrong != 0) {
			l.problem("%d entries were read, %d had been acknowledged; totals are wrong by %d", count, least, wrong)
		}
		time.Sleep(20 * time.Millisecond)
		return err
	})
}

// check compares all that is there with what was acknowledged, and sees that one shard alone has the tables.
func (l *ledger) check(t *testing.T, owner string) {
	t.Helper()
	rows, err := l.s.dial(t, l.s.Routers[0]).Query(t.Context(), "SELECT id, note FROM "+l.names()[0]+" WHERE note !~ '^first'")
	if err != nil {
		t.Fatal(err)
	}
	there := map[int64]string{}
	var id int64
	var note string
	if _, err := pgx.ForEachRow(rows, []any{&id, &note}, func() error { there[id] = note; return nil }); err != nil {
		t.Fatal(err)
	}
	for id, note := range l.entries {
		if there[id] != note {
			t.Errorf("entry %d is %q, and was acknowledged as %q", id, there[id], note)
		}
		delete(there, id)
	}
	for id, note := range there {
		if !l.unclear[note] {
			t.Errorf("entry %d, %q, was never written", id, note)
		}
	}
	l.isOn(t, owner)
}

// isOn sees that one shard alone has the tables.
func (l *ledger) isOn(t *testing.T, owner string) {
	t.Helper()
	err := l.s.EachShard(t.Context(), func(i int, conn *pgx.Conn) error {
		for _, table := range l.names() {
			var has bool
			if err := conn.QueryRow(t.Context(), "SELECT to_regclass($1) IS NOT NULL", table).Scan(&has); err != nil {
				return err
			}
			if name := l.s.Shards[i].Name; has != (name == owner) {
				t.Errorf("shard %s has table %s: %t, and shard %s owns it", name, table, has, owner)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestWholeTablesMove while everybody writes to them: nobody notices, and they can be rolled back and cancelled.
func TestWholeTablesMove(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 3}, 0)
	playLedger(t, s, newLedger(t, s, ""))
}

// TestASchemaMoves with all of its tables, as a tenant that has a schema does: nobody notices, whether names have their schema from the search path alone or not, and in the meantime nothing can be made in it.
func TestASchemaMoves(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 3}, 0)
	playLedger(t, s, newLedger(t, s, "acme"))
	m, err := s.Routers[0].API().Map(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range m.Tables() {
		if table.Name().Schema == "acme" {
			t.Errorf("the map lists table %s though nothing moves", table.Name())
		}
	}
}

// playLedger moves the tables from shard to shard, back, and nowhere.
func playLedger(t *testing.T, s *stage, l *ledger) {
	t.Helper()
	l.start(t.Context(), 4)
	defer l.stop()
	move := func(to string, keep float64, ends string) api.Move {
		t.Helper()
		before, request := l.done.Load(), l.request(to)
		request.KeepSeconds = keep
		id := s.start(t, request)
		m := s.await(t, id, ends)
		t.Logf("to %s: held for %v ms, %d statements", to, m.Switches, l.done.Load()-before)
		return m
	}
	move("s3", 0, "done")
	l.isOn(t, "s3")
	if thorough.Asked() {
		move("s2", 0, "done")
		move("s3", 0, "done")
	}
	kept := move("s1", 600, "switched")
	time.Sleep(200 * time.Millisecond)
	l.refusesStrangers(t, 2)
	s.wish(t, kept.ID, "roll back")
	s.await(t, kept.ID, "rolled back")
	l.isOn(t, "s3")
	request := l.request("s2")
	request.Manual = true
	manual := s.start(t, request)
	s.await(t, manual, "ready")
	refusesDefinitions(t, s, l)
	if l.schema != "" {
		l.refusesMoves(t)
	}
	l.refusesStrangers(t, 1)
	s.wish(t, manual, "cancel")
	s.await(t, manual, "cancelled")
	to := drain(t, s, l, "s3")
	l.stop()
	l.check(t, to)
	s.clean(t)
	t.Logf("%d statements", l.done.Load())
}

// refusesDefinitions sees that nothing about the tables can be changed, nor anything be made in a schema that moves.
func refusesDefinitions(t *testing.T, s *stage, l *ledger) {
	t.Helper()
	conn := s.dial(t, s.Routers[1])
	definitions := []string{"ALTER TABLE ledger ADD COLUMN more int", "DROP TABLE ledger_lines", "TRUNCATE ledger_lines"}
	if l.schema != "" {
		definitions = append(definitions, "CREATE TABLE acme.more (id int)", "CREATE TYPE acme.mood AS ENUM ('good')", "CREATE FUNCTION acme.one() RETURNS int LANGUAGE sql RETURN 1", "CREATE VIEW acme.seen AS SELECT id FROM ledger")
	}
	for _, sql := range append([]string{"SET search_path = " + l.path(0)}, definitions...) {
		_, err := conn.Exec(t.Context(), sql)
		var refused *pgconn.PgError
		if sql[:3] != "SET" && (!errors.As(err, &refused) || refused.Code != "55006") {
			t.Errorf("%s while the table moves: %v", sql, err)
		}
	}
}

// refusesMoves sees that tables which move with their schema are not moved by themselves too.
func (l *ledger) refusesMoves(t *testing.T) {
	t.Helper()
	client := l.s.Routers[0].API()
	if moves, err := client.StartMoves(t.Context(), api.StartMove{To: "s1", Tables: l.names()}); err == nil {
		t.Errorf("tables of a schema that moves are moved by themselves: %+v", moves)
	}
	if m, err := client.Map(t.Context()); err != nil || m.Table(l.schema, "ledger") == nil {
		t.Errorf("the map does not list the tables: %v", err)
	}
	plan, err := client.PlanRebalance(t.Context(), api.PlanRebalance{Drain: "s3"})
	if err != nil {
		t.Fatal(err)
	}
	for _, move := range plan.Moves {
		if len(move.Tables) > 0 {
			t.Errorf("a plan moves tables of a schema that moves by themselves: %+v", move)
		}
	}
}

// drain plans that a shard gives all it has, the tables among that, does it, and returns who has them then.
func drain(t *testing.T, s *stage, l *ledger, shard string) (taker string) {
	t.Helper()
	plan, err := s.Routers[0].API().PlanRebalance(t.Context(), api.PlanRebalance{Drain: shard})
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(plan.Moves, func(m api.RebalanceMove) bool {
		return len(m.Tables) == len(ledgerTables) || l.schema != "" && slices.ContainsFunc(m.Keys, func(key []string) bool { return key[0] == l.schema })
	})
	if at < 0 || plan.Moves[at].Bytes == 0 {
		t.Fatalf("draining the shard does not move its tables: %+v", plan.Moves)
	}
	drained, err := s.Routers[0].API().ApplyRebalance(t.Context(), plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range drained.Moves {
		s.await(t, m.ID, "done")
	}
	return plan.Moves[at].To
}

// refusesStrangers sees that a shard that does not own the tables refuses every change of them.
func (l *ledger) refusesStrangers(t *testing.T, shard int) {
	t.Helper()
	conn, err := l.s.Shards[shard].Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), "SET search_path = "+l.path(1)); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{"INSERT INTO ledger (note, kind) VALUES ('stranger', 'a')", "UPDATE ledger SET total = 0", "DELETE FROM ledger", "TRUNCATE ledger_lines"} {
		var refused *pgconn.PgError
		if _, err := conn.Exec(t.Context(), sql); !errors.As(err, &refused) || refused.Code != "CL001" {
			t.Errorf("%s on a shard that does not own the table: %v", sql, err)
		}
	}
}

// wholePoints are where the leader is killed while whole tables move, schemaPoints those that are about schemas alone.
var wholePoints = []crashPoint{
	{row: "W1", point: "move.preparing"},
	{row: "W1 a trigger", point: "move.watched"},
	{row: "W1 tables", point: "move.tables.made"},
	{row: "W2", point: "move.copy.rows", hit: 2},
	{row: "W3", point: "move.copied"},
	{row: "W3a", point: "move.complete.part"},
	{row: "W3a all", point: "move.catching-up"},
	{row: "W3b", point: "move.tied"},
	{row: "W3b valid", point: "move.validated"},
	{row: "W4", point: "move.switch.hold"},
	{row: "W5 published", point: "move.switch.published"},
	{row: "W5", point: "move.switch.fence"},
	{row: "W6", point: "move.switch.close"},
	{row: "W7 the owner's numbers", point: "move.switch.carried"},
	{row: "W7 numbers", point: "move.switch.numbers"},
	{row: "W7", point: "move.switch.pass"},
	{row: "W8", point: "move.switch.open", always: true},
	{row: "W9", point: "move.cleaning"},
	{row: "W9 dropped", point: "move.tables.dropped"},
	{row: "M24", point: "move.tables.forgotten"},
	{row: "M24a", point: "move.forgotten"},
	{row: "W10", point: "move.cancelling", when: "ready", wish: "cancel", ends: "cancelled"},
	{row: "W10 dropped", point: "move.tables.dropped", when: "ready", wish: "cancel", ends: "cancelled"},
}

var schemaPoints = []crashPoint{
	{row: "W12", point: "move.named", always: true},
	{row: "W12a", point: "move.listed"},
	{row: "W13", point: "move.unlisted", always: true},
	{row: "W13 cancelled", point: "move.unlisted", when: "ready", wish: "cancel", ends: "cancelled"},
}

// TestTheLeaderDiesWithWholeTables at every step: another one goes on, and nothing is lost.
func TestTheLeaderDiesWithWholeTables(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 3}, 0)
	l := faultyLedger(t, s, 3, "")
	l.playPoints(t, wholePoints)
}

// TestTheLeaderDiesWithASchema where the map lists its tables and lists them no more. All else are the steps of whole tables.
func TestTheLeaderDiesWithASchema(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 3}, 0)
	l := faultyLedger(t, s, 3, "acme")
	points := schemaPoints
	if thorough.Asked() {
		points = slices.Concat(schemaPoints, wholePoints)
	}
	l.playPoints(t, points)
}

// playPoints kills the leader at each point, and looks at the tables after each move.
func (l *ledger) playPoints(t *testing.T, points []crashPoint) {
	t.Helper()
	defer l.stop()
	request := func(_, to string) api.StartMove {
		r := l.request(to)
		r.Throttle = of(false) // where all cases are run its writers hardly rest: a move would give way to them, while the tables grow
		return r
	}
	owner := l.s.playPoints(t, points, request, func(t *testing.T, owner string) {
		t.Helper()
		l.isOn(t, owner)
		l.s.clean(t)
	})
	if err := l.s.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.stop()
	l.check(t, owner)
	t.Logf("%d statements", l.done.Load())
}

// TestNumbersAreGivenOnce: whoever names a sequence alone is answered by the home shard. While its table moves there from another shard it gives none, and what it has given when a switch was taken back, the other shard does not give again.
func TestNumbersAreGivenOnce(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 0)
	conn, other := s.dial(t, s.Routers[0]), s.dial(t, s.Routers[1])
	for _, sql := range []string{"CREATE TABLE tickets (id bigserial PRIMARY KEY, n int)", "INSERT INTO tickets (n) SELECT generate_series(1, 100)"} {
		execute(t, conn, sql)
	}
	s.await(t, s.start(t, api.StartMove{To: "s2", Tables: []string{"tickets"}}), "done")
	drawn := map[int64]bool{}
	draw := func() error {
		var number int64
		err := conn.QueryRow(t.Context(), "SELECT nextval('public.tickets_id_seq')").Scan(&number)
		if err == nil && drawn[number] {
			t.Errorf("number %d was drawn twice", number)
		}
		drawn[number] = err == nil
		return err
	}
	id := s.start(t, api.StartMove{To: "s1", Tables: []string{"tickets"}, Manual: true})
	s.await(t, id, "ready")
	var refused *pgconn.PgError
	if err := draw(); !errors.As(err, &refused) || refused.Code != "2200H" {
		t.Errorf("a number was drawn from a copy: %v", err)
	}
	const point = "move.switch.numbers" // the heir's sequence goes on
	s.order(t, point, 1)
	s.wish(t, id, "switch")
	s.reached(t, point)
	for range 200 {
		if err := draw(); err != nil {
			t.Fatal(err)
		}
	}
	written := make(chan error)
	go func() { // which waits
		_, err := other.Exec(t.Context(), "INSERT INTO tickets (n) SELECT 0 FROM generate_series(1, 300)")
		written <- err
	}()
	time.Sleep(1200 * time.Millisecond) // longer than statements may be held
	s.release(t, point)
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	s.await(t, id, "done")
	execute(t, other, "INSERT INTO tickets (n) SELECT 0 FROM generate_series(1, 300)")
	for range 100 {
		if err := draw(); err != nil {
			t.Fatal(err)
		}
	}
	ids, twice := fetched(t, conn, "SELECT id FROM tickets"), 0
	for _, id := range ids {
		if drawn[id] {
			twice++
		}
	}
	if twice > 0 || len(ids) != 700 {
		t.Errorf("%d numbers were drawn and are those of %d rows too", twice, len(ids))
	}
	if m := s.await(t, id, "done"); len(m.Switches) < 2 {
		t.Errorf("no switch was taken back: %+v", m.Switches)
	}
	s.clean(t)
}

// TestATableIsTiedInTheEnd: rows of a reference table to which rows of a table that moves referred go while it is copied, with those, and somebody writes to the reference table in a transaction that he does not end. Nothing is copied again, others write to it
// all the while, and in the end the foreign key holds.
func TestATableIsTiedInTheEnd(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 0)
	conn, open := s.dial(t, s.Routers[0]), s.dial(t, s.Routers[1])
	for _, sql := range []string{
		"CREATE TABLE sorts (sort text PRIMARY KEY, n int)", "INSERT INTO sorts VALUES ('a', 0), ('b', 0), ('x', 0)", "SELECT cleave.reference_table('sorts')",
		"CREATE TABLE things (id bigserial PRIMARY KEY, sort text REFERENCES sorts, n int)", "INSERT INTO things (sort, n) SELECT (ARRAY['a', 'x'])[1 + i % 2], i FROM generate_series(1, 1000) AS i", "CREATE INDEX ON things (n)",
	} {
		execute(t, conn, sql)
	}
	const point, copied = "move.copy.rows", "move.copied"
	s.order(t, copied, 1)
	id := s.heldAt(t, point, api.StartMove{To: "s2", Tables: []string{"things"}})
	execute(t, conn, "DELETE FROM things WHERE sort = 'x'")
	execute(t, conn, "DELETE FROM sorts WHERE sort = 'x'")
	execute(t, open, "BEGIN")
	execute(t, open, "UPDATE sorts SET n = 1 WHERE sort = 'a'")
	s.release(t, point)
	s.reached(t, copied)
	s.release(t, copied)
	s.order(t, copied, 1) // nothing is copied again
	s.says(t, id, "transactions that use the tables have to end", func(m api.Move) string { return m.Waiting })
	for range 20 {
		execute(t, conn, "UPDATE sorts SET n = n + 1 WHERE sort = 'b'")
		time.Sleep(10 * time.Millisecond)
	}
	if m := s.await(t, id, "catching up"); m.Error != "" {
		t.Errorf("it says %q", m.Error)
	}
	execute(t, open, "COMMIT")
	s.await(t, id, "done")
	for _, sql := range []string{"INSERT INTO things (sort) VALUES ('x')", "DELETE FROM sorts WHERE sort = 'a'"} {
		var refused *pgconn.PgError
		if _, err := conn.Exec(t.Context(), sql); !errors.As(err, &refused) || refused.Code != "23503" {
			t.Errorf("%s: %v", sql, err)
		}
	}
	s.clean(t)
}

// TestALargeSchemaMoves within the time for which statements may be held by default, however many tables it has.
func TestALargeSchemaMoves(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 0)
	conn := s.dial(t, s.Routers[0])
	if _, err := s.Routers[0].API().CreateKeyspace(t.Context(), api.CreateKeyspace{Name: tenants, Strategy: topology.BySchema}); err != nil {
		t.Fatal(err)
	}
	tables := 15
	if thorough.Asked() {
		tables = 150
	}
	execute(t, conn, "CREATE TABLE sorts (sort text PRIMARY KEY)")
	execute(t, conn, "SELECT cleave.reference_table('sorts')")
	execute(t, conn, "CREATE SCHEMA large")
	for i := range tables {
		execute(t, conn, fmt.Sprintf("CREATE TABLE large.table_with_a_long_name_%[1]d (id bigserial PRIMARY KEY, other int GENERATED ALWAYS AS IDENTITY UNIQUE, sort text REFERENCES sorts, note text); INSERT INTO large.table_with_a_long_name_%[1]d (note) VALUES ('one'), ('two')", i))
	}
	m := s.await(t, s.start(t, api.StartMove{To: "s2", Keyspace: tenants, Keys: [][]string{{"large"}}}), "done")
	t.Logf("%+v", m.Switches)
	for _, i := range []int{0, tables - 1} {
		var id, other int64
		if err := conn.QueryRow(t.Context(), fmt.Sprintf("INSERT INTO large.table_with_a_long_name_%d (note) VALUES ('three') RETURNING id, other", i)).Scan(&id, &other); err != nil || id < 3 || id != other {
			t.Errorf("table %d gives numbers %d and %d: %v", i, id, other, err)
		}
	}
	s.clean(t)
}

// TestASchemaComesBack to the shard that it has left, or was about to come to, with types and functions that were changed meanwhile: those that are still there are made anew, but for what somebody else uses, which is said before anything is touched. Where it has left nothing is left, but on the home shard, by which
// routers know types.
func TestASchemaComesBack(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 0)
	conn := s.dial(t, s.Routers[0])
	if _, err := s.Routers[0].API().CreateKeyspace(t.Context(), api.CreateKeyspace{Name: tenants, Strategy: topology.BySchema}); err != nil {
		t.Fatal(err)
	}
	const schema = `"user"` // which SQL takes for another word
	for _, sql := range []string{
		"CREATE SCHEMA acme", "CREATE TYPE acme.mood AS ENUM ('good')", "CREATE FUNCTION acme.little() RETURNS int LANGUAGE sql IMMUTABLE RETURN 1",
		"CREATE TABLE acme.people (id bigserial PRIMARY KEY, mood acme.mood, n int DEFAULT acme.little())", "SET search_path = acme", "INSERT INTO people (mood) VALUES ('good')",
	} {
		execute(t, conn, strings.ReplaceAll(sql, "acme", schema))
	}
	has := func(want ...bool) {
		t.Helper()
		err := s.EachShard(t.Context(), func(i int, conn *pgx.Conn) error {
			var things int
			err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_depend WHERE refclassid = 'pg_namespace'::regclass AND refobjid = '"+schema+"'::regnamespace").Scan(&things)
			if (things > 0) != want[i] {
				t.Errorf("shard %d has %d things in the schema, where %v is wanted", i+1, things, want)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	request := func(to string) api.StartMove {
		return api.StartMove{To: to, Keyspace: tenants, Keys: [][]string{{"user"}}}
	}
	people := func(want string) {
		t.Helper()
		var all string
		if err := conn.QueryRow(t.Context(), "SELECT string_agg(mood || ' ' || n, ', ' ORDER BY id) FROM people WHERE mood IN ('good'::mood, 'good'::"+schema+".mood) OR mood > 'good'").Scan(&all); err != nil || all != want {
			t.Errorf("%s, %v; not %s", all, err, want)
		}
	}
	has(true, true, true) // before it is placed, what is no table is made on all shards
	s.await(t, s.start(t, request("s2")), "done")
	has(true, true, true)
	people("good 1")
	manual := request("s3")
	manual.Manual = true
	id := s.start(t, manual)
	s.await(t, id, "ready")
	s.wish(t, id, "cancel")
	s.await(t, id, "cancelled")
	has(true, true, false)
	other := s.onShard(t, 2)
	execute(t, other, "ALTER TYPE "+schema+".mood ADD VALUE 'bad'")
	execute(t, other, "CREATE OR REPLACE FUNCTION "+schema+".little() RETURNS int LANGUAGE sql IMMUTABLE RETURN 2")
	execute(t, conn, "INSERT INTO people (mood) VALUES ('bad')")
	s.await(t, s.start(t, request("s1")), "done")
	has(true, false, false)
	people("good 1, bad 2")
	execute(t, other, "CREATE TYPE "+schema+".mood AS ENUM ('other')")
	execute(t, other, "CREATE TABLE uses (mood "+schema+".mood)")
	id = s.start(t, request("s2"))
	s.says(t, id, "another type "+schema+".mood", func(m api.Move) string { return m.Stopped })
	s.wish(t, id, "cancel")
	s.await(t, id, "cancelled")
	s.clean(t)
	execute(t, other, "DROP TABLE uses")
	s.await(t, s.start(t, request("s2")), "done")
	people("good 1, bad 2")
	s.clean(t)
}

// TestAnOwnerIsOpenWhenItsTablesAreCopiedAnew, and gives numbers: a standby has become its server, and lost that a switch was taken back.
func TestAnOwnerIsOpenWhenItsTablesAreCopiedAnew(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 0)
	conn, source := s.dial(t, s.Routers[0]), s.onShard(t, 1)
	execute(t, conn, "CREATE TABLE tickets (id bigserial PRIMARY KEY, n int)")
	execute(t, conn, "INSERT INTO tickets (n) SELECT generate_series(1, 100)")
	id := s.start(t, api.StartMove{To: "s2", Tables: []string{"tickets"}, Manual: true})
	s.await(t, id, "ready")
	for _, sql := range []string{ // what the standby has heard of the switch
		fmt.Sprintf(`INSERT INTO cleave.move_notes VALUES ('%s', 'numbers', '[{"Name": "public.tickets_id_seq", "Last": 100, "Step": 1, "Limit": 9223372036854775807, "Cache": 1}]')`, id),
		"SELECT setval('public.tickets_id_seq', 9223372036854775807)", fmt.Sprintf("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'cleave_move_%s'", id),
	} {
		execute(t, source, sql)
	}
	s.order(t, "move.copied", 1)
	s.eventually(t, "the slot is gone", func() error {
		_, err := source.Exec(t.Context(), fmt.Sprintf("SELECT pg_terminate_backend(active_pid), pg_sleep(0.01) FROM pg_replication_slots WHERE slot_name = 'cleave_move_%[1]s'; SELECT pg_drop_replication_slot('cleave_move_%[1]s')", id))
		return err
	})
	s.reached(t, "move.copied")
	var number int64
	if err := conn.QueryRow(t.Context(), "INSERT INTO tickets (n) VALUES (0) RETURNING id").Scan(&number); err != nil || number != 165 {
		t.Errorf("number %d, %v", number, err)
	}
	s.release(t, "move.copied")
	s.await(t, id, "ready")
	s.wish(t, id, "switch")
	s.await(t, id, "done")
	s.clean(t)
}

// TestASchemaIsPlacedWhenItsTablesRest, and not while one of them moves by itself: neither could end then.
func TestASchemaIsPlacedWhenItsTablesRest(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 0)
	conn, client := s.dial(t, s.Routers[0]), s.Routers[0].API()
	if _, err := client.CreateKeyspace(t.Context(), api.CreateKeyspace{Name: tenants, Strategy: topology.BySchema}); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{"CREATE SCHEMA acme", "CREATE TABLE acme.a (id int PRIMARY KEY)", "CREATE TABLE acme.b (id int PRIMARY KEY)"} {
		execute(t, conn, sql)
	}
	table, schema := api.StartMove{To: "s2", Tables: []string{"acme.a"}, Manual: true}, api.StartMove{To: "s3", Keyspace: tenants, Keys: [][]string{{"acme"}}, Manual: true}
	refused := func(request api.StartMove, why string) {
		t.Helper()
		if list, err := client.StartMoves(t.Context(), request); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%+v, %v; not %q", list.Moves, err, why)
		}
	}
	id := s.start(t, table)
	s.await(t, id, "ready")
	refused(schema, "move "+id+" of table acme.a")
	s.wish(t, id, "switch")
	s.await(t, id, "done")
	refused(schema, "acme.a")
	back := s.start(t, api.StartMove{To: "s1", Tables: []string{"acme.a"}, KeepSeconds: 600})
	s.await(t, back, "switched")
	refused(schema, "move "+back+" of table acme.a")
	s.wish(t, back, "finish")
	s.await(t, back, "done")
	id = s.start(t, schema)
	s.await(t, id, "ready")
	for _, name := range []string{"acme.a", "acme.nothing"} {
		refused(api.StartMove{To: "s2", Tables: []string{name}}, "its tables move with it alone")
	}
	s.wish(t, id, "switch")
	s.await(t, id, "done")
	s.clean(t)
}
