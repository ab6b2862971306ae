package differential_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
)

// pair are two databases that are to answer alike.
type pair struct {
	plain, router string // connection strings
	// isRouter: the second takes what scripts have for the router alone, and refuses what they say it refuses. Otherwise
	// neither gets any of that.
	isRouter bool
	// sample: a part of the scripts is enough.
	sample bool
	// api is the router's cluster.
	api *api.Client
}

// mostProblems is how many differences a script is followed for: one often follows from another.
const mostProblems = 8

// count is how many statements had equal answers, and how many were refused as was written down.
type count struct{ equal, refused int }

func (c *count) add(other count) {
	c.equal += other.equal
	c.refused += other.refused
}

// schemaPlace stands for the schema in statements.
const schemaPlace = "{schema}"

// run runs the script in one pass, in a schema of its own, and returns all differences.
func (p pair) run(ctx context.Context, s script, how pass) ([]string, count) {
	schema := fmt.Sprintf("d_%s_%s", s.name, how)
	if err := p.makeSchema(ctx, schema); err != nil {
		return []string{"make the schema: " + err.Error()}, count{}
	}
	return p.runIn(ctx, schema, s, how)
}

// runIn runs the script in a schema that is there.
func (p pair) runIn(ctx context.Context, schema string, s script, how pass) ([]string, count) {
	r := &run{pair: p, ctx: ctx, script: s, how: how, schema: schema, most: mostProblems, sessions: map[string]*twins{}}
	return r.all()
}

// all runs all steps.
func (r *run) all() ([]string, count) {
	defer r.close()
	for _, st := range r.script.steps {
		if err := r.step(st); err != nil {
			r.problem(st, err.Error())
			break
		}
		if len(r.problems) >= r.most {
			r.problem(st, "and so on")
			break
		}
	}
	return r.problems, r.count
}

// run is one pass of one script.
type run struct {
	pair
	ctx    context.Context
	script script
	how    pass
	schema string
	most   int // problems, and no more is looked at
	// strict: the words of errors count, and what is refused must be something that a plain server answers.
	strict   bool
	sessions map[string]*twins
	problems []string
	count    count
}

// twins are a session on both sides.
type twins struct{ plain, router *client }

func (t *twins) close() {
	t.plain.close()
	t.router.close()
}

func (r *run) close() {
	for _, t := range r.sessions {
		t.close()
	}
}

func (r *run) problem(st step, text string) {
	r.problems = append(r.problems, fmt.Sprintf("%s.sql:%d, %s pass, session %s: %s\n%s", r.script.name, st.line, r.how, st.session, st.text, text))
}

// makeSchema gives a pass a place of its own, so that passes and scripts do not meet.
func (p pair) makeSchema(ctx context.Context, name string) error {
	t, err := p.connect(ctx, "public")
	if err != nil {
		return err
	}
	defer t.close()
	for _, c := range []*client{t.plain, t.router} {
		if err := c.simple("CREATE SCHEMA " + name); err != nil {
			return err
		}
	}
	return nil
}

func (p pair) connect(ctx context.Context, schema string) (*twins, error) {
	plain, err := dial(ctx, p.plain, schema)
	if err != nil {
		return nil, fmt.Errorf("connect to the plain server: %w", err)
	}
	router, err := dial(ctx, p.router, schema)
	if err != nil {
		plain.close()
		return nil, fmt.Errorf("connect to the router: %w", err)
	}
	return &twins{plain, router}, nil
}

func (r *run) session(name string) (*twins, error) {
	if t := r.sessions[name]; t != nil {
		return t, nil
	}
	t, err := r.connect(r.ctx, r.schema)
	if err == nil {
		r.sessions[name] = t
	}
	return t, err
}

