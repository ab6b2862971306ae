package txn

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/sqltext/qualified"
)

func TestNames(t *testing.T) {
	n := NewName(clusterID, 3, 2, 4711, 1794808073143909, "abcdefghij")
	if other := NewName(clusterID, 3, 2, 4711, 1794808073143909, "abcdefghij"); other == n {
		t.Error("two names are the same")
	}
	read, err := ParseName(n.String())
	if err != nil || read != n {
		t.Errorf("%v was read as %v, %v", n, read, err)
	}
	part := PartName(n.String(), 7)
	if len(part) > 199 || !strings.HasPrefix(part, Prefix(clusterID)) {
		t.Errorf("a part is called %q", part)
	}
	if gid, timeline, err := splitPart(part); err != nil || gid != n.String() || timeline != 7 {
		t.Errorf("its name was read as %q, %d, %v", gid, timeline, err)
	}
	if !IsPart(clusterID, part) {
		t.Errorf("%q is no part", part)
	}
	for _, wrong := range []string{"", n.String(), Prefix(clusterID) + "made/up", part + "/7", strings.Replace(part, clusterID[:8], "ffffffff", 1)} {
		if IsPart(clusterID, wrong) {
			t.Errorf("%q is a part", wrong)
		}
	}
	for _, wrong := range []string{"", "cleave", part, "other/1/2/3/4/5/6/7", "cleave/a/b/3/4/5/6/7", strings.Replace(n.String(), "/3/", "/x/", 1)} {
		if read, err := ParseName(wrong); err == nil {
			t.Errorf("%q was read as %v", wrong, read)
		}
	}
}

func TestVerdicts(t *testing.T) {
	name := Name{Timeline: 1}
	for _, c := range []struct {
		what    string
		outcome Outcome
		overdue bool
		want    Verdict
	}{
		{"decided", Outcome{Decision: Commit, Timeline: 1, Alive: true}, false, CommitParts},
		{"decided, and then promoted", Outcome{Decision: Commit, Timeline: 2}, true, CommitParts},
		{"aborted", Outcome{Decision: Abort, Timeline: 1}, false, RollBackParts},
		{"aborted, and then promoted", Outcome{Decision: Abort, Timeline: 2}, false, RollBackParts},
		{"under way", Outcome{Alive: true, Timeline: 1}, false, Wait},
		{"overdue", Outcome{Alive: true, Timeline: 1}, true, AbortFirst},
		{"its router is gone", Outcome{Timeline: 1}, false, AbortFirst},
		{"undecided and promoted", Outcome{Timeline: 2}, true, AskPerson},
		{"undecided and promoted, with a backend of that number", Outcome{Timeline: 2, Alive: true}, false, AskPerson},
	} {
		if got := c.outcome.Verdict(name, c.overdue); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

// TestStatementsNameTheSystemsThings: they run on a client's connection, under its search_path.
func TestStatementsNameTheSystemsThings(t *testing.T) {
	gid := testName("a")
	for _, sql := range []string{
		NoteStatement, DecideStatement, NoteAbortSQL(gid), MarkSQL(7), OutcomeSQL(gid), HorizonSQL, PreparedSQL(clusterID), NewOpening(newTestHorizon(t, gid+"/1")).SQL(1), SeesSQL([]string{gid}), BarrierSQL, BarrierEndSQL,
	} {
		for _, found := range qualified.Bare(sql) {
			t.Errorf("%s: %s", sql, found)
		}
	}
}
