package plan

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/placement/key"
)

// family is a set of types whose equal values have equal hashes, and between which equality is transitive.
type family uint8

const (
	// noFamily: a type that no key can have.
	noFamily family = iota
	integers
	texts
	uuids
	dates
	timestamps
	byteas
)

func familyOfKey(t key.Type) family {
	switch t {
	case key.Bigint, key.Integer, key.Smallint:
		return integers
	case key.Text, key.Varchar:
		return texts
	case key.UUID:
		return uuids
	case key.Date:
		return dates
	case key.Timestamptz:
		return timestamps
	case key.Bytea:
		return byteas
	default:
		return noFamily
	}
}

// sameFamily says whether equal values of two types have the same hash.
func sameFamily(a, b key.Type) bool {
	return familyOfKey(a) == familyOfKey(b)
}

func (c *Column) family() family {
	if t, known := keyTypes[c.TypeOID]; known && !c.Nondeterministic {
		return familyOfKey(t)
	}
	return noFamily
}

// column is a column in one place of a statement: of a table that is named there, of a query's result, of a source that stands for
// such a result. What is known of it holds for every row that can matter: its value there is NULL or what the finding says.
//
// Rows that cannot matter are those that could be taken away without a change of the answer. So the findings of all columns hold
// together: each was found in a statement from which the rows that the others rule out had been taken.
type column struct {
	// title is what it is called in reasons.
	title  string
	family family
	// computed: it is an operand in the text, whose type nobody decided; its only finding is the operand itself.
	computed bool
	// oid and mod are its type.
	oid uint32
	mod int32
	// number is that of the source whose column it is.
	number int
	known  []finding
}

// finding is a fact about a column and where it comes from.
type finding struct {
	fact *fact
	// from is the column that it was found equal to; nil if the text says it of this one. where is the clause.
	from  *column
	where string
}

// fact says which values a column can have.
type fact struct {
	relation relation
	// members are one or several values of which it has one, or the bound that the relation names.
	members []member
	// choice is shared by facts that say in parallel what several columns are; nil if there is one member.
	choice *choice
	// stored: the value is what the member becomes when it is stored in a column of this type; nil for one that it is compared with.
	stored *KeyPart
	// driver: the value is that of this key column of the row at hand.
	driver *occurrence
	part   int
	// slotsOf: the value is a key of one of the slots that the ids of this occurrence carry.
	slotsOf *occurrence
	// made: the value is a key that the shard makes on which the statement runs.
	made bool
}

// choice is the identity of a list.
type choice struct{ _ byte }

// relation is how a column's value stands to a fact's members.
type relation uint8

const (
	equals relation = iota
	below
	atMost
	above
	atLeast
)

var relations = map[string]relation{"=": equals, "<": below, "<=": atMost, ">": above, ">=": atLeast}

// member is one value.
type member struct {
	value facts.Operand
	// each: it is an array, and its elements are the values. listed: its type is decided together with those of others.
	each, listed bool
}

// maxKnown is how many findings are kept of a column: others would be as good.
const maxKnown = 6

// add notes a finding; false if it is not new.
func (c *column) add(f finding) bool {
	if len(c.known) >= maxKnown && f.fact.driver == nil || slices.ContainsFunc(c.known, func(k finding) bool { return k.fact.same(f.fact) }) {
		return false
	}
	c.known = append(c.known, f)
	return true
}

// has says whether a fact is among those that are known.
func (c *column) has(f *fact) bool {
	return c != nil && slices.ContainsFunc(c.known, func(k finding) bool { return k.fact.same(f) })
}

// isOne says whether the fact is an equality with one value.
func (f *fact) isOne() bool {
	return f.relation == equals && len(f.members) == 1 && !f.members[0].each
}

// isKey says whether the fact says which values a column can have, one by one.
func (f *fact) isKey() bool { return f.relation == equals && len(f.members) > 0 }

func (f *fact) same(g *fact) bool {
	if f == g {
		return true
	}
	if f.relation != g.relation || f.driver != g.driver || f.part != g.part || len(f.members) != 1 || len(g.members) != 1 || !sameStored(f.stored, g.stored) {
		return false
	}
	a, b := &f.members[0], &g.members[0]
	return a.each == b.each && sameOperand(&a.value, &b.value)
}

func sameStored(a, b *KeyPart) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Type == b.Type && a.TypeMod == b.TypeMod
}

// familyOfOperand is that of a value whose text alone tells its type: a number without a fraction, or what is cast.
func (p *planner) familyOfOperand(o *facts.Operand) family {
	if len(o.Casts) > 0 {
		t := o.Casts[len(o.Casts)-1]
		if t.Array || t.Schema != "pg_catalog" && (t.Schema != "" || !p.trustsBuiltins()) {
			return noFamily
		}
		keyType, known := keyTypes[typeOIDs[t.Name]]
		if !known {
			return noFamily
		}
		return familyOfKey(keyType)
	}
	if o.Kind == facts.Constant && o.Number && strings.Trim(o.Text, "-0123456789") == "" {
		return integers
	}
	return noFamily
}

// sameOperand says whether two operands are one and the same: the same place in the text, or the same parameter. Literals in two
// places may differ in another text that shares the plan.
func sameOperand(a, b *facts.Operand) bool {
	if a.Kind != b.Kind || !slices.EqualFunc(a.Casts, b.Casts, sameType) {
		return false
	}
	switch a.Kind {
	case facts.Constant:
		return a.Start == b.Start
	case facts.Param:
		return a.Param == b.Param
	case facts.Fixed:
		return a.Text == b.Text
	case facts.Null, facts.True, facts.False:
		return true
	default:
		return false
	}
}

func sameType(a, b facts.Type) bool {
	return a.Schema == b.Schema && a.Name == b.Name && a.Array == b.Array && a.HasMods == b.HasMods && slices.Equal(a.Mods, b.Mods)
}
