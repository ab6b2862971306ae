package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/test/faults/history"
)

// look is a look at all the money, and at all counters, while others work. Only a consistent one can find fault.
func (w *Workload) look(ctx context.Context, c *Client, head history.Head) history.Outcome {
	begins := begin
	if c.consistent {
		begins = consistentBegin
	}
	var money int64
	counters := map[int64]int64{}
	c.Transact(ctx, &head, begins, func(ctx context.Context, conn *pgx.Conn) error {
		accounts, err := pairs(ctx, conn, "SELECT id, balance FROM accounts")
		if err != nil {
			return err
		}
		for _, balance := range accounts {
			money += balance
		}
		counters, err = pairs(ctx, conn, "SELECT id, n FROM counters")
		return err
	})
	head.End = w.recorder.Now()
	if head.Outcome == history.Committed && c.consistent {
		w.looks.Add(1)
		w.checkLook(head, money, counters)
	}
	w.note(&head, head)
	return head.Outcome
}

// checkLook is for what was seen in one consistent transaction.
func (w *Workload) checkLook(head history.Head, money int64, counters map[int64]int64) {
	if money != w.tables.Money {
		w.complain("look %d through %s saw %d of %d", head.Number, head.Router, money, w.tables.Money)
	}
	for group := range groups {
		first := counters[w.tables.counter(group, 0)]
		for shard := range w.tables.Keys {
			if n := counters[w.tables.counter(group, shard)]; n != first {
				w.complain("look %d through %s saw the counters of group %d at %d on the first shard and at %d on shard %d", head.Number, head.Router, group, first, n, shard+1)
			}
		}
	}
}

// pairs are the rows of a query with two columns.
func pairs(ctx context.Context, conn *pgx.Conn, sql string) (map[int64]int64, error) {
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	found := map[int64]int64{}
	var id, value int64
	_, err = pgx.ForEachRow(rows, []any{&id, &value}, func() error {
		found[id] = value
		return nil
	})
	return found, err
}

// OffersConsistentReads says whether routers know what consistent reads are.
func (c *Cluster) OffersConsistentReads(ctx context.Context) (bool, error) {
	client := NewClient(1, c.Routers[0])
	defer client.Drop()
	conn, err := client.Connection(ctx)
	if err != nil {
		return false, err
	}
	_, err = conn.Exec(ctx, "SET cleave.consistent_reads = on")
	return err == nil, nil
}

// Settled waits until nothing is prepared any more on any shard, no client's transaction is open and no advisory lock is held, and returns an
// error if that does not come to pass within a minute. The cluster has to be whole, and clients gone.
func (c *Cluster) Settled(ctx context.Context) error {
	return eventually(ctx, "nothing is prepared and nothing open", func(ctx context.Context) error {
		var left []string
		err := c.EachShard(ctx, func(i int, conn *pgx.Conn) error {
			open, err := openOn(ctx, conn)
			for _, one := range open {
				left = append(left, c.Shards[i].Name+": "+one)
			}
			return err
		})
		if err == nil && len(left) > 0 {
			err = errors.New(strings.Join(left, "; "))
		}
		return err
	})
}

