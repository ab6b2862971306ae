package shard

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/idgen"
	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/pgerr"
	thoroughly "github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

// number declares a table that is there on every shard as sharded, with its numbers made, and returns how the map has it.
func (c *cluster) number(t testing.TB, keyspace, table string, columns ...string) *topology.Table {
	t.Helper()
	name := topology.TableName{Schema: "public", Name: table}
	definition := must[*Definition](t)(Describe(t.Context(), c.conns[0], name))
	numbers := must[Numbers](t)(definition.ReadNumbers(t.Context(), c.conns[0]))
	ids, keys, _, err := definition.Made(columns, numbers)
	if err != nil {
		t.Fatal(err)
	}
	c.change(t, topology.SetTable(topology.TableSpec{Name: name.String(), Kind: topology.Sharded, Keyspace: keyspace, Key: columns, IDs: ids, MadeKeys: keys}))
	c.countOnShards(t, definition)
	c.record(t)
	return c.m.Table("public", table)
}

// countOnShards gives the table's sequences numbers on every shard.
func (c *cluster) countOnShards(t testing.TB, definition *Definition) {
	t.Helper()
	declared := c.m.Table(definition.Table.Schema, definition.Table.Name)
	err := pgx.BeginFunc(t.Context(), c.conns[0], func(home pgx.Tx) error {
		ends, err := definition.SequenceEnds(t.Context(), home)
		if err != nil {
			return err
		}
		if err := definition.StartBlocks(t.Context(), home, ends); err != nil {
			return err
		}
		for i, conn := range c.conns {
			blocks, err := definition.TakeBlocks(t.Context(), home, len(c.conns), nil)
			if err != nil {
				return err
			}
			tx := home
			if i > 0 {
				if tx, err = conn.Begin(t.Context()); err != nil {
					return err
				}
				defer func() { _ = tx.Commit(context.WithoutCancel(t.Context())) }()
			}
			if err := definition.SetNumbers(t.Context(), tx, declared, c.m.Shard(shardName(i)), ends, blocks); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// listener is a router's connection that keeps what it is told.
type listener struct {
	*pgx.Conn
	told []string
}

func listen(t testing.TB, spec topology.ShardSpec) *listener {
	t.Helper()
	l := &listener{}
	config := must[*pgx.ConnConfig](t)(Access{}.to(spec).config(spec.Primary.Address))
	config.RuntimeParams = map[string]string{RouterParameter: "r-1", "client_min_messages": "error"}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.Code == pgerr.NumberMade && n.Severity == "INFO" {
			l.told = append(l.told, n.Message)
		} else {
			l.told = append(l.told, "other: "+n.Message)
		}
	}
	l.Conn = must[*pgx.Conn](t)(pgx.ConnectConfig(t.Context(), config))
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// expectTold wants these messages since it was last asked.
func (l *listener) expectTold(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(l.told, want) {
		t.Errorf("told %q, want %q", l.told, want)
	}
	l.told = nil
}

// keysHere returns keys that the shard owns.
func keysHere(k *topology.Keyspace, shard string, count int) []int64 {
	var keys []int64
	for n := int64(1); len(keys) < count; n++ {
		value, err := key.OfInt(key.Bigint, n)
		if err != nil {
			panic(err)
		}
		if place, err := k.Locate(value); err == nil && place.Shard.Name() == shard {
			keys = append(keys, n)
		}
	}
	return keys
}

func slotOf(k *topology.Keyspace, n int64) int {
	value, err := key.OfInt(key.Bigint, n)
	if err != nil {
		panic(err)
	}
	return idgen.DefaultLayout().SlotOf(k.Hash(value))
}

// madeIDs fails unless the column's numbers are different ids that fit their keys, and returns them in the order of the table's own column.
func madeIDs(t *testing.T, conn *pgx.Conn, table *topology.Table, shard int, want int) []int64 {
	t.Helper()
	layout := idgen.DefaultLayout()
	rows := must[pgx.Rows](t)(conn.Query(t.Context(), fmt.Sprintf("SELECT user_id::bigint, id FROM %s ORDER BY place", table.Name())))
	seen := map[int64]bool{}
	var all []int64
	var user, id int64
	_, err := pgx.ForEachRow(rows, []any{&user, &id}, func() error {
		all = append(all, id)
		parts := layout.Decode(id)
		if seen[id] || id < table.IDs()[0].Floor || parts.Slot != slotOf(table.Keyspace(), user) || parts.Generator != makerNumbers-shard {
			t.Errorf("key %d has id %d: %+v, want slot %d and generator %d", user, id, parts, slotOf(table.Keyspace(), user), makerNumbers-shard)
		}
		seen[id] = true
		return nil
	})
	if err != nil || len(all) != want {
		t.Fatalf("%d rows, %v; want %d", len(all), err, want)
	}
	return all
}

// TestMadeIDs come by every way in which a row can be inserted.
func TestMadeIDs(t *testing.T) {
	for _, column := range []string{"bigserial", "bigint GENERATED BY DEFAULT AS IDENTITY", "bigint GENERATED ALWAYS AS IDENTITY"} {
		t.Run(column, func(t *testing.T) {
			c := newCluster(t, 2)
			c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}, 1<<63))
			c.everywhere(t, `CREATE TABLE orders (place serial, user_id bigint NOT NULL, id `+column+`, note text, PRIMARY KEY (user_id, id));
				CREATE FUNCTION seen() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.note := NEW.id; RETURN NEW; END';
				CREATE TRIGGER "0" BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION seen()`)
			orders := c.number(t, "users", "orders", "user_id")
			if len(orders.IDs()) != 1 || orders.IDs()[0].Column != "id" || len(orders.MadeKeys()) != 0 {
				t.Fatalf("declared as %+v", orders.Spec())
			}
			for i := range c.servers {
				insertEveryWay(t, c, orders, i)
			}
			for i, conn := range c.conns {
				expectCodes(t, must[[]api.Finding](t)(Prepare(c.m).CheckGuards(t.Context(), conn, shardName(i))))
			}
		})
	}
}

func insertEveryWay(t *testing.T, c *cluster, orders *topology.Table, shard int) {
	t.Helper()
	l := listen(t, specOf(shardName(shard), c.servers[shard]))
	keys := keysHere(orders.Keyspace(), shardName(shard), 50)
	const sequence = " public.orders_id_seq"
	returned := one[int64](t, l.Conn, "INSERT INTO orders (user_id) VALUES ($1) RETURNING id", keys[0])
	l.expectTold(t, fmt.Sprint(returned, sequence))
	execute(t, l.Conn, "INSERT INTO orders (user_id, id) VALUES ($1, DEFAULT), ($2, DEFAULT), ($1, DEFAULT)", keys[1], keys[2])
	last := one[int64](t, l.Conn, "SELECT id FROM orders ORDER BY place DESC LIMIT 1")
	l.expectTold(t, fmt.Sprint(last, sequence))
	execute(t, l.Conn, "INSERT INTO orders (user_id) SELECT k FROM unnest($1::bigint[]) AS k ORDER BY k DESC", keys)
	l.told = nil
	tx := must[pgx.Tx](t)(l.Begin(t.Context()))
	undone := must[pgx.Rows](t)(tx.Query(t.Context(), "INSERT INTO orders (user_id) VALUES ($1) RETURNING id", keys[0]))
	gone := must[int64](t)(pgx.CollectExactlyOneRow(undone, pgx.RowTo[int64]))
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.expectTold(t, fmt.Sprint(gone, sequence))
	var lines strings.Builder
	for _, k := range keys {
		fmt.Fprintln(&lines, k)
	}
	if _, err := l.PgConn().CopyFrom(t.Context(), strings.NewReader(lines.String()), "COPY orders (user_id) FROM STDIN"); err != nil {
		t.Fatal(err)
	}
	if len(l.told) != 1 {
		t.Errorf("a copy has told %q", l.told)
	}
	conflicting := one[int64](t, l.Conn, "INSERT INTO orders (user_id) VALUES ($1) ON CONFLICT (user_id, id) DO UPDATE SET note = 'again' RETURNING id", keys[3])
	execute(t, l.Conn, "SET cleave.tell_numbers = off")
	l.told = nil
	execute(t, l.Conn, "INSERT INTO orders (user_id) VALUES ($1)", keys[4])
	l.expectTold(t)
	all := madeIDs(t, l.Conn, orders, shard+1, 1+3+50+50+1+1)
	if slices.Contains(all, gone) || all[len(all)-2] != conflicting {
		t.Errorf("ids are %d", all)
	}
	if n := one[int](t, l.Conn, "SELECT count(*) FROM orders WHERE note <> id::text"); n > 0 {
		t.Errorf("%d times a trigger has not seen the number", n)
	}
	if name := one[string](t, l.Conn, "SELECT pg_get_serial_sequence('orders', 'id')"); name != "public.orders_id_seq" {
		t.Errorf("the sequence is %s", name)
	}
}

// TestIDsFitTheirKeys whoever writes them.
func TestIDsFitTheirKeys(t *testing.T) {
	c := newCluster(t, 2)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}, 1<<63))
	c.everywhere(t, "CREATE TABLE orders (user_id bigint NOT NULL, id bigserial, note text)")
	execute(t, c.conns[0], "INSERT INTO public.orders (user_id, id) VALUES ($1, 7)", 1)
	orders := c.number(t, "users", "orders", "user_id")
	keys := keysHere(orders.Keyspace(), "s1", 10)
	conn := c.routers(t)[0]
	made := one[int64](t, conn, "INSERT INTO orders (user_id) VALUES ($1) RETURNING id", keys[0])
	floor := orders.IDs()[0].Floor
	wrong := made ^ 1<<12 // another slot
	_, err := conn.Exec(t.Context(), "INSERT INTO orders (user_id, id) VALUES ($1, $2)", keys[0], wrong)
	said := refusedAs(t, pgerr.WrongNumber, err, "an id of another slot")
	if !strings.Contains(said.Detail, fmt.Sprintf("Id (id)=(%d) carries slot %d, and the row's key has slot %d", wrong, idgen.DefaultLayout().SlotOfID(wrong), slotOf(orders.Keyspace(), keys[0]))) ||
		!strings.Contains(said.Hint, "'counted'") || said.ColumnName != "id" || said.TableName != "orders" {
		t.Errorf("refused with %+v", said)
	}
	for _, ok := range []int64{floor - 1, 5, 0, -1, -1 << 62, made | 31} {
		execute(t, conn, "INSERT INTO orders (user_id, id, note) VALUES ($1, $2, 'explicit')", keys[0], ok)
		if n := one[int](t, conn, "SELECT count(*) FROM orders WHERE id = $1", ok); n != 1 {
			t.Errorf("%d is not stored as it was given", ok)
		}
	}
	_, err = conn.Exec(t.Context(), "UPDATE orders SET id = $2 WHERE id = $1", made, wrong)
	refusedAs(t, pgerr.WrongNumber, err, "an update of the id")
	_, err = conn.Exec(t.Context(), "UPDATE orders SET user_id = $2 WHERE id = $1", made, keys[1])
	refusedAs(t, pgerr.WrongNumber, err, "an update of the key")
	_, err = conn.Exec(t.Context(), "UPDATE orders SET id = DEFAULT WHERE id = $1", made)
	refusedAs(t, pgerr.WrongNumber, err, "an update to the default")
	execute(t, conn, "UPDATE orders SET note = 'x' WHERE id = $1", made)
	execute(t, conn, "UPDATE orders SET user_id = $1 WHERE id = 5", keys[1])
	_, err = conn.Exec(t.Context(), "INSERT INTO orders (user_id) VALUES (NULL)")
	refusedAs(t, pgerr.NotNullViolation, err, "a row without a key")
	_, err = conn.PgConn().CopyFrom(t.Context(), strings.NewReader(fmt.Sprintf("%d\t%d\n", keys[0], wrong)), "COPY orders (user_id, id) FROM STDIN")
	refusedAs(t, pgerr.WrongNumber, err, "a copy")
	c.everywhere(t, `CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.id := nextval('public.orders_id_seq'); RETURN NEW; END $$;
		CREATE TRIGGER own BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION own()`)
	_, err = conn.Exec(t.Context(), "INSERT INTO orders (user_id) VALUES ($1)", keys[0])
	refusedAs(t, pgerr.WrongNumber, err, "a trigger that draws a number itself")
	c.everywhere(t, "DROP TRIGGER own ON orders; CREATE OR REPLACE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.user_id := "+strconv.FormatInt(keys[1], 10)+"; RETURN NEW; END'; CREATE TRIGGER own BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION own()")
	_, err = conn.Exec(t.Context(), "INSERT INTO orders (user_id) VALUES ($1)", keys[0])
	refusedAs(t, pgerr.WrongNumber, err, "a trigger that changes the key")
	if n := one[int](t, conn, "SELECT count(*) FROM orders WHERE id < -1::bigint << 62"); n > 0 {
		t.Errorf("%d tickets are stored", n)
	}
}

