package control

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/internal/topology"
)

// startRouter is startProcess for one that is a router: it holds tables, and applies what others hold.
func startRouter(t *testing.T, endpoints []string, id string, changes ...func(*Config)) *process {
	t.Helper()
	p := startProcess(t, endpoints, func(c *Config) {
		c.Router, c.HoldGrace, c.MendInterval = id, time.Nanosecond, time.Hour
		for _, change := range changes {
			change(c)
		}
	})
	registration := registerRouter(t, p.store, id)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			changed := p.follower.Changed()
			registration.SetSchemaApplied(p.follower.Schema().Epoch)
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}()
	stop := p.stop
	p.stop = func() {
		cancel()
		<-done
		_ = registration.Close() // the store may be closed
		stop()
	}
	t.Cleanup(p.stop)
	return p
}

// crowd is a cluster of two routers: one that declares and may die, and one that leads after it.
type crowd struct {
	servers   []*localpg.Server
	endpoints []string
	leader    *process
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{servers: model.StartN(t, 2), endpoints: startEtcd(t)}
	c.leader = startRouter(t, c.endpoints, "leader")
	clusterOf(t, c.leader, c.servers)
	return c
}

const crowdRows = 200

// fill makes two tables with rows, of which the second refers to the first.
func (c *crowd) fill(t *testing.T, prefix string) {
	t.Helper()
	execute(t, c.servers[0], fmt.Sprintf(`
		CREATE TABLE %[1]s_users (id bigint PRIMARY KEY, name text);
		CREATE TABLE %[1]s_orders (user_id bigint REFERENCES %[1]s_users, n int, PRIMARY KEY (user_id, n));
		INSERT INTO %[1]s_users SELECT i, 'user ' || i FROM generate_series(1, %[2]d) AS i;
		INSERT INTO %[1]s_orders SELECT i, 1 FROM generate_series(1, %[2]d) AS i`, prefix, crowdRows))
}

func (c *crowd) request(t *testing.T, prefix string) ShardTablesRequest {
	t.Helper()
	return together(sharding(t, prefix+"_users", "id"), sharding(t, prefix+"_orders", "user_id"))
}

// expect wants the tables to be whole: each row on the one shard that the map says, or on every shard, or at home.
func (c *crowd) expect(t *testing.T, prefix string, kind topology.Kind) {
	t.Helper()
	for _, table := range []string{prefix + "_users", prefix + "_orders"} {
		counts := []int{}
		total := 0
		for _, server := range c.servers {
			if !one[bool](t, server, fmt.Sprintf("SELECT to_regclass('%s') IS NOT NULL", table)) {
				counts = append(counts, -1)
				continue
			}
			n := one[int](t, server, "SELECT count(*) FROM "+table)
			counts, total = append(counts, n), total+n
		}
		var right bool
		switch kind {
		case topology.Single:
			right = counts[0] == crowdRows && !slices.ContainsFunc(counts[1:], func(n int) bool { return n >= 0 })
		case topology.Reference:
			right = !slices.ContainsFunc(counts, func(n int) bool { return n != crowdRows })
		case topology.Sharded:
			right = total == crowdRows && !slices.ContainsFunc(counts, func(n int) bool { return n <= 0 })
		}
		if !right {
			t.Errorf("table %s is to be %s, and the shards have %v rows of it (-1: no table)", table, kind, counts)
		}
	}
	expectNoFindings(t, c.leader)
}

// nothingLeft says whether nothing is prepared, noted or held.
func (c *crowd) nothingLeft(t *testing.T) func() bool {
	t.Helper()
	return func() bool {
		state, err := c.leader.store.Schema(t.Context())
		if err != nil || len(state.Holds) > 0 {
			return false
		}
		for _, server := range c.servers {
			if one[int](t, server, "SELECT count(*) FROM pg_prepared_xacts") > 0 {
				return false
			}
		}
		return one[int](t, c.servers[0], "SELECT count(*) FROM cleave.declarations WHERE state <> 'undone'") == 0
	}
}

