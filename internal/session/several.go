package session

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/cleavedb/cleave/internal/binding"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/placement/key"
)

// severalShards stands for the shards of a statement that needs more than one: they are in the session's wanted.
const severalShards = -2

// maxCombinations bounds how many keys one statement can name by combining lists.
const maxCombinations = 100_000

// several finds the shards of a statement whose keys are many, or that are all of them.
func (s *session) several(st *plan.Statement, src source) (int, *pgerr.Error) {
	route := &st.Route
	keyspace := s.currentMap().Keyspace(route.Keyspace)
	if keyspace == nil {
		return noShard, pgerr.New(pgerr.InternalError, "keyspace %q is not in the shard map", route.Keyspace)
	}
	if keyspace.Holds() {
		var refused *pgerr.Error
		if keyspace, refused = s.awaitKeyspace(route); refused != nil {
			return noShard, refused
		}
	}
	s.wanted, s.rowShards, s.placing = s.wanted[:0], s.rowShards[:0], placing{}
	for i := range route.Keys {
		before := len(s.rowShards)
		if refused := s.addKeys(keyspace, route, route.Keys[i], src); refused != nil {
			return noShard, refused
		}
		if i < route.RowKeys && len(s.rowShards) == before {
			// No shard takes such a row, and each says why.
			s.rowShards = append(s.rowShards, s.anyOf(s.wanted))
			s.want(s.rowShards[before])
		}
	}
	if refused := s.addRanges(keyspace, route, src); refused != nil {
		return noShard, refused
	}
	s.placeMade(keyspace)
	if keyspace.Closes() && len(s.wanted) > 0 && keyspace.Closes(s.wanted...) {
		if _, refused := s.awaitKeyspace(route); refused != nil {
			return noShard, refused
		}
		return s.several(st, src)
	}
	slices.Sort(s.wanted)
	switch {
	case len(s.wanted) == 0:
		return s.anywhere(nothing), nil
	case len(s.wanted) == 1:
		return s.wanted[0], nil
	case mayCompose(st) && (route.Parts == plan.Whole || s.skipsRows(st, src)):
		s.counts.on = false // its keys have been
		return s.placeComposed(st, src)
	case route.Parts == plan.Whole:
		return noShard, s.placing.explained(undivided(route))
	}
	return severalShards, nil
}

// mayCompose says whether a statement is run in steps if its keys turn out to be on several shards. What it gives is asked of its text then, in which there must be no other.
func mayCompose(st *plan.Statement) bool {
	return st.Composition != nil && st.Route.Level == plan.Several && (st.Route.Parts == plan.Whole || st.Route.Skips != nil)
}

func undivided(route *plan.Route) *pgerr.Error {
	if route.Undivided != nil {
		return route.Undivided
	}
	return pgerr.New(pgerr.FeatureNotSupported, "a statement over several shards is not supported yet").
		WithDetail("The keys of %s that it names are on several shards.", route.Table).WithHint("Run it for the keys of one shard at a time.")
}

// anyOf is a shard that is needed already, or the home shard.
func (s *session) anyOf(shards []int) int {
	if len(shards) > 0 {
		return shards[0]
	}
	return s.home()
}

func (s *session) want(shard int) {
	if !slices.Contains(s.wanted, shard) {
		s.wanted = append(s.wanted, shard)
	}
}

