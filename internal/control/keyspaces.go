package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/topology"
)

// defaultAlgorithm makes the ranges of a keyspace that named no other: even slots, which divide and move simply.
const defaultAlgorithm = "slots"

// CreateKeyspace adds a keyspace, its ranges dealt to the active shards.
func (c *Cluster) CreateKeyspace(ctx context.Context, request api.CreateKeyspace) (api.KeyspaceChanged, error) {
	if request.Strategy == "" {
		request.Strategy = topology.ByHash
	}
	if err := checkKeyspace(request); err != nil {
		return api.KeyspaceChanged{}, err
	}
	if len(request.Key) == 0 && request.Strategy != topology.BySchema {
		request.Key = []string{"bigint"}
	}
	seed, err := seedOf(request.Seed)
	if err != nil {
		return api.KeyspaceChanged{}, err
	}
	next, err := c.change(ctx, func(m *topology.Map) ([]topology.Change, error) {
		spec := topology.NewKeyspaceSpec(request.Name, request.Strategy, seed, request.Key...)
		var err error
		if request.Strategy == topology.ByRange {
			spec.Ranges, err = m.Split(request.Key, request.SplitAt)
		} else {
			spec.Ranges, spec.Assignment, err = m.Assign(topology.Assignment{
				Algorithm: cmp.Or(request.Algorithm, defaultAlgorithm), Slots: request.Slots, VirtualNodes: request.VirtualNodes,
			})
		}
		return []topology.Change{topology.CreateKeyspace(spec)}, err
	})
	if err != nil {
		return api.KeyspaceChanged{}, err
	}
	return api.KeyspaceChanged{MapVersion: next.Version(), Keyspace: api.DescribeKeyspace(next.Keyspace(request.Name), false)}, nil
}

// checkKeyspace refuses settings that the strategy would not look at.
func checkKeyspace(request api.CreateKeyspace) error {
	byRange := request.Strategy == topology.ByRange
	switch {
	case byRange && (request.Algorithm != "" || request.Slots != 0 || request.VirtualNodes != 0):
		return &InvalidError{Message: "a keyspace by range has no algorithm, slots or virtual nodes", Hint: "Say where to split it: --split-at VALUE."}
	case byRange && request.Seed != "":
		return invalidf("a keyspace by range does not hash, so it has no seed")
	case request.Slots < 0 || request.VirtualNodes < 0:
		return invalidf("the number of slots or virtual nodes is negative")
	case request.Slots != 0 && ringed(request.Algorithm):
		return &InvalidError{Message: fmt.Sprintf("algorithm %s has no slots", request.Algorithm), Hint: "It has --virtual-nodes; or choose another algorithm."}
	case request.VirtualNodes != 0 && !ringed(request.Algorithm):
		return &InvalidError{Message: fmt.Sprintf("algorithm %s has no virtual nodes", cmp.Or(request.Algorithm, defaultAlgorithm)), Hint: "It has --slots; or choose a ring."}
	case !byRange && len(request.SplitAt) > 0:
		return &InvalidError{Message: "only a keyspace by range is split at keys", Hint: "Use --strategy range, or leave the points out."}
	}
	return nil
}

// ringed says whether an algorithm puts virtual nodes on a ring, rather than placing slots.
func ringed(algorithm string) bool {
	return slices.Contains([]string{"ring", "ring32", "weighted-ring"}, algorithm)
}

// seedOf reads a seed, or draws one: an attacker who chooses keys must not know where they go.
func seedOf(text string) (int64, error) {
	if text == "" {
		var random [8]byte
		_, _ = rand.Read(random[:]) // never fails
		return int64(binary.LittleEndian.Uint64(random[:])), nil
	}
	seed, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, invalidf("seed %q is not a signed 64-bit number", text)
	}
	return seed, nil
}

// DropKeyspace removes a keyspace that nothing uses.
func (c *Cluster) DropKeyspace(ctx context.Context, name string) (api.MapChanged, error) {
	next, err := c.change(ctx, func(*topology.Map) ([]topology.Change, error) {
		return []topology.Change{topology.DropKeyspace(name)}, nil
	})
	if err != nil {
		return api.MapChanged{}, err
	}
	return api.MapChanged{MapVersion: next.Version(), Cluster: next.Cluster()}, nil
}
