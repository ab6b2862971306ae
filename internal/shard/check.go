package shard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// The least that a shard must have: a move takes two slots and two senders on its source, and more than one may run.
const (
	leastSlots           = 4
	leastSenders         = 4
	leastLogicalWorkers  = 2
	leastWorkerProcesses = 4
)

// Check says what stands in the way of making the server a shard of the cluster (problems), and what a person should know
// (warnings). Others are the reports of the cluster's shards, by name; m is its map.
func Check(r *Report, others map[string]*Report, m *topology.Map) []api.Finding {
	var f findings
	f.checkVersion(r)
	if r.Major() < leastMajor {
		return f
	}
	f.checkSettings(r)
	f.checkRole(r)
	f.checkData(r)
	f.checkIdentity(r, m)
	f.checkTables(r, m)
	f.compareAll(r, others)
	return f
}

// Compare says in which ways the shards, by name, differ so that answers could too. Each is compared with the first. It also
// tells of things that came into a shard's schema cleave after it was added.
func Compare(reports map[string]*Report) []api.Finding {
	var f findings
	names := slices.Sorted(maps.Keys(reports))
	for i, name := range names {
		if strangers := reports[name].Schema.Foreign; len(strangers) > 0 {
			f.warning("stray_objects", strayMessage(strangers), strangers[0].moveAway())
			f.about(name, len(f)-1)
		}
		for j, other := range names[:i] {
			if reports[name].Major() < leastMajor || reports[other].Major() < leastMajor {
				continue
			}
			if j == 0 {
				f.compareTraits(name, reports[name], other, reports[other])
			}
			f.compareDatabase(name, reports[name], other, reports[other])
		}
	}
	return f
}

// findings collects them.
type findings []api.Finding

func (f *findings) problem(code, message, hint string) {
	*f = append(*f, api.Finding{Severity: api.Problem, Code: code, Message: message, Hint: hint})
}

func (f *findings) warning(code, message, hint string) {
	*f = append(*f, api.Finding{Severity: api.Warning, Code: code, Message: message, Hint: hint})
}

// about says of which shard the findings since the given one are.
func (f findings) about(shard string, since int) {
	for i := since; i < len(f); i++ {
		f[i].Shard = shard
	}
}

func (f *findings) checkVersion(r *Report) {
	if r.Major() < leastMajor {
		f.problem("version", fmt.Sprintf("the server is PostgreSQL %s, which is older than %d", r.Version, leastMajor),
			fmt.Sprintf("Upgrade it to PostgreSQL %d or newer.", leastMajor))
	}
	if r.InRecovery {
		f.problem("in_recovery", "the server is a replica: it takes no writes", "Give the address of its primary, and this one as a replica.")
	}
}

// restartHint names the command for a setting that is read at the server's start.
func restartHint(setting string, value any) string {
	return fmt.Sprintf("ALTER SYSTEM SET %s = '%v'; then restart the server.", setting, value)
}

func (f *findings) checkSettings(r *Report) {
	s := r.Settings
	if s.WALLevel != "logical" {
		f.problem("wal_level", fmt.Sprintf("wal_level is %s: nothing could be moved from this shard", s.WALLevel), restartHint("wal_level", "logical"))
	}
	switch {
	case s.MaxPreparedTransactions == 0:
		f.problem("max_prepared_transactions", "max_prepared_transactions is 0: no transaction could write to this shard and another",
			restartHint("max_prepared_transactions", s.MaxConnections))
	case s.MaxPreparedTransactions < s.MaxConnections:
		f.warning("max_prepared_transactions",
			fmt.Sprintf("max_prepared_transactions is %d, below max_connections, which is %d: transactions over several shards may fail under load", s.MaxPreparedTransactions, s.MaxConnections),
			restartHint("max_prepared_transactions", s.MaxConnections))
	}
	for _, least := range []struct {
		setting      string
		value, least int
	}{
		{"max_replication_slots", s.MaxReplicationSlots, leastSlots},
		{"max_wal_senders", s.MaxWALSenders, leastSenders},
		{"max_logical_replication_workers", s.MaxLogicalReplicationWorkers, leastLogicalWorkers},
		{"max_worker_processes", s.MaxWorkerProcesses, leastWorkerProcesses},
	} {
		if least.value < least.least {
			f.problem(least.setting, fmt.Sprintf("%s is %d, a shard needs at least %d", least.setting, least.value, least.least),
				restartHint(least.setting, max(10, least.least)))
		}
	}
}

