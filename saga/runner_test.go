package saga

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/thorough"
)

// everywhere are the tests that a plain PostgreSQL and a cluster behind a router have to pass alike.
var everywhere = []struct {
	name string
	run  func(*testing.T, *world)
}{
	{"crashes", testCrashes}, {"the caller dies", testCallerDies}, {"stopped", testStopped}, {"dies again and again", testDiesAgainAndAgain},
	{"steps", testSteps}, {"start", testStart}, {"results", testResults}, {"attempts", testAttempts}, {"failures", testFailures}, {"stuck", testStuck}, {"by hand", testByHand},
	{"unknown", testUnknown}, {"unknown undo", testUnknownUndo}, {"several runners", testSeveralRunners}, {"long steps", testLongSteps}, {"abandoned", testAbandonTakesTheLeaseAway},
	{"stop", testStop}, {"stop cuts off", testStopCutsOff}, {"unkept", testUnkept}, {"older state", testOlderState}, {"taken by somebody else", testTakenBySomebodyElse}, {"transactions", testTransactionsOfSteps},
	{"few connections", testFewConnections}, {"list and purge", testListAndPurge},
}

func TestOnPostgres(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	onPostgres(t).runAll(t)
}

func TestBehindARouter(t *testing.T) {
	t.Parallel()
	w := behindRouter(t)
	t.Run("install", func(t *testing.T) { testInstall(t, w) })
	w.prepare(t)
	w.runAll(t)
	t.Run("routes", func(t *testing.T) { testRoutes(t, w) })
	t.Run("visible", func(t *testing.T) { testVisible(t, w) })
	t.Run("fairness", func(t *testing.T) { testFairness(t, w) })
	t.Run("a shard is away", func(t *testing.T) { testShardAway(t, w) }) // it does not come back
}

func (w *world) runAll(t *testing.T) {
	t.Helper()
	for _, test := range everywhere {
		t.Run(test.name, func(t *testing.T) { test.run(t, w) })
	}
}

// soon is a policy for tests: little waiting, few attempts.
var soon = Policy{MaxAttempts: 3, MinDelay: time.Millisecond, MaxDelay: 5 * time.Millisecond, Timeout: 20 * time.Second}

var errBusy = errors.New("the service is busy")

func wantTraces(t *testing.T, w *world, s Started, want ...string) {
	t.Helper()
	if got := whats(w.traces(t, s)); !slices.Equal(got, want) {
		t.Errorf("this happened: %q; this should: %q", got, want)
	}
}

// testSteps: all steps in order, or those that were done undone in reverse.
func testSteps(t *testing.T, w *world) {
	run(t, w.runner(t, nil, w.order("order", orders{})))
	done, refused := w.begin(t, "order", order{}), w.begin(t, "order", order{Refused: true})
	saga := w.wait(t, done, Completed)
	wantTraces(t, w, done, "reserve do", "charge do", "book do", "ship do")
	if saga.Step != "" || saga.Holder != "" || saga.LastError != "" || saga.Ended.IsZero() || !saga.Due.IsZero() || len(saga.Steps) != 4 {
		t.Errorf("%+v", saga)
	}
	saga = w.wait(t, refused, Compensated)
	wantTraces(t, w, refused, "reserve do", "charge do", "book do", "book undo", "charge undo", "reserve undo")
	if saga.FailedStep != "ship" || saga.Failure != errRefused.Error() || len(saga.Steps) != 3 {
		t.Errorf("%+v", saga)
	}
	for _, s := range saga.Steps {
		if s.State != string(stepCompensated) || s.Attempts != 1 || s.CompensationAttempts != 1 || s.Done.IsZero() || s.Compensated.Before(s.Done) {
			t.Errorf("%+v", s)
		}
	}
}

// testStart: one idempotency key is one saga, and a saga is there when its transaction has committed.
func testStart(t *testing.T, w *world) {
	request := Request{Type: "started", Key: newKey(), IdempotencyKey: "a", Input: map[string]any{"a": 1, "b": []string{"ü"}}}
	first := w.start(t, request)
	request.Input = struct { // the same in another order
		B []string `json:"b"`
		A int      `json:"a"`
	}{[]string{"ü"}, 1}
	if again := w.start(t, request); !first.New || again.New || again.ID != first.ID || again.State != Running {
		t.Errorf("started %+v, then %+v", first, again)
	}
	request.Input = "another"
	if _, err := Start(t.Context(), w.pool, request); !errors.Is(err, ErrOtherInput) {
		t.Errorf("with another input: %v", err)
	}
	for _, other := range []Request{
		{Type: "started", Key: request.Key, IdempotencyKey: "b"}, {Type: "other", Key: request.Key, IdempotencyKey: "a"}, {Type: "started", Key: newKey(), IdempotencyKey: "a"},
	} {
		if s := w.start(t, other); !s.New {
			t.Errorf("%+v is the same saga", other)
		}
	}
	for _, wrong := range []Request{
		{Key: 1, IdempotencyKey: "a"}, {Type: "a/b", Key: 1, IdempotencyKey: "a"}, {Type: "a", IdempotencyKey: "a"}, {Type: "a", Key: 1},
		{Type: "a", Key: 1, IdempotencyKey: strings.Repeat("a", MaxIdempotencyKey+1)}, {Type: "a", Key: 1, IdempotencyKey: "a", Input: strings.Repeat("a", MaxPayload)},
		{Type: "a", Key: 1, IdempotencyKey: "a", Input: make(chan int)},
	} {
		if s, err := Start(t.Context(), w.pool, wrong); err == nil {
			t.Errorf("%.100v was started: %v", wrong, s)
		}
	}
	request = Request{Type: "started", Key: newKey(), IdempotencyKey: "a"}
	undone := errors.New("undone")
	if err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
		if s, err := Start(t.Context(), tx, request); err != nil || !s.New {
			t.Error(s, err)
		}
		if s, err := Start(t.Context(), tx, request); err != nil || s.New {
			t.Error(s, err)
		}
		return undone
	}); !errors.Is(err, undone) {
		t.Error(err)
	}
	if s := w.start(t, request); !s.New {
		t.Error("a saga of a transaction that was rolled back is there")
	}
}

