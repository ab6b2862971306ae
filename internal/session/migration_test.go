package session

import (
	"context"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/pgerr"

	"github.com/cleavedb/cleave/internal/thorough"
)

// migration is a text as tools that keep schemas send it: many definitions, and rows for what they define.
const migration = `
-- first; of all
CREATE TABLE accounts (id bigint PRIMARY KEY, name text NOT NULL, created timestamptz DEFAULT now());
/* a comment; */ CREATE TABLE entries (id bigint, account bigint NOT NULL, amount numeric(10,2) CHECK (amount > 0), PRIMARY KEY (account, id));
CREATE INDEX entries_amount ON entries (amount);
CREATE TYPE state AS ENUM ('open', 'closed');
CREATE TABLE tickets (id serial PRIMARY KEY, state state NOT NULL DEFAULT 'open', title varchar(40) UNIQUE);
CREATE TABLE notes (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ticket int REFERENCES tickets (id) ON DELETE CASCADE, body text);
CREATE VIEW open_tickets AS SELECT * FROM tickets WHERE state = 'open';
CREATE SEQUENCE counting START 5;
CREATE FUNCTION double(n int) RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT n * 2 $$;
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN NEW.title := upper(NEW.title); RETURN NEW; END $$;
CREATE TRIGGER touch BEFORE INSERT ON tickets FOR EACH ROW EXECUTE FUNCTION touch();
INSERT INTO tickets (title) VALUES ('first'), ('second');
INSERT INTO notes (ticket, body) SELECT id, title FROM tickets;
UPDATE tickets SET state = 'closed' WHERE title = 'FIRST';
ALTER TABLE tickets ADD COLUMN priority int NOT NULL DEFAULT 3;
ALTER TABLE tickets RENAME COLUMN priority TO prio;
ALTER TABLE accounts ADD CONSTRAINT named CHECK (name <> '');
COMMENT ON TABLE accounts IS 'who; pays';
CREATE SCHEMA extra;
CREATE TABLE extra.things (a int, b text DEFAULT 'x;y');
INSERT INTO extra.things (a) VALUES (1), (2);
CREATE TABLE counts AS SELECT state, count(*) FROM tickets GROUP BY state;
CREATE UNIQUE INDEX ON counts (state);
GRANT SELECT ON tickets TO PUBLIC;
CREATE TABLE parted (id int, at date) PARTITION BY RANGE (at);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
INSERT INTO parted VALUES (1, '2020-05-05');
ALTER TABLE orders ADD COLUMN owner text DEFAULT 'nobody';
INSERT INTO orders (id, owner) VALUES (1, 'x'), (2, DEFAULT), (3, 'y'), (4, 'z');
CREATE TABLE old_entries AS SELECT * FROM entries;
DROP TABLE parted_1;
SELECT double(3) AS six, (SELECT count(*) FROM notes) AS notes;
SELECT b FROM extra.things WHERE a = 2`

