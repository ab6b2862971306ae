package traffic

import (
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

const (
	// memory is over how long rates are averaged: what was counted that long ago has a weight of 1/e.
	memory = time.Minute
	// maxPins is how many pins of a keyspace have a number each: more would take more memory than it is worth, and count as the rest.
	maxPins = 100_000
)

// Counter counts the statements of one router. The zero value counts nothing until it [Counter.Follow]s a map; nil counts nothing ever. Safe for concurrent use.
type Counter struct {
	current atomic.Pointer[map[string]*counts] // by keyspace

	mu      sync.Mutex // guards what follows, and the means of all numbers
	sampled time.Time
}

// counts are the numbers of one keyspace. Sessions add to them; all else stays as it was made.
type counts struct {
	keyspace *topology.Keyspace
	layout   layout
	ranges   []*Number
	pins     map[string]*Number // by the encoded key
	// unbound is for statements that go to all shards, and rest for keys of which it is not told where they count.
	unbound, rest *Number
	// weight is how much of a mean has been seen so far: a keyspace that was never looked at has none, and one that was for a long time 1.
	weight float64
}

// Number is what is counted of one range or pin, and the mean rate that comes of it. Nil counts nothing.
type Number struct {
	count atomic.Uint64
	seen  uint64 // of count, when the mean was taken
	mean  float64
}

// sample makes the mean a moment younger, in which seconds have passed.
func (n *Number) sample(seconds, decay float64) {
	count := n.count.Load()
	n.mean = n.mean*decay + float64(count-n.seen)/seconds*(1-decay)
	n.seen = count
}

// Add counts a statement. It is on the way of every statement, and takes one addition.
func (n *Number) Add() {
	if n != nil {
		n.count.Add(1)
	}
}

// OfKey is where statements for a key count that was found by a range, or by a pin. Like all of these it takes no memory, and is nil, which counts nothing, if nobody counts the keyspace.
func (c *Counter) OfKey(k *topology.Keyspace, values []key.Value, pinned bool) *Number {
	of := c.of(k)
	if of == nil {
		return nil
	}
	return of.ofKey(k, values, pinned)
}

// OfHashes is where statements count for some key that has a hash from first to last.
func (c *Counter) OfHashes(k *topology.Keyspace, first, last uint64) *Number {
	of := c.of(k)
	if of == nil || of.layout.hashes == nil {
		return nil
	}
	if at := of.layout.findHash(first); at == of.layout.findHash(last) {
		return of.ranges[at]
	}
	return of.rest
}

// Somewhere is where statements count for one key that is not known yet.
func (c *Counter) Somewhere(k *topology.Keyspace) *Number {
	of := c.of(k)
	if of == nil {
		return nil
	}
	return of.rest
}

// Everywhere is where statements count that are for no key, and go to all shards that own something.
func (c *Counter) Everywhere(k *topology.Keyspace) *Number {
	of := c.of(k)
	if of == nil {
		return nil
	}
	return of.unbound
}

// of finds the numbers of a keyspace, whichever version of the map it is of: keys count where the newest has them. None if the newest does not know such a keyspace.
func (c *Counter) of(k *topology.Keyspace) *counts {
	if c == nil {
		return nil
	}
	current := c.current.Load()
	if current == nil {
		return nil
	}
	of := (*current)[k.Name()]
	if of == nil || (of.layout.hashes == nil) != (k.Keys() != nil) {
		return nil
	}
	return of
}

func (c *counts) ofKey(k *topology.Keyspace, values []key.Value, pinned bool) *Number {
	if !pinned && c.layout.hashes != nil { // most keys
		return c.ranges[c.layout.findHash(k.Hash(values...))]
	}
	var buffer [128]byte
	encoded := buffer[:0]
	for i := range values {
		encoded = values[i].AppendOrdered(encoded)
	}
	if !pinned {
		return c.ranges[c.layout.findKey(encoded)]
	}
	if pin := c.pins[string(encoded)]; pin != nil {
		return pin
	}
	return c.rest // there are too many, or the pin is not in the newest map
}

// Follow counts by another map from now on. Ranges and pins that it has too go on with their numbers; others have the rate of those that had their keys.
func (c *Counter) Follow(m *topology.Map, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := map[string]*counts{}
	if current := c.current.Load(); current != nil {
		known = *current
	}
	next := map[string]*counts{}
	for _, k := range m.Keyspaces() {
		next[k.Name()] = known[k.Name()]
		if old := known[k.Name()]; old == nil || !old.keyspace.Same(k) {
			c.sample(now) // what a range has that is about to go
			next[k.Name()] = old.following(k)
		}
	}
	if len(known) != len(next) || !maps.Equal(known, next) {
		c.current.Store(&next)
	}
}

// following are the numbers of a keyspace's next version.
func (c *counts) following(k *topology.Keyspace) *counts {
	next := &counts{keyspace: k, layout: layoutOf(k), pins: map[string]*Number{}, unbound: &Number{}, rest: &Number{}}
	if c != nil && c.keyspace.Strategy() == k.Strategy() && c.keyspace.Seed() == k.Seed() && slices.Equal(c.keyspace.KeyTypes(), k.KeyTypes()) {
		next.unbound, next.rest, next.weight = c.unbound, c.rest, c.weight
	} else {
		c = nil // another keyspace of the same name
	}
	next.takePins(c)
	next.takeRanges(c)
	return next
}

func (c *counts) takePins(old *counts) {
	if c.keyspace.PinCount() > maxPins {
		return
	}
	for pin := range c.keyspace.Pins() {
		c.pins[pin.Encoded] = &Number{}
		if old != nil && old.pins[pin.Encoded] != nil {
			c.pins[pin.Encoded] = old.pins[pin.Encoded]
		}
	}
}

func (c *counts) takeRanges(old *counts) {
	if old != nil && old.layout.sameAs(&c.layout) {
		c.ranges = old.ranges
		return
	}
	c.ranges = make([]*Number, len(c.layout.starts))
	numbers := make([]Number, len(c.ranges))
	for i := range c.ranges {
		c.ranges[i] = &numbers[i]
	}
	if old == nil {
		return
	}
	for i, before := range old.ranges {
		s := old.layout.span(i)
		for at, share := range c.layout.portions(s) {
			if c.layout.span(at) == s {
				c.ranges[at] = before
			} else {
				c.ranges[at].mean += before.mean * share
			}
		}
	}
}

// sample brings all means up to a moment. The caller has the lock.
func (c *Counter) sample(now time.Time) {
	current := c.current.Load()
	passed := now.Sub(c.sampled).Seconds()
	if c.sampled.IsZero() || current == nil || passed <= 0 {
		c.sampled = now
		return
	}
	c.sampled = now
	decay := math.Exp(-passed / memory.Seconds())
	for _, of := range *current {
		of.weight = of.weight*decay + 1 - decay
		for _, one := range of.ranges {
			one.sample(passed, decay)
		}
		for _, one := range of.pins {
			one.sample(passed, decay)
		}
		of.unbound.sample(passed, decay)
		of.rest.sample(passed, decay)
	}
}

// Totals are how many statements were counted for a keyspace since its ranges and pins are there.
type Totals struct {
	Ranges []uint64          // in the map's order
	Pins   map[string]uint64 // by the encoded key
	// Somewhere is for single keys of which it was not told where they are, and Unbound of those for all shards.
	Somewhere, Unbound uint64
}

// Totals tells what was counted for a keyspace, of the newest map; nothing if there is no such keyspace.
func (c *Counter) Totals(keyspace string) (t Totals) {
	current := c.current.Load()
	if current == nil || (*current)[keyspace] == nil {
		return t
	}
	of := (*current)[keyspace]
	t = Totals{Pins: map[string]uint64{}, Somewhere: of.rest.count.Load(), Unbound: of.unbound.count.Load()}
	for _, one := range of.ranges {
		t.Ranges = append(t.Ranges, one.count.Load())
	}
	for encoded, one := range of.pins {
		t.Pins[encoded] = one.count.Load()
	}
	return t
}
