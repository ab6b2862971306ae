package txn

import (
	"testing"
	"time"
)

// TestSweep: rows go when nobody can need them, and no earlier.
func TestSweep(t *testing.T) {
	w := newWorld(t, 3)
	done, young := w.begin(t, 1, 1, 2, 3).prepare(t, 2, 3).decide(t).finish(t, 2, 3), w.begin(t, 2, 1, 2).prepare(t, 2).decide(t)
	rows := func(what string, tr *transfer, want int) {
		t.Helper()
		if got := tr.rows(t); got != want {
			t.Errorf("%s: %d rows, want %d", what, got, want)
		}
	}
	w.sweep(t)
	rows("before its time", done, 3)
	set(t, &retention, 0)
	w.sweep(t)
	rows("noted", done, 3)
	w.sweep(t)
	rows("noted a moment ago", done, 3)
	rows("not committed everywhere", young, 1)
	set(t, &sweepDelay, 0)
	w.sweep(t)
	rows("deleted", done, 0)
	rows("not committed everywhere", young, 1)
	young.finish(t, 2)
	w.sweep(t)
	w.sweep(t)
	rows("committed", young, 0)
	if outcome, err := OutcomeOf(t.Context(), w.config(), young.die(t).gid); err != nil || outcome != Unknown {
		t.Errorf("afterwards the outcome is %q, %v", outcome, err)
	}
	for number, conn := range w.conns {
		if n := one[int](t, conn, "SELECT count(*) FROM cleave.sweeps"); n != 0 {
			t.Errorf("shard %d has %d batches", number+1, n)
		}
	}
}

// TestSweepOfAbortRows: they stay as long as somebody could still commit.
func TestSweepOfAbortRows(t *testing.T) {
	w := newWorld(t, 2)
	tr := w.begin(t, 1, 1, 2).prepare(t, 2)
	set(t, &overdue, time.Hour) // or its session would be ended
	if _, err := writeAbort(t.Context(), w.conns[0], tr.gid); err != nil {
		t.Fatal(err)
	}
	w.round(t)
	set(t, &retention, 0)
	w.sweep(t)
	if rows := tr.rows(t); rows != 1 {
		t.Errorf("%d rows while the backend lives", rows)
	}
	if err := tr.decideOnly(t, tr.decider); err == nil {
		t.Error("it could still decide")
	}
	tr.die(t)
	w.sweep(t)
	if rows := tr.rows(t); rows != 0 {
		t.Errorf("%d rows when it is gone", rows)
	}
	tr.committed(t, false)
}

// TestSweepOfAbortRowsOfParts: they also stay as long as a part is prepared, or may be, on a shard that does not answer.
func TestSweepOfAbortRowsOfParts(t *testing.T) {
	w := newWorld(t, 3)
	set(t, &retention, 0)
	tr, over := w.begin(t, 1, 1, 2).prepare(t, 2).die(t), w.begin(t, 2, 1, 2).die(t)
	abort := func(tr *transfer) {
		t.Helper()
		if _, err := writeAbort(t.Context(), w.conns[0], tr.gid); err != nil {
			t.Fatal(err)
		}
	}
	swept := func(what string, tr *transfer, want int) {
		t.Helper()
		w.sweep(t)
		if rows := tr.rows(t); rows != want {
			t.Errorf("%s: %d rows, want %d", what, rows, want)
		}
	}
	abort(tr)
	abort(over)
	swept("prepared", tr, 1)
	swept("never prepared", over, 0)
	w.round(t)
	tr.committed(t, false)
	if err := w.servers[2].Crash(); err != nil {
		t.Fatal(err)
	}
	w.conns = w.conns[:2]
	swept("a shard is away", tr, 1)
	if err := w.servers[2].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	swept("it is back", tr, 0)
}

