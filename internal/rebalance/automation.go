package rebalance

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cleavedb/cleave/internal/topology"
)

// Act says what is done with something that could be done.
type Act string

// The acts.
const (
	Leave   Act = "off"
	Propose Act = "propose"
	Do      Act = "do"
)

// Acts lists the acts.
func Acts() []Act { return []Act{Leave, Propose, Do} }

// Settings say what may be done by itself, and within which limits. The zero value is off.
type Settings struct {
	On bool `json:"on"`
	// Keyspaces are the ones in which something may be done, all by default. Others count.
	Keyspaces []string `json:"keyspaces,omitempty"`
	// Moves, Splits and Merges say what becomes of each. By default moves are done, splits proposed, and merges left alone: they would undo ranges that were made in advance.
	Moves  Act `json:"moves"`
	Splits Act `json:"splits"`
	Merges Act `json:"merges"`
	// Measure and Tolerance are those of [Options]. DefaultAutoTolerance by default.
	Measure   Measure `json:"measure"`
	Tolerance float64 `json:"tolerance"`
	// MaxBytes bounds how many bytes may be asked to move in any 24 hours; DefaultMaxBytes by default.
	MaxBytes int64 `json:"max_bytes"`
	// MaxMoves is how many moves may be under way at once, 1 by default. A shard takes part in one at a time in any case, and a keyspace has one.
	MaxMoves int `json:"max_moves"`
	// Hours are when moves may begin; none is always.
	Hours Hours `json:"hours,omitempty"`
	// SplitBytes and SplitLoad are those of [Thresholds].
	SplitBytes int64   `json:"split_bytes"`
	SplitLoad  float64 `json:"split_load,omitempty"`
	// Rules bind keys to shards with a label, as in [Options].
	Rules []Rule `json:"rules,omitempty"`
}

// Defaults of settings.
const (
	DefaultAutoTolerance = 0.1
	DefaultMaxBytes      = 100 << 30
	// maxAutoMoves bounds what is asked for in one transaction of the store.
	maxAutoMoves = 32
)

// WithDefaults fills in what is empty.
func (s Settings) WithDefaults() Settings {
	defaultTo(&s.Moves, Do)
	defaultTo(&s.Splits, Propose)
	defaultTo(&s.Merges, Leave)
	defaultTo(&s.Measure, ByBytes)
	defaultTo(&s.Tolerance, DefaultAutoTolerance)
	defaultTo(&s.MaxBytes, DefaultMaxBytes)
	defaultTo(&s.MaxMoves, 1)
	defaultTo(&s.SplitBytes, DefaultSplitBytes)
	return s
}

func defaultTo[T comparable](value *T, usual T) {
	var zero T
	if *value == zero {
		*value = usual
	}
}

// Check says why settings cannot be used with a map.
func (s Settings) Check(m *topology.Map) error {
	for what, act := range map[string]Act{"moves": s.Moves, "splits": s.Splits, "merges": s.Merges} {
		if !slices.Contains(Acts(), act) {
			return fmt.Errorf("%s: %q is none of off, propose, do", what, act)
		}
	}
	if s.MaxBytes < 0 || s.MaxMoves < 0 || s.MaxMoves > maxAutoMoves {
		return fmt.Errorf("limits of %d bytes and %d moves: use a number of bytes above 0, and from 1 to %d moves", s.MaxBytes, s.MaxMoves, maxAutoMoves)
	}
	if _, _, err := s.Hours.parse(); err != nil {
		return err
	}
	if err := s.options(0, nil).check(m); err != nil {
		return err
	}
	if _, err := chosen(m, s.Keyspaces); err != nil {
		return err
	}
	if err := checkRules(m, s.Rules); err != nil {
		return err
	}
	_, err := Thresholds{Bytes: s.SplitBytes, Load: s.SplitLoad}.withDefaults()
	return err
}

// options are what moves are planned with.
func (s Settings) options(left int64, fixed []string) Options {
	return Options{Algorithm: Greedy, Measure: s.Measure, Tolerance: s.Tolerance, MaxBytes: left, Rules: s.Rules, Split: true, Fixed: fixed}
}

// Thresholds are what splits and merges of keyspaces are proposed with.
func (s Settings) Thresholds(keyspaces []string) Thresholds {
	return Thresholds{Bytes: s.SplitBytes, Load: s.SplitLoad, Keyspaces: keyspaces, Rules: s.Rules}
}

// PlanMoves plans what may move by itself: nothing while every shard is within the tolerance; and otherwise as much as brings them within half of it, so that not a little has to move again soon.
// Fixed are keyspaces that count but stay as they are, and left is how many bytes may move.
func (s Settings) PlanMoves(m *topology.Map, sizes Sizes, fixed []string, left int64) (*Plan, error) {
	options := s.options(left, fixed)
	plan, err := Balance(m, sizes, options)
	if err != nil || len(plan.Moves) == 0 {
		return plan, err
	}
	options.Tolerance /= 2
	return Balance(m, sizes, options)
}

