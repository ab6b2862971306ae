package pgtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cleavedb/cleave/internal/localpg"
)

// Model is a server that the servers of many tests begin as copies of, so that what all of them have is made once for all tests of a
// package. It is made when it is first wanted, and stays for as long as the process does: TestMain is to call [Model.Remove].
type Model struct {
	// Furnish makes what the copies are to have.
	Furnish func(ctx context.Context, server *localpg.Server) error

	once   sync.Once
	folder string
	err    error
}

// StartN starts that many copies side by side, as [StartN] does servers.
func (m *Model) StartN(t testing.TB, count int) []*localpg.Server {
	t.Helper()
	return StartWith(t, m.Configs(t, count)...)
}

// Configs returns that many configurations of copies, for tests that have more to say of them.
func (m *Model) Configs(t testing.TB, count int) []localpg.Config {
	t.Helper()
	require(t)
	m.once.Do(func() { m.err = m.make() })
	skipOrFail(t, m.err)
	configs := make([]localpg.Config, count)
	for i := range configs {
		configs[i].Model = filepath.Join(m.folder, "model")
	}
	return configs
}

// Remove removes the model; its copies are not affected.
func (m *Model) Remove() {
	if m.folder != "" {
		_ = os.RemoveAll(m.folder)
	}
}

// make makes the model. It does not end with the test that wants it first.
func (m *Model) make() (err error) {
	if m.folder, err = os.MkdirTemp(Scratch(), "cleave-pgtest-"); err != nil {
		return err
	}
	if err := os.Chmod(m.folder, 0o711); err != nil {
		return err
	}
	ctx := context.Background()
	server, err := localpg.Start(ctx, localpg.Config{
		Dir: filepath.Join(m.folder, "model"), Fast: true, Template: true,
		Settings: map[string]string{"wal_recycle": "off"}, // no more to copy than there has to be
	})
	if err != nil {
		return err
	}
	return errors.Join(m.Furnish(ctx, server), server.Stop(ctx))
}