// TestMadeKeys belong where they are made.
func TestMadeKeys(t *testing.T) {
	c := newCluster(t, 3)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}, 1<<62, 1<<63))
	var pins []topology.PinSpec
	for n := range int64(200) { // in the home shard's first block
		pins = append(pins, topology.PinSpec{Key: topology.Point{strconv.FormatInt(n+1, 10)}, Shard: "s3"})
	}
	c.change(t, topology.SetPins("users", pins...), c.splitAt(t, "pairs", 3, []string{"text", "bigint"}, 1<<63))
	c.everywhere(t, `CREATE TABLE users (id bigserial PRIMARY KEY, name text); CREATE TABLE people (id serial PRIMARY KEY, name text);
		CREATE TABLE pairs (region text, id bigint GENERATED ALWAYS AS IDENTITY, number bigserial, note text)`)
	for table, columns := range map[string][]string{"users": {"id"}, "people": {"id"}, "pairs": {"region", "id"}} {
		keyspace := table
		if table == "people" {
			keyspace = "users"
		}
		if declared := c.number(t, keyspace, table, columns...); !slices.Equal(declared.MadeKeys(), []string{"id"}) {
			t.Fatalf("declared as %+v", declared.Spec())
		}
	}
	for i := range 2 { // the third shard has nothing of pairs
		c.insertWithoutKey(t, i, "users", "INSERT INTO users (name) SELECT 'n' || i FROM generate_series(1, 100) AS i", "id")
		c.insertWithoutKey(t, i, "people", "INSERT INTO people SELECT FROM generate_series(1, 100) AS i", "id")
		c.insertWithoutKey(t, i, "pairs", "INSERT INTO pairs (region) SELECT 'r' || i % 7 FROM generate_series(1, 100) AS i", "region", "id")
	}
	c.insertWithoutKey(t, 2, "people", "INSERT INTO people SELECT FROM generate_series(1, 100) AS i", "id")
	conn := c.routers(t)[0]
	_, err := conn.Exec(t.Context(), "INSERT INTO pairs (region) VALUES (NULL)")
	refusedAs(t, pgerr.NotNullViolation, err, "a key of which another part is null")
	if n := one[int](t, conn, "SELECT count(*) FROM pairs WHERE number < $1 OR cleave.is_ticket('pairs'::regclass, 'number', number)", c.m.Table("public", "pairs").IDs()[0].Floor); n > 0 {
		t.Errorf("%d rows with a made key have no made id", n)
	}
	_, err = c.routers(t)[2].Exec(t.Context(), "INSERT INTO pairs (region) VALUES ('r')")
	if said := refusedAs(t, pgerr.NotOwned, err, "a shard that owns nothing"); !strings.Contains(said.Detail, "numbers were tried") {
		t.Errorf("refused with %+v", said)
	}
	c.ownNegativeKeys(t)
}

