package idgen

import (
	"fmt"
	"math"
	"time"
)

// The default layout: 41 + 10 + 7 + 5 = 63 bits, so that the id is a positive bigint.
//
//   - 41 bits of milliseconds last 69.7 years: from 2025-01-01 to 2094-09-07. 40 bits would end in 2059.
//   - 10 bits of slot are 1,024, the usual number of logical slots of a keyspace.
//   - 7 bits of generator are 128: number 0 for databases, 127 for processes. Too few generators would be a hard wall, a
//     process that cannot start; numbers also need slack, for one that was just given up should rest for a while.
//   - 5 bits of sequence are 32 ids a millisecond for each slot of each generator. Every slot counts for itself, so a
//     generator makes up to 32 × 1,024 = 32,768 ids a millisecond, and 32,000 a second when all rows have the same
//     key. Too few sequence bits are a soft wall: the caller waits for the next millisecond.
const (
	DefaultTimeBits      = 41
	DefaultSlotBits      = 10
	DefaultGeneratorBits = 7
	DefaultSequenceBits  = 5
)

// What a layout may be. The bounds of time keep every moment exact to the microsecond in a double, which is what
// PostgreSQL's to_timestamp takes; the bound of slots keeps a generator's state below 8 MiB.
const (
	idBits           = 63
	minTimeBits      = 36
	maxTimeBits      = 42
	maxSlotBits      = 20
	maxGeneratorBits = 16
	maxSequenceBits  = 22
)

var (
	defaultEpoch  = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	earliestEpoch = time.UnixMilli(0).UTC()
	latestEpoch   = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
)

// LayoutConfig says how the bits of an id are shared out, from the highest to the lowest: time, slot, generator, sequence.
// All makers of ids for one table must use the same layout, and it cannot be changed once there are ids.
type LayoutConfig struct {
	// Epoch is the moment that the time part counts from, in whole milliseconds. Default: 2025-01-01 00:00 UTC.
	Epoch time.Time
	// TimeBits is the width of the time part, 36 to 42. Default, when all four widths are zero: DefaultTimeBits.
	TimeBits int
	// SlotBits is the width of the slot part, 0 (ids carry no slot) to 20. Default, when all four widths are zero:
	// DefaultSlotBits.
	SlotBits int
	// GeneratorBits is the width of the generator part, 1 to 16. Default, when all four widths are zero:
	// DefaultGeneratorBits.
	GeneratorBits int
	// SequenceBits is the width of the sequence part, 1 to 22. Default, when all four widths are zero:
	// DefaultSequenceBits.
	SequenceBits int
}

func (c LayoutConfig) withDefaults() LayoutConfig {
	if c.Epoch.IsZero() {
		c.Epoch = defaultEpoch
	}
	c.Epoch = c.Epoch.UTC()
	if c.TimeBits == 0 && c.SlotBits == 0 && c.GeneratorBits == 0 && c.SequenceBits == 0 {
		c.TimeBits = DefaultTimeBits
		c.SlotBits = DefaultSlotBits
		c.GeneratorBits = DefaultGeneratorBits
		c.SequenceBits = DefaultSequenceBits
	}
	return c
}

func (c LayoutConfig) check() error {
	widths := []struct {
		name           string
		bits, min, max int
	}{
		{"time", c.TimeBits, minTimeBits, maxTimeBits},
		{"slot", c.SlotBits, 0, maxSlotBits},
		{"generator", c.GeneratorBits, 1, maxGeneratorBits},
		{"sequence", c.SequenceBits, 1, maxSequenceBits},
	}
	sum := 0
	for _, w := range widths {
		if w.bits < w.min || w.bits > w.max {
			return fmt.Errorf("id layout: %d %s bits, want %d to %d", w.bits, w.name, w.min, w.max)
		}
		sum += w.bits
	}
	if sum > idBits {
		return fmt.Errorf("id layout: %d + %d + %d + %d bits are %d, and an id has room for %d",
			c.TimeBits, c.SlotBits, c.GeneratorBits, c.SequenceBits, sum, idBits)
	}
	if c.Epoch.Before(earliestEpoch) || c.Epoch.After(latestEpoch) {
		return fmt.Errorf("id layout: epoch %s is not between 1970 and 2100", c.Epoch.Format(time.RFC3339Nano))
	}
	if !c.Epoch.Equal(c.Epoch.Truncate(time.Millisecond)) {
		return fmt.Errorf("id layout: epoch %s is not a whole millisecond", c.Epoch.Format(time.RFC3339Nano))
	}
	return nil
}

// Layout is a checked [LayoutConfig]: how to build an id and how to read one. It is a small immutable value; copy it freely.
// The zero Layout stands for the default where a configuration asks for one and is of no other use: take one from
// [NewLayout] or [DefaultLayout].
type Layout struct {
	epochMilli                           int64
	timeBits, slotBits, genBits, seqBits uint8
}

// NewLayout fills in the defaults, checks, and returns the layout.
func NewLayout(config LayoutConfig) (Layout, error) {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return Layout{}, err
	}
	return Layout{
		epochMilli: config.Epoch.UnixMilli(),
		timeBits:   uint8(config.TimeBits),
		slotBits:   uint8(config.SlotBits),
		genBits:    uint8(config.GeneratorBits),
		seqBits:    uint8(config.SequenceBits),
	}, nil
}

// DefaultLayout is 41 bits of milliseconds since 2025, 10 of slot, 7 of generator and 5 of sequence.
func DefaultLayout() Layout {
	layout, err := NewLayout(LayoutConfig{})
	if err != nil {
		panic(err) // The defaults are constants and a test checks them.
	}
	return layout
}

