package moves

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/test/faults"
)

// Load is writers with an oracle. Make it with [NewLoad].
type Load struct {
	cluster *faults.Cluster
	// Faulty: connections may break and statements may fail for that, since somebody kills processes.
	Faulty bool

	mu       sync.Mutex
	problems []string
	slow     []string

	cancel  context.CancelFunc
	running sync.WaitGroup
	writers []*writer
	// Done counts statements, Failed those that failed in a way that faults explain, and Slowest is the longest that anybody waited.
	Done, Failed atomic.Int64
	Slowest      atomic.Int64
	// Think is how long a writer waits between two changes, on the average, and watchers the same or longer: on few processors those that never do could not be caught up with, and several clusters with quicker ones have no time for the moves.
	Think time.Duration
	// rounds is how often all fixed rows were counted up, and unsure how many tries may count besides. Of rounds as many as late were acknowledged with a warning: a shard that was away may not have its part yet.
	rounds, unsure, late int64
}

const (
	fixedRows     = 800
	keysOfAWriter = 60
	// tokensOfAWriter is how many rows a writer gives other keys, of so many.
	tokensOfAWriter, keysOfTokens = 8, 1000
)

// schema of the tables: one that nobody changes but all at once, one of writers, one below it with a foreign key, large values and a generated column, one that is partitioned, and one whose rows change their keys.
var schema = []string{
	"CREATE TABLE fixed (id bigint PRIMARY KEY, n bigint NOT NULL DEFAULT 0, filler text)",
	"CREATE TABLE accounts (id bigint PRIMARY KEY, n bigint NOT NULL, note text)",
	"CREATE TABLE entries (account_id bigint REFERENCES accounts (id) ON DELETE CASCADE, id bigint, amount bigint NOT NULL, twice bigint GENERATED ALWAYS AS (amount * 2) STORED, body text, PRIMARY KEY (account_id, id))",
	"CREATE TABLE events (account_id bigint NOT NULL, at integer NOT NULL, what text, PRIMARY KEY (account_id, at)) PARTITION BY RANGE (at)",
	"CREATE TABLE events_low PARTITION OF events FOR VALUES FROM (0) TO (500)",
	"CREATE TABLE events_high PARTITION OF events FOR VALUES FROM (500) TO (1000000)",
	"CREATE TABLE tokens (id bigint PRIMARY KEY, n bigint NOT NULL)",
	"CREATE VIEW totals AS SELECT count(*) AS rows, sum(id) AS ids FROM fixed",
	"SELECT cleave.shard_tables('fixed(id), accounts(id), entries(account_id), events(account_id), tokens(id)')",
}

// NewLoad makes the tables and their first rows, through a router.
func NewLoad(ctx context.Context, c *faults.Cluster, writers int) (*Load, error) {
	l := &Load{cluster: c, Think: 150 * time.Millisecond}
	conn, err := l.dial(ctx, c.Routers[0], nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range schema {
		if err := patiently(ctx, conn, sql); err != nil {
			return nil, err
		}
	}
	if _, err := conn.Exec(ctx, "INSERT INTO fixed (id, filler) SELECT i, repeat('f', 200) FROM generate_series(1, $1::integer) AS i", fixedRows); err != nil {
		return nil, fmt.Errorf("fill fixed: %w", err)
	}
	for i := range writers {
		w := newWriter(l, i)
		l.writers = append(l.writers, w)
		for n := range int64(tokensOfAWriter) {
			w.tokens[w.token(n)] = []int64{w.token(n)}
			if _, err := conn.Exec(ctx, "INSERT INTO tokens VALUES ($1, $1)", w.token(n)); err != nil {
				return nil, fmt.Errorf("fill tokens: %w", err)
			}
		}
	}
	return l, nil
}

// patiently runs a definition; a router may not have heard of the last one yet.
func patiently(ctx context.Context, conn *pgx.Conn, sql string) error {
	for tries := 20; ; tries-- {
		_, err := conn.Exec(ctx, sql)
		var refused *pgconn.PgError
		if err == nil || tries == 0 || !errors.As(err, &refused) || refused.Code != "57P03" && refused.Code != "55P03" {
			if err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
			return nil
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// dial connects to a router. What that warns of is given to a function, if there is one.
func (l *Load) dial(ctx context.Context, r *faults.Router, warned func(*pgconn.PgConn, *pgconn.Notice)) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig("postgres://postgres@" + r.Listen + "/postgres?sslmode=disable&application_name=moves&connect_timeout=10")
	if err != nil {
		return nil, err
	}
	config.OnNotice = warned
	return pgx.ConnectConfig(ctx, config)
}

// Start lets writers and watchers work until [Load.Stop].
func (l *Load) Start(ctx context.Context) {
	ctx, l.cancel = context.WithCancel(ctx)
	for _, w := range l.writers {
		l.running.Go(func() { w.run(ctx) })
	}
	l.running.Go(func() { l.count(ctx) })
	l.running.Go(func() { l.countUp(ctx) })
}

// Stop ends all of them and waits.
func (l *Load) Stop() {
	l.cancel()
	l.running.Wait()
}

// Problems are what was wrong. Anybody may ask.
func (l *Load) Problems() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.problems)
}

// Slow are when statements began that took longer than a second, and how long they did. Anybody may ask.
func (l *Load) Slow() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.slow)
}

