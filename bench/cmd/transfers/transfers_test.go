package main

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/bench/rig"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

// TestMain lets the test's binary be the program, which starts itself as its children.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == rig.ChildFlag {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// TestEverySideTransfers runs every side shortly, in both modes, with readers beside, and counts the money. Then money is missing, and that
// has to be found.
func TestEverySideTransfers(t *testing.T) {
	pgtest.Installations(t)
	o, err := parseOptions([]string{"-clients", "2", "-seconds", "0.3", "-rounds", "1", "-shards", "2", "-accounts", "1000", "-folder", pgtest.Folder(t)})
	if err != nil {
		t.Fatal(err)
	}
	o.warmUp = 50 * time.Millisecond
	l, err := openLab(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.closers.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(l.folder); !os.IsNotExist(err) {
			t.Errorf("the folder is still there: %v", err)
		}
	}()
	for _, mode := range allModes {
		l.options.mode = mode
		for _, name := range allSides {
			s, err := l.measure(t.Context(), l.side(name), nil)
			if err != nil {
				t.Fatalf("%s, %s: %v", name, mode, err)
			}
			if s.rate == 0 || s.servers == 0 {
				t.Errorf("%s, %s: %+v", name, mode, s)
			}
		}
	}
	if p, err := l.besideOne(t.Context(), l.writers()[0], &plainly); err != nil || p.rate == 0 || p.reads == 0 || p.tries != 1 {
		t.Errorf("beside readers: %+v, %v", p, err)
	}
	if measured, err := l.readByTurns(t.Context(), []reading{plainly, plainly}); err != nil || len(measured) != 2 || measured[1].p50 == 0 || measured[1].p50 > measured[1].p99 {
		t.Errorf("readers by turns: %+v, %v", measured, err)
	}
	for sql, refused := range map[string]bool{"SET cleave.no_such_setting = on": true, "SET application_name = 'reader'": false} {
		if e, err := l.refuses(t.Context(), sql); err != nil || (e != nil) != refused {
			t.Errorf("%s: %v, %v", sql, e, err)
		}
	}
	if err := l.count(t.Context()); err != nil {
		t.Error(err)
	}
	take(t, l)
	if err := l.count(t.Context()); err == nil || !strings.Contains(err.Error(), "the shards have -1 too much") {
		t.Errorf("money is missing, and nobody says so: %v", err)
	}
}

