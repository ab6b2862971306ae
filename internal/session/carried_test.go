package session

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cleavedb/cleave/internal/thorough"
)

// carriedValues are values of types that users have made, which name types in binary format, by the columns that hold them.
var carriedValues = map[string]string{
	"moods":   "'{fine,sad,NULL}'::mood[]",
	"pair":    "ROW('sad', 7, '{fine}')::pair",
	"pairs":   `ARRAY[ROW('sad', 7, '{fine}')::pair, NULL, ROW(NULL, NULL, '{{sad,fine},{fine,fine}}')::pair]`,
	"listed":  "'{sad,sad}'::mood[]",
	"nested":  "ROW(ROW('sad', 7, '{fine}')::pair, '{fine}', 'sad')::nest",
	"spans":   "pair_range(ROW('fine', 1, '{}')::pair, NULL)",
	"several": "pair_multirange(pair_range(ROW('fine', 1, '{sad}')::pair, ROW('fine', 2, '{sad}')::pair), pair_range(ROW('sad', 1, NULL)::pair, NULL))",
	"ranges":  "ARRAY[mood_range('fine', 'sad'), 'empty', NULL]",
	"sure":    "'{sad}'::sure_mood[]",
	"bounded": "pair_range(NULL, ROW('fine', 1, '{}')::pair)",
	"numbers": "'{1,2}'::int[]",
	"how":     "'sad'::mood",
}

func carriedColumns() []string {
	var columns []string
	for name := range carriedValues {
		columns = append(columns, name)
	}
	slices.Sort(columns)
	return columns
}

// newCarriedWorld has types whose numbers are others on the second shard, a column of each, and a row on each shard with the same values.
func newCarriedWorld(t *testing.T) (w *world, client *pgx.Conn) {
	t.Helper()
	w = newWorld(t, worldConfig{noPlain: true})
	execute(t, w.onShard(t, 2), "CREATE TYPE other AS (a int); CREATE TABLE others (a int); CREATE TYPE another AS ENUM ('x')")
	client = w.client(t)
	for _, sql := range []string{
		"CREATE TYPE mood AS ENUM ('fine', 'sad')", "CREATE TYPE pair AS (how mood, n int, hows mood[])", "CREATE DOMAIN mood_list AS mood[]", "CREATE DOMAIN sure_mood AS mood CHECK (VALUE IS NOT NULL)",
		"CREATE TYPE nest AS (one pair, list mood_list, sure sure_mood)", "CREATE TYPE pair_range AS RANGE (subtype = pair)", "CREATE TYPE mood_range AS RANGE (subtype = mood)",
		"CREATE DOMAIN bounded_range AS pair_range",
		`ALTER TABLE orders ADD moods mood[], ADD pair pair, ADD pairs pair[], ADD listed mood_list, ADD nested nest, ADD spans pair_range, ADD several pair_multirange,
			ADD ranges mood_range[], ADD sure sure_mood[], ADD bounded bounded_range, ADD numbers int[], ADD how mood`,
	} {
		execute(t, client, sql)
	}
	for number := 1; number <= 2; number++ {
		for _, name := range carriedColumns() {
			execute(t, client, fmt.Sprintf(`INSERT INTO orders (id, %q) VALUES (%d, %s) ON CONFLICT (id) DO UPDATE SET %q = EXCLUDED.%q`, name, w.key(t, number, 0), carriedValues[name], name, name), pgx.QueryExecModeSimpleProtocol)
		}
	}
	return w, client
}

func quotedColumns() string { return `"` + strings.Join(carriedColumns(), `", "`) + `"` }

// binaryRow reads all columns of one row in binary format.
func binaryRow(t *testing.T, client *pgx.Conn, sql string) [][]byte {
	t.Helper()
	result := client.PgConn().ExecParams(t.Context(), sql, nil, nil, nil, []int16{1}).Read()
	if result.Err != nil || len(result.Rows) != 1 {
		t.Fatalf("%s: %d rows, %v", sql, len(result.Rows), result.Err)
	}
	return result.Rows[0]
}

