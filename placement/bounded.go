package placement

import (
	"fmt"
	"math"
	"math/big"
	"sync"
)

// bounded is the ring with a limit: no shard holds more than LoadFactor times its fair share, what does not fit goes on
// clockwise to the next with room. A small factor balances well and moves more, a large one is nearly the plain ring.
// Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads", SODA 2018.
//
// On ranges, and so on keys through the map, a load is the part of the space that a shard owns: the result is a fixed
// function of the shards. For loads that live, such as open connections or queue lengths, there is [Balancer].
type bounded struct{ Config }

func (bounded) Info() Info {
	return Info{
		Name: nameBounded, Summary: "the ring with an upper limit to every shard's share",
		Origin: "Mirrokni, Thorup, Zadimoghaddam, SODA 2018", Keys: keysByMap, Ranges: rangesArcs + ", cut where a shard is full", Weighted: true,
	}
}

func (b bounded) Keys(shards []Shard) (Placer, error) { return b.Ranges(nil, shards) }

func (b bounded) Ranges(_ *Map, shards []Shard) (*Map, error) {
	points, err := weightedRing(b).points(shards)
	if err != nil {
		return nil, err
	}
	room := b.limits(shards)
	l := list[uint64]{names: namesOf(shards)}
	fill := func(point int, lo uint64, length Extent) {
		for ; !length.IsZero(); point = (point + 1) % len(points) {
			owner := points[point].owner
			part := room[owner]
			if part.Cmp(length) > 0 {
				part = length
			}
			if part.IsZero() {
				continue
			}
			l.push(lo, owner)
			room[owner] = room[owner].sub(part)
			lo += part.low
			length = length.sub(part)
		}
	}
	var start uint64
	for i, p := range points {
		fill(i, start, extentOfRange(HashRange{Lo: start, Hi: p.at + 1}))
		start = p.at + 1
	}
	if start != 0 {
		fill(0, start, extentOfRange(HashRange{Lo: start}))
	}
	if idle := idleShards(l); idle > 0 {
		return nil, fmt.Errorf("%s leaves %d of %d shards without anything: use another hash of names", nameBounded, idle, len(shards))
	}
	return mapOf(l.compact()), nil
}

// slotRanges places whole slots under the same limit, one after another.
func (b bounded) slotRanges(slots int, shards []Shard) (*Map, error) {
	balancer, err := NewBalancer(shards, b.Config)
	if err != nil {
		return nil, err
	}
	return slotMap(nameBounded, slots, shards, func(slot int) int { return balancer.Acquire(slotKey(slot)) })
}

// limits is each shard's fair share times the load factor, rounded up, and no more than everything.
func (b bounded) limits(shards []Shard) []Extent {
	weights, total := integerWeights(shards)
	factor := new(big.Rat).SetFloat64(b.LoadFactor)
	everything := WholeSpace.bigInt()
	limits := make([]Extent, len(shards))
	for i, w := range weights {
		share := new(big.Rat).SetFrac(w.Mul(w, everything), total)
		share.Mul(share, factor)
		whole := new(big.Int).Quo(share.Num(), share.Denom())
		if limits[i] = WholeSpace; whole.Cmp(everything) < 0 {
			limits[i] = extentOf(whole.Add(whole, big.NewInt(1)))
		}
	}
	return limits
}

// Balancer places keys under live loads: each key on its ring's shard unless that has more than LoadFactor times its
// fair share of all that is held now, then on the next clockwise with room. For caches, connection pools and queues. Safe
// for concurrent use.
type Balancer struct {
	points []ringPoint
	share  []float64 // of all capacity
	factor float64
	ring   *Map // ranges are numbered like points

	mu    sync.Mutex
	loads []int
	total int
}

// NewBalancer returns a balancer over these shards with nothing held.
func NewBalancer(shards []Shard, config Config) (*Balancer, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	points, err := weightedRing{config}.points(shards)
	if err != nil {
		return nil, err
	}
	b := &Balancer{points: points, factor: config.LoadFactor, loads: make([]int, len(shards)), share: make([]float64, len(shards))}
	capacity := 0.0
	for _, s := range shards {
		capacity += s.weight()
	}
	for i, s := range shards {
		b.share[i] = s.weight() / capacity
	}
	l := list[uint64]{names: namesOf(shards)}
	var start uint64
	for _, p := range points {
		l.push(start, p.owner)
		start = p.at + 1
	}
	b.ring = mapOf(l)
	return b, nil
}

// Acquire takes one unit of load for the key and returns the shard that holds it; give it back with Release.
func (b *Balancer) Acquire(hash uint64) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.ring.find(hash)
	if hash > b.points[at].at { // after the last point comes the first
		at = 0
	}
	for b.full(b.points[at].owner) {
		at = (at + 1) % len(b.points)
	}
	owner := b.points[at].owner
	b.loads[owner]++
	b.total++
	return int(owner)
}

// full says whether one more would be too many. The limits of all shards add up to more than the total, so one has room.
func (b *Balancer) full(shard uint32) bool {
	limit := math.Ceil(b.factor * float64(b.total+1) * b.share[shard])
	return float64(b.loads[shard]) >= limit
}

// Release gives back one unit of load that Acquire took. Releasing more than was acquired panics: the count would be
// wrong from then on.
func (b *Balancer) Release(shard int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.loads[shard] == 0 {
		panic("placement: Release without Acquire")
	}
	b.loads[shard]--
	b.total--
}

// Loads returns what each shard holds now.
func (b *Balancer) Loads() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]int(nil), b.loads...)
}
