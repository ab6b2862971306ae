package reshard

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// Kind is what moves are among the leader's jobs.
const Kind = "move"

// Phase is how far a move is.
type Phase string

// The phases, in their order.
const (
	Asked       Phase = "asked"
	Checking    Phase = "checking"
	Preparing   Phase = "preparing"
	Announcing  Phase = "announcing"
	Copying     Phase = "copying"
	CatchingUp  Phase = "catching up"
	Verifying   Phase = "verifying"
	Ready       Phase = "ready"
	Switching   Phase = "switching"
	Switched    Phase = "switched"
	Cleaning    Phase = "cleaning"
	Cancelling  Phase = "cancelling"
	RollingBack Phase = "rolling back"
	Done        Phase = "done"
	Cancelled   Phase = "cancelled"
	RolledBack  Phase = "rolled back"
)

// HasEnded says whether nothing is left to do.
func (p Phase) HasEnded() bool { return p == Done || p == Cancelled || p == RolledBack }

// mayCancel says whether a move can still be taken back without a trace.
func (p Phase) mayCancel() bool {
	return slices.Contains([]Phase{Asked, Checking, Preparing, Announcing, Copying, CatchingUp, Verifying, Ready}, p)
}

// switches says whether the owner changes in this phase, so that statements may be held.
func (p Phase) switches() bool { return p == Switching || p == RollingBack }

// Wish is what somebody wants to become of a move.
type Wish string

// The wishes.
const (
	Pause    Wish = "pause"
	Resume   Wish = "resume"
	Cancel   Wish = "cancel"
	Switch   Wish = "switch"
	RollBack Wish = "roll back"
	Finish   Wish = "finish"
)

// Wishes are all of them.
func Wishes() []Wish { return []Wish{Pause, Resume, Cancel, Switch, RollBack, Finish} }

// Range is a part of a keyspace's order, from a point up to another; none is the beginning or the end.
type Range struct {
	From topology.Point `json:"from,omitempty"`
	To   topology.Point `json:"to,omitempty"`
}

// Options say how a move is done.
type Options struct {
	// Streams is how many copies run at once. 0: as many as are usual.
	Streams int `json:"streams,omitempty"`
	// Keep is how long the way back stays open after the switch.
	Keep time.Duration `json:"keep,omitempty"`
	// PauseLimit is how long statements may be held before a switch is taken back. 0: the usual.
	PauseLimit time.Duration `json:"pause_limit,omitempty"`
	// Manual: it waits for somebody to say when to switch.
	Manual bool `json:"manual,omitempty"`
	// Limits say what slows it down.
	Limits
	// SkipVerify leaves out the comparison before the switch.
	SkipVerify bool `json:"skip_verify,omitempty"`
}

// MostStreams is how many copies may run at once: each has a connection to both shards.
const MostStreams = 64

// Usual options.
const (
	usualStreams    = 2
	usualPauseLimit = time.Second
	usualLag        = 256 << 10
)

func (o Options) withDefaults() Options {
	if o.Streams <= 0 {
		o.Streams = usualStreams
	}
	if o.PauseLimit <= 0 {
		o.PauseLimit = usualPauseLimit
	}
	o.Limits = o.Limits.withDefaults()
	return o
}

// Move is a move as everybody can read it. The leader alone changes it.
type Move struct {
	ID       string           `json:"id"`
	Keyspace string           `json:"keyspace"`
	Source   string           `json:"source"`
	Target   string           `json:"target"`
	Ranges   []Range          `json:"ranges,omitempty"`
	Pins     []topology.Point `json:"pins,omitempty"`
	// Whole are tables that move as a whole, from the one shard that has them, as schema.name; then there is no keyspace, or it is that of their schemas.
	Whole []string `json:"whole,omitempty"`
	// Schemas move as a whole too, with all of their tables, which are in Whole.
	Schemas []string  `json:"schemas,omitempty"`
	Options Options   `json:"options"`
	Why     string    `json:"why,omitempty"` // for people
	AskedAt time.Time `json:"asked_at"`

	Phase Phase `json:"phase"`
	// Since is when the phase began, and Ended when the last one did.
	Since time.Time `json:"since"`
	Ended time.Time `json:"ended,omitzero"`
	// Paused: it goes no further until somebody says so. Stopped is why it does not by itself.
	Paused  bool   `json:"paused,omitempty"`
	Stopped string `json:"stopped,omitempty"`
	// Waiting is what it waits for, Error what failed last, FailedAt when, and Failures how often in a row.
	Waiting  string    `json:"waiting,omitempty"`
	Error    string    `json:"error,omitempty"`
	FailedAt time.Time `json:"failed_at,omitzero"`
	Failures int       `json:"failures,omitempty"`
	// Refusals is how often what carries changes had stopped while both servers were there, and RefusedAt when it had last.
	Refusals  int       `json:"refusals,omitempty"`
	RefusedAt time.Time `json:"refused_at,omitzero"`

	// Published are the tables of the keyspace, or those that move as a whole, when the move began: nothing was made on a server before. Tables are the same, with what was copied of each.
	Published []string        `json:"published,omitempty"`
	Tables    []TableProgress `json:"tables,omitempty"`
	// LagBytes is how far the target is behind, and LagAt when that was.
	LagBytes int64     `json:"lag_bytes"`
	LagAt    time.Time `json:"lag_at,omitzero"`
	// Identities are the replica identities that tables had on both shards before they were changed.
	Identities []Identity `json:"identities,omitempty"`
	// SourceState and TargetState say which servers these were when the copy began.
	SourceState string `json:"source_state,omitempty"`
	TargetState string `json:"target_state,omitempty"`
	// Copied: all rows of the snapshot are on the target. WayBack: changes can be carried back.
	Copied  bool `json:"copied,omitempty"`
	WayBack bool `json:"way_back,omitempty"`
	// Worked is for how long rows have been copied, pauses left out.
	Worked time.Duration `json:"worked,omitempty"`
	// Again is why the rows are copied anew, until they are.
	Again string `json:"again,omitempty"`
	// NoWayBack is why changes cannot be carried back any more, though that was asked for. It is shown to the end.
	NoWayBack string `json:"no_way_back,omitempty"`
	// SwitchNow: somebody has said that it may switch. FinishNow: the way back may go.
	SwitchNow bool `json:"switch_now,omitempty"`
	FinishNow bool `json:"finish_now,omitempty"`
	// Resumed: somebody has mended what stopped it.
	Resumed bool `json:"resumed,omitempty"`
	// CarriesBack: the way back has begun to carry changes.
	CarriesBack bool `json:"carries_back,omitempty"`
	// Arrived: the owner was seen to have everything, so that rows may be deleted where they are not owned.
	Arrived bool `json:"arrived,omitempty"`
	// Passed is what the owner noted when it had everything, and Lacks says that it does not have that note.
	Passed string `json:"passed,omitempty"`
	Lacks  bool   `json:"lacks,omitempty"`
	// Switches are the last attempts to switch, and how long statements were held for each.
	Switches []Attempt `json:"switches,omitempty"`
	// Equal are the tables that the comparison has found equal, with how many rows, while it goes on; and Verified is what it came to.
	Equal    map[string]int64 `json:"equal,omitempty"`
	Verified string           `json:"verified,omitempty"`
	// Cleaned is how many rows were deleted where they are not owned.
	Cleaned int64 `json:"cleaned,omitempty"`
	// RollsBack: what goes on is in the other direction. Backward: it has been switched back, or was cancelled, so the target's rows are the ones that go.
	RollsBack bool `json:"rolls_back,omitempty"`
	// Forgotten: nothing of it is left on shards.
	Forgotten bool `json:"forgotten,omitempty"`

	revision int64
}