// TestNumbersInValuesAreTheHomeShards: an array in binary format names the type of its elements as the catalogue that clients see does,
// whichever shard it comes from.
func TestNumbersInValuesAreTheHomeShards(t *testing.T) {
	t.Parallel()
	w, client := newCarriedWorld(t)
	here, there := w.key(t, 1, 0), w.key(t, 2, 0)
	same := func(what string, a, b [][]byte) {
		t.Helper()
		for i, name := range carriedColumns() {
			if !bytes.Equal(a[i], b[i]) {
				t.Errorf("%s: column %s is %x on the home shard and %x on the other", what, name, a[i], b[i])
			}
		}
	}
	read := "SELECT " + quotedColumns() + " FROM orders WHERE id = %d"
	want := binaryRow(t, client, fmt.Sprintf(read, here))
	raw := connectTo(t, w.shards[1].Addr())
	if bytes.Equal(want[slices.Index(carriedColumns(), "moods")], binaryRow(t, raw, fmt.Sprintf(read, there))[slices.Index(carriedColumns(), "moods")]) {
		t.Fatal("the type has the same number on both shards, so nothing is tested")
	}
	for range 2 { // what is learned the first time is used the second
		same("unnamed", want, binaryRow(t, client, fmt.Sprintf(read, there)))
	}
	for _, sql := range []string{
		"SELECT ROW(id > 0, moods, pair), ARRAY[ROW(pair), ROW(pair)] FROM orders WHERE id = %d", "SELECT orders.moods || moods, ARRAY[pair, pair] FROM orders WHERE id = %d",
		"UPDATE orders SET note = 'x' WHERE id = %d RETURNING pairs, moods",
	} {
		a, b := binaryRow(t, client, fmt.Sprintf(sql, here)), binaryRow(t, client, fmt.Sprintf(sql, there))
		if !bytes.Equal(slices.Concat(a...), slices.Concat(b...)) {
			t.Errorf("%s: %x and %x", sql, a, b)
		}
	}
	statement := must[*pgconn.StatementDescription](t)(client.PgConn().Prepare(t.Context(), "s", "SELECT "+quotedColumns()+" FROM orders WHERE id = $1", nil))
	for range 2 {
		result := client.PgConn().ExecPrepared(t.Context(), statement.Name, [][]byte{[]byte(text(there))}, nil, []int16{1}).Read()
		if result.Err != nil {
			t.Fatal(result.Err)
		}
		same("prepared", want, result.Rows[0])
	}
	all := client.PgConn().ExecParams(t.Context(), "SELECT "+quotedColumns()+" FROM orders", nil, nil, nil, []int16{1}).Read()
	if all.Err != nil || len(all.Rows) != 2 {
		t.Fatalf("all rows: %d, %v", len(all.Rows), all.Err)
	}
	same("of both shards", all.Rows[0], all.Rows[1])
	same("of both shards", want, all.Rows[1])
}

// TestLongRowsAreLookedInto: what has to be looked into may be longer than what is read at a time, and come in parts.
func TestLongRowsAreLookedInto(t *testing.T) {
	t.Parallel()
	w, client := newCarriedWorld(t)
	long := "array_fill('sad'::mood, ARRAY[%d])"
	for _, size := range []int{2000, 20_000} {
		var rows [][]byte
		for number := 1; number <= 2; number++ {
			id := w.key(t, number, 0)
			execute(t, client, fmt.Sprintf("UPDATE orders SET moods = "+long+" WHERE id = %d", size, id), pgx.QueryExecModeSimpleProtocol)
			rows = append(rows, binaryRow(t, client, fmt.Sprintf("SELECT moods FROM orders WHERE id = %d", id))[0])
		}
		if !bytes.Equal(rows[0], rows[1]) {
			t.Errorf("with %d elements the rows of %d and %d bytes differ", size, len(rows[0]), len(rows[1]))
		}
	}
}

