package observe

import (
	"cmp"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cleavedb/cleave/internal/sqltext"
)

// A latency is counted in one of latencyBuckets: four to every doubling, from 1 µs on, so that the middle of a bucket is within
// an eighth of whatever is in it. Below that are four of equal width; the last one has all that took more than eight hours.
const (
	latencyUnit       = 250 * time.Nanosecond
	bucketsPerOctave  = 4
	latencyOctaves    = 35
	latencyBuckets    = bucketsPerOctave * (latencyOctaves + 1)
	bitsOfTheSmallest = 3 // of an octave's first bucket, in units
)

// bucketOf returns where a latency, which is not negative, is counted.
func bucketOf(d time.Duration) int {
	units := uint64(d / latencyUnit)
	if units < bucketsPerOctave {
		return int(units)
	}
	octave := bits.Len64(units) - bitsOfTheSmallest
	return min(bucketsPerOctave*octave+int(units>>octave), latencyBuckets-1)
}

// bucketStart returns the smallest latency in a bucket; that of the next one is where it ends.
func bucketStart(bucket int) time.Duration {
	if bucket < bucketsPerOctave {
		return time.Duration(bucket) * latencyUnit
	}
	octave := bucket/bucketsPerOctave - 1
	return time.Duration(bucketsPerOctave+bucket%bucketsPerOctave) << octave * latencyUnit
}

// counters are what is counted of calls. How many there were is the sum of the buckets.
type counters struct {
	errors, rows, bytes, total, longest atomic.Int64
	latencies                           [latencyBuckets]atomic.Int64
}

func (c *counters) observe(d time.Duration, rows, bytes int64, failed bool) {
	d = max(d, 0) // a clock that was set back is no reason to count wrongly
	c.latencies[bucketOf(d)].Add(1)
	c.total.Add(int64(d))
	if rows != 0 {
		c.rows.Add(rows)
	}
	if bytes != 0 {
		c.bytes.Add(bytes)
	}
	if failed {
		c.errors.Add(1)
	}
	for {
		longest := c.longest.Load()
		if int64(d) <= longest || c.longest.CompareAndSwap(longest, int64(d)) {
			return
		}
	}
}

// sums are counters at one moment.
type sums struct {
	errors, rows, bytes, total, longest int64
	latencies                           [latencyBuckets]int64
}

// add adds what the counters have now.
func (s *sums) add(c *counters) {
	s.errors += c.errors.Load()
	s.rows += c.rows.Load()
	s.bytes += c.bytes.Load()
	s.total += c.total.Load()
	s.longest = max(s.longest, c.longest.Load())
	for i := range c.latencies {
		s.latencies[i] += c.latencies[i].Load()
	}
}

func (s *sums) calls() (calls int64) {
	for _, n := range s.latencies {
		calls += n
	}
	return calls
}

// quantile returns the latency that so many in a hundred calls did not exceed, give or take an eighth.
func (s *sums) quantile(percent, calls int64) time.Duration {
	longest := time.Duration(s.longest)
	wanted := (percent*calls + 99) / 100
	for bucket, n := range s.latencies[:latencyBuckets-1] {
		if wanted -= n; wanted <= 0 {
			return min((bucketStart(bucket)+bucketStart(bucket+1))/2, longest)
		}
	}
	return longest
}

// Figures are what is known of a number of calls. Quantiles are right to an eighth of their value, the rest exactly.
type Figures struct {
	Calls, Errors, Rows, Bytes      int64
	Total, Mean, P50, P95, P99, Max time.Duration
}

func (s *sums) figures() Figures {
	f := Figures{Calls: s.calls(), Errors: s.errors, Rows: s.rows, Bytes: s.bytes, Total: time.Duration(s.total), Max: time.Duration(s.longest)}
	if f.Calls > 0 {
		f.Mean = f.Total / time.Duration(f.Calls)
		f.P50, f.P95, f.P99 = s.quantile(50, f.Calls), s.quantile(95, f.Calls), s.quantile(99, f.Calls)
	}
	return f
}

// exportedBuckets end at 256 µs, 1 ms, 4 ms … and 67 s, nearly: at borders of our own buckets, so that they are exact.
var exportedBuckets = func() (ends []int) {
	for octave := 9; octave <= 27; octave += 2 {
		ends = append(ends, bucketsPerOctave*octave)
	}
	return ends
}()

func (s *sums) histogram(d *prometheus.Desc, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(exportedBuckets))
	var below int64
	from := 0
	for _, end := range exportedBuckets {
		for _, n := range s.latencies[from:end] {
			below += n
		}
		buckets[bucketStart(end).Seconds()] = uint64(below)
		from = end
	}
	return prometheus.MustNewConstHistogram(d, uint64(s.calls()), time.Duration(s.total).Seconds(), buckets, labels...)
}

