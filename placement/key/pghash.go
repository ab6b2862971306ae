package key

import (
	"encoding/binary"
	"math/bits"
)

// PostgreSQL hashes with Bob Jenkins' lookup3 (2006, public domain), extended to 64 bits by returning its last two words
// and to a seed by mixing the seed's two halves into the initial state. The functions below follow that definition for
// little-endian servers; on big-endian ones PostgreSQL itself gives other values, which is why such shards are refused.

// initialState is what the three words start from, before the length is added.
const initialState = 0x9e3779b9 + 3923095

// begin returns the initial state for a key of this length. PostgreSQL, too, takes the length modulo 2^32.
func begin(length int, seed uint64) (a, b, c uint32) {
	a = initialState + uint32(length)
	b, c = a, a
	if seed != 0 {
		a += uint32(seed >> 32)
		b += uint32(seed)
		a, b, c = mix(a, b, c)
	}
	return a, b, c
}

// bytesExtended is PostgreSQL's hash_bytes_extended.
func bytesExtended[B ~string | ~[]byte](k B, seed uint64) uint64 {
	a, b, c := begin(len(k), seed)
	for len(k) >= 12 {
		a += word(k[0:4])
		b += word(k[4:8])
		c += word(k[8:12])
		a, b, c = mix(a, b, c)
		k = k[12:]
	}
	// The lowest byte of c is reserved for the length, so the tail's bytes begin at its second.
	n := len(k)
	switch {
	case n >= 8:
		a += word(k[0:4])
		b += word(k[4:8])
		c += tail(k[8:]) << 8
	case n >= 4:
		a += word(k[0:4])
		b += tail(k[4:])
	default:
		a += tail(k)
	}
	return final(a, b, c)
}

// uuidExtended is bytesExtended for sixteen bytes: one round and a tail of one word.
func uuidExtended(k *[16]byte, seed uint64) uint64 {
	a, b, c := begin(16, seed)
	a += binary.LittleEndian.Uint32(k[0:])
	b += binary.LittleEndian.Uint32(k[4:])
	c += binary.LittleEndian.Uint32(k[8:])
	a, b, c = mix(a, b, c)
	a += binary.LittleEndian.Uint32(k[12:])
	return final(a, b, c)
}

// uint32Extended is PostgreSQL's hash_bytes_uint32_extended.
func uint32Extended(k uint32, seed uint64) uint64 {
	a, b, c := begin(4, seed)
	a += k
	return final(a, b, c)
}

// int8Extended is PostgreSQL's hashint8extended: the halves are folded so that equal values of int2, int4 and int8 agree.
func int8Extended(v int64, seed uint64) uint64 {
	low, high := uint32(v), uint32(uint64(v)>>32)
	if v < 0 {
		high = ^high
	}
	return uint32Extended(low^high, seed)
}

// arrayOfOne is what hash_array_extended makes of an array whose only element has this hash.
func arrayOfOne(element uint64) uint64 {
	return 31 + element
}

func word[B ~string | ~[]byte](k B) uint32 {
	_ = k[3]
	return uint32(k[0]) | uint32(k[1])<<8 | uint32(k[2])<<16 | uint32(k[3])<<24
}

// tail reads fewer than four bytes.
func tail[B ~string | ~[]byte](k B) uint32 {
	var w uint32
	for i := range len(k) {
		w |= uint32(k[i]) << (8 * i)
	}
	return w
}

func mix(a, b, c uint32) (x, y, z uint32) {
	a = (a - c) ^ bits.RotateLeft32(c, 4)
	c += b
	b = (b - a) ^ bits.RotateLeft32(a, 6)
	a += c
	c = (c - b) ^ bits.RotateLeft32(b, 8)
	b += a
	a = (a - c) ^ bits.RotateLeft32(c, 16)
	c += b
	b = (b - a) ^ bits.RotateLeft32(a, 19)
	a += c
	c = (c - b) ^ bits.RotateLeft32(b, 4)
	b += a
	return a, b, c
}

// final mixes the last words and returns two of them.
func final(a, b, c uint32) uint64 {
	c = (c ^ b) - bits.RotateLeft32(b, 14)
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	c = (c ^ b) - bits.RotateLeft32(b, 24)
	return uint64(b)<<32 | uint64(c)
}