const mostProblems = 20

func (l *Load) problem(format string, arguments ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.problems) < mostProblems {
		l.problems = append(l.problems, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, arguments...))
	}
}

// failed says whether a failure is one that faults explain: the connection is gone, a shard or a router is away, or the transaction is to be tried again.
func (l *Load) failed(ctx context.Context, what string, err error) {
	if ctx.Err() != nil {
		return
	}
	var refused *pgconn.PgError
	known := !errors.As(err, &refused) || slices.ContainsFunc([]string{"08", "57", "40", "53", "55P03", "58", "CL003"}, func(class string) bool { return strings.HasPrefix(refused.Code, class) })
	if l.Faulty && known {
		l.Failed.Add(1)
		return
	}
	l.problem("%s failed: %v", what, err)
}

// session is a connection that comes back, to any router.
type session struct {
	l      *Load
	random *rand.Rand
	conn   *pgx.Conn
	// warnings are those of this connection since somebody has looked.
	warnings []string
}

func (s *session) get(ctx context.Context) (*pgx.Conn, error) {
	if s.conn != nil && !s.conn.IsClosed() {
		return s.conn, nil
	}
	s.warnings = nil
	conn, err := s.l.dial(ctx, s.l.cluster.Routers[s.random.IntN(len(s.l.cluster.Routers))], func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.Severity == "WARNING" {
			s.warnings = append(s.warnings, n.Message)
		}
	})
	if err == nil {
		_, err = conn.Exec(ctx, "SET lock_timeout = '10s'")
	}
	s.conn = conn
	return conn, err
}

func (s *session) close() {
	if s.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.conn.Close(ctx)
		s.conn = nil
	}
}

// timed notes how long something took.
func (l *Load) timed(work func() error) error {
	started := time.Now()
	err := work()
	took := int64(time.Since(started))
	if slow := time.Duration(took); slow > time.Second {
		l.mu.Lock()
		l.slow = append(l.slow, started.Format("15:04:05.000 ")+slow.Round(time.Millisecond).String())
		l.mu.Unlock()
	}
	for slowest := l.Slowest.Load(); took > slowest && !l.Slowest.CompareAndSwap(slowest, took); slowest = l.Slowest.Load() {
	}
	l.Done.Add(1)
	return err
}

// count reads rows that nobody inserts or deletes over all shards, in several ways.
func (l *Load) count(ctx context.Context) {
	s := &session{l: l, random: rand.New(rand.NewPCG(1, 2))}
	defer s.close()
	want := fmt.Sprint(fixedRows, " ", fixedRows*(fixedRows+1)/2)
	questions := []string{
		"SELECT count(*)::text || ' ' || sum(id) FROM fixed",
		"SELECT count(*)::text || ' ' || sum(f.id) FROM fixed f WHERE f.n >= 0",
		"SELECT rows::text || ' ' || ids FROM totals",
		"SELECT count(*)::text || ' ' || sum(public.fixed.id) FROM public.fixed",
		"SELECT (SELECT count(*) FROM (SELECT DISTINCT id FROM fixed) d)::text || ' ' || (SELECT sum(a.id) FROM fixed a JOIN fixed b ON a.id = b.id)",
		"WITH f AS (TABLE fixed) SELECT count(*)::text || ' ' || sum(id) FROM f",
	}
	for i := 0; ctx.Err() == nil; i++ {
		conn, err := s.get(ctx)
		var got string
		if err == nil {
			err = l.timed(func() error { return conn.QueryRow(ctx, questions[i%len(questions)]).Scan(&got) })
		}
		switch {
		case err != nil:
			l.failed(ctx, questions[i%len(questions)], err)
			s.close()
			pause(ctx, l.Faulty)
		case got != want:
			l.problem("%s: %s, not %s", questions[i%len(questions)], got, want)
		}
		think(ctx, max(l.Think, 60*time.Millisecond))
	}
}

