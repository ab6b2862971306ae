package txn

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// TestRecovery leaves a transaction as the lines of the crash table do, and looks what becomes of it.
func TestRecovery(t *testing.T) {
	w := newWorld(t, 3)
	id := 0
	begin := func(t *testing.T) *transfer {
		t.Helper()
		id++
		return w.begin(t, id, 1, 2, 3)
	}
	t.Run("C2, some are prepared", func(t *testing.T) {
		tr := begin(t).prepare(t, 2).die(t)
		if phase := tr.phase(t); phase != Abandoned {
			t.Errorf("it is %q", phase)
		}
		w.round(t)
		tr.committed(t, false)
	})
	t.Run("C3, all are prepared", func(t *testing.T) {
		tr := begin(t).prepare(t, 2, 3).die(t)
		w.round(t)
		tr.committed(t, false)
		if outcome, err := OutcomeOf(t.Context(), w.config(), tr.gid); err != nil || outcome != RolledBack {
			t.Errorf("the outcome is %q, %v", outcome, err)
		}
	})
	t.Run("C5, decided", func(t *testing.T) {
		tr := begin(t).prepare(t, 2, 3).decide(t).die(t)
		if phase := tr.phase(t); phase != Committing {
			t.Errorf("it is %q", phase)
		}
		w.round(t)
		tr.committed(t, true)
		if outcome, err := OutcomeOf(t.Context(), w.config(), tr.gid); err != nil || outcome != Committed {
			t.Errorf("the outcome is %q, %v", outcome, err)
		}
	})
	t.Run("C6, one of the others is committed", func(t *testing.T) {
		tr := begin(t).prepare(t, 2, 3).decide(t).finish(t, 2).die(t)
		w.round(t)
		tr.committed(t, true)
	})
	t.Run("while the router is at it", func(t *testing.T) {
		tr := begin(t).prepare(t, 2, 3)
		w.round(t)
		if !tr.prepared(t, 2) || !tr.prepared(t, 3) || tr.phase(t) != Preparing {
			t.Errorf("it is %q", tr.phase(t))
		}
		tr.decide(t)
		w.round(t)
		if !tr.prepared(t, 2) {
			t.Error("the router was not waited for")
		}
		tr.finish(t, 2, 3).committed(t, true)
	})
	t.Run("C12, the router sleeps before it decides", func(t *testing.T) {
		tr := begin(t).prepare(t, 2, 3)
		set(t, &overdue, time.Millisecond)
		time.Sleep(5 * time.Millisecond)
		w.round(t)
		if err := tr.decideOnly(t, tr.decider); err == nil {
			t.Error("it could decide when it woke up")
		}
		tr.committed(t, false)
	})
	t.Run("C13, it sleeps when it has decided", func(t *testing.T) {
		tr := begin(t).prepare(t, 2, 3).decide(t)
		set(t, &courtesy, 0)
		w.round(t)
		tr.committed(t, true)
	})
	t.Run("it decides while the abort row is written", func(t *testing.T) {
		tr := begin(t).prepare(t, 2, 3)
		if err := tr.decideOnly(t, tr.decider); err != nil {
			t.Fatal(err)
		}
		set(t, &overdue, time.Millisecond)
		set(t, &courtesy, 0)
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.round(t)
		}()
		eventually(t, "recovery waits for the row", func() bool {
			return one[bool](t, w.conns[0], "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT INTO cleave.commits%')")
		})
		execute(t, tr.decider, "COMMIT")
		<-done
		w.round(t)
		tr.committed(t, true)
	})
	t.Run("the row stays uncommitted", func(t *testing.T) {
		tr := begin(t).prepare(t, 2, 3)
		if err := tr.decideOnly(t, tr.decider); err != nil {
			t.Fatal(err)
		}
		set(t, &overdue, time.Millisecond)
		w.round(t)
		if !tr.prepared(t, 2) || !tr.prepared(t, 3) {
			t.Error("it was rolled back, and could still be decided")
		}
		execute(t, tr.decider, "COMMIT")
		tr.finish(t, 2, 3).committed(t, true)
	})
	t.Run("L2, the abort row is written and nothing else done", func(t *testing.T) {
		tr := begin(t).prepare(t, 2, 3)
		if _, err := writeAbort(t.Context(), w.conns[0], tr.gid); err != nil {
			t.Fatal(err)
		}
		if phase := tr.phase(t); phase != RollingBack {
			t.Errorf("it is %q", phase)
		}
		w.round(t)
		tr.committed(t, false)
	})
	t.Run("the router notes that it gives up", func(t *testing.T) {
		tr := begin(t).prepare(t, 2, 3)
		execute(t, tr.decider, "ROLLBACK", NoteAbortSQL(tr.gid))
		w.round(t)
		tr.committed(t, false)
	})
	t.Run("C19, all servers crash", func(t *testing.T) {
		undecided, decided := begin(t).prepare(t, 2, 3), begin(t).prepare(t, 2, 3).decide(t)
		for i, server := range w.servers {
			if err := server.Crash(); err != nil {
				t.Fatal(err)
			}
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.conns[i] = w.on(t, i+1)
		}
		w.round(t)
		undecided.committed(t, false)
		decided.committed(t, true)
	})
	t.Run("the shard that decides is away", func(t *testing.T) {
		tr := begin(t).prepare(t, 2, 3).decide(t)
		if err := w.servers[0].Crash(); err != nil {
			t.Fatal(err)
		}
		w.round(t)
		if !tr.prepared(t, 2) || tr.phase(t) != Waiting {
			t.Errorf("it is %q", tr.phase(t))
		}
		outcomeRefused(t, w, tr.gid, pgerr.ConnectionFailure, `"s1"`, "when it is back")
		if err := w.servers[0].Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.conns[0] = w.on(t, 1)
		w.round(t)
		tr.committed(t, true)
	})
	t.Run("a shard that has a part is away", func(t *testing.T) {
		tr := begin(t).prepare(t, 2).die(t)
		if err := w.servers[1].Crash(); err != nil {
			t.Fatal(err)
		}
		outcomeRefused(t, w, tr.gid, pgerr.ConnectionFailure, `"s2"`, "when it is back")
		if err := w.servers[1].Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.conns[1] = w.on(t, 2)
		w.round(t)
		tr.committed(t, false)
	})
}

