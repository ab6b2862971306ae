package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/rebalance"
	"github.com/cleavedb/cleave/internal/topology"
)

// PlanRebalance measures the shards and plans moves that make them even. The plan is kept, and nothing happens before it is applied. Shards that do not answer neither give nor get anything.
func (c *Cluster) PlanRebalance(ctx context.Context, request api.PlanRebalance) (api.RebalancePlan, error) {
	m, err := c.Map(ctx)
	if err != nil {
		return api.RebalancePlan{}, err
	}
	sizes, silent, err := c.measure(ctx, m)
	if err != nil {
		return api.RebalancePlan{}, err
	}
	return c.planFor(ctx, m, sizes, silent, request)
}

// planFor plans by what was measured, and keeps the plan.
func (c *Cluster) planFor(ctx context.Context, m *topology.Map, sizes rebalance.Sizes, silent []string, request api.PlanRebalance) (api.RebalancePlan, error) {
	options := rebalance.Options{
		Algorithm: request.Algorithm, Measure: rebalance.Measure(request.Measure), Tolerance: request.Tolerance, Keyspaces: request.Keyspaces, MaxBytes: request.MaxBytes, MaxMoves: request.MaxMoves,
		Split: request.Split, Excluded: append(request.Excluded, silent...), BytesPerSecond: request.BytesPerSecond,
	}
	rules, err := c.rulesFor(ctx, m, request.Rules)
	if err != nil {
		return api.RebalancePlan{}, err
	}
	options.Rules = rules
	moves, err := c.mover.List(ctx)
	if err != nil {
		return api.RebalancePlan{}, err
	}
	var waiting []string
	for _, k := range m.Keyspaces() {
		if first := inTheWay(moves, k.Name(), nil); first != nil {
			options.Fixed = append(options.Fixed, k.Name())
			waiting = append(waiting, fmt.Sprintf("keyspace %s stays as it is: move %s of it comes first", k.Name(), first.ID))
		}
	}
	var plan *rebalance.Plan
	if request.Drain != "" {
		plan, err = rebalance.Drain(m, request.Drain, sizes, options)
	} else {
		plan, err = rebalance.Balance(m, sizes, options)
	}
	if err != nil {
		return api.RebalancePlan{}, invalidUnlessTyped(err)
	}
	described := describePlan(plan)
	for _, name := range silent {
		described.Warnings = append(described.Warnings, fmt.Sprintf("shard %s does not answer: it neither gives nor gets anything", name))
	}
	described.Warnings = append(described.Warnings, waiting...)
	if request.Drain != "" {
		if err := c.drainWhole(ctx, m, request.Drain, moves, &described); err != nil {
			return api.RebalancePlan{}, err
		}
		stays, err := c.staysHome(ctx, m, request.Drain)
		if err != nil {
			return api.RebalancePlan{}, err
		}
		if stays != "" {
			described.Warnings = append(described.Warnings, stays)
		}
	}
	for _, a := range plan.Assignments {
		if !m.Keyspace(a.Keyspace).Assignment().Equal(a.Assignment) {
			described.Assignments = append(described.Assignments, api.RebalanceAssignment{Keyspace: a.Keyspace, Algorithm: a.Assignment.Algorithm})
		}
	}
	kept := keptPlan{described, plan.Assignments}
	err = c.keepPlan(ctx, &kept)
	return kept.RebalancePlan, err
}

