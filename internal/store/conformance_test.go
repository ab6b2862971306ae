package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/cleavedb/cleave/internal/topology"
)

// The long tests run beside each other: each has an etcd of its own, and mostly waits for it.
func TestOneMember(t *testing.T) {
	t.Parallel()
	conformance(t, startMember(t))
}

func TestThreeMembers(t *testing.T) {
	t.Parallel()
	conformance(t, startProcesses(t, 3))
}

// conformance is what holds for every etcd.
func conformance(t *testing.T, etcd testEtcd) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, testEtcd)
	}{
		{"a map is created once", testCreate},
		{"a swap needs the current version", testSwap},
		{"a swap needs the current content", testSwapContent},
		{"a swap from no map needs none", testSwapFromNone},
		{"a cluster's map stays its own", testSwapCluster},
		{"of many swaps from one version one wins", testSwapRace},
		{"no update is lost, whatever dies", testUpdateRace},
		{"a change reaches every follower", testFollowers},
		{"a watch survives compaction", testFollowerCompaction},
		{"a follower that was cut off catches up", testFollowerCutOff},
		{"without etcd followers keep the map and writers are told", testAway},
		{"routers come and go", testRouters},
		{"a lost router record comes back", testRouterExpiry},
		{"one candidate leads after the other", testElection},
		{"a stale leader is fenced", testFencing},
		{"jobs are compared and swapped", testJobs},
		{"a change of the schema reaches every router", testSchema},
		{"no change of the schema is lost, whatever dies", testSchemaRace},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, etcd) })
	}
}

// created returns a store with a map of version 2 in it.
func created(t *testing.T, etcd testEtcd) (*Store, *topology.Map) {
	t.Helper()
	s, m := openStore(t, etcd.endpoints()), newMap(t, 4)
	if err := s.Create(testContext(t), m); err != nil {
		t.Fatal(err)
	}
	return s, m
}

func testCreate(t *testing.T, etcd testEtcd) {
	s, m := openStore(t, etcd.endpoints()), newMap(t, 4)
	if _, err := s.Map(testContext(t)); !errors.Is(err, ErrNoMap) {
		t.Fatalf("a map was read before there was one: %v", err)
	}
	if err := s.Swap(testContext(t), m, next(t, m)); !errors.Is(err, ErrNoMap) {
		t.Fatalf("a map was swapped before there was one: %v", err)
	}
	results := make(chan error)
	for range 4 {
		go func() { results <- s.Create(testContext(t), m) }()
	}
	created := 0
	for range 4 {
		err := <-results
		if err == nil {
			created++
		} else if !errors.Is(err, ErrExists) {
			t.Error(err)
		}
	}
	if created != 1 {
		t.Errorf("%d of 4 creators created the map", created)
	}
	if got := readCold(t, etcd); !equalMaps(got, m) {
		t.Error("another map was read than was created")
	}
}

