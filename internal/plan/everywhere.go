package plan

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// globalKinds are statements about things that every shard has, because tables of all kinds may need them.
var globalKinds = []facts.Kind{
	"CreateRoleStmt", "AlterRoleStmt", "AlterRoleSetStmt", "DropRoleStmt", "GrantRoleStmt", "AlterDefaultPrivilegesStmt", "ReassignOwnedStmt", "DropOwnedStmt",
	"AlterDatabaseSetStmt", "CreateExtensionStmt", "AlterExtensionStmt", "CreateSchemaStmt", "CreateEnumStmt", "CompositeTypeStmt", "CreateRangeStmt", "CreateDomainStmt",
	"AlterEnumStmt", "AlterTypeStmt", "AlterDomainStmt", "CreateFunctionStmt", "AlterFunctionStmt", "DefineStmt", "CreateCastStmt", "CreateOpClassStmt",
	"CreateOpFamilyStmt", "AlterOpFamilyStmt", "AlterOperatorStmt", "AlterCollationStmt", "CreateConversionStmt", "CreatePLangStmt",
	"AlterTSDictionaryStmt", "AlterTSConfigurationStmt", "CreateTransformStmt", "CreateAmStmt", "AlterStatsStmt",
}

// globalTypes are the kinds of things that every shard has, as DROP, ALTER, GRANT and COMMENT call them.
var globalTypes = []string{
	"ROLE", "EXTENSION", "SCHEMA", "TYPE", "DOMAIN", "ATTRIBUTE", "FUNCTION", "PROCEDURE", "ROUTINE", "AGGREGATE", "OPERATOR", "OPERATOR CLASS", "OPERATOR FAMILY", "CAST",
	"COLLATION", "CONVERSION", "LANGUAGE", "TRANSFORM", "ACCESS METHOD", "TEXT SEARCH CONFIGURATION", "TEXT SEARCH DICTIONARY", "TEXT SEARCH PARSER", "TEXT SEARCH TEMPLATE",
	"TSCONFIGURATION", "TSDICTIONARY", "TSPARSER", "TSTEMPLATE", "DOMCONSTRAINT", "DOMAIN CONSTRAINT", "ALL IN SCHEMA", "PARAMETER ACL",
	"STATISTICS", // they are where their table is, which their name does not tell
}

// isGlobal says whether a statement is about something that every shard has.
func isGlobal(s *facts.Statement) bool {
	if slices.Contains(globalKinds, s.Kind) {
		return true
	}
	switch s.Kind {
	case "DropStmt", "RenameStmt", "AlterOwnerStmt", "AlterObjectSchemaStmt", "GrantStmt", "CommentStmt", "SecLabelStmt", "AlterTableStmt":
		return slices.Contains(globalTypes, s.Object.Type)
	}
	return false
}

// planEverySetting plans what concerns every server as a whole.
func planEverySetting(_ *planner, s *facts.Statement, out *Statement) {
	out.Route = Route{Level: Everywhere, Parts: Copies, Why: s.Name + " concerns every shard"}
}

// everywhere sends the definition to all shards.
func (d *definition) everywhere(why string) {
	d.out.Route = Route{Level: Everywhere, Parts: Copies, Why: why, Lenient: d.isLenient()}
}

// isLenient says whether a shard that does not have what the statement is about is passed over. If it is about several things it may have some of
// them, which must be dropped, and have the same rights, everywhere.
func (d *definition) isLenient() bool {
	several := len(d.s.Object.Names) > 1 && (d.s.Kind == "GrantStmt" || d.s.Kind == "DropStmt")
	return isGlobal(d.s) && !slices.Contains(strictKinds, d.s.Kind) && !several
}

// strictKinds make what needs nothing that a shard could lack.
var strictKinds = []facts.Kind{"CreateRoleStmt", "CreateExtensionStmt", "CreateSchemaStmt", "CreateEnumStmt"}

