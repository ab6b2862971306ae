package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// OnShard runs work with a connection to a shard, which nobody else uses meanwhile, and which acts for whoever asks.
type OnShard func(ctx context.Context, spec topology.ShardSpec, work func(context.Context, shard.Asker) error) error

// RolloutStep asks for a roll-out to go on, or back.
type RolloutStep struct {
	Name string
	// Shard is the one to go on with. Default: the next one.
	Shard string
	// Role is who asks: it must own the tables, or be a superuser. Default: an operator, who may.
	Role string
	// OnShard reaches shards. Default: the cluster's own connections, as the role that began the roll-out.
	OnShard OnShard
	// Progress hears after each shard how far it is. Default: nobody does, only the log.
	Progress func(string)
	// Meanwhile hears every two seconds how far a shard is, from a goroutine of its own. Default: nobody does.
	Meanwhile func(string)
}

// Rollouts lists the roll-outs that are open, and the last ones that are not.
func (c *Cluster) Rollouts(ctx context.Context) ([]topology.Rollout, error) {
	state, err := c.config.Store.Schema(ctx)
	return state.Rollouts, err
}

// rolling is a roll-out that somebody goes on with.
type rolling struct {
	cluster *Cluster
	topology.Rollout
	m            *topology.Map
	change, undo shard.RolloutScript
	step         RolloutStep
	done         []string // shards
	findings     []api.Finding
}

// NextRollout applies a roll-out to one more shard: the next one, or the one that is named.
func (c *Cluster) NextRollout(ctx context.Context, step RolloutStep) (api.RolloutChanged, error) {
	r, err := c.rolling(ctx, step, topology.RolloutOpen)
	if err != nil {
		return api.RolloutChanged{}, forClient(err)
	}
	target, err := r.target()
	if err != nil {
		return api.RolloutChanged{}, err
	}
	if target == nil {
		return r.answer("every shard has it; cleave.rollout_finish ends the roll-out"), nil
	}
	before, err := r.apply(ctx, *target)
	if err != nil {
		return api.RolloutChanged{}, err
	}
	how := "is applied"
	if before {
		how = "was applied before"
	}
	return r.answer(fmt.Sprintf("%s on shard %s, %s", how, target.Name, r.howFar())), nil
}

// FinishRollout applies a roll-out to all shards that are left, and closes it.
func (c *Cluster) FinishRollout(ctx context.Context, step RolloutStep) (api.RolloutChanged, error) {
	r, err := c.rolling(ctx, step, topology.RolloutOpen)
	if err != nil {
		return api.RolloutChanged{}, forClient(err)
	}
	for _, s := range r.present() {
		if s.State == topology.ShardApplied {
			continue
		}
		if _, err := r.apply(ctx, s); err != nil {
			return api.RolloutChanged{}, err
		}
		r.report("is applied on shard %s, %s", s.Name, r.howFar())
	}
	err = r.write(ctx, func(stored *topology.Rollout) error {
		if left := r.left(stored, topology.ShardApplied); len(left) > 0 {
			return pgerr.New(pgerr.ObjectNotInPrerequisite, "roll-out %q cannot be finished: shard %s does not have it", r.Name, strings.Join(left, ", "))
		}
		stored.State, stored.Closed = topology.RolloutFinished, time.Now().UTC()
		return nil
	})
	if err != nil {
		return api.RolloutChanged{}, err
	}
	return r.answer("is finished: every shard has it"), nil
}

// UndoRollout takes a roll-out back, the last shard first, and closes it. What cannot be reached now has to be asked for again.
func (c *Cluster) UndoRollout(ctx context.Context, step RolloutStep) (api.RolloutChanged, error) {
	r, err := c.rolling(ctx, step, topology.RolloutOpen, topology.RolloutUndoing)
	if err != nil {
		return api.RolloutChanged{}, forClient(err)
	}
	// From here on nobody applies it any more, whoever looks at etcd; and on a shard nobody does once it has noted that.
	if err := r.write(ctx, func(stored *topology.Rollout) error { stored.State = topology.RolloutUndoing; return nil }); err != nil {
		return api.RolloutChanged{}, err
	}
	var failed error
	var left []string
	for _, s := range slices.Backward(r.present()) {
		if s.State == topology.ShardUndone {
			continue
		}
		if err := r.takeBack(ctx, s); err != nil {
			failed, left = errors.Join(failed, err), append(left, s.Name)
			continue
		}
		r.report("is taken back on shard %s", s.Name)
	}
	if failed != nil {
		return api.RolloutChanged{}, r.notTakenBack(failed, left)
	}
	err = r.write(ctx, func(stored *topology.Rollout) error {
		if left := r.left(stored, topology.ShardUndone); len(left) > 0 {
			return r.notTakenBack(nil, left)
		}
		stored.State, stored.Closed = topology.RolloutUndone, time.Now().UTC()
		return nil
	})
	if err != nil {
		return api.RolloutChanged{}, err
	}
	return r.answer("is taken back: no shard has it"), nil
}

