package adopt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

// planFormat is the version of a plan's form.
const planFormat = 1

// Plan is what is to become of each table: decisions, and nothing that can be read from the database. A person may edit it.
type Plan struct {
	Format int `json:"format"`
	// Database and SystemIdentifier say which database it is for.
	Database         string `json:"database"`
	SystemIdentifier string `json:"system_identifier"`
	// Shard is the name that the database gets in the cluster, and Keyspace the one that its sharded tables share.
	Shard    string `json:"shard"`
	Keyspace string `json:"keyspace"`
	// KeyType is the type of the shard key: bigint, text, uuid …
	KeyType string `json:"key_type,omitempty"`
	// Root is the table whose key it is; empty if there is none.
	Root string `json:"root,omitempty"`
	// IDs is what serial columns that are not the key get: keyed or counted.
	IDs    string      `json:"ids"`
	Tables []TablePlan `json:"tables"`
}

// TablePlan is what is to become of one table.
type TablePlan struct {
	// Table is its name, with the schema, as SQL takes it.
	Table string        `json:"table"`
	Kind  topology.Kind `json:"kind"`
	// Reason is for people.
	Reason string `json:"reason,omitempty"`
	// Key is the column that a sharded table is sharded by. It need not be there yet, if KeyFrom says where its values are.
	Key     string  `json:"key,omitempty"`
	KeyFrom *Source `json:"key_from,omitempty"`
	// PrimaryKey are the columns that tell its rows apart, beside the key, if it has no primary key by which rows can be moved. One that is not there
	// is added, and filled with UUIDs.
	PrimaryKey []string `json:"primary_key,omitempty"`
	// Unique says for constraints and unique indexes that do not contain the key what becomes of them: [WithKey] or [PerShard].
	Unique map[string]Handling `json:"unique,omitempty"`
	// ForeignKeys says for those that cannot stay as they are what becomes of them: [WithKey], [Drop] or [Undecided].
	ForeignKeys map[string]Handling `json:"foreign_keys,omitempty"`
}

// Source is where a row's shard key is found: in the row of another table that it refers to.
type Source struct {
	// Columns of the table refer to Referenced of the other, Table.
	Columns    []string `json:"columns"`
	Table      string   `json:"table"`
	Referenced []string `json:"referenced"`
}

// Handling is what becomes of a constraint.
type Handling string

// What becomes of constraints.
const (
	// WithKey: it gets the shard key as one more column.
	WithKey Handling = "with key"
	// PerShard: it stays as it is, and each shard sees to its own rows.
	PerShard Handling = "per shard"
	// Drop: it goes.
	Drop Handling = "drop"
	// Undecided: a person has to say.
	Undecided Handling = "undecided"
)

// What numbers serial columns get, in the control plane's words.
const (
	keyedIDs   = "keyed"
	countedIDs = "counted"
)

// ReadPlan reads a plan. Fields that it does not know are an error: they would be decisions that nobody follows.
func ReadPlan(r io.Reader) (*Plan, error) {
	decoder := json.NewDecoder(r)
	decoder.DisallowUnknownFields()
	p := &Plan{}
	if err := decoder.Decode(p); err != nil {
		return nil, fmt.Errorf("read the plan: %w", err)
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("read the plan: %w", err)
	}
	return p, nil
}

// Write writes the plan as people read and edit it.
func (p *Plan) Write(w io.Writer) error {
	var content bytes.Buffer
	encoder := json.NewEncoder(&content)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(p); err != nil {
		return fmt.Errorf("write the plan: %w", err)
	}
	_, err := w.Write(content.Bytes())
	return err
}

func (p *Plan) check() error {
	switch {
	case p.Format != planFormat:
		return fmt.Errorf("its format is %d, and this program knows %d", p.Format, planFormat)
	case p.Shard == "" || p.Keyspace == "":
		return errors.New("it names no shard, or no keyspace")
	case p.IDs != keyedIDs && p.IDs != countedIDs:
		return fmt.Errorf("ids are %q: write %s or %s", p.IDs, keyedIDs, countedIDs)
	}
	seen := map[topology.TableName]bool{}
	for i := range p.Tables {
		t := &p.Tables[i]
		name, err := topology.ParseTableName(t.Table)
		if err != nil {
			return err
		}
		if seen[name] {
			return fmt.Errorf("table %s is there twice", name)
		}
		seen[name], t.Table = true, name.String()
		if err := t.check(); err != nil {
			return fmt.Errorf("table %s: %w", name, err)
		}
	}
	if _, err := key.ParseType(p.KeyType); err != nil && len(p.of(topology.Sharded)) > 0 {
		return fmt.Errorf("key_type: %w", err)
	}
	return nil
}

