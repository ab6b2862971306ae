package moves_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/faults"
	"github.com/cleavedb/cleave/test/moves"
)

// TestMain lets tests run side by side: most of the time they wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "2"); err != nil {
		panic(err)
	}
	os.Exit(faults.Main(m))
}

// patience is how long anything may take on a machine that has much else to do.
const patience = 3 * time.Minute

// stage is a cluster under load.
type stage struct {
	*faults.Cluster
	load *moves.Load
}

func newStage(t *testing.T, config faults.Config, writers int) *stage {
	t.Helper()
	c := faults.Start(t, config)
	load, err := moves.NewLoad(t.Context(), c, writers)
	if err != nil {
		t.Fatal(err)
	}
	if thorough.Asked() {
		load.Think = 20 * time.Millisecond
	}
	return &stage{Cluster: c, load: load}
}

// half is a half of what a shard owns, in the order of the hash: the map gives each shard one range at first.
func (s *stage) start(t *testing.T, request api.StartMove) string {
	t.Helper()
	var list api.MoveList
	var err error
	for range 50 {
		for _, r := range s.Routers {
			if list, err = r.API().StartMoves(t.Context(), request); err == nil {
				return list.Moves[0].ID
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Fatal(err)
	return ""
}

// await waits until a move is in one of the phases.
func (s *stage) await(t *testing.T, id string, phases ...string) api.Move {
	t.Helper()
	deadline := time.Now().Add(patience)
	var last api.Move
	for time.Now().Before(deadline) {
		for _, r := range s.Routers {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			m, err := r.API().Move(ctx, id)
			cancel()
			if err != nil {
				continue
			}
			last = m
			for _, phase := range phases {
				if m.Phase == phase {
					return m
				}
			}
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("move %s is %s after %s: waiting %q, error %q, stopped %q", id, last.Phase, patience, last.Waiting, last.Error, last.Stopped)
	return last
}

// finish stops the load and looks at everything.
func (s *stage) finish(t *testing.T) {
	t.Helper()
	s.load.Stop()
	if err := s.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.load.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range s.load.Problems() {
		t.Error(p)
	}
	s.clean(t)
	if found := s.verify(t, api.Verify{}); found.Wrong() != 0 {
		t.Errorf("rows are not where they belong: %+v", found)
	}
	for _, r := range s.Routers {
		if err := r.Complaint(); err != nil {
			t.Error(err)
		}
	}
}

// clean looks for what moves have left. It looks again for a while: what is on its way out goes by itself, and a row whose key somebody changes while one shard after the other is looked at may be seen twice.
func (s *stage) clean(t *testing.T) {
	t.Helper()
	var left, strays []string
	var err error
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		if left, err = moves.Leftovers(t.Context(), s.Cluster); err == nil {
			strays, err = moves.Strays(t.Context(), s.Cluster)
		}
		if err == nil && len(left)+len(strays) == 0 || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("left on servers: %s", strings.Join(left, "; "))
	}
	if len(strays) > 0 {
		t.Errorf("%d rows are on two shards, such as: %s", len(strays), strays[0])
	}
}

// keysOf are single keys, so many that no shard has them all.
func keysOf(from, to int) (keys [][]string) {
	for key := from; key < to; key++ {
		keys = append(keys, []string{strconv.Itoa(key)})
	}
	return keys
}

// TestNobodyNoticesAMove: rows move back and forth, and no statement fails, waits for long or sees anything but the truth; a move that is cancelled, and one that is rolled back, too.
func TestNobodyNoticesAMove(t *testing.T) {
	s := newStage(t, faults.Config{Routers: 3}, 6)
	s.load.Start(t.Context())
	defer s.load.Stop()
	time.Sleep(3 * time.Second)
	s.load.Slowest.Store(0)
	var held []string
	for i, request := range []api.StartMove{
		{From: "s1", To: "s2"},
		{Keyspace: "default_bigint", To: "s1", Ranges: []api.MoveRange{{To: []string{"2000000000000000"}}}},
		{Keyspace: "default_bigint", To: "s3", Keys: keysOf(1_000_000, 1_000_016)},
		{From: "s3", To: "s1", Streams: 4},
		{From: "s2", To: "s3"},
	} {
		if i > 2 && !thorough.Asked() {
			break
		}
		id := s.start(t, request)
		m := s.await(t, id, "done")
		t.Logf("move %d: the slowest statement took %s", i+1, time.Duration(s.load.Slowest.Swap(0)).Round(time.Millisecond))
		for _, a := range m.Switches {
			held = append(held, fmt.Sprintf("%.0f", a.HeldMS))
		}
		if problems := s.load.Problems(); len(problems) > 0 {
			t.Logf("%+v", m.Switches)
			t.Fatalf("after move %d: %s", i+1, strings.Join(problems, "\n"))
		}
	}
	back := s.start(t, api.StartMove{From: "s1", To: "s2", KeepSeconds: 600})
	s.await(t, back, "switched")
	time.Sleep(2 * time.Second)
	if _, err := s.Routers[1].API().WishMove(t.Context(), back, "roll back"); err != nil {
		t.Fatal(err)
	}
	s.await(t, back, "rolled back")
	cancelled := s.start(t, api.StartMove{From: "s1", To: "s2", Manual: true})
	s.await(t, cancelled, "ready")
	if _, err := s.Routers[2].API().WishMove(t.Context(), cancelled, "cancel"); err != nil {
		t.Fatal(err)
	}
	s.await(t, cancelled, "cancelled")
	s.finish(t)
	if slow := s.load.Slow(); len(slow) > 0 {
		t.Logf("slow statements: %s", strings.Join(slow, ", "))
	}
	t.Logf("%d statements; held for %s ms", s.load.Done.Load(), strings.Join(held, ", "))
}