// addKeys adds the shards of one key, or of all that its lists stand for.
func (s *session) addKeys(keyspace *topology.Keyspace, route *plan.Route, parts []plan.KeyPart, src source) *pgerr.Error {
	switch {
	case parts[0].Floor != 0:
		return s.addID(keyspace, route, &parts[0], src)
	case slices.ContainsFunc(parts, func(p plan.KeyPart) bool { return p.Operand.Kind == plan.IsDefault }):
		s.rowShards = append(s.rowShards, noShard) // it is chosen when those of the others are known
		return nil
	}
	if len(parts) == 1 && !parts[0].Each {
		return s.addKey(keyspace, route, &parts[0], src)
	}
	choices := make([][]key.Value, len(parts))
	count := 1
	for i := range parts {
		values, refused := s.keyValues(&parts[i], src)
		if refused != nil {
			return refused
		}
		if choices[i] = values; len(values) == 0 {
			return nil
		}
		if count *= len(values); count > maxCombinations {
			return pgerr.New(pgerr.ProgramLimitExceeded, "the statement names more than %d keys", maxCombinations)
		}
	}
	chosen := make([]key.Value, len(parts))
	return s.eachCombination(choices, chosen, 0, func() *pgerr.Error {
		shard, refused := s.locate(keyspace, route, chosen)
		if refused == nil {
			s.want(shard)
			s.rowShards = append(s.rowShards, shard)
		}
		return refused
	})
}

// addKey adds the shard of a key of one column. It takes no memory: an INSERT has one for each row.
func (s *session) addKey(keyspace *topology.Keyspace, route *plan.Route, part *plan.KeyPart, src source) *pgerr.Error {
	value, outcome, refused := s.keyValue(part, src)
	if refused != nil || outcome != binding.Bound {
		return s.unbound(part, outcome, refused)
	}
	s.oneKey[0] = value
	shard, refused := s.locate(keyspace, route, s.oneKey[:])
	if refused == nil {
		s.want(shard)
		s.rowShards = append(s.rowShards, shard)
	}
	return refused
}

func (s *session) eachCombination(choices [][]key.Value, chosen []key.Value, at int, do func() *pgerr.Error) *pgerr.Error {
	if at == len(choices) {
		return do()
	}
	for _, value := range choices[at] {
		chosen[at] = value
		if refused := s.eachCombination(choices, chosen, at+1, do); refused != nil {
			return refused
		}
	}
	return nil
}

// keyValues binds one part of a key: to one value, to several if it is a list, to none if no row can have it.
func (s *session) keyValues(part *plan.KeyPart, src source) ([]key.Value, *pgerr.Error) {
	if part.Each {
		return s.listValues(part, src)
	}
	value, outcome, refused := s.keyValue(part, src)
	if refused != nil || outcome != binding.Bound {
		return nil, s.unbound(part, outcome, refused)
	}
	return []key.Value{value.Clone()}, nil
}

// unbound is nil if every shard gives the right answer for what could not be bound.
func (s *session) unbound(part *plan.KeyPart, outcome binding.Outcome, refused *pgerr.Error) *pgerr.Error {
	switch {
	case refused != nil:
		return refused
	case outcome == binding.Null, outcome == binding.AnyShard:
		return nil
	default:
		return pgerr.New(pgerr.InternalError, "key column %q could not be bound", part.Column)
	}
}

// addRanges adds the shards that own something between bounds, or anything at all.
func (s *session) addRanges(keyspace *topology.Keyspace, route *plan.Route, src source) *pgerr.Error {
	if !route.All && len(route.Bounds) == 0 {
		return nil
	}
	if keyspace.Keys() == nil || route.All {
		s.addOwners(keyspace)
		return nil
	}
	interval, empty, refused := s.interval(route.Bounds, src)
	if refused != nil || empty {
		return refused
	}
	for _, number := range keyspace.Keys().Between(nil, interval) {
		s.want(number)
	}
	s.addPins(keyspace)
	if s.counts.on {
		s.counts.count(s.server.config.Traffic.Everywhere(keyspace))
	}
	return nil
}

// addOwners adds all shards that own something of a keyspace.
func (s *session) addOwners(keyspace *topology.Keyspace) {
	for r := range keyspace.Ranges() {
		s.want(r.Owner.Number())
	}
	s.addPins(keyspace)
	if s.counts.on {
		s.counts.count(s.server.config.Traffic.Everywhere(keyspace))
	}
}

func (s *session) addPins(keyspace *topology.Keyspace) {
	if keyspace.PinCount() == 0 {
		return
	}
	for p := range keyspace.Pins() {
		s.want(p.Owner.Number())
	}
}

