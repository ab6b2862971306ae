package topology

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/placement/key"
)

// ErrNoActiveShard says that there is no shard to which ranges may be assigned.
var ErrNoActiveShard = errors.New("no shard is active: add one, or set one's state to active")

// Assign returns ranges of the hash space for the active shards, made by an algorithm of package placement, and the
// assignment to note with them.
func (m *Map) Assign(by Assignment) ([]RangeSpec, Assignment, error) {
	shards := m.assignable()
	if len(shards) == 0 {
		return nil, by, ErrNoActiveShard
	}
	if by.Slots > maxRanges || by.VirtualNodes > maxRanges/len(shards) {
		return nil, by, fmt.Errorf("%d slots or %d virtual nodes on each of %d shards would make more than %d ranges", by.Slots, by.VirtualNodes, len(shards), maxRanges)
	}
	algorithm, err := placement.New(by.Algorithm, placement.Config{Slots: by.Slots, VirtualNodes: by.VirtualNodes})
	if err != nil {
		return nil, by, err
	}
	assigned, err := algorithm.Ranges(nil, shards)
	if err != nil {
		return nil, by, fmt.Errorf("algorithm %s: %w", by.Algorithm, err)
	}
	by.Algorithm, by.Seats = algorithm.Info().Name, nil
	if seats := assigned.Shards(); !slices.EqualFunc(seats, shards, func(name string, s placement.Shard) bool { return name == s.Name }) {
		by.Seats = seats
	}
	ranges := make([]RangeSpec, 0, assigned.Len())
	for r := range assigned.All() {
		ranges = append(ranges, RangeSpec{From: formatHash(r.Lo), Shard: r.Owner})
	}
	return ranges, by, nil
}

// Split returns ranges of the key itself that begin at these points, dealt to the active shards in order.
func (m *Map) Split(types []string, points []Point) ([]RangeSpec, error) {
	shards := m.assignable()
	if len(shards) == 0 {
		return nil, ErrNoActiveShard
	}
	parsed := make([]key.Type, len(types))
	for i, name := range types {
		var err error
		if parsed[i], err = key.ParseType(name); err != nil {
			return nil, err
		}
	}
	encoded := make([]string, len(points))
	for i, p := range points {
		var err error
		if encoded[i], err = encodePoint(parsed, p); err != nil {
			return nil, fmt.Errorf("split at %s: %w", p, err)
		}
	}
	names := make([]string, len(shards))
	for i, s := range shards {
		names[i] = s.Name
	}
	assigned, err := placement.PreSplit(names, encoded...)
	if err != nil {
		return nil, err
	}
	ranges := make([]RangeSpec, 0, assigned.Len())
	for r := range assigned.All() {
		from, err := texts(parsed, r.Lo)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, RangeSpec{From: from, Shard: r.Owner})
	}
	return ranges, nil
}

// assignable lists the shards that may be given something new.
func (m *Map) assignable() []placement.Shard {
	var shards []placement.Shard
	for s := range m.Shards() {
		if s.State() == Active {
			shards = append(shards, placement.Shard{Name: s.Name(), Weight: s.Weight()})
		}
	}
	return shards
}