// step runs a step on both sides. An error ends the script; a difference does not.
func (r *run) step(st step) error {
	t, err := r.session(st.session)
	if err != nil {
		return err
	}
	st.text = strings.ReplaceAll(st.text, schemaPlace, r.schema)
	st.refused = strings.ReplaceAll(st.refused, schemaPlace, r.schema)
	switch {
	case st.end:
		t.close()
		delete(r.sessions, st.session)
		return nil
	case st.keyspace != "":
		if !r.isRouter {
			return nil
		}
		return r.makeKeyspace(r.ctx, st.keyspace)
	case st.routerOnly, st.answered:
		if !r.isRouter {
			return nil
		}
		return r.alone(t, st)
	case st.isRefused(r.how):
		if !r.isRouter {
			return nil
		}
		return r.refusal(t, st)
	case st.different != "" && !r.isRouter:
		return nil
	}
	return r.compare(t, st)
}

// alone runs a step on the router, where it must succeed.
func (r *run) alone(t *twins, st step) error {
	lines, err := t.router.run(st, r.how)
	if err == nil && slices.ContainsFunc(lines, isError) {
		r.problem(st, "it must succeed, but the answer is:\n"+excerpt(lines, 0))
	}
	return err
}

func (r *run) compare(t *twins, st step) error {
	if st.from != "" {
		var err error
		if st.loaded, err = t.plain.unload(st.from); err != nil {
			return err
		}
	}
	want, err := t.plain.run(st, r.how)
	if err != nil {
		return fmt.Errorf("the plain server: %w after %q", err, want)
	}
	if unexpected := st.unexpected(want, r.isRouter); unexpected != "" {
		r.problem(st, "the plain server was not to answer: "+unexpected)
	}
	got, err := t.router.run(st, r.how)
	if err != nil {
		return fmt.Errorf("the router: %w after %q", err, got)
	}
	if st.unordered {
		sortRows(want)
		sortRows(got)
	}
	if st.late {
		got = slices.DeleteFunc(got, isAcknowledgement)
	}
	if st.elsewhere {
		forgetPlace(want)
		forgetPlace(got)
	}
	difference := firstDifference(want, got)
	if difference == "" && r.strict {
		difference = otherWords(want, got)
	}
	if st.different != "" {
		return r.difference(st, difference)
	}
	if difference != "" {
		if refusalIn(got) != "" && refusalIn(want) == "" {
			difference = "it is refused, which is not written down:\n" + difference
		}
		r.problem(st, difference)
		return nil
	}
	r.count.equal++
	return nil
}

// difference wants one that is written down to be there still.
func (r *run) difference(st step, difference string) error {
	if difference == "" {
		r.problem(st, "a difference is written down, but the answers are equal")
	}
	return nil
}

// otherWords shows the errors of two answers if their words are not the same.
func otherWords(want, got []string) string {
	at, i := slices.IndexFunc(want, isError), slices.IndexFunc(got, isError)
	if at < 0 || i < 0 || withoutDetail(want[at]) == withoutDetail(got[i]) {
		return ""
	}
	return bothFrom(want, at, got, i)
}

// withoutDetail leaves out what depends on the row that was met first.
func withoutDetail(line string) string {
	line, _, _ = strings.Cut(line, detailMark)
	return line
}

// unexpected is an error that a shape did not announce, or the lack of one that it did: a statement that is merely wrong would have
// equal answers too. What fails because a refusal came before it does so only if there was one.
func (st *step) unexpected(lines []string, refuses bool) string {
	at := slices.IndexFunc(lines, isError)
	switch {
	case !st.isShape:
		return ""
	case at < 0 && len(st.fails) > 0 && st.each == "" && refuses:
		return lines[len(lines)-1]
	case at >= 0 && !slices.ContainsFunc(st.fails, func(code string) bool { return strings.HasPrefix(lines[at], "error ERROR "+code+" ") }):
		return lines[at]
	}
	return ""
}

// refusal runs a step on the router, which must refuse it. If that spoils a transaction, the plain server's is spoilt too.
func (r *run) refusal(t *twins, st step) error {
	got, err := t.router.run(st, r.how)
	if err != nil {
		return fmt.Errorf("the router: %w after %q", err, got)
	}
	switch said := refusalIn(got); {
	case said == "":
		r.problem(st, "a refusal is written down, but the answer is:\n"+excerpt(got, 0))
	case !strings.Contains(said, st.refused):
		r.problem(st, fmt.Sprintf("it is refused, but not for %q:\n    %s", st.refused, said))
	default:
		r.count.refused++
	}
	if r.strict {
		if err := r.prove(t, st); err != nil {
			return err
		}
	}
	if t.router.status == 'E' && t.plain.status == 'T' {
		_, err = t.plain.run(step{text: "SELECT 1/0"}, simplePass)
	}
	return err
}

