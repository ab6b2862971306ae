package reshard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/failpoint"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// routerPatience is how long routers may take to hear of something before it is tried again.
const routerPatience = 10 * time.Second

// withTimeout is a context that ends after a while by itself.
func withTimeout(ctx context.Context, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(ctx, d)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// prepare makes what the move needs on the servers, and nobody uses yet.
func (r *run) prepare(ctx context.Context) error {
	now, err := r.current(ctx)
	if err != nil {
		return err
	}
	if err := both(r.state().sides(), func(name string) error { return r.on(ctx, name, r.noteOn) }); err != nil {
		return err
	}
	if err := r.checkServers(ctx, now); err != nil { // definitions are refused only since the first look
		return err
	}
	if r.state().IsWhole() {
		return r.prepareWhole(ctx, now)
	}
	if err := r.everywhere(ctx, map[int]bool{}, func(ctx context.Context, conn *pgx.Conn, name string) error {
		if err := r.makeViews(ctx, conn, name, true); err != nil {
			return err
		}
		failpoint.Hit("move.views.made")
		return nil
	}); err != nil {
		return err
	}
	for _, side := range r.state().sides() {
		if err := r.widenIdentities(ctx, now, side); err != nil {
			return err
		}
	}
	if err := r.divide(ctx); err != nil {
		return err
	}
	if now, err = r.current(ctx); err != nil {
		return err
	}
	if err := r.guards(ctx, now, (*shard.Plan).Watch); err != nil {
		return err
	}
	move := r.state()
	for i, name := range []string{move.forward(), move.back()} {
		if err := r.publication(ctx, now, move.sides()[i], name); err != nil {
			return err
		}
	}
	return r.enter(ctx, Announcing)
}

// guards changes what stands on the tables of both shards, one table at a time, so that nobody waits long.
func (r *run) guards(ctx context.Context, now *topology.Map, change func(*shard.Plan, context.Context, *pgx.Conn, string, topology.TableName) error) error {
	plan, planned, move := shard.Prepare(now), now, r.state()
	for _, side := range move.sides() {
		err := r.on(ctx, side, func(ctx context.Context, conn *pgx.Conn) error {
			for _, t := range move.tables(now) {
				err := r.patiently(ctx, func() error {
					return r.byNewest(ctx, planned, side, func(newest *topology.Map) error {
						if newest != planned {
							plan, planned = shard.Prepare(newest), newest
						}
						return change(plan, ctx, conn, side, t.Name())
					})
				})
				if err != nil {
					return fmt.Errorf("change the guard of table %s on shard %q: %w", t.Name(), side, err)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// errTried takes back what was only tried.
var errTried = errors.New("it was only tried")

// makeViews makes the views of what a shard owns, or only sees that they can be made.
func (r *run) makeViews(ctx context.Context, conn *pgx.Conn, name string, keep bool) error {
	now, err := r.current(ctx)
	if err != nil {
		return err
	}
	err = r.patiently(ctx, func() error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '200ms'"); err != nil {
				return err
			}
			err := shard.Prepare(now).MakeOwnedViews(ctx, tx, name, r.state().Keyspace, r.mover.config.Rename)
			if err == nil && !keep {
				return errTried
			}
			return err
		})
	})
	var none *shard.NoOwnedViewError
	switch {
	case errors.Is(err, errTried):
		return nil
	case errors.As(err, &none):
		return stop("shard %q: %v. Drop the view or write it otherwise and resume the move, or cancel it", name, none)
	}
	return err
}

// patiently tries again what did not get its locks in time, and says so after a while.
func (r *run) patiently(ctx context.Context, work func() error) error {
	defer r.say(ctx, "", nil)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := work()
		var refused *pgerr.Error
		code := shard.CodeOf(err)
		if errors.As(err, &refused) {
			code = refused.Code
		}
		if code != pgerr.LockNotAvailable && code != pgerr.DeadlockDetected {
			return err
		}
		if pause > 100*time.Millisecond {
			r.say(ctx, "transactions that use the tables have to end before they can be locked for a moment", nil)
		}
		if pause == time.Second {
			r.endAbandoned(ctx)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// identitiesQuery finds tables, partitions included, whose replica identity does not do: it lacks a column of the key, which the filter needs, or something can be stored out of line that it does not have.
const identitiesQuery = `
	SELECT c.oid::regclass::text, c.relreplident, coalesce(i.relname, '')
	FROM pg_partition_tree($1::text::regclass) t RIGHT JOIN (SELECT $1::text::regclass AS root) r ON true
		JOIN pg_class c ON c.oid = coalesce(t.relid, r.root)
		LEFT JOIN pg_index x ON x.indrelid = c.oid AND CASE c.relreplident WHEN 'd' THEN x.indisprimary WHEN 'i' THEN x.indisreplident ELSE false END
		LEFT JOIN pg_class i ON i.oid = x.indexrelid AND c.relreplident = 'i'
	WHERE c.relreplident <> 'f' AND (x.indexrelid IS NULL
		OR EXISTS (SELECT FROM unnest($2::text[]) AS k (name) JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = k.name WHERE a.attnum <> ALL (x.indkey))
		OR EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attstorage <> 'p' AND a.attlen < 0 AND a.attnum <> ALL (x.indkey)))`

// widenIdentities gives tables a replica identity that has what the filter needs. What they had is noted first.
func (r *run) widenIdentities(ctx context.Context, now *topology.Map, side string) error {
	return r.on(ctx, side, func(ctx context.Context, conn *pgx.Conn) error {
		var found []Identity
		for _, t := range r.state().tables(now) {
			rows, err := conn.Query(ctx, identitiesQuery, t.Name().String(), t.KeyColumns())
			if err != nil {
				return err
			}
			more, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Identity, error) {
				one := Identity{Shard: side}
				var kind rune
				err := row.Scan(&one.Table, &kind, &one.Index)
				one.Kind = string(kind)
				return one, err
			})
			if err != nil {
				return err
			}
			found = append(found, more...)
		}
		if len(found) == 0 {
			return nil
		}
		err := r.save(ctx, func(m *Move) {
			for _, one := range found {
				if !m.knowsIdentity(one) {
					m.Identities = append(m.Identities, one)
				}
			}
		})
		if err == nil {
			err = r.noteOn(ctx, conn)
		}
		if err != nil {
			return err
		}
		for _, one := range found {
			if err := r.alterPatiently(ctx, conn, "ALTER TABLE "+one.Table+" REPLICA IDENTITY FULL"); err != nil {
				return fmt.Errorf("change the replica identity of table %s: %w", one.Table, err)
			}
			failpoint.Hit("move.identity.widened")
		}
		return nil
	})
}

// knowsIdentity says whether it is noted what replica identity a table had.
func (m *Move) knowsIdentity(of Identity) bool {
	return slices.ContainsFunc(m.Identities, func(known Identity) bool { return known.Shard == of.Shard && known.Table == of.Table })
}

// alterPatiently alters a table under a lock that nobody waits for long behind.
func (r *run) alterPatiently(ctx context.Context, conn *pgx.Conn, sql string) error {
	return r.patiently(ctx, func() error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '50ms'"); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, sql)
			return err
		})
	})
}

