package saga

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// child starts this binary as a process that does as it is told, and dies with the test.
func (w *world) child(t *testing.T, o orders) (process *exec.Cmd, says io.Reader) {
	t.Helper()
	o.DSN = w.dsn
	told, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	process = exec.Command(os.Args[0])
	process.Env = append(os.Environ(), childVariable+"="+string(told))
	process.Stderr = os.Stderr
	if says, err = process.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	return process, says
}

// dies waits until the child has killed itself.
func dies(t *testing.T, child *exec.Cmd) {
	t.Helper()
	_ = child.Wait()
	if status, ok := child.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the child did not die where it should: %v", child.ProcessState)
	}
}

// crash is a line of the crash table in DESIGN.md.
type crash struct {
	line   string
	orders orders
	input  order
	// calls is how often the outside step "charge" is called, and undone.
	calls, undone int
	// own is how many traces the process that dies leaves.
	own int
}

var crashes = []crash{
	{"S3", orders{Point: pointTaken, Step: "reserve", Direction: Do}, order{}, 1, 0, 0},
	{"S4", orders{Point: pointRan, Step: "reserve", Direction: Do}, order{}, 1, 0, 0},
	{"S5", orders{Point: pointWritten, Step: "book", Direction: Do}, order{}, 1, 0, 2},
	{"S6", orders{Point: pointDone, Step: "reserve", Direction: Do}, order{}, 1, 0, 1},
	{"S7", orders{Point: pointBefore, Step: "charge", Direction: Do}, order{}, 1, 0, 1},
	{"S8", orders{Point: pointAfter, Step: "charge", Direction: Do}, order{}, 2, 0, 2},
	{"S9", orders{Point: pointAnswered, Step: "charge", Direction: Do}, order{}, 2, 0, 2},
	{"S10", orders{Point: pointDone, Step: "charge", Direction: Do}, order{}, 1, 0, 2},
	{"S11", orders{Point: pointFailed, Step: "ship", Direction: Do}, order{Refused: true}, 1, 1, 3},
	{"S12", orders{Point: pointTurned, Step: "ship", Direction: Do}, order{Refused: true}, 1, 1, 3},
	{"S13", orders{Point: pointRan, Step: "book", Direction: Undo}, order{Refused: true}, 1, 1, 3},
	{"S13-written", orders{Point: pointWritten, Step: "reserve", Direction: Undo}, order{Refused: true}, 1, 1, 5},
	{"S14", orders{Point: pointDone, Step: "book", Direction: Undo}, order{Refused: true}, 1, 1, 4},
	{"S15", orders{Point: pointAfter, Step: "charge", Direction: Undo}, order{Refused: true}, 1, 2, 5},
	{"S16", orders{Point: pointDone, Step: "charge", Direction: Undo}, order{Refused: true}, 1, 1, 5},
	{"S17", orders{Point: pointGivenUp, Step: "ship", Direction: Do}, order{Slow: true}, 1, 0, 3},
	{"S18", orders{Point: pointDone, Step: "ship", Direction: Do}, order{}, 1, 0, 4},
	{"S18-compensated", orders{Point: pointDone, Step: "reserve", Direction: Undo}, order{Refused: true}, 1, 1, 6},
}

// victim is a process that dies at a line of the table, and the saga that it leaves.
type victim struct {
	crash
	saga  Started
	child *exec.Cmd
	says  io.Reader
}

// victims starts a process for each line, side by side, each with a type of saga of its own.
func (w *world) victims(t *testing.T, crashes []crash, stop bool) (list []victim, types []Type) {
	t.Helper()
	for _, c := range crashes {
		c.orders.Type, c.orders.Stop = strings.ToLower(c.line), stop
		v := victim{crash: c, saga: w.begin(t, c.orders.Type, c.input)}
		v.child, v.says = w.child(t, c.orders)
		list, types = append(list, v), append(types, w.order(c.orders.Type, orders{}))
	}
	return list, types
}

// testCrashes kills a process at every point of the crash table. Another one goes on; at the end SQL steps have happened once, and outside steps as often
// as the table says, each with one idempotency key.
func testCrashes(t *testing.T, w *world) {
	victims, types := w.victims(t, crashes, false)
	for _, v := range victims {
		dies(t, v.child)
	}
	run(t, w.runner(t, nil, types...))
	for _, v := range victims {
		t.Run(v.line, func(t *testing.T) { v.check(t, w, v.saga, v.child.Process.Pid) })
	}
}

// check looks at what a saga that was cut off has left.
func (c crash) check(t *testing.T, w *world, s Started, dead int) {
	t.Helper()
	state := Completed
	if c.input.Refused {
		state = Compensated
	}
	saga := w.wait(t, s, state)
	traces := w.traces(t, s)
	c.once(t, s, traces)
	if c.input.Refused {
		inReverse(t, traces)
		if saga.FailedStep != "ship" || saga.Failure != errRefused.Error() {
			t.Errorf("the reason is not told: %+v", saga)
		}
	}
	own := 0
	for _, tr := range traces {
		if tr.Process == dead {
			own++
		}
	}
	if own != c.own {
		t.Errorf("the process that died left %d traces, and should leave %d: %v", own, c.own, traces)
	}
}

