package topology

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/placement/key"
)

// Map is the shard map: all shards, keyspaces and tables at one version.
type Map struct {
	schema, readableBy int
	cluster            string
	version            uint64
	lastNumber         int
	shards             []*Shard // by number; nil where a shard was removed
	byName             map[string]*Shard
	keyspaces          map[string]*Keyspace
	tables             map[TableName]*Table
	holdsTables        bool
	bySchema           []*Keyspace // the keyspaces of schemas
	shardPieces        []*piece[ShardSpec]
	tablePieces        []*piece[TableSpec]
}

// Limits of a map. They are far above what is sensible and keep bad input from eating all memory.
const (
	maxKeyspaces = 10_000
	maxTables    = 1_000_000
	maxRanges    = 1_000_000
	maxPins      = 20_000_000
	// MaxVersion leaves room for all changes that will ever be made, and fits a bigint of PostgreSQL.
	MaxVersion = 1 << 62
)

var clusterForm = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// New returns the first version of a cluster's map, which has nothing in it. The cluster's identifier is a UUID: shards
// remember it, so that no shard ends up in two clusters.
func New(cluster string) (*Map, error) {
	return build(Document{Schema: Schema, ReadableBy: oldestReader, Cluster: cluster, Version: 1})
}

// Cluster returns the cluster's identifier.
func (m *Map) Cluster() string { return m.cluster }

// Version returns the version; it only ever grows.
func (m *Map) Version() uint64 { return m.version }

// Shard returns the shard of that name, nil if there is none.
func (m *Map) Shard(name string) *Shard { return m.byName[name] }

// ShardByNumber returns the shard of that number, nil if there is none.
func (m *Map) ShardByNumber(number int) *Shard {
	if number < 0 || number >= len(m.shards) {
		return nil
	}
	return m.shards[number]
}

// Shards iterates over the shards in the order of their numbers.
func (m *Map) Shards() iter.Seq[*Shard] {
	return func(yield func(*Shard) bool) {
		for _, s := range m.shards {
			if s != nil && !yield(s) {
				return
			}
		}
	}
}

// Home returns the shard that has what belongs to no other: the catalogue that tools see, and tables that nobody declared.
// It is the one with the lowest number, nil in a map without shards.
func (m *Map) Home() *Shard {
	for s := range m.Shards() {
		return s
	}
	return nil
}

// LastShardNumber returns the last number that was given to a shard, even if that one is gone.
func (m *Map) LastShardNumber() int { return m.lastNumber }

// Empty says whether there is nothing in the map, as in the first one of a cluster.
func (m *Map) Empty() bool { return len(m.byName) == 0 && len(m.keyspaces) == 0 && len(m.tables) == 0 }

// ShardCount returns how many shards there are.
func (m *Map) ShardCount() int { return len(m.byName) }

// Keyspace returns the keyspace of that name, nil if there is none.
func (m *Map) Keyspace(name string) *Keyspace { return m.keyspaces[name] }

// Keyspaces returns the keyspaces in the order of their names.
func (m *Map) Keyspaces() []*Keyspace {
	return slices.SortedFunc(maps.Values(m.keyspaces), func(a, b *Keyspace) int { return cmp.Compare(a.Name(), b.Name()) })
}

// Table returns the table of that name, nil if the map does not know it.
func (m *Map) Table(schema, name string) *Table { return m.tables[TableName{schema, name}] }

// Tables returns the tables in the order of their names.
func (m *Map) Tables() []*Table {
	return slices.SortedFunc(maps.Values(m.tables), func(a, b *Table) int {
		return cmp.Or(cmp.Compare(a.name.Schema, b.name.Schema), cmp.Compare(a.name.Name, b.name.Name))
	})
}

// TableCount returns how many tables there are.
func (m *Map) TableCount() int { return len(m.tables) }

// HasSharded says whether there are keyspaces: without one no table is sharded.
func (m *Map) HasSharded() bool { return len(m.keyspaces) > 0 }

// HoldsTables says whether a single table is held.
func (m *Map) HoldsTables() bool { return m.holdsTables }

