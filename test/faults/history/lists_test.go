package history_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/test/faults/history"
)

// Steps of transactions, to be written shortly.
func add(key, value int64) history.ListStep { return history.ListStep{Key: key, Value: value} }

func see(key int64, found ...int64) history.ListStep { return history.ListStep{Key: key, Found: found} }

// transaction is one that takes the second of its number.
func transaction(number int64, outcome history.Outcome, steps ...history.ListStep) history.Lists {
	start := time.Duration(number) * time.Second
	return history.Lists{Head: history.Head{Number: number, Start: start, End: start + time.Second/2, Outcome: outcome}, Steps: steps}
}

// longer makes all of them take the same minute.
func longer(transactions ...history.Lists) []history.Lists {
	for i := range transactions {
		transactions[i].Start, transactions[i].End = 0, time.Minute
	}
	return transactions
}

func consistent(t history.Lists) history.Lists {
	t.Consistent = true
	return t
}

func TestListAnomalies(t *testing.T) {
	const ok, failed, unknown = history.Committed, history.Failed, history.Unknown
	for _, c := range []struct {
		name  string
		all   []history.Lists
		final map[int64][]int64
		want  []history.Kind
	}{
		{"all is well", []history.Lists{
			transaction(1, ok, add(1, 11), add(2, 12)),
			transaction(2, ok, see(1, 11), add(1, 21), see(1, 11, 21), see(2, 12), add(3, 23), add(3, 24)),
			transaction(3, failed, see(3, 23, 24), add(3, 33), see(3, 23, 24, 33)),
			transaction(4, unknown, add(1, 41), add(3, 43)),
			transaction(5, unknown, add(1, 51), add(3, 53), see(3, 23, 24, 43, 53)),
			consistent(transaction(6, ok, see(1, 11, 21, 41), see(2, 12), see(3, 23, 24, 43))),
		}, map[int64][]int64{1: {11, 21, 41}, 2: {12}, 3: {23, 24, 43}}, nil},
		{"an append is lost", []history.Lists{transaction(1, ok, add(1, 11), add(2, 12))}, nil, []history.Kind{history.Lost}},
		{"half of a transaction stays", []history.Lists{transaction(1, unknown, add(1, 11), add(2, 12))}, map[int64][]int64{2: {12}}, []history.Kind{history.Half}},
		{"half of a committed transaction stays", []history.Lists{transaction(1, ok, add(1, 11), add(2, 12))}, map[int64][]int64{2: {12}}, []history.Kind{history.Half}},
		{"a failed transaction stays", []history.Lists{transaction(1, failed, add(1, 11))}, map[int64][]int64{1: {11}}, []history.Kind{history.Aborted}},
		{"a failed transaction is seen", []history.Lists{transaction(1, failed, add(1, 11)), transaction(2, ok, see(1, 11))}, nil, []history.Kind{history.Aborted}},
		{"an append comes twice", []history.Lists{transaction(1, ok, add(1, 11))}, map[int64][]int64{1: {11, 11}}, []history.Kind{history.Duplicate}},
		{"a value comes from nowhere", []history.Lists{transaction(1, ok, see(1, 99))}, nil, []history.Kind{history.Nowhere}},
		{"a value is in another list", []history.Lists{transaction(1, ok, add(1, 11))}, map[int64][]int64{1: {11}, 2: {11}}, []history.Kind{history.Nowhere}},
		{"an own value is seen too early", []history.Lists{transaction(1, ok, see(1, 11), add(1, 11))}, map[int64][]int64{1: {11}}, []history.Kind{history.Nowhere}},
		{"an own value is not seen", []history.Lists{transaction(1, ok, add(1, 11), see(1))}, map[int64][]int64{1: {11}}, []history.Kind{history.Self}},
		{
			"a transaction is seen before it is complete", longer(transaction(1, ok, add(1, 11), add(1, 12)), transaction(2, ok, see(1, 11))),
			map[int64][]int64{1: {11, 12}},
			[]history.Kind{history.Between},
		},
		{
			"a list has another order", longer(transaction(1, ok, add(1, 11)), transaction(2, ok, add(1, 21)), transaction(3, ok, see(1, 21))),
			map[int64][]int64{1: {11, 21}},
			[]history.Kind{history.Disorder},
		},
		{
			"what is seen is undone", longer(transaction(1, unknown, add(1, 11)), transaction(2, ok, see(1, 11))), nil, []history.Kind{history.Disorder},
		},
		{"an answered append is not seen", []history.Lists{transaction(1, ok, add(1, 11)), transaction(2, ok, see(1))}, map[int64][]int64{1: {11}}, []history.Kind{history.Stale}},
		{
			"the later of two answered appends is not seen",
			[]history.Lists{transaction(1, ok, add(1, 11)), transaction(2, ok, add(1, 21)), transaction(3, ok, see(1, 11))},
			map[int64][]int64{1: {11, 21}},
			[]history.Kind{history.Stale},
		},
		{
			"two write before each other", longer(transaction(1, ok, add(1, 11), add(2, 12)), transaction(2, ok, add(1, 21), add(2, 22))),
			map[int64][]int64{1: {11, 21}, 2: {22, 12}},
			[]history.Kind{history.WriteCycle},
		},
		{
			"two see each other", longer(transaction(1, ok, add(1, 11), see(2, 22)), transaction(2, ok, add(2, 22), see(1, 11))),
			map[int64][]int64{1: {11}, 2: {22}},
			[]history.Kind{history.Circular},
		},
		{
			"three go round", longer(transaction(1, ok, add(1, 11), see(3, 33)), transaction(2, ok, add(1, 21), add(2, 22)), transaction(3, ok, see(2, 22), add(3, 33))),
			map[int64][]int64{1: {11, 21}, 2: {22}, 3: {33}},
			[]history.Kind{history.Circular},
		},
		{
			"half is seen", longer(transaction(1, ok, add(1, 11), add(2, 12)), transaction(2, ok, see(1, 11), see(2))),
			map[int64][]int64{1: {11}, 2: {12}},
			nil, // nothing else was promised
		},
		{
			"half is seen by a consistent transaction", longer(transaction(1, ok, add(1, 11), add(2, 12)), consistent(transaction(2, ok, see(1, 11), see(2)))),
			map[int64][]int64{1: {11}, 2: {12}},
			[]history.Kind{history.Fractured},
		},
		{
			"the other half is seen by a consistent transaction", longer(transaction(1, ok, add(1, 11), add(2, 12)), consistent(transaction(2, ok, see(1), see(2, 12)))),
			map[int64][]int64{1: {11}, 2: {12}},
			[]history.Kind{history.Fractured},
		},
		{
			"a consistent transaction sees two states", longer(transaction(1, ok, add(1, 11)), consistent(transaction(2, ok, see(1), see(1, 11)))),
			map[int64][]int64{1: {11}},
			[]history.Kind{history.Fractured},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := history.CheckLists(c.all, c.final)
			var kinds []history.Kind
			for _, a := range found {
				kinds = append(kinds, a.Kind)
			}
			if !slices.Equal(kinds, c.want) {
				t.Errorf("found %v, want %v", found, c.want)
			}
		})
	}
}

