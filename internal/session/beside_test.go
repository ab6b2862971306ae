package session

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestPreparingTiesNoTransaction: many clients prepare a statement first and tell the key afterwards. A transaction goes where the
// key is, whatever was prepared in it before.
func TestPreparingTiesNoTransaction(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{})
	const insert, find = "INSERT INTO orders VALUES ($1, 'x')", "SELECT note FROM orders WHERE id = $1"
	prepare := func(name, sql string) step { return sent(parse(name, sql), describeStatement(name), sync1) }
	use := func(name string, arguments ...string) step { return sent(bind("", name, arguments...), run(""), sync1) }
	for _, number := range []int{1, 2} {
		k := strconv.FormatInt(w.key(t, number, 0), 10)
		for _, c := range []struct {
			name  string
			steps []step
		}{
			{"named", []step{query("BEGIN"), prepare("a", insert), prepare("b", find), use("a", k), use("b", k), query("ROLLBACK"), use("b", k)}},
			{"unnamed", []step{query("BEGIN"), prepare("", insert), use("", k), query("ROLLBACK")}},
			{"committed", []step{query("BEGIN"), prepare("a", insert), use("a", k), query("COMMIT"), query("DELETE FROM orders WHERE id = " + k)}},
			{"and nothing else", []step{query("BEGIN"), prepare("a", find), query("COMMIT"), use("a", k)}},
			{"in a pipeline with BEGIN", []step{sent(append(unnamed("BEGIN"), parse("a", find), describeStatement("a"), sync1)...), use("a", k), query("COMMIT")}},
			{"what is wrong", []step{query("BEGIN"), prepare("a", "SELECT nosuch FROM orders WHERE id = $1"), prepare("b", find), query("SELECT 1"), query("ROLLBACK"), prepare("b", find), use("b", k)}},
			{"what cannot be read", []step{query("BEGIN"), sent(parse("a", "SELEKT"), sync1), query("SELECT 1"), query("COMMIT")}},
			{"under settings of the transaction", []step{
				query("BEGIN"), query("SET LOCAL search_path = pg_catalog"), prepare("a", "SELECT note FROM public.orders WHERE id = $1"), prepare("b", "SELECT * FROM undeclared"), query("ROLLBACK"),
				prepare("b", "SELECT * FROM undeclared"), query("SHOW search_path"),
			}},
			{"settings that are kept", []step{query("BEGIN"), query("SET TimeZone = 'Asia/Tokyo'"), prepare("a", insert), use("a", k), query("COMMIT"), query("SHOW TimeZone"), query("DELETE FROM orders WHERE id = " + k)}},
			{"settings that are not", []step{query("BEGIN"), query("SET work_mem = '3MB'"), prepare("a", insert), prepare("b", "SELECT nosuch"), query("COMMIT"), query("SHOW work_mem")}},
			{"serializable", []step{query("BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY"), prepare("a", insert), use("a", k), query("ROLLBACK")}},
		} {
			t.Run(fmt.Sprintf("%s, shard %d", c.name, number), func(t *testing.T) { w.sameAsPlain(t, c.steps...) })
		}
	}
}

// TestPreparingWithoutAShard: a transaction in which nothing could be prepared has failed, as it would on a server.
func TestPreparingWithoutAShard(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	c := dialRaw(t, w.address, nil)
	c.query("BEGIN")
	if err := w.shards[0].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	said := strings.Join(c.ask(parse("a", "SELECT note FROM orders WHERE id = $1"), describeStatement("a"), sync1), " ")
	if !strings.Contains(said, "ready E") {
		t.Errorf("after a failure: %q", said)
	}
	if said := strings.Join(c.query("SELECT 1"), " "); !strings.Contains(said, "25P02") {
		t.Errorf("in a failed transaction: %q", said)
	}
	if said := strings.Join(c.query("ROLLBACK"), " "); !strings.Contains(said, "ready I") {
		t.Errorf("after its end: %q", said)
	}
	_ = c.conn.Close()
}
