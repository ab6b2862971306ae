package plan

import (
	"slices"

	"github.com/cleavedb/cleave/internal/compose"
	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
)

// copySharded plans COPY of a sharded table: from the client row by row, to the client shard by shard.
func (v *survey) copySharded(r *resolved) {
	switch {
	case r.relation == nil:
		v.out.refuse("not-known-yet", pgerr.New(pgerr.FeatureNotSupported, "sharded table %s is not known yet", r.title()).WithHint("Try again."))
	case !v.s.Options.Client:
		v.out.refuse("copy-file", pgerr.New(pgerr.FeatureNotSupported, "COPY with a file or program of the server is supported on the home shard only").
			WithDetail("%s", filesOfOneServer).WithHint("Use COPY … TO STDOUT or FROM STDIN."))
	case v.s.Options.From:
		v.loadSharded(r)
	default:
		v.out.Load = v.loadOf(r)
		v.out.Route = Route{Level: Several, Keyspace: r.table.Keyspace().Name(), All: true, Parts: Same, Table: r.title(), Why: "all rows of " + r.title()}
	}
}

// copiedColumns are the columns of COPY's data.
func (v *survey) copiedColumns(r *resolved) []string {
	columns := v.s.Load.Columns
	if len(columns) == 0 {
		for _, c := range r.relation.Columns {
			if !c.Generated {
				columns = append(columns, c.Name)
			}
		}
	}
	return columns
}

// copiedTypes are the types of the columns of COPY's data; none if one is not known.
func (v *survey) copiedTypes(r *resolved) []uint32 {
	var types []uint32
	for _, name := range v.copiedColumns(r) {
		c := r.relation.column(name)
		if c == nil {
			return nil
		}
		types = append(types, c.TypeOID)
	}
	return types
}

// loadOf is what COPY says of its data.
func (v *survey) loadOf(r *resolved) *Load {
	load := &Load{Relation: r.relation.Name, Columns: v.copiedColumns(r), Options: loadOptions(v.s)}
	for i := range r.relation.Columns {
		if c := &r.relation.Columns[i]; v.s.Options.From && !slices.Contains(load.Columns, c.Name) && v.addsTo(r, c) {
			load.Timed = append(load.Timed, timedColumn(c))
		}
	}
	return load
}

// addsTo says whether the router can add a column to the rows of a COPY: its value is one for all of them, and of a type that is written in one way whatever is set.
func (v *survey) addsTo(r *resolved, c *Column) bool {
	switch c.TypeOID {
	case oidDate, oidTime, oidTimestamp, oidTimestamptz, oidTimetz, oidText:
		return c.Timed != "" && !r.relation.ColumnRights && !isForeign(c.Timed) && (!v.p.ForeignEncoding || !isForeign(c.Name)) && compose.IsSameForAll(c.Timed)
	default:
		return false
	}
}

// loadOptions are those of a COPY.
func loadOptions(s *facts.Statement) (options []LoadOption) {
	for _, o := range s.Load.Options {
		options = append(options, LoadOption{o.Name, o.Value, o.List, o.Star, o.Bare})
	}
	return options
}

// wrongColumns is what PostgreSQL finds wrong with COPY's list of columns, nil if nothing is.
func (v *survey) wrongColumns(r *resolved) *pgerr.Error {
	for i, name := range v.s.Load.Columns {
		switch c := r.relation.column(name); {
		case c == nil:
			return pgerr.New(pgerr.UndefinedColumn, "column %q of relation %q does not exist", name, r.relation.Name)
		case c.Generated:
			return pgerr.New(pgerr.InvalidColumnReference, "column %q is a generated column", name).WithDetail("Generated columns cannot be used in COPY.")
		case slices.Contains(v.s.Load.Columns[:i], name):
			return pgerr.New(pgerr.DuplicateColumn, "column %q specified more than once", name)
		}
	}
	return nil
}

// loadSharded finds the key among the columns of the data.
func (v *survey) loadSharded(r *resolved) {
	if wrong := v.wrongColumns(r); wrong != nil {
		v.out.refuse("copy-columns", wrong)
		return
	}
	load := v.loadOf(r)
	route := Route{
		Level: Several, Keyspace: r.table.Keyspace().Name(), All: true, Parts: ByLine, Table: r.title(), Why: "each row of " + r.title() + " by its key",
	}
	for _, part := range v.keyParts(r) {
		at := slices.Index(load.Columns, part.Column)
		if at < 0 && r.isMade(part.Column) {
			load.Made = true
			continue
		}
		part.Store, part.Operand = true, Operand{Kind: FromParam, Param: at + 1, CastMod: -1}
		if column := r.relation.column(part.Column); at < 0 {
			if column.Fixed == nil {
				v.defaultKey(r, column)
				return
			}
			part.Operand = Operand{Kind: FromDefault, Fixed: *column.Fixed, CastMod: -1}
		}
		load.Key = append(load.Key, part)
	}
	if load.Made {
		load.Key, route.Why = nil, "a shard makes the key of each row of "+r.title()
	}
	v.out.Load, v.out.Route = load, route
}

// loadReference plans COPY to a reference table: every shard gets all rows.
func (v *survey) loadReference(r *resolved) {
	load := v.loadOf(r)
	for _, c := range r.relation.Columns {
		if c.DefaultVaries && !slices.Contains(load.Columns, c.Name) && !slices.ContainsFunc(load.Timed, func(t TimedColumn) bool { return t.Name == c.Name }) {
			v.out.refuse("reference-write-volatile", pgerr.New(pgerr.FeatureNotSupported, "a default that is computed is not supported in a write to a reference table").
				WithDetail("Column %q of %s is not in the data, and every shard would compute its own value.", c.Name, r.title()).WithHint("Give the column a value."))
			return
		}
	}
	v.out.Route = Route{Level: Everywhere, Parts: Copies, Table: r.title(), Why: "every shard has a copy of " + r.title()}
	for i, name := range load.Columns {
		if c := r.relation.column(name); c == nil || !timeless[c.TypeOID] {
			load.Key = append(load.Key, KeyPart{Column: name, Operand: Operand{Kind: FromParam, Param: i + 1, CastMod: -1}})
		}
	}
	v.out.Load = load
}

// isLoadOf says whether the statement is a COPY from the client to this table.
func (v *survey) isLoadOf(r *resolved) bool {
	return v.s.Kind == "CopyStmt" && v.s.Options.From && v.s.Options.Client && r.relation != nil && r.Role == facts.Subject
}

const filesOfOneServer = "The table is on other shards, and a file is on one server."
