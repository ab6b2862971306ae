package idgen

import (
	"context"
	"sync/atomic"
	"testing"
)

// nextHash steps through the slots evenly, so that no slot is full before all are, and not one after the other: what many keys
// look like on average.
func nextHash(i uint64) uint64 { return i * 0x9E3779B97F4A7C15 }

func BenchmarkNext(b *testing.B) {
	b.Run("keys=many", func(b *testing.B) {
		g := mustNew(b, Config{Number: 1})
		ctx := context.Background()
		b.ReportAllocs()
		for i := uint64(0); b.Loop(); i++ {
			if _, err := g.Next(ctx, nextHash(i)); err != nil {
				b.Fatal(err)
			}
		}
	})
	// One slot makes 32 ids a millisecond: this measures the waiting.
	b.Run("keys=one", func(b *testing.B) {
		g := mustNew(b, Config{Number: 1})
		ctx := context.Background()
		b.ReportAllocs()
		for b.Loop() {
			if _, err := g.Next(ctx, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkNextParallel(b *testing.B) {
	g := mustNew(b, Config{Number: 1})
	ctx := context.Background()
	var workers atomic.Uint64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := workers.Add(1) * 331; pb.Next(); i++ {
			if _, err := g.Next(ctx, nextHash(i)); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkUUID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		NewUUID()
	}
}

func BenchmarkUUIDParallel(b *testing.B) {
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			NewUUID()
		}
	})
}

func BenchmarkBlocks(b *testing.B) {
	blocks := mustBlocks(b, NewMemorySource(1), BlocksConfig{})
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := blocks.Next(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBlocksParallel(b *testing.B) {
	blocks := mustBlocks(b, NewMemorySource(1), BlocksConfig{})
	ctx := context.Background()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := blocks.Next(ctx); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	layout := DefaultLayout()
	var slots int
	for i := int64(0); b.Loop(); i++ {
		slots += layout.Decode(i).Slot
	}
	_ = slots
}
