package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cleavedb/cleave/internal/topology"
)

// manyRanges makes a map whose pieces take several small transactions to write, and several more to delete.
const manyRanges = 8000

// smallTransactions makes a change large that would otherwise fit into one transaction.
func smallTransactions(c *Config) { c.limits = limits{ops: 6, bytes: 150_000} }

// largeMap is made once: it takes a while, and maps are immutable.
var largeMap = sync.OnceValues(func() (*topology.Map, error) {
	m, err := topology.New(testCluster)
	if err != nil {
		return nil, err
	}
	return m.Next(addShard("one"), addShard("two"), addKeyspace("k", manyRanges))
})

func large(t testing.TB) *topology.Map {
	t.Helper()
	m, err := largeMap()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestCrashTable has a case for every line of the table in DESIGN.md, under the same number.
func TestCrashTable(t *testing.T) {
	t.Parallel()
	etcd := startMember(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T, *member)
	}{
		{"01 small change, before the transaction", crashBeforeSmall},
		{"02 small change, after the transaction", crashAfterSmall},
		{"03 large change, between batches", crashBetweenBatches},
		{"04 large change, before the head", crashBeforeHead},
		{"05 large change, after the head", crashAfterHead},
		{"06 large change, within the sweep", crashWithinSweep},
		{"07 first map, before the head", crashFirstMap},
		{"08 clean-up, between batches", crashWithinGarbage},
		{"09 two writers make the same piece", samePieceTwice},
		{"10 clean-up deletes what a writer wrote ahead", garbageAgainstWriter},
		{"11 a writer comes between two batches of clean-up", writerAgainstGarbage},
		{"12 applied, the answer lost", lostAnswer},
		{"13 applied, the answer lost, others went on", lostAnswerOthersWentOn},
		{"14 not applied, others went on", lostRequestOthersWentOn},
		{"15 the answer lost, etcd stays away", lostAnswerEtcdAway},
		{"16 the answer lost, too many others went on", lostAnswerTooManyWentOn},
		{"17 a swap while a map is read", swapDuringRead},
		{"18 compaction while a map is read", compactionDuringRead},
		{"19 etcd is put back to an earlier state", etcdWentBack},
		{"20 the answer to a job's write lost", lostJobAnswer},
		{"21 the answer to a candidate's key lost", lostCandidateAnswer},
		{"22 etcd is put back, and others go on from there", etcdForked},
		{"23 another cluster takes the place", anotherCluster},
		{"24 an error that is no answer", errorForAnswer},
		{"25 a watch falls silent", silentWatch},
		{"26 a large plan, between its parts", crashBetweenParts},
		{"27 two keep the same plan", samePlanTwice},
		{"28 a plan becomes jobs, between batches", crashBetweenJobs},
		{"29 the answer to a plan's write lost", lostPlanAnswer},
		{"30 a job of a plan has the name of another", takenJobName},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, etcd) })
	}
}

// wired returns a store with a wire whose writes meet their fate from now on.
func wired(t *testing.T, etcd *member, decide func(int, *pb.TxnRequest) fate) (*Store, *wire) {
	w := &wire{decide: decide}
	return openStore(t, etcd.endpoints(), smallTransactions, w.use), w
}

// createMap stores a first map with an undisturbed store.
func createMap(t *testing.T, etcd *member, m *topology.Map) *Store {
	t.Helper()
	s := openStore(t, etcd.endpoints(), smallTransactions)
	if err := s.Create(testContext(t), m); err != nil {
		t.Fatal(err)
	}
	return s
}

// mustBeCurrent checks that the map is stored, whole.
func mustBeCurrent(t *testing.T, etcd *member, want *topology.Map) {
	t.Helper()
	if got := readCold(t, etcd); !equalMaps(got, want) {
		t.Fatalf("version %d is current, want %d", got.Version(), want.Version())
	}
}

