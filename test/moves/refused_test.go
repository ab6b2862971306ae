package moves_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/faults"
	"github.com/cleavedb/cleave/test/moves"
)

// refusal is something for which a move does not begin: what brings it about on a server, and what takes that away. TABLE_T is the table there.
type refusal struct {
	shard    int
	do, undo string
	says     string
}

// refusals are those of a table on shard 1 that is to go to shard 2. What is so on the target is another matter for rows and for whole tables.
func (s *stage) refusals() (list []refusal) {
	feed := fmt.Sprintf("CREATE SUBSCRIPTION feeds CONNECTION '%s' PUBLICATION feeds_TABLE_T WITH (enabled = false, create_slot = false, copy_data = false)", s.Shards[2].Primary().DSN("postgres"))
	return []refusal{
		{1, "ALTER TABLE TABLE_T DROP CONSTRAINT TABLE_T_pkey", "ALTER TABLE TABLE_T ADD PRIMARY KEY (id)", "no primary key"},
		{1, "ALTER TABLE TABLE_T DROP CONSTRAINT TABLE_T_pkey, ADD PRIMARY KEY (id, g)", "ALTER TABLE TABLE_T DROP CONSTRAINT TABLE_T_pkey, ADD PRIMARY KEY (id); ALTER TABLE TABLE_T ALTER g DROP NOT NULL", "has a generated column"},
		{1, "ALTER TABLE TABLE_T SET UNLOGGED", "ALTER TABLE TABLE_T SET LOGGED", "unlogged"},
		{1, "CREATE TABLE parent (); ALTER TABLE TABLE_T INHERIT parent", "ALTER TABLE TABLE_T NO INHERIT parent; DROP TABLE parent", "inherits"},
		{1, "CREATE DOMAIN lo AS oid; ALTER TABLE TABLE_T ADD COLUMN content lo", "ALTER TABLE TABLE_T DROP COLUMN content; DROP DOMAIN lo", "large objects"},
		{
			1, "ALTER TABLE TABLE_T ADD COLUMN content oid; SET session_replication_role = replica; INSERT INTO TABLE_T (id, content) VALUES (1, lo_create(987654)); RESET session_replication_role",
			"SET session_replication_role = replica; DELETE FROM TABLE_T; RESET session_replication_role; SELECT lo_unlink(987654); ALTER TABLE TABLE_T DROP COLUMN content", "large objects",
		},
		{
			1, "CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW;END'; CREATE TRIGGER noted BEFORE INSERT ON TABLE_T FOR EACH ROW EXECUTE FUNCTION noted(); ALTER TABLE TABLE_T ENABLE ALWAYS TRIGGER noted",
			"DROP TRIGGER noted ON TABLE_T; DROP FUNCTION noted", "fires for replicated rows",
		},
		{1, feed, "ALTER SUBSCRIPTION feeds SET (slot_name = NONE); DROP SUBSCRIPTION feeds", "a subscription brings rows"},
		{2, "SELECT pg_create_physical_replication_slot('taken_' || i) FROM generate_series(1, 32) AS i", "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE starts_with(slot_name, 'taken_')", "replication slots are in use"},
	}
}

// TestARefusedMoveLeavesNothing on any server, and definitions are allowed again when it was cancelled.
func TestARefusedMoveLeavesNothing(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 1}, 0)
	conn := s.dial(t, s.Routers[0])
	if _, err := s.Routers[0].API().CreateKeyspace(t.Context(), api.CreateKeyspace{Name: "apart"}); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		"CREATE TABLE rows (id bigint PRIMARY KEY, g bigint GENERATED ALWAYS AS (id) STORED)", "SELECT cleave.shard_table('rows', 'id', keyspace => 'apart')", "CREATE TABLE alone (id bigint PRIMARY KEY, g bigint GENERATED ALWAYS AS (id) STORED)",
	} {
		execute(t, conn, sql)
	}
	publisher := s.onShard(t, 3)
	execute(t, publisher, "CREATE TABLE alone (id bigint PRIMARY KEY)")
	execute(t, publisher, "CREATE PUBLICATION feeds_rows FOR TABLE rows")
	execute(t, publisher, "CREATE PUBLICATION feeds_alone FOR TABLE alone")
	ranges, whole := api.StartMove{From: "s1", To: "s2", Keyspace: "apart"}, api.StartMove{To: "s2", Tables: []string{"alone"}}
	refusals := s.refusals()
	if !thorough.Asked() {
		refusals = refusals[len(refusals)-3:]
	}
	for _, r := range refusals {
		s.isRefused(t, ranges, "rows", r)
		if r.says == "no primary key" || r.says == "a subscription brings rows" { // the same is asked on both
			r.shard = 2
			s.isRefused(t, ranges, "rows", r)
		}
	}
	more := []refusal{
		{2, "CREATE TABLE TABLE_T (id int)", "DROP TABLE TABLE_T", "whose name is needed"}, {2, "CREATE TABLE TABLE_T_pkey (id int)", "DROP TABLE TABLE_T_pkey", "whose name is needed"},
		{1, "CREATE VIEW seen AS SELECT id FROM TABLE_T", "DROP VIEW seen", "view public.seen reads"},
	}
	for _, r := range append(refusals, more...) {
		s.isRefused(t, whole, "alone", r)
	}
	execute(t, publisher, "DROP PUBLICATION feeds_rows, feeds_alone")
	execute(t, publisher, "DROP TABLE alone")
	for _, request := range []api.StartMove{ranges, whole} {
		s.await(t, s.start(t, request), "done")
	}
	s.clean(t)
}

// isRefused brings about what a move is refused for, and sees that nothing of it is anywhere after that: neither while it waits for somebody to mend that, but for what tells who leads and what the move is, nor when it was cancelled.
func (s *stage) isRefused(t *testing.T, request api.StartMove, table string, r refusal) {
	t.Helper()
	server, conn := s.onShard(t, r.shard), s.dial(t, s.Routers[0])
	change := func(sql string) {
		t.Helper()
		for one := range strings.SplitSeq(strings.ReplaceAll(sql, "TABLE_T", table), "; ") {
			execute(t, server, one)
		}
	}
	left := func(but ...string) []string {
		t.Helper()
		found, err := moves.Leftovers(t.Context(), s.Cluster)
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(found, func(one string) bool {
			return slices.ContainsFunc(but, func(what string) bool { return strings.Contains(one, what) })
		})
	}
	change(r.do)
	before := left()
	id := s.start(t, request)
	s.says(t, id, r.says, func(m api.Move) string { return m.Stopped })
	if now := left(": mark "+id, ": note "+id); !slices.Equal(now, before) {
		t.Errorf("%s on shard %d: a move that was refused has left %q, and before there was %q", r.do, r.shard, now, before)
	}
	s.wish(t, id, "cancel")
	s.await(t, id, "cancelled")
	if now := left(); !slices.Equal(now, before) {
		t.Errorf("%s on shard %d: a move that was cancelled has left %q, and before there was %q", r.do, r.shard, now, before)
	}
	change(r.undo)
	execute(t, conn, "TRUNCATE "+table)
}
