package admin

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/secret"
	"github.com/cleavedb/cleave/internal/topology"
)

func TestDescriptionHasEveryRoute(t *testing.T) {
	var served, described []string
	for _, r := range routes() {
		served = append(served, r.method+" "+r.path)
	}
	for path, item := range loadContract(t).document.Paths.Map() {
		for method := range item.Operations() {
			described = append(described, method+" "+path)
		}
	}
	slices.Sort(served)
	slices.Sort(described)
	if diff := cmp.Diff(served, described); diff != "" {
		t.Errorf("what is served (-) and what is described (+) differ:\n%s", diff)
	}
}

func TestDescriptionSaysWhoMayCall(t *testing.T) {
	document := loadContract(t).document
	for _, r := range routes() {
		operation := document.Paths.Value(r.path).GetOperation(r.method)
		if open := operation.Security != nil && len(*operation.Security) == 0; open != r.open {
			t.Errorf("%s %s is open: %v, described as open: %v", r.method, r.path, r.open, open)
		}
		if takesBody := operation.RequestBody != nil; takesBody != (r.limit > 0) {
			t.Errorf("%s %s takes a body: %v, described with one: %v", r.method, r.path, r.limit > 0, takesBody)
		}
		if operation.Summary == "" || operation.OperationID == "" || len(operation.Tags) != 1 {
			t.Errorf("%s %s is not explained", r.method, r.path)
		}
	}
}

// answers are the types of answers: what is always there is required.
var answers = map[string]any{
	"Health": api.Health{}, "ErrorBody": api.ErrorBody{}, "Error": api.Error{}, "Finding": api.Finding{}, "FindingList": api.FindingList{},
	"Status": api.Status{}, "StoreStatus": api.StoreStatus{}, "Router": api.Router{}, "RouterList": api.RouterList{},
	"ShardStatus": api.ShardStatus{}, "ReplicaStatus": api.ReplicaStatus{}, "Connections": api.Connections{}, "ShardList": api.ShardList{}, "ShardChanged": api.ShardChanged{},
	"Keyspace": api.Keyspace{}, "Share": api.Share{}, "RangeTraffic": api.RangeTraffic{}, "KeyspaceList": api.KeyspaceList{}, "KeyspaceChanged": api.KeyspaceChanged{},
	"Table": api.Table{}, "TablesChanged": api.TablesChanged{}, "TableList": api.TableList{}, "CopiesChecked": api.CopiesChecked{}, "CopyDifference": api.CopyDifference{}, "MapChanged": api.MapChanged{}, "RebuiltMap": api.RebuiltMap{},
	"RebalancePlan": api.RebalancePlan{}, "RebalanceSplit": api.RebalanceSplit{}, "RebalanceMove": api.RebalanceMove{}, "RebalanceShard": api.RebalanceShard{}, "RebalanceAssignment": api.RebalanceAssignment{},
	"AutoSettings": api.AutoSettings{}, "Automation": api.Automation{}, "AutoMove": api.AutoMove{}, "AutoHalt": api.AutoHalt{}, "AutoProposal": api.AutoProposal{}, "AutoEvent": api.AutoEvent{},
	"Move": api.Move{}, "MoveTable": api.MoveTable{}, "MoveSwitch": api.MoveSwitch{}, "MoveStep": api.MoveStep{}, "MoveList": api.MoveList{},
	"Verified": api.Verified{}, "VerifiedTable": api.VerifiedTable{}, "Stray": api.Stray{}, "VerifiedMove": api.VerifiedMove{}, "VerifyProgress": api.VerifyProgress{}, "VerifyEvent": api.VerifyEvent{},
	"Saga": api.Saga{}, "SagaList": api.SagaList{},
	"Rollout": api.Rollout{}, "RolloutShard": api.RolloutShard{}, "RolloutList": api.RolloutList{}, "RolloutChanged": api.RolloutChanged{},
	"Transaction": api.Transaction{}, "Transactions": api.Transactions{}, "ShardTransactions": api.ShardTransactions{}, "TransactionResolved": api.TransactionResolved{},
	"Document": topology.Document{}, "ShardSpec": topology.ShardSpec{}, "InstanceSpec": topology.InstanceSpec{}, "KeyspaceSpec": topology.KeyspaceSpec{},
	"Assignment": topology.Assignment{}, "RangeSpec": topology.RangeSpec{}, "PinSpec": topology.PinSpec{}, "CopySpec": topology.CopySpec{}, "TableSpec": topology.TableSpec{}, "MadeID": topology.MadeID{},
}

