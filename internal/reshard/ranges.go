package reshard

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
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

// AroundKey are the points, but for those at which a range begins already, between which nothing but a key lies, or, in a keyspace by hash, its hash.
func AroundKey(k *topology.Keyspace, point topology.Point) ([]topology.Point, error) {
	values, err := k.ParseKey(point)
	if err != nil {
		return nil, err
	}
	around := []topology.Point{pointOf(values), pointBehind(values)}
	if k.Strategy() != topology.ByRange {
		hash := k.Hash(values...)
		around = []topology.Point{hashPoint(hash), hashPoint(hash + 1)}
	}
	_, already, err := orderOf(k).divide(k.Spec().Ranges, around)
	if err != nil {
		return nil, err
	}
	around = slices.DeleteFunc(around, func(p topology.Point) bool {
		return slices.ContainsFunc(already, func(b topology.Point) bool { return slices.Equal(p, b) })
	})
	if len(around) == 0 {
		return nil, fmt.Errorf("key %s has a range of its own already", point)
	}
	return around, nil
}

// pointBehind is the first one behind a key. Behind the last key of all it is the beginning of the ranges, as hash 0 is behind the last hash.
func pointBehind(values []key.Value) topology.Point {
	for i, v := range slices.Backward(values) {
		next, ok := v.Next()
		if !ok {
			continue
		}
		return pointOf(append(values[:i:i], next))
	}
	return nil
}

func pointOf(values []key.Value) topology.Point {
	point := make(topology.Point, len(values))
	for i, v := range values {
		point[i] = v.String()
	}
	return point
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
	o, ranges := orderOf(k), k.Spec().Ranges
	begins, err := o.places(len(ranges), func(i int) topology.Point { return ranges[i].From })
	if err != nil {
		return nil, err
	}
	at, err := o.places(len(points), func(i int) topology.Point { return points[i] })
	if err != nil {
		return nil, err
	}
	borders := make(map[string]bool, len(at))
	for _, place := range at {
		borders[place] = true
	}
	var joined []topology.RangeSpec
	for i, r := range ranges {
		if len(r.From) == 0 || !borders[begins[i]] {
			joined = append(joined, r)
			continue
		}
		delete(borders, begins[i])
		before := &joined[len(joined)-1]
		if before.Shard != r.Shard || len(before.Copies)+len(r.Copies) > 0 || before.Held || r.Held {
			return nil, fmt.Errorf("the ranges before and after %s are not the same shard's, or are moving", r.From)
		}
		before.To = r.To
	}
	for i, p := range points {
		if borders[at[i]] {
			return nil, fmt.Errorf("no range begins at %s", p)
		}
	}
	return joined, nil
}
