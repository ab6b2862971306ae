package cluster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// TestVerifyBySQL: who may ask, what is answered, and what is told one by one.
func TestVerifyBySQL(t *testing.T) {
	c := startCopied(t, 1)
	var notices []string
	client := c.Routers.Routers[0].DialWith(t, "postgres", func(n *pgconn.Notice) { notices = append(notices, n.Message) })
	mustExec(t, client, "CREATE TABLE users (id bigint PRIMARY KEY, name text)")
	mustExec(t, client, "CREATE ROLE visitor LOGIN")
	mustExec(t, client, "SELECT cleave.shard_table('users', 'id')")
	mustExec(t, client, "INSERT INTO users SELECT i, 'u' FROM generate_series(1, 100) AS i")
	if got := said(t, client, "SELECT cleave.verify()"); got != "100 rows looked at; public.rates is equal on every shard; everything is where it belongs" {
		t.Errorf("it said %q", got)
	}
	// Each is on both shards, so one of the two is wrong.
	for i, conn := range c.direct {
		mustExec(t, conn, "SET session_replication_role = replica")
		mustExec(t, conn, fmt.Sprintf("INSERT INTO users VALUES (1001, 'equal'), (1002, 'on shard %d')", i+1))
	}
	notices = nil
	if got := said(t, client, "SELECT cleave.verify(table_name => 'users')"); got != "104 rows looked at; 2 on a shard that they do not belong to, 0 of them repaired" {
		t.Errorf("it said %q", got)
	}
	if all := strings.Join(notices, "\n"); !strings.Contains(all, "primary key (1001)") || !strings.Contains(all, "primary key (1002)") || !strings.Contains(all, "which has it with other values") {
		t.Errorf("notices: %q", notices)
	}
	refused := func(conn *pgx.Conn, sql, code string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), sql)
		var why *pgconn.PgError
		if !errors.As(err, &why) || why.Code != code {
			t.Errorf("%s: %v, want %s", sql, err, code)
		}
	}
	refused(c.Routers.Routers[0].DialAs(t, "visitor"), "SELECT cleave.verify()", "42501")
	refused(client, "SELECT cleave.verify(table_name => 'nowhere')", "42P01")
	refused(client, "SELECT cleave.verify(repair => 'perhaps')", "22023")
	mustExec(t, client, "BEGIN")
	refused(client, "SELECT cleave.verify()", "25001")
	mustExec(t, client, "ROLLBACK")
	if got := said(t, client, "SELECT cleave.verify(table_name => 'users', repair => 'true', prefer => 'owner')"); got != "104 rows looked at; 2 on a shard that they do not belong to, 2 of them repaired; everything is where it belongs" {
		t.Errorf("it said %q", got)
	}
	if got := said(t, client, "SELECT count(*)::text FROM users"); got != "102" {
		t.Errorf("there are %s users", got)
	}
}
