package control

import (
	"context"
	"slices"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// SagasRequest says which sagas are wanted.
type SagasRequest struct {
	// State is the one that counts; empty: all that have not ended. Type is the only type that does; empty: all do.
	State, Type string
	// Limit is how many are wanted at most, the oldest first.
	Limit int
}

// Sagas lists sagas of all shards: none if package saga was never installed. A shard that cannot be asked is a finding, and the others are listed.
func (c *Cluster) Sagas(ctx context.Context, request SagasRequest) (api.SagaList, error) {
	m, err := c.Map(ctx)
	if err != nil {
		return api.SagaList{}, err
	}
	filter := shard.SagaFilter{States: shard.OpenSagaStates(), Type: request.Type, Limit: request.Limit + 1}
	if request.State != "" {
		filter.States = []string{request.State}
	}
	shards := shard.SagaShards(m)
	specs := make([]topology.ShardSpec, len(shards))
	for i, s := range shards {
		specs[i] = s.Spec()
	}
	sagas := make([][]shard.Saga, len(shards)) // each look has its own
	looks := each(specs, func(spec topology.ShardSpec) (result inspected) {
		at := slices.IndexFunc(specs, func(s topology.ShardSpec) bool { return s.Number == spec.Number })
		sagas[at], result.err = c.sagasOn(ctx, spec, filter)
		return result
	})
	list := api.SagaList{Sagas: []api.Saga{}, Findings: []api.Finding{}}
	for i, look := range looks {
		if look.err != nil {
			list.Findings = append(list.Findings, unreachable(look.spec, api.Problem, "its sagas are not listed", look.err))
		}
		for _, s := range shard.OwnSagas(m, shards[i], sagas[i]) {
			list.Sagas = append(list.Sagas, describeSaga(shards[i].Name(), s))
		}
	}
	slices.SortStableFunc(list.Sagas, func(a, b api.Saga) int { return a.Created.Compare(b.Created) })
	if list.More = len(list.Sagas) > request.Limit; list.More {
		list.Sagas = list.Sagas[:request.Limit]
	}
	return list, nil
}

// sagasOn asks one shard. Policies on the table are not run in the cluster's own name: where there are any, the answer is an error.
func (c *Cluster) sagasOn(ctx context.Context, spec topology.ShardSpec, filter shard.SagaFilter) (sagas []shard.Saga, err error) {
	err = c.connected(ctx, spec, func(ctx context.Context, s session) error {
		ask := func(ctx context.Context, sql string) ([][]string, error) { return askPlainly(ctx, s, sql) }
		if _, err := ask(ctx, "SET row_security = off"); err != nil {
			return err
		}
		sagas, err = shard.Sagas(ctx, ask, filter)
		return err
	})
	return sagas, err
}

func describeSaga(on string, s shard.Saga) api.Saga {
	return api.Saga{
		ID: s.ID, Type: s.Type, Key: s.Key, Shard: on, IdempotencyKey: s.IdempotencyKey, State: s.State, Step: s.Step, Attempts: s.Attempts, AgeSeconds: s.Age.Seconds(),
		Created: s.Created.UTC(), Due: s.Due.UTC(), Holder: s.Holder, LastError: s.LastError, FailedStep: s.FailedStep, Failure: s.Failure, Note: s.Note,
	}
}
