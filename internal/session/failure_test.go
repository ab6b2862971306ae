package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/pool"
	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

// lostCodes wants the one error of a backend that was lost, and these last words.
func lostCodes(t testing.TB, said []string, last string) {
	t.Helper()
	lost := false
	for _, s := range said {
		fields := strings.Fields(s)
		lost = lost || len(fields) > 1 && (fields[0] == "ERROR" || fields[0] == "FATAL") && (strings.HasPrefix(fields[1], "08") || strings.HasPrefix(fields[1], "57P"))
	}
	if !lost || said[len(said)-1] != last {
		t.Errorf("%q: want an error of class 08 or 57P, and then %q", said, last)
	}
}

// running waits until a shard runs a statement with this text.
func running(t testing.TB, admin *pgx.Conn, text string) {
	t.Helper()
	eventually(t, text+" runs", func() bool {
		return one[int](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE $1 AND state = 'active' AND pid <> pg_backend_pid() AND (query NOT LIKE '%sleep%' OR wait_event = 'PgSleep')", text+"%") == 1
	})
}

// terminate ends all connections to a shard but the one that asks for it.
func terminate(t testing.TB, admin *pgx.Conn) {
	t.Helper()
	execute(t, admin, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
}

// TestReplica: a server that is not promoted yet is no shard, and becomes one.
func TestReplica(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, shards: 2})
	conn := w.client(t)
	replica := pgtest.StartReplica(t, w.shards[0])
	w.pools.Apply(must[*topology.Map](t)(w.m.Next(topology.UpdateShard("s1", func(s *topology.ShardSpec) { s.Primary.Address = replica.Addr() }))))
	_, err := conn.Exec(t.Context(), "SELECT FROM orders WHERE id = $1", w.key(t, 1, 0))
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "57P03" || !strings.Contains(refused.Message, `"s1"`) || !strings.Contains(refused.Detail, "replica") || !strings.Contains(refused.Hint, "Promote") {
		t.Fatalf("a replica is refused with %+v", err)
	}
	if err := replica.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	write := func(number int) error {
		_, err := conn.Exec(t.Context(), "INSERT INTO orders VALUES ($1, 'x')", w.key(t, number, 0))
		return err
	}
	eventually(t, "the promoted server is used", func() bool { return write(1) == nil })
	execute(t, conn, "BEGIN")
	execute(t, conn, "UPDATE orders SET note = 'y'")
	if err := write(2); err != nil {
		t.Fatal(err)
	}
	execute(t, conn, "COMMIT")
	if gid := one[string](t, connectTo(t, replica.Addr()), "SELECT gid FROM cleave.commits WHERE decides"); strings.Split(gid, "/")[5] != "2" {
		t.Errorf("a transaction of the second timeline is called %s", gid)
	}
	w.settled(t)
}

