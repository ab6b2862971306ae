package reshard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// Check says why a move cannot be made of a map, before anything is touched; nil if nothing in the map is in its way.
func (m *Move) Check(now *topology.Map) error {
	k := now.Keyspace(m.Keyspace)
	source, target := now.Shard(m.Source), now.Shard(m.Target)
	switch {
	case k == nil && !m.IsWhole():
		return &topology.NotFoundError{Kind: "keyspace", Name: m.Keyspace}
	case source == nil:
		return &topology.NotFoundError{Kind: "shard", Name: m.Source}
	case target == nil:
		return &topology.NotFoundError{Kind: "shard", Name: m.Target}
	case m.Source == m.Target:
		return errors.New("source and target are the same shard")
	case len(m.Ranges)+len(m.Pins) == 0 && !m.IsWhole():
		return errors.New("there is nothing to move")
	case target.State() != topology.Active:
		return fmt.Errorf("shard %q is %s, and takes nothing new", m.Target, target.State())
	case m.IsWhole() && len(m.tables(now)) < len(m.Whole):
		return errors.New("not all of the tables are on one shard alone")
	case len(m.tables(now)) == 0:
		return errNoTables
	}
	for _, s := range []*topology.Shard{source, target} {
		if s.State() == topology.Maintenance {
			return fmt.Errorf("shard %q is in maintenance", s.Name())
		}
	}
	is, alike, err := m.markedIn(now)
	switch {
	case err != nil:
		return err
	case !alike:
		return fmt.Errorf("shard %q does not own all of it", m.Source)
	case is != plain(m.Source):
		return fmt.Errorf("it is owned by shard %q, or moving already", is.owner)
	}
	_, err = m.selection(now) // it may be more than a condition can say
	return err
}

// errNoTables says that only the map has to change.
var errNoTables = errors.New("the keyspace has no tables")

// OnlyMap says whether an error of [Move.Check] is none: there is nothing to carry.
func OnlyMap(err error) bool { return errors.Is(err, errNoTables) }

// markedIn is what the map says of the move's parts, whose keys need not be pinned yet.
func (m *Move) markedIn(now *topology.Map) (mark, bool, error) {
	if m.IsWhole() {
		return m.marked(now)
	}
	pins, err := m.missingPins(now.Keyspace(m.Keyspace))
	if err != nil {
		return mark{}, false, err
	}
	if len(pins) == 0 {
		return m.marked(now)
	}
	pinned, err := now.Next(topology.SetPins(m.Keyspace, pins...))
	if err != nil {
		return mark{}, false, err
	}
	return m.marked(pinned)
}

// missingPins are keys of the move that are not pinned yet, pinned to where they are.
func (m *Move) missingPins(k *topology.Keyspace) ([]topology.PinSpec, error) {
	var missing []topology.PinSpec
	for _, key := range m.Pins {
		values, err := k.ParseKey(key)
		if err != nil {
			return nil, err
		}
		place, err := k.Locate(values...)
		if err != nil {
			return nil, err
		}
		if !place.Pinned {
			missing = append(missing, topology.PinSpec{Key: key, Shard: place.Shard.Name()})
		}
	}
	return missing, nil
}

// check looks at both servers, and keeps tables from being changed. Nothing else is touched.
func (r *run) check(ctx context.Context) error {
	now, err := r.current(ctx)
	if err != nil {
		return err
	}
	move := r.state()
	asked := *move
	if len(move.Schemas) > 0 { // their tables are listed anew: the map may lack those that the job has
		asked.Whole = nil
	}
	if err := asked.Check(now); err != nil && !errors.Is(err, errNoTables) {
		if is, alike, _ := move.marked(now); !alike || is.copyOn != move.Target {
			return &stopped{err.Error()}
		}
	}
	if len(move.Schemas) > 0 {
		if now, err = r.listTables(ctx); err != nil {
			return err
		}
		move = r.state()
	}
	tables := move.tables(now)
	if len(tables) == 0 {
		return r.onlyTheMap(ctx)
	}
	if err := r.checkServers(ctx, now); err != nil {
		return err
	}
	if err := r.checkViews(ctx); err != nil {
		return err
	}
	if err := r.keepTables(ctx, tables); err != nil {
		return err
	}
	return r.save(ctx, func(m *Move) {
		m.Published = m.tableTexts(now)
		m.goTo(Preparing)
	})
}

