package virtual

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/control"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/session"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// function is one function: the names of its parameters, how many must be given, and what it does.
type function struct {
	parameters []string
	least      int
	variadic   bool
	// aliases are other names for parameters.
	aliases map[string]string
	run     func(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, rest []*string) (string, error)
}

var functions map[string]function

func init() { //nolint:gochecknoinits // they refer to each other by the map
	shardTable := function{
		parameters: []string{"table_name", "key", "keyspace", "colocate_with", "strategy", "uniqueness", "split_at", "ids"}, least: 2, run: shardTable,
		aliases: map[string]string{"unique": "uniqueness"},
	}
	shardTables := function{
		parameters: []string{"tables", "keyspace", "colocate_with", "strategy", "uniqueness", "split_at", "ids"}, least: 1, run: shardTables,
		aliases: map[string]string{"unique": "uniqueness"},
	}
	distribute := function{
		parameters: []string{"table_name", "distribution_column", "distribution_type", "colocate_with"}, least: 2, run: distributeTable,
	}
	reference := function{parameters: []string{"table_name"}, least: 1, run: referenceTables}
	functions = map[string]function{
		"shard_table": shardTable, "shard_tables": shardTables, "create_distributed_table": distribute,
		"reference_table": reference, "reference_tables": reference, "create_reference_table": reference,
		"check_reference_table":  {parameters: []string{"table_name"}, least: 1, run: checkCopies},
		"repair_reference_table": {parameters: []string{"table_name", "force"}, least: 1, run: checkCopies},
		"undistribute_table":     {parameters: []string{"table_name"}, least: 1, run: undistributeTables},
		"rollout_begin":          {parameters: []string{"name", "change", "undo", "shards"}, least: 2, run: beginRollout},
		"rollout_next":           {parameters: []string{"name", "shard"}, least: 1, run: stepRollout((*control.Cluster).NextRollout)},
		"rollout_finish":         {parameters: []string{"name"}, least: 1, run: stepRollout((*control.Cluster).FinishRollout)},
		"rollout_undo":           {parameters: []string{"name"}, least: 1, run: stepRollout((*control.Cluster).UndoRollout)},
		"move_start":             {parameters: slices.Concat([]string{"keyspace", "to_shard", "from_shard", "lo", "hi", "key"}, moveOptions), least: 2, run: startMove},
		"move_tables":            {parameters: slices.Concat([]string{"tables", "to_shard"}, moveOptions), least: 2, run: startMove},
		"move_throttle":          {parameters: []string{"id", "throttle", "max_rate", "max_lag_seconds", "max_load", "max_wal"}, least: 1, run: throttleMove},
		"move_pause":             {parameters: []string{"id"}, least: 1, run: wishMove("pause")},
		"move_resume":            {parameters: []string{"id"}, least: 1, run: wishMove("resume")},
		"move_cancel":            {parameters: []string{"id"}, least: 1, run: wishMove("cancel")},
		"move_switch":            {parameters: []string{"id"}, least: 1, run: wishMove("switch")},
		"move_rollback":          {parameters: []string{"id"}, least: 1, run: wishMove("roll back")},
		"move_finish":            {parameters: []string{"id"}, least: 1, run: wishMove("finish")},
		"split_range":            {parameters: []string{"keyspace", "at", "key", "middle", "of", "by_size"}, least: 1, run: splitRange},
		"merge_ranges":           {parameters: []string{"keyspace", "lo", "hi"}, least: 1, run: mergeRanges},
		"tenant_isolate":         {parameters: []string{"keyspace", "key", "to_shard"}, least: 3, run: isolateTenant},
		"rebalance_plan":         {parameters: []string{"algorithm", "measure", "keyspace", "tolerance", "max_bytes", "max_moves", "split", "drain", "rules", "exclude", "rate"}, run: planRebalance},
		"rebalance_apply":        {parameters: []string{"id"}, least: 1, run: applyRebalance},
		"verify":                 {parameters: []string{"keyspace", "table_name", "shard", "repair", "prefer", "max_listed", "max_rate"}, run: verifyRows},
		"transaction_outcome":    {parameters: []string{"id"}, least: 1, run: transactionOutcome},
		"resolve_transaction":    {parameters: []string{"id", "how"}, least: 2, run: resolveTransaction},
		"shard_of":               {parameters: []string{"table_name"}, least: 2, variadic: true, run: shardOf},
		"version": {run: func(_ context.Context, s *Schema, _ session.Call, _ map[string]*string, _ []*string) (string, error) {
			return "Cleave " + s.config.Version, nil
		}},
	}
}

