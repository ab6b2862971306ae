package placement

// fibonacci is multiplicative hashing: the key times 2^64/φ, whose upper half is then divided by the number of shards.
// The multiplication spreads consecutive keys evenly, so it does well even on plain integers that were never hashed; like
// modulo it moves nearly everything when the number changes. Knuth, TAOCP volume 3, 6.4.
type fibonacci struct{ Config }

func (fibonacci) Info() Info {
	return Info{
		Name: nameFibonacci, Summary: "hash times 2^64/φ, then modulo; spreads consecutive integers, moves like modulo",
		Origin: "multiplicative method, Knuth TAOCP 6.4", Keys: keysDirect, Ranges: rangesSlots,
	}
}

func (fibonacci) Keys(shards []Shard) (Placer, error) {
	if err := checkUnweighted(nameFibonacci, shards); err != nil {
		return nil, err
	}
	return multiplier(len(shards)), nil
}

func (f fibonacci) Ranges(_ *Map, shards []Shard) (*Map, error) {
	p, err := f.Keys(shards)
	if err != nil {
		return nil, err
	}
	return slotMap(nameFibonacci, f.Slots, shards, func(slot int) int { return p.Place(uint64(slot)) })
}

// multiplier has the number of shards.
type multiplier int

func (n multiplier) Place(hash uint64) int { return int((hash * golden) >> 32 % uint64(n)) }

func (n multiplier) Replicas(dst []int, hash uint64, k int) []int {
	return following(dst, n.Place(hash), k, int(n))
}