// TestRecoveryAsOthers: a prepared transaction can be ended by its owner and by superusers alone.
func TestRecoveryAsOthers(t *testing.T) {
	w := newWorld(t, 2)
	for _, conn := range w.conns {
		execute(t, conn, "CREATE ROLE control LOGIN", "CREATE ROLE member LOGIN", "CREATE ROLE stranger LOGIN", "GRANT member TO control", "GRANT ALL ON public.things TO member, stranger",
			"GRANT USAGE ON SCHEMA cleave TO control", "GRANT ALL ON ALL TABLES IN SCHEMA cleave TO control")
	}
	config := w.config()
	connect := config.Connect
	prepareAs := func(role string, id int) *transfer {
		tr := w.begin(t, id, 1, 2)
		conn := w.on(t, 2)
		execute(t, conn, "SET ROLE "+role, "BEGIN", fmt.Sprintf("INSERT INTO public.things VALUES (%d)", id))
		tr.note(t, conn, 2)
		execute(t, conn, "PREPARE TRANSACTION '"+PartName(tr.gid, 1)+"'")
		return tr.decide(t).die(t)
	}
	ours, others := prepareAs("member", 1), prepareAs("stranger", 2)
	config.Connect = asRole(connect, "control")
	r := NewRecovery(config)
	defer r.Close()
	if err := r.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	ours.committed(t, true)
	if !others.prepared(t, 2) {
		t.Error("a role that is not a member has ended it")
	}
	execute(t, w.conns[1], "GRANT stranger TO control")
	if err := r.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	others.committed(t, true)
	if role := one[string](t, r.conns[2].conn, "SELECT current_user::text"); role != "control" {
		t.Errorf("afterwards the control plane is %s", role)
	}
}

