package idgen

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// UUID is a universally unique identifier: 16 bytes in the order of the text form.
type UUID [16]byte

const (
	uuidTextLength = 36
	uuidVersion    = 7 << 12
	uuidVariant    = 0b10 << 62
	uuidRandomMask = 1<<62 - 1
	// uuidFractionBits is the width of the fraction of a millisecond.
	uuidFractionBits = 12
)

// UUIDConfig says how [UUIDs] makes ids.
type UUIDConfig struct {
	// Clock is where the time comes from. Default: the machine's.
	Clock Clock
}

func (c UUIDConfig) withDefaults() UUIDConfig {
	if c.Clock == nil {
		c.Clock = systemClock{}
	}
	return c
}

// UUIDs makes UUIDs of version 7. Each is greater than all that the same UUIDs made before; processes should therefore share
// one, and [NewUUID] does. Safe for concurrent use.
//
// The 12 bits after the version hold the fraction of the millisecond in 1/4096 (RFC 9562, section 6.2, method 3), the
// other 62 bits are random, from the system's generator. When more than one id falls on the same 1/4096 of a
// millisecond, or the clock goes back, the last time is counted on by one: ids never go back and nobody waits, and time runs
// ahead of the clock until that has caught up. Uniqueness across processes rests on the random bits.
type UUIDs struct {
	clock Clock
	_     [56]byte // keeps the clock, which is only read, off the cache line that every id writes to
	// last is the time of the last id, in 1/4096 of a millisecond since 1970.
	last atomic.Uint64
}

// NewUUIDs returns a maker of UUIDs.
func NewUUIDs(config UUIDConfig) *UUIDs {
	return &UUIDs{clock: config.withDefaults().Clock}
}

var processUUIDs = NewUUIDs(UUIDConfig{})

// NewUUID makes a UUID of version 7 that is greater than all that it made before in this process.
func NewUUID() UUID { return processUUIDs.Next() }

// Next makes a UUID.
func (u *UUIDs) Next() UUID {
	tick := u.take()
	var id UUID
	binary.BigEndian.PutUint64(id[:8],
		tick>>uuidFractionBits<<16|uuidVersion|tick&lowBits(uuidFractionBits))
	binary.BigEndian.PutUint64(id[8:], uuidVariant|randomBits()&uuidRandomMask)
	return id
}

// take returns the time by the clock, or the smallest that no id carries yet if that is later.
func (u *UUIDs) take() uint64 {
	now := uuidTick(u.clock.Now())
	for {
		last := u.last.Load()
		tick := max(now, last+1)
		if u.last.CompareAndSwap(last, tick) {
			return tick
		}
	}
}

// uuidTick turns a time into 1/4096 of milliseconds since 1970; earlier times count as 1970.
func uuidTick(t time.Time) uint64 {
	milli := max(0, t.UnixMilli())
	nanos := uint64(t.Nanosecond()) % uint64(time.Millisecond)
	return uint64(milli)<<uuidFractionBits | nanos<<uuidFractionBits/uint64(time.Millisecond)
}

// entropy is random bytes fetched in one go: asking the system for each id's eight would cost more than the rest of it.
type entropy struct {
	bytes [512]byte
	used  int
}

// entropies keeps one per processor without a lock.
var entropies = sync.Pool{New: func() any { return &entropy{used: len(entropy{}.bytes)} }}

func randomBits() uint64 {
	e := entropies.Get().(*entropy)
	if e.used == len(e.bytes) {
		rand.Read(e.bytes[:]) // It cannot fail: it ends the program instead.
		e.used = 0
	}
	next := e.bytes[e.used : e.used+8]
	bits := binary.NativeEndian.Uint64(next)
	clear(next) // What was used must not be found in memory.
	e.used += 8
	entropies.Put(e)
	return bits
}

// Version returns the version of the UUID; those made here have 7.
func (id UUID) Version() int { return int(id[6] >> 4) }

// Time returns the millisecond in which a UUID of version 7 was made, in UTC.
func (id UUID) Time() time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(id[:8]) >> 16)).UTC()
}

// String returns the usual form: 8-4-4-4-12 hexadecimal digits, lower case.
func (id UUID) String() string {
	text, _ := id.AppendText(make([]byte, 0, uuidTextLength))
	return string(text)
}

// AppendText implements [encoding.TextAppender].
func (id UUID) AppendText(text []byte) ([]byte, error) {
	for i, group := range [][]byte{id[0:4], id[4:6], id[6:8], id[8:10], id[10:16]} {
		if i > 0 {
			text = append(text, '-')
		}
		text = hex.AppendEncode(text, group)
	}
	return text, nil
}

// MarshalText implements [encoding.TextMarshaler].
func (id UUID) MarshalText() ([]byte, error) { return id.AppendText(nil) }

// UnmarshalText implements [encoding.TextUnmarshaler]. It takes what String returns, in upper or lower case.
func (id *UUID) UnmarshalText(text []byte) error {
	parsed, err := ParseUUID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}

// ParseUUID reads the usual form, of any version: 8-4-4-4-12 hexadecimal digits.
func ParseUUID(text string) (UUID, error) {
	var id UUID
	if len(text) != uuidTextLength || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return UUID{}, fmt.Errorf("parse uuid: %q is not of the form 8-4-4-4-12", text)
	}
	digits := text[0:8] + text[9:13] + text[14:18] + text[19:23] + text[24:36]
	if _, err := hex.Decode(id[:], []byte(digits)); err != nil {
		return UUID{}, fmt.Errorf("parse uuid %q: %w", text, err)
	}
	return id, nil
}