// TestMigrationsInOneText run as they do in PostgreSQL: all of it or nothing.
func TestMigrationsInOneText(t *testing.T) {
	t.Parallel()
	for name, texts := range map[string][]string{
		"as it is":              {migration, "SELECT title, state::text, prio FROM tickets"},
		"in a block":            {"BEGIN;" + migration + "; COMMIT", "SELECT title, state::text, prio FROM tickets"},
		"with an error at last": {migration + "; SELECT 1/0", "SELECT 1 FROM tickets", "SELECT 1 FROM extra.things", "SELECT owner FROM orders WHERE id = 1"},
		"rolled back":           {"BEGIN;" + migration + "; ROLLBACK", "SELECT 1 FROM tickets", "SELECT owner FROM orders WHERE id = 1"},
		"tables alone": {
			"CREATE TABLE a1 (a int); CREATE TABLE a2 (a int REFERENCES countries (name)); CREATE TABLE a3 (a int)", "SELECT 1 FROM a1",
			"CREATE TABLE a1 (a int primary key); CREATE TABLE a2 (a int REFERENCES a1); CREATE TABLE a3 (a int); CREATE TABLE a4 (a int)", "INSERT INTO a2 VALUES (1)",
			"INSERT INTO a1 VALUES (1); INSERT INTO a2 VALUES (1)", "DROP TABLE a2; DROP TABLE a1; DROP TABLE a1", "SELECT * FROM a2",
		},
		"blocks in the text": {"CREATE TABLE a1 (a int); BEGIN; CREATE TABLE a2 (a int); COMMIT; INSERT INTO a2 VALUES (1); SELECT * FROM a2", "SELECT * FROM a1"},
		"ends of blocks that nobody began": {
			"CREATE TABLE a1 (a int); CREATE VIEW v1 AS SELECT a FROM a1; COMMIT; CREATE TABLE a2 (a int); INSERT INTO a2 VALUES (1); ROLLBACK; SELECT 2", "SELECT * FROM v1", "SELECT * FROM a2",
			"INSERT INTO orders VALUES (1, 'x'), (2, 'y'), (3, 'z'), (4, 'z'); COMMIT; DELETE FROM orders; ROLLBACK; SELECT 2", "SELECT note FROM orders WHERE id = 3",
			"DELETE FROM orders; COMMIT AND CHAIN; SELECT 1", "SELECT note FROM orders WHERE id = 3", "DELETE FROM orders; ROLLBACK AND CHAIN",
		},
		"prepared statements": {"PREPARE p AS SELECT 7; DEALLOCATE p; PREPARE p AS SELECT 8; EXECUTE p", "SELECT 1; DEALLOCATE ALL; SELECT 2", "EXECUTE p"},
		"what is not known before": {
			"CREATE DOMAIN positive AS int CHECK (VALUE > 0); CREATE TABLE a1 (a positive); INSERT INTO a1 VALUES (1); INSERT INTO a1 VALUES (-1)", "SELECT * FROM a1",
			"CREATE FUNCTION plus(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1'; CREATE TABLE a1 (a int DEFAULT plus(1)); INSERT INTO a1 DEFAULT VALUES; SELECT a, plus(a) FROM a1",
			"SET search_path = pg_catalog; SELECT 1 FROM public.countries; SET search_path = public; SELECT 2 FROM countries", "SHOW search_path",
		},
	} {
		t.Run(name, func(t *testing.T) {
			thorough.Some(t, 3)
			w := newWorld(t, worldConfig{})
			steps := make([]step, len(texts))
			for i, text := range texts {
				steps[i] = query(text)
			}
			w.sameAsPlain(t, steps...)
		})
	}
}

// declaring answers for a function that declares a table, and notes whether the home shard has the table when it is called.
type declaring struct {
	fakeVirtual
	w    *world
	t    *testing.T
	seen []bool
}

func (d *declaring) Call(_ context.Context, call Call) (*string, *pgerr.Error) {
	if call.Function != "shard_table" {
		return nil, pgerr.New(pgerr.UndefinedFunction, "function cleave.%s does not exist", call.Function)
	}
	d.seen = append(d.seen, one[bool](d.t, d.w.onShard(d.t, 1), "SELECT to_regclass($1) IS NOT NULL", *call.Arguments[0].Text))
	done := "declared"
	return &done, nil
}

// TestDeclarationsInATextFollowTheirTables: what stands before them is committed, so that they find it.
func TestDeclarationsInATextFollowTheirTables(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	d := &declaring{t: t}
	d.w = newWorld(t, worldConfig{noPlain: true, config: Config{Virtual: d}})
	c := dialRaw(t, d.w.address, nil)
	said := strings.Join(c.query("CREATE TABLE a1 (id bigint primary key); SELECT cleave.shard_table('a1', 'id'); CREATE TABLE a2 (id bigint); SELECT cleave.shard_table('a2', 'id'); SELECT 5"), "\n")
	want := strings.Join([]string{
		"done CREATE TABLE", "NOTICE 00000 what stands before cleave.shard_table in the query string is committed", "columns shard_table:25:-1:-1:0", `row "declared"`, "done SELECT 1",
		"done CREATE TABLE", "NOTICE 00000 what stands before cleave.shard_table in the query string is committed", "columns shard_table:25:-1:-1:0", `row "declared"`, "done SELECT 1",
		"columns ?column?:23:4:-1:0", `row "5"`, "done SELECT 1", "ready I",
	}, "\n")
	if said != want {
		t.Errorf("said is:\n%s\nwant:\n%s", said, want)
	}
	if len(d.seen) != 2 || !d.seen[0] || !d.seen[1] {
		t.Errorf("the tables are seen: %v", d.seen)
	}
	said = strings.Join(c.query("BEGIN; CREATE TABLE a3 (id bigint); SELECT cleave.shard_table('a3', 'id'); COMMIT"), "\n")
	if !strings.Contains(said, "25001") || len(d.seen) != 2 {
		t.Errorf("in a block: %s", said)
	}
	c.query("ROLLBACK")
	said = strings.Join(c.query("CREATE TABLE a4 (id bigint); SELECT 1/0; SELECT cleave.shard_table('a4', 'id')"), "\n")
	if !strings.Contains(said, "22012") || len(d.seen) != 2 {
		t.Errorf("behind an error: %s", said)
	}
	d.w.settled(t)
}