// mustLeave checks how many pieces are stored that the map does not use, that clean-up deletes just those, and that the
// map then still is whole.
func mustLeave(t *testing.T, etcd *member, current *topology.Map, some bool) {
	t.Helper()
	s := openStore(t, etcd.endpoints(), smallTransactions)
	used := pieceIDs(current)
	leftOver := 0
	for name := range storedPieces(t, s) {
		if !used[topology.PieceID(name)] {
			leftOver++
		}
	}
	if (leftOver > 0) != some {
		t.Fatalf("%d pieces are left over", leftOver)
	}
	deleted, err := s.CollectGarbage(testContext(t))
	if err != nil || deleted != leftOver {
		t.Fatalf("clean-up deleted %d of %d pieces: %v", deleted, leftOver, err)
	}
	if n := len(storedPieces(t, s)); n != len(used) {
		t.Fatalf("after clean-up %d pieces are stored, the map has %d", n, len(used))
	}
	mustBeCurrent(t, etcd, current)
}

// dies swaps with a writer that dies at the given write.
func dies(t *testing.T, etcd *member, base, changed *topology.Map, write int, how fate) {
	t.Helper()
	s, _ := wired(t, etcd, onWrite(write, how))
	if err := s.Swap(testContext(t), base, changed); err == nil {
		t.Fatal("the writer lives")
	}
}

// countWrites returns how many transactions a swap takes.
func countWrites(t *testing.T, etcd *member, base, changed *topology.Map) int {
	t.Helper()
	s, w := wired(t, etcd, nil)
	if err := s.Swap(testContext(t), base, changed); err != nil {
		t.Fatal(err)
	}
	return w.writes
}

func crashBeforeSmall(t *testing.T, etcd *member) {
	m := newMap(t, 4)
	createMap(t, etcd, m)
	dies(t, etcd, m, next(t, m, addShard("three")), 0, dieBefore)
	mustBeCurrent(t, etcd, m)
	mustLeave(t, etcd, m, false)
}

func crashAfterSmall(t *testing.T, etcd *member) {
	m := newMap(t, 4)
	createMap(t, etcd, m)
	changed := next(t, m, addShard("three"))
	dies(t, etcd, m, changed, 0, dieAfter)
	mustBeCurrent(t, etcd, changed)
	mustLeave(t, etcd, changed, false)
}

// smallAndLarge returns a stored small map and a large one to follow it.
func smallAndLarge(t *testing.T, etcd *member) (small, bigger *topology.Map) {
	t.Helper()
	small = newMap(t, 4)
	createMap(t, etcd, small)
	return small, next(t, large(t), topology.RaiseVersion(small.Version()+1))
}

func crashBetweenBatches(t *testing.T, etcd *member) {
	small, bigger := smallAndLarge(t, etcd)
	dies(t, etcd, small, bigger, 1, dieBefore)
	mustBeCurrent(t, etcd, small)
	mustLeave(t, etcd, small, true)
	if n := countWrites(t, etcd, small, bigger); n < 4 {
		t.Errorf("the large change took only %d transactions", n)
	}
	mustBeCurrent(t, etcd, bigger)
}

func crashBeforeHead(t *testing.T, etcd *member) {
	small, bigger := smallAndLarge(t, etcd)
	var s *Store
	s, _ = wired(t, etcd, func(_ int, txn *pb.TxnRequest) fate {
		if writesHead(s, txn) {
			return dieBefore
		}
		return arrive
	})
	if err := s.Swap(testContext(t), small, bigger); err == nil {
		t.Fatal("the writer lives")
	}
	mustBeCurrent(t, etcd, small)
	// Another writer with the same change goes on over the left-overs, and leaves none.
	countWrites(t, etcd, small, bigger)
	mustBeCurrent(t, etcd, bigger)
	mustLeave(t, etcd, bigger, false)
}

