package shard

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// Asker runs one statement on a shard, on one and the same connection each time, and returns its rows as texts, NULL as an empty one.
type Asker func(ctx context.Context, sql string) ([][]string, error)

// RolloutScript is what a roll-out runs on a shard in one direction.
type RolloutScript struct {
	// Statements run in one transaction, which notes that they did, unless Outside says that there is one which cannot.
	Statements []string
	Outside    OutsideKind
	// Index is the index that a statement outside transactions makes or drops, or that it rebuilds; Table is whose indexes it rebuilds
	// otherwise. Both are written as SQL has them, with their schema.
	Index, Table string
}

// OutsideKind is what a statement does that PostgreSQL runs outside transactions only: what it leaves when it is cut off has to be found.
type OutsideKind uint8

// The kinds of such statements.
const (
	InTransaction OutsideKind = iota
	IndexMade                 // CREATE INDEX CONCURRENTLY
	IndexDropped              // DROP INDEX CONCURRENTLY
	IndexRebuilt              // REINDEX CONCURRENTLY
)

// RolloutOnShard applies a roll-out to one shard, and takes it back. The shard itself notes where it stands, in the transaction that gets
// it there, so doing either again does no harm, whoever was cut off where. See internal/control/DESIGN.md.
type RolloutOnShard struct {
	// ID is what the shard knows it by, Name what people do, Text the change as they wrote it.
	ID, Name, Text string
	// SearchPath is where names without a schema are looked up, as SQL writes it.
	SearchPath   string
	Change, Undo RolloutScript
	Ask          Asker
}

// The states of a roll-out as a shard notes them; noted as nothing: it never heard of it.
const (
	rolloutNone     = "none"
	rolloutApplying = "applying"
	rolloutApplied  = "applied"
	rolloutUndoing  = "undoing"
	rolloutUndone   = "undone"
)

// Apply sees to it that the shard has the change. It returns since when, and whether it was there before. A roll-out that was
// taken back on the shard is not applied again: that is an error.
func (r *RolloutOnShard) Apply(ctx context.Context) (at time.Time, before bool, err error) {
	if r.Change.Outside == InTransaction {
		before, err = r.applyInTransaction(ctx)
	} else {
		err = r.alone(ctx, func(ctx context.Context) (err error) {
			before, err = r.applyOutside(ctx)
			return err
		})
	}
	if err != nil {
		return time.Time{}, false, err
	}
	_, at, err = r.state(ctx)
	return at, before, err
}

// TakeBack sees to it that the shard does not have the change, nor gets it any more. It returns since when.
func (r *RolloutOnShard) TakeBack(ctx context.Context) (at time.Time, err error) {
	if r.Change.Outside == InTransaction && r.Undo.Outside == InTransaction {
		err = r.undoInTransaction(ctx)
	} else {
		err = r.alone(ctx, r.undoAlone)
	}
	if err != nil {
		return time.Time{}, err
	}
	_, at, err = r.state(ctx)
	return at, err
}

// applyInTransaction applies the change and notes it, both or nothing.
func (r *RolloutOnShard) applyInTransaction(ctx context.Context) (before bool, err error) {
	err = r.transaction(ctx, func() error {
		found, err := r.note(ctx, rolloutApplied, "", "")
		switch {
		case err != nil:
			return err
		case found == rolloutNone:
			return r.runAll(ctx, r.Change.Statements)
		case found == rolloutApplied:
			before = true
			return nil
		}
		return r.takenBack()
	})
	return before, err
}

func (r *RolloutOnShard) undoInTransaction(ctx context.Context) error {
	return r.transaction(ctx, func() error {
		found, err := r.note(ctx, rolloutUndone, rolloutApplied, rolloutUndone)
		if err != nil || found != rolloutApplied {
			return err // whoever comes to apply it finds that it is taken back
		}
		return r.runAll(ctx, r.Undo.Statements)
	})
}

// applyOutside applies a change that no transaction holds together: that it has begun is noted first.
func (r *RolloutOnShard) applyOutside(ctx context.Context) (before bool, err error) {
	var found string
	err = r.transaction(ctx, func() error {
		if found, err = r.note(ctx, rolloutApplying, "", ""); err != nil || found != rolloutNone || r.Change.Outside != IndexMade {
			return err
		}
		return r.nameIsFree(ctx) // or somebody else's index would be taken for this one's
	})
	switch {
	case err != nil:
		return false, err
	case found == rolloutApplied:
		return true, nil
	case found == rolloutUndoing || found == rolloutUndone:
		return false, r.takenBack()
	}
	if err := r.runOutside(ctx, r.Change); err != nil {
		return false, err
	}
	_, err = r.note(ctx, rolloutApplied, rolloutApplying, rolloutApplied)
	return false, err
}

