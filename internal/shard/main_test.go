package shard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	clusterID = "0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c11"
	otherID   = "7a1c2d3e-0000-4a56-9d0c-3f6a1f3b7c99"
)

func must[T any](t testing.TB) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// specOf describes a shard on the server.
func specOf(name string, s *localpg.Server) topology.ShardSpec {
	return topology.ShardSpec{
		Name: name, Primary: topology.InstanceSpec{Address: s.Addr()}, Database: "postgres", User: s.Superuser(), SSLMode: "disable",
		Weight: 1.5, Labels: map[string]string{"region": "eu"},
	}
}

// connect logs in as the control plane would.
func connect(t testing.TB, spec topology.ShardSpec) *pgx.Conn {
	t.Helper()
	conn := must[*pgx.Conn](t)(Access{}.Connect(t.Context(), spec))
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func execute(t testing.TB, conn *pgx.Conn, sql string, arguments ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, arguments...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func one[T any](t testing.TB, conn *pgx.Conn, sql string, arguments ...any) (value T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql, arguments...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// cluster is a map and connections to its shards, named s1, s2 …
type cluster struct {
	m       *topology.Map
	servers []*localpg.Server
	conns   []*pgx.Conn
}

// newCluster starts servers and adds each as a shard the way package control does, up to the record.
func newCluster(t testing.TB, count int) *cluster {
	t.Helper()
	c := &cluster{m: must[*topology.Map](t)(topology.New(clusterID)), servers: pgtest.StartN(t, count)}
	for i, server := range c.servers {
		spec := specOf(fmt.Sprintf("s%d", i+1), server)
		conn := connect(t, spec)
		c.conns = append(c.conns, conn)
		prepare(t, conn, spec, c.m)
		c.change(t, topology.AddShard(spec))
	}
	return c
}

// prepare installs and claims.
func prepare(t testing.TB, conn *pgx.Conn, spec topology.ShardSpec, m *topology.Map) {
	t.Helper()
	if _, _, err := Install(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	if err := Claim(t.Context(), conn, m.Cluster(), spec, m); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) change(t testing.TB, changes ...topology.Change) {
	t.Helper()
	c.m = must[*topology.Map](t)(c.m.Next(changes...))
}

func shardName(i int) string { return fmt.Sprintf("s%d", i+1) }

func (c *cluster) record(t testing.TB) {
	t.Helper()
	for i, conn := range c.conns {
		if _, err := Record(t.Context(), conn, c.m, shardName(i)); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *cluster) read(t testing.TB) []*Recorded {
	t.Helper()
	records := make([]*Recorded, len(c.conns))
	for i, conn := range c.conns {
		records[i] = must[*Recorded](t)(Read(t.Context(), conn))
	}
	return records
}

// hashAt is the place in the hash space that begins with these digits.
func hashAt(digits string) topology.Point {
	return topology.Point{digits + strings.Repeat("0", 16-len(digits))}
}

// hashKeyspace has ranges of the hash for all shards.
func (c *cluster) hashKeyspace(t testing.TB, name string) topology.Change {
	t.Helper()
	spec := topology.NewKeyspaceSpec(name, topology.ByHash, -42, "bigint", "text")
	var err error
	if spec.Ranges, spec.Assignment, err = c.m.Assign(topology.Assignment{Algorithm: "ring", VirtualNodes: 8}); err != nil {
		t.Fatal(err)
	}
	return topology.CreateKeyspace(spec)
}

// codes returns the findings' codes with their severity and shard, sorted.
func codes(findings []api.Finding) []string {
	all := make([]string, 0, len(findings))
	for _, f := range findings {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s", f.Severity, f.Code, f.Shard)))
	}
	slices.Sort(all)
	return all
}

// expectCodes wants exactly these findings.
func expectCodes(t testing.TB, findings []api.Finding, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := codes(findings); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q:\n%v", got, want, findings)
	}
	for _, f := range findings {
		if f.Message == "" || f.Hint == "" {
			t.Errorf("%s has no message or no hint", f.Code)
		}
	}
}
