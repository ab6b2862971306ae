package control

import (
	"context"
	"fmt"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// lowSequence is one on a shard that has given out most of its block.
type lowSequence struct {
	spec     topology.ShardSpec
	sequence shard.SmallSequence
}

// smallSequences asks every shard for the sequences that are given their numbers in blocks: up to where the blocks of each go, and which are low.
func (c *Cluster) smallSequences(ctx context.Context, m *topology.Map) (used map[string]int64, low []lowSequence, err error) {
	var tables []topology.TableName
	for _, t := range m.Tables() {
		if t.Kind() == topology.Sharded {
			tables = append(tables, t.Name())
		}
	}
	used = map[string]int64{}
	if len(tables) == 0 {
		return used, nil, nil
	}
	looks := each(specsOf(m), func(spec topology.ShardSpec) inspected {
		var result inspected
		result.err = c.connected(ctx, spec, func(ctx context.Context, s session) (err error) {
			result.sequences, err = shard.SmallSequences(ctx, s, tables)
			return err
		})
		return result
	})
	for _, look := range looks {
		if look.err != nil {
			return nil, nil, fmt.Errorf("shard %q: %w", look.spec.Name, look.err)
		}
		for _, s := range look.sequences {
			used[s.Name] = max(used[s.Name], s.Last)
			if s.Low {
				low = append(low, lowSequence{look.spec, s})
			}
		}
	}
	return used, low, nil
}

// refillNumbers gives sequences that are low another block. All shards are asked first, so that a block that the home shard has forgotten,
// because it was put back to an earlier state, is not given twice; while one is away nobody gets any.
func (c *Cluster) refillNumbers(ctx context.Context, m *topology.Map) error {
	used, low, err := c.smallSequences(ctx, m)
	if err != nil || len(low) == 0 {
		return err
	}
	return c.connected(ctx, m.Home().Spec(), func(ctx context.Context, home session) error {
		for _, s := range low {
			err := c.connected(ctx, s.spec, func(ctx context.Context, conn session) error {
				block, err := shard.Refill(ctx, home, conn, s.sequence, m.ShardCount(), used[s.sequence.Name])
				used[s.sequence.Name] = max(used[s.sequence.Name], block.Last)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}
