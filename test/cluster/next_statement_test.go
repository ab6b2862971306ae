// Package cluster_test shows what several routers of one cluster promise together: a change of the schema on one is there for the
// next statement on any other, none of them sees half of it, and no row comes to lie on a shard that does not own it.
package cluster_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/thorough"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/test/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// mustExec runs a statement.
func mustExec(t *testing.T, conn *pgx.Conn, statement string, arguments ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), statement, arguments...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// table is the answer to a query as one text: the names of its columns, and its rows in their order.
func table(t *testing.T, conn *pgx.Conn, query string) string {
	t.Helper()
	text, err := readTable(t.Context(), conn, query, pgx.QueryExecModeExec)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return text
}

func readTable(ctx context.Context, conn *pgx.Conn, query string, mode pgx.QueryExecMode) (string, error) {
	rows, err := conn.Query(ctx, query, mode)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var names []string
	for _, field := range rows.FieldDescriptions() {
		names = append(names, field.Name)
	}
	lines := []string{strings.Join(names, ",")}
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return "", err
		}
		line := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(values), "["), "]")
		lines = append(lines, line)
	}
	return strings.Join(lines, "; "), rows.Err()
}

func expect(t *testing.T, conn *pgx.Conn, query, want string) {
	t.Helper()
	if got := table(t, conn, query); got != want {
		t.Fatalf("%s:\n%s\nwanted:\n%s", query, got, want)
	}
}

// TestTheNextStatementSeesIt: whatever is declared or changed on one router is there for the next statement on another. Nothing is
// tried twice.
func TestTheNextStatementSeesIt(t *testing.T) {
	thorough.Only(t)
	c := cluster.StartRouters(t, 3, 2)
	rounds := 2
	if thorough.Asked() { // and once more from the first router on
		rounds = 3
	}
	a, b := c.Routers[0].Dial(t), c.Routers[1].Dial(t)
	mustExec(t, a, "CREATE TABLE anchor (k bigint PRIMARY KEY)")
	mustExec(t, a, "SELECT cleave.shard_table('anchor', 'k')")
	for round := range rounds {
		if round%2 == 1 {
			a, b = b, a
		}
		nextStatement(t, a, b, round)
	}
}

func nextStatement(t *testing.T, a, b *pgx.Conn, round int) {
	t.Helper()
	// The same name every time, so that whatever is remembered of the one before is wrong.
	refused(t, b, []string{"42P01"}, "INSERT INTO things VALUES (0, 'nothing')")
	mustExec(t, a, "CREATE TABLE things (k bigint PRIMARY KEY, note text)")
	mustExec(t, b, "INSERT INTO things VALUES (0, 'single')")
	mustExec(t, a, "SELECT cleave.shard_table('things', 'k')")
	mustExec(t, b, "INSERT INTO things VALUES (1, 'one'), (2, 'two'), (3, 'three'), (4, 'four')")
	expect(t, b, "SELECT * FROM things WHERE k = 0", "k,note; 0 single")
	mustExec(t, a, "ALTER TABLE things ADD COLUMN added int")
	mustExec(t, b, "INSERT INTO things (k, added) VALUES (5, 50)")
	mustExec(t, b, "INSERT INTO things VALUES (6, 'six', 60), (7, 'seven', 70)")
	expect(t, b, "SELECT * FROM things WHERE k = 5", "k,note,added; 5 <nil> 50")
	mustExec(t, a, "ALTER TABLE things RENAME COLUMN added TO more")
	mustExec(t, b, "UPDATE things SET more = 1 WHERE k IN (1, 2, 3, 4)")
	expect(t, b, "SELECT * FROM things WHERE k = 6", "k,note,more; 6 six 60")
	mustExec(t, a, "ALTER TABLE things DROP COLUMN note")
	mustExec(t, b, "INSERT INTO things VALUES (8, 80), (9, 90)")
	expect(t, b, "SELECT * FROM things WHERE k = 8", "k,more; 8 80")
	mustExec(t, a, fmt.Sprintf("CREATE INDEX by_more_%d ON things (more)", round))
	mustExec(t, b, fmt.Sprintf("ALTER INDEX by_more_%d RENAME TO by_more_again_%d", round, round))
	inOneTransaction(t, a, round)
	mustExec(t, a, "SELECT cleave.undistribute_table('things')")
	expect(t, b, "SELECT count(*), sum(more) FROM things", "count,sum; 10 354")
	mustExec(t, b, "INSERT INTO things VALUES (10, 100)")
	mustExec(t, a, "SELECT cleave.reference_table('things')")
	mustExec(t, b, "INSERT INTO things VALUES (11, 110)")
	expect(t, b, "SELECT count(*), sum(more) FROM things", "count,sum; 12 564")
	otherObjects(t, a, b, round)
	mustExec(t, a, "DROP TABLE things")
	mustExec(t, b, "CREATE TABLE things (other text, k bigint PRIMARY KEY)")
	mustExec(t, a, "INSERT INTO things VALUES ('new', 1)")
	mustExec(t, b, "SELECT cleave.shard_table('things', 'k')")
	mustExec(t, a, "INSERT INTO things VALUES ('newer', 2), ('newest', 3), ('last', 4)")
	expect(t, a, "SELECT * FROM things WHERE k = 3", "other,k; newest 3")
	mustExec(t, a, "DROP TABLE things")
}

