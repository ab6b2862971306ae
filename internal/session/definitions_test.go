package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/thorough"
)

const countsOrders = "() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM orders'"

// TestDefinitionsCountFromTheirStatementOn: what a transaction has defined decides what its next statements mean.
func TestDefinitionsCountFromTheirStatementOn(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	atHome := func(number int) []string {
		if number > 1 {
			return nil
		}
		return []string{"CREATE TABLE aside.orders (id bigint, note text)"}
	}
	w := newWorld(t, worldConfig{noPlain: true, setUp: []string{"CREATE SCHEMA aside"}, onShards: atHome})
	dialRaw(t, w.address, nil).query(fmt.Sprintf("INSERT INTO orders VALUES (%d, 'on one'), (%d, 'on two')", w.key(t, 1, 0), w.key(t, 2, 0)))
	for name, steps := range map[string][]string{
		"a dropped table":  {"BEGIN", "DROP TABLE aside.orders"},
		"a renamed table":  {"BEGIN", "ALTER TABLE aside.orders RENAME TO others"},
		"a renamed schema": {"BEGIN", "ALTER SCHEMA aside RENAME TO beside"},
	} {
		t.Run(name, func(t *testing.T) {
			c := dialRaw(t, w.address, nil)
			for _, sql := range append([]string{"SET search_path = aside, public"}, steps...) {
				wantCodes(t, c.query(sql), "", "")
			}
			if said := strings.Join(c.query("SELECT count(*) FROM orders"), "\n"); !strings.Contains(said, `row "2"`) {
				t.Errorf("another table was counted, or one shard's rows:\n%s", said)
			}
		})
	}
	for name, steps := range map[string][]string{
		"a function": {"BEGIN", "CREATE FUNCTION f1" + countsOrders, "SELECT f1()"},
		"in a text":  {"CREATE FUNCTION f2" + countsOrders + "; SELECT f2()"},
		"a changed function": {
			"CREATE FUNCTION f3(int) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 1::bigint'", "SELECT f3(1)", "BEGIN",
			"CREATE OR REPLACE FUNCTION f3(int) RETURNS bigint LANGUAGE sql VOLATILE AS 'SELECT count(*) FROM orders'", "SELECT f3(1)",
		},
		"a trigger": {
			"CREATE FUNCTION t1() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM count(*) FROM orders; RETURN NEW; END'", "BEGIN",
			"CREATE TRIGGER counts BEFORE INSERT ON undeclared FOR EACH ROW EXECUTE FUNCTION t1()", "INSERT INTO undeclared VALUES (1)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := dialRaw(t, w.address, nil)
			for i, sql := range steps {
				said := strings.Join(c.query(sql), "\n")
				if last := i == len(steps)-1; strings.Contains(said, "ERROR 0A000") != last {
					t.Fatalf("%s:\n%s", sql, said)
				}
			}
		})
	}
	c := dialRaw(t, w.address, nil)
	if said := strings.Join(c.ask(pipeline(unnamed("CREATE FUNCTION f4"+countsOrders), unnamed("SELECT f4()"), sync1)...), "\n"); !strings.Contains(said, "0A000") {
		t.Errorf("in a pipeline:\n%s", said)
	}
}

// TestDefinitionsCountWithTheirCommit: nobody keeps a plan that was made before.
func TestDefinitionsCountWithTheirCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	a, b := dialRaw(t, w.address, nil), dialRaw(t, w.address, nil)
	a.query("BEGIN")
	a.query("CREATE FUNCTION h1" + countsOrders)
	if said := strings.Join(b.query("SELECT h1()"), "\n"); !strings.Contains(said, "42883") {
		t.Fatalf("before the commit: %s", said)
	}
	a.query("COMMIT")
	if said := strings.Join(b.query("SELECT h1()"), "\n"); !strings.Contains(said, "0A000") {
		t.Errorf("after the commit: %s", said)
	}
}

// TestMigrationsRun in a transaction or in one text, as tools send them.
func TestMigrationsRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{})
	w.sameAsPlain(t, texts(
		"BEGIN", "CREATE TABLE versions (version int PRIMARY KEY)", "INSERT INTO versions VALUES (1)", "ALTER TABLE versions ADD COLUMN at int DEFAULT 7",
		"SELECT * FROM versions", "CREATE FUNCTION twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 2 * $1'", "INSERT INTO versions VALUES (2, twice(4))",
		"SAVEPOINT a", "DROP TABLE versions", "SELECT * FROM versions", "ROLLBACK TO a", "SELECT * FROM versions", "COMMIT", "SELECT twice(at) FROM versions",
		"CREATE TABLE more (a int); CREATE INDEX ON more (a); INSERT INTO more VALUES (1); INSERT INTO versions VALUES (3); SELECT count(*) FROM more",
	)...)
}
