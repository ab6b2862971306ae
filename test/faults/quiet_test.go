package faults_test

import (
	"testing"
	"time"
)

// TestImpatientClients has no faults but clients that give up: nothing of theirs may stay, and others go on.
func TestImpatientClients(t *testing.T) {
	r := startRun(t)
	if err := r.workload.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		time.Sleep(5 * time.Second)
		t.Log(r.workload.Summary())
		if err := r.workload.GoesOn(t.Context()); err != nil {
			t.Error(err)
		}
	}
	r.finish(t)
	t.Log(r.workload.Summary())
}
