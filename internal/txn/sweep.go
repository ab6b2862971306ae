package txn

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/failpoint"
	"github.com/cleavedb/cleave/internal/topology"
)

// How long rows are kept. The delay between the two halves of a clean-up is there for consistent reads: see DESIGN.md.
var (
	retention  = failpoint.Duration("txn.retention", 5*time.Minute)
	sweepDelay = failpoint.Duration("txn.sweepdelay", time.Minute)
)

// sweepBatch is how many transactions are cleaned up at a time.
const sweepBatch = 5000

// row is what a shard has noted of a transaction.
type row struct {
	gid          string
	participants []int
	// xids are the numbers of the parts, of a decision; xid is the row's own.
	xids []int64
	xid  int64
}

// parts are the numbers of the parts by participant, but for the decider's own.
func (r row) parts() map[int]int64 {
	parts := map[int]int64{}
	for i, number := range r.participants {
		if i < len(r.xids) && r.xids[i] > 0 {
			parts[number] = r.xids[i]
		}
	}
	return parts
}

// Sweep deletes what was noted of transactions that nobody can need any more, and marks those of which a shard has lost something.
func (r *Recovery) Sweep(ctx context.Context) error {
	m := r.config.Map()
	if m == nil {
		return nil
	}
	looks := r.lookAll(ctx, m)
	var failures error
	for _, number := range slices.Sorted(maps.Keys(looks)) {
		if looks[number].conn == nil {
			continue // Round says so
		}
		s := &sweep{r: r, looks: looks, decider: looks[number], prefix: Prefix(m.Cluster())}
		if err := s.run(ctx); err != nil {
			failures = errors.Join(failures, fmt.Errorf("clean up after transactions that shard %q has decided: %w", looks[number].shard.Name(), err))
		}
	}
	return failures
}

// sweep cleans up what one shard has decided.
type sweep struct {
	r       *Recovery
	looks   map[int]*looked
	decider *looked
	prefix  string
}

func (s *sweep) run(ctx context.Context) error {
	return errors.Join(s.forgetAborted(ctx), s.deleteNoted(ctx), s.noteComplete(ctx), s.lookForOrphans(ctx))
}

// forgetAborted deletes abort rows of backends that are gone, of transactions of which nothing is prepared any more. Abort rows do not say who took part, so
// every shard has to have answered.
func (s *sweep) forgetAborted(ctx context.Context) error {
	prepared := []string{}
	for _, look := range s.looks {
		if look.conn == nil {
			return nil
		}
		for _, p := range look.parts {
			prepared = append(prepared, p.gid)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, shardTimeout)
	defer cancel()
	const query = `
		DELETE FROM cleave.commits c USING (
			SELECT a.gid FROM (SELECT gid FROM cleave.commits WHERE decision = 'abort' AND at < clock_timestamp() - make_interval(secs => $1) AND gid <> ALL ($2) OFFSET 0) a, LATERAL cleave.outcome_of(a.gid) o
			WHERE NOT o.alive) gone
		WHERE c.gid = gone.gid AND c.decision = 'abort'`
	_, err := s.decider.conn.Exec(ctx, query, retention.Seconds(), prepared)
	return err
}

// noteComplete finds transactions that are committed everywhere, and notes that they are to be deleted, a batch at a time.
func (s *sweep) noteComplete(ctx context.Context) error {
	var after int64
	for {
		rows, err := s.page(ctx, after, true)
		if err != nil || len(rows) == 0 {
			return err
		}
		after = rows[len(rows)-1].xid
		complete, err := s.complete(ctx, rows)
		if err != nil {
			return err
		}
		if len(complete) > 0 {
			if err := s.flushed(ctx, complete); err != nil {
				return err
			}
			if err := s.noteBatch(ctx, complete); err != nil {
				return err
			}
			failpoint.Hit("sweep.noted")
		}
	}
}

// page returns the next old rows of commits: decisions of this shard, or marks of others.
func (s *sweep) page(ctx context.Context, after int64, decisions bool) ([]row, error) {
	ctx, cancel := context.WithTimeout(ctx, shardTimeout)
	defer cancel()
	const query = `
		SELECT c.gid, c.participants, c.xids, c.xid::text::bigint FROM cleave.commits c
		WHERE c.xid > $1::text::xid8 AND c.decision = 'commit' AND c.lost IS NULL AND c.at < clock_timestamp() - make_interval(secs => $2)
		      AND c.decides = $3 AND c.gid NOT IN (SELECT unnest(w.gids) FROM cleave.sweeps w)
		ORDER BY c.xid LIMIT $4`
	rows, err := s.decider.conn.Query(ctx, query, strconv.FormatInt(after, 10), retention.Seconds(), decisions, sweepBatch)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(found pgx.CollectableRow) (one row, err error) {
		return one, found.Scan(&one.gid, &one.participants, &one.xids, &one.xid)
	})
}

