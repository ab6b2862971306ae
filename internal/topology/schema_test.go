package topology

import "testing"

func TestHoldsCoverWhatTheyName(t *testing.T) {
	table := func(name string) TableName { return TableName{Schema: "public", Name: name} }
	some := Hold{ID: "some", Tables: []TableName{table("orders"), table("items")}}
	other := Hold{ID: "other", Tables: []TableName{table("users")}}
	all := Hold{ID: "all"}
	for _, c := range []struct {
		a, b     Hold
		overlaps bool
	}{
		{some, some, true}, {some, other, false}, {other, some, false}, {some, all, true}, {all, some, true}, {all, all, true},
		{some, Hold{Tables: []TableName{table("users"), table("items")}}, true},
		{some, Hold{Tables: []TableName{{Schema: "private", Name: "orders"}}}, false},
	} {
		if got := c.a.Overlaps(c.b); got != c.overlaps {
			t.Errorf("%v and %v have tables in common: %v", c.a.Tables, c.b.Tables, got)
		}
	}
	state := SchemaState{Holds: []Hold{some, other}}
	for name, want := range map[string]string{"orders": "some", "items": "some", "users": "other", "Orders": "", "countries": ""} {
		if hold, held := state.HeldBy(table(name)); hold.ID != want || held != (want != "") {
			t.Errorf("%s is held by %q", name, hold.ID)
		}
	}
	if hold, held := (SchemaState{Holds: []Hold{all}}).HeldBy(table("anything")); !held || hold.ID != "all" {
		t.Error("a hold of all tables does not hold one")
	}
	if hold, held := state.Hold("other"); !held || hold.ID != "other" {
		t.Error("a hold is not found by its ID")
	}
	if _, held := state.Hold("none"); held {
		t.Error("a hold is found that is not there")
	}
	if hold, inTheWay := state.Conflict(all); !inTheWay || hold.ID != "some" {
		t.Error("nothing is in the way of a hold of all tables")
	}
	if hold, inTheWay := state.Conflict(some); inTheWay {
		t.Errorf("%q is in the way of what is there already", hold.ID)
	}
	if state.Holds[0].First() != "some" || state.Holds[0].TakenOver() {
		t.Error("a hold of the one who made it is not its own")
	}
	if taken := (Hold{ID: "b", Origin: "a"}); taken.First() != "a" || !taken.TakenOver() {
		t.Error("a hold that was taken over does not say so")
	}
}

// TestLookingForHoldsAllocatesNothing: it is on the way of every statement.
func TestLookingForHoldsAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	state := SchemaState{Holds: []Hold{{ID: "h", Tables: []TableName{{Schema: "public", Name: "users"}}}}}
	orders := TableName{Schema: "public", Name: "orders"}
	if n := testing.AllocsPerRun(100, func() { state.HeldBy(orders) }); n != 0 {
		t.Errorf("it allocates %v times", n)
	}
}
