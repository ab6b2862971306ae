package control

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestARouterThatDoesNotStop: nothing is changed while somebody may read the table where it was.
func TestARouterThatDoesNotStop(t *testing.T) {
	t.Parallel()
	servers := model.StartN(t, 2)
	p := startRouter(t, startEtcd(t), "router")
	impatient := p.beside(func(c *Config) { c.RouterPatience = 100 * time.Millisecond })
	clusterOf(t, p, servers)
	execute(t, servers[0], "CREATE TABLE a (id bigint); INSERT INTO a SELECT generate_series(1, 100)")
	slow := registerRouter(t, p.store, "slow")
	before := p.follower.Map().Version()
	_, err := impatient.ShardTables(t.Context(), sharding(t, "a", "id"))
	if refused := refusal(t, pgerr.LockNotAvailable, err, "with a slow router"); !strings.Contains(refused.Message, "slow") {
		t.Errorf("refused with %+v", refused)
	}
	execute(t, servers[0], "CREATE ROLE stranger")
	asStranger := sharding(t, "a", "id")
	asStranger.Role = "stranger"
	_, err = impatient.ShardTables(t.Context(), asStranger) // nobody is held up for one who has no right to it
	refusal(t, pgerr.InsufficientPrivilege, err, "with a slow router, by a stranger")
	if state := schemaState(t, p); len(state.Holds) > 0 || p.follower.Map().Version() != before {
		t.Errorf("there are holds, or another map: %+v", state)
	}
	if err := slow.Close(); err != nil {
		t.Fatal(err)
	}
	shardTable(t, p, sharding(t, "a", "id"))
}

// TestWhatIsNoRouterDeclaresNothingBesideOne, because it could not keep it off the tables.
func TestWhatIsNoRouterDeclaresNothingBesideOne(t *testing.T) {
	t.Parallel()
	p, servers := clusterWith(t, 1)
	execute(t, servers[0], "CREATE TABLE a (id bigint)")
	registration := registerRouter(t, p.store, "other")
	_, err := p.ShardTables(t.Context(), sharding(t, "a", "id"))
	refusal(t, pgerr.FeatureNotSupported, err, "beside a router")
	if err := registration.Close(); err != nil {
		t.Fatal(err)
	}
	shardTable(t, p, sharding(t, "a", "id"))
}

// through takes the steps of a declaration up to the one of this name, that one included.
func through(t *testing.T, d *declaration, p *process, id, last string) {
	t.Helper()
	d.cluster, d.id = p.Cluster, id
	slices.SortFunc(d.tables, compareNames)
	for _, step := range d.steps() {
		if err := step.run(d, t.Context()); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if step.name == last {
			return
		}
	}
}

// terminate ends the backend of a connection.
func terminate(t *testing.T, server *localpg.Server, conn session) {
	t.Helper()
	execute(t, server, fmt.Sprintf("SELECT pg_terminate_backend(%d, 10000)", conn.PgConn().PID()))
}

// TestADeclarationThatFails undoes itself at once, whatever it had done.
func TestADeclarationThatFails(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	c := newCrowd(t)
	p := startRouter(t, c.endpoints, "declarer")
	for _, last := range []string{"hold the tables", "copy the rows", "note it", "prepare"} {
		prefix := "t" + strings.ReplaceAll(last, " ", "")
		c.fill(t, prefix)
		d := sharded(t, p, prefix)
		through(t, d, p, "id"+prefix, last)
		terminate(t, c.servers[1], d.others[0].conn)
		d.takeBack(t.Context())
		if last != "prepare" { // what is prepared is rolled back over another connection
			d.close()
		}
		if !c.nothingLeft(t)() {
			t.Errorf("after %q something is left", last)
		}
		d.close()
		c.expect(t, prefix, topology.Single)
		c.declareAs(t, prefix, topology.Sharded)
		c.expect(t, prefix, topology.Sharded)
	}
}

