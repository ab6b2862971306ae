package api

import (
	"maps"
	"slices"

	"github.com/cleavedb/cleave/internal/topology"
)

// DescribeKeyspace returns a keyspace as the API shows it, with its ranges or without.
func DescribeKeyspace(k *topology.Keyspace, withRanges bool) Keyspace {
	described := Keyspace{
		KeyspaceHead: k.Head(), RangeCount: k.RangeCount(), PinCount: k.PinCount(), Shares: sharesOf(k),
	}
	if withRanges {
		described.Ranges = k.Spec().Ranges
	}
	return described
}

// sharesOf adds up what each shard has of the keyspace.
func sharesOf(k *topology.Keyspace) []Share {
	byNumber := map[int]Share{}
	note := func(s *topology.Shard, ranges, pins int) {
		share := byNumber[s.Number()]
		share.Shard = s.Name()
		share.Ranges += ranges
		share.Pins += pins
		byNumber[s.Number()] = share
	}
	for r := range k.Ranges() {
		note(r.Owner, 1, 0)
	}
	for p := range k.Pins() {
		note(p.Owner, 0, 1)
	}
	if hashes := k.Hashes(); hashes != nil {
		for number, extent := range hashes.Extents() {
			if share, there := byNumber[number]; there {
				share.Share = extent.Share()
				byNumber[number] = share
			}
		}
	}
	shares := make([]Share, 0, len(byNumber))
	for _, number := range slices.Sorted(maps.Keys(byNumber)) {
		shares = append(shares, byNumber[number])
	}
	return shares
}