// TestCrash: a shard that goes down fails what runs there, and sessions go on when it is back.
func TestCrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, shards: 2})
	key := w.key(t, 2, 0)
	keyed := fmt.Sprintf("SELECT pg_sleep(100) FROM orders WHERE id = %d", key)
	restart := func() error { return w.shards[1].Restart(t.Context()) }
	crash := func() {
		t.Helper()
		if err := w.shards[1].Crash(); err != nil {
			t.Fatal(err)
		}
		if err := restart(); err != nil {
			t.Fatal(err)
		}
	}
	admin := func() *pgx.Conn { return w.onShard(t, 2) }
	insert := fmt.Sprintf("INSERT INTO orders VALUES (%d, 'x')", key)
	idle, busy, inside := dialRaw(t, w.address, nil), dialRaw(t, w.address, nil), dialRaw(t, w.address, nil)
	idle.query(insert)
	inside.query("BEGIN")
	inside.query(fmt.Sprintf("UPDATE orders SET note = 'y' WHERE id = %d", key))
	busy.send(&pgproto3.Query{String: keyed})
	running(t, admin(), "SELECT pg_sleep")
	crash()

	lostCodes(t, busy.readyTimes(1), "ready I")
	lostCodes(t, inside.query(fmt.Sprintf("SELECT * FROM orders WHERE id = %d", key)), "ready E")
	wantCodes(t, inside.query("SELECT 1"), "25P02", "ready E")
	wantCodes(t, inside.query("ROLLBACK"), "", "ready I")
	for _, c := range []*rawClient{idle, busy, inside} {
		said := c.query(fmt.Sprintf("SELECT note FROM orders WHERE id = %d", key))
		if !strings.Contains(strings.Join(said, " "), `row "x"`) {
			t.Errorf("it does not go on: %q", said)
		}
	}
	// While it is down, what needs it fails, and the rest goes on.
	if err := w.shards[1].Crash(); err != nil {
		t.Fatal(err)
	}
	lostCodes(t, idle.query(fmt.Sprintf("SELECT note FROM orders WHERE id = %d", key)), "ready I")
	wantCodes(t, idle.query(fmt.Sprintf("SELECT note FROM orders WHERE id = %d", w.key(t, 1, 0))), "", "ready I")
	idle.query("BEGIN")
	lostCodes(t, idle.query(fmt.Sprintf("SELECT note FROM orders WHERE id = %d", key)), "ready E")
	wantCodes(t, idle.query("COMMIT"), "", "ready I")
	if err := restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shard is used again", func() bool {
		return strings.Contains(strings.Join(idle.query(fmt.Sprintf("SELECT note FROM orders WHERE id = %d", key)), " "), `row "x"`)
	})
	for _, c := range []*rawClient{idle, busy, inside} {
		_ = c.conn.Close()
	}
	w.settled(t)
}

// TestCrashInCopy: the rows that a client still sends go nowhere, and it can go on.
func TestCrashInCopy(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	c := dialRaw(t, w.address, nil)
	row := &pgproto3.CopyData{Data: []byte("1\tx\n")}
	for _, begin := range []string{"", "BEGIN"} {
		if begin != "" {
			c.query(begin)
		}
		c.send(&pgproto3.Query{String: "COPY undeclared FROM STDIN"}, row)
		c.replies(1)
		if err := w.shards[0].Crash(); err != nil {
			t.Fatal(err)
		}
		if err := w.shards[0].Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.send(row, row, &pgproto3.CopyDone{})
		if begin == "" {
			lostCodes(t, c.readyTimes(1), "ready I")
		} else {
			lostCodes(t, c.readyTimes(1), "ready E")
			c.query("ROLLBACK")
		}
		eventually(t, "the shard is used again", func() bool {
			return strings.Contains(strings.Join(c.query("SELECT count(*) FROM undeclared"), " "), `row "0"`)
		})
	}
	_ = c.conn.Close()
	w.settled(t)
}

