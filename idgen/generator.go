package idgen

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// DefaultMaxBackwards covers the steps that time daemons make: ntpd steps from 128 ms on and slews below.
const DefaultMaxBackwards = 250 * time.Millisecond

// Config says which ids a [Generator] makes.
type Config struct {
	// Layout is how ids are built. Default: [DefaultLayout].
	Layout Layout
	// Number is the generator's own number, from 1 to the layout's last. It must belong to this process alone for as long
	// as the process runs: two processes with one number make duplicates and nothing here can notice. There is no default;
	// 0 is the database's.
	Number int
	// MaxBackwards is how far the clock may be behind the last id for [Generator.Next] to wait until it has caught up; when
	// it is further behind, Next fails with a [ClockError]. It is rounded up to the millisecond; negative means to wait for
	// no more than the next one. Default: DefaultMaxBackwards.
	MaxBackwards time.Duration
	// NotBefore is the earliest time that an id may carry, rounded up to the millisecond. The generator keeps no state
	// over a restart, so this is what protects against a clock that was set back in the meantime: a process that records
	// a time ahead of its ids (say every second: now + 3 s) and starts with the recorded one never repeats itself. Whoever
	// takes over a number passes the end of the previous holder's lease. Default: the layout's epoch.
	NotBefore time.Time
	// Clock is where the time comes from. Default: the machine's.
	Clock Clock
}

func (c Config) withDefaults() Config {
	if c.Layout == (Layout{}) {
		c.Layout = DefaultLayout()
	}
	if c.MaxBackwards == 0 {
		c.MaxBackwards = DefaultMaxBackwards
	}
	if c.NotBefore.IsZero() {
		c.NotBefore = c.Layout.timeOf(0)
	}
	if c.Clock == nil {
		c.Clock = systemClock{}
	}
	return c
}

func (c Config) check() error {
	if c.Number == 0 {
		return fmt.Errorf("id generator: number 0 is the database's, want 1 to %d", c.Layout.Generators()-1)
	}
	if c.Number < 0 || c.Number >= c.Layout.Generators() {
		return fmt.Errorf("id generator: number %d is not between 1 and %d", c.Number, c.Layout.Generators()-1)
	}
	if c.NotBefore.UnixMilli() < c.Layout.epochMilli {
		return fmt.Errorf("id generator: not-before time %s is before the layout's epoch", c.NotBefore.Format(time.RFC3339Nano))
	}
	if !c.NotBefore.Before(c.Layout.End()) {
		return fmt.Errorf("id generator: not-before time %s is after the layout's end", c.NotBefore.Format(time.RFC3339Nano))
	}
	return nil
}

// Generator makes ids under one generator number. Safe for concurrent use.
type Generator struct {
	layout       Layout
	number       int
	maxBackwards int64 // milliseconds
	clock        Clock

	// unused holds, per slot, the lowest tick that no id carries yet. It only grows. The cells are not padded: slots come
	// from a hash, so busy neighbours are chance (7 in 1,023), and padding would turn 8 KiB, which stay in a core's first
	// cache, into 64.
	unused []atomic.Uint64
}

// New returns a generator.
func New(config Config) (*Generator, error) {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return nil, err
	}
	g := &Generator{
		layout:       config.Layout,
		number:       config.Number,
		maxBackwards: max(0, (config.MaxBackwards + time.Millisecond - 1).Milliseconds()),
		clock:        config.Clock,
		unused:       make([]atomic.Uint64, config.Layout.Slots()),
	}
	// A generator made before under this number may have made ids in this very millisecond, and none later.
	firstMilli := uint64(max(ceilMilli(config.NotBefore), config.Clock.Now().UnixMilli()+1) - config.Layout.epochMilli)
	firstMilli = min(firstMilli, config.Layout.endMilli())
	for slot := range g.unused {
		g.unused[slot].Store(firstMilli << config.Layout.seqBits)
	}
	return g, nil
}

// Layout returns the layout of the generator's ids.
func (g *Generator) Layout() Layout { return g.layout }

// Next makes an id for a row whose shard key has this hash. It is greater than every id made before by this generator for
// the same slot, and its time is not ahead of the clock.
//
// Next waits when the slot's ids of this millisecond are used up, and when the clock is a little behind. Its errors are
// [ClockError], [ExhaustedError] and the context's.
func (g *Generator) Next(ctx context.Context, hash uint64) (int64, error) {
	slot := g.layout.SlotOf(hash)
	milli := g.clock.Now().UnixMilli() - g.layout.epochMilli
	if tick, ok := g.take(slot, milli); ok {
		return g.layout.assemble(tick, slot, g.number), nil
	}
	tick, err := g.takeSlowly(ctx, slot)
	if err != nil {
		return 0, fmt.Errorf("make id for slot %d: %w", slot, err)
	}
	return g.layout.assemble(tick, slot, g.number), nil
}

// HighWater returns the start of the first millisecond that is later than every id made so far: the time to record when the
// process stops, and to pass as [Config.NotBefore] when it starts again.
func (g *Generator) HighWater() time.Time {
	var highest uint64
	for slot := range g.unused {
		highest = max(highest, g.unused[slot].Load())
	}
	return g.layout.timeOf((highest + lowBits(g.layout.seqBits)) >> g.layout.seqBits)
}

// take takes the slot's next tick if that is possible in this millisecond: the clock is not behind, the millisecond is not
// full, and the layout has not ended.
func (g *Generator) take(slot int, milli int64) (uint64, bool) {
	if milli < 0 || uint64(milli) >= g.layout.endMilli() {
		return 0, false
	}
	cell := &g.unused[slot]
	earliest := uint64(milli) << g.layout.seqBits
	latest := earliest | lowBits(g.layout.seqBits)
	for {
		unused := cell.Load()
		tick := max(unused, earliest)
		if tick > latest {
			return 0, false
		}
		if cell.CompareAndSwap(unused, tick+1) {
			return tick, true
		}
	}
}

// takeSlowly is take for when the millisecond is full or the clock is behind: it waits.
func (g *Generator) takeSlowly(ctx context.Context, slot int) (uint64, error) {
	patience := g.maxBackwards
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		// The tick that would be next tells when it can be had. It is read before the clock: a goroutine that is held up
		// between the two must not take what others did meanwhile for a clock that went back.
		dueMilli := int64(g.unused[slot].Load() >> g.layout.seqBits)
		now := g.clock.Now()
		milli := now.UnixMilli() - g.layout.epochMilli
		if tick, ok := g.take(slot, milli); ok {
			return tick, nil
		}
		if max(milli, dueMilli) >= int64(g.layout.endMilli()) {
			return 0, &ExhaustedError{End: g.layout.End()}
		}
		wait := time.UnixMilli(g.layout.epochMilli + dueMilli).Sub(now)
		// A full millisecond makes the next one due. Anything beyond is the clock's doing, and patience with that has an
		// end: counted over the whole call, for a clock may also go back again and again.
		if behind := dueMilli - milli; behind > 1 {
			if behind > patience {
				return 0, &ClockError{Behind: wait, Max: time.Duration(g.maxBackwards) * time.Millisecond}
			}
			patience -= behind
		}
		if err := g.clock.Sleep(ctx, wait); err != nil {
			return 0, err
		}
	}
}

// ceilMilli is the time in milliseconds since 1970, rounded up.
func ceilMilli(t time.Time) int64 {
	return t.Add(time.Millisecond - time.Nanosecond).UnixMilli()
}