// rulesFor are the rules that are named, or those that automation keeps: what is bound to a region stays there, whoever plans.
func (c *Cluster) rulesFor(ctx context.Context, m *topology.Map, named []api.RebalanceRule) ([]rebalance.Rule, error) {
	if len(named) > 0 {
		return rulesOf(named), nil
	}
	_, automation, err := c.readAutomation(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(automation.Settings.Rules, func(r rebalance.Rule) bool { return m.Keyspace(r.Keyspace) == nil }), nil
}

func rulesOf(requested []api.RebalanceRule) []rebalance.Rule {
	var rules []rebalance.Rule
	for _, r := range requested {
		rules = append(rules, rebalance.Rule{Keyspace: r.Keyspace, From: r.From, To: r.To, Key: r.Key, Label: r.Label, Value: r.Value})
	}
	return rules
}

// tableSizesQuery tells the size of each table, partitions included, about how many rows it has, and how much work it has done.
const tableSizesQuery = `
	SELECT t.name, coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint, coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint,
		coalesce(sum(coalesce(s.seq_scan, 0) + coalesce(s.idx_scan, 0) + s.n_tup_ins + s.n_tup_upd + s.n_tup_del), 0)::bigint
	FROM unnest($1::text[]) AS t (name) LEFT JOIN LATERAL pg_partition_tree(to_regclass(t.name)) AS p ON true JOIN pg_class c ON c.oid = coalesce(p.relid, to_regclass(t.name))
		LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid WHERE c.relkind = 'r' GROUP BY 1`

// schemaSizesQuery tells the size of schemas, and about how many rows they have.
const schemaSizesQuery = `
	SELECT n.nspname, sum(pg_total_relation_size(c.oid))::bigint, sum(greatest(c.reltuples, 0))::bigint
	FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid AND c.relkind IN ('r', 'm') WHERE n.nspname = ANY ($1) GROUP BY 1`

// measured is what a shard has of a table.
type measured struct {
	table string
	rebalance.Size
	work int64
}

// measure asks every shard how much it has of each keyspace, and returns those that did not answer. It fails if it cannot be told what routers count: shared out in another way than the last time, load would look as if it had moved.
func (c *Cluster) measure(ctx context.Context, m *topology.Map) (sizes rebalance.Sizes, silent []string, err error) {
	reports, err := c.TrafficReports(ctx)
	if err != nil {
		return nil, nil, err
	}
	names, raw, placed := shardedTables(m), listAllRawRanges(m), placedSchemas(m)
	var lock sync.Mutex
	byShard, samples, schemas := map[string][]measured{}, map[string]map[string][]topology.Point{}, map[string]map[string]rebalance.Size{}
	for _, look := range each(specsOf(m), func(spec topology.ShardSpec) inspected {
		return inspected{err: c.connected(ctx, spec, func(ctx context.Context, s session) error {
			rows, err := s.Query(ctx, tableSizesQuery, names)
			if err != nil {
				return err
			}
			found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (one measured, err error) {
				return one, row.Scan(&one.table, &one.Bytes, &one.Rows, &one.work)
			})
			if err != nil {
				return err
			}
			c.load(spec.Name, found, time.Now())
			keys, err := sampleKeys(ctx, s, m, raw, spec.Name, found)
			if err != nil {
				return err
			}
			sizes, err := schemaSizes(ctx, s, placed[spec.Name])
			lock.Lock()
			defer lock.Unlock()
			byShard[spec.Name], samples[spec.Name], schemas[spec.Name] = found, keys, sizes
			return err
		})}
	}) {
		if look.err != nil {
			silent = append(silent, look.spec.Name)
			delete(byShard, look.spec.Name)
		}
	}
	withoutAir(byShard)
	sizes = append(sizesIn(m, byShard, raw, samples), sizesOfSchemas(m, schemas)...)
	addCounts(m, sizes, reports)
	return sizes, silent, nil
}

// placedSchemas are the schemas that keyspaces place, by the shards that have them.
func placedSchemas(m *topology.Map) map[string][]string {
	placed := map[string][]string{}
	for _, k := range m.Keyspaces() {
		if k.Strategy() != topology.BySchema {
			continue
		}
		for _, pin := range k.Spec().Pins {
			placed[pin.Shard] = append(placed[pin.Shard], pin.Key[0])
		}
	}
	return placed
}

func schemaSizes(ctx context.Context, s session, schemas []string) (map[string]rebalance.Size, error) {
	sizes := map[string]rebalance.Size{}
	if len(schemas) == 0 {
		return sizes, nil
	}
	rows, err := s.Query(ctx, schemaSizesQuery, schemas)
	if err != nil {
		return nil, err
	}
	for _, name := range schemas { // one that has no tables is empty
		sizes[name] = rebalance.Size{}
	}
	var name string
	var size rebalance.Size
	_, err = pgx.ForEachRow(rows, []any{&name, &size.Bytes, &size.Rows}, func() error {
		sizes[name] = size
		return nil
	})
	return sizes, err
}

// sizesOfSchemas sums up what shards that have answered have of the keyspaces that place schemas.
func sizesOfSchemas(m *topology.Map, byShard map[string]map[string]rebalance.Size) (sizes rebalance.Sizes) {
	for _, k := range m.Keyspaces() {
		if k.Strategy() != topology.BySchema {
			continue
		}
		one, totals := rebalance.KeyspaceSizes{Keyspace: k.Name()}, map[string]rebalance.Size{}
		for _, pin := range k.Spec().Pins {
			size, known := byShard[pin.Shard][pin.Key[0]]
			if !known {
				continue
			}
			total := totals[pin.Shard]
			totals[pin.Shard] = rebalance.Size{Bytes: total.Bytes + size.Bytes, Rows: total.Rows + size.Rows}
			one.Pins = append(one.Pins, rebalance.PinSize{Key: pin.Key, Size: size})
		}
		for _, shard := range slices.Sorted(maps.Keys(totals)) {
			one.Shards = append(one.Shards, rebalance.ShardSize{Shard: shard, Size: totals[shard]})
		}
		sizes = append(sizes, one)
	}
	return sizes
}

