package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"

	"github.com/cleavedb/cleave/internal/thorough"
)

// moving is a world in which both shards own some orders, and the second has copies of the other's that are older, wrong, or should not be there any more. It says how many rows each owns.
func moving(t *testing.T) (w *world, owned [2]int) {
	t.Helper()
	lines := topology.TableSpec{Name: "public.lines", Kind: topology.Sharded, Keyspace: "main", Key: []string{"order_id"}}
	w = newWorld(t, worldConfig{
		setUp: []string{
			"CREATE TABLE lines (order_id bigint REFERENCES orders, n int, what text, PRIMARY KEY (order_id, n))",
			"CREATE FUNCTION shout(orders) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT upper($1.note) $$", "CREATE VIEW noted AS SELECT id, note FROM orders WHERE note IS NOT NULL",
		},
		tables: []topology.TableSpec{lines},
	})
	ranges := w.m.Keyspace("main").Spec().Ranges
	for i := range ranges {
		if ranges[i].Shard == "s1" {
			ranges[i].Copies = []topology.CopySpec{{Shard: "s2", State: topology.Incoming}}
		}
	}
	m := must[*topology.Map](t)(w.m.Next(topology.ReplaceRanges("main", ranges, topology.Assignment{})))
	const fill = `SET session_replication_role = replica; INSERT INTO orders SELECT i, 'note ' || i FROM generate_series(1, 40) AS i WHERE i = ANY ($1);
		INSERT INTO lines SELECT i, n, 'line' FROM generate_series(1, 40) AS i, generate_series(1, 3) AS n WHERE i = ANY ($1); RESET session_replication_role`
	filled := func(conn *pgx.Conn, keys []int) {
		execute(t, conn, fill, pgx.QueryExecModeSimpleProtocol, keys)
	}
	all, of := []int{}, [2][]int{}
	for k := 1; k <= 40; k++ {
		number := must[topology.Place](t)(m.Keyspace("main").Locate(must[key.Value](t)(key.OfInt(key.Bigint, int64(k))))).Shard.Number()
		all, of[number-1] = append(all, k), append(of[number-1], k)
	}
	filled(connectTo(t, w.plain.Addr()), all)
	for i := range w.shards {
		conn, name := w.onShard(t, i+1), fmt.Sprintf("s%d", i+1)
		must[bool](t)(shard.Record(t.Context(), conn, m, name))
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SET LOCAL search_path = pg_catalog"); err != nil {
				return err
			}
			return shard.Prepare(m).MakeOwnedViews(t.Context(), tx, name, "main", plan.Renamed)
		})
		if err != nil {
			t.Fatal(err)
		}
		filled(conn, of[i])
		owned[i] = len(of[i])
	}
	w.m = m
	w.publish(m)
	copies := w.onShard(t, 2)
	execute(t, copies, "SET session_replication_role = replica")
	execute(t, copies, "INSERT INTO orders SELECT i, 'copy' FROM generate_series(1, 10) AS i WHERE i = ANY ($1)", of[0])
	execute(t, copies, "INSERT INTO orders VALUES ($1, 'copy')", w.key(t, 1, len(of[0])+1))
	execute(t, copies, "INSERT INTO lines SELECT id, 1, 'copy' FROM orders WHERE note = 'copy'")
	return w, owned
}

