package differential_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	// statementsInWorld is after how many statements another schema is made up.
	statementsInWorld = 500
	// worldsOfCluster keeps the schemas of one cluster from being those of another.
	worldsOfCluster = 1000000
	// mostFailures is how many are looked at in a run.
	mostFailures = 8
	// patience is what a plain server may take for a statement: what takes longer is no use.
	patience = 300 * time.Millisecond
)

// generated is a run of statements that were made up, on one cluster.
type generated struct {
	pair
	prefix string // of schemas
	first  int    // number of a schema
	world  *world
	twins  *twins
	// second has the same rows as the plain server in another order; made when it is needed.
	second *client
	// moves: rows move while statements run, and this counts how often. Without it they stay where they are.
	moves *movements
	// The last statement's answers, and the step that they are to.
	want, got answer
	asked     step

	tried, worlds, failures, filled int
	verdicts                        map[verdict]int
	refusals                        map[string]*refusal
	codes                           map[string]int // of the plain server's answers
	building, slowest               time.Duration
}

// refusal is how often something was refused, with the shortest example.
type refusal struct {
	count   int
	shapes  map[string]int
	example string
}

func newGenerated(p pair, prefix string) *generated {
	return &generated{pair: p, prefix: prefix, verdicts: map[verdict]int{}, refusals: map[string]*refusal{}, codes: map[string]int{}}
}