// TestPromotedAndRestored: what was lost with a failover is not guessed.
func TestPromotedAndRestored(t *testing.T) {
	t.Run("C14 and C15, the shard that decides", func(t *testing.T) {
		w := newWorld(t, 2)
		replica := followed(t, w, 1)
		decided, undecided := w.begin(t, 1, 1, 2).prepare(t, 2).decide(t), w.begin(t, 2, 1, 2).prepare(t, 2)
		caughtUp(t, w, 1)
		promote(t, w, 1, replica)
		w.round(t)
		decided.committed(t, true)
		if !undecided.prepared(t, 2) || undecided.phase(t) != InDoubt {
			t.Fatalf("what was not decided is %q", undecided.phase(t))
		}
		if outcome, err := OutcomeOf(t.Context(), w.config(), undecided.gid); err != nil || outcome != string(InDoubt) {
			t.Errorf("its outcome is %q, %v", outcome, err)
		}
		if _, err := Resolve(t.Context(), w.config(), undecided.gid, ByRollback); err != nil {
			t.Fatal(err)
		}
		undecided.committed(t, false)
	})
	t.Run("C16, it has lost the decision", func(t *testing.T) {
		w := newWorld(t, 3)
		replica := followed(t, w, 1)
		caughtUp(t, w, 1)
		cutOff(t, replica)
		tr := w.begin(t, 1, 1, 2, 3).prepare(t, 2, 3).decide(t).finish(t, 2)
		promote(t, w, 1, replica)
		w.round(t)
		if !tr.prepared(t, 3) || tr.phase(t) != InDoubt {
			t.Errorf("it is %q", tr.phase(t))
		}
		set(t, &retention, 0)
		w.sweep(t)
		if lost := one[[]int](t, w.conns[1], "SELECT lost FROM cleave.commits WHERE gid = $1", tr.gid); len(lost) != 1 || lost[0] != 1 {
			t.Errorf("what is noted as lost is %v", lost)
		}
		if _, err := Resolve(t.Context(), w.config(), tr.gid, ByCommit); err != nil {
			t.Fatal(err)
		}
		if _, err := Resolve(t.Context(), w.config(), tr.gid, ByForget); err != nil {
			t.Fatal(err)
		}
		w.sweep(t) // the other one's mark has lost its decision too
		if _, err := Resolve(t.Context(), w.config(), tr.gid, ByForget); err != nil {
			t.Fatal(err)
		}
		if rows := tr.rows(t); rows != 0 {
			t.Errorf("%d rows are left", rows)
		}
	})
	t.Run("C17 and C18, another shard", func(t *testing.T) {
		w := newWorld(t, 2)
		replica := followed(t, w, 2)
		kept := w.begin(t, 1, 1, 2).prepare(t, 2).decide(t)
		abandoned := w.begin(t, 2, 1, 2).prepare(t, 2).die(t)
		caughtUp(t, w, 2)
		cutOff(t, replica)
		lost := w.begin(t, 3, 1, 2).prepare(t, 2).decide(t).finish(t, 2)
		promote(t, w, 2, replica)
		kept.die(t)
		w.round(t)
		kept.committed(t, true)
		if !abandoned.prepared(t, 2) || abandoned.phase(t) != InDoubt { // it may have been committed, and the row be deleted
			t.Errorf("what was not decided is %q", abandoned.phase(t))
		}
		set(t, &retention, 0)
		w.sweep(t)
		if phase := lost.phase(t); phase != PartLost {
			t.Errorf("what was lost is %q", phase)
		}
		if phase := kept.phase(t); phase != "" {
			t.Errorf("what was kept is %q", phase)
		}
	})
}

// outcomeRefused wants no outcome to be told, and who asks to hear why and what to do.
func outcomeRefused(t *testing.T, w *world, gid, code, message, hint string) {
	t.Helper()
	outcome, err := OutcomeOf(t.Context(), w.config(), gid)
	var refused *pgerr.Error
	if !errors.As(err, &refused) || refused.Code != code || !strings.Contains(refused.Message, message) || !strings.Contains(refused.Hint, hint) {
		t.Errorf("the outcome of %s is %q, %v", gid, outcome, err)
	}
	if code == pgerr.ConnectionFailure && refused != nil && refused.Detail == "" {
		t.Errorf("%v has no reason", err)
	}
}

