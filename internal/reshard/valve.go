package reshard

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// PostgreSQL's replication applies what has piled up as fast as it can, and a subscription that is stopped starts again only after seconds. So there is a valve: one mark is written on the source again and again, and the worker
// that applies its changes on the target has to write it as well. Who holds that row there lets the worker wait at it, and the sender behind the worker; who dies holds nothing any more.

const (
	// beatEvery is how often the mark is written while the target catches up, and beatCopying while rows are copied: the worker can be stopped at each, and works off what was written in that time in much less.
	beatEvery   = 20 * time.Millisecond
	beatCopying = 100 * time.Millisecond
	// openFor is how long the worker works before it rests, and closedAtMost how long it rests: far less than the time after which a server takes another one for dead.
	openFor      = 20 * time.Millisecond
	closedAtMost = time.Second
	// restsAtLeast is how long a rest has to be to be worth the trouble.
	restsAtLeast = time.Millisecond
)

// beating writes the mark on the source, until the function that it returns is called.
func (r *run) beating(ctx context.Context, now *topology.Map, every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var beats sync.WaitGroup
	beats.Go(func() {
		for ctx.Err() == nil {
			if err := r.beat(ctx, now, every); ctx.Err() == nil {
				r.mover.config.Logger.Debug("the source cannot be written to for the target's pace", "move", r.id, "error", err)
			}
			doze(ctx, time.Second)
		}
	})
	return func() {
		cancel()
		beats.Wait()
	}
}

func (r *run) beat(ctx context.Context, now *topology.Map, every time.Duration) error {
	conn, err := r.connect(ctx, now, r.state().Source)
	if err != nil {
		return err
	}
	defer closeQuietly(conn)
	beats, err := shard.NewBeats(ctx, conn, r.id)
	if err != nil {
		return err
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := beats.Beat(ctx); err != nil {
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
	t := r.begin(ctx, now, &throttle{what: "catching up", carries: true}, r.state().Target)
	defer t.close()
	defer r.beating(ctx, now, beatEvery)()
	working, cancel := context.WithCancel(ctx)
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
		rest, by := t.shut()
		if rest < restsAtLeast || t.r.unheld.Load() {
			continue
		}
		if conn == nil {
			var err error
			if conn, err = t.r.connect(ctx, now, t.r.state().Target); err != nil {
				conn = nil
				doze(ctx, time.Second)
				continue
			}
		}
		t.shutting.Lock()
		err := shard.HoldBeats(ctx, conn, t.r.id, rest)
		t.shutting.Unlock()
		if err != nil {
			closeQuietly(conn)
			conn = nil
			continue
		}
		t.r.mover.config.Metrics.Throttled(string(by), rest)
	}
}

// shut is how long the worker rests now, and why. It never stands still, whatever speaks against going on: the source keeps what it does not carry over.
func (t *throttle) shut() (rest time.Duration, by Reason) {
	t.mu.Lock()
	hurry := t.hurry
	t.mu.Unlock()
	rest, by, stops := t.due(openFor)
	slowly := pace{share: slowest}
	switch {
	case hurry:
		return 0, by
	case stops:
		return slowly.rest(openFor), by
	default:
		return min(rest, closedAtMost), by
	}
}

// isSlow says whether the worker rests now and then.
func (t *throttle) isSlow() bool {
	rest, _ := t.shut()
	return rest >= restsAtLeast
}

// freely does something while the worker works as fast as it can.
func (t *throttle) freely(do func() bool) bool {
	t.shutting.Lock()
	defer t.shutting.Unlock()
	return do()
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
