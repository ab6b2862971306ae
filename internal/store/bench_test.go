package store

import (
	"testing"

	"github.com/cleavedb/cleave/internal/topology"
)

const benchRanges = 150_000

func BenchmarkStartEmbedded(b *testing.B) {
	needsServers(b)
	for name, fast := range map[string]bool{"fast": true, "durable": false} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				e, err := StartEmbedded(b.Context(), EmbeddedConfig{Dir: b.TempDir(), Fast: fast})
				if err != nil {
					b.Fatal(err)
				}
				e.Close()
			}
		})
	}
}

// benchStore returns a store with a large map in it.
func benchStore(b *testing.B, etcd *member) (*Store, *topology.Map) {
	b.Helper()
	s, m := openStore(b, etcd.endpoints()), newMap(b, benchRanges)
	if err := s.Create(b.Context(), m); err != nil {
		b.Fatal(err)
	}
	return s, m
}

// togglePin is a change in one place.
func togglePin(m *topology.Map, i int) (*topology.Map, error) {
	return m.Next(pinKeys(i%1000, 1))
}

// BenchmarkSwapToFollower is from the call of Swap until a follower has the new map.
func BenchmarkSwapToFollower(b *testing.B) {
	for _, c := range []struct {
		name   string
		ranges int
	}{{"ranges=100", 100}, {"ranges=150000", benchRanges}} {
		b.Run(c.name, func(b *testing.B) {
			etcd := startMember(b)
			s, m := openStore(b, etcd.endpoints()), newMap(b, c.ranges)
			if err := s.Create(b.Context(), m); err != nil {
				b.Fatal(err)
			}
			f, err := openStore(b, etcd.endpoints()).Follow(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			if _, err := f.Wait(b.Context(), m.Version()); err != nil {
				b.Fatal(err)
			}
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				changed, err := togglePin(m, i)
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if err := s.Swap(b.Context(), m, changed); err != nil {
					b.Fatal(err)
				}
				if _, err := f.Wait(b.Context(), changed.Version()); err != nil {
					b.Fatal(err)
				}
				m = changed
			}
		})
	}
}

// BenchmarkReadCold reads and decodes a large map with a store that has seen none of it.
func BenchmarkReadCold(b *testing.B) {
	etcd := startMember(b)
	s, _ := benchStore(b, etcd)
	b.ReportAllocs()
	for b.Loop() {
		s.latest.Store(nil)
		if _, err := s.Map(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReadChange reads a large map of which one place has changed since the last read.
func BenchmarkReadChange(b *testing.B) {
	etcd := startMember(b)
	s, before := benchStore(b, etcd)
	after, err := togglePin(before, 0)
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Swap(b.Context(), before, after); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.latest.Store(before)
		if _, err := s.Map(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
