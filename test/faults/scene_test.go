package faults_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/failpoint/orders"
	"github.com/cleavedb/cleave/test/faults"
	"github.com/cleavedb/cleave/test/faults/history"
)

// scene is a cluster on which the lines of the crash table are played, one after the other. One router leads, and clients are at the other,
// so that recovery is there when that one dies.
type scene struct {
	*faults.Cluster
	whole  *testing.T
	tables *faults.Tables
	tagged []history.Tagged

	// Of the case that is being played.
	t      *testing.T
	leader *faults.Router
	router *faults.Router
	// settings is what clients say first, if anything.
	settings string
}

// cast looks who leads.
func (s *scene) cast(t *testing.T) {
	t.Helper()
	s.t = t
	if err := s.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	leader, err := s.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.leader, s.router, s.settings = leader, s.Other(leader), ""
}

// must ends the case.
func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// act is a transaction of the case, with a row on each of its shards.
type act struct {
	*scene
	client  *faults.Client
	tagged  history.Tagged
	answers chan struct{} // closed when COMMIT was answered
	err     error
	gid     string
}

// begin writes on the shards, by their numbers from 1, through the router that does not lead.
func (s *scene) begin(shards ...int) *act {
	s.t.Helper()
	name := strings.ReplaceAll(s.t.Name()[strings.LastIndex(s.t.Name(), "/")+1:], "_", " ")
	a := &act{scene: s, client: faults.NewClient(1, s.router), tagged: history.Tagged{Tag: name}, answers: make(chan struct{})}
	for _, shard := range shards {
		a.tagged.Shards = append(a.tagged.Shards, shard-1)
	}
	conn, err := a.client.Connection(s.t.Context())
	s.must(err)
	s.t.Cleanup(a.client.Drop)
	for _, sql := range []string{s.settings, "BEGIN"} {
		_, err = conn.Exec(s.t.Context(), sql)
		s.must(err)
	}
	for _, shard := range a.tagged.Shards {
		_, err = conn.Exec(s.t.Context(), "INSERT INTO tags VALUES ($1, $2)", s.tables.Keys[shard][0], a.tagged.Tag)
		s.must(err)
	}
	return a
}

// exec runs one more statement in the transaction.
func (a *act) exec(sql string, arguments ...any) {
	a.t.Helper()
	conn, err := a.client.Connection(a.t.Context())
	a.must(err)
	_, err = conn.Exec(a.t.Context(), sql, arguments...)
	a.must(err)
}

// commit says COMMIT and does not wait for the answer.
func (a *act) commit() *act {
	ctx := a.t.Context()
	go func() {
		defer close(a.answers)
		a.client.Commit(ctx, &a.tagged.Head, &a.err)
	}()
	a.t.Cleanup(func() { <-a.answers })
	return a
}

// commitUntil gives an order to the router, says COMMIT, and returns when the router has come to the point.
func (a *act) commitUntil(point string, what orders.Act) *act {
	a.t.Helper()
	a.order(a.router, point, what)
	a.commit()
	a.reached(point)
	return a
}

func (s *scene) order(router *faults.Router, point string, what orders.Act) {
	s.t.Helper()
	s.must(orders.Give(s.Orders, point, orders.Order{Act: what, Process: router.PID()}))
}

// dooms gives the order to whoever leads when the point is come to.
func (s *scene) dooms(point string) {
	s.t.Helper()
	s.must(orders.Give(s.Orders, point, orders.Order{Act: orders.Kill}))
}

// leaderDies waits until the leader has come to the point and is dead.
func (s *scene) leaderDies(point string) {
	s.t.Helper()
	process := s.reached(point)
	i := slices.IndexFunc(s.Routers, func(r *faults.Router) bool { return r.PID() == process })
	s.must(s.Routers[i].WaitKilled(s.t.Context()))
}

// reached waits until somebody has obeyed the order for the point.
func (s *scene) reached(point string) (process int) {
	s.t.Helper()
	s.eventually("the order at "+point+" is obeyed", func() (err error) {
		if process, err = orders.Obeyed(s.Orders, point); err == nil && process == 0 {
			err = errors.New("nobody came by")
		}
		return err
	})
	return process
}

func (s *scene) release(point string) {
	s.t.Helper()
	s.must(orders.Release(s.Orders, point))
}

func (s *scene) eventually(what string, try func() error) {
	s.t.Helper()
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	s.t.Fatalf("in a minute it did not come to pass that %s: %v", what, err)
}

// The shards by their numbers.
func (s *scene) shard(number int) *faults.Shard { return s.Shards[number-1] }

// ask asks a shard for one value, past everything.
func ask[T any](s *scene, shard int, sql string, arguments ...any) (value T) {
	s.t.Helper()
	conn, err := s.shard(shard).Connect(s.t.Context())
	s.must(err)
	defer conn.Close(context.Background())
	if err := conn.QueryRow(s.t.Context(), sql, arguments...).Scan(&value); err != nil {
		s.t.Fatalf("shard %d: %s: %v", shard, sql, err)
	}
	return value
}

// prepared lists the names of what is prepared on a shard.
func (s *scene) prepared(shard int) string {
	s.t.Helper()
	return ask[string](s, shard, "SELECT coalesce(string_agg(gid, ' '), '') FROM pg_prepared_xacts WHERE gid LIKE 'cleave%'")
}