// IsMoving says whether there are copies of anything.
func (m *Map) IsMoving() bool {
	for _, k := range m.keyspaces {
		if k.IsMoving() {
			return true
		}
	}
	return false
}

// LocateSchema returns where a schema lives that a keyspace of schemas has, and which keyspace that is; nil if none has it.
func (m *Map) LocateSchema(schema string) (Place, *Keyspace) {
	for _, k := range m.bySchema {
		if place, found := k.locatePinned(schema); found {
			return place, k
		}
	}
	return Place{}, nil
}

// locatePinned looks for a pin of a key that is one text.
func (k *Keyspace) locatePinned(text string) (Place, bool) {
	var buffer [maxIdentifier + 1]byte
	pin := k.pins.find(key.AppendText(buffer[:0], text))
	if pin == nil {
		return Place{}, false
	}
	return Place{Shard: k.shards[pin.owner], Held: pin.isHeld(), Pinned: true}, true
}

// Holdings is how much a shard has.
type Holdings struct{ Ranges, Pins, Tables, Copies int }

// Empty says whether the shard has nothing that would be lost with it.
func (h Holdings) Empty() bool { return h == Holdings{} }

// Holdings returns what each shard has, by number: the ranges and pins it owns, the single tables, and the copies of what
// others own.
func (m *Map) Holdings() []Holdings {
	held := make([]Holdings, len(m.shards))
	for _, k := range m.keyspaces {
		k.count(held)
	}
	for _, t := range m.tables {
		if t.shard != nil {
			held[t.shard.Number()].Tables++
		}
	}
	return held
}

func (k *Keyspace) count(held []Holdings) {
	copies := func(h holding) {
		if h.marks != nil {
			for _, c := range h.marks.copies {
				held[c.shard].Copies++
			}
		}
	}
	for _, p := range k.ranges {
		for _, e := range p.entries {
			held[e.owner].Ranges++
			copies(e.holding)
		}
	}
	for _, p := range k.pins.pieces {
		for _, e := range p.entries {
			held[e.owner].Pins++
			copies(e.holding)
		}
	}
}

// Alike says whether two maps have the same tables and keyspaces, with the same in them.
func (m *Map) Alike(other *Map) bool {
	if len(m.keyspaces) != len(other.keyspaces) || !slices.Equal(identifiers(m.tablePieces), identifiers(other.tablePieces)) {
		return false
	}
	for name, k := range m.keyspaces {
		if of := other.keyspaces[name]; of == nil || !k.Equals(of) {
			return false
		}
	}
	return true
}

// setShards puts the shards into the map, checking that they can stand beside each other.
func (m *Map) setShards(specs []ShardSpec) error {
	m.shards = make([]*Shard, m.lastNumber+1)
	m.byName = make(map[string]*Shard, len(specs))
	databases := map[string]string{}
	for _, spec := range specs {
		s, err := newShard(spec)
		if err != nil {
			return err
		}
		if m.byName[s.Name()] != nil {
			return fmt.Errorf("shard %q is there twice", s.Name())
		}
		if s.Number() > m.lastNumber {
			return fmt.Errorf("shard %q has number %d, but the last number given out is %d", s.Name(), s.Number(), m.lastNumber)
		}
		if other := m.shards[s.Number()]; other != nil {
			return fmt.Errorf("shards %q and %q have the same number %d", other.Name(), s.Name(), s.Number())
		}
		for _, instance := range append([]InstanceSpec{spec.Primary}, spec.Replicas...) {
			database := instance.Address + "/" + spec.Database
			if other, taken := databases[database]; taken {
				return fmt.Errorf("shards %q and %q are the same database %s", other, s.Name(), database)
			}
			databases[database] = s.Name()
		}
		m.byName[s.Name()], m.shards[s.Number()] = s, s
	}
	return nil
}

// newKeyspace checks a keyspace's head and returns it without ranges.
func newKeyspace(head KeyspaceHead, shards []*Shard) (*Keyspace, error) {
	if err := checkName("keyspace", head.Name); err != nil {
		return nil, err
	}
	head.Key, head.Assignment.Seats = slices.Clone(head.Key), slices.Clone(head.Assignment.Seats)
	k := &Keyspace{head: head, shards: shards}
	if err := k.checkHead(); err != nil {
		return nil, fmt.Errorf("keyspace %q: %w", head.Name, err)
	}
	return k, nil
}

