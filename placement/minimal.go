package placement

import (
	"cmp"
	"math/big"
	"slices"
)

// minimal goes from any map to perfect balance with the least movement there is.
//
// Count the space in units: whole slots if the map in force is made of slots, single hashes otherwise. A shard's fair
// share is its part of the units by weight, rounded down or up: balance "within one unit" allows both, and the numbers
// must add up. Whatever balanced map is reached, a shard that has more than its new number must give the excess away, so
// the movement is at least the sum of the excesses. This planner moves exactly that sum, since it takes units only from
// shards above their number and gives them only to shards below. What is left to choose is who rounds up, and a shard
// that rounds up saves a unit of movement exactly if it has more than its number rounded down: those come first. So no
// balanced map is nearer. (The argument is the exchange argument for integer transport with unit costs; the algorithm is
// our own.)
type minimal struct{ Config }

func (minimal) Info() Info {
	return Info{
		Name: nameMinimal, Summary: "from any map to perfect balance, within one slot, with the least possible movement",
		Origin: "our own; proof in the source", Keys: keysByMap, Ranges: rangesOwn, Weighted: true, Remembers: true,
	}
}

func (m minimal) Keys(shards []Shard) (Placer, error) { return m.Ranges(nil, shards) }

func (m minimal) Ranges(from *Map, shards []Shard) (*Map, error) {
	if err := checkShards(shards); err != nil {
		return nil, err
	}
	if from != nil && !aligned(from, m.Slots) {
		return leastMovement(from, shards, newQuotas(shards, 0)), nil
	}
	q, err := slotQuotas(shards, m.Slots)
	if err != nil {
		return nil, err
	}
	if from == nil {
		return dealtInOrder(q.plain(), shards), nil
	}
	return leastMovement(from, shards, q), nil
}

// LeastMovement returns how much of the space has to move, whatever the plan, to get from this map to balance to the last
// hash over these shards. Balance within a slot can take a little more or less.
func LeastMovement(from *Map, shards []Shard) (Extent, error) {
	if err := checkShards(shards); err != nil {
		return Extent{}, err
	}
	if from == nil {
		return Extent{}, nil
	}
	return from.Diff(leastMovement(from, shards, newQuotas(shards, 0))).Extent, nil
}

// quotas are the shards' fair shares in units.
type quotas struct {
	unit     Extent
	floor    []uint64   // whole units
	fraction []bool     // whether there is a part of a unit more
	rest     []*big.Int // that part, over a common denominator
	extra    int        // how many shards round up
}

// newQuotas shares the space out by weight in this many slots, or in single hashes if slots is 0. Floats are binary
// fractions, so the shares are exact.
func newQuotas(shards []Shard, slots int) quotas {
	units, unit := WholeSpace.bigInt(), Extent{low: 1}
	switch {
	case slots == 1:
		units, unit = big.NewInt(1), WholeSpace
	case slots > 1:
		units, unit = big.NewInt(int64(slots)), Extent{low: slotStart(1, slots)}
	}
	weights, total := integerWeights(shards)
	q := quotas{unit: unit, floor: make([]uint64, len(shards)), fraction: make([]bool, len(shards)), rest: make([]*big.Int, len(shards))}
	left := new(big.Int).Set(units)
	for i, w := range weights {
		whole, rest := new(big.Int).QuoRem(w.Mul(w, units), total, new(big.Int))
		left.Sub(left, whole)
		if !whole.IsUint64() { // a single shard owns all 2^64 hashes: one less is certain, the last one is the extra
			whole.Sub(whole, big.NewInt(1))
			left.Add(left, big.NewInt(1))
			rest.Set(total)
		}
		q.floor[i], q.fraction[i], q.rest[i] = whole.Uint64(), rest.Sign() > 0, rest
	}
	q.extra = int(left.Int64())
	return q
}

// integerWeights scales the weights by a common power of two to whole numbers.
func integerWeights(shards []Shard) (weights []*big.Int, total *big.Int) {
	exact := make([]*big.Rat, len(shards))
	scale := big.NewInt(1)
	for i, s := range shards {
		exact[i] = new(big.Rat).SetFloat64(s.weight())
		if exact[i].Denom().Cmp(scale) > 0 { // denominators are powers of two: the largest is a multiple of all
			scale.Set(exact[i].Denom())
		}
	}
	total = new(big.Int)
	weights = make([]*big.Int, len(shards))
	for i, w := range exact {
		weights[i] = new(big.Int).Mul(w.Num(), new(big.Int).Quo(scale, w.Denom()))
		total.Add(total, weights[i])
	}
	return weights, total
}

