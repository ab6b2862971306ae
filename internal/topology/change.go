package topology

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/zeebo/xxh3"
)

// Change is one step from a map to the next; [Map.Next] takes them.
type Change func(*draft) error

// Next returns the next version of the map, with all of the changes or, if one of them is refused, none.
func (m *Map) Next(changes ...Change) (*Map, error) {
	if m.schema > Schema {
		return nil, &NewerSchemaError{Schema: m.schema, ReadableBy: m.readableBy, Writing: true}
	}
	d := newDraft(m)
	for _, change := range changes {
		if err := change(d); err != nil {
			return nil, err
		}
	}
	return d.finish()
}

// draft is a map while it is being changed: the one thing here that is not immutable, and never seen from outside.
type draft struct {
	base       *Map
	version    uint64
	lastNumber int
	specs      []ShardSpec
	keyspaces  map[string]*Keyspace
	tables     map[TableName]TableSpec
}

func newDraft(m *Map) *draft {
	d := &draft{
		base: m, version: m.version + 1, lastNumber: m.lastNumber, specs: m.shardSpecs(),
		keyspaces: maps.Clone(m.keyspaces), tables: make(map[TableName]TableSpec, len(m.tables)),
	}
	for name, t := range m.tables {
		d.tables[name] = t.Spec()
	}
	return d
}

func (d *draft) finish() (*Map, error) {
	m := &Map{
		schema: Schema, readableBy: oldestReader, cluster: d.base.cluster, version: d.version, lastNumber: d.lastNumber,
		keyspaces: make(map[string]*Keyspace, len(d.keyspaces)),
	}
	if err := m.setShards(d.specs); err != nil {
		return nil, err
	}
	for name, k := range d.keyspaces {
		linked := *k
		linked.shards = m.shards
		linked.mark()
		m.keyspaces[name] = &linked
	}
	if err := m.setTables(slices.Collect(maps.Values(d.tables))); err != nil {
		return nil, err
	}
	if err := m.finish(); err != nil {
		return nil, err
	}
	return m, nil
}

// shards returns the shards of the draft by number.
func (d *draft) shards() []*Shard {
	shards := make([]*Shard, d.lastNumber+1)
	for _, spec := range d.specs {
		shards[spec.Number] = &Shard{spec}
	}
	return shards
}

// find returns where in the draft the shard is.
func (d *draft) find(name string) (int, error) {
	at := slices.IndexFunc(d.specs, func(s ShardSpec) bool { return s.Name == name })
	if at < 0 {
		return 0, &NotFoundError{"shard", name}
	}
	return at, nil
}

// NotFoundError says that the map does not have something.
type NotFoundError struct{ Kind, Name string }

func (e *NotFoundError) Error() string { return fmt.Sprintf("%s %q does not exist", e.Kind, e.Name) }

// ExistsError says that the map has something already.
type ExistsError struct{ Kind, Name string }

func (e *ExistsError) Error() string { return fmt.Sprintf("%s %q exists already", e.Kind, e.Name) }

// InUseError says that something cannot go because something else needs it.
type InUseError struct {
	Kind, Name string
	// By says what needs it, for people.
	By string
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("%s %q cannot be removed: %s", e.Kind, e.Name, e.By)
}

// AddShard adds a shard, with the next number.
func AddShard(spec ShardSpec) Change {
	return func(d *draft) error {
		if _, err := d.find(spec.Name); err == nil {
			return &ExistsError{"shard", spec.Name}
		}
		if spec.Number != 0 {
			return fmt.Errorf("shard %q: numbers are given, not chosen", spec.Name)
		}
		if d.lastNumber == MaxShardNumber {
			return fmt.Errorf("shard %q: all %d numbers have been given out", spec.Name, MaxShardNumber)
		}
		d.lastNumber++
		numbered := spec // the change may be made again, on another map
		numbered.Number = d.lastNumber
		s, err := newShard(numbered)
		if err != nil {
			return err
		}
		d.specs = append(d.specs, s.spec)
		return nil
	}
}