func (t *TablePlan) check() error {
	switch {
	case !slices.Contains([]topology.Kind{topology.Sharded, topology.Reference, topology.Single}, t.Kind):
		return fmt.Errorf("kind %q is none of %s, %s and %s", t.Kind, topology.Sharded, topology.Reference, topology.Single)
	case t.Kind == topology.Sharded && t.Key == "":
		return errors.New("it is to be sharded, and has no key")
	case t.Kind != topology.Sharded && (t.Key != "" || t.KeyFrom != nil || len(t.PrimaryKey) > 0):
		return fmt.Errorf("it has a key, and is to be %s", t.Kind)
	case t.KeyFrom != nil && (len(t.KeyFrom.Columns) == 0 || len(t.KeyFrom.Columns) != len(t.KeyFrom.Referenced)):
		return errors.New("key_from names columns that do not pair")
	}
	if t.KeyFrom != nil {
		source, err := topology.ParseTableName(t.KeyFrom.Table)
		if err != nil {
			return err
		}
		t.KeyFrom.Table = source.String()
	}
	for name, handling := range t.Unique {
		if handling != WithKey && handling != PerShard {
			return fmt.Errorf("unique %s: %q is neither %q nor %q", name, handling, WithKey, PerShard)
		}
	}
	for name, handling := range t.ForeignKeys {
		if !slices.Contains([]Handling{WithKey, Drop, Undecided}, handling) {
			return fmt.Errorf("foreign key %s: %q is none of %q, %q and %q", name, handling, WithKey, Drop, Undecided)
		}
	}
	return nil
}

// For says whether the plan is for this database.
func (p *Plan) For(c *Catalogue) error {
	if p.Database != c.Database || p.SystemIdentifier != c.SystemIdentifier {
		return fmt.Errorf("the plan is for database %s of another server, or for another database than %s", p.Database, c.Database)
	}
	return nil
}

// table returns what is planned for a table, nil if it is not in the plan: then it stays as it is.
func (p *Plan) table(name topology.TableName) *TablePlan {
	for i := range p.Tables {
		if p.Tables[i].Table == name.String() {
			return &p.Tables[i]
		}
	}
	return nil
}

// kind is what a table is to be.
func (p *Plan) kind(name topology.TableName) topology.Kind {
	if t := p.table(name); t != nil {
		return t.Kind
	}
	return topology.Single
}

// of returns the tables that are to be of a kind, in the plan's order.
func (p *Plan) of(kind topology.Kind) []*TablePlan {
	var found []*TablePlan
	for i := range p.Tables {
		if p.Tables[i].Kind == kind {
			found = append(found, &p.Tables[i])
		}
	}
	return found
}

// Sharded returns the tables that are to be sharded, and References those that are to be reference tables.
func (p *Plan) Sharded() []*TablePlan { return p.of(topology.Sharded) }

// References returns the tables that are to be reference tables.
func (p *Plan) References() []*TablePlan { return p.of(topology.Reference) }

// Name of the table; a plan that was read or made has no others than can be read.
func (t *TablePlan) Name() topology.TableName { return mustName(t.Table) }

func mustName(text string) topology.TableName {
	name, err := topology.ParseTableName(text)
	if err != nil {
		panic(fmt.Sprintf("adopt: a plan that was checked has the table %q", text))
	}
	return name
}

// clone is a plan that can be changed without this one.
func (p *Plan) clone() *Plan {
	copied := *p
	copied.Tables = slices.Clone(p.Tables)
	return &copied
}

// UniquePerShard says whether a constraint of some table is to be held by each shard alone.
func (p *Plan) UniquePerShard() bool {
	for _, t := range p.Sharded() {
		for _, handling := range t.Unique {
			if handling == PerShard {
				return true
			}
		}
	}
	return false
}

// SetPrimaryKey decides which columns tell a table's rows apart.
func (p *Plan) SetPrimaryKey(table topology.TableName, columns []string) error {
	t := p.table(table)
	switch {
	case t == nil:
		return fmt.Errorf("table %s is not in the plan", table)
	case t.Kind != topology.Sharded:
		return fmt.Errorf("table %s is to be %s: its rows stay where they are, whatever its primary key is", table, t.Kind)
	}
	t.PrimaryKey = columns
	return nil
}

// DropForeignKey decides that a foreign key goes.
func (p *Plan) DropForeignKey(table topology.TableName, name string) error {
	t := p.table(table)
	if t == nil {
		return fmt.Errorf("table %s is not in the plan", table)
	}
	if _, known := t.ForeignKeys[name]; !known {
		return fmt.Errorf("foreign key %s of table %s is none that stands in the way", name, table)
	}
	t.ForeignKeys[name] = Drop
	return nil
}
