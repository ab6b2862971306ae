package session

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// heldDefinitions holds tables in the state that this router alone goes by.
type heldDefinitions struct{ *schemaHeld }

func (d heldDefinitions) Hold(ctx context.Context, tables []topology.TableName, _ string) (id string, release func(), refused *pgerr.Error) {
	release = func() { d.set() }
	for epoch := d.set(tables[0].Name); !d.hasApplied(epoch); {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			release()
			return "", nil, pgerr.New(pgerr.CannotConnectNow, "the tables are not held")
		}
	}
	return tables[0].Name, release, nil
}

func (heldDefinitions) Holding(context.Context, string) *pgerr.Error               { return nil }
func (heldDefinitions) Dropped(context.Context, []topology.TableName) *pgerr.Error { return nil }
func (heldDefinitions) Changed(context.Context)                                    {}

// TestWaitsInTheRouterEnd as those for locks in PostgreSQL do: for those who use a table that is changed, and for those who change it.
func TestWaitsInTheRouterEnd(t *testing.T) {
	held := &schemaHeld{}
	config := held.config()
	config.Definitions, config.HoldTimeout = heldDefinitions{held}, time.Minute
	w := newWorld(t, worldConfig{noPlain: true, config: config})
	key := w.key(t, 2, 0)
	use := fmt.Sprintf("SELECT note FROM orders WHERE id = %d", key)
	user := dialRaw(t, w.address, nil)
	user.query("BEGIN")
	user.query(use)
	const alter = "ALTER TABLE orders ADD COLUMN never int"
	inTheWay := map[string]func(t *testing.T) (sql string){
		"of somebody who uses it": func(*testing.T) string { return alter },
		"of somebody who changes it": func(t *testing.T) string {
			held.set("orders")
			t.Cleanup(func() { held.set() })
			return use
		},
	}
	ends := map[string]struct{ set, says string }{
		"cancelled":           {"RESET lock_timeout", "ERROR 57014 canceling statement due to user request"},
		"by the lock timeout": {"SET lock_timeout = '20ms'", "ERROR 55P03 canceling statement due to lock timeout"},
		"by the statement's":  {"SET statement_timeout = '20ms'", "ERROR 57014 canceling statement due to statement timeout"},
		"by the shorter one":  {"SET statement_timeout = '1min'; SET lock_timeout = '20ms'", "ERROR 55P03 canceling statement due to lock timeout"},
	}
	begins := map[string][]string{"no block": nil, "a block": {"BEGIN"}, "a block on a shard": {"BEGIN", "SELECT 1 FROM undeclared"}, "a block on several": {"BEGIN", "SELECT 1 FROM undeclared", "UPDATE countries SET name = 'x'"}}
	for why, meet := range inTheWay {
		for how, end := range ends {
			for where, begin := range begins {
				t.Run(why+", "+how+", "+where, func(t *testing.T) {
					sql := meet(t)
					c := dialRaw(t, w.address, nil)
					c.query(end.set)
					for _, before := range begin {
						c.query(before)
					}
					c.send(&pgproto3.Query{String: sql})
					if how == "cancelled" {
						eventually(t, "it waits", func() bool { return w.waits(c.pid) && held.isSet() })
						w.cancel(t, c.pid, c.secret)
					}
					said, status := c.readyTimes(1), "ready I"
					if len(begin) > 0 {
						status = "ready E"
					}
					if !slices.Equal(said, []string{end.says, status}) {
						t.Errorf("%q", said)
					}
					_ = c.conn.Close()
				})
			}
		}
	}
	user.query("COMMIT")
	if said := strings.Join(user.query(use), "\n"); !strings.Contains(said, "done SELECT") {
		t.Errorf("afterwards: %s", said)
	}
	_ = user.conn.Close()
	w.settled(t)
}

// isSet says whether tables are held.
func (h *schemaHeld) isSet() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.state.Holds) > 0
}

// TestNoCancellationIsLost: whatever the session is about when a request to cancel comes, be it a question of its own, the statement ends with it.
func TestNoCancellationIsLost(t *testing.T) {
	t.Parallel()
	held := &schemaHeld{}
	config := held.config()
	config.Definitions, config.HoldTimeout = heldDefinitions{held}, time.Minute
	w := newWorld(t, worldConfig{noPlain: true, config: config})
	use := fmt.Sprintf("SELECT note FROM orders WHERE id = %d", w.key(t, 2, 0))
	c := dialRaw(t, w.address, nil)
	c.query(use)
	held.set("orders")
	defer held.set()
	for range 300 {
		for !w.isIdle(c.pid) { // or it is the last statement that is cancelled, which is over
			time.Sleep(time.Microsecond)
		}
		c.send(&pgproto3.Query{String: use})
		for w.isIdle(c.pid) {
			time.Sleep(time.Microsecond)
		}
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
		w.cancel(t, c.pid, c.secret)
		if said := c.readyTimes(1); !slices.Equal(said, []string{"ERROR 57014 canceling statement due to user request", "ready I"}) {
			t.Fatalf("%q", said)
		}
	}
	_ = c.conn.Close()
}

// TestCancellingWhileTheClientIsWaitedFor: as in PostgreSQL that does nothing, though the client has sent the beginning of something.
func TestCancellingWhileTheClientIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	c := dialRaw(t, w.address, nil)
	c.query("SELECT 1")
	c.send(&pgproto3.Parse{Query: "SELECT 2"}, &pgproto3.Bind{})
	eventually(t, "it is looked at", func() bool { return !w.isIdle(c.pid) })
	time.Sleep(20 * time.Millisecond)
	w.cancel(t, c.pid, c.secret)
	c.send(&pgproto3.Execute{}, &pgproto3.Sync{})
	if said := strings.Join(c.readyTimes(1), "\n"); !strings.Contains(said, "done SELECT 1\nready I") {
		t.Error(said)
	}
	_ = c.conn.Close()
}
