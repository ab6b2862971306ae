package adopt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// connect connects as the superuser.
func connect(t *testing.T, server *localpg.Server, hear func(string)) *pgx.Conn {
	t.Helper()
	conn, err := Connect(t.Context(), "postgres://postgres@"+server.Addr()+"/postgres?sslmode=disable", hear)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// codesOf are the codes of findings of a severity, sorted.
func codesOf(findings []api.Finding, severity api.Severity) string {
	var codes []string
	for _, f := range findings {
		if f.Severity == severity {
			codes = append(codes, f.Code)
		}
	}
	slices.Sort(codes)
	return strings.Join(codes, " ")
}

// TestAServerThatIsNotPrepared: all that it lacks is told at once, with the statements, which are enough.
func TestAServerThatIsNotPrepared(t *testing.T) {
	server := pgtest.StartWith(t, localpg.Config{Settings: map[string]string{"wal_level": "replica", "max_prepared_transactions": "0"}})[0]
	conn := connect(t, server, nil)
	execute(t, conn, "CREATE ROLE app LOGIN; CREATE TABLE public.a (id bigint); ALTER TABLE public.a OWNER TO app; SET password_encryption = 'md5'; CREATE ROLE old LOGIN PASSWORD 'old'")
	report, findings, err := CheckServer(t.Context(), conn, "cleave")
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "problems", codesOf(findings, api.Problem), "max_prepared_transactions role wal_level")
	warnings := "md5_passwords"
	if report.Major() < subscribersSince {
		warnings += " subscriptions"
	}
	expect(t, "warnings", codesOf(findings, api.Warning), warnings)
	for _, f := range findings {
		switch {
		case NeedsRestart(f) && !strings.HasPrefix(f.Hint, "ALTER SYSTEM SET "+f.Code):
			t.Errorf("the hint for %s is %q", f.Code, f.Hint)
		case f.Code == "role":
			execute(t, conn, strings.ReplaceAll(f.Hint, "…", "secret"))
		case f.Code == "subscriptions":
			execute(t, conn, f.Hint)
		}
	}
	if _, findings, err = CheckServer(t.Context(), conn, "cleave"); err != nil {
		t.Fatal(err)
	}
	expect(t, "problems when the role is there", codesOf(findings, api.Problem), "max_prepared_transactions wal_level")
	expect(t, "warnings when the role is there", codesOf(findings, api.Warning), "md5_passwords")
	execute(t, conn, "CREATE ROLE weak NOLOGIN")
	if _, findings, err = CheckServer(t.Context(), conn, "weak"); err != nil {
		t.Fatal(err)
	}
	expect(t, "problems of a role without rights", codesOf(findings, api.Problem), "max_prepared_transactions ownership privileges replication role session_replication_role wal_level")
}

// TestTheRoleThatMayMoveRows: whatever the version, what makes the role lets it make subscriptions too, or says what does.
func TestTheRoleThatMayMoveRows(t *testing.T) {
	for major, want := range map[int]string{15: "ALTER ROLE \"cleave\" SUPERUSER;", 16: "pg_create_subscription TO \"cleave\";", 18: "pg_create_subscription TO \"cleave\";"} {
		var hints strings.Builder
		for _, f := range (&rights{}).findings("cleave", "shop", major) {
			hints.WriteString(f.Hint)
		}
		if !strings.Contains(hints.String(), want) || strings.Contains(hints.String(), "GRANT  TO") {
			t.Errorf("on PostgreSQL %d it says %s", major, hints.String())
		}
	}
}

