package wire

import "testing"

// TestEqualDescriptions: columns are compared one by one; what cannot be read is told.
func TestEqualDescriptions(t *testing.T) {
	describe := func(columns ...Column) []byte { return Body(AppendRowDescription(nil, columns)) }
	byName := func(one, other Column) bool { return string(one.Name) == string(other.Name) }
	a, b := Column{Name: []byte("a"), TableOID: 1}, Column{Name: []byte("b")}
	for _, c := range []struct {
		one, other  []byte
		want, fails bool
	}{
		{describe(a, b), describe(Column{Name: []byte("a"), TableOID: 2}, b), true, false},
		{describe(a, b), describe(a), false, false},
		{describe(a, b), describe(b, a), false, false},
		{describe(), describe(), true, false},
		{describe(a, b), describe(a, b)[:12], false, true},
		{describe(a), append(describe(a), 0), true, true},
	} {
		if same, err := EqualDescriptions(c.one, c.other, byName); same != c.want || (err != nil) != c.fails {
			t.Errorf("%q and %q: %t, %v", c.one, c.other, same, err)
		}
	}
}
