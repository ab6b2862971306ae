package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cleavedb/cleave/internal/failpoint"
	"github.com/cleavedb/cleave/internal/rebalance"
	"github.com/cleavedb/cleave/internal/reshard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

const (
	// followAutoEvery is how often the leader looks how its moves are, and whether the settings have changed.
	followAutoEvery = 2 * time.Second
	// failuresToHalt is how often in a row a step of a move may fail before nothing more is done in its keyspace.
	failuresToHalt = 5
)

// automate does what may be done by itself until the leadership ends. DESIGN.md has the steps, and what happens to a leader that does not know yet that it is none.
func (c *Cluster) automate(ctx context.Context, leadership *store.Leadership) {
	ctx, stop := whileLeading(ctx, leadership)
	defer stop()
	ticker := time.NewTicker(min(followAutoEvery, c.config.AutoInterval))
	defer ticker.Stop()
	schedule, said := &autoSchedule{every: c.config.AutoInterval}, ""
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		err := c.automateOnce(ctx, leadership, schedule)
		if err == nil || errors.Is(err, store.ErrConflict) { // somebody has changed the settings meanwhile: the next look goes by them
			said = ""
			continue
		}
		if ctx.Err() == nil && said != err.Error() {
			said = err.Error()
			c.config.Logger.Warn("what may be done by itself could not be done; trying on", "error", err)
		}
	}
}

// autoSchedule says when a leader is to plan.
type autoSchedule struct {
	every    time.Duration
	next     time.Time
	settings string // those of the last plan
}

// due says whether it is time to plan, and notes it: the first look of a leader, every so often, and when the settings have changed.
func (s *autoSchedule) due(settings rebalance.Settings, now time.Time) bool {
	written, _ := json.Marshal(settings) // of plain values
	if now.Before(s.next) && string(written) == s.settings {
		return false
	}
	s.next, s.settings = now.Add(s.every), string(written)
	return true
}

// automateOnce is one look.
func (c *Cluster) automateOnce(ctx context.Context, leadership *store.Leadership, schedule *autoSchedule) error {
	r, err := c.beginRound(ctx, leadership)
	if err != nil || r == nil {
		return err
	}
	followed, settled := r.follow(), r.settleChange()
	if followed || settled {
		if err := r.write(ctx); err != nil {
			return err
		}
	}
	if !r.Settings.On || !schedule.due(r.Settings, r.now) {
		return nil
	}
	return r.plan(ctx)
}