// onDeclared decides about a definition on declared tables: all shards have them, and change together.
func (d *definition) onDeclared() {
	first := &d.tables[0]
	if isGlobal(d.s) {
		d.refuseChange(first, "What it reads is on several shards.")
		return
	}
	switch d.s.Kind {
	case "CreateStmt": // of a partition, which is where its table is
		d.home = ""
	case "CreateStatsStmt", "AlterObjectSchemaStmt": // it is where its table is, and the new schema's name is none of a thing
		d.home = ""
	}
	if d.home != "" || d.shard != "" {
		other := d.home
		if other == "" {
			other = "shard " + d.shard
		}
		d.out.refuse("two-shards", pgerr.New(pgerr.FeatureNotSupported, "%s over things on several shards is not supported yet", d.s.Name).
			WithDetail("%s is on every shard, and %s is not.", first.title(), other).WithHint("Use a statement for each."))
		return
	}
	for i := range d.tables {
		name := d.tables[i].table.Name()
		d.out.Alters = append(d.out.Alters, RelationName{name.Schema, name.Name})
		d.changeDeclared(&d.tables[i])
	}
	d.everywhere("every shard has " + first.title())
}

// changeDeclared sees whether a declared table can be changed in this way.
func (d *definition) changeDeclared(r *resolved) {
	d.keepGuards(r)
	if isSequence(r) {
		d.changeSequence(r)
		return
	}
	switch d.s.Kind {
	case "AlterTableStmt":
		d.alterDeclared(r)
	case "RenameStmt":
		d.renameDeclared(r)
	case "CreateStmt":
		d.hold(r)
	case "DropStmt":
		d.dropDeclared(r)
	case "IndexStmt":
		d.checkConstraints(r)
		if d.s.Options.Concurrently {
			d.indexConcurrently(r)
		} else {
			d.hold(r)
			d.out.LockFirst = true
		}
	case "ClusterStmt", "ReindexStmt":
		if !d.s.Options.Concurrently {
			d.hold(r)
		}
	case "TruncateStmt":
		d.hold(r)
		d.out.HoldRight = "TRUNCATE"
	case "CreateTrigStmt":
		d.hold(r)
		d.out.HoldRight = "TRIGGER"
	case "CreatePolicyStmt", "AlterPolicyStmt":
		d.hold(r)
	case "CommentStmt", "GrantStmt", "CreateStatsStmt", "LockStmt", "VacuumStmt", "SecLabelStmt":
	default:
		d.refuseChange(r, "")
	}
}

// hold keeps everybody off a table until the definition is committed: all shards have to lock it, and whoever has a lock on one and wants
// another would wait for who waits for it, where no server sees that.
func (d *definition) hold(r *resolved) {
	d.out.Holds = append(d.out.Holds, RelationName{r.table.Name().Schema, r.table.Name().Name})
}

// indexConcurrently is about an index that is made shard by shard, so that some may have it already when the statement is run again.
func (d *definition) indexConcurrently(r *resolved) {
	if d.s.Object.NewName == "" {
		d.out.refuse("index-without-name", pgerr.New(pgerr.FeatureNotSupported, "CREATE INDEX CONCURRENTLY on a %s table needs the index's name", string(r.table.Kind())).
			WithDetail("It runs shard by shard, and has to find what is there already if it is run again.").WithHint("CREATE INDEX CONCURRENTLY name ON …"))
		return
	}
	d.p.plan.Uncacheable = true // the place depends on what stands before it
	d.out.Index = &Index{
		Name: topology.TableName{Schema: r.table.Name().Schema, Name: d.s.Object.NewName}.String(), Table: r.table.Name().String(),
		Unique: slices.ContainsFunc(d.s.Object.Constraints, func(c facts.Constraint) bool { return c.Kind == facts.UniqueKind }),
		Bare:   d.s.Object.NewName, Rest: r.WideEnd - d.s.Start,
	}
}

// guardPrefix begins the names of the triggers that the router has put on declared tables.
const guardPrefix = "cleave_"

// keepGuards refuses what would take away, replace or switch off what keeps rows off shards that do not own them.
func (d *definition) keepGuards(r *resolved) {
	for _, trigger := range d.s.Object.Triggers {
		if strings.HasPrefix(strings.TrimPrefix(trigger, "!"), guardPrefix) {
			d.out.refuse("guard-trigger", pgerr.New(pgerr.FeatureNotSupported, "trigger %q of %s belongs to the router", trigger, r.title()).
				WithDetail("Names that begin with %s or !%[1]s are those of the triggers that keep rows off shards which do not own them, and that make their numbers.", guardPrefix).
				WithHint("Leave it as it is, and choose another name for one of your own."))
		}
	}
}

