package facts_test

import (
	"testing"

	"github.com/cleavedb/cleave/internal/facts"
)

// TestCursors: names as PostgreSQL folds them, all options and all ways to go.
func TestCursors(t *testing.T) {
	for text, want := range map[string]facts.Cursor{
		"declare C cursor for select 1":                           {Name: "c"},
		`declare "C" binary scroll cursor with hold for select 1`: {Name: "C", Binary: true, Scroll: true, Hold: true},
		"declare c no scroll cursor without hold for table t":     {Name: "c", NoScroll: true},
		"declare c insensitive cursor for select 1":               {Name: "c"},
		"explain declare c cursor with hold for select 1":         {},
		"fetch c":                               {Name: "c", Count: 1},
		"fetch next from c":                     {Name: "c", Count: 1},
		"fetch prior in c":                      {Name: "c", Direction: facts.Backward, Count: 1},
		"fetch first c":                         {Name: "c", Direction: facts.Absolute, Count: 1},
		"fetch last from c":                     {Name: "c", Direction: facts.Absolute, Count: -1},
		"fetch absolute -3 from c":              {Name: "c", Direction: facts.Absolute, Count: -3},
		"fetch relative 0 from c":               {Name: "c", Direction: facts.Relative},
		"fetch 5 from c":                        {Name: "c", Count: 5},
		"fetch -5 from c":                       {Name: "c", Count: -5},
		"fetch all from c":                      {Name: "c", Count: facts.AllRows},
		"fetch forward from c":                  {Name: "c", Count: 1},
		"fetch forward all from c":              {Name: "c", Count: facts.AllRows},
		"fetch backward from c":                 {Name: "c", Direction: facts.Backward, Count: 1},
		"fetch backward -2 from c":              {Name: "c", Direction: facts.Backward, Count: -2},
		"move backward all from c":              {Name: "c", Direction: facts.Backward, Count: facts.AllRows, Move: true},
		"move c":                                {Name: "c", Count: 1, Move: true},
		"close c":                               {Name: "c"},
		"close all":                             {All: true},
		"update t set a = 1 where current of c": {Name: "c"},
		"with x as (delete from t where current of c) select from x": {Name: "c"},
	} {
		if s := one(t, text); s.Cursor != want {
			t.Errorf("%s: %+v, want %+v", text, s.Cursor, want)
		}
	}
}