// restoreIdentities gives tables back the replica identity that they had.
func (r *run) restoreIdentities(ctx context.Context, conn *pgx.Conn, side string) error {
	for _, one := range r.state().Identities {
		if one.Shard != side {
			continue
		}
		err := r.alterPatiently(ctx, conn, one.restoring())
		if err != nil && !isUndefined(err) {
			return fmt.Errorf("give table %s back its replica identity: %w", one.Table, err)
		}
	}
	return nil
}

func (i Identity) restoring() string {
	kind := map[string]string{"d": "DEFAULT", "n": "NOTHING", "i": "USING INDEX " + sqltext.QuoteIdentifier(i.Index)}[i.Kind]
	return "ALTER TABLE " + i.Table + " REPLICA IDENTITY " + kind
}

// divide splits ranges where the move's begin and end, and pins keys to where they are: that changes nothing but the map.
func (r *run) divide(ctx context.Context) error {
	move := r.state()
	_, err := r.leadership.UpdateMap(ctx, func(now *topology.Map) (*topology.Map, error) {
		k := now.Keyspace(move.Keyspace)
		if k == nil {
			return nil, &topology.NotFoundError{Kind: "keyspace", Name: move.Keyspace}
		}
		pins, err := move.missingPins(k)
		if err != nil {
			return nil, err
		}
		var at []topology.Point
		for _, r := range move.Ranges {
			at = append(at, r.From)
			if len(r.To) > 0 {
				at = append(at, r.To)
			}
		}
		next, err := now.Next(topology.DivideRanges(move.Keyspace, at...), topology.SetPins(move.Keyspace, pins...))
		if err == nil && next.Keyspace(move.Keyspace).RangeCount() == k.RangeCount() && len(pins) == 0 {
			err = errAsItIs
		}
		return next, err
	})
	if errors.Is(err, errAsItIs) {
		return nil
	}
	return err
}