// TestTheCatalogue is read as it is.
func TestTheCatalogue(t *testing.T) {
	conn := connect(t, pgtest.Start(t), nil)
	execute(t, conn, `
		CREATE SCHEMA "Odd one";
		CREATE TABLE public.parents (id bigserial PRIMARY KEY, "Code" varchar(9) UNIQUE DEFERRABLE INITIALLY DEFERRED);
		CREATE SEQUENCE public.loose;
		CREATE TABLE "Odd one"."Children" (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, number bigint NOT NULL DEFAULT nextval('public.loose'), parent_id bigint CONSTRAINT up REFERENCES public.parents ON DELETE SET NULL,
			half bigint GENERATED ALWAYS AS (parent_id / 2) STORED, note text CHECK (note <> ''));
		CREATE UNIQUE INDEX by_lower ON "Odd one"."Children" (lower(note)) WHERE note IS NOT NULL;
		CREATE FUNCTION public.touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
		CREATE TRIGGER touch BEFORE INSERT ON "Odd one"."Children" FOR EACH ROW EXECUTE FUNCTION public.touch();
		CREATE TABLE public.parts (id bigint, at date) PARTITION BY RANGE (at);
		CREATE TABLE public.part_1 PARTITION OF public.parts FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
		CREATE VIEW public.seen AS SELECT 1 AS one;
		SELECT lo_create(0);
		INSERT INTO public.parents ("Code") SELECT 'c' || i FROM generate_series(1, 10) i;
		INSERT INTO "Odd one"."Children" (parent_id) VALUES (1), (NULL);
		ANALYZE`)
	c, err := Read(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, table := range c.Tables {
		names = append(names, table.String())
	}
	expect(t, "tables", strings.Join(names, "\n"), "\"Odd one\".\"Children\"\npublic.parents\npublic.parts")
	children, parents := c.Tables[0], c.Tables[1]
	id, number, parent, half := children.Column("id"), children.Column("number"), children.Column("parent_id"), children.Column("half")
	if id.Sequence != `"Odd one"."Children_id_seq"` || !id.SequenceOwned || number.Sequence != "public.loose" || number.SequenceOwned {
		t.Errorf("sequences: %+v, %+v", id, number)
	}
	if parent.NotNull || parent.NullFraction != 0.5 || !half.Generated || half.family() != "" || parents.Column("Code").family() != "text" {
		t.Errorf("columns: %+v, %+v", parent, half)
	}
	if f := children.ForeignKeys[0]; f.Name != "up" || f.Target() != parents.ID() || f.OnDelete != "n" || !f.Valid {
		t.Errorf("the foreign key is %+v", f)
	}
	if u := children.Uniques; len(u) != 2 || u[0].Kind != "p" || u[1].Name != "by_lower" || u[1].Plain {
		t.Errorf("unique are %+v", u)
	}
	if u := parents.Uniques[1]; !u.Deferrable || !u.Deferred || u.Kind != "u" {
		t.Errorf("the unique constraint is %+v", u)
	}
	if len(children.Functions) != 1 || children.Functions[0].Identity != "public.touch()" || children.Triggers[0] != "touch" || len(children.Checks) != 1 {
		t.Errorf("functions and triggers: %+v, %v, %v", children.Functions, children.Triggers, children.Checks)
	}
	if parents.Rows != 10 || !c.Tables[2].Partitioned || c.Views != 1 || c.LargeObjects != 1 {
		t.Errorf("the rest: %d rows, %+v, %d views, %d large objects", parents.Rows, c.Tables[2], c.Views, c.LargeObjects)
	}
}

// TestMendingThatCannotGoOn says which rows are in the way, and goes on when they are not any more; nobody else mends meanwhile.
func TestMendingThatCannotGoOn(t *testing.T) {
	server := pgtest.Start(t)
	m := &Mender{}
	conn := connect(t, server, m.Hear)
	execute(t, conn, `
		CREATE TABLE public.owners (id bigserial PRIMARY KEY, name text, a text, b text, c text);
		CREATE TABLE public.things (id bigserial PRIMARY KEY, owner_id bigint NOT NULL REFERENCES public.owners);
		CREATE TABLE public.parts (first int, second text, thing_id bigint, other_id bigint REFERENCES public.things, PRIMARY KEY (second, first));
		INSERT INTO public.owners (name) SELECT 'o' FROM generate_series(1, 10);
		INSERT INTO public.things (owner_id) SELECT 1 + i % 10 FROM generate_series(1, 100) i;
		INSERT INTO public.parts SELECT i, 's' || i % 7, 1 + i % 100, NULL FROM generate_series(1, 5001) i;
		UPDATE public.parts SET thing_id = NULL WHERE first = 4711`)
	c, err := Read(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	c.named("parts").Column("thing_id").NullFraction = 0 // the statistics have not heard of the one
	plan, _, err := Propose(c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "kinds", plan.kinds(), "owners sharded by id\nparts sharded by owner_id from things by thing_id\nthings sharded by owner_id")
	m.Conn, m.Plan = conn, plan
	_, err = m.Run(t.Context())
	var failed *StepError
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), "a row of public.parts has no owner_id") || !strings.Contains(failed.Hint, `SELECT * FROM public.parts WHERE "owner_id" IS NULL`) {
		t.Fatalf("with a row that refers to nothing: %v", err)
	}
	if filled := m.filled.Load(); filled != 5000 {
		t.Errorf("%d rows were filled in", filled)
	}
	second := &Mender{Conn: connect(t, server, nil), Plan: plan}
	if _, err := second.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "somebody else is mending") {
		t.Errorf("two mend side by side: %v", err)
	}
	execute(t, conn, "UPDATE public.parts SET thing_id = 1 WHERE first = 4711; UPDATE public.parts SET other_id = 3 WHERE first = 1") // of another owner, perhaps
	execute(t, conn, "UPDATE public.parts p SET other_id = p.thing_id WHERE first <> 1; UPDATE public.parts p SET other_id = (SELECT id FROM public.things t WHERE t.owner_id <> p.owner_id LIMIT 1) WHERE first = 1")
	crossings, err := FindCrossings(t.Context(), conn, readAgain(t, conn), plan)
	if err != nil || len(crossings) == 0 {
		t.Fatalf("crossings: %v, %v", crossings, err)
	}
	if _, err = m.Run(t.Context()); !errors.As(err, &failed) || failed.Step.phase != validatesForeignKey {
		t.Fatalf("with a row that refers to another's: %v", err)
	}
	execute(t, conn, "UPDATE public.parts p SET other_id = p.thing_id WHERE first = 1")
	if _, err := m.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := Assess(readAgain(t, conn), plan, nil)
	if err := Verify(t.Context(), conn, plan, a); err != nil {
		t.Fatal(err)
	}
	expect(t, "obstacles of the mended database", a.codes(), "")
	checkTrigger(t, conn)
}

