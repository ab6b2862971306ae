package cluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/test/cluster"

	"github.com/cleavedb/cleave/internal/thorough"
)

// sqlMoves is a cluster with rows to move, and who moves them by SQL.
type sqlMoves struct {
	*testing.T
	*cluster.Routers
	client *pgx.Conn
}

func startSQLMoves(t *testing.T) *sqlMoves {
	t.Helper()
	c := cluster.StartRouters(t, 2, 1)
	m := &sqlMoves{t, c, c.Routers[0].Dial(t)}
	if _, err := c.Routers[0].API.CreateKeyspace(t.Context(), api.CreateKeyspace{Name: "main", Key: []string{"bigint"}, Algorithm: "even", Slots: 16}); err != nil {
		t.Fatal(err)
	}
	mustExec(t, m.client, "CREATE TABLE orders (id bigint PRIMARY KEY, note text); CREATE TABLE audit (id bigint PRIMARY KEY); INSERT INTO audit SELECT generate_series(1, 10)")
	mustExec(t, m.client, "SELECT cleave.shard_table('orders', 'id', keyspace => 'main')")
	mustExec(t, m.client, "INSERT INTO orders SELECT n, repeat('x', 100) FROM generate_series(1, 3000) n")
	return m
}

// phase waits until a move is in a phase.
func (m *sqlMoves) phase(id, phase string) {
	m.Helper()
	cluster.Eventually(m.T, fmt.Sprintf("move %s is %s", id, phase), func() bool {
		return said(m.T, m.client, "SELECT phase FROM cleave.moves WHERE id = '"+id+"'") == phase
	})
}

// on returns keys that a shard owns.
func (m *sqlMoves) on(shard string, count int) (keys []string) {
	m.Helper()
	for n := 1; len(keys) < count; n++ {
		if said(m.T, m.client, fmt.Sprintf("SELECT cleave.shard_of('orders', %d)", n)) == shard {
			keys = append(keys, strconv.Itoa(n))
		}
	}
	return keys
}

// TestMovesBySQL has every function that says what is to become of a move, and the view of them.
func TestMovesBySQL(t *testing.T) {
	m := startSQLMoves(t)
	if got := said(t, m.client, "SELECT cleave.move_start('main', 's2', from_shard => 's1', dry_run => 'yes')"); !strings.HasPrefix(got, "would move ") || !strings.HasSuffix(got, " of keyspace main from shard s1 to shard s2") {
		t.Errorf("a dry run says %q", got)
	}
	if n := one[int](t, m.client, "SELECT count(*) FROM cleave.moves"); n != 0 {
		t.Errorf("%d moves were asked for", n)
	}
	keys := m.on("s1", 3)
	// A switch that was not asked for does not come, however true is written.
	id := said(t, m.client, fmt.Sprintf("SELECT cleave.move_start('main', 's2', key => '%s', manual => 'on', keep_seconds => 3600, streams => 1, pause_limit_ms => 2000, skip_verify => true, why => 'a test')", keys[0]))
	m.phase(id, "ready")
	for _, step := range []struct{ call, column, want string }{
		{"move_pause('" + id + "')", "paused::text", "true"},
		{"move_throttle('" + id + "', max_rate => 1000000, throttle => 'f')", "phase", "ready"},
		{"move_resume('" + id + "')", "paused::text", "false"},
		{"move_switch('" + id + "')", "phase", "switched"},
		{"move_rollback('" + id + "')", "phase", "rolled back"},
	} {
		if got := said(t, m.client, "SELECT cleave."+step.call); !strings.HasPrefix(got, "the leader has been told ") {
			t.Errorf("%s answers %q", step.call, got)
		}
		cluster.Eventually(t, step.call+" is heard", func() bool {
			return said(t, m.client, "SELECT "+step.column+" FROM cleave.moves WHERE id = '"+id+"'") == step.want
		})
	}
	if got, err := m.Routers.Routers[0].API.Move(t.Context(), id); err != nil || got.Why != "a test" || got.Limits.MaxRate == nil || *got.Limits.MaxRate != 1_000_000 || *got.Limits.Throttle {
		t.Errorf("%v, %+v", err, got)
	}
	// The same with a parameter in binary form.
	answer := m.client.PgConn().ExecParams(t.Context(), "SELECT cleave.move_start('main', 's2', key => $1, manual => $2)", [][]byte{[]byte(keys[1]), {1}}, []uint32{25, 16}, []int16{0, 1}, nil).Read()
	if answer.Err != nil {
		t.Fatal(answer.Err)
	}
	binary := string(answer.Rows[0][0])
	m.phase(binary, "ready")
	mustExec(t, m.client, "SELECT cleave.move_cancel($1)", binary)
	m.phase(binary, "cancelled")
	// And one that may switch, to its end.
	kept := said(t, m.client, fmt.Sprintf("SELECT cleave.move_start('main', 's2', key => '%s', keep_seconds => 3600, manual => false)", keys[2]))
	m.phase(kept, "switched")
	mustExec(t, m.client, "SELECT cleave.move_finish($1)", kept)
	m.phase(kept, "done")
	row := table(t, m.client, "SELECT keyspace, from_shard, to_shard, ranges, keys, phase, paused, can_roll_back, ended_at IS NOT NULL, held_ms > 0 FROM cleave.moves WHERE id = '"+kept+"'")
	if !strings.Contains(row, "main") || !strings.Contains(row, "s1") || !strings.Contains(row, "done") {
		t.Errorf("the view has\n%s", row)
	}
	if got := said(t, m.client, fmt.Sprintf("SELECT cleave.shard_of('orders', %s)", keys[2])); got != "s2" {
		t.Errorf("the key is on %s", got)
	}
	tables := said(t, m.client, "SELECT cleave.move_tables('audit', 's2')")
	m.phase(tables, "done")
	if got := said(t, m.client, "SELECT shard FROM cleave.tables WHERE table_name = 'audit'"); got != "s2" {
		t.Errorf("the table is on %s", got)
	}
	back := said(t, m.client, "SELECT cleave.move_tables('audit', 's1')") // which the home shard does not know any more
	m.phase(back, "done")
	if n := one[int](t, m.client, "SELECT count(*) FROM orders") + one[int](t, m.client, "SELECT count(*) FROM audit"); n != 3010 {
		t.Errorf("there are %d rows", n)
	}
}

