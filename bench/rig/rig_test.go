package rig

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"
)

func TestParseUsage(t *testing.T) {
	used, err := parseUsage("42 (a) name (x) S 7 42 42 0 -1 4194304 100 0 0 0 250 50 70 30 20 0 1 0 1 2 3")
	if want := (usage{parent: 7, own: 3 * time.Second, gone: time.Second}); used != want || err != nil {
		t.Errorf("%+v, %v", used, err)
	}
	for _, bad := range []string{"", "42 (cut) S 1", "42 (name) S 7 42 42 0 -1 4194304 100 0 0 0 250 x 70 30 20"} {
		if _, err := parseUsage(bad); err == nil {
			t.Errorf("%q was understood", bad)
		}
	}
}

// TestFamilyHasTheParent: whatever the family has used, this process has used no more.
func TestFamilyHasTheParent(t *testing.T) {
	for until := time.Now().Add(50 * time.Millisecond); time.Now().Before(until); {
		_ = os.Getpid()
	}
	own, err := ProcessorTime(os.Getpid())
	if err != nil {
		t.Skip(err)
	}
	family, err := FamilyTime(os.Getpid())
	if err != nil || own == 0 || family < own {
		t.Errorf("of itself %v, with its children %v, %v", own, family, err)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []int
		want   int
	}{{nil, 0}, {[]int{9, 1, 5}, 5}, {[]int{4, 3, 2, 1}, 2}} {
		if got := Median(c.values); got != c.want {
			t.Errorf("median of %v is %d", c.values, got)
		}
	}
}

func TestWhatIsGivenByHandWins(t *testing.T) {
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	rounds, seconds := flags.Int("rounds", 9, ""), flags.Int("seconds", 9, "")
	if err := flags.Parse([]string{"-rounds", "7"}); err != nil {
		t.Fatal(err)
	}
	quick := Quick{"rounds": "1", "seconds": "2"}
	if err := quick.Preset(flags); err != nil || *rounds != 7 || *seconds != 2 {
		t.Errorf("%d rounds, %d seconds, %v", *rounds, *seconds, err)
	}
	if quick.Usage() != "-rounds 1 -seconds 2" {
		t.Error(quick.Usage())
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	PrintTable(&out, [][]string{{"a", "long name", Ratio(1, 2)}, {"bcd", Number(0, "%g"), Ratio(1, 0)}})
	if want := "  a    long name  0.50\n  bcd  –          –\n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
}
