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

	algorithm Algorithm
	level     Level
}

// NewChange builds both placements at a level. An algorithm that remembers goes from one to the other; for the rest the
// two are independent.
func NewChange(algorithm Algorithm, level Level, before, after []Shard) (*Change, error) {
	first := &Change{algorithm: algorithm, level: level}
	if err := first.place(nil, before); err != nil {
		return nil, err
	}
	return first.Then(after)
}

// Then returns the change that follows: from the placement that this one has arrived at to one over other shards. Several
// changes in a row must be made this way, for an algorithm that remembers would forget between two of [NewChange].
func (c *Change) Then(after []Shard) (*Change, error) {
	next := &Change{Before: c.After, ShardsBefore: c.ShardsAfter, algorithm: c.algorithm, level: c.level}
	if err := next.place(c, after); err != nil {
		return nil, err
	}
	return next, nil
}

// place fills in the placement after, starting from the one at which the change before has arrived, if there is one.
func (c *Change) place(from *Change, shards []Shard) (err error) {
	if c.level == SlotLevel || c.algorithm.Info().Keys == keysByMap {
		return c.placeMap(from, shards)
	}
	if _, seated := c.algorithm.(rendezvousFast); seated && from != nil {
		if shards, err = keepSeats(from.ShardsAfter, shards); err != nil {
			return err
		}
	}
	c.ShardsAfter = namesOf(shards)
	c.After, err = c.algorithm.Keys(shards)
	return err
}

func (c *Change) placeMap(from *Change, shards []Shard) error {
	var inForce *Map
	if from != nil {
		inForce, _ = from.After.(*Map) // placeMap made it, so it is one
	}
	assign := c.algorithm.Ranges
	if c.level == SlotLevel {
		assign = func(from *Map, shards []Shard) (*Map, error) { return onSlots(c.algorithm, from, shards) }
	}
	m, err := assign(inForce, shards)
	if err != nil {
		return err
	}
	c.After, c.ShardsAfter = m, m.Shards()
	return nil
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
