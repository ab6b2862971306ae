package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
)

// The curve: beside writers at a pace there are clients whose transactions write two rows and stay open for a time, half of the time.
const (
	curveClients = 4
	// curvePatience is how long a switch may wait for its turn.
	curvePatience = 30 * time.Second
)

var transactionLengths = []time.Duration{0, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, time.Second}

// curve measures switches beside transactions of growing length.
func (l *lab) curve(ctx context.Context) error {
	for _, pace := range l.paces {
		for _, length := range transactionLengths {
			if err := l.beside(ctx, pace, length); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *lab) beside(ctx context.Context, pace int, length time.Duration) error {
	working, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	var samples []sample
	var failures, broken int
	var failed error
	running.Go(func() { samples, failures, failed = l.write(working, pace) })
	transactions := make([]error, curveClients)
	counts := make([]int, curveClients)
	if length > 0 {
		for i := range curveClients {
			running.Go(func() { counts[i], transactions[i] = l.transact(working, int64(i), length) })
		}
	}
	var switches []api.MoveSwitch
	var waits []time.Duration
	gaveUp := 0
	err := func() error {
		defer running.Wait()
		defer stop()
		for range l.rounds {
			m, waited, done, err := l.patiently(ctx)
			if err != nil {
				return err
			}
			switches, waits = append(switches, m.Switches...), append(waits, waited)
			if !done {
				gaveUp++
			}
		}
		return nil
	}()
	for i, err := range transactions {
		if err != nil {
			broken++
			failed = errors.Join(failed, err)
		}
		counts[0] += counts[i] * min(i, 1)
	}
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	slices.Sort(waits)
	fmt.Fprintf(l.out, "transactions of %s (%d of them, %d failed): a switch waited for its turn for %s in the middle, %s at most; %d of %d moves were cancelled after %s of that\n",
		length, counts[0], broken, waits[len(waits)/2].Round(time.Millisecond), waits[len(waits)-1].Round(time.Millisecond), gaveUp, l.rounds, curvePatience)
	l.reportPause(pace, samples, failures, switches)
	return nil
}

// patiently moves all that one shard has, and gives up if its switch does not get its turn. It says how long the move was about to switch.
func (l *lab) patiently(ctx context.Context) (m api.Move, waited time.Duration, done bool, err error) {
	from, to := l.turn()
	list, err := l.router.API.StartMoves(ctx, api.StartMove{From: from, To: to, Streams: l.streams[0]})
	if err != nil {
		return m, 0, false, err
	}
	var since time.Time
	var patience *time.Timer
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	m, err = l.await(limited, list.Moves[0].ID, func(m api.Move) {
		switch {
		case m.Phase == "switching":
			since = time.Now()
			patience = time.AfterFunc(curvePatience, cancel)
		case patience != nil && patience.Stop():
			waited = time.Since(since)
		}
	})
	if err == nil || ctx.Err() != nil || !errors.Is(err, context.Canceled) {
		return m, waited, true, err
	}
	l.turn() // the rows stay where they are
	if _, err := l.router.API.WishMove(ctx, list.Moves[0].ID, "cancel"); err != nil {
		return m, 0, false, err
	}
	for m.Phase != "cancelled" {
		if m, err = l.router.API.Move(ctx, list.Moves[0].ID); err != nil {
			return m, 0, false, err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return m, curvePatience, false, nil
}

// transact makes transactions of a length, and as long a pause after each, until the context ends.
func (l *lab) transact(ctx context.Context, who int64, length time.Duration) (count int, err error) {
	lasting := context.WithoutCancel(ctx)
	conn, err := pgx.Connect(lasting, l.place())
	if err != nil {
		return 0, err
	}
	defer conn.Close(lasting)
	for ctx.Err() == nil {
		err := pgx.BeginFunc(lasting, conn, func(tx pgx.Tx) error {
			id := int64(l.rows) - 1 - (int64(count)*curveClients+who)%1000
			if _, err := tx.Exec(lasting, "UPDATE things SET n = n + 1 WHERE id = $1", id); err != nil {
				return err
			}
			time.Sleep(length)
			_, err := tx.Exec(lasting, "UPDATE things SET n = n + 1 WHERE id = $1", id)
			return err
		})
		if err != nil {
			return count, fmt.Errorf("a transaction of %s: %w", length, err)
		}
		count++
		time.Sleep(length)
	}
	return count, nil
}