// TestNumbersInParametersAreTheShards: what a client sends is what it was told, and every shard takes it.
func TestNumbersInParametersAreTheShards(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w, client := newCarriedWorld(t)
	columns := carriedColumns()
	values := binaryRow(t, client, fmt.Sprintf("SELECT "+quotedColumns()+" FROM orders WHERE id = %d", w.key(t, 1, 0)))
	want := binaryTexts(t, client, w.key(t, 1, 0))
	places, formats := make([]string, len(columns)), make([]int16, len(columns)+2)
	for i := range columns {
		places[i], formats[i+2] = fmt.Sprintf("$%d", i+3), 1
	}
	there, here := w.key(t, 2, 1), w.key(t, 1, 1)
	for _, sql := range []string{
		fmt.Sprintf("INSERT INTO orders (id, note, %s) VALUES ($1, $2, %s)", quotedColumns(), strings.Join(places, ", ")),
		fmt.Sprintf("UPDATE orders SET note = $2, (%s) = (%s) WHERE id = $1", quotedColumns(), strings.Join(places, ", ")),
	} {
		for range 2 {
			execute(t, client, fmt.Sprintf("DELETE FROM orders WHERE id IN (%d, %d)", here, there))
			if strings.HasPrefix(sql, "UPDATE") {
				execute(t, client, fmt.Sprintf("INSERT INTO orders (id) VALUES (%d), (%d)", here, there))
			}
			for _, id := range []int64{here, there} {
				arguments := append([][]byte{[]byte(text(id)), []byte("x")}, values...)
				if result := client.PgConn().ExecParams(t.Context(), sql, arguments, nil, formats, nil).Read(); result.Err != nil {
					t.Fatalf("%s: %v", sql, result.Err)
				}
				if got := binaryTexts(t, client, id); got != want {
					t.Errorf("stored are %s, want %s", got, want)
				}
			}
		}
	}
	execute(t, client, fmt.Sprintf("DELETE FROM orders WHERE id IN (%d, %d)", here, there))
	moods, pairs := values[slices.Index(columns, "moods")], values[slices.Index(columns, "pairs")]
	rows := client.PgConn().ExecParams(t.Context(), "INSERT INTO orders (id, moods, pairs) VALUES ($1, $2, $3), ($4, $2, $3) RETURNING moods, pairs",
		[][]byte{[]byte(text(there)), moods, pairs, []byte(text(here))}, nil, []int16{0, 1, 1, 0}, []int16{1}).Read()
	if rows.Err != nil || len(rows.Rows) != 2 {
		t.Fatalf("a row for each shard: %d, %v", len(rows.Rows), rows.Err)
	}
	for _, row := range rows.Rows {
		if !bytes.Equal(row[0], moods) || !bytes.Equal(row[1], pairs) {
			t.Errorf("returned are %x and %x", row[0], row[1])
		}
	}
	found := client.PgConn().ExecParams(t.Context(), "SELECT id FROM orders WHERE moods = $1 AND note IS NULL", [][]byte{moods}, nil, []int16{1}, nil).Read()
	if found.Err != nil || len(found.Rows) != 4 {
		t.Errorf("compared with a parameter: %d rows, %v", len(found.Rows), found.Err)
	}
	malformed := client.PgConn().ExecParams(t.Context(), "UPDATE orders SET moods = $1 WHERE id = $2", [][]byte{moods[:14], []byte(text(there))}, nil, []int16{1, 0}, nil).Read()
	if malformed.Err == nil || !strings.Contains(malformed.Err.Error(), "08P01") {
		t.Errorf("an array that ends too early: %v", malformed.Err)
	}
}

// binaryTexts are the columns of a row as text.
func binaryTexts(t *testing.T, client *pgx.Conn, id int64) string {
	t.Helper()
	result := client.PgConn().ExecParams(t.Context(), fmt.Sprintf("SELECT "+quotedColumns()+" FROM orders WHERE id = %d", id), nil, nil, nil, nil).Read()
	if result.Err != nil || len(result.Rows) != 1 {
		t.Fatalf("%d rows, %v", len(result.Rows), result.Err)
	}
	return string(bytes.Join(result.Rows[0], []byte("|")))
}