// insertWithoutKey leaves the key to the shard, and looks at what it has made.
func (c *cluster) insertWithoutKey(t *testing.T, shard int, table, insert string, columns ...string) {
	t.Helper()
	l := listen(t, specOf(shardName(shard), c.servers[shard]))
	execute(t, l.Conn, insert)
	k := c.m.Table("public", table).Keyspace()
	rows := must[pgx.Rows](t)(l.Query(t.Context(), "SELECT ARRAY["+strings.Join(columns, "::text, ")+"::text] FROM "+table))
	points := must[[][]string](t)(pgx.CollectRows(rows, pgx.RowTo[[]string]))
	if len(points) != 100 {
		t.Errorf("%d rows of %s", len(points), table)
	}
	for _, p := range points {
		values := make([]key.Value, len(p))
		for i, text := range p {
			values[i] = must[key.Value](t)(k.KeyTypes()[i].Parse(text))
		}
		if place := must[topology.Place](t)(k.Locate(values...)); place.Shard.Name() != shardName(shard) || strings.HasPrefix(p[len(p)-1], "-") {
			t.Errorf("key %s of table %s was made on shard %d", p, table, shard+1)
		}
	}
	if len(l.told) == 0 || !strings.HasSuffix(l.told[0], " public."+table+"_id_seq") {
		t.Errorf("told %q", l.told)
	}
}