// testResults: a step sees the input and the results of those before it, and its own when it is undone.
func testResults(t *testing.T, w *world) {
	type number struct{ N int }
	seen := make(chan string, 10)
	add := func(c *Call, from string) (any, error) {
		var before number
		if err := c.Result(from, &before); err != nil {
			return nil, err
		}
		return number{before.N + 1}, nil
	}
	undo := Outside(func(_ context.Context, c *Call) (any, error) {
		var own, later number
		err := c.Result(c.Step, &own)
		if err == nil {
			err = c.Result("third", &later)
		}
		seen <- fmt.Sprint(c.Step, own.N, later.N, errors.Is(err, ErrNoResult), c.Key, c.Attempt, c.Direction)
		return number{-own.N}, nil
	})
	run(t, w.runner(t, nil, Type{Name: "results", Steps: []Step{
		{Name: "first", Do: SQL(func(_ context.Context, _ pgx.Tx, c *Call) (any, error) {
			var in number
			return &in, c.Input(&in)
		}), Undo: undo},
		{Name: "second", Do: Outside(func(_ context.Context, c *Call) (any, error) { return add(c, "first") }), Undo: undo},
		{Name: "third", Do: Outside(func(_ context.Context, c *Call) (any, error) {
			got, err := add(c, "second")
			return nil, Permanent(fmt.Errorf("third has %v, %w", got, err))
		})},
	}}))
	s := w.begin(t, "results", number{40})
	saga := w.wait(t, s, Compensated)
	if !strings.Contains(saga.Failure, "third has {42}") {
		t.Errorf("%+v", saga)
	}
	for _, want := range []string{fmt.Sprint("second", 41, 0, true, s.Key, 1, Undo), fmt.Sprint("first", 40, 0, true, s.Key, 1, Undo)} {
		if got := <-seen; got != want {
			t.Errorf("seen %s, not %s", got, want)
		}
	}
	if got := string(saga.Steps[1].Result) + string(saga.Steps[1].CompensationResult); got != `{"N":41}{"N":-41}` {
		t.Errorf("kept: %s", got)
	}
}

// testAttempts: what fails is tried again; a SQL step that failed has left nothing.
func testAttempts(t *testing.T, w *world) {
	flaky := func(c *Call) error {
		if c.Attempt < 3 {
			return errBusy
		}
		return nil
	}
	run(t, w.runner(t, nil, Type{Name: "attempts", Steps: []Step{
		{Name: "sql", Policy: soon, UndoPolicy: soon, Do: SQL(func(ctx context.Context, tx pgx.Tx, c *Call) (any, error) {
			return nil, errors.Join(leave(ctx, tx, c), flaky(c))
		}), Undo: Outside(func(ctx context.Context, c *Call) (any, error) {
			return nil, errors.Join(leave(ctx, w.pool, c), flaky(c))
		})},
		{Name: "outside", Policy: soon, Do: Outside(func(ctx context.Context, c *Call) (any, error) {
			return nil, errors.Join(leave(ctx, w.pool, c), flaky(c))
		})},
		{Name: "panics", Policy: soon, Do: SQL(func(ctx context.Context, tx pgx.Tx, c *Call) (any, error) {
			panic(errors.Join(leave(ctx, tx, c), errBusy))
		})},
	}}))
	s := w.begin(t, "attempts", nil)
	saga := w.wait(t, s, Compensated)
	wantTraces(t, w, s, "sql do", "outside do", "outside do", "outside do", "sql undo", "sql undo", "sql undo")
	if saga.FailedStep != "panics" || !strings.Contains(saga.Failure, "panic") || saga.Steps[0].Attempts != 3 || saga.Steps[0].CompensationAttempts != 3 || saga.Steps[1].Attempts != 3 {
		t.Errorf("%+v", saga)
	}
}