// TestTerminatedBackends: somebody ends the router's connections.
func TestTerminatedBackends(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	admin := w.onShard(t, 1)
	t.Run("idle", func(t *testing.T) {
		c := dialRaw(t, w.address, nil)
		for range 5 {
			c.query("SELECT 1")
			terminate(t, admin)
			wantCodes(t, c.query("SELECT 1"), "", "ready I") // nobody notices
			wantCodes(t, c.ask(pipeline(unnamed("SELECT 1"), sync1)...), "", "ready I")
		}
	})
	t.Run("in a statement", func(t *testing.T) {
		c := dialRaw(t, w.address, nil)
		c.send(&pgproto3.Query{String: "SELECT pg_sleep(101)"})
		running(t, admin, "SELECT pg_sleep(101)")
		terminate(t, admin)
		lostCodes(t, c.readyTimes(1), "ready I")
		wantCodes(t, c.query("SELECT 1"), "", "ready I")
	})
	t.Run("in a pipeline", func(t *testing.T) {
		c := dialRaw(t, w.address, nil)
		c.send(pipeline(parse("a", "SELECT 1"), bind("", "a"), run(""), unnamed("SELECT pg_sleep(102)"), unnamed("SELECT 2"), sync1)...)
		running(t, admin, "SELECT pg_sleep(102)")
		terminate(t, admin)
		lostCodes(t, c.readyTimes(1), "ready I")
		wantCodes(t, c.ask(bind("", "a"), run(""), sync1), "", "ready I")
	})
	t.Run("after Flush", func(t *testing.T) {
		c := dialRaw(t, w.address, nil)
		c.send(pipeline(unnamed("SELECT pg_sleep(103)"), flush)...)
		running(t, admin, "SELECT pg_sleep(103)")
		terminate(t, admin)
		said := c.replies(4)
		lostCodes(t, said, said[len(said)-1])
		wantCodes(t, c.ask(pipeline(unnamed("SELECT 1"), sync1)...), "", "ready I")
		wantCodes(t, c.ask(pipeline(unnamed("SELECT 1"), sync1)...), "", "ready I")
	})
	t.Run("in a transaction", func(t *testing.T) {
		c := dialRaw(t, w.address, nil)
		c.query("BEGIN")
		c.query("SET TimeZone = 'Asia/Tokyo'")
		c.query("SELECT 2")
		terminate(t, admin)
		said := c.query("SELECT 1")
		lostCodes(t, said, "ready E")
		if !strings.Contains(strings.Join(said, ","), "parameter TimeZone=UTC") {
			t.Errorf("the client is not told that its setting is lost: %q", said)
		}
		wantCodes(t, c.query("SELECT 1"), "25P02", "ready E")
		wantCodes(t, c.query("COMMIT"), "", "ready I")
		if said := c.query("SHOW TimeZone"); !strings.Contains(strings.Join(said, " "), `row "UTC"`) {
			t.Errorf("a setting of a lost transaction is kept: %q", said)
		}
	})
	t.Run("pinned", func(t *testing.T) {
		for _, pin := range []string{"CREATE TEMP TABLE mine (a int)", "SELECT pg_advisory_lock(1)"} {
			c := dialRaw(t, w.address, nil)
			wantCodes(t, c.query(pin), "", "ready I")
			terminate(t, admin)
			said := c.query("SELECT 1")
			lostCodes(t, said, "the end")
		}
	})
	t.Run("listening", func(t *testing.T) {
		c := dialRaw(t, w.address, nil)
		wantCodes(t, c.query("LISTEN news"), "", "ready I")
		terminate(t, admin)
		lostCodes(t, c.readyTimes(1), "the end")
	})
	t.Run("in the middle of a row", func(t *testing.T) {
		c := dialRaw(t, w.address, nil)
		c.send(&pgproto3.Query{String: "SELECT repeat('x', 100000000)"})
		running(t, admin, "SELECT repeat")
		eventually(t, "it waits for the client", func() bool {
			return one[int](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT repeat%' AND wait_event = 'ClientWrite'") == 1
		})
		terminate(t, admin)
		said := c.readyTimes(1)
		if said[len(said)-1] != "the end" || len(said) > 2 {
			t.Errorf("after half a row it is said: %.200q", said)
		}
	})
	w.settled(t)
}

// TestPoolLimit: who finds no backend is told so after a while, and finds one when there is one.
func TestPoolLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, pools: pool.Config{QueueTimeout: 200 * time.Millisecond}})
	w.pools.SetLimit(1, 1)
	a, b := dialRaw(t, w.address, nil), dialRaw(t, w.address, nil)
	a.query("BEGIN")
	a.query("SELECT 1")
	wantCodes(t, b.query("SELECT 1"), "53300", "ready I")
	wantCodes(t, b.ask(pipeline(unnamed("SELECT 1"), unnamed("SELECT 2"), sync1)...), "53300", "ready I")
	b.query("BEGIN")
	wantCodes(t, b.query("SELECT 1"), "53300", "ready E")
	wantCodes(t, b.query("ROLLBACK"), "", "ready I")
	a.query("COMMIT")
	wantCodes(t, b.query("SELECT 1"), "", "ready I")
	_ = a.conn.Close()
	_ = b.conn.Close()
	w.settled(t)
}

