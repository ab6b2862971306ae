package moves_test

import (
	"fmt"
	"testing"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/faults"
)

// TestMovesOfManyRangesAndPins, some hundred of each, as a ring of shards and tenants have them: they come about, are cancelled, and found on the shards when etcd is lost, as any other.
func TestMovesOfManyRangesAndPins(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	const rows, pinned = 3000, 400
	s := newStage(t, faults.Config{Routers: 2, EtcdApart: true}, 0)
	s.load.Faulty = true
	conn := s.client(t)
	if _, err := s.Routers[0].API().CreateKeyspace(t.Context(), api.CreateKeyspace{Name: "tenants", Key: []string{"uuid"}, Algorithm: "ring", VirtualNodes: 400}); err != nil {
		t.Fatal(err)
	}
	execute(t, conn, "CREATE TABLE tenants (id uuid PRIMARY KEY, n bigint)")
	execute(t, conn, "SELECT cleave.shard_table('tenants', 'id', keyspace => 'tenants')")
	uuid := func(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }
	execute(t, conn, "INSERT INTO tenants SELECT ('00000000-0000-4000-8000-' || lpad(i::text, 12, '0'))::uuid, i FROM generate_series(1, $1::int) AS i", rows)
	check := func() {
		t.Helper()
		var got string
		if err := s.client(t).QueryRow(t.Context(), "SELECT count(*) || ' ' || sum(n) || ' ' || count(DISTINCT id) FROM tenants").Scan(&got); err != nil || got != fmt.Sprint(rows, rows*(rows+1)/2, rows) {
			t.Errorf("the rows: %s, %v", got, err)
		}
		s.clean(t)
	}
	var keys [][]string
	for i := range pinned {
		keys = append(keys, []string{uuid(i + 1)})
	}
	list, err := s.Routers[0].API().StartMoves(t.Context(), api.StartMove{Keyspace: "tenants", To: "s1", Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Moves {
		if len(m.Keys) < pinned/4 {
			t.Errorf("a move of %d keys", len(m.Keys))
		}
		s.await(t, m.ID, "done")
	}
	check()
	id := s.start(t, api.StartMove{Keyspace: "tenants", From: "s1", To: "s2", Manual: true})
	if m := s.await(t, id, "ready"); len(m.Ranges) < 100 || len(m.Keys) < pinned/2 {
		t.Errorf("a move of %d ranges and %d keys", len(m.Ranges), len(m.Keys))
	}
	s.wish(t, id, "cancel")
	s.await(t, id, "cancelled")
	check()
	if !thorough.Asked() {
		return
	}
	id = s.loseEtcd(t, "move.switch.pass", api.StartMove{Keyspace: "tenants", From: "s1", To: "s2"})
	s.await(t, id, "done")
	check()
}