// asked are the types of requests, with what a caller must give.
var asked = map[string]struct {
	form     any
	required []string
}{
	"AddShard":           {api.AddShard{}, []string{"name"}},
	"UpdateShard":        {api.UpdateShard{}, nil},
	"CreateKeyspace":     {api.CreateKeyspace{}, []string{"name"}},
	"DeclareTables":      {api.DeclareTables{}, []string{"tables"}},
	"TableKey":           {api.TableKey{}, []string{"name"}},
	"UndistributeTables": {api.UndistributeTables{}, []string{"tables"}},
	"StartMove":          {api.StartMove{}, []string{"to"}},
	"PlanRebalance":      {api.PlanRebalance{}, nil},
	"UpdateAutomation":   {api.UpdateAutomation{}, nil},
	"RebalanceRule":      {api.RebalanceRule{}, []string{"keyspace", "label", "value"}},
	"MoveRange":          {api.MoveRange{}, nil},
	"WishMove":           {api.WishMove{}, []string{"wish"}},
	"MoveLimits":         {api.MoveLimits{}, nil},
	"SplitRanges":        {api.SplitRanges{}, nil},
	"MergeRanges":        {api.MergeRanges{}, nil},
	"CheckCopies":        {api.CheckCopies{}, nil},
	"Verify":             {api.Verify{}, nil},
	"RebuildMap":         {api.RebuildMap{}, nil},
	"BeginRollout":       {api.BeginRollout{}, []string{"name", "change"}},
	"StepRollout":        {api.StepRollout{}, nil},
	"ResolveTransaction": {api.ResolveTransaction{}, []string{"id", "how"}},
	"ShardToAsk":         {topology.ShardSpec{}, []string{"primary"}},
}

// plain are schemas of values that are no Go structs.
var plain = []string{"Name", "MapVersion", "Count", "ClusterID", "Address", "Labels", "State", "SSLMode", "Strategy", "SecretReference", "Point"}

func TestDescriptionHasEveryField(t *testing.T) {
	schemas := loadContract(t).document.Components.Schemas
	for name, form := range answers {
		fields := jsonFields(reflect.TypeOf(form))
		var always []string
		for field, info := range fields {
			if !info.optional {
				always = append(always, field)
			}
		}
		checkSchema(t, name, schemas[name], fields, always)
	}
	for name, request := range asked {
		checkSchema(t, name, schemas[name], jsonFields(reflect.TypeOf(request.form)), request.required)
		if schema := schemas[name]; schema != nil && (schema.Value.AdditionalProperties.Has == nil || *schema.Value.AdditionalProperties.Has) {
			t.Errorf("schema %s does not say that unknown fields are refused", name)
		}
	}
	for name := range schemas {
		_, answered := answers[name]
		_, taken := asked[name]
		if !answered && !taken && !slices.Contains(plain, name) {
			t.Errorf("schema %s stands for no type", name)
		}
	}
}

// TestEveryTypeIsDescribed: a type that is added to package api is not forgotten above.
func TestEveryTypeIsDescribed(t *testing.T) {
	notSent := []string{"Client", "RequestError", "UnreachableError", "ImportMap"} // the last is a document and parameters
	for name := range apiSource(t).structs {
		_, answered := answers[name]
		_, taken := asked[name]
		if !answered && !taken && !slices.Contains(notSent, name) {
			t.Errorf("type api.%s is not described", name)
		}
	}
}

func TestDescriptionHasEveryWord(t *testing.T) {
	schemas := loadContract(t).document.Components.Schemas
	words := map[string][]string{
		"State": textsOf(topology.States()), "SSLMode": topology.SSLModes(),
		"Strategy": {string(topology.ByHash), string(topology.ByRange), string(topology.BySchema)},
	}
	for name, want := range words {
		compareWords(t, name, schemas[name].Value.Enum, want)
	}
	compareWords(t, "Error.code", schemas["Error"].Value.Properties["code"].Value.Enum, apiSource(t).codes)
}

func textsOf[T ~string](values []T) []string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return texts
}

func compareWords(t *testing.T, name string, described []any, want []string) {
	t.Helper()
	got := make([]string, len(described))
	for i, word := range described {
		got[i], _ = word.(string)
	}
	slices.Sort(got)
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), got); diff != "" {
		t.Errorf("words of %s: in Go (-), described (+):\n%s", name, diff)
	}
}

// source is what the source of package api declares.
type source struct {
	structs map[string]bool
	codes   []string
}