// countUp writes to all of these rows at once, again and again, and sees that each was written once: by what the router says, and by what is there after it, at once and a while later.
func (l *Load) countUp(ctx context.Context) {
	s := &session{l: l, random: rand.New(rand.NewPCG(3, 4))}
	defer s.close()
	for ctx.Err() == nil {
		whole := l.countOnce(ctx, s)
		for range 2 {
			l.seeRounds(ctx, s, whole)
			think(ctx, max(5*l.Think, 300*time.Millisecond)/2)
		}
	}
}

// countOnce adds one to each of these rows. It says whether all rows have the same number after it, on all shards: it has met each of them, so whatever was prepared before has ended.
func (l *Load) countOnce(ctx context.Context, s *session) (whole bool) {
	conn, err := s.get(ctx)
	var tag pgconn.CommandTag
	if err == nil {
		l.unsure++
		s.warnings = nil
		err = l.timed(func() (err error) {
			tag, err = conn.Exec(context.WithoutCancel(ctx), "UPDATE fixed SET n = n + 1")
			return err
		})
	}
	if err != nil {
		l.failed(ctx, "UPDATE fixed", err)
		s.close()
		pause(ctx, l.Faulty)
		return false
	}
	l.unsure--
	l.rounds++
	if tag.RowsAffected() != fixedRows {
		l.problem("UPDATE fixed SET n = n + 1 said %s", tag)
	}
	if len(s.warnings) > 0 { // a shard may be away that does not have its part yet
		if l.late++; !l.Faulty {
			l.problem("UPDATE fixed SET n = n + 1 warned: %s", strings.Join(s.warnings, "; "))
		}
		return false
	}
	l.late = 0
	return true
}

// seeRounds reads all of these rows over all shards, while nobody else writes to them, and sees that each was counted up as often as the router has said. If they are whole, tries whose outcome was not known have counted for all of them or for none.
func (l *Load) seeRounds(ctx context.Context, s *session, whole bool) {
	const question = "SELECT count(*), sum(n)::bigint, min(n), max(n) FROM fixed"
	conn, err := s.get(ctx)
	var rows, sum, least, most int64
	if err == nil {
		err = l.timed(func() error { return conn.QueryRow(ctx, question).Scan(&rows, &sum, &least, &most) })
	}
	if err != nil {
		l.failed(ctx, question, err)
		s.close()
		pause(ctx, l.Faulty)
		return
	}
	if rows != fixedRows || least < l.rounds-l.late || most > l.rounds+l.unsure || sum < least*fixedRows || sum > most*fixedRows || whole && least != most {
		l.problem("%s: %d rows with a sum of %d, each from %d to %d, and each of %d rows was counted up %d to %d times, equally often: %t", question, rows, sum, least, most, fixedRows, l.rounds-l.late, l.rounds+l.unsure, whole)
		return
	}
	if whole { // now it is known
		l.rounds, l.unsure = most, 0
	}
}

func pause(ctx context.Context, faulty bool) {
	if faulty {
		think(ctx, 50*time.Millisecond)
	}
}

