package session

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// slowVirtual has a function that takes its time and says how far it is.
type slowVirtual struct{ fakeVirtual }

func (slowVirtual) Call(_ context.Context, call Call) (*string, *pgerr.Error) {
	call.Notice("half is done: 50%")
	said := make(chan struct{})
	go func() { // whoever does the work is somebody else
		defer close(said)
		call.Notice("all is done")
	}()
	<-said
	text := call.Role
	return &text, nil
}

// TestACallSaysHowFarItIs before it has ended, in both protocols.
func TestACallSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, config: Config{Virtual: slowVirtual{}}})
	var heard []string
	config := must[*pgx.ConnConfig](t)(pgx.ParseConfig("postgres://postgres@" + w.address + "/postgres?sslmode=disable"))
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { heard = append(heard, n.Severity+" "+n.Message) }
	client := must[*pgx.Conn](t)(pgx.ConnectConfig(t.Context(), config))
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec} {
		heard = nil
		if role := one[string](t, client, "SELECT cleave.shard_table('a', 'b')", mode); role != "postgres" {
			t.Errorf("called by %q", role)
		}
		if want := []string{"NOTICE half is done: 50%", "NOTICE all is done"}; !slices.Equal(heard, want) {
			t.Errorf("heard %q", heard)
		}
	}
}