// cancel asks for a client's statement to be cancelled, and returns when the router has done what it can.
func (w *world) cancel(t testing.TB, pid uint32, secret []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", w.address)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	request, _ := (&pgproto3.CancelRequest{ProcessID: pid, SecretKey: secret}).Encode(nil)
	if _, err := conn.Write(request); err != nil {
		t.Error(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a cancel request was answered: %v", err)
	}
}

// TestCancel: a statement that runs, one that waits for a backend, and nobody else's.
func TestCancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, pools: pool.Config{QueueTimeout: time.Minute}})
	admin := w.onShard(t, 1)
	t.Run("running", func(t *testing.T) {
		c := dialRaw(t, w.address, nil)
		c.send(&pgproto3.Query{String: "SELECT pg_sleep(104)"})
		running(t, admin, "SELECT pg_sleep(104)")
		w.cancel(t, c.pid, []byte{1, 2, 3, 4})
		w.cancel(t, c.pid+1000, c.secret)
		running(t, admin, "SELECT pg_sleep(104)")
		w.cancel(t, c.pid, c.secret)
		wantCodes(t, c.readyTimes(1), "57014", "ready I")
	})
	t.Run("in a transaction", func(t *testing.T) {
		c := dialRaw(t, w.address, nil)
		c.query("BEGIN")
		c.send(pipeline(unnamed("SELECT pg_sleep(105)"), sync1)...)
		running(t, admin, "SELECT pg_sleep(105)")
		w.cancel(t, c.pid, c.secret)
		wantCodes(t, c.readyTimes(1), "57014", "ready E")
		wantCodes(t, c.query("ROLLBACK"), "", "ready I")
	})
	t.Run("waiting", func(t *testing.T) {
		w.pools.SetLimit(1, 1)
		defer w.pools.SetLimit(1, 0)
		a, b := dialRaw(t, w.address, nil), dialRaw(t, w.address, nil)
		a.query("BEGIN")
		a.query("SELECT 1")
		b.send(&pgproto3.Query{String: "SELECT 1"})
		eventually(t, "it waits", func() bool { return w.pools.Stats()[0].Waiting == 1 })
		w.cancel(t, b.pid, b.secret)
		wantCodes(t, b.readyTimes(1), "57014", "ready I")
		a.query("COMMIT")
		wantCodes(t, b.query("SELECT 1"), "", "ready I")
	})
	t.Run("late", func(t *testing.T) {
		w.pools.SetLimit(1, 1)
		defer w.pools.SetLimit(1, 0)
		a, b := dialRaw(t, w.address, nil), dialRaw(t, w.address, nil)
		for range 30 {
			a.send(&pgproto3.Query{String: "SELECT 1"})
			cancelled := make(chan struct{})
			go func() {
				defer close(cancelled)
				w.cancel(t, a.pid, a.secret)
			}()
			a.readyTimes(1)
			if said := b.query("SELECT pg_sleep(0.01)"); !strings.Contains(strings.Join(said, " "), "done SELECT 1") {
				t.Fatalf("another client's statement was hit: %q", said)
			}
			<-cancelled
		}
	})
	t.Run("idle", func(t *testing.T) {
		c := dialRaw(t, w.address, nil)
		w.cancel(t, c.pid, c.secret)
		wantCodes(t, c.query("SELECT 1"), "", "ready I")
	})
}

