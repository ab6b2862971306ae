// Package differential_test runs the same statements on one plain PostgreSQL and through the router, and wants the same
// answers: rows byte for byte, the names and types of columns, command tags, SQLSTATEs and positions of errors, notices,
// parameters, and the transaction's state, in the same order of messages; or else a refusal (0A000) that is written down.
// The router may have other words for an error, and may find it earlier, at Parse instead of Execute.
//
// The statements are in testdata, a topic per file. A file is run three times, in a schema of its own each time: over the
// simple protocol, over the extended one with text, and with binary values. Blocks are separated by empty lines. Lines that
// begin with -- at the top of a block are prose, which begins with a capital letter, or directives:
//
//	-- session: b          from here on in this session, which is opened if need be; the first is main
//	-- end                 the session ends
//	-- protocol: simple    in every pass; also extended, and pipeline: a line is a statement, a line "-- sync" a Sync
//	-- param: int8 5       a parameter; "? 5" leaves its type open, "int8" alone is NULL
//	-- parse: s            the statement is prepared under this name and described
//	-- bind: s             the prepared statement is run
//	-- close: s            and closed
//	-- rows: 2             rows are fetched from the portal two at a time
//	-- data: 1,one         a line for COPY FROM STDIN; "-- nodata" for none, "-- copyfail: why" cuts it short
//	-- late                the router may find an error when the statement runs, instead of when it is parsed
//	-- elsewhere           or at another place of the text
//	-- from: copy …        COPY FROM STDIN gets the data that this statement gives on the plain server
//	-- wait                for a notification
//	-- empty               a statement without any text
//	-- unordered           rows may come in any order
//	-- router              a statement that the router alone gets, and that must succeed
//	-- expect: refused: w  the router must refuse it, with the words w in its message or detail, and the plain server does not get
//	                       it; "refused simple" and "refused extended" say that of one protocol alone
//	-- expect: different: w  the answers must differ, for this reason
//	-- expect: answer      the router must answer it where a server fails; the plain server does not get it
//
// The statements in testdata/shapes have places for a key, and are run with every kind of key: shapes_test.go has the places,
// keytypes_test.go the kinds of keys. They come one file after the other on the same tables, for each kind in one of
// the passes: over the simple protocol, with binary values or with text. Rows are compared as a set unless the statement ends in an ORDER BY. More directives:
//
//	-- each: sample        a step for each key of the kind, which is x; or for each spelling, whose key is stored in another form
//	-- key: a              a parameter for each column of the key a; "? a" leaves its type open, "array a c" is an array of keys
//	-- only: single        only for keys of one column; or composite, hash, range, or a kind's name or type; "-- not" for all others
//	-- ordered             rows come in order although there is no ORDER BY, as those of an INSERT do
//	-- fails: 23505        PostgreSQL answers with this SQLSTATE; it must succeed without that
//
// The statements in testdata/ground go over the ground of PostgreSQL's own regression tests, on sharded tables, with the extended protocol and
// text. They are held to more: the words of errors count, what fails says so with "-- fails", rows come in order where the statement ends in an ORDER BY, and
// what is refused must be something that a plain server answers. ground_test.go writes docs/regression-ground.md from them.
//
// Every script has one of the passes, one after the other, and the shapes have kinds of keys that differ much from each other. Two plain servers are
// compared too, which proves the scripts and not the router; they have a sample of the kinds. 'make thorough' gives everybody everything in all passes.
//
// Other statements are made up, with schemas and rows for them: generate_test.go has the tests and their flags. A refusal is no failure
// there, only counted.
//
// {schema} stands for the pass's schema. A refusal that is not written down fails the test, and so does one that is
// written down and works. Start reading at compare_test.go.
package differential_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// role and database are those of 'cleave dev', so that what a session says of itself is the same.
const role, database = "cleave", "cleave"

// plainServers starts servers and returns their connection strings.
func plainServers(t *testing.T, count int) []string {
	t.Helper()
	configs := make([]localpg.Config, count)
	for i := range configs {
		configs[i].Superuser, configs[i].Whole = role, true
	}
	var dsns []string
	for _, server := range pgtest.StartWith(t, configs...) {
		c, err := dial(t.Context(), server.DSN("postgres"), "public")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.simple("CREATE DATABASE " + database); err != nil {
			t.Fatal(err)
		}
		c.close()
		dsns = append(dsns, server.DSN(database))
	}
	return dsns
}

