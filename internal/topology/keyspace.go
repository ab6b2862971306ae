package topology

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/placement/key"
)

// Strategy says what a keyspace's ranges are ranges of.
type Strategy string

// The strategies.
const (
	// ByHash: ranges of PostgreSQL's 64-bit hash of the key.
	ByHash Strategy = "hash"
	// ByRange: ranges of the key itself, in PostgreSQL's order, text in C order.
	ByRange Strategy = "range"
	// BySchema: a PostgreSQL schema is the unit. Each schema of the keyspace is a pin; the ranges, of the hash of its
	// name, say where a new one goes.
	BySchema Strategy = "schema"
)

// MaxKeyColumns is how many columns a key can have.
const MaxKeyColumns = 8

// MaxKeyBytes bounds the ordered encoding of a pinned key or of a range's bound. PostgreSQL's own indexes hold no longer
// ones.
const MaxKeyBytes = 2700

// Point is a place in a keyspace's order, as text: in a keyspace by hash the hash, 16 hexadecimal digits; in one by range the
// key's values, of which a bound may name only the first ones. Nothing is the beginning. In JSON a
// single text stands for a list of one.
type Point []string

// Assignment says which algorithm made the ranges, so that the same one can change them later.
type Assignment struct {
	// Algorithm is one of placement's.
	Algorithm string `json:"algorithm"`
	// Slots and VirtualNodes are the algorithm's settings, 0 where it has its default.
	Slots        int `json:"slots,omitempty"`
	VirtualNodes int `json:"virtual_nodes,omitempty"`
	// Seats is the order of shards, for algorithms that remember it; an empty name is a seat that nobody holds.
	Seats []string `json:"seats,omitempty"`
}

// Equal says whether both name the same algorithm with the same settings.
func (a Assignment) Equal(b Assignment) bool {
	return a.Algorithm == b.Algorithm && a.Slots == b.Slots && a.VirtualNodes == b.VirtualNodes && slices.Equal(a.Seats, b.Seats)
}

// CopyState says why a shard has rows that it does not own.
type CopyState string

// The states of a copy.
const (
	// Incoming: the shard is receiving a copy, and will own it.
	Incoming CopyState = "incoming"
	// Opening: the copy is about to be the original. Until the next map says so it is held, and its owner refuses to change it.
	Opening CopyState = "opening"
	// Closing: the copy was opening and is not to be the original after all, which its shard may not know yet. Statements that are not bound to keys do not go there before it does.
	Closing CopyState = "closing"
	// Leaving: the shard still has rows that it no longer owns.
	Leaving CopyState = "leaving"
)

// CopySpec is a copy of a range or pin on a shard that does not own it.
type CopySpec struct {
	Shard string    `json:"shard"`
	State CopyState `json:"state"`
}

// RangeSpec describes a range: what [ReplaceRanges] takes, and its JSON form. It reaches to the next one's From.
type RangeSpec struct {
	From Point `json:"from,omitempty"`
	// To is where the next range begins. It is for people who read a document, and for noticing when they take a range out
	// of it: it may be left out, but if it is there it must be right.
	To     Point      `json:"to,omitempty"`
	Shard  string     `json:"shard"`
	Copies []CopySpec `json:"copies,omitempty"`
	// Held ranges are about to change their owner: new statements wait.
	Held bool `json:"held,omitempty"`
}

// PinSpec describes a pin: what [SetPins] takes, and its JSON form.
type PinSpec struct {
	Key    Point      `json:"key"`
	Shard  string     `json:"shard"`
	Copies []CopySpec `json:"copies,omitempty"`
	Held   bool       `json:"held,omitempty"`
}

// KeyspaceSpec describes a keyspace: what [CreateKeyspace] takes, and its JSON form.
type KeyspaceSpec struct {
	KeyspaceHead
	// Ranges in order, the first without From.
	Ranges []RangeSpec `json:"ranges"`
	// Pins in the order of their keys.
	Pins []PinSpec `json:"pins,omitempty"`
}

// KeyspaceHead is all of a keyspace but its ranges and pins.
type KeyspaceHead struct {
	Name     string   `json:"name"`
	Strategy Strategy `json:"strategy"`
	// Key has the key's types, such as bigint. A keyspace of schemas has none: its key is the schema's name.
	Key []string `json:"key,omitempty"`
	// Seed of the hash, a signed 64-bit number as PostgreSQL takes it. It is text because not every reader of JSON keeps
	// such a number exact.
	Seed       string     `json:"seed,omitempty"`
	Assignment Assignment `json:"assignment,omitzero"`
}

