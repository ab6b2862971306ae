package session

import "testing"

// TestRowsAreToldApartWhateverIsInThem: commas inside of brackets and parentheses separate no values of a row.
func TestRowsAreToldApartWhateverIsInThem(t *testing.T) {
	for text, want := range map[string]struct {
		rows   int
		uneven bool
		place  int // of the only DEFAULT, -1 for none
	}{
		"insert into t values (1, array[1, 2]), (2, '{}')":                           {2, false, -1},
		"insert into t values (1, array[[1, 2], [3, 4]], default), (2, null, 3)":     {2, false, 2},
		"insert into t values (1, (2, 3)), (2, row(4, 5, 6)), (3, null)":             {3, false, -1},
		"insert into t values (1, (array[f(1, 2), 3])[1]), (2, 3) returning k, a[1]": {2, false, -1},
		"insert into t values (1, 2), (3)":                                           {2, true, -1},
		"insert into t values (1), (array[2, 3])":                                    {2, false, -1},
	} {
		found, ok := findRows([]byte(text), true, 0)
		place := -1
		for _, d := range found.defaults {
			place = d.place
		}
		if !ok || len(found.rows) != want.rows || found.uneven != want.uneven || place != want.place {
			t.Errorf("%s: %d rows, uneven %t, DEFAULT at %d, %t; want %+v", text, len(found.rows), found.uneven, place, ok, want)
		}
	}
}