// complete returns those that are committed on all participants, and marks those of which one has lost its part.
func (s *sweep) complete(ctx context.Context, rows []row) ([]row, error) {
	states := map[int]partStates{}
	for number, xids := range partsOf(rows) {
		look := s.looks[number]
		switch {
		case look == nil: // it is out of the cluster, which it was let go when nothing was left to do
		case look.conn == nil:
			states[number] = partStates{unknown: true}
		default:
			var err error
			if states[number], err = statesOn(ctx, look.conn, xids, s.prefix); err != nil {
				return nil, err
			}
		}
	}
	var complete []row
	for _, one := range rows {
		lost, pending := s.missing(one, states)
		if len(lost) > 0 {
			if err := s.lost(ctx, one, lost); err != nil {
				return nil, err
			}
			continue
		}
		if !pending {
			complete = append(complete, one)
		}
	}
	return complete, nil
}

// partsOf are the numbers of the parts of transactions, by participant.
func partsOf(rows []row) map[int][]string {
	all := map[int][]string{}
	for _, one := range rows {
		for number, xid := range one.parts() {
			all[number] = append(all[number], strconv.FormatInt(xid, 10))
		}
	}
	return all
}

// partStates is what a shard has of some transactions.
type partStates struct {
	unknown             bool
	committed, prepared map[string]bool
}

// missing says who has lost its part, and whether somebody has it still to commit.
func (s *sweep) missing(one row, states map[int]partStates) (lost []int, pending bool) {
	for _, number := range one.participants {
		state, asked := states[number]
		switch {
		case !asked || state.committed[one.gid]:
		case state.unknown || state.prepared[one.gid]:
			pending = true
		default:
			lost = append(lost, number)
		}
	}
	return lost, pending
}

// statesOn asks a shard which of the transactions are committed there or prepared. One may be committed between two questions, so those that
// are neither are asked for again.
func statesOn(ctx context.Context, conn *pgx.Conn, xids []string, prefix string) (partStates, error) {
	ctx, cancel := context.WithTimeout(ctx, shardTimeout)
	defer cancel()
	s := partStates{committed: map[string]bool{}, prepared: map[string]bool{}}
	const committed = "SELECT gid FROM cleave.commits WHERE xid = ANY ($1::text[]::xid8[]) AND decision = 'commit'"
	if err := collect(ctx, conn, s.committed, committed, xids); err != nil {
		return s, err
	}
	parts, _, err := listPrepared(ctx, conn, prefix)
	if err != nil {
		return s, err
	}
	for _, p := range parts {
		s.prepared[p.gid] = true
	}
	return s, collect(ctx, conn, s.committed, committed, xids)
}

// collect adds the names that a query returns.
func collect(ctx context.Context, conn *pgx.Conn, into map[string]bool, query string, arguments ...any) error {
	rows, err := conn.Query(ctx, query, arguments...)
	if err != nil {
		return err
	}
	var gid string
	_, err = pgx.ForEachRow(rows, []any{&gid}, func() error {
		into[gid] = true
		return nil
	})
	return err
}

// lost marks a row because a participant has nothing of the transaction, or not its decision.
func (s *sweep) lost(ctx context.Context, one row, numbers []int) error {
	ctx, cancel := context.WithTimeout(ctx, shardTimeout)
	defer cancel()
	done, err := s.decider.conn.Exec(ctx, "UPDATE cleave.commits SET lost = $2 WHERE xid = $1::text::xid8", strconv.FormatInt(one.xid, 10), numbers)
	if err != nil || done.RowsAffected() == 0 {
		return err
	}
	names := make([]string, len(numbers))
	for i, number := range numbers {
		names[i] = strconv.Itoa(number)
		if look := s.looks[number]; look != nil {
			names[i] = look.shard.Name()
		}
	}
	s.r.say(one.gid, slog.LevelError, "a transaction over several shards was committed, and a shard has lost what it knew of it: it was put back to an earlier state", "noted on shard", s.decider.shard.Name(), "lost on", names)
	return nil
}