// leastRows is how many rows a table must have for their size to say something.
const leastRows = 1000

// withoutAir takes the space that deleted rows have left out of the sizes: rows that have moved away leave tables as large as they were. A row is taken to be as large as it is where rows take least.
func withoutAir(byShard map[string][]measured) {
	least := map[string]float64{}
	for _, tables := range byShard {
		for _, t := range tables {
			if perRow := float64(t.Bytes) / float64(max(t.Rows, 1)); t.Rows >= leastRows && (least[t.table] == 0 || perRow < least[t.table]) {
				least[t.table] = perRow
			}
		}
	}
	for _, tables := range byShard {
		for i, t := range tables {
			if least[t.table] > 0 {
				tables[i].Bytes = min(t.Bytes, int64(least[t.table]*float64(t.Rows)))
			}
		}
	}
}

// sizesIn sums up what shards have of the keyspaces in which they own something.
func sizesIn(m *topology.Map, byShard map[string][]measured, raw []*rawRanges, samples map[string]map[string][]topology.Point) (sizes rebalance.Sizes) {
	for _, k := range m.Keyspaces() {
		if k.Strategy() == topology.BySchema {
			continue
		}
		one := rebalance.KeyspaceSizes{Keyspace: k.Name()}
		for _, share := range api.DescribeKeyspace(k, false).Shares {
			tables, known := byShard[share.Shard]
			if !known {
				continue
			}
			total := rebalance.ShardSize{Shard: share.Shard}
			for _, t := range tables {
				if keyspaceTable(m, k, t.table) != nil {
					total.Bytes += t.Bytes
					total.Rows += t.Rows
					total.Load += t.Load
				}
			}
			one.Shards = append(one.Shards, total)
			if at := slices.IndexFunc(raw, func(r *rawRanges) bool { return r.Keyspace == k }); at >= 0 {
				ranges, pins := raw[at].sampledSizes(share.Shard, samples[share.Shard][k.Name()], total.Size)
				one.Ranges, one.Pins = append(one.Ranges, ranges...), append(one.Pins, pins...)
			}
		}
		sizes = append(sizes, one)
	}
	return sizes
}

func describePlan(p *rebalance.Plan) api.RebalancePlan {
	d := api.RebalancePlan{
		ID: p.ID, MapVersion: p.MapVersion, Algorithm: p.Algorithm, Measure: string(p.Measure), Bytes: p.Bytes, Rows: p.Rows, TotalBytes: p.TotalBytes, MovementShare: p.MovementShare,
		SkewBefore: p.SkewBefore, SkewAfter: p.SkewAfter, EstimatedSeconds: p.EstimatedSeconds,
		Splits: []api.RebalanceSplit{}, Moves: []api.RebalanceMove{}, Assignments: []api.RebalanceAssignment{}, Shards: []api.RebalanceShard{}, Warnings: append([]string{}, p.Warnings...),
	}
	for _, s := range p.Splits {
		d.Splits = append(d.Splits, api.RebalanceSplit{Keyspace: s.Keyspace, At: s.At})
	}
	for _, m := range p.Moves {
		move := api.RebalanceMove{Keyspace: m.Keyspace, From: m.Source, To: m.Target, Bytes: m.Bytes, Rows: m.Rows, Load: m.Load, Reason: string(m.Reason), Ranges: []api.MoveRange{}, Keys: [][]string{}, Tables: []string{}}
		for _, r := range m.Ranges {
			move.Ranges = append(move.Ranges, api.MoveRange{From: r.From, To: r.To})
		}
		for _, key := range m.Pins {
			move.Keys = append(move.Keys, key)
		}
		d.Moves = append(d.Moves, move)
	}
	for _, s := range p.Shards {
		d.Shards = append(d.Shards, api.RebalanceShard{
			Name: s.Shard, Weight: s.Weight, BytesBefore: s.Before.Bytes, BytesAfter: s.After.Bytes, LoadBefore: s.Before.Load, LoadAfter: s.After.Load, Ranges: s.Before.Ranges, RangesAfter: s.After.Ranges, TakesPart: s.TakesPart,
		})
	}
	return d
}
