package control

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestANewShardHasTheTables: empty ones, guarded, and copies of reference tables, whoever died before.
func TestANewShardHasTheTables(t *testing.T) {
	t.Parallel()
	servers := model.StartN(t, 3)
	p := startRouter(t, startEtcd(t), "router")
	clusterOf(t, p, servers[:2])
	execute(t, servers[0], `CREATE TYPE mood AS ENUM ('fine'); CREATE TABLE countries (id serial PRIMARY KEY, code text UNIQUE);
		CREATE TABLE users (id bigint PRIMARY KEY, number bigserial, mood mood, country text REFERENCES countries (code));
		INSERT INTO countries (code) VALUES ('de'), ('fr'); INSERT INTO users SELECT i, i, 'fine', 'de' FROM generate_series(1, 100) AS i`)
	if _, err := p.ReferenceTables(t.Context(), tablesNamed(t, "countries")); err != nil {
		t.Fatal(err)
	}
	shardTable(t, p, sharding(t, "users", "id"))
	users := content(t, servers[:2], "users")
	for last, step := range furnishSteps {
		f := &furnishing{declaration: declaration{cluster: p.Cluster, id: fmt.Sprint("attempt", last), m: p.follower.Map()}, spec: request("s3", servers[2]).ShardSpec}
		if last == 0 {
			prepareServer(t, p, servers[2])
		}
		for _, step := range furnishSteps[:last+1] {
			if step.name == "publish the map" {
				break
			}
			if err := step.run(f, t.Context()); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
		}
		f.giveUpHold(t.Context())
		f.closeBoth()
		if step.name == "make the tables" {
			break // a process that dies later has added the shard
		}
	}
	if !one[bool](t, servers[2], "SELECT to_regclass('users') IS NOT NULL") {
		t.Error("an attempt that died has left nothing: the test tests nothing")
	}
	add(t, p, "s3", servers[2])
	if got := content(t, servers[2:], "countries"); !slices.Equal(got, []string{"(1,de)", "(2,fr)"}) {
		t.Errorf("the new shard's copy has %q", got)
	}
	if got := content(t, servers, "users"); !slices.Equal(got, users) {
		t.Errorf("there are %d users, not %d", len(got), len(users))
	}
	for _, table := range []string{"users", "countries"} {
		if described(t, servers[2], table) != described(t, servers[0], table) {
			t.Errorf("table %s is another on the new shard", table)
		}
	}
	eventually(t, "all shards have recorded the map", p.settled)
	expectNoFindings(t, p)
	_, err := asRouter(t, servers[2]).Exec(t.Context(), "INSERT INTO users (id) VALUES (1)")
	refusedBy(t, pgerr.NotOwned, err)
	if n := one[int64](t, servers[2], "SELECT cleave.next_number('users_number_seq')"); n>>47 != 3 {
		t.Errorf("the new shard's sequence begins with %d", n)
	}
	removed, err := p.RemoveShard(t.Context(), "s3")
	if err != nil || len(removed.Findings) > 0 {
		t.Fatalf("%v, %+v", err, removed.Findings)
	}
	if one[bool](t, servers[2], "SELECT coalesce(to_regclass('users'), to_regclass('countries')) IS NOT NULL") {
		t.Error("a shard that was removed keeps the tables")
	}
	if again := add(t, p, "s3", servers[2]); len(again.Findings) > 0 {
		t.Errorf("added again with %+v", again.Findings)
	}
	if state := schemaState(t, p); len(state.Holds) > 0 {
		t.Errorf("there are holds: %+v", state.Holds)
	}
}

// prepareServer does what comes before the tables.
func prepareServer(t *testing.T, p *process, server *localpg.Server) {
	t.Helper()
	if err := p.claim(t.Context(), p.follower.Map(), request("s3", server).ShardSpec); err != nil {
		t.Fatal(err)
	}
}

// TestASchemaChangeWhileAShardIsAdded reaches the new shard, whether it comes before the map changes or is waited for.
func TestASchemaChangeWhileAShardIsAdded(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	servers := model.StartN(t, 3)
	p := startRouter(t, startEtcd(t), "router")
	clusterOf(t, p, servers[:2])
	execute(t, servers[0], "CREATE TABLE users (id bigint PRIMARY KEY)")
	shardTable(t, p, sharding(t, "users", "id"))
	prepareServer(t, p, servers[2])
	f := &furnishing{declaration: declaration{cluster: p.Cluster, id: "attempt", m: p.follower.Map()}, spec: request("s3", servers[2]).ShardSpec}
	f.moment = declaration{cluster: p.Cluster, id: "moment"}
	for _, step := range furnishSteps {
		err := step.run(f, t.Context())
		if step.name == "see that no table has changed" {
			if !errors.Is(err, errMapMoved) {
				t.Errorf("%s: %v", step.name, err)
			}
			if state := schemaState(t, p); len(state.Holds) != 1 || !state.Holds[0].Covers(topology.TableName{Schema: "public", Name: "users"}) {
				t.Errorf("while the map changes these are held: %+v", state.Holds)
			}
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if step.name == "make the tables" {
			for _, server := range servers[:2] {
				execute(t, server, "ALTER TABLE users ADD COLUMN name text")
			}
		}
	}
	f.takeBackHold(t.Context())
	f.closeBoth()

	changing := topology.Hold{ID: "change", Tables: []topology.TableName{{Schema: "public", Name: "users"}}, Holder: "router", Why: "ALTER TABLE"}
	if _, err := p.store.Hold(t.Context(), changing); err != nil {
		t.Fatal(err)
	}
	impatient := p.beside(func(c *Config) { c.RouterPatience = 200 * time.Millisecond })
	_, err := impatient.AddShard(t.Context(), request("s3", servers[2]))
	var refused *RefusedError
	if !errors.As(err, &refused) || !strings.Contains(refused.Message, "being changed") {
		t.Errorf("added while a table is being changed: %v", err)
	}
	if p.follower.Map().Shard("s3") != nil {
		t.Error("the map has the shard")
	}
	for _, server := range servers[:2] {
		execute(t, server, "ALTER TABLE users ADD COLUMN age integer")
	}
	if _, err := p.store.Release(t.Context(), changing.ID, 0); err != nil {
		t.Fatal(err)
	}
	added := add(t, p, "s3", servers[2])
	if described(t, servers[2], "users") != described(t, servers[0], "users") {
		t.Error("the new shard's table is another")
	}
	if state := schemaState(t, p); len(state.Holds) > 0 || state.MapVersion != added.MapVersion {
		t.Errorf("the schema's state is %+v, the map has version %d", state, added.MapVersion)
	}
}
