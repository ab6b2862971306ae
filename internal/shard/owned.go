package shard

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/cleavedb/cleave/internal/topology"
)

// State says what a shard has to do with a range or pin.
type State string

// The states.
const (
	// Owned: it is the shard's.
	Owned State = "owned"
	// Incoming, Opening and Leaving: it is another's, of which this shard has a copy, as in the map.
	Incoming = State(topology.Incoming)
	Opening  = State(topology.Opening)
	Leaving  = State(topology.Leaving)
)

// stateOf is what a shard has to do with a copy. One that is closing is not the original any more as soon as its shard has recorded that.
func stateOf(c topology.CopyState) State {
	if c == topology.Closing {
		return Incoming
	}
	return State(c)
}

// Recorded is what a shard has recorded. Without a cluster it has recorded nothing and belongs to nobody.
type Recorded struct {
	Identity
	// Entry is the shard as the map describes it.
	Entry topology.ShardSpec
	// LastShardNumber and Members, the names of all shards, are the map's.
	LastShardNumber int
	Members         []string
	// Keyspaces are all of the map's, in the order of their names, each with what the shard has of it.
	Keyspaces []Keyspace
	// Tables are all of the map's, in the order of their names.
	Tables []topology.TableSpec
	// Moves are those that the shard knows of.
	Moves []KnownMove
}

// Keyspace is what a shard has of a keyspace, in the order of the rows' identifiers, which means nothing.
type Keyspace struct {
	Head   topology.KeyspaceHead
	Ranges []Range
	Pins   []Pin
	// damaged: these are not the rows that were written, going by the digest that was written with them.
	damaged bool
}

// Range is a range that a shard owns or has a copy of. No lower bound is the beginning, no upper one the end.
type Range struct {
	Lower, Upper topology.Point
	State        State
	Held         bool
}

// Pin is a key that a shard owns or has a copy of, whatever the ranges say.
type Pin struct {
	Key   topology.Point
	State State
	Held  bool
}

// rowID identifies a range or pin by its content, so that rows are never changed, only added and removed.
type rowID [16]byte

func (r Range) id() rowID { return contentID("range", r.Lower, r.Upper, r.State, r.Held) }

func (p Pin) id() rowID { return contentID("pin", p.Key, nil, p.State, p.Held) }

func contentID(kind string, a, b topology.Point, state State, held bool) rowID {
	content := append([]byte(kind), 0)
	for _, point := range []topology.Point{a, b} {
		content = strconv.AppendInt(content, int64(len(point)), 10)
		for _, text := range point {
			content = strconv.AppendInt(append(content, ' '), int64(len(text)), 10)
			content = append(append(content, ' '), text...)
		}
		content = append(content, 0)
	}
	content = strconv.AppendBool(append(append(content, state...), 0), held)
	sum := sha256.Sum256(content)
	return rowID(sum[:16])
}

// digest identifies all rows of the keyspace together.
func (k Keyspace) digest() []byte {
	ids := make([]rowID, 0, len(k.Ranges)+len(k.Pins))
	for _, r := range k.Ranges {
		ids = append(ids, r.id())
	}
	for _, p := range k.Pins {
		ids = append(ids, p.id())
	}
	slices.SortFunc(ids, func(a, b rowID) int { return bytes.Compare(a[:], b[:]) })
	sum := sha256.New()
	for _, id := range ids {
		sum.Write(id[:])
	}
	return sum.Sum(nil)
}

// bounds returns the ends of a range in the form of the map's JSON.
func bounds(k *topology.Keyspace, r topology.Range) (lower, upper topology.Point, err error) {
	if k.Strategy() != topology.ByRange {
		return hashPoint(r.Hash.Lo), hashPoint(r.Hash.Hi), nil
	}
	if lower, err = k.Texts(r.Key.Lo); err != nil {
		return nil, nil, err
	}
	upper, err = k.Texts(r.Key.Hi)
	return lower, upper, err
}

// hashPoint prints a bound of the hash space; 0 is the beginning or, as an upper bound, the end.
func hashPoint(h uint64) topology.Point {
	if h == 0 {
		return nil
	}
	return topology.Point{fmt.Sprintf("%016x", h)}
}

// pointJSON returns the bound as a column has it: NULL for none.
func pointJSON(p topology.Point) []byte {
	if len(p) == 0 {
		return nil
	}
	content, err := json.Marshal(p)
	if err != nil {
		panic("shard: a point is texts, and these have a JSON form: " + err.Error())
	}
	return content
}

// parsePoint reads a column.
func parsePoint(column []byte) (topology.Point, error) {
	if column == nil {
		return nil, nil
	}
	var p topology.Point
	if err := json.Unmarshal(column, &p); err != nil {
		return nil, fmt.Errorf("read a bound: %w", err)
	}
	return p, nil
}
