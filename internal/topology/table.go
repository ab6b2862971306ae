package topology

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/placement/key"
)

// Kind is the kind of a table.
type Kind string

// The kinds of tables.
const (
	// Sharded tables have a keyspace and key columns; each row lives on the shard that owns its key.
	Sharded Kind = "sharded"
	// Reference tables are copied to every shard.
	Reference Kind = "reference"
	// Single tables live on one named shard.
	Single Kind = "single"
)

// TableSpec describes a table: what [SetTable] takes, and its JSON form.
type TableSpec struct {
	// Name is schema.name, quoted as in SQL.
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Keyspace and Key, the key's columns in the keyspace's order, are for sharded tables.
	Keyspace string   `json:"keyspace,omitempty"`
	Key      []string `json:"key,omitempty"`
	// IDs are the columns of a sharded table whose numbers say where the row is; a keyspace by hash alone has them.
	IDs []MadeID `json:"ids,omitempty"`
	// MadeKeys are the key columns of a sharded table that a shard fills in if an INSERT leaves them to their default.
	MadeKeys []string `json:"made_keys,omitempty"`
	// Shard is for single tables, and Held too: they are about to be on another one, and no statement may use them.
	Shard string `json:"shard,omitempty"`
	Held  bool   `json:"held,omitempty"`
}

// MadeID is a column whose numbers are ids of package idgen's default layout. Every row whose number is Floor or greater has
// the slot of its key's hash in it; a smaller number says nothing.
type MadeID struct {
	Column string `json:"column"`
	// Floor is text in JSON because not every reader of JSON keeps such a number exact.
	Floor int64 `json:"floor,string"`
}

// Equal says whether both describe the same table in the same way.
func (s TableSpec) Equal(other TableSpec) bool {
	return s.Name == other.Name && s.Kind == other.Kind && s.Keyspace == other.Keyspace && s.Shard == other.Shard && s.Held == other.Held &&
		slices.Equal(s.Key, other.Key) && slices.Equal(s.IDs, other.IDs) && slices.Equal(s.MadeKeys, other.MadeKeys)
}

// Table is one table of the cluster.
type Table struct {
	name     TableName
	kind     Kind
	key      []string
	ids      []MadeID
	madeKeys []string
	keyspace *Keyspace
	shard    *Shard
	held     bool
}

// Name returns the table's name.
func (t *Table) Name() TableName { return t.name }

// Kind returns the table's kind.
func (t *Table) Kind() Kind { return t.kind }

// Keyspace returns the keyspace of a sharded table, nil for others.
func (t *Table) Keyspace() *Keyspace { return t.keyspace }

// KeyColumns returns the key columns of a sharded table, in the keyspace's order.
func (t *Table) KeyColumns() []string { return slices.Clone(t.key) }

// IDs returns the columns of a sharded table whose numbers say where the row is.
func (t *Table) IDs() []MadeID { return slices.Clone(t.ids) }

// MadeKeys returns the key columns of a sharded table that a shard fills in.
func (t *Table) MadeKeys() []string { return slices.Clone(t.madeKeys) }

// Shard returns the shard of a single table, nil for others.
func (t *Table) Shard() *Shard { return t.shard }

// IsHeld says whether a single table is about to be on another shard: no statement may use it.
func (t *Table) IsHeld() bool { return t.held }

// Spec returns the description.
func (t *Table) Spec() TableSpec {
	spec := TableSpec{Name: t.name.String(), Kind: t.kind, Key: t.KeyColumns(), IDs: t.IDs(), MadeKeys: t.MadeKeys(), Held: t.held}
	if t.keyspace != nil {
		spec.Keyspace = t.keyspace.Name()
	}
	if t.shard != nil {
		spec.Shard = t.shard.Name()
	}
	return spec
}