// ownNegativeKeys are the user's, as far as they are no tickets.
func (c *cluster) ownNegativeKeys(t *testing.T) {
	t.Helper()
	k := c.m.Table("public", "people").Keyspace()
	for n := int64(-1); n > -20; n-- {
		place := must[topology.Place](t)(k.Locate(must[key.Value](t)(key.OfInt(key.Bigint, n))))
		conn := c.routers(t)[place.Shard.Number()-1]
		execute(t, conn, "INSERT INTO people (id) VALUES ($1)", n)
		if stored := one[bool](t, conn, "SELECT EXISTS (SELECT FROM people WHERE id = $1)", n); !stored {
			t.Errorf("%d was not stored as it was given", n)
		}
	}
}

// TestBlocksOfTickets are refilled as tickets, and end as numbers.
func TestBlocksOfTickets(t *testing.T) {
	c := newCluster(t, 2)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}, 1<<63))
	c.everywhere(t, "CREATE TABLE people (id serial PRIMARY KEY, number serial)")
	people := c.number(t, "users", "people", "id")
	conn := c.routers(t)[1]
	names := []topology.TableName{people.Name()}
	byName := func() map[string]SmallSequence {
		found := map[string]SmallSequence{}
		for _, s := range must[[]SmallSequence](t)(SmallSequences(t.Context(), c.conns[1], names)) {
			found[s.Name] = s
		}
		return found
	}
	before := byName()
	if s := before["public.people_id_seq"]; !s.Tickets || s.Low || s.Last <= 0 || s.Last != before["public.people_number_seq"].Last {
		t.Errorf("the sequences are %+v", before)
	}
	execute(t, c.conns[1], "SELECT setval('public.people_id_seq', (SELECT seqmax - 3 FROM pg_sequence WHERE seqrelid = 'public.people_id_seq'::regclass))")
	low := byName()["public.people_id_seq"]
	if !low.Low {
		t.Errorf("a block that is nearly used up is %+v", low)
	}
	block := must[Block](t)(Refill(t.Context(), c.conns[0], c.conns[1], low, 2, low.Last))
	if block.First <= low.Last {
		t.Errorf("the next block is %+v", block)
	}
	if s := byName()["public.people_id_seq"]; !s.Tickets || s.Last != block.Last || s.Low {
		t.Errorf("a sequence that was refilled is %+v", s)
	}
	made := one[int64](t, conn, "INSERT INTO people DEFAULT VALUES RETURNING id")
	if made < block.First || made > block.First+100 {
		t.Errorf("a number of block %+v is %d", block, made)
	}
	// What the home shard gives after the table has come home.
	definition := must[*Definition](t)(Describe(t.Context(), c.conns[0], people.Name()))
	execute(t, c.routers(t)[0], "INSERT INTO people DEFAULT VALUES")
	greatest := one[int64](t, c.conns[0], "SELECT max(id) FROM public.people")
	err := pgx.BeginFunc(t.Context(), c.conns[0], func(tx pgx.Tx) error {
		if err := definition.EndNumbers(t.Context(), tx); err != nil {
			return err
		}
		return Unguard(t.Context(), tx, people.Name())
	})
	if err != nil {
		t.Fatal(err)
	}
	if next := one[int64](t, c.conns[0], "INSERT INTO public.people DEFAULT VALUES RETURNING id"); next != greatest+1 {
		t.Errorf("at home the next number is %d, the greatest was %d", next, greatest)
	}
	if n := one[int](t, c.conns[0], "SELECT count(*) FROM pg_proc WHERE proname ~ '^(guard|number)_[0-9a-f]{16}$'"); n != 0 {
		t.Errorf("%d functions are left", n)
	}
}

