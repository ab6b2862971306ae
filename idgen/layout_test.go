package idgen

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawLayout draws any layout that is allowed.
func drawLayout(t *rapid.T) Layout {
	timeBits := rapid.IntRange(minTimeBits, maxTimeBits).Draw(t, "time bits")
	generatorBits := rapid.IntRange(1, maxGeneratorBits).Draw(t, "generator bits")
	slotBits := rapid.IntRange(0, min(maxSlotBits, idBits-1-timeBits-generatorBits)).Draw(t, "slot bits")
	sequenceBits := rapid.IntRange(1, min(maxSequenceBits, idBits-timeBits-generatorBits-slotBits)).Draw(t, "sequence bits")
	epochMilli := rapid.Int64Range(0, latestEpoch.UnixMilli()).Draw(t, "epoch")
	layout, err := NewLayout(LayoutConfig{
		Epoch: time.UnixMilli(epochMilli), TimeBits: timeBits, SlotBits: slotBits,
		GeneratorBits: generatorBits, SequenceBits: sequenceBits,
	})
	if err != nil {
		t.Fatal(err)
	}
	return layout
}

func drawParts(t *rapid.T, layout Layout) Parts {
	milli := rapid.Int64Range(0, int64(layout.endMilli())-1).Draw(t, "milli")
	return Parts{
		Time:      layout.timeOf(uint64(milli)),
		Slot:      rapid.IntRange(0, layout.Slots()-1).Draw(t, "slot"),
		Generator: rapid.IntRange(0, layout.Generators()-1).Draw(t, "generator"),
		Sequence:  rapid.IntRange(0, layout.PerMillisecond()-1).Draw(t, "sequence"),
	}
}

func TestLayoutRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layout := drawLayout(t)
		want := drawParts(t, layout)
		id, err := layout.Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		if !layout.Contains(id) {
			t.Fatalf("%v does not contain its own id %d", layout, id)
		}
		if got := layout.Decode(id); got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		if got := layout.SlotOfID(id); got != want.Slot {
			t.Fatalf("got slot %d, want %d", got, want.Slot)
		}
		again, err := NewLayout(layout.Config())
		if err != nil || again != layout {
			t.Fatalf("got %v, %v from the configuration of %v", again, err, layout)
		}
	})
}

// Ids sort by time first, whatever the rest.
func TestLayoutOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layout := drawLayout(t)
		a, b := drawParts(t, layout), drawParts(t, layout)
		idA, errA := layout.Encode(a)
		idB, errB := layout.Encode(b)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if a.Time.Before(b.Time) && idA >= idB {
			t.Fatalf("%+v has id %d, the later %+v has %d", a, idA, b, idB)
		}
	})
}

func TestSlotsCoverAllHashes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layout := drawLayout(t)
		hash := rapid.Uint64().Draw(t, "hash")
		slot := layout.SlotOf(hash)
		first, last := layout.Hashes(slot)
		if hash < first || hash > last {
			t.Fatalf("hash %x has slot %d, which is %x to %x", hash, slot, first, last)
		}
		if layout.SlotOf(first) != slot || layout.SlotOf(last) != slot {
			t.Fatalf("the ends of slot %d have slots %d and %d", slot, layout.SlotOf(first), layout.SlotOf(last))
		}
		if last != math.MaxUint64 && layout.SlotOf(last+1) != slot+1 {
			t.Fatalf("slot %d ends at %x, but the next hash has slot %d", slot, last, layout.SlotOf(last+1))
		}
	})
}

// The default layout is for life: this id must be read like this for ever.
func TestDefaultLayoutGolden(t *testing.T) {
	layout := DefaultLayout()
	const id = 247_700_900_711_273_801
	want := Parts{Time: time.Date(2026, 11, 15, 12, 34, 56, 789e6, time.UTC), Slot: 777, Generator: 42, Sequence: 9}
	if diff := cmp.Diff(want, layout.Decode(id)); diff != "" {
		t.Errorf("decode (-want +got):\n%s", diff)
	}
	if got, err := layout.Encode(want); err != nil || got != id {
		t.Errorf("got %d, %v, want %d", got, err, int64(id))
	}
	if got, want := layout.String(), "time=41 slot=10 generator=7 sequence=5 epoch=2025-01-01T00:00:00.000Z"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := layout.End().Format(time.DateOnly), "2094-09-07"; got != want {
		t.Errorf("ends %s, want %s", got, want)
	}
	if layout.Slots() != 1024 || layout.Generators() != 128 || layout.PerMillisecond() != 32 {
		t.Errorf("got %d slots, %d generators, %d a millisecond", layout.Slots(), layout.Generators(), layout.PerMillisecond())
	}
	if got := layout.Decode(math.MaxInt64).Time; !got.Equal(layout.End().Add(-time.Millisecond)) {
		t.Errorf("the last id is of %s", got)
	}
}