// readCold reads the map of the test with a store that has seen none.
func readCold(t *testing.T, etcd testEtcd) *topology.Map {
	t.Helper()
	m, err := openStore(t, etcd.endpoints()).Map(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func testSwap(t *testing.T, etcd testEtcd) {
	s, base := created(t, etcd)
	changed := next(t, base, addShard("three"))
	if err := s.Swap(testContext(t), base, changed); err != nil {
		t.Fatal(err)
	}
	var conflict *ConflictError
	err := s.Swap(testContext(t), base, next(t, base, addShard("four")))
	if !errors.As(err, &conflict) || *conflict != (ConflictError{Base: 2, Current: 3}) || !errors.Is(err, ErrConflict) {
		t.Errorf("a swap from an old version: %v", err)
	}
	var stale *StaleError
	if err := s.Swap(testContext(t), changed, base); !errors.As(err, &stale) {
		t.Errorf("a swap to a lower version: %v", err)
	}
	if err := s.Swap(testContext(t), changed, changed); !errors.As(err, &stale) {
		t.Errorf("a swap to the same version: %v", err)
	}
	if got := readCold(t, etcd); !equalMaps(got, changed) {
		t.Errorf("version %d is stored", got.Version())
	}
}

// testSwapContent: another map has taken the place, and the version, of the one that was read.
func testSwapContent(t *testing.T, etcd testEtcd) {
	s, base := created(t, etcd)
	read := next(t, base, addShard("three"))
	stored := swap(t, s, base, addShard("four"))
	var conflict *ConflictError
	err := s.Swap(testContext(t), read, next(t, read))
	if !errors.As(err, &conflict) || *conflict != (ConflictError{Base: 3, Current: 3}) || !errors.Is(err, ErrConflict) || errors.Is(err, ErrExists) {
		t.Errorf("a swap from another map of the same version: %v", err)
	}
	if got := readCold(t, etcd); !equalMaps(got, stored) {
		t.Errorf("version %d is stored", got.Version())
	}
}

func testSwapFromNone(t *testing.T, etcd testEtcd) {
	s, far := openStore(t, etcd.endpoints()), next(t, newMap(t, 2), topology.RaiseVersion(70))
	if err := s.Swap(testContext(t), nil, far); err != nil {
		t.Fatalf("from no map, which is so: %v", err)
	}
	var conflict *ConflictError
	err := s.Swap(testContext(t), nil, next(t, far))
	if !errors.As(err, &conflict) || *conflict != (ConflictError{Current: 70}) || !errors.Is(err, ErrExists) || !errors.Is(err, ErrConflict) {
		t.Errorf("from no map, when there is one: %v", err)
	}
	if got := readCold(t, etcd); !equalMaps(got, far) {
		t.Errorf("version %d is stored", got.Version())
	}
}

func testSwapCluster(t *testing.T, etcd testEtcd) {
	s, m := created(t, etcd)
	other := newMapOf(t, otherCluster, 4, topology.RaiseVersion(9))
	for name, err := range map[string]error{
		"swap":   s.Swap(testContext(t), m, other),
		"update": second(s.Update(testContext(t), func(*topology.Map) (*topology.Map, error) { return other, nil })),
	} {
		var otherCluster *OtherClusterError
		if !errors.As(err, &otherCluster) || *otherCluster != (OtherClusterError{Held: m.Cluster(), Offered: other.Cluster()}) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := readCold(t, etcd); !equalMaps(got, m) {
		t.Errorf("the map of cluster %s is stored", got.Cluster())
	}
}

func testSwapRace(t *testing.T, etcd testEtcd) {
	const writers, rounds = 6, 5
	s, base := created(t, etcd)
	for range rounds {
		type result struct {
			m   *topology.Map
			err error
		}
		results := make(chan result)
		for i := range writers {
			go func() {
				m, err := base.Next(addShard(fmt.Sprintf("s%d-%d", base.Version(), i)))
				if err == nil {
					err = s.Swap(testContext(t), base, m)
				}
				results <- result{m, err}
			}()
		}
		var winners []*topology.Map
		for range writers {
			r := <-results
			if r.err == nil {
				winners = append(winners, r.m)
			} else if !errors.Is(r.err, ErrConflict) {
				t.Error(r.err)
			}
		}
		if len(winners) != 1 {
			t.Fatalf("%d writers won version %d", len(winners), base.Version()+1)
		}
		base = winners[0]
		if got := readCold(t, etcd); !equalMaps(got, base) {
			t.Fatal("the stored map is not the winner's")
		}
	}
}

// testUpdateRace lets many stores change the map while etcd is disturbed. Every change must be in the end result, and every
// version must have been made by one of them.
func testUpdateRace(t *testing.T, etcd testEtcd) {
	const writers, changes = 6, 6
	_, first := created(t, etcd)
	var mu sync.Mutex
	var versions []uint64
	var all sync.WaitGroup
	half := make(chan struct{}, writers*changes)
	for w := range writers {
		s := openStore(t, etcd.endpoints())
		all.Go(func() {
			for c := range changes {
				m, err := s.Update(testContext(t), func(m *topology.Map) (*topology.Map, error) {
					return m.Next(addShard(fmt.Sprintf("w%d-c%d", w, c)))
				})
				if err != nil {
					t.Errorf("writer %d, change %d: %v", w, c, err)
					return
				}
				mu.Lock()
				versions = append(versions, m.Version())
				mu.Unlock()
				half <- struct{}{}
			}
		})
	}
	for range writers * changes / 3 {
		<-half
	}
	mend := etcd.disturb(t)
	all.Wait()
	mend()

	slices.Sort(versions)
	for i, v := range versions {
		if v != first.Version()+1+uint64(i) {
			t.Fatalf("versions were made twice or skipped: %v", versions)
		}
	}
	m := readCold(t, etcd)
	for w := range writers {
		for c := range changes {
			if name := fmt.Sprintf("w%d-c%d", w, c); m.Shard(name) == nil {
				t.Errorf("change %s is lost", name)
			}
		}
	}
}

func follow(t *testing.T, s *Store) *Follower {
	t.Helper()
	f, err := s.Follow(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func waitFor(t *testing.T, f *Follower, want *topology.Map) {
	t.Helper()
	got, err := f.Wait(testContext(t), want.Version())
	if err != nil {
		t.Fatalf("%v; %+v", err, f.Status())
	}
	if !equalMaps(got, want) {
		t.Fatalf("version %d was followed by another map than was written", want.Version())
	}
}

func swap(t *testing.T, s *Store, base *topology.Map, changes ...topology.Change) *topology.Map {
	t.Helper()
	m := next(t, base, changes...)
	if err := s.Swap(testContext(t), base, m); err != nil {
		t.Fatal(err)
	}
	return m
}

func testFollowers(t *testing.T, etcd testEtcd) {
	var followers []*Follower
	for range 3 {
		f := follow(t, openStore(t, etcd.endpoints()))
		if f.Map() != nil {
			t.Error("there is a map before there is one")
		}
		eventually(t, "the follower says that there is no map", func() bool { return errors.Is(f.Status().LastError, ErrNoMap) })
		followers = append(followers, f)
	}
	s, m := created(t, etcd)
	for range 3 {
		for _, f := range followers {
			<-f.Ready()
			waitFor(t, f, m)
			changed := f.Changed()
			if status := f.Status(); !status.Connected || status.LastError != nil || status.Version != m.Version() {
				t.Errorf("a follower in step says %+v", status)
			}
			select {
			case <-changed:
				t.Error("a change was announced that never was")
			default:
			}
		}
		changed := followers[0].Changed()
		m = swap(t, s, m, addShard(fmt.Sprintf("s%d", m.Version())))
		<-changed
	}
}

func testFollowerCompaction(t *testing.T, etcd testEtcd) {
	s, m := created(t, etcd)
	f := follow(t, openStore(t, etcd.endpoints()))
	for i := range 5 {
		waitFor(t, f, m)
		m = swap(t, s, m, addShard(fmt.Sprintf("s%d", i)))
		compact(t, etcd.endpoints())
	}
	waitFor(t, f, m)
}

// testFollowerCutOff takes a follower's connection away, rudely or silently, while the map changes and history is compacted.
func testFollowerCutOff(t *testing.T, etcd testEtcd) {
	for name, mode := range map[string]proxyMode{"refused": refusing, "silent": silent} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, etcd.endpoints()[0])
			s, m := created(t, etcd)
			log := &logBook{}
			f := follow(t, openStore(t, p.endpoints(), impatient, log.use))
			waitFor(t, f, m)
			m = swap(t, s, m) // This one comes through the watch, which is thus in place.
			waitFor(t, f, m)

			p.set(mode)
			held := m
			for i := range 3 {
				m = swap(t, s, m, addShard(fmt.Sprintf("s%d", i)))
			}
			compact(t, etcd.endpoints())
			eventually(t, "the follower notices", func() bool { return !f.Status().Connected })
			if status := f.Status(); status.LastError == nil || !equalMaps(f.Map(), held) {
				t.Errorf("cut off, the follower has version %d and says %+v", f.Map().Version(), status)
			}
			p.set(passing)
			waitFor(t, f, m)
			eventually(t, "the follower says that it is back", func() bool { return f.Status().Connected && f.Status().LastError == nil })
			eventually(t, "the return is logged", func() bool { return log.count("etcd is back") == 1 })
			if n := log.count("etcd is away"); n != 1 {
				t.Errorf("the loss was logged %d times", n)
			}
		})
	}
}

func testAway(t *testing.T, etcd testEtcd) {
	s, m := created(t, etcd)
	f := follow(t, openStore(t, etcd.endpoints(), impatient))
	waitFor(t, f, m)
	etcd.stop(t)
	eventually(t, "the follower notices", func() bool { return !f.Status().Connected })

	hasty := openStore(t, etcd.endpoints(), impatient)
	for action, err := range map[string]error{
		"swap":     hasty.Swap(testContext(t), m, next(t, m)),
		"read":     second(hasty.Map(testContext(t))),
		"register": second(hasty.Register(testContext(t), Router{})),
	} {
		var unavailable *UnavailableError
		if !errors.Is(err, ErrUnavailable) || !errors.As(err, &unavailable) {
			t.Errorf("%s: %v", action, err)
			continue
		}
		if !slices.Equal(unavailable.Endpoints, etcd.endpoints()) || unavailable.Tried <= 0 || unavailable.Cause == nil {
			t.Errorf("%s: %+v", action, unavailable)
		}
		if unavailable.OutcomeUnknown {
			t.Errorf("%s: nothing was sent, yet the outcome is unknown: %v", action, unavailable)
		}
	}
	late := follow(t, openStore(t, etcd.endpoints(), impatient))
	eventually(t, "a follower that starts without etcd says so", func() bool { return late.Status().LastError != nil })
	if late.Map() != nil || !equalMaps(f.Map(), m) {
		t.Error("without etcd the maps are not what they were")
	}

	elected := make(chan error)
	go func() { elected <- second(hasty.Campaign(testContext(t), "patient")) }()

	etcd.start(t)
	if err := <-elected; err != nil {
		t.Error(err)
	}
	m = swap(t, s, m, addShard("three"))
	waitFor(t, f, m)
	waitFor(t, late, m)
}

func second[T any](_ T, err error) error { return err }

func routers(t *testing.T, s *Store) []Router {
	t.Helper()
	list, err := s.Routers(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func register(t *testing.T, s *Store, router Router) *Registration {
	t.Helper()
	r, err := s.Register(testContext(t), router)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func testRouters(t *testing.T, etcd testEtcd) {
	s := openStore(t, etcd.endpoints())
	b := register(t, s, Router{Name: "b", Address: "b.test:5432", Binary: "v1"})
	a := register(t, s, Router{ID: "mine", Name: "a", HTTPAddress: "a.test:80"})
	if b.Router().ID == "" {
		t.Error("no incarnation was made up")
	}
	if list := routers(t, s); len(list) != 2 || list[0] != a.Router() || list[1] != b.Router() {
		t.Errorf("registered were %v", list)
	}
	a.SetApplied(7)
	a.SetApplied(5)
	eventually(t, "the applied version is seen", func() bool { return routers(t, s)[0].Applied == 7 })
	for range 2 {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if list := routers(t, s); len(list) != 1 || list[0].ID != "mine" {
		t.Errorf("after one was closed: %v", list)
	}
}

// testRouterExpiry cuts a router off for longer than its lease lasts.
func testRouterExpiry(t *testing.T, etcd testEtcd) {
	p := startProxy(t, etcd.endpoints()[0])
	s := openStore(t, etcd.endpoints())
	r := register(t, openStore(t, p.endpoints(), impatient), Router{Name: "a"})
	p.set(refusing)
	eventually(t, "the record expires", func() bool { return len(routers(t, s)) == 0 })
	r.SetApplied(9)
	p.set(passing)
	eventually(t, "the record is back, up to date", func() bool {
		list := routers(t, s)
		return len(list) == 1 && list[0] == r.Router() && list[0].Applied == 9
	})
}

func campaign(t *testing.T, s *Store, candidate string) *Leadership {
	t.Helper()
	l, err := s.Campaign(testContext(t), candidate)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func testElection(t *testing.T, etcd testEtcd) {
	s := openStore(t, etcd.endpoints())
	if _, err := s.Leader(testContext(t)); !errors.Is(err, ErrNoLeader) {
		t.Errorf("before the first election: %v", err)
	}
	var last int64
	current := campaign(t, s, "candidate 0")
	for i := range 4 {
		leader, err := s.Leader(testContext(t))
		if err != nil || leader != (Leader{fmt.Sprintf("candidate %d", i), current.Token()}) || current.Token() <= last {
			t.Fatalf("%+v leads after %d: %v", leader, last, err)
		}
		last = current.Token()
		elected := make(chan *Leadership, 1)
		other := openStore(t, etcd.endpoints())
		go func() {
			l, err := other.Campaign(testContext(t), fmt.Sprintf("candidate %d", i+1))
			if err != nil {
				t.Error(err)
			}
			elected <- l
		}()
		eventually(t, "the next candidate queues up", func() bool { return len(keysUnderPrefix(t, s, s.keys.leaders)) == 2 })
		impatientCtx, giveUp := context.WithCancel(t.Context())
		gaveUp := make(chan error)
		go func() {
			_, err := s.Campaign(impatientCtx, "impatient")
			gaveUp <- err
		}()
		eventually(t, "an impatient one queues up", func() bool { return len(keysUnderPrefix(t, s, s.keys.leaders)) == 3 })
		select {
		case <-elected:
			t.Fatal("two lead")
		case <-current.Done():
			t.Fatal("the leadership ended by itself")
		default:
		}
		giveUp()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("a candidate that gave up: %v", err)
		}
		for range 2 {
			if err := current.Resign(testContext(t)); err != nil {
				t.Fatal(err)
			}
		}
		<-current.Done()
		if current = <-elected; current == nil {
			t.FailNow()
		}
		eventually(t, "who gave up is out of the queue", func() bool { return len(keysUnderPrefix(t, s, s.keys.leaders)) == 1 })
	}
}

// testFencing cuts the leader off until another is elected, and lets it come back.
func testFencing(t *testing.T, etcd testEtcd) {
	p := startProxy(t, etcd.endpoints()[0])
	s := openStore(t, etcd.endpoints())
	old := campaign(t, openStore(t, p.endpoints(), impatient), "old")
	job, err := old.CreateJob(testContext(t), Job{ID: "j", Kind: "move", State: "copy"})
	if err != nil {
		t.Fatal(err)
	}
	p.set(refusing)
	successor := campaign(t, s, "new")
	if successor.Token() <= old.Token() {
		t.Errorf("token %d came after %d", successor.Token(), old.Token())
	}
	p.set(passing)
	job.State = "switch"
	eventually(t, "the stale leader reaches etcd and is told", func() bool {
		_, err := old.UpdateJob(testContext(t), job)
		if err == nil {
			t.Fatal("a stale leader wrote")
		}
		return errors.Is(err, ErrNotLeader)
	})
	if _, err := old.CreateJob(testContext(t), Job{ID: "k"}); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a stale leader created a job: %v", err)
	}
	if err := old.DeleteJob(testContext(t), job); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a stale leader deleted a job: %v", err)
	}
	<-old.Done()
	if job, err = successor.UpdateJob(testContext(t), job); err != nil || job.State != "switch" {
		t.Errorf("the successor could not write: %v", err)
	}
}

func testJobs(t *testing.T, etcd testEtcd) {
	s := openStore(t, etcd.endpoints())
	l := campaign(t, s, "leader")
	job, err := l.CreateJob(testContext(t), Job{ID: "b", Kind: "move", State: "new", Body: json.RawMessage(`{"from":"one"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.CreateJob(testContext(t), job); !errors.Is(err, ErrExists) {
		t.Errorf("created twice: %v", err)
	}
	for _, bad := range []Job{{}, {ID: "a/b"}, {ID: "x", Body: json.RawMessage("{")}, {ID: "x", Body: json.RawMessage(fmt.Sprintf("%q", make([]byte, maxJobBytes)))}} {
		if _, err := l.CreateJob(testContext(t), bad); err == nil {
			t.Errorf("job %q was created", bad.ID)
		}
	}
	stale := job
	job.State = "copy"
	if job, err = l.UpdateJob(testContext(t), job); err != nil || job.Revision <= stale.Revision {
		t.Fatalf("%+v: %v", job, err)
	}
	if _, err := l.UpdateJob(testContext(t), stale); !errors.Is(err, ErrConflict) || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("an old job was written: %v", err)
	}
	if err := l.DeleteJob(testContext(t), stale); !errors.Is(err, ErrConflict) {
		t.Errorf("an old job was deleted: %v", err)
	}
	if got, err := s.Job(testContext(t), "b"); err != nil || fmt.Sprint(got) != fmt.Sprint(job) {
		t.Errorf("read %+v, want %+v: %v", got, job, err)
	}
	if _, err := l.CreateJob(testContext(t), Job{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if list, err := s.NewJobReader().Jobs(testContext(t)); err != nil || len(list) != 2 || list[0].ID != "a" || list[1].ID != "b" {
		t.Errorf("listed %v: %v", list, err)
	}
	if err := l.DeleteJob(testContext(t), job); err != nil {
		t.Fatal(err)
	}
	if err := l.DeleteJob(testContext(t), job); !errors.Is(err, ErrNoJob) {
		t.Errorf("deleted twice: %v", err)
	}
	if _, err := l.UpdateJob(testContext(t), job); !errors.Is(err, ErrNoJob) {
		t.Errorf("updated after it was deleted: %v", err)
	}
	if _, err := s.Job(testContext(t), "b"); !errors.Is(err, ErrNoJob) {
		t.Errorf("read after it was deleted: %v", err)
	}
}