// runAll runs every script in every pass, every shape with every kind of key, and the ground, side by side: each part has servers of its own.
func runAll(t *testing.T, start func(*testing.T) pair) {
	t.Helper()
	for name, run := range map[string]func(pair, *testing.T, *count){"scripts": pair.runScripts, "shapes": pair.runShapes, "ground": pair.runGround} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var total count
			run(start(t), t, &total)
			t.Logf("%d statements with equal answers, %d refused as written down", total.equal, total.refused)
		})
	}
}

// runScripts runs the scripts; those that declare tables come last, since they change what is allowed.
func (p pair) runScripts(t *testing.T, total *count) {
	scripts, err := readScripts("testdata/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(scripts, func(a, b script) int {
		switch {
		case a.declares() == b.declares():
			return 0
		case a.declares():
			return 1
		default:
			return -1
		}
	})
	for i, s := range scripts {
		for j, how := range passes {
			if i%len(passes) != j && !thorough.Asked() {
				continue
			}
			t.Run(s.name+"/"+string(how), func(t *testing.T) {
				problems, counted := p.run(t.Context(), s, how)
				report(t, problems)
				total.add(counted)
			})
		}
	}
}

// runShapes gives every kind of key its tables, and runs all shapes on them in every pass.
func (p pair) runShapes(t *testing.T, total *count) {
	shapes, err := readScripts("testdata/shapes/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range keyTypes() {
		if p.sample && i%sampledKinds > 0 || k.akin && !p.sample && !thorough.Asked() {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			schema := "s_" + k.name
			c, err := p.declare(t.Context(), schema, k)
			if err != nil {
				t.Fatal(err)
			}
			// Kinds have one of the passes each, one after the other or that in which they define things.
			once := cmp.Or(k.defines, onceIn[i%len(onceIn)])
			for _, how := range passes {
				if how != once && !thorough.Asked() {
					continue
				}
				if p.sample && how != cmp.Or(k.defines, binaryPass) {
					continue
				}
				t.Run(string(how), func(t *testing.T) { p.runCast(t, schema, c, shapes, how, once, total) })
			}
		})
	}
}

// onceIn are the passes in which kinds of keys, one after the other, have the shapes that take long and depend more on the kind of key than
// on the protocol: transactions, and COPY, whose data are the same in every pass. The first of three kinds is the one that has the pass with texts.
var onceIn = []pass{textPass, simplePass, binaryPass}

// runCast runs all shapes one after the other, each on what the one before has left; those that take long in one pass alone.
func (p pair) runCast(t *testing.T, schema string, c *cast, shapes []script, how, once pass, total *count) {
	for _, shape := range shapes {
		_, topic, _ := strings.Cut(shape.name, "_")
		switch topic {
		case "definitions":
			if how != c.defines {
				continue
			}
		case "transactions", "copy":
			if how != once && !p.sample {
				continue
			}
		}
		s, err := c.script(shape)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(s.name, func(t *testing.T) {
			problems, counted := p.runIn(t.Context(), schema, s, how)
			report(t, problems)
			total.add(counted)
		})
	}
}

func report(t *testing.T, problems []string) {
	t.Helper()
	for _, problem := range problems {
		t.Error(problem)
	}
}

// sampledKinds: a sample has every fifth kind of key. Those are by hash, by range and of several columns, and each kind of pass is
// among those in which they define things.
const sampledKinds = 5

// TestTwoPlainServersAgree proves the scripts: nothing in them may be different by itself.
func TestTwoPlainServersAgree(t *testing.T) {
	thorough.Only(t)
	skipShort(t)
	t.Parallel()
	runAll(t, func(t *testing.T) pair {
		servers := plainServers(t, 2)
		return pair{plain: servers[0], router: servers[1], sample: !thorough.Asked()}
	})
}

func TestTheRouterAgreesWithPostgreSQL(t *testing.T) {
	skipShort(t)
	t.Parallel()
	runAll(t, func(t *testing.T) pair {
		data := filepath.Join(cluster.Folder(t), "cluster")
		dev := cluster.Start(t, "--data", data, "--shards", "3")
		t.Cleanup(func() { dev.Interrupt(t) })
		router := fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", role, dev.Listen, database)
		return pair{plain: plainServers(t, 1)[0], router: router, isRouter: true, api: dev.API}
	})
}

func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it runs thousands of statements")
	}
}
