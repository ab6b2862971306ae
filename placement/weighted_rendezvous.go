package placement

import (
	"cmp"
	"fmt"
	"math"
)

// weightedRendezvous is rendezvous in which a shard wins in exact proportion to its weight: its score is -w / ln(u) for
// a uniform u from the key's and the shard's hash. A change of one weight moves keys only to or from that shard.
// Schindelhauer, Schomaker, "Weighted Distributed Hash Tables", SPAA 2005 (the logarithmic method).
type weightedRendezvous struct{ Config }

func (weightedRendezvous) Info() Info {
	return Info{
		Name: nameWeightedRendezvous, Summary: "rendezvous in which a shard wins in proportion to its weight",
		Origin: "Schindelhauer, Schomaker, SPAA 2005", Keys: keysDirect, Ranges: rangesSlots, Weighted: true,
	}
}

func (r weightedRendezvous) Keys(shards []Shard) (Placer, error) { return r.scorer(shards) }

func (r weightedRendezvous) Ranges(_ *Map, shards []Shard) (*Map, error) {
	s, err := r.scorer(shards)
	if err != nil {
		return nil, err
	}
	return slotMap(nameWeightedRendezvous, r.Slots, shards, func(slot int) int { return s.Place(slotKey(slot)) })
}

func (r weightedRendezvous) scorer(shards []Shard) (weightedScorer, error) {
	if err := checkShards(shards); err != nil {
		return weightedScorer{}, err
	}
	s := weightedScorer{scorer: make(scorer, len(shards)), weights: make([]float64, len(shards))}
	// Relative to the largest, so that no weight, however small, takes a distance beyond what a float holds.
	largest := 0.0
	for _, shard := range shards {
		largest = max(largest, shard.weight())
	}
	for i, shard := range shards {
		s.scorer[i], s.weights[i] = r.NodeHash(shard.Name), shard.weight()/largest
		if s.weights[i] < leastWeight {
			return weightedScorer{}, fmt.Errorf("shard %q (weight %v) is too small beside weight %v to get any key", shard.Name, shard.weight(), largest)
		}
	}
	return s, nil
}

// leastWeight is less than one hash of all: such a shard would be there for nothing.
const leastWeight = 0x1p-64

type weightedScorer struct {
	scorer
	weights []float64
}

// uniform is a number strictly between 0 and 1 from the key's and the shard's hash: 52 bits and a half.
func (s weightedScorer) uniform(hash uint64, shard int) float64 {
	return (float64(s.score(hash, shard)>>12) + 0.5) / (1 << 52)
}

// distance is the inverse of the score: the lowest wins.
func (s weightedScorer) distance(hash uint64, shard int) float64 {
	return minusLog(s.uniform(hash, shard)) / s.weights[shard]
}

func (s weightedScorer) Place(hash uint64) int {
	best, lowest := 0, s.distance(hash, 0)
	for i := 1; i < len(s.weights); i++ {
		// -ln(u) is more than 1-u: most shards are out of the running before any logarithm is taken.
		if 1-s.uniform(hash, i) > float64(lowest*s.weights[i]) {
			continue
		}
		if d := s.distance(hash, i); d < lowest {
			best, lowest = i, d
		}
	}
	return best
}

func (s weightedScorer) Replicas(dst []int, hash uint64, k int) []int {
	return topScores(dst, k, len(s.weights), func(a, b int) int { return cmp.Compare(s.distance(hash, a), s.distance(hash, b)) })
}

// minusLog returns -ln(u) for 0 < u < 1. The standard library's logarithm may differ in the last bit between platforms,
// and a key must not change its shard for that: here every step is one IEEE operation, rounded by the conversions, so
// that no compiler may fuse two of them.
func minusLog(u float64) float64 {
	mantissa, exponent := math.Frexp(u) // u = mantissa × 2^exponent, mantissa in [½, 1)
	if mantissa < math.Sqrt2/2 {
		mantissa, exponent = mantissa*2, exponent-1
	}
	// ln(m) = 2 artanh(t), t = (m-1)/(m+1), |t| < 0.172: eleven terms leave less than 2^-57.
	t := float64(mantissa-1) / float64(mantissa+1)
	square := float64(t * t)
	sum := 0.0
	for _, reciprocal := range oddReciprocals {
		sum = float64(sum*square) + reciprocal
	}
	logarithm := float64(2*t) * sum
	return float64(float64(-exponent)*math.Ln2) - float64(logarithm)
}

// oddReciprocals are the coefficients of artanh's series, the smallest first.
var oddReciprocals = [...]float64{1. / 21, 1. / 19, 1. / 17, 1. / 15, 1. / 13, 1. / 11, 1. / 9, 1. / 7, 1. / 5, 1. / 3, 1}
