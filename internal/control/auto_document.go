package control

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cleavedb/cleave/internal/rebalance"
	"github.com/cleavedb/cleave/internal/topology"
)

// autoDocument is what people want to be done by itself, and what became of it.
type autoDocument struct {
	Settings rebalance.Settings `json:"settings"`
	// Spent is how many bytes were asked to move, by the hour.
	Spent []autoSpent `json:"spent,omitempty"`
	// Moves are those that were asked for and have not ended.
	Moves []autoMove `json:"moves,omitempty"`
	// Change is the change of the map that is about to be made.
	Change *autoChange `json:"change,omitempty"`
	// Halts are keyspaces in which nothing is done until a person has looked.
	Halts []autoHalt `json:"halts,omitempty"`
	// Looked is when the shards were looked at last. Waiting is why something is not done, Proposals is what could be.
	Looked    time.Time      `json:"looked,omitzero"`
	Waiting   []string       `json:"waiting,omitempty"`
	Proposals []autoProposal `json:"proposals,omitempty"`
	// Busy is since when ranges have had too much load at every look, by keyspace and range.
	Busy map[string]time.Time `json:"busy,omitempty"`
	// Events are the last things that were done, the newest first.
	Events []autoEvent `json:"events,omitempty"`
}

// autoSpent is what was asked to move in one hour.
type autoSpent struct {
	Hour  time.Time `json:"hour"` // its beginning
	Bytes int64     `json:"bytes"`
}

// autoMove is a move that was asked for by itself.
type autoMove struct {
	ID       string `json:"id"`
	Keyspace string `json:"keyspace"`
	From     string `json:"from"`
	To       string `json:"to"`
	// Bytes is how many were counted for it.
	Bytes int64     `json:"bytes"`
	At    time.Time `json:"at"`
}

// autoChange is a split or a merge of ranges.
type autoChange struct {
	Keyspace string           `json:"keyspace"`
	Merge    bool             `json:"merge,omitempty"`
	At       []topology.Point `json:"at"` // where ranges are to begin, or not to begin any more
	Why      string           `json:"why"`
}

// autoHalt is why nothing is done in a keyspace.
type autoHalt struct {
	Keyspace string    `json:"keyspace"`
	Why      string    `json:"why"`
	Move     string    `json:"move,omitempty"`
	At       time.Time `json:"at"`
}

// autoProposal is something that could be done.
type autoProposal struct {
	// What is move, split or merge.
	What     string `json:"what"`
	Keyspace string `json:"keyspace"`
	Why      string `json:"why"`
	Bytes    int64  `json:"bytes,omitempty"`
	// Command does it.
	Command string `json:"command"`
}

// autoEvent is something that was done.
type autoEvent struct {
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
func (a *autoDocument) Note(e autoEvent) {
	a.Events = slices.Insert(a.Events, 0, e)
	a.Events = a.Events[:min(len(a.Events), keptEvents)]
}

// Suggest adds proposals, as many as are kept.
func (a *autoDocument) Suggest(proposals ...autoProposal) {
	a.Proposals = append(a.Proposals, proposals...)
	a.Proposals = a.Proposals[:min(len(a.Proposals), keptProposals)]
}

// Wait adds a reason for something not being done, once.
func (a *autoDocument) Wait(why string) {
	if !slices.Contains(a.Waiting, why) && len(a.Waiting) < keptProposals {
		a.Waiting = append(a.Waiting, why)
	}
}

// day is how long bytes count.
const day = 24 * time.Hour

// counts says whether any part of the hour lies in the day before. Hours in the future do: clocks differ.
func (s autoSpent) counts(now time.Time) bool { return s.Hour.Add(time.Hour).After(now.Add(-day)) }

// Spend counts bytes, and forgets hours that count no more.
func (a *autoDocument) Spend(bytes int64, now time.Time) {
	a.Spent = slices.DeleteFunc(a.Spent, func(s autoSpent) bool { return !s.counts(now) })
	hour := now.UTC().Truncate(time.Hour)
	if i := slices.IndexFunc(a.Spent, func(s autoSpent) bool { return s.Hour.Equal(hour) }); i >= 0 {
		a.Spent[i].Bytes += bytes
		return
	}
	a.Spent = append(a.Spent, autoSpent{Hour: hour, Bytes: bytes})
}

// SpentBytes is how many bytes were asked to move in the day before.
func (a *autoDocument) SpentBytes(now time.Time) (bytes int64) {
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
func (a *autoDocument) LeftBytes(now time.Time) int64 {
	left := a.Settings.MaxBytes - a.SpentBytes(now)
	if left < max(a.Settings.MaxBytes/crumbs, 1) {
		return 0
	}
	return left
}

// Halted says why nothing is done in a keyspace.
func (a *autoDocument) Halted(keyspace string) (autoHalt, bool) {
	i := slices.IndexFunc(a.Halts, func(h autoHalt) bool { return h.Keyspace == keyspace })
	if i < 0 {
		return autoHalt{}, false
	}
	return a.Halts[i], true
}

// Halt lets nothing be done in a keyspace any more. The first reason stays.
func (a *autoDocument) Halt(h autoHalt) {
	if _, halted := a.Halted(h.Keyspace); halted {
		return
	}
	a.Halts = append(a.Halts, h)
	a.Note(autoEvent{At: h.At, What: "halt", Keyspace: h.Keyspace, Move: h.Move, Why: h.Why})
}

// Resume lets something be done again in keyspaces, in all if none is named.
func (a *autoDocument) Resume(keyspaces []string, now time.Time) error {
	for _, k := range keyspaces {
		if _, halted := a.Halted(k); !halted {
			return fmt.Errorf("keyspace %s has not been halted", k)
		}
	}
	if len(a.Halts) == 0 {
		return errors.New("no keyspace has been halted")
	}
	a.Halts = slices.DeleteFunc(slices.Clone(a.Halts), func(h autoHalt) bool {
		resumed := len(keyspaces) == 0 || slices.Contains(keyspaces, h.Keyspace)
		if resumed {
			a.Note(autoEvent{At: now, What: "resume", Keyspace: h.Keyspace, Why: "somebody has looked: " + h.Why})
		}
		return resumed
	})
	return nil
}
