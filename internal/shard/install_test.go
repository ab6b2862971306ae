package shard

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/sqltext/qualified"
	"github.com/cleavedb/cleave/internal/topology"
)

func TestInstallIsIdempotentAndPrivate(t *testing.T) {
	spec := specOf("s1", pgtest.Start(t))
	conn := connect(t, spec)
	for _, want := range []struct{ from, to int }{{0, len(steps)}, {len(steps), len(steps)}} {
		from, to, err := Install(t.Context(), conn)
		if err != nil || from != want.from || to != want.to {
			t.Fatalf("installed from %d to %d, %v; want from %d to %d", from, to, err, want.from, want.to)
		}
	}
	if n := one[int](t, conn, "SELECT count(*) FROM cleave.migrations WHERE name <> '' AND applied_at <= now()"); n != len(steps) {
		t.Errorf("%d steps are listed", n)
	}
	execute(t, conn, "CREATE ROLE guest LOGIN")
	spec.User = "guest"
	guest := connect(t, spec)
	for _, table := range []string{"migrations", "identity", "keyspaces", "ranges", "pins", "tables", "guard_pins", "commits", "sweeps"} {
		if one[bool](t, guest, "SELECT has_schema_privilege('guest', 'cleave', 'CREATE')") ||
			one[bool](t, conn, "SELECT has_table_privilege('guest', 'cleave.' || $1, 'SELECT, INSERT, UPDATE, DELETE')", table) {
			t.Errorf("everybody may use cleave.%s", table)
		}
	}
	const callable = "SELECT coalesce(array_agg(proname::text ORDER BY proname), '{}') FROM pg_proc WHERE pronamespace = 'cleave'::regnamespace AND has_function_privilege('guest', oid, 'EXECUTE')"
	if callable := one[[]string](t, conn, callable); !slices.Equal(callable, []string{
		"counts_in_blocks", "given_now", "hello", "is_ticket", "last_number", "made_now", "next_number", "note_abort", "note_given", "note_rollout", "number_sequence", "open_snapshot", "outcome_of", "owned_by_numbered", "pinned", "plain_viewdef", "rollout_of", "sequence_name",
		"server_state", "set_number", "skip_numbers", "staged_rows", "this_number", "ticket_base", "timeline",
	}) {
		t.Errorf("everybody may call %q", callable)
	}
}

