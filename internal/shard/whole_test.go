package shard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// TestWhatKeepsWholeTablesFromMoving is said before anything is touched, and all of it.
func TestWhatKeepsWholeTablesFromMoving(t *testing.T) {
	c := newCluster(t, 1)
	conn, client := c.conns[0], connectAsClient(t, specOf("s1", c.servers[0]))
	for _, sql := range []string{
		"CREATE TABLE kinds (kind text PRIMARY KEY)", "CREATE TABLE a (id bigserial PRIMARY KEY, kind text REFERENCES kinds)", "CREATE TABLE b (id int PRIMARY KEY, a bigint REFERENCES a, up int REFERENCES b)",
		"CREATE TABLE seen (id int PRIMARY KEY)", "CREATE VIEW sees AS SELECT * FROM seen", "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)", "CREATE TABLE quiet (id int PRIMARY KEY)",
		"ALTER TABLE quiet REPLICA IDENTITY NOTHING", "CREATE SEQUENCE free", "CREATE TABLE counts (id int PRIMARY KEY DEFAULT nextval('free'))",
		"CREATE TABLE typed (id int PRIMARY KEY)", "CREATE TABLE has_typed (one typed)", "CREATE TABLE argued (id int PRIMARY KEY)", "CREATE FUNCTION takes(argued) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1'",
		"CREATE TABLE drawn (id serial PRIMARY KEY)", "CREATE TABLE draws (id int DEFAULT nextval('drawn_id_seq'))", "CREATE TABLE policed (id int PRIMARY KEY)", "CREATE TABLE polices (id int)",
		"CREATE POLICY p ON polices USING (id IN (SELECT id FROM policed))", "CREATE TABLE cascades (id int PRIMARY KEY, kind text REFERENCES kinds ON DELETE CASCADE)", "CREATE TABLE cycles (id int GENERATED ALWAYS AS IDENTITY (CYCLE) PRIMARY KEY)",
		"CREATE FUNCTION hidden() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'", "CREATE TABLE triggered (id int PRIMARY KEY)", "CREATE TRIGGER hides BEFORE INSERT ON triggered FOR EACH ROW EXECUTE FUNCTION hidden()",
	} {
		execute(t, client, sql)
	}
	c.change(t, topology.SetTable(topology.TableSpec{Name: "kinds", Kind: topology.Reference}))
	for _, one := range []struct{ tables, wants string }{
		{"a, b", ""}, {"a", `foreign key "b_a_fkey" of table public.b`}, {"b", "has to move with it"}, {"seen", "view public.sees reads table"}, {"parted", "is partitioned"}, {"quiet", "replica identity NOTHING"},
		{"counts", "sequence"}, {"nothing", "is not there"}, {"triggered", "runs public.hidden()"},
		{"typed", "column one of table public.has_typed uses table public.typed"}, {"argued", "function public.takes(public.argued) uses"}, {"drawn", "default value for column id of table public.draws uses"}, {"policed", "policy p on table public.polices uses"},
		{"cascades", "changes rows when"}, {"cycles", "begins again at its end"},
	} {
		var names []topology.TableName
		for name := range strings.SplitSeq(one.tables, ", ") {
			names = append(names, topology.TableName{Schema: "public", Name: name})
		}
		_, problems, err := CheckWhole(t.Context(), conn, c.m, names)
		if err != nil {
			t.Errorf("%s: %v", one.tables, err)
		}
		if one.wants == "" && len(problems) > 0 || one.wants != "" && !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, one.wants) }) {
			t.Errorf("%s: %q, not %q", one.tables, problems, one.wants)
		}
	}
}