// run makes up worlds and statements until the time is over.
func (r *generated) run(t *testing.T, howLong time.Duration) {
	t.Helper()
	end := time.Now().Add(howLong)
	goesOn := func() bool { return time.Now().Before(end) && r.failures < mostFailures }
	if *onlyFlag != "" {
		r.runOnly(t)
		return
	}
	for number := r.first; goesOn(); number++ {
		if err := r.enter(t.Context(), number); err != nil {
			t.Fatal(err)
		}
		r.tryAll(t, number, goesOn)
		if err := r.leave(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// tryAll makes up the statements of a world.
func (r *generated) tryAll(t *testing.T, number int, goesOn func() bool) {
	t.Helper()
	most := statementsInWorld
	if r.moves != nil {
		most = statementsWhileMoving
		mover := startMoving(t.Context(), r.api, r.world, uint64(number), r.moves) //nolint:gosec // small numbers
		defer func() {
			if err := mover.end(); err != nil {
				t.Error(err)
			}
		}()
	}
	for i := 0; i < most && goesOn(); i++ {
		r.try(t, number, i)
	}
}

// runOnly runs what the flag names.
func (r *generated) runOnly(t *testing.T) {
	t.Helper()
	var number, one int
	if _, err := fmt.Sscanf(*onlyFlag, "%d/%d", &number, &one); err != nil {
		t.Fatal(err)
	}
	if err := r.enter(t.Context(), number); err != nil {
		t.Fatal(err)
	}
	for i := range statementsInWorld {
		if one < 0 || i == one {
			r.try(t, number, i)
		}
	}
}

// enter makes a world.
func (r *generated) enter(ctx context.Context, number int) error {
	r.worlds++
	defer func(begin time.Time) { r.building += time.Since(begin) }(time.Now())
	g := newMaker(*seedFlag, uint64(number)<<32) //nolint:gosec // small numbers
	r.world = makeWorld(g, fmt.Sprintf("%s_%d", r.prefix, number), number)
	if err := r.makeSchema(ctx, r.world.schema); err != nil {
		return err
	}
	if err := r.open(ctx); err != nil {
		return err
	}
	if err := r.build(ctx); err != nil {
		return err
	}
	return r.limit()
}

// build makes the world on both sides.
func (r *generated) build(ctx context.Context) error {
	if err := r.world.build(r.twins.plain); err != nil {
		return err
	}
	other := r.world
	if !r.isRouter {
		other = r.world.reversed()
	}
	if err := other.build(r.twins.router); err != nil {
		return err
	}
	if r.isRouter {
		if err := r.world.declare(ctx, r.pair, r.twins.router); err != nil {
			return err
		}
	}
	if !r.world.viewsLater {
		return nil
	}
	return errors.Join(r.world.makeViews(r.twins.plain), r.world.makeViews(r.twins.router))
}

// limit lets the plain server give up what takes long.
func (r *generated) limit() error {
	return r.twins.plain.simple(fmt.Sprintf("set statement_timeout = %d", patience.Milliseconds()/2))
}

// open connects to both.
func (r *generated) open(ctx context.Context) error {
	var err error
	if r.twins, err = r.connect(ctx, r.world.schema); err != nil {
		return err
	}
	for _, c := range []*client{r.twins.plain, r.twins.router} {
		if err := r.world.settle(c); err != nil {
			return err
		}
	}
	if r.isRouter {
		return nil
	}
	return r.twins.router.simple(otherPlans)
}

// otherPlans makes a server plan otherwise than it would.
const otherPlans = "set enable_hashagg = off; set enable_hashjoin = off; set enable_seqscan = off; set enable_material = off"

// leave takes the world away again.
func (r *generated) leave(ctx context.Context) error {
	defer r.twins.close()
	if r.second != nil {
		r.second.close()
		r.second = nil
	}
	if err := r.twins.plain.simple("set statement_timeout = 0"); err != nil { // on a busy machine even this may take long
		return err
	}
	return r.world.remove(ctx, r.pair, r.twins)
}

// makeUp makes up a statement: the same one for the same numbers.
func (r *generated) makeUp(number, i int) *statement {
	g := newMaker(*seedFlag, uint64(number)<<32+uint64(i)+1) //nolint:gosec // small numbers
	g.world = r.world
	return g.statement()
}

// try makes up a statement and compares the answers.
func (r *generated) try(t *testing.T, number, i int) {
	t.Helper()
	st := r.makeUp(number, i)
	v := r.compare(st)
	if v.isFailure() && r.isAmbiguous(t.Context(), st) {
		v = ambiguous
	}
	r.count(st, v)
	if !v.isFailure() {
		return
	}
	r.failures++
	flags := fmt.Sprintf("-seed %d -only %d/%d -shards %s", *seedFlag, number, i, strings.TrimPrefix(r.prefix, "g"))
	t.Errorf("%s: %s, %s pass\n%s\n%s", v, flags, st.how, st.text(), r.answers())
	if v == lost {
		r.reconnect(t)
		return
	}
	rows := r.world.save()
	r.shrink(t.Context(), st, v)
	found, isSame := r.found(t.Context(), st, v, flags)
	t.Errorf("made small:\n%s\n%s", found, r.answers())
	if err := r.restore(rows); err != nil {
		t.Fatal(err)
	}
	if !isSame {
		t.Error("but in a schema of its own it does not fail")
	}
	if *keepFlag && isSame {
		keep(t, fmt.Sprintf("seed%d_%d_%d", *seedFlag, number, i), found)
	}
}

// count notes what came of a statement.
func (r *generated) count(st *statement, v verdict) {
	r.tried++
	r.verdicts[v]++
	r.codes[r.want.code]++
	if len(r.want.rows) > 0 {
		r.filled++
	}
	switch v {
	case refused:
		r.refuse(r.got.reason(), st.shape, st.text())
	case ambiguous:
		r.refuse("no refusal: two plain servers differ themselves", st.shape, st.text())
	default:
	}
}

// answers shows the last two.
func (r *generated) answers() string {
	return fmt.Sprintf("asked: %s\n%sPostgreSQL:\n%sthe router:\n%s", r.asked.text, describeParams(r.asked.params), r.want, r.got)
}

func describeParams(params []param) string {
	var b strings.Builder
	for i, p := range params {
		value := "NULL"
		if p.value != nil {
			value = *p.value
		}
		fmt.Fprintf(&b, "    $%d = %s %s\n", i+1, p.typeName, value)
	}
	return b.String()
}

func (r *generated) reconnect(t *testing.T) {
	t.Helper()
	r.twins.close()
	if err := r.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.limit(); err != nil {
		t.Fatal(err)
	}
}

// compare runs a statement on both sides and keeps the answers.
func (r *generated) compare(st *statement) verdict {
	return r.compareWith(st, r.twins.plain, r.twins.router)
}

// isAmbiguous says whether two plain servers give different answers, which is the statement's fault then.
func (r *generated) isAmbiguous(ctx context.Context, st *statement) bool {
	if !r.isRouter {
		return false
	}
	if r.second == nil {
		if err := r.makeSecond(ctx); err != nil {
			panic(err)
		}
	}
	want, got, asked := r.want, r.got, r.asked
	defer func() { r.want, r.got, r.asked = want, got, asked }()
	return r.compareWith(st, r.twins.plain, r.second) != equal
}

// makeSecond makes the world once more on the plain server, with its rows in another order.
func (r *generated) makeSecond(ctx context.Context) error {
	schema := r.world.schema + "_second"
	var err error
	if r.second, err = dial(ctx, r.plain, schema); err != nil {
		return err
	}
	for _, statement := range []string{"drop schema if exists " + schema + " cascade", "create schema " + schema, otherPlans} {
		if err := r.second.simple(statement); err != nil {
			return err
		}
	}
	if err := r.world.settle(r.second); err != nil {
		return err
	}
	return r.world.reversed().build(r.second)
}

// compareWith runs all steps of a statement on both, up to the first that has different answers.
func (r *generated) compareWith(st *statement, plain, other *client) verdict {
	defer st.tidy(plain, other)
	for _, turn := range st.turns() {
		r.asked = turn.step
		begin := time.Now()
		r.want = plain.ask(turn.step, turn.how)
		if took := time.Since(begin); r.want.lost != nil || r.want.code == "57014" || took > patience {
			return skipped
		}
		inBlock := other.status != 'I'
		begin = time.Now()
		r.got = other.ask(turn.step, turn.how)
		r.slowest = max(r.slowest, time.Since(begin))
		v := turn.by.judge(r.want, r.got)
		if r.moves != nil && v == otherError && mayBeAskedAgain(turn.text, inBlock, r.got) {
			return refused
		}
		if v == otherShape && plain.describes(cmp.Or(turn.text, turn.whole), turn.params, r.got) {
			r.want.columns = r.got.columns
			v = turn.by.judge(r.want, r.got)
		}
		if v != equal {
			return v
		}
		if r.want.code != "" {
			break
		}
	}
	return equal
}

func (r *generated) refuse(why string, shape []string, example string) {
	known := r.refusals[why]
	if known == nil {
		known = &refusal{example: example, shapes: map[string]int{}}
		r.refusals[why] = known
	}
	known.count++
	for _, word := range shape {
		known.shapes[word]++
	}
	if len(example) < len(known.example) {
		known.example = example
	}
}

// report says what came of all statements.
func (r *generated) report(t *testing.T) {
	t.Helper()
	var b strings.Builder
	for _, v := range slices.Sorted(maps.Keys(r.verdicts)) {
		fmt.Fprintf(&b, "%6d %s\n", r.verdicts[v], v)
	}
	for _, code := range slices.Sorted(maps.Keys(r.codes)) {
		fmt.Fprintf(&b, "%6d of the plain server's answers: %s\n", r.codes[code], cmp.Or(code, "no error"))
	}
	fmt.Fprintf(&b, "%6d answers with rows; %d schemas took %s; the slowest answer %s\n", r.filled, r.worlds, r.building.Round(time.Millisecond), r.slowest.Round(time.Millisecond))
	for _, why := range slices.SortedFunc(maps.Keys(r.refusals), func(a, b string) int { return cmp.Compare(r.refusals[b].count, r.refusals[a].count) }) {
		fmt.Fprintf(&b, "%6d refused: %s\n", r.refusals[why].count, why)
		fmt.Fprintf(&b, "       with %s\n       %.500s\n", r.refusals[why].words(), r.refusals[why].example)
	}
	t.Log("\n" + b.String())
}

// words are those that most of the refused statements have in common.
func (f *refusal) words() string {
	const most = 8
	words := slices.SortedFunc(maps.Keys(f.shapes), func(a, b string) int {
		return cmp.Or(cmp.Compare(f.shapes[b], f.shapes[a]), cmp.Compare(a, b))
	})
	words = words[:min(len(words), most)]
	for i, word := range words {
		words[i] = fmt.Sprintf("%s %d", word, f.shapes[word])
	}
	return strings.Join(words, ", ")
}
