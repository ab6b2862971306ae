package plan_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/compose"
	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

var rewrite = flag.Bool("rewrite", false, "write what the planner says into the golden files")

// TestPlans plans the statements of the golden files. A case is a text, a line of dashes and the plan; a blank line ends it.
// Comments before the text say what it runs in: "-- map: empty", "-- path: other, public", "-- temporary: orders, x", "-- unsettled: CREATE
// FUNCTION", "-- local function: public.f", "-- hint: east", "-- hinted key", "-- dropped: orders", "-- role: alice", "-- foreign encoding".
func TestPlans(t *testing.T) {
	files := must[[]string](t)(filepath.Glob("testdata/*.txt"))
	if len(files) < 10 {
		t.Fatalf("only %d golden files were found", len(files))
	}
	all := maps(t)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			content := string(must[[]byte](t)(os.ReadFile(file)))
			written := replay(t, content, all)
			if *rewrite && written != content {
				if err := os.WriteFile(file, []byte(written), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// replay plans every case of a file and returns the file as it should be.
func replay(t *testing.T, content string, all map[string]*topology.Map) string {
	t.Helper()
	var out strings.Builder
	for i, block := range strings.Split(strings.TrimSpace(content), "\n\n") {
		if i > 0 {
			out.WriteString("\n\n")
		}
		if strings.HasPrefix(block, "#") {
			out.WriteString(block)
			continue
		}
		text, want, _ := strings.Cut(block, "\n----\n")
		text = strings.TrimSuffix(text, "\n----")
		got := describe(t, text, all)
		if got != want && !*rewrite {
			t.Errorf("%s\n---- is\n%s\n---- but was\n%s", text, got, want)
		}
		out.WriteString(text + "\n----\n" + got)
	}
	return out.String() + "\n"
}

// contextOf reads the comments before a text.
func contextOf(t testing.TB, text string, all map[string]*topology.Map) plan.Context {
	t.Helper()
	c := plan.Context{SearchPath: []string{"app", "public"}, Map: all["full"], Home: home}
	for line := range strings.Lines(text) {
		word, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		names := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
		switch word {
		case "-- map":
			if c.Map = all[names[0]]; c.Map == nil {
				t.Fatalf("there is no map %q", names[0])
			}
		case "-- path":
			c.SearchPath = names
		case "-- temporary":
			c.Temporary = func(name string) bool { return slices.Contains(names, name) }
		case "-- local path":
			c.PathIsLocal = true
		case "-- altered":
			c.Altered = true
		case "-- local function":
			c.ShardLocal = func(schema, name string) bool { return slices.Contains(names, schema+"."+name) }
		case "-- dropped":
			for _, name := range names {
				c.Dropped = append(c.Dropped, topology.TableName{Schema: "public", Name: name})
			}
		case "-- foreign encoding":
			c.ForeignEncoding = true
		case "-- role":
			c.Role = names[0]
		case "-- hint":
			c.HintShard = names[0]
		case "-- hinted key":
			c.HintKey = true
		case "-- unsettled":
			c.Unsettled = strings.TrimSpace(value)
		}
	}
	return c
}

// planOf plans a text as a session does.
func planOf(t testing.TB, text string, c plan.Context) (*plan.Plan, error) {
	t.Helper()
	statements, err := facts.Of(text)
	if err != nil {
		return nil, err
	}
	var scan sqltext.Normalized
	if err := scan.Scan([]byte(text), true); err != nil {
		return nil, err
	}
	c.Literals = scan.Literals
	relations, functions := plan.Wants(statements)
	known := look(relations, functions, c.SearchPath)
	for {
		relations, functions = plan.WantsBehind(text, statements, known, c)
		if len(relations)+len(functions) == 0 {
			return plan.Make(text, statements, known, c), nil
		}
		known = known.With(look(relations, functions, c.SearchPath))
	}
}

func describe(t *testing.T, text string, all map[string]*topology.Map) string {
	t.Helper()
	p, err := planOf(t, text, contextOf(t, text, all))
	if err != nil {
		return "error: " + err.Error()
	}
	var lines []string
	for i := range p.Statements {
		lines = append(lines, describeStatement(text, &p.Statements[i])...)
		for _, e := range []*pgerr.Error{p.Statements[i].Refusal, p.Statements[i].Route.Undivided} {
			if e != nil && e.Code == pgerr.FeatureNotSupported && (e.Detail == "" || e.Hint == "") {
				t.Errorf("%s: a refusal says neither why nor what to do, or one of these: %s, %q, %q", text, e.Message, e.Detail, e.Hint)
			}
		}
	}
	if len(p.Statements) == 0 {
		lines = append(lines, "nothing")
	}
	if p.Uncacheable {
		lines = append(lines, "for this text alone")
	}
	return strings.Join(lines, "\n")
}

// describeComposition shows the steps of a statement.
func describeComposition(c *compose.Composition) []string {
	if c == nil {
		return nil
	}
	var lines []string
	for i, p := range c.Pulls {
		if p.Own {
			lines = append(lines, fmt.Sprintf("  pull %d: the router's view %s", i, p.Name))
			continue
		}
		lines = append(lines, fmt.Sprintf("  pull %d: %s", i, p.SQL))
		if p.Why != "" {
			lines = append(lines, "    because "+p.Why)
		}
	}
	lines = append(lines, "  finish: "+c.Final.String())
	if m := c.Merge; m != nil {
		lines = append(lines, fmt.Sprintf("  or merged by %d keys", len(m.Keys)))
	}
	for _, u := range c.Unlike {
		lines = append(lines, fmt.Sprintf("  unless c%d of pull %d is of type %d", u.Column, u.Pull, u.Types[0]))
	}
	if len(c.Shaping) > 0 {
		lines = append(lines, fmt.Sprintf("  for these values of literals %d", c.Shaping))
	}
	return lines
}

// describeTimed says where a statement has the current time.
func describeTimed(t *plan.Timed) string {
	var where []string
	if t.Words > 0 {
		where = append(where, fmt.Sprintf("in %d words", t.Words))
	}
	if t.Defaults && len(t.Appended)+len(t.Defaulted) == 0 {
		where = append(where, "in defaults")
	}
	for _, c := range t.Appended {
		where = append(where, "for column "+c.Name+" behind the rows")
	}
	for at := range 10 {
		if c, is := t.Defaulted[at]; is {
			where = append(where, "for DEFAULT of "+c.Name)
		}
	}
	if !t.Edits {
		where = append(where, "by another text")
	}
	return strings.Join(where, ", ")
}

func describeStatement(text string, s *plan.Statement) []string {
	if s.Refusal != nil {
		lines := []string{fmt.Sprintf("%s refused by %s: %s %s", s.Name, s.Rule, s.Refusal.Code, s.Refusal.Message)}
		if s.Refusal.Detail != "" {
			lines = append(lines, "  detail: "+s.Refusal.Detail)
		}
		if s.Refusal.Hint != "" {
			lines = append(lines, "  hint: "+s.Refusal.Hint)
		}
		return lines
	}
	lines := []string{s.Name + " " + describeRoute(s.Route) + flags(s)}
	lines = append(lines, describeKeys(s.Route)...)
	if s.Command != plan.Pass {
		lines = append(lines, "  command: "+commands[s.Command]+describeTransaction(s.Transaction))
	}
	lines = append(lines, describeComposition(s.Composition)...)
	for _, view := range s.Unfolds {
		lines = append(lines, "  takes apart: "+view.Quoted())
	}
	if s.Timed != nil {
		lines = append(lines, "  time: "+describeTimed(s.Timed))
	}
	for _, setting := range s.Settings {
		lines = append(lines, "  setting: "+describeSetting(setting))
	}
	if s.Prepared.Name != "" || s.Prepared.All {
		lines = append(lines, "  prepared: "+describePrepared(text, s.Prepared))
	}
	for _, n := range s.Numbers {
		line := fmt.Sprintf("  number: %s at <%s|%s> of %s", n.Function, text[n.Start:n.Open], text[n.Open:n.End], describeOperand(n.Sequence))
		if n.Names {
			line += ", which names a column"
		}
		lines = append(lines, line)
	}
	for _, v := range s.Virtual {
		lines = append(lines, "  router: "+describeVirtual(text, v))
	}
	if s.Route.Lenient {
		lines = append(lines, "  passing over shards that do not have it")
	}
	for _, held := range s.Holds {
		lines = append(lines, "  holds: "+held.Schema+"."+held.Name)
		if s.LockFirst {
			lines[len(lines)-1] += " until locked"
		}
	}
	for _, dropped := range s.DropsTables {
		lines = append(lines, "  drops: "+dropped.Schema+"."+dropped.Name)
	}
	if s.Load != nil && !s.Load.Query {
		lines = append(lines, "  data: "+strings.Join(s.Load.Columns, ", "))
		if s.Load.Made {
			lines = append(lines, "  keys are made")
		}
		for _, part := range s.Load.Key {
			lines = append(lines, "  key: "+describePart(part, "="))
		}
	}
	return lines
}

var commands = []string{
	"pass", "begin", "commit", "rollback", "savepoint", "release", "rollback to", "set", "reset", "reset all", "discard all",
	"discard plans", "discard temp", "discard sequences", "prepare", "execute", "deallocate", "show", "set constraints",
}

func describeRoute(r plan.Route) string {
	level := []string{"home", "anywhere", "on shard " + r.Shard, "keyed " + r.Keyspace, "several " + r.Keyspace, "in steps", "everywhere", "any owner of " + r.Keyspace}[r.Level]
	if r.Level == plan.Several || r.Level == plan.Everywhere || r.Parts == plan.Copies {
		level += []string{" whole", " in parts", " by row", " copies", " kept", " by line"}[r.Parts]
	}
	return level + " (" + r.Why + ")"
}

func flags(s *plan.Statement) string {
	var set []string
	for name, on := range map[string]bool{
		"reads": s.Reads, "schema": s.Schema, "taints": s.Taints, "rows": s.Rows, "copy": s.Copy, "no block": s.NoBlock,
		"cursor": s.Cursor != nil, "needs session": s.NeedsSession, "numbers untold": !s.TellsNumbers && s.Command == plan.Pass && s.Route.Level == plan.AnyOwner,
	} {
		if on {
			set = append(set, name)
		}
	}
	slices.Sort(set)
	if s.Pin != "" {
		set = append(set, "pin: "+string(s.Pin))
	}
	if len(s.Creates) > 0 {
		set = append(set, "creates: "+strings.Join(s.Creates, ", "))
	}
	if len(s.Drops) > 0 {
		set = append(set, "drops: "+strings.Join(s.Drops, ", "))
	}
	if len(set) == 0 {
		return ""
	}
	return "; " + strings.Join(set, "; ")
}

// describeKeys writes where keys come from; of many, the first and the last.
func describeKeys(r plan.Route) []string {
	var lines []string
	for _, part := range r.Key {
		lines = append(lines, "  key: "+describePart(part, "="))
	}
	for i, key := range r.Keys {
		if i >= 3 && i < len(r.Keys)-1 {
			if i == 3 {
				lines = append(lines, "  …")
			}
			continue
		}
		var parts []string
		for _, part := range key {
			parts = append(parts, describePart(part, "="))
		}
		line := "  key: "
		if i < r.RowKeys {
			line = "  row: "
		}
		lines = append(lines, line+strings.Join(parts, ", "))
	}
	for _, b := range r.Bounds {
		sign := ">"
		if b.Upper {
			sign = "<"
		}
		if b.Inclusive {
			sign += "="
		}
		lines = append(lines, "  bound: "+describePart(b.Part, sign))
	}
	for _, n := range r.Numbers {
		lines = append(lines, fmt.Sprintf("  number: %s of each row from %s", n.Column, n.Sequence))
	}
	if r.Parts == plan.ByRow || len(r.Numbers) > 0 {
		lines = append(lines, fmt.Sprintf("  rows behind VALUES %d", r.ValuesAt))
	}
	if r.All {
		lines = append(lines, "  all shards")
	}
	if r.AtMost != nil {
		lines = append(lines, "  at most: "+describeOperand(*r.AtMost)+" rows")
	}
	if r.Skips != nil {
		lines = append(lines, "  on one shard unless it is 0: "+describeOperand(*r.Skips)+" rows skipped")
	}
	if r.Timed {
		lines = append(lines, "  no word for a time")
	}
	if u := r.Undivided; u != nil {
		lines = append(lines, fmt.Sprintf("  if several: %s %s", u.Code, u.Message), "    "+u.Detail)
	}
	return lines
}

func describePart(part plan.KeyPart, sign string) string {
	line := fmt.Sprintf("%s %s", part.Column, part.Type)
	if part.TypeMod >= 0 {
		line += fmt.Sprintf("(mod %d)", part.TypeMod)
	}
	if part.Store {
		sign = ":" + sign
	}
	if part.Each {
		sign += " each of"
	}
	line += " " + sign + " " + describeOperand(part.Operand)
	if part.Listed {
		line += " listed"
	}
	if part.Floor != 0 {
		line += fmt.Sprintf(", with the slot from %d on", part.Floor)
	}
	return line
}

func describeOperand(o plan.Operand) string {
	var text string
	switch o.Kind {
	case plan.FromLiteral:
		text = fmt.Sprintf("literal %d", o.Literal)
		if o.Negative {
			text = "minus " + text
		}
	case plan.FromParam:
		text = fmt.Sprintf("$%d", o.Param)
	case plan.FromDefault:
		text = fmt.Sprintf("default %q", o.Fixed)
	default:
		text = []string{"unknowable", "", "", "null", "default", "true", "false", "setting"}[o.Kind]
	}
	if o.CastOID != 0 {
		text += fmt.Sprintf(" as type %d", o.CastOID)
	}
	if o.CastMod >= 0 {
		text += fmt.Sprintf(" mod %d", o.CastMod)
	}
	return text
}

func describeTransaction(t plan.Transaction) string {
	text := ""
	if t.Savepoint != "" {
		text += " " + t.Savepoint
	}
	if t.Chain {
		text += " and chain"
	}
	if t.Serializable {
		text += " serializable"
	}
	if t.Deferred {
		text += " deferred"
	}
	if len(t.Constraints) > 0 {
		text += fmt.Sprintf(" %q", t.Constraints)
	}
	return text
}

func describeSetting(s plan.Setting) string {
	text := s.Name
	if s.Local {
		text = "local " + text
	}
	if s.Default {
		return text + " to default"
	}
	if s.SQL == "" {
		return text
	}
	return fmt.Sprintf("%s to %s %q", text, s.SQL, s.Values)
}

func describePrepared(text string, p plan.Prepared) string {
	if p.All {
		return "all"
	}
	line := fmt.Sprintf("%s at <%s>", p.Name, text[p.NameStart:p.NameEnd])
	if p.TypeCount > 0 {
		line += fmt.Sprintf(" %d types <%s>", p.TypeCount, p.TypesSQL)
	}
	if p.BodyEnd > 0 {
		line += fmt.Sprintf(" body <%s>", text[p.BodyStart:p.BodyEnd])
	}
	return line + describeArguments(p.Arguments, nil)
}

func describeVirtual(text string, v plan.Virtual) string {
	line := fmt.Sprintf("%s <%s>", v.Name, text[v.Start:v.End])
	if v.Function {
		line = "function " + line
	}
	if v.FromClause {
		line += " in FROM"
	}
	if v.Aliased {
		line += " with alias"
	}
	return line + describeArguments(v.Arguments, v.ArgumentNames)
}

func describeArguments(arguments []plan.Operand, names []string) string {
	var out strings.Builder
	for i, argument := range arguments {
		out.WriteString(", " + describeOperand(argument))
		if names != nil && names[i] != "" {
			out.WriteString(" as " + names[i])
		}
	}
	return out.String()
}
