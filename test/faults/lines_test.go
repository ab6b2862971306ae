package faults_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/failpoint/orders"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/faults"
	"github.com/cleavedb/cleave/test/faults/history"
	"github.com/cleavedb/cleave/test/faults/proxy"
)

// quicker are times that routers give people, made short, so that nobody waits for them here. Rows are kept long enough to be looked at.
var quicker = map[string]time.Duration{
	"txn.courtesy": 2 * time.Second, "txn.overdue": 4 * time.Second, "txn.barrier": 2 * time.Second, "control.recover": 200 * time.Millisecond,
}

// cleaner has rows cleaned up soon, besides.
var cleaner = map[string]time.Duration{
	"txn.courtesy": 2 * time.Second, "txn.overdue": 4 * time.Second, "control.recover": 200 * time.Millisecond,
	"txn.retention": 3 * time.Second, "txn.sweepdelay": time.Second, "control.sweep": 500 * time.Millisecond,
}

// line is one of the crash tables in DESIGN.md of package txn.
type line struct {
	name string // its number, and what is special
	play func(s *scene)
}

// TestCommitLines plays what can happen to routers and shards at a commit. Where all shards write, shard 1 decides.
func TestCommitLines(t *testing.T) {
	playLines(t, quicker, []line{
		{"C1", c1}, {"C2", c2}, {"C3", c3}, {"C4", c4}, {"C5", c5}, {"C6", c6}, {"C7", c7},
		{"C8 refused", c8Refused}, {"C8 lost", c8Lost}, {"C8 lost and prepared", c8Prepared},
		{"C9", c9},
		{"C10 with a row", c10Row}, {"C10 with a row and other settings", c10Settings}, {"C10 without a row", c10None}, {"C10 no answer with a row", c10Unknown}, {"C10 no answer without a row", c10UnknownNone},
		{"C11 for a moment", c11Moment}, {"C11 recovery is faster", c11Recovered}, {"C11 for longer", c11Longer},
		{"C12", c12}, {"C12 wakes in between", c12Between}, {"C13", c13},
		{"C19 before the decision", c19Before}, {"C19 after the decision", c19After}, {"C20", c20},
	})
}

// TestLeaderLines plays what can happen to leaders, and promotions.
func TestLeaderLines(t *testing.T) {
	playLines(t, cleaner, []line{
		{"L1", l1}, {"L2", l2}, {"L3", l3}, {"L4", l4}, {"L5", l5},
		{"S1", s1}, {"S2", s2}, {"S3", s3},
		{"C17", c17}, {"C14", c14}, {"C15", c15}, {"C16", c16}, {"C18", c18}, // these leave another primary behind
	})
}

// always are the lines that are looked at where there is not much time, too: each of the others ends as one of these does.
var always = []string{
	"L1", "L3", "L5", "S2", "C15", "C17",
	"C1", "C4", "C7", "C8 lost", "C8 lost and prepared", "C10 with a row", "C10 without a row", "C10 no answer with a row", "C11 recovery is faster", "C12", "C13", "C19 after the decision", "C20",
}

func playLines(t *testing.T, durations map[string]time.Duration, lines []line) {
	t.Helper()
	t.Parallel()
	s := &scene{whole: t, Cluster: faults.Start(t, faults.Config{Replicated: 2, Durations: durations})}
	var err error
	if s.tables, err = s.MakeTables(t.Context()); err != nil {
		t.Fatal(err)
	}
	makeFragile(t, s)
	for _, l := range lines {
		t.Run(l.name, func(t *testing.T) {
			if !slices.Contains(always, l.name) {
				thorough.Only(t)
			}
			s.cast(t)
			l.play(s)
		})
	}
	checkAll(t, s)
}

