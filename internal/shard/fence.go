package shard

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/topology"
)

// movesNoted is the step of the schema that moves need. Every backend of a router is noted, so that those of a router that has not heard of a new map can be ended.
// The table is unlogged: a server that has crashed has no backends. Hello reads the minimum version and notes the backend under a lock, so whoever has raised the minimum and then had that lock
// alone knows that every backend that was let in before is noted. It is a table's, and no advisory lock, which any client could take and let nobody in. Each statement of hello must see
// what is committed by then, so it needs READ COMMITTED.
const movesNoted = `
	ALTER TABLE cleave.ranges DROP CONSTRAINT ranges_state_check, ADD CONSTRAINT ranges_state_check CHECK (state IN ('owned', 'incoming', 'opening', 'leaving'));
	ALTER TABLE cleave.pins DROP CONSTRAINT pins_state_check, ADD CONSTRAINT pins_state_check CHECK (state IN ('owned', 'incoming', 'opening', 'leaving'));
	CREATE UNLOGGED TABLE cleave.backends (
		pid    integer PRIMARY KEY,
		start  timestamptz NOT NULL,
		router text NOT NULL
	);
	COMMENT ON TABLE cleave.backends IS 'which router each backend serves; some of them may have ended';
	REVOKE ALL ON cleave.backends FROM PUBLIC;` + helloNoted

// helloNoted is hello of that step.
const helloNoted = `
	CREATE OR REPLACE FUNCTION cleave.hello(router text, version bigint, session_path text DEFAULT current_setting('search_path'), session_role name DEFAULT current_user,
		OUT search_path text, OUT role text, OUT server_version integer, OUT max_connections integer, OUT reserved_connections integer,
		OUT map_version bigint, OUT in_recovery boolean)
	LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $hello$
	DECLARE
		own record;
	BEGIN
		IF current_setting('cleave.router', true) IS DISTINCT FROM router OR router = '' THEN
			RAISE EXCEPTION USING ERRCODE = 'CL002', MESSAGE = format('the session was not opened by router "%s"', router),
				DETAIL = 'A router says who it is when it connects, with the startup parameter cleave.router, so that nothing takes it away later.',
				HINT = 'Connect to the router, which does this by itself.';
		END IF;
		LOCK TABLE cleave.backends IN ROW EXCLUSIVE MODE;
		SELECT i.shard, i.map_version, i.minimum_version INTO own FROM cleave.identity i;
		IF NOT FOUND THEN
			RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'the database does not belong to a cluster',
				HINT = 'Correct the address of the shard, or add the database with: cleave shard add';
		END IF;
		IF version < own.minimum_version THEN
			RAISE EXCEPTION USING ERRCODE = 'CL003', MESSAGE = format('shard "%s" asks for map version %s or newer, router "%s" has %s', own.shard, own.minimum_version, router, version),
				DETAIL = 'Something has changed its owner or its kind since, so the router would look for it in the wrong place.',
				HINT = 'The router has to read the newer map before it speaks to this shard.';
		END IF;
		INSERT INTO cleave.backends AS b (pid, start, router) SELECT a.pid, a.backend_start, hello.router FROM pg_stat_activity a WHERE a.pid = pg_backend_pid()
			ON CONFLICT (pid) DO UPDATE SET start = excluded.start, router = excluded.router;
		search_path := session_path;
		role := session_role;
		server_version := current_setting('server_version_num');
		max_connections := current_setting('max_connections');
		reserved_connections := current_setting('superuser_reserved_connections')::integer + coalesce(current_setting('reserved_connections', true), '0')::integer;
		map_version := own.map_version;
		in_recovery := pg_is_in_recovery();
	END
	$hello$;`

// minimumTold is the step of the schema in which hello tells the minimum version too: what was planned by an older map than that may not run on the backend, whatever the router knows by then.
var minimumTold = "DROP FUNCTION cleave.hello(text, bigint, text, name);" + strings.NewReplacer(
	"CREATE OR REPLACE", "CREATE", "OUT map_version bigint,", "OUT map_version bigint, OUT minimum_version bigint,", "map_version := own.map_version;", "map_version := own.map_version; minimum_version := own.minimum_version;",
).Replace(helloNoted) + `
	COMMENT ON FUNCTION cleave.hello(text, bigint, text, name) IS 'the first statement of a router: refuses one whose map is too old, and tells the others what they need to know';
	GRANT EXECUTE ON FUNCTION cleave.hello(text, bigint, text, name) TO PUBLIC;`

