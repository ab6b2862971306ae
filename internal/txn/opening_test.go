package txn

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// state is a shard's answer to an opening: its snapshot, and the transactions that it sees and the horizon does not.
func state(timeline int, news ...string) [][]string {
	rows := [][]string{{fmt.Sprintf("77/%d/10:20:", timeline), "", ""}}
	for _, gid := range news {
		rows = append(rows, []string{"", gid, "{1,2,3}"})
	}
	return rows
}

func newTestHorizon(t *testing.T, prepared ...string) *Horizon {
	t.Helper()
	h, err := NewHorizon(map[int]string{1: "77/1/5:6:", 2: "77/1/5:6:", 3: "77/1/5:6:"}, prepared)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestOpening(t *testing.T) {
	for name, c := range map[string]struct {
		news    map[int][]string
		missing map[int][]string
	}{
		"nothing new":          {map[int][]string{1: nil, 2: nil, 3: nil}, map[int][]string{}},
		"all see it":           {map[int][]string{1: {"a"}, 2: {"a"}, 3: {"a"}}, map[int][]string{}},
		"one does not":         {map[int][]string{1: {"a"}, 2: {"a"}, 3: nil}, map[int][]string{3: {"a"}}},
		"only who decided":     {map[int][]string{1: {"a", "b"}, 2: {"b"}, 3: nil}, map[int][]string{2: {"a"}, 3: {"a", "b"}}},
		"each sees another":    {map[int][]string{1: {"a"}, 2: {"b"}, 3: {"c"}}, map[int][]string{1: {"b", "c"}, 2: {"a", "c"}, 3: {"a", "b"}}},
		"a shard that is out":  {map[int][]string{1: {"a"}, 2: {"a"}}, map[int][]string{}},
		"a part on who is out": {map[int][]string{1: {"a"}, 2: nil}, map[int][]string{2: {"a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewOpening(newTestHorizon(t))
			for number, news := range c.news {
				if err := o.Opened(number, state(1, news...)); err != nil {
					t.Fatal(err)
				}
			}
			if got := o.Missing(); !reflect.DeepEqual(got, c.missing) {
				t.Errorf("missing are %v, want %v", got, c.missing)
			}
			for number, gids := range c.missing {
				var rows [][]string
				for _, gid := range gids {
					rows = append(rows, []string{gid})
				}
				o.Sees(number, rows) // it did, before the horizon
			}
			if got := o.Missing(); len(got) > 0 {
				t.Errorf("when all have said so, missing are %v", got)
			}
		})
	}
}

// TestOpeningAgain: a shard that lags is opened again, and may see what others do not see yet.
func TestOpeningAgain(t *testing.T) {
	o := NewOpening(newTestHorizon(t))
	for number, news := range map[int][]string{1: {"a"}, 2: nil, 3: {"a"}} {
		if err := o.Opened(number, state(1, news...)); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.Opened(2, state(1, "a", "b")); err != nil {
		t.Fatal(err)
	}
	if got := o.Missing(); !reflect.DeepEqual(got, map[int][]string{1: {"b"}, 3: {"b"}}) {
		t.Errorf("missing are %v", got)
	}
}

func TestOpeningOnAnotherTimeline(t *testing.T) {
	o := NewOpening(newTestHorizon(t))
	if err := o.Opened(1, state(2)); !errors.Is(err, ErrStale) {
		t.Errorf("on another timeline: %v", err)
	}
	other := state(1)
	other[0][0] = strings.Replace(other[0][0], "77", "78", 1)
	if err := o.Opened(1, other); !errors.Is(err, ErrStale) {
		t.Errorf("on another server: %v", err)
	}
	for _, wrong := range [][][]string{nil, {{"", "", ""}}, {{"1/2"}}, {{"77/1/1:1:", "", ""}, {"", "a", "{x}"}}} {
		if err := o.Opened(1, wrong); err == nil {
			t.Errorf("%v was taken for an answer", wrong)
		}
	}
}

func TestHorizons(t *testing.T) {
	var none *Horizon
	if none.Covers([]int{1}) {
		t.Error("none covers something")
	}
	h := newTestHorizon(t, "cleave/a/1/2/3/4/r/x/1", "cleave/a/1/2/3/4/r/x/2", "other")
	if !h.Covers([]int{1, 3}) || h.Covers([]int{1, 4}) {
		t.Error("it covers other shards than it has")
	}
	if !strings.Contains(NewOpening(h).SQL(1), "ARRAY['cleave/a/1/2/3/4/r/x']") {
		t.Errorf("an opening asks %s", NewOpening(h).SQL(1))
	}
	old := *h
	old.at = old.at.Add(-time.Minute)
	if old.Covers([]int{1}) {
		t.Error("an old one is used")
	}
	o := NewOpening(h)
	o.began = o.began.Add(-time.Minute)
	if _, err := o.Horizon(); !errors.Is(err, ErrStale) {
		t.Errorf("an opening that took a minute: %v", err)
	}
}