// crashAfterHead and the next replace a large map, so that there is much to sweep.
func crashAfterHead(t *testing.T, etcd *member) {
	m := large(t)
	createMap(t, etcd, m)
	small := next(t, newMap(t, 4), topology.RaiseVersion(m.Version()+1))
	s, _ := wired(t, etcd, onWrite(1, dieBefore))
	if err := s.Swap(testContext(t), m, small); err != nil {
		t.Fatalf("the map was published, only its predecessor not swept: %v", err)
	}
	mustBeCurrent(t, etcd, small)
	mustLeave(t, etcd, small, true)
}

func crashWithinSweep(t *testing.T, etcd *member) {
	m := large(t)
	createMap(t, etcd, m)
	small := next(t, newMap(t, 4), topology.RaiseVersion(m.Version()+1))
	s, w := wired(t, etcd, onWrite(2, dieBefore))
	if err := s.Swap(testContext(t), m, small); err != nil {
		t.Fatal(err)
	}
	if w.writes < 3 {
		t.Fatalf("the sweep took only %d transactions", w.writes-1)
	}
	mustBeCurrent(t, etcd, small)
	mustLeave(t, etcd, small, true)
}

func crashFirstMap(t *testing.T, etcd *member) {
	m := large(t)
	s, _ := wired(t, etcd, onWrite(2, dieBefore))
	if err := s.Create(testContext(t), m); err == nil {
		t.Fatal("the writer lives")
	}
	other := openStore(t, etcd.endpoints(), smallTransactions)
	if _, err := other.Map(testContext(t)); !errors.Is(err, ErrNoMap) {
		t.Fatal(err)
	}
	before := len(storedPieces(t, other))
	if deleted, err := other.CollectGarbage(testContext(t)); err != nil || deleted != 0 || before == 0 {
		t.Fatalf("clean-up without a map deleted %d of %d pieces: %v", deleted, before, err)
	}
	small := newMap(t, 4)
	if err := other.Create(testContext(t), small); err != nil {
		t.Fatal(err)
	}
	mustBeCurrent(t, etcd, small)
	mustLeave(t, etcd, small, true)
}

// litter stores pieces that no map uses.
func litter(t *testing.T, s *Store, n int) {
	t.Helper()
	client := rawClient(t, s.config.Endpoints)
	for i := range n {
		if _, err := client.Put(testContext(t), s.pieceKey(topology.PieceID(fmt.Sprintf("left-over-%03d", i))), "x"); err != nil {
			t.Fatal(err)
		}
	}
}

func crashWithinGarbage(t *testing.T, etcd *member) {
	m := newMap(t, 4)
	litter(t, createMap(t, etcd, m), 25)
	s, _ := wired(t, etcd, onWrite(1, dieBefore))
	if deleted, err := s.CollectGarbage(testContext(t)); err == nil || deleted == 0 || deleted >= 25 {
		t.Fatalf("clean-up that died deleted %d: %v", deleted, err)
	}
	mustBeCurrent(t, etcd, m)
	mustLeave(t, etcd, m, true)
}

// samePieceTwice: a slow writer has written pieces ahead; a fast one publishes the same, and then a map without them, which
// deletes them. The slow one must not make a head that names them without writing them again.
func samePieceTwice(t *testing.T, etcd *member) {
	small, bigger := smallAndLarge(t, etcd)
	fast := openStore(t, etcd.endpoints(), smallTransactions)
	armed := true
	var slow *Store
	slow, _ = wired(t, etcd, func(_ int, txn *pb.TxnRequest) fate {
		if !armed || !writesHead(slow, txn) {
			return arrive
		}
		armed = false
		for _, change := range []topology.Change{asLarge(), withoutRanges()} {
			if _, err := fast.Update(testContext(t), func(m *topology.Map) (*topology.Map, error) { return m.Next(change) }); err != nil {
				t.Error(err)
			}
		}
		return arrive
	})
	var conflict *ConflictError
	if err := slow.Swap(testContext(t), small, bigger); !errors.As(err, &conflict) || conflict.Current != small.Version()+2 || armed {
		t.Fatalf("the overtaken writer: %v", err)
	}
	armed = true
	m, err := slow.Update(testContext(t), func(m *topology.Map) (*topology.Map, error) { return m.Next(asLarge()) })
	if err != nil || m.Version() != small.Version()+5 || armed {
		t.Fatalf("the writer that starts over: %v", err)
	}
	mustBeCurrent(t, etcd, m)
	mustLeave(t, etcd, m, false)
}

