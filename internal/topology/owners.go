package topology

import (
	"cmp"
	"slices"
	"sync"

	"github.com/cleavedb/cleave/placement/key"
)

// AppendOwners appends to dst, each once, the shards that own a key whose hash lies between first and last, both included:
// those of the ranges there, and those to which keys with such a hash are pinned. It also says whether anything of it is held.
// The keyspace must be one by hash. Nothing is allocated if dst has room.
func (k *Keyspace) AppendOwners(dst []*Shard, first, last uint64) (owners []*Shard, held bool) {
	for at := first; ; {
		if owner := k.shards[k.hashed.Lookup(at)]; !slices.Contains(dst, owner) {
			dst = append(dst, owner)
		}
		end := k.hashed.RangeOf(at).Hi
		if end == 0 || end > last { // 0 is the end of the space
			break
		}
		at = end
	}
	for i := range k.held {
		r := k.held[i].Hash
		held = held || r.Lo <= last && (r.Hi == 0 || r.Hi > first)
	}
	if k.pins.count == 0 {
		return dst, held
	}
	for _, pin := range k.pinned.between(k, first, last) {
		if owner := k.shards[pin.owner]; !slices.Contains(dst, owner) {
			dst = append(dst, owner)
		}
		held = held || pin.isHeld()
	}
	return dst, held
}

// pinsByHash has a keyspace's pins in the order of their keys' hashes. Most processes never need it, so it is made on demand;
// keyspaces with the same pins share it.
type pinsByHash struct {
	once   sync.Once
	sorted []hashedPin
}

type hashedPin struct {
	hash uint64
	holding
}

// between returns the pins whose keys have a hash between first and last, both included.
func (p *pinsByHash) between(k *Keyspace, first, last uint64) []hashedPin {
	p.once.Do(func() { p.sorted = k.hashPins() })
	from, _ := slices.BinarySearchFunc(p.sorted, first, hashedPin.compare)
	rest := p.sorted[from:]
	for i := range rest {
		if rest[i].hash > last {
			return rest[:i]
		}
	}
	return rest
}

func (h hashedPin) compare(hash uint64) int { return cmp.Compare(h.hash, hash) }

func (k *Keyspace) hashPins() []hashedPin {
	pins := make([]hashedPin, 0, k.pins.count)
	values := make([]key.Value, len(k.types))
	for _, p := range k.pins.pieces {
		for _, e := range p.entries {
			pins = append(pins, hashedPin{k.hash(k.decode(values, e.key)), e.holding})
		}
	}
	slices.SortFunc(pins, func(a, b hashedPin) int { return cmp.Compare(a.hash, b.hash) })
	return pins
}

// decode puts the values of a pinned key into values, which has room for them.
func (k *Keyspace) decode(values []key.Value, encoded string) []key.Value {
	for i, t := range k.types {
		var err error
		if values[i], encoded, err = t.CutOrdered(encoded); err != nil {
			panic(err) // pins are decoded when a map is made
		}
	}
	return values
}

// SameOwners says whether every key has the same owner in two keyspaces of one name, whatever else the maps say of them: who has copies, what is held, how ranges are divided.
func (k *Keyspace) SameOwners(other *Keyspace) bool {
	switch {
	case k == other:
		return true
	case k == nil || other == nil || (k.hashed == nil) != (other.hashed == nil):
		return false
	case k.hashed != nil && len(k.hashed.Diff(other.hashed).Moves) > 0, k.keyed != nil && len(k.keyed.Diff(other.keyed)) > 0:
		return false
	}
	return k.pinsOwnedAlike(other) && other.pinsOwnedAlike(k)
}

// pinsOwnedAlike says whether the keys that are pinned here have the same owner there, pinned or not. What both share is not looked at.
func (k *Keyspace) pinsOwnedAlike(other *Keyspace) bool {
	shared := make(map[*piece[pinEntry]]bool, len(other.pins.pieces))
	for _, p := range other.pins.pieces {
		shared[p] = true
	}
	values := make([]key.Value, len(k.types))
	for _, p := range k.pins.pieces {
		if shared[p] {
			continue
		}
		for _, e := range p.entries {
			if place, err := other.Locate(k.decode(values, e.key)...); err != nil || place.Shard.Name() != k.shards[e.owner].Name() {
				return false
			}
		}
	}
	return true
}
