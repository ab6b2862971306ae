package reshard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// mark is what the map says of all that a move moves.
type mark struct {
	owner string
	// copyOn has a copy in that state; empty: nobody has.
	copyOn string
	state  topology.CopyState
	held   bool
}

// The marks of a course, in their order.
func (c course) announced() mark { return c.mark(c.from, c.to, topology.Incoming, false) }
func (c course) holding() mark   { return c.mark(c.from, c.to, topology.Incoming, true) }
func (c course) closed() mark    { return c.mark(c.from, c.to, topology.Opening, true) }
func (c course) closing() mark   { return c.mark(c.from, c.to, topology.Closing, false) }
func (c course) turned() mark    { return c.mark(c.to, c.from, topology.Leaving, false) }

// advances says whether one mark comes behind another on the way to a new owner. On the way back, or when it is over, it does not.
func (c course) advances(from, to mark) bool {
	way := []mark{c.announced(), c.holding(), c.closed(), c.turned()}
	return !c.isClosing(from) && slices.Index(way, to) > slices.Index(way, from)
}

// isClosing says whether the heir has to hear that it does not get the rows. Of whole tables nobody sees the copy.
func (c course) isClosing(is mark) bool { return !c.whole && is == c.closing() }

func (c course) mark(owner, copyOn string, state topology.CopyState, held bool) mark {
	if c.whole {
		return mark{owner: owner, held: held}
	}
	return mark{owner: owner, copyOn: copyOn, state: state, held: held}
}

func plain(owner string) mark { return mark{owner: owner} }

// errOtherMap says that the map is not as the move has left it.
var errOtherMap = errors.New("the shard map says something else of what moves")

// marked returns what the map says of the move's ranges and pins; false if that is not one thing. A range that is larger than the move's says it too: others may have merged it with its neighbour. Statements are held while this is asked, so
// nothing else of the keyspace is looked at.
func (m *Move) marked(now *topology.Map) (mark, bool, error) {
	if m.IsWhole() {
		is, alike := m.markedWhole(now)
		return is, alike, nil
	}
	k := now.Keyspace(m.Keyspace)
	if k == nil {
		return mark{}, false, &topology.NotFoundError{Kind: "keyspace", Name: m.Keyspace}
	}
	var found []mark
	note := func(owner *topology.Shard, copies []topology.Copy, held bool) {
		one := mark{owner: owner.Name(), held: held}
		if len(copies) > 0 {
			one.copyOn, one.state = copies[0].Shard.Name(), copies[0].State
		}
		if !slices.Contains(found, one) {
			found = append(found, one)
		}
	}
	for _, r := range m.Ranges {
		ranges, err := k.RangesIn(r.From, r.To)
		if err != nil {
			return mark{}, false, err
		}
		for one := range ranges {
			note(one.Owner, one.Copies, one.Held)
		}
	}
	for _, key := range m.Pins {
		encoded, err := k.Encode(key)
		if err != nil {
			return mark{}, false, err
		}
		pin, pinned := k.PinOf(encoded)
		if !pinned {
			return mark{}, false, nil
		}
		note(pin.Owner, pin.Copies, pin.Held)
	}
	if len(found) != 1 {
		return mark{}, false, nil
	}
	return found[0], true, nil
}

// publish has the map say something of what moves, if it says one of what is expected, and asks routers for that version on some shards. A map that says it already is returned as it is.
func (r *run) publish(ctx context.Context, next mark, asking []string, expected ...mark) (*topology.Map, error) {
	var as *topology.Map
	published, err := r.leadership.UpdateMap(ctx, func(now *topology.Map) (*topology.Map, error) {
		as = nil
		is, alike, err := r.state().marked(now)
		if err != nil {
			return nil, err
		}
		if alike && is == next {
			as = now
			return nil, errAsItIs
		}
		if !alike || !slices.Contains(expected, is) {
			return nil, fmt.Errorf("%w: %+v", errOtherMap, is)
		}
		switch move := r.state(); {
		case len(move.Published) > 0 && move.course().advances(is, next) && !slices.Equal(move.tableTexts(now), move.Published):
			return nil, stop("a table was declared after the move began: cancel it and start it again")
		case len(move.Published) == 0 && !move.IsWhole() && len(move.tables(now)) > 0: // only the map was to change, and now there may be rows
			return nil, fmt.Errorf("%w: a table was declared meanwhile", errOtherMap)
		}
		return now.Next(append(r.state().changes(next), asks(now.Version()+1, asking)...)...)
	})
	if errors.Is(err, errAsItIs) && as != nil {
		return as, nil
	}
	return published, err
}

