package plan_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// TestKindsThatNobodyPlannedAreRefused asks for every kind of statement that the grammar has. Those that no golden file shows
// must be refused; so must a kind that the grammar has not yet.
func TestKindsThatNobodyPlannedAreRefused(t *testing.T) {
	c := plan.Context{Map: maps(t)["empty"], Home: home}
	shown := kindsShown(t)
	if len(shown) < 60 {
		t.Fatalf("the golden files show %d kinds of statements only", len(shown))
	}
	notStatements := []facts.Kind{"RawStmt", "SetOperationStmt", "ReturnStmt", "PLAssignStmt", "ReplicaIdentityStmt"}
	for _, kind := range append(facts.Kinds(), "NewStmt") {
		if shown[kind] {
			continue
		}
		made := plan.Make("", []facts.Statement{{Kind: kind, Name: string(kind), Query: &facts.Block{}}}, nil, c)
		refused := made.Statements[0].Refusal != nil
		if unknown := kind == "NewStmt" || slices.Contains(notStatements, kind); unknown && !refused {
			t.Errorf("%s is planned: %+v", kind, made.Statements[0])
		}
		if s := made.Statements[0]; !refused && s.Route.Level != plan.Home && s.Route.Level != plan.Everywhere {
			t.Errorf("%s is planned elsewhere than at home: %+v", kind, s)
		}
	}
}

// kindsShown returns the kinds of statements in the golden files.
func kindsShown(t testing.TB) map[facts.Kind]bool {
	t.Helper()
	shown := map[facts.Kind]bool{}
	for _, text := range texts(t) {
		statements, err := facts.Of(text)
		if err != nil {
			continue
		}
		for i := range statements {
			shown[statements[i].Kind] = true
		}
	}
	return shown
}

// texts returns all texts of the golden files.
func texts(t testing.TB) []string {
	t.Helper()
	var found []string
	for _, file := range must[[]string](t)(filepath.Glob("testdata/*.txt")) {
		for _, block := range strings.Split(string(must[[]byte](t)(os.ReadFile(file))), "\n\n") {
			text, _, _ := strings.Cut(block, "\n----")
			found = append(found, text)
		}
	}
	return found
}

// TestPlansAreSharedByTextsThatDifferInLiterals plans each golden text again with other literals. Unless the plan says that it
// is for its text alone, both must be the same.
func TestPlansAreSharedByTextsThatDifferInLiterals(t *testing.T) {
	all, compared, wanted := maps(t), 0, 150
	for i, text := range texts(t) {
		if raceDetector && i%10 > 0 {
			wanted = 15
			continue
		}
		c := contextOf(t, text, all)
		one, err := planOf(t, text, c)
		if err != nil || one.Uncacheable {
			continue
		}
		other := otherLiterals(t, text)
		two, err := planOf(t, other, c)
		if err != nil || other == text {
			continue
		}
		if two.Uncacheable {
			t.Errorf("%s can be shared, %s cannot", text, other)
		}
		for i := range one.Statements {
			a, b := one.Statements[i], two.Statements[i]
			a.Start, a.End, b.Start, b.End = 0, 0, 0, 0
			if got, want := strings.Join(describeStatement(other, &b), "\n"), strings.Join(describeStatement(text, &a), "\n"); got != want {
				t.Errorf("%s\nis planned as\n%s\nbut %s\nas\n%s", text, want, other, got)
			}
		}
		compared++
	}
	if compared < wanted {
		t.Errorf("only %d plans were compared", compared)
	}
}

// otherLiterals replaces the literals of a text by longer ones of the same kind.
func otherLiterals(t testing.TB, text string) string {
	t.Helper()
	var scan sqltext.Normalized
	if err := scan.Scan([]byte(text), true); err != nil {
		return text
	}
	var out strings.Builder
	at := 0
	for _, l := range scan.Literals {
		out.WriteString(text[at:l.Start])
		switch l.Kind {
		case sqltext.Integer:
			out.WriteString("1" + text[l.Start:l.End])
		case sqltext.String:
			out.WriteString(text[l.Start:l.End-1] + "0 and more'")
		default:
			out.WriteString(text[l.Start:l.End])
		}
		at = l.End
	}
	return out.String() + text[at:]
}