// once wants every step to have happened as often as it should, with its own idempotency key.
func (c crash) once(t *testing.T, s Started, traces []trace) {
	t.Helper()
	want := map[string]int{"reserve do": 1, "charge do": c.calls, "book do": 1, "ship do": 1}
	if c.input.Refused {
		want = map[string]int{"reserve do": 1, "charge do": c.calls, "book do": 1, "book undo": 1, "charge undo": c.undone, "reserve undo": 1}
	}
	got := map[string]int{}
	for _, tr := range traces {
		got[tr.What]++
		step, d, _ := strings.Cut(tr.What, " ")
		if tr.Key != s.ID+"/"+step+"/"+d {
			t.Errorf("%s has the idempotency key %s", tr.What, tr.Key)
		}
	}
	for what, n := range want {
		if got[what] != n {
			t.Errorf("%s happened %d times, not %d", what, got[what], n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("this happened: %v", got)
	}
}

// inReverse wants compensations in the reverse order of what was done.
func inReverse(t *testing.T, traces []trace) {
	t.Helper()
	words := slices.Compact(whats(traces))
	want := []string{"reserve do", "charge do", "book do", "book undo", "charge undo", "reserve undo"}
	if !slices.Equal(words, want) {
		t.Errorf("the order was %q", words)
	}
}

// testCallerDies is S1 and S2: the caller's row and the saga are there together, or not at all.
func testCallerDies(t *testing.T, w *world) {
	for line, point := range map[string]string{"S1": pointStarted, "S2": pointCommitted} {
		t.Run(line, func(t *testing.T) {
			kind, key := strings.ToLower(line), newKey()
			child, _ := w.child(t, orders{Type: kind, Key: key, Point: point})
			dies(t, child)
			want := map[string]int{"S1": 0, "S2": 1}[line]
			rows := one[int](t, w.pool, "SELECT count(*) FROM traces WHERE key = $1 AND saga = 'caller'", key)
			sagas := one[int](t, w.pool, "SELECT count(*) FROM sagas.sagas WHERE key = $1 AND type = $2", key, kind)
			if rows != want || sagas != want {
				t.Errorf("there are %d rows of the caller's and %d sagas, not %d", rows, sagas, want)
			}
			again := w.start(t, Request{Type: kind, Key: key, IdempotencyKey: "placed", Input: order{}})
			if again.New == (want == 1) {
				t.Errorf("started again: %+v", again)
			}
			run(t, w.runner(t, nil, w.order(kind, orders{})))
			w.wait(t, again, Completed)
		})
	}
}

var stops = []crash{
	{"S19", orders{Point: pointRan, Step: "book", Direction: Do}, order{}, 1, 0, 2},
	{"S19-written", orders{Point: pointWritten, Step: "reserve", Direction: Do}, order{}, 1, 0, 0},
	{"S19-undo", orders{Point: pointRan, Step: "book", Direction: Undo}, order{Refused: true}, 1, 1, 3},
	{"S20", orders{Point: pointAfter, Step: "charge", Direction: Do}, order{}, 2, 0, 2},
	{"S20-answered", orders{Point: pointAnswered, Step: "charge", Direction: Undo}, order{Refused: true}, 1, 2, 5},
}

// testStopped is S19 and S20: a process that is stopped for longer than its lease has lost the saga, whatever it does when it goes on.
func testStopped(t *testing.T, w *world) {
	victims, types := w.victims(t, stops, true)
	for _, v := range victims {
		if line, err := bufio.NewReader(v.says).ReadString('\n'); err != nil {
			t.Fatalf("%s did not stop where it should: %q, %v", v.line, line, err)
		}
	}
	stop := run(t, w.runner(t, nil, types...))
	for _, v := range victims {
		v.check(t, w, v.saga, v.child.Process.Pid)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	others := make([]Started, len(victims)) // by which they show that they go on
	for i, v := range victims {
		if err := v.child.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		others[i] = w.begin(t, v.orders.Type, order{})
	}
	time.Sleep(lease) // in which they do what they can with what they had
	for i, v := range victims {
		t.Run(v.line, func(t *testing.T) {
			w.wait(t, others[i], Completed)
			v.check(t, w, v.saga, v.child.Process.Pid)
		})
	}
}

// testDiesAgainAndAgain is S22: a step that kills its process is not tried for ever. Nobody knows whether it was done, so it is undone.
func testDiesAgainAndAgain(t *testing.T, w *world) {
	o := orders{Type: "s22", Point: pointAfter, Step: "charge", Direction: Do, Attempts: 2}
	s := w.begin(t, o.Type, order{})
	for range o.Attempts {
		child, _ := w.child(t, o)
		dies(t, child)
	}
	run(t, w.runner(t, nil, w.order(o.Type, orders{Attempts: o.Attempts})))
	saga := w.wait(t, s, Compensated)
	want := []string{"reserve do", "charge do", "charge do", "charge undo", "reserve undo"}
	if got := whats(w.traces(t, s)); !slices.Equal(got, want) {
		t.Errorf("this happened: %q", got)
	}
	if saga.FailedStep != "charge" || !strings.Contains(saga.Failure, "did not come back") || saga.Steps[1].State != string(stepCompensated) {
		t.Errorf("%+v", saga)
	}
}
