package placement

import (
	"fmt"
	"math/bits"
	"slices"
)

// rendezvousFast is rendezvous without asking every shard. Highest random weight means: every key has a random order of
// all shards, the first that is there owns it. Here the order is not of shards but of seats, it is never written down,
// and it is read from the front until a seat turns out to be taken: about two looks, whatever the number of shards. The
// idea of a fixed skeleton with virtual places is Wang and Ravishankar's ("Hash-Based Virtual Hierarchies for Scalable
// Location Service", 2009); the nested order is our own.
//
// The seats are the numbers 0 … 2^d-1, the fewest that hold all shards. The order for 2^d seats is a shuffle of two: at
// every step a random bit takes the next seat from the order for 2^(d-1) seats or any seat of the upper half. While the
// upper half is empty, its seats are passed over and what is left is exactly the order for 2^(d-1) seats: so growing past
// a power of two moves nothing by itself.
//
// A shard's seat is its place in the list. To remove a shard without moving the others, leave its seat empty: the zero
// [Shard]; Ranges does so by itself when it starts from a map, and gives empty seats to newcomers first.
type rendezvousFast struct{ Config }

func (rendezvousFast) Info() Info {
	return Info{
		Name: nameRendezvousFast, Summary: "rendezvous over numbered seats, about two looks for any number of shards",
		Origin: "after Wang, Ravishankar 2009 (skeleton rendezvous)", Keys: keysDirect, Ranges: rangesSlots, Remembers: true,
	}
}

func (r rendezvousFast) Keys(shards []Shard) (Placer, error) { return newSeats(shards) }

func (r rendezvousFast) Ranges(from *Map, shards []Shard) (*Map, error) {
	seated := shards
	if from != nil {
		var err error
		if seated, err = keepSeats(from.names, shards); err != nil {
			return nil, err
		}
	}
	s, err := newSeats(seated)
	if err != nil {
		return nil, err
	}
	return slotMap(nameRendezvousFast, r.Slots, seated, func(slot int) int { return s.Place(slotKey(slot)) })
}

// keepSeats seats the shards where the map in force has them, newcomers on the seats that are free.
func keepSeats(before []string, shards []Shard) ([]Shard, error) {
	present := slices.DeleteFunc(slices.Clone(shards), Shard.vacant)
	if err := checkShards(present); err != nil {
		return nil, err
	}
	seats := make(map[string]int, len(before))
	for seat, name := range before {
		seats[name] = seat
	}
	seated := make([]Shard, len(before))
	var newcomers []Shard
	for _, s := range present {
		if seat, had := seats[s.Name]; had {
			seated[seat] = s
		} else {
			newcomers = append(newcomers, s)
		}
	}
	for seat := 0; seat < len(seated) && len(newcomers) > 0; seat++ {
		if seated[seat].vacant() {
			seated[seat], newcomers = newcomers[0], newcomers[1:]
		}
	}
	return append(seated, newcomers...), nil
}

// seats knows which seats are taken.
type seats struct {
	taken  []bool
	levels int // there are 2^levels seats, of which the first len(taken) can be taken
	sitter int // how many are taken
}

func newSeats(shards []Shard) (*seats, error) {
	present := slices.DeleteFunc(slices.Clone(shards), Shard.vacant)
	if err := checkUnweighted(nameRendezvousFast, present); err != nil {
		return nil, err
	}
	s := &seats{taken: make([]bool, len(shards)), levels: bits.Len(uint(len(shards) - 1)), sitter: len(present)}
	if s.levels > maxLevels {
		return nil, fmt.Errorf("%d seats are too many", len(shards))
	}
	for i, shard := range shards {
		s.taken[i] = !shard.vacant()
	}
	return s, nil
}

const (
	maxLevels = 31
	// manyLooks is when to stop hoping for a taken seat. With half of the seats taken it is reached once in 2^256 keys;
	// with nearly all of them empty the plain way is quicker from here on.
	manyLooks = 256
)

func (s *seats) Place(hash uint64) int {
	order := seatOrder{hash: hash, levels: s.levels}
	for range manyLooks {
		if seat := order.next(); seat < len(s.taken) && s.taken[seat] {
			return seat
		}
	}
	return s.plain(hash)
}

// plain scores every taken seat.
func (s *seats) plain(hash uint64) int {
	best, highest := -1, uint64(0)
	for seat, taken := range s.taken {
		if score := mix(hash ^ mix(uint64(seat)+golden)); taken && (best < 0 || score > highest) {
			best, highest = seat, score
		}
	}
	return best
}

func (s *seats) Replicas(dst []int, hash uint64, k int) []int {
	k = min(k, s.sitter)
	if k <= 0 {
		return dst
	}
	chosen := make(map[int]struct{}, k)
	take := func(seat int) {
		if _, twice := chosen[seat]; !twice && seat < len(s.taken) && s.taken[seat] {
			chosen[seat] = struct{}{}
			dst = append(dst, seat)
		}
	}
	take(s.Place(hash))
	order := seatOrder{hash: hash, levels: s.levels}
	for look := 0; len(chosen) < k && look < manyLooks*k; look++ {
		take(order.next())
	}
	for seat := 0; len(chosen) < k; seat++ {
		take(seat)
	}
	return dst
}

// seatOrder reads a key's order of seats from the front.
type seatOrder struct {
	hash   uint64
	levels int
	drawn  [maxLevels + 1]uint32 // how many random numbers each level has given
}

func (o *seatOrder) next() int {
	for level := o.levels; level > 0; level-- {
		o.drawn[level]++
		random := mix(o.hash + golden*(uint64(level)<<32|uint64(o.drawn[level])))
		if random>>63 == 1 { // the upper half of this level: any of its seats
			half := uint64(1) << (level - 1)
			return int(half | random&(half-1))
		}
	}
	return 0
}
