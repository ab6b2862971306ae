package shard

import (
	"fmt"
	"strconv"

	"github.com/cleavedb/cleave/internal/sqltext"
)

// RouterParameter is the startup parameter by which a backend says which router it serves. It is sent when the connection is
// made and not set afterwards, so that neither RESET ALL nor DISCARD ALL takes it away.
const RouterParameter = "cleave.router"

// ByHand is the value of [RouterParameter] with which a person says that they know what they do.
const ByHand = "by hand"

// Greeting is what a shard answers to a router's first statement.
type Greeting struct {
	// SearchPath and Role are the session's, as the client's role found them at log-in.
	SearchPath, Role string
	// ServerVersion is a number: 150018 is 15.18.
	ServerVersion int
	// MaxConnections of the server, and how many of them are kept for superusers.
	MaxConnections, ReservedConnections int
	// MapVersion is the version of the map that the shard has recorded; 0 if none is.
	MapVersion uint64
	// MinimumVersion is the oldest version by which a statement may be planned that runs here; 0 of a shard whose schema is older than that.
	MinimumVersion uint64
	// InRecovery: it is a replica.
	InRecovery bool
	// PID and Start are the session's process and when it was started, in microseconds, and Timeline is the server's; 0 of a replica.
	PID      int
	Start    int64
	Timeline int
	// Fanout is what the role has as cleave.fanout; empty if it has none.
	Fanout string
	// PartialResults is what it has as cleave.partial_results.
	PartialResults string
	// StatementTimeout is what it has as statement_timeout.
	StatementTimeout string
}

// HelloSQL is the first statement of a router's backend, for the simple protocol. The shard refuses it with SQLSTATE CL003 if
// it asks for a newer map than the router's version, and with CL002 if the session was not opened with [RouterParameter] as
// this router. Its one row goes to [ParseGreeting]. It writes, whatever the role's settings for transactions are, and
// waits for no replica; a server in recovery refuses it.
func HelloSQL(router string, version uint64) string {
	return fmt.Sprintf(`BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE; SET LOCAL synchronous_commit = off; SELECT h.search_path, h.role, h.server_version, h.max_connections, h.reserved_connections, h.map_version, h.in_recovery, a.pid,
		(EXTRACT(epoch FROM a.backend_start) OPERATOR(pg_catalog.*) 1000000)::bigint,
		CASE WHEN h.in_recovery THEN 0 ELSE ('x' OPERATOR(pg_catalog.||) pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8))::bit(32)::integer END, pg_catalog.current_setting('cleave.fanout', true), pg_catalog.current_setting('cleave.partial_results', true), pg_catalog.current_setting('statement_timeout'), COALESCE(pg_catalog.to_jsonb(h) OPERATOR(pg_catalog.->>) 'minimum_version', '0')
		FROM cleave.hello(%s, %d) h, pg_catalog.pg_stat_activity a WHERE a.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid(); COMMIT`, sqltext.QuoteLiteral(router), version)
}

// GreetingColumns is how many values there are in the row that hello answers with.
const GreetingColumns = 14

// ParseGreeting reads the row that hello answered with, each value in its text form.
func ParseGreeting(row []string) (Greeting, error) {
	if len(row) != GreetingColumns {
		return Greeting{}, fmt.Errorf("read the shard's greeting: it has %d values, not %d", len(row), GreetingColumns)
	}
	g := Greeting{SearchPath: row[0], Role: row[1], InRecovery: row[6] == "t", Fanout: row[10], PartialResults: row[11], StatementTimeout: row[12]}
	for column, into := range map[int]*int{2: &g.ServerVersion, 3: &g.MaxConnections, 4: &g.ReservedConnections, 7: &g.PID, 9: &g.Timeline} {
		number, err := strconv.Atoi(row[column])
		if err != nil {
			return Greeting{}, fmt.Errorf("read the shard's greeting: %w", err)
		}
		*into = number
	}
	var err error
	for column, into := range map[int]*uint64{5: &g.MapVersion, 13: &g.MinimumVersion} {
		if *into, err = strconv.ParseUint(row[column], 10, 64); err != nil {
			return Greeting{}, fmt.Errorf("read the shard's greeting: %w", err)
		}
	}
	if g.Start, err = strconv.ParseInt(row[8], 10, 64); err != nil {
		return Greeting{}, fmt.Errorf("read the shard's greeting: %w", err)
	}
	return g, nil
}
