// Package adopting_test takes a database that programs write to all the time for the first shard of a cluster, as people do it, with the binary: the writers
// must not notice, until they use a router, and no row may be lost, changed or doubled.
package adopting_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/test/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// blog is a database as Rails makes it, with rows.
const blog = `
	CREATE TABLE countries (id bigserial PRIMARY KEY, code varchar NOT NULL UNIQUE);
	CREATE TABLE accounts (id bigserial PRIMARY KEY, name varchar NOT NULL, country_id bigint REFERENCES countries, owner_id bigint);
	CREATE TABLE users (id bigserial PRIMARY KEY, account_id bigint NOT NULL REFERENCES accounts, email varchar NOT NULL);
	CREATE UNIQUE INDEX index_users_on_email ON users (email);
	ALTER TABLE accounts ADD CONSTRAINT fk_rails_owner FOREIGN KEY (owner_id) REFERENCES users;
	CREATE TABLE posts (id bigserial PRIMARY KEY, account_id bigint REFERENCES accounts, user_id bigint NOT NULL REFERENCES users, title varchar, updated_at timestamp NOT NULL DEFAULT now());
	CREATE TABLE comments (id bigserial PRIMARY KEY, post_id bigint NOT NULL REFERENCES posts ON DELETE CASCADE, user_id bigint REFERENCES users ON DELETE SET NULL, parent_id bigint REFERENCES comments, body text);
	CREATE TABLE likes (comment_id bigint NOT NULL REFERENCES comments ON DELETE CASCADE, place int NOT NULL, PRIMARY KEY (comment_id, place));
	CREATE TABLE notes (comment_id bigint NOT NULL REFERENCES comments, text text);
	CREATE TABLE jobs (id bigserial PRIMARY KEY, handler text);
	CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.updated_at := now(); RETURN NEW; END';
	CREATE TRIGGER touch BEFORE UPDATE ON posts FOR EACH ROW EXECUTE FUNCTION touch();
	INSERT INTO countries (code) SELECT 'c' || i FROM generate_series(1, 20) i;
	INSERT INTO accounts (name, country_id) SELECT 'a' || i, 1 + i % 20 FROM generate_series(1, 50) i;
	INSERT INTO users (account_id, email) SELECT 1 + i % 50, 'u' || i || '@example.org' FROM generate_series(1, 200) i;
	UPDATE accounts a SET owner_id = (SELECT min(id) FROM users u WHERE u.account_id = a.id);
	INSERT INTO posts (account_id, user_id, title) SELECT u.account_id, u.id, 't' || i FROM generate_series(1, 2000) i JOIN users u ON u.id = 1 + i % 200;
	INSERT INTO comments (post_id, user_id, body) SELECT p.id, p.user_id, 'b' || i FROM generate_series(1, 20000) i JOIN posts p ON p.id = 1 + i % 2000;
	UPDATE comments SET parent_id = id - 2000 WHERE id > 18000;
	INSERT INTO likes SELECT 1 + i % 20000, i / 20000 FROM generate_series(0, 29999) i;
	INSERT INTO notes SELECT 1 + i % 20000, 'n' || i FROM generate_series(0, 4999) i;
	INSERT INTO jobs (handler) VALUES ('one');
	ANALYZE`

// program is the binary with the cluster and the database that it is told of.
type program struct {
	path, api, dsn string
}

// run runs 'cleave adopt', or another command, and returns what it said and its exit code.
func (p program) run(t *testing.T, args ...string) (said string, code int) {
	t.Helper()
	command := exec.Command(p.path, args...)
	command.Env = append(os.Environ(), "CLEAVE_API="+p.api)
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(output), command.ProcessState.ExitCode()
}

// must runs a command that ends with this exit code, and returns what it said.
func (p program) must(t *testing.T, wantCode int, args ...string) string {
	t.Helper()
	said, code := p.run(t, args...)
	if code != wantCode {
		t.Fatalf("cleave %s ended with %d:\n%s", strings.Join(args, " "), code, said)
	}
	return said
}

