package shard

import "github.com/cleavedb/cleave/internal/topology"

// Presence says which keys of a keyspace may have rows on which shard: those that it owns, and those of which a move has a copy there. It never changes and is safe for concurrent use.
type Presence struct {
	keyspace *topology.Keyspace
	ranges   map[int][]topology.Range // by the shard's number, in order
	pins     map[int][]guardPin       // those that are elsewhere than their ranges, as each shard has to see it
}

// PresenceOf goes through the keyspace once, for all shards.
func PresenceOf(k *topology.Keyspace) *Presence {
	p := &Presence{keyspace: k, ranges: map[int][]topology.Range{}, pins: map[int][]guardPin{}}
	var copied []topology.Range
	for r := range k.Ranges() {
		for number := range holders(r.Owner, r.Copies) {
			p.ranges[number] = append(p.ranges[number], r)
		}
		if len(r.Copies) > 0 {
			copied = append(copied, r)
		}
	}
	for pin := range k.Pins() {
		p.addPin(pin, copied)
	}
	return p
}

// holders are the numbers of the shards that may have rows of a range or pin.
func holders(owner *topology.Shard, copies []topology.Copy) map[int]bool {
	numbers := map[int]bool{owner.Number(): true}
	for _, c := range copies {
		numbers[c.Shard.Number()] = true
	}
	return numbers
}

// addPin notes a pin wherever its rows may be and those of its range may not, or the other way around.
func (p *Presence) addPin(pin topology.Pin, copied []topology.Range) {
	k := p.keyspace
	values := valuesOf(k, pin.Encoded)
	hash := k.Hash(values...)
	byRange := map[int]bool{}
	if hashes := k.Hashes(); hashes != nil {
		byRange[hashes.Lookup(hash)] = true
	} else {
		byRange[k.Keys().Lookup(pin.Encoded)] = true
	}
	for _, r := range copied {
		if k.Hashes() != nil && r.Hash.Contains(hash) || k.Hashes() == nil && r.Key.Contains(pin.Encoded) {
			byRange = holders(r.Owner, r.Copies)
		}
	}
	byPin := holders(pin.Owner, pin.Copies)
	note := func(number int, here bool) {
		row := guardPin{Hash: int64(hash), Here: here}
		for _, value := range values {
			row.Key = append(row.Key, sent(value))
		}
		p.pins[number] = append(p.pins[number], row)
	}
	for number := range byPin {
		if !byRange[number] {
			note(number, true)
		}
	}
	for number := range byRange {
		if !byPin[number] {
			note(number, false)
		}
	}
}

// Part returns which rows of a table of the keyspace may be on a shard.
func (p *Presence) Part(s *topology.Shard, t *topology.Table) Part {
	return Part{
		table: t.Name(), ownership: ownership{keyspace: p.keyspace, ranges: p.ranges[s.Number()]}, columns: newColumns(rowAlias, t.KeyColumns()), pins: p.pins[s.Number()],
	}
}

// others is the condition for rows that are not in the part, those without a key among them. The session must have been given the pins by [Part.CarryPins].
func (p Part) others() (string, error) {
	where, err := p.condition(carriedPins)
	return "(" + where + ") IS NOT TRUE", err
}