// asLarge gives the keyspace the ranges of the large map.
func asLarge() topology.Change {
	return topology.ReplaceRanges("k", rangesOf(manyRanges), topology.Assignment{})
}

func withoutRanges() topology.Change {
	return topology.ReplaceRanges("k", rangesOf(4), topology.Assignment{})
}

func garbageAgainstWriter(t *testing.T, etcd *member) {
	small, bigger := smallAndLarge(t, etcd)
	cleaner := openStore(t, etcd.endpoints(), smallTransactions)
	cleaned := 0
	var s *Store
	s, _ = wired(t, etcd, func(_ int, txn *pb.TxnRequest) fate {
		if cleaned == 0 && writesHead(s, txn) {
			var err error
			if cleaned, err = cleaner.CollectGarbage(testContext(t)); err != nil {
				t.Error(err)
			}
		}
		return arrive
	})
	if err := s.Swap(testContext(t), small, bigger); err != nil {
		t.Fatal(err)
	}
	if cleaned == 0 {
		t.Fatal("clean-up found nothing that was written ahead")
	}
	mustBeCurrent(t, etcd, bigger)
	mustLeave(t, etcd, bigger, false)
}

// writerAgainstGarbage: the map that comes in between uses a piece that clean-up has on its list.
func writerAgainstGarbage(t *testing.T, etcd *member) {
	m := newMap(t, 4)
	writer := createMap(t, etcd, m)
	changed := next(t, m, addShard("three"))
	for _, piece := range changed.Pieces() { // Left over from a writer that had the same change and died.
		if _, err := rawClient(t, etcd.endpoints()).Put(testContext(t), writer.pieceKey(piece.ID), string(piece.Encode())); err != nil {
			t.Fatal(err)
		}
	}
	litter(t, writer, 25)
	for _, at := range []int{0, 1, 2} {
		cleaner, _ := wired(t, etcd, func(write int, _ *pb.TxnRequest) fate {
			if write == at {
				m = swap(t, writer, m, addShard(fmt.Sprintf("s%d", at)))
			}
			return arrive
		})
		if at == 0 {
			m = swap(t, writer, m, addShard("three"))
		}
		if _, err := cleaner.CollectGarbage(testContext(t)); err != nil {
			t.Fatal(err)
		}
		mustBeCurrent(t, etcd, m)
		mustLeave(t, etcd, m, false)
		litter(t, writer, 25)
	}
}

func lostAnswer(t *testing.T, etcd *member) {
	m := newMap(t, 4)
	createMap(t, etcd, m)
	s, w := wired(t, etcd, onWrite(0, loseAnswer))
	changed := next(t, m, addShard("three"))
	if err := s.Swap(testContext(t), m, changed); err != nil {
		t.Fatal(err)
	}
	if w.writes != 2 {
		t.Errorf("the writer sent %d transactions to find out", w.writes)
	}
	mustBeCurrent(t, etcd, changed)
	mustLeave(t, etcd, changed, false)
}

// goOn lets another writer change the map n times, once.
func goOn(t *testing.T, etcd *member, n int) func() *topology.Map {
	other := openStore(t, etcd.endpoints(), smallTransactions)
	return sync.OnceValue(func() *topology.Map {
		m, err := other.Map(testContext(t))
		for i := 0; i < n && err == nil; i++ {
			m, err = other.Update(testContext(t), func(m *topology.Map) (*topology.Map, error) {
				return m.Next(addShard(fmt.Sprintf("other%d", i)))
			})
		}
		if err != nil {
			t.Error(err)
		}
		return m
	})
}

