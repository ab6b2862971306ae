package shard

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// guardedUsers is a cluster of one shard, half of a keyspace's ranges elsewhere, with a guarded table.
func guardedUsers(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t, 2)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}, 1<<63))
	c.everywhere(t, "CREATE TABLE users (id bigint)")
	c.declare(t, "users", map[string][]string{"public.users": {"id"}})
	return c
}

// TestAGuardThatWasTamperedWithIsMended breaks it in one way at a time.
func TestAGuardThatWasTamperedWithIsMended(t *testing.T) {
	c := guardedUsers(t)
	plan := Prepare(c.m)
	function := functionName(guardFunctionPrefix, topology.TableName{Schema: "public", Name: "users"})
	check := func() []api.Finding {
		return must[[]api.Finding](t)(plan.CheckGuards(t.Context(), c.conns[0], "s1"))
	}
	for _, tamper := range []string{
		"DROP TRIGGER cleave_guard ON public.users",
		"DROP TRIGGER cleave_guard_update ON public.users",
		"DROP TRIGGER cleave_hello ON public.users",
		"ALTER TABLE public.users DISABLE TRIGGER cleave_guard",
		"ALTER TABLE public.users DISABLE TRIGGER ALL",
		"ALTER TABLE public.users ENABLE ALWAYS TRIGGER cleave_guard",
		"CREATE OR REPLACE TRIGGER cleave_guard AFTER INSERT ON public.users FOR EACH ROW WHEN (false) EXECUTE FUNCTION cleave." + function + "('mine')",
		"CREATE OR REPLACE FUNCTION cleave." + function + "() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
		"DROP TABLE public.users; CREATE TABLE public.users (id bigint)",
		"DROP FUNCTION cleave." + function + "() CASCADE",
	} {
		execute(t, c.conns[0], tamper)
		expectCodes(t, check(), "problem guard s1")
		if mended, err := plan.Mend(t.Context(), c.conns[0], "s1"); err != nil || mended != 1 {
			t.Errorf("after %s: mended %d, %v", tamper, mended, err)
		}
		expectCodes(t, check())
		execute(t, c.conns[0], tamper)
		if changed, err := plan.Record(t.Context(), c.conns[0], "s1"); err != nil || !changed {
			t.Errorf("after %s: recorded %v, %v", tamper, changed, err)
		}
		expectCodes(t, check())
	}
	if mended, err := plan.Mend(t.Context(), c.conns[0], "s1"); err != nil || mended != 0 {
		t.Errorf("mended %d where nothing was wrong, %v", mended, err)
	}
	execute(t, c.conns[0], "DROP TABLE public.users")
	expectCodes(t, check(), "warning table_missing s1")
	if _, err := plan.Mend(t.Context(), c.conns[0], "s1"); err != nil {
		t.Errorf("a table that is not there: %v", err)
	}
	older := Prepare(c.m)
	c.change(t, topology.DropTable("public.users"))
	execute(t, c.conns[0], "CREATE TABLE public.users (id bigint)")
	c.record(t)
	if mended, err := older.Mend(t.Context(), c.conns[0], "s1"); err != nil || mended != 0 {
		t.Errorf("an older map mended %d, %v", mended, err)
	}
}

func TestAGuardThatIsLeftIsReported(t *testing.T) {
	c := guardedUsers(t)
	without := must[*topology.Map](t)(topology.New(clusterID))
	without = must[*topology.Map](t)(without.Next(topology.AddShard(specOf("s1", c.servers[0]))))
	found := must[[]api.Finding](t)(Prepare(without).CheckGuards(t.Context(), c.conns[0], "s1"))
	expectCodes(t, found, "warning guard_left s1")
	_, command, _ := strings.Cut(found[0].Hint, "off: ")
	execute(t, c.conns[0], command)
	expectCodes(t, must[[]api.Finding](t)(Prepare(without).CheckGuards(t.Context(), c.conns[0], "s1")))
}

