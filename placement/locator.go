package placement

import (
	"slices"

	"github.com/cleavedb/cleave/placement/key"
)

// Locator finds the shard of a string key: a placer, its shards and a hash function put together. It is immutable; when
// shards change, make another.
type Locator struct {
	placer Placer
	shards []Shard
	hash   func(string) uint64
}

// NewLocator returns a locator over a placer and the shards that it was made for. The placer is what an algorithm's Keys
// gave, or a map: for an algorithm that remembers, take the map that Ranges made from the map before, or every change
// of shards starts from nothing and moves far more than it needs to.
//
// A nil hash is PostgreSQL's hash of the text with seed 0; if others choose the keys, take one with a secret seed.
func NewLocator(placer Placer, shards []Shard, hash func(string) uint64) *Locator {
	if hash == nil {
		hash = func(k string) uint64 { return key.HashText(k, 0) }
	}
	return &Locator{placer: placer, shards: slices.Clone(shards), hash: hash}
}

// Locate returns the key's shard.
func (l *Locator) Locate(k string) Shard { return l.shards[l.placer.Place(l.hash(k))] }

// Replicas returns n distinct shards for the key, the one of Locate first, or as many as there are.
func (l *Locator) Replicas(k string, n int) []Shard {
	numbers := l.placer.Replicas(nil, l.hash(k), n)
	replicas := make([]Shard, len(numbers))
	for i, number := range numbers {
		replicas[i] = l.shards[number]
	}
	return replicas
}
