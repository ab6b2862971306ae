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
func locate(b *testing.B, impl string, lookup func(k string)) {
	b.Run("impl="+impl, func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			lookup(textKeys[i&keyMask])
		}
	})
}

// BenchmarkLocate compares ways from a text key to one of 100 servers. Ours are a ring of 150 virtual nodes a server, the
// same rendezvous, and 1,024 even slots dealt out in turn, so that every slot is a range of its own.
func BenchmarkLocate(b *testing.B) {
	ring, slots := mapBy(b, "ring"), mapBy(b, "modulo")
	locate(b, "cleave-ring", func(k string) { ring.Lookup(key.HashText(k, 0)) })
	locate(b, "cleave-slots", func(k string) { slots.Lookup(key.HashText(k, 0)) })

	locate(b, "go-jump", func(k string) { jump.Hash(key.HashText(k, 0), shardCount) })

	hrw := rendezvous.New(serverNames(), func(s string) uint64 { return key.HashText(s, 0) })
	locate(b, "go-rendezvous", func(k string) { hrw.Lookup(k) })

	groupcache := consistenthash.New(virtualNodes, nil)
	groupcache.Add(serverNames()...)
	locate(b, "groupcache", func(k string) { groupcache.Get(k) })

	serialx := hashring.New(serverNames())
	locate(b, "serialx", func(k string) { serialx.GetNode(k) })

	stathat := consistent.New()
	stathat.NumberOfReplicas = virtualNodes
	stathat.Set(serverNames())
	locate(b, "stathat", func(k string) { _, _ = stathat.Get(k) })

	zero := hash.NewCustomConsistentHash(virtualNodes, hash.Hash)
	for _, name := range serverNames() {
		zero.Add(name)
	}
	locate(b, "go-zero", func(k string) { zero.Get(k) })
}

// BenchmarkLocateHashed leaves the hashing out: from a hash to the shard.
func BenchmarkLocateHashed(b *testing.B) {
	hashed := func(impl string, lookup func(h uint64)) {
		b.Run("impl="+impl, func(b *testing.B) {
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				lookup(i * 0x9e3779b97f4a7c15)
			}
		})
	}
	ring, slots := mapBy(b, "ring"), mapBy(b, "modulo")
	hashed("cleave-ring", func(h uint64) { ring.Lookup(h) })
	hashed("cleave-slots", func(h uint64) { slots.Lookup(h) })
	hashed("go-jump", func(h uint64) { jump.Hash(h, shardCount) })
}

// TestPeersAreUsedRight: a peer that always gives one server would be fast for the wrong reason.
func TestPeersAreUsedRight(t *testing.T) {
	groupcache := consistenthash.New(virtualNodes, nil)
	groupcache.Add(serverNames()...)
	serialx := hashring.New(serverNames())
	hrw := rendezvous.New(serverNames(), func(s string) uint64 { return key.HashText(s, 0) })
	seen := [3]map[string]bool{{}, {}, {}}
	for _, k := range textKeys {
		seen[0][groupcache.Get(k)] = true
		node, _ := serialx.GetNode(k)
		seen[1][node] = true
		seen[2][hrw.Lookup(k)] = true
	}
	for i, servers := range seen {
		if len(servers) < shardCount*9/10 {
			t.Errorf("peer %d uses %d of %d servers", i, len(servers), shardCount)
		}
	}
}