// TestAWarningExcusesDelay: the client was told that a part would follow.
func TestAWarningExcusesDelay(t *testing.T) {
	first := transaction(1, history.Committed, add(1, 11), add(2, 12))
	first.Warnings = []string{"a part is to follow"}
	all := []history.Lists{first, transaction(2, history.Committed, see(1, 11), see(2))}
	if found := history.CheckLists(all, map[int64][]int64{1: {11}, 2: {12}}); len(found) != 0 {
		t.Errorf("found %v", found)
	}
}

// world runs transactions one after the other, as the best of databases would.
type world struct {
	random *rand.Rand
	lists  map[int64][]int64
	value  int64
	all    []history.Lists
}

const worldKeys = 12

// run makes a transaction with some appends and reads, which ends in one of three ways.
func (w *world) run(number int64) {
	outcome := []history.Outcome{history.Committed, history.Committed, history.Failed, history.Unknown}[w.random.IntN(4)]
	before := map[int64][]int64{}
	for key, list := range w.lists {
		before[key] = slices.Clip(list)
	}
	var steps []history.ListStep
	for range 1 + w.random.IntN(5) {
		key := 1 + w.random.Int64N(worldKeys)
		if w.random.IntN(2) == 0 {
			steps = append(steps, see(key, slices.Clone(w.lists[key])...))
			continue
		}
		w.value++
		steps = append(steps, add(key, w.value))
		w.lists[key] = append(slices.Clip(w.lists[key]), w.value)
	}
	if outcome == history.Failed || outcome == history.Unknown && w.random.IntN(2) == 0 {
		w.lists = before
	}
	t := transaction(number, outcome, steps...)
	t.Consistent = w.random.IntN(2) == 0
	w.all = append(w.all, t)
}

func makeWorld(seed uint64) *world {
	w := &world{random: rand.New(rand.NewPCG(seed, 1)), lists: map[int64][]int64{}}
	for number := range int64(2000) {
		w.run(number + 1)
	}
	return w
}