func lostAnswerOthersWentOn(t *testing.T, etcd *member) {
	m := newMap(t, 4)
	createMap(t, etcd, m)
	others := goOn(t, etcd, 3)
	s, _ := wired(t, etcd, func(write int, _ *pb.TxnRequest) fate {
		if write == 0 {
			return loseAnswer
		}
		others()
		return arrive
	})
	if err := s.Swap(testContext(t), m, next(t, m, addShard("three"))); err != nil {
		t.Fatalf("the change was applied: %v", err)
	}
	now := readCold(t, etcd)
	if now.Shard("three") == nil || now.Shard("other2") == nil || now.Version() != m.Version()+4 {
		t.Errorf("version %d lacks a change", now.Version())
	}
}

func lostRequestOthersWentOn(t *testing.T, etcd *member) {
	m := newMap(t, 4)
	createMap(t, etcd, m)
	others := goOn(t, etcd, 3)
	s, _ := wired(t, etcd, func(write int, _ *pb.TxnRequest) fate {
		if write == 0 {
			return vanish
		}
		others()
		return arrive
	})
	var conflict *ConflictError
	err := s.Swap(testContext(t), m, next(t, m, addShard("three")))
	if !errors.As(err, &conflict) || conflict.Current != m.Version()+3 || errors.Is(err, ErrOutcomeUnknown) {
		t.Fatalf("the change was not applied: %v", err)
	}
	if readCold(t, etcd).Shard("three") != nil {
		t.Error("the change was applied")
	}
}

