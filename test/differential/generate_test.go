package differential_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/cluster"
)

// What is made up, and for how long. A failure says with which flags it comes again.
var (
	seedFlag     = flag.Uint64("seed", 1, "the `number` that all schemas, rows and statements that are made up follow from")
	generateFlag = flag.Duration("generate", 10*time.Second, "how `long` statements are made up, on all clusters together")
	shardsFlag   = flag.String("shards", "4,2", "`numbers` of shards of the clusters that they are run on")
	onlyFlag     = flag.String("only", "", "the one schema and statement to run, as `schema/statement`; -1 for all of the schema's")
	keepFlag     = flag.Bool("keep", false, "write what fails, made small, to testdata/found")
)

// TestTheRouterAgreesOnStatementsMadeUp runs the statements that once had other answers, and then makes up schemas, rows and statements: the router's answers
// must be those of a plain server, or refusals, which are counted.
func TestTheRouterAgreesOnStatementsMadeUp(t *testing.T) {
	skipShort(t)
	plain := plainServers(t, 1)[0]
	counts := strings.Split(*shardsFlag, ",")
	t.Logf("-seed %d", *seedFlag)
	for i, count := range counts {
		t.Run(count+" shards", func(t *testing.T) {
			if i > 0 {
				thorough.Only(t)
			}
			data := filepath.Join(cluster.Folder(t), "cluster")
			dev := cluster.Start(t, "--data", data, "--shards", count)
			defer dev.Interrupt(t)
			router := fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", role, dev.Listen, database)
			p := pair{plain: plain, router: router, isRouter: true, api: dev.API}
			t.Run("found", func(t *testing.T) { p.runFound(t, "f"+count) })
			t.Run("made up", func(t *testing.T) {
				r := newGenerated(p, "g"+count)
				r.first = i * worldsOfCluster
				r.run(t, *generateFlag/time.Duration(len(counts)))
				r.report(t)
			})
		})
	}
}

// TestStatementsMadeUpHaveOneAnswer proves the generator: a server that has the rows in another order and plans otherwise must give
// the same answers, and most statements must make sense.
func TestStatementsMadeUpHaveOneAnswer(t *testing.T) {
	thorough.Only(t)
	skipShort(t)
	servers := plainServers(t, 2)
	r := newGenerated(pair{plain: servers[0], router: servers[1]}, "g0")
	r.run(t, *generateFlag/10)
	r.report(t)
	if wrong := r.tried - r.codes[""]; wrong*10 > r.tried {
		t.Errorf("%d of %d statements make no sense", wrong, r.tried)
	}
}

// TestWhatIsMadeUpCanFail: where a server has other rows, that is noticed, and made small.
func TestWhatIsMadeUpCanFail(t *testing.T) {
	skipShort(t)
	servers := plainServers(t, 2)
	r := newGenerated(pair{plain: servers[0], router: servers[1]}, "g0")
	if err := r.enter(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	defer r.twins.close()
	if err := r.twins.router.simple("create function lose() returns trigger language plpgsql as 'begin if new.id = 2 then return null; end if; return new; end'"); err != nil {
		t.Fatal(err)
	}
	for _, table := range r.world.tables {
		for _, statement := range []string{"create trigger lose before insert on " + table.name + " for each row execute function lose()", "delete from " + table.name + " where id = 2"} {
			if err := r.twins.router.simple(statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range statementsInWorld {
		st := r.makeUp(0, i)
		if len(st.text()) < 400 || r.compare(st) != otherRows {
			continue
		}
		long := st.text()
		r.shrink(t.Context(), st, otherRows)
		if short := st.text(); len(short) > 150 || r.compare(st) != otherRows {
			t.Errorf("this was made small:\n%s\nand this is left of it:\n%s", long, short)
		}
		return
	}
	t.Error("no statement has other rows")
}
