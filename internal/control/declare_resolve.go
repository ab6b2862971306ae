package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// errStillDeclaring says that who declares is at it.
var errStillDeclaring = errors.New("tables are being declared")

// resolveDeclarations finishes or undoes the declarations of processes that have died, and leaves those alone that go on.
func (c *Cluster) resolveDeclarations(ctx context.Context) error {
	m, err := c.config.Store.Map(ctx)
	if errors.Is(err, store.ErrNoMap) || err == nil && m.Home() == nil {
		return nil
	}
	if err != nil {
		return err
	}
	return c.connected(ctx, m.Home().Spec(), func(ctx context.Context, lock session) error {
		if _, _, err := shard.Install(ctx, lock); err != nil {
			return err
		}
		var free bool
		if err := lock.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(declareLock)).Scan(&free); err != nil {
			return err
		}
		if !free {
			return errStillDeclaring
		}
		return c.resolveLocked(ctx, lock, m)
	})
}

// resolveLocked does it for who has the lock. Each note is brought to an end first, by the map alone; then what is prepared follows the notes.
func (c *Cluster) resolveLocked(ctx context.Context, lock session, m *topology.Map) error {
	notes, err := shard.Notes(ctx, lock)
	if err != nil {
		return err
	}
	for i := range notes {
		if m, err = c.settleNote(ctx, lock, &notes[i]); err != nil {
			return err
		}
	}
	looks := each(specsOf(m), func(spec topology.ShardSpec) inspected {
		return inspected{err: c.connected(ctx, spec, func(ctx context.Context, s session) error { return c.followNotes(ctx, s, spec, m, notes) })}
	})
	complete := true
	for _, look := range looks {
		switch {
		case look.err == nil:
		case look.spec.Name == m.Home().Name():
			return fmt.Errorf("finish what was prepared on shard %q: %w", look.spec.Name, look.err)
		default: // its part cannot be used until it answers; that is no reason to keep all of the tables from everybody
			complete = false
			c.config.Logger.Warn("what a declaration has prepared is finished later on a shard that does not answer", "shard", look.spec.Name, "error", look.err)
		}
	}
	for _, note := range notes {
		releaseNoted(ctx, c.config.Store, note.Hold, m)
		if note.State != shard.Decided || !complete {
			continue // a transaction that is prepared late must find it
		}
		if err := note.Remove(ctx, lock); err != nil {
			return err
		}
	}
	return nil
}

// settleNote decides a note by the map, and returns the map that it went by. If the map does not have the tables as the note says, another version of
// it is published, so that nobody who read the one before can.
func (c *Cluster) settleNote(ctx context.Context, lock session, note *shard.Note) (*topology.Map, error) {
	m, err := c.config.Store.Map(ctx)
	if err != nil || note.State != shard.Pending {
		return m, err
	}
	if !note.IsIn(m) {
		if m, err = c.change(ctx, func(*topology.Map) ([]topology.Change, error) { return nil, nil }); err != nil {
			return nil, err
		}
	}
	state := shard.Undone
	if note.IsIn(m) {
		state = shard.Decided
	}
	if err := note.Mark(ctx, lock, state); err != nil {
		return nil, err
	}
	note.State = state
	c.config.Logger.Warn("a declaration of tables was left behind, and is resolved", "state", state, "tables", len(note.Tables))
	return m, nil
}

// followNotes commits or rolls back what is prepared on a shard.
func (c *Cluster) followNotes(ctx context.Context, s session, spec topology.ShardSpec, m *topology.Map, notes []shard.Note) error {
	gids, err := shard.PreparedDeclarations(ctx, s, m.Cluster())
	if err != nil {
		return err
	}
	for _, gid := range gids {
		at := slices.IndexFunc(notes, func(n shard.Note) bool { return n.ID == shard.NoteID(gid) })
		if at < 0 {
			c.config.Logger.Error("a prepared transaction of a declaration is known to nobody: a person has to look at it", "shard", spec.Name, "transaction", gid)
			continue
		}
		if err := shard.FinishPrepared(ctx, s, gid, notes[at].State == shard.Decided); err != nil {
			return err
		}
	}
	return nil
}

