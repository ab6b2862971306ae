package orders_test

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/failpoint/orders"
)

func give(t *testing.T, folder, point string, o orders.Order) {
	t.Helper()
	if err := orders.Give(folder, point, o); err != nil {
		t.Fatal(err)
	}
}

func take(t *testing.T, folder, point string) orders.Order {
	t.Helper()
	o, err := orders.Take(folder, point)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// obeyedBy is who obeyed the order for the point a.b.
func obeyedBy(t *testing.T, folder string) int {
	t.Helper()
	process, err := orders.Obeyed(folder, "a.b")
	if err != nil {
		t.Fatal(err)
	}
	return process
}

func TestAnOrderIsObeyedOnce(t *testing.T) {
	folder := t.TempDir()
	if o := take(t, folder, "a.b"); o.Act != orders.Nothing {
		t.Errorf("without an order: %v", o)
	}
	give(t, folder, "a.b", orders.Order{Act: orders.Sleep, For: time.Second})
	if o := take(t, folder, "a.bc"); o.Act != orders.Nothing || obeyedBy(t, folder) != 0 {
		t.Errorf("at another point: %v", o)
	}
	if o := take(t, folder, "a.b"); o.Act != orders.Sleep || o.For != time.Second || obeyedBy(t, folder) != os.Getpid() {
		t.Errorf("at the point: %v, obeyed by %d", o, obeyedBy(t, folder))
	}
	if o := take(t, folder, "a.b"); o.Act != orders.Nothing {
		t.Errorf("once more: %v", o)
	}
	give(t, folder, "a.b", orders.Order{Act: orders.Kill})
	if obeyedBy(t, folder) != 0 {
		t.Error("a new order counts as obeyed")
	}
	if err := orders.Withdraw(folder, "a.b"); err != nil {
		t.Error(err)
	}
	if o := take(t, folder, "a.b"); o.Act != orders.Nothing {
		t.Errorf("a withdrawn order: %v", o)
	}
}

func TestOfManyThatComeByOneObeys(t *testing.T) {
	folder := t.TempDir()
	give(t, folder, "p", orders.Order{Act: orders.Stop, Hit: 40})
	var all sync.WaitGroup
	var hits, taken atomic.Int64
	deadline := time.Now().Add(time.Minute)
	for range 8 {
		all.Go(func() {
			for taken.Load() == 0 && time.Now().Before(deadline) {
				hits.Add(1)
				if o, err := orders.Take(folder, "p"); err != nil {
					t.Error(err)
				} else if o.Act == orders.Stop {
					taken.Add(1)
				}
			}
		})
	}
	all.Wait()
	if taken.Load() != 1 || hits.Load() < 40 {
		t.Errorf("%d obeyed in %d hits", taken.Load(), hits.Load())
	}
}

func TestAnOrderForAnotherProcess(t *testing.T) {
	folder := t.TempDir()
	give(t, folder, "p", orders.Order{Act: orders.Stop, Process: os.Getpid() + 1})
	if o := take(t, folder, "p"); o.Act != orders.Nothing {
		t.Errorf("it was taken: %v", o)
	}
	give(t, folder, "p", orders.Order{Act: orders.Stop, Process: os.Getpid()})
	if o := take(t, folder, "p"); o.Act != orders.Stop {
		t.Errorf("it was not taken: %v", o)
	}
}

func TestHolding(t *testing.T) {
	folder := t.TempDir()
	give(t, folder, "p", orders.Order{Act: orders.Hold})
	o := take(t, folder, "p")
	released := make(chan struct{})
	go func() {
		o.WaitReleased()
		close(released)
	}()
	select {
	case <-released:
		t.Error("it did not hold")
	case <-time.After(50 * time.Millisecond):
	}
	if err := orders.Release(folder, "p"); err != nil {
		t.Error(err)
	}
	select {
	case <-released:
	case <-time.After(time.Minute):
		t.Error("it was not released")
	}
}

func TestOrdersThatNobodyUnderstands(t *testing.T) {
	folder := t.TempDir()
	for _, text := range []string{"", "dance", "sleep", "sleep long", "kill 3", "kill hit=x", "kill hit=0", "stop until=5"} {
		if err := os.WriteFile(filepath.Join(folder, "p"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if o, err := orders.Take(folder, "p"); err == nil {
			t.Errorf("%q was understood as %v", text, o)
		}
	}
	if orders.Give(folder, "p", orders.Order{Act: "dance"}) == nil {
		t.Error("such an order could be given")
	}
}

func TestDurations(t *testing.T) {
	folder := t.TempDir()
	get := func() time.Duration {
		value, err := orders.Duration(folder, "txn.retention", time.Minute)
		if err != nil {
			t.Error(err)
		}
		return value
	}
	if get() != time.Minute {
		t.Errorf("the usual value is %v", get())
	}
	if err := orders.SetDuration(folder, "txn.retention", 3*time.Second); err != nil {
		t.Fatal(err)
	}
	if get() != 3*time.Second {
		t.Errorf("what was set is %v", get())
	}
}
