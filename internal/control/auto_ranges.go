package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/failpoint"
	"github.com/cleavedb/cleave/internal/rebalance"
	"github.com/cleavedb/cleave/internal/reshard"
	"github.com/cleavedb/cleave/internal/topology"
)

// maxChangePoints bounds how many ranges of a keyspace are divided or put together in one version of the map.
const maxChangePoints = 1000

// planSplits divides ranges that are too large, or proposes that.
func (r *autoRound) planSplits(ctx context.Context, sizes rebalance.Sizes, keyspaces []string) (changed bool, err error) {
	if r.Settings.Splits == rebalance.Leave || len(keyspaces) == 0 {
		return false, nil
	}
	found, err := rebalance.AutoSplit(r.m, sizes, r.Settings.Thresholds(keyspaces))
	if err != nil {
		return false, err
	}
	for _, warning := range found.Warnings {
		r.Wait(warning)
	}
	changes, busy := map[string]*autoChange{}, map[string]time.Time{}
	for _, s := range found.Splits {
		why := fmt.Sprintf("a range of shard %s has %d bytes", s.Shard, s.Bytes)
		if s.Reason == rebalance.ByLoad {
			why = fmt.Sprintf("a range of shard %s has %.0f statements a second", s.Shard, s.Load)
		}
		stays := s.Reason != rebalance.ByLoad || r.staysBusy(s, busy)
		if r.Settings.Splits == rebalance.Propose {
			r.Suggest(autoProposal{What: "split", Keyspace: s.Keyspace, Bytes: s.Bytes, Why: why, Command: splitCommand(s)})
			continue
		}
		if !stays {
			r.Wait(fmt.Sprintf("keyspace %s: %s, and is divided if that is still so at the next look", s.Keyspace, why))
			continue
		}
		gather(changes, s.Keyspace, false, s.At, why)
	}
	r.Busy = busy
	return len(changes) > 0, r.makeChanges(ctx, changes)
}

// staysBusy notes that a range has too much load, and says whether it has had that since an earlier look: a moment's peak divides nothing.
func (r *autoRound) staysBusy(s rebalance.SplitProposal, busy map[string]time.Time) bool {
	name := fmt.Sprintf("%s %s:%s", s.Keyspace, api.PointText(s.From), api.PointText(s.To))
	since, was := r.Busy[name]
	if !was {
		since = r.now
	}
	busy[name] = since
	return r.now.Sub(since) >= r.cluster.config.AutoInterval/2
}

// planMerges puts ranges together that are small, or proposes that.
func (r *autoRound) planMerges(ctx context.Context, sizes rebalance.Sizes, keyspaces []string) (changed bool, err error) {
	if r.Settings.Merges == rebalance.Leave || len(keyspaces) == 0 {
		return false, nil
	}
	found, err := rebalance.AutoMerge(r.m, sizes, r.Settings.Thresholds(keyspaces))
	if err != nil {
		return false, err
	}
	changes := map[string]*autoChange{}
	for _, m := range found.Merges {
		why := fmt.Sprintf("%d ranges of shard %s have %d bytes together", len(m.At)+1, m.Shard, m.Bytes)
		if r.Settings.Merges == rebalance.Propose {
			command := fmt.Sprintf("cleave merge --keyspace %s --range %s", shellWord(m.Keyspace), shellWord(api.PointText(m.From)+":"+api.PointText(m.To)))
			r.Suggest(autoProposal{What: "merge", Keyspace: m.Keyspace, Bytes: m.Bytes, Why: why, Command: command})
			continue
		}
		gather(changes, m.Keyspace, true, m.At, why)
	}
	return len(changes) > 0, r.makeChanges(ctx, changes)
}

// gather adds points to the change of a keyspace, as many as one version of the map takes.
func gather(changes map[string]*autoChange, keyspace string, merge bool, at []topology.Point, why string) {
	c := changes[keyspace]
	if c == nil {
		c = &autoChange{Keyspace: keyspace, Merge: merge, Why: why}
		changes[keyspace] = c
	}
	if len(c.At)+len(at) > maxChangePoints {
		return // in the next round
	}
	if len(c.At) > 0 {
		c.Why = strings.TrimSuffix(c.Why, ", and others") + ", and others"
	}
	c.At = append(c.At, at...)
}

// makeChanges changes the map, keyspace by keyspace. Each change is noted before and after.
func (r *autoRound) makeChanges(ctx context.Context, changes map[string]*autoChange) error {
	for _, k := range r.m.Keyspaces() {
		change := changes[k.Name()]
		if change == nil || len(change.At) == 0 {
			continue
		}
		r.Change = change
		if err := r.write(ctx); err != nil {
			return err
		}
		failpoint.Hit("auto.change.noted")
		next, err := r.leadership.UpdateMap(ctx, changeMap(*change))
		if err != nil {
			return err
		}
		r.cluster.applied(ctx, next.Version())
		r.m = next
		failpoint.Hit("auto.change.made")
		r.settleChange()
		if err := r.write(ctx); err != nil {
			return err
		}
	}
	return nil
}

