package saga

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/shard"
)

// home is the shard that has a key.
func (w *world) home(t *testing.T, key any) string {
	t.Helper()
	return one[string](t, w.pool, fmt.Sprintf("SELECT cleave.shard_of('sagas.sagas', %v)", key))
}

// keyOn returns a new key that lives on a shard.
func (w *world) keyOn(t *testing.T, shard string) int64 {
	t.Helper()
	for {
		if key := newKey(); w.home(t, key) == shard {
			return key
		}
	}
}

// testRoutes: every statement that has the key goes to one shard, and looking for due sagas to all of them, in parts.
func testRoutes(t *testing.T, w *world) {
	const id, lease = "0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c11", "0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c12"
	key := w.keyOn(t, "s2")
	fenced, moved := []any{key, id, lease, "step"}, []any{key, id, lease, "step", "running", "next", 1.5}
	for name, c := range map[string]struct {
		sql       string
		arguments []any
	}{
		"start": {startSQL, []any{key, id, "type", "key", "{}"}}, "started": {startedSQL, []any{key, "type", "key"}},
		"take": {takeSQL, []any{key, id, 1, lease, "holder", 1.5, "first"}}, "steps": {stepsSQL, []any{key, id}}, "refresh": {refreshSQL, []any{key, id, lease}},
		"done": {doneSQL, append(moved[:7:7], 1, 1, "{}")}, "undone": {undoneSQL, append(moved[:7:7], 1, "{}")}, "turn": {turnSQL, append(moved[:7:7], "why")},
		"in doubt": {inDoubtSQL, append(moved[:7:7], "why", 1, 1)}, "later": {laterSQL, append(fenced[:4:4], "running", "why", 1.5)}, "stuck": {stuckSQL, append(fenced[:4:4], "why", 1)},
		"release": {releaseSQL, []any{key, id, lease, 0}}, "renew": {renewSQL, []any{key, id, lease, 1.5}}, "retry": {retrySQL, []any{key, id, ""}}, "abandon": {abandonSQL, []any{key, id, "note"}},
		"get": {getSQL, []any{key, id}}, "get steps": {getStepsSQL, []any{key, id}}, "purge": {purgeSQL, []any{key, id}},
	} {
		if route := one[string](t, w.pool, "EXPLAIN "+c.sql, c.arguments...); route != "Route: one shard, s2" {
			t.Errorf("%s: %s", name, route)
		}
	}
	for name, c := range map[string]struct {
		sql       string
		arguments []any
	}{"due": {dueSQL + " LIMIT $2", []any{[]string{"a"}, 1}}, "list": {listSQL, []any{[]string{"stuck"}, []string{}, 1}}, "old": {oldSQL, []any{1.5, 1}}} {
		if route := one[string](t, w.pool, "EXPLAIN "+c.sql, c.arguments...); !strings.HasPrefix(route, "Route: in parts on s1, s2, s3") {
			t.Errorf("%s: %s", name, route)
		}
	}
}

// testVisible: what is stuck shows in the router's view and over HTTP, with where it lives.
func testVisible(t *testing.T, w *world) {
	if !slices.EqualFunc(States(), shard.SagaStates(), func(a State, b string) bool { return string(a) == b }) {
		t.Errorf("the router knows the states %v", shard.SagaStates())
	}
	run(t, w.runner(t, nil, Type{Name: "visible", Steps: []Step{{Name: "first", Do: sqlTrace(), Undo: failing(Permanent(errBusy))}, {Name: "second", Do: failing(Permanent(errRefused))}}}))
	waiting := w.start(t, Request{Type: "visible-not-run", Key: w.keyOn(t, "s1"), IdempotencyKey: "x"})
	var stuck []Started
	for _, shard := range []string{"s3", "s2"} {
		s := w.start(t, Request{Type: "visible", Key: w.keyOn(t, shard), IdempotencyKey: "x"})
		w.wait(t, s, Stuck)
		stuck = append(stuck, s)
	}
	rows, err := w.pool.Query(t.Context(), "SELECT id::text, shard, step, attempts, last_error, failure, age > interval '0' FROM cleave.sagas WHERE type LIKE 'visible%' ORDER BY shard")
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		values, err := row.Values()
		return fmt.Sprintln(values...), err
	})
	want := []string{
		fmt.Sprintln(waiting.ID, "s1", nil, int32(0), nil, nil, true), fmt.Sprintln(stuck[1].ID, "s2", "first", int32(1), errBusy, errRefused, true),
		fmt.Sprintln(stuck[0].ID, "s3", "first", int32(1), errBusy, errRefused, true),
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: the view shows\n%q, not\n%q", err, got, want)
	}
	list, err := w.cluster.Routers[0].API.Sagas(t.Context(), string(Stuck), "visible", 10)
	if err != nil || len(list.Sagas) != 2 || list.More || len(list.Findings) != 0 {
		t.Fatalf("%+v, %v", list, err)
	}
	for i, s := range list.Sagas { // the oldest first
		if s.ID != stuck[i].ID || s.Key != fmt.Sprint(stuck[i].Key) || s.Shard != []string{"s3", "s2"}[i] || s.Failure != errRefused.Error() || s.AgeSeconds <= 0 {
			t.Errorf("%+v", s)
		}
	}
}