func TestContains(t *testing.T) {
	short, err := NewLayout(LayoutConfig{TimeBits: 41, SlotBits: 4, GeneratorBits: 4, SequenceBits: 4})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		layout Layout
		id     int64
		want   bool
	}{
		{DefaultLayout(), 0, true},
		{DefaultLayout(), math.MaxInt64, true},
		{DefaultLayout(), -1, false},
		{DefaultLayout(), math.MinInt64, false},
		{short, 1<<53 - 1, true},
		{short, 1 << 53, false},
		{short, -1, false},
	} {
		if got := c.layout.Contains(c.id); got != c.want {
			t.Errorf("%v contains %d: got %v", c.layout, c.id, got)
		}
	}
}

func TestBadLayouts(t *testing.T) {
	for _, c := range []struct {
		config LayoutConfig
		want   string
	}{
		{LayoutConfig{TimeBits: 41, SlotBits: 10, GeneratorBits: 7, SequenceBits: 6}, "id layout: 41 + 10 + 7 + 6 bits are 64, and an id has room for 63"},
		{LayoutConfig{SlotBits: 10, GeneratorBits: 7, SequenceBits: 6}, "id layout: 0 time bits, want 36 to 42"},
		{LayoutConfig{TimeBits: 43, SlotBits: 10, GeneratorBits: 4, SequenceBits: 6}, "id layout: 43 time bits, want 36 to 42"},
		{LayoutConfig{TimeBits: 41, SlotBits: -1, GeneratorBits: 4, SequenceBits: 6}, "id layout: -1 slot bits, want 0 to 20"},
		{LayoutConfig{TimeBits: 36, SlotBits: 21, GeneratorBits: 1, SequenceBits: 1}, "id layout: 21 slot bits, want 0 to 20"},
		{LayoutConfig{TimeBits: 41, SlotBits: 10, SequenceBits: 12}, "id layout: 0 generator bits, want 1 to 16"},
		{LayoutConfig{TimeBits: 41, SlotBits: 10, GeneratorBits: 12}, "id layout: 0 sequence bits, want 1 to 22"},
		{LayoutConfig{TimeBits: 36, SlotBits: 0, GeneratorBits: 1, SequenceBits: 300}, "id layout: 300 sequence bits, want 1 to 22"},
		{LayoutConfig{Epoch: time.Unix(-1, 0)}, "id layout: epoch 1969-12-31T23:59:59Z is not between 1970 and 2100"},
		{LayoutConfig{Epoch: time.Date(2101, 1, 1, 0, 0, 0, 0, time.UTC)}, "id layout: epoch 2101-01-01T00:00:00Z is not between 1970 and 2100"},
		{LayoutConfig{Epoch: time.Unix(0, 1)}, "id layout: epoch 1970-01-01T00:00:00.000000001Z is not a whole millisecond"},
	} {
		_, err := NewLayout(c.config)
		if err == nil || err.Error() != c.want {
			t.Errorf("%+v: got error %v, want %s", c.config, err, c.want)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	layout := DefaultLayout()
	good := Parts{Time: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	for name, spoil := range map[string]func(*Parts){
		"time 2024":     func(p *Parts) { p.Time = defaultEpoch.Add(-time.Nanosecond) },
		"time 0001":     func(p *Parts) { p.Time = time.Time{} },
		"time 2094":     func(p *Parts) { p.Time = layout.End() },
		"slot 1024":     func(p *Parts) { p.Slot = 1024 },
		"slot -1":       func(p *Parts) { p.Slot = -1 },
		"generator 128": func(p *Parts) { p.Generator = 128 },
		"generator -1":  func(p *Parts) { p.Generator = -1 },
		"sequence 32":   func(p *Parts) { p.Sequence = 32 },
		"sequence -1":   func(p *Parts) { p.Sequence = -1 },
	} {
		bad := good
		spoil(&bad)
		if id, err := layout.Encode(bad); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %d, %v", name, id, err)
		}
	}
}