// interval is what is between all bounds; empty if no key is.
func (s *session) interval(bounds []plan.Bound, src source) (interval placement.KeyRange, empty bool, refused *pgerr.Error) {
	for i := range bounds {
		part := bounds[i].Part
		part.Ordered = true
		value, outcome, refused := s.keyValue(&part, src)
		switch {
		case refused == nil && outcome == binding.AnyShard: // keys may well be below or above what is no key: it bounds nothing
			continue
		case refused != nil || outcome != binding.Bound:
			return interval, true, s.unbound(&bounds[i].Part, outcome, refused)
		}
		at := string(value.AppendOrdered(nil))
		beyond := successor(at) // of all keys that begin with this value
		switch b := &bounds[i]; {
		case b.Upper && b.Inclusive:
			interval.Hi = lower(interval.Hi, beyond)
		case b.Upper:
			interval.Hi = lower(interval.Hi, at)
			if at == "" {
				return interval, true, nil
			}
		case b.Inclusive:
			interval.Lo = max(interval.Lo, at)
		default:
			interval.Lo = max(interval.Lo, beyond)
			if beyond == "" {
				return interval, true, nil
			}
		}
	}
	return interval, interval.Hi != "" && interval.Hi <= interval.Lo, nil
}

// lower returns the lower of two upper bounds; an empty one is none.
func lower(a, b string) string {
	if a == "" || b != "" && b < a {
		return b
	}
	return a
}

// successor is the first text that sorts behind all that begin with a prefix; empty if there is none.
func successor(prefix string) string {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < math.MaxUint8 {
			b[i]++
			return string(b[:i+1])
		}
	}
	return ""
}

// everyShard is for what all shards have to run.
func (s *session) everyShard() (int, *pgerr.Error) {
	s.wanted = s.wanted[:0]
	for shard := range s.currentMap().Shards() {
		s.wanted = append(s.wanted, shard.Number())
	}
	slices.Sort(s.wanted)
	switch len(s.wanted) {
	case 0:
		return noShard, errNoShards
	case 1:
		return s.wanted[0], nil
	}
	return severalShards, nil
}

// elementTypes are PostgreSQL's own arrays of types that keys may be compared with, and the types of their elements.
var elementTypes = map[uint32]uint32{
	1005: 21, 1007: 23, 1016: 20, 1009: 25, 1015: 1043, 1014: 1042, 2951: 2950, 1182: 1082, 1185: 1184, 1115: 1114, 1001: 17, 1231: 1700, 1021: 700, 1022: 701,
}

// listValues binds the elements of an array.
func (s *session) listValues(part *plan.KeyPart, src source) ([]key.Value, *pgerr.Error) {
	elements, refused := s.elements(part, src)
	if refused != nil {
		return nil, refused
	}
	one := *part
	one.Each, one.Operand = false, plan.Operand{Kind: plan.FromParam, Param: 1, CastMod: -1}
	var values []key.Value
	for _, element := range elements {
		s.params = append(s.params[:0], element)
		value, outcome, refused := binding.Value(&one, &noLiterals, nil, s.params, s.reading)
		if refused == nil && outcome == binding.Ask {
			value, outcome, refused = s.askValue(&one, &noLiterals, nil)
		}
		switch {
		case refused != nil:
			return nil, refused
		case outcome == binding.Bound:
			values = append(values, value.Clone())
		} // else no row has such a key, or the array is wrong and every shard says so
	}
	return values, nil
}

func noArray(part *plan.KeyPart) *pgerr.Error {
	return pgerr.New(pgerr.FeatureNotSupported, "this form of array for key column %q is not supported yet", part.Column).
		WithDetail("The router takes it apart, since its elements may be on different shards.").
		WithHint("Use an array of one dimension, as a parameter or a literal of the column's type, or IN (…).")
}