// plain rounds up those with the largest remainder.
func (q quotas) plain() []Extent {
	return q.targets(func(int) bool { return false })
}

// targets says what each shard gets. Of those that have a part of a unit more, the ones that prefer to round up come
// first, then the largest remainders, then the lower numbers.
func (q quotas) targets(prefers func(shard int) bool) []Extent {
	var candidates []int
	for i, has := range q.fraction {
		if has {
			candidates = append(candidates, i)
		}
	}
	slices.SortStableFunc(candidates, func(a, b int) int {
		if pa, pb := prefers(a), prefers(b); pa != pb {
			if pa {
				return -1
			}
			return 1
		}
		return q.rest[b].Cmp(q.rest[a])
	})
	targets := make([]Extent, len(q.floor))
	for i, units := range q.floor {
		targets[i] = q.extent(units)
	}
	for _, i := range candidates[:q.extra] {
		targets[i] = targets[i].Add(q.unit)
	}
	return targets
}

func (q quotas) extent(units uint64) Extent {
	n := new(big.Int).SetUint64(units)
	return extentOf(n.Mul(n, q.unit.bigInt()))
}

// leastMovement carries the map in force to the quotas. It takes from shards above their target, last range first and
// splitting at most one each, and gives to shards below it in order.
func leastMovement(from *Map, shards []Shard, q quotas) *Map {
	names := namesOf(shards)
	held := make([]Extent, len(shards))
	stays := numbersAfter(from.names, names)
	for i, extent := range from.Extents() {
		if stays[i] >= 0 {
			held[stays[i]] = extent
		}
	}
	targets := q.targets(func(i int) bool { return held[i].Cmp(q.extent(q.floor[i])) > 0 })
	plan := transport{held: held, targets: targets, next: list[uint64]{names: names}}
	plan.run(from, stays)
	return plan.result()
}

// numbersAfter returns, for each shard before, its number in the list after, -1 if it is gone.
func numbersAfter(before, after []string) []int {
	number := make(map[string]int, len(after))
	for i, name := range after {
		number[name] = i
	}
	numbers := make([]int, len(before))
	for i, name := range before {
		numbers[i] = -1
		if after, stays := number[name]; stays && name != "" {
			numbers[i] = after
		}
	}
	return numbers
}

// transport hands pieces of the space from shards above their target to shards below it.
type transport struct {
	held, targets []Extent
	receiver      int // the shard that takes the next piece
	next          list[uint64]
}

func (t *transport) run(from *Map, stays []int) {
	// Backwards, so that each shard keeps its first ranges and gives away its last.
	for i := len(from.starts) - 1; i >= 0; i-- {
		r, owner := from.bounds(i), stays[from.owners[i]]
		length := extentOfRange(r)
		give := length
		if owner >= 0 {
			give = t.excess(owner, length)
			t.held[owner] = t.held[owner].sub(give)
		}
		keep := length.sub(give)
		if !keep.IsZero() {
			t.next.push(r.Lo, uint32(owner))
		}
		t.deal(r.Lo+keep.low, give)
	}
}

// excess is how much of this length the shard has to give away.
func (t *transport) excess(owner int, length Extent) Extent {
	if t.held[owner].Cmp(t.targets[owner]) <= 0 {
		return Extent{}
	}
	over := t.held[owner].sub(t.targets[owner])
	if over.Cmp(length) > 0 {
		return length
	}
	return over
}

// deal hands the piece that begins at lo to shards below their target.
func (t *transport) deal(lo uint64, length Extent) {
	for !length.IsZero() {
		for t.held[t.receiver].Cmp(t.targets[t.receiver]) >= 0 {
			t.receiver++
		}
		part := t.targets[t.receiver].sub(t.held[t.receiver])
		if part.Cmp(length) > 0 {
			part = length
		}
		t.next.push(lo, uint32(t.receiver))
		t.held[t.receiver] = t.held[t.receiver].Add(part)
		lo += part.low
		length = length.sub(part)
	}
}

// result sorts what was pushed in any order and joins neighbours.
func (t *transport) result() *Map {
	order := make([]int, len(t.next.starts))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(t.next.starts[a], t.next.starts[b]) })
	sorted := list[uint64]{names: t.next.names}
	for _, i := range order {
		sorted.push(t.next.starts[i], t.next.owners[i])
	}
	return mapOf(sorted.compact())
}