// think waits a little.
func think(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Check compares what is there with what must be, when all is quiet. Reads go through a router.
func (l *Load) Check(ctx context.Context) error {
	s := &session{l: l, random: rand.New(rand.NewPCG(5, 6))}
	defer s.close()
	conn, err := s.get(ctx)
	if err != nil {
		return err
	}
	var least, most int64
	if err := conn.QueryRow(ctx, "SELECT min(n), max(n) FROM fixed").Scan(&least, &most); err != nil {
		return err
	}
	if least != most || most < l.rounds || most > l.rounds+l.unsure {
		l.problem("rows of fixed were counted up %d to %d times, not %d to %d", least, most, l.rounds, l.rounds+l.unsure)
	}
	for _, w := range l.writers {
		if err := w.check(ctx, conn); err != nil {
			return err
		}
	}
	return nil
}

// writer has keys of its own, and knows what is in them.
type writer struct {
	l      *Load
	number int
	s      *session
	random *rand.Rand
	// rows are what it knows: the value of each of its accounts, which has an entry with the same amount and an event for it. doubt are other values that an account may have as well; 0: it may be missing.
	rows  map[int64]int64
	doubt map[int64][]int64
	next  int64
	// tokens are rows that change their keys: where each is, or may be if an answer was lost.
	tokens map[int64][]int64
}

func newWriter(l *Load, number int) *writer {
	random := rand.New(rand.NewPCG(uint64(number), 7))
	return &writer{l: l, number: number, random: random, s: &session{l: l, random: random}, rows: map[int64]int64{}, doubt: map[int64][]int64{}, next: 1, tokens: map[int64][]int64{}}
}

// token is the number of one of the writer's rows that change their keys, and the key that it has first.
func (w *writer) token(i int64) int64 { return 3_000_000_000 + int64(w.number)*keysOfTokens + i }

// key is one of the writer's.
func (w *writer) key() int64 { return int64(1_000_000*(w.number+1) + w.random.IntN(keysOfAWriter)) }

func (w *writer) run(ctx context.Context) {
	defer w.s.close()
	works := []func(context.Context, *pgx.Conn) error{w.put, w.put, w.update, w.update, w.update, w.transact, w.several, w.remove, w.move, w.rekey, w.load}
	for ctx.Err() == nil {
		conn, err := w.s.get(ctx)
		if err == nil {
			err = works[w.random.IntN(len(works))](context.WithoutCancel(ctx), conn)
		}
		if err != nil {
			w.l.failed(ctx, "writer "+strconv.Itoa(w.number), err)
			w.s.close()
			pause(ctx, w.l.Faulty)
		}
		think(ctx, time.Duration(w.random.Int64N(int64(2*w.l.Think))))
	}
}

// change makes a change of rows that it is told of, which counts if it was acknowledged and may count if its answer was lost; 0 is no row.
func (w *writer) change(change map[int64]int64, work func() error) error {
	err := w.l.timed(work)
	for id, value := range change {
		if err == nil {
			w.set(id, value)
			continue
		}
		if !w.may(id, value) {
			w.doubt[id] = append(w.doubt[id], value)
		}
	}
	return err
}

func (w *writer) may(id, value int64) bool {
	return w.rows[id] == value || slices.Contains(w.doubt[id], value)
}

func (w *writer) set(id, value int64) {
	delete(w.doubt, id)
	if w.rows[id] = value; value == 0 {
		delete(w.rows, id)
	}
}

// settle finds out what an account is of which that is not known.
func (w *writer) settle(ctx context.Context, conn *pgx.Conn, id int64) error {
	if len(w.doubt[id]) == 0 {
		return nil
	}
	var value int64
	err := w.l.timed(func() error {
		return conn.QueryRow(ctx, "SELECT coalesce((SELECT n FROM accounts WHERE id = $1 FOR UPDATE), 0)", id).Scan(&value)
	})
	if err != nil {
		return err
	}
	if !w.may(id, value) {
		w.l.problem("account %d has %d, and must have %d or one of %v", id, value, w.rows[id], w.doubt[id])
	}
	w.set(id, value)
	return nil
}

// put inserts an account with an entry and an event, or replaces it, in a transaction on one shard.
func (w *writer) put(ctx context.Context, conn *pgx.Conn) error {
	id := w.key()
	if err := w.settle(ctx, conn, id); err != nil {
		return err
	}
	w.next++
	value := w.next
	return w.change(map[int64]int64{id: value}, func() error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return write(ctx, tx, id, value) })
	})
}

func write(ctx context.Context, tx pgx.Tx, id, value int64) error {
	if _, err := tx.Exec(ctx, "INSERT INTO accounts (id, n, note) VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE SET n = excluded.n, note = excluded.note", id, value, "note "+strconv.FormatInt(value, 10)); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "INSERT INTO entries (account_id, id, amount, body) VALUES ($1, 1, $2, $3) ON CONFLICT (account_id, id) DO UPDATE SET amount = excluded.amount", id, value, body(id)); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "INSERT INTO events (account_id, at, what) VALUES ($1, $2, $3) ON CONFLICT (account_id, at) DO UPDATE SET what = excluded.what", id, id%1000, strconv.FormatInt(value, 10))
	return err
}

// body is a value that is stored out of line, and is not written again when the row is updated.
func body(id int64) string {
	random := rand.New(rand.NewPCG(uint64(id), 9))
	text := make([]byte, 4000)
	for i := range text {
		text[i] = byte('!' + random.IntN(90))
	}
	return string(text)
}