// NewKeyspaceSpec describes a keyspace without ranges and pins.
func NewKeyspaceSpec(name string, strategy Strategy, seed int64, types ...string) KeyspaceSpec {
	spec := KeyspaceSpec{KeyspaceHead: KeyspaceHead{Name: name, Strategy: strategy, Key: types}}
	if strategy != ByRange {
		spec.Seed = strconv.FormatInt(seed, 10)
	}
	return spec
}

// Keyspace is a family of co-located tables with the same key type and the same ranges.
type Keyspace struct {
	head   KeyspaceHead
	types  []key.Type
	seed   uint64
	ranges []*piece[rangeEntry]
	pins   pinTable
	// One of these is set: hashed by hash and by schema, keyed by range. Their numbers are the shards' numbers.
	hashed *placement.Map
	keyed  *placement.KeyMap
	// held are the held ranges, hardly ever any.
	held []Range
	// holds: a range or pin is held.
	holds bool
	// closing are the numbers of shards with copies that are closing.
	closing map[int]bool
	// copied says which shards, by number, have a copy of anything that they do not own, and lent which own something of which another has a copy. Nil: none.
	copied, lent map[int]bool
	// pinned has the pins by the hash of their keys, once somebody asks for them so.
	pinned *pinsByHash
	shards []*Shard // by number
}

// Head returns all of the keyspace but its ranges and pins.
func (k *Keyspace) Head() KeyspaceHead {
	head := k.head
	head.Key, head.Assignment = slices.Clone(k.head.Key), k.Assignment()
	return head
}

// Name returns the keyspace's name.
func (k *Keyspace) Name() string { return k.head.Name }

// Strategy returns the strategy.
func (k *Keyspace) Strategy() Strategy { return k.head.Strategy }

// KeyTypes returns the types of the key's columns.
func (k *Keyspace) KeyTypes() []key.Type { return slices.Clone(k.types) }

// Seed returns the seed of the hash, as PostgreSQL takes it.
func (k *Keyspace) Seed() int64 { return int64(k.seed) }

// Assignment returns which algorithm made the ranges.
func (k *Keyspace) Assignment() Assignment {
	a := k.head.Assignment
	a.Seats = slices.Clone(a.Seats)
	return a
}

// Hashes returns the ranges of the hash, nil if the keyspace is ordered by the key itself. Numbers in it are shards'
// numbers.
func (k *Keyspace) Hashes() *placement.Map { return k.hashed }

// Keys returns the ranges of a keyspace that is ordered by the key itself, nil for others.
func (k *Keyspace) Keys() *placement.KeyMap { return k.keyed }

// RangeCount returns how many ranges there are.
func (k *Keyspace) RangeCount() int {
	if k.keyed != nil {
		return k.keyed.Len()
	}
	return k.hashed.Len()
}

// PinCount returns how many pins there are.
func (k *Keyspace) PinCount() int { return k.pins.count }

// HasCopies says whether the shard has rows in this keyspace that it does not own: then statements that are not bound to
// keys need the ownership condition there.
func (k *Keyspace) HasCopies(s *Shard) bool { return k.copied[s.Number()] }

// TakesPart says whether the shard has to do with a move of this keyspace: it has copies, or others have copies of what it owns.
func (k *Keyspace) TakesPart(s *Shard) bool { return k.copied[s.Number()] || k.lent[s.Number()] }

// IsMoving says whether there are copies of anything in this keyspace.
func (k *Keyspace) IsMoving() bool { return len(k.copied) > 0 }

// Holds says whether anything in this keyspace is held: then statements that are not bound to keys wait.
func (k *Keyspace) Holds() bool { return k.holds }

// Closes says whether a shard may take a copy for the original that is none: one that has some, if any are named.
func (k *Keyspace) Closes(shards ...int) bool {
	return len(k.closing) > 0 && (len(shards) == 0 || slices.ContainsFunc(shards, func(number int) bool { return k.closing[number] }))
}

// Same says whether two keyspaces of successive maps have the same ranges and pins: what did not change they share.
func (k *Keyspace) Same(other *Keyspace) bool {
	return k == other || k != nil && other != nil && slices.Equal(k.ranges, other.ranges) && slices.Equal(k.pins.pieces, other.pins.pieces)
}

// Equals says whether two keyspaces, of whichever maps, have the same in them, their definition included.
func (k *Keyspace) Equals(other *Keyspace) bool {
	return k == other || reflect.DeepEqual(k.head, other.head) &&
		slices.Equal(identifiers(k.ranges), identifiers(other.ranges)) && slices.Equal(identifiers(k.pins.pieces), identifiers(other.pins.pieces))
}