// Hours are a time of the day in UTC, such as 22:00-06:00. None is always.
type Hours string

// parse reads the minutes of the day.
func (h Hours) parse() (from, to int, err error) {
	if h == "" {
		return 0, 0, nil
	}
	wrong := fmt.Errorf("hours %q: write them as 22:00-06:00, in UTC", string(h))
	if len(h) != len("22:00-06:00") || h[5] != '-' {
		return 0, 0, wrong
	}
	begins, err1 := time.Parse("15:04", string(h[:5]))
	ends, err2 := time.Parse("15:04", string(h[6:]))
	if err1 != nil || err2 != nil || begins.Equal(ends) {
		return 0, 0, wrong
	}
	return begins.Hour()*60 + begins.Minute(), ends.Hour()*60 + ends.Minute(), nil
}

// Contain says whether a moment lies in them. Hours that cannot be read contain nothing.
func (h Hours) Contain(at time.Time) bool {
	from, to, err := h.parse()
	at = at.UTC()
	minute := at.Hour()*60 + at.Minute()
	switch {
	case err != nil:
		return false
	case from == to:
		return true
	case from < to:
		return from <= minute && minute < to
	default: // over midnight
		return from <= minute || minute < to
	}
}

// Automation is what people want to be done by itself, and what became of it.
type Automation struct {
	Settings Settings `json:"settings"`
	// Spent is how many bytes were asked to move, by the hour.
	Spent []Spent `json:"spent,omitempty"`
	// Moves are those that were asked for and have not ended.
	Moves []AutoMove `json:"moves,omitempty"`
	// Change is the change of the map that is about to be made.
	Change *AutoChange `json:"change,omitempty"`
	// Halts are keyspaces in which nothing is done until a person has looked.
	Halts []Halt `json:"halts,omitempty"`
	// Looked is when the shards were looked at last. Waiting is why something is not done, Proposals is what could be.
	Looked    time.Time  `json:"looked,omitzero"`
	Waiting   []string   `json:"waiting,omitempty"`
	Proposals []Proposal `json:"proposals,omitempty"`
	// Events are the last things that were done, the newest first.
	Events []Event `json:"events,omitempty"`
}

// Spent is what was asked to move in one hour.
type Spent struct {
	Hour  time.Time `json:"hour"` // its beginning
	Bytes int64     `json:"bytes"`
}

// AutoMove is a move that was asked for by itself.
type AutoMove struct {
	ID       string `json:"id"`
	Keyspace string `json:"keyspace"`
	From     string `json:"from"`
	To       string `json:"to"`
	// Bytes is how many were counted for it.
	Bytes int64     `json:"bytes"`
	At    time.Time `json:"at"`
}

// AutoChange is a split or a merge of ranges.
type AutoChange struct {
	Keyspace string           `json:"keyspace"`
	Merge    bool             `json:"merge,omitempty"`
	At       []topology.Point `json:"at"` // where ranges are to begin, or not to begin any more
	Why      string           `json:"why"`
}

// Halt is why nothing is done in a keyspace.
type Halt struct {
	Keyspace string    `json:"keyspace"`
	Why      string    `json:"why"`
	Move     string    `json:"move,omitempty"`
	At       time.Time `json:"at"`
}

// Proposal is something that could be done.
type Proposal struct {
	// What is move, split or merge.
	What     string `json:"what"`
	Keyspace string `json:"keyspace"`
	Why      string `json:"why"`
	Bytes    int64  `json:"bytes,omitempty"`
	// Command does it.
	Command string `json:"command"`
}

// Event is something that was done.
type Event struct {
	At time.Time `json:"at"`
	// What is settings, move, split, merge, done, halt or resume.
	What     string `json:"what"`
	Keyspace string `json:"keyspace,omitempty"`
	Move     string `json:"move,omitempty"`
	Bytes    int64  `json:"bytes,omitempty"`
	Why      string `json:"why"`
}

// keptEvents is how many events are remembered, and keptProposals how many things are proposed or waited for at a time.
const (
	keptEvents    = 100
	keptProposals = 50
)

// Note remembers an event.
func (a *Automation) Note(e Event) {
	a.Events = slices.Insert(a.Events, 0, e)
	a.Events = a.Events[:min(len(a.Events), keptEvents)]
}

// Suggest adds proposals, as many as are kept.
func (a *Automation) Suggest(proposals ...Proposal) {
	a.Proposals = append(a.Proposals, proposals...)
	a.Proposals = a.Proposals[:min(len(a.Proposals), keptProposals)]
}

// Wait adds a reason for something not being done, once.
func (a *Automation) Wait(why string) {
	if !slices.Contains(a.Waiting, why) && len(a.Waiting) < keptProposals {
		a.Waiting = append(a.Waiting, why)
	}
}

// day is how long bytes count.
const day = 24 * time.Hour

