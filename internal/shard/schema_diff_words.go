package shard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/sqltext"
)

// diffWords says what is different in two definitions of a table, on shards of these names. Whatever [Definition.differsFrom] finds
// is said, in general words if there are no better ones.
func diffWords(a, b *Definition, onA, onB string) []string {
	d := drift{a, b, strconv.Quote(onA), strconv.Quote(onB)}
	words := d.kinds()
	for _, part := range a.differsFrom(b) {
		more, known := d.part(part)
		if !known {
			more = []string{fmt.Sprintf("%s: not the same on shard %s and shard %s", part, d.onA, d.onB)}
		}
		words = append(words, more...)
	}
	return words
}

// drift is the difference of two definitions, with the quoted names of their shards.
type drift struct {
	a, b     *Definition
	onA, onB string
}

// kinds compares what a table must be to be declared at all.
func (d drift) kinds() []string {
	a, b := d.a.facts, d.b.facts
	return said(
		d.values("the kind of relation", a.Kind, b.Kind), d.values("the access method", a.AccessMethod, b.AccessMethod),
		d.values("the rules", a.Rules, b.Rules), d.values("being a partition", a.Partition, b.Partition),
		d.values("taking part in inheritance", a.Inherits, b.Inherits), d.values("being of a type", a.Typed, b.Typed),
	)
}

// part says what is different in a part that differsFrom has named, if it knows the part.
func (d drift) part(name string) (words []string, known bool) {
	a, b := d.a, d.b
	switch name {
	case "the columns":
		words = named(d, "column", a.Columns, b.Columns, func(c Column) string { return c.Name })
	case "the constraints":
		words = named(d, "constraint", a.Constraints, b.Constraints, func(c Constraint) string { return c.Name })
	case "the indexes":
		return d.indexes()
	case "the triggers":
		words = named(d, "trigger", a.Triggers, b.Triggers, func(t Trigger) string { return t.Name })
	case "the statistics":
		words = named(d, "statistics object", a.Statistics, b.Statistics, func(s Statistic) string { return s.Name })
	case "the sequences":
		words = named(d, "sequence", a.Sequences, b.Sequences, func(s Sequence) string { return s.Name })
	case "the privileges":
		words = named(d, "privilege", ownersGrants(a), ownersGrants(b), func(g Grant) string { return g.Privilege + " of " + g.To })
		return words, len(words) > 0 || a.Owner != b.Owner
	case "row-level security":
		words = d.security()
	case "the owner":
		words = said(d.values(name, a.Owner, b.Owner))
	case "the storage parameters":
		words = said(d.values(name, slices.Concat(a.Options, a.ToastOptions), slices.Concat(b.Options, b.ToastOptions)))
	case "the comment":
		words = said(d.values(name, a.Comment, b.Comment))
	}
	return words, len(words) > 0
}

// ownersGrants are a table's privileges, with those of its owner, and those that the owner gave, as the owner's, whoever that is.
func ownersGrants(d *Definition) []Grant {
	grants := slices.Clone(d.Grants)
	for i := range grants {
		for _, role := range []*string{&grants[i].To, &grants[i].By} {
			if *role == d.Owner || *role == sqltext.QuoteIdentifier(d.Owner) {
				*role = "the owner"
			}
		}
	}
	slices.SortFunc(grants, func(a, b Grant) int { return cmp.Or(cmp.Compare(a.To, b.To), cmp.Compare(a.Privilege, b.Privilege)) })
	return grants
}

// said leaves out where there is nothing to say.
func said(words ...string) []string {
	return slices.DeleteFunc(words, func(text string) bool { return text == "" })
}

// indexes leaves out those that come and go with a constraint: the constraints tell of it.
func (d drift) indexes() (words []string, known bool) {
	kept := func(list, other []Index) []Index {
		return slices.DeleteFunc(slices.Clone(list), func(i Index) bool {
			return i.Constraint != "" && !slices.ContainsFunc(other, func(o Index) bool { return o.Name == i.Name })
		})
	}
	a, b := kept(d.a.Indexes, d.b.Indexes), kept(d.b.Indexes, d.a.Indexes)
	words = named(d, "index", a, b, func(i Index) string { return i.Name })
	return words, len(words) > 0 || len(a) < len(d.a.Indexes) || len(b) < len(d.b.Indexes)
}

func (d drift) security() []string {
	words := said(d.values("row-level security", d.a.RowSecurity, d.b.RowSecurity), d.values("row-level security for the owner", d.a.ForceRowSecurity, d.b.ForceRowSecurity))
	return append(words, named(d, "policy", d.a.Policies, d.b.Policies, func(p Policy) string { return p.Name })...)
}

// named compares things that have names.
func named[T any](d drift, noun string, a, b []T, name func(T) string) []string {
	var words []string
	for _, one := range a {
		at := slices.IndexFunc(b, func(other T) bool { return name(other) == name(one) })
		switch {
		case at < 0:
			words = append(words, fmt.Sprintf("%s %q is missing on shard %s", noun, name(one), d.onB))
		case !equalJSON(one, b[at]):
			words = append(words, fmt.Sprintf("%s %q differs: %s", noun, name(one), d.fields(one, b[at])))
		}
	}
	for _, other := range b {
		if !slices.ContainsFunc(a, func(one T) bool { return name(one) == name(other) }) {
			words = append(words, fmt.Sprintf("%s %q is on shard %s and missing on shard %s", noun, name(other), d.onB, d.onA))
		}
	}
	if len(words) == 0 && !equalJSON(a, b) {
		words = append(words, fmt.Sprintf("each %s is there, but their order on shard %s is another than on shard %s", noun, d.onB, d.onA))
	}
	return words
}

// fields says which fields of two things with the same name differ.
func (d drift) fields(a, b any) string {
	left, right := fieldsOf(a), fieldsOf(b)
	var words []string
	for _, field := range slices.Sorted(maps.Keys(left)) {
		if said := d.values(strings.ReplaceAll(field, "_", " "), left[field], right[field]); said != "" {
			words = append(words, said)
		}
	}
	return strings.Join(words, "; ")
}

// fieldsOf returns the fields of a part of a definition, by their names in JSON.
func fieldsOf(part any) (fields map[string]json.RawMessage) {
	content, _ := json.Marshal(part) // parts came from JSON
	_ = json.Unmarshal(content, &fields)
	return fields
}

// values says what something is on both shards, or nothing if it is the same.
func (d drift) values(what string, a, b any) string {
	if equalJSON(a, b) {
		return ""
	}
	return fmt.Sprintf("%s: %s on shard %s, %s on shard %s", what, shownValue(a), d.onA, shownValue(b), d.onB)
}

// shownValue is a value for people: texts as they are, other things as JSON.
func shownValue(value any) string {
	content, _ := json.Marshal(value)
	var text string
	if json.Unmarshal(content, &text) == nil {
		return cmp.Or(text, "nothing")
	}
	switch string(content) {
	case "null", "[]", "{}":
		return "nothing"
	case "true":
		return "yes"
	case "false":
		return "no"
	}
	return string(bytes.ReplaceAll(content, []byte(`","`), []byte(`", "`)))
}
