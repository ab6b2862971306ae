package merge

import (
	"slices"
	"testing"
)

// fuzzOrders are one by each type, and one by all of them.
func fuzzOrders(f *testing.F) []*Order {
	f.Helper()
	var all []Key
	for oid := range kinds {
		all = append(all, Key{Type: oid})
	}
	slices.SortFunc(all, func(a, b Key) int { return int(a.Type) - int(b.Type) })
	var orders []*Order
	for i := range all {
		all[i].Column = i / 2
		one, err := NewOrder([]Key{{Type: all[i].Type}})
		if err != nil {
			f.Fatal(err)
		}
		orders = append(orders, one)
	}
	every, err := NewOrder(all)
	if err != nil {
		f.Fatal(err)
	}
	return append(orders, every)
}

// FuzzOrder: no rows make a comparison panic, and it is the same both ways round.
func FuzzOrder(f *testing.F) {
	orders := fuzzOrders(f)
	seeds := [][]byte{
		nil, {0}, {0xff, 0xff}, rowOf(), rowOf(nil), rowOf([]byte{}), {0, 1, 0xff, 0xff, 0xff, 0xfe}, {0, 1, 0, 0, 0, 2, 1}, rowOf(int8Of(1)), rowOf(make([]byte, 16)),
		rowOf([]byte{0, 1, 0, 0, 0x40, 0, 0, 0, 0, 5}), rowOf([]byte{0, 1, 0x80, 0, 0, 0, 0, 0, 0, 0}), rowOf([]byte{0, 2, 0, 0, 0, 0, 0, 0, 0, 5}),
		rowOf([]byte{2, 24, 0, 4, 10, 0, 0, 1}), rowOf([]byte{3, 129, 0, 4, 10, 0, 0, 1}), rowOf([]byte{0, 0, 0, 9, 0xff, 0x80}), rowOf([]byte{0x7f, 0xff, 0xff, 0xff}),
	}
	for which := range orders {
		for i, row := range seeds {
			f.Add(uint8(which), row, seeds[(i+1)%len(seeds)])
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, a, b []byte) {
		o := orders[int(which)%len(orders)]
		there, thereError := o.Compare(a, b)
		back, backError := o.Compare(b, a)
		if (thereError == nil) != (backError == nil) || (there < 0) != (back > 0) || (there == 0) != (back == 0) {
			t.Errorf("%d, %v; the other way round %d, %v", there, thereError, back, backError)
		}
		same, err := o.Compare(a, a)
		if same != 0 || err == nil && there != 0 && slices.Equal(a, b) {
			t.Errorf("%q is %d to itself", a, same)
		}
	})
}
