package store

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cleavedb/cleave/internal/topology"
)

func TestConfigIsChecked(t *testing.T) {
	for name, config := range map[string]Config{
		"endpoint":        {},
		"empty":           {Endpoints: []string{" "}},
		"password":        {Endpoints: []string{"a"}, Username: "u"},
		"lease":           {Endpoints: []string{"a"}, LeaseTTL: time.Millisecond},
		"request timeout": {Endpoints: []string{"a"}, RequestTimeout: -1},
	} {
		if _, err := Open(config); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c := (Config{Prefix: "/x"}).withDefaults(); c.Prefix != "/x/" {
		t.Errorf("prefix %q", c.Prefix)
	}
	if c := (Config{}).withDefaults(); c.Prefix != DefaultPrefix || c.RequestTimeout != DefaultRequestTimeout {
		t.Errorf("defaults %+v", c)
	}
}

// TestDamagedHead: what comes from the network is refused, not trusted.
func TestDamagedHead(t *testing.T) {
	good := head{attempts: []attempt{newAttempt(), newAttempt()}, data: newMap(t, 2).Manifest()}.encode()
	if h, err := decodeHead(&mvccpb.KeyValue{Value: good, ModRevision: 5}); err != nil || h.revision != 5 || len(h.attempts) != 2 {
		t.Fatal(err)
	}
	for n := range good {
		if _, err := decodeHead(&mvccpb.KeyValue{Value: good[:n]}); err == nil {
			t.Fatalf("the first %d bytes of a head were taken for one", n)
		}
	}
	good[0] = headFormat + 1
	if _, err := decodeHead(&mvccpb.KeyValue{Value: good}); err == nil || !strings.Contains(err.Error(), "format 2") {
		t.Errorf("a head of the future: %v", err)
	}
}

// TestHeadInOtherWords: another version of this program may write a head differently, and one can still go on from its map.
func TestHeadInOtherWords(t *testing.T) {
	etcd := startMember(t)
	m := newMap(t, 2)
	s := openStore(t, etcd.endpoints())
	if err := s.Create(testContext(t), m); err != nil {
		t.Fatal(err)
	}
	h, _, err := s.readHead(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	h.data = append([]byte(`{"from_the_future":true,`), h.data[1:]...)
	if _, err := rawClient(t, etcd.endpoints()).Put(testContext(t), s.keys.head, string(h.encode())); err != nil {
		t.Fatal(err)
	}
	read, err := s.Map(testContext(t))
	if err != nil || !equalMaps(read, m) {
		t.Fatalf("another map was read: %v", err)
	}
	if err := s.Swap(testContext(t), read, next(t, read)); err != nil {
		t.Error(err)
	}
}

// TestKnownPiecesAreNotNeeded: what a process has seen before may help it to build a map, never hinder it.
func TestKnownPiecesAreNotNeeded(t *testing.T) {
	known, stored, other := newMap(t, 2), newMap(t, 4), newMapOf(t, otherCluster, 4)
	harmful, away := errors.New("these pieces do not fit"), &fetchError{errors.New("etcd is away")}
	for name, c := range map[string]struct {
		known, built *topology.Map
		err          error // of the first build
		builds       int
	}{
		"nothing is known":        {nil, stored, nil, 1},
		"nothing, and it fails":   {nil, stored, harmful, 1},
		"it helps":                {known, stored, nil, 1},
		"it hinders":              {known, stored, harmful, 2},
		"it is another cluster's": {known, other, nil, 2},
		"etcd is away":            {known, stored, away, 1},
	} {
		builds := 0
		m, err := withHelpOf(c.known, func(previous *topology.Map) (*topology.Map, error) {
			if builds++; builds == 1 && previous != c.known || builds == 2 && previous != nil {
				t.Errorf("%s: build %d had another map at hand", name, builds)
			}
			if builds == 1 && c.err != nil {
				return nil, c.err
			}
			return c.built, nil
		})
		if builds != c.builds {
			t.Errorf("%s: %d builds", name, builds)
		}
		if failed := c.err != nil && c.builds == 1; failed != (err != nil) || !failed && m != c.built {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRefusedConnectionIsCertain: what was never sent was surely not applied.
func TestRefusedConnectionIsCertain(t *testing.T) {
	s := openStore(t, []string{"127.0.0.1:" + strconv.Itoa(freePorts(t, 1)[0])}, impatient)
	_, _, err := s.commit(testContext(t), transaction{action: "write", then: []clientv3.Op{clientv3.OpPut("key", "value")}})
	if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOutcomeUnknown) || !strings.Contains(err.Error(), "connection refused") {
		t.Error(err)
	}
}

// TestClosing ends everything by closing the store, twice, and then uses what is left.
func TestClosing(t *testing.T) {
	etcd := startMember(t)
	s := openStore(t, etcd.endpoints())
	m := newMap(t, 2)
	if err := s.Create(testContext(t), m); err != nil {
		t.Fatal(err)
	}
	f, r, l := follow(t, s), register(t, s, Router{}), campaign(t, s, "leader")
	waitFor(t, f, m)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	<-l.Done()
	f.Close()
	f.Close()
	if !equalMaps(f.Map(), m) {
		t.Error("the last map is gone")
	}
	for name, err := range map[string]error{
		"close":    r.Close(),
		"resign":   l.Resign(testContext(t)),
		"wait":     second(f.Wait(testContext(t), m.Version())),
		"follow":   second(s.Follow(testContext(t))),
		"register": second(s.Register(testContext(t), Router{})),
		"campaign": second(s.Campaign(testContext(t), "x")),
		"read":     second(s.Map(testContext(t))),
		"too late": second(f.Wait(testContext(t), m.Version()+1)),
		"hold":     second(s.Hold(testContext(t), holdOf("h", "r"))),
		"await":    second(s.AwaitSchema(testContext(t), 1)),
		"no epoch": second(f.WaitSchema(testContext(t), 1)),
	} {
		harmless := name == "close" || name == "resign" || name == "wait"
		if harmless && err != nil || !harmless && !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestContextsCancel lets etcd take connections and say nothing, and has callers change their minds.
func TestContextsCancel(t *testing.T) {
	etcd := startMember(t)
	p := startProxy(t, etcd.endpoints()[0])
	s := openStore(t, p.endpoints(), func(c *Config) { c.RequestTimeout = time.Hour })
	m := newMap(t, 2)
	if err := s.Create(testContext(t), m); err != nil {
		t.Fatal(err)
	}
	f := follow(t, s)
	waitFor(t, f, m)
	p.set(silent)
	changed := next(t, m)
	for name, call := range map[string]func(context.Context) error{
		"read":     func(ctx context.Context) error { return second(s.Map(ctx)) },
		"swap":     func(ctx context.Context) error { return s.Swap(ctx, m, changed) },
		"register": func(ctx context.Context) error { return second(s.Register(ctx, Router{})) },
		"campaign": func(ctx context.Context) error { return second(s.Campaign(ctx, "x")) },
		"wait":     func(ctx context.Context) error { return second(f.Wait(ctx, changed.Version())) },
		"hold":     func(ctx context.Context) error { return second(s.Hold(ctx, holdOf("h", "r"))) },
		"await":    func(ctx context.Context) error { return second(s.AwaitSchema(ctx, 1)) },
		"no epoch": func(ctx context.Context) error { return second(f.WaitSchema(ctx, 1)) },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() { result <- call(ctx) }()
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.Close() // must not wait for etcd either
}

func TestUserAndPassword(t *testing.T) {
	etcd := startMember(t)
	admin := rawClient(t, etcd.endpoints())
	as := func(password string) func(*Config) {
		return func(c *Config) { c.Username, c.Password = "root", password }
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(second(admin.UserAdd(testContext(t), "root", "right")))
	must(second(admin.UserGrantRole(testContext(t), "root", "root")))
	must(second(admin.AuthEnable(testContext(t))))

	m := newMap(t, 2)
	right := openStore(t, etcd.endpoints(), as("right"))
	must(right.Create(testContext(t), m))
	waitFor(t, follow(t, right), m)
	for name, s := range map[string]*Store{
		"wrong password": openStore(t, etcd.endpoints(), as("wrong")), "nobody": openStore(t, etcd.endpoints()),
	} {
		if _, err := s.Map(testContext(t)); err == nil || errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}

	etcd.stop(t) // Opening does not need etcd, a login does.
	if _, err := openStore(t, etcd.endpoints(), as("right"), impatient).Map(testContext(t)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("without etcd: %v", err)
	}
	f := follow(t, openStore(t, etcd.endpoints(), as("right")))
	etcd.start(t)
	waitFor(t, f, m)
}
