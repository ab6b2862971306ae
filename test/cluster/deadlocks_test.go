package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/test/cluster"
)

// circling is a cluster whose routers' clients wait for each other.
type circling struct {
	*cluster.Routers
	shards []*pgx.Conn // past the routers
	keys   [3]int64    // one that each of the shards owns
}

// TestDeadlocksAcrossRouters: who waits for each other may be clients of different routers, and one of them is ended, whoever leads. The others go on.
func TestDeadlocksAcrossRouters(t *testing.T) {
	c := &circling{Routers: cluster.StartRouters(t, 3, 4)}
	for i := range c.Shards {
		c.shards = append(c.shards, c.Direct(t, i))
	}
	c.declare(t)
	for _, s := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"of two routers", c.ofTwoRouters},
		{"of three routers", c.ofThreeRouters},
		{"the leader dies", c.leaderDies},
		{"a router of the circle dies", c.routerDies},
	} {
		if !t.Run(s.name, s.run) {
			return
		}
	}
}

func (c *circling) declare(t *testing.T) {
	t.Helper()
	conn := c.Routers.Routers[0].Dial(t)
	mustExec(t, conn, "CREATE TABLE ledger (id bigint PRIMARY KEY, amount bigint NOT NULL)")
	mustExec(t, conn, "SELECT cleave.shard_table('ledger', 'id')")
	for id := int64(1); slices.Contains(c.keys[:], 0); id++ {
		mustExec(t, conn, "INSERT INTO ledger VALUES ($1, 0)", id)
		c.keys[shardOf(t, conn, "ledger", id)-1] = id
	}
}

// leaderFirst returns the routers that are left, the leader first.
func (c *circling) leaderFirst(t *testing.T) []*cluster.Router {
	t.Helper()
	var name string
	cluster.Eventually(t, "somebody leads", func() bool {
		status, err := c.Routers.Routers[0].API.Status(t.Context())
		name = status.Leader
		return err == nil && name != ""
	})
	routers := slices.Clone(c.Routers.Routers)
	slices.SortStableFunc(routers, func(a, b *cluster.Router) int {
		switch name {
		case a.Name:
			return -1
		case b.Name:
			return 1
		}
		return 0
	})
	return routers
}

// take adds to the row of a shard.
func (c *circling) take(shard int) string {
	return fmt.Sprintf("UPDATE ledger SET amount = amount + 1 WHERE id = %d", c.keys[shard])
}

// begin begins a transaction that has a shard's row.
func (c *circling) begin(t *testing.T, router *cluster.Router, shard int) *pgx.Conn {
	t.Helper()
	conn := router.Dial(t)
	mustExec(t, conn, "BEGIN")
	mustExec(t, conn, c.take(shard))
	return conn
}

// want asks for a shard's row, and returns when that waits.
func (c *circling) want(t *testing.T, conn *pgx.Conn, shard int) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), c.take(shard))
		ended <- err
	}()
	cluster.Eventually(t, "it waits", func() bool {
		return one[int](t, c.shards[shard], "SELECT count(*) FROM pg_locks WHERE NOT granted") > 0
	})
	return ended
}

// ended is how a statement ended.
func ended(t *testing.T, statement <-chan error) error {
	t.Helper()
	select {
	case err := <-statement:
		return err
	case <-time.After(time.Minute):
		t.Fatal("it waits and waits")
		return nil
	}
}

// isVictim wants a statement to be the one that is ended.
func isVictim(t *testing.T, statement <-chan error) {
	t.Helper()
	formed := time.Now()
	var failure *pgconn.PgError
	if err := ended(t, statement); !errors.As(err, &failure) || failure.Code != "40P01" || !strings.Contains(failure.Detail, "shard") {
		t.Fatalf("the victim hears %v", err)
	}
	t.Logf("broken %v after it was formed:\n%s", time.Since(formed).Round(time.Millisecond), failure.Detail)
}

// goesOn wants a statement to end well.
func goesOn(t *testing.T, statement <-chan error) {
	t.Helper()
	if err := ended(t, statement); err != nil {
		t.Fatalf("somebody else was ended: %v", err)
	}
}

func (c *circling) ofTwoRouters(t *testing.T) {
	routers := c.leaderFirst(t)
	first, second := c.begin(t, routers[1], 0), c.begin(t, routers[2], 1)
	a := c.want(t, first, 1)
	isVictim(t, c.want(t, second, 0))
	goesOn(t, a)
	mustExec(t, first, "COMMIT")
	mustExec(t, second, "ROLLBACK")
	for _, sql := range []string{"BEGIN", c.take(1), c.take(0), "COMMIT"} {
		mustExec(t, second, sql)
	}
	for i, counted := range []string{"0", "1"} {
		if !strings.Contains(metrics(t, routers[i+1]), "cleave_deadlocks_broken_total "+counted+"\n") {
			t.Errorf("router %s has not counted %s", routers[i+1].Name, counted)
		}
	}
}

// metrics are those of a router.
func metrics(t *testing.T, router *cluster.Router) string {
	t.Helper()
	answer, err := http.Get(router.API.BaseURL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (c *circling) ofThreeRouters(t *testing.T) {
	routers := c.leaderFirst(t)
	first, second, third := c.begin(t, routers[0], 0), c.begin(t, routers[1], 1), c.begin(t, routers[2], 2)
	a, b := c.want(t, first, 1), c.want(t, second, 2)
	isVictim(t, c.want(t, third, 0))
	goesOn(t, b)
	mustExec(t, second, "COMMIT")
	goesOn(t, a)
	mustExec(t, first, "COMMIT")
}

// leaderDies: the next one finds the circle.
func (c *circling) leaderDies(t *testing.T) {
	routers := c.leaderFirst(t)
	first, second := c.begin(t, routers[1], 0), c.begin(t, routers[2], 1)
	a := c.want(t, first, 1)
	b := c.want(t, second, 0)
	routers[0].Kill()
	c.Routers.Routers = routers[1:]
	isVictim(t, b)
	goesOn(t, a)
	mustExec(t, first, "COMMIT")
}

// routerDies: what it has locked is free, and nobody is ended.
func (c *circling) routerDies(t *testing.T) {
	routers := c.leaderFirst(t)
	first, second := c.begin(t, routers[0], 0), c.begin(t, routers[1], 1)
	a := c.want(t, first, 1)
	b := c.want(t, second, 0)
	routers[1].Kill()
	goesOn(t, a)
	mustExec(t, first, "COMMIT")
	if err := ended(t, b); err == nil {
		t.Error("a statement of a router that is dead ended well")
	}
}