func (k *Keyspace) checkHead() error {
	switch k.head.Strategy {
	case ByHash, ByRange:
		if len(k.head.Key) == 0 || len(k.head.Key) > MaxKeyColumns {
			return fmt.Errorf("a key has 1 to %d columns, not %d", MaxKeyColumns, len(k.head.Key))
		}
	case BySchema:
		if len(k.head.Key) > 0 {
			return errors.New("the key of a keyspace of schemas is the schema's name: it has no key types of its own")
		}
		k.types = []key.Type{key.Text}
	default:
		return fmt.Errorf("strategy %q is none of hash, range, schema", k.head.Strategy)
	}
	for i, name := range k.head.Key {
		t, err := key.ParseType(name)
		if err != nil {
			return err
		}
		k.types = append(k.types, t)
		k.head.Key[i] = t.String()
	}
	return k.checkSeed()
}

func (k *Keyspace) checkSeed() error {
	if k.head.Strategy == ByRange {
		if k.head.Seed != "" {
			return errors.New("a keyspace by range does not hash, so it has no seed")
		}
		return nil
	}
	seed, err := strconv.ParseInt(k.head.Seed, 10, 64)
	if err != nil {
		return fmt.Errorf("seed %q is not a signed 64-bit number", k.head.Seed)
	}
	k.seed = uint64(seed)
	return nil
}

// setRanges puts the ranges into the keyspace, checking that they cover everything exactly once.
func (k *Keyspace) setRanges(pieces []*piece[rangeEntry]) error {
	entries := join(pieces)
	if len(entries) == 0 {
		return fmt.Errorf("keyspace %q: no ranges: the whole space is a gap", k.Name())
	}
	if len(entries) > maxRanges {
		return fmt.Errorf("keyspace %q: %d ranges are more than %d", k.Name(), len(entries), maxRanges)
	}
	if first := entries[0]; first.hash != 0 || first.key != "" {
		return fmt.Errorf("keyspace %q: the first range must begin at the beginning, so it has no from", k.Name())
	}
	for i := 1; i < len(entries); i++ {
		if entries[i-1].compare(entries[i]) >= 0 {
			return fmt.Errorf("keyspace %q: ranges %d and %d are not in order", k.Name(), i, i+1)
		}
	}
	k.ranges = pieces
	if err := k.place(entries); err != nil {
		return fmt.Errorf("keyspace %q: %w", k.Name(), err)
	}
	return nil
}

// place builds what look-ups use.
func (k *Keyspace) place(entries []rangeEntry) error {
	names := shardNames(k.shards)
	var err error
	if k.head.Strategy == ByRange {
		ranges := make([]placement.OwnedKeyRange, len(entries))
		for i, e := range entries {
			ranges[i] = placement.OwnedKeyRange{Range: placement.KeyRange{Lo: e.key}, Owner: names[e.owner]}
			if i > 0 {
				ranges[i-1].Hi = e.key
			}
		}
		k.keyed, err = placement.NewKeyMap(names, ranges)
	} else {
		ranges := make([]placement.OwnedHashRange, len(entries))
		for i, e := range entries {
			ranges[i] = placement.OwnedHashRange{Range: placement.HashRange{Lo: e.hash}, Owner: names[e.owner]}
			if i > 0 {
				ranges[i-1].Hi = e.hash
			}
		}
		k.hashed, err = placement.NewMap(names, ranges)
	}
	return err
}

// shardNames returns the names by number, empty where there is no shard.
func shardNames(shards []*Shard) []string {
	names := make([]string, len(shards))
	for number, s := range shards {
		if s != nil {
			names[number] = s.Name()
		}
	}
	return names
}

