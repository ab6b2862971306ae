package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrNotFound says that there is no such saga.
var ErrNotFound = errors.New("there is no such saga")

// ErrNotStuck says that a saga cannot be resumed because it is not stuck.
var ErrNotStuck = errors.New("the saga is not stuck")

// ErrEnded says that a saga cannot be abandoned because it has ended.
var ErrEnded = errors.New("the saga has ended")

// Saga is a saga as it stands.
type Saga struct {
	ID, Type, IdempotencyKey string
	Key                      any
	State                    State
	// Step is where it is: to be done, or to be undone. Empty: it has not begun, or has ended.
	Step string
	// Attempts is how often that step, in that direction, has failed or was cut off.
	Attempts int
	// LastError is the last one, whatever it was.
	LastError string
	// FailedStep is the step that could not be done, and Failure why: what made it compensate.
	FailedStep, Failure string
	// Note is what a person said who resumed or abandoned it.
	Note string
	// Holder is the runner that has it. Empty: none.
	Holder string
	// Age is how long ago it was started, by the clock of its home shard.
	Age time.Duration
	// Created is when it was started, Due when it is to be gone on with, or when its holder's lease ends; Ended when it ended. Zero: none.
	Created, Due, Ended time.Time
	// Input is what it was started with.
	Input json.RawMessage
	// Steps are those that were done or may have been, in that order. [List] leaves them out.
	Steps []StepRecord
}

// StepRecord is a step that was done or may have been.
type StepRecord struct {
	Name string
	// State is done, in_doubt (it may have been done) or compensated.
	State string
	// Attempts is how many it took; CompensationAttempts to undo it.
	Attempts, CompensationAttempts int
	// Result and CompensationResult are what its functions returned, nil for none.
	Result, CompensationResult json.RawMessage
	// Done and Compensated say when. Zero: not.
	Done, Compensated time.Time
}

const sagaColumns = `key, id::text, type, idempotency_key, state, coalesce(step, ''), attempts, coalesce(last_error, ''), coalesce(failed_step, ''), coalesce(failure, ''),
	coalesce(note, ''), coalesce(holder, ''), extract(epoch FROM clock_timestamp() - created_at)::float8, created_at, due_at, ended_at, input::text`

func scanSaga(row pgx.Row) (s Saga, err error) {
	var age float64
	var due, ended *time.Time
	var input string
	err = row.Scan(&s.Key, &s.ID, &s.Type, &s.IdempotencyKey, &s.State, &s.Step, &s.Attempts, &s.LastError, &s.FailedStep, &s.Failure,
		&s.Note, &s.Holder, &age, &s.Created, &due, &ended, &input)
	s.Age, s.Due, s.Ended, s.Input = time.Duration(age*float64(time.Second)), timeOrZero(due), timeOrZero(ended), json.RawMessage(input)
	return s, err
}

func timeOrZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

const (
	getSQL      = "SELECT " + sagaColumns + " FROM sagas.sagas WHERE key = $1 AND id = $2"
	getStepsSQL = `SELECT name, state, attempts, coalesce(compensation_attempts, 0), result::text, compensation_result::text, done_at, compensated_at
		FROM sagas.steps WHERE key = $1 AND saga_id = $2 ORDER BY position`
)

// Get returns a saga with its steps. [ErrNotFound]: there is none with this key and ID.
func Get(ctx context.Context, db Querier, key any, id string) (Saga, error) {
	s, err := scanSaga(db.QueryRow(ctx, getSQL, key, id))
	if errors.Is(err, pgx.ErrNoRows) {
		return Saga{}, fmt.Errorf("saga %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return Saga{}, fmt.Errorf("read saga %s: %w", id, explain(err))
	}
	rows, err := db.Query(ctx, getStepsSQL, key, id)
	if err != nil {
		return Saga{}, fmt.Errorf("read the steps of saga %s: %w", id, err)
	}
	s.Steps, err = pgx.CollectRows(rows, scanStep)
	if err != nil {
		return Saga{}, fmt.Errorf("read the steps of saga %s: %w", id, err)
	}
	return s, nil
}

func scanStep(row pgx.CollectableRow) (s StepRecord, err error) {
	var result, undone *string
	var compensated *time.Time
	err = row.Scan(&s.Name, &s.State, &s.Attempts, &s.CompensationAttempts, &result, &undone, &s.Done, &compensated)
	if result != nil {
		s.Result = json.RawMessage(*result)
	}
	if undone != nil {
		s.CompensationResult = json.RawMessage(*undone)
	}
	s.Compensated = timeOrZero(compensated)
	return s, err
}

// Filter says which sagas to list.
type Filter struct {
	// States to be listed. Default: those that have not ended.
	States []State
	// Types to be listed. Default: all.
	Types []string
	// Limit is how many at most. Default: 1000. If there are more, any of them are listed.
	Limit int
}

func (f Filter) withDefaults() Filter {
	if len(f.States) == 0 {
		f.States = []State{Running, Compensating, Stuck}
	}
	if f.Limit == 0 {
		f.Limit = 1000
	}
	return f
}

const listSQL = "SELECT " + sagaColumns + " FROM sagas.sagas WHERE state = ANY($1) AND (cardinality($2::text[]) = 0 OR type = ANY($2)) LIMIT $3"

// List returns sagas of all shards, the oldest first.
func List(ctx context.Context, db Querier, filter Filter) ([]Saga, error) {
	filter = filter.withDefaults()
	states := make([]string, len(filter.States))
	for i, s := range filter.States {
		if !slices.Contains(States(), s) {
			return nil, fmt.Errorf("there is no state %q of sagas", s)
		}
		states[i] = string(s)
	}
	rows, err := db.Query(ctx, listSQL, states, append([]string{}, filter.Types...), filter.Limit)
	if err != nil {
		return nil, fmt.Errorf("list sagas: %w", explain(err))
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Saga, error) { return scanSaga(row) })
	if err != nil {
		return nil, fmt.Errorf("list sagas: %w", explain(err))
	}
	slices.SortFunc(list, func(a, b Saga) int { return a.Created.Compare(b.Created) })
	return list, nil
}