// errNotFlushed says that a standby has not got so far yet.
var errNotFlushed = errors.New("a standby has not flushed what was committed; its rows are kept until it has")

// flushed makes sure that no standby that follows can lack what the participants have committed.
func (s *sweep) flushed(ctx context.Context, rows []row) error {
	members := map[int]bool{s.decider.shard.Number(): true}
	for _, one := range rows {
		for _, number := range one.participants {
			members[number] = true
		}
	}
	for number := range members {
		look := s.looks[number]
		if look == nil || look.conn == nil {
			continue // gone from the map: see complete
		}
		if err := standbysFlushed(ctx, look.conn); err != nil {
			return fmt.Errorf("shard %q: %w", look.shard.Name(), err)
		}
	}
	return nil
}

// flushPatience is how long standbys have to flush what is there now, before the next attempt.
const flushPatience = 3 * time.Second

// standbysFlushed waits until all physical standbys have flushed all that there is now: those that stream, and those that have a slot.
func standbysFlushed(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, shardTimeout)
	defer cancel()
	var now string
	if err := conn.QueryRow(ctx, "SELECT pg_current_wal_lsn()::text").Scan(&now); err != nil {
		return err
	}
	const behind = `
		SELECT count(*) FROM (
			SELECT r.flush_lsn AS at FROM pg_stat_replication r
			WHERE coalesce(r.state, 'streaming') <> 'backup' AND NOT EXISTS (SELECT FROM pg_replication_slots l WHERE l.active_pid = r.pid AND l.slot_type = 'logical')
			UNION ALL
			SELECT l.restart_lsn FROM pg_replication_slots l WHERE l.slot_type = 'physical' AND NOT l.temporary AND NOT l.active AND l.restart_lsn IS NOT NULL) s
		WHERE s.at IS NULL OR s.at < $1::pg_lsn`
	for began := time.Now(); ; {
		var count int
		if err := conn.QueryRow(ctx, behind, now).Scan(&count); err != nil || count == 0 {
			return err
		}
		if time.Since(began) > flushPatience {
			return errNotFlushed
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// noteBatch writes down that these rows are to be deleted everywhere.
func (s *sweep) noteBatch(ctx context.Context, rows []row) error {
	ctx, cancel := context.WithTimeout(ctx, shardTimeout)
	defer cancel()
	gids := make([]string, len(rows))
	for i, one := range rows {
		gids[i] = one.gid
	}
	_, err := s.decider.conn.Exec(ctx, "INSERT INTO cleave.sweeps (id, gids) VALUES ($1, $2)", rand.Text(), gids)
	return err
}

// deleteNoted deletes the rows of batches that were noted a while ago: the marks first, and when all are gone the decisions.
func (s *sweep) deleteNoted(ctx context.Context) error {
	rows, err := s.decider.conn.Query(ctx, "SELECT id, gids FROM cleave.sweeps WHERE at < clock_timestamp() - make_interval(secs => $1) ORDER BY at", sweepDelay.Seconds())
	if err != nil {
		return err
	}
	type batch struct {
		ID   string
		GIDs []string
	}
	batches, err := pgx.CollectRows(rows, pgx.RowToStructByPos[batch])
	if err != nil {
		return err
	}
	for _, b := range batches {
		gone, err := s.deleteMarks(ctx, b.GIDs)
		if err != nil {
			return err
		}
		if !gone {
			continue
		}
		failpoint.Hit("sweep.cleared")
		if err := s.deleteDecisions(ctx, b.ID, b.GIDs); err != nil {
			return err
		}
	}
	return nil
}

// deleteMarks deletes the marks of decisions, and says whether all shards that may have one could be reached.
func (s *sweep) deleteMarks(ctx context.Context, gids []string) (gone bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, shardTimeout)
	defer cancel()
	found, err := s.decider.conn.Query(ctx, "SELECT gid, participants, xids FROM cleave.commits WHERE gid = ANY ($1) AND decides AND decision = 'commit'", gids)
	if err != nil {
		return false, err
	}
	rows, err := pgx.CollectRows(found, func(found pgx.CollectableRow) (one row, err error) {
		return one, found.Scan(&one.gid, &one.participants, &one.xids)
	})
	if err != nil {
		return false, err
	}
	gone = true
	parts := partsOf(rows)
	for _, number := range slices.Sorted(maps.Keys(parts)) {
		look := s.looks[number]
		switch {
		case look == nil: // it is out of the cluster
		case look.conn == nil:
			gone = false
		default:
			if _, err := look.conn.Exec(ctx, "DELETE FROM cleave.commits WHERE xid = ANY ($1::text[]::xid8[]) AND gid = ANY ($2)", parts[number], gids); err != nil {
				return false, fmt.Errorf("on shard %q: %w", look.shard.Name(), err)
			}
			failpoint.Hit("sweep.unmarked")
		}
	}
	return gone, nil
}

func (s *sweep) deleteDecisions(ctx context.Context, id string, gids []string) error {
	ctx, cancel := context.WithTimeout(ctx, shardTimeout)
	defer cancel()
	return pgx.BeginFunc(ctx, s.decider.conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM cleave.commits WHERE gid = ANY ($1) AND decides", gids)
		if err == nil {
			_, err = tx.Exec(ctx, "DELETE FROM cleave.sweeps WHERE id = $1", id)
		}
		return err
	})
}