// TestRangesAndPlansBySQL: ranges are divided and put together, tenants isolated, plans made and applied, and what is done by itself can be seen.
func TestRangesAndPlansBySQL(t *testing.T) {
	thorough.Only(t)
	m := startSQLMoves(t)
	ranges := func() int { return one[int](t, m.client, "SELECT count(*) FROM cleave.ranges WHERE keyspace = 'main'") }
	before := ranges()
	key := m.on("s1", 1)[0]
	for _, call := range []string{"at => '0123456789abcdef'", "key => '" + key + "'", "middle => 't', of => '0123456789abcdef'"} {
		now := ranges()
		if got := said(t, m.client, "SELECT cleave.split_range('main', "+call+")"); ranges() <= now || got != fmt.Sprintf("keyspace main has %d ranges", ranges()) {
			t.Errorf("%s: %q, %d ranges after %d", call, got, ranges(), now)
		}
	}
	mustExec(t, m.client, "SELECT cleave.merge_ranges('main', lo => '0000000000000000', hi => '8000000000000000')")
	if ranges() > before {
		t.Errorf("%d ranges are left, of %d", ranges(), before)
	}
	id := said(t, m.client, "SELECT cleave.tenant_isolate('main', '"+key+"', 's2')")
	m.phase(id, "done")
	if got := said(t, m.client, "SELECT shard FROM cleave.pins WHERE keyspace = 'main'"); got != "s2" {
		t.Errorf("the tenant is on %s", got)
	}
	// All goes to one shard, and a plan brings half of it back.
	id = said(t, m.client, "SELECT cleave.move_start('main', 's2', from_shard => 's1')")
	m.phase(id, "done")
	for _, shard := range m.Shards {
		direct, err := pgx.Connect(t.Context(), shard.DSN("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		mustExec(t, direct, "VACUUM ANALYZE public.orders")
		if err := direct.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var plan, other api.RebalancePlan
	for text, into := range map[string]*api.RebalancePlan{
		"SELECT cleave.rebalance_plan(keyspace => 'main', split => 'on', rate => 1000)": &plan, "SELECT cleave.rebalance_plan(split => true, exclude => 's1')": &other,
	} {
		if err := json.Unmarshal([]byte(said(t, m.client, text)), into); err != nil {
			t.Fatal(err)
		}
	}
	if len(plan.Moves) != 1 || plan.Moves[0].To != "s1" || plan.EstimatedSeconds < 10 || len(other.Moves) != 0 {
		t.Fatalf("%+v; without s1 %+v", plan, other)
	}
	first := said(t, m.client, "SELECT cleave.rebalance_apply('"+plan.ID+"')")
	if again := said(t, m.client, "SELECT cleave.rebalance_apply('"+plan.ID+"')"); again != first || first == "" {
		t.Errorf("applied again it has the moves %s, not %s", again, first)
	}
	m.phase(first, "done")
	if n := one[int](t, m.client, "SELECT count(*) FROM cleave.moves"); n != 3 {
		t.Errorf("%d moves were made", n)
	}
	var bound api.RebalancePlan
	mustExec(t, m.client, "SELECT cleave.split_range('main', at => '0123456789abcdef')")
	if _, err := m.Routers.Routers[0].API.UpdateShard(t.Context(), "s2", api.UpdateShard{Labels: map[string]*string{"region": text("us")}}); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(said(t, m.client, "SELECT cleave.rebalance_plan(rules => 'main@:0123456789abcdef=region:us; main@ffff000000000000:=region:us', tolerance => 0.9, split => true)")), &bound); err != nil || !slices.ContainsFunc(bound.Moves, func(one api.RebalanceMove) bool { return one.Reason == "rule" && one.To == "s2" }) {
		t.Errorf("%v, %+v", err, bound.Moves)
	}
	if got := said(t, m.client, "SELECT cleave.verify(max_listed => 5, max_rate => 100000000)"); !strings.HasPrefix(got, "3000 rows looked at; ") || !strings.HasSuffix(got, "everything is where it belongs") {
		t.Errorf("it says %q", got)
	}
	// What is done by itself.
	on, propose := true, "propose"
	if got := said(t, m.client, "SELECT concat_ws(' ', keyspace, moves, splits, merges) FROM cleave.automation WHERE keyspace = 'main'"); got != "main off off off" {
		t.Errorf("it does %s", got)
	}
	if _, err := m.Routers.Routers[0].API.UpdateAutomation(t.Context(), api.UpdateAutomation{On: &on, Moves: &propose}); err != nil {
		t.Fatal(err)
	}
	if got := said(t, m.client, "SELECT concat_ws(' ', keyspace, moves, splits, merges) FROM cleave.automation WHERE keyspace = 'main'"); got != "main propose propose off" {
		t.Errorf("it does %s", got)
	}
	if got := said(t, m.client, "SELECT what || ': ' || why FROM cleave.automation_events LIMIT 1"); !strings.HasPrefix(got, "settings: on: moves propose") {
		t.Errorf("what was done is %q", got)
	}
	mustExec(t, m.client, "SELECT what, keyspace, bytes, why, command FROM cleave.automation_proposals")
}

func text(s string) *string { return &s }

// TestWhatMovesMayNot: who may not, and what makes no sense, is told so with the code that clients know.
func TestWhatMovesMayNot(t *testing.T) {
	m := startSQLMoves(t)
	mustExec(t, m.client, "CREATE ROLE visitor LOGIN")
	refused := func(conn *pgx.Conn, call, code, hint string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), "SELECT cleave."+call)
		var why *pgconn.PgError
		if !errors.As(err, &why) || why.Code != code || !strings.Contains(why.Hint, hint) {
			t.Errorf("%s: %v (%+v), want %s with %q", call, err, why, code, hint)
		}
	}
	visitor := m.Routers.Routers[0].DialAs(t, "visitor")
	for _, call := range []string{
		"move_start('main', 's2', from_shard => 's1')", "move_tables('audit', 's2')", "move_throttle('x', max_rate => 1)", "move_pause('x')", "move_resume('x')", "move_cancel('x')", "move_switch('x')",
		"move_rollback('x')", "move_finish('x')", "split_range('main', middle => true)", "merge_ranges('main')", "tenant_isolate('main', '1', 's2')", "rebalance_plan()", "rebalance_apply('x')", "verify()",
	} {
		refused(visitor, call, "42501", "")
	}
	for _, c := range []struct{ call, code, hint string }{
		{"move_start('main', 'nowhere', key => '1')", "42704", ""},
		{"move_start('nothing', 's2', key => '1')", "42704", ""},
		{"move_start('main', 's2')", "22023", "from_shard =>"},
		{"move_start('main', 's2', key => 'seven')", "22023", ""},
		{"move_start('main', 's2', lo => '5', hi => '6')", "22023", ""},
		{"move_start('main', 's2', key => '1', streams => 1000)", "22023", "64"},
		{"move_start('main', 's2', key => '1', manual => 'perhaps')", "22023", "true or false"},
		{"move_start('main', 's2', key => '1', hurry => true)", "42883", "keep_seconds"},
		{"move_start('main', NULL, key => '1')", "22004", "the first 2"},
		{"move_tables('nothing', 's2')", "42P01", ""},
		{"move_tables('orders', 's2')", "22023", "Rows of sharded tables move by ranges"},
		{"move_pause('nothing')", "42704", ""},
		{"move_throttle('nothing')", "22023", ""},
		{"move_throttle('nothing', max_rate => 1)", "42704", ""},
		{"split_range('main')", "22023", "by_size"},
		{"split_range('nothing', middle => true)", "42704", ""},
		{"merge_ranges('main', lo => 'x')", "22023", ""},
		{"tenant_isolate('main', '1')", "42883", "the first 3"},
		{"rebalance_apply('nothing')", "42704", ""},
		{"rebalance_plan(algorithm => 'guess')", "22023", ""},
		{"rebalance_plan(keyspace => 'nothing')", "42704", ""},
		{"rebalance_plan(exclude => 'nothing')", "42704", ""},
		{"rebalance_plan(drain => 'nothing')", "42704", ""},
		{"rebalance_plan(rules => 'main=region')", "22023", "KEYSPACE@LO:HI"},
		{"rebalance_plan(tolerance => -1)", "22023", "2.5"},
		{"verify(prefer => 'nobody')", "22023", ""},
		{"verify(max_listed => 1000000)", "22023", ""},
	} {
		refused(m.client, c.call, c.code, c.hint)
	}
	if n := one[int](t, m.client, "SELECT count(*) FROM cleave.moves"); n != 0 {
		t.Errorf("%d moves were asked for", n)
	}
}
