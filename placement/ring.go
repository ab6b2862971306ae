package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// ring is consistent hashing: every shard has many points on a circle, and a key belongs to the first point at or after
// its own hash. A new shard takes about 1/(n+1) of the keys from everybody, a removed one gives its keys to its
// successors. Karger et al., "Consistent Hashing and Random Trees", STOC 1997; virtual nodes as in Chord (2001) and
// Dynamo (2007). Balance is only as good as the number of points: the deviation falls with the root of it.
//
// The circle has 2^64 or 2^32 places. On the small one two virtual nodes can meet (with 150,000 of them about three
// pairs do): then the shard that comes first by name has the place, on every machine alike.
type ring struct {
	Config
	small bool
}

func (r ring) Info() Info {
	info := Info{
		Name: nameRing, Summary: "points of every shard on a circle of 2^64; the next point owns the key",
		Origin: "Karger et al., STOC 1997", Keys: keysDirect, Ranges: rangesArcs,
	}
	if r.small {
		info.Name, info.Summary = nameRing32, "the same on a circle of 2^32, as older libraries have it"
	}
	return info
}

func (r ring) Keys(shards []Shard) (Placer, error) { return r.Ranges(nil, shards) }

func (r ring) Ranges(_ *Map, shards []Shard) (*Map, error) {
	if err := checkUnweighted(r.Info().Name, shards); err != nil {
		return nil, err
	}
	points, err := ringPoints(shards, r.NodeHash, r.small, func(Shard) int { return r.VirtualNodes })
	if err != nil {
		return nil, err
	}
	return ringMap(points, shards), nil
}

// ringPoint is one virtual node.
type ringPoint struct {
	at    uint64
	owner uint32
}

// ringPoints returns the points of all shards in the order of the circle, no two at one place, and at least one for each
// shard. On the small circle a place is the last of the 2^32 hashes that share an upper half.
func ringPoints(shards []Shard, hash func(string) uint64, small bool, nodes func(Shard) int) ([]ringPoint, error) {
	total := 0
	for _, s := range shards {
		if total += nodes(s); total > maxPoints {
			return nil, fmt.Errorf("%d shards would have more than %d virtual nodes in all: use fewer", len(shards), maxPoints)
		}
	}
	points := make([]ringPoint, 0, total)
	for owner, shard := range shards {
		label := []byte(shard.Name + "-vnode-")
		for node := range nodes(shard) {
			at := hash(string(strconv.AppendInt(label, int64(node), 10)))
			if small {
				at |= 1<<32 - 1
			}
			points = append(points, ringPoint{at, uint32(owner)})
		}
	}
	slices.SortFunc(points, func(a, b ringPoint) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(shards[a.owner].Name, shards[b.owner].Name))
	})
	points = slices.CompactFunc(points, func(a, b ringPoint) bool { return a.at == b.at })
	return points, checkEveryShardHasAPoint(points, shards)
}

func checkEveryShardHasAPoint(points []ringPoint, shards []Shard) error {
	has := make([]bool, len(shards))
	for _, p := range points {
		has[p.owner] = true
	}
	if i := slices.Index(has, false); i >= 0 {
		return fmt.Errorf("shard %q shares every place on the ring with others: use more virtual nodes or another hash of names", shards[i].Name)
	}
	return nil
}

// ringMap turns points into ranges: a point owns what lies after the point before it, up to and including itself.
func ringMap(points []ringPoint, shards []Shard) *Map {
	l := list[uint64]{names: namesOf(shards)}
	var start uint64
	for _, p := range points {
		l.push(start, p.owner)
		start = p.at + 1
	}
	if start != 0 { // what lies after the last point belongs to the first
		l.push(start, points[0].owner)
	}
	return mapOf(l.compact())
}
