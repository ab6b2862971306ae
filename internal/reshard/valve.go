package reshard

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// PostgreSQL's replication applies what has piled up as fast as it can, and a subscription that is stopped starts again only after seconds. So there is a valve: one mark is written on the source again and again, and the worker
// that applies its changes on the target has to write it as well. Who holds that row there lets the worker wait at it, and the sender behind the worker; who dies holds nothing any more.

const (
	// beatEvery is how often the mark is written: the worker can be stopped at each.
	beatEvery = 20 * time.Millisecond
	// openFor is how long the worker works before it rests, and closedAtMost how long it rests: far less than the time after which a server takes another one for dead.
	openFor      = 20 * time.Millisecond
	closedAtMost = time.Second
)

// beat writes the mark on the source until the context ends. For a new copy it is a new mark: an older one may have come to a target that has lost it.
func (r *run) beat(ctx context.Context, now *topology.Map, anew bool) {
	for ctx.Err() == nil {
		err := r.beatOn(ctx, now, anew)
		if ctx.Err() == nil {
			r.mover.config.Logger.Debug("the source cannot be written to for the target's pace", "move", r.id, "error", err)
		}
		doze(ctx, time.Second)
	}
}

func (r *run) beatOn(ctx context.Context, now *topology.Map, anew bool) error {
	conn, err := r.connect(ctx, now, r.state().Source)
	if err != nil {
		return err
	}
	defer closeQuietly(conn)
	if _, err := conn.Exec(ctx, "SET synchronous_commit = off"); err != nil { // nothing depends on it
		return err
	}
	if anew {
		if err := shard.ForgetBeats(ctx, conn, r.id); err != nil {
			return err
		}
	}
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		if err := shard.Beat(ctx, conn, r.id); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// whileGivingWay does something while the target applies changes at the pace that the throttle allows.
func (r *run) whileGivingWay(ctx context.Context, now *topology.Map, do func(*throttle) error) error {
	t := r.giveWay(ctx, now, "catching up", r.state().Target)
	defer t.close()
	working, cancel := context.WithCancel(ctx)
	t.ended.Go(func() { r.beat(working, now, false) })
	t.ended.Go(func() { t.pump(working, now) })
	defer cancel()
	return do(t)
}

// pump opens and shuts the valve until the context ends.
func (t *throttle) pump(ctx context.Context, now *topology.Map) {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			closeQuietly(conn)
		}
	}()
	for ctx.Err() == nil {
		doze(ctx, openFor)
		rest, by, stops := t.due(openFor)
		if stops || rest > closedAtMost {
			rest = closedAtMost
		}
		if rest < time.Millisecond {
			continue
		}
		var err error
		if conn == nil || conn.IsClosed() {
			if conn, err = t.r.connect(ctx, now, t.r.state().Target); err != nil {
				conn = nil
				doze(ctx, time.Second)
				continue
			}
		}
		if err := shard.HoldBeats(ctx, conn, t.r.id, rest); err != nil {
			closeQuietly(conn)
			conn = nil
			continue
		}
		t.r.mover.config.Metrics.Throttled(string(by), rest)
	}
}

// doze waits, and hears nobody.
func doze(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// approach looks whether the target comes closer, and sees to it that it does: giving way must not take for ever.
type approach struct {
	bytes int64
	at    time.Time
}

const (
	// approachTime is how long a target has to come closer, and closer which part of what it is behind it has to come in that time.
	approachTime = 2 * time.Second
	closer       = 0.03
)

// look is told how far the target is behind.
func (a *approach) look(t *throttle, bytes int64, now time.Time) {
	switch {
	case a.at.IsZero():
	case now.Sub(a.at) < approachTime:
		return
	case float64(bytes) > float64(a.bytes)*(1-closer):
		t.quicken(+quicker)
	case float64(bytes) < float64(a.bytes)*(1-2*closer):
		t.quicken(-quicker / 2)
	}
	a.bytes, a.at = bytes, now
}
