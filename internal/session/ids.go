package session

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/cleavedb/cleave/idgen"
	"github.com/cleavedb/cleave/internal/binding"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

// layout is how a table's numbers carry the slot of their row's key.
var layout = idgen.DefaultLayout()

// placing is how the shards of a statement were found, as far as ids have to do with it.
type placing struct {
	// part is that of the last id, and id its value; nil: there is none. told: the id says where its row is.
	part     *plan.KeyPart
	id       int64
	told     bool
	keyspace string
}

// explained adds, to why a statement cannot run on several shards, that an id said nothing.
func (p *placing) explained(refusal *pgerr.Error) *pgerr.Error {
	if p.part == nil || p.told {
		return refusal
	}
	return pgerr.New(refusal.Code, "%s", refusal.Message).
		WithDetail("%s = %d does not tell where its row is: only numbers from %d on do. %s", p.part.Column, p.id, p.part.Floor, refusal.Detail).
		WithHint("%s", refusal.Hint)
}

// reason says, for EXPLAIN, what an id has told; empty if there was none.
func (p *placing) reason() string {
	switch {
	case p.part == nil:
		return ""
	case p.told:
		return fmt.Sprintf("%s = %d carries slot %d of keyspace %s", p.part.Column, p.id, layout.SlotOfID(p.id), p.keyspace)
	default:
		return fmt.Sprintf("%s = %d carries no slot: only numbers from %d on do", p.part.Column, p.id, p.part.Floor)
	}
}

// addID adds the shards on which rows with an id can be, or with any of a list.
func (s *session) addID(keyspace *topology.Keyspace, route *plan.Route, part *plan.KeyPart, src source) *pgerr.Error {
	if part.Each {
		return s.addIDs(keyspace, route, part, src)
	}
	value, outcome, refused := s.keyValue(part, src)
	switch {
	case refused != nil && refused.Code == pgerr.FeatureNotSupported: // of another type: what it equals cannot be told, but every shard can
		s.addOwners(keyspace)
		return nil
	case refused != nil || outcome != binding.Bound:
		return s.unbound(part, outcome, refused)
	}
	return s.addSlot(keyspace, route, part, integerOf(value))
}

func (s *session) addIDs(keyspace *topology.Keyspace, route *plan.Route, part *plan.KeyPart, src source) *pgerr.Error {
	values, refused := s.listValues(part, src)
	switch {
	case refused != nil && refused.Code == pgerr.FeatureNotSupported:
		s.addOwners(keyspace)
		return nil
	case refused != nil:
		return refused
	}
	for _, value := range values {
		if refused := s.addSlot(keyspace, route, part, integerOf(value)); refused != nil {
			return refused
		}
	}
	return nil
}

// integerOf is the number that a value of an integer type is.
func integerOf(value key.Value) int64 {
	const signBit = 1 << 63
	var buffer [16]byte
	return int64(binary.BigEndian.Uint64(value.AppendOrdered(buffer[:0])) ^ signBit)
}

// addSlot adds the shards that own keys of the slot which an id carries; all that own something, if it carries none.
func (s *session) addSlot(keyspace *topology.Keyspace, route *plan.Route, part *plan.KeyPart, id int64) *pgerr.Error {
	if s.placing.part == nil || s.placing.told {
		s.placing.part, s.placing.id, s.placing.told, s.placing.keyspace = part, id, id >= part.Floor, route.Keyspace
	}
	if id < part.Floor {
		s.addOwners(keyspace)
		return nil
	}
	first, last := layout.Hashes(layout.SlotOfID(id))
	var buffer [8]*topology.Shard
	owners, held := keyspace.AppendOwners(buffer[:0], first, last)
	if held {
		return s.addSlotLater(route, first, last)
	}
	if s.counts.on {
		s.counts.count(s.server.config.Traffic.OfHashes(keyspace, first, last))
	}
	for _, owner := range owners {
		s.want(owner.Number())
	}
	return nil
}

// addSlotLater adds the shards that own keys of a slot when it is clear who they are.
func (s *session) addSlotLater(route *plan.Route, first, last uint64) *pgerr.Error {
	return s.awaitOwner(route, func(keyspace *topology.Keyspace) bool {
		owners, held := keyspace.AppendOwners(nil, first, last)
		if held {
			return false
		}
		if s.counts.on {
			s.counts.count(s.server.config.Traffic.OfHashes(keyspace, first, last))
		}
		for _, owner := range owners {
			s.want(owner.Number())
		}
		return true
	})
}

// placeMade chooses the shard of rows whose keys the shard makes: one that other rows of the statement go to, so that it need not go to
// more.
func (s *session) placeMade(keyspace *topology.Keyspace) {
	made := noShard
	for i, shard := range s.rowShards {
		if shard != noShard {
			continue
		}
		if made == noShard {
			if at := slices.IndexFunc(s.wanted, func(number int) bool { return hasRoom(keyspace, number) }); at >= 0 {
				made = s.wanted[at]
			} else {
				made = s.anyOwner(keyspace)
			}
			s.want(made)
		}
		s.rowShards[i] = made
	}
}

// madeBy finds a shard for a statement that stores rows whose keys the shard makes.
func (s *session) madeBy(route *plan.Route) (int, *pgerr.Error) {
	keyspace := s.currentMap().Keyspace(route.Keyspace)
	if keyspace == nil {
		return noShard, pgerr.New(pgerr.InternalError, "keyspace %q is not in the shard map", route.Keyspace)
	}
	owner := s.anyOwner(keyspace)
	if keyspace.Holds() || keyspace.Closes(owner) {
		var refused *pgerr.Error
		if keyspace, refused = s.awaitKeyspace(route); refused != nil {
			return noShard, refused
		}
		owner = s.anyOwner(keyspace)
	}
	if s.counts.on {
		s.counts.count(s.server.config.Traffic.Somewhere(keyspace))
	}
	return owner, nil
}

// maxDraws is how often another shard is drawn if one is not at hand.
const maxDraws = 16

// anyOwner is a shard that owns keys: one that the transaction is on, so that it need not go to another, else one by chance, with the
// odds of what it owns.
func (s *session) anyOwner(keyspace *topology.Keyspace) int {
	if now := s.shardNow(); now >= 0 && hasRoom(keyspace, now) {
		return now
	}
	for _, l := range s.allLegNumbers() {
		if hasRoom(keyspace, l) {
			return l
		}
	}
	return drawOwner(keyspace)
}

// allLegNumbers are the shards that the transaction is on, in order.
func (s *session) allLegNumbers() []int {
	numbers := make([]int, 0, len(s.legs))
	for number := range s.legs {
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	return numbers
}

// drawOwner chooses a shard by chance: the owner of some hash. One that takes rows now is preferred, and a range whose owner stays.
func drawOwner(keyspace *topology.Keyspace) int {
	number := noShard
	for range maxDraws {
		hash := rand.Uint64() //nolint:gosec // any choice is right
		var buffer [2]*topology.Shard
		owners, held := keyspace.AppendOwners(buffer[:0], hash, hash)
		number = owners[0].Number()
		if !held && takesRows(owners[0]) {
			break
		}
	}
	return number
}

// hasRoom says whether a shard owns a range of a keyspace and takes rows now. Pins are no room for new keys.
func hasRoom(keyspace *topology.Keyspace, number int) bool {
	for r := range keyspace.Ranges() {
		if r.Owner.Number() == number {
			return takesRows(r.Owner)
		}
	}
	return false
}

func takesRows(shard *topology.Shard) bool {
	return shard.State() == topology.Active || shard.State() == topology.Draining
}
