package cluster_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/test/cluster"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestDriftIsFound: what somebody changed on one shard, past the routers, shows in 'cleave schema diff', whichever router is asked.
func TestDriftIsFound(t *testing.T) {
	thorough.Only(t)
	c := cluster.StartRouters(t, 3, 2)
	client, direct := c.Routers[0].Dial(t), c.Direct(t, 1)
	mustExec(t, client, "CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
	mustExec(t, client, "SELECT cleave.shard_table('orders', 'id')")
	mustExec(t, client, "CREATE TABLE countries (code text PRIMARY KEY)")
	mustExec(t, client, "SELECT cleave.reference_table('countries')")
	mustExec(t, client, "ALTER TABLE orders ADD COLUMN total int")
	differs(t, c, 0, "ok")
	for _, drift := range []struct{ do, undo, says string }{
		{"ALTER TABLE orders ADD COLUMN extra int", "ALTER TABLE orders DROP COLUMN extra", "extra"},
		{"ALTER TABLE countries ADD COLUMN name text", "ALTER TABLE countries DROP COLUMN name", "countries"},
		{"ALTER TABLE orders ALTER COLUMN total TYPE bigint", "ALTER TABLE orders ALTER COLUMN total TYPE int", "total"},
		{"CREATE INDEX by_note ON orders (note)", "DROP INDEX by_note", "by_note"},
	} {
		mustExec(t, direct, drift.do)
		differs(t, c, 1, drift.says)
		mustExec(t, direct, drift.undo)
		differs(t, c, 0, "ok")
	}
	mustExec(t, direct, "DROP TABLE countries")
	differs(t, c, 1, "countries")
}

// differs asks every router for differences, and compares the exit code and what is said.
func differs(t *testing.T, c *cluster.Routers, code int, says string) {
	t.Helper()
	path, err := cluster.Binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range c.Routers {
		output, err := exec.Command(path, "schema", "diff", "--api", r.API.BaseURL).CombinedOutput()
		var exit *exec.ExitError
		got := 0
		if errors.As(err, &exit) {
			got = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if got != code || !strings.Contains(string(output), says) {
			t.Errorf("schema diff by %s: exit code %d, want %d and %q:\n%s", r.Name, got, code, says, output)
		}
	}
}
