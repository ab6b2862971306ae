package store

import (
	"testing"

	"github.com/cleavedb/cleave/internal/topology"
)

// TestLargeMap puts a map through that is far above what etcd takes in one request, with the limits as they are.
func TestLargeMap(t *testing.T) {
	ranges, pins := 150_000, 110_000
	if raceDetector { // It makes maps ten times slower, and the path is the same.
		ranges, pins = 50_000, 25_000
	}
	etcd := startMember(t)
	m := next(t, newMap(t, ranges), pinKeys(0, pins))
	w := &wire{}
	s := openStore(t, etcd.endpoints(), w.use)
	if err := s.Create(testContext(t), m); err != nil {
		t.Fatal(err)
	}
	if w.writes < 3 || w.maxOps > 128 || w.maxSize > 3<<19 {
		t.Errorf("the map took %d transactions, the largest of %d operations, of %d bytes", w.writes, w.maxOps, w.maxSize)
	}

	f := follow(t, openStore(t, etcd.endpoints()))
	waitFor(t, f, m)

	for name, change := range map[string]topology.Change{
		"one pin": pinKeys(7_000_000, 1), "one shard": addShard("three"),
	} {
		t.Run(name, func(t *testing.T) {
			w.reset()
			m = swap(t, s, m, change)
			if w.writes != 1 || w.ops > 10 || w.bytes > 200_000 {
				t.Errorf("it took %d transactions of %d operations, %d bytes", w.writes, w.ops, w.bytes)
			}
			waitFor(t, f, m)
		})
	}
}

// TestSwapDuringPagedRead is line 17 of the crash table for a map of so many pieces that they are read in pages.
func TestSwapDuringPagedRead(t *testing.T) {
	etcd := startMember(t)
	m := newMap(t, 25_000)
	if n := len(pieceIDs(m)); n <= piecesPerRead {
		t.Fatalf("%d pieces are not enough", n)
	}
	s := createMap(t, etcd, m)
	got, reads := readWith(t, etcd, 2, func() { replaceAll(t, s, m) })
	if !equalMaps(got, m) || reads != 3 {
		t.Errorf("version %d was read, in %d reads", got.Version(), reads)
	}
}
