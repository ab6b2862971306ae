package copydata

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

// destinations is among how many servers the tests divide data. One server plays them all, with a table for each.
const destinations = 3

// server is a real one, with a table of text for all of the data and one for each destination.
type server struct {
	conn    *pgx.Conn
	version int
}

func startServer(t *testing.T) *server {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Start(t).DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	s := &server{conn: conn}
	if err := conn.QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int").Scan(&s.version); err != nil {
		t.Fatal(err)
	}
	for i := range destinations + 1 {
		// Rows that a constraint refuses are refused after several were read, by the number of their line alone.
		s.exec(t, fmt.Sprintf(`CREATE SCHEMA s%d; CREATE UNLOGGED TABLE s%[1]d.t (a text DEFAULT 'd', b text DEFAULT 'd', c text DEFAULT 'd', CHECK (a IS DISTINCT FROM 'no'))`, i))
	}
	return s
}

// fataler is what both kinds of tests have.
type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func (s *server) exec(t fataler, sql string) {
	t.Helper()
	if _, err := s.conn.Exec(context.Background(), sql); err != nil {
		t.Fatal(err)
	}
}

// copyCase is a COPY: its options and its data.
type copyCase struct {
	options []Option
	columns int
	data    string
}

// sql is the statement, for a schema.
func (c *copyCase) sql(schema int) string {
	list := make([]string, len(c.options))
	for i, o := range c.options {
		list[i] = o.sql()
	}
	with := ""
	if len(list) > 0 {
		with = " WITH (" + strings.Join(list, ", ") + ")"
	}
	return fmt.Sprintf("COPY s%d.t (%s) FROM STDIN%s", schema, strings.Join(columnNames[:c.columns], ", "), with)
}

// sql is the option as it is written in parentheses.
func (o Option) sql() string {
	switch {
	case o.Bare:
		return o.Name
	case o.Star:
		return o.Name + " *"
	case o.List != nil:
		return o.Name + " (" + strings.Join(o.List, ", ") + ")"
	case o.Name == "header":
		return o.Name + " " + o.Value
	default:
		return o.Name + " E'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`, "\r", `\r`).Replace(o.Value) + "'"
	}
}

// copyInto runs the COPY with this data and returns the rows that the table then has.
func (s *server) copyInto(t fataler, c *copyCase, schema int, data string) ([]string, error) {
	t.Helper()
	ctx := context.Background()
	s.exec(t, fmt.Sprintf("TRUNCATE s%d.t", schema))
	if _, err := s.conn.PgConn().CopyFrom(ctx, strings.NewReader(data), c.sql(schema)); err != nil {
		return nil, err
	}
	names := strings.Join(columnNames[:c.columns], ", ")
	rows, err := s.conn.Query(ctx, fmt.Sprintf("SELECT %s FROM s%d.t ORDER BY ctid", names, schema))
	if err != nil {
		t.Fatal(err)
	}
	stored, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		raw := row.RawValues()
		values := make([]Value, len(raw))
		for i := range raw {
			values[i] = Value{Bytes: raw[i], Null: raw[i] == nil}
		}
		return shownValues(values), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return stored, nil
}

// atDefaults is a row's values with those of the test's tables for defaults.
func atDefaults(values []Value) []Value {
	filled := slices.Clone(values)
	for i, v := range filled {
		if v.Default {
			filled[i] = Value{Bytes: []byte("d")}
		}
	}
	return filled
}

// Errors that are no fault of the rows' form: values that are not text in UTF8, and the constraint's.
const (
	notInEncoding  = "22021"
	checkViolation = "23514"
)

// TestServersAgree: whatever the options and the data, a server that gets all of it and a Splitter that divides it see the same
// rows, or both see something wrong; and servers that get what the Splitter divides store the same rows in all, or
// complain about the same line.
func TestServersAgree(t *testing.T) {
	s := startServer(t)
	outcomes := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		for range 4 {
			outcomes[s.compare(t, drawCase(t, s.version))]++
		}
	})
	t.Log(outcomes)
	for _, outcome := range []string{"stored", "malformed", "refused", "refused by the table"} {
		if outcomes[outcome] == 0 {
			t.Errorf("no data was %s: %v", outcome, outcomes)
		}
	}
}

