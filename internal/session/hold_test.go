package session

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

// schemaHeld is a schema state that a test changes, and what the router has said to it.
type schemaHeld struct {
	mu      sync.Mutex
	state   topology.SchemaState
	changed chan struct{}
	applied uint64
}

func (h *schemaHeld) config() Config {
	h.changed = make(chan struct{})
	return Config{
		Schema:     func() topology.SchemaState { h.mu.Lock(); defer h.mu.Unlock(); return h.state },
		MapChanged: func() <-chan struct{} { h.mu.Lock(); defer h.mu.Unlock(); return h.changed },
		Acknowledge: func(epoch uint64) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.applied = max(h.applied, epoch)
		},
	}
}

// set begins the next epoch, with these tables held.
func (h *schemaHeld) set(tables ...string) (epoch uint64) { return h.setFor("", tables...) }

// setMoving does so for a move of the tables.
func (h *schemaHeld) setMoving(tables ...string) (epoch uint64) { return h.setFor("m", tables...) }

func (h *schemaHeld) setFor(move string, tables ...string) (epoch uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = topology.SchemaState{Epoch: h.state.Epoch + 1}
	for _, name := range tables {
		h.state.Holds = append(h.state.Holds, topology.Hold{ID: name, Tables: []topology.TableName{{Schema: "public", Name: name}}, Why: "a test", Move: move})
	}
	close(h.changed)
	h.changed = make(chan struct{})
	return h.state.Epoch
}

func (h *schemaHeld) hasApplied(epoch uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.applied >= epoch
}

// TestATransactionGoesOnWithWhatItHasUsed: it is waited for, and waits for nobody who waits for it. Others wait.
func TestATransactionGoesOnWithWhatItHasUsed(t *testing.T) {
	t.Parallel()
	held := &schemaHeld{}
	w := newWorld(t, worldConfig{noPlain: true, config: held.config()})
	statement := func(key int64) string { return fmt.Sprintf("UPDATE orders SET note = 'x' WHERE id = %d", key) }
	here, there := w.key(t, 1, 0), w.key(t, 2, 0)
	for name, ways := range map[string][2]func(c *rawClient, sql string) string{
		"simple queries":        {saidToQuery, saidToQuery},
		"the extended protocol": {saidToPipeline, saidToPipeline},
		"both":                  {saidToPipeline, saidToQuery},
	} {
		t.Run(name, func(t *testing.T) {
			c := dialRaw(t, w.address, nil)
			ways[0](c, "BEGIN")
			ways[0](c, statement(here))
			epoch := held.set("orders")
			for _, key := range []int64{here, there, here} {
				if said := ways[1](c, statement(key)); strings.Contains(said, "ERROR") {
					t.Fatalf("in a transaction that has used it: %s", said)
				}
			}
			other := dialRaw(t, w.address, nil)
			waits := make(chan string, 1)
			go func() { waits <- saidToQuery(other, statement(w.key(t, 2, 1))) }()
			if held.hasApplied(epoch) {
				t.Error("the router says that nobody uses the table")
			}
			ways[1](c, "COMMIT")
			eventually(t, "nobody uses the table", func() bool { return held.hasApplied(epoch) })
			select {
			case said := <-waits:
				t.Fatalf("somebody did not wait: %s", said)
			default:
			}
			held.set()
			if said := <-waits; !strings.Contains(said, "done UPDATE") {
				t.Errorf("who waited: %s", said)
			}
		})
	}
}

func saidToQuery(c *rawClient, sql string) string { return strings.Join(c.query(sql), "\n") }

func saidToPipeline(c *rawClient, sql string) string {
	return strings.Join(c.ask(pipeline(unnamed(sql), sync1)...), "\n")
}

// TestAHoldMeetsAPipeline: a unit that has been planned in part goes on, and one that failed or ended keeps nobody waiting.
func TestAHoldMeetsAPipeline(t *testing.T) {
	t.Parallel()
	held := &schemaHeld{}
	w := newWorld(t, worldConfig{noPlain: true, config: held.config()})
	c := dialRaw(t, w.address, nil)
	c.send(parse("", "SELECT note FROM orders WHERE id = $1"))
	eventually(t, "the statement is planned", func() bool { return w.uses("orders") })
	epoch := held.set("orders")
	if said := strings.Join(c.ask(bind("", "", "1"), run(""), sync1), "\n"); !strings.Contains(said, "done SELECT") {
		t.Errorf("the rest of a unit: %s", said)
	}
	eventually(t, "nobody uses the table", func() bool { return held.hasApplied(epoch) })
	held.set()

	c.query("BEGIN")
	c.query("SELECT note FROM orders WHERE id = 1")
	c.query("SELECT nosuch FROM orders WHERE id = 1")
	epoch = held.set("orders")
	eventually(t, "a transaction that has failed uses nothing", func() bool { return held.hasApplied(epoch) })
	c.query("ROLLBACK")
	held.set()
}

// uses says whether a session has said that it uses a table.
func (w *world) uses(name string) bool {
	return !w.server.isClear(topology.SchemaState{Holds: []topology.Hold{{Tables: []topology.TableName{{Schema: "public", Name: name}}}}})
}