// testFailures: what may have been done is undone, what certainly was not is not.
func testFailures(t *testing.T, w *world) {
	slow := soon
	slow.Timeout = 20 * time.Millisecond
	patient := soon
	patient.MaxAttempts = Unlimited
	cases := map[string]struct {
		step Step
		want []string
		why  string
	}{
		"permanent": {Step{Do: failing(fmt.Errorf("refused: %w", Permanent(errBusy)))}, []string{"first do", "first undo"}, "refused: the service is busy"},
		"used-up":   {Step{Do: failing(errBusy)}, []string{"first do", "last undo", "first undo"}, errBusy.Error()},
		"unlimited": {Step{Do: Outside(func(_ context.Context, c *Call) (any, error) { return nil, untilAttempt(7, c) }), Policy: patient}, []string{"first do", "first undo"}, "attempt 7"},
		"sql": {Step{Do: SQL(func(ctx context.Context, tx pgx.Tx, c *Call) (any, error) {
			return nil, errors.Join(leave(ctx, tx, c), errBusy)
		})}, []string{"first do", "first undo"}, errBusy.Error()},
		"wrong-sql": {Step{Do: SQL(func(ctx context.Context, tx pgx.Tx, _ *Call) (any, error) {
			_, err := tx.Exec(ctx, "SELECT 1/0")
			return nil, err
		})}, []string{"first do", "first undo"}, "division by zero"},
		"swallowed": {Step{Do: SQL(func(ctx context.Context, tx pgx.Tx, _ *Call) (any, error) {
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			return nil, nil
		})}, []string{"first do", "first undo"}, "transaction has failed"},
		"slow": {Step{Do: Outside(func(ctx context.Context, _ *Call) (any, error) { <-ctx.Done(); return nil, ctx.Err() }), Policy: slow}, []string{"first do", "last undo", "first undo"}, "took too long, more than 20ms"},
		"slow-sql": {Step{Do: SQL(func(ctx context.Context, tx pgx.Tx, _ *Call) (any, error) {
			_, err := tx.Exec(ctx, "SELECT pg_sleep(10)")
			return nil, err
		}), Policy: slow}, []string{"first do", "first undo"}, "took too long"},
		"long-error": {Step{Do: failing(Permanent(errors.New(strings.Repeat("\x00ü", maxError))))}, []string{"first do", "first undo"}, "?ü?ü"},
	}
	var types []Type
	for name, c := range cases {
		c.step.Name, c.step.Undo, c.step.UndoPolicy = "last", w.outsideTrace(), soon
		if c.step.Policy == (Policy{}) {
			c.step.Policy = soon
		}
		types = append(types, Type{Name: name, Steps: []Step{{Name: "first", Do: sqlTrace(), Undo: sqlTrace()}, {Name: "nothing-to-undo", Do: Outside(func(context.Context, *Call) (any, error) { return nil, nil })}, c.step}})
	}
	run(t, w.runner(t, nil, types...))
	started := map[string]Started{}
	for name := range cases {
		started[name] = w.begin(t, name, nil)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			saga := w.wait(t, started[name], Compensated)
			wantTraces(t, w, started[name], c.want...)
			if saga.FailedStep != "last" || !strings.Contains(saga.Failure, c.why) || len(saga.Failure) > maxError+10 {
				t.Errorf("failed at %s: %.200s", saga.FailedStep, saga.Failure)
			}
		})
	}
}

func untilAttempt(n int, c *Call) error {
	err := fmt.Errorf("attempt %d", c.Attempt)
	if c.Attempt == n {
		return Permanent(err)
	}
	return err
}

