package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cleavedb/cleave/internal/topology"
)

// TestSchemaCrashTable has a case for every line of the schema state's table in DESIGN.md that is not the leader's, under the
// same number.
func TestSchemaCrashTable(t *testing.T) {
	t.Parallel()
	etcd := startMember(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T, *member)
	}{
		{"01 the holder dies before the hold", holderDiesBefore},
		{"04 the holder dies after the release", holderDiesAfterRelease},
		{"05 the answer to a hold lost", lostHoldAnswer},
		{"06 the answer to a release lost", lostReleaseAnswer},
		{"07 the answer lost, etcd stays away", lostHoldEtcdAway},
		{"08 two want the same table", twoHolders},
		{"09 two hold different tables", differentTables},
		{"10 a router joins", routerJoins},
		{"11 a router dies that is waited for", awaitedRouterDies},
		{"13 the holder is cut off for long", holderCutOff},
		{"14 the holder registers while it is taken over", holderComesBack},
		{"17 two take the same hold over", twoTakeOver},
		{"18 etcd is put back to before a hold", schemaWentBack},
		{"19 etcd is emptied", schemaEmptied},
		{"20 etcd is away", schemaAway},
		{"21 the state comes before its map", schemaBeforeMap},
		{"22 the stored map is refused", schemaOfRefusedMap},
		{"23 many bump at once", manyBumps},
		{"24 the watch of the state falls silent", silentSchemaWatch},
		{"25 a state of a later program", laterSchemaFormat},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, etcd) })
	}
}

func holdOf(id, holder string, tables ...string) topology.Hold {
	hold := topology.Hold{ID: id, Holder: holder, Why: "ALTER TABLE"}
	for _, name := range tables {
		hold.Tables = append(hold.Tables, topology.TableName{Schema: "public", Name: name})
	}
	return hold
}

