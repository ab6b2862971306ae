package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// planOf is a plan that says so much.
func planOf(id string, size int) Plan {
	return Plan{ID: id, Version: 2, Body: json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)}
}

func jobsNamed(prefix string, n int) []Job {
	jobs := make([]Job, n)
	for i := range jobs {
		jobs[i] = Job{ID: fmt.Sprintf("%s%02d", prefix, i), Kind: "move", State: "asked", Body: json.RawMessage(`"` + strings.Repeat("x", 10) + `"`)}
	}
	return jobs
}

// expectPlan wants a plan to be there, as it was kept.
func expectPlan(t *testing.T, s *Store, want Plan) Plan {
	t.Helper()
	got, err := s.Plan(testContext(t), want.ID)
	if err != nil || !bytes.Equal(got.Body, want.Body) || got.Version != want.Version {
		t.Fatalf("plan %s says %d bytes for version %d, not %d for %d: %v", want.ID, len(got.Body), got.Version, len(want.Body), want.Version, err)
	}
	return got
}

// expectJobs wants these jobs, and no others.
func expectJobs(t *testing.T, s *Store, want []Job) {
	t.Helper()
	got, err := s.NewJobReader().Jobs(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(got, want, func(a, b Job) bool { return a.ID == b.ID && bytes.Equal(a.Body, b.Body) }) {
		t.Errorf("%d jobs are stored, not %d", len(got), len(want))
	}
}

// TestPlansAreKept, small ones and such as etcd does not take at once, and become jobs once.
func TestPlansAreKept(t *testing.T) {
	t.Parallel()
	etcd := startMember(t)
	s := openStore(t, etcd.endpoints())
	m := newMap(t, 2)
	if err := s.Create(testContext(t), m); err != nil {
		t.Fatal(err)
	}
	for i, size := range []int{2, 1 << 10, 1 << 19, 1<<19 + 1, 5 << 20} {
		plan := planOf(fmt.Sprintf("p%d", i), size)
		if err := s.KeepPlan(testContext(t), plan); err != nil {
			t.Fatal(err)
		}
		expectPlan(t, s, plan)
		if err := s.KeepPlan(testContext(t), planOf(plan.ID, 10)); !errors.Is(err, ErrExists) {
			t.Errorf("kept twice: %v", err)
		}
		expectPlan(t, s, plan)
	}
	var large *PlanTooLargeError
	if err := s.KeepPlan(testContext(t), planOf("huge", maxPlanBytes+1)); !errors.As(err, &large) {
		t.Errorf("a plan that is too large: %v", err)
	}
	for _, bad := range []string{"", "a/b"} {
		if err := s.KeepPlan(testContext(t), planOf(bad, 10)); err == nil {
			t.Errorf("plan %q was kept", bad)
		}
	}
	if plans, err := s.Plans(testContext(t)); err != nil || len(plans) != 5 || plans[0].ID != "p0" || plans[4].ID != "p4" || len(plans[4].Body) > 0 {
		t.Errorf("%d plans: %v", len(plans), err)
	}
	if _, err := s.Plan(testContext(t), "none"); !errors.Is(err, ErrNoPlan) {
		t.Errorf("a plan that is not there: %v", err)
	}
	// It becomes jobs, for the map that it was made for.
	jobs := jobsNamed("j", 3)
	late := planOf("late", 10)
	late.Version = m.Version() + 1
	if err := s.KeepPlan(testContext(t), late); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AskPlanned(testContext(t), expectPlan(t, s, late), jobs); !errors.Is(err, ErrConflict) {
		t.Errorf("a plan for another map: %v", err)
	}
	expectJobs(t, s, nil)
	read := expectPlan(t, s, planOf("p1", 1<<10))
	asked, err := s.AskPlanned(testContext(t), read, jobs)
	if err != nil || !asked.HasAsked() || !slices.Equal(asked.Jobs, []string{"j00", "j01", "j02"}) || asked.Applied.IsZero() {
		t.Fatalf("%+v, %v", asked, err)
	}
	expectJobs(t, s, jobs)
	if _, err := s.AskPlanned(testContext(t), read, jobsNamed("k", 3)); !errors.Is(err, ErrConflict) {
		t.Errorf("applied twice: %v", err)
	}
	if err := s.DropPlan(testContext(t), read); !errors.Is(err, ErrConflict) {
		t.Errorf("dropped though it was applied since: %v", err)
	}
	if err := s.SettlePlan(testContext(t), asked); err != nil {
		t.Fatal(err)
	}
	settled := expectPlan(t, s, planOf("p1", 1<<10))
	if !settled.Settled || !settled.HasAsked() {
		t.Errorf("%+v", settled)
	}
	if err := s.DropPlan(testContext(t), settled); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Plan(testContext(t), "p1"); !errors.Is(err, ErrNoPlan) {
		t.Errorf("a plan that was dropped: %v", err)
	}
	if parts := keysUnderPrefix(t, s, s.planParts("p1")); len(parts) > 0 {
		t.Errorf("of a plan that was dropped %d parts are left", len(parts))
	}
	expectJobs(t, s, jobs)
}

// TestOldPlansAreForgotten, but for those that are being applied.
func TestOldPlansAreForgotten(t *testing.T) {
	now := time.Now()
	few := func(n, bytes int) (records []planRecord) {
		for i := range n {
			records = append(records, planRecord{ID: strconv.Itoa(i), Bytes: bytes, Ready: true})
		}
		return records
	}
	many := few(keptPlans+3, 10)
	many[1].Applied, many[2].Applied, many[2].Settled = now, now, true
	for name, c := range map[string]struct {
		records []planRecord
		want    string
	}{
		"few": {few(keptPlans, 10), "[]"}, "many": {many, "[2 0]"}, "large": {few(4, keptPlanBytes/2), "[1 0]"},
	} {
		ids := []string{}
		for _, r := range tooMany(c.records) {
			ids = append(ids, r.ID)
		}
		if got := fmt.Sprint(ids); got != c.want {
			t.Errorf("%s: forgotten are %s, not %s", name, got, c.want)
		}
	}
	t.Parallel()
	etcd := startMember(t)
	s := openStore(t, etcd.endpoints())
	for i := range keptPlans + 2 {
		if err := s.KeepPlan(testContext(t), planOf(fmt.Sprintf("p%d", i), 10)); err != nil {
			t.Fatal(err)
		}
	}
	if plans, err := s.Plans(testContext(t)); err != nil || len(plans) != keptPlans || plans[0].ID != "p2" {
		t.Errorf("%d plans are kept: %v", len(plans), err)
	}
	if parts := keysUnderPrefix(t, s, s.keys.parts); len(parts) != keptPlans {
		t.Errorf("%d parts are stored", len(parts))
	}
}

// The lines of the crash table about plans. A plan of 250,000 bytes takes four parts here, the last of which goes along with its record.

func crashBetweenParts(t *testing.T, etcd *member) {
	for write := range 5 {
		for name, how := range map[string]fate{"before": dieBefore, "after": dieAfter} {
			s, _ := wired(t, etcd, onWrite(write, how))
			plan := planOf(fmt.Sprintf("p%d%s", write, name), 250_000)
			if err := s.KeepPlan(testContext(t), plan); err == nil {
				t.Fatal("the writer lives")
			}
			next := openStore(t, etcd.endpoints(), smallTransactions)
			if write == 4 && how == dieAfter {
				expectPlan(t, next, plan)
				continue
			}
			if _, err := next.Plan(testContext(t), plan.ID); !errors.Is(err, ErrNoPlan) {
				t.Errorf("half a plan is there: %v", err)
			}
			if plans, err := next.Plans(testContext(t)); err != nil || slices.ContainsFunc(plans, func(p Plan) bool { return p.ID == plan.ID }) {
				t.Errorf("half a plan is listed: %v", err)
			}
			shorter := planOf(plan.ID, 100_000)
			if err := next.KeepPlan(testContext(t), shorter); err != nil {
				t.Fatal(err)
			}
			expectPlan(t, next, shorter)
			if parts := keysUnderPrefix(t, next, next.planParts(plan.ID)); len(parts) != 2 {
				t.Errorf("%d parts are stored", len(parts))
			}
		}
	}
}

func samePlanTwice(t *testing.T, etcd *member) {
	plan := planOf("together", 250_000)
	var keeping sync.WaitGroup
	for range 4 {
		s := openStore(t, etcd.endpoints(), smallTransactions)
		keeping.Go(func() {
			if err := s.KeepPlan(testContext(t), plan); err != nil && !errors.Is(err, ErrExists) {
				t.Error(err)
			}
			expectPlan(t, s, plan)
		})
	}
	keeping.Wait()
}

// appliedPlan keeps a plan for the stored map, and returns it as it was read, with jobs of it that take three transactions.
func appliedPlan(t *testing.T, etcd *member, id string) (Plan, []Job) {
	t.Helper()
	s := openStore(t, etcd.endpoints(), smallTransactions)
	m, err := s.Map(testContext(t))
	if errors.Is(err, ErrNoMap) {
		m, err = newMap(t, 2), nil
		createMap(t, etcd, m)
	}
	if err != nil {
		t.Fatal(err)
	}
	plan := planOf(id, 100)
	plan.Version = m.Version()
	if err := s.KeepPlan(testContext(t), plan); err != nil {
		t.Fatal(err)
	}
	return expectPlan(t, s, plan), jobsNamed(id, 12)
}

func crashBetweenJobs(t *testing.T, etcd *member) {
	for write, how := range []fate{dieBefore, dieAfter} {
		plan, jobs := appliedPlan(t, etcd, fmt.Sprintf("half%d", write))
		s, _ := wired(t, etcd, onWrite(1, how))
		first, err := s.AskPlanned(testContext(t), plan, jobs)
		if err != nil || first.HasAsked() || first.Asked == 0 {
			t.Fatalf("%d of %d jobs: %v", first.Asked, len(jobs), err)
		}
		if _, err := s.AskPlanned(testContext(t), first, jobs); err == nil {
			t.Fatal("the writer lives")
		}
		next := openStore(t, etcd.endpoints(), smallTransactions)
		goOn, err := next.Plan(testContext(t), plan.ID)
		for err == nil && !goOn.HasAsked() {
			goOn, err = next.AskPlanned(testContext(t), goOn, jobs)
		}
		if err != nil {
			t.Fatal(err)
		}
		stored := keysUnderPrefix(t, next, next.keys.jobs+plan.ID)
		if len(stored) != len(jobs) {
			t.Errorf("%d jobs are stored, of %d", len(stored), len(jobs))
		}
	}
}

func lostPlanAnswer(t *testing.T, etcd *member) {
	for name, how := range map[string]fate{"vanish": vanish, "lose": loseAnswer} {
		var fates func(int, *pb.TxnRequest) fate
		s, w := wired(t, etcd, func(write int, txn *pb.TxnRequest) fate { return fates(write, txn) })
		for write := range 5 {
			w.reset()
			fates = onWrite(write, how)
			plan := planOf(fmt.Sprintf("%s%d", name, write), 250_000)
			if err := s.KeepPlan(testContext(t), plan); err != nil {
				t.Fatal(err)
			}
			expectPlan(t, s, plan)
		}
		plan, jobs := appliedPlan(t, etcd, "asked"+name)
		asked := plan
		for !asked.HasAsked() {
			w.reset()
			fates = onWrite(0, how)
			var err error
			if asked, err = s.AskPlanned(testContext(t), asked, jobs); err != nil {
				t.Fatal(err)
			}
		}
		if stored := keysUnderPrefix(t, s, s.keys.jobs+plan.ID); len(stored) != len(jobs) || !slices.Equal(asked.Jobs, names(jobs)) {
			t.Errorf("%d jobs are stored, of %d: %v", len(stored), len(jobs), asked.Jobs)
		}
		w.reset()
		if err := s.SettlePlan(testContext(t), asked); err != nil {
			t.Fatal(err)
		}
		w.reset()
		if err := s.DropPlan(testContext(t), expectPlan(t, s, plan)); err != nil {
			t.Fatal(err)
		}
	}
}

func names(jobs []Job) (list []string) {
	for _, job := range jobs {
		list = append(list, job.ID)
	}
	return list
}

func takenJobName(t *testing.T, etcd *member) {
	plan, jobs := appliedPlan(t, etcd, "taken")
	s := openStore(t, etcd.endpoints(), smallTransactions)
	if _, err := s.AskJob(testContext(t), Job{ID: jobs[0].ID, Kind: "other"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AskPlanned(testContext(t), plan, jobs); !errors.Is(err, ErrConflict) {
		t.Errorf("a name that is taken: %v", err)
	}
	if job, err := s.Job(testContext(t), jobs[0].ID); err != nil || job.Kind != "other" {
		t.Errorf("somebody's job was written over: %+v, %v", job, err)
	}
	asked, err := s.AskPlanned(testContext(t), plan, slices.Concat(jobsNamed("free", 1), jobs[1:]))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.AskJob(testContext(t), Job{ID: jobs[asked.Asked].ID, Kind: "other"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AskPlanned(testContext(t), asked, jobs); !errors.Is(err, ErrExists) {
		t.Errorf("a name that is taken, later: %v", err)
	}
}
