package placement

import (
	"fmt"
	"math"
)

// weightedRing is the ring with as many virtual nodes as the shard's weight asks for: VirtualNodes for weight 1, twice
// that for weight 2. Because the number depends on the shard alone, a change of one weight moves keys only to or from
// that shard. The practice of Dynamo (2007) and of ketama (2007).
type weightedRing struct{ Config }

func (weightedRing) Info() Info {
	return Info{
		Name: nameWeightedRing, Summary: "the ring with virtual nodes in proportion to weight",
		Origin: "DeCandia et al. (Dynamo), SOSP 2007", Keys: keysDirect, Ranges: rangesArcs, Weighted: true,
	}
}

func (r weightedRing) Keys(shards []Shard) (Placer, error) { return r.Ranges(nil, shards) }

func (r weightedRing) Ranges(_ *Map, shards []Shard) (*Map, error) {
	points, err := r.points(shards)
	if err != nil {
		return nil, err
	}
	return ringMap(points, shards), nil
}

func (r weightedRing) points(shards []Shard) ([]ringPoint, error) {
	if err := checkShards(shards); err != nil {
		return nil, err
	}
	for _, s := range shards {
		if n := float64(r.VirtualNodes) * s.weight(); n < 0.5 || n > maxVirtualNodes {
			return nil, fmt.Errorf("shard %q would have %.3g virtual nodes (weight %v × %d): it needs from 1 to %d",
				s.Name, n, s.weight(), r.VirtualNodes, maxVirtualNodes)
		}
	}
	nodes := func(s Shard) int { return int(math.Round(float64(r.VirtualNodes) * s.weight())) }
	return ringPoints(shards, r.NodeHash, false, nodes)
}
