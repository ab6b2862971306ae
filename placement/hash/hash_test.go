package hash_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/cleavedb/cleave/placement/hash"
)

// TestKnownValues compares with values published by, or computed with, each function's own reference.
func TestKnownValues(t *testing.T) {
	for _, c := range []struct {
		name string
		key  string
		want uint64
	}{
		{"fnv1a", "", 0xcbf29ce484222325},
		{"fnv1a", "a", 0xaf63dc4c8601ec8c},
		{"fnv1a", "foobar", 0x85944171f73967e8},
		{"fnv1a32", "", 0x811c9dc5811c9dc5},
		{"fnv1a32", "foobar", 0xbf9cf968bf9cf968},
		{"murmur3", "hello", 0xcbd8a7b341bd9b02},
		{"xxh3", "", 0x2d06800538d394c2},
		{"xxh3", "a", 0xe6c632b61e964e1f},
		{"md5", "a", 0x0cc175b9c0f1b6a8},
	} {
		if got := function(t, c.name).Sum([]byte(c.key), 0); got != c.want {
			t.Errorf("%s of %q is %#x, want %#x", c.name, c.key, got, c.want)
		}
	}
}

// TestValuesNeverChange pins every function with a seed: a change would move the keys of those who use it.
func TestValuesNeverChange(t *testing.T) {
	pins := map[string]uint64{
		"postgres":        0x9a9c38e1ad046ec4,
		"postgres-bigint": 0x2e0052eba778af8d,
		"fnv1a":           0x1f5515996935b0de,
		"fnv1a32":         0x3ecfe57e3ecfe57e,
		"fxhash":          0x9243408d46a6e874,
		"murmur3":         0x3a2098f031e916f3,
		"xxh3":            0x4d991d14cf37ab77,
		"siphash":         0xa8475a8333696094,
		"md5":             0x17b62556cb64d6b5,
		"fibonacci":       0x865c4cf995c2235d,
	}
	for _, f := range hash.Functions() {
		if got := f.Sum([]byte("user:12345 and more"), 7); got != pins[f.Name] {
			t.Errorf("%s gives %#x, it was %#x", f.Name, got, pins[f.Name])
		}
	}
}

func function(t *testing.T, name string) hash.Function {
	t.Helper()
	f, err := hash.Named(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestPostgresIsGoodEnough: the upper word of lookup3's result is mixed a step less than the lower, so some pairs of bits
// are biased and dense integers spread a little less evenly than chance would, at the per mille. That is the price of a
// hash that every server computes; this test keeps it at that.
func TestPostgresIsGoodEnough(t *testing.T) {
	for _, name := range []string{"postgres", "postgres-bigint"} {
		f := function(t, name)
		if r := hash.Avalanche(f, 8, 2000); math.Abs(r.Mean-0.5) > 0.01 || r.WorstBias > 0.35 {
			t.Errorf("%s: avalanche %+v", name, r)
		}
		if r := hash.Uniformity(f, hash.SequentialIntegers, 200_000, 1024); r.ChiSquare > 1.5 {
			t.Errorf("%s clusters integers: %+v", name, r)
		}
		if r := hash.Uniformity(f, hash.NumberedNames, 200_000, 1024); r.ChiSquare > 1.5 {
			t.Errorf("%s clusters names: %+v", name, r)
		}
	}
}

func TestGoodFunctionsPass(t *testing.T) {
	for _, name := range []string{"murmur3", "xxh3", "siphash", "md5"} {
		f := function(t, name)
		if r := hash.Avalanche(f, 8, 2000); math.Abs(r.Mean-0.5) > 0.01 || r.WorstBias > 0.08 {
			t.Errorf("%s: avalanche %+v", name, r)
		}
		for kind, keys := range map[string]hash.Keys{"integers": hash.SequentialIntegers, "names": hash.NumberedNames} {
			if r := hash.Uniformity(f, keys, 200_000, 1024); r.P < 1e-6 {
				t.Errorf("%s clusters %s: %+v", name, kind, r)
			}
		}
	}
}

// TestWeakFunctionsAreFound: evidence that cannot tell a bad function from a good one is none.
func TestWeakFunctionsAreFound(t *testing.T) {
	if r := hash.Avalanche(function(t, "fxhash"), 8, 500); r.WorstBias < 0.49 {
		t.Errorf("fxhash: avalanche %+v", r)
	}
	if r := hash.Avalanche(function(t, "fibonacci"), 8, 500); r.Mean > 0.4 {
		t.Errorf("fibonacci: avalanche %+v", r)
	}
	if r := hash.Uniformity(function(t, "fnv1a32"), hash.NumberedNames, 200_000, 1024); r.P > 1e-6 {
		t.Errorf("fnv1a32 on names: %+v", r)
	}
	constant := hash.Function{Bits: 64, Sum: func([]byte, uint64) uint64 { return 7 }}
	if r := hash.Uniformity(constant, hash.SequentialIntegers, 1000, 16); r.P > 1e-9 {
		t.Errorf("a constant passes: %+v", r)
	}
}

func TestSeedMatters(t *testing.T) {
	for _, f := range hash.Functions() {
		k := []byte("some key longer than sixteen bytes")
		if f.Sum(k, 1) == f.Sum(k, 2) {
			t.Errorf("%s ignores its seed", f.Name)
		}
		if f.Sum(nil, 0) != f.Sum([]byte{}, 0) {
			t.Errorf("%s tells nil from empty", f.Name)
		}
	}
	if _, err := hash.Named("crc"); !errors.Is(err, hash.ErrUnknown) {
		t.Errorf("an unknown function gives %v", err)
	}
}

func ExampleAvalanche() {
	f, err := hash.Named("postgres")
	if err != nil {
		panic(err)
	}
	fmt.Printf("%.2f\n", hash.Avalanche(f, 8, 1000).Mean)
	// Output: 0.50
}

func BenchmarkSum(b *testing.B) {
	for _, f := range hash.Functions() {
		b.Run("function="+f.Name, func(b *testing.B) {
			b.ReportAllocs()
			k := []byte("user:1234567890")
			for i := uint64(0); b.Loop(); i++ {
				f.Sum(k, i)
			}
		})
	}
}