// TestNumberCalls are what clients' nextval, setval, currval and lastval become.
func TestNumberCalls(t *testing.T) {
	c := newCluster(t, 2)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}, 1<<63))
	c.everywhere(t, `CREATE ROLE app LOGIN; CREATE TABLE "my orders" (user_id bigint, id bigserial, small serial); CREATE TABLE people (id serial PRIMARY KEY);
		CREATE TABLE counted (user_id bigint, id bigserial); CREATE SEQUENCE plain; GRANT ALL ON ALL TABLES IN SCHEMA public TO app; GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO app`)
	orders := c.number(t, "users", "my orders", "user_id")
	c.number(t, "users", "people", "id")
	c.change(t, topology.SetTable(topology.TableSpec{Name: "public.counted", Kind: topology.Sharded, Keyspace: "users", Key: []string{"user_id"}}))
	c.countOnShards(t, must[*Definition](t)(Describe(t.Context(), c.conns[0], topology.TableName{Schema: "public", Name: "counted"})))
	c.record(t)
	l := listen(t, specOf("s2", c.servers[1]))
	first, last := lane(c.m.Shard("s2"))
	n := one[int64](t, l.Conn, `SELECT cleave.next_number('"my orders_id_seq"')`)
	if n < first || n > last || n >= orders.IDs()[0].Floor {
		t.Errorf("the next number is %d", n)
	}
	l.expectTold(t, fmt.Sprint(n, ` public."my orders_id_seq"`))
	small := one[int64](t, l.Conn, `SELECT cleave.next_number('people_id_seq')`)
	if small <= 0 || small >= integerEnd {
		t.Errorf("the next number is %d", small)
	}
	if one := one[int64](t, l.Conn, `SELECT cleave.next_number('plain')`); one != 1 {
		t.Errorf("the next number of a plain sequence is %d", one)
	}
	l.told = nil
	for _, call := range []string{"this_number('people_id_seq')", `this_number('"my orders_id_seq"')`} {
		_, err := l.Exec(t.Context(), "SELECT cleave."+call)
		refusedAs(t, pgerr.ObjectNotInPrerequisite, err, "%s", call)
	}
	if n := one[int64](t, l.Conn, "SELECT cleave.this_number('plain')"); n != 1 {
		t.Errorf("currval of a plain sequence is %d", n)
	}
	execute(t, l.Conn, "SELECT nextval('people_id_seq')")
	_, err := l.Exec(t.Context(), "SELECT cleave.last_number()")
	refusedAs(t, pgerr.ObjectNotInPrerequisite, err, "lastval of a ticket")
	execute(t, l.Conn, "SELECT set_config('cleave.numbers', $1, false)", "5 public.people_id_seq\n77 public.\"my orders_id_seq\"")
	if a, b, c := one[int64](t, l.Conn, "SELECT cleave.this_number('people_id_seq')"), one[int64](t, l.Conn, `SELECT cleave.this_number('"my orders_id_seq"')`), one[int64](t, l.Conn, "SELECT cleave.last_number()"); a != 5 || b != 77 || c != 77 {
		t.Errorf("currval is %d and %d, lastval %d", a, b, c)
	}
	c.setNumbers(t, l)
}

// setNumbers tries what restores and resets do.
func (c *cluster) setNumbers(t *testing.T, l *listener) {
	t.Helper()
	for _, sequence := range []string{`"my orders_id_seq"`, "counted_id_seq"} { // in lanes
		before := one[int64](t, l.Conn, "SELECT cleave.next_number('"+sequence+"')")
		for _, value := range []int64{0, 1, 1000, before - 1, 1 << 62} {
			if n := one[int64](t, l.Conn, "SELECT cleave.set_number('"+sequence+"', $1)", value); n != value {
				t.Errorf("setval of %d returns %d", value, n)
			}
		}
		if n := one[int64](t, l.Conn, "SELECT cleave.next_number('"+sequence+"')"); n != before+1 {
			t.Errorf("%s goes on with %d after %d", sequence, n, before)
		}
		execute(t, l.Conn, "SELECT cleave.set_number('"+sequence+"', $1)", before+100)
		if n := one[int64](t, l.Conn, "SELECT cleave.next_number('"+sequence+"')"); n != before+101 {
			t.Errorf("%s goes on with %d after %d was set", sequence, n, before+100)
		}
	}
	for _, sequence := range []string{"people_id_seq", `"my orders_small_seq"`} {
		literal := strings.ReplaceAll(sequence, "'", "''")
		next := one[int64](t, c.conns[0], "SELECT next FROM cleave.number_blocks WHERE sequence = $1", "public."+sequence)
		for _, on := range []*pgx.Conn{c.conns[0], l.Conn} {
			was := one[int64](t, on, "SELECT cleave.next_number('public."+literal+"')")
			execute(t, on, "SELECT cleave.set_number('public."+literal+"', $1)", was+1000)
			if n := one[int64](t, on, "SELECT cleave.next_number('public."+literal+"')"); n != was+1001 {
				t.Errorf("%s goes on with %d after %d", sequence, n, was+1000)
			}
			execute(t, on, "SELECT cleave.set_number('public."+literal+"', $1, false)", was+2000)
			if n := one[int64](t, on, "SELECT cleave.next_number('public."+literal+"')"); n != was+2000 {
				t.Errorf("%s goes on with %d after %d was set and not called", sequence, n, was+2000)
			}
			execute(t, on, "SELECT cleave.set_number('public."+literal+"', 1)")
			if n := one[int64](t, on, "SELECT cleave.next_number('public."+literal+"')"); n != was+2001 {
				t.Errorf("%s goes back to %d", sequence, n)
			}
		}
		if same := one[int64](t, c.conns[0], "SELECT next FROM cleave.number_blocks WHERE sequence = $1", "public."+sequence); same != next {
			t.Errorf("the blocks of %s begin at %d, and did at %d", sequence, same, next)
		}
		execute(t, c.conns[0], "SELECT cleave.set_number('public."+literal+"', $1)", next+5)
		if raised := one[int64](t, c.conns[0], "SELECT next FROM cleave.number_blocks WHERE sequence = $1", "public."+sequence); raised != next+6 {
			t.Errorf("the blocks of %s begin at %d, not above %d", sequence, raised, next+5)
		}
	}
	execute(t, l.Conn, "SELECT cleave.set_number('plain', 99)")
	if n := one[int64](t, l.Conn, "SELECT nextval('plain')"); n != 100 {
		t.Errorf("a plain sequence goes on with %d", n)
	}
	spec := specOf("s2", c.servers[1])
	spec.User = "app"
	app := connectAsRouter(t, spec)
	for _, sequence := range []string{"people_id_seq", `"my orders_id_seq"`, "counted_id_seq", "plain"} {
		execute(t, app, "SELECT cleave.next_number('"+sequence+"')")
		_, err := app.Exec(t.Context(), "SELECT cleave.set_number('"+sequence+"', 5)")
		refusedAs(t, pgerr.InsufficientPrivilege, err, "setval of %s by who may not", sequence)
	}
	execute(t, app, `INSERT INTO "my orders" (user_id) VALUES ($1)`, keysHere(c.m.Keyspace("users"), "s2", 1)[0])
}