// prove runs what was refused on the plain server, which must answer it, and undoes it.
func (r *run) prove(t *twins, st step) error {
	alone := t.plain.status == 'I'
	if alone {
		if err := t.plain.simple("begin"); err != nil {
			return err
		}
	}
	lines, err := t.plain.run(st, r.how)
	if err != nil {
		return fmt.Errorf("the plain server: %w after %q", err, lines)
	}
	if at := slices.IndexFunc(lines, isError); at >= 0 {
		r.problem(st, "a refusal is written down, but it would fail anyway: "+lines[at])
	}
	if !alone {
		return nil
	}
	return t.plain.simple("rollback")
}

// refusalCode is what the router refuses with.
const refusalCode = "0A000"

// refusalIn is the refusal among the lines, empty if there is none.
func refusalIn(lines []string) string {
	at := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "error ERROR "+refusalCode+" ") })
	if at < 0 {
		return ""
	}
	return lines[at]
}

// sortRows puts runs of rows, and of a COPY's data, in order.
func sortRows(lines []string) {
	for start := 0; start < len(lines); start++ {
		end := start
		for end < len(lines) && (strings.HasPrefix(lines[end], "row ") || strings.HasPrefix(lines[end], "data ")) {
			end++
		}
		slices.Sort(lines[start:end])
		start = max(start, end)
	}
}

// firstDifference shows both answers from where they part, empty if they do not.
func firstDifference(want, got []string) string {
	at := 0 // in want
	for i, line := range got {
		if isError(line) {
			at += acknowledgements(want[min(at, len(want)):])
		}
		if at >= len(want) || !same(want[at], line) {
			return bothFrom(want, at, got, i)
		}
		at++
	}
	if at < len(want) {
		return bothFrom(want, at, got, len(got))
	}
	return ""
}

func bothFrom(want []string, at int, got []string, i int) string {
	return "PostgreSQL:\n" + excerpt(want, at) + "the router:\n" + excerpt(got, i)
}

// acknowledgements counts the messages up to an error that only say that something was understood: a router that finds the
// error earlier does not get to say them. There are none unless an error follows.
func acknowledgements(lines []string) int {
	for i, line := range lines {
		switch {
		case isError(line):
			return i
		case !isAcknowledgement(line):
			return 0
		}
	}
	return 0
}

func isAcknowledgement(line string) bool {
	return line == "ParseComplete" || line == "BindComplete" || line == "NoData" || strings.HasPrefix(line, "columns ") || strings.HasPrefix(line, "copy in ")
}

var errorPlace = regexp.MustCompile(`^(error \S+ \S+) at \d+`)

// forgetPlace takes the places out of errors.
func forgetPlace(lines []string) {
	for i := range lines {
		lines[i] = errorPlace.ReplaceAllString(lines[i], "$1")
	}
}

func isError(line string) bool { return strings.HasPrefix(line, "error ") }

// same compares two lines. Of an error, severity, SQLSTATE and position count: the router may have other words.
func same(want, got string) bool {
	if isError(want) {
		want, _, _ = strings.Cut(want, ": ")
		got, _, _ = strings.Cut(got, ": ")
	}
	return want == got
}

// excerpt is a few lines from there on.
func excerpt(lines []string, from int) string {
	const most = 6
	var b strings.Builder
	for i := from; i < len(lines); i++ {
		if i == from+most {
			fmt.Fprintf(&b, "    … %d more\n", len(lines)-i)
			break
		}
		fmt.Fprintf(&b, "    %s\n", lines[i])
	}
	if from >= len(lines) {
		b.WriteString("    nothing more\n")
	}
	return b.String()
}