// Copy is a copy of a range or pin on a shard that does not own it.
type Copy struct {
	Shard *Shard
	State CopyState
}

// Range is a range with its owner. Hash is set in a keyspace by hash or schema, Key in one by range.
type Range struct {
	Hash   placement.HashRange
	Key    placement.KeyRange
	Owner  *Shard
	Copies []Copy
	Held   bool
}

// Pin is one key that goes elsewhere than its range says.
type Pin struct {
	// Encoded is the key in its ordered encoding.
	Encoded string
	Owner   *Shard
	Copies  []Copy
	Held    bool
}

// Place is where a key lives.
type Place struct {
	Shard *Shard
	// Held: the owner is about to change, wait for a newer map.
	Held bool
	// Pinned: a pin says so, not a range.
	Pinned bool
}

var (
	errKeyWidth = errors.New("the key does not have as many values as the keyspace has key columns")
	errKeyType  = errors.New("a value of the key is not of the keyspace's type")
)

// Locate returns where the row with this key lives. The values are in the keyspace's order and of its types; integer types
// stand for each other, and so do text and varchar.
func (k *Keyspace) Locate(values ...key.Value) (Place, error) {
	if len(values) != len(k.types) {
		return Place{}, errKeyWidth
	}
	for i := range values {
		if family(values[i].Type()) != family(k.types[i]) {
			return Place{}, errKeyType
		}
	}
	if k.pins.count == 0 && k.hashed != nil { // most keyspaces
		return k.byHash(k.hash(values)), nil
	}
	var buffer [128]byte
	encoded := buffer[:0]
	for i := range values {
		encoded = values[i].AppendOrdered(encoded)
	}
	if pin := k.pins.find(encoded); pin != nil {
		return Place{Shard: k.shards[pin.owner], Held: pin.isHeld(), Pinned: true}, nil
	}
	if k.hashed != nil {
		return k.byHash(k.hash(values)), nil
	}
	place := Place{Shard: k.shards[k.keyed.LookupBytes(encoded)]}
	if len(k.held) > 0 {
		place.Held = slices.ContainsFunc(k.held, func(r Range) bool { return r.Key.Contains(string(encoded)) })
	}
	return place, nil
}

// Hash returns the key's hash in this keyspace.
func (k *Keyspace) Hash(values ...key.Value) uint64 { return k.hash(values) }

func (k *Keyspace) hash(values []key.Value) uint64 {
	h := k.seed
	for i := range values {
		h = values[i].Hash(h)
	}
	return h
}

func (k *Keyspace) byHash(h uint64) Place {
	place := Place{Shard: k.shards[k.hashed.Lookup(h)]}
	if len(k.held) > 0 {
		place.Held = slices.ContainsFunc(k.held, func(r Range) bool { return r.Hash.Contains(h) })
	}
	return place
}

// family groups the types whose equal values have equal hashes.
func family(t key.Type) key.Type {
	switch t {
	case key.Integer, key.Smallint:
		return key.Bigint
	case key.Varchar:
		return key.Text
	default:
		return t
	}
}

// Ranges iterates over the ranges in order.
func (k *Keyspace) Ranges() iter.Seq[Range] {
	return func(yield func(Range) bool) {
		i := 0
		for _, p := range k.ranges {
			for _, e := range p.entries {
				if !yield(k.rangeOf(i, e)) {
					return
				}
				i++
			}
		}
	}
}

// RangesIn iterates over the ranges that have something of what lies between two points, in order; none is the beginning or the end.
func (k *Keyspace) RangesIn(from, to Point) (iter.Seq[Range], error) {
	c := codec{byKey: k.keyed != nil, types: k.types}
	low, err := c.bound(from)
	if err != nil {
		return nil, err
	}
	high, err := c.bound(to)
	if err != nil {
		return nil, err
	}
	return func(yield func(Range) bool) {
		first := sort.Search(k.RangeCount(), func(i int) bool { return k.begin(i).compare(low) > 0 }) - 1
		i := 0
		for _, p := range k.ranges {
			if i+len(p.entries) <= first {
				i += len(p.entries)
				continue
			}
			for _, e := range p.entries {
				if len(to) > 0 && e.compare(high) >= 0 {
					return
				}
				if i >= first && !yield(k.rangeOf(i, e)) {
					return
				}
				i++
			}
		}
	}, nil
}

