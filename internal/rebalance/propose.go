package rebalance

import (
	"fmt"
	"math"
	"slices"

	"github.com/cleavedb/cleave/internal/topology"
)

// DefaultSplitBytes is the size from which a range should be cut.
const DefaultSplitBytes = 10 << 30

// mergeShare is how small ranges are that should be joined, as a part of the size from which they would be cut again: far enough below it that nothing is joined and cut in turn.
const mergeShare = 10

// narrow is how wide a range of hashes must be to be cut for its load: a key that has all of it would have its range cut again and again.
const narrow = 1 << 44

// maxParts is into how many parts one range is cut at a time.
const maxParts = 256

// Thresholds say which ranges are too large or too small.
type Thresholds struct {
	// Bytes is the size above which a range is cut; DefaultSplitBytes by default.
	Bytes int64 `json:"bytes,omitempty"`
	// Load is the load above which a range is cut, whatever its size; 0 means that load does not count. What was measured should be an average over minutes, or a moment's peak cuts ranges.
	Load float64 `json:"load,omitempty"`
	// Keyspaces are the ones to look at, all by default.
	Keyspaces []string `json:"keyspaces,omitempty"`
	// Rules are those of the plans: ranges are not joined where one begins or ends.
	Rules []Rule `json:"rules,omitempty"`
}

func (t Thresholds) withDefaults() (Thresholds, error) {
	if t.Bytes == 0 {
		t.Bytes = DefaultSplitBytes
	}
	if t.Bytes < mergeShare || !(t.Load >= 0) || math.IsInf(t.Load, 0) {
		return t, fmt.Errorf("thresholds of %d bytes and a load of %v: use at least %d bytes and a load above 0", t.Bytes, t.Load, mergeShare)
	}
	return t, nil
}

// SplitProposal is a range that should be cut.
type SplitProposal struct {
	Keyspace string         `json:"keyspace"`
	Shard    string         `json:"shard"`
	From     topology.Point `json:"from,omitempty"`
	To       topology.Point `json:"to,omitempty"`
	// At is where to cut it, in order: into parts of equal size, as far as is known, none of which is too large.
	At []topology.Point `json:"at"`
	Size
	// Reason is what is too large, bytes or load.
	Reason Measure `json:"reason"`
}

// SplitProposals are the ranges that should be cut, by keyspace and in order.
type SplitProposals struct {
	MapVersion uint64          `json:"map_version"`
	Splits     []SplitProposal `json:"splits"`
	Warnings   []string        `json:"warnings"`
}

// MergeProposal is a run of neighbouring ranges of one shard that should be one.
type MergeProposal struct {
	Keyspace string         `json:"keyspace"`
	Shard    string         `json:"shard"`
	From     topology.Point `json:"from,omitempty"`
	To       topology.Point `json:"to,omitempty"`
	// At is where they meet, in order.
	At []topology.Point `json:"at"`
	Size
}

// MergeProposals are the ranges that should be joined, by keyspace and in order.
type MergeProposals struct {
	MapVersion uint64          `json:"map_version"`
	Merges     []MergeProposal `json:"merges"`
}

// AutoSplit proposes which ranges to cut, and where. Ranges with a move under way are left alone.
func AutoSplit(m *topology.Map, sizes Sizes, thresholds Thresholds) (*SplitProposals, error) {
	thresholds, keyspaces, err := prepare(m, sizes, thresholds)
	if err != nil {
		return nil, err
	}
	proposals := &SplitProposals{MapVersion: m.Version(), Splits: []SplitProposal{}, Warnings: []string{}}
	for _, k := range keyspaces {
		for i := range k.ranges {
			r := &k.ranges[i]
			parts, why := thresholds.parts(r.size)
			if parts < 2 || r.busy {
				continue
			}
			if why == ByLoad && k.Strategy() != topology.ByRange && hashWidth(r.span) < narrow {
				proposals.Warnings = append(proposals.Warnings, fmt.Sprintf("keyspace %s: the range from %s has much load for so narrow a range: it is one key's, and splits do not help", k.Name(), pointOf(k.Keyspace, r.span.Lo)))
				continue
			}
			points := k.pointsToCut(r, parts)
			if len(points) == 0 {
				proposals.Warnings = append(proposals.Warnings, fmt.Sprintf("keyspace %s: the range from %s is too large, but nobody knows where to cut it", k.Name(), pointOf(k.Keyspace, r.span.Lo)))
				continue
			}
			proposals.Splits = append(proposals.Splits, SplitProposal{
				Keyspace: k.Name(), Shard: r.owner.Name(), From: pointOf(k.Keyspace, r.span.Lo), To: pointOf(k.Keyspace, r.span.Hi),
				At: k.print(points), Size: r.size.size(), Reason: why,
			})
		}
	}
	return proposals, nil
}