// testStuck: a compensation that does not succeed is not passed over; a person has it go on, or gives it up.
func testStuck(t *testing.T, w *world) {
	var mended atomic.Bool
	undo := Outside(func(ctx context.Context, c *Call) (any, error) {
		if !mended.Load() {
			return nil, errBusy
		}
		return nil, leave(ctx, w.pool, c)
	})
	run(t, w.runner(t, nil, Type{Name: "stuck", Steps: []Step{
		{Name: "first", Do: sqlTrace(), Undo: sqlTrace()}, {Name: "second", Do: w.outsideTrace(), Undo: undo, UndoPolicy: soon}, {Name: "third", Do: failing(Permanent(errRefused))},
	}}, Type{Name: "stuck-at-once", Steps: []Step{{Name: "first", Do: sqlTrace(), Undo: failing(Permanent(errBusy))}, {Name: "second", Do: failing(Permanent(errRefused))}}}))
	s, given, once := w.begin(t, "stuck", nil), w.begin(t, "stuck", nil), w.begin(t, "stuck-at-once", nil)
	saga := w.wait(t, s, Stuck)
	if saga.Step != "second" || saga.Attempts != soon.MaxAttempts || saga.LastError != errBusy.Error() || saga.Failure != errRefused.Error() || !saga.Due.IsZero() || saga.Holder != "" {
		t.Errorf("%+v", saga)
	}
	if saga := w.wait(t, once, Stuck); saga.Attempts != 1 {
		t.Errorf("%+v", saga)
	}
	if err := Retry(t.Context(), w.pool, s.Key, s.ID, ""); err != nil { // in vain
		t.Error(err)
	}
	eventually(t, "it is stuck again", func() bool {
		saga, err := Get(t.Context(), w.pool, s.Key, s.ID)
		return err == nil && saga.State == Stuck && saga.Attempts == soon.MaxAttempts
	})
	w.wait(t, given, Stuck) // before anything helps it
	mended.Store(true)
	if err := Retry(t.Context(), w.pool, s.Key, s.ID, "the service is back"); err != nil {
		t.Error(err)
	}
	if saga := w.wait(t, s, Compensated); saga.Note != "the service is back" {
		t.Errorf("%+v", saga)
	}
	wantTraces(t, w, s, "first do", "second do", "second undo", "first undo")
	if err := Abandon(t.Context(), w.pool, given.Key, given.ID, ""); err == nil {
		t.Error("abandoned without a note")
	}
	if err := Abandon(t.Context(), w.pool, given.Key, given.ID, "paid back by hand"); err != nil {
		t.Error(err)
	}
	if saga := w.wait(t, given, Abandoned); saga.Note != "paid back by hand" || saga.Step != "second" || saga.Ended.IsZero() {
		t.Errorf("%+v", saga)
	}
	for want, err := range map[error]error{
		ErrNotStuck: Retry(t.Context(), w.pool, s.Key, s.ID, ""), ErrEnded: Abandon(t.Context(), w.pool, given.Key, given.ID, "again"),
		ErrNotFound: Retry(t.Context(), w.pool, int64(-1), s.ID, ""),
	} {
		if !errors.Is(err, want) {
			t.Errorf("got %v, not %v", err, want)
		}
	}
	wantTraces(t, w, given, "first do", "second do")
}

// testByHand: the statements that docs/sagas.md gives to people do what Retry and Abandon do.
func testByHand(t *testing.T, w *world) {
	page, err := os.ReadFile("../docs/sagas.md")
	if err != nil {
		t.Fatal(err)
	}
	statements := regexp.MustCompile(`(?s)UPDATE sagas\.sagas SET state = '(compensating|abandoned)'.*?;`).FindAllString(string(page), -1)
	if len(statements) != 2 {
		t.Fatalf("the page has the statements %q", statements)
	}
	var mended atomic.Bool
	run(t, w.runner(t, nil, Type{Name: "by-hand", Steps: []Step{{Name: "first", Do: sqlTrace(), Undo: Outside(func(ctx context.Context, c *Call) (any, error) {
		if !mended.Load() {
			return nil, Permanent(errBusy)
		}
		return nil, leave(ctx, w.pool, c)
	})}, {Name: "second", Do: failing(Permanent(errRefused))}}}))
	resumed, given := w.begin(t, "by-hand", nil), w.begin(t, "by-hand", nil)
	w.wait(t, resumed, Stuck)
	w.wait(t, given, Stuck)
	mended.Store(true)
	for i, s := range []Started{resumed, given} {
		w.exec(t, strings.NewReplacer("key = 42", fmt.Sprint("key = ", s.Key), "'…'", "'"+s.ID+"'").Replace(statements[i]))
	}
	w.wait(t, resumed, Compensated)
	wantTraces(t, w, resumed, "first do", "first undo")
	if saga := w.wait(t, given, Abandoned); saga.Note == "" {
		t.Errorf("%+v", saga)
	}
}