// TestWhatIsInTheWayOfWholeTables where they are to be is found before anything is made there: whatever has one of their names, of their indexes, sequences and statistics included, and roles that are not there.
func TestWhatIsInTheWayOfWholeTables(t *testing.T) {
	c := newCluster(t, 2)
	source, target := connectAsClient(t, specOf("s1", c.servers[0])), connectAsClient(t, specOf("s2", c.servers[1]))
	for _, sql := range []string{
		"CREATE ROLE keeper", "CREATE SCHEMA app", "CREATE TABLE app.ledger (id bigserial PRIMARY KEY, note text, n int)", "CREATE INDEX notes ON app.ledger (note)", "CREATE STATISTICS app.of_notes ON note, n FROM app.ledger", "GRANT SELECT ON app.ledger TO keeper",
	} {
		execute(t, source, sql)
	}
	d := must[*Definition](t)(Describe(t.Context(), c.conns[0], topology.TableName{Schema: "app", Name: "ledger"}))
	look := func() []string {
		t.Helper()
		return must[[]string](t)(Definitions{d}.CheckPlace(t.Context(), c.conns[1], nil))
	}
	if problems := look(); len(problems) != 1 || !strings.Contains(problems[0], "role keeper") {
		t.Errorf("a role that is missing: %q", problems)
	}
	execute(t, target, "CREATE ROLE keeper")
	if problems := look(); len(problems) > 0 {
		t.Errorf("nothing is in the way: %q", problems)
	}
	execute(t, target, "CREATE SCHEMA app")
	for _, one := range [][3]string{
		{"CREATE TABLE app.ledger (id int)", "DROP TABLE app.ledger", "table app.ledger"}, {"CREATE VIEW app.notes AS SELECT 1 AS id", "DROP VIEW app.notes", "view app.notes"}, {"CREATE SEQUENCE app.ledger_id_seq", "DROP SEQUENCE app.ledger_id_seq", "sequence app.ledger_id_seq"},
		{"CREATE TABLE app.ledger_pkey (id int)", "DROP TABLE app.ledger_pkey", "table app.ledger_pkey"}, {"CREATE TYPE app.ledger AS ENUM ('a')", "DROP TYPE app.ledger", "type app.ledger"},
		{"CREATE TABLE app.other (a int, b int); CREATE STATISTICS app.of_notes ON a, b FROM app.other", "DROP TABLE app.other", "statistics object app.of_notes"},
	} {
		execute(t, target, one[0])
		if problems := look(); len(problems) != 1 || !strings.Contains(problems[0], one[2]) {
			t.Errorf("%s: %q", one[0], problems)
		}
		execute(t, target, one[1])
	}
	if problems := look(); len(problems) > 0 {
		t.Errorf("nothing is in the way any more: %q", problems)
	}
}

// TestNamesAreThoseOfSQL, whichever of PostgreSQL's words they are.
func TestNamesAreThoseOfSQL(t *testing.T) {
	conn := newCluster(t, 1).conns[0]
	rows, err := conn.Query(t.Context(), "SELECT word FROM pg_get_keywords()")
	if err != nil {
		t.Fatal(err)
	}
	words, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(words) < 400 {
		t.Fatal(len(words), err)
	}
	for _, word := range words {
		name := topology.TableName{Schema: word, Name: word}
		execute(t, conn, "CREATE SCHEMA "+sqltext.QuoteIdentifier(word))
		execute(t, conn, fmt.Sprintf("CREATE TABLE %s (id int)", name))
		execute(t, conn, fmt.Sprintf("BEGIN; LOCK TABLE %[1]s; COPY %[1]s TO STDOUT; COMMENT ON COLUMN %[1]s.id IS 'x'; DROP TABLE %[1]s; COMMIT", name))
	}
}