// checkAll looks at everything once more in the end.
func checkAll(t *testing.T, s *scene) {
	t.Helper()
	found := make([]map[string]bool, len(s.Shards))
	if err := s.EachShard(t.Context(), func(i int, conn *pgx.Conn) error {
		rows, err := conn.Query(t.Context(), "SELECT tag FROM tags")
		if err != nil {
			return err
		}
		tags, err := pgx.CollectRows(rows, pgx.RowTo[string])
		found[i] = map[string]bool{}
		for _, tag := range tags {
			found[i][tag] = true
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range history.CheckTags(s.tagged, found) {
		t.Error(wrong)
	}
	for _, r := range s.Routers {
		if err := r.Complaint(); err != nil {
			t.Error(err)
		}
	}
}

// makeFragile makes a table whose rows may be refused when their transaction is prepared or committed.
func makeFragile(t *testing.T, s *scene) {
	t.Helper()
	client := faults.NewClient(1, s.Routers[0])
	defer client.Drop()
	conn, err := client.Connection(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		"CREATE TABLE fragile (id bigint PRIMARY KEY)", "SELECT cleave.shard_table('fragile', 'id')",
		"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE EXCEPTION 'not here'; END $$",
		"CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON fragile DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()",
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// killed holds the router at a point, lets the case look, and kills it.
func (s *scene) killed(point string, look func(a *act)) *act {
	s.t.Helper()
	a := s.begin(1, 2, 3).commitUntil(point, orders.Hold)
	look(a)
	s.router.Kill()
	return a.hears("lost")
}

// c1: router gone before the first PREPARE.
func c1(s *scene) {
	s.killed("commit.begin", func(a *act) { a.isPrepared() }).ends(nowhere)
}

// c2: router gone while PREPAREs are under way. One of the others does not hear its own.
func c2(s *scene) {
	a := s.begin(1, 2, 3).commitUntil("commit.begin", orders.Hold)
	s.shard(3).Proxy.Stall(proxy.ToServer)
	s.order(s.router, "commit.preparing", orders.Hold)
	s.release("commit.begin")
	s.reached("commit.preparing")
	s.eventually("one of them is prepared", func() error {
		if s.prepared(2) == "" {
			return errors.New("it is not")
		}
		return nil
	})
	a.isPrepared(2)
	s.router.Kill()
	s.shard(3).Proxy.Cut()
	a.hears("lost").healed().becomes("abort").ends(nowhere)
}

// c3: router gone when all are prepared.
func c3(s *scene) {
	a := s.killed("commit.prepared", func(a *act) { a.isPrepared(2, 3).decides("") })
	a.becomes("abort").ends(nowhere)
}

// c4: router gone when D was told to commit.
func c4(s *scene) {
	a := s.killed("commit.deciding", func(a *act) { a.isPrepared(2, 3) })
	decided := ""
	s.eventually("it is decided", func() error {
		if decided = a.decision(1); decided == "" {
			return errors.New("it is not")
		}
		return nil
	})
	a.ends(map[string]outcome{"commit": everywhere, "abort": nowhere}[decided])
}

// c5: router gone when D has committed.
func c5(s *scene) {
	s.killed("commit.decided", func(a *act) { a.isPrepared(2, 3).decides("commit") }).ends(everywhere)
}

// c6: router gone when some of the others are committed.
func c6(s *scene) {
	s.killed("commit.finishing", func(*act) {
		s.eventually("the first of them is committed", func() error {
			if s.prepared(2) != "" {
				return errors.New("it is not")
			}
			return nil
		})
		if s.prepared(3) == "" {
			s.t.Error("the second is committed too")
		}
	}).ends(everywhere)
}

// c7: router gone when all are, before the client is told.
func c7(s *scene) {
	a := s.killed("commit.finished", func(a *act) { a.isPrepared() })
	a.is(everywhere)
	a.ends(everywhere)
}

// c8Refused: one of the others fails at PREPARE.
func c8Refused(s *scene) {
	a := s.begin(1, 2, 3)
	a.exec("INSERT INTO fragile VALUES ($1)", s.tables.Keys[2][1])
	a.commit().hears("P0001", "not here").isPrepared()
	a.ends(nowhere)
}

// c8Lost: one of the others is lost at PREPARE, and cannot be reached.
func c8Lost(s *scene) {
	a := s.begin(1, 2, 3).commitUntil("commit.begin", orders.Hold)
	s.shard(3).Proxy.Refuse(true)
	s.shard(3).Proxy.Cut()
	s.release("commit.begin")
	a.hears("08006", "rolled back").isPrepared()
	a.ends(nowhere)
}

// c8Prepared: it has prepared its part, and nobody hears of it.
func c8Prepared(s *scene) {
	a := s.begin(1, 2, 3).commitUntil("commit.begin", orders.Hold)
	s.shard(3).Proxy.Stall(proxy.ToClient)
	s.release("commit.begin")
	s.eventually("shard 3 has prepared", func() error {
		if s.prepared(3) == "" {
			return errors.New("it has not")
		}
		return nil
	})
	a.isPrepared(2, 3)
	s.shard(3).Proxy.Refuse(true)
	s.shard(3).Proxy.Cut()
	a.hears("08006", "rolled back").isPrepared(3)
	a.ends(nowhere)
}

// c9: D refuses.
func c9(s *scene) {
	a := s.begin(1, 2, 3)
	a.exec("INSERT INTO fragile VALUES ($1)", s.tables.Keys[0][1])
	a.commit().hears("P0001", "not here").isPrepared()
	a.ends(nowhere)
}

// decidedUnheard lets D decide without the router hearing of it.
func (s *scene) decidedUnheard(decider int, shards ...int) *act {
	s.t.Helper()
	a := s.begin(shards...).commitUntil("commit.prepared", orders.Hold)
	a.isPrepared(slices.DeleteFunc(slices.Clone(shards), func(n int) bool { return n == decider })...)
	s.shard(decider).Proxy.Stall(proxy.ToClient)
	s.release("commit.prepared")
	s.eventually("it is decided", func() error {
		if a.decision(decider) != "commit" {
			return errors.New("it is not")
		}
		return nil
	})
	return a
}

// c10Row: D's connection is lost at its COMMIT, which came through.
func c10Row(s *scene) {
	a := s.decidedUnheard(1, 1, 2, 3)
	s.shard(1).Proxy.Cut()
	s.shard(1).Proxy.Resume()
	a.hears("committed").is(everywhere)
	a.ends(everywhere)
}

// c10Settings: the same, while the client's transactions have one snapshot each: the question is not asked in one of those.
func c10Settings(s *scene) {
	s.settings = "SET default_transaction_isolation = 'repeatable read'"
	c10Row(s)
}

// c10None: D's server is lost before its COMMIT.
func c10None(s *scene) {
	a := s.begin(1, 2, 3).commitUntil("commit.prepared", orders.Hold)
	a.isPrepared(2, 3)
	s.must(s.shard(1).Crash(false))
	s.must(s.shard(1).Restart(s.t.Context()))
	s.release("commit.prepared")
	a.hears("08006", "rolled back").is(nowhere)
	a.ends(nowhere)
}

// c10Unknown: D has decided and cannot be asked.
func c10Unknown(s *scene) {
	a := s.decidedUnheard(1, 1, 2, 3)
	s.shard(1).Proxy.Refuse(true)
	s.shard(1).Proxy.Cut()
	a.hears("08007", "not known", a.gid).isPrepared(2, 3)
	a.healed().becomes("commit").outcomeTold("committed")
	a.ends(everywhere)
}

// c10UnknownNone: D was lost before its COMMIT and cannot be asked.
func c10UnknownNone(s *scene) {
	a := s.begin(1, 2, 3).commitUntil("commit.prepared", orders.Hold)
	a.isPrepared(2, 3)
	s.shard(1).Proxy.Refuse(true)
	s.shard(1).Proxy.Cut()
	s.release("commit.prepared")
	a.hears("08007", "not known", a.gid).isPrepared(2, 3)
	a.healed().becomes("abort").outcomeTold("rolled back")
	a.ends(nowhere)
}

// c11Moment: one of the others is lost at COMMIT PREPARED, and comes back at once.
func c11Moment(s *scene) {
	a := s.begin(1, 2, 3).commitUntil("commit.decided", orders.Hold)
	s.shard(3).Proxy.Cut()
	s.release("commit.decided")
	a.hears("committed").is(everywhere)
	a.ends(everywhere)
}

// c11Recovered: when the router comes to it, recovery has committed it already.
func c11Recovered(s *scene) {
	a := s.begin(1, 2, 3).commitUntil("commit.decided", orders.Hold)
	s.shard(3).Proxy.Cut()
	s.eventually("recovery has committed all of it", func() error {
		if there := a.there(); len(there) < 3 {
			return fmt.Errorf("it is on %v", there)
		}
		return nil
	})
	s.release("commit.decided")
	a.hears("committed").ends(everywhere)
}

// c11Longer: it does not come back for a while.
func c11Longer(s *scene) {
	a := s.begin(1, 2, 3).commitUntil("commit.decided", orders.Hold)
	s.shard(3).Proxy.Refuse(true)
	s.shard(3).Proxy.Cut()
	s.release("commit.decided")
	a.hears("warned", "s3").isPrepared(3)
	a.ends(everywhere)
}

// c12: router stopped between PREPARE and the decision. Rows are free again while it is.
func c12(s *scene) {
	a := s.begin(1, 2, 3).commitUntil("commit.prepared", orders.Stop)
	s.must(s.Settled(s.t.Context()))
	a.is(nowhere)
	s.router.Continue()
	a.hears("08006 40001", "rolled back").ends(nowhere)
}

// c12Between: it goes on when the abort row is there, and its session still is. The row alone keeps it from committing.
func c12Between(s *scene) {
	s.must(orders.Give(s.Orders, "recover.aborting", orders.Order{Act: orders.Hold}))
	a := s.begin(1, 2, 3).commitUntil("commit.prepared", orders.Hold).isPrepared(2, 3)
	s.reached("recover.aborting")
	a.decides("abort")
	s.release("commit.prepared")
	a.hears("40001", "rolled back").is(nowhere)
	s.release("recover.aborting")
	a.ends(nowhere)
}

// c13: router stopped after the decision.
func c13(s *scene) {
	a := s.begin(1, 2, 3).commitUntil("commit.decided", orders.Stop)
	s.must(s.Settled(s.t.Context()))
	a.is(everywhere)
	s.router.Continue()
	a.hears("committed").ends(everywhere)
}

// c19Before: servers restart with prepared parts, of a router that is gone.
func c19Before(s *scene) {
	a := s.killed("commit.prepared", func(*act) {
		for _, number := range []int{2, 3} {
			s.must(s.shard(number).Crash(number == 3))
		}
	})
	for _, number := range []int{2, 3} {
		s.must(s.shard(number).Restart(s.t.Context()))
	}
	a.ends(nowhere)
}

// c19After: servers restart with prepared parts that are decided, and their router goes on.
func c19After(s *scene) {
	a := s.begin(1, 2, 3).commitUntil("commit.decided", orders.Hold)
	for _, number := range []int{1, 2, 3} {
		s.must(s.shard(number).Crash(number == 3))
		s.must(s.shard(number).Restart(s.t.Context()))
	}
	s.release("commit.decided")
	a.hears("committed warned").ends(everywhere)
}

// c20: a shard does not answer, and its connections stay. The others do not wait for it.
func c20(s *scene) {
	a := s.begin(1, 2, 3).commitUntil("commit.begin", orders.Hold)
	s.shard(3).Proxy.Stall()
	defer s.shard(3).Proxy.Resume()
	s.release("commit.begin")
	s.eventually("the other one is prepared", func() error {
		if s.prepared(2) == "" {
			return errors.New("it is not")
		}
		return nil
	})
	a.isPrepared(2)
	s.eventually("the other one is free again", func() error {
		if found := s.prepared(2); found != "" {
			return fmt.Errorf("%s is prepared", found)
		}
		return nil
	})
	a.decides("abort")
	s.shard(3).Proxy.Resume()
	a.hears("40001 08006").ends(nowhere)
}

// leaderKilled leaves a transaction in doubt, and kills the leader when it has come to a point with it.
func (s *scene) leaderKilled(inDoubt, point string) *act {
	s.t.Helper()
	a := s.begin(1, 2, 3).commitUntil(inDoubt, orders.Hold)
	a.isPrepared(2, 3)
	s.dooms(point)
	s.router.Kill()
	s.leaderDies(point)
	return a.hears("lost")
}

// l1: leader gone after it has listed.
func l1(s *scene) {
	s.leaderKilled("commit.prepared", "recover.listed").ends(nowhere)
}

// l2: leader gone when the abort row is inserted.
func l2(s *scene) {
	s.leaderKilled("commit.prepared", "recover.aborting").isPrepared(2, 3).decides("abort").ends(nowhere)
}

// l3: leader gone when some parts are rolled back.
func l3(s *scene) {
	s.leaderKilled("commit.prepared", "recover.rolledback").isPrepared(3).decides("abort").ends(nowhere)
}

// l4: leader gone when some parts are committed.
func l4(s *scene) {
	s.leaderKilled("commit.decided", "recover.committed").isPrepared(3).decides("commit").ends(everywhere)
}

// l5: leader gone when the abort row's backend is terminated.
func l5(s *scene) {
	s.dooms("recover.terminated")
	a := s.begin(1, 2, 3).commitUntil("commit.prepared", orders.Stop)
	s.leaderDies("recover.terminated")
	a.isPrepared()
	s.router.Continue()
	a.hears("08006 40001", "rolled back").ends(nowhere)
}

// sweepKilled kills the leader at a point of a clean-up, looks what is left, and wants nothing to be left in the end.
func (s *scene) sweepKilled(point string, look func(a *act)) {
	s.t.Helper()
	s.eventually("nothing is noted from before", func() error { return s.somethingNoted() })
	a := s.begin(1, 2, 3).commitUntil("commit.prepared", orders.Hold).isPrepared(2, 3)
	s.dooms(point)
	s.release("commit.prepared")
	a.hears("committed")
	s.leaderDies(point)
	look(a)
	a.ends(everywhere)
	s.eventually("nothing is noted any more", func() error { return s.somethingNoted() })
	if lost := s.lost(); lost != "" {
		s.t.Errorf("these are called lost: %s", lost)
	}
}

func (s *scene) somethingNoted() error {
	if n := s.noted(); n > 0 {
		return fmt.Errorf("%d rows are there", n)
	}
	return nil
}

// lost lists what shards have marked as lost.
func (s *scene) lost() string {
	s.t.Helper()
	var all []string
	for i := range s.Shards {
		if found := ask[string](s, i+1, "SELECT coalesce(string_agg(gid, ' '), '') FROM cleave.commits WHERE lost IS NOT NULL"); found != "" {
			all = append(all, found)
		}
	}
	return strings.Join(all, " ")
}

// marks counts what is noted of the transaction on the shards, and the batches that shard 1 has.
func (a *act) marks() (rows [3]int, batches int) {
	a.t.Helper()
	for i := range a.Shards {
		rows[i] = ask[int](a.scene, i+1, "SELECT count(*) FROM cleave.commits WHERE gid = $1", a.gid)
	}
	return rows, ask[int](a.scene, 1, "SELECT count(*) FROM cleave.sweeps WHERE $1 = ANY (gids)", a.gid)
}

// s1: leader gone when a batch is written.
func s1(s *scene) {
	s.sweepKilled("sweep.noted", func(a *act) {
		if rows, batches := a.marks(); rows != [3]int{1, 1, 1} || batches != 1 {
			s.t.Errorf("rows %v and %d batches are left", rows, batches)
		}
	})
}

// s2: leader gone when some marks are deleted.
func s2(s *scene) {
	s.sweepKilled("sweep.unmarked", func(a *act) {
		if rows, batches := a.marks(); rows[0] != 1 || rows[1]+rows[2] != 1 || batches != 1 {
			s.t.Errorf("rows %v and %d batches are left", rows, batches)
		}
	})
}

// s3: leader gone when all marks are deleted.
func s3(s *scene) {
	s.sweepKilled("sweep.cleared", func(a *act) {
		if rows, batches := a.marks(); rows != [3]int{1, 0, 0} || batches != 1 {
			s.t.Errorf("rows %v and %d batches are left", rows, batches)
		}
	})
}

// needsReplica gives shard 2 a new one if the last has been promoted. It lives as long as the cluster.
func (s *scene) needsReplica() {
	s.t.Helper()
	if s.shard(2).Replica() == nil {
		s.shard(2).AddReplica(s.whole)
	}
}

// failOver kills shard 2 and promotes its replica.
func (s *scene) failOver() {
	s.t.Helper()
	s.must(s.shard(2).Crash(false))
	s.must(s.shard(2).Promote(s.t.Context()))
}

// c14: D promoted, after the decision.
func c14(s *scene) {
	s.needsReplica()
	a := s.decidedUnheard(2, 2, 3)
	s.must(s.shard(2).CatchUp(s.t.Context()))
	s.failOver()
	s.shard(2).Proxy.Resume()
	a.hears("committed").is(everywhere)
	a.ends(everywhere)
}

// c15: D promoted before the decision arrived there.
func c15(s *scene) {
	s.needsReplica()
	s.must(s.shard(2).CatchUp(s.t.Context()))
	s.must(s.shard(2).Replica().Crash())
	a := s.decidedUnheard(2, 2, 3)
	s.failOver()
	s.shard(2).Proxy.Resume()
	a.hears("08007", "not known", a.gid)
	if one := a.shown("in doubt"); one.DecidedOn != "s2" || !slices.Equal(one.PreparedOn, []string{"s3"}) {
		s.t.Errorf("it is shown as %+v", one)
	}
	a.isPrepared(3)
	s.must(s.leader.Resolve(s.t.Context(), a.gid, "rollback"))
	a.ends(nowhere)
}

// c16: D promoted to a standby that lacks the decision while one of the others has committed.
func c16(s *scene) {
	s.needsReplica()
	s.must(s.shard(2).CatchUp(s.t.Context()))
	s.must(s.shard(2).Replica().Crash())
	a := s.begin(2, 3).commitUntil("commit.prepared", orders.Hold).isPrepared(3)
	s.release("commit.prepared")
	a.hears("committed")
	s.failOver()
	if one := a.shown("lost"); !slices.Equal(one.LostOn, []string{"s2"}) {
		s.t.Errorf("it is shown as %+v", one)
	}
	a.forgotten(3)
}

// c17: one of the others promoted, its prepared part is there.
func c17(s *scene) {
	s.needsReplica()
	a := s.begin(1, 2).commitUntil("commit.decided", orders.Hold).isPrepared(2)
	s.must(s.shard(2).CatchUp(s.t.Context()))
	s.failOver()
	s.release("commit.decided")
	a.hears("committed warned").ends(everywhere)
}

// c18: one of the others promoted to a standby that lacks its prepared part.
func c18(s *scene) {
	s.needsReplica()
	s.must(s.shard(2).CatchUp(s.t.Context()))
	s.must(s.shard(2).Replica().Crash())
	a := s.begin(1, 2).commitUntil("commit.decided", orders.Hold).isPrepared(2)
	s.failOver()
	s.release("commit.decided")
	a.hears("warned", "s2")
	if one := a.shown("lost"); !slices.Equal(one.LostOn, []string{"s2"}) {
		s.t.Errorf("it is shown as %+v", one)
	}
	a.forgotten(1)
}

// forgotten does what a person does with a transaction of which only one part is there: look, mend, forget.
func (a *act) forgotten(only int) {
	a.t.Helper()
	if there := a.there(); !slices.Equal(there, []int{only}) {
		a.t.Errorf("the transaction is on the shards %v", there)
	}
	a.exec("DELETE FROM tags WHERE id = $1 AND tag = $2", a.tables.Keys[only-1][0], a.tagged.Tag)
	a.must(a.leader.Resolve(a.t.Context(), a.gid, "forget"))
	a.must(a.Settled(a.t.Context()))
	if lost := a.lost(); strings.Contains(lost, a.gid) {
		a.t.Error("it is still called lost")
	}
}
