package observe

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"
)

// TestBucketsCoverEverything: every latency is in the bucket whose borders it is between, and buckets are narrow.
func TestBucketsCoverEverything(t *testing.T) {
	check := func(d time.Duration) error {
		bucket := bucketOf(d)
		start, end := bucketStart(bucket), bucketStart(bucket+1)
		if d < start || d >= end && bucket < latencyBuckets-1 {
			return fmt.Errorf("%v is in bucket %d, from %v to %v", d, bucket, start, end)
		}
		middle := (start + end) / 2
		if off := (middle - d).Abs(); d >= time.Microsecond && d < 8*time.Hour && off > d/8+1 {
			return fmt.Errorf("%v is told as %v", d, middle)
		}
		return nil
	}
	for bucket := range latencyBuckets {
		for _, d := range []time.Duration{bucketStart(bucket) - 1, bucketStart(bucket), bucketStart(bucket) + 1} {
			if d >= 0 {
				if err := check(d); err != nil {
					t.Error(err)
				}
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		if err := check(time.Duration(rapid.Int64Range(0, 1<<62).Draw(t, "latency"))); err != nil {
			t.Fatal(err)
		}
	})
}

// TestFiguresAgainstAll compares with figures taken from all latencies themselves.
func TestFiguresAgainstAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		latencies := rapid.SliceOfN(rapid.Int64Range(int64(time.Microsecond), int64(20*time.Hour)), 1, 300).Draw(t, "latencies")
		var c counters
		want := Figures{Calls: int64(len(latencies))}
		for i, ns := range latencies {
			failed := i%3 == 0
			c.observe(time.Duration(ns), int64(i), int64(2*i), failed)
			want.Rows += int64(i)
			want.Bytes += int64(2 * i)
			want.Total += time.Duration(ns)
			if failed {
				want.Errors++
			}
		}
		slices.Sort(latencies)
		want.Mean, want.Max = want.Total/time.Duration(want.Calls), time.Duration(latencies[len(latencies)-1])
		var now sums
		now.add(&c)
		got := now.figures()
		for percent, quantile := range map[int]*time.Duration{50: &got.P50, 95: &got.P95, 99: &got.P99} {
			exact := time.Duration(latencies[(percent*len(latencies)+99)/100-1])
			if off := (*quantile - exact).Abs(); exact < 8*time.Hour && off > exact/8+1 || *quantile > want.Max {
				t.Fatalf("%d of a hundred took up to %v, which is told as %v", percent, exact, *quantile)
			}
			*quantile = 0
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestNegativeLatencyIsNone(t *testing.T) {
	var c counters
	c.observe(-time.Second, 0, 0, false)
	var now sums
	now.add(&c)
	if diff := cmp.Diff(Figures{Calls: 1}, now.figures()); diff != "" {
		t.Error(diff)
	}
}

func text(s string) func() string { return func() string { return s } }

func TestStatementsBeyondTheLimit(t *testing.T) {
	s := NewStatements(StatementsConfig{Limit: 3})
	for fingerprint := range uint64(10) {
		for range 2 {
			s.Entry(fingerprint, text(fmt.Sprint("statement ", fingerprint))).Observe(NoShard, time.Duration(fingerprint+1)*time.Millisecond, 1, 10, false)
		}
	}
	var got []string
	for _, stats := range s.Snapshot() {
		got = append(got, fmt.Sprint(stats.Fingerprint, " ", stats.Text, " ", stats.Calls, " ", stats.Total))
	}
	want := []string{"0 other 14 98ms", "2 statement 2 2 6ms", "1 statement 1 2 4ms", "0 statement 0 2 2ms"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestEntryIsOne: whoever asks at the same time gets the same statement, and none takes the room of two.
func TestEntryIsOne(t *testing.T) {
	const limit, askers = 500, 8
	s := NewStatements(StatementsConfig{Limit: limit})
	found := make([][]*Statement, askers)
	var asking sync.WaitGroup
	for a := range askers {
		asking.Go(func() {
			for i := range uint64(limit) {
				e := s.Entry(i<<40, text("x"))
				e.Observe(NoShard, time.Microsecond, 1, 1, true)
				found[a] = append(found[a], e)
			}
		})
	}
	asking.Wait()
	for a := range askers {
		if !slices.Equal(found[a], found[0]) {
			t.Fatal("two have different statements for one fingerprint")
		}
	}
	if n := s.known.Load(); n != limit || slices.Contains(found[0], &s.other) {
		t.Errorf("%d of %d found room", n, limit)
	}
	for _, stats := range s.Snapshot() {
		if stats.Calls != askers || stats.Errors != askers || stats.Rows != askers || stats.Bytes != askers || stats.Total != askers*time.Microsecond {
			t.Fatalf("%+v", stats)
		}
	}
	for fingerprint := range uint64(100) { // the table is full, and full it stays
		if s.Entry(fingerprint+1, text("y")) != &s.other {
			t.Fatal("there was more room")
		}
	}
}

func TestTextIsShortened(t *testing.T) {
	s := NewStatements(StatementsConfig{TextLimit: 10})
	long := s.Entry(1, text(strings.Repeat("é", 4)+"aéb")).text // the tenth byte is half a character
	if long != strings.Repeat("é", 4)+"a…" || !utf8.ValidString(long) {
		t.Errorf("%q", long)
	}
	if short := s.Entry(2, text("0123456789")).text; short != "0123456789" {
		t.Errorf("%q", short)
	}
}

// names has shards 1 and 3 by their names, and another that is gone.
func names(shard int) string { return map[int]string{1: "s1", 3: "s3"}[shard] }

func TestShardsAreToldOfStatements(t *testing.T) {
	shards := NewShardStats(names)
	s := NewStatements(StatementsConfig{Shards: shards, Limit: 1})
	for _, shard := range []int{3, 1, 3, 2, NoShard} {
		s.Entry(uint64(shard), text("x")).Observe(shard, time.Millisecond, 5, 100, shard == 1)
	}
	var got []string
	for _, f := range shards.Snapshot() {
		got = append(got, fmt.Sprint(f.Shard, f.Name, f.Calls, f.Errors, f.Rows, f.Bytes, f.Total))
	}
	want := []string{fmt.Sprint(1, "s1", int64(1), int64(1), int64(5), int64(100), time.Millisecond), fmt.Sprint(3, "s3", int64(2), int64(0), int64(10), int64(200), 2*time.Millisecond)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestShardsGrowTogether(t *testing.T) {
	const askers, most = 4, 50
	shards := NewShardStats(strconv.Itoa)
	var asking sync.WaitGroup
	for range askers {
		asking.Go(func() {
			for _, shard := range rand.Perm(most) {
				shards.Observe(shard, time.Millisecond, 0, 0, false)
			}
		})
	}
	asking.Wait()
	snapshot := shards.Snapshot()
	if len(snapshot) != most {
		t.Errorf("%d shards", len(snapshot))
	}
	for _, f := range snapshot {
		if f.Calls != askers {
			t.Errorf("shard %d was called %d times", f.Shard, f.Calls)
		}
	}
}

// gather returns what a scrape of the collectors gives: a line for a number, and one for each bucket that is not like the
// one before it.
func gather(t *testing.T, collectors ...prometheus.Collector) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectors...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			if labels := m.GetLabel(); len(labels) > 0 {
				name += "/" + labels[0].GetValue()
			}
			h := m.GetHistogram()
			if h == nil {
				fmt.Fprintln(&out, name, m.GetCounter().GetValue()+m.GetGauge().GetValue())
				continue
			}
			fmt.Fprintln(&out, name, "count", h.GetSampleCount(), "sum", h.GetSampleSum())
			var before uint64
			for _, b := range h.GetBucket() {
				if b.GetCumulativeCount() != before {
					fmt.Fprintln(&out, name, "le", b.GetUpperBound(), b.GetCumulativeCount())
				}
				before = b.GetCumulativeCount()
			}
		}
	}
	return out.String()
}

func TestStatementsAreCollected(t *testing.T) {
	shards := NewShardStats(names)
	s := NewStatements(StatementsConfig{Shards: shards, Limit: 1})
	for i, d := range []time.Duration{255 * time.Microsecond, 256 * time.Microsecond, 3 * time.Millisecond, time.Minute, time.Hour} {
		s.Entry(uint64(i), text("x")).Observe(1+i%2*2, d, 1, 10, i == 0)
	}
	want := `cleave_shard_statement_bytes_total/s1 30
cleave_shard_statement_bytes_total/s3 20
cleave_shard_statement_duration_seconds/s1 count 3 sum 3600.003255
cleave_shard_statement_duration_seconds/s1 le 0.000256 1
cleave_shard_statement_duration_seconds/s1 le 0.004096 2
cleave_shard_statement_duration_seconds/s3 count 2 sum 60.000256
cleave_shard_statement_duration_seconds/s3 le 0.001024 1
cleave_shard_statement_duration_seconds/s3 le 67.108864 2
cleave_shard_statement_errors_total/s1 1
cleave_shard_statement_errors_total/s3 0
cleave_shard_statement_rows_total/s1 3
cleave_shard_statement_rows_total/s3 2
cleave_statement_bytes_total 50
cleave_statement_duration_seconds count 5 sum 3660.003511
cleave_statement_duration_seconds le 0.000256 1
cleave_statement_duration_seconds le 0.001024 2
cleave_statement_duration_seconds le 0.004096 3
cleave_statement_duration_seconds le 67.108864 4
cleave_statement_errors_total 1
cleave_statement_fingerprints 1
cleave_statement_rows_total 5
`
	if diff := cmp.Diff(want, gather(t, shards, s)); diff != "" {
		t.Error(diff)
	}
}

// full returns a table with all the statements that it has room for.
func full() *Statements {
	s := NewStatements(StatementsConfig{Shards: NewShardStats(names)})
	for i := range uint64(s.config.Limit) {
		s.Entry(i, text("x")).Observe(1, time.Millisecond, 1, 1, false)
	}
	return s
}

func TestCountingDoesNotAllocate(t *testing.T) {
	s := full()
	n := testing.AllocsPerRun(100, func() {
		s.Entry(17, text("x")).Observe(1, time.Millisecond, 1, 100, true)
		s.Entry(1<<40, text("x")).Observe(1, time.Millisecond, 1, 100, true)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkEntry(b *testing.B) {
	s := full()
	b.ReportAllocs()
	for fingerprint := uint64(0); b.Loop(); fingerprint++ {
		s.Entry(fingerprint%5000, text("x"))
	}
}

func BenchmarkObserve(b *testing.B) {
	statement := full().Entry(17, text("x"))
	b.ReportAllocs()
	for d := time.Duration(0); b.Loop(); d += time.Microsecond {
		statement.Observe(1, d&(1<<30-1), 1, 100, false)
	}
}

func BenchmarkObserveTogether(b *testing.B) {
	statement := full().Entry(17, text("x"))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for d := time.Duration(0); pb.Next(); d += time.Microsecond {
			statement.Observe(1, d&(1<<30-1), 1, 100, false)
		}
	})
}

func BenchmarkSnapshot(b *testing.B) {
	s := full()
	b.ReportAllocs()
	for b.Loop() {
		s.Snapshot()
	}
}

func BenchmarkCollect(b *testing.B) {
	s := full()
	b.ReportAllocs()
	for b.Loop() {
		s.Collect(make(chan prometheus.Metric, 10))
	}
}
