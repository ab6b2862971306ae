package placement

// jump is jump consistent hash: no memory, perfect expected balance, and from n to n+1 shards exactly the keys of the new
// one move. Shards are numbers, so only the last can be dropped without moving others. Lamping, Veach, "A Fast, Minimal
// Memory, Consistent Hash Algorithm", 2014.
type jump struct{ Config }

func (jump) Info() Info {
	return Info{
		Name: nameJump, Summary: "computes the shard's number in O(log shards), no table; only the last shard can go",
		Origin: "Lamping, Veach 2014", Keys: keysDirect, Ranges: rangesSlots,
	}
}

func (jump) Keys(shards []Shard) (Placer, error) {
	if err := checkUnweighted(nameJump, shards); err != nil {
		return nil, err
	}
	return jumper(len(shards)), nil
}

func (j jump) Ranges(_ *Map, shards []Shard) (*Map, error) {
	p, err := j.Keys(shards)
	if err != nil {
		return nil, err
	}
	return slotMap(nameJump, j.Slots, shards, func(slot int) int { return p.Place(slotKey(slot)) })
}

// jumper has the number of shards.
type jumper int

func (n jumper) Place(hash uint64) int {
	shard, next := int64(-1), int64(0)
	for next < int64(n) {
		shard = next
		// The paper's generator; each step decides how far the key stays where it is.
		hash = hash*2862933555777941757 + 1
		next = int64(float64(shard+1) * (float64(1<<31) / float64(hash>>33+1)))
	}
	return int(shard)
}

func (n jumper) Replicas(dst []int, hash uint64, k int) []int {
	return rehashed(dst, hash, k, int(n), n.Place)
}
