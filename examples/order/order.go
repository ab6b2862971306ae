package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleavedb/cleave/saga"
)

// order is what a customer wants, and the input of the saga.
type order struct {
	Customer, Number int64
	Item             string
	Cents            int64
	To               string
}

// prepare makes the tables of the order and of the sagas. Both have the customer as their key, so an order's row, its saga and the saga's progress are on one shard.
func prepare(ctx context.Context, pool *pgxpool.Pool) error {
	if err := saga.Install(ctx, pool, saga.InstallOptions{KeyType: "bigint"}); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS example_orders
		(customer bigint, number bigint, item text, cents bigint, state text, shipment text, PRIMARY KEY (customer, number))`)
	if err != nil {
		return err
	}
	_, err = pool.Exec(ctx, "SELECT cleave.shard_table('example_orders', 'customer')")
	var answered *pgconn.PgError
	if errors.As(err, &answered) && (answered.Code == "55000" || answered.Code == "3F000") {
		return nil // it is sharded already, or this is a plain PostgreSQL
	}
	return err
}

// place writes the order and starts its saga, in one transaction: there is never one without the other. Whoever places it again with the same number gets the
// same saga.
func place(ctx context.Context, pool *pgxpool.Pool, o order) (started saga.Started, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO example_orders (customer, number, item, cents, state) VALUES ($1, $2, $3, $4, 'placed') ON CONFLICT DO NOTHING",
			o.Customer, o.Number, o.Item, o.Cents)
		if err != nil {
			return err
		}
		started, err = saga.Start(ctx, tx, saga.Request{Type: "order", Key: o.Customer, IdempotencyKey: fmt.Sprint("order-", o.Number), Input: o})
		return err
	})
	return started, err
}

// orderSaga says what is done for an order, in which order, and how each is undone.
func (s *services) orderSaga() saga.Type {
	often := saga.Policy{MaxAttempts: 20, Timeout: 5 * time.Second, MinDelay: 50 * time.Millisecond, MaxDelay: 10 * time.Second}
	return saga.Type{Name: "order", Steps: []saga.Step{
		{Name: "accept", Do: saga.SQL(setState("accepted")), Undo: saga.SQL(setState("cancelled"))},
		{Name: "reserve", Do: saga.Outside(s.call("stock", "reserve")), Undo: saga.Outside(s.call("stock", "release")), Policy: often, UndoPolicy: often},
		{Name: "charge", Do: saga.Outside(s.call("payment", "charge")), Undo: saga.Outside(s.call("payment", "refund")), Policy: often, UndoPolicy: often},
		{Name: "ship", Do: saga.Outside(s.call("shipping", "ship")), Undo: saga.Outside(s.call("shipping", "cancel")), Policy: often, UndoPolicy: often},
		{Name: "confirm", Do: saga.SQL(confirm)},
	}}
}

// setState is a step in the database: it happens exactly once.
func setState(state string) func(context.Context, pgx.Tx, *saga.Call) (any, error) {
	return func(ctx context.Context, tx pgx.Tx, call *saga.Call) (any, error) {
		var o order
		if err := call.Input(&o); err != nil {
			return nil, err
		}
		_, err := tx.Exec(ctx, "UPDATE example_orders SET state = $3 WHERE customer = $1 AND number = $2", call.Key, o.Number, state)
		return nil, err
	}
}

// confirm uses the result of a step before it.
func confirm(ctx context.Context, tx pgx.Tx, call *saga.Call) (any, error) {
	var o order
	var shipment string
	if err := errors.Join(call.Input(&o), call.Result("ship", &shipment)); err != nil {
		return nil, err
	}
	_, err := tx.Exec(ctx, "UPDATE example_orders SET state = 'confirmed', shipment = $3 WHERE customer = $1 AND number = $2", call.Key, o.Number, shipment)
	return nil, err
}
