package session

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/thorough"
)

// empty takes the rows out of the tables of all servers.
func (w *world) empty(t *testing.T) {
	t.Helper()
	servers := []*pgx.Conn{connectTo(t, w.plain.Addr())}
	for i := range w.shards {
		servers = append(servers, w.onShard(t, i+1))
	}
	for _, conn := range servers {
		execute(t, conn, "TRUNCATE orders, undeclared")
	}
}

// sameRows wants the shards together to have the rows of the plain server, and each only its own.
func (w *world) sameRows(t *testing.T) {
	t.Helper()
	const query = "SELECT id || ' ' || coalesce(note, 'NULL') FROM orders ORDER BY id"
	rows := func(conn *pgx.Conn) []string {
		found, err := conn.Query(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		return must[[]string](t)(pgx.CollectRows(found, pgx.RowTo[string]))
	}
	want := rows(connectTo(t, w.plain.Addr()))
	got := map[string]bool{}
	for i := range w.shards {
		for _, row := range rows(w.onShard(t, i+1)) {
			if got[row] {
				t.Errorf("row %q is on two shards", row)
			}
			got[row] = true
		}
	}
	missing := map[string]bool{}
	for _, row := range want {
		missing[row] = true
	}
	if diff := cmp.Diff(missing, got); diff != "" {
		t.Errorf("PostgreSQL (-) and the shards (+) have other rows:\n%s", diff)
	}
}

// nothingPrepared wants no shard to have a prepared transaction.
func (w *world) nothingPrepared(t *testing.T) {
	t.Helper()
	for i := range w.shards {
		if n := one[int](t, w.onShard(t, i+1), "SELECT count(*) FROM pg_prepared_xacts"); n > 0 {
			t.Errorf("shard %d has %d prepared transactions", i+1, n)
		}
	}
}

// TestTransactionsOnSeveralShards: what a transaction does is one, wherever its statements go.
func TestTransactionsOnSeveralShards(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{})
	a, b, c := text(w.key(t, 1, 0)), text(w.key(t, 2, 0)), text(w.key(t, 2, 1))
	insert := func(id, note string) string { return fmt.Sprintf("INSERT INTO orders VALUES (%s, '%s')", id, note) }
	read := func(id string) string { return "SELECT * FROM orders WHERE id = " + id }
	write := func(id string) []pgproto3.FrontendMessage {
		return unnamed("INSERT INTO orders VALUES ($1, $2)", id, "x")
	}
	for name, steps := range map[string][]step{
		"committed":               texts("BEGIN", insert(a, "x"), insert(b, "y"), read(a), read(b), "COMMIT", read(a), read(b)),
		"rolled back":             texts("BEGIN", insert(a, "x"), insert(b, "y"), "ROLLBACK", read(a), read(b)),
		"an error on the second":  texts("BEGIN", insert(a, "x"), insert(b, "y"), insert(b, "z"), read(a), "COMMIT", read(a), read(b)),
		"an error on the first":   texts("BEGIN", insert(a, "x"), insert(b, "y"), insert(a, "z"), read(b), read(a), "ROLLBACK", read(a)),
		"with the home shard":     texts("BEGIN", "INSERT INTO undeclared VALUES (1, 'x')", insert(b, "y"), "SELECT * FROM undeclared", read(b), "COMMIT", "SELECT * FROM undeclared", read(b)),
		"back to a savepoint":     texts("BEGIN", insert(a, "x"), "SAVEPOINT s", insert(b, "y"), "ROLLBACK TO s", read(b), insert(c, "z"), "COMMIT", read(a), read(b), read(c)),
		"back to one before both": texts("BEGIN", "SAVEPOINT s", insert(a, "x"), insert(b, "y"), "ROLLBACK TO s", read(a), read(b), insert(b, "z"), "COMMIT", read(a), read(b)),
		"back after an error": texts("BEGIN", insert(a, "x"), insert(b, "y"), "SAVEPOINT s", insert(c, "z"), insert(a, "again"), read(b), "ROLLBACK TO s", read(c), read(b), "RELEASE s", read(a), "COMMIT",
			read(a), read(b), read(c)),
		"an unknown savepoint": texts("BEGIN", insert(a, "x"), insert(b, "y"), "ROLLBACK TO s", read(a), "ROLLBACK", read(a)),
		"released":             texts("BEGIN", "SAVEPOINT s", insert(a, "x"), "RELEASE s", insert(b, "y"), "ROLLBACK TO s", "COMMIT", read(a), read(b)),
		"nested savepoints":    texts("BEGIN", "SAVEPOINT s", insert(a, "x"), "SAVEPOINT s", insert(b, "y"), "ROLLBACK TO s", "RELEASE s", insert(c, "z"), "ROLLBACK TO s", insert(b, "w"), "COMMIT", read(a), read(b), read(c)),
		"settings": texts("BEGIN", insert(a, "x"), "SET LOCAL TimeZone = 'Asia/Tokyo'", read(b), "SHOW TimeZone", read(a), "SHOW TimeZone", "SET work_mem = '1MB'", read(b), "COMMIT",
			"SHOW work_mem", "SHOW TimeZone", read(b), "SHOW work_mem"),
		"settings taken back":         texts("BEGIN", insert(a, "x"), "SET TimeZone = 'Asia/Tokyo'", insert(b, "x"), "ROLLBACK", "SHOW TimeZone", read(b), "SHOW TimeZone"),
		"a role":                      texts("BEGIN", "SET LOCAL ROLE pg_write_all_data", insert(a, "x"), insert(b, "y"), "COMMIT", "SELECT current_user", read(a), read(b)),
		"chained":                     texts("BEGIN", insert(a, "x"), insert(b, "y"), "COMMIT AND CHAIN", insert(c, "z"), "ROLLBACK AND CHAIN", read(c), read(a), "COMMIT", read(b)),
		"read only":                   texts("BEGIN READ ONLY", read(a), read(b), insert(b, "x"), "ROLLBACK", "BEGIN", "SET TRANSACTION READ ONLY", read(a), insert(b, "x"), "ROLLBACK"),
		"repeatable read":             texts("BEGIN ISOLATION LEVEL REPEATABLE READ", read(a), "SHOW transaction_isolation", read(b), "SHOW transaction_isolation", "COMMIT"),
		"begun in a text":             texts("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1", read(a), insert(b, "x"), "SHOW transaction_isolation", "COMMIT", read(b)),
		"prepared statements":         texts("PREPARE p(bigint, text) AS INSERT INTO orders VALUES ($1, $2)", "BEGIN", "EXECUTE p("+a+", 'x')", "EXECUTE p("+b+", 'y')", "COMMIT", read(a), read(b)),
		"one text":                    texts(insert(a, "x")+"; "+insert(b, "y")+"; "+read(a)+"; "+read(b), read(a), read(b)),
		"one text with an error":      texts(insert(a, "x")+"; "+insert(b, "y")+"; "+insert(b, "z")+"; "+read(a), read(a), read(b)),
		"one text with a block":       texts("BEGIN; "+insert(a, "x")+"; "+insert(b, "y")+"; COMMIT; "+read(b), read(a)),
		"a block left open":           texts("BEGIN; "+insert(a, "x")+"; "+insert(b, "y"), read(a), "ROLLBACK", read(a), read(b)),
		"a block begun later":         texts(insert(a, "x")+"; "+insert(b, "y")+"; BEGIN; "+insert(c, "z"), read(a), "ROLLBACK", read(a), read(c)),
		"a text in a transaction":     texts("BEGIN", insert(a, "x"), insert(b, "y")+"; "+read(a)+"; "+read(b), "COMMIT", read(b)),
		"a text ends it":              texts("BEGIN", insert(a, "x"), insert(b, "y"), "COMMIT; "+read(a), read(b)),
		"a pipeline":                  {sent(pipeline(write(a), write(b), write(c), sync1)...), query(read(a)), query(read(b)), query(read(c))},
		"a pipeline with an error":    {sent(pipeline(write(a), write(b), write(b), write(c), sync1)...), query(read(a)), query(read(b)), query(read(c))},
		"a pipeline in a transaction": {query("BEGIN"), sent(pipeline(write(a), write(b), sync1)...), sent(pipeline(write(c), unnamed("COMMIT"), sync1)...), query(read(a)), query(read(b)), query(read(c))},
		"a pipeline that commits": {
			sent(pipeline(unnamed("BEGIN"), write(a), write(b), unnamed("COMMIT"), unnamed("BEGIN"), write(c), unnamed("ROLLBACK"), sync1)...), query(read(a)), query(read(b)), query(read(c)),
		},
		"a pipeline with savepoints": {
			sent(pipeline(unnamed("BEGIN"), write(a), unnamed("SAVEPOINT s"), write(b), unnamed("ROLLBACK TO s"), write(c), unnamed("COMMIT"), sync1)...), query(read(a)), query(read(b)), query(read(c)),
		},
		"portals on two shards": {
			query(insert(a, "x")), query(insert(b, "y")), query("BEGIN"),
			sent(parse("q", "SELECT note FROM orders WHERE id = $1"), bind("pa", "q", a), bind("pb", "q", b), sync1),
			sent(run("pa"), sync1), sent(run("pb"), sync1), query("COMMIT"),
		},
		"home and another in a pipeline": {sent(pipeline(unnamed("INSERT INTO undeclared VALUES (1, 'x')"), write(b), unnamed("SELECT * FROM undeclared"), sync1)...), query(read(b))},
	} {
		t.Run(name, func(t *testing.T) {
			thorough.Some(t, 4)
			w.empty(t)
			w.sameAsPlain(t, steps...)
			w.sameRows(t)
			w.nothingPrepared(t)
		})
	}
}

