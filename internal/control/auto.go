package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/rebalance"
	"github.com/cleavedb/cleave/internal/store"
)

// Automation tells what the leader may do by itself, and what became of it.
func (c *Cluster) Automation(ctx context.Context) (api.Automation, error) {
	_, automation, err := c.readAutomation(ctx)
	return describeAutomation(automation), err
}

// readAutomation reads the document. None is one in which everything is off.
func (c *Cluster) readAutomation(ctx context.Context) (store.Automation, autoDocument, error) {
	var automation autoDocument
	stored, err := c.config.Store.Automation(ctx)
	if err != nil {
		return stored, automation, err
	}
	if stored.Revision > 0 {
		if err := json.Unmarshal(stored.Body, &automation); err != nil {
			return stored, automation, fmt.Errorf("read the automation: %w", err)
		}
	}
	automation.Settings = automation.Settings.WithDefaults()
	return stored, automation, nil
}

// UpdateAutomation changes what the leader may do by itself. It starts over when the leader, or somebody else, was faster.
func (c *Cluster) UpdateAutomation(ctx context.Context, request api.UpdateAutomation) (api.Automation, error) {
	m, err := c.Map(ctx)
	if err != nil {
		return api.Automation{}, err
	}
	for {
		stored, automation, err := c.readAutomation(ctx)
		if err != nil {
			return api.Automation{}, err
		}
		before := automation.Settings
		if err := change(&automation.Settings, request); err != nil {
			return api.Automation{}, err
		}
		if err := automation.Settings.Check(m); err != nil {
			return api.Automation{}, invalidUnlessTyped(err)
		}
		now := time.Now().UTC()
		if len(request.Resume) > 0 {
			if err := automation.Resume(request.Resume, now); err != nil {
				return api.Automation{}, &InvalidError{Message: err.Error()}
			}
		}
		if summary := summarise(automation.Settings); summary != summarise(before) {
			automation.Note(autoEvent{At: now, What: "settings", Why: summary})
		}
		if !automation.Settings.On {
			automation.Proposals, automation.Waiting = nil, nil
		}
		if stored.Body, err = json.Marshal(automation); err != nil {
			return api.Automation{}, err
		}
		if _, err = c.config.Store.SetAutomation(ctx, stored); err == nil {
			return describeAutomation(automation), nil
		}
		if !errors.Is(err, store.ErrConflict) || ctx.Err() != nil {
			return api.Automation{}, err
		}
	}
}

// change changes the settings that are named. A number of 0 is the usual one again.
func change(s *rebalance.Settings, request api.UpdateAutomation) error {
	set(&s.On, request.On)
	set(&s.Keyspaces, request.Keyspaces)
	set(&s.Tolerance, request.Tolerance)
	set(&s.MaxBytes, request.MaxBytes)
	set(&s.MaxMoves, request.MaxMoves)
	set(&s.SplitBytes, request.SplitBytes)
	set(&s.SplitLoad, request.SplitLoad)
	setText(&s.Moves, request.Moves)
	setText(&s.Splits, request.Splits)
	setText(&s.Merges, request.Merges)
	setText(&s.Measure, request.Measure)
	setText(&s.Hours, request.Hours)
	if request.Rules != nil {
		s.Rules = rulesOf(*request.Rules)
	}
	*s = s.WithDefaults()
	if s.Measure == rebalance.ByWidth {
		return &InvalidError{Message: "measure width is not for moves that nobody looks at: it would take an empty range for a full one", Hint: "Use bytes, rows or load."}
	}
	return nil
}

func set[T any](value *T, wanted *T) {
	if wanted != nil {
		*value = *wanted
	}
}

func setText[T ~string](value *T, wanted *string) {
	if wanted != nil {
		*value = T(*wanted)
	}
}

// summarise says in a line what is done by itself.
func summarise(s rebalance.Settings) string {
	if !s.On {
		return "off"
	}
	line := fmt.Sprintf("on: moves %s, splits %s, merges %s; at most %d bytes a day, %d at once", s.Moves, s.Splits, s.Merges, s.MaxBytes, s.MaxMoves)
	if s.Hours != "" {
		line += ", " + string(s.Hours) + " UTC"
	}
	return line + fmt.Sprintf("; even to %g of %s; split at %d bytes", s.Tolerance, s.Measure, s.SplitBytes)
}

func describeAutomation(a autoDocument) api.Automation {
	s := a.Settings
	d := api.Automation{
		Settings: api.AutoSettings{
			On: s.On, Keyspaces: append([]string{}, s.Keyspaces...), Moves: string(s.Moves), Splits: string(s.Splits), Merges: string(s.Merges), Measure: string(s.Measure), Tolerance: s.Tolerance,
			MaxBytes: s.MaxBytes, MaxMoves: s.MaxMoves, Hours: string(s.Hours), SplitBytes: s.SplitBytes, SplitLoad: s.SplitLoad, Rules: []api.RebalanceRule{},
		},
		SpentBytes: a.SpentBytes(time.Now()), Looked: a.Looked, Waiting: append([]string{}, a.Waiting...),
		Moves: []api.AutoMove{}, Halts: []api.AutoHalt{}, Proposals: []api.AutoProposal{}, Events: []api.AutoEvent{},
	}
	for _, r := range s.Rules {
		d.Settings.Rules = append(d.Settings.Rules, api.RebalanceRule{Keyspace: r.Keyspace, From: r.From, To: r.To, Key: r.Key, Label: r.Label, Value: r.Value})
	}
	for _, m := range a.Moves {
		d.Moves = append(d.Moves, api.AutoMove(m))
	}
	for _, h := range a.Halts {
		d.Halts = append(d.Halts, api.AutoHalt(h))
	}
	for _, p := range a.Proposals {
		d.Proposals = append(d.Proposals, api.AutoProposal(p))
	}
	for _, e := range a.Events {
		d.Events = append(d.Events, api.AutoEvent(e))
	}
	return d
}

// automationFindings are what a status says of the automation: that it has stopped somewhere.
func automationFindings(a autoDocument) []api.Finding {
	var findings []api.Finding
	for _, h := range a.Halts {
		findings = append(findings, api.Finding{
			Severity: api.Warning, Code: "automation_halted", Message: fmt.Sprintf("nothing is done by itself in keyspace %s since %s: %s", h.Keyspace, h.At.Format(time.DateTime), h.Why),
			Hint: "Look at it, then 'cleave rebalance auto resume " + h.Keyspace + "'.",
		})
	}
	return findings
}

// isChosen says whether something may be done in a keyspace.
func isChosen(s rebalance.Settings, keyspace string) bool {
	return len(s.Keyspaces) == 0 || slices.Contains(s.Keyspaces, keyspace)
}