// TestOutcomeRefuses what is no name, and what nobody is left to tell.
func TestOutcomeRefuses(t *testing.T) {
	w := newWorld(t, 1)
	outcomeRefused(t, w, "bogus", pgerr.InvalidParameterValue, "bogus", "08007")
	outcomeRefused(t, w, NewName(clusterID, 7, 1, 4711, 1, "router").String(), pgerr.UndefinedObject, "number 7", "cleave.transactions")
	if outcome, err := OutcomeOf(t.Context(), w.config(), NewName(clusterID, 1, 1, 4711, 1, "router").String()); err != nil || outcome != Unknown {
		t.Errorf("the outcome of one that never was is %q, %v", outcome, err)
	}
}

// TestResolveRefuses what contradicts a decision.
func TestResolveRefuses(t *testing.T) {
	w := newWorld(t, 2)
	tr := w.begin(t, 1, 1, 2).prepare(t, 2)
	if _, err := Resolve(t.Context(), w.config(), tr.gid, ByRollback); err == nil {
		t.Error("a transaction that is under way was rolled back")
	}
	tr.decide(t)
	if _, err := Resolve(t.Context(), w.config(), tr.gid, ByRollback); err == nil {
		t.Error("a transaction that is decided was rolled back")
	}
	if done, err := Resolve(t.Context(), w.config(), tr.gid, ByCommit); err != nil || done != "COMMIT PREPARED on 1 shard" {
		t.Errorf("it could not be committed: %s, %v", done, err)
	}
	tr.committed(t, true)
	if _, err := Resolve(t.Context(), w.config(), tr.gid, ByCommit); err == nil {
		t.Error("what is over was committed again")
	}
}

// TestOnlyTheBackendDecides: everybody may call the functions, and nobody can decide for somebody else.
func TestOnlyTheBackendDecides(t *testing.T) {
	w := newWorld(t, 2)
	tr := w.begin(t, 1, 1, 2).prepare(t, 2)
	stranger := w.on(t, 1)
	if err := tr.decideOnly(t, stranger); err == nil {
		t.Error("somebody else has decided")
	}
	if _, err := stranger.Exec(t.Context(), NoteAbortSQL(tr.gid)); err == nil {
		t.Error("somebody else has aborted")
	}
	execute(t, stranger, "CREATE ROLE guest", "SET ROLE guest")
	own := fmt.Sprintf("'cleave/x/1/%d/1/1/r/x'", stranger.PgConn().PID())
	for _, sql := range []string{"INSERT INTO cleave.own_commits (gid, decides, participants, xids) VALUES (" + own + ", true, '{1,2}', '{0}')", "INSERT INTO cleave.own_commits (gid, decides, participants) VALUES (" + own + ", true, '{1,2}')",
		"SELECT gid FROM cleave.own_commits", "UPDATE cleave.own_commits SET gid = 'x'", "DELETE FROM cleave.own_commits", "SELECT * FROM cleave.commits", "INSERT INTO cleave.commits (gid, decides, participants) VALUES ('x', true, '{}')",
		"INSERT INTO cleave.own_commits (gid, decides, participants, xid) VALUES ('x', false, '{}', '7')"} {
		if _, err := stranger.Exec(t.Context(), sql); err == nil {
			t.Errorf("everybody may %s", sql)
		}
	}
	execute(t, stranger, "BEGIN")
	tr.note(t, stranger, 1)
	if number := one[uint64](t, stranger, "SELECT pg_current_xact_id()::text::bigint"); tr.xids[0] != number {
		t.Errorf("a part is noted under the number %d in transaction %d", tr.xids[0], number)
	}
	execute(t, stranger, "ROLLBACK")
	tr.xids[0] = 0
	tr.decide(t).finish(t, 2).committed(t, true)
}

