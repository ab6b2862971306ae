// Package main is an order that goes through three services, stock, payment and shipping, as a saga: each step is done in its turn, and when shipping refuses, what was
// done is undone in reverse. It runs on a router of Cleave or on a plain PostgreSQL:
//
//	cleave dev &
//	go run ./examples/order postgres://cleave@127.0.0.1:6432/cleave
//
// order.go is what an application would have; services.go stands for the services, which are small HTTP servers in this process. It is not a library, and keeps
// nothing but rows in the tables sagas.sagas, sagas.steps and example_orders. Start reading at order.go.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleavedb/cleave/saga"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: order postgres://user@host:port/database")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "order:", err)
		os.Exit(1) //nolint:gocritic // there is nothing left to be cleaned up
	}
}

// run places two orders, one of which cannot be shipped, and prints what became of them.
func run(ctx context.Context, database string, out io.Writer) error {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := prepare(ctx, pool); err != nil {
		return err
	}
	s, err := startServices(out)
	if err != nil {
		return err
	}
	defer s.close()

	runner, err := saga.NewRunner(saga.Config{Pool: pool, Types: []saga.Type{s.orderSaga()}})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(running) }()
	err = placeAll(ctx, pool, runner, out)
	stop()
	if failed := <-ended; err == nil {
		err = failed
	}
	return err
}

// placeAll places one order after the other, so that what is printed is always the same.
func placeAll(ctx context.Context, pool *pgxpool.Pool, runner *saga.Runner, out io.Writer) error {
	customer := time.Now().UnixNano() // the shard key: all that one customer has is on one shard
	for number, to := range []string{"Vienna", "the Moon"} {
		order := order{Customer: customer, Number: int64(number + 1), Item: "kettle", Cents: 3_000, To: to}
		fmt.Fprintf(out, "order %d, to %s\n", order.Number, order.To)
		started, err := place(ctx, pool, order)
		if err != nil {
			return err
		}
		runner.Wake()
		ended, err := saga.Wait(ctx, pool, started.Key, started.ID, 10*time.Millisecond)
		if err != nil {
			return err
		}
		var state string
		if err := pool.QueryRow(ctx, "SELECT state FROM example_orders WHERE customer = $1 AND number = $2", order.Customer, order.Number).Scan(&state); err != nil {
			return err
		}
		fmt.Fprintf(out, "  the saga is %s, the order %s", ended.State, state)
		if ended.FailedStep != "" {
			fmt.Fprintf(out, ": step %s failed: %s", ended.FailedStep, ended.Failure)
		}
		fmt.Fprintln(out)
	}
	return nil
}
