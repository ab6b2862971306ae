package control

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/rebalance"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

const (
	// sampledKeys is about how many keys a shard is asked for, and maxSampledKeys how many it sends at most.
	sampledKeys    = 10_000
	maxSampledKeys = 5 * sampledKeys
	// sampledRowBytes is how large a row is at least taken to be where nobody has counted them.
	sampledRowBytes = 1000
	// splitPointsKept is at how many points a range may be cut.
	splitPointsKept = 63
)

// rawRanges are the ranges of a keyspace by range. They are listed once for all shards: there may be a thousand of those, and a hundred thousand ranges.
type rawRanges struct {
	*topology.Keyspace
	begins []string
	from   []topology.Point
	of     map[string][]int // those of each shard
}

func listRawRanges(k *topology.Keyspace) *rawRanges {
	list := &rawRanges{Keyspace: k, of: map[string][]int{}}
	for i, r := range k.Spec().Ranges {
		list.from, list.of[r.Shard] = append(list.from, r.From), append(list.of[r.Shard], i)
	}
	for r := range k.Ranges() {
		list.begins = append(list.begins, r.Key.Lo)
	}
	return list
}

// listAllRawRanges does so for all keyspaces by range.
func listAllRawRanges(m *topology.Map) (all []*rawRanges) {
	for _, k := range m.Keyspaces() {
		if k.Strategy() == topology.ByRange {
			all = append(all, listRawRanges(k))
		}
	}
	return all
}

// sampleKeys asks a shard for keys of keyspaces by range that it has a part of, in the order of pages, not of keys: from the largest table of each, which is where most of the bytes are. Ranges of
// raw keys say nothing of how many rows they have; those of hashes are taken to have as many as they are wide.
func sampleKeys(ctx context.Context, s session, m *topology.Map, all []*rawRanges, shard string, tables []measured) (map[string][]topology.Point, error) {
	samples := map[string][]topology.Point{}
	for _, k := range all {
		if len(k.of[shard]) == 0 {
			continue
		}
		table, size := largestOf(m, k.Keyspace, tables)
		if table == nil {
			continue
		}
		keys, err := sampleTable(ctx, s, table, size)
		if err != nil {
			return nil, fmt.Errorf("sample keys of table %s: %w", table.Name(), err)
		}
		samples[k.Name()] = keys
	}
	return samples, nil
}

func owns(k *topology.Keyspace, shard string) bool {
	for r := range k.Ranges() {
		if r.Owner.Name() == shard {
			return true
		}
	}
	return false
}

// largestOf is the table of a keyspace that has most bytes on a shard; none if all are empty.
func largestOf(m *topology.Map, k *topology.Keyspace, tables []measured) (largest *topology.Table, size rebalance.Size) {
	for _, t := range tables {
		if declared := keyspaceTable(m, k, t.table); declared != nil && t.Bytes > size.Bytes {
			largest, size = declared, t.Size
		}
	}
	return largest, size
}

// keyspaceTable is a sharded table of a keyspace by its name; nil if it is none.
func keyspaceTable(m *topology.Map, k *topology.Keyspace, text string) *topology.Table {
	name, err := topology.ParseTableName(text)
	if err != nil {
		return nil
	}
	if t := m.Table(name.Schema, name.Name); t != nil && t.Kind() == topology.Sharded && t.Keyspace() == k {
		return t
	}
	return nil
}

func sampleTable(ctx context.Context, s session, table *topology.Table, size rebalance.Size) ([]topology.Point, error) {
	share := 100.0
	if rows := max(size.Rows, size.Bytes/sampledRowBytes); rows > sampledKeys {
		share = 100 * sampledKeys / float64(rows)
	}
	columns, known := []string{}, []string{}
	for _, c := range table.KeyColumns() {
		quoted := sqltext.QuoteIdentifier(c)
		columns, known = append(columns, quoted+"::text"), append(known, quoted+" IS NOT NULL")
	}
	query := fmt.Sprintf("SELECT ARRAY[%s] FROM %s TABLESAMPLE SYSTEM (%g) WHERE %s LIMIT %d", strings.Join(columns, ", "), table.Name(), share, strings.Join(known, " AND "), maxSampledKeys)
	rows, err := s.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (key topology.Point, err error) { return key, row.Scan(&key) })
}

// sampledSizes shares out what a shard has of a keyspace over its ranges and pins as sampled keys lie in them, and tells where its ranges can be cut into parts of equal size.
// Keys that the shard does not own, because their rows are moving, do not count. Nothing comes of it if there are no others.
func (k *rawRanges) sampledSizes(shard string, sample []topology.Point, total rebalance.Size) (ranges []rebalance.RangeSize, pins []rebalance.PinSize) {
	inRange, inPin, all := map[int][]string{}, map[string]int64{}, int64(0)
	for _, key := range sample {
		encoded, err := k.Encode(key)
		if err != nil {
			continue // it is no key that a router could name
		}
		at, exact := slices.BinarySearch(k.begins, encoded)
		if !exact {
			at--
		}
		values, err := k.ParseKey(key)
		if err != nil {
			continue
		}
		place, err := k.Locate(values...)
		switch {
		case err != nil || place.Shard.Name() != shard:
			continue
		case place.Pinned:
			inPin[encoded]++
		default:
			inRange[at] = append(inRange[at], encoded)
		}
		all++
	}
	if all == 0 {
		return nil, nil
	}
	share := func(n int64) rebalance.Size {
		return rebalance.Size{Bytes: int64(float64(total.Bytes) * (float64(n) / float64(all))), Rows: int64(float64(total.Rows) * (float64(n) / float64(all)))}
	}
	for _, i := range k.of[shard] {
		ranges = append(ranges, rebalance.RangeSize{From: k.from[i], Size: share(int64(len(inRange[i]))), SplitAt: quantiles(k.Keyspace, k.begins[i], inRange[i])})
	}
	for encoded, n := range inPin {
		if key, err := k.Texts(encoded); err == nil {
			pins = append(pins, rebalance.PinSize{Key: key, Size: share(n)})
		}
	}
	slices.SortFunc(pins, func(a, b rebalance.PinSize) int { return cmp.Compare(a.Key.String(), b.Key.String()) })
	return ranges, pins
}

// quantiles are points that cut keys of a range into parts of about equal size.
func quantiles(k *topology.Keyspace, begin string, keys []string) (points []topology.Point) {
	slices.Sort(keys)
	last := begin
	for i := 1; i <= splitPointsKept; i++ {
		at := len(keys) * i / (splitPointsKept + 1)
		if at >= len(keys) || keys[at] <= last {
			continue
		}
		if point, err := k.Texts(keys[at]); err == nil {
			points, last = append(points, point), keys[at]
		}
	}
	return points
}
