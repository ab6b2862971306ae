package shard

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// TestTheStepsMakeWhatTheyList: what is not listed would be taken for a user's.
func TestTheStepsMakeWhatTheyList(t *testing.T) {
	conn := newCluster(t, 1).conns[0]
	oid := one[uint32](t, conn, "SELECT 'cleave'::regnamespace::oid")
	got := must[[]Object](t)(foreignObjects(t.Context(), conn, oid, nil))
	byName := cmpopts.SortSlices(func(a, b Object) bool { return a.Name < b.Name })
	if difference := cmp.Diff(madeBy(steps), got, byName); difference != "" {
		t.Errorf("the schema has other things than the steps list (- listed, + there):\n%s", difference)
	}
	if schema := inspect(t, conn).Schema; !schema.Installed || schema.Version != len(steps) || len(schema.Foreign) > 0 {
		t.Errorf("the schema is seen as %+v", schema)
	}
}

// TestReleaseSparesWhatIsNotOurs puts one thing at a time among ours, and moves it away as the finding advises.
func TestReleaseSparesWhatIsNotOurs(t *testing.T) {
	c := newCluster(t, 1)
	conn, spec := c.conns[0], specOf("s1", c.servers[0])
	empty := must[*topology.Map](t)(topology.New(clusterID))
	for create, test := range map[string]struct{ object, there string }{
		"CREATE TABLE cleave.orders AS SELECT generate_series(1, 1000) AS id": {"table cleave.orders", "SELECT count(*) = 1000 FROM public.orders"},
		`CREATE TABLE cleave."Odd Name" (id bigserial PRIMARY KEY)`:           {`table cleave."Odd Name"`, `SELECT count(*) = 0 FROM public."Odd Name"`},
		"CREATE VIEW cleave.totals AS SELECT 1 AS x":                          {"view cleave.totals", "SELECT x = 1 FROM public.totals"},
		"CREATE MATERIALIZED VIEW cleave.kept AS SELECT 1 AS x":               {"materialized view cleave.kept", "SELECT x = 1 FROM public.kept"}, //nolint:misspell // it is SQL
		"CREATE SEQUENCE cleave.numbers":                                      {"sequence cleave.numbers", "SELECT nextval('public.numbers') = 1"},
		"CREATE FUNCTION cleave.twice(x int) RETURNS int RETURN 2 * x":        {"function cleave.twice(integer)", "SELECT public.twice(2) = 4"},
		"CREATE TYPE cleave.pair AS (a int, b int)":                           {"type cleave.pair", "SELECT (row(1, 2)::public.pair).b = 2"},
		"CREATE DOMAIN cleave.small AS int":                                   {"type cleave.small", "SELECT 2::public.small = 2"},
	} {
		t.Run(test.object, func(t *testing.T) {
			prepare(t, conn, spec, empty)
			execute(t, conn, create)
			report := inspect(t, conn)
			if !slices.ContainsFunc(report.Schema.Foreign, func(o Object) bool { return o.String() == test.object }) || !report.Schema.Installed {
				t.Fatalf("the schema is seen as %+v", report.Schema)
			}
			found := Check(report, nil, empty)
			expectCodes(t, found, "problem stray_objects")
			expectCodes(t, Compare(map[string]*Report{"s1": report}), "warning stray_objects s1")
			var foreign *ForeignObjectsError
			if err := Release(t.Context(), conn, clusterID); !errors.As(err, &foreign) || !slices.Contains(foreign.Objects, test.object) {
				t.Fatalf("release says %v", err)
			}
			if record := must[*Recorded](t)(Read(t.Context(), conn)); record.Shard != "s1" {
				t.Errorf("after the refusal the record is %+v", record)
			}
			execute(t, conn, found[0].Hint)
			if err := Release(t.Context(), conn, clusterID); err != nil {
				t.Fatalf("after %s release says %v", found[0].Hint, err)
			}
			if !one[bool](t, conn, test.there) {
				t.Error("it did not survive")
			}
			if one[bool](t, conn, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'cleave')") {
				t.Error("the schema is still there")
			}
			execute(t, conn, "DROP SCHEMA public CASCADE; CREATE SCHEMA public")
		})
	}
}

