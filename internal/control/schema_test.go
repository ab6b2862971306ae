package control

import (
	"testing"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestSchemaDiffSaysWhichShardItCouldNotAsk: the others are compared all the same.
func TestSchemaDiffSaysWhichShardItCouldNotAsk(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	servers := pgtest.StartN(t, 3)
	p := startProcess(t, startEtcd(t), nil)
	clusterOf(t, p, servers)
	if findings, err := p.DiffSchema(t.Context()); err != nil || len(findings) > 0 {
		t.Fatalf("%v, %+v", err, findings)
	}
	execute(t, servers[2], "CREATE TABLE public.stray (id int)")
	if err := servers[1].Crash(); err != nil {
		t.Fatal(err)
	}
	findings, err := p.DiffSchema(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"s2": "unreachable", "s3": "table_extra"}
	for _, f := range findings {
		if want[f.Shard] != f.Code || f.Severity != api.Problem {
			t.Errorf("%+v", f)
		}
		delete(want, f.Shard)
	}
	if len(want) > 0 {
		t.Errorf("nothing was found of %v", want)
	}
}
