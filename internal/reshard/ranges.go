package reshard

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/cleavedb/cleave/internal/topology"
)

// SplitAt returns the ranges of a keyspace, divided at points. No row moves by that.
func SplitAt(k *topology.Keyspace, points []topology.Point) ([]topology.RangeSpec, error) {
	for _, p := range points {
		if len(p) == 0 {
			return nil, errors.New("there is nothing before the beginning")
		}
	}
	ranges, already, err := orderOf(k).divide(k.Spec().Ranges, points)
	if err != nil {
		return nil, err
	}
	if len(already) > 0 {
		return nil, fmt.Errorf("a range begins at %s already", already[0])
	}
	return ranges, nil
}

// AroundKey are the points between which nothing but a key lies, or, in a keyspace by hash, its hash.
func AroundKey(k *topology.Keyspace, key topology.Point) ([]topology.Point, error) {
	values, err := k.ParseKey(key)
	if err != nil {
		return nil, err
	}
	if k.Strategy() == topology.ByRange {
		return aroundInteger(k, key)
	}
	hash := k.Hash(values...)
	var points []topology.Point
	for _, h := range []uint64{hash, hash + 1} {
		if h != 0 {
			points = append(points, hashPoint(h))
		}
	}
	return points, nil
}

// aroundInteger are an integer and the next one. Of other keys nobody can name the next.
func aroundInteger(k *topology.Keyspace, key topology.Point) ([]topology.Point, error) {
	if types := k.KeyTypes(); len(types) == 1 && slices.Contains([]string{"smallint", "integer", "bigint"}, types[0].String()) {
		if n, err := strconv.ParseInt(key[0], 10, 64); err == nil && n < math.MaxInt64 {
			return []topology.Point{{strconv.FormatInt(n, 10)}, {strconv.FormatInt(n+1, 10)}}, nil
		}
	}
	return nil, errors.New("in a keyspace by range whose key is not one integer name the keys to split at: --at VALUE, twice")
}

// Middle is the middle of the range of a keyspace by hash in which a point lies.
func Middle(k *topology.Keyspace, of topology.Point) (topology.Point, error) {
	hashes := k.Hashes()
	if hashes == nil {
		return nil, errors.New("only a shard can tell the middle of a range of keys: name the key to split at")
	}
	at, err := orderOf(k).hash(of)
	if err != nil {
		return nil, err
	}
	for r := range k.Ranges() {
		if r.Hash.Contains(at) {
			return hashPoint(r.Hash.Lo + (r.Hash.Hi-r.Hash.Lo)/2), nil // the end is 0, and the difference right for it too
		}
	}
	return nil, fmt.Errorf("there is no range at %s", of)
}

// Merge returns the ranges of a keyspace with those put together that follow each other inside of another and are the same shard's, and how many fewer that are.
func Merge(k *topology.Keyspace, within Range) (merged []topology.RangeSpec, fewer int, err error) {
	o := orderOf(k)
	for _, r := range k.Spec().Ranges {
		inside, err := o.within(r.From, r.To, within)
		if err != nil {
			return nil, 0, err
		}
		last := len(merged) - 1
		if inside && last >= 0 && merged[last].Shard == r.Shard && len(merged[last].Copies)+len(r.Copies) == 0 && !merged[last].Held && !r.Held {
			before, err := o.within(merged[last].From, r.To, within)
			if err != nil {
				return nil, 0, err
			}
			if before {
				merged[last].To = r.To
				fewer++
				continue
			}
		}
		merged = append(merged, r)
	}
	return merged, fewer, nil
}

// JoinAt returns the ranges of a keyspace without the borders at points. Ranges on both sides of each must be the same shard's, and not moving.
func JoinAt(k *topology.Keyspace, points []topology.Point) ([]topology.RangeSpec, error) {
	borders := map[string]bool{}
	for _, p := range points {
		borders[p.String()] = true
	}
	var joined []topology.RangeSpec
	for _, r := range k.Spec().Ranges {
		if len(r.From) == 0 || !borders[r.From.String()] {
			joined = append(joined, r)
			continue
		}
		delete(borders, r.From.String())
		before := &joined[len(joined)-1]
		if before.Shard != r.Shard || len(before.Copies)+len(r.Copies) > 0 || before.Held || r.Held {
			return nil, fmt.Errorf("the ranges before and after %s are not the same shard's, or are moving", r.From)
		}
		before.To = r.To
	}
	for _, p := range points {
		if borders[p.String()] {
			return nil, fmt.Errorf("no range begins at %s", p)
		}
	}
	return joined, nil
}
