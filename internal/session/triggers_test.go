package session

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// withParameters connects with startup parameters.
func (w *world) withParameters(t *testing.T, user string, parameters map[string]string) (*pgx.Conn, error) {
	t.Helper()
	config := must[*pgx.ConnConfig](t)(pgx.ParseConfig("postgres://" + user + "@" + w.address + "/postgres?sslmode=disable"))
	for name, value := range parameters {
		config.RuntimeParams[name] = value
	}
	return pgx.ConnectConfig(t.Context(), config)
}

func stateOf(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// TestNobodySwitchesGuardsOff who comes through the router, by a statement or otherwise.
func TestNobodySwitchesGuardsOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, setUp: []string{"CREATE ROLE somebody LOGIN SUPERUSER", "CREATE FUNCTION harmless() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1'"}})
	client := w.client(t)
	for _, sql := range []string{
		"SET session_replication_role = replica", "SET SESSION session_replication_role TO 'Replica'", "BEGIN; SET LOCAL session_replication_role = replica; COMMIT",
		"SELECT set_config('session_replication_role', 'replica', false)", "SELECT set_config('session_' || 'replication_role', 'replica', false)",
		"WITH w AS (SELECT set_config('session_replication_role', 'replica', true)) SELECT * FROM w", "SELECT 1 FROM orders WHERE id = 1 AND set_config('session_replication_role', 'replica', true) = ''",
		"PREPARE p AS SELECT set_config('session_replication_role', 'replica', false); EXECUTE p", "DO $$ BEGIN SET session_replication_role = replica; END $$",
		"UPDATE pg_settings SET setting = 'replica' WHERE name = 'session_replication_role'",
		"ALTER ROLE somebody SET session_replication_role = replica", "ALTER ROLE ALL SET session_replication_role = 'replica'", "ALTER ROLE somebody IN DATABASE postgres SET session_replication_role TO replica",
		"ALTER DATABASE postgres SET session_replication_role = replica", "ALTER SYSTEM SET session_replication_role = replica",
		"CREATE FUNCTION off() RETURNS int LANGUAGE sql SET session_replication_role = replica AS 'SELECT 1'", "ALTER FUNCTION harmless() SET session_replication_role = replica",
		"ALTER TABLE orders DISABLE TRIGGER ALL", "ALTER TABLE orders DISABLE TRIGGER USER", "ALTER TABLE orders DISABLE TRIGGER cleave_guard", "ALTER TABLE orders ENABLE REPLICA TRIGGER cleave_guard",
	} {
		_, err := client.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
		if code := stateOf(err); code != pgerr.FeatureNotSupported {
			t.Errorf("%s: %v", sql, err)
		}
		execute(t, client, "ROLLBACK")
	}
	for _, parameters := range []map[string]string{
		{"session_replication_role": "replica"}, {"Session_Replication_Role": "REPLICA"}, {"options": "-c session_replication_role=replica"}, {"options": "--session-replication-role=replica"},
	} {
		if conn, err := w.withParameters(t, "postgres", parameters); stateOf(err) != pgerr.FeatureNotSupported {
			t.Errorf("%v: %v, %v", parameters, conn, err)
		}
	}
	for number := range w.shards {
		shard := w.onShard(t, number+1)
		if role := one[string](t, shard, "SELECT coalesce(string_agg(setconfig::text, ' '), '') FROM pg_db_role_setting"); strings.Contains(role, "replica") {
			t.Errorf("shard %d has %s", number+1, role)
		}
	}
}

// TestRolesThatBeginWithoutGuardsAreKeptOut: somebody has given a role the setting past the router.
func TestRolesThatBeginWithoutGuardsAreKeptOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, setUp: []string{"CREATE ROLE somebody LOGIN SUPERUSER"}})
	for number := 1; number <= 2; number++ {
		execute(t, w.onShard(t, number), "ALTER ROLE somebody SET session_replication_role = replica")
	}
	conn, err := w.withParameters(t, "somebody", nil)
	if err == nil {
		_, err = conn.Exec(t.Context(), fmt.Sprintf("INSERT INTO orders VALUES (%d, 'x')", w.key(t, 2, 0)))
	}
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || !strings.Contains(refused.Detail, "session_replication_role = replica is not supported") {
		t.Errorf("the role is let in: %v, %+v", err, refused)
	}
}

// TestGuardsThatComeLaterCount: a client had switched triggers off before there was any guard.
func TestGuardsThatComeLaterCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, unsharded: true})
	client := w.client(t)
	execute(t, client, "SET session_replication_role = replica")
	execute(t, client, "INSERT INTO undeclared VALUES (1)")
	w.publish(must[*topology.Map](t)(w.m.Next(topology.SetTable(topology.TableSpec{Name: "public.orders", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"}}))))
	if _, err := client.Exec(t.Context(), "INSERT INTO undeclared VALUES (2)"); stateOf(err) != pgerr.FeatureNotSupported {
		t.Errorf("a row is written with triggers off: %v", err)
	}
	execute(t, client, "SELECT 1 FROM undeclared")
	execute(t, client, "SET session_replication_role = origin")
	execute(t, client, "INSERT INTO undeclared VALUES (2)")
}
