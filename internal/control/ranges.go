package control

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/rebalance"
	"github.com/cleavedb/cleave/internal/reshard"
	"github.com/cleavedb/cleave/internal/topology"
)

// SplitRanges divides ranges of a keyspace. No row moves: it is a change of the map alone.
func (c *Cluster) SplitRanges(ctx context.Context, name string, request api.SplitRanges) (api.KeyspaceChanged, error) {
	bySize, err := c.pointsBySize(ctx, name, request)
	if err != nil {
		return api.KeyspaceChanged{}, fmt.Errorf("keyspace %s: %w", name, err)
	}
	return c.changeRanges(ctx, name, func(k *topology.Keyspace) ([]topology.RangeSpec, error) {
		points, err := splitPoints(k, request, bySize)
		if err != nil {
			return nil, err
		}
		return reshard.SplitAt(k, points)
	})
}

// splitPoints are the points that a request names in one way or another.
func splitPoints(k *topology.Keyspace, request api.SplitRanges, bySize []topology.Point) ([]topology.Point, error) {
	points := slices.Clone(bySize)
	for _, p := range request.At {
		points = append(points, p)
	}
	if len(request.Key) > 0 {
		around, err := reshard.AroundKey(k, request.Key)
		if err != nil {
			return nil, err
		}
		points = append(points, around...)
	}
	if request.Middle && k.Strategy() != topology.ByRange {
		middle, err := reshard.Middle(k, request.Of)
		if err != nil {
			return nil, err
		}
		points = append(points, middle)
	}
	if len(points) == 0 {
		return nil, &InvalidError{Message: "it is not said where to split", Hint: "Name a point (--at), a key (--key), --middle, or a size (--by-size)."}
	}
	return points, nil
}

// pointsBySize asks shards where to divide ranges, if the request is about how much they have: those above a size, or one of raw keys in the middle of its rows.
func (c *Cluster) pointsBySize(ctx context.Context, name string, request api.SplitRanges) ([]topology.Point, error) {
	m, err := c.Map(ctx)
	if err != nil {
		return nil, err
	}
	k := m.Keyspace(name)
	if k == nil {
		return nil, &topology.NotFoundError{Kind: "keyspace", Name: name}
	}
	middle := request.Middle && k.Strategy() == topology.ByRange
	if !middle && request.BySize == 0 {
		return nil, nil
	}
	sizes, silent, err := c.measure(ctx, m)
	if err != nil {
		return nil, err
	}
	for _, shard := range silent {
		if owns(k, shard) {
			return nil, &InvalidError{Message: fmt.Sprintf("shard %s does not answer: nobody knows how much its ranges have", shard)}
		}
	}
	var points []topology.Point
	if request.BySize != 0 {
		if points, err = pointsAbove(m, sizes, name, request.BySize); err != nil {
			return nil, err
		}
	}
	if middle {
		point, err := middleOfRows(k, sizes, request.Of)
		if err != nil {
			return nil, err
		}
		points = append(points, point)
	}
	return points, nil
}

// pointsAbove are where ranges that have more than so many bytes are to be divided.
func pointsAbove(m *topology.Map, sizes rebalance.Sizes, name string, bytes int64) (points []topology.Point, err error) {
	found, err := rebalance.AutoSplit(m, sizes, rebalance.Thresholds{Bytes: bytes, Keyspaces: []string{name}})
	if err != nil {
		return nil, &InvalidError{Message: err.Error()}
	}
	for _, s := range found.Splits {
		points = append(points, s.At...)
	}
	if len(points) == 0 {
		return nil, &InvalidError{Message: strings.Join(append([]string{fmt.Sprintf("no range that could be divided has more than %d bytes", bytes)}, found.Warnings...), "; ")}
	}
	return points, nil
}

// middleOfRows is the key in the middle of the rows of the range in which a point lies, as far as sampled keys tell.
func middleOfRows(k *topology.Keyspace, sizes rebalance.Sizes, of topology.Point) (topology.Point, error) {
	at, err := k.EncodeBound(of)
	if err != nil {
		return nil, err
	}
	begin := ""
	for r := range k.Ranges() {
		if r.Key.Lo <= at {
			begin = r.Key.Lo
		}
	}
	for _, one := range sizes {
		for _, r := range one.Ranges {
			if lo, err := k.EncodeBound(r.From); one.Keyspace == k.Name() && err == nil && lo == begin && len(r.SplitAt) > 0 {
				return r.SplitAt[len(r.SplitAt)/2], nil
			}
		}
	}
	return nil, &InvalidError{Message: "the range has no rows, or all of one key: nobody knows its middle", Hint: "Name the key to split at: --at VALUE."}
}

// MergeRanges puts ranges together that follow each other and are the same shard's.
func (c *Cluster) MergeRanges(ctx context.Context, name string, request api.MergeRanges) (api.KeyspaceChanged, error) {
	return c.changeRanges(ctx, name, func(k *topology.Keyspace) ([]topology.RangeSpec, error) {
		merged, fewer, err := reshard.Merge(k, reshard.Range{From: request.From, To: request.To})
		if err == nil && fewer == 0 {
			err = &InvalidError{Message: "there are no ranges beside each other that are the same shard's", Hint: "Move one of them first: cleave move start."}
		}
		return merged, err
	})
}

// changeRanges gives a keyspace other ranges with the same owners.
func (c *Cluster) changeRanges(ctx context.Context, name string, change func(*topology.Keyspace) ([]topology.RangeSpec, error)) (api.KeyspaceChanged, error) {
	next, err := c.change(ctx, func(m *topology.Map) ([]topology.Change, error) {
		k := m.Keyspace(name)
		switch {
		case k == nil:
			return nil, &topology.NotFoundError{Kind: "keyspace", Name: name}
		case k.IsMoving():
			return nil, pgerr.New(pgerr.ObjectInUse, "ranges of keyspace %q cannot be changed", name).WithDetail("Rows of it are moving between shards.").WithHint("Wait until that is over: 'cleave move list' tells.")
		}
		ranges, err := change(k)
		if err != nil {
			return nil, err
		}
		return []topology.Change{topology.ReplaceRanges(name, ranges, k.Assignment())}, nil
	})
	if err != nil {
		return api.KeyspaceChanged{}, fmt.Errorf("keyspace %s: %w", name, err)
	}
	return api.KeyspaceChanged{MapVersion: next.Version(), Keyspace: api.DescribeKeyspace(next.Keyspace(name), true)}, nil
}
