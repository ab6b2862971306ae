package shard

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/topology"
)

// TestWhatWasNotedInMarks is known still when there is a place for it.
func TestWhatWasNotedInMarks(t *testing.T) {
	server := pgtest.Start(t)
	spec := specOf("s1", server)
	conn := connect(t, spec)
	at := slices.IndexFunc(steps, func(s step) bool { return s.name == "notes of moves" })
	if _, _, err := install(t.Context(), conn, steps[:at]); err != nil {
		t.Fatal(err)
	}
	if err := Claim(t.Context(), conn, clusterID, spec, must[*topology.Map](t)(topology.New(clusterID))); err != nil {
		t.Fatal(err)
	}
	for move, mark := range map[string]string{"older": `move {"keyspace": "users", "target": "s2"}`, "ended": takenBack} {
		if err := LeaveMark(t.Context(), conn, move, mark); err != nil {
			t.Fatal(err)
		}
	}
	for _, mark := range []string{ArrivedFrom("s3") + "0/1", `numbers [{"name": "n"}]`} {
		if err := LeaveMark(t.Context(), conn, "older", mark); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := Install(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, m := range must[*Recorded](t)(Read(t.Context(), conn)).Moves {
		known = append(known, fmt.Sprint(m.ID, " ", m.Keyspace, " to ", m.Target, m.ArrivedFrom))
	}
	if !slices.Equal(known, []string{"older users to s2[s3]"}) {
		t.Errorf("known are %q", known)
	}
	if note, err := readNote(t.Context(), conn, "older", numbersNote); err != nil || note != `[{"name": "n"}]` {
		t.Errorf("the numbers are %q, %v", note, err)
	}
	if left := one[int](t, conn, "SELECT count(*) FROM cleave.marks"); left != 2 {
		t.Errorf("%d marks are left, not those that are none of it", left)
	}
}
