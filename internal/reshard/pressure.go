package reshard

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/topology"
)

// What is measured on a shard: how far its standbys are behind, how much WAL its slots keep, and how long a small statement takes while others are at work. All of it is what any role with pg_read_all_stats can see.

const (
	// crowded is how many statements of others have to be under way, on the average of the last second, for load to count: nobody is in the way of nobody.
	crowded = 0.3
	// weight is that of the newest look in averages.
	weight = 0.2
	// probes is how many of the last small statements count, and outlier the most that one of them does, as a multiple of the best: most of them find a processor at once however busy they are, so it is the few that wait which tell.
	probes  = 15
	outlier = 6
	// forgotten is by how much the best time of a small statement is taken to be longer with each look, so that a server that has become slower is not held against its past for ever: a twentieth in five minutes.
	forgotten = 1.00003
	// lookAtMost is how long a look may take.
	lookAtMost = 2 * time.Second
	// roomForSlots is which part of what slots may keep has to be left: slots that lose what they need are standbys that have to be made anew.
	roomForSlots = 0.1
)

// ownName is what connections of moves are called on the shards.
const ownName = "cleave/move"

// gauge measures one shard.
type gauge struct {
	r      *run
	now    *topology.Map
	shard  string
	writes bool // the work writes there
	reads  bool // it does nothing else there than to read WAL, for which no standby is behind
	conn   *pgx.Conn

	crowd float64 // statements of others under way, on average
	times []time.Duration
	past  []position
	slot  keeper  // the move's own, if it is there
	aged  float64 // which part of the transactions have passed during which the move may keep a snapshot there
	hurry bool    // more than half of what the move may keep there is kept: WAL, or what nobody can vacuum
	last  pressure
}

// position is where a server's WAL was at some time.
type position struct {
	at  time.Time
	lsn int64
}

// standby is one as its primary sees it.
type standby struct {
	name   string
	lsn    int64
	reads  bool // it says how far it is
	behind time.Duration
}

// keeper is a slot.
type keeper struct {
	name string
	kept int64
	room *int64 // what it may keep in addition; nil: anything
	own  bool
	lost bool // it keeps nothing any more, and who needs it has to begin anew
	// age is how many transactions ago what it sees of the catalogue was, and so does the snapshot that was made with it. Nothing that was deleted since can be vacuumed. mostAge is from when on the server would vacuum tables whatever it costs.
	age, mostAge int64
}

// look measures, and says what speaks against going on. If the shard cannot be asked, what was found last counts, but for a halt: the work itself finds out what has become of the shard, and has to go on for that.
func (g *gauge) look(ctx context.Context, limits Limits) pressure {
	ctx, cancel := context.WithTimeout(ctx, lookAtMost)
	defer cancel()
	found, err := g.measure(ctx, limits)
	if err != nil {
		g.close()
		if ctx.Err() == nil {
			g.r.mover.config.Logger.Debug("a shard could not be measured", "move", g.r.id, "shard", g.shard, "error", err)
		}
		g.last.stops = false
		return g.last
	}
	g.last = found
	return found
}

func (g *gauge) close() {
	if g.conn != nil {
		closeQuietly(g.conn)
		g.conn = nil
	}
}

func (g *gauge) measure(ctx context.Context, limits Limits) (worst pressure, err error) {
	if g.conn == nil {
		if g.conn, err = g.r.connect(ctx, g.now, g.shard); err != nil {
			return worst, err
		}
	}
	here, active, err := g.position(ctx)
	if err != nil {
		return worst, err
	}
	standbys, err := g.standbys(ctx, here)
	if err != nil {
		return worst, err
	}
	slots, err := g.slots(ctx)
	if err != nil {
		return worst, err
	}
	took, err := g.probe(ctx)
	if err != nil {
		return worst, err
	}
	g.crowd += weight * (float64(active) - g.crowd)
	if g.reads {
		standbys = nil
	}
	for _, one := range []pressure{lagging(g.shard, standbys, limits), g.keeping(slots, limits), g.load(took, limits)} {
		if one.over(worst) {
			worst = one
		}
	}
	return worst, nil
}

// position is where the server's WAL is, how old the oldest snapshot of the move is, and how many statements of others run there: those that wait for a lock or for their client are not in anybody's way.
func (g *gauge) position(ctx context.Context) (here int64, active int, err error) {
	err = g.conn.QueryRow(ctx, `
		SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint,
			(SELECT coalesce(max(age(backend_xmin)), 0) FROM pg_stat_activity WHERE starts_with(application_name, $1)) / greatest(current_setting('autovacuum_freeze_max_age')::float8, 1), (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND state = 'active' AND pid <> pg_backend_pid()
			AND NOT starts_with(application_name, '`+ownName+`') AND coalesce(wait_event_type, '') NOT IN ('Client', 'Lock', 'Timeout'))`, g.r.application()).Scan(&here, &g.aged, &active)
	if err != nil {
		return 0, 0, err
	}
	g.past = append(g.past, position{time.Now(), here})
	if len(g.past) > mostPositions {
		g.past = slices.Delete(g.past, 0, len(g.past)-mostPositions)
	}
	return here, active, nil
}

// mostPositions is how many are remembered: some minutes.
const mostPositions = 1500

