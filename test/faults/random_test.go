package faults_test

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/cleavedb/cleave/test/faults"
)

// TestMain lets all tests run side by side, however few processors there are: most of the time they wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(faults.Main(m))
}

// shorter are the times that rows of transactions are kept, so that some are cleaned up under way. They are longer than whoever asks for a row waits.
var shorter = map[string]time.Duration{"txn.retention": 45 * time.Second, "txn.sweepdelay": 20 * time.Second, "control.sweep": 2 * time.Second}

// run is a cluster under faults.
type run struct {
	cluster  *faults.Cluster
	workload *faults.Workload
	nemesis  *faults.Nemesis
}

func startRun(t *testing.T) *run {
	t.Helper()
	return startRunWith(t, shorter)
}

func startRunWith(t *testing.T, durations map[string]time.Duration) *run {
	t.Helper()
	number := faults.Seed(t)
	cluster := faults.Start(t, faults.Config{Replicated: 2, Durations: durations})
	tables, err := cluster.MakeTables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(cluster.Folder, "faults.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	r := &run{cluster, faults.NewWorkload(cluster, tables, number), faults.NewNemesis(cluster, number, log)}
	if r.workload.Consistent, err = cluster.OffersConsistentReads(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !r.workload.Consistent {
		t.Log("routers do not offer consistent reads: these are not checked")
	}
	return r
}

// round lets clients work while so many crashes happen, and checks everything afterwards.
func (r *run) round(t *testing.T, crashes int) {
	t.Helper()
	ctx := t.Context()
	if err := r.workload.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	failed := r.nemesis.Run(ctx, crashes)
	healed := r.cluster.Heal(ctx)
	for what, err := range map[string]error{"the nemesis": failed, "healing": healed} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	r.finish(t)
}

// finish waits until clients are served as ever, ends them, and checks everything.
func (r *run) finish(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	if err := r.workload.GoesOn(ctx); err != nil {
		t.Error(err)
	}
	if err := r.workload.End(); err != nil {
		t.Error(err)
	}
	if err := r.cluster.Settled(ctx); err != nil {
		t.Errorf("it does not settle: %v", err)
	}
	wrong, err := r.workload.Check(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const most = 20
	for i, one := range wrong {
		if i == most {
			t.Errorf("… %d in all", len(wrong))
			break
		}
		t.Error(one)
	}
}

const someCrashes = 20

func TestRandomFaults(t *testing.T) {
	t.Parallel()
	r := startRun(t)
	r.round(t, someCrashes)
	t.Log(r.nemesis.Summary())
	t.Log(r.workload.Summary())
}

// TestSoak is for hours without a person: CLEAVE_SOAK says how many crashes there are to be. Everything is checked after every few of them.
func TestSoak(t *testing.T) {
	const each = 40
	crashes, err := strconv.Atoi(os.Getenv("CLEAVE_SOAK"))
	if err != nil {
		t.Skip("CLEAVE_SOAK does not say how many crashes there are to be")
	}
	r := startRun(t)
	begin := time.Now()
	for r.nemesis.Crashes() < crashes && !t.Failed() {
		r.round(t, min(each, crashes-r.nemesis.Crashes()))
		t.Logf("%s: %s", time.Since(begin).Round(time.Second), r.nemesis.Summary())
		t.Logf("in the last round: %s", r.workload.Summary())
	}
}
