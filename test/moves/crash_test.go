package moves_test

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/failpoint/orders"
	"github.com/cleavedb/cleave/internal/thorough"
	"github.com/cleavedb/cleave/test/faults"
)

// crashPoint is where the leader is killed: behind what the point is named after.
type crashPoint struct {
	// row of the crash table in internal/reshard/DESIGN.md, and what else tells the case apart.
	row, point string
	// hit is which one, if it is not the first.
	hit int
	// when and wish are what is said, in which phase, on the way to the point.
	when, wish string
	// then is what is said when another leader goes on, and the way back is open.
	then string
	// ends is how, if not with "done".
	ends string
	// always: also where there is not much time.
	always bool
}

// crashPoints are those of rows that move.
var crashPoints = []crashPoint{
	{row: "M1", point: "move.asked"},
	{row: "M2 begins", point: "move.checking"},
	{row: "M2", point: "move.preparing"},
	{row: "M3", point: "move.views.made"},
	{row: "M4", point: "move.identity.widened"},
	{row: "M5", point: "move.published"},
	{row: "M5 on both", point: "move.announcing"},
	{row: "M6", point: "move.announced"},
	{row: "M7", point: "move.copying"},
	{row: "M8", point: "move.slot.made"},
	{row: "M9", point: "move.copy.rows", hit: 4},
	{row: "M10", point: "move.copied"},
	{row: "M10 said", point: "move.catching-up"},
	{row: "M11", point: "move.subscribed"},
	{row: "M11 caught up", point: "move.verifying"},
	{row: "M12", point: "move.ready"},
	{row: "M13", point: "move.slot.back"},
	{row: "M13 subscribed", point: "move.subscribed", hit: 2},
	{row: "M14 before", point: "move.switching"},
	{row: "M14", point: "move.switch.hold"},
	{row: "M14 settled", point: "move.switch.settle"},
	{row: "M15", point: "move.switch.closed"},
	{row: "M16 on none", point: "move.switch.published"},
	{row: "M16", point: "move.switch.close", always: true},
	{row: "M16 nobody writes", point: "move.switch.writers"},
	{row: "M17", point: "move.switch.marked"},
	{row: "M18", point: "move.switch.pass", always: true},
	{row: "M19", point: "move.switch.open"},
	{row: "M20", point: "move.forward.ended", then: "roll back", ends: "rolled back"},
	{row: "M21", point: "move.switched", then: "roll back", ends: "rolled back"},
	{row: "M22 before", point: "move.cleaning"},
	{row: "M22", point: "move.cleaning.rows", hit: 2},
	{row: "M23", point: "move.withdrawn"},
	{row: "M24", point: "move.tables.forgotten"},
	{row: "M24a", point: "move.forgotten"},
	{row: "M25", point: "move.cancelling", when: "ready", wish: "cancel", ends: "cancelled"},
	{row: "M25 rows", point: "move.cancelling.rows", hit: 2, when: "ready", wish: "cancel", ends: "cancelled"},
	{row: "M25 withdrawn", point: "move.withdrawn", when: "ready", wish: "cancel", ends: "cancelled"},
	{row: "M25 views", point: "move.tables.forgotten", when: "ready", wish: "cancel", ends: "cancelled"},
	{row: "M25 forgotten", point: "move.forgotten", when: "ready", wish: "cancel", ends: "cancelled"},
	{row: "M26", point: "move.rolling-back", when: "switched", wish: "roll back", ends: "rolled back", always: true},
	{row: "M26 hold", point: "move.switch.hold", when: "switched", wish: "roll back", ends: "rolled back"},
	{row: "M26 close", point: "move.switch.close", when: "switched", wish: "roll back", ends: "rolled back"},
	{row: "M26 pass", point: "move.switch.pass", when: "switched", wish: "roll back", ends: "rolled back"},
	{row: "M26 open", point: "move.switch.open", when: "switched", wish: "roll back", ends: "rolled back"},
	{row: "M26 rows", point: "move.cleaning.rows", hit: 2, when: "switched", wish: "roll back", ends: "rolled back"},
	{row: "M26 withdrawn", point: "move.withdrawn", when: "switched", wish: "roll back", ends: "rolled back"},
}

// TestTheLeaderDies at every step of a move: another one goes on, and nobody loses a row.
func TestTheLeaderDies(t *testing.T) {
	t.Parallel()
	s := newStage(t, faults.Config{Routers: 3}, 4)
	s.load.Faulty = true
	s.load.Start(t.Context())
	defer s.load.Stop()
	s.playPoints(t, crashPoints, func(from, to string) api.StartMove { return api.StartMove{From: from, To: to} }, func(t *testing.T, _ string) {
		t.Helper()
		s.agrees(t)
	})
	s.finish(t)
	t.Logf("%d statements, %d of which faults explain", s.load.Done.Load(), s.load.Failed.Load())
}

// playPoints kills the leader at each point, one after the other, and looks at what is on whom after each move. It returns who has it in the end.
func (s *stage) playPoints(t *testing.T, points []crashPoint, request func(from, to string) api.StartMove, look func(t *testing.T, owner string)) (owner string) {
	t.Helper()
	shards := [2]string{"s1", "s2"}
	for _, c := range points {
		if !c.always && !thorough.Asked() {
			continue
		}
		ok := t.Run(strings.ReplaceAll(c.row, " ", "_"), func(t *testing.T) {
			if s.crashes(t, c, request(shards[0], shards[1])) == "done" {
				shards[0], shards[1] = shards[1], shards[0]
			}
			look(t, shards[0])
		})
		if !ok {
			break // the next ones would only repeat it
		}
	}
	return shards[0]
}

// crashes starts a move, kills the leader at a point, and returns how the move has ended all the same.
func (s *stage) crashes(t *testing.T, c crashPoint, request api.StartMove) (end string) {
	t.Helper()
	leader, err := s.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	order := func() {
		t.Helper()
		if err := orders.Give(s.Orders, c.point, orders.Order{Act: orders.Kill, Hit: c.hit, Process: leader.PID()}); err != nil {
			t.Fatal(err)
		}
	}
	if c.when == "" {
		order()
	}
	request.Manual = c.when == "ready"
	if !thorough.Asked() {
		request.Throttle = of(false) // beside other tests moves would give way to those
	}
	if c.hit > 1 {
		request.Streams = 1 // of those that come by at the same time not all are counted
	}
	if c.when == "switched" || c.then != "" {
		request.KeepSeconds = 600
	}
	id := s.start(t, request)
	if c.when != "" { // it has come by the point before
		s.await(t, id, c.when)
		order()
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
	if c.then != "" {
		s.says(t, id, "it can be rolled back", func(m api.Move) string { return m.Waiting })
		s.wish(t, id, c.then)
	}
	end = cmp.Or(c.ends, "done")
	s.await(t, id, end)
	return end
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