// TestADeclarerThatLosesItsLock decides nothing any more, once somebody else has resolved what it prepared.
func TestADeclarerThatLosesItsLock(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	p := startRouter(t, c.endpoints, "declarer")
	c.fill(t, "t")
	d := sharded(t, p, "t")
	through(t, d, p, "idt", "prepare")
	expectCheck(t, c.leader, "warning declaration_prepared s1", "warning declaration_prepared s2")
	terminate(t, c.servers[0], d.lock)
	eventually(t, "nothing is left", c.nothingLeft(t))
	if now := c.leader.follower.Map().Version(); now <= d.m.Version() {
		t.Error("who has read the map before could still publish")
	}
	if err := d.publish(t.Context()); err == nil || d.published {
		t.Error("it has published all the same")
	}
	d.takeBack(t.Context())
	d.close()
	c.expect(t, "t", topology.Single)
}

// TestAShardIsAwayWhenADeclarationIsResolved: the others go on, and it follows when it is back, from what it had prepared before its server crashed.
func TestAShardIsAwayWhenADeclarationIsResolved(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	for _, last := range []string{"prepare", "publish the map"} {
		prefix := "t" + last[:4]
		c.fill(t, prefix)
		dying := startRouter(t, c.endpoints, "dying "+last)
		d := sharded(t, dying, prefix)
		through(t, d, dying, "id"+prefix, last)
		d.close()
		if err := c.servers[1].Crash(); err != nil {
			t.Fatal(err)
		}
		dying.stop()
		eventually(t, "the tables are released", isReleased(t, c.leader))
		want := topology.Single
		if d.published {
			want = topology.Sharded
		}
		if rows := one[int](t, c.servers[0], "SELECT count(*) FROM "+prefix+"_users"); (rows == crowdRows) != (want == topology.Single) {
			t.Errorf("after %q the home shard has %d rows", last, rows)
		}
		if err := c.servers[1].Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "nothing is left", c.nothingLeft(t))
		eventually(t, "the shards have recorded the map", c.leader.settled)
		c.expect(t, prefix, want)
	}
}