// UpdateShard changes a shard's description; its name and number stay.
func UpdateShard(name string, update func(*ShardSpec)) Change {
	return func(d *draft) error {
		at, err := d.find(name)
		if err != nil {
			return err
		}
		spec := d.specs[at].clone()
		number := spec.Number
		update(&spec)
		if spec.Name != name || spec.Number != number {
			return fmt.Errorf("shard %q: its name and number cannot be changed", name)
		}
		if spec.MinimumVersion < d.specs[at].MinimumVersion {
			return fmt.Errorf("shard %q: its minimum version cannot go back", name)
		}
		d.specs[at] = spec
		return nil
	}
}

// RemoveShard removes a shard that has nothing.
func RemoveShard(name string) Change {
	return func(d *draft) error {
		at, err := d.find(name)
		if err != nil {
			return err
		}
		if err := d.unused(name, d.specs[at].Number); err != nil {
			return err
		}
		d.specs = slices.Delete(d.specs, at, at+1)
		return nil
	}
}

func (d *draft) unused(name string, number int) error {
	held := make([]Holdings, d.lastNumber+1)
	for _, k := range d.keyspaces {
		k.count(held)
	}
	for _, t := range d.tables {
		if t.Shard == name {
			held[number].Tables++
		}
	}
	if has := held[number]; !has.Empty() {
		return &InUseError{"shard", name, fmt.Sprintf("it has %d ranges, %d pinned keys, %d single tables and %d copies: move them to other shards first", has.Ranges, has.Pins, has.Tables, has.Copies)}
	}
	return nil
}

// CreateKeyspace adds a keyspace, which must have its ranges: [Map.Assign] or [Map.Split] make them.
func CreateKeyspace(spec KeyspaceSpec) Change {
	return func(d *draft) error {
		if d.keyspaces[spec.Name] != nil {
			return &ExistsError{"keyspace", spec.Name}
		}
		k, err := buildKeyspace(spec, d.shards())
		if err != nil {
			return err
		}
		d.keyspaces[spec.Name] = k
		return nil
	}
}

// DropKeyspace removes a keyspace that no table uses and that has no schemas.
func DropKeyspace(name string) Change {
	return func(d *draft) error {
		k, err := d.keyspace(name)
		if err != nil {
			return err
		}
		for table, spec := range d.tables {
			if spec.Keyspace == name {
				return &InUseError{"keyspace", name, "table " + table.String() + " is in it"}
			}
		}
		if k.Strategy() == BySchema && k.PinCount() > 0 {
			return &InUseError{"keyspace", name, fmt.Sprintf("it has %d schemas", k.PinCount())}
		}
		delete(d.keyspaces, name)
		return nil
	}
}

func (d *draft) keyspace(name string) (*Keyspace, error) {
	if k := d.keyspaces[name]; k != nil {
		return k, nil
	}
	return nil, &NotFoundError{"keyspace", name}
}

// ReplaceRanges gives a keyspace other ranges and notes which algorithm made them.
func ReplaceRanges(name string, ranges []RangeSpec, by Assignment) Change {
	return func(d *draft) error {
		if err := changeRanges(name, func(c *codec, _ []rangeEntry) ([]rangeEntry, error) { return c.rangeEntries(ranges) })(d); err != nil {
			return err
		}
		d.keyspaces[name].head.Assignment = by // of a keyspace that is nobody else's yet
		return nil
	}
}

// DivideRanges has a range begin at each of these points; owners stay.
func DivideRanges(name string, at ...Point) Change {
	return changeRanges(name, func(c *codec, entries []rangeEntry) (_ []rangeEntry, err error) {
		for _, p := range at {
			if entries, _, err = c.divide(entries, p); err != nil {
				return nil, err
			}
		}
		return entries, nil
	})
}

