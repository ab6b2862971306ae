package plan

import (
	"slices"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
)

// evaluate refuses definitions that run code which may reach sharded tables: at once, or later and unseen because temporary
// relations are not in the catalogue. What others keep to run later, the catalogue tells of those who then use it.
func (d *definition) evaluate() {
	d.refuseHiddenBehindTemporary()
	if d.definesTemporary() || evaluates(d.s) {
		d.surveyCode(d.s)
	}
	if evaluatesKept(d.s) {
		for _, t := range d.s.Tables {
			r := d.p.resolve(t)
			refuseHiddenWrite(&r, d.out)
		}
	}
}

// surveyCode asks of the functions, operators and types of a definition what a query's would be asked.
func (d *definition) surveyCode(s *facts.Statement) {
	v := &survey{p: d.p, s: s, out: d.out}
	for _, t := range s.Tables {
		v.tables = append(v.tables, d.p.resolve(t))
	}
	v.calls(s)
	d.out.Taints, d.out.mayDefine = d.out.Taints || v.taints, d.out.mayDefine || v.mayDefine
	if len(d.out.Virtual) > 0 {
		d.out.refuse("router-function-place", pgerr.New(pgerr.FeatureNotSupported, "a function of the router is not supported in %s", s.Name).
			WithDetail("The router answers it, and shards do not know it.").WithHint("Call it by itself, and use its result."))
	}
}

// evaluates says whether a definition computes expressions that it has in it.
func evaluates(s *facts.Statement) bool {
	switch s.Kind {
	case "CreateStmt":
		return s.Options.Bounds
	case "AlterTableStmt":
		return slices.ContainsFunc(s.Object.Actions, func(action string) bool { return action != "ColumnDefault" })
	case "IndexStmt", "CreateStatsStmt":
		return true
	case "DefineStmt": // the first value of an aggregate is read
		return s.Object.Type == "AGGREGATE"
	}
	return false
}

// evaluatesKept says whether a definition computes expressions that the table has had before, such as constraints.
func evaluatesKept(s *facts.Statement) bool {
	return s.Kind == "AlterTableStmt" && slices.ContainsFunc(s.Object.Actions, func(action string) bool {
		return slices.Contains([]string{"AlterColumnType", "ValidateConstraint", "SetExpression", "AttachPartition"}, action)
	})
}

// definesTemporary says whether a definition makes or changes a temporary relation.
func (d *definition) definesTemporary() bool {
	switch d.s.Kind {
	case "CommentStmt", "GrantStmt", "DropStmt", "RenameStmt":
		return false
	}
	return slices.ContainsFunc(d.s.Tables, func(t facts.Table) bool {
		r := d.p.resolve(t)
		if t.Role == facts.Created {
			r = d.p.resolveNew(t, d.s.Options.Temporary)
		}
		return r.class == temporary && (t.Role == facts.Created || t.Role == facts.Subject)
	})
}

// refuseHiddenBehindTemporary refuses what would run whenever a temporary relation is used, and the router could not tell.
func (d *definition) refuseHiddenBehindTemporary() {
	if !d.definesTemporary() {
		return
	}
	switch d.s.Kind {
	case "CreateTrigStmt", "RuleStmt", "CreatePolicyStmt", "AlterPolicyStmt":
		if d.p.declared {
			d.out.refuse("code-behind-temporary", pgerr.New(pgerr.FeatureNotSupported, "%s on a temporary table is not supported while there are sharded or reference tables", d.s.Name).
				WithDetail("What it runs may read or write them unseen, on one shard only.").WithHint("Use a table that is not temporary."))
		}
	}
	for _, t := range d.s.Tables {
		d.refuseCopiedCode(t)
	}
	if d.s.Inner == nil {
		return
	}
	for _, t := range d.s.Inner.Tables {
		d.refuseCopiedCode(t)
	}
}

// refuseCopiedCode refuses a temporary table that takes after one behind which there is code: with the columns come their
// types, and maybe their defaults and checks.
func (d *definition) refuseCopiedCode(t facts.Table) {
	r := d.p.resolve(t)
	if t.Role == facts.Created || t.Role == facts.Subject || r.relation == nil || r.relation.WritesRun == "" || !d.p.sharded {
		return
	}
	made := "table"
	if d.s.Kind == "ViewStmt" {
		made = "view"
	}
	d.out.refuse("code-behind-temporary", pgerr.New(pgerr.FeatureNotSupported, "a temporary %s made from %s is not supported while there are sharded tables", made, r.title()).
		WithDetail("Writing to that one runs %s, and writing to the new one might, unseen by the router.", r.relation.WritesRun).
		WithHint("Create the temporary table with its columns first, and then INSERT … SELECT into it."))
}
