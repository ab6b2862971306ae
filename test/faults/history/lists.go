package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// ListStep is one step of a transaction on lists: an append, or a read.
type ListStep struct {
	Key int64 `json:"key"`
	// Value is what is appended; 0 for a read. No value is ever appended twice.
	Value int64 `json:"value,omitempty"`
	// Found is what was read.
	Found []int64 `json:"found,omitempty"`
}

func (s ListStep) isAppend() bool { return s.Value != 0 }

// Lists is a transaction on lists.
type Lists struct {
	Head
	// Consistent says that all its reads, on all shards, are promised to be of one state.
	Consistent bool       `json:"consistent,omitempty"`
	Steps      []ListStep `json:"steps"`
}

// Kind is a sort of anomaly. Those with a G are named as Adya does.
type Kind string

// What is promised never to happen, whoever dies: to all transactions …
const (
	Duplicate  Kind = "duplicate"          // a value is in a list twice
	Nowhere    Kind = "from nowhere"       // a value that nobody appended there
	Lost       Kind = "lost"               // a committed append is not in the list
	Half       Kind = "half"               // some appends of a transaction are there and others are not
	Aborted    Kind = "aborted (G1a)"      // an append of a transaction that failed was seen
	Between    Kind = "intermediate (G1b)" // some appends of a transaction to one list were seen, and others not
	Disorder   Kind = "disorder"           // a list was seen that the list never was
	Self       Kind = "internal"           // a transaction does not see what it did itself
	Stale      Kind = "stale"              // an append that had been answered before the transaction began was not seen
	WriteCycle Kind = "write cycle (G0)"   // two transactions wrote before each other
	Circular   Kind = "circular (G1c)"     // two transactions wrote before, or were seen by, each other
	Fractured  Kind = "fractured"          // … and to consistent ones: of some transaction only a part was seen
)

// Anomaly is something that was found, and in which transactions.
type Anomaly struct {
	Kind         Kind
	Text         string
	Transactions []int64
}

func (a Anomaly) String() string {
	return fmt.Sprintf("%s: %s, transactions %v", a.Kind, a.Text, a.Transactions)
}

// listCheck is a check under way.
type listCheck struct {
	transactions []Lists
	final        map[int64][]int64
	author       map[int64]int       // of a value: the transaction
	key          map[int64]int64     // of a value: the list that it was meant for
	place        map[int64]int       // of a value: where in the final list
	appends      []map[int64][]int64 // of a transaction: its values by key, in order
	reads        []listRead
	found        []Anomaly
}

// listRead is a good read: so many values of the final list were seen, the reader's own left out.
type listRead struct {
	reader int
	key    int64
	length int
}

// CheckLists looks for anomalies, given what the lists are in the end, when nothing is under way. It does not look for read skew (G-single), which is not
// promised away: of two transactions on different shards, of which the second has only read what the first wrote, a reader may see the second alone.
func CheckLists(transactions []Lists, final map[int64][]int64) []Anomaly {
	c := &listCheck{transactions: transactions, final: final, author: map[int64]int{}, key: map[int64]int64{}, place: map[int64]int{}}
	c.index()
	c.checkFinal()
	c.checkEnds()
	for i := range transactions {
		c.checkReads(i)
	}
	if len(c.found) == 0 { // else the order of writers is not to be trusted
		c.checkStale()
		c.checkFractured()
		c.checkCycles()
	}
	return c.found
}

func (c *listCheck) report(kind Kind, transactions []int, format string, values ...any) {
	numbers := make([]int64, len(transactions))
	for i, t := range transactions {
		numbers[i] = c.transactions[t].Number
	}
	c.found = append(c.found, Anomaly{kind, fmt.Sprintf(format, values...), numbers})
}

// index notes who appended what where.
func (c *listCheck) index() {
	for i, t := range c.transactions {
		c.appends = append(c.appends, map[int64][]int64{})
		for _, s := range t.Steps {
			if s.isAppend() {
				c.author[s.Value], c.key[s.Value] = i, s.Key
				c.appends[i][s.Key] = append(c.appends[i][s.Key], s.Value)
			}
		}
	}
}

// checkFinal looks at the lists themselves.
func (c *listCheck) checkFinal() {
	for _, key := range slices.Sorted(maps.Keys(c.final)) {
		for place, value := range c.final[key] {
			writer, known := c.author[value]
			switch {
			case !known || c.key[value] != key:
				c.report(Nowhere, nil, "list %d has %d in the end", key, value)
				continue
			case c.transactions[writer].Outcome == Failed:
				c.report(Aborted, []int{writer}, "list %d has %d in the end", key, value)
			}
			if _, twice := c.place[value]; twice {
				c.report(Duplicate, []int{writer}, "list %d has %d twice in the end", key, value)
			}
			c.place[value] = place
		}
	}
}

// checkEnds compares each transaction's appends with the lists.
func (c *listCheck) checkEnds() {
	for i, t := range c.transactions {
		var there, missing []int64
		for _, key := range slices.Sorted(maps.Keys(c.appends[i])) {
			for _, value := range c.appends[i][key] {
				if _, found := c.place[value]; found {
					there = append(there, value)
				} else {
					missing = append(missing, value)
				}
			}
		}
		switch {
		case len(there) > 0 && len(missing) > 0:
			c.report(Half, []int{i}, "it is %s, its values %v are there in the end, %v are not", t.Outcome, there, missing)
		case len(missing) > 0 && t.Outcome == Committed:
			c.report(Lost, []int{i}, "its values %v are not there in the end", missing)
		}
	}
}