// TestWhatBelongsToASchemaThatMoves goes with its tables, but for what others use; what another shard has of it otherwise is found before anything is made there.
func TestWhatBelongsToASchemaThatMoves(t *testing.T) {
	c := newCluster(t, 2)
	source, target := connectAsClient(t, specOf("s1", c.servers[0])), connectAsClient(t, specOf("s2", c.servers[1]))
	const schema = `"user"`
	things := []string{
		"CREATE SCHEMA user", "CREATE TYPE user.mood AS ENUM ('good')", "CREATE TYPE user.pair AS (one user.mood, n int)", "CREATE DOMAIN user.positive AS int CHECK (VALUE > 0)", "CREATE FUNCTION user.next(int) RETURNS int LANGUAGE sql IMMUTABLE RETURN $1 + 1",
		"CREATE EXTENSION citext SCHEMA public",
	}
	for i, sql := range things {
		things[i] = strings.ReplaceAll(sql, "user", schema)
		execute(t, source, things[i])
	}
	for _, sql := range []string{
		"CREATE TABLE user.a (id int PRIMARY KEY, mood user.mood, pairs user.pair[], n user.positive DEFAULT user.next(1), name public.citext)", "CREATE TABLE user.b (id int PRIMARY KEY, mood user.mood)", "CREATE TABLE public.other (mood user.mood)",
	} {
		execute(t, source, strings.ReplaceAll(sql, "user", schema))
	}
	describe := func(conn *pgx.Conn) Definitions {
		t.Helper()
		return must[Definitions](t)(DescribeThere(t.Context(), conn, []topology.TableName{{Schema: "user", Name: "a"}, {Schema: "user", Name: "b"}, {Schema: "user", Name: "gone"}}))
	}
	schemas, definitions := []string{"user"}, describe(c.conns[0])
	look := func() []string {
		t.Helper()
		return must[[]string](t)(definitions.CheckPlace(t.Context(), c.conns[1], schemas))
	}
	if problems := look(); len(problems) > 0 {
		t.Errorf("nothing is in the way: %q", problems)
	}
	for _, sql := range things {
		execute(t, target, sql)
	}
	for _, one := range [][3]string{ // what has the same name is made anew, unless somebody uses it
		{"ALTER TYPE user.mood ADD VALUE 'bad'", "", ""}, {"CREATE OR REPLACE FUNCTION user.next(int) RETURNS int LANGUAGE sql IMMUTABLE RETURN $1 + 2", "", ""},
		{"CREATE TABLE public.uses (mood user.mood)", "DROP TABLE public.uses", "another type"}, {"CREATE VIEW public.uses AS SELECT user.next(1)", "DROP VIEW public.uses", "another function"},
		{"CREATE VIEW user.v AS SELECT 1 AS one", "DROP VIEW user.v", "has view"}, {"CREATE TABLE user.a (id int)", "DROP TABLE user.a", "has table"}, {"CREATE TABLE user.c (id int)", "DROP TABLE user.c", "has table"}, {"CREATE TYPE user.more AS ENUM ()", "DROP TYPE user.more", "has type"},
		{"DROP EXTENSION citext; CREATE EXTENSION citext SCHEMA public VERSION '1.4'", "DROP EXTENSION citext", "has version"},
	} {
		execute(t, target, strings.ReplaceAll(one[0], "user", schema))
		if problems := look(); one[2] == "" && len(problems) > 0 || one[2] != "" && (len(problems) != 1 || !strings.Contains(problems[0], one[2])) {
			t.Errorf("%s: %q", one[0], problems)
		}
		execute(t, target, strings.ReplaceAll(one[1], "user", schema))
	}
	if problems := look(); len(problems) > 0 {
		t.Errorf("nothing is in the way any more: %q", problems)
	}
	for i, conn := range c.conns {
		tables := []topology.TableName{{Schema: "user", Name: "a"}, {Schema: "user", Name: "b"}}
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			if i == 1 {
				if err := definitions.Clear(t.Context(), tx, schemas); err != nil {
					return err
				}
				if err := definitions.Create(t.Context(), tx, "s2"); err != nil {
					return err
				}
			}
			if err := DropWhole(t.Context(), tx, "none", tables); err != nil {
				return err
			}
			return definitions.Clear(t.Context(), tx, schemas)
		})
		if err != nil {
			t.Fatal(err)
		}
		left := must[[]string](t)(inSchema(t.Context(), conn, "user", nil, nil))
		if i == 0 && (len(left) != 1 || !strings.Contains(left[0], "mood")) || i == 1 && len(left) > 0 {
			t.Errorf("shard %d has %q", i+1, left)
		}
	}
}