// TestADefinitionGivesUp: somebody past the routers has the table locked, so that a definition would keep all others waiting.
func TestADefinitionGivesUp(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{})
	c, past := dialRaw(t, w.address, nil), w.onShard(t, 2)
	execute(t, past, "BEGIN")
	execute(t, past, "LOCK TABLE orders IN ACCESS SHARE MODE")
	for _, own := range []string{"", "100ms"} {
		if own != "" {
			c.query("SET lock_timeout = '" + own + "'")
		}
		if said := saidToQuery(c, "ALTER TABLE orders ADD COLUMN more int"); !strings.Contains(said, "ERROR 55P03") {
			t.Errorf("with a limit of %q: %s", own, said)
		}
	}
	w.sameShapes(t)
	w.nothingPrepared(t)
	execute(t, past, "ROLLBACK")
	for _, own := range []string{"0", "100ms", "5s"} {
		c.query("BEGIN")
		c.query("SET LOCAL lock_timeout = '" + own + "'")
		if said := saidToQuery(c, "ALTER TABLE orders ADD COLUMN more int"); strings.Contains(said, "ERROR") {
			t.Error(said)
		}
		for _, key := range []int64{w.key(t, 1, 0), w.key(t, 2, 0)} {
			sql := fmt.Sprintf("SELECT current_setting('lock_timeout') FROM (SELECT count(*) FROM orders WHERE id = %d) AS rows", key)
			if said := saidToQuery(c, sql); !strings.Contains(said, fmt.Sprintf("row %q", own)) {
				t.Errorf("the limit was %s: %s", own, said)
			}
		}
		c.query("ROLLBACK")
	}
}

// TestWhoWaitedGoesByTheNewMap: a statement that had to wait until its table was declared is routed anew, EXECUTE too.
func TestWhoWaitedGoesByTheNewMap(t *testing.T) {
	t.Parallel()
	held := &schemaHeld{}
	w := newWorld(t, worldConfig{noPlain: true, config: held.config(), setUp: []string{"CREATE TABLE later (id bigint PRIMARY KEY)", "INSERT INTO later VALUES (1)"}})
	for name, sql := range map[string]string{"a query": "SELECT id FROM later WHERE id = 1", "EXECUTE": "EXECUTE one (1)"} {
		c := dialRaw(t, w.address, nil)
		c.query("PREPARE one (bigint) AS SELECT id FROM later WHERE id = $1")
		epoch := held.set("later")
		eventually(t, "nobody uses the table", func() bool { return held.hasApplied(epoch) })
		waits := make(chan string, 1)
		go func() { waits <- saidToQuery(c, sql) }()
		eventually(t, "it waits", func() bool { return w.waits(c.pid) })
		w.publish(must[*topology.Map](t)(w.published.Load().Next(topology.SetTable(topology.TableSpec{
			Name: "public.later", Kind: topology.Sharded, Keyspace: "main", Key: []string{"id"},
		}))))
		held.set()
		if said := <-waits; !strings.Contains(said, `row "1"`) {
			t.Errorf("%s: %s", name, said)
		}
		w.publish(must[*topology.Map](t)(w.published.Load().Next(topology.DropTable("public.later"))))
	}
}

// waits says whether a client waits for something that others have to do.
func (w *world) waits(pid uint32) bool { return w.infoOf(pid).Waiting }

func (w *world) isIdle(pid uint32) bool { return w.infoOf(pid).Idle }

func (w *world) infoOf(pid uint32) Info {
	for _, info := range w.server.Sessions() {
		if info.Number == pid {
			return info
		}
	}
	return Info{}
}

// TestWhatRunsUnseenWaitsForMoves: code of which nobody can tell what it uses may use the table that is about to be on another shard, so it is waited for, and waits; for others who hold tables it does not.
func TestWhatRunsUnseenWaitsForMoves(t *testing.T) {
	t.Parallel()
	held := &schemaHeld{}
	w := newWorld(t, worldConfig{noPlain: true, unsharded: true, config: held.config(), setUp: []string{"CREATE TABLE alone (a int)", "CREATE FUNCTION counted() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM alone); END'"}})
	const unseen = "SELECT counted()"
	c, other := dialRaw(t, w.address, nil), dialRaw(t, w.address, nil)
	saidToQuery(c, "BEGIN")
	saidToQuery(c, unseen)
	eventually(t, "a definition does not wait for it", func(epoch uint64) func() bool { return func() bool { return held.hasApplied(epoch) } }(held.set("alone")))
	epoch := held.setMoving("alone")
	if said := saidToQuery(c, unseen); strings.Contains(said, "ERROR") {
		t.Fatalf("in a transaction that has run it: %s", said)
	}
	waits := make(chan string, 1)
	go func() { waits <- saidToQuery(other, "DO 'BEGIN PERFORM FROM alone; END'") }()
	if held.hasApplied(epoch) {
		t.Error("the router says that nobody uses the table")
	}
	saidToQuery(c, "COMMIT")
	eventually(t, "nobody uses the table", func() bool { return held.hasApplied(epoch) })
	select {
	case said := <-waits:
		t.Fatalf("somebody did not wait: %s", said)
	default:
	}
	held.set()
	if said := <-waits; strings.Contains(said, "ERROR") {
		t.Errorf("who waited: %s", said)
	}
}
