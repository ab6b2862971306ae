package control

import (
	"context"
	"maps"
	"slices"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/rebalance"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/internal/traffic"
)

// TrafficReports reads how many statements all routers send, range by range. Routers of an earlier version report nothing.
func (c *Cluster) TrafficReports(ctx context.Context) ([]traffic.Report, error) {
	bodies, err := c.config.Store.Traffic(ctx)
	if err != nil {
		return nil, err
	}
	var reports []traffic.Report
	for _, body := range bodies {
		report, err := traffic.Decode(body)
		if err != nil { // of a version that is to come: its statements are not counted, which is no reason to count no others
			c.config.Logger.Warn("what a router counts could not be read", "error", err)
			continue
		}
		reports = append(reports, report)
	}
	return reports, nil
}

// Traffic tells how many statements all routers together send for keys of the busiest ranges and pins of a keyspace.
func (c *Cluster) Traffic(ctx context.Context, k *topology.Keyspace) ([]api.RangeTraffic, error) {
	reports, err := c.TrafficReports(ctx)
	if err != nil {
		return nil, err
	}
	rates, _ := traffic.Sum(k, reports)
	var busy []api.RangeTraffic
	for i, r := range k.Spec().Ranges {
		if rates.Ranges[i] > 0 {
			busy = append(busy, api.RangeTraffic{From: r.From, To: r.To, StatementsPerSecond: rates.Ranges[i]})
		}
	}
	for _, pin := range pinCounts(k, rates) {
		busy = append(busy, api.RangeTraffic{Key: pin.Key, StatementsPerSecond: pin.PerSecond})
	}
	return busy, nil
}

// addCounts adds what routers count to what was measured.
func addCounts(m *topology.Map, sizes rebalance.Sizes, reports []traffic.Report) {
	for i := range sizes {
		k := m.Keyspace(sizes[i].Keyspace)
		if rates, known := traffic.Sum(k, reports); known {
			sizes[i].Counts = countsOf(k, rates, sizes[i].Shards)
		}
	}
}

// countsOf says what was counted for single ranges and pins, and what each shard got beside that: statements for all shards, and its share of those of which it is not told which range they were for.
func countsOf(k *topology.Keyspace, rates traffic.Rates, shards []rebalance.ShardSize) rebalance.Counts {
	counts := rebalance.Counts{Pins: pinCounts(k, rates)}
	for i, r := range k.Spec().Ranges {
		if rates.Ranges[i] > 0 {
			counts.Ranges = append(counts.Ranges, rebalance.RangeCount{From: r.From, PerSecond: rates.Ranges[i]})
		}
	}
	bytes := int64(0)
	for _, s := range shards {
		bytes += s.Bytes
	}
	for _, s := range shards {
		share := 1 / float64(len(shards))
		if bytes > 0 {
			share = float64(s.Bytes) / float64(bytes)
		}
		counts.Others = append(counts.Others, rebalance.ShardCount{Shard: s.Shard, PerSecond: rates.Unbound + rates.Rest*share})
	}
	return counts
}

// pinCounts are what was counted for pinned keys, in their order.
func pinCounts(k *topology.Keyspace, rates traffic.Rates) (pins []rebalance.PinCount) {
	for _, encoded := range slices.Sorted(maps.Keys(rates.Pins)) {
		if key, err := k.Texts(encoded); err == nil {
			pins = append(pins, rebalance.PinCount{Key: key, PerSecond: rates.Pins[encoded]})
		}
	}
	return pins
}
