package session

import (
	"strings"
	"testing"
)

// TestFunctionsOfOneShard: who says that a function uses only rows of its shard can use it there, in a trigger as well.
func TestFunctionsOfOneShard(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	client := dialRaw(t, w.address, nil)
	a, b := text(w.key(t, 1, 0)), text(w.key(t, 2, 0))
	says := func(sql, want string) {
		t.Helper()
		if said := strings.Join(client.query(sql), "\n"); !strings.Contains(said, want) {
			t.Errorf("%s:\n%s\nwant %s", sql, said, want)
		}
	}
	says("CREATE FUNCTION note_of(bigint) RETURNS text LANGUAGE sql STABLE AS 'SELECT note FROM orders WHERE id = $1'", "done CREATE FUNCTION")
	says("CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.note := NEW.note || coalesce(note_of(NEW.id), '!'); RETURN NEW; END $$", "done CREATE FUNCTION")
	says("CREATE TRIGGER follow BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION follow()", "done CREATE TRIGGER")
	says("INSERT INTO orders VALUES ("+a+", 'x')", "0A000")
	says("SELECT note_of(id) FROM orders WHERE id = "+a, "0A000")
	says("SELECT cleave.shard_local_function('follow')", "function follow() uses the rows of one shard")
	says("SELECT cleave.shard_local_function('note_of(bigint)')", "uses the rows of one shard")
	says("SELECT cleave.shard_local_function('nosuch')", "42883")
	says("INSERT INTO orders VALUES ("+a+", 'x'), ("+b+", 'y') RETURNING note", "row \"x!\"\nrow \"y!\"")
	says("SELECT note_of(id) FROM orders WHERE id = "+b, "row \"y!\"")
	says("SELECT note_of(id) FROM orders", "0A000")
	says("SELECT note_of("+b+")", "0A000")
	says("SELECT cleave.shard_local_function('note_of(bigint)', false)", "may use the rows of any shard")
	says("SELECT note_of(id) FROM orders WHERE id = "+b, "0A000")
	w.settled(t)
}
