package control

import (
	"context"
	"sync"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// DiffSchema compares the tables of the shards with the map and with each other. A change of the schema that runs at the same time
// can be found on one shard and not on another: who looks again sees whether that lasts.
func (c *Cluster) DiffSchema(ctx context.Context) ([]api.Finding, error) {
	m, err := c.Map(ctx)
	if err != nil {
		return nil, err
	}
	specs := specsOf(m)
	var lock sync.Mutex
	found := map[string]*shard.SchemaLook{}
	looks := each(specs, func(spec topology.ShardSpec) (result inspected) {
		result.err = c.connectedFor(ctx, recordTimeout, spec, func(ctx context.Context, s session) error {
			look, err := shard.LookAtSchema(ctx, s, m, spec.Name)
			lock.Lock()
			defer lock.Unlock()
			found[spec.Name] = look
			return err
		})
		return result
	})
	var findings []api.Finding
	var compared []*shard.SchemaLook
	for _, look := range looks {
		if look.err != nil {
			findings = append(findings, unreachable(look.spec, api.Problem, "its tables were not compared", look.err))
			continue
		}
		compared = append(compared, found[look.spec.Name])
	}
	state, err := c.config.Store.Schema(ctx)
	if err != nil {
		return nil, err
	}
	return append(findings, shard.DiffSchemasDuring(m, compared, state.Rollouts)...), nil
}