// inOneTransaction uses a table behind what locks it: who plans the statement must not have to wait for that lock.
func inOneTransaction(t *testing.T, conn *pgx.Conn, round int) {
	t.Helper()
	mustExec(t, conn, "ALTER TABLE things ALTER COLUMN more SET DEFAULT 2") // whose text is read under a lock
	for _, first := range []string{
		"TRUNCATE things", "REINDEX TABLE things", "CLUSTER things USING things_pkey", fmt.Sprintf("CREATE INDEX inside_%d ON things (k, more)", round), fmt.Sprintf("DROP INDEX by_more_again_%d", round),
		"CREATE POLICY everybody ON things", "ALTER TABLE things ALTER COLUMN more SET DEFAULT 3",
	} {
		mustExec(t, conn, "BEGIN")
		mustExec(t, conn, first)
		mustExec(t, conn, "INSERT INTO things (k) VALUES (101), (102), (103), (104), (105)")
		mustExec(t, conn, "UPDATE things SET more = 5 WHERE k = 103")
		expect(t, conn, "SELECT more FROM things WHERE k = 103", "more; 5")
		mustExec(t, conn, "ROLLBACK")
	}
	mustExec(t, conn, "ALTER TABLE things ALTER COLUMN more DROP DEFAULT")
}

// otherObjects are those that are no tables.
func otherObjects(t *testing.T, a, b *pgx.Conn, round int) {
	t.Helper()
	role := fmt.Sprintf("somebody_%d", round)
	mustExec(t, a, fmt.Sprintf("CREATE TYPE mood_%d AS ENUM ('glad', 'sad')", round))
	expect(t, b, fmt.Sprintf("SELECT 'sad'::mood_%d::text", round), "text; sad")
	refused(t, a, []string{"42883"}, "SELECT twice(21)")
	mustExec(t, b, "CREATE FUNCTION twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 2 * $1'")
	expect(t, a, "SELECT twice(21)", "twice; 42")
	mustExec(t, b, "CREATE OR REPLACE FUNCTION twice(int) RETURNS int LANGUAGE sql VOLATILE AS 'SELECT count(*)::int FROM anchor'")
	refused(t, a, []string{notPlanned}, "SELECT twice(21)") // it may read rows of several shards now
	mustExec(t, b, "DROP FUNCTION twice(int)")
	mustExec(t, a, "CREATE ROLE "+role+" LOGIN")
	mustExec(t, b, "GRANT SELECT ON things TO "+role)
	mustExec(t, a, "SET ROLE "+role)
	expect(t, a, "SELECT more FROM things WHERE k = 11", "more; 110")
	mustExec(t, a, "RESET ROLE")
	mustExec(t, a, "REVOKE SELECT ON things FROM "+role)
	mustExec(t, b, "DROP ROLE "+role)
}