// update changes an account alone, by itself.
func (w *writer) update(ctx context.Context, conn *pgx.Conn) error {
	id := w.key()
	if err := w.settle(ctx, conn, id); err != nil || w.rows[id] == 0 {
		return err
	}
	w.next++
	value := w.next
	return w.change(map[int64]int64{id: value}, func() error {
		tag, err := conn.Exec(ctx, "WITH e AS (UPDATE entries SET amount = $1 WHERE account_id = $2 RETURNING 1), v AS (UPDATE events SET what = $1::bigint::text WHERE account_id = $2 RETURNING 1) UPDATE accounts SET n = $1 WHERE id = $2", value, id)
		if err == nil && tag.RowsAffected() != 1 {
			w.l.problem("UPDATE of account %d said %s", id, tag)
		}
		return err
	})
}

// transact reads and writes an account in several statements, with a pause.
func (w *writer) transact(ctx context.Context, conn *pgx.Conn) error {
	id := w.key()
	if err := w.settle(ctx, conn, id); err != nil || w.rows[id] == 0 {
		return err
	}
	w.next++
	before, value := w.rows[id], w.next
	return w.change(map[int64]int64{id: value}, func() error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			var n int64
			if err := tx.QueryRow(ctx, "SELECT n FROM accounts WHERE id = $1", id).Scan(&n); err != nil {
				return err
			}
			if n != before {
				w.l.problem("account %d has %d, not %d, at the beginning of a transaction", id, n, before)
			}
			time.Sleep(time.Duration(w.random.IntN(20)) * time.Millisecond)
			return write(ctx, tx, id, value)
		})
	})
}

// several writes accounts on several shards in one transaction.
func (w *writer) several(ctx context.Context, conn *pgx.Conn) error {
	change := map[int64]int64{}
	for range 3 {
		id := w.key()
		if err := w.settle(ctx, conn, id); err != nil {
			return err
		}
		w.next++
		change[id] = w.next
	}
	return w.change(change, func() error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			for _, id := range slices.Sorted(maps.Keys(change)) {
				if err := write(ctx, tx, id, change[id]); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// remove deletes an account, and by that its entry.
func (w *writer) remove(ctx context.Context, conn *pgx.Conn) error {
	id := w.key()
	if err := w.settle(ctx, conn, id); err != nil || w.rows[id] == 0 {
		return err
	}
	return w.change(map[int64]int64{id: 0}, func() error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "DELETE FROM events WHERE account_id = $1", id); err != nil {
				return err
			}
			tag, err := tx.Exec(ctx, "DELETE FROM accounts WHERE id = $1", id)
			if err == nil && tag.RowsAffected() != 1 {
				w.l.problem("DELETE of account %d said %s", id, tag)
			}
			return err
		})
	})
}

// move gives an account's event another key, which may be on another shard, and back: a row changes its key, and keeps what is in it.
func (w *writer) move(ctx context.Context, conn *pgx.Conn) error {
	from, to := w.key(), int64(2_000_000_000)+w.key()
	if err := w.settle(ctx, conn, from); err != nil || w.rows[from] == 0 {
		return err
	}
	return w.change(map[int64]int64{from: w.rows[from]}, func() error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			for _, key := range [][2]int64{{from, to}, {to, from}} {
				tag, err := tx.Exec(ctx, "UPDATE events SET account_id = $2 WHERE account_id = $1", key[0], key[1])
				if err != nil {
					return err
				}
				if tag.RowsAffected() != 1 {
					w.l.problem("giving the event of %d key %d said %s", key[0], key[1], tag)
				}
			}
			return nil
		})
	})
}

// rekey gives a row another key, which may be on another shard, for good.
func (w *writer) rekey(ctx context.Context, conn *pgx.Conn) error {
	n := w.token(w.random.Int64N(tokensOfAWriter))
	if len(w.tokens[n]) > 1 {
		return w.find(ctx, conn, n)
	}
	from, to := w.tokens[n][0], w.token(w.random.Int64N(keysOfTokens))
	for _, keys := range w.tokens {
		if slices.Contains(keys, to) {
			return nil // another one may have it
		}
	}
	w.tokens[n] = []int64{from, to}
	return w.l.timed(func() error {
		tag, err := conn.Exec(ctx, "UPDATE tokens SET id = $1 WHERE id = $2", to, from)
		if err != nil {
			return err
		}
		if w.tokens[n] = []int64{to}; tag.RowsAffected() != 1 {
			w.l.problem("giving token %d key %d instead of %d said %s", n, to, from, tag)
		}
		return nil
	})
}

