package moves_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/faults"
)

// client connects to a router.
func (s *stage) client(t *testing.T) *pgx.Conn {
	t.Helper()
	return s.dial(t, s.Routers[0])
}

func execute(t *testing.T, conn *pgx.Conn, sql string, arguments ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, arguments...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// keyOn is a key of table fixed that a shard owns.
func (s *stage) keyOn(t *testing.T, conn *pgx.Conn, shard string) int64 {
	t.Helper()
	for id := int64(1); id < 10_000; id++ {
		var owner string
		if err := conn.QueryRow(t.Context(), "SELECT cleave.shard_of('fixed', "+itoa(id)+")").Scan(&owner); err != nil {
			t.Fatal(err)
		}
		if owner == shard {
			return id
		}
	}
	t.Fatalf("shard %s owns no key of table fixed", shard)
	return 0
}

// waits until a move says something.
func (s *stage) says(t *testing.T, id, what string, of func(api.Move) string) {
	t.Helper()
	var last api.Move
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		m, err := s.Routers[0].API().Move(t.Context(), id)
		if err == nil {
			last = m
		}
		if strings.Contains(of(last), what) {
			return
		}
	}
	t.Fatalf("move %s does not say %q: %+v", id, what, last)
}

// onShard connects to a server past the routers, as one to whom triggers and guards do not apply.
func (s *stage) onShard(t *testing.T, number int) *pgx.Conn {
	t.Helper()
	conn, err := s.Shards[number-1].Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	execute(t, conn, "SET session_replication_role = replica")
	return conn
}

// TestNoMoveIsStranded: whatever a move waits for, somebody can end it, and nothing is left.
func TestNoMoveIsStranded(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 2}, 0)
	conn := s.client(t)

	t.Run("a switch that waits for a transaction is cancelled", func(t *testing.T) {
		id := s.start(t, api.StartMove{From: "s1", To: "s2", Manual: true})
		s.await(t, id, "ready")
		open := s.client(t)
		execute(t, open, "BEGIN")
		execute(t, open, "SELECT count(*) FROM fixed")
		s.wish(t, id, "switch")
		s.says(t, id, "has used the tables", func(m api.Move) string { return m.Waiting })
		s.wish(t, id, "cancel")
		s.await(t, id, "cancelling")
		execute(t, open, "COMMIT") // which may read what stands in for the tables until then
		s.await(t, id, "cancelled")
		s.clean(t)
	})
	t.Run("a change that the target refuses is mended", func(t *testing.T) {
		thorough.Only(t)
		key := s.keyOn(t, conn, "s1")
		id := s.start(t, api.StartMove{From: "s1", To: "s2", Manual: true})
		s.await(t, id, "ready")
		target := s.onShard(t, 2)
		execute(t, conn, "DELETE FROM fixed WHERE id = $1", key)
		time.Sleep(time.Second) // it has come over
		execute(t, target, "INSERT INTO fixed (id, n) VALUES ($1, 7)", key)
		execute(t, conn, "INSERT INTO fixed (id, n) VALUES ($1, 1)", key)
		s.says(t, id, "has refused a change", func(m api.Move) string { return m.Stopped })
		execute(t, target, "DELETE FROM fixed WHERE id = $1", key)
		s.wish(t, id, "resume")
		s.says(t, id, "goes on", func(m api.Move) string {
			if m.Stopped == "" {
				return "goes on"
			}
			return ""
		})
		s.wish(t, id, "switch")
		s.await(t, id, "done")
		var n int64
		if err := conn.QueryRow(t.Context(), "SELECT n FROM fixed WHERE id = $1", key).Scan(&n); err != nil || n != 1 {
			t.Errorf("the row has %d, %v", n, err)
		}
		s.clean(t)
	})
	t.Run("of two moves of the same rows the second is cancelled", func(t *testing.T) {
		first := s.start(t, api.StartMove{From: "s2", To: "s1", Manual: true})
		second := s.start(t, api.StartMove{From: "s2", To: "s3"})
		s.await(t, first, "ready")
		s.wish(t, first, "switch")
		s.await(t, first, "done")
		s.says(t, second, "owned by shard", func(m api.Move) string { return m.Stopped })
		s.wish(t, second, "cancel")
		s.await(t, second, "cancelled")
		s.clean(t)
	})
	t.Run("a way back that the source refuses is given up", func(t *testing.T) {
		thorough.Only(t)
		key := s.keyOn(t, conn, "s1")
		execute(t, conn, "DELETE FROM fixed WHERE id = $1", key)
		id := s.start(t, api.StartMove{From: "s1", To: "s2", KeepSeconds: 600})
		s.await(t, id, "switched")
		s.says(t, id, "it can be rolled back", func(m api.Move) string { return m.Waiting }) // so nothing goes forward any more
		source := s.onShard(t, 1)
		execute(t, source, "INSERT INTO fixed (id, n) VALUES ($1, 7)", key)
		execute(t, conn, "INSERT INTO fixed (id, n) VALUES ($1, 1)", key)
		s.says(t, id, "has refused a change of the way back", func(m api.Move) string { return m.Error })
		s.wish(t, id, "roll back")
		s.await(t, id, "rolling back")
		s.wish(t, id, "cancel")
		s.await(t, id, "switched")
		execute(t, source, "DELETE FROM fixed WHERE id = $1", key)
		s.wish(t, id, "finish")
		s.await(t, id, "done")
		s.clean(t)
	})
	t.Run("rights and views stay as they are", func(t *testing.T) {
		thorough.Only(t)
		execute(t, conn, "CREATE VIEW seen AS SELECT id, n FROM fixed")
		id := s.start(t, api.StartMove{From: "s2", To: "s1", Manual: true})
		s.await(t, id, "ready")
		for _, sql := range []string{
			"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC", "REVOKE SELECT ON seen FROM PUBLIC", "GRANT SELECT ON fixed TO PUBLIC", "ALTER VIEW seen RENAME TO other", "ALTER VIEW seen OWNER TO postgres",
			"CREATE MATERIALIZED VIEW stored AS SELECT id FROM fixed", "DROP VIEW seen", "CREATE OR REPLACE VIEW seen AS SELECT id, n, id AS more FROM fixed", "REASSIGN OWNED BY postgres TO postgres", //nolint:misspell // it is SQL
		} {
			var refused *pgconn.PgError
			if _, err := conn.Exec(t.Context(), sql); !errors.As(err, &refused) || refused.Code != "55006" {
				t.Errorf("%s: %v", sql, err)
			}
		}
		for name, sql := range map[string]string{"made": "CREATE TABLE made AS SELECT id, n FROM fixed", "into": "SELECT id INTO TABLE \"into\" FROM seen", "temporary": "CREATE TEMPORARY TABLE temporary AS SELECT f.id FROM fixed f JOIN fixed g USING (id)"} {
			execute(t, conn, sql)
			var made, read int
			if err := conn.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM \""+name+"\"), (SELECT count(*) FROM fixed)").Scan(&made, &read); err != nil || made != read {
				t.Errorf("%s has %d rows of %d, %v", sql, made, read, err)
			}
			execute(t, conn, "DROP TABLE \""+name+"\"")
		}
		other := s.client(t) // a transaction that began before a move is none of its business, as long as nothing has changed its owner
		execute(t, other, "BEGIN")
		execute(t, other, "SELECT 1")
		s.wish(t, id, "cancel")
		s.await(t, id, "cancelled")
		execute(t, other, "SELECT count(*) FROM fixed")
		execute(t, other, "COMMIT")
		execute(t, conn, "DROP VIEW seen")
		s.clean(t)
	})
}
