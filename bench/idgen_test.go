package bench

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/bwmarrin/snowflake"
	"github.com/google/uuid"
	"github.com/rs/xid"

	"github.com/cleavedb/cleave/idgen"
)

// The benchmarks of package idgen. b.N ids are shared out between the goroutines, so ns/op is the time that passed divided by
// all ids, and less is better. All goroutines share one maker, as in a process.
//
// The kinds:
//   - snowflake: 63-bit ids, for rows of many keys. bwmarrin's default layout makes at most 4,096 ids a millisecond
//     (244 ns each), whatever the number of keys; ours makes 32 for each of 1,024 slots.
//   - snowflake-one-key: all rows have the same key, so ours makes at most 32 ids a millisecond (31,250 ns each). It is the worst
//     case of the layout, not of the code.
//   - snowflake-same-bits: ours with bwmarrin's bits, no slot and 12 of sequence. Both are held up by the layout; one
//     sleeps until the next millisecond, the other spins.
//   - uuid7: UUIDs of version 7. xid, with 12 bytes and no random bits, stands for ids that are sortable and made
//     without coordination.
func BenchmarkIDs(b *testing.B) {
	for _, kind := range []struct {
		name   string
		makers []idMaker
	}{
		{"snowflake", []idMaker{
			{"cleave", func(b *testing.B) func(uint64) { return cleaveSnowflake(b, idgen.LayoutConfig{}) }},
			{"bwmarrin", bwmarrinSnowflake},
		}},
		{"snowflake-one-key", []idMaker{
			{"cleave", func(b *testing.B) func(uint64) {
				next := cleaveSnowflake(b, idgen.LayoutConfig{})
				return func(uint64) { next(0) }
			}},
			{"bwmarrin", bwmarrinSnowflake},
		}},
		{"snowflake-same-bits", []idMaker{
			{"cleave", func(b *testing.B) func(uint64) {
				return cleaveSnowflake(b, idgen.LayoutConfig{TimeBits: 41, GeneratorBits: 10, SequenceBits: 12})
			}},
			{"bwmarrin", bwmarrinSnowflake},
		}},
		{"uuid7", []idMaker{
			{"cleave", func(*testing.B) func(uint64) { return func(uint64) { idgen.NewUUID() } }},
			{"google", googleUUID},
			{"google-pool", googleUUIDPool},
			{"xid", func(*testing.B) func(uint64) { return func(uint64) { xid.New() } }},
		}},
	} {
		for _, goroutines := range []int{1, 2, 8} {
			for _, maker := range kind.makers {
				name := "kind=" + kind.name + "/goroutines=" + strconv.Itoa(goroutines) + "/impl=" + maker.name
				b.Run(name, func(b *testing.B) { benchmarkIDs(b, goroutines, maker.start(b)) })
			}
		}
	}
}

// idMaker is something that makes ids. What start returns makes one for a row whose key has the hash.
type idMaker struct {
	name  string
	start func(b *testing.B) func(hash uint64)
}

func benchmarkIDs(b *testing.B, goroutines int, next func(hash uint64)) {
	b.ReportAllocs()
	var group sync.WaitGroup
	for worker := range goroutines {
		share := b.N / goroutines
		if worker < b.N%goroutines {
			share++
		}
		group.Go(func() {
			for i := range share {
				// Fibonacci hashing: through all slots evenly, and not one after the other.
				next(uint64(worker*331+i) * 0x9E3779B97F4A7C15)
			}
		})
	}
	group.Wait()
}

func cleaveSnowflake(b *testing.B, config idgen.LayoutConfig) func(uint64) {
	layout, err := idgen.NewLayout(config)
	if err != nil {
		b.Fatal(err)
	}
	generator, err := idgen.New(idgen.Config{Layout: layout, Number: 1})
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	return func(hash uint64) {
		if _, err := generator.Next(ctx, hash); err != nil {
			b.Error(err)
		}
	}
}

func bwmarrinSnowflake(b *testing.B) func(uint64) {
	node, err := snowflake.NewNode(1)
	if err != nil {
		b.Fatal(err)
	}
	return func(uint64) { node.Generate() }
}

func googleUUID(b *testing.B) func(uint64) {
	return func(uint64) {
		if _, err := uuid.NewV7(); err != nil {
			b.Error(err)
		}
	}
}

// googleUUIDPool is the same with randomness fetched in advance, which that package offers as a choice.
func googleUUIDPool(b *testing.B) func(uint64) {
	uuid.EnableRandPool()
	b.Cleanup(uuid.DisableRandPool)
	return googleUUID(b)
}
