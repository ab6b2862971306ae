package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/rebalance"
	"github.com/cleavedb/cleave/internal/reshard"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// largeCluster is a map of many shards of two weights with many ranges in two keyspaces, dealt by chance, and how much each has.
func largeCluster(t testing.TB, shards, ranges int, more ...topology.Change) (*topology.Map, rebalance.Sizes) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	var changes []topology.Change
	var sizes rebalance.Sizes
	for name, n := range map[string]int{"orders": ranges / 3, "users": ranges - ranges/3} {
		spec, one := topology.NewKeyspaceSpec(name, topology.ByHash, 7, "bigint"), rebalance.KeyspaceSizes{Keyspace: name}
		for i := range n {
			r := topology.RangeSpec{Shard: fmt.Sprintf("s%d", 1+random.IntN(shards))}
			if i > 0 {
				r.From = topology.Point{fmt.Sprintf("%016x", uint64(i)*(1<<63/uint64(n)*2))}
			}
			spec.Ranges = append(spec.Ranges, r)
			one.Ranges = append(one.Ranges, rebalance.RangeSize{From: r.From, Size: rebalance.Size{Bytes: 1<<28 + random.Int64N(1<<30)}})
		}
		changes, sizes = append(changes, topology.CreateKeyspace(spec)), append(sizes, one)
	}
	return mapOf(t, shards, append(changes, more...)...), sizes
}

// TestSizesOfAThousandShards are summed up without a look at all ranges for each of them, which took minutes.
func TestSizesOfAThousandShards(t *testing.T) {
	ranges := 150_000
	if raceDetector {
		ranges = 25_000
	}
	tables := map[string]topology.Change{}
	for _, name := range []string{"orders", "users"} {
		tables[name] = topology.SetTable(topology.TableSpec{Name: "public." + name, Kind: topology.Sharded, Keyspace: name, Key: []string{"id"}})
	}
	m, _ := largeCluster(t, 1000, ranges, tables["orders"], tables["users"])
	byShard, want := map[string][]measured{}, map[string]int64{"orders": 0, "users": 0}
	for s := range m.Shards() {
		for name := range want {
			size := int64(len(name) * s.Number())
			byShard[s.Name()] = append(byShard[s.Name()], measured{table: "public." + name, Size: rebalance.Size{Bytes: size}})
			want[name] += size
		}
	}
	for _, one := range sizesIn(m, byShard, listAllRawRanges(m), nil) {
		sum := int64(0)
		for _, s := range one.Shards {
			sum += s.Bytes
		}
		if sum != want[one.Keyspace] || len(one.Shards) != 1000 || len(one.Ranges) > 0 {
			t.Errorf("keyspace %s has %d bytes on %d shards, not %d", one.Keyspace, sum, len(one.Shards), want[one.Keyspace])
		}
	}
}

// operations are those of a cluster whose shards nobody looks at.
func operations(t testing.TB, endpoints []string) *Cluster {
	t.Helper()
	return operationsUnder(t, endpoints, "")
}

