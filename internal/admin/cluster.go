package admin

import (
	"context"
	"errors"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/control"
	"github.com/cleavedb/cleave/internal/topology"
)

// Cluster has the operations that the API offers. Package control has the real one.
type Cluster interface {
	// Status returns the state of the cluster as this process sees it.
	Status(ctx context.Context) (api.Status, error)
	// Map returns the newest map, or the last one known while etcd is away.
	Map(ctx context.Context) (*topology.Map, error)
	// Create makes the first map of a new cluster.
	Create(ctx context.Context) (api.MapChanged, error)
	// Import puts a map in force, or tells what that would change. Another version in force than it was told to expect is a
	// [store.ConflictError].
	Import(ctx context.Context, request api.ImportMap) (api.MapChanged, error)
	// Rebuild makes the map anew from what the shards have recorded.
	Rebuild(ctx context.Context, request api.RebuildMap) (api.RebuiltMap, error)
	// CheckMap holds the map against what the shards have recorded.
	CheckMap(ctx context.Context) ([]api.Finding, error)
	// DiffSchema compares the tables of the shards with the map and with each other.
	DiffSchema(ctx context.Context) ([]api.Finding, error)
	// AddShard checks a server and makes it a shard.
	AddShard(ctx context.Context, request api.AddShard) (api.ShardChanged, error)
	// RemoveShard removes a shard that has nothing.
	RemoveShard(ctx context.Context, name string) (api.ShardChanged, error)
	// UpdateShard changes some of a shard's properties.
	UpdateShard(ctx context.Context, name string, request api.UpdateShard) (api.ShardChanged, error)
	// Shards lists the shards and how they are.
	Shards(ctx context.Context) ([]api.ShardStatus, error)
	// CreateKeyspace makes a keyspace.
	CreateKeyspace(ctx context.Context, request api.CreateKeyspace) (api.KeyspaceChanged, error)
	// DropKeyspace removes a keyspace that nothing uses.
	DropKeyspace(ctx context.Context, name string) (api.MapChanged, error)
	// Traffic tells how busy the ranges and pins of a keyspace are.
	Traffic(ctx context.Context, k *topology.Keyspace) ([]api.RangeTraffic, error)
	// ShardTables makes tables sharded ones.
	ShardTables(ctx context.Context, request control.ShardTablesRequest) (api.TablesChanged, error)
	// ReferenceTables makes tables reference tables.
	ReferenceTables(ctx context.Context, request control.TablesRequest) (api.TablesChanged, error)
	// UndistributeTables lets tables be on the home shard alone again.
	UndistributeTables(ctx context.Context, request control.TablesRequest) (api.TablesChanged, error)
	// SplitRanges divides ranges of a keyspace, and MergeRanges puts them together. No row moves.
	SplitRanges(ctx context.Context, keyspace string, request api.SplitRanges) (api.KeyspaceChanged, error)
	MergeRanges(ctx context.Context, keyspace string, request api.MergeRanges) (api.KeyspaceChanged, error)
	// PlanRebalance proposes moves that make shards even, and ApplyRebalance starts those of a plan.
	PlanRebalance(ctx context.Context, request api.PlanRebalance) (api.RebalancePlan, error)
	ApplyRebalance(ctx context.Context, id string) (api.MoveList, error)
	// Automation tells what the leader may do by itself, and UpdateAutomation changes that.
	Automation(ctx context.Context) (api.Automation, error)
	UpdateAutomation(ctx context.Context, request api.UpdateAutomation) (api.Automation, error)
	// StartMoves asks for rows to be moved from shards to another. Moves lists moves, Move reads one, WishMove says what is to become of it, and ThrottleMove what slows it down.
	StartMoves(ctx context.Context, request api.StartMove) (api.MoveList, error)
	Moves(ctx context.Context) (api.MoveList, error)
	Move(ctx context.Context, id string) (api.Move, error)
	WishMove(ctx context.Context, id, wish string) (api.Move, error)
	ThrottleMove(ctx context.Context, id string, limits api.MoveLimits) (api.Move, error)
	// Sagas lists sagas of applications.
	Sagas(ctx context.Context, request control.SagasRequest) (api.SagaList, error)
	// CheckCopies compares the copies of reference tables, and repairs them.
	CheckCopies(ctx context.Context, request control.CopiesRequest) (api.CopiesChecked, error)
	// Verify looks whether rows are where they belong, and repairs them.
	Verify(ctx context.Context, request control.VerifyRequest) (api.Verified, error)
	// Rollouts lists changes of the schema that go from shard to shard.
	Rollouts(ctx context.Context) ([]topology.Rollout, error)
	// BeginRollout opens one, NextRollout applies it to one more shard, FinishRollout to all that are left, and UndoRollout takes it back.
	BeginRollout(ctx context.Context, request control.RolloutBegin) (api.RolloutChanged, error)
	NextRollout(ctx context.Context, step control.RolloutStep) (api.RolloutChanged, error)
	FinishRollout(ctx context.Context, step control.RolloutStep) (api.RolloutChanged, error)
	UndoRollout(ctx context.Context, step control.RolloutStep) (api.RolloutChanged, error)
	// Transactions lists the transactions over several shards that are not over; ResolveTransaction does what a person has decided for one.
	Transactions(ctx context.Context) (api.Transactions, error)
	ResolveTransaction(ctx context.Context, id, how string) (string, error)
}

// appliedIn is the readiness of a process that has no word of its own on it.
func appliedIn(cluster Cluster) func() error {
	return func() error {
		status, err := cluster.Status(context.Background())
		if err != nil {
			return err
		}
		if status.MapVersion == 0 {
			return errors.New("no shard map is applied yet")
		}
		return nil
	}
}