func held(t *testing.T, s *Store, hold topology.Hold) topology.SchemaState {
	t.Helper()
	state, err := s.Hold(testContext(t), hold)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func released(t *testing.T, s *Store, id string, mapVersion uint64) topology.SchemaState {
	t.Helper()
	state, err := s.Release(testContext(t), id, mapVersion)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func bumped(t *testing.T, s *Store, mapVersion uint64) topology.SchemaState {
	t.Helper()
	state, err := s.Bump(testContext(t), mapVersion)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func schemaOf(t *testing.T, etcd testEtcd) topology.SchemaState {
	t.Helper()
	state, err := openStore(t, etcd.endpoints()).Schema(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// mustHold checks which holds are stored, and the epoch.
func mustHold(t *testing.T, etcd testEtcd, epoch uint64, ids ...string) {
	t.Helper()
	state := schemaOf(t, etcd)
	var found []string
	for _, hold := range state.Holds {
		found = append(found, hold.ID)
	}
	if slices.Sort(found); !slices.Equal(found, ids) || state.Epoch != epoch {
		t.Fatalf("epoch %d is stored, with the holds %v; want epoch %d, %v", state.Epoch, found, epoch, ids)
	}
}

// mustNotHold checks that a holder is told that its hold is gone, by all that it may try.
func mustNotHold(t *testing.T, s *Store, id string) {
	t.Helper()
	for name, err := range map[string]error{
		"asking":  s.Holding(testContext(t), id),
		"release": second(s.Release(testContext(t), id, 0)),
		"update": second(s.UpdateHolding(testContext(t), id, func(m *topology.Map) (*topology.Map, error) {
			return m.Next(addShard("never"))
		})),
	} {
		var notHeld *NotHeldError
		if !errors.As(err, &notHeld) || notHeld.ID != id || !errors.Is(err, ErrNotHeld) || errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// lasting gives records a lease that no busy machine lets run out by mistake.
func lasting(c *Config) { c.LeaseTTL = time.Minute }

// patient has a store wait for an etcd that takes long to come back.
func patient(c *Config) { c.RequestTimeout = 30 * time.Second }

// living returns a store in which the routers are registered.
func living(t *testing.T, etcd testEtcd, ids ...string) *Store {
	t.Helper()
	s := openStore(t, etcd.endpoints(), lasting)
	for _, id := range ids {
		register(t, s, Router{ID: id, Name: id})
	}
	return s
}

func holderDiesBefore(t *testing.T, etcd *member) {
	living(t, etcd, "r1")
	s, _ := wired(t, etcd, onWrite(0, dieBefore))
	if _, err := s.Hold(testContext(t), holdOf("h", "r1", "orders")); err == nil {
		t.Fatal("the holder lives")
	}
	mustHold(t, etcd, 0)
}

func holderDiesAfterRelease(t *testing.T, etcd *member) {
	f := follow(t, living(t, etcd, "r1"))
	s, _ := wired(t, etcd, onWrite(1, dieAfter))
	held(t, s, holdOf("h", "r1", "orders"))
	if state, err := f.WaitSchema(testContext(t), 1); err != nil || len(state.Holds) != 1 {
		t.Fatalf("the router has %+v: %v", state, err)
	}
	if _, err := s.Release(testContext(t), "h", 0); err == nil {
		t.Fatal("the holder lives")
	}
	mustHold(t, etcd, 2)
	if state, err := f.WaitSchema(testContext(t), 2); err != nil || len(state.Holds) != 0 {
		t.Errorf("the router has %+v: %v", state, err)
	}
}

// losing returns a store whose first write meets the fate; before the second something happens.
func losing(t *testing.T, etcd *member, verdict fate, happens func()) *Store {
	s, _ := wired(t, etcd, func(write int, _ *pb.TxnRequest) fate {
		switch write {
		case 0:
			return verdict
		case 1:
			happens()
		}
		return arrive
	})
	return s
}

func lostHoldAnswer(t *testing.T, etcd *member) {
	nothing := func(*testing.T, *Store) {}
	otherTable := func(t *testing.T, s *Store) { held(t, s, holdOf("other", "r2", "users")) }
	sameTable := func(t *testing.T, s *Store) { held(t, s, holdOf("other", "r2", "orders")) }
	for _, c := range []struct {
		name    string
		verdict fate
		others  func(*testing.T, *Store)
		epoch   uint64
		holds   []string
	}{
		{"applied", loseAnswer, nothing, 1, []string{"h"}},
		{"not applied", vanish, nothing, 1, []string{"h"}},
		{"applied, others go on", loseAnswer, otherTable, 2, []string{"h", "other"}},
		{"not applied, others go on", vanish, otherTable, 2, []string{"h", "other"}},
		{"not applied, others have the table", vanish, sameTable, 1, []string{"other"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			others := living(t, etcd, "r1", "r2")
			s := losing(t, etcd, c.verdict, func() { c.others(t, others) })
			state, err := s.Hold(testContext(t), holdOf("h", "r1", "orders"))
			wins := slices.Contains(c.holds, "h")
			if wins != (err == nil) || !wins && !errors.Is(err, ErrHeld) || errors.Is(err, ErrOutcomeUnknown) {
				t.Fatal(err)
			}
			if _, holds := state.Hold("h"); holds != wins {
				t.Errorf("it was told %+v", state)
			}
			mustHold(t, etcd, c.epoch, c.holds...)
		})
	}
}

func lostReleaseAnswer(t *testing.T, etcd *member) {
	bump := func(t *testing.T, s *Store) { bumped(t, s, 0) }
	for _, c := range []struct {
		name    string
		verdict fate
		others  func(*testing.T, *Store)
		want    error
		epoch   uint64
	}{
		{"applied", loseAnswer, func(*testing.T, *Store) {}, nil, 2},
		{"not applied", vanish, func(*testing.T, *Store) {}, nil, 2},
		{"applied, others go on", loseAnswer, bump, nil, 3},
		{"not applied, others go on", vanish, bump, nil, 3},
		{"not applied, and released by somebody", vanish, func(t *testing.T, s *Store) { released(t, s, "h", 0) }, ErrNotHeld, 2},
		{"applied, too many go on", loseAnswer, func(t *testing.T, s *Store) {
			for range keptAttempts {
				bumped(t, s, 0)
			}
		}, ErrOutcomeUnknown, 2 + keptAttempts},
	} {
		t.Run(c.name, func(t *testing.T) {
			others := living(t, etcd, "r1")
			held(t, others, holdOf("h", "r1", "orders"))
			s := losing(t, etcd, c.verdict, func() { c.others(t, others) })
			if _, err := s.Release(testContext(t), "h", 0); !errors.Is(err, c.want) {
				t.Fatal(err)
			}
			mustHold(t, etcd, c.epoch)
		})
	}
}

func lostHoldEtcdAway(t *testing.T, etcd *member) {
	for name, verdict := range map[string]fate{"applied": loseAnswer, "not applied": vanish, "applied late": vanish} {
		t.Run(name, func(t *testing.T) {
			living(t, etcd, "r1")
			var sent *pb.TxnRequest
			w := &wire{decide: func(_ int, txn *pb.TxnRequest) fate {
				sent = txn
				return verdict
			}}
			s := openStore(t, etcd.endpoints(), w.use, impatient)
			_, err := s.Hold(testContext(t), holdOf("h", "r1", "orders"))
			if !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, ErrUnavailable) {
				t.Fatal(err)
			}
			w.decide = func(int, *pb.TxnRequest) fate { return arrive }
			before := schemaOf(t, etcd).Epoch
			s.ReleaseInBackground("h", 0)
			eventually(t, "the state is written", func() bool { return schemaOf(t, etcd).Epoch > before })
			if name == "applied late" {
				if _, err := pb.NewKVClient(rawClient(t, etcd.endpoints()).ActiveConnection()).Txn(testContext(t), sent); err != nil {
					t.Fatal(err)
				}
			}
			mustHold(t, etcd, before+1)
		})
	}
}

func twoHolders(t *testing.T, etcd *member) {
	for name, c := range map[string]struct{ first, second []string }{
		"the same":          {[]string{"orders"}, []string{"orders"}},
		"one of many":       {[]string{"users", "orders"}, []string{"items", "orders"}},
		"all after one":     {[]string{"orders"}, nil},
		"one after all":     {nil, []string{"orders"}},
		"all after all":     {nil, nil},
		"of the same owner": {[]string{"orders"}, []string{"orders"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := living(t, etcd, "r1", "r2")
			first := holdOf("first", "r1", c.first...)
			first.Since = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			held(t, s, first)
			holder := "r2"
			if name == "of the same owner" {
				holder = "r1"
			}
			_, err := s.Hold(testContext(t), holdOf("second", holder, c.second...))
			var inTheWay *HeldError
			if !errors.As(err, &inTheWay) || !errors.Is(err, ErrHeld) || cmp.Diff(inTheWay.Hold, first) != "" {
				t.Fatal(err)
			}
			for _, word := range []string{"router r1", "2026-01-02T03:04:05Z", "ALTER TABLE"} {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %s", err, word)
				}
			}
			mustHold(t, etcd, 1, "first")
		})
	}
	t.Run("a race", func(t *testing.T) { raceForTable(t, etcd) })
	t.Run("the same hold again", func(t *testing.T) {
		s := living(t, etcd, "r1")
		held(t, s, holdOf("h", "r1", "orders"))
		held(t, s, holdOf("h", "r1", "orders"))
		if _, err := s.Hold(testContext(t), holdOf("h", "r1", "users")); !errors.Is(err, ErrExists) {
			t.Errorf("another hold of the same name: %v", err)
		}
		mustHold(t, etcd, 1, "h")
	})
	t.Run("a holder without a record", func(t *testing.T) {
		s := living(t, etcd, "r1")
		if _, err := s.Hold(testContext(t), holdOf("h", "stranger", "orders")); !errors.Is(err, ErrNotRegistered) {
			t.Error(err)
		}
		for _, bad := range []topology.Hold{holdOf("", "r1"), holdOf("h", "")} {
			if _, err := s.Hold(testContext(t), bad); err == nil {
				t.Errorf("hold %+v was taken", bad)
			}
		}
		mustHold(t, etcd, 0)
	})
	t.Run("a holder whose record goes meanwhile", func(t *testing.T) {
		r := register(t, living(t, etcd), Router{ID: "r1"})
		s, _ := wired(t, etcd, func(write int, _ *pb.TxnRequest) fate {
			if write == 0 {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}
			return arrive
		})
		if _, err := s.Hold(testContext(t), holdOf("h", "r1", "orders")); !errors.Is(err, ErrNotRegistered) {
			t.Error(err)
		}
		mustHold(t, etcd, 0)
	})
}

func raceForTable(t *testing.T, etcd *member) {
	const holders = 6
	s := living(t, etcd, "r1")
	results := make(chan error)
	for i := range holders {
		go func() { results <- second(s.Hold(testContext(t), holdOf(strconv.Itoa(i), "r1", "orders"))) }()
	}
	won := 0
	for range holders {
		if err := <-results; err == nil {
			won++
		} else if !errors.Is(err, ErrHeld) {
			t.Error(err)
		}
	}
	if state := schemaOf(t, etcd); won != 1 || len(state.Holds) != 1 || state.Epoch != 1 {
		t.Errorf("%d have the table: %+v", won, state)
	}
}

func differentTables(t *testing.T, etcd *member) {
	s := living(t, etcd, "r1", "r2")
	held(t, s, holdOf("a", "r1", "orders"))
	state := held(t, s, holdOf("b", "r2", "users", "Odd.Name"))
	for name, id := range map[string]string{"orders": "a", "users": "b", "Odd.Name": "b", "items": ""} {
		for where, state := range map[string]topology.SchemaState{"returned": state, "stored": schemaOf(t, etcd)} {
			if hold, _ := state.HeldBy(topology.TableName{Schema: "public", Name: name}); hold.ID != id {
				t.Errorf("%s: table %s is held by %q", where, name, hold.ID)
			}
		}
	}
	released(t, s, "a", 0)
	mustHold(t, etcd, 3, "b")
	mustNotHold(t, s, "a")
	if err := s.Holding(testContext(t), "b"); err != nil {
		t.Error(err)
	}
	mustHold(t, etcd, 3, "b")
}

// mustBeLate checks who is waited for in vain.
func mustBeLate(t *testing.T, s *Store, epoch uint64, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(testContext(t), 300*time.Millisecond)
	defer cancel()
	late, err := s.AwaitSchema(ctx, epoch)
	var names []string
	for _, r := range late {
		names = append(names, r.ID)
	}
	if err != nil || !slices.Equal(names, want) {
		t.Fatalf("late are %v, want %v: %v", names, want, err)
	}
}

func routerJoins(t *testing.T, etcd *member) {
	s := living(t, etcd)
	first := register(t, s, Router{ID: "r1", Name: "a"})
	epoch := held(t, s, holdOf("h", "r1", "orders")).Epoch
	first.SetSchemaApplied(epoch)
	mustBeLate(t, s, epoch)

	joined := register(t, s, Router{ID: "r2", Name: "b"})
	mustBeLate(t, s, epoch, "r2")
	joined.SetSchemaApplied(epoch - 1)
	mustBeLate(t, s, epoch, "r2")
	done := make(chan error)
	go func() { done <- second(s.AwaitSchema(testContext(t), epoch)) }()
	joined.SetSchemaApplied(epoch)
	joined.SetSchemaApplied(epoch - 1)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if late, err := s.AwaitSchema(testContext(t), epoch); err != nil || len(late) != 0 {
		t.Errorf("late are %v: %v", late, err)
	}
}

func awaitedRouterDies(t *testing.T, etcd *member) {
	s := living(t, etcd, "r1")
	p := startProxy(t, etcd.endpoints()[0])
	register(t, openStore(t, p.endpoints(), impatient), Router{ID: "dead"})
	epoch := bumped(t, s, 0).Epoch
	mustBeLate(t, s, epoch, "dead", "r1")
	p.set(refusing)
	eventually(t, "it is waited for the living alone", func() bool {
		ctx, cancel := context.WithTimeout(testContext(t), 100*time.Millisecond)
		defer cancel()
		late, err := s.AwaitSchema(ctx, epoch)
		return err == nil && len(late) == 1 && late[0].ID == "r1"
	})
}

// cutOff registers a holder that holds a table and is then cut off until its record is gone.
func cutOff(t *testing.T, etcd *member, hold topology.Hold) (*Store, *proxy) {
	t.Helper()
	p := startProxy(t, etcd.endpoints()[0])
	s := openStore(t, p.endpoints(), impatient)
	register(t, s, Router{ID: hold.Holder})
	held(t, s, hold)
	p.set(refusing)
	other := openStore(t, etcd.endpoints())
	eventually(t, "the record expires", func() bool {
		return !slices.ContainsFunc(routers(t, other), func(r Router) bool { return r.ID == hold.Holder })
	})
	return s, p
}

func holderCutOff(t *testing.T, etcd *member) {
	m := newMap(t, 4)
	createMap(t, etcd, m)
	leader := living(t, etcd, "leader")
	holder, p := cutOff(t, etcd, holdOf("h", "r1", "orders"))
	if _, err := leader.TakeOver(testContext(t), "h", "stranger"); !errors.Is(err, ErrNotRegistered) {
		t.Errorf("taken over by one without a record: %v", err)
	}
	taken, err := leader.TakeOver(testContext(t), "h", "leader")
	if err != nil || taken.ID == "h" || taken.Origin != "h" || taken.First() != "h" || taken.Holder != "leader" || !taken.TakenOver() {
		t.Fatalf("%+v: %v", taken, err)
	}
	p.set(passing)
	eventually(t, "the holder is back", func() bool { return len(routers(t, leader)) == 2 })
	mustNotHold(t, holder, "h")
	mustBeCurrent(t, etcd, m)
	mustHold(t, etcd, 2, taken.ID)
	if stored, ok := schemaOf(t, etcd).HeldBy(topology.TableName{Schema: "public", Name: "orders"}); !ok || cmp.Diff(stored, taken) != "" {
		t.Errorf("the table is held by %+v", stored)
	}
	changed, err := leader.UpdateHolding(testContext(t), taken.ID, func(m *topology.Map) (*topology.Map, error) { return m.Next(addShard("three")) })
	if err != nil {
		t.Fatal(err)
	}
	mustBeCurrent(t, etcd, changed)
	if state := released(t, leader, taken.ID, changed.Version()); state.MapVersion != changed.Version() {
		t.Errorf("released with map version %d", state.MapVersion)
	}
	if state := bumped(t, leader, 1); state.MapVersion != changed.Version() {
		t.Errorf("the version of the map went back to %d", state.MapVersion)
	}
	t.Run("between asking and writing", func(t *testing.T) { takenOverWhileWriting(t, etcd) })
}

// takenOverWhileWriting: the holder loses its hold after it was looked for, and before the map is written.
func takenOverWhileWriting(t *testing.T, etcd *member) {
	m := newMap(t, 4)
	createMap(t, etcd, m)
	others := living(t, etcd, "r1")
	held(t, others, holdOf("h", "r1", "orders"))
	s, _ := wired(t, etcd, func(write int, _ *pb.TxnRequest) fate {
		if write == 0 {
			released(t, others, "h", 0)
		}
		return arrive
	})
	_, err := s.UpdateHolding(testContext(t), "h", func(m *topology.Map) (*topology.Map, error) { return m.Next(addShard("never")) })
	if !errors.Is(err, ErrNotHeld) {
		t.Error(err)
	}
	mustBeCurrent(t, etcd, m)
}

func holderComesBack(t *testing.T, etcd *member) {
	living(t, etcd, "leader")
	_, p := cutOff(t, etcd, holdOf("h", "r1", "orders"))
	var leader *Store
	leader, _ = wired(t, etcd, func(write int, _ *pb.TxnRequest) fate {
		if write == 0 {
			p.set(passing)
			eventually(t, "the holder is back", func() bool { return len(routers(t, leader)) == 2 })
		}
		return arrive
	})
	if _, err := leader.TakeOver(testContext(t), "h", "leader"); !errors.Is(err, ErrHolderLives) {
		t.Errorf("taken over from one who lives: %v", err)
	}
	mustHold(t, etcd, 1, "h")
}

func twoTakeOver(t *testing.T, etcd *member) {
	s := living(t, etcd, "old", "new")
	cutOff(t, etcd, holdOf("h", "r1", "orders"))
	first, err := s.TakeOver(testContext(t), "h", "old")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.TakeOver(testContext(t), "h", "new"); !errors.Is(err, ErrNotHeld) {
		t.Errorf("taken over twice: %v", err)
	}
	second, err := s.TakeOver(testContext(t), first.ID, "new") // the leadership has changed, and its former owner lives
	if err != nil || second.Origin != "h" || second.ID == first.ID || second.Holder != "new" {
		t.Fatalf("%+v: %v", second, err)
	}
	if _, err := s.Release(testContext(t), first.ID, 0); !errors.Is(err, ErrNotHeld) {
		t.Errorf("released by the one before: %v", err)
	}
	mustHold(t, etcd, 3, second.ID)
}

// adopted waits until the follower has the state.
func adopted(t *testing.T, f *Follower, want topology.SchemaState) {
	t.Helper()
	got, err := f.WaitSchema(testContext(t), want.Epoch)
	if err != nil {
		t.Fatal(err)
	}
	if got.Epoch == want.Epoch && cmp.Diff(got, want) != "" {
		t.Fatalf("epoch %d arrived as another state: %s", want.Epoch, cmp.Diff(got, want))
	}
	if status := f.Status(); status.Epoch < want.Epoch {
		t.Errorf("its status says %+v", status)
	}
}

// sawSchema waits until the follower has seen what is stored, whether or not it has adopted it.
func sawSchema(t *testing.T, f *Follower, epoch uint64) {
	t.Helper()
	eventually(t, fmt.Sprintf("the follower sees epoch %d", epoch), func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.offered.Epoch == epoch
	})
}

func schemaWentBack(t *testing.T, etcd *member) {
	s := living(t, etcd, "r1")
	r := register(t, s, Router{ID: "r2", Name: "r2"})
	bumped(t, s, 0)
	backup, err := rawClient(t, etcd.endpoints()).Get(testContext(t), s.keys.schema)
	if err != nil {
		t.Fatal(err)
	}
	f, log := followLogged(t, etcd)
	state := held(t, s, holdOf("h", "r1", "orders"))
	adopted(t, f, state)
	r.SetSchemaApplied(state.Epoch)
	eventually(t, "the record is up to date", func() bool { return slices.Contains(routers(t, s), r.Router()) })

	if _, err := rawClient(t, etcd.endpoints()).Put(testContext(t), s.keys.schema, string(backup.Kvs[0].Value)); err != nil {
		t.Fatal(err)
	}
	sawSchema(t, f, 1)
	if diff := cmp.Diff(f.Schema(), state); diff != "" {
		t.Errorf("the follower went back: %s", diff)
	}
	// Others went on from there, and were given the epoch a second time.
	fork, err := storedSchema{state: topology.SchemaState{Epoch: state.Epoch}}.encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, stored := range []struct {
		value string
		epoch uint64
	}{{fork, state.Epoch}, {string(backup.Kvs[0].Value), 1}} {
		if _, err := rawClient(t, etcd.endpoints()).Put(testContext(t), s.keys.schema, stored.value); err != nil {
			t.Fatal(err)
		}
		sawSchema(t, f, stored.epoch)
		if diff := cmp.Diff(f.Schema(), state); diff != "" {
			t.Errorf("the follower went over to another history: %s", diff)
		}
	}
	if n := log.count("a later one was there before"); n != 1 {
		t.Errorf("it was reported %d times", n)
	}

	stranger := openStore(t, etcd.endpoints()) // it has seen nothing of the time that is lost
	if overview, err := stranger.SchemaOverview(testContext(t)); err != nil || !overview.WentBack() {
		t.Errorf("that it went back is not seen: %+v, %v", overview, err)
	}
	if _, err := stranger.AwaitSchema(testContext(t), state.Epoch); !errors.Is(err, ErrWentBack) {
		t.Errorf("waiting for what is not stored any more: %v", err)
	}
	mustBeLate(t, stranger, 1, "r1", "r2")
	// A record counts, and so does what a process has seen itself.
	beyond := bumped(t, stranger, 0)
	if beyond.Epoch != state.Epoch+1 {
		t.Errorf("the epoch after it is %d", beyond.Epoch)
	}
	adopted(t, f, beyond)
	if err := s.Holding(testContext(t), "h"); !errors.Is(err, ErrNotHeld) {
		t.Errorf("the hold that is lost: %v", err)
	}
}

func schemaEmptied(t *testing.T, etcd *member) {
	s := living(t, etcd, "r1")
	f, log := followLogged(t, etcd)
	state := held(t, s, holdOf("h", "r1", "orders"))
	adopted(t, f, state)
	if _, err := rawClient(t, etcd.endpoints()).Delete(testContext(t), s.keys.schema); err != nil {
		t.Fatal(err)
	}
	sawSchema(t, f, 0)
	if diff := cmp.Diff(f.Schema(), state); diff != "" {
		t.Errorf("the follower went back: %s", diff)
	}
	if n := log.count("a later one was there before"); n != 1 {
		t.Errorf("it was reported %d times", n)
	}
	if overview, err := f.store.SchemaOverview(testContext(t)); err != nil || !overview.WentBack() {
		t.Errorf("that it went back is not seen: %+v, %v", overview, err)
	}
	beyond := bumped(t, f.store, 0)
	if beyond.Epoch != state.Epoch+1 || len(beyond.Holds) != 0 {
		t.Errorf("after it comes %+v", beyond)
	}
	adopted(t, f, beyond)
}

func schemaAway(t *testing.T, etcd *member) {
	s := living(t, etcd, "r1")
	f := follow(t, openStore(t, etcd.endpoints(), impatient))
	state := held(t, s, holdOf("h", "r1", "orders"))
	adopted(t, f, state)
	etcd.stop(t)
	eventually(t, "the follower notices", func() bool { return !f.Status().Connected })
	if diff := cmp.Diff(f.Schema(), state); diff != "" {
		t.Errorf("without etcd the state is another: %s", diff)
	}
	hasty := openStore(t, etcd.endpoints(), impatient)
	for name, err := range map[string]error{
		"hold":    second(hasty.Hold(testContext(t), holdOf("x", "r1"))),
		"release": second(hasty.Release(testContext(t), "h", 0)),
		"bump":    second(hasty.Bump(testContext(t), 0)),
		"await":   second(hasty.AwaitSchema(testContext(t), 1)),
		"ask":     hasty.Holding(testContext(t), "h"),
	} {
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, ErrNotHeld) {
			t.Errorf("%s: %v", name, err)
		}
	}
	etcd.start(t)
	adopted(t, f, released(t, s, "h", 0))
}

func schemaBeforeMap(t *testing.T, etcd *member) {
	m := newMap(t, 4)
	s := createMap(t, etcd, m)
	f := follow(t, openStore(t, etcd.endpoints()))
	waitFor(t, f, m)
	state := bumped(t, s, m.Version()+1)
	sawSchema(t, f, state.Epoch)
	if got := f.Schema(); got.Epoch != 0 {
		t.Fatalf("epoch %d was adopted with map version %d, it needs %d", got.Epoch, f.Map().Version(), got.MapVersion)
	}
	early := follow(t, openStore(t, etcd.endpoints())) // one that starts in between
	waitFor(t, early, m)
	sawSchema(t, early, state.Epoch)
	swap(t, s, m, addShard("three"))
	for _, f := range []*Follower{f, early} {
		adopted(t, f, state)
		if f.Map().Version() < state.MapVersion {
			t.Errorf("it was adopted with map version %d", f.Map().Version())
		}
	}
}

func schemaOfRefusedMap(t *testing.T, etcd *member) {
	m := newMap(t, 4)
	s := createMap(t, etcd, m)
	f, log := followLogged(t, etcd)
	waitFor(t, f, m)
	if _, err := rawClient(t, etcd.endpoints()).Delete(testContext(t), s.config.Prefix, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	// Maps and states are watched each by itself: one that came before the map's end was seen would be adopted with the map.
	eventually(t, "the map is gone", func() bool { return errors.Is(f.Status().LastError, ErrNoMap) })
	state := bumped(t, s, 0)
	sawSchema(t, f, state.Epoch)
	if epoch := f.Schema().Epoch; epoch != 0 {
		t.Errorf("epoch %d was adopted though the map is gone", epoch)
	}
	other := newMapOf(t, otherCluster, 4)
	if err := s.Create(testContext(t), other); err != nil {
		t.Fatal(err)
	}
	mustRefuse(t, f, log, m, &OtherClusterError{Held: m.Cluster(), Offered: other.Cluster()})
	if epoch := f.Schema().Epoch; epoch != 0 {
		t.Errorf("epoch %d of another cluster was adopted", epoch)
	}
}

// manyBumps has every caller look before the first one writes.
func manyBumps(t *testing.T, etcd *member) {
	const callers = 10
	bumped(t, openStore(t, etcd.endpoints()), 0)
	var looked sync.WaitGroup
	looked.Add(callers)
	s, w := wired(t, etcd, func(write int, _ *pb.TxnRequest) fate {
		if write < callers {
			looked.Done()
			looked.Wait()
		}
		return arrive
	})
	results := make(chan topology.SchemaState)
	for range callers {
		go func() {
			state, err := s.Bump(testContext(t), 0)
			if err != nil {
				t.Error(err)
			}
			results <- state
		}()
	}
	for range callers {
		if state := <-results; state.Epoch != 2 {
			t.Errorf("one of them has epoch %d", state.Epoch)
		}
	}
	if w.writes != callers {
		t.Errorf("%d writes were tried", w.writes)
	}
	mustHold(t, etcd, 2)

	// A change that brings no map new enough does not serve.
	others := openStore(t, etcd.endpoints())
	late, _ := wired(t, etcd, func(write int, _ *pb.TxnRequest) fate {
		if write == 0 {
			bumped(t, others, 7)
		}
		return arrive
	})
	if state := bumped(t, late, 8); state.Epoch != 4 || state.MapVersion != 8 {
		t.Errorf("asked for map version 8, got %+v", state)
	}
}

func silentSchemaWatch(t *testing.T, etcd *member) {
	s, w := openStore(t, etcd.endpoints()), &wire{}
	f := follow(t, openStore(t, etcd.endpoints(), w.use, impatient))
	adopted(t, f, bumped(t, s, 0))
	adopted(t, f, bumped(t, s, 0)) // This one comes through the watch, which is thus in place.
	w.deaf.Store(true)
	adopted(t, f, bumped(t, s, 0))
	w.deaf.Store(false)
}

func laterSchemaFormat(t *testing.T, etcd *member) {
	s := living(t, etcd, "r1")
	f := follow(t, openStore(t, etcd.endpoints()))
	state := bumped(t, s, 0)
	adopted(t, f, state)
	client := rawClient(t, etcd.endpoints())
	future := fmt.Sprintf(`{"format":%d,"epoch":2}`, schemasFormat+1)
	if _, err := client.Put(testContext(t), s.keys.schema, future); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the follower says so", func() bool {
		err := f.Status().LastError
		return err != nil && strings.Contains(err.Error(), fmt.Sprintf("format %d", schemasFormat+1))
	})
	if diff := cmp.Diff(f.Schema(), state); diff != "" {
		t.Errorf("it was adopted: %s", diff)
	}
	for name, err := range map[string]error{
		"hold": second(s.Hold(testContext(t), holdOf("x", "r1"))), "bump": second(s.Bump(testContext(t), 0)),
		"await": second(s.AwaitSchema(testContext(t), 1)), "ask": s.Holding(testContext(t), "x"),
	} {
		if err == nil || errors.Is(err, ErrNotHeld) || !strings.Contains(err.Error(), fmt.Sprintf("format %d", schemasFormat+1)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if stored, err := client.Get(testContext(t), s.keys.schema); err != nil || string(stored.Kvs[0].Value) != future {
		t.Errorf("it was written over: %v, %v", stored, err)
	}
}

// TestDamagedSchemaState: what comes from the network is refused, not trusted.
func TestDamagedSchemaState(t *testing.T) {
	hold := holdOf("h", "r1", "orders", "Odd.Name")
	hold.Origin, hold.Since = "g", time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	good := storedSchema{state: topology.SchemaState{Epoch: 7, MapVersion: 3, Holds: []topology.Hold{hold}}, attempts: lineage{newAttempt(), newAttempt()}}
	value, err := good.encode()
	if err != nil {
		t.Fatal(err)
	}
	read, err := decodeSchema(&mvccpb.KeyValue{Value: []byte(value), ModRevision: 5})
	if err != nil || cmp.Diff(read.state, good.state) != "" || !slices.Equal(read.attempts, good.attempts) || read.revision != 5 {
		t.Fatalf("%+v was read: %v", read, err)
	}
	for n := range value {
		if _, err := decodeSchema(&mvccpb.KeyValue{Value: []byte(value[:n])}); err == nil {
			t.Fatalf("the first %d bytes of a state were taken for one", n)
		}
	}
	for _, bad := range []string{
		`{}`, `{"format":1,"holds":[{"id":"h","tables":["a.b.c"]}]}`, `{"format":1,"attempts":["00"]}`, `{"format":1,"attempts":["zz"]}`,
		`{"format":1,"attempts":["` + strings.Repeat("00", 17) + `"]}`, `{"format":1,"epoch":-1}`,
	} {
		if _, err := decodeSchema(&mvccpb.KeyValue{Value: []byte(bad)}); err == nil {
			t.Errorf("%s was taken for a state", bad)
		}
	}
	many := storedSchema{state: topology.SchemaState{Holds: []topology.Hold{{ID: "h", Why: strings.Repeat("x", maxSchemaBytes)}}}}
	if _, err := many.encode(); err == nil {
		t.Error("a state was made that etcd does not take")
	}
}

// testSchema is what holds for every etcd: a change reaches every follower, and its writer hears when it has.
func testSchema(t *testing.T, etcd testEtcd) {
	s, m := created(t, etcd)
	var followers []*Follower
	var records []*Registration
	for i := range 3 {
		own := living(t, etcd)
		records = append(records, register(t, own, Router{ID: strconv.Itoa(i)}))
		followers = append(followers, follow(t, own))
		waitFor(t, followers[i], m)
		if state := followers[i].Schema(); cmp.Diff(state, topology.SchemaState{}) != "" {
			t.Errorf("before the first change there is %+v", state)
		}
	}
	for round := range 3 {
		epoch := held(t, s, holdOf("h", "1", "orders")).Epoch
		done := make(chan error)
		go func() { done <- second(s.AwaitSchema(testContext(t), epoch)) }()
		for i, f := range followers {
			state, err := f.WaitSchema(testContext(t), epoch)
			if _, heldHere := state.Hold("h"); err != nil || !heldHere {
				t.Fatalf("round %d: %+v: %v", round, state, err)
			}
			records[i].SetSchemaApplied(state.Epoch)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		changed := followers[0].Changed()
		m = swap(t, s, m, addShard(fmt.Sprintf("s%d", round)))
		epoch = released(t, s, "h", m.Version()).Epoch
		<-changed
		for _, f := range followers {
			state, err := f.WaitSchema(testContext(t), epoch)
			if err != nil || len(state.Holds) != 0 || f.Map().Version() < m.Version() {
				t.Fatalf("round %d: %+v with map version %d: %v", round, state, f.Map().Version(), err)
			}
		}
	}
}

// testSchemaRace lets many hold and release tables while etcd is disturbed. Every change must have been made, once.
func testSchemaRace(t *testing.T, etcd testEtcd) {
	const holders, rounds = 4, 5
	living(t, etcd, "r1")
	var all sync.WaitGroup
	half := make(chan struct{}, holders*rounds)
	for h := range holders {
		s := openStore(t, etcd.endpoints(), patient)
		all.Go(func() {
			for range rounds {
				id := strconv.Itoa(h)
				err := second(s.Hold(testContext(t), holdOf(id, "r1", "table"+id)))
				if err == nil {
					err = second(s.Release(testContext(t), id, 0))
				}
				if err != nil {
					t.Errorf("holder %d: %v", h, err)
				}
				half <- struct{}{}
			}
		})
	}
	for range holders * rounds / 3 {
		<-half
	}
	mend := etcd.disturb(t)
	all.Wait()
	mend()
	mustHold(t, etcd, 2*holders*rounds)
}
