package control

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

const (
	// maxRolloutText bounds what a change and its undo may take in the schema's state, which all routers keep.
	maxRolloutText = 16 << 10
	maxRolloutName = 100
	// duplicateObject is PostgreSQL's SQLSTATE for a constraint or statistics that are there.
	duplicateObject = "42710"
)

// RolloutBegin asks for a roll-out.
type RolloutBegin struct {
	Name, Change string
	// Undo takes the change back. Default: what follows from the change; if it has none, it must be said. Empty: there is nothing to take back.
	Undo *string
	// Shards come first, in this order. Default: the order of their numbers.
	Shards []string
	// SearchPath is where names without a schema are looked up, as SQL writes it. Default: public.
	SearchPath string
	// Role is who asks: it must own the tables, or be a superuser. Default: an operator, who may.
	Role string
}

// BeginRollout opens a roll-out. No shard is changed before [Cluster.NextRollout] or [Cluster.FinishRollout] is called.
func (c *Cluster) BeginRollout(ctx context.Context, request RolloutBegin) (api.RolloutChanged, error) {
	r, err := c.rolloutOf(ctx, request)
	if err != nil {
		return api.RolloutChanged{}, forClient(err)
	}
	if err := c.examineRollout(ctx, r); err != nil {
		return api.RolloutChanged{}, forClient(err)
	}
	state, err := c.config.Store.BeginRollout(ctx, r)
	if err != nil {
		return api.RolloutChanged{}, forClient(err)
	}
	answer := api.RolloutChanged{
		Rollout: api.DescribeRollout(r), Shards: []string{},
		Message: "roll-out " + r.Name + " is open; the first shard will be " + r.Shards[0].Name,
	}
	answer.Findings = c.awaitStep(ctx, state.Epoch)
	return answer, nil
}

// rolloutOf looks whether the change can be rolled out, and on which tables.
func (c *Cluster) rolloutOf(ctx context.Context, request RolloutBegin) (topology.Rollout, error) {
	if request.SearchPath == "" {
		request.SearchPath = "public"
	}
	changes, err := readChange(request)
	if err != nil {
		return topology.Rollout{}, err
	}
	m, err := c.config.Store.Map(ctx)
	if err != nil {
		return topology.Rollout{}, err
	}
	r := topology.Rollout{
		ID: rand.Text(), Name: request.Name, State: topology.RolloutOpen, Change: strings.TrimSpace(request.Change), SearchPath: request.SearchPath, Role: request.Role, Begun: time.Now().UTC(),
	}
	if r.Shards, err = rolloutOrder(m, request.Shards); err != nil {
		return topology.Rollout{}, err
	}
	c.installEverywhere(ctx, m)
	err = c.connected(ctx, m.Home().Spec(), func(ctx context.Context, s session) error {
		if err := lockDeclarations(ctx, s); err != nil {
			return err
		}
		return shard.LookForRollout(ctx, s, request.SearchPath, func(look *shard.RolloutLook) error {
			e := &rolloutExamination{m: m, look: look, rollout: &r, undo: request.Undo}
			return e.examine(ctx, changes)
		})
	})
	return r, err
}

// examineRollout sees whether what it runs would be refused as ordinary statements.
func (c *Cluster) examineRollout(ctx context.Context, r topology.Rollout) error {
	path, ok := sqltext.SplitNames(r.SearchPath, ',')
	if !ok {
		return pgerr.New(pgerr.InvalidParameterValue, "%q is not a search path", r.SearchPath)
	}
	for _, text := range []string{r.Change, r.Undo} {
		changes, err := plan.GradualChange(text)
		if err != nil {
			return err
		}
		var statements []string
		for _, g := range changes {
			if g.SQL != "" {
				statements = append(statements, g.SQL)
			}
		}
		if err := c.config.Examine(ctx, statements, path); err != nil {
			return err
		}
	}
	return nil
}

// readChange reads what is to be changed, and sees whether it can go from shard to shard.
func readChange(request RolloutBegin) ([]plan.Gradual, error) {
	if request.Name == "" || len(request.Name) > maxRolloutName || strings.ContainsFunc(request.Name, unicode.IsControl) {
		return nil, pgerr.New(pgerr.InvalidParameterValue, "a roll-out needs a name of at most %d bytes, without control characters", maxRolloutName)
	}
	size := len(request.Change)
	if request.Undo != nil {
		size += len(*request.Undo)
	}
	if size > maxRolloutText {
		return nil, pgerr.New(pgerr.ProgramLimitExceeded, "the change and what takes it back have %d bytes, and at most %d can be kept", size, maxRolloutText)
	}
	changes, err := plan.GradualChange(request.Change)
	if err == nil && len(changes) == 0 {
		err = pgerr.New(pgerr.InvalidParameterValue, "the change has no statement")
	}
	return changes, err
}