// TestARenamedTableTakesItsGuardAlong: that stands in nobody's way.
func TestARenamedTableTakesItsGuardAlong(t *testing.T) {
	c := guardedUsers(t)
	c.everywhere(t, "ALTER TABLE users RENAME TO people; CREATE TABLE users (id bigint)")
	c.change(t, topology.DropTable("public.users"))
	c.record(t)
	expectCodes(t, must[[]api.Finding](t)(Prepare(c.m).CheckGuards(t.Context(), c.conns[0], "s1")), "warning guard_left s1")
	c.declare(t, "users", map[string][]string{"public.users": {"id"}})
	if err := Release(t.Context(), c.conns[0], clusterID); err != nil {
		t.Error(err)
	}
}

func TestReleaseTakesTheGuardsAlong(t *testing.T) {
	c := guardedUsers(t)
	execute(t, c.conns[0], "CREATE TABLE public.gone (id bigint)")
	c.declare(t, "users", map[string][]string{"public.gone": {"id"}})
	execute(t, c.conns[0], "DROP TABLE public.gone")
	if err := Release(t.Context(), c.conns[0], clusterID); err != nil {
		t.Fatal(err)
	}
	stranger := connectAsClient(t, specOf("s1", c.servers[0]))
	execute(t, stranger, "INSERT INTO users SELECT generate_series(1, 100)")
	if one[bool](t, stranger, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'cleave') OR EXISTS (SELECT FROM pg_trigger WHERE NOT tgisinternal)") {
		t.Error("something is left")
	}
}

// TestARecordDoesNotWaitBehindALongTransaction for long: everybody would wait behind it. And it records nothing then, because
// what is recorded is what is guarded.
func TestARecordDoesNotWaitBehindALongTransaction(t *testing.T) {
	c := guardedUsers(t)
	writer := c.routers(t)[0]
	execute(t, writer, "BEGIN; DELETE FROM users")
	before := c.read(t)[0].MapVersion
	c.change(t, topology.ReplaceRanges("users", []topology.RangeSpec{{Shard: "s2"}}, topology.Assignment{}))
	_, err := Record(t.Context(), c.conns[0], c.m, "s1")
	if err == nil || !strings.Contains(err.Error(), "is in use") {
		t.Errorf("record says %v", err)
	}
	if after := c.read(t)[0].MapVersion; after != before {
		t.Errorf("version %d is recorded, and the guard is that of %d", after, before)
	}
	execute(t, writer, "COMMIT")
	if _, err := Record(t.Context(), c.conns[0], c.m, "s1"); err != nil {
		t.Error(err)
	}
}

// TestAWaitingStatementMeetsTheNewGuard: a statement that was prepared before, and that waits for the lock under which the
// guard changes, is refused by the new one.
func TestAWaitingStatementMeetsTheNewGuard(t *testing.T) {
	c := guardedUsers(t)
	router := c.routers(t)[0]
	execute(t, router, "PREPARE put AS INSERT INTO users SELECT generate_series(1, 100) ON CONFLICT DO NOTHING")
	execute(t, c.conns[0], "BEGIN")
	execute(t, c.conns[0], "LOCK TABLE public.users IN SHARE ROW EXCLUSIVE MODE")
	inserted := make(chan error, 1)
	go func() {
		_, err := router.Exec(context.Background(), "EXECUTE put")
		inserted <- err
	}()
	waitUntilBlocked(t, c.conns[0], router)
	c.change(t, topology.ReplaceRanges("users", []topology.RangeSpec{{Shard: "s2"}}, topology.Assignment{}))
	guards := must[[]guard](t)(Prepare(c.m).guardsOf(c.m.Shard("s1")))
	for _, sql := range slices.Concat(guards[0].making, guards[0].setting) {
		execute(t, c.conns[0], sql)
	}
	execute(t, c.conns[0], "COMMIT")
	refusedAs(t, pgerr.NotOwned, <-inserted, "the statement that waited")
}
