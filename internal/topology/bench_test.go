package topology

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/cleavedb/cleave/placement/key"
)

// BenchmarkLookup finds the shard of a row: its table by name, then its key, hashing included.
func BenchmarkLookup(b *testing.B) {
	m := largeMap(b, 1_000_000)
	users := make([]key.Value, 4096)
	tenants := make([]key.Value, 4096)
	for i := range users {
		users[i] = bigint(b, strconv.Itoa(i*7919))
		tenants[i] = must[key.Value](b)(key.Text.Parse(fmt.Sprintf("tenant-%d", i*241)))
	}
	b.Run("table", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m.Table("public", "orders")
		}
	})
	b.Run("ranges=150000", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			_, _ = m.Table("public", "orders").Keyspace().Locate(users[i&4095])
			i++
		}
	})
	b.Run("pins=1000000", func(b *testing.B) {
		b.ReportAllocs()
		k := m.Keyspace("tenants")
		i := 0
		for b.Loop() {
			_, _ = k.Locate(tenants[i&4095])
			i++
		}
	})
}

// BenchmarkAssemble builds a map from its stored pieces: whole, and on top of the version before.
func BenchmarkAssemble(b *testing.B) {
	for _, pins := range []int{0, 1_000_000} {
		m := largeMap(b, pins)
		next := must[*Map](b)(m.Next(UpdateShard("s5", func(s *ShardSpec) { s.Weight = 2 })))
		s := newPieceStore()
		s.put(m)
		s.put(next)
		for name, previous := range map[string]*Map{"whole": nil, "change": m} {
			b.Run(fmt.Sprintf("%s/ranges=150000/pins=%d", name, pins), func(b *testing.B) {
				for b.Loop() {
					assemble(b, s, next.Manifest(), previous)
				}
			})
		}
	}
}

// BenchmarkChange makes the next version of a large map.
func BenchmarkChange(b *testing.B) {
	m := largeMap(b, 1_000_000)
	b.Run("pin", func(b *testing.B) {
		for b.Loop() {
			must[*Map](b)(m.Next(SetPins("tenants", PinSpec{Key: Point{"tenant-1234"}, Shard: "s9"})))
		}
	})
}
