package shard

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

func inspect(t testing.TB, conn *pgx.Conn) *Report {
	t.Helper()
	return must[*Report](t)(Inspect(t.Context(), conn))
}

func TestAReadyServerHasNoFindings(t *testing.T) {
	c := newCluster(t, 2)
	c.record(t)
	fresh := pgtest.Start(t)
	r := inspect(t, connect(t, specOf("s3", fresh)))
	others := map[string]*Report{"s1": inspect(t, c.conns[0]), "s2": inspect(t, c.conns[1])}
	expectCodes(t, Check(r, others, c.m))
	expectCodes(t, Compare(others))

	if r.Major() < leastMajor || r.InRecovery || r.Encoding != "UTF8" || r.Database != "postgres" || r.DatabaseOID == 0 || r.SystemIdentifier == 0 ||
		r.Settings.WALLevel != "logical" || r.Settings.BlockSize != 8192 || !r.Settings.IntegerDatetimes || !r.Role.Superuser || r.Role.Name != "postgres" ||
		len(r.TimeZones) != 64 || len(r.CollationVersions) == 0 || r.Identity != nil || r.Schema.Exists {
		t.Errorf("the report is %+v", r)
	}
	probed := map[key.Type]int{}
	for _, p := range r.Probes {
		probed[p.Type]++
		if !p.Agrees() {
			t.Errorf("%+v differs", p)
		}
	}
	for _, typ := range key.Types() {
		if probed[typ] < 3 {
			t.Errorf("%s was probed %d times", typ, probed[typ])
		}
	}
	if id := others["s2"].Identity; id == nil || id.Cluster != clusterID || id.Shard != "s2" || id.Number != 2 || id.MapVersion != c.m.Version() {
		t.Errorf("the identity of s2 is %+v", id)
	}
}

