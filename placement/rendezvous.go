package placement

import (
	"cmp"
	"slices"
)

// rendezvous is highest random weight: every shard gets a score from the key's and its own hash, the highest wins.
// Balance is that of the hash itself, a new shard takes exactly what it wins, a removed one's keys go to their second
// best. Costs a look at every shard. Thaler, Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", IEEE/ACM
// Transactions on Networking 6(1), 1998.
type rendezvous struct{ Config }

func (rendezvous) Info() Info {
	return Info{
		Name: nameRendezvous, Summary: "every shard scores every key, the highest score owns it; O(shards)",
		Origin: "Thaler, Ravishankar, IEEE/ACM ToN 1998", Keys: keysDirect, Ranges: rangesSlots,
	}
}

func (r rendezvous) Keys(shards []Shard) (Placer, error) { return r.scorer(shards) }

func (r rendezvous) Ranges(_ *Map, shards []Shard) (*Map, error) {
	s, err := r.scorer(shards)
	if err != nil {
		return nil, err
	}
	return slotMap(nameRendezvous, r.Slots, shards, func(slot int) int { return s.Place(slotKey(slot)) })
}

func (r rendezvous) scorer(shards []Shard) (scorer, error) {
	if err := checkUnweighted(nameRendezvous, shards); err != nil {
		return nil, err
	}
	s := make(scorer, len(shards))
	for i, shard := range shards {
		s[i] = r.NodeHash(shard.Name)
	}
	return s, nil
}

// scorer has the shards' hashes.
type scorer []uint64

func (s scorer) score(hash uint64, shard int) uint64 { return mix(hash ^ s[shard]) }

func (s scorer) Place(hash uint64) int {
	best, highest := 0, s.score(hash, 0)
	for i := 1; i < len(s); i++ {
		if score := s.score(hash, i); score > highest {
			best, highest = i, score
		}
	}
	return best
}

func (s scorer) Replicas(dst []int, hash uint64, k int) []int {
	return topScores(dst, k, len(s), func(a, b int) int { return cmp.Compare(s.score(hash, b), s.score(hash, a)) })
}

// topScores appends the k best of n shards; better says which of two comes first.
func topScores(dst []int, k, n int, better func(a, b int) int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, better)
	return append(dst, order[:min(max(k, 0), n)]...)
}
