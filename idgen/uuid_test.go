package idgen

import (
	"bytes"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestUUIDParts(t *testing.T) {
	clock := newFakeClock()
	clock.step(123*time.Millisecond + 500*time.Microsecond)
	id := NewUUIDs(UUIDConfig{Clock: clock}).Next()
	if id.Version() != 7 || id[8]>>6 != 0b10 {
		t.Errorf("%s is not of version 7 and the RFC's variant", id)
	}
	if want := clock.now.Truncate(time.Millisecond); !id.Time().Equal(want) {
		t.Errorf("got time %s, want %s", id.Time(), want)
	}
	if fraction := uint16(id[6]&0xf)<<8 | uint16(id[7]); fraction != 2048 {
		t.Errorf("got fraction %d/4096 for half a millisecond", fraction)
	}
}

// The example of RFC 9562, appendix A.6.
func TestUUIDGolden(t *testing.T) {
	const text = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
	id, err := ParseUUID(text)
	if err != nil {
		t.Fatal(err)
	}
	if want := time.Date(2022, 2, 22, 19, 22, 22, 0, time.UTC); !id.Time().Equal(want) || id.Version() != 7 {
		t.Errorf("got version %d of %s, want 7 of %s", id.Version(), id.Time(), want)
	}
	if id.String() != text {
		t.Errorf("got %s, want %s", id, text)
	}
}

// Under any clock, UUIDs of one maker increase: as bytes and as text.
func TestUUIDIncreasesUnderAnyClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := newFakeClock()
		uuids := NewUUIDs(UUIDConfig{Clock: clock})
		last := uuids.Next()
		for range 100 {
			clock.step(time.Duration(rapid.Int64Range(-2e6, 2e6).Draw(t, "step")))
			id := uuids.Next()
			if bytes.Compare(last[:], id[:]) >= 0 || last.String() >= id.String() {
				t.Fatalf("%s comes after %s", id, last)
			}
			last = id
		}
	})
}

func TestUUIDCountsOnWithinTick(t *testing.T) {
	clock := newFakeClock()
	uuids := NewUUIDs(UUIDConfig{Clock: clock})
	var last UUID
	for range 4097 {
		last = uuids.Next()
	}
	if want := clock.now.Add(time.Millisecond); !last.Time().Equal(want) {
		t.Errorf("got %s, want the count to carry into %s", last.Time(), want)
	}
}

func TestUUIDBeforeEpoch(t *testing.T) {
	clock := newFakeClock()
	clock.now = time.Unix(-1000, 0)
	if id := NewUUIDs(UUIDConfig{Clock: clock}).Next(); id.Time().UnixMilli() != 0 || id.Version() != 7 {
		t.Errorf("got %s", id)
	}
}

func TestUUIDUniqueUnderConcurrency(t *testing.T) {
	const goroutines = 8
	perGoroutine := 100_000
	if testing.Short() {
		perGoroutine = 10_000
	}
	made := make([][]UUID, goroutines)
	var group sync.WaitGroup
	for worker := range goroutines {
		group.Go(func() {
			for range perGoroutine {
				made[worker] = append(made[worker], NewUUID())
			}
		})
	}
	group.Wait()
	compare := func(a, b UUID) int { return bytes.Compare(a[:], b[:]) }
	for worker, ids := range made {
		if !slices.IsSortedFunc(ids, compare) {
			t.Errorf("goroutine %d got UUIDs out of order", worker)
		}
	}
	all := slices.Concat(made...)
	slices.SortFunc(all, compare)
	// Even the part without the random bits is unique within a process.
	for i := 1; i < len(all); i++ {
		if bytes.Equal(all[i-1][:8], all[i][:8]) {
			t.Fatalf("%s and %s have the same time", all[i-1], all[i])
		}
	}
}

// Each random half is used once.
func TestRandomBitsDiffer(t *testing.T) {
	seen := map[uint64]bool{}
	for range 10_000 {
		bits := randomBits()
		if seen[bits] {
			t.Fatalf("%x came twice", bits)
		}
		seen[bits] = true
	}
}

func TestUUIDText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes"))
		encoded, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got UUID
		if err := json.Unmarshal(bytes.ToUpper(encoded), &got); err != nil || got != want {
			t.Fatalf("got %s, %v, want %s", got, err, want)
		}
	})
}

func TestParseUUIDRefuses(t *testing.T) {
	for _, text := range []string{
		"", "017f22e2", "017f22e279b07cc398c4dc0c0c07398f", "017f22e2-79b0-7cc3-98c4-dc0c0c07398", "017f22e2-79b0-7cc3-98c4-dc0c0c07398ff",
		"017f22e2-79b0-7cc3-98c4-dc0c0c07398g", "017f22e2-79b07-cc3-98c4-dc0c0c07398f", "{17f22e2-79b0-7cc3-98c4-dc0c0c07398}",
	} {
		if id, err := ParseUUID(text); err == nil {
			t.Errorf("%q: got %s", text, id)
		}
	}
	kept := UUID{1}
	if err := kept.UnmarshalText([]byte("no")); err == nil || kept != (UUID{1}) {
		t.Errorf("got %v, %s", err, kept)
	}
}