// TestSavepointsOfOneName: whichever shards the changes between them are on, the name means the last one that is still there.
func TestSavepointsOfOneName(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{})
	for _, between := range []string{
		"SAVEPOINT a; 1; SAVEPOINT a; 2; ROLLBACK TO a; RELEASE a; 3; ROLLBACK TO a",
		"SAVEPOINT a; 1; SAVEPOINT b; SAVEPOINT a; 2; ROLLBACK TO b; 3; ROLLBACK TO a",
		"SAVEPOINT a; 1; SAVEPOINT b; SAVEPOINT a; 2; RELEASE b; 3; ROLLBACK TO a",
		"SAVEPOINT a; 1; SAVEPOINT a; 2; RELEASE a; SET LOCAL work_mem = '2MB'; 3; ROLLBACK TO a; ROLLBACK TO a; 3",
	} {
		const changes = 4
		for places := range 1 << changes {
			var ids [changes]string
			for i := range ids {
				ids[i] = text(w.key(t, 1+places>>i&1, i))
			}
			steps := []string{"DELETE FROM orders", "INSERT INTO orders VALUES (" + strings.Join(ids[:], ", ''), (") + ", '')", "BEGIN"}
			for step := range strings.SplitSeq("0; "+between, "; ") {
				if n, err := strconv.Atoi(step); err == nil {
					step = "UPDATE orders SET note = note || '+' WHERE id = " + ids[n]
				}
				steps = append(steps, step)
			}
			w.sameButOrder(t, texts(append(steps, "SHOW work_mem", "COMMIT", "SELECT * FROM orders")...)...)
			if t.Failed() {
				t.Fatalf("%s, with changes on shards by the bits of %b", between, places)
			}
		}
	}
}