// ResultType is text for all functions so far.
func (s *Schema) ResultType(string) string { return "text" }

// Call runs a function.
func (s *Schema) Call(ctx context.Context, call session.Call) (*string, *pgerr.Error) {
	f, found := functions[call.Function]
	if !found {
		return nil, pgerr.New(pgerr.UndefinedFunction, "function cleave.%s does not exist", call.Function)
	}
	arguments, rest, refused := f.match(call)
	if refused != nil {
		return nil, refused
	}
	result, err := f.run(ctx, s, call, arguments, rest)
	if err != nil {
		return nil, asError("cleave."+call.Function+" failed", err)
	}
	return &result, nil
}

// match gives each parameter its argument, by position and by name.
func (f *function) match(call session.Call) (named map[string]*string, rest []*string, refused *pgerr.Error) {
	named = map[string]*string{}
	for i, a := range call.Arguments {
		name := a.Name
		if name == "" {
			if i >= len(f.parameters) && f.variadic {
				rest = append(rest, a.Text)
				continue
			}
			if i >= len(f.parameters) {
				return nil, nil, f.mismatch(call)
			}
			name = f.parameters[i]
		}
		if other, found := f.aliases[name]; found {
			name = other
		}
		if _, twice := named[name]; twice || !slices.Contains(f.parameters, name) {
			return nil, nil, f.mismatch(call)
		}
		named[name] = a.Text
	}
	if len(call.Arguments) < f.least {
		return nil, nil, f.mismatch(call)
	}
	for _, name := range f.parameters[:min(f.least, len(f.parameters))] {
		text, isGiven := named[name]
		switch {
		case !isGiven:
			return nil, nil, f.mismatch(call)
		case text == nil:
			return nil, nil, pgerr.New(pgerr.NullNotAllowed, "cleave.%s: %s must not be null", call.Function, name).WithHint("%s", f.usage(call))
		}
	}
	return named, rest, nil
}

func (f *function) mismatch(call session.Call) *pgerr.Error {
	return pgerr.New(pgerr.UndefinedFunction, "function cleave.%s cannot be called like that", call.Function).WithHint("%s", f.usage(call))
}

// usage says how a function is called.
func (f *function) usage(call session.Call) string {
	parameters, needed := strings.Join(f.parameters, ", "), fmt.Sprintf("the first %d are needed", f.least)
	if f.variadic {
		parameters += ", key …"
	}
	switch f.least {
	case 0:
		needed = "none is needed"
	case 1:
		needed = "the first is needed"
	}
	return fmt.Sprintf("It is cleave.%s(%s); %s.", call.Function, parameters, needed)
}

func shardTable(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
	table, err := s.tableKey(ctx, call, text(arguments, "table_name"), text(arguments, "key"))
	if err != nil {
		return "", err
	}
	return s.shardTables(ctx, call, arguments, []control.TableKey{table})
}

// shardTables takes several tables, each with its key, as in 'users(id), orders(user_id)'.
func shardTables(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
	list, ok := splitKeys(text(arguments, "tables"))
	if !ok {
		return "", pgerr.New(pgerr.InvalidName, "%q is not a list of tables with their keys", text(arguments, "tables")).
			WithHint("Write 'users(id), orders(user_id), messages(channel_id, bucket)'.")
	}
	tables := make([]control.TableKey, len(list))
	for i, t := range list {
		var err error
		if tables[i], err = s.tableKey(ctx, call, t.table, t.columns); err != nil {
			return "", err
		}
	}
	return s.shardTables(ctx, call, arguments, tables)
}

// distributeTable is the name under which users of Citus know it.
func distributeTable(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
	if kind := text(arguments, "distribution_type"); kind != "" && kind != "hash" {
		return "", pgerr.New(pgerr.FeatureNotSupported, "distribution_type '%s' is not supported", kind).WithDetail("Tables are sharded by hash or by range of their keys.").WithHint("Use hash, or cleave.shard_table with strategy =>.")
	}
	if with := text(arguments, "colocate_with"); with == "default" || with == "none" {
		arguments["colocate_with"] = nil
	}
	table, err := s.tableKey(ctx, call, text(arguments, "table_name"), text(arguments, "distribution_column"))
	if err != nil {
		return "", err
	}
	return s.shardTables(ctx, call, arguments, []control.TableKey{table})
}

