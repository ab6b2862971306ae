package shard

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

func TestPing(t *testing.T) {
	c := newCluster(t, 1)
	ping := func() Health { return must[Health](t)(Ping(t.Context(), c.conns[0])) }
	if h := ping(); h.MapVersion != 0 || h.InRecovery || h.Receiving || h.ReplayLag != 0 || !strings.Contains(h.ServerVersion, ".") {
		t.Errorf("before the first record: %+v", h)
	}
	c.record(t)
	if h := ping(); h.MapVersion != c.m.Version() {
		t.Errorf("after the record: %+v", h)
	}
	empty := connect(t, specOf("empty", pgtest.Start(t)))
	if h := must[Health](t)(Ping(t.Context(), empty)); h.MapVersion != 0 {
		t.Errorf("where nothing is installed: %+v", h)
	}
}

func TestPingOfAReplica(t *testing.T) {
	c := newCluster(t, 1)
	c.record(t)
	primary := c.conns[0]
	replica := pgtest.StartReplica(t, c.servers[0])
	spec := specOf("s1", c.servers[0])
	conn, err := Access{}.ConnectTo(t.Context(), spec, replica.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	reached := func(function string) { // waits until the replica is where the primary is now
		t.Helper()
		target := one[string](t, primary, "SELECT pg_current_wal_insert_lsn()::text")
		for !one[bool](t, conn, "SELECT coalesce("+function+"() >= $1::pg_lsn, false)", target) {
			if t.Context().Err() != nil {
				t.Fatal("the replica does not catch up")
			}
		}
	}
	execute(t, primary, "CREATE TABLE public.t (id int)")
	reached("pg_last_wal_replay_lsn")
	h := must[Health](t)(Ping(t.Context(), conn))
	if !h.InRecovery || !h.Receiving || h.ReplayLag != 0 || h.MapVersion != c.m.Version() {
		t.Errorf("a replica that has replayed everything: %+v", h)
	}
	execute(t, conn, "SELECT pg_wal_replay_pause()")
	execute(t, primary, "INSERT INTO public.t VALUES (1)")
	reached("pg_last_wal_receive_lsn")
	if h := must[Health](t)(Ping(t.Context(), conn)); h.ReplayLag <= 0 {
		t.Errorf("a replica that has received more than it has replayed: %+v", h)
	}
}