// find finds out which key a row has of which that is not known. What is in doubt may take a while to be decided on all shards.
func (w *writer) find(ctx context.Context, conn *pgx.Conn, n int64) error {
	var found []int64
	for _, key := range w.tokens[n] {
		var has bool
		if err := w.l.timed(func() error {
			return conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM tokens WHERE id = $1 AND n = $2 FOR UPDATE)", key, n).Scan(&has)
		}); err != nil {
			return err
		}
		if has {
			found = append(found, key)
		}
	}
	if len(found) == 1 {
		w.tokens[n] = found
	}
	return nil
}

// load replaces accounts by COPY.
func (w *writer) load(ctx context.Context, conn *pgx.Conn) error {
	change := map[int64]int64{}
	for range 5 {
		id := w.key()
		if err := w.settle(ctx, conn, id); err != nil {
			return err
		}
		if w.rows[id] == 0 {
			w.next++
			change[id] = w.next
		}
	}
	if len(change) == 0 {
		return nil
	}
	ids := slices.Sorted(maps.Keys(change))
	return w.change(change, func() error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := copyRows(ctx, tx, "accounts", []string{"id", "n", "note"}, ids, func(id int64) []any { return []any{id, change[id], "copied"} }); err != nil {
				return err
			}
			if err := copyRows(ctx, tx, "entries", []string{"account_id", "id", "amount", "body"}, ids, func(id int64) []any { return []any{id, int64(1), change[id], body(id)} }); err != nil {
				return err
			}
			return copyRows(ctx, tx, "events", []string{"account_id", "at", "what"}, ids, func(id int64) []any { return []any{id, int32(id % 1000), strconv.FormatInt(change[id], 10)} })
		})
	})
}

func copyRows(ctx context.Context, tx pgx.Tx, table string, columns []string, ids []int64, row func(int64) []any) error {
	_, err := tx.CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromSlice(len(ids), func(i int) ([]any, error) { return row(ids[i]), nil }))
	return err
}

// check compares what is there with what the writer knows.
func (w *writer) check(ctx context.Context, conn *pgx.Conn) error {
	low, high := int64(1_000_000*(w.number+1)), int64(1_000_000*(w.number+1)+keysOfAWriter)
	rows, err := conn.Query(ctx, `SELECT a.id, a.n, coalesce(e.amount, -1), coalesce(e.twice, -1), coalesce(e.body, ''), coalesce(v.what, '') FROM accounts a LEFT JOIN entries e ON e.account_id = a.id LEFT JOIN events v ON v.account_id = a.id
		WHERE a.id >= $1 AND a.id < $2`, low, high)
	if err != nil {
		return err
	}
	seen := map[int64]bool{}
	var id, n, amount, twice int64
	var text, what string
	_, err = pgx.ForEachRow(rows, []any{&id, &n, &amount, &twice, &text, &what}, func() error {
		switch {
		case seen[id]:
			w.l.problem("account %d is there twice", id)
		case !w.may(id, n):
			w.l.problem("account %d has %d, and must have %d or one of %v", id, n, w.rows[id], w.doubt[id])
		case amount != n || twice != 2*n || what != strconv.FormatInt(n, 10):
			w.l.problem("account %d has %d, its entry %d and %d, its event %s", id, n, amount, twice, what)
		case text != body(id):
			w.l.problem("the entry of account %d has lost its body: %d bytes", id, len(text))
		}
		seen[id] = true
		return nil
	})
	if err != nil {
		return err
	}
	for id := range w.rows {
		if !seen[id] && !slices.Contains(w.doubt[id], 0) {
			w.l.problem("account %d is missing, it must have %d", id, w.rows[id])
		}
	}
	return w.checkTokens(ctx, conn)
}

// checkTokens sees that each row that changes its key is there once, where it must be.
func (w *writer) checkTokens(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, "SELECT n, id FROM tokens WHERE n >= $1 AND n < $2", w.token(0), w.token(tokensOfAWriter))
	if err != nil {
		return err
	}
	var n, id int64
	seen := map[int64]int{}
	_, err = pgx.ForEachRow(rows, []any{&n, &id}, func() error {
		if seen[n]++; !slices.Contains(w.tokens[n], id) {
			w.l.problem("token %d has key %d, and must have one of %v", n, id, w.tokens[n])
		}
		return nil
	})
	for n := range w.tokens {
		if err == nil && seen[n] != 1 {
			w.l.problem("token %d is there %d times, and must be at one of %v", n, seen[n], w.tokens[n])
		}
	}
	return err
}
