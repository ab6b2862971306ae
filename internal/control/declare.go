package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// declaration changes what tables are, with their rows, in steps: it makes tables of the home shard sharded ones or reference tables, or
// lets them be what they were. A process that dies after any of the steps leaves what others undo or finish; internal/shard/DESIGN.md
// has the protocol and its crash table.
type declaration struct {
	cluster *Cluster
	tables  []topology.TableName
	role    string
	// back: the tables go back to the home shard.
	back bool
	// kind is what they become otherwise.
	kind topology.Kind
	// why is said to those who are kept from the tables. Default: what it is.
	why string
	// besideMoves: the tables stay as they are, so they may be moving.
	besideMoves bool
	// patience with routers that use the tables. Default: that of the configuration.
	patience time.Duration
	// decide says how the map changes.
	decide   func(*declaration) ([]topology.Change, error)
	progress func(string)

	id     string        // of the hold and of the note
	m      *topology.Map // as it was when all of this began
	lock   session       // on the home shard; it does nothing but hold the lock and keep the note
	home   *member
	others []*member
	// held: there is a hold, which has to be released.
	held        bool
	definitions shard.Definitions
	numbers     map[topology.TableName]shard.Numbers
	changes     []topology.Change
	ends        map[topology.TableName]shard.Ends
	next        *topology.Map // m with the tables as they are to be
	plan        *shard.Plan   // of next
	note        *shard.Note   // once it is written
	published   bool
	uncertain   bool  // whether it is published is not known
	left        bool  // it is published, and others have to finish it
	moved       int64 // rows
	findings    []api.Finding
}

// errMapMoved says that the map has changed since the declaration began: start again.
var errMapMoved = errors.New("the map has changed meanwhile")

const (
	declareTries = 8
	// finishDeclarationTimeout bounds what follows when the map has changed, whoever waits for it.
	finishDeclarationTimeout = 5 * time.Minute
	// declareLock is the advisory lock, on the home shard, of all who declare tables.
	declareLock = 0x6465636c617265 // "declare"
)

// declare tries until the map stands still for as long as it takes.
func (c *Cluster) declare(ctx context.Context, request declaration) (api.TablesChanged, error) {
	slices.SortFunc(request.tables, func(a, b topology.TableName) int { return strings.Compare(a.String(), b.String()) })
	for i, table := range request.tables[:max(len(request.tables)-1, 0)] {
		if table == request.tables[i+1] {
			return api.TablesChanged{}, pgerr.New(pgerr.InvalidParameterValue, "table %s is named twice", table)
		}
	}
	for range declareTries {
		d := request
		d.cluster, d.id = c, rand.Text()
		err := d.run(ctx)
		if err == nil {
			return d.answer(), nil
		}
		if !errors.Is(err, errMapMoved) {
			return api.TablesChanged{}, err
		}
	}
	return api.TablesChanged{}, fmt.Errorf("%s: %w: %w", request.what(), errMapMoved, store.ErrConflict)
}

// what it is, for people.
func (d *declaration) what() string {
	if d.why != "" {
		return d.why
	}
	if d.back {
		return "undistribute " + d.names()
	}
	return "declare " + d.names()
}

// names of the tables, as SQL takes them.
func (d *declaration) names() string {
	names := make([]string, len(d.tables))
	for i, t := range d.tables {
		names[i] = t.String()
	}
	return strings.Join(names, ", ")
}

// declareStep is one step of a declaration.
type declareStep struct {
	name string
	run  func(*declaration, context.Context) error
}

