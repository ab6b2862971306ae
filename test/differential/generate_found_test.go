package differential_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/api"
)

// foundFolder has statements that once had other answers, each with the schema and the rows that it needs. Directives beside those of other
// scripts, all of the same form:
//
//	-- keyspace: {…}       the cluster gets this keyspace, as the HTTP API takes it
//	-- sorted: 1 3         rows are sorted by these columns, and those that are equal in them may come in any order
//	-- counted             any rows will do, as long as there are so many
//
// A refusal is as good as the right answer.
const foundFolder = "testdata/found"

// runFound runs each of them.
func (p pair) runFound(t *testing.T, prefix string) {
	scripts, err := readScripts(foundFolder + "/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) {
			v, answers, err := p.replay(t.Context(), prefix+"_"+s.name, s, passes...)
			switch {
			case err != nil:
				t.Fatal(err)
			case v.isFailure():
				t.Errorf("%s\n%s", v, answers)
			case v == refused:
				t.Log(answers)
			}
		})
	}
}

// replay runs a script in a schema of its own, up to the first answer that is not the same. What only reads is run in all of the passes, everything else in
// the first.
func (p pair) replay(ctx context.Context, schema string, s script, hows ...pass) (verdict, string, error) {
	if err := p.makeSchema(ctx, schema); err != nil {
		return "", "", err
	}
	t, err := p.connect(ctx, schema)
	if err != nil {
		return "", "", err
	}
	defer t.close()
	for _, st := range s.steps {
		st.text = strings.ReplaceAll(st.text, schemaPlace, schema)
		st.keyspace = strings.ReplaceAll(st.keyspace, schemaPlace, schema)
		if st.keyspace != "" || st.routerOnly {
			if err := p.arrange(ctx, t.router, st); err != nil {
				return "", "", err
			}
			continue
		}
		for i, how := range hows {
			if i > 0 && !strings.HasPrefix(st.text, "select") {
				break
			}
			if v, answers := t.check(st, how); v != equal {
				return v, answers, nil
			}
		}
	}
	return equal, "", nil
}

// check compares the answers to a step.
func (t *twins) check(st step, how pass) (verdict, string) {
	want, got := t.plain.ask(st, how), t.router.ask(st, how)
	if !slices.Equal(want.columns, got.columns) && t.plain.describes(st.text, st.params, got) {
		want.columns = got.columns
	}
	return st.statement(len(want.columns)).judge(want, got), fmt.Sprintf("%s, %s pass\nPostgreSQL:\n%sthe router:\n%s", st.text, how, want, got)
}

// arrange runs what only a cluster gets: a keyspace, or a statement for the router.
func (p pair) arrange(ctx context.Context, router *client, st step) error {
	if st.keyspace != "" {
		return p.makeKeyspace(ctx, st.keyspace)
	}
	return router.simple(st.text)
}

func (p pair) makeKeyspace(ctx context.Context, text string) error {
	var request api.CreateKeyspace
	if err := json.Unmarshal([]byte(text), &request); err != nil {
		return fmt.Errorf("keyspace %s: %w", text, err)
	}
	_, err := p.api.CreateKeyspace(ctx, request)
	return err
}

// statement is how a step's answers are compared.
func (st *step) statement(width int) *statement {
	made := &statement{counted: st.counted, isTotal: len(st.sorted) == 0, outputs: list("%", ", ")}
	for range width {
		made.outputs.parts = append(made.outputs.parts, nothing())
	}
	if st.unordered {
		return made
	}
	made.order = list("%", ", ", phrase("%", nothing()))
	for i, place := range st.sorted {
		if place <= width {
			key := phrase("%", &node{position: made.outputs.parts[place-1], within: made.outputs})
			made.order.parts = append(made.order.parts[:i], key)
		}
	}
	return made
}

// found writes what failed as a script, with as little of the schema as it needs, and says whether that fails in the same way.
func (r *generated) found(ctx context.Context, st *statement, v verdict, flags string) (string, bool) {
	title := fmt.Sprintf("-- Found with %s: %s.\n\n", flags, v)
	if !r.isRouter {
		return title + r.world.script(st, false), true
	}
	for i, all := range []bool{false, false, true} {
		w := *r.world
		if i == 0 {
			w.settings = nil
		}
		text := title + w.script(st, all)
		parsed, err := parseScript("found", text)
		if err != nil {
			return text + err.Error(), false
		}
		again, _, err := r.replay(ctx, fmt.Sprintf("%s_found%d_%d", r.world.schema, r.failures, i), parsed, st.how)
		if err == nil && again == v {
			return text, true
		}
	}
	return title + r.world.script(st, true), false
}