func (s *Schema) tableKey(ctx context.Context, call session.Call, table, columns string) (key control.TableKey, err error) {
	if key.Table, err = s.tableName(ctx, table, call.SearchPath); err == nil {
		key.Key, err = identifiers(columns)
	}
	return key, err
}

func (s *Schema) shardTables(ctx context.Context, call session.Call, arguments map[string]*string, tables []control.TableKey) (string, error) {
	unique := text(arguments, "uniqueness")
	if unique != "" && unique != "per shard" {
		return "", pgerr.New(pgerr.InvalidParameterValue, "uniqueness => '%s' is not known", unique).
			WithHint("Leave it out, or say 'per shard' if the values cannot collide.")
	}
	request := control.ShardTablesRequest{
		Tables: tables, Keyspace: text(arguments, "keyspace"), Strategy: text(arguments, "strategy"), UniquePerShard: unique != "",
		IDs: text(arguments, "ids"), Role: call.Role, Progress: call.Notice,
	}
	if with := text(arguments, "colocate_with"); with != "" {
		name, err := s.tableName(ctx, with, call.SearchPath)
		if err != nil {
			return "", err
		}
		request.ColocateWith = name.String()
	}
	var err error
	if request.SplitAt, err = points(text(arguments, "split_at")); err != nil {
		return "", err
	}
	changed, err := s.config.Cluster.ShardTables(ctx, request)
	if err != nil {
		return "", err
	}
	tellFindings(call, changed)
	sentences := make([]string, len(changed.Tables))
	for i, t := range changed.Tables {
		sentences[i] = fmt.Sprintf("%s is sharded by (%s) in keyspace %s", t.Name, columnList(t.Key), t.Keyspace)
	}
	return strings.Join(sentences, "; "), nil
}

// points reads where a keyspace by range is split: keys with commas between them, those of several columns in parentheses.
func points(list string) ([]topology.Point, error) {
	parts, ok := splitOutside(list)
	if !ok {
		return nil, pgerr.New(pgerr.InvalidParameterValue, "split_at => '%s' is not a list of keys", list).WithHint("Write '100, 200', or '(a, 1), (m, 1)' for keys of two columns.")
	}
	var all []topology.Point
	for _, part := range parts {
		inner, several := strings.CutPrefix(part, "(")
		if !several {
			all = append(all, topology.Point{part})
			continue
		}
		values := strings.Split(strings.TrimSuffix(inner, ")"), ",")
		for i := range values {
			values[i] = strings.TrimSpace(values[i])
		}
		all = append(all, values)
	}
	return all, nil
}

func referenceTables(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
	names, err := s.tableNames(ctx, text(arguments, "table_name"), call.SearchPath)
	if err != nil {
		return "", err
	}
	changed, err := s.config.Cluster.ReferenceTables(ctx, control.TablesRequest{Tables: names, Role: call.Role, Progress: call.Notice})
	if err != nil {
		return "", err
	}
	tellFindings(call, changed)
	return namesOf(changed) + " copied to every shard", nil
}

func undistributeTables(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
	names, err := s.tableNames(ctx, text(arguments, "table_name"), call.SearchPath)
	if err != nil {
		return "", err
	}
	changed, err := s.config.Cluster.UndistributeTables(ctx, control.TablesRequest{Tables: names, Role: call.Role, Progress: call.Notice})
	if err != nil {
		return "", err
	}
	tellFindings(call, changed)
	return namesOf(changed) + " on the home shard alone", nil
}

// checkCopies compares the copies of reference tables; by its other name it repairs them.
func checkCopies(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
	request := control.CopiesRequest{Role: call.Role, Repair: call.Function == "repair_reference_table"}
	var err error
	if request.Force, err = truth(arguments, "force"); err != nil {
		return "", err
	}
	if request.Tables, err = s.tableNames(ctx, text(arguments, "table_name"), call.SearchPath); err != nil {
		return "", err
	}
	checked, err := s.config.Cluster.CheckCopies(ctx, request)
	if err != nil {
		return "", err
	}
	return describeCopies(checked), nil
}

// describeCopies says of each table what was found.
func describeCopies(checked api.CopiesChecked) string {
	var sentences []string
	odd := map[string]bool{}
	for _, d := range checked.Differences {
		odd[d.Table] = true
		sentences = append(sentences, d.String())
	}
	for _, f := range checked.Findings {
		sentences = append(sentences, f.Message)
	}
	for _, table := range checked.Tables {
		if !odd[table] && len(checked.Findings) == 0 {
			sentences = append(sentences, table+" is equal on every shard")
		}
	}
	return strings.Join(sentences, "; ")
}

