package txn

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/shardtest"
	"github.com/cleavedb/cleave/internal/topology"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		model.Remove()
		os.Exit(code)
	}))
}

// model is what all shards begin as.
var model = shardtest.NewModel()

const clusterID = "0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c11"

func execute(t testing.TB, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

func one[T any](t testing.TB, conn *pgx.Conn, sql string, arguments ...any) (value T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql, arguments...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// world is a cluster without routers: the tests do what these would do, as far as they get.
type world struct {
	t       testing.TB
	m       *topology.Map
	servers []*localpg.Server
	conns   []*pgx.Conn // one to each shard, to look at it
}

// newWorld starts shards, numbered from 1.
func newWorld(t testing.TB, count int) *world {
	t.Helper()
	m, err := topology.New(clusterID)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, m: m, servers: model.StartN(t, count)}
	for i, server := range w.servers {
		spec := topology.ShardSpec{Name: fmt.Sprintf("s%d", i+1), Primary: topology.InstanceSpec{Address: server.Addr()}, Database: "postgres", User: server.Superuser(), SSLMode: "disable", Weight: 1}
		conn := w.dial(t, spec)
		w.conns = append(w.conns, conn)
		if err := shard.Claim(t.Context(), conn, clusterID, spec, w.m); err != nil {
			t.Fatal(err)
		}
		if w.m, err = w.m.Next(topology.AddShard(spec)); err != nil {
			t.Fatal(err)
		}
		execute(t, conn, "CREATE TABLE public.things (id int PRIMARY KEY)", fmt.Sprintf("UPDATE cleave.identity SET number = %d", i+1))
	}
	return w
}

func (w *world) dial(t testing.TB, spec topology.ShardSpec) *pgx.Conn {
	t.Helper()
	conn, err := shard.Access{}.Connect(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close(context.Background()) }) // others may use it too
	return conn
}

// on is another connection to a shard.
func (w *world) on(t testing.TB, number int) *pgx.Conn {
	t.Helper()
	return w.dial(t, w.m.ShardByNumber(number).Spec())
}

// moved lets a shard be found at another server.
func (w *world) moved(t testing.TB, number int, server *localpg.Server) {
	t.Helper()
	name := w.m.ShardByNumber(number).Name()
	next, err := w.m.Next(topology.UpdateShard(name, func(s *topology.ShardSpec) { s.Primary.Address = server.Addr() }))
	if err != nil {
		t.Fatal(err)
	}
	w.m = next
	w.conns[number-1] = w.on(t, number)
}

func (w *world) config() Config {
	return Config{
		Map: func() *topology.Map { return w.m }, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Connect: func(ctx context.Context, spec topology.ShardSpec) (*pgx.Conn, error) {
			return shard.Access{ConnectTimeout: 2 * time.Second}.Connect(ctx, spec)
		},
	}
}

// round is one round of recovery.
func (w *world) round(t testing.TB) {
	t.Helper()
	r := NewRecovery(w.config())
	defer r.Close()
	_ = r.Round(t.Context())
}