// rolloutOrder are the shards in the order in which they change.
func rolloutOrder(m *topology.Map, first []string) ([]topology.RolloutShard, error) {
	if m.ShardCount() < 2 {
		return nil, pgerr.New(pgerr.ObjectNotInPrerequisite, "the cluster has fewer than two shards, so there is nothing to go from shard to shard").
			WithHint("Run the change as an ordinary statement.")
	}
	var order []topology.RolloutShard
	add := func(s *topology.Shard) {
		if !slices.ContainsFunc(order, func(o topology.RolloutShard) bool { return o.Number == s.Number() }) {
			order = append(order, topology.RolloutShard{Number: s.Number(), Name: s.Name(), State: topology.ShardPending})
		}
	}
	for _, name := range first {
		s := m.Shard(name)
		if s == nil {
			return nil, pgerr.New(pgerr.UndefinedObject, "shard %q does not exist", name)
		}
		add(s)
	}
	for s := range m.Shards() {
		add(s)
	}
	return order, nil
}

// installEverywhere gives shards what roll-outs need that an older program has prepared. One that is away gets it when it is told of the map.
func (c *Cluster) installEverywhere(ctx context.Context, m *topology.Map) {
	each(specsOf(m), func(spec topology.ShardSpec) inspected {
		return inspected{err: c.connected(ctx, spec, func(ctx context.Context, s session) error {
			_, _, err := shard.Install(ctx, s)
			return err
		})}
	})
}

