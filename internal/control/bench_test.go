package control

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/reshard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// BenchmarkPlanning plans for 1,000 shards with 150,000 ranges, some 25,000 of which move: from the request to the kept plan, with all shards measured, which are one server here. It stands beside reading that map from etcd, as a process does that
// has seen nothing yet, and beside measuring alone. BenchmarkApplying asks for the moves of such a plan.
func BenchmarkPlanning(b *testing.B) {
	l := newPlanningLab(b)
	b.Run("shards=1000/ranges=150000/impl=cleave", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			l.begin(b)
			b.StartTimer()
			l.plan(b)
		}
	})
	b.Run("shards=1000/ranges=150000/impl=measuring", func(b *testing.B) {
		l.begin(b)
		for b.Loop() {
			if _, silent, err := l.measure(b.Context(), l.m); err != nil || len(silent) > 0 {
				b.Fatal(err, silent)
			}
		}
	})
	b.Run("shards=1000/ranges=150000/impl=reading", l.read)
}

func BenchmarkApplying(b *testing.B) {
	l := newPlanningLab(b)
	b.Run("shards=1000/ranges=150000/impl=cleave", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			l.begin(b)
			plan := l.plan(b)
			b.StartTimer()
			list, err := l.ApplyRebalance(b.Context(), plan.ID)
			if err != nil || len(list.Moves) != len(plan.Moves) {
				b.Fatal(err, len(list.Moves))
			}
		}
	})
	b.Run("shards=1000/ranges=150000/impl=reading", l.read)
}

// planningLab is a cluster that is large, and has nothing but its map.
type planningLab struct {
	*Cluster
	endpoints []string
	prefix    string
	m         *topology.Map
}

func newPlanningLab(b *testing.B) *planningLab {
	b.Helper()
	server := pgtest.Start(b)
	l := &planningLab{endpoints: startEtcd(b)}
	l.m, _ = largeCluster(b, 1000, 150_000)
	var there []topology.Change
	for _, name := range []string{"orders", "users"} {
		execute(b, server, "CREATE TABLE "+name+" (id bigint PRIMARY KEY, note text); INSERT INTO "+name+" SELECT n, repeat('x', 100) FROM generate_series(1, 10000) n; ANALYZE "+name)
		there = append(there, topology.SetTable(topology.TableSpec{Name: "public." + name, Kind: topology.Sharded, Keyspace: name, Key: []string{"id"}}))
	}
	for s := range l.m.Shards() {
		address := entrance(b, s.Number(), server.Addr())
		there = append(there, topology.UpdateShard(s.Name(), func(spec *topology.ShardSpec) { spec.Primary.Address = address }))
	}
	var err error
	if l.m, err = l.m.Next(there...); err != nil {
		b.Fatal(err)
	}
	l.begin(b)
	return l
}

// entrance is another address of a server: no two shards of a map may have the same.
func entrance(b *testing.B, number int, server string) string {
	b.Helper()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.1.%d.%d:0", number/250, 1+number%250))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // it is closed
			}
			go func() {
				defer client.Close()
				backend, err := net.Dial("tcp", server)
				if err != nil {
					return
				}
				defer backend.Close()
				go func() { _, _ = io.Copy(backend, client) }()
				_, _ = io.Copy(client, backend)
			}()
		}
	}()
	return listener.Addr().String()
}

// begin has nobody know of any plan or move.
func (l *planningLab) begin(b *testing.B) {
	b.Helper()
	l.prefix = "/" + reshard.NewID() + "/"
	l.Cluster = operationsUnder(b, l.endpoints, l.prefix)
	if err := l.config.Store.Create(b.Context(), l.m); err != nil {
		b.Fatal(err)
	}
}

func (l *planningLab) plan(b *testing.B) api.RebalancePlan {
	b.Helper()
	plan, err := l.PlanRebalance(b.Context(), api.PlanRebalance{})
	if err != nil || len(plan.Moves) < 500 || len(plan.Warnings) > 0 {
		b.Fatal(err, len(plan.Moves), plan.Warnings)
	}
	return plan
}

func (l *planningLab) read(b *testing.B) {
	for b.Loop() {
		s, err := store.Open(store.Config{Endpoints: l.endpoints, Prefix: l.prefix, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Map(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
