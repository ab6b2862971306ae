package moves_test

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/faults"
)

// TestWhatIsUnderWayIsWaitedFor: a cursor over all shards gives the rest of its rows, and a COPY takes the rest of its rows, before the owner changes; TRUNCATE is refused.
func TestWhatIsUnderWayIsWaitedFor(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 0)
	reader, writer, other := s.dial(t, s.Routers[0]), s.dial(t, s.Routers[1]), s.dial(t, s.Routers[0])
	id := s.start(t, api.StartMove{From: "s1", To: "s2", Manual: true})
	s.await(t, id, "ready") // what was under way before has ended by now
	execute(t, reader, "BEGIN")
	execute(t, reader, "DECLARE c CURSOR FOR SELECT id FROM fixed ORDER BY id")
	seen := fetched(t, reader, "FETCH 100 FROM c")
	const rows = 2000
	from, to := io.Pipe()
	copied := make(chan error, 1)
	go func() {
		_, err := writer.PgConn().CopyFrom(t.Context(), from, "COPY accounts (id, n) FROM STDIN")
		copied <- err
	}()
	write := func(first, last int) {
		for i := first; i < last; i++ {
			if _, err := fmt.Fprintf(to, "%d\t1\n", 5_000_000+i); err != nil {
				t.Error(err)
				return
			}
		}
	}
	write(0, rows/2)
	s.wish(t, id, "switch")
	s.await(t, id, "switching")
	if _, err := other.Exec(t.Context(), "TRUNCATE events"); err == nil {
		t.Error("a table was emptied whose rows move")
	}
	time.Sleep(1500 * time.Millisecond) // more than one attempt
	if m := s.await(t, id, "switching", "switched", "done"); m.Phase != "switching" {
		t.Errorf("the owner has changed, and the move is %s", m.Phase)
	}
	seen = append(seen, fetched(t, reader, "FETCH ALL FROM c")...)
	execute(t, reader, "COMMIT")
	write(rows/2, rows)
	if err := to.Close(); err != nil {
		t.Error(err)
	}
	if err := <-copied; err != nil {
		t.Errorf("the COPY that was under way: %v", err)
	}
	for i, id := range seen {
		if id != int64(i+1) {
			t.Fatalf("row %d of the cursor is %d", i+1, id)
		}
	}
	var fixed, accounts int
	s.await(t, id, "done")
	if err := other.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM fixed), (SELECT count(*) FROM accounts)").Scan(&fixed, &accounts); err != nil {
		t.Fatal(err)
	}
	if len(seen) != fixed || accounts != rows {
		t.Errorf("the cursor gave %d of %d rows, and %d of %d rows were copied", len(seen), fixed, accounts, rows)
	}
	s.clean(t)
}

func fetched(t *testing.T, conn *pgx.Conn, sql string) []int64 {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestNothingIsHeldInVain: a transaction on another keyspace, open since before that was changed, keeps its router from settling on any map. The switch waits for it before statements do.
func TestNothingIsHeldInVain(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 0)
	other := s.dial(t, s.Routers[1])
	if _, err := s.Routers[0].API().CreateKeyspace(t.Context(), api.CreateKeyspace{Name: "others"}); err != nil {
		t.Fatal(err)
	}
	execute(t, other, "CREATE TABLE others (id bigint PRIMARY KEY)")
	execute(t, other, "SELECT cleave.shard_table('others', 'id', keyspace => 'others')")
	id := s.start(t, api.StartMove{Keyspace: "default_bigint", From: "s1", To: "s2", Manual: true})
	s.await(t, id, "ready")
	key, on := 0, "s2" // not on the target, whose slot for the way back would wait for the transaction
	for ; on == "s2"; key++ {
		if err := other.QueryRow(t.Context(), fmt.Sprintf("SELECT cleave.shard_of('others', %d)", key+1)).Scan(&on); err != nil {
			t.Fatal(err)
		}
	}
	execute(t, other, "BEGIN")
	execute(t, other, fmt.Sprintf("INSERT INTO others VALUES (%d)", key))
	if _, err := s.Routers[0].API().SplitRanges(t.Context(), "others", api.SplitRanges{Key: []string{strconv.Itoa(key)}}); err != nil {
		t.Fatal(err)
	}
	s.wish(t, id, "switch")
	s.await(t, id, "switching")
	time.Sleep(1500 * time.Millisecond) // more than one attempt
	if m := s.await(t, id, "switching", "switched", "done"); len(m.Switches) > 0 || !strings.Contains(m.Waiting, "transaction open") {
		t.Errorf("the move is %s and waits for %q, after %+v", m.Phase, m.Waiting, m.Switches)
	}
	execute(t, other, "COMMIT")
	s.await(t, id, "done")
	s.clean(t)
}