// elements takes an array apart.
func (s *session) elements(part *plan.KeyPart, src source) ([]binding.Param, *pgerr.Error) {
	operand := &part.Operand
	switch {
	case operand.Kind == plan.IsNull:
		return nil, nil
	case operand.Kind == plan.FromLiteral:
		scan, text, refused := src.literals(s.standardConforming())
		if refused != nil {
			return nil, refused
		}
		value, readable := scan.Value(text, operand.Literal)
		if !readable {
			return nil, noArray(part)
		}
		return textElements(part, value, elementTypes[operand.CastOID])
	case operand.Kind != plan.FromParam:
		return nil, noArray(part)
	case src.outer != nil:
		return s.argumentElements(part, src)
	}
	if refused := s.takeParam(operand.Param, src); refused != nil {
		return nil, refused
	}
	if operand.Param > len(s.params) || s.params[operand.Param-1].Null {
		return nil, nil
	}
	array := s.params[operand.Param-1]
	if array.Binary {
		return binaryElements(part, array.Value)
	}
	element := elementTypes[array.OID]
	if element == 0 {
		return nil, noArray(part)
	}
	return textElements(part, array.Value, element)
}

// argumentElements takes the array apart that EXECUTE gives a parameter.
func (s *session) argumentElements(part *plan.KeyPart, src source) ([]binding.Param, *pgerr.Error) {
	number := part.Operand.Param
	if number > len(src.arguments) {
		return nil, nil // every shard says that there are too few
	}
	array, argument := uint32(0), src.arguments[number-1]
	if number <= len(src.types) {
		array = src.types[number-1]
	}
	element := elementTypes[array]
	switch {
	case argument.Kind == plan.IsNull:
		return nil, nil
	case argument.Kind != plan.FromLiteral || element == 0, argument.CastOID != 0, part.Operand.CastOID != 0 && part.Operand.CastOID != array:
		return nil, noArray(part)
	}
	scan, text, refused := src.outer.literals(s.standardConforming())
	if refused != nil {
		return nil, refused
	}
	value, readable := scan.Value(text, argument.Literal)
	if !readable || scan.Literals[argument.Literal].Kind == sqltext.Integer || scan.Literals[argument.Literal].Kind == sqltext.Float {
		return nil, noArray(part)
	}
	return textElements(part, value, element)
}

// binaryElements reads an array in binary format.
func binaryElements(part *plan.KeyPart, array []byte) ([]binding.Param, *pgerr.Error) {
	const header, dimension = 12, 8
	if len(array) < header {
		return nil, noArray(part)
	}
	dimensions, oid := binary.BigEndian.Uint32(array), binary.BigEndian.Uint32(array[8:])
	if dimensions == 0 {
		return nil, nil
	}
	if dimensions != 1 || len(array) < header+dimension {
		return nil, noArray(part)
	}
	count := binary.BigEndian.Uint32(array[header:])
	rest := array[header+dimension:]
	var elements []binding.Param
	for range count {
		if len(rest) < 4 {
			return nil, noArray(part)
		}
		size := int32(binary.BigEndian.Uint32(rest))
		rest = rest[4:]
		if size < 0 {
			elements = append(elements, binding.Param{Null: true, Binary: true, OID: oid})
			continue
		}
		if int(size) > len(rest) {
			return nil, noArray(part)
		}
		elements = append(elements, binding.Param{Value: rest[:size], Binary: true, OID: oid})
		rest = rest[size:]
	}
	return elements, nil
}

// textElements reads an array in text format, delimited by commas as those of all types of keys are.
func textElements(part *plan.KeyPart, array []byte, oid uint32) ([]binding.Param, *pgerr.Error) {
	read, ok := (&arrayReader{text: array}).elements()
	if !ok {
		return nil, noArray(part)
	}
	elements := make([]binding.Param, 0, len(read))
	for _, e := range read {
		elements = append(elements, binding.Param{Value: e.value, Null: e.null, OID: oid})
		if e.null && part.IsText() { // with array_nulls off it is a word
			elements = append(elements, binding.Param{Value: e.value, OID: oid})
		}
	}
	return elements, nil
}