func (f *findings) checkRole(r *Report) {
	role := sqltext.QuoteIdentifier(r.Role.Name)
	switch {
	case r.Schema.Exists && !r.Schema.Owned:
		f.problem("privileges", fmt.Sprintf("the schema cleave is there, and role %s does not own it", r.Role.Name), "ALTER SCHEMA cleave OWNER TO "+role+";")
	case !r.Schema.Exists && !r.Role.CreatesSchemas:
		f.problem("privileges", fmt.Sprintf("role %s may not create a schema in database %s", r.Role.Name, r.Database),
			fmt.Sprintf("GRANT CREATE ON DATABASE %s TO %s; or CREATE SCHEMA cleave AUTHORIZATION %s;", sqltext.QuoteIdentifier(r.Database), role, role))
	}
	if !r.Role.Superuser && !r.Role.Replication {
		f.problem("replication", fmt.Sprintf("role %s may not replicate: nothing could be moved from this shard", r.Role.Name), "ALTER ROLE "+role+" REPLICATION;")
	}
	if !r.Role.Superuser && !slices.Contains(r.Role.MemberOf, "pg_create_subscription") {
		hint := "GRANT pg_create_subscription TO " + role + ";"
		if r.Major() < 16 {
			hint = "Before PostgreSQL 16 only superusers may: ALTER ROLE " + role + " SUPERUSER;"
		}
		f.warning("subscriptions", fmt.Sprintf("role %s may not create subscriptions: nothing could be moved to this shard", r.Role.Name), hint)
	}
	if !r.Role.Superuser && !slices.Contains(r.Role.MemberOf, "pg_signal_backend") {
		f.warning("signal_backends", fmt.Sprintf("role %s may not end other roles' sessions, which the end of a move may need", r.Role.Name),
			"GRANT pg_signal_backend TO "+role+";")
	}
}

// checkData is about what decides how values are stored, compared and hashed.
func (f *findings) checkData(r *Report) {
	if r.Encoding != "UTF8" {
		f.problem("encoding", fmt.Sprintf("the encoding of database %s is %s: keys would hash differently", r.Database, r.Encoding),
			"Create a database with ENCODING 'UTF8' TEMPLATE template0, and move the data there by dump and restore.")
	}
	for _, p := range r.Probes {
		if !p.Agrees() {
			f.problem("hash", fmt.Sprintf("the server hashes the %s %q to %016x, and not to %016x: its byte order or its hash functions are others", p.Type, p.Value, p.Server, p.Here),
				"Use a server on a little-endian machine, such as x86-64 or arm64, with PostgreSQL's own hash functions.")
			break
		}
	}
	if c := r.Collation; c.Recorded != c.Actual {
		f.warning("collation_version",
			fmt.Sprintf("database %s was made with version %q of its collation, the operating system has %q: indexes on text may be out of order", r.Database, c.Recorded, c.Actual),
			fmt.Sprintf("REINDEX DATABASE %s; then ALTER DATABASE %s REFRESH COLLATION VERSION;", sqltext.QuoteIdentifier(r.Database), sqltext.QuoteIdentifier(r.Database)))
	}
}

func (f *findings) checkIdentity(r *Report, m *topology.Map) {
	switch strangers := r.Schema.Foreign; {
	case len(strangers) == 0:
	case !r.Schema.Installed:
		f.problem("schema_taken", "the schema cleave is used by something else: it has "+some(texts(strangers)), "Rename it: ALTER SCHEMA cleave RENAME TO …;")
	default:
		f.problem("stray_objects", strayMessage(strangers), strangers[0].moveAway())
	}
	if r.Schema.Installed && !r.Schema.Usable {
		f.problem("privileges", "the schema cleave is there and cannot be read, so it is not known to which cluster the database belongs",
			"Log in as the role that owns it.")
	}
	switch id := r.Identity; {
	case id == nil || m == nil:
	case id.Cluster != m.Cluster():
		f.problem("other_cluster", fmt.Sprintf("the database belongs to cluster %s as shard %s", id.Cluster, id.Shard),
			"Remove it from that cluster first. If that cluster is gone: "+dropHint)
	case m.Shard(id.Shard) != nil:
		f.problem("already_shard", fmt.Sprintf("the database is shard %s of this cluster already", id.Shard),
			"Nothing needs to be added. If it is a copy of that shard, in the copy: "+dropHint)
	}
}

func strayMessage(strangers []Object) string {
	return "the schema cleave has things in it that are not Cleave's own and would be mixed up with them: " + some(texts(strangers))
}

// dropHint is for a schema of ours that is to go although no command of ours can tell whose it is.
const dropHint = "look with \\dt cleave.* that it has no table of yours, then DROP SCHEMA cleave CASCADE;"

// checkTables compares what is there with what the map says is elsewhere.
func (f *findings) checkTables(r *Report, m *topology.Map) {
	var known, unknown []string
	for _, name := range r.Tables {
		if r.isLeft(m, name) {
			continue // and is made anew
		}
		if m != nil && inMap(m, name) {
			known = append(known, name.String())
		} else {
			unknown = append(unknown, name.String())
		}
	}
	if len(known) > 0 {
		f.problem("tables", "the database has tables of the same name as the cluster: "+some(known),
			"Rename or drop them here, for example: ALTER TABLE "+known[0]+" RENAME TO …;")
	}
	if len(unknown) > 0 {
		f.warning("other_tables", fmt.Sprintf("the database has %d tables that are not part of the cluster: %s", len(unknown), some(unknown)),
			"They stay as they are; who reads them through the cluster does not find them until they are made part of it.")
	}
}