// TestEveryDifferenceIsFound changes one thing at a time in a report that has nothing wrong.
func TestEveryDifferenceIsFound(t *testing.T) {
	c := newCluster(t, 1)
	c.change(t, c.hashKeyspace(t, "users"),
		topology.SetTable(topology.TableSpec{Name: "orders", Kind: topology.Sharded, Keyspace: "users", Key: []string{"a", "b"}}),
		topology.SetTable(topology.TableSpec{Name: "countries", Kind: topology.Reference}),
		topology.SetTable(topology.TableSpec{Name: "audit", Kind: topology.Single, Shard: "s1"}))
	tenants := topology.NewKeyspaceSpec("tenants", topology.BySchema, 1)
	tenants.Ranges, tenants.Pins = []topology.RangeSpec{{Shard: "s1"}}, []topology.PinSpec{{Key: topology.Point{"acme"}, Shard: "s1"}}
	c.change(t, topology.CreateKeyspace(tenants))
	other := inspect(t, c.conns[0])
	good := inspect(t, connect(t, specOf("new", pgtest.Start(t))))
	plainRole := func(r *Report) {
		r.Role.Superuser, r.Role.Replication, r.Role.MemberOf = false, true, []string{"pg_create_subscription", "pg_signal_backend"}
	}
	table := func(schema, name string) func(*Report) {
		return func(r *Report) { r.Tables = []topology.TableName{{Schema: schema, Name: name}} }
	}
	for name, test := range map[string]struct {
		change func(*Report)
		want   []string
		hint   string // a part of it
	}{
		"nothing":              {func(*Report) {}, nil, ""},
		"old":                  {func(r *Report) { *r = Report{Version: "14.9", VersionNumber: 140009} }, []string{"problem version"}, "15"},
		"replica":              {func(r *Report) { r.InRecovery = true }, []string{"problem in_recovery"}, "primary"},
		"wal_level":            {func(r *Report) { r.Settings.WALLevel = "replica" }, []string{"problem wal_level"}, "ALTER SYSTEM SET wal_level = 'logical'; then restart"},
		"nothing prepared":     {func(r *Report) { r.Settings.MaxPreparedTransactions = 0 }, []string{"problem max_prepared_transactions"}, "SET max_prepared_transactions = '100'"},
		"little prepared":      {func(r *Report) { r.Settings.MaxPreparedTransactions = 5 }, []string{"warning max_prepared_transactions"}, "restart"},
		"few slots":            {func(r *Report) { r.Settings.MaxReplicationSlots = 3 }, []string{"problem max_replication_slots"}, "SET max_replication_slots"},
		"few senders":          {func(r *Report) { r.Settings.MaxWALSenders = 3 }, []string{"problem max_wal_senders"}, "SET max_wal_senders"},
		"few logical workers":  {func(r *Report) { r.Settings.MaxLogicalReplicationWorkers = 1 }, []string{"problem max_logical_replication_workers"}, "SET max_logical"},
		"few worker processes": {func(r *Report) { r.Settings.MaxWorkerProcesses = 3 }, []string{"problem max_worker_processes"}, "SET max_worker_processes"},
		"just enough": {func(r *Report) {
			r.Settings.MaxReplicationSlots, r.Settings.MaxWALSenders, r.Settings.MaxLogicalReplicationWorkers = 4, 4, 2
		}, nil, ""},
		"encoding":   {func(r *Report) { r.Encoding, r.Probes = "LATIN1", nil }, []string{"problem encoding"}, "UTF8"},
		"byte order": {func(r *Report) { r.Probes = slices.Clone(r.Probes); r.Probes[3].Server ^= 1 }, []string{"problem hash"}, "little-endian"},
		"plain role": {plainRole, nil, ""},
		"no CREATE":  {func(r *Report) { plainRole(r); r.Role.CreatesSchemas = false }, []string{"problem privileges"}, `GRANT CREATE ON DATABASE "postgres" TO "postgres"`},
		"own schema suffices": {func(r *Report) {
			plainRole(r)
			r.Role.CreatesSchemas, r.Schema = false, Schema{Exists: true, Usable: true, Owned: true}
		}, nil, ""},
		"another's schema": {func(r *Report) { plainRole(r); r.Schema = Schema{Exists: true, Usable: true} }, []string{"problem privileges"}, "ALTER SCHEMA cleave OWNER"},
		"no REPLICATION":   {func(r *Report) { plainRole(r); r.Role.Replication = false }, []string{"problem replication"}, "REPLICATION"},
		"no subscriptions": {func(r *Report) { plainRole(r); r.Role.MemberOf = []string{"pg_signal_backend"} }, []string{"warning subscriptions"}, `"postgres"`},
		"no signals":       {func(r *Report) { plainRole(r); r.Role.MemberOf = []string{"pg_create_subscription"} }, []string{"warning signal_backends"}, "GRANT pg_signal_backend"},
		"schema taken": {func(r *Report) {
			r.Schema = Schema{Exists: true, Usable: true, Owned: true, Foreign: tablesNamed("x")}
		}, []string{"problem schema_taken"}, "RENAME"},
		"stray objects": {func(r *Report) {
			r.Schema = Schema{Exists: true, Usable: true, Owned: true, Installed: true, Foreign: tablesNamed("orders")}
		}, []string{"problem stray_objects"}, "ALTER TABLE cleave.orders SET SCHEMA public"},
		"schema not readable":    {func(r *Report) { r.Schema = Schema{Exists: true, Owned: true, Installed: true} }, []string{"problem privileges"}, "Log in as the role that owns it"},
		"sharded table":          {table("public", "orders"), []string{"problem tables"}, "ALTER TABLE public.orders RENAME"},
		"reference table":        {table("public", "countries"), []string{"problem tables"}, ""},
		"single table":           {table("public", "audit"), []string{"problem tables"}, ""},
		"table of a schema":      {table("acme", "anything"), []string{"problem tables"}, ""},
		"other table":            {table("public", "else"), []string{"warning other_tables"}, ""},
		"other cluster":          {func(r *Report) { r.Identity = &Identity{Cluster: otherID, Shard: "x"} }, []string{"problem other_cluster"}, "DROP SCHEMA cleave"},
		"already a shard":        {func(r *Report) { r.Identity = &Identity{Cluster: clusterID, Shard: "s1"} }, []string{"problem already_shard"}, ""},
		"left by a removed one":  {func(r *Report) { r.Identity = &Identity{Cluster: clusterID, Shard: "gone"} }, nil, ""},
		"collation":              {func(r *Report) { r.Collation.Collate = "en_US.utf8" }, []string{"problem collation"}, "LC_COLLATE '" + other.Collation.Collate + "'"},
		"collation provider":     {func(r *Report) { r.Collation.Provider, r.Collation.Locale = "icu", "en" }, []string{"problem collation"}, "LOCALE_PROVIDER libc"},
		"collation changed":      {func(r *Report) { r.Collation.Recorded = "1.0" }, []string{"warning collation_version"}, "REFRESH COLLATION VERSION"},
		"collation of the other": {func(r *Report) { r.Collation.Recorded, r.Collation.Actual = "1.0", "1.0" }, []string{"warning collation_version"}, "glibc"},
		"some collation":         {func(r *Report) { r.CollationVersions = changedVersions(r) }, []string{"warning collation_version"}, "ICU"},
		"unknown collation":      {func(r *Report) { r.CollationVersions = map[string]string{"new-x-icu i": "1"} }, nil, ""},
		"time zones":             {func(r *Report) { r.TimeZones = "others" }, []string{"warning time_zones"}, "tzdata"},
		"major version":          {func(r *Report) { r.VersionNumber += 10000 }, []string{"warning version"}, "major"},
		"same database":          {func(r *Report) { r.SystemIdentifier, r.DatabaseOID = other.SystemIdentifier, other.DatabaseOID }, []string{"problem same_database"}, ""},
		"same server":            {func(r *Report) { r.SystemIdentifier, r.DatabaseOID = other.SystemIdentifier, other.DatabaseOID+1 }, []string{"warning same_server"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			changed := *good
			test.change(&changed)
			found := Check(&changed, map[string]*Report{"s1": other, "s2": other}, c.m)
			if strings.HasPrefix(name, "same") {
				found = Check(&changed, map[string]*Report{"s1": other}, c.m)
			}
			expectCodes(t, found, test.want...)
			if test.hint != "" && !slices.ContainsFunc(found, func(f api.Finding) bool { return strings.Contains(f.Hint, test.hint) }) {
				t.Errorf("no hint says %q: %v", test.hint, found)
			}
		})
	}
}