// changeMap makes the change of a map.
func changeMap(change autoChange) func(*topology.Map) (*topology.Map, error) {
	return func(m *topology.Map) (*topology.Map, error) {
		k := m.Keyspace(change.Keyspace)
		if k == nil || k.IsMoving() {
			return nil, fmt.Errorf("keyspace %s is gone, or rows of it are moving", change.Keyspace)
		}
		ranges, err := reshard.SplitAt(k, change.At)
		if change.Merge {
			ranges, err = reshard.JoinAt(k, change.At)
		}
		if err != nil {
			return nil, err
		}
		return m.Next(topology.ReplaceRanges(k.Name(), ranges, k.Assignment()))
	}
}

// settleChange looks whether the map has the change that was noted, notes that, and says whether there was one.
func (r *autoRound) settleChange() bool {
	if r.Change == nil {
		return false
	}
	change, made := *r.Change, isMade(r.m, *r.Change)
	r.Change = nil
	what := "split"
	if change.Merge {
		what = "merge"
	}
	if made {
		r.Note(autoEvent{At: r.now, What: what, Keyspace: change.Keyspace, Why: fmt.Sprintf("%s; at %d points", change.Why, len(change.At))})
		r.cluster.config.Logger.Info("ranges were changed by itself", "what", what, "keyspace", change.Keyspace, "points", len(change.At), "reason", change.Why)
	}
	return true
}

// isMade says whether a map has a change.
func isMade(m *topology.Map, change autoChange) bool {
	k := m.Keyspace(change.Keyspace)
	if k == nil {
		return false
	}
	borders := map[string]bool{}
	for _, r := range k.Spec().Ranges {
		borders[r.From.String()] = true
	}
	return !slices.ContainsFunc(change.At, func(p topology.Point) bool { return borders[p.String()] == change.Merge })
}

func splitCommand(s rebalance.SplitProposal) string {
	words := []string{"cleave split --keyspace", shellWord(s.Keyspace)}
	for _, p := range s.At {
		words = append(words, "--at", shellWord(api.PointText(p)))
	}
	return strings.Join(words, " ")
}

// shellWord quotes a word for a shell where it must be.
func shellWord(word string) string {
	plain := func(c rune) bool {
		return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.ContainsRune("_-.:@", c)
	}
	if word != "" && !strings.ContainsFunc(word, func(c rune) bool { return !plain(c) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

const (
	// countTimeout bounds counting the rows of one shard's tables anew.
	countTimeout = 5 * time.Minute
	// staleQuery lists tables of which so much has changed since they were counted that their size cannot be told from it.
	staleQuery = `
	SELECT format('%I.%I', s.schemaname, s.relname)
	FROM unnest($1::text[]) AS t (name) CROSS JOIN LATERAL (SELECT to_regclass(t.name) AS relid UNION SELECT relid FROM pg_partition_tree(to_regclass(t.name))) AS p
	JOIN pg_class c ON c.oid = p.relid JOIN pg_stat_user_tables s ON s.relid = c.oid
	WHERE c.relkind = 'r' AND s.n_mod_since_analyze > 1000 + greatest(c.reltuples, 0) / 10`
)

// countAnew has shards count the rows of tables that have changed much: what they guess is what moves are planned with. It returns the shards that could not.
func (c *Cluster) countAnew(ctx context.Context, m *topology.Map) (failed []string) {
	names := shardedTables(m)
	for _, look := range each(countedSpecs(m), func(spec topology.ShardSpec) inspected {
		return inspected{err: c.connectedFor(ctx, countTimeout, spec, func(ctx context.Context, s session) error { return countTables(ctx, s, names) })}
	}) {
		if look.err != nil {
			failed = append(failed, look.spec.Name)
		}
	}
	return failed
}

// countedSpecs are the shards that take part in plans: all but those in maintenance.
func countedSpecs(m *topology.Map) []topology.ShardSpec {
	return slices.DeleteFunc(specsOf(m), func(s topology.ShardSpec) bool { return s.State == topology.Maintenance })
}

func countTables(ctx context.Context, s session, names []string) error {
	stale, err := staleTables(ctx, s, names)
	if err != nil {
		return err
	}
	for _, table := range stale {
		if _, err := s.Exec(ctx, "ANALYZE (SKIP_LOCKED) "+table); err != nil {
			return err
		}
	}
	if stale, err = staleTables(ctx, s, names); err == nil && len(stale) > 0 {
		err = fmt.Errorf("table %s is locked", stale[0])
	}
	return err
}

func staleTables(ctx context.Context, s session, names []string) ([]string, error) {
	rows, err := s.Query(ctx, staleQuery, names)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// shardedTables are the names of all sharded tables.
func shardedTables(m *topology.Map) []string {
	names := []string{}
	for _, t := range m.Tables() {
		if t.Kind() == topology.Sharded {
			names = append(names, t.Name().String())
		}
	}
	return names
}
