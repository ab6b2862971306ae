package rebalance

import (
	"fmt"
	"math"
	"slices"

	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement"
)

// Measure says what counts when shards are compared.
type Measure string

// The measures.
const (
	ByBytes Measure = "bytes"
	ByRows  Measure = "rows"
	ByLoad  Measure = "load"
	// ByWidth counts how much of the keyspace's order a range has: of the hash space exactly, and every range of raw keys alike. It stands in for bytes and rows where
	// neither is known of anything, as in a cluster that is still empty.
	ByWidth Measure = "width"
)

// Measures lists the measures.
func Measures() []Measure { return []Measure{ByBytes, ByRows, ByLoad, ByWidth} }

// Greedy is the algorithm that moves the fewest bytes. All others are placement's.
const Greedy = "greedy"

// Algorithms lists the algorithms by name, the default first.
func Algorithms() []string {
	names := []string{Greedy}
	for _, info := range placement.Algorithms() {
		names = append(names, info.Name)
	}
	return names
}

// DefaultTolerance is how far a shard may be from its share.
const DefaultTolerance = 0.05

// Options say what a plan is to reach, and within which limits. The zero value is the default.
type Options struct {
	// Algorithm is Greedy by default. Any other is one of placement's and decides about ranges of the hash alone: ranges of raw keys and pins then move only if they must.
	Algorithm string `json:"algorithm,omitempty"`
	// Slots and VirtualNodes are settings of placement's algorithms, 0 for what the keyspace has noted or else their default.
	Slots        int `json:"slots,omitempty"`
	VirtualNodes int `json:"virtual_nodes,omitempty"`
	// Keyspaces are the ones to look at, all by default. Others count for nothing.
	Keyspaces []string `json:"keyspaces,omitempty"`
	// Fixed are keyspaces of which everything stays where it is, though it counts.
	Fixed []string `json:"fixed,omitempty"`
	// Measure is what counts, bytes by default.
	Measure Measure `json:"measure,omitempty"`
	// Tolerance is how far a shard may be from its share, as a part of it; DefaultTolerance by default.
	Tolerance float64 `json:"tolerance,omitempty"`
	// MaxBytes bounds how many bytes move, and MaxMoves how many moves there are, each of them one keyspace from one shard to another. 0 is no limit.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	MaxMoves int   `json:"max_moves,omitempty"`
	// Rules bind keys to shards with a label.
	Rules []Rule `json:"rules,omitempty"`
	// Excluded are shards that neither give nor get, because they cannot be reached or are slow.
	Excluded []string `json:"excluded,omitempty"`
	// Split allows ranges to be cut: those of the hash anywhere, others where the caller measured that they can be, and all where a rule begins or ends.
	// Placement's algorithms cut whatever this says.
	Split bool `json:"split,omitempty"`
	// BytesPerSecond is how fast one move is, for the estimate of time; 0 means that there is none.
	BytesPerSecond int64 `json:"bytes_per_second,omitempty"`
}

// withDefaults fills in what is empty and checks the rest.
func (o Options) withDefaults(m *topology.Map) (Options, error) {
	if o.Algorithm == "" {
		o.Algorithm = Greedy
	}
	if o.Measure == "" {
		o.Measure = ByBytes
	}
	if o.Tolerance == 0 {
		o.Tolerance = DefaultTolerance
	}
	return o, o.check(m)
}

func (o Options) check(m *topology.Map) error {
	switch {
	case !slices.Contains(Measures(), o.Measure):
		return fmt.Errorf("measure %q is none of bytes, rows, load, width", o.Measure)
	case !(o.Tolerance > 0) || o.Tolerance >= 1:
		return fmt.Errorf("tolerance %v is not between 0 and 1", o.Tolerance)
	case o.MaxBytes < 0 || o.MaxMoves < 0 || o.BytesPerSecond < 0:
		return fmt.Errorf("a limit or rate is negative: %d bytes, %d moves, %d bytes per second", o.MaxBytes, o.MaxMoves, o.BytesPerSecond)
	case o.Slots < 0 || o.Slots > maxPieces || o.VirtualNodes < 0 || o.VirtualNodes > maxPieces/max(m.ShardCount(), 1):
		return fmt.Errorf("%d slots or %d virtual nodes on each of %d shards would make more than %d ranges", o.Slots, o.VirtualNodes, m.ShardCount(), maxPieces)
	}
	for _, name := range o.Excluded {
		if m.Shard(name) == nil {
			return &topology.NotFoundError{Kind: "shard", Name: name}
		}
	}
	if o.Algorithm == Greedy {
		return nil
	}
	_, err := placement.New(o.Algorithm, placement.Config{Slots: o.Slots, VirtualNodes: o.VirtualNodes})
	return err
}

// maxPieces is how many ranges a keyspace of a map can have.
const maxPieces = 1_000_000

// chosen returns the keyspaces of these names, all if there are none, in the order of their names.
func chosen(m *topology.Map, names []string) ([]*topology.Keyspace, error) {
	for _, name := range names {
		if m.Keyspace(name) == nil {
			return nil, &topology.NotFoundError{Kind: "keyspace", Name: name}
		}
	}
	keyspaces := m.Keyspaces()
	if len(names) == 0 {
		return keyspaces, nil
	}
	return slices.DeleteFunc(keyspaces, func(k *topology.Keyspace) bool { return !slices.Contains(names, k.Name()) }), nil
}

// scaled turns a measured load into a whole number, so that sums do not depend on their order.
func scaled(load float64) int64 { return int64(math.Round(load * loadScale)) }

// loadScale is how many parts a statement per second has here.
const loadScale = 1000
