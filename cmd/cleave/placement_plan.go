package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/placement"
)

// plan is one run of `cleave placement plan`.
type plan struct {
	out       output
	tuning    tuning
	algorithm string
	then      string
	shards    int
	weights   []float64
	add       int
	remove    []string
	fail      int
	seed      uint64
	items     string
	moves     bool
}

func newPlan() *cobra.Command {
	var p plan
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "What a change of shards would move, exactly, for any number of keys",
		Long: `Build the map for a number of shards, change the shards, and say what moves. The answer
is computed from the lengths of ranges, not from sampled keys, so it is exact for any number of
keys, and memory grows with the number of ranges alone.`,
		Example: `  cleave placement plan --shards 1000 --add 50 --items 1000000000000
  cleave placement plan --shards 20 --remove shard-3,shard-7 --algorithm minimal
  cleave placement plan --shards 1000 --fail 10 --algorithm rendezvous-fast --slots 131072
  cleave placement plan --shards 16 --algorithm ring --then minimal --moves --format csv`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.run(cmd) },
	}
	p.out.flags(cmd, formatTable, formatCSV, formatJSON)
	p.tuning.flags(cmd)
	cmd.Flags().StringVar(&p.algorithm, "algorithm", "ring", "algorithm: "+strings.Join(algorithmNames(), ", "))
	cmd.Flags().StringVar(&p.then, "then", "", "algorithm for the change, if it is another than the one that made the map")
	cmd.Flags().IntVar(&p.shards, "shards", 20, "shards before the change, shard-0 and so on")
	cmd.Flags().Float64SliceVar(&p.weights, "weights", nil, "weights of shard-0 and those that follow, added ones too; the rest weigh 1")
	cmd.Flags().IntVar(&p.add, "add", 0, "shards to add")
	cmd.Flags().StringSliceVar(&p.remove, "remove", nil, "shards to remove, by name")
	cmd.Flags().IntVar(&p.fail, "fail", 0, "shards to lose at random, chosen by --seed")
	cmd.Flags().Uint64Var(&p.seed, "seed", 1, "chooses which shards fail")
	cmd.Flags().StringVar(&p.items, "items", "1000000", "how many keys there are in all; 1e12 is fine")
	cmd.Flags().BoolVar(&p.moves, "moves", false, "list every move: range, from, to")
	complete(cmd, "algorithm", algorithmNames())
	complete(cmd, "then", algorithmNames())
	return cmd
}

// side is the map before or after the change.
type side struct {
	Shards  int      `json:"shards"`
	Ranges  int      `json:"ranges"`
	Mean    float64  `json:"keys_per_shard"`
	Std     float64  `json:"std"`
	Min     float64  `json:"min"`
	Max     float64  `json:"max"`
	Skew    *float64 `json:"skew"`
	Entropy float64  `json:"entropy"`
	Even    float64  `json:"evenness"`
}

type planResult struct {
	Algorithm  string     `json:"algorithm"`
	Then       string     `json:"then,omitempty"`
	Keys       float64    `json:"keys"`
	Added      int        `json:"added"`
	Removed    []string   `json:"removed"`
	Weighted   bool       `json:"weighted"` // figures are relative to weight
	Before     side       `json:"before"`
	After      side       `json:"after"`
	MovedShare float64    `json:"moved_share"`
	MovedExact string     `json:"moved_exact"`
	MovedKeys  float64    `json:"moved_keys"`
	Moves      int        `json:"moves"`
	Pairs      int        `json:"pairs"`
	LeastShare float64    `json:"least_share"`
	Seconds    float64    `json:"seconds"`
	HeapBytes  uint64     `json:"heap_bytes"`
	MoveList   []planMove `json:"move_list,omitempty"`
}

type planMove struct {
	Lo   string `json:"lo"`
	Hi   string `json:"hi"`
	From string `json:"from"`
	To   string `json:"to"`
}

func (p *plan) run(cmd *cobra.Command) error {
	if err := errors.Join(p.out.check(), checkCount("shards", p.shards, 1), checkCount("add", p.add, 0), checkCount("fail", p.fail, 0)); err != nil {
		return err
	}
	progress := newProgress(cmd)
	result, err := p.compute(progress)
	progress.done()
	if err != nil {
		return err
	}
	return p.out.write(cmd, func(w io.Writer) error { return p.print(w, result) })
}