// isPrepared wants the transaction to be prepared on these shards and on no other, and notes its name.
func (a *act) isPrepared(shards ...int) *act {
	a.t.Helper()
	for i := range a.Shards {
		found := a.prepared(i + 1)
		if slices.Contains(shards, i+1) != (found != "") {
			a.t.Fatalf("on shard %d is prepared: %q; it should be on %v alone", i+1, found, shards)
		}
		if found != "" {
			a.gid = found[:strings.LastIndex(found, "/")] // without the timeline of the part
		}
	}
	return a
}

// decision is what the shard that decides has noted; "" if nothing.
func (a *act) decision(decider int) string {
	a.t.Helper()
	return ask[string](a.scene, decider, "SELECT coalesce((SELECT decision FROM cleave.commits WHERE gid = $1), '')", a.gid)
}

// decides wants that to be noted on shard 1.
func (a *act) decides(want string) *act {
	a.t.Helper()
	if got := a.decision(1); got != want {
		a.t.Errorf("shard 1 has decided %q, want %q", got, want)
	}
	return a
}

// becomes waits until that is noted on shard 1.
func (a *act) becomes(want string) *act {
	a.t.Helper()
	a.eventually("shard 1 has decided: "+want, func() error {
		if got := a.decision(1); got != want {
			return fmt.Errorf("it has decided %q", got)
		}
		return nil
	})
	return a
}

// there says on which shards the transaction's row is.
func (a *act) there() (shards []int) {
	a.t.Helper()
	for i := range a.Shards {
		if ask[bool](a.scene, i+1, "SELECT EXISTS (SELECT FROM tags WHERE tag = $1)", a.tagged.Tag) {
			shards = append(shards, i+1)
		}
	}
	return shards
}

// answered waits for the answer to COMMIT.
func (a *act) answered() {
	a.t.Helper()
	select {
	case <-a.answers:
	case <-time.After(time.Minute):
		a.t.Fatal("COMMIT is not answered")
	}
}

// hears wants COMMIT to be answered in this way: "committed", "warned" that a part is to follow, "lost" connection, or by one of several
// SQLSTATEs. Words, if there are any, must be in the error.
func (a *act) hears(want string, words ...string) *act {
	a.t.Helper()
	a.answered()
	var refused *pgconn.PgError
	got, text := "lost", fmt.Sprint(a.err)
	switch {
	case a.err == nil && len(a.tagged.Warnings) > 0:
		got, text = "warned", strings.Join(a.tagged.Warnings, " ")
	case a.err == nil:
		got = "committed"
	case errors.As(a.err, &refused):
		got, text = refused.Code, refused.Message+" "+refused.Detail
	}
	if !slices.Contains(strings.Fields(want), got) {
		a.t.Errorf("COMMIT was answered by %s: %s; want %s", got, text, want)
	}
	for _, word := range words {
		if !strings.Contains(text, word) {
			a.t.Errorf("the answer to COMMIT, %q, does not say %q", text, word)
		}
	}
	return a
}

// outcome is what a case wants to come out.
type outcome string

const (
	everywhere outcome = "everywhere"
	nowhere    outcome = "nowhere"
)

// healed takes back what the case has done.
func (a *act) healed() *act {
	a.t.Helper()
	a.must(a.Heal(a.t.Context()))
	return a
}

// ends heals what the case has done, waits until all is settled, and wants the transaction to be everywhere or nowhere.
func (a *act) ends(want outcome) {
	a.t.Helper()
	a.healed().answered()
	if err := a.Settled(a.t.Context()); err != nil {
		a.t.Fatal(err)
	}
	a.is(want)
	a.scene.tagged = append(a.scene.tagged, a.tagged)
}

// is wants the transaction to be there or not, now.
func (a *act) is(want outcome) {
	a.t.Helper()
	got := outcome(fmt.Sprint(a.there()))
	switch n := len(a.there()); n {
	case 0:
		got = nowhere
	case len(a.tagged.Shards):
		got = everywhere
	}
	if got != want {
		a.t.Errorf("the transaction is %s, want %s", got, want)
	}
}

// outcomeTold wants a client who asks for the transaction by its name to hear this.
func (a *act) outcomeTold(want string) {
	a.t.Helper()
	client := faults.NewClient(1, a.leader)
	defer client.Drop()
	conn, err := client.Connection(a.t.Context())
	a.must(err)
	var got string
	a.must(conn.QueryRow(a.t.Context(), "SELECT cleave.transaction_outcome('"+a.gid+"')").Scan(&got))
	if got != want {
		a.t.Errorf("the outcome of %s is told as %q, want %q", a.gid, got, want)
	}
}

// shown waits until the transaction is shown to people in this phase.
func (a *act) shown(phase string) (one api.Transaction) {
	a.t.Helper()
	a.eventually("the transaction is shown as "+phase, func() error {
		list, err := a.leader.Transactions(a.t.Context())
		if err != nil {
			return err
		}
		i := slices.IndexFunc(list.Transactions, func(t api.Transaction) bool { return t.ID == a.gid && t.Phase == phase })
		if i < 0 {
			return fmt.Errorf("the list is %+v", list)
		}
		one = list.Transactions[i]
		return nil
	})
	return one
}

// noted counts what shards have noted of transactions, but for what is lost.
func (s *scene) noted() (total int) {
	s.t.Helper()
	s.must(s.EachShard(s.t.Context(), func(_ int, conn *pgx.Conn) error {
		var here int
		err := conn.QueryRow(s.t.Context(), "SELECT (SELECT count(*) FROM cleave.commits WHERE lost IS NULL) + (SELECT count(*) FROM cleave.sweeps)").Scan(&here)
		total += here
		return err
	}))
	return total
}
