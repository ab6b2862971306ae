package placement

import "github.com/cleavedb/cleave/placement/key"

// Locator finds the shard of a string key: an algorithm, shards and a hash function put together. It is immutable; when
// shards change, make another.
type Locator struct {
	placer Placer
	shards []Shard
	hash   func(string) uint64
}

// NewLocator returns a locator. A nil hash is PostgreSQL's hash of the text with seed 0; if others choose the keys, take
// one with a secret seed.
func NewLocator(algorithm Algorithm, shards []Shard, hash func(string) uint64) (*Locator, error) {
	placer, err := algorithm.Keys(shards)
	if err != nil {
		return nil, err
	}
	if hash == nil {
		hash = func(k string) uint64 { return key.HashText(k, 0) }
	}
	return &Locator{placer: placer, shards: append([]Shard(nil), shards...), hash: hash}, nil
}

// Locate returns the key's shard.
func (l *Locator) Locate(k string) Shard { return l.shards[l.placer.Place(l.hash(k))] }

// Replicas returns k distinct shards for the key, the one of Locate first, or all shards if there are fewer.
func (l *Locator) Replicas(k string, n int) []Shard {
	numbers := l.placer.Replicas(make([]int, 0, n), l.hash(k), n)
	replicas := make([]Shard, len(numbers))
	for i, number := range numbers {
		replicas[i] = l.shards[number]
	}
	return replicas
}
