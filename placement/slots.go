package placement

import "fmt"

// evenSlots cuts the space into a fixed number of equal slots, the logical shards, and gives every shard as many as the
// next, within one. The number never changes; slots change hands. A new map deals out neighbouring slots together, a
// change from a map moves as few slots as balance allows. The practice of Redis Cluster (16,384 slots), of Couchbase's
// vBuckets and of Citus; also Gray's and DeWitt's "many more partitions than disks", 1992.
type evenSlots struct{ Config }

func (evenSlots) Info() Info {
	return Info{
		Name: nameSlots, Summary: "a fixed number of equal slots, counted out evenly; moves as few as it can",
		Origin: "logical shards, as in Redis Cluster and vBuckets", Keys: keysByMap, Ranges: rangesEven, Weighted: true, Remembers: true,
	}
}

func (e evenSlots) Keys(shards []Shard) (Placer, error) { return e.Ranges(nil, shards) }

func (e evenSlots) Ranges(from *Map, shards []Shard) (*Map, error) {
	quotas, err := slotQuotas(shards, e.Slots)
	if err != nil {
		return nil, err
	}
	if from == nil {
		return dealtInOrder(quotas.plain(), shards), nil
	}
	return leastMovement(snapped(from, e.Slots), shards, quotas), nil
}

// slotQuotas counts slots out by weight and refuses to leave a shard without any: one whose share is less than a slot
// might be rounded down to nothing.
func slotQuotas(shards []Shard, slots int) (quotas, error) {
	if err := checkShards(shards); err != nil {
		return quotas{}, err
	}
	if slots < len(shards) {
		return quotas{}, fmt.Errorf("%d slots are too few for %d shards: use more slots", slots, len(shards))
	}
	q := newQuotas(shards, slots)
	for i, units := range q.floor {
		if units == 0 {
			return quotas{}, fmt.Errorf("the share of shard %q (weight %v) is less than one of %d slots: use more slots",
				shards[i].Name, shards[i].weight(), slots)
		}
	}
	return q, nil
}

// dealtInOrder gives the first shard the first units and so on.
func dealtInOrder(targets []Extent, shards []Shard) *Map {
	l := list[uint64]{names: namesOf(shards)}
	var start Extent
	for i, target := range targets {
		if target.IsZero() {
			continue
		}
		l.push(start.low, uint32(i))
		start = start.Add(target)
	}
	return mapOf(l)
}

// snapped returns the map with every slot given to the shard that owns its beginning, so that slots are whole. A map that
// was made of slots comes back as it is.
func snapped(from *Map, slots int) *Map {
	if aligned(from, slots) {
		return from
	}
	l := list[uint64]{names: from.names}
	for slot := range slots {
		start := slotStart(slot, slots)
		l.push(start, from.owners[from.find(start)])
	}
	return mapOf(l.compact())
}

// aligned says whether every range begins at a slot.
func aligned(m *Map, slots int) bool {
	if slots == 1 {
		return len(m.starts) == 1
	}
	width := slotStart(1, slots)
	for _, start := range m.starts {
		if start%width != 0 {
			return false
		}
	}
	return true
}
