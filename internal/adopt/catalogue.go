package adopt

import (
	"slices"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

// Catalogue is what was read of a database.
type Catalogue struct {
	// Server is where it is, as host:port, and Database its name.
	Server   string
	Database string
	// SystemIdentifier is the server's, so that a plan is not taken for another database.
	SystemIdentifier string
	// Tables are the user's, in the order of their names. Partitions are not among them.
	Tables []*Table `json:"tables"`
	// Views, MaterialisedViews, ForeignTables and LargeObjects are how many there are.
	Views             int `json:"views"`
	MaterialisedViews int `json:"materialised_views"`
	ForeignTables     int `json:"foreign_tables"`
	LargeObjects      int `json:"large_objects"`
	// Subscriptions are those that write into this database from elsewhere, by name.
	Subscriptions []string `json:"subscriptions"`
}

// Table is one table, partitioned or not.
type Table struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
	Owner  string `json:"owner"`
	// Partitioned: it has partitions, which are not in the catalogue themselves.
	Partitioned bool `json:"partitioned"`
	// Rows is an estimate, and Bytes the size with indexes.
	Rows        int64        `json:"rows"`
	Bytes       int64        `json:"bytes"`
	Columns     []Column     `json:"columns"`
	Uniques     []Unique     `json:"uniques"`
	ForeignKeys []ForeignKey `json:"foreign_keys"`
	Checks      []Check      `json:"checks"`
	Triggers    []string     `json:"triggers"`
	// Functions run when rows are written, and might read or write other tables for all that PostgreSQL knows.
	Functions []Function `json:"functions"`
	// Hindrances are why its rows could not be moved to another shard.
	Hindrances []shard.Hindrance `json:"-"`
}

// Column is one column of a table.
type Column struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	TypeOID uint32 `json:"type_oid"`
	NotNull bool   `json:"not_null"`
	Default string `json:"default"`
	// Generated: it is computed from other columns.
	Generated bool `json:"generated"`
	// Sequence that it takes its numbers from, quoted with its schema, and whether it belongs to the column.
	Sequence      string `json:"sequence"`
	SequenceOwned bool   `json:"sequence_owned"`
	// NullFraction is the part of rows that have none, as PostgreSQL's statistics have it; below 0 if they have nothing.
	NullFraction float64 `json:"null_fraction"`
}

// Unique is a primary key, a unique or exclusion constraint, or a unique index.
type Unique struct {
	// Name of the constraint, or of the index if there is none.
	Name  string `json:"name"`
	Index string `json:"index"`
	// Kind is p, u or x of a constraint, as in PostgreSQL's catalogue, and empty of an index alone.
	Kind string `json:"kind"`
	// Columns are the keys that are columns. Plain: there are no others, and no rows are left out.
	Columns []string `json:"columns"`
	Plain   bool     `json:"plain"`
	// Usual: it sorts as an index that PostgreSQL makes for a constraint itself, or it can be made into none.
	Usual      bool   `json:"usual"`
	Definition string `json:"definition"` // of the index
	Valid      bool   `json:"valid"`
	Deferrable bool   `json:"deferrable"`
	Deferred   bool   `json:"deferred"`
}

// ForeignKey of a table.
type ForeignKey struct {
	// Name of the constraint; empty if it is only implied by the name of a column.
	Name          string   `json:"name"`
	Columns       []string `json:"columns"`
	TargetSchema  string   `json:"target_schema"`
	TargetTable   string   `json:"target_table"`
	TargetColumns []string `json:"target_columns"`
	// OnUpdate and OnDelete are a, r, c, n or d, as in PostgreSQL's catalogue; SetColumns are those that ON DELETE sets, if not all are.
	OnUpdate   string   `json:"on_update"`
	OnDelete   string   `json:"on_delete"`
	SetColumns []string `json:"set_columns"`
	Deferrable bool     `json:"deferrable"`
	Deferred   bool     `json:"deferred"`
	Valid      bool     `json:"valid"`
}

// Check is a check constraint.
type Check struct {
	Name  string `json:"name"`
	Valid bool   `json:"valid"`
}

// Function is one that runs when rows of a table are written.
type Function struct {
	// Identity names it with its arguments, as SQL takes it.
	Identity string `json:"identity"`
	Source   string `json:"source"`
	// Trigger: it is a trigger's.
	Trigger bool `json:"trigger"`
}

// Target is the table that the foreign key refers to.
func (f ForeignKey) Target() topology.TableName {
	return topology.TableName{Schema: f.TargetSchema, Name: f.TargetTable}
}

// implied says whether no constraint says so.
func (f ForeignKey) implied() bool { return f.Name == "" }

// paired returns the column that stands for a column of the target; empty if none does.
func (f ForeignKey) paired(target string) string {
	if at := slices.Index(f.TargetColumns, target); at >= 0 {
		return f.Columns[at]
	}
	return ""
}

// ID names the table.
func (t *Table) ID() topology.TableName { return topology.TableName{Schema: t.Schema, Name: t.Name} }

// String is the table's name as SQL takes it.
func (t *Table) String() string { return t.ID().String() }

// Column returns a column, nil if the table does not have it.
func (t *Table) Column(name string) *Column {
	for i := range t.Columns {
		if t.Columns[i].Name == name {
			return &t.Columns[i]
		}
	}
	return nil
}

// primaryKey returns it, nil if there is none.
func (t *Table) primaryKey() *Unique {
	for i := range t.Uniques {
		if t.Uniques[i].Kind == "p" {
			return &t.Uniques[i]
		}
	}
	return nil
}

// check returns a check constraint, nil if there is none of the name.
func (t *Table) check(name string) *Check {
	for i := range t.Checks {
		if t.Checks[i].Name == name {
			return &t.Checks[i]
		}
	}
	return nil
}

// uniqueOver returns what keeps exactly these columns unique, in any order, so that a foreign key may refer to them.
func (t *Table) uniqueOver(columns []string) *Unique {
	for i := range t.Uniques {
		if u := &t.Uniques[i]; u.Valid && u.Plain && u.Kind != "x" && !u.Deferrable && sameSet(u.Columns, columns) {
			return u
		}
	}
	return nil
}

func sameSet(a, b []string) bool {
	return len(a) == len(b) && containsAll(a, b)
}

func containsAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(one string) bool { return !slices.Contains(all, one) })
}

// Table returns a table, nil if the database does not have it.
func (c *Catalogue) Table(name topology.TableName) *Table {
	for _, t := range c.Tables {
		if t.ID() == name {
			return t
		}
	}
	return nil
}

// keyTypes are those that a key can have, by their OIDs, as the type that stands for all whose equal values are equal keys.
var keyTypes = map[uint32]key.Type{
	20: key.Bigint, 23: key.Bigint, 21: key.Bigint, 25: key.Text, 1043: key.Text, 2950: key.UUID, 1082: key.Date, 1184: key.Timestamptz, 17: key.Bytea,
}

// family is the type that stands for the column's in a key; empty if it cannot be one.
func (c *Column) family() string {
	if t, known := keyTypes[c.TypeOID]; known && !c.Generated {
		return t.String()
	}
	return ""
}

const (
	bigintOID   = 20
	smallintOID = 21
	uuidOID     = 2950
)

// isDrawn says whether its values are made so that none comes twice.
func (c *Column) isDrawn() bool { return c.Sequence != "" || c.TypeOID == uuidOID }
