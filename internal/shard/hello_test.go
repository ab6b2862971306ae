package shard

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// hello says hello over a connection, as a router does: in the simple protocol, with answers as text.
func hello(t testing.TB, conn *pgx.Conn, router string, version uint64) (Greeting, error) {
	t.Helper()
	results, err := conn.PgConn().Exec(t.Context(), HelloSQL(router, version)).ReadAll()
	if err != nil {
		_ = conn.PgConn().Exec(t.Context(), "ROLLBACK").Close() // a router would hang up
		return Greeting{}, err
	}
	answer := results[slices.IndexFunc(results, func(r *pgconn.Result) bool { return len(r.Rows) > 0 })].Rows[0]
	row := make([]string, len(answer))
	for i, value := range answer {
		row[i] = string(value)
	}
	return ParseGreeting(row)
}

func TestHelloTellsWhatARouterNeeds(t *testing.T) {
	c := newCluster(t, 1)
	c.record(t)
	execute(t, c.conns[0], "CREATE ROLE app LOGIN; ALTER ROLE app SET search_path = app, public")
	spec := specOf("s1", c.servers[0])
	spec.User = "app"
	conn := connectAsRouter(t, spec)
	got := must[Greeting](t)(hello(t, conn, "r-1", c.m.Version()))
	want := Greeting{
		SearchPath: "app, public", Role: "app", MapVersion: c.m.Version(), MinimumVersion: one[uint64](t, c.conns[0], "SELECT minimum_version FROM cleave.identity"),
		ServerVersion:       one[int](t, c.conns[0], "SELECT current_setting('server_version_num')::int"),
		MaxConnections:      one[int](t, c.conns[0], "SELECT current_setting('max_connections')::int"),
		ReservedConnections: one[int](t, c.conns[0], "SELECT current_setting('superuser_reserved_connections')::int"),
		PID:                 int(conn.PgConn().PID()), Timeline: 1, StatementTimeout: "0",
		Start: one[int64](t, c.conns[0], "SELECT (extract(epoch FROM backend_start) * 1000000)::bigint FROM pg_stat_activity WHERE pid = $1", conn.PgConn().PID()),
	}
	if got != want {
		t.Errorf("greeted with %+v, want %+v", got, want)
	}
	_, err := conn.Exec(t.Context(), "SELECT * FROM cleave.identity")
	refusedAs(t, pgerr.InsufficientPrivilege, err, "reading what hello reads")
}

func TestHelloOfARouterThatIsTooOld(t *testing.T) {
	c := newCluster(t, 1)
	c.change(t, topology.UpdateShard("s1", func(s *topology.ShardSpec) { s.MinimumVersion = c.m.Version() + 1 }))
	c.record(t)
	conn := c.routers(t)[0]
	_, err := hello(t, conn, "r-1", c.m.Version()-1)
	if refused := refusedAs(t, pgerr.OldMap, err, "an old map"); refused.Hint == "" || !strings.Contains(refused.Message, `"s1"`) {
		t.Errorf("refused with %+v", refused)
	}
	if _, err := hello(t, conn, "r-1", c.m.Version()); err != nil {
		t.Errorf("the map that is asked for: %v", err)
	}
}

// TestHelloOfSomebodyElse: the mark that guards look at comes with the connection, in either of the two ways.
func TestHelloOfSomebodyElse(t *testing.T) {
	c := newCluster(t, 1)
	spec := specOf("s1", c.servers[0])
	version := c.m.Version()
	_, err := hello(t, connectAsClient(t, spec), "r-1", version)
	refusedAs(t, pgerr.NoHello, err, "a session without the mark")
	_, err = hello(t, connectAsRouter(t, spec), "r-2", version)
	refusedAs(t, pgerr.NoHello, err, "another router's session")
	_, err = hello(t, connectAsRouter(t, spec), "it's \\ odd", version)
	if refused := refusedAs(t, pgerr.NoHello, err, "an odd name"); !strings.Contains(refused.Message, `it's \ odd`) {
		t.Errorf("refused with %q", refused.Message)
	}
	config := must[*pgx.ConnConfig](t)(Access{}.to(spec).config(spec.Primary.Address))
	config.RuntimeParams = map[string]string{"options": "-c cleave.router=r-3"}
	conn := must[*pgx.Conn](t)(pgx.ConnectConfig(t.Context(), config))
	defer conn.Close(context.Background())
	for _, reset := range []string{"", "RESET ALL", "DISCARD ALL"} {
		execute(t, conn, reset)
		if _, err := hello(t, conn, "r-3", version); err != nil {
			t.Errorf("marked by options, after %q: %v", reset, err)
		}
	}
	if err := Release(t.Context(), c.conns[0], clusterID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Install(t.Context(), c.conns[0]); err != nil {
		t.Fatal(err)
	}
	_, err = hello(t, connectAsRouter(t, spec), "r-1", version)
	refusedAs(t, pgerr.ObjectNotInPrerequisite, err, "a database of no cluster")
}

func TestGreetingsThatAreNone(t *testing.T) {
	for _, row := range [][]string{nil, {"a"}, {"p", "r", "x", "1", "1", "1", "f"}, {"p", "r", "1", "1", "1", "-1", "f"}} {
		if _, err := ParseGreeting(row); err == nil {
			t.Errorf("%q was taken for a greeting", row)
		}
	}
}
