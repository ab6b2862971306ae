package faults

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/test/faults/history"
)

const consistentBegin = "BEGIN ISOLATION LEVEL REPEATABLE READ"

// list appends to lists on several shards and reads some, or reads some and nothing else.
func (w *Workload) list(ctx context.Context, c *Client, head history.Head) history.Outcome {
	o := &history.Lists{Head: head}
	plan, how := w.planAppends(c, head.Number), begin
	if c.random.IntN(3) == 0 {
		plan = w.planReads(c)
		if o.Consistent = c.consistent; o.Consistent {
			how = consistentBegin
		}
	}
	if o.Consistent && c.random.IntN(2) == 0 {
		c.Single(ctx, &o.Head, func(ctx context.Context, conn *pgx.Conn) error { return readAtOnce(ctx, conn, plan, o) })
	} else {
		c.Transact(ctx, &o.Head, how, func(ctx context.Context, conn *pgx.Conn) error { return takeSteps(ctx, conn, plan, o) })
	}
	o.End = w.recorder.Now()
	w.note(&o.Head, o)
	return o.Outcome
}

// planAppends are appends to lists on two or three shards, in the order of the shards, with reads between them. Now and then there are two appends to one
// list, of which nobody may see one alone. Values are the transaction's number with two digits more.
func (w *Workload) planAppends(c *Client, number int64) (plan []history.ListStep) {
	left := c.random.IntN(2 * len(w.tables.Keys)) // out; the upper half: none
	for shard, keys := range w.tables.Keys {
		if shard == left {
			continue
		}
		key := keys[c.random.IntN(len(keys))]
		for range 1 + c.random.IntN(5)/4 {
			if c.random.IntN(3) == 0 {
				plan = append(plan, history.ListStep{Key: key})
			}
			plan = append(plan, history.ListStep{Key: key, Value: number*100 + int64(len(plan)) + 1})
		}
		if c.random.IntN(3) == 0 {
			plan = append(plan, history.ListStep{Key: keys[c.random.IntN(len(keys))]})
		}
	}
	if again := plan[0].Key; c.random.IntN(2) == 0 { // it goes back to a shard where it was
		plan = append(plan, history.ListStep{Key: again, Value: number*100 + int64(len(plan)) + 1}, history.ListStep{Key: again})
	}
	return plan
}

// planReads are reads of a few lists on all shards.
func (w *Workload) planReads(c *Client) (plan []history.ListStep) {
	for range 2 {
		for _, keys := range w.tables.Keys {
			plan = append(plan, history.ListStep{Key: keys[c.random.IntN(len(keys))]})
		}
	}
	return plan
}

// takeSteps notes each step before it is done, as it may be done though nobody hears of it, and what it read when it is known.
func takeSteps(ctx context.Context, conn *pgx.Conn, plan []history.ListStep, o *history.Lists) error {
	for _, step := range plan {
		if step.Value != 0 {
			o.Steps = append(o.Steps, step)
			if _, err := conn.Exec(ctx, "UPDATE lists SET items = items || $1::bigint WHERE id = $2", step.Value, step.Key); err != nil {
				return err
			}
			continue
		}
		if err := conn.QueryRow(ctx, "SELECT items FROM lists WHERE id = $1", step.Key).Scan(&step.Found); err != nil {
			return err
		}
		o.Steps = append(o.Steps, step)
	}
	return nil
}

// readAtOnce reads all lists by one statement.
func readAtOnce(ctx context.Context, conn *pgx.Conn, plan []history.ListStep, o *history.Lists) error {
	keys := make([]int64, len(plan))
	for i, step := range plan {
		keys[i] = step.Key
	}
	rows, err := conn.Query(ctx, "SELECT id, items FROM lists WHERE id = ANY($1)", keys)
	if err != nil {
		return err
	}
	o.Steps, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (step history.ListStep, err error) {
		return step, row.Scan(&step.Key, &step.Found)
	})
	return err
}
