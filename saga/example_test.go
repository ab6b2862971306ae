package saga_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cleavedb/cleave/saga"
)

// A transfer of money to another bank: a row in our database, and a call to the bank. The folder examples/order has a whole program.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@router:6432/app")
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	if err := saga.Install(ctx, pool, saga.InstallOptions{KeyType: "bigint"}); err != nil {
		panic(err)
	}
	runner, err := saga.NewRunner(saga.Config{Pool: pool, Types: []saga.Type{{Name: "transfer", Steps: []saga.Step{
		{Name: "withdraw", Do: saga.SQL(withdraw), Undo: saga.SQL(giveBack)},
		{Name: "send", Do: saga.Outside(send), Policy: saga.Policy{MaxAttempts: 20, Timeout: 5 * time.Second}},
	}}}})
	if err != nil {
		panic(err)
	}
	if err := runner.Run(ctx); err != nil { // until the context ends
		panic(err)
	}
}

type transfer struct{ Cents int64 }

func withdraw(ctx context.Context, tx pgx.Tx, call *saga.Call) (any, error) {
	var t transfer
	if err := call.Input(&t); err != nil {
		return nil, err
	}
	tag, err := tx.Exec(ctx, "UPDATE accounts SET cents = cents - $2 WHERE id = $1 AND cents >= $2", call.Key, t.Cents)
	if err == nil && tag.RowsAffected() == 0 {
		err = saga.Permanent(errors.New("there is not enough money"))
	}
	return nil, err
}

func giveBack(ctx context.Context, tx pgx.Tx, call *saga.Call) (any, error) {
	var t transfer
	if err := call.Input(&t); err != nil {
		return nil, err
	}
	_, err := tx.Exec(ctx, "UPDATE accounts SET cents = cents + $2 WHERE id = $1", call.Key, t.Cents)
	return nil, err
}

func send(ctx context.Context, call *saga.Call) (any, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.example/transfers", strings.NewReader("…"))
	if err != nil {
		return nil, saga.Permanent(err)
	}
	request.Header.Set("Idempotency-Key", call.IdempotencyKey)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err // nobody knows: it is tried again
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode/100 == 4:
		return nil, saga.Permanent(fmt.Errorf("the bank refuses: %s", response.Status))
	case response.StatusCode/100 != 2:
		return nil, errors.New(response.Status)
	}
	return response.Header.Get("Location"), nil
}

// A row and the saga that goes with it are written in one transaction.
func ExampleStart() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@router:6432/app")
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO transfers (account, number, cents) VALUES ($1, $2, $3)", 42, 7, 1_000); err != nil {
			return err
		}
		_, err := saga.Start(ctx, tx, saga.Request{Type: "transfer", Key: 42, IdempotencyKey: "transfer-7", Input: transfer{Cents: 1_000}})
		return err
	})
	if err != nil {
		panic(err)
	}
}

// What is stuck waits for a person.
func ExampleRetry() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, "postgres://app@router:6432/app")
	if err != nil {
		panic(err)
	}
	defer conn.Close(ctx)
	stuck, err := saga.List(ctx, conn, saga.Filter{States: []saga.State{saga.Stuck}})
	if err != nil {
		panic(err)
	}
	for _, s := range stuck {
		fmt.Println(s.Type, s.Key, s.ID, s.Step, s.LastError)
		if err := saga.Retry(ctx, conn, s.Key, s.ID, "the bank is back"); err != nil {
			panic(err)
		}
	}
}
