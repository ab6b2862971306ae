package txn

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// testName is the name of a transaction that shard 1 decides.
func testName(letter string) string { return "cleave/0b5b6f3e/1/2/3/1/router/" + letter }

// state is a shard's answer to an opening: its snapshot, and the transactions that it sees and the horizon does not. Transaction a has the number 11 on all shards but the
// first, b 12, and so on. Those that are not among the news are running.
func state(number, timeline int, news string) [][]string {
	var running []string
	for _, letter := range []string{"a", "b", "c"} {
		if !strings.Contains(news, letter) {
			running = append(running, strconv.Itoa(int(letter[0]-'a')+11))
		}
	}
	rows := [][]string{{fmt.Sprintf("77/%d/11:20:%s", timeline, strings.Join(running, ",")), "", "", "", ""}}
	for _, letter := range strings.Fields(news) {
		xid := int(letter[0]-'a') + 11
		if number == 1 {
			rows = append(rows, []string{"", testName(letter), "t", "{1,2,3}", fmt.Sprintf("{0,%d,%d}", xid, xid)})
		} else {
			rows = append(rows, []string{"", testName(letter), "f", "{1,2,3}", ""})
		}
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
		news    map[int]string
		missing map[int]string
	}{
		"nothing new":           {map[int]string{1: "", 2: "", 3: ""}, map[int]string{}},
		"all see it":            {map[int]string{1: "a", 2: "a", 3: "a"}, map[int]string{}},
		"one does not":          {map[int]string{1: "a", 2: "a", 3: ""}, map[int]string{3: "a"}},
		"who decided does not":  {map[int]string{1: "", 2: "a", 3: "a"}, map[int]string{1: "a"}},
		"only who decided":      {map[int]string{1: "a b", 2: "b", 3: ""}, map[int]string{2: "a", 3: "a b"}},
		"each sees another":     {map[int]string{1: "a", 2: "b", 3: "c"}, map[int]string{1: "b c", 2: "a", 3: "a"}},
		"a part on who is gone": {map[int]string{1: "a", 2: "a"}, map[int]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewOpening(newTestHorizon(t))
			for number, news := range c.news {
				if err := o.Opened(number, state(number, 1, news)); err != nil {
					t.Fatal(err)
				}
			}
			want := map[int][]string{}
			for number, letters := range c.missing {
				for _, letter := range strings.Fields(letters) {
					want[number] = append(want[number], testName(letter))
				}
			}
			if got := o.Missing(); !reflect.DeepEqual(got, want) {
				t.Errorf("missing are %v, want %v", got, want)
			}
		})
	}
}

// TestOpeningAgain: a shard that lags is opened again, and may see what others do not see yet.
func TestOpeningAgain(t *testing.T) {
	o := NewOpening(newTestHorizon(t))
	for number, news := range map[int]string{1: "a", 2: "", 3: "a"} {
		if err := o.Opened(number, state(number, 1, news)); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.Opened(2, state(2, 1, "a b")); err != nil {
		t.Fatal(err)
	}
	if got := o.Missing(); !reflect.DeepEqual(got, map[int][]string{1: {testName("b")}}) {
		t.Errorf("missing are %v", got)
	}
	// The first one did see the decision, before the horizon; but the third one does not see its part.
	if err := o.Sees(1, [][]string{{testName("b"), "t", "{1,2,3}", "{0,12,12}"}}); err != nil {
		t.Fatal(err)
	}
	if got := o.Missing(); !reflect.DeepEqual(got, map[int][]string{3: {testName("b")}}) {
		t.Errorf("then missing are %v", got)
	}
}

func TestOpeningOnAnotherTimeline(t *testing.T) {
	o := NewOpening(newTestHorizon(t))
	if err := o.Opened(1, state(1, 2, "")); !errors.Is(err, ErrStale) {
		t.Errorf("on another timeline: %v", err)
	}
	other := state(1, 1, "")
	other[0][0] = strings.Replace(other[0][0], "77", "78", 1)
	if err := o.Opened(1, other); !errors.Is(err, ErrStale) {
		t.Errorf("on another server: %v", err)
	}
	for _, wrong := range [][][]string{
		nil, {{"", "", "", "", ""}}, {{"1/2"}}, {{"77/1/1:1", "", "", "", ""}}, {{"77/1/1:x:", "", "", "", ""}}, {{"77/1/1:1:", "", "", "", ""}, {"", "a", "t", "{x}", "{}"}}, {{"77/1/1:1:", "", "", "", ""}, {"", "a", "t", "{1}", "{}"}},
	} {
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