// expectCheck wants the check of the map to find these about declarations.
func expectCheck(t *testing.T, p *process, want ...string) {
	t.Helper()
	findings, err := p.CheckMap(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range findings {
		if strings.HasPrefix(f.Code, "declaration") {
			got = append(got, fmt.Sprintf("%s %s %s", f.Severity, f.Code, f.Shard))
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("the check found %q, want %q", got, want)
	}
}

// TestAPreparedTransactionThatNobodyKnows is left alone, and shown.
func TestAPreparedTransactionThatNobodyKnows(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	gid := fmt.Sprintf("cleave_declare_%s_7_UNKNOWN", c.leader.follower.Map().Cluster())
	execute(t, c.servers[1], fmt.Sprintf("BEGIN; CREATE TABLE x (); PREPARE TRANSACTION '%s'", gid))
	if err := c.leader.resolveDeclarations(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectCheck(t, c.leader, "problem declaration_unknown s2")
	execute(t, c.servers[1], fmt.Sprintf("ROLLBACK PREPARED '%s'", gid))
	expectCheck(t, c.leader)
}

// TestTheMapMovesOnMeanwhile: a change that has nothing to do with the tables costs nothing, another one makes it start again.
func TestTheMapMovesOnMeanwhile(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	p := startRouter(t, c.endpoints, "declarer")
	c.fill(t, "t")
	d := sharded(t, p, "t")
	through(t, d, p, "idt", "prepare")
	weight := 3.0
	if _, err := c.leader.UpdateShard(t.Context(), "s2", api.UpdateShard{Weight: &weight}); err != nil {
		t.Fatal(err)
	}
	for _, step := range d.steps()[slices.IndexFunc(d.steps(), func(s declareStep) bool { return s.name == "publish the map" }):] {
		if err := step.run(d, t.Context()); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
	}
	d.close()
	c.expect(t, "t", topology.Sharded)
	c.fill(t, "u")
	d = sharded(t, p, "u")
	through(t, d, p, "idu", "prepare")
	keyspace := c.leader.follower.Map().Keyspace("default_bigint").Spec()
	for i := range keyspace.Ranges {
		keyspace.Ranges[i].Shard = "s2"
	}
	if _, err := c.leader.change(t.Context(), func(*topology.Map) ([]topology.Change, error) {
		return []topology.Change{topology.ReplaceRanges("default_bigint", keyspace.Ranges, keyspace.Assignment)}, nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := d.publish(t.Context()); err == nil {
		t.Error("rows were placed by a map that is not in force")
	}
	d.takeBack(t.Context())
	d.close()
	if !c.nothingLeft(t)() {
		t.Error("something is left")
	}
}

// TestRowsOfEveryKeyGoWhereTheMapSays, whatever the keyspace.
func TestRowsOfEveryKeyGoWhereTheMapSays(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	p, servers := clusterWith(t, 3)
	execute(t, servers[0], `
		CREATE TABLE of_bigint AS SELECT i * 4294967296 - 3 AS k FROM generate_series(-150, 150) AS i;
		CREATE TABLE of_int AS SELECT i::int AS k FROM generate_series(-150, 150) AS i;
		CREATE TABLE of_smallint AS SELECT i::smallint AS k FROM generate_series(-150, 150) AS i;
		CREATE TABLE of_text AS SELECT 'ä' || i AS k FROM generate_series(-150, 150) AS i;
		CREATE TABLE of_varchar (k varchar(20)); INSERT INTO of_varchar SELECT i || '  ' FROM generate_series(-150, 150) AS i;
		CREATE TABLE of_uuid AS SELECT gen_random_uuid() AS k FROM generate_series(-150, 150) AS i;
		CREATE TABLE of_date AS SELECT '2020-01-01'::date + i AS k FROM generate_series(-150, 150) AS i;
		CREATE TABLE of_timestamptz AS SELECT '2020-01-01Z'::timestamptz + i * '1.000001 seconds'::interval AS k FROM generate_series(-150, 150) AS i;
		CREATE TABLE of_bytea AS SELECT int4send(i) AS k FROM generate_series(-150, 150) AS i;
		CREATE TABLE of_range AS SELECT i AS k FROM generate_series(1, 300) AS i;
		CREATE TABLE of_pins AS SELECT i::bigint AS k FROM generate_series(1, 300) AS i`)
	if _, err := p.CreateKeyspace(t.Context(), api.CreateKeyspace{Name: "pinned"}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.change(t.Context(), func(*topology.Map) ([]topology.Change, error) {
		var pins []topology.PinSpec
		for i := range 150 {
			pins = append(pins, topology.PinSpec{Key: topology.Point{strconv.Itoa(i + 1)}, Shard: fmt.Sprintf("s%d", 1+i%3)})
		}
		return []topology.Change{topology.SetPins("pinned", pins...)}, nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"bigint", "int", "smallint", "text", "varchar", "uuid", "date", "timestamptz", "bytea", "range", "pins"} {
		table := "of_" + kind
		before := content(t, servers[:1], table)
		request := sharding(t, table, "k")
		switch kind {
		case "range":
			request.Strategy, request.SplitAt = "range", []topology.Point{{"100"}, {"200"}}
		case "pins":
			request.Keyspace = "pinned"
		}
		shardTable(t, p, request)
		if got := content(t, servers, table); !slices.Equal(got, before) {
			t.Errorf("table %s has %d other rows, not %d", table, len(got), len(before))
		}
		expectPlaces(t, p.follower.Map(), servers, table, keyText(kind))
	}
	expectNoFindings(t, p)
}

// keyText is the key in the form that package key reads.
func keyText(kind string) string {
	if kind == "timestamptz" {
		return `to_char(k AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US"+00"')`
	}
	return "k"
}

// TestSeveralKeyColumns: all of them together say where a row goes.
func TestSeveralKeyColumns(t *testing.T) {
	t.Parallel()
	p, servers := clusterWith(t, 2)
	execute(t, servers[0], "CREATE TABLE messages (channel_id bigint, bucket int, PRIMARY KEY (bucket, channel_id)); INSERT INTO messages SELECT i % 20, i / 20 FROM generate_series(0, 399) AS i")
	shardTable(t, p, sharding(t, "messages", "channel_id,bucket"))
	total := 0
	for _, server := range servers {
		n := one[int](t, server, "SELECT count(*) FROM messages")
		if total += n; n == 0 {
			t.Error("a shard has no rows")
		}
		// The guard agrees: every row is written again.
		execute(t, server, "SET cleave.router = 'r'; BEGIN; CREATE TEMPORARY TABLE again AS SELECT * FROM messages; DELETE FROM messages; INSERT INTO messages SELECT * FROM again; COMMIT")
	}
	if total != 400 {
		t.Errorf("%d rows", total)
	}
}

// TestValuesThatCollideOnTheWayBack: unique constraints that held on each shard alone.
func TestValuesThatCollideOnTheWayBack(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	p, servers := clusterWith(t, 2)
	execute(t, servers[0], "CREATE TABLE a (id bigint, code text UNIQUE)")
	request := sharding(t, "a", "id")
	request.UniquePerShard = true
	shardTable(t, p, request)
	for i, server := range servers {
		conn := asRouter(t, server)
		for id := 1; ; id++ {
			if _, err := conn.Exec(t.Context(), fmt.Sprintf("INSERT INTO a VALUES (%d, 'same')", id)); err == nil {
				break
			} else if id == 100 {
				t.Fatalf("shard %d takes no row: %v", i, err)
			}
		}
	}
	_, err := p.UndistributeTables(t.Context(), tablesNamed(t, "a"))
	if refused := refusal(t, "23505", err, "values that collide"); !strings.Contains(refused.Detail, "each shard alone") || !strings.Contains(refused.Hint, "Nothing was changed") {
		t.Errorf("refused with %+v", refused)
	}
	if n := len(content(t, servers, "a")); n != 2 {
		t.Errorf("%d rows are left", n)
	}
	expectNoFindings(t, p)
}

// TestAKeyspaceThatIsBeingMoved takes no tables and gives none: the move would not know of them.
func TestAKeyspaceThatIsBeingMoved(t *testing.T) {
	t.Parallel()
	p, servers := clusterWith(t, 2)
	execute(t, servers[0], "CREATE TABLE a (id bigint); CREATE TABLE b (id bigint)")
	shardTable(t, p, sharding(t, "a", "id"))
	moving := func(state topology.CopySpec) {
		if _, err := p.change(t.Context(), func(m *topology.Map) ([]topology.Change, error) {
			spec := m.Keyspace("default_bigint").Spec()
			at := slices.IndexFunc(spec.Ranges, func(r topology.RangeSpec) bool { return r.Shard == "s1" })
			spec.Ranges[at].Copies = []topology.CopySpec{state}
			return []topology.Change{topology.ReplaceRanges("default_bigint", spec.Ranges, spec.Assignment)}, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	moving(topology.CopySpec{Shard: "s2", State: topology.Incoming})
	_, err := p.ShardTables(t.Context(), sharding(t, "b", "id"))
	refusal(t, pgerr.ObjectNotInPrerequisite, err, "into a keyspace that is being moved")
	_, err = p.UndistributeTables(t.Context(), tablesNamed(t, "a"))
	refusal(t, pgerr.ObjectNotInPrerequisite, err, "out of a keyspace that is being moved")
}

// TestNoRoomForPreparedTransactions is said before anything is copied.
func TestNoRoomForPreparedTransactions(t *testing.T) {
	t.Parallel()
	servers := pgtest.StartWith(t, localpg.Config{}, localpg.Config{Settings: map[string]string{"max_prepared_transactions": "1"}})
	p := startProcess(t, startEtcd(t), nil)
	clusterOf(t, p, servers)
	execute(t, servers[0], "CREATE TABLE a (id bigint)")
	execute(t, servers[1], "CREATE TABLE other (); BEGIN; LOCK TABLE other; PREPARE TRANSACTION 'somebody''s'")
	_, err := p.ShardTables(t.Context(), sharding(t, "a", "id"))
	if refused := refusal(t, pgerr.ObjectNotInPrerequisite, err, "no room"); !strings.Contains(refused.Hint, "max_prepared_transactions") {
		t.Errorf("refused with %+v", refused)
	}
	execute(t, servers[1], "ROLLBACK PREPARED 'somebody''s'")
	shardTable(t, p, sharding(t, "a", "id"))
}

// TestWhoWaitsHearsHowFarItIs, if it takes long.
func TestWhoWaitsHearsHowFarItIs(t *testing.T) {
	p, servers := clusterWith(t, 2)
	execute(t, servers[0], "CREATE TABLE a (id bigint, padding text); INSERT INTO a SELECT i, repeat('x', 500) FROM generate_series(1, 100000) AS i")
	usual := reportEvery
	reportEvery = time.Millisecond
	t.Cleanup(func() { reportEvery = usual })
	var heard atomic.Int64
	request := sharding(t, "a", "id")
	request.Progress = func(message string) {
		if strings.Contains(message, "rows have been copied") {
			heard.Add(1)
		}
	}
	if changed := shardTable(t, p, request); changed.RowsMoved == 0 || heard.Load() == 0 {
		t.Errorf("moved %d rows, and heard %d times of it", changed.RowsMoved, heard.Load())
	}
}

// TestARoleThatMayNotCarryRows is told what it lacks.
func TestARoleThatMayNotCarryRows(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	execute(t, server, "CREATE ROLE service LOGIN")
	access := shard.Access{User: "service", Database: "postgres", SSLMode: "disable"}
	spec := topology.ShardSpec{Name: "s1", Primary: topology.InstanceSpec{Address: server.Addr()}}
	m := &member{spec: spec}
	var err error
	if m.conn, err = access.Connect(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeQuietly(m.conn) })
	err = m.begin(t.Context())
	if refused := refusal(t, pgerr.InsufficientPrivilege, err, "a role that is no superuser"); !strings.Contains(refused.Hint, "session_replication_role") {
		t.Errorf("refused with %+v", refused)
	}
	m.rollback(t.Context())
	execute(t, server, "GRANT SET ON PARAMETER session_replication_role TO service")
	if err := m.begin(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAnotherThingOfTheSameName on another shard, which a table is made of, has to be the same.
func TestAnotherThingOfTheSameName(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	p, servers := clusterWith(t, 2)
	execute(t, servers[0], `CREATE TYPE mood AS ENUM ('happy', 'sad'); CREATE FUNCTION one() RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1'; CREATE EXTENSION hstore;
		CREATE TABLE a (id bigint, mood mood, n int DEFAULT one(), more hstore)`)
	for wrong, right := range map[string]string{
		"CREATE TYPE mood AS ENUM ('sad', 'happy')":                              "DROP TYPE mood",
		"CREATE DOMAIN mood AS text":                                             "DROP DOMAIN mood",
		"CREATE FUNCTION one() RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 2'": "DROP FUNCTION one()",
		"CREATE EXTENSION hstore VERSION '1.4'":                                  "DROP EXTENSION hstore",
		"CREATE FUNCTION one() RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1'; REVOKE ALL ON FUNCTION one() FROM PUBLIC": "DROP FUNCTION one()",
	} {
		execute(t, servers[1], wrong)
		_, err := p.ShardTables(t.Context(), sharding(t, "a", "id"))
		if refused := refusal(t, pgerr.FeatureNotSupported, err, wrong); refused.Hint == "" || !strings.Contains(refused.Message, `"s2"`) {
			t.Errorf("%s: refused with %+v", wrong, refused)
		}
		execute(t, servers[1], right)
	}
	execute(t, servers[1], "CREATE TYPE mood AS ENUM ('happy', 'sad')") // the same
	shardTable(t, p, sharding(t, "a", "id"))
}