func (s *server) compare(t *rapid.T, c *copyCase) (outcome string) {
	f, err := NewFormat(c.options, columnNames[:c.columns], "UTF8")
	if err != nil {
		t.Fatalf("%s: %v", c.sql(0), err)
	}
	sizes := rapid.SliceOfN(rapid.IntRange(1, 12), 0, 8).Draw(t, "sizes")
	splitter, err := NewSplitter(f, Config{Keys: allKeys(f), ServerVersion: s.version})
	if err != nil {
		t.Fatal(err)
	}
	pieces, refusal := feed(splitter, c.data, sizes)
	stored, direct := s.copyInto(t, c, 0, c.data)
	if refusal != nil {
		if direct == nil && !strings.Contains(refusal.Error(), "not alone on its line") {
			t.Fatalf("%s\n%q\nwas refused with %v, and stored as %v", c.sql(0), c.data, refusal, stored)
		}
		return "refused"
	}
	if joined(pieces) != c.data {
		t.Fatalf("%q became %q", c.data, joined(pieces))
	}
	rows, malformed := rowsOf(pieces)
	switch {
	case direct == nil && (malformed || !slices.Equal(rows, stored)):
		t.Fatalf("%s\n%q\nis %v, malformed %t, and was stored as %v", c.sql(0), c.data, rows, malformed, stored)
	case direct != nil && !malformed && !isServersOwn(f, rows, direct):
		t.Fatalf("%s\n%q\nis %v, and was refused with %v", c.sql(0), c.data, rows, direct)
	}
	s.compareDivided(t, c, pieces, stored, direct)
	switch {
	case direct == nil:
		return "stored"
	case malformed:
		return "malformed"
	default:
		return "refused by the table"
	}
}

func rowsOf(pieces []Piece) (rows []string, malformed bool) {
	for _, p := range pieces {
		switch p.Kind {
		case Row:
			rows = append(rows, shownValues(atDefaults(p.Values)))
		case Malformed:
			malformed = true
		case HeaderPiece, End, Ignored:
		}
	}
	return rows, malformed
}

// isServersOwn says whether an error is about what only a server looks at: encodings, the table, what a header says, that
// there is none.
func isServersOwn(f *Format, rows []string, err error) bool {
	code := codeOf(err)
	return code == notInEncoding || code == checkViolation ||
		code == badCopyFile && (f.header == HeaderMatched && (len(rows) == 0 || strings.Contains(err.Error(), "header line")) || strings.Contains(err.Error(), "file signature"))
}

func codeOf(err error) string {
	var known *pgconn.PgError
	if errors.As(err, &known) {
		return known.Code
	}
	return ""
}

// compareDivided divides the pieces among destinations and compares what is stored in all, or the first error, with what a
// server did that got all of the data.
func (s *server) compareDivided(t *rapid.T, c *copyCase, pieces []Piece, stored []string, direct error) {
	parts, origins := divide(pieces)
	var all []string
	first, firstError := 0, error(nil)
	for d, part := range parts {
		rows, err := s.copyInto(t, c, d+1, part)
		all = append(all, rows...)
		if err == nil {
			continue
		}
		if line := lineOf(origins, d, err); firstError == nil || line < first {
			first, firstError = line, err
		}
	}
	if (direct == nil) != (firstError == nil) {
		t.Fatalf("%s\n%q\nended with %v, and in parts %q with %v", c.sql(0), c.data, direct, parts, firstError)
	}
	if direct == nil {
		slices.Sort(all)
		if slices.Sort(stored); !slices.Equal(all, stored) {
			t.Fatalf("%s\n%q\nwas stored as %v, in parts as %v", c.sql(0), c.data, stored, all)
		}
		return
	}
	// What is not in the encoding is noticed when a buffer is converted, before its lines are counted.
	if want := lineOf(nil, 0, direct); codeOf(direct) != notInEncoding && codeOf(firstError) != notInEncoding && (first != want || codeOf(direct) != codeOf(firstError)) {
		t.Fatalf("%s\n%q\nfailed with %v in line %d, in parts %q with %v in line %d", c.sql(0), c.data, direct, want, parts, firstError, first)
	}
}

// seed makes the same rows go to the same destinations in a test's run.
var seed = maphash.MakeSeed()

// divide sends each row somewhere.
func divide(pieces []Piece) (parts [destinations]string, origins *Origins) {
	origins = NewOrigins(destinations)
	for i := range pieces {
		p := &pieces[i]
		switch p.Kind {
		case HeaderPiece:
			origins.Add(0, p)
			for d := range parts {
				parts[d] += string(p.Raw)
			}
		case Row, Malformed:
			d := int(maphash.Bytes(seed, p.Raw) % destinations)
			origins.Add(d, p)
			parts[d] += string(p.Raw)
		case End, Ignored:
		}
	}
	return parts, origins
}

// lineOf is the line that an error's CONTEXT names, after it was turned into the client's if it is a destination's.
func lineOf(origins *Origins, destination int, err error) int {
	var known *pgconn.PgError
	if !errors.As(err, &known) {
		return -1
	}
	text := known.Where
	if origins != nil {
		text = origins.Context(text, "t", destination, "shard "+strconv.Itoa(destination))
	}
	rest := strings.TrimPrefix(text, "COPY t, line ")
	line, _ := strconv.Atoi(rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))])
	return line
}
