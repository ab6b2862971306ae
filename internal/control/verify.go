package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/reshard"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/internal/verify"
)

// VerifyRequest asks whether rows are where they belong.
type VerifyRequest struct {
	// Keyspace whose tables are looked at. Default: all, and reference tables.
	Keyspace string
	// Tables to look at. Default: all that are sharded, and reference tables.
	Tables []topology.TableName
	// Shards on which rows are looked for. Default: all.
	Shards []string
	// Repair mends what is found, and Prefer says which row counts where two differ: api.PreferOwner or api.PreferStray. Default: neither is touched.
	Repair bool
	Prefer string
	// Limit is how many rows are listed. Default: 100.
	Limit int
	// MaxRate is how many bytes are read in a second on each shard. Default: as many as go, with pauses.
	MaxRate int64
	// Progress hears how far it is. Default: nobody does.
	Progress func(api.VerifyProgress)
}

// usualListed is how many rows are listed by default, and mostListed how many may be.
const (
	usualListed = 100
	mostListed  = 100_000
)

// Verify looks for rows on shards that they do not belong to, compares both sides of moves that keep a copy up to date, and the copies of reference tables.
func (c *Cluster) Verify(ctx context.Context, request VerifyRequest) (api.Verified, error) {
	m, err := c.config.Store.Map(ctx)
	if err != nil {
		return api.Verified{}, err
	}
	if err := request.check(m); err != nil {
		return api.Verified{}, err
	}
	sharded, references, err := request.tables(m)
	if err != nil {
		return api.Verified{}, err
	}
	if request.Repair {
		if err := c.mayRepair(ctx, sharded); err != nil {
			return api.Verified{}, err
		}
	}
	found, err := verify.Run(ctx, verify.Config{
		Newest: c.config.Store.Map, Known: c.config.Follower.Map, Schema: c.config.Store.Schema, Access: c.config.Access,
	}, verify.Request{
		Tables: sharded, Shards: request.Shards, Repair: request.Repair, Prefer: request.Prefer, Limit: request.Limit, MaxRate: request.MaxRate, Progress: request.Progress,
	})
	if err != nil {
		return found, err
	}
	if err := c.verifyMoves(ctx, request, sharded, &found); err != nil {
		return found, err
	}
	found.References = answerCopies(nil, nil)
	if len(references) > 0 {
		request.say(&found, "copies of reference tables")
		found.References, err = c.CheckCopies(ctx, CopiesRequest{Tables: references, Shards: request.Shards, Repair: request.Repair})
	}
	return found, err
}

// check refuses what makes no sense, and fills in defaults.
func (r *VerifyRequest) check(m *topology.Map) error {
	switch {
	case r.Prefer != "" && r.Prefer != api.PreferOwner && r.Prefer != api.PreferStray:
		return &InvalidError{Message: fmt.Sprintf("%q is neither owner nor stray", r.Prefer), Hint: "It says which row counts if both have the same primary key and are not equal."}
	case r.Prefer != "" && !r.Repair:
		return &InvalidError{Message: "what is preferred matters for a repair, and none is asked for"}
	case r.Limit < 0 || r.Limit > mostListed:
		return &InvalidError{Message: fmt.Sprintf("%d rows cannot be listed: write a number from 1 to %d", r.Limit, mostListed)}
	case r.MaxRate < 0:
		return &InvalidError{Message: "a rate below nothing makes no sense"}
	case r.Keyspace != "" && m.Keyspace(r.Keyspace) == nil:
		return &topology.NotFoundError{Kind: "keyspace", Name: r.Keyspace}
	}
	for _, name := range r.Shards {
		if m.Shard(name) == nil {
			return &topology.NotFoundError{Kind: "shard", Name: name}
		}
	}
	r.Limit = cmp.Or(r.Limit, usualListed)
	return nil
}

// tables finds those that are to be looked at. One that is named has to be sharded, or a reference table.
func (r *VerifyRequest) tables(m *topology.Map) (sharded []*topology.Table, references []topology.TableName, err error) {
	for _, name := range r.Tables {
		t := m.Table(name.Schema, name.Name)
		switch {
		case t == nil || t.Kind() == topology.Single:
			return nil, nil, pgerr.New(pgerr.ObjectNotInPrerequisite, "table %s is neither sharded nor a reference table", name).WithHint("cleave.tables lists those that are.")
		case r.Keyspace != "" && (t.Keyspace() == nil || t.Keyspace().Name() != r.Keyspace):
			return nil, nil, pgerr.New(pgerr.ObjectNotInPrerequisite, "table %s is not in keyspace %q", name, r.Keyspace)
		}
	}
	for _, t := range m.Tables() {
		switch {
		case len(r.Tables) > 0 && !slices.Contains(r.Tables, t.Name()):
		case t.Kind() == topology.Sharded && (r.Keyspace == "" || t.Keyspace().Name() == r.Keyspace):
			sharded = append(sharded, t)
		case t.Kind() == topology.Reference && r.Keyspace == "":
			references = append(references, t.Name())
		}
	}
	return sharded, references, nil
}