// TestFunctionsNameTheSystemsThings: clients call them under a search_path of their own, and many run with their owner's rights, or are called by one
// that does. A type of the client's that stood in for the system's would run the client's code so. Bodies that were parsed when they were made are safe.
func TestFunctionsNameTheSystemsThings(t *testing.T) {
	conn := connect(t, specOf("s1", pgtest.Start(t)))
	if _, _, err := Install(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	rows := must[pgx.Rows](t)(conn.Query(t.Context(), `SELECT p.proname::text, p.prosecdef, p.prosrc, coalesce(p.proconfig, '{}') FROM pg_proc p
		WHERE p.pronamespace = 'cleave'::regnamespace AND p.prosqlbody IS NULL ORDER BY p.proname`))
	var name, source string
	var definer bool
	var settings []string
	definers := 0
	_, err := pgx.ForEachRow(rows, []any{&name, &definer, &source, &settings}, func() error {
		if slices.ContainsFunc(settings, func(s string) bool { return strings.HasPrefix(s, "search_path=") }) {
			if !slices.Contains(settings, "search_path=pg_catalog, pg_temp") {
				t.Errorf("function %s has %q", name, settings)
			}
			return nil
		}
		if definer {
			definers++
		}
		for _, found := range qualified.Bare(source) {
			t.Errorf("function %s: %s", name, found)
		}
		return nil
	})
	if err != nil || definers < 5 {
		t.Errorf("%d functions with their owner's rights were looked at, %v", definers, err)
	}
}

func TestInstallIntoASchemaThatIsThere(t *testing.T) {
	spec := specOf("s1", pgtest.Start(t))
	admin := connect(t, spec)
	execute(t, admin, "CREATE ROLE controller LOGIN REPLICATION")
	execute(t, admin, "CREATE SCHEMA cleave AUTHORIZATION controller")
	spec.User = "controller" // may not create schemas
	conn := connect(t, spec)
	if _, to, err := Install(t.Context(), conn); err != nil || to != len(steps) {
		t.Fatalf("installed to %d, %v", to, err)
	}
	execute(t, admin, "DROP SCHEMA cleave CASCADE")
	execute(t, admin, "CREATE SCHEMA cleave CREATE VIEW theirs AS SELECT 1 AS x")
	var taken *SchemaTakenError
	if _, _, err := Install(t.Context(), admin); !errors.As(err, &taken) {
		t.Errorf("into another's schema: %v", err)
	}
	if err := Release(t.Context(), admin, clusterID); !errors.As(err, &taken) {
		t.Errorf("another's schema is released: %v", err)
	}
	if !one[bool](t, admin, "SELECT to_regclass('cleave.theirs') IS NOT NULL") {
		t.Error("another's view is gone")
	}
}

func TestANewerSchemaIsRefused(t *testing.T) {
	c := newCluster(t, 1)
	execute(t, c.conns[0], "INSERT INTO cleave.migrations (version, name) VALUES ($1, 'from the future')", len(steps)+1)
	var newer *NewerSchemaError
	if _, _, err := Install(t.Context(), c.conns[0]); !errors.As(err, &newer) || newer.Installed != len(steps)+1 || newer.Known != len(steps) {
		t.Errorf("install says %v", err)
	}
	if _, err := Record(t.Context(), c.conns[0], c.m, "s1"); !errors.As(err, &newer) {
		t.Errorf("record says %v", err)
	}
}

func TestManyInstallAtOnce(t *testing.T) {
	spec := specOf("s1", pgtest.Start(t))
	const many = 8
	conns := make([]*pgx.Conn, many)
	for i := range conns {
		conns[i] = connect(t, spec)
	}
	failures := make([]error, many)
	var all sync.WaitGroup
	for i, conn := range conns {
		all.Go(func() {
			var to int
			if _, to, failures[i] = Install(t.Context(), conn); failures[i] == nil && to != len(steps) {
				failures[i] = errors.New("not all steps were taken")
			}
		})
	}
	all.Wait()
	if err := errors.Join(failures...); err != nil {
		t.Fatal(err)
	}
	if n := one[int](t, conns[0], "SELECT count(*) FROM cleave.migrations"); n != len(steps) {
		t.Errorf("%d steps are listed", n)
	}
}

const suicide = "SELECT pg_terminate_backend(pg_backend_pid());"

// TestCrash02InsideAnInstall ends the backend before, inside and after the work of every step.
func TestCrash02InsideAnInstall(t *testing.T) {
	server := pgtest.Start(t)
	spec := specOf("s1", server)
	for at := range steps {
		for place, broken := range map[string][]step{
			"before": withStep(at, step{steps[at].name, suicide + steps[at].sql, steps[at].made}),
			"after":  withStep(at, step{steps[at].name, steps[at].sql + suicide, steps[at].made}),
		} {
			admin := connect(t, spec)
			execute(t, admin, "DROP SCHEMA IF EXISTS cleave CASCADE")
			if _, _, err := install(t.Context(), connect(t, spec), broken); err == nil {
				t.Fatalf("step %d, %s: the end of the backend went unnoticed", at+1, place)
			}
			if record, err := Read(t.Context(), admin); err != nil || record.Cluster != "" {
				t.Errorf("step %d, %s: half a schema reads as %+v, %v", at+1, place, record, err)
			}
			from, to, err := Install(t.Context(), admin)
			if err != nil || from != at || to != len(steps) {
				t.Errorf("step %d, %s: went on from %d to %d, %v", at+1, place, from, to, err)
			}
			checkUsable(t, admin, spec)
		}
	}
}

func withStep(at int, broken step) []step {
	all := slices.Clone(steps)
	all[at] = broken
	return all
}

// checkUsable claims and records.
func checkUsable(t *testing.T, conn *pgx.Conn, spec topology.ShardSpec) {
	t.Helper()
	m := must[*topology.Map](t)(topology.New(clusterID))
	prepare(t, conn, spec, m)
	m = must[*topology.Map](t)(m.Next(topology.AddShard(spec)))
	if changed, err := Record(t.Context(), conn, m, spec.Name); err != nil || !changed {
		t.Errorf("record says %v, %v", changed, err)
	}
}

func TestClaims(t *testing.T) {
	server := pgtest.Start(t)
	spec := specOf("s1", server)
	conn := connect(t, spec)
	empty := must[*topology.Map](t)(topology.New(clusterID))
	m := must[*topology.Map](t)(empty.Next(topology.AddShard(spec)))
	if err := Claim(t.Context(), conn, clusterID, spec, m); !errors.Is(err, ErrNotClaimed) {
		t.Fatalf("claimed before it was installed: %v", err)
	}
	if _, err := Record(t.Context(), conn, m, "s1"); !errors.Is(err, ErrNotClaimed) {
		t.Fatalf("recorded before it was installed: %v", err)
	}
	spec.MinimumVersion = 7
	for range 2 {
		prepare(t, conn, spec, m)
		record := must[*Recorded](t)(Read(t.Context(), conn))
		if record.Cluster != clusterID || record.Shard != "s1" || record.MapVersion != 0 || record.MinimumVersion != 7 || record.Entry.Primary.Address != server.Addr() {
			t.Fatalf("the claim reads as %+v", record)
		}
	}
	var claimed *ClaimedError
	other := must[*topology.Map](t)(topology.New(otherID))
	if err := Claim(t.Context(), conn, otherID, spec, other); !errors.As(err, &claimed) || claimed.Cluster != clusterID || claimed.Shard != "s1" {
		t.Errorf("another cluster's claim says %v", err)
	}
	renamed := spec
	renamed.Name = "s2"
	if err := Claim(t.Context(), conn, clusterID, renamed, m); !errors.As(err, &claimed) {
		t.Errorf("the claim of a shard in the map for another says %v", err)
	}
	if err := Release(t.Context(), conn, otherID); !errors.As(err, &claimed) {
		t.Errorf("release by another cluster says %v", err)
	}
	if _, err := Record(t.Context(), conn, must[*topology.Map](t)(other.Next(topology.AddShard(specOf("s1", server)))), "s1"); !errors.As(err, &claimed) {
		t.Errorf("record by another cluster says %v", err)
	}
	if err := Claim(t.Context(), conn, otherID, spec, m); err == nil {
		t.Error("a claim with another cluster's map went through")
	}
	for range 2 {
		if err := Release(t.Context(), conn, clusterID); err != nil {
			t.Fatal(err)
		}
	}
	if record := must[*Recorded](t)(Read(t.Context(), conn)); record.Cluster != "" {
		t.Errorf("after its release it reads as %+v", record)
	}
}

// TestAnOldMapDoesNotClaimWhatItDoesNotKnow: to whoever has read the map before the shard was added, its record looks like
// something left behind.
func TestAnOldMapDoesNotClaimWhatItDoesNotKnow(t *testing.T) {
	c := newCluster(t, 1)
	old := must[*topology.Map](t)(topology.New(clusterID))
	c.change(t, topology.CreateKeyspace(wholeOn("s1")))
	c.record(t)
	for _, name := range []string{"other", "s1"} {
		var newer *NewerError
		err := Claim(t.Context(), c.conns[0], clusterID, specOf(name, c.servers[0]), old)
		if !errors.As(err, &newer) || newer.Recorded != c.m.Version() || newer.Map != old.Version() {
			t.Errorf("the claim for %s says %v", name, err)
		}
	}
	expectCodes(t, Verify(c.m, "s1", c.read(t)[0]))
	if err := Claim(t.Context(), c.conns[0], clusterID, specOf("s1", c.servers[0]), c.m); err != nil {
		t.Errorf("the claim with the map that is recorded says %v", err)
	}
	if err := Release(t.Context(), c.conns[0], clusterID); err != nil {
		t.Fatal(err)
	}
	prepare(t, c.conns[0], specOf("other", c.servers[0]), old) // what was released has no record
}

// TestCrash03BetweenInstallAndClaim leaves a schema that belongs to nobody: it can be claimed and dropped.
func TestCrash03BetweenInstallAndClaim(t *testing.T) {
	spec := specOf("s1", pgtest.Start(t))
	conn := connect(t, spec)
	m := must[*topology.Map](t)(topology.New(clusterID))
	if _, _, err := Install(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	expectCodes(t, Check(inspect(t, conn), nil, m))
	if record := must[*Recorded](t)(Read(t.Context(), conn)); record.Cluster != "" {
		t.Errorf("it reads as %+v", record)
	}
	if err := Release(t.Context(), conn, otherID); err != nil {
		t.Errorf("what belongs to nobody is not dropped: %v", err)
	}
	checkUsable(t, conn, spec)
}

// TestCrash04BetweenClaimAndMap leaves a claim for a shard that no map has: it is no obstacle, for any name.
func TestCrash04BetweenClaimAndMap(t *testing.T) {
	c := newCluster(t, 1)
	c.record(t)
	spec := specOf("new", pgtest.Start(t))
	conn := connect(t, spec)
	prepare(t, conn, spec, c.m)
	expectCodes(t, Check(inspect(t, conn), nil, c.m))

	records := append(c.read(t), must[*Recorded](t)(Read(t.Context(), conn)))
	rebuilt, found, err := Rebuild(records)
	if err != nil || rebuilt.ShardCount() != 1 {
		t.Fatalf("rebuilt %v, %v", found, err)
	}
	expectCodes(t, found, "warning not_recorded new")

	spec.Name = "renamed"
	prepare(t, conn, spec, c.m)
	if record := must[*Recorded](t)(Read(t.Context(), conn)); record.Shard != "renamed" {
		t.Errorf("it reads as %+v", record)
	}
}

// TestCrash05BetweenMapAndRecord leaves a shard in the map that has recorded nothing: a warning, until it has.
func TestCrash05BetweenMapAndRecord(t *testing.T) {
	c := newCluster(t, 1)
	record := c.read(t)[0]
	expectCodes(t, Verify(c.m, "s1", record), "warning not_recorded s1")
	if _, _, err := Rebuild([]*Recorded{record}); !errors.Is(err, ErrNotWhole) {
		t.Errorf("rebuilt from nothing: %v", err)
	}
	c.record(t)
	expectCodes(t, Verify(c.m, "s1", c.read(t)[0]))
}

// TestCrash09BetweenMapAndRelease leaves the record of a shard that no map has. Another shard can take its place, and a
// rebuilt map does not have it.
func TestCrash09BetweenMapAndRelease(t *testing.T) {
	c := newCluster(t, 2)
	c.change(t, topology.CreateKeyspace(wholeOn("s2")))
	c.record(t)
	spec := c.m.Shard("s2").Spec()
	c.change(t, topology.ReplaceRanges("users", []topology.RangeSpec{{Shard: "s1"}}, topology.Assignment{}))
	c.change(t, topology.RemoveShard("s2"))
	if _, err := Record(t.Context(), c.conns[0], c.m, "s1"); err != nil {
		t.Fatal(err)
	}
	rebuilt, found, err := Rebuild(c.read(t))
	if err != nil {
		t.Fatal(found, err)
	}
	expectCodes(t, found, "warning removed s2")
	expectSameMap(t, rebuilt, c.m)

	expectCodes(t, Check(inspect(t, c.conns[1]), nil, c.m))
	spec.Name, spec.Number = "s3", 0
	prepare(t, c.conns[1], spec, c.m)
	if record := c.read(t)[1]; record.Shard != "s3" || record.MapVersion != 0 || len(record.Keyspaces) != 0 {
		t.Errorf("what s2 had recorded is still there: %+v", record)
	}
	c.change(t, topology.AddShard(spec))
	if _, err := Record(t.Context(), c.conns[1], c.m, "s3"); err != nil {
		t.Fatal(err)
	}
	expectCodes(t, Verify(c.m, "s3", c.read(t)[1]))
}

// wholeOn is a keyspace, named users, of which all is on one shard.
func wholeOn(shard string) topology.KeyspaceSpec { return wholeNamed("users", shard) }

func wholeNamed(name, shard string) topology.KeyspaceSpec {
	spec := topology.NewKeyspaceSpec(name, topology.ByHash, 1, "bigint")
	spec.Ranges = []topology.RangeSpec{{Shard: shard}}
	return spec
}

// TestCrash10InsideARelease ends the backend while it drops the schema: all is still there, and goes the next time.
func TestCrash10InsideARelease(t *testing.T) {
	c := newCluster(t, 1)
	c.record(t)
	blocker := connect(t, specOf("s1", c.servers[0]))
	execute(t, blocker, "BEGIN")
	execute(t, blocker, "LOCK TABLE cleave.tables IN ACCESS SHARE MODE")
	victim := connect(t, specOf("s1", c.servers[0]))
	ended := make(chan error, 1)
	go func() { ended <- Release(context.Background(), victim, clusterID) }()
	killWhenBlocked(t, blocker, victim)
	if err := <-ended; err == nil {
		t.Fatal("the end of the backend went unnoticed")
	}
	execute(t, blocker, "ROLLBACK")
	expectCodes(t, Verify(c.m, "s1", c.read(t)[0]))
	if err := Release(t.Context(), c.conns[0], clusterID); err != nil {
		t.Fatal(err)
	}
	if one[bool](t, c.conns[0], "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'cleave')") {
		t.Error("the schema is still there")
	}
}

// killWhenBlocked waits until the victim waits for a lock, and ends its backend.
func killWhenBlocked(t *testing.T, admin, victim *pgx.Conn) {
	t.Helper()
	waitUntilBlocked(t, admin, victim)
	execute(t, admin, "SELECT pg_terminate_backend($1)", int32(victim.PgConn().PID()))
}

// waitUntilBlocked waits until the other waits for a lock.
func waitUntilBlocked(t *testing.T, admin, other *pgx.Conn) {
	t.Helper()
	for !one[bool](t, admin, "SELECT cardinality(pg_blocking_pids($1)) > 0", int32(other.PgConn().PID())) {
		if t.Context().Err() != nil {
			t.Fatal("it was never blocked")
		}
	}
}
