package placement

import (
	"fmt"
	"math/bits"
)

// doubling goes from N shards to 2N by halving: every shard gives the upper half of each of its ranges to one new shard,
// its twin. Half of the data moves, each old shard talks to one new one only, and balance stays what it was. The practice
// of hash partitioning by bits, as in extendible hashing (Fagin et al., ACM TODS 4(3), 1979).
type doubling struct{ Config }

func (doubling) Info() Info {
	return Info{
		Name: nameDoubling, Summary: "N to 2N: every shard gives half of each range to one new shard",
		Origin: "extendible hashing, Fagin et al., ACM TODS 1979", Keys: keysByMap, Ranges: rangesOwn, Remembers: true,
	}
}

func (d doubling) Keys(shards []Shard) (Placer, error) { return d.Ranges(nil, shards) }

// Ranges without a map in force begins with the odd part of the number of shards and doubles from there, so that 20 shards
// are five, doubled twice.
func (d doubling) Ranges(from *Map, shards []Shard) (*Map, error) {
	if err := checkUnweighted(nameDoubling, shards); err != nil {
		return nil, err
	}
	if from == nil {
		base := shards[:len(shards)>>bits.TrailingZeros(uint(len(shards)))]
		from = dealtInOrder(newQuotas(base, 0).plain(), base)
	} else if err := checkDoubles(from.names, shards); err != nil {
		return nil, err
	}
	for len(from.names) < len(shards) {
		from = halved(from, namesOf(shards[:2*len(from.names)]))
	}
	return from, nil
}

// checkDoubles says whether the shards are those before, in order, and as many again (or four times as many, and so on).
func checkDoubles(before []string, shards []Shard) error {
	factor := len(shards) / len(before)
	if len(shards)%len(before) != 0 || bits.OnesCount(uint(factor)) != 1 {
		return fmt.Errorf("%s goes from %d shards to %d or stays, not to %d", nameDoubling, len(before), 2*len(before), len(shards))
	}
	for i, name := range before {
		if shards[i].Name != name {
			return fmt.Errorf("%s keeps all shards in their order: shard %d was %q, not %q", nameDoubling, i, name, shards[i].Name)
		}
	}
	return nil
}

// halved gives the upper half of every range to the owner's twin. A range of a single hash has no halves and stays.
func halved(m *Map, names []string) *Map {
	l := list[uint64]{names: names}
	for i, owner := range m.owners {
		r := m.bounds(i)
		l.push(r.Lo, owner)
		last := r.Hi - 1
		if middle := r.Lo + (last-r.Lo)/2 + 1; last > r.Lo {
			l.push(middle, owner+uint32(len(m.names)))
		}
	}
	return mapOf(l)
}
