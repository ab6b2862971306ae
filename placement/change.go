package placement

import "iter"

// Level says what an algorithm is asked to place.
type Level int

const (
	// KeyLevel sends every key through the algorithm: what a cache or a library does.
	KeyLevel Level = iota
	// SlotLevel lets the algorithm place slots and keys fall into slots: what a cluster does that moves slots.
	SlotLevel
)

// String returns the level's name.
func (l Level) String() string {
	if l == SlotLevel {
		return "slot"
	}
	return "key"
}

// Change is a placement before and after shards came or went.
type Change struct {
	Before, After             Placer
	ShardsBefore, ShardsAfter []string
}

// NewChange builds both placements at a level. An algorithm that remembers goes from one to the other; for the rest the
// two are independent.
func NewChange(algorithm Algorithm, level Level, before, after []Shard) (*Change, error) {
	if level == SlotLevel || algorithm.Info().Keys == keysByMap {
		return mapChange(algorithm, level, before, after)
	}
	var err error
	if _, seated := algorithm.(rendezvousFast); seated {
		if after, err = keepSeats(namesOf(before), after); err != nil {
			return nil, err
		}
	}
	c := &Change{ShardsBefore: namesOf(before), ShardsAfter: namesOf(after)}
	if c.Before, err = algorithm.Keys(before); err != nil {
		return nil, err
	}
	c.After, err = algorithm.Keys(after)
	return c, err
}

func mapChange(algorithm Algorithm, level Level, before, after []Shard) (*Change, error) {
	assign := algorithm.Ranges
	if level == SlotLevel {
		assign = func(from *Map, shards []Shard) (*Map, error) { return onSlots(algorithm, from, shards) }
	}
	first, err := assign(nil, before)
	if err != nil {
		return nil, err
	}
	second, err := assign(first, after)
	if err != nil {
		return nil, err
	}
	return &Change{Before: first, After: second, ShardsBefore: first.Shards(), ShardsAfter: second.Shards()}, nil
}

// onSlots is Ranges restricted to whole slots: for algorithms whose maps have ranges of any length, every slot goes where
// the algorithm places it as a key.
func onSlots(algorithm Algorithm, from *Map, shards []Shard) (*Map, error) {
	slots := defaultSlots
	if configured, ok := algorithm.(interface{ slots() int }); ok {
		slots = configured.slots()
	}
	if own, ok := algorithm.(interface {
		slotRanges(slots int, shards []Shard) (*Map, error)
	}); ok {
		return own.slotRanges(slots, shards)
	}
	m, err := algorithm.Ranges(from, shards)
	if err != nil || aligned(m, slots) {
		return m, err
	}
	p, err := algorithm.Keys(shards)
	if err != nil {
		return nil, err
	}
	return slotMap(algorithm.Info().Name, slots, shards, func(slot int) int { return p.Place(slotKey(slot)) })
}

// Outcome is what a change means for a set of keys.
type Outcome struct {
	// Keys is how many were placed.
	Keys int
	// Stayed is how many have the same shard, by name, before and after.
	Stayed int
	// CountsBefore and CountsAfter are keys per shard, in the order of the shards' numbers.
	CountsBefore, CountsAfter []float64
}

// Overlap is the share of keys that stay.
func (o Outcome) Overlap() float64 {
	if o.Keys == 0 {
		return 1
	}
	return float64(o.Stayed) / float64(o.Keys)
}

// Compare places every key before and after the change.
func Compare(c *Change, hashes iter.Seq[uint64]) Outcome {
	o := Outcome{CountsBefore: make([]float64, len(c.ShardsBefore)), CountsAfter: make([]float64, len(c.ShardsAfter))}
	same := numbersAfter(c.ShardsBefore, c.ShardsAfter)
	for h := range hashes {
		before, after := c.Before.Place(h), c.After.Place(h)
		o.CountsBefore[before]++
		o.CountsAfter[after]++
		if same[before] == after {
			o.Stayed++
		}
		o.Keys++
	}
	o.CountsBefore = present(c.ShardsBefore, o.CountsBefore)
	o.CountsAfter = present(c.ShardsAfter, o.CountsAfter)
	return o
}

// present leaves out the loads of empty seats.
func present(names []string, loads []float64) []float64 {
	kept := make([]float64, 0, len(loads))
	for i, name := range names {
		if name != "" {
			kept = append(kept, loads[i])
		}
	}
	return kept
}
