package deadlock

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// scene is what is recorded and what two looks have seen. Backends are named by their shard's number and their process, as 1 and 10.
type scene struct {
	transactions  []*Transaction
	first, second round
}

func newScene() *scene { return &scene{first: newRound(), second: newRound()} }

func moment(n int) time.Time { return time.Unix(int64(n), 0).UTC() }

// change changes what a look has seen of a backend; looks: 1 the first, 2 the second, 3 both.
func (s *scene) change(looks, number, pid int, how func(*backend)) {
	for i, r := range []round{s.first, s.second} {
		if looks&(i+1) == 0 {
			continue
		}
		if r.looks[number].backends == nil {
			r.looks[number], r.blockers[number] = look{backends: map[int]backend{}}, map[int][]int{}
		}
		b := r.looks[number].backends[pid]
		how(&b)
		r.looks[number].backends[pid] = b
	}
}

// has says that a backend is in a transaction, with this number if it has written.
func (s *scene) has(number, pid int, own string) {
	s.change(3, number, pid, func(b *backend) { b.virtual, b.own = fmt.Sprintf("%d/%d", pid, pid), own })
}

// waits says that a backend waits for others: for the end of a transaction if that is named.
func (s *scene) waits(number, pid int, xid string, blockers ...int) {
	s.change(3, number, pid, func(b *backend) {
		b.virtual, b.since, b.xid, b.lock = fmt.Sprintf("%d/%d", pid, pid), moment(pid), xid, "a lock"
	})
	s.first.blockers[number][pid], s.second.blockers[number][pid] = blockers, slices.Clone(blockers)
}

// leg is a backend of a transaction: quiet, waits, reads or nothing.
func leg(number, pid int, how ...string) Leg {
	l := Leg{Process: Process{number, pid}, Virtual: fmt.Sprintf("%d/%d", pid, pid), Quiet: slices.Contains(how, "quiet"), Read: slices.Contains(how, "read")}
	if since := moment(pid); slices.Contains(how, "waits") {
		l.Waits = &since
	}
	return l
}

func (s *scene) transaction(id string, began int, legs ...Leg) {
	s.transactions = append(s.transactions, &Transaction{ID: id, Began: moment(began), Legs: legs})
}

// victims are those of the circles that both looks have seen.
func (s *scene) victims(overdue ...string) string {
	late := func(t *Transaction) bool { return slices.Contains(overdue, t.ID) }
	if len(circles(newGraph(s.transactions, s.first, nil), late)) == 0 {
		return "none at first"
	}
	var ids []string
	for _, c := range circles(newGraph(s.transactions, s.first, &s.second), late) {
		ids = append(ids, c.victim.ID)
	}
	return strings.Join(ids, " ")
}

// pair is the plainest circle: a holds a row on shard 1 and waits on shard 2, b the other way round. Only the waits and the two rows matter.
func pair() *scene {
	s := newScene()
	s.transaction("a", 1, leg(1, 10, "quiet"), leg(2, 11, "waits", "read"))
	s.transaction("b", 2, leg(2, 20, "quiet"), leg(1, 21, "waits", "read"))
	s.has(1, 10, "700")
	s.has(2, 20, "800")
	s.waits(2, 11, "800", 20)
	s.waits(1, 21, "700", 10)
	return s
}

