package control

import (
	"strconv"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/rebalance"
)

var noon = time.Date(2026, 3, 4, 12, 30, 0, 0, time.UTC)

// TestBytesOfADay: the limit holds for any 24 hours, and hours that are over do not count.
func TestBytesOfADay(t *testing.T) {
	a := autoDocument{Settings: rebalance.Settings{MaxBytes: 1000}}
	a.Spend(300, noon)
	a.Spend(100, noon.Add(10*time.Minute))
	a.Spend(200, noon.Add(5*time.Hour))
	for _, c := range []struct {
		after       time.Duration
		spent, left int64
	}{
		{5 * time.Hour, 600, 400}, {-time.Hour, 600, 400}, // another leader's clock is behind
		{24 * time.Hour, 600, 400}, // a part of the hour is less than a day ago
		{24*time.Hour + 31*time.Minute, 200, 800},
		{30 * time.Hour, 0, 1000},
	} {
		now := noon.Add(c.after)
		if a.SpentBytes(now) != c.spent || a.LeftBytes(now) != c.left {
			t.Errorf("after %s: %d spent, %d left", c.after, a.SpentBytes(now), a.LeftBytes(now))
		}
	}
	a.Spend(395, noon.Add(5*time.Hour))
	if left := a.LeftBytes(noon.Add(5 * time.Hour)); left != 0 {
		t.Errorf("%d bytes are left, which are crumbs", left)
	}
	for hour := range 100 {
		a.Spend(1, noon.Add(time.Duration(hour)*time.Hour))
	}
	if len(a.Spent) > 26 {
		t.Errorf("%d hours are remembered", len(a.Spent))
	}
}

func TestHaltsAndEvents(t *testing.T) {
	var a autoDocument
	a.Halt(autoHalt{Keyspace: "users", Why: "first", At: noon})
	a.Halt(autoHalt{Keyspace: "users", Why: "second", At: noon})
	if h, halted := a.Halted("users"); !halted || h.Why != "first" || len(a.Events) != 1 {
		t.Errorf("%+v, %+v", h, a.Events)
	}
	if err := a.Resume([]string{"orders"}, noon); err == nil {
		t.Error("what was not halted is resumed")
	}
	if err := a.Resume([]string{"users"}, noon); err != nil || len(a.Halts) > 0 {
		t.Errorf("%v, %+v", err, a.Halts)
	}
	for range 3 * keptEvents {
		a.Note(autoEvent{What: "move"})
		a.Suggest(autoProposal{})
		a.Wait(strconv.Itoa(len(a.Waiting)))
	}
	if len(a.Events) != keptEvents || len(a.Proposals) != keptProposals || len(a.Waiting) != keptProposals {
		t.Errorf("%d events, %d proposals, %d reasons are kept", len(a.Events), len(a.Proposals), len(a.Waiting))
	}
}
