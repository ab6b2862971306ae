package main

import (
	"math"
	"testing"
)

// TestTheoryBehindTheReferences: 1,000,000 independent keys on 21 shards deviate by √(n·p·(1-p)); a ring with one point a
// shard has exponential arcs, whose deviation is their mean.
func TestTheoryBehindTheReferences(t *testing.T) {
	if want := math.Sqrt(1e6 * (1.0 / 21) * (20.0 / 21)); math.Abs(binomialStd-want) > 1e-6 {
		t.Errorf("std of independent keys %v, want %v", binomialStd, want)
	}
	if mean := 1e6 / 21; math.Abs(ringStd(1)-mean) > 1 {
		t.Errorf("std of a ring with one point %v, want about %v", ringStd(1), mean)
	}
	if got := ringStd(100); math.Abs(got-math.Hypot(4761.9, binomialStd)) > 1 {
		t.Errorf("std of a ring with 100 points %v", got)
	}
}