// standbys are those that follow the server as a whole. Who reads changes of tables is not one, and nobody waits for base backups.
func (g *gauge) standbys(ctx context.Context, here int64) ([]standby, error) {
	rows, err := g.conn.Query(ctx, `
		SELECT coalesce(nullif(r.application_name, ''), r.client_addr::text, 'of process ' || r.pid), coalesce(pg_wal_lsn_diff(coalesce(r.replay_lsn, r.write_lsn), '0/0'), 0)::bigint,
			coalesce(r.replay_lsn, r.write_lsn) IS NOT NULL, coalesce(extract(epoch FROM r.replay_lag), 0)::float8
		FROM pg_stat_replication r LEFT JOIN pg_replication_slots s ON s.active_pid = r.pid WHERE s.slot_type IS DISTINCT FROM 'logical' AND r.state <> 'backup'`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s standby, err error) {
		var said float64
		err = row.Scan(&s.name, &s.lsn, &s.reads, &said)
		if s.reads && s.lsn < here {
			s.behind = max(behind(g.past, s.lsn, time.Now()), time.Duration(said*float64(time.Second)))
		}
		return s, err
	})
}

// behind is how long ago a server was where a standby is now. What it says itself may be old: it says nothing while it does nothing.
func behind(past []position, lsn int64, now time.Time) time.Duration {
	i, _ := slices.BinarySearchFunc(past, lsn, func(p position, lsn int64) int {
		if p.lsn <= lsn {
			return -1
		}
		return 1
	}) // the first at which the server was further
	if i == len(past) {
		return 0
	}
	return now.Sub(past[i].at)
}

// lagging says how much standbys that are behind speak against going on.
func lagging(shard string, standbys []standby, limits Limits) (worst pressure) {
	if limits.MaxLag < 0 || limits.Off {
		return worst
	}
	for _, s := range standbys {
		one := pressure{much: 2 * float64(s.behind) / float64(limits.MaxLag), stops: s.behind >= limits.MaxLag, by: ByLag}
		one.why = fmt.Sprintf("standby %s of shard %s is %s behind, and may be %s", s.name, shard, s.behind.Round(100*time.Millisecond), limits.MaxLag)
		if one.over(worst) {
			worst = one
		}
	}
	return worst
}

// slots are those that keep WAL there.
func (g *gauge) slots(ctx context.Context) ([]keeper, error) {
	rows, err := g.conn.Query(ctx, `
		SELECT slot_name::text, coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint, safe_wal_size, slot_name IN ($1, $2), coalesce(wal_status = 'lost', false),
			coalesce(age(catalog_xmin), 0), current_setting('autovacuum_freeze_max_age')::bigint
		FROM pg_replication_slots`, g.r.state().forward(), g.r.state().back())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (k keeper, err error) {
		err = row.Scan(&k.name, &k.kept, &k.room, &k.own, &k.lost, &k.age, &k.mostAge)
		return k, err
	})
}

// used is which part of what a slot may keep it keeps.
func (k keeper) used(limit int64) float64 {
	used := float64(k.kept) / float64(limit)
	if k.room != nil {
		used = max(used, float64(k.kept)/float64(max(k.kept+*k.room, 1)))
	}
	return used
}

// aged is which part of the transactions have passed during which a copy may keep its snapshot.
func (k keeper) aged() float64 { return float64(k.age) / float64(max(k.mostAge, 1)) }

// keeping says how much slots that keep WAL speak against writing more of it. What the move's own keeps does not become less by being slow: the longer a copy takes, the more is kept for it, so it hurries.
func (g *gauge) keeping(slots []keeper, limits Limits) (worst pressure) {
	g.slot, g.hurry = keeper{}, g.aged > 0.5
	for _, k := range slots {
		used := k.used(limits.MaxWAL)
		if k.own {
			g.slot, g.hurry = k, max(used, k.aged(), g.aged) > 0.5
			continue
		}
		if !g.writes || k.lost || limits.Off {
			continue
		}
		one := pressure{much: 2 * used, stops: used >= 1-roomForSlots, by: ByWAL}
		one.why = fmt.Sprintf("slot %s on shard %s keeps %d bytes of WAL, %.0f %% of what it may", k.name, g.shard, k.kept, 100*used)
		if one.over(worst) {
			worst = one
		}
	}
	return worst
}

// probe runs a small statement, which needs nothing but a processor.
func (g *gauge) probe(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	var n int
	err := g.conn.QueryRow(ctx, "SELECT count(*) FROM generate_series(1, 10000)").Scan(&n)
	return time.Since(began), err
}

// load says how much it speaks against going on that others have to wait.
func (g *gauge) load(took time.Duration, limits Limits) pressure {
	g.times = append(g.times, took)
	if len(g.times) > probes {
		g.times = g.times[1:]
	}
	best := g.r.mover.best(g.shard, took)
	if limits.MaxLoad < 0 || limits.Off || g.crowd < crowded {
		return pressure{}
	}
	longer := 0.0
	for _, one := range g.times {
		longer += min(float64(one)/float64(best), outlier) / float64(len(g.times))
	}
	return pressure{
		much: longer / limits.MaxLoad, by: ByLoad,
		why: fmt.Sprintf("%.1f statements run on shard %s, where a small one takes %.1f times as long as at best", g.crowd, g.shard, longer),
	}
}

// best is the least time that a small statement took on a shard, which is forgotten slowly.
func (v *Mover) best(shard string, took time.Duration) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	least := time.Duration(float64(v.quickest[shard]) * forgotten)
	if least == 0 || took < least {
		least = took
	}
	v.quickest[shard] = least
	return least
}
