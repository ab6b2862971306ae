package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/idgen"
)

// held is a saga that this runner has taken, as its rows were when they were last read or written.
type held struct {
	kind  *Type
	key   any
	id    string
	lease string
	epoch int64

	state     State
	step      string
	attempts  int
	lastError string
	input     json.RawMessage
	steps     []record // in the order in which they were done
}

// record is a row of sagas.steps.
type record struct {
	name   string
	state  stepState
	result json.RawMessage // nil: none
}

// stepState is how a step stands that was done or may have been.
type stepState string

const (
	stepDone        stepState = "done"
	stepInDoubt     stepState = "in_doubt"
	stepCompensated stepState = "compensated"
)

// candidate is a saga that was due when it was looked for.
type candidate struct {
	kind  string
	key   any
	id    string
	epoch int64
}

// Finding. What a runner knows is written as type/state for sagas that have not begun, and type/step/state for others.
const dueSQL = `SELECT type, key, id::text, epoch FROM sagas.sagas
	WHERE state IN ('running', 'compensating') AND due_at <= now() AND type || coalesce('/' || step, '') || '/' || state = ANY($1)`

// known lists what a runner of these types can go on with.
func known(types map[string]*Type) []string {
	var list []string
	for _, t := range types {
		list = append(list, t.Name+"/"+string(Running))
		for _, s := range t.Steps {
			list = append(list, t.Name+"/"+s.Name+"/"+string(Running))
			if !s.Undo.none() {
				list = append(list, t.Name+"/"+s.Name+"/"+string(Compensating))
			}
		}
	}
	slices.Sort(list)
	return list
}

func due(ctx context.Context, db Querier, sql string, known []string, limit int) ([]candidate, error) {
	rows, err := db.Query(ctx, sql, known, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c candidate, err error) {
		return c, row.Scan(&c.kind, &c.key, &c.id, &c.epoch)
	})
}

// dueAnywhere looks on all shards at once. A router gives the rows that come first, so one shard can hide the others'.
func dueAnywhere(ctx context.Context, db Querier, known []string, limit int) ([]candidate, error) {
	return due(ctx, db, dueSQL+" LIMIT $2", known, limit)
}

// dueOn looks on one shard, for those that have been due for the longest time.
func dueOn(ctx context.Context, db Querier, shard string, known []string, limit int) ([]candidate, error) {
	return due(ctx, db, "/* cleave: shard="+shard+" */ "+dueSQL+" ORDER BY due_at LIMIT $2", known, limit)
}

// shardNames lists the shards; none on a plain PostgreSQL.
func shardNames(ctx context.Context, db Querier) ([]string, error) {
	rows, err := db.Query(ctx, "SELECT name FROM cleave.shards")
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if code := sqlState(err); code == undefinedTable || code == invalidSchemaName {
		return nil, nil
	}
	return slices.DeleteFunc(names, func(name string) bool { return strings.ContainsAny(name, " */") }), err // such a name fits in no hint
}

// Taking. A row that somebody has locked is being written this moment, or belongs to a prepared transaction: it is passed over, not waited for.
const takeSQL = `
	UPDATE sagas.sagas SET epoch = epoch + 1, lease = $4, holder = $5, due_at = clock_timestamp() + make_interval(secs => $6), step = coalesce(step, $7),
		attempts = attempts + (holder IS NOT NULL)::integer,
		last_error = CASE WHEN holder IS NULL THEN last_error ELSE 'runner ' || holder || ' did not come back' END, updated_at = clock_timestamp()
	WHERE key = $1 AND id = (
		SELECT id FROM sagas.sagas WHERE key = $1 AND id = $2 AND epoch = $3 AND state IN ('running', 'compensating') AND due_at <= now() FOR UPDATE SKIP LOCKED)
	RETURNING state, step, attempts, coalesce(last_error, ''), epoch, input::text`