// TableProgress is how far a table is.
type TableProgress struct {
	Name string `json:"name"`
	// Rows and Bytes were copied, of about so many that the source has to read.
	Rows       int64 `json:"rows"`
	Bytes      int64 `json:"bytes"`
	PagesRead  int64 `json:"pages_read"`
	PagesInAll int64 `json:"pages_in_all"`
}

// Identity is the replica identity of a table, as PostgreSQL's catalogue has it.
type Identity struct {
	Shard string `json:"shard"`
	Table string `json:"table"`
	Kind  string `json:"kind"`
	Index string `json:"index,omitempty"`
}

// Attempt is an attempt to switch.
type Attempt struct {
	At   time.Time     `json:"at"`
	Held time.Duration `json:"held"`
	// Failed is why it was taken back; empty if it was not.
	Failed string `json:"failed,omitempty"`
	// Steps say how long each took.
	Steps []Step `json:"steps,omitempty"`
}

// Step is one of a switch.
type Step struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took"`
}

// keptAttempts is how many attempts are remembered.
const keptAttempts = 10

// job is the move as the store has it.
func (m *Move) job() (store.Job, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return store.Job{}, fmt.Errorf("encode move %s: %w", m.ID, err)
	}
	return store.Job{ID: m.ID, Kind: Kind, State: string(m.Phase), Body: body, Revision: m.revision}, nil
}

// Of reads a move from its job.
func Of(job store.Job) (*Move, error) {
	m := &Move{}
	if err := json.Unmarshal(job.Body, m); err != nil {
		return nil, fmt.Errorf("read move %s: %w", job.ID, err)
	}
	for _, texts := range [][]string{m.Whole, m.Published} {
		for i, text := range texts {
			texts[i] = topology.NormalTableName(text)
		}
	}
	m.revision = job.Revision
	return m, nil
}

// Names of what is made on servers. They have the move's ID in them, so that what is found there can be told.
func (m *Move) forward() string { return "cleave_move_" + m.ID }
func (m *Move) back() string    { return "cleave_back_" + m.ID }

// Replication origins under which rows are copied, one for each stream, and deleted: who follows the changes of a shard can leave them out.
func (m *Move) copyOrigin(stream int) string { return m.copyOrigins() + strconv.Itoa(stream) }
func (m *Move) copyOrigins() string          { return "cleave_copy_" + m.ID + "_" }
func (m *Move) cleanOrigin() string          { return "cleave_clean_" + m.ID }

// course is one direction of a move: who owns the rows, and who is to. Of whole tables nobody sees the copy, so the map does not tell of it.
type course struct {
	from, to string
	whole    bool
}

func (m *Move) course() course {
	if m.RollsBack {
		return course{m.Target, m.Source, m.IsWhole()}
	}
	return course{m.Source, m.Target, m.IsWhole()}
}

// Bytes is how much was copied so far.
func (m *Move) Bytes() (copied int64) {
	for _, t := range m.Tables {
		copied += t.Bytes
	}
	return copied
}

// Rows is how many rows were copied so far.
func (m *Move) Rows() (copied int64) {
	for _, t := range m.Tables {
		copied += t.Rows
	}
	return copied
}

// Left is how long the copy will take at the pace that it had so far; 0 if that cannot be told.
func (m *Move) Left() time.Duration {
	share := m.Share()
	if m.Phase != Copying || share == 0 {
		return 0
	}
	return time.Duration(float64(m.Worked) * (1 - share) / share)
}

// Share is which part of what has to be read was, between 0 and 1.
func (m *Move) Share() float64 {
	var read, all int64
	for _, t := range m.Tables {
		read, all = read+t.PagesRead, all+t.PagesInAll
	}
	switch {
	case m.Copied:
		return 1
	case all == 0:
		return 0
	}
	return float64(read) / float64(all)
}