// TestClientsThatLeave: whatever a client was in the middle of is undone, and its backend is free again.
func TestClientsThatLeave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	admin := w.onShard(t, 1)
	for name, begin := range map[string]func(*rawClient){
		"in a transaction": func(c *rawClient) { c.query("BEGIN; INSERT INTO undeclared VALUES (1, 'x')") },
		"before a shard":   func(c *rawClient) { c.query("BEGIN") },
		"in a pipeline": func(c *rawClient) {
			c.send(pipeline(unnamed("INSERT INTO undeclared VALUES (1, 'x')"), flush)...)
			c.replies(4)
		},
		"without Sync": func(c *rawClient) { c.send(unnamed("INSERT INTO undeclared VALUES (1, 'x')")...) },
		"in a long result": func(c *rawClient) {
			c.send(&pgproto3.Query{String: "SELECT repeat('x', 1000) FROM generate_series(1, 1000000)"})
			c.replies(10)
		},
		"in a message": func(c *rawClient) { c.write([]byte{'Q', 0, 0, 1, 0, 'S', 'E'}) },
		"in a cursor": func(c *rawClient) {
			c.query("BEGIN")
			c.query("DECLARE c CURSOR FOR SELECT generate_series(1, 1000)")
			c.query("FETCH 5 FROM c")
		},
	} {
		for _, politely := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, politely %t", name, politely), func(t *testing.T) {
				c := dialRaw(t, w.address, nil)
				begin(c)
				if politely {
					_, _ = c.conn.Write(encode(t, &pgproto3.Terminate{}))
				} else {
					_ = c.conn.(*net.TCPConn).SetLinger(0)
				}
				_ = c.conn.Close()
				w.settled(t)
				eventually(t, "no transaction is open", func() bool {
					return one[int](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND application_name LIKE 'cleave/%'") == 0
				})
				if n := one[int](t, admin, "SELECT count(*) FROM undeclared"); n != 0 {
					t.Errorf("%d rows were kept", n)
				}
			})
		}
	}
}

// TestBadMessages: whatever a client sends, it alone bears the consequences.
func TestBadMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, config: Config{MaxMessage: 1 << 20, StartupTimeout: 500 * time.Millisecond}})
	healthy := dialRaw(t, w.address, nil)
	ends := func(t *testing.T, c *rawClient) []string {
		t.Helper()
		said := c.readyTimes(1000)
		if said[len(said)-1] != "the end" {
			t.Errorf("the connection goes on: %q", said)
		}
		return said
	}
	t.Run("too long", func(t *testing.T) {
		c := dialRaw(t, w.address, nil)
		c.write([]byte{'Q', 0, 0x20, 0, 0, 'x'})
		wantCodes(t, ends(t, c), "54000", "the end")
	})
	t.Run("too short", func(t *testing.T) {
		c := dialRaw(t, w.address, nil)
		c.write([]byte{'Q', 0, 0, 0, 3, 'x'})
		wantCodes(t, ends(t, c), "08P01", "the end")
	})
	t.Run("unknown", func(t *testing.T) {
		c := dialRaw(t, w.address, nil)
		c.write([]byte{'!', 0, 0, 0, 4})
		wantCodes(t, ends(t, c), "08P01", "the end")
	})
	for _, kind := range []byte("QPBDECSHFdcfp") {
		for _, body := range []string{"", "x", "\x00", "S", "Sx", "\x00\x00\xff\xff", "a\x00SELECT 1\x00\xff\xff", "\x00\x00\x00\x01\x00\x01\x00\x02", "\x00\x00\x00\x00\x00\x01\xff\xff\xff\x00", strings.Repeat("\xff", 40)} {
			t.Run(fmt.Sprintf("%c with %q", kind, body), func(t *testing.T) {
				c := dialRaw(t, w.address, nil)
				c.query("BEGIN; INSERT INTO undeclared VALUES (1, 'x')")
				size := len(body) + 4
				c.write(append([]byte{kind, 0, 0, 0, byte(size)}, body...))
				_, _ = c.conn.Write(encode(t, &pgproto3.Sync{}, &pgproto3.Terminate{}))
				ends(t, c)
			})
		}
	}
	for name, bytes := range map[string]string{
		"an HTTP request": "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "zeros": strings.Repeat("\x00", 100), "a huge packet": "\x7f\xff\xff\xff\x00\x03\x00\x00", "a tiny one": "\x00\x00\x00\x04",
		"nothing": "", "TLS without asking": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "half a packet": "\x00\x00\x00\x20\x00\x03\x00\x00user", "an old protocol": "\x00\x00\x00\x09\x00\x02\x00\x00\x00",
		"no user": "\x00\x00\x00\x09\x00\x03\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			c := newRaw(t, w.address)
			c.write([]byte(bytes))
			_ = c.conn.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.Copy(io.Discard, c.conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection stays open")
			}
		})
	}
	wantCodes(t, healthy.query("SELECT 1"), "", "ready I")
	_ = healthy.conn.Close()
	w.settled(t)
	if n := one[int](t, w.onShard(t, 1), "SELECT count(*) FROM undeclared"); n != 0 {
		t.Errorf("%d rows were kept", n)
	}
}