// take takes one from an account on a shard.
func take(t *testing.T, l *lab) {
	t.Helper()
	err := rig.With(t.Context(), address(l.shards[0].Addr(), database, asRouter), func(conn *pgx.Conn) error {
		_, err := conn.Exec(t.Context(), "UPDATE accounts SET balance = balance - 1 WHERE id = $1", l.accounts[0][0])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestWhatIsDrawn looks at the shards of what is drawn, and at the order of the keys.
func TestWhatIsDrawn(t *testing.T) {
	l := &lab{accounts: [][]int64{{1, 5, 9}, {2, 6}, {3, 4, 7, 8}}}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secrets
	directions := map[bool]int{}
	same := 0
	for range 1000 {
		cross, one, any := l.drawCross(random), l.drawSame(random), l.drawAny(random)
		if cross.first.shard == cross.second.shard || one.first.shard != one.second.shard {
			t.Fatalf("over two shards: %+v, on one: %+v", cross, one)
		}
		if any.first.shard == any.second.shard {
			same++
		}
		for _, drawn := range []transfer{cross, one, any} {
			if drawn.first.id >= drawn.second.id || drawn.amount == 0 {
				t.Fatalf("%+v", drawn)
			}
			for _, a := range []account{drawn.first, drawn.second} {
				if !slices.Contains(l.accounts[a.shard], a.id) {
					t.Fatalf("%+v is not on its shard", a)
				}
			}
			directions[drawn.amount > 0]++
		}
	}
	if same == 0 || same == 1000 || directions[true] == 0 || directions[false] == 0 {
		t.Errorf("%d of 1000 on one shard, directions %v", same, directions)
	}
}

func TestRatiosAreOfTheSameRound(t *testing.T) {
	l := &lab{options: options{clients: 16, mode: "prepared", shards: 4, accounts: 1000, rounds: 3, length: time.Second, flush: time.Millisecond}}
	sides := []side{{name: oneServer, what: "base"}, {name: crossShard, what: "router", target: 0.5}, {name: sameShard, what: "router", target: 0.5}}
	var out strings.Builder
	l.printTransfers(&out, sides, [][]sample{
		{{rate: 1000, proxies: 40}, {rate: 500, proxies: 50}, {rate: 2000, proxies: 60}},
		{{rate: 400}, {rate: 100, servers: 130, clients: 20}, {rate: 1000, servers: 100, clients: 20}},
		{{rate: 900}, {rate: 400}, {rate: 1000, idle: 0.5, others: 0.25}},
	})
	for _, line := range []string{
		"Transfers, 16 clients, prepared statements, 4 shards, 1000 accounts, every flush 1ms longer; medians of 3 rounds of 1s",
		"one-server base 1000 1.00 1.00 – 1.00",
		"cross-shard router 400 0.40 0.20 – 0.50 ≥ 0.5: missed",
		"same-shard router 900 0.80 0.50 – 0.90 ≥ 0.5: reached",
		"one-server 50 – – 50 1.00 – 0 % 0 %", "cross-shard – 100 20 120 2.40 – 0 % 0 %",
	} {
		if !hasLine(out.String(), line) {
			t.Errorf("no line %q in\n%s", line, out.String())
		}
	}
}

func TestLongerIsOfTheSameRound(t *testing.T) {
	rows := latencyRows("none", []reading{plainly, consistently}, [][]times{
		{{1, 2, 1}, {2, 4, 1}, {3, 6, 1}},
		{{1.5, 3, 1}, {5, 9, 2}, {4, 8, 1}},
	})
	var got []string
	for _, row := range rows {
		got = append(got, strings.Join(row, " "))
	}
	if want := []string{"none plain 2.00 4.00 1.00", "none consistent 4.00 8.00 1.00 1.00 0.50 – 3.00 ≤ 2: reached"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestWritersAreComparedWithThoseBesidePlainReaders(t *testing.T) {
	l := &lab{options: options{rounds: 3}}
	var out strings.Builder
	l.printBeside(&out, side{what: "16"}, []reading{plainly, consistently}, [][]paced{
		{{rate: 110}, {rate: 220}, {rate: 330}},
		{{100, 10, 3, 1}, {200, 10, 3, 1}, {300, 10, 3, 1}},
		{{90, 10, 5, 2}, {190, 9, 4, 1.5}, {291, 10, 5, 1}},
	})
	for _, line := range []string{
		"none 220 – – – 1.10 1.10 – 1.10", "plain 200 10.0 3.00 1.00 1.00 1.00 – 1.00", "consistent 190 10.0 5.00 1.50 0.95 0.90 – 0.97 ≥ 0.95: reached",
	} {
		if !hasLine(out.String(), line) {
			t.Errorf("no line %q in\n%s", line, out.String())
		}
	}
}

// hasLine says whether the text has the line, however its words are set apart.
func hasLine(text, line string) bool {
	return slices.ContainsFunc(strings.Split(text, "\n"), func(l string) bool { return strings.Join(strings.Fields(l), " ") == line })
}

func TestParseProcessors(t *testing.T) {
	busy, idle := parseProcessors("cpu  100 20 30 400 50 6 7 8 100 20")
	if busy != 1710*time.Millisecond || idle != 4500*time.Millisecond {
		t.Errorf("busy %v, idle %v", busy, idle)
	}
	if busy, idle := parseProcessors("cpu x"); busy != 0 || idle != 0 {
		t.Errorf("nonsense was understood: %v, %v", busy, idle)
	}
}

func TestOptions(t *testing.T) {
	o, err := parseOptions([]string{"-quick", "-rounds", "7"})
	if err != nil {
		t.Fatal(err)
	}
	if o.rounds != 7 || o.length != time.Second {
		t.Errorf("-quick -rounds 7 gave %+v", o)
	}
	for _, wrong := range []string{"-clients 0", "-clients 1000", "-mode fast", "-sides", "-sides none", "-rounds 0", "-seconds 0", "-parts ,", "-shards 1", "-accounts 1", "-flush 1s"} {
		if _, err := parseOptions(append(strings.Fields(wrong), "")); err == nil {
			t.Errorf("%s was accepted", wrong)
		}
	}
}