// TestWhoMayInsertNeedsNoMore: an identity column's sequence is nobody's business.
func TestWhoMayInsertNeedsNoMore(t *testing.T) {
	c := newCluster(t, 1)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}))
	c.everywhere(t, "CREATE ROLE app LOGIN; CREATE TABLE users (id bigint GENERATED ALWAYS AS IDENTITY, number bigint GENERATED ALWAYS AS IDENTITY); GRANT SELECT, INSERT ON users TO app")
	c.number(t, "users", "users", "id")
	spec := specOf("s1", c.servers[0])
	spec.User = "app"
	app := connectAsRouter(t, spec)
	for _, sql := range []string{"INSERT INTO users DEFAULT VALUES", "SET search_path = ''; INSERT INTO public.users DEFAULT VALUES"} {
		execute(t, app, sql)
	}
	if n := one[int](t, app, "SELECT count(DISTINCT number) FROM public.users WHERE id > 0 AND number > 0"); n != 2 {
		t.Errorf("%d rows with numbers", n)
	}
	for _, call := range []string{"cleave.next_id(1)", "cleave.key_ticket_base('public.users_id_seq', 1)"} {
		_, err := app.Exec(t.Context(), "SELECT "+call)
		refusedAs(t, pgerr.InsufficientPrivilege, err, "%s", call)
	}
}

// TestToldInTheOrderOfMaking: lastval is of the number that was made last, whatever statement made it.
func TestToldInTheOrderOfMaking(t *testing.T) {
	c := newCluster(t, 1)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}))
	c.everywhere(t, `CREATE TABLE orders (user_id bigint, id bigserial, second bigserial); CREATE TABLE items (user_id bigint, id bigserial, "strange
name" bigserial);
		CREATE FUNCTION item() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.items (user_id) VALUES (NEW.user_id); RETURN NULL; END'`)
	c.number(t, "users", "orders", "user_id")
	c.number(t, "users", "items", "user_id")
	l := listen(t, specOf("s1", c.servers[0]))
	names := func() (names []string) {
		for _, message := range l.told {
			_, name, _ := strings.Cut(message, " ")
			names = append(names, strings.TrimPrefix(name, "public."))
		}
		l.told = nil
		return names
	}
	execute(t, l.Conn, "INSERT INTO orders (user_id) VALUES (1), (2), (3)")
	if got := names(); !slices.Equal(got, []string{"orders_id_seq", "orders_second_seq"}) {
		t.Errorf("told %q", got)
	}
	execute(t, l.Conn, "WITH o AS (INSERT INTO orders (user_id) VALUES (1), (2) RETURNING user_id) INSERT INTO items (user_id) SELECT user_id FROM o")
	if got := names(); !slices.Equal(got, []string{"orders_id_seq", "orders_second_seq", "items_id_seq", "\"items_strange\nname_seq\""}) {
		t.Errorf("told %q", got)
	}
	c.everywhere(t, "CREATE TRIGGER item AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION item()")
	execute(t, l.Conn, "INSERT INTO orders (user_id) VALUES (1)")
	if got := names(); len(got) != 4 || got[3] != "\"items_strange\nname_seq\"" {
		t.Errorf("told %q", got)
	}
	execute(t, l.Conn, "BEGIN; INSERT INTO orders (user_id, id, second) VALUES (1, 1, 1); ROLLBACK")
	if got := names(); !slices.Equal(got, []string{"items_id_seq", "\"items_strange\nname_seq\""}) {
		t.Errorf("told %q", got)
	}
}

// TestAShardOfAHighNumber counts, and what it counts says nothing.
func TestAShardOfAHighNumber(t *testing.T) {
	c := &cluster{m: must[*topology.Map](t)(topology.New(clusterID)), servers: pgtest.StartN(t, 1)}
	spec := specOf("s1", c.servers[0])
	c.conns = append(c.conns, connect(t, spec))
	prepare(t, c.conns[0], spec, c.m)
	c.change(t, topology.RaiseLastShardNumber(lastMaker))
	c.change(t, topology.AddShard(spec))
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}))
	c.everywhere(t, "CREATE TABLE orders (user_id bigint, id bigserial)")
	orders := c.number(t, "users", "orders", "user_id")
	id := one[int64](t, c.routers(t)[0], "INSERT INTO orders (user_id) VALUES (1) RETURNING id")
	if id != (lastMaker+1)<<laneBits || id >= orders.IDs()[0].Floor {
		t.Errorf("made %d", id)
	}
	if n := one[int](t, c.conns[0], "SELECT cleave.id_maker()"); n != 0 {
		t.Errorf("it makes ids with number %d", n)
	}
}