// newTable checks the description against the map's shards and keyspaces.
func newTable(spec TableSpec, m *Map) (*Table, error) {
	name, err := ParseTableName(spec.Name)
	if err != nil {
		return nil, err
	}
	t := &Table{name: name, kind: spec.Kind, key: slices.Clone(spec.Key), ids: slices.Clone(spec.IDs), madeKeys: slices.Clone(spec.MadeKeys), held: spec.Held}
	if err := t.link(spec, m); err != nil {
		return nil, fmt.Errorf("table %s: %w", name, err)
	}
	return t, nil
}

// link finds the keyspace or shard that the description names.
func (t *Table) link(spec TableSpec, m *Map) error {
	if spec.Kind != Sharded && (spec.Keyspace != "" || len(spec.Key) > 0) {
		return fmt.Errorf("a table of kind %q has no keyspace and no key", spec.Kind)
	}
	if spec.Kind != Sharded && (len(spec.IDs) > 0 || len(spec.MadeKeys) > 0) {
		return fmt.Errorf("a table of kind %q has no numbers that depend on a key", spec.Kind)
	}
	if spec.Kind != Single && (spec.Shard != "" || spec.Held) {
		return fmt.Errorf("a table of kind %q is not on one shard", spec.Kind)
	}
	switch spec.Kind {
	case Sharded:
		return t.linkKeyspace(spec, m)
	case Reference:
		return nil
	case Single:
		if t.shard = m.Shard(spec.Shard); t.shard == nil {
			return fmt.Errorf("shard %q does not exist", spec.Shard)
		}
		return nil
	default:
		return fmt.Errorf("kind %q is none of sharded, reference, single", spec.Kind)
	}
}

func (t *Table) linkKeyspace(spec TableSpec, m *Map) error {
	t.keyspace = m.Keyspace(spec.Keyspace)
	switch {
	case t.keyspace == nil:
		return fmt.Errorf("keyspace %q does not exist", spec.Keyspace)
	case t.keyspace.Strategy() == BySchema:
		return fmt.Errorf("keyspace %q places whole schemas, not rows of single tables", spec.Keyspace)
	case len(t.key) != len(t.keyspace.types):
		return fmt.Errorf("keyspace %q has a key of %d columns, the table names %d", spec.Keyspace, len(t.keyspace.types), len(t.key))
	}
	for i, column := range t.key {
		if err := checkIdentifier(column); err != nil {
			return err
		}
		if slices.Contains(t.key[:i], column) {
			return errors.New("key column " + quoted(column) + " is named twice")
		}
	}
	return t.checkNumbers()
}

// checkNumbers looks at the columns that shards fill in.
func (t *Table) checkNumbers() error {
	if len(t.ids)+len(t.madeKeys) > 0 && t.keyspace.Strategy() != ByHash {
		return fmt.Errorf("keyspace %q is not ordered by hashes: no number can be made to fit a key of it", t.keyspace.Name())
	}
	for i, id := range t.ids {
		switch err := checkIdentifier(id.Column); {
		case err != nil:
			return err
		case id.Floor < 1:
			return fmt.Errorf("column %s has ids from %d on: it must be a positive number", quoted(id.Column), id.Floor)
		case slices.Contains(t.key, id.Column):
			return errors.New("column " + quoted(id.Column) + " is of the key and cannot be made to fit it")
		case slices.ContainsFunc(t.ids[:i], func(other MadeID) bool { return other.Column == id.Column }):
			return errors.New("column " + quoted(id.Column) + " is named twice")
		}
	}
	for i, column := range t.madeKeys {
		at := slices.Index(t.key, column)
		switch {
		case at < 0:
			return errors.New("column " + quoted(column) + " is not of the key")
		case family(t.keyspace.types[at]) != key.Bigint:
			return errors.New("key column " + quoted(column) + " is not of an integer type")
		case slices.Contains(t.madeKeys[:i], column):
			return errors.New("key column " + quoted(column) + " is named twice")
		}
	}
	return nil
}
