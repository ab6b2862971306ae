package faults_test

import (
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestImpatientClients has no faults but clients that give up: nothing of theirs may stay, and others go on.
func TestImpatientClients(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	r := startRun(t)
	if err := r.workload.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Second)
	r.finish(t)
	t.Log(r.workload.Summary())
}
