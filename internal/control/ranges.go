package control

import (
	"context"
	"fmt"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/reshard"
	"github.com/cleavedb/cleave/internal/topology"
)

// SplitRanges divides ranges of a keyspace. No row moves: it is a change of the map alone.
func (c *Cluster) SplitRanges(ctx context.Context, name string, request api.SplitRanges) (api.KeyspaceChanged, error) {
	return c.changeRanges(ctx, name, func(k *topology.Keyspace) ([]topology.RangeSpec, error) {
		points, err := splitPoints(k, request)
		if err != nil {
			return nil, err
		}
		return reshard.SplitAt(k, points)
	})
}

// splitPoints are the points that a request names in one way or another.
func splitPoints(k *topology.Keyspace, request api.SplitRanges) ([]topology.Point, error) {
	var points []topology.Point
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
	if request.Middle {
		middle, err := reshard.Middle(k, request.Of)
		if err != nil {
			return nil, err
		}
		points = append(points, middle)
	}
	if len(points) == 0 {
		return nil, &InvalidError{Message: "it is not said where to split", Hint: "Name a point (--at), a key (--key), or --middle."}
	}
	return points, nil
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
			return nil, &topology.InUseError{Kind: "keyspace", Name: name, By: "rows of it are moving between shards: wait until that is over"}
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
