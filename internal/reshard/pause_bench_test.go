package reshard

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/cleavedb/cleave/internal/topology"
)

// BenchmarkPause is what a process works out while statements are held, for a move in a cluster of a thousand shards with 150,000 ranges and a million pins: the maps that are published. What shards record is in package shard, and what
// etcd and the servers take comes on top of it.
func BenchmarkPause(b *testing.B) {
	now := thousandShards(b)
	for name, move := range map[string]*Move{
		"pin":    {Keyspace: "main", Source: "s1", Target: "s2", Pins: []topology.Point{{"-1000"}}},
		"ranges": {Keyspace: "main", Source: "s1", Target: "s2", Ranges: rangesOf(now, "s1")},
	} {
		b.Run(name, func(b *testing.B) {
			step := func(from *topology.Map, next mark) *topology.Map {
				to, err := from.Next(append(move.changes(next), asks(from.Version()+1, []string{move.Source, move.Target})...)...)
				if err != nil {
					b.Fatal(err)
				}
				return to
			}
			c := move.course()
			announced := step(now, c.announced())
			b.ResetTimer()
			for b.Loop() {
				m := announced
				for _, next := range []mark{c.holding(), c.closed(), c.turned()} {
					if _, alike, err := move.marked(m); err != nil || !alike {
						b.Fatal(alike, err)
					}
					m = step(m, next)
				}
			}
		})
	}
}

func rangesOf(m *topology.Map, owner string) (ranges []Range) {
	for _, r := range m.Keyspace("main").Spec().Ranges {
		if r.Shard == owner {
			ranges = append(ranges, Range{From: r.From, To: r.To})
		}
	}
	return ranges
}

func thousandShards(b *testing.B) *topology.Map {
	b.Helper()
	m, err := topology.New("00000000-0000-4000-8000-000000000000")
	if err != nil {
		b.Fatal(err)
	}
	next := func(changes ...topology.Change) {
		if m, err = m.Next(changes...); err != nil {
			b.Fatal(err)
		}
	}
	var shards []topology.Change
	for i := range 1000 {
		shards = append(shards, topology.AddShard(topology.ShardSpec{Name: "s" + strconv.Itoa(i+1), Primary: topology.InstanceSpec{Address: fmt.Sprintf("host:%d", i+1)}}))
	}
	next(shards...)
	main := topology.NewKeyspaceSpec("main", topology.ByHash, 7, "bigint")
	if main.Ranges, main.Assignment, err = m.Assign(topology.Assignment{Algorithm: "ring", VirtualNodes: 150}); err != nil {
		b.Fatal(err)
	}
	next(topology.CreateKeyspace(main), topology.SetTable(topology.TableSpec{Name: "public.t", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"}}))
	pins := make([]topology.PinSpec, 1_000_000)
	for i := range pins {
		pins[i] = topology.PinSpec{Key: topology.Point{strconv.Itoa(-i)}, Shard: "s" + strconv.Itoa(i%1000+1)}
	}
	next(topology.SetPins("main", pins...))
	return m
}