// checkPrepared tells of transactions that declarations have prepared: they lock tables until they are finished.
func (c *Cluster) checkPrepared(ctx context.Context, m *topology.Map, specs []topology.ShardSpec) []api.Finding {
	if home := m.Home(); home == nil || !slices.ContainsFunc(specs, func(s topology.ShardSpec) bool { return s.Name == home.Name() }) {
		return nil // that it does not answer is said already
	}
	known, err := c.knownNotes(ctx, m.Home().Spec())
	if err != nil {
		return []api.Finding{unreachable(m.Home().Spec(), api.Problem, "it is not known which declarations are under way", err)}
	}
	var findings []api.Finding
	for _, look := range each(specs, func(spec topology.ShardSpec) inspected {
		var result inspected
		result.err = c.connected(ctx, spec, func(ctx context.Context, s session) (err error) {
			result.prepared, err = shard.PreparedDeclarations(ctx, s, m.Cluster())
			return err
		})
		return result
	}) {
		for _, gid := range look.prepared {
			finding := api.Finding{
				Severity: api.Warning, Code: "declaration_prepared", Shard: look.spec.Name,
				Message: fmt.Sprintf("a declaration of tables has prepared a transaction, %s, and has not finished it", gid),
				Hint:    "It is under way, or finished by the leader within seconds; if this stays, see the leader's log.",
			}
			if !known[shard.NoteID(gid)] {
				finding.Severity, finding.Code = api.Problem, "declaration_unknown"
				finding.Message = fmt.Sprintf("nothing is known of the declaration that has prepared the transaction %s: the home shard has lost something", gid)
				finding.Hint = fmt.Sprintf("If the map has its tables so, run there: COMMIT PREPARED '%[1]s'; otherwise: ROLLBACK PREPARED '%[1]s'", gid)
			}
			findings = append(findings, finding)
		}
	}
	return findings
}

// knownNotes returns the identifiers of the notes on the home shard.
func (c *Cluster) knownNotes(ctx context.Context, home topology.ShardSpec) (map[string]bool, error) {
	known := map[string]bool{}
	err := c.connected(ctx, home, func(ctx context.Context, s session) error {
		notes, err := shard.Notes(ctx, s)
		for _, n := range notes {
			known[n.ID] = true
		}
		return err
	})
	return known, err
}

// finishHold is what becomes of the tables that a dead router held: its connections are ended, and then what it left is resolved.
func (c *Cluster) finishHold(ctx context.Context, hold topology.Hold) error {
	m, err := c.config.Store.Map(ctx)
	if errors.Is(err, store.ErrNoMap) || err == nil && m.Home() == nil {
		return nil
	}
	if err != nil {
		return err
	}
	home, noted := m.Home().Name(), false
	for _, look := range each(specsOf(m), func(spec topology.ShardSpec) inspected {
		return inspected{err: c.connected(ctx, spec, func(ctx context.Context, s session) error {
			err := endDeclarer(ctx, s, hold.First())
			if err == nil && spec.Name == home {
				noted, err = shard.IsNoted(ctx, s, hold.First())
			}
			return err
		})}
	}) {
		if look.err != nil && look.spec.Name == home {
			return look.err // elsewhere nothing is decided
		}
	}
	if !noted {
		return nil
	}
	return c.resolveDeclarations(ctx)
}

// retryPause is how long to wait for a backend to be gone.
const retryPause = 20 * time.Millisecond

// endDeclarer ends the connections of a declaration, and waits until they are gone.
func endDeclarer(ctx context.Context, s session, hold string) error {
	for {
		var left int
		if err := s.QueryRow(ctx, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1 AND pid <> pg_backend_pid()", applicationOf(hold)).Scan(&left); err != nil || left == 0 {
			return err
		}
		pause(ctx, retryPause)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
