package session

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/internal/txn"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestConsistentReadsAnswerAsBefore: with snapshots opened on all shards at once, a transaction does what it would do without.
func TestConsistentReadsAnswerAsBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3})
	a, b, c := text(w.key(t, 1, 0)), text(w.key(t, 2, 0)), text(w.key(t, 3, 0))
	read := func(id string) string { return "SELECT * FROM orders WHERE id = " + id }
	insert := func(id string) string { return "INSERT INTO orders VALUES (" + id + ", 'x')" }
	const begin = "BEGIN ISOLATION LEVEL REPEATABLE READ"
	for name, steps := range map[string][]step{
		"reads":                     texts(insert(a), insert(b), begin, read(a), read(b), read(c), "SELECT * FROM orders", "SHOW transaction_isolation", "COMMIT"),
		"reads of another first":    texts(insert(c), begin, read(c), read(a), "COMMIT"),
		"writes":                    texts(begin, insert(a), insert(c), read(a), "COMMIT", read(a), read(c)),
		"writes alone":              texts(begin, insert(b), "COMMIT", read(b)),
		"rolled back":               texts(begin, insert(a), insert(c), "ROLLBACK", read(a), read(c)),
		"an error":                  texts(begin, insert(a), "SELECT 1/0", read(b), "COMMIT", read(a)),
		"an error at first":         texts(begin, "SELECT 1/0", read(b), "ROLLBACK", read(a)),
		"savepoints":                texts(begin, "SAVEPOINT s", insert(a), "ROLLBACK TO s", insert(b), "SAVEPOINT q", insert(c), "RELEASE q", "COMMIT", read(a), read(b), read(c)),
		"settings before":           texts(begin, "SET LOCAL TimeZone = 'Asia/Tokyo'", read(b), "SHOW TimeZone", "COMMIT", "SHOW TimeZone"),
		"read only":                 texts(begin+" READ ONLY", read(a), insert(b), "ROLLBACK", begin+", READ ONLY, DEFERRABLE", read(a), "COMMIT"),
		"by SET TRANSACTION":        texts("BEGIN", "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", read(a), insert(b), "COMMIT", read(b)),
		"by default":                texts("SET default_transaction_isolation = 'repeatable read'", "BEGIN", read(a), insert(b), "COMMIT", read(b), "SELECT * FROM orders", "RESET default_transaction_isolation"),
		"chained":                   texts(begin, insert(a), "COMMIT AND CHAIN", read(a), insert(b), "SHOW transaction_isolation", "ROLLBACK", read(b)),
		"without a transaction":     texts(insert(a), insert(b), "SELECT * FROM orders", "SELECT note FROM orders WHERE id IN ("+a+", "+b+")"),
		"a failed one without":      texts(insert(a), insert(b), "SELECT 1/(id - id) FROM orders", "SELECT * FROM orders"),
		"read committed":            texts("BEGIN", read(a), insert(b), read(b), "COMMIT", read(b)),
		"the home shard":            texts(begin, "SELECT * FROM undeclared", "INSERT INTO undeclared VALUES (1, 'x')", insert(b), "COMMIT", "SELECT * FROM undeclared"),
		"a text":                    texts(begin+"; "+insert(a)+"; "+insert(b)+"; COMMIT", read(a), read(b)),
		"begun in a text":           texts(begin+"; SELECT 1", read(a), insert(b), "COMMIT", read(b)),
		"nothing in it":             texts(begin, "COMMIT", begin, "ROLLBACK"),
		"a prepared statement":      {query("PREPARE p(bigint) AS SELECT * FROM orders WHERE id = $1"), query(insert(b)), query(begin), query("EXECUTE p(" + b + ")"), query("EXECUTE p(" + a + ")"), query("COMMIT")},
		"a pipeline":                {query(insert(b)), sent(pipeline(unnamed(begin), unnamed("SELECT * FROM orders WHERE id = $1", b), unnamed("SELECT * FROM orders WHERE id = $1", a), unnamed("COMMIT"), sync1)...)},
		"the extended protocol":     {query(insert(b)), query(begin), sent(pipeline(unnamed("SELECT * FROM orders WHERE id = $1", b), sync1)...), sent(pipeline(unnamed("SELECT * FROM orders"), sync1)...), query("COMMIT")},
		"the extended one, without": {query(insert(b)), query(insert(a)), sent(pipeline(unnamed("SELECT * FROM orders"), sync1)...), query(read(a))},
	} {
		t.Run(name, func(t *testing.T) {
			thorough.Some(t, 4)
			w.empty(t)
			on := append(texts("SET cleave.consistent_reads = on"), steps...)
			w.sameButOrder(t, on...)
			w.nothingPrepared(t)
			w.settled(t)
		})
	}
}

func TestSettingConsistentReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	client := dialRaw(t, w.address, nil)
	shows := func(want string) {
		t.Helper()
		if said := client.query("SHOW cleave.consistent_reads"); !slices.Contains(said, `row "`+want+`"`) {
			t.Errorf("want %s, shown is %q", want, said)
		}
	}
	shows("off")
	for value, want := range map[string]string{"on": "on", "'f'": "off", "TRUE": "on", "0": "off", "yes": "on", "DEFAULT": "off"} {
		client.query("SET cleave.consistent_reads = " + value)
		shows(want)
	}
	client.query("RESET cleave.consistent_reads")
	wantCodes(t, client.query("SET cleave.consistent_reads = maybe"), "22023", "ready I")
	for _, sql := range []string{"BEGIN", "SET LOCAL cleave.consistent_reads = on"} {
		client.query(sql)
	}
	shows("on")
	client.query("COMMIT")
	shows("off")
	client.query("SET cleave.consistent_reads = on")
	client.query("DISCARD ALL")
	shows("off")
	const on, off = "SET cleave.consistent_reads = on", "SET cleave.consistent_reads = off"
	const onLocally, offLocally = "SET LOCAL cleave.consistent_reads = on", "SET LOCAL cleave.consistent_reads = off"
	for _, c := range []struct{ sql, inside, after string }{
		{"BEGIN; " + on, "on", "COMMIT on"},
		{"BEGIN; " + on, "on", "ROLLBACK off"},
		{"BEGIN; SELECT note FROM orders; " + on, "on", "ROLLBACK off"},
		{"BEGIN; SELECT note FROM orders; " + on, "on", "COMMIT on"},
		{"BEGIN; SAVEPOINT a; " + on + "; ROLLBACK TO a", "off", "COMMIT off"},
		{"BEGIN; SELECT note FROM orders; SAVEPOINT a; " + on + "; ROLLBACK TO a", "off", "COMMIT off"},
		{"BEGIN; " + onLocally + "; SAVEPOINT a; " + offLocally + "; ROLLBACK TO a", "on", "COMMIT off"},
		{"BEGIN; " + on + "; " + offLocally, "off", "COMMIT on"},
		{"BEGIN; " + on + "; RESET ALL", "off", "COMMIT off"},
		{on + "; BEGIN; RESET ALL", "off", "ROLLBACK on"},
		{on + "; RESET ALL; BEGIN", "off", "COMMIT off"},
	} {
		client.query(off)
		for sql := range strings.SplitSeq(c.sql, "; ") {
			client.query(sql)
		}
		shows(c.inside)
		end, after, _ := strings.Cut(c.after, " ")
		client.query(end)
		if said := client.query("SHOW cleave.consistent_reads"); !slices.Contains(said, `row "`+after+`"`) {
			t.Errorf("%s; %s: want %s, shown is %q", c.sql, end, after, said)
		}
	}
	if said := strings.Join(client.query(onLocally), " "); !strings.Contains(said, "25P01") {
		t.Errorf("outside a transaction it says %q", said)
	}
	client = dialRaw(t, w.address, map[string]string{"options": "-c cleave.consistent_reads=on"})
	shows("on")
	client.query("SET cleave.consistent_reads = off")
	client.query("DISCARD ALL")
	shows("on")
}