// TestDriversDecodeUsersTypes: pgx asks the catalogue for a type once, and reads and writes all values by that.
func TestDriversDecodeUsersTypes(t *testing.T) {
	t.Parallel()
	w, client := newCarriedWorld(t)
	for _, name := range []string{"mood", "_mood", "pair", "_pair"} {
		loaded, err := client.LoadType(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		client.TypeMap().RegisterType(loaded)
	}
	for number := 1; number <= 2; number++ {
		id := w.key(t, number, 5)
		execute(t, client, "INSERT INTO orders (id, moods, pair) VALUES ($1, $2, $3)", id, []string{"sad", "fine"}, pgtype.CompositeFields{"fine", int32(3), []string{"sad"}})
		rows := must[pgx.Rows](t)(client.Query(t.Context(), "SELECT moods, pair FROM orders WHERE id = $1", pgx.QueryResultFormats{1, 1}, id))
		read, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
		if err != nil {
			t.Fatal(err)
		}
		want := []any{[]any{"sad", "fine"}, map[string]any{"how": "fine", "n": int32(3), "hows": []any{"sad"}}}
		if diff := cmp.Diff(want, read); diff != "" {
			t.Errorf("shard %d: wanted (-) and read (+) differ:\n%s", number, diff)
		}
	}
}

// TestCursorsInBinaryFormat are read by FETCH, which says by itself of which types its rows are.
func TestCursorsInBinaryFormat(t *testing.T) {
	t.Parallel()
	w, _ := newCarriedWorld(t)
	var fetched [2]string
	for number := 1; number <= 2; number++ {
		c := dialRaw(t, w.address, nil)
		c.query("BEGIN")
		c.query(fmt.Sprintf("DECLARE c BINARY CURSOR FOR SELECT moods, pairs FROM orders WHERE id = %d", w.key(t, number, 0)))
		c.query(fmt.Sprintf("DECLARE d CURSOR FOR SELECT moods, pairs FROM orders WHERE id = %d", w.key(t, number, 0)))
		bound := bind("", "")
		bound.ResultFormatCodes = []int16{1}
		fetched[number-1] = strings.Join(slices.Concat(c.query("FETCH c"), c.ask([]pgproto3.FrontendMessage{parse("", "FETCH d"), bound, run(""), sync1}...)), "\n")
	}
	if fetched[0] != fetched[1] || !strings.Contains(fetched[0], "row ") {
		t.Errorf("fetched are %s\nand %s", fetched[0], fetched[1])
	}
}

// TestNumbersInCopiedRowsAreExchanged in both directions: what COPY in binary format gives, it takes.
func TestNumbersInCopiedRowsAreExchanged(t *testing.T) {
	t.Parallel()
	w, client := newCarriedWorld(t)
	here, there := w.key(t, 1, 0), w.key(t, 2, 0)
	want := binaryTexts(t, client, here)
	copyOut := func(sql string) []byte {
		t.Helper()
		var data bytes.Buffer
		if _, err := client.PgConn().CopyTo(t.Context(), &data, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return data.Bytes()
	}
	single := "COPY (SELECT " + quotedColumns() + " FROM orders WHERE id = %d) TO STDOUT (FORMAT binary)"
	if a, b := copyOut(fmt.Sprintf(single, here)), copyOut(fmt.Sprintf(single, there)); !bytes.Equal(a, b) {
		t.Errorf("of one shard each: %x\nand %x", a, b)
	}
	all := copyOut("COPY orders (id, " + quotedColumns() + ") TO STDOUT (FORMAT binary)")
	execute(t, client, "DELETE FROM orders")
	for _, sql := range []string{"COPY orders (id, %s) FROM STDIN (FORMAT binary)", "DELETE FROM orders; COPY orders (id, %s) FROM STDIN WITH BINARY"} {
		if _, err := client.PgConn().CopyFrom(t.Context(), bytes.NewReader(all), fmt.Sprintf(sql, quotedColumns())); err != nil {
			t.Fatal(err)
		}
		for _, id := range []int64{here, there} {
			if got := binaryTexts(t, client, id); got != want {
				t.Errorf("stored are %s, want %s", got, want)
			}
		}
	}
	execute(t, client, "ALTER TABLE countries ADD moods mood[]")
	execute(t, client, "INSERT INTO countries (code, moods) VALUES ('NZ', '{fine,sad}')")
	countries := copyOut("COPY countries TO STDOUT (FORMAT binary)")
	execute(t, client, "DELETE FROM countries")
	if _, err := client.PgConn().CopyFrom(t.Context(), bytes.NewReader(countries), "COPY countries FROM STDIN (FORMAT binary)"); err != nil {
		t.Fatal(err)
	}
	for number := 1; number <= 2; number++ {
		if stored := one[string](t, w.onShard(t, number), "SELECT moods::text FROM countries"); stored != "{fine,sad}" {
			t.Errorf("shard %d has %s", number, stored)
		}
	}
}