// lockDeclarations keeps tables from being declared, and shards from being furnished, until the connection ends. It waits a moment: the server may still be about to
// notice that the connection of the last declaration has ended.
func lockDeclarations(ctx context.Context, home session) error {
	const attempts, pause = 50, 20 * time.Millisecond
	for range attempts {
		var locked bool
		if err := home.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(declareLock)).Scan(&locked); err != nil || locked {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return pgerr.New(pgerr.LockNotAvailable, "tables are being declared, or a shard is being added").WithHint("Try again when that has ended.")
}

// rolloutExamination looks up what a change names.
type rolloutExamination struct {
	m       *topology.Map
	look    *shard.RolloutLook
	rollout *topology.Rollout
	undo    *string
	// made are the things that the change makes, by name: its later statements and its undo may name them though they are not there yet.
	made map[plan.GradualKind][]madeBy
	// undoing: what is looked at now is the undo.
	undoing bool
}

// madeBy is something that a change makes, and whose it is.
type madeBy struct {
	name  string
	table topology.TableName
}

// examine fills in the roll-out's tables and what takes it back.
func (e *rolloutExamination) examine(ctx context.Context, changes []plan.Gradual) error {
	e.made = map[plan.GradualKind][]madeBy{}
	var derived []string
	known := true
	for _, g := range changes {
		undo, follows, err := e.one(ctx, g)
		if err != nil {
			return err
		}
		known = known && follows
		if undo != "" {
			derived = append(derived, undo)
		}
	}
	slices.Reverse(derived)
	if err := e.settleUndo(ctx, derived, known); err != nil {
		return err
	}
	return e.settleRole(ctx)
}

// settleUndo decides what takes the change back, and looks at that too.
func (e *rolloutExamination) settleUndo(ctx context.Context, derived []string, known bool) error {
	switch {
	case e.undo != nil:
		e.rollout.Undo = strings.TrimSpace(*e.undo)
	case !known:
		return pgerr.New(pgerr.InvalidParameterValue, "what takes the change back must be said").
			WithDetail("It does not follow from the change alone.").WithHint("Say undo => 'statements', or undo => '' if there is nothing to take back.")
	default:
		e.rollout.Undo = strings.Join(derived, ";\n")
	}
	undo, err := plan.GradualChange(e.rollout.Undo)
	if err != nil {
		return err
	}
	tables := slices.Clone(e.rollout.Tables)
	e.undoing = true
	for _, g := range undo {
		if _, _, err := e.one(ctx, g); err != nil {
			return err
		}
	}
	if len(tables) > 1 && slices.ContainsFunc(undo, func(g plan.Gradual) bool { return g.Outside }) {
		return pgerr.New(pgerr.InvalidParameterValue, "what takes back a change of several tables cannot be CONCURRENTLY")
	}
	for _, table := range e.rollout.Tables {
		if !slices.Contains(tables, table) {
			return pgerr.New(pgerr.InvalidParameterValue, "what takes the change back is about table %s, and the change is not", table)
		}
	}
	return nil
}

// settleRole sees whether who asks may change the tables. An operator acts for their owner.
func (e *rolloutExamination) settleRole(ctx context.Context) error {
	if e.rollout.Role != "" {
		for _, table := range e.rollout.Tables {
			if err := e.look.MayChange(ctx, e.rollout.Role, table); err != nil {
				return err
			}
		}
		return nil
	}
	for i, table := range e.rollout.Tables {
		owner, err := e.look.Owner(ctx, table)
		if err != nil {
			return err
		}
		if i > 0 && owner != e.rollout.Role {
			e.rollout.Role = "" // nobody but the cluster's own role owns all of them
			return nil
		}
		e.rollout.Role = owner
	}
	return nil
}

// one looks at one thing that a statement does. It returns what takes it back, and whether that is known.
func (e *rolloutExamination) one(ctx context.Context, g plan.Gradual) (undo string, known bool, err error) {
	table, err := e.tableOf(ctx, g)
	if err != nil {
		return "", false, err
	}
	if !slices.Contains(e.rollout.Tables, table) {
		e.rollout.Tables = append(e.rollout.Tables, table)
	}
	concurrently := ""
	if g.Outside {
		concurrently = "CONCURRENTLY "
	}
	switch g.Does {
	case plan.MakesIndex:
		index := topology.TableName{Schema: table.Schema, Name: g.Index.Name}
		return "DROP INDEX " + concurrently + index.String(), true, e.makes(ctx, g, table, index)
	case plan.DropsIndex:
		undo, err = e.indexDefinition(ctx, g)
		return strings.Replace(undo, "CREATE INDEX ", "CREATE INDEX "+concurrently, 1), true, err
	case plan.MakesStatistics:
		own, err := e.makesStatistics(ctx, g, table)
		return "DROP STATISTICS " + own.String(), true, err
	case plan.DropsStatistics:
		_, _, definition, err := e.look.Statistics(ctx, g.Statistics.Schema, g.Statistics.Name)
		return definition, true, err
	case plan.AddsCheck:
		return "ALTER TABLE " + table.String() + " DROP CONSTRAINT " + sqltext.QuoteIdentifier(g.Constraint), true, e.addsCheck(ctx, g, table)
	case plan.DropsConstraint:
		definition, err := e.dropsConstraint(ctx, g, table)
		return "ALTER TABLE " + table.String() + " ADD CONSTRAINT " + sqltext.QuoteIdentifier(g.Constraint) + " " + definition, true, err
	case plan.Rebuilds:
		return "", true, nil
	case plan.Adjusts:
		_, index := e.isMade(plan.MakesIndex, g.Index.Name)
		_, statistics := e.isMade(plan.MakesStatistics, g.Statistics.Name)
		return "", index || statistics, nil // it goes with what it is about
	}
	return "", false, nil
}

// tableOf finds the table that a statement is about, which several shards must have.
func (e *rolloutExamination) tableOf(ctx context.Context, g plan.Gradual) (topology.TableName, error) {
	table, err := e.namedTable(ctx, g)
	if err != nil {
		return topology.TableName{}, err
	}
	if t := e.m.Table(table.Schema, table.Name); t == nil || t.Kind() == topology.Single {
		return topology.TableName{}, pgerr.New(pgerr.WrongObjectType, "table %s is on one shard alone", table).
			WithDetail("Only what several shards have can go from shard to shard.").WithHint("Run the change as an ordinary statement.")
	}
	return table, nil
}

func (e *rolloutExamination) namedTable(ctx context.Context, g plan.Gradual) (topology.TableName, error) {
	switch {
	case g.Table.Name != "":
		found, err := e.relation(ctx, g.Table)
		if err == nil && found.Index {
			err = pgerr.New(pgerr.WrongObjectType, "%s is not a table", relationText(g.Table))
		}
		if err != nil {
			return topology.TableName{}, err
		}
		return found.Table, nil
	case g.Index.Name != "":
		if table, made := e.isMade(plan.MakesIndex, g.Index.Name); made {
			return table, nil
		}
		found, err := e.relation(ctx, g.Index)
		if err == nil && !found.Index {
			err = pgerr.New(pgerr.WrongObjectType, "%s is not an index", relationText(g.Index))
		}
		if err != nil {
			return topology.TableName{}, err
		}
		return found.Table, nil
	}
	if table, made := e.isMade(plan.MakesStatistics, g.Statistics.Name); made {
		return table, nil
	}
	_, table, _, err := e.look.Statistics(ctx, g.Statistics.Schema, g.Statistics.Name)
	if err == nil && table.Name == "" {
		err = pgerr.New(pgerr.UndefinedObject, "statistics object %s does not exist", relationText(g.Statistics))
	}
	return table, err
}

func (e *rolloutExamination) relation(ctx context.Context, name plan.RelationName) (*shard.FoundRelation, error) {
	found, err := e.look.Relation(ctx, relationText(name))
	if err == nil && found == nil {
		err = pgerr.New(pgerr.UndefinedTable, "relation %s does not exist", relationText(name))
	}
	return found, err
}

// relationText writes a name as SQL takes it.
func relationText(name plan.RelationName) string {
	if name.Schema == "" {
		return sqltext.QuoteIdentifier(name.Name)
	}
	return sqltext.QuoteIdentifier(name.Schema) + "." + sqltext.QuoteIdentifier(name.Name)
}

// isMade says whether something is made by the change.
func (e *rolloutExamination) isMade(kind plan.GradualKind, name string) (topology.TableName, bool) {
	for _, m := range e.made[kind] {
		if m.name == name {
			return m.table, true
		}
	}
	return topology.TableName{}, false
}

// makes notes an index that is made; of the change it must not be there yet.
func (e *rolloutExamination) makes(ctx context.Context, g plan.Gradual, table, index topology.TableName) error {
	if e.undoing {
		return nil
	}
	e.made[plan.MakesIndex] = append(e.made[plan.MakesIndex], madeBy{g.Index.Name, table})
	found, err := e.look.Relation(ctx, index.String())
	if err == nil && found != nil {
		err = pgerr.New(pgerr.DuplicateTable, "relation %q already exists", index.Name)
	}
	return err
}

func (e *rolloutExamination) makesStatistics(ctx context.Context, g plan.Gradual, table topology.TableName) (own topology.TableName, err error) {
	own = topology.TableName(g.Statistics)
	if own.Schema == "" {
		if own.Schema, err = e.look.FirstSchema(ctx); err != nil {
			return own, err
		}
	}
	if e.undoing {
		return own, nil
	}
	e.made[plan.MakesStatistics] = append(e.made[plan.MakesStatistics], madeBy{own.Name, table})
	there, _, _, err := e.look.Statistics(ctx, own.Schema, own.Name)
	if err == nil && there.Name != "" {
		err = pgerr.New(duplicateObject, "statistics object %q already exists", own.Name)
	}
	return own, err
}

// indexDefinition is what makes an index again that is dropped. A unique one cannot go from shard to shard.
func (e *rolloutExamination) indexDefinition(ctx context.Context, g plan.Gradual) (string, error) {
	if _, made := e.isMade(plan.MakesIndex, g.Index.Name); made {
		return "", nil
	}
	found, err := e.relation(ctx, g.Index)
	if err != nil {
		return "", err
	}
	if found.Unique || found.OfConstraint {
		return "", pgerr.New(pgerr.FeatureNotSupported, "dropping a unique index cannot go from shard to shard").
			WithDetail("%s is unique, or belongs to a constraint: ON CONFLICT would find it on some shards and fail with 42P10 on others.", found.Name).
			WithHint("Run it as an ordinary statement: it changes all shards in one transaction.")
	}
	return found.Definition, nil
}

func (e *rolloutExamination) addsCheck(ctx context.Context, g plan.Gradual, table topology.TableName) error {
	if e.undoing {
		return nil
	}
	e.made[plan.AddsCheck] = append(e.made[plan.AddsCheck], madeBy{g.Constraint, table})
	kind, _, err := e.look.Constraint(ctx, table, g.Constraint)
	if err == nil && kind != "" {
		err = pgerr.New(duplicateObject, "constraint %q for relation %q already exists", g.Constraint, table.Name)
	}
	return err
}

// dropsConstraint is what makes a constraint again that is dropped: only check constraints can go from shard to shard.
func (e *rolloutExamination) dropsConstraint(ctx context.Context, g plan.Gradual, table topology.TableName) (string, error) {
	if _, made := e.isMade(plan.AddsCheck, g.Constraint); made {
		return "", nil
	}
	kind, definition, err := e.look.Constraint(ctx, table, g.Constraint)
	switch {
	case err != nil:
		return "", err
	case kind == "":
		return "", pgerr.New(pgerr.UndefinedObject, "constraint %q of relation %q does not exist", g.Constraint, table.Name)
	case kind != "c":
		return "", pgerr.New(pgerr.FeatureNotSupported, "dropping constraint %q cannot go from shard to shard", g.Constraint).
			WithDetail("It is no check constraint: ON CONFLICT, or what deleting a row does, would differ between shards.").
			WithHint("Run it as an ordinary statement: it changes all shards in one transaction.")
	}
	return definition, nil
}

// forClient turns an error into one that a client can read, if it is not one.
func forClient(err error) error {
	var known *pgerr.Error
	if errors.As(err, &known) {
		return known
	}
	if known = asClientError(err); known != nil {
		return known
	}
	return err
}
