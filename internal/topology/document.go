package topology

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// Schema is the version of the form in which this program writes maps. It grows with every field that is added.
const Schema = 3

// oldestReader is the oldest schema whose readers understand what this program writes: it grows only when a field is added
// that a reader must not skip.
const oldestReader = 3

// Document is a whole map as one JSON text for people.
type Document struct {
	// Schema and ReadableBy tell readers whether they understand it.
	Schema     int `json:"schema"`
	ReadableBy int `json:"readable_by"`
	// Cluster is the cluster's identifier, a UUID.
	Cluster string `json:"cluster"`
	Version uint64 `json:"version"`
	// LastShardNumber is the last number that was given to a shard, even if that one is gone.
	LastShardNumber int            `json:"last_shard_number"`
	Shards          []ShardSpec    `json:"shards"`
	Keyspaces       []KeyspaceSpec `json:"keyspaces"`
	Tables          []TableSpec    `json:"tables"`
}

// NewerSchemaError says that a map was written by a program too new for this one to read or to change it.
type NewerSchemaError struct {
	Schema, ReadableBy int
	Writing            bool
}

func (e *NewerSchemaError) Error() string {
	if e.Writing {
		return fmt.Sprintf("the shard map is written in schema %d, this program knows %d: it can follow the map but not change it; upgrade it", e.Schema, Schema)
	}
	return fmt.Sprintf("the shard map needs a reader of schema %d, this program knows %d: upgrade it", e.ReadableBy, Schema)
}

func checkSchema(schema, readableBy int) error {
	if schema < 1 || readableBy < 1 {
		return errors.New("this is not a shard map: it has no schema")
	}
	if readableBy > Schema {
		return &NewerSchemaError{Schema: schema, ReadableBy: readableBy}
	}
	return nil
}

// Decode reads a document. A field that nobody knows is a slip of the pen and refused, unless a newer program wrote it.
func Decode(data []byte) (*Map, error) {
	var versions struct {
		Schema     int `json:"schema"`
		ReadableBy int `json:"readable_by"`
	}
	if err := json.Unmarshal(data, &versions); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) && kind.Field == "" {
			return nil, errors.New("this is not a shard map: it is not a JSON object")
		}
		return nil, fmt.Errorf("read the shard map: %w", placed(data, err))
	}
	if err := checkSchema(versions.Schema, versions.ReadableBy); err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	if versions.Schema <= Schema {
		decoder.DisallowUnknownFields()
	}
	if err := noFieldTwice(data); err != nil {
		return nil, fmt.Errorf("read the shard map: %w", err)
	}
	var document Document
	if err := decoder.Decode(&document); err != nil {
		return nil, fmt.Errorf("read the shard map: %w", placed(data, err))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read the shard map: something follows its end")
	}
	return build(document)
}

// noFieldTwice refuses an object with a field that is there twice: the reader would mix both.
func noFieldTwice(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	type level struct {
		fields map[string]bool // nil in a list
		named  bool            // whether a field's name was read and its value is next
	}
	var levels []level
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return placed(data, err)
		}
		delimiter, isDelimiter := token.(json.Delim)
		if isDelimiter && (delimiter == '}' || delimiter == ']') {
			levels = levels[:len(levels)-1]
			continue
		}
		if n := len(levels); n > 0 && levels[n-1].fields != nil {
			top := &levels[n-1]
			if !top.named {
				name, _ := token.(string)
				if top.fields[name] {
					return fmt.Errorf("line %d: field %q is there twice", lineOf(data, decoder.InputOffset()), name)
				}
				top.fields[name], top.named = true, true
				continue
			}
			top.named = false
		}
		switch {
		case isDelimiter && delimiter == '{':
			levels = append(levels, level{fields: map[string]bool{}})
		case isDelimiter:
			levels = append(levels, level{})
		}
	}
}

// placed adds the line to an error of the JSON reader.
func placed(data []byte, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &syntax) && int(syntax.Offset) >= len(data):
		return errors.New("it ends in the middle")
	case errors.As(err, &syntax):
		return fmt.Errorf("line %d: %w", lineOf(data, syntax.Offset), err)
	case errors.As(err, &kind):
		return fmt.Errorf("line %d: field %s cannot be a %s", lineOf(data, kind.Offset), kind.Field, kind.Value)
	default:
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
}

func lineOf(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(int(offset), len(data))], []byte("\n"))
}

// Document returns the whole map for people. Pins are in the order of their keys.
func (m *Map) Document() Document {
	d := Document{
		Schema: m.schema, ReadableBy: m.readableBy, Cluster: m.cluster, Version: m.version, LastShardNumber: m.lastNumber,
		Shards: m.shardSpecs(), Tables: m.tableSpecs(), Keyspaces: []KeyspaceSpec{},
	}
	for _, k := range m.Keyspaces() {
		d.Keyspaces = append(d.Keyspaces, k.Spec())
	}
	return d
}