// steps in their order. Those after the publishing of the map go on whatever happens.
func (d *declaration) steps() []declareStep {
	first := []declareStep{
		{"connect", (*declaration).connect},
		{"lock out other declarations", (*declaration).lockOut},
		{"resolve what others have left", (*declaration).resolveLeft},
		{"bring the shards up to date", (*declaration).bringUpToDate},
		{"see whether the role may", (*declaration).checkRole},
		{"hold the tables", (*declaration).hold},
		{"examine the tables", (*declaration).examine},
	}
	there := []declareStep{
		{"create them on the other shards", (*declaration).createOnOthers},
		{"copy the rows", (*declaration).copyOut},
		{"complete and guard them on the other shards", (*declaration).completeOthers},
		{"leave the home shard what it owns", (*declaration).settleHome},
	}
	if d.back {
		there = []declareStep{
			{"bring the rows home", (*declaration).copyIn},
			{"take the guards off", (*declaration).unguardHome},
			{"drop them on the other shards", (*declaration).dropOnOthers},
		}
	}
	last := []declareStep{
		{"note it", (*declaration).writeNote},
		{"prepare", (*declaration).prepareAll},
		{"publish the map", (*declaration).publish},
		{"mark it as decided", (*declaration).markDecided},
		{"commit", (*declaration).commitAll},
		{"tell the shards", (*declaration).tellShards},
		{"remove the note", (*declaration).removeNote},
		{"release the tables", (*declaration).release},
	}
	return slices.Concat(first, there, last)
}

func (d *declaration) run(ctx context.Context) error {
	defer d.close()
	for _, step := range d.steps() {
		if d.published {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), finishDeclarationTimeout)
			defer cancel()
		}
		if err := step.run(d, ctx); err != nil {
			d.takeBack(ctx)
			return d.explained(err, step.name)
		}
	}
	return nil
}

// explained leaves errors for a client, and those that callers know, as they are.
func (d *declaration) explained(err error, step string) error {
	var forClient *pgerr.Error
	if errors.As(err, &forClient) {
		return forClient
	}
	if known := asClientError(err); known != nil {
		return known
	}
	return fmt.Errorf("%s: %s: %w", d.what(), step, err)
}

// takeBack undoes what was done, unless the map may have changed: then the lock goes, and whoever takes it finds out.
func (d *declaration) takeBack(ctx context.Context) {
	if d.published || d.uncertain {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	if d.note != nil {
		if err := d.note.Mark(ctx, d.lock, shard.Undone); err != nil {
			d.cluster.config.Logger.Warn("a declaration that failed is undone later", "tables", d.what(), "error", err)
			return // who finds the note undoes it, and releases the tables
		}
	}
	d.undoMembers(ctx)
	d.giveUpHold(ctx)
}

// undoMembers rolls back what was done on the shards. What cannot be rolled back now the leader does.
func (d *declaration) undoMembers(ctx context.Context) {
	_ = eachMember(d.members(), func(m *member) error {
		if m.conn == nil {
			return nil
		}
		if d.note == nil || !m.preparing {
			m.rollback(ctx)
			return nil
		}
		err := d.finishOn(ctx, m, false)
		if err != nil {
			d.cluster.config.Logger.Warn("a transaction that was prepared is rolled back later", "shard", m.spec.Name, "error", err)
		}
		return err
	})
}

func (d *declaration) close() {
	sessions := []session{}
	if d.lock != nil {
		sessions = append(sessions, d.lock)
	}
	for _, m := range d.members() {
		if m.conn != nil {
			sessions = append(sessions, m.conn)
		}
	}
	closeAll(sessions)
}

// report tells whoever waits how far it is.
func (d *declaration) report(format string, arguments ...any) {
	message := fmt.Sprintf(format, arguments...)
	d.cluster.config.Logger.Info(message, "declaration", d.what())
	if d.progress != nil {
		d.progress(message)
	}
}

func (d *declaration) answer() api.TablesChanged {
	changed := api.TablesChanged{MapVersion: d.next.Version(), RowsMoved: d.moved, Findings: d.findings}
	for _, table := range d.tables {
		described := api.DescribeTable(d.next, table)
		if name := described.Keyspace; name != "" && d.m.Keyspace(name) == nil && !slices.Contains(changed.KeyspacesCreated, name) {
			changed.KeyspacesCreated = append(changed.KeyspacesCreated, name)
		}
		if described.Name == "" { // undeclared: on the home shard
			described.TableSpec = topology.TableSpec{Name: table.String(), Kind: topology.Single, Shard: d.home.spec.Name}
		}
		changed.Tables = append(changed.Tables, described)
	}
	return changed
}
