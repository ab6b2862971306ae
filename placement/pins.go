package placement

import (
	"iter"

	"github.com/cleavedb/cleave/placement/key"
)

// Pins say of single keys that they go elsewhere than their range says: the lookup strategy, over any other. A keyspace
// of tenants may pin every one of them; a schema-per-tenant keyspace pins schema names. It is immutable, and a change
// copies one bucket of keys, not all of them, so a million pins stay cheap to change one by one. The zero value is empty.
type Pins struct {
	buckets []map[string]string
	count   int
}

// pinBuckets keeps a bucket at a thousand keys or so when there are a million.
const pinBuckets = 1024

// NewPins makes pins of encoded key to shard name.
func NewPins(pins map[string]string) Pins {
	p := Pins{buckets: make([]map[string]string, pinBuckets), count: len(pins)}
	for k, shard := range pins {
		b := bucketOf(k)
		if p.buckets[b] == nil {
			p.buckets[b] = make(map[string]string)
		}
		p.buckets[b][k] = shard
	}
	return p
}

func bucketOf(encoded string) int {
	return int(key.HashText(encoded, 0) % pinBuckets)
}

// Lookup returns the shard that the encoded key is pinned to.
func (p Pins) Lookup(encoded string) (shard string, pinned bool) {
	if p.count == 0 {
		return "", false
	}
	shard, pinned = p.buckets[bucketOf(encoded)][encoded]
	return shard, pinned
}

// Len returns how many keys are pinned.
func (p Pins) Len() int { return p.count }

// All iterates over the pins in no particular order.
func (p Pins) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, bucket := range p.buckets {
			for k, shard := range bucket {
				if !yield(k, shard) {
					return
				}
			}
		}
	}
}

// With returns pins in which the encoded key goes to the shard.
func (p Pins) With(encoded, shard string) Pins {
	next, bucket := p.copyBucket(encoded)
	if _, had := bucket[encoded]; !had {
		next.count++
	}
	bucket[encoded] = shard
	return next
}

// Without returns pins in which the encoded key goes where its range says.
func (p Pins) Without(encoded string) Pins {
	if _, had := p.Lookup(encoded); !had {
		return p
	}
	next, bucket := p.copyBucket(encoded)
	next.count--
	delete(bucket, encoded)
	return next
}

// copyBucket returns pins that share all buckets but the key's, which is a copy of its own.
func (p Pins) copyBucket(encoded string) (Pins, map[string]string) {
	next := Pins{buckets: make([]map[string]string, pinBuckets), count: p.count}
	copy(next.buckets, p.buckets)
	b := bucketOf(encoded)
	bucket := make(map[string]string, len(next.buckets[b])+1)
	for k, shard := range next.buckets[b] {
		bucket[k] = shard
	}
	next.buckets[b] = bucket
	return next, bucket
}
