package topology

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"
)

// Manifest is the head of a stored map: all that is small, and the names of the pieces that hold the rest.
type Manifest struct{ form manifestForm }

type manifestForm struct {
	Schema          int                `json:"schema"`
	ReadableBy      int                `json:"readable_by"`
	Cluster         string             `json:"cluster"`
	Version         uint64             `json:"version"`
	LastShardNumber int                `json:"last_shard_number"`
	Shards          []PieceID          `json:"shards"`
	Tables          []PieceID          `json:"tables"`
	Keyspaces       []keyspaceManifest `json:"keyspaces"`
}

type keyspaceManifest struct {
	KeyspaceHead
	Ranges []PieceID `json:"ranges"`
	Pins   []PieceID `json:"pins,omitempty"`
}

// Manifest returns the stored form of the map's head.
func (m *Map) Manifest() []byte {
	form := manifestForm{
		Schema: m.schema, ReadableBy: m.readableBy, Cluster: m.cluster, Version: m.version, LastShardNumber: m.lastNumber,
		Shards: identifiers(m.shardPieces), Tables: identifiers(m.tablePieces),
	}
	for _, k := range m.Keyspaces() {
		form.Keyspaces = append(form.Keyspaces, keyspaceManifest{k.head, identifiers(k.ranges), identifiers(k.pins.pieces)})
	}
	data, err := json.Marshal(form)
	if err != nil {
		panic("topology: " + err.Error()) // the form has no value that JSON cannot hold
	}
	return data
}

// Pieces lists all pieces of the map.
func (m *Map) Pieces() []Piece {
	var pieces []Piece
	pieces = stored(pieces, m.shardPieces, encodeList)
	pieces = stored(pieces, m.tablePieces, encodeList)
	for _, k := range m.Keyspaces() {
		c := newCodec(k.head.Strategy, k.types, k.shards)
		pieces = stored(pieces, k.ranges, c.rangeCutting().encode)
		pieces = stored(pieces, k.pins.pieces, c.pinCutting().encode)
	}
	return pieces
}

// ParseManifest reads a manifest.
func ParseManifest(data []byte) (*Manifest, error) {
	m := &Manifest{}
	if err := json.Unmarshal(data, &m.form); err != nil {
		return nil, fmt.Errorf("read the shard map's manifest: %w", err)
	}
	if err := checkSchema(m.form.Schema, m.form.ReadableBy); err != nil {
		return nil, err
	}
	return m, nil
}

// Version returns the version of the map.
func (m *Manifest) Version() uint64 { return m.form.Version }

// Pieces lists the names of the map's pieces.
func (m *Manifest) Pieces() []PieceID {
	var ids []PieceID
	ids = append(ids, m.form.Shards...)
	ids = append(ids, m.form.Tables...)
	for _, k := range m.form.Keyspaces {
		ids = append(ids, k.Ranges...)
		ids = append(ids, k.Pins...)
	}
	return ids
}

// Assemble builds the map. Pieces that previous has, which may be nil, are taken from it; fetch is asked for the others, all
// at once, each named once, and what it returns is checked against the names. In the rare case that the name of a shard
// came back with another number, previous is of no use and fetch is asked again, for everything.
func (m *Manifest) Assemble(previous *Map, fetch func(missing []PieceID) (map[PieceID][]byte, error)) (*Map, error) {
	a := &assembly{manifest: m}
	a.index(previous)
	if err := a.fetchMissing(fetch); err != nil {
		return nil, err
	}
	next, err := a.build()
	switch {
	case errors.Is(err, errRenumbered):
		return m.Assemble(nil, fetch)
	case err != nil:
		return nil, fmt.Errorf("shard map version %d: %w", m.Version(), err)
	default:
		return next, nil
	}
}

// assembly is a map being put together.
type assembly struct {
	manifest *Manifest
	previous *Map
	shards   map[PieceID]*piece[ShardSpec]
	tables   map[PieceID]*piece[TableSpec]
	// ranges and pins are by keyspace: the same text is another key where the key has another type.
	ranges  map[string]map[PieceID]*piece[rangeEntry]
	pins    map[string]map[PieceID]*piece[pinEntry]
	fetched map[PieceID][]byte
}

