package topology

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/cleavedb/cleave/placement/key"
)

// holding is who owns a range or pin, and what else is to be known about it.
type holding struct {
	owner uint16
	marks *marks // nil for nearly all
}

// marks are what a move adds to a range or pin.
type marks struct {
	copies []copyMark
	held   bool
}

type copyMark struct {
	shard uint16
	state CopyState
}

var copyStates = []CopyState{Incoming, Opening, Closing, Leaving}

func (h holding) isHeld() bool { return h.marks != nil && h.marks.held }

func (h holding) same(other holding) bool {
	if h.owner != other.owner || (h.marks == nil) != (other.marks == nil) {
		return false
	}
	return h.marks == nil || h.marks.held == other.marks.held && slices.Equal(h.marks.copies, other.marks.copies)
}

// rangeEntry is a range as it is kept: where it begins, by hash or by key, and who holds it.
type rangeEntry struct {
	hash uint64
	key  string
	holding
}

func (e rangeEntry) same(other rangeEntry) bool {
	return e.hash == other.hash && e.key == other.key && e.holding.same(other.holding)
}

func (e rangeEntry) compare(other rangeEntry) int {
	return cmp.Or(cmp.Compare(e.hash, other.hash), cmp.Compare(e.key, other.key))
}

// pinEntry is a pin as it is kept. Pins are sorted by a hash of the key, whatever the keyspace, because that spreads them
// evenly: a look-up can guess where one is.
type pinEntry struct {
	hash uint64
	key  string // in its ordered encoding
	holding
}

func (e pinEntry) equal(other pinEntry) bool {
	return e.compare(other) == 0 && e.same(other.holding)
}

func (e pinEntry) compare(other pinEntry) int {
	return cmp.Or(cmp.Compare(e.hash, other.hash), cmp.Compare(e.key, other.key))
}

// codec turns ranges and pins into their JSON forms and back. It knows what those leave out: the key's types, and the
// shards by name and number.
type codec struct {
	byKey   bool // ranges of the key itself
	types   []key.Type
	numbers map[string]uint16
	names   []string // by number
}

func newCodec(strategy Strategy, types []key.Type, shards []*Shard) *codec {
	c := &codec{byKey: strategy == ByRange, types: types, numbers: make(map[string]uint16, len(shards)), names: make([]string, len(shards))}
	for number, s := range shards {
		if s != nil {
			c.numbers[s.Name()] = uint16(number)
			c.names[number] = s.Name()
		}
	}
	return c
}

// rangeMix makes the digests of ranges; any odd number with its bits well spread does.
const rangeMix = 0x9e3779b97f4a7c15

func (c *codec) rangeCutting() cutting[rangeEntry] {
	return cutting[rangeEntry]{
		every: 512,
		digest: func(e rangeEntry) uint64 {
			if e.key != "" {
				return xxh3.HashString(e.key)
			}
			mixed := e.hash * rangeMix
			return mixed ^ mixed>>32
		},
		size:   func(e rangeEntry) int { return 64 + c.textSize(e.key) + e.marks.size() },
		encode: func(entries []rangeEntry) []byte { return encodeList(c.rangeSpecs(entries)) },
	}
}

func (c *codec) pinCutting() cutting[pinEntry] {
	return cutting[pinEntry]{
		every:  512,
		digest: func(e pinEntry) uint64 { return e.hash }, // its lower bits; the upper ones sort
		hash:   func(e pinEntry) uint64 { return e.hash },
		size:   func(e pinEntry) int { return 40 + c.textSize(e.key) + e.marks.size() },
		encode: func(entries []pinEntry) []byte { return encodeList(c.pinSpecs(entries)) },
	}
}

// textSize is about what an encoded key takes in JSON: bytea is printed in hexadecimal, and text has its quotes and control
// characters escaped.
func (c *codec) textSize(encoded string) int {
	escaped := 0
	for i := range len(encoded) {
		if b := encoded[i]; b < ' ' || b == '"' || b == '\\' || b == '<' || b == '>' || b == '&' {
			escaped++
		}
	}
	size := len(encoded) + 5*escaped
	if !slices.Contains(c.types, key.Text) && !slices.Contains(c.types, key.Varchar) {
		size = 2 * len(encoded)
	}
	return size + 8*len(c.types)
}

// size is about what the marks take in JSON.
func (m *marks) size() int {
	if m == nil {
		return 0
	}
	return 32 + 64*len(m.copies)
}

func (c *codec) rangeSpecs(entries []rangeEntry) []RangeSpec {
	specs := make([]RangeSpec, len(entries))
	for i, e := range entries {
		specs[i] = RangeSpec{From: c.from(e), Shard: c.names[e.owner]}
		specs[i].Copies, specs[i].Held = c.marksSpec(e.marks)
	}
	return specs
}

// from prints where a range begins.
func (c *codec) from(e rangeEntry) Point {
	if c.byKey {
		return c.mustTexts(e.key)
	}
	return formatHash(e.hash)
}

func (c *codec) pinSpecs(entries []pinEntry) []PinSpec {
	specs := make([]PinSpec, len(entries))
	for i, e := range entries {
		specs[i] = PinSpec{Key: c.mustTexts(e.key), Shard: c.names[e.owner]}
		specs[i].Copies, specs[i].Held = c.marksSpec(e.marks)
	}
	return specs
}

// mustTexts prints an encoding that this package made.
func (c *codec) mustTexts(encoded string) Point {
	point, err := texts(c.types, encoded)
	if err != nil {
		panic("topology: " + err.Error())
	}
	return point
}

func (c *codec) marksSpec(m *marks) (copies []CopySpec, held bool) {
	if m == nil {
		return nil, false
	}
	for _, mark := range m.copies {
		copies = append(copies, CopySpec{Shard: c.names[mark.shard], State: mark.state})
	}
	return copies, m.held
}