// Fence ends the backends of all routers that are not among those that have settled, and returns when they are gone. The shard must have recorded the map whose minimum version those that have not
// settled do not have, so that they do not come back; whoever says hello meanwhile is heard.
func Fence(ctx context.Context, conn *pgx.Conn, settled []string) (ended int, err error) {
	return fence(ctx, conn, 0, settled, forgetEndedSQL)
}

// awaitEnded waits until backends are gone.
func awaitEnded(ctx context.Context, conn *pgx.Conn, pids []int32) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		var left int
		err := conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity a JOIN cleave.backends b ON a.pid = b.pid AND a.backend_start = b.start WHERE a.pid = ANY ($1)", pids).Scan(&left)
		if err != nil {
			return fmt.Errorf("wait for the backends of routers with an older map to end: %w", err)
		}
		if left == 0 {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%d backends of routers with an older map have not ended: %w", left, ctx.Err())
		}
	}
}

// RoutersOf are the routers that have backends on a shard, or had some not long ago.
func RoutersOf(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, err := conn.Query(ctx, "SELECT DISTINCT router FROM cleave.backends")
	if err != nil {
		return nil, fmt.Errorf("list the routers that use a shard: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// EndAbandoned ends backends of routers that are gone, if their transactions have been open for some time: nobody may ever end them.
func EndAbandoned(ctx context.Context, conn *pgx.Conn, gone []string, open time.Duration) (ended int, err error) {
	err = conn.QueryRow(ctx, `SELECT count(CASE WHEN pg_terminate_backend(a.pid) THEN 1 END) FROM pg_stat_activity a JOIN cleave.backends b ON a.pid = b.pid AND a.backend_start = b.start
		WHERE b.router = ANY ($1) AND a.xact_start < now() - $2::interval`, gone, open).Scan(&ended)
	if err != nil {
		return 0, fmt.Errorf("end transactions of routers that are gone: %w", err)
	}
	return ended, nil
}

const forgetEndedSQL = "DELETE FROM cleave.backends b WHERE NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = b.pid AND a.backend_start = b.start)"

// forgetEnded deletes what is noted of backends that are gone.
func forgetEnded(ctx context.Context, on executor) error {
	_, err := on.Exec(ctx, forgetEndedSQL)
	return err
}

// relationsOf are the numbers of tables that are listed, and of their partitions.
const relationsOf = "SELECT DISTINCT coalesce(p.relid, t::regclass)::oid FROM unnest($1::text[]) AS t LEFT JOIN LATERAL pg_partition_tree(t::regclass) AS p ON true"

func namesOf(tables []topology.TableName) []string {
	names := make([]string, len(tables))
	for i, table := range tables {
		names[i] = table.String()
	}
	return names
}

// RelationNumbers are those of tables and of their partitions on one server.
func RelationNumbers(ctx context.Context, conn *pgx.Conn, tables []topology.TableName) ([]uint32, error) {
	rows, err := conn.Query(ctx, relationsOf, namesOf(tables))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[uint32])
}

// preparedAs names the prepared transaction that has the lock l: it has no process, and bears its number under the same virtual one.
const preparedAs = `(SELECT format('transaction %s, which is prepared,', p.gid) FROM pg_locks x JOIN pg_prepared_xacts p ON p.transaction = x.transactionid
	WHERE x.pid IS NULL AND x.locktype = 'transactionid' AND x.virtualtransaction = l.virtualtransaction)`

// usersSQL are the transactions that have one of the tables $1 or their partitions locked: who, since when, and whether it rests between two statements. Prepared ones count, and those of routers that hear nothing do not: these are the routers that hear, $2.
const usersSQL = `
	WITH locks AS (SELECT locktype, database, relation, transactionid, virtualtransaction, pid FROM pg_locks),
		uses AS (SELECT pid, virtualtransaction FROM locks WHERE locktype = 'relation' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND relation IN (` + relationsOf + `)),
		users AS (
			SELECT format('a transaction of user %s, process %s,', a.usename, a.pid) AS who, a.xact_start AS since, starts_with(a.state, 'idle') AS rests FROM pg_stat_activity a
			WHERE a.pid <> pg_backend_pid() AND a.backend_type = 'client backend' AND a.pid IN (SELECT pid FROM uses)
				AND NOT EXISTS (SELECT FROM cleave.backends b WHERE b.pid = a.pid AND b.start = a.backend_start AND b.router <> ALL ($2))
			UNION ALL SELECT format('transaction %s, which is prepared,', p.gid), p.prepared, true FROM pg_prepared_xacts p JOIN locks x ON x.locktype = 'transactionid' AND x.pid IS NULL AND x.transactionid = p.transaction
			WHERE x.virtualtransaction IN (SELECT virtualtransaction FROM uses WHERE pid IS NULL))`

// OldestUse names the transaction that has had one of the tables or partitions locked for longest, if that is longer than it may be; empty if there is none.
func OldestUse(ctx context.Context, conn *pgx.Conn, tables []topology.TableName, longest time.Duration, hearing []string) (who string, err error) {
	err = conn.QueryRow(ctx, usersSQL+`
		SELECT coalesce((SELECT format('%s has used the tables for %s ms', who, (extract(epoch FROM now() - since) * 1000)::bigint) FROM users WHERE since < now() - $3::interval ORDER BY since LIMIT 1), '')`,
		namesOf(tables), hearing, longest).Scan(&who)
	if err != nil {
		return "", fmt.Errorf("look who uses tables: %w", err)
	}
	return who, nil
}

// IsInUse says whether a transaction uses one of the tables or partitions that takes longer than a statement: it has been open for longer than that, or rests between two.
func IsInUse(ctx context.Context, conn *pgx.Conn, tables []topology.TableName, statement time.Duration, hearing []string) (inUse bool, err error) {
	err = conn.QueryRow(ctx, usersSQL+" SELECT EXISTS (SELECT FROM users WHERE rests OR since < now() - $3::interval)", namesOf(tables), hearing, statement).Scan(&inUse)
	if err != nil {
		return false, fmt.Errorf("look whether tables are in use: %w", err)
	}
	return inUse, nil
}

// AwaitWriters waits until all transactions have ended that have one of these tables or partitions locked for writing now, unless they are of routers that have settled. Guards whose functions
// were replaced before refuse what comes after them. Transactions that are prepared are among those that are waited for, whoever has prepared them.
func AwaitWriters(ctx context.Context, conn *pgx.Conn, relations []uint32, settled []string) error {
	awaited, err := writers(ctx, conn, relations, settled)
	for pause := time.Millisecond; err == nil && len(awaited) > 0; pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%s has not ended: %w", describeWriters(awaited), ctx.Err())
		}
		var now map[string]string
		if now, err = writers(ctx, conn, relations, settled); err != nil {
			break
		}
		maps.DeleteFunc(awaited, func(transaction, _ string) bool { return now[transaction] == "" })
	}
	switch {
	case err != nil && ctx.Err() != nil && len(awaited) > 0:
		return fmt.Errorf("%s has not ended: %w", describeWriters(awaited), ctx.Err())
	case err != nil:
		return fmt.Errorf("look who writes past the routers: %w", err)
	}
	return nil
}

// writers returns who writes, for people, by the identifier of the transaction.
func writers(ctx context.Context, conn *pgx.Conn, relations []uint32, settled []string) (map[string]string, error) {
	rows, err := conn.Query(ctx, `
		SELECT DISTINCT l.virtualtransaction, CASE WHEN l.pid IS NULL THEN coalesce(`+preparedAs+`, 'a prepared transaction') ELSE format('a transaction of user %s, process %s', a.usename, l.pid) END
		FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE l.locktype = 'relation' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND l.granted
			AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
			AND l.relation = ANY ($1::oid[])
			AND NOT EXISTS (SELECT FROM cleave.backends b WHERE b.pid = l.pid AND b.start = a.backend_start AND b.router = ANY ($2))`, relations, settled)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	var transaction, who string
	_, err = pgx.ForEachRow(rows, []any{&transaction, &who}, func() error {
		found[transaction] = who
		return nil
	})
	return found, err
}

func describeWriters(awaited map[string]string) string {
	who := slices.Sorted(maps.Values(awaited))
	if len(who) == 1 {
		return who[0]
	}
	return fmt.Sprintf("%s, one of %d,", who[0], len(who))
}
