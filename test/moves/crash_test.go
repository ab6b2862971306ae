package moves_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/failpoint/orders"
	"github.com/cleavedb/cleave/test/faults"
)

// crashPoints are where the leader is killed: behind the step that is named. A move that is to get there may have to be told something.
var crashPoints = []struct {
	line, point string
	// wish is what is said when the move is in a phase.
	when, wish string
	ends       string
	// always: also where there is not much time.
	always bool
}{
	{"M1, M2", "move.checking", "", "", "done", false},
	{"M3, M4, M5", "move.preparing", "", "", "done", false},
	{"M6", "move.announcing", "", "", "done", false},
	{"M7, M8, M9", "move.copying", "", "", "done", true},
	{"M10, M11", "move.catching-up", "", "", "done", true},
	{"M12", "move.verifying", "", "", "done", false},
	{"M13", "move.ready", "", "", "done", false},
	{"M14 before", "move.switching", "", "", "done", false},
	{"M14", "move.switch.hold", "", "", "done", true},
	{"M15", "move.switch.settle", "", "", "done", false},
	{"M15 on one of both", "move.switch.closed", "", "", "done", false},
	{"M16", "move.switch.close", "", "", "done", true},
	{"M17", "move.switch.writers", "", "", "done", false},
	{"M18", "move.switch.pass", "", "", "done", true},
	{"M19", "move.switch.open", "", "", "done", true},
	{"M20, M21", "move.switched", "", "", "done", false},
	{"M22, M23, M24", "move.cleaning", "", "", "done", true},
	{"M24a", "move.forgotten", "", "", "done", false},
	{"M25", "move.cancelling", "ready", "cancel", "cancelled", false},
	{"M26", "move.rolling-back", "switched", "roll back", "rolled back", true},
	{"M26 switch", "move.switch.close", "switched", "roll back", "rolled back", false},
}

// everything says whether there is time for all cases: 'make soak-moves'.
func everything() bool { return os.Getenv("CLEAVE_SOAK_MOVES") != "" }

// TestTheLeaderDies at every step of a move: another one goes on, and nobody loses a row.
func TestTheLeaderDies(t *testing.T) {
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 3}, 4)
	s.load.Faulty = true
	s.load.Start(t.Context())
	defer s.load.Stop()
	shards := [2]string{"s1", "s2"}
	for _, c := range crashPoints {
		if !c.always && !everything() {
			continue
		}
		ok := t.Run(strings.ReplaceAll(c.line, ", ", "_"), func(t *testing.T) {
			leader, err := s.Leader(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			late := c.when == "switched" // the order is for what comes then
			order := func() {
				if err := orders.Give(s.Orders, c.point, orders.Order{Act: orders.Kill, Process: leader.PID()}); err != nil {
					t.Fatal(err)
				}
			}
			if !late {
				order()
			}
			request := api.StartMove{From: shards[0], To: shards[1], Manual: c.when == "ready"}
			if late {
				request.KeepSeconds = 600
			}
			id := s.start(t, request)
			if c.when != "" {
				s.await(t, id, c.when)
				if late {
					order()
				}
				s.wish(t, id, c.wish)
			}
			killed, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := leader.WaitKilled(killed); err != nil {
				t.Fatal(err)
			}
			if err := leader.Start(); err != nil {
				t.Fatal(err)
			}
			m := s.await(t, id, c.ends)
			if problems := s.load.Problems(); len(problems) > 0 {
				t.Fatalf("%+v\n%s", m, strings.Join(problems, "\n"))
			}
			s.clean(t)
			if c.ends == "done" {
				shards[0], shards[1] = shards[1], shards[0]
			}
		})
		if !ok {
			break // the next ones would only repeat it
		}
	}
	s.finish(t)
	t.Logf("%d statements, %d of which faults explain", s.load.Done.Load(), s.load.Failed.Load())
}

// wish says what is to become of a move, to whichever router answers.
func (s *stage) wish(t *testing.T, id, wish string) {
	t.Helper()
	var err error
	for range 50 {
		for _, r := range s.Routers {
			if _, err = r.API().WishMove(t.Context(), id, wish); err == nil {
				return
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal(err)
}
