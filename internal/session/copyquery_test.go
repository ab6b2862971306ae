package session

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestCopiesOfQueriesOverSeveralShards: in all formats and with all options, as one server writes them.
func TestCopiesOfQueriesOverSeveralShards(t *testing.T) {
	t.Parallel()
	w := cursorWorld(t)
	const ordered = "COPY (SELECT id, note, id / 4.0 AS quarter, nullif(note, 'note 3') AS some FROM orders ORDER BY id) TO STDOUT"
	const few = "COPY (SELECT 'x' AS x, 7 FROM orders WHERE id IN (1, 2, 3, 4, 5)) TO STDOUT"
	ext := func(sql string) step { return sent(pipeline(unnamed(sql), sync1)...) }
	for name, steps := range map[string][]step{
		"text":            texts(ordered, ordered+" WITH (DELIMITER '|', NULL 'none')", few, few+" (DELIMITER ';')"),
		"csv":             texts(ordered+" CSV HEADER", ordered+" (FORMAT csv, HEADER, QUOTE '''', ESCAPE '\\', FORCE_QUOTE (note, some), NULL '-')", ordered+" (FORMAT csv, FORCE_QUOTE *)", few+" (FORMAT csv, HEADER true)", few+" WITH CSV QUOTE '\"' FORCE QUOTE x"),
		"binary":          texts(ordered+" (FORMAT binary)", few+" (FORMAT binary)", few+" WITH BINARY"),
		"text header":     texts(ordered+" (HEADER)", few+" (HEADER on)"),
		"of no rows":      texts("COPY (SELECT id FROM orders WHERE note = '' ORDER BY id) TO STDOUT (FORMAT csv, HEADER)", "COPY (SELECT id FROM orders WHERE note = '') TO STDOUT (FORMAT csv, HEADER)", "COPY (SELECT id FROM orders WHERE note = '') TO STDOUT (FORMAT binary)", "COPY (SELECT id FROM orders WHERE note = '' ORDER BY id) TO STDOUT (FORMAT binary)"),
		"limited":         texts("COPY (SELECT 'x' FROM orders LIMIT 3) TO STDOUT", "COPY (SELECT 'x' AS y FROM orders LIMIT 3) TO STDOUT CSV HEADER", "COPY (SELECT 'x' FROM orders LIMIT 3) TO STDOUT (FORMAT binary)", "COPY (SELECT id FROM orders ORDER BY id DESC LIMIT 3 OFFSET 2) TO STDOUT", "COPY (SELECT 'x' FROM orders LIMIT 0) TO STDOUT (FORMAT binary)"),
		"computed":        texts("COPY (SELECT note, count(*), sum(id), avg(id), array_agg(id ORDER BY id) FROM orders GROUP BY note ORDER BY note) TO STDOUT CSV HEADER", "COPY (SELECT count(*), count(*) FROM orders) TO STDOUT CSV HEADER FORCE QUOTE count", "COPY (SELECT o FROM orders o ORDER BY id LIMIT 2) TO STDOUT", "COPY (SELECT FROM orders ORDER BY 1 + length(note)) TO STDOUT"),
		"of what is gone": append(texts("BEGIN", "COPY (DELETE FROM orders WHERE id IN (1, 2, 3) RETURNING 'x') TO STDOUT", "SELECT count(*) FROM orders", "ROLLBACK"), texts("SELECT count(*) FROM orders")...),
		"by the protocol": {ext(ordered), ext(few), sent(parse("c", ordered), describeStatement("c"), sync1), sent(bind("", "c"), describePortal(""), run(""), run(""), sync1), sent(pipeline(unnamed(ordered), unnamed(few), unnamed("SELECT 1"), sync1)...)},
		"in one text":     texts("SELECT 1; " + ordered + "; " + few + "; SELECT 2"),
		"in a block":      texts("BEGIN", "UPDATE orders SET note = 'changed' WHERE id < 3", ordered, "ROLLBACK", ordered),
		"wrong":           texts("COPY (SELECT nothing FROM orders ORDER BY id) TO STDOUT", "COPY (SELECT id FROM orders ORDER BY id) TO STDOUT (FORMAT csv, FORCE_QUOTE (other))", "COPY (SELECT id FROM orders ORDER BY id) TO STDOUT (FORMAT nonsense)", "SELECT 1; COPY (SELECT nothing FROM orders ORDER BY id) TO STDOUT", "COPY (SELECT $1 FROM orders ORDER BY id) TO STDOUT"),
	} {
		t.Run(name, func(t *testing.T) { w.sameAsPlain(t, steps...) })
	}
	w.nothingPrepared(t)
}

// TestManyCopiedRowsOfAQuery: more than stay in memory.
func TestManyCopiedRowsOfAQuery(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true})
	client := w.client(t)
	for part := range 6 {
		var rows bytes.Buffer
		for i := range 1000 {
			_, _ = fmt.Fprintf(&rows, "%d\t%s\n", part*1000+i+1, bytes.Repeat([]byte("x"), 2000+i))
		}
		if _, err := client.PgConn().CopyFrom(t.Context(), &rows, "COPY orders FROM STDIN"); err != nil {
			t.Fatal(err)
		}
	}
	for _, sql := range []string{"SELECT note FROM orders", "SELECT note FROM orders ORDER BY length(note), id DESC"} {
		var data bytes.Buffer
		tag, err := client.PgConn().CopyTo(t.Context(), &data, "COPY ("+sql+") TO STDOUT")
		if size := 6 * (1000*2001 + 999*1000/2); err != nil || tag.RowsAffected() != 6000 || data.Len() != size {
			t.Errorf("%s: %v, %v, %d bytes, want %d", sql, tag, err, data.Len(), size)
		}
	}
	w.settled(t)
}

// TestNumbersInCopiesOfQueriesAreTheHomeShards, whether each shard copies or the home shard does.
func TestNumbersInCopiesOfQueriesAreTheHomeShards(t *testing.T) {
	t.Parallel()
	w, client := newCarriedWorld(t)
	copied := func(sql string) string {
		t.Helper()
		var data bytes.Buffer
		if _, err := client.PgConn().CopyTo(t.Context(), &data, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return data.String()
	}
	const query = "COPY (SELECT %s FROM orders%s) TO STDOUT (FORMAT binary)"
	one := copied(fmt.Sprintf(query, quotedColumns(), fmt.Sprintf(" WHERE id = %d", w.key(t, 1, 0))))
	row := one[binaryHeader : len(one)-len(binaryEnd)]
	want := one[:binaryHeader] + row + row + binaryEnd
	for _, sql := range []string{fmt.Sprintf(query, quotedColumns(), ""), fmt.Sprintf(query, quotedColumns(), " ORDER BY id")} {
		if got := copied(sql); got != want {
			t.Errorf("%s: %q\nwant %q", sql, got, want)
		}
	}
}