// TestCopiesAreNotSeen, nor touched, by whatever form of statement.
func TestCopiesAreNotSeen(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	for name, steps := range map[string][]step{
		"read": {
			query("SELECT count(*), max(id), min(note) FROM orders"), query("SELECT o.note, count(l.n) FROM orders o LEFT JOIN lines l ON l.order_id = o.id GROUP BY o.note ORDER BY 1"), query("SELECT * FROM noted ORDER BY id"),
			query("SELECT id FROM orders WHERE EXISTS (SELECT FROM lines WHERE order_id = orders.id AND what = 'copy')"), query("SELECT orders.* FROM public.orders WHERE public.orders.id > 30 ORDER BY public.orders.id"),
			query("COPY (SELECT count(*) FROM lines) TO STDOUT"), query("BEGIN"), query("DECLARE c CURSOR FOR SELECT id FROM orders ORDER BY id"), query("FETCH 50 FROM c"), query("COMMIT"),
			sent(pipeline(unnamed("SELECT count(*) FROM orders WHERE note <> $1", "x"), unnamed("SELECT sum(id) FROM orders WHERE id > $1", "10"), sync1)...),
		},
		"written": {
			query("UPDATE orders SET note = note || '!'"), query("SELECT id, note FROM orders ORDER BY id"), query("DELETE FROM lines WHERE n = 1"), query("SELECT count(*) FROM lines"),
			query("UPDATE orders o SET note = 'y' FROM lines l WHERE l.order_id = o.id AND l.n = 2"), query("SELECT note, count(*) FROM orders GROUP BY note"), query("INSERT INTO lines SELECT id, 9, note FROM orders"), query("SELECT count(*) FROM lines"),
		},
		"prepared": {
			query("CREATE SCHEMA other; CREATE TABLE other.orders (id bigint, note text)"), query("PREPARE p AS SELECT count(*) FROM orders"), query("EXECUTE p"), query("SET search_path = other, public"), query("EXECUTE p"), query("RESET search_path"), query("EXECUTE p"),
		},
		"long":                    {query("SELECT count(*) FROM orders o WHERE o.note <> '" + long + "' AND o.id > 0 AND o.note <> '" + long + "'")},
		"grouped by what decides": {query("SELECT o.id, o.note, count(l.n) FROM orders o JOIN lines l ON l.order_id = o.id GROUP BY o.id ORDER BY 1")},
		"wrong all the same":      {query("SELECT id, note FROM orders GROUP BY note ORDER BY 1"), query("SELECT nosuch(o) FROM orders o")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := moving(t)
			w.sameAsPlain(t, steps...)
		})
	}
}

// TestNothingStandsInForARow: a view has no primary key, and its rows are not the table's. What asks for these is refused as long as rows move, and not answered in another way.
func TestNothingStandsInForARow(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w, _ := moving(t)
	client := dialRaw(t, w.address, nil)
	for _, sql := range []string{
		"SELECT shout(o) FROM orders o", "SELECT o.shout FROM orders o", "SELECT o FROM orders o", "SELECT orders FROM orders",
		"SELECT l.n, s.note FROM lines l JOIN LATERAL (SELECT o.note, count(*) AS c FROM orders o WHERE o.id = l.order_id GROUP BY o.id) s ON true",
	} {
		for range 2 {
			if said := strings.Join(client.query(sql), "\n"); !strings.Contains(said, "ERROR 0A000") {
				t.Errorf("%s:\n%s", sql, said)
			}
		}
	}
	if said := strings.Join(client.query("SELECT shout(o) FROM orders o WHERE id = 7"), "\n"); !strings.Contains(said, `row "NOTE 7"`) {
		t.Errorf("bound to a key: %s", said)
	}
}

// TestHintsShowWhatAShardOwns: the rows that the named shard owns, and not the copies that it has.
func TestHintsShowWhatAShardOwns(t *testing.T) {
	t.Parallel()
	w, owned := moving(t)
	client := dialRaw(t, w.address, nil)
	says := func(want, sql string) {
		t.Helper()
		for name, said := range map[string][]string{"simple": client.query(sql), "extended": client.ask(pipeline(unnamed(sql), sync1)...), "in a text": client.query("SELECT 1; " + sql)} {
			if text := strings.Join(said, "\n"); !strings.Contains(text, want) {
				t.Errorf("%s, %s:\n%s\nwant %s", name, sql, text, want)
			}
		}
	}
	for i, rows := range owned {
		says(fmt.Sprintf("row \"%d\"", rows), fmt.Sprintf("/* cleave: shard=s%d */ SELECT count(*) FROM orders", i+1))
		says(fmt.Sprintf("done UPDATE %d", rows), fmt.Sprintf("/* cleave: shard=s%d */ UPDATE orders SET note = 'x'", i+1))
		client.query("SET cleave.shard_key = '" + text(w.key(t, i+1, 0)) + "'")
		says(fmt.Sprintf("row \"%d\"", rows), "SELECT count(*) FROM noted")
		client.query("PREPARE p AS SELECT count(*) FROM orders")
		if said := strings.Join(client.query("EXECUTE p"), "\n"); !strings.Contains(said, fmt.Sprintf("row \"%d\"", rows)) {
			t.Errorf("by EXECUTE: %s", said)
		}
		client.query("DEALLOCATE p; RESET cleave.shard_key")
	}
}