func TestReleaseSparesWhatDependsOnOurs(t *testing.T) {
	c := newCluster(t, 1)
	c.record(t)
	execute(t, c.conns[0], "CREATE VIEW public.how_many AS SELECT count(*) FROM cleave.ranges")
	var foreign *ForeignObjectsError
	if err := Release(t.Context(), c.conns[0], clusterID); !errors.As(err, &foreign) || !strings.Contains(err.Error(), "how_many") {
		t.Errorf("release says %v", err)
	}
	expectCodes(t, Verify(c.m, "s1", c.read(t)[0]))
	if n := one[int](t, c.conns[0], "SELECT * FROM public.how_many"); n != 0 {
		t.Errorf("%d ranges", n)
	}
}

// TestReleaseSparesWhatComesInBetween has a table appear after the release has looked and before it drops the schema.
func TestReleaseSparesWhatComesInBetween(t *testing.T) {
	c := newCluster(t, 1)
	spec := specOf("s1", c.servers[0])
	blocker, releaser := connect(t, spec), connect(t, spec)
	execute(t, blocker, "BEGIN")
	execute(t, blocker, "LOCK TABLE cleave.tables IN ACCESS SHARE MODE")
	released := make(chan error, 1)
	go func() { released <- Release(context.Background(), releaser, clusterID) }()
	waitUntilBlocked(t, blocker, releaser)
	execute(t, c.conns[0], "CREATE TABLE cleave.late AS SELECT 1 AS x")
	execute(t, blocker, "ROLLBACK")
	var foreign *ForeignObjectsError
	if err := <-released; !errors.As(err, &foreign) || !strings.Contains(err.Error(), "cleave.late") {
		t.Errorf("release says %v", err)
	}
	if one[int](t, c.conns[0], "SELECT x FROM cleave.late") != 1 || c.read(t)[0].Shard != "s1" {
		t.Error("something was dropped")
	}
}

func TestReleaseLeavesANewerSchemaAlone(t *testing.T) {
	c := newCluster(t, 1)
	execute(t, c.conns[0], "CREATE TABLE cleave.future (id int)")
	execute(t, c.conns[0], "INSERT INTO cleave.migrations (version, name) VALUES ($1, 'from the future')", len(steps)+1)
	var newer *NewerSchemaError
	if err := Release(t.Context(), c.conns[0], clusterID); !errors.As(err, &newer) || newer.Installed != len(steps)+1 {
		t.Errorf("release says %v", err)
	}
	if schema := inspect(t, c.conns[0]).Schema; !schema.Installed || len(schema.Foreign) > 0 {
		t.Errorf("the schema is seen as %+v", schema)
	}
}

// TestTheListOfStepsOfAnotherIsNotOurs: many programs keep a table named migrations.
func TestTheListOfStepsOfAnotherIsNotOurs(t *testing.T) {
	conn := connect(t, specOf("s1", pgtest.Start(t)))
	m := must[*topology.Map](t)(topology.New(clusterID))
	const ourColumns = "CREATE TABLE cleave.migrations (version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());"
	for name, theirs := range map[string]string{
		"other columns":    "CREATE TABLE cleave.migrations (version integer, name text)",
		"other types":      "CREATE TABLE cleave.migrations (version text, name text, applied_at timestamptz); INSERT INTO cleave.migrations VALUES ('v1', 'identity')",
		"fewer columns":    "CREATE TABLE cleave.migrations (version integer, name text); INSERT INTO cleave.migrations VALUES (1, 'identity')",
		"a view":           "CREATE VIEW cleave.migrations AS SELECT 1 AS version, 'identity'::text AS name, now() AS applied_at",
		"other steps":      ourColumns + "INSERT INTO cleave.migrations VALUES (1, 'create users'), (2, 'create orders')",
		"other versions":   ourColumns + "INSERT INTO cleave.migrations VALUES (20240101, 'identity')",
		"one step of ours": ourColumns + "INSERT INTO cleave.migrations VALUES (1, 'identity'), (2, 'create orders')",
		"no steps":         ourColumns,
	} {
		t.Run(name, func(t *testing.T) {
			execute(t, conn, "CREATE SCHEMA cleave")
			execute(t, conn, "CREATE TABLE cleave.precious AS SELECT 1 AS x")
			execute(t, conn, theirs)
			report := inspect(t, conn)
			if report.Schema.Installed || len(report.Schema.Foreign) != 2 {
				t.Errorf("the schema is seen as %+v", report.Schema)
			}
			expectCodes(t, Check(report, nil, m), "problem schema_taken")
			var taken *SchemaTakenError
			if _, _, err := Install(t.Context(), conn); !errors.As(err, &taken) {
				t.Errorf("install says %v", err)
			}
			if err := Release(t.Context(), conn, clusterID); !errors.As(err, &taken) {
				t.Errorf("release says %v", err)
			}
			if one[int](t, conn, "SELECT x FROM cleave.precious") != 1 {
				t.Error("what was there has changed")
			}
			execute(t, conn, "DROP SCHEMA cleave CASCADE")
		})
	}
}