func apiSource(t *testing.T) source {
	t.Helper()
	files, err := filepath.Glob("../api/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal("package api was not found", err)
	}
	found := source{structs: map[string]bool{}}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			found.note(n)
			return true
		})
	}
	return found
}

func (s *source) note(n ast.Node) {
	switch n := n.(type) {
	case *ast.TypeSpec:
		if _, isStruct := n.Type.(*ast.StructType); isStruct && n.Name.IsExported() {
			s.structs[n.Name.Name] = true
		}
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if literal, isLiteral := valueAt(n, i).(*ast.BasicLit); isLiteral && strings.HasPrefix(name.Name, "Code") {
				code, _ := strconv.Unquote(literal.Value)
				s.codes = append(s.codes, code)
			}
		}
	}
}

func valueAt(n *ast.ValueSpec, i int) ast.Expr {
	if i < len(n.Values) {
		return n.Values[i]
	}
	return nil
}

// field is a field of a JSON form.
type field struct {
	kind     reflect.Type
	optional bool
}

// jsonFields lists the fields of a struct's JSON form, those of embedded structs among them.
func jsonFields(t reflect.Type) map[string]field {
	fields := map[string]field{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			maps.Copy(fields, jsonFields(f.Type))
			continue
		}
		if f.IsExported() && name != "-" {
			kind := f.Type
			if slices.Contains(strings.Split(options, ","), "string") { // a number that is written as text
				kind = reflect.TypeFor[string]()
			}
			fields[name] = field{kind, strings.Contains(options, "omit")}
		}
	}
	return fields
}

func checkSchema(t *testing.T, name string, schema *openapi3.SchemaRef, fields map[string]field, required []string) {
	t.Helper()
	if schema == nil {
		t.Errorf("there is no schema %s", name)
		return
	}
	have := slices.Sorted(maps.Keys(schema.Value.Properties))
	if diff := cmp.Diff(slices.Sorted(maps.Keys(fields)), have); diff != "" {
		t.Errorf("fields of %s: in Go (-), described (+):\n%s", name, diff)
		return
	}
	need := slices.Sorted(slices.Values(schema.Value.Required))
	if diff := cmp.Diff(slices.Sorted(slices.Values(required)), need); diff != "" {
		t.Errorf("required fields of %s: in Go (-), described (+):\n%s", name, diff)
	}
	for field, info := range fields {
		checkKind(t, name+"."+field, schema.Value.Properties[field].Value, info.kind)
	}
}

// checkKind compares a property with the kind of the Go field.
func checkKind(t *testing.T, name string, property *openapi3.Schema, kind reflect.Type) {
	t.Helper()
	if kind == reflect.TypeFor[topology.Point]() {
		if len(property.OneOf) != 2 {
			t.Errorf("%s is a point, but is not described as one", name)
		}
		return
	}
	want := kindOf(kind)
	if !property.Type.Is(want) {
		t.Errorf("%s is a JSON %s, but described as %v", name, want, property.Type)
		return
	}
	switch {
	case kind.Kind() == reflect.Slice:
		checkKind(t, name+"[]", property.Items.Value, kind.Elem())
	case kind.Kind() == reflect.Map:
		value := property.AdditionalProperties.Schema.Value
		checkKind(t, name+"{}", value, kind.Elem())
		if nullable := kind.Elem().Kind() == reflect.Pointer; nullable != value.Nullable {
			t.Errorf("values of %s can be null: %v, described so: %v", name, nullable, value.Nullable)
		}
	case kind == reflect.TypeFor[time.Time]() && property.Format != "date-time":
		t.Errorf("%s is a time, but described with format %q", name, property.Format)
	}
}

// kindOf is the type that JSON has for the Go type.
func kindOf(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return openapi3.TypeString
	case t == reflect.TypeFor[secret.Reference]():
		return openapi3.TypeObject
	case t.Kind() == reflect.Pointer:
		return kindOf(t.Elem())
	}
	return map[reflect.Kind]string{
		reflect.String: openapi3.TypeString, reflect.Bool: openapi3.TypeBoolean, reflect.Int: openapi3.TypeInteger, reflect.Int64: openapi3.TypeInteger, reflect.Uint64: openapi3.TypeInteger,
		reflect.Float64: openapi3.TypeNumber, reflect.Slice: openapi3.TypeArray, reflect.Struct: openapi3.TypeObject, reflect.Map: openapi3.TypeObject,
	}[t.Kind()]
}