// Spec returns the description of the keyspace with all ranges and pins.
func (k *Keyspace) Spec() KeyspaceSpec {
	c := newCodec(k.head.Strategy, k.types, k.shards)
	pins := join(k.pins.pieces)
	slices.SortFunc(pins, func(a, b pinEntry) int { return strings.Compare(a.key, b.key) })
	ranges := c.rangeSpecs(join(k.ranges))
	for i := 1; i < len(ranges); i++ {
		ranges[i-1].To = ranges[i].From
	}
	return KeyspaceSpec{KeyspaceHead: k.Head(), Ranges: ranges, Pins: c.pinSpecs(pins)}
}

func (m *Map) shardSpecs() []ShardSpec {
	specs := make([]ShardSpec, 0, m.ShardCount())
	for s := range m.Shards() {
		specs = append(specs, s.Spec())
	}
	return specs
}

func (m *Map) tableSpecs() []TableSpec {
	tables := m.Tables()
	specs := make([]TableSpec, len(tables))
	for i, t := range tables {
		specs[i] = t.Spec()
	}
	return specs
}

// build makes a map of a document.
func build(d Document) (*Map, error) {
	m := &Map{
		schema: d.Schema, readableBy: d.ReadableBy, cluster: d.Cluster, version: d.Version, lastNumber: d.LastShardNumber,
		keyspaces: make(map[string]*Keyspace, len(d.Keyspaces)),
	}
	if m.lastNumber < 0 || m.lastNumber > MaxShardNumber {
		return nil, fmt.Errorf("last_shard_number %d is not between 0 and %d", m.lastNumber, MaxShardNumber)
	}
	if err := m.setShards(d.Shards); err != nil {
		return nil, err
	}
	for _, spec := range d.Keyspaces {
		k, err := buildKeyspace(spec, m.shards)
		if err != nil {
			return nil, err
		}
		if m.keyspaces[k.Name()] != nil {
			return nil, fmt.Errorf("keyspace %q is there twice", k.Name())
		}
		m.keyspaces[k.Name()] = k
	}
	if err := m.setTables(d.Tables); err != nil {
		return nil, err
	}
	if err := m.finish(); err != nil {
		return nil, err
	}
	return m, nil
}

func buildKeyspace(spec KeyspaceSpec, shards []*Shard) (*Keyspace, error) {
	k, err := newKeyspace(spec.KeyspaceHead, shards)
	if err != nil {
		return nil, err
	}
	c := newCodec(k.head.Strategy, k.types, shards)
	ranges, err := c.rangeEntries(spec.Ranges)
	if err != nil {
		return nil, fmt.Errorf("keyspace %q: %w", k.Name(), err)
	}
	pins, err := c.pinEntries(spec.Pins)
	if err != nil {
		return nil, fmt.Errorf("keyspace %q: %w", k.Name(), err)
	}
	if err := k.setRanges(c.rangeCutting().cut(ranges, nil, nil)); err != nil {
		return nil, err
	}
	if err := k.setPins(newPinTable(c.pinCutting().cut(pins, nil, nil))); err != nil {
		return nil, err
	}
	k.mark()
	return k, nil
}

// setTables puts the tables into the map, whose shards and keyspaces are there already.
func (m *Map) setTables(specs []TableSpec) error {
	m.tables = make(map[TableName]*Table, len(specs))
	for _, spec := range specs {
		t, err := newTable(spec, m)
		if err != nil {
			return err
		}
		if m.tables[t.name] != nil {
			return fmt.Errorf("table %s is there twice", t.name)
		}
		m.tables[t.name] = t
		m.holdsTables = m.holdsTables || t.held
	}
	return nil
}

// MarshalJSON writes the point as one text if it has one value, else as a list.
func (p Point) MarshalJSON() ([]byte, error) {
	if len(p) == 1 {
		return json.Marshal(p[0])
	}
	return json.Marshal([]string(p))
}

func isUnseen(r rune) bool { return !unicode.IsPrint(r) }

// UnmarshalJSON reads one text or a list.
func (p *Point) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, (*[]string)(p))
	}
	var one string
	if err := json.Unmarshal(data, &one); err != nil {
		return errors.New("a point is a text or a list of texts")
	}
	*p = Point{one}
	return nil
}

// String prints the point for people; one with characters that nobody sees as a JSON list, which commands and functions take too.
func (p Point) String() string {
	if slices.ContainsFunc(p, func(text string) bool { return strings.ContainsFunc(text, isUnseen) }) {
		if list, err := json.Marshal([]string(p)); err == nil {
			return string(list)
		}
	}
	switch len(p) {
	case 0:
		return "the beginning"
	case 1:
		return p[0]
	default:
		return "(" + strings.Join(p, ", ") + ")"
	}
}
