package session

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestCopyToSeveralShards: every row of a COPY goes where it belongs, and the client hears what one PostgreSQL would say.
func TestCopyToSeveralShards(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3})
	rows := func(format string, from, to int) string {
		var b strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, format, i, i)
		}
		return b.String()
	}
	load := func(sql string, data ...string) step {
		messages := []pgproto3.FrontendMessage{&pgproto3.Query{String: sql}}
		for _, d := range data {
			messages = append(messages, &pgproto3.CopyData{Data: []byte(d)})
		}
		return sent(append(messages, &pgproto3.CopyDone{})...)
	}
	count := query("SELECT id, note FROM orders WHERE id IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)")
	text := rows("%d\tnote %d\n", 1, 1000)
	for name, steps := range map[string][]step{
		"text":                     {load("COPY orders FROM STDIN", text), count},
		"in pieces":                {load("COPY orders FROM STDIN", text[:5], text[5:6], text[6:2000], text[2000:]), count},
		"columns":                  {load("COPY orders (note, id) FROM STDIN", rows("x %d\t%d\n", 1, 100)), count},
		"csv":                      {load("COPY orders FROM STDIN WITH (FORMAT csv, HEADER)", "id,note\n", rows("%d,\"a, \"\"b\"\"\n%d\"\n", 1, 100)), count},
		"old style":                {load("COPY orders FROM STDIN CSV HEADER DELIMITER ';' NULL 'nil'", "id;note\n", rows("%d;nil\n", 1, 10)[:0]+"1;nil\n2;x\n3;nil\n"), count},
		"nothing":                  {load("COPY orders FROM STDIN"), count},
		"the end is told":          {load("COPY orders FROM STDIN", "1\tx\n2\ty\n\\.\n"), count},
		"a wrong value":            {load("COPY orders FROM STDIN", text, "x\ty\n"), count},
		"a wrong value at first":   {load("COPY orders FROM STDIN", "x\ty\n", text), count},
		"too few columns":          {load("COPY orders FROM STDIN", "1\tx\n2\n3\ty\n"), count},
		"too many columns":         {load("COPY orders FROM STDIN", "1\tx\n2\ty\tz\n"), count},
		"a null key":               {load("COPY orders FROM STDIN", "1\tx\n\\N\ty\n"), count},
		"a duplicate":              {query("INSERT INTO orders VALUES (7, 'seven')"), load("COPY orders FROM STDIN", text), count},
		"wrong options":            {sent(&pgproto3.Query{String: "COPY orders FROM STDIN (FORMAT csv, DELIMITER 'ab')"}), count},
		"an unknown column":        {sent(&pgproto3.Query{String: "COPY orders (id, nosuch) FROM STDIN"}), count},
		"given up":                 {sent(&pgproto3.Query{String: "COPY orders FROM STDIN"}, &pgproto3.CopyData{Data: []byte("1\tx\n2\ty\n")}, &pgproto3.CopyFail{Message: "enough"}), count},
		"in a transaction":         {query("BEGIN"), load("COPY orders FROM STDIN", text), count, query("ROLLBACK"), count},
		"in one that goes on":      {query("BEGIN"), query("INSERT INTO orders VALUES (5000, 'x')"), load("COPY orders FROM STDIN", text), query("UPDATE orders SET note = 'z' WHERE id = 3"), query("COMMIT"), count},
		"by the extended protocol": {sent(pipeline(parse("", "COPY orders FROM STDIN"), bind("", ""), run(""), &pgproto3.CopyData{Data: []byte(text)}, &pgproto3.CopyDone{}, sync1)...), count},
		"a Sync before the data":   {flushed(3, pipeline(parse("", "COPY orders FROM STDIN"), bind("", ""), run(""), sync1)...), sent(&pgproto3.CopyData{Data: []byte(text)}, &pgproto3.CopyDone{}, sync1), count},
		"among others in a text":   {sent(&pgproto3.Query{String: "DELETE FROM orders WHERE id = 1; COPY orders FROM STDIN; DELETE FROM orders WHERE id = 2"}, &pgproto3.CopyData{Data: []byte(text)}, &pgproto3.CopyDone{}), count},
		"and back": {
			load("COPY orders FROM STDIN", text), query("COPY orders TO STDOUT"), query("COPY orders (note) TO STDOUT (FORMAT csv, HEADER)"),
			query("DELETE FROM orders"), query("COPY orders TO STDOUT CSV HEADER"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			thorough.Some(t, 4)
			w.empty(t)
			w.sameButOrder(t, steps...)
			w.sameRows(t)
			w.nothingPrepared(t)
		})
	}
}

// TestCopyInBinary: keys are found in PostgreSQL's own format too, and what comes back in it can be loaded again.
func TestCopyInBinary(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 3})
	plain, client := connectTo(t, w.plain.Addr()), w.client(t)
	var all [][]any
	for i := range 500 {
		all = append(all, []any{int64(i), fmt.Sprint("note ", i)})
	}
	for _, conn := range []*pgx.Conn{plain, client} {
		if n, err := conn.CopyFrom(t.Context(), pgx.Identifier{"orders"}, []string{"id", "note"}, pgx.CopyFromRows(all)); err != nil || n != 500 {
			t.Fatal(n, err)
		}
	}
	w.sameRows(t)
	var data bytes.Buffer
	if tag, err := client.PgConn().CopyTo(t.Context(), &data, "COPY orders TO STDOUT (FORMAT binary)"); err != nil || tag.RowsAffected() != 500 {
		t.Fatal(tag, err)
	}
	execute(t, client, "DELETE FROM orders")
	if tag, err := client.PgConn().CopyFrom(t.Context(), &data, "COPY orders FROM STDIN (FORMAT binary)"); err != nil || tag.RowsAffected() != 500 {
		t.Fatal(tag, err)
	}
	w.sameRows(t)
	w.settled(t)
}

// TestCopyThatAShardHears: notices of triggers come through while rows are sent, and a client that goes away leaves nothing.
func TestCopyOfManyNotices(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{shards: 2, setUp: []string{
		"CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE NOTICE '%', repeat('x', 3000); RETURN NEW; END $$",
		"CREATE TRIGGER shout BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION shout()",
	}})
	client := dialRaw(t, w.address, nil)
	client.send(&pgproto3.Query{String: "COPY orders FROM STDIN"})
	client.replies(1)
	var data strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&data, "%d\t%s\n", i, strings.Repeat("y", 500))
	}
	encoded := encode(t, &pgproto3.CopyData{Data: []byte(data.String())}, &pgproto3.CopyDone{})
	go func() { _, _ = client.conn.Write(encoded) }()
	notices := 0
	for {
		said, err := client.next()
		if err != nil {
			t.Fatal(err)
		}
		if _, ready := said.(*pgproto3.ReadyForQuery); ready {
			break
		}
		if _, is := said.(*pgproto3.NoticeResponse); is {
			notices++
		}
	}
	if notices != 5000 {
		t.Errorf("%d notices, want 5000", notices)
	}
	w.settled(t)
	client.send(&pgproto3.Query{String: "COPY orders FROM STDIN"})
	client.replies(1)
	_ = client.conn.Close()
	w.settled(t)
}
