package session

import (
	"strings"
	"testing"
)

// TestRoutingHints: a client's own word decides where a query runs, if it is a comment or a setting; what stands in a literal is none.
func TestRoutingHints(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	a, b := text(w.key(t, 1, 0)), text(w.key(t, 2, 0))
	client := dialRaw(t, w.address, nil)
	client.query("INSERT INTO orders VALUES (" + a + ", 'on one'), (" + b + ", 'on two')")
	says := func(sql, want string) {
		t.Helper()
		for name, said := range map[string][]string{"simple": client.query(sql), "extended": client.ask(pipeline(unnamed(sql), sync1)...)} {
			if text := strings.Join(said, "\n"); !strings.Contains(text, want) {
				t.Errorf("%s, %s:\n%s\nwant %s", name, sql, text, want)
			}
		}
	}
	says("/* cleave: shard=s2 */ SELECT note, count(*) OVER () FROM orders", `row "on two" "1"`)
	says("SELECT max(note) FROM orders -- cleave: shard=s1", `row "on one"`)
	says("SELECT max(note) FROM orders -- cleave: shard=s1\n, (SELECT 1) x", `row "on one"`)
	says("SELECT count(*), '/* cleave: shard=s1 */' FROM orders", `row "2"`)
	says(`SELECT count(*) AS "/* cleave: shard=s1 */" FROM orders`, `row "2"`)
	says("/* cleave: shard=nosuch */ SELECT 1", "42704")
	says("/* cleave: shrad=s1 */ SELECT 1", "22023")
	says("/* cleave: shard=s1 */ INSERT INTO orders VALUES ("+b+", 'wrong')", "CL001")
	for _, sql := range []string{"TRUNCATE orders", "DROP TABLE orders", "CREATE TABLE more (a int)", "UPDATE countries SET name = 'x'", "COPY orders TO STDOUT"} {
		says("/* cleave: shard=s2 */ "+sql, "0A000")
	}
	says("SELECT min(note) FROM orders", `row "on one"`)
	client.query("SET cleave.shard_key = '" + b + "'")
	says("SELECT min(note) FROM orders", `row "on two"`)
	says("SELECT note FROM orders WHERE id = "+a, `row "on one"`)
	says("TRUNCATE orders", "0A000")
	says("SELECT note FROM orders WHERE id IN ("+a+", "+b+")", "done SELECT 2")
	says("SHOW cleave.shard_key", `row "`+b+`"`)
	client.query("SET cleave.shard_key = 'x'")
	says("SELECT min(note) FROM orders", "22023")
	client.query("RESET cleave.shard_key")
	says("SELECT min(note) FROM orders", `row "on one"`)
	w.settled(t)
}
