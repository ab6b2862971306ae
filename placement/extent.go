package placement

import (
	"math/big"
	"math/bits"
)

// Extent counts points of the hash space: from none to all 2^64 of them, exactly.
type Extent struct{ high, low uint64 }

// WholeSpace is the extent of the whole hash space.
var WholeSpace = Extent{high: 1}

// Add returns the sum of two extents.
func (e Extent) Add(other Extent) Extent {
	low, carry := bits.Add64(e.low, other.low, 0)
	return Extent{high: e.high + other.high + carry, low: low}
}

// sub returns e - other, which must not be negative.
func (e Extent) sub(other Extent) Extent {
	low, borrow := bits.Sub64(e.low, other.low, 0)
	return Extent{high: e.high - other.high - borrow, low: low}
}

// Cmp compares two extents: -1, 0 or 1.
func (e Extent) Cmp(other Extent) int {
	switch {
	case e == other:
		return 0
	case e.high < other.high, e.high == other.high && e.low < other.low:
		return -1
	default:
		return 1
	}
}

// IsZero says whether the extent is empty.
func (e Extent) IsZero() bool { return e == Extent{} }

// Share returns the extent as a share of the whole space, rounded to a float64.
func (e Extent) Share() float64 {
	return float64(e.high) + float64(e.low)/(1<<64)
}

// Rat returns the extent as a share of the whole space, exactly.
func (e Extent) Rat() *big.Rat {
	return new(big.Rat).SetFrac(e.bigInt(), WholeSpace.bigInt())
}

func (e Extent) bigInt() *big.Int {
	n := new(big.Int).SetUint64(e.high)
	return n.Lsh(n, 64).Add(n, new(big.Int).SetUint64(e.low))
}

// extentOf is the inverse of bigInt for numbers from 0 to 2^64.
func extentOf(n *big.Int) Extent {
	return Extent{high: new(big.Int).Rsh(n, 64).Uint64(), low: new(big.Int).And(n, big.NewInt(0).SetUint64(1<<64-1)).Uint64()}
}