// TestForeignKeysAreMadeInTheEnd: first without looking at rows, under a lock that is not waited for, then with; what was never looked at stays so. To drop a table nobody has to wait for those that it refers to.
func TestForeignKeysAreMadeInTheEnd(t *testing.T) {
	c := newCluster(t, 2)
	source, target := connectAsClient(t, specOf("s1", c.servers[0])), connectAsClient(t, specOf("s2", c.servers[1]))
	c.everywhere(t, "CREATE TABLE kinds (kind text PRIMARY KEY)")
	for _, sql := range []string{
		"CREATE TABLE ledger (id bigserial PRIMARY KEY, kind text REFERENCES kinds, up bigint REFERENCES ledger, n int UNIQUE CHECK (n > 0), other text)", "ALTER TABLE ledger ADD CONSTRAINT loose FOREIGN KEY (other) REFERENCES kinds NOT VALID",
		"CREATE INDEX ON ledger (kind)", "CREATE STATISTICS of_ledger ON kind, n FROM ledger",
	} {
		execute(t, source, sql)
	}
	name := topology.TableName{Schema: "public", Name: "ledger"}
	tables, conn := []topology.TableName{name}, c.conns[1]
	d := must[*Definition](t)(Describe(t.Context(), c.conns[0], name))
	within := func(work func(pgx.Tx) error) error { return pgx.BeginFunc(t.Context(), conn, work) }
	if err := within(func(tx pgx.Tx) error { return Definitions{d}.Create(t.Context(), tx, "s2") }); err != nil {
		t.Fatal(err)
	}
	execute(t, target, "INSERT INTO ledger (kind, n) VALUES ('gone', 1)") // as in a copy: it is deleted later
	if err := CloseWhole(t.Context(), conn, "m", "s1", Lasting); err != nil {
		t.Fatal(err)
	}
	execute(t, target, "CREATE STATISTICS of_ledger ON kind, n FROM ledger") // so that the last piece cannot be made
	pieces := 0
	for _, want := range []string{"42710", "", ""} { // done again, it makes what is missing
		if err := d.CompleteWhole(t.Context(), conn, "m", func() { pieces++ }); want != "" {
			refusedAs(t, want, err, "the last piece is there")
			execute(t, target, "DROP STATISTICS of_ledger")
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if pieces != 4 {
		t.Errorf("%d pieces were made", pieces)
	}
	execute(t, target, "BEGIN")
	execute(t, target, "INSERT INTO kinds VALUES ('a')")
	keys := must[[]ForeignKey](t)(d.ForeignKeys(t.Context(), conn))
	if len(keys) != 3 {
		t.Fatalf("foreign keys: %v", keys)
	}
	for _, key := range keys {
		err := within(func(tx pgx.Tx) error { return key.Add(t.Context(), tx) })
		if key.TargetTable == "kinds" {
			refusedAs(t, pgerr.LockNotAvailable, err, "%s while somebody writes to the other table", key)
		} else if err != nil {
			t.Error(err)
		}
	}
	execute(t, target, "COMMIT")
	for _, key := range must[[]ForeignKey](t)(d.ForeignKeys(t.Context(), conn)) {
		if key.IsMade != (key.TargetTable == "ledger") || key.IsValid {
			t.Errorf("%+v", key)
		}
		if !key.IsMade {
			if err := within(func(tx pgx.Tx) error { return key.Add(t.Context(), tx) }); err != nil {
				t.Error(err)
			}
		}
	}
	for _, key := range must[[]ForeignKey](t)(d.ForeignKeys(t.Context(), conn)) {
		if !key.IsMade || key.IsValid != (key.Name == "loose") {
			t.Errorf("%+v", key)
		}
		if key.IsValid {
			continue
		}
		if err := key.Validate(t.Context(), conn); (err != nil) != (key.Name == "ledger_kind_fkey") {
			t.Errorf("%s: %v", key, err)
		}
	}
	execute(t, conn, "SET session_replication_role = replica")
	execute(t, conn, "DELETE FROM public.ledger") // which comes over
	execute(t, conn, "SET session_replication_role = origin")
	for _, key := range must[[]ForeignKey](t)(d.ForeignKeys(t.Context(), conn)) {
		if !key.IsValid {
			if err := key.Validate(t.Context(), conn); err != nil {
				t.Error(err)
			}
		}
	}
	if differing := must[[]string](t)(d.DiffersOn(t.Context(), conn)); len(differing) > 0 {
		t.Errorf("it differs in %q", differing)
	}
	ties := must[[]string](t)(Ties(t.Context(), conn, append(tables, topology.TableName{Schema: "public", Name: "gone"})))
	if len(ties) != 2 {
		t.Errorf("it is tied by %q", ties)
	}
	for _, sql := range ties {
		execute(t, conn, sql)
	}
	execute(t, target, "BEGIN")
	execute(t, target, "INSERT INTO kinds VALUES ('b')")
	if err := within(func(tx pgx.Tx) error { return DropWhole(t.Context(), tx, "none", tables) }); err != nil {
		t.Error(err)
	}
	execute(t, target, "COMMIT")
}

// TestWholeTablesAreOpenedAndClosed without a lock on them: who has one locked goes on with what it began, and everybody else is refused.
func TestWholeTablesAreOpenedAndClosed(t *testing.T) {
	c := newCluster(t, 2)
	conn, tables := c.conns[0], []topology.TableName{{Schema: "public", Name: "ledger"}}
	client, other := connectAsClient(t, specOf("s1", c.servers[0])), connectAsClient(t, specOf("s1", c.servers[0]))
	execute(t, client, "CREATE TABLE ledger (id int PRIMARY KEY)")
	within := func(work func(pgx.Tx) error) {
		t.Helper()
		if err := pgx.BeginFunc(t.Context(), conn, work); err != nil {
			t.Fatal(err)
		}
	}
	within(func(tx pgx.Tx) error {
		if err := OpenWhole(t.Context(), tx, "m", Lasting); err != nil {
			return err
		}
		return WatchWhole(t.Context(), tx, "m", tables[0])
	})
	guarded := func(move string, want bool) {
		t.Helper()
		lacking, watched := must[[]topology.TableName](t)(Unwatched(t.Context(), conn, move, tables)), must[[]topology.TableName](t)(Watched(t.Context(), conn, move))
		if slices.Equal(watched, tables) != want || slices.Equal(lacking, tables) == want {
			t.Errorf("move %s guards %v, and not %v", move, watched, lacking)
		}
	}
	guarded("m", true)
	guarded("other", false)
	_, err := client.Exec(t.Context(), "TRUNCATE ledger")
	refusedAs(t, pgerr.ObjectInUse, err, "TRUNCATE while it is open")
	execute(t, client, "BEGIN")
	execute(t, client, "INSERT INTO ledger VALUES (1)")
	closed := time.AfterFunc(10*time.Second, func() { t.Error("closing waits for a lock") })
	if err := CloseWhole(t.Context(), conn, "m", `s"2'`, AtOnce); err != nil {
		t.Fatal(err)
	}
	closed.Stop()
	for _, sql := range []string{"INSERT INTO ledger VALUES (2)", "UPDATE ledger SET id = 3", "DELETE FROM ledger", "COPY ledger FROM STDIN"} {
		_, err := other.Exec(t.Context(), sql)
		refusedAs(t, pgerr.NotOwned, err, "%s", sql)
	}
	execute(t, client, "COMMIT")
	for _, owner := range []string{"s1", "s2"} { // what is recorded of the table has nothing to do with it
		c.change(t, topology.SetTable(topology.TableSpec{Name: "ledger", Kind: topology.Single, Shard: owner}))
		c.record(t)
		_, err := other.Exec(t.Context(), "INSERT INTO ledger VALUES (2)")
		refusedAs(t, pgerr.NotOwned, err, "INSERT when shard %s is recorded as the owner", owner)
	}
	execute(t, other, "SET session_replication_role = replica")
	execute(t, other, "INSERT INTO ledger VALUES (4)") // as replication does
	within(func(tx pgx.Tx) error {
		if err := UnwatchWhole(t.Context(), tx, tables[0]); err != nil {
			return err
		}
		return ForgetWhole(t.Context(), tx, "m")
	})
	guarded("m", false)
	execute(t, client, "TRUNCATE ledger")
	within(func(tx pgx.Tx) error {
		return DropWhole(t.Context(), tx, "none", append(tables, topology.TableName{Schema: "public", Name: "gone"}))
	})
}

// TestNumbersAreCarried: a sequence counts within the same bounds on the other shard, gives nothing there before the table is to be there, goes on behind what was given before, and gives nothing more where it was. If that is taken back, it goes on behind what both have given.
func TestNumbersAreCarried(t *testing.T) {
	c := newCluster(t, 2)
	tables := []topology.TableName{{Schema: "public", Name: "counted"}, {Schema: "public", Name: "gone"}}
	c.everywhere(t, "CREATE TABLE counted (up bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, down serial)")
	owner, heir := connectAsClient(t, specOf("s1", c.servers[0])), connectAsClient(t, specOf("s2", c.servers[1]))
	execute(t, owner, "ALTER TABLE counted ALTER up SET MINVALUE -50 SET START -50 RESTART")
	execute(t, owner, "ALTER SEQUENCE counted_down_seq INCREMENT -1 MINVALUE -500 MAXVALUE 7 START 7 RESTART")
	execute(t, heir, "ALTER SEQUENCE counted_down_seq INCREMENT -1 MINVALUE -1000 MAXVALUE -1 START -1 RESTART")
	differ := func(want ...string) {
		t.Helper()
		if found, err := OtherBounds(t.Context(), c.conns[0], c.conns[1], tables); err != nil || !slices.Equal(found, want) {
			t.Errorf("other bounds: %q, %v; not %q", found, err, want)
		}
	}
	differ("public.counted_down_seq", "public.counted_up_seq")
	if err := CarryBounds(t.Context(), c.conns[0], c.conns[1], tables); err != nil {
		t.Fatal(err)
	}
	gives := func(what string, conn *pgx.Conn, want string) {
		t.Helper()
		var got string
		err := conn.QueryRow(t.Context(), "SELECT nextval('counted_up_seq') || ' ' || nextval('counted_down_seq')").Scan(&got)
		if want == "" {
			refusedAs(t, "2200H", err, "%s", what)
		} else if err != nil || got != want {
			t.Errorf("%s: %s, %v, not %s", what, got, err, want)
		}
	}
	sequences, err := SequencesOf(t.Context(), c.conns[0], tables)
	if err != nil || len(sequences) != 2 {
		t.Fatal(sequences, err)
	}
	stop := func(shard int) Standings {
		t.Helper()
		return must[Standings](t)(StopNumbers(t.Context(), c.conns[shard], "m", sequences))
	}
	carry := func() {
		t.Helper()
		if err := CarryNumbers(t.Context(), c.conns[0], c.conns[1], "m", sequences); err != nil {
			t.Fatal(err)
		}
	}
	resume := func(given Standings, isKnown bool) {
		t.Helper()
		for range 2 {
			if err := pgx.BeginFunc(t.Context(), c.conns[0], func(tx pgx.Tx) error { return ResumeNumbers(t.Context(), tx, "m", given, isKnown) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	differ()
	gives("the first numbers", owner, "-50 7")
	gives("the copy", heir, "")
	if given := stop(1); len(given) > 0 {
		t.Errorf("the copy has given numbers: %v", given)
	}
	carry()
	gives("where it was", owner, "")
	gives("where it is", heir, "15 -58")
	gives("and then", heir, "16 -59")
	for range 2 { // whoever goes on after a crash does it again
		resume(stop(1), true)
	}
	gives("the heir, when that is taken back", heir, "")
	gives("taken back", owner, "81 -124")
	stop(0)
	resume(stop(1), true)
	gives("stopped and taken back once more", owner, "146 -189")
	stop(0)
	execute(t, owner, "SELECT setval('counted_up_seq', 146), setval('counted_down_seq', -189)") // as on a server that has crashed: it did not wait for the disk
	resume(nil, true)
	gives("taken back when it was lost that it was stopped", owner, "211 -254")
	carry()
	gives("where it is at last", heir, "276 -319")
	resume(nil, false)
	gives("taken back when nobody knows what the heir has given", owner, "1048788 -378")
}

// TestASequenceIsStoppedWhereOthersLeaveOut what has come in between, and nowhere else.
func TestASequenceIsStoppedWhereOthersLeaveOut(t *testing.T) {
	conn := newCluster(t, 1).conns[0]
	for _, c := range []struct {
		name              string
		noted, step, size int64 // size is how many a session takes at once
		stops             bool
	}{
		{"where it was noted", 100, 1, 1, true}, {"33 later", 67, 1, 1, false}, {"32 later", 68, 1, 1, true}, {"33 later, of portions", 67, 1, 2, true}, {"33 later, in steps", 67, 5, 1, true},
		{"downwards", 100, -1, 1, true}, {"33 below", 133, -1, 1, false}, {"32 below", 132, -1, 1, true},
	} {
		execute(t, conn, "DROP SEQUENCE IF EXISTS public.numbers")
		execute(t, conn, fmt.Sprintf("CREATE SEQUENCE public.numbers INCREMENT %d MINVALUE -1000 MAXVALUE 1000", c.step))
		execute(t, conn, "SELECT setval('public.numbers', 100)")
		limit := int64(1000)
		if c.step < 0 {
			limit = -1000
		}
		noted := Standings{{Name: "public.numbers", Last: c.noted, Step: c.step, Limit: limit, Cache: c.size}}
		if stopped, err := noted.stop(t.Context(), conn, Lasting); err != nil || stopped != c.stops {
			t.Errorf("%s: stopped: %t, %v", c.name, stopped, err)
		}
		if last := one[int64](t, conn, "SELECT last_value FROM public.numbers"); (last == limit) != c.stops {
			t.Errorf("%s: it stands at %d", c.name, last)
		}
	}
}

// TestNumbersThatAreDrawnMeanwhile are given by one shard alone, however fast somebody draws them.
func TestNumbersThatAreDrawnMeanwhile(t *testing.T) {
	c := newCluster(t, 2)
	tables := []topology.TableName{{Schema: "public", Name: "counted"}}
	c.everywhere(t, "CREATE TABLE counted (id bigserial PRIMARY KEY)")
	sequences, err := SequencesOf(t.Context(), c.conns[0], tables)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 10 {
		draws := connectAsClient(t, specOf("s1", c.servers[0]))
		last := make(chan int64)
		go func() {
			var number, drawn int64
			for err := error(nil); err == nil; err = draws.QueryRow(t.Context(), "SELECT nextval('public.counted_id_seq')").Scan(&drawn) {
				number = drawn
			}
			last <- number
		}()
		err := CarryNumbers(t.Context(), c.conns[0], c.conns[1], "m", sequences)
		if err != nil { // it was drawn from too fast
			execute(t, c.conns[0], "SELECT setval('public.counted_id_seq', 9223372036854775807)")
			<-last
			t.Logf("round %d: %v", round, err)
			execute(t, c.conns[0], "SELECT setval('public.counted_id_seq', 1)")
			continue
		}
		drawn := <-last
		if next := one[int64](t, c.conns[1], "SELECT nextval('public.counted_id_seq')"); next <= drawn {
			t.Errorf("one shard gave %d, and then the other %d", drawn, next)
		}
		if err := pgx.BeginFunc(t.Context(), c.conns[0], func(tx pgx.Tx) error { return ResumeNumbers(t.Context(), tx, "m", nil, true) }); err != nil {
			t.Fatal(err)
		}
	}
}
