package placement

import (
	"iter"
	"math"
)

// Figures describe how evenly something is spread over shards.
type Figures struct {
	// Shards is how many there are.
	Shards int `json:"shards"`
	// Total is the sum over all of them.
	Total float64 `json:"total"`
	// Mean is the fair share.
	Mean float64 `json:"mean"`
	// Std is the standard deviation over the shards (of the population: the shards are all there are).
	Std float64 `json:"std"`
	// Min and Max are the least and the most loaded.
	Min float64 `json:"min"`
	Max float64 `json:"max"`
	// Entropy is that of the distribution in bits; log2(Shards) is the most it can be.
	Entropy float64 `json:"entropy"`
}

// Skew is Max over Min: 1 is perfect, infinite if a shard has nothing.
func (f Figures) Skew() float64 {
	if f.Max == f.Min {
		return 1
	}
	return f.Max / f.Min
}

// Peak is Max over Mean: how much more the fullest shard has than its share, which is what fills up first.
func (f Figures) Peak() float64 {
	if f.Mean == 0 {
		return 1
	}
	return f.Max / f.Mean
}

// Evenness is the entropy as a share of the most it can be: 1 is perfect.
func (f Figures) Evenness() float64 {
	if f.Shards < 2 {
		return 1
	}
	return f.Entropy / math.Log2(float64(f.Shards))
}

// Measure computes the figures of a load per shard.
func Measure(loads []float64) Figures {
	if len(loads) == 0 {
		return Figures{}
	}
	f := Figures{Shards: len(loads), Min: math.Inf(1), Max: math.Inf(-1)}
	for _, load := range loads {
		f.Total += load
		f.Min, f.Max = min(f.Min, load), max(f.Max, load)
	}
	f.Mean = f.Total / float64(len(loads))
	variance := 0.0
	for _, load := range loads {
		variance += (load - f.Mean) * (load - f.Mean)
		if p := load / f.Total; p > 0 {
			f.Entropy -= p * math.Log2(p)
		}
	}
	f.Std = math.Sqrt(variance / float64(len(loads)))
	return f
}

// Count places every key and returns how many each of the shards got.
func Count(p Placer, shards int, hashes iter.Seq[uint64]) []float64 {
	counts := make([]float64, shards)
	for h := range hashes {
		counts[p.Place(h)]++
	}
	return counts
}

// Figures describe how evenly the space is spread over the map's shards, in shares of the whole. Empty seats do not count.
func (m *Map) Figures() Figures {
	return m.FiguresByWeight(Named(m.names...))
}

// FiguresByWeight are [Map.Figures] for shards that are meant to have unequal shares: each share counts relative to the
// shard's weight, so that a shard of weight 2 with twice the share of the others is even with them.
func (m *Map) FiguresByWeight(shards []Shard) Figures {
	weights, total := map[string]float64{}, 0.0
	for _, s := range shards {
		if !s.vacant() {
			weights[s.Name] = s.weight()
			total += s.weight()
		}
	}
	mean := total / float64(len(weights))
	shares := make([]float64, len(m.names))
	for i, extent := range m.Extents() {
		shares[i] = extent.Share()
		if w := weights[m.names[i]]; w > 0 {
			shares[i] *= mean / w
		}
	}
	return Measure(present(m.names, shares))
}
