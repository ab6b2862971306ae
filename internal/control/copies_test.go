package control

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/internal/txn"

	"github.com/cleavedb/cleave/internal/thorough"
)

// kept is a cluster with a reference table, countries, and a sharded one that refers to it.
type kept struct {
	*process
	endpoints []string
	servers   []*localpg.Server
}

// newKept declares the tables, and returns when the leader has seen that the copies are equal.
func newKept(t *testing.T, count int, changes ...func(*Config)) *kept {
	t.Helper()
	k := &kept{servers: model.StartN(t, count), endpoints: startEtcd(t)}
	k.process = startRouter(t, k.endpoints, "router", changes...)
	clusterOf(t, k.process, k.servers)
	execute(t, k.servers[0], `CREATE TABLE countries (code text PRIMARY KEY, name text, since timestamptz); INSERT INTO countries SELECT 'c' || i, 'name', '2024-01-01Z' FROM generate_series(1, 200) AS i;
		CREATE TABLE users (id bigint PRIMARY KEY, country text REFERENCES countries ON DELETE CASCADE); INSERT INTO users SELECT i, 'c' || 1 + i % 200 FROM generate_series(1, 400) AS i`)
	if _, err := k.ReferenceTables(t.Context(), tablesNamed(t, "countries")); err != nil {
		t.Fatal(err)
	}
	shardTable(t, k.process, sharding(t, "users", "id"))
	k.noted(t)
	return k
}

// noted waits until every shard has noted that its copy was equal.
func (k *kept) noted(t *testing.T) {
	t.Helper()
	for _, server := range k.servers[1:] {
		eventually(t, "the copy is noted as equal", func() bool {
			return one[int](t, server, "SELECT count(*) FROM cleave.copies WHERE table_name = 'public.countries'") == 1
		})
	}
}

// byHand writes to one shard, past the routers.
func (k *kept) byHand(t *testing.T, number int, sql string) {
	t.Helper()
	execute(t, k.servers[number-1], "SET cleave.router = 'by hand'; "+sql)
}

// expectCopies wants all shards to have what the first has, and no user to be lost.
func (k *kept) expectCopies(t *testing.T) {
	t.Helper()
	if !k.areEqual(t) {
		t.Error("the copies are not equal")
	}
	users := 0
	for _, server := range k.servers {
		users += one[int](t, server, "SELECT count(*) FROM users JOIN countries ON code = country")
	}
	if users != 400 {
		t.Errorf("there are %d users with a country", users)
	}
}

func (k *kept) areEqual(t *testing.T) bool {
	t.Helper()
	rows := func(server *localpg.Server) string {
		return one[string](t, server, "SELECT coalesce(string_agg(c::text, ' ' ORDER BY code), '') FROM countries AS c")
	}
	home := rows(k.servers[0])
	return !slices.ContainsFunc(k.servers[1:], func(s *localpg.Server) bool { return rows(s) != home })
}

func (k *kept) check(t *testing.T, request CopiesRequest) api.CopiesChecked {
	t.Helper()
	checked, err := k.CheckCopies(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	return checked
}

// findings are those of a status that are about copies.
func (k *kept) findings() []string {
	var found []string
	for _, f := range k.Snapshot().Findings {
		if strings.HasPrefix(f.Code, "reference_copy") {
			found = append(found, fmt.Sprintf("%s %s %s", f.Severity, f.Code, f.Shard))
		}
	}
	return found
}

func (k *kept) showsCopies(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("a status shows %q", want), func() bool { return slices.Equal(k.findings(), want) })
}

// differing is what is answered about a copy of countries.
func differing(shard string, missing, extra, changed int64, repaired bool) api.CopyDifference {
	return api.CopyDifference{Table: "public.countries", Shard: shard, Missing: missing, Extra: extra, Changed: changed, Repaired: repaired}
}