// notTakenBack says where a roll-out could not be taken back, and the first reason.
func (r *rolling) notTakenBack(failed error, left []string) *pgerr.Error {
	e := pgerr.New(pgerr.ObjectNotInPrerequisite, "roll-out %q is not taken back yet on shard %s", r.Name, strings.Join(left, ", "))
	var first *pgerr.Error
	if errors.As(failed, &first) {
		e.Code = first.Code
		e = e.WithDetail("%s. %s", first.Message, first.Detail)
	}
	return e.WithHint("Call cleave.rollout_undo again when the reason is gone; it goes on with the shards that are left.")
}

// rolling finds the roll-out, in one of the states, and sees whether who asks may go on with it.
func (c *Cluster) rolling(ctx context.Context, step RolloutStep, states ...topology.RolloutState) (*rolling, error) {
	state, err := c.config.Store.Schema(ctx)
	if err != nil {
		return nil, err
	}
	found, ok := state.Rollout(step.Name)
	if !ok {
		return nil, pgerr.New(pgerr.UndefinedObject, "roll-out %q does not exist", step.Name).WithHint("The view cleave.rollouts lists them.")
	}
	if !slices.Contains(states, found.State) {
		return nil, wrongState(found)
	}
	r := &rolling{cluster: c, Rollout: found, step: step}
	if r.m, err = c.config.Store.Map(ctx); err != nil {
		return nil, err
	}
	if r.step.OnShard == nil {
		r.step.OnShard = c.actingAs(found.Role)
	}
	if err := r.mayGoOn(ctx); err != nil {
		return nil, err
	}
	// A router that has not adopted a state with the roll-out in it might still change the tables.
	if late := c.awaitStep(ctx, state.Epoch); len(late) > 0 {
		return nil, pgerr.New(pgerr.LockNotAvailable, "a router has not heard of roll-out %q yet", found.Name).
			WithDetail("%s, so somebody might still change the tables there.", late[0].Message).WithHint("Try again; 'cleave status' lists the routers.")
	}
	return r, r.readScripts()
}

func wrongState(r topology.Rollout) *pgerr.Error {
	e := pgerr.New(pgerr.ObjectNotInPrerequisite, "roll-out %q is %s", r.Name, r.State)
	switch r.State {
	case topology.RolloutUndoing:
		return e.WithDetail("It is being taken back.").WithHint("Complete that with cleave.rollout_undo.")
	case topology.RolloutFinished:
		return e.WithDetail("Every shard has it.").WithHint("To take it back, run its undo as ordinary statements; the view cleave.rollouts has them.")
	case topology.RolloutUndone, topology.RolloutOpen:
	}
	return e.WithHint("Begin it again with cleave.rollout_begin.")
}