// TestRowsThatCouldNotBeMoved: what moves would refuse is told before anything is declared, and mended where that can be done.
func TestRowsThatCouldNotBeMoved(t *testing.T) {
	server := pgtest.Start(t)
	m := &Mender{}
	conn := connect(t, server, m.Hear)
	execute(t, conn, `
		CREATE DOMAIN public.lo AS oid;
		CREATE TABLE public.owners (id bigserial PRIMARY KEY, name text, a text, b text, c text);
		CREATE TABLE public.tags (owner_id bigint NOT NULL REFERENCES public.owners, tag text);
		CREATE UNIQUE INDEX tags_once ON public.tags (owner_id, tag);
		CREATE TABLE public.marks (LIKE public.tags);
		CREATE UNIQUE INDEX marks_once ON public.marks (owner_id, tag DESC);
		CREATE TABLE public.words (owner_id bigint NOT NULL REFERENCES public.owners, word text NOT NULL);
		CREATE UNIQUE INDEX words_once ON public.words (owner_id, word COLLATE "C");
		CREATE TABLE public.beginnings (LIKE public.words);
		CREATE UNIQUE INDEX beginnings_once ON public.beginnings (owner_id, word text_pattern_ops);
		ALTER TABLE public.marks ADD FOREIGN KEY (owner_id) REFERENCES public.owners; ALTER TABLE public.beginnings ADD FOREIGN KEY (owner_id) REFERENCES public.owners;
		CREATE TABLE public.notes (owner_id bigint NOT NULL REFERENCES public.owners, note text);
		CREATE TABLE public.turns (id bigint PRIMARY KEY DEFERRABLE, owner_id bigint NOT NULL REFERENCES public.owners);
		CREATE TABLE public.files (id bigserial PRIMARY KEY, owner_id bigint NOT NULL REFERENCES public.owners, content public.lo);
		CREATE TABLE public.blobs (owner_id bigint NOT NULL REFERENCES public.owners, id bigint NOT NULL, content oid, PRIMARY KEY (owner_id, id));
		CREATE UNLOGGED TABLE public.seen (id bigserial PRIMARY KEY, owner_id bigint NOT NULL REFERENCES public.owners);
		CREATE TABLE public.log (text text);
		INSERT INTO public.owners (name) SELECT 'o' FROM generate_series(1, 10);
		INSERT INTO public.tags SELECT 1 + i % 10, 't' || i FROM generate_series(1, 30) i;
		INSERT INTO public.notes SELECT 1 + i % 10, 'same' FROM generate_series(1, 5000) i;
		INSERT INTO public.turns SELECT i, 1 + i % 10 FROM generate_series(1, 30) i;
		INSERT INTO public.blobs VALUES (1, 1, lo_create(987654))`)
	plan, _, err := Propose(readAgain(t, conn), Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := Assess(readAgain(t, conn), plan, nil)
	expect(t, "obstacles", a.codes(), `
		beginnings no_primary_key
		blobs large_object_column !
		files large_object_column !
		files unique
		marks no_primary_key
		notes no_primary_key !
		seen unique
		seen unlogged !
		tags no_primary_key
		turns deferrable_primary_key !
		words no_primary_key`)
	for table, column := range map[string]string{"notes": "row_id", "turns": "id"} {
		if err := plan.SetPrimaryKey(topology.TableName{Schema: "public", Name: table}, []string{column}); err != nil {
			t.Fatal(err)
		}
	}
	execute(t, conn, "SELECT lo_unlink(content) FROM public.blobs; ALTER TABLE public.files ALTER COLUMN content TYPE oid; ALTER TABLE public.seen SET LOGGED")
	m.Conn, m.Plan = conn, plan
	if _, err := m.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	mended := readAgain(t, conn)
	a = Assess(mended, plan, nil)
	if err := Verify(t.Context(), conn, plan, a); err != nil {
		t.Fatal(err)
	}
	expect(t, "obstacles of the mended database", a.codes(), "")
	left, err := shard.Hindrances(t.Context(), conn, []string{"public.owners", "public.tags", "public.notes", "public.turns", "public.files", "public.seen", "public.log"}, 0)
	if err != nil || len(left) != 1 || left[0].Table != "public.log" {
		t.Errorf("what is left: %v, %v", left, err)
	}
	for table, want := range map[string]string{
		"marks": "marks_pkey (owner_id, tag)", "words": "words_pkey (owner_id, word)", "beginnings": "beginnings_pkey (owner_id, word)", "tags": "tags_once (owner_id, tag)",
		"notes": "notes_pkey (row_id, owner_id)", "turns": "turns_pkey (id)",
	} {
		if key := mended.named(table).primaryKey(); key == nil || fmt.Sprintf("%s (%s)", key.Name, strings.Join(key.Columns, ", ")) != want || key.Index != key.Name || key.Deferrable {
			t.Errorf("the primary key of %s is %+v, wanted %s", table, key, want)
		}
	}
	execute(t, conn, "INSERT INTO public.notes (owner_id, note) VALUES (1, 'same')") // as before: it is given a UUID
}

func readAgain(t *testing.T, conn *pgx.Conn) *Catalogue {
	t.Helper()
	c, err := Read(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// checkTrigger writes as an application that does not know the key: it is filled in, and follows the row that is referred to.
func checkTrigger(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	owner := func(sql string) (owner int64) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), sql+" RETURNING owner_id").Scan(&owner); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return owner
	}
	if got := owner("INSERT INTO public.parts (first, second, thing_id) VALUES (1, 'new', 5)"); got != 6 {
		t.Errorf("a new row is of owner %d", got)
	}
	if got := owner("UPDATE public.parts SET thing_id = 7 WHERE second = 'new'"); got != 8 {
		t.Errorf("a row that refers to another is of owner %d", got)
	}
	execute(t, conn, "UPDATE public.things SET owner_id = 3 WHERE id = 7") // and all that refers to it
	door, err := LookAtDoor(t.Context(), conn, "cleave")
	if err != nil {
		t.Fatal(err)
	}
	if len(door.Fillings) != 1 || door.Fillings[0].Table != "public.parts" || door.Fillings[0].Last.IsZero() {
		t.Errorf("the door knows of %+v", door.Fillings)
	}
}