func (p *plan) compute(progress *progress) (*planResult, error) {
	keys, err := parseItems(p.items)
	if err != nil {
		return nil, err
	}
	first, second, err := p.algorithms()
	if err != nil {
		return nil, err
	}
	before, after, removed, err := p.shardLists()
	if err != nil {
		return nil, err
	}
	started := time.Now()
	from, err := first.Ranges(nil, before)
	if err != nil {
		return nil, wrongInput(err)
	}
	progress.step("the map before has %d ranges; changing it", from.Len())
	to, err := second.Ranges(from, after)
	if err != nil {
		return nil, wrongInput(err)
	}
	progress.step("comparing %d with %d ranges", from.Len(), to.Len())
	movement := from.Diff(to)
	least, err := placement.LeastMovement(from, after)
	if err != nil {
		return nil, wrongInput(err)
	}
	r := &planResult{
		Algorithm: p.algorithm, Then: p.then, Keys: keys, Added: p.add, Removed: removed,
		Before: sideOf(from, before, keys), After: sideOf(to, after, keys), Weighted: len(p.weights) > 0,
		MovedShare: movement.Extent.Share(), MovedExact: movement.Extent.Rat().String(), MovedKeys: movement.Extent.Share() * keys,
		Moves: len(movement.Moves), Pairs: pairs(movement.Moves), LeastShare: least.Share(), Seconds: time.Since(started).Seconds(),
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	r.HeapBytes = memory.HeapAlloc
	if p.moves {
		r.MoveList = listMoves(movement.Moves)
	}
	return r, nil
}

func parseItems(s string) (float64, error) {
	n, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil || !(n >= 1) || math.IsInf(n, 0) {
		return 0, wrongInputf("--items %s: use a number of keys, such as 1000000 or 1e12", s)
	}
	return math.Floor(n), nil
}

func (p *plan) algorithms() (first, second placement.Algorithm, err error) {
	if first, err = p.tuning.algorithm(p.algorithm); err != nil || p.then == "" {
		return first, first, err
	}
	second, err = p.tuning.algorithm(p.then)
	return first, second, err
}

// shardLists returns the shards before and after: without the removed and the failed, with the added.
func (p *plan) shardLists() (before, after []placement.Shard, removed []string, err error) {
	all := placement.Numbered("shard-", p.shards+p.add)
	if len(p.weights) > len(all) {
		return nil, nil, nil, wrongInputf("%d weights for %d shards", len(p.weights), len(all))
	}
	for i, w := range p.weights {
		if !(w > 0) || math.IsInf(w, 0) {
			return nil, nil, nil, wrongInputf("--weights: shard-%d has weight %v: a weight is a positive number", i, w)
		}
		all[i].Weight = w
	}
	before, after = all[:p.shards:p.shards], slices.Clone(all[:p.shards])
	removed = []string{}
	for _, name := range p.remove {
		at := slices.IndexFunc(after, func(s placement.Shard) bool { return s.Name == name })
		if at < 0 {
			return nil, nil, nil, wrongInputf("--remove %s: there is no such shard (or it is named twice); there are shard-0 to shard-%d", name, p.shards-1)
		}
		after = slices.Delete(after, at, at+1)
		removed = append(removed, name)
	}
	if p.fail > len(after) {
		return nil, nil, nil, wrongInputf("--fail %d: only %d shards are left", p.fail, len(after))
	}
	random := rand.New(rand.NewPCG(p.seed, 0))
	for range p.fail {
		at := random.IntN(len(after))
		removed = append(removed, after[at].Name)
		after = slices.Delete(after, at, at+1)
	}
	after = append(after, all[p.shards:]...)
	if len(after) == 0 {
		return nil, nil, nil, wrongInput(placement.ErrNoShards)
	}
	return before, after, removed, nil
}

func sideOf(m *placement.Map, shards []placement.Shard, keys float64) side {
	f := m.FiguresByWeight(shards)
	s := side{
		Shards: f.Shards, Ranges: m.Len(), Mean: f.Mean * keys, Std: f.Std * keys, Min: f.Min * keys, Max: f.Max * keys,
		Entropy: f.Entropy, Even: f.Evenness(),
	}
	if skew := f.Skew(); !math.IsInf(skew, 0) {
		s.Skew = &skew
	}
	return s
}

func pairs(moves []placement.HashMove) int {
	seen := map[[2]string]struct{}{}
	for _, m := range moves {
		seen[[2]string{m.From, m.To}] = struct{}{}
	}
	return len(seen)
}

func listMoves(moves []placement.HashMove) []planMove {
	list := make([]planMove, len(moves))
	for i, m := range moves {
		list[i] = planMove{fmt.Sprintf("0x%016x", m.Lo), fmt.Sprintf("0x%016x", m.Hi), m.From, m.To}
		if m.Hi == 0 {
			list[i].Hi = "end"
		}
	}
	return list
}

func (p *plan) print(w io.Writer, r *planResult) error {
	switch {
	case p.out.format == formatJSON:
		return printJSON(w, r)
	case p.out.format == formatCSV && p.moves:
		rows := make([][]string, len(r.MoveList))
		for i, m := range r.MoveList {
			rows[i] = []string{m.Lo, m.Hi, m.From, m.To}
		}
		return printCSV(w, []string{"lo", "hi", "from", "to"}, rows)
	case p.out.format == formatCSV:
		return r.printCSV(w)
	default:
		return r.printTable(w)
	}
}

func (r *planResult) printCSV(w io.Writer) error {
	row := func(when string, s side) []string {
		skew := ""
		if s.Skew != nil {
			skew = decimal(*s.Skew, 4)
		}
		return []string{when, strconv.Itoa(s.Shards), strconv.Itoa(s.Ranges), decimal(s.Mean, 2), decimal(s.Std, 2), decimal(s.Min, 2), decimal(s.Max, 2), skew, decimal(s.Entropy, 6), decimal(r.MovedShare, 12)}
	}
	return printCSV(w, []string{"when", "shards", "ranges", "keys_per_shard", "std", "min", "max", "skew", "entropy", "moved_share"},
		[][]string{row("before", r.Before), row("after", r.After)})
}

func (r *planResult) printTable(w io.Writer) error {
	name := r.Algorithm
	if r.Then != "" {
		name += ", then " + r.Then
	}
	fmt.Fprintf(w, "%s: %d shards, %d added, %d removed, %s keys\n", name, r.Before.Shards, r.Added, len(r.Removed), grouped(r.Keys))
	header := []string{"", "shards", "ranges", "keys/shard", "std", "min", "max", "max/min", "entropy", "evenness"}
	row := func(when string, s side) []any {
		skew := "inf"
		if s.Skew != nil {
			skew = decimal(*s.Skew, 4)
		}
		return []any{when, s.Shards, s.Ranges, decimal(s.Mean, 1), decimal(s.Std, 1), decimal(s.Min, 1), decimal(s.Max, 1), skew, decimal(s.Entropy, 4), decimal(s.Even, 6)}
	}
	if err := printTable(w, header, [][]any{row("before", r.Before), row("after", r.After)}); err != nil {
		return err
	}
	if r.Weighted {
		fmt.Fprintln(w, "Figures are relative to weight: even means in proportion.")
	}
	fmt.Fprintf(w, "Moves: %.6f %% of the space (exactly %s), %s keys, in %d ranges between %d pairs of shards\n",
		100*r.MovedShare, r.MovedExact, grouped(r.MovedKeys), r.Moves, r.Pairs)
	fmt.Fprintf(w, "Balance to the last hash would take %.6f %%; whole slots can take a little more or less\n", 100*r.LeastShare)
	if len(r.Removed) > 0 {
		fmt.Fprintf(w, "Removed: %s\n", strings.Join(r.Removed, ", "))
	}
	for _, m := range r.MoveList {
		fmt.Fprintf(w, "  [%s, %s)  %s -> %s\n", m.Lo, m.Hi, m.From, m.To)
	}
	_, err := fmt.Fprintf(w, "Computed from range lengths in %.2f s with %.0f MiB of heap\n", r.Seconds, float64(r.HeapBytes)/(1<<20))
	return err
}
