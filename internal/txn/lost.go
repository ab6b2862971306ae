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
	lost := map[string]bool{}
	for _, number := range slices.Sorted(maps.Keys(looks)) {
		look := looks[number]
		if look.conn == nil {
			return 0, fmt.Errorf("shard %q: %w", look.shard.Name(), look.err)
		}
		if look == decider {
			continue
		}
		if err := look.lostBy(ctx, decider, lost); err != nil {
			return 0, fmt.Errorf("ask shard %q which transactions shard %q has lost: %w", look.shard.Name(), shard.Name(), err)
		}
	}
	return len(lost), nil
}

// lostBy adds the marks of one shard whose decision another has lost. What is marked is read before the decisions are: those come first, and
// go last.
func (l *looked) lostBy(ctx context.Context, decider *looked, lost map[string]bool) error {
	ctx, cancel := context.WithTimeout(ctx, shardTimeout)
	defer cancel()
	number := decider.shard.Number()
	marks, known := map[string]bool{}, map[string]bool{}
	if err := collect(ctx, l.conn, lost, "SELECT gid FROM cleave.commits WHERE $1 = ANY (lost)", number); err != nil {
		return err
	}
	if err := collect(ctx, l.conn, marks, "SELECT gid FROM cleave.commits WHERE decision = 'commit' AND lost IS NULL AND split_part(gid, '/', 3) = $1", strconv.Itoa(number)); err != nil {
		return err
	}
	asked := slices.Collect(maps.Keys(marks))
	if err := collect(ctx, decider.conn, known, "SELECT gid FROM cleave.commits WHERE gid = ANY ($1) AND decides AND decision = 'commit'", asked); err != nil {
		return err
	}
	unknown := slices.DeleteFunc(asked, func(gid string) bool { return known[gid] })
	if len(unknown) == 0 {
		return nil
	}
	return collect(ctx, l.conn, lost, "SELECT gid FROM cleave.commits WHERE gid = ANY ($1)", unknown) // unless a clean-up was under way
}