func lostAnswerEtcdAway(t *testing.T, etcd *member) {
	for name, verdict := range map[string]fate{"applied": loseAnswer, "not applied": vanish} {
		t.Run(name, func(t *testing.T) {
			m := newMap(t, 4)
			createMap(t, etcd, m)
			w := &wire{decide: func(int, *pb.TxnRequest) fate { return verdict }}
			s := openStore(t, etcd.endpoints(), smallTransactions, w.use, impatient)
			changed := next(t, m, addShard("three"))
			err := s.Swap(testContext(t), m, changed)
			if !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, ErrUnavailable) {
				t.Fatal(err)
			}
			if verdict == vanish {
				changed = m
			}
			mustBeCurrent(t, etcd, changed)
		})
	}
	t.Run("only pieces were sent", func(t *testing.T) {
		small, bigger := smallAndLarge(t, etcd)
		w := &wire{decide: func(int, *pb.TxnRequest) fate { return loseAnswer }}
		err := openStore(t, etcd.endpoints(), smallTransactions, w.use, impatient).Swap(testContext(t), small, bigger)
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		mustBeCurrent(t, etcd, small)
	})
	t.Run("the caller gives up", func(t *testing.T) {
		m := newMap(t, 4)
		createMap(t, etcd, m)
		ctx, cancel := context.WithCancel(t.Context())
		s, _ := wired(t, etcd, func(int, *pb.TxnRequest) fate {
			cancel()
			return loseAnswer
		})
		err := s.Swap(ctx, m, next(t, m, addShard("three")))
		if !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
}

func lostAnswerTooManyWentOn(t *testing.T, etcd *member) {
	for _, c := range []struct {
		others int
		known  bool
	}{{keptAttempts - 1, true}, {keptAttempts, false}} {
		t.Run(strconv.Itoa(c.others), func(t *testing.T) {
			m := newMap(t, 4)
			createMap(t, etcd, m)
			others := goOn(t, etcd, c.others)
			s, _ := wired(t, etcd, func(write int, _ *pb.TxnRequest) fate {
				if write == 0 {
					return loseAnswer
				}
				others()
				return arrive
			})
			err := s.Swap(testContext(t), m, next(t, m, addShard("three")))
			if (err == nil) != c.known || errors.Is(err, ErrOutcomeUnknown) == c.known {
				t.Error(err)
			}
		})
	}
}

// readWith reads the map with a cold store; before its n-th request something happens.
func readWith(t *testing.T, etcd *member, n int, happens func()) (*topology.Map, int) {
	t.Helper()
	reads := 0
	w := &wire{beforeRead: func(string) {
		if reads++; reads == n {
			happens()
		}
	}}
	m, err := openStore(t, etcd.endpoints(), smallTransactions, w.use).Map(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return m, reads
}

func swapDuringRead(t *testing.T, etcd *member) {
	m := newMap(t, 4)
	s := createMap(t, etcd, m)
	got, _ := readWith(t, etcd, 2, func() { replaceAll(t, s, m) })
	if !equalMaps(got, m) {
		t.Errorf("version %d was read", got.Version())
	}
}

// replaceAll swaps in a map that shares no piece with the one before.
func replaceAll(t *testing.T, s *Store, m *topology.Map) {
	t.Helper()
	swap(t, s, m, topology.ReplaceRanges("k", []topology.RangeSpec{{Shard: "two"}}, topology.Assignment{}),
		topology.UpdateShard("one", func(spec *topology.ShardSpec) { spec.Weight = 7 }))
	for id := range pieceIDs(m) {
		if storedPieces(t, s)[string(id)] {
			t.Fatal("a piece is in both maps")
		}
	}
}

func compactionDuringRead(t *testing.T, etcd *member) {
	m := newMap(t, 4)
	s := createMap(t, etcd, m)
	got, reads := readWith(t, etcd, 2, func() {
		replaceAll(t, s, m)
		compact(t, etcd.endpoints())
	})
	if got.Version() != m.Version()+1 || reads != 4 {
		t.Errorf("version %d was read, in %d reads", got.Version(), reads)
	}
}

// rewind returns what puts the head back to what it is now, as a restored backup would.
func rewind(t *testing.T, s *Store) func() {
	t.Helper()
	client := rawClient(t, s.config.Endpoints)
	backup, err := client.Get(testContext(t), s.keys.head)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if _, err := client.Put(testContext(t), s.keys.head, string(backup.Kvs[0].Value)); err != nil {
			t.Fatal(err)
		}
	}
}

// mustRefuse checks that a follower reports the refusal, in its status and once in the log, and keeps its map.
func mustRefuse[E error](t *testing.T, f *Follower, log *logBook, held *topology.Map, want E) {
	t.Helper()
	eventually(t, "the follower refuses: "+want.Error(), func() bool {
		var refused E
		return errors.As(f.Status().LastError, &refused) && refused.Error() == want.Error()
	})
	if !equalMaps(f.Map(), held) || f.Status().Version != held.Version() || !f.Status().Connected {
		t.Errorf("the follower has version %d and says %+v", f.Map().Version(), f.Status())
	}
	if n := log.count(want.Error()); n != 1 {
		t.Errorf("it was logged %d times", n)
	}
}

// mustRecover checks that a follower goes on with the map.
func mustRecover(t *testing.T, f *Follower, m *topology.Map) {
	t.Helper()
	waitFor(t, f, m)
	eventually(t, "all is well", func() bool { return f.Status().LastError == nil })
}

// followLogged follows with a store of its own, and keeps its log.
func followLogged(t *testing.T, etcd *member) (*Follower, *logBook) {
	t.Helper()
	log := &logBook{}
	return follow(t, openStore(t, etcd.endpoints(), smallTransactions, log.use)), log
}

// etcdWentBack: a backup was restored, or somebody meddled. Routers keep what they have until a newer map is there.
func etcdWentBack(t *testing.T, etcd *member) {
	m := newMap(t, 4)
	s := createMap(t, etcd, m)
	goBack := rewind(t, s)
	newer := swap(t, s, m, topology.RaiseVersion(9))
	f, log := followLogged(t, etcd)
	waitFor(t, f, newer)
	goBack()
	mustRefuse(t, f, log, newer, &StaleError{Current: 9, Offered: m.Version()})
	mustRecover(t, f, swap(t, s, m, topology.RaiseVersion(10)))
}

// etcdForked: after the backup, another change gets the version that a lost one had.
func etcdForked(t *testing.T, etcd *member) {
	m := newMap(t, 4)
	s := createMap(t, etcd, m)
	goBack := rewind(t, s)
	lost := swap(t, s, m, addShard("three"))
	f, log := followLogged(t, etcd)
	waitFor(t, f, lost)
	changed := f.Changed()
	goBack()
	fork := swap(t, s, m, addShard("four"))
	mustRefuse(t, f, log, lost, &ForkError{Version: lost.Version()})
	select {
	case <-changed:
		t.Error("a change was announced that never was")
	default:
	}

	// Clean-up writes the head again as it is: still the fork, and no news.
	litter(t, s, 1)
	if _, err := s.CollectGarbage(testContext(t)); err != nil {
		t.Fatal(err)
	}
	mustRefuse(t, f, log, lost, &ForkError{Version: lost.Version()})
	mustRecover(t, f, swap(t, s, fork, addShard("five")))
}

// anotherCluster: somebody emptied etcd, or pointed another cluster at the same keys. A router must not serve another
// cluster's map, an operator must see it.
func anotherCluster(t *testing.T, etcd *member) {
	m := newMap(t, 4)
	s := createMap(t, etcd, m)
	f, log := followLogged(t, etcd)
	waitFor(t, f, m)
	if _, err := rawClient(t, etcd.endpoints()).Delete(testContext(t), s.config.Prefix, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	other := newMapOf(t, otherCluster, 4)
	if err := s.Create(testContext(t), other); err != nil {
		t.Fatal(err)
	}
	want := &OtherClusterError{Held: m.Cluster(), Offered: other.Cluster()}
	mustRefuse(t, f, log, m, want)
	other = swap(t, s, other, addShard("three")) // A higher version does not help it.
	eventually(t, "the follower has seen it", func() bool { return equalMaps(f.store.latest.Load(), other) })
	mustRefuse(t, f, log, m, want)

	for name, reader := range map[string]*Store{"the writer": s, "a process that knew the other cluster": f.store} {
		if got, err := reader.Map(testContext(t)); err != nil || !equalMaps(got, other) {
			t.Errorf("%s reads another map than is stored: %v", name, err)
		}
	}
	goOnFrom := func(m *topology.Map) (*topology.Map, error) { return m.Next(addShard("four")) }
	if got, err := f.store.Update(testContext(t), goOnFrom); err != nil || got.Cluster() != other.Cluster() || got.Version() != other.Version()+1 {
		t.Errorf("an update of what is stored: %v", err)
	}
}

// errorForAnswer: what gRPC and proxies call an error need not be etcd's no.
func errorForAnswer(t *testing.T, etcd *member) {
	for _, code := range []codes.Code{codes.Internal, codes.Unknown, codes.Aborted, codes.ResourceExhausted} {
		for name, verdict := range map[string]fate{"applied": loseAnswer, "not applied": vanish} {
			t.Run(code.String()+", "+name, func(t *testing.T) {
				m := newMap(t, 4)
				createMap(t, etcd, m)
				s, w := wired(t, etcd, onWrite(0, verdict))
				w.lost = status.Error(code, "stream broken")
				changed := next(t, m, addShard("three"))
				if err := s.Swap(testContext(t), m, changed); err != nil {
					t.Fatal(err)
				}
				mustBeCurrent(t, etcd, changed)
			})
		}
	}
	t.Run("again and again", func(t *testing.T) {
		err := swapHearing(t, etcd, status.Error(codes.Internal, "stream broken"), loseAnswer, impatient)
		if !errors.Is(err, ErrOutcomeUnknown) {
			t.Error(err)
		}
	})
	t.Run("applied with the last of the space", func(t *testing.T) {
		if err := swapHearing(t, etcd, rpctypes.ErrGRPCNoSpace, loseAnswer); !errors.Is(err, ErrOutcomeUnknown) {
			t.Error(err)
		}
	})
	t.Run("etcd's own no", func(t *testing.T) {
		for _, no := range []error{rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrGRPCRequestTooLarge, rpctypes.ErrGRPCInvalidAuthMgmt} {
			if err := swapHearing(t, etcd, no, vanish); err == nil || errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, ErrUnavailable) {
				t.Errorf("%v: %v", no, err)
			}
		}
	})
}

// swapHearing makes a change whose every write meets the same fate, and the same words.
func swapHearing(t *testing.T, etcd *member, words error, verdict fate, changes ...func(*Config)) error {
	t.Helper()
	m, err := openStore(t, etcd.endpoints()).Map(testContext(t))
	if errors.Is(err, ErrNoMap) {
		m = newMap(t, 4)
		createMap(t, etcd, m)
	} else if err != nil {
		t.Fatal(err)
	}
	w := &wire{lost: words, decide: func(int, *pb.TxnRequest) fate { return verdict }}
	s := openStore(t, etcd.endpoints(), append(changes, smallTransactions, w.use)...)
	return s.Swap(testContext(t), m, next(t, m))
}

// silentWatch: the watch stays open and tells nothing, while etcd answers all else.
func silentWatch(t *testing.T, etcd *member) {
	m := newMap(t, 4)
	s := createMap(t, etcd, m)
	w := &wire{}
	f := follow(t, openStore(t, etcd.endpoints(), w.use, impatient))
	waitFor(t, f, m)
	m = swap(t, s, m, addShard("three")) // This one comes through the watch, which is thus in place.
	waitFor(t, f, m)
	w.deaf.Store(true)
	waitFor(t, f, swap(t, s, m, addShard("four")))
	w.deaf.Store(false)
	eventually(t, "all is well", func() bool { return f.Status().Connected && f.Status().LastError == nil })
}

func lostJobAnswer(t *testing.T, etcd *member) {
	for name, lost := range map[string]error{"lost": nil, "broken": status.Error(codes.Internal, "stream broken")} {
		t.Run(name, func(t *testing.T) { loseJobAnswers(t, etcd, lost) })
	}
}

func loseJobAnswers(t *testing.T, etcd *member, lost error) {
	w := &wire{lost: lost}
	s := openStore(t, etcd.endpoints(), smallTransactions, w.use)
	l := campaign(t, s, "leader")
	lose := func(verdict fate) {
		w.reset()
		w.decide = onWrite(0, verdict)
	}
	var job Job
	for _, verdict := range []fate{vanish, loseAnswer} {
		lose(verdict)
		var err error
		if job, err = l.CreateJob(testContext(t), Job{ID: "j", State: "new"}); err != nil || job.Revision == 0 {
			t.Fatal(err)
		}
		lose(verdict)
		job.State = "copy"
		if job, err = l.UpdateJob(testContext(t), job); err != nil {
			t.Fatal(err)
		}
		if stored, err := s.Job(testContext(t), "j"); err != nil || stored.Revision != job.Revision || stored.State != "copy" {
			t.Fatalf("%+v: %v", stored, err)
		}
		lose(verdict)
		if err = l.DeleteJob(testContext(t), job); err != nil {
			t.Fatal(err)
		}
		if left := slices.Collect(maps.Keys(keysUnderPrefix(t, s, s.keys.jobs))); len(left) != 0 {
			t.Fatal(left)
		}
	}
}

func lostCandidateAnswer(t *testing.T, etcd *member) {
	var s *Store
	var w *wire
	s, w = wired(t, etcd, func(write int, _ *pb.TxnRequest) fate {
		if write == 0 {
			return loseAnswer
		}
		litter(t, s, 3) // Etcd's revision goes on; the key's must count.
		return arrive
	})
	l := campaign(t, s, "candidate")
	if w.writes != 2 {
		t.Errorf("it took %d writes, so it queued up again", w.writes)
	}
	if leader, err := s.Leader(testContext(t)); err != nil || leader.Token != l.Token() {
		t.Errorf("%+v leads, not %d: %v", leader, l.Token(), err)
	}
	if _, err := l.CreateJob(testContext(t), Job{ID: "j"}); err != nil {
		t.Error(err)
	}
}