// take takes a saga that is still due; nil: somebody else has it, or it has gone on.
func take(ctx context.Context, db Querier, c candidate, kind *Type, holder string, lease time.Duration) (*held, error) {
	h := &held{kind: kind, key: c.key, id: c.id, lease: idgen.NewUUID().String()}
	var input string
	err := db.QueryRow(ctx, takeSQL, c.key, c.id, c.epoch, h.lease, holder, lease.Seconds(), kind.Steps[0].Name).
		Scan(&h.state, &h.step, &h.attempts, &h.lastError, &h.epoch, &input)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("take saga %s: %w", c.id, err)
	}
	h.input = json.RawMessage(input)
	if err := h.readSteps(ctx, db); err != nil {
		return nil, err
	}
	return h, nil
}

const stepsSQL = "SELECT name, state, result::text FROM sagas.steps WHERE key = $1 AND saga_id = $2 ORDER BY position"

func (h *held) readSteps(ctx context.Context, db Querier) error {
	rows, err := db.Query(ctx, stepsSQL, h.key, h.id)
	if err != nil {
		return fmt.Errorf("read the steps of saga %s: %w", h.id, err)
	}
	h.steps, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r record, err error) {
		var result *string
		err = row.Scan(&r.name, &r.state, &result)
		if result != nil {
			r.result = json.RawMessage(*result)
		}
		return r, err
	})
	if err != nil {
		return fmt.Errorf("read the steps of saga %s: %w", h.id, err)
	}
	return nil
}

const refreshSQL = "SELECT state, coalesce(step, ''), attempts, coalesce(last_error, '') FROM sagas.sagas WHERE key = $1 AND id = $2 AND lease = $3"

// refresh reads the rows again; errLost: they are not this runner's any more.
func (h *held) refresh(ctx context.Context, db Querier) error {
	err := db.QueryRow(ctx, refreshSQL, h.key, h.id, h.lease).Scan(&h.state, &h.step, &h.attempts, &h.lastError)
	if errors.Is(err, pgx.ErrNoRows) {
		return errLost
	}
	if err != nil {
		return fmt.Errorf("read saga %s: %w", h.id, err)
	}
	return h.readSteps(ctx, db)
}

// execer is a pool, or the transaction of a SQL step.
type execer interface {
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
}

// Writing. Every statement compares the lease, and all but renew and release also the step and the state: what was said once changes nothing when it is said
// again. Each begins with these four parameters.
const fence = " WHERE key = $1 AND id = $2 AND lease = $3 AND step = $4"

// moveSQL goes on to state $5 and step $6, keeping the lease for $7 seconds more unless that is an end.
const moveSQL = `UPDATE sagas.sagas SET state = $5, step = $6, attempts = 0, updated_at = clock_timestamp(),
		due_at = CASE WHEN $5 IN ('running', 'compensating') THEN clock_timestamp() + make_interval(secs => $7) END,
		holder = CASE WHEN $5 IN ('running', 'compensating') THEN holder END, lease = CASE WHEN $5 IN ('running', 'compensating') THEN lease END,
		ended_at = CASE WHEN $5 IN ('completed', 'compensated') THEN clock_timestamp() END`

const doneSQL = "WITH moved AS (" + moveSQL + ", last_error = NULL" + fence + ` AND state = 'running' RETURNING id)
	INSERT INTO sagas.steps (key, saga_id, name, position, state, attempts, result) SELECT $1, $2, $4, $8, 'done', $9, $10 FROM moved`

// done notes that the step was done, and goes on.
func (h *held) done(ctx context.Context, db execer, next place, lease time.Duration, result string) (bool, error) {
	return changed(db.Exec(ctx, doneSQL, h.key, h.id, h.lease, h.step, string(next.state), next.stepOrNull(), lease.Seconds(), len(h.steps)+1, h.attempts+1, result))
}

const undoneSQL = "WITH moved AS (" + moveSQL + ", last_error = NULL" + fence + ` AND state = 'compensating' RETURNING id)
	UPDATE sagas.steps SET state = 'compensated', compensation_attempts = $8, compensation_result = $9, compensated_at = clock_timestamp()
	WHERE key = $1 AND saga_id = $2 AND name = $4 AND EXISTS (SELECT FROM moved)`

// undone notes that the step was undone, and goes on.
func (h *held) undone(ctx context.Context, db execer, next place, lease time.Duration, result string) (bool, error) {
	return changed(db.Exec(ctx, undoneSQL, h.key, h.id, h.lease, h.step, string(next.state), next.stepOrNull(), lease.Seconds(), h.attempts+1, result))
}