// mayGoOn is about roles: who began it may, and who owns its tables.
func (r *rolling) mayGoOn(ctx context.Context) error {
	if r.step.Role == "" || r.step.Role == r.Role {
		return nil
	}
	return r.cluster.connected(ctx, r.m.Home().Spec(), func(ctx context.Context, s session) error {
		return shard.LookForRollout(ctx, s, "", func(look *shard.RolloutLook) error {
			for _, table := range r.Tables {
				if err := look.MayChange(ctx, r.step.Role, table); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// actingAs reaches shards over the cluster's own connections, in a role; empty: in the cluster's own.
func (c *Cluster) actingAs(role string) OnShard {
	return func(ctx context.Context, spec topology.ShardSpec, work func(context.Context, shard.Asker) error) error {
		conn, err := c.config.Access.Connect(ctx, spec)
		if err != nil {
			return err
		}
		defer closeQuietly(conn)
		if role != "" {
			if _, err := conn.Exec(ctx, "SET ROLE "+sqltext.QuoteIdentifier(role)); err != nil {
				return err
			}
		}
		return work(ctx, func(ctx context.Context, sql string) ([][]string, error) { return askPlainly(ctx, conn, sql) })
	}
}

// askPlainly runs a statement in the simple protocol and returns its rows as texts.
func askPlainly(ctx context.Context, conn session, sql string) ([][]string, error) {
	results, err := conn.PgConn().Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, err
	}
	var rows [][]string
	for _, result := range results {
		for _, values := range result.Rows {
			row := make([]string, len(values))
			for i, value := range values {
				row[i] = string(value)
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// readScripts reads the change and what takes it back, as shards run them.
func (r *rolling) readScripts() (err error) {
	if r.change, err = r.script(r.Change); err != nil {
		return err
	}
	r.undo, err = r.script(r.Undo)
	return err
}

func (r *rolling) script(text string) (script shard.RolloutScript, err error) {
	changes, err := plan.GradualChange(text)
	if err != nil {
		return script, err
	}
	for _, g := range changes {
		if g.SQL != "" {
			script.Statements = append(script.Statements, g.SQL)
		}
		if !g.Outside {
			continue
		}
		table := r.Tables[0] // a statement outside transactions is alone, and an index is in its table's schema
		if script.Table = table.String(); g.Index.Name != "" {
			script.Index = topology.TableName{Schema: table.Schema, Name: g.Index.Name}.String()
		}
		switch g.Does {
		case plan.MakesIndex:
			script.Outside = shard.IndexMade
		case plan.DropsIndex:
			script.Outside = shard.IndexDropped
		case plan.Rebuilds:
			script.Outside = shard.IndexRebuilt
		default:
			return script, fmt.Errorf("roll-out %s: it is not known how to complete %s", r.Name, g.Name)
		}
	}
	return script, nil
}

// present are the shards that the map still has.
func (r *rolling) present() []topology.RolloutShard {
	var present []topology.RolloutShard
	for _, s := range r.Shards {
		if r.m.ShardByNumber(s.Number) != nil {
			present = append(present, s)
		}
	}
	return present
}

// left are the names of shards that are not in a state.
func (r *rolling) left(stored *topology.Rollout, state topology.ShardRolloutState) []string {
	var names []string
	for _, s := range stored.Shards {
		if s.State != state && r.m.ShardByNumber(s.Number) != nil {
			names = append(names, s.Name)
		}
	}
	return names
}

// target is the shard to go on with, nil if there is none left.
func (r *rolling) target() (*topology.RolloutShard, error) {
	for _, s := range r.present() {
		if s.Name == r.step.Shard || r.step.Shard == "" && s.State == topology.ShardPending {
			return &s, nil
		}
	}
	if r.step.Shard != "" {
		return nil, pgerr.New(pgerr.UndefinedObject, "shard %q is not a shard of roll-out %q", r.step.Shard, r.Name).WithHint("The view cleave.rollouts lists them.")
	}
	return nil, nil
}

// apply applies the change to a shard, and has everybody know.
func (r *rolling) apply(ctx context.Context, s topology.RolloutShard) (before bool, err error) {
	var at time.Time
	err = r.onShard(ctx, s, func(ctx context.Context, run *shard.RolloutOnShard) error {
		at, before, err = run.Apply(ctx)
		return err
	})
	if err != nil {
		return false, err
	}
	return before, r.record(ctx, s, topology.ShardApplied, at, topology.RolloutOpen)
}

func (r *rolling) takeBack(ctx context.Context, s topology.RolloutShard) error {
	var at time.Time
	err := r.onShard(ctx, s, func(ctx context.Context, run *shard.RolloutOnShard) (err error) {
		at, err = run.TakeBack(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return r.record(ctx, s, topology.ShardUndone, at, topology.RolloutUndoing)
}

// onShard runs work on a shard, and says which one it was if it fails.
func (r *rolling) onShard(ctx context.Context, s topology.RolloutShard, work func(context.Context, *shard.RolloutOnShard) error) error {
	spec := r.m.ShardByNumber(s.Number).Spec()
	defer r.watch(ctx, spec)()
	err := r.step.OnShard(ctx, spec, func(ctx context.Context, ask shard.Asker) error {
		return work(ctx, &shard.RolloutOnShard{
			ID: r.ID, Name: r.Name, Text: r.Change, SearchPath: r.SearchPath, Change: r.change, Undo: r.undo, Ask: ask,
		})
	})
	if err == nil {
		return nil
	}
	var refused *pgerr.Error
	if !errors.As(err, &refused) {
		if refused = asClientError(err); refused == nil {
			refused = pgerr.New(pgerr.ConnectionFailure, "shard %q could not be reached, or was lost", s.Name).WithDetail("%v.", err)
		}
	}
	where := strings.TrimSpace(fmt.Sprintf("On shard %q. %s", s.Name, refused.Detail))
	hint := refused.Hint
	if hint == "" {
		hint = "Nothing is lost: go on when the reason is gone, or with another shard, or take it back."
	}
	return refused.WithDetail("%s", where).WithHint("%s", hint)
}

// record has etcd and all routers know what a shard has noted, while the roll-out is in a state.
func (r *rolling) record(ctx context.Context, s topology.RolloutShard, state topology.ShardRolloutState, at time.Time, while topology.RolloutState) error {
	// The shard has changed: whoever waited for it may have gone, and the others have to know all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	r.done = append(r.done, s.Name)
	return r.write(ctx, func(stored *topology.Rollout) error {
		if stored.State != while {
			return wrongState(*stored)
		}
		for i := range stored.Shards {
			if stored.Shards[i].Number == s.Number {
				stored.Shards[i].State, stored.Shards[i].At = state, at.UTC()
			}
		}
		return nil
	})
}

// write changes the roll-out in etcd, and waits for the routers. One that is closed stays as it is.
func (r *rolling) write(ctx context.Context, change func(*topology.Rollout) error) error {
	state, err := r.cluster.config.Store.ChangeRollout(ctx, r.ID, func(stored *topology.Rollout) error {
		if !stored.IsOpen() {
			return wrongState(*stored)
		}
		return change(stored)
	})
	if err != nil {
		return forClient(notWritten(r.Name, err))
	}
	if i := slices.IndexFunc(state.Rollouts, func(stored topology.Rollout) bool { return stored.ID == r.ID }); i >= 0 {
		r.Rollout = state.Rollouts[i]
	}
	r.findings = append(r.findings, r.cluster.awaitStep(ctx, state.Epoch)...)
	return nil
}

// notWritten says what is so when etcd does not take the news.
func notWritten(name string, err error) error {
	if errors.As(err, new(*pgerr.Error)) || errors.Is(err, store.ErrNoRollout) {
		return err
	}
	return pgerr.New(pgerr.CannotConnectNow, "where roll-out %q is could not be written to etcd", name).WithDetail("%v.", err).
		WithHint("The shards know. Ask for the same again when etcd is back: what is done is not done twice.")
}

// awaitStep waits until every router goes by a state of the schema, and says which do not.
func (c *Cluster) awaitStep(ctx context.Context, epoch uint64) []api.Finding {
	ctx, cancel := context.WithTimeout(ctx, c.config.RouterPatience)
	defer cancel()
	late, err := c.config.Store.AwaitSchema(ctx, epoch)
	if err != nil {
		return []api.Finding{routersBehind("one that is not known, because etcd does not answer,")}
	}
	if len(late) == 0 {
		return nil
	}
	names := make([]string, len(late))
	for i, r := range late {
		names[i] = r.Name
	}
	return []api.Finding{routersBehind(strings.Join(names, ", "))}
}

func (r *rolling) howFar() string {
	return fmt.Sprintf("%d of %d", r.Count(topology.ShardApplied), len(r.Shards))
}

// report tells whoever waits how far it is.
func (r *rolling) report(format string, arguments ...any) {
	message := "roll-out " + r.Name + " " + fmt.Sprintf(format, arguments...)
	r.cluster.config.Logger.Info(message)
	if r.step.Progress != nil {
		r.step.Progress(message)
	}
}

func (r *rolling) answer(message string) api.RolloutChanged {
	done := r.done
	if done == nil {
		done = []string{}
	}
	return api.RolloutChanged{Rollout: api.DescribeRollout(r.Rollout), Shards: done, Message: "roll-out " + r.Name + " " + message, Findings: r.findings}
}

// noRollouts fails while a roll-out is open: a new shard would get the home shard's form of its tables, and nobody would know which
// that is. The caller has the lock that beginning one takes.
func (c *Cluster) noRollouts(ctx context.Context) error {
	state, err := c.config.Store.Schema(ctx)
	if err != nil {
		return err
	}
	if r, open := state.OpenRollout(); open {
		return shard.RolloutInTheWay(r)
	}
	return nil
}