// TestEscapesInPlainStringsAreRefused: the grammar would read another text than the server does.
func TestEscapesInPlainStringsAreRefused(t *testing.T) {
	text := `select * from orders where note = 'a\'b' or 1 = 1 --' and user_id = 5`
	statements := must[[]facts.Statement](t)(facts.Of(`select * from orders where note = 'a\' and user_id = 5`))
	var scan sqltext.Normalized
	if err := scan.Scan([]byte(text), false); err != nil {
		t.Fatal(err)
	}
	relations, functions := plan.Wants(statements)
	c := plan.Context{SearchPath: []string{"public"}, Map: maps(t)["full"], Home: home, Literals: scan.Literals}
	made := plan.Make(text, statements, look(relations, functions, c.SearchPath), c)
	if s := made.Statements[0]; s.Refusal == nil || s.Rule != "escape-in-plain-string" {
		t.Errorf("it is planned: %+v", s)
	}
}

// FuzzMake holds that no text makes a panic, and that a query which names a sharded table is bound to its key or refused.
func FuzzMake(f *testing.F) {
	for i, text := range texts(f) {
		if !raceDetector || i%10 == 0 {
			f.Add(text)
		}
	}
	all := maps(f)
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			t.Skip()
		}
		statements, err := facts.Of(text)
		if err != nil {
			return
		}
		for _, name := range []string{"full", "empty", "schemas"} {
			c := contextOf(t, "", all)
			c.Map, c.Alone = all[name], name != "full"
			made, err := planOf(t, text, c)
			if err != nil {
				continue
			}
			for i := range made.Statements {
				checkStatement(t, &statements[i], &made.Statements[i], name == "full")
			}
		}
	})
}

func checkStatement(t *testing.T, f *facts.Statement, s *plan.Statement, full bool) {
	t.Helper()
	if s.Refusal != nil {
		if s.Rule == "" || s.Refusal.Code == "" || s.Refusal.Message == "" || s.Refusal.Severity != pgerr.SeverityError {
			t.Errorf("the refusal is not complete: %+v by %q", s.Refusal, s.Rule)
		}
		return
	}
	if s.Route.Why == "" {
		t.Errorf("the route has no reason: %+v", s)
	}
	checkRoute(t, &s.Route)
	keyed := s.Route.Level == plan.Keyed || s.Route.Level == plan.Several || s.Route.Level == plan.Composed && s.Composition != nil
	if s.Reads && (s.Schema || s.Pin != "" || len(s.Creates) > 0) {
		t.Errorf("it only reads, and more: %+v", s)
	}
	if !full || f.Query == nil {
		return
	}
	for _, table := range f.Tables {
		if table.Schema == "public" && (table.Name == "orders" || table.Name == "items") && !keyed {
			t.Errorf("%s names public.%s and runs %d", f.Name, table.Name, s.Route.Level)
		}
	}
}

// checkRoute holds that a route says all that it must.
func checkRoute(t *testing.T, r *plan.Route) {
	t.Helper()
	keyed, several := r.Level == plan.Keyed, r.Level == plan.Several
	if keyed != (len(r.Key) > 0) || (keyed || several) && (r.Keyspace == "" || r.Table == "") {
		t.Errorf("the key is not complete: %+v", r)
	}
	if several != (len(r.Keys) > 0 || len(r.Bounds) > 0 || r.All) || (r.Undivided != nil) != (several && r.Parts == plan.Whole) {
		t.Errorf("the keys are not complete: %+v", r)
	}
	if (r.RowKeys > 0) != (r.Parts == plan.ByRow) || r.Level != plan.Home && (r.Parts == plan.Copies) != (r.Level == plan.Everywhere) {
		t.Errorf("the parts are not complete: %+v", r)
	}
}

func BenchmarkPlan(b *testing.B) {
	all := maps(b)
	for name, text := range map[string]string{
		"point": "select abalance from orders where user_id = 12345",
		"join":  "select o.id, c.name, r.rate from orders o join countries c on c.code = o.note left join rates r on r.code = c.code where o.user_id = $1 and o.made > now() order by o.id limit 10",
	} {
		c := contextOf(b, text, all)
		var scan sqltext.Normalized
		if err := scan.Scan([]byte(text), true); err != nil {
			b.Fatal(err)
		}
		c.Literals = scan.Literals
		b.Run("facts/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := facts.Of(text); err != nil {
					b.Fatal(err)
				}
			}
		})
		statements := must[[]facts.Statement](b)(facts.Of(text))
		relations, functions := plan.Wants(statements)
		known := look(relations, functions, c.SearchPath)
		b.Run("make/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				plan.Make(text, statements, known, c)
			}
		})
	}
}
