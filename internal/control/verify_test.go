package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

// strayed is a cluster with tables of every sort: by hash with a foreign key, a generated column, an identity and a trigger; by range with a key of two columns and partitions; with a primary key that lacks the shard key; and without one.
type strayed struct {
	*process
	servers []*localpg.Server
}

func newStrayed(t *testing.T) *strayed {
	t.Helper()
	s := &strayed{servers: pgtest.StartN(t, 3)}
	s.process = startRouter(t, startEtcd(t), "router")
	clusterOf(t, s.process, s.servers)
	execute(t, s.servers[0], `
		CREATE TABLE users (id bigint PRIMARY KEY, n bigint, twice bigint GENERATED ALWAYS AS (n * 2) STORED, no integer GENERATED ALWAYS AS IDENTITY);
		CREATE TABLE accounts (user_id bigint REFERENCES users, id bigint, body text, PRIMARY KEY (user_id, id));
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a trigger has run'; END $$;
		CREATE TRIGGER refuse BEFORE INSERT OR DELETE ON users FOR EACH ROW WHEN (false) EXECUTE FUNCTION refuse();
		CREATE TABLE events (tenant text, day date, id int, what text, PRIMARY KEY (tenant, day, id)) PARTITION BY RANGE (day);
		CREATE TABLE events_old PARTITION OF events FOR VALUES FROM ('2020-01-01') TO ('2024-01-01');
		CREATE TABLE events_new PARTITION OF events FOR VALUES FROM ('2024-01-01') TO ('2030-01-01');
		CREATE TABLE tickets (id bigint PRIMARY KEY, holder bigint NOT NULL, note text);
		CREATE TABLE loose (at timestamptz, what text);
		INSERT INTO users (id, n) SELECT i, i FROM generate_series(1, 300) AS i; INSERT INTO accounts SELECT i, 1, 'body' FROM generate_series(1, 300) AS i;
		INSERT INTO events SELECT 't' || i % 10, '2023-12-01'::date + i, i, 'e' FROM generate_series(1, 90) AS i; INSERT INTO tickets SELECT i, i, 'n' FROM generate_series(1, 60) AS i`)
	shardTable(t, s.process, together(sharding(t, "users", "id"), sharding(t, "accounts", "user_id")))
	byRange := sharding(t, "events", "tenant,day")
	byRange.Strategy, byRange.SplitAt = "range", []topology.Point{{"t3", "2024-01-10"}, {"t6"}}
	shardTable(t, s.process, byRange)
	tickets := sharding(t, "tickets", "holder")
	tickets.UniquePerShard = true
	shardTable(t, s.process, tickets)
	shardTable(t, s.process, sharding(t, "loose", "at"))
	return s
}