// prepare measures the keyspaces to look at.
func prepare(m *topology.Map, sizes Sizes, thresholds Thresholds) (Thresholds, []*measured, error) {
	thresholds, err := thresholds.withDefaults()
	if err != nil {
		return thresholds, nil, err
	}
	if err := checkRules(m, thresholds.Rules); err != nil {
		return thresholds, nil, err
	}
	keyspaces, err := chosen(m, thresholds.Keyspaces)
	if err != nil {
		return thresholds, nil, err
	}
	all := make([]*measured, len(keyspaces))
	for i, k := range keyspaces {
		if all[i], err = measure(k, sizes); err != nil {
			return thresholds, nil, err
		}
	}
	return thresholds, all, nil
}

// parts says into how many parts a range of this size should be cut, and what is too large.
func (t Thresholds) parts(q quantities) (parts int, why Measure) {
	size := q.size()
	byBytes, byLoad := math.Ceil(float64(size.Bytes)/float64(t.Bytes)), 0.0
	if t.Load > 0 {
		byLoad = math.Ceil(size.Load / t.Load)
	}
	if byLoad > byBytes {
		return int(min(byLoad, maxParts)), ByLoad
	}
	return int(min(byBytes, maxParts)), ByBytes
}

// pointsToCut finds where to cut a range into this many equal parts, or as many as can be.
func (m *measured) pointsToCut(r *part, parts int) []string {
	var points []string
	for i := 1; i < parts; i++ {
		if m.Strategy() != topology.ByRange {
			offset := math.Floor(hashWidth(r.span) * (float64(i) / float64(parts)))
			points = append(points, hashBound(hashOfBound(r.span.Lo)+uint64(offset)))
		} else if at := int(math.Round(float64(len(r.splitAt)+1)*float64(i)/float64(parts))) - 1; at >= 0 && at < len(r.splitAt) {
			points = append(points, r.splitAt[at])
		}
	}
	return slices.DeleteFunc(slices.Compact(points), func(p string) bool { return !inside(r.span, p) })
}

func (m *measured) print(bounds []string) []topology.Point {
	points := make([]topology.Point, len(bounds))
	for i, b := range bounds {
		points[i] = pointOf(m.Keyspace, b)
	}
	return points
}

// AutoMerge proposes which neighbouring ranges of one shard to join: as many as together stay under a tenth of the thresholds. Ranges whose size is not known, or with a move under way,
// are left alone.
func AutoMerge(m *topology.Map, sizes Sizes, thresholds Thresholds) (*MergeProposals, error) {
	thresholds, keyspaces, err := prepare(m, sizes, thresholds)
	if err != nil {
		return nil, err
	}
	proposals := &MergeProposals{MapVersion: m.Version(), Merges: []MergeProposal{}}
	for _, k := range keyspaces {
		rules, err := bindRules(k.Keyspace, thresholds.Rules)
		if err != nil {
			return nil, err
		}
		cuts := ruleCuts(rules)
		for from := 0; from < len(k.ranges); {
			end := k.endOfRun(from, thresholds, cuts)
			if end > from+1 {
				proposals.Merges = append(proposals.Merges, k.merge(from, end))
			}
			from = end
		}
	}
	return proposals, nil
}

// endOfRun returns where the run of ranges that can be joined with this one ends.
func (m *measured) endOfRun(from int, t Thresholds, cuts []string) int {
	first := &m.ranges[from]
	sum, end := first.size, from+1
	for ; end < len(m.ranges); end++ {
		next := &m.ranges[end]
		_, ruled := slices.BinarySearch(cuts, next.span.Lo)
		sum.add(next.size)
		if first.busy || next.busy || !first.known || !next.known || ruled || next.owner != first.owner || !t.small(sum) {
			break
		}
	}
	return end
}

func (t Thresholds) small(q quantities) bool {
	size := q.size()
	return size.Bytes < t.Bytes/mergeShare && (t.Load == 0 || size.Load < t.Load/mergeShare)
}

func (m *measured) merge(from, end int) MergeProposal {
	first, last := &m.ranges[from], &m.ranges[end-1]
	var sum quantities
	var at []string
	for i := from; i < end; i++ {
		sum.add(m.ranges[i].size)
		if i > from {
			at = append(at, m.ranges[i].span.Lo)
		}
	}
	return MergeProposal{
		Keyspace: m.Name(), Shard: first.owner.Name(), From: pointOf(m.Keyspace, first.span.Lo), To: pointOf(m.Keyspace, last.span.Hi),
		At: m.print(at), Size: sum.size(),
	}
}