// TestManyClientsThatLeave: clients come, and go in the middle of anything.
func TestManyClientsThatLeave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, pools: pool.Config{PerShard: 20}})
	texts := []string{
		"SELECT pg_sleep(0.005)", "SELECT repeat('x', 1000) FROM generate_series(1, 2000)", "BEGIN; INSERT INTO undeclared VALUES (1, 'x')", "SELECT 1/0", "COPY undeclared FROM STDIN",
		fmt.Sprintf("INSERT INTO orders VALUES (%d, 'x') ON CONFLICT DO NOTHING", w.key(t, 2, 0)), "BEGIN", "SELEKT", "SET TimeZone = 'Asia/Tokyo'", "CREATE TEMP TABLE mine (a int)",
	}
	var clients sync.WaitGroup
	for i := range 300 {
		random := rand.New(rand.NewPCG(1, uint64(i)))
		clients.Go(func() { w.visit(random, texts) })
	}
	clients.Wait()
	w.settled(t)
	c := dialRaw(t, w.address, nil)
	wantCodes(t, c.query("SELECT 1"), "", "ready I")
	_ = c.conn.Close()
	for _, number := range []int{1, 2} {
		admin := w.onShard(t, number)
		eventually(t, "no transaction is open", func() bool {
			return one[int](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'") == 0
		})
	}
	if n := one[int](t, w.onShard(t, 1), "SELECT count(*) FROM undeclared"); n != 0 {
		t.Errorf("%d rows were kept", n)
	}
}

// visit is one client's time: it sends something and leaves at some moment.
func (w *world) visit(random *rand.Rand, texts []string) {
	conn, err := net.Dial("tcp", w.address)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(200 * time.Millisecond)) // then it leaves, whatever it waits for
	hello, _ := (&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: loginAsPostgres}).Encode(nil)
	if _, err := conn.Write(hello[:max(1, len(hello)-random.IntN(2)*random.IntN(len(hello)))]); err != nil {
		return
	}
	for range random.IntN(4) {
		message, _ := (&pgproto3.Query{String: texts[random.IntN(len(texts))]}).Encode(nil)
		if random.IntN(4) == 0 {
			message = message[:random.IntN(len(message))]
		}
		if _, err := conn.Write(message); err != nil {
			return
		}
		if random.IntN(2) == 0 {
			_, _ = io.ReadFull(conn, make([]byte, random.IntN(3000)))
		}
	}
	if random.IntN(2) == 0 {
		_ = conn.(*net.TCPConn).SetLinger(0)
	}
}

// TestDrain: the router stops; idle clients are told, transactions may end, nobody new is let in.
func TestDrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, config: Config{StartupTimeout: time.Hour}})
	idle, inside, busy, listening := dialRaw(t, w.address, nil), dialRaw(t, w.address, nil), dialRaw(t, w.address, nil), dialRaw(t, w.address, nil)
	silent := newRaw(t, w.address) // has not even said who it is
	inside.query("BEGIN; INSERT INTO undeclared VALUES (1, 'x')")
	listening.query("LISTEN news")
	busy.send(&pgproto3.Query{String: "SELECT pg_sleep(0.2)"})
	running(t, w.onShard(t, 1), "SELECT pg_sleep(0.2)")
	ended := make(chan error, 1)
	go func() { ended <- w.drain() }()
	for _, c := range []*rawClient{idle, listening} {
		wantCodes(t, c.readyTimes(1), "57P01", "the end")
	}
	if said := silent.readyTimes(1); said[len(said)-1] != "the end" {
		t.Errorf("one who has not logged in: %q", said)
	}
	wantCodes(t, busy.readyTimes(2), "57P01", "the end") // after its answer
	if conn, err := net.Dial("tcp", w.address); err == nil {
		_ = conn.Close()
		t.Error("somebody new is let in")
	}
	select {
	case err := <-ended:
		t.Fatalf("it did not wait for a transaction: %v", err)
	default:
	}
	wantCodes(t, inside.query("SELECT 1"), "", "ready T")
	inside.send(&pgproto3.Query{String: "COMMIT"})
	said := inside.readyTimes(2)
	wantCodes(t, said, "57P01", "the end")
	if said[0] != "done COMMIT" {
		t.Errorf("the transaction ended with %q", said)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := one[int](t, w.onShard(t, 1), "SELECT count(*) FROM undeclared"); n != 1 {
		t.Errorf("there are %d rows", n)
	}
	w.settled(t)
}

