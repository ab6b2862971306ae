package session

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/thorough"
)

// lateSQL makes a table refuse rows when their transaction is committed, and not before.
var lateSQL = []string{
	"CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN IF NEW.note = 'late' THEN RAISE EXCEPTION 'too late' USING ERRCODE = '23514'; END IF; RETURN NULL; END $$",
	"CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late()",
}

// TestTagsComeAfterTheCommit, as in PostgreSQL: a client that has seen the last tag of a simple query knows that all of it is stored.
func TestTagsComeAfterTheCommit(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{setUp: lateSQL})
	for number := 1; number <= 2; number++ { // the shard on which the commit fails
		late, fine := w.key(t, number, 0), w.key(t, 3-number, 0)
		insert := func(id int64, note string) string {
			return fmt.Sprintf("INSERT INTO orders VALUES (%d, '%s')", id, note)
		}
		two := fmt.Sprintf("INSERT INTO orders VALUES (%d, 'x'), (%d, 'late')", fine, late)
		for _, text := range []string{
			two,
			two + " RETURNING note",
			insert(fine, "x") + "; " + insert(late, "late"),
			insert(late, "late") + "; " + insert(fine, "x"),
			two + "; SELECT 1",
			"SELECT 1; " + two,
			two + "; COMMENT ON TABLE orders IS 'x'",
			"COMMENT ON TABLE orders IS 'x'; " + insert(late, "late"),
			"BEGIN; " + two + "; COMMIT",
			"BEGIN; " + two + "; COMMIT; SELECT 1",
			two + "; BEGIN",
			"UPDATE orders SET note = 'late'",
			insert(fine, "x") + "; " + insert(w.key(t, number, 1), "x"),
			"UPDATE orders SET note = 'late'",
			"UPDATE orders SET note = 'late'; SELECT 1",
			"DELETE FROM orders; " + insert(late, "late"),
			"DELETE FROM orders",
		} {
			w.sameAsPlain(t, query(text), query("ROLLBACK"), query(fmt.Sprintf("SELECT note FROM orders WHERE id = %d", late)))
		}
		data := fmt.Sprintf("%d\tx\n%d\tlate\n", fine, late)
		w.sameAsPlain(t, sent(&pgproto3.Query{String: "COPY orders FROM STDIN"}, &pgproto3.CopyData{Data: []byte(data)}, &pgproto3.CopyDone{}), query("SELECT 1"))
		w.sameAsPlain(t, sent(&pgproto3.Query{String: insert(w.key(t, number, 2), "x") + "; COPY orders FROM STDIN"}, &pgproto3.CopyData{Data: []byte(data)}, &pgproto3.CopyDone{}), query("SELECT 1"))
		w.sameAsPlain(t, sent(pipeline(unnamed(two), sync1)...), sent(pipeline(unnamed(two), unnamed("SELECT 1"), sync1)...), query("SELECT 1"))
		w.sameAsPlain(t, sent(pipeline(unnamed(insert(late, "late")), unnamed(insert(fine, "x")), sync1)...), query("SELECT 1"))
	}
}