func (d *definition) refuseChange(r *resolved, detail string) {
	if detail == "" {
		detail = r.title() + " is on several shards, and this change is not one that they can make together."
	}
	d.out.refuse("definition-of-declared", pgerr.New(pgerr.FeatureNotSupported, "%s is not supported yet on a %s table", d.s.Name, string(r.table.Kind())).
		WithDetail("%s", detail).WithHint("cleave.undistribute_table brings it back to the home shard, where it can be changed in any way."))
}

// sharedActions are what ALTER TABLE can do on all shards together, besides dataActions.
var sharedActions = []string{
	"EnableRowSecurity", "DisableRowSecurity", "ForceRowSecurity", "NoForceRowSecurity", "ChangeOwner", "EnableTrig", "DisableTrig", "EnableAlwaysTrig", "EnableReplicaTrig",
}

// alterDeclared sees whether ALTER TABLE leaves the key as it is, and everything such that one shard alone can keep it.
func (d *definition) alterDeclared(r *resolved) {
	for _, action := range d.s.Object.Actions {
		if !slices.Contains(dataActions, action) && !slices.Contains(sharedActions, action) || action == "AddIdentity" || action == "SetTableSpace" {
			d.refuseChange(r, "")
			return
		}
	}
	d.hold(r)
	d.keepKey(r)
	d.recount(r)
	for _, added := range d.s.Object.Added {
		d.addColumn(r, added)
	}
	d.checkConstraints(r)
}

// keepKey refuses to drop, rename or change a key column: every shard's rows, and the shard map, go by it.
func (d *definition) keepKey(r *resolved) {
	if r.table.Kind() != topology.Sharded {
		return
	}
	for _, column := range d.s.Object.Columns {
		if slices.Contains(r.table.KeyColumns(), column) {
			d.out.refuse("changes-key-column", pgerr.New(pgerr.FeatureNotSupported, "key column %q of sharded table %s cannot be changed", column, r.title()).
				WithDetail("It says on which shard a row lives.").WithHint("Bring the table back with cleave.undistribute_table, change it, and shard it again."))
		}
		if slices.ContainsFunc(r.table.IDs(), func(id topology.MadeID) bool { return id.Column == column }) {
			d.out.refuse("changes-id-column", pgerr.New(pgerr.FeatureNotSupported, "column %q of sharded table %s, whose numbers the shards make, cannot be changed", column, r.title()).
				WithDetail("Its numbers tell on which shard a row lives, and a trigger makes them.").WithHint("Bring the table back with cleave.undistribute_table, change it, and shard it again."))
		}
	}
}

func (d *definition) addColumn(r *resolved, added facts.AddedColumn) {
	switch {
	case added.Counted:
		d.out.refuse("adds-serial", pgerr.New(pgerr.FeatureNotSupported, "adding a column with a sequence to a %s table is not supported yet", string(r.table.Kind())).
			WithDetail("Every shard would count for itself.").WithHint("Add it as a bigint without a default."))
	case added.Default:
		d.out.refuse("adds-computed-default", pgerr.New(pgerr.FeatureNotSupported, "adding a column with a computed default to a %s table is not supported yet", string(r.table.Kind())).
			WithDetail("Every shard would compute its own value for the rows that are there.").
			WithHint("Add the column without a default, set the default with ALTER COLUMN … SET DEFAULT, and give the rows that are there a value with UPDATE."))
	}
}

// checkConstraints refuses what one shard alone cannot keep.
func (d *definition) checkConstraints(r *resolved) {
	for _, c := range d.s.Object.Constraints {
		switch c.Kind {
		case facts.UniqueKind, facts.ExclusionKind:
			d.checkUnique(r, c)
		case facts.ForeignKind:
			d.checkForeign(r, c)
		case facts.CheckKind:
		}
	}
}