// TestHalfOfATransactionIsNotShown: it is decided on one shard and prepared on another, and stays so because somebody died.
func TestHalfOfATransactionIsNotShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	a, b := w.key(t, 1, 0), w.key(t, 2, 0)
	client := w.client(t)
	execute(t, client, "INSERT INTO orders VALUES ($1, 'old'), ($2, 'old')", a, b)
	execute(t, client, "SET cleave.consistent_reads = on")
	notes := func() string {
		rows, err := client.Query(t.Context(), "SELECT note FROM orders")
		if err != nil {
			return err.Error()
		}
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err.Error()
		}
		return strings.Join(all, " ")
	}
	if got := notes(); got != "old old" {
		t.Fatalf("at first there is %q", got)
	}
	prepare, decide, finish := parted(t, w, a, b)
	prepare()
	if got := notes(); got != "old old" {
		t.Errorf("before the decision there is %q", got)
	}
	decide()
	read := make(chan string)
	go func() { read <- notes() }()
	time.Sleep(300 * time.Millisecond)
	finish()
	if got := <-read; got != "new new" {
		t.Errorf("a reader that came in between saw %q", got)
	}
	w.nothingPrepared(t)
}

// parted makes the notes of two orders new in one transaction, in the steps of a router that may die between them.
func parted(t testing.TB, w *world, a, b int64) (prepare, decide, finish func()) {
	first, second := w.onShard(t, 1), w.onShard(t, 2)
	gid := fmt.Sprintf("cleave/%s/1/%d/1/1/router/random", clusterID[:8], first.PgConn().PID())
	write := func(conn *pgx.Conn, key int64) {
		execute(t, conn, "SET cleave.router = 'by hand'")
		execute(t, conn, "BEGIN")
		execute(t, conn, fmt.Sprintf("UPDATE orders SET note = 'new' WHERE id = %d", key))
	}
	var xid string
	prepare = func() {
		write(second, b)
		xid = one[string](t, second, strings.Replace(txn.NoteStatement, "xid", "xid::text", 1), gid, "{1,2}")
		execute(t, second, "PREPARE TRANSACTION '"+gid+"/1'")
	}
	decide = func() {
		write(first, a)
		execute(t, first, txn.DecideStatement, gid, "{1,2}", "{0,"+xid+"}")
		execute(t, first, "COMMIT")
	}
	return prepare, decide, func() { execute(t, second, "COMMIT PREPARED '"+gid+"/1'") }
}

// TestNoWayAroundTheSnapshots: however a transaction begins whose reads are to be consistent, it has snapshots of all shards or does not get to a second one.
func TestNoWayAroundTheSnapshots(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	a, b := w.key(t, 1, 0), w.key(t, 2, 0)
	execute(t, w.client(t), "INSERT INTO orders VALUES ($1, 'old'), ($2, 'old')", a, b)
	prepare, decide, finish := parted(t, w, a, b)
	prepare()
	decide()
	const begin = "BEGIN ISOLATION LEVEL REPEATABLE READ"
	readFirst, readSecond := fmt.Sprintf("SELECT note FROM orders WHERE id = %d", a), fmt.Sprintf("SELECT note FROM orders WHERE id = %d", b)
	const readBoth = "SELECT note FROM orders"
	const on, comment = "SET cleave.consistent_reads = on", "COMMENT ON TABLE orders IS 'x'"
	t.Run("blocks", func(t *testing.T) { // at a time: most of them wait
		for name, c := range map[string]struct {
			steps []string
			code  string // of the last
		}{
			"BEGIN by itself":           {[]string{on, begin, readFirst}, "40001"},
			"BEGIN in a text":           {[]string{on, begin + "; " + readFirst}, "40001"},
			"a chained transaction":     {[]string{on, begin + "; COMMIT AND CHAIN; " + readFirst}, "40001"},
			"a definition":              {[]string{on, begin, comment}, "40001"},
			"a lock":                    {[]string{on, begin, "LOCK TABLE orders IN ACCESS SHARE MODE"}, "0A000"},
			"a lock on one shard":       {[]string{on, begin, "LOCK TABLE undeclared IN ACCESS SHARE MODE"}, "0A000"},
			"turned on behind a read":   {[]string{begin, readFirst, on, readSecond}, "0A000"},
			"for the transaction alone": {[]string{begin, readFirst, "SET LOCAL cleave.consistent_reads = on", readSecond}, "0A000"},
			"on several shards":         {[]string{begin, readBoth, on, readBoth}, "0A000"},
			"on one of several shards":  {[]string{begin, readBoth, on, readFirst}, "0A000"},
			"back to a savepoint":       {[]string{on, begin, "SAVEPOINT a", "SET LOCAL cleave.consistent_reads = off", readBoth, "ROLLBACK TO a", readBoth}, "0A000"},
		} {
			t.Run(name, func(t *testing.T) {
				thorough.Some(t, 6)
				t.Parallel()
				client := dialRaw(t, w.address, nil)
				last := len(c.steps) - 1
				for _, sql := range c.steps[:last] {
					if said := strings.Join(client.query(sql), " "); strings.Contains(said, "ERROR") {
						t.Errorf("%s said %s", sql, said)
					}
				}
				wantCodes(t, client.query(c.steps[last]), c.code, "ready E")
			})
		}
	})
	t.Run("outside blocks", func(t *testing.T) {
		for name, steps := range map[string][]string{
			"SELECT": {on, readBoth}, "EXECUTE": {"PREPARE p AS " + readBoth, on, "EXECUTE p"}, "COPY": {on, "COPY orders TO STDOUT"},
		} {
			t.Run(name, func(t *testing.T) {
				thorough.Some(t, 6)
				t.Parallel()
				client := dialRaw(t, w.address, nil)
				last := len(steps) - 1
				for _, sql := range steps[:last] {
					client.query(sql)
				}
				wantCodes(t, client.query(steps[last]), "40001", "ready I")
				if said := client.query("SELECT 1"); !slices.Contains(said, `row "1"`) {
					t.Errorf("the next answer is %q", said)
				}
			})
		}
	})
	t.Run("a pipeline", func(t *testing.T) {
		client := dialRaw(t, w.address, nil)
		client.query(on)
		client.query("SET default_transaction_isolation = 'repeatable read'")
		client.send(pipeline(unnamed(readFirst), &pgproto3.Flush{})...)
		client.replies(5)
		wantCodes(t, client.ask(pipeline(unnamed(readSecond), sync1)...), "0A000", "ready I")
	})
	finish()
	w.nothingPrepared(t)
}

