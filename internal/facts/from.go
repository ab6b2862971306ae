package facts

import pgquery "github.com/pganalyze/pg_query_go/v6"

// fromClause walks FROM.
func (w *walker) fromClause(items []*pgquery.Node, l locks, role Role) []*Source {
	sources := make([]*Source, 0, len(items))
	for _, item := range items {
		sources = append(sources, w.fromItem(item, l, role))
	}
	return sources
}

func (w *walker) fromItem(item *pgquery.Node, l locks, role Role) *Source {
	if w.level++; w.level > maxLevels {
		w.tooDeep = true
	}
	defer func() { w.level-- }()
	w.out.Sources++
	switch f := content(item).(type) {
	case *pgquery.RangeVar:
		return w.fromTable(f, l, role)
	case *pgquery.RangeTableSample:
		return w.sample(f, l, role)
	case *pgquery.JoinExpr:
		return w.join(f, l, role)
	case *pgquery.RangeSubselect:
		if s := f.Subquery.GetSelectStmt(); s != nil {
			source := &Source{Kind: QuerySource, Lateral: f.Lateral}
			source.alias(f.Alias)
			source.Query = w.nested(func() *Block { return w.selection(s, Nested, l.reach(source.Name)) })
			return source
		}
	}
	return w.opaque(item)
}

// alias notes what a source is called by an alias.
func (s *Source) alias(a *pgquery.Alias) {
	if a != nil {
		s.Name, s.Columns = a.Aliasname, texts(a.Colnames)
	}
}

func (w *walker) fromTable(v *pgquery.RangeVar, l locks, role Role) *Source {
	w.roles[v] = role
	i, common := w.relation(v)
	if common != nil {
		source := &Source{Kind: CommonSource, Common: common, Name: v.Relname}
		source.alias(v.Alias)
		return source
	}
	source := w.tableSource(v, i)
	w.out.Tables[i].Locked = l.reach(source.Name)
	return source
}

func (w *walker) tableSource(v *pgquery.RangeVar, i int) *Source {
	source := &Source{Kind: TableSource, Table: i, Name: v.Relname}
	source.alias(v.Alias)
	return source
}

// sample walks TABLESAMPLE.
func (w *walker) sample(f *pgquery.RangeTableSample, l locks, role Role) *Source {
	source := w.fromItem(f.Relation, l, role)
	w.into(&source.Queries, func() {
		w.visitAll(f.Args)
		w.visit(f.Repeatable)
	})
	if source.Kind == TableSource {
		t := &w.out.Tables[source.Table]
		t.Sampled, t.SampledEvenly = true, isEven(texts(f.Method))
	}
	return source
}

// isEven says whether a method of TABLESAMPLE is one of PostgreSQL's own.
func isEven(method []string) bool {
	if len(method) > 1 && method[0] == "pg_catalog" {
		method = method[1:]
	}
	return len(method) == 1 && (method[0] == "bernoulli" || method[0] == "system")
}

// join walks a join.
func (w *walker) join(j *pgquery.JoinExpr, l locks, role Role) *Source {
	source := &Source{
		Kind: JoinSource, Natural: j.IsNatural, Using: texts(j.UsingClause), UsingName: j.GetJoinUsingAlias().GetAliasname(),
		Left: w.fromItem(j.Larg, l, role), Right: w.fromItem(j.Rarg, l, role), On: conditionOf(j.Quals),
	}
	source.alias(j.Alias)
	switch j.Jointype {
	case pgquery.JoinType_JOIN_INNER:
		source.Join = InnerJoin
	case pgquery.JoinType_JOIN_LEFT:
		source.Join = LeftJoin
	case pgquery.JoinType_JOIN_RIGHT:
		source.Join = RightJoin
	default:
		source.Join = FullJoin // of which nothing follows
	}
	if j.IsNatural || len(j.UsingClause) > 0 {
		w.equals()
	}
	w.into(&source.Queries, func() { w.visit(j.Quals) })
	return source
}

// opaque walks what is no table, query or join. All of it can see what stands before it.
func (w *walker) opaque(item *pgquery.Node) *Source {
	source := &Source{Kind: OpaqueSource, Lateral: true}
	switch f := content(item).(type) {
	case *pgquery.RangeFunction:
		source.Name = functionName(f)
		source.alias(f.Alias)
	case *pgquery.RangeTableFunc:
		source.Name = "xmltable"
		source.alias(f.Alias)
	case *pgquery.JsonTable:
		source.Name = "json_table"
		source.alias(f.Alias)
	}
	source.Nameless = source.Name == ""
	w.into(&source.Queries, func() { w.visit(item) })
	return source
}

// functionName is what a function in FROM is called that has no alias; empty where that is not plain.
func functionName(f *pgquery.RangeFunction) string {
	if len(f.Functions) == 0 {
		return ""
	}
	parts := f.Functions[0].GetList().GetItems()
	if len(parts) == 0 {
		return ""
	}
	_, name := qualified(parts[0].GetFuncCall().GetFuncname())
	return name
}
