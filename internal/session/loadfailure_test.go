package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/topology"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestCopyRefusedAtOnce: a server may ask for data and refuse all of it in the same breath. The client hears what one PostgreSQL would say, and
// can go on.
func TestCopyRefusedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3, setUp: []string{
		"CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE EXCEPTION 'never'; END $$",
		"CREATE TRIGGER never BEFORE INSERT ON countries EXECUTE FUNCTION never()",
	}})
	data, done := &pgproto3.CopyData{Data: []byte("1\tx\n2\ty\n3\tz\n4\ta\n")}, &pgproto3.CopyDone{}
	const frozen, refused = "COPY orders FROM STDIN WITH (FREEZE)", "COPY countries FROM STDIN"
	prepared := func(sql string) []pgproto3.FrontendMessage { return pipeline(parse("", sql), bind("", ""), run("")) }
	alive := query("SELECT 1")
	for name, steps := range map[string][]step{
		"sharded":                  {query(frozen), alive},
		"reference":                {query(refused), alive},
		"and the data is sent":     {sent(&pgproto3.Query{String: frozen}, data, done), alive},
		"in a transaction":         {query("BEGIN"), query(frozen), alive, query("ROLLBACK"), alive},
		"by the extended protocol": {sent(pipeline(prepared(frozen), sync1)...), alive, sent(pipeline(prepared(refused), sync1)...), alive},
		"and the data comes late":  {sent(pipeline(prepared(frozen), sync1)...), sent(data, done, sync1), alive},
		"before a Sync":            {flushed(4, pipeline(prepared(frozen), flush)...), sent(data, done, sync1), alive},
		"one shard, one table":     {sent(pipeline(prepared("COPY undeclared FROM STDIN WITH (FREEZE)"), sync1)...), alive},
	} {
		t.Run(name, func(t *testing.T) {
			w.empty(t)
			w.sameButOrder(t, steps...)
			w.sameRows(t)
			w.nothingPrepared(t)
			w.settled(t)
		})
	}
}

// TestCopyRefusedByOneShard: the others are told to give up, and nothing is stored.
func TestCopyRefusedByOneShard(t *testing.T) {
	t.Parallel()
	for number := range 3 {
		w := newWorld(t, worldConfig{shards: 3, noPlain: true, onShards: func(n int) []string {
			if n != number+1 {
				return nil
			}
			return []string{
				"CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE EXCEPTION 'never'; END $$",
				"CREATE TRIGGER never BEFORE INSERT ON orders EXECUTE FUNCTION never()",
			}
		}})
		c := dialRaw(t, w.address, nil)
		for _, messages := range [][]pgproto3.FrontendMessage{
			{&pgproto3.Query{String: "COPY orders FROM STDIN"}},
			{&pgproto3.Query{String: "COPY orders FROM STDIN"}, &pgproto3.CopyData{Data: []byte("1\tx\n2\ty\n3\tz\n")}, &pgproto3.CopyDone{}},
			pipeline(parse("", "COPY orders FROM STDIN"), bind("", ""), run(""), sync1),
			pipeline(parse("", "COPY orders FROM STDIN"), bind("", ""), run(""), &pgproto3.CopyData{Data: []byte("1\tx\n2\ty\n3\tz\n")}, &pgproto3.CopyDone{}, sync1),
		} {
			wantCodes(t, c.ask(messages...), "P0001", "ready I")
			wantCodes(t, c.query("SELECT id FROM orders WHERE id IN (1, 2, 3, 4)"), "", "ready I")
			w.settled(t)
		}
	}
}

// TestCopyCancelled: a request to cancel ends a COPY that goes to several shards, whether it waits for the client or for a lock.
func TestCopyCancelled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3, noPlain: true})
	first, rest := &pgproto3.CopyData{Data: []byte("1\tx\n2\ty\n3\tz\n4\ta\n")}, &pgproto3.CopyData{Data: []byte("5\tx\n6\ty\n7\tz\n8\ta\n")}
	for _, table := range []string{"orders", "countries"} {
		for name, begin := range map[string][]pgproto3.FrontendMessage{
			"simple":   {&pgproto3.Query{String: "COPY " + table + " FROM STDIN"}},
			"extended": pipeline(parse("", "COPY "+table+" FROM STDIN"), bind("", ""), run(""), flush),
		} {
			t.Run(table+", "+name, func(t *testing.T) {
				c := dialRaw(t, w.address, nil)
				c.send(append(begin, first)...)
				for asked := false; !asked; {
					_, asked = c.receive().(*pgproto3.CopyInResponse)
				}
				w.cancel(t, c.pid, c.secret)
				c.send(rest, &pgproto3.CopyDone{})
				if name == "extended" {
					c.send(sync1)
				}
				wantCodes(t, c.readyTimes(1), "57014", "ready I")
				for number := range w.shards {
					if n := one[int](t, w.onShard(t, number+1), "SELECT count(*) FROM "+table); n != 0 {
						t.Errorf("shard %d has %d rows", number+1, n)
					}
				}
				wantCodes(t, c.query("SELECT 1"), "", "ready I")
				w.settled(t)
			})
		}
	}
	t.Run("waiting for a lock", func(t *testing.T) {
		id := text(w.key(t, 2, 0))
		other, c := w.onShard(t, 2), dialRaw(t, w.address, nil)
		execute(t, other, "BEGIN")
		execute(t, other, "INSERT INTO orders VALUES ($1, 'first')", w.key(t, 2, 0))
		c.send(&pgproto3.Query{String: "COPY orders FROM STDIN"}, &pgproto3.CopyData{Data: []byte(id + "\tx\n" + text(w.key(t, 1, 0)) + "\ty\n")}, &pgproto3.CopyDone{})
		admin := w.onShard(t, 2)
		eventually(t, "the COPY waits", func() bool {
			return one[int](t, admin, "SELECT count(*) FROM pg_locks WHERE NOT granted") > 0
		})
		w.cancel(t, c.pid, c.secret)
		wantCodes(t, c.readyTimes(1), "57014", "ready I")
		execute(t, other, "ROLLBACK")
		w.settled(t)
	})
}

