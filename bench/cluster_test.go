package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/placement/key"
)

const (
	largeShards = 1000
	largePins   = 1_000_000
)

// largeMap has a thousand shards, a keyspace with 150 ranges for each, one with a million pinned keys, and a table.
func largeMap(b *testing.B, pins int) *topology.Map {
	b.Helper()
	m, err := topology.New("0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c11")
	if err != nil {
		b.Fatal(err)
	}
	next := func(changes ...topology.Change) {
		if m, err = m.Next(changes...); err != nil {
			b.Fatal(err)
		}
	}
	added := make([]topology.Change, largeShards)
	for i := range added {
		added[i] = topology.AddShard(topology.ShardSpec{Name: "shard" + strconv.Itoa(i), Primary: topology.InstanceSpec{Address: fmt.Sprintf("10.0.%d.%d:5432", i/250, i%250)}})
	}
	next(added...)
	users := topology.NewKeyspaceSpec("users", topology.ByHash, 42, "bigint")
	if users.Ranges, users.Assignment, err = m.Assign(topology.Assignment{Algorithm: "ring", VirtualNodes: 150}); err != nil {
		b.Fatal(err)
	}
	tenants := topology.NewKeyspaceSpec("tenants", topology.ByHash, 43, "text")
	tenants.Ranges = []topology.RangeSpec{{Shard: "shard0"}}
	for i := range pins {
		tenants.Pins = append(tenants.Pins, topology.PinSpec{Key: topology.Point{tenant(i)}, Shard: "shard" + strconv.Itoa(i%largeShards)})
	}
	next(topology.CreateKeyspace(users), topology.CreateKeyspace(tenants),
		topology.SetTable(topology.TableSpec{Name: "orders", Kind: topology.Sharded, Keyspace: "users", Key: []string{"user_id"}}))
	return m
}

func tenant(i int) string { return "tenant-" + strconv.Itoa(i) }

// values parses keys beforehand, so that parsing is not measured.
func values(b *testing.B, t key.Type, text func(int) string) []key.Value {
	b.Helper()
	parsed := make([]key.Value, 4096)
	for i := range parsed {
		var err error
		if parsed[i], err = t.Parse(text(i)); err != nil {
			b.Fatal(err)
		}
	}
	return parsed
}

// BenchmarkMapLookup finds the shard of a row: the table by its name, then the key among 150,000 ranges. Beside it what
// anybody would write at first, a map of tables and a binary search, and the bare ranges without table and checks.
func BenchmarkMapLookup(b *testing.B) {
	m := largeMap(b, 0)
	users := values(b, key.Bigint, func(i int) string { return strconv.Itoa(i * 7919) })
	b.Run("impl=cleave", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			place, err := m.Table("public", "orders").Keyspace().Locate(users[i&4095])
			if err != nil || place.Shard == nil {
				b.Fatal(err)
			}
		}
	})
	ranges := m.Keyspace("users").Hashes()
	b.Run("impl=bare-ranges", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			_ = ranges.Lookup(users[i&4095].Hash(42))
		}
	})
	tables := map[string]*simpleRanges{"public.orders": newSimpleRanges(ranges)}
	b.Run("impl=binary-search", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			_ = tables["public.orders"].find(users[i&4095].Hash(42))
		}
	})
}

type simpleRanges struct {
	starts []uint64
	owners []string
}

func newSimpleRanges(m *placement.Map) *simpleRanges {
	s := &simpleRanges{}
	for r := range m.All() {
		s.starts, s.owners = append(s.starts, r.Lo), append(s.owners, r.Owner)
	}
	return s
}

func (s *simpleRanges) find(hash uint64) string {
	at, exact := slices.BinarySearch(s.starts, hash)
	if !exact {
		at--
	}
	return s.owners[at]
}

// BenchmarkPinLookup finds a pinned key among a million, beside a Go map that would have to be copied to be changed.
func BenchmarkPinLookup(b *testing.B) {
	m := largeMap(b, largePins)
	keyspace := m.Keyspace("tenants")
	tenants := values(b, key.Text, func(i int) string { return tenant(i * 241) })
	b.Run("impl=cleave", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if place, err := keyspace.Locate(tenants[i&4095]); err != nil || !place.Pinned {
				b.Fatal(err)
			}
		}
	})
	pins := make(map[string]*topology.Shard, largePins)
	for pin := range keyspace.Pins() {
		pins[pin.Encoded] = pin.Owner
	}
	b.Run("impl=go-map", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			var buffer [64]byte
			if pins[string(tenants[i&4095].AppendOrdered(buffer[:0]))] == nil {
				b.Fatal("not found")
			}
		}
	})
}

// BenchmarkMapRead reads a map with 150,000 ranges from etcd and builds it, cold and after a change in one place; beside it the
// same map as one JSON text in memory, read by the standard library and thrown away.
func BenchmarkMapRead(b *testing.B) {
	m := largeMap(b, 0)
	endpoints := startEtcd(b)
	writer := openStore(b, endpoints)
	if err := writer.Create(b.Context(), m); err != nil {
		b.Fatal(err)
	}
	b.Run("impl=cleave-cold", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			reader := openStore(b, endpoints)
			b.StartTimer()
			if _, err := reader.Map(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("impl=cleave-changed", func(b *testing.B) {
		reader := openStore(b, endpoints)
		if _, err := reader.Map(b.Context()); err != nil {
			b.Fatal(err)
		}
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			if _, err := writer.Update(b.Context(), func(m *topology.Map) (*topology.Map, error) {
				return m.Next(topology.SetPins("tenants", topology.PinSpec{Key: topology.Point{tenant(i)}, Shard: "shard1"}))
			}); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			if _, err := reader.Map(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	document, err := json.Marshal(m.Document())
	if err != nil {
		b.Fatal(err)
	}
	b.Run("impl=json-in-memory", func(b *testing.B) {
		for b.Loop() {
			var d topology.Document
			if err := json.Unmarshal(document, &d); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkStart starts an etcd in the process until it serves, beside a PostgreSQL server until it does.
func BenchmarkStart(b *testing.B) {
	for name, fast := range map[string]bool{"impl=cleave-etcd-durable": false, "impl=cleave-etcd-fast": true} {
		b.Run(name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				e, err := store.StartEmbedded(b.Context(), store.EmbeddedConfig{Dir: filepath.Join(b.TempDir(), strconv.Itoa(i)), Fast: fast})
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				e.Close()
				b.StartTimer()
			}
		})
	}
	b.Run("impl=postgres", func(b *testing.B) {
		server := pgtest.Start(b)
		for b.Loop() {
			b.StopTimer()
			if err := server.Stop(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			if err := server.Restart(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func startEtcd(b *testing.B) []string {
	b.Helper()
	dir, err := os.MkdirTemp("", "cleave-bench-")
	if err != nil {
		b.Fatal(err)
	}
	e, err := store.StartEmbedded(b.Context(), store.EmbeddedConfig{Dir: dir, Fast: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		e.Close()
		_ = os.RemoveAll(dir)
	})
	return e.Endpoints()
}

func openStore(b *testing.B, endpoints []string) *store.Store {
	b.Helper()
	s, err := store.Open(store.Config{Endpoints: endpoints})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s
}
