package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/failpoint"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// origin is the replication origin of deletions, by which consumers of changes can leave them out: the row lives on, at its owner.
const origin = "cleave_verify"

// repairLock is the advisory lock of a shard whose strays are repaired.
const repairLock = 0x636c7665726679

// prepareRepair makes a session ready for deleting strays, and returns what ends that.
func prepareRepair(ctx context.Context, conn *pgx.Conn) (forget func(), err error) {
	var mine, logical bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1), current_setting('wal_level') = 'logical'", int64(repairLock)).Scan(&mine, &logical); err != nil {
		return nil, err
	}
	if !mine {
		return nil, errors.New("another repair is under way there")
	}
	if !logical { // nobody can read changes
		return func() {}, nil
	}
	if err := shard.UseOrigin(ctx, conn, origin); err != nil {
		return nil, err
	}
	return func() {
		ctx := context.WithoutCancel(ctx)
		if !conn.IsClosed() { // what is left is found by the next one
			_, _ = conn.Exec(ctx, "SELECT pg_replication_origin_session_reset()")
			_, _ = conn.Exec(ctx, "SELECT pg_replication_origin_drop($1)", origin)
		}
	}, nil
}

// repair mends strays, those of one owner at a time, and notes what was done with each, or why nothing was.
func (w *visit) repair(ctx context.Context, leaf topology.TableName, strays []*stray) error {
	for owner, its := range byOwner(strays) {
		var wanted []*stray
		for _, s := range its {
			if s.Reason == "" {
				s.Reason = w.whyNot(shard.AtOwner(s.AtOwner))
			}
			if s.Reason == "" {
				wanted = append(wanted, s)
			}
		}
		if len(wanted) == 0 {
			continue
		}
		err := w.mend(ctx, owner, leaf, wanted)
		if err == nil {
			continue
		}
		for _, s := range wanted { // one of them is in the others' way
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := w.mend(ctx, owner, leaf, []*stray{s}); err != nil {
				s.Reason = err.Error()
			}
		}
	}
	return ctx.Err()
}

// whyNot says why a stray is not to be touched; empty if it is.
func (w *visit) whyNot(is shard.AtOwner) string {
	switch {
	case !w.strays.HasKey():
		return "the table has no primary key, so a copy of a row cannot be told from another row that is equal to it"
	case is == shard.Taken:
		return "its primary key, which does not contain the shard key, belongs to another row there"
	case is == shard.Differs && w.Prefer == "":
		return "its owner has other values, and nobody has said which count (--prefer owner, or --prefer stray)"
	case is == shard.Differs && w.Prefer == api.PreferStray && !w.strays.MayReplace():
		return "a column is GENERATED ALWAYS AS IDENTITY and cannot be given the stray's value"
	default:
		return ""
	}
}

// mendTimeout bounds for how long rows are locked, whatever does not answer.
const mendTimeout = time.Minute

// lockTimeout is how long a repair waits for somebody who has a row: who waits for the repair waits no longer than that.
const lockTimeout = "SET LOCAL lock_timeout = '2s'"

// begin starts a transaction in which rows are taken as they are.
func begin(ctx context.Context, conn *pgx.Conn) (pgx.Tx, error) {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, shard.CopySettings+"; "+lockTimeout); err != nil {
		rollback(tx)
		return nil, err
	}
	return tx, nil
}

// mend repairs strays of one owner. They are locked first, then the owner's table; what the map says then, holds until both transactions end. The owner commits first, so that a crash leaves a row twice, and never not at all.
func (w *visit) mend(ctx context.Context, owner string, leaf topology.TableName, strays []*stray) error {
	ctx, cancel := context.WithTimeout(ctx, mendTimeout)
	defer cancel()
	here, err := begin(ctx, w.conn)
	if err != nil {
		return err
	}
	defer rollback(here)
	if err := w.strays.Lock(ctx, here); err != nil {
		return err
	}
	described, err := shard.DescribeStrays(ctx, here, w.table) // which nobody changes from now on
	if err != nil {
		return err
	}
	w.strays = described
	places := placesOf(strays)
	locked, err := w.strays.Read(ctx, here, leaf, places, w.part, true)
	if err != nil {
		return err
	}
	rows := map[string]*stray{}
	for _, row := range locked {
		if slices.Contains(places, row.Place) { // one that was updated is elsewhere now
			rows[row.Place] = w.describe(row)
		}
	}
	m, err := w.Newest(ctx)
	if err != nil {
		return err
	}
	if m.Shard(owner) == nil {
		return &topology.NotFoundError{Kind: "shard", Name: owner}
	}
	there, err := w.ownerConn(ctx, m.Shard(owner))
	if err != nil {
		return err
	}
	gone, err := w.bring(ctx, there, owner, leaf, rows)
	if err != nil {
		return err
	}
	failpoint.Hit("verify.brought")
	if err := w.strays.Delete(ctx, here, leaf, gone); err != nil {
		return err
	}
	if err := here.Commit(ctx); err != nil {
		return err
	}
	failpoint.Hit("verify.deleted")
	for _, s := range strays {
		if now := rows[s.place]; now != nil {
			s.Stray = now.Stray
		} else {
			s.Reason = "it was changed while it was to be repaired: verify it again"
		}
	}
	return nil
}