// adopt runs 'cleave adopt', which must go well, or be refused.
func (p program) adopt(t *testing.T, wantCode int, args ...string) string {
	t.Helper()
	return p.must(t, wantCode, append([]string{"adopt", "--dsn", p.dsn, "--user", "postgres"}, args...)...)
}

func says(t *testing.T, said string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
}

// writer writes as an application does that knows nothing of shards, or that has learnt to give the key.
type writer struct {
	keyed   bool
	think   time.Duration // between two rounds
	stop    context.CancelFunc
	running sync.WaitGroup
	rounds  atomic.Int64
	mu      sync.Mutex
	failed  error
	written map[int64]string // bodies of comments, by id
}

// write begins to write at an address, with so many connections.
func write(t *testing.T, dsn, mark string, connections int) *writer {
	t.Helper()
	return begin(t, &writer{think: 20 * time.Millisecond}, dsn, mark, connections) // or few processors would do nothing else than that
}

// writeKeyed is write for an application that gives the key.
func writeKeyed(t *testing.T, dsn, mark string, connections int) *writer {
	t.Helper()
	return begin(t, &writer{keyed: true, think: 100 * time.Millisecond}, dsn, mark, connections)
}

func begin(t *testing.T, w *writer, dsn, mark string, connections int) *writer {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	w.stop, w.written = stop, map[int64]string{}
	for i := range connections {
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		config.RuntimeParams["application_name"] = "blog " + mark
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		w.running.Go(func() {
			defer conn.Close(context.Background())
			for round := 0; ctx.Err() == nil; round++ {
				if err := w.round(conn, int64(1+(i*61+round)%200), fmt.Sprintf("%s %d %d", mark, i, round)); err != nil {
					w.mu.Lock()
					w.failed = errors.Join(w.failed, fmt.Errorf("%s: %w", mark, err))
					w.mu.Unlock()
					return
				}
				w.rounds.Add(1)
				time.Sleep(w.think)
			}
		})
	}
	t.Cleanup(stop)
	return w
}

// round is what happens to the application once: a post, a comment on it, a like; others are changed.
func (w *writer) round(conn *pgx.Conn, user int64, body string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var account, post, comment int64
	if err := conn.QueryRow(ctx, "SELECT account_id FROM users WHERE id = $1", user).Scan(&account); err != nil {
		return err
	}
	if err := conn.QueryRow(ctx, "INSERT INTO posts (account_id, user_id, title) VALUES ($1, $2, $3) RETURNING id", account, user, body).Scan(&post); err != nil {
		return err
	}
	insertComment, arguments := "INSERT INTO comments (post_id, user_id, body) VALUES ($1, $2, $3) RETURNING id", []any{post, user, body}
	insertLike, like := "INSERT INTO likes VALUES ($1, 0)", []any{nil}
	if w.keyed {
		insertComment, arguments = "INSERT INTO comments (account_id, post_id, user_id, body) VALUES ($4, $1, $2, $3) RETURNING id", append(arguments, account)
		insertLike, like = "INSERT INTO likes (account_id, comment_id, place) VALUES ($2, $1, 0)", append(like, account)
	}
	if err := conn.QueryRow(ctx, insertComment, arguments...).Scan(&comment); err != nil {
		return err
	}
	w.mu.Lock()
	w.written[comment] = body
	w.mu.Unlock()
	like[0] = comment
	for _, change := range []struct {
		sql       string
		arguments []any
	}{
		{insertLike, like},
		{"UPDATE notes SET text = text || '!' WHERE comment_id = $1", []any{user}},
		{"UPDATE posts SET title = title || '!' WHERE id = $1", []any{post}},
		{"UPDATE comments SET parent_id = NULL WHERE id = $1", []any{18000 + user}},
		{"DELETE FROM likes WHERE comment_id = $1 AND place = 1", []any{user}},
	} {
		if _, err := conn.Exec(ctx, change.sql, change.arguments...); err != nil {
			return fmt.Errorf("%s: %w", change.sql, err)
		}
	}
	return countFixed(ctx, conn)
}