// TestSerializableStaysOnOneShard: each shard alone would be serializable, and both together would not.
func TestSerializableStaysOnOneShard(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	a, b := text(w.key(t, 1, 0)), text(w.key(t, 2, 0))
	for name, begin := range map[string][]string{
		"by BEGIN": {"BEGIN ISOLATION LEVEL SERIALIZABLE"}, "by SET": {"BEGIN", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"},
		"by default": {"SET default_transaction_isolation = 'serializable'", "BEGIN"},
	} {
		t.Run(name, func(t *testing.T) {
			client := dialRaw(t, w.address, nil)
			for _, sql := range begin {
				client.query(sql)
			}
			client.query("SELECT * FROM orders WHERE id = " + a)
			wantCodes(t, client.query("SELECT * FROM orders WHERE id = "+b), "0A000", "ready E")
			client.query("ROLLBACK")
		})
	}
}

// TestTransactionThatLosesAShard: what the other shards did is undone.
func TestTransactionThatLosesAShard(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	a, b := text(w.key(t, 1, 0)), text(w.key(t, 2, 0))
	end := func(shard int) {
		execute(t, w.onShard(t, shard), "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'")
	}
	for name, shard := range map[string]int{"the one at work": 2, "one that is set aside": 1} {
		t.Run(name, func(t *testing.T) {
			client := dialRaw(t, w.address, nil)
			client.query("BEGIN")
			client.query("INSERT INTO orders VALUES (" + a + ", 'x')")
			client.query("INSERT INTO orders VALUES (" + b + ", 'x')")
			end(shard)
			said := strings.Join(client.query("COMMIT"), "\n")
			if !strings.Contains(said, "ERROR") || strings.Contains(said, "done COMMIT") {
				t.Errorf("COMMIT said %s", said)
			}
			client.query("ROLLBACK")
			for _, number := range []int{1, 2} {
				if n := one[int](t, w.onShard(t, number), "SELECT count(*) FROM orders"); n != 0 {
					t.Errorf("shard %d has %d rows", number, n)
				}
			}
			w.nothingPrepared(t)
			w.settled(t)
		})
	}
}

// TestDefinitionThatLosesAShard: where another shard has refused the definition, a savepoint does not bring back what the lost one had done before it.
func TestDefinitionThatLosesAShard(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, shards: 3})
	first, second, third := text(w.key(t, 1, 0)), text(w.key(t, 2, 0)), text(w.key(t, 3, 0))
	execute(t, w.onShard(t, 2), "INSERT INTO orders VALUES ("+second+", 'bad')")
	reader := w.onShard(t, 3)
	execute(t, reader, "BEGIN; LOCK TABLE orders IN ACCESS SHARE MODE")
	client := dialRaw(t, w.address, nil)
	client.query("BEGIN")
	client.query("INSERT INTO orders VALUES (" + first + ", 'x')")
	client.query("INSERT INTO orders VALUES (" + third + ", 'x')")
	client.query("SAVEPOINT s")
	definition := "ALTER TABLE orders ADD CONSTRAINT good CHECK (note <> 'bad')"
	said := make(chan []string)
	go func() { said <- client.query(definition) }()
	admin := w.onShard(t, 3)
	running(t, admin, "ALTER TABLE")
	execute(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'ALTER TABLE%'")
	wantCodes(t, <-said, "23514", "ready E")
	wantCodes(t, client.query("ROLLBACK TO s"), "3B001", "ready E")
	if said := strings.Join(client.query("COMMIT"), " "); !strings.Contains(said, "ROLLBACK") {
		t.Errorf("COMMIT said %s", said)
	}
	execute(t, reader, "ROLLBACK")
	for _, number := range []int{1, 3} {
		if n := one[int](t, w.onShard(t, number), "SELECT count(*) FROM orders"); n != 0 {
			t.Errorf("shard %d has %d rows", number, n)
		}
	}
	w.nothingPrepared(t)
	w.settled(t)
}

// TestCommitThatFails: a deferred check on one shard undoes all of them.
func TestCommitThatFails(t *testing.T) {
	t.Parallel()
	for name, deferred := range map[string]int{"where it is prepared": 2, "where it is committed": 1} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, worldConfig{noPlain: true})
			execute(t, w.onShard(t, deferred), "ALTER TABLE orders ADD CONSTRAINT once UNIQUE (note) DEFERRABLE INITIALLY DEFERRED")
			client := dialRaw(t, w.address, nil)
			client.query("BEGIN")
			for n := range 2 {
				for number := range 2 {
					client.query(fmt.Sprintf("INSERT INTO orders VALUES (%d, 'same')", w.key(t, number+1, n)))
				}
			}
			wantCodes(t, client.query("COMMIT"), "23505", "ready I")
			for number := range 2 {
				if n := one[int](t, w.onShard(t, number+1), "SELECT count(*) FROM orders"); n != 0 {
					t.Errorf("shard %d has %d rows", number+1, n)
				}
			}
			w.nothingPrepared(t)
			w.settled(t)
		})
	}
}