// TestADatabaseThatChangesItsNumber makes ids with the one that it has now.
func TestADatabaseThatChangesItsNumber(t *testing.T) {
	conn := connect(t, specOf("s1", pgtest.Start(t)))
	if _, _, err := Install(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	for _, generator := range []int{127, 127, 64, 0} {
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return ensureMaker(t.Context(), tx, generator) })
		if err != nil {
			t.Fatal(err)
		}
		want := generator
		if generator == 0 {
			want = 64 // nobody makes any then
		}
		if id := one[int64](t, conn, "SELECT cleave.next_id(1)"); idgen.DefaultLayout().Decode(id).Generator != want {
			t.Errorf("with number %d it makes %d", generator, id)
		}
	}
	if got := must[Schema](t)(schemaState(t.Context(), conn)).Foreign; len(got) > 0 {
		t.Errorf("taken for somebody else's: %v", got)
	}
}

// TestWhichNumbersAreMade depends on the columns, and on what the rows have.
func TestWhichNumbersAreMade(t *testing.T) {
	conn := connect(t, specOf("s1", pgtest.Start(t)))
	if _, _, err := Install(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	execute(t, conn, `CREATE TABLE public.t (k bigint, key_a serial, key_b bigserial, plain bigserial, small serial, shifted bigint DEFAULT 0, own bigint, identity bigint GENERATED ALWAYS AS IDENTITY, "it's" bigserial);
		CREATE SEQUENCE public.s OWNED BY public.t.shifted; ALTER TABLE public.t ALTER shifted SET DEFAULT nextval('public.s') + 1; CREATE SEQUENCE public.o OWNED BY public.t.own;
		CREATE SEQUENCE public.second OWNED BY public.t.identity`)
	definition := must[*Definition](t)(Describe(t.Context(), conn, topology.TableName{Schema: "public", Name: "t"}))
	layout, now := idgen.DefaultLayout(), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	first := must[int64](t)(layout.Encode(idgen.Parts{Time: now}))
	soon := must[int64](t)(layout.Encode(idgen.Parts{Time: now.Add(time.Second)}))
	late := must[int64](t)(layout.Encode(idgen.Parts{Time: now.Add(time.Hour)}))
	for _, c := range []struct {
		key       []string
		greatest  int64
		readers   map[string]string
		ids       map[string]int64
		keys      []string
		obstacles []Obstacle
	}{
		{[]string{"k"}, 5, nil, map[string]int64{"key_b": first, "plain": first, "it's": first}, nil, nil},
		{[]string{"k"}, soon, nil, map[string]int64{"key_b": first, "plain": soon + 1, "it's": first}, nil, nil},
		{[]string{"k"}, late, nil, map[string]int64{"key_b": first, "it's": first}, nil, []Obstacle{{Column: "plain"}}},
		{[]string{"k", "key_b", "key_a"}, 0, nil, map[string]int64{"plain": first, "it's": first}, []string{"key_b"}, nil},
		{[]string{"key_a"}, 0, nil, map[string]int64{"key_b": first, "plain": first, "it's": first}, []string{"key_a"}, nil},
		{[]string{"key_a"}, 0, map[string]string{"key_a": "f", "plain": "g", "small": "h"}, map[string]int64{"key_b": first, "it's": first}, nil, []Obstacle{{"key_a", true, "f"}, {"plain", false, "g"}}},
	} {
		ids, keys, obstacles, err := definition.Made(c.key, Numbers{Now: now, Greatest: map[string]int64{"plain": c.greatest}, Readers: c.readers})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for _, id := range ids {
			got[id.Column] = id.Floor
		}
		if !maps.Equal(got, c.ids) || !slices.Equal(keys, c.keys) || !slices.Equal(obstacles, c.obstacles) {
			t.Errorf("by %q, with %d: ids %v, keys %q, in the way %+v", c.key, c.greatest, got, keys, obstacles)
		}
	}
	if _, _, _, err := definition.Made([]string{"k"}, Numbers{Now: time.Date(2010, 1, 1, 0, 0, 0, 0, time.UTC)}); err == nil {
		t.Error("a clock from before the layout is believed")
	}
	execute(t, conn, "INSERT INTO public.t (plain) VALUES (9), (12)")
	if n := must[Numbers](t)(definition.ReadNumbers(t.Context(), conn)); n.Greatest["plain"] != 12 || time.Since(n.Now).Abs() > time.Hour {
		t.Errorf("read %+v", n)
	}
}

// TestReadersOfSequences are found wherever they would be given a ticket.
func TestReadersOfSequences(t *testing.T) {
	conn := connect(t, specOf("s1", pgtest.Start(t)))
	execute(t, conn, "CREATE TABLE public.things (k bigint, id bigserial); CREATE TABLE public.other (id bigserial, t bigint)")
	definition := must[*Definition](t)(Describe(t.Context(), conn, topology.TableName{Schema: "public", Name: "things"}))
	for reader, want := range map[string]string{
		"CREATE FUNCTION public.f() RETURNS bigint LANGUAGE sql AS 'SELECT currval(''public.things_id_seq'')'":                                                                                               "function public.f()",
		"CREATE FUNCTION public.f() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT currval('public.things_id_seq'); END":                                                                                    "function public.f()",
		"CREATE PROCEDURE public.f() LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.things VALUES (1); PERFORM lastval(); END'":                                                                               "function public.f()",
		"ALTER TABLE public.other ALTER t SET DEFAULT currval('public.things_id_seq')":                                                                                                                       "default value for column t of table public.other",
		"CREATE VIEW public.v AS SELECT currval('public.things_id_seq'::regclass)":                                                                                                                           "rule _RETURN on view public.v",
		"CREATE FUNCTION public.f() RETURNS text LANGUAGE sql AS 'SELECT ''nothings_id_seq, things_id_sequence'' || '''''":                                                                                   "",
		"CREATE FUNCTION public.f() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.other VALUES (1); RETURN lastval(); END'":                                                                   "",
		"CREATE FUNCTION public.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM lastval(); RETURN NEW; END'":                                                                                          "",
		"CREATE FUNCTION public.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM lastval(); RETURN NEW; END'; CREATE TRIGGER x AFTER INSERT ON public.things FOR EACH ROW EXECUTE FUNCTION public.f()": "function public.f()",
	} {
		tx := must[pgx.Tx](t)(conn.Begin(t.Context()))
		if _, err := tx.Exec(t.Context(), reader); err != nil {
			t.Fatalf("%s: %v", reader, err)
		}
		if got := must[Numbers](t)(definition.ReadNumbers(t.Context(), tx)).Readers["id"]; got != want {
			t.Errorf("%s: found %q, want %q", reader, got, want)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestATableThatLeavesTheMap has sequences that give numbers, not tickets.
func TestATableThatLeavesTheMap(t *testing.T) {
	c := newCluster(t, 1)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}))
	c.everywhere(t, "CREATE TABLE people (id serial, number bigserial)")
	c.number(t, "users", "people", "id")
	conn := c.routers(t)[0]
	execute(t, conn, "INSERT INTO people DEFAULT VALUES")
	id := one[int64](t, conn, "SELECT max(id) FROM people")
	for _, r := range c.read(t) {
		if findings := Verify(c.m, "s1", r); len(findings) > 0 {
			t.Errorf("recorded with %+v", findings)
		}
	}
	c.change(t, topology.DropTable("public.people"))
	c.record(t)
	if next := one[int64](t, conn, "INSERT INTO people DEFAULT VALUES RETURNING id"); next != id+1 {
		t.Errorf("%d is followed by %d", id, next)
	}
	if number, first := one[int64](t, conn, "SELECT max(number) FROM people WHERE id > $1", id), int64(1)<<laneBits; number != first+1 {
		t.Errorf("the next number is %d", number)
	}
}

// TestSetNumberBesideOthers: numbers that others take while setval lets a sequence go on are not given again, be the way short or long.
func TestSetNumberBesideOthers(t *testing.T) {
	c := newCluster(t, 1)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}))
	c.everywhere(t, "CREATE TABLE tags (id serial, user_id bigint)")
	c.number(t, "users", "tags", "user_id")
	router := c.routers(t)[0]
	ctx, stop := context.WithCancel(t.Context())
	const setters = 3
	done := make(chan int)
	for range setters {
		other := connectAsRouter(t, specOf("s1", c.servers[0]))
		go func() {
			calls := 0
			for ; ctx.Err() == nil; calls++ {
				jump := int64(400)
				if calls%6 == 0 {
					jump = 150_000
				}
				var last int64
				err := other.QueryRow(t.Context(), "SELECT coalesce(pg_sequence_last_value('tags_id_seq'), 0)").Scan(&last)
				if err == nil {
					_, err = other.Exec(t.Context(), "SELECT cleave.set_number('tags_id_seq', $1)", last+rand.Int64N(jump))
				}
				if err != nil {
					t.Error(err)
					break
				}
			}
			done <- calls
		}()
	}
	seen := map[int64]bool{}
	times := 400
	if thoroughly.Asked() {
		times = 2000
	}
	for range times {
		for _, n := range one[[]int64](t, router, "SELECT array_agg(nextval('tags_id_seq')) FROM generate_series(1, 1000)") {
			if seen[n] {
				t.Errorf("%d came twice", n)
			}
			seen[n] = true
		}
	}
	stop()
	for range setters {
		if calls := <-done; calls < 10 {
			t.Errorf("setval was called %d times", calls)
		}
	}
}

// TestSetNumberWithQuotedNames: how a session writes names does not matter to the blocks of the home shard.
func TestSetNumberWithQuotedNames(t *testing.T) {
	c := newCluster(t, 1)
	c.change(t, c.splitAt(t, "users", 1, []string{"bigint"}))
	c.everywhere(t, "CREATE TABLE tags (id serial, user_id bigint)")
	c.number(t, "users", "tags", "user_id")
	router := c.routers(t)[0]
	execute(t, router, "SET quote_all_identifiers = on")
	beyond := one[int64](t, c.conns[0], "SELECT next + 1000000 FROM cleave.number_blocks")
	execute(t, router, "SELECT cleave.set_number('tags_id_seq', $1)", beyond)
	if next := one[int64](t, c.conns[0], "SELECT next FROM cleave.number_blocks"); next != beyond+1 {
		t.Errorf("blocks begin at %d after setval of %d", next, beyond)
	}
}
