// Package clients_test has real clients talk to PostgreSQL and to the router, and expects the same of both: psql and
// pgbench, the drivers of Go, Python, Node and Java, and some of the ORMs that stand on them.
//
// TestClients has a level for the target, one for the client and one for the case:
//
//	go test -run 'TestClients/router/psycopg/cursor'
//
// Go's libraries are used here in functions, a file each; the others by programs in the folder programs, which print a
// line for each case (program_test.go). A client whose runtime is missing is skipped, or is a failure if
// CLEAVE_REQUIRE_CLIENTS is set; scripts/install-clients.sh installs them. The targets are in target_test.go.
//
// What single statements give is compared by the differential suite; how fast they are, by the benchmarks. This is a
// module of its own, so that the clients are no dependency of Cleave.
package clients_test

import (
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// driverCases are what every driver, and psql, must have a word about.
var driverCases = []string{
	"connect", "types", "transaction", "savepoint", "error", "prepared", "cursor", "copy", "cancel", "notice", "big", "many",
}

// ormCases are what every ORM must.
var ormCases = []string{"migrate", "insert", "query", "transaction", "rollback", "error"}

// shardedCase is about a table that is declared as sharded, so it needs the router.
const shardedCase = "sharded"

// client is one that the suite knows.
type client struct {
	name  string
	cases []string             // those it must have; it may have more
	ready func() (lack string) // why it cannot be run here; nil and "" if it can
	run   func(t *testing.T, to target) (covered []string)
}

var allClients = []client{
	{name: "psql", cases: driverCases, ready: needsProgram("psql"), run: inGo(psqlCases)},
	{name: "pgbench", ready: needsPgbench, run: inGo(pgbenchCases)},
	{name: "pgx", cases: driverCases, run: inGo(pgxCases)},
	{name: "pgx-stdlib", cases: []string{"types", "transaction", "error", "prepared", "cancel", "many"}, run: inGo(sqlCases("pgx"))},
	{name: "pq", cases: driverCases, run: inGo(pqCases)},
	{name: "gorm", cases: ormCases, run: inGo(gormCases)},
	{name: "psycopg", cases: driverCases, ready: needsPython("psycopg"), run: python("client_psycopg.py")},
	{name: "psycopg2", cases: driverCases, ready: needsPython("psycopg2"), run: python("client_psycopg2.py")},
	{name: "sqlalchemy", cases: ormCases, ready: needsPython("sqlalchemy", "psycopg2"), run: python("client_sqlalchemy.py")},
	{name: "django", cases: ormCases, ready: needsPython("django", "psycopg2"), run: python("client_django.py")},
	{name: "node-postgres", cases: driverCases, ready: needsNode, run: node("client.js")},
	{name: "jdbc", cases: driverCases, ready: needsJava, run: java("Client.java")},
}

func TestClients(t *testing.T) {
	for _, target := range targets {
		t.Run(target.name, func(t *testing.T) {
			to := target.start(t)
			for _, c := range allClients {
				t.Run(c.name, func(t *testing.T) { runClient(t, c, to) })
			}
		})
	}
}

func runClient(t *testing.T, c client, to target) {
	if c.ready != nil {
		if lack := c.ready(); lack != "" {
			missing(t, lack)
		}
	}
	must := c.cases
	if to.sharded {
		to.ordersTable = declareOrders(t, to, c.name)
		must = append(slices.Clone(must), shardedCase)
	}
	covered := c.run(t, to)
	for _, name := range must {
		if !slices.Contains(covered, name) {
			t.Errorf("%s has nothing to say about %q", c.name, name)
		}
	}
}

// missing skips a client that cannot be run, or fails if all must.
func missing(t *testing.T, lack string) {
	t.Helper()
	if os.Getenv("CLEAVE_REQUIRE_CLIENTS") != "" {
		t.Fatal(lack)
	}
	t.Skip(lack)
}

// goCases are the cases of a client that is used from here.
type goCases map[string]func(t *testing.T, to target)

// inGo runs the cases in alphabetical order, the sharded one only where it can be.
func inGo(cases goCases) func(t *testing.T, to target) []string {
	return func(t *testing.T, to target) []string {
		var names []string
		for name := range cases {
			if name != shardedCase || to.sharded {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			t.Run(name, func(t *testing.T) { cases[name](t, to) })
		}
		return names
	}
}
