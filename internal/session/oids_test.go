package session

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestNumbersAreTheHomeShards: whichever shard answers, a type and a table have one number, that of the catalogue which clients see.
func TestNumbersAreTheHomeShards(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	execute(t, w.onShard(t, 2), "CREATE TYPE other AS (a int); CREATE TABLE others (a int); CREATE TYPE another AS ENUM ('x')") // so that numbers differ
	client := w.client(t)
	for _, sql := range []string{"CREATE TYPE mood AS ENUM ('fine', 'sad')", "ALTER TABLE orders ADD COLUMN how mood, ADD COLUMN hows mood[]"} {
		execute(t, client, sql)
	}
	mood := one[uint32](t, w.onShard(t, 1), "SELECT 'mood'::regtype::oid")
	table := one[uint32](t, w.onShard(t, 1), "SELECT 'orders'::regclass::oid")
	if mood == one[uint32](t, w.onShard(t, 2), "SELECT 'mood'::regtype::oid") {
		t.Fatal("the type has the same number on both shards, so nothing is tested")
	}
	for number := 1; number <= 2; number++ {
		id := w.key(t, number, 0)
		if _, err := client.PgConn().ExecParams(t.Context(), "INSERT INTO orders (id, how) VALUES ($1, $2)", [][]byte{[]byte(text(id)), []byte("sad")}, []uint32{20, mood}, nil, nil).Close(); err != nil {
			t.Errorf("shard %d does not take the type's number: %v", number, err)
		}
		statement, err := client.PgConn().Prepare(t.Context(), "", "SELECT how, hows FROM orders WHERE id = $1 AND how = $2", nil)
		if err != nil {
			t.Fatal(err)
		}
		if statement.ParamOIDs[1] != mood {
			t.Errorf("the parameter has number %d, want %d", statement.ParamOIDs[1], mood)
		}
		raw := dialRaw(t, w.address, nil)
		raw.send(&pgproto3.Query{String: "SELECT how FROM orders WHERE id = " + text(id)})
		for {
			said, err := raw.next()
			if err != nil {
				t.Fatal(err)
			}
			if d, is := said.(*pgproto3.RowDescription); is {
				if f := d.Fields[0]; f.DataTypeOID != mood || f.TableOID != table {
					t.Errorf("shard %d describes the column as type %d of table %d, want %d and %d", number, f.DataTypeOID, f.TableOID, mood, table)
				}
			}
			if _, is := said.(*pgproto3.ReadyForQuery); is {
				break
			}
		}
	}
	if said := strings.Join(dialRaw(t, w.address, nil).query("SELECT id, how FROM orders"), "\n"); !strings.Contains(said, "done SELECT 2") {
		t.Errorf("from both shards:\n%s", said)
	}
	w.settled(t)
}

// TestNumbersAreThereForAllWhoCome: those who come while somebody asks for a shard's numbers wait for them.
func TestNumbersAreThereForAllWhoCome(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	execute(t, w.onShard(t, 2), "CREATE TYPE other AS (a int); CREATE TYPE another AS ENUM ('x')") // so that numbers differ
	client := w.client(t)
	const many = 8
	clients := make([]*rawClient, many)
	for i := range clients {
		clients[i] = dialRaw(t, w.address, nil)
	}
	for round := range 5 {
		name := fmt.Sprintf("mood%d", round)
		execute(t, client, "CREATE TYPE "+name+" AS ENUM ('fine', 'sad')")
		want := fmt.Sprintf("columns how:%d:4:-1:0", one[uint32](t, w.onShard(t, 1), "SELECT $1::regtype::oid", name))
		said := make([][]string, many)
		var all sync.WaitGroup
		for i, c := range clients {
			all.Go(func() {
				said[i] = c.query(fmt.Sprintf("SELECT NULL::%s AS how FROM orders WHERE id = %d", name, w.key(t, 2, 0)))
			})
		}
		all.Wait()
		for i := range said {
			if said[i][0] != want {
				t.Errorf("round %d: %s, want %s", round, said[i][0], want)
			}
		}
	}
}
