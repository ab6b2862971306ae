package bench

import (
	"strconv"
	"testing"

	"github.com/dgryski/go-jump"
	"github.com/dgryski/go-rendezvous"
	"github.com/golang/groupcache/consistenthash"
	"github.com/serialx/hashring"
	"github.com/stathat/consistent"
	"github.com/zeromicro/go-zero/core/hash"

	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/placement/key"
)

const (
	shardCount   = 100
	virtualNodes = 150
	keyMask      = 1<<16 - 1
)

// textKeys are made beforehand, so that making them is not measured.
var textKeys = func() []string {
	keys := make([]string, keyMask+1)
	for i := range keys {
		keys[i] = "user:" + strconv.Itoa(i)
	}
	return keys
}()

func serverNames() []string {
	names := make([]string, shardCount)
	for i := range names {
		names[i] = "server-" + strconv.Itoa(i)
	}
	return names
}

func mapBy(b *testing.B, algorithm string) *placement.Map {
	b.Helper()
	a, err := placement.New(algorithm, placement.Config{VirtualNodes: virtualNodes})
	if err != nil {
		b.Fatal(err)
	}
	m, err := a.Ranges(nil, placement.Named(serverNames()...))
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// locate measures from the text of a key to the shard: hash and look-up.
func locate(b *testing.B, impl string, lookup func(k string) string) {
	b.Run("impl="+impl, func(b *testing.B) {
		b.ReportAllocs()
		length := 0
		for i := 0; b.Loop(); i++ {
			length += len(lookup(textKeys[i&keyMask]))
		}
		sink = length
	})
}

// sink keeps results in use, so that no compiler leaves out what makes them.
var sink int

// peer is somebody else's way from a text key to a server.
type peer struct {
	name   string
	lookup func(k string) string
}

// peers have 150 virtual nodes a server where they are rings; serialx has its own number of them. Jump and rendezvous get
// the same hash function as ours; the others bring one.
func peers() []peer {
	names := serverNames()
	hrw := rendezvous.New(names, func(s string) uint64 { return key.HashText(s, 0) })
	groupcache := consistenthash.New(virtualNodes, nil)
	groupcache.Add(names...)
	serialx := hashring.New(names)
	stathat := consistent.New()
	stathat.NumberOfReplicas = virtualNodes
	stathat.Set(names)
	zero := hash.NewCustomConsistentHash(virtualNodes, hash.Hash)
	for _, name := range names {
		zero.Add(name)
	}
	return []peer{
		{"go-jump", func(k string) string { return names[jump.Hash(key.HashText(k, 0), shardCount)] }},
		{"go-rendezvous", hrw.Lookup},
		{"groupcache", groupcache.Get},
		{"serialx", func(k string) string { name, _ := serialx.GetNode(k); return name }},
		{"stathat", func(k string) string { name, _ := stathat.Get(k); return name }},
		{"go-zero", func(k string) string { name, _ := zero.Get(k); return name.(string) }},
	}
}

// BenchmarkLocate compares ways from a text key to one of 100 servers. Ours are a ring of 150 virtual nodes a server, and
// 1,024 even slots dealt out in turn, so that every slot is a range of its own.
func BenchmarkLocate(b *testing.B) {
	ring, slots := mapBy(b, "ring"), mapBy(b, "modulo")
	names := serverNames()
	locate(b, "cleave-ring", func(k string) string { return names[ring.Lookup(key.HashText(k, 0))] })
	locate(b, "cleave-slots", func(k string) string { return names[slots.Lookup(key.HashText(k, 0))] })
	for _, p := range peers() {
		locate(b, p.name, p.lookup)
	}
}

// BenchmarkLocateHashed leaves the hashing out: from a hash to the shard.
func BenchmarkLocateHashed(b *testing.B) {
	hashed := func(impl string, lookup func(h uint64) int) {
		b.Run("impl="+impl, func(b *testing.B) {
			b.ReportAllocs()
			sum := 0
			for i := uint64(0); b.Loop(); i++ {
				sum += lookup(i * 0x9e3779b97f4a7c15)
			}
			sink = sum
		})
	}
	ring, slots := mapBy(b, "ring"), mapBy(b, "modulo")
	hashed("cleave-ring", ring.Lookup)
	hashed("cleave-slots", slots.Lookup)
	hashed("go-jump", func(h uint64) int { return int(jump.Hash(h, shardCount)) })
}

// TestPeersAreUsedRight: a peer that always gives one server would be fast for the wrong reason.
func TestPeersAreUsedRight(t *testing.T) {
	for _, p := range peers() {
		seen := map[string]bool{}
		for _, k := range textKeys {
			seen[p.lookup(k)] = true
		}
		if len(seen) < shardCount*9/10 {
			t.Errorf("%s uses %d of %d servers", p.name, len(seen), shardCount)
		}
	}
}