// NoShard is what to give for the shard of a statement that ran on none, or on several, each of which is told by itself.
const NoShard = -1

// OtherText is the text of the statement that stands for all that found no room.
const OtherText = "other"

// StatementsConfig says how much is kept of statements.
type StatementsConfig struct {
	// Limit is how many statements are told apart; those that come later are counted as one. Each takes 1.2 kB and
	// its text. The default is 5,000.
	Limit int
	// TextLimit is how many bytes of a statement's text are kept. The default is 2,000.
	TextLimit int
	// Shards are told of every statement that ran on one shard. The default is none.
	Shards *ShardStats
}

func (c StatementsConfig) withDefaults() StatementsConfig {
	if c.Limit <= 0 {
		c.Limit = 5000
	}
	if c.TextLimit <= 0 {
		c.TextLimit = 2000
	}
	return c
}

// Statements counts what statements cost, each under its fingerprint, for as long as the process lives. It is a collector of
// their totals; single statements are in the [Statements.Snapshot], since metrics with a label for each would be too many.
//
// It is a table that is never more than half full and from which nothing is removed, so only adding to it takes a lock.
type Statements struct {
	config StatementsConfig
	other  Statement
	adding sync.Mutex
	known  atomic.Int64
	slots  []atomic.Pointer[Statement]
	factor uint64 // odd and random: nobody can choose fingerprints that meet in one slot
	shift  int
}

// Statement is one of [Statements].
type Statement struct {
	fingerprint uint64
	text        string
	shards      *ShardStats
	counters
}

// NewStatements returns an empty table.
func NewStatements(config StatementsConfig) *Statements {
	config = config.withDefaults()
	sizeBits := bits.Len(uint(2*config.Limit - 1))
	return &Statements{
		config: config,
		other:  Statement{text: OtherText, shards: config.Shards},
		slots:  make([]atomic.Pointer[Statement], 1<<sizeBits),
		factor: rand.Uint64() | 1,
		shift:  64 - sizeBits,
	}
}

// Entry returns the statement with the fingerprint, which is the same one each time, so it may be kept. The text is asked for
// when the fingerprint is not known. Statements that differ only in the values of settings, which are not shown, are one.
func (s *Statements) Entry(fingerprint uint64, text func() string) *Statement {
	full := s.isFull() // before the look: whatever is not there now will never be
	if found, _ := s.find(fingerprint); found != nil {
		return found
	}
	if full {
		return &s.other
	}
	masked, sets := maskSettings(text())
	if sets {
		fingerprint = sqltext.Fingerprint([]byte(masked))
	}
	return s.add(&Statement{fingerprint: fingerprint, text: shorten(masked, s.config.TextLimit), shards: s.config.Shards})
}

func (s *Statements) isFull() bool { return s.known.Load() >= int64(s.config.Limit) }

// find returns the statement, or nil and the slot that it would have.
func (s *Statements) find(fingerprint uint64) (*Statement, *atomic.Pointer[Statement]) {
	for at := fingerprint * s.factor >> s.shift; ; at = (at + 1) % uint64(len(s.slots)) {
		slot := &s.slots[at]
		if found := slot.Load(); found == nil || found.fingerprint == fingerprint {
			return found, slot
		}
	}
}

// add returns the statement that stands for the new one from now on.
func (s *Statements) add(fresh *Statement) *Statement {
	s.adding.Lock()
	defer s.adding.Unlock()
	found, slot := s.find(fresh.fingerprint)
	if found != nil {
		return found // another was faster
	}
	if s.isFull() {
		return &s.other
	}
	slot.Store(fresh)
	s.known.Add(1)
	return fresh
}

// shorten cuts a text, not within a character, and keeps nothing of the memory of a longer one.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const cut = "…"
	return strings.ToValidUTF8(text[:limit], "") + cut
}

// Observe counts a call that took d. The shard is its number, or [NoShard].
func (s *Statement) Observe(shard int, d time.Duration, rows, bytes int64, failed bool) {
	s.observe(d, rows, bytes, failed)
	if s.shards != nil {
		s.shards.Observe(shard, d, rows, bytes, failed)
	}
}

// StatementStats are the figures of one statement.
type StatementStats struct {
	Fingerprint uint64
	Text        string
	Figures
}

func (s *Statement) stats() StatementStats {
	var now sums
	now.add(&s.counters)
	return StatementStats{s.fingerprint, s.text, now.figures()}
}