// TestSweepWhileSomebodyIsAway: rows stay until all have said that they have committed, and until standbys have it.
func TestSweepWhileSomebodyIsAway(t *testing.T) {
	w := newWorld(t, 3)
	set(t, &retention, 0)
	set(t, &sweepDelay, 0)
	tr := w.begin(t, 1, 1, 2, 3).prepare(t, 2, 3).decide(t).finish(t, 2, 3)
	if err := w.servers[2].Crash(); err != nil {
		t.Fatal(err)
	}
	w.conns = w.conns[:2]
	w.sweep(t)
	w.sweep(t)
	if rows := tr.rows(t); rows != 2 {
		t.Errorf("%d rows while a shard is away", rows)
	}
	if err := w.servers[2].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.conns = append(w.conns, w.on(t, 3))
	w.sweep(t)
	w.sweep(t)
	if rows := tr.rows(t); rows != 0 {
		t.Errorf("%d rows when it is back", rows)
	}
	replica := followed(t, w, 2)
	caughtUp(t, w, 2)
	cutOff(t, replica)
	late := w.begin(t, 2, 1, 2).prepare(t, 2).decide(t).finish(t, 2)
	r := NewRecovery(w.config())
	defer r.Close()
	for range 2 {
		if err := r.Sweep(t.Context()); err == nil {
			t.Error("a standby that lags was not noticed")
		}
	}
	if rows := late.rows(t); rows != 2 {
		t.Errorf("%d rows while a standby lags", rows)
	}
}

// TestSweepGoesOn after a leader died in the middle: lines S1 to S3.
func TestSweepGoesOn(t *testing.T) {
	w := newWorld(t, 3)
	set(t, &retention, 0)
	tr := w.begin(t, 1, 1, 2, 3).prepare(t, 2, 3).decide(t).finish(t, 2, 3)
	w.sweep(t) // notes the batch
	execute(t, w.conns[1], "DELETE FROM cleave.commits")
	w.sweep(t)
	if lost := one[int](t, w.conns[0], "SELECT count(*) FROM cleave.commits WHERE lost IS NOT NULL") + one[int](t, w.conns[2], "SELECT count(*) FROM cleave.commits WHERE lost IS NOT NULL"); lost != 0 {
		t.Errorf("%d rows are taken for lost", lost)
	}
	set(t, &sweepDelay, 0)
	w.sweep(t)
	if rows := tr.rows(t); rows != 0 {
		t.Errorf("%d rows are left", rows)
	}
}

// TestSettled: a shard can be let go when nothing is prepared there and nothing that it decides elsewhere.
func TestSettled(t *testing.T) {
	w := newWorld(t, 3)
	settled := func(number int) bool { return Settled(t.Context(), w.config(), w.m.ShardByNumber(number)) == nil }
	tr := w.begin(t, 1, 1, 2).prepare(t, 2)
	if settled(1) || settled(2) || !settled(3) {
		t.Errorf("while a part is prepared: %v %v %v", settled(1), settled(2), settled(3))
	}
	tr.decide(t)
	if settled(1) || settled(2) {
		t.Error("while a part is to be committed")
	}
	tr.finish(t, 2)
	if !settled(1) || !settled(2) {
		t.Error("when it is over")
	}
	if err := w.servers[2].Crash(); err != nil {
		t.Fatal(err)
	}
	if !settled(3) || settled(1) {
		t.Error("one that is away can be let go, unless another one cannot be asked")
	}
}

// TestLostByAShard: what it has decided and knows nothing of any more, as soon as that is so, and what is marked.
func TestLostByAShard(t *testing.T) {
	w := newWorld(t, 3)
	lost := func(number, want int) {
		t.Helper()
		if got, err := LostBy(t.Context(), w.config(), w.m.ShardByNumber(number)); err != nil || got != want {
			t.Errorf("shard %d has lost %d, %v; want %d", number, got, err, want)
		}
	}
	tr := w.begin(t, 1, 1, 2, 3).prepare(t, 2, 3).decide(t).finish(t, 2)
	w.begin(t, 2, 2, 3).prepare(t, 3).decide(t).finish(t, 3)
	lost(1, 0)
	execute(t, w.conns[0], "DELETE FROM cleave.commits")
	lost(1, 1)
	lost(2, 0)
	tr.finish(t, 3)
	lost(1, 1)
	set(t, &retention, 0)
	w.sweep(t)
	if n := one[int](t, w.conns[1], "SELECT count(*) FROM cleave.commits WHERE lost = '{1}'"); n != 1 {
		t.Errorf("%d rows are marked", n)
	}
	lost(1, 1)
	lost(2, 0)
	if err := w.servers[2].Crash(); err != nil {
		t.Fatal(err)
	}
	if _, err := LostBy(t.Context(), w.config(), w.m.ShardByNumber(1)); err == nil {
		t.Error("a shard is away, and nobody minds")
	}
}