// mark notes what is held, which shards have copies, and of what.
func (k *Keyspace) mark() {
	k.held, k.holds, k.copied, k.lent, k.closing = nil, false, nil, nil, nil
	note := func(h holding) {
		k.holds = k.holds || h.marks.held
		for _, c := range h.marks.copies {
			if k.copied == nil {
				k.copied, k.lent = map[int]bool{}, map[int]bool{}
			}
			k.copied[int(c.shard)], k.lent[int(h.owner)] = true, true
			if c.state == Closing {
				if k.closing == nil {
					k.closing = map[int]bool{}
				}
				k.closing[int(c.shard)] = true
			}
		}
	}
	i := 0
	for _, p := range k.ranges {
		for _, e := range p.entries {
			if e.marks != nil {
				note(e.holding)
				if e.marks.held {
					k.held = append(k.held, k.rangeOf(i, e))
				}
			}
			i++
		}
	}
	for _, p := range k.pins.pieces {
		for _, e := range p.entries {
			if e.marks != nil {
				note(e.holding)
			}
		}
	}
}

// setPins puts the pins into the keyspace.
func (k *Keyspace) setPins(t pinTable) error {
	if t.count > maxPins {
		return fmt.Errorf("keyspace %q: %d pins are more than %d", k.Name(), t.count, maxPins)
	}
	k.pins, k.pinned = t, new(pinsByHash)
	return nil
}

// check looks at what no part can see alone. Every map that is made passes here last.
func (m *Map) check() error {
	switch {
	case !clusterForm.MatchString(m.cluster):
		return fmt.Errorf("cluster %q is not a UUID in lower case", m.cluster)
	case m.version == 0 || m.version > MaxVersion:
		return fmt.Errorf("version %d is not between 1 and %d", m.version, uint64(MaxVersion))
	case len(m.keyspaces) > maxKeyspaces:
		return fmt.Errorf("%d keyspaces are more than %d", len(m.keyspaces), maxKeyspaces)
	case len(m.tables) > maxTables:
		return fmt.Errorf("%d tables are more than %d", len(m.tables), maxTables)
	}
	for _, s := range m.byName {
		if s.MinimumVersion() > m.version {
			return fmt.Errorf("shard %q asks for map version %d, but this is only %d", s.Name(), s.MinimumVersion(), m.version)
		}
	}
	for _, k := range m.keyspaces {
		if err := k.checkOwners(); err != nil {
			return err
		}
	}
	return m.linkSchemas()
}

// checkOwners makes sure that every shard named by a range or pin is there.
func (k *Keyspace) checkOwners() error {
	there := func(h holding) bool {
		if int(h.owner) >= len(k.shards) || k.shards[h.owner] == nil {
			return false
		}
		return h.marks == nil || !slices.ContainsFunc(h.marks.copies, func(c copyMark) bool {
			return int(c.shard) >= len(k.shards) || k.shards[c.shard] == nil
		})
	}
	for _, p := range k.ranges {
		for i := range p.entries {
			if !there(p.entries[i].holding) {
				return fmt.Errorf("keyspace %q: a shard that has a range does not exist", k.Name())
			}
		}
	}
	for _, p := range k.pins.pieces {
		for i := range p.entries {
			if !there(p.entries[i].holding) {
				return fmt.Errorf("keyspace %q: a shard that has a pinned key does not exist", k.Name())
			}
		}
	}
	return nil
}

// linkSchemas collects the keyspaces of schemas, no schema of which may be in two, nor hold a table that is listed by
// itself, unless that is where its schema is: so tables are listed while their schema moves.
func (m *Map) linkSchemas() error {
	m.bySchema = nil
	for _, k := range m.Keyspaces() {
		if k.Strategy() != BySchema {
			continue
		}
		for pin := range k.Pins() {
			schema, err := k.Texts(pin.Encoded)
			if err != nil {
				return err
			}
			if _, other := m.LocateSchema(schema[0]); other != nil {
				return fmt.Errorf("schema %s is in two keyspaces, %q and %q", quoted(schema[0]), other.Name(), k.Name())
			}
		}
		m.bySchema = append(m.bySchema, k)
	}
	if len(m.bySchema) == 0 {
		return nil
	}
	for name, t := range m.tables {
		if place, k := m.LocateSchema(name.Schema); k != nil && (t.Kind() != Single || t.Shard() != place.Shard) {
			return fmt.Errorf("table %s is in a schema that keyspace %q places as a whole, on shard %q", name, k.Name(), place.Shard.Name())
		}
	}
	return nil
}
