package adopting_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/cluster"
	"github.com/cleavedb/cleave/test/moves"
)

// spread are the tables whose rows are on all shards.
var spread = []string{"accounts", "users", "posts", "comments", "likes", "notes"}

// toFour adds the third and the fourth shard, moves rows out while the application writes, and gives one shard up again. Nothing is lost by any of it, and nothing is left.
func toFour(t *testing.T, p program, router *cluster.Router, servers []*localpg.Server, before []*writer) {
	t.Helper()
	for i, server := range servers[1:] {
		says(t, p.must(t, 0, "shard", "add", fmt.Sprintf("shard%d", i+3), "--address", server.Addr()), "It owns nothing yet")
	}
	addresses := []string{p.dsn}
	for _, server := range servers {
		addresses = append(addresses, dsnOf(server.Addr()))
	}
	keyed := writeKeyed(t, dsnOf(router.Listen), "moving", 3)
	plan := p.must(t, 0, "rebalance", "plan", "--split")
	says(t, plan, "accounts", "shard4", "It takes about")
	moved := p.must(t, 0, "rebalance", "apply", planID(t, plan), "--wait")
	if n := strings.Count(moved, ": done"); n != 3 {
		t.Errorf("%d moves are done:\n%s", n, moved)
	}
	keyed.goOn(t, 20)
	keyed.end(t)
	through := dial(t, dsnOf(router.Listen))
	expectWritten(t, through, append(before, keyed)...)
	expectSpread(t, p, through, addresses)

	if !thorough.Asked() { // package control drains shards, too
		return
	}
	drained := writeKeyed(t, dsnOf(router.Listen), "draining", 3)
	says(t, p.must(t, 0, "shard", "drain", "shard1", "--dry-run"), "shard1 is the home shard", "1 in all: public.jobs")
	moved = p.must(t, 0, "shard", "drain", "shard4", "--wait")
	says(t, moved, "Shard shard4: draining")
	if n := strings.Count(moved, ": done"); n < 2 {
		t.Errorf("the others share what it had, and %d moves are done:\n%s", n, moved)
	}
	drained.goOn(t, 20)
	says(t, p.must(t, 0, "shard", "remove", "shard4"), "Shard shard4 is out of the map")
	drained.goOn(t, 20)
	drained.end(t)
	expectWritten(t, through, append(before, keyed, drained)...)
	expectSpread(t, p, through, addresses[:3])
	expectEmpty(t, dial(t, addresses[3]))
	says(t, p.must(t, 1, "shard", "remove", "shard1"), `shard "shard1" cannot be removed: it is the home shard`, "hint: The others are removed first")
}

// planID is the one that a plan is applied by.
func planID(t *testing.T, plan string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^Plan ([0-9a-z]+): `).FindStringSubmatch(plan)
	if found == nil {
		t.Fatalf("this plan has no ID:\n%s", plan)
	}
	return found[1]
}

// expectSpread wants rows of each table on every shard, all of them together what the router shows, every row where it belongs, and nothing left of the moves.
func expectSpread(t *testing.T, p program, through *pgx.Conn, addresses []string) {
	t.Helper()
	total := map[string]int64{}
	for i, address := range addresses {
		conn := dial(t, address)
		for _, table := range spread {
			n := count(t, conn, "SELECT count(*) FROM "+table)
			if n == 0 {
				t.Errorf("shard%d has no rows of %s", i+1, table)
			}
			total[table] += n
		}
		if n := count(t, conn, "SELECT count(*) FROM countries"); n != 20 {
			t.Errorf("shard%d has %d countries", i+1, n)
		}
		left, err := moves.LeftOn(t.Context(), conn)
		if err != nil || len(left) > 0 {
			t.Errorf("shard%d: %q is left: %v", i+1, left, err)
		}
	}
	for _, table := range spread {
		if n := count(t, through, "SELECT count(*) FROM "+table); n != total[table] {
			t.Errorf("the router shows %d rows of %s, and the shards have %d", n, table, total[table])
		}
	}
	// Each row finds those that it refers to: they are on one shard.
	comments, linked := count(t, through, "SELECT count(*) FROM comments"), count(t, through, "SELECT count(*) FROM comments c JOIN posts p ON p.account_id = c.account_id AND p.id = c.post_id JOIN users u ON u.account_id = p.account_id AND u.id = p.user_id")
	if comments != linked {
		t.Errorf("of %d comments %d find their posts and users", comments, linked)
	}
	says(t, p.must(t, 0, "verify"), fmt.Sprintf("in 6 tables on %d shards", len(addresses)), "Everything is where it belongs")
	says(t, p.must(t, 0, "status"), fmt.Sprintf("%d shards", len(addresses)))
}

// expectEmpty wants nothing of the cluster on a server that was a shard.
func expectEmpty(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	for what, query := range map[string]string{
		"schemas": "SELECT count(*) FROM pg_namespace WHERE nspname = 'cleave'", "tables": "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'",
		"slots": "SELECT count(*) FROM pg_replication_slots", "subscriptions": "SELECT count(*) FROM pg_subscription", "publications": "SELECT count(*) FROM pg_publication",
	} {
		if n := count(t, conn, query); n != 0 {
			t.Errorf("the server that was removed has %d %s", n, what)
		}
	}
}

func count(t *testing.T, conn *pgx.Conn, query string) (n int64) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}
