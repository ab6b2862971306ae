package store

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/cleavedb/cleave/internal/topology"
)

const (
	testCluster  = "0192f0c1-2d3e-7a4b-8c5d-6e7f8a9b0c1d"
	otherCluster = "0192f0c1-2d3e-7a4b-8c5d-6e7f8a9b0c1e"
)

// next returns the map with the changes made.
func next(t testing.TB, m *topology.Map, changes ...topology.Change) *topology.Map {
	t.Helper()
	changed, err := m.Next(changes...)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// newMap returns a map with two shards and a keyspace of the given number of ranges, which take turns.
func newMap(t testing.TB, ranges int) *topology.Map {
	t.Helper()
	return newMapOf(t, testCluster, ranges)
}

// newMapOf is newMap for any cluster, with more changes made at once.
func newMapOf(t testing.TB, cluster string, ranges int, more ...topology.Change) *topology.Map {
	t.Helper()
	m, err := topology.New(cluster)
	if err != nil {
		t.Fatal(err)
	}
	return next(t, m, append([]topology.Change{addShard("one"), addShard("two"), addKeyspace("k", ranges)}, more...)...)
}

func addShard(name string) topology.Change {
	return topology.AddShard(topology.ShardSpec{Name: name, Primary: topology.InstanceSpec{Address: name + ".test:5432"}})
}

func addKeyspace(name string, ranges int) topology.Change {
	spec := topology.NewKeyspaceSpec(name, topology.ByHash, 1, "bigint")
	spec.Ranges = rangesOf(ranges)
	return topology.CreateKeyspace(spec)
}

func rangesOf(n int) []topology.RangeSpec {
	specs := make([]topology.RangeSpec, n)
	for i := range specs {
		if i > 0 {
			specs[i].From = topology.Point{fmt.Sprintf("%016x", uint64(i)*(1<<63/uint64(n)*2))}
		}
		specs[i].Shard = []string{"one", "two"}[i%2]
	}
	return specs
}

// pinKeys pins keys of the keyspace, from first on, to the first shard.
func pinKeys(first, n int) topology.Change {
	pins := make([]topology.PinSpec, n)
	for i := range pins {
		pins[i] = topology.PinSpec{Key: topology.Point{strconv.Itoa(first + i)}, Shard: "one"}
	}
	return topology.SetPins("k", pins...)
}

func pieceIDs(m *topology.Map) map[topology.PieceID]bool {
	ids := map[topology.PieceID]bool{}
	for _, p := range m.Pieces() {
		ids[p.ID] = true
	}
	return ids
}

// equalMaps compares two maps by their stored form, which names all content by digest.
func equalMaps(a, b *topology.Map) bool { return string(a.Manifest()) == string(b.Manifest()) }