func changedVersions(r *Report) map[string]string {
	changed := maps.Clone(r.CollationVersions)
	for name := range changed {
		changed[name] += ".1"
	}
	return changed
}

func TestShardsAreComparedWithEachOther(t *testing.T) {
	a := &Report{VersionNumber: 150000, SystemIdentifier: 1, DatabaseOID: 1, TimeZones: "x"}
	b := &Report{VersionNumber: 150000, SystemIdentifier: 2, DatabaseOID: 1, TimeZones: "y"}
	c := &Report{VersionNumber: 160000, SystemIdentifier: 2, DatabaseOID: 5, TimeZones: "x"}
	expectCodes(t, Compare(map[string]*Report{"a": a, "b": b, "c": c}), "warning time_zones b", "warning version c", "warning same_server c")
}

// TestServersThatAreNotReady looks at real ones, each wrong in some way.
func TestServersThatAreNotReady(t *testing.T) {
	m := must[*topology.Map](t)(topology.New(clusterID))
	server := pgtest.StartWith(t, localpg.Config{Settings: map[string]string{
		"wal_level": "replica", "max_prepared_transactions": "0", "max_wal_senders": "2", "max_replication_slots": "1", "max_logical_replication_workers": "1",
	}})[0]
	spec := specOf("s1", server)
	admin := connect(t, spec)
	expectCodes(t, Check(inspect(t, admin), nil, m), "problem wal_level", "problem max_prepared_transactions", "problem max_wal_senders",
		"problem max_replication_slots", "problem max_logical_replication_workers")
}

func TestDatabasesThatAreNotReady(t *testing.T) {
	m := must[*topology.Map](t)(topology.New(clusterID))
	server := pgtest.StartWhole(t)
	spec := specOf("s1", server)
	admin := connect(t, spec)
	execute(t, admin, "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
	execute(t, admin, "CREATE DATABASE plain LOCALE 'C' TEMPLATE template0")
	base := map[string]*Report{"s1": inspect(t, admin)}
	spec.Database = "latin"
	expectCodes(t, Check(inspect(t, connect(t, spec)), nil, m), "problem encoding")
	spec.Database = "plain"
	expectCodes(t, Check(inspect(t, connect(t, spec)), base, m), "problem collation", "warning same_server")

	execute(t, admin, "CREATE ROLE guest LOGIN")
	spec.User = "guest"
	guest := connect(t, spec)
	expectCodes(t, Check(inspect(t, guest), nil, m), "problem privileges", "problem replication", "warning subscriptions", "warning signal_backends")

	spec.User = server.Superuser()
	owner := connect(t, spec)
	execute(t, owner, "CREATE TABLE public.mine (id int)")
	execute(t, owner, "CREATE SCHEMA cleave CREATE TABLE cleave.theirs (id int)")
	expectCodes(t, Check(inspect(t, owner), nil, m), "problem schema_taken", "warning other_tables")
	execute(t, owner, "DROP SCHEMA cleave CASCADE")
	other := must[*topology.Map](t)(topology.New(otherID))
	spec.Name = "elsewhere"
	prepare(t, owner, spec, other)
	expectCodes(t, Check(inspect(t, owner), nil, m), "problem other_cluster", "warning other_tables")
	expectCodes(t, Check(inspect(t, guest), nil, m), "problem privileges", "problem privileges", "problem replication",
		"warning subscriptions", "warning signal_backends", "warning other_tables")

	replica := specOf("replica", pgtest.StartReplica(t, server))
	expectCodes(t, Check(inspect(t, connect(t, replica)), base, m), "problem in_recovery", "problem same_database")
}

func TestTheDigestOfTimeZonesDoesNotDependOnTheSession(t *testing.T) {
	conn := connect(t, specOf("s1", pgtest.Start(t)))
	first := inspect(t, conn)
	execute(t, conn, "SET timezone = 'America/New_York'")
	execute(t, conn, "SET datestyle = 'German'")
	execute(t, conn, "SET intervalstyle = 'iso_8601'")
	if second := inspect(t, conn); second.TimeZones != first.TimeZones {
		t.Errorf("%s became %s", first.TimeZones, second.TimeZones)
	}
}

// TestHintsFitTheVersion is about a privilege that is a role of its own since PostgreSQL 16.
func TestHintsFitTheVersion(t *testing.T) {
	for version, want := range map[int]string{150000: "SUPERUSER", 160000: "GRANT pg_create_subscription"} {
		r := &Report{VersionNumber: version}
		r.Role.Name, r.Role.Replication = "app", true
		var found findings
		found.checkRole(r)
		if !slices.ContainsFunc(found, func(f api.Finding) bool { return f.Code == "subscriptions" && strings.Contains(f.Hint, want) }) {
			t.Errorf("%d: %+v", version, found)
		}
	}
}