// tellFindings lets the client know what is not as it should be, although the tables are what they were to become.
func tellFindings(call session.Call, changed api.TablesChanged) {
	if call.Notice == nil {
		return
	}
	for _, f := range changed.Findings {
		call.Notice(f.Message)
	}
}

// namesOf lists the tables as the subject of a sentence.
func namesOf(changed api.TablesChanged) string {
	names := make([]string, len(changed.Tables))
	for i, t := range changed.Tables {
		names[i] = t.Name
	}
	if len(names) == 1 {
		return names[0] + " is"
	}
	return strings.Join(names, ", ") + " are"
}

// tableNames reads names of tables with commas between them.
func (s *Schema) tableNames(ctx context.Context, list string, path []string) ([]topology.TableName, error) {
	parts, ok := splitOutside(list)
	if !ok || len(parts) == 0 {
		return nil, pgerr.New(pgerr.InvalidName, "%q is not a list of tables", list).WithHint("Write 'countries' or 'countries, currencies'.")
	}
	names := make([]topology.TableName, len(parts))
	for i, part := range parts {
		var err error
		if names[i], err = s.tableName(ctx, part, path); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// tableName reads a table's name; one without a schema is looked up as PostgreSQL does it.
func (s *Schema) tableName(ctx context.Context, name string, path []string) (topology.TableName, error) {
	parts, ok := sqltext.SplitNames(name, '.')
	if !ok || len(parts) == 0 || len(parts) > 2 || slices.Contains(parts, "") {
		return topology.TableName{}, pgerr.New(pgerr.InvalidName, "%q is not a table's name", name)
	}
	if len(parts) == 2 {
		return topology.TableName{Schema: parts[0], Name: parts[1]}, nil
	}
	now := s.config.Map()
	wanted := []plan.RelationName{{Name: parts[0]}}
	for _, schema := range path {
		if now.Table(schema, parts[0]) != nil {
			wanted = append(wanted, plan.RelationName{Schema: schema, Name: parts[0]})
		}
	}
	known, err := s.config.Look(ctx, wanted, nil, path)
	if err != nil {
		return topology.TableName{}, err
	}
	meant, found := plan.TableNamed(plan.Context{Map: now, Home: now.Home().Name(), SearchPath: path}, known, parts[0])
	if !found {
		return topology.TableName{}, pgerr.New(pgerr.UndefinedTable, "relation \"%s\" does not exist", name)
	}
	return meant, nil
}

// identifiers reads a list of names with commas between them.
func identifiers(list string) ([]string, error) {
	names, ok := sqltext.SplitNames(list, ',')
	if !ok || len(names) == 0 || slices.Contains(names, "") {
		return nil, pgerr.New(pgerr.InvalidName, "%q is not a list of columns", list).WithHint("Write the key's columns as 'user_id' or 'channel_id, bucket'.")
	}
	return names, nil
}

// asError makes an error one that a client can read.
func asError(what string, err error) *pgerr.Error {
	var refused *pgerr.Error
	var invalid *control.InvalidError
	var looked *control.RefusedError
	var missing *topology.NotFoundError
	var inUse *topology.InUseError
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &invalid):
		return pgerr.New(pgerr.InvalidParameterValue, "%s", err).WithHint("%s", invalid.Hint)
	case errors.As(err, &missing):
		return pgerr.New(pgerr.UndefinedObject, "%s", err)
	case errors.As(err, &inUse):
		return pgerr.New(pgerr.ObjectInUse, "%s", what).WithDetail("%s.", err)
	case errors.As(err, &looked) && len(looked.Findings) > 0:
		return pgerr.New(pgerr.ObjectNotInPrerequisite, "%s", err).WithDetail("%s", looked.Findings[0].Message).WithHint("%s", looked.Findings[0].Hint)
	}
	if errors.Is(err, store.ErrOutcomeUnknown) {
		return pgerr.New(pgerr.OutcomeUnknown, "%s, or may yet be done", what).WithDetail("%s.", err).WithHint("Look before you run it again: cleave.tables lists what tables are.")
	}
	if errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrNotHeld) {
		return pgerr.New(pgerr.CannotConnectNow, "%s", what).WithDetail("%s.", err).WithHint("Nothing was changed. Try again; 'cleave status' tells how etcd is.")
	}
	return pgerr.New(pgerr.ObjectNotInPrerequisite, "%s", what).WithDetail("%s", err)
}
