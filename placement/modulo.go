package placement

// modulo is the remainder of the hash by the number of shards: what everybody writes first. Balance is perfect and a
// change of the number moves nearly everything, n/(n+1) of the keys. Here to compare with, and for fixed numbers. Its
// origin is folklore; Knuth has the division method in TAOCP volume 3, 6.4.
type modulo struct{ Config }

func (modulo) Info() Info {
	return Info{
		Name: nameModulo, Summary: "hash modulo shards; moves nearly everything when their number changes",
		Origin: "division method, Knuth TAOCP 6.4", Keys: keysDirect, Ranges: rangesSlots,
	}
}

func (modulo) Keys(shards []Shard) (Placer, error) {
	if err := checkUnweighted(nameModulo, shards); err != nil {
		return nil, err
	}
	return remainder(len(shards)), nil
}

// Ranges deals the slots out in turn: the remainder of the slot's number.
func (m modulo) Ranges(_ *Map, shards []Shard) (*Map, error) {
	if err := checkUnweighted(nameModulo, shards); err != nil {
		return nil, err
	}
	return slotMap(nameModulo, m.Slots, shards, func(slot int) int { return slot % len(shards) })
}

// remainder has the number of shards.
type remainder int

func (n remainder) Place(hash uint64) int { return int(hash % uint64(n)) }

func (n remainder) Replicas(dst []int, hash uint64, k int) []int {
	return following(dst, n.Place(hash), k, int(n))
}

// following appends the shard and those that come after it by number.
func following(dst []int, shard, k, shards int) []int {
	for i := range min(k, shards) {
		dst = append(dst, (shard+i)%shards)
	}
	return dst
}
