package pgtest_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

// TestCopiesOfAModel have what it was furnished with, and are servers of their own for all that.
func TestCopiesOfAModel(t *testing.T) {
	made := 0
	model := &pgtest.Model{Furnish: func(ctx context.Context, server *localpg.Server) error {
		made++
		conn, err := pgx.Connect(ctx, server.DSN("postgres"))
		if err != nil {
			return err
		}
		_, err = conn.Exec(ctx, "CREATE TABLE furniture AS SELECT 'chair' AS name")
		return errors.Join(err, conn.Close(ctx))
	}}
	defer model.Remove()
	servers := append(model.StartN(t, 2), model.StartN(t, 1)...)
	if made != 1 {
		t.Errorf("the model was furnished %d times", made)
	}
	identifiers := map[int64]bool{}
	for _, server := range servers {
		conn, err := pgx.Connect(t.Context(), server.DSN("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		var identifier int64
		var name string
		if err := conn.QueryRow(t.Context(), "DELETE FROM furniture RETURNING name, (SELECT system_identifier FROM pg_control_system())").Scan(&name, &identifier); err != nil || name != "chair" {
			t.Errorf("a copy has %q: %v", name, err)
		}
		identifiers[identifier] = true
	}
	if len(identifiers) != len(servers) {
		t.Errorf("%d servers have %d identifiers", len(servers), len(identifiers))
	}
	folder := model.Configs(t, 1)[0].Model
	model.Remove()
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("the model is still there: %v", err)
	}
}

// TestAServerThatRunsIsNoModel: what is copied while it changes is not whole.
func TestAServerThatRunsIsNoModel(t *testing.T) {
	running := pgtest.Start(t)
	copied, err := localpg.Start(t.Context(), localpg.Config{Dir: pgtest.Folder(t), Fast: true, Model: running.Dir()})
	if err == nil {
		t.Error("a server was made from one that runs", copied.StopImmediately())
	}
}
