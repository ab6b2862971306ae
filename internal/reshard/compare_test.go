package reshard

import (
	"maps"
	"slices"
	"testing"
)

// TestRowsThatStayDifferent: what is only late is told from what is missing, gone or stuck, also if it is written all the time.
func TestRowsThatStayDifferent(t *testing.T) {
	rounds := []struct{ mine, theirs map[string]string }{
		{map[string]string{"hot": "1", "missing": "1", "late": "1", "stuck": "1", "same": "1"}, map[string]string{"hot": "0", "stuck": "0", "extra": "1", "same": "1"}},
		{map[string]string{"hot": "3", "missing": "2", "late": "1", "stuck": "2", "same": "1"}, map[string]string{"hot": "2", "late": "1", "stuck": "0", "extra": "1", "same": "1"}},
		{map[string]string{"hot": "5", "missing": "3", "late": "1", "stuck": "3", "same": "1"}, map[string]string{"hot": "4", "late": "1", "stuck": "0", "extra": "1", "same": "1", "new": "1"}},
	}
	var doubts map[string]doubt
	for i, r := range rounds {
		doubts = stillDiffering(doubts, r.mine, r.theirs, i == 0)
	}
	if got := slices.Sorted(maps.Keys(doubts)); !slices.Equal(got, []string{"extra", "hot", "missing", "stuck"}) {
		t.Errorf("still differing: %v", got)
	}
	if !doubts["hot"].arrives || doubts["missing"].arrives || doubts["stuck"].arrives || doubts["extra"].arrives {
		t.Errorf("%+v", doubts)
	}
}
