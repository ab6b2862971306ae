package saga

import (
	"slices"
	"testing"
)

func TestSteps(t *testing.T) {
	inBothWorlds(t, func(t *testing.T, w *world) {
		run(t, w.runner(t, nil, w.order("order", orders{})))
		for range 5 {
			s := w.begin(t, "order", order{})
			saga := w.wait(t, s, Completed)
			if got := whats(w.traces(t, s)); !slices.Equal(got, []string{"reserve do", "charge do", "book do", "ship do"}) {
				t.Errorf("%q", got)
			}
			t.Logf("%+v", saga)
			s = w.begin(t, "order", order{Refused: true})
			saga = w.wait(t, s, Compensated)
			if got := whats(w.traces(t, s)); !slices.Equal(got, []string{"reserve do", "charge do", "book do", "book undo", "charge undo", "reserve undo"}) {
				t.Errorf("%q", got)
			}
			t.Logf("%+v", saga)
		}
	})
}
