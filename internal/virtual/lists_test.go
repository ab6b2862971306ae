package virtual

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/control"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/session"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

func TestListsOfTablesWithKeys(t *testing.T) {
	for text, want := range map[string][]keyedTable{
		"users(id)":                         {{"users", "id"}},
		" users (id) , app.orders(user_id)": {{"users", "id"}, {"app.orders", "user_id"}},
		"messages(channel_id, bucket)":      {{"messages", "channel_id, bucket"}},
		`"Odd, (one)"("a""(", b), c(d)`:     {{`"Odd, (one)"`, `"a""(", b`}, {"c", "d"}},
		"":                                  nil, "users": nil, "users(id": nil, "users(id))": nil, "(id)": nil, "users(id),": nil, ",users(id)": nil, "users((id))": nil, `"users(id)`: nil, "a b(id) c": nil,
	} {
		got, ok := splitKeys(text)
		if ok != (want != nil) || !slices.Equal(got, want) {
			t.Errorf("%q was read as %q, %v; want %q", text, got, ok, want)
		}
	}
}

func TestPointsOfASplit(t *testing.T) {
	for text, want := range map[string][]string{
		"": {}, "100": {"100"}, "100, 200": {"100", "200"}, "(a, 1), (m, 2)": {"a, 1", "m, 2"},
	} {
		got, err := points(text)
		if err != nil || len(got) != len(want) {
			t.Errorf("%q was read as %v, %v", text, got, err)
			continue
		}
		for i := range want {
			if got[i].String() != want[i] && "("+want[i]+")" != got[i].String() {
				t.Errorf("%q has the point %s, not %s", text, got[i], want[i])
			}
		}
	}
	for _, text := range []string{",", "(a", "a,,b"} {
		if got, err := points(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

// TestNamesOfArguments: UNIQUE is a word of SQL's own and has to be quoted as the name of an argument, so there is another name for it.
func TestNamesOfArguments(t *testing.T) {
	value := "per shard"
	for _, name := range []string{"uniqueness", "unique"} {
		f := functions["shard_table"]
		named, _, refused := f.match(session.Call{Function: "shard_table", Arguments: []session.Argument{{Text: &value}, {Text: &value}, {Name: name, Text: &value}}})
		if refused != nil || text(named, "uniqueness") != value {
			t.Errorf("%s: %v, %v", name, named, refused)
		}
	}
	f := functions["shard_table"]
	if _, _, refused := f.match(session.Call{Function: "shard_table", Arguments: []session.Argument{
		{Text: &value}, {Text: &value}, {Name: "uniqueness", Text: &value}, {Name: "unique", Text: &value}}}); refused == nil {
		t.Error("the same argument was taken twice")
	}
}

// TestFindingsReachWhoDeclares, and the argument that avoids one is known by its name.
func TestFindingsReachWhoDeclares(t *testing.T) {
	var heard []string
	call := session.Call{Notice: func(text string) { heard = append(heard, text) }}
	changed := api.TablesChanged{Findings: []api.Finding{{Message: "first"}, {Message: "second"}}}
	tellFindings(call, changed)
	if !slices.Equal(heard, []string{"first", "second"}) {
		t.Errorf("heard %q", heard)
	}
	tellFindings(session.Call{}, changed) // nobody listens
	value := "counted"
	for _, name := range []string{"shard_table", "shard_tables"} {
		f := functions[name]
		named, _, refused := f.match(session.Call{Function: name, Arguments: []session.Argument{{Name: f.parameters[0], Text: &value}, {Name: f.parameters[1], Text: &value}, {Name: "ids", Text: &value}}})
		if refused != nil || text(named, "ids") != value {
			t.Errorf("%s: %v, %v", name, named, refused)
		}
	}
}

// TestFailuresAreTold: who may simply try again is told so.
func TestFailuresAreTold(t *testing.T) {
	for _, test := range []struct {
		err  error
		code string
	}{
		{pgerr.New(pgerr.UndefinedTable, "no such table"), pgerr.UndefinedTable},
		{&store.UnavailableError{OutcomeUnknown: true}, pgerr.OutcomeUnknown},
		{&store.UnavailableError{}, pgerr.CannotConnectNow},
		{&store.NotHeldError{ID: "x"}, pgerr.CannotConnectNow},
		{errors.New("something else"), pgerr.ObjectNotInPrerequisite},
		{&control.InvalidError{Message: "no", Hint: "Try again."}, pgerr.InvalidParameterValue},
		{&control.RefusedError{Message: "no", Findings: []api.Finding{{Message: "because", Hint: "Try again."}}}, pgerr.ObjectNotInPrerequisite},
		{&topology.NotFoundError{Kind: "shard", Name: "s9"}, pgerr.UndefinedObject},
		{&topology.InUseError{Kind: "keyspace", Name: "main", By: "rows of it are moving"}, pgerr.ObjectInUse},
	} {
		got := asError("it failed", fmt.Errorf("a step: %w", test.err))
		if got.Code != test.code {
			t.Errorf("%v is told as %s, not as %s", test.err, got.Code, test.code)
		}
		if said := got.Message + got.Detail; !strings.Contains(said, strings.Split(test.err.Error(), " (SQLSTATE")[0]) && !errors.Is(test.err, store.ErrUnavailable) {
			t.Errorf("%v is told as %q", test.err, said)
		}
		if strings.Contains(fmt.Sprintf("%+v", test.err), "Try again.") && got.Hint != "Try again." {
			t.Errorf("what to do about %v is told as %q", test.err, got.Hint)
		}
	}
}