// TestOutcomeIsOfNow: a snapshot from before the decision, as a client's settings may ask for, would take what is committed for abandoned.
func TestOutcomeIsOfNow(t *testing.T) {
	w := newWorld(t, 2)
	tr := w.begin(t, 1, 1, 2).prepare(t, 2)
	client, early := w.on(t, 1), w.on(t, 1)
	execute(t, early, "BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT FROM public.things")
	tr.decide(t).die(t)
	if outcome, err := outcomeOf(t.Context(), early, tr.gid); err == nil {
		t.Errorf("to a snapshot of before the outcome is %+v", outcome)
	}
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		execute(t, client, "SET default_transaction_isolation = '"+level+"'")
		results, err := client.PgConn().Exec(t.Context(), OutcomeSQL(tr.gid)).ReadAll()
		if err != nil || len(results) != 2 || len(results[1].Rows) != 1 {
			t.Fatalf("with %s: %v, %v", level, results, err)
		}
		var row []string
		for _, value := range results[1].Rows[0] {
			row = append(row, string(value))
		}
		if outcome, err := ParseOutcome(row); err != nil || outcome != (Outcome{Decision: Commit, Timeline: 1}) {
			t.Errorf("with %s the outcome is %+v, %v", level, outcome, err)
		}
		if status := client.PgConn().TxStatus(); status != 'I' {
			t.Errorf("with %s the connection is left in %c", level, status)
		}
	}
	w.round(t)
	tr.committed(t, true)
}

// TestNoAbortRow: what is prepared is rolled back only when the abort row is there. Here its place is taken.
func TestNoAbortRow(t *testing.T) {
	w := newWorld(t, 2)
	tr := w.begin(t, 1, 1, 2).prepare(t, 2)
	set(t, &overdue, time.Millisecond)
	time.Sleep(5 * time.Millisecond)
	execute(t, w.conns[0], `INSERT INTO cleave.commits (xid, gid, decides, participants)
		SELECT (pg_snapshot_xmax(pg_current_snapshot())::text::bigint + i)::text::xid8, 'in the way', false, '{}' FROM generate_series(1, 200) i`)
	w.round(t)
	if !tr.prepared(t, 2) {
		t.Error("it is rolled back without an abort row")
	}
	execute(t, w.conns[0], "DELETE FROM cleave.commits WHERE gid = 'in the way'")
	w.round(t)
	if err := tr.decideOnly(t, tr.decider); err == nil {
		t.Error("it could still decide")
	}
	tr.committed(t, false)
}

// TestWhoIsEnded: the session that could have decided an aborted transaction, unless it is in another one by now.
func TestWhoIsEnded(t *testing.T) {
	w := newWorld(t, 2)
	stuck, other := w.begin(t, 1, 1, 2).prepare(t, 2), w.begin(t, 2, 1, 2).prepare(t, 2)
	set(t, &overdue, 20*time.Millisecond)
	time.Sleep(2 * overdue)
	execute(t, other.decider, "ROLLBACK", "BEGIN", "INSERT INTO public.things VALUES (3)")
	time.Sleep(2 * overdue)
	w.round(t)
	stuck.committed(t, false)
	other.committed(t, false)
	if _, err := other.decider.Exec(t.Context(), "COMMIT"); err != nil {
		t.Errorf("a session was ended in another transaction: %v", err)
	}
	eventually(t, "the other one is ended", func() bool {
		return one[int](t, w.conns[0], "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", stuck.decider.PgConn().PID()) == 0
	})
}

// TestTypesOfAClient: a type of a client's own that goes by the name of one of the system's is not used, least of all with the owner's rights.
func TestTypesOfAClient(t *testing.T) {
	w := newWorld(t, 1)
	execute(t, w.conns[0], "CREATE ROLE guest")
	guest := w.on(t, 1)
	execute(t, guest, "SET ROLE guest", `
		CREATE FUNCTION pg_temp.seen(value pg_catalog.text) RETURNS boolean LANGUAGE plpgsql AS $$
			BEGIN RAISE EXCEPTION USING ERRCODE = 'XX999', MESSAGE = pg_catalog.format('this is run as %s', current_user); END $$`,
		"CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (pg_temp.seen(VALUE))", "SET search_path = pg_temp, pg_catalog")
	pid := int(guest.PgConn().PID())
	own := NewName(clusterID, 1, 1, pid, 1, "router").String()
	horizon, err := NewHorizon(map[int]string{1: "1/1/1:1:"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{OutcomeSQL(own), NoteAbortSQL(own), NoteAbortSQL(testName("a")), HorizonSQL, NewOpening(horizon).SQL(1), SeesSQL([]string{own}), MarkSQL(7), PreparedSQL(clusterID)} {
		var refused *pgconn.PgError
		if _, err := guest.Exec(t.Context(), sql); errors.As(err, &refused) && refused.Code != "42501" {
			t.Errorf("%s: %v", sql, err)
		}
	}
}