// begin is where a range begins.
func (k *Keyspace) begin(i int) rangeEntry {
	if k.keyed != nil {
		return rangeEntry{key: k.keyed.At(i).Lo}
	}
	return rangeEntry{hash: k.hashed.At(i).Lo}
}

func (k *Keyspace) rangeOf(i int, e rangeEntry) Range {
	r := Range{Owner: k.shards[e.owner], Copies: k.copiesOf(e.holding), Held: e.isHeld()}
	if k.keyed != nil {
		r.Key = k.keyed.At(i).Range
	} else {
		r.Hash = k.hashed.At(i).Range
	}
	return r
}

// Pins iterates over the pins, in no particular order.
func (k *Keyspace) Pins() iter.Seq[Pin] {
	return func(yield func(Pin) bool) {
		for _, p := range k.pins.pieces {
			for _, e := range p.entries {
				if !yield(Pin{Encoded: e.key, Owner: k.shards[e.owner], Copies: k.copiesOf(e.holding), Held: e.isHeld()}) {
					return
				}
			}
		}
	}
}

// PinOf returns the pin of a key in its ordered encoding, if it has one.
func (k *Keyspace) PinOf(encoded string) (Pin, bool) {
	e := k.pins.find([]byte(encoded))
	if e == nil {
		return Pin{}, false
	}
	return Pin{Encoded: e.key, Owner: k.shards[e.owner], Copies: k.copiesOf(e.holding), Held: e.isHeld()}, true
}

func (k *Keyspace) copiesOf(h holding) []Copy {
	if h.marks == nil || len(h.marks.copies) == 0 {
		return nil
	}
	copies := make([]Copy, len(h.marks.copies))
	for i, c := range h.marks.copies {
		copies[i] = Copy{Shard: k.shards[c.shard], State: c.state}
	}
	return copies
}

// Texts returns the values of an encoded key, or of a bound that has only the first ones, as text.
func (k *Keyspace) Texts(encoded string) (Point, error) { return texts(k.types, encoded) }

func texts(types []key.Type, encoded string) (Point, error) {
	var point Point
	for _, t := range types {
		if encoded == "" {
			break
		}
		value, rest, err := t.CutOrdered(encoded)
		if err != nil {
			return nil, err
		}
		point = append(point, value.String())
		encoded = rest
	}
	if encoded != "" {
		return nil, errors.New("the key has more values than the keyspace has key columns")
	}
	return point, nil
}

// Encode returns the ordered encoding of a key, given as text.
func (k *Keyspace) Encode(point Point) (string, error) {
	if len(point) != len(k.types) {
		return "", fmt.Errorf("a key of keyspace %q has %d values, not %d", k.Name(), len(k.types), len(point))
	}
	return encodePoint(k.types, point)
}

// ParseKey reads the values of a key from their texts.
func (k *Keyspace) ParseKey(point Point) ([]key.Value, error) {
	if len(point) != len(k.types) {
		return nil, fmt.Errorf("a key of keyspace %q has %d values, not %d", k.Name(), len(k.types), len(point))
	}
	values := make([]key.Value, len(point))
	for i, text := range point {
		var err error
		if values[i], err = k.types[i].Parse(text); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// EncodeBound returns the ordered encoding of a range's bound, which may have the first values of a key alone.
func (k *Keyspace) EncodeBound(point Point) (string, error) { return encodePoint(k.types, point) }

// encodePoint encodes the values of a key or, if there are fewer than types, of a bound.
func encodePoint(types []key.Type, point Point) (string, error) {
	if len(point) > len(types) {
		return "", fmt.Errorf("%d values for a key of %d columns", len(point), len(types))
	}
	var encoded []byte
	for i, text := range point {
		value, err := types[i].Parse(text)
		if err != nil {
			return "", err
		}
		encoded = value.AppendOrdered(encoded)
	}
	if len(encoded) > MaxKeyBytes {
		return "", fmt.Errorf("a key of %d bytes is longer than %d", len(encoded), MaxKeyBytes)
	}
	return string(encoded), nil
}

// formatHash prints a point of the hash space.
func formatHash(h uint64) Point {
	if h == 0 {
		return nil
	}
	return Point{fmt.Sprintf("%016x", h)}
}

// parseHash reads a point of the hash space.
func parseHash(p Point) (uint64, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(p) > 1 || len(p[0]) != 16 || strings.ContainsAny(p[0], "+-_") {
		return 0, fmt.Errorf("%q is not a point of the hash space: write 16 hexadecimal digits", []string(p))
	}
	h, err := strconv.ParseUint(p[0], 16, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a point of the hash space: write 16 hexadecimal digits", p[0])
	}
	return h, nil
}
