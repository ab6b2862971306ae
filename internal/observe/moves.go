package observe

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// MoveState is a move that this process carries out, as [Moves] reports it.
type MoveState struct {
	ID, From, To, Phase string
	// Paused: somebody has to resume it. Stopped: it cannot go on by itself.
	Paused, Stopped bool
	// LagBytes is how far the target is behind, Copied which part of what is to be copied was, and Left how long the rest takes at that pace.
	LagBytes int64
	Copied   float64
	Left     time.Duration
}

var (
	movesUnderWay     = describe("moves", "Moves of rows that this process carries out, by phase.", "phase")
	movesPaused       = describe("moves_paused", "Those of them that wait for somebody to resume them.")
	movesStopped      = describe("moves_stopped", "Those of them that have stopped, because they cannot go on by themselves.")
	movesEnded        = describe("moves_ended_total", "Moves that this process has brought to their end, by how: done, cancelled, rolled back.", "phase")
	moveStops         = describe("move_stops_total", "Times that a move has stopped because it could not go on by itself.")
	moveLag           = describe("move_lag_bytes", "How many bytes of changes the target of a move has not confirmed.", "move", "from", "to")
	moveCopied        = describe("move_copied_ratio", "Which part of what a move has to copy was copied.", "move", "from", "to")
	moveLeft          = describe("move_copy_left_seconds", "How long the copy of a move will take at the pace that it had so far; 0 if that cannot be told.", "move", "from", "to")
	moveRowsCopied    = describe("move_rows_copied_total", "Rows that moves have copied.")
	moveBytesCopied   = describe("move_bytes_copied_total", "Bytes that moves have copied.")
	moveRowsCleaned   = describe("move_rows_cleaned_total", "Rows that moves have deleted where they are not owned.")
	moveSwitchHeld    = describe("move_switch_held_seconds", "How long statements were held by attempts to switch, those included that were taken back.")
	moveSwitches      = describe("move_switches_total", "Switches of moves.")
	moveSwitchesBack  = describe("move_switches_taken_back_total", "Attempts to switch that were taken back, by the step that failed: hold, settle, close, writers, pass, open; of whole tables fence for settle, and numbers before pass.", "step")
	moveThrottled     = describe("move_throttled_seconds_total", "How long streams of moves have rested, by what for: lag of standbys, wal that slots keep, load, rate.", "reason")
	movesDescriptions = []*prometheus.Desc{
		movesUnderWay, movesPaused, movesStopped, movesEnded, moveStops, moveLag, moveCopied, moveLeft, moveRowsCopied, moveBytesCopied, moveRowsCleaned, moveSwitchHeld, moveSwitches, moveSwitchesBack, moveThrottled,
	}
)

// heldBuckets are the upper ends of the times that statements are held, in seconds.
var heldBuckets = []float64{0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 2, 5}

// Moves counts what moves do in this process, and is a collector of it. The leader alone carries moves out: others report zeroes. Make it with [NewMoves]. Safe for concurrent use.
type Moves struct {
	mu      sync.Mutex
	running func() []MoveState

	rows, bytes, cleaned, switches, stops int64
	ended, back                           map[string]int64
	throttled                             map[string]time.Duration
	held                                  map[float64]uint64 // by bucket, those below included
	attempts                              uint64
	heldInAll                             time.Duration
}

// NewMoves returns a collector that has counted nothing yet.
func NewMoves() *Moves {
	return &Moves{ended: map[string]int64{}, back: map[string]int64{}, throttled: map[string]time.Duration{}, held: map[float64]uint64{}}
}

// Watch says where the moves are that this process carries out.
func (m *Moves) Watch(running func() []MoveState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = running
}

// Copied counts rows and bytes that have come to a target.
func (m *Moves) Copied(rows, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows, m.bytes = m.rows+rows, m.bytes+bytes
}

// Cleaned counts rows that were deleted where they are not owned.
func (m *Moves) Cleaned(rows int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cleaned += rows
}

// Switched counts a switch, for which statements were held.
func (m *Moves) Switched(held time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.switches++
	m.hold(held)
}

// TakenBack counts an attempt that was taken back in a step, and for which statements were held.
func (m *Moves) TakenBack(step string, held time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.back[step]++
	m.hold(held)
}

func (m *Moves) hold(held time.Duration) {
	m.attempts++
	m.heldInAll += held
	for _, end := range heldBuckets {
		if held.Seconds() <= end {
			m.held[end]++
		}
	}
}

// Throttled counts how long a stream has rested.
func (m *Moves) Throttled(reason string, rested time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.throttled[reason] += rested
}

// Stopped counts a move that cannot go on by itself.
func (m *Moves) Stopped() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stops++
}

// Ended counts a move that has ended, by how.
func (m *Moves) Ended(phase string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended[phase]++
}

// Describe lists the metrics.
func (m *Moves) Describe(to chan<- *prometheus.Desc) {
	for _, d := range movesDescriptions {
		to <- d
	}
}

// Collect reports the figures.
func (m *Moves) Collect(to chan<- prometheus.Metric) {
	m.mu.Lock()
	running := m.running
	m.mu.Unlock()
	var states []MoveState
	if running != nil {
		states = running() // which may wait for others
	}
	collectStates(to, states)
	m.mu.Lock()
	defer m.mu.Unlock()
	to <- counter(moveRowsCopied, m.rows)
	to <- counter(moveBytesCopied, m.bytes)
	to <- counter(moveRowsCleaned, m.cleaned)
	to <- counter(moveSwitches, m.switches)
	to <- counter(moveStops, m.stops)
	to <- prometheus.MustNewConstHistogram(moveSwitchHeld, m.attempts, m.heldInAll.Seconds(), m.buckets())
	for phase, n := range m.ended {
		to <- counter(movesEnded, n, phase)
	}
	for step, n := range m.back {
		to <- counter(moveSwitchesBack, n, step)
	}
	for reason, rested := range m.throttled {
		to <- counter(moveThrottled, rested.Seconds(), reason)
	}
}

// buckets are those of the histogram, the empty ones too.
func (m *Moves) buckets() map[float64]uint64 {
	all := maps.Clone(m.held)
	for _, end := range heldBuckets {
		all[end] += 0
	}
	return all
}

func collectStates(to chan<- prometheus.Metric, states []MoveState) {
	paused, stopped, phases := 0, 0, map[string]int{}
	for _, s := range states {
		phases[s.Phase]++
		if s.Paused {
			paused++
		}
		if s.Stopped {
			stopped++
		}
		to <- gauge(moveLag, float64(s.LagBytes), s.ID, s.From, s.To)
		to <- gauge(moveCopied, s.Copied, s.ID, s.From, s.To)
		to <- gauge(moveLeft, s.Left.Seconds(), s.ID, s.From, s.To)
	}
	to <- gauge(movesPaused, float64(paused))
	to <- gauge(movesStopped, float64(stopped))
	for phase, n := range phases {
		to <- gauge(movesUnderWay, float64(n), phase)
	}
}
