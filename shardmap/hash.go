package shardmap

import (
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"unsafe"
)

// A hash is cut into three pieces that do not overlap, so that which shard a
// key is in says nothing about where in the shard it is:
//
//	bits  0–15  shard
//	bits 32–56  bucket
//	bits 57–63  tag
//
// A shard of more than 2²⁵ buckets takes bits of the tag as well, which makes the
// tag say less there and nothing wrong.
const (
	bucketShift = 32
	tagShift    = 57
)

// goldenRatio is 2⁶⁴ divided by the golden ratio, a good multiplier.
const goldenRatio = 0x9e3779b97f4a7c15

// hashing turns keys into hashes. It is fixed when a map is made.
type hashing[K comparable] struct {
	kind   keyKind
	xor    uint64
	mul    uint64
	seed   maphash.Seed
	custom func(K) uint64
}

// keyKind says which way of hashing fits the key's type.
type keyKind uint8

const (
	anyKey     keyKind = iota
	wordKey            // an integer of 64 bits
	integerKey         // a smaller one
	customKey
)

func newHashing[K comparable](custom func(K) uint64) hashing[K] {
	return hashing[K]{
		kind:   keyKindOf[K](custom),
		xor:    rand.Uint64(),
		mul:    rand.Uint64() | 1<<63 | 1,
		seed:   maphash.MakeSeed(),
		custom: custom,
	}
}

func keyKindOf[K comparable](custom func(K) uint64) keyKind {
	if custom != nil {
		return customKey
	}
	t := reflect.TypeFor[K]()
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		if t.Size() == 8 {
			return wordKey
		}
		return integerKey
	default:
		return anyKey
	}
}

// of hashes one key.
func (h *hashing[K]) of(key K) uint64 {
	switch h.kind {
	case wordKey:
		return h.ofWord(key)
	case integerKey:
		return h.mix(integerBits(key))
	case customKey:
		return h.mix(h.custom(key))
	default:
		return maphash.Comparable(h.seed, key)
	}
}

// ofWord hashes a key of the kind wordKey. That takes less time than a call, so
// it is a method of its own for the callers who want it inlined.
func (h *hashing[K]) ofWord(key K) uint64 {
	return h.mix(*(*uint64)(unsafe.Pointer(&key)))
}

// mix spreads the bits of a number over all bits of the result, in a way that
// differs from map to map. Folding once is not enough: for some multipliers,
// numbers in sequence then crowd into few buckets.
func (h *hashing[K]) mix(x uint64) uint64 {
	return fold(fold(x^h.xor, h.mul), goldenRatio)
}

// fold multiplies to 128 bits and folds the halves together.
func fold(x, mul uint64) uint64 {
	hi, lo := bits.Mul64(x, mul)
	return hi ^ lo
}

// integerBits returns the bits of a key whose kind is integerKey.
func integerBits[K comparable](key K) uint64 {
	switch unsafe.Sizeof(key) {
	case 1:
		return uint64(*(*uint8)(unsafe.Pointer(&key)))
	case 2:
		return uint64(*(*uint16)(unsafe.Pointer(&key)))
	case 4:
		return uint64(*(*uint32)(unsafe.Pointer(&key)))
	default:
		return *(*uint64)(unsafe.Pointer(&key))
	}
}
