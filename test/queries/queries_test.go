// Package queries_test runs workloads that others have made, on one plain PostgreSQL and through the router on a cluster of four shards, and
// wants equal answers: the queries of the TPC-H benchmark, whose tables are in three keyspaces, joins that turn otherwise than those do, and a
// sequence of transactions like those of TPC-C, with what must hold when they are done.
//
// Rows are equal if their values are, and the names, types and modifiers of columns; where an order leaves a choice, either is right. Each
// query runs over the simple protocol with literals, and over the extended one with parameters, as texts and in binary form.
//
// Statements that were written or made up for the router are compared in test/differential. Start reading at tpch_test.go.
package queries_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/test/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// role and database are those of all servers.
const role, database = "postgres", "postgres"

// seed of keyspaces and of all that is made up.
const seed = 19

const shardCount = 4

// servers are the two that are to answer alike.
type servers struct {
	plain, router string // connection strings
	api           *api.Client
}

// TestTheRouterAgreesWithPostgreSQL has all workloads on the same servers, which take longer to start than to answer.
func TestTheRouterAgreesWithPostgreSQL(t *testing.T) {
	s := start(t)
	t.Run("TPCH", func(t *testing.T) { testTPCH(t, s) })
	t.Run("joins", func(t *testing.T) { testJoins(t, s) })
	t.Run("TPCC", func(t *testing.T) { testTPCC(t, s) })
}

// start starts both; they end with the test.
func start(t *testing.T) servers {
	t.Helper()
	if testing.Short() {
		t.Skip("it fills tables on several servers")
	}
	routers := cluster.StartRouters(t, shardCount, 1)
	plain := pgtest.Start(t)
	return servers{plain.DSN(database), fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", role, routers.Routers[0].Listen, database), routers.Routers[0].API}
}

// keyspace makes one, whose keys are on the same shards in every run.
func (s servers) keyspace(t *testing.T, name string, key ...string) {
	t.Helper()
	if _, err := s.api.CreateKeyspace(t.Context(), api.CreateKeyspace{Name: name, Key: key, Seed: strconv.Itoa(seed)}); err != nil {
		t.Fatal(err)
	}
}

// declare tells the router where rows are to be.
func (s servers) declare(t *testing.T, statements ...string) {
	t.Helper()
	run(t, s.router, statements...)
}

// both runs statements on both.
func (s servers) both(t *testing.T, statements ...string) {
	t.Helper()
	run(t, s.plain, statements...)
	run(t, s.router, statements...)
}

// load copies rows into a table on both.
func (s servers) load(t *testing.T, table string, rows []byte) {
	t.Helper()
	for _, dsn := range []string{s.plain, s.router} {
		_, err := dial(t, dsn).PgConn().CopyFrom(t.Context(), bytes.NewReader(rows), "COPY "+table+" FROM STDIN")
		if err != nil {
			t.Fatalf("%s: %v", table, err)
		}
	}
}

// dial connects until the test ends.
func dial(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// dialIn connects to both, with a schema to look for tables in.
func (s servers) dialIn(t *testing.T, schema string) (plain, router *pgx.Conn) {
	t.Helper()
	plain, router = dial(t, s.plain), dial(t, s.router)
	for _, conn := range []*pgx.Conn{plain, router} {
		if _, err := conn.Exec(t.Context(), "SET search_path = "+schema); err != nil {
			t.Fatal(err)
		}
	}
	return plain, router
}

// run runs statements that must succeed, one by one.
func run(t *testing.T, dsn string, statements ...string) {
	t.Helper()
	conn := dial(t, dsn).PgConn()
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql).ReadAll(); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// answer is what a server gave for a query.
type answer struct {
	columns []string
	rows    []row
}

type row [][]byte

// String shows a row, NULL unlike the empty text.
func (r row) String() string {
	texts := make([]string, len(r))
	for i, value := range r {
		texts[i] = fmt.Sprintf("%q", value)
		if value == nil {
			texts[i] = "NULL"
		}
	}
	return strings.Join(texts, " | ")
}

// pick takes some values out of a row.
func (r row) pick(places []int) row {
	picked := make(row, len(places))
	for i, place := range places {
		picked[i] = r[place]
	}
	return picked
}

// protocol is how a query is sent.
type protocol string

// The protocols: simple, with literals; extended, with parameters, and the answer as text or in binary form.
const (
	simple   protocol = "simple"
	extended protocol = "extended"
	binary   protocol = "binary"
)

var protocols = []protocol{simple, extended, binary}

// patience is how long a query may take: one that hangs must fail the test, not stop it.
const patience = 30 * time.Second

// ask sends a query. Parameters are texts.
func ask(ctx context.Context, conn *pgconn.PgConn, how protocol, sql string, parameters []string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if how == simple {
		results, err := conn.Exec(ctx, sql).ReadAll()
		if err != nil {
			return answer{}, err
		}
		return newAnswer(results[0]), results[0].Err
	}
	values := make([][]byte, len(parameters))
	for i, p := range parameters {
		values[i] = []byte(p)
	}
	var formats []int16
	if how == binary {
		formats = []int16{pgx.BinaryFormatCode}
	}
	result := conn.ExecParams(ctx, sql, values, nil, nil, formats).Read()
	return newAnswer(result), result.Err
}

func newAnswer(result *pgconn.Result) answer {
	var a answer
	for _, f := range result.FieldDescriptions {
		a.columns = append(a.columns, fmt.Sprintf("%q type %d length %d modifier %d format %d column %d", f.Name, f.DataTypeOID, f.DataTypeSize, f.TypeModifier, f.Format, f.TableAttributeNumber))
	}
	for _, values := range result.Rows {
		a.rows = append(a.rows, values)
	}
	return a
}

// difference is the first between two answers, empty if there is none. Rows come in the order of the values at these places.
func difference(want, got answer, ordered []int) string {
	if !slices.Equal(want.columns, got.columns) {
		return fmt.Sprintf("columns of PostgreSQL:\n    %s\nof the router:\n    %s", strings.Join(want.columns, "\n    "), strings.Join(got.columns, "\n    "))
	}
	if len(want.rows) != len(got.rows) {
		return fmt.Sprintf("PostgreSQL has %d rows, the router %d; %s", len(want.rows), len(got.rows), firstUnequal(sorted(want.rows), sorted(got.rows)))
	}
	for i := range want.rows {
		if w, g := want.rows[i].pick(ordered).String(), got.rows[i].pick(ordered).String(); w != g {
			return fmt.Sprintf("in row %d, by their order, PostgreSQL has\n    %s\nand the router\n    %s", i+1, w, g)
		}
	}
	return firstUnequal(sorted(want.rows), sorted(got.rows))
}

// sorted are the rows as texts, in an order of their own.
func sorted(rows []row) []string {
	texts := make([]string, len(rows))
	for i, r := range rows {
		texts[i] = r.String()
	}
	slices.Sort(texts)
	return texts
}

// firstUnequal shows the first lines that are not alike; empty if all are.
func firstUnequal(want, got []string) string {
	at := 0
	for at < len(want) && at < len(got) && want[at] == got[at] {
		at++
	}
	if at == len(want) && at == len(got) {
		return ""
	}
	shown := func(lines []string) string {
		if at == len(lines) {
			return "no line any more"
		}
		return lines[at]
	}
	return fmt.Sprintf("line %d is with PostgreSQL\n    %s\nand with the router\n    %s", at+1, shown(want), shown(got))
}
