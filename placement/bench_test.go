package placement_test

import (
	"testing"

	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/placement/key"
)

func benchmarkLookup(b *testing.B, m *placement.Map) {
	b.ReportAllocs()
	sum := 0
	var i uint64
	for b.Loop() {
		i++
		sum += m.Lookup(i * 0x9e3779b97f4a7c15)
	}
	_ = sum
}

// BenchmarkLookup is the hot path: a hash that is known, a map.
func BenchmarkLookup(b *testing.B) {
	b.Run("ring=100x150", func(b *testing.B) {
		benchmarkLookup(b, rangesOf(b, algorithm(b, "ring", placement.Config{}), nil, placement.Numbered("shard-", 100)))
	})
	b.Run("ring=1000x150", func(b *testing.B) {
		benchmarkLookup(b, rangesOf(b, algorithm(b, "ring", placement.Config{}), nil, placement.Numbered("shard-", 1000)))
	})
	b.Run("slots=1024", func(b *testing.B) {
		benchmarkLookup(b, rangesOf(b, algorithm(b, "modulo", placement.Config{}), nil, placement.Numbered("shard-", 100)))
	})
}

func BenchmarkPlace(b *testing.B) {
	for _, info := range placement.Algorithms() {
		b.Run("algorithm="+info.Name, func(b *testing.B) {
			p := keysOf(b, algorithm(b, info.Name, placement.Config{}), placement.Numbered("shard-", 100))
			b.ReportAllocs()
			for i := int64(0); b.Loop(); i++ {
				p.Place(key.HashInt(i, 0))
			}
		})
	}
}
