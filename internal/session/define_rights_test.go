package session

import (
	"context"
	"testing"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// neverHeld are definitions for which no table can be held: somebody uses it all the time.
type neverHeld struct{}

func (neverHeld) Hold(context.Context, []topology.TableName, string) (string, func(), *pgerr.Error) {
	return "", nil, pgerr.New(pgerr.LockNotAvailable, "in use")
}

func (neverHeld) Holding(context.Context, string) *pgerr.Error               { return nil }
func (neverHeld) Dropped(context.Context, []topology.TableName) *pgerr.Error { return nil }
func (neverHeld) Changed(context.Context)                                    {}

// TestNobodyWaitsForOneWithoutRights: a role that may not change a table hears so before the table is held.
func TestNobodyWaitsForOneWithoutRights(t *testing.T) {
	w := newWorld(t, worldConfig{noPlain: true, setUp: []string{"CREATE ROLE stranger"}, config: Config{Definitions: neverHeld{}}})
	c := dialRaw(t, w.address, nil)
	for _, sql := range []string{"ALTER TABLE orders ADD COLUMN more int", "DROP TABLE countries", "ALTER TABLE orders RENAME COLUMN note TO notes"} {
		c.query("SET ROLE stranger")
		wantCodes(t, c.query(sql), "42501", "ready I")
		wantCodes(t, c.ask(pipeline(unnamed(sql), sync1)...), "42501", "ready I")
		c.query("BEGIN")
		wantCodes(t, c.query(sql), "42501", "ready E")
		c.query("ROLLBACK")
		c.query("RESET ROLE")
		wantCodes(t, c.query(sql), pgerr.LockNotAvailable, "ready I")
		c.query("BEGIN")
		wantCodes(t, c.query(sql), pgerr.LockNotAvailable, "ready E")
		wantCodes(t, c.query("SELECT 1"), "25P02", "ready E")
		wantCodes(t, c.query("ROLLBACK"), "", "ready I")
	}
	w.settled(t)
}