const (
	turnSQL    = moveSQL + ", failed_step = step, failure = $8, last_error = $8" + fence + " AND state = 'running'"
	inDoubtSQL = "WITH moved AS (" + turnSQL + ` RETURNING id)
		INSERT INTO sagas.steps (key, saga_id, name, position, state, attempts) SELECT $1, $2, $4, $9, 'in_doubt', $10 FROM moved`
)

// turn notes that the step failed for good, and begins to compensate. A step that may have been done is noted too.
func (h *held) turn(ctx context.Context, db execer, next place, lease time.Duration, why string, inDoubt bool, attempts int) (bool, error) {
	arguments := []any{h.key, h.id, h.lease, h.step, string(next.state), next.stepOrNull(), lease.Seconds(), why}
	if !inDoubt {
		return changed(db.Exec(ctx, turnSQL, arguments...))
	}
	return changed(db.Exec(ctx, inDoubtSQL, append(arguments, len(h.steps)+1, attempts)...))
}

const laterSQL = `UPDATE sagas.sagas SET attempts = attempts + 1, last_error = $6, due_at = clock_timestamp() + make_interval(secs => $7),
	holder = NULL, lease = NULL, updated_at = clock_timestamp()` + fence + " AND state = $5"

// later notes that an attempt failed, and gives the saga up until later.
func (h *held) later(ctx context.Context, db execer, why string, delay time.Duration) (bool, error) {
	return changed(db.Exec(ctx, laterSQL, h.key, h.id, h.lease, h.step, string(h.state), why, delay.Seconds()))
}

const stuckSQL = `UPDATE sagas.sagas SET state = 'stuck', attempts = $6, last_error = $5, due_at = NULL,
	holder = NULL, lease = NULL, updated_at = clock_timestamp()` + fence + " AND state = 'compensating'"

// stick notes that the step cannot be undone.
func (h *held) stick(ctx context.Context, db execer, why string, attempts int) (bool, error) {
	return changed(db.Exec(ctx, stuckSQL, h.key, h.id, h.lease, h.step, why, attempts))
}

const releaseSQL = `UPDATE sagas.sagas SET due_at = clock_timestamp(), holder = NULL, lease = NULL, attempts = attempts + $4, updated_at = clock_timestamp()
	WHERE key = $1 AND id = $2 AND lease = $3`

// release gives the saga up for whoever comes next. An attempt that was cut off counts.
func (h *held) release(ctx context.Context, db execer, cutOff bool) (bool, error) {
	attempts := 0
	if cutOff {
		attempts = 1
	}
	return changed(db.Exec(ctx, releaseSQL, h.key, h.id, h.lease, attempts))
}

const renewSQL = "UPDATE sagas.sagas SET due_at = clock_timestamp() + make_interval(secs => $4) WHERE key = $1 AND id = $2 AND lease = $3"

// renew keeps the saga for longer.
func (h *held) renew(ctx context.Context, db execer, lease time.Duration) (bool, error) {
	return changed(db.Exec(ctx, renewSQL, h.key, h.id, h.lease, lease.Seconds()))
}

func changed(tag pgconn.CommandTag, err error) (bool, error) {
	return err == nil && tag.RowsAffected() == 1, err
}

// place is where a saga goes on: a state, and a step unless that is an end.
type place struct {
	state State
	step  string
}

func (p place) stepOrNull() any {
	if p.step == "" {
		return nil
	}
	return p.step
}

// afterDone is where the saga goes on when the step that it is at was done.
func (h *held) afterDone() place {
	at, found := h.kind.step(h.step)
	if !found || at+1 == len(h.kind.Steps) {
		return place{state: Completed}
	}
	return place{Running, h.kind.Steps[at+1].Name}
}

// nextUndo is where the saga goes on compensating: at the last step that was done or may have been, and is not undone yet. Steps without
// a compensation are passed over; one that the type does not have is for a program that knows it.
func nextUndo(kind *Type, steps []record) place {
	for _, r := range slices.Backward(steps) {
		at, found := kind.step(r.name)
		if r.state != stepCompensated && (!found || !kind.Steps[at].Undo.none()) {
			return place{Compensating, r.name}
		}
	}
	return place{state: Compensated}
}