// Snapshot returns the figures of all statements that were called, those first that took the most time. If some found
// no room, there is one more with the text [OtherText] and the fingerprint 0.
func (s *Statements) Snapshot() []StatementStats {
	var all []StatementStats
	for statement := range s.all {
		if stats := statement.stats(); stats.Calls > 0 {
			all = append(all, stats)
		}
	}
	slices.SortFunc(all, func(a, b StatementStats) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	return all
}

// all iterates over the statements, with the one for all others.
func (s *Statements) all(yield func(*Statement) bool) {
	for i := range s.slots {
		if statement := s.slots[i].Load(); statement != nil && !yield(statement) {
			return
		}
	}
	yield(&s.other)
}

var (
	statementDuration     = describe("statement_duration_seconds", "How long statements took in this process.")
	statementErrors       = describe("statement_errors_total", "Statements that failed.")
	statementRows         = describe("statement_rows_total", "Rows that statements returned or changed.")
	statementBytes        = describe("statement_bytes_total", "Bytes that statements returned.")
	statementFingerprints = describe("statement_fingerprints", "Statements that are told apart.")
	statementDescriptions = []*prometheus.Desc{statementDuration, statementErrors, statementRows, statementBytes, statementFingerprints}
)

// Describe lists the metrics.
func (s *Statements) Describe(to chan<- *prometheus.Desc) {
	for _, d := range statementDescriptions {
		to <- d
	}
}

// Collect reports the totals of all statements.
func (s *Statements) Collect(to chan<- prometheus.Metric) {
	var total sums
	for statement := range s.all {
		total.add(&statement.counters)
	}
	to <- total.histogram(statementDuration)
	to <- counter(statementErrors, total.errors)
	to <- counter(statementRows, total.rows)
	to <- counter(statementBytes, total.bytes)
	to <- gauge(statementFingerprints, float64(s.known.Load()))
}

func counter[T int64 | uint64 | float64](d *prometheus.Desc, value T, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
}

// ShardStats counts what statements cost on each shard. Shards have small numbers that are never given twice. It is a
// collector of the shards that have a name at the moment of asking.
type ShardStats struct {
	name   func(shard int) string
	shards atomic.Pointer[[]*counters] // by number, nil for those never called; copied to add one
	adding sync.Mutex
}

// NewShardStats returns counters for shards. The name of one that is gone is empty.
func NewShardStats(name func(shard int) string) *ShardStats {
	s := &ShardStats{name: name}
	s.shards.Store(&[]*counters{})
	return s
}

// Observe counts a call on a shard that took d; [NoShard] is not counted.
func (s *ShardStats) Observe(shard int, d time.Duration, rows, bytes int64, failed bool) {
	if shard < 0 {
		return
	}
	s.of(shard).observe(d, rows, bytes, failed)
}

func (s *ShardStats) of(shard int) *counters {
	if shards := *s.shards.Load(); shard < len(shards) && shards[shard] != nil {
		return shards[shard]
	}
	return s.addShard(shard)
}

func (s *ShardStats) addShard(shard int) *counters {
	s.adding.Lock()
	defer s.adding.Unlock()
	old := *s.shards.Load()
	if shard < len(old) && old[shard] != nil {
		return old[shard] // another was faster
	}
	shards := make([]*counters, max(len(old), shard+1))
	copy(shards, old)
	shards[shard] = new(counters)
	s.shards.Store(&shards)
	return shards[shard]
}

// ShardFigures are the figures of one shard.
type ShardFigures struct {
	Shard int
	Name  string
	Figures
}

// Snapshot returns the figures of all shards that have a name and were called, by number.
func (s *ShardStats) Snapshot() []ShardFigures {
	var all []ShardFigures
	s.each(func(shard int, name string, now *sums) {
		all = append(all, ShardFigures{shard, name, now.figures()})
	})
	return all
}

func (s *ShardStats) each(report func(shard int, name string, now *sums)) {
	for shard, c := range *s.shards.Load() {
		if c == nil {
			continue
		}
		if name := s.name(shard); name != "" {
			var now sums
			now.add(c)
			report(shard, name, &now)
		}
	}
}

var (
	shardStatementDuration = describe("shard_statement_duration_seconds", "How long statements took on the shard.", "shard")
	shardStatementErrors   = describe("shard_statement_errors_total", "Statements that failed on the shard.", "shard")
	shardStatementRows     = describe("shard_statement_rows_total", "Rows that statements returned or changed on the shard.", "shard")
	shardStatementBytes    = describe("shard_statement_bytes_total", "Bytes that the shard returned.", "shard")
	shardStatements        = []*prometheus.Desc{shardStatementDuration, shardStatementErrors, shardStatementRows, shardStatementBytes}
)

// Describe lists the metrics.
func (s *ShardStats) Describe(to chan<- *prometheus.Desc) {
	for _, d := range shardStatements {
		to <- d
	}
}

// Collect reports every shard that has a name.
func (s *ShardStats) Collect(to chan<- prometheus.Metric) {
	s.each(func(_ int, name string, now *sums) {
		to <- now.histogram(shardStatementDuration, name)
		to <- counter(shardStatementErrors, now.errors, name)
		to <- counter(shardStatementRows, now.rows, name)
		to <- counter(shardStatementBytes, now.bytes, name)
	})
}