// TestCopyLosesABackend: the client is told what has happened, not what that led to.
func TestCopyLosesABackend(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3, noPlain: true})
	for number := range 3 {
		c := dialRaw(t, w.address, nil)
		c.send(&pgproto3.Query{String: "COPY orders FROM STDIN"})
		c.replies(1)
		admin := w.onShard(t, number+1)
		eventually(t, "the shard has begun, and its backend is ended", func() bool { // the client may hear of the first one's beginning
			return one[int](t, admin, "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE query LIKE 'COPY%' AND state = 'active' AND pid <> pg_backend_pid()") == 1
		})
		c.send(&pgproto3.CopyData{Data: []byte("1\tx\n2\ty\n3\tz\n4\ta\n")}, &pgproto3.CopyDone{})
		said, code := c.readyTimes(1), "57P01"
		if !strings.Contains(strings.Join(said, "\n"), code) { // what the server said is lost if rows were sent to it after that
			code = "08006"
		}
		wantCodes(t, said, code, "ready I")
		w.settled(t)
	}
}

// TestCopyInAnotherEncoding: a key is what the shards store, not what stands in the data.
func TestCopyInAnotherEncoding(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{
		shards: 3, setUp: []string{"CREATE TABLE words (word text PRIMARY KEY, n int)"}, keyspaces: map[string]string{"words": "text"},
		tables: []topology.TableSpec{{Name: "public.words", Kind: topology.Sharded, Keyspace: "words", Key: []string{"word"}}},
	})
	var latin []byte
	for c := 0xc0; c <= 0xff; c++ {
		latin = fmt.Appendf(append(latin, byte(c), 'a'), "\t%d\n", c)
	}
	utf8 := []byte("ça\t1\nàb\t2\néc\t3\nüd\t4\n")
	load := func(sql string, data []byte) step {
		return sent(&pgproto3.Query{String: sql}, &pgproto3.CopyData{Data: data}, &pgproto3.CopyDone{})
	}
	for name, steps := range map[string][]step{
		"an option":            {load("COPY words FROM STDIN WITH (ENCODING 'latin1')", latin)},
		"an option, csv":       {load("COPY words FROM STDIN WITH (FORMAT csv, DELIMITER E'\\t', ENCODING 'iso-8859-15')", latin)},
		"against the client's": {query("SET client_encoding = 'LATIN2'"), load("COPY words FROM STDIN WITH (ENCODING 'LATIN1')", latin), query("SET client_encoding = 'UTF8'")},
		"the client's":         {query("SET client_encoding = 'LATIN1'"), load("COPY words FROM STDIN", latin), query("SET client_encoding = 'UTF8'")},
		"back to UTF8":         {query("SET client_encoding = 'LATIN1'"), load("COPY words FROM STDIN WITH (ENCODING 'UTF8')", utf8), query("SET client_encoding = 'UTF8'")},
		"no such character":    {load("COPY words FROM STDIN WITH (ENCODING 'WIN1252')", []byte("a\t1\n\x81\t2\n"))},
	} {
		t.Run(name, func(t *testing.T) {
			w.sameButOrder(t, append(append([]step{query("DELETE FROM words")}, steps...), query("SELECT word, n FROM words"), query("SELECT n FROM words WHERE word = 'éa'"))...)
		})
	}
}

// TestCopyOfWrongColumns: what is wrong with the list is said before what is missing in it.
func TestCopyOfWrongColumns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{setUp: []string{"ALTER TABLE orders ADD twice text GENERATED ALWAYS AS (note || note) STORED"}})
	w.sameAsPlain(t, texts("COPY orders (nope) FROM STDIN", "COPY orders (note, note) FROM STDIN", "COPY orders (note, id, id) FROM STDIN", "COPY orders (twice) FROM STDIN",
		"COPY orders (note, nope, note) FROM STDIN", "COPY countries (nope) FROM STDIN", "COPY countries (name, name) FROM STDIN")...)
}