func TestCircles(t *testing.T) {
	for _, c := range []struct {
		name, want string
		scene      func() *scene
	}{
		{"two that wait for each other", "b", pair},
		{"the youngest is the victim", "a", func() *scene {
			s := pair()
			s.transactions[0].Began = moment(3)
			return s
		}},
		{"of two that are as old the greater name", "b", func() *scene {
			s := pair()
			s.transactions[0].Began = moment(2)
			return s
		}},
		{"one does not wait", "none at first", func() *scene {
			s := pair()
			s.change(3, 1, 21, func(b *backend) { b.since = time.Time{} })
			return s
		}},
		{"somebody else is in the way", "none at first", func() *scene {
			s := pair()
			s.waits(2, 11, "900", 30)
			return s
		}},
		{"a prepared transaction is in the way", "none at first", func() *scene {
			s := pair()
			s.waits(2, 11, "900", preparedPID)
			return s
		}},
		{"in and out by the same backend", "none at first", func() *scene { // which PostgreSQL sees
			s := newScene()
			s.transaction("a", 1, leg(1, 10, "waits"), leg(2, 11, "quiet"))
			s.transaction("b", 2, leg(1, 20, "waits"), leg(2, 21, "quiet"))
			s.has(1, 10, "700")
			s.has(1, 20, "800")
			s.waits(1, 10, "800", 20)
			s.waits(1, 20, "700", 10)
			return s
		}},
		{"a ring of three with one on a single shard", "b", func() *scene {
			s := pair()
			s.has(2, 30, "900")
			s.waits(2, 11, "900", 30)
			s.waits(2, 30, "800", 20)
			return s
		}},

		{"a backend that is at work may let go", "none at first", func() *scene {
			s := pair()
			s.transactions[1].Legs[0].Quiet = false
			s.waits(2, 11, "", 20)
			return s
		}},
		{"of anything but its transaction's number", "b", func() *scene {
			s := pair()
			s.transactions[1].Legs[0].Quiet = false
			return s
		}},
		{"a subtransaction's may be let go of", "none at first", func() *scene {
			s := pair()
			s.transactions[1].Legs[0].Quiet = false
			s.waits(2, 11, "801", 20)
			return s
		}},
		{"unless it waits itself", "b", func() *scene {
			s := pair()
			s.transactions[1].Legs[0] = leg(2, 20, "waits")
			s.waits(2, 20, "950", 95)
			s.waits(2, 11, "801", 20)
			return s
		}},
		{"it is idle, says the shard", "b", func() *scene {
			s := pair()
			s.transactions[1].Legs[0].Quiet = false
			s.waits(2, 11, "", 20)
			s.change(3, 2, 20, func(b *backend) { b.state, b.changed = "idle in transaction", moment(5) })
			return s
		}},
		{"it was idle twice, and did something in between", "", func() *scene {
			s := pair()
			s.transactions[1].Legs[0].Quiet = false
			s.waits(2, 11, "", 20)
			s.change(1, 2, 20, func(b *backend) { b.state, b.changed = "idle in transaction", moment(5) })
			s.change(2, 2, 20, func(b *backend) { b.state, b.changed = "idle in transaction", moment(6) })
			return s
		}},

		{"another wait at the second look", "", func() *scene {
			s := pair()
			s.change(2, 1, 21, func(b *backend) { b.since = moment(99) })
			return s
		}},
		{"no wait at the second look", "", func() *scene {
			s := pair()
			s.change(2, 1, 21, func(b *backend) { b.since = time.Time{} })
			return s
		}},
		{"the waiter is in another transaction at the second look", "", func() *scene {
			s := pair()
			s.change(2, 1, 21, func(b *backend) { b.virtual = "21/22" })
			return s
		}},
		{"who is on a single shard is in another transaction at the second look", "", func() *scene {
			s := pair()
			s.has(2, 30, "900")
			s.waits(2, 11, "900", 30)
			s.waits(2, 30, "800", 20)
			s.change(2, 2, 30, func(b *backend) { b.virtual = "30/31" })
			return s
		}},
		{"the holder is in another transaction at the second look", "", func() *scene {
			s := pair()
			s.change(2, 2, 20, func(b *backend) { b.virtual = "20/21" })
			return s
		}},
		{"nobody is in the way at the second look", "", func() *scene {
			s := pair()
			s.second.blockers[1][21] = nil
			return s
		}},
		{"a shard does not answer to the second look", "", func() *scene {
			s := pair()
			delete(s.second.looks, 1)
			delete(s.second.blockers, 1)
			return s
		}},
		{"what is recorded is another wait", "none at first", func() *scene {
			s := pair()
			other := moment(98)
			s.transactions[1].Legs[1].Waits = &other
			return s
		}},
		{"what is recorded is another transaction of the backend", "none at first", func() *scene {
			s := pair()
			s.transactions[1].Legs[0].Virtual = "20/1"
			return s
		}},

		{"who is only before others in the queue is no victim", "b", func() *scene {
			s := pair() // a waits for the row behind c, which is first in the queue and has the tuple lock
			s.transaction("c", 9, leg(3, 30, "quiet"), leg(2, 31, "waits"))
			s.has(3, 30, "900")
			s.waits(2, 11, "", 31)
			s.waits(2, 31, "800", 20)
			return s
		}},
		{"rows that nobody reads before another shard has answered", "r", func() *scene {
			s := newScene() // r reads shard 1 first, where it waits; w has shard 1 and waits for r's table on shard 2
			s.transaction("r", 5, leg(1, 10, "waits", "read"), leg(2, 11))
			s.transaction("w", 1, leg(1, 20, "quiet"), leg(2, 21, "waits"))
			s.has(1, 20, "")
			s.has(2, 11, "")
			s.change(3, 2, 11, func(b *backend) { b.state, b.event = "active", "ClientWrite" })
			s.waits(1, 10, "", 20)
			s.waits(2, 21, "", 11)
			return s
		}},
		{"rows that are read now", "none at first", func() *scene {
			s := newScene()
			s.transaction("r", 5, leg(1, 10, "waits"), leg(2, 11, "read"))
			s.transaction("w", 1, leg(1, 20, "quiet"), leg(2, 21, "waits"))
			s.has(1, 20, "")
			s.has(2, 11, "")
			s.change(3, 2, 11, func(b *backend) { b.state, b.event = "active", "ClientWrite" })
			s.waits(1, 10, "", 20)
			s.waits(2, 21, "", 11)
			return s
		}},

		{"a victim counts as ended", "none at first", func() *scene {
			s := pair()
			s.transactions[1].Sentenced = true
			return s
		}},
		{"two circles", "b d", func() *scene {
			s := pair()
			s.transaction("c", 3, leg(1, 30, "quiet"), leg(2, 31, "waits"))
			s.transaction("d", 4, leg(2, 40, "quiet"), leg(1, 41, "waits"))
			s.has(1, 30, "1700")
			s.has(2, 40, "1800")
			s.waits(2, 31, "1800", 40)
			s.waits(1, 41, "1700", 30)
			return s
		}},
		{"two circles through the youngest", "b", func() *scene {
			s := pair() // a and c hold rows that b waits for in two parts of a statement, and both wait for b
			s.transaction("c", 1, leg(3, 30, "quiet"), leg(2, 31, "waits"))
			s.transactions[1].Legs = append(s.transactions[1].Legs, leg(3, 22, "waits"))
			s.has(3, 30, "900")
			s.waits(3, 22, "900", 30)
			s.waits(2, 31, "800", 20)
			return s
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.scene().victims(); got != c.want {
				t.Errorf("the victims are %q, not %q", got, c.want)
			}
		})
	}
}

// TestAVerdictThatNobodyCarriesOut: somebody else of the circle has to go, and if nobody is left it stays.
func TestAVerdictThatNobodyCarriesOut(t *testing.T) {
	s := pair()
	s.transactions[1].Sentenced = true
	if got := s.victims("b"); got != "a" {
		t.Errorf("the victim is %q, not a", got)
	}
	s.transactions[0].Sentenced = true
	if got := s.victims("a", "b"); got != "none at first" {
		t.Errorf("there is a victim: %q", got)
	}
}