// keep writes a script to where they are run from then on.
func keep(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(foundFolder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(foundFolder, name+".sql"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

var identifier = regexp.MustCompile(`\w+`)

// script writes the statement and all that it needs: tables that it names, and their columns that it names, or all of them.
func (w *world) script(st *statement, allColumns bool) string {
	var b strings.Builder
	block := func(format string, arguments ...any) { fmt.Fprintf(&b, format+"\n\n", arguments...) }
	words := map[string]bool{}
	for _, turn := range st.turns() {
		for _, word := range identifier.FindAllString(turn.text, -1) {
			words[word] = true
		}
		allColumns = allColumns || strings.Contains(turn.text, ".*") || strings.Contains(turn.text, "select *") || strings.Contains(turn.text, "table ")
	}
	small := w.only(words, allColumns)
	for _, own := range ownTypes {
		if words[own.column] || words[own.name] || allColumns {
			block("%s", own.definition)
		}
	}
	for _, setting := range w.settings {
		block("%s", setting)
	}
	for _, t := range small.tables {
		for _, definition := range t.definitions() {
			block("%s", definition)
		}
		if len(t.rows) > 0 {
			block("%s", t.insertion(t.rows))
		}
		if t.view != nil && words[t.viewName()] && !w.viewsLater {
			block("%s", t.viewDefinition())
		}
	}
	for _, space := range small.keyspaces {
		request, err := json.Marshal(space.request(schemaPlace))
		if err != nil {
			panic(err)
		}
		block("-- keyspace: %s", request)
	}
	small.schema = schemaPlace
	for _, declaration := range small.declarations() {
		block("-- router\n%s", declaration)
	}
	for _, t := range small.tables {
		if t.view != nil && words[t.viewName()] && w.viewsLater {
			block("%s", t.viewDefinition())
		}
	}
	for _, turn := range st.turns() {
		block("%s%s", turn.directives(), turn.text)
	}
	return b.String()
}

// only is the part of a world that these words name.
func (w *world) only(words map[string]bool, allColumns bool) *world {
	small := &world{schema: w.schema}
	used := map[*keyspace]bool{}
	for _, t := range w.tables {
		if !words[t.name] && !words[t.viewName()] {
			continue
		}
		used[t.space] = true
		small.tables = append(small.tables, t.only(words, allColumns))
	}
	for _, space := range w.keyspaces {
		if used[space] {
			small.keyspaces = append(small.keyspaces, space)
		}
	}
	return small
}

// only is a table with the columns that these words name, its key and its id.
func (t *table) only(words map[string]bool, allColumns bool) *table {
	small := &table{name: t.name, space: t.space, reference: t.reference, partitions: t.partitions, view: t.view, rows: make([][]*string, len(t.rows))}
	for i, c := range t.columns {
		if !allColumns && !words[c.name] && !c.isKey && c.name != "id" {
			continue
		}
		small.columns = append(small.columns, c)
		for j, row := range t.rows {
			small.rows[j] = append(small.rows[j], row[i])
		}
	}
	return small
}

// directives say how a step is run and compared.
func (t *turn) directives() string {
	var b strings.Builder
	for _, p := range t.params {
		value := ""
		if p.value != nil {
			value = " " + *p.value
		}
		fmt.Fprintf(&b, "-- param: %s%s\n", p.typeName, value)
	}
	if t.how != simplePass && len(t.params) == 0 {
		b.WriteString("-- protocol: extended\n")
	}
	switch {
	case t.rows > 0:
		fmt.Fprintf(&b, "-- rows: %d\n", t.rows)
	case t.parse != "":
		fmt.Fprintf(&b, "-- parse: %s\n", t.parse)
	case t.bind != "":
		fmt.Fprintf(&b, "-- bind: %s\n", t.bind)
	}
	switch places, isTotal := t.by.sorting(); {
	case t.by.counted:
		b.WriteString("-- counted\n")
	case len(places) > 0 && !isTotal:
		fmt.Fprintf(&b, "-- sorted: %s\n", numbers(places))
	case !isTotal:
		b.WriteString("-- unordered\n")
	}
	return b.String()
}

// numbers writes places as people count.
func numbers(places []int) string {
	words := make([]string, len(places))
	for i, place := range places {
		words[i] = strconv.Itoa(place + 1)
	}
	return strings.Join(words, " ")
}
