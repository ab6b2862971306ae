package control

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

// Differences lists, for people, what the next map would look for elsewhere than the one before it: ranges, pins and tables
// that change their owner, and keyspaces that hash differently.
func Differences(before, next *topology.Map) []string {
	var found []string
	for _, k := range before.Keyspaces() {
		found = append(found, keyspaceDifferences(k, next.Keyspace(k.Name()))...)
	}
	for _, t := range before.Tables() {
		now := next.Table(t.Name().Schema, t.Name().Name)
		switch {
		case now == nil:
			found = append(found, fmt.Sprintf("table %s is not in it", t.Name()))
		case tableText(t) != tableText(now):
			found = append(found, fmt.Sprintf("table %s is %s, was %s", t.Name(), tableText(now), tableText(t)))
		}
	}
	return found
}

func tableText(t *topology.Table) string {
	spec := t.Spec()
	switch spec.Kind {
	case topology.Sharded:
		text := []string{fmt.Sprintf("sharded by %s in keyspace %s", strings.Join(spec.Key, ", "), spec.Keyspace)}
		for _, id := range spec.IDs {
			text = append(text, fmt.Sprintf("found by %s from %d on", id.Column, id.Floor))
		}
		if len(spec.MadeKeys) > 0 {
			text = append(text, "with "+strings.Join(spec.MadeKeys, ", ")+" made by shards")
		}
		return strings.Join(text, ", ")
	case topology.Single:
		return "single on " + spec.Shard
	default:
		return string(spec.Kind)
	}
}

func keyspaceDifferences(before, next *topology.Keyspace) []string {
	name := before.Name()
	if next == nil {
		return []string{fmt.Sprintf("keyspace %s is not in it", name)}
	}
	a, b := before.Head(), next.Head()
	if a.Strategy != b.Strategy || !slices.Equal(a.Key, b.Key) || a.Seed != b.Seed {
		return []string{fmt.Sprintf("keyspace %s has another strategy, key or seed: every row would be looked for elsewhere", name)}
	}
	return append(rangeDifferences(before, next), pinDifferences(before, next)...)
}

func rangeDifferences(before, next *topology.Keyspace) []string {
	var found []string
	add := func(lo, hi, from, to string) {
		found = append(found, fmt.Sprintf("keyspace %s: the range from %s to %s is on %s, was on %s", before.Name(), lo, hi, to, from))
	}
	if before.Hashes() != nil {
		for _, move := range before.Hashes().Diff(next.Hashes()).Moves {
			hi := "the end"
			if move.Hi != 0 {
				hi = fmt.Sprintf("%016x", move.Hi)
			}
			add(fmt.Sprintf("%016x", move.Lo), hi, move.From, move.To)
		}
		return found
	}
	for _, move := range before.Keys().Diff(next.Keys()) {
		add(boundText(before, move.Lo, "the beginning"), boundText(before, move.Hi, "the end"), move.From, move.To)
	}
	return found
}

func boundText(k *topology.Keyspace, encoded, open string) string {
	if encoded == "" {
		return open
	}
	point, err := k.Texts(encoded)
	if err != nil {
		return fmt.Sprintf("%x", encoded)
	}
	return point.String()
}

// pinDifferences compares where keys that are pinned in either map go in both.
func pinDifferences(before, next *topology.Keyspace) []string {
	pinned := map[string]string{}
	for p := range before.Pins() {
		pinned[p.Encoded] = p.Owner.Name()
	}
	var keys []string
	for p := range next.Pins() {
		if owner, both := pinned[p.Encoded]; !both || owner != p.Owner.Name() {
			keys = append(keys, p.Encoded)
		}
		delete(pinned, p.Encoded)
	}
	for encoded := range pinned { // no pins any more
		keys = append(keys, encoded)
	}
	slices.Sort(keys)
	var found []string
	for _, encoded := range slices.Compact(keys) {
		was, is := ownerOf(before, encoded), ownerOf(next, encoded)
		if was != is {
			found = append(found, fmt.Sprintf("keyspace %s: key %s is on %s, was on %s", before.Name(), boundText(before, encoded, ""), is, was))
		}
	}
	return found
}

// ownerOf finds where an encoded key goes.
func ownerOf(k *topology.Keyspace, encoded string) string {
	var values []key.Value
	for _, t := range k.KeyTypes() {
		value, rest, err := t.CutOrdered(encoded)
		if err != nil {
			return "unknown"
		}
		values, encoded = append(values, value), rest
	}
	place, err := k.Locate(values...)
	if err != nil {
		return "unknown"
	}
	return place.Shard.Name()
}