// beginRound reads what a look needs; nothing if there is nothing to look at.
func (c *Cluster) beginRound(ctx context.Context, leadership *store.Leadership) (*autoRound, error) {
	stored, automation, err := c.readAutomation(ctx)
	if err != nil || len(automation.Moves) == 0 && automation.Change == nil && !automation.Settings.On {
		return nil, err
	}
	r := &autoRound{cluster: c, leadership: leadership, stored: stored, autoDocument: automation, now: time.Now().UTC()}
	if r.moves, err = c.mover.List(ctx); err != nil {
		return nil, err
	}
	if r.m, err = c.config.Store.Map(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// autoRound is one look of the leader at what it may do by itself.
type autoRound struct {
	autoDocument
	cluster    *Cluster
	leadership *store.Leadership
	stored     store.Automation
	now        time.Time
	m          *topology.Map
	moves      []*reshard.Move // all that are known, whoever asked for them
}

// write stores what was decided, and new jobs with it.
func (r *autoRound) write(ctx context.Context, jobs ...store.Job) error {
	body, err := json.Marshal(r.autoDocument)
	if err != nil {
		return err
	}
	r.stored.Body = body
	r.stored, err = r.leadership.SetAutomation(ctx, r.stored, jobs...)
	return err
}

// follow looks how the moves are that were asked for by itself, and says whether it has noted something.
func (r *autoRound) follow() (changed bool) {
	var open []autoMove
	for _, asked := range r.Moves {
		i := slices.IndexFunc(r.moves, func(m *reshard.Move) bool { return m.ID == asked.ID })
		if i < 0 {
			r.halt(asked, "the move is not known any more, nor how it ended")
			continue
		}
		move := r.moves[i]
		switch trouble := troubleOf(move); {
		case move.Phase == reshard.Done:
			r.Spend(max(move.Bytes()-asked.Bytes, 0), r.now)
			r.Note(autoEvent{At: r.now, What: "done", Keyspace: asked.Keyspace, Move: asked.ID, Bytes: move.Bytes(), Why: fmt.Sprintf("%d rows have moved from shard %s to shard %s", move.Rows(), asked.From, asked.To)})
			r.cluster.config.Logger.Info("a move that was made by itself has ended", "move", asked.ID, "keyspace", asked.Keyspace)
		case trouble != "":
			changed = r.halt(asked, trouble) || changed
			if move.Phase.HasEnded() {
				r.Spend(max(move.Bytes()-asked.Bytes, 0), r.now)
				continue
			}
			open = append(open, asked)
		default:
			open = append(open, asked)
		}
	}
	changed = changed || len(open) != len(r.Moves)
	r.Moves = open
	return changed
}

// troubleOf says why a person should look at a move; empty if nobody needs to.
func troubleOf(m *reshard.Move) string {
	switch {
	case m.Phase == reshard.Cancelled || m.Phase == reshard.RolledBack || m.Phase == reshard.Cancelling || m.RollsBack:
		return fmt.Sprintf("somebody has taken the move from shard %s to shard %s back", m.Source, m.Target)
	case m.Stopped != "":
		return fmt.Sprintf("the move from shard %s to shard %s was stopped: %s", m.Source, m.Target, m.Stopped)
	case m.Failures >= failuresToHalt:
		return fmt.Sprintf("the move from shard %s to shard %s fails again and again: %s", m.Source, m.Target, m.Error)
	default:
		return ""
	}
}

// halt lets nothing more be done in the keyspace of a move, and says whether that is new.
func (r *autoRound) halt(asked autoMove, why string) bool {
	if _, halted := r.Halted(asked.Keyspace); halted {
		return false
	}
	r.Halt(autoHalt{Keyspace: asked.Keyspace, Move: asked.ID, Why: why, At: r.now})
	r.cluster.config.Logger.Warn("nothing more is done by itself in a keyspace until somebody has looked", "keyspace", asked.Keyspace, "move", asked.ID, "reason", why)
	return true
}

// plan measures the shards, and does or proposes what is to be done.
func (r *autoRound) plan(ctx context.Context) error {
	r.Looked, r.Waiting, r.Proposals = r.now, nil, nil
	sizes, ok := r.measureAll(ctx)
	if !ok {
		return r.write(ctx)
	}
	free, fixed := r.sortOut()
	if changed, err := r.planSplits(ctx, sizes, free); err != nil || changed {
		return err // what was measured is of ranges that are others now
	}
	if changed, err := r.planMerges(ctx, sizes, free); err != nil || changed {
		return err
	}
	return r.planMoves(ctx, sizes, fixed)
}

// measureAll asks all shards for their sizes. It says false, and why, if one of them is not well: what the others should have depends on it.
func (r *autoRound) measureAll(ctx context.Context) (rebalance.Sizes, bool) {
	if unwell := r.cluster.monitor.unwell(r.m, r.cluster.config.HealthTimeout/2); len(unwell) > 0 {
		for _, why := range unwell {
			r.Wait("nothing is planned: " + why)
		}
		return nil, false
	}
	for _, name := range r.cluster.countAnew(ctx, r.m) {
		r.Wait(fmt.Sprintf("nothing is planned: the rows of shard %s could not be counted anew", name))
	}
	sizes, silent, err := r.cluster.measure(ctx, r.m)
	if err != nil {
		r.Wait(fmt.Sprintf("nothing is planned: %v", err))
	}
	for _, name := range silent {
		if r.m.Shard(name).State() == topology.Maintenance {
			continue // it neither gives nor gets, whether it answers or not
		}
		r.Wait(fmt.Sprintf("nothing is planned: shard %s does not answer", name))
	}
	return sizes, len(r.Waiting) == 0
}

// sortOut tells the keyspaces in which something may be done now from those that stay as they are.
func (r *autoRound) sortOut() (free, fixed []string) {
	for _, k := range r.m.Keyspaces() {
		why, is := r.inTheWay(k)
		if !is {
			free = append(free, k.Name())
			continue
		}
		fixed = append(fixed, k.Name())
		if why != "" {
			r.Wait("keyspace " + k.Name() + ": " + why)
		}
	}
	return free, fixed
}

// inTheWay says whether nothing may be done in a keyspace now, and why, if that is worth saying.
func (r *autoRound) inTheWay(k *topology.Keyspace) (why string, is bool) {
	if !isChosen(r.Settings, k.Name()) || k.Strategy() == topology.BySchema {
		return "", true
	}
	if h, halted := r.Halted(k.Name()); halted {
		return "nothing is done until somebody has looked: " + h.Why, true
	}
	if i := slices.IndexFunc(r.moves, func(m *reshard.Move) bool { return m.Keyspace == k.Name() && !m.Phase.HasEnded() }); i >= 0 {
		return "move " + r.moves[i].ID + " comes first", true
	}
	if k.IsMoving() || k.Holds() {
		return "rows of it are moving", true
	}
	var tables []topology.TableName
	for _, t := range r.m.Tables() {
		if t.Keyspace() == k {
			tables = append(tables, t.Name())
		}
	}
	if rollout, open := r.cluster.config.Follower.Schema().OpenRollout(tables...); open {
		return "roll-out " + rollout.Name + " comes first", true
	}
	return "", false
}

// planMoves asks for the moves that are due, or proposes them. It writes what the round has come to.
func (r *autoRound) planMoves(ctx context.Context, sizes rebalance.Sizes, fixed []string) error {
	left := r.LeftBytes(r.now)
	doing := r.Settings.Moves == rebalance.Do
	switch {
	case r.Settings.Moves == rebalance.Leave:
		return r.write(ctx)
	case doing && !r.Settings.Hours.Contain(r.now.Hour()*60+r.now.Minute()):
		r.Wait(fmt.Sprintf("moves begin only at %s UTC", r.Settings.Hours))
		return r.write(ctx)
	case doing && left == 0:
		r.Wait(fmt.Sprintf("%d bytes were asked to move in the last 24 hours, of at most %d", r.SpentBytes(r.now), r.Settings.MaxBytes))
		return r.write(ctx)
	case !doing:
		left = 0 // a proposal has no limit
	}
	plan, err := r.Settings.PlanMoves(r.m, sizes, fixed, left)
	if err != nil {
		return err
	}
	for _, warning := range plan.Warnings {
		r.Wait(warning)
	}
	if !doing {
		return r.proposeMoves(ctx, plan)
	}
	jobs, err := r.ask(plan)
	if err != nil {
		return err
	}
	failpoint.Hit("auto.planned")
	if err := r.write(ctx, jobs...); err != nil {
		return err
	}
	failpoint.Hit("auto.asked")
	if len(jobs) > 0 {
		r.cluster.mover.Poke()
	}
	return nil
}

// proposeMoves keeps the plan, so that somebody can apply it.
func (r *autoRound) proposeMoves(ctx context.Context, plan *rebalance.Plan) error {
	if len(plan.Moves) > 0 {
		if err := r.cluster.keepPlan(ctx, &keptPlan{RebalancePlan: describePlan(plan)}); err != nil {
			return err
		}
	}
	for _, m := range plan.Moves {
		r.Suggest(autoProposal{
			What: "move", Keyspace: m.Keyspace, Bytes: m.Bytes, Command: "cleave rebalance apply " + plan.ID,
			Why: fmt.Sprintf("from shard %s to shard %s: %s", m.Source, m.Target, m.Detail),
		})
	}
	return r.write(ctx)
}

// ask counts the moves that may begin now, and makes jobs of them.
func (r *autoRound) ask(plan *rebalance.Plan) (jobs []store.Job, err error) {
	var busy []string
	for _, m := range r.moves {
		if !m.Phase.HasEnded() {
			busy = append(busy, m.Source, m.Target)
		}
	}
	chosen := rebalance.Choose(plan.Moves, busy, r.LeftBytes(r.now), r.Settings.MaxMoves-len(r.Moves))
	if len(chosen) < len(plan.Moves) {
		r.Wait(fmt.Sprintf("%d of %d planned moves wait for others, or for the limits", len(plan.Moves)-len(chosen), len(plan.Moves)))
	}
	for _, planned := range chosen {
		move := reshardMove(planned)
		move.Why = "automation: " + planned.Detail
		if err := move.Check(r.m); err != nil && !reshard.OnlyMap(err) {
			r.Wait(fmt.Sprintf("keyspace %s: the move from shard %s to shard %s cannot be made: %v", planned.Keyspace, planned.Source, planned.Target, err))
			continue
		}
		job, err := reshard.NewJob(move)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, job)
		r.Spend(planned.Bytes, r.now)
		r.Moves = append(r.Moves, autoMove{ID: move.ID, Keyspace: planned.Keyspace, From: planned.Source, To: planned.Target, Bytes: planned.Bytes, At: r.now})
		r.Note(autoEvent{At: r.now, What: "move", Keyspace: planned.Keyspace, Move: move.ID, Bytes: planned.Bytes, Why: fmt.Sprintf("from shard %s to shard %s: %s", planned.Source, planned.Target, planned.Detail)})
		r.cluster.config.Logger.Info("a move is asked for by itself", "move", move.ID, "keyspace", planned.Keyspace, "from", planned.Source, "to", planned.Target, "bytes", planned.Bytes, "reason", planned.Detail)
	}
	return jobs, nil
}

func reshardMove(planned rebalance.Move) *reshard.Move {
	move := &reshard.Move{Keyspace: planned.Keyspace, Source: planned.Source, Target: planned.Target, Pins: planned.Pins}
	for _, r := range planned.Ranges {
		move.Ranges = append(move.Ranges, reshard.Range{From: r.From, To: r.To})
	}
	move.Ranges = reshard.Join(move.Ranges)
	return move
}