// TestSumsAreRightWhileMoneyMoves: many transfers between shards, many readers, one sum.
func TestSumsAreRightWhileMoneyMoves(t *testing.T) {
	t.Parallel()
	const accounts, balance, writers = 24, 100, 6
	reads := 100
	if thorough.Asked() {
		reads = 300
	}
	w := newWorld(t, worldConfig{shards: 3, noPlain: true, setUp: []string{"CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL)"}, tables: []topology.TableSpec{{Name: "public.accounts", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"}}}})
	setup := w.client(t)
	for id := range accounts {
		execute(t, setup, "INSERT INTO accounts VALUES ($1, $2)", id, balance)
	}
	stop := make(chan struct{})
	var working sync.WaitGroup
	for n := range writers {
		conn := w.client(t)
		working.Go(func() {
			for i := n; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				from, to := (i*7+n)%accounts, (i*11+3*n+1)%accounts
				if from == to {
					continue
				}
				low, high := min(from, to), max(from, to)
				sql := fmt.Sprintf("BEGIN; UPDATE accounts SET balance = balance - 1 WHERE id = %d; UPDATE accounts SET balance = balance + 1 WHERE id = %d; COMMIT", low, high)
				if _, err := conn.Exec(t.Context(), sql); err != nil {
					t.Errorf("a transfer: %v", err)
					return
				}
			}
		})
	}
	reader := w.client(t)
	execute(t, reader, "SET cleave.consistent_reads = on")
	sum := func(rows pgx.Rows, err error) (total int) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		balances, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range balances {
			total += b
		}
		return total
	}
	for range reads {
		if got := sum(reader.Query(t.Context(), "SELECT balance FROM accounts")); got != accounts*balance {
			t.Fatalf("the sum is %d", got)
		}
		execute(t, reader, "BEGIN ISOLATION LEVEL REPEATABLE READ")
		for range 2 {
			if got := sum(reader.Query(t.Context(), "SELECT balance FROM accounts")); got != accounts*balance {
				t.Fatalf("the sum in a transaction is %d", got)
			}
		}
		execute(t, reader, "COMMIT")
	}
	close(stop)
	working.Wait()
	w.nothingPrepared(t)
}
