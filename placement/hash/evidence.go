package hash

import (
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"strconv"
)

// AvalancheResult says how far one input bit reaches.
type AvalancheResult struct {
	// Mean is the share of output bits that change when one input bit does; ½ is wanted.
	Mean float64
	// WorstBias is how far the worst pair of an input bit and an output bit is from ½: 0.5 means that some input bit
	// never, or always, changes some output bit.
	WorstBias float64
}

// Avalanche flips every bit of random keys of so many bytes, samples of them, and watches the output bits.
func Avalanche(f Function, keyBytes, samples int) AvalancheResult {
	random := rand.New(rand.NewPCG(1, 2))
	flips := make([][64]int, keyBytes*8)
	k := make([]byte, keyBytes)
	for range samples {
		for i := range k {
			k[i] = byte(random.Uint32())
		}
		seed := random.Uint64()
		before := f.Sum(k, seed)
		for bit := range flips {
			k[bit/8] ^= 1 << (bit % 8)
			changed := before ^ f.Sum(k, seed)
			k[bit/8] ^= 1 << (bit % 8)
			for changed != 0 {
				flips[bit][bits.TrailingZeros64(changed)]++
				changed &= changed - 1
			}
		}
	}
	return summarise(flips, f.Bits, samples)
}

// summarise looks at the function's own bits, which are the upper ones.
func summarise(flips [][64]int, outputBits, samples int) AvalancheResult {
	var r AvalancheResult
	for _, row := range flips {
		for _, count := range row[64-outputBits:] {
			share := float64(count) / float64(samples)
			r.Mean += share / float64(len(flips)*outputBits)
			r.WorstBias = max(r.WorstBias, math.Abs(share-0.5))
		}
	}
	return r
}

// Keys is a kind of key to test with: the n-th key, appended to dst.
type Keys func(dst []byte, n int) []byte

// SequentialIntegers are 0, 1, 2 … in eight bytes: what a serial column gives.
func SequentialIntegers(dst []byte, n int) []byte {
	return binary.LittleEndian.AppendUint64(dst, uint64(n))
}

// NumberedNames are user:0, user:1 …
func NumberedNames(dst []byte, n int) []byte {
	return strconv.AppendInt(append(dst, "user:"...), int64(n), 10)
}

// UniformityResult is a chi-square test of keys over equal parts of the hash space.
type UniformityResult struct {
	// ChiSquare per degree of freedom; about 1 is what chance gives.
	ChiSquare float64
	// P is the probability that chance would spread the keys less evenly than this: near 0 means clusters, near 1 means
	// more even than chance, which is no fault but a sign of structure.
	P float64
}

// Uniformity hashes so many keys and counts them by the top bits of the hash, as a placement does.
func Uniformity(f Function, keys Keys, count, parts int) UniformityResult {
	counts := make([]float64, parts)
	var buffer [32]byte
	for n := range count {
		h := f.Sum(keys(buffer[:0], n), 0)
		high, _ := bits.Mul64(h, uint64(parts))
		counts[high]++
	}
	expected := float64(count) / float64(parts)
	chi := 0.0
	for _, c := range counts {
		chi += (c - expected) * (c - expected) / expected
	}
	freedom := float64(parts - 1)
	return UniformityResult{ChiSquare: chi / freedom, P: upperTail(chi, freedom)}
}

// upperTail is the chi-square distribution's upper tail by Wilson and Hilferty's cube-root approximation (1931), good to
// three digits at the hundreds of degrees of freedom it is used with.
func upperTail(chi, freedom float64) float64 {
	spread := 2 / (9 * freedom)
	z := (math.Cbrt(chi/freedom) - (1 - spread)) / math.Sqrt(spread)
	return math.Erfc(z/math.Sqrt2) / 2
}