// checkServers looks at both.
func (r *run) checkServers(ctx context.Context, now *topology.Map) error {
	move := r.state()
	if move.IsWhole() {
		return r.checkWhole(ctx, now)
	}
	for i, side := range move.sides() {
		err := r.on(ctx, side, func(ctx context.Context, conn *pgx.Conn) error {
			return checkServer(ctx, conn, side, move.tableTexts(now), move.needs(i == 0))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkViews sees that there can be views of what a shard owns for all that reads the tables: they are made, and taken back.
func (r *run) checkViews(ctx context.Context) error {
	if r.state().IsWhole() {
		return nil
	}
	return r.on(ctx, r.state().Source, func(ctx context.Context, conn *pgx.Conn) error {
		return r.makeViews(ctx, conn, r.state().Source, false)
	})
}

// keepTables has all routers refuse definitions of the tables.
func (r *run) keepTables(ctx context.Context, tables []*topology.Table) error {
	state, err := r.mover.config.Store.BeginMove(ctx, r.state().moving(namesOf(tables)))
	if err != nil {
		return err
	}
	late, err := r.mover.config.Store.AwaitSchema(withTimeout(ctx, routerPatience), state.Epoch)
	if err != nil {
		return err
	}
	if len(late) > 0 {
		return fmt.Errorf("router %s has not heard yet that definitions of the tables are to be refused", late[0].Name)
	}
	return nil
}

// onlyTheMap is for a keyspace without tables, and for schemas without any.
func (r *run) onlyTheMap(ctx context.Context) error {
	move := r.state()
	if len(move.Schemas) > 0 {
		return r.emptySchemas(ctx)
	}
	if err := r.divide(ctx); err != nil {
		return err
	}
	if _, err := r.publish(ctx, plain(move.Target), nil, plain(move.Source)); errors.Is(err, errOtherMap) {
		if is, alike, unread := r.markedNow(ctx); unread == nil && (!alike || is != plain(move.Source)) { // else it has tables by now
			return stop("shard %q does not own all of it any more: cancel the move", move.Source)
		}
		return err
	} else if err != nil {
		return err
	}
	return r.enter(ctx, Done)
}

// checkServer says what is wrong with one of the servers.
func checkServer(ctx context.Context, conn *pgx.Conn, name string, tables []string, needs needs) error {
	if tables == nil {
		tables = []string{}
	}
	hindrances, err := shard.Hindrances(ctx, conn, tables, 0)
	if err != nil {
		return err
	}
	var problems []string
	for _, h := range hindrances {
		problems = append(problems, h.String())
	}
	settings, err := checkSettings(ctx, conn, needs)
	if err != nil {
		return err
	}
	if problems = append(problems, settings...); len(problems) > 0 {
		slices.Sort(problems)
		return stop("shard %q: %s", name, strings.Join(problems, "; "))
	}
	return nil
}

// needs is how many of what a server has a limited number of a move needs there.
type needs struct{ slots, senders, origins int }

func (m *Move) needs(isSource bool) needs {
	if isSource {
		return needs{slots: 2, senders: 2, origins: 2} // that of the subscription that carries changes back, and one to delete under
	}
	return needs{slots: 2, origins: 2 + m.Options.Streams}
}

// checkSettings says what the server's settings or the role's rights do not allow.
func checkSettings(ctx context.Context, conn *pgx.Conn, needs needs) ([]string, error) {
	var level, limit string
	var slots, used, senders, sending, origins, busy int
	var mayReplicate, maySubscribe bool
	err := conn.QueryRow(ctx, `
		SELECT current_setting('wal_level'), current_setting('max_replication_slots')::int, (SELECT count(*) FROM pg_replication_slots), current_setting('max_wal_senders')::int,
			(SELECT count(*) FROM pg_stat_replication),
			coalesce(current_setting('max_active_replication_origins', true), current_setting('max_replication_slots'))::int, CASE WHEN current_setting('max_active_replication_origins', true) IS NULL THEN 'max_replication_slots' ELSE 'max_active_replication_origins' END,
			(SELECT count(*) FROM pg_replication_origin_status), r.rolreplication OR r.rolsuper,
			r.rolsuper OR EXISTS (SELECT FROM pg_roles p WHERE p.rolname = 'pg_create_subscription' AND pg_has_role(r.oid, p.oid, 'MEMBER'))
		FROM pg_roles r WHERE r.rolname = current_user`).Scan(&level, &slots, &used, &senders, &sending, &origins, &limit, &busy, &mayReplicate, &maySubscribe)
	if err != nil {
		return nil, err
	}
	var problems []string
	switch {
	case level != "logical":
		problems = append(problems, "wal_level is "+level+", and has to be logical (ALTER SYSTEM SET wal_level = 'logical', then restart)")
	case used+needs.slots > slots:
		problems = append(problems, fmt.Sprintf("%d of %d replication slots are in use (max_replication_slots)", used, slots))
	case needs.senders > 0 && sending+needs.senders > senders:
		problems = append(problems, fmt.Sprintf("%d of %d WAL senders are in use (max_wal_senders)", sending, senders))
	case busy+needs.origins > origins:
		problems = append(problems, fmt.Sprintf("%d of %d replication origins are in use, and the move needs %d (%s; fewer --streams need fewer)", busy, origins, needs.origins, limit))
	}
	if !mayReplicate {
		problems = append(problems, "the role may not replicate (ALTER ROLE … REPLICATION)")
	}
	if !maySubscribe {
		problems = append(problems, "the role may not create subscriptions (GRANT pg_create_subscription; before PostgreSQL 16: SUPERUSER)")
	}
	return problems, nil
}

// isUndefined says whether a server does not have what a statement names.
func isUndefined(err error) bool {
	code := shard.CodeOf(err)
	return code == pgerr.UndefinedTable || code == pgerr.UndefinedObject
}