const retrySQL = `UPDATE sagas.sagas SET state = 'compensating', attempts = 0, due_at = clock_timestamp(), epoch = epoch + 1, note = coalesce(nullif($3, ''), note),
	updated_at = clock_timestamp() WHERE key = $1 AND id = $2 AND state = 'stuck'`

// Retry has a stuck saga go on, with as many attempts at the compensation as a new one has. The note may be empty. [ErrNotStuck]: it is not stuck.
func Retry(ctx context.Context, db Querier, key any, id, note string) error {
	resumed, err := changed(db.Exec(ctx, retrySQL, key, id, note))
	if err != nil || resumed {
		return err
	}
	return because(ctx, db, key, id, ErrNotStuck)
}

const abandonSQL = `UPDATE sagas.sagas SET state = 'abandoned', note = $3, due_at = NULL, holder = NULL, lease = NULL, epoch = epoch + 1,
	ended_at = clock_timestamp(), updated_at = clock_timestamp() WHERE key = $1 AND id = $2 AND ended_at IS NULL`

// Abandon gives a saga up as it stands, with a note that says why and what was done instead. It is meant for those that are stuck, and for those of a type that
// no program has any more; one that somebody runs is taken from them: a SQL step that is under way is rolled back, an outside call may still
// happen. [ErrEnded]: it has ended already.
func Abandon(ctx context.Context, db Querier, key any, id, note string) error {
	if note == "" {
		return errors.New("to abandon a saga, leave a note that says why")
	}
	given, err := changed(db.Exec(ctx, abandonSQL, key, id, note))
	if err != nil || given {
		return err
	}
	return because(ctx, db, key, id, ErrEnded)
}

// because returns the reason, unless it is that there is no such saga.
func because(ctx context.Context, db Querier, key any, id string, reason error) error {
	s, err := Get(ctx, db, key, id)
	if err != nil {
		return err
	}
	return fmt.Errorf("saga %s is %s: %w", id, s.State, reason)
}

// Wait waits until a saga has ended or is stuck, and returns it. It looks every so often; zero: every tenth of a second.
func Wait(ctx context.Context, db Querier, key any, id string, every time.Duration) (Saga, error) {
	if every <= 0 {
		every = 100 * time.Millisecond
	}
	for {
		s, err := Get(ctx, db, key, id)
		if err != nil || s.State.Ended() || s.State == Stuck {
			return s, err
		}
		select {
		case <-ctx.Done():
			return s, ctx.Err()
		case <-time.After(every):
		}
	}
}

const (
	oldSQL   = "SELECT key, id::text FROM sagas.sagas WHERE ended_at < now() - make_interval(secs => $1) LIMIT $2"
	purgeSQL = "DELETE FROM sagas.sagas WHERE key = $1 AND id = $2 AND ended_at IS NOT NULL"
)

// Purge removes sagas that ended longer ago than the age, up to so many, and says how many it has removed. An idempotency key of one that is removed is
// forgotten: started again, it is a new saga.
func Purge(ctx context.Context, db Querier, age time.Duration, limit int) (removed int, err error) {
	rows, err := db.Query(ctx, oldSQL, age.Seconds(), limit)
	if err != nil {
		return 0, fmt.Errorf("look for old sagas: %w", explain(err))
	}
	type old struct {
		key any
		id  string
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (o old, err error) { return o, row.Scan(&o.key, &o.id) })
	if err != nil {
		return 0, fmt.Errorf("look for old sagas: %w", explain(err))
	}
	for _, o := range found {
		tag, err := db.Exec(ctx, purgeSQL, o.key, o.id)
		if err != nil {
			return removed, fmt.Errorf("remove saga %s: %w", o.id, err)
		}
		removed += int(tag.RowsAffected())
	}
	return removed, nil
}
