package control

import (
	"context"
	"fmt"
	"sync"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/internal/txn"
)

// doubts says, by table, why the home shard's rows must not be taken for right without a person's word: a home shard that has lost something itself would
// take it away from the copies too. state is which server it is, and on which timeline.
//
// What it has lost lately, the marks of transactions on the other shards tell. They are deleted after some minutes; a promoted or restored server is known by
// its timeline, which is another than that with which copies were last found equal.
func (c *Cluster) doubts(ctx context.Context, m *topology.Map, tables []topology.TableName, state string) map[topology.TableName]string {
	doubts := map[topology.TableName]string{}
	if len(tables) == 0 {
		return doubts
	}
	lost, err := txn.LostBy(ctx, c.transactions(), m.Home())
	equal, failure := c.wereEqual(ctx, m, tables, state)
	for _, table := range tables {
		switch {
		case err != nil:
			doubts[table] = fmt.Sprintf("it is not known whether the home shard has lost transactions: %v", err)
		case lost > 0:
			doubts[table] = fmt.Sprintf("the home shard has lost transactions over several shards (%d), so its rows may be the wrong ones", lost)
		case equal[table]:
		case failure != nil:
			doubts[table] = fmt.Sprintf("it is not known whether the home shard was restored: %v", failure)
		default:
			doubts[table] = "the home shard was promoted or restored since the copies were last found equal, or they never were, so its rows may be the wrong ones"
		}
	}
	return doubts
}

// wereEqual says of which tables some copy was equal to the home shard's when that was this server on this timeline. An error is about shards that could not
// be asked.
func (c *Cluster) wereEqual(ctx context.Context, m *topology.Map, tables []topology.TableName, state string) (map[topology.TableName]bool, error) {
	equal := map[topology.TableName]bool{}
	var lock sync.Mutex
	var failure error
	for _, look := range each(specsOf(m), func(spec topology.ShardSpec) inspected {
		if spec.Name == m.Home().Name() {
			return inspected{}
		}
		return inspected{err: c.connected(ctx, spec, func(ctx context.Context, s session) error {
			for _, table := range tables {
				was, err := shard.WasEqual(ctx, s, table, state)
				if err != nil {
					return err
				}
				if was {
					lock.Lock()
					equal[table] = true
					lock.Unlock()
				}
			}
			return nil
		})}
	}) {
		if look.err != nil {
			failure = fmt.Errorf("shard %q: %w", look.spec.Name, look.err)
		}
	}
	return equal, failure
}
