package traffic

import "github.com/cleavedb/cleave/internal/topology"

// Rates are how many statements a second all routers together send for keys of a keyspace.
type Rates struct {
	// Ranges has a rate for each range, in the map's order. One of 0 was not told: it is part of the rest, if there is one.
	Ranges []float64
	// Pins has those that were told, by the encoded key.
	Pins map[string]float64
	// Rest is for keys of which it is not known in which range they are, and Unbound of statements that go to all shards.
	Rest, Unbound float64
}

// Sum adds up what reports say of a keyspace. What they say of ranges that are others in this map, because they were divided or joined since, is shared out over those that have
// the same keys. It says false if no report says anything.
func Sum(k *topology.Keyspace, reports []Report) (rates Rates, known bool) {
	rates = Rates{Ranges: make([]float64, k.RangeCount()), Pins: map[string]float64{}}
	l := layoutOf(k)
	for _, r := range reports {
		for _, one := range r.Keyspaces {
			if one.Name == k.Name() {
				known = true
				rates.add(k, &l, one)
			}
		}
	}
	return rates, known
}

func (r *Rates) add(k *topology.Keyspace, l *layout, told KeyspaceReport) {
	r.Rest += told.Rest
	r.Unbound += told.Unbound
	for _, one := range told.Ranges {
		lo, err := boundOf(k, one.From)
		hi, err2 := boundOf(k, one.To)
		if err != nil || err2 != nil || hi != "" && hi <= lo {
			r.Rest += one.PerSecond // it is of a keyspace that had this name before
			continue
		}
		for at, share := range l.portions(span{lo, hi}) {
			r.Ranges[at] += one.PerSecond * share
		}
	}
	pinned := map[string]bool{}
	if len(told.Pins) > 0 {
		for pin := range k.Pins() {
			pinned[pin.Encoded] = true
		}
	}
	for _, one := range told.Pins {
		encoded, err := k.Encode(one.Key)
		if err != nil || !pinned[encoded] {
			r.Rest += one.PerSecond
			continue
		}
		r.Pins[encoded] += one.PerSecond
	}
}
