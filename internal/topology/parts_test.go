package topology

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// TestPartsAreGivenAway, of the hash and of the key itself: what lies between two points changes its owner, nothing else does, ranges are divided at the points alone, and what lies between others is found as it is in the list of all.
func TestPartsAreGivenAway(t *testing.T) {
	const points = 40
	random := rand.New(rand.NewPCG(3, 4))
	for strategy, at := range map[Strategy]func(int) Point{
		ByHash:  func(i int) Point { return Point{fmt.Sprintf("%016x", uint64(i)<<56)} },
		ByRange: func(i int) Point { return Point{strconv.Itoa(i)} },
	} {
		point := func() (int, Point) {
			i := random.IntN(points)
			if i == 0 {
				return 0, nil // the beginning, or the end
			}
			return i, at(i)
		}
		for range 300 {
			m := clusterOf(t, 5)
			spec := NewKeyspaceSpec("k", strategy, 7, "bigint")
			spec.Ranges = []RangeSpec{{Shard: "s1"}}
			m = must[*Map](t)(m.Next(CreateKeyspace(spec)))
			begins, has := map[int]bool{0: true}, [points]string{} // what a range from each point on has
			for i := range has {
				has[i] = "s1 false"
			}
			for range 1 + random.IntN(6) {
				from, low := point()
				to, high := point()
				part := RangeSpec{From: low, To: high, Shard: fmt.Sprint("s", 1+random.IntN(5)), Held: random.IntN(2) == 0}
				next, err := m.Next(GiveRanges("k", part))
				if to > 0 && to <= from {
					if err == nil {
						t.Fatal("nothing was given away")
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				m, begins[from], begins[to] = next, true, true
				for i := from; i < points && (to == 0 || i < to); i++ {
					has[i] = fmt.Sprint(part.Shard, " ", part.Held)
				}
			}
			k := m.Keyspace("k")
			var want []string
			for i := range points {
				if begins[i] {
					want = append(want, has[i])
				}
			}
			var all []Range
			var got []string
			for r := range k.Ranges() {
				all, got = append(all, r), append(got, fmt.Sprint(r.Owner.Name(), " ", r.Held))
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("the ranges are %s, not %s", strings.Join(got, ", "), strings.Join(want, ", "))
			}
			from, low := point()
			to, high := point()
			if to > 0 && to <= from {
				continue
			}
			var inside, found []Range
			last := 0 // where the range begins
			for _, r := range all {
				next := last + 1
				for ; next < points && !begins[next]; next++ {
				}
				if next > from && (to == 0 || last < to) {
					inside = append(inside, r)
				}
				last = next
			}
			for r := range must[iter.Seq[Range]](t)(k.RangesIn(low, high)) {
				found = append(found, r)
			}
			if !reflect.DeepEqual(found, inside) {
				t.Fatalf("between %s and %s there are %d ranges, not %d", low, high, len(found), len(inside))
			}
		}
	}
}

// TestEqualKeyspaces have the same in them, however they came to it.
func TestEqualKeyspaces(t *testing.T) {
	m := clusterOf(t, 3)
	spec := NewKeyspaceSpec("k", ByHash, 7, "bigint")
	spec.Ranges = []RangeSpec{{Shard: "s1"}}
	m = must[*Map](t)(m.Next(CreateKeyspace(spec)))
	half := RangeSpec{To: Point{"8000000000000000"}, Shard: "s2"}
	a := must[*Map](t)(m.Next(GiveRanges("k", half), SetPins("k", PinSpec{Key: Point{"1"}, Shard: "s3"})))
	b := must[*Map](t)(must[*Map](t)(m.Next(SetPins("k", PinSpec{Key: Point{"1"}, Shard: "s3"}))).Next(GiveRanges("k", half)))
	if !a.Keyspace("k").Equals(b.Keyspace("k")) || a.Keyspace("k").Equals(m.Keyspace("k")) {
		t.Error("what is equal is not, or what is not is")
	}
	pin, pinned := a.Keyspace("k").PinOf(must[string](t)(a.Keyspace("k").Encode(Point{"1"})))
	if !pinned || pin.Owner.Name() != "s3" {
		t.Errorf("the pin: %+v, %t", pin, pinned)
	}
	if pin, pinned := a.Keyspace("k").PinOf(must[string](t)(a.Keyspace("k").Encode(Point{"2"}))); pinned {
		t.Errorf("a pin that is none: %+v", pin)
	}
	for _, other := range []Change{SetPins("k", PinSpec{Key: Point{"1"}, Shard: "s2"}), GiveRanges("k", RangeSpec{Shard: "s1"})} {
		if c := must[*Map](t)(b.Next(other)); a.Keyspace("k").Equals(c.Keyspace("k")) {
			t.Error("what is not equal is")
		}
	}
}