// checkReads looks at each list that a transaction saw: first, then what it had appended itself by then.
func (c *listCheck) checkReads(i int) {
	own := map[int64][]int64{}
	for _, s := range c.transactions[i].Steps {
		if s.isAppend() {
			own[s.Key] = append(own[s.Key], s.Value)
			continue
		}
		others := len(s.Found) - len(own[s.Key])
		if others < 0 || !slices.Equal(s.Found[others:], own[s.Key]) {
			c.report(Self, []int{i}, "list %d was seen as %v, without its own %v at the end", s.Key, s.Found, own[s.Key])
			continue
		}
		c.checkRead(i, s.Key, s.Found[:others])
	}
}

func (c *listCheck) checkRead(i int, key int64, seen []int64) {
	for _, value := range seen {
		writer, known := c.author[value]
		if !known || c.key[value] != key || writer == i {
			c.report(Nowhere, []int{i}, "list %d was seen with %d", key, value)
			return
		}
		if c.transactions[writer].Outcome == Failed {
			c.report(Aborted, []int{i, writer}, "list %d was seen with %d", key, value)
			return
		}
	}
	if len(seen) > 0 {
		last := seen[len(seen)-1]
		if writer := c.author[last]; c.appends[writer][key][len(c.appends[writer][key])-1] != last {
			c.report(Between, []int{i, writer}, "list %d was seen with %d as the last", key, last)
			return
		}
	}
	final := c.final[key]
	if len(seen) > len(final) || !slices.Equal(seen, final[:len(seen)]) {
		c.report(Disorder, []int{i}, "list %d was seen as %v, and is %v in the end", key, seen, final[:min(len(final), len(seen)+1)])
		return
	}
	c.reads = append(c.reads, listRead{i, key, len(seen)})
}

// checkStale: what has been answered is seen by all who come later. Not if there was a warning that a part is to follow.
func (c *listCheck) checkStale() {
	answered := map[int64][]int{} // of a list: those who appended to it, in the order of their ends
	for i, t := range c.transactions {
		if t.Outcome == Committed && len(t.Warnings) == 0 {
			for key := range c.appends[i] {
				answered[key] = append(answered[key], i)
			}
		}
	}
	least := map[int64][]int{} // of a list: how long it is at least when that many of them have been answered
	for key, writers := range answered {
		slices.SortFunc(writers, func(a, b int) int { return cmp.Compare(c.transactions[a].End, c.transactions[b].End) })
		least[key] = make([]int, len(writers)+1)
		for n, writer := range writers {
			least[key][n+1] = max(least[key][n], c.place[c.appends[writer][key][0]]+1)
		}
	}
	for _, r := range c.reads {
		start := c.transactions[r.reader].Start
		n, _ := slices.BinarySearchFunc(answered[r.key], start, func(writer int, start time.Duration) int { return cmp.Compare(c.transactions[writer].End, start) })
		if n > 0 && r.length < least[r.key][n] {
			missing := c.final[r.key][least[r.key][n]-1]
			c.report(Stale, []int{r.reader, c.author[missing]}, "list %d was seen without %d", r.key, missing)
		}
	}
}

// checkFractured: a consistent transaction sees one state of each list, and of all who appended to several all or nothing.
func (c *listCheck) checkFractured() {
	byReader := map[int]map[int64]int{} // of a reader and a list: how much of it was seen
	for _, r := range c.reads {
		if !c.transactions[r.reader].Consistent {
			continue
		}
		if byReader[r.reader] == nil {
			byReader[r.reader] = map[int64]int{}
		}
		if before, again := byReader[r.reader][r.key]; again && before != r.length {
			c.report(Fractured, []int{r.reader}, "list %d was seen with %d values and with %d", r.key, before, r.length)
		}
		byReader[r.reader][r.key] = r.length
	}
	for _, reader := range slices.Sorted(maps.Keys(byReader)) {
		c.checkWhole(reader, byReader[reader])
	}
}

func (c *listCheck) checkWhole(reader int, lengths map[int64]int) {
	for _, key := range slices.Sorted(maps.Keys(lengths)) {
		for _, value := range c.final[key][:lengths[key]] {
			writer := c.author[value]
			for other, values := range c.appends[writer] {
				if length, read := lengths[other]; read && writer != reader && c.place[values[0]] >= length {
					c.report(Fractured, []int{reader, writer}, "list %d was seen with %d, and list %d without %d", key, value, other, values[0])
					return
				}
			}
		}
	}
}

// checkCycles: who wrote before whom, and who saw whom, is an order.
func (c *listCheck) checkCycles() {
	after := make(graph, len(c.transactions))
	for _, list := range c.final {
		for place := 1; place < len(list); place++ {
			after.add(c.author[list[place-1]], c.author[list[place]])
		}
	}
	for _, cycle := range after.cycles() {
		c.report(WriteCycle, cycle, "each wrote before the next")
	}
	if len(c.found) > 0 {
		return
	}
	for _, r := range c.reads {
		if r.length > 0 {
			after.add(c.author[c.final[r.key][r.length-1]], r.reader)
		}
	}
	for _, cycle := range after.cycles() {
		c.report(Circular, cycle, "each wrote before the next, or was seen by it")
	}
}