func TestAGoodWorldIsGood(t *testing.T) {
	for seed := range uint64(4) {
		w := makeWorld(seed)
		if found := history.CheckLists(w.all, w.lists); len(found) != 0 {
			t.Fatalf("seed %d: found %v", seed, found[0])
		}
	}
}

// TestPlantedAnomaliesAreFound somewhere in a long and otherwise good history.
func TestPlantedAnomaliesAreFound(t *testing.T) {
	for seed := range uint64(4) {
		for name, plant := range map[string]struct {
			do   func(w *world) bool
			want history.Kind
		}{
			"lost": {plantLost, history.Lost}, "shortened": {plantStale, history.Stale}, "fractured": {plantFractured, history.Fractured},
			"cycle": {plantCycle, history.WriteCycle},
		} {
			w := makeWorld(seed)
			if !plant.do(w) {
				t.Fatalf("seed %d: %s could not be planted", seed, name)
			}
			found := history.CheckLists(w.all, w.lists)
			if !slices.ContainsFunc(found, func(a history.Anomaly) bool { return a.Kind == plant.want }) {
				t.Errorf("seed %d: %s was planted, found %v", seed, name, found)
			}
		}
	}
}

// plantLost takes a value of a committed transaction with one append out of its list, and out of all that was seen.
func plantLost(w *world) bool {
	for _, t := range w.all[1000:] {
		var values []history.ListStep
		for _, s := range t.Steps {
			if s.Value != 0 {
				values = append(values, s)
			}
		}
		if t.Outcome != history.Committed || len(values) != 1 {
			continue
		}
		without := func(list []int64) []int64 {
			return slices.DeleteFunc(list, func(v int64) bool { return v == values[0].Value })
		}
		w.lists[values[0].Key] = without(w.lists[values[0].Key])
		for _, other := range w.all {
			for i := range other.Steps {
				other.Steps[i].Found = without(other.Steps[i].Found)
			}
		}
		return true
	}
	return false
}

// plantStale takes the last two values off what a transaction saw long after they were there.
func plantStale(w *world) bool {
	for i := range w.all[1000:] {
		t := &w.all[1000+i]
		if t.Outcome == history.Committed && len(t.Steps) == 1 && len(t.Steps[0].Found) > 40 {
			t.Consistent = false
			t.Steps[0].Found = wholeTransactions(w, t.Steps[0].Found[:len(t.Steps[0].Found)-10])
			return true
		}
	}
	return false
}

// wholeTransactions shortens what was seen of a list until it ends with the last append of a transaction.
func wholeTransactions(w *world, seen []int64) []int64 {
	for ; ; seen = seen[:len(seen)-1] {
		for _, t := range w.all {
			key, last := int64(0), int64(0)
			for _, s := range t.Steps {
				if s.Value == seen[len(seen)-1] {
					key = s.Key
				}
				if s.Value != 0 && s.Key == key {
					last = s.Value
				}
			}
			if last == seen[len(seen)-1] {
				return seen
			}
		}
	}
}

// plantFractured makes two long transactions: one that appends to two lists, and one that sees one of them.
func plantFractured(w *world) bool {
	for _, pair := range [][2]int64{{1, 2}, {2, 1}} {
		w.value += 2
		writer := transaction(5000+pair[0], history.Committed, add(pair[0], w.value-1), add(pair[1], w.value))
		reader := consistent(transaction(6000+pair[0], history.Committed, see(pair[1], slices.Clone(w.lists[pair[1]])...)))
		w.lists[pair[0]] = append(slices.Clone(w.lists[pair[0]]), w.value-1)
		w.lists[pair[1]] = append(slices.Clone(w.lists[pair[1]]), w.value)
		reader.Steps = append(reader.Steps, see(pair[0], slices.Clone(w.lists[pair[0]])...))
		w.all = append(w.all, longer(writer, reader)...)
	}
	return true
}

// plantCycle lets two transactions write in different orders.
func plantCycle(w *world) bool {
	w.value += 4
	w.all = append(w.all, longer(
		transaction(5001, history.Committed, add(1, w.value-3), add(2, w.value-2)), transaction(5002, history.Committed, add(1, w.value-1), add(2, w.value)))...)
	w.lists[1] = append(slices.Clone(w.lists[1]), w.value-3, w.value-1)
	w.lists[2] = append(slices.Clone(w.lists[2]), w.value, w.value-2)
	return true
}

func TestAnAnomalyIsTold(t *testing.T) {
	a := history.CheckLists([]history.Lists{transaction(7, history.Committed, add(1, 11))}, nil)[0].String()
	for _, want := range []string{"lost", "[11]", "[7]"} {
		if !strings.Contains(a, want) {
			t.Errorf("%q lacks %q", a, want)
		}
	}
}