// crashes ends a declaration after each of its steps, or those named where there is not much time, as if the process had died, and wants it done or undone.
func crashes(t *testing.T, c *crowd, before topology.Kind, request func(t *testing.T, p *process, prefix string) *declaration, after topology.Kind, some ...string) {
	steps := (&declaration{back: after == topology.Single}).steps()
	for last, step := range steps {
		if !slices.Contains(some, step.name) && !thorough.Asked() {
			continue
		}
		t.Run(step.name, func(t *testing.T) {
			prefix := fmt.Sprintf("t%s%d", after, last)
			c.fill(t, prefix)
			c.declareAs(t, prefix, before)
			dying := startRouter(t, c.endpoints, "dying "+prefix)
			d := request(t, dying, prefix)
			d.cluster, d.id = dying.Cluster, "id"+prefix
			slices.SortFunc(d.tables, compareNames)
			for _, step := range steps[:last+1] {
				if err := step.run(d, t.Context()); err != nil {
					t.Fatalf("%s: %v", step.name, err)
				}
			}
			d.close()
			dying.stop()
			eventually(t, "nothing is left", c.nothingLeft(t))
			want := before
			if d.published {
				want = after
			}
			eventually(t, "the shards have recorded the map", c.leader.settled)
			c.expect(t, prefix, want)
			if want == before {
				c.declareAs(t, prefix, after)
				c.expect(t, prefix, after)
			}
		})
	}
}

func compareNames(a, b topology.TableName) int {
	return slices.Compare([]byte(a.String()), []byte(b.String()))
}

// declareAs has to succeed.
func (c *crowd) declareAs(t *testing.T, prefix string, kind topology.Kind) {
	t.Helper()
	both := tablesNamed(t, prefix+"_users", prefix+"_orders")
	var err error
	declared := c.leader.follower.Map().Table("public", prefix+"_users") != nil
	switch {
	case kind == topology.Sharded:
		_, err = c.leader.ShardTables(t.Context(), c.request(t, prefix))
	case kind == topology.Reference:
		_, err = c.leader.ReferenceTables(t.Context(), both)
	case declared:
		_, err = c.leader.UndistributeTables(t.Context(), both)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func sharded(t *testing.T, _ *process, prefix string) *declaration {
	request := together(sharding(t, prefix+"_users", "id"), sharding(t, prefix+"_orders", "user_id"))
	d := &declaration{kind: topology.Sharded, tables: tablesNamed(t, prefix+"_users", prefix+"_orders").Tables}
	d.decide = func(d *declaration) ([]topology.Change, error) { return d.shardedAs(request) }
	return d
}

// TestCrashesOfADeclaration: whoever dies when, the tables are declared with all of their rows or are as they were.
func TestCrashesOfADeclaration(t *testing.T) {
	t.Parallel()
	crashes(t, newCrowd(t), topology.Single, sharded, topology.Sharded, "hold the tables", "copy the rows", "note it", "prepare", "publish the map", "commit", "tell the shards")
}

// TestCrashesOfAReferenceTable are the same, but for the rows, which stay at home too.
func TestCrashesOfAReferenceTable(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	crashes(t, newCrowd(t), topology.Single, func(t *testing.T, _ *process, prefix string) *declaration {
		d := &declaration{kind: topology.Reference, tables: tablesNamed(t, prefix+"_users", prefix+"_orders").Tables}
		d.decide = referencesAs
		return d
	}, topology.Reference, "leave the home shard what it owns", "prepare", "publish the map")
}

// TestCrashesOnTheWayBack: the same for tables that are undistributed.
func TestCrashesOnTheWayBack(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	crashes(t, newCrowd(t), topology.Sharded, func(t *testing.T, _ *process, prefix string) *declaration {
		d := &declaration{back: true, tables: tablesNamed(t, prefix+"_users", prefix+"_orders").Tables}
		d.decide = undeclaredAs
		return d
	}, topology.Single, "hold the tables", "bring the rows home", "note it", "prepare", "publish the map", "commit")
}
