package virtual

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/control"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/session"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// function is one function: the names of its parameters, how many must be given, and what it does.
type function struct {
	parameters []string
	least      int
	variadic   bool
	run        func(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, rest []*string) (string, error)
}

var functions map[string]function

func init() { //nolint:gochecknoinits // they refer to each other by the map
	shardTable := function{
		parameters: []string{"table_name", "key", "keyspace", "colocate_with", "strategy", "uniqueness"}, least: 2, run: shardTable,
	}
	distribute := function{
		parameters: []string{"table_name", "distribution_column", "distribution_type", "colocate_with"}, least: 2, run: distributeTable,
	}
	reference := function{parameters: []string{"table_name"}, least: 1, run: referenceTable}
	functions = map[string]function{
		"shard_table": shardTable, "create_distributed_table": distribute, "reference_table": reference, "create_reference_table": reference,
		"shard_of": {parameters: []string{"table_name"}, least: 2, variadic: true, run: shardOf},
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
		if !slices.Contains(f.parameters, name) || named[name] != nil {
			return nil, nil, f.mismatch(call)
		}
		named[name] = a.Text
	}
	if len(call.Arguments) < f.least {
		return nil, nil, f.mismatch(call)
	}
	for _, name := range f.parameters[:min(f.least, len(f.parameters))] {
		if named[name] == nil {
			return nil, nil, pgerr.New(pgerr.NullNotAllowed, "cleave.%s: %s must not be null", call.Function, name)
		}
	}
	return named, rest, nil
}

func (f *function) mismatch(call session.Call) *pgerr.Error {
	parameters := strings.Join(f.parameters, ", ")
	if f.variadic {
		parameters += ", key …"
	}
	return pgerr.New(pgerr.UndefinedFunction, "function cleave.%s cannot be called like that", call.Function).
		WithHint("It is cleave.%s(%s); the first %d are needed.", call.Function, parameters, f.least)
}

func text(arguments map[string]*string, name string) string {
	if v := arguments[name]; v != nil {
		return *v
	}
	return ""
}

func shardTable(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
	unique := text(arguments, "uniqueness")
	if unique != "" && unique != "per shard" {
		return "", pgerr.New(pgerr.InvalidParameterValue, "uniqueness => '%s' is not known", unique).
			WithHint("Leave it out, or say 'per shard' if the values cannot collide.")
	}
	return s.shardTable(ctx, call, arguments, control.ShardTableRequest{
		Keyspace: text(arguments, "keyspace"), Strategy: text(arguments, "strategy"), UniquePerShard: unique != "",
	}, text(arguments, "key"))
}

// distributeTable is the name under which users of Citus know it.
func distributeTable(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
	if kind := text(arguments, "distribution_type"); kind != "" && kind != "hash" {
		return "", pgerr.New(pgerr.FeatureNotSupported, "distribution_type '%s' is not supported", kind).WithHint("Use hash, or cleave.shard_table with strategy =>.")
	}
	if with := text(arguments, "colocate_with"); with == "default" || with == "none" {
		arguments["colocate_with"] = nil
	}
	return s.shardTable(ctx, call, arguments, control.ShardTableRequest{}, text(arguments, "distribution_column"))
}

func (s *Schema) shardTable(ctx context.Context, call session.Call, arguments map[string]*string, request control.ShardTableRequest, columns string) (string, error) {
	var err error
	if request.Table, err = s.tableName(ctx, text(arguments, "table_name"), call.SearchPath); err != nil {
		return "", err
	}
	if with := text(arguments, "colocate_with"); with != "" {
		name, err := s.tableName(ctx, with, call.SearchPath)
		if err != nil {
			return "", err
		}
		request.ColocateWith = name.String()
	}
	if request.Key, err = identifiers(columns); err != nil {
		return "", err
	}
	request.Role = call.Role
	table, err := s.config.Cluster.ShardTable(ctx, request)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s is sharded by (%s) in keyspace %s", table.Name, strings.Join(table.Key, ", "), table.Keyspace), nil
}

func referenceTable(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
	name, err := s.tableName(ctx, text(arguments, "table_name"), call.SearchPath)
	if err != nil {
		return "", err
	}
	table, err := s.config.Cluster.ReferenceTable(ctx, control.ReferenceTableRequest{Table: name, Role: call.Role})
	if err != nil {
		return "", err
	}
	return table.Name + " is copied to every shard", nil
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
	wanted := plan.RelationName{Name: parts[0]}
	known, err := s.config.Look(ctx, []plan.RelationName{wanted}, nil, path)
	if err != nil {
		return topology.TableName{}, err
	}
	relation := known.Relations[wanted]
	if relation == nil {
		return topology.TableName{}, pgerr.New(pgerr.UndefinedTable, "relation \"%s\" does not exist", name)
	}
	return topology.TableName{Schema: relation.Schema, Name: relation.Name}, nil
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
	if errors.As(err, &refused) {
		return refused
	}
	return pgerr.New(pgerr.ObjectNotInPrerequisite, "%s", what).WithDetail("%s", err)
}