// sweep is one clean-up.
func (w *world) sweep(t testing.TB) {
	t.Helper()
	r := NewRecovery(w.config())
	defer r.Close()
	if err := r.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// transfer is a transaction on all shards that inserts a row of this number on each, decided on the first.
type transfer struct {
	w       *world
	id      int
	gid     string
	members []int
	xids    []uint64
	decider *pgx.Conn
}

// begin begins one on some shards.
func (w *world) begin(t testing.TB, id int, members ...int) *transfer {
	t.Helper()
	tr := &transfer{w: w, id: id, members: members, xids: make([]uint64, len(members)), decider: w.on(t, members[0])}
	start := one[int64](t, tr.decider, "SELECT (extract(epoch FROM backend_start) * 1000000)::bigint FROM pg_stat_activity WHERE pid = pg_backend_pid()")
	timeline := one[int](t, tr.decider, "SELECT cleave.timeline()")
	tr.gid = NewName(clusterID, members[0], timeline, int(tr.decider.PgConn().PID()), start, "router").String()
	execute(t, tr.decider, "BEGIN", fmt.Sprintf("INSERT INTO public.things VALUES (%d)", id))
	return tr
}

// prepare prepares the part of a shard.
func (tr *transfer) prepare(t testing.TB, numbers ...int) *transfer {
	t.Helper()
	for _, number := range numbers {
		conn := tr.w.on(t, number)
		timeline := one[int](t, conn, "SELECT cleave.timeline()")
		execute(t, conn, "BEGIN", fmt.Sprintf("INSERT INTO public.things VALUES (%d)", tr.id))
		tr.note(t, conn, number)
		execute(t, conn, "PREPARE TRANSACTION '"+PartName(tr.gid, timeline)+"'")
	}
	return tr
}

// note notes the part of a shard.
func (tr *transfer) note(t testing.TB, conn *pgx.Conn, number int) {
	t.Helper()
	tr.xids[slices.Index(tr.members, number)] = one[uint64](t, conn, strings.Replace(NoteStatement, "xid", "xid::text::bigint", 1), tr.gid, NumbersText(tr.members))
}

// decideOnly notes the decision.
func (tr *transfer) decideOnly(t testing.TB, conn *pgx.Conn) error {
	t.Helper()
	_, err := conn.Exec(t.Context(), DecideStatement, tr.gid, NumbersText(tr.members), NumbersText(tr.xids))
	return err
}

func (tr *transfer) decide(t testing.TB) *transfer {
	t.Helper()
	if err := tr.decideOnly(t, tr.decider); err != nil {
		t.Fatal(err)
	}
	execute(t, tr.decider, "COMMIT")
	return tr
}

// finish commits the part of a shard.
func (tr *transfer) finish(t testing.TB, numbers ...int) *transfer {
	t.Helper()
	for _, number := range numbers {
		timeline := one[int](t, tr.w.conns[number-1], "SELECT cleave.timeline()")
		execute(t, tr.w.conns[number-1], "COMMIT PREPARED '"+PartName(tr.gid, timeline)+"'")
	}
	return tr
}

// die ends the router's connection to the shard that decides, and returns when its backend is gone.
func (tr *transfer) die(t testing.TB) *transfer {
	t.Helper()
	pid := tr.decider.PgConn().PID()
	_ = tr.decider.Close(t.Context())
	eventually(t, "the backend is gone", func() bool {
		return one[int](t, tr.w.conns[tr.members[0]-1], "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid) == 0
	})
	return tr
}

// committed wants the row on all members, or on none, and nothing prepared.
func (tr *transfer) committed(t testing.TB, want bool) {
	t.Helper()
	for _, number := range tr.members {
		if got := one[bool](t, tr.w.conns[number-1], "SELECT EXISTS (SELECT FROM public.things WHERE id = $1)", tr.id); got != want {
			t.Errorf("shard %d has the row: %v", number, got)
		}
		if tr.prepared(t, number) {
			t.Errorf("shard %d has its part still prepared", number)
		}
	}
}

func (tr *transfer) prepared(t testing.TB, number int) bool {
	t.Helper()
	return one[bool](t, tr.w.conns[number-1], "SELECT EXISTS (SELECT FROM pg_prepared_xacts WHERE starts_with(gid, $1))", tr.gid)
}

// rows is on how many shards something is noted of it.
func (tr *transfer) rows(t testing.TB) (rows int) {
	t.Helper()
	for _, conn := range tr.w.conns {
		rows += one[int](t, conn, "SELECT count(*) FROM cleave.commits WHERE gid = $1", tr.gid)
	}
	return rows
}

func (tr *transfer) phase(t testing.TB) Phase {
	t.Helper()
	list, _ := Look(t.Context(), tr.w.config())
	for _, found := range list {
		if found.ID == tr.gid {
			return found.Phase
		}
	}
	return ""
}

func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never came to be that %s", what)
		}
	}
}

// set changes how long something takes, for a test.
func set(t testing.TB, what *time.Duration, to time.Duration) {
	t.Helper()
	before := *what
	*what = to
	t.Cleanup(func() { *what = before })
}