// index finds the pieces of the previous map by name. Ranges and pins are kept by shards' numbers, and their content names
// shards: they mean the same only while every shard that is in both maps has kept its number, which build checks.
func (a *assembly) index(previous *Map) {
	a.previous = previous
	a.shards, a.tables = map[PieceID]*piece[ShardSpec]{}, map[PieceID]*piece[TableSpec]{}
	a.ranges, a.pins = map[string]map[PieceID]*piece[rangeEntry]{}, map[string]map[PieceID]*piece[pinEntry]{}
	if previous == nil {
		return
	}
	byID(a.shards, previous.shardPieces)
	byID(a.tables, previous.tablePieces)
	for _, k := range a.manifest.form.Keyspaces {
		before := previous.keyspaces[k.Name]
		if before == nil || before.head.Strategy != k.Strategy || !slices.Equal(before.head.Key, k.Key) {
			continue
		}
		a.ranges[k.Name], a.pins[k.Name] = map[PieceID]*piece[rangeEntry]{}, map[PieceID]*piece[pinEntry]{}
		byID(a.ranges[k.Name], before.ranges)
		byID(a.pins[k.Name], before.pins.pieces)
	}
}

func byID[E any](dst map[PieceID]*piece[E], pieces []*piece[E]) {
	for _, p := range pieces {
		dst[p.id] = p
	}
}

func (a *assembly) fetchMissing(fetch func([]PieceID) (map[PieceID][]byte, error)) error {
	form := &a.manifest.form
	asked := map[PieceID]bool{}
	var missing []PieceID
	ask := func(ids []PieceID, have func(PieceID) bool) {
		for _, id := range ids {
			if !have(id) && !asked[id] {
				asked[id] = true
				missing = append(missing, id)
			}
		}
	}
	ask(form.Shards, func(id PieceID) bool { return a.shards[id] != nil })
	ask(form.Tables, func(id PieceID) bool { return a.tables[id] != nil })
	for _, k := range form.Keyspaces {
		ask(k.Ranges, func(id PieceID) bool { return a.ranges[k.Name][id] != nil })
		ask(k.Pins, func(id PieceID) bool { return a.pins[k.Name][id] != nil })
	}
	if len(missing) == 0 {
		return nil
	}
	fetched, err := fetch(missing)
	if err != nil {
		return err
	}
	for _, id := range missing {
		content, ok := fetched[id]
		if !ok {
			return fmt.Errorf("piece %s of the shard map is missing", id)
		}
		if identify(content) != id {
			return fmt.Errorf("piece %s of the shard map is damaged: its content does not match its name", id)
		}
	}
	a.fetched = fetched
	return nil
}

func (a *assembly) build() (*Map, error) {
	form := &a.manifest.form
	m := &Map{
		schema: form.Schema, readableBy: form.ReadableBy, cluster: form.Cluster, version: form.Version,
		lastNumber: form.LastShardNumber, keyspaces: make(map[string]*Keyspace, len(form.Keyspaces)),
	}
	if m.lastNumber < 0 || m.lastNumber > MaxShardNumber {
		return nil, fmt.Errorf("last_shard_number %d is not between 0 and %d", m.lastNumber, MaxShardNumber)
	}
	var err error
	if m.shardPieces, err = pieces(form.Shards, a.shards, a.fetched, shardCutting(), decodeList); err != nil {
		return nil, err
	}
	if err := m.setShards(join(m.shardPieces)); err != nil {
		return nil, err
	}
	if err := a.checkNumbers(m); err != nil {
		return nil, err
	}
	for _, k := range form.Keyspaces {
		if m.keyspaces[k.Name] != nil {
			return nil, fmt.Errorf("keyspace %q is there twice", k.Name)
		}
		if m.keyspaces[k.Name], err = a.keyspace(k, m.shards); err != nil {
			return nil, err
		}
	}
	if m.tablePieces, err = pieces(form.Tables, a.tables, a.fetched, tableCutting(), decodeList); err != nil {
		return nil, err
	}
	if err := m.setTables(join(m.tablePieces)); err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return m, nil
}

// errRenumbered asks for the map to be read without a previous one.
var errRenumbered = errors.New("a shard has another number than before")