func (c *codec) rangeEntries(specs []RangeSpec) ([]rangeEntry, error) {
	entries := make([]rangeEntry, len(specs))
	for i, spec := range specs {
		var err error
		if entries[i], err = c.bound(spec.From); err == nil {
			entries[i].holding, err = c.holding(spec.Shard, spec.Copies, spec.Held)
		}
		if err != nil {
			return nil, fmt.Errorf("range from %s: %w", spec.From, err)
		}
	}
	return entries, c.checkEnds(specs, entries)
}

// bound is where a range begins that begins at a point.
func (c *codec) bound(p Point) (e rangeEntry, err error) {
	if c.byKey {
		e.key, err = encodePoint(c.types, p)
	} else {
		e.hash, err = parseHash(p)
	}
	return e, err
}

// divide has a range begin at a point, and returns which one that is.
func (c *codec) divide(entries []rangeEntry, p Point) ([]rangeEntry, int, error) {
	first, err := c.bound(p)
	if err != nil {
		return nil, 0, err
	}
	at, begins := slices.BinarySearchFunc(entries, first, rangeEntry.compare)
	if !begins {
		first.holding = entries[at-1].holding // the first of all begins at the beginning
		entries = slices.Insert(entries, at, first)
	}
	return entries, at, nil
}

// give gives what lies between two points to a shard.
func (c *codec) give(entries []rangeEntry, part RangeSpec) ([]rangeEntry, error) {
	holding, err := c.holding(part.Shard, part.Copies, part.Held)
	if err != nil {
		return nil, fmt.Errorf("range from %s: %w", part.From, err)
	}
	entries, first, err := c.divide(entries, part.From)
	if err != nil {
		return nil, fmt.Errorf("range from %s: %w", part.From, err)
	}
	end := len(entries)
	if len(part.To) > 0 {
		if entries, end, err = c.divide(entries, part.To); err != nil {
			return nil, fmt.Errorf("range from %s to %s: %w", part.From, part.To, err)
		}
		if end <= first {
			return nil, fmt.Errorf("the range from %s to %s has nothing in it", part.From, part.To)
		}
	}
	for i := first; i < end; i++ {
		entries[i].holding = holding
	}
	return entries, nil
}

// checkEnds compares where ranges say that they end with where the next ones begin.
func (c *codec) checkEnds(specs []RangeSpec, entries []rangeEntry) error {
	for i, spec := range specs {
		if len(spec.To) == 0 {
			continue
		}
		if i+1 == len(specs) {
			return fmt.Errorf("gap: the last range, from %s, ends at %s, and nothing follows", spec.From, spec.To)
		}
		end, err := c.bound(spec.To)
		if err != nil {
			return fmt.Errorf("range from %s to %s: %w", spec.From, spec.To, err)
		}
		if end.compare(entries[i+1]) != 0 {
			return fmt.Errorf("gap or overlap: the range from %s ends at %s, but the next one begins at %s", spec.From, spec.To, specs[i+1].From)
		}
	}
	return nil
}

// pinEntries returns the pins sorted as they are kept. No key may be there twice.
func (c *codec) pinEntries(specs []PinSpec) ([]pinEntry, error) {
	entries := make([]pinEntry, len(specs))
	for i, spec := range specs {
		encoded, err := c.encodeKey(spec.Key)
		if err == nil {
			entries[i] = pinEntry{hash: xxh3.HashString(encoded), key: encoded}
			entries[i].holding, err = c.holding(spec.Shard, spec.Copies, spec.Held)
		}
		if err != nil {
			return nil, fmt.Errorf("pin of key %s: %w", spec.Key, err)
		}
	}
	slices.SortFunc(entries, pinEntry.compare)
	for i := 1; i < len(entries); i++ {
		if entries[i].compare(entries[i-1]) == 0 {
			return nil, fmt.Errorf("key %s is pinned twice", c.mustTexts(entries[i].key))
		}
	}
	return entries, nil
}

func (c *codec) encodeKey(point Point) (string, error) {
	if len(point) != len(c.types) {
		return "", fmt.Errorf("it has %d values, a key of this keyspace has %d", len(point), len(c.types))
	}
	return encodePoint(c.types, point)
}

func (c *codec) holding(shard string, copies []CopySpec, held bool) (holding, error) {
	owner, known := c.numbers[shard]
	if !known {
		return holding{}, fmt.Errorf("shard %q does not exist", shard)
	}
	h := holding{owner: owner}
	if len(copies) == 0 && !held {
		return h, nil
	}
	h.marks = &marks{held: held}
	seen := map[uint16]bool{owner: true}
	for _, spec := range copies {
		number, known := c.numbers[spec.Shard]
		switch {
		case !known:
			return holding{}, fmt.Errorf("shard %q, which has a copy, does not exist", spec.Shard)
		case !slices.Contains(copyStates, spec.State):
			return holding{}, fmt.Errorf("a copy is %q, %q, %q or %q, not %q", Incoming, Opening, Closing, Leaving, spec.State)
		case spec.State == Opening && !held:
			return holding{}, fmt.Errorf("shard %q has a copy that is opening, so it must be held", spec.Shard)
		case spec.State == Opening && slices.ContainsFunc(h.marks.copies, func(c copyMark) bool { return c.state == Opening }):
			return holding{}, errors.New("two copies cannot both be opening")
		case seen[number]:
			return holding{}, fmt.Errorf("shard %q owns it or has a copy already", spec.Shard)
		}
		seen[number] = true
		h.marks.copies = append(h.marks.copies, copyMark{number, spec.State})
	}
	return h, nil
}