// TestTablesOfARoleNamedCleaveAreNotAmongOurs logs in as a client does, whose search_path nobody pins.
func TestTablesOfARoleNamedCleaveAreNotAmongOurs(t *testing.T) {
	server := pgtest.StartWhole(t)
	admin := connect(t, specOf("s1", server))
	execute(t, admin, "CREATE ROLE cleave LOGIN REPLICATION")
	for database, test := range map[string]struct{ set, want string }{
		"plain":    {"", "public"},
		"odd name": {"", "public"},
		"by role":  {`ALTER ROLE cleave IN DATABASE "by role" SET search_path = app`, "app"},
		"by base":  {`ALTER DATABASE "by base" SET search_path = "$user", app`, `"$user", app`},
	} {
		t.Run(database, func(t *testing.T) {
			spec := specOf("s1", server)
			spec.Database, spec.User = database, "cleave"
			execute(t, admin, "CREATE DATABASE "+sqltext.QuoteIdentifier(database)+" OWNER cleave")
			if test.set != "" {
				execute(t, admin, test.set)
			}
			for range 2 {
				if _, _, err := Install(t.Context(), connect(t, spec)); err != nil {
					t.Fatal(err)
				}
			}
			client := connectAsClient(t, spec)
			if path := one[string](t, client, "SHOW search_path"); path != test.want {
				t.Fatalf("the search_path is %s, not %s", path, test.want)
			}
			if test.want != "public" {
				return
			}
			execute(t, client, "CREATE TABLE orders (id int)")
			if schema := inspect(t, connect(t, spec)).Schema; len(schema.Foreign) > 0 {
				t.Errorf("the schema is seen as %+v", schema)
			}
		})
	}
	t.Run("another role", func(t *testing.T) {
		if _, _, err := Install(t.Context(), admin); err != nil {
			t.Fatal(err)
		}
		if path := one[string](t, connectAsClient(t, specOf("s1", server)), "SHOW search_path"); path != `"$user", public` {
			t.Errorf("the search_path is %s", path)
		}
	})
}

// connectAsClient logs in without the settings of the control plane.
func connectAsClient(t *testing.T, spec topology.ShardSpec) *pgx.Conn {
	t.Helper()
	config := must[*pgx.ConnConfig](t)(Access{}.to(spec).config(spec.Primary.Address))
	config.RuntimeParams = nil
	conn := must[*pgx.Conn](t)(pgx.ConnectConfig(t.Context(), config))
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// TestAReleaseAndARecordDoNotWaitForEachOther has a recorder come while a release is under way: no deadlock, and the record
// finds that there is nothing to write to.
func TestAReleaseAndARecordDoNotWaitForEachOther(t *testing.T) {
	c := newCluster(t, 1)
	spec := specOf("s1", c.servers[0])
	blocker, releaser, recorder := connect(t, spec), connect(t, spec), connect(t, spec)
	execute(t, blocker, "BEGIN")
	execute(t, blocker, "LOCK TABLE cleave.tables IN ACCESS SHARE MODE")
	released, recorded := make(chan error, 1), make(chan error, 1)
	go func() { released <- Release(context.Background(), releaser, clusterID) }()
	waitUntilBlocked(t, blocker, releaser)
	go func() {
		_, err := Record(context.Background(), recorder, c.m, "s1")
		recorded <- err
	}()
	waitUntilBlocked(t, blocker, recorder)
	execute(t, blocker, "ROLLBACK")
	if err := <-released; err != nil {
		t.Errorf("release says %v", err)
	}
	if err := <-recorded; !errors.Is(err, ErrNotClaimed) {
		t.Errorf("record says %v", err)
	}
}