// publication makes the publication of what moves on one of the shards, if it is not there.
func (r *run) publication(ctx context.Context, now *topology.Map, side, name string) error {
	move := r.state()
	selection, err := move.selection(now)
	if err != nil {
		return err
	}
	parts := []string{"cleave.marks WHERE (move = " + sqltext.QuoteLiteral(move.ID) + " AND " + shard.MarkTravels + " OR " + shard.BeatTravels(move.ID) + ")"}
	for _, t := range move.tables(now) {
		filter, err := selection.Filter(t)
		if err != nil {
			return err
		}
		parts = append(parts, t.Name().String()+" WHERE ("+filter+")")
	}
	return r.on(ctx, side, func(ctx context.Context, conn *pgx.Conn) error {
		if has, err := exists(ctx, conn, "SELECT FROM pg_publication WHERE pubname = $1", name); err != nil || has {
			return err
		}
		_, err := conn.Exec(ctx, fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %s WITH (publish = 'insert, update, delete', publish_via_partition_root = true)", name, strings.Join(parts, ", ")))
		if err != nil {
			return fmt.Errorf("make publication %s on shard %q: %w", name, side, err)
		}
		failpoint.Hit("move.published")
		return nil
	})
}

// exists says whether a query has a row.
func exists(ctx context.Context, conn *pgx.Conn, query string, arguments ...any) (has bool, err error) {
	err = conn.QueryRow(ctx, "SELECT EXISTS ("+query+")", arguments...).Scan(&has)
	return has, err
}

// announce tells routers that the target has a copy, which they must not see, before there is one.
func (r *run) announce(ctx context.Context) error {
	move := r.state()
	now, err := r.publish(ctx, move.course().announced(), []string{move.Target}, plain(move.Source))
	if err != nil {
		return err
	}
	failpoint.Hit("move.announced")
	if err := r.awaitSettled(ctx, now.Version()); err != nil {
		return err
	}
	// All have the views, and guards of those that take part are watchful from now on.
	err = r.everywhere(ctx, map[int]bool{}, func(ctx context.Context, conn *pgx.Conn, name string) error {
		return r.recordBetween(ctx, conn, now, name)
	})
	if err != nil {
		return err
	}
	err = r.on(ctx, move.Target, func(ctx context.Context, conn *pgx.Conn) error { return r.fence(ctx, conn, now.Version()) })
	if err != nil {
		return err
	}
	return r.enter(ctx, Copying)
}

// fence ends those routers on a shard that have not settled on a version, which was waited for before. Others may have come since, and are not ended.
func (r *run) fence(ctx context.Context, conn *pgx.Conn, version uint64) error {
	ready, _, err := r.mover.config.Store.AwaitSettled(withTimeout(ctx, latePatience), version)
	if err != nil {
		return err
	}
	_, err = shard.Fence(ctx, conn, identifiers(ready))
	return err
}

// latePatience is for how long routers are waited for that came late: they settle as soon as they have read the map.
const latePatience = time.Second

// identifiers of routers, of none too: no list would be as good as all of them.
func identifiers(routers []store.Router) []string {
	ids := make([]string, len(routers))
	for i, router := range routers {
		ids[i] = router.ID
	}
	return ids
}

// awaitSettled waits for routers to settle on a version, for as long as those that have heard of it take; the others are ended on the shards.
func (r *run) awaitSettled(ctx context.Context, version uint64) error {
	for {
		_, late, err := r.mover.config.Store.AwaitSettled(withTimeout(ctx, routerPatience), version)
		if err != nil {
			return err
		}
		waiting := ""
		for _, router := range late {
			if router.Applied >= version {
				waiting = fmt.Sprintf("router %s has a transaction open that began before", router.Name)
			}
		}
		if waiting == "" {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.say(ctx, waiting, nil)
	}
}
