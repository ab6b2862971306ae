package faults_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestAStoppedRouterStopsNobody: whatever it was doing, writing or reading, others commit when recovery has ended what it left.
func TestAStoppedRouterStopsNobody(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	r := startRunWith(t, quicker)
	if err := r.workload.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, stopped := range r.cluster.Routers {
		time.Sleep(time.Second)
		stopped.Stop()
		time.Sleep(quicker["txn.overdue"])
		if err := r.workload.GoesOnAt(t.Context(), r.cluster.Other(stopped), 2*time.Minute); err != nil { // without recovery they never would
			waiting, _ := r.cluster.Waiting(t.Context())
			t.Errorf("while %s is stopped: %v; %s", stopped.Name, err, strings.Join(waiting, "; "))
		}
		stopped.Continue()
	}
	r.finish(t)
	t.Log(r.workload.Summary())
}
