package txn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/cleavedb/cleave/internal/topology"
)

// LostBy says of how many transactions a shard has lost something, as of now: those that are marked so, and those that it has decided, which others
// have committed, and of which it knows nothing any more. Clean-up marks the latter only when they are old. Every shard has to answer.
func LostBy(ctx context.Context, config Config, shard *topology.Shard) (int, error) {
	r := NewRecovery(config)
	defer r.Close()
	m := config.Map()
	if m == nil {
		return 0, errors.New("there is no map")
	}
	looks := r.lookAll(ctx, m)
	decider := looks[shard.Number()]
	if decider == nil {
		return 0, fmt.Errorf("shard %q is not in the map", shard.Name())
	}
	lost := 0
	for _, number := range slices.Sorted(maps.Keys(looks)) {
		look := looks[number]
		if look.conn == nil {
			return 0, fmt.Errorf("shard %q: %w", look.shard.Name(), look.err)
		}
		if look == decider {
			continue
		}
		count, err := look.lostBy(ctx, decider)
		if err != nil {
			return 0, fmt.Errorf("ask shard %q which transactions shard %q has lost: %w", look.shard.Name(), shard.Name(), err)
		}
		lost += count
	}
	return lost, nil
}

// lostBy counts the marks of one shard whose decision another has lost. What is marked is read before the decisions are: those come first, and
// go last.
func (l *looked) lostBy(ctx context.Context, decider *looked) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, shardTimeout)
	defer cancel()
	number := decider.shard.Number()
	lost, marks, known, still := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	if err := collect(ctx, l.conn, lost, "SELECT gid FROM cleave.commits WHERE $1 = ANY (lost)", number); err != nil {
		return 0, err
	}
	if err := collect(ctx, l.conn, marks, "SELECT gid FROM cleave.commits WHERE decision = 'commit' AND lost IS NULL AND split_part(gid, '/', 3) = $1", strconv.Itoa(number)); err != nil {
		return 0, err
	}
	asked := slices.Collect(maps.Keys(marks))
	if err := collect(ctx, decider.conn, known, "SELECT gid FROM cleave.commits WHERE gid = ANY ($1) AND decision = 'commit'", asked); err != nil {
		return 0, err
	}
	unknown := slices.DeleteFunc(asked, func(gid string) bool { return known[gid] })
	err := collect(ctx, l.conn, still, "SELECT gid FROM cleave.commits WHERE gid = ANY ($1)", unknown) // a clean-up may have been under way
	return len(lost) + len(still), err
}