func (d *definition) checkUnique(r *resolved, c facts.Constraint) {
	if r.table.Kind() != topology.Sharded || c.ByIndex { // no unique index of a sharded table is without the key
		return
	}
	for _, column := range r.table.KeyColumns() {
		if !slices.Contains(c.Columns, column) {
			kind := "a unique"
			if c.Kind == facts.ExclusionKind {
				kind = "an exclusion"
			}
			d.out.refuse("unique-without-key", pgerr.New(pgerr.InvalidTableDefinition, "%s constraint on sharded table %s must contain the shard key", kind, r.title()).
				WithDetail("It does not ask for key column %q to be equal. A shard sees its own rows alone, so it could not tell whether another shard has an equal row.", column).
				WithHint("Add the key's columns to it."))
			return
		}
	}
}

// checkForeign sees whether the row that a foreign key asks for is on the same shard.
func (d *definition) checkForeign(r *resolved, c facts.Constraint) {
	refusal := pgerr.New(pgerr.FeatureNotSupported, "a foreign key from %s that several shards would have to keep is not supported", r.title())
	if c.Target < 0 {
		d.out.refuse("foreign-key", refusal)
		return
	}
	target := d.p.resolve(d.s.Tables[c.Target])
	switch {
	case target.relation == nil && !target.dropped: // every shard says that it does not exist
		return
	case target.class == reference:
		return
	case target.class != sharded || r.table.Kind() != topology.Sharded:
		d.out.refuse("foreign-key", refusal.WithDetail("%s is neither sharded in the same keyspace nor a reference table.", target.title()).WithHint("Declare that table first."))
		return
	case target.table.Keyspace() != r.table.Keyspace():
		d.out.refuse("foreign-key", refusal.WithDetail("%s is in another keyspace, %s.", target.title(), target.table.Keyspace().Name()).
			WithHint("Tables of one keyspace are sharded together: cleave.shard_table(…, colocate_with => …)."))
		return
	case len(c.TargetColumns) == 0:
		d.out.refuse("foreign-key", refusal.WithDetail("It does not say to which columns of %s it refers, and the key has to be among them.", target.title()).
			WithHint("Name them: REFERENCES %s (…).", target.title()))
		return
	}
	key, targetKey := r.table.KeyColumns(), target.table.KeyColumns()
	for i, column := range key {
		at := slices.Index(c.Columns, column)
		if at < 0 || at >= len(c.TargetColumns) || c.TargetColumns[at] != targetKey[i] {
			d.out.refuse("foreign-key", refusal.WithDetail("It does not pair key column %q with %q of %s, so that row may be on another shard.", column, targetKey[i], target.title()).
				WithHint("Have it pair the keys: FOREIGN KEY (%s, …) REFERENCES %s (%s, …).", strings.Join(key, ", "), target.title(), strings.Join(targetKey, ", ")))
			return
		}
	}
}

func (d *definition) renameDeclared(r *resolved) {
	switch d.s.Object.Type {
	case "COLUMN":
		d.hold(r)
		d.keepKey(r)
	case "TABCONSTRAINT", "CONSTRAINT", "TRIGGER", "POLICY":
		d.hold(r)
	case "INDEX":
	default:
		d.refuseChange(r, "The shard map knows "+r.title()+" by its name.")
	}
}

func (d *definition) dropDeclared(r *resolved) {
	name := RelationName{r.table.Name().Schema, r.table.Name().Name}
	switch d.s.Object.Type {
	case "TABLE":
		if r.relation != nil && r.relation.PartitionOf != nil {
			d.hold(r)
			return
		}
		d.out.Holds, d.out.DropsTables = append(d.out.Holds, name), append(d.out.DropsTables, name)
	case "INDEX", "TRIGGER", "POLICY", "RULE":
		if !d.s.Options.Concurrently {
			d.hold(r)
		}
	case "STATISTICS":
	default:
		d.refuseChange(r, "")
	}
}

// ofDeclared says which declared table an index belongs to; nil if it is none of one.
func (d *definition) ofDeclared(r *resolved) *resolved {
	if r.relation == nil || r.relation.Kind != 'i' && r.relation.Kind != 'I' {
		return nil
	}
	for _, t := range d.p.Map.Tables() {
		if t.Name().String() == r.relation.Reaches && t.Kind() != topology.Single {
			owner := *r
			owner.table, owner.class = t, sharded
			if t.Kind() == topology.Reference {
				owner.class = reference
			}
			return &owner
		}
	}
	return nil
}