var errAsItIs = errors.New("the map says so already")

// asks has shards ask routers for a version of the map.
func asks(version uint64, shards []string) []topology.Change {
	changes := make([]topology.Change, len(shards))
	for i, name := range shards {
		changes[i] = topology.UpdateShard(name, func(spec *topology.ShardSpec) { spec.MinimumVersion = max(spec.MinimumVersion, version) })
	}
	return changes
}

// changes are those of a map after which it says something of all that the move moves. Ranges are split where the move's begin and end.
func (m *Move) changes(next mark) []topology.Change {
	if m.IsWhole() {
		return m.changesWhole(next)
	}
	var changes []topology.Change
	if len(m.Ranges) > 0 {
		parts := make([]topology.RangeSpec, len(m.Ranges))
		for i, r := range m.Ranges {
			parts[i] = topology.RangeSpec{From: r.From, To: r.To, Shard: next.owner, Copies: next.copies(), Held: next.held}
		}
		changes = append(changes, topology.GiveRanges(m.Keyspace, parts...))
	}
	var pins []topology.PinSpec
	for _, p := range m.Pins {
		pins = append(pins, topology.PinSpec{Key: p, Shard: next.owner, Copies: next.copies(), Held: next.held})
	}
	if len(pins) > 0 {
		changes = append(changes, topology.SetPins(m.Keyspace, pins...))
	}
	return changes
}

func (k mark) copies() []topology.CopySpec {
	if k.copyOn == "" {
		return nil
	}
	return []topology.CopySpec{{Shard: k.copyOn, State: k.state}}
}

// selection is the set of keys that moves, as rows have them.
func (m *Move) selection(now *topology.Map) (shard.Selection, error) {
	if m.IsWhole() {
		return shard.Everything(), nil
	}
	k := now.Keyspace(m.Keyspace)
	if k == nil {
		return shard.Selection{}, &topology.NotFoundError{Kind: "keyspace", Name: m.Keyspace}
	}
	divided, err := now.Next(m.changes(plain(m.Source))...) // whoever owns it: only where it begins and ends counts
	if err != nil {
		return shard.Selection{}, err
	}
	k = divided.Keyspace(m.Keyspace)
	type beginning struct {
		hash uint64
		key  string
	}
	begins, pinned := map[beginning]bool{}, map[string]bool{}
	for _, r := range m.Ranges {
		ranges, err := k.RangesIn(r.From, r.To)
		if err != nil {
			return shard.Selection{}, err
		}
		for one := range ranges {
			begins[beginning{one.Hash.Lo, one.Key.Lo}] = true
		}
	}
	for _, key := range m.Pins {
		encoded, err := k.Encode(key)
		if err != nil {
			return shard.Selection{}, err
		}
		pinned[encoded] = true
	}
	return shard.Select(k, func(r topology.Range) bool { return begins[beginning{r.Hash.Lo, r.Key.Lo}] }, func(p topology.Pin) bool { return pinned[p.Encoded] })
}

// tables are the sharded tables of the keyspace, or those that move as a whole.
func (m *Move) tables(now *topology.Map) []*topology.Table {
	var tables []*topology.Table
	for _, t := range now.Tables() {
		if m.IsWhole() {
			if t.Kind() == topology.Single && slices.Contains(m.Whole, t.Name().String()) {
				tables = append(tables, t)
			}
			continue
		}
		if t.Kind() == topology.Sharded && t.Keyspace().Name() == m.Keyspace {
			tables = append(tables, t)
		}
	}
	return tables
}

func namesOf(tables []*topology.Table) []topology.TableName {
	names := make([]topology.TableName, len(tables))
	for i, t := range tables {
		names[i] = t.Name()
	}
	return names
}

// tableTexts are the names of the keyspace's tables, in their order.
func (m *Move) tableTexts(now *topology.Map) []string {
	var texts []string
	for _, name := range namesOf(m.tables(now)) {
		texts = append(texts, name.String())
	}
	return texts
}