// counts says whether any part of the hour lies in the day before. Hours in the future do: clocks differ.
func (s Spent) counts(now time.Time) bool { return s.Hour.Add(time.Hour).After(now.Add(-day)) }

// Spend counts bytes, and forgets hours that count no more.
func (a *Automation) Spend(bytes int64, now time.Time) {
	a.Spent = slices.DeleteFunc(a.Spent, func(s Spent) bool { return !s.counts(now) })
	hour := now.UTC().Truncate(time.Hour)
	if i := slices.IndexFunc(a.Spent, func(s Spent) bool { return s.Hour.Equal(hour) }); i >= 0 {
		a.Spent[i].Bytes += bytes
		return
	}
	a.Spent = append(a.Spent, Spent{Hour: hour, Bytes: bytes})
}

// SpentBytes is how many bytes were asked to move in the day before.
func (a *Automation) SpentBytes(now time.Time) (bytes int64) {
	for _, s := range a.Spent {
		if s.counts(now) {
			bytes += s.Bytes
		}
	}
	return bytes
}

// crumbs is which part of the limit is too little to move something for.
const crumbs = 100

// LeftBytes is how many bytes may still be asked to move now. What is less than a hundredth of the limit is none: it would be spent on moving crumbs.
func (a *Automation) LeftBytes(now time.Time) int64 {
	left := a.Settings.MaxBytes - a.SpentBytes(now)
	if left < max(a.Settings.MaxBytes/crumbs, 1) {
		return 0
	}
	return left
}

// Halted says why nothing is done in a keyspace.
func (a *Automation) Halted(keyspace string) (Halt, bool) {
	i := slices.IndexFunc(a.Halts, func(h Halt) bool { return h.Keyspace == keyspace })
	if i < 0 {
		return Halt{}, false
	}
	return a.Halts[i], true
}

// Halt lets nothing be done in a keyspace any more. The first reason stays.
func (a *Automation) Halt(h Halt) {
	if _, halted := a.Halted(h.Keyspace); halted {
		return
	}
	a.Halts = append(a.Halts, h)
	a.Note(Event{At: h.At, What: "halt", Keyspace: h.Keyspace, Move: h.Move, Why: h.Why})
}

// Resume lets something be done again in keyspaces, in all if none is named.
func (a *Automation) Resume(keyspaces []string, now time.Time) error {
	for _, k := range keyspaces {
		if _, halted := a.Halted(k); !halted {
			return fmt.Errorf("keyspace %s has not been halted", k)
		}
	}
	if len(a.Halts) == 0 {
		return errors.New("no keyspace has been halted")
	}
	a.Halts = slices.DeleteFunc(slices.Clone(a.Halts), func(h Halt) bool {
		resumed := len(keyspaces) == 0 || slices.Contains(keyspaces, h.Keyspace)
		if resumed {
			a.Note(Event{At: now, What: "resume", Keyspace: h.Keyspace, Why: "somebody has looked: " + h.Why})
		}
		return resumed
	})
	return nil
}

// maxMoveParts bounds how many ranges and pins are asked for in one move, so that it can be stored.
const maxMoveParts = 2000

// Choose picks from planned moves those that may begin now: the first of each keyspace whose shards take part in no other move, as many as there may be, and no more bytes than are left.
// Busy are shards that take part in a move. What is too large for one move is cut short, and the rest moves later.
func (a *Automation) Choose(moves []Move, busy []string, now time.Time) []Move {
	var chosen []Move
	busy = slices.Clone(busy)
	left, places := a.LeftBytes(now), a.Settings.MaxMoves-len(a.Moves)
	for _, m := range moves {
		m = m.shortened()
		taken := slices.ContainsFunc(chosen, func(other Move) bool { return other.Keyspace == m.Keyspace })
		if places <= len(chosen) || taken || m.Bytes > left || slices.Contains(busy, m.Source) || slices.Contains(busy, m.Target) {
			continue
		}
		chosen, busy, left = append(chosen, m), append(busy, m.Source, m.Target), left-m.Bytes
	}
	return chosen
}

// shortened is the move with as many parts as can be asked for at once.
func (m Move) shortened() Move {
	if len(m.Ranges)+len(m.Pins) <= maxMoveParts {
		return m
	}
	parts := float64(len(m.Ranges) + len(m.Pins))
	m.Pins = m.Pins[:min(len(m.Pins), maxMoveParts)]
	m.Ranges = m.Ranges[:min(len(m.Ranges), maxMoveParts-len(m.Pins))]
	share := float64(len(m.Ranges)+len(m.Pins)) / parts
	m.Bytes, m.Rows = int64(math.Ceil(float64(m.Bytes)*share)), int64(math.Ceil(float64(m.Rows)*share))
	if len(m.Pins) == 0 {
		m.Bytes, m.Rows = 0, 0
		for _, r := range m.Ranges {
			m.Bytes, m.Rows = m.Bytes+r.Bytes, m.Rows+r.Rows
		}
	}
	return m
}
