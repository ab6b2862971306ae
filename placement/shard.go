package placement

import (
	"errors"
	"fmt"
	"math"
)

// Shard is one place that keys can go to.
type Shard struct {
	// Name identifies the shard; algorithms that hash shards hash the name, so a renamed shard is another shard.
	Name string
	// Weight is the shard's capacity relative to the others; 0 means 1. An algorithm that cannot honour unequal weights
	// refuses them.
	Weight float64
}

// Named returns shards of equal weight with these names.
func Named(names ...string) []Shard {
	shards := make([]Shard, len(names))
	for i, name := range names {
		shards[i] = Shard{Name: name}
	}
	return shards
}

// Numbered returns n shards of equal weight named prefix0, prefix1 and so on.
func Numbered(prefix string, n int) []Shard {
	shards := make([]Shard, max(n, 0))
	for i := range shards {
		shards[i] = Shard{Name: fmt.Sprintf("%s%d", prefix, i)}
	}
	return shards
}

func (s Shard) weight() float64 {
	if s.Weight == 0 {
		return 1
	}
	return s.Weight
}

// vacant says whether the shard is an empty seat, see rendezvous_fast.go.
func (s Shard) vacant() bool { return s == Shard{} }

func namesOf(shards []Shard) []string {
	names := make([]string, len(shards))
	for i, s := range shards {
		names[i] = s.Name
	}
	return names
}

// ErrNoShards is returned where a placement over no shards at all is asked for.
var ErrNoShards = errors.New("no shards: at least one is needed")

// checkShards refuses what no algorithm can place on.
func checkShards(shards []Shard) error {
	if len(shards) == 0 {
		return ErrNoShards
	}
	if len(shards) > math.MaxInt32 {
		return fmt.Errorf("%d shards are more than can be numbered", len(shards))
	}
	seen := make(map[string]struct{}, len(shards))
	for i, s := range shards {
		if s.Name == "" {
			return fmt.Errorf("shard %d has no name", i)
		}
		if _, twice := seen[s.Name]; twice {
			return fmt.Errorf("shard %q is listed twice", s.Name)
		}
		seen[s.Name] = struct{}{}
		if !(s.Weight >= 0) || math.IsInf(s.Weight, 0) {
			return fmt.Errorf("shard %q has weight %v: a weight is a positive number", s.Name, s.Weight)
		}
	}
	return nil
}

// checkUnweighted is checkShards for algorithms that treat all shards alike.
func checkUnweighted(algorithm string, shards []Shard) error {
	if err := checkShards(shards); err != nil {
		return err
	}
	for _, s := range shards[1:] {
		if s.weight() != shards[0].weight() {
			return fmt.Errorf("%s cannot honour unequal weights (%s %v, %s %v): use %s, %s, %s or %s", algorithm,
				shards[0].Name, shards[0].weight(), s.Name, s.weight(),
				nameWeightedRing, nameWeightedRendezvous, nameBounded, nameMinimal)
		}
	}
	return nil
}
