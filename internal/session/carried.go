package session

import "encoding/binary"

// In binary format an array names the type of its elements, and a row those of its columns, by their numbers. Where a shard has other
// numbers than the home shard, those in values are exchanged as those in descriptions are: in what the shard answers, and in
// parameters on their way to it. A number is four bytes, so that happens in place. Most values carry none, and nobody looks at them.

// shape is how a value that carries numbers of types, or may have such values in it, is built.
type shape byte

const (
	isArray      shape = 'a'
	isRecord     shape = 'c'
	isRange      shape = 'r'
	isMultirange shape = 'm'
)

// container is a type whose values may carry numbers. Ranges do not say what their bounds are: that is in of.
type container struct {
	shape shape
	of    uint32
}

// The types of rows of no table, and of arrays of them. They are PostgreSQL's own, and may have anything in them.
const (
	recordOID      = 2249
	recordArrayOID = 2287
)

// containerOf says how values of a type, by its number at home, are built.
func (n *numbering) containerOf(oid uint32) (container, bool) {
	switch oid {
	case recordOID:
		return container{shape: isRecord}, true
	case recordArrayOID:
		return container{shape: isArray}, true
	}
	c, is := n.containers[oid]
	if is && (c.shape == isRange || c.shape == isMultirange) {
		_, is = n.containerOf(c.of)
	}
	return c, is
}

// direction is which numbers values have, and which they are to have.
type direction struct {
	n *numbering
	// toShard: they have the home shard's numbers.
	toShard bool
}

// exchange replaces a number and returns the home shard's, by which containers are known.
func (d direction) exchange(at []byte) (home uint32) {
	oid := binary.BigEndian.Uint32(at)
	if oid < firstUserOID {
		return oid
	}
	numbers := d.n.types
	if d.toShard {
		numbers = d.n.back
	}
	other, known := numbers[oid]
	if !known {
		return oid
	}
	binary.BigEndian.PutUint32(at, other)
	if d.toShard {
		return oid
	}
	return other
}

// value exchanges the numbers in a value of a type, which is given by its number at home. It says whether the value is built as its
// type says.
func (d direction) value(home uint32, value []byte) bool {
	c, is := d.n.containerOf(home)
	if !is {
		return true
	}
	in := valueReader(value)
	switch c.shape {
	case isArray:
		return d.array(&in)
	case isRecord:
		return d.record(&in)
	case isRange:
		return d.bounds(&in, c.of)
	case isMultirange:
		return d.ranges(&in, c.of)
	default:
		return false
	}
}

// array: how many dimensions, whether there are NULLs, the type of the elements, the dimensions, the elements.
func (d direction) array(in *valueReader) bool {
	const sizeOfDimension = 8
	dimensions, ok := in.number()
	if !ok {
		return false
	}
	if _, ok = in.number(); !ok {
		return false
	}
	element, ok := in.next(4)
	if !ok {
		return false
	}
	home := d.exchange(element)
	if _, isContainer := d.n.containerOf(home); !isContainer {
		return true
	}
	if _, ok = in.next(int(dimensions) * sizeOfDimension); !ok {
		return false
	}
	for len(*in) > 0 {
		if !d.member(in, home) {
			return false
		}
	}
	return true
}

// record: how many columns, and of each the type and the value.
func (d direction) record(in *valueReader) bool {
	columns, ok := in.number()
	if !ok {
		return false
	}
	for range columns {
		of, ok := in.next(4)
		if !ok || !d.member(in, d.exchange(of)) {
			return false
		}
	}
	return true
}

// bounds are those of a range: flags, and the bounds that it has.
func (d direction) bounds(in *valueReader, of uint32) bool {
	const (
		empty          = 0x01
		lowerUnbounded = 0x08
		upperUnbounded = 0x10
	)
	flags, ok := in.next(1)
	if !ok {
		return false
	}
	if flags[0]&empty != 0 {
		return true
	}
	if flags[0]&lowerUnbounded == 0 && !d.member(in, of) {
		return false
	}
	return flags[0]&upperUnbounded != 0 || d.member(in, of)
}

// ranges are those of a multirange: how many, and each with its length.
func (d direction) ranges(in *valueReader, of uint32) bool {
	count, ok := in.number()
	if !ok {
		return false
	}
	for range count {
		one, ok := in.sized()
		inner := valueReader(one)
		if !ok || !d.bounds(&inner, of) {
			return false
		}
	}
	return true
}

// member is a value that stands in another one, with its length.
func (d direction) member(in *valueReader, home uint32) bool {
	value, ok := in.sized()
	return ok && (value == nil || d.value(home, value))
}

// valueReader goes through a value in binary format.
type valueReader []byte

func (r *valueReader) next(size int) (taken []byte, ok bool) {
	if size < 0 || size > len(*r) {
		return nil, false
	}
	taken, *r = (*r)[:size], (*r)[size:]
	return taken, true
}

func (r *valueReader) number() (n uint32, ok bool) {
	taken, ok := r.next(4)
	if !ok {
		return 0, false
	}
	return binary.BigEndian.Uint32(taken), true
}

// sized takes a length and as many bytes; nil for NULL.
func (r *valueReader) sized() (value []byte, ok bool) {
	size, ok := r.number()
	if !ok || int32(size) < 0 {
		return nil, ok
	}
	return r.next(int(size))
}
