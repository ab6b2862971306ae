package shard

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cleavedb/cleave/internal/topology"
)

// withoutServers is a cluster whose shards, s1, s2 …, are in the map alone.
func withoutServers(t testing.TB, count int) *cluster {
	t.Helper()
	adds := make([]topology.Change, count)
	for i := range adds {
		adds[i] = topology.AddShard(topology.ShardSpec{Name: shardName(i), Primary: topology.InstanceSpec{Address: fmt.Sprintf("192.0.2.%d:%d", i%250, 1024+i)}})
	}
	c := &cluster{m: must[*topology.Map](t)(topology.New(clusterID))}
	c.change(t, adds...)
	return c
}

// TestAPlanSharesOutTheWholeMap: from all of its parts the map can be made again.
func TestAPlanSharesOutTheWholeMap(t *testing.T) {
	c := withoutServers(t, 3)
	rich(t, c)
	plan := Prepare(c.m)
	records := make([]*Recorded, 3)
	for i := range records {
		records[i] = must[*Recorded](t)(plan.expected(shardName(i)))
		alone := must[*Recorded](t)(expectedOf(c.m, shardName(i)))
		if difference := cmp.Diff(alone, records[i], cmpopts.IgnoreUnexported(Keyspace{}), cmpopts.EquateEmpty()); difference != "" {
			t.Errorf("%s has something else in a plan for all (- alone, + for all):\n%s", shardName(i), difference)
		}
		if records[i].LastShardNumber != 4 {
			t.Errorf("the last number is %d, that of the shard that is gone is 4", records[i].LastShardNumber)
		}
	}
	rebuilt, found, err := Rebuild(records)
	if err != nil {
		t.Fatal(found, err)
	}
	expectCodes(t, found)
	expectSameMap(t, rebuilt, c.m)
	var unknown *topology.NotFoundError
	if _, err := plan.expected("gone"); !errors.As(err, &unknown) {
		t.Errorf("a shard that is gone: %v", err)
	}
}

func TestManyShardsAreToldFromOnePlan(t *testing.T) {
	c := newCluster(t, 3)
	rich(t, c)
	plan := Prepare(c.m)
	failures := make([]error, len(c.conns))
	var all sync.WaitGroup
	for i, conn := range c.conns {
		all.Go(func() {
			changed, err := plan.Record(t.Context(), conn, shardName(i))
			if err == nil && !changed {
				err = errors.New("nothing was written")
			}
			failures[i] = err
		})
	}
	all.Wait()
	if err := errors.Join(failures...); err != nil {
		t.Fatal(err)
	}
	for i, r := range c.read(t) {
		expectCodes(t, plan.Verify(shardName(i), r))
		expectCodes(t, Verify(c.m, shardName(i), r))
		if changed, err := Record(t.Context(), c.conns[i], c.m, shardName(i)); err != nil || changed {
			t.Errorf("without the plan: changed: %v, %v", changed, err)
		}
		r.Entry.Weight++
		expectCodes(t, plan.Verify(shardName(i), r), "problem record_differs "+shardName(i))
	}
}

// BenchmarkAThousandShards is what it takes to know what each of a thousand shards has to record, with a million pins.
func BenchmarkAThousandShards(b *testing.B) {
	const shards, pins = 1000, 1_000_000
	c := withoutServers(b, shards)
	spec := wholeOn("s1")
	for i := range pins {
		spec.Pins = append(spec.Pins, topology.PinSpec{Key: topology.Point{strconv.Itoa(i)}, Shard: shardName(i % shards)})
	}
	c.change(b, topology.CreateKeyspace(spec))
	take := func(b *testing.B, r *Recorded, err error) {
		b.Helper()
		if err != nil || len(r.Keyspaces[0].Pins) != pins/shards {
			b.Fatal(len(r.Keyspaces[0].Pins), err)
		}
		r.Keyspaces[0].digest()
	}
	perShard := func(b *testing.B, told int) {
		b.Helper()
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(told), "µs/shard")
	}
	b.Run("each by itself", func(b *testing.B) {
		told := 0
		for b.Loop() {
			r, err := expectedOf(c.m, shardName(told%shards))
			take(b, r, err)
			told++
		}
		perShard(b, told)
	})
	b.Run("from one plan", func(b *testing.B) {
		told := 0
		for b.Loop() {
			plan := Prepare(c.m)
			for i := range shards {
				r, err := plan.expected(shardName(i))
				take(b, r, err)
				told++
			}
		}
		perShard(b, told)
	})
	b.Run("the plan alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Prepare(c.m)
		}
	})
}
