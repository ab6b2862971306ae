package saga

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// childVariable, in the environment, makes this binary a process that dies where it is told.
const childVariable = "CLEAVE_SAGA_CHILD"

// orders is what a child is told.
type orders struct {
	DSN, Type string
	// Key is where a caller starts a saga. Zero: it is a runner.
	Key int64
	// Point, Step and Direction say where to die.
	Point, Step string
	Direction   Direction
	// Stop has it stopped instead of killed.
	Stop bool
	// Attempts is how often a step may be tried. Zero: five times.
	Attempts int
}

// Points of the test's own, in the functions of steps and in the caller.
const (
	pointBefore    = "before the effect" // S7
	pointAfter     = "after the effect"  // S8, S15
	pointStarted   = "started"           // S1
	pointCommitted = "committed"         // S2
)

// wasStopped says that the process was stopped before: it is once.
var wasStopped atomic.Bool

// reached dies if this is the place.
func (o orders) reached(point, step string, d Direction) {
	if point != o.Point || step != o.Step || d != o.Direction {
		return
	}
	if o.Stop {
		if wasStopped.Swap(true) {
			return
		}
		fmt.Println("stops")
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(lease / 3) // it takes a moment
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	time.Sleep(time.Minute) // it takes a moment
}

// runChild is the whole of a child's life.
func runChild() {
	var o orders
	must(json.Unmarshal([]byte(os.Getenv(childVariable)), &o))
	pool, err := pgxpool.New(context.Background(), o.DSN)
	must(err)
	if o.Key != 0 {
		o.callStart(pool)
		return
	}
	w := &world{pool: pool}
	r, err := NewRunner(Config{Pool: pool, Types: []Type{w.order(o.Type, o)}, Lease: lease, PollInterval: 20 * time.Millisecond, Logger: quiet})
	must(err)
	r.at = o.reached
	ctx, cancel := context.WithTimeout(context.Background(), patience) // whoever forgot it
	defer cancel()
	must(r.Run(ctx))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
}

// callStart is a caller that writes a row of its own and starts a saga, in one transaction.
func (o orders) callStart(pool *pgxpool.Pool) {
	ctx := context.Background()
	must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, leaveTrace, o.Key, "caller", "order placed", "", os.Getpid()); err != nil {
			return err
		}
		if _, err := Start(ctx, tx, Request{Type: o.Type, Key: o.Key, IdempotencyKey: "placed", Input: order{}}); err != nil {
			return err
		}
		o.reached(pointStarted, "", "")
		return nil
	}))
	o.reached(pointCommitted, "", "")
}

// order is the input of the saga that children run.
type order struct {
	// Refused has the last step fail for good.
	Refused bool
	// Slow has it fail the first time, to be tried again.
	Slow bool
}

var errRefused = errors.New("no lorry goes there")

// order is a saga of SQL steps and outside steps, which all leave traces, and dies where it is told.
func (w *world) order(name string, o orders) Type {
	quick := Policy{MinDelay: 50 * time.Millisecond, MaxDelay: 100 * time.Millisecond, MaxAttempts: cmp.Or(o.Attempts, 5), Timeout: 20 * time.Second}
	outside := Outside(func(ctx context.Context, c *Call) (any, error) {
		o.reached(pointBefore, c.Step, c.Direction)
		if err := leave(ctx, w.pool, c); err != nil {
			return nil, err
		}
		o.reached(pointAfter, c.Step, c.Direction)
		return c.Step + "'s result", nil
	})
	ship := Outside(func(ctx context.Context, c *Call) (any, error) {
		var in order
		if err := c.Input(&in); err != nil {
			return nil, err
		}
		switch {
		case in.Refused:
			return nil, Permanent(errRefused)
		case in.Slow && c.Attempt == 1:
			return nil, errors.New("not yet")
		}
		return "shipped", leave(ctx, w.pool, c)
	})
	return Type{Name: name, Steps: []Step{
		{Name: "reserve", Do: sqlTrace(), Undo: sqlTrace(), Policy: quick, UndoPolicy: quick},
		{Name: "charge", Do: outside, Undo: outside, Policy: quick, UndoPolicy: quick},
		{Name: "book", Do: sqlTrace(), Undo: sqlTrace(), Policy: quick, UndoPolicy: quick},
		{Name: "ship", Do: ship, Policy: quick},
	}}
}