func expectDifferences(t *testing.T, checked api.CopiesChecked, want ...api.CopyDifference) {
	t.Helper()
	if diff := cmp.Diff(append([]api.CopyDifference{}, want...), checked.Differences); diff != "" || len(checked.Findings) > 0 {
		t.Errorf("want (-), got (+), and findings %+v:\n%s", checked.Findings, diff)
	}
}

// TestCopiesAreCheckedByHand: what differs is told and shown by every process, until somebody has it repaired.
func TestCopiesAreCheckedByHand(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	k := newKept(t, 3)
	other := startRouter(t, k.endpoints, "other")
	checked := k.check(t, CopiesRequest{})
	expectDifferences(t, checked)
	if !slices.Equal(checked.Tables, []string{"public.countries"}) || len(k.findings()) > 0 {
		t.Errorf("checked %+v", checked)
	}
	k.byHand(t, 2, "DELETE FROM countries WHERE code = 'c999'; INSERT INTO countries VALUES ('new', NULL)")
	execute(t, k.servers[2], "SET session_replication_role = replica; DELETE FROM countries WHERE code IN ('c1', 'c2'); UPDATE countries SET since = since + '1 microsecond' WHERE code = 'c3'")
	k.byHand(t, 1, "INSERT INTO countries VALUES ('home', 'only')")
	expectDifferences(t, k.check(t, CopiesRequest{Tables: tablesNamed(t, "countries").Tables}), differing("s2", 1, 1, 0, false), differing("s3", 3, 0, 1, false))
	k.showsCopies(t, "problem reference_copy_differs s2", "problem reference_copy_differs s3")
	eventually(t, "the other process shows it too", func() bool { return len((&kept{process: other}).findings()) == 2 })
	expectDifferences(t, k.check(t, CopiesRequest{Repair: true}), differing("s2", 1, 1, 0, true), differing("s3", 3, 0, 1, true))
	k.expectCopies(t)
	k.showsCopies(t)
	expectDifferences(t, k.check(t, CopiesRequest{Repair: true}))
	eventually(t, "the tables are released", isReleased(t, k.process))

	execute(t, k.servers[0], "CREATE ROLE somebody; CREATE TABLE plain ()")
	_, err := k.CheckCopies(t.Context(), CopiesRequest{Role: "somebody"})
	refusal(t, pgerr.InsufficientPrivilege, err, "a stranger")
	k.check(t, CopiesRequest{Role: "postgres"})
	for _, name := range []string{"users", "plain", "nowhere"} {
		_, err = k.CheckCopies(t.Context(), CopiesRequest{Tables: tablesNamed(t, name).Tables})
		refusal(t, pgerr.ObjectNotInPrerequisite, err, name)
	}
	if err := k.servers[2].Crash(); err != nil {
		t.Fatal(err)
	}
	k.byHand(t, 2, "DELETE FROM countries WHERE code = 'new'; INSERT INTO countries VALUES ('new', NULL)")
	checked = k.check(t, CopiesRequest{})
	if len(checked.Findings) != 1 || checked.Findings[0].Code != "reference_copy_unchecked" || checked.Findings[0].Shard != "s3" || len(checked.Differences) != 1 {
		t.Errorf("while a shard is away: %+v", checked)
	}
	if err := k.servers[0].Crash(); err != nil {
		t.Fatal(err)
	}
	_, err = k.CheckCopies(t.Context(), CopiesRequest{})
	refusal(t, pgerr.ConnectionFailure, err, "without the home shard")
}

// TestTheLeaderRepairsCopies by itself, sooner if a shard was away.
func TestTheLeaderRepairsCopies(t *testing.T) {
	t.Parallel()
	var log logged
	k := newKept(t, 2, func(c *Config) {
		c.CompareInterval, c.Logger = 50*time.Millisecond, slog.New(slog.NewTextHandler(&log, nil))
	})
	for _, sql := range []string{
		"INSERT INTO countries VALUES ('x')", "UPDATE countries SET name = NULL WHERE code = 'c7'", "SET session_replication_role = replica; TRUNCATE countries CASCADE",
	} {
		if strings.Contains(sql, "TRUNCATE") {
			execute(t, k.servers[0], "SET session_replication_role = replica; DELETE FROM users")
		}
		k.byHand(t, 2, sql)
		eventually(t, "the copies are equal after "+sql, func() bool { return k.areEqual(t) })
		k.showsCopies(t)
	}
	if said := "level=WARN msg=\"a copy of a reference table had other rows than the home shard, and is repaired\" table=public.countries shard=s2 missing=0 extra=1 changed=0"; !strings.Contains(log.String(), said) {
		t.Errorf("the log says\n%s", log.String())
	}
}