// openOn lists what is prepared on a server, and which sessions of clients are in a transaction or hold an advisory lock.
func openOn(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, err := conn.Query(ctx, `
		SELECT format('%s is prepared for %s', gid, date_trunc('second', clock_timestamp() - prepared)) FROM pg_prepared_xacts WHERE gid LIKE 'cleave%'
		UNION ALL
		SELECT format('process %s is in a transaction for %s (%s: %s)', pid, date_trunc('second', clock_timestamp() - xact_start), state, left(query, 60))
		FROM pg_stat_activity WHERE backend_type = 'client backend' AND xact_start IS NOT NULL AND application_name NOT IN ('oracle', 'cleave/control')
		UNION ALL
		SELECT format('process %s (%s: %s) holds the advisory lock %s %s', pid, state, left(query, 60), l.classid, l.objid)
		FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND l.granted AND l.database = a.datid AND pid <> pg_backend_pid()`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// Check says what is wrong when all is over and settled. An empty answer is the good one.
func (w *Workload) Check(ctx context.Context) (wrong []string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wrong = append(wrong, w.wrong...)
	for _, check := range []func(context.Context) ([]string, error){w.checkMoney, w.checkCounters, w.checkRegisters, w.checkLists, w.checkRouters} {
		found, err := check(ctx)
		if err != nil {
			return wrong, err
		}
		wrong = append(wrong, found...)
	}
	return wrong, nil
}

func (w *Workload) checkMoney(ctx context.Context) (wrong []string, err error) {
	var all int64
	err = w.cluster.EachShard(ctx, func(_ int, conn *pgx.Conn) error {
		var sum int64
		err := conn.QueryRow(ctx, "SELECT sum(balance)::bigint FROM accounts").Scan(&sum)
		all += sum
		return err
	})
	if all != w.tables.Money {
		wrong = append(wrong, fmt.Sprintf("the accounts have %d in all, and had %d", all, w.tables.Money))
	}
	return wrong, err
}

// counters are the counters by shard and group.
func (w *Workload) counters(ctx context.Context) (all [][]int64, err error) {
	err = w.cluster.EachShard(ctx, func(shard int, conn *pgx.Conn) error {
		found, err := pairs(ctx, conn, "SELECT id, n FROM counters")
		counted := make([]int64, groups)
		for group := range groups {
			counted[group] = found[w.tables.counter(group, shard)]
		}
		all = append(all, counted)
		return err
	})
	return all, err
}

// checkCounters: what was counted, and the tags that were left, are the same on all shards, and what the clients know.
func (w *Workload) checkCounters(ctx context.Context) (wrong []string, err error) {
	counters, err := w.counters(ctx)
	if err != nil {
		return nil, err
	}
	found := make([]map[string]bool, len(w.cluster.Shards))
	err = w.cluster.EachShard(ctx, func(shard int, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, "SELECT id, tag FROM tags")
		if err != nil {
			return err
		}
		found[shard] = map[string]bool{}
		tagged := map[int64]int64{}
		var id int64
		var tag string
		_, err = pgx.ForEachRow(rows, []any{&id, &tag}, func() error {
			found[shard][tag] = true
			tagged[id]++
			return nil
		})
		for group := range groups {
			if counted, tags := counters[shard][group]-w.before[group], tagged[w.tables.counter(group, shard)]; counted != tags {
				wrong = append(wrong, fmt.Sprintf("on shard %d group %d counted %d and has %d tags", shard+1, group, counted, tags))
			}
		}
		return err
	})
	return append(wrong, history.CheckTags(w.tagged, found)...), err
}

// registerPatience is how long the search for an order of a round's operations may take. Nearly all of it is found at once.
const registerPatience = 30 * time.Second

func (w *Workload) checkRegisters(context.Context) ([]string, error) {
	wrong, undecided := history.CheckRegisters(w.registers, registerPatience)
	if undecided > 0 {
		wrong = append(wrong, fmt.Sprintf("of %d registers nobody could tell in time whether they are linearizable", undecided))
	}
	return wrong, nil
}

func (w *Workload) checkLists(ctx context.Context) (wrong []string, err error) {
	final := map[int64][]int64{}
	err = w.cluster.EachShard(ctx, func(_ int, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, "SELECT id, items FROM lists")
		if err != nil {
			return err
		}
		var id int64
		var items []int64
		_, err = pgx.ForEachRow(rows, []any{&id, &items}, func() error {
			final[id] = items
			items = nil
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, a := range history.CheckLists(w.lists, final) {
		wrong = append(wrong, a.String())
	}
	return wrong, nil
}

func (w *Workload) checkRouters(context.Context) (wrong []string, err error) {
	for _, r := range w.cluster.Routers {
		if err := r.Complaint(); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	return wrong, nil
}

// Waiting lists who waits for a lock on any shard, and for whom: for the message of a test that does not go on.
func (c *Cluster) Waiting(ctx context.Context) (waiting []string, err error) {
	err = c.EachShard(ctx, func(i int, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `
			SELECT format('%s: process %s (%s) waits for process %s (%s: %s)', $1::text, w.pid, left(w.query, 60), b.pid, b.state, left(b.query, 60))
			FROM pg_stat_activity w, LATERAL unnest(pg_blocking_pids(w.pid)) AS blocker LEFT JOIN pg_stat_activity b ON b.pid = blocker`, c.Shards[i].Name)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		waiting = append(waiting, found...)
		return err
	})
	return waiting, err
}
