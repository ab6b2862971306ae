package rebalance

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

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

var hoursForm = regexp.MustCompile(`^([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])$`)

// parse reads the minutes of the day.
func (h Hours) parse() (from, to int, err error) {
	if h == "" {
		return 0, 0, nil
	}
	var parts [4]int
	for i, text := range hoursForm.FindStringSubmatch(string(h)) {
		if i > 0 {
			parts[i-1], _ = strconv.Atoi(text) // two digits
		}
	}
	if from, to = parts[0]*60+parts[1], parts[2]*60+parts[3]; from == to {
		return 0, 0, fmt.Errorf("hours %q: write them as 22:00-06:00, in UTC", string(h))
	}
	return from, to, nil
}

// Contain says whether a minute of the day, in UTC, lies in them. Hours that cannot be read contain nothing.
func (h Hours) Contain(minute int) bool {
	from, to, err := h.parse()
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

// Choose picks from planned moves those that may begin now: the first of each keyspace whose shards take part in no other move, no more than there are places, and no more bytes than are left.
// Busy are shards that take part in a move.
func Choose(moves []Move, busy []string, left int64, places int) []Move {
	var chosen []Move
	busy = slices.Clone(busy)
	for _, m := range moves {
		taken := slices.ContainsFunc(chosen, func(other Move) bool { return other.Keyspace == m.Keyspace })
		if places <= len(chosen) || taken || m.Bytes > left || slices.Contains(busy, m.Source) || slices.Contains(busy, m.Target) {
			continue
		}
		chosen, busy, left = append(chosen, m), append(busy, m.Source, m.Target), left-m.Bytes
	}
	return chosen
}