// undoAlone takes back what runs outside transactions, in one direction or in both.
func (r *RolloutOnShard) undoAlone(ctx context.Context) error {
	if err := r.settleHalf(ctx); err != nil {
		return err
	}
	if r.Undo.Outside == InTransaction {
		return r.undoInTransaction(ctx)
	}
	found, err := r.note(ctx, rolloutUndone, rolloutApplied, rolloutUndoing)
	if err != nil || found == rolloutNone || found == rolloutUndone {
		return err
	}
	if err := r.runOutside(ctx, r.Undo); err != nil {
		return err
	}
	_, err = r.note(ctx, rolloutUndone, rolloutUndoing, rolloutUndone)
	return err
}

// settleHalf deals with a change that has begun and not ended: one that can be taken away is, and counts as never made; a drop is
// brought to its end, since what is left of the index is of no use.
func (r *RolloutOnShard) settleHalf(ctx context.Context) error {
	state, _, err := r.state(ctx)
	if err != nil || state != rolloutApplying {
		return err
	}
	after := rolloutUndone
	switch r.Change.Outside {
	case IndexMade:
		err = r.dropIndex(ctx, r.Change.Index)
	case IndexDropped:
		valid, _, lookErr := r.indexState(ctx, r.Change.Index)
		if err = lookErr; err == nil && !valid {
			after, err = rolloutApplied, r.runOutside(ctx, r.Change)
		}
	case IndexRebuilt:
		err = r.dropLeft(ctx)
	case InTransaction: // has no half
	}
	if err != nil {
		return err
	}
	_, err = r.note(ctx, after, rolloutApplying, after)
	return err
}

// runOutside runs a statement such that running it again completes it.
func (r *RolloutOnShard) runOutside(ctx context.Context, script RolloutScript) error {
	valid, there, err := r.indexState(ctx, script.Index)
	if err != nil {
		return err
	}
	switch script.Outside {
	case IndexMade:
		if valid {
			return nil
		}
		if err := r.dropIndex(ctx, script.Index); err != nil {
			return err
		}
	case IndexDropped:
		if !there {
			return nil
		}
	case IndexRebuilt:
		if err := r.dropLeft(ctx); err != nil {
			return err
		}
	case InTransaction:
	}
	return r.runAll(ctx, script.Statements)
}

// dropIndex drops an index if it is there.
func (r *RolloutOnShard) dropIndex(ctx context.Context, index string) error {
	_, there, err := r.indexState(ctx, index)
	if err == nil && there {
		_, err = r.Ask(ctx, "DROP INDEX CONCURRENTLY "+index)
	}
	return err
}

// indexState looks whether an index is there, and complete.
func (r *RolloutOnShard) indexState(ctx context.Context, index string) (valid, there bool, err error) {
	if index == "" {
		return false, false, nil
	}
	rows, err := r.Ask(ctx, "SELECT i.indisvalid::pg_catalog.text FROM pg_catalog.pg_index i WHERE i.indexrelid = pg_catalog.to_regclass("+sqltext.QuoteLiteral(index)+")")
	if err != nil || len(rows) == 0 {
		return false, false, err
	}
	return rows[0][0] == "true", true, nil
}

// dropLeft drops what REINDEX CONCURRENTLY leaves when it is cut off: copies that are not valid.
func (r *RolloutOnShard) dropLeft(ctx context.Context) error {
	table := "pg_catalog.to_regclass(" + sqltext.QuoteLiteral(r.Change.Table) + ")"
	if r.Change.Index != "" {
		table = "(SELECT i.indrelid FROM pg_catalog.pg_index i WHERE i.indexrelid = pg_catalog.to_regclass(" + sqltext.QuoteLiteral(r.Change.Index) + "))"
	}
	rows, err := r.Ask(ctx, `SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname)
		FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE i.indrelid = `+table+` AND NOT i.indisvalid AND c.relname ~ '_cc(new|old)[0-9]*$' ORDER BY 1`)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if _, err := r.Ask(ctx, "DROP INDEX CONCURRENTLY "+row[0]); err != nil {
			return err
		}
	}
	return nil
}

// nameIsFree fails if there is an index of that name.
func (r *RolloutOnShard) nameIsFree(ctx context.Context) error {
	rows, err := r.Ask(ctx, "SELECT pg_catalog.to_regclass("+sqltext.QuoteLiteral(r.Change.Index)+") IS NULL")
	if err != nil {
		return err
	}
	if len(rows) != 1 || rows[0][0] != "t" {
		return pgerr.New(pgerr.DuplicateTable, "relation %s already exists", r.Change.Index).WithHint("Take the roll-out back, and begin one with another name for the index.")
	}
	return nil
}

func (r *RolloutOnShard) takenBack() error {
	return pgerr.New(pgerr.ObjectNotInPrerequisite, "roll-out %q is taken back on this shard", r.Name).
		WithDetail("Somebody has called cleave.rollout_undo.").WithHint("Complete that with cleave.rollout_undo, and begin a new roll-out.")
}