// testUnknown: types and steps that a program does not know it leaves as they are, for one that knows them.
func testUnknown(t *testing.T, w *world) {
	nothing := w.outsideTrace()
	older := Type{Name: "grown", Steps: []Step{{Name: "first", Do: nothing}, {Name: "wait", Do: failing(errBusy), Policy: Policy{MinDelay: 50 * time.Millisecond, MaxAttempts: Unlimited}}}}
	newer := Type{Name: "grown", Steps: []Step{{Name: "first", Do: nothing}, {Name: "second", Do: nothing}}}
	stop := run(t, w.runner(t, nil, older))
	s, strange := w.begin(t, "grown", nil), w.begin(t, "strange", nil)
	var before Saga
	eventually(t, "it waits", func() bool {
		before, _ = Get(t.Context(), w.pool, s.Key, s.ID)
		return before.Step == "wait" && before.Attempts > 0 && before.Holder == ""
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	before, _ = Get(t.Context(), w.pool, s.Key, s.ID)
	stop = run(t, w.runner(t, nil, newer, w.order("order", orders{})))
	w.wait(t, w.begin(t, "order", order{}), Completed) // so it had time to take the others
	time.Sleep(200 * time.Millisecond)
	if err := stop(); err != nil {
		t.Error(err)
	}
	after, err := Get(t.Context(), w.pool, s.Key, s.ID)
	if before.Age, after.Age = 0, 0; err != nil || fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("%v: it was\n%+v and is\n%+v", err, before, after)
	}
	if untouched, err := Get(t.Context(), w.pool, strange.Key, strange.ID); err != nil || untouched.Step != "" || untouched.State != Running {
		t.Errorf("%+v, %v", untouched, err)
	}
	older.Steps[1].Do = nothing
	run(t, w.runner(t, nil, older))
	w.wait(t, s, Completed)
	wantTraces(t, w, s, "first do", "wait do")
}

// testUnknownUndo: a step that was done by another version is undone by one that knows how.
func testUnknownUndo(t *testing.T, w *world) {
	refuse := Step{Name: "last", Do: failing(Permanent(errRefused))}
	wait := Step{Name: "last", Do: failing(errBusy), Policy: Policy{MinDelay: 20 * time.Millisecond, MaxAttempts: Unlimited}}
	first := Step{Name: "first", Do: w.outsideTrace(), Undo: w.outsideTrace()}
	second := Step{Name: "second", Do: w.outsideTrace(), Undo: w.outsideTrace()}
	stop := run(t, w.runner(t, nil, Type{Name: "shrunk", Steps: []Step{first, second, wait}}))
	s := w.begin(t, "shrunk", nil)
	eventually(t, "it waits", func() bool {
		saga, err := Get(t.Context(), w.pool, s.Key, s.ID)
		return err == nil && saga.Step == "last" && saga.Attempts > 0
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	stop = run(t, w.runner(t, nil, Type{Name: "shrunk", Steps: []Step{first, refuse}}))
	eventually(t, "it is left alone", func() bool {
		saga, err := Get(t.Context(), w.pool, s.Key, s.ID)
		return err == nil && saga.State == Compensating && saga.Step == "second" && saga.Holder == ""
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	const epochSQL = "SELECT epoch FROM sagas.sagas WHERE key = $1 AND id = $2"
	epoch := one[int](t, w.pool, epochSQL, s.Key, s.ID)
	withoutUndo := second
	withoutUndo.Undo = Action{}
	stop = run(t, w.runner(t, nil, Type{Name: "shrunk", Steps: []Step{first, withoutUndo, refuse}}))
	time.Sleep(200 * time.Millisecond)
	if err := stop(); err != nil {
		t.Error(err)
	}
	wantTraces(t, w, s, "first do", "second do")
	if after := one[int](t, w.pool, epochSQL, s.Key, s.ID); after != epoch {
		t.Errorf("it was taken %d times by a program that does not know how to undo the step", after-epoch)
	}
	run(t, w.runner(t, nil, Type{Name: "shrunk", Steps: []Step{first, second, refuse}}))
	w.wait(t, s, Compensated)
	wantTraces(t, w, s, "first do", "second do", "second undo", "first undo")
}

// testSeveralRunners: many sagas and several runners, and everything happens once.
func testSeveralRunners(t *testing.T, w *world) {
	const runners, sagas = 3, 60
	kind := w.order("shared", orders{})
	started := make([]Started, sagas)
	for i := range started {
		started[i] = w.begin(t, "shared", order{Refused: i%3 == 0, Slow: i%3 == 1})
	}
	for i := range runners {
		pool := openPool(t, w.dsn, 8)
		run(t, w.runner(t, func(c *Config) { c.Pool, c.Name, c.Batch = pool, fmt.Sprint("runner ", i), 7 }, kind))
	}
	for i, s := range started {
		state := Completed
		if i%3 == 0 {
			state = Compensated
		}
		w.wait(t, s, state)
		crash{input: order{Refused: i%3 == 0}, calls: 1, undone: 1}.once(t, s, w.traces(t, s))
	}
}

// testLongSteps: the lease is renewed, so nobody else takes a saga whose step takes longer.
func testLongSteps(t *testing.T, w *world) {
	kind := Type{Name: "long", Steps: []Step{
		{Name: "outside", Do: Outside(func(ctx context.Context, c *Call) (any, error) {
			time.Sleep(2 * lease)
			return nil, leave(ctx, w.pool, c)
		})},
		{Name: "sql", Do: SQL(func(ctx context.Context, tx pgx.Tx, c *Call) (any, error) {
			_, err := tx.Exec(ctx, "SELECT pg_sleep($1)", (2 * lease).Seconds())
			return nil, errors.Join(err, leave(ctx, tx, c))
		})},
	}}
	run(t, w.runner(t, short, kind))
	run(t, w.runner(t, short, kind))
	s := w.begin(t, "long", nil)
	w.wait(t, s, Completed)
	wantTraces(t, w, s, "outside do", "sql do")
	if epoch := one[int](t, w.pool, "SELECT epoch FROM sagas.sagas WHERE key = $1 AND id = $2", s.Key, s.ID); epoch != 1 {
		t.Errorf("it was taken %d times", epoch)
	}
}

// testAbandonTakesTheLeaseAway is S23: who runs a saga that a person gives up notices, and writes nothing.
func testAbandonTakesTheLeaseAway(t *testing.T, w *world) {
	begun, ended := make(chan struct{}, 2), make(chan error, 2)
	wait := func(ctx context.Context) string {
		begun <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return "done all the same"
	}
	run(t, w.runner(t, short,
		Type{Name: "taken-away", Steps: []Step{{Name: "outside", Do: Outside(func(ctx context.Context, _ *Call) (any, error) { return wait(ctx), nil })}}},
		Type{Name: "taken-away-sql", Steps: []Step{{Name: "sql", Do: SQL(func(ctx context.Context, tx pgx.Tx, c *Call) (any, error) {
			err := leave(ctx, tx, c)
			return wait(ctx), err
		})}}}))
	for _, kind := range []string{"taken-away", "taken-away-sql"} {
		s := w.begin(t, kind, nil)
		<-begun
		if err := Abandon(t.Context(), w.pool, s.Key, s.ID, "no longer wanted"); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, errLost) {
			t.Errorf("the step's context ended with %v", err)
		}
		time.Sleep(50 * time.Millisecond)
		if saga := w.wait(t, s, Abandoned); len(saga.Steps) != 0 || saga.LastError != "" {
			t.Errorf("%+v", saga)
		}
		wantTraces(t, w, s)
	}
}

// testStop: a runner that is to stop lets the step that is under way end, and leaves the rest to others at once.
func testStop(t *testing.T, w *world) {
	begun, goOn := make(chan struct{}, 1), make(chan struct{})
	kind := func(do Action) Type {
		return Type{Name: "stopped", Steps: []Step{{Name: "first", Do: do}, {Name: "second", Do: w.outsideTrace()}}}
	}
	hour := func(c *Config) { c.Lease = time.Hour } // nobody waits for that
	stop := run(t, w.runner(t, hour, kind(Outside(func(ctx context.Context, c *Call) (any, error) {
		begun <- struct{}{}
		<-goOn
		return nil, leave(ctx, w.pool, c)
	}))))
	s := w.begin(t, "stopped", nil)
	<-begun
	time.AfterFunc(100*time.Millisecond, func() { close(goOn) })
	if err := stop(); err != nil {
		t.Error(err)
	}
	wantTraces(t, w, s, "first do")
	saga, err := Get(t.Context(), w.pool, s.Key, s.ID)
	if err != nil || saga.Step != "second" || saga.Holder != "" || saga.Attempts != 0 {
		t.Errorf("%+v, %v", saga, err)
	}
	run(t, w.runner(t, hour, kind(w.outsideTrace())))
	w.wait(t, s, Completed)
	wantTraces(t, w, s, "first do", "second do")
}

// testStopCutsOff: a step that takes too long when its runner is to stop is cut off and left to others, and one that does not heed its context is told of.
func testStopCutsOff(t *testing.T, w *world) {
	begun, stubborn := make(chan struct{}, 1), make(chan struct{})
	defer close(stubborn)
	kind := func(name string, do Action) Type { return Type{Name: name, Steps: []Step{{Name: "only", Do: do}}} }
	impatient := func(c *Config) { c.Lease, c.StopTimeout = time.Hour, 50*time.Millisecond }
	stop := run(t, w.runner(t, impatient, kind("cut-off", Outside(func(ctx context.Context, _ *Call) (any, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}))))
	s := w.begin(t, "cut-off", nil)
	<-begun
	if err := stop(); err != nil {
		t.Error(err)
	}
	if saga, err := Get(t.Context(), w.pool, s.Key, s.ID); err != nil || saga.Holder != "" || saga.Attempts != 1 {
		t.Errorf("%+v, %v", saga, err)
	}
	run(t, w.runner(t, impatient, kind("cut-off", w.outsideTrace())))
	w.wait(t, s, Completed)
	r := w.runner(t, impatient, kind("stubborn", Outside(func(context.Context, *Call) (any, error) {
		begun <- struct{}{}
		<-stubborn
		return nil, nil
	})))
	r.grace = 100 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	s = w.begin(t, "stubborn", nil)
	<-begun
	cancel()
	if err := <-ended; !errors.Is(err, ErrDoesNotReturn) || !strings.Contains(err.Error(), "stubborn/only of "+s.ID) {
		t.Errorf("it ended with %v", err)
	}
}

// testUnkept: a result that cannot be kept is the end of the step, and what was done is undone.
func testUnkept(t *testing.T, w *world) {
	large := strings.Repeat("x", MaxPayload)
	run(t, w.runner(t, nil, Type{Name: "large", Steps: []Step{
		{Name: "only", Undo: w.outsideTrace(), Do: Outside(func(ctx context.Context, c *Call) (any, error) { return large, leave(ctx, w.pool, c) })},
	}}, Type{Name: "large-sql", Steps: []Step{
		{Name: "only", Undo: w.outsideTrace(), Do: SQL(func(ctx context.Context, tx pgx.Tx, c *Call) (any, error) { return make(chan int), leave(ctx, tx, c) })},
	}}, Type{Name: "large-undo", Steps: []Step{
		{Name: "only", Do: sqlTrace(), Undo: SQL(func(ctx context.Context, tx pgx.Tx, c *Call) (any, error) { return large, leave(ctx, tx, c) })},
		{Name: "fails", Do: failing(Permanent(errRefused))},
	}}))
	outside, inside, undo := w.begin(t, "large", nil), w.begin(t, "large-sql", nil), w.begin(t, "large-undo", nil)
	if saga := w.wait(t, outside, Compensated); !strings.Contains(saga.Failure, "the limit is") {
		t.Errorf("%+v", saga)
	}
	wantTraces(t, w, outside, "only do", "only undo")
	if saga := w.wait(t, inside, Compensated); !strings.Contains(saga.Failure, "as JSON") {
		t.Errorf("%+v", saga)
	}
	wantTraces(t, w, inside)
	w.wait(t, undo, Compensated)
	wantTraces(t, w, undo, "only do", "only undo")
}

// testOlderState is S26: a server that was promoted knows an older state, of which the runner's lease is no part.
func testOlderState(t *testing.T, w *world) {
	r := w.runner(t, nil, Type{Name: "older", Steps: []Step{{Name: "sql", Do: sqlTrace(), Undo: sqlTrace()}, {Name: "outside", Do: w.outsideTrace()}}})
	var lost atomic.Int32
	var s Started
	begun := make(chan struct{})
	r.at = func(point, _ string, _ Direction) {
		<-begun
		if (point == pointRan || point == pointAnswered) && lost.Add(1)%2 == 1 {
			w.exec(t, "UPDATE sagas.sagas SET lease = NULL, holder = NULL, epoch = epoch - 1, due_at = clock_timestamp() WHERE key = $1 AND id = $2", s.Key, s.ID)
		}
	}
	run(t, r)
	s = w.begin(t, "older", nil)
	close(begun)
	w.wait(t, s, Completed)
	wantTraces(t, w, s, "sql do", "outside do", "outside do")
}

// testTransactionsOfSteps: a step cannot end its transaction, but may use savepoints.
func testTransactionsOfSteps(t *testing.T, w *world) {
	run(t, w.runner(t, nil, Type{Name: "transactions", Steps: []Step{{Name: "only", Policy: soon, Do: SQL(func(ctx context.Context, tx pgx.Tx, c *Call) (any, error) {
		for _, err := range []error{tx.Commit(ctx), tx.Rollback(ctx)} {
			if !errors.Is(err, errNotYours) {
				return nil, fmt.Errorf("the transaction was ended: %w", err)
			}
		}
		err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error { return errors.Join(leave(ctx, inner, c), errBusy) })
		if !errors.Is(err, errBusy) {
			return nil, err
		}
		return one[string](t, tx, "SHOW transaction_isolation"), pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error { return leave(ctx, inner, c) })
	})}}}))
	s := w.begin(t, "transactions", nil)
	if saga := w.wait(t, s, Completed); string(saga.Steps[0].Result) != `"read committed"` {
		t.Errorf("%+v", saga)
	}
	wantTraces(t, w, s, "only do")
}

// testFewConnections: SQL steps never have all connections, so leases can be renewed.
func testFewConnections(t *testing.T, w *world) {
	pool := openPool(t, w.dsn, 2)
	kind := Type{Name: "few", Steps: []Step{{Name: "only", Do: SQL(func(ctx context.Context, tx pgx.Tx, c *Call) (any, error) {
		_, err := tx.Exec(ctx, "SELECT pg_sleep($1)", lease.Seconds()*1.4)
		return nil, errors.Join(err, leave(ctx, tx, c))
	})}}}
	started := []Started{w.begin(t, "few", nil), w.begin(t, "few", nil)}
	run(t, w.runner(t, func(c *Config) { c.Pool, c.Lease = pool, lease }, kind))
	eventually(t, "both are taken", func() bool {
		return one[int](t, w.pool, "SELECT count(*) FROM sagas.sagas WHERE key = $1 AND holder IS NOT NULL", started[0].Key)+
			one[int](t, w.pool, "SELECT count(*) FROM sagas.sagas WHERE key = $1 AND holder IS NOT NULL", started[1].Key) == 2
	})
	run(t, w.runner(t, nil, kind)) // it waits for a lease to end
	for _, s := range started {
		w.wait(t, s, Completed)
		if epoch := one[int](t, w.pool, "SELECT epoch FROM sagas.sagas WHERE key = $1 AND id = $2", s.Key, s.ID); epoch != 1 {
			t.Errorf("it was taken %d times", epoch)
		}
	}
}

// testTakenBySomebodyElse: whatever comes of a step, a runner that has lost the saga writes nothing and does nothing more, even if whoever has it now is still
// at the same step.
func testTakenBySomebodyElse(t *testing.T, w *world) {
	const other = "0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c12"
	const takeAway = "UPDATE sagas.sagas SET lease = $3, holder = 'somebody else', epoch = epoch + 1, due_at = clock_timestamp() + interval '1 hour' WHERE key = $1 AND id = $2"
	actions := map[string]Action{}
	for what, err := range map[string]error{"succeeds": nil, "fails": errBusy, "fails-for-good": Permanent(errRefused)} {
		actions[what] = Outside(func(ctx context.Context, c *Call) (any, error) {
			_, failure := w.pool.Exec(ctx, takeAway, c.Key, c.ID, other)
			return nil, errors.Join(failure, err)
		})
		actions[what+"-sql"] = SQL(func(ctx context.Context, tx pgx.Tx, c *Call) (any, error) {
			_, failure := w.pool.Exec(ctx, takeAway, c.Key, c.ID, other)
			return nil, errors.Join(leave(ctx, tx, c), failure, err)
		})
	}
	var types []Type
	for what, action := range actions {
		types = append(types, Type{Name: what, Steps: []Step{{Name: "first", Do: sqlTrace(), Undo: w.outsideTrace()}, {Name: "second", Do: action}, {Name: "third", Do: w.outsideTrace()}}},
			Type{Name: what + "-undo", Steps: []Step{{Name: "first", Do: sqlTrace(), Undo: w.outsideTrace()}, {Name: "second", Do: sqlTrace(), Undo: action}, {Name: "third", Do: failing(Permanent(errRefused))}}})
	}
	stop := run(t, w.runner(t, nil, types...))
	started := map[string]Started{}
	for _, kind := range types {
		started[kind.Name] = w.begin(t, kind.Name, nil)
	}
	for name, s := range started {
		eventually(t, name+" is taken away", func() bool {
			saga, err := Get(t.Context(), w.pool, s.Key, s.ID)
			return err == nil && saga.Holder == "somebody else"
		})
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	for name, s := range started {
		saga, err := Get(t.Context(), w.pool, s.Key, s.ID)
		if err != nil || saga.Holder != "somebody else" || saga.Step != "second" || saga.Attempts != 0 || !strings.HasPrefix(saga.Due.Sub(saga.Created).String(), "1h") {
			t.Errorf("%s: %+v, %v", name, saga, err)
		}
		if strings.HasSuffix(name, "-undo") {
			wantTraces(t, w, s, "first do", "second do")
		} else {
			wantTraces(t, w, s, "first do")
		}
	}
}

// testListAndPurge: sagas of all shards by state and type; old ones that have ended can be removed.
func testListAndPurge(t *testing.T, w *world) {
	run(t, w.runner(t, nil, Type{Name: "listed", Steps: []Step{{Name: "first", Do: sqlTrace(), Undo: failing(Permanent(errBusy))},
		{Name: "second", Do: Outside(func(_ context.Context, c *Call) (any, error) {
			var fails bool
			if err := c.Input(&fails); err != nil || fails {
				return nil, Permanent(errRefused)
			}
			return nil, nil
		})}}}))
	var started []Started
	for i := range 8 {
		started = append(started, w.begin(t, "listed", i%2 == 0))
	}
	waiting := w.begin(t, "listed-not-run", nil)
	for i, s := range started {
		w.wait(t, s, []State{Stuck, Completed}[i%2])
	}
	list := func(f Filter) (ids []string) {
		t.Helper()
		sagas, err := List(t.Context(), w.pool, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range sagas {
			ids = append(ids, s.ID)
		}
		return ids
	}
	stuck := []string{started[0].ID, started[2].ID, started[4].ID, started[6].ID}
	if got := list(Filter{States: []State{Stuck}, Types: []string{"listed"}}); !slices.Equal(got, stuck) {
		t.Errorf("stuck are %v, not %v", got, stuck)
	}
	if got := list(Filter{Types: []string{"listed", "listed-not-run"}}); !slices.Equal(got, append(stuck, waiting.ID)) {
		t.Errorf("listed are %v", got)
	}
	if got := list(Filter{States: States(), Limit: 2}); len(got) != 2 {
		t.Errorf("listed are %v", got)
	}
	if _, err := List(t.Context(), w.pool, Filter{States: []State{"lost"}}); err == nil {
		t.Error("an unknown state was listed")
	}
	if removed, err := Purge(t.Context(), w.pool, time.Hour, 100); err != nil || removed != 0 {
		t.Errorf("removed %d, %v", removed, err)
	}
	if removed, err := Purge(t.Context(), w.pool, 0, 1); err != nil || removed != 1 {
		t.Errorf("removed %d, %v", removed, err)
	}
	if _, err := Purge(t.Context(), w.pool, 0, 10000); err != nil {
		t.Error(err)
	}
	if got := list(Filter{States: States(), Types: []string{"listed"}}); !slices.Equal(got, stuck) {
		t.Errorf("left are %v, not %v", got, stuck)
	}
	if _, err := Get(t.Context(), w.pool, started[1].Key, started[1].ID); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if n := one[int](t, w.pool, "SELECT count(*) FROM sagas.steps WHERE key = $1", started[1].Key); n != 0 {
		t.Errorf("%d steps of a saga are left that is not there", n)
	}
}