// checkNumbers makes sure that the shards that are in both maps have the same numbers, else what is kept by number would
// silently change its owner.
func (a *assembly) checkNumbers(m *Map) error {
	if a.previous == nil {
		return nil
	}
	for s := range a.previous.Shards() {
		if now := m.Shard(s.Name()); now != nil && now.Number() != s.Number() {
			return errRenumbered
		}
	}
	return nil
}

func (a *assembly) keyspace(form keyspaceManifest, shards []*Shard) (*Keyspace, error) {
	k, err := newKeyspace(form.KeyspaceHead, shards)
	if err != nil {
		return nil, err
	}
	c := newCodec(k.head.Strategy, k.types, shards)
	ranges, err := pieces(form.Ranges, a.ranges[form.Name], a.fetched, c.rangeCutting(), func(content []byte) ([]rangeEntry, error) {
		specs, err := decodeList[RangeSpec](content)
		if err != nil {
			return nil, err
		}
		return c.rangeEntries(specs)
	})
	if err != nil {
		return nil, fmt.Errorf("keyspace %q: %w", form.Name, err)
	}
	pinned, err := pieces(form.Pins, a.pins[form.Name], a.fetched, c.pinCutting(), func(content []byte) ([]pinEntry, error) {
		specs, err := decodeList[PinSpec](content)
		if err != nil {
			return nil, err
		}
		return c.pinEntries(specs)
	})
	if err != nil {
		return nil, fmt.Errorf("keyspace %q: %w", form.Name, err)
	}
	if err := k.setRanges(ranges); err != nil {
		return nil, err
	}
	if err := checkPinOrder(pinned); err != nil {
		return nil, fmt.Errorf("keyspace %q: %w", form.Name, err)
	}
	if err := k.setPins(newPinTable(pinned)); err != nil {
		return nil, err
	}
	k.mark()
	return k, nil
}

// checkPinOrder makes sure that no pin is hidden from look-ups: the pieces follow each other.
func checkPinOrder(pieces []*piece[pinEntry]) error {
	for i := 1; i < len(pieces); i++ {
		before := pieces[i-1].entries
		if before[len(before)-1].compare(pieces[i].entries[0]) >= 0 {
			return errors.New("the pieces of the pins are not in order")
		}
	}
	return nil
}

// pieces returns the named pieces, decoding those that were fetched.
func pieces[E any](ids []PieceID, have map[PieceID]*piece[E], fetched map[PieceID][]byte, c cutting[E], decode func([]byte) ([]E, error)) ([]*piece[E], error) {
	list := make([]*piece[E], len(ids))
	for i, id := range ids {
		if have[id] != nil {
			list[i] = have[id]
			continue
		}
		entries, err := decode(fetched[id])
		if err != nil {
			return nil, fmt.Errorf("piece %s: %w", id, err)
		}
		if len(entries) == 0 {
			return nil, fmt.Errorf("piece %s is empty", id)
		}
		list[i] = c.piece(id, entries, c.ends(entries[len(entries)-1]))
	}
	return list, nil
}

func decodeList[E any](content []byte) ([]E, error) {
	var entries []E
	err := json.Unmarshal(content, &entries)
	return entries, err
}

func shardCutting() cutting[ShardSpec] {
	return cutting[ShardSpec]{
		every:  64,
		digest: func(s ShardSpec) uint64 { return xxh3.HashString(s.Name) },
		size:   func(s ShardSpec) int { return 400 + 200*len(s.Replicas) },
		encode: encodeList[ShardSpec],
	}
}

func tableCutting() cutting[TableSpec] {
	return cutting[TableSpec]{
		every:  128,
		digest: func(t TableSpec) uint64 { return xxh3.HashString(t.Name) },
		size:   func(t TableSpec) int { return 160 + len(t.Name) },
		encode: encodeList[TableSpec],
	}
}

// finish cuts shards and tables into pieces and checks the whole.
func (m *Map) finish() error {
	m.shardPieces = shardCutting().cut(m.shardSpecs(), nil, nil)
	m.tablePieces = tableCutting().cut(m.tableSpecs(), nil, nil)
	return m.check()
}