// testFairness: however many sagas are due on one shard, those of others are found in their turn.
func testFairness(t *testing.T, w *world) {
	const batch = 4
	for _, shard := range []string{"s1", "s2", "s3"} {
		for range 3 * batch {
			key := w.keyOn(t, shard)
			w.start(t, Request{Type: "fair", Key: key, IdempotencyKey: "x"})
			if shard != "s1" {
				break // the others have one each
			}
		}
	}
	r := w.runner(t, func(c *Config) { c.Batch = batch }, Type{Name: "fair", Steps: []Step{{Name: "only", Do: sqlTrace()}}})
	homes := map[string]int{}
	for range 6 {
		found, more, err := r.find(t.Context())
		if err != nil || !more || len(found) > 2*batch {
			t.Errorf("found %v; more: %v; %v", found, more, err)
		}
		for _, c := range found {
			homes[w.home(t, c.key)]++
		}
	}
	if homes["s1"] < batch || homes["s2"] < 2 || homes["s3"] < 2 {
		t.Errorf("found so many of each shard: %v", homes)
	}
}

// testShardAway: sagas of other shards go on while one is away.
func testShardAway(t *testing.T, w *world) {
	here, away := w.keyOn(t, "s1"), w.keyOn(t, "s3")
	defer func() {
		list, err := w.cluster.Routers[0].API.Sagas(t.Context(), "", "", 10)
		if err != nil || len(list.Findings) != 1 || list.Findings[0].Shard != "s3" || len(list.Sagas) == 0 {
			t.Errorf("listed while a shard is away: %+v, %v", list, err)
		}
	}()
	s := w.start(t, Request{Type: "away", Key: here, IdempotencyKey: "x"})
	w.start(t, Request{Type: "away", Key: away, IdempotencyKey: "x"})
	if err := w.cluster.Shards[2].StopImmediately(); err != nil {
		t.Fatal(err)
	}
	run(t, w.runner(t, nil, Type{Name: "away", Steps: []Step{{Name: "only", Do: sqlTrace()}}}))
	w.wait(t, s, Completed)
}

// testInstall: sagas live in the keyspace that is named, with keys of its type; what is there already in another way is refused.
func testInstall(t *testing.T, w *world) {
	w.exec(t, "CREATE TABLE people (id uuid PRIMARY KEY, name text)")
	w.exec(t, "SELECT cleave.shard_table('people', 'id')")
	w.exec(t, "CREATE TABLE events (a bigint, b bigint, PRIMARY KEY (a, b))")
	w.exec(t, "SELECT cleave.shard_table('events', 'a, b')")
	install := func(o InstallOptions) error { return Install(t.Context(), w.pool, o) }
	for _, wrong := range []InstallOptions{{Keyspace: "nowhere"}, {Keyspace: "default_bigint_bigint"}, {KeyType: "numeric"}} {
		if err := install(wrong); err == nil || one[bool](t, w.pool, "SELECT to_regnamespace('sagas') IS NOT NULL") {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	direct := openPool(t, w.cluster.Shards[1].DSN("postgres"), 2)
	if err := Install(t.Context(), direct, InstallOptions{}); err == nil || !strings.Contains(err.Error(), "connect to a router") {
		t.Errorf("on a shard: %v", err)
	}
	// S24: cut off before the tables were declared, with an index missing.
	w.exec(t, "CREATE SCHEMA sagas")
	w.exec(t, strings.Replace(objects[0].sql, "%s", "uuid", 1))
	const at = 4
	failures := make(chan error, at)
	for range at {
		go func() { failures <- install(InstallOptions{Keyspace: "default_uuid"}) }()
	}
	for range at {
		if err := <-failures; err != nil {
			t.Error(err)
		}
	}
	if n := one[int](t, w.pool, "SELECT count(*) FROM cleave.tables WHERE schema_name = 'sagas' AND keyspace = 'default_uuid'"); n != 2 {
		t.Errorf("%d tables are declared", n)
	}
	for _, other := range []InstallOptions{{KeyType: "bigint"}, {}} {
		if err := install(other); err == nil {
			t.Errorf("%+v is not what there is", other)
		}
	}
	w.renames(t)
	w.exec(t, "DROP TABLE sagas.steps")
	w.exec(t, "DROP TABLE sagas.sagas")
	w.pool.Reset() // its connections remember a key that was a uuid
}

// renames runs a saga whose key is a uuid, with a step that changes the row that it stands for.
func (w *world) renames(t *testing.T) {
	t.Helper()
	const person = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
	w.exec(t, "INSERT INTO people VALUES ($1, 'nobody')", person)
	stop := run(t, w.runner(t, nil, Type{Name: "person", Steps: []Step{{Name: "rename", Do: renamePerson}}}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	started, err := Start(ctx, w.pool, Request{Type: "person", Key: person, IdempotencyKey: "x", Input: "somebody"})
	if err != nil {
		t.Fatal(err)
	}
	if saga, err := Wait(ctx, w.pool, started.Key, started.ID, time.Millisecond); err != nil || saga.State != Completed {
		t.Fatalf("%+v, %v", saga, err)
	}
	if name := one[string](t, w.pool, "SELECT name FROM people WHERE id = $1", person); name != "somebody" {
		t.Errorf("the person is called %s", name)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