// lookForOrphans marks marks of this shard whose decision is not there any more, on a shard that can be asked.
func (s *sweep) lookForOrphans(ctx context.Context) error {
	var after int64
	for {
		rows, err := s.page(ctx, after, false)
		if err != nil || len(rows) == 0 {
			return err
		}
		after = rows[len(rows)-1].xid
		byDecider := map[int][]row{}
		for _, one := range rows {
			if name, err := ParseName(one.gid); err == nil {
				byDecider[name.Shard] = append(byDecider[name.Shard], one)
			}
		}
		for number, marks := range byDecider {
			if err := s.orphansOf(ctx, number, marks); err != nil {
				return err
			}
		}
	}
}

// orphansOf marks those of which the shard that decided knows nothing. A clean-up that is under way elsewhere deletes the mark before the
// decision, so a mark that is still there afterwards counts.
func (s *sweep) orphansOf(ctx context.Context, number int, marks []row) error {
	look := s.looks[number]
	if look == nil || look.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, shardTimeout)
	defer cancel()
	gids := make([]string, len(marks))
	for i, one := range marks {
		gids[i] = one.gid
	}
	known := map[string]bool{}
	if err := collect(ctx, look.conn, known, "SELECT gid FROM cleave.commits WHERE gid = ANY ($1) AND decides UNION ALL SELECT unnest(gids) FROM cleave.sweeps", gids); err != nil {
		return err
	}
	for _, one := range slices.DeleteFunc(marks, func(one row) bool { return known[one.gid] }) {
		if err := s.lost(ctx, one, []int{number}); err != nil { // if it is still there
			return err
		}
	}
	return nil
}

// Settled says why a shard cannot be let go yet: something is prepared there, or what it has decided is not committed everywhere.
func Settled(ctx context.Context, config Config, shard *topology.Shard) error {
	r := NewRecovery(config)
	defer r.Close()
	m := config.Map()
	looks := r.lookAll(ctx, m)
	look := looks[shard.Number()]
	if look == nil {
		return nil
	}
	if len(look.parts) > 0 { // of one that does not answer nothing can be said, and nothing done for it
		return fmt.Errorf("transactions are prepared there, %s for example", look.parts[0].gid)
	}
	for _, other := range looks {
		for _, p := range other.parts {
			if name, err := ParseName(p.gid); err == nil && name.Shard == shard.Number() {
				return fmt.Errorf("shard %q has a part of transaction %s, which it decides", other.shard.Name(), p.gid)
			}
		}
		if other.err != nil && other != look {
			return fmt.Errorf("shard %q cannot be asked whether it has a part of what this one has decided: %w", other.shard.Name(), other.err)
		}
	}
	return nil
}