// Config returns what the layout was made from, defaults filled in.
func (l Layout) Config() LayoutConfig {
	return LayoutConfig{
		Epoch:         time.UnixMilli(l.epochMilli).UTC(),
		TimeBits:      int(l.timeBits),
		SlotBits:      int(l.slotBits),
		GeneratorBits: int(l.genBits),
		SequenceBits:  int(l.seqBits),
	}
}

// String describes the layout in one line. Two layouts are the same exactly when their descriptions are: the function
// id_layout of [Layout.SQL] returns the same text.
func (l Layout) String() string {
	return fmt.Sprintf("time=%d slot=%d generator=%d sequence=%d epoch=%s", l.timeBits, l.slotBits, l.genBits, l.seqBits,
		time.UnixMilli(l.epochMilli).UTC().Format("2006-01-02T15:04:05.000Z"))
}

// Parts are what an id is made of.
type Parts struct {
	// Time is the millisecond in which the id was made, by its maker's clock. Read from an id it is in UTC.
	Time time.Time
	// Slot is the logical slot of the row's shard key.
	Slot int
	// Generator is the number of the maker; 0 is a database.
	Generator int
	// Sequence tells apart the ids of one maker, slot and millisecond.
	Sequence int
}

// Slots is how many slots the layout tells apart.
func (l Layout) Slots() int { return 1 << l.slotBits }

// Generators is how many generator numbers there are, number 0 included.
func (l Layout) Generators() int { return 1 << l.genBits }

// PerMillisecond is how many ids one generator can make for one slot in one millisecond.
func (l Layout) PerMillisecond() int { return 1 << l.seqBits }

// End is the first moment that the time part cannot express.
func (l Layout) End() time.Time { return l.timeOf(l.endMilli()) }

// SlotOf returns the slot of a key with this hash: its top bits.
func (l Layout) SlotOf(hash uint64) int { return int(hash >> (64 - l.slotBits)) }

// SlotOfID returns the slot part of an id.
func (l Layout) SlotOfID(id int64) int {
	return int(uint64(id) >> (l.genBits + l.seqBits) & lowBits(l.slotBits))
}

// Hashes returns the first and the last key hash of a slot: the interval to look up in a shard map.
func (l Layout) Hashes(slot int) (first, last uint64) {
	first = uint64(slot) << (64 - l.slotBits)
	return first, first | math.MaxUint64>>l.slotBits
}

// Contains tells whether the id can have been made with this layout: it is not negative and has no bit above the time part.
func (l Layout) Contains(id int64) bool {
	return uint64(id) <= lowBits(l.timeBits+l.slotBits+l.genBits+l.seqBits)
}

// Decode reads the parts of an id. What it says of an id that the layout does not contain means nothing.
func (l Layout) Decode(id int64) Parts {
	bits := uint64(id)
	return Parts{
		Time:      l.timeOf(bits >> (l.slotBits + l.genBits + l.seqBits)),
		Slot:      l.SlotOfID(id),
		Generator: int(bits >> l.seqBits & lowBits(l.genBits)),
		Sequence:  int(bits & lowBits(l.seqBits)),
	}
}

// Encode is the reverse of Decode; time below the millisecond is cut off. Encode(Parts{Time: t}) is the smallest id of that
// millisecond, which turns a condition on time into one on ids. It does not make ids: two equal calls give the same.
func (l Layout) Encode(parts Parts) (int64, error) {
	milli := parts.Time.UnixMilli() - l.epochMilli
	switch {
	case parts.Time.UnixMilli() < l.epochMilli || uint64(milli) >= l.endMilli():
		return 0, fmt.Errorf("encode id: time %s is not between %s and %s",
			parts.Time.Format(time.RFC3339Nano), l.timeOf(0).Format(time.RFC3339Nano), l.End().Format(time.RFC3339Nano))
	case parts.Slot < 0 || parts.Slot >= l.Slots():
		return 0, fmt.Errorf("encode id: slot %d is not between 0 and %d", parts.Slot, l.Slots()-1)
	case parts.Generator < 0 || parts.Generator >= l.Generators():
		return 0, fmt.Errorf("encode id: generator %d is not between 0 and %d", parts.Generator, l.Generators()-1)
	case parts.Sequence < 0 || parts.Sequence >= l.PerMillisecond():
		return 0, fmt.Errorf("encode id: sequence %d is not between 0 and %d", parts.Sequence, l.PerMillisecond()-1)
	}
	tick := uint64(milli)<<l.seqBits | uint64(parts.Sequence)
	return l.assemble(tick, parts.Slot, parts.Generator), nil
}

// assemble builds an id. A tick is a millisecond and a sequence number in one: the counter that each slot of a generator has.
func (l Layout) assemble(tick uint64, slot, generator int) int64 {
	return int64(tick>>l.seqBits<<(l.slotBits+l.genBits+l.seqBits) |
		uint64(slot)<<(l.genBits+l.seqBits) |
		uint64(generator)<<l.seqBits |
		tick&lowBits(l.seqBits))
}

// endMilli is the number of milliseconds that the time part can express.
func (l Layout) endMilli() uint64 { return 1 << l.timeBits }

// timeOf turns milliseconds since the epoch into a time.
func (l Layout) timeOf(milli uint64) time.Time {
	return time.UnixMilli(l.epochMilli + int64(milli)).UTC()
}

// lowBits is a mask of the n lowest bits.
func lowBits(n uint8) uint64 { return 1<<n - 1 }
