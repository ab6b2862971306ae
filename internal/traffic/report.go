package traffic

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cleavedb/cleave/internal/topology"
)

const (
	// maxTold is how many ranges and pins a report names at most, and maxToldBytes how many bytes it may have for their bounds: many routers report, and all of it is read together.
	maxTold      = 500
	maxToldBytes = 100_000
	// least is the rate below which nothing is worth telling.
	least = 0.01
	// noticeable is by which part a rate must differ to be told again, and noticeableAtLeast by how many statements a second.
	noticeable        = 0.1
	noticeableAtLeast = 0.1
)

// Report is how many statements a second a router sends, range by range.
type Report struct {
	Keyspaces []KeyspaceReport `json:"keyspaces"`
}

// KeyspaceReport is how many statements a second a router sends for keys of one keyspace.
type KeyspaceReport struct {
	Name   string        `json:"name"`
	Ranges []RangeReport `json:"ranges,omitempty"`
	Pins   []PinReport   `json:"pins,omitempty"`
	// Rest is for all keys of other ranges and pins together.
	Rest float64 `json:"rest,omitempty"`
	// Unbound is of those that go to all shards.
	Unbound float64 `json:"unbound,omitempty"`
}

// RangeReport is how many statements a second are for keys of one range, whose bounds are written as in the map.
type RangeReport struct {
	From      topology.Point `json:"from,omitempty"`
	To        topology.Point `json:"to,omitempty"`
	PerSecond float64        `json:"per_second"`
}

// PinReport is how many statements a second are for one pinned key.
type PinReport struct {
	Key       topology.Point `json:"key"`
	PerSecond float64        `json:"per_second"`
}

// Decode reads a report.
func Decode(body []byte) (Report, error) {
	var r Report
	if err := json.Unmarshal(body, &r); err != nil {
		return r, fmt.Errorf("read a report of traffic: %w", err)
	}
	for name, rate := range r.rates() {
		if rate < 0 {
			return r, fmt.Errorf("read a report of traffic: %s has %v statements a second", name, rate)
		}
	}
	return r, nil
}

// told is a range or pin that could be named in a report.
type told struct {
	of   *counts
	at   int    // of the range
	pin  string // the encoded key; empty: it is a range
	rate float64
}

// Report tells the rates as they are at a moment.
func (c *Counter) Report(now time.Time) Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sample(now)
	current := c.current.Load()
	if current == nil {
		return Report{}
	}
	reports, all := map[*counts]*KeyspaceReport{}, []told{}
	for name, of := range *current {
		reports[of] = &KeyspaceReport{Name: name, Unbound: of.rate(of.unbound), Rest: of.rate(of.rest)}
		all = append(all, of.told()...)
	}
	slices.SortFunc(all, func(a, b told) int {
		return cmp.Or(cmp.Compare(b.rate, a.rate), cmp.Compare(a.of.keyspace.Name(), b.of.keyspace.Name()), cmp.Compare(a.at, b.at), cmp.Compare(a.pin, b.pin))
	})
	left := maxToldBytes
	for i, one := range all {
		left -= one.addTo(reports[one.of], i < maxTold, left)
	}
	return gather(reports)
}

// told lists what is worth telling.
func (c *counts) told() (all []told) {
	for i, one := range c.ranges {
		if rate := c.rate(one); rate >= least {
			all = append(all, told{of: c, at: i, rate: rate})
		}
	}
	for encoded, one := range c.pins {
		if rate := c.rate(one); rate >= least {
			all = append(all, told{of: c, pin: encoded, rate: rate})
		}
	}
	return all
}

// rate is a mean over the time that has been seen so far.
func (c *counts) rate(one *Number) float64 {
	if c.weight == 0 {
		return 0
	}
	return one.mean / c.weight
}

// addTo names the range or pin in a report if it may be and there is room, or else adds it to the rest. It returns how much room it takes.
func (t told) addTo(r *KeyspaceReport, mayName bool, room int) (size int) {
	if size = t.size(); mayName && size <= room && t.nameIn(r) {
		return size
	}
	r.Rest += t.rate
	return 0
}

// size is how long the bounds or the key are.
func (t told) size() int {
	s := t.of.layout.span(t.at)
	if t.pin != "" {
		s = span{lo: t.pin}
	}
	return len(s.lo) + len(s.hi)
}

// nameIn adds the range or pin to a report by its name, if it has one.
func (t told) nameIn(r *KeyspaceReport) bool {
	if t.pin != "" {
		key, err := t.of.keyspace.Texts(t.pin)
		if err == nil {
			r.Pins = append(r.Pins, PinReport{Key: key, PerSecond: rounded(t.rate)})
		}
		return err == nil
	}
	s := t.of.layout.span(t.at)
	from, err := pointOf(t.of.keyspace, s.lo)
	if err != nil {
		return false
	}
	to, err := pointOf(t.of.keyspace, s.hi)
	if err != nil {
		return false
	}
	r.Ranges = append(r.Ranges, RangeReport{From: from, To: to, PerSecond: rounded(t.rate)})
	return true
}

// rounded is a rate as precisely as anybody needs it.
func rounded(rate float64) float64 {
	const digits = 100
	return math.Round(rate*digits) / digits
}

// gather puts the reports together that say something.
func gather(reports map[*counts]*KeyspaceReport) (r Report) {
	for _, one := range reports {
		one.Rest, one.Unbound = rounded(one.Rest), rounded(one.Unbound)
		if len(one.Ranges) > 0 || len(one.Pins) > 0 || one.Rest > 0 || one.Unbound > 0 {
			r.Keyspaces = append(r.Keyspaces, *one)
		}
	}
	slices.SortFunc(r.Keyspaces, func(a, b KeyspaceReport) int { return cmp.Compare(a.Name, b.Name) })
	return r
}

// rates has all that a report says by what it says it of.
func (r Report) rates() map[string]float64 {
	rates := map[string]float64{}
	for _, k := range r.Keyspaces {
		rates["rest of "+k.Name], rates["unbound in "+k.Name] = k.Rest, k.Unbound
		for _, one := range k.Ranges {
			rates[fmt.Sprintf("range %q %q of %s", one.From, one.To, k.Name)] = one.PerSecond
		}
		for _, one := range k.Pins {
			rates[fmt.Sprintf("pin %q of %s", one.Key, k.Name)] = one.PerSecond
		}
	}
	return rates
}

// differsFrom says whether something has changed so much since another report that it is worth telling.
func (r Report) differsFrom(other Report) bool {
	now, before := r.rates(), other.rates()
	for what, rate := range now {
		if isNoticeable(rate, before[what]) {
			return true
		}
	}
	for what, rate := range before {
		if _, still := now[what]; !still && isNoticeable(rate, 0) {
			return true
		}
	}
	return false
}

func isNoticeable(a, b float64) bool {
	return math.Abs(a-b) >= max(noticeableAtLeast, noticeable*max(a, b))
}