// owner is which server has the rows of a key, from 0.
func (s *strayed) owner(t *testing.T, table string, key ...string) int {
	t.Helper()
	m, err := s.store.Map(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k := m.Table("public", table).Keyspace()
	values, err := k.ParseKey(key)
	if err != nil {
		t.Fatal(err)
	}
	place, err := k.Locate(values...)
	if err != nil {
		t.Fatal(err)
	}
	return place.Shard.Number() - 1
}

// put writes to a shard past all that would refuse it.
func (s *strayed) put(t *testing.T, server int, sql string) {
	t.Helper()
	execute(t, s.servers[server%len(s.servers)], "SET session_replication_role = replica; "+sql)
}

func (s *strayed) verify(t *testing.T, request VerifyRequest) api.Verified {
	t.Helper()
	found, err := s.Verify(t.Context(), request)
	if err != nil {
		t.Fatalf("%+v: %+v", request, err)
	}
	if len(found.Findings) > 0 {
		t.Errorf("%+v: %+v", request, found.Findings)
	}
	return found
}

// linesOf are strays as lines: table, key, where it is and belongs, what is there, and what was done.
func linesOf(strays []api.Stray) []string {
	lines := []string{}
	for _, s := range strays {
		line := fmt.Sprintf("%s %s %s→%s %s", strings.TrimPrefix(s.Table, "public."), strings.Join(s.PrimaryKey, ","), s.Shard, s.Owner, s.AtOwner)
		if s.Repaired != "" {
			line += " " + s.Repaired
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

func (s *strayed) expect(t *testing.T, found api.Verified, want ...string) {
	t.Helper()
	slices.Sort(want)
	if diff := cmp.Diff(append([]string{}, want...), linesOf(found.Strays)); diff != "" || found.StraysFound != int64(len(want)) {
		t.Errorf("%d found: want (-), got (+):\n%s\n%+v", found.StraysFound, diff, found.Strays)
	}
}

// way is a shard beside the owner of a key, and the way from there to the owner.
func (s *strayed) way(t *testing.T, off int, table string, key ...string) (at int, way string) {
	t.Helper()
	owner := s.owner(t, table, key...)
	at = (owner + off) % len(s.servers)
	return at, fmt.Sprintf("s%d→s%d", at+1, owner+1)
}

// everywhere is a query's answer from all shards, in order.
func (s *strayed) everywhere(t *testing.T, query string) []string {
	t.Helper()
	var all []string
	for _, server := range s.servers {
		all = append(all, one[[]string](t, server, "SELECT coalesce(array_agg(x::text), '{}') FROM ("+query+") AS x")...)
	}
	slices.Sort(all)
	return all
}

func TestRowsOnTheWrongShard(t *testing.T) {
	s := newStrayed(t)
	before := s.verify(t, VerifyRequest{})
	s.expect(t, before)
	if before.Wrong() != 0 || len(before.Tables) != 15 {
		t.Errorf("before anything is wrong: %+v", before)
	}
	// A trigger that would refuse what a repair does, if it ran.
	for _, server := range s.servers {
		execute(t, server, "CREATE OR REPLACE TRIGGER refuse BEFORE INSERT OR DELETE ON users FOR EACH ROW EXECUTE FUNCTION refuse()")
	}
	var want []string
	// Absent: a user with an account that only the wrong shard has. Both are brought, the user first.
	at, way := s.way(t, 1, "users", "1001")
	s.put(t, at, "INSERT INTO users (id, n, no) OVERRIDING SYSTEM VALUE VALUES (1001, 77, 4711); INSERT INTO accounts VALUES (1001, 1, 'of 1001')")
	want = append(want, "users 1001 "+way+" absent brought", "accounts 1001,1 "+way+" absent brought")
	// Equal: a copy of a row that is where it belongs, on both other shards.
	for off := 1; off <= 2; off++ {
		at, way = s.way(t, off, "users", "5")
		s.put(t, at, fmt.Sprintf("INSERT INTO users (id, n, no) OVERRIDING SYSTEM VALUE VALUES (5, 5, %d)", one[int](t, s.servers[s.owner(t, "users", "5")], "SELECT no FROM users WHERE id = 5")))
		want = append(want, "users 5 "+way+" equal deleted")
	}
	// Differs: another account of the same key.
	at, way = s.way(t, 2, "accounts", "9")
	s.put(t, at, "INSERT INTO accounts VALUES (9, 1, 'another body')")
	want = append(want, "accounts 9,1 "+way+" differs")
	// An account whose user is nowhere is not brought.
	at, way = s.way(t, 1, "accounts", "2002")
	s.put(t, at, "INSERT INTO accounts VALUES (2002, 1, 'of nobody')")
	want = append(want, "accounts 2002,1 "+way+" absent")
	// Two columns, by range, in partitions.
	for _, day := range []string{"2022-05-05", "2024-03-03"} {
		at, way = s.way(t, 1, "events", "t5", day)
		s.put(t, at, fmt.Sprintf("INSERT INTO events VALUES ('t5', '%s', 1, 'it''s a \"stray\"')", day))
		want = append(want, fmt.Sprintf("events t5,%s,1 %s absent brought", day, way))
	}
	// A primary key that another row has at the owner.
	at, way = s.way(t, 1, "tickets", "500")
	other := one[int64](t, s.servers[s.owner(t, "tickets", "500")], "SELECT min(id) FROM tickets")
	s.put(t, at, fmt.Sprintf("DELETE FROM tickets WHERE id = %d; INSERT INTO tickets VALUES (%[1]d, 500, 'mine')", other))
	want = append(want, fmt.Sprintf("tickets %d %s taken", other, way))
	// No primary key, and no shard key either.
	at, way = s.way(t, 1, "loose", "2024-01-01 00:00:00Z")
	s.put(t, at, "INSERT INTO loose VALUES ('2024-01-01Z', 'x')")
	s.put(t, 0, "INSERT INTO loose VALUES (NULL, 'y')")
	want = append(want, "loose  "+way+" absent", "loose  s1→ ")

	plain := make([]string, len(want))
	for i, line := range want {
		plain[i] = strings.TrimSuffix(strings.TrimSuffix(line, " brought"), " deleted")
	}
	found := s.verify(t, VerifyRequest{})
	s.expect(t, found, plain...)
	if found.Wrong() != int64(len(want)) || found.StraysRepaired != 0 {
		t.Errorf("%d wrong, %d repaired", found.Wrong(), found.StraysRepaired)
	}
	if limited := s.verify(t, VerifyRequest{Limit: 3}); len(limited.Strays) != 3 || limited.StraysFound != int64(len(want)) {
		t.Errorf("with a limit %d of %d are listed", len(limited.Strays), limited.StraysFound)
	}
	repaired := s.verify(t, VerifyRequest{Repair: true})
	s.expect(t, repaired, want...)
	for _, stray := range repaired.Strays {
		if (stray.Repaired == "") != (stray.Reason != "") {
			t.Errorf("repaired %q, reason %q: %s", stray.Repaired, stray.Reason, stray)
		}
	}
	again := s.verify(t, VerifyRequest{})
	if left := again.StraysFound; left != 5 {
		t.Errorf("%d are left: %q", left, linesOf(again.Strays))
	}
	// What was brought is all there, and what was not is as it was.
	if got := s.everywhere(t, "SELECT id, n, twice, no FROM users WHERE id IN (5, 1001)"); len(got) != 2 || got[0] != "(1001,77,154,4711)" {
		t.Errorf("users: %q", got)
	}
	if got := s.everywhere(t, "SELECT * FROM events WHERE id = 1 AND tenant = 't5'"); !slices.Equal(got, []string{`(t5,2022-05-05,1,"it's a ""stray""")`, `(t5,2024-03-03,1,"it's a ""stray""")`}) {
		t.Errorf("events: %q", got)
	}
	if got := s.everywhere(t, "SELECT * FROM accounts WHERE user_id = 9"); !slices.Equal(got, []string{`(9,1,"another body")`, "(9,1,body)"}) {
		t.Errorf("accounts: %q", got)
	}
	// Now somebody says which counts: first the stray, then the owner.
	request := VerifyRequest{Tables: []topology.TableName{named(t, "accounts")}, Repair: true, Prefer: api.PreferStray}
	_, way = s.way(t, 2, "accounts", "9")
	_, orphan := s.way(t, 1, "accounts", "2002")
	s.expect(t, s.verify(t, request), "accounts 9,1 "+way+" differs replaced", "accounts 2002,1 "+orphan+" absent")
	at, _ = s.way(t, 2, "accounts", "9")
	s.put(t, at, "INSERT INTO accounts VALUES (9, 1, 'worthless')")
	request.Prefer = api.PreferOwner
	s.expect(t, s.verify(t, request), "accounts 9,1 "+way+" differs deleted", "accounts 2002,1 "+orphan+" absent")
	if got := s.everywhere(t, "SELECT * FROM accounts WHERE user_id = 9"); !slices.Equal(got, []string{`(9,1,"another body")`}) {
		t.Errorf("accounts: %q", got)
	}
	for i, server := range s.servers {
		if left := one[int](t, server, "SELECT count(*) FROM pg_replication_origin"); left > 0 {
			t.Errorf("shard %d: %d replication origins are left", i+1, left)
		}
	}
}

// TestStraysByThePinsAndTheCopies: a pin says where a key belongs, and a copy that a move has is no stray.
func TestStraysByThePinsAndTheCopies(t *testing.T) {
	thorough.Only(t)
	s := newStrayed(t)
	from := s.owner(t, "users", "42")
	to := (from + 1) % 3
	keyspace := s.follower.Map().Table("public", "users").Keyspace().Name()
	set := func(change topology.Change) {
		t.Helper()
		if _, err := s.change(t.Context(), func(*topology.Map) ([]topology.Change, error) { return []topology.Change{change}, nil }); err != nil {
			t.Fatal(err)
		}
	}
	pin := topology.PinSpec{Key: topology.Point{"42"}, Shard: fmt.Sprintf("s%d", to+1)}
	request := VerifyRequest{Keyspace: keyspace}
	// While a move has a copy there are none: neither with the owner nor with the other.
	moving := pin
	moving.Copies = []topology.CopySpec{{Shard: fmt.Sprintf("s%d", from+1), State: topology.Leaving}}
	set(topology.SetPins(keyspace, moving))
	s.expect(t, s.verify(t, request))
	_, err := s.Verify(t.Context(), VerifyRequest{Keyspace: keyspace, Repair: true})
	refusal(t, pgerr.ObjectInUse, err, "a repair while rows move")
	// The pin alone: the rows are on the wrong shard, and are brought.
	set(topology.SetPins(keyspace, pin))
	way := fmt.Sprintf("s%d→s%d absent", from+1, to+1)
	s.expect(t, s.verify(t, request), "users 42 "+way, "accounts 42,1 "+way, "tickets 42 "+way)
	// Nor is anything repaired while a move is announced, or a roll-out is open.
	if _, err := s.store.BeginMove(t.Context(), topology.Moving{ID: "m1", Keyspace: keyspace, Tables: []topology.TableName{named(t, "users"), named(t, "accounts")}}); err != nil {
		t.Fatal(err)
	}
	request.Repair = true
	_, err = s.Verify(t.Context(), request)
	refusal(t, pgerr.ObjectInUse, err, "a repair while a move is announced")
	if _, err := s.store.EndMove(t.Context(), "m1"); err != nil {
		t.Fatal(err)
	}
	s.expect(t, s.verify(t, request), "users 42 "+way+" brought", "accounts 42,1 "+way+" brought", "tickets 42 "+way+" brought")
	if got := one[int](t, s.servers[to], "SELECT count(*) FROM users JOIN accounts ON user_id = users.id WHERE users.id = 42"); got != 1 {
		t.Errorf("%d rows have come", got)
	}
	request.Repair = false
	s.expect(t, s.verify(t, request))
	// Back again: the pin goes, and so do the rows.
	set(topology.RemovePins(keyspace, topology.Point{"42"}))
	back := fmt.Sprintf("s%d→s%d absent", to+1, from+1)
	s.expect(t, s.verify(t, request), "users 42 "+back, "accounts 42,1 "+back, "tickets 42 "+back)
	// By range too.
	events := s.follower.Map().Table("public", "events").Keyspace().Name()
	at := s.owner(t, "events", "t1", "2023-12-02")
	set(topology.SetPins(events, topology.PinSpec{Key: topology.Point{"t1", "2023-12-02"}, Shard: fmt.Sprintf("s%d", (at+2)%3+1)}))
	found := s.verify(t, VerifyRequest{Tables: []topology.TableName{named(t, "events")}, Repair: true})
	s.expect(t, found, fmt.Sprintf("events t1,2023-12-02,1 s%d→s%d absent brought", at+1, (at+2)%3+1))
}

// TestStraysThatSomebodyHas: a repair waits for nobody for long, takes what others insert for theirs, and goes on without rows that it cannot have.
func TestStraysThatSomebodyHas(t *testing.T) {
	thorough.Only(t)
	s := newStrayed(t)
	at, way := s.way(t, 1, "tickets", "700")
	owner := s.owner(t, "tickets", "700")
	s.put(t, at, "INSERT INTO tickets VALUES (9001, 700, 'first'), (9002, 700, 'second'), (9003, 700, 'third')")
	// Somebody inserts one of them at the owner, and does not say yet whether that counts.
	busy := dialAsRouter(t, s.servers[owner])
	defer busy.Close(context.Background())
	if _, err := busy.Exec(t.Context(), "BEGIN; INSERT INTO tickets VALUES (9002, 700, 'inserted')"); err != nil {
		t.Fatal(err)
	}
	request := VerifyRequest{Tables: []topology.TableName{named(t, "tickets")}, Repair: true}
	s.expect(t, s.verify(t, request), "tickets 9001 "+way+" absent brought", "tickets 9002 "+way+" absent", "tickets 9003 "+way+" absent brought")
	if _, err := busy.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	s.expect(t, s.verify(t, request), "tickets 9002 "+way+" differs")
	if got := s.everywhere(t, "SELECT note FROM tickets WHERE holder = 700"); !slices.Equal(got, []string{"(first)", "(inserted)", "(second)", "(third)"}) {
		t.Errorf("tickets: %q", got)
	}
	// Of two repairs of one shard the second is told.
	locked := dialAsRouter(t, s.servers[at])
	defer locked.Close(context.Background()) // and not before, as it would be if nobody needed it
	if _, err := locked.Exec(t.Context(), "SELECT pg_advisory_lock(27985278458291833)"); err != nil {
		t.Fatal(err)
	}
	found, err := s.Verify(t.Context(), request)
	if err != nil || len(found.Findings) != 1 || !strings.Contains(found.Findings[0].Message, "another repair is under way") {
		t.Errorf("%+v: %v", found.Findings, err)
	}
}
