package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

// rollouts is a cluster of three shards with a table on all of them, and one at home.
type rollouts struct {
	*process
	endpoints []string
	servers   []*localpg.Server
}

func newRollouts(t *testing.T) *rollouts {
	t.Helper()
	w := &rollouts{servers: model.StartN(t, 3), endpoints: startEtcd(t)}
	w.process = startRouter(t, w.endpoints, "router")
	clusterOf(t, w.process, w.servers)
	execute(t, w.servers[0], `
		CREATE TABLE orders (user_id bigint, id int, amount int, note text, CONSTRAINT positive CHECK (id > 0), PRIMARY KEY (user_id, id));
		CREATE INDEX orders_amount ON orders (amount);
		CREATE STATISTICS orders_both ON amount, note FROM orders;
		CREATE TABLE countries (code text PRIMARY KEY, name text);
		CREATE TABLE alone (id int);
		INSERT INTO orders SELECT i, 1, i, 'note ' || i FROM generate_series(1, 300) AS i`)
	shardTable(t, w.process, sharding(t, "orders", "user_id"))
	if _, err := w.ReferenceTables(t.Context(), TablesRequest{Tables: []topology.TableName{named(t, "countries")}}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *rollouts) begin(t *testing.T, name, change string) api.RolloutChanged {
	t.Helper()
	return expectStep(t)(w.BeginRollout(t.Context(), RolloutBegin{Name: name, Change: change}))
}

// expectStep wants a step to succeed.
func expectStep(t *testing.T) func(api.RolloutChanged, error) api.RolloutChanged {
	return func(changed api.RolloutChanged, err error) api.RolloutChanged {
		t.Helper()
		if err != nil {
			t.Fatalf("%+v", err)
		}
		return changed
	}
}

// expectOn wants a query to say so much on each shard.
func (w *rollouts) expectOn(t *testing.T, sql string, want ...string) {
	t.Helper()
	var got []string
	for _, server := range w.servers {
		got = append(got, one[string](t, server, sql))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s on the shards (-want +got):\n%s", sql, diff)
	}
}

// expectIndex wants an index to be valid, not valid or not there on each shard: "t", "f" or "".
func (w *rollouts) expectIndex(t *testing.T, name string, want ...string) {
	t.Helper()
	w.expectOn(t, fmt.Sprintf("SELECT coalesce((SELECT indisvalid::text FROM pg_index WHERE indexrelid = to_regclass('%s')), '')", name), want...)
}

// expectState wants the roll-out to be in a state, with shards in these.
func (w *rollouts) expectState(t *testing.T, name string, state topology.RolloutState, shards ...topology.ShardRolloutState) {
	t.Helper()
	r, found := schemaState(t, w.process).Rollout(name)
	var got []topology.ShardRolloutState
	for i, s := range r.Shards {
		got = append(got, s.State)
		if i < len(w.servers) {
			w.expectNoted(t, r.ID, w.servers[s.Number-1], s.State)
		}
		if s.At.IsZero() != (s.State == topology.ShardPending) {
			t.Errorf("shard %s is %s since %s", s.Name, s.State, s.At)
		}
	}
	if !found || r.State != state || !cmp.Equal(got, shards) {
		t.Errorf("the roll-out is %q with shards %v, want %q with %v", r.State, got, state, shards)
	}
}

// expectNoted wants a shard that can be asked to have noted what is said of it.
func (w *rollouts) expectNoted(t *testing.T, id string, server *localpg.Server, state topology.ShardRolloutState) {
	t.Helper()
	select {
	case <-server.Exited():
		return
	default:
	}
	want := string(state)
	if state == pending {
		want = ""
	}
	if got := one[string](t, server, fmt.Sprintf("SELECT coalesce((SELECT state FROM cleave.rollouts WHERE id = '%s'), '')", id)); got != want {
		t.Errorf("the shard at %s has noted %q, want %q", server.Addr(), got, want)
	}
}

func (w *rollouts) next(t *testing.T, name, shard string) string {
	t.Helper()
	changed := expectStep(t)(w.NextRollout(t.Context(), RolloutStep{Name: name, Shard: shard}))
	return strings.Join(changed.Shards, ", ")
}

const (
	pending = topology.ShardPending
	applied = topology.ShardApplied
	undone  = topology.ShardUndone
)

func TestAChangeGoesFromShardToShard(t *testing.T) {
	t.Parallel()
	w := newRollouts(t)
	before := schemaState(t, w.process).Epoch
	begun := w.begin(t, "note", "CREATE INDEX orders_note ON orders (note); ALTER TABLE orders ADD CONSTRAINT small CHECK (amount < 1000000)")
	if want := "ALTER TABLE public.orders DROP CONSTRAINT \"small\";\nDROP INDEX public.orders_note"; begun.Rollout.Undo != want {
		t.Errorf("it is taken back by %s, want %s", begun.Rollout.Undo, want)
	}
	if got := w.next(t, "note", ""); got != "s1" {
		t.Errorf("the first shard was %s", got)
	}
	w.expectIndex(t, "orders_note", "true", "", "")
	if epoch := schemaState(t, w.process).Epoch; epoch < before+2 {
		t.Errorf("the epoch went from %d to %d", before, epoch)
	}
	if got := w.next(t, "note", "s3"); got != "s3" {
		t.Errorf("the named shard was %s", got)
	}
	w.expectState(t, "note", topology.RolloutOpen, applied, pending, applied)
	w.expectIndex(t, "orders_note", "true", "", "true")
	var progress []string
	finished := expectStep(t)(w.FinishRollout(t.Context(), RolloutStep{Name: "note", Progress: func(line string) { progress = append(progress, line) }}))
	if len(progress) != 1 || !strings.Contains(progress[0], "s2") || finished.Rollout.State != topology.RolloutFinished {
		t.Errorf("it is %+v, and said %q", finished.Rollout, progress)
	}
	w.expectState(t, "note", topology.RolloutFinished, applied, applied, applied)
	w.expectIndex(t, "orders_note", "true", "true", "true")
	w.expectOn(t, "SELECT count(*)::text FROM pg_constraint WHERE conname = 'small'", "1", "1", "1")
	_, err := w.UndoRollout(t.Context(), RolloutStep{Name: "note"})
	refusal(t, pgerr.ObjectNotInPrerequisite, err, "taking back what is finished")
	_, err = w.NextRollout(t.Context(), RolloutStep{Name: "unknown"})
	refusal(t, pgerr.UndefinedObject, err, "a roll-out that is not there")
	_, err = w.NextRollout(t.Context(), RolloutStep{Name: "note"})
	refusal(t, pgerr.ObjectNotInPrerequisite, err, "going on with what is finished")
	w.begin(t, "note", "DROP INDEX orders_note") // the name is free again
	_, err = w.NextRollout(t.Context(), RolloutStep{Name: "note", Shard: "s9"})
	refusal(t, pgerr.UndefinedObject, err, "a shard that is not there")
}

func TestAChangeIsTakenBack(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newRollouts(t)
	for _, change := range []string{
		"CREATE INDEX fresh ON orders (note)", "CREATE INDEX CONCURRENTLY fresh ON orders (note)",
		"DROP INDEX orders_amount", "DROP INDEX CONCURRENTLY orders_amount",
		"CREATE STATISTICS fresh_statistics ON user_id, amount FROM orders", "DROP STATISTICS orders_both",
		"ALTER TABLE orders ADD CONSTRAINT fresh_check CHECK (amount > 0) NOT VALID", "ALTER TABLE orders DROP CONSTRAINT positive",
		"REINDEX TABLE CONCURRENTLY orders", "REINDEX INDEX orders_amount", "ALTER TABLE orders VALIDATE CONSTRAINT positive",
		"CREATE INDEX fresh_countries ON countries (name); CREATE INDEX fresh ON orders (note); COMMENT ON INDEX fresh IS 'x'",
	} {
		before := w.forms(t)
		w.begin(t, "change", change)
		w.next(t, "change", "")
		w.next(t, "change", "s3")
		w.expectForms(t, change, before, isForm(change))
		changed := expectStep(t)(w.UndoRollout(t.Context(), RolloutStep{Name: "change"}))
		if got := strings.Join(changed.Shards, ", "); got != "s3, s2, s1" {
			t.Errorf("%s: taken back in the order %s", change, got)
		}
		w.expectState(t, "change", topology.RolloutUndone, undone, undone, undone)
		if diff := cmp.Diff(before, w.forms(t)); diff != "" {
			t.Errorf("%s was not taken back:\n%s", change, diff)
		}
	}
	if findings, err := w.DiffSchema(t.Context()); err != nil || len(findings) > 0 {
		t.Errorf("the shards differ: %+v %v", findings, err)
	}
}

// isForm says whether a change leaves the table with another form.
func isForm(change string) bool {
	return !strings.HasPrefix(change, "REINDEX") && !strings.Contains(change, "VALIDATE")
}

// forms are what each shard has of the tables.
func (w *rollouts) forms(t *testing.T) []string {
	t.Helper()
	var forms []string
	for _, server := range w.servers {
		forms = append(forms, one[string](t, server, `
			SELECT string_agg(line, E'\n' ORDER BY line) FROM (
				SELECT pg_get_indexdef(indexrelid) || indisvalid AS line FROM pg_index WHERE indrelid IN ('orders'::regclass, 'countries'::regclass)
				UNION ALL SELECT conname || pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'orders'::regclass
				UNION ALL SELECT pg_get_statisticsobjdef(oid) FROM pg_statistic_ext
				UNION ALL SELECT 'options ' || coalesce(reloptions::text, '') FROM pg_class WHERE oid = 'orders'::regclass
				UNION ALL SELECT 'comment ' || coalesce(obj_description('orders'::regclass), '')) AS lines`))
	}
	return forms
}

// expectForms wants the first and the third shard to have another form than before, and the second not.
func (w *rollouts) expectForms(t *testing.T, change string, before []string, other bool) {
	t.Helper()
	now := w.forms(t)
	if (now[0] != before[0]) != other || (now[2] != before[2]) != other || now[1] != before[1] {
		t.Errorf("%s: in the middle of it the shards have\n%s", change, strings.Join(now, "\n\n"))
	}
}

// TestWhatTakesAChangeBackIsSaid where it does not follow from the change.
func TestWhatTakesAChangeBackIsSaid(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newRollouts(t)
	before := w.forms(t)
	begin := func(change string, undo *string) error {
		_, err := w.BeginRollout(t.Context(), RolloutBegin{Name: "change", Change: change, Undo: undo})
		return err
	}
	change := "ALTER TABLE orders SET (fillfactor = 60); COMMENT ON TABLE orders IS 'new'"
	refusal(t, pgerr.InvalidParameterValue, begin(change, nil), "without an undo")
	for undo, code := range map[string]string{
		"ALTER TABLE orders DROP COLUMN note": pgerr.FeatureNotSupported, "COMMENT ON TABLE countries IS 'x'": pgerr.InvalidParameterValue,
		"DROP INDEX nothing": pgerr.UndefinedTable, "nonsense": pgerr.SyntaxError, "COMMENT ON TABLE alone IS 'x'": pgerr.WrongObjectType,
	} {
		refusal(t, code, begin(change, &undo), undo)
	}
	undo := "ALTER TABLE orders RESET (fillfactor); COMMENT ON TABLE orders IS NULL"
	if err := begin(change, &undo); err != nil {
		t.Fatal(err)
	}
	w.next(t, "change", "s2")
	expectStep(t)(w.UndoRollout(t.Context(), RolloutStep{Name: "change"}))
	if diff := cmp.Diff(before, w.forms(t)); diff != "" {
		t.Errorf("it was not taken back:\n%s", diff)
	}
	// What the change makes may be named by the undo.
	undo = "DROP INDEX fresh"
	if err := begin("CREATE INDEX fresh ON orders (note)", &undo); err != nil {
		t.Fatal(err)
	}
	w.next(t, "change", "s2")
	expectStep(t)(w.UndoRollout(t.Context(), RolloutStep{Name: "change"}))
	if diff := cmp.Diff(before, w.forms(t)); diff != "" {
		t.Errorf("it was not taken back:\n%s", diff)
	}
	undo = "DROP INDEX CONCURRENTLY fresh_too"
	refusal(t, pgerr.InvalidParameterValue, begin("CREATE INDEX fresh ON orders (note); CREATE INDEX fresh_too ON countries (name)", &undo), undo)
	nothing := ""
	if err := begin("COMMENT ON TABLE orders IS 'kept'", &nothing); err != nil {
		t.Fatal(err)
	}
	w.next(t, "change", "s2")
	expectStep(t)(w.UndoRollout(t.Context(), RolloutStep{Name: "change"}))
	w.expectOn(t, "SELECT coalesce(obj_description('orders'::regclass), '')", "", "kept", "")
}

// TestAdjustmentsGoFromShardToShard: those that are taken back by what is said.
func TestAdjustmentsGoFromShardToShard(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newRollouts(t)
	for _, c := range []struct{ change, undo string }{
		{"ALTER TABLE orders ALTER note SET STATISTICS 500", "ALTER TABLE orders ALTER note SET STATISTICS -1"},
		{"ALTER TABLE orders ALTER note SET (n_distinct = 7)", "ALTER TABLE orders ALTER note RESET (n_distinct)"},
		{"ALTER TABLE orders ALTER note SET STORAGE EXTERNAL", "ALTER TABLE orders ALTER note SET STORAGE EXTENDED"},
		{"ALTER TABLE orders ALTER note SET COMPRESSION pglz", "ALTER TABLE orders ALTER note SET COMPRESSION DEFAULT"},
		{"ALTER TABLE orders SET (autovacuum_vacuum_scale_factor = 0.01, toast.autovacuum_enabled = off)", "ALTER TABLE orders RESET (autovacuum_vacuum_scale_factor, toast.autovacuum_enabled)"},
		{"ALTER INDEX orders_amount SET (fillfactor = 80)", "ALTER INDEX orders_amount RESET (fillfactor)"},
		{"ALTER STATISTICS orders_both SET STATISTICS 10", "ALTER STATISTICS orders_both SET STATISTICS -1"},
		{"COMMENT ON COLUMN orders.note IS 'x'; COMMENT ON INDEX orders_amount IS 'x'", "COMMENT ON COLUMN orders.note IS NULL; COMMENT ON INDEX orders_amount IS NULL"},
		{"COMMENT ON CONSTRAINT positive ON orders IS 'x'", "COMMENT ON CONSTRAINT positive ON orders IS NULL"},
		{"COMMENT ON STATISTICS orders_both IS 'it''s \\ é'", "COMMENT ON STATISTICS orders_both IS NULL"},
	} {
		expectStep(t)(w.BeginRollout(t.Context(), RolloutBegin{Name: "change", Change: c.change, Undo: &c.undo}))
		w.next(t, "change", "s2")
		findings, err := w.DiffSchema(t.Context())
		if err != nil || len(findings) == 0 {
			t.Errorf("%s: no shard differs: %v", c.change, err)
		}
		for _, f := range findings {
			if f.Code != api.RolloutOpenFinding {
				t.Errorf("%s: %+v", c.change, f)
			}
		}
		expectStep(t)(w.UndoRollout(t.Context(), RolloutStep{Name: "change"}))
		if findings, err := w.DiffSchema(t.Context()); err != nil || len(findings) > 0 {
			t.Errorf("%s was not taken back: %+v %v", c.change, findings, err)
		}
	}
}

// TestWhatCannotBegin is found out before a shard is touched.
func TestWhatCannotBegin(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newRollouts(t)
	execute(t, w.servers[0], "CREATE ROLE somebody")
	for change, code := range map[string]string{
		"ALTER TABLE orders ADD COLUMN x int": pgerr.FeatureNotSupported, "CREATE INDEX i ON nowhere (id)": pgerr.UndefinedTable,
		"CREATE INDEX i ON alone (id)": pgerr.WrongObjectType, "CREATE INDEX i ON orders_amount (id)": pgerr.WrongObjectType,
		"CREATE INDEX orders_amount ON orders (id)": pgerr.DuplicateTable, "DROP INDEX orders": pgerr.WrongObjectType,
		"DROP INDEX orders_pkey": pgerr.FeatureNotSupported, "DROP INDEX nothing": pgerr.UndefinedTable, "": pgerr.InvalidParameterValue,
		"ALTER TABLE orders DROP CONSTRAINT orders_pkey": pgerr.FeatureNotSupported, "ALTER TABLE orders DROP CONSTRAINT nothing": pgerr.UndefinedObject,
		"ALTER TABLE orders ADD CONSTRAINT positive CHECK (id > 1)": duplicateObject, "DROP STATISTICS nothing": pgerr.UndefinedObject,
		"CREATE STATISTICS orders_both ON id, note FROM orders": duplicateObject, "COMMENT ON TABLE elsewhere.orders IS ''": pgerr.UndefinedTable,
		"COMMENT ON TABLE orders IS '" + strings.Repeat("x", maxRolloutText) + "'": pgerr.ProgramLimitExceeded,
	} {
		_, err := w.BeginRollout(t.Context(), RolloutBegin{Name: "change", Change: change})
		refusal(t, code, err, change[:min(len(change), 100)])
	}
	index := "CREATE INDEX i ON orders (note)"
	_, err := w.BeginRollout(t.Context(), RolloutBegin{Name: "", Change: index})
	refusal(t, pgerr.InvalidParameterValue, err, "no name")
	_, err = w.BeginRollout(t.Context(), RolloutBegin{Name: "change", Change: index, Role: "somebody"})
	refusal(t, pgerr.InsufficientPrivilege, err, "somebody else's table")
	_, err = w.BeginRollout(t.Context(), RolloutBegin{Name: "change", Change: index, Shards: []string{"s9"}})
	refusal(t, pgerr.UndefinedObject, err, "a shard that is not there")
	if state := schemaState(t, w.process); len(state.Rollouts) > 0 {
		t.Errorf("there are roll-outs: %+v", state.Rollouts)
	}
	begun := expectStep(t)(w.BeginRollout(t.Context(), RolloutBegin{Name: "change", Change: index, Shards: []string{"s3", "s2"}}))
	if got := begun.Rollout.Shards; got[0].Shard != "s3" || got[1].Shard != "s2" || got[2].Shard != "s1" {
		t.Errorf("the order is %+v", got)
	}
	_, err = w.BeginRollout(t.Context(), RolloutBegin{Name: "change", Change: "CREATE INDEX i ON countries (name)"})
	refusal(t, pgerr.ObjectInUse, err, "the same name again")
	_, err = w.BeginRollout(t.Context(), RolloutBegin{Name: "other", Change: "CREATE INDEX j ON orders (note)"})
	refusal(t, pgerr.ObjectInUse, err, "the same table again")
	_, err = w.NextRollout(t.Context(), RolloutStep{Name: "change", Role: "somebody"})
	refusal(t, pgerr.InsufficientPrivilege, err, "going on with somebody else's roll-out")
	_, err = w.UndoRollout(t.Context(), RolloutStep{Name: "change", Role: "somebody"})
	refusal(t, pgerr.InsufficientPrivilege, err, "taking back somebody else's roll-out")
}

// TestNothingElseChangesTheTables while a roll-out is open, and shards do not come.
func TestNothingElseChangesTheTables(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newRollouts(t)
	w.begin(t, "change", "CREATE INDEX i ON orders (note)")
	w.next(t, "change", "")
	_, err := w.UndistributeTables(t.Context(), TablesRequest{Tables: []topology.TableName{named(t, "orders")}})
	refusal(t, pgerr.ObjectInUse, err, "undistributing the table")
	_, err = w.store.Hold(t.Context(), topology.Hold{ID: "x", Holder: "router", Tables: []topology.TableName{named(t, "orders")}})
	refusal(t, pgerr.ObjectInUse, forClient(err), "holding the table")
	fresh := pgtest.StartN(t, 1)[0]
	if _, err := w.AddShard(t.Context(), request("s4", fresh)); err == nil || !strings.Contains(err.Error(), "roll-out") {
		t.Errorf("adding a shard: %v", err)
	}
	findings, err := w.DiffSchema(t.Context())
	if err != nil || len(findings) != 1 || findings[0].Code != api.RolloutOpenFinding || !strings.Contains(findings[0].Message, `index "i"`) {
		t.Errorf("the differences are %+v, %v", findings, err)
	}
	execute(t, w.servers[2], "CREATE INDEX drift ON orders (id)")
	findings, err = w.DiffSchema(t.Context())
	if err != nil || len(findings) != 2 || findings[0].Code != "table_differs" || !strings.Contains(findings[0].Message, `index "drift"`) {
		t.Errorf("with drift the differences are %+v, %v", findings, err)
	}
	execute(t, w.servers[2], "DROP INDEX drift")
	expectStep(t)(w.FinishRollout(t.Context(), RolloutStep{Name: "change"}))
	add(t, w.process, "s4", fresh)
	if _, err := w.UndistributeTables(t.Context(), TablesRequest{Tables: []topology.TableName{named(t, "orders")}}); err != nil {
		t.Error(err)
	}
}

// TestATableThatIsBeingDeclaredIsNotRolledOut, nor one that is held.
func TestATableThatIsBeingDeclaredIsNotRolledOut(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newRollouts(t)
	if _, err := w.store.Hold(t.Context(), topology.Hold{ID: "x", Holder: "router", Tables: []topology.TableName{named(t, "orders")}}); err != nil {
		t.Fatal(err)
	}
	_, err := w.BeginRollout(t.Context(), RolloutBegin{Name: "change", Change: "CREATE INDEX i ON orders (note)"})
	refusal(t, pgerr.LockNotAvailable, err, "while the table is held")
	if _, err := w.store.Release(t.Context(), "x", 0); err != nil {
		t.Fatal(err)
	}
	lock := connectTo(t, w.servers[0])
	defer lock.Close(context.Background())
	if _, err := lock.Exec(t.Context(), "SELECT pg_advisory_lock($1)", int64(declareLock)); err != nil {
		t.Fatal(err)
	}
	_, err = w.BeginRollout(t.Context(), RolloutBegin{Name: "change", Change: "CREATE INDEX i ON orders (note)"})
	refusal(t, pgerr.LockNotAvailable, err, "while tables are declared")
}

// TestARowThatBreaksACheckStopsTheRollout on its shard, and nothing is left there.
func TestARowThatBreaksACheckStopsTheRollout(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newRollouts(t)
	key := one[int](t, w.servers[1], "SELECT min(user_id) FROM orders")
	w.begin(t, "change", fmt.Sprintf("CREATE INDEX i ON orders (note); ALTER TABLE orders ADD CONSTRAINT c CHECK (user_id <> %d)", key))
	_, err := w.FinishRollout(t.Context(), RolloutStep{Name: "change"})
	if refused := refusal(t, "23514", err, "a row breaks it"); !strings.Contains(refused.Detail, `"s2"`) || refused.Hint == "" {
		t.Errorf("refused with %+v", refused)
	}
	w.expectState(t, "change", topology.RolloutOpen, applied, pending, pending)
	w.expectIndex(t, "i", "true", "", "")
	expectStep(t)(w.UndoRollout(t.Context(), RolloutStep{Name: "change"}))
	w.expectIndex(t, "i", "", "", "")
}

// TestAnIndexOfSomebodyElse that has the name is neither taken for the roll-out's nor dropped with it.
func TestAnIndexOfSomebodyElse(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newRollouts(t)
	for _, change := range []string{"CREATE INDEX fresh ON orders (note)", "CREATE INDEX CONCURRENTLY fresh ON orders (note)"} {
		execute(t, w.servers[1], "CREATE INDEX fresh ON orders (amount)")
		w.begin(t, "change", change)
		for range 2 {
			_, err := w.NextRollout(t.Context(), RolloutStep{Name: "change", Shard: "s2"})
			refusal(t, pgerr.DuplicateTable, err, change)
		}
		w.next(t, "change", "s1")
		expectStep(t)(w.UndoRollout(t.Context(), RolloutStep{Name: "change"}))
		w.expectState(t, "change", topology.RolloutUndone, undone, undone, undone)
		w.expectIndex(t, "fresh", "", "true", "")
		execute(t, w.servers[1], "DROP INDEX fresh")
	}
}

var errDies = errors.New("the process dies")

// dying reaches shards as the cluster does, and loses the connection before or after a statement that begins so; what comes
// after never happens. No statement: before anything is done on the shard, or after everything is.
func (w *rollouts) dying(statement string, after bool) OnShard {
	inner := w.actingAs("")
	return func(ctx context.Context, spec topology.ShardSpec, work func(context.Context, shard.Asker) error) error {
		if statement == "" && !after {
			return errDies
		}
		err := inner(ctx, spec, func(ctx context.Context, ask shard.Asker) error {
			dead := false
			return work(ctx, func(ctx context.Context, sql string) ([][]string, error) {
				fits := statement != "" && strings.HasPrefix(sql, statement)
				if dead = dead || fits && !after; dead {
					return nil, errDies
				}
				rows, err := ask(ctx, sql)
				dead = dead || fits
				return rows, err
			})
		})
		if err == nil && statement == "" {
			err = errDies
		}
		return err
	}
}

// crash lets a process die in a step, which fails, and waits until its servers have noticed: until then it is at work for them.
func (w *rollouts) crash(t *testing.T, step func(context.Context, RolloutStep) (api.RolloutChanged, error), onShard OnShard) {
	t.Helper()
	if _, err := step(t.Context(), RolloutStep{Name: "change", OnShard: onShard}); err == nil {
		t.Fatal("a process that has died has an answer")
	}
	for _, server := range w.servers {
		eventually(t, "the server lets go", func() bool {
			return one[int](t, server, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
		})
	}
}

// TestCrashesOfARollout has the cases of DESIGN.md. After each somebody else goes on, in both directions.
func TestCrashesOfARollout(t *testing.T) {
	t.Parallel()
	w := newRollouts(t)
	other := startRouter(t, w.endpoints, "other")
	before := w.forms(t)
	const plain, concurrently = "CREATE INDEX fresh ON orders (note)", "CREATE INDEX CONCURRENTLY fresh ON orders (note)"
	const dropped = "DROP INDEX CONCURRENTLY orders_amount"
	for _, c := range []struct {
		name, change string
		dies         func(t *testing.T)
		fresh        string // the new index on the first shard then, as expectIndex has it
	}{
		{"R2 nothing but begun", plain, func(*testing.T) {}, ""},
		{"R3 in the shard's transaction", plain, func(t *testing.T) { w.crash(t, w.NextRollout, w.dying("COMMIT", false)) }, ""},
		{"R4 after the shard's commit", plain, func(t *testing.T) { w.crash(t, w.NextRollout, w.dying("", true)) }, "true"},
		{"R5 before the index", concurrently, func(t *testing.T) { w.crash(t, w.NextRollout, w.dying("CREATE INDEX", false)) }, ""},
		{"R5 cut off", concurrently, func(t *testing.T) {
			w.cutOff(t, "SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass('fresh')")
		}, "false"},
		{"R6 after the index", concurrently, func(t *testing.T) { w.crash(t, w.NextRollout, w.dying("CREATE INDEX", true)) }, "true"},
		{"R7 before it is dropped", dropped, func(t *testing.T) { w.crash(t, w.NextRollout, w.dying("DROP INDEX", false)) }, ""},
		{"R7 cut off", dropped, func(t *testing.T) {
			w.cutOff(t, "SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass('orders_amount') AND NOT indisvalid")
		}, ""},
		{"R7 after it is dropped", dropped, func(t *testing.T) { w.crash(t, w.NextRollout, w.dying("DROP INDEX", true)) }, ""},
		{"R8 between shards", plain, func(t *testing.T) {
			w.next(t, "change", "")
			w.crash(t, w.FinishRollout, w.dying("", false))
		}, "true"},
		{"R14 etcd is put back", plain, func(t *testing.T) {
			w.next(t, "change", "")
			r, _ := schemaState(t, w.process).Rollout("change")
			_, err := w.store.ChangeRollout(t.Context(), r.ID, func(r *topology.Rollout) error {
				r.Shards[0] = topology.RolloutShard{Number: r.Shards[0].Number, Name: r.Shards[0].Name, State: pending}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}, "true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.begin(t, "change", c.change)
			c.dies(t)
			w.expectIndex(t, "fresh", c.fresh, "", "")
			expectStep(t)(other.UndoRollout(t.Context(), RolloutStep{Name: "change"}))
			w.expectState(t, "change", topology.RolloutUndone, undone, undone, undone)
			if diff := cmp.Diff(before, w.forms(t)); diff != "" {
				t.Fatalf("it was not taken back:\n%s", diff)
			}
			w.begin(t, "change", c.change)
			c.dies(t)
			expectStep(t)(other.FinishRollout(t.Context(), RolloutStep{Name: "change"}))
			w.expectState(t, "change", topology.RolloutFinished, applied, applied, applied)
			if c.change == dropped {
				w.expectIndex(t, "orders_amount", "", "", "")
				w.onAll(t, "CREATE INDEX orders_amount ON orders (amount)")
			} else {
				w.expectIndex(t, "fresh", "true", "true", "true")
				w.onAll(t, "DROP INDEX fresh")
			}
		})
	}
}

func (w *rollouts) onAll(t *testing.T, sql string) {
	t.Helper()
	for _, server := range w.servers {
		execute(t, server, sql)
	}
}

// cutOff has the server end the step's connection in the middle of a statement outside transactions, once a query counts one.
func (w *rollouts) cutOff(t *testing.T, begun string) {
	t.Helper()
	inTheWay, err := pgx.Connect(t.Context(), w.servers[0].DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer inTheWay.Close(context.Background())
	// Whatever runs concurrently waits for the transactions that use the table.
	if _, err := inTheWay.Exec(t.Context(), "BEGIN; LOCK TABLE orders IN ROW EXCLUSIVE MODE; SELECT pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	var stepping sync.WaitGroup
	var failed error
	stepping.Go(func() { _, failed = w.NextRollout(t.Context(), RolloutStep{Name: "change"}) })
	eventually(t, "it has begun", func() bool { return one[int](t, w.servers[0], begun) == 1 })
	execute(t, w.servers[0], "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE query LIKE '% INDEX CONCURRENTLY %' AND pid <> pg_backend_pid()")
	stepping.Wait()
	if failed == nil {
		t.Fatal("it was not cut off")
	}
}

// TestCrashesOnTheWayBackOfARollout are those of taking it back: from then on it goes nowhere else.
func TestCrashesOnTheWayBackOfARollout(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newRollouts(t)
	other := startRouter(t, w.endpoints, "other")
	before := w.forms(t)
	for name, c := range map[string]struct {
		change string
		dies   OnShard
		on     string // what the first shard has then
	}{
		"R9 before a shard":                  {"CREATE INDEX fresh ON orders (note)", w.dying("", false), "true"},
		"R10 in a shard's transaction":       {"CREATE INDEX fresh ON orders (note)", w.dying("COMMIT", false), "true"},
		"R10 after each shard's commit":      {"CREATE INDEX fresh ON orders (note)", w.dying("", true), ""},
		"R10 before the index is dropped":    {"CREATE INDEX CONCURRENTLY fresh ON orders (note)", w.dying("DROP INDEX", false), "true"},
		"R10 after the index was dropped":    {"CREATE INDEX CONCURRENTLY fresh ON orders (note)", w.dying("DROP INDEX", true), ""},
		"R10 after the index was made again": {"DROP INDEX CONCURRENTLY orders_amount", w.dying("CREATE INDEX", true), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w.begin(t, "change", c.change)
			w.next(t, "change", "")
			w.crash(t, w.UndoRollout, c.dies)
			w.expectIndex(t, "fresh", c.on, "", "")
			_, err := other.NextRollout(t.Context(), RolloutStep{Name: "change"})
			refusal(t, pgerr.ObjectNotInPrerequisite, err, "going on")
			_, err = other.FinishRollout(t.Context(), RolloutStep{Name: "change"})
			refusal(t, pgerr.ObjectNotInPrerequisite, err, "finishing")
			expectStep(t)(other.UndoRollout(t.Context(), RolloutStep{Name: "change"}))
			w.expectState(t, "change", topology.RolloutUndone, undone, undone, undone)
			if diff := cmp.Diff(before, w.forms(t)); diff != "" {
				t.Errorf("it was not taken back:\n%s", diff)
			}
		})
	}
}

// TestTwoGoOnAtOnce: one applies it, the other finds it applied, or is told that somebody is at work (R11).
func TestTwoGoOnAtOnce(t *testing.T) {
	t.Parallel()
	w := newRollouts(t)
	other := startRouter(t, w.endpoints, "other")
	w.begin(t, "change", "CREATE INDEX fresh ON orders (note)")
	results := make([]api.RolloutChanged, 2)
	failures := make([]error, 2)
	var running sync.WaitGroup
	for i, p := range []*process{w.process, other} {
		running.Go(func() { results[i], failures[i] = p.NextRollout(t.Context(), RolloutStep{Name: "change", Shard: "s2"}) })
	}
	running.Wait()
	if failures[0] != nil || failures[1] != nil {
		t.Fatal(failures)
	}
	was := 0
	for _, r := range results {
		if strings.Contains(r.Message, "was applied before") {
			was++
		}
	}
	if was != 1 {
		t.Errorf("%d of two have found it applied: %+v", was, results)
	}
	w.expectState(t, "change", topology.RolloutOpen, pending, applied, pending)
	expectStep(t)(w.UndoRollout(t.Context(), RolloutStep{Name: "change"}))

	w.begin(t, "change", "CREATE INDEX CONCURRENTLY fresh ON orders (note)")
	entered, leave := make(chan struct{}), make(chan struct{})
	inner := w.actingAs("")
	slow := func(ctx context.Context, spec topology.ShardSpec, work func(context.Context, shard.Asker) error) error {
		return inner(ctx, spec, func(ctx context.Context, ask shard.Asker) error {
			return work(ctx, func(ctx context.Context, sql string) ([][]string, error) {
				if strings.HasPrefix(sql, "CREATE INDEX") {
					close(entered)
					<-leave
				}
				return ask(ctx, sql)
			})
		})
	}
	running.Go(func() {
		results[0], failures[0] = w.NextRollout(t.Context(), RolloutStep{Name: "change", OnShard: slow})
	})
	<-entered
	_, err := other.NextRollout(t.Context(), RolloutStep{Name: "change", Shard: "s1"})
	refusal(t, pgerr.ObjectInUse, err, "beside somebody who makes the index")
	_, err = other.UndoRollout(t.Context(), RolloutStep{Name: "change"})
	refusal(t, pgerr.ObjectInUse, err, "taking it back meanwhile")
	close(leave)
	running.Wait()
	refusal(t, pgerr.ObjectNotInPrerequisite, failures[0], "who was applying it while it was being taken back")
	expectStep(t)(other.UndoRollout(t.Context(), RolloutStep{Name: "change"}))
	w.expectIndex(t, "fresh", "", "", "")
}

// TestWhoWakesUpLateAppliesNothing (R12).
func TestWhoWakesUpLateAppliesNothing(t *testing.T) {
	t.Parallel()
	w := newRollouts(t)
	other := startRouter(t, w.endpoints, "other")
	for _, change := range []string{"CREATE INDEX fresh ON orders (note)", "CREATE INDEX CONCURRENTLY fresh ON orders (note)"} {
		w.begin(t, "change", change)
		inner := w.actingAs("")
		_, err := w.NextRollout(t.Context(), RolloutStep{Name: "change", OnShard: func(ctx context.Context, spec topology.ShardSpec, work func(context.Context, shard.Asker) error) error {
			expectStep(t)(other.UndoRollout(ctx, RolloutStep{Name: "change"})) // while it sleeps
			return inner(ctx, spec, work)
		}})
		refusal(t, pgerr.ObjectNotInPrerequisite, err, "waking up late")
		w.expectIndex(t, "fresh", "", "", "")
		w.expectState(t, "change", topology.RolloutUndone, undone, undone, undone)
	}
}

// TestAShardIsAwayInARollout (R13).
func TestAShardIsAwayInARollout(t *testing.T) {
	t.Parallel()
	w := newRollouts(t)
	w.begin(t, "change", "CREATE INDEX fresh ON orders (note)")
	w.next(t, "change", "")
	if err := w.servers[1].Crash(); err != nil {
		t.Fatal(err)
	}
	_, err := w.NextRollout(t.Context(), RolloutStep{Name: "change"})
	if refused := refusal(t, pgerr.ConnectionFailure, err, "a shard that is away"); !strings.Contains(refused.Detail, "s2") {
		t.Errorf("refused with %+v", refused)
	}
	if got := w.next(t, "change", "s3"); got != "s3" {
		t.Errorf("the named shard was %s", got)
	}
	_, err = w.UndoRollout(t.Context(), RolloutStep{Name: "change"})
	if refused := refusal(t, pgerr.ConnectionFailure, err, "taking it back"); !strings.Contains(refused.Message, "s2") || strings.Contains(refused.Message, "s1") {
		t.Errorf("refused with %+v", refused)
	}
	w.expectState(t, "change", topology.RolloutUndoing, undone, pending, undone)
	if err := w.servers[1].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectStep(t)(w.UndoRollout(t.Context(), RolloutStep{Name: "change"}))
	w.expectState(t, "change", topology.RolloutUndone, undone, undone, undone)
	w.expectIndex(t, "fresh", "", "", "")
}

// TestAShardThatIsRemovedLeavesTheRollout: its part goes with it.
func TestAShardThatIsRemovedLeavesTheRollout(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newRollouts(t)
	fresh := pgtest.StartN(t, 1)[0]
	add(t, w.process, "s4", fresh) // owns nothing
	w.begin(t, "change", "CREATE INDEX fresh ON orders (note)")
	if _, err := w.RemoveShard(t.Context(), "s4"); err != nil {
		t.Fatal(err)
	}
	expectStep(t)(w.FinishRollout(t.Context(), RolloutStep{Name: "change"}))
	w.expectState(t, "change", topology.RolloutFinished, applied, applied, applied, pending)
	w.expectIndex(t, "fresh", "true", "true", "true")
}
