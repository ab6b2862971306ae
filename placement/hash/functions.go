package hash

import (
	"crypto/md5"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strings"

	"github.com/dchest/siphash"
	"github.com/twmb/murmur3"
	"github.com/zeebo/xxh3"

	"github.com/cleavedb/cleave/placement/key"
)

// Function is one hash function.
type Function struct {
	// Name is what [Named] takes.
	Name string
	// Bits is how many bits of the value are the function's own.
	Bits int
	// Origin says where it comes from.
	Origin string
	// Attack says what somebody who chooses the keys can do.
	Attack string
	// Sum hashes a key. A function without a seed of its own mixes it in as well as it can; Attack says how well that is.
	Sum func(key []byte, seed uint64) uint64
}

// ErrUnknown is wrapped by the error of [Named] for a name that it does not know.
var ErrUnknown = errors.New("unknown hash function")

// Default is the function of hash keyspaces.
const Default = "postgres"

// Functions lists every function.
func Functions() []Function {
	return []Function{
		{
			Name: Default, Bits: 64, Origin: "PostgreSQL's hashtextextended: Jenkins lookup3, 2006", Sum: key.HashTextBytes,
			Attack: "collisions can be computed for a known seed; a random seed per keyspace hides them",
		},
		{
			Name: "postgres-bigint", Bits: 64, Origin: "PostgreSQL's hashint8extended, upper half first; words chained", Sum: postgresBigint,
			Attack: "as above; for columns of bigint: bytes that are no whole words collide with zeros behind them",
		},
		{
			Name: "fnv1a", Bits: 64, Origin: "Fowler, Noll, Vo 1991", Sum: fnv64,
			Attack: "no seed of its own; collisions are easy and some hold for every start value",
		},
		{
			Name: "fnv1a32", Bits: 32, Origin: "Fowler, Noll, Vo 1991", Sum: fnv32,
			Attack: "no seed of its own; 32 bits collide by chance at 77,000 keys",
		},
		{
			Name: "fxhash", Bits: 64, Origin: "Firefox; Rust's compiler; last word filled with zeros", Sum: fx,
			Attack: "no defence: one multiplication a word, collisions by hand",
		},
		{
			Name: "murmur3", Bits: 64, Origin: "Appleby 2011, x64 variant", Sum: murmur,
			Attack: "collisions that hold for every seed are published",
		},
		{
			Name: "xxh3", Bits: 64, Origin: "Collet 2019", Sum: xxh3.HashSeed,
			Attack: "not meant to resist; a secret seed hides collisions from the casual",
		},
		{
			Name: "siphash", Bits: 64, Origin: "Aumasson, Bernstein 2012, SipHash-2-4", Sum: sip,
			Attack: "resists with a secret seed: made for keys chosen by others",
		},
		{
			Name: "md5", Bits: 64, Origin: "RFC 1321, first eight bytes; a seed goes first", Sum: md5Sum,
			Attack: "collisions can be computed, 64 bits of it with a secret prefix are safe in practice; slow",
		},
		{
			Name: "fibonacci", Bits: 64, Origin: "Knuth TAOCP 6.4; words xored first, the last filled with zeros", Sum: fibonacci,
			Attack: "no defence: made for integers that nobody chooses",
		},
	}
}

// Named returns the function of that name.
func Named(name string) (Function, error) {
	functions := Functions()
	names := make([]string, len(functions))
	for i, f := range functions {
		if f.Name == name {
			return f, nil
		}
		names[i] = f.Name
	}
	return Function{}, fmt.Errorf("%w %q: use one of %s", ErrUnknown, name, strings.Join(names, ", "))
}

// postgresBigint hashes the key as a composite key of bigint columns, one for each word.
func postgresBigint(k []byte, seed uint64) uint64 {
	for word := range words(k) {
		seed = key.HashInt(int64(word), seed)
	}
	return seed
}

func fnv64(k []byte, seed uint64) uint64 {
	h := uint64(14695981039346656037) ^ seed
	for _, b := range k {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}

func fnv32(k []byte, seed uint64) uint64 {
	h := uint32(2166136261) ^ uint32(seed) ^ uint32(seed>>32)
	for _, b := range k {
		h = (h ^ uint32(b)) * 16777619
	}
	return uint64(h)<<32 | uint64(h)
}

func fx(k []byte, seed uint64) uint64 {
	h := seed
	for word := range words(k) {
		h = (bits.RotateLeft64(h, 5) ^ word) * 0x517cc1b727220a95
	}
	return h
}

func murmur(k []byte, seed uint64) uint64 {
	h, _ := murmur3.SeedSum128(seed, seed, k)
	return h
}

func sip(k []byte, seed uint64) uint64 {
	// Both halves of SipHash's key come from the one seed, the second through an odd constant so that they differ.
	return siphash.Hash(seed, seed*0x9e3779b97f4a7c15+1, k)
}

func md5Sum(k []byte, seed uint64) uint64 {
	if seed != 0 {
		var buffer [8 + 256]byte
		binary.LittleEndian.PutUint64(buffer[:], seed)
		k = append(buffer[:8], k...)
	}
	sum := md5.Sum(k)
	return binary.BigEndian.Uint64(sum[:])
}

func fibonacci(k []byte, seed uint64) uint64 {
	h := seed
	for word := range words(k) {
		h ^= word
	}
	return h * 0x9e3779b97f4a7c15
}

// words yields the key in words of eight bytes, the last one filled with zeros.
func words(k []byte) func(func(uint64) bool) {
	return func(yield func(uint64) bool) {
		for ; len(k) >= 8; k = k[8:] {
			if !yield(binary.LittleEndian.Uint64(k)) {
				return
			}
		}
		if len(k) > 0 {
			var last [8]byte
			copy(last[:], k)
			yield(binary.LittleEndian.Uint64(last[:]))
		}
	}
}
