package txn

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/sqltext"
)

// Horizon is a snapshot of every shard that were found to fit together: DESIGN.md, "Consistent reads". It never changes.
type Horizon struct {
	at        time.Time
	snapshots map[int]snapshot
	// named are the transactions that the snapshots may not fit together on.
	named []string
	// closed: the snapshots were found to fit together.
	closed bool
}

// Closed says whether a transaction that its snapshots see on one shard they see on all: then, of two later ones, what is news to one is news to the other.
func (h *Horizon) Closed() bool { return h.closed }

// snapshot is one of a shard: of which server and timeline, and what PostgreSQL says it sees.
type snapshot struct {
	system, timeline, text string
	// next is the first number that it does not know of, running are those before that it does not see.
	next    uint64
	running map[uint64]bool
}

func parseSnapshot(text string) (snapshot, error) {
	parts := strings.SplitN(text, "/", 3)
	if len(parts) != 3 {
		return snapshot{}, fmt.Errorf("%q is not a snapshot", text)
	}
	s := snapshot{system: parts[0], timeline: parts[1], text: parts[2], running: map[uint64]bool{}}
	bounds := strings.SplitN(parts[2], ":", 3)
	if len(bounds) != 3 {
		return snapshot{}, fmt.Errorf("%q is not a snapshot", text)
	}
	var err error
	if s.next, err = strconv.ParseUint(bounds[1], 10, 64); err != nil {
		return snapshot{}, err
	}
	for number := range strings.SplitSeq(bounds[2], ",") {
		if number == "" {
			continue
		}
		running, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return snapshot{}, err
		}
		s.running[running] = true
	}
	return s, nil
}

// sees says whether a transaction that is known to be committed is seen.
func (s snapshot) sees(xid uint64) bool { return xid < s.next && !s.running[xid] }

// horizonAge is how long a horizon is used: what has been committed since has to be looked at one by one.
const horizonAge = 3 * time.Second

// Covers says whether an opening on these shards can start from it.
func (h *Horizon) Covers(shards []int) bool {
	if h == nil || time.Since(h.at) > horizonAge || wallAge(h.at) > horizonAge {
		return false
	}
	for _, number := range shards {
		if _, has := h.snapshots[number]; !has {
			return false
		}
	}
	return true
}

// wallAge is how long ago it was by the clock on the wall, which goes on while the machine sleeps.
func wallAge(at time.Time) time.Duration { return time.Now().Round(0).Sub(at.Round(0)) }

// HorizonSQL is the first of the two questions that a horizon is made of, to each shard. Its one row goes to [NewHorizon].
const HorizonSQL = "SELECT cleave.server_state() OPERATOR(pg_catalog.||) pg_catalog.pg_current_snapshot()::pg_catalog.text"

// PreparedSQL is the second one, when all shards have answered the first. Its rows go there too.
func PreparedSQL(cluster string) string {
	return "SELECT gid FROM pg_catalog.pg_prepared_xacts WHERE database OPERATOR(pg_catalog.=) pg_catalog.current_database() AND pg_catalog.starts_with(gid, " + sqltext.QuoteLiteral(Prefix(cluster)) + ")"
}

// NewHorizon makes a horizon of the answers: a snapshot of each shard, and the names of all that was prepared afterwards.
func NewHorizon(snapshots map[int]string, prepared []string) (*Horizon, error) {
	h := &Horizon{at: time.Now(), snapshots: map[int]snapshot{}}
	for number, text := range snapshots {
		s, err := parseSnapshot(text)
		if err != nil {
			return nil, err
		}
		h.snapshots[number] = s
	}
	for _, name := range prepared {
		if gid, _, err := splitPart(name); err == nil {
			h.named = append(h.named, gid)
		}
	}
	slices.Sort(h.named)
	h.named = slices.Compact(h.named)
	return h, nil
}

// Opening is the opening of a snapshot on several shards that fit together. It is for one goroutine.
type Opening struct {
	horizon *Horizon
	began   time.Time
	shards  map[int]*opened
}

// opened is one shard's.
type opened struct {
	snapshot snapshot
	// marks are transactions of which it sees its part, decided those of which it sees the decision, with the number of the part on each participant; of both
	// only what the horizon did not see.
	marks   map[string]bool
	decided map[string]map[int]uint64
}

// openingValid is how long an opening may take; clean-up waits for longer before it deletes anything.
const openingValid = 10 * time.Second

// ErrStale says that a shard is not what it was when the horizon was taken, or that the opening took too long: begin again, with another horizon.
var ErrStale = errors.New("the snapshots are too old")

// NewOpening returns an opening that starts from a horizon.
func NewOpening(h *Horizon) *Opening {
	return &Opening{horizon: h, began: time.Now(), shards: map[int]*opened{}}
}

// SQL is the first statement of the transaction on a shard. Its rows go to [Opening.Opened].
func (o *Opening) SQL(number int) string {
	return "SELECT taken, gid, decides, participants, xids FROM cleave.open_snapshot(" + sqltext.QuoteLiteral(o.horizon.snapshots[number].text) + "::pg_catalog.pg_snapshot, " + namesSQL(o.horizon.named) + ")"
}