// say tells that something else has begun.
func (r *VerifyRequest) say(found *api.Verified, doing string) {
	if r.Progress == nil {
		return
	}
	told := api.VerifyProgress{Doing: doing, Strays: found.StraysFound}
	for _, t := range found.Tables {
		told.Rows += t.Rows
	}
	r.Progress(told)
}

// mayRepair refuses a repair while rows of a keyspace move, or its tables change. What begins later is noticed for every row.
func (c *Cluster) mayRepair(ctx context.Context, tables []*topology.Table) error {
	moves, err := c.mover.List(ctx)
	if err != nil {
		return err
	}
	state, err := c.config.Store.Schema(ctx)
	if err != nil {
		return err
	}
	refused := func(detail string) error {
		return pgerr.New(pgerr.ObjectInUse, "rows cannot be repaired now").WithDetail("%s.", detail).WithHint("Try again when that has ended; without a repair everything can be looked at.")
	}
	for _, t := range tables {
		for _, move := range moves {
			if move.Keyspace == t.Keyspace().Name() && !move.Phase.HasEnded() {
				return refused(fmt.Sprintf("Move %s of keyspace %q is under way: it is %s", move.ID, move.Keyspace, move.Phase))
			}
		}
		if err := verify.Refusal(t, state); err != nil {
			return refused(err.Error())
		}
	}
	return nil
}

// verifyMoves compares both sides of moves that keep a copy up to date.
func (c *Cluster) verifyMoves(ctx context.Context, request VerifyRequest, tables []*topology.Table, found *api.Verified) error {
	found.Moves = []api.VerifiedMove{}
	moves, err := c.mover.List(ctx)
	if err != nil {
		return err
	}
	wanted := func(name topology.TableName) bool {
		return slices.ContainsFunc(tables, func(t *topology.Table) bool { return t.Name() == name })
	}
	for _, move := range moves {
		concerned, wanted := slices.ContainsFunc(tables, func(t *topology.Table) bool { return t.Keyspace().Name() == move.Keyspace }), wanted
		if move.IsWhole() { // which nobody can name: there is nothing else to look at
			concerned, wanted = len(request.Tables) == 0 && (request.Keyspace == "" || request.Keyspace == move.Keyspace), func(topology.TableName) bool { return true }
		}
		if !concerned || !move.KeepsCopy() || len(request.Shards) > 0 && !slices.Contains(request.Shards, move.Source) && !slices.Contains(request.Shards, move.Target) {
			continue
		}
		request.say(found, "both sides of move "+move.ID)
		compared, err := c.compareMove(ctx, move, wanted, request.MaxRate)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			found.Findings = append(found.Findings, api.Finding{
				Severity: api.Warning, Code: "not_verified", Message: fmt.Sprintf("both sides of move %s could not be compared: %v", move.ID, err), Hint: "'cleave move show' says how it is.",
			})
		}
		for _, one := range compared {
			found.Moves = append(found.Moves, api.VerifiedMove{
				Move: move.ID, Table: one.Table.String(), Owner: one.Owner, Copy: one.Copy, Rows: one.Rows, Differing: int64(len(one.Differing)),
				Keys: append([]string{}, one.Differing[:min(len(one.Differing), request.Limit)]...),
			})
		}
	}
	return nil
}

// compareMove compares both sides of a move, and again if it has gone on to another phase meanwhile. One that keeps no copy any more has nothing to compare: its leavings are looked for like all strays.
func (c *Cluster) compareMove(ctx context.Context, move *reshard.Move, wanted func(topology.TableName) bool, maxRate int64) ([]reshard.Compared, error) {
	rest := func(ctx context.Context, took time.Duration, bytes int64) error {
		verify.Rest(ctx, took, bytes, maxRate)
		return ctx.Err()
	}
	for move.KeepsCopy() {
		compared, err := c.mover.CompareSides(ctx, move, wanted, rest)
		if !errors.Is(err, reshard.ErrMovedOn) {
			return compared, err
		}
		if move, err = reshard.Find(ctx, c.config.Store, move.ID); err != nil {
			return nil, err
		}
	}
	return nil, nil
}