// countFixed counts rows that nobody adds or deletes: as many are seen at every moment, wherever they are just then.
func countFixed(ctx context.Context, conn *pgx.Conn) error {
	var users, notes, ids int64
	if err := conn.QueryRow(ctx, "SELECT count(*), sum(id) FROM users").Scan(&users, &ids); err != nil {
		return fmt.Errorf("count users: %w", err)
	}
	if err := conn.QueryRow(ctx, "SELECT count(*) FROM notes").Scan(&notes); err != nil {
		return fmt.Errorf("count notes: %w", err)
	}
	if users != 200 || ids != 200*201/2 || notes != 5000 {
		return fmt.Errorf("there are %d users, whose ids are %d in sum, and %d notes", users, ids, notes)
	}
	return nil
}

// goOn waits until so many more rounds are done, or one has failed.
func (w *writer) goOn(t *testing.T, rounds int64) {
	t.Helper()
	want := w.rounds.Load() + rounds
	cluster.Eventually(t, "writers go on", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.failed != nil || w.rounds.Load() >= want
	})
	w.check(t)
}

func (w *writer) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		t.Fatal(w.failed)
	}
}

// end stops the writers.
func (w *writer) end(t *testing.T) {
	t.Helper()
	w.stop()
	w.running.Wait()
	w.check(t)
}

func dsnOf(address string) string {
	return "postgres://postgres@" + address + "/postgres?sslmode=disable"
}

// sums are what the tables hold, by whichever way they are read.
func sums(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	var text strings.Builder
	for _, query := range []string{
		"SELECT count(*), sum(id), sum(hashtext(name)) FROM accounts", "SELECT count(*), sum(id), sum(hashtext(email)) FROM users", "SELECT count(*), sum(id % 1000003), sum(hashtext(title)) FROM posts",
		"SELECT count(*), sum(id % 1000003), sum(hashtext(body)) FROM comments", "SELECT count(*), sum(comment_id % 1000003), sum(place) FROM likes", "SELECT count(*), sum(comment_id), sum(hashtext(text)) FROM notes",
		"SELECT count(*), sum(id), sum(hashtext(code)) FROM countries", "SELECT count(*), sum(id), sum(hashtext(handler)) FROM jobs",
		"SELECT count(*), sum(c.id % 1000003), sum(p.id % 1000003) FROM likes l JOIN comments c ON c.id = l.comment_id JOIN posts p ON p.id = c.post_id JOIN users u ON u.id = p.user_id JOIN accounts a ON a.id = u.account_id JOIN countries o ON o.id = a.country_id",
	} {
		var count, ids, contents int64
		if err := conn.QueryRow(t.Context(), query).Scan(&count, &ids, &contents); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		fmt.Fprintln(&text, query, count, ids, contents)
	}
	return text.String()
}

