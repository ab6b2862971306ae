package stub_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/bench/stub"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a stub before a server whose accounts all hold 7, which no canned answer says.
func start(t *testing.T) (server *localpg.Server, dsn string) {
	t.Helper()
	server = pgtest.Start(t)
	direct := connect(t, server.DSN("postgres"))
	const table = "CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, abalance int); INSERT INTO pgbench_accounts SELECT n, 7 FROM generate_series(1, 10) n"
	if err := direct.Exec(t.Context(), table).Close(); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- stub.Serve(ctx, listener, server.Addr()) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return server, strings.Replace(server.DSN("postgres"), server.Addr(), listener.Addr().String(), 1)
}

func connect(t *testing.T, dsn string) *pgconn.PgConn {
	t.Helper()
	conn, err := pgconn.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

const (
	selectOne = "SELECT abalance FROM pgbench_accounts WHERE aid = "
	updateOne = "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = "
)

// kinds sends the messages and returns the types of all that come back up to the given number of ReadyForQuery.
func kinds(t *testing.T, conn *pgconn.PgConn, ready int, messages ...pgproto3.FrontendMessage) (string, []string) {
	t.Helper()
	var types []byte
	var rows []string
	frontend := conn.Frontend()
	for _, m := range messages {
		frontend.Send(m)
	}
	if err := frontend.Flush(); err != nil {
		t.Fatal(err)
	}
	for ready > 0 {
		message, err := frontend.Receive()
		if err != nil {
			t.Fatal(err)
		}
		encoded, err := message.Encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, encoded[0])
		switch m := message.(type) {
		case *pgproto3.DataRow:
			rows = append(rows, string(m.Values[0]))
		case *pgproto3.ReadyForQuery:
			types = append(types, m.TxStatus)
			ready--
		}
	}
	return string(types), rows
}

// TestAnswersHaveTheServersShape asks the stub and the server behind it the same, and expects the same messages; only the
// value tells who answered.
func TestAnswersHaveTheServersShape(t *testing.T) {
	server, dsn := start(t)
	query := func(text string) pgproto3.FrontendMessage { return &pgproto3.Query{String: text} }
	bind := func(name string) pgproto3.FrontendMessage {
		return &pgproto3.Bind{PreparedStatement: name, Parameters: [][]byte{[]byte("1")}}
	}
	parse := func(name, text string) pgproto3.FrontendMessage {
		return &pgproto3.Parse{Name: name, Query: text + "$1"}
	}
	describe := func(kind byte, name string) pgproto3.FrontendMessage {
		return &pgproto3.Describe{ObjectType: kind, Name: name}
	}
	execute, sync := &pgproto3.Execute{}, &pgproto3.Sync{}
	cases := []struct {
		name     string
		messages []pgproto3.FrontendMessage
		ready    int
		rows     []string // that the stub gives
	}{
		{"simple select", []pgproto3.FrontendMessage{query(selectOne + "1;")}, 1, []string{"0"}},
		{"simple update", []pgproto3.FrontendMessage{query(updateOne + "1;")}, 1, nil},
		{"two in one text are the server's", []pgproto3.FrontendMessage{query(selectOne + "2;" + selectOne + "2;")}, 1, []string{"7", "7"}},
		{"extended select", []pgproto3.FrontendMessage{parse("", selectOne), describe('S', ""), bind(""), describe('P', ""), execute, sync}, 1, []string{"0"}},
		{"extended update", []pgproto3.FrontendMessage{parse("", updateOne), bind(""), describe('P', ""), execute, sync}, 1, nil},
		{"prepare", []pgproto3.FrontendMessage{parse("p", selectOne), sync}, 1, nil},
		{"prepared", []pgproto3.FrontendMessage{bind("p"), describe('P', ""), execute, sync}, 1, []string{"0"}},
		{"nothing", []pgproto3.FrontendMessage{sync}, 1, nil},
		{"begin", []pgproto3.FrontendMessage{query("BEGIN")}, 1, nil},
		{"in a transaction", []pgproto3.FrontendMessage{bind("p"), execute, sync}, 1, []string{"0"}},
		{"an error", []pgproto3.FrontendMessage{query("SELECT 1/0")}, 1, nil},
		{"in a failed transaction", []pgproto3.FrontendMessage{query(selectOne + "1")}, 1, nil},
		{"rollback", []pgproto3.FrontendMessage{query("ROLLBACK")}, 1, nil},
		{"behind another", []pgproto3.FrontendMessage{query("SELECT pg_sleep(0.05)"), query(selectOne + "2")}, 2, []string{"", "7"}},
		{"close", []pgproto3.FrontendMessage{&pgproto3.Close{ObjectType: 'S', Name: "p"}, sync}, 1, nil},
		{"closed", []pgproto3.FrontendMessage{bind("p"), execute, sync}, 1, nil},
	}
	direct, stubbed := connect(t, server.DSN("postgres")), connect(t, dsn)
	for _, c := range cases {
		want, _ := kinds(t, direct, c.ready, c.messages...)
		got, rows := kinds(t, stubbed, c.ready, c.messages...)
		if got != want {
			t.Errorf("%s: the stub says %s, the server %s", c.name, got, want)
		}
		if !slices.Equal(rows, c.rows) {
			t.Errorf("%s: rows %q, expected %q", c.name, rows, c.rows)
		}
	}
}

// TestClientsWithBinaryResultsAreTheServers goes through a client library that nothing is canned for.
func TestClientsWithBinaryResultsAreTheServers(t *testing.T) {
	_, dsn := start(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for range 2 { // the second time it is prepared
		var balance int
		if err := conn.QueryRow(t.Context(), selectOne+"$1", 3).Scan(&balance); err != nil || balance != 7 {
			t.Errorf("balance %d, %v", balance, err)
		}
	}
	rows := [][]any{{100, 1}, {101, 2}}
	if n, err := conn.CopyFrom(t.Context(), pgx.Identifier{"pgbench_accounts"}, []string{"aid", "abalance"}, pgx.CopyFromRows(rows)); n != 2 || err != nil {
		t.Errorf("copied %d rows, %v", n, err)
	}
}

func TestUpdatesChangeNothing(t *testing.T) {
	server, dsn := start(t)
	if err := connect(t, dsn).Exec(t.Context(), updateOne+"5").Close(); err != nil {
		t.Fatal(err)
	}
	results, err := connect(t, server.DSN("postgres")).Exec(t.Context(), selectOne+"5").ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if got := string(results[0].Rows[0][0]); got != "7" {
		t.Errorf("the row holds %s", got)
	}
}