// GiveRanges gives what lies between points to shards, whatever ranges there are: they are divided where these begin and end, and stay as they are in between.
func GiveRanges(name string, parts ...RangeSpec) Change {
	return changeRanges(name, func(c *codec, entries []rangeEntry) (_ []rangeEntry, err error) {
		for _, part := range parts {
			if entries, err = c.give(entries, part); err != nil {
				return nil, err
			}
		}
		return entries, nil
	})
}

func changeRanges(name string, change func(*codec, []rangeEntry) ([]rangeEntry, error)) Change {
	return func(d *draft) error {
		k, err := d.keyspace(name)
		if err != nil {
			return err
		}
		c := newCodec(k.head.Strategy, k.types, d.shards())
		entries, err := change(c, join(k.ranges))
		if err != nil {
			return fmt.Errorf("keyspace %q: %w", name, err)
		}
		next := *k
		next.shards = d.shards()
		if err := next.setRanges(c.rangeCutting().cut(entries, k.ranges, rangeEntry.same)); err != nil {
			return err
		}
		d.keyspaces[name] = &next
		return nil
	}
}

// SetPins pins keys, or changes their pins.
func SetPins(name string, pins ...PinSpec) Change {
	return func(d *draft) error {
		return d.changePins(name, func(c *codec) (add, remove []pinEntry, err error) {
			add, err = c.pinEntries(pins)
			return add, nil, err
		})
	}
}

// RemovePins lets keys go where their range says. A key that is not pinned is an error.
func RemovePins(name string, keys ...Point) Change {
	return func(d *draft) error {
		return d.changePins(name, func(c *codec) (add, remove []pinEntry, err error) {
			for _, point := range keys {
				encoded, err := c.encodeKey(point)
				if err != nil {
					return nil, nil, fmt.Errorf("key %s: %w", point, err)
				}
				if d.keyspaces[name].pins.find([]byte(encoded)) == nil {
					return nil, nil, &NotFoundError{"pin", point.String()}
				}
				remove = append(remove, pinEntry{hash: xxh3.HashString(encoded), key: encoded})
			}
			slices.SortFunc(remove, pinEntry.compare)
			return nil, remove, nil
		})
	}
}

func (d *draft) changePins(name string, decide func(*codec) (add, remove []pinEntry, err error)) error {
	k, err := d.keyspace(name)
	if err != nil {
		return err
	}
	c := newCodec(k.head.Strategy, k.types, d.shards())
	add, remove, err := decide(c)
	if err != nil {
		return fmt.Errorf("keyspace %q: %w", name, err)
	}
	next := *k
	if err := next.setPins(k.pins.with(c.pinCutting(), add, remove)); err != nil {
		return err
	}
	d.keyspaces[name] = &next
	return nil
}

// SetTable adds a table or changes what it is.
func SetTable(spec TableSpec) Change {
	return func(d *draft) error {
		name, err := ParseTableName(spec.Name)
		if err != nil {
			return err
		}
		spec.Name = name.String()
		d.tables[name] = spec
		return nil
	}
}

// DropTable takes a table out of the map.
func DropTable(table string) Change {
	return func(d *draft) error {
		name, err := ParseTableName(table)
		if err != nil {
			return err
		}
		if _, there := d.tables[name]; !there {
			return &NotFoundError{"table", name.String()}
		}
		delete(d.tables, name)
		return nil
	}
}

// RaiseLastShardNumber makes the last number that counts as given to a shard at least this one, so that a map that comes from
// a backup gives no number twice.
func RaiseLastShardNumber(least int) Change {
	return func(d *draft) error {
		if least > MaxShardNumber {
			return fmt.Errorf("last_shard_number %d is not between 0 and %d", least, MaxShardNumber)
		}
		d.lastNumber = max(d.lastNumber, least)
		return nil
	}
}

// RaiseVersion makes the new map's version at least this one: a map that comes from a backup must be newer than any that
// a router or a shard has seen.
func RaiseVersion(least uint64) Change {
	return func(d *draft) error {
		if least == 0 {
			return errors.New("a map's version is at least 1")
		}
		d.version = max(d.version, least)
		return nil
	}
}
