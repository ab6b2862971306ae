package plan

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// ofSequence says which declared table takes its numbers from a sequence; nil if none does, or if it is no sequence. Every shard that has
// the table has the sequence too.
func (d *definition) ofSequence(r *resolved) *resolved {
	if !isSequence(r) {
		return nil
	}
	var served *resolved
	for _, name := range r.relation.Serves {
		t := d.p.Map.Table(name.Schema, name.Name)
		switch {
		case t == nil, t.Kind() == topology.Single:
		case t.Kind() == topology.Sharded:
			return &resolved{Table: r.Table, relation: r.relation, table: t, class: sharded}
		default:
			served = &resolved{Table: r.Table, relation: r.relation, table: t, class: reference}
		}
	}
	return served
}

func isSequence(r *resolved) bool { return r.relation != nil && r.relation.Kind == 'S' }

// changeSequence sees whether a sequence of a declared table can be changed in this way.
func (d *definition) changeSequence(r *resolved) {
	switch d.s.Kind {
	case "GrantStmt", "CommentStmt", "SecLabelStmt":
	case "AlterSeqStmt":
		d.recount(r)
	case "AlterTableStmt":
		if slices.ContainsFunc(d.s.Object.Actions, func(action string) bool { return action != "ChangeOwner" }) {
			d.refuseSequence(r, d.s.Name)
		}
	default:
		d.refuseSequence(r, d.s.Name)
	}
}

// countsAlike are the options of a sequence under which it goes on giving the numbers that it would have given. A reference table's numbers
// all come from the home shard's, and the others are its copies: they may be changed alike.
var (
	countsAlike  = []string{"cache", "generated"}
	countsAtHome = []string{"cache", "generated", "restart", "increment", "start", "cycle"}
)

// recount refuses options of a sequence that decide which numbers it gives.
func (d *definition) recount(r *resolved) {
	allowed := countsAlike
	if r.table.Kind() == topology.Reference {
		allowed = countsAtHome
	}
	for _, option := range d.s.Object.Counting {
		if !slices.Contains(allowed, option) {
			d.refuseSequence(r, d.s.Name+" … "+strings.ToUpper(strings.ReplaceAll(option, "_", " ")))
			return
		}
	}
}

func (d *definition) refuseSequence(r *resolved, what string) {
	why := "Every shard has a sequence of that name with bounds of its own, so that no number is given twice."
	if r.table.Kind() == topology.Reference {
		why = "The home shard's gives all numbers, and every other shard has one of that name that need not stand where it stands."
	}
	hint := "cleave.undistribute_table brings the table back to the home shard, where its sequence can be changed in any way."
	if slices.Contains(d.s.Object.Counting, "restart") {
		hint = "SELECT setval(…) makes it go on above a number. " + hint
	}
	d.out.refuse("sequence-of-declared", pgerr.New(pgerr.FeatureNotSupported, "%s is not supported on a sequence of a %s table", what, string(r.table.Kind())).
		WithDetail("%s takes its numbers from it. %s", r.title(), why).WithHint("%s", hint))
}