// TestDrainTimeout: a transaction that does not end is ended.
func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, config: Config{DrainTimeout: 100 * time.Millisecond}})
	inside, busy := dialRaw(t, w.address, nil), dialRaw(t, w.address, nil)
	inside.query("BEGIN; INSERT INTO undeclared VALUES (1, 'x')")
	busy.send(&pgproto3.Query{String: "SELECT pg_sleep(106)"})
	running(t, w.onShard(t, 1), "SELECT pg_sleep(106)")
	if err := w.drain(); err != nil {
		t.Error(err)
	}
	for _, c := range []*rawClient{inside, busy} {
		if said := c.readyTimes(1); said[len(said)-1] != "the end" {
			t.Errorf("%q", said)
		}
	}
	w.settled(t)
	if n := one[int](t, w.onShard(t, 1), "SELECT count(*) FROM undeclared"); n != 0 {
		t.Errorf("%d rows were kept", n)
	}
}

// TestTooManyClients: one more than allowed is told so.
func TestTooManyClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, config: Config{MaxClients: 2}})
	a, b := w.client(t), w.client(t)
	_, err := w.tryClient(t)
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "53300" {
		t.Errorf("%v, want 53300", err)
	}
	_ = a.Close(context.Background())
	eventually(t, "there is room again", func() bool {
		c, err := w.tryClient(t)
		if err == nil {
			_ = c.Close(context.Background())
		}
		return err == nil
	})
	execute(t, b, "SELECT 1")
}

// TestAStatementThatIsLostIsPreparedAgain under its name: its client was never told that there is one. The server says nothing before it is gone.
func TestAStatementThatIsLostIsPreparedAgain(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	conn := w.client(t)
	const sql = "SELECT count(*), 1 FROM orders WHERE id = $1"
	execute(t, w.client(t), "SELECT count(*) FROM orders WHERE id = $1", 1) // so that the router has nothing to ask but for the statement
	lockers := []*pgx.Conn{w.onShard(t, 1), w.onShard(t, 2)}
	for _, locker := range lockers {
		execute(t, locker, "BEGIN")
		execute(t, locker, "LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
	}
	lost := make(chan error, 1)
	go func() {
		_, err := conn.Prepare(t.Context(), "counted", sql)
		lost <- err
	}()
	eventually(t, "a shard's backend waits", func() bool {
		for _, locker := range lockers {
			var pid int
			err := locker.QueryRow(t.Context(), "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND backend_type = 'client backend'").Scan(&pid)
			if err == nil {
				return syscall.Kill(pid, syscall.SIGKILL) == nil
			}
		}
		return false
	})
	var parsed *pgconn.PrepareError
	if err := <-lost; !errors.As(err, &parsed) || parsed.ParseComplete {
		t.Fatalf("it was prepared, though its backend was killed: %v", err)
	}
	for _, locker := range lockers {
		_ = locker.Close(t.Context()) // the server of one of them has ended it
	}
	eventually(t, "the statement is prepared", func() bool {
		_, err := conn.Prepare(t.Context(), "counted", sql)
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == pgerr.DuplicatePrepared {
			t.Fatal(err)
		}
		return err == nil
	})
}