func namesSQL(gids []string) string {
	quoted := make([]string, len(gids))
	for i, gid := range gids {
		quoted[i] = sqltext.QuoteLiteral(gid)
	}
	return "ARRAY[" + strings.Join(quoted, ", ") + "]::pg_catalog.text[]"
}

// Opened notes what a shard has answered, whose snapshot, if it had one, is given up.
func (o *Opening) Opened(number int, rows [][]string) error {
	one := &opened{marks: map[string]bool{}, decided: map[string]map[int]uint64{}}
	for i, row := range rows {
		if len(row) != 5 {
			return fmt.Errorf("a shard has answered with %d columns", len(row))
		}
		if i == 0 {
			var err error
			if one.snapshot, err = parseSnapshot(row[0]); err != nil {
				return err
			}
			continue
		}
		if err := one.note(row[1:]); err != nil {
			return err
		}
	}
	if from := o.horizon.snapshots[number]; one.snapshot.text == "" || one.snapshot.system != from.system || one.snapshot.timeline != from.timeline {
		return ErrStale
	}
	o.shards[number] = one
	return nil
}

// note takes in what a shard has noted of a transaction: its name, whether this is the decision, the participants and the numbers of their parts.
func (one *opened) note(row []string) error {
	gid := row[0]
	if row[1] != "t" {
		one.marks[gid] = true
		return nil
	}
	members, err := parseNumbers(row[2])
	if err != nil {
		return err
	}
	numbers, err := parseNumbers(row[3])
	if err != nil {
		return err
	}
	if len(members) != len(numbers) {
		return fmt.Errorf("transaction %q has %d participants and %d parts", gid, len(members), len(numbers))
	}
	parts := map[int]uint64{}
	for i, member := range members {
		if numbers[i] > 0 {
			parts[int(member)] = numbers[i]
		}
	}
	one.decided[gid] = parts
	return nil
}

// parseNumbers reads an array of numbers.
func parseNumbers(text string) ([]uint64, error) {
	var numbers []uint64
	for part := range strings.SplitSeq(strings.Trim(text, "{}"), ",") {
		if part == "" {
			continue
		}
		number, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, number)
	}
	return numbers, nil
}

// Missing returns, by shard, the transactions that another shard sees and this one does not, as far as is known: of decisions that it does not seem to see it has to be asked
// by name, unless the horizon was closed.
func (o *Opening) Missing() map[int][]string {
	missing := map[int][]string{}
	for _, one := range o.shards {
		for gid := range one.marks {
			name, err := ParseName(gid)
			if err != nil {
				continue // nobody made it
			}
			if decider := o.shards[name.Shard]; decider != nil && decider.decided[gid] == nil {
				missing[name.Shard] = append(missing[name.Shard], gid)
			}
		}
		for gid, parts := range one.decided {
			for number, xid := range parts {
				if other := o.shards[number]; other != nil && !other.snapshot.sees(xid) {
					missing[number] = append(missing[number], gid)
				}
			}
		}
	}
	for number, gids := range missing {
		slices.Sort(gids)
		missing[number] = slices.Compact(gids)
	}
	return missing
}

// SeesSQL asks a shard, in the transaction that was opened there, which of some decisions it sees. Its rows go to [Opening.Sees].
func SeesSQL(gids []string) string {
	return "SELECT gid, decides, participants, xids FROM cleave.open_snapshot(NULL, " + namesSQL(gids) + ") WHERE gid IS NOT NULL"
}

// Sees notes the answer.
func (o *Opening) Sees(number int, rows [][]string) error {
	for _, row := range rows {
		if len(row) != 4 {
			return fmt.Errorf("a shard has answered with %d columns", len(row))
		}
		if err := o.shards[number].note(row); err != nil {
			return err
		}
	}
	return nil
}

// Horizon returns what the next opening can start from, when nothing is missing; or [ErrStale].
func (o *Opening) Horizon() (*Horizon, error) {
	if time.Since(o.began) > openingValid || wallAge(o.began) > openingValid {
		return nil, ErrStale
	}
	h := &Horizon{at: o.began, snapshots: map[int]snapshot{}, closed: true}
	for number, one := range o.shards {
		h.snapshots[number] = one.snapshot
	}
	return h, nil
}

// barrierKeys are those of the lock that decisions share, and that a reader takes alone if it finds no moment between them.
const barrierKeys = "1668048225, 1"

// BarrierSQL keeps decisions on a shard waiting, until [BarrierEndSQL]; for a tenth of a second it waits for those under way.
const (
	BarrierSQL = "SELECT pg_catalog.set_config('lock_timeout', '100ms', true), pg_catalog.pg_advisory_lock(" + barrierKeys + ")"
	// BarrierEndSQL ends that, if it was so.
	BarrierEndSQL = "SELECT pg_catalog.pg_advisory_unlock(" + barrierKeys + ")"
)
