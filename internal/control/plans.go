package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/rebalance"
	"github.com/cleavedb/cleave/internal/reshard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

const (
	// maxPlannedMoves is how many moves of a plan can be asked for: more would take weeks, and their names more room than there is.
	maxPlannedMoves = 10_000
	// keepPlansEvery is how often the leader looks for plans that somebody has begun to apply.
	keepPlansEvery = 2 * time.Second
)

// keptPlan is what a plan says, as it is stored.
type keptPlan struct {
	api.RebalancePlan
	// Reached are what keyspaces are to name when all has moved.
	Reached []rebalance.KeyspaceAssignment `json:"reached,omitempty"`
}

// keepPlan stores a plan under its ID. The same one may be kept already, and stays; if it was applied, it is planned anew as soon as none of its moves is under way any more.
func (c *Cluster) keepPlan(ctx context.Context, plan *keptPlan) error {
	if len(plan.Moves) > maxPlannedMoves {
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("it has %d moves, and can be applied with at most %d: limit them", len(plan.Moves), maxPlannedMoves))
	}
	body, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	for {
		err := c.config.Store.KeepPlan(ctx, store.Plan{ID: plan.ID, Version: plan.MapVersion, Body: body})
		var large *store.PlanTooLargeError
		switch {
		case errors.As(err, &large):
			return &InvalidError{Message: err.Error(), Hint: "Plan less at a time: limit the moves or their bytes, or name a keyspace."}
		case !errors.Is(err, store.ErrExists):
			return err
		}
		kept, err := c.config.Store.Plan(ctx, plan.ID)
		switch {
		case errors.Is(err, store.ErrNoPlan):
			continue // somebody has forgotten it meanwhile
		case err != nil || kept.Applied.IsZero():
			return err
		}
		open, err := c.isOpen(ctx, kept)
		if err != nil {
			return err
		}
		if open {
			plan.Warnings = append(plan.Warnings, fmt.Sprintf("this plan was applied at %s: its moves are under way", kept.Applied.Format(time.DateTime)))
			return nil
		}
		if err := c.config.Store.DropPlan(ctx, kept); err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// isOpen says whether a plan that was applied has moves that have not ended.
func (c *Cluster) isOpen(ctx context.Context, plan store.Plan) (bool, error) {
	if !plan.HasAsked() {
		return true, nil
	}
	moves, err := c.mover.List(ctx)
	if err != nil {
		return false, err
	}
	under := map[string]bool{}
	for _, m := range moves {
		under[m.ID] = !m.Phase.HasEnded()
	}
	return slices.ContainsFunc(plan.Jobs, func(id string) bool { return under[id] }), nil
}

// ApplyRebalance has the moves of a plan made, if the map is still the one that it was made for. That is decided once: who applies the plan again hears of the same moves.
func (c *Cluster) ApplyRebalance(ctx context.Context, id string) (api.MoveList, error) {
	for {
		plan, described, err := c.readPlan(ctx, id)
		if err != nil {
			return api.MoveList{}, err
		}
		if plan.Applied.IsZero() {
			refused := c.mayApply(ctx, plan, described)
			if plan, described, err = c.readPlan(ctx, id); err != nil {
				return api.MoveList{}, err
			}
			if refused != nil && plan.Applied.IsZero() { // else somebody else was faster, and it is their moves that are in the way
				return api.MoveList{}, refused
			}
		}
		if plan, err = c.askPlanned(ctx, plan, described); err == nil && len(plan.Jobs) == 0 && !plan.Settled {
			err = c.goOnWith(ctx, plan) // nothing has to move first
		}
		switch {
		case err == nil:
			c.mover.Poke()
			return c.movesOf(ctx, plan)
		case !errors.Is(err, store.ErrConflict) || ctx.Err() != nil:
			return api.MoveList{}, err
		}
	}
}

// readPlan reads a plan, and what it says.
func (c *Cluster) readPlan(ctx context.Context, id string) (plan store.Plan, described keptPlan, err error) {
	plan, err = c.config.Store.Plan(ctx, id)
	switch {
	case errors.Is(err, store.ErrNoPlan):
		return plan, described, &topology.NotFoundError{Kind: "plan", Name: id}
	case err != nil:
		return plan, described, err
	}
	if err := json.Unmarshal(plan.Body, &described); err != nil {
		return plan, described, fmt.Errorf("read plan %s: %w", id, err)
	}
	return plan, described, nil
}

// mayApply says why a plan that nobody has applied yet cannot be.
func (c *Cluster) mayApply(ctx context.Context, plan store.Plan, described keptPlan) error {
	m, err := c.config.Store.Map(ctx)
	if err != nil {
		return err
	}
	if m.Version() != plan.Version {
		return &InvalidError{
			Message: fmt.Sprintf("plan %s was made for map version %d, and version %d is in force", plan.ID, plan.Version, m.Version()), Hint: "Plan again: cleave rebalance plan.",
		}
	}
	if n := len(described.Moves); n > maxPlannedMoves {
		return &InvalidError{
			Message: fmt.Sprintf("plan %s has %d moves, and can be applied with at most %d", plan.ID, n, maxPlannedMoves), Hint: "Limit them: cleave rebalance plan --max-moves.",
		}
	}
	moves, err := c.mover.List(ctx)
	if err != nil {
		return err
	}
	for _, planned := range described.Moves {
		if first := inTheWay(moves, planned.Keyspace, planned.Tables); first != nil {
			return &InvalidError{
				Message: fmt.Sprintf("move %s was asked for after plan %s was made, which does not know of it", first.ID, plan.ID), Hint: "Wait until that one has switched, or cancel it, and plan again: cleave rebalance plan.",
			}
		}
	}
	return nil
}

// inTheWay is the first move of a keyspace, or of one of some whole tables, of which the map does not tell yet where it is going; nil if there is none.
func inTheWay(moves []*reshard.Move, keyspace string, tables []string) *reshard.Move {
	for _, m := range slices.Backward(moves) {
		same := m.Keyspace == keyspace
		if len(tables) > 0 {
			same = slices.ContainsFunc(tables, func(name string) bool { return slices.Contains(m.Whole, name) })
		}
		if same && isUnseen(m) {
			return m
		}
	}
	return nil
}

// isUnseen says whether the map does not tell yet where it is going what a move moves. Of whole tables it does so when they have switched.
func isUnseen(m *reshard.Move) bool {
	phases := []reshard.Phase{reshard.Asked, reshard.Checking, reshard.Preparing, reshard.Announcing}
	if len(m.Whole)+len(m.Schemas) > 0 {
		phases = append(phases, reshard.Copying, reshard.CatchingUp, reshard.Verifying, reshard.Ready, reshard.Switching, reshard.RollingBack)
	}
	return slices.Contains(phases, m.Phase)
}

// askPlanned asks for all jobs of a plan, as many as go at a time. It goes on where somebody else has stopped.
func (c *Cluster) askPlanned(ctx context.Context, plan store.Plan, described keptPlan) (store.Plan, error) {
	m, err := c.Map(ctx)
	if err != nil {
		return plan, err
	}
	jobs, err := jobsOf(m, plan, described, plan.Jobs)
	for err == nil && !plan.HasAsked() {
		plan, err = c.config.Store.AskPlanned(ctx, plan, jobs)
		if errors.Is(err, store.ErrExists) { // a job that is not of this plan has one of the names: others are drawn
			jobs, err = jobsOf(m, plan, described, plan.Jobs[:plan.Asked])
		}
	}
	return plan, err
}

// jobsOf are the jobs of a plan, to be carried out in this order. The first have these names, others are drawn.
func jobsOf(m *topology.Map, plan store.Plan, described keptPlan, names []string) ([]store.Job, error) {
	began := plan.Applied
	if began.IsZero() {
		began = time.Now().UTC()
	}
	jobs := make([]store.Job, len(described.Moves))
	for i, planned := range described.Moves {
		move := &reshard.Move{
			Keyspace: planned.Keyspace, Source: planned.From, Target: planned.To, Whole: planned.Tables, Why: "plan " + plan.ID, AskedAt: began.Add(time.Duration(i) * time.Microsecond),
		}
		if i < len(names) {
			move.ID = names[i]
		}
		for _, r := range planned.Ranges {
			move.Ranges = append(move.Ranges, reshard.Range{From: r.From, To: r.To})
		}
		move.Ranges = reshard.Join(move.Ranges)
		for _, key := range planned.Keys {
			move.Pins = append(move.Pins, key)
		}
		if k := m.Keyspace(move.Keyspace); k != nil {
			move = apart(k, move)[0] // there is no more: a plan has a move for each schema, and none has more than one job takes
		}
		var err error
		if jobs[i], err = reshard.NewJob(move); err != nil {
			return nil, err
		}
	}
	return jobs, nil
}

// movesOf are the moves that a plan has become, as they are now. Those that ended long ago are not known any more.
func (c *Cluster) movesOf(ctx context.Context, plan store.Plan) (api.MoveList, error) {
	moves, err := c.mover.List(ctx)
	if err != nil {
		return api.MoveList{}, err
	}
	byID := make(map[string]*reshard.Move, len(moves))
	for _, m := range moves {
		byID[m.ID] = m
	}
	list := api.MoveList{Moves: []api.Move{}}
	for _, id := range plan.Jobs {
		if m := byID[id]; m != nil {
			list.Moves = append(list.Moves, describeMove(m))
		}
	}
	if len(list.Moves) == 0 && len(plan.Jobs) > 0 {
		return list, &InvalidError{
			Message: fmt.Sprintf("plan %s was applied at %s, and its moves have ended: %s", plan.ID, plan.Applied.Format(time.DateTime), strings.Join(plan.Jobs, ", ")), Hint: "Plan again: cleave rebalance plan.",
		}
	}
	return list, nil
}

// keepPlans goes on with plans that somebody has begun to apply, until the leadership ends. What it does is compared with what was done: a leader that does not know yet that it is none does no harm.
func (c *Cluster) keepPlans(ctx context.Context, leadership *store.Leadership) {
	ctx, stop := whileLeading(ctx, leadership)
	defer stop()
	ticker := time.NewTicker(keepPlansEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if err := c.goOnWithPlans(ctx); err != nil && ctx.Err() == nil {
			c.config.Logger.Warn("plans that were applied could not be looked after; trying on", "error", err)
		}
	}
}

// goOnWithPlans looks once.
func (c *Cluster) goOnWithPlans(ctx context.Context) error {
	plans, err := c.config.Store.Plans(ctx)
	if err != nil {
		return err
	}
	var failures []error
	for _, plan := range plans {
		if plan.Applied.IsZero() || plan.Settled {
			continue
		}
		if err := c.goOnWith(ctx, plan); err != nil && !errors.Is(err, store.ErrConflict) { // then somebody else goes on with it
			failures = append(failures, fmt.Errorf("plan %s: %w", plan.ID, err))
		}
	}
	return errors.Join(failures...)
}

// goOnWith asks for what is left of a plan, or notes that nothing is left to be done about it.
func (c *Cluster) goOnWith(ctx context.Context, plan store.Plan) error {
	if !plan.HasAsked() {
		whole, described, err := c.readPlan(ctx, plan.ID)
		if err == nil {
			_, err = c.askPlanned(ctx, whole, described)
		}
		c.mover.Poke()
		return err
	}
	if open, err := c.isOpen(ctx, plan); err != nil || open {
		return err
	}
	_, described, err := c.readPlan(ctx, plan.ID)
	if err != nil {
		return err
	}
	for _, a := range described.Reached {
		if err := c.assign(ctx, a); err != nil {
			return err
		}
	}
	return c.config.Store.SettlePlan(ctx, plan)
}

// assign has a keyspace name the algorithm that has made its ranges, if that is what they are: a move may have been taken back, and others made.
func (c *Cluster) assign(ctx context.Context, a rebalance.KeyspaceAssignment) error {
	m, err := c.config.Store.Update(ctx, func(m *topology.Map) (*topology.Map, error) {
		k := m.Keyspace(a.Keyspace)
		if k == nil || k.Hashes() == nil || rebalance.Layout(k.Hashes()) != a.Layout || k.Assignment().Equal(a.Assignment) {
			return m, nil
		}
		return m.Next(topology.ReplaceRanges(a.Keyspace, k.Spec().Ranges, a.Assignment))
	})
	if err == nil {
		c.applied(ctx, m.Version())
	}
	return err
}