// expectWritten compares what writers have been told with what is there.
func expectWritten(t *testing.T, conn *pgx.Conn, writers ...*writer) {
	t.Helper()
	rows, err := conn.Query(t.Context(), "SELECT id, body FROM comments WHERE body NOT LIKE 'b%'")
	if err != nil {
		t.Fatal(err)
	}
	found := map[int64]string{}
	var id int64
	var body string
	if _, err := pgx.ForEachRow(rows, []any{&id, &body}, func() error {
		found[id] = body
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, w := range writers {
		count += len(w.written)
		for id, body := range w.written {
			if found[id] != body {
				t.Fatalf("comment %d is %q, and was written as %q", id, found[id], body)
			}
		}
	}
	if len(found) != count {
		t.Errorf("%d comments were written, and %d are there", count, len(found))
	}
}

func dial(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// found starts a server with the database, and a cluster without shards beside it.
func found(t *testing.T, schema string) (*cluster.Router, program) {
	t.Helper()
	server := pgtest.Start(t)
	conn := dial(t, dsnOf(server.Addr()))
	if _, err := conn.Exec(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	router := cluster.StartRouters(t, 0, 1).Routers[0]
	path, err := cluster.Binary()
	if err != nil {
		t.Fatal(err)
	}
	return router, program{path: path, api: router.API.BaseURL, dsn: dsnOf(server.Addr())}
}

// TestADatabaseIsAdoptedWhileItIsWrittenTo from the first look to four shards, and back to three.
func TestADatabaseIsAdoptedWhileItIsWrittenTo(t *testing.T) {
	router, p := found(t, blog)
	direct := write(t, p.dsn, "direct", 3)
	plan := filepath.Join(t.TempDir(), "plan.json")

	said := p.adopt(t, 0, "--plan", plan)
	says(t, said, "by the key of public.accounts (bigint)", "! its rows could not be moved to another shard: it has no primary key", "Next: --mend runs")
	says(t, p.adopt(t, 1, "--plan", plan, "--apply"), "something stands in the way of the tables, and nothing was changed", "public.comments: it has no column account_id", "public.notes: its rows could not be moved")
	says(t, p.adopt(t, 0, "--plan", plan, "--primary-key", "notes.row_id"), "0 that you have to decide", "add the column row_id, which tells rows apart")
	says(t, p.adopt(t, 0, "--sql", "--plan", plan), `CREATE UNIQUE INDEX CONCURRENTLY "posts_pkey_cleave"`, "DO $adopt$")
	interruptMending(t, p, plan)
	direct.goOn(t, 20)
	says(t, p.adopt(t, 0, "--mend", "--plan", plan), "Nothing stands in the way of the tables any more")
	direct.goOn(t, 20)

	says(t, p.adopt(t, 0, "--plan", plan, "--apply"), "The database is shard shard1", "Keyspace accounts (bigint)", "blog direct", router.Listen)
	says(t, p.adopt(t, 0, "--plan", plan, "--apply"), "is shard shard1 of the cluster already")
	direct.goOn(t, 20)
	routed := write(t, dsnOf(router.Listen), "routed", 2)
	routed.goOn(t, 20)
	direct.goOn(t, 20)
	says(t, p.adopt(t, 1, "--plan", plan, "--apply", "--final"), "the tables are not declared yet", "blog direct as postgres")
	direct.goOn(t, 5)
	direct.end(t)

	says(t, p.adopt(t, 0, "--check-door"), "Nobody is connected to database postgres past the routers", "A row of public.comments came without its shard key", "No row of public.notes has come", "reject")
	says(t, p.adopt(t, 0, "--plan", plan, "--apply", "--final"), "Table public.comments is sharded by account_id in keyspace accounts", "Table public.countries is a reference table", "0 rows moved", "Before a second shard is added")
	routed.goOn(t, 20)
	says(t, p.adopt(t, 0, "--plan", plan, "--apply", "--final"), "is shard shard1 of the cluster already")
	says(t, p.adopt(t, 0, "--plan", plan), "The tables are declared")
	routed.end(t)

	shard, through := dial(t, p.dsn), dial(t, dsnOf(router.Listen))
	if there, here := sums(t, shard), sums(t, through); there != here {
		t.Errorf("the shard has\n%s\nand the router shows\n%s", there, here)
	}
	expectWritten(t, through, direct, routed)
	refuses(t, shard, "CL002", "INSERT INTO posts (account_id, user_id, title) VALUES (1, 50, 'past the router')")
	servers := pgtest.StartN(t, 3)
	routed.written[addSecond(t, p, servers[0], through)] = "third"
	toFour(t, p, router, servers, []*writer{direct, routed})
}

// interruptMending lets mending begin, and interrupts it, twice: each time it says that it can go on.
func interruptMending(t *testing.T, p program, plan string) {
	t.Helper()
	for _, after := range []time.Duration{300 * time.Millisecond, 1200 * time.Millisecond} {
		command := exec.Command(p.path, "adopt", "--dsn", p.dsn, "--user", "postgres", "--plan", plan, "--mend")
		var said strings.Builder
		command.Stdout, command.Stderr = &said, &said
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after)
		_ = command.Process.Signal(os.Interrupt) // it may have ended by itself
		if err := command.Wait(); err != nil && !strings.Contains(said.String(), "interrupted: ") {
			t.Fatalf("interrupted mending ended with %v:\n%s", err, said.String())
		}
	}
}

func refuses(t *testing.T, conn *pgx.Conn, code, statement string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), statement)
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != code {
		t.Errorf("%s: %v, wanted %s", statement, err, code)
	}
}

// addSecond adds a shard, after which who inserts has to say whose a row is. It returns the comment that it has made.
func addSecond(t *testing.T, p program, second *localpg.Server, through *pgx.Conn) (comment int64) {
	t.Helper()
	before := sums(t, through)
	says(t, p.must(t, 0, "shard", "add", "shard2", "--address", second.Addr()), "It owns nothing yet")
	if after := sums(t, through); after != before {
		t.Errorf("with two shards there is\n%s\ninstead of\n%s", after, before)
	}
	if err := through.QueryRow(t.Context(), "INSERT INTO comments (account_id, post_id, body) SELECT account_id, id, 'third' FROM posts WHERE id = 7 RETURNING id").Scan(&comment); err != nil {
		t.Fatal(err)
	}
	refuses(t, through, "23502", "INSERT INTO comments (post_id, body) VALUES (7, 'fourth')")
	mustExec(t, through, "UPDATE posts SET title = 'again' WHERE id = 7")
	for _, table := range []string{"comments", "likes", "notes"} { // when nobody needs them any more
		mustExec(t, through, "DROP TRIGGER fill_shard_key ON "+table)
	}
	mustExec(t, through, "INSERT INTO likes (account_id, comment_id, place) SELECT account_id, id, 9 FROM comments WHERE id = 7")
	return comment
}

func mustExec(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// TestWhatCannotBeKept: foreign keys that cross from key to key are found by looking at rows, and are given up only if somebody says so; tables that nothing
// becomes of may be left.
func TestWhatCannotBeKept(t *testing.T) {
	_, p := found(t, `
		CREATE TABLE users (id bigserial PRIMARY KEY, name text, email text, since date, more text);
		CREATE TABLE entries (id bigserial PRIMARY KEY, user_id bigint NOT NULL REFERENCES users);
		CREATE TABLE likes (id bigserial PRIMARY KEY, entry_id bigint NOT NULL REFERENCES entries, user_id bigint NOT NULL REFERENCES users);
		CREATE TABLE events (id bigserial, at timestamptz NOT NULL, user_id bigint NOT NULL, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
		CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2020-01-01') TO ('2030-01-01');
		CREATE TABLE small (id smallserial PRIMARY KEY, user_id bigint NOT NULL);
		INSERT INTO users (name) SELECT 'u' FROM generate_series(1, 100);
		INSERT INTO entries (user_id) SELECT 1 + i % 100 FROM generate_series(1, 1000) i;
		INSERT INTO likes (entry_id, user_id) SELECT 1 + i % 1000, 1 + i % 97 FROM generate_series(1, 5000) i;
		INSERT INTO events (at, user_id) SELECT '2025-01-01', 1 + i % 100 FROM generate_series(1, 500) i;
		INSERT INTO small (user_id) SELECT i FROM generate_series(1, 100) i;
		ANALYZE`)
	plan := filepath.Join(t.TempDir(), "plan.json")
	says(t, p.adopt(t, 0, "--plan", plan), "its foreign key likes_entry_id_fkey crosses from one key to another: of 2000 rows", "too few to be divided among shards")
	says(t, p.adopt(t, 0, "--plan", plan, "--drop-foreign-key", "likes.likes_entry_id_fkey", "--mend"), "drop the foreign key likes_entry_id_fkey, as was decided", "Mended, but for 1 thing")
	says(t, p.adopt(t, 1, "--plan", plan, "--apply"), "public.small: its column id takes numbers of type smallint")
	says(t, p.adopt(t, 0, "--plan", plan, "--apply", "--final", "--skip-blocked"), "left as they are: public.small", "Table public.events is sharded by user_id", "Table public.likes is sharded by user_id")
	says(t, p.adopt(t, 0, "--plan", plan, "--format", "json"), `"shard": "shard1"`, `"declared": true`, `"code": "small_serial"`)
}
