package adopt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// lockPatience is how long a step waits for a table that it needs alone: whoever comes after it waits as long.
	lockPatience = "200ms"
	// lockAttempts is how often it tries, with pauses in which everybody else goes on.
	lockAttempts = 60
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
	// mendLock is the advisory lock of who mends: two would be in each other's way.
	mendLock = 0x61646f7074 // "adopt"
	// progressEvery is how often somebody hears how far a long step is.
	progressEvery = 2 * time.Second
)

// Mender runs the steps that a plan needs.
type Mender struct {
	// Conn does the work. Its notices have to go to Hear.
	Conn *pgx.Conn
	// Watch opens another connection, over which it is seen how far the first one is. Default: nobody looks.
	Watch     func(context.Context) (*pgx.Conn, error)
	Plan      *Plan
	Crossings map[string]Crossing
	// Progress hears how far a step is that takes long, every two seconds, and Ended how long each has taken. Defaults: nobody does.
	Progress func(Step, string)
	Ended    func(Step, time.Duration)

	filled atomic.Int64
}

// Hear takes what the server notices while a step runs.
func (m *Mender) Hear(notice string) {
	var rows int64
	if _, err := fmt.Sscanf(notice, "filled %d", &rows); err == nil {
		m.filled.Store(rows)
	}
}

// hearing is the driver's form of a function that hears notices.
func hearing(hear func(string)) func(*pgconn.PgConn, *pgconn.Notice) {
	return func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if hear != nil {
			hear(n.Message)
		}
	}
}

// Run mends until nothing is left that steps can mend, and says how many were run. After each step it looks anew what is left, so that it makes no difference
// whether it was interrupted.
func (m *Mender) Run(ctx context.Context) (done int, err error) {
	if err := m.prepare(ctx); err != nil {
		return 0, err
	}
	before := ""
	for {
		c, err := Read(ctx, m.Conn)
		if err != nil {
			return done, err
		}
		steps := Assess(c, m.Plan, m.Crossings).Steps
		if len(steps) == 0 {
			return done, nil
		}
		if steps[0].ID == before {
			return done, &StepError{Step: steps[0], Cause: errors.New("it was run, and is still to be done")}
		}
		if err := m.run(ctx, steps[0]); err != nil {
			return done, err
		}
		before = steps[0].ID
		done++
	}
}

// prepare takes the lock, and lets statements take their time. The lock goes with the session.
func (m *Mender) prepare(ctx context.Context) error {
	var free bool
	err := m.Conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1), set_config('statement_timeout', '0', false), set_config('lock_timeout', '0', false)`, int64(mendLock)).Scan(&free, nil, nil)
	switch {
	case err != nil:
		return fmt.Errorf("begin to mend: %w", err)
	case !free:
		return errors.New("somebody else is mending this database: a step of theirs is under way, or has not heard yet that it was interrupted")
	}
	return nil
}

func (m *Mender) run(ctx context.Context, step Step) error {
	started := time.Now()
	stop := m.watch(ctx, step, started)
	err := m.execute(ctx, step)
	stop()
	if err != nil {
		return failed(step, err)
	}
	if m.Ended != nil {
		m.Ended(step, time.Since(started))
	}
	return nil
}

func (m *Mender) execute(ctx context.Context, step Step) error {
	for _, statement := range step.Online {
		if _, err := m.Conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	if len(step.Brief) == 0 {
		return nil
	}
	return m.briefly(ctx, step.Brief)
}

// briefly runs statements in one transaction that does not wait for locks for long, so that nobody waits behind it, and tries again.
func (m *Mender) briefly(ctx context.Context, statements []string) error {
	pause := firstPause
	for attempt := 1; ; attempt++ {
		err := pgx.BeginFunc(ctx, m.Conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = '%s'; %s", lockPatience, strings.Join(statements, "; ")))
			return err
		})
		if err == nil || attempt == lockAttempts || !isCode(err, codeLockNotAvailable) && !isCode(err, codeDeadlock) {
			return err
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, longestPause)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watch says how far a step is, if it takes long, until it is stopped.
func (m *Mender) watch(ctx context.Context, step Step, started time.Time) (stop func()) {
	if m.Progress == nil {
		return func() {}
	}
	m.filled.Store(0)
	watching, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		look := &looker{open: m.Watch}
		defer look.close()
		for {
			select {
			case <-time.After(progressEvery):
				m.Progress(step, fmt.Sprintf("%s, %d s", m.progress(watching, step, look), int(time.Since(started).Seconds())))
			case <-watching.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// progress is how far a step is, as far as can be told.
func (m *Mender) progress(ctx context.Context, step Step, look *looker) string {
	if rows := m.filled.Load(); rows > 0 {
		return fmt.Sprintf("%d rows filled", rows)
	}
	if step.phase == makesIndex {
		if text := look.indexProgress(ctx, m.Conn.PgConn().PID()); text != "" {
			return text
		}
	}
	return "under way"
}

// looker is a connection over which another one is watched, made when it is first needed.
type looker struct {
	open func(context.Context) (*pgx.Conn, error)
	conn *pgx.Conn
}

func (l *looker) close() {
	if l.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.conn.Close(ctx)
	}
}

// indexProgress is what PostgreSQL tells of an index that is being made; empty if nothing is known.
func (l *looker) indexProgress(ctx context.Context, pid uint32) string {
	if l.conn == nil && l.open != nil {
		l.conn, _ = l.open(ctx)
	}
	if l.conn == nil {
		return ""
	}
	var phase string
	var done, total int64
	err := l.conn.QueryRow(ctx, "SELECT phase, blocks_done, blocks_total FROM pg_stat_progress_create_index WHERE pid = $1", int32(pid)).Scan(&phase, &done, &total)
	switch {
	case err != nil:
		return ""
	case total == 0:
		return phase
	default:
		return fmt.Sprintf("%s, %d of %d pages", phase, done, total)
	}
}
