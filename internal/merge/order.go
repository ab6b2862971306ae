package merge

import (
	"cmp"
	"fmt"
	"slices"
)

// Key is one term of the order. Its column, counted from 0, holds the value in PostgreSQL's binary format.
type Key struct {
	Column                 int
	Type                   uint32 // its OID; of a domain that of the type below
	Descending, NullsFirst bool
}

// HasOrder says whether Go reproduces the default order of a type exactly. The collation is what pg_collation_for() says of the
// value in a session whose search_path is empty, such as "C" or "default", with the quotes; it is empty if it says NULL. databaseIsC
// says that the database's own collation, which is "default", is C or POSIX.
func HasOrder(oid uint32, collation string, databaseIsC bool) bool {
	k := kinds[oid]
	if k == nil {
		return false
	}
	if !k.hasCollation {
		return true
	}
	switch collation {
	case `"C"`, `"POSIX"`:
		return true
	case `"default"`:
		return databaseIsC
	case "":
		return oid == oidName // whose collation is C unless somebody says otherwise
	default:
		return false
	}
}

// Order compares rows by their keys.
type Order struct {
	keys  []Key
	kinds []*kind
	// visits are the keys in the order of their columns.
	visits []visit
	// width is how many fields a row has at least.
	width int
}

// visit says which key a column is.
type visit struct{ column, key int }

// NewOrder returns the order of the keys, the first of which decides first. The caller has asked [HasOrder] about each; a type for
// which it is always false is an error here.
func NewOrder(keys []Key) (*Order, error) {
	o := &Order{keys: slices.Clone(keys), kinds: make([]*kind, len(keys)), visits: make([]visit, len(keys))}
	for i, key := range keys {
		if key.Column < 0 {
			return nil, fmt.Errorf("order by column %d: there is none", key.Column)
		}
		if o.kinds[i] = kinds[key.Type]; o.kinds[i] == nil {
			return nil, fmt.Errorf("order by column %d: the order of type %d is not known", key.Column, key.Type)
		}
		o.visits[i] = visit{key.Column, i}
		o.width = max(o.width, key.Column+1)
	}
	slices.SortFunc(o.visits, func(a, b visit) int { return cmp.Compare(a.column, b.column) })
	return o, nil
}

// fewKeys is how many keys a comparison of two rows finds without allocating.
const fewKeys = 4

// Compare returns a negative number, 0 or a positive one, as a comes before b, is equal to it in the order, or comes after it. Rows
// are looked at no further than their last key.
func (o *Order) Compare(a, b []byte) (int, error) {
	var aFew, bFew [fewKeys][]byte
	aKeys, bKeys := aFew[:0], bFew[:0]
	aKeys, bKeys = slices.Grow(aKeys, len(o.keys))[:len(o.keys)], slices.Grow(bKeys, len(o.keys))[:len(o.keys)]
	if err := o.find(a, aKeys); err != nil {
		return 0, err
	}
	if err := o.find(b, bKeys); err != nil {
		return 0, err
	}
	return o.compareKeys(aKeys, bKeys, len(o.keys)), nil
}

// find fills in the values of a row's keys, nil for NULL, after a look whether they can be compared.
func (o *Order) find(row []byte, keys [][]byte) error {
	count, rest, ok := cutCount(row)
	if !ok || count < o.width {
		return ErrMalformed
	}
	var value []byte
	column := 0
	for _, v := range o.visits {
		for ; column <= v.column; column++ {
			if value, rest, ok = cutField(rest); !ok {
				return ErrMalformed
			}
		}
		if value != nil && !o.kinds[v.key].accepts(value) {
			return ErrMalformed
		}
		keys[v.key] = value
	}
	return nil
}

// compareKeys compares the values of the first keys, as many as it is told.
func (o *Order) compareKeys(a, b [][]byte, count int) int {
	for i := range count {
		if order := o.compareKey(i, a[i], b[i]); order != 0 {
			return order
		}
	}
	return 0
}

func (o *Order) compareKey(i int, a, b []byte) int {
	key := &o.keys[i]
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return ifElse(key.NullsFirst, -1, 1)
	case b == nil:
		return ifElse(key.NullsFirst, 1, -1)
	case key.Descending:
		return o.kinds[i].compare(b, a)
	default:
		return o.kinds[i].compare(a, b)
	}
}

func ifElse(condition bool, yes, no int) int {
	if condition {
		return yes
	}
	return no
}