// bring has the owner take what it is to take, commits that, and returns the places of the strays that are to go.
func (w *visit) bring(ctx context.Context, conn *pgx.Conn, owner string, leaf topology.TableName, rows map[string]*stray) (gone []string, err error) {
	if len(rows) == 0 {
		return nil, nil
	}
	tx, err := begin(ctx, conn)
	if err != nil {
		return nil, err
	}
	defer rollback(tx)
	if err := w.strays.Lock(ctx, tx); err != nil {
		return nil, err
	}
	failpoint.Hit("verify.asks")
	if err := w.mayRepair(ctx, owner, rows); err != nil {
		return nil, err
	}
	failpoint.Hit("verify.locked")
	there, err := w.carry(ctx, conn, tx, leaf, slices.Collect(maps.Keys(rows)))
	if err != nil {
		return nil, err
	}
	if gone, err = w.take(ctx, there, rows); err != nil {
		return nil, err
	}
	failpoint.Hit("verify.taken")
	return gone, tx.Commit(ctx)
}

// mayRepair asks, with everything locked, whether the strays are still strays and the owner still owns them, and whether nobody moves or changes the table. Who begins a move later waits for writers, such as this one, before an owner changes.
func (w *visit) mayRepair(ctx context.Context, owner string, rows map[string]*stray) error {
	m, err := w.Newest(ctx)
	if err != nil {
		return err
	}
	t := m.Table(w.name.Schema, w.name.Name)
	if t == nil || t.Kind() != topology.Sharded || !t.Keyspace().Same(w.table.Keyspace()) {
		return errors.New("the shard map has changed: verify it again")
	}
	for _, s := range rows {
		if s.Owner != owner {
			return fmt.Errorf("its owner is shard %q, and was thought to be %q: verify it again", s.Owner, owner)
		}
	}
	state, err := w.Schema(ctx)
	if err != nil {
		return err
	}
	return Refusal(t, state)
}

// Refusal says why strays of a table must not be repaired now; nil if they may be.
func Refusal(t *topology.Table, state topology.SchemaState) error {
	if move, moves := state.MoveOf(t.Name()); moves {
		return fmt.Errorf("rows of keyspace %q are moving between shards (move %s)", t.Keyspace().Name(), move.ID)
	}
	if t.Keyspace().IsMoving() || t.Keyspace().Holds() {
		return fmt.Errorf("rows of keyspace %q are moving between shards", t.Keyspace().Name())
	}
	if rollout, open := state.OpenRollout(t.Name()); open {
		return fmt.Errorf("roll-out %q changes table %s", rollout.Name, t.Name())
	}
	if hold, held := state.HeldBy(t.Name()); held {
		return fmt.Errorf("table %s is being changed: %s", t.Name(), hold.Why)
	}
	return nil
}

// take inserts what the owner lacks, replaces what is to be replaced, and says which strays are not needed any more: those that the owner has, as it shows afterwards.
func (w *visit) take(ctx context.Context, there *shard.StrayVisit, rows map[string]*stray) (gone []string, err error) {
	before, err := there.Judge(ctx)
	if err != nil {
		return nil, err
	}
	orphans, err := there.Orphans(ctx)
	if err != nil {
		return nil, err
	}
	var absent, others []string
	for place, s := range rows {
		is := before[place]
		s.AtOwner, s.Reason = string(is), w.whyNot(is)
		replaces := is == shard.Differs && w.Prefer == api.PreferStray
		switch {
		case s.Reason != "":
		case orphans[place] != "" && (is == shard.Absent || replaces):
			s.Reason = fmt.Sprintf("it refers to a row that shard %s does not have, by foreign key %s", s.Owner, orphans[place])
		case is == shard.Absent:
			absent = append(absent, place)
		case replaces:
			others = append(others, place)
		}
	}
	if err := there.Bring(ctx, absent); err != nil {
		return nil, err
	}
	if err := there.Replace(ctx, others); err != nil {
		return nil, err
	}
	after, err := there.Judge(ctx)
	if err != nil {
		return nil, err
	}
	for place, s := range rows {
		if s.Reason != "" {
			continue
		}
		if s.Repaired, s.Reason = w.done(before[place], after[place]); s.Repaired != "" {
			gone = append(gone, place)
		}
	}
	return gone, nil
}

// done says what was done about a stray, by what its owner had of it and has now, or why it has to stay.
func (w *visit) done(before, after shard.AtOwner) (repaired, reason string) {
	switch {
	case before == shard.Differs && w.Prefer == api.PreferOwner && (after == shard.Differs || after == shard.Equal):
		return api.Deleted, ""
	case after == shard.Equal && before == shard.Absent:
		return api.Brought, ""
	case after == shard.Equal && before == shard.Differs:
		return api.Replaced, ""
	case before == shard.Equal: // whatever has become of it since
		return api.Deleted, ""
	case before == shard.Absent && after == shard.Absent:
		return "", "another row there has one of its values that are unique"
	default:
		return "", "its owner has written it meanwhile: verify it again"
	}
}