// isLeft says whether a table was left by somebody who was about to add the shard, and did not come to the end.
func (r *Report) isLeft(m *topology.Map, name topology.TableName) bool {
	return m != nil && m.Table(name.Schema, name.Name) != nil && r.Identity != nil && r.Identity.Cluster == m.Cluster() && r.Identity.MapVersion == 0 && slices.Contains(r.Guarded, name)
}

// inMap says whether the map has the table itself or places its schema.
func inMap(m *topology.Map, name topology.TableName) bool {
	if m.Table(name.Schema, name.Name) != nil {
		return true
	}
	_, keyspace := m.LocateSchema(name.Schema)
	return keyspace != nil
}

// some names the first few.
func some(names []string) string {
	const few = 5
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}

// compareAll looks at a server that is to be a shard beside those that are. A difference is told once, with the first shard
// that shows it, because most often all of them do.
func (f *findings) compareAll(r *Report, others map[string]*Report) {
	told := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		if others[name].Major() < leastMajor {
			continue
		}
		var differences findings
		differences.compareTraits("", r, name, others[name])
		for _, d := range differences {
			if !told[d.Code] {
				*f = append(*f, d)
			}
			told[d.Code] = true
		}
		f.compareDatabase("", r, name, others[name])
	}
}

func (f *findings) compareTraits(name string, r *Report, other string, o *Report) {
	since := len(*f)
	if r.Collation.name() != o.Collation.name() {
		f.problem("collation", fmt.Sprintf("the default collation is %s, on shard %s it is %s: text would be sorted and compared differently", r.Collation.name(), other, o.Collation.name()),
			"Create the database with "+createOptions(o.Collation)+" TEMPLATE template0.")
	} else if differing := differingVersions(r, o); differing != "" {
		f.warning("collation_version", fmt.Sprintf("collations have other versions than on shard %s: %s: text may be sorted differently", other, differing),
			"Use the same release of the operating system (glibc and ICU) on all shards.")
	}
	if r.TimeZones != o.TimeZones {
		f.warning("time_zones", fmt.Sprintf("the time zone data are not those of shard %s: times may be converted differently", other),
			"Install the same release of tzdata on all shards, and restart the servers.")
	}
	if r.Major() != o.Major() {
		f.warning("version", fmt.Sprintf("the server is PostgreSQL %s, shard %s has %s", r.Version, other, o.Version), "Use the same major version on all shards.")
	}
	f.about(name, since)
}

// createOptions are those with which CREATE DATABASE makes such a collation.
func createOptions(c Collation) string {
	options := fmt.Sprintf("LOCALE_PROVIDER %s LC_COLLATE '%s' LC_CTYPE '%s'", c.Provider, c.Collate, c.Ctype)
	switch c.Provider {
	case "icu":
		options += fmt.Sprintf(" ICU_LOCALE '%s'", c.Locale)
	case "builtin":
		options += fmt.Sprintf(" BUILTIN_LOCALE '%s'", c.Locale)
	}
	return options
}

// differingVersions names the collations that both servers have in different versions.
func differingVersions(r, o *Report) string {
	var differing []string
	if r.Collation.Actual != o.Collation.Actual {
		differing = append(differing, fmt.Sprintf("the default one (%s, not %s)", cmp.Or(r.Collation.Actual, "none"), cmp.Or(o.Collation.Actual, "none")))
	}
	for _, name := range slices.Sorted(maps.Keys(r.CollationVersions)) {
		if version, both := o.CollationVersions[name]; both && version != r.CollationVersions[name] {
			collation, _, _ := strings.Cut(name, " ")
			differing = append(differing, fmt.Sprintf("%s (%s, not %s)", collation, r.CollationVersions[name], version))
		}
	}
	if len(differing) == 0 {
		return ""
	}
	return some(differing)
}

func (f *findings) compareDatabase(name string, r *Report, other string, o *Report) {
	if r.SystemIdentifier != o.SystemIdentifier {
		return
	}
	since := len(*f)
	if r.DatabaseOID == o.DatabaseOID {
		f.problem("same_database", fmt.Sprintf("it is the same database as shard %s, or a copy of it", other),
			"Use another database. A server that was copied gets an identifier of its own by a new initdb and a restore of a dump.")
	} else {
		f.warning("same_server", fmt.Sprintf("it is on the same server as shard %s, or on a copy of it: they share its load and its failures", other), "Use a server for each shard.")
	}
	f.about(name, since)
}
