package topology

import (
	"slices"
	"time"
)

// SchemaState is what routers must know of the schema beside the map: how often it has changed, and which tables are changing
// now. The zero value is that of a cluster whose schema was never changed. It is immutable, what it refers to included.
type SchemaState struct {
	// Epoch grows with every change of the state and never goes back: what was planned under an earlier one is planned anew.
	Epoch uint64
	// MapVersion is the oldest version of the map that the state may be used with.
	MapVersion uint64
	// Holds are the tables on which no statement may start. No table is in two of them.
	Holds []Hold
	// Rollouts are the open ones, of which no two change the same table, and the last ones that were closed.
	Rollouts []Rollout
	// Moves are those under way: nobody may change their tables.
	Moves []Moving
}

// Moving is a move that keeps tables as they are.
type Moving struct {
	// ID is the move's, Keyspace what it moves rows of.
	ID, Keyspace string
	// Tables are those of the keyspace.
	Tables []TableName
	// Schemas move as a whole: whatever is in them stays as it is, and nothing comes to be.
	Schemas []string
}

// Keeps says whether the move keeps a table, or what else has that name, as it is.
func (m Moving) Keeps(name TableName) bool {
	return slices.Contains(m.Tables, name) || slices.Contains(m.Schemas, name.Schema)
}

// MoveOf returns a move that keeps one of the tables as it is.
func (s SchemaState) MoveOf(tables ...TableName) (Moving, bool) {
	i := slices.IndexFunc(s.Moves, func(m Moving) bool { return slices.ContainsFunc(tables, m.Keeps) })
	if i < 0 {
		return Moving{}, false
	}
	return s.Moves[i], true
}

// Hold keeps statements off tables while somebody changes them.
type Hold struct {
	// ID names the hold, and whoever knows it may act under it. It is another one after a take-over.
	ID string
	// Origin is the ID that the hold was made with, if it has been taken over since; otherwise it is empty.
	Origin string
	// Tables are held; none: all are.
	Tables []TableName
	// Holder is the router that changes them, by the ID of its record.
	Holder string
	// Why is for people.
	Why string
	// Since is for people, and by the holder's clock.
	Since time.Time
	// Move is the move of the tables that holds them; empty: something else does.
	Move string
	// BesideMoves: what the holder does leaves the tables as they are, so they may be moving.
	BesideMoves bool
}

// First is the ID that the hold was made with: the name under which work on shards belongs to it.
func (h Hold) First() string {
	if h.Origin != "" {
		return h.Origin
	}
	return h.ID
}

// TakenOver tells whether somebody else than the one who made the hold has it now.
func (h Hold) TakenOver() bool { return h.Origin != "" }

// Covers tells whether the table is held.
func (h Hold) Covers(table TableName) bool {
	return len(h.Tables) == 0 || slices.Contains(h.Tables, table)
}

// Overlaps tells whether the other hold has a table in common with this one.
func (h Hold) Overlaps(other Hold) bool {
	return len(h.Tables) == 0 || len(other.Tables) == 0 || slices.ContainsFunc(other.Tables, h.Covers)
}

// HeldBy returns the hold on the table.
func (s SchemaState) HeldBy(table TableName) (Hold, bool) {
	return s.find(func(h Hold) bool { return h.Covers(table) })
}

// Hold returns the hold with the ID.
func (s SchemaState) Hold(id string) (Hold, bool) {
	return s.find(func(h Hold) bool { return h.ID == id })
}

// Conflict returns a hold that has a table in common with the given one, other than itself.
func (s SchemaState) Conflict(wanted Hold) (Hold, bool) {
	return s.find(func(h Hold) bool { return h.ID != wanted.ID && h.Overlaps(wanted) })
}

// HoldOn returns a hold on something that a move is to keep as it is.
func (s SchemaState) HoldOn(m Moving) (Hold, bool) {
	return s.find(func(h Hold) bool { return len(h.Tables) == 0 || slices.ContainsFunc(h.Tables, m.Keeps) })
}

// MoveLike returns a move that keeps something of what another is to keep.
func (s SchemaState) MoveLike(wanted Moving) (Moving, bool) {
	i := slices.IndexFunc(s.Moves, func(m Moving) bool {
		return slices.ContainsFunc(wanted.Tables, m.Keeps) || slices.ContainsFunc(m.Tables, wanted.Keeps) || slices.ContainsFunc(wanted.Schemas, func(name string) bool { return slices.Contains(m.Schemas, name) })
	})
	if i < 0 {
		return Moving{}, false
	}
	return s.Moves[i], true
}

func (s SchemaState) find(fits func(Hold) bool) (Hold, bool) {
	if i := slices.IndexFunc(s.Holds, fits); i >= 0 {
		return s.Holds[i], true
	}
	return Hold{}, false
}