func (r *RolloutOnShard) runAll(ctx context.Context, statements []string) error {
	for _, sql := range statements {
		if _, err := r.Ask(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// note has the shard note where it stands, see the function's comment, and returns where it stood.
func (r *RolloutOnShard) note(ctx context.Context, fresh, known, next string) (string, error) {
	arguments := []string{r.ID, r.Name, r.Text, fresh, known, next}
	for i := range arguments {
		arguments[i] = sqltext.QuoteLiteral(arguments[i])
	}
	rows, err := r.Ask(ctx, "SELECT cleave.note_rollout("+strings.Join(arguments, ", ")+")")
	if err != nil {
		return "", err
	}
	if len(rows) != 1 {
		return "", fmt.Errorf("a shard has not said where roll-out %s stands", r.Name)
	}
	return rows[0][0], nil
}

// state is where the shard stands, and since when; empty: it has never heard of it.
func (r *RolloutOnShard) state(ctx context.Context) (state string, at time.Time, err error) {
	rows, err := r.Ask(ctx, "SELECT state, at FROM cleave.rollout_of("+sqltext.QuoteLiteral(r.ID)+")")
	if err != nil || len(rows) != 1 || rows[0][0] == "" {
		return "", time.Time{}, err
	}
	at, err = time.Parse(time.RFC3339Nano, rows[0][1])
	return rows[0][0], at, err
}

// transaction runs work in a transaction in which names are looked up as the roll-out wants it.
func (r *RolloutOnShard) transaction(ctx context.Context, work func() error) error {
	if _, err := r.Ask(ctx, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"); err != nil {
		return err
	}
	_, err := r.Ask(ctx, "SELECT pg_catalog.set_config('search_path', "+sqltext.QuoteLiteral(r.SearchPath)+", true)")
	if err == nil {
		err = work()
	}
	if err == nil {
		_, err = r.Ask(ctx, "COMMIT")
		return err
	}
	_, _ = r.Ask(context.WithoutCancel(ctx), "ROLLBACK") // if that fails the connection is of no use any more, and the server rolls back
	return err
}

// alone runs work that nobody else does on the shard for the same roll-out, and with the roll-out's search path. Who waited for the lock would be
// waited for by the very statement that makes an index: so nobody waits.
func (r *RolloutOnShard) alone(ctx context.Context, work func(context.Context) error) error {
	key := "pg_catalog.hashtextextended(" + sqltext.QuoteLiteral("cleave roll-out "+r.ID) + ", 0)"
	rows, err := r.Ask(ctx, "SELECT pg_catalog.pg_try_advisory_lock("+key+"), pg_catalog.current_setting('search_path')")
	if err != nil {
		return err
	}
	if len(rows) != 1 || rows[0][0] != "t" {
		return pgerr.New(pgerr.ObjectInUse, "somebody else is at work on roll-out %q here", r.Name).
			WithHint("Wait until that has ended; cleave.stat_activity shows what runs on shards.")
	}
	setPath := func(path string) string {
		return "SELECT pg_catalog.set_config('search_path', " + sqltext.QuoteLiteral(path) + ", false)"
	}
	if _, err = r.Ask(ctx, setPath(r.SearchPath)); err == nil {
		err = work(ctx)
	}
	after := context.WithoutCancel(ctx)
	_, restored := r.Ask(after, setPath(rows[0][1]))
	_, unlocked := r.Ask(after, "SELECT pg_catalog.pg_advisory_unlock("+key+")")
	switch {
	case err != nil:
		return err
	case restored != nil:
		return restored
	}
	return unlocked
}

// RolloutInTheWay refuses what cannot be done while a roll-out is open.
func RolloutInTheWay(r topology.Rollout) *pgerr.Error {
	names := make([]string, len(r.Tables))
	for i, table := range r.Tables {
		names[i] = table.String()
	}
	return pgerr.New(pgerr.ObjectInUse, "roll-out %q is open", r.Name).
		WithDetail("It changes %s shard by shard, so shards differ until it has ended.", strings.Join(names, ", ")).
		WithHint("End it with cleave.rollout_finish('%[1]s') or cleave.rollout_undo('%[1]s').", strings.ReplaceAll(r.Name, "'", "''"))
}

// MoveInTheWay refuses what cannot be done to tables while rows of theirs move between shards.
func MoveInTheWay(m topology.Moving) *pgerr.Error {
	what := fmt.Sprintf("rows of keyspace %q are", m.Keyspace)
	switch {
	case len(m.Schemas) > 0:
		what = fmt.Sprintf("schema %s is", sqltext.QuoteIdentifier(m.Schemas[0]))
	case m.Keyspace == "":
		what = fmt.Sprintf("table %s is", m.Tables[0])
	}
	return pgerr.New(pgerr.ObjectInUse, "%s moving between shards", what).
		WithDetail("Until move %s has ended, its tables and the views that read them have to stay as they are on both shards.", m.ID).
		WithHint("Wait for it (cleave.moves, 'cleave move watch %[1]s'), or take it back: cleave move cancel %[1]s.", m.ID)
}