// operationsUnder are those of one of several clusters in an etcd.
func operationsUnder(t testing.TB, endpoints []string, prefix string) *Cluster {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	s, err := store.Open(store.Config{Endpoints: endpoints, Prefix: prefix, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	follower, err := s.Follow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(follower.Close)
	return New(Config{Store: s, Follower: follower, Logger: logger, Access: shard.Access{User: "postgres", Database: "postgres", SSLMode: "disable"}})
}

// TestAPlanForAThousandShards is kept and applied, whatever it takes, and whoever looks what there is to do does not read it.
func TestAPlanForAThousandShards(t *testing.T) {
	c := operations(t, startEtcd(t))
	ranges := 150_000
	if raceDetector { // It makes plans ten times slower, and the path is the same.
		ranges = 25_000
	}
	m, sizes := largeCluster(t, 1000, ranges)
	if err := c.config.Store.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	plan, err := c.planFor(t.Context(), m, sizes, nil, api.PlanRebalance{})
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := c.config.Store.Plan(t.Context(), plan.ID); err != nil || len(kept.Body) < 1<<20 && !raceDetector {
		t.Fatalf("the plan takes %d bytes, which is no test: %v", len(kept.Body), err)
	}
	if moves, err := c.mover.List(t.Context()); err != nil || len(moves) > 0 {
		t.Errorf("%d moves were asked for: %v", len(moves), err)
	}
	list, err := c.ApplyRebalance(t.Context(), plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	expectMoves(t, c, plan, list)
}

// expectMoves wants the moves of a plan to have been asked for, each once, in their order, and nothing else.
func expectMoves(t *testing.T, c *Cluster, plan api.RebalancePlan, told api.MoveList) {
	t.Helper()
	stored, err := c.mover.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(stored) // the oldest first
	if len(stored) != len(plan.Moves) || len(told.Moves) != len(plan.Moves) {
		t.Fatalf("%d moves were asked for, and told of %d, of %d", len(stored), len(told.Moves), len(plan.Moves))
	}
	for i, planned := range plan.Moves {
		m := stored[i]
		if m.ID != told.Moves[i].ID || m.Keyspace != planned.Keyspace || m.Source != planned.From || m.Target != planned.To || len(m.Pins)+len(m.Schemas) != len(planned.Keys) || !slices.Equal(m.Whole, planned.Tables) {
			t.Fatalf("move %d is %+v, and should be %+v", i, m, planned)
		}
		bounds := map[string]int{}
		for _, r := range planned.Ranges {
			bounds["from "+topology.Point(r.From).String()]++
			bounds["to "+topology.Point(r.To).String()]++
		}
		for _, r := range m.Ranges {
			if bounds["from "+r.From.String()] != 1 || bounds["to "+r.To.String()] != 1 {
				t.Fatalf("move %d moves from %s to %s, and should move %+v", i, r.From, r.To, planned.Ranges)
			}
		}
	}
}

// smallCluster has two keyspaces without tables, all of both on the first of so many shards.
func smallCluster(t *testing.T, c *Cluster, shards int) {
	t.Helper()
	var changes []topology.Change
	for _, name := range []string{"orders", "users"} {
		spec := topology.NewKeyspaceSpec(name, topology.ByHash, 7, "bigint")
		for i := range 64 {
			r := topology.RangeSpec{Shard: "s1"}
			if i > 0 {
				r.From = topology.Point{fmt.Sprintf("%016x", uint64(i)<<58)}
			}
			spec.Ranges = append(spec.Ranges, r)
		}
		changes = append(changes, topology.CreateKeyspace(spec))
	}
	if err := c.config.Store.Create(t.Context(), mapOf(t, shards, changes...)); err != nil {
		t.Fatal(err)
	}
}

// planByMap plans by nothing but the map.
func (c *Cluster) planByMap(t *testing.T, request api.PlanRebalance) api.RebalancePlan {
	t.Helper()
	m, err := c.config.Store.Map(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	plan, err := c.planFor(t.Context(), m, nil, nil, request)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func idsOf(list api.MoveList) string {
	var ids []string
	for _, m := range list.Moves {
		ids = append(ids, m.ID)
	}
	return strings.Join(ids, " ")
}

// TestAPlanIsAppliedOnce: whoever does so again, or at the same time, hears of the same moves (L4), and a plan that does not know of them is refused (L5).
func TestAPlanIsAppliedOnce(t *testing.T) {
	endpoints := startEtcd(t)
	c := operations(t, endpoints)
	smallCluster(t, c, 5)
	plan, other := c.planByMap(t, api.PlanRebalance{}), c.planByMap(t, api.PlanRebalance{MaxMoves: 1})
	if len(plan.Moves) < 4 || plan.ID == other.ID {
		t.Fatalf("%d moves; plans %s and %s", len(plan.Moves), plan.ID, other.ID)
	}
	var applying sync.WaitGroup
	answers := make([]string, 4)
	for i := range answers {
		own := operations(t, endpoints)
		applying.Go(func() {
			list, err := own.ApplyRebalance(t.Context(), plan.ID)
			if err != nil {
				t.Error(err)
			}
			answers[i] = idsOf(list)
		})
	}
	applying.Wait()
	again, err := c.ApplyRebalance(t.Context(), plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, answer := range answers {
		if answer != idsOf(again) {
			t.Errorf("one hears of the moves %s, another of %s", answer, idsOf(again))
		}
	}
	expectMoves(t, c, plan, again)
	var invalid *InvalidError
	if _, err := c.ApplyRebalance(t.Context(), other.ID); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "does not know of it") {
		t.Errorf("a plan that was made before those moves were asked for: %v", err)
	}
	if _, err := c.ApplyRebalance(t.Context(), "nothing"); !errors.As(err, new(*topology.NotFoundError)) {
		t.Errorf("a plan that nobody has made: %v", err)
	}
	// What is about to move is not planned again.
	if next := c.planByMap(t, api.PlanRebalance{}); len(next.Moves) > 0 || !strings.Contains(strings.Join(next.Warnings, "\n"), "keyspace users stays as it is") {
		t.Errorf("%d moves are planned, warnings %q", len(next.Moves), next.Warnings)
	}
}

// TestPlansThatWereAppliedSurviveTheirAppliers has the lines of the crash table of plans.
func TestPlansThatWereAppliedSurviveTheirAppliers(t *testing.T) {
	endpoints := startEtcd(t)
	c := operations(t, endpoints)
	m, sizes := largeCluster(t, 300, 3_000)
	if err := c.config.Store.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	plan, err := c.planFor(t.Context(), m, sizes, nil, api.PlanRebalance{MaxMoves: 120})
	if err != nil {
		t.Fatal(err)
	}
	// L1: whoever applies it dies before anything is written.
	if err := operations(t, endpoints).goOnWithPlans(t.Context()); err != nil {
		t.Fatal(err)
	}
	if moves, err := c.mover.List(t.Context()); err != nil || len(moves) > 0 {
		t.Fatalf("%d moves of a plan that nobody has applied: %v", len(moves), err)
	}
	// L2: they die with a part of the moves asked for.
	stored, described, err := c.readPlan(t.Context(), plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := jobsOf(m, stored, described, nil)
	if err != nil {
		t.Fatal(err)
	}
	if stored, err = c.config.Store.AskPlanned(t.Context(), stored, jobs); err != nil || stored.HasAsked() {
		t.Fatalf("all of %d moves were asked for at once, which is no test: %v", len(jobs), err)
	}
	if err := operations(t, endpoints).goOnWithPlans(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := c.ApplyRebalance(t.Context(), plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	expectMoves(t, c, plan, list)
	// L3: one that sleeps meanwhile, and goes on.
	if _, err := c.config.Store.AskPlanned(t.Context(), stored, jobs); !errors.Is(err, store.ErrConflict) {
		t.Errorf("who has slept asks for moves again: %v", err)
	}
	expectMoves(t, c, plan, list)
}

// TestNamesOfPlannedMovesMayBeTaken (L6): then others are drawn, and no job is written over.
func TestNamesOfPlannedMovesMayBeTaken(t *testing.T) {
	c := operations(t, startEtcd(t))
	m, sizes := largeCluster(t, 300, 3_000)
	if err := c.config.Store.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	plan, err := c.planFor(t.Context(), m, sizes, nil, api.PlanRebalance{MaxMoves: 120})
	if err != nil {
		t.Fatal(err)
	}
	stored, described, err := c.readPlan(t.Context(), plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := jobsOf(m, stored, described, nil)
	if err != nil {
		t.Fatal(err)
	}
	if stored, err = c.config.Store.AskPlanned(t.Context(), stored, jobs); err != nil {
		t.Fatal(err)
	}
	others := &reshard.Move{ID: stored.Jobs[stored.Asked], Keyspace: "others"}
	if err := reshard.Ask(t.Context(), c.config.Store, others); err != nil {
		t.Fatal(err)
	}
	if err := c.goOnWithPlans(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list, err := c.ApplyRebalance(t.Context(), plan.ID); err != nil || len(list.Moves) != len(plan.Moves) || strings.Contains(idsOf(list), others.ID) {
		t.Errorf("%v, %d moves of %d", err, len(list.Moves), len(plan.Moves))
	}
	if kept, err := reshard.Find(t.Context(), c.config.Store, others.ID); err != nil || kept.Keyspace != "others" {
		t.Errorf("%v, somebody's move was written over: %+v", err, kept)
	}
}

// TestAPlanCanBeMadeAgain when its moves were taken back before anything had moved.
func TestAPlanCanBeMadeAgain(t *testing.T) {
	endpoints := startEtcd(t)
	c := operations(t, endpoints)
	smallCluster(t, c, 2)
	plan := c.planByMap(t, api.PlanRebalance{Keyspaces: []string{"users"}})
	first, err := c.ApplyRebalance(t.Context(), plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	leadership, err := c.config.Store.Campaign(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	isSettled := func() bool {
		t.Helper()
		err := c.goOnWithPlans(t.Context())
		plans, listed := c.config.Store.Plans(t.Context())
		if err = errors.Join(err, listed); err != nil || len(plans) != 1 {
			t.Fatal(len(plans), err)
		}
		return plans[0].Settled
	}
	if isSettled() {
		t.Error("the leader is done with a plan whose moves are under way")
	}
	for _, m := range first.Moves {
		job, err := c.config.Store.Job(t.Context(), m.ID)
		if err != nil {
			t.Fatal(err)
		}
		move, err := reshard.Of(job)
		if err != nil {
			t.Fatal(err)
		}
		move.Phase = reshard.Cancelled
		body, err := json.Marshal(move)
		if err != nil {
			t.Fatal(err)
		}
		job.State, job.Body = string(reshard.Cancelled), body
		if _, err := leadership.UpdateJob(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	if !isSettled() {
		t.Error("the leader goes on looking for moves that have ended")
	}
	if list, err := c.ApplyRebalance(t.Context(), plan.ID); err != nil || idsOf(list) != idsOf(first) {
		t.Errorf("applied again: %v, moves %s, not %s", err, idsOf(list), idsOf(first))
	}
	again := c.planByMap(t, api.PlanRebalance{Keyspaces: []string{"users"}})
	second, err := c.ApplyRebalance(t.Context(), again.ID)
	if err != nil || again.ID != plan.ID || len(second.Moves) != len(first.Moves) || idsOf(second) == idsOf(first) {
		t.Errorf("planned again: %v, plan %s after %s, moves %s after %s", err, again.ID, plan.ID, idsOf(second), idsOf(first))
	}
}

// TestTheAlgorithmIsNamedWhenAllHasMoved, and not before, nor if somebody has taken a part of it back.
func TestTheAlgorithmIsNamedWhenAllHasMoved(t *testing.T) {
	c := operations(t, startEtcd(t))
	smallCluster(t, c, 3)
	leadership, err := c.config.Store.Campaign(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	named := func(keyspace string) string {
		t.Helper()
		if err := c.goOnWithPlans(t.Context()); err != nil {
			t.Fatal(err)
		}
		m, err := c.config.Store.Map(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return m.Keyspace(keyspace).Assignment().Algorithm
	}
	apply := func(keyspace string) api.MoveList {
		t.Helper()
		plan := c.planByMap(t, api.PlanRebalance{Algorithm: "weighted-ring", Keyspaces: []string{keyspace}})
		if want := []api.RebalanceAssignment{{Keyspace: keyspace, Algorithm: "weighted-ring"}}; !slices.Equal(plan.Assignments, want) {
			t.Fatalf("%+v, not %+v", plan.Assignments, want)
		}
		list, err := c.ApplyRebalance(t.Context(), plan.ID)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	carryOut := func(list api.MoveList) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.mover.Run(ctx, leadership) })
		defer running.Wait()
		defer cancel()
		eventually(t, "all moves have ended", func() bool {
			for _, m := range list.Moves {
				if now, err := c.Move(t.Context(), m.ID); err != nil || !reshard.Phase(now.Phase).HasEnded() {
					return false
				}
			}
			return true
		})
	}
	users := apply("users")
	if len(users.Moves) < 2 || named("users") != "" {
		t.Fatalf("%d moves were asked for, and the keyspace names %q", len(users.Moves), named("users"))
	}
	carryOut(users)
	if got := named("users"); got != "weighted-ring" {
		t.Errorf("all has moved, and the keyspace names %q", got)
	}
	orders := apply("orders")
	if _, err := c.WishMove(t.Context(), orders.Moves[len(orders.Moves)-1].ID, "cancel"); err != nil {
		t.Fatal(err)
	}
	carryOut(orders)
	if got := named("orders"); got != "" {
		t.Errorf("not all has moved, and the keyspace names %q", got)
	}
	// What is as the algorithm wants it already is named at once.
	if _, err := c.config.Store.Update(t.Context(), func(m *topology.Map) (*topology.Map, error) {
		return m.Next(topology.ReplaceRanges("users", m.Keyspace("users").Spec().Ranges, topology.Assignment{}))
	}); err != nil {
		t.Fatal(err)
	}
	if again := apply("users"); len(again.Moves) > 0 || named("users") != "weighted-ring" {
		t.Errorf("%d moves, and the keyspace names %q", len(again.Moves), named("users"))
	}
	if plan := c.planByMap(t, api.PlanRebalance{Algorithm: "weighted-ring", Keyspaces: []string{"users"}}); len(plan.Moves)+len(plan.Assignments) > 0 {
		t.Errorf("there is still something to do: %+v", plan)
	}
}