// logged is what a process has written to its log.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements [io.Writer].
func (l *logged) Write(part []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(part)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestATableThatNobodyWrites is not read again and again, but now and then.
func TestATableThatNobodyWrites(t *testing.T) {
	t.Parallel()
	k := newKept(t, 2)
	set, err := k.openCopies(t.Context(), k.follower.Map(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer set.close()
	one := &knownCopy{}
	wasRead := func(what string, want bool) {
		t.Helper()
		look, err := k.compareOne(t.Context(), set, one, named(t, "countries"))
		if got := len(look.results)+len(look.suspects) > 0; err != nil || got != want {
			t.Errorf("%s it is read: %v, %v", what, got, err)
		}
	}
	wasRead("at first", true)
	wasRead("when nobody has written", false)
	for number := range k.servers {
		before := set.written(t.Context(), named(t, "countries"))
		k.byHand(t, number+1, "UPDATE countries SET name = 'y' WHERE code = 'c1'")
		eventually(t, "the write is counted", func() bool { return set.written(t.Context(), named(t, "countries")) != before })
		wasRead("when shard "+strconv.Itoa(number+1)+" was written to", true)
	}
	wasRead("when nobody has written since", false)
	one.read = one.read.Add(-compareAnyway * 10 * time.Minute)
	wasRead("after a long time", true)
}

// TestACopyIsComparedWhenItsShardIsBack, long before its time.
func TestACopyIsComparedWhenItsShardIsBack(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	k := newKept(t, 2, func(c *Config) { c.CompareInterval = time.Minute })
	k.byHand(t, 2, "UPDATE countries SET name = 'other' WHERE code = 'c7'")
	if err := k.servers[1].Crash(); err != nil {
		t.Fatal(err)
	}
	if err := k.servers[1].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the copies are equal", func() bool { return k.areEqual(t) })
	k.expectCopies(t)
}

// TestACopyThatFailedOver to a standby that lacked a write gets it again.
func TestACopyThatFailedOver(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	k := newKept(t, 2, func(c *Config) { c.CompareInterval = time.Minute })
	replica := pgtest.StartReplica(t, k.servers[1])
	eventually(t, "the replica has the rows", func() bool { return one[int](t, replica, "SELECT count(*) FROM countries") == 200 })
	execute(t, replica, "ALTER SYSTEM SET primary_slot_name = 'nowhere'")
	execute(t, replica, "SELECT pg_reload_conf()")
	eventually(t, "the replica is cut off", func() bool { return one[int](t, replica, "SELECT count(*) FROM pg_stat_wal_receiver") == 0 })
	for number := range k.servers {
		k.byHand(t, number+1, "INSERT INTO countries VALUES ('late')")
	}
	if err := k.servers[1].Crash(); err != nil {
		t.Fatal(err)
	}
	if err := replica.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := k.change(t.Context(), func(*topology.Map) ([]topology.Change, error) {
		return []topology.Change{topology.UpdateShard("s2", func(s *topology.ShardSpec) { s.Primary.Address = replica.Addr() })}, nil
	}); err != nil {
		t.Fatal(err)
	}
	k.servers[1] = replica
	eventually(t, "the copies are equal", func() bool { return k.areEqual(t) })
	if !slices.Contains(content(t, k.servers[1:], "countries"), "(late,,)") {
		t.Error("the write is lost")
	}
	k.expectCopies(t)
}

// TestAHomeShardThatMayBeWrong takes nothing from its copies, unless a person says so.
func TestAHomeShardThatMayBeWrong(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	k := newKept(t, 2, func(c *Config) { c.CompareInterval = 50 * time.Millisecond })
	rows := func() int { return one[int](t, k.servers[1], "SELECT count(*) FROM countries WHERE code = 'x'") }
	// The note goes with the difference, so that the leader does not find the copies equal in between.
	expectDoubt := func(note, says string) {
		t.Helper()
		k.byHand(t, 2, "BEGIN; INSERT INTO countries VALUES ('x'); "+note+"; COMMIT")
		k.showsCopies(t, "problem reference_copy_differs s2")
		checked := k.check(t, CopiesRequest{Repair: true})
		if len(checked.Differences) != 1 || checked.Differences[0].Repaired || !strings.Contains(checked.Differences[0].Reason, says) {
			t.Errorf("repaired %+v", checked)
		}
		time.Sleep(300 * time.Millisecond) // in which the leader has looked several times
		if rows() != 1 {
			t.Error("a row was taken from a copy that may be right")
		}
	}
	// It knows nothing of a transaction that it decided; a clean-up has not marked it yet, or has.
	gid := txn.NewName(k.follower.Map().Cluster(), 1, 1, 1, 1, "router").String()
	expectDoubt(fmt.Sprintf("INSERT INTO cleave.commits (gid, decides, participants) VALUES ('%s', false, '{1,2}')", gid), "lost transactions over several shards (1)")
	k.byHand(t, 2, "DELETE FROM countries WHERE code = 'x'")
	expectDoubt(fmt.Sprintf("UPDATE cleave.commits SET lost = '{1}' WHERE gid = '%s'", gid), "lost transactions over several shards (1)")
	if _, err := k.ResolveTransaction(t.Context(), gid, txn.ByForget); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is repaired when the transaction is forgotten", func() bool { return rows() == 0 })
	k.showsCopies(t)
	// It is another server than the one that the copies were equal to.
	expectDoubt("UPDATE cleave.copies SET home = 'another/1/'", "promoted or restored")
	expectDifferences(t, k.check(t, CopiesRequest{Repair: true, Force: true}), differing("s2", 0, 1, 0, true))
	k.expectCopies(t)
	k.showsCopies(t)
}

// TestCopiesInDoubt: a part that is prepared is no difference, and nothing is repaired while it is.
func TestCopiesInDoubt(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	k := newKept(t, 2)
	k.byHand(t, 1, "INSERT INTO countries VALUES ('x')")
	execute(t, k.servers[1], "SET cleave.router = 'by hand'; BEGIN; INSERT INTO countries VALUES ('x'); PREPARE TRANSACTION 'somebody''s'")
	checked := k.check(t, CopiesRequest{Repair: true})
	if len(checked.Differences) > 0 || len(checked.Findings) != 1 || !strings.Contains(checked.Findings[0].Message, "in use") {
		t.Errorf("checked %+v", checked)
	}
	k.showsCopies(t, "warning reference_copy_unchecked s2")
	execute(t, k.servers[1], "COMMIT PREPARED 'somebody''s'")
	expectDifferences(t, k.check(t, CopiesRequest{Repair: true}))
	k.showsCopies(t)
	k.expectCopies(t)
}

// TestARepairThatIsRefused says why, and the copy stays as it was; other tables are repaired.
func TestARepairThatIsRefused(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	k := newKept(t, 2)
	execute(t, k.servers[0], "CREATE TABLE more (id int PRIMARY KEY); INSERT INTO more VALUES (1)")
	if _, err := k.ReferenceTables(t.Context(), tablesNamed(t, "more")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the copy is noted as equal", func() bool { return one[int](t, k.servers[1], "SELECT count(*) FROM cleave.copies") == 2 })
	k.byHand(t, 2, "INSERT INTO countries VALUES ('x'); DELETE FROM more; UPDATE users SET country = 'x' WHERE id = (SELECT min(id) FROM users)")
	checked := k.check(t, CopiesRequest{Repair: true})
	if len(checked.Differences) != 2 || checked.Differences[0].Repaired || !checked.Differences[1].Repaired || !strings.Contains(checked.Differences[0].Reason, "users_country_fkey") {
		t.Errorf("repaired %+v", checked)
	}
	k.showsCopies(t, "problem reference_copy_differs s2")
	if n := one[int](t, k.servers[1], "SELECT (SELECT count(*) FROM countries WHERE code = 'x') + (SELECT count(*) FROM more)"); n != 2 {
		t.Error("the wrong table was repaired")
	}
	k.byHand(t, 1, "INSERT INTO countries VALUES ('x')")
	expectDifferences(t, k.check(t, CopiesRequest{}))
	k.expectCopies(t)
	// A constraint that the home shard does not have.
	execute(t, k.servers[1], "ALTER TABLE countries ADD CONSTRAINT short CHECK (length(name) < 9) NOT VALID")
	k.byHand(t, 1, "INSERT INTO countries VALUES ('z', 'longer than nine')")
	if checked = k.check(t, CopiesRequest{Repair: true}); len(checked.Differences) != 1 || checked.Differences[0].Repaired || !strings.Contains(checked.Differences[0].Reason, "short") {
		t.Errorf("repaired %+v", checked)
	}
}

// TestCrashesOfARepair: whoever dies when, each copy is as it was or repaired, and the next one does the rest: lines P1 to P6 of DESIGN.md.
func TestCrashesOfARepair(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	k := newKept(t, 3, func(c *Config) { c.CompareInterval = time.Hour })
	for last, step := range settleSteps {
		t.Run(step.name, func(t *testing.T) {
			for number := 2; number <= 3; number++ {
				execute(t, k.servers[number-1], "SET session_replication_role = replica; DELETE FROM countries WHERE code IN ('c1', 'c2'); INSERT INTO countries VALUES ('x')")
			}
			dying := startRouter(t, k.endpoints, fmt.Sprintf("dying%v", last))
			var s *settling
			eventually(t, "it has come as far as to "+step.name, func() bool { // the leader may be looking at the tables, for the one that died before
				s = dying.newSettling([]tableLook{{table: named(t, "countries"), suspects: []string{"s2", "s3"}}}, settleHow{repair: true})
				for _, step := range settleSteps[:last+1] {
					if err := step.run(s, t.Context()); err != nil {
						t.Logf("%s: %v", step.name, err)
						s.close()
						return false
					}
				}
				return true
			})
			s.close()
			dying.stop()
			eventually(t, "the tables are released", isReleased(t, k.process))
			if repaired := step.name == "commit" || step.name == "note it"; repaired && !k.areEqual(t) {
				t.Error("it is not repaired")
			}
			eventually(t, "the next one does the rest", func() bool {
				_, err := k.CheckCopies(t.Context(), CopiesRequest{Repair: true})
				return err == nil && k.areEqual(t)
			})
			k.expectCopies(t)
			k.showsCopies(t)
		})
	}
}

// TestAHolderWhoseConnectionsLive when the leader takes its hold over can do nothing more with them.
func TestAHolderWhoseConnectionsLive(t *testing.T) {
	t.Parallel()
	k := newKept(t, 2, func(c *Config) { c.CompareInterval = time.Hour })
	k.byHand(t, 2, "INSERT INTO countries VALUES ('x')")
	dying := startRouter(t, k.endpoints, "dying")
	s := dying.newSettling([]tableLook{{table: named(t, "countries"), suspects: []string{"s2"}}}, settleHow{repair: true})
	defer s.close()
	for _, step := range settleSteps {
		if step.name == "commit" {
			break
		}
		if err := step.run(s, t.Context()); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
	}
	dying.stop()
	eventually(t, "the tables are released", isReleased(t, k.process))
	if err := s.others[0].tx.Commit(t.Context()); err == nil || k.areEqual(t) {
		t.Errorf("it could commit: %v", err)
	}
}
